/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the daemon may not do itself (Yama, a container, a process that is not dumpable): read and write this
 * process' memory for puts and gets, of others in a region of ours and of our own in their buffers.
 *
 * One such request is in the receive ring at a time, so at most one waits here for room. Everything is
 * checked at the moment of the access and under the context's lock: what was closed before is not touched.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/lib.h"

static bool region_has(rcs_ep *ep, struct wire_key k, const void *at, uint64_t len)
{
	for (const rcs_region *r = ep->ctx->regions; r; r = r->next)
		for (const struct cl_ep_reg *e = r->regs; e; e = e->next)
			if (e->ep == ep && e->reg.key.region == k.region && e->reg.key.gen == k.gen)
				return cl_region_covers(r, at, len);
	return false;
}

static bool own_has(rcs_ep *ep, const struct wire_rec *r, const void *at, uint64_t len)
{
	const struct cl_op *op = cl_op_find(ep, r->data);
	uint32_t kind = r->flags & WIRE_REC_F_WRITE ? RCS_OP_GET : RCS_OP_PUT;
	uint64_t off;

	if (!op || op->state != CL_RMA || op->kind != kind)
		return false;
	off = (uint64_t)((uintptr_t)at - (uintptr_t)op->iov[0].iov_base);
	return off <= op->len && len <= op->len - off;
}

/* As the daemon would: memory that is not there is an error, not a signal. */
static int copy(void *at, void *buf, uint64_t len, bool write)
{
	struct iovec near = {buf, len}, far = {at, len};
	ssize_t got = write ? process_vm_writev(getpid(), &near, 1, &far, 1, 0) :
			      process_vm_readv(getpid(), &near, 1, &far, 1, 0);

	if (got >= 0 || errno == EFAULT)
		return got == (ssize_t)len ? 0 : RCS_ERR_FAULT;
	/* a container that forbids the call altogether */
	memcpy(write ? at : buf, write ? buf : at, len);
	return 0;
}

static int execute(rcs_ep *ep, const struct wire_rec *r, void *buf)
{
	void *at = (void *)(uintptr_t)r->tag;

	if (r->flags & WIRE_REC_F_OWN && !own_has(ep, r, at, r->arg))
		return RCS_ERR_FAULT;
	if (!(r->flags & WIRE_REC_F_OWN) && !region_has(ep, wire_key_unpack(r->data), at, r->arg))
		return RCS_ERR_ACCESS;
	return copy(at, buf, r->arg, r->flags & WIRE_REC_F_WRITE);
}

void cl_access_pump(rcs_ep *ep)
{
	struct wire_rec *to, *r = &ep->access;
	int rc;

	if (!r->type)
		return;
	to = ep->ctl ? NULL : shm_ring_reserve(&ep->ch.tx, (uint32_t)r->arg);
	if (!to) {
		ep->blocked = true;
		return;
	}
	rc = execute(ep, r, to + 1);
	*to = (struct wire_rec){.type = WIRE_REC_ACCESSED, .op = r->op, .arg = (uint64_t)(int64_t)rc,
		.len = rc ? 0 : (uint32_t)r->arg};
	shm_ring_commit(&ep->ch.tx, to->len);
	r->type = 0;
	ep->tx_dirty = true;
	ep->ctx->work++;
}

void cl_access(rcs_ep *ep, const struct wire_rec *r, const uint8_t *payload)
{
	struct wire_rec a = {.type = WIRE_REC_ACCESSED, .op = r->op};
	bool write = r->flags & WIRE_REC_F_WRITE;

	if (ep->access.type || (write ? r->len != r->arg : r->len || r->arg > WIRE_REC_PAYLOAD_MAX)) {
		ep->dying = RCS_ERR_PROTOCOL;
		return;
	}
	if (write) {
		a.arg = (uint64_t)(int64_t)execute(ep, r, (void *)(uintptr_t)payload);
		cl_ctl_send(ep, NULL, &a, NULL);
		return;
	}
	ep->access = *r;
	cl_access_pump(ep);
}
