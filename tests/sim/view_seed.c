/* SPDX-License-Identifier: BSD-3-Clause */
/* One seed: a step, faults, and what must have come of it once they stop. */
#include "view_sim.h"

#include <stdio.h>
#include <string.h>

#define BOUND_NS (60 * SEC)

static void setup(struct vs *s)
{
	struct core_view_cfg cfg;
	uint32_t size = (uint32_t)vs_below(s, 100);
	uint16_t nodes;

	if (size < 60)
		nodes = (uint16_t)(2 + vs_below(s, 6));
	else if (size < 88)
		nodes = (uint16_t)(8 + vs_below(s, 17));
	else if (size < 97)
		nodes = (uint16_t)(25 + vs_below(s, 40));
	else
		nodes = (uint16_t)(65 + vs_below(s, VS_MAX - 64));
	core_view_cfg_default(&cfg);
	cfg.spares = vs_chance(s, 50) ? 0 : (uint16_t)vs_below(s, nodes > 8 ? 4 : (nodes + 1u) / 2);
	cfg.fanout = (uint8_t)(2 + vs_below(s, 4));
	cfg.watch = (uint8_t)(1 + vs_below(s, 3));
	cfg.witness = vs_chance(s, 25);
	cfg.witness &= !cfg.spares; /* as the daemon has it */
	core_view_cfg_timeout(&cfg, 200 * MS + vs_below(s, 1500 * MS));
	cfg.pair_ns = (2 + vs_below(s, 4)) * SEC;
	cfg.start_ns = 10 * SEC;
	cfg.hold_ns = 5 * SEC;
	cfg.linger_ns = 2 * SEC;
	if (vs_chance(s, 50)) /* so that much comes back before it is stopped */
		cfg.grace_ns += vs_below(s, 20 * SEC);
	s->calm = vs_chance(s, 10);
	s->late_look = 1 + vs_below(s, 20 * MS);
	s->delay = 100 * US + vs_below(s, vs_chance(s, 80) ? MS : 5 * MS);
	s->heal_at = 2 * SEC + vs_below(s, vs_chance(s, 50) ? 4 * SEC : 16 * SEC);
	s->impatient = !s->calm && vs_chance(s, 50);
	if (s->impatient) {
		s->late_odds = 10 + (uint32_t)vs_below(s, 50);
		s->late_max = (10 * MS) << vs_below(s, 6);
		/* Proposers get in each other's way, and call lost who is only late. */
		if (nodes < 3 || nodes > 9)
			nodes = (uint16_t)(3 + nodes % 7);
		if (cfg.spares >= nodes / 2)
			cfg.spares = (uint16_t)(nodes / 3);
		cfg.step_ns = MS / 10 + vs_below(s, vs_chance(s, 50) ? MS : 10 * MS);
		cfg.check_ns = 3 * MS + vs_below(s, 60 * MS);
		cfg.report_ns = 20 * MS + vs_below(s, 200 * MS);
		cfg.hop_ns = MS + vs_below(s, 15 * MS);
	}
	vs_new(s, &cfg, nodes);
	s->deaths_max = vs_chance(s, 80) ? (nodes - 1u) / 2 : nodes;
	if (!s->calm && vs_chance(s, 40)) {
		s->kill_in = 1 + (uint32_t)vs_below(s, 2 * nodes);
		s->kill_more = (uint32_t)vs_below(s, 3);
	}
	for (uint16_t i = 0; i < nodes; i++)
		vs_at(s, vs_below(s, 200 * MS), VS_EV_START, i);
	vs_fault_start(s);
	if (s->verbose)
		printf("%u nodes, %u spares, witness %d, lease %.1f s, timeout %.1f s, heals at %.1f s\n",
			nodes, cfg.spares, cfg.witness, (double)cfg.lease_ns / 1e9,
			(double)cfg.silent_ns / 1e9, (double)s->heal_at / 1e9);
}

/* The step ends, on some nodes long before others; all go on as members until it is over everywhere. */
static void ending(struct vs *s)
{
	for (uint16_t i = 0; i < s->nodes; i++)
		vs_at(s, s->now + vs_below(s, 20 * SEC), VS_EV_END, i);
	vs_until(s, s->now + 20 * SEC, NULL);
	vs_until(s, s->now + 2 * s->cfg.linger_ns + 20 * s->cfg.lease_ns, NULL);
	for (uint16_t i = 0; i < s->nodes; i++)
		if (!s->node[i].over)
			vs_fail(s, "node %u goes on after the end of the step", i);
}

bool vs_seed(struct vs *s, uint64_t seed)
{
	char why[200] = "";
	uint64_t sent, at;
	bool settled = false;

	s->seed = s->rng = seed;
	s->rng = vs_rand(s);
	s->checks = true;
	setup(s);
	vs_until(s, s->heal_at, NULL);
	vs_fault_end(s);
	while (!s->failed && !settled && s->now < s->heal_at + BOUND_NS) {
		vs_until(s, s->now + 250 * MS, NULL);
		settled = vs_settled(s, why, sizeof(why));
	}
	if (!s->failed && !settled)
		vs_fail(s, "not settled: %s", why);
	/* ... and stays so, quietly. */
	sent = s->msgs;
	at = s->now;
	if (!s->failed && s->pair[0] == s->pair[1]) {
		vs_until(s, s->now + 4 * s->cfg.beat_ns, NULL);
		if (!vs_settled(s, why, sizeof(why)) && !s->loss)
			vs_fail(s, "does not stay settled: %s", why);
		if (s->calm && s->msgs - sent > (uint64_t)s->nodes * 6 * ((s->now - at) / s->cfg.beat_ns))
			vs_fail(s, "%llu messages at rest", (unsigned long long)(s->msgs - sent));
	}
	if (s->calm && !s->failed)
		ending(s);
	vs_free(s);
	return !s->failed;
}
