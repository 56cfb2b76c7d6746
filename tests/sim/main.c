/* SPDX-License-Identifier: BSD-3-Clause */
/* sim --seeds N [--start S] runs many seeds; sim --seed S [--verbose] replays one. */
#include "seeds.h"
#include "sim.h"

static bool one(void *sim, uint64_t seed)
{
	return sim_seed(sim, seed);
}

int main(int argc, char **argv)
{
	static struct sim s;
	struct seeds o;

	if (seeds_options(&o, argc, argv, false))
		return 2;
	s.verbose = o.verbose;
	s.end = calloc(SIM_ENDS, sizeof(*s.end));
	if (!s.end) {
		perror("sim");
		return 2;
	}
	seeds_run(&o, argv[0], one, &s, s.why);
	printf("%.0f frames, %.0f seeds/s, %.0f frames/s\n", (double)s.frames, (double)o.ran / o.took,
		(double)s.frames / o.took);
	printf("up to %d nodes and %d links; seeds with 0 rails (TCP alone) to %u:", s.most_nodes, s.most_pairs,
		CORE_RAILS_MAX);
	for (unsigned r = 0; r <= CORE_RAILS_MAX; r++)
		printf(" %.0f", (double)s.drawn[r]);
	printf("\nunequal rails in %.0f; daemons that came back %.0f, windows that did not grow %.0f, markers taken in a "
		"fence %.0f, frames of another lane's header %.0f", (double)s.unequal, (double)s.restarted,
		(double)s.grow_failed, (double)s.markers, (double)s.rewritten);
	printf("\nsim: %llu seeds, %llu failed\n", o.ran, o.failed);
	free(s.heap);
	free(s.end);
	return o.failed ? 1 : 0;
}
