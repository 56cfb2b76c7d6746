/* SPDX-License-Identifier: BSD-3-Clause */
/* The tree that waves travel on, their tallies, and the lease that beats renew. */
#include "core/view_internal.h"

#include <string.h>

static uint16_t node_at(const struct core_view *v, const struct view_wave *w, uint16_t pos)
{
	return (uint16_t)(((uint32_t)w->root + pos) % v->cfg.nodes);
}

static uint16_t pos_of(const struct core_view *v, const struct view_wave *w, uint16_t node)
{
	return (uint16_t)(((uint32_t)node + v->cfg.nodes - w->root) % v->cfg.nodes);
}

static bool leaving(const struct view_wave *w, uint16_t node)
{
	return w->phase != CORE_VIEW_BEAT && view_set_has(&w->set, node);
}

/*
 * A node of [lo, hi) to ask, the first from `from` on, cyclic; one we can talk to if there is any,
 * and one that is to be removed only when nothing else is there. any: whoever comes first.
 */
static uint16_t pick(const struct core_view *v, const struct view_wave *w, uint16_t lo, uint16_t hi,
	uint16_t from, bool any)
{
	uint16_t size = (uint16_t)(hi - lo), doubtful = CORE_VIEW_NONE, last = CORE_VIEW_NONE;

	for (uint16_t i = 0; i < size; i++) {
		uint16_t node = node_at(v, w, (uint16_t)(lo + (from - lo + i) % size));

		if (!view_bit(v->member, node) || node == v->cfg.self)
			continue;
		if (any)
			return node;
		if (leaving(w, node))
			last = node;
		else if (!view_bit(v->suspect, node))
			return node;
		else if (doubtful == CORE_VIEW_NONE)
			doubtful = node;
	}
	return doubtful != CORE_VIEW_NONE ? doubtful : last;
}

/* False: no member is there. */
static bool part_make(const struct core_view *v, const struct view_wave *w, struct view_part *p, uint16_t lo,
	uint16_t hi, uint16_t from)
{
	memset(p, 0, sizeof(*p));
	p->lo = lo;
	p->hi = hi;
	p->voice = CORE_VIEW_NONE;
	p->head = pick(v, w, lo, hi, from, false);
	return p->head != CORE_VIEW_NONE;
}

/* False: no member is left there. */
static bool part_go_on(const struct core_view *v, const struct view_wave *w, struct view_part *p)
{
	const struct view_part was = *p;

	if (!part_make(v, w, p, was.lo, was.hi, was.lo))
		return false;
	if (was.head == CORE_VIEW_NONE || !view_bit(v->member, was.head))
		return true;
	p->head = was.head;
	p->tries = was.answered ? 0 : (uint8_t)view_min(was.tries, VIEW_TRIES - 1);
	p->heads = was.heads;
	return true;
}

/* old: so many parts are kept. */
static void split(struct core_view *v, struct view_wave *w, uint8_t old)
{
	const uint16_t own = pos_of(v, w, v->cfg.self);
	const uint16_t size = (uint16_t)((w->hi - w->lo - 1 + v->cfg.fanout - 1) / v->cfg.fanout);
	/* A ballot that failed is tried again on another tree; beats keep theirs, and its links. */
	const uint64_t shift = w->phase == CORE_VIEW_BEAT ? 0 : (w->ballot >> 16) - 1;
	uint16_t pos = w->lo;

	w->n = 0;
	for (uint8_t i = 0; i < old; i++) {
		w->part[w->n] = w->part[i];
		w->n += part_go_on(v, w, &w->part[w->n]);
	}
	while (!old && pos < w->hi && w->n < VIEW_PARTS) {
		uint16_t end = pos < own ? own : w->hi;

		if (pos == own) {
			pos++;
			continue;
		}
		if (end - pos > size)
			end = (uint16_t)(pos + size);
		w->n += part_make(v, w, &w->part[w->n], pos, end, (uint16_t)(pos + shift % (end - pos)));
		pos = end;
	}
}

static void ask(struct core_view *v, struct view_wave *w, struct view_part *p, uint64_t now)
{
	struct core_view_msg m;

	view_msg(v, &m, CORE_VIEW_WAVE, p->head);
	m.phase = w->phase;
	m.root = w->root;
	m.lo = p->lo;
	m.hi = p->hi;
	m.ballot = w->ballot;
	if (w->phase == CORE_VIEW_BEAT)
		view_log_put(v, &m, v->last_off);
	else
		view_set_put(&m, &w->set);
	p->at = now + (v->cfg.hop_ns << view_min(p->answered ? p->polls : p->tries, 4) <<
			(w->phase == CORE_VIEW_BEAT ? 0 : v->fails));
	p->tries++;
	p->polls++;
	view_send(v, &m, CORE_VIEW_NONE);
}

