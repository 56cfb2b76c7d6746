/* SPDX-License-Identifier: BSD-3-Clause */
/* What breaks, and how it heals. */
#include "sim.h"

enum {
	HEAL_CUT,
	HEAL_PORT,
	HEAL_SLOW,
};

static void later(struct sim *s, uint32_t what, int where, uint8_t lane, uint64_t most)
{
	sim_at(s, s->now + 1 * MS + sim_below(s, most),
		(struct sim_ev){ .type = SIM_EV_HEAL, .end = (int16_t)where, .lane = lane,
			.n = what });
}

/* A rail's state reaches the daemon of that node some time later, on each of its links. */
static void tell_rail(struct sim *s, int node, uint8_t lane, enum core_reason why)
{
	uint64_t t = s->now + sim_below(s, 100 * MS);

	for (int i = 0; i < s->ends; i++)
		if (s->end[i].node == node)
			sim_async_at(s, &s->end[i], t,
				(struct sim_async){ .type = SIM_AS_RAIL, .lane = lane,
					.reason = (uint8_t)why });
}

void sim_fault_start(struct sim *s)
{
	for (int n = 0; n < s->nodes; n++) {
		for (uint8_t r = 0; r < CORE_LANES; r++) {
			s->has[n][r] = r == CORE_LANE_TCP || (r < s->rails[n] && !sim_chance(s, 10));
			s->port[n][r] = s->has[n][r];
			if (s->has[n][r] && r < s->cfg.rails)
				tell_rail(s, n, r, CORE_R_NONE);
		}
	}
	if (s->cut_end >= 0)
		s->cut[s->cut_end][s->cut_lane] = 1;
	if (!s->calm || s->pauses)
		sim_at(s, sim_below(s, s->heal_at / 4), (struct sim_ev){ .type = SIM_EV_FAULT });
}

static void cut(struct sim *s, int end, uint8_t lane, uint64_t most)
{
	s->cut[end][lane]++;
	later(s, HEAL_CUT, end, lane, most);
}

static void port_down(struct sim *s, int node, uint8_t lane)
{
	bool noticed = sim_chance(s, 80);

	if (!s->port[node][lane])
		return;
	s->port[node][lane] = false;
	if (noticed)
		tell_rail(s, node, lane, sim_chance(s, 70) ? CORE_R_PORT : CORE_R_DEVICE);
	later(s, HEAL_PORT, node, lane, sim_chance(s, 50) ? 300 * MS : 5 * SEC);
}

static void stand_still(struct sim *s, int node)
{
	/* where nothing may die nobody stands still for as long as a peer is waited for */
	uint64_t most = !s->pauses ? 100 * MS : s->calm ? 2 * SEC : 4 * SEC;

	if (s->busy_until[node] <= s->now)
		s->busy_until[node] = s->now + sim_below(s, most);
}

void sim_fault(struct sim *s)
{
	struct sim_end *e = &s->end[sim_below(s, (uint64_t)s->ends)];
	uint8_t rail = (uint8_t)sim_below(s, s->cfg.rails ? s->cfg.rails : 1);
	uint64_t most = sim_chance(s, 50) ? 100 * MS : 4 * SEC;
	unsigned int what = (unsigned int)sim_below(s, s->restarts ? 14 : 13);

	if (s->now >= s->heal_at)
		return;
	if (s->slow && sim_chance(s, 50)) /* what was received is taken after the lane has died */
		what = 5;
	/* as often to each pair, however many there are */
	sim_at(s, s->now + sim_below(s, s->heal_at / 4 / (uint64_t)(1 + (s->pairs - 1) / SIM_FEW_PAIRS)),
		(struct sim_ev){ .type = SIM_EV_FAULT });
	if (s->calm)
		what = 12;
	sim_trace(s, e, "fault %u, rail %d", what, rail);
	switch (what) {
	case 0: /* silence in one direction */
	case 1:
		cut(s, e->id, rail, most);
		break;
	case 2:
		cut(s, e->id, rail, most);
		cut(s, e->id ^ 1, rail, most);
		break;
	case 3:
	case 4:
		port_down(s, e->node, rail);
		break;
	case 5:
		sim_qp_break(s, e, rail, CORE_R_COMPLETION, sim_below(s, MS));
		break;
	case 6:
		sim_qp_break(s, e, rail, CORE_R_REQUEST, 0);
		break;
	case 7: /* connection reset, seen here, there, or at both */
		sim_qp_break(s, e, CORE_LANE_TCP, CORE_R_SOCKET, sim_below(s, MS));
		if (sim_chance(s, 50))
			sim_qp_break(s, &s->end[e->id ^ 1], CORE_LANE_TCP, CORE_R_SOCKET,
				sim_below(s, MS));
		break;
	case 8:
		cut(s, e->id, CORE_LANE_TCP, most);
		if (sim_chance(s, 50))
			cut(s, e->id ^ 1, CORE_LANE_TCP, most);
		break;
	case 9: /* a switch: one rail of everyone */
		for (int i = 0; i < s->ends; i++)
			cut(s, i, rail, most);
		break;
	case 10:
		s->delay_max[rail] = 20 * MS;
		later(s, HEAL_SLOW, 0, rail, most);
		break;
	case 11: /* devices were replaced: where probes went there is nobody */
		s->probe_loss = 100;
		break;
	case 13:
		sim_restart(s, e->node);
		break;
	default:
		stand_still(s, e->node);
		break;
	}
}

void sim_fault_heal(struct sim *s, const struct sim_ev *ev)
{
	switch (ev->n) {
	case HEAL_CUT:
		if (s->cut[ev->end][ev->lane])
			s->cut[ev->end][ev->lane]--;
		break;
	case HEAL_PORT:
		if (s->port[ev->end][ev->lane])
			break;
		s->port[ev->end][ev->lane] = true;
		tell_rail(s, ev->end, ev->lane, CORE_R_NONE);
		break;
	default:
		s->delay_max[ev->lane] = 30 * US;
		break;
	}
}

/* Everything works again, but for what is cut for ever. */
void sim_fault_end(struct sim *s)
{
	s->lossy = s->lossy && s->calm; /* a lane that was lost to it just before the end is not back yet */
	for (int i = 0; i < s->ends; i++)
		for (uint8_t r = 0; r < CORE_LANES; r++)
			s->cut[i][r] = i == s->cut_end && r == s->cut_lane;
	for (int n = 0; n < s->nodes; n++)
		for (uint8_t r = 0; r < s->cfg.rails; r++)
			if (s->has[n][r] && !s->port[n][r]) {
				s->port[n][r] = true;
				tell_rail(s, n, r, CORE_R_NONE);
			}
}
