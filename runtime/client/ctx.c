/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: who we are, where the daemon is, the lock, events to the user. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "client/lib.h"

#define GIVE_WAY 1000 /* turns of the scheduler; some hundred microseconds */

uint64_t cl_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void cl_yield(void)
{
	sched_yield();
}

int cl_enter(rcs_ctx *ctx)
{
	if (ctx->fork_gen != cl_fork_gen)
		return RCS_ERR_FORKED;
	if (pthread_mutex_trylock(&ctx->lock)) {
		ctx->wanted++;
		pthread_mutex_lock(&ctx->lock);
		ctx->wanted--;
		ctx->entered++;
	}
	return 0;
}

/* A mutex is not fair: who leaves and enters at once has it again before another thread has woken up. */
static void give_way(const rcs_ctx *ctx, uint32_t entered)
{
	for (int i = 0; i < GIVE_WAY && ctx->wanted && ctx->entered == entered; i++)
		sched_yield();
}

/* What this thread leaves undone, for lack of room or since a link is busy, is for those who sleep. */
static void leave_to_sleepers(rcs_ctx *ctx)
{
	for (rcs_ep *ep = ctx->eps; ep; ep = ep->next) {
		while (!ep->lost && !ep->copying && cl_ep_unblocked(ep))
			;
		if (ep->copying && !ep->lost)
			cl_ep_bell(ep); /* they have the lock for the next piece */
	}
}

/* One thread tells, so that events stay in order; the others leave theirs to it. */
void cl_leave(rcs_ctx *ctx)
{
	uint32_t entered = ctx->entered;
	bool held_long;

	if (ctx->sleepers)
		leave_to_sleepers(ctx);
	while (ctx->evq && !ctx->telling) {
		struct cl_event *e = ctx->evq;
		rcs_event_fn fn = ctx->event_fn;
		void *arg = ctx->event_arg;

		ctx->evq = e->next;
		if (!ctx->evq)
			ctx->evq_tail = &ctx->evq;
		ctx->telling = true;
		pthread_mutex_unlock(&ctx->lock);
		e->ev.host = e->host;
		e->ev.reason = e->reason;
		e->ev.peer_host = e->peer_host;
		if (fn)
			fn(&e->ev, arg);
		free(e);
		pthread_mutex_lock(&ctx->lock);
		ctx->telling = false;
	}
	held_long = ctx->held_long;
	ctx->held_long = false;
	pthread_mutex_unlock(&ctx->lock);
	if (held_long)
		give_way(ctx, entered);
}

int rcs_on_event_sized(rcs_ctx *ctx, rcs_event_fn fn, void *arg, size_t size)
{
	int rc;

	if (!ctx || size < CL_EVENT_FIRST || size > CL_EVENT_ROOM)
		return RCS_ERR_INVALID;
	rc = cl_enter(ctx);
	if (rc)
		return rc;
	ctx->event_fn = fn;
	ctx->event_arg = arg;
	cl_leave(ctx);
	return 0;
}

static uint32_t env_number(const char *name, uint32_t otherwise)
{
	const char *v = getenv(name);
	char *end;
	unsigned long n;

	if (!v || !*v)
		return otherwise;
	n = strtoul(v, &end, 10);
	return *end || n > UINT32_MAX ? otherwise : (uint32_t)n;
}

/* The socket lies in <run folder>/<job>.<restart>/: what Slurm's variables do not say, it does. */
static void job_from_path(const char *path, uint32_t *job, uint32_t *restart)
{
	const char *end = strrchr(path, '/'), *p = end;
	unsigned j, r;
	int n = 0;

	while (p && p > path && p[-1] != '/')
		p--;
	if (p && sscanf(p, "%u.%u%n", &j, &r, &n) == 2 && p + n == end) {
		*job = j;
		*restart = r;
	}
}

