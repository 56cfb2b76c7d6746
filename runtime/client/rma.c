/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided requests.
 *
 *	put, get	RMA to the own daemon, RMA_DONE
 *	atomic		RATOM to the daemon of the target, RDONE
 *	flush		nothing is sent
 *
 * A peer's requests are in peer->rma from post to end, in the order of posting; those that found no
 * room begin at peer->rma_next. Numbers (op->seq) say what was posted before what: a notification is
 * a message in peer->pending that stays there while an older request is in peer->rma, and a flush holds
 * every younger message back (cl_rma_holds). What is behind either of them in peer->pending waits too.
 *
 * Who has submitted a put or get awaits its daemon's answer whatever becomes of the peer: until then
 * the daemon may read or write the memory.
 */
#include <string.h>

#include "client/lib.h"

/* --- how they end ------------------------------------------------------------------------------- */

void cl_rma_unlink(struct cl_op *op)
{
	rcs_peer *p = op->peer;

	if (op->state == CL_FLUSH) {
		if (p)
			DL_DELETE(p->flushes, op);
		else
			DL_DELETE(op->ep->flushes, op);
		return;
	}
	if (p->rma_next == op)
		p->rma_next = op->next;
	DL_DELETE(p->rma, op);
	p->rma_n--;
	op->ep->rma_n--;
}

static void flushes_count(struct cl_op **list, uint64_t seq)
{
	struct cl_op *f, *tmp;

	DL_FOREACH_SAFE(*list, f, tmp) {
		if (f->seq < seq || --f->left)
			continue;
		cl_op_unlink(f);
		cl_op_end_send(f, RCS_OK);
	}
}

void cl_note_ended(struct cl_op *note)
{
	rcs_ep *ep = note->ep;

	ep->kick = true;
	note->peer->notes_n--;
	ep->notes_n--;
	flushes_count(&note->peer->flushes, note->seq);
	flushes_count(&ep->flushes, note->seq);
}

void cl_rma_ended(struct cl_op *op, int status)
{
	struct cl_op *note = op->pair;
	rcs_ep *ep = op->ep;

	ep->kick = true;
	if (op->kind == RCS_OP_FLUSH)
		return;
	if (note) {
		note->pair = op->pair = NULL;
		/* the completion of the put tells; the peer must not be told of what is not there */
		if (status) {
			cl_op_unlink(note);
			cl_op_end_send(note, status);
		}
	}
	flushes_count(&op->peer->flushes, op->seq);
	flushes_count(&ep->flushes, op->seq);
}

void cl_rma_done(struct cl_op *op, const struct wire_rec *r)
{
	int status = (int)(int64_t)r->arg;

	if (!status && op->rma.result)
		*op->rma.result = op->rma.size == 4 ? (uint32_t)r->data : r->data;
	cl_op_unlink(op);
	cl_op_end_send(op, status);
}

void cl_rma_gone(rcs_peer *p, int status)
{
	struct cl_op *op, *tmp;

	DL_FOREACH_SAFE(p->rma, op, tmp) {
		if (op->state == CL_RMA &&
			(op->kind != RCS_OP_ATOMIC || status == RCS_ERR_PEER_GONE))
			continue;
		cl_op_unlink(op);
		cl_op_end_send(op, status);
	}
}

/* --- to the daemon -------------------------------------------------------------------------------- */

/* For this operation alone. A daemon that gets no registration reads and writes the memory itself. */
static struct cl_reg own_reg(struct cl_op *op)
{
	rcs_ep *ep = op->ep;

	/* a registration costs more than the copies that it saves */
	if (op->len < ep->ch.zcopy_min || op->peer->key.node == ep->ch.node)
		return (struct cl_reg){0};
	/* no region but rdma: tried before */
	if (!op->reg.key.region && !op->reg.rdma &&
		cl_reg_make(ep->ctx, &ep->ch, op->iov[0].iov_base, op->len, (struct wire_key){0, 0}, NULL,
			&op->reg, NULL))
		op->reg = (struct cl_reg){.rdma = true};
	return op->reg;
}

static void local_memory(struct cl_op *op, struct wire_rma *w)
{
	struct cl_reg reg = {0};
	bool get = op->kind == RCS_OP_GET;

	if (!op->len || (!get && !op->region && op->len <= WIRE_RMA_INLINE_MAX)) {
		w->flags |= get ? 0 : WIRE_RMA_INLINE;
		return;
	}
	w->laddr = (uint64_t)(uintptr_t)op->iov[0].iov_base;
	if (!op->region)
		reg = own_reg(op);
	else if (cl_region_reg(op->region, op->ep, &reg, NULL))
		return;
	if (get && reg.readonly)
		return;
	w->lregion = reg.key.region;
	w->lgen = reg.key.gen;
}

static struct wire_rec *put_or_get(struct cl_op *op)
{
	struct wire_rma w = {.key = op->rma.key, .off = op->rma.off, .len = op->len,
		.flags = (op->kind == RCS_OP_GET ? WIRE_RMA_GET : 0) |
			(op->flags & RCS_PUT_REPLAY ? WIRE_RMA_REPLAY : 0)};
	struct wire_rec *r;
	uint64_t data;

