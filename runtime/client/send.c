/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: a message goes into the submission ring at once, or its request waits its turn. */
#include <stdlib.h>
#include <string.h>

#include "client/lib.h"

bool cl_node_busy(rcs_peer *p)
{
	rcs_ep *ep = p->ep;

	if (p->key.node == ep->ch.node ||
		!atomic_load_explicit(&ep->ch.table->node_tab[p->key.node].busy, memory_order_relaxed))
		return false;
	ep->blocked = true;
	return true;
}

struct wire_rec *cl_record(rcs_peer *p, uint16_t type, uint32_t len)
{
	rcs_ep *ep = p->ep;
	struct wire_rec *r;

	/* what is to go before it did not find room either */
	if (ep->ctl || !(r = shm_ring_reserve(&ep->ch.tx, len))) {
		ep->blocked = true;
		return NULL;
	}
	memset(r, 0, sizeof(*r));
	r->type = type;
	r->len = len;
	r->dst_node = (uint16_t)p->key.node;
	r->dst_ep = (uint16_t)p->key.ep;
	r->dst_epoch = p->key.epoch;
	return r;
}

void cl_record_commit(rcs_peer *p, const struct wire_rec *r)
{
	shm_ring_commit(&p->ep->ch.tx, r->len);
	p->ep->tx_dirty = true;
	p->ep->ctx->work++;
}

/* What is charged reaches the peer's library, and takes credit along. */
static struct wire_rec *charged(rcs_peer *p, uint16_t type, uint32_t len)
{
	struct wire_rec *r = cl_record(p, type, len);

	if (r)
		r->credit = cl_credit_now(p);
	return r;
}

static void commit(rcs_peer *p, const struct wire_rec *r)
{
	cl_record_commit(p, r);
	p->sent += WIRE_REC_SPACE(r->len);
}

static bool eager(rcs_peer *p, const struct rcs_msg *m, uint64_t len, uint64_t op)
{
	struct wire_rec *r = charged(p, WIRE_REC_MSG, (uint32_t)len);

	if (!r)
		return false;
	r->tag = m->tag;
	if (m->flags & RCS_SEND_DATA) {
		r->flags |= WIRE_REC_F_DATA;
		r->data = m->data;
	}
	if (op) {
		r->flags |= WIRE_REC_F_DELIVERED;
		r->op = op;
	}
	cl_iov_get(m->iov, m->iov_n, 0, r + 1, len);
	commit(p, r);
	return true;
}

/* Where the message may be fetched from by RDMA. Not being able to is no error: it is pushed. */
static void expose(struct cl_op *op, struct wire_rts *rts)
{
	rcs_ep *ep = op->ep;
	struct cl_reg reg = {0};

	if (op->iov_n != 1 || op->peer->key.node == ep->ch.node || op->len < ep->ch.zcopy_min)
		return;
	if (op->region) {
		if (!cl_region_reg(op->region, ep, &reg, NULL) && reg.rdma)
			rts->key = reg.key;
		return;
	}
	if (!op->reg.key.region && op->reg.rdma)
		return; /* tried before */
	if (!op->reg.key.region &&
		cl_reg_make(ep->ctx, &ep->ch, op->iov[0].iov_base, op->len, (struct wire_key){0, 0}, NULL,
			&op->reg, NULL)) {
		op->reg = (struct cl_reg){.rdma = true};
		return;
	}
	if (op->reg.rdma)
		rts->key = op->reg.key;
}

static bool rts(struct cl_op *op)
{
	rcs_peer *p = op->peer;
	rcs_ep *ep = op->ep;
	struct wire_rts body = {.pid = ep->ctx->pid, .cookie_at = (uint64_t)(uintptr_t)&ep->cookie,
		.cookie = ep->cookie};
	struct wire_rec *r;

	if (op->iov_n)
		body.addr = (uint64_t)(uintptr_t)op->iov[0].iov_base;
	/* several pieces are in no one place to fetch from */
	if (op->iov_n != 1)
		body.cookie_at = 0;
	if (!op->answers && !cl_op_reserve(op, 2, false))
		return false;
	expose(op, &body);
	if (ep->lost)
		return false;
	r = charged(p, WIRE_REC_RTS, sizeof(body));
	if (!r)
		return false;
	r->tag = op->tag;
	r->arg = op->len;
	r->op = cl_op_id(op);
	if (op->has_data) {
		r->flags |= WIRE_REC_F_DATA;
		r->data = op->data;
	}
	memcpy(r + 1, &body, sizeof(body));
	commit(p, r);
	cl_op_unlink(op);
	op->state = CL_RTS;
	DL_APPEND(p->waiting, op);
	return true;
}

enum how { EAGER, RENDEZVOUS, WAIT };

/*
 * What does not fit now waits if the peer will say when it does (credit.c: up to half of the window);
 * what is longer is announced, and the peer's window grows for it.
 */
static enum how choose(rcs_peer *p, uint64_t len)
{
	uint64_t left = p->limit > p->sent ? p->limit - p->sent : 0;

	if (p->hold)
		return WAIT;
	if (len <= p->ep->ch.eager_max) {
		uint64_t charge = WIRE_REC_SPACE(len);

		if (charge <= left)
			return EAGER;
		if (charge <= p->win / 2)
			return WAIT;
	}
	return CL_RTS_CHARGE <= left ? RENDEZVOUS : WAIT;
}

