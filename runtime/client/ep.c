/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: opening, closing, and what happens when the daemon ends first. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>

#include "client/lib.h"

#define OPS_CHUNK 256u
#define CLOSE_NS  2000000000ull

static int ep_watch(rcs_ep *ep, int how)
{
	struct epoll_event ev = {.events = EPOLLIN};

	if (epoll_ctl(ep->ctx->epfd, how, ep->ch.rank_bell, &ev) ||
		epoll_ctl(ep->ctx->epfd, how, ep->ch.sock, &ev))
		return -errno;
	return 0;
}

static int ep_attach(rcs_ep *ep, uint64_t rx_size, struct rcs_error *err)
{
	rcs_ctx *ctx = ep->ctx;
	int rc;

	if (ctx->spare.shm && !rx_size) {
		ep->ch = ctx->spare;
		ctx->spare = (struct cl_chan){.sock = -1, .daemon_bell = -1, .rank_bell = -1};
	} else {
		rc = cl_chan_open(ctx, rx_size, &ep->ch, err);
		if (rc)
			return rc;
	}
	ep->node = calloc(ep->ch.nodes, sizeof(*ep->node));
	if (!ep->node)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for an endpoint");
	if (ep_watch(ep, EPOLL_CTL_ADD))
		return cl_fail(err, RCS_ERR_IO, "epoll: %s", strerror(errno));
	return 0;
}

static uint64_t cookie_new(void)
{
	uint64_t cookie;

	if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
		cookie = cl_now() << 16;
	return cookie | 1;
}

static int open_locked(rcs_ctx *ctx, const struct rcs_ep_opts *o, rcs_ep **out, struct rcs_error *err)
{
	rcs_ep *ep = calloc(1, sizeof(*ep));
	int rc;

	if (!ep)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for an endpoint");
	ep->ctx = ctx;
	ep->cookie = cookie_new();
	ep->ch = (struct cl_chan){.sock = -1, .daemon_bell = -1, .rank_bell = -1};
	ep->ctl_tail = &ep->ctl;
	ep->tx_cq = o->tx_cq;
	ep->rx_cq = o->rx_cq;
	ep->tx_cntr = o->tx_cntr;
	ep->rx_cntr = o->rx_cntr;
	rc = ep_attach(ep, o->rx_size, err);
	if (rc) {
		cl_chan_close(&ep->ch);
		free(ep->node);
		free(ep);
		return rc;
	}
	ep->serial = ctx->ep_serial++;
	cl_region_rehome(ctx, ep);
	DL_APPEND(ctx->eps, ep);
	if (ctx->sleepers && shm_ring_arm(&ep->ch.rx)) /* for who sleeps already */
		cl_ep_bell(ep);
	*out = ep;
	return 0;
}

int rcs_ep_open(rcs_ctx *ctx, const struct rcs_ep_opts *opts, rcs_ep **ep, struct rcs_error *err)
{
	static const struct rcs_ep_opts none = {.size = sizeof(none)};
	struct rcs_ep_opts o;
	rcs_ep *e = NULL;
	bool eager;
	int rc;

	if (!ctx || !ep)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_ep_open: no context, or nowhere to put it");
	if (!opts)
		opts = &none;
	if (!cl_struct_convert(opts, opts->size, &o, sizeof(o), CL_EP_OPTS_FIRST))
		return cl_fail(err, RCS_ERR_INVALID, "rcs_ep_open: options of size %zu do not suit; set size to "
			"sizeof(struct rcs_ep_opts), and to 0 what this library does not know", opts->size);
	if ((o.tx_cq && o.tx_cq->ctx != ctx) || (o.rx_cq && o.rx_cq->ctx != ctx) ||
		(o.tx_cntr && o.tx_cntr->ctx != ctx) || (o.rx_cntr && o.rx_cntr->ctx != ctx))
		return cl_fail(err, RCS_ERR_INVALID,
			"rcs_ep_open: a queue or counter belongs to another context");
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = open_locked(ctx, &o, &e, err);
	eager = !rc && ctx->flags & RCS_INIT_EAGER && !ctx->eager_done;
	if (eager)
		ctx->eager_done = true;
	cl_leave(ctx);
	if (eager) {
		rc = cl_eager(e, err);
		if (rc)
			rcs_ep_close(e);
	}
	if (!rc)
		*ep = e;
	return rc;
}

