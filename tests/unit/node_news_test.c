/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/news.c: how often a node with many peers tells them all of what one rail did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/node.h"

#define PEERS 1000u
#define SEC   1000000000ull

static struct bed {
	struct node n;
	struct link *link[PEERS + 1];
	char *names[PEERS + 1];
	struct chan monitor;
	int far;
} bed;

static int set_up(void **state)
{
	int fd[2];

	(void)state;
	memset(&bed, 0, sizeof(bed));
	config_default(&bed.n.cfg);
	for (uint32_t i = 0; i <= PEERS; i++)
		bed.names[i] = "a";
	bed.n.o = (struct node_opts){.job = 9, .nodes = PEERS + 1, .names = bed.names};
	bed.n.link = bed.link;
	bed.n.log.fd = -1;
	bed.n.now = 5000 * SEC;
	bed.n.rank_chans = 1;
	bed.n.table = calloc(1, sizeof(*bed.n.table) + (PEERS + 1) * sizeof(struct shm_node));
	if (!bed.n.table || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		return -1;
	bed.monitor.kind = CHAN_MONITOR;
	bed.monitor.sock.fd = fd[0];
	bed.far = fd[1];
	bed.n.chans = &bed.monitor;
	for (uint32_t i = 1; i <= PEERS; i++) {
		struct link *l = calloc(1, sizeof(*l));

		if (!l)
			return -1;
		l->n = &bed.n;
		l->peer = i;
		l->bl_head = l->bl_tail = 0;
		core_link_init(&l->core, &(struct core_cfg){.rails = 2, .depth = 1}, bed.n.now);
		for (uint32_t k = 0; k < CORE_SLOTS; k++) /* what is said waits in the backlog */
			core_link_submit(&l->core, bed.n.now);
		l->next = bed.n.links;
		bed.n.links = bed.link[i] = l;
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= PEERS; i++) {
		free(bed.link[i]->slots);
		free(bed.link[i]->backlog);
		free(bed.link[i]);
	}
	close(bed.monitor.sock.fd);
	close(bed.far);
	free(bed.n.table);
	return 0;
}

/* The events that the notifier was told of, and of how many peers those of the code were. */
static unsigned told(uint32_t code, uint32_t *peers)
{
	struct shm_event_msg m;
	unsigned n = 0;

	*peers = 0;
	while (recv(bed.far, &m, sizeof(m), MSG_DONTWAIT) > 0)
		if (m.ev.code == code) {
			n++;
			*peers += m.ev.peers;
		}
	return n;
}

static void fails(struct link *l, enum core_reason why)
{
	struct core_failover f = {.lane = 1, .to_lane = 0, .reason = (uint8_t)why, .had_traffic = true};

	news_failover(l, &f);
}

static void pass(uint64_t ns)
{
	for (uint64_t end = bed.n.now + ns; bed.n.now < end; bed.n.now += SEC / 100)
		news_turn(&bed.n);
}

static void a_rail_that_fails_towards_all_is_told_twice(void **state)
{
	uint32_t peers;
	unsigned n;

	(void)state;
	for (uint32_t i = 1; i <= PEERS; i++) {
		fails(bed.link[i], CORE_R_SILENT);
		if (!(i % 20))
			pass(SEC / 100);
	}
	pass(2 * SEC);
	n = told(SHM_EV_RAIL_FAILED, &peers);
	assert_in_range(n, 2, 3);
	assert_int_equal(peers, PEERS); /* none is left out */
	for (uint32_t i = 1; i <= PEERS; i++)
		news_lane_back(bed.link[i], 1);
	pass(2 * SEC);
	n = told(SHM_EV_RAIL_BACK, &peers);
	assert_in_range(n, 1, 2);
	assert_int_equal(peers, PEERS);
}

static void what_is_over_before_it_was_told_is_not_told(void **state)
{
	uint32_t peers;

	(void)state;
	fails(bed.link[1], CORE_R_SILENT);
	fails(bed.link[2], CORE_R_COMPLETION);
	news_lane_back(bed.link[2], 1);
	pass(3 * SEC);
	assert_int_equal(told(SHM_EV_RAIL_FAILED, &peers), 1);
	assert_int_equal(peers, 1);
	news_lane_back(bed.link[1], 1);
	pass(3 * SEC);
	assert_int_equal(told(SHM_EV_RAIL_BACK, &peers), 1);
	assert_int_equal(peers, 1);
}

static void a_port_that_fails_is_told_once_and_of_all(void **state)
{
	uint32_t peers;

	(void)state;
	for (uint32_t i = 1; i <= PEERS; i++)
		fails(bed.link[i], CORE_R_PORT);
	pass(2 * SEC);
	assert_int_equal(told(SHM_EV_RAIL_FAILED, &peers), 1);
	assert_int_equal(peers, PEERS);
}

/* Own ranks hear of each. */
static void peers_that_are_cut_off_are_not_told_to_all_by_all(void **state)
{
	size_t held = 0;
	uint32_t peers;

	(void)state;
	for (uint32_t i = 1; i <= PEERS; i++) {
		news_reachable(bed.link[i], false);
		if (!(i % 50))
			assert_int_equal(told(SHM_EV_PEER_UNREACHABLE, &peers), 50);
	}
	for (uint32_t i = 1; i <= PEERS; i++)
		held += bed.link[i]->bl_tail;
	assert_in_range(held / PEERS, 1, 8 * (sizeof(struct shm_event) + 128));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_rail_that_fails_towards_all_is_told_twice),
		TEST(what_is_over_before_it_was_told_is_not_told),
		TEST(a_port_that_fails_is_told_once_and_of_all),
		TEST(peers_that_are_cut_off_are_not_told_to_all_by_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
