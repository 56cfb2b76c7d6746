/* SPDX-License-Identifier: BSD-3-Clause */
/* `rcshare config`: the file checked, and what it comes to. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "config/config.h"

static void usage(FILE *out)
{
	fputs("usage: rcshare config --check [PATH]     say whether PATH is valid\n"
	      "       rcshare config --show [PATH]      print all settings in effect, as JSON\n"
	      "       rcshare config --get KEY [PATH]   print one of them\n"
	      "       rcshare config --keys             list keys, what they accept, and defaults\n"
	      "\n"
	      "PATH is " CONFIG_PATH_DEFAULT " when not given.\n",
		out);
}

static int list_keys(void)
{
	static const char *const head[] = {"KEY", "DEFAULT", "ACCEPTS"};
	struct cli_table *t = cli_table_new(3, head);
	char range[160];

	if (!t)
		return cli_fail(CLI_NO, "out of memory");
	for (size_t i = 0; i < config_nkeys; i++) {
		cli_table_cell(t, "%s", config_keys[i].name);
		cli_table_cell(t, "%s", config_keys[i].def);
		cli_table_cell(t, "%s", config_key_range(&config_keys[i], range, sizeof(range)));
	}
	cli_table_print(t, stdout);
	cli_table_free(t);
	return CLI_OK;
}

/* Without a file the defaults hold (1), but whoever names a file means it. */
static int load(const char *path, struct config *cfg)
{
	struct config_error err;
	int rc = config_load(path ? path : CONFIG_PATH_DEFAULT, cfg, &err);

	if (rc == -ENOENT && !path) {
		fprintf(stderr, "rcshare: no " CONFIG_PATH_DEFAULT "; the defaults are in effect\n");
		config_default(cfg);
		return 1;
	}
	if (rc)
		fprintf(stderr, "%s\n", err.text);
	return rc;
}

int cli_config(int argc, char **argv)
{
	static const struct option opts[] = {
		{"check", no_argument, NULL, 'c'},
		{"show", no_argument, NULL, 's'},
		{"get", required_argument, NULL, 'g'},
		{"keys", no_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	const char *key = NULL, *path;
	struct config cfg;
	char *value;
	int c, rc, what = 0;

	while ((c = getopt_long(argc, argv, "h", opts, NULL)) != -1) {
		if (c == 'h') {
			usage(stdout);
			return CLI_OK;
		}
		if (c == '?' || what) {
			if (c != '?')
				cli_fail(CLI_USAGE, "give one of --check, --show, --get and --keys");
			usage(stderr);
			return CLI_USAGE;
		}
		what = c;
		key = c == 'g' ? optarg : NULL;
	}
	if (!what || argc - optind > (what == 'k' ? 0 : 1)) {
		usage(stderr);
		return CLI_USAGE;
	}
	path = argv[optind]; /* NULL at the end */
	if (what == 'k')
		return list_keys();
	rc = load(path, &cfg);
	if (rc < 0)
		return CLI_NO;
	switch (what) {
	case 's':
		if (config_show(&cfg, stdout))
			return cli_fail(CLI_NO, "cannot write: %s", strerror(errno));
		break;
	case 'g':
		if (config_get(&cfg, key, &value))
			return cli_fail(CLI_NO, "no key '%s'; `rcshare config --keys` lists them", key);
		puts(value);
		free(value);
		break;
	default:
		if (!rc)
			printf("%s: valid\n", path ? path : CONFIG_PATH_DEFAULT);
	}
	return CLI_OK;
}
