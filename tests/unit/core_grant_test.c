/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership: what a lease is worth that comes down a deep tree, or late. Node 0 beats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/view.h"

#define MS 1000000ull

static struct core_view_cfg cfg;
static struct core_view *view;
static uint64_t now;

static int begin(void **state)
{
	(void)state;
	core_view_cfg_default(&cfg);
	cfg.nodes = 5;
	cfg.self = 1;
	now = 100000 * MS;
	view = core_view_init(malloc(core_view_size(&cfg)), &cfg, now);
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(view);
	return 0;
}

static struct core_view_msg beat(uint8_t type, uint16_t src, uint16_t lo, uint16_t hi, uint64_t ballot)
{
	return (struct core_view_msg){ .type = type, .phase = CORE_VIEW_BEAT, .src = src, .dst = cfg.self, .lo = lo,
		.hi = hi, .ballot = ballot, .count = 1, .flags = CORE_VIEW_F_DONE, .via = CORE_VIEW_NONE };
}

/* What comes in, and the last message of a type that goes out then. */
static bool say(const struct core_view_msg *m, uint8_t type, struct core_view_msg *out)
{
	struct core_view_act a;
	bool found = false;

	core_view_rx(view, m, now);
	while (core_view_poll(view, now, &a))
		if (a.type == CORE_VIEW_ACT_SEND && a.msg.type == type) {
			*out = a.msg;
			found = true;
		}
	return found;
}

static void grant(uint64_t ballot, uint64_t stamp, uint64_t lag)
{
	struct core_view_msg m = beat(CORE_VIEW_GRANT, 0, 0, 0, ballot), out;

	m.stamp = stamp;
	m.acc = lag;
	say(&m, CORE_VIEW_GRANT, &out);
}

static void the_way_down_does_not_age_a_lease(void **state)
{
	struct core_view_msg m = beat(CORE_VIEW_WAVE, 0, 1, 3, 7), out;
	uint64_t stamp;

	(void)state;
	assert_true(say(&m, CORE_VIEW_WAVE, &out));
	assert_int_equal(out.dst, 2);
	now += 10 * MS;
	m = beat(CORE_VIEW_TALLY, 2, 2, 3, 7);
	m.stamp = 777;
	assert_true(say(&m, CORE_VIEW_TALLY, &out));
	stamp = out.stamp;
	now += 200 * MS;
	m = beat(CORE_VIEW_GRANT, 0, 0, 0, 7);
	m.stamp = stamp;
	m.acc = 30 * MS;
	assert_true(say(&m, CORE_VIEW_GRANT, &out));
	assert_int_equal(out.dst, 2);
	assert_int_equal(out.stamp, 777);
	assert_int_equal(out.acc, 30 * MS);
}

static void a_grant_of_the_beat_before_is_taken(void **state)
{
	struct core_view_msg m = beat(CORE_VIEW_WAVE, 0, 1, 2, 7), out;

	(void)state;
	assert_true(say(&m, CORE_VIEW_TALLY, &out));
	now += 10 * MS;
	m = beat(CORE_VIEW_WAVE, 0, 1, 2, 8);
	assert_true(say(&m, CORE_VIEW_TALLY, &m));
	grant(9, out.stamp, 0);
	assert_false(core_view_acting(view, now));
	grant(7, out.stamp, 0);
	assert_true(core_view_acting(view, now));
	assert_false(core_view_acting(view, now - 10 * MS + cfg.lease_ns));
}

static void a_node_does_not_begin_to_act_for_what_is_left_of_a_lease(void **state)
{
	struct core_view_msg m = beat(CORE_VIEW_WAVE, 0, 1, 2, 7), out;

	(void)state;
	assert_true(say(&m, CORE_VIEW_TALLY, &out));
	grant(7, out.stamp, cfg.lease_ns - cfg.beat_ns);
	assert_false(core_view_acting(view, now));
	grant(7, out.stamp, cfg.lease_ns - cfg.beat_ns - MS);
	assert_true(core_view_acting(view, now));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_way_down_does_not_age_a_lease, begin, end),
		cmocka_unit_test_setup_teardown(a_grant_of_the_beat_before_is_taken, begin, end),
		cmocka_unit_test_setup_teardown(a_node_does_not_begin_to_act_for_what_is_left_of_a_lease, begin, end),
	};

	return cmocka_run_group_tests_name("core_grant", tests, NULL, NULL);
}
