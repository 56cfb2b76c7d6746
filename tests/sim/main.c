/* SPDX-License-Identifier: BSD-3-Clause */
/* sim --seeds N [--start S] runs many seeds; sim --seed S [--verbose] replays one. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim.h"

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "seeds", required_argument, NULL, 'n' }, { "start", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'o' },  { "verbose", no_argument, NULL, 'v' },
		{ "max-fail", required_argument, NULL, 'm' }, { NULL, 0, NULL, 0 },
	};
	static struct sim s;
	unsigned long long n = 2000, start = 1, ran = 0, failed = 0, most = 20;
	double began = seconds(), took;
	int o;

	while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (o) {
		case 'n':
			n = strtoull(optarg, NULL, 0);
			break;
		case 's':
			start = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			start = strtoull(optarg, NULL, 0);
			n = 1;
			break;
		case 'm':
			most = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			s.verbose = true;
			break;
		default:
			fprintf(stderr, "usage: sim [--seeds N] [--start S] [--max-fail N] | "
					"--seed S [--verbose]\n");
			return 2;
		}
	}
	s.end = calloc(SIM_ENDS, sizeof(*s.end));
	if (!s.end) {
		perror("sim");
		return 2;
	}
	for (; ran < n && failed < most; ran++) {
		if (sim_seed(&s, start + ran))
			continue;
		failed++;
		printf("FAIL seed %llu: %s\n", start + ran, s.why);
		printf("     replay: %s --seed %llu --verbose\n", argv[0], start + ran);
	}
	took = seconds() - began;
	printf("%.0f frames, %.0f seeds/s, %.0f frames/s\n", (double)s.frames, (double)ran / took,
		(double)s.frames / took);
	printf("sim: %llu seeds, %llu failed\n", ran, failed);
	free(s.heap);
	free(s.end);
	return failed ? 1 : 0;
}
