// SPDX-License-Identifier: BSD-3-Clause
#include "spank/ctld.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm/channel.h"

#define COMMAND_MS 10000 /* a command that takes longer has failed */
#define CONNECT_MS 1000	 /* a slurmd that does not take a connection so long is not there */
#define STOP_S 2

static struct {
	bool running;
	pthread_t thread;
	int ask[2];	     /* SEQPACKET: [1] gives to the thread */
	_Atomic bool asking; /* a question waits there: another would only be answered later */
	char *nodes;
	struct ctld_opts o;
} self;

/* --- pure ------------------------------------------------------------------------------------- */

bool ctld_listed(const char *nodes, const char *name)
{
	size_t len = strlen(name), n;

	for (; len && nodes && *nodes; nodes += n + (nodes[n] == ',')) {
		n = strcspn(nodes, ",/");
		if (n == len && memcmp(nodes, name, n) == 0)
			return true;
		n = strcspn(nodes, ",");
	}
	return false;
}

bool ctld_value(const char *text, const char *key, char *out, size_t size)
{
	size_t len = strlen(key), n;
	const char *s = text;

	for (; (s = strstr(s, key)); s += len) {
		if ((s > text && !isspace((unsigned char)s[-1])) || s[len] != '=')
			continue;
		s += len + 1;
		n = strcspn(s, " \t\n");
		if (n == 0 || n >= size)
			return false;
		memcpy(out, s, n);
		out[n] = '\0';
		return true;
	}
	return false;
}

int ctld_down(const char *text)
{
	char state[128];

	if (!ctld_value(text, "State", state, sizeof(state)))
		return -1;
	state[strcspn(state, "*+")] = '\0'; /* flags behind the state */
	return strcmp(state, "DOWN") == 0;
}

/* --- commands --------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int spawn(char *const argv[], int out, pid_t *pid)
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

/*
 * What a command prints, up to `size`. 0 or -errno; its exit code is not known: slurmstepd's main
 * thread may have been told of its end instead.
 */
static int run(char *const argv[], char *out, size_t size)
{
	int64_t until = now_ms() + COMMAND_MS;
	size_t len = 0;
	int fd[2], rc;
	ssize_t n = 1;
	pid_t pid = 0;

	if (pipe2(fd, O_CLOEXEC))
		return -errno;
	rc = spawn(argv, fd[1], &pid);
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

static int show_node(const char *node, char *out, size_t size)
{
	char *argv[] = {"scontrol", "-o", "show", "node", (char *)(uintptr_t)node, NULL};

	return run(argv, out, size);
}

static bool connects(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL, *a;
	bool yes = false;

	if (getaddrinfo(host, port, &hints, &list))
		return false;
	for (a = list; a && !yes; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
		    err = 0;
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		socklen_t len = sizeof(err);

		if (fd < 0)
			continue;
		if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			yes = true;
		else if (errno == EINPROGRESS && poll(&p, 1, CONNECT_MS) == 1)
			yes = getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && !err;
		close(fd);
	}
	freeaddrinfo(list);
	return yes;
}

/* Slurm's own daemon on the node takes connections: the node lives. */
static bool slurmd_lives(const char *node)
{
	char *config[] = {"scontrol", "-o", "show", "config", NULL};
	char text[32768], addr[256], port[16], *s;

	if (show_node(node, text, sizeof(text)) ||
		!ctld_value(text, "NodeAddr", addr, sizeof(addr)))
		return false;
	if (!ctld_value(text, "Port", port, sizeof(port))) {
		/* "SlurmdPort              = 6818" */
		if (run(config, text, sizeof(text)) || !(s = strstr(text, "\nSlurmdPort")) ||
			sscanf(s, " SlurmdPort = %15[0-9]", port) != 1)
			return false;
	}
	return connects(addr, port);
}

/* --- the two messages ------------------------------------------------------------------------- */

static void lost(const struct shm_witness *w)
{
	char name[80], reason[96], line[256], text[1024];
	char *argv[] = {"scontrol", "update", name, "State=DOWN", reason, NULL};

	if (slurmd_lives(w->node)) {
		snprintf(line, sizeof(line),
			"%s is lost to step %u, but its slurmd answers: not marked down", w->node,
			self.o.step);
		self.o.log(line);
		return;
	}
	snprintf(name, sizeof(name), "NodeName=%s", w->node);
	snprintf(reason, sizeof(reason), "Reason=rcshare: lost to job %u step %u", self.o.job,
		self.o.step);
	snprintf(
		line, sizeof(line), "%s is lost to step %u: marking it down", w->node, self.o.step);
	self.o.log(line);
	if (run(argv, text, sizeof(text)) || *text) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(line, sizeof(line), "cannot mark %s down: %.80s", w->node, text);
		self.o.log(line);
	}
}

static void witness(struct shm_witness *w)
{
	static bool silent;
	char text[4096], line[256];
	int rc = show_node(w->node, text, sizeof(text)), down = rc ? -1 : ctld_down(text);

	if (down < 0 && !silent) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(line, sizeof(line), "scontrol does not tell whether %s is down: %.60s",
			w->node, rc ? strerror(-rc) : text);
		self.o.log(line);
	}
	silent = down < 0;
	if (silent)
		return; /* no word; it asks again */
	w->down = (uint32_t)down;
	(void)!send(self.o.daemon, w, sizeof(*w), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void *asker(void *arg)
{
	struct shm_witness w;

	(void)arg;
	while (recv(self.ask[0], &w, sizeof(w), 0) == sizeof(w)) {
		if (w.m.type == SHM_MSG_WITNESS) {
			if (self.o.witness)
				witness(&w);
			atomic_store(&self.asking, false);
		}
		if (w.m.type == SHM_MSG_LOST && self.o.mark_down)
			lost(&w);
	}
	return NULL;
}

void ctld_take(const void *msg, size_t size)
{
	struct shm_witness w;

	if (!self.running || size != sizeof(w))
		return;
	memcpy(&w, msg, sizeof(w));
	w.node[sizeof(w.node) - 1] = '\0';
	if (w.step != self.o.step || !ctld_listed(self.nodes, w.node))
		return;
	if (w.m.type == SHM_MSG_WITNESS && atomic_exchange(&self.asking, true))
		return;
	if (send(self.ask[1], &w, sizeof(w), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		atomic_store(&self.asking, false);
}

int ctld_start(const struct ctld_opts *o)
{
	sigset_t all, before;
	int rc;

	if (self.running || !o->nodes || !(o->mark_down || o->witness))
		return 0;
	self.o = *o;
	self.nodes = strdup(o->nodes);
	if (!self.nodes || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, self.ask))
		return self.nodes ? -errno : -ENOMEM;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&self.thread, NULL, asker, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	self.running = !rc;
	return -rc;
}

bool ctld_stop(void)
{
	struct timespec until;

	if (!self.running)
		return true;
	self.running = false;
	shutdown(self.ask[1], SHUT_RDWR);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_S;
	if (pthread_timedjoin_np(self.thread, NULL, &until))
		return false;
	close(self.ask[0]);
	close(self.ask[1]);
	free(self.nodes);
	return true;
}
