/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One hop between a rank and its daemon, both spinning, against a bare cache line that two
 * processes hand to each other. Needs two CPUs, no RDMA and no Slurm.
 *
 *	hop [--turns N] [--repeats N]
 *
 * The rank writes an 8-byte message to itself into the submission ring and spins on its receive ring;
 * the daemon is the real chan_poll() and chan_flush() on a channel of its own making. A turn is two
 * hops, rank to daemon and daemon to rank. Repeats alternate with those of the cache line. Printed is
 * half a turn, of the repeats that the host disturbed least, and the medians of all:
 *
 *	hop ns=X line_ns=Y median_ns=M median_line_ns=N
 */
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "node/node.h"

#define REPEATS_MAX 101

struct shared {
	_Alignas(64) _Atomic uint64_t line;
	_Alignas(64) _Atomic int ready, stop;
};

static struct shared *sh;
static unsigned turns = 5000, repeats = 51;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static cpu_set_t all; /* CPUs we had at the start */

static void pin(int which)
{
	cpu_set_t one;
	int cpu, seen = 0;

	CPU_ZERO(&one);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && seen++ == which)
			break;
	if (cpu == CPU_SETSIZE) {
		fprintf(stderr, "hop: needs two CPUs\n");
		exit(1);
	}
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("sched_setaffinity");
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* --- the other process ------------------------------------------------------------------------- */

static pid_t start(void (*run)(void *), void *arg)
{
	pid_t pid;

	sh->ready = sh->stop = 0;
	sh->line = 0;
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(1);
		atomic_store(&sh->ready, 1);
		run(arg);
		_exit(0);
	}
	while (!atomic_load(&sh->ready))
		;
	return pid;
}

static void finish(pid_t pid)
{
	int status;

	atomic_store(&sh->stop, 1);
	if (waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "hop: the other process failed\n");
		exit(1);
	}
}

static void line_other(void *arg)
{
	uint64_t want = 1;

	(void)arg;
	while (!atomic_load_explicit(&sh->stop, memory_order_relaxed))
		if (atomic_load_explicit(&sh->line, memory_order_acquire) == want) {
			atomic_store_explicit(&sh->line, want + 1, memory_order_release);
			want += 2;
		}
}

/* What the daemon's loop does in a turn with channels alone: clock, channels, publish, reap. */
static void daemon_other(void *arg)
{
	struct node *n = arg;

	while (!atomic_load_explicit(&sh->stop, memory_order_relaxed)) {
		n->now = node_clock();
		for (struct chan *c = n->chans; c; c = c->next)
			chan_poll(n, c);
		chan_flush(n);
		chan_reap(n);
	}
}

/* --- what is measured -------------------------------------------------------------------------- */

static double line_ns(void)
{
	pid_t pid = start(line_other, NULL);
	double t = 0;

	for (uint64_t i = 0, v = 1; i < turns + turns / 10; i++, v += 2) {
		if (i == turns / 10)
			t = now_ns();
		atomic_store_explicit(&sh->line, v, memory_order_release);
		while (atomic_load_explicit(&sh->line, memory_order_acquire) != v + 1)
			;
	}
	t = now_ns() - t;
	finish(pid);
	return t / turns / 2;
}

static double hop_ns(void)
{
	static char *names[] = {"here"};
	struct shm_attach a = {.ranks = 1, .local_ranks = 1};
	struct node *n = calloc(1, sizeof(*n));
	struct chan *c = calloc(1, sizeof(*c));
	struct shm_ring tx, rx;
	char why[SHM_SENTENCE];
	double t = 0;
	pid_t pid;

	if (!n || !c)
		die("memory");
	config_default(&n->cfg);
	n->o.nodes = 1;
	n->o.names = names;
	n->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (chan_make(n, c, &a, why)) {
		fprintf(stderr, "hop: %s\n", why);
		exit(1);
	}
	n->chans = c;
	c->sock.fd = -1;
	shm_ring_init(&tx, &c->shm->tx, (uint8_t *)c->shm + c->shm->tx_off, c->shm->tx_size);
	shm_ring_init(&rx, &c->shm->rx, (uint8_t *)c->shm + c->shm->rx_off, c->shm->rx_size);
	pid = start(daemon_other, n);
	for (uint64_t i = 0; i < turns + turns / 10; i++) {
		struct wire_rec *to, r;
		const uint8_t *payload;
		int got;

		if (i == turns / 10)
			t = now_ns();
		to = shm_ring_reserve(&tx, sizeof(i));
		if (!to)
			die("submission ring");
		*to = (struct wire_rec){.type = WIRE_REC_MSG, .len = sizeof(i), .dst_ep = c->slot,
			.dst_epoch = c->epoch};
		memcpy(to + 1, &i, sizeof(i));
		shm_ring_commit(&tx, sizeof(i));
		shm_ring_publish(&tx);
		while (!(got = shm_ring_peek(&rx, &r, &payload)))
			;
		if (got < 0 || r.type != WIRE_REC_MSG || memcmp(payload, &i, sizeof(i))) {
			fprintf(stderr, "hop: a wrong record came back\n");
			exit(1);
		}
		shm_ring_consume(&rx, &r);
	}
	t = now_ns() - t;
	finish(pid);
	munmap(c->shm, c->size);
	close(c->memfd);
	close(c->bell.fd);
	close(c->rank_bell);
	close(n->epfd);
	free(c);
	free(n);
	return t / turns / 2;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"turns", required_argument, NULL, 't'},
		{"repeats", required_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
	double hop[REPEATS_MAX], line[REPEATS_MAX];
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if (c == 't')
			turns = (unsigned)atoi(optarg);
		else if (c == 'r')
			repeats = (unsigned)atoi(optarg);
		else
			return 2;
	if (!turns || !repeats || repeats > REPEATS_MAX)
		return 2;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		die("mmap");
	if (sched_getaffinity(0, sizeof(all), &all))
		die("sched_getaffinity");
	pin(0);
	for (unsigned i = 0; i < repeats; i++) {
		line[i] = line_ns();
		hop[i] = hop_ns();
	}
	qsort(hop, repeats, sizeof(*hop), by_value);
	qsort(line, repeats, sizeof(*line), by_value);
	printf("hop ns=%.1f line_ns=%.1f median_ns=%.1f median_line_ns=%.1f\n", hop[0], line[0],
		hop[repeats / 2], line[repeats / 2]);
	return 0;
}
