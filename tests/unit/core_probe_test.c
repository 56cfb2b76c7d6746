/* SPDX-License-Identifier: BSD-3-Clause */
/* Probes: what they save, what they do not, and what comes before a silent path is used again. */
#include "core_rig.h"

static int probes; /* given out for lane 0 since `peer` was last told otherwise */

/* What the peer does meanwhile. */
struct peer {
	bool pong, answers;
};

/* Time passes until `ms` are over or lane 0 is not up any more; the other lanes are well. */
static void pass(struct rig *r, unsigned int ms, struct peer p)
{
	uint64_t end = r->now + ms * MS;

	while (r->now < end && r->l.lane[0].state == CORE_LANE_UP) {
		uint64_t token[8];
		int n = 0;

		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		for (int i = 0; i < r->n; i++) {
			const struct core_act *a = &r->act[i];

			if (a->type == CORE_ACT_PROBE && a->lane == 1)
				core_link_probe_answered(&r->l, 1, a->seq, r->now);
			if (a->type == CORE_ACT_PROBE && a->lane == 0) {
				probes++;
				if (p.answers && n < 8)
					token[n++] = a->seq;
			}
			if (a->type == CORE_ACT_CTRL && a->ctrl.type == CORE_CTRL_PING && p.pong)
				ctrl(r, TCP, CORE_CTRL_PONG, 0, r->l.lane[0].gen, 0, a->ctrl.token);
		}
		while (n)
			core_link_probe_answered(&r->l, 0, token[--n], r->now);
	}
}

static const struct peer well = {true, true}, silent = {true, false}, mute = {false, false};

/* Both lanes are up, and probes were seen to work on lane 0 or not; then something is posted. */
static void doubt(struct rig *r, bool works)
{
	both_up(r);
	complete(r, 0);
	pass(r, 500, works ? well : silent);
	complete(r, 0);
	turn(r);
	complete(r, 0);
	submit(r, 1);
	turn(r);
	assert_int_equal(sends(r, 0), 1);
	probes = 0;
}

static uint64_t stood(const struct rig *r)
{
	return (r->now - r->l.lane[0].progress_at) / MS;
}

/* The failover record of lane 0, once traffic flows again. */
static const struct core_failover *record(struct rig *r)
{
	const struct core_act *a;

	core_link_fenced(&r->l, 0, r->l.lane[0].gen, r->now);
	r->now += 100 * MS;
	turn(r);
	complete(r, 1);
	core_link_rx_ack(&r->l, 1, r->l.lane[1].gen, r->l.next, r->l.next + 64, r->now);
	turn(r);
	a = got(r, CORE_ACT_FAILOVER, 0);
	assert_non_null(a);
	return &a->failover;
}

static void an_opened_lane_is_probed_until_one_is_answered(void **state)
{
	struct rig *r = &rig;

	(void)state;
	both_up(r);
	complete(r, 0);
	probes = 0;
	pass(r, 800, well);
	assert_int_equal(probes, 1); /* that of both_up() was lost */
	assert_true(r->l.lane[0].ud.works);
	both_up(r);
	complete(r, 0);
	probes = 0;
	pass(r, 800, silent);
	assert_int_equal(probes, 3);
	assert_false(r->l.lane[0].ud.works);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
}

static void a_silent_path_is_given_up_before_the_hard_limit(void **state)
{
	struct rig *r = &rig;
	const struct core_failover *f;

	(void)state;
	doubt(r, true);
	pass(r, 1000, silent);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_FENCING);
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
	assert_in_range(stood(r), 150, 249);
	assert_in_range(probes, 3, 10);
	f = record(r);
	assert_int_equal(f->probe, CORE_PROBE_LOST);
	assert_true(f->asked && f->answered);
}

static void an_answer_does_not_save_a_lane_from_the_hard_limit(void **state)
{
	struct rig *r = &rig;
	const struct core_act *dead;

	(void)state;
	doubt(r, true);
	pass(r, 1000, well);
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
	assert_in_range(stood(r), 250, 260);
	assert_int_equal(probes, 1); /* more would say no more */
	dead = said(r, CORE_CTRL_LANE_DEAD, 0);
	assert_non_null(dead);
	assert_int_equal(dead->ctrl.flags, CORE_CTRL_F_ECHO);
	assert_int_equal(record(r)->probe, CORE_PROBE_ANSWERED);
}

