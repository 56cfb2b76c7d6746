/* SPDX-License-Identifier: BSD-3-Clause */
/* Canceling: what is not under way ends at once; an announced message is asked back. */
#include "client/lib.h"

static uint64_t cancel_hash(const rcs_ep *ep, const void *context)
{
	return cl_hash((uint64_t)(uintptr_t)ep, (uint64_t)(uintptr_t)context);
}

void cl_cancel_add(struct cl_op *op)
{
	cl_index_add(&op->ep->ctx->cancel, &op->cancel, cancel_hash(op->ep, op->context));
	op->cancelable = true;
}

void cl_cancel_forget(struct cl_op *op)
{
	if (op->cancelable)
		cl_index_del(&op->ep->ctx->cancel, &op->cancel);
	op->cancelable = false;
}

static struct cl_op *oldest(rcs_ep *ep, const void *context)
{
	struct cl_link *l = cl_index_first(&ep->ctx->cancel, cancel_hash(ep, context));

	for (; l; l = cl_index_next(l)) {
		struct cl_op *op = cl_link_of(l, struct cl_op, cancel);

		if (op->ep == ep && op->context == context)
			return op;
	}
	return NULL;
}

int rcs_cancel(rcs_ep *ep, void *context)
{
	struct wire_rec r = {.type = WIRE_REC_CANCEL};
	struct cl_op *op;
	int rc;

	if (!ep)
		return RCS_ERR_INVALID;
	rc = cl_enter(ep->ctx);
	if (rc)
		return rc;
	op = oldest(ep, context);
	if (!op) {
		rc = RCS_ERR_INVALID;
	} else if (op->state == CL_POSTED) {
		cl_op_unlink(op);
		cl_op_end_recv(op, RCS_ERR_CANCELED);
	} else if (op->state == CL_PENDING || op->state == CL_RMA_WAIT || op->state == CL_FLUSH) {
		cl_op_unlink(op);
		cl_op_end_send(op, RCS_ERR_CANCELED);
		cl_ep_pump(ep); /* what waited for it */
	} else {
		/* The rest completes as it would have, an announced message unless it matched. A put
		 * or get is the daemon's, who may be writing into the memory. */
		op->canceling = true;
		cl_cancel_forget(op);
		if (op->state == CL_RTS) {
			r.op = cl_op_id(op);
			cl_ctl_send(ep, op->peer, &r, NULL);
			cl_ep_publish(ep);
		}
	}
	cl_leave(ep->ctx);
	return rc;
}
