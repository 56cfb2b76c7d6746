/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of a link, step by step: what it does on what it is told. */
#include "core_rig.h"

static void verdicts(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	both_up(r);
	gen = r->l.lane[0].gen;
	assert_int_equal(core_link_rx(&r->l, 0, gen, 0, 0, 64, r->now), CORE_RX_DELIVER);
	assert_int_equal(core_link_rx(&r->l, 0, gen, 0, 0, 64, r->now), CORE_RX_DUP);
	assert_int_equal(core_link_rx(&r->l, 1, gen, 1, 0, 64, r->now), CORE_RX_DELIVER);
	assert_int_equal(core_link_rx(&r->l, 0, gen - 1, 2, 0, 64, r->now), CORE_RX_STALE);
	assert_int_equal(core_link_rx(&r->l, 0, gen + 1, 2, 0, 64, r->now), CORE_RX_STALE);
	assert_int_equal(core_link_rx(&r->l, 0, gen, 3, 0, 64, r->now), CORE_RX_BAD);
	assert_int_equal(core_link_rx(&r->l, 0, gen, 2, 0, 64, r->now), CORE_RX_STALE);
	assert_int_equal(core_link_rx(&r->l, 1, gen, 2, 0, 64, r->now), CORE_RX_DELIVER);
	turn(r);
	assert_non_null(got(r, CORE_ACT_FENCE, 0));
	assert_null(got(r, CORE_ACT_FENCE, 1));
}

static void a_count_of_frames_never_sent_is_refused(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	core_link_rx_ack(&r->l, 0, r->l.lane[0].gen, 5, 64, r->now);
	assert_int_equal(r->l.acked, 0);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_FENCING);
}

static void a_slot_is_kept_until_ack_and_completion(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	submit(r, 2);
	turn(r);
	assert_int_equal(sends(r, 0), 2);
	core_link_completed(&r->l, 0, r->l.lane[0].gen, 0, r->now);
	assert_int_equal(core_link_room(&r->l), CORE_SLOTS - 2);
	core_link_rx_ack(&r->l, 0, r->l.lane[0].gen, 2, 66, r->now);
	assert_int_equal(core_link_room(&r->l), CORE_SLOTS - 1);
	core_link_completed(&r->l, 0, r->l.lane[0].gen, 1, r->now);
	assert_int_equal(core_link_room(&r->l), CORE_SLOTS);
	assert_true(core_link_idle(&r->l) || r->l.lane[0].posts);
}

static void a_slot_of_a_dead_lane_is_kept_until_the_fence(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	both_up(r);
	gen = r->l.lane[0].gen;
	submit(r, 1);
	turn(r);
	core_link_lane_error(&r->l, 0, gen, CORE_R_COMPLETION, r->now);
	turn(r);
	ctrl(r, 1, CORE_CTRL_LANE_DEAD, 0, gen, 1, 1);
	assert_int_equal(r->l.acked, 1);
	assert_int_equal(core_link_room(&r->l), CORE_SLOTS - 1);
	core_link_fenced(&r->l, 0, gen, r->now);
	assert_int_equal(core_link_room(&r->l), CORE_SLOTS);
}

static void frames_go_on_the_first_rail_then_the_next_then_tcp(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	r->l.cfg.first = 1;
	turn(r);
	submit(r, 1);
	turn(r);
	assert_int_equal(sends(r, 1), 1);
	core_link_completed(&r->l, 1, r->l.lane[1].gen, 0, r->now);
	core_link_rx_ack(&r->l, 1, r->l.lane[1].gen, 1, 64, r->now);
	core_link_lane_error(&r->l, 1, r->l.lane[1].gen, CORE_R_PORT, r->now);
	turn(r);
	assert_int_equal(r->l.active, 0);
	core_link_lane_error(&r->l, 0, r->l.lane[0].gen, CORE_R_PORT, r->now);
	turn(r);
	assert_int_equal(r->l.active, TCP);
}

