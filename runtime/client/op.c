/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: their memory, their names on the wire, how they end. */
#include <stdlib.h>
#include <string.h>

#include "client/lib.h"

#define CHUNK 256u

static bool ops_grow(rcs_ctx *ctx)
{
	struct cl_op **c, *ops;

	c = realloc(ctx->chunk, (ctx->chunks + 1) * sizeof(*c));
	if (!c)
		return false;
	ctx->chunk = c;
	ops = calloc(CHUNK, sizeof(*ops));
	if (!ops)
		return false;
	c[ctx->chunks] = ops;
	for (uint32_t i = 0; i < CHUNK; i++) {
		ops[i].idx = ctx->chunks * CHUNK + i;
		ops[i].next = ctx->free_ops;
		ctx->free_ops = &ops[i];
	}
	ctx->chunks++;
	return true;
}

/*
 * Sends and receives are bounded apart: sends that wait for a peer must not keep the receives from
 * being posted that the peer waits for.
 */
struct cl_op *cl_op_new(rcs_ep *ep, const struct rcs_msg *m, uint64_t len, bool send)
{
	rcs_ctx *ctx = ep->ctx;
	struct cl_op *op;
	uint32_t idx, gen, *n = send ? &ctx->sends_n : &ctx->recvs_n;

	if (send && *n >= CL_SENDS_MAX)
		return NULL;
	if (!ctx->free_ops && !ops_grow(ctx))
		return NULL;
	op = ctx->free_ops;
	ctx->free_ops = op->next;
	++*n;
	idx = op->idx;
	gen = op->gen + 1;
	memset(op, 0, sizeof(*op));
	op->idx = idx;
	op->gen = gen;
	op->ep = ep;
	op->send = send;
	op->kind = send ? RCS_OP_SEND : RCS_OP_RECV;
	op->peer = m->peer;
	op->flags = m->flags;
	op->has_data = m->flags & RCS_SEND_DATA;
	op->iov_n = m->iov_n;
	if (m->iov_n)
		memcpy(op->iov, m->iov, m->iov_n * sizeof(*m->iov));
	op->context = m->context;
	op->tag = m->tag;
	op->data = m->data;
	op->ignore = m->ignore;
	op->len = len;
	op->seq = ctx->op_seq++;
	op->region = m->region;
	if (op->region)
		op->region->uses++;
	cl_cancel_add(op);
	return op;
}

void cl_op_free(struct cl_op *op)
{
	rcs_ctx *ctx = op->ep->ctx;

	cl_cancel_forget(op);
	if (op->reg.key.region)
		cl_reg_drop(&op->ep->ch, &op->reg);
	if (op->region)
		op->region->uses--;
	op->ep->answers -= op->answers;
	free(op->copy);
	op->copy = NULL;
	op->state = CL_FREE;
	op->next = ctx->free_ops;
	ctx->free_ops = op;
	if (op->send)
		ctx->sends_n--;
	else
		ctx->recvs_n--;
}

struct cl_op *cl_op_find(rcs_ep *ep, uint64_t id)
{
	uint32_t idx = (uint32_t)id, gen = (uint32_t)(id >> 32);
	struct cl_op *op;

	if (idx / CHUNK >= ep->ctx->chunks)
		return NULL;
	op = &ep->ctx->chunk[idx / CHUNK][idx % CHUNK];
	return op->state != CL_FREE && op->gen == gen && op->ep == ep ? op : NULL;
}

/*
 * A quarter of the answers is kept for receives: two ranks that have both filled theirs with sends
 * to each other can still fetch.
 */
bool cl_op_reserve(struct cl_op *op, uint32_t n, bool fetch)
{
	rcs_ep *ep = op->ep;
	uint64_t max = ep->ch.answers_max;

	if (!fetch)
		max -= max / 4;
	if (ep->answers + n > max)
		return false;
	ep->answers += n;
	op->answers += n;
	return true;
}

void cl_op_answered(struct cl_op *op, uint32_t n)
{
	if (n > op->answers)
		n = op->answers;
	op->answers -= n;
	op->ep->answers -= n;
	op->ep->kick = true;
}

