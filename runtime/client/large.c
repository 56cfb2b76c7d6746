/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large messages. The sender announces (RTS), the receiver's side fetches when a receive matches:
 *
 *	same node	process_vm_readv			FIN
 *	RDMA		GET to the own daemon, GET_DONE		FIN
 *	else		CTS, the sender pushes pieces		FIN
 *
 * Each of them may end early; the next goes on from the first byte that is missing.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "client/lib.h"

/* A few milliseconds. Between two of them others may have the lock, and it is looked whether this rank may act. */
#define VM_CHUNK (16ull << 20)
#define PUSH_WINDOW (64ull << 10)

void cl_large_fin(rcs_ep *ep, rcs_peer *to, uint64_t op, int status)
{
	struct wire_rec r = {.type = WIRE_REC_FIN, .op = op, .arg = (uint64_t)(int64_t)status};

	cl_ctl_send(ep, to, &r, NULL);
}

static void finish(struct cl_op *op, int status)
{
	cl_op_unlink(op);
	cl_large_fin(op->ep, op->peer, op->remote, RCS_OK);
	if (!status && op->msg_len > op->len)
		status = RCS_ERR_TRUNCATED;
	cl_op_end_recv(op, status);
}

static uint32_t iov_slice(const struct iovec *iov, uint32_t n, uint64_t off, uint64_t len,
	struct iovec *out)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n && len; i++) {
		uint64_t here = iov[i].iov_len;

		if (off >= here) {
			off -= here;
			continue;
		}
		here -= off;
		if (here > len)
			here = len;
		out[k++] = (struct iovec){(uint8_t *)iov[i].iov_base + off, here};
		len -= here;
		off = 0;
	}
	return k;
}

/* Is it the sender's memory, and is the message still in it? */
static bool cookie_is_there(const struct cl_op *op)
{
	uint64_t cookie = 0;
	struct iovec local = {&cookie, sizeof(cookie)};
	struct iovec remote = {(void *)(uintptr_t)op->rts.cookie_at, sizeof(cookie)};

	return process_vm_readv((pid_t)op->rts.pid, &local, 1, &remote, 1, 0) == sizeof(cookie) &&
		cookie == op->rts.cookie;
}

/*
 * A piece of it straight from the sender's memory. The cookie is read behind each piece: pid may be
 * another process's here, or the sender's endpoint closed and its buffer used for something else. What was
 * read then is overwritten by what is pushed, or the receive ends with an error.
 */
static bool vm_read(struct cl_op *op)
{
	uint64_t n = op->end - op->off;
	struct iovec local[CL_IOV_MAX], remote;
	uint32_t k;
	ssize_t got;

	if (n > VM_CHUNK)
		n = VM_CHUNK;
	k = iov_slice(op->iov, op->iov_n, op->off, n, local);
	remote = (struct iovec){(void *)(uintptr_t)(op->rts.addr + op->off), n};
	got = process_vm_readv((pid_t)op->rts.pid, local, k, &remote, 1, 0);
	if (got <= 0 || !cookie_is_there(op))
		return false;
	op->off += (uint64_t)got;
	return true;
}

static bool local_reg(struct cl_op *op, struct cl_reg *reg)
{
	rcs_ep *ep = op->ep;

	if (op->region)
		return !cl_region_reg(op->region, ep, reg, NULL) && reg->rdma && !reg->readonly;
	if (cl_reg_make(ep->ctx, &ep->ch, op->iov[0].iov_base, op->end, (struct wire_key){0, 0}, NULL, &op->reg,
		    NULL))
		return false;
	*reg = op->reg;
	return reg->rdma && !reg->readonly;
}

/* 1: under way; 0: has to wait for answers; -1: not by RDMA. */
static int get(struct cl_op *op)
{
	rcs_ep *ep = op->ep;
	struct wire_rec r = {.type = WIRE_REC_GET, .len = sizeof(struct wire_get), .op = cl_op_id(op),
		.tag = op->remote};
	struct wire_get g = {.key = op->rts.key, .raddr = op->rts.addr, .len = op->end};
	struct cl_reg reg;

	if (op->no_get || !op->rts.rail_ok || !op->rts.key.region || op->iov_n != 1 ||
		op->end < ep->ch.zcopy_min || op->peer->key.node == ep->ch.node)
		return -1;
	if (!cl_op_reserve(op, 1, true))
		return 0;
	if (!local_reg(op, &reg)) {
		cl_op_answered(op, 1);
		return -1;
	}
	g.laddr = (uint64_t)(uintptr_t)op->iov[0].iov_base;
	g.lregion = reg.key.region;
	g.lgen = reg.key.gen;
	cl_op_unlink(op);
	op->state = CL_GETTING;
	DL_APPEND(op->peer->fetching, op);
	cl_ctl_send(ep, op->peer, &r, &g);
	return 1;
}

