/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of one daemon that end, and what finds no room in a receive ring: chan.c, detach.c, spill.c. */
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
#include "rcshare.h"

static struct rank {
	struct chan *c;
	struct shm_ring tx, rx;
	int fd;
} r[2];

static struct node n;
static _Alignas(64) uint8_t table[sizeof(struct shm_table) + 2 * sizeof(struct shm_node)];

static void attach(struct rank *k)
{
	struct shm_attach a = {.ranks = 2};
	char why[SHM_SENTENCE];
	struct shm_channel *s;
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	k->c = calloc(1, sizeof(*k->c));
	assert_non_null(k->c);
	k->fd = fd[1];
	k->c->sock.fd = fd[0];
	assert_int_equal(chan_make(&n, k->c, &a, why), 0);
	k->c->next = n.chans;
	n.chans = k->c;
	/* a rank of this process maps the same pages */
	s = k->c->shm;
	shm_ring_init(&k->tx, &s->tx, (uint8_t *)s + s->tx_off, s->tx_size);
	shm_ring_init(&k->rx, &s->rx, (uint8_t *)s + s->rx_off, s->rx_size);
}

static int setup(void **state)
{
	static char *names[] = {"n0", "n1"};

	(void)state;
	memset(&n, 0, sizeof(n));
	memset(table, 0, sizeof(table));
	n.o.nodes = 2;
	n.o.names = names;
	n.table = (void *)table;
	n.epfd = epoll_create1(EPOLL_CLOEXEC);
	n.cfg.receive_ring = n.cfg.submit_ring = 64 << 10;
	n.cfg.eager_max = 4096;
	evlog_open(&n.log, "/dev/null", 1, 0, 0, "n0", 1 << 20);
	attach(&r[0]);
	attach(&r[1]);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (struct chan *c = n.chans; c; c = c->next)
		chan_close(&n, c, "");
	for (struct chan *c = n.chans; c; c = c->next)
		c->stalled = false;
	chan_reap(&n);
	for (int i = 0; i < 2; i++)
		close(r[i].fd);
	evlog_close(&n.log);
	close(n.epfd);
	return 0;
}

static void submit(struct rank *k, const struct rank *to, uint16_t type, uint32_t len, uint64_t tag)
{
	struct wire_rec *w = shm_ring_reserve(&k->tx, len);

	assert_non_null(w);
	*w = (struct wire_rec){.type = type, .len = len, .dst_ep = to->c->slot, .dst_epoch = to->c->epoch,
		.tag = tag};
	memset(w + 1, (int)tag, len);
	shm_ring_commit(&k->tx, len);
	shm_ring_publish(&k->tx);
}

/* The next record that is no event; its type, 0: none. */
static unsigned take(struct rank *k, struct wire_rec *w)
{
	const uint8_t *p;

	while (shm_ring_peek(&k->rx, w, &p) > 0) {
		if (w->len && w->type == WIRE_REC_MSG)
			assert_int_equal(p[w->len - 1], (uint8_t)w->tag);
		shm_ring_consume(&k->rx, w);
		if (w->type != WIRE_REC_EVENT)
			return w->type;
	}
	return 0;
}

/* What was sent before the end comes before the word of it. */
static void gone_follows_what_the_endpoint_sent(void **state)
{
	struct wire_rec w;
	struct rank dead = r[1];
	struct wire_rec ask = {.type = WIRE_REC_CANCEL, .src_ep = r[0].c->slot, .src_epoch = r[0].c->epoch,
		.dst_ep = r[1].c->slot, .dst_epoch = r[1].c->epoch};

	(void)state;
	chan_deliver(&n, &ask, "");
	assert_int_equal(take(&dead, &w), 0); /* who is there is not asked */
	for (uint64_t i = 0; i < 100; i++)
		submit(&r[1], &r[0], WIRE_REC_MSG, 8, i);
	r[1].c->bye = true;
	chan_close(&n, r[1].c, "");
	chan_deliver(&n, &ask, ""); /* while nothing of it is routed yet */
	assert_int_equal(n.table->ended, 0);
	do
		chan_poll(&n, dead.c);
	while (dead.c->stalled);
	chan_reap(&n);
	assert_int_equal(n.table->ended, 1);
	assert_int_equal(n.table->node_tab[0].ended, 1);
	chan_flush(&n);
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(take(&r[0], &w), WIRE_REC_MSG);
		assert_int_equal(w.tag, i);
	}
	assert_int_equal(take(&r[0], &w), WIRE_REC_GONE);
	assert_int_equal((int64_t)w.arg, RCS_ERR_PEER_GONE);
	assert_int_equal(take(&r[0], &w), 0);
}

