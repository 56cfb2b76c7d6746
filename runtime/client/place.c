/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps with spare nodes: which rank this process is, perhaps after a long wait, and which process has a
 * rank now. Both are asked on a connection of the context's own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "client/lib.h"

/*
 * MPI_Init is collective over all processes of the step, those that stand by included, and what it
 * numbers stays so.
 */
static bool mpi_is_up(void)
{
	int (*initialized)(int *flag), yes = 0;
	void *f = dlsym(RTLD_DEFAULT, "MPI_Initialized");

	memcpy(&initialized, &f, sizeof(f));
	return f && !initialized(&yes) && yes;
}

static int check(rcs_ctx *ctx, struct rcs_error *err)
{
	if (!ctx->pmix.on)
		return cl_fail(err, RCS_ERR_NO_PMIX, "a step with spare nodes needs srun --mpi=pmix: only so a "
			"replacement is found by its rank; leave out RCS_INIT_NO_PMIX, or spares=");
	if (ctx->flags & RCS_INIT_EAGER)
		return cl_fail(err, RCS_ERR_UNSUPPORTED, "RCS_INIT_EAGER waits for all ranks of the step, and "
			"those of spare nodes stand by; leave it out, or spares=");
	if (mpi_is_up())
		return cl_fail(err, RCS_ERR_UNSUPPORTED, "rcs_init came after MPI_Init in a step with spare "
			"nodes: MPI does not survive the loss of a node; leave out MPI, or spares=");
	return 0;
}

/* Any time may pass, and costs nothing. */
static void sleep_on(const struct cl_chan *ch)
{
	struct pollfd p = {.fd = ch->sock, .events = POLLIN};

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

int cl_place(rcs_ctx *ctx, struct rcs_error *err)
{
	struct shm_place req = {.step = ctx->step, .task = ctx->pmix.rank};
	struct cl_chan *ch = &ctx->place;
	struct shm_placed ans;
	int rc = check(ctx, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&ctx->lock); /* a fork sees the descriptor, or there is none */
	rc = cl_chan_connect(ctx, ch, err);
	pthread_mutex_unlock(&ctx->lock);
	if (rc)
		return rc;
	cl_msg_init(&req.m, SHM_MSG_PLACE);
	rc = cl_chan_ask_long(ch, &req, sizeof(req), &ans, sizeof(ans), sleep_on);
	if (rc)
		return cl_fail(err, rc == -ECONNRESET ? RCS_ERR_RUNTIME_LOST : RCS_ERR_NO_RUNTIME,
			"this rank's place in the step is not known: %s", ans.m.sentence);
	if (ans.result)
		return cl_fail(err, ans.result, "%s", ans.m.sentence[0] ? ans.m.sentence :
			rcs_status_text(ans.result));
	ctx->rank = ans.rank;
	ctx->nranks = ans.ranks;
	ctx->incarnation = ans.incarnation;
	return 0;
}

int cl_where(rcs_ctx *ctx, uint32_t rank, uint32_t *task, struct rcs_error *err)
{
	struct shm_where req = {.rank = rank};
	struct shm_there ans;
	int rc;

	*task = rank;
	if (ctx->place.sock < 0)
		return 0;
	cl_msg_init(&req.m, SHM_MSG_WHERE);
	rc = cl_enter(ctx);
	if (rc)
		return cl_fail(err, rc, "%s", rcs_status_text(rc));
	rc = cl_chan_ask(&ctx->place, &req, sizeof(req), &ans, sizeof(ans), NULL, NULL);
	cl_leave(ctx);
	if (rc)
		return cl_fail(err, RCS_ERR_RUNTIME_LOST, "%s", ans.m.sentence);
	if (ans.result == RCS_ERR_NODE_LOST)
		return cl_fail(err, ans.result, "the node of rank %u is lost and no spare has taken it over (yet); "
			"wait for RCS_EVENT_NODE_REPLACED", rank);
	if (ans.result)
		return cl_fail(err, ans.result, "rank %u: %s", rank, rcs_status_text(ans.result));
	*task = ans.task;
	return 0;
}

uint32_t rcs_incarnation(const rcs_ctx *ctx)
{
	return ctx->incarnation;
}
