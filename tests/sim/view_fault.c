/* SPDX-License-Identifier: BSD-3-Clause */
/* What breaks, and how it heals. */
#include "view_sim.h"

#include <string.h>

enum { HEAL_STOP, HEAL_GROUPS, HEAL_PART, HEAL_CUT, HEAL_LOSS, HEAL_SLOW };

static struct vs_ev *later(struct vs *s, uint8_t what, uint16_t node, uint64_t most)
{
	struct vs_ev *ev = vs_at(s, s->now + 1 * MS + vs_below(s, most), VS_EV_HEAL, node);

	ev->what = what;
	return ev;
}

void vs_kill(struct vs *s, uint16_t node)
{
	s->deaths++;
	s->node[node].life = vs_chance(s, 50) ? VS_DAEMON : VS_POWER;
	vs_trace(s, node, "dies: %s", s->node[node].life == VS_DAEMON ? "daemon" : "power");
}

/* As many beside each other as may die. */
static void rack(struct vs *s, uint16_t node)
{
	for (uint64_t k = 2 + vs_below(s, s->nodes / 2u); k-- && s->deaths < s->deaths_max;
		node = (uint16_t)((node + 1) % s->nodes))
		if (s->node[node].life <= VS_STOPPED)
			vs_kill(s, node);
}

void vs_fault_start(struct vs *s)
{
	if (!s->calm)
		vs_at(s, 500 * MS + vs_below(s, s->heal_at / 2), VS_EV_FAULT, 0);
}

static void partition(struct vs *s)
{
	uint32_t groups = 2 + (uint32_t)vs_below(s, vs_chance(s, 20) ? 2 : 1);
	uint16_t a = (uint16_t)vs_below(s, s->nodes), b = (uint16_t)vs_below(s, s->nodes);
	unsigned int how = (unsigned int)vs_below(s, 3);

	for (uint16_t i = 0; i < s->nodes; i++) {
		if (how == 0)
			s->group[i] = (uint8_t)vs_below(s, groups);
		else if (how == 1) /* neighbours */
			s->group[i] = a <= b ? i >= a && i <= b : i >= a || i <= b;
		else
			s->group[i] = i == a;
	}
	vs_trace(s, a, "partition, kind %u", how);
}

/* A node, or a few beside each other, reach only some: neighbours, spares, or any. */
static void partial(struct vs *s)
{
	const uint16_t n = s->nodes, first = (uint16_t)vs_below(s, n);
	const uint16_t few = (uint16_t)(1 + vs_below(s, vs_chance(s, 70) ? 1 : n / 2u));
	const unsigned int how = (unsigned int)vs_below(s, 4), odds = 1 + (unsigned int)vs_below(s, 60);

	for (uint16_t a = 0; a < n; a++)
		for (uint16_t b = 0; b < n; b++) {
			uint16_t in = (uint16_t)((a + n - first) % n), off = (uint16_t)((b + n - a) % n);
			bool keeps = (how < 2 && (off <= s->cfg.watch || n - off <= s->cfg.watch)) ||
				     (how > 0 && how < 3 && b >= s->active) || (how == 3 && vs_chance(s, odds));

			/* those within go on reaching each other */
			if (in < few && (uint16_t)((b + n - first) % n) >= few && !keeps)
				s->part[(uint32_t)a * n + b] = s->part[(uint32_t)b * n + a] = 1;
		}
	vs_trace(s, first, "and %u after it reach some, kind %u", few - 1, how);
}

static void cut(struct vs *s, uint16_t a, uint16_t b, uint64_t most)
{
	s->cut[(uint32_t)a * s->nodes + b] = 1;
	if (most)
		later(s, HEAL_CUT, a, most)->arg = b;
	vs_trace(s, a, "cut to %u", b);
}

void vs_fault_cut(struct vs *s, uint16_t a, uint16_t b, uint64_t most)
{
	cut(s, a, b, most);
	cut(s, b, a, most);
}

