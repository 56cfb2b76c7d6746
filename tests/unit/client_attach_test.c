/* SPDX-License-Identifier: BSD-3-Clause */
/* What a request to the daemon leaves behind when the daemon ends instead of answering. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib.h"

/* ends: before the request is sent, or behind it. */
static void ask_who_ends(bool behind)
{
	struct cl_chan ch = {.daemon_bell = -1, .rank_bell = -1};
	struct shm_attach req = {.job = 1};
	struct shm_attached ans;
	int s[2], fds[SHM_FD_N] = {0, 1, 2, 0};
	unsigned n = SHM_FD_N;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	ch.sock = s[0];
	if (behind)
		assert_int_equal(shutdown(s[1], SHUT_WR), 0);
	else
		close(s[1]);
	cl_msg_init(&req.m, SHM_MSG_ATTACH);
	assert_true(cl_chan_ask(&ch, &req, sizeof(req), &ans, sizeof(ans), fds, &n) < 0);
	assert_int_equal(n, 0); /* descriptors to be closed: none came */
	assert_non_null(strstr(ans.m.sentence, "the rcshare daemon does not answer"));
	close(s[0]);
	if (behind)
		close(s[1]);
}

static void a_daemon_that_ends_before_the_request_gives_no_descriptors(void **state)
{
	(void)state;
	ask_who_ends(false);
}

static void a_daemon_that_ends_behind_the_request_gives_no_descriptors(void **state)
{
	(void)state;
	ask_who_ends(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_daemon_that_ends_before_the_request_gives_no_descriptors),
		cmocka_unit_test(a_daemon_that_ends_behind_the_request_gives_no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
