/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * work.h - jobs that may block in the kernel, off the daemon's loop: unmapping, destroying, name look-ups,
 * a log's disk.
 *
 *	loop                              threads, one a queue
 *	work_put(queue, job)  ----------> job->run()      one after the other, in the order they came
 *	works_turn(): job->done() <------ works_fd() is readable
 *
 * A queue is one thread, so a job that blocks holds up those of its own queue and nobody else: jobs that
 * must come soon have a queue to themselves. A queue's thread starts with its first job, with all signals
 * blocked. run() touches nothing but what its job was given; done() is called in the loop and may do
 * anything. The loop's thread alone calls these functions.
 */
#ifndef RCS_NODE_WORK_H
#define RCS_NODE_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct works;	   /* all queues of a loop */
struct work_queue;

/* A job: part of a struct of its own, the queue's from work_put() until done(), or until run() returns. */
struct work {
	void (*run)(struct work *w);
	void (*done)(struct work *w, void *arg); /* arg: of works_open(). NULL: run() was all, and frees it */
	struct work *next;
};

struct works *works_open(void *arg); /* NULL: errno */
int works_fd(const struct works *s); /* for epoll: readable when something ended */
bool works_turn(struct works *s);    /* calls done() of what has ended; true: there was something */

struct work_queue *work_queue_open(struct works *s, const char *name); /* of the thread; NULL: no memory */
/* 0, or -errno: there is no thread, and the job is still the caller's. */
int work_put(struct work_queue *q, struct work *w);
uint32_t work_left(const struct work_queue *q); /* jobs that have not been run to their end */

/*
 * Waits until the jobs of all queues have run, `wait_ms` at most in all; calls done() of each, and frees
 * everything. false: some are still in the kernel, and what they were given is theirs until the process
 * ends. s may be NULL.
 */
bool works_close(struct works *s, uint32_t wait_ms);

#endif
