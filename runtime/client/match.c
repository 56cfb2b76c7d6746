/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching: posted receives and unexpected messages. A receive matches the oldest message, a message the oldest
 * receive, whose source and tag (but for the ignored bits) agree. Receives that ignore no bit are found by a hash
 * of their source and tag, those of any source too; the others are in one list, in order. Numbers (op->seq) tell
 * which of several that match is the oldest. Messages are in a list and in hashes for both kinds of exact receives.
 */
#include <stdlib.h>
#include <string.h>

#include "client/lib.h"

static uint64_t match_hash(const rcs_peer *from, uint64_t tag)
{
	return cl_hash((uint64_t)(uintptr_t)from, tag);
}

void cl_match_post(struct cl_op *op)
{
	op->state = CL_POSTED;
	if (op->ignore)
		DL_APPEND(op->ep->posted, op);
	else
		cl_index_add(&op->ep->exact, &op->exact, match_hash(op->peer, op->tag));
	if (op->peer)
		op->peer->posted_n++;
}

void cl_match_unpost(struct cl_op *op)
{
	if (op->ignore)
		DL_DELETE(op->ep->posted, op);
	else
		cl_index_del(&op->ep->exact, &op->exact);
	if (op->peer)
		op->peer->posted_n--;
}

void cl_match_end(rcs_peer *p, int status)
{
	struct cl_link *l, *next = NULL;
	struct cl_op *op, *tmp;
	rcs_ep *ep = p->ep;
	uint32_t slot = 0;

	while (p->posted_n && (l = cl_index_walk(&ep->exact, &slot, &next))) {
		op = cl_link_of(l, struct cl_op, exact);
		if (op->peer != p)
			continue;
		cl_op_unlink(op);
		cl_op_end_recv(op, status);
	}
	if (!p->posted_n)
		return;
	DL_FOREACH_SAFE(ep->posted, op, tmp) {
		if (op->peer != p)
			continue;
		cl_op_unlink(op);
		cl_op_end_recv(op, status);
	}
}

static struct cl_op *posted_exact(rcs_ep *ep, const rcs_peer *from, uint64_t tag)
{
	for (struct cl_link *l = cl_index_first(&ep->exact, match_hash(from, tag)); l; l = cl_index_next(l)) {
		struct cl_op *op = cl_link_of(l, struct cl_op, exact);

		if (op->peer == from && op->tag == tag)
			return op;
	}
	return NULL;
}

struct cl_op *cl_match_posted(rcs_ep *ep, const rcs_peer *from, uint64_t tag)
{
	struct cl_op *best = posted_exact(ep, from, tag), *any = posted_exact(ep, NULL, tag), *op;

	if (any && (!best || any->seq < best->seq))
		best = any;
	DL_FOREACH(ep->posted, op) {
		if (best && best->seq < op->seq)
			break;
		if ((!op->peer || op->peer == from) && !((op->tag ^ tag) & ~op->ignore))
			return op;
	}
	return best;
}

void cl_unexp_add(rcs_claim *u)
{
	rcs_ep *ep = u->ep;

	DL_APPEND(ep->unexp, u);
	cl_index_add(&ep->unexp_exact, &u->exact, match_hash(u->peer, u->tag));
	cl_index_add(&ep->unexp_tagged, &u->tagged, match_hash(NULL, u->tag));
	if (u->large)
		cl_index_add(&ep->announced, &u->announced, match_hash(u->peer, u->remote));
}

static void unexp_leave(rcs_claim *u)
{
	DL_DELETE(u->ep->unexp, u);
	cl_index_del(&u->ep->unexp_exact, &u->exact);
	cl_index_del(&u->ep->unexp_tagged, &u->tagged);
}

void cl_unexp_claim(rcs_claim *u)
{
	unexp_leave(u);
	u->claimed = true;
	DL_APPEND(u->ep->claimed, u);
}

rcs_claim *cl_unexp_announced(const rcs_peer *from, uint64_t remote)
{
	struct cl_link *l = cl_index_first(&from->ep->announced, match_hash(from, remote));

	for (; l; l = cl_index_next(l)) {
		rcs_claim *u = cl_link_of(l, rcs_claim, announced);

		if (u->peer == from && u->remote == remote)
			return u;
	}
	return NULL;
}

rcs_claim *cl_match_unexp(rcs_ep *ep, const rcs_peer *from, uint64_t tag, uint64_t ignore)
{
	struct cl_link *l;
	rcs_claim *u;

	if (ignore) {
		DL_FOREACH(ep->unexp, u)
			if ((!from || from == u->peer) && !((u->tag ^ tag) & ~ignore))
				return u;
		return NULL;
	}
	l = cl_index_first(from ? &ep->unexp_exact : &ep->unexp_tagged, match_hash(from, tag));
	for (; l; l = cl_index_next(l)) {
		u = from ? cl_link_of(l, rcs_claim, exact) : cl_link_of(l, rcs_claim, tagged);
		if ((!from || from == u->peer) && u->tag == tag)
			return u;
	}
	return NULL;
}

void cl_match_free(rcs_ep *ep)
{
	cl_index_free(&ep->exact);
	cl_index_free(&ep->unexp_exact);
	cl_index_free(&ep->unexp_tagged);
	cl_index_free(&ep->announced);
}

void cl_unexp_free(rcs_claim *u)
{
	if (u->claimed)
		DL_DELETE(u->ep->claimed, u);
	else
		unexp_leave(u);
	if (u->large)
		cl_index_del(&u->ep->announced, &u->announced);
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

int rcs_probe_sized(rcs_ep *ep, rcs_peer *from, uint64_t tag, uint64_t ignore,
	struct rcs_completion *found, rcs_claim **claim, size_t size)
{
	struct rcs_completion c;
	rcs_claim *u;
	int rc;

	if (!ep || (from && from->ep != ep) || (found && size < CL_COMPLETION_FIRST))
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
	if (u && found) {
		c = (struct rcs_completion){.op = RCS_OP_RECV, .len = u->len, .tag = u->tag,
			.data = u->data, .has_data = u->has_data,
			.source = u->peer->inserted ? u->peer : NULL, .source_rank = u->peer->rank};
		cl_struct_give(found, size, &c, sizeof(c));
	}
	if (u && claim) {
		cl_unexp_claim(u);
		*claim = u;
	}
	cl_leave(ep->ctx);
	return rc;
}
