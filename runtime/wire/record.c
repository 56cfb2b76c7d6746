/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/record.h"

#include <errno.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t crc, const uint8_t *p,
	size_t len)
{
	uint64_t c = crc;

	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		c = _mm_crc32_u64(c, v);
	}
	for (; len; p++, len--)
		c = _mm_crc32_u8((uint32_t)c, *p);
	return (uint32_t)c;
}
#endif

static uint32_t crc32c_table[8][256];

/* Slicing by eight; the tables are filled before main, so no lock is needed later. */
__attribute__((constructor)) static void crc32c_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? (c >> 1) ^ 0x82f63b78u : c >> 1;
		crc32c_table[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int t = 1; t < 8; t++)
			crc32c_table[t][i] = (crc32c_table[t - 1][i] >> 8) ^
				crc32c_table[0][crc32c_table[t - 1][i] & 0xff];
}

static uint32_t crc32c_soft(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8) {
		uint32_t lo, hi;

		memcpy(&lo, p, 4);
		memcpy(&hi, p + 4, 4);
		lo ^= crc;
		crc = crc32c_table[7][lo & 0xff] ^ crc32c_table[6][(lo >> 8) & 0xff] ^
			crc32c_table[5][(lo >> 16) & 0xff] ^ crc32c_table[4][lo >> 24] ^
			crc32c_table[3][hi & 0xff] ^ crc32c_table[2][(hi >> 8) & 0xff] ^
			crc32c_table[1][(hi >> 16) & 0xff] ^ crc32c_table[0][hi >> 24];
	}
	for (; len; p++, len--)
		crc = (crc >> 8) ^ crc32c_table[0][(crc ^ *p) & 0xff];
	return crc;
}

uint32_t wire_crc32c(uint32_t crc, const void *data, size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return ~crc32c_sse(~crc, data, len);
#endif
	return ~crc32c_soft(~crc, data, len);
}

void wire_addr_seal(struct wire_addr *a)
{
	a->magic = WIRE_ADDR_MAGIC;
	a->version = WIRE_ADDR_VERSION;
	memset(a->reserved, 0, sizeof(a->reserved));
	a->crc = wire_crc32c(0, a, offsetof(struct wire_addr, crc));
}

int wire_addr_check(const struct wire_addr *a, const char **why)
{
	if (a->magic != WIRE_ADDR_MAGIC)
		*why = "these 64 bytes are not an rcshare address";
	else if (a->version != WIRE_ADDR_VERSION)
		*why = "the address has another version; all nodes need the same rcshare release";
	else if (a->crc != wire_crc32c(0, a, offsetof(struct wire_addr, crc)))
		*why = "the address is damaged (its checksum does not match)";
	else if (a->family != 4 && a->family != 6)
		*why = "the address has no usable control address";
	else
		return 0;
	return -EINVAL;
}

void wire_ukey_seal(struct wire_ukey *k)
{
	k->magic = WIRE_UKEY_MAGIC;
	k->version = WIRE_UKEY_VERSION;
	k->pad = 0;
	k->crc = wire_crc32c(0, k, offsetof(struct wire_ukey, crc));
}

int wire_ukey_check(const struct wire_ukey *k, const char **why)
{
	if (k->magic != WIRE_UKEY_MAGIC)
		*why = "these 48 bytes are not an rcshare key";
	else if (k->version != WIRE_UKEY_VERSION)
		*why = "the key has another version; all nodes need the same rcshare release";
	else if (k->crc != wire_crc32c(0, k, offsetof(struct wire_ukey, crc)))
		*why = "the key is damaged (its checksum does not match)";
	else
		return 0;
	return -EINVAL;
}

int wire_rec_check(const struct wire_rec *r, size_t room, const char **why)
{
	uint32_t min = 0, max = 0;

	switch (r->type) {
	case WIRE_REC_MSG:
		max = WIRE_REC_PAYLOAD_MAX;
		break;
	case WIRE_REC_PUSH:
		min = 1;
		max = WIRE_REC_PAYLOAD_MAX;
		break;
	case WIRE_REC_RTS:
		min = max = sizeof(struct wire_rts);
		break;
	case WIRE_REC_GET:
		min = max = sizeof(struct wire_get);
		break;
	case WIRE_REC_PEER:
		min = max = sizeof(struct wire_addr);
		break;
	case WIRE_REC_CTS:
	case WIRE_REC_FIN:
	case WIRE_REC_DELIVERED:
	case WIRE_REC_CREDIT:
	case WIRE_REC_GONE:
	case WIRE_REC_CANCEL:
	case WIRE_REC_GET_DONE:
	case WIRE_REC_RMA_DONE:
	case WIRE_REC_RDONE:
	case WIRE_REC_RGET:
	case WIRE_REC_KEY_ASK:
	case WIRE_REC_REVOKE:
	case WIRE_REC_REVOKED:
	case WIRE_REC_ENDED:
	case WIRE_REC_DETACHED:
		break;
	case WIRE_REC_RPUT:
	case WIRE_REC_RDATA:
	case WIRE_REC_ACCESS:
	case WIRE_REC_ACCESSED:
		max = WIRE_REC_PAYLOAD_MAX;
		break;
	case WIRE_REC_RATOM:
		min = max = sizeof(struct wire_atomic);
		break;
	case WIRE_REC_RMA:
		min = sizeof(struct wire_rma);
		max = WIRE_REC_PAYLOAD_MAX;
		break;
	case WIRE_REC_KEY:
		min = max = sizeof(struct wire_key_info);
		break;
	case WIRE_REC_EVENT:
	case WIRE_REC_VIEW:
		max = WIRE_REC_PAYLOAD_MAX;
		break;
	default:
		*why = "unknown record type";
		return -EINVAL;
	}
	if (r->len < min || r->len > max) {
		*why = "record length does not fit its type";
		return -EINVAL;
	}
	if (WIRE_REC_SPACE(r->len) > room) {
		*why = "record is longer than what holds it";
		return -EINVAL;
	}
	return 0;
}

int wire_rec_travels(const struct wire_rec *r)
{
	switch (r->type) {
	case WIRE_REC_GET_DONE:
	case WIRE_REC_RMA_DONE:
	case WIRE_REC_ACCESS:
	case WIRE_REC_GET:
	case WIRE_REC_PEER:
	case WIRE_REC_RMA:
	case WIRE_REC_ACCESSED:
		return 0;
	case WIRE_REC_EVENT: /* ranks hear them from their own daemon */
		return r->dst_ep == WIRE_EP_DAEMON;
	default:
		return 1;
	}
}
