/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-view --seeds N [--start S]; --seed S [--verbose] replays one; --scale: thousands of nodes. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "view_sim.h"

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int scale(void)
{
	bool ok;

	printf("a node is silent for 1 s until it is suspected (power), or refuses at once (daemon);\n"
	       "messages without the beats that go on all the time, whose number for all is in the\n"
	       "last column. Goals: known to all within 2 s; 3 log2(nodes) messages by one node.\n");
	printf(" nodes   lost how         bytes   known after   messages  most by one       a beat\n");
	ok = vs_scale(1000);
	ok &= vs_scale(10000);
	printf("sim-scale: %s\n", ok ? "goals met" : "goals MISSED");
	return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "seeds", required_argument, NULL, 'n' }, { "start", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'o' },  { "verbose", no_argument, NULL, 'v' },
		{ "max-fail", required_argument, NULL, 'm' }, { "scale", no_argument, NULL, 'k' },
		{ NULL, 0, NULL, 0 },
	};
	static struct vs s;
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
		case 'k':
			return scale();
		default:
			fprintf(stderr, "usage: sim-view [--seeds N] [--start S] [--max-fail N] | "
					"--seed S [--verbose] | --scale\n");
			return 2;
		}
	}
	for (; ran < n && failed < most; ran++) {
		if (vs_seed(&s, start + ran))
			continue;
		failed++;
		printf("FAIL seed %llu: %s\n", start + ran, s.why);
		printf("     replay: %s --seed %llu --verbose\n", argv[0], start + ran);
	}
	took = seconds() - began;
	printf("%llu messages, %llu decisions, %llu takeovers, %.0f seeds/s\n",
		(unsigned long long)s.msgs, (unsigned long long)s.decisions,
		(unsigned long long)s.switches, (double)ran / took);
	printf("sim-view: %llu seeds, %llu failed\n", ran, failed);
	free(s.heap);
	free(s.ev);
	free(s.ev_free);
	free(s.vote);
	return failed ? 1 : 0;
}
