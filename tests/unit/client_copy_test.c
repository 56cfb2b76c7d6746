/* SPDX-License-Identifier: BSD-3-Clause */
/* Long messages within a node: they are copied in pieces, and others have the lock between two of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_pair.h"

#define LEN (128u << 20) /* eight pieces */

static uint8_t *from, *to;

static void begin(void)
{
	pair_open(0, 0);
	from = malloc(LEN);
	to = calloc(1, LEN);
	assert_non_null(from);
	assert_non_null(to);
	memset(from, 7, LEN);
	assert_int_equal(rcs_tsend(a.ep, from, LEN, a.peer, 1, from), 0);
	while (!b.ep->unexp)
		settle();
}

static void finish(void)
{
	assert_memory_equal(from, to, LEN);
	expect(&a, RCS_OP_SEND, RCS_OK, from);
	pair_close();
	free(from);
	free(to);
}

static void one_call_copies_one_piece(void **state)
{
	(void)state;
	begin();
	assert_int_equal(rcs_trecv(b.ep, to, LEN, b.peer, 1, 0, to), 0);
	assert_int_equal(to[0], 7);
	assert_int_equal(to[LEN / 2], 0);
	rcs_cq_read(b.cq, NULL, 0);
	assert_int_equal(to[LEN / 2], 0);
	expect(&b, RCS_OP_RECV, RCS_OK, to);
	finish();
}

/* Nobody is told of the pieces: who sleeps must not, as long as there are any. */
static void a_waiting_thread_copies_to_the_end(void **state)
{
	struct rcs_completion c;

	(void)state;
	begin();
	assert_int_equal(rcs_trecv(b.ep, to, LEN, b.peer, 1, 0, to), 0);
	assert_int_equal(rcs_cq_wait(b.cq, &c, 1, -1), 1);
	assert_int_equal(c.status, RCS_OK);
	finish();
}

static void *copy(void *arg)
{
	rcs_cq_wait(b.cq, arg, 1, -1);
	return NULL;
}

/* true: this thread had the lock while the other one copied. */
static bool gets_in(void)
{
	struct rcs_completion c = {0};
	struct rcs_error err;
	rcs_cntr *cntr;
	bool before;
	pthread_t t;

	begin();
	assert_int_equal(rcs_cntr_open(b.ctx, &cntr, &err), 0);
	assert_int_equal(rcs_trecv(b.ep, to, LEN, b.peer, 1, 0, to), 0);
	b.ctx->few_cpus = false; /* then nobody yields for their sake */
	pthread_create(&t, NULL, copy, &c);
	while (!*(volatile uint8_t *)(to + LEN / 8))
		sched_yield(); /* until the second piece has begun */
	rcs_cntr_errors(cntr);
	before = !*(volatile uint8_t *)(to + LEN - 1);
	pthread_join(t, NULL);
	assert_int_equal(c.status, RCS_OK);
	finish();
	return before;
}

static void others_have_the_lock_between_pieces(void **state)
{
	bool in = false;

	(void)state;
	/* a host that is busy may not run this thread in time */
	for (int i = 0; i < 10 && !in; i++)
		in = gets_in();
	assert_true(in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_call_copies_one_piece),
		cmocka_unit_test(a_waiting_thread_copies_to_the_end),
		cmocka_unit_test(others_have_the_lock_between_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
