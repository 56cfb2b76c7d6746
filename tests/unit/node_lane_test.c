/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/verbs_lane.c, verbs_reap.c: when a lane is fenced and what it tells then; what is destroyed, by
 * whom, and that the loop does not wait for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <sys/mman.h>

#include "core/psn.h"
#include "fake_verbs.h"

#define DEPTH 16u
#define RECVS (DEPTH + VERBS_CONTROL + 1)

static struct verbs *v;
static struct fake_rail rail;
static struct verbs_lane *lane;
static unsigned fenced, errors, frames, rail_gone;
static enum core_told told;
static uint32_t number;

static void on_recv(void *owner, struct verbs_lane *l, const void *buf, size_t len)
{
	(void)owner;
	(void)l;
	(void)buf;
	(void)len;
	frames++;
}

static void on_done(void *owner, struct verbs_lane *l, uint64_t cookie, enum verbs_done how, const char *detail)
{
	(void)owner;
	(void)l;
	(void)cookie;
	(void)how;
	(void)detail;
}

static void on_error(void *owner, struct verbs_lane *l, enum core_reason why, const char *detail)
{
	(void)owner;
	(void)l;
	(void)why;
	(void)detail;
	errors++;
}

static void on_fenced(void *owner, struct verbs_lane *l, enum core_told t, uint32_t n)
{
	(void)owner;
	(void)l;
	fenced++;
	told = t;
	number = n;
}

static void on_rail(void *arg, unsigned r, bool ok, enum core_reason why, const char *detail)
{
	(void)arg;
	(void)r;
	(void)detail;
	rail_gone += !ok && why == CORE_R_DEVICE;
}

/* A lane as verbs_lane_open() and _connect() leave it: that needs ports and GIDs. */
static struct verbs_lane *lane_make(void)
{
	struct verbs_lane *l = calloc(1, sizeof(*l));
	struct ibv_qp_init_attr qi = {.qp_context = l};

	l->v = v;
	l->rail = &v->rail[0];
	for (unsigned m = 0; m < VERBS_MEMS; m++)
		l->mem[m].handle = VERBS_NO_MR;
	l->mem[0].len = 2 * RECVS * WIRE_FRAME_MAX;
	l->mem[0].addr = l->mem[0].rx = mmap(NULL, l->mem[0].len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(verbs_lane_mem_register(l, &l->mem[0], 0), 0);
	l->rx_first = l->rx_cap = 2 * RECVS;
	l->qp = ibv_create_qp(v->rail[0].pd, &qi);
	l->qpn = l->qp->qp_num;
	HASH_ADD(hh, v->by_qpn[0], qpn, sizeof(l->qpn), l);
	l->listed = l->routed = l->connected = true;
	assert_int_equal(verbs_lane_depth(l, DEPTH), 0);
	assert_int_equal(l->rx_posted, RECVS);
	l->next = v->lanes;
	v->lanes = l;
	return l;
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	fenced = errors = frames = rail_gone = 0;
	v = calloc(1, sizeof(*v));
	v->netlink = -1;
	v->ops = (struct verbs_ops){.recv = on_recv, .done = on_done, .error = on_error, .fenced = on_fenced,
		.rail = on_rail};
	v->works = works_open(v);
	fake_rail_make(v, 0, &rail);
	lane = lane_make();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_hold(false);
	verbs_close(v);
	assert_int_equal(fake.qps, 0);
	assert_int_equal(fake.mrs, 0);
	assert_int_equal(fake.ctxs, 0);
	return 0;
}

/* Runs the loop until what was given to threads has come back. */
static void works_end(void)
{
	struct pollfd p = {.fd = verbs_work_fd(v), .events = POLLIN};

	while (work_left(v->rail[0].work)) {
		poll(&p, 1, 10);
		verbs_poll(v, 64);
	}
	verbs_poll(v, 64);
	verbs_poll(v, 64);
}

/* --- the marker ------------------------------------------------------------------------------------ */

static void a_fence_whose_marker_came_back_flushed_tells_rq_psn(void **state)
{
	(void)state;
	verbs_lane_fence(lane);
	assert_int_equal(fake.to_err, 1);
	for (unsigned i = 0; i + 1 < RECVS; i++)
		fake_received(lane->qpn, i, IBV_WC_SUCCESS);
	verbs_poll(v, 2 * RECVS);
	assert_int_equal(fenced, 0);
	fake_received(lane->qpn, RECVS - 1, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 64);
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_PSN);
	assert_int_equal(number, 1234);
	assert_int_equal(frames, RECVS - 1);
}

