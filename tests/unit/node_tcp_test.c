/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/tcp.c: what two daemons tell each other while they connect, once one of them is lost. */
#include <arpa/inet.h>
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

#include "node/fabric.h"
#include "node/member.h"
#include "node/rails.h"

#define NODES 3
#define TURN_NS 2000000ull

static char *names[] = {"a", "b", "c"};

static struct bed {
	struct node n[NODES];
	struct link *link[NODES][NODES];
} bed;

static void monitored(struct node *n)
{
	static struct chan monitor = {.kind = CHAN_MONITOR, .sock.fd = -1};
	char room[sizeof(struct shm_monitor) + 16];
	struct shm_monitor *m = (struct shm_monitor *)(void *)room;

	memset(room, 0, sizeof(room));
	m->step = 1;
	m->len = (uint32_t)snprintf(m->nodes, 16, "a/1,b/1,c/1") + 1;
	member_begin(n, &monitor, m);
}

static int daemon_starts(uint32_t i)
{
	static uint32_t starts;
	struct node *n = &bed.n[i];
	char why[SHM_SENTENCE];

	memset(n, 0, sizeof(*n));
	memset(bed.link[i], 0, sizeof(bed.link[i]));
	config_default(&n->cfg);
	n->o = (struct node_opts){.job = 9, .self = i, .nodes = NODES, .names = names};
	n->incarnation = ++starts;
	n->no_member = NODE_NONE;
	n->link = bed.link[i];
	n->log.fd = -1;
	n->now = node_clock();
	n->epfd = epoll_create1(EPOLL_CLOEXEC);
	n->table = calloc(1, sizeof(*n->table) + NODES * sizeof(struct shm_node));
	if (n->epfd < 0 || !n->table || tcp_listen(n, why))
		return -1;
	monitored(n);
	return 0;
}

static void daemon_ends(uint32_t i)
{
	struct node *n = &bed.n[i];

	tcp_close_all(n);
	member_free_all(n);
	while (n->links) {
		struct link *l = n->links;

		n->links = l->next;
		link_free(l);
	}
	close(n->epfd);
	free(n->table);
}

static int set_up(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < NODES; i++)
		if (daemon_starts(i))
			return -1;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < NODES; i++)
		daemon_ends(i);
	return 0;
}

static void turn(uint32_t i)
{
	struct node *n = &bed.n[i];

	node_wait(n, node_clock() + TURN_NS);
	link_turn(n);
}

static void turns(void)
{
	for (int k = 0; k < 20; k++)
		for (uint32_t i = 0; i < NODES; i++)
			turn(i);
}

static struct link *connects(uint32_t from, uint32_t to)
{
	struct link *l = link_get(&bed.n[from], to);
	struct sockaddr_in *a = (struct sockaddr_in *)&l->addr;

	a->sin_family = AF_INET;
	a->sin_port = htons(bed.n[to].tcp_port);
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	tcp_connect(l);
	return l;
}

/* A record that b has no use for, but counts. */
static void says(uint32_t from, uint32_t to)
{
	struct wire_rec r = {.type = WIRE_REC_REVOKED, .src_node = (uint16_t)from, .dst_node = (uint16_t)to,
		.src_ep = NODE_EP_DAEMON, .dst_ep = NODE_EP_DAEMON};

	assert_int_equal(link_append(bed.link[from][to], &r, ""), 0);
}

