/* SPDX-License-Identifier: BSD-3-Clause */
/* The ledger: what became of each piece of a put when its lane died. */
#include "core_rig.h"

#include "core/psn.h"
#include "core/rma.h"

#define MTU 4096u

static struct core_rma m;
static const struct core_rma_room wide[CORE_RAILS_MAX] = {
	{64, 4, 1 << 20}, {64, 4, 1 << 20}, {0, 0, 0}, {0, 0, 0}};

static void begin(struct rig *r)
{
	both_up(r);
	core_rma_init(&m);
}

/* Posts what can be, the first PSN of a lane being psn; returns how many. */
static int post_all(struct rig *r, uint32_t psn)
{
	uint8_t lane;
	int piece, n = 0;

	while (core_rma_pick(&m, &r->l, wide, &piece, &lane)) {
		psn = core_psn_add(psn, core_psn_packets(m.piece[piece].len, MTU));
		core_rma_posted(&m, &r->l, piece, lane, core_psn_add(psn, CORE_PSN_MASK), r->now);
		n++;
	}
	return n;
}

static int put(struct rig *r, uint32_t len, bool replay)
{
	return core_rma_submit(&m, CORE_PUT, len, 1, replay, r->now);
}

/* Lane 0 dies here, everything posted on it comes back flushed, the fence is done. */
static uint32_t die(struct rig *r)
{
	uint32_t gen = r->l.lane[0].gen;

	core_link_lane_error(&r->l, 0, gen, CORE_R_COMPLETION, r->now);
	turn(r);
	for (int i = 0; i < (int)CORE_PIECES; i++)
		if (m.piece[i].state == CORE_PIECE_POSTED && m.piece[i].lane == 0)
			assert_int_equal(core_rma_completed(&m, &r->l, i, CORE_PIECE_FLUSHED, r->now),
				CORE_PIECE_GOES_ON);
	core_link_fenced(&r->l, 0, gen, r->now);
	core_rma_fenced(&m, &r->l, 0, gen, r->now);
	return gen;
}

static void dead(struct rig *r, uint32_t gen, uint8_t flags, uint32_t psn)
{
	struct core_ctrl c = {.type = CORE_CTRL_LANE_DEAD, .lane = 0, .gen = gen, .token = 1,
		.flags = flags, .psn = psn};

	core_link_rx_ctrl(&r->l, TCP, r->l.lane[TCP].gen, &c, r->now);
	turn(r);
}

static enum core_piece_end settle(struct rig *r, const struct core_act *a, int *piece)
{
	enum core_piece_end end;

	*piece = core_rma_settle(&m, a->lane, a->gen, a->told, a->number, r->now, &end);
	return end;
}

static void numbers(void **state)
{
	(void)state;
	assert_int_equal(core_psn_packets(0, MTU), 1);
	assert_int_equal(core_psn_packets(1, MTU), 1);
	assert_int_equal(core_psn_packets(MTU, MTU), 1);
	assert_int_equal(core_psn_packets(MTU + 1, MTU), 2);
	assert_int_equal(core_psn_add(0xfffffe, 3), 1);
	assert_true(core_psn_before(0xffffff, 0));
	assert_false(core_psn_before(0, 0xffffff));
	assert_false(core_psn_before(5, 5));
}

static void the_report_decides_piece_by_piece(void **state)
{
	struct rig *r = &rig;
	int a, b, c, piece;
	uint32_t gen;

	(void)state;
	begin(r);
	a = put(r, 100, false);
	b = put(r, 2 * MTU, false);
	c = put(r, 100, false);
	assert_int_equal(post_all(r, 0xfffffe), 3); /* fffffe | ffffff 0 | 1 */
	gen = die(r);
	assert_int_equal(m.held, 3);
	assert_int_equal(post_all(r, 0), 0); /* nothing runs again before the report */
	dead(r, gen, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN, 0xffffff); /* a, and no more */
	assert_non_null(got(r, CORE_ACT_REPORT, 0));
	assert_int_equal(settle(r, got(r, CORE_ACT_REPORT, 0), &piece), CORE_PIECE_EXECUTED);
	assert_int_equal(piece, a);
	assert_int_equal(settle(r, got(r, CORE_ACT_REPORT, 0), &piece), CORE_PIECE_GOES_ON);
	assert_int_equal(piece, b);
	assert_int_equal(settle(r, got(r, CORE_ACT_REPORT, 0), &piece), CORE_PIECE_GOES_ON);
	assert_int_equal(piece, c);
	settle(r, got(r, CORE_ACT_REPORT, 0), &piece);
	assert_int_equal(piece, -1);
	assert_int_equal(post_all(r, 0), 0); /* their keys are looked at first */
	core_rma_rails(&m, b, 2);
	core_rma_rails(&m, c, 2);
	assert_int_equal(post_all(r, 100), 2);
	assert_int_equal(m.piece[b].lane, 1);
}

