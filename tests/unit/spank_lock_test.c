// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/lock.h"

static char dir[] = "/tmp/spank_lock_test.XXXXXX", path[64];

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/7.0.lock", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void what_is_written_is_read(void **state)
{
	struct plug_lock l = {.abi = 5, .uid = 12345, .ready = 1, .node = (char *)"b0",
		.nodelist = (char *)"b[0-1]", .groups = {.count = 1, .job = {"/sys/fs/cgroup/job_7"}}};
	struct plug_lock r;
	struct plug_error e;
	int fd = plug_lock_try(path, &e);

	(void)state;
	assert_true(fd >= 0);
	plug_lock_process(&l, getpid());
	assert_int_equal(plug_lock_write(path, &l), 0);
	assert_int_equal(plug_lock_read(path, &r), 0);
	assert_int_equal(r.abi, 5);
	assert_int_equal(r.uid, 12345);
	assert_int_equal(r.pid, getpid());
	assert_int_equal(r.ready, 1);
	assert_string_equal(r.node, "b0");
	assert_string_equal(r.nodelist, "b[0-1]");
	assert_int_equal(r.groups.count, 1);
	assert_string_equal(r.groups.job[0], "/sys/fs/cgroup/job_7");
	assert_true(plug_lock_ours(&r));
	assert_true(plug_lock_alive(&r));
	assert_true(plug_lock_held(path));
	assert_int_equal(plug_lock_try(path, &e), -EWOULDBLOCK);
	plug_lock_free(&r);
	close(fd);
	assert_false(plug_lock_held(path));
}

/* A full /run, here a limit of the file's size: what the file tells of a daemon that lives stays. */
static void without_room_the_lock_stays_as_it_was(void **state)
{
	struct plug_lock l = {.abi = 5, .uid = 12345, .ready = 1, .node = "b0", .nodelist = "b[0-1]"}, r;
	struct rlimit limit, small = {.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
	FILE *f = fopen(path, "w");

	(void)state;
	assert_non_null(f);
	fclose(f);
	plug_lock_process(&l, getpid());
	assert_int_equal(plug_lock_write(path, &l), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small.rlim_max = limit.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	l.groups.count = 1;
	strcpy(l.groups.job[0], "/sys/fs/cgroup/job_7");
	assert_true(plug_lock_write(path, &l) < 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(plug_lock_read(path, &r), 0);
	assert_int_equal(r.uid, 12345);
	assert_int_equal(r.pid, getpid());
	assert_string_equal(r.nodelist, "b[0-1]");
	assert_int_equal(r.groups.count, 0);
	plug_lock_free(&r);
	assert_int_equal(plug_lock_write(path, &l), 0);
	assert_int_equal(plug_lock_read(path, &r), 0);
	assert_int_equal(r.groups.count, 1);
	plug_lock_free(&r);
}

/* Of one that ended another may have the pid. */
static void a_process_is_its_pid_and_its_start(void **state)
{
	struct plug_lock l = {.abi = 5};
	pid_t pid = sleeper();

	(void)state;
	plug_lock_process(&l, pid);
	assert_true(plug_lock_alive(&l));
	l.start++;
	assert_false(plug_lock_alive(&l));
	plug_lock_kill(&l, 10);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it is another one, and lives */
	l.start--;
	plug_lock_kill(&l, 1000);
	assert_false(plug_lock_alive(&l));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The number may be anybody's here: nothing is sent to it, and the flock alone says who lives. */
static void a_pid_of_another_namespace_says_nothing(void **state)
{
	struct plug_lock l = {.abi = 5};
	pid_t pid = sleeper();

	(void)state;
	plug_lock_process(&l, pid);
	l.pidns++;
	assert_false(plug_lock_ours(&l));
	plug_lock_kill(&l, 0);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(plug_lock_alive(&l));
}

static void the_daemon_of_an_earlier_job_is_told_apart(void **state)
{
	struct plug_lock l = {.abi = 5, .uid = 12345, .born = 1000000};

	(void)state;
	assert_false(plug_lock_stale(&l, 12345, 0)); /* Slurm does not tell when the job began */
	assert_false(plug_lock_stale(&l, 12345, 999000));
	assert_false(plug_lock_stale(&l, 12345, 1000100)); /* clocks differ */
	assert_true(plug_lock_stale(&l, 12345, 1001000));
	assert_true(plug_lock_stale(&l, 12346, 0));
	l.abi = 0;
	assert_false(plug_lock_stale(&l, 12346, 1001000)); /* of a release that did not say */
}

static void a_lock_of_an_older_release_can_be_ended(void **state)
{
	struct plug_lock l, now = {.abi = 5};
	pid_t pid = sleeper();
	FILE *f = fopen(path, "w");

	(void)state;
	assert_non_null(f);
	plug_lock_process(&now, pid);
	fprintf(f, "%d %llu 1 b[0-1]\n/sys/fs/cgroup/job_7\n", (int)pid, now.start);
	fclose(f);
	assert_int_equal(plug_lock_read(path, &l), 0);
	assert_int_equal(l.abi, 0);
	assert_int_equal(l.ready, 1);
	assert_int_equal(l.groups.count, 1);
	assert_true(plug_lock_alive(&l));
	plug_lock_kill(&l, 1000);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	plug_lock_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(without_room_the_lock_stays_as_it_was),
		cmocka_unit_test(a_process_is_its_pid_and_its_start),
		cmocka_unit_test(a_pid_of_another_namespace_says_nothing),
		cmocka_unit_test(the_daemon_of_an_earlier_job_is_told_apart),
		cmocka_unit_test(a_lock_of_an_older_release_can_be_ended),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
