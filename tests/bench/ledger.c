/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's whole path of a put of one piece, for a tool that counts instructions (callgrind).
 *
 *	ledger [--puts N]
 *
 * Real are the channel, the put's record, key and region, the core machine, the ledger, the lane's
 * post and completion, and the answer to the rank. Not there: a device (posting succeeds at once, the
 * completion is found by the next poll) and the kernel. What one_put() does is what the daemon's loop
 * does in the two turns that a put takes.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "node/node.h"
#include "node/rma.h"
#include "node/verbs_impl.h"

#define LEN   65536u
#define OWNER 3u /* slot of the remote endpoint */
#define QPN   17u

/* Posted and not reported yet; requests complete in order. */
static uint64_t sq[VERBS_SENDS];
static unsigned sq_head, sq_tail;

static int fake_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	sq[sq_tail++ % VERBS_SENDS] = wr->wr_id;
	return 0;
}

static int fake_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	(void)cq;
	for (; got < n && sq_head != sq_tail; got++)
		wc[got] = (struct ibv_wc){.wr_id = sq[sq_head++ % VERBS_SENDS], .status = IBV_WC_SUCCESS,
			.qp_num = QPN};
	return got;
}

static void fail(const char *what)
{
	fprintf(stderr, "ledger: %s\n", what);
	exit(1);
}

static struct ibv_context ctx = {.ops = {.post_send = fake_post, .poll_cq = fake_poll}};
static struct ibv_cq cq = {.context = &ctx};
static struct ibv_mr mr;
static struct ibv_qp qp = {.context = &ctx, .qp_num = QPN};

static void *zeroed(size_t len)
{
	void *p = calloc(1, len);

	if (!p)
		fail("no memory");
	return p;
}

static struct node *node_new(void)
{
	static char *names[] = {"here", "there"};
	struct shm_attach a = {.ranks = 1, .local_ranks = 1};
	struct node *n = zeroed(sizeof(*n));
	struct chan *c = zeroed(sizeof(*c));
	char why[SHM_SENTENCE];

	config_default(&n->cfg);
	n->o.nodes = 2;
	n->o.names = names;
	n->epfd = epoll_create1(EPOLL_CLOEXEC);
	n->now = node_clock();
	n->table = zeroed(1 << 20);
	n->link = zeroed(n->o.nodes * sizeof(struct link *));
	if (chan_make(n, c, &a, why))
		fail(why);
	n->chans = c;
	c->sock.fd = -1;
	return n;
}

/* One rail with one queue pair. */
static struct verbs_lane *verbs_new(struct node *n)
{
	struct verbs *v = zeroed(sizeof(*v));
	struct verbs_lane *vl = zeroed(sizeof(*vl));

	v->ops = link_verbs_ops;
	v->rails = n->rails = 1;
	v->rail[0] = (struct rail){.v = v, .ctx = &ctx, .cq = &cq, .epoch = 1, .ok = true};
	vl->v = v;
	vl->rail = &v->rail[0];
	vl->qp = &qp;
	vl->qpn = QPN;
	vl->connected = true;
	vl->mtu = 4096;
	vl->peer_epoch = 1;
	vl->reads_max = 4;
	vl->small = zeroed(VERBS_SENDS * VERBS_SMALL); /* the core may have a word for the peer */
	vl->mem[0].mr = &mr;
	HASH_ADD(hh, v->by_qpn[0], qpn, sizeof(vl->qpn), vl);
	v->lanes = vl;
	n->vb = v;
	return vl;
}

static struct link *link_new(struct node *n, struct verbs_lane *vl)
{
	struct link *l = zeroed(sizeof(*l));
	struct core_cfg cc;

	core_cfg_default(&cc);
	cc.self = 0;
	cc.peer = 1;
	cc.rails = 1;
	l->n = n;
	l->peer = 1;
	core_link_init(&l->core, &cc, n->now);
	core_rma_init(&l->ledger);
	l->core.lane[0].state = CORE_LANE_UP;
	l->core.lane[0].usable = true;
	l->core.lane[0].gen = 1;
	l->core.active = 0;
	l->rdma[0] = vl;
	l->rdma_gen[0] = 1;
	vl->owner = l;
	n->links = n->link[1] = l;
	return l;
}