static void probes_that_never_worked_say_nothing(void **state)
{
	struct rig *r = &rig;

	(void)state;
	doubt(r, false);
	pass(r, 1000, silent);
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
	assert_in_range(stood(r), 250, 260);
	assert_int_equal(record(r)->probe, CORE_PROBE_NONE);
}

/* It answered the question, and then neither: it may have no time for either. */
static void a_peer_that_falls_silent_altogether_is_no_silent_path(void **state)
{
	struct rig *r = &rig;

	(void)state;
	doubt(r, true);
	pass(r, 75, silent); /* two probes are out */
	pass(r, 1000, mute);
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
	assert_in_range(stood(r), 250, 260);
}

static void a_mute_peer_is_told_apart(void **state)
{
	struct rig *r = &rig;
	const struct core_act *dead;
	const struct core_failover *f;

	(void)state;
	doubt(r, true);
	pass(r, 10000, mute);
	assert_int_equal(r->l.lane[0].reason, CORE_R_SILENT);
	assert_in_range(stood(r), 3000, 3050);
	dead = said(r, CORE_CTRL_LANE_DEAD, 0);
	assert_non_null(dead);
	assert_int_equal(dead->ctrl.flags, CORE_CTRL_F_MUTE);
	f = record(r);
	assert_true(f->asked);
	assert_false(f->answered);
}

static void progress_ends_a_doubt_and_old_answers_count_for_no_other(void **state)
{
	struct rig *r = &rig;
	uint64_t old;

	(void)state;
	doubt(r, true);
	pass(r, 140, silent);
	old = r->l.token;
	complete(r, 0);
	assert_false(core_link_idle(&r->l)); /* not acknowledged yet */
	submit(r, 1);
	turn(r);
	probes = 0;
	pass(r, 45, silent);
	assert_int_equal(probes, 0);
	core_link_probe_answered(&r->l, 0, old, r->now);
	pass(r, 1000, silent);
	assert_in_range(stood(r), 150, 249);
}

static void a_late_answer_of_the_same_doubt_counts(void **state)
{
	struct rig *r = &rig;
	uint64_t token = 0;

	(void)state;
	doubt(r, true);
	while (!token) {
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		if (got(r, CORE_ACT_PROBE, 0))
			token = got(r, CORE_ACT_PROBE, 0)->seq;
	}
	pass(r, 70, silent);
	core_link_probe_answered(&r->l, 0, token, r->now);
	pass(r, 1000, silent);
	assert_in_range(stood(r), 250, 260);
}

/* Turns until the lane is to be opened, or `ms` are over; answers probes from the time `from` on. */
static bool opened_within(struct rig *r, unsigned int ms, bool answer)
{
	uint64_t end = r->now + ms * MS;

	while (r->now < end) {
		complete(r, TCP);
		complete(r, 1);
		r->now += 5 * MS;
		turn(r);
		for (int i = 0; i < r->n; i++)
			if (r->act[i].type == CORE_ACT_PROBE && r->act[i].lane == 0) {
				probes++;
				if (answer)
					core_link_probe_answered(&r->l, 0, r->act[i].seq, r->now);
			}
		if (got(r, CORE_ACT_OPEN, 0))
			return true;
	}
	return false;
}

/* ... and the lane is down. */
static void lost_in_silence(struct rig *r)
{
	doubt(r, true);
	pass(r, 1000, silent);
	turn(r);
	core_link_fenced(&r->l, 0, r->l.lane[0].gen, r->now);
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, r->l.lane[0].gen, 0, 1);
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_DOWN);
	probes = 0;
}

static void a_silent_path_is_not_opened_before_it_answers(void **state)
{
	struct rig *r = &rig;

	(void)state;
	lost_in_silence(r);
	assert_false(opened_within(r, 4000, false));
	assert_in_range(probes, 5, 8); /* two rounds */
	probes = 0;
	assert_true(opened_within(r, 8000, true));
	assert_int_equal(probes, 2); /* cfg.probes */
}

static void one_that_answers_at_once_is_opened_after_the_hold(void **state)
{
	struct rig *r = &rig;

	(void)state;
	lost_in_silence(r);
	assert_true(opened_within(r, 1100, true));
	assert_int_equal(probes, 2);
}

static void a_path_whose_probes_stay_away_is_tried_without(void **state)
{
	struct rig *r = &rig;

	(void)state;
	lost_in_silence(r);
	assert_true(opened_within(r, 60000, false));
	assert_int_equal(probes, 12); /* three rounds */
	core_link_lane_error(&r->l, 0, r->l.lane[0].gen, CORE_R_COMPLETION, r->now);
	turn(r);
	core_link_fenced(&r->l, 0, r->l.lane[0].gen, r->now);
	assert_true(opened_within(r, 60000, false));
	assert_int_equal(probes, 12); /* and never again until one is answered */
}

