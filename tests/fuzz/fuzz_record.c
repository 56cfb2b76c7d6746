/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring whose other side publishes anything: the first 8 bytes of the input are its tail, the rest the
 * ring's content. A consumer must stay inside the ring and come to an end. Then the same bytes as an
 * address.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shm/ring.h"
#include "wire/record.h"

#define RING 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct shm_ring_ctl ctl;
	const uint8_t *payload;
	struct wire_addr addr;
	struct shm_ring r;
	struct wire_rec h;
	const char *why;
	uint64_t tail, sum = 0;
	uint8_t *base;
	unsigned n = 0;

	if (size < sizeof(tail))
		return 0;
	memcpy(&tail, data, sizeof(tail));
	data += sizeof(tail);
	size -= sizeof(tail);
	if (size >= sizeof(addr)) {
		memcpy(&addr, data, sizeof(addr));
		wire_addr_check(&addr, &why);
	}
	base = aligned_alloc(64, RING);
	if (!base)
		return 0;
	memset(base, 0, RING);
	memcpy(base, data, size < RING ? size : RING);
	memset(&ctl, 0, sizeof(ctl));
	atomic_store(&ctl.tail, tail);
	shm_ring_init(&r, &ctl, base, RING);
	while (shm_ring_peek(&r, &h, &payload) == 1) {
		if (payload < base || payload + h.len > base + RING)
			abort();
		for (uint32_t i = 0; i < h.len; i++)
			sum += payload[i];
		shm_ring_consume(&r, &h);
		if (r.pos > tail || ++n > RING / sizeof(h))
			abort();
	}
	free(base);
	return sum == UINT64_MAX; /* keeps the reads */
}