/* The two turns of the daemon. */
__attribute__((noinline)) void one_put(struct node *n);
void one_put(struct node *n)
{
	for (int turn = 0; turn < 2; turn++) {
		n->now = node_clock();
		verbs_poll(n->vb, 64);
		for (struct chan *c = n->chans; c; c = c->next)
			chan_poll(n, c);
		link_turn(n);
		chan_flush(n);
		chan_reap(n);
	}
}

/* The owner's daemon is asked for the key of the region, and answers. */
static void learn_key(struct link *l, struct wire_key k)
{
	struct wire_rec r = {.type = WIRE_REC_KEY, .src_node = 1, .src_ep = OWNER, .src_epoch = 1,
		.data = wire_key_pack(k), .len = sizeof(struct wire_key_info)};
	struct wire_key_info info = {.addr = 0x10000, .len = LEN, .rail_ok = 1, .rkey = {5}, .device = {1},
		.rail_write = 1};
	struct import *im;

	l->slots = zeroed((size_t)CORE_SLOTS * WIRE_FRAME_MAX);
	im = key_import(l, OWNER, 1, k);
	if (!im)
		fail("no import");
	l->open_len = 0; /* the question needs no lane here */
	key_receive(l->n, &r, &info);
	key_unuse(l->n, im);
}

static void ask(struct shm_ring *tx, const struct wire_rma *w, uint64_t op)
{
	struct wire_rec *r = shm_ring_reserve(tx, sizeof(*w));

	if (!r)
		fail("no room in the submission ring");
	*r = (struct wire_rec){.type = WIRE_REC_RMA, .len = sizeof(*w), .dst_node = 1, .dst_ep = OWNER,
		.dst_epoch = 1, .op = op};
	memcpy(r + 1, w, sizeof(*w));
	shm_ring_commit(tx, sizeof(*w));
	shm_ring_publish(tx);
}

static void answered(struct shm_ring *rx, uint64_t op)
{
	const uint8_t *payload;
	struct wire_rec r;

	if (shm_ring_peek(rx, &r, &payload) != 1 || r.type != WIRE_REC_RMA_DONE || r.op != op || r.arg)
		fail("the put was not answered, or not by success");
	shm_ring_consume(rx, &r);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"puts", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};
	static uint8_t mem[LEN];
	struct wire_rma w = {.key = {1, 1}, .laddr = (uint64_t)(uintptr_t)mem, .len = LEN};
	struct node *n = node_new();
	struct link *l = link_new(n, verbs_new(n));
	struct chan *c = n->chans;
	struct shm_ring tx, rx;
	struct wire_key k;
	uint64_t puts = 1000;
	int o;

	while ((o = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if (o == 'p')
			puts = strtoull(optarg, NULL, 10);
		else
			return 2;
	if (region_new(n, c, w.laddr, LEN, &k))
		fail("no region");
	n->regions[0]->ok = 1;
	n->regions[0]->epoch[0] = 1;
	w.lregion = k.region;
	w.lgen = k.gen;
	learn_key(l, w.key);
	shm_ring_init(&tx, &c->shm->tx, (uint8_t *)c->shm + c->shm->tx_off, c->shm->tx_size);
	shm_ring_init(&rx, &c->shm->rx, (uint8_t *)c->shm + c->shm->rx_off, c->shm->rx_size);
	for (uint64_t i = 1; i <= puts; i++) {
		ask(&tx, &w, i);
		one_put(n);
		answered(&rx, i);
	}
	if (n->write_bytes != puts * LEN || !core_rma_idle(&l->ledger))
		fail("not every put went by the ledger");
	printf("puts %llu\n", (unsigned long long)puts);
	return 0;
}
