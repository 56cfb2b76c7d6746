/* SPDX-License-Identifier: BSD-3-Clause */
/* What bounds traffic and wakes who sleeps: credit, unexpected messages, room in the rings, busy links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_window.h"

/* More sources than the daemon planned for: windows become smaller until all that is promised fits. */
static void what_is_promised_fits_the_ring(void **state)
{
	rcs_peer *p[10];
	uint64_t sum;

	(void)state;
	fake.rx_size = 64 << 10;
	fake.credit0 = 14 << 10;
	pair_open(1, 0);
	for (uint32_t i = 0; i < 10; i++) {
		p[i] = cl_peer_get(b.ep, 0, 40 + i, 1);
		assert_non_null(p[i]);
	}
	for (int round = 0; round < 20; round++)
		for (int i = 0; i < 10; i++) {
			uint64_t have = p[i]->told - p[i]->consumed;

			if (have > p[i]->rx_win / 2)
				cl_credit_consumed(p[i], have - p[i]->rx_win / 2);
		}
	sum = 0;
	for (int i = 0; i < 10; i++) {
		assert_true(p[i]->rx_win >= CL_CREDIT_MIN);
		sum += p[i]->told - p[i]->consumed;
	}
	assert_true(sum <= b.ep->ch.rx_credit);
	pair_close();
}

/* The daemon alone takes a question whether an endpoint is there: credit that went along would be lost. */
static void to_ask_whether_a_source_is_there_costs_no_credit(void **state)
{
	uint8_t out[1000] = {0}, in[1000];

	(void)state;
	pair_open(1, 0);
	for (int i = 0; i < 400; i++) {
		fake_ended(0);
		assert_int_equal(rcs_trecv(b.ep, in, sizeof(in), b.peer, 1, 0, in), 0);
		assert_int_equal(rcs_tsend(a.ep, out, sizeof(out), a.peer, 1, out), 0);
		expect(&b, RCS_OP_RECV, RCS_OK, in);
		expect(&a, RCS_OP_SEND, RCS_OK, out);
	}
	pair_close();
}

/* While a message is being pushed too: its pieces go on, other messages of its source wait. */
static void unexpected_messages_are_bounded(void **state)
{
	enum { BIG = 100 << 20, N = 40000 };
	uint8_t *big = calloc(1, BIG), small[4096] = {0};
	struct rcs_completion c;
	uint64_t most = 0;
	bool done = false;
	int sent = 0, got = 0;

	(void)state;
	assert_non_null(big);
	pair_open(1, 0);
	assert_int_equal(rcs_trecv(b.ep, big, BIG, b.peer, 1, 0, big), 0);
	assert_int_equal(rcs_tsend(a.ep, big, BIG, a.peer, 1, NULL), 0);
	while (!done) {
		while (sent < N && !rcs_tsend(a.ep, small, sizeof(small), a.peer, 2, NULL))
			sent++;
		rcs_cq_read(a.cq, &c, 1);
		if (rcs_cq_read(b.cq, &c, 1) == 1) {
			assert_ptr_equal(c.context, big);
			assert_int_equal(c.status, 0);
			done = true;
		}
		if (b.ep->unexp_bytes > most)
			most = b.ep->unexp_bytes;
	}
	assert_true(most > CL_UNEXP_CAP / 2);
	assert_true(most <= CL_UNEXP_CAP + b.ep->ch.rx_credit);
	/* and they come when the user takes what is there */
	while (got < N) {
		while (sent < N && !rcs_tsend(a.ep, small, sizeof(small), a.peer, 2, NULL))
			sent++;
		assert_int_equal(rcs_trecv(b.ep, small, sizeof(small), b.peer, 2, 0, small), 0);
		while (rcs_cq_read(b.cq, &c, 1) != 1)
			rcs_cq_read(a.cq, NULL, 0);
		assert_int_equal(c.status, 0);
		got++;
	}
	pair_close();
	free(big);
}

/* The room that its submission ring lacked comes while everybody sleeps. */
static void an_armed_queue_fires_when_there_is_room(void **state)
{
	struct pollfd p = {.events = POLLIN};
	struct rcs_completion c;
	char x[1000] = {0};
	int n = 0;

	(void)state;
	fake.rx_size = 1 << 20;
	fake.credit0 = 200000;
	pair_open(1, 0);
	fake.paused = true;
	while (!a.ep->blocked && n < 1000) {
		assert_int_equal(rcs_tsend(a.ep, x, sizeof(x), a.peer, 1, NULL), 0);
		n++;
	}
	assert_true(a.ep->blocked);
	p.fd = rcs_cq_fd(a.cq);
	while (rcs_cq_arm(a.cq))
		rcs_cq_read(a.cq, &c, 1);
	assert_true(a.ep->blocked);
	fake.paused = false;
	assert_int_equal(poll(&p, 1, 20000), 1);
	pair_close();
}

