/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses over PMIx: publish, lookup, and the collective start of RCS_INIT_EAGER. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib.h"

#define EAGER_MS 30000u
#define PAUSE_US 50000

static int need_pmix(const rcs_ep *ep, struct rcs_error *err)
{
	if (ep->ctx->pmix.on)
		return 0;
	return cl_fail(err, RCS_ERR_NO_PMIX, "this context was made with RCS_INIT_NO_PMIX: exchange "
		"addresses yourself and use rcs_peer_insert");
}

int rcs_publish(rcs_ep *ep, struct rcs_error *err)
{
	int rc;

	if (!ep)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_publish: no endpoint");
	rc = need_pmix(ep, err);
	if (!rc && ep->ctx->fork_gen != cl_fork_gen)
		rc = cl_fail(err, RCS_ERR_FORKED, "%s", rcs_status_text(RCS_ERR_FORKED));
	if (!rc)
		rc = cl_pmix_put(&ep->ctx->pmix, CL_PMIX_ADDR, &ep->ch.addr, sizeof(ep->ch.addr), err);
	if (!rc)
		rc = cl_pmix_commit(&ep->ctx->pmix, err);
	return rc;
}

struct search {
	rcs_ctx *ctx;
	uint32_t rank, task;
	struct rcs_error *err;
};

/* Ends a PMIx_Get of a process that does not have the rank any more: PMIx does not say when one is lost. */
static int moved(void *arg)
{
	struct search *s = arg;
	uint32_t task;
	int rc = cl_where(s->ctx, s->rank, &task, s->err);

	return rc ? rc : task == s->task ? 0 : RCS_ERR_AGAIN;
}

static int get_addr(rcs_ctx *ctx, uint32_t rank, struct wire_addr *a, struct rcs_error *err)
{
	struct search s = {.ctx = ctx, .rank = rank, .err = err};
	bool spares = ctx->place.sock >= 0;
	uint64_t start = cl_now();
	int rc;

	for (;;) {
		rc = cl_where(ctx, rank, &s.task, err);
		if (rc)
			return rc;
		rc = cl_pmix_get(&ctx->pmix, s.task, CL_PMIX_ADDR, a, sizeof(*a), spares ? moved : NULL, &s, err);
		/* PMIx may fail with a node that nobody has decided on yet */
		if (!spares || (rc != RCS_ERR_AGAIN && rc != RCS_ERR_IO) ||
			cl_now() - start > CL_PMIX_GET_S * 1000000000ull)
			return rc;
		usleep(PAUSE_US);
	}
}

int rcs_lookup(rcs_ep *ep, uint32_t rank, rcs_peer **peer, struct rcs_error *err)
{
	struct wire_addr a;
	int rc;

	if (!ep || !peer)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_lookup: an argument is NULL");
	rc = need_pmix(ep, err);
	if (rc)
		return rc;
	if (rank >= ep->ctx->nranks)
		return cl_fail(err, RCS_ERR_INVALID, "rank %u of %u", rank, ep->ctx->nranks);
	if (rank == ep->ctx->rank)
		a = ep->ctx->eps->ch.addr;
	else
		rc = get_addr(ep->ctx, rank, &a, err);
	if (rc)
		return rc;
	rc = cl_enter(ep->ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = cl_peer_insert(ep, &a, peer, err);
	cl_leave(ep->ctx);
	return rc;
}

static int own_record(rcs_ep *ep, struct shm_node_record *rec, struct rcs_error *err)
{
	struct shm_record ans;
	struct shm_msg req;
	int rc;

	cl_msg_init(&req, SHM_MSG_RECORD);
	rc = cl_enter(ep->ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = cl_chan_ask(&ep->ch, &req, sizeof(req), &ans, sizeof(ans), NULL, NULL);
	cl_leave(ep->ctx);
	if (rc)
		return cl_fail(err, RCS_ERR_IO, "the rcshare daemon gives no node record: %s",
			ans.m.sentence[0] ? ans.m.sentence : strerror(-rc));
	*rec = ans.rec;
	return 0;
}

static int give(rcs_ep *ep, const struct shm_node_record *rec, bool last, struct rcs_error *err)
{
	struct shm_eager req = {.last = last, .timeout_ms = last ? EAGER_MS : 0};
	struct shm_eager ans;
	int rc;

	cl_msg_init(&req.m, SHM_MSG_EAGER);
	req.rec = *rec;
	rc = cl_enter(ep->ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = cl_chan_ask(&ep->ch, &req, sizeof(req), &ans, sizeof(ans), NULL, NULL);
	cl_leave(ep->ctx);
	if (rc)
		return cl_fail(err, rc == -ETIMEDOUT ? RCS_ERR_TIMEOUT : RCS_ERR_IO,
			"not all connections to the other nodes came up: %s",
			ans.m.sentence[0] ? ans.m.sentence : strerror(-rc));
	return 0;
}

/* The lowest rank of each node published its record; addresses tell which node a rank is on. */
static int give_all(rcs_ep *ep, const struct shm_node_record *own, struct rcs_error *err)
{
	rcs_ctx *ctx = ep->ctx;
	uint8_t *seen = calloc(ctx->nodes, 1);
	int rc = seen ? 0 : cl_fail(err, RCS_ERR_NOMEM, "no memory for node records");

	for (uint32_t r = 0; !rc && r < ctx->nranks; r++) {
		struct shm_node_record rec;
		struct wire_addr a;
		const char *why;

		if (r == ctx->rank)
			continue;
		rc = cl_pmix_get(&ctx->pmix, r, CL_PMIX_ADDR, &a, sizeof(a), NULL, NULL, err);
		if (rc)
			break;
		if (wire_addr_check(&a, &why) || a.node >= ctx->nodes) {
			rc = cl_fail(err, RCS_ERR_VERSION, "rank %u published an address that cannot be used", r);
			break;
		}
		if (a.node == ctx->node || seen[a.node])
			continue;
		seen[a.node] = 1;
		rc = cl_pmix_get(&ctx->pmix, r, CL_PMIX_NODE, &rec, sizeof(rec), NULL, NULL, err);
		if (!rc)
			rc = give(ep, &rec, false, err);
	}
	free(seen);
	return rc ? rc : give(ep, own, true, err);
}

int cl_eager(rcs_ep *ep, struct rcs_error *err)
{
	rcs_ctx *ctx = ep->ctx;
	bool first = ctx->pmix.rank == ctx->pmix.lowest;
	struct shm_node_record rec;
	int rc = 0;

	if (first) {
		rc = own_record(ep, &rec, err);
		if (!rc)
			rc = cl_pmix_put(&ctx->pmix, CL_PMIX_NODE, &rec, sizeof(rec), err);
	}
	if (!rc)
		rc = rcs_publish(ep, err);
	if (!rc)
		rc = cl_pmix_fence(&ctx->pmix, err);
	if (!rc && first)
		rc = give_all(ep, &rec, err);
	return rc;
}
