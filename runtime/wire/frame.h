/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * frame.h - what two daemons exchange over a lane.
 *
 * A frame is a header and a payload. DATA frames are numbered by the session of the link and hold
 * records (wire/record.h); ACK and CTRL frames are not numbered, may be lost or repeated, and are
 * harmless when they are. On a verbs lane a frame is one SEND; on a TCP lane frames follow each
 * other on the stream. Little-endian.
 */
#ifndef RCS_WIRE_FRAME_H
#define RCS_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_FRAME_MAGIC   0x5243u /* "CR" */
#define WIRE_FRAME_VERSION 2u
#define WIRE_FRAME_MAX	   4224u /* header and payload: one record of WIRE_REC_PAYLOAD_MAX fits */

enum wire_frame_type {
	WIRE_FRAME_DATA = 1,
	WIRE_FRAME_ACK = 2,
	WIRE_FRAME_CTRL = 3, /* payload: struct core_ctrl (core/link.h) */
	WIRE_FRAME_LOOSE = 4, /* payload: one record that may be lost and overtakes DATA; not numbered */
};

/* On a verbs lane: the sender's device does not tell the truth in rq_psn; write its ledger word. */
#define WIRE_FRAME_F_WORD 0x1u

struct wire_frame {
	uint16_t magic;
	uint8_t version;
	uint8_t type; /* enum wire_frame_type */
	uint8_t lane; /* lane index, and its generation at the sender */
	uint8_t flags; /* WIRE_FRAME_F_*; unknown ones are ignored */
	uint16_t src_node;
	uint32_t lane_gen;
	uint32_t len;	      /* bytes of payload */
	uint64_t seq;	      /* DATA: session number, from 0 */
	uint64_t ack;	      /* number of frames of the peer that were delivered */
	uint64_t limit;	      /* absolute: frames the peer may have sent (seq < limit) */
	uint32_t incarnation; /* of src_node */
	uint32_t crc;	      /* CRC32C of header (this field 0) and payload */
};
_Static_assert(sizeof(struct wire_frame) == 48, "layout");

#define WIRE_FRAME_ROOM (WIRE_FRAME_MAX - sizeof(struct wire_frame))

void wire_frame_seal(struct wire_frame *f, const void *payload);

/*
 * Checks a received frame of `got` bytes (header included; for a stream: at least the header and
 * the announced length). 0, or -EINVAL and *why.
 */
int wire_frame_check_header(const struct wire_frame *f, const char **why);
int wire_frame_check(const struct wire_frame *f, const void *payload, size_t got, const char **why);

#endif
