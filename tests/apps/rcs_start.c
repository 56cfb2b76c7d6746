/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a start costs: opening, a first all-to-all of 64 B (first contact of all pairs), and further
 * blocking ones, each message checked. tests/bench/mpi_alltoall.c does the same over MPI.
 *
 *	rcs_start [--rounds N] [--seconds S] [--idle S] [--eager]
 *
 * Rank 0 prints one line, each time the longest of all ranks', from main() on:
 *
 *	start ranks=R open_ms=O first_ms=F ready_ms=T rounds=N rounds_ms=M
 *
 * open: attached and addresses published; first: the first all-to-all; ready: end of it since main().
 * Then all ranks go on for --seconds ("going on", "round N, ... longest round M ms" once a second,
 * "done N rounds") or stand still for --idle ("idle").
 */
#include <getopt.h>

#include "app.h"

#define TAG  11
#define LEN  64
#define LAST (1ull << 63)

static struct {
	unsigned rounds;
	double seconds;
	unsigned idle;
	uint32_t flags;
} opt = {20, 0, 0, 0};

/* true: rank 0 said it was the last one */
static bool all_to_all(uint64_t seq, bool last)
{
	size_t words = LEN / sizeof(uint64_t);
	struct app_req *s = calloc(app.size, sizeof(*s)), *r = calloc(app.size, sizeof(*r));
	uint64_t *out = calloc(app.size, LEN), *in = calloc(app.size, LEN);

	APP_CHECK(s && r && out && in);
	for (uint32_t i = 0; i < app.size; i++) {
		uint32_t from = (app.rank + app.size - i) % app.size;

		app_recv(in + from * words, LEN, from, TAG, &r[from]);
	}
	for (uint32_t i = 0; i < app.size; i++) {
		uint32_t to = (app.rank + i) % app.size;

		out[to * words] = seq | (last ? LAST : 0);
		for (size_t w = 1; w < words; w++)
			out[to * words + w] = app_word(app.rank, to, seq, w);
		app_send(out + to * words, LEN, to, TAG, &s[to]);
	}
	for (uint32_t i = 0; i < app.size; i++) {
		app_wait_ok(&s[i]);
		app_wait_ok(&r[i]);
		APP_CHECK(r[i].c.len == LEN && (in[i * words] & ~LAST) == seq);
		for (size_t w = 1; w < words; w++)
			APP_CHECK(in[i * words + w] == app_word(i, app.rank, seq, w));
	}
	last = in[0] & LAST;
	free(s);
	free(r);
	free(out);
	free(in);
	return last;
}

/* Element by element; the result is rank 0's. */
static void longest(double *v, size_t n)
{
	double *in = malloc(n * sizeof(*in));
	struct app_req r;

	APP_CHECK(in);
	if (app.rank) {
		app_send(v, n * sizeof(*v), 0, APP_TAG_SUM, &r);
		app_wait_ok(&r);
	}
	for (uint32_t from = 1; !app.rank && from < app.size; from++) {
		app_recv(in, n * sizeof(*in), from, APP_TAG_SUM, &r);
		app_wait_ok(&r);
		for (size_t i = 0; i < n; i++)
			if (in[i] > v[i])
				v[i] = in[i];
	}
	free(in);
}

static void go_on(uint64_t seq)
{
	uint64_t start = app_now(), told = start, before = start, slowest = 0, first = seq;
	bool last = false;

	if (!app.rank)
		puts("going on");
	while (!last) {
		uint64_t now;

		last = all_to_all(seq++, (double)(app_now() - start) / 1e9 >= opt.seconds);
		now = app_now();
		if (now - before > slowest)
			slowest = now - before;
		before = now;
		if (!app.rank && now - told > 1000000000ull) {
			printf("round %llu, %.1f s, longest round %.1f ms\n", (unsigned long long)(seq - first),
				(double)(now - start) / 1e9, (double)slowest / 1e6);
			told = now;
		}
	}
	if (!app.rank)
		printf("done %llu rounds, longest round %.1f ms\n", (unsigned long long)(seq - first),
			(double)slowest / 1e6);
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"rounds", required_argument, NULL, 'r'}, {"seconds", required_argument, NULL, 's'},
		{"idle", required_argument, NULL, 'i'}, {"eager", no_argument, NULL, 'e'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'r':
			opt.rounds = (unsigned)app_number(optarg);
			break;
		case 's':
			opt.seconds = atof(optarg);
			break;
		case 'i':
			opt.idle = (unsigned)app_number(optarg);
			break;
		case 'e':
			opt.flags |= RCS_INIT_EAGER;
			break;
		default:
			exit(2);
		}
}

int main(int argc, char **argv)
{
	uint64_t start = app_now(), opened, met, seq = 1;
	double ms[4];

	options(argc, argv);
	app_open(opt.flags);
	opened = app_now();
	all_to_all(0, false);
	met = app_now();
	ms[0] = (double)(opened - start) / 1e6;
	ms[1] = (double)(met - opened) / 1e6;
	ms[2] = (double)(met - start) / 1e6;
	app_barrier();
	start = app_now();
	while (seq <= opt.rounds)
		all_to_all(seq++, false);
	ms[3] = (double)(app_now() - start) / 1e6;
	longest(ms, 4);
	if (!app.rank)
		printf("start ranks=%u open_ms=%.1f first_ms=%.1f ready_ms=%.1f rounds=%u rounds_ms=%.1f\n",
			app.size, ms[0], ms[1], ms[2], opt.rounds, ms[3]);
	if (opt.seconds > 0)
		go_on(seq);
	if (opt.idle) {
		app_barrier();
		if (!app.rank)
			puts("idle");
		sleep(opt.idle);
	}
	app_close();
	return 0;
}
