/* SPDX-License-Identifier: BSD-3-Clause */
/* What must hold: at every step of every node, and in the end. */
#include "view_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which acceptors a ballot has. */
static void see_vote(struct vs *s, uint16_t node)
{
	const struct core_view *v = s->node[node].v;
	struct vs_vote *b = NULL;

	if (!v->accepted || (v->accepted == s->node[node].seen_accepted &&
				    v->view == s->node[node].seen_view))
		return;
	s->node[node].seen_accepted = v->accepted;
	s->node[node].seen_view = v->view;
	for (uint32_t i = s->votes; i-- && !b;)
		if (s->vote[i].view == v->view && s->vote[i].ballot == v->accepted)
			b = &s->vote[i];
	if (!b) {
		if (s->votes == s->vote_cap) {
			s->vote_cap = s->vote_cap ? 2 * s->vote_cap : 64;
			s->vote = realloc(s->vote, s->vote_cap * sizeof(*s->vote));
		}
		b = &s->vote[s->votes++];
		memset(b, 0, sizeof(*b));
		b->view = v->view;
		b->ballot = v->accepted;
		b->set = v->value;
	}
	if (!view_set_same(&b->set, &v->value))
		vs_fail(s, "node %u: ballot %llx has two sets in view %u", node,
			(unsigned long long)v->accepted, v->view);
	if (!(b->by[node / 64] >> (node % 64) & 1)) {
		b->by[node / 64] |= 1ull << (node % 64);
		b->n++;
	}
}

static uint32_t members(const struct vs *s, uint16_t *lowest)
{
	uint32_t n = 0;

	for (uint16_t i = s->nodes; i--;) {
		if (s->gone_at[i] != CORE_NEVER)
			continue;
		n++;
		*lowest = i;
	}
	return n;
}

/* The first node that has a view decided it: was it allowed to? */
static void first_install(struct vs *s, uint16_t node, const struct view_set *set)
{
	uint16_t lowest = 0;
	uint32_t n = members(s, &lowest), most = 0;
	bool ok;

	for (uint32_t i = 0; i < s->votes; i++)
		if (s->vote[i].view == s->views && view_set_same(&s->vote[i].set, set) &&
			s->vote[i].n > most)
			most = s->vote[i].n;
	ok = most > n / 2;
	if (n == 2 && !s->cfg.witness)
		ok |= node == lowest;
	if (n == 2 && s->cfg.witness)
		ok = set->n == 1 && s->node[set->node[0]].life > VS_STOPPED;
	if (!ok)
		vs_fail(s, "node %u: view %u decided with %u votes of %u", node, s->views + 1, most, n);
	if (s->calm)
		vs_fail(s, "node %u: view %u decided though nothing failed", node, s->views + 1);
	for (uint8_t i = 0; i < set->n; i++) {
		s->log[s->log_n++] = set->node[i] | (i + 1 == set->n ? CORE_VIEW_END : 0);
		s->gone_at[set->node[i]] = s->now;
	}
	s->views++;
	s->decisions++;
	vs_trace(s, node, "decides view %u: %u gone, first %u", s->views, set->n, set->node[0]);
}

static void see_log(struct vs *s, uint16_t node)
{
	struct vs_node *n = &s->node[node];
	struct view_set set = { 0 };
	uint32_t start = n->log_seen;

	for (uint32_t i = start; i < n->v->log_n; i++) {
		uint16_t gone = n->v->log[i];

		view_set_add(&set, gone & (uint16_t)~CORE_VIEW_END);
		if (!(gone & CORE_VIEW_END))
			continue;
		if (start == s->log_n) {
			first_install(s, node, &set);
		} else {
			for (uint32_t k = start; k <= i && !s->failed; k++)
				if (k >= s->log_n || s->log[k] != n->v->log[k])
					vs_fail(s, "node %u: another set for view %u", node,
						n->v->view);
		}
		start = i + 1;
		set.n = 0;
		vs_trace(s, node, "has log %u", start);
	}
	n->log_seen = start;
}

