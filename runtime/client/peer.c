/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: one record for each endpoint that this endpoint has met, inserted by the user or not. It
 * lives as long as the endpoint does, since the credits it counts are absolute.
 */
#include <stdlib.h>
#include <string.h>

#include "client/lib.h"

rcs_peer *cl_peer_get(rcs_ep *ep, uint32_t node, uint32_t slot, uint32_t epoch)
{
	struct cl_peer_key k = {node, slot, epoch};
	rcs_peer *p = ep->last_peer;

	if (p && !memcmp(&p->key, &k, sizeof(k)))
		return p;
	HASH_FIND(hh, ep->peers, &k, sizeof(k), p);
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		p->key = k;
		p->ep = ep;
		p->rank = UINT32_MAX;
		p->daemon = atomic_load(&ep->ch.table->node_tab[node].daemons);
		if (atomic_load(&ep->ch.table->node_tab[node].state) == SHM_NODE_DOWN)
			p->gone = RCS_ERR_NODE_LOST;
		cl_credit_init(p);
		HASH_ADD(hh, ep->peers, key, sizeof(p->key), p);
		if (!p->hh.tbl) {
			free(p);
			return NULL;
		}
		p->nnext = ep->node[node].peers;
		ep->node[node].peers = p;
	}
	ep->last_peer = p;
	return p;
}

void cl_peer_activate(rcs_peer *p)
{
	p->ep->kick = true;
	if (p->active)
		return;
	p->active = true;
	DL_APPEND2(p->ep->active, p, aprev, anext);
}

/* Before the first record: what it may send unasked is reserved, its daemon's address is told. */
void cl_peer_meet(rcs_peer *p)
{
	rcs_ep *ep = p->ep;
	uint64_t limit = ep->ch.answers_max / 2;

	p->met = true;
	/* Beyond half of the answers it is left to chance that not all speak at once: the ring is
	 * sized for the ranks of the step, more peers than that are rare. */
	if (ep->answers + CL_PEER_ANSWERS <= limit)
		ep->answers += CL_PEER_ANSWERS;
	if (p->has_addr && p->key.node != ep->ch.node && !ep->node[p->key.node].named) {
		struct wire_rec r = {.type = WIRE_REC_PEER, .len = sizeof(p->addr),
			.dst_node = (uint16_t)p->key.node};

		ep->node[p->key.node].named = true;
		cl_ctl_send(ep, NULL, &r, &p->addr);
	}
}

void cl_peer_ask(rcs_peer *p)
{
	rcs_ep *ep = p->ep;
	struct wire_rec r = {.type = WIRE_REC_CANCEL};
	uint64_t now;

	if (p->gone || ep->lost)
		return;
	now = 1ull + atomic_load_explicit(&ep->ch.table->node_tab[p->key.node].ended, memory_order_acquire);
	if (p->asked == now)
		return;
	p->asked = now;
	if (!p->met)
		cl_peer_meet(p);
	cl_ctl_send(ep, p, &r, NULL);
}

static bool is_waited_for(const rcs_peer *p)
{
	return p->pending || p->waiting || p->pushing || p->fetching || p->rma || p->posted_n;
}

void cl_peers_ask(rcs_ep *ep)
{
	const struct shm_table *t = ep->ch.table;

	for (uint32_t i = 0; i < ep->ch.nodes; i++) {
		uint32_t ended = atomic_load_explicit(&t->node_tab[i].ended, memory_order_acquire);

		if (ep->node[i].ended == ended)
			continue;
		ep->node[i].ended = ended;
		for (rcs_peer *p = ep->node[i].peers; p; p = p->nnext)
			if (is_waited_for(p))
				cl_peer_ask(p);
	}
}

int cl_peer_insert(rcs_ep *ep, const struct wire_addr *a, rcs_peer **peer, struct rcs_error *err)
{
	const struct wire_addr *own = &ep->ch.addr;
	const char *why;
	rcs_peer *p;

	if (wire_addr_check(a, &why))
		return cl_fail(err, RCS_ERR_VERSION, "%s", why);
	if (a->job != own->job || a->restart != own->restart)
		return cl_fail(err, RCS_ERR_INVALID, "the address belongs to job %u (restart %u), this is "
			"job %u (restart %u)", a->job, a->restart, own->job, own->restart);
	if (a->node >= ep->ch.nodes)
		return cl_fail(err, RCS_ERR_INVALID,
			"the address names node %u, but the job has %u nodes", a->node, ep->ch.nodes);
	p = cl_peer_get(ep, a->node, a->ep, a->epoch);
	if (!p)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a peer");
	if (!p->has_addr) {
		p->has_addr = true;
		p->addr = *a;
		p->rank = a->rank;
		/* nothing was sent before: only inserted peers can be sent to */
		p->win = a->credit0 < CL_CREDIT_MIN ? CL_CREDIT_MIN : a->credit0;
		if (p->limit < p->win)
			p->limit = p->win;
	}
	p->inserted = true;
	*peer = p;
	return 0;
}

