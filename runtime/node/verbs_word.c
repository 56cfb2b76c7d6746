/* SPDX-License-Identifier: BSD-3-Clause */
/* The ledger word of a lane: ours, which the peer writes, and the peer's (core/psn.h says what for). */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "node/verbs_impl.h"

/* Nobody has proven it, or it was caught lying. */
bool verbs_rail_doubted(const struct rail *r)
{
	return r->lies || (r->v->cfg.selftest && r->ledger != VERBS_LEDGER_RQ_PSN);
}

bool verbs_lane_doubted(const struct verbs_lane *l)
{
	return verbs_rail_doubted(l->rail);
}

/* For a device that is in doubt. Without relaxed ordering: it must come last. */
int verbs_lane_word_make(struct verbs_lane *l)
{
	struct lane_mem *m = &l->mem[VERBS_WORD];
	void *p;

	if (!verbs_rail_doubted(l->rail))
		return 0;
	p = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	m->addr = p;
	m->len = sizeof(uint64_t);
	return verbs_lane_mem_register(l, m, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

uint64_t verbs_lane_word_value(const struct verbs_lane *l)
{
	const void *at = l->mem[VERBS_WORD].addr;

	return at ? *(const volatile uint64_t *)at : l->word_last;
}

void verbs_lane_offer_word(const struct verbs_lane *l, struct verbs_blob *b)
{
	const struct lane_mem *m = &l->mem[VERBS_WORD];

	if (!m->mr)
		return;
	b->word_at = (uint64_t)(uintptr_t)m->addr;
	b->word_rkey = m->mr->rkey;
	b->wants_word = verbs_rail_doubted(l->rail);
}

void verbs_lane_learn_word(struct verbs_lane *l, const struct verbs_blob *b)
{
	l->word_at = b->word_at;
	l->word_rkey = b->word_rkey;
	l->wants_word = b->word_at && b->wants_word;
}

bool verbs_lane_wants_word(const struct verbs_lane *l)
{
	return l->wants_word;
}

void verbs_lane_word_wanted(struct verbs_lane *l, bool wanted)
{
	l->wants_word = wanted && l->word_at;
}

int verbs_lane_word(struct verbs_lane *l, uint64_t number, uint64_t cookie)
{
	uint8_t *slot = l->small + (size_t)(l->sq_tail % VERBS_SENDS) * VERBS_SMALL;
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)slot, .length = sizeof(number)};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = l->word_at, .rkey = l->word_rkey}};

	if (!l->qp || !l->word_at)
		return -EIO;
	if (!verbs_lane_room(l))
		return -EAGAIN;
	memcpy(slot, &number, sizeof(number));
	sge.lkey = l->mem[0].mr->lkey;
	return verbs_lane_post(l, &wr, cookie);
}
