/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues of jobs, a thread each, and their way back into the loop. */
#include "node/work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct list {
	struct work *first, **end;
};

struct work_queue {
	struct works *s;
	char name[16]; /* of a thread: 15 characters */
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct list list; /* not begun */
	bool ends;
	atomic_uint left;
	struct work_queue *next;
};

struct works {
	void *arg;
	int fd;
	pthread_mutex_t lock;
	struct list ended;
	atomic_bool any; /* something is in ended */
	struct work_queue *queues;
};

static void list_init(struct list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void list_add(struct list *l, struct work *w)
{
	w->next = NULL;
	*l->end = w;
	l->end = &w->next;
}

static struct work *list_take(struct list *l)
{
	struct work *w = l->first;

	if (w) {
		l->first = w->next;
		if (!l->first)
			l->end = &l->first;
	}
	return w;
}

struct works *works_open(void *arg)
{
	struct works *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0) {
		free(s);
		return NULL;
	}
	s->arg = arg;
	list_init(&s->ended);
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

int works_fd(const struct works *s)
{
	return s->fd;
}

bool works_turn(struct works *s)
{
	struct list ended;
	struct work *w;
	uint64_t count;

	if (!atomic_load(&s->any))
		return false;
	pthread_mutex_lock(&s->lock);
	ended = s->ended;
	list_init(&s->ended);
	atomic_store(&s->any, false);
	(void)!read(s->fd, &count, sizeof(count));
	pthread_mutex_unlock(&s->lock);
	/* by hand: done() may free its job, and `ended` was moved */
	for (w = ended.first; w;) {
		struct work *next = w->next;

		w->done(w, s->arg);
		w = next;
	}
	return true;
}

/* Whoever sees that none is left finds all of them ended. */
static void has_run(struct work_queue *q, struct work *w, bool back)
{
	struct works *s = q->s;
	uint64_t one = 1;

	pthread_mutex_lock(&s->lock);
	if (back) {
		list_add(&s->ended, w);
		atomic_store(&s->any, true);
	}
	atomic_fetch_sub(&q->left, 1);
	if (back)
		(void)!write(s->fd, &one, sizeof(one));
	pthread_mutex_unlock(&s->lock);
}

static void *queue_thread(void *arg)
{
	struct work_queue *q = arg;
	struct work *w;

	pthread_setname_np(pthread_self(), q->name);
	pthread_mutex_lock(&q->lock);
	for (;;) {
		bool back;

		w = list_take(&q->list);
		if (!w && q->ends)
			break;
		if (!w) {
			pthread_cond_wait(&q->some, &q->lock);
			continue;
		}
		pthread_mutex_unlock(&q->lock);
		back = w->done != NULL; /* without, run() frees it */
		w->run(w);
		has_run(q, w, back);
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

struct work_queue *work_queue_open(struct works *s, const char *name)
{
	struct work_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->s = s;
	snprintf(q->name, sizeof(q->name), "%s", name);
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->some, NULL);
	list_init(&q->list);
	q->next = s->queues;
	s->queues = q;
	return q;
}

static int queue_start(struct work_queue *q)
{
	sigset_t all, before;
	int err;

	sigfillset(&all); /* signals are the loop's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&q->thread, NULL, queue_thread, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	q->started = !err;
	return -err;
}

int work_put(struct work_queue *q, struct work *w)
{
	int err = q->ends ? -ESHUTDOWN : q->started ? 0 : queue_start(q);

	if (err)
		return err;
	atomic_fetch_add(&q->left, 1);
	pthread_mutex_lock(&q->lock);
	list_add(&q->list, w);
	pthread_cond_signal(&q->some);
	pthread_mutex_unlock(&q->lock);
	return 0;
}

uint32_t work_left(const struct work_queue *q)
{
	return atomic_load(&q->left);
}

/* false: it is still in the kernel. */
static bool queue_join(struct work_queue *q, const struct timespec *until)
{
	pthread_mutex_lock(&q->lock);
	q->ends = true;
	pthread_cond_signal(&q->some);
	pthread_mutex_unlock(&q->lock);
	if (!q->started || !pthread_timedjoin_np(q->thread, NULL, until))
		return true;
	pthread_detach(q->thread);
	return false;
}

static void works_free(struct works *s)
{
	while (s->queues) {
		struct work_queue *q = s->queues;

		s->queues = q->next;
		pthread_mutex_destroy(&q->lock);
		pthread_cond_destroy(&q->some);
		free(q);
	}
	close(s->fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool works_close(struct works *s, uint32_t wait_ms)
{
	struct timespec until;
	bool all = true;

	if (!s)
		return true;
	clock_gettime(CLOCK_REALTIME, &until); /* of pthread_timedjoin_np */
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	for (struct work_queue *q = s->queues; q; q = q->next)
		all &= queue_join(q, &until);
	while (works_turn(s))
		;
	if (all) /* else a thread still uses it */
		works_free(s);
	return all;
}