	local_memory(op, &w);
	data = w.flags & WIRE_RMA_INLINE ? op->len : 0;
	r = cl_record(op->peer, WIRE_REC_RMA, (uint32_t)(sizeof(w) + data));
	if (!r)
		return NULL;
	memcpy(r + 1, &w, sizeof(w));
	cl_iov_get(op->iov, op->iov_n, 0, (uint8_t *)(r + 1) + sizeof(w), data);
	return r;
}

static struct wire_rec *atomic(struct cl_op *op)
{
	struct wire_atomic w = {.compare = op->rma.compare, .op = op->rma.op, .size = op->rma.size};
	struct wire_rec *r = cl_record(op->peer, WIRE_REC_RATOM, sizeof(w));

	if (!r)
		return NULL;
	r->tag = op->rma.off;
	r->data = wire_key_pack(op->rma.key);
	r->arg = op->rma.operand;
	memcpy(r + 1, &w, sizeof(w));
	return r;
}

bool cl_rma_try(struct cl_op *op)
{
	rcs_peer *p = op->peer;
	struct wire_rec *r;

	if (cl_node_busy(p))
		return false;
	if (!p->met)
		cl_peer_meet(p);
	if (!op->answers && !cl_op_reserve(op, 1, false))
		return false;
	r = op->kind == RCS_OP_ATOMIC ? atomic(op) : put_or_get(op);
	if (!r)
		return false;
	r->op = cl_op_id(op);
	cl_record_commit(p, r);
	op->state = CL_RMA;
	p->rma_next = op->next;
	return true;
}

/* --- posting ---------------------------------------------------------------------------------------- */

/*
 * The key and the range in it, before anything is sent. Whether the region still exists is known to
 * its owner's daemon alone. *off: in the region.
 */
static int target_check(const rcs_ep *ep, const rcs_peer *p, const struct rcs_key *key, uint32_t flags,
	uint64_t *off, uint64_t len, struct wire_ukey *k)
{
	const char *why;

	_Static_assert(sizeof(*k) == RCS_KEY_SIZE, "key");
	if (!p || !key || p->ep != ep || !p->inserted)
		return RCS_ERR_INVALID;
	memcpy(k, key->bytes, sizeof(*k));
	if (wire_ukey_check(k, &why) || k->job != ep->ch.addr.job || k->node != p->key.node ||
		k->ep != p->key.ep || k->epoch != p->key.epoch)
		return RCS_ERR_INVALID;
	if (flags & RCS_RMA_VADDR)
		*off -= k->addr; /* from below it wraps, far beyond any length */
	return *off > k->len || len > k->len - *off ? RCS_ERR_ACCESS : 0;
}

/* A request that passed all checks. m->peer is alive. */
static struct cl_op *request(rcs_ep *ep, const struct rcs_msg *m, uint64_t len, enum rcs_op kind)
{
	struct cl_op *op = cl_op_new(ep, m, len, true);

	if (op)
		op->kind = kind;
	return op;
}

static void post(struct cl_op *op)
{
	rcs_peer *p = op->peer;
	rcs_ep *ep = op->ep;

	if (ep->tx_cq)
		ep->tx_cq->reserved++;
	op->state = CL_RMA_WAIT;
	DL_APPEND(p->rma, op);
	p->rma_n++;
	ep->rma_n++;
	if (!p->rma_next)
		p->rma_next = op;
	if (p->rma_next != op || !cl_rma_try(op))
		cl_peer_activate(p);
	cl_ep_publish(ep);
}

/* Made before its put is submitted: nothing may fail between the two. */
static bool notify(struct cl_op *put, const struct rcs_rma *r)
{
	struct rcs_msg m = {.flags = RCS_SEND_DATA, .tag = r->tag, .data = r->data, .peer = r->peer};
	struct cl_op *note = request(put->ep, &m, 0, RCS_OP_SEND);

	if (!note)
		return false;
	note->note = true;
	cl_cancel_forget(note);
	r->peer->notes_n++;
	put->ep->notes_n++;
	note->pair = put;
	put->pair = note;
	note->state = CL_PENDING;
	DL_APPEND(r->peer->pending, note);
	cl_peer_activate(r->peer);
	return true;
}

static int rma_locked(rcs_ep *ep, const struct rcs_rma *r, enum rcs_op kind)
{
	struct iovec iov = {r->buf, r->len};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .flags = r->flags, .peer = r->peer,
		.region = r->region, .context = r->context};
	uint32_t known = kind == RCS_OP_GET ? RCS_QUIET | RCS_RMA_VADDR :
		RCS_QUIET | RCS_RMA_VADDR | RCS_PUT_NOTIFY | RCS_PUT_REPLAY;
	uint64_t off = r->offset, len;
	struct wire_ukey k;
	struct cl_op *op;
	int rc;

	if (r->flags & ~known)
		return RCS_ERR_INVALID;
	rc = cl_msg_check(ep, &m, &len);
	if (!rc)
		rc = target_check(ep, r->peer, r->key, r->flags, &off, len, &k);
	if (!rc)
		rc = r->peer->gone;
	if (rc)
		return rc;
	if (!cl_cq_room(ep->tx_cq, true))
		return RCS_ERR_AGAIN;
	op = request(ep, &m, len, kind);
	if (!op)
		return RCS_ERR_AGAIN;
	op->rma = (struct cl_rma){.key = k.key, .off = off};
	if (r->flags & RCS_PUT_NOTIFY && !notify(op, r)) {
		cl_op_free(op);
		return RCS_ERR_AGAIN;
	}
	post(op);
	return 0;
}

