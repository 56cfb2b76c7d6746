/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels: what ranks submit is checked and routed; what arrives is put into their receive rings.
 *
 * A rank may be wrong or dying at any moment. Headers are copied before they are checked, positions
 * are checked by the ring, and a channel that makes no sense is closed: its own rank sees its socket
 * end, nobody else notices.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/access.h"
#include "node/mem.h"
#include "node/park.h"
#include "rcshare.h"

#define BURST 32 /* records taken from one channel before the next one has its turn */

static size_t page_up(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

static uint64_t pow2_up(uint64_t n)
{
	uint64_t p = 4096;

	while (p < n)
		p *= 2;
	return p;
}

static void bell_ready(struct node *n, struct watch *w, uint32_t events)
{
	uint64_t v;

	(void)events;
	if (read(w->fd, &v, sizeof(v)) > 0)
		n->work = true;
}

/*
 * Each source has credit0 bytes from the start. A ring that the default size would share out in
 * pieces too small for a rendezvous (64 + 48 bytes, twice) grows with the job instead.
 */
static void ring_plan(const struct node *n, const struct shm_attach *a, uint64_t *size,
	uint64_t *credit, uint64_t *answers, uint32_t *credit0)
{
	uint64_t ask = a->rx_size ? a->rx_size : (uint64_t)n->cfg.receive_ring;
	uint64_t ranks = a->ranks ? a->ranks : 1, per;

	if (ask < 64 << 10)
		ask = 64 << 10;
	if (ask > 1 << 30)
		ask = 1 << 30;
	if (ask / 2 < ranks * 256)
		ask = ranks * 512;
	*size = pow2_up(2 * ask);
	*credit = *size / 2;
	/* wrap waste, events and the rest stay free */
	*answers = *size / 4;
	per = *credit / 2 / ranks;
	*credit0 = (uint32_t)(per > 16384 ? 16384 : per < 256 ? 256 : per & ~7ull);
}

int chan_make(struct node *n, struct chan *c, const struct shm_attach *a, char *why)
{
	uint64_t rx_size, credit, answers, tx_size = pow2_up((uint64_t)n->cfg.submit_ring);
	uint32_t credit0, slot;
	socklen_t cred_len = sizeof(struct ucred);
	struct shm_channel *s;
	struct ucred cred;
	int err;

	for (slot = 0; slot < NODE_CHANS_MAX && n->slot[slot]; slot++)
		;
	if (slot == NODE_CHANS_MAX) {
		snprintf(why, SHM_SENTENCE, "this node has %u endpoints already; close some",
			NODE_CHANS_MAX);
		return -EMFILE;
	}
	ring_plan(n, a, &rx_size, &credit, &answers, &credit0);
	c->size = page_up(sizeof(*s)) + tx_size + rx_size;
	c->bell.fd = c->rank_bell = -1;
	c->memfd = memfd_create("rcshare-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Sealed: a rank that truncates its memory must not take us down with SIGBUS. */
	if (c->memfd < 0 || ftruncate(c->memfd, (off_t)c->size) ||
		fcntl(c->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto fail;
	s = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_SHARED, c->memfd, 0);
	if (s == MAP_FAILED)
		goto fail;
	c->shm = s;
	c->bell.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	c->rank_bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	c->bell.ready = bell_ready;
	if (c->bell.fd < 0 || c->rank_bell < 0 || node_watch(n, &c->bell, EPOLLIN))
		goto fail;

	s->magic = SHM_MAGIC;
	s->abi = SHM_ABI;
	s->size = c->size;
	s->tx_off = page_up(sizeof(*s));
	s->tx_size = tx_size;
	s->rx_off = s->tx_off + tx_size;
	s->rx_size = rx_size;
	s->rx_credit = credit;
	s->rx_answers = answers;
	s->credit0 = c->credit0 = credit0;
	s->eager_max = (uint32_t)n->cfg.eager_max;
	atomic_store(&s->until_ns, member_until(n, a->step));
	s->zcopy_min = n->rails ? (uint32_t)n->cfg.zcopy_min : UINT32_MAX;
	shm_ring_init(&c->tx, &s->tx, (uint8_t *)s + s->tx_off, s->tx_size);
	shm_ring_init(&c->rx, &s->rx, (uint8_t *)s + s->rx_off, s->rx_size);

	c->kind = CHAN_RANK;
	c->slot = (uint16_t)slot;
	c->epoch = n->next_epoch++;
	c->step = a->step;
	c->rank = a->rank;
	c->pid = a->pid;
	c->peer_pid = getsockopt(c->sock.fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len) ? 0 : cred.pid;
	s->addr = n->addr;
	s->addr.ep = c->slot;
	s->addr.epoch = c->epoch;
	s->addr.step = c->step;
	s->addr.rank = c->rank;
	s->addr.incarnation = spare_incarnation(n, c->step);
	wire_addr_seal(&s->addr);
	n->slot[slot] = c;
	n->rank_chans++;
	return 0;
fail:
	err = errno;
	snprintf(why, SHM_SENTENCE, "no shared memory for the channel: %s; check memory_limit_mb "
		"in rcshare.conf", strerror(err));
	if (c->bell.fd >= 0)
		close(c->bell.fd);
	if (c->rank_bell >= 0)
		close(c->rank_bell);
	if (c->shm)
		munmap(c->shm, c->size);
	if (c->memfd >= 0)
		close(c->memfd);
	c->shm = NULL;
	c->bell.fd = c->rank_bell = c->memfd = -1;
	return -err;
}

/*
 * The socket ended (or the channel broke). Nothing is delivered to it any more; what its rank
 * submitted before is still taken, then chan_reap frees it. Our end of the socket is closed then: a library
 * whose process goes on learns by it that the channel is at its end.
 */
void chan_close(struct node *n, struct chan *c, const char *why)
{
	if (c->closing)
		return;
	c->closing = true;
	n->work = true;
	node_mute(n, &c->sock);
	if (c->kind == CHAN_MONITOR)
		member_end(n, c);
	if (c->kind == CHAN_PLACE)
		spare_left(n, c);
	if (c->kind != CHAN_RANK)
		return;
	if (n->slot[c->slot] == c)
		n->slot[c->slot] = NULL;
	n->rank_chans--;
	loan_chan_gone(n, c);
	region_drop_all(n, c);
	rma_chan_gone(n, c);
	if (!c->bye) {
		struct shm_event ev = {.code = SHM_EV_RANK_LOST, .step = c->step, .rank = c->rank,
			.peer = NODE_NONE, .rail = NODE_NONE, .to_lane = SHM_LANE_NONE};

		node_log(n, CONFIG_LOG_INFO, "rank %u of step %u (pid %u) is lost: %s", c->rank, c->step,
			c->pid, why);
		snprintf(ev.reason, sizeof(ev.reason), "%s", why);
		evlog_rank_lost(&n->log, c->step, c->rank, why);
		event_raise(n, &ev);
	}
}

void chan_reap(struct node *n)
{
	for (struct chan **p = &n->chans, *c; (c = *p);) {
		struct gone *g, *tmp;

		if (!c->closing || c->stalled) {
			p = &c->next;
			continue;
		}
		if (c->detached)
			detach_answer(n, c);
		else if (c->kind == CHAN_RANK)
			detach_done(n, c);
		c->detached = true;
		if (!n->stop && (c->parks || (chan_lives(c) && region_is_owned(n, c)))) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		/* what still names it; a request of it that goes on does so without it */
		rma_chan_gone(n, c);
		key_chan_gone(n, c);
		node_unwatch(n, &c->sock);
		access_chan_gone(n, c);
		HASH_ITER(hh, c->gone, g, tmp) {
			HASH_DEL(c->gone, g);
			free(g);
		}
		if (c->kind == CHAN_RANK) {
			node_unwatch(n, &c->bell);
			close(c->rank_bell);
			mem_unmap(n, c->shm, c->size);
			close(c->memfd);
		}
		spill_free(c);
		park_free(c);
		free(c->late);
		free(c->held);
		free(c);
	}
}

struct chan *chan_find(struct node *n, uint16_t slot, uint32_t epoch)
{
	struct chan *c = slot < NODE_CHANS_MAX ? n->slot[slot] : NULL;

	return c && c->epoch == epoch && !c->broken ? c : NULL;
}

static void rank_ring(struct chan *c)
{
	uint64_t one = 1;

	if (write(c->rank_bell, &one, sizeof(one)) < 0)
		return; /* the counter is full: the rank is awake anyway */
}

/* --- from ranks -------------------------------------------------------------------------------- */

static int route_now(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct link *l;

	if (r->dst_node == n->o.self) {
		chan_deliver(n, r, payload);
		return 0;
	}
	l = link_get(n, r->dst_node);
	if (l && l->lost) {
		chan_nobody(n, r, RCS_ERR_NODE_LOST);
		return 0;
	}
	return l ? link_append(l, r, payload) : -EAGAIN;
}

/* A node that takes no more holds up what is for it, not what comes behind for others. */
static int route(struct node *n, struct chan *c, const struct wire_rec *r, const void *payload)
{
	int err = park_find(c, r->dst_node) ? -EAGAIN : route_now(n, r, payload);

	return err == -EAGAIN ? park_add(c, r, payload) : err;
}

static void peer_named(struct node *n, const struct wire_addr *a)
{
	struct link *l;
	const char *why;

	if (wire_addr_check(a, &why) || a->job != n->o.job || a->restart != (uint16_t)n->o.restart ||
		a->node >= n->o.nodes || a->node == n->o.self)
		return; /* the library checks addresses and says what is wrong */
	l = link_get(n, a->node);
	if (l && !l->tcp.conn)
		link_learn(l, a);
}

/* Of a rank that is gone only what it sent to others still counts: it waits for nothing. */
static bool is_for_itself(uint16_t type)
{
	return type == WIRE_REC_GET || type == WIRE_REC_RMA;
}

static int submit(struct node *n, struct chan *c, struct wire_rec *r, const uint8_t *payload)
{
	struct announced_key over;
	struct wire_rts rts;
	struct wire_addr addr;
	struct wire_get get;

	r->src_node = (uint16_t)n->o.self;
	r->src_ep = c->slot;
	r->src_epoch = c->epoch;
	if (r->dst_node >= n->o.nodes)
		return -EPROTO;
	if (c->closing && is_for_itself(r->type))
		return 0;
	switch (r->type) {
	case WIRE_REC_FIN:
		over = (struct announced_key){r->dst_node, r->dst_ep, r->dst_epoch, r->op};
		key_message_over(n, c, &over);
		return route(n, c, r, payload);
	case WIRE_REC_MSG:
	case WIRE_REC_PUSH:
	case WIRE_REC_CTS:
	case WIRE_REC_CREDIT:
	case WIRE_REC_CANCEL:
	case WIRE_REC_RATOM:
		return route(n, c, r, payload);
	case WIRE_REC_RTS:
		memcpy(&rts, payload, sizeof(rts));
		region_fill_rts(n, c, r, &rts);
		return route(n, c, r, &rts);
	case WIRE_REC_GET:
		memcpy(&get, payload, sizeof(get));
		rma_get_large(n, c, r, &get);
		return 0;
	case WIRE_REC_RMA:
		rma_start(n, c, r, payload);
		return 0;
	case WIRE_REC_PEER:
		memcpy(&addr, payload, sizeof(addr));
		peer_named(n, &addr);
		return 0;
	case WIRE_REC_ACCESSED:
		return access_answer(n, c, r, payload);
	default:
		return -EPROTO;
	}
}

static bool chan_take(struct node *n, struct chan *c)
{
	bool did = false;

	for (int i = 0; i < BURST; i++) {
		struct wire_rec r;
		const uint8_t *payload;
		int got = shm_ring_peek(&c->tx, &r, &payload);

		if (!got)
			return did;
		if (got > 0) {
			/* submit() writes into r what the rank may not choose; len stays */
			got = submit(n, c, &r, payload);
			if (got == -EAGAIN) {
				c->stalled = true;
				return did;
			}
		}
		if (got < 0) {
			c->broken = true;
			chan_close(n, c, "its channel was overwritten");
			return true;
		}
		if (c->broken) /* its receive ring had no room for an answer */
			return true;
		shm_ring_consume(&c->tx, &r);
		c->msgs_out++;
		did = true;
	}
	c->stalled = true; /* there may be more: not yet reaped, polled again in the next turn */
	return did;
}

bool chan_poll(struct node *n, struct chan *c)
{
	bool did;

	c->stalled = false; /* first: a channel that is not polled any more must not wait for its turn */
	if (c->parks && park_flush(n, c, route_now))
		n->work = true;
	if (c->kind != CHAN_RANK || c->broken || c->detached)
		return false;
	did = chan_take(n, c);
	if (did && !c->closing && shm_ring_freed(&c->tx))
		rank_ring(c);
	return did;
}

bool chan_drain(struct node *n, struct chan *c)
{
	uint64_t end = atomic_load_explicit(&c->shm->tx.tail, memory_order_acquire);

	while (c->tx.pos < end && chan_poll(n, c))
		;
	return c->tx.pos >= end;
}

int chan_arm(struct node *n)
{
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_RANK && !c->broken && !c->detached && !c->stalled && shm_ring_arm(&c->tx))
			return 1;
	return 0;
}

/* --- to ranks ---------------------------------------------------------------------------------- */

bool chan_put(struct node *n, struct chan *c, const struct wire_rec *r, const void *payload)
{
	struct wire_rec *to;

	if (c->broken || c->closing)
		return false;
	to = spill_is_empty(c) ? shm_ring_reserve(&c->rx, r->len) : NULL;
	if (!to) {
		if (shm_ring_room(&c->rx) >= 0 && !spill_add(n, c, r, payload))
			return true;
		c->broken = true;
		chan_close(n, c, "its receive ring overflowed");
		return false;
	}
	memcpy(to, r, sizeof(*r));
	memcpy(to + 1, payload, r->len);
	shm_ring_commit(&c->rx, r->len);
	c->dirty = true;
	c->msgs_in++;
	return true;
}

void chan_flush(struct node *n)
{
	for (struct chan *c = n->chans; c; c = c->next) {
		if (c->closing)
			continue;
		if (!spill_is_empty(c)) {
			shm_ring_want(&c->rx);
			spill_drain(c);
		}
		if (!c->dirty)
			continue;
		c->dirty = false;
		if (shm_ring_publish(&c->rx))
			rank_ring(c);
	}
}

void chan_wake_all(struct node *n)
{
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_RANK && !c->closing && shm_ring_wake(&c->rx))
			rank_ring(c);
}

void chan_answer(struct node *n, const struct wire_rec *to, struct wire_rec *r, const void *payload)
{
	struct link *l;

	r->src_node = to->dst_node;
	r->src_ep = to->dst_ep;
	r->src_epoch = to->dst_epoch;
	r->dst_node = to->src_node;
	r->dst_ep = to->src_ep;
	r->dst_epoch = to->src_epoch;
	if (r->dst_node == n->o.self) {
		chan_deliver(n, r, payload);
		return;
	}
	l = link_get(n, r->dst_node);
	if (l)
		link_answer(l, r, payload);
}

static void answer(struct node *n, const struct wire_rec *to, uint16_t type, uint64_t op,
	uint64_t tag, uint64_t arg)
{
	struct wire_rec r = {.type = type, .op = op, .tag = tag, .arg = arg};

	chan_answer(n, to, &r, "");
}

/* Nobody is there: whoever asked for something is told, once for each endpoint or each request. */
void chan_nobody(struct node *n, const struct wire_rec *r, int status)
{
	uint64_t op = 0;

	switch (r->type) {
	case WIRE_REC_MSG:
		op = r->flags & WIRE_REC_F_DELIVERED ? r->op : 0;
		break;
	case WIRE_REC_RTS:
	case WIRE_REC_CTS:
	case WIRE_REC_CANCEL:
	case WIRE_REC_RATOM:
		op = r->op;
		break;
	case WIRE_REC_PUSH:
		break;
	default:
		return;
	}
	answer(n, r, WIRE_REC_GONE, op, r->type, (uint64_t)(int64_t)status);
}

/* A second GONE without a request for the same endpoint would take room nobody reserved. */
static bool told_already(struct chan *c, const struct wire_rec *r)
{
	struct gone_key k = {r->src_node, r->src_ep, r->src_epoch};
	struct gone *g;

	HASH_FIND(hh, c->gone, &k, sizeof(k), g);
	if (g)
		return true;
	g = calloc(1, sizeof(*g));
	if (!g)
		return true;
	g->key = k;
	HASH_ADD(hh, c->gone, key, sizeof(g->key), g);
	return false;
}

/* Records for the daemon itself; false: for a rank. */
static bool own(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct shm_event ev;

	switch (r->type) {
	case WIRE_REC_RPUT:
	case WIRE_REC_RGET:
	case WIRE_REC_RATOM:
		serve_record(n, r, payload);
		return true;
	case WIRE_REC_VIEW:
		member_receive(n, r, payload);
		return true;
	case WIRE_REC_ENDED:
		spare_receive(n, r);
		return true;
	case WIRE_REC_DETACHED:
		detach_receive(n, r);
		return true;
	case WIRE_REC_KEY_ASK:
	case WIRE_REC_KEY:
	case WIRE_REC_REVOKE:
	case WIRE_REC_REVOKED:
		key_receive(n, r, payload);
		return true;
	default:
		break;
	}
	if (r->dst_ep != NODE_EP_DAEMON)
		return false;
	if (r->type == WIRE_REC_EVENT && r->len == sizeof(ev)) {
		memcpy(&ev, payload, sizeof(ev));
		event_receive(n, &ev);
	} else if (r->type == WIRE_REC_RDONE || r->type == WIRE_REC_RDATA) {
		serve_receive(n, r, payload);
	}
	return true;
}

void chan_deliver(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct chan *c;

	if (own(n, r, payload))
		return;
	c = chan_find(n, r->dst_ep, r->dst_epoch);
	if (c && r->type == WIRE_REC_GONE && !r->op && told_already(c, r))
		return;
	if (c && r->type == WIRE_REC_CANCEL && !r->op)
		return; /* it is there */
	if (!c || !chan_put(n, c, r, payload)) {
		if (!detach_defer(n, r))
			chan_nobody(n, r, RCS_ERR_PEER_GONE);
	} else if (r->type == WIRE_REC_MSG && r->flags & WIRE_REC_F_DELIVERED) {
		answer(n, r, WIRE_REC_DELIVERED, r->op, 0, 0);
	}
}