int rcs_peer_insert(rcs_ep *ep, const struct rcs_addr *addr, rcs_peer **peer, struct rcs_error *err)
{
	struct wire_addr a;
	int rc;

	if (!ep || !addr || !peer)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_peer_insert: an argument is NULL");
	memcpy(&a, addr->bytes, sizeof(a));
	rc = cl_enter(ep->ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = cl_peer_insert(ep, &a, peer, err);
	cl_leave(ep->ctx);
	return rc;
}

static void end_all(struct cl_op **list, int status, bool send)
{
	struct cl_op *op, *tmp;

	DL_FOREACH_SAFE(*list, op, tmp) {
		cl_op_unlink(op);
		if (send)
			cl_op_end_send(op, status);
		else
			cl_op_end_recv(op, status);
	}
}

/*
 * The peer's endpoint does not exist any more, or its node is lost; all that it has sent is here. What waits
 * for the peer's library ends, and receives from it do; what waits for a daemon (DELIVERED, GET_DONE, RMA_DONE, RDONE) is answered by that
 * daemon, unless its node is lost.
 */
void cl_peer_gone(rcs_peer *p, int status)
{
	rcs_ep *ep = p->ep;
	struct cl_op *op, *tmp;

	if (!p->gone)
		p->gone = status;
	end_all(&p->pending, status, true);
	end_all(&p->pushing, status, true);
	DL_FOREACH_SAFE(p->waiting, op, tmp) {
		if (op->state == CL_DELIVERY && status == RCS_ERR_PEER_GONE)
			continue;
		cl_op_unlink(op);
		cl_op_end_send(op, status);
	}
	DL_FOREACH_SAFE(p->fetching, op, tmp) {
		if (op->state == CL_GETTING)
			continue;
		cl_op_unlink(op);
		cl_op_end_recv(op, status);
	}
	DL_FOREACH_SAFE(ep->fetchq, op, tmp) {
		if (op->peer != p)
			continue;
		cl_op_unlink(op);
		cl_op_end_recv(op, status);
	}
	cl_match_end(p, status);
	cl_rma_gone(p, status);
	cl_credit_gone(p);
	ep->kick = true;
}

void rcs_peer_remove(rcs_peer *peer)
{
	rcs_ep *ep = peer ? peer->ep : NULL;
	struct cl_op *op;

	if (!peer || cl_enter(ep->ctx))
		return;
	peer->inserted = false;
	end_all(&peer->pending, RCS_ERR_CANCELED, true);
	end_all(&peer->flushes, RCS_ERR_CANCELED, true);
	while (peer->rma_next) {
		op = peer->rma_next;
		cl_op_unlink(op);
		cl_op_end_send(op, RCS_ERR_CANCELED);
	}
	cl_match_end(peer, RCS_ERR_CANCELED);
	/* The other side may be reading these buffers: it is asked, the answer ends them. */
	DL_FOREACH(peer->waiting, op) {
		struct wire_rec r = {.type = WIRE_REC_CANCEL, .op = cl_op_id(op)};

		if (op->state != CL_RTS || op->canceling)
			continue;
		op->canceling = true;
		cl_ctl_send(ep, peer, &r, NULL);
	}
	if (!ep->lost)
		cl_ep_pump(ep); /* messages to others may have waited for a flush of all */
	cl_leave(ep->ctx);
}

void rcs_peer_set_context(rcs_peer *peer, void *context)
{
	if (peer)
		peer->context = context;
}

void *rcs_peer_context(const rcs_peer *peer)
{
	return peer ? peer->context : NULL;
}

uint32_t rcs_peer_rank(const rcs_peer *peer)
{
	return peer ? peer->rank : UINT32_MAX;
}

int rcs_peer_query_sized(const rcs_peer *peer, struct rcs_peer_info *info, size_t size)
{
	struct rcs_peer_info own = {0};
	const struct shm_node *n;
	uint32_t state;
	rcs_ep *ep;
	int rc;

	if (!peer || !info || size < CL_PEER_INFO_FIRST)
		return RCS_ERR_INVALID;
	ep = peer->ep;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	n = &ep->ch.table->node_tab[peer->key.node];
	state = atomic_load_explicit(&n->state, memory_order_acquire);
	switch (state) {
	case SHM_NODE_CONNECTING:
		own.state = RCS_PEER_CONNECTING;
		break;
	case SHM_NODE_UP:
		own.state = RCS_PEER_UP;
		break;
	case SHM_NODE_UNREACHABLE:
		own.state = RCS_PEER_UNREACHABLE;
		break;
	case SHM_NODE_DOWN:
		own.state = RCS_PEER_LOST;
		break;
	case SHM_NODE_SELF:
		own.state = RCS_PEER_LOCAL;
		break;
	default:
		own.state = RCS_PEER_UNKNOWN;
		break;
	}
	if (peer->gone)
		own.state = RCS_PEER_LOST;
	own.node = peer->key.node;
	/* the table's is of the job, an address's of its step */
	own.incarnation = peer->has_addr ? peer->addr.incarnation :
		atomic_load_explicit(&n->incarnation, memory_order_relaxed);
	own.lane = atomic_load_explicit(&n->lane, memory_order_relaxed);
	own.lanes_up = atomic_load_explicit(&n->lanes_up, memory_order_relaxed);
	own.failovers = atomic_load_explicit(&n->failovers, memory_order_relaxed);
	memcpy(own.host, n->host, sizeof(own.host));
	own.host[sizeof(own.host) - 1] = '\0';
	cl_struct_give(info, size, &own, sizeof(own));
	cl_leave(ep->ctx);
	return 0;
}
