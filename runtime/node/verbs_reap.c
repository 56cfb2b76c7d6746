/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs that are fenced are destroyed by a thread of their own: the kernel's destroy waits until the
 * last packet of the queue pair is freed, and one that waits for an answer of the neighbour on a dead
 * cable takes three seconds (soft RoCE). The daemon's loop carries all other links meanwhile.
 *
 * The thread touches nothing but what it was given; its memory regions count as ours until they are gone.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "node/verbs_impl.h"

struct reap {
	unsigned rail;
	struct ibv_qp *qp;
	struct lane_mem mem[VERBS_MEMS];
	struct reap *next;
};

struct reaper {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct reap *list; /* the first is being destroyed */
	bool end;
};

static void destroy(struct reap *r)
{
	ibv_destroy_qp(r->qp);
	for (unsigned m = 0; m < VERBS_MEMS; m++)
		verbs_lane_mem_free(&r->mem[m]);
}

static void *reaper(void *arg)
{
	struct reaper *p = arg;

	pthread_mutex_lock(&p->lock);
	while (p->list || !p->end) {
		struct reap *r = p->list;

		if (!r) {
			pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		destroy(r);
		pthread_mutex_lock(&p->lock);
		p->list = r->next;
		free(r);
		pthread_cond_broadcast(&p->done);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static struct reaper *begin(void)
{
	struct reaper *p = calloc(1, sizeof(*p));
	sigset_t all, old;
	int err;

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->done, NULL);
	/* signals are the loop's */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&p->thread, NULL, reaper, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		free(p);
		return NULL;
	}
	return p;
}

bool verbs_reap(struct verbs_lane *l)
{
	struct verbs *v = l->v;
	struct reap *r = calloc(1, sizeof(*r)), **tail;

	if (r && !v->reaper)
		v->reaper = begin();
	if (!r || !v->reaper) {
		free(r);
		return false;
	}
	r->rail = l->r;
	r->qp = l->qp;
	for (unsigned m = 0; m < VERBS_MEMS; m++) {
		r->mem[m] = l->mem[m];
		l->mem[m] = (struct lane_mem){0};
	}
	l->qp = NULL;
	pthread_mutex_lock(&v->reaper->lock);
	for (tail = &v->reaper->list; *tail; tail = &(*tail)->next)
		;
	*tail = r;
	pthread_cond_signal(&v->reaper->work);
	pthread_mutex_unlock(&v->reaper->lock);
	return true;
}

void verbs_reap_wait(struct verbs *v, unsigned rail)
{
	struct reap *r;

	if (!v->reaper)
		return;
	pthread_mutex_lock(&v->reaper->lock);
	do {
		for (r = v->reaper->list; r && r->rail != rail; r = r->next)
			;
		if (r)
			pthread_cond_wait(&v->reaper->done, &v->reaper->lock);
	} while (r);
	pthread_mutex_unlock(&v->reaper->lock);
}

bool verbs_reap_has_mr(struct verbs *v, unsigned rail, uint32_t handle)
{
	bool has = false;

	if (!v->reaper)
		return false;
	pthread_mutex_lock(&v->reaper->lock);
	for (struct reap *r = v->reaper->list; r && !has; r = r->next)
		for (unsigned m = 0; m < VERBS_MEMS; m++)
			has |= r->rail == rail && r->mem[m].mr && r->mem[m].mr->handle == handle;
	pthread_mutex_unlock(&v->reaper->lock);
	return has;
}

void verbs_reap_end(struct verbs *v)
{
	struct reaper *p = v->reaper;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->end = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	free(p);
	v->reaper = NULL;
}
