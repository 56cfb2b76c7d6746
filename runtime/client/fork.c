/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * After fork the child holds copies of the endpoint's descriptors. It must close them: the daemon
 * notices a rank's death by the end of its socket, and would not while a child lives. The same for the
 * connection of the context's own (place.c), whose end tells spares that the rank has ended. A context is in
 * the list from the beginning of rcs_init on. The locks are taken around fork so that no child is born with a
 * device's descriptor that was on loan.
 */
#include <unistd.h>

#include "client/lib.h"

volatile uint32_t cl_fork_gen;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static rcs_ctx *list;

static void before(void)
{
	pthread_mutex_lock(&list_lock);
	for (rcs_ctx *c = list; c; c = c->lib_next)
		pthread_mutex_lock(&c->lock);
}

static void in_parent(void)
{
	for (rcs_ctx *c = list; c; c = c->lib_next)
		pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&list_lock);
}

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void shut_chan(struct cl_chan *ch)
{
	shut(&ch->sock);
	shut(&ch->daemon_bell);
	shut(&ch->rank_bell);
}

static void in_child(void)
{
	cl_fork_gen++;
	for (rcs_ctx *c = list; c; c = c->lib_next) {
		/* already given up by an older generation: nothing is open */
		for (rcs_ep *ep = c->eps; ep; ep = ep->next)
			shut_chan(&ep->ch);
		shut_chan(&c->spare);
		shut_chan(&c->place);
		for (rcs_cq *q = c->cqs; q; q = q->next) {
			shut(&q->epfd);
			shut(&q->efd);
		}
		shut(&c->helper_efd);
		shut(&c->epfd);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&list_lock);
}

__attribute__((constructor)) static void fork_init(void)
{
	pthread_atfork(before, in_parent, in_child);
}

void cl_fork_add(rcs_ctx *ctx)
{
	pthread_mutex_lock(&list_lock);
	ctx->fork_gen = cl_fork_gen;
	ctx->lib_next = list;
	list = ctx;
	pthread_mutex_unlock(&list_lock);
}

void cl_fork_del(rcs_ctx *ctx)
{
	pthread_mutex_lock(&list_lock);
	for (rcs_ctx **p = &list; *p; p = &(*p)->lib_next)
		if (*p == ctx) {
			*p = ctx->lib_next;
			break;
		}
	pthread_mutex_unlock(&list_lock);
}
