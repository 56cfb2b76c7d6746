/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank sends to every rank, round after round, sizes cycling from --min to --max, each message
 * numbered and its content checked; memory comes from malloc and goes back each round.
 *
 *	rcs_alltoall [--min N] [--max N] [--iters N | --seconds S] [--until FILE] [--eager] [--helper]
 *		     [--no-verify]
 *
 * With --until it ends when rank 0 sees the file, at the latest after the rounds or seconds given.
 * Rank 0 prints progress and at the end
 *
 *	N messages, L lost, D duplicated, B damaged
 *
 * One rank a node prints what PMIx events arrive: "rank R: PMIx event NAME key=value ...".
 */
#include <getopt.h>

#include "app.h"
#include "app_pmix.h"

#define TAG  7
#define LAST (1ull << 63)

static struct {
	size_t min, max;
	uint64_t iters;
	double seconds;
	const char *until;
	uint32_t flags;
	bool verify;
} opt = {8, 1 << 20, 100, 0, NULL, 0, true};

static uint64_t messages, lost, duplicated, damaged;
static uint64_t *next_seq; /* [size] expected of each source */

/* --- messages ---------------------------------------------------------------------------------- */

/* First word: last round, source, number; the rest a pattern of them. A tail of zeros. */
static void message_fill(uint64_t *m, size_t len, uint32_t to, uint64_t seq, bool last)
{
	size_t words = len / 8;

	m[0] = (last ? LAST : 0) | (uint64_t)app.rank << 40 | seq;
	for (size_t i = 1; i < words; i++)
		m[i] = opt.verify ? app_word(app.rank, to, seq, i) : 0;
	memset((char *)m + words * 8, 0, len - words * 8);
}

static bool message_check(const uint64_t *m, size_t len, uint32_t from, const struct app_req *r)
{
	uint64_t seq = m[0] & ((1ull << 40) - 1);

	if (r->c.len != len || r->c.source_rank != from || (m[0] & ~LAST) >> 40 != from) {
		fprintf(stderr, "rank %u: wrong message from %u: %llu bytes, expected %zu\n", app.rank,
			from, (unsigned long long)r->c.len, len);
		return false;
	}
	if (seq > next_seq[from])
		lost += seq - next_seq[from];
	if (seq < next_seq[from])
		duplicated++;
	else
		next_seq[from] = seq + 1;
	for (size_t i = 1; opt.verify && i < len / 8; i++)
		if (m[i] != app_word(from, app.rank, seq, i)) {
			fprintf(stderr, "rank %u: damaged message %llu from %u, %zu bytes, at byte %zu\n",
				app.rank, (unsigned long long)seq, from, len, i * 8);
			return false;
		}
	return true;
}

/* true: rank 0 said it was the last one */
static bool round_run(uint64_t seq, size_t len, bool last)
{
	struct app_req *s = calloc(app.size, sizeof(*s)), *r = calloc(app.size, sizeof(*r));
	uint64_t **in = calloc(app.size, sizeof(*in)), **out = calloc(app.size, sizeof(*out));
	bool said = false;

	for (uint32_t i = 0; i < app.size; i++) {
		uint32_t from = (app.rank + app.size - i) % app.size;

		in[from] = malloc(len);
		APP_CHECK(in[from]);
		app_recv(in[from], len, from, TAG, &r[from]);
	}
	for (uint32_t i = 0; i < app.size; i++) {
		uint32_t to = (app.rank + i) % app.size;

		out[to] = malloc(len);
		APP_CHECK(out[to]);
		message_fill(out[to], len, to, seq, last);
		app_send(out[to], len, to, TAG, &s[to]);
	}
	for (uint32_t i = 0; i < app.size; i++) {
		app_wait_ok(&s[i]);
		free(out[i]);
		app_wait_ok(&r[i]);
		if (!message_check(in[i], len, i, &r[i]))
			damaged++;
		messages++;
		if (i == 0)
			said = in[i][0] & LAST;
		free(in[i]);
	}
	free(s);
	free(r);
	free(in);
	free(out);
	return said;
}

static void run(void)
{
	uint64_t start = app_now(), told = start, before = start, longest = 0;
	size_t len = opt.min;
	bool last = false;

	for (uint64_t seq = 0; !last; seq++) {
		uint64_t now;

		last = opt.seconds > 0 ? (double)(app_now() - start) / 1e9 >= opt.seconds :
			seq + 1 >= opt.iters;
		last |= opt.until && access(opt.until, F_OK) == 0;
		last = round_run(seq, len, last);
		now = app_now();
		if (now - before > longest)
			longest = now - before;
		before = now;
		if (app.rank == 0 && (now - told > 1000000000ull || last || !seq)) {
			printf("round %llu, %zu bytes, %.1f s, longest round %.1f ms\n",
				(unsigned long long)seq + 1, len, (double)(now - start) / 1e9,
				(double)longest / 1e6);
			told = now;
			longest = 0;
		}
		len = len * 2 > opt.max ? opt.min : len * 2;
	}
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"min", required_argument, NULL, 'm'}, {"max", required_argument, NULL, 'M'},
		{"iters", required_argument, NULL, 'i'}, {"seconds", required_argument, NULL, 's'},
		{"until", required_argument, NULL, 'u'},
		{"eager", no_argument, NULL, 'e'}, {"helper", no_argument, NULL, 'h'},
		{"verify", no_argument, NULL, 'v'}, {"no-verify", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'm':
			opt.min = app_number(optarg);
			break;
		case 'M':
			opt.max = app_number(optarg);
			break;
		case 'i':
			opt.iters = app_number(optarg);
			break;
		case 's':
			opt.seconds = atof(optarg);
			break;
		case 'u':
			opt.until = optarg;
			break;
		case 'e':
			opt.flags |= RCS_INIT_EAGER;
			break;
		case 'h':
			opt.flags |= RCS_INIT_HELPER;
			break;
		case 'v':
		case 'V':
			opt.verify = c == 'v';
			break;
		default:
			exit(2);
		}
	if (opt.min < 8 || opt.max < opt.min)
		app_die("--min is at least 8, --max at least --min");
}

int main(int argc, char **argv)
{
	uint64_t total[4];
	bool ok;

	options(argc, argv);
	app_open(opt.flags);
	app_listen();
	next_seq = calloc(app.size, sizeof(*next_seq));
	app_barrier();
	run();
	app_barrier();
	/* whatever is still there was sent twice */
	for (rcs_claim *c; rcs_probe(app.ep, NULL, TAG, 0, NULL, &c) == 1;)
		duplicated++;
	total[0] = messages;
	total[1] = lost;
	total[2] = duplicated;
	total[3] = damaged;
	ok = !lost && !duplicated && !damaged;
	app_sum(total, 4);
	if (app.rank == 0)
		printf("%llu messages, %llu lost, %llu duplicated, %llu damaged\n",
			(unsigned long long)total[0], (unsigned long long)total[1],
			(unsigned long long)total[2], (unsigned long long)total[3]);
	fflush(stdout);
	app_close();
	if (!app.dir)
		PMIx_Finalize(NULL, 0);
	return ok ? 0 : 1;
}
