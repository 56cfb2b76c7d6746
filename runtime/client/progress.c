/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress: take what arrived, send what waited, notice what ended. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib.h"

#define BURST	 256
#define CHECK_NS 100000000ull

static void ring_daemon(rcs_ep *ep)
{
	uint64_t one = 1;

	while (write(ep->ch.daemon_bell, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void cl_ep_bell(rcs_ep *ep)
{
	uint64_t one = 1;

	while (write(ep->ch.rank_bell, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void cl_ep_publish(rcs_ep *ep)
{
	if (!ep->tx_dirty || ep->lost)
		return;
	ep->tx_dirty = false;
	if (shm_ring_publish(&ep->ch.tx))
		ring_daemon(ep);
}

static bool ctl_write(rcs_ep *ep, const struct wire_rec *r, const void *payload)
{
	struct wire_rec *to = shm_ring_reserve(&ep->ch.tx, r->len);

	if (!to)
		return false;
	*to = *r;
	if (r->len)
		memcpy(to + 1, payload, r->len);
	shm_ring_commit(&ep->ch.tx, r->len);
	ep->tx_dirty = true;
	ep->ctx->work++;
	return true;
}

void cl_ctl_send(rcs_ep *ep, rcs_peer *peer, struct wire_rec *r, const void *payload)
{
	struct cl_ctl *c;

	if (ep->lost)
		return;
	if (peer) {
		r->dst_node = (uint16_t)peer->key.node;
		r->dst_ep = (uint16_t)peer->key.ep;
		r->dst_epoch = peer->key.epoch;
		/* a credit counts as told: only in records that reach the peer's library, which a question whether
		 * it is there does not */
		if (r->type != WIRE_REC_GET && (r->type != WIRE_REC_CANCEL || r->op))
			r->credit = cl_credit_now(peer);
	}
	if (!ep->ctl && ctl_write(ep, r, payload))
		return;
	c = malloc(sizeof(*c));
	if (!c) {
		/* without it the other side would wait for ever; callers are in the midst of things */
		ep->dying = RCS_ERR_NOMEM;
		return;
	}
	c->next = NULL;
	c->rec = *r;
	if (r->len)
		memcpy(c->payload, payload, r->len);
	*ep->ctl_tail = c;
	ep->ctl_tail = &c->next;
	ep->kick = true;
}

void cl_ep_drain_ctl(rcs_ep *ep)
{
	struct cl_ctl *c;

	while ((c = ep->ctl) && ctl_write(ep, &c->rec, c->payload)) {
		ep->ctl = c->next;
		if (!ep->ctl)
			ep->ctl_tail = &ep->ctl;
		free(c);
	}
}

/*
 * Pieces of large messages and waiting messages take turns, so that neither takes all the credit. A
 * message that waits for something else than credit does not hold the pieces up: they may be what it
 * waits for.
 */
static bool messages_pump(rcs_peer *p)
{
	if (p->push_turn && p->pushing) {
		if (!cl_push_try(p->pushing))
			return false;
		p->push_turn = !p->pending;
		return true;
	}
	if (p->pending) {
		if (!cl_send_try(p->pending))
			return !p->short_of_credit && p->pushing && cl_push_try(p->pushing);
		p->push_turn = p->pushing;
		return true;
	}
	return p->pushing && cl_push_try(p->pushing);
}

static bool peer_pump(rcs_peer *p)
{
	bool did = p->rma_next && cl_rma_try(p->rma_next);

	return messages_pump(p) || did;
}

void cl_ep_pump(rcs_ep *ep)
{
	struct cl_op *op, *otmp;
	rcs_peer *p, *tmp;
	bool did;

	ep->kick = !cl_ep_acts(ep);
	if (ep->kick)
		return; /* later */
	ep->blocked = ep->copying = false;
	cl_ep_drain_ctl(ep);
	cl_access_pump(ep);
	DL_FOREACH_SAFE(ep->fetchq, op, otmp) {
		cl_large_start(op);
		if (ep->copying)
			break; /* one piece a turn */
	}
	do {
		did = false;
		for (p = ep->active; p; p = tmp) {
			tmp = p->anext;
			if (ep->ctl)
				break;
			if (peer_pump(p)) {
				did = true;
			} else if (!p->pending && !p->pushing && !p->rma_next) {
				p->active = false;
				DL_DELETE2(ep->active, p, aprev, anext);
			}
		}
	} while (did && !ep->ctl && !ep->lost);
	if (ep->ctl)
		ep->blocked = true;
	cl_ep_publish(ep);
}

/*
 * Nodes that are lost, and endpoints of a daemon that another one has replaced. What they have sent, and why all
 * are down, is in the ring before the table says that they are.
 */
static void check_nodes(rcs_ep *ep)
{
	struct wire_rec r;
	const uint8_t *payload;

	for (uint32_t i = 0; i < ep->ch.nodes; i++) {
		const struct shm_node *n = &ep->ch.table->node_tab[i];
		uint32_t daemons = atomic_load_explicit(&n->daemons, memory_order_acquire);
		bool replaced = daemons != ep->node[i].daemons;

		if (!replaced && atomic_load_explicit(&n->state, memory_order_acquire) != SHM_NODE_DOWN)
			continue;
		for (rcs_peer *p = ep->node[i].peers; p; p = p->nnext) {
			if (p->gone == RCS_ERR_NODE_LOST ||
				(p->daemon == daemons && atomic_load(&n->state) != SHM_NODE_DOWN))
				continue;
			if (shm_ring_peek(&ep->ch.rx, &r, &payload)) {
				ep->checked_at = 0; /* again when it was taken */
				return;
			}
			cl_peer_gone(p, RCS_ERR_NODE_LOST);
		}
		ep->node[i].daemons = daemons;
	}
}

static void check_ended(rcs_ep *ep)
{
	uint32_t ended = atomic_load_explicit(&ep->ch.table->ended, memory_order_acquire);

	if (ended == ep->ended)
		return;
	ep->ended = ended;
	cl_peers_ask(ep);
}

bool cl_ep_progress(rcs_ep *ep)
{
	int got = 0, i;

	if (ep->dying) {
		cl_ep_lost(ep, ep->dying);
		return false;
	}
	if (!cl_ep_acts(ep)) {
		cl_ep_stand_still(ep);
		return false;
	}
	for (i = 0; i < BURST && !ep->lost; i++) {
		struct wire_rec r;
		const uint8_t *payload;

		got = shm_ring_peek(&ep->ch.rx, &r, &payload);
		if (got <= 0)
			break;
		cl_recv_record(ep, &r, payload);
		if (ep->lost)
			return false;
		shm_ring_consume(&ep->ch.rx, &r);
	}
	if (got < 0) {
		cl_ep_lost(ep, RCS_ERR_PROTOCOL);
		return false;
	}
	if (i) {
		ep->kick = true;
		ep->ctx->work++;
		if (shm_ring_freed(&ep->ch.rx))
			ring_daemon(ep);
	}
	check_ended(ep);
	if (!i || ++ep->idle > 64) {
		uint64_t now = cl_now();

		ep->idle = 0;
		if (now - ep->checked_at > CHECK_NS) {
			ep->checked_at = now;
			check_nodes(ep);
			ep->ctx->look_at_rails |= ep->ctx->regions != NULL;
			if (cl_chan_lost(&ep->ch)) {
				cl_ep_lost(ep, RCS_ERR_RUNTIME_LOST);
				return false;
			}
		}
	}
	if (ep->kick || ep->blocked || ep->copying)
		cl_ep_pump(ep);
	cl_ep_publish(ep);
	return i == BURST;
}

void cl_progress(rcs_ctx *ctx)
{
	bool more;

	do {
		more = false;
		for (rcs_ep *ep = ctx->eps; ep; ep = ep->next)
			if (!ep->lost)
				cl_ep_progress(ep);
			else if (ep->ending)
				cl_ep_end_check(ep);
		/* Others sleep on these rings, and what woke them may just have been taken: the
		 * rings must ring again, or be empty for certain. */
		if (ctx->sleepers)
			for (rcs_ep *ep = ctx->eps; ep; ep = ep->next)
				if (!ep->lost && shm_ring_arm(&ep->ch.rx) && cl_ep_acts(ep))
					more = true;
	} while (more);
	if (ctx->look_at_rails)
		cl_region_refresh(ctx);
}
