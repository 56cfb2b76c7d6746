/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record.h - the unit that endpoints exchange, the same bytes in a channel's rings and in a frame.
 *
 * A rank's library writes a record into its submission ring; the daemon checks it, fills in who
 * sent it, and copies it into a frame of the link to its node (or straight into the receive ring
 * of a rank of the same node); the daemon there copies it into the receive ring of the rank.
 * Several records share a frame. All integers are little-endian, which every supported host is.
 *
 *	0      4      8     12     16     20     24     32     40     48     56     64
 *	| type | len  |s,d ep|s,d nd|srcep.|dstep.| tag  | data |  op  | arg  |credit| payload...
 *
 * A record occupies WIRE_REC_SPACE(len) bytes: header and payload padded to 8.
 */
#ifndef RCS_WIRE_RECORD_H
#define RCS_WIRE_RECORD_H

#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rcshare supports little-endian hosts");

enum wire_rec_type {
	WIRE_REC_PAD = 0, /* the rest of a ring before it wraps; never in a frame */

	/* rank to rank; charged to the receiver's credit (see below) */
	WIRE_REC_MSG = 1,  /* a whole message: tag, data, payload. op: sender's, if DELIVERED asked */
	WIRE_REC_RTS = 2,  /* a large message is ready: tag, data, arg = its length, op = sender's;
			    * payload: struct wire_rts */
	WIRE_REC_PUSH = 3, /* a piece of a pushed large message: op = receiver's, arg = offset */

	/* rank to rank; room reserved by whoever's request they answer */
	WIRE_REC_CTS = 8,	/* push to me: op = receiver's, tag = sender's op (of the RTS),
				 * arg = offset from which on */
	WIRE_REC_FIN = 9,	/* large message done: op = sender's (of the RTS), arg = rcs_status */
	WIRE_REC_DELIVERED = 10, /* op = sender's; written by the receiver's daemon */
	WIRE_REC_CREDIT = 11,	/* credit only */
	WIRE_REC_GONE = 12,	/* the endpoint that op was for does not exist (any more) or its node
				 * is not reachable: op = sender's, tag = the record type it answers,
				 * arg = rcs_status; src = the endpoint that is gone.
				 * Written by a daemon */
	WIRE_REC_CANCEL = 13,	/* sender to receiver: forget RTS op; answered by FIN (canceled) or
				 * by the course of things if it was matched already. arg 1: the sender closes its
				 * endpoint, its buffer is no more. op 0: are you there? Only where nobody is that
				 * is answered, by GONE */

	WIRE_REC_RDONE = 14, /* answer to RATOM, and to the last RPUT: op = requester's, arg = rcs_status,
			      * data = RATOM: the value before */
	WIRE_REC_RDATA = 15, /* answer to RGET, to a daemon: op = requester's, arg = offset in the
			      * request, payload; F_LAST with the last */

	/* daemon to its own rank */
	WIRE_REC_GET_DONE = 16, /* op = as in GET, arg = rcs_status, data = bytes that arrived */
	WIRE_REC_EVENT = 17,	/* payload: struct shm_event (shm/channel.h) */
	WIRE_REC_RMA_DONE = 18, /* op = as in RMA, arg = rcs_status */
	WIRE_REC_ACCESS = 19,	/* do what I may not: read arg bytes at address tag, or with F_WRITE write
				 * the payload there. data = the key of a region that covers them, or with
				 * F_OWN the op of an RMA of yours whose buffer does. op: of the daemon */

	/*
	 * To the daemon of dst_node, which executes them on the memory of (dst_ep, dst_epoch); never put
	 * into a ring. data = key of the region (wire_key_pack), tag = virtual address, or with F_OFFSET
	 * and for RATOM the offset in the region. A daemon sends RPUT and RGET for its ranks where no
	 * RDMA reaches, a rank sends RATOM.
	 */
	WIRE_REC_RPUT = 20,  /* payload: what to write; F_LAST: answer by RDONE (an error at once) */
	WIRE_REC_RGET = 21,  /* arg = length; answered by RDATA, or RDONE with an error */
	WIRE_REC_RATOM = 22, /* arg = operand; payload: struct wire_atomic; answered by RDONE */

	/* rank to its own daemon */
	WIRE_REC_GET = 24,  /* fetch a large message: payload struct wire_get, op = own, tag = the
			     * sender's op (of the RTS); once for each RTS */
	WIRE_REC_PEER = 25, /* dst_node's daemon: payload struct wire_addr (of any rank there) */
	WIRE_REC_RMA = 26,  /* put or get: payload struct wire_rma (WIRE_RMA_INLINE: and the data),
			     * op = own; dst_* = the owner of the remote region */
	WIRE_REC_ACCESSED = 27, /* answer to ACCESS: op as there, arg = rcs_status, payload: what was read */

