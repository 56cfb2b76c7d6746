/* SPDX-License-Identifier: BSD-3-Clause */
/* Time, chance, the network, and the owner of each node's machine: its links and its detector. */
#include "seeds.h"
#include "view_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEPALIVE (1000 * MS) /* keepalive_ms */

uint64_t vs_rand(struct vs *s)
{
	return seeds_rand(&s->rng);
}

uint64_t vs_below(struct vs *s, uint64_t n)
{
	return n ? vs_rand(s) % n : 0;
}

bool vs_chance(struct vs *s, unsigned int percent)
{
	return vs_below(s, 100) < percent;
}

void vs_fail(struct vs *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
}

void vs_trace(struct vs *s, uint16_t node, const char *fmt, ...)
{
	va_list ap;

	if (!s->verbose)
		return;
	printf("%12.6f node %u: ", (double)s->now / 1e9, node);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void *more(void *old, uint32_t *cap, uint32_t need, size_t each)
{
	if (need <= *cap)
		return old;
	while (*cap < need)
		*cap = *cap ? 2 * *cap : 64;
	old = realloc(old, *cap * each);
	if (!old) {
		perror("sim-view");
		exit(2);
	}
	return old;
}

static bool before(const struct vs_key *a, const struct vs_key *b)
{
	return a->t != b->t ? a->t < b->t : a->order < b->order;
}

struct vs_ev *vs_at(struct vs *s, uint64_t t, uint8_t type, uint16_t node)
{
	struct vs_key k = { .t = t < s->now ? s->now : t, .order = s->order++ };
	uint32_t i;

	if (!s->ev_free_n) {
		uint32_t old = s->ev_cap;

		s->ev = more(s->ev, &s->ev_cap, old + 1, sizeof(*s->ev));
		s->ev_free = realloc(s->ev_free, s->ev_cap * sizeof(*s->ev_free));
		while (s->ev_free_n < s->ev_cap - old) {
			s->ev_free[s->ev_free_n] = old + s->ev_free_n;
			s->ev_free_n++;
		}
	}
	k.ev = s->ev_free[--s->ev_free_n];
	s->heap = more(s->heap, &s->heap_cap, s->heap_n + 1, sizeof(*s->heap));
	for (i = s->heap_n++; i && before(&k, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = k;
	s->ev[k.ev].type = type;
	s->ev[k.ev].node = node;
	return &s->ev[k.ev];
}

static struct vs_key pop(struct vs *s)
{
	struct vs_key top = s->heap[0], last = s->heap[--s->heap_n];
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

uint64_t vs_local(const struct vs *s, uint16_t node)
{
	const struct vs_node *n = &s->node[node];

	return (uint64_t)(n->off + (int64_t)s->now + (int64_t)s->now / 1000 * n->drift);
}

static uint64_t global(const struct vs *s, uint16_t node, uint64_t local)
{
	const struct vs_node *n = &s->node[node];

	return (uint64_t)(((int64_t)local - n->off) / (1000 + n->drift) * 1000 + 2000);
}

bool vs_alive(const struct vs *s, uint16_t node)
{
	return s->node[node].life == VS_UP && !s->node[node].stopped && !s->node[node].over;
}

bool vs_path(const struct vs *s, uint16_t from, uint16_t to)
{
	if (!s->cut)
		return true;
	return s->group[from] == s->group[to] && !s->cut[(uint32_t)from * s->nodes + to] &&
	       !s->part[(uint32_t)from * s->nodes + to] && !s->node[from].stopped && !s->node[to].stopped;
}

static void wake(struct vs *s, uint16_t node, uint64_t t)
{
	struct vs_node *n = &s->node[node];

	if (t < s->now)
		t = s->now;
	if (n->run_at <= t && n->run_at >= s->now)
		return;
	n->run_at = t;
	vs_at(s, t, VS_EV_RUN, node);
}

static struct vs_peer *peer_of(struct vs *s, uint16_t node, uint16_t to)
{
	struct vs_node *n = &s->node[node];

	for (uint32_t i = 0; i < n->peers; i++)
		if (n->peer[i].node == to)
			return &n->peer[i];
	n->peer = more(n->peer, &n->peer_cap, n->peers + 1, sizeof(*n->peer));
	n->peer[n->peers] = (struct vs_peer){ .node = to };
	return &n->peer[n->peers++];
}

static bool works(const struct vs *s, uint16_t a, uint16_t b)
{
	return vs_path(s, a, b) && vs_path(s, b, a) && vs_alive(s, b);
}

static void send(struct vs *s, uint16_t from, uint16_t to, const struct core_view_msg *m)
{
	struct vs_node *n = &s->node[from];
	uint32_t copies = 1 + (s->dup && vs_chance(s, s->dup));

	s->msgs++;
	n->sent++;
	if (m->phase == CORE_VIEW_BEAT && !m->view) {
		s->beats++;
		n->beats++;
	}
	if (s->checks)
		peer_of(s, from, to);
	while (copies--) {
		uint64_t t = s->now + s->delay / 2 + vs_below(s, s->delay);
		struct vs_ev *ev;

		if (s->loss && vs_chance(s, s->loss))
			continue;
		if (!vs_path(s, from, to))
			continue;
		if (s->delay_max && vs_chance(s, 3))
			t += vs_below(s, s->delay_max);
		if (s->impatient && s->now < s->heal_at && vs_chance(s, s->late_odds))
			t += vs_below(s, s->late_max);
		t += n->slow + s->node[to].slow;
		ev = vs_at(s, t, VS_EV_MSG, to);
		ev->arg = from;
		ev->msg = *m;
	}
}

/* Feeds nothing, does what the machine says, tells ranks how long they may act, and sleeps until its deadline. */
void vs_run(struct vs *s, uint16_t node)
{
	struct vs_node *n = &s->node[node];
	struct core_view_act act;
	uint32_t guard = 0;

	while (!s->failed && core_view_poll(n->v, vs_local(s, node), &act)) {
		if (++guard > 100000) {
			vs_fail(s, "node %u: actions without end", node);
			return;
		}
		if (act.type != CORE_VIEW_ACT_SEND) {
			if (s->checks)
				vs_check_act(s, node, &act);
			else if (act.type == CORE_VIEW_ACT_VIEW)
				n->known_at = s->now;
			continue;
		}
		send(s, node, act.node, &act.msg);
		if (s->kill_in && act.msg.type == CORE_VIEW_WAVE && act.msg.root == node &&
			(act.msg.phase != CORE_VIEW_BEAT || (act.msg.view && vs_chance(s, 10))) &&
			!--s->kill_in) {
			if (s->kill_more) {
				s->kill_more--;
				s->kill_in = 1 + (uint32_t)vs_below(s, 2 * s->nodes);
			}
			if (s->deaths < s->deaths_max && s->now < s->heal_at) {
				vs_kill(s, node);
				return;
			}
		}
	}
	n->until = core_view_until(n->v);
	if (s->checks)
		vs_check(s, node);
	if (core_view_over(n->v, vs_local(s, node)))
		n->over = true;
	if (core_view_deadline(n->v) <= vs_local(s, node))
		vs_fail(s, "node %u: a passed deadline remains", node);
	if (core_view_deadline(n->v) != CORE_NEVER)
		wake(s, node, global(s, node, core_view_deadline(n->v)));
}

static void take(struct vs *s, uint16_t node, const struct core_view_msg *m)
{
	struct vs_node *n = &s->node[node];

	if (n->life > VS_STOPPED || !n->started || n->over)
		return;
	if (n->life == VS_STOPPED) {
		n->inbox = more(n->inbox, &n->inbox_cap, n->inbox_n + 1, sizeof(*n->inbox));
		n->inbox[n->inbox_n++] = *m;
		return;
	}
	if (s->verbose && m->type != CORE_VIEW_GRANT && m->phase != CORE_VIEW_BEAT)
		vs_trace(s, node, "type %u phase %u from %u via %d for %u, ballot %llx, view %u, "
			"count %u, n %u (%u)", m->type, m->phase, m->src,
			m->via == CORE_VIEW_NONE ? -1 : m->via, m->dst,
			(unsigned long long)m->ballot, m->view, m->count, m->n, m->set[0]);
	core_view_rx(n->v, m, vs_local(s, node));
	vs_run(s, node);
}

void vs_continue(struct vs *s, uint16_t node)
{
	struct vs_node *n = &s->node[node];
	uint32_t i;

	n->life = VS_UP;
	/* It may find its timers or its messages first. */
	if (vs_chance(s, 50))
		vs_run(s, node);
	for (i = 0; i < n->inbox_n && n->life == VS_UP && !s->failed; i++) {
		struct core_view_msg m = n->inbox[i];

		take(s, node, &m);
	}
	n->inbox_n = 0;
	if (n->life == VS_UP && !s->failed)
		vs_run(s, node);
}

/*
 * A connection is reset and stands again a while later; meanwhile the node has called the other
 * lost, rightly or not. What is decided must be one thing whoever proposes what.
 */
static void doubt(struct vs *s, uint16_t node, uint16_t whom)
{
	struct vs_peer *p = peer_of(s, node, whom);
	struct core_view *v = s->node[node].v;
	uint64_t now = vs_local(s, node);

	core_view_suspect(v, whom, now);
	p->flap = true;
	if (v->case_n < CORE_VIEW_CASES)
		v->cases[v->case_n++] = (struct view_case){ .node = whom, .by = node,
			.victim = whom, .since = now, .seen = now, .ask_at = now, .lost = true };
	if (!v->phase)
		v->propose_at = now; /* not politely after the one who is at it */
}

/* Two at once, of different opinion, who for a moment hear nothing of each other. */
static void duel(struct vs *s, uint16_t node)
{
	uint16_t other = (uint16_t)vs_below(s, s->nodes), whom = (uint16_t)vs_below(s, s->nodes);

	if (other != node && vs_chance(s, 70))
		vs_fault_cut(s, node, other, 2 * s->late_max);

	for (int k = 0; k < 2; k++) {
		struct vs_node *n = &s->node[node];

		if (n->life == VS_UP && n->started && whom != node &&
			core_view_member(n->v, node) && core_view_member(n->v, whom)) {
			doubt(s, node, whom);
			vs_run(s, node);
		}
		node = other;
		whom = (uint16_t)vs_below(s, s->nodes);
	}
}

/* What its link with a node has heard. Quiet links say something now and then. */
static void contact(struct vs *s, uint16_t node, struct vs_peer *p)
{
	struct core_view *v = s->node[node].v;
	struct core_view_contact c = { .every_ns = view_min(core_view_pace(v, p->node), KEEPALIVE) };
	uint64_t now = vs_local(s, node);

	if (works(s, node, p->node) && s->node[p->node].started)
		p->heard_at = view_max(p->heard_at, now - vs_below(s, c.every_ns));
	if (p->flap) {
		p->flap = false;
		return;
	}
	c.heard_at = p->heard_at;
	c.refused = s->node[p->node].life == VS_DAEMON && vs_path(s, node, p->node);
	if (core_view_contact(v, p->node, &c, now))
		vs_trace(s, node, "suspects %u", p->node);
}

/* As member_turn(): what links have heard, and what slurmctld says. */
static void look(struct vs *s, uint16_t node)
{
	struct vs_node *n = &s->node[node];
	bool awake = core_view_look(n->v, vs_local(s, node));
	uint16_t other = core_view_other(n->v);

	for (uint8_t i = 0; i < n->v->near_n; i++)
		peer_of(s, node, n->v->near[i].node);
	if (s->impatient && s->now < s->heal_at && vs_chance(s, 20))
		duel(s, node);
	if (n->life != VS_UP)
		return;
	for (uint32_t i = n->peers; awake && !n->stopped && i--;) {
		if (core_view_member(n->v, n->peer[i].node))
			contact(s, node, &n->peer[i]);
		else
			n->peer[i] = n->peer[--n->peers];
	}
	/* slurmctld says what is down for sure. */
	for (uint16_t d = 0; s->cfg.witness && s->cut && d < s->nodes; d++)
		if (s->node[d].life > VS_STOPPED && vs_chance(s, 5))
			core_view_witness(n->v, d, vs_local(s, node));
	if (s->cfg.witness && core_view_suspected(n->v, other) && vs_chance(s, 20))
		core_view_hold(n->v, vs_local(s, node));
	vs_run(s, node);
}

void vs_start(struct vs *s, uint16_t node)
{
	struct vs_node *n = &s->node[node];
	struct core_view_cfg cfg = s->cfg;
	void *mem;

	cfg.self = node;
	mem = malloc(core_view_size(&cfg));
	if (!mem) {
		perror("sim-view");
		exit(2);
	}
	n->v = core_view_init(mem, &cfg, vs_local(s, node));
	n->started = true;
	vs_at(s, s->now, VS_EV_LOOK, node);
	vs_run(s, node);
}

void vs_new(struct vs *s, const struct core_view_cfg *cfg, uint16_t nodes)
{
	s->cfg = *cfg;
	s->cfg.nodes = s->nodes = nodes;
	s->active = (uint16_t)(nodes - cfg->spares);
	s->now = s->order = 0;
	s->heap_n = 0;
	s->failed = false;
	s->ev_free_n = 0;
	while (s->ev_free_n < s->ev_cap) {
		s->ev_free[s->ev_free_n] = s->ev_free_n;
		s->ev_free_n++;
	}
	s->log_n = s->views = s->votes = 0;
	s->deaths = s->kill_in = s->kill_more = 0;
	s->loss = s->dup = 0;
	s->delay_max = 0;
	s->pair[0] = s->pair[1] = 0;
	s->healed_at = CORE_NEVER / 2;
	s->node = calloc(nodes, sizeof(*s->node));
	s->log = calloc(nodes, sizeof(*s->log));
	s->decided_at = calloc(nodes + 1u, sizeof(*s->decided_at));
	s->inc = calloc(nodes, sizeof(*s->inc));
	s->gone_at = calloc(nodes, sizeof(*s->gone_at));
	s->cut = s->checks ? calloc((size_t)nodes * nodes, 1) : NULL;
	s->part = s->checks ? calloc((size_t)nodes * nodes, 1) : NULL;
	s->group = calloc(nodes, 1);
	if (!s->node || !s->log || !s->decided_at || !s->inc || !s->gone_at || !s->group) {
		perror("sim-view");
		exit(2);
	}
	for (uint16_t i = 0; i < nodes; i++) {
		s->node[i].index = i < s->active ? i : CORE_VIEW_NONE;
		s->node[i].off = (int64_t)vs_below(s, 1000 * SEC) + (int64_t)(100 * SEC);
		s->node[i].drift = (int64_t)vs_below(s, 49) - 24;
		s->node[i].run_at = CORE_NEVER;
		s->gone_at[i] = CORE_NEVER;
	}
}

void vs_free(struct vs *s)
{
	for (uint16_t i = 0; i < s->nodes; i++) {
		free(s->node[i].v);
		free(s->node[i].peer);
		free(s->node[i].inbox);
	}
	free(s->node);
	free(s->log);
	free(s->decided_at);
	free(s->inc);
	free(s->gone_at);
	free(s->cut);
	free(s->part);
	free(s->group);
	s->nodes = 0;
}

static void dispatch(struct vs *s, const struct vs_ev *ev)
{
	struct vs_node *n = &s->node[ev->node];

	switch (ev->type) {
	case VS_EV_MSG:
		take(s, ev->node, &ev->msg);
		break;
	case VS_EV_RUN:
		if (n->run_at != s->now)
			break;
		n->run_at = CORE_NEVER;
		if (n->life == VS_UP)
			vs_run(s, ev->node);
		break;
	case VS_EV_START:
		if (n->life == VS_UP)
			vs_start(s, ev->node);
		break;
	case VS_EV_LOOK:
		if (n->life == VS_UP && !n->over)
			look(s, ev->node);
		if (n->life <= VS_STOPPED && !n->over)
			vs_at(s, s->now + n->v->cfg.silent_ns / 16 + vs_below(s, s->late_look), VS_EV_LOOK, ev->node);
		break;
	case VS_EV_END:
		if (n->life == VS_UP && n->started)
			core_view_ended(n->v, vs_local(s, ev->node));
		break;
	case VS_EV_FAULT:
		vs_fault(s);
		break;
	case VS_EV_HEAL:
		vs_fault_heal(s, ev);
		break;
	default:
		break;
	}
}

void vs_until(struct vs *s, uint64_t t, bool (*done)(struct vs *))
{
	while (!s->failed && s->heap_n && s->heap[0].t <= t) {
		struct vs_key k = pop(s);
		struct vs_ev ev = s->ev[k.ev];

		s->ev_free[s->ev_free_n++] = k.ev;
		s->now = k.t;
		dispatch(s, &ev);
		if (done && done(s))
			return;
	}
	s->now = t;
}
