/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/frame.h"

#include <errno.h>

#include "wire/record.h"

static uint32_t frame_crc(const struct wire_frame *f, const void *payload)
{
	struct wire_frame h = *f;

	h.crc = 0;
	return wire_crc32c(wire_crc32c(0, &h, sizeof(h)), payload, f->len);
}

void wire_frame_seal(struct wire_frame *f, const void *payload)
{
	f->magic = WIRE_FRAME_MAGIC;
	f->version = WIRE_FRAME_VERSION;
	f->crc = frame_crc(f, payload);
}

int wire_frame_check_header(const struct wire_frame *f, const char **why)
{
	if (f->magic != WIRE_FRAME_MAGIC)
		*why = "not an rcshare frame";
	else if (f->version != WIRE_FRAME_VERSION)
		*why = "frame of another version; all nodes need the same rcshare release";
	else if (f->type < WIRE_FRAME_DATA || f->type > WIRE_FRAME_LOOSE)
		*why = "unknown frame type";
	else if (f->len > WIRE_FRAME_ROOM)
		*why = "frame is too long";
	else
		return 0;
	return -EINVAL;
}

int wire_frame_check(const struct wire_frame *f, const void *payload, size_t got, const char **why)
{
	if (got < sizeof(*f)) {
		*why = "frame is shorter than its header";
		return -EINVAL;
	}
	if (wire_frame_check_header(f, why))
		return -EINVAL;
	if (got < sizeof(*f) + f->len) {
		*why = "frame is shorter than it says";
		return -EINVAL;
	}
	if (f->crc != frame_crc(f, payload)) {
		*why = "frame checksum does not match";
		return -EINVAL;
	}
	return 0;
}