static void the_limit_holds(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	submit(r, 100);
	turn(r);
	assert_int_equal(sends(r, 0), 64);
	core_link_rx_ack(&r->l, 0, r->l.lane[0].gen, 10, 74, r->now);
	turn(r);
	assert_int_equal(sends(r, 0), 10);
}

static void resumes_at_the_peers_count(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;
	uint32_t gen;

	(void)state;
	both_up(r);
	gen = r->l.lane[0].gen;
	submit(r, 8);
	turn(r);
	core_link_lane_error(&r->l, 0, gen, CORE_R_COMPLETION, r->now);
	turn(r);
	assert_int_equal(sends(r, 1), 0);
	assert_non_null(said(r, CORE_CTRL_LANE_DEAD, 0));
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, gen, 5, 1);
	turn(r);
	a = got(r, CORE_ACT_SEND, 1);
	assert_non_null(a);
	assert_int_equal(a->seq, 5);
	assert_int_equal(sends(r, 1), 3);
}

static void resumes_at_the_last_ack_when_the_peer_is_mute(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;

	(void)state;
	both_up(r);
	submit(r, 8);
	turn(r);
	core_link_rx_ack(&r->l, 0, r->l.lane[0].gen, 2, 66, r->now);
	core_link_lane_error(&r->l, 0, r->l.lane[0].gen, CORE_R_COMPLETION, r->now);
	turn(r);
	assert_true(core_link_deadline(&r->l) <= r->now + r->l.cfg.ask_ns);
	r->now += r->l.cfg.ask_ns;
	turn(r);
	a = got(r, CORE_ACT_SEND, 1);
	assert_non_null(a);
	assert_int_equal(a->seq, 2);
	assert_int_equal(sends(r, 1), 6);
}

static void a_failover_is_recorded(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;
	uint32_t gen;

	(void)state;
	both_up(r);
	gen = r->l.lane[0].gen;
	submit(r, 4);
	turn(r);
	r->now += 1 * MS;
	core_link_lane_error(&r->l, 0, gen, CORE_R_PORT, r->now);
	turn(r);
	r->now += r->l.cfg.ask_ns;
	turn(r);
	assert_int_equal(sends(r, 1), 4);
	r->now += 1 * MS;
	core_link_fenced(&r->l, 0, gen, r->now);
	core_link_rx_ack(&r->l, 1, r->l.lane[1].gen, 4, 68, r->now);
	turn(r);
	a = got(r, CORE_ACT_FAILOVER, 0);
	assert_non_null(a);
	assert_int_equal(a->failover.to_lane, 1);
	assert_int_equal(a->failover.reason, CORE_R_PORT);
	assert_int_equal(a->failover.resent, 4);
	assert_true(a->failover.had_traffic);
	assert_true(a->failover.noticed_ns < a->failover.resumed_ns);
	assert_true(a->failover.resumed_ns < a->failover.progress_ns);
}

/* Nothing was under way, and the lane that was to be the next one died before anything was sent on it. */
static void a_failover_names_the_lane_that_has_the_traffic(void **state)
{
	struct rig *r = &rig;
	uint32_t gen[2];
	const struct core_act *a;

	(void)state;
	both_up(r);
	for (uint8_t i = 0; i < 2; i++) {
		gen[i] = r->l.lane[i].gen;
		core_link_lane_error(&r->l, i, gen[i], CORE_R_PORT, r->now);
	}
	turn(r);
	r->now += r->l.cfg.ask_ns;
	turn(r);
	core_link_fenced(&r->l, 1, gen[1], r->now);
	core_link_fenced(&r->l, 0, gen[0], r->now);
	turn(r);
	a = got(r, CORE_ACT_FAILOVER, 0);
	assert_non_null(a);
	assert_true(a->failover.had_traffic);
	assert_int_equal(a->failover.to_lane, TCP);
}

