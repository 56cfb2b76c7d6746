/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching and canceling: which receive takes which message, and that there may be many of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_pair.h"

#define STEPS 3000

static struct model_recv {
	bool from_a, taken;
	uint64_t tag, ignore;
} recvs[STEPS];

static struct model_msg {
	bool taken;
	uint64_t tag;
} msgs[STEPS];

static bool fits(const struct model_recv *r, const struct model_msg *m)
{
	return !r->taken && !m->taken && !((r->tag ^ m->tag) & ~r->ignore);
}

/* What b's queue says next: receive i took message k. */
static void took(int i, int k)
{
	struct rcs_completion c = next(&b);

	assert_ptr_equal(c.context, &recvs[i]);
	assert_int_equal(c.data, k);
	recvs[i].taken = msgs[k].taken = true;
}

static void unexpected(uint64_t bytes)
{
	for (int i = 0; b.ep->unexp_bytes == bytes; i++) {
		assert_true(i < 10000000);
		rcs_cq_read(a.cq, NULL, 0);
		rcs_cq_read(b.cq, NULL, 0);
	}
}

/* Exact receives, of any source, of any tag: always the oldest that fits. */
static void the_oldest_that_fits(void **state)
{
	static const uint64_t ignore[] = {0, 0, 0, 1, 3, UINT64_MAX};
	int n = 0, sent = 0, i, k;

	(void)state;
	srand(7);
	pair_open(1, 0);
	for (int step = 0; step < STEPS; step++) {
		if (rand() % 2) {
			struct model_recv *r = &recvs[n];

			*r = (struct model_recv){.from_a = rand() % 2, .tag = (uint64_t)(rand() % 5),
				.ignore = ignore[rand() % 6]};
			for (k = 0; k < sent && !fits(r, &msgs[k]); k++)
				;
			assert_int_equal(rcs_trecv(b.ep, NULL, 0, r->from_a ? b.peer : NULL, r->tag, r->ignore, r),
				0);
			if (k < sent)
				took(n, k);
			n++;
		} else {
			struct rcs_msg m = {.flags = RCS_SEND_DATA | RCS_QUIET, .peer = a.peer,
				.tag = (uint64_t)(rand() % 5), .data = (uint64_t)sent};
			uint64_t bytes = b.ep->unexp_bytes;

			msgs[sent].tag = m.tag;
			for (i = 0; i < n && !fits(&recvs[i], &msgs[sent]); i++)
				;
			assert_int_equal(rcs_send(a.ep, &m), 0);
			if (i < n)
				took(i, sent);
			else
				unexpected(bytes);
			sent++;
		}
	}
	pair_close();
}

/* In reverse, so that each is the last of those that are there. */
static void many_unexpected_messages(void **state)
{
	enum { N = 50000 };
	static uint64_t from[N];
	struct rcs_completion c;
	uint64_t charge = WIRE_REC_SPACE(8), x;

	(void)state;
	pair_open(1, 0);
	for (uint64_t i = 0; i < N; i++) {
		from[i] = i;
		while (rcs_tsend(a.ep, &from[i], sizeof(i), a.peer, i, NULL))
			rcs_cq_read(b.cq, NULL, 0);
		if (rcs_cq_read(a.cq, &c, 1) == 1)
			assert_int_equal(c.status, 0);
		if (i % 16 == 0)
			rcs_cq_read(b.cq, NULL, 0);
	}
	while (b.ep->unexp_bytes < N * charge) {
		rcs_cq_read(b.cq, NULL, 0);
		rcs_cq_read(a.cq, &c, 1);
	}
	for (uint64_t i = N; i--;) {
		assert_int_equal(rcs_trecv(b.ep, &x, sizeof(x), i % 2 ? b.peer : NULL, i, 0, NULL), 0);
		assert_int_equal(rcs_cq_read(b.cq, &c, 1), 1);
		assert_int_equal(c.tag, i);
		assert_int_equal(x, i);
	}
	pair_close();
}

/* More than sends may wait, and each can be canceled. */
static void many_receives(void **state)
{
	enum { N = CL_SENDS_MAX + 5000 };
	static char buf[N];
	struct rcs_completion c;

	(void)state;
	pair_open(1, 0);
	for (uint64_t i = 0; i < N; i++)
		assert_int_equal(rcs_trecv(b.ep, &buf[i], 1, b.peer, i, 0, &buf[i]), 0);
	for (uint64_t i = 0; i < N; i++) {
		uint64_t k = i % 2 ? i / 2 : N - 1 - i / 2;

		assert_int_equal(rcs_cancel(b.ep, &buf[k]), 0);
		assert_int_equal(rcs_cq_read(b.cq, &c, 1), 1);
		assert_ptr_equal(c.context, &buf[k]);
		assert_int_equal(c.status, RCS_ERR_CANCELED);
	}
	assert_int_equal(rcs_cancel(b.ep, &buf[0]), RCS_ERR_INVALID);
	/* those of one context: the oldest first */
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(rcs_trecv(b.ep, &buf[i], 1, NULL, i, i % 2 ? 0 : 8, buf), 0);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(rcs_cancel(b.ep, buf), 0);
		assert_int_equal(rcs_cq_read(b.cq, &c, 1), 1);
		assert_int_equal(c.tag, i);
	}
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_oldest_that_fits),
		cmocka_unit_test(many_unexpected_messages),
		cmocka_unit_test(many_receives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
