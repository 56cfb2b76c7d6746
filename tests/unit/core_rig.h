/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of a link whose lanes, peer and clock are the test's. */
#ifndef TESTS_UNIT_CORE_RIG_H
#define TESTS_UNIT_CORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/link.h"

#define MS  1000000ull
#define ALL 0xffu
#define TCP CORE_LANE_TCP

struct rig {
	struct core_link l;
	uint64_t now;
	uint32_t can;
	struct core_act act[512];
	int n;
};

static struct rig rig;

static inline void turn(struct rig *r)
{
	r->n = 0;
	while (r->n < 512 &&
		core_link_poll(&r->l, r->can, r->now, &r->act[r->n]) != CORE_ACT_NONE)
		r->n++;
	assert_in_range(r->n, 0, 511);
}

static inline const struct core_act *got(const struct rig *r, enum core_act_type t, int lane)
{
	for (int i = 0; i < r->n; i++)
		if (r->act[i].type == t && (lane < 0 || r->act[i].lane == lane))
			return &r->act[i];
	return NULL;
}

static inline const struct core_act *said(const struct rig *r, enum core_ctrl_type t, int lane)
{
	for (int i = 0; i < r->n; i++)
		if (r->act[i].type == CORE_ACT_CTRL && r->act[i].ctrl.type == t &&
			(lane < 0 || r->act[i].ctrl.lane == lane))
			return &r->act[i];
	return NULL;
}

static inline int sends(const struct rig *r, int lane)
{
	int n = 0;

	for (int i = 0; i < r->n; i++)
		n += r->act[i].type == CORE_ACT_SEND && r->act[i].lane == lane;
	return n;
}

/* Everything outstanding on the lane completes. */
static inline void complete(struct rig *r, uint8_t lane)
{
	while (r->l.lane[lane].posts) {
		uint64_t seq = CORE_NEVER;

		for (uint64_t s = r->l.tail; s < r->l.next; s++)
			if (r->l.posted[s % CORE_SLOTS] & (1u << lane)) {
				seq = s;
				break;
			}
		core_link_completed(&r->l, lane, r->l.lane[lane].gen, seq, r->now);
	}
}

static inline void ctrl(struct rig *r, uint8_t on, enum core_ctrl_type t, uint8_t lane, uint32_t gen,
	uint64_t count, uint64_t token)
{
	struct core_ctrl c = { .type = (uint8_t)t, .lane = lane, .gen = gen, .count = count,
		.token = token };

	core_link_rx_ctrl(&r->l, on, r->l.lane[on].gen, &c, r->now);
}

static inline void start(struct rig *r, uint16_t self, uint16_t peer)
{
	struct core_cfg cfg;

	memset(r, 0, sizeof(*r));
	r->can = ALL;
	r->now = 1000 * MS;
	core_cfg_default(&cfg);
	cfg.self = self;
	cfg.peer = peer;
	core_link_init(&r->l, &cfg, r->now);
	core_link_want(&r->l, r->now);
	turn(r);
}

static inline void tcp_up(struct rig *r)
{
	core_link_lane_up(&r->l, TCP, r->l.lane[TCP].gen + 1, r->now);
	core_link_rx_ack(&r->l, TCP, r->l.lane[TCP].gen, 0, 64, r->now);
	turn(r);
	complete(r, TCP);
}

/* The initiator's lane goes the whole way. */
static inline void rail_up(struct rig *r, uint8_t lane)
{
	uint8_t blob[CORE_BLOB] = { 7 };
	uint32_t gen;

	core_link_rail(&r->l, lane, true, CORE_R_NONE, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, lane));
	gen = r->l.lane[lane].gen;
	core_link_opened(&r->l, lane, gen, blob, r->now);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_OPEN_REQ, lane));
	ctrl(r, TCP, CORE_CTRL_OPEN_ACK, lane, gen, r->l.acked, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_CONNECT, lane));
	core_link_connected(&r->l, lane, gen, r->now);
	turn(r);
	assert_int_equal(r->l.lane[lane].state, CORE_LANE_UP);
	complete(r, lane);
	complete(r, TCP);
}

static inline void submit(struct rig *r, int n)
{
	while (n--) {
		assert_true(core_link_room(&r->l) > 0);
		core_link_submit(&r->l, r->now);
	}
}

static inline void both_up(struct rig *r)
{
	start(r, 0, 1);
	tcp_up(r);
	rail_up(r, 0);
	rail_up(r, 1);
	turn(r);
	assert_int_equal(r->l.active, 0);
}

#endif
