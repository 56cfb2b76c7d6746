/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that claim to be a frame, as a lane hands them up. With the first bit of the input's first
 * byte set the frame is sealed before, or no input would ever pass the checksum; what it holds is then
 * walked as a daemon walks it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_frame f;
	const uint8_t *payload;
	uint8_t *copy;
	const char *why;
	size_t got, at = 0;

	if (!size)
		return 0;
	got = size - 1;
	/* A copy of exactly this size, so that the sanitizer sees reads past its end. */
	copy = malloc(got ? got : 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, got);
	memset(&f, 0, sizeof(f));
	memcpy(&f, copy, got < sizeof(f) ? got : sizeof(f));
	payload = got > sizeof(f) ? copy + sizeof(f) : copy + got;
	if (data[0] & 1 && got >= sizeof(f)) {
		f.len = (uint32_t)(got - sizeof(f));
		wire_frame_seal(&f, payload);
	}
	if (wire_frame_check(&f, payload, got, &why))
		goto out;
	if (f.len > WIRE_FRAME_ROOM)
		abort();
	while (f.type == WIRE_FRAME_DATA && f.len - at >= sizeof(struct wire_rec)) {
		struct wire_rec r;

		memcpy(&r, payload + at, sizeof(r));
		if (wire_rec_check(&r, f.len - at, &why))
			break;
		at += WIRE_REC_SPACE(r.len);
		if (at > f.len)
			abort();
	}
out:
	free(copy);
	return 0;
}
