/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Explicit acks: a peer whose daemon is late finds no more of them in a lane's receives than it posted for them, in
 * whatever order it serves its lanes.
 */
#include "core_rig.h"

#define ROUNDS 20

/* Half a window of the peer's frames on lane 1. */
static void half_a_window(struct rig *r)
{
	const struct core_lane *ln = &r->l.lane[1];

	for (unsigned int n = r->l.depth / 2; n--;)
		assert_int_equal(core_link_rx(&r->l, 1, ln->gen, r->l.rx, r->l.high, r->l.high + 64, r->now), CORE_RX_DELIVER);
}

/* In ROUNDS half windows, in no time; each: a frame of ours before each goes on lane 0 and tells the peer the same. */
static int acks(struct rig *r, bool each)
{
	int n = 0;

	for (int i = 0; i < ROUNDS; i++) {
		half_a_window(r);
		turn(r);
		n += got(r, CORE_ACT_ACK, 1) != NULL;
		if (each) {
			submit(r, 1);
			turn(r);
			assert_int_equal(sends(r, 0), 1);
		}
		complete(r, 0);
		complete(r, 1);
	}
	return n;
}

static void a_peer_that_takes_them_gets_one_for_half_a_window(void **state)
{
	(void)state;
	both_up(&rig);
	rig.l.depth = rig.l.depth_want = rig.l.cfg.depth; /* it does not grow on the way */
	acks(&rig, false);
	assert_int_equal(acks(&rig, false), ROUNDS);
}

static void a_peer_that_is_told_on_another_lane_earns_none(void **state)
{
	(void)state;
	both_up(&rig);
	rig.l.depth = rig.l.depth_want = rig.l.cfg.depth;
	acks(&rig, true);
	assert_int_equal(acks(&rig, true), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_takes_them_gets_one_for_half_a_window),
		cmocka_unit_test(a_peer_that_is_told_on_another_lane_earns_none),
	};

	return cmocka_run_group_tests_name("core_ack", tests, NULL, NULL);
}
