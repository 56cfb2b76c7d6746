/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/work.h without threads: a job has run when work_put() returns. */
#include "node/work.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct work_queue {
	struct works *s;
	struct work_queue *next;
};

struct works {
	void *arg;
	int fd;
	struct work *ended, **end;
	struct work_queue *queues;
};

struct works *works_open(void *arg)
{
	struct works *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->arg = arg;
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->end = &s->ended;
	return s;
}

int works_fd(const struct works *s)
{
	return s->fd;
}

bool works_turn(struct works *s)
{
	struct work *w = s->ended, *next;
	uint64_t count;

	if (!w)
		return false;
	(void)!read(s->fd, &count, sizeof(count));
	s->ended = NULL;
	s->end = &s->ended;
	for (; w; w = next) {
		next = w->next;
		w->done(w, s->arg);
	}
	return true;
}

struct work_queue *work_queue_open(struct works *s, const char *name)
{
	struct work_queue *q = calloc(1, sizeof(*q));

	(void)name;
	if (!q)
		return NULL;
	q->s = s;
	q->next = s->queues;
	s->queues = q;
	return q;
}

int work_put(struct work_queue *q, struct work *w)
{
	struct works *s = q->s;
	bool back = w->done;
	uint64_t one = 1;

	w->next = NULL;
	w->run(w);
	if (!back)
		return 0;
	*s->end = w;
	s->end = &w->next;
	(void)!write(s->fd, &one, sizeof(one));
	return 0;
}

uint32_t work_left(const struct work_queue *q)
{
	(void)q;
	return 0;
}

bool works_close(struct works *s, uint32_t wait_ms)
{
	(void)wait_ms;
	if (!s)
		return true;
	while (works_turn(s))
		;
	while (s->queues) {
		struct work_queue *q = s->queues;

		s->queues = q->next;
		free(q);
	}
	close(s->fd);
	free(s);
	return true;
}
