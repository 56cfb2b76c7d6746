/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * app.h - what the test programs share: start, peers, waiting for requests, a barrier over messages.
 *
 * Identity and addresses come from PMIx. With RCS_TEST_DIR set they come from RCS_TEST_RANK,
 * RCS_TEST_SIZE and files in that folder: ranks can then be started by hand, against daemons started
 * by hand.
 */
#ifndef RCS_TESTS_APP_H
#define RCS_TESTS_APP_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rcshare.h"

#define APP_TAG_BARRIER (1ull << 60)
#define APP_TAG_SUM	(2ull << 60)
#define APP_WAIT_MS	120000 /* a request that takes longer is lost */

static struct app {
	rcs_ctx *ctx;
	rcs_cq *cq;
	rcs_ep *ep;
	rcs_peer **peer;
	uint32_t rank, size;
	struct rcs_limits limits;
	const char *dir;
	uint64_t barriers;
} app;

/* A request: its context points here. */
struct app_req {
	bool done;
	struct rcs_completion c;
};

__attribute__((format(printf, 1, 2), noreturn, unused)) static void app_die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %u: ", app.rank);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

#define APP_CHECK(cond) \
	do { \
		if (!(cond)) \
			app_die("%s:%d: not true: %s", __FILE__, __LINE__, #cond); \
	} while (0)
#define APP_OK(call) \
	do { \
		int rc_ = (call); \
		if (rc_ < 0) \
			app_die("%s:%d: %s: %s", __FILE__, __LINE__, #call, rcs_status_name(rc_)); \
	} while (0)

__attribute__((unused)) static uint64_t app_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Word i of the message from src to dst with that number. */
__attribute__((unused)) static uint64_t app_word(uint32_t src, uint32_t dst, uint64_t seq, size_t i)
{
	uint64_t x = (uint64_t)src << 40 ^ (uint64_t)dst << 20 ^ seq;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	return x + i * 0x9e3779b97f4a7c15ull;
}

static void app_addr_file(uint32_t rank, char *path, size_t size, const char *suffix)
{
	snprintf(path, size, "%s/addr.%u%s", app.dir, rank, suffix);
}

static void app_put_addr(void)
{
	struct rcs_addr addr;
	char tmp[512], path[512];
	FILE *f;

	app_addr_file(app.rank, tmp, sizeof(tmp), ".new");
	app_addr_file(app.rank, path, sizeof(path), "");
	rcs_ep_addr(app.ep, &addr);
	f = fopen(tmp, "w");
	if (!f || fwrite(&addr, sizeof(addr), 1, f) != 1 || fclose(f) || rename(tmp, path))
		app_die("%s: %s", path, strerror(errno));
}

static void app_get_addr(uint32_t rank, struct rcs_addr *addr)
{
	uint64_t start = app_now();
	char path[512];
	FILE *f;

	app_addr_file(rank, path, sizeof(path), "");
	while (!(f = fopen(path, "r"))) {
		if (app_now() - start > 60000000000ull)
			app_die("no address of rank %u after 60 s", rank);
		usleep(2000);
	}
	if (fread(addr, sizeof(*addr), 1, f) != 1)
		app_die("%s is too short", path);
	fclose(f);
}

/* A context, a queue, an endpoint. */
__attribute__((unused)) static void app_open(uint32_t flags)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = flags};
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};
	const char *rank = getenv("RCS_TEST_RANK"), *size = getenv("RCS_TEST_SIZE");
	int rc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	app.dir = getenv("RCS_TEST_DIR");
	if (app.dir) {
		if (!rank || !size)
			app_die("RCS_TEST_DIR needs RCS_TEST_RANK and RCS_TEST_SIZE");
		o.flags = (o.flags & ~RCS_INIT_EAGER) | RCS_INIT_NO_PMIX;
		o.rank = app.rank = (uint32_t)atoi(rank);
		o.nranks = (uint32_t)atoi(size);
	}
	rc = rcs_init(&o, &app.ctx, &err);
	if (rc == RCS_NOT_NEEDED)
		exit(0);
	if (rc || rcs_cq_open(app.ctx, 0, &app.cq, &err))
		app_die("%s: %s", rcs_status_name(err.status), err.sentence);
	app.rank = rcs_rank(app.ctx);
	app.size = rcs_size(app.ctx);
	rcs_limits(app.ctx, &app.limits);
	e.tx_cq = e.rx_cq = app.cq;
	if (rcs_ep_open(app.ctx, &e, &app.ep, &err))
		app_die("%s: %s", rcs_status_name(err.status), err.sentence);
	app.peer = calloc(app.size, sizeof(*app.peer));
	if (app.dir)
		app_put_addr();
	else if (rcs_publish(app.ep, &err))
		app_die("%s: %s", rcs_status_name(err.status), err.sentence);
}