/* Members of the range that are known to have ended their part of the step. */
uint32_t view_ended_count(const struct core_view *v, const struct view_wave *w)
{
	uint32_t n = v->ended;

	for (uint8_t i = 0; i < w->n; i++)
		n += w->part[i].ended;
	return n;
}

uint32_t view_count(const struct view_wave *w)
{
	uint32_t n = w->own;

	for (uint8_t i = 0; i < w->n; i++)
		n += w->part[i].count;
	return n;
}

static bool complete(const struct view_wave *w)
{
	for (uint8_t i = 0; i < w->n; i++)
		if (!w->part[i].done)
			return false;
	return true;
}

static void grant(struct core_view *v, const struct view_wave *w, const struct view_part *p)
{
	struct core_view_msg m;

	if (p->voice == CORE_VIEW_NONE || !v->has_lease)
		return;
	view_msg(v, &m, CORE_VIEW_GRANT, p->voice);
	m.phase = w->phase;
	m.root = w->root;
	m.ballot = w->ballot;
	m.stamp = p->stamp;
	/* Its stamp is older than our receipt of it: what the news took since then is none of its age. */
	m.acc = p->heard_at > v->fresh ? p->heard_at - v->fresh : 0;
	m.flags = (uint8_t)((v->met ? CORE_VIEW_F_MET : 0) | (v->all_ended ? CORE_VIEW_F_ENDED : 0));
	view_send(v, &m, p->voice_via);
}

/* No decision for the next view had been made at `fresh`: so it is here, and goes down the tree. */
static void renew(struct core_view *v, struct view_wave *w, uint64_t fresh, uint64_t now)
{
	view_renew(v, fresh, now);
	w->granted = true;
	for (uint8_t i = 0; i < w->n; i++)
		if (w->part[i].done || w->part[i].count)
			grant(v, w, &w->part[i]);
}

static void answer(struct core_view *v, struct view_wave *w, uint64_t now)
{
	struct core_view_msg m;

	w->complete = complete(w);
	if (w->root == v->cfg.self) {
		if (w->phase != CORE_VIEW_BEAT)
			view_ballot_counted(v, now);
		else if (!w->granted && view_quorum(v, w))
			renew(v, w, w->at, now);
		if (w->phase == CORE_VIEW_BEAT) {
			v->met |= view_count(w) >= v->alive;
			if (view_ended_count(v, w) >= v->alive)
				view_lease_all_ended(v, now);
		}
		return;
	}
	view_msg(v, &m, CORE_VIEW_TALLY, w->parent);
	m.phase = w->phase;
	m.root = w->root;
	m.lo = w->lo;
	m.hi = w->hi;
	m.ballot = w->ballot;
	m.count = view_count(w);
	m.ended = view_ended_count(v, w);
	m.acc = w->acc;
	m.stamp = now;
	m.flags = w->complete ? CORE_VIEW_F_DONE : 0;
	view_set_put(&m, &w->acc_set);
	view_send(v, &m, w->via);
}

static void ask_first(struct core_view *v, struct view_wave *w, struct view_part *p, uint64_t now)
{
	ask(v, w, p, now);
	/* Most probably dead, and not waited for; but its vote may be the one that counts. */
	p->done = p->hi - p->lo == 1 && leaving(w, p->head);
}

static void ask_all(struct core_view *v, struct view_wave *w, uint8_t old, uint64_t now)
{
	split(v, w, old);
	for (uint8_t i = 0; i < w->n; i++)
		ask_first(v, w, &w->part[i], now);
}

/*
 * Where somebody did not answer a wave goes on where the one before has come to: several dead heads, one below the
 * other, take longer than a beat, and whoever lives behind them would get no lease. So many parts are kept.
 */
static uint8_t parts_kept(const struct view_wave *w, uint8_t phase, uint16_t root, uint64_t ballot)
{
	const bool next = phase == CORE_VIEW_BEAT ? w->phase == phase : w->phase && w->ballot == ballot;

	for (uint8_t i = 0; next && w->root == root && i < w->n; i++)
		if (!w->part[i].answered || w->part[i].heads)
			return w->n;
	return 0;
}

