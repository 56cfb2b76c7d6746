/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues and counters, and how threads sleep on them.
 *
 * A request reserves its place in the queue when it is posted, so a completion always finds room.
 * Three descriptors wake a sleeper: the ring's bell and the socket of each endpoint (ctx->epfd),
 * and the queue's own eventfd when another thread has put something into the queue. A bell is read
 * only on the way to sleep, under the lock; who progresses while others sleep arms the rings again
 * (progress.c).
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lib.h"

#define SPIN_NS	  20000ull

static void efd_drain(int fd)
{
	uint64_t v;

	while (read(fd, &v, sizeof(v)) < 0 && errno == EINTR)
		;
}

static void efd_ring(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Twice as many: there is a place for each request that is reserved, so no completion finds none. */
static bool cq_grow(rcs_cq *cq)
{
	uint32_t cap = cq->cap * 2;
	struct rcs_completion *r = malloc(cap * sizeof(*r));

	if (!r)
		return false;
	for (uint32_t i = 0; i < cq->count; i++)
		r[i] = cq->ring[(cq->head + i) & (cq->cap - 1)];
	free(cq->ring);
	cq->ring = r;
	cq->cap = cap;
	cq->head = 0;
	return true;
}

/* Sends leave a quarter to receives. */
bool cl_cq_room(rcs_cq *cq, bool send)
{
	if (!cq)
		return true;
	if (cq->count + cq->reserved >= cq->depth - (send ? cq->depth / 4 : 0))
		return false;
	return cq->count + cq->reserved < cq->cap || cq_grow(cq);
}

void cl_cq_push(rcs_cq *cq, const struct rcs_completion *c)
{
	cq->ring[(cq->head + cq->count++) & (cq->cap - 1)] = *c;
	if (cq->waiters || cq->armed)
		efd_ring(cq->efd);
}

/* size: of the program's struct rcs_completion. */
static uint32_t cq_take(rcs_cq *cq, struct rcs_completion *c, uint32_t n, size_t size)
{
	uint32_t i;

	if (!cl_acts(cq->ctx))
		return 0;
	for (i = 0; i < n && cq->count; i++) {
		if (size == sizeof(*c))
			c[i] = cq->ring[cq->head];
		else
			cl_struct_give((uint8_t *)c + i * size, size, &cq->ring[cq->head], sizeof(*c));
		cq->head = (cq->head + 1) & (cq->cap - 1);
		cq->count--;
	}
	return i;
}

static int cq_fds(rcs_cq *cq)
{
	struct epoll_event ev = {.events = EPOLLIN};

	cq->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cq->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (cq->efd < 0 || cq->epfd < 0 || epoll_ctl(cq->epfd, EPOLL_CTL_ADD, cq->efd, &ev) ||
		epoll_ctl(cq->epfd, EPOLL_CTL_ADD, cq->ctx->epfd, &ev))
		return -errno;
	return 0;
}

int rcs_cq_open(rcs_ctx *ctx, uint32_t depth, rcs_cq **cq, struct rcs_error *err)
{
	rcs_cq *q;
	int rc;

	if (!ctx || !cq)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_cq_open: no context, or nowhere to put it");
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	q = calloc(1, sizeof(*q));
	if (!q) {
		rc = cl_fail(err, RCS_ERR_NOMEM, "no memory for a completion queue");
		goto out;
	}
	q->ctx = ctx;
	q->depth = depth ? depth : CL_CQ_DEPTH;
	q->cap = 64;
	q->ring = malloc(q->cap * sizeof(*q->ring));
	q->efd = q->epfd = -1;
	if (!q->ring || cq_fds(q)) {
		rc = cl_fail(err, RCS_ERR_NOMEM, "no descriptors or memory for a completion queue: %s",
			strerror(errno));
		if (q->efd >= 0)
			close(q->efd);
		if (q->epfd >= 0)
			close(q->epfd);
		free(q->ring);
		free(q);
		goto out;
	}
	DL_APPEND(ctx->cqs, q);
	*cq = q;
out:
	cl_leave(ctx);
	return rc;
}

void rcs_cq_close(rcs_cq *cq)
{
	rcs_ctx *ctx = cq ? cq->ctx : NULL;

	if (!cq || cl_enter(ctx))
		return;
	/* endpoints that still name it go on without completions */
	for (rcs_ep *ep = ctx->eps; ep; ep = ep->next) {
		if (ep->tx_cq == cq)
			ep->tx_cq = NULL;
		if (ep->rx_cq == cq)
			ep->rx_cq = NULL;
	}
	if (cq->armed)
		ctx->sleepers--;
	DL_DELETE(ctx->cqs, cq);
	close(cq->epfd);
	close(cq->efd);
	free(cq->ring);
	free(cq);
	cl_leave(ctx);
}

static void cq_disarm(rcs_cq *cq)
{
	if (cq->armed) {
		cq->armed = false;
		cq->ctx->sleepers--;
	}
}

/* A queue that is empty for good tells why, so that nobody polls a dead runtime for ever. */
static int cq_empty_status(const rcs_cq *cq)
{
	bool any = false;
	int lost = 0;

	for (const rcs_ep *ep = cq->ctx->eps; ep; ep = ep->next)
		if (ep->tx_cq == cq || ep->rx_cq == cq) {
			any = true;
			if (!ep->lost || ep->ending)
				return 0;
			lost = ep->lost;
		}
	return any ? lost : 0;
}

int rcs_cq_read_sized(rcs_cq *cq, struct rcs_completion *c, uint32_t n, size_t size)
{
	int rc;

	if (!cq || (n && !c) || size < CL_COMPLETION_FIRST)
		return RCS_ERR_INVALID;
	rc = cl_enter(cq->ctx);
	if (rc)
		return rc;
	cq_disarm(cq);
	cl_polled(cq->ctx);
	if (cq->count < n || !n || !cl_acts(cq->ctx))
		cl_progress(cq->ctx);
	rc = (int)cq_take(cq, c, n, size);
	if (!rc && !cq->count)
		rc = cq_empty_status(cq);
	cl_leave(cq->ctx);
	return rc;
}

bool cl_ep_unblocked(rcs_ep *ep)
{
	uint64_t work = ep->ctx->work;

	if (!ep->blocked && !ep->kick && !ep->copying)
		return false;
	shm_ring_want(&ep->ch.tx);
	cl_ep_pump(ep);
	return !ep->lost && work != ep->ctx->work;
}

int cl_arm(rcs_ctx *ctx)
{
	int busy = 0;

	for (rcs_ep *ep = ctx->eps; ep; ep = ep->next) {
		if (ep->lost)
			continue;
		efd_drain(ep->ch.rank_bell);
		/* answers nobody waits for would keep the socket readable */
		if (ep->ch.owed && cl_chan_lost(&ep->ch)) {
			ep->checked_at = 0;
			busy = 1;
		}
		busy |= shm_ring_arm(&ep->ch.rx);
		/* looked at behind that: the daemon rings for any change from now on */
		if (ep->ended != atomic_load_explicit(&ep->ch.table->ended, memory_order_acquire))
			busy = 1;
		busy |= cl_ep_unblocked(ep);
	}
	return busy;
}

void cl_polled(rcs_ctx *ctx)
{
	ctx->polls++;
	if (!ctx->helper_armed)
		return;
	/* it looks whether this goes on instead of being woken for each message */
	ctx->helper_armed = false;
	ctx->sleepers--;
	efd_ring(ctx->helper_efd);
}

void cl_poll(struct pollfd *p, unsigned n, uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	ppoll(p, n, &t, NULL);
}

/* Sleeps, without the lock, until something may have happened or `until`. */
static void cq_sleep(rcs_cq *cq, uint64_t until)
{
	rcs_ctx *ctx = cq->ctx;
	struct pollfd p = {.fd = cq->epfd, .events = POLLIN};
	uint64_t ns, now = cl_now();
	bool acts;

	efd_drain(cq->efd);
	if (cl_arm(ctx) && cl_acts(ctx))
		return;
	acts = cl_acts(ctx);
	ns = acts ? CL_SLEEP_NS : CL_STILL_NS;
	if (until - now < ns)
		ns = until > now ? until - now : 0;
	ctx->sleepers++;
	cq->waiters++;
	cl_leave(ctx);
	cl_poll(&p, acts, ns); /* past the lease no bell is for us */
	pthread_mutex_lock(&ctx->lock);
	cq->waiters--;
	ctx->sleepers--;
}

int rcs_cq_wait_sized(rcs_cq *cq, struct rcs_completion *c, uint32_t n, int timeout_ms, size_t size)
{
	uint64_t start, until, now, work;
	int rc;

	if (!cq || !n || !c || size < CL_COMPLETION_FIRST)
		return RCS_ERR_INVALID;
	rc = cl_enter(cq->ctx);
	if (rc)
		return rc;
	cq_disarm(cq);
	start = cl_now();
	work = cq->ctx->work;
	until = timeout_ms < 0 ? INT64_MAX : start + (uint64_t)timeout_ms * 1000000;
	for (;;) {
		cl_polled(cq->ctx);
		if (!cq->count || !cl_acts(cq->ctx))
			cl_progress(cq->ctx);
		rc = (int)cq_take(cq, c, n, size);
		if (!rc)
			rc = cq_empty_status(cq);
		if (rc)
			break;
		now = cl_now();
		if (now >= until) {
			rc = RCS_ERR_TIMEOUT;
			break;
		}
		if (work != cq->ctx->work) {
			work = cq->ctx->work;
			start = now;
		}
		if (now - start > SPIN_NS) {
			cq_sleep(cq, until);
			if (cq->ctx->fork_gen != cl_fork_gen) {
				rc = RCS_ERR_FORKED;
				break;
			}
			continue;
		}
		/* let other threads of this context in, and the daemon where CPUs are few */
		cl_leave(cq->ctx);
		if (cq->ctx->few_cpus)
			sched_yield();
		pthread_mutex_lock(&cq->ctx->lock);
	}
	cl_leave(cq->ctx);
	return rc;
}

int rcs_cq_fd(rcs_cq *cq)
{
	return cq ? cq->epfd : RCS_ERR_INVALID;
}

int rcs_cq_arm(rcs_cq *cq)
{
	int rc;

	if (!cq)
		return RCS_ERR_INVALID;
	rc = cl_enter(cq->ctx);
	if (rc)
		return rc;
	cq_disarm(cq);
	efd_drain(cq->efd);
	if (cq->count || cl_arm(cq->ctx) || cq->count || cq_empty_status(cq)) {
		rc = RCS_ERR_AGAIN;
	} else {
		cq->armed = true;
		cq->ctx->sleepers++;
	}
	cl_leave(cq->ctx);
	return rc;
}

int rcs_cntr_open(rcs_ctx *ctx, rcs_cntr **cntr, struct rcs_error *err)
{
	rcs_cntr *c;
	int rc;

	if (!ctx || !cntr)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_cntr_open: no context, or nowhere to put it");
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	c = calloc(1, sizeof(*c));
	if (c) {
		c->ctx = ctx;
		DL_APPEND(ctx->cntrs, c);
		*cntr = c;
	} else {
		rc = cl_fail(err, RCS_ERR_NOMEM, "no memory for a counter");
	}
	cl_leave(ctx);
	return rc;
}

void rcs_cntr_close(rcs_cntr *cntr)
{
	rcs_ctx *ctx = cntr ? cntr->ctx : NULL;

	if (!cntr || cl_enter(ctx))
		return;
	for (rcs_ep *ep = ctx->eps; ep; ep = ep->next) {
		if (ep->tx_cntr == cntr)
			ep->tx_cntr = NULL;
		if (ep->rx_cntr == cntr)
			ep->rx_cntr = NULL;
	}
	DL_DELETE(ctx->cntrs, cntr);
	free(cntr);
	cl_leave(ctx);
}

uint64_t rcs_cntr_read(rcs_cntr *cntr)
{
	uint64_t v;

	if (!cntr || cl_enter(cntr->ctx))
		return 0;
	cl_polled(cntr->ctx);
	cl_progress(cntr->ctx);
	v = cl_acts(cntr->ctx) ? (cntr->told_ok = cntr->ok) : cntr->told_ok;
	cl_leave(cntr->ctx);
	return v;
}

uint64_t rcs_cntr_errors(rcs_cntr *cntr)
{
	uint64_t v;

	if (!cntr || cl_enter(cntr->ctx))
		return 0;
	v = cl_acts(cntr->ctx) ? (cntr->told_errors = cntr->errors) : cntr->told_errors;
	cl_leave(cntr->ctx);
	return v;
}
