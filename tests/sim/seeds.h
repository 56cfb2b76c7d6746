/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * seeds.h - what both simulators share: chance from a seed, and the run of many seeds by options.
 * Included by each program's own files; static, so that either builds alone.
 */
#ifndef RCS_SIM_SEEDS_H
#define RCS_SIM_SEEDS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* splitmix64 */
static inline uint64_t seeds_rand(uint64_t *rng)
{
	uint64_t z = *rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

struct seeds {
	unsigned long long n, start, most; /* most: failures after which it stops */
	unsigned long long ran, failed;
	bool verbose, scale;
	double took; /* seconds */
};

/* 0, or 2 when the usage was shown. with_scale: the program knows --scale. */
static inline int seeds_options(struct seeds *o, int argc, char **argv, bool with_scale)
{
	static const struct option opts[] = {
		{ "seeds", required_argument, NULL, 'n' }, { "start", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'o' },  { "verbose", no_argument, NULL, 'v' },
		{ "max-fail", required_argument, NULL, 'm' }, { "scale", no_argument, NULL, 'k' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct seeds){ .n = 2000, .start = 1, .most = 20 };
	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 'n':
			o->n = strtoull(optarg, NULL, 0);
			break;
		case 's':
			o->start = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			o->start = strtoull(optarg, NULL, 0);
			o->n = 1;
			break;
		case 'm':
			o->most = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'k':
			o->scale = with_scale;
			if (with_scale)
				break;
			/* fall through */
		default:
			fprintf(stderr, "usage: %s [--seeds N] [--start S] [--max-fail N] | "
					"--seed S [--verbose]%s\n", with_scale ? "sim-view" : "sim",
				with_scale ? " | --scale" : "");
			return 2;
		}
	}
	return 0;
}

static inline double seeds_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Runs them; `one` says whether a seed held, `why` is its text when it did not. */
static inline void seeds_run(struct seeds *o, const char *program,
	bool (*one)(void *sim, uint64_t seed), void *sim, const char *why)
{
	double began = seeds_clock();

	for (; o->ran < o->n && o->failed < o->most; o->ran++) {
		if (one(sim, o->start + o->ran))
			continue;
		o->failed++;
		printf("FAIL seed %llu: %s\n", o->start + o->ran, why);
		printf("     replay: %s --seed %llu --verbose\n", program, o->start + o->ran);
	}
	o->took = seeds_clock() - began;
}

#endif
