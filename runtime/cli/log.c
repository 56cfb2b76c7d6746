/* SPDX-License-Identifier: BSD-3-Clause */
/* `rcshare log`: failovers of a job, of all nodes whose logs lie in log_dir, in order of time. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "config/config.h"

struct log {
	json_t *records; /* array */
	uint32_t files;
	uint64_t bad; /* lines that are no records */
	uint64_t dropped;
	bool denied;
};

static void usage(FILE *out)
{
	fputs("usage: rcshare log JOB[.RESTART] [--dir PATH] [--all] [--json]\n"
	      "\n"
	      "  --dir PATH  where the logs are (default: log_dir of " CONFIG_PATH_DEFAULT ")\n"
	      "  --all       every record, not the failovers alone\n"
	      "  --json      the records as they are, one a line\n",
		out);
}

static void read_file(struct log *l, const char *path, bool all)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	if (!f) {
		l->denied = errno == EACCES;
		cli_fail(0, "cannot read %s: %s", path, strerror(errno));
		return;
	}
	l->files++;
	while ((n = getline(&line, &cap, f)) > 0) {
		json_t *o = json_loadb(line, (size_t)n, 0, NULL);
		const char *event = json_string_value(json_object_get(o, "event"));

		/* A line may be torn where the disk was full: pass over it, and say so. */
		if (!event) {
			l->bad++;
		} else {
			l->dropped += (uint64_t)json_integer_value(json_object_get(o, "dropped"));
			if (all || !strcmp(event, "failover"))
				json_array_append(l->records, o);
		}
		json_decref(o);
	}
	free(line);
	fclose(f);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static void read_dir(struct log *l, const char *dir, bool all)
{
	struct dirent **list;
	int n = scandir(dir, &list, NULL, by_name);

	if (n < 0) {
		l->denied |= errno == EACCES;
		return;
	}
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(list[i]->d_name, '.');
		char path[1024];

		if (dot && !strcmp(dot, ".jsonl")) {
			snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
			read_file(l, path, all);
		}
		free(list[i]);
	}
	free(list);
}

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static const char *when(const json_t *o)
{
	const char *s = str(o, "noticed_utc");

	return strcmp(s, "-") ? s : str(o, "utc");
}

static int by_time(const void *a, const void *b)
{
	return strcmp(when(*(json_t *const *)a), when(*(json_t *const *)b));
}

static const char *span(const json_t *o, const char *key, char buf[32])
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? cli_duration(buf, (uint64_t)json_integer_value(v)) : "-";
}

static int print_table(json_t *const *rec, size_t n, bool all)
{
	static const char *const head[] = {"TIME (UTC)", "NODE", "PEER", "RAIL", "TO", "REASON", "VERDICT",
		"NOTICE", "BLACKOUT", "RESENT", "EVENT"};
	struct cli_table *t = cli_table_new(all ? 11 : 10, head);
	char buf[32];

	if (!t)
		return cli_fail(CLI_NO, "out of memory");
	for (size_t i = 0; i < n; i++) {
		const json_t *resent = json_object_get(rec[i], "frames_resent");

		cli_table_cell(t, "%s", when(rec[i]));
		cli_table_cell(t, "%s", str(rec[i], "host"));
		cli_table_cell(t, "%s", str(rec[i], "peer_host"));
		cli_table_cell(t, "%s", str(rec[i], "rail"));
		cli_table_cell(t, "%s", str(rec[i], "to_rail"));
		cli_table_cell(t, "%s", str(rec[i], "reason"));
		cli_table_cell(t, "%s", str(rec[i], "verdict"));
		cli_table_cell(t, "%s", span(rec[i], "notice_ns", buf));
		cli_table_cell(t, "%s", span(rec[i], "blackout_ns", buf));
		if (resent)
			cli_table_cell(t, "%" JSON_INTEGER_FORMAT, json_integer_value(resent));
		else
			cli_table_cell(t, "-");
		if (all)
			cli_table_cell(t, "%s", str(rec[i], "event"));
	}
	cli_table_print(t, stdout);
	cli_table_free(t);
	return CLI_OK;
}

static int print(struct log *l, bool all, bool as_json)
{
	size_t n = json_array_size(l->records);
	json_t **rec = calloc(n ? n : 1, sizeof(json_t *));
	int code = CLI_OK;

	if (!rec)
		return cli_fail(CLI_NO, "out of memory");
	for (size_t i = 0; i < n; i++)
		rec[i] = json_array_get(l->records, i);
	qsort(rec, n, sizeof(json_t *), by_time);
	if (as_json) {
		for (size_t i = 0; i < n; i++) {
			json_dumpf(rec[i], stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
			putchar('\n');
		}
	} else if (!n) {
		printf("no failovers\n");
	} else {
		code = print_table(rec, n, all);
	}
	free(rec);
	if (l->dropped)
		cli_fail(0, "%" PRIu64 " records are missing: the disk was full or log_max_bytes reached",
			l->dropped);
	if (l->bad)
		cli_fail(0, "%" PRIu64 " lines were damaged and left out", l->bad);
	return code;
}

int cli_log(int argc, char **argv)
{
	static const struct option opts[] = {
		{"dir", required_argument, NULL, 'd'},
		{"all", no_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct log l = {0};
	struct config_error err;
	struct config cfg;
	const char *dir = NULL;
	char path[512];
	bool all = false, as_json = false;
	struct dirent **list = NULL;
	int64_t restart, r;
	uint32_t job, j;
	int c, n, code;

	while ((c = getopt_long(argc, argv, "h", opts, NULL)) != -1) {
		switch (c) {
		case 'd':
			dir = optarg;
			break;
		case 'a':
			all = true;
			break;
		case 'j':
			as_json = true;
			break;
		case 'h':
			usage(stdout);
			return CLI_OK;
		default:
			usage(stderr);
			return CLI_USAGE;
		}
	}
	code = cli_job_operand(argc, argv, usage, &job, &restart);
	if (code)
		return code;
	if (!dir) {
		config_default(&cfg);
		if (config_load(CONFIG_PATH_DEFAULT, &cfg, &err) == -EINVAL)
			return cli_fail(CLI_NO, "%s", err.text);
		dir = cfg.log_dir;
	}
	n = scandir(dir, &list, NULL, by_name);
	if (n < 0 && errno != ENOENT)
		return cli_fail(CLI_NO, "cannot read %s: %s", dir, strerror(errno));
	l.records = json_array();
	for (int i = 0; i < n; i++) {
		/* A folder without a restart is that of restart 0. */
		if (!cli_job_parse(list[i]->d_name, &j, &r) && j == job &&
			(restart < 0 || (r < 0 ? 0 : r) == restart)) {
			snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
			read_dir(&l, path, all);
		}
		free(list[i]);
	}
	free(list);
	if (l.files)
		code = print(&l, all, as_json);
	else if (l.denied)
		code = cli_fail(CLI_NO, "the log of job %s in %s belongs to another user", argv[optind],
			dir);
	else
		code = cli_fail(CLI_NO, "job %s left no log in %s on this node: nothing failed, or it did "
			"not run here", argv[optind], dir);
	json_decref(l.records);
	return code;
}
