/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/rma.h"

#include <string.h>

#include "core/internal.h"
#include "core/psn.h"

#define NONE ((uint16_t)CORE_PIECES)

void core_rma_init(struct core_rma *m)
{
	memset(m, 0, sizeof(*m));
	for (uint16_t i = 0; i < CORE_PIECES; i++)
		m->piece[i].next = (uint16_t)(i + 1); /* the last one's is NONE */
	m->head = m->tail = NONE;
}

static void enqueue(struct core_rma *m, uint16_t i, uint64_t now)
{
	struct core_piece *p = &m->piece[i];

	p->state = CORE_PIECE_QUEUED;
	p->queued_at = now;
	p->next = NONE;
	if (m->head == NONE)
		m->head = i;
	else
		m->piece[m->tail].next = i;
	m->tail = i;
}

static void dequeue(struct core_rma *m, uint16_t i)
{
	uint16_t before = NONE;

	for (uint16_t k = m->head; k != i; k = m->piece[k].next)
		before = k;
	if (before == NONE)
		m->head = m->piece[i].next;
	else
		m->piece[before].next = m->piece[i].next;
	if (m->tail == i)
		m->tail = before;
}

static void release(struct core_rma *m, uint16_t i)
{
	m->piece[i].state = CORE_PIECE_FREE;
	m->piece[i].next = m->free;
	m->free = i;
	m->used--;
}

int core_rma_submit(struct core_rma *m, enum core_verb verb, uint32_t len, uint8_t rails,
	bool replay, uint64_t now)
{
	uint16_t i = m->free;

	if (i == NONE)
		return -1;
	m->free = m->piece[i].next;
	m->used++;
	m->piece[i] = (struct core_piece){.verb = (uint8_t)verb, .rails = rails, .replay = replay,
		.lane = CORE_LANE_NONE, .len = len};
	enqueue(m, i, now);
	return i;
}

void core_rma_rails(struct core_rma *m, int piece, uint8_t rails)
{
	m->piece[piece].rails = rails;
}

void core_rma_drop(struct core_rma *m, int piece)
{
	dequeue(m, (uint16_t)piece);
	release(m, (uint16_t)piece);
}

static bool fits(const struct core_rma *m, const struct core_piece *p, uint8_t lane,
	const struct core_rma_room *room)
{
	if (!room->posts || (p->verb == CORE_GET && m->lane[lane].reads >= room->reads))
		return false;
	return !m->lane[lane].posts || m->lane[lane].bytes + p->len <= room->bytes;
}

static uint8_t lane_for(const struct core_rma *m, const struct core_link *l,
	const struct core_piece *p, const struct core_rma_room room[CORE_RAILS_MAX])
{
	uint8_t best = CORE_LANE_NONE;

	for (uint8_t i = 0; i < l->cfg.rails; i++)
		if (p->rails & CORE_BIT(i) && l->lane[i].state == CORE_LANE_UP &&
			l->lane[i].usable && fits(m, p, i, &room[i]) &&
			(best == CORE_LANE_NONE || m->lane[i].bytes < m->lane[best].bytes))
			best = i;
	return best;
}

bool core_rma_pick(const struct core_rma *m, const struct core_link *l,
	const struct core_rma_room room[CORE_RAILS_MAX], int *piece, uint8_t *lane)
{
	for (uint16_t i = m->head; i != NONE; i = m->piece[i].next) {
		uint8_t on = lane_for(m, l, &m->piece[i], room);

		if (on != CORE_LANE_NONE) {
			*piece = i;
			*lane = on;
			return true;
		}
	}
	return false;
}

void core_rma_posted(struct core_rma *m, struct core_link *l, int piece, uint8_t lane,
	uint32_t last_psn, uint64_t now)
{
	struct core_piece *p = &m->piece[piece];

	dequeue(m, (uint16_t)piece);
	p->state = CORE_PIECE_POSTED;
	p->lane = lane;
	p->gen = l->lane[lane].gen;
	p->last_psn = last_psn;
	p->mark = (uint32_t)(m->lane[lane].marks + 1);
	m->lane[lane].unmarked += p->verb == CORE_PUT;
	m->lane[lane].bytes += p->len;
	m->lane[lane].posts++;
	m->lane[lane].reads += p->verb == CORE_GET;
	core_link_posted(l, lane, p->len, now);
}

uint64_t core_rma_mark(const struct core_rma *m, uint8_t lane, bool turn_ends)
{
	uint32_t n = m->lane[lane].unmarked;

	return n >= CORE_BATCH || (n && turn_ends) ? m->lane[lane].marks + 1 : 0;
}

void core_rma_marked(struct core_rma *m, uint8_t lane)
{
	m->lane[lane].marks++;
	m->lane[lane].unmarked = 0;
}

enum core_piece_end core_rma_completed(struct core_rma *m, struct core_link *l, int piece,
	enum core_piece_how how, uint64_t now)
{
	struct core_piece *p = &m->piece[piece];

	m->lane[p->lane].bytes -= p->len;
	m->lane[p->lane].posts--;
	m->lane[p->lane].reads -= p->verb == CORE_GET;
	if (how == CORE_PIECE_OK)
		core_link_done(l, p->lane, p->gen, p->len, now);
	if (how != CORE_PIECE_FLUSHED) {
		release(m, (uint16_t)piece);
		return how == CORE_PIECE_OK ? CORE_PIECE_EXECUTED : CORE_PIECE_REFUSED;
	}
	if (p->verb == CORE_GET) {
		enqueue(m, (uint16_t)piece, now);
	} else {
		p->state = CORE_PIECE_HELD;
		m->held++;
	}
	return CORE_PIECE_GOES_ON;
}

static bool is_held(const struct core_piece *p, uint8_t lane, uint32_t gen)
{
	return p->state == CORE_PIECE_HELD && p->lane == lane && p->gen == gen;
}

void core_rma_fenced(struct core_rma *m, struct core_link *l, uint8_t lane, uint32_t gen,
	uint64_t now)
{
	for (uint16_t i = 0; m->held && i < CORE_PIECES; i++)
		if (is_held(&m->piece[i], lane, gen)) {
			core_link_hold(l, lane, gen, now);
			return;
		}
}

static bool has_executed(const struct core_piece *p, enum core_told told, uint32_t number)
{
	switch (told) {
	case CORE_TOLD_PSN:
		return core_psn_before(p->last_psn, number);
	case CORE_TOLD_WORD: /* few are outstanding */
		return (int32_t)(number - p->mark) >= 0;
	default:
		return false;
	}
}

int core_rma_settle(struct core_rma *m, uint8_t lane, uint32_t gen, enum core_told told,
	uint32_t number, uint64_t now, enum core_piece_end *end)
{
	for (uint16_t i = 0; m->held && i < CORE_PIECES; i++) {
		struct core_piece *p = &m->piece[i];

		if (!is_held(p, lane, gen))
			continue;
		m->held--;
		if (has_executed(p, told, number)) {
			m->by_ledger++;
			*end = CORE_PIECE_EXECUTED;
		} else if (told != CORE_TOLD_PSN && !p->replay) {
			m->ambiguous++;
			*end = CORE_PIECE_AMBIGUOUS;
		} else {
			m->replayed++;
			p->rails = 0;
			enqueue(m, i, now);
			*end = CORE_PIECE_GOES_ON;
			return i;
		}
		release(m, i);
		return i;
	}
	return -1;
}

void core_rma_give_up(struct core_rma *m, int piece)
{
	m->held--;
	release(m, (uint16_t)piece);
}