__attribute__((unused)) static rcs_peer *app_peer(uint32_t rank)
{
	struct rcs_error err = {0};
	struct rcs_addr addr;
	int rc;

	if (app.peer[rank])
		return app.peer[rank];
	if (app.dir) {
		app_get_addr(rank, &addr);
		rc = rcs_peer_insert(app.ep, &addr, &app.peer[rank], &err);
	} else {
		rc = rcs_lookup(app.ep, rank, &app.peer[rank], &err);
	}
	if (rc)
		app_die("peer %u: %s: %s", rank, rcs_status_name(rc), err.sentence);
	return app.peer[rank];
}

/* Takes completions, at most timeout_ms; false: none came. */
__attribute__((unused)) static bool app_progress(int timeout_ms)
{
	struct rcs_completion c[64];
	int n = timeout_ms ? rcs_cq_wait(app.cq, c, 64, timeout_ms) : rcs_cq_read(app.cq, c, 64);

	if (n == RCS_ERR_TIMEOUT)
		return false;
	if (n < 0)
		app_die("completion queue: %s (%s)", rcs_status_name(n), rcs_status_text(n));
	for (int i = 0; i < n; i++) {
		struct app_req *r = c[i].context;

		if (!r)
			continue;
		if (r->done)
			app_die("a request completed twice");
		r->done = true;
		r->c = c[i];
	}
	return n > 0;
}

__attribute__((unused)) static int app_wait(struct app_req *r)
{
	while (!r->done)
		if (!app_progress(APP_WAIT_MS))
			app_die("nothing completed for %d s", APP_WAIT_MS / 1000);
	return r->c.status;
}

__attribute__((unused)) static void app_wait_ok(struct app_req *r)
{
	int status = app_wait(r);

	if (status)
		app_die("a request ended with %s (%s)", rcs_status_name(status),
			rcs_status_text(status));
}

__attribute__((unused)) static void app_send(const void *buf, size_t len, uint32_t to, uint64_t tag,
	struct app_req *r)
{
	rcs_peer *p = app_peer(to);
	int rc;

	*r = (struct app_req){0};
	while ((rc = rcs_tsend(app.ep, buf, len, p, tag, r)) == RCS_ERR_AGAIN)
		app_progress(0);
	if (rc)
		app_die("send to rank %u: %s", to, rcs_status_name(rc));
}

__attribute__((unused)) static void app_recv(void *buf, size_t len, uint32_t from, uint64_t tag,
	struct app_req *r)
{
	rcs_peer *p = app_peer(from);
	int rc;

	*r = (struct app_req){0};
	while ((rc = rcs_trecv(app.ep, buf, len, p, tag, 0, r)) == RCS_ERR_AGAIN)
		app_progress(0);
	if (rc)
		app_die("receive from rank %u: %s", from, rcs_status_name(rc));
}

/* Dissemination: after step k every rank has heard of 2^k others. */
__attribute__((unused)) static void app_barrier(void)
{
	uint64_t tag = APP_TAG_BARRIER | app.barriers++ << 8;
	uint32_t k = 0;

	for (uint32_t d = 1; d < app.size; d *= 2, k++) {
		struct app_req s, r;
		char in, out = 0;

		app_recv(&in, 1, (app.rank + app.size - d) % app.size, tag | k, &r);
		app_send(&out, 1, (app.rank + d) % app.size, tag | k, &s);
		app_wait_ok(&s);
		app_wait_ok(&r);
	}
}

static volatile sig_atomic_t app_go;

static void app_went(int sig)
{
	(void)sig;
	app_go = 1;
}

/* A load that shall not begin before its time (option --hold): called by main first. */
__attribute__((unused)) static void app_hold(void)
{
	signal(SIGUSR2, app_went);
}

/* Rank 0 says "ready"; who calls this waits for SIGUSR2. */
__attribute__((unused)) static void app_wait_for_go(void)
{
	if (!app.rank)
		puts("ready");
	while (!app_go)
		app_progress(50);
}

/* Element by element over all ranks; the sum is rank 0's. */
__attribute__((unused)) static void app_sum(uint64_t *v, size_t n)
{
	uint64_t *in = malloc(n * sizeof(*in));
	struct app_req r;

	if (app.rank) {
		app_send(v, n * sizeof(*v), 0, APP_TAG_SUM, &r);
		app_wait_ok(&r);
	}
	for (uint32_t from = 1; !app.rank && from < app.size; from++) {
		app_recv(in, n * sizeof(*in), from, APP_TAG_SUM, &r);
		app_wait_ok(&r);
		for (size_t i = 0; i < n; i++)
			v[i] += in[i];
	}
	free(in);
}

/* Collective, so that nobody closes while others still want something of it. */
__attribute__((unused)) static void app_close(void)
{
	app_barrier();
	/* the last message of the barrier is on its way when its buffer is free, and the daemon takes
	 * what was submitted also from a rank that has gone */
	rcs_fini(app.ctx);
	free(app.peer);
}

/* "4096", "64k", "1m" */
__attribute__((unused)) static uint64_t app_number(const char *s)
{
	char *end;
	uint64_t v = strtoull(s, &end, 10);

	if (*end == 'k' || *end == 'K')
		v <<= 10, end++;
	else if (*end == 'm' || *end == 'M')
		v <<= 20, end++;
	if (end == s || *end)
		app_die("not a number: %s", s);
	return v;
}

#endif
