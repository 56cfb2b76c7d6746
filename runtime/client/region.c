/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory the user registers once for many messages. A registration belongs to a channel,
 * so a region has one for each endpoint that used it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib.h"

bool cl_region_covers(const rcs_region *r, const void *p, uint64_t len)
{
	const uint8_t *b = p;

	return !len || (b >= r->addr && len <= r->len && (size_t)(b - r->addr) <= r->len - len);
}

static struct cl_chan *chan_of(rcs_region *r, const struct cl_ep_reg *e)
{
	return e->ep ? &e->ep->ch : &r->ctx->spare;
}

static struct cl_ep_reg *reg_find(rcs_region *r, const rcs_ep *ep)
{
	struct cl_ep_reg *e = r->regs;

	while (e && e->ep != ep)
		e = e->next;
	return e;
}

static bool is_stale(rcs_region *r, const struct cl_ep_reg *e)
{
	const struct cl_chan *ch = chan_of(r, e);

	if (!ch->table || ch->dead)
		return false;
	for (unsigned i = 0; i < WIRE_RAILS_MAX; i++) {
		uint32_t now = atomic_load_explicit(&ch->table->rail_epoch[i], memory_order_acquire);

		if (now && now != e->epoch[i])
			return true;
	}
	return false;
}

/*
 * A device that came since knows nothing of what was registered before: the same region is registered with
 * it too, under the same key, which others may have. What the other rails have is left as it is.
 */
static void refresh(rcs_region *r, struct cl_ep_reg *e)
{
	struct cl_reg again = {0};
	struct rcs_error quiet; /* the other rails still have it */

	if (!is_stale(r, e) ||
		cl_reg_make(r->ctx, chan_of(r, e), r->addr, r->len, e->reg.key, e->epoch, &again, &quiet))
		return; /* where that is for now, it is stale still */
	e->reg.rdma |= again.rdma;
	e->reg.readonly |= again.readonly;
}

/* key.region 0: a new registration; else of memory that the daemon gave. */
static int reg_add(rcs_region *r, rcs_ep *ep, struct wire_key key, struct rcs_error *err)
{
	struct cl_ep_reg *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a region");
	e->ep = ep;
	e->home = key.region;
	rc = cl_reg_make(r->ctx, chan_of(r, e), r->addr, r->len, key, e->epoch, &e->reg, err);
	if (rc) {
		free(e);
		return rc;
	}
	e->next = r->regs;
	r->regs = e;
	return 0;
}

int cl_region_reg(rcs_region *region, rcs_ep *ep, struct cl_reg *reg, struct rcs_error *err)
{
	struct cl_ep_reg *e = reg_find(region, ep);
	int rc;

	if (e) {
		refresh(region, e);
	} else {
		rc = reg_add(region, ep, (struct wire_key){0, 0}, err);
		if (rc)
			return rc;
		e = region->regs;
	}
	*reg = e->reg;
	return 0;
}

/* 0 when nothing can touch the memory by this registration any more. */
static int dereg(struct cl_chan *ch, const struct cl_reg *reg)
{
	struct shm_dereg req = {.key = reg->key}, ans;
	int rc;

	cl_msg_init(&req.m, SHM_MSG_DEREG);
	rc = cl_chan_ask(ch, &req, sizeof(req), &ans, sizeof(ans), NULL, NULL);
	if (rc == -ETIMEDOUT)
		return RCS_ERR_TIMEOUT;
	/* not to be asked any more is not yet to have let go */
	if (rc == -ENOTCONN && ch->sock >= 0)
		return cl_chan_end_wait(ch) ? 0 : RCS_ERR_TIMEOUT;
	return 0;
}

/*
 * What only this endpoint's own requests use ends with the channel; others' requests are awaited, if need be by
 * whoever closes the region.
 */
void cl_region_forget(rcs_ctx *ctx, rcs_ep *ep)
{
	for (rcs_region *r = ctx->regions; r; r = r->next)
		for (struct cl_ep_reg **p = &r->regs, *e; (e = *p);) {
			if (e->ep != ep) {
				p = &e->next;
				continue;
			}
			*p = e->next;
			e->ending = -1;
			if (e->exported && dereg(&ep->ch, &e->reg))
				e->ending = fcntl(ep->ch.sock, F_DUPFD_CLOEXEC, 0);
			if (e->ending < 0) {
				free(e);
				continue;
			}
			e->next = r->ended;
			r->ended = e;
		}
}

