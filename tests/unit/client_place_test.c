/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a step with spares: what rcs_init waits for, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "client/lib.h"
#include "fake_daemon.h"

/* As a program that uses MPI has it; the Makefile exports it. */
int MPI_Initialized(int *flag);
static int mpi;
__attribute__((visibility("default"))) int MPI_Initialized(int *flag)
{
	*flag = mpi;
	return 0;
}

static struct waiter {
	rcs_ctx ctx;
	struct rcs_error err;
	pthread_t thread;
	int rc;
	volatile bool back;
} w;

static void *wait_for_place(void *arg)
{
	(void)arg;
	w.rc = cl_place(&w.ctx, &w.err);
	w.back = true;
	return NULL;
}

static void eventually(volatile unsigned *n, unsigned want)
{
	for (int i = 0; *n != want; i++) {
		assert_true(i < 5000);
		usleep(1000);
	}
}

static void begin(void)
{
	memset(&w, 0, sizeof(w));
	fake_start(1);
	fake.hold_place = true;
	w.ctx.socket = (char *)(uintptr_t)fake_path(0);
	w.ctx.pmix = (struct rcs_pmix){.on = true, .rank = 5, .size = 6, .lowest = 4, .local_size = 2};
	w.ctx.step = 3;
	pthread_mutex_init(&w.ctx.lock, NULL);
	w.ctx.evq_tail = &w.ctx.evq;
	w.ctx.place = (struct cl_chan){.sock = -1, .daemon_bell = -1, .rank_bell = -1};
	assert_int_equal(pthread_create(&w.thread, NULL, wait_for_place, NULL), 0);
	eventually(&fake.placing, 1);
	assert_int_equal(fake.place.step, 3);
	assert_int_equal(fake.place.task, 5);
	assert_false(w.back);
}

static void answer(int result, const char *sentence)
{
	fake.placed = (struct shm_placed){.result = result, .rank = 1, .ranks = 4, .incarnation = 2};
	snprintf(fake.placed.m.sentence, SHM_SENTENCE, "%s", sentence);
	fake.hold_place = false;
	pthread_join(w.thread, NULL);
}

static void end(void)
{
	cl_chan_close(&w.ctx.place);
	fake_stop();
}

/* Its end is how spares hear that the rank has ended: a child that keeps it open would keep them waiting. */
static void a_child_has_no_connection_of_the_contexts(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	begin();
	cl_fork_add(&w.ctx);
	pid = fork();
	if (!pid)
		_exit(w.ctx.place.sock == -1 ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(w.ctx.place.sock >= 0);
	cl_fork_del(&w.ctx);
	answer(0, "");
	end();
}

static void waits_until_it_is_a_replacement(void **state)
{
	(void)state;
	begin();
	answer(RCS_OK, "");
	assert_int_equal(w.rc, RCS_OK);
	assert_int_equal(rcs_rank(&w.ctx), 1);
	assert_int_equal(rcs_size(&w.ctx), 4);
	assert_int_equal(rcs_incarnation(&w.ctx), 2);
	end();
}

static void is_not_needed(void **state)
{
	(void)state;
	begin();
	answer(RCS_NOT_NEEDED, "");
	assert_int_equal(w.rc, RCS_NOT_NEEDED);
	end();
}

static void hears_why_it_is_stopped(void **state)
{
	(void)state;
	begin();
	answer(RCS_ERR_PARTITIONED, "this node was removed");
	assert_int_equal(w.rc, RCS_ERR_PARTITIONED);
	assert_string_equal(w.err.sentence, "this node was removed");
	end();
}

static void the_daemon_dies_while_it_waits(void **state)
{
	(void)state;
	begin();
	fake.vanish = true;
	pthread_join(w.thread, NULL);
	assert_int_equal(w.rc, RCS_ERR_RUNTIME_LOST);
	end();
}

static void a_rank_is_looked_up_where_it_is_now(void **state)
{
	struct rcs_error err;
	uint32_t task;

	(void)state;
	begin();
	answer(RCS_OK, "");
	fake.there = (struct shm_there){.task = 4};
	assert_int_equal(cl_where(&w.ctx, 0, &task, &err), RCS_OK);
	assert_int_equal(task, 4);
	fake.there.result = RCS_ERR_NODE_LOST;
	assert_int_equal(cl_where(&w.ctx, 2, &task, &err), RCS_ERR_NODE_LOST);
	assert_non_null(strstr(err.sentence, "rank 2 is lost"));
	end();
}

static void without_spares_ranks_are_processes(void **state)
{
	struct rcs_error err;
	rcs_ctx ctx = {.place = {.sock = -1}};
	uint32_t task;

	(void)state;
	assert_int_equal(cl_where(&ctx, 7, &task, &err), RCS_OK);
	assert_int_equal(task, 7);
	assert_int_equal(rcs_incarnation(&ctx), 0);
}

static void refuses_what_does_not_go_with_spares(void **state)
{
	rcs_ctx ctx = {.pmix = {.on = true}, .place = {.sock = -1}};
	struct rcs_error err;

	(void)state;
	mpi = 1;
	assert_int_equal(cl_place(&ctx, &err), RCS_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.sentence, "after MPI_Init"));
	mpi = 0;
	ctx.flags = RCS_INIT_EAGER;
	assert_int_equal(cl_place(&ctx, &err), RCS_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.sentence, "RCS_INIT_EAGER"));
	ctx.flags = 0;
	ctx.pmix.on = false;
	assert_int_equal(cl_place(&ctx, &err), RCS_ERR_NO_PMIX);
	assert_non_null(strstr(err.sentence, "--mpi=pmix"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_has_no_connection_of_the_contexts),
		cmocka_unit_test(waits_until_it_is_a_replacement),
		cmocka_unit_test(is_not_needed),
		cmocka_unit_test(hears_why_it_is_stopped),
		cmocka_unit_test(the_daemon_dies_while_it_waits),
		cmocka_unit_test(a_rank_is_looked_up_where_it_is_now),
		cmocka_unit_test(without_spares_ranks_are_processes),
		cmocka_unit_test(refuses_what_does_not_go_with_spares),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
