/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory the user registers once for many messages. A registration belongs to a channel,
 * so a region has one for each endpoint that used it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib.h"

bool cl_region_covers(const rcs_region *r, const void *p, uint64_t len)
{
	const uint8_t *b = p;

	return !len || (b >= r->addr && len <= r->len && (size_t)(b - r->addr) <= r->len - len);
}

int cl_region_reg(rcs_region *region, rcs_ep *ep, struct cl_reg *reg, struct rcs_error *err)
{
	struct cl_ep_reg *e;
	int rc;

	for (e = region->regs; e && e->ep != ep; e = e->next)
		;
	/* A rail that came back knows nothing of what was registered before. Only this request uses the
	 * region: it can be made anew. */
	if (e && e->rails != region->ctx->rails_back && region->uses <= 1) {
		struct cl_reg fresh;

		if (cl_reg_make(ep, region->addr, region->len, &fresh, NULL) == 0) {
			cl_reg_drop(ep, &e->reg);
			e->reg = fresh;
			e->rails = region->ctx->rails_back;
		}
	}
	if (e) {
		*reg = e->reg;
		return 0;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a region");
	rc = cl_reg_make(ep, region->addr, region->len, &e->reg, err);
	if (rc) {
		free(e);
		return rc;
	}
	e->ep = ep;
	e->rails = region->ctx->rails_back;
	e->next = region->regs;
	region->regs = e;
	*reg = e->reg;
	return 0;
}

void cl_region_forget(rcs_ctx *ctx, rcs_ep *ep)
{
	for (rcs_region *r = ctx->regions; r; r = r->next)
		for (struct cl_ep_reg **p = &r->regs, *e; (e = *p);) {
			if (e->ep != ep) {
				p = &e->next;
				continue;
			}
			*p = e->next;
			free(e);
		}
}

static int open_locked(rcs_ctx *ctx, void *addr, size_t len, bool alloced, rcs_region **region,
	struct rcs_error *err)
{
	rcs_region *r = calloc(1, sizeof(*r));
	struct cl_reg reg;
	int rc = 0;

	if (!r)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a region");
	r->ctx = ctx;
	r->addr = addr;
	r->len = len;
	r->alloced = alloced;
	/* Registered now where it can be, so that a limit shows here; else at first use. */
	if (ctx->eps && !ctx->eps->lost && ctx->eps->ch.zcopy_min != UINT32_MAX)
		rc = cl_region_reg(r, ctx->eps, &reg, err);
	if (rc && rc != RCS_ERR_AGAIN) {
		free(r);
		return rc;
	}
	DL_APPEND(ctx->regions, r);
	*region = r;
	return 0;
}

int rcs_region_open(rcs_ctx *ctx, void *addr, size_t len, rcs_region **region, struct rcs_error *err)
{
	int rc;

	if (!ctx || !addr || !len || !region || (uintptr_t)addr + len < (uintptr_t)addr)
		return cl_fail(err, RCS_ERR_INVALID,
			"rcs_region_open: needs a context, an address and a length");
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = open_locked(ctx, addr, len, false, region, err);
	cl_leave(ctx);
	return rc;
}

/* The answers are awaited: after this the user may unmap. */
static void region_drop(rcs_region *r)
{
	for (struct cl_ep_reg *e = r->regs, *next; e; e = next) {
		struct shm_dereg req = {.key = e->reg.key}, ans;

		next = e->next;
		cl_msg_init(&req.m, SHM_MSG_DEREG);
		if (!e->ep->lost && e->reg.key.region)
			cl_chan_ask(&e->ep->ch, &req, sizeof(req), &ans, sizeof(ans), NULL, NULL);
		free(e);
	}
	DL_DELETE(r->ctx->regions, r);
	if (r->alloced)
		munmap(r->addr, r->len);
	free(r);
}

int rcs_region_close(rcs_region *region)
{
	rcs_ctx *ctx = region ? region->ctx : NULL;
	int rc;

	if (!region)
		return RCS_ERR_INVALID;
	rc = cl_enter(ctx);
	if (rc)
		return rc;
	if (region->uses)
		rc = RCS_ERR_BUSY;
	else
		region_drop(region);
	cl_leave(ctx);
	return rc;
}

int rcs_alloc(rcs_ctx *ctx, size_t len, void **addr, rcs_region **region, struct rcs_error *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p;
	int rc;

	if (!ctx || !len || !addr || !region || len > SIZE_MAX - page)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_alloc: needs a context and a length");
	len = (len + page - 1) & ~(page - 1);
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		rc = cl_fail(err, RCS_ERR_NOMEM, "mmap of %zu bytes: %s", len, strerror(errno));
	} else {
		rc = open_locked(ctx, p, len, true, region, err);
		if (rc)
			munmap(p, len);
		else
			*addr = p;
	}
	cl_leave(ctx);
	return rc;
}

int rcs_free(rcs_region *region)
{
	return region && region->alloced ? rcs_region_close(region) : RCS_ERR_INVALID;
}