static void a_death_is_told_until_the_peer_says_the_same(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	both_up(r);
	gen = r->l.lane[0].gen;
	core_link_lane_error(&r->l, 0, gen, CORE_R_PORT, r->now);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_LANE_DEAD, 0));
	for (int i = 0; i < 5; i++) {
		complete(r, TCP);
		complete(r, 1);
		r->now += r->l.cfg.ctrl_ns;
		turn(r);
		assert_non_null(said(r, CORE_CTRL_LANE_DEAD, 0));
	}
	core_link_fenced(&r->l, 0, gen, r->now);
	turn(r);
	assert_null(got(r, CORE_ACT_CLOSE, 0));
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, gen, 0, 1);
	turn(r);
	assert_non_null(got(r, CORE_ACT_CLOSE, 0));
	r->now += r->l.cfg.ctrl_ns;
	turn(r);
	assert_null(said(r, CORE_CTRL_LANE_DEAD, 0));
	/* A peer that did not hear us asks once more, and is answered. */
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, gen, 0, 0);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_LANE_DEAD, 0));
	assert_int_equal(said(r, CORE_CTRL_LANE_DEAD, 0)->ctrl.token, 1);
}

static void the_peers_word_kills_a_live_lane(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, r->l.lane[0].gen - 1, 0, 0);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, r->l.lane[0].gen, 0, 0);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_FENCING);
}

static void a_dead_peer_does_not_keep_the_lane(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	both_up(r);
	gen = r->l.lane[0].gen;
	core_link_lane_error(&r->l, 0, gen, CORE_R_PORT, r->now);
	turn(r);
	core_link_fenced(&r->l, 0, gen, r->now);
	r->now += 2000 * MS;
	turn(r);
	assert_non_null(got(r, CORE_ACT_CLOSE, 0));
}

static void dead_lane(struct rig *r, uint8_t lane, enum core_reason why)
{
	uint32_t gen = r->l.lane[lane].gen;

	core_link_lane_error(&r->l, lane, gen, why, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_FENCE, lane));
	core_link_fenced(&r->l, lane, gen, r->now);
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, lane, gen, r->l.acked, 1);
	turn(r);
	assert_non_null(got(r, CORE_ACT_CLOSE, lane));
	complete(r, TCP);
}

static void reopen(struct rig *r, uint8_t lane)
{
	uint8_t blob[CORE_BLOB] = { 9 };
	uint32_t gen = r->l.lane[lane].gen;

	core_link_opened(&r->l, lane, gen, blob, r->now);
	turn(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_ACK, lane, gen, r->l.acked, 0);
	turn(r);
	core_link_connected(&r->l, lane, gen, r->now);
	turn(r);
	complete(r, TCP);
}

static void hold_down_doubles_and_probes_come_first(void **state)
{
	struct rig *r = &rig;
	uint64_t hold;

	(void)state;
	both_up(r);
	hold = r->l.cfg.hold_ns;
	dead_lane(r, 0, CORE_R_PORT);
	for (int i = 0; i < 3; i++) {
		r->now += hold - 1 * MS;
		turn(r);
		assert_null(got(r, CORE_ACT_OPEN, 0));
		r->now += 1 * MS;
		turn(r);
		assert_non_null(got(r, CORE_ACT_OPEN, 0));
		complete(r, 1);
		reopen(r, 0);
		assert_non_null(got(r, CORE_ACT_ACK, 0));
		assert_int_equal(r->l.active, 1);
		complete(r, 0);
		turn(r);
		assert_int_equal(r->l.active, 1);
		complete(r, 0);
		turn(r);
		assert_non_null(got(r, CORE_ACT_LANE_BACK, 0));
		assert_int_equal(r->l.active, 0);
		complete(r, 0);
		dead_lane(r, 0, CORE_R_PORT);
		hold *= 2;
	}
}

static void a_bad_request_reopens_at_once(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	dead_lane(r, 0, CORE_R_REQUEST);
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_OPENING);
	reopen(r, 0);
	assert_true(r->l.lane[0].usable);
}

