/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints that end: what their peers hear, and when their own memory is theirs again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_window.h"

static void end(struct side *s)
{
	rcs_fini(s->ctx);
	s->ctx = NULL;
}

static void pair_end(void)
{
	if (a.ctx)
		end(&a);
	if (b.ctx)
		end(&b);
	assert_false(fake.overflow);
	fake_stop();
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
}

/* Of a peer that closed in good order, whether it has ever sent something or not. */
static void receives_end_on(unsigned node_b)
{
	char x[4], y = 'y';

	pair_open(node_b, 0);
	assert_int_equal(rcs_trecv(a.ep, &x[0], 1, a.peer, 1, 0, &x[0]), 0);
	settle();
	end(&b);
	expect(&a, RCS_OP_RECV, RCS_ERR_PEER_GONE, &x[0]);
	assert_int_equal(rcs_trecv(a.ep, &x[1], 1, a.peer, 1, 0, &x[1]), RCS_ERR_PEER_GONE);
	/* from any they go on */
	assert_int_equal(rcs_trecv(a.ep, &x[2], 1, NULL, 1, 0, &x[2]), 0);
	nothing(&a);
	pair_end();

	/* posted behind the end, and behind what was sent before */
	pair_open(node_b, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rcs_tsend(b.ep, &y, 1, b.peer, 1, NULL), 0);
	end(&b);
	for (int i = 0; i < 3; i++) {
		x[i] = 0;
		assert_int_equal(rcs_trecv(a.ep, &x[i], 1, a.peer, 1, 0, &x[i]), 0);
		expect(&a, RCS_OP_RECV, RCS_OK, &x[i]);
		assert_int_equal(x[i], 'y');
	}
	if (!rcs_trecv(a.ep, &x[3], 1, a.peer, 1, 0, &x[3]))
		expect(&a, RCS_OP_RECV, RCS_ERR_PEER_GONE, &x[3]);
	assert_int_equal(rcs_trecv(a.ep, &x[3], 1, a.peer, 1, 0, &x[3]), RCS_ERR_PEER_GONE);
	pair_end();
}

static void receives_end_on_one_node(void **state)
{
	(void)state;
	receives_end_on(0);
}

static void receives_end_on_two_nodes(void **state)
{
	(void)state;
	receives_end_on(1);
}

/* An endpoint that was gone before anything went there. */
static void a_receive_from_an_address_of_the_past_ends(void **state)
{
	struct rcs_addr past;
	struct rcs_error err;
	rcs_peer *p;
	char x;

	(void)state;
	pair_open(1, 0);
	past = b.addr;
	end(&b);
	settle();
	assert_int_equal(rcs_peer_insert(a.ep, &past, &p, &err), 0);
	if (!rcs_trecv(a.ep, &x, 1, p, 1, 0, &x))
		expect(&a, RCS_OP_RECV, RCS_ERR_PEER_GONE, &x);
	pair_end();
}

/* Short ones for lack of credit, an announced one that nobody has read. */
static void sends_end_when_the_receiver_has_read_nothing(void **state)
{
	static uint8_t big[100000];
	struct rcs_completion c;
	char x = 'x';
	int sent = 0, ok = 0, gone = 0;

	(void)state;
	pair_open(1, 0);
	for (int i = 0; i < 3000; i++)
		sent += !rcs_tsend(a.ep, &x, 1, a.peer, 1, &x);
	assert_int_equal(sent, 3000);
	assert_int_equal(rcs_tsend(a.ep, big, sizeof(big), a.peer, 2, big), 0);
	end(&b);
	for (int i = 0; i < 3001; i++) {
		c = next(&a);
		ok += c.status == RCS_OK;
		gone += c.status == RCS_ERR_PEER_GONE;
	}
	assert_true(gone > 0);
	assert_int_equal(ok + gone, 3001);
	pair_end();

	pair_open(0, 0);
	assert_int_equal(rcs_tsend(a.ep, big, sizeof(big), a.peer, 2, big), 0);
	end(&b);
	expect(&a, RCS_OP_SEND, RCS_ERR_PEER_GONE, big);
	pair_end();
}