/* The daemon has let go of the channels of closed endpoints that did not say so in time. */
static bool ended_wait(rcs_region *r)
{
	struct cl_ep_reg *e;

	while ((e = r->ended)) {
		struct cl_chan ch = {.sock = e->ending};

		if (!cl_chan_end_wait(&ch))
			return false;
		r->ended = e->next;
		close(e->ending);
		free(e);
	}
	return true;
}

void cl_region_rehome(rcs_ctx *ctx, rcs_ep *ep)
{
	if (ctx->spare.shm)
		return; /* it made a channel of its own */
	for (rcs_region *r = ctx->regions; r; r = r->next)
		for (struct cl_ep_reg *e = r->regs; e; e = e->next)
			if (!e->ep)
				e->ep = ep;
}

void cl_region_refresh(rcs_ctx *ctx)
{
	for (rcs_region *r = ctx->regions; r; r = r->next)
		for (struct cl_ep_reg *e = r->regs; e; e = e->next) {
			if (!e->exported || !is_stale(r, e))
				continue;
			refresh(r, e);
			/* one that can not be, now, is tried again at the next look */
			ctx->look_at_rails = !is_stale(r, e);
			return;
		}
	ctx->look_at_rails = false;
}

void cl_region_abandon(rcs_region *r)
{
	for (struct cl_ep_reg *e = r->regs, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	for (struct cl_ep_reg *e = r->ended, *next; e; e = next) {
		next = e->next;
		close(e->ending);
		free(e);
	}
	DL_DELETE(r->ctx->regions, r);
	free(r);
}

static rcs_region *region_new(rcs_ctx *ctx, void *addr, size_t len)
{
	rcs_region *r = calloc(1, sizeof(*r));

	if (r) {
		r->ctx = ctx;
		r->addr = addr;
		r->len = len;
	}
	return r;
}

static int open_locked(rcs_ctx *ctx, void *addr, size_t len, rcs_region **region,
	struct rcs_error *err)
{
	rcs_region *r = region_new(ctx, addr, len);
	struct cl_reg reg;
	int rc = 0;

	if (!r)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a region");
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
	if (cl_memory_is_a_device_s(addr))
		return cl_fail(err, RCS_ERR_UNSUPPORTED, "%p is memory of a CUDA device, and rcshare moves the host's "
			"alone: copy it to host memory, or use managed memory", addr);
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = open_locked(ctx, addr, len, region, err);
	cl_leave(ctx);
	return rc;
}

/* The answers are awaited: after this the user may unmap. One that does not come leaves the region. */
static int region_drop(rcs_region *r)
{
	struct cl_ep_reg *e;

	if (!ended_wait(r))
		return RCS_ERR_TIMEOUT;
	while ((e = r->regs)) {
		int rc = dereg(chan_of(r, e), &e->reg);

		if (rc)
			return rc;
		r->regs = e->next;
		free(e);
	}
	if (r->alloced)
		munmap(r->addr, r->len);
	cl_region_abandon(r);
	return 0;
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
	rc = region->uses ? RCS_ERR_BUSY : region_drop(region);
	cl_leave(ctx);
	return rc;
}

/* --- keys ---------------------------------------------------------------------------------------- */

static int key_locked(rcs_region *r, rcs_ep *ep, struct rcs_key *key, struct rcs_error *err)
{
	const struct wire_addr *own = &ep->ch.addr;
	struct wire_ukey k = {.node = own->node, .ep = own->ep, .epoch = own->epoch, .job = own->job,
		.addr = (uint64_t)(uintptr_t)r->addr, .len = r->len};
	struct cl_ep_reg *e;
	struct cl_reg reg;
	int rc;

	_Static_assert(sizeof(k) == RCS_KEY_SIZE, "key");
	if (ep->lost)
		return cl_fail(err, ep->lost, "%s", rcs_status_text(ep->lost));
	rc = cl_region_reg(r, ep, &reg, err);
	if (rc)
		return rc;
	e = reg_find(r, ep);
	e->exported = true;
	k.key = reg.key;
	k.flags = e->home ? WIRE_UKEY_ATOMIC : 0;
	wire_ukey_seal(&k);
	memcpy(key->bytes, &k, sizeof(k));
	return 0;
}

int rcs_region_key(rcs_region *region, rcs_ep *ep, struct rcs_key *key, struct rcs_error *err)
{
	int rc;

	if (!region || !ep || !key || region->ctx != ep->ctx)
		return cl_fail(err, RCS_ERR_INVALID,
			"rcs_region_key: needs a region and an endpoint of one context, and a key to fill");
	rc = cl_enter(ep->ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = key_locked(region, ep, key, err);
	cl_leave(ep->ctx);
	return rc;
}

/* --- memory that the daemon maps too --------------------------------------------------------------- */

/* The channel it will belong to. Before the first endpoint that is the one which waits for it. */
static struct cl_chan *alloc_chan(rcs_ctx *ctx, rcs_ep **ep, struct rcs_error *err)
{
	for (*ep = ctx->eps; *ep; *ep = (*ep)->next)
		if (!(*ep)->lost)
			return &(*ep)->ch;
	if (ctx->spare.shm || !cl_chan_open(ctx, 0, &ctx->spare, err))
		return &ctx->spare;
	return NULL;
}

static int daemon_memory(struct cl_chan *ch, size_t len, void **addr, struct wire_key *key,
	struct rcs_error *err)
{
	struct shm_alloc req = {.len = len};
	struct shm_alloced ans;
	struct cl_reg reg = {0};
	unsigned n = 1;
	struct stat st;
	int fd = -1, rc;

	cl_msg_init(&req.m, SHM_MSG_ALLOC);
	rc = cl_chan_ask(ch, &req, sizeof(req), &ans, sizeof(ans), &fd, &n);
	if (rc || !n)
		return cl_fail(err, rc == -ECONNRESET || rc == -EPIPE || rc == -ENOTCONN ?
			RCS_ERR_RUNTIME_LOST : RCS_ERR_NOMEM, "the rcshare daemon has no %zu bytes of memory "
			"to share: %s", len, ans.m.sentence[0] ? ans.m.sentence :
			rc ? strerror(-rc) : "its answer lacks a descriptor");
	reg.key = ans.key;
	/* a mapping beyond the file would be a SIGBUS later */
	*addr = fstat(fd, &st) || (uint64_t)st.st_size < len ? MAP_FAILED :
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rc = errno;
	close(fd);
	if (*addr == MAP_FAILED) {
		cl_reg_drop(ch, &reg);
		return cl_fail(err, RCS_ERR_NOMEM, "cannot map %zu bytes of the rcshare daemon's memory: %s",
			len, strerror(rc));
	}
	*key = ans.key;
	return 0;
}

static int alloc_locked(rcs_ctx *ctx, size_t len, void **addr, rcs_region **region,
	struct rcs_error *err)
{
	struct cl_reg reg = {0};
	struct cl_chan *ch;
	rcs_region *r;
	rcs_ep *ep;
	void *p;
	int rc;

	ch = alloc_chan(ctx, &ep, err);
	if (!ch)
		return RCS_ERR_NO_RUNTIME;
	rc = daemon_memory(ch, len, &p, &reg.key, err);
	if (rc)
		return rc;
	r = region_new(ctx, p, len);
	rc = r ? reg_add(r, ep, reg.key, err) : cl_fail(err, RCS_ERR_NOMEM, "no memory for a region");
	if (rc) {
		cl_reg_drop(ch, &reg);
		munmap(p, len);
		free(r);
		return rc;
	}
	r->alloced = true;
	DL_APPEND(ctx->regions, r);
	*addr = p;
	*region = r;
	return 0;
}

int rcs_alloc(rcs_ctx *ctx, size_t len, void **addr, rcs_region **region, struct rcs_error *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int rc;

	if (!ctx || !len || !addr || !region || len > SIZE_MAX - page)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_alloc: needs a context and a length");
	len = (len + page - 1) & ~(page - 1);
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = alloc_locked(ctx, len, addr, region, err);
	cl_leave(ctx);
	return rc;
}

int rcs_free(rcs_region *region)
{
	return region && region->alloced ? rcs_region_close(region) : RCS_ERR_INVALID;
}
