/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

#include "shm/channel.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{"config", cli_config},
	{"status", cli_status},
	{"log", cli_log},
};

static void usage(FILE *out)
{
	fputs("usage: rcshare config --check|--show [PATH]\n"
	      "       rcshare config --get KEY [PATH] | --keys\n"
	      "       rcshare status JOB[.RESTART] [--json]\n"
	      "       rcshare log JOB[.RESTART] [--dir PATH] [--all] [--json]\n"
	      "       rcshare --version | --help\n"
	      "\n"
	      "  config   check rcshare.conf, or show every setting that is in effect\n"
	      "  status   the connections of a job on this node, now\n"
	      "  log      the failovers that a job went through\n"
	      "\n"
	      "`rcshare VERB --help` says more; see also rcshare(1).\n",
		out);
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "+hV", opts, NULL)) != -1) {
		switch (c) {
		case 'h':
			usage(stdout);
			return CLI_OK;
		case 'V':
			printf("rcshare %s (ABI %u)\n", RCS_VERSION, SHM_ABI);
			return CLI_OK;
		default:
			usage(stderr);
			return CLI_USAGE;
		}
	}
	if (optind == argc) {
		usage(stderr);
		return CLI_USAGE;
	}
	argc -= optind;
	argv += optind;
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[0], verbs[i].name)) {
			optind = 0; /* glibc: start anew, with the verb's own options */
			return verbs[i].run(argc, argv);
		}
	cli_fail(CLI_USAGE, "unknown verb '%s'; known are config, status and log", argv[0]);
	return CLI_USAGE;
}
