/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Daemons that die and come back as another one, which knows nothing: their queue pairs are destroyed at once,
 * their connections are reset or stay half open at the peer, and sessions begin anew at both ends.
 */
#include "sim.h"

/* What was outstanding has ended: it may have run or not, and does not run any more. */
static void begin_anew(struct sim *s, struct sim_end *e)
{
	for (uint32_t id = 0; id < e->rma_made; id++) {
		if (e->rma_state[id] == SIM_RMA_NONE || e->rma_state[id] == SIM_RMA_ENDED)
			continue;
		e->rma_state[id] = SIM_RMA_ENDED;
		e->rma_doubt[id] = true;
		e->rma_ended++;
	}
	core_rma_init(&e->rma);
	e->rma_wait_n = 0;
	e->epoch++;
	e->as_n = 0;
	e->trying = false;
	e->submitted = e->delivered = 0;
	e->goal = sim_below(s, 300);
	e->app_at = s->now;
	e->app_gap = s->heal_at * e->app_burst / (e->goal + 1) / 2 + 1;
	e->last_lane = CORE_LANE_NONE;
	e->deaths = e->failovers = 0;
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		e->up_gen[i] = 0;
		if (i != CORE_LANE_TCP)
			e->qp[i].gen = 0;
	}
	e->run_at = CORE_NEVER;
}

/* Each rail's state is told at the daemon's start. */
static void start(struct sim *s, struct sim_end *e, uint64_t t)
{
	sim_async_at(s, e, t, (struct sim_async){ .type = SIM_AS_WANT });
	for (uint8_t r = 0; r < s->rails[e->node]; r++)
		if (s->has[e->node][r])
			sim_async_at(s, e, t, (struct sim_async){ .type = SIM_AS_RAIL, .lane = r });
}

void sim_restart(struct sim *s, int node)
{
	uint64_t up = s->now + sim_below(s, sim_chance(s, 50) ? 20 * MS : 3 * SEC);

	if (s->now < s->down_until[node])
		return;
	s->restarted++;
	s->down_until[node] = up;
	s->inc[node] = ++s->incs;
	for (int i = 0; i < s->ends; i++) {
		struct sim_end *e = &s->end[i];
		struct core_cfg cfg = e->link.cfg;

		if (e->node != node)
			continue;
		sim_trace(s, e, "the daemon dies, and is back at %.6f", (double)up / 1e9);
		begin_anew(s, e);
		sim_key_anew(s, e, true);
		e->told_unreachable = false;
		for (uint8_t r = 0; r < CORE_LANES; r++)
			e->qp[r].state = SIM_QP_NONE;
		e->qp[CORE_LANE_TCP].gen = e->qp[CORE_LANE_TCP].uid = 0;
		core_link_init(&e->link, &cfg, s->now);
		if (sim_chance(s, 50)) /* else the machine was gone, and says nothing */
			sim_qp_break(s, &s->end[e->id ^ 1], CORE_LANE_TCP, CORE_R_SOCKET, sim_below(s, MS));
		start(s, e, up + sim_below(s, 10 * MS));
	}
}

void sim_restarted(struct sim *s, struct sim_end *e)
{
	for (uint8_t r = 0; r < CORE_LANE_TCP; r++)
		if (e->qp[r].state != SIM_QP_NONE)
			sim_fail(s, "end %d lane %d: the session begins anew beside a queue pair of the former", e->id,
				r);
	sim_trace(s, e, "begins anew");
	begin_anew(s, e);
	sim_key_anew(s, e, false);
	/* what was to be told of this node meanwhile */
	for (uint8_t r = 0; r < s->rails[e->node]; r++)
		if (s->has[e->node][r])
			sim_async_at(s, e, s->now, (struct sim_async){ .type = SIM_AS_RAIL, .lane = r });
}