/* Killed and started again: it counts frames from 0, and knows nothing of what was said to the former one. */
static void a_daemon_that_comes_back_is_another(void **state)
{
	struct link *l = connects(0, 1);
	const struct shm_node *e = &bed.n[0].table->node_tab[1];

	(void)state;
	turns();
	for (int i = 0; i < 5; i++) {
		says(0, 1);
		says(1, 0);
		turns();
	}
	assert_int_equal(bed.link[1][0]->rx_frames, 5);
	assert_int_equal(l->core.rx, 5);

	daemon_ends(1);
	says(0, 1); /* nobody is there */
	turn(0);
	assert_int_equal(daemon_starts(1), 0);
	for (int k = 0; k < 20 && !l->restarts; k++) {
		connects(1, 0);
		turns();
	}
	assert_int_equal(l->restarts, 1);
	assert_int_equal(atomic_load(&e->daemons), 1); /* ranks are told */
	for (int k = 0; k < 50 && !l->tcp.conn; k++) {
		connects(1, 0);
		turns();
	}
	assert_non_null(l->tcp.conn);
	says(0, 1);
	says(1, 0);
	turns();
	assert_int_equal(bed.link[1][0]->rx_frames, 1);
	assert_int_equal(l->core.rx, 1);
	assert_int_equal(l->core.acked, 1);
	assert_int_equal(l->restarts, 1);
	assert_int_equal(bed.link[1][0]->restarts, 0);
}

/* One was taken out meanwhile: its lanes are not what they were, and what met it is free for others. */
static void a_new_daemon_may_have_other_rails(void **state)
{
	struct link *l;

	(void)state;
	connects(1, 2);
	turns();
	l = bed.link[2][1];
	assert_non_null(l->tcp.conn);
	l->rail_of[1] = 0;
	daemon_ends(1);
	turn(2);
	assert_int_equal(daemon_starts(1), 0);
	for (int k = 0; k < 20 && !l->restarts; k++) {
		connects(1, 2);
		turns();
	}
	assert_int_equal(l->restarts, 1);
	assert_int_equal(rails_own(l, 1), FABRIC_NONE);
}

/* The management network swallows everything, and says so only after seconds; a rail is well. */
static void what_may_be_lost_avoids_a_mute_connection(void **state)
{
	struct wire_rec r = {.type = WIRE_REC_VIEW, .src_ep = NODE_EP_DAEMON, .dst_ep = NODE_EP_DAEMON};
	struct link *l = connects(0, 1);

	(void)state;
	turns();
	assert_non_null(l->tcp.conn);
	l->core.active = 0;
	link_loose(l, &r, "");
	assert_int_equal(l->open_len, 0);
	bed.n[0].now += 10 * l->core.cfg.keepalive_ns;
	link_loose(l, &r, "");
	assert_int_not_equal(l->open_len, 0);
	/* where nothing else is left it is tried all the same */
	l->open_len = 0;
	l->core.active = CORE_LANE_TCP;
	link_loose(l, &r, "");
	assert_int_equal(l->open_len, 0);
}

/* Lanes are the lower node's rails, all of them where the other has any: that one says which it meets. */
static void lanes_are_the_rails_of_the_lower_node(void **state)
{
	struct link *l, *back;

	(void)state;
	back = link_get(&bed.n[1], 0);
	l = connects(0, 1);
	bed.n[0].rails = 3;
	bed.n[1].rails = 1;
	l->core.cfg.rails = 3;
	back->core.cfg.rails = CORE_RAILS_MAX;
	l->vbuf = back->vbuf = (struct verbs_buf *)(void *)&bed; /* as if there were devices */
	turns();
	assert_non_null(l->tcp.conn);
	assert_int_equal(l->core.lanes, 7);
	assert_int_equal(back->core.lanes, 7);
	assert_int_equal(back->offers, 3);
	link_rails(l, 0);
	assert_int_equal(l->core.lanes, 0);
	l->vbuf = back->vbuf = NULL;
	bed.n[0].rails = bed.n[1].rails = 0;
}

static void who_calls_is_connected(void **state)
{
	struct link *l = connects(0, 1);

	(void)state;
	turns();
	assert_non_null(l->tcp.conn);
	assert_non_null(bed.link[1][0]->tcp.conn);
}

/* It hung when it was called, was voted out, and answers then. */
static void a_late_answer_of_a_lost_node_connects_nobody(void **state)
{
	struct link *l = connects(0, 1);

	(void)state;
	for (int k = 0; k < 5; k++)
		turn(0); /* our hello is in its socket */
	assert_non_null(l->tcp.trying);
	link_lost(l);
	turns();
	assert_null(l->tcp.conn);
	assert_null(l->tcp.trying);
}

