/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/job.c: a daemon ends when its job is gone, and asks only while it is alone. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/job.h"
#include "node/node.h"
#include "node/work.h"

static void what_squeue_says_is_understood(void **state)
{
	(void)state;
	assert_int_equal(job_said("17 1000 RUNNING\n", 17, 1000), JOB_THERE);
	assert_int_equal(job_said("17 1000 COMPLETING\n", 17, 1000), JOB_THERE); /* its epilog may run yet */
	assert_int_equal(job_said("17 1000 SUSPENDED\n", 17, 1000), JOB_THERE);
	assert_int_equal(job_said("17 1000 PENDING\n", 17, 1000), JOB_THERE); /* requeued */
	assert_int_equal(job_said("17 1000 COMPLETED\n", 17, 1000), JOB_GONE);
	assert_int_equal(job_said("17 1000 CANCELLED\n", 17, 1000), JOB_GONE);
	assert_int_equal(job_said("17 1000 NODE_FAIL\n", 17, 1000), JOB_GONE);
	assert_int_equal(job_said("17 1001 RUNNING\n", 17, 1000), JOB_GONE);
	assert_int_equal(job_said("slurm_load_jobs error: Invalid job id specified\n", 17, 1000), JOB_GONE);
	assert_int_equal(job_said("slurm_load_jobs error: Unable to contact slurm controller\n", 17, 1000), JOB_UNKNOWN);
	assert_int_equal(job_said("", 17, 1000), JOB_UNKNOWN); /* squeue lists what it may */
	assert_int_equal(job_said("17 1000", 17, 1000), JOB_UNKNOWN);
	/* all tasks of an array are told to who asks for the one with its number */
	assert_int_equal(job_said("18 1000 COMPLETED\n17 1000 RUNNING\n", 17, 1000), JOB_THERE);
	assert_int_equal(job_said("18 1000 RUNNING\n17 1000 COMPLETED\n", 17, 1000), JOB_GONE);
	assert_int_equal(job_said("18 1000 COMPLETED\n117 1000 FAILED\n", 17, 1000), JOB_UNKNOWN);
	assert_int_equal(job_said("squeue: error: slow\n17 1000 RUNNING\n", 17, 1000), JOB_THERE);
}

static void a_process_belongs_to_the_job_of_its_cgroups(void **state)
{
	(void)state;
	assert_int_equal(job_of_cgroups("0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n"), 17);
	assert_int_equal(job_of_cgroups("5:memory:/slurm/uid_7/job_17/rcshared\n4:pids:/\n"), 17);
	assert_int_equal(job_of_cgroups("0::/job_17\n"), 17);
	assert_int_equal(job_of_cgroups("0::/slurm/job_3/step_0/bed/job_17/step_1\n"), 17); /* Slurm in Slurm */
	assert_int_equal(job_of_cgroups("0::/user.slice/my_job_3/x\n"), 0);
	assert_int_equal(job_of_cgroups("0::/a/job_x/job_3y/job_\n"), 0);
	assert_int_equal(job_of_cgroups("0::/job_99999999999/\n"), 0);
	assert_int_equal(job_of_cgroups(""), 0);
}

static char top[] = "/tmp/node_job_test.XXXXXX", path[64], asked[64];

static void squeue(const char *does)
{
	FILE *f = fopen(path, "w");

	fprintf(f, "#!/bin/sh\necho \"$@\" >>%s\n%s\n", asked, does);
	fclose(f);
	chmod(path, 0755);
}

static int begin(void **state)
{
	struct node *n = calloc(1, sizeof(*n));

	strcpy(top + sizeof(top) - 7, "XXXXXX");
	if (!n || !mkdtemp(top))
		return -1;
	snprintf(path, sizeof(path), "%s/squeue", top);
	snprintf(asked, sizeof(asked), "%s/asked", top);
	setenv("PATH", top, 1);
	config_default(&n->cfg);
	n->cfg.job_check_s = 10;
	n->o.job = 17;
	n->o.uid = 1000;
	n->now = 1000000000;
	n->works = works_open(n);
	*state = n;
	return n->works ? 0 : -1;
}

static int end(void **state)
{
	struct node *n = *state;

	works_close(n->works, 60000);
	free(n);
	unlink(path);
	unlink(asked);
	return rmdir(top);
}

static void seconds(struct node *n, int s)
{
	while (s--) {
		n->now += 1000000000;
		job_tick(n);
	}
}

static void is_answered(struct node *n)
{
	struct pollfd p = {.fd = works_fd(n->works), .events = POLLIN};

	assert_true(n->job.asked);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_true(works_turn(n->works));
	assert_false(n->job.asked);
}

static void a_daemon_of_a_job_that_is_gone_ends(void **state)
{
	struct node *n = *state;
	char line[128] = "";
	FILE *f;

	squeue("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
	job_tick(n);
	seconds(n, 9);
	assert_false(n->job.asked);
	seconds(n, 1);
	is_answered(n);
	assert_true(n->stop);
	f = fopen(asked, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	assert_string_equal(line, "-h -t all -o %A %U %T -j 17\n");
	fclose(f);
}

static void a_job_that_is_there_is_asked_for_again_and_again(void **state)
{
	struct node *n = *state;

	squeue("echo 17 1000 RUNNING");
	job_tick(n);
	for (int i = 0; i < 3; i++) {
		seconds(n, 10);
		is_answered(n);
		assert_false(n->stop);
	}
}

static void nobody_asks_while_somebody_is_there(void **state)
{
	struct node *n = *state;
	struct chan c = {.kind = CHAN_RANK};

	squeue("echo 17 1001 RUNNING");
	n->chans = &c;
	seconds(n, 100);
	assert_false(n->job.asked);
	c.kind = CHAN_MONITOR;
	seconds(n, 100);
	assert_false(n->job.asked);
	c.kind = CHAN_NEW; /* `rcshare status` */
	seconds(n, 10);
	c.kind = CHAN_MONITOR; /* a step begins while squeue is asked: it had this number before */
	is_answered(n);
	assert_false(n->stop);
}

static void without_squeue_it_goes_on(void **state)
{
	struct node *n = *state;

	n->cfg.log_level = CONFIG_LOG_ERROR;
	job_tick(n);
	seconds(n, 10);
	is_answered(n);
	assert_false(n->stop);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_squeue_says_is_understood),
		cmocka_unit_test(a_process_belongs_to_the_job_of_its_cgroups),
		T(a_daemon_of_a_job_that_is_gone_ends),
		T(a_job_that_is_there_is_asked_for_again_and_again),
		T(nobody_asks_while_somebody_is_there),
		T(without_squeue_it_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