void rcs_ep_addr(const rcs_ep *ep, struct rcs_addr *addr)
{
	_Static_assert(sizeof(struct wire_addr) == RCS_ADDR_SIZE, "address");
	memcpy(addr->bytes, &ep->ch.addr, RCS_ADDR_SIZE);
}

/* What the daemon was asked for: it may read or write the memory until it says that it has ended. */
static bool is_the_daemons(const struct cl_op *op)
{
	return op->state == CL_GETTING || (op->state == CL_RMA && op->kind != RCS_OP_ATOMIC);
}

/* all false: but for what is the daemon's. */
static void end_requests(rcs_ep *ep, int status, bool all)
{
	rcs_ctx *ctx = ep->ctx;

	/* first: they would end with the requests they wait for, as if those had ended well */
	for (uint32_t i = 0; i < ctx->chunks * OPS_CHUNK; i++) {
		struct cl_op *op = &ctx->chunk[i / OPS_CHUNK][i % OPS_CHUNK];

		if (op->state != CL_FLUSH || op->ep != ep)
			continue;
		cl_op_unlink(op);
		cl_op_end_send(op, status);
	}
	for (uint32_t i = 0; i < ctx->chunks; i++)
		for (uint32_t k = 0; k < OPS_CHUNK; k++) {
			struct cl_op *op = &ctx->chunk[i][k];

			if (op->state == CL_FREE || op->ep != ep || (!all && is_the_daemons(op)))
				continue;
			cl_op_unlink(op);
			if (op->send)
				cl_op_end_send(op, status);
			else
				cl_op_end_recv(op, status);
		}
}

static void event_push(rcs_ctx *ctx, const struct rcs_event *ev, const char *host, const char *reason,
	const char *peer_host)
{
	struct cl_event *e = ctx->event_fn ? calloc(1, sizeof(*e)) : NULL;

	if (!e)
		return;
	e->ev = *ev;
	snprintf(e->host, sizeof(e->host), "%.63s", host);
	snprintf(e->reason, sizeof(e->reason), "%.63s", reason);
	snprintf(e->peer_host, sizeof(e->peer_host), "%.63s", peer_host);
	*ctx->evq_tail = e;
	ctx->evq_tail = &e->next;
}

/* The daemon's end of the socket closes when nothing of the channel is under way, or with the daemon. */
void cl_ep_end_check(rcs_ep *ep)
{
	if (!ep->ending || !cl_chan_lost(&ep->ch))
		return;
	ep->ending = false;
	epoll_ctl(ep->ctx->epfd, EPOLL_CTL_DEL, ep->ch.sock, NULL);
	end_requests(ep, ep->lost, true);
}

/*
 * The channel is of no use any more, the rings are not touched again. Every request ends, those that the
 * daemon may still be at when it has let go of the channel.
 */
void cl_ep_lost(rcs_ep *ep, int status)
{
	rcs_ctx *ctx = ep->ctx;

	if (ep->lost)
		return;
	ep->lost = status;
	ep->cookie = 0;
	ep->ch.dead = true;
	ep->blocked = ep->kick = false;
	epoll_ctl(ctx->epfd, EPOLL_CTL_DEL, ep->ch.rank_bell, NULL);
	cl_chan_leave(&ep->ch);
	if (status == RCS_ERR_PARTITIONED)
		cl_cq_stopped(ctx);
	ep->ending = true;
	end_requests(ep, status, false);
	cl_ep_end_check(ep);
	if (status != RCS_ERR_NOMEM && status != RCS_ERR_PARTITIONED && !ctx->lost_told) {
		struct rcs_event ev = {.code = RCS_EVENT_RUNTIME_LOST, .origin = ep->ch.node,
			.peer = UINT32_MAX, .rail = UINT32_MAX, .to_rail = UINT32_MAX,
			.rank = UINT32_MAX, .step = UINT32_MAX, .index = UINT32_MAX,
			.first_rank = UINT32_MAX, .spare = UINT32_MAX};

		ctx->lost_told = true;
		event_push(ctx, &ev, "", status == RCS_ERR_PROTOCOL ? "channel damaged" :
			"daemon ended", "");
	}
}