/* Its process may be waiting for that: nothing of the channel is under way then. */
static void the_sockets_end_is_the_channels(void **state)
{
	char x;

	(void)state;
	submit(&r[1], &r[0], WIRE_REC_MSG, 8, 1);
	chan_close(&n, r[1].c, "");
	assert_int_equal(recv(r[1].fd, &x, 1, MSG_DONTWAIT), -1);
	do
		chan_poll(&n, r[1].c);
	while (r[1].c->stalled);
	chan_reap(&n);
	assert_int_equal(recv(r[1].fd, &x, 1, MSG_DONTWAIT), 0);
}

/* ... nor of its regions: a get may still write there. Nobody waits for that where the process is gone. */
static void the_sockets_end_awaits_what_is_at_its_memory(void **state)
{
	struct wire_key k;
	char x;

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(region_new(&n, r[i].c, 4096, 4096, &k), 0);
		n.regions[k.region - 1]->uses = 1;
		r[i].c->bye = !i;
		chan_close(&n, r[i].c, "");
		chan_poll(&n, r[i].c);
		chan_reap(&n);
	}
	assert_int_equal(n.table->ended, 2);
	assert_int_equal(recv(r[1].fd, &x, 1, MSG_DONTWAIT), 0);
	assert_int_equal(recv(r[0].fd, &x, 1, MSG_DONTWAIT), -1);
	region_unuse(&n, n.regions[0]);
	chan_reap(&n);
	assert_int_equal(recv(r[0].fd, &x, 1, MSG_DONTWAIT), 0);
	for (uint32_t i = 0; i < n.regions_n; i++)
		free(n.regions[i]);
	free(n.regions);
	n.regions = NULL;
	n.regions_n = 0;
}

/* Many sources with a first credit each: nothing is lost, nothing overtakes, and nobody is detached. */
static void what_finds_no_room_waits(void **state)
{
	struct wire_rec w;
	uint64_t sent = 0, got = 0;

	(void)state;
	for (int round = 0; round < 5; round++) {
		while (sent - got < 100) {
			submit(&r[1], &r[0], WIRE_REC_MSG, 4000, sent++);
			chan_poll(&n, r[1].c);
		}
		chan_flush(&n);
		assert_false(r[0].c->broken);
		assert_true(atomic_load(&r[0].rx.ctl->need_room));
		for (int i = 0; i < 60 && take(&r[0], &w); i++)
			assert_int_equal(w.tag, got++);
		assert_true(shm_ring_freed(&r[0].rx));
	}
	do
		chan_flush(&n);
	while (take(&r[0], &w) && w.tag == got++);
	assert_int_equal(got, sent);
	assert_true(spill_is_empty(r[0].c));
}

/* Whatever its rank writes into the page that they share. */
static void what_waits_is_bounded(void **state)
{
	uint64_t most = (uint64_t)NODE_CHANS_MAX * n.o.nodes * r[0].c->credit0 + r[0].c->size;

	(void)state;
	r[0].c->shm->credit0 = UINT32_MAX;
	for (uint64_t sent = 0; sent < most + r[0].c->size && !r[0].c->broken; sent += 4000) {
		submit(&r[1], &r[0], WIRE_REC_MSG, 4000, 1);
		chan_poll(&n, r[1].c);
	}
	assert_true(r[0].c->broken);
	assert_false(r[1].c->broken);
}

/* A rank that found its submission ring full, and sleeps. */
static void a_rank_hears_of_room(void **state)
{
	uint64_t v;

	(void)state;
	assert_true(read(r[1].c->rank_bell, &v, sizeof(v)) < 0);
	while (shm_ring_reserve(&r[1].tx, 1000))
		submit(&r[1], &r[0], WIRE_REC_MSG, 1000, 1);
	chan_poll(&n, r[1].c);
	assert_true(read(r[1].c->rank_bell, &v, sizeof(v)) < 0);
	shm_ring_want(&r[1].tx);
	chan_poll(&n, r[1].c);
	assert_int_equal(read(r[1].c->rank_bell, &v, sizeof(v)), sizeof(v));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(gone_follows_what_the_endpoint_sent, setup, teardown),
		cmocka_unit_test_setup_teardown(the_sockets_end_is_the_channels, setup, teardown),
		cmocka_unit_test_setup_teardown(the_sockets_end_awaits_what_is_at_its_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(what_finds_no_room_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(what_waits_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(a_rank_hears_of_room, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
