// SPDX-License-Identifier: BSD-3-Clause
#include "spank/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_MS 10000 /* a command that takes longer has failed */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int command_spawn(char *const argv[], int out, pid_t *pid)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&at);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&fa, out, 1);
	posix_spawn_file_actions_adddup2(&fa, 0, 2);
#if __GLIBC_PREREQ(2, 34)
	posix_spawn_file_actions_addclosefrom_np(&fa, 3);
#endif
	posix_spawnattr_setsigmask(&at, &none);
	posix_spawnattr_setsigdefault(&at, &all);
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	rc = posix_spawnp(pid, argv[0], &fa, &at, argv, environ);
	posix_spawnattr_destroy(&at);
	posix_spawn_file_actions_destroy(&fa);
	return -rc;
}

int plug_command_run(char *const argv[], char *out, size_t size)
{
	int64_t until = now_ms() + COMMAND_MS;
	size_t len = 0;
	int fd[2], rc;
	ssize_t n = 1;
	pid_t pid = 0;

	if (pipe2(fd, O_CLOEXEC))
		return -errno;
	rc = command_spawn(argv, fd[1], &pid);
	close(fd[1]);
	while (!rc && n > 0 && len + 1 < size) {
		struct pollfd p = {.fd = fd[0], .events = POLLIN};
		int64_t left = until - now_ms();

		if (left <= 0 || poll(&p, 1, (int)left) <= 0) {
			kill(pid, SIGKILL);
			rc = -ETIMEDOUT;
			break;
		}
		n = read(fd[0], out + len, size - 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	out[len] = '\0';
	close(fd[0]);
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	return rc;
}
