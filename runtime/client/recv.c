/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: posting, and what each kind of record does when it arrives. */
#include <stdlib.h>
#include <string.h>

#include "client/lib.h"

static int post(rcs_ep *ep, const struct rcs_msg *m, rcs_claim *claim)
{
	struct cl_op *op;
	rcs_claim *u = claim;
	uint64_t len;
	int rc = cl_msg_check(ep, m, &len);

	if (rc)
		return rc;
	if (!cl_cq_room(ep->rx_cq, false))
		return RCS_ERR_AGAIN;
	if (!u && m->peer && m->peer->gone && !cl_match_unexp(ep, m->peer, m->tag, m->ignore))
		return m->peer->gone;
	op = cl_op_new(ep, m, len, false);
	if (!op)
		return RCS_ERR_AGAIN;
	op->has_data = false;
	op->data = 0;
	if (ep->rx_cq)
		ep->rx_cq->reserved++;
	if (!u)
		u = cl_match_unexp(ep, m->peer, m->tag, m->ignore);
	if (u) {
		cl_recv_take(op, u);
		if (ep->kick)
			cl_ep_pump(ep);
		cl_ep_publish(ep);
		return 0;
	}
	cl_match_post(op);
	if (op->peer) {
		cl_peer_ask(op->peer);
		cl_ep_publish(ep);
	}
	return 0;
}

static int recv_any(rcs_ep *ep, const struct rcs_msg *m, rcs_claim *claim)
{
	int rc;

	if (!ep || !m || m->flags & ~RCS_QUIET)
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	rc = post(ep, m, claim);
	if (rc == RCS_ERR_AGAIN)
		cl_progress(ep->ctx);
	cl_leave(ep->ctx);
	return rc;
}

int rcs_recv_sized(rcs_ep *ep, const struct rcs_msg *m, size_t size)
{
	struct rcs_msg own;

	return recv_any(ep, cl_struct_take(m, size, &own, sizeof(own), CL_MSG_FIRST), NULL);
}

int rcs_trecv(rcs_ep *ep, void *buf, size_t len, rcs_peer *from, uint64_t tag, uint64_t ignore,
	void *context)
{
	struct iovec iov = {buf, len};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .tag = tag, .ignore = ignore, .peer = from,
		.context = context};

	return recv_any(ep, &m, NULL);
}

int rcs_recv_claimed(rcs_ep *ep, rcs_claim *claim, void *buf, size_t len, void *context)
{
	struct iovec iov = {buf, len};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .context = context};

	if (!claim || claim->ep != ep)
		return RCS_ERR_INVALID;
	return recv_any(ep, &m, claim);
}

/* --- records ----------------------------------------------------------------------------------- */

static void message(rcs_ep *ep, rcs_peer *from, const struct wire_rec *r, const uint8_t *payload)
{
	bool large = r->type == WIRE_REC_RTS;
	struct cl_op *op = cl_match_posted(ep, from, r->tag);
	uint64_t charge = WIRE_REC_SPACE(r->len);
	rcs_claim *u;

	if (op) {
		cl_match_unpost(op);
		op->state = CL_FREE;
		op->has_data = r->flags & WIRE_REC_F_DATA;
		op->data = op->has_data ? r->data : 0;
		cl_credit_consumed(from, charge);
		if (large) {
			struct wire_rts rts;

			memcpy(&rts, payload, sizeof(rts));
			cl_large_matched(op, from, r->tag, r->arg, r->op, &rts);
			return;
		}
		op->peer = from;
		op->tag = r->tag;
		op->msg_len = r->len;
		cl_iov_put(op->iov, op->iov_n, 0, payload, r->len < op->len ? r->len : op->len);
		cl_op_end_recv(op, r->len > op->len ? RCS_ERR_TRUNCATED : RCS_OK);
		return;
	}
	u = malloc(sizeof(*u) + (large ? 0 : r->len));
	if (!u) {
		cl_ep_lost(ep, RCS_ERR_NOMEM);
		return;
	}
	*u = (rcs_claim){.ep = ep, .peer = from, .large = large,
		.has_data = r->flags & WIRE_REC_F_DATA, .tag = r->tag,
		.data = r->flags & WIRE_REC_F_DATA ? r->data : 0, .len = large ? r->arg : r->len,
		.remote = r->op, .charge = charge};
	if (large)
		memcpy(&u->rts, payload, sizeof(u->rts));
	else
		memcpy(u->payload, payload, r->len);
	cl_unexp_add(u);
	ep->unexp_bytes += charge;
	cl_credit_unexpected(from, charge);
}

static void fin(rcs_ep *ep, rcs_peer *from, const struct wire_rec *r)
{
	struct cl_op *op = cl_op_find(ep, r->op);

	if (!op || op->peer != from ||
		(op->state != CL_RTS && op->state != CL_PUSHING && op->state != CL_PUSHED))
		return;
	cl_op_unlink(op);
	cl_op_end_send(op, (int)(int64_t)r->arg);
}

