/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * labhost guard [-o OWNER_PID] -f FILE -l LOG -- COMMAND...
 *
 * Starts COMMAND in the background and keeps it: it is killed when the guard is told to end, when
 * the guard itself is killed, or when the process OWNER_PID ends. As long as the guard lives it
 * holds a lock (flock) on FILE, which has "guard's pid, command's pid": whoever finds the lock held
 * may trust the numbers. At the command's end FILE is emptied. Returns 0 once COMMAND runs.
 */
#define _GNU_SOURCE
#include "labhost.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int pidfd_of(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static pid_t command_start(char **argv, const sigset_t *mask)
{
	pid_t guard = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_SETMASK, mask, NULL);
		if (getppid() == guard)
			execvp(argv[0], argv);
		fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	return pid;
}

/* The guard's life after it left the caller; 'ready' is the pipe the caller waits on. */
static void guard_run(int file, int ready, int owner, char **argv)
{
	sigset_t sigs, before;
	int sig, child, status;
	pid_t pid;

	sigemptyset(&sigs);
	sigaddset(&sigs, SIGTERM);
	sigaddset(&sigs, SIGINT);
	sigaddset(&sigs, SIGHUP);
	sigprocmask(SIG_BLOCK, &sigs, &before);
	sig = signalfd(-1, &sigs, SFD_CLOEXEC);
	pid = command_start(argv, &before);
	child = pid > 0 ? pidfd_of(pid) : -1;
	if (child < 0)
		_exit(1);
	if (ftruncate(file, 0) || dprintf(file, "%d %d\n", getpid(), pid) < 0 ||
	    write(ready, "", 1) != 1)
		_exit(1);
	close(ready);

	for (;;) {
		struct pollfd p[] = {
			{.fd = child, .events = POLLIN},
			{.fd = owner, .events = POLLIN},
			{.fd = sig, .events = POLLIN},
		};

		if (poll(p, 3, -1) < 0)
			continue;
		if (p[0].revents)
			break;
		if (p[1].revents || p[2].revents) {
			kill(pid, SIGKILL);
			break;
		}
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status))
		fprintf(stderr, "%s: exit status %d\n", argv[0], WEXITSTATUS(status));
	(void)!ftruncate(file, 0);
	_exit(0);
}

int guard_main(int argc, char **argv)
{
	const char *path = NULL, *log = NULL;
	int file, logfd, null, ready[2], owner = -1, opt;
	pid_t owner_pid = 0;
	char byte;

	while ((opt = getopt(argc, argv, "+o:f:l:")) != -1) {
		switch (opt) {
		case 'o':
			owner_pid = atoi(optarg);
			break;
		case 'f':
			path = optarg;
			break;
		case 'l':
			log = optarg;
			break;
		default:
			return 2;
		}
	}
	if (!path || !log || optind == argc) {
		fprintf(stderr, "usage: labhost guard [-o PID] -f FILE -l LOG -- COMMAND...\n");
		return 2;
	}
	if (owner_pid && (owner = pidfd_of(owner_pid)) < 0) {
		fprintf(stderr, "lab: the owner, process %d, is gone\n", owner_pid);
		return 1;
	}
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
	logfd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (file < 0 || logfd < 0 || null < 0 || pipe2(ready, O_CLOEXEC)) {
		perror(path);
		return 1;
	}
	if (flock(file, LOCK_EX | LOCK_NB)) {
		fprintf(stderr, "lab: %s: its process still runs\n", path);
		return 1;
	}
	switch (fork()) {
	case -1:
		perror("fork");
		return 1;
	case 0:
		break;
	default:
		close(ready[1]);
		if (read(ready[0], &byte, 1) == 1)
			return 0;
		fprintf(stderr, "lab: %s did not start, see %s\n", argv[optind], log);
		return 1;
	}

	setsid();
	dup2(null, 0);
	dup2(logfd, 1);
	dup2(logfd, 2);
	/* Descriptors of the caller (a test harness waits for their end) stay with the caller. */
	for (int fd = 3; fd < 1024; fd++)
		if (fd != file && fd != ready[1] && fd != owner)
			close(fd);
	guard_run(file, ready[1], owner, argv + optind);
	return 0;
}