static int find_runtime(rcs_ctx *ctx, const char *path, struct rcs_error *err)
{
	uint32_t job = 0, restart = 0;
	const char *off = getenv("RCSHARE_DISABLED");

	if (!path)
		path = getenv("RCSHARE_SOCKET");
	if (!path && off && *off && strcmp(off, "0") != 0)
		return cl_fail(err, RCS_ERR_NO_RUNTIME, "this step asked for rcshare, but its daemon did not "
			"start on this node (RCSHARE_DISABLED is set); slurmd's log says why; "
			"srun --rcshare=on makes a step that has one");
	if (!path || !*path)
		return cl_fail(err, RCS_ERR_NO_RUNTIME, "no rcshare runtime in this step (RCSHARE_SOCKET is "
			"not set); start it with srun --rcshare=on");
	ctx->socket = strdup(path);
	if (!ctx->socket)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a context");
	job_from_path(path, &job, &restart);
	/* A socket that came along from another job must be refused by the daemon there. */
	ctx->job = env_number("SLURM_JOB_ID", job);
	ctx->restart = job ? restart : env_number("SLURM_RESTART_COUNT", 0);
	ctx->step = env_number("RCSHARE_STEP", env_number("SLURM_STEP_ID", 0));
	return 0;
}

static int find_identity(rcs_ctx *ctx, const struct rcs_init_opts *o, struct rcs_error *err)
{
	int rc;

	if (o->flags & RCS_INIT_NO_PMIX) {
		if (o->flags & RCS_INIT_EAGER)
			return cl_fail(err, RCS_ERR_INVALID,
				"RCS_INIT_EAGER exchanges over PMIx and cannot go with RCS_INIT_NO_PMIX");
		if (!o->nranks || o->rank >= o->nranks)
			return cl_fail(err, RCS_ERR_INVALID,
				"rank %u of %u makes no sense; fill struct rcs_init_opts", o->rank, o->nranks);
		ctx->rank = o->rank;
		ctx->nranks = o->nranks;
		ctx->local_ranks = env_number("SLURM_STEP_TASKS_PER_NODE", 0);
		return 0;
	}
	rc = cl_pmix_open(&ctx->pmix, err);
	if (rc)
		return rc;
	ctx->rank = ctx->pmix.rank;
	ctx->nranks = ctx->pmix.size;
	ctx->local_ranks = ctx->pmix.local_size;
	if (env_number("RCSHARE_EAGER", 0))
		ctx->flags |= RCS_INIT_EAGER;
	return 0;
}

static void fill_limits(rcs_ctx *ctx)
{
	const struct cl_chan *ch = &ctx->spare;

	ctx->nodes = ch->nodes;
	ctx->node = ch->node;
	ctx->limits = (struct rcs_limits){.inject_max = ch->eager_max, .eager_max = ch->eager_max,
		.zcopy_min = ch->zcopy_min, .rails = ch->table->rails, .nodes = ch->nodes,
		.node = ch->node, .iov_max = CL_IOV_MAX};
}

/* A host with more CPUs than a cpu_set_t holds (EINVAL) has many. */
static bool cpus_are_few(uint32_t local_ranks)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return false;
	return CPU_COUNT(&cpus) <= 2 || (local_ranks > 1 && CPU_COUNT(&cpus) <= (int)local_ranks);
}