	/* daemon to daemon, about keys; dst_ep = the owner's (KEY_ASK, REVOKED) or the daemon's */
	WIRE_REC_KEY_ASK = 28, /* data = key: is it good, and what are its rkeys? */
	WIRE_REC_KEY = 29,     /* src_ep, src_epoch = the owner, data = key, arg = rcs_status; payload:
				* struct wire_key_info */
	WIRE_REC_REVOKE = 30,  /* src_ep = the owner, data = key: use it no more ... */
	WIRE_REC_REVOKED = 31, /* ... data = key: nothing is outstanding on it */
	WIRE_REC_VIEW = 32,    /* data = step; payload: struct core_view_msg (core/view.h) */
	WIRE_REC_ENDED = 33,   /* data = step: the ranks that were active on this node have ended */
	WIRE_REC_DETACHED = 34, /* endpoints of this node have ended; behind all that they have sent */
};

/* flags */
#define WIRE_REC_F_DATA      0x1u /* data is valid */
#define WIRE_REC_F_DELIVERED 0x2u /* sender asks for WIRE_REC_DELIVERED */
#define WIRE_REC_F_LAST	     0x4u /* of the pieces of a request */
#define WIRE_REC_F_OFFSET    0x8u /* RPUT, RGET: tag is an offset */
#define WIRE_REC_F_WRITE     0x10u /* ACCESS */
#define WIRE_REC_F_OWN	     0x20u /* ACCESS */
#define WIRE_REC_F_HOLD	     0x40u /* CREDIT: for PUSH alone, until one comes without */

#define WIRE_EP_DAEMON 0xffffu /* dst_ep of records for a daemon itself */

struct wire_rec {
	uint16_t type;	   /* enum wire_rec_type */
	uint16_t flags;
	uint32_t len;	   /* bytes of payload behind this header */
	uint16_t src_ep;   /* endpoint slot on its node; src_* are written by the source's daemon */
	uint16_t dst_ep;
	uint16_t src_node; /* node index in the job's allocation */
	uint16_t dst_node;
	uint32_t src_epoch; /* which occupant of the slot; a record for a former one is refused */
	uint32_t dst_epoch;
	uint64_t tag;
	uint64_t data;	   /* immediate data, with WIRE_REC_F_DATA */
	uint64_t op;	   /* opaque to everyone but the library that made it */
	uint64_t arg;
	uint64_t credit;   /* absolute: bytes of charged records that the receiver of this record may
			    * have sent to its sender since both met; 0 says nothing */
};
_Static_assert(sizeof(struct wire_rec) == 64, "layout");

#define WIRE_REC_SPACE(len) (sizeof(struct wire_rec) + (((size_t)(len) + 7) & ~(size_t)7))

/* Largest payload of one record; with its header it fits a frame alone. */
#define WIRE_REC_PAYLOAD_MAX 4096u

/* Is this type charged to the receiver's credit? Its charge is WIRE_REC_SPACE(len). */
static inline int wire_rec_charged(uint16_t type)
{
	return type >= WIRE_REC_MSG && type <= WIRE_REC_PUSH;
}

/* Does this record pass between nodes? The others are between a rank and its own daemon alone. */
int wire_rec_travels(const struct wire_rec *r);

/*
 * Rails of a node and keys of a region on them. A key names (owner, region id, generation); the
 * daemons map it to one rkey a rail. lkeys and rkeys never travel through a rank's hands as
 * authority: the daemon of the requester learns them from the RTS that passes it.
 */
#define WIRE_RAILS_MAX 4u

struct wire_key {
	uint32_t region; /* region id at its owner's daemon */
	uint32_t gen;	 /* generation of that id */
};

struct wire_rts {
	struct wire_key key; /* region 0: not registered, push is the only way */
	uint64_t addr;	     /* virtual address of the message at its owner */
	uint32_t pid;	     /* of the owner, for process_vm_readv within a node */
	uint32_t nrails;     /* filled in by the owner's daemon ... */
	uint32_t rkey[WIRE_RAILS_MAX];
	uint32_t rail_ok;    /* ... bit r: rkey[r] is valid */
	uint8_t device[WIRE_RAILS_MAX]; /* ... on that device: verbs_rail_epoch, its low byte */
	uint64_t cookie_at;  /* within a node: what process_vm_readv finds at this address of the
			      * owner must be cookie, or pid names another process (another pid
			      * namespace, or pid was used again) */
	uint64_t cookie;
};
_Static_assert(sizeof(struct wire_rts) == 64, "layout");

struct wire_get {
	struct wire_key key; /* remote region, owned by (dst_node, dst_ep) of the record */
	uint64_t raddr;	     /* remote virtual address */
	uint64_t laddr;	     /* local virtual address */
	uint64_t len;
	uint32_t lregion;    /* local region that covers it, and its generation */
	uint32_t lgen;
};
_Static_assert(sizeof(struct wire_get) == 40, "layout");

