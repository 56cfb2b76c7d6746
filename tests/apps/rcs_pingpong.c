/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency and bandwidth between two ranks; the others wait.
 *
 *	rcs_pingpong [--a RANK] [--b RANK] [--min N] [--max N] [--iters N] [--window N] [--helper]
 *		[--beside good|bad]
 *
 * Without --b, rank 0 and the first rank of another node (rank 1 if there is none). Prints a line a size:
 *
 *	pingpong bytes=N latency_us=L median_us=M p99_us=P bandwidth_MBps=B
 *
 * latency is half a round trip; bandwidth has --window messages under way in one direction.
 *
 * --beside: meanwhile another rank of the first one's node makes puts and gets to the second rank, one at a
 * time: such as must fail (its region is closed, the local buffer cannot be read or written) or good ones, and
 * says how many.
 */
#include <getopt.h>
#include <sys/mman.h>

#include "app.h"

#define TAG 5

static struct {
	uint32_t a, b;
	size_t min, max;
	unsigned iters, window;
	uint32_t flags;
	bool beside, bad;
} opt = {0, UINT32_MAX, 8, 4 << 20, 200, 16, 0, false, false};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void choose(void)
{
	struct rcs_peer_info first, info;

	if (opt.b != UINT32_MAX)
		return;
	opt.b = app.size > 1 ? 1 : 0;
	APP_OK(rcs_peer_query(app_peer(opt.a), &first));
	for (uint32_t r = 0; r < app.size; r++) {
		APP_OK(rcs_peer_query(app_peer(r), &info));
		if (info.node != first.node) {
			opt.b = r;
			return;
		}
	}
}

static double turn(uint8_t *buf, size_t len, bool first, uint32_t other)
{
	uint64_t start = app_now();
	struct app_req s, r;

	app_recv(buf + len, len, other, TAG, &r);
	if (!first)
		app_wait_ok(&r);
	app_send(buf, len, other, TAG, &s);
	app_wait_ok(&s);
	if (first)
		app_wait_ok(&r);
	return (double)(app_now() - start) / 2000;
}

static double stream(uint8_t *buf, size_t len, bool first, uint32_t other, unsigned n)
{
	struct app_req *q = calloc(opt.window, sizeof(*q)), end;
	uint64_t start = app_now();
	char token = 0;

	for (unsigned i = 0; i < n + opt.window; i++) {
		struct app_req *r = &q[i % opt.window];

		if (i >= opt.window && i - opt.window < n)
			app_wait_ok(r);
		if (i >= n)
			continue;
		if (first)
			app_send(buf, len, other, TAG, r);
		else
			app_recv(buf, len, other, TAG, r);
	}
	/* the last one has arrived */
	if (first)
		app_recv(&token, 1, other, TAG + 1, &end);
	else
		app_send(&token, 1, other, TAG + 1, &end);
	app_wait_ok(&end);
	free(q);
	return (double)len * n / ((double)(app_now() - start) / 1e9) / 1e6;
}

static void measure(bool first, uint32_t other)
{
	double *t = calloc(opt.iters, sizeof(*t));

	for (size_t len = opt.min; len <= opt.max; len *= 2) {
		uint8_t *buf = malloc(2 * len);
		double sum = 0, rate;
		unsigned n = len > 65536 ? opt.iters / 4 + 1 : opt.iters;

		APP_CHECK(buf);
		memset(buf, first ? 1 : 2, 2 * len);
		for (unsigned i = 0; i < 10; i++)
			turn(buf, len, first, other);
		for (unsigned i = 0; i < n; i++) {
			t[i] = turn(buf, len, first, other);
			sum += t[i];
		}
		for (size_t i = 0; i < len; i++)
			if (buf[len + i] != (first ? 2 : 1))
				app_die("byte %zu of %zu is wrong", i, len);
		rate = stream(buf, len, first, other, n);
		qsort(t, n, sizeof(*t), by_value);
		if (first)
			printf("pingpong bytes=%zu latency_us=%.2f median_us=%.2f p99_us=%.2f "
				"bandwidth_MBps=%.2f\n", len, sum / n, t[n / 2], t[n * 99 / 100], rate);
		free(buf);
	}
	free(t);
}

/* --- a rank beside them ----------------------------------------------------------------------------- */