static int ctx_setup(rcs_ctx *ctx, const struct rcs_init_opts *o, struct rcs_error *err)
{
	int rc;

	ctx->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (ctx->epfd < 0)
		return cl_fail(err, RCS_ERR_IO, "epoll_create: %s", strerror(errno));
	rc = find_runtime(ctx, o->socket, err);
	if (!rc)
		rc = find_identity(ctx, o, err);
	if (!rc && env_number("RCSHARE_SPARES", 0))
		rc = cl_place(ctx, err);
	/* attached already, so that a problem shows here; the first endpoint takes the channel */
	if (!rc) {
		pthread_mutex_lock(&ctx->lock); /* a fork sees all descriptors, or none */
		rc = cl_chan_open(ctx, 0, &ctx->spare, err);
		pthread_mutex_unlock(&ctx->lock);
	}
	if (rc)
		return rc;
	ctx->job = ctx->spare.addr.job;
	ctx->restart = ctx->spare.addr.restart;
	fill_limits(ctx);
	ctx->event_seq = calloc(ctx->nodes, sizeof(*ctx->event_seq));
	if (!ctx->event_seq)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a context");
	/* Ranks of this node read large messages straight from our memory, its daemon executes one-sided
	 * requests there. Yama keeps one exception a process, so it is for any. EINVAL: no Yama. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	ctx->few_cpus = cpus_are_few(ctx->local_ranks);
	return 0;
}

static void ctx_free(rcs_ctx *ctx)
{
	struct cl_event *e;

	while ((e = ctx->evq)) {
		ctx->evq = e->next;
		free(e);
	}
	cl_chan_close(&ctx->spare);
	cl_chan_close(&ctx->place);
	if (ctx->epfd >= 0)
		close(ctx->epfd);
	for (uint32_t i = 0; i < ctx->chunks; i++)
		free(ctx->chunk[i]);
	free(ctx->chunk);
	cl_index_free(&ctx->cancel);
	free(ctx->event_seq);
	free(ctx->socket);
	cl_pmix_close(&ctx->pmix);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

int rcs_init(const struct rcs_init_opts *opts, rcs_ctx **ctx, struct rcs_error *err)
{
	static const struct rcs_init_opts none = {.size = sizeof(none)};
	struct rcs_init_opts o;
	rcs_ctx *c;
	int rc;

	if (!ctx)
		return cl_fail(err, RCS_ERR_INVALID, "rcs_init: nowhere to put the context");
	if (!opts)
		opts = &none;
	if (!cl_struct_convert(opts, opts->size, &o, sizeof(o), CL_INIT_OPTS_FIRST))
		return cl_fail(err, RCS_ERR_INVALID, "rcs_init: options of size %zu do not suit; set size to "
			"sizeof(struct rcs_init_opts), and to 0 what this library does not know", opts->size);
	if (o.flags & ~(RCS_INIT_EAGER | RCS_INIT_HELPER | RCS_INIT_NO_PMIX))
		return cl_fail(err, RCS_ERR_INVALID, "rcs_init: unknown flags 0x%x", o.flags);
	c = calloc(1, sizeof(*c));
	if (!c)
		return cl_fail(err, RCS_ERR_NOMEM, "no memory for a context");
	pthread_mutex_init(&c->lock, NULL);
	c->flags = o.flags;
	c->pid = (uint32_t)getpid();
	c->evq_tail = &c->evq;
	c->helper_efd = c->epfd = -1;
	c->spare = c->place = (struct cl_chan){.sock = -1, .daemon_bell = -1, .rank_bell = -1};
	cl_fork_add(c);
	rc = ctx_setup(c, &o, err);
	if (rc) {
		cl_fork_del(c);
		ctx_free(c);
		return rc;
	}
	if (o.flags & RCS_INIT_HELPER && cl_helper_start(c)) {
		rc = cl_fail(err, RCS_ERR_NOMEM, "no thread for RCS_INIT_HELPER: %s", strerror(errno));
		rcs_fini(c);
		return rc;
	}
	*ctx = c;
	return 0;
}

void rcs_fini(rcs_ctx *ctx)
{
	if (!ctx || ctx->fork_gen != cl_fork_gen)
		return; /* a child's copy: everything in it is the parent's */
	cl_helper_stop(ctx);
	while (ctx->eps)
		rcs_ep_close(ctx->eps);
	while (ctx->regions) {
		ctx->regions->uses = 0;
		if (rcs_region_close(ctx->regions))
			cl_region_abandon(ctx->regions);
	}
	while (ctx->cqs)
		rcs_cq_close(ctx->cqs);
	while (ctx->cntrs)
		rcs_cntr_close(ctx->cntrs);
	cl_fork_del(ctx);
	ctx_free(ctx);
}

uint32_t rcs_rank(const rcs_ctx *ctx)
{
	return ctx->rank;
}

uint32_t rcs_size(const rcs_ctx *ctx)
{
	return ctx->nranks;
}

void rcs_limits_sized(const rcs_ctx *ctx, struct rcs_limits *limits, size_t size)
{
	cl_struct_give(limits, size, &ctx->limits, sizeof(ctx->limits));
}