static inline uint64_t wire_key_pack(struct wire_key k)
{
	return (uint64_t)k.gen << 32 | k.region;
}

static inline struct wire_key wire_key_unpack(uint64_t v)
{
	return (struct wire_key){(uint32_t)v, (uint32_t)(v >> 32)};
}

/* A put or get that a rank asks its daemon for. Without a local region the daemon reads and writes
 * the rank's memory itself, and no RDMA is used. */
#define WIRE_RMA_GET	0x1u /* else put */
#define WIRE_RMA_INLINE 0x2u /* put: the bytes follow; laddr and lregion are 0 */
#define WIRE_RMA_REPLAY 0x4u /* put: may run again where nobody can tell whether it ran */
struct wire_rma {
	struct wire_key key; /* of the remote region */
	uint64_t off;	     /* in it */
	uint64_t laddr;	     /* local virtual address */
	uint64_t len;
	uint32_t lregion, lgen; /* local region that covers it, 0: none */
	uint32_t flags;
	uint32_t pad;
};
_Static_assert(sizeof(struct wire_rma) == 48, "layout");
#define WIRE_RMA_INLINE_MAX (WIRE_REC_PAYLOAD_MAX - sizeof(struct wire_rma))

enum wire_atomic_op {
	WIRE_ATOMIC_ADD = 1,  /* old + operand */
	WIRE_ATOMIC_CSWAP = 2, /* operand where old == compare */
	WIRE_ATOMIC_SWAP = 3,
};
struct wire_atomic {
	uint64_t compare;
	uint8_t op;   /* enum wire_atomic_op */
	uint8_t size; /* 4 or 8: bytes; offset is a multiple of it */
	uint8_t pad[6];
};
_Static_assert(sizeof(struct wire_atomic) == 16, "layout");

struct wire_key_info {
	uint64_t addr, len;
	uint32_t rail_ok; /* bit r: rkey[r] is valid */
	uint32_t rkey[WIRE_RAILS_MAX];
	uint8_t device[WIRE_RAILS_MAX]; /* on that device: verbs_rail_epoch, its low byte */
	uint32_t rail_write; /* bit r: ... and may be written there */
	uint32_t pad;
};
_Static_assert(sizeof(struct wire_key_info) == 48, "layout");

/* What rcs_region_key gives to users: names a region of an endpoint. */
#define WIRE_UKEY_VERSION 1u
#define WIRE_UKEY_MAGIC	  0x4bu /* 'K' */
#define WIRE_UKEY_ATOMIC  0x1u	/* memory of rcs_alloc */
struct wire_ukey {
	uint8_t magic, version;
	uint16_t node;
	uint16_t ep;
	uint16_t flags;
	uint32_t epoch;
	uint32_t job;
	struct wire_key key;
	uint64_t addr, len; /* at its owner */
	uint32_t pad;
	uint32_t crc; /* CRC32C of the bytes before it */
};
_Static_assert(sizeof(struct wire_ukey) == 48, "layout");

void wire_ukey_seal(struct wire_ukey *k); /* sets magic, version, crc */
int wire_ukey_check(const struct wire_ukey *k, const char **why); /* as wire_addr_check */

/* The self-contained address of an endpoint, 64 bytes: what rcs_ep_addr gives to users. */
#define WIRE_ADDR_VERSION 1u
#define WIRE_ADDR_MAGIC	  0x52u /* 'R' */

struct wire_addr {
	uint8_t magic, version;
	uint8_t family; /* 4 or 6: of ctrl */
	uint8_t flags;
	uint32_t job;
	uint16_t restart;
	uint16_t node;
	uint16_t ep;
	uint16_t ctrl_port; /* of the node's daemon */
	uint32_t epoch;
	uint32_t step;
	uint32_t rank;	      /* in the step, informational */
	uint32_t incarnation; /* of the node index */
	uint8_t ctrl[16];     /* IPv4 in the first four bytes, or IPv6 */
	uint32_t credit0; /* what a source may send to this endpoint from the start; 0: 256. Set by
			   * the endpoint's library */
	uint8_t reserved[8];
	uint32_t crc; /* CRC32C of the bytes before it */
};
_Static_assert(sizeof(struct wire_addr) == 64, "layout");

/* CRC32C (Castagnoli, RFC 3720 section 12.1), seed 0 to begin, chainable. */
uint32_t wire_crc32c(uint32_t crc, const void *data, size_t len);

/*
 * 0, or -EINVAL with *why set to a static sentence: not an rcshare address, another version,
 * damaged.
 */
int wire_addr_check(const struct wire_addr *a, const char **why);
void wire_addr_seal(struct wire_addr *a); /* sets magic, version, crc */

/* Structure of a record that came from elsewhere: type known, len in bounds for its type. */
int wire_rec_check(const struct wire_rec *r, size_t room, const char **why);

#endif