/* ... and a link that was busy, of which no ring tells. */
static void a_blocked_send_goes_when_the_link_is_free(void **state)
{
	char x = 'x', y = 0;
	struct rcs_completion c;

	(void)state;
	pair_open(1, RCS_INIT_HELPER);
	usleep(20000); /* the helper sleeps, most likely; it must go either way */
	atomic_store(&fake.table[0]->node_tab[1].busy, 1);
	assert_int_equal(rcs_trecv(b.ep, &y, 1, b.peer, 1, 0, &y), 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, NULL), 0);
	assert_true(a.ep->blocked);
	/* as the daemon does */
	pthread_mutex_lock(&fake.lock);
	atomic_store(&fake.table[0]->node_tab[1].busy, 0);
	for (int i = 0; i < FAKE_CHANS; i++)
		if (fake.chan[i].used && fake.chan[i].shm && shm_ring_wake(&fake.chan[i].rx))
			fake_ring(&fake.chan[i]);
	pthread_mutex_unlock(&fake.lock);
	/* a makes no call */
	assert_int_equal(rcs_cq_wait(b.cq, &c, 1, 20000), 1);
	assert_int_equal(y, 'x');
	pair_close();
}

/* A rank that makes progress itself is not rung for: the helper leaves it to the rank. */
static void the_helper_costs_no_bell_while_the_rank_polls(void **state)
{
	int quiet = 0;

	(void)state;
	pair_open(1, RCS_INIT_HELPER);
	usleep(20000);
	for (int i = 0; i < 1000; i++) {
		rcs_cq_read(b.cq, NULL, 0);
		quiet += !b.ctx->sleepers;
	}
	assert_true(quiet > 900);
	pair_close();
}

static void notification(void)
{
	struct rcs_rma r = rma(local, 100, 0, RCS_PUT_NOTIFY);

	r.tag = 9;
	assert_int_equal(rcs_put(a.ep, &r), 0);
}

/* All credit is used up, so the notification cannot leave. */
static int use_up_credit(void)
{
	static char x[1000];
	int n = 0;

	while (!a.peer->pending) {
		assert_int_equal(rcs_tsend(a.ep, x, sizeof(x), a.peer, 1, NULL), 0);
		n++;
	}
	return n;
}

static void a_flush_awaits_notifications(void **state)
{
	struct rcs_completion c;
	int n, ends = 0;
	bool put_ended = false;

	(void)state;
	open_window(1);
	n = use_up_credit();
	notification();
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &ends), 0);
	for (int i = 0; i < 2000; i++) {
		if (rcs_cq_read(a.cq, &c, 1) == 1) {
			assert_int_not_equal(c.op, RCS_OP_FLUSH);
			put_ended |= c.op == RCS_OP_PUT;
		}
		usleep(10);
	}
	assert_true(put_ended);
	while (!ends) {
		rcs_cq_read(b.cq, NULL, 0);
		if (rcs_cq_read(a.cq, &c, 1) == 1 && c.op == RCS_OP_FLUSH)
			ends++;
	}
	for (int i = 0; i <= n; i++) { /* the notification is there, and the last */
		uint64_t tag = i < n ? 1 : 9;

		assert_int_equal(rcs_trecv(b.ep, local, sizeof(local), b.peer, 0, UINT64_MAX, NULL), 0);
		assert_int_equal(next(&b).tag, tag);
	}
	pair_close();
}

static void *progress(void *arg)
{
	struct rcs_completion c;

	while (!*(volatile bool *)arg)
		rcs_cq_read(b.cq, &c, 1);
	return NULL;
}

/* What was promised without a completion leaves before the endpoint closes. */
static void the_end_awaits_notifications_and_injected_messages(void **state)
{
	volatile bool stop = false;
	struct rcs_completion c;
	pthread_t t;
	char z = 'z';
	int n;

	(void)state;
	open_window(1);
	n = use_up_credit();
	notification();
	assert_int_equal(rcs_inject(a.ep, &z, 1, a.peer, 10, 0, 0), 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(rcs_trecv(b.ep, local, sizeof(local), b.peer, 1, 0, NULL), 0);
	pthread_create(&t, NULL, progress, (void *)(uintptr_t)&stop);
	rcs_ep_close(a.ep);
	stop = true;
	pthread_join(t, NULL);
	while (rcs_cq_read(b.cq, &c, 1) > 0)
		;
	for (uint64_t tag = 9; tag <= 10; tag++) {
		assert_int_equal(rcs_trecv(b.ep, local, sizeof(local), b.peer, tag, 0, local), 0);
		expect(&b, RCS_OP_RECV, RCS_OK, local);
	}
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_promised_fits_the_ring),
		cmocka_unit_test(to_ask_whether_a_source_is_there_costs_no_credit),
		cmocka_unit_test(unexpected_messages_are_bounded),
		cmocka_unit_test(an_armed_queue_fires_when_there_is_room),
		cmocka_unit_test(a_blocked_send_goes_when_the_link_is_free),
		cmocka_unit_test(the_helper_costs_no_bell_while_the_rank_polls),
		cmocka_unit_test(a_flush_awaits_notifications),
		cmocka_unit_test(the_end_awaits_notifications_and_injected_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