/* What was outstanding to it ends, new requests are refused; receives from any source go on. */
static void node_lost(rcs_ep *ep, uint32_t node)
{
	rcs_peer *p, *tmp;

	HASH_ITER(hh, ep->peers, p, tmp)
		if (p->key.node == node)
			cl_peer_gone(p, RCS_ERR_NODE_LOST);
}

/* Rank numbers and views of another step mean nothing in this one. */
static bool is_foreign(const rcs_ctx *ctx, const struct shm_event *ev)
{
	return ev->step != ctx->step && (ev->code == SHM_EV_RANK_LOST || ev->code == SHM_EV_NODE_SUSPECTED ||
		ev->code == SHM_EV_NODE_LOST || ev->code == SHM_EV_NODE_REPLACED);
}

void cl_ep_event(rcs_ep *ep, const struct shm_event *ev)
{
	rcs_ctx *ctx = ep->ctx;
	struct rcs_event e = {.code = ev->code, .origin = ev->origin, .seq = ev->seq, .peer = ev->peer,
		.rail = ev->rail, .to_rail = ev->to_lane, .rank = ev->rank, .step = ev->step,
		.frames_resent = ev->frames_resent, .view = ev->view, .index = ev->index,
		.incarnation = ev->incarnation, .first_rank = ev->first_rank, .ranks = ev->ranks, .spare = ev->spare,
		.time_ns = ev->time_ns, .notice_ns = ev->notice_ns,
		.recover_ns = ev->recover_ns, .blackout_ns = ev->blackout_ns, .peers = ev->peers,
		.missed = ev->missed};

	if (ev->origin >= ctx->nodes)
		return;
	if (ev->code != SHM_EV_NODE_LOST && ev->code != SHM_EV_NODE_REPLACED)
		e.index = e.first_rank = e.spare = UINT32_MAX;
	if (ev->code == SHM_EV_NODE_LOST)
		node_lost(ep, ev->peer);
	if (ev->code == SHM_EV_PARTITIONED && ev->origin == ctx->node)
		cl_ep_lost(ep, RCS_ERR_PARTITIONED);
	if (is_foreign(ctx, ev))
		return;
	/* each endpoint of the context is told; the user hears it once */
	if (ev->seq <= ctx->event_seq[ev->origin])
		return;
	ctx->event_seq[ev->origin] = ev->seq;
	event_push(ctx, &e, ev->host, ev->reason, ev->peer_host);
}

/*
 * Peers that wait for us hear it now, not when they ask. true: some may be reading our buffers; they can not any
 * more when the daemon has let go of the channel.
 */
static bool say_goodbye(rcs_ep *ep)
{
	bool read = false;
	rcs_peer *p, *tmp;
	struct cl_op *op, *otmp;
	rcs_claim *u;

	DL_FOREACH(ep->unexp, u)
		if (u->large)
			cl_large_fin(ep, u->peer, u->remote, RCS_ERR_PEER_GONE);
	DL_FOREACH(ep->claimed, u)
		if (u->large)
			cl_large_fin(ep, u->peer, u->remote, RCS_ERR_PEER_GONE);
	DL_FOREACH_SAFE(ep->fetchq, op, otmp) {
		cl_large_fin(ep, op->peer, op->remote, RCS_ERR_PEER_GONE);
		cl_op_unlink(op); /* the sender's buffer is its own again */
		cl_op_end_recv(op, RCS_ERR_CLOSED);
	}
	HASH_ITER(hh, ep->peers, p, tmp) {
		DL_FOREACH(p->fetching, op)
			cl_large_fin(ep, p, op->remote, RCS_ERR_PEER_GONE);
		DL_FOREACH(p->pushing, op) {
			struct wire_rec r = {.type = WIRE_REC_CANCEL, .op = cl_op_id(op), .arg = 1};

			cl_ctl_send(ep, p, &r, NULL);
		}
		DL_FOREACH(p->waiting, op) {
			struct wire_rec r = {.type = WIRE_REC_CANCEL, .op = cl_op_id(op), .arg = 1};

			if (op->state == CL_RTS || op->state == CL_PUSHED)
				cl_ctl_send(ep, p, &r, NULL);
			read |= op->state == CL_RTS;
		}
	}
	return read;
}

