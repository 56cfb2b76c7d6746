/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/verbs_lane.c: the ledger word, from the offer in the handshake to what a fence tells; which
 * completions are believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "core/psn.h"
#include "node/verbs_impl.h"

struct rig {
	struct verbs v;
	struct verbs_lane lane;
	struct ibv_context ctx;
	struct ibv_qp qp;
	struct ibv_mr mr, word_mr;
	uint64_t word;
	uint8_t small[VERBS_SENDS * VERBS_SMALL];
};

static struct ibv_send_wr posted;
static uint64_t written;
static int post_err, posts;
static enum core_told told;
static uint32_t number;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	if (post_err)
		return post_err;
	posts++;
	posted = *wr;
	assert_int_equal(wr->num_sge, 1);
	assert_int_equal(wr->sg_list->length, sizeof(written));
	memcpy(&written, (void *)(uintptr_t)wr->sg_list->addr, sizeof(written));
	return 0;
}

static unsigned destroyed;

int ibv_destroy_qp(struct ibv_qp *qp)
{
	(void)qp;
	destroyed++;
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}

static enum ibv_qp_state state_of_qp;

/* In place of the library's: what the device says. */
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)qp;
	(void)mask;
	(void)init;
	a->rq_psn = 1234;
	a->qp_state = state_of_qp;
	return 0;
}

static enum verbs_done how_done;

static void on_done(void *owner, struct verbs_lane *l, uint64_t cookie, enum verbs_done how, const char *detail)
{
	(void)owner;
	(void)l;
	(void)cookie;
	(void)detail;
	how_done = how;
}

static void on_fenced(void *owner, struct verbs_lane *l, enum core_told t, uint32_t n)
{
	(void)owner;
	(void)l;
	told = t;
	number = n;
}

/* Our end: a device that lies, with a word. The peer's end of it is what it offers. */
static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));
	struct verbs_lane *l = &g->lane;

	assert_non_null(g);
	g->v.ops.fenced = on_fenced;
	g->v.ops.done = on_done;
	g->ctx.ops.post_send = post_send;
	g->qp.context = &g->ctx;
	g->mr.lkey = 5;
	g->word_mr.rkey = 77;
	l->v = &g->v;
	l->rail = &g->v.rail[0];
	l->rail->v = &g->v;
	l->small = g->small;
	l->mtu = 4096;
	l->mem[0].mr = &g->mr;
	l->mem[VERBS_WORD] = (struct lane_mem){.addr = (uint8_t *)&g->word, .mr = &g->word_mr};
	g->v.rail[0].lies = true;
	post_err = posts = 0;
	destroyed = 0;
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void the_offer_names_the_word_and_says_whether_it_is_wanted(void **state)
{
	struct rig *g = *state;
	struct verbs_blob b = {0};
	struct verbs_lane peer = {0};

	verbs_lane_offer_word(&g->lane, &b);
	assert_int_equal(b.word_at, (uintptr_t)&g->word);
	assert_int_equal(b.word_rkey, 77);
	verbs_lane_learn_word(&peer, &b);
	assert_true(verbs_lane_wants_word(&peer));
	assert_int_equal(peer.word_at, (uintptr_t)&g->word);
	assert_int_equal(peer.word_rkey, 77);
}

static void a_device_that_may_yet_fail_wants_it_in_a_frame(void **state)
{
	struct rig *g = *state;
	struct verbs_blob b = {0};
	struct verbs_lane peer = {0};

	g->v.rail[0].lies = false;
	verbs_lane_offer_word(&g->lane, &b);
	verbs_lane_learn_word(&peer, &b);
	assert_false(verbs_lane_wants_word(&peer));
	verbs_lane_word_wanted(&peer, true);
	assert_true(verbs_lane_wants_word(&peer));
	/* and does not once it is proven */
	verbs_lane_word_wanted(&peer, false);
	assert_false(verbs_lane_wants_word(&peer));
}

/* A proven device, or an older release: its blob ends in zeros. */
static void without_a_word_nothing_is_written(void **state)
{
	struct rig *g = *state;
	struct verbs_blob b = {0};

	g->lane.mem[VERBS_WORD] = (struct lane_mem){0};
	verbs_lane_offer_word(&g->lane, &b);
	assert_int_equal(b.word_at, 0);
	assert_int_equal(b.wants_word, 0);
	b.wants_word = 1;
	verbs_lane_learn_word(&g->lane, &b);
	assert_false(verbs_lane_wants_word(&g->lane));
	verbs_lane_word_wanted(&g->lane, true);
	assert_false(verbs_lane_wants_word(&g->lane));
	g->lane.qp = &g->qp;
	g->lane.connected = true;
	assert_int_equal(verbs_lane_word(&g->lane, 1, 0), -EIO);
	assert_int_equal(posts, 0);
}

