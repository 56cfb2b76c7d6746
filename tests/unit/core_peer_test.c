/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers with other rails, peers that were started anew, and peers that stand still. */
#include "core_rig.h"

/* Lane 0 is being opened, and the peer refuses. */
static void refuse(struct rig *r, enum core_reason why)
{
	uint8_t blob[CORE_BLOB] = {0};
	struct core_ctrl nak = {.type = CORE_CTRL_OPEN_NAK, .lane = 0, .reason = (uint8_t)why};

	start(r, 0, 1);
	tcp_up(r);
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	turn(r);
	nak.gen = r->l.lane[0].gen;
	core_link_opened(&r->l, 0, nak.gen, blob, r->now);
	turn(r);
	core_link_rx_ctrl(&r->l, TCP, r->l.lane[TCP].gen, &nak, r->now);
	turn(r);
	core_link_fenced(&r->l, 0, nak.gen, r->now);
	turn(r);
}

/* How often lane 0 is opened within a minute; the TCP lane is well. */
static int openings(struct rig *r)
{
	int n = 0;

	for (int i = 0; i < 600; i++) {
		complete(r, TCP);
		r->now += 100 * MS;
		turn(r);
		if (!got(r, CORE_ACT_OPEN, 0))
			continue;
		n++;
		core_link_lane_error(&r->l, 0, r->l.lane[0].gen, CORE_R_SETUP, r->now);
		core_link_fenced(&r->l, 0, r->l.lane[0].gen, r->now);
	}
	return n;
}

static void a_rail_that_the_peer_lacks_is_asked_for_once(void **state)
{
	struct rig *r = &rig;

	(void)state;
	refuse(r, CORE_R_PORT);
	assert_true(openings(r) > 1);
	refuse(r, CORE_R_ABSENT);
	assert_int_equal(openings(r), 0);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_DOWN);
	/* until it says otherwise */
	ctrl(r, TCP, CORE_CTRL_WANT, 0, 0, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
}

static void a_rail_of_the_peer_alone_is_refused_as_absent(void **state)
{
	struct rig *r = &rig;
	const struct core_act *nak;

	(void)state;
	start(r, 1, 0);
	tcp_up(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 3, 1, 0, 0); /* there are two rails here */
	turn(r);
	nak = said(r, CORE_CTRL_OPEN_NAK, 3);
	assert_non_null(nak);
	assert_int_equal(nak->ctrl.reason, CORE_R_ABSENT);
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 1, 1, 0, 0); /* one that is there, and not usable now */
	turn(r);
	nak = said(r, CORE_CTRL_OPEN_NAK, 1);
	assert_non_null(nak);
	assert_int_equal(nak->ctrl.reason, CORE_R_PORT);
}

static void only_lanes_that_both_have_are_used(void **state)
{
	struct rig *r = &rig;

	(void)state;
	start(r, 0, 1);
	core_link_lanes(&r->l, 1u << 1, r->now);
	tcp_up(r);
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	core_link_rail(&r->l, 1, true, CORE_R_NONE, r->now);
	turn(r);
	assert_null(got(r, CORE_ACT_OPEN, 0));
	assert_non_null(got(r, CORE_ACT_OPEN, 1));
	assert_int_equal(openings(r), 0);
	core_link_lanes(&r->l, 3, r->now); /* its record is another now */
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
	/* the responder does not ask for what the peer lacks */
	start(r, 1, 0);
	core_link_lanes(&r->l, 1u << 1, r->now);
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	core_link_rail(&r->l, 1, true, CORE_R_NONE, r->now);
	tcp_up(r);
	r->now += 2000 * MS;
	turn(r);
	assert_null(said(r, CORE_CTRL_WANT, 0));
	assert_non_null(said(r, CORE_CTRL_WANT, 1));
}

static void a_lane_that_leaves_the_set_is_fenced(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	core_link_lanes(&r->l, 1u << 1, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_FENCE, 0));
	assert_int_equal(r->l.active, 1);
}