bool cl_send_try(struct cl_op *op)
{
	rcs_peer *p = op->peer;
	enum how how;
	struct rcs_msg m;

	p->short_of_credit = false;
	if (cl_rma_holds(p, op) || cl_node_busy(p))
		return false;
	if (!p->met)
		cl_peer_meet(p);
	how = choose(p, op->len);
	if (how == WAIT) {
		p->short_of_credit = !p->hold; /* pieces may be what it waits for */
		return false;
	}
	if (how == RENDEZVOUS)
		return rts(op);
	m = (struct rcs_msg){.iov = op->iov, .iov_n = op->iov_n, .flags = op->flags, .tag = op->tag,
		.data = op->data};
	if (!(op->flags & RCS_SEND_DELIVERED)) {
		if (!eager(p, &m, op->len, 0))
			return false;
		cl_op_unlink(op);
		cl_op_end_send(op, RCS_OK);
		return true;
	}
	if (!op->answers && !cl_op_reserve(op, 1, false))
		return false;
	if (!eager(p, &m, op->len, cl_op_id(op)))
		return false;
	cl_op_unlink(op);
	op->state = CL_DELIVERY;
	DL_APPEND(p->waiting, op);
	return true;
}

bool cl_push_try(struct cl_op *op)
{
	rcs_peer *p = op->peer;
	rcs_ep *ep = op->ep;
	uint64_t piece = op->end - op->off, left = p->limit > p->sent ? p->limit - p->sent : 0;
	uint64_t most = p->win / 2 - sizeof(struct wire_rec);
	struct wire_rec *r;

	if (most > ep->ch.eager_max)
		most = ep->ch.eager_max;
	if (piece > most)
		piece = most;
	if (WIRE_REC_SPACE(piece) > left || cl_node_busy(p))
		return false;
	r = charged(p, WIRE_REC_PUSH, (uint32_t)piece);
	if (!r)
		return false;
	r->op = op->remote;
	r->arg = op->off;
	cl_iov_get(op->iov, op->iov_n, op->off, r + 1, piece);
	commit(p, r);
	op->off += piece;
	if (op->off == op->end) {
		cl_op_unlink(op);
		op->state = CL_PUSHED;
		DL_APPEND(p->waiting, op);
	} else {
		/* messages that are being pushed take turns */
		DL_DELETE(p->pushing, op);
		DL_APPEND(p->pushing, op);
	}
	return true;
}

/* Nothing is before it and nothing has to be remembered: no request is made. */
static bool at_once(rcs_ep *ep, const struct rcs_msg *m, uint64_t len)
{
	rcs_peer *p = m->peer;

	if (p->pending || p->flushes || ep->flushes || !p->met || m->flags & RCS_SEND_DELIVERED || ep->ctl)
		return false;
	return len <= ep->ch.eager_max && choose(p, len) == EAGER && !cl_node_busy(p) &&
		eager(p, m, len, 0);
}

static int send_locked(rcs_ep *ep, const struct rcs_msg *m, bool inject)
{
	rcs_cq *cq = inject ? NULL : ep->tx_cq;
	struct cl_op *op;
	uint64_t len;
	int rc;

	if (!m->peer || m->flags & ~(RCS_SEND_DELIVERED | RCS_SEND_DATA | RCS_QUIET))
		return RCS_ERR_INVALID;
	rc = cl_msg_check(ep, m, &len);
	if (rc)
		return rc;
	if (inject && len > ep->ch.eager_max)
		return RCS_ERR_INVALID;
	if (!m->peer->inserted)
		return RCS_ERR_INVALID;
	if (m->peer->gone)
		return m->peer->gone;
	if (!cl_cq_room(cq, true))
		return RCS_ERR_AGAIN;
	if (at_once(ep, m, len)) {
		if (ep->tx_cntr)
			ep->tx_cntr->ok++;
		if (cq && !(m->flags & RCS_QUIET)) {
			struct rcs_completion c = {.context = m->context, .op = RCS_OP_SEND,
				.len = len, .tag = m->tag};

			cl_cq_push(cq, &c);
		}
		cl_ep_publish(ep);
		return 0;
	}
	op = cl_op_new(ep, m, len, true);
	if (!op)
		return RCS_ERR_AGAIN;
	if (inject) {
		op->inject = true;
		cl_cancel_forget(op);
		op->copy = malloc(len ? len : 1);
		if (!op->copy) {
			cl_op_free(op);
			return RCS_ERR_NOMEM;
		}
		ep->injects_n++;
		cl_iov_get(m->iov, m->iov_n, 0, op->copy, len);
		op->iov[0] = (struct iovec){op->copy, len};
		op->iov_n = 1;
	}
	if (cq)
		cq->reserved++;
	op->state = CL_PENDING;
	DL_APPEND(m->peer->pending, op);
	cl_peer_activate(m->peer);
	cl_ep_pump(ep);
	return 0;
}

static int send_any(rcs_ep *ep, const struct rcs_msg *m, bool inject)
{
	int rc;

	if (!ep || !m)
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	rc = send_locked(ep, m, inject);
	if (rc == RCS_ERR_AGAIN)
		cl_progress(ep->ctx);
	cl_leave(ep->ctx);
	return rc;
}

int rcs_send_sized(rcs_ep *ep, const struct rcs_msg *m, size_t size)
{
	struct rcs_msg own;

	return send_any(ep, cl_struct_take(m, size, &own, sizeof(own), CL_MSG_FIRST), false);
}

int rcs_tsend(rcs_ep *ep, const void *buf, size_t len, rcs_peer *to, uint64_t tag, void *context)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .tag = tag, .peer = to, .context = context};

	return send_any(ep, &m, false);
}

int rcs_inject(rcs_ep *ep, const void *buf, size_t len, rcs_peer *to, uint64_t tag, uint64_t data,
	uint32_t flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .tag = tag, .data = data, .peer = to,
		.flags = flags};

	if (flags & ~RCS_SEND_DATA)
		return RCS_ERR_INVALID;

	return send_any(ep, &m, true);
}