/*
 * A rank looks at the word of its daemon before it does something, and is done a little later; it does not
 * look at the daemon itself, which may stand still or be dead.
 */
bool vs_writes(const struct vs *s, uint16_t node)
{
	const struct vs_node *n = &s->node[node];

	return n->life != VS_POWER && n->started && n->index != CORE_VIEW_NONE &&
	       (n->until == CORE_NEVER || vs_local(s, node) < n->until + s->cfg.act_ns);
}

static bool acting(const struct vs *s, uint16_t node)
{
	const struct vs_node *n = &s->node[node];

	return vs_alive(s, node) && n->started && core_view_acting(n->v, vs_local(s, node));
}

void vs_check(struct vs *s, uint16_t node)
{
	struct vs_node *n = &s->node[node];

	see_log(s, node);
	see_vote(s, node);
	if (s->cfg.spares && n->index != CORE_VIEW_NONE && s->inc[n->index] > n->inc && vs_writes(s, node))
		vs_fail(s, "node %u: its ranks may act as index %u in incarnation %u, %u began", node, n->index,
			n->inc, s->inc[n->index]);
	if (!acting(s, node))
		return;
	if (s->cfg.spares && vs_local(s, node) >= n->until)
		vs_fail(s, "node %u acts and its ranks may not", node);
	if (s->gone_at[node] != CORE_NEVER &&
		s->now > s->gone_at[node] + s->cfg.lease_ns + 2 * s->cfg.lease_ns / CORE_VIEW_DRIFT)
		vs_fail(s, "node %u acts long after it was removed", node);
	if (n->index != CORE_VIEW_NONE && s->inc[n->index] > n->inc)
		vs_fail(s, "node %u acts as index %u in incarnation %u, %u began", node, n->index,
			n->inc, s->inc[n->index]);
}

/* The group that can decide, or -1. */
static int majority(const struct vs *s)
{
	uint16_t lowest = 0;
	uint32_t n = members(s, &lowest), count[256] = { 0 }, dead = 0;
	bool knows[256] = { false }; /* the last decision: else it is not theirs to go on from */

	for (uint16_t i = 0; i < s->nodes; i++) {
		if (vs_alive(s, i) && s->node[i].log_seen == s->log_n)
			knows[s->group[i]] = true;
		if (s->gone_at[i] != CORE_NEVER)
			continue;
		if (vs_alive(s, i))
			count[s->group[i]]++;
		dead += s->node[i].life > VS_STOPPED;
	}
	for (int g = 0; g < 256; g++) {
		if (!knows[g])
			continue;
		if (count[g] > n / 2)
			return g;
		if (n == 2 && count[g] == 1 && s->cfg.witness && dead == 1)
			return g;
		if (n == 2 && count[g] == 1 && !s->cfg.witness && vs_alive(s, lowest) &&
			s->group[lowest] == g)
			return g;
	}
	return -1;
}

/* In contact with a majority, for so long that it must have a lease. */
static bool vs_needless(const struct vs *s, uint16_t node)
{
	return s->now > s->healed_at + s->cfg.lease_ns + s->cfg.grace_ns + 2 * SEC && s->pair[0] == s->pair[1] &&
	       s->gone_at[node] == CORE_NEVER && majority(s) == s->group[node];
}

