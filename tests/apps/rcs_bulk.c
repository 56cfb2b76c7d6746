/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast large puts and gets are between registered regions of two ranks.
 *
 *	rcs_bulk [--size BYTES] [--count N] [--window N] [--kind put|get|both]
 *
 * Rank 0 moves between its memory and that of the last rank; the others wait. Each kind is measured one
 * request at a time and with --window under way, after a few that do not count; what arrived is
 * checked. Prints a line each:
 *
 *	bulk kind=put under_way=1 bytes=4194304 MiBps=R
 */
#include <getopt.h>

#include "app.h"

#define TAG	9
#define WARM_UP 2

static struct {
	size_t size;
	unsigned count, window;
	bool put, get;
} opt = {4 << 20, 20, 4, true, true};

static rcs_region *region;
static uint8_t *mem; /* --window slots of --size */
static struct rcs_key key;

static uint8_t byte_of(uint32_t rank, size_t i)
{
	return (uint8_t)(i * 131 + (i >> 12) + rank * 7 + 1);
}

static void fill(uint32_t rank)
{
	for (size_t i = 0; i < opt.window * opt.size; i++)
		mem[i] = byte_of(rank, i);
}

static void check(uint32_t rank, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (mem[i] != byte_of(rank, i))
			app_die("byte %zu of %zu is wrong", i, len);
}

/* The key of the last rank to rank 0. */
static void key_give(void)
{
	struct rcs_error err = {0};
	struct app_req r;

	mem = aligned_alloc(4096, (opt.window * opt.size + 4095) & ~(size_t)4095);
	APP_CHECK(mem);
	fill(app.rank);
	if (rcs_region_open(app.ctx, mem, opt.window * opt.size, &region, &err) ||
		rcs_region_key(region, app.ep, &key, &err))
		app_die("%s: %s", rcs_status_name(err.status), err.sentence);
	if (app.rank == 0)
		app_recv(&key, sizeof(key), app.size - 1, TAG, &r);
	else
		app_send(&key, sizeof(key), 0, TAG, &r);
	app_wait_ok(&r);
}

static void start(bool get, unsigned slot, struct app_req *q)
{
	struct rcs_rma r = {.buf = mem + slot * opt.size, .len = opt.size, .offset = slot * opt.size,
		.key = &key, .peer = app_peer(app.size - 1), .region = region, .context = q};
	int rc;

	*q = (struct app_req){0};
	while ((rc = get ? rcs_get(app.ep, &r) : rcs_put(app.ep, &r)) == RCS_ERR_AGAIN)
		app_progress(0);
	APP_OK(rc);
}

static void move(bool get, unsigned window, unsigned n)
{
	struct app_req *q = calloc(window, sizeof(*q));

	APP_CHECK(q);
	for (unsigned i = 0; i < n + window; i++) {
		if (i >= window && i - window < n)
			app_wait_ok(&q[i % window]);
		if (i < n)
			start(get, i % window, &q[i % window]);
	}
	free(q);
}

static void measure(bool get, unsigned window)
{
	uint64_t before;

	move(get, window, WARM_UP);
	before = app_now();
	move(get, window, opt.count);
	printf("bulk kind=%s under_way=%u bytes=%zu MiBps=%.2f\n", get ? "get" : "put", window, opt.size,
		(double)opt.size * opt.count / (1 << 20) / ((double)(app_now() - before) / 1e9));
}

/* How much was moved at all: with few requests not every slot is used. */
static size_t moved(void)
{
	unsigned n = opt.count > WARM_UP ? opt.count : WARM_UP;

	return (n < opt.window ? n : opt.window) * opt.size;
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {{"size", required_argument, NULL, 's'},
		{"count", required_argument, NULL, 'n'}, {"window", required_argument, NULL, 'w'},
		{"kind", required_argument, NULL, 'k'}, {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 's':
			opt.size = app_number(optarg);
			break;
		case 'n':
			opt.count = (unsigned)app_number(optarg);
			break;
		case 'w':
			opt.window = (unsigned)app_number(optarg);
			break;
		case 'k':
			opt.put = strcmp(optarg, "get") != 0;
			opt.get = strcmp(optarg, "put") != 0;
			break;
		default:
			exit(2);
		}
	if (!opt.size || !opt.count || !opt.window)
		app_die("--size, --count and --window are at least 1");
}

int main(int argc, char **argv)
{
	bool mine;

	options(argc, argv);
	app_open(0);
	if (app.size < 2)
		app_die("needs two ranks");
	mine = app.rank == 0 || app.rank == app.size - 1;
	if (mine)
		key_give();
	app_barrier();
	for (unsigned w = 1; app.rank == 0 && opt.put; w = opt.window) {
		measure(false, w);
		if (w == opt.window)
			break;
	}
	app_barrier();
	if (app.rank == app.size - 1) {
		check(opt.put ? 0 : app.rank, moved());
		fill(app.rank);
	}
	app_barrier();
	for (unsigned w = 1; app.rank == 0 && opt.get; w = opt.window) {
		measure(true, w);
		if (w == opt.window)
			break;
	}
	if (app.rank == 0 && opt.get)
		check(app.size - 1, moved());
	app_barrier();
	if (mine)
		APP_OK(rcs_region_close(region));
	app_close();
	return 0;
}