void cl_op_unlink(struct cl_op *op)
{
	switch (op->state) {
	case CL_PENDING:
		DL_DELETE(op->peer->pending, op);
		break;
	case CL_DELIVERY:
	case CL_RTS:
	case CL_PUSHED:
		DL_DELETE(op->peer->waiting, op);
		break;
	case CL_PUSHING:
		DL_DELETE(op->peer->pushing, op);
		break;
	case CL_RMA_WAIT:
	case CL_RMA:
	case CL_FLUSH:
		cl_rma_unlink(op);
		break;
	case CL_POSTED:
		cl_match_unpost(op);
		break;
	case CL_FETCH:
		DL_DELETE(op->ep->fetchq, op);
		break;
	case CL_PULLING:
		op->peer->pulls--;
		/* fall through */
	case CL_GETTING:
		DL_DELETE(op->peer->fetching, op);
		break;
	default:
		break;
	}
}

void cl_op_end_send(struct cl_op *op, int status)
{
	rcs_ep *ep = op->ep;

	if (op->note) {
		if (op->pair)
			op->pair->pair = NULL;
		cl_note_ended(op);
		cl_op_free(op);
		return;
	}
	if (op->inject)
		ep->injects_n--;
	if (ep->tx_cntr) {
		if (status == RCS_OK)
			ep->tx_cntr->ok++;
		else
			ep->tx_cntr->errors++;
	}
	if (ep->tx_cq && !op->inject) {
		ep->tx_cq->reserved--;
		if (status != RCS_OK || !(op->flags & RCS_QUIET)) {
			struct rcs_completion c = {.context = op->context, .op = op->kind,
				.status = status, .len = op->len, .tag = op->tag};

			cl_cq_push(ep->tx_cq, &c);
		}
	}
	if (op->kind != RCS_OP_SEND)
		cl_rma_ended(op, status);
	cl_op_free(op);
}

/* op->peer, tag, data, msg_len tell of the message; a request that met none keeps its own tag. */
void cl_op_end_recv(struct cl_op *op, int status)
{
	rcs_ep *ep = op->ep;

	if (ep->rx_cntr) {
		if (status == RCS_OK)
			ep->rx_cntr->ok++;
		else
			ep->rx_cntr->errors++;
	}
	if (ep->rx_cq) {
		ep->rx_cq->reserved--;
		if (status != RCS_OK || !(op->flags & RCS_QUIET)) {
			struct rcs_completion c = {.context = op->context, .op = RCS_OP_RECV,
				.status = status, .len = op->msg_len, .tag = op->tag,
				.data = op->data, .has_data = op->has_data,
				.source = op->peer && op->peer->inserted ? op->peer : NULL,
				.source_rank = op->peer ? op->peer->rank : UINT32_MAX};

			cl_cq_push(ep->rx_cq, &c);
		}
	}
	cl_op_free(op);
}

int64_t cl_iov_len(const struct iovec *iov, uint32_t n)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (iov[i].iov_len > INT64_MAX - len || (!iov[i].iov_base && iov[i].iov_len))
			return -1;
		len += iov[i].iov_len;
	}
	return (int64_t)len;
}

static void iov_copy(const struct iovec *iov, uint32_t n, uint64_t off, uint8_t *flat, uint64_t len,
	bool put)
{
	for (uint32_t i = 0; i < n && len; i++) {
		uint64_t here = iov[i].iov_len;

		if (off >= here) {
			off -= here;
			continue;
		}
		here -= off;
		if (here > len)
			here = len;
		if (put)
			memcpy((uint8_t *)iov[i].iov_base + off, flat, here);
		else
			memcpy(flat, (const uint8_t *)iov[i].iov_base + off, here);
		flat += here;
		len -= here;
		off = 0;
	}
}

void cl_iov_put(const struct iovec *iov, uint32_t n, uint64_t off, const void *from, uint64_t len)
{
	iov_copy(iov, n, off, (uint8_t *)(uintptr_t)from, len, true);
}

void cl_iov_get(const struct iovec *iov, uint32_t n, uint64_t off, void *to, uint64_t len)
{
	iov_copy(iov, n, off, to, len, false);
}

int cl_msg_check(rcs_ep *ep, const struct rcs_msg *m, uint64_t *len)
{
	int64_t n;

	if (m->iov_n > CL_IOV_MAX || (m->iov_n && !m->iov) || (m->peer && m->peer->ep != ep))
		return RCS_ERR_INVALID;
	n = cl_iov_len(m->iov, m->iov_n);
	if (n < 0)
		return RCS_ERR_INVALID;
	if (m->region)
		for (uint32_t i = 0; i < m->iov_n; i++)
			if (!cl_region_covers(m->region, m->iov[i].iov_base, m->iov[i].iov_len))
				return RCS_ERR_INVALID;
	*len = (uint64_t)n;
	return cl_ep_status(ep);
}
