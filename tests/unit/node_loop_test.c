/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/watch.c and syslog.c: what the loop waits for, and what it must never wait for. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/node.h"

static struct node n;

/* --- the log for admins -------------------------------------------------------------------------- */

static char top[] = "/tmp/node_loop_test.XXXXXX", path[64];

static int syslogd(int type)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static int make_top(void **state)
{
	(void)state;
	strcpy(top + sizeof(top) - 7, "XXXXXX");
	if (!mkdtemp(top))
		return -1;
	snprintf(path, sizeof(path), "%s/log", top);
	config_default(&n.cfg);
	n.cfg.log_level = CONFIG_LOG_INFO;
	node_log_open(path);
	return 0;
}

static int remove_top(void **state)
{
	(void)state;
	unlink(path);
	node_log_open(NULL);
	return rmdir(top);
}

/* Lines that wait in the socket; the last of them is left in `last`. */
static int read_lines(int fd, char *last, size_t size)
{
	ssize_t got;
	int lines = 0;

	while ((got = recv(fd, last, size - 1, 0)) > 0) {
		last[got] = '\0';
		lines++;
	}
	return lines;
}

#define LINES 5000 /* more than any socket holds */

static void a_journal_that_does_not_read_holds_up_nobody(void **state)
{
	char line[2048], second[2048];
	int fd = syslogd(SOCK_DGRAM), kept;

	(void)state;
	for (int i = 0; i < LINES; i++)
		node_log(&n, CONFIG_LOG_WARN, "line %d", i);
	kept = LINES - (int)node_log_lost();
	assert_true(kept > 0 && kept < LINES);
	assert_int_equal(read_lines(fd, line, sizeof(line)), kept);
	assert_non_null(strstr(line, "rcshared["));
	assert_memory_equal(line, "<28>", 4); /* a daemon's warning */
	node_log(&n, CONFIG_LOG_INFO, "at last");
	assert_true(recv(fd, second, sizeof(second), 0) > 0);
	snprintf(line, sizeof(line), ": %d lines before this one were lost", LINES - kept);
	assert_non_null(strstr(second, line));
	assert_true(read_lines(fd, second, sizeof(second)) == 1);
	assert_non_null(strstr(second, ": at last"));
	assert_int_equal(node_log_lost(), 0);
	close(fd);
}

static void a_journal_that_comes_again_is_found_again(void **state)
{
	char line[2048];
	int fd = syslogd(SOCK_DGRAM);

	(void)state;
	node_log(&n, CONFIG_LOG_WARN, "one");
	assert_int_equal(read_lines(fd, line, sizeof(line)), 1);
	close(fd);
	unlink(path);
	node_log(&n, CONFIG_LOG_WARN, "two");
	assert_int_equal(node_log_lost(), 1);
	fd = syslogd(SOCK_DGRAM);
	node_log(&n, CONFIG_LOG_WARN, "three");
	assert_int_equal(read_lines(fd, line, sizeof(line)), 2);
	assert_non_null(strstr(line, ": three"));
	close(fd); /* and again, at once: nothing is lost */
	unlink(path);
	fd = syslogd(SOCK_DGRAM);
	node_log(&n, CONFIG_LOG_WARN, "four");
	assert_int_equal(node_log_lost(), 0);
	assert_int_equal(read_lines(fd, line, sizeof(line)), 1);
	close(fd);
}

static void a_journal_of_streams_is_spoken_to(void **state)
{
	char text[256];
	int fd = syslogd(SOCK_STREAM), in;
	ssize_t got;

	(void)state;
	node_log(&n, CONFIG_LOG_WARN, "a line");
	in = accept(fd, NULL, NULL);
	got = recv(in, text, sizeof(text), 0);
	assert_true(got > 0);
	assert_int_equal(text[got - 1], '\0');
	assert_non_null(strstr(text, ": a line"));
	close(in);
	close(fd);
}

/* --- waiting ------------------------------------------------------------------------------------- */

static int calls;

static void ready(struct node *x, struct watch *w, uint32_t events)
{
	char byte;

	(void)x;
	(void)events;
	calls += read(w->fd, &byte, 1) == 1;
}

/* Waits once with something to read, once until its end. 0: as it should be. */
static int waits(void)
{
	int fd[2];
	struct watch w = {.ready = ready};
	uint64_t until;

	n.epfd = epoll_create1(EPOLL_CLOEXEC);
	if (n.epfd < 0 || pipe(fd) || write(fd[1], "x", 1) != 1)
		return 1;
	w.fd = fd[0];
	calls = 0;
	node_watch(&n, &w, EPOLLIN);
	node_wait(&n, node_clock() + 60000000000ull);
	if (calls != 1)
		return 2;
	until = node_clock() + 3000000;
	node_wait(&n, until);
	if (calls != 1 || node_clock() < until)
		return 3;
	node_unwatch(&n, &w);
	close(fd[1]);
	close(n.epfd);
	return 0;
}

static void it_waits_until_something_comes_or_the_end(void **state)
{
	(void)state;
	assert_int_equal(waits(), 0);
}

/* Kernels before 5.11 have no epoll_pwait2; containers may refuse it in another way. */
static void refuse_pwait2(int err)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof(f) / sizeof(f[0]), .filter = f};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(77);
}

static void it_waits_where_the_kernel_lacks_epoll_pwait2(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			refuse_pwait2(i ? EPERM : ENOSYS);
			_exit(waits());
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) == 77)
			skip(); /* no seccomp here */
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* --- turns --------------------------------------------------------------------------------------- */

#define LONG_NS 30000000ull

static void works_long(struct node *x, struct watch *w, uint32_t events)
{
	uint64_t until = node_clock() + LONG_NS;

	ready(x, w, events);
	while (node_clock() < until)
		;
}

static void the_longest_turn_is_known_with_what_it_did(void **state)
{
	int fd[2];
	struct watch w = {.ready = works_long};
	uint64_t longest;

	(void)state;
	memset(&n.turn, 0, sizeof(n.turn));
	n.epfd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(pipe(fd), 0);
	w.fd = fd[0];
	node_watch(&n, &w, EPOLLIN);
	node_wait(&n, 0); /* nothing was done before the first */
	assert_int_equal(write(fd[1], "x", 1), 1);
	node_wait(&n, 0);
	node_did(&n, "nothing");
	node_wait(&n, 0);
	longest = n.turn.longest;
	assert_true(longest >= LONG_NS);
	assert_string_equal(n.turn.longest_did, "requests and connections");
	node_wait(&n, node_clock() + 2 * LONG_NS); /* sleep is no work */
	node_wait(&n, 0);
	assert_true(n.turn.longest == longest);
	node_unwatch(&n, &w);
	close(fd[1]);
	close(n.epfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_journal_that_does_not_read_holds_up_nobody, make_top,
			remove_top),
		cmocka_unit_test_setup_teardown(a_journal_that_comes_again_is_found_again, make_top,
			remove_top),
		cmocka_unit_test_setup_teardown(a_journal_of_streams_is_spoken_to, make_top, remove_top),
		cmocka_unit_test(it_waits_until_something_comes_or_the_end),
		cmocka_unit_test(it_waits_where_the_kernel_lacks_epoll_pwait2),
		cmocka_unit_test(the_longest_turn_is_known_with_what_it_did),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
