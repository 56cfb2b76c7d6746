/* SPDX-License-Identifier: BSD-3-Clause */
/* What the writes of a self-test look like in memory, and whether a count agrees with it. Pure. */
#include <stdio.h>
#include <string.h>

#include "core/psn.h"
#include "node/verbs_selftest.h"

#define ALIGN 64u

static uint32_t slot_of(uint32_t number)
{
	return (number - 1) % SELFTEST_SLOTS;
}

static uint32_t lap_of(uint32_t number)
{
	return (number - 1) / SELFTEST_SLOTS + 1;
}

static void layout(struct selftest_layout *l, uint32_t mtu, const uint32_t len[SELFTEST_SIZES])
{
	memset(l, 0, sizeof(*l));
	l->mtu = mtu;
	for (uint32_t s = 0; s < SELFTEST_SLOTS; s++) {
		l->len[s] = len[s % SELFTEST_SIZES];
		l->at[s] = l->size;
		l->size += (l->len[s] + ALIGN - 1) / ALIGN * ALIGN;
		l->piece[s + 1] = l->piece[s] + core_psn_packets(l->len[s], mtu);
	}
}

void selftest_layout_make(struct selftest_layout *l, uint32_t mtu)
{
	/* Small ones between the others: the more requests, the more boundaries to be cut at. */
	layout(l, mtu, (const uint32_t[SELFTEST_SIZES]){64, mtu, 64, 3 * mtu, 1, 64, mtu - 1, 64, mtu + 1, 64,
		2 * mtu + 13, 64, 0, 200, 64, 64});
}

void selftest_layout_small(struct selftest_layout *l, uint32_t mtu)
{
	layout(l, mtu, (const uint32_t[SELFTEST_SIZES]){64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
		64, 64});
}

/* What a byte of the area is in lap 0. */
static uint8_t base(uint32_t at)
{
	return (uint8_t)(at * 31 + (at >> 8) * 7);
}

void selftest_clear(const struct selftest_layout *l, uint8_t *area)
{
	for (uint32_t i = 0; i < l->size; i++)
		area[i] = base(i);
}

void selftest_fill(const struct selftest_layout *l, uint8_t *area, uint32_t number)
{
	uint32_t s = slot_of(number), end = l->at[s] + l->len[s];
	uint8_t lap = (uint8_t)lap_of(number);

	for (uint32_t i = l->at[s]; i < end; i++)
		area[i] = (uint8_t)(base(i) + lap);
}

void selftest_look(const struct selftest_layout *l, const uint8_t *area, uint32_t posted,
	uint32_t seen[SELFTEST_PIECES])
{
	memset(seen, 0, SELFTEST_PIECES * sizeof(*seen));
	for (uint32_t s = 0; s < SELFTEST_SLOTS; s++) {
		/* the last lap in which the slot was used; a slot is never more than 255 behind */
		uint32_t last = posted > s ? (posted - 1 - s) / SELFTEST_SLOTS + 1 : 0;

		for (uint32_t p = l->piece[s]; l->len[s] && p < l->piece[s + 1]; p++) {
			uint32_t i = l->at[s] + (p - l->piece[s]) * l->mtu;
			uint32_t end = l->at[s] + l->len[s];
			uint8_t lap = (uint8_t)(area[i] - base(i)), behind = (uint8_t)(last - lap);

			if (end - i > l->mtu)
				end = i + l->mtu;
			while (i < end && (uint8_t)(area[i] - base(i)) == lap)
				i++;
			if (i < end || behind > last)
				seen[p] = SELFTEST_TORN;
			else if (last - behind)
				seen[p] = (last - behind - 1) * SELFTEST_SLOTS + s + 1;
		}
	}
}

/* seen is not what it should be: a write that was not counted, or one that was and is not there. */
static enum selftest_verdict differs(uint32_t seen, uint32_t want, uint32_t whole, uint32_t rq_psn,
	char *why, size_t len)
{
	if (seen == SELFTEST_TORN)
		snprintf(why, len, "rq_psn %u counts %u writes, but memory of write %u is torn", rq_psn,
			whole, want);
	else if (seen > want)
		snprintf(why, len, "rq_psn %u counts %u writes, but write %u is in memory", rq_psn, whole,
			seen);
	else
		snprintf(why, len, "rq_psn %u counts %u writes, but write %u is not in memory", rq_psn,
			whole, want);
	return SELFTEST_FALSE;
}

enum selftest_verdict selftest_judge(const struct selftest_trial *t, char *why, size_t why_len)
{
	const struct selftest_layout *l = t->layout;
	uint32_t left = core_psn_add(t->rq_psn, 0u - t->first_psn); /* packets counted */
	uint32_t want[SELFTEST_PIECES] = {0};
	uint32_t whole = 0, cut = SELFTEST_SLOTS;

	for (; whole < t->posted; whole++) {
		uint32_t s = slot_of(whole + 1), n = l->piece[s + 1] - l->piece[s];

		for (uint32_t i = 0; i < n && i < left; i++)
			want[l->piece[s] + i] = whole + 1;
		if (left < n) {
			cut = s;
			break;
		}
		left -= n;
	}
	if (whole == t->posted && left) {
		snprintf(why, why_len, "rq_psn %u is %u packets from the first one, %u, but only %u of them "
			"were sent", t->rq_psn, core_psn_add(t->rq_psn, 0u - t->first_psn), t->first_psn,
			core_psn_add(t->rq_psn, 0u - t->first_psn) - left);
		return SELFTEST_FALSE;
	}
	if (t->acked > whole) {
		snprintf(why, why_len, "rq_psn %u counts %u writes, but %u were acknowledged", t->rq_psn,
			whole, t->acked);
		return SELFTEST_FALSE;
	}
	for (uint32_t s = 0; s < SELFTEST_SLOTS; s++)
		for (uint32_t p = l->piece[s]; l->len[s] && p < l->piece[s + 1]; p++) {
			if (s == cut && p >= l->piece[s] + left) {
				if (p + 1 == l->piece[s + 1] && t->seen[p] == whole + 1)
					return differs(whole + 1, whole, whole, t->rq_psn, why, why_len);
			} else if (t->seen[p] != want[p]) {
				return differs(t->seen[p], want[p], whole, t->rq_psn, why, why_len);
			}
		}
	if (t->rq_psn_again != t->rq_psn) {
		snprintf(why, why_len, "rq_psn was %u after the fence and %u later", t->rq_psn,
			t->rq_psn_again);
		return SELFTEST_FALSE;
	}
	for (uint32_t p = 0; p < SELFTEST_PIECES; p++)
		if (t->seen_again[p] != t->seen[p]) {
			snprintf(why, why_len, "memory changed after the fence, behind write %u of rq_psn %u",
				whole, t->rq_psn);
			return SELFTEST_FALSE;
		}
	return whole == t->posted ? SELFTEST_UNCUT : SELFTEST_TRUE;
}