/* All receives were taken by frames: there is no barrier, so the queue pair goes first, and rq_psn with it. */
static void a_fence_without_a_flush_is_not_believed(void **state)
{
	(void)state;
	fake_hold(true);
	verbs_lane_fence(lane);
	for (unsigned i = 0; i < RECVS; i++)
		fake_received(lane->qpn, i, IBV_WC_SUCCESS);
	verbs_poll(v, 2 * RECVS);
	fake_until_held();
	verbs_poll(v, 64);
	assert_int_equal(fenced, 0); /* it may execute yet */
	fake_hold(false);
	works_end();
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_NOTHING);
	assert_int_equal(fake.queries, 0);
}

/* A receive that was posted before the last is flushed, the last is not: that is no device to believe. */
static void a_flush_of_another_receive_is_no_marker(void **state)
{
	(void)state;
	verbs_lane_fence(lane);
	fake_received(lane->qpn, RECVS - 1, IBV_WC_SUCCESS);
	for (unsigned i = 0; i + 1 < RECVS; i++)
		fake_received(lane->qpn, i, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 2 * RECVS);
	works_end();
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_NOTHING);
}

/* The marker moves with each receive that is posted again. */
static void the_marker_is_the_last_of_all_posted(void **state)
{
	(void)state;
	fake_received(lane->qpn, 0, IBV_WC_SUCCESS);
	verbs_poll(v, 64);
	assert_int_equal(lane->rx_posted, RECVS);
	verbs_lane_fence(lane);
	for (unsigned i = 1; i < RECVS; i++)
		fake_received(lane->qpn, i, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 2 * RECVS);
	assert_int_equal(fenced, 0);
	fake_received(lane->qpn, RECVS, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 64);
	assert_int_equal(told, CORE_TOLD_PSN);
}

/* What the device flushed before anybody asked for it counts as well. */
static void a_queue_pair_that_failed_by_itself_is_fenced_by_its_flush(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RECVS; i++)
		fake_received(lane->qpn, i, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 2 * RECVS);
	assert_int_equal(errors, 1);
	verbs_lane_fence(lane);
	verbs_poll(v, 64);
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_PSN);
}

/* Receives that could not be posted are said to be missing; the marker is what was posted last all the same. */
static void what_could_not_be_posted_is_told(void **state)
{
	(void)state;
	fake.posts_left = 3;
	assert_int_equal(verbs_lane_depth(lane, 2 * DEPTH), -ENOMEM);
	assert_int_equal(lane->rx_posted, RECVS + 3);
	verbs_lane_fence(lane);
	for (unsigned i = 0; i < RECVS + 3; i++)
		fake_received(lane->qpn, i, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 4 * RECVS);
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_PSN);
}

/* --- destroying ------------------------------------------------------------------------------------- */

static void a_fence_by_destroying_does_not_stop_the_loop(void **state)
{
	(void)state;
	fake_hold(true);
	fake.modify_err = EIO;
	verbs_lane_fence(lane);
	fake_until_held();
	assert_int_equal(verbs_poll(v, 64), 0); /* it returned */
	assert_int_equal(fenced, 0);
	fake_hold(false);
	works_end();
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_NOTHING);
}

/* What the peer wrote until the end is told, though the memory is gone. */
static void the_word_outlives_the_queue_pair(void **state)
{
	(void)state;
	lane->mem[VERBS_WORD].len = sizeof(uint64_t);
	lane->mem[VERBS_WORD].addr = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*(uint64_t *)(void *)lane->mem[VERBS_WORD].addr = 77;
	fake.modify_err = EIO;
	verbs_lane_fence(lane);
	works_end();
	assert_int_equal(told, CORE_TOLD_WORD);
	assert_int_equal(number, 77);
}

static void a_lane_that_was_never_connected_is_fenced_at_once(void **state)
{
	(void)state;
	lane->routed = lane->connected = false;
	fake_hold(true);
	verbs_lane_fence(lane);
	verbs_poll(v, 64);
	assert_int_equal(fenced, 1);
	assert_int_equal(told, CORE_TOLD_NOTHING);
}

static void a_device_that_goes_does_not_stop_the_loop(void **state)
{
	struct verbs_lane *other = lane_make();

	(void)state;
	fake_hold(true);
	verbs_rail_gone(&v->rail[0], "gone");
	assert_int_equal(rail_gone, 1);
	fake_until_held();
	assert_int_equal(fake.qps, 2);
	assert_int_equal(v->rail[0].going, 1); /* the context waits for them, another for it */
	verbs_lane_fence(lane);
	verbs_lane_fence(other);
	verbs_poll(v, 64);
	assert_int_equal(fenced, 0);
	assert_int_equal(fake.ctxs, 1);
	fake_hold(false);
	works_end();
	assert_int_equal(fenced, 2);
	assert_int_equal(fake.qps, 0);
	assert_int_equal(fake.ctxs, 0);
	assert_int_equal(v->rail[0].going, 0);
}