static void a_report_without_a_number_leaves_doubt(void **state)
{
	struct rig *r = &rig;
	int piece, again;

	(void)state;
	begin(r);
	put(r, 1, false);
	again = put(r, 1, true);
	assert_int_equal(post_all(r, 0), 2);
	dead(r, die(r), CORE_CTRL_F_FENCED, 0);
	assert_int_equal(settle(r, got(r, CORE_ACT_REPORT, 0), &piece), CORE_PIECE_AMBIGUOUS);
	assert_int_equal(settle(r, got(r, CORE_ACT_REPORT, 0), &piece), CORE_PIECE_GOES_ON);
	assert_int_equal(piece, again);
	assert_int_equal(m.used, 1);
}

static void a_get_runs_again_at_once(void **state)
{
	struct rig *r = &rig;

	(void)state;
	begin(r);
	core_rma_submit(&m, CORE_GET, 10 * MTU, 3, false, r->now);
	assert_int_equal(post_all(r, 0), 1);
	die(r);
	assert_int_equal(m.held, 0);
	assert_int_equal(post_all(r, 0), 1);
}

static void only_the_report_of_that_generation_counts(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	begin(r);
	put(r, 1, false);
	post_all(r, 0);
	gen = die(r);
	dead(r, gen - 1, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN, 1);
	assert_null(got(r, CORE_ACT_REPORT, 0));
	dead(r, gen, 0, 0); /* not fenced yet */
	assert_null(got(r, CORE_ACT_REPORT, 0));
	r->now += 200 * MS;
	turn(r);
	assert_non_null(said(r, CORE_CTRL_LANE_DEAD, 0)); /* asks again */
	assert_int_equal(said(r, CORE_CTRL_LANE_DEAD, 0)->ctrl.gen, gen);
	dead(r, gen, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN, 1);
	assert_non_null(got(r, CORE_ACT_REPORT, 0));
	r->now += 200 * MS;
	turn(r);
	assert_null(got(r, CORE_ACT_REPORT, 0));
}

static void the_lane_is_not_opened_before_it_is_settled(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	begin(r);
	put(r, 1, false);
	post_all(r, 0);
	gen = die(r);
	dead(r, gen, 0, 0);
	for (int i = 0; i < 50; i++) {
		r->now += 100 * MS;
		turn(r);
		assert_null(got(r, CORE_ACT_OPEN, 0));
	}
	dead(r, gen, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN, 1);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
}

/* The higher index: lane 0 comes up by the peer's handshake. */
static void responder_up(struct rig *r, uint32_t gen)
{
	uint8_t blob[CORE_BLOB] = {7};

	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, gen, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
	core_link_opened(&r->l, 0, gen, blob, r->now);
	turn(r);
	core_link_connected(&r->l, 0, gen, r->now);
	turn(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_DONE, 0, gen, 0, 0);
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	complete(r, 0);
	complete(r, TCP);
}

static void responder(struct rig *r)
{
	start(r, 1, 0);
	tcp_up(r);
	core_link_rail(&r->l, 0, true, CORE_R_NONE, r->now);
	turn(r);
	complete(r, TCP);
	responder_up(r, 1);
	core_rma_init(&m);
}

static void the_responder_takes_no_opening_before_it_is_settled(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	responder(r);
	put(r, 1, false);
	assert_int_equal(post_all(r, 0), 1);
	gen = die(r);
	r->now += 3000 * MS; /* the peer is silent, its end is closed */
	turn(r);
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_DOWN);
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, gen + 1, 0, 0);
	turn(r);
	assert_null(got(r, CORE_ACT_OPEN, 0));
	dead(r, gen, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN, 1);
	assert_non_null(got(r, CORE_ACT_REPORT, 0));
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, gen + 1, 0, 0);
	turn(r);
	assert_non_null(got(r, CORE_ACT_OPEN, 0));
}

static void an_opening_that_came_during_the_fence_waits_too(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;
	int piece;

	(void)state;
	responder(r);
	piece = put(r, 1, false);
	post_all(r, 0);
	gen = r->l.lane[0].gen;
	core_link_lane_error(&r->l, 0, gen, CORE_R_COMPLETION, r->now);
	turn(r);
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, gen + 1, 0, 0);
	core_rma_completed(&m, &r->l, piece, CORE_PIECE_FLUSHED, r->now);
	core_link_fenced(&r->l, 0, gen, r->now);
	core_rma_fenced(&m, &r->l, 0, gen, r->now);
	turn(r);
	assert_null(got(r, CORE_ACT_OPEN, 0));
}