static void a_ledger_write_is_a_request_like_any(void **state)
{
	struct rig *g = *state;
	struct verbs_lane *l = &g->lane;

	l->qp = &g->qp;
	l->connected = true;
	l->word_at = 0x1000;
	l->word_rkey = 9;
	l->psn = 0xffffff;
	assert_int_equal(verbs_lane_word(l, 0x100000002ull, 42), 0);
	assert_int_equal(posted.opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(posted.wr.rdma.remote_addr, 0x1000);
	assert_int_equal(posted.wr.rdma.rkey, 9);
	assert_true(written == 0x100000002ull);
	assert_int_equal(l->psn, 0); /* it takes one PSN */
	assert_int_equal(l->sq[0], 42);
	/* the source of one that may be sent again is not written over */
	assert_int_equal(verbs_lane_word(l, 3, 42), 0);
	memcpy(&written, g->small, sizeof(written));
	assert_true(written == 0x100000002ull);
	while (l->sq_tail < VERBS_SENDS)
		l->sq_tail++;
	assert_int_equal(verbs_lane_word(l, 4, 42), -EAGAIN);
	assert_int_equal(posts, 2);
}

static void settle(struct rig *g)
{
	g->lane.qp = &g->qp;
	g->lane.connected = g->lane.routed = true;
	g->lane.fencing = true;
	g->lane.rx_marker = true;
	g->v.fencing = 1;
	while (!g->lane.fenced)
		assert_true(verbs_lane_settle(&g->lane));
}

static void a_fence_tells_the_word(void **state)
{
	struct rig *g = *state;

	g->word = 0x100000007ull;
	settle(g);
	assert_int_equal(told, CORE_TOLD_WORD);
	assert_int_equal(number, 7);
}

static void a_word_that_nobody_wrote_tells_nothing(void **state)
{
	settle(*state);
	assert_int_equal(told, CORE_TOLD_NOTHING);
}

static void a_device_that_passed_tells_its_rq_psn(void **state)
{
	struct rig *g = *state;

	g->v.rail[0].lies = false;
	g->word = 7;
	settle(g);
	assert_int_equal(told, CORE_TOLD_PSN);
	assert_int_equal(number, 1234);
}

/* The test that would prove it has not ended, or never does. */
static void a_device_whose_test_has_no_result_is_not_believed(void **state)
{
	struct rig *g = *state;

	g->v.rail[0].lies = false;
	g->v.cfg.selftest = true;
	g->word = 9;
	settle(g);
	assert_int_equal(told, CORE_TOLD_WORD);
	assert_int_equal(number, 9);
	assert_int_equal(destroyed, 1); /* nor is its flush */
}

static void a_device_that_is_proven_is(void **state)
{
	struct rig *g = *state;

	g->v.rail[0].lies = false;
	g->v.cfg.selftest = true;
	g->v.rail[0].ledger = VERBS_LEDGER_RQ_PSN;
	settle(g);
	assert_int_equal(told, CORE_TOLD_PSN);
	assert_int_equal(destroyed, 0);
}

static void a_device_that_is_gone_left_its_word(void **state)
{
	struct rig *g = *state;

	g->v.rail[0].lies = false; /* whatever it was */
	g->word = 7;
	g->lane.routed = true;
	g->lane.fencing = true;
	g->v.fencing = 1;
	assert_true(verbs_lane_settle(&g->lane));
	assert_int_equal(told, CORE_TOLD_WORD);
	assert_int_equal(number, 7);
}

/* A request completes with success; how the owner hears of it. */
static enum verbs_done completes(struct rig *g, enum ibv_wc_opcode opcode, int driver, enum ibv_qp_state state)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .opcode = opcode};

	g->v.rail[0].driver = driver;
	g->lane.qp = &g->qp;
	g->lane.sq_head = 0;
	g->lane.sq_tail = 1;
	state_of_qp = state;
	verbs_lane_completion(&g->lane, &wc);
	return how_done;
}

static void soft_roce_is_not_believed_that_a_read_went_well_when_its_queue_pair_failed(void **state)
{
	struct rig *g = *state;

	assert_int_equal(completes(g, IBV_WC_RDMA_READ, RDMA_DRIVER_RXE, IBV_QPS_RTS), VERBS_OK);
	assert_int_equal(completes(g, IBV_WC_RDMA_READ, RDMA_DRIVER_RXE, IBV_QPS_ERR), VERBS_FLUSHED);
	assert_int_equal(completes(g, IBV_WC_RDMA_WRITE, RDMA_DRIVER_RXE, IBV_QPS_ERR), VERBS_OK);
	assert_int_equal(completes(g, IBV_WC_RDMA_READ, RDMA_DRIVER_MLX5, IBV_QPS_ERR), VERBS_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_offer_names_the_word_and_says_whether_it_is_wanted),
		TEST(a_device_that_may_yet_fail_wants_it_in_a_frame),
		TEST(without_a_word_nothing_is_written),
		TEST(a_ledger_write_is_a_request_like_any),
		TEST(a_fence_tells_the_word),
		TEST(a_device_that_passed_tells_its_rq_psn),
		TEST(a_device_whose_test_has_no_result_is_not_believed),
		TEST(a_device_that_is_proven_is),
		TEST(a_device_that_is_gone_left_its_word),
		TEST(a_word_that_nobody_wrote_tells_nothing),
		TEST(soft_roce_is_not_believed_that_a_read_went_well_when_its_queue_pair_failed),
	};

	return cmocka_run_group_tests_name("node_word", tests, NULL, NULL);
}
