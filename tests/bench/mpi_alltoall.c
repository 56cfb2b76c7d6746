/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job has today, for comparison with tests/apps/rcs_start.c: MPI_Init, a first all-to-all of
 * 64 B, and further blocking ones, each message checked. Same options (--rounds, --seconds), same
 * lines of output. Needs mpicc, which only the lab's image of VARIANT=bench has.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WORDS 8 /* of 8 bytes, to each rank */

static int rank, size;
static uint64_t *out, *in;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t word(int src, int dst, uint64_t seq, int i)
{
	uint64_t x = (uint64_t)src << 40 ^ (uint64_t)dst << 20 ^ seq;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	return x + (uint64_t)i * 0x9e3779b97f4a7c15ull;
}

static bool all_to_all(uint64_t seq, bool last)
{
	for (int to = 0; to < size; to++) {
		out[to * WORDS] = last;
		for (int i = 1; i < WORDS; i++)
			out[to * WORDS + i] = word(rank, to, seq, i);
	}
	MPI_Alltoall(out, WORDS, MPI_UINT64_T, in, WORDS, MPI_UINT64_T, MPI_COMM_WORLD);
	for (int from = 0; from < size; from++)
		for (int i = 1; i < WORDS; i++)
			if (in[from * WORDS + i] != word(from, rank, seq, i)) {
				fprintf(stderr, "rank %d: damaged message from %d\n", rank, from);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
	return in[0];
}

static void go_on(double seconds, uint64_t seq)
{
	uint64_t start = now(), told = start, before = start, slowest = 0, first = seq;
	bool last = false;

	if (!rank)
		puts("going on");
	while (!last) {
		uint64_t t;

		last = all_to_all(seq++, (double)(now() - start) / 1e9 >= seconds);
		t = now();
		if (t - before > slowest)
			slowest = t - before;
		before = t;
		if (!rank && t - told > 1000000000ull) {
			printf("round %llu, %.1f s, longest round %.1f ms\n", (unsigned long long)(seq - first),
				(double)(t - start) / 1e9, (double)slowest / 1e6);
			told = t;
		}
	}
	if (!rank)
		printf("done %llu rounds, longest round %.1f ms\n", (unsigned long long)(seq - first),
			(double)slowest / 1e6);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"rounds", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
	uint64_t start = now(), opened, met, seq = 1, rounds = 20;
	double ms[4], max[4], seconds = 0;
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if (c == 'r')
			rounds = strtoull(optarg, NULL, 10);
		else if (c == 's')
			seconds = atof(optarg);
		else
			return 2;
	MPI_Init(NULL, NULL);
	opened = now();
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	out = calloc((size_t)size * WORDS, sizeof(*out));
	in = calloc((size_t)size * WORDS, sizeof(*in));
	if (!out || !in)
		MPI_Abort(MPI_COMM_WORLD, 1);
	all_to_all(0, false);
	met = now();
	ms[0] = (double)(opened - start) / 1e6;
	ms[1] = (double)(met - opened) / 1e6;
	ms[2] = (double)(met - start) / 1e6;
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	while (seq <= rounds)
		all_to_all(seq++, false);
	ms[3] = (double)(now() - start) / 1e6;
	MPI_Reduce(ms, max, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("start ranks=%d open_ms=%.1f first_ms=%.1f ready_ms=%.1f rounds=%llu rounds_ms=%.1f\n",
			size, max[0], max[1], max[2], (unsigned long long)rounds, max[3]);
	if (seconds > 0)
		go_on(seconds, seq);
	free(out);
	free(in);
	MPI_Finalize();
	return 0;
}