static void our_report_is_told_and_stands(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;
	uint32_t gen;

	(void)state;
	responder(r);
	gen = r->l.lane[0].gen;
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, gen, 0, 0);
	turn(r);
	assert_int_equal(said(r, CORE_CTRL_LANE_DEAD, 0)->ctrl.flags, 0); /* not fenced yet */
	complete(r, TCP);
	core_link_report(&r->l, 0, gen, CORE_TOLD_PSN, 77);
	core_link_fenced(&r->l, 0, gen, r->now);
	turn(r);
	a = said(r, CORE_CTRL_LANE_DEAD, 0); /* it asked: told unasked now */
	assert_non_null(a);
	assert_int_equal(a->ctrl.flags, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN);
	assert_int_equal(a->ctrl.psn, 77);
	complete(r, TCP);
	/* The next generation fails before it was connected: nothing can have run on it. */
	r->now += 5000 * MS;
	ctrl(r, TCP, CORE_CTRL_OPEN_REQ, 0, gen + 1, 0, 0);
	turn(r);
	core_link_lane_error(&r->l, 0, gen + 1, CORE_R_SETUP, r->now);
	turn(r);
	core_link_fenced(&r->l, 0, gen + 1, r->now);
	turn(r);
	complete(r, TCP);
	ctrl(r, TCP, CORE_CTRL_LANE_DEAD, 0, gen, 0, 0);
	turn(r);
	a = said(r, CORE_CTRL_LANE_DEAD, 0);
	assert_int_equal(a->ctrl.gen, gen);
	assert_int_equal(a->ctrl.flags, CORE_CTRL_F_FENCED | CORE_CTRL_F_KNOWN);
	assert_int_equal(a->ctrl.psn, 77);
}

/* Posts n puts of one packet and, when the batch is closed, its ledger write. */
static int posted(struct rig *r, int n, bool replay, bool turn_ends)
{
	int first = -1;

	while (n--) {
		int i = put(r, 1, replay);

		first = first < 0 ? i : first;
		assert_int_equal(post_all(r, 0), 1);
	}
	if (core_rma_mark(&m, 0, turn_ends))
		core_rma_marked(&m, 0);
	return first;
}

static void the_word_decides_what_it_covers(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;
	int piece, covered, doubt, again;

	(void)state;
	begin(r);
	posted(r, 1, false, true);
	covered = posted(r, 1, false, true);
	doubt = posted(r, 1, false, true);
	again = posted(r, 1, true, false);
	assert_int_equal(m.lane[0].marks, 3);
	dead(r, die(r), CORE_CTRL_F_FENCED | CORE_CTRL_F_WORD, 2);
	a = got(r, CORE_ACT_REPORT, 0);
	assert_non_null(a);
	assert_int_equal(a->told, CORE_TOLD_WORD);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_EXECUTED);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_EXECUTED);
	assert_int_equal(piece, covered);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_AMBIGUOUS);
	assert_int_equal(piece, doubt);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_GOES_ON);
	assert_int_equal(piece, again);
	assert_int_equal(m.by_ledger, 2);
	assert_int_equal(m.ambiguous, 1);
}

static void numbers_of_ledger_writes_wrap_in_the_report(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;
	int piece;

	(void)state;
	begin(r);
	m.lane[0].marks = 0xfffffffeu;
	posted(r, 1, false, true); /* ffffffff */
	posted(r, 1, false, true); /* 100000000 */
	posted(r, 1, false, true);
	dead(r, die(r), CORE_CTRL_F_FENCED | CORE_CTRL_F_WORD, 0);
	a = got(r, CORE_ACT_REPORT, 0);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_EXECUTED);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_EXECUTED);
	assert_int_equal(settle(r, a, &piece), CORE_PIECE_AMBIGUOUS);
}

static void a_batch_ends_with_the_turn_or_when_it_is_full(void **state)
{
	struct rig *r = &rig;

	(void)state;
	begin(r);
	assert_int_equal(core_rma_mark(&m, 0, true), 0);
	core_rma_submit(&m, CORE_GET, 1, 1, false, r->now);
	post_all(r, 0);
	assert_int_equal(core_rma_mark(&m, 0, true), 0); /* a get needs none */
	put(r, 1, false);
	post_all(r, 0);
	assert_int_equal(core_rma_mark(&m, 0, false), 0);
	assert_int_equal(core_rma_mark(&m, 0, true), 1);
	assert_int_equal(core_rma_mark(&m, 1, true), 0); /* another lane */
	for (unsigned i = 1; i < CORE_BATCH; i++) {
		assert_int_equal(core_rma_mark(&m, 0, false), 0);
		put(r, 1, false);
		post_all(r, 0);
	}
	assert_int_equal(core_rma_mark(&m, 0, false), 1);
	assert_int_equal(core_rma_mark(&m, 0, false), 1); /* could not be posted */
	core_rma_marked(&m, 0);
	assert_int_equal(core_rma_mark(&m, 0, true), 0);
	put(r, 1, false);
	post_all(r, 0);
	assert_int_equal(core_rma_mark(&m, 0, true), 2);
}