static int rma_any(rcs_ep *ep, const struct rcs_rma *r, enum rcs_op kind)
{
	int rc;

	if (!ep || !r)
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	rc = rma_locked(ep, r, kind);
	if (rc == RCS_ERR_AGAIN)
		cl_progress(ep->ctx);
	cl_leave(ep->ctx);
	return rc;
}

int rcs_put_sized(rcs_ep *ep, const struct rcs_rma *r, size_t size)
{
	struct rcs_rma own;

	return rma_any(ep, cl_struct_take(r, size, &own, sizeof(own), CL_RMA_FIRST), RCS_OP_PUT);
}

int rcs_get_sized(rcs_ep *ep, const struct rcs_rma *r, size_t size)
{
	struct rcs_rma own;

	return rma_any(ep, cl_struct_take(r, size, &own, sizeof(own), CL_RMA_FIRST), RCS_OP_GET);
}

static int atomic_locked(rcs_ep *ep, const struct rcs_atomic *a)
{
	struct rcs_msg m = {.flags = a->flags, .peer = a->peer, .context = a->context};
	uint64_t off = a->offset;
	struct wire_ukey k;
	struct cl_op *op;
	int rc;

	if (a->flags & ~(RCS_QUIET | RCS_RMA_VADDR) || a->op < RCS_ATOMIC_ADD ||
		a->op > RCS_ATOMIC_SWAP || (a->size != 4 && a->size != 8))
		return RCS_ERR_INVALID;
	/* memory of rcs_alloc begins at a page, so this holds for a virtual address too */
	if (off % a->size)
		return RCS_ERR_INVALID;
	rc = cl_ep_status(ep);
	if (rc)
		return rc;
	rc = target_check(ep, a->peer, a->key, a->flags, &off, a->size, &k);
	if (rc == RCS_ERR_INVALID || !(k.flags & WIRE_UKEY_ATOMIC))
		return RCS_ERR_INVALID;
	if (!rc)
		rc = a->peer->gone;
	if (rc)
		return rc;
	if (!cl_cq_room(ep->tx_cq, true))
		return RCS_ERR_AGAIN;
	op = request(ep, &m, a->size, RCS_OP_ATOMIC);
	if (!op)
		return RCS_ERR_AGAIN;
	op->rma = (struct cl_rma){.key = k.key, .off = off, .operand = a->operand,
		.compare = a->compare, .result = a->result, .op = (uint8_t)a->op,
		.size = (uint8_t)a->size};
	post(op);
	return 0;
}

int rcs_atomic_sized(rcs_ep *ep, const struct rcs_atomic *a, size_t size)
{
	struct rcs_atomic own;
	int rc;

	a = cl_struct_take(a, size, &own, sizeof(own), CL_ATOMIC_FIRST);
	if (!ep || !a)
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	rc = atomic_locked(ep, a);
	if (rc == RCS_ERR_AGAIN)
		cl_progress(ep->ctx);
	cl_leave(ep->ctx);
	return rc;
}

static int flush_locked(rcs_ep *ep, rcs_peer *peer, uint32_t flags, void *context)
{
	struct rcs_msg m = {.flags = flags, .peer = peer, .context = context};
	struct cl_op *op;
	int rc;

	if (flags & ~RCS_QUIET || (peer && (peer->ep != ep || !peer->inserted)))
		return RCS_ERR_INVALID;
	rc = cl_ep_status(ep);
	if (rc)
		return rc;
	if (!cl_cq_room(ep->tx_cq, true))
		return RCS_ERR_AGAIN;
	op = request(ep, &m, 0, RCS_OP_FLUSH);
	if (!op)
		return RCS_ERR_AGAIN;
	if (ep->tx_cq)
		ep->tx_cq->reserved++;
	op->left = peer ? peer->rma_n + peer->notes_n : ep->rma_n + ep->notes_n;
	if (!op->left) {
		cl_op_end_send(op, RCS_OK);
		return 0;
	}
	op->state = CL_FLUSH;
	if (peer)
		DL_APPEND(peer->flushes, op);
	else
		DL_APPEND(ep->flushes, op);
	return 0;
}

int rcs_flush(rcs_ep *ep, rcs_peer *peer, uint32_t flags, void *context)
{
	int rc;

	if (!ep)
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	rc = flush_locked(ep, peer, flags, context);
	if (rc == RCS_ERR_AGAIN)
		cl_progress(ep->ctx);
	cl_leave(ep->ctx);
	return rc;
}