static void a_lost_node_that_calls_hears_that_it_is_out(void **state)
{
	(void)state;
	link_lost(link_get(&bed.n[0], 1));
	connects(1, 0);
	turns();
	assert_true(bed.n[1].parted);
	assert_false(bed.n[0].parted);
}

/* It has stopped by itself and calls all links lost: that is no word about those who call it. */
static void a_node_that_has_stopped_stops_nobody_else(void **state)
{
	(void)state;
	link_get(&bed.n[1], 0);
	member_removed(&bed.n[1]);
	assert_true(bed.n[1].parted);
	for (uint32_t i = 0; i < NODES; i += 2) { /* it knew the first, and did not know the other */
		connects(i, 1);
		turns();
		assert_false(bed.n[i].parted);
		assert_null(bed.link[i][1]->tcp.conn);
	}
}

#define CALLS 80 /* more than there may be strangers */

/* Nodes that do not answer: this daemon's own attempts must not keep others from calling it. */
static void own_attempts_leave_room_for_those_who_call(void **state)
{
	struct node *n = &bed.n[0];
	static struct link far[CALLS];
	int deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	(void)state;
	assert_int_equal(bind(deaf, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(deaf, 0), 0);
	assert_int_equal(getsockname(deaf, (struct sockaddr *)&a, &len), 0);
	for (int i = 0; i < CALLS; i++) {
		far[i].n = n;
		far[i].peer = 2;
		memcpy(&far[i].addr, &a, sizeof(a));
		tcp_connect(&far[i]);
	}
	connects(1, 0);
	turns();
	assert_non_null(bed.link[1][0]->tcp.conn);
	close(deaf);
}

/* A connection from 127.0.0.`from` that says nothing. */
static int stranger(struct node *n, uint32_t from)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 | from)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a.sin_port = htons(n->tcp_port);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	node_wait(n, 0);
	return fd;
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

#define CROWD (2 * (NODES + (int)ADMIT_STRANGERS))

/* Who says nothing loses his own connections: others are heard, and keep theirs. */
static void a_crowd_from_one_address_keeps_nobody_out(void **state)
{
	struct node *n = &bed.n[0];
	int fd[CROWD], other = stranger(n, 3);

	(void)state;
	for (int i = 0; i < CROWD; i++)
		fd[i] = stranger(n, 2);
	assert_int_equal(n->admit.conns, admit_limit(NODES));
	assert_true(is_open(other));
	assert_false(is_open(fd[0]));
	assert_true(is_open(fd[CROWD - 1]));
	connects(1, 0);
	turns();
	assert_non_null(bed.link[1][0]->tcp.conn);
	for (int i = 0; i < CROWD; i++)
		close(fd[i]);
	close(other);
	turns();
	assert_int_equal(n->admit.conns, 0);
	assert_null(n->admit.sources);
}

#define BURST 300

/* All nodes of a large step call at once, before this one has answered any of them. */
static void a_burst_of_all_nodes_is_let_in(void **state)
{
	struct node *n = &bed.n[0];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(n->tcp_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd[BURST];

	(void)state;
	n->o.nodes = 1000;
	for (int i = 0; i < BURST; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof(a)), 0);
	}
	while (n->admit.conns < BURST)
		node_wait(n, node_clock() + TURN_NS);
	for (int i = 0; i < BURST; i++) {
		assert_true(is_open(fd[i]));
		close(fd[i]);
	}
	n->o.nodes = NODES;
	turns();
}

static void refusals_are_counted_and_the_log_is_not_filled(void **state)
{
	struct admit a = {0};
	uint32_t more, lines = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		lines += admit_refused(&a, 5, &more);
		assert_int_equal(more, 0);
	}
	assert_int_equal(lines, ADMIT_LINES);
	assert_true(admit_refused(&a, 5 + 60000000000ull, &more));
	assert_int_equal(more, 1000 - ADMIT_LINES);
}

/* All that goes from the socket to the other, whose byte `at` of the whole stream becomes `value`. */
struct wire {
	int from, to;
	size_t at, passed;
	uint8_t value;
};