static void traffic_moves_only_when_drained(void **state)
{
	struct rig *r = &rig;

	(void)state;
	start(r, 0, 1);
	tcp_up(r);
	submit(r, 4);
	turn(r);
	assert_int_equal(sends(r, TCP), 4);
	rail_up(r, 0);
	submit(r, 4);
	turn(r);
	assert_int_equal(sends(r, TCP) + sends(r, 0), 0);
	core_link_rx_ack(&r->l, TCP, r->l.lane[TCP].gen, 3, 67, r->now);
	turn(r);
	assert_int_equal(sends(r, TCP) + sends(r, 0), 0);
	core_link_rx_ack(&r->l, TCP, r->l.lane[TCP].gen, 4, 68, r->now);
	turn(r);
	assert_int_equal(sends(r, 0), 4);
}

static void silence_needs_the_peers_answer(void **state)
{
	struct rig *r = &rig;
	const struct core_act *ping;
	uint64_t token;

	(void)state;
	both_up(r);
	submit(r, 1);
	turn(r);
	while (r->l.lane[0].progress_at + 400 * MS > r->now) {
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
	}
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP); /* the peer may be busy */
	do {
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		ping = said(r, CORE_CTRL_PING, 0);
	} while (!ping);
	assert_int_not_equal(ping->lane, 0);
	token = ping->ctrl.token;
	ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, token + 1);
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	/* it stood still: so the lane had no chance either, until now */
	ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, token);
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	for (int i = 0; i < 60 && r->l.lane[0].state == CORE_LANE_UP; i++) {
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		ping = said(r, CORE_CTRL_PING, 0);
		if (ping)
			ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, ping->ctrl.token);
	}
	assert_int_equal(r->l.lane[0].state, CORE_LANE_FENCING);
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
}

static void a_late_caller_blames_no_lane(void **state)
{
	struct rig *r = &rig;
	const struct core_act *ping;

	(void)state;
	both_up(r);
	submit(r, 1);
	turn(r);
	complete(r, TCP);
	complete(r, 1);
	r->now += 50 * MS;
	turn(r);
	ping = said(r, CORE_CTRL_PING, 0);
	assert_non_null(ping);
	ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, ping->ctrl.token);
	turn(r);
	r->now += 5000 * MS; /* stopped meanwhile; completions are waiting to be read */
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	complete(r, 0);
}

static void a_refused_opening_waits_for_want(void **state)
{
	struct rig *r = &rig;
	uint8_t blob[CORE_BLOB] = { 0 };

	(void)state;
	start(r, 0, 1);
	tcp_up(r);
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	turn(r);
	core_link_opened(&r->l, 0, 1, blob, r->now);
	turn(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_NAK, 0, 1, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_FENCE, 0));
	core_link_fenced(&r->l, 0, 1, r->now);
	turn(r);
	r->now += 100 * MS;
	turn(r);
	assert_null(got(r, CORE_ACT_OPEN, 0));
	ctrl(r, TCP, CORE_CTRL_WANT, 0, 0, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
	assert_int_equal(r->l.lane[0].gen, 2);
}

static void the_responder_answers(void **state)
{
	struct rig *r = &rig;
	uint8_t blob[CORE_BLOB] = { 3 };

	(void)state;
	start(r, 5, 2);
	tcp_up(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, 4, 0, 0);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_OPEN_NAK, 0));
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_WANT, 0));
	assert_null(got(r, CORE_ACT_OPEN, 0));
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, 5, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
	core_link_opened(&r->l, 0, 5, blob, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_CONNECT, 0));
	assert_null(said(r, CORE_CTRL_OPEN_ACK, 0)); /* not before it can receive */
	core_link_connected(&r->l, 0, 5, r->now);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_OPEN_ACK, 0));
	assert_int_equal(r->l.lane[0].state, CORE_LANE_SETUP);
	assert_int_equal(r->l.active, TCP);
	/* Any frame is as good as OPEN_DONE. */
	assert_int_equal(core_link_rx(&r->l, 0, 5, 0, 0, 64, r->now), CORE_RX_DELIVER);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	/* A newer generation says that this one is dead. */
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, 6, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_FENCE, 0));
	core_link_fenced(&r->l, 0, 5, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_CLOSE, 0));
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
	assert_int_equal(got(r, CORE_ACT_OPEN, 0)->gen, 6);
}

