/* SPDX-License-Identifier: BSD-3-Clause */
/* Suspicions: who is told, who looks into them, and what comes of it. */
#include "core/view_internal.h"

static bool watched(const struct core_view *v, uint16_t node)
{
	uint16_t out[CORE_VIEW_NEAR];
	unsigned int n = core_view_watched(v, out);

	while (n)
		if (out[--n] == node)
			return true;
	return false;
}

/* From here on someone else has this long to do something about our suspicions. */
static void be_patient(struct core_view *v, uint64_t now)
{
	v->patience_at = view_max(now, v->report_at) + v->cfg.report_ns + view_turn(v);
	v->patience_end = now + 2 * v->cfg.pair_ns;
}

void core_view_suspect(struct core_view *v, uint16_t node, uint64_t now)
{
	if (v->out || !core_view_member(v, node) || node == v->cfg.self || view_bit(v->suspect, node))
		return;
	v->suspect[node / 64] |= 1ull << (node % 64);
	v->suspects++;
	/* All nodes may have links to it: its neighbours' word is enough. */
	if (watched(v, node))
		v->report_at = now;
	else
		v->report_at = view_min(v->report_at,
			now + v->cfg.report_ns + view_noise(v, v->cfg.report_ns));
	if (v->patience_at == CORE_NEVER)
		be_patient(v, now);
}

static void case_close(struct core_view *v, uint8_t i)
{
	v->cases[i] = v->cases[--v->case_n];
}

void core_view_trust(struct core_view *v, uint16_t node, uint64_t now)
{
	(void)now;
	if (node >= v->cfg.nodes || !view_bit(v->suspect, node))
		return;
	v->suspect[node / 64] &= ~(1ull << (node % 64));
	if (view_bit(v->member, node))
		v->suspects--;
	for (uint8_t i = v->case_n; i--;)
		if (v->cases[i].node == node && v->cases[i].by == v->cfg.self)
			case_close(v, i);
	if (!v->suspects)
		v->report_at = v->patience_at = CORE_NEVER;
}

void core_view_witness(struct core_view *v, uint16_t down, uint64_t now)
{
	if (!core_view_member(v, down) || down == v->cfg.self)
		return;
	v->word = down;
	core_view_suspect(v, down, now);
}

static void case_open(struct core_view *v, uint16_t by, uint16_t node, uint64_t now)
{
	struct view_case *c;

	for (uint8_t i = 0; i < v->case_n; i++) {
		if (v->cases[i].node == node && v->cases[i].by == by) {
			v->cases[i].seen = now;
			return;
		}
	}
	if (v->case_n == CORE_VIEW_CASES)
		return; /* it will be reported again */
	c = &v->cases[v->case_n++];
	*c = (struct view_case){ .node = node, .by = by, .victim = node, .since = now, .seen = now,
		.ask_at = now, .verdict_at = now + v->cfg.check_ns };
}

void view_suspect_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	struct core_view_msg hold;

	for (uint8_t i = 0; i < m->n && i < CORE_VIEW_SET; i++)
		if (core_view_member(v, m->set[i]) && m->set[i] != v->cfg.self)
			case_open(v, m->src, m->set[i], now);
	view_msg(v, &hold, CORE_VIEW_HOLD, m->src);
	view_send(v, &hold, m->via);
}

void view_doubt_held(struct core_view *v, uint64_t now)
{
	if (v->report_at != CORE_NEVER)
		v->report_at = view_max(v->report_at, now + v->cfg.report_ns);
	if (v->patience_at != CORE_NEVER)
		v->patience_at = view_min(v->patience_end,
			now + 2 * v->cfg.report_ns + view_turn(v));
}

/* A word of the node itself, by whatever way. */
void view_doubt_heard(struct core_view *v, uint16_t node, uint64_t now)
{
	for (uint8_t i = 0; i < v->case_n; i++) {
		struct view_case *c = &v->cases[i];

		if (c->node != node)
			continue;
		c->alive = true;
		if (c->lost && !c->rule) {
			c->lost = false;
			c->verdict_at = now + v->cfg.check_ns;
		}
	}
}

/* A view was installed. */
void view_doubt_forget(struct core_view *v, uint64_t now)
{
	for (uint8_t i = v->case_n; i--;)
		if (!view_bit(v->member, v->cases[i].node) || !view_bit(v->member, v->cases[i].by))
			case_close(v, i);
	v->report_at = v->patience_at = CORE_NEVER;
	if (v->suspects) {
		v->report_at = now;
		be_patient(v, now);
	}
}