static void delivered(rcs_ep *ep, const struct wire_rec *r)
{
	struct cl_op *op = cl_op_find(ep, r->op);

	if (!op || op->state != CL_DELIVERY)
		return;
	cl_op_unlink(op);
	cl_op_end_send(op, RCS_OK);
}

static void gone(rcs_ep *ep, rcs_peer *from, const struct wire_rec *r)
{
	int status = (int)(int64_t)r->arg;
	struct cl_op *op = r->op ? cl_op_find(ep, r->op) : NULL;

	if (status >= 0)
		status = RCS_ERR_PEER_GONE;
	if (op && op->peer == from) {
		switch (op->state) {
		case CL_DELIVERY:
		case CL_RTS:
		case CL_PUSHED:
		case CL_PUSHING:
		case CL_RMA:
			cl_op_unlink(op);
			cl_op_end_send(op, status);
			break;
		case CL_PULLING:
			cl_op_unlink(op);
			cl_op_end_recv(op, status);
			break;
		default:
			break;
		}
	}
	if (status == RCS_ERR_PEER_GONE || status == RCS_ERR_NODE_LOST)
		cl_peer_gone(from, status);
}

/* The sender's buffer is no more: what is not here yet does not come, and what is fetched now is not believed. */
static void source_gone(rcs_ep *ep, rcs_peer *from, uint64_t remote)
{
	struct cl_op *op, *tmp;

	DL_FOREACH_SAFE(ep->fetchq, op, tmp) {
		if (op->peer != from || op->remote != remote)
			continue;
		cl_op_unlink(op);
		cl_op_end_recv(op, RCS_ERR_PEER_GONE);
	}
	DL_FOREACH_SAFE(from->fetching, op, tmp) {
		if (op->remote != remote)
			continue;
		op->source_gone = true;
		if (op->state == CL_GETTING)
			continue; /* the daemon still writes */
		cl_op_unlink(op);
		cl_op_end_recv(op, RCS_ERR_PEER_GONE);
	}
}

/* The sender wants its RTS back. Matched already: it goes on, unless the sender is closing (arg 1). */
static void cancel(rcs_ep *ep, rcs_peer *from, const struct wire_rec *r)
{
	bool closing = r->arg == 1;
	rcs_claim *u = cl_unexp_announced(from, r->op);

	if (u && u->claimed) {
		u->source_gone |= closing;
	} else if (u) {
		cl_unexp_free(u);
		if (!closing)
			cl_large_fin(ep, from, r->op, RCS_ERR_CANCELED);
	} else if (closing) {
		source_gone(ep, from, r->op);
	}
}

void cl_recv_record(rcs_ep *ep, const struct wire_rec *r, const uint8_t *payload)
{
	struct cl_op *op;
	rcs_peer *from;

	if (r->type == WIRE_REC_EVENT) {
		struct shm_event ev;

		if (r->len == sizeof(ev)) {
			memcpy(&ev, payload, sizeof(ev));
			cl_ep_event(ep, &ev);
		}
		return;
	}
	if (r->type == WIRE_REC_ACCESS) {
		cl_access(ep, r, payload);
		return;
	}
	if (r->type == WIRE_REC_GET_DONE) {
		op = cl_op_find(ep, r->op);
		if (op && op->state == CL_GETTING)
			cl_large_get_done(op, r);
		return;
	}
	if (r->type == WIRE_REC_RMA_DONE || r->type == WIRE_REC_RDONE) {
		op = cl_op_find(ep, r->op);
		if (op && op->state == CL_RMA &&
			(r->type == WIRE_REC_RDONE) == (op->kind == RCS_OP_ATOMIC))
			cl_rma_done(op, r);
		return;
	}
	if (r->src_node >= ep->ch.nodes)
		return;
	from = cl_peer_get(ep, r->src_node, r->src_ep, r->src_epoch);
	if (!from) {
		cl_ep_lost(ep, RCS_ERR_NOMEM);
		return;
	}
	if (r->credit > from->limit)
		from->limit = r->credit;
	switch (r->type) {
	case WIRE_REC_MSG:
	case WIRE_REC_RTS:
		message(ep, from, r, payload);
		break;
	case WIRE_REC_PUSH:
		cl_large_push_rec(from, r, payload);
		cl_credit_consumed(from, WIRE_REC_SPACE(r->len));
		break;
	case WIRE_REC_CTS:
		cl_large_cts(from, r);
		break;
	case WIRE_REC_FIN:
		fin(ep, from, r);
		break;
	case WIRE_REC_DELIVERED:
		delivered(ep, r);
		break;
	case WIRE_REC_CREDIT:
		if (r->arg >= CL_CREDIT_MIN && r->arg <= UINT32_MAX)
			from->win = (uint32_t)r->arg;
		from->hold = r->flags & WIRE_REC_F_HOLD;
		break;
	case WIRE_REC_GONE:
		gone(ep, from, r);
		break;
	case WIRE_REC_CANCEL:
		if (r->op)
			cancel(ep, from, r);
		break;
	default:
		break;
	}
}
