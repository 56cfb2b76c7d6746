/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/loan.c: ranks register at the same time, die and stand still in the midst of it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/node.h"

#define RANKS 3

static struct rig {
	struct node n;
	struct chan *c[RANKS];
	int fd[RANKS];
} g;

static int setup(void **state)
{
	static char *names[] = {"n0"};

	(void)state;
	memset(&g, 0, sizeof(g));
	g.n.o.nodes = 1;
	g.n.o.names = names;
	g.n.epfd = epoll_create1(EPOLL_CLOEXEC);
	evlog_open(&g.n.log, "/dev/null", 1, 0, 0, "n0", 1 << 20);
	for (unsigned i = 0; i < RANKS; i++) {
		int fd[2];
		struct chan *c = calloc(1, sizeof(*c));

		assert_non_null(c);
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
		c->kind = CHAN_RANK;
		c->sock.fd = fd[0];
		c->bell.fd = c->rank_bell = c->memfd = -1;
		c->slot = (uint16_t)i;
		g.fd[i] = fd[1];
		g.c[i] = c;
		c->next = g.n.chans;
		g.n.chans = c;
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RANKS; i++) {
		close(g.c[i]->sock.fd);
		close(g.fd[i]);
		free(g.c[i]);
	}
	for (uint32_t i = 0; i < g.n.regions_n; i++)
		free(g.n.regions[i]);
	free(g.n.regions);
	evlog_close(&g.n.log);
	close(g.n.epfd);
	return 0;
}

/* The status that a rank reads; 1: no answer yet. */
static int answered(unsigned i, void *answer, size_t len)
{
	struct shm_msg *m = answer;

	return recv(g.fd[i], answer, len, MSG_DONTWAIT) > 0 ? m->status : 1;
}

static int lend_key(unsigned i, struct wire_key k, uint64_t addr, uint64_t len, struct wire_key *out)
{
	struct shm_lend l = {.addr = addr, .len = len, .key = k};
	struct shm_lent a = {0};
	int rc;

	loan_lend(&g.n, g.c[i], &l);
	rc = answered(i, &a, sizeof(a));
	if (out)
		*out = a.key;
	return rc;
}

static struct wire_key lend(unsigned i)
{
	struct wire_key k;

	assert_int_equal(lend_key(i, (struct wire_key){0, 0}, 4096, 4096, &k), 0);
	return k;
}

static int reg(unsigned i, struct wire_key k)
{
	struct shm_reg r = {.key = k};
	struct shm_msg m;

	loan_reg(&g.n, g.c[i], &r);
	return answered(i, &m, sizeof(m));
}

static void die(unsigned i)
{
	loan_chan_gone(&g.n, g.c[i]);
}

static void ranks_register_at_the_same_time(void **state)
{
	struct wire_key k[RANKS];

	(void)state;
	for (unsigned i = 0; i < RANKS; i++)
		k[i] = lend(i);
	for (unsigned i = RANKS; i--;)
		assert_int_equal(reg(i, k[i]), 0);
}

/* What it left is told from what others are registering when those have told. */
static void what_a_dead_rank_made_is_swept_when_the_others_have_told(void **state)
{
	struct wire_key k;

	(void)state;
	lend(0);
	k = lend(1);
	die(0);
	assert_true(g.n.sweep_due);
	assert_int_equal(lend_key(2, (struct wire_key){0, 0}, 4096, 4096, NULL), -EAGAIN);
	assert_int_equal(reg(1, k), 0);
	assert_false(g.n.sweep_due);
	lend(2);
}

static void a_rank_that_stands_still_costs_the_others_a_bounded_time(void **state)
{
	struct wire_key k, k1;

	(void)state;
	lend(0);
	k1 = lend(1); /* stopped by a debugger here */
	die(0);
	loan_tick(&g.n);
	assert_int_equal(lend_key(2, (struct wire_key){0, 0}, 4096, 4096, NULL), -EAGAIN);
	g.n.now = g.c[1]->loan.until;
	loan_tick(&g.n);
	assert_false(g.n.sweep_due);
	k = lend(2);
	/* it goes on: what it registered since is not believed, and swept when rank 2 has told */
	assert_int_equal(reg(1, k1), -ESTALE);
	assert_true(g.n.sweep_due);
	assert_int_equal(reg(2, k), 0);
	assert_false(g.n.sweep_due);
	k1 = lend(1);
	assert_int_equal(reg(1, k1), 0);
}

/* Its library did not wait for the answer to LEND, and asks again. */
static void who_gave_up_is_lent_to_again(void **state)
{
	struct wire_key k, given_up;

	(void)state;
	given_up = lend(0);
	k = lend(0);
	assert_null(region_find(&g.n, g.c[0], given_up));
	assert_int_equal(reg(0, given_up), -ENOENT);
	assert_int_equal(reg(0, k), 0);
}

static void nothing_is_registered_without_a_loan(void **state)
{
	struct wire_key k = lend(0);

	(void)state;
	assert_int_equal(reg(0, k), 0);
	assert_int_equal(reg(0, k), -ESTALE);
}

static void a_region_that_is_asked_for_with_another_length_stays_where_it_is(void **state)
{
	struct wire_key k = lend(0);

	(void)state;
	assert_int_equal(reg(0, k), 0);
	assert_int_equal(lend_key(0, k, 1 << 20, 8192, NULL), -EINVAL);
	assert_int_equal(region_find(&g.n, g.c[0], k)->addr, 4096);
	assert_int_equal(lend_key(0, k, 1 << 20, 4096, NULL), 0);
	assert_int_equal(region_find(&g.n, g.c[0], k)->addr, 1 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ranks_register_at_the_same_time, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_dead_rank_made_is_swept_when_the_others_have_told, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_rank_that_stands_still_costs_the_others_a_bounded_time, setup,
			teardown),
		cmocka_unit_test_setup_teardown(who_gave_up_is_lent_to_again, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_registered_without_a_loan, setup, teardown),
		cmocka_unit_test_setup_teardown(a_region_that_is_asked_for_with_another_length_stays_where_it_is,
			setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