/* Our own wave. The vote of this node has been given by the caller. */
void view_wave_root(struct core_view *v, uint8_t phase, uint64_t ballot, const struct view_set *s,
	uint64_t now)
{
	struct view_wave *w = &v->wave[phase == CORE_VIEW_BEAT];
	const uint8_t old = parts_kept(w, phase, v->cfg.self, ballot);

	memset(w, 0, offsetof(struct view_wave, part));
	w->phase = phase;
	w->root = w->parent = v->cfg.self;
	w->via = CORE_VIEW_NONE;
	w->hi = v->cfg.nodes;
	w->ballot = ballot;
	w->at = now;
	w->own = phase != CORE_VIEW_BEAT || !v->accepted;
	if (s)
		w->set = *s;
	if (phase == CORE_VIEW_PREPARE) {
		w->acc = v->accepted;
		w->acc_set = v->value;
	}
	ask_all(v, w, old, now);
	answer(v, w, now);
}

/* Whether a beat is to be taken part in: the newest of its root, and a lower root goes first. */
static bool beat_wanted(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	const struct view_wave *w = &v->wave[1];

	if (w->phase && w->root == m->root)
		return m->ballot >= w->ballot;
	return !w->phase || m->root < w->root || now - w->at > 2 * v->cfg.beat_ns;
}

void view_wave_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	const bool beat = m->phase == CORE_VIEW_BEAT;
	struct view_wave *w = &v->wave[beat];
	uint8_t old;
	bool same;

	if (m->root >= v->cfg.nodes || !view_bit(v->member, m->root) || m->root == v->cfg.self ||
		m->hi > v->cfg.nodes || m->lo >= m->hi)
		return;
	if (beat ? !beat_wanted(v, m, now) : !view_vote(v, m, now))
		return;
	same = w->phase == m->phase && w->root == m->root && w->ballot == m->ballot;
	old = w->lo == m->lo && w->hi == m->hi ? parts_kept(w, m->phase, m->root, m->ballot) : 0;
	if (!same || w->lo != m->lo || w->hi != m->hi) {
		memset(w, 0, offsetof(struct view_wave, part));
		w->phase = m->phase;
		w->root = m->root;
		w->ballot = m->ballot;
		w->lo = m->lo;
		w->hi = m->hi;
		if (!beat)
			view_set_get(&w->set, m);
		if (m->phase == CORE_VIEW_PREPARE) {
			w->acc = v->accepted;
			w->acc_set = v->value;
		}
		w->own = !beat || !v->accepted;
		w->n = 0;
		same = false;
	}
	w->parent = m->src;
	w->via = m->via;
	w->at = now;
	if (beat) {
		v->beat_heard = now;
		if (view_lowest(v, false) != v->cfg.self)
			v->beat_at = now + 2 * v->cfg.beat_ns + view_turn(v);
	}
	{
		uint16_t own = pos_of(v, w, v->cfg.self);

		if (own < w->lo || own >= w->hi) {
			w->phase = CORE_VIEW_IDLE;
			return;
		}
	}
	if (!same)
		ask_all(v, w, old, now);
	answer(v, w, now);
}

void view_tally_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	struct view_wave *w = &v->wave[m->phase == CORE_VIEW_BEAT];
	bool was, late;

	if (w->phase != m->phase || w->root != m->root || w->ballot != m->ballot)
		return;
	was = w->complete;
	for (uint8_t i = 0; i < w->n; i++) {
		struct view_part *p = &w->part[i];

		if (p->lo != m->lo || p->hi != m->hi)
			continue;
		late = p->done && (m->count > p->count || m->ended > p->ended);
		if (m->count > p->count)
			p->count = m->count;
		if (p->count > (uint32_t)(p->hi - p->lo))
			p->count = (uint32_t)(p->hi - p->lo);
		p->ended = (uint32_t)view_min(view_max(p->ended, m->ended), (uint64_t)(p->hi - p->lo));
		if (m->acc > w->acc) {
			w->acc = m->acc;
			view_set_get(&w->acc_set, m);
		}
		p->done |= m->flags & CORE_VIEW_F_DONE;
		p->tries = 0;
		p->answered = true;
		p->voice = m->src;
		p->voice_via = m->via;
		p->stamp = m->stamp;
		p->heard_at = now;
		if (w->granted)
			grant(v, w, p);
		/* Others hear of it when all is complete or when they ask; the root looks at once. */
		if (w->root == v->cfg.self || (complete(w) && (!was || late)))
			answer(v, w, now);
		return;
	}
}

