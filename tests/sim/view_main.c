/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-view --seeds N [--start S]; --seed S [--verbose] replays one; --scale: thousands of nodes. */
#include "seeds.h"
#include "view_sim.h"

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

static bool one(void *sim, uint64_t seed)
{
	return vs_seed(sim, seed);
}

int main(int argc, char **argv)
{
	static struct vs s;
	struct seeds o;

	if (seeds_options(&o, argc, argv, true))
		return 2;
	if (o.scale)
		return scale();
	s.verbose = o.verbose;
	seeds_run(&o, argv[0], one, &s, s.why);
	printf("%llu messages, %llu decisions, %llu takeovers, %.0f seeds/s\n",
		(unsigned long long)s.msgs, (unsigned long long)s.decisions,
		(unsigned long long)s.switches, (double)o.ran / o.took);
	printf("sim-view: %llu seeds, %llu failed\n", o.ran, o.failed);
	free(s.heap);
	free(s.ev);
	free(s.ev_free);
	free(s.vote);
	return o.failed ? 1 : 0;
}
