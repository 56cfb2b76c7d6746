/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching: posted receives and unexpected messages, each in order. A receive matches the oldest
 * message, a message the oldest receive, whose source and tag (but for the ignored bits) agree.
 */
#include <stdlib.h>
#include <string.h>

#include "client/lib.h"

void cl_match_post(struct cl_op *op)
{
	op->state = CL_POSTED;
	DL_APPEND(op->ep->posted, op);
	if (op->peer)
		op->peer->posted_n++;
}

void cl_match_unpost(struct cl_op *op)
{
	DL_DELETE(op->ep->posted, op);
	if (op->peer)
		op->peer->posted_n--;
}

struct cl_op *cl_match_posted(rcs_ep *ep, const rcs_peer *from, uint64_t tag)
{
	struct cl_op *op;

	DL_FOREACH(ep->posted, op)
		if ((!op->peer || op->peer == from) && !((op->tag ^ tag) & ~op->ignore))
			return op;
	return NULL;
}

rcs_claim *cl_match_unexp(rcs_ep *ep, const rcs_peer *from, uint64_t tag, uint64_t ignore)
{
	rcs_claim *u;

	DL_FOREACH(ep->unexp, u)
		if ((!from || from == u->peer) && !((u->tag ^ tag) & ~ignore))
			return u;
	return NULL;
}

/* Taken out of its list already. */
void cl_unexp_free(rcs_claim *u)
{
	u->ep->unexp_bytes -= u->charge;
	cl_credit_release(u->peer, u->charge);
	free(u);
}

void cl_recv_take(struct cl_op *op, rcs_claim *u)
{
	rcs_peer *from = u->peer;

	op->has_data = u->has_data;
	op->data = u->data;
	if (u->source_gone) {
		op->peer = from;
		op->tag = u->tag;
		op->msg_len = u->len;
		op->state = CL_FREE;
		cl_op_end_recv(op, RCS_ERR_PEER_GONE);
		cl_unexp_free(u);
		return;
	}
	if (u->large) {
		struct wire_rts rts = u->rts;
		uint64_t tag = u->tag, len = u->len, remote = u->remote;

		cl_unexp_free(u);
		cl_large_matched(op, from, tag, len, remote, &rts);
		return;
	}
	op->peer = from;
	op->tag = u->tag;
	op->msg_len = u->len;
	cl_iov_put(op->iov, op->iov_n, 0, u->payload, u->len < op->len ? u->len : op->len);
	op->state = CL_FREE;
	cl_op_end_recv(op, u->len > op->len ? RCS_ERR_TRUNCATED : RCS_OK);
	cl_unexp_free(u);
}

int rcs_probe(rcs_ep *ep, rcs_peer *from, uint64_t tag, uint64_t ignore,
	struct rcs_completion *found, rcs_claim **claim)
{
	rcs_claim *u;
	int rc;

	if (!ep || (from && from->ep != ep))
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	u = cl_acts(ep->ctx) ? cl_match_unexp(ep, from, tag, ignore) : NULL;
	if (!u) {
		cl_progress(ep->ctx);
		u = cl_acts(ep->ctx) ? cl_match_unexp(ep, from, tag, ignore) : NULL;
	}
	rc = u ? 1 : ep->lost;
	if (u && found)
		*found = (struct rcs_completion){.op = RCS_OP_RECV, .len = u->len, .tag = u->tag,
			.data = u->data, .has_data = u->has_data,
			.source = u->peer->inserted ? u->peer : NULL, .source_rank = u->peer->rank};
	if (u && claim) {
		DL_DELETE(ep->unexp, u);
		DL_APPEND(ep->claimed, u);
		*claim = u;
	}
	cl_leave(ep->ctx);
	return rc;
}