void vs_fault(struct vs *s)
{
	uint16_t a = (uint16_t)vs_below(s, s->nodes), b = (uint16_t)vs_below(s, s->nodes);
	uint64_t most = vs_chance(s, 50) ? 300 * MS : 8 * SEC;

	if (s->now >= s->heal_at)
		return;
	vs_at(s, s->now + vs_below(s, s->heal_at / 3), VS_EV_FAULT, 0);
	if (vs_chance(s, 30)) /* the one that proposes, or would */
		for (a = 0; a + 1 < s->nodes && !vs_alive(s, a);)
			a++;
	switch (vs_below(s, 13)) {
	case 0:
		if (vs_chance(s, 20)) {
			rack(s, a);
			break;
		}
		/* fall through */
	case 1:
	case 2:
		for (uint32_t k = 1 + (uint32_t)vs_below(s, vs_chance(s, 30) ? 4 : 1); k--;) {
			if (s->node[a].life <= VS_STOPPED && s->deaths < s->deaths_max)
				vs_kill(s, a);
			a = vs_chance(s, 50) ? (uint16_t)((a + 1) % s->nodes) :
					       (uint16_t)vs_below(s, s->nodes);
		}
		break;
	case 3:
	case 4:
		if (vs_alive(s, a) && s->node[a].started) {
			s->node[a].life = VS_STOPPED;
			vs_trace(s, a, "stopped");
			later(s, HEAL_STOP, a, most);
		}
		break;
	case 5:
	case 6:
		partition(s);
		later(s, HEAL_GROUPS, 0, most);
		break;
	case 11:
	case 12:
		partial(s);
		later(s, HEAL_PART, 0, most);
		break;
	case 7:
		if (a != b) {
			cut(s, a, b, most);
			cut(s, b, a, most);
		}
		break;
	case 8:
		if (a != b)
			cut(s, a, b, most);
		break;
	case 9:
		s->loss = (uint32_t)vs_below(s, 25);
		s->dup = (uint32_t)vs_below(s, 15);
		s->delay_max = vs_below(s, 60 * MS);
		later(s, HEAL_LOSS, 0, most);
		break;
	default:
		s->node[a].slow = vs_below(s, 200 * MS);
		later(s, HEAL_SLOW, a, most);
		break;
	}
}

void vs_fault_heal(struct vs *s, const struct vs_ev *ev)
{
	if (s->now >= s->heal_at && ev->what != HEAL_STOP)
		return; /* what stands at the end stands for ever */
	if (s->now >= s->heal_at)
		s->healed_at = s->now;
	switch (ev->what) {
	case HEAL_STOP:
		if (s->node[ev->node].life == VS_STOPPED) {
			vs_trace(s, ev->node, "continues");
			vs_continue(s, ev->node);
		}
		break;
	case HEAL_GROUPS:
		memset(s->group, 0, s->nodes);
		break;
	case HEAL_PART:
		memset(s->part, 0, (size_t)s->nodes * s->nodes);
		break;
	case HEAL_CUT:
		s->cut[(uint32_t)ev->node * s->nodes + ev->arg] = 0;
		break;
	case HEAL_LOSS:
		s->loss = s->dup = 0;
		s->delay_max = 0;
		break;
	default:
		s->node[ev->node].slow = 0;
		break;
	}
}

/* Is there a member that reaches both? */
bool vs_relayed(const struct vs *s, uint16_t a, uint16_t b)
{
	for (uint16_t i = 0; i < s->nodes; i++)
		if (i != a && i != b && s->node[i].life <= VS_STOPPED && s->gone_at[i] == CORE_NEVER)
			return true;
	return false;
}

/* Faults end; in some seeds a partition or one pair stays cut. */
void vs_fault_end(struct vs *s)
{
	uint16_t a = (uint16_t)vs_below(s, s->nodes), b = (uint16_t)vs_below(s, s->nodes);

	s->kill_in = 0;
	s->loss = s->calm ? 0 : (uint32_t)vs_below(s, 3);
	s->dup = 0;
	s->delay_max = 0;
	s->healed_at = s->now;
	memset(s->cut, 0, (size_t)s->nodes * s->nodes);
	memset(s->part, 0, (size_t)s->nodes * s->nodes);
	for (uint16_t i = 0; i < s->nodes; i++)
		s->node[i].slow = 0;
	if (s->calm)
		return;
	memset(s->group, 0, s->nodes);
	if (vs_chance(s, 20)) {
		partition(s);
	} else if (vs_chance(s, 20) && a != b && vs_relayed(s, a, b)) {
		s->pair[0] = a;
		s->pair[1] = b;
		cut(s, a, b, 0);
		if (vs_chance(s, 70))
			cut(s, b, a, 0);
	}
	for (uint16_t i = 0; i < s->nodes && !s->failed; i++) {
		if (s->node[i].life == VS_STOPPED) {
			if (vs_chance(s, 80))
				vs_continue(s, i);
			else
				later(s, HEAL_STOP, i, 10 * SEC);
		}
	}
}
