/* SPDX-License-Identifier: BSD-3-Clause */
#include "labhost.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{"exec", exec_main},	 {"guard", guard_main},	    {"net", net_main},
	{"netctl", netctl_main}, {"monitor", monitor_main}, {"tsc", tsc_main},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(*verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
	fprintf(stderr, "usage: labhost exec|guard|net|netctl|monitor|tsc ...\n");
	return 2;
}
