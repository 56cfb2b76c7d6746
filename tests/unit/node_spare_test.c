/* SPDX-License-Identifier: BSD-3-Clause */
/* Which process is which rank: nodes a, b and c with two processes each, c stands by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/member.h"
#include "rcshare.h"

#define STEP 7

static char *names[] = {"a", "b", "c"};

static struct bed {
	struct node n;
	struct link *link[3];
	struct chan monitor;
	int far[8]; /* the ranks' ends of their sockets */
	unsigned ranks;
} bed;

static struct chan *connection(void)
{
	struct chan *c = calloc(1, sizeof(*c));
	int fd[2];

	assert_non_null(c);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	c->sock.fd = fd[0];
	bed.far[bed.ranks++] = fd[1];
	c->next = bed.n.chans;
	bed.n.chans = c;
	return c;
}

static void begin(uint32_t self)
{
	char room[sizeof(struct shm_monitor) + 64];
	struct shm_monitor *m = (struct shm_monitor *)(void *)room;

	bed.n.o.self = self;
	memset(room, 0, sizeof(room));
	m->step = STEP;
	m->spares = 1;
	m->len = (uint32_t)snprintf(m->nodes, 64, "a/2,b/2,c/2") + 1;
	member_begin(&bed.n, &bed.monitor, m);
}

static int set_up(void **state)
{
	(void)state;
	memset(&bed, 0, sizeof(bed));
	bed.n.o.nodes = 3;
	bed.n.o.names = names;
	bed.n.link = bed.link;
	bed.n.no_member = NODE_NONE;
	bed.n.cfg.node_timeout_ms = 1000;
	bed.n.log.fd = -1;
	bed.n.table = calloc(1, sizeof(*bed.n.table) + 3 * sizeof(struct shm_node));
	return bed.n.table ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	member_free_all(&bed.n);
	for (struct chan *c; (c = bed.n.chans);) {
		bed.n.chans = c->next;
		close(c->sock.fd);
		free(c);
	}
	while (bed.ranks)
		close(bed.far[--bed.ranks]);
	free(bed.n.table);
	return 0;
}

static struct chan *ask(uint32_t task)
{
	struct shm_place p = {.step = STEP, .task = task};
	struct chan *c = connection();

	spare_place(&bed.n, c, &p);
	return c;
}

/* What the latest of them was answered; -1: nothing yet. */
static int answered(struct shm_placed *out)
{
	ssize_t got = recv(bed.far[bed.ranks - 1], out, sizeof(*out), MSG_DONTWAIT);

	return got == sizeof(*out) ? out->result : -1;
}

static struct shm_there where(struct chan *c, uint32_t rank)
{
	struct shm_where w = {.rank = rank};
	struct shm_there t = {.result = -1};

	spare_where(&bed.n, c, &w);
	assert_int_equal(recv(bed.far[bed.ranks - 1], &t, sizeof(t), MSG_DONTWAIT), sizeof(t));
	return t;
}

static void ended(uint16_t node)
{
	struct wire_rec r = {.type = WIRE_REC_ENDED, .src_node = node, .data = STEP};

	spare_receive(&bed.n, &r);
}

static void an_active_rank_is_what_it_was(void **state)
{
	struct shm_placed p;

	(void)state;
	begin(1);
	ask(3);
	assert_int_equal(answered(&p), RCS_OK);
	assert_int_equal(p.rank, 3);
	assert_int_equal(p.ranks, 4);
	assert_int_equal(p.incarnation, 0);
	ask(0);
	assert_int_equal(answered(&p), RCS_ERR_INVALID); /* a process of node a */
}

static void who_asks_before_the_step_began_waits_for_that(void **state)
{
	struct shm_placed p;

	(void)state;
	bed.n.o.self = 0;
	ask(1);
	assert_int_equal(answered(&p), -1);
	begin(0);
	assert_int_equal(answered(&p), RCS_OK);
	assert_int_equal(p.rank, 1);
}

static void a_spare_waits_until_all_have_ended(void **state)
{
	struct shm_placed p;

	(void)state;
	begin(2);
	ask(4);
	assert_int_equal(answered(&p), -1);
	ended(0);
	assert_int_equal(answered(&p), -1);
	ended(1);
	assert_int_equal(answered(&p), RCS_NOT_NEEDED);
}

