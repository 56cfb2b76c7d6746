/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * labhost tsc: prints the rate of this machine's time stamp counter in kHz.
 *
 * A guest without KVM reads the host's counter, and finds its rate by timing it against an emulated
 * timer: on a busy host that went wrong by a factor of three. So the guest is told the rate. Prints
 * nothing where the counter's rate is not constant.
 */
#define _GNU_SOURCE
#include "labhost.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

struct sample {
	uint64_t tsc, ns;
};

/* The reading that was interrupted least of many. */
static struct sample sample_take(void)
{
	struct sample best = {0};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 200; i++) {
		struct timespec ts;
		uint64_t a = __rdtsc(), b;

		clock_gettime(CLOCK_MONOTONIC, &ts);
		b = __rdtsc();
		if (b - a < least) {
			least = b - a;
			best.tsc = a + (b - a) / 2;
			best.ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
		}
	}
	return best;
}

static int rate_is_constant(void)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[8192];
	int found = 0;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, " constant_tsc") && strstr(line, " nonstop_tsc");
	if (f)
		fclose(f);
	return found;
}

int tsc_main(int argc, char **argv)
{
	struct sample a, b;

	(void)argc;
	(void)argv;
	if (!rate_is_constant())
		return 0;
	a = sample_take();
	usleep(100000);
	b = sample_take();
	printf("%.0f\n", (double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns));
	return 0;
}
