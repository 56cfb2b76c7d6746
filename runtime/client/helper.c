/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The helper thread: progresses the context while the rank computes, sleeps while nothing comes. While the rank
 * makes progress itself the helper only looks from time to time whether it still does: a bell for each message
 * would cost the rank more than the message.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lib.h"

#define NAP_NS 1000000ull

static void *helper_main(void *arg)
{
	rcs_ctx *ctx = arg;
	uint64_t polls = 0, v;
	bool nap, armed, stop;

	do {
		struct pollfd p[2] = {{.fd = ctx->epfd, .events = POLLIN},
			{.fd = ctx->helper_efd, .events = POLLIN}};

		pthread_mutex_lock(&ctx->lock);
		if (read(ctx->helper_efd, &v, sizeof(v)) < 0)
			v = 0;
		cl_progress(ctx);
		nap = polls != ctx->polls || !cl_acts(ctx);
		polls = ctx->polls;
		armed = !nap && !cl_arm(ctx);
		ctx->helper_armed = armed;
		ctx->sleepers += armed;
		stop = ctx->helper_stop;
		cl_leave(ctx);
		if (!stop && nap)
			cl_poll(&p[1], 1, NAP_NS);
		else if (!stop && armed)
			cl_poll(p, 2, CL_SLEEP_NS);
		pthread_mutex_lock(&ctx->lock);
		ctx->sleepers -= ctx->helper_armed;
		ctx->helper_armed = false;
		stop = ctx->helper_stop;
		cl_leave(ctx);
	} while (!stop);
	return NULL;
}

int cl_helper_start(rcs_ctx *ctx)
{
	sigset_t all, old;
	int rc;

	ctx->helper_efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ctx->helper_efd < 0)
		return -errno;
	/* signals are the application's threads' business */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&ctx->helper, NULL, helper_main, ctx);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		errno = rc;
		return -rc;
	}
	ctx->helper_on = true;
	return 0;
}

void cl_helper_stop(rcs_ctx *ctx)
{
	uint64_t one = 1;

	if (ctx->helper_on) {
		pthread_mutex_lock(&ctx->lock);
		ctx->helper_stop = true;
		pthread_mutex_unlock(&ctx->lock);
		while (write(ctx->helper_efd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
		pthread_join(ctx->helper, NULL);
		ctx->helper_on = false;
	}
	if (ctx->helper_efd >= 0)
		close(ctx->helper_efd);
	ctx->helper_efd = -1;
}