void view_grant_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	struct view_wave *w = &v->wave[1];

	/* On long ways the next beat is here first: what was true of the one before is still, and goes on down. */
	if (w->phase != CORE_VIEW_BEAT || w->root != m->root || m->ballot > w->ballot || m->stamp > now ||
		m->stamp < m->acc)
		return;
	v->met |= m->flags & CORE_VIEW_F_MET;
	if (m->flags & CORE_VIEW_F_ENDED)
		view_lease_all_ended(v, now);
	renew(v, w, m->stamp - m->acc, now);
}

/*
 * Its head is silent: this node does the head's work and asks for pieces of the range at once. So a rack that is dead
 * is looked through in the depth of a tree. False: it cannot be cut.
 */
static bool part_cut(struct core_view *v, struct view_wave *w, struct view_part *p, uint64_t now)
{
	const struct view_part was = *p;
	const uint16_t size = (uint16_t)(was.hi - was.lo), head = pos_of(v, w, was.head);
	const uint16_t each = (uint16_t)((size + v->cfg.fanout - 1) / v->cfg.fanout);

	if (size == 1 || was.count || w->n + v->cfg.fanout > VIEW_PARTS)
		return false;
	for (uint16_t lo = was.lo; lo < was.hi; lo = (uint16_t)(lo + each)) {
		const uint16_t hi = (uint16_t)view_min((uint64_t)(lo + each), was.hi);
		const bool first = head < lo || head >= hi;

		if (!p)
			p = &w->part[w->n];
		if (!part_make(v, w, p, lo, hi, first ? lo : (uint16_t)(lo + (head + 1 - lo) % (hi - lo))))
			continue;
		w->n += p == &w->part[w->n];
		if (p->head == was.head)
			p->done = true;
		else
			ask_first(v, w, p, now);
		p = NULL;
	}
	if (complete(w))
		answer(v, w, now);
	return true;
}

/* A part without answer is asked again, then in pieces or another node of its range, then it is given up. */
static void again(struct core_view *v, struct view_wave *w, struct view_part *p, uint64_t now)
{
	if (p->tries >= VIEW_TRIES) {
		uint16_t size = (uint16_t)(p->hi - p->lo), from;

		if (part_cut(v, w, p, now))
			return;

		/* Ever longer strides: whole racks die. */
		from = (uint16_t)(pos_of(v, w, p->head) - p->lo + (size <= 8 ? 1u : 1u << p->heads));
		p->head = pick(v, w, p->lo, p->hi, (uint16_t)(p->lo + from % size), size <= 8);
		p->tries = 0;
		p->answered = false;
		if (++p->heads >= VIEW_HEADS || size == 1)
			p->head = CORE_VIEW_NONE;
	}
	if (p->head == CORE_VIEW_NONE || p->polls >= VIEW_POLLS || !view_bit(v->member, p->head)) {
		p->done = true;
		if (complete(w))
			answer(v, w, now);
		return;
	}
	ask(v, w, p, now);
}

void view_wave_tick(struct core_view *v, uint64_t now)
{
	for (unsigned int k = 0; k < 2; k++)
		for (uint8_t i = 0; v->wave[k].phase && i < v->wave[k].n; i++)
			if (!v->wave[k].part[i].done && v->wave[k].part[i].at <= now)
				again(v, &v->wave[k], &v->wave[k].part[i], now);
}

uint64_t view_wave_due(const struct core_view *v)
{
	uint64_t due = CORE_NEVER;

	for (unsigned int k = 0; k < 2; k++)
		for (uint8_t i = 0; v->wave[k].phase && i < v->wave[k].n; i++)
			if (!v->wave[k].part[i].done)
				due = view_min(due, v->wave[k].part[i].at);
	return due;
}

/* The lowest member beats; the next in line when it has not been heard. */
void view_beat_tick(struct core_view *v, uint64_t now)
{
	if (v->all_ended && v->wave[1].root != v->cfg.self)
		v->beat_at = CORE_NEVER; /* nobody steps in for one that has gone */
	if (now < v->beat_at)
		return;
	v->beat_at = now + v->cfg.beat_ns;
	view_wave_root(v, CORE_VIEW_BEAT, ++v->beat_seq, NULL, now);
}