static void wire_pass(struct wire *w)
{
	uint8_t b[4096];
	ssize_t got = recv(w->from, b, sizeof(b), MSG_DONTWAIT);

	if (got <= 0)
		return;
	if (w->at >= w->passed && w->at < w->passed + (size_t)got)
		b[w->at - w->passed] = w->value;
	w->passed += (size_t)got;
	(void)!send(w->to, b, (size_t)got, MSG_NOSIGNAL); /* either end may have had enough */
}

#define HELLO_LEN 96u
#define HELLO_KIND 6u /* where it says what it is */

/* Node 0 calls node 1 by way of somebody who changes a byte of what node 1 says. */
static void changed_on_the_way(size_t at, uint8_t value)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), in = -1, out;
	socklen_t len = sizeof(a);
	struct link *l = link_get(&bed.n[0], 1);
	struct wire there = {.at = SIZE_MAX}, back = {.at = at, .value = value};

	assert_int_equal(bind(door, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(door, 1), 0);
	assert_int_equal(getsockname(door, (struct sockaddr *)&a, &len), 0);
	memcpy(&l->addr, &a, sizeof(a));
	while (in < 0) { /* an attempt of before may be under way */
		tcp_connect(l);
		in = accept(door, NULL, NULL);
		if (in < 0)
			turns();
		if (in < 0 && l->tcp.conn) /* the other's own */
			tcp_drop(l);
	}
	out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_port = htons(bed.n[1].tcp_port);
	assert_int_equal(connect(out, (struct sockaddr *)&a, sizeof(a)), 0);
	there.from = back.to = in;
	there.to = back.from = out;
	/* until the attempt has come to something */
	while (l->tcp.trying) {
		turns();
		wire_pass(&there);
		wire_pass(&back);
	}
	for (int k = 0; k < 30; k++) {
		turns();
		wire_pass(&there);
		wire_pass(&back);
	}
	close(in);
	close(out);
	close(door);
}

/* Nobody on the path says in the name of a node that another one was removed. */
static void a_removal_that_the_peer_has_not_said_is_not_believed(void **state)
{
	(void)state;
	changed_on_the_way(SIZE_MAX, 0); /* nothing: the way is one */
	assert_non_null(bed.link[0][1]->tcp.conn);
	tcp_drop(bed.link[0][1]);
	turns();
	changed_on_the_way(HELLO_LEN + HELLO_KIND, 5);
	assert_false(bed.n[0].parted);
	assert_null(bed.link[0][1]->tcp.conn);
}

/* The name servers of a node that has just booted may not answer at first. */
static void a_name_that_did_not_resolve_is_asked_for_again(void **state)
{
	struct node *n = &bed.n[0];
	char name[16] = "bad..name";
	char *known[NODES] = {"a", name, "c"};
	struct link *l;

	(void)state;
	n->o.names = known;
	n->cfg.control_port_min = n->cfg.control_port_max = bed.n[1].tcp_port;
	l = link_get(n, 1);
	for (int k = 0; k < 100 && !l->tcp.conn; k++) {
		find_link(l);
		turns();
		if (k == 5)
			snprintf(name, sizeof(name), "127.0.0.1");
	}
	assert_non_null(l->tcp.conn);
	n->o.names = names;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_calls_is_connected),
		TEST(a_daemon_that_comes_back_is_another),
		TEST(what_may_be_lost_avoids_a_mute_connection),
		TEST(a_new_daemon_may_have_other_rails),
		TEST(lanes_are_the_rails_of_the_lower_node),
		TEST(a_late_answer_of_a_lost_node_connects_nobody),
		TEST(a_lost_node_that_calls_hears_that_it_is_out),
		TEST(a_node_that_has_stopped_stops_nobody_else),
		TEST(own_attempts_leave_room_for_those_who_call),
		TEST(a_crowd_from_one_address_keeps_nobody_out),
		TEST(a_burst_of_all_nodes_is_let_in),
		cmocka_unit_test(refusals_are_counted_and_the_log_is_not_filled),
		TEST(a_removal_that_the_peer_has_not_said_is_not_believed),
		TEST(a_name_that_did_not_resolve_is_asked_for_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