static void a_device_that_lies_tells_by_its_word(void **state)
{
	struct rig *r = &rig;
	const struct core_act *a;
	uint32_t gen, number;

	(void)state;
	assert_int_equal(core_tell(true, 77, 5, &number), CORE_TOLD_PSN);
	assert_int_equal(number, 77);
	assert_int_equal(core_tell(false, 77, 5, &number), CORE_TOLD_WORD);
	assert_int_equal(number, 5);
	assert_int_equal(core_tell(false, 77, 0, &number), CORE_TOLD_NOTHING);
	responder(r);
	gen = r->l.lane[0].gen;
	core_link_lane_error(&r->l, 0, gen, CORE_R_COMPLETION, r->now);
	turn(r);
	core_link_report(&r->l, 0, gen, CORE_TOLD_WORD, 5);
	core_link_fenced(&r->l, 0, gen, r->now);
	complete(r, TCP);
	turn(r);
	a = said(r, CORE_CTRL_LANE_DEAD, 0);
	assert_non_null(a);
	assert_int_equal(a->ctrl.flags, CORE_CTRL_F_FENCED | CORE_CTRL_F_WORD);
	assert_int_equal(a->ctrl.psn, 5);
}

static void pieces_spread_and_room_holds(void **state)
{
	struct core_rma_room room[CORE_RAILS_MAX] = {{64, 1, 10000}, {64, 1, 10000}};
	struct rig *r = &rig;
	uint8_t lane;
	int piece, on[2] = {0, 0};

	(void)state;
	begin(r);
	for (int i = 0; i < 8; i++)
		core_rma_submit(&m, CORE_PUT, 5000, 3, false, r->now);
	while (core_rma_pick(&m, &r->l, room, &piece, &lane)) {
		core_rma_posted(&m, &r->l, piece, lane, 0, r->now);
		on[lane]++;
	}
	assert_int_equal(on[0], 2);
	assert_int_equal(on[1], 2);
	core_rma_init(&m);
	for (int i = 0; i < 4; i++)
		core_rma_submit(&m, CORE_GET, 10, 3, false, r->now);
	on[0] = on[1] = 0;
	while (core_rma_pick(&m, &r->l, room, &piece, &lane)) {
		core_rma_posted(&m, &r->l, piece, lane, 0, r->now);
		on[lane]++;
	}
	assert_int_equal(on[0] + on[1], 2);
}

static void a_slow_lane_is_not_silent(void **state)
{
	struct rig *r = &rig;
	uint32_t gen;

	(void)state;
	begin(r);
	gen = r->l.lane[0].gen;
	/* 64 KiB take 100 ms; a megabyte more is posted */
	core_link_posted(&r->l, 0, 65536, r->now);
	core_link_posted(&r->l, 0, 65536, r->now);
	r->now += 200 * MS;
	core_link_done(&r->l, 0, gen, 65536, r->now);
	for (int i = 0; i < 15; i++)
		core_link_posted(&r->l, 0, 65536, r->now);
	r->l.lane[0].answered = true;
	r->l.polled_at = r->now += 400 * MS;
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_UP);
	r->l.lane[0].answered = true;
	r->l.polled_at = r->now += 900 * MS;
	turn(r);
	assert_int_equal(r->l.lane[0].state, CORE_LANE_FENCING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),
		cmocka_unit_test(the_report_decides_piece_by_piece),
		cmocka_unit_test(a_report_without_a_number_leaves_doubt),
		cmocka_unit_test(a_get_runs_again_at_once),
		cmocka_unit_test(only_the_report_of_that_generation_counts),
		cmocka_unit_test(the_lane_is_not_opened_before_it_is_settled),
		cmocka_unit_test(the_responder_takes_no_opening_before_it_is_settled),
		cmocka_unit_test(an_opening_that_came_during_the_fence_waits_too),
		cmocka_unit_test(our_report_is_told_and_stands),
		cmocka_unit_test(the_word_decides_what_it_covers),
		cmocka_unit_test(numbers_of_ledger_writes_wrap_in_the_report),
		cmocka_unit_test(a_batch_ends_with_the_turn_or_when_it_is_full),
		cmocka_unit_test(a_device_that_lies_tells_by_its_word),
		cmocka_unit_test(pieces_spread_and_room_holds),
		cmocka_unit_test(a_slow_lane_is_not_silent),
	};

	return cmocka_run_group_tests_name("core_rma", tests, NULL, NULL);
}
