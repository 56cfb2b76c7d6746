/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/member.c: steps of node `self` of a job of three, a, b and c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/member.h"

#define MS 1000000ull

static char *names[] = {"a", "b", "c"};

static struct bed {
	struct node n;
	struct link *link[3];
	struct chan monitor;
	int far; /* the notifier's end */
	uint32_t state; /* of node b in the table when the event of PARTITIONED was sent */
	uint32_t spares;
	uint64_t clock; /* 0: the turn has just looked at it */
} bed;

/* The daemon's: these stand before the C library's. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t ns = bed.clock ? bed.clock : bed.n.now;

	(void)id;
	*t = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	return 0;
}

ssize_t send(int fd, const void *msg, size_t len, int flags)
{
	const struct shm_event_msg *m = msg;

	if (len == sizeof(*m) && m->ev.code == SHM_EV_PARTITIONED)
		bed.state = atomic_load(&bed.n.table->node_tab[1].state);
	return sendto(fd, msg, len, flags, NULL, 0);
}

static int set_up(void **state)
{
	int fd[2];

	(void)state;
	memset(&bed, 0, sizeof(bed));
	config_default(&bed.n.cfg);
	bed.n.cfg.node_timeout_ms = 1000;
	bed.n.o.nodes = 3;
	bed.n.o.names = names;
	bed.n.link = bed.link;
	bed.n.no_member = NODE_NONE;
	bed.n.log.fd = -1;
	bed.n.now = 10000000 * MS;
	bed.n.table = calloc(1, sizeof(*bed.n.table) + 3 * sizeof(struct shm_node));
	if (!bed.n.table || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return -1;
	bed.monitor.kind = CHAN_MONITOR;
	bed.monitor.sock.fd = fd[0];
	bed.n.chans = &bed.monitor;
	bed.far = fd[1];
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	member_free_all(&bed.n);
	while (bed.n.links) {
		struct link *l = bed.n.links;

		bed.n.links = l->next;
		link_free(l);
	}
	close(bed.monitor.sock.fd);
	close(bed.far);
	free(bed.n.table);
	return 0;
}

/* In contact with both others, as far as they are not lost. */
static struct member *begin(uint32_t self, const char *nodes)
{
	char room[sizeof(struct shm_monitor) + 64];
	struct shm_monitor *m = (struct shm_monitor *)(void *)room;

	bed.n.o.self = self;
	for (uint32_t i = 0; i < 3; i++)
		if (i != self) {
			core_link_want(&link_get(&bed.n, i)->core, bed.n.now);
			bed.link[i]->heard_at = bed.n.now;
		}
	memset(room, 0, sizeof(room));
	m->step = 7;
	m->spares = bed.spares;
	m->len = (uint32_t)snprintf(m->nodes, 64, "%s", nodes) + 1;
	member_begin(&bed.n, &bed.monitor, m);
	for (uint32_t i = 0; i < 3; i++)
		if (i != self && !bed.link[i]->lost)
			bed.link[i]->heard_at = bed.n.now;
	return member_find(&bed.n, 7);
}

/* The others are heard all the time, but those that are lost. */
static void turns(uint64_t ms)
{
	for (uint64_t end = bed.n.now + ms * MS; bed.n.now < end; bed.n.now += 10 * MS) {
		for (uint32_t i = 0; i < 3; i++)
			if (bed.link[i] && !bed.link[i]->lost)
				bed.link[i]->heard_at = bed.n.now;
		member_turn(&bed.n);
	}
}

/* The notifier was told so of node b. */
static bool told(uint32_t code)
{
	struct shm_event_msg m;

	while (recv(bed.far, &m, sizeof(m), MSG_DONTWAIT) > 0)
		if (m.m.type == SHM_MSG_EVENT && m.ev.code == code && m.ev.peer == 1)
			return true;
	return false;
}

/* Its daemon died when no step was under way: it is started for this one. */
static void what_was_seen_before_the_step_is_no_evidence(void **state)
{
	struct link *l;

	(void)state;
	l = link_get(&bed.n, 1);
	l->refused = true;
	l->heard_at = 1;
	(void)begin(0, "a/1,b/1,c/1");
	assert_false(l->refused);
	turns(100);
	assert_false(told(SHM_EV_NODE_SUSPECTED));
}

static void what_was_heard_after_a_long_sleep_is_not_of_tomorrow(void **state)
{
	struct member *m = begin(0, "a/1,b/1,c/1");

	(void)state;
	turns(200);
	bed.n.now += 3600000 * MS; /* the host stood still for an hour */
	member_turn(&bed.n);
	assert_false(core_view_suspected(m->view, 1));
	for (int i = 0; i < 500; i++) { /* and node b says no more */
		bed.n.now += 10 * MS;
		bed.link[2]->heard_at = bed.n.now;
		member_turn(&bed.n);
	}
	assert_true(core_view_suspected(m->view, 1));
	assert_false(core_view_suspected(m->view, 2));
}

