/* SPDX-License-Identifier: BSD-3-Clause */
#include "pick.h"

#include <string.h>

#include "bed.h"
#include "wire/frame.h"

uint8_t pick_byte(struct pick *p)
{
	if (!p->left)
		return 0;
	p->left--;
	return *p->at++;
}

uint32_t pick_below(struct pick *p, uint32_t n)
{
	return pick_byte(p) % n;
}

bool pick_often(struct pick *p)
{
	return pick_byte(p) < 224;
}

uint64_t pick_number(struct pick *p)
{
	static const uint64_t edges[] = {0, 1, 7, 8, 63, 64, WIRE_REC_PAYLOAD_MAX - 1, WIRE_REC_PAYLOAD_MAX,
		WIRE_REC_PAYLOAD_MAX + 1, WIRE_FRAME_MAX, 16384, 65535, 65536, BED_MEM, BED_MEM + 8,
		BED_MEM + BED_MEM_LEN - 1, BED_MEM + BED_MEM_LEN, BED_MEM_LEN, BED_MEM_LEN + 1, 1 << 20, INT32_MAX,
		UINT32_MAX, UINT32_MAX + 1ull, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
	uint8_t how = pick_byte(p);
	uint64_t v = 0;

	if (how < 128)
		return how & 63;
	if (how < 224)
		return edges[(how - 128) % (sizeof(edges) / sizeof(edges[0]))];
	if (how < 240)
		return BED_MEM + ((uint64_t)pick_byte(p) << 8);
	for (int i = 0; i < 8; i++)
		v = v << 8 | pick_byte(p);
	return v;
}

void pick_bytes(struct pick *p, void *buf, size_t len)
{
	uint8_t *to = buf;
	size_t have = p->left < len ? p->left : len;

	have = have < 32 ? have : 32; /* the rest of the string is for the steps to come */
	memset(to, 0, len);
	memcpy(to, p->at, have);
	p->at += have;
	p->left -= have;
	for (size_t i = have; have && i < len; i++)
		to[i] = to[i - have];
}