static void an_end_that_comes_before_the_step_is_kept(void **state)
{
	struct shm_placed p;

	(void)state;
	ended(0);
	ended(1);
	begin(2);
	ask(5);
	assert_int_equal(answered(&p), RCS_NOT_NEEDED);
	assert_null(bed.n.early);
}

static void a_rank_is_lost_and_then_elsewhere(void **state)
{
	struct core_view_act a = {.type = CORE_VIEW_ACT_LOST, .node = 1, .index = 1, .view = 1};
	struct member *m;
	struct shm_placed p;
	struct shm_there t;
	struct chan *c;

	(void)state;
	begin(0);
	c = ask(0);
	assert_int_equal(answered(&p), RCS_OK);
	assert_int_equal(where(c, 3).task, 3);
	assert_int_equal(where(c, 4).result, RCS_ERR_INVALID);
	m = member_find(&bed.n, STEP);
	spare_lost(m, &a);
	assert_int_equal(where(c, 3).result, RCS_ERR_NODE_LOST);
	a = (struct core_view_act){.type = CORE_VIEW_ACT_SWITCH, .node = 2, .index = 1, .incarnation = 1,
		.view = 1};
	spare_switch(&bed.n, m, &a);
	t = where(c, 3);
	assert_int_equal(t.result, RCS_OK);
	assert_int_equal(t.task, 5);
	assert_int_equal(t.incarnation, 1);
	assert_int_equal(where(c, 1).task, 1);
}

/* A node that has said that its ranks have ended, and then dies, is not begun again. */
static void what_another_step_lost_is_lost_to_this_one_too(void **state)
{
	struct link *l = calloc(2, sizeof(*l));

	(void)state;
	assert_non_null(l);
	begin(0);
	for (uint32_t i = 0; i < 2; i++) {
		l[i].n = &bed.n;
		l[i].peer = i + 1;
		l[i].lost = true;
		l[i].heard_at = 1;
		bed.link[i + 1] = &l[i];
	}
	bed.n.now = 1000000000;
	member_turn(&bed.n);
	assert_true(core_view_suspected(member_find(&bed.n, STEP)->view, 1));
	free(l);
}

static void whose_ranks_had_ended_is_not_replaced(void **state)
{
	struct core_view_act a = {.type = CORE_VIEW_ACT_LOST, .node = 1, .index = 1, .view = 1};
	struct shm_placed p;
	struct member *m;

	(void)state;
	begin(2);
	ask(4);
	ended(1);
	m = member_find(&bed.n, STEP);
	spare_lost(m, &a);
	a = (struct core_view_act){.type = CORE_VIEW_ACT_SWITCH, .node = 2, .index = 1, .incarnation = 1,
		.view = 1};
	spare_switch(&bed.n, m, &a);
	spare_settle(&bed.n);
	assert_int_equal(answered(&p), -1);
	ended(0);
	assert_int_equal(answered(&p), RCS_NOT_NEEDED);
}

static void who_waits_hears_that_the_node_is_out(void **state)
{
	struct shm_placed p;

	(void)state;
	begin(2);
	ask(4);
	member_removed(&bed.n);
	assert_int_equal(answered(&p), RCS_ERR_PARTITIONED);
}

static void without_membership_there_are_no_spares(void **state)
{
	struct shm_placed p;

	(void)state;
	bed.n.cfg.node_timeout_ms = 0;
	begin(2);
	ask(4);
	assert_int_equal(answered(&p), RCS_ERR_UNSUPPORTED);
	assert_non_null(strstr(p.m.sentence, "node_timeout_ms"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_active_rank_is_what_it_was),
		TEST(who_asks_before_the_step_began_waits_for_that),
		TEST(a_spare_waits_until_all_have_ended),
		TEST(an_end_that_comes_before_the_step_is_kept),
		TEST(a_rank_is_lost_and_then_elsewhere),
		TEST(what_another_step_lost_is_lost_to_this_one_too),
		TEST(whose_ranks_had_ended_is_not_replaced),
		TEST(who_waits_hears_that_the_node_is_out),
		TEST(without_membership_there_are_no_spares),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
