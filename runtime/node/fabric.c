/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/fabric.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define SUBNET 64u /* bits of a GID before the interface's own: of InfiniBand, and where nobody knows better */

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	if (memcmp(a, b, bits / 8))
		return false;
	return bits % 8 == 0 || !((a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8));
}

bool fabric_same(const struct fabric *a, const struct fabric *b)
{
	unsigned bits;

	if (!a->link_layer || a->link_layer != b->link_layer)
		return false;
	/* one end that knows is enough; where they differ the larger network holds both */
	bits = a->prefix < b->prefix ? a->prefix : b->prefix;
	if (!bits)
		bits = a->prefix | b->prefix;
	if (!bits || bits > 128)
		bits = SUBNET;
	return same_bits(a->gid, b->gid, bits);
}

uint8_t fabric_nth(const struct fabric *rails, unsigned at)
{
	uint8_t nth = 0;

	for (unsigned i = 0; i < at; i++)
		nth += fabric_same(&rails[i], &rails[at]);
	return nth;
}

uint8_t fabric_meet(const struct fabric *rails, unsigned n, bool named, uint32_t taken,
	const struct fabric_end *peer)
{
	uint8_t free = FABRIC_NONE;

	if (named && peer->named)
		return peer->rail < n && !(taken & 1u << peer->rail) ? peer->rail : FABRIC_NONE;
	for (unsigned i = 0; i < n; i++) {
		if (taken & 1u << i || !fabric_same(&rails[i], &peer->f))
			continue;
		if (fabric_nth(rails, i) == peer->nth)
			return (uint8_t)i;
		if (free == FABRIC_NONE)
			free = (uint8_t)i;
	}
	return free;
}

int fabric_name_compare(const char *a, const char *b)
{
	while (*a && *b) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			char *a_end, *b_end;
			unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);

			if (x != y)
				return x < y ? -1 : 1;
			a = a_end;
			b = b_end;
			continue;
		}
		if (*a != *b)
			break;
		a++;
		b++;
	}
	return (unsigned char)*a - (unsigned char)*b;
}
