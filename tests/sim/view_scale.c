/* SPDX-License-Identifier: BSD-3-Clause */
/* One node loss among thousands: time to the last survivor's knowledge, messages, bytes of state. */
#include "view_sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN_GOAL (2 * SEC)

static uint64_t all_know(const struct vs *s, uint16_t lost)
{
	uint64_t last = 0;

	for (uint16_t i = 0; i < s->nodes; i++) {
		if (i == lost)
			continue;
		if (!s->node[i].v || core_view_number(s->node[i].v) < 1)
			return CORE_NEVER;
		if (s->node[i].known_at > last)
			last = s->node[i].known_at;
	}
	return last;
}

static bool one(uint16_t nodes, uint16_t lost, enum vs_life how)
{
	static struct vs s;
	struct core_view_cfg cfg;
	uint64_t died, known = CORE_NEVER, base, most = 0, idle, *sent;
	const double goal = 3 * log2(nodes);
	uint16_t who = 0;
	bool ok;

	memset(&s, 0, sizeof(s));
	s.rng = nodes + lost;
	core_view_cfg_default(&cfg);
	cfg.spares = 1;
	s.late_look = 20 * MS;
	s.delay = 200 * US;
	vs_new(&s, &cfg, nodes);
	for (uint16_t i = 0; i < nodes; i++)
		vs_at(&s, vs_below(&s, 20 * MS), VS_EV_START, i);
	vs_until(&s, 3 * SEC, NULL);
	for (uint16_t i = 0; i < nodes; i++)
		if (!core_view_acting(s.node[i].v, vs_local(&s, i))) {
			printf("node %u does not act at the start\n", i);
			return false;
		}
	idle = s.msgs;
	vs_until(&s, s.now + 4 * cfg.beat_ns + 130 * MS, NULL);
	idle = (s.msgs - idle) / 4;
	sent = calloc(nodes, sizeof(*sent));
	for (uint16_t i = 0; i < nodes; i++)
		sent[i] = s.node[i].sent - s.node[i].beats;
	died = s.now;
	base = s.msgs - s.beats;
	s.node[lost].life = how;
	while (known == CORE_NEVER && s.now < died + 60 * SEC) {
		vs_until(&s, s.now + 1 * MS, NULL);
		known = all_know(&s, lost);
	}
	base = s.msgs - s.beats - base;
	for (uint16_t i = 0; i < nodes; i++) {
		uint64_t n = s.node[i].sent - s.node[i].beats - sent[i];

		if (n > most) {
			most = n;
			who = i;
		}
	}
	ok = known != CORE_NEVER && known - died < KNOWN_GOAL && (double)most <= goal;
	printf("%6u  %5u %-7s %8zu  %9.3f s  %9llu  %6llu (node %u)  %7llu  %s\n", nodes, lost,
		how == VS_DAEMON ? "daemon" : "power", core_view_size(&s.cfg),
		known == CORE_NEVER ? -1 : (double)(known - died) / 1e9, (unsigned long long)base,
		(unsigned long long)most, who, (unsigned long long)idle,
		ok && !s.failed ? "ok" : "MISSED");
	if (s.failed)
		printf("%s\n", s.why);
	free(sent);
	vs_free(&s);
	return ok && !s.failed;
}

bool vs_scale(uint16_t nodes)
{
	bool ok = true;

	ok &= one(nodes, (uint16_t)(nodes / 3), VS_DAEMON);
	ok &= one(nodes, (uint16_t)(nodes / 3), VS_POWER);
	ok &= one(nodes, 0, VS_DAEMON);
	ok &= one(nodes, 0, VS_POWER);
	ok &= one(nodes, 1, VS_POWER);
	return ok;
}
