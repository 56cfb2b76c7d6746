/* SPDX-License-Identifier: BSD-3-Clause */
/* Canceling: what is not under way ends at once; an announced message is asked back. */
#include "client/lib.h"

#define CHUNK 256u

static bool cancelable(const struct cl_op *op)
{
	return op->state != CL_FREE && !op->inject && !op->note && !op->canceling;
}

/* Rare enough to look at all requests. */
static struct cl_op *oldest(rcs_ep *ep, const void *context)
{
	struct cl_op *best = NULL;

	for (uint32_t i = 0; i < ep->ctx->chunks; i++)
		for (uint32_t k = 0; k < CHUNK; k++) {
			struct cl_op *op = &ep->ctx->chunk[i][k];

			if (op->ep == ep && op->context == context && cancelable(op) &&
				(!best || op->seq < best->seq))
				best = op;
		}
	return best;
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
		if (op->state == CL_RTS) {
			r.op = cl_op_id(op);
			cl_ctl_send(ep, op->peer, &r, NULL);
			cl_ep_publish(ep);
		}
	}
	cl_leave(ep->ctx);
	return rc;
}
