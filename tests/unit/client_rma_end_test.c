/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided requests when the peer, its node, the endpoint or the daemon goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_window.h"

static void peer_gone(void **state)
{
	char x = 'x';

	(void)state;
	open_window(1);
	fake.hold_rma = true;
	assert_int_equal(get(local, 8, 0), 0);
	assert_int_equal(put(local + 64, 8, 0, 0), 0);
	held(2);
	rcs_fini(b.ctx);
	b.ctx = NULL;
	b.cq = NULL;
	usleep(10000);
	/* something else is answered by GONE: what a daemon may be working on is not forgotten by it */
	assert_int_equal(rcs_inject(a.ep, &x, 1, a.peer, 1, 0, 0), 0);
	for (int i = 0; i < 500 && !a.peer->gone; i++)
		settle();
	assert_int_equal(a.peer->rma_n, 2);
	nothing(&a);
	assert_int_equal(put(local, 8, 0, 0), RCS_ERR_PEER_GONE);
	fake_release(0);
	expect(&a, RCS_OP_GET, RCS_ERR_PEER_GONE, local);
	fake_release(1);
	expect(&a, RCS_OP_PUT, RCS_ERR_PEER_GONE, local + 64);
	nothing(&a);
	assert_int_equal(add(1, NULL, 0), RCS_ERR_PEER_GONE);
	assert_int_equal(a.ctx->sends_n, 0);
	rcs_fini(a.ctx);
	a.ctx = NULL;
	fake_stop();
}

/* GONE as the answer to a request itself. */
static void nobody_there(void **state)
{
	(void)state;
	open_window(1);
	rcs_fini(b.ctx);
	b.ctx = NULL;
	b.cq = NULL;
	usleep(10000);
	fake.hold_rma = true;
	assert_int_equal(put(local, 8, 0, RCS_PUT_NOTIFY), 0);
	assert_int_equal(add(1, NULL, 0), 0);
	held(2);
	fake_release(1);
	expect(&a, RCS_OP_ATOMIC, RCS_ERR_PEER_GONE, NULL);
	nothing(&a);
	fake_release(0);
	expect(&a, RCS_OP_PUT, RCS_ERR_PEER_GONE, local);
	nothing(&a);
	assert_int_equal(a.ctx->sends_n, 0);
	rcs_fini(a.ctx);
	a.ctx = NULL;
	fake_stop();
}

/* The target's daemon answers no atomic any more; the own one answers puts and gets. */
static void node_lost(void **state)
{
	char f;

	(void)state;
	open_window(1);
	fake.hold_rma = true;
	assert_int_equal(get(local, 8, 0), 0);
	assert_int_equal(add(1, NULL, 0), 0);
	held(2);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &f), 0);
	fake.paused = true;
	for (int i = 0; i < 100; i++) /* more than the ring takes */
		assert_int_equal(put(local + 64, 4000, 0, 0), 0);
	atomic_store(&fake.table[0]->node_tab[1].state, SHM_NODE_DOWN);
	expect(&a, RCS_OP_ATOMIC, RCS_ERR_NODE_LOST, NULL);
	fake.paused = false;
	for (int i = 0; i < 100 && a.peer->rma_next; i++)
		settle();
	assert_null(a.peer->rma_next);
	assert_int_equal(put(local, 8, 0, 0), RCS_ERR_NODE_LOST);
	assert_ptr_equal(a.peer->rma->context, local); /* the get is still the daemon's */
	fake.rma_status = RCS_ERR_NODE_LOST;
	fake_release(0);
	for (int n = 0;;) {
		struct rcs_completion c = next(&a);

		if (c.op == RCS_OP_FLUSH) {
			assert_int_equal(c.status, 0);
			break;
		}
		assert_true(++n <= 101);
		assert_int_equal(c.status, RCS_ERR_NODE_LOST);
	}
	fake.hold_rma = false;
	for (unsigned i = 1; i < fake.nheld; i++)
		fake_release(i);
	settle();
	assert_int_equal(a.peer->rma_n, 0);
	pair_close();
}

