/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/node.h"

/* A channel that broke while it still had its turn to come was never freed. */
static void broken_channel_is_freed(void **state)
{
	struct node n = {0};
	struct chan *c = calloc(1, sizeof(*c));

	(void)state;
	assert_non_null(c);
	c->kind = CHAN_RANK;
	c->sock.fd = c->bell.fd = c->rank_bell = c->memfd = -1;
	c->broken = c->closing = c->stalled = true;
	n.chans = c;
	assert_false(chan_poll(&n, c));
	chan_reap(&n);
	assert_null(n.chans);
}

/* A rank that made no call while more events came than its ring takes was never told that a node is lost. */
static void what_ends_requests_waits_for_room(void **state)
{
	static struct node n;
	static struct chan c = {.kind = CHAN_RANK};
	static struct shm_ring_ctl ctl;
	static uint8_t mem[65536] __attribute__((aligned(64)));
	struct shm_ring reader;
	struct wire_rec r;
	const uint8_t *p;
	uint32_t rails = 0, lost = 0, last = 0, missed = 0;

	(void)state;
	shm_ring_init(&c.rx, &ctl, mem, sizeof(mem));
	shm_ring_init(&reader, &ctl, mem, sizeof(mem));
	n.chans = &c;
	for (uint32_t i = 0; i < SHM_EVENTS_MAX + 3; i++)
		event_tell(&n, &c, &(struct shm_event){.code = SHM_EV_RAIL_FAILED});
	for (uint32_t i = 1; i <= 40; i++)
		event_tell(&n, &c, &(struct shm_event){.code = SHM_EV_NODE_LOST, .peer = (uint16_t)i});
	assert_int_equal(c.events_lost, 2); /* of a rail the last word is kept */
	for (int turn = 0; turn < 4; turn++) {
		shm_ring_publish(&c.rx);
		while (shm_ring_peek(&reader, &r, &p) > 0) {
			const struct shm_event *ev = (const void *)p;

			rails += ev->code == SHM_EV_RAIL_FAILED;
			missed += ev->missed;
			if (ev->code == SHM_EV_NODE_LOST) {
				lost++;
				assert_int_equal(ev->peer, ++last);
			}
			shm_ring_consume(&reader, &r);
		}
		event_held(&n);
	}
	assert_int_equal(rails, SHM_EVENTS_MAX + 1);
	assert_int_equal(missed, 2);
	assert_int_equal(lost, 40);
	assert_int_equal(c.held_n, 0);
	free(c.held);
}

/* A rank that is stopped while rails come and go, and ranks die, for days. */
static void what_is_kept_for_a_rank_is_bounded(void **state)
{
	static struct node n;
	static struct chan c = {.kind = CHAN_RANK, .step = 3};
	static struct shm_ring_ctl ctl;
	static uint8_t mem[65536] __attribute__((aligned(64)));
	struct shm_event ev = {.step = NODE_NONE, .rank = NODE_NONE};
	bool back = false, down = false;

	(void)state;
	shm_ring_init(&c.rx, &ctl, mem, sizeof(mem));
	n.chans = &c;
	for (uint32_t i = 0; i < 40000; i++) {
		ev = (struct shm_event){.code = i & 1 ? SHM_EV_RAIL_BACK : SHM_EV_RAIL_FAILED, .step = NODE_NONE,
			.rank = NODE_NONE, .origin = i / 2 % 3, .rail = 1, .seq = i};
		event_tell(&n, &c, &ev);
		ev = (struct shm_event){.code = SHM_EV_RANK_LOST, .step = 3, .rank = i, .peer = NODE_NONE};
		event_tell(&n, &c, &ev);
	}
	assert_in_range(c.held_n, 1, 512);
	ev = (struct shm_event){.code = SHM_EV_NODE_LOST, .step = 4, .rank = NODE_NONE, .peer = 7};
	event_tell(&n, &c, &ev); /* of another step */
	assert_in_range(c.held_n, 1, 512);
	ev.step = 3;
	event_tell(&n, &c, &ev);
	for (uint32_t i = 0; i < c.held_n; i++) {
		back |= c.held[i].code == SHM_EV_RAIL_BACK;
		down |= c.held[i].code == SHM_EV_NODE_LOST && c.held[i].step == 3;
		assert_int_not_equal(c.held[i].code, SHM_EV_RAIL_FAILED); /* that is over */
		if (i && c.held[i].origin == c.held[i - 1].origin && c.held[i].code == SHM_EV_RAIL_BACK)
			assert_true(c.held[i].seq > c.held[i - 1].seq);
	}
	assert_true(back);
	assert_true(down);
	assert_true(c.events_lost > 70000);
	free(c.held);
}

/* RCS_INIT_EAGER of a step that begins after a loss. */
static void open_lanes_are_not_waited_for_where_the_node_is_lost(void **state)
{
	struct link lost = {.lost = true};
	struct node n = {.links = &lost};
	struct chan c = {.kind = CHAN_RANK, .eager_deadline = UINT64_MAX};
	struct shm_msg m;
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	c.sock.fd = fd[0];
	n.chans = &c;
	ctl_eager_check(&n);
	assert_int_equal(recv(fd[1], &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_int_equal(m.status, 0);
	close(fd[0]);
	close(fd[1]);
}

/* Else it would think that all others are lost, and that it is who is left. */
static void a_rank_of_a_node_that_was_removed_does_not_attach(void **state)
{
	char dir[] = "/tmp/rcshare-test.XXXXXX", why[SHM_SENTENCE];
	struct shm_attach a = {.m = {.type = SHM_MSG_ATTACH, .abi = SHM_ABI}, .job = 9};
	struct node n = {.parted = true, .o = {.job = 9, .uid = getuid(), .run_dir = dir,
						 .listen_fd = -1}};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct shm_msg m;

	(void)state;
	assert_non_null(mkdtemp(dir));
	n.epfd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(ctl_open(&n, why), 0);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", dir);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(send(fd, &a, sizeof(a), 0), sizeof(a));
	for (int i = 0; i < 2; i++)
		node_wait(&n, node_clock() + 1000000000);
	assert_true(recv(fd, &m, sizeof(m), MSG_DONTWAIT) > 0);
	assert_int_equal(m.status, -EHOSTDOWN);
	assert_non_null(strstr(m.sentence, "srun -x"));
	ctl_close(&n);
	close(fd);
	close(n.epfd);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_channel_is_freed),
		cmocka_unit_test(what_ends_requests_waits_for_room),
		cmocka_unit_test(what_is_kept_for_a_rank_is_bounded),
		cmocka_unit_test(a_rank_of_a_node_that_was_removed_does_not_attach),
		cmocka_unit_test(open_lanes_are_not_waited_for_where_the_node_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
