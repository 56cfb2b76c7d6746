/* SPDX-License-Identifier: BSD-3-Clause */
/* Time, chance, and the run of one seed. */
#include "seeds.h"
#include "sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define HANG_NS	  (60 * SEC) /* all must be delivered so long after everything healed */
#define SETTLE_NS (40 * SEC) /* ... and every lane be back so long after that */
#define QUIET_NS  (5 * SEC)

uint64_t sim_rand(struct sim *s)
{
	return seeds_rand(&s->rng);
}

uint64_t sim_below(struct sim *s, uint64_t n)
{
	return n ? sim_rand(s) % n : 0;
}

bool sim_chance(struct sim *s, unsigned int percent)
{
	return sim_below(s, 100) < percent;
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
}

void sim_trace(struct sim *s, const struct sim_end *e, const char *fmt, ...)
{
	va_list ap;

	if (!s->verbose)
		return;
	printf("%12.6f end %d (node %d to %d): ", (double)s->now / 1e9, e->id, e->node, e->peer);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static bool before(const struct sim_ev *a, const struct sim_ev *b)
{
	return a->t != b->t ? a->t < b->t : a->order < b->order;
}

void sim_at(struct sim *s, uint64_t t, struct sim_ev ev)
{
	uint32_t i;

	if (s->heap_n == s->heap_cap) {
		s->heap_cap = s->heap_cap ? 2 * s->heap_cap : 1024;
		s->heap = realloc(s->heap, s->heap_cap * sizeof(*s->heap));
		if (!s->heap) {
			perror("sim");
			exit(2);
		}
	}
	if (ev.type != SIM_EV_HEAL && ev.end >= 0)
		ev.epoch = s->end[ev.end].epoch;
	ev.t = t < s->now ? s->now : t;
	ev.order = s->order++;
	for (i = s->heap_n++; i && before(&ev, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = ev;
}

static struct sim_ev pop(struct sim *s)
{
	struct sim_ev top = s->heap[0], last = s->heap[--s->heap_n];
	uint32_t i = 0, c;

	while ((c = 2 * i + 1) < s->heap_n) {
		if (c + 1 < s->heap_n && before(&s->heap[c + 1], &s->heap[c]))
			c++;
		if (!before(&s->heap[c], &last))
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = last;
	return top;
}

void sim_async_at(struct sim *s, struct sim_end *e, uint64_t t, struct sim_async as)
{
	sim_at(s, t, (struct sim_ev){ .type = SIM_EV_ASYNC, .end = (int16_t)e->id, .as = as });
}

/* Devices that do not tell the truth in rq_psn; most are caught before there are lanes. */
static void liars(struct sim *s)
{
	bool any = sim_chance(s, 40);

	memset(s->lie, 0, sizeof(s->lie));
	for (int n = 0; n < s->nodes && any; n++)
		for (uint8_t r = 0; r < s->cfg.rails; r++) {
			if (sim_chance(s, 50))
				continue;
			s->lie[n][r] = (uint8_t)(SIM_LIE_RANDOM + sim_below(s, 3));
			s->caught_at[n][r] = sim_chance(s, 60) ? 0 : sim_below(s, s->heal_at);
		}
}

/* One seed in twenty has many nodes, and nodes with many links. */
static void topology(struct sim *s)
{
	bool many = sim_chance(s, 5);

	s->nodes = 2 + (int)sim_below(s, (many ? SIM_NODES : SIM_FEW_NODES) - 1);
	s->pairs = 1 + (int)sim_below(s, (uint64_t)(s->nodes < 4 ? s->nodes - 1 :
		many ? 3 * s->nodes / 2 : SIM_FEW_PAIRS));
	s->ends = 2 * s->pairs;
}

static void setup(struct sim *s)
{
	uint64_t total;
	bool unequal;

	topology(s);
	total = (300 + sim_below(s, 2700)) * (uint64_t)(1 + s->pairs / (2 * SIM_FEW_PAIRS));
	s->calm = sim_chance(s, 10);
	core_cfg_default(&s->cfg);
	s->cfg.rails = (uint8_t)sim_below(s, CORE_RAILS_MAX + 1);
	s->drawn[s->cfg.rails]++;
	unequal = sim_chance(s, 40);
	s->unequal += unequal;
	for (int n = 0; n < s->nodes; n++) {
		s->rails[n] = unequal ? (uint8_t)sim_below(s, s->cfg.rails + 1u) : s->cfg.rails;
		s->inc[n] = ++s->incs;
	}
	s->rails_told = sim_chance(s, 50);
	s->pauses = sim_chance(s, 30);
	s->restarts = !s->calm && sim_chance(s, 25);
	s->post_fails = sim_chance(s, 30) ? 30 : 0;
	s->ud_room = sim_chance(s, 50) ? 64 : 1 + (unsigned int)sim_below(s, 8);
	s->probe_stuck = sim_chance(s, 30) ? 30 : 0;
	s->most_nodes = s->nodes > s->most_nodes ? s->nodes : s->most_nodes;
	s->most_pairs = s->pairs > s->most_pairs ? s->pairs : s->most_pairs;
	s->cfg.depth0 = (uint16_t)(1u << (2 + sim_below(s, 4)));
	s->cfg.depth = (uint16_t)(s->cfg.depth0 << sim_below(s, 3));
	s->cfg.hold_max_ns = (1 + sim_below(s, 8)) * SEC;
	if (sim_chance(s, 20))
		s->cfg.ack_ns = 0;
	s->retry_ns = sim_chance(s, 30) ? 7 * SEC : 50 * MS + sim_below(s, SEC);
	if (s->calm)
		s->retry_ns = 7 * SEC;
	s->cut_end = -1;
	if (s->cfg.rails && !s->calm && sim_chance(s, 15)) {
		/* ... and its NIC never says so. */
		s->cut_end = (int)sim_below(s, (uint64_t)s->ends);
		s->cut_lane = (uint8_t)sim_below(s, s->cfg.rails);
		s->retry_ns = CORE_NEVER;
	}
	s->honest = sim_chance(s, 80);
	s->reads = 1 + (uint32_t)sim_below(s, 15);
	s->bulk = 1 + sim_below(s, 200000);
	s->slow = sim_chance(s, 25);
	s->batch = !s->slow && sim_chance(s, 50) ? 40 : 1 + (uint32_t)sim_below(s, 6);
	s->busy_odds = sim_chance(s, 50) ? 0 : 200 + (uint32_t)sim_below(s, 2000);
	s->heal_at = 200 * MS + sim_below(s, sim_chance(s, 50) ? SEC : 12 * SEC);
	for (uint8_t i = 0; i < CORE_LANES; i++)
		s->delay_max[i] = sim_chance(s, 80) ? 30 * US : 2 * MS;
	s->lossy = sim_chance(s, s->calm ? 50 : 10);
	/* Where nothing may die the loss of datagrams is that of packets. */
	s->probe_loss = sim_chance(s, 70) ? s->calm ? 3 : 10 : sim_chance(s, 50) && !s->calm ? 50 : 100;
	for (int i = 0; i < s->ends; i += 2) {
		/* A pair may be there twice: two links know nothing of each other. */
		int a = (int)sim_below(s, (uint64_t)s->nodes);
		int b = (int)sim_below(s, (uint64_t)(s->nodes - 1));
		bool lower = sim_chance(s, 60);

		b += b >= a;
		for (int k = 0; k < 2; k++) {
			struct sim_end *e = &s->end[i + k];
			struct core_cfg cfg = s->cfg;

			memset(&e->link, 0, sizeof(*e) - offsetof(struct sim_end, link));
			cfg.rails = s->rails[k ? b : a];
			e->id = i + k;
			e->node = k ? b : a;
			e->peer = k ? a : b;
			cfg.self = (uint16_t)e->node;
			cfg.peer = (uint16_t)e->peer;
			cfg.first = (uint8_t)sim_below(s, CORE_RAILS_MAX);
			core_link_init(&e->link, &cfg, 0);
			e->run_at = CORE_NEVER;
			e->last_lane = CORE_LANE_NONE;
			e->goal = sim_below(s, 2 * total / (uint64_t)s->ends + 1);
			core_rma_init(&e->rma);
			e->rma_goal = cfg.rails && sim_chance(s, 80) ? (uint32_t)sim_below(s, SIM_RMA) : 0;
			sim_key_setup(s, e);
			e->app_burst = 1 + (uint32_t)sim_below(s, sim_chance(s, 50) ? 4 : 150);
			e->app_gap = s->heal_at * e->app_burst / (e->goal + 1) + 1;
			if (sim_chance(s, 50) || (e->node < e->peer) == lower)
				sim_async_at(s, e, sim_below(s, 20 * MS),
					(struct sim_async){ .type = SIM_AS_WANT });
			else if (k == 1 || e->goal || e->rma_goal)
				sim_async_at(s, e, 30 * MS + sim_below(s, 200 * MS),
					(struct sim_async){ .type = SIM_AS_WANT });
		}
	}
	liars(s);
	sim_fault_start(s);
}

static void dispatch(struct sim *s, const struct sim_ev *ev)
{
	struct sim_end *e = &s->end[ev->end >= 0 && ev->end < s->ends ? ev->end : 0];
	struct sim_qp *q = &e->qp[ev->lane];

	if (ev->type != SIM_EV_HEAL && ev->end >= 0 && ev->epoch != e->epoch)
		return;
	switch (ev->type) {
	case SIM_EV_RUN:
		if (e->run_at == ev->t) {
			e->run_at = CORE_NEVER;
			sim_node_run(s, e);
		}
		break;
	case SIM_EV_XMIT:
		if (q->uid == ev->gen && q->xmit_at == ev->t)
			sim_qp_service(s, e, ev->lane);
		break;
	case SIM_EV_COMPLETE:
		if (q->uid == ev->gen && !q->broken &&
			(q->state == SIM_QP_READY || q->state == SIM_QP_FENCING))
			sim_qp_acked(s, e, ev->lane, ev->n);
		break;
	case SIM_EV_ASYNC:
		if (s->now < s->down_until[e->node] && ev->as.type != SIM_AS_RAIL && ev->as.type != SIM_AS_WANT)
			break; /* nobody is there */
		if (e->as_n == SIM_ASYNC) {
			sim_fail(s, "end %d: too many events at once", e->id);
			break;
		}
		e->as[e->as_n++] = ev->as;
		sim_node_wake(s, e, s->now);
		break;
	case SIM_EV_SYN:
		sim_tcp_syn(s, e, ev->gen, ev->n);
		break;
	case SIM_EV_FENCE_DONE:
		if (q->gen == ev->gen && q->state != SIM_QP_NONE)
			q->state = SIM_QP_DEAD;
		e->as[e->as_n < SIM_ASYNC ? e->as_n++ : 0] = (struct sim_async){
			.type = SIM_AS_FENCED, .lane = ev->lane, .gen = ev->gen };
		sim_node_wake(s, e, s->now);
		break;
	case SIM_EV_FAULT:
		sim_fault(s);
		break;
	case SIM_EV_HEAL:
		sim_fault_heal(s, ev);
		break;
	default:
		break;
	}
}

static void run_until(struct sim *s, uint64_t t, bool (*done)(const struct sim *))
{
	while (!s->failed && s->heap_n && s->heap[0].t <= t) {
		struct sim_ev ev = pop(s);

		s->now = ev.t;
		dispatch(s, &ev);
		if (done && done(s))
			return;
	}
	s->now = t;
}

static bool done(const struct sim *s)
{
	for (int i = 0; i < s->ends; i++) {
		const struct sim_end *e = &s->end[i];

		if (e->rma_ended < e->rma_goal || !sim_key_done(s, e) || e->submitted < e->goal || s->end[i ^ 1].delivered < e->goal ||
			e->link.tail != e->goal)
			return false;
	}
	return true;
}

/* Lanes in the order in which they should carry frames: from the first rail round, then TCP. */
static bool is_behind(const struct core_link *l, uint8_t lane, uint8_t other)
{
	unsigned rails = l->cfg.rails, first = rails ? l->cfg.first % rails : 0;

	if (lane >= rails || other >= rails)
		return lane > other;
	return (lane < first ? lane + rails : lane) > (other < first ? other + rails : other);
}

static void check_end(struct sim *s, const struct sim_end *e)
{
	const struct core_link *l = &e->link;

	if (s->end[e->id ^ 1].delivered != e->goal)
		sim_fail(s, "end %d: %" PRIu64 " frames delivered of %" PRIu64, e->id,
			s->end[e->id ^ 1].delivered, e->goal);
	sim_rma_check(s, e);
	sim_key_check(s, e);
	if (core_link_room(l) != CORE_SLOTS)
		sim_fail(s, "end %d: slots are still held at rest", e->id);
	for (uint32_t i = 0; i < CORE_SLOTS; i++)
		if (l->posted[i])
			sim_fail(s, "end %d: frames are still posted at rest", e->id);
	if (l->unreachable || e->told_unreachable)
		sim_fail(s, "end %d: still called unreachable", e->id);
	if (e->failovers < e->deaths && s->cut_end >> 1 != e->id >> 1)
		sim_fail(s, "end %d: %" PRIu64 " lanes died, %" PRIu64 " failovers told", e->id,
			e->deaths, e->failovers);
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		bool there = i == CORE_LANE_TCP ||
			     (i < s->cfg.rails && s->has[e->node][i] && s->has[e->peer][i]);
		bool cut = s->cut_end >> 1 == e->id >> 1 && s->cut_lane == i;

		if (cut)
			continue;

		if (there && !l->lane[i].usable)
			sim_fail(s, "end %d: lane %d did not come back (state %d)", e->id, i,
				l->lane[i].state);
		if (there && !l->capped && is_behind(l, l->active, i))
			sim_fail(s, "end %d: traffic on lane %d, %d is better", e->id, l->active, i);
		if (l->lane[i].fo_open || l->lane[i].fo_ready)
			sim_fail(s, "end %d: failover of lane %d never told", e->id, i);
	}
}

bool sim_seed(struct sim *s, uint64_t seed)
{
	uint64_t ctrls[SIM_ENDS];

	s->seed = s->rng = seed;
	s->rng = sim_rand(s);
	s->now = s->order = 0;
	s->failed = false;
	s->why[0] = '\0';
	s->heap_n = 0;
	s->uid = 0;
	memset(s->busy_until, 0, sizeof(s->busy_until));
	memset(s->down_until, 0, sizeof(s->down_until));
	s->incs = 0;
	memset(s->cut, 0, sizeof(s->cut));
	setup(s);

	run_until(s, s->heal_at, NULL);
	sim_fault_end(s);
	if (!s->failed && !done(s))
		run_until(s, s->heal_at + HANG_NS, done);
	for (int i = 0; i < s->ends && !s->failed; i++)
		if (!done(s))
			sim_fail(s, "hangs: %" PRIu64 " of %" PRIu64 " submitted, %" PRIu64
				    " delivered, tail %" PRIu64 ", %u of %u puts and gets ended (end %d)",
				s->end[i].submitted, s->end[i].goal, s->end[i ^ 1].delivered,
				s->end[i].link.tail, s->end[i].rma_ended, s->end[i].rma_goal, i);
	run_until(s, s->now + SETTLE_NS, NULL);
	for (int i = 0; i < s->ends; i++)
		ctrls[i] = s->end[i].ctrls;
	run_until(s, s->now + QUIET_NS, NULL);
	for (int i = 0; i < s->ends && !s->failed; i++) {
		check_end(s, &s->end[i]);
		/* A lane that is tried again and again has something to say. */
		if (s->cut_end >> 1 != i >> 1 && s->end[i].ctrls - ctrls[i] > 4 * (QUIET_NS / SEC))
			sim_fail(s, "end %d: %" PRIu64 " control messages while idle", i,
				s->end[i].ctrls - ctrls[i]);
	}
	return !s->failed;
}