static void peer_removed(void **state)
{
	struct rcs_rma r;
	char f;

	(void)state;
	open_window(1);
	fake.hold_rma = true;
	r = rma(local, 8, 0, RCS_PUT_NOTIFY);
	assert_int_equal(rcs_put(a.ep, &r), 0);
	held(1);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &f), 0);
	fake.paused = true;
	while (!a.peer->rma_next)
		assert_int_equal(put(local + 64, 4000, 0, RCS_QUIET), 0);
	rcs_peer_remove(a.peer);
	expect(&a, RCS_OP_FLUSH, RCS_ERR_CANCELED, &f);
	expect(&a, RCS_OP_PUT, RCS_ERR_CANCELED, local + 64);
	fake.hold_rma = fake.paused = false;
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, local); /* submitted: as it does */
	nothing(&b);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, NULL), RCS_ERR_INVALID);
	assert_int_equal(put(local, 8, 0, 0), RCS_ERR_INVALID);
	pair_close();
}

static void canceled_flush(void **state)
{
	char f, x = 'x';

	(void)state;
	open_window(1);
	fake.hold_rma = true;
	assert_int_equal(put(local, 8, 0, 0), 0);
	assert_int_equal(rcs_flush(a.ep, NULL, 0, &f), 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, &x), 0);
	held(1);
	nothing(&a);
	assert_int_equal(rcs_cancel(a.ep, &f), 0);
	expect(&a, RCS_OP_FLUSH, RCS_ERR_CANCELED, &f);
	expect(&a, RCS_OP_SEND, 0, &x);
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, local);
	pair_close();
}

static void *release_soon(void *arg)
{
	usleep(50000);
	*(volatile bool *)arg = true;
	fake_release(0);
	return NULL;
}

/* Closing awaits what a daemon may still write into the user's memory. */
static void close_awaits_gets(void **state)
{
	bool released = false;
	pthread_t t;

	(void)state;
	open_window(1);
	fake.hold_rma = true;
	memset(win, 0x5a, 8);
	memset(local, 0, 8);
	assert_int_equal(get(local, 8, 0), 0);
	held(1);
	pthread_create(&t, NULL, release_soon, &released);
	rcs_ep_close(a.ep);
	assert_true(released);
	assert_int_equal(local[7], 0x5a);
	pthread_join(t, NULL);
	expect(&a, RCS_OP_GET, 0, local);
	pair_close();
}

static void runtime_lost(void **state)
{
	struct rcs_completion c;
	struct rcs_rma r;
	int ended[8] = {0}, n;
	char f;

	(void)state;
	open_window(0);
	fake.hold_rma = true;
	assert_int_equal(put(local, 8, 0, 0), 0);
	r = rma(local, 8, 0, RCS_PUT_NOTIFY);
	assert_int_equal(rcs_put(a.ep, &r), 0);
	assert_int_equal(get(local + 64, 8, 0), 0);
	assert_int_equal(add(1, NULL, 0), 0);
	/* the flush has the place of one that ended, behind those it waits for */
	held(4);
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &f), 0);
	fake_stop();
	while ((n = rcs_cq_wait(a.cq, &c, 1, 5000)) == 1) {
		assert_int_equal(c.status, RCS_ERR_RUNTIME_LOST);
		ended[c.op]++;
	}
	assert_int_equal(n, RCS_ERR_RUNTIME_LOST);
	assert_true(ended[RCS_OP_PUT] == 1 && ended[RCS_OP_GET] == 1 && ended[RCS_OP_ATOMIC] == 1 &&
		ended[RCS_OP_FLUSH] == 1 && !ended[RCS_OP_SEND]);
	assert_int_equal(put(local, 8, 0, 0), RCS_ERR_RUNTIME_LOST);
	assert_int_equal(add(1, NULL, 0), RCS_ERR_RUNTIME_LOST);
	assert_int_equal(rcs_flush(a.ep, NULL, 0, NULL), RCS_ERR_RUNTIME_LOST);
	rcs_fini(a.ctx);
	rcs_fini(b.ctx);
	a.ctx = b.ctx = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peer_gone),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(node_lost),
		cmocka_unit_test(peer_removed),
		cmocka_unit_test(canceled_flush),
		cmocka_unit_test(close_awaits_gets),
		cmocka_unit_test(runtime_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