static void a_peer_whose_port_is_back_need_not_be_probed(void **state)
{
	struct core_ctrl want = { 0 };
	struct rig *r = &rig;

	(void)state;
	lost_in_silence(r);
	assert_false(opened_within(r, 1500, false));
	ctrl(r, TCP, CORE_CTRL_WANT, 0, 0, 0, 0);
	assert_false(opened_within(r, 500, false)); /* it only has traffic */
	want.type = CORE_CTRL_WANT;
	want.flags = CORE_CTRL_F_BACK;
	core_link_rx_ctrl(&r->l, TCP, r->l.lane[TCP].gen, &want, r->now);
	probes = 0;
	assert_true(opened_within(r, 20, false));
	assert_int_equal(probes, 0);
}

static void a_port_that_returns_is_wanted_as_such(void **state)
{
	struct rig *r = &rig;

	(void)state;
	start(r, 5, 2);
	tcp_up(r);
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	turn(r);
	assert_non_null(said(r, CORE_CTRL_WANT, 0));
	assert_int_equal(said(r, CORE_CTRL_WANT, 0)->ctrl.flags, CORE_CTRL_F_BACK);
}

/* Its port is not usable now: probes would find nobody. */
static void an_opening_that_was_refused_is_not_probed(void **state)
{
	struct rig *r = &rig;
	uint8_t blob[CORE_BLOB] = { 7 };
	uint32_t gen;

	(void)state;
	lost_in_silence(r);
	assert_true(opened_within(r, 1100, true));
	gen = r->l.lane[0].gen;
	core_link_opened(&r->l, 0, gen, blob, r->now);
	turn(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_NAK, 0, gen, 0, 0);
	turn(r);
	core_link_fenced(&r->l, 0, gen, r->now);
	probes = 0;
	assert_true(opened_within(r, 3000, false));
	assert_int_equal(probes, 0);
}

static void a_port_that_failed_is_not_probed(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	doubt(r, true);
	gen = r->l.lane[0].gen;
	core_link_rail(&r->l, 0, false, CORE_R_PORT, r->now);
	turn(r);
	core_link_fenced(&r->l, 0, gen, r->now);
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, gen, 0, 1);
	turn(r);
	probes = 0;
	assert_false(opened_within(r, 2000, false));
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	assert_true(opened_within(r, 20, false));
	assert_int_equal(probes, 0);
}

static void a_port_that_returns_ends_the_probing(void **state)
{
	struct rig *r = &rig;

	(void)state;
	lost_in_silence(r);
	assert_false(opened_within(r, 1010, false));
	assert_true(probes > 0 && r->l.lane[0].ud.now);
	core_link_rail(&r->l, 0, false, CORE_R_PORT, r->now);
	assert_false(opened_within(r, 500, false));
	probes = 0;
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	assert_true(opened_within(r, 20, false));
	assert_int_equal(probes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_opened_lane_is_probed_until_one_is_answered),
		cmocka_unit_test(a_silent_path_is_given_up_before_the_hard_limit),
		cmocka_unit_test(an_answer_does_not_save_a_lane_from_the_hard_limit),
		cmocka_unit_test(probes_that_never_worked_say_nothing),
		cmocka_unit_test(a_peer_that_falls_silent_altogether_is_no_silent_path),
		cmocka_unit_test(a_mute_peer_is_told_apart),
		cmocka_unit_test(progress_ends_a_doubt_and_old_answers_count_for_no_other),
		cmocka_unit_test(a_late_answer_of_the_same_doubt_counts),
		cmocka_unit_test(a_silent_path_is_not_opened_before_it_answers),
		cmocka_unit_test(one_that_answers_at_once_is_opened_after_the_hold),
		cmocka_unit_test(a_path_whose_probes_stay_away_is_tried_without),
		cmocka_unit_test(a_peer_whose_port_is_back_need_not_be_probed),
		cmocka_unit_test(a_port_that_returns_is_wanted_as_such),
		cmocka_unit_test(an_opening_that_was_refused_is_not_probed),
		cmocka_unit_test(a_port_that_failed_is_not_probed),
		cmocka_unit_test(a_port_that_returns_ends_the_probing),
	};

	return cmocka_run_group_tests_name("core_probe", tests, NULL, NULL);
}
