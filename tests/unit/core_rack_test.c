/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership when many nodes beside each other are lost at once: how a wave and how its neighbours look through them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/view.h"

#define MS    1000000ull
#define SEC   (1000 * MS)
#define NODES 200u
#define SELF  100u

static struct core_view_cfg cfg;
static struct core_view *view;
static uint64_t now;
static bool dead[NODES];

static void start(uint16_t nodes, uint16_t self)
{
	core_view_cfg_default(&cfg);
	cfg.nodes = nodes;
	cfg.self = self;
	cfg.start_ns = 0;
	cfg.grace_ns = 1000 * SEC;
	now = 100 * SEC;
	memset(dead, 0, sizeof(dead));
	free(view);
	view = core_view_init(malloc(core_view_size(&cfg)), &cfg, now);
}

static int end(void **state)
{
	(void)state;
	free(view);
	view = NULL;
	return 0;
}

static void all_of_a_dead_rack_is_asked_within_one_beat(void **state)
{
	bool asked[33] = { false };
	struct core_view_act a;

	(void)state;
	start(33, 0);
	for (uint64_t until = now + cfg.beat_ns; now < until; now += MS)
		while (core_view_poll(view, now, &a))
			if (a.type == CORE_VIEW_ACT_SEND && a.msg.type == CORE_VIEW_WAVE)
				asked[a.node] = true;
	for (uint16_t i = 1; i < 33; i++)
		assert_true(asked[i]);
}

/* Nodes 2 and 3 share a range: 3 was removed, 2 is dead. Node 4 answers. */
static void a_range_of_the_dead_is_answered_for(void **state)
{
	struct core_view_msg m = { .type = CORE_VIEW_LOG, .src = 0, .dst = 1, .view = 1, .n = 1,
		.set = { 3 | CORE_VIEW_END }, .via = CORE_VIEW_NONE };
	struct core_view_act a;
	bool whole = false;

	(void)state;
	start(33, 1);
	cfg.fanout = 2;
	view = core_view_init(view, &cfg, now);
	core_view_rx(view, &m, now);
	m = (struct core_view_msg){ .type = CORE_VIEW_WAVE, .phase = CORE_VIEW_BEAT, .dst = 1, .lo = 1, .hi = 5,
		.ballot = 1, .view = 1, .known = 1, .via = CORE_VIEW_NONE };
	core_view_rx(view, &m, now);
	m = (struct core_view_msg){ .type = CORE_VIEW_TALLY, .phase = CORE_VIEW_BEAT, .src = 4, .dst = 1, .lo = 4, .hi = 5,
		.ballot = 1, .view = 1, .known = 1, .count = 1, .flags = CORE_VIEW_F_DONE, .via = CORE_VIEW_NONE };
	core_view_rx(view, &m, now);
	for (uint64_t until = now + cfg.beat_ns; now < until; now += MS)
		while (core_view_poll(view, now, &a))
			whole |= a.type == CORE_VIEW_ACT_SEND && a.msg.type == CORE_VIEW_TALLY && a.msg.lo == 1 &&
				 a.msg.hi == 5 && a.msg.count == 2 && a.msg.flags & CORE_VIEW_F_DONE;
	assert_true(whole);
}

static uint16_t suspected(void)
{
	uint16_t n = 0;

	for (uint16_t i = 0; i < NODES; i++)
		n += core_view_suspected(view, i);
	return n;
}

/* So many times the span after which one that was never heard is suspected. */
static void watch(unsigned int spans)
{
	struct core_view_act a;

	for (uint64_t until = now + spans * (2 * cfg.silent_ns + cfg.silent_ns / 4); now < until;
		now += cfg.silent_ns / 16) {
		bool look = core_view_look(view, now);

		for (uint16_t i = 0; look && i < NODES; i++) {
			struct core_view_contact c = { .heard_at = dead[i] ? 0 : now, .every_ns = cfg.silent_ns / 4 };

			if (i != SELF)
				core_view_contact(view, i, &c, now);
		}
		while (core_view_poll(view, now, &a))
			;
	}
}

static void remove_two(uint16_t first)
{
	struct core_view_msg m = { .type = CORE_VIEW_LOG, .src = 0, .dst = SELF, .view = 1, .n = 2,
		.set = { first, (uint16_t)(first + 1) | CORE_VIEW_END }, .via = CORE_VIEW_NONE };

	core_view_rx(view, &m, now);
	assert_int_equal(core_view_number(view), 1);
}

static void rack(void)
{
	start(NODES, SELF);
	for (uint16_t i = SELF + 1; i < SELF + 60; i++)
		dead[i] = true;
}

static void a_neighbour_looks_through_a_rack_in_strides_that_double(void **state)
{
	(void)state;
	rack();
	watch(1);
	assert_int_equal(suspected(), 2);
	watch(1);
	assert_int_equal(suspected(), 8);
	watch(1);
	assert_int_equal(suspected(), 26);
	watch(1);
	assert_int_equal(suspected(), CORE_VIEW_NEAR / 2);
}

static void who_is_looked_at_stays_so_when_those_before_it_are_removed(void **state)
{
	(void)state;
	rack();
	watch(1);
	remove_two(SELF + 1);
	assert_int_equal(suspected(), 0);
	watch(1);
	assert_int_equal(suspected(), 6);
}

static void who_lives_is_not_watched_for_long(void **state)
{
	uint16_t out[CORE_VIEW_NEAR];

	(void)state;
	start(NODES, SELF);
	dead[SELF + 1] = true;
	watch(1);
	assert_int_equal(suspected(), 1);
	assert_int_equal(core_view_watched(view, out), 7);
	dead[SELF + 1] = false;
	watch(1);
	assert_int_equal(suspected(), 0);
	assert_int_equal(core_view_watched(view, out), 4);
	assert_int_equal(core_view_pace(view, SELF + 3), CORE_NEVER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_of_a_dead_rack_is_asked_within_one_beat),
		cmocka_unit_test(a_range_of_the_dead_is_answered_for),
		cmocka_unit_test(a_neighbour_looks_through_a_rack_in_strides_that_double),
		cmocka_unit_test(who_is_looked_at_stays_so_when_those_before_it_are_removed),
		cmocka_unit_test(who_lives_is_not_watched_for_long),
	};

	return cmocka_run_group_tests_name("core_rack", tests, NULL, end);
}