/* Its buffer is used for something else when the endpoint is closed: that is no message. */
static void what_a_closed_endpoint_announced_is_not_read(void **state)
{
	static uint8_t from[100000], to[100000];
	rcs_claim *claim = NULL;

	(void)state;
	pair_open(0, 0);
	assert_int_equal(rcs_tsend(a.ep, from, sizeof(from), a.peer, 1, NULL), 0);
	while (rcs_probe(b.ep, b.peer, 1, 0, NULL, &claim) != 1)
		rcs_cq_read(a.cq, NULL, 0);
	end(&a);
	memset(from, 7, sizeof(from));
	settle();
	assert_int_equal(rcs_recv_claimed(b.ep, claim, to, sizeof(to), to), 0);
	expect(&b, RCS_OP_RECV, RCS_ERR_PEER_GONE, to);
	pair_end();

	/* neither where its receiver has not yet heard of the end */
	pair_open(0, 0);
	assert_int_equal(rcs_trecv(b.ep, to, sizeof(to), b.peer, 1, 0, to), 0);
	settle();
	memset(from, 0, sizeof(from));
	assert_int_equal(rcs_tsend(a.ep, from, sizeof(from), a.peer, 1, NULL), 0);
	end(&a);
	memset(from, 7, sizeof(from));
	expect(&b, RCS_OP_RECV, RCS_ERR_PEER_GONE, to);
	pair_end();
}

/* The endpoint is lost, its daemon lives and has a get of it under way. */
static void a_lost_endpoint_awaits_the_daemon(void **state)
{
	rcs_region *r;
	struct rcs_rma g;
	struct rcs_completion c;

	(void)state;
	open_window(1);
	assert_int_equal(rcs_region_open(a.ctx, local, sizeof(local), &r, NULL), 0);
	fake.hold_rma = true;
	fake.hold_end = true;
	memset(win, 5, 1000);
	memset(local, 0, 1000);
	g = rma(local, 1000, 0, 0);
	g.region = r;
	assert_int_equal(rcs_get(a.ep, &g), 0);
	held(1);
	a.ep->dying = RCS_ERR_NOMEM;
	nothing(&a);
	assert_int_equal(rcs_put(a.ep, &g), RCS_ERR_NOMEM);
	assert_int_equal(rcs_region_close(r), RCS_ERR_BUSY);
	assert_int_equal(rcs_cq_read(a.cq, &c, 1), 0);
	fake_release(0);
	assert_int_equal(local[999], 5); /* it did write */
	fake.hold_end = false;
	expect(&a, RCS_OP_GET, RCS_ERR_NOMEM, local);
	assert_int_equal(rcs_region_close(r), 0);
	assert_int_equal(rcs_cq_read(a.cq, &c, 1), RCS_ERR_NOMEM);
	pair_end();
}

/* Others may be at a region whose key they have. */
static void a_region_of_a_lost_endpoint_awaits_the_daemon(void **state)
{
	(void)state;
	open_window(1);
	fake.hold_end = true;
	b.ep->dying = RCS_ERR_NOMEM;
	settle();
	assert_int_equal(rcs_region_close(win_region), RCS_ERR_TIMEOUT);
	win[0] = 1; /* still mapped */
	fake.hold_end = false;
	assert_int_equal(rcs_region_close(win_region), 0);
	pair_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(receives_end_on_one_node),
		cmocka_unit_test(receives_end_on_two_nodes),
		cmocka_unit_test(a_receive_from_an_address_of_the_past_ends),
		cmocka_unit_test(sends_end_when_the_receiver_has_read_nothing),
		cmocka_unit_test(what_a_closed_endpoint_announced_is_not_read),
		cmocka_unit_test(a_lost_endpoint_awaits_the_daemon),
		cmocka_unit_test(a_region_of_a_lost_endpoint_awaits_the_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
