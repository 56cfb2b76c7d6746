/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs off the loop: each once, in order, and none behind one of another queue that blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include "node/work.h"

struct job {
	struct work w; /* first */
	unsigned number;
	sem_t *wait, *begun; /* NULL: none */
	bool in_thread, signals;
};

static struct {
	pthread_t loop;
	unsigned run[8], run_n;
	unsigned done[8], done_n;
	bool in_loop;
} seen;

static void run(struct work *w)
{
	struct job *j = (struct job *)w;
	sigset_t set;

	j->in_thread = !pthread_equal(pthread_self(), seen.loop);
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	j->signals = !sigismember(&set, SIGTERM);
	if (j->begun)
		sem_post(j->begun);
	if (j->wait)
		sem_wait(j->wait);
	seen.run[seen.run_n++] = j->number;
}

static void done(struct work *w, void *arg)
{
	seen.in_loop = pthread_equal(pthread_self(), seen.loop) && arg == &seen;
	seen.done[seen.done_n++] = ((struct job *)w)->number;
}

static void run_and_free(struct work *w)
{
	struct job *j = (struct job *)w;
	sem_t *told = j->begun;

	free(j);
	sem_post(told);
}

static struct works *open_works(void)
{
	struct works *s;

	memset(&seen, 0, sizeof(seen));
	seen.loop = pthread_self();
	s = works_open(&seen);
	assert_non_null(s);
	return s;
}

static void wait_for(struct works *s, unsigned n)
{
	while (seen.done_n < n) {
		struct pollfd p = {.fd = works_fd(s), .events = POLLIN};

		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_true(works_turn(s));
	}
}

static bool readable(const struct works *s)
{
	struct pollfd p = {.fd = works_fd(s), .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void jobs_of_a_queue_run_in_order_and_come_back(void **state)
{
	struct works *s = open_works();
	struct work_queue *q = work_queue_open(s, "a name longer than threads may have");
	struct job j[5];

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		j[i] = (struct job){.w = {.run = run, .done = done}, .number = i};
		assert_int_equal(work_put(q, &j[i].w), 0);
	}
	wait_for(s, 5);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(seen.run[i], i);
		assert_int_equal(seen.done[i], i);
		assert_true(j[i].in_thread);
		assert_false(j[i].signals);
	}
	assert_true(seen.in_loop);
	assert_int_equal(seen.done_n, 5);
	assert_false(works_turn(s));
	assert_false(readable(s));
	assert_true(works_close(s, 60000));
}

static void a_job_that_blocks_holds_up_no_other_queue(void **state)
{
	struct works *s = open_works();
	struct work_queue *slow = work_queue_open(s, "slow"), *fast = work_queue_open(s, "fast");
	sem_t go, begun;
	struct job a = {.w = {.run = run, .done = done}, .number = 1, .wait = &go, .begun = &begun};
	struct job b = {.w = {.run = run, .done = done}, .number = 2};
	struct job c = {.w = {.run = run, .done = done}, .number = 3};

	(void)state;
	sem_init(&go, 0, 0);
	sem_init(&begun, 0, 0);
	work_put(slow, &a.w);
	work_put(slow, &b.w);
	sem_wait(&begun);
	work_put(fast, &c.w);
	wait_for(s, 1);
	assert_int_equal(seen.done[0], 3);
	assert_int_equal(work_left(slow), 2);
	sem_post(&go);
	wait_for(s, 3);
	assert_int_equal(work_left(slow), 0);
	assert_true(works_close(s, 60000));
}

static void a_job_without_a_way_back_ends_by_itself(void **state)
{
	struct works *s = open_works();
	struct work_queue *q = work_queue_open(s, "q");
	struct job *j = calloc(1, sizeof(*j));
	sem_t freed;

	(void)state;
	sem_init(&freed, 0, 0);
	j->w = (struct work){.run = run_and_free};
	j->begun = &freed;
	assert_int_equal(work_put(q, &j->w), 0);
	sem_wait(&freed);
	assert_true(works_close(s, 60000));
	assert_int_equal(seen.done_n, 0);
}

static void closing_waits_for_what_was_put(void **state)
{
	struct works *s = open_works();
	struct work_queue *q = work_queue_open(s, "q");
	struct job j[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		j[i] = (struct job){.w = {.run = run, .done = done}, .number = i};
		work_put(q, &j[i].w);
	}
	assert_true(works_close(s, 60000));
	assert_int_equal(seen.run_n, 3);
	assert_int_equal(seen.done_n, 3);
}

/* What blocks for ever does not keep the daemon from ending; what it has stays. */
static void closing_leaves_behind_what_does_not_return(void **state)
{
	struct works *s = open_works();
	struct work_queue *stuck = work_queue_open(s, "stuck"), *q = work_queue_open(s, "q");
	static sem_t never, begun;
	static struct job a = {.w = {.run = run, .done = done}, .wait = &never, .begun = &begun};
	struct job b = {.w = {.run = run, .done = done}, .number = 2};

	(void)state;
	sem_init(&never, 0, 0);
	sem_init(&begun, 0, 0);
	work_put(stuck, &a.w);
	work_put(q, &b.w);
	sem_wait(&begun);
	wait_for(s, 1);
	assert_false(works_close(s, 1));
	assert_int_equal(seen.done_n, 1);
	assert_int_equal(work_put(stuck, &b.w), -ESHUTDOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_of_a_queue_run_in_order_and_come_back),
		cmocka_unit_test(a_job_that_blocks_holds_up_no_other_queue),
		cmocka_unit_test(a_job_without_a_way_back_ends_by_itself),
		cmocka_unit_test(closing_waits_for_what_was_put),
		cmocka_unit_test(closing_leaves_behind_what_does_not_return),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