void vs_check_act(struct vs *s, uint16_t node, const struct core_view_act *act)
{
	struct vs_node *n = &s->node[node];

	switch (act->type) {
	case CORE_VIEW_ACT_VIEW:
		if (act->view != n->view + 1)
			vs_fail(s, "node %u: view %u told after %u", node, act->view, n->view);
		n->view = act->view;
		break;
	case CORE_VIEW_ACT_SWITCH:
		vs_trace(s, node, "switches index %u to node %u, incarnation %u", act->index,
			act->node, act->incarnation);
		if (act->node < s->active || act->index >= s->active)
			vs_fail(s, "node %u: index %u cannot go to %u", node, act->index, act->node);
		else if (s->node[act->node].index != CORE_VIEW_NONE &&
			 s->node[act->node].index != act->index)
			vs_fail(s, "spare %u takes over %u and %u", act->node,
				s->node[act->node].index, act->index);
		if (s->failed)
			break;
		s->node[act->node].index = act->index;
		s->node[act->node].inc = act->incarnation;
		if (act->incarnation <= s->inc[act->index])
			break;
		s->inc[act->index] = act->incarnation;
		s->switches++;
		for (uint16_t i = 0; i < s->nodes; i++)
			if (i != act->node && s->node[i].index == act->index && vs_writes(s, i))
				vs_fail(s, "index %u switched to %u while ranks of %u may act", act->index,
					act->node, i);
		break;
	case CORE_VIEW_ACT_ACTIVE:
		n->told_active = true;
		vs_trace(s, node, "acts");
		break;
	case CORE_VIEW_ACT_PARTITIONED:
		if (!n->told_active || (s->calm && !n->v->ended))
			vs_fail(s, "node %u: partitioned without cause", node);
		n->told_active = false;
		vs_trace(s, node, "partitioned");
		break;
	case CORE_VIEW_ACT_STOP:
		vs_trace(s, node, "stops");
		if (s->calm || vs_needless(s, node))
			vs_fail(s, "node %u: stopped without cause", node);
		n->told_active = false;
		n->stopped = true;
		s->stops++;
		break;
	case CORE_VIEW_ACT_REMOVED:
		n->told_active = false;
		n->told_removed = true;
		vs_trace(s, node, "removed");
		break;
	default:
		break;
	}
}

/* Once faults have stopped: the majority has one view of all who are there, all others stopped. */
bool vs_settled(struct vs *s, char *why, uint32_t size)
{
	int g;

	/* Nobody is left between the two whose path is cut. */
	if (s->pair[0] != s->pair[1] && !vs_relayed(s, s->pair[0], s->pair[1]))
		s->group[s->pair[s->pair[0] < s->pair[1]]] = 9;
	g = majority(s);
	for (uint16_t i = 0; i < s->nodes; i++) {
		const struct vs_node *n = &s->node[i];
		bool in = s->gone_at[i] == CORE_NEVER, here = vs_alive(s, i) && s->group[i] == g;

		if (n->life == VS_STOPPED) {
			snprintf(why, size, "node %u is stopped", i);
			return false;
		}
		if (in && g >= 0 && !here) {
			snprintf(why, size, "node %u is gone and not removed", i);
			return false;
		}
		if (!vs_alive(s, i))
			continue;
		/* of two with a witness both may stand still for ever */
		if (!(in && here) && !n->v->out && !(s->cfg.witness && n->v->alive == 2)) {
			snprintf(why, size, "node %u is not stopped", i);
			return false;
		}
		if (acting(s, i) != (in && here) || n->told_active != (in && here)) {
			snprintf(why, size, "node %u %s", i, in && here ? "does not act" : "acts");
			return false;
		}
		if (here && !in && !n->told_removed) {
			snprintf(why, size, "node %u does not know that it was removed", i);
			return false;
		}
		if (!here || !in)
			continue;
		if (n->view != s->views) {
			snprintf(why, size, "node %u has view %u of %u", i, n->view, s->views);
			return false;
		}
		if (!core_view_rest(n->v)) {
			snprintf(why, size, "node %u is not at rest", i);
			return false;
		}
		for (uint16_t k = 0; k < s->active; k++) {
			uint16_t inc, holder = core_view_node(n->v, k, &inc);

			if (holder != CORE_VIEW_NONE &&
				(inc != s->inc[k] || s->node[holder].index != k ||
					s->gone_at[holder] != CORE_NEVER)) {
				snprintf(why, size, "node %u: index %u is with node %u, incarnation %u",
					i, k, holder, inc);
				return false;
			}
			if (s->nodes > 32)
				k = (uint16_t)(k + 7);
		}
	}
	return true;
}