static void a_daemon_started_anew_begins_at_nothing(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	start(r, 0, 1);
	assert_true(core_link_peer(&r->l, 7, r->now));
	tcp_up(r);
	rail_up(r, 0);
	submit(r, 5);
	turn(r);
	complete(r, 0);
	core_link_rx_ack(&r->l, 0, r->l.lane[0].gen, 3, 67, r->now);
	assert_int_equal(core_link_rx(&r->l, 0, r->l.lane[0].gen, 0, 3, 67, r->now), CORE_RX_DELIVER);
	assert_true(core_link_peer(&r->l, 7, r->now));
	gen = r->l.lane[0].gen;

	/* all lanes are fenced before anything begins anew */
	assert_false(core_link_peer(&r->l, 8, r->now));
	turn(r);
	assert_non_null(got(r, CORE_ACT_FENCE, 0));
	assert_non_null(got(r, CORE_ACT_FENCE, TCP));
	assert_null(got(r, CORE_ACT_RESTARTED, -1));
	core_link_fenced(&r->l, TCP, r->l.lane[TCP].gen, r->now);
	turn(r);
	assert_null(got(r, CORE_ACT_RESTARTED, -1));
	assert_false(core_link_peer(&r->l, 8, r->now));
	core_link_fenced(&r->l, 0, gen, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_CLOSE, 0));
	assert_non_null(got(r, CORE_ACT_RESTARTED, -1));

	assert_true(core_link_peer(&r->l, 8, r->now));
	assert_int_equal(r->l.rx, 0);
	assert_int_equal(core_link_room(&r->l), CORE_SLOTS);
	assert_true(core_link_idle(&r->l));
	tcp_up(r);
	rail_up(r, 1);
	submit(r, 1);
	turn(r);
	assert_int_equal(sends(r, 1), 1);
	assert_int_equal(core_link_rx(&r->l, 1, r->l.lane[1].gen, 0, 1, 65, r->now), CORE_RX_DELIVER);
	/* the rail is well as it was, and the new daemon's first generation is a new one */
	assert_true(r->l.lane[0].local_ok);
	assert_int_equal(r->l.lane[0].gen, 1);
}

static void held_requests_do_not_wait_for_a_daemon_that_is_gone(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	both_up(r);
	assert_true(core_link_peer(&r->l, 7, r->now));
	gen = r->l.lane[0].gen;
	core_link_lane_error(&r->l, 0, gen, CORE_R_COMPLETION, r->now);
	turn(r);
	core_link_fenced(&r->l, 0, gen, r->now);
	core_link_hold(&r->l, 0, gen, r->now);
	turn(r);
	assert_false(core_link_peer(&r->l, 8, r->now));
	turn(r);
	core_link_fenced(&r->l, 1, r->l.lane[1].gen, r->now);
	core_link_fenced(&r->l, TCP, r->l.lane[TCP].gen, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_RESTARTED, -1));
	assert_false(r->l.lane[0].hold);
}

/* Frames come in a row, fast enough for the large window; true: it is asked for. */
static bool burst(struct rig *r)
{
	for (int i = 0; i < 64; i++) {
		assert_int_equal(core_link_rx(&r->l, 0, r->l.lane[0].gen, r->l.rx, 0, 64, r->now),
			CORE_RX_DELIVER);
		turn(r);
		complete(r, 0);
		if (got(r, CORE_ACT_DEPTH, -1))
			return true;
	}
	return false;
}

static void receives_that_could_not_be_posted_are_not_promised(void **state)
{
	struct rig *r = &rig;
	uint64_t ack, limit;

	(void)state;
	both_up(r);
	complete(r, 0);
	assert_true(burst(r));
	core_link_depth_failed(&r->l, r->now);
	turn(r);
	core_link_header(&r->l, &ack, &limit);
	assert_int_equal(limit - ack, r->l.cfg.depth0);
	r->now += 20 * MS;
	assert_false(burst(r)); /* not again and again */
	r->now += r->l.cfg.hold_max_ns;
	complete(r, 0);
	if (r->l.lane[0].state != CORE_LANE_UP)
		fail();
	assert_true(burst(r) || burst(r));
	core_link_depth_done(&r->l, r->now);
	core_link_header(&r->l, &ack, &limit);
	assert_int_equal(limit - ack, r->l.cfg.depth);
}

/* What the peer's device takes while its daemon does not: nobody posts those receives again. */
static void a_peer_that_stands_still_keeps_its_reserve(void **state)
{
	struct rig *r = &rig;
	int n = 0, later = 0;

	(void)state;
	both_up(r);
	complete(r, 0);
	core_link_lane_error(&r->l, TCP, r->l.lane[TCP].gen, CORE_R_SOCKET, r->now);
	for (int i = 0; i < 1000; i++) {
		r->now += 10 * MS;
		turn(r);
		complete(r, 0);
		complete(r, 1);
		for (int k = 0; k < r->n; k++)
			n += (r->act[k].type == CORE_ACT_ACK || r->act[k].type == CORE_ACT_CTRL) &&
				r->act[k].lane == 0;
	}
	assert_in_range(n, 1, 12);
	core_link_rx_ack(&r->l, 1, r->l.lane[1].gen, 0, 64, r->now); /* there it is again */
	for (int i = 0; i < 300; i++) {
		r->now += 10 * MS;
		turn(r);
		complete(r, 0);
		complete(r, 1);
		later += got(r, CORE_ACT_ACK, 0) || got(r, CORE_ACT_CTRL, 0);
	}
	assert_true(later > 0);
}