static void ep_free(rcs_ep *ep)
{
	rcs_peer *p, *ptmp;
	rcs_claim *u, *utmp;
	struct cl_ctl *c;

	while ((c = ep->ctl)) {
		ep->ctl = c->next;
		free(c);
	}
	cl_match_free(ep);
	DL_FOREACH_SAFE(ep->unexp, u, utmp)
		free(u);
	DL_FOREACH_SAFE(ep->claimed, u, utmp)
		free(u);
	HASH_ITER(hh, ep->peers, p, ptmp) {
		HASH_DEL(ep->peers, p);
		free(p);
	}
	free(ep->node);
	free(ep);
}

/* Completions in queues must not name peers that are freed. */
static void forget_sources(rcs_ctx *ctx, const rcs_ep *ep)
{
	for (rcs_cq *q = ctx->cqs; q; q = q->next)
		for (uint32_t i = 0; i < q->count; i++) {
			struct rcs_completion *c = &q->ring[(q->head + i) & (q->cap - 1)];

			if (c->source && c->source->ep == ep)
				c->source = NULL;
		}
}

/* Does a daemon perhaps write into our memory for a request of this endpoint? */
static bool written_to(const rcs_ep *ep)
{
	rcs_peer *p, *tmp;
	const struct cl_op *op;

	HASH_ITER(hh, ep->peers, p, tmp) {
		DL_FOREACH(p->fetching, op)
			if (op->state == CL_GETTING)
				return true;
		DL_FOREACH(p->rma, op)
			if (op->state == CL_RMA && op->kind == RCS_OP_GET)
				return true;
	}
	return false;
}

/* No completion tells of these: the user counts on them from the call on. */
static bool has_promised(const rcs_ep *ep)
{
	return ep->notes_n || ep->injects_n;
}

static bool has_to_say(const rcs_ep *ep)
{
	return ep->ctl;
}

/* true: what `is` says came to its end in time. */
static bool is_over(rcs_ep *ep, bool (*is)(const rcs_ep *ep))
{
	const struct timespec nap = {.tv_nsec = 100000};
	uint64_t until = cl_now() + CLOSE_NS;

	while (!ep->lost && is(ep)) {
		if (cl_now() >= until)
			return false;
		cl_ep_progress(ep);
		nanosleep(&nap, NULL);
	}
	return true;
}

/* The user may free the buffers when the endpoint is closed: what is at them is awaited for a while. */
void rcs_ep_close(rcs_ep *ep)
{
	rcs_ctx *ctx = ep ? ep->ctx : NULL;
	bool wait;

	if (!ep || cl_enter(ctx))
		return;
	is_over(ep, has_promised);
	wait = !is_over(ep, written_to);
	if (!ep->lost) {
		wait |= say_goodbye(ep);
		is_over(ep, has_to_say);
		cl_ep_publish(ep);
	}
	ep->cookie = 0;
	cl_region_forget(ctx, ep);
	DL_DELETE(ctx->eps, ep);
	cl_chan_leave(&ep->ch);
	if (wait || ep->ending) {
		/* nobody finds the endpoint any more */
		cl_leave(ctx);
		cl_chan_end_wait(&ep->ch);
		pthread_mutex_lock(&ctx->lock);
	}
	end_requests(ep, ep->lost ? ep->lost : RCS_ERR_CLOSED, true);
	forget_sources(ctx, ep);
	if (!ep->lost)
		ep_watch(ep, EPOLL_CTL_DEL);
	cl_chan_close(&ep->ch);
	ep_free(ep);
	cl_leave(ctx);
}