static void a_failed_connect_is_tried_again(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;

	(void)state;
	start(r, 0, 1);
	a = got(r, CORE_ACT_OPEN, TCP);
	assert_non_null(a);
	assert_int_equal(a->gen, 1);
	for (uint32_t i = 0; i < 4; i++) { /* either generation may be named */
		core_link_lane_error(&r->l, TCP, r->l.lane[TCP].gen + (i & 1), CORE_R_SETUP, r->now);
		turn(r);
		core_link_fenced(&r->l, TCP, r->l.lane[TCP].gen, r->now);
		r->now += 1000 * MS;
		turn(r);
		assert_non_null(got(r, CORE_ACT_OPEN, TCP));
	}
	core_link_lane_up(&r->l, TCP, 1, r->now);
	assert_int_equal(r->l.lane[TCP].state, CORE_LANE_UP);
	core_link_lane_up(&r->l, TCP, 3, r->now);
	assert_int_equal(r->l.lane[TCP].gen, 3);
	core_link_lane_error(&r->l, TCP, 1, CORE_R_SOCKET, r->now);
	assert_int_equal(r->l.lane[TCP].state, CORE_LANE_UP);
}

static void unreachable_is_told_once_each_way(void **state)
{
	struct rig *r = &rig;

	(void)state;
	start(r, 0, 1);
	r->now += 4999 * MS;
	turn(r);
	assert_null(got(r, CORE_ACT_UNREACHABLE, -1));
	r->now += 1 * MS;
	turn(r);
	assert_non_null(got(r, CORE_ACT_UNREACHABLE, -1));
	r->now += 9000 * MS;
	turn(r);
	assert_null(got(r, CORE_ACT_UNREACHABLE, -1));
	tcp_up(r);
	assert_non_null(got(r, CORE_ACT_REACHABLE, -1));
}

static void acks_wait_a_little_and_ride_on_data(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	r->now += 100 * MS;
	turn(r);
	complete(r, 0);
	assert_int_equal(core_link_rx(&r->l, 0, r->l.lane[0].gen, 0, 0, 64, r->now), CORE_RX_DELIVER);
	turn(r);
	assert_null(got(r, CORE_ACT_ACK, -1));
	assert_true(core_link_deadline(&r->l) <= r->now + r->l.cfg.ack_ns);
	r->now += r->l.cfg.ack_ns;
	turn(r);
	assert_non_null(got(r, CORE_ACT_ACK, 0));
	complete(r, 0);
	assert_int_equal(core_link_rx(&r->l, 0, r->l.lane[0].gen, 1, 0, 64, r->now), CORE_RX_DELIVER);
	submit(r, 1);
	r->now += r->l.cfg.ack_ns;
	turn(r);
	assert_int_equal(sends(r, 0), 1);
	assert_null(got(r, CORE_ACT_ACK, -1));
}

static void an_ack_told_on_a_dead_lane_is_told_again(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	for (int i = 0; i < 3; i++) {
		complete(r, 0);
		complete(r, 1);
		complete(r, TCP);
		r->now += 100 * MS; /* acks are rationed */
		turn(r);
	}
	core_link_rx(&r->l, 0, r->l.lane[0].gen, 0, 0, 64, r->now);
	r->now += 1 * MS;
	turn(r);
	assert_non_null(got(r, CORE_ACT_ACK, 0));
	complete(r, 0);
	r->now += 1 * MS;
	turn(r);
	assert_null(got(r, CORE_ACT_ACK, -1));
	core_link_lane_error(&r->l, 0, r->l.lane[0].gen, CORE_R_COMPLETION, r->now);
	turn(r);
	assert_non_null(got(r, CORE_ACT_ACK, -1));
	assert_null(got(r, CORE_ACT_ACK, 0));
}

