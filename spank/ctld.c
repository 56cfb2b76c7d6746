// SPDX-License-Identifier: BSD-3-Clause
#include "spank/ctld.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "shm/channel.h"
#include "spank/command.h"
#include "spank/hostlist.h"

#define CONNECT_MS 1000	 /* a slurmd that does not take a connection so long is not there */
#define STOP_S 2
#define CTLD_NAME sizeof(((struct shm_witness *)0)->node)

static struct {
	bool running;
	pthread_t thread;
	int ask[2];	     /* SEQPACKET: [1] gives to the thread */
	_Atomic bool asking; /* a question waits there: another would only be answered later */
	char *nodes;
	struct ctld_opts o;
} self;

/* --- pure ------------------------------------------------------------------------------------- */

bool ctld_name_ok(const char *name)
{
	size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n && !name[n] && *name != '-' && strcasecmp(name, "ALL") != 0;
}

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

/* Is it about this node, and no other? */
static bool ctld_about(const char *text, const char *node)
{
	char name[CTLD_NAME], *more = strstr(text, "NodeName=");

	return ctld_value(text, "NodeName", name, sizeof(name)) && strcmp(name, node) == 0 && more &&
	       !strstr(more + 1, "NodeName=");
}

int ctld_down(const char *text, const char *node)
{
	char state[128];

	if (!ctld_about(text, node) || !ctld_value(text, "State", state, sizeof(state)))
		return -1;
	state[strcspn(state, "*+")] = '\0'; /* flags behind the state */
	return strcmp(state, "DOWN") == 0;
}

bool ctld_address(const char *text, const char *node, char *addr, size_t asize, char *port, size_t psize)
{
	*port = '\0';
	if (!ctld_about(text, node) || !ctld_value(text, "NodeAddr", addr, asize))
		return false;
	ctld_value(text, "Port", port, psize); /* only where it is not SlurmdPort */
	return strspn(port, "0123456789") == strlen(port);
}

bool ctld_step_has(const char *text, uint32_t job, uint32_t step, const char *node)
{
	char id[64], want[64], *list = malloc(PLUG_HOSTLIST_MAX), *names = NULL;
	struct plug_error err;
	bool has;

	snprintf(want, sizeof(want), "%u.%u", job, step);
	has = list && ctld_value(text, "StepId", id, sizeof(id)) && strcmp(id, want) == 0 &&
	      ctld_value(text, "NodeList", list, PLUG_HOSTLIST_MAX) &&
	      plug_hostlist_expand(list, &names, &err) > 0 && plug_hostlist_find(names, node) >= 0;
	free(names);
	free(list);
	return has;
}

/* --- commands --------------------------------------------------------------------------------- */

static int show_node(const char *node, char *out, size_t size)
{
	char *argv[] = {"scontrol", "-o", "show", "node", (char *)(uintptr_t)node, NULL};

	return plug_command_run(argv, out, size);
}

/* Does slurmd take a connection there? 1; 0: nothing is there; -1: this node cannot tell. */
static int connects(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL, *a;
	int found = -1;

	if (getaddrinfo(host, port, &hints, &list))
		return -1;
	for (a = list; a && found != 1; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		socklen_t len = sizeof(err);

		if (fd < 0)
			continue;
		if (connect(fd, a->ai_addr, a->ai_addrlen) < 0)
			err = errno;
		if (err == EINPROGRESS) {
			if (poll(&p, 1, CONNECT_MS) != 1)
				err = ETIMEDOUT;
			else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
				err = errno;
		}
		if (!err)
			found = 1;
		else if (err == ETIMEDOUT || err == ECONNREFUSED || err == EHOSTUNREACH || err == ECONNRESET ||
			 err == EHOSTDOWN)
			found = 0;
		close(fd);
	}
	freeaddrinfo(list);
	return found;
}

/* Of the node's slurmd: 1 it lives, 0 it does not, -1 and `why`: that is not known. */
static int slurmd_lives(const char *node, const char **why)
{
	char *config[] = {"scontrol", "-o", "show", "config", NULL};
	char text[32768], addr[256], port[16], *s;
	int lives;

	*why = "slurmctld does not tell its address";
	if (show_node(node, text, sizeof(text)) ||
		!ctld_address(text, node, addr, sizeof(addr), port, sizeof(port)))
		return -1;
	if (!*port) {
		/* "SlurmdPort              = 6818" */
		*why = "slurmctld does not tell the port of slurmd";
		if (plug_command_run(config, text, sizeof(text)) || !(s = strstr(text, "\nSlurmdPort")) ||
			sscanf(s, " SlurmdPort = %15[0-9]", port) != 1)
			return -1;
	}
	*why = "its slurmd cannot be tried from here";
	lives = connects(addr, port);
	return lives;
}

/* --- the two messages ------------------------------------------------------------------------- */

/* slurmctld's own word that the node is of this step: the step's environment and daemon are the user's. */
static bool of_step(const char *node)
{
	char id[32], *argv[] = {"scontrol", "-o", "show", "step", id, NULL};
	size_t size = PLUG_HOSTLIST_MAX + 4096;
	char *text = malloc(size);
	bool yes;

	snprintf(id, sizeof(id), "%u.%u", self.o.job, self.o.step);
	yes = text && !plug_command_run(argv, text, size) &&
	      ctld_step_has(text, self.o.job, self.o.step, node);
	free(text);
	return yes;
}

static void not_marked(const char *node, const char *why)
{
	char line[CTLD_NAME + 256];

	snprintf(line, sizeof(line), "%s is lost to step %u, but %s: not marked down", node, self.o.step, why);
	self.o.log(line);
}

static void lost(const struct shm_witness *w)
{
	char name[CTLD_NAME + 16], reason[96], line[CTLD_NAME + 256], text[1024];
	char *argv[] = {"scontrol", "update", name, "State=DOWN", reason, NULL};
	const char *why;
	int lives;

	if (!of_step(w->node)) {
		not_marked(w->node, "slurmctld does not say that it is a node of this step");
		return;
	}
	lives = slurmd_lives(w->node, &why);
	if (lives) {
		not_marked(w->node, lives > 0 ? "its slurmd answers" : why);
		return;
	}
	snprintf(name, sizeof(name), "NodeName=%s", w->node);
	snprintf(reason, sizeof(reason), "Reason=rcshare: lost to job %u step %u", self.o.job,
		self.o.step);
	snprintf(
		line, sizeof(line), "%s is lost to step %u: marking it down", w->node, self.o.step);
	self.o.log(line);
	if (plug_command_run(argv, text, sizeof(text)) || *text) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(line, sizeof(line), "cannot mark %s down: %.80s", w->node, text);
		self.o.log(line);
	}
}

static void witness(struct shm_witness *w)
{
	static bool silent;
	char text[4096], line[256];
	int rc = show_node(w->node, text, sizeof(text)), down = rc ? -1 : ctld_down(text, w->node);

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
	if (w.step != self.o.step || !ctld_name_ok(w.node) || !ctld_listed(self.nodes, w.node))
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