/* Files of a context are closed after whoever watches them has had a turn to stop that. */
static void a_context_is_closed_after_its_files_were_seen_to_change(void **state)
{
	unsigned version = verbs_fds_version(v);

	(void)state;
	verbs_rail_gone(&v->rail[0], "gone");
	assert_int_not_equal(verbs_fds_version(v), version);
	assert_non_null(v->closing);
	assert_int_equal(fake.ctxs, 1);
	verbs_poll(v, 64);
	works_end();
	assert_int_equal(fake.ctxs, 0);
}

/* Its number is not another's before the packets of its time are gone. */
static void a_closed_queue_pair_lives_on_for_a_while(void **state)
{
	(void)state;
	verbs_lane_fence(lane);
	for (unsigned i = 0; i < RECVS; i++)
		fake_received(lane->qpn, i, IBV_WC_WR_FLUSH_ERR);
	verbs_poll(v, 2 * RECVS);
	assert_int_equal(fenced, 1);
	verbs_lane_close(lane);
	works_end();
	assert_int_equal(fake.qps, 1);
	v->rail[0].going = 1; /* verbs_tick() shall not look for the device */
	v->rail[0].ctx = NULL;
	for (unsigned i = 0; i <= VERBS_TIME_WAIT; i++)
		verbs_tick(v, 1);
	works_end();
	assert_int_equal(fake.qps, 0);
	v->rail[0].ctx = &rail.ctx;
	v->rail[0].going = 0;
}

/* An event of a queue pair whose lane is closed and freed finds nobody. */
static void an_event_of_a_closed_queue_pair_finds_nobody(void **state)
{
	struct ibv_qp *qp = lane->qp;

	(void)state;
	fake_hold(true);
	verbs_lane_close(lane);
	fake_until_held();
	fake.event = (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = qp};
	fake.has_event = true;
	verbs_async(v);
	assert_false(fake.has_event);
	assert_int_equal(errors, 0);
	lane = lane_make();
	fake.event = (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = lane->qp};
	fake.has_event = true;
	verbs_async(v);
	assert_int_equal(errors, 1);
}

/* --- regions ---------------------------------------------------------------------------------------- */

static void a_sweep_takes_what_nobody_knows(void **state)
{
	const uint32_t known[] = {700, 600};

	(void)state;
	/* behind a queue pair that hangs, whose memory is still there */
	fake_hold(true);
	verbs_lane_close(lane);
	fake_until_held();
	fake.handles[0] = 900;
	fake.handles[1] = 800;
	fake.handles[2] = 700;
	fake.handles[3] = 600;
	fake.handles[4] = lane->mem[0].handle;
	fake.handles_n = 5;
	verbs_mr_sweep(v, 0, known, 2);
	verbs_mr_sweep(v, 0, known, 2); /* each once */
	assert_true(verbs_mr_is_own(v, 0, lane->mem[0].handle));
	assert_false(verbs_mr_is_own(v, 0, 700));
	fake_hold(false);
	works_end();
	assert_int_equal(fake.destroyed_n, 2);
	assert_int_equal(fake.destroyed[0], 900);
	assert_int_equal(fake.destroyed[1], 800);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_fence_whose_marker_came_back_flushed_tells_rq_psn),
		TEST(a_fence_without_a_flush_is_not_believed),
		TEST(a_flush_of_another_receive_is_no_marker),
		TEST(the_marker_is_the_last_of_all_posted),
		TEST(a_queue_pair_that_failed_by_itself_is_fenced_by_its_flush),
		TEST(what_could_not_be_posted_is_told),
		TEST(a_fence_by_destroying_does_not_stop_the_loop),
		TEST(the_word_outlives_the_queue_pair),
		TEST(a_lane_that_was_never_connected_is_fenced_at_once),
		TEST(a_device_that_goes_does_not_stop_the_loop),
		TEST(a_context_is_closed_after_its_files_were_seen_to_change),
		TEST(a_closed_queue_pair_lives_on_for_a_while),
		TEST(an_event_of_a_closed_queue_pair_finds_nobody),
		TEST(a_sweep_takes_what_nobody_knows),
	};

	return cmocka_run_group_tests_name("node_lane", tests, NULL, NULL);
}