static void idle_lanes_are_kept_alive(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	complete(r, 0);
	complete(r, 1);
	complete(r, TCP);
	for (int i = 0; i < 3; i++) {
		uint8_t lanes[] = { 0, 1, TCP };

		r->now += 1000 * MS;
		turn(r);
		for (int k = 0; k < 3; k++) {
			assert_non_null(got(r, CORE_ACT_ACK, lanes[k]));
			complete(r, lanes[k]);
		}
	}
}

static void the_window_grows_with_use(void **state)
{
	struct rig *r = &rig;
	uint64_t ack, limit;
	const struct core_act *a = NULL;

	(void)state;
	both_up(r);
	core_link_header(&r->l, &ack, &limit);
	assert_int_equal(limit - ack, 16);
	for (uint64_t i = 0; i < 40 && !a; i++) {
		core_link_rx(&r->l, 0, r->l.lane[0].gen, i, 0, 64, r->now);
		turn(r);
		complete(r, 0);
		a = got(r, CORE_ACT_DEPTH, -1);
	}
	assert_non_null(a);
	assert_int_equal(a->depth, 64);
	core_link_header(&r->l, &ack, &limit);
	assert_int_equal(limit - ack, 16); /* not before they are posted */
	core_link_depth_done(&r->l, r->now);
	core_link_header(&r->l, &ack, &limit);
	assert_int_equal(limit - ack, 64);
}

static void a_lane_that_cannot_send_gets_nothing(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	r->can = ALL & ~1u;
	submit(r, 3);
	turn(r);
	assert_int_equal(sends(r, 0) + sends(r, 1), 0);
	assert_true(core_link_deadline(&r->l) > r->now);
	r->can = ALL;
	turn(r);
	assert_int_equal(sends(r, 0), 3);
}

static void names(void **state)
{
	(void)state;
	for (int i = CORE_R_NONE; i <= CORE_R_RESTART; i++)
		assert_string_not_equal(core_reason_name((enum core_reason)i), "unknown");
	assert_string_equal(core_reason_name((enum core_reason)99), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(verdicts),
		cmocka_unit_test(a_count_of_frames_never_sent_is_refused),
		cmocka_unit_test(a_slot_is_kept_until_ack_and_completion),
		cmocka_unit_test(a_slot_of_a_dead_lane_is_kept_until_the_fence),
		cmocka_unit_test(frames_go_on_the_first_rail_then_the_next_then_tcp),
cmocka_unit_test(the_limit_holds),
		cmocka_unit_test(resumes_at_the_peers_count),
		cmocka_unit_test(resumes_at_the_last_ack_when_the_peer_is_mute),
		cmocka_unit_test(a_failover_is_recorded),
		cmocka_unit_test(a_failover_names_the_lane_that_has_the_traffic),
		cmocka_unit_test(a_death_is_told_until_the_peer_says_the_same),
		cmocka_unit_test(the_peers_word_kills_a_live_lane),
		cmocka_unit_test(a_dead_peer_does_not_keep_the_lane),
		cmocka_unit_test(hold_down_doubles_and_probes_come_first),
		cmocka_unit_test(a_bad_request_reopens_at_once),
		cmocka_unit_test(traffic_moves_only_when_drained),
		cmocka_unit_test(silence_needs_the_peers_answer),
		cmocka_unit_test(a_late_caller_blames_no_lane),
		cmocka_unit_test(a_refused_opening_waits_for_want),
		cmocka_unit_test(the_responder_answers),
		cmocka_unit_test(a_failed_connect_is_tried_again),
		cmocka_unit_test(unreachable_is_told_once_each_way),
		cmocka_unit_test(acks_wait_a_little_and_ride_on_data),
		cmocka_unit_test(an_ack_told_on_a_dead_lane_is_told_again),
		cmocka_unit_test(idle_lanes_are_kept_alive),
		cmocka_unit_test(the_window_grows_with_use),
		cmocka_unit_test(a_lane_that_cannot_send_gets_nothing),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests_name("core_link", tests, NULL, NULL);
}