#define BESIDE 8192u

static uint32_t third(void)
{
	struct rcs_peer_info first, info;

	APP_OK(rcs_peer_query(app_peer(opt.a), &first));
	for (uint32_t r = 0; r < app.size; r++) {
		APP_OK(rcs_peer_query(app_peer(r), &info));
		if (r != opt.a && r != opt.b && info.node == first.node)
			return r;
	}
	app_die("--beside needs another rank on the node of rank %u", opt.a);
}

/* The target: an open or a closed region of it. */
static void offer(uint32_t to)
{
	static uint8_t mem[BESIDE];
	struct rcs_error err = {0};
	rcs_region *region;
	struct rcs_key key;
	struct app_req s;

	if (rcs_region_open(app.ctx, mem, sizeof(mem), &region, &err) ||
		rcs_region_key(region, app.ep, &key, &err))
		app_die("%s: %s", rcs_status_name(err.status), err.sentence);
	if (opt.bad)
		APP_OK(rcs_region_close(region));
	app_send(&key, sizeof(key), to, TAG + 2, &s);
	app_wait_ok(&s);
}

static void ask(void)
{
	uint8_t *none = mmap(NULL, BESIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), buf[BESIDE];
	struct app_req stop, q;
	struct rcs_key key;
	uint64_t n;
	char token;

	APP_CHECK(none != MAP_FAILED);
	app_recv(&key, sizeof(key), opt.b, TAG + 2, &q);
	app_wait_ok(&q);
	app_recv(&token, 1, opt.a, TAG + 3, &stop);
	for (n = 0; !stop.done; n++) {
		struct rcs_rma r = {.buf = opt.bad && n % 4 == 3 ? none : buf, .len = n % 2 ? BESIDE : 8,
			.key = &key, .peer = app_peer(opt.b), .context = &q};

		q = (struct app_req){0};
		APP_OK(n & 2 ? rcs_get(app.ep, &r) : rcs_put(app.ep, &r));
		if (opt.bad != (app_wait(&q) != 0))
			app_die("request %llu beside ended with %s", (unsigned long long)n,
				rcs_status_name(q.c.status));
	}
	printf("beside requests=%llu\n", (unsigned long long)n);
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"a", required_argument, NULL, 'a'}, {"b", required_argument, NULL, 'b'},
		{"min", required_argument, NULL, 'm'}, {"max", required_argument, NULL, 'M'},
		{"iters", required_argument, NULL, 'i'}, {"window", required_argument, NULL, 'w'},
		{"helper", no_argument, NULL, 'h'}, {"eager", no_argument, NULL, 'e'},
		{"beside", required_argument, NULL, 'B'}, {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'a':
			opt.a = (uint32_t)app_number(optarg);
			break;
		case 'b':
			opt.b = (uint32_t)app_number(optarg);
			break;
		case 'm':
			opt.min = app_number(optarg);
			break;
		case 'M':
			opt.max = app_number(optarg);
			break;
		case 'i':
			opt.iters = (unsigned)app_number(optarg);
			break;
		case 'w':
			opt.window = (unsigned)app_number(optarg);
			break;
		case 'h':
			opt.flags |= RCS_INIT_HELPER;
			break;
		case 'e':
			opt.flags |= RCS_INIT_EAGER;
			break;
		case 'B':
			opt.beside = true;
			opt.bad = !strcmp(optarg, "bad");
			break;
		default:
			exit(2);
		}
	if (!opt.min || !opt.iters || !opt.window)
		app_die("--min, --iters and --window are at least 1");
}

int main(int argc, char **argv)
{
	options(argc, argv);
	app_open(opt.flags);
	choose();
	APP_CHECK(opt.a < app.size && opt.b < app.size && opt.a != opt.b);
	app_barrier();
	if (opt.beside && app.rank == opt.b)
		offer(third());
	if (opt.beside && app.rank == third())
		ask();
	if (app.rank == opt.a || app.rank == opt.b)
		measure(app.rank == opt.a, app.rank == opt.a ? opt.b : opt.a);
	if (opt.beside && app.rank == opt.a) {
		struct app_req stop;

		app_send("", 1, third(), TAG + 3, &stop);
		app_wait_ok(&stop);
	}
	app_close();
	return 0;
}