static void pull(struct cl_op *op)
{
	struct wire_rec r = {.type = WIRE_REC_CTS, .op = cl_op_id(op), .tag = op->remote,
		.arg = op->off, .data = op->end};
	uint64_t want = 2 * (op->end - op->off);

	if (!cl_op_reserve(op, 1, true))
		return;
	cl_op_unlink(op);
	op->state = CL_PULLING;
	DL_APPEND(op->peer->fetching, op);
	op->peer->pulls++;
	cl_credit_wish(op->peer, want < PUSH_WINDOW ? want : PUSH_WINDOW);
	cl_ctl_send(op->ep, op->peer, &r, NULL);
}

/* op is in CL_FETCH, and stays there if it has to wait. */
void cl_large_start(struct cl_op *op)
{
	const bool local = op->off < op->end && op->peer->key.node == op->ep->ch.node && op->rts.cookie_at;
	bool copied = false;
	int rc;

	if (local && op->ep->copying)
		return; /* one piece a turn, of whichever message */
	if (local && cl_ep_acts(op->ep)) {
		copied = vm_read(op);
		op->ep->ctx->work += copied;
	}
	if (op->off == op->end) {
		finish(op, RCS_OK);
		return;
	}
	if (copied) {
		op->ep->copying = op->ep->ctx->held_long = true;
		return;
	}
	if (!cl_ep_acts(op->ep)) {
		op->ep->blocked = true;
		return;
	}
	op->rts.cookie_at = 0;
	rc = get(op);
	if (rc >= 0 || op->ep->lost)
		return;
	op->no_get = true;
	pull(op);
}

void cl_large_matched(struct cl_op *op, rcs_peer *from, uint64_t tag, uint64_t len, uint64_t remote,
	const struct wire_rts *rts)
{
	op->peer = from;
	op->tag = tag;
	op->msg_len = len;
	op->remote = remote;
	op->rts = *rts;
	op->off = 0;
	op->end = len < op->len ? len : op->len;
	op->state = CL_FETCH;
	DL_APPEND(op->ep->fetchq, op);
	cl_large_start(op);
}

void cl_large_get_done(struct cl_op *op, const struct wire_rec *r)
{
	cl_op_answered(op, 1);
	if (op->source_gone) {
		cl_op_unlink(op);
		cl_op_end_recv(op, RCS_ERR_PEER_GONE);
		return;
	}
	if ((int64_t)r->arg == RCS_OK) {
		op->off = op->end;
		finish(op, RCS_OK);
		return;
	}
	/* No RDMA path now, or the read was refused: what is missing is pushed. */
	op->no_get = true;
	op->off = r->data < op->end ? r->data : op->end;
	if (op->off == op->end) {
		finish(op, RCS_OK);
		return;
	}
	cl_op_unlink(op);
	if (op->peer->gone) {
		cl_op_end_recv(op, op->peer->gone);
		return;
	}
	op->state = CL_FETCH;
	DL_APPEND(op->ep->fetchq, op);
	pull(op);
}

void cl_large_push_rec(rcs_peer *from, const struct wire_rec *r, const uint8_t *payload)
{
	struct cl_op *op = cl_op_find(from->ep, r->op);

	/* a piece for a request that ended is of no use, but not wrong */
	if (!op || op->state != CL_PULLING || op->peer != from || r->arg != op->off ||
		r->len > op->end - op->off)
		return;
	cl_iov_put(op->iov, op->iov_n, op->off, payload, r->len);
	op->off += r->len;
	if (op->off == op->end)
		finish(op, RCS_OK);
}

void cl_large_cts(rcs_peer *from, const struct wire_rec *r)
{
	struct cl_op *op = cl_op_find(from->ep, r->tag);

	if (!op || op->state != CL_RTS || op->peer != from || r->data > op->len || r->arg >= r->data)
		return;
	cl_op_answered(op, 1);
	cl_op_unlink(op);
	op->remote = r->op;
	op->off = r->arg;
	op->end = r->data;
	op->state = CL_PUSHING;
	DL_APPEND(from->pushing, op);
	cl_peer_activate(from);
}