static void look_anew(struct core_view *v, struct view_case *c, uint64_t now)
{
	c->alive = c->lost = false;
	c->ask_at = now;
	c->verdict_at = now + v->cfg.check_ns;
}

/* We did not run: nobody could answer us. */
void view_doubt_overslept(struct core_view *v, uint64_t now)
{
	for (uint8_t i = 0; i < v->case_n; i++)
		if (!v->cases[i].lost)
			look_anew(v, &v->cases[i], now);
}

void view_doubt_lost(const struct core_view *v, struct view_set *s)
{
	s->n = 0;
	for (uint8_t i = 0; i < v->case_n; i++)
		if (v->cases[i].lost)
			view_set_add(s, v->cases[i].victim);
}

static void check(struct core_view *v, struct view_case *c, uint64_t now)
{
	struct core_view_msg m;

	c->ask_at = now + v->cfg.check_ns / (c->lost ? 1 : 4);
	for (const struct view_case *o = v->cases; o < c; o++)
		if (o->node == c->node)
			return; /* asks for all who doubt it */
	view_msg(v, &m, CORE_VIEW_CHECK, c->node);
	/* Every other one through a third: perhaps only the path from here is cut. */
	if (c->asks++ % 2 && !view_bit(v->suspect, c->node)) {
		v->suspect[c->node / 64] |= 1ull << (c->node % 64);
		view_send(v, &m, CORE_VIEW_NONE);
		v->suspect[c->node / 64] &= ~(1ull << (c->node % 64));
	} else {
		view_send(v, &m, CORE_VIEW_NONE);
	}
}

void view_doubt_again(struct core_view *v, uint64_t now)
{
	for (uint8_t i = 0; i < v->case_n; i++)
		if (v->cases[i].lost && !v->cases[i].rule) {
			look_anew(v, &v->cases[i], now);
			check(v, &v->cases[i], now);
		}
}

/* False: the case is closed. */
static bool case_tick(struct core_view *v, struct view_case *c, uint64_t now)
{
	if (c->by == v->cfg.self)
		c->seen = now;
	if (now - c->seen > 4 * v->cfg.report_ns && (!c->lost || c->rule))
		return false;
	if (c->ask_at <= now)
		check(v, c, now);
	if (c->lost || c->verdict_at > now)
		return true;
	c->verdict_at = now + v->cfg.check_ns;
	if (!c->alive) {
		c->lost = true;
	} else if (now - c->since >= v->cfg.pair_ns && (c->by < c->node || c->by != v->cfg.self)) {
		/* Where we are the one to go the other will see to that. */
		c->victim = c->by > c->node ? c->by : c->node;
		c->lost = c->rule = true;
	}
	c->alive = false;
	return true;
}

static void report(struct core_view *v, uint64_t now)
{
	const uint16_t first = view_lowest(v, true);
	const bool ours = first == v->cfg.self || now >= v->patience_at;
	struct core_view_msg m;

	view_msg(v, &m, CORE_VIEW_SUSPECT, first);
	for (uint32_t w = 0; w * 64 < v->cfg.nodes; w++) {
		uint64_t bits = v->member[w] & v->suspect[w];

		for (; bits; bits &= bits - 1) {
			uint16_t node = (uint16_t)(w * 64 + (uint32_t)__builtin_ctzll(bits));

			if (ours)
				case_open(v, v->cfg.self, node, now);
			if (m.n < CORE_VIEW_SET)
				m.set[m.n++] = node;
		}
	}
	if (first != v->cfg.self)
		view_send(v, &m, CORE_VIEW_NONE);
	/* the patience of others, and who looks into our cases, count in report_ns */
	v->report_at = now + view_min(v->cfg.check_ns, v->cfg.report_ns);
}

void view_doubt_tick(struct core_view *v, uint64_t now)
{
	if (v->report_at <= now)
		report(v, now);
	for (uint8_t i = v->case_n; i--;)
		if (!case_tick(v, &v->cases[i], now))
			case_close(v, i);
}

uint64_t view_doubt_due(const struct core_view *v)
{
	uint64_t due = v->report_at;

	for (uint8_t i = 0; i < v->case_n; i++) {
		due = view_min(due, v->cases[i].ask_at);
		if (!v->cases[i].lost)
			due = view_min(due, v->cases[i].verdict_at);
	}
	return due;
}