static const struct core_act *pinged(struct rig *r)
{
	for (int i = 0; i < 400; i++) {
		const struct core_act *ping;

		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		ping = said(r, CORE_CTRL_PING, 0);
		if (ping)
			return ping;
	}
	fail();
	return NULL;
}

/* Something is posted on lane 0 and does not complete; the peer answers the first PING after `after`. */
static void silent_while_it_paused(struct rig *r, uint64_t after)
{
	const struct core_act *ping;
	uint64_t began;

	both_up(r);
	complete(r, 0);
	submit(r, 1);
	turn(r);
	ping = pinged(r);
	began = r->now;
	while (r->now - began < after)
		ping = pinged(r);
	ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, ping->ctrl.token);
	turn(r);
}

static void a_pause_of_the_peer_is_no_silence_of_the_lane(void **state)
{
	struct rig *r = &rig;

	(void)state;
	silent_while_it_paused(r, 2000 * MS);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	complete(r, 0); /* it has posted its receives */
	r->now += 400 * MS;
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	/* but not for ever */
	silent_while_it_paused(r, 1000 * MS);
	for (int i = 0; i < 10 && r->l.lane[0].state == CORE_LANE_UP; i++) {
		const struct core_act *ping = pinged(r);
		uint64_t began = r->now;

		while (r->now - began < 500 * MS && r->l.lane[0].state == CORE_LANE_UP) {
			complete(r, TCP);
			complete(r, 1);
			r->now += 5 * MS;
			turn(r);
			if (said(r, CORE_CTRL_PING, 0))
				ping = said(r, CORE_CTRL_PING, 0);
		}
		ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, ping->ctrl.token);
		turn(r);
	}
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
}

/* Lane 0's probes work; from now on they are `lost` until the peer has answered a PING. */
static void works(struct rig *r)
{
	both_up(r);
	complete(r, 0);
	r->l.lane[0].ud.works = r->l.lane[0].ud.ever = true;
	r->l.lane[0].ud.sent = 0;
	submit(r, 1);
	turn(r);
}

static void probes_during_a_pause_say_nothing(void **state)
{
	struct rig *r = &rig;
	uint64_t began, token = 0;

	(void)state;
	works(r);
	began = r->now;
	while (r->now - began < 180 * MS) { /* its loop stands still, and its datagrams find no receives */
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		if (said(r, CORE_CTRL_PING, 0))
			token = said(r, CORE_CTRL_PING, 0)->ctrl.token;
	}
	assert_true(token);
	assert_true(r->l.lane[0].ud.sent >= 3);
	ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, token);
	r->now += 30 * MS;
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
}

static void a_probe_that_did_not_leave_is_not_lost(void **state)
{
	struct rig *r = &rig;
	uint64_t began;
	int asked = 0;

	(void)state;
	works(r);
	began = r->now;
	while (r->now - began < 220 * MS) {
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		for (int i = 0; i < r->n; i++) {
			const struct core_act *a = &r->act[i];

			if (a->type == CORE_ACT_PROBE && a->lane == 0) {
				core_link_probe_unsent(&r->l, 0, a->seq);
				asked++;
			}
			if (a->type == CORE_ACT_CTRL && a->ctrl.type == CORE_CTRL_PING && a->ctrl.lane == 0)
				ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, a->ctrl.token);
		}
	}
	assert_in_range(asked, 3, 20); /* asked for again, and not in a hurry */
	assert_int_equal(r->l.lane[0].ud.sent, 0);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rail_that_the_peer_lacks_is_asked_for_once),
		cmocka_unit_test(a_rail_of_the_peer_alone_is_refused_as_absent),
		cmocka_unit_test(only_lanes_that_both_have_are_used),
		cmocka_unit_test(a_lane_that_leaves_the_set_is_fenced),
		cmocka_unit_test(a_daemon_started_anew_begins_at_nothing),
		cmocka_unit_test(held_requests_do_not_wait_for_a_daemon_that_is_gone),
		cmocka_unit_test(receives_that_could_not_be_posted_are_not_promised),
		cmocka_unit_test(a_peer_that_stands_still_keeps_its_reserve),
		cmocka_unit_test(a_pause_of_the_peer_is_no_silence_of_the_lane),
		cmocka_unit_test(probes_during_a_pause_say_nothing),
		cmocka_unit_test(a_probe_that_did_not_leave_is_not_lost),
	};

	return cmocka_run_group_tests_name("core_peer", tests, NULL, NULL);
}