static void a_node_that_an_earlier_step_has_lost_is_suspected(void **state)
{
	struct member *m;

	(void)state;
	link_lost(link_get(&bed.n, 1));
	m = begin(0, "a/1,b/1,c/1");
	turns(200);
	assert_true(core_view_suspected(m->view, 1));
	assert_false(core_view_suspected(m->view, 2));
	assert_false(bed.n.parted);
}

static void the_lower_of_two_loses_it_again_and_says_so(void **state)
{
	struct member *m;

	(void)state;
	link_lost(link_get(&bed.n, 1));
	m = begin(0, "a/1,b/1");
	turns(3000);
	assert_false(core_view_member(m->view, 1));
	assert_true(told(SHM_EV_NODE_LOST));
	assert_false(bed.n.parted);
}

static void the_higher_of_two_does_not_stop_for_it(void **state)
{
	struct member *m;

	(void)state;
	link_lost(link_get(&bed.n, 1));
	m = begin(2, "b/1,c/1");
	turns(20000);
	assert_false(core_view_suspected(m->view, 0));
	assert_false(bed.n.parted);
}

static void who_reads_of_its_own_removal_stops(void **state)
{
	struct core_view_msg v = {.type = CORE_VIEW_LOG, .src = 0, .dst = 1, .via = CORE_VIEW_NONE, .view = 1,
		.known = 1, .n = 1, .set = {1 | CORE_VIEW_END}};
	struct wire_rec r = {.type = WIRE_REC_VIEW, .data = 7, .len = sizeof(v)};

	(void)state;
	begin(1, "a/1,b/1,c/1");
	member_receive(&bed.n, &r, &v);
	member_turn(&bed.n);
	assert_true(bed.n.parted);
	assert_null(bed.link[1]); /* none to itself */
	assert_false(told(SHM_EV_NODE_LOST));
}

/* The daemon stood still between its turn's look at the clock and the message: that is no part of the wait. */
static void a_spare_waits_from_when_it_reads_the_news(void **state)
{
	struct core_view_msg v = {.type = CORE_VIEW_LOG, .src = 0, .dst = 2, .via = CORE_VIEW_NONE, .view = 1,
		.known = 1, .n = 1, .set = {1 | CORE_VIEW_END}};
	struct wire_rec r = {.type = WIRE_REC_VIEW, .data = 7, .len = sizeof(v)};
	struct member *m;

	(void)state;
	bed.spares = 1;
	m = begin(2, "a/1,b/1,c/1");
	bed.clock = bed.n.now + 5000 * MS;
	member_receive(&bed.n, &r, &v);
	bed.n.now = bed.clock + 1000 * MS; /* a lease that was renewed just before it is good still */
	member_turn(&bed.n);
	assert_true(m->index[1].gone);
	bed.n.now = bed.clock + 2000 * MS;
	member_turn(&bed.n);
	assert_false(m->index[1].gone);
	assert_int_equal(m->index[1].node, 2);
}

static void the_ranks_hear_of_the_partition_before_all_others_are_down(void **state)
{
	(void)state;
	begin(0, "a/1,b/1,c/1");
	bed.state = SHM_NODE_DOWN;
	atomic_store(&bed.n.table->node_tab[1].lanes_up, 1u << CORE_LANE_TCP);
	atomic_store(&bed.n.table->node_tab[1].lane, CORE_LANE_TCP);
	member_removed(&bed.n);
	assert_int_equal(bed.state, SHM_NODE_CONNECTING);
	assert_int_equal(atomic_load(&bed.n.table->node_tab[1].state), SHM_NODE_DOWN);
	assert_int_equal(atomic_load(&bed.n.table->node_tab[1].lanes_up), 0);
	assert_int_equal(atomic_load(&bed.n.table->node_tab[1].lane), SHM_LANE_NONE);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_heard_after_a_long_sleep_is_not_of_tomorrow),
		TEST(what_was_seen_before_the_step_is_no_evidence),
		TEST(a_node_that_an_earlier_step_has_lost_is_suspected),
		TEST(the_lower_of_two_loses_it_again_and_says_so),
		TEST(the_higher_of_two_does_not_stop_for_it),
		TEST(who_reads_of_its_own_removal_stops),
		TEST(a_spare_waits_from_when_it_reads_the_news),
		TEST(the_ranks_hear_of_the_partition_before_all_others_are_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
