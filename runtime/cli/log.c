/* SPDX-License-Identifier: BSD-3-Clause */
/* `rcshare log`: failovers of a job, of all nodes whose logs lie in log_dir, in order of time. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "config/config.h"

#define LINE_MAX_BYTES (256 * 1024) /* the daemon writes shorter ones */

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

/*
 * The folder and its files are a user's: a link would show root another file, and a FIFO would keep
 * him waiting. NULL with errno.
 */
static FILE *log_open(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	FILE *f = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		errno = EINVAL;
	else
		f = fdopen(fd, "r");
	if (!f)
		close(fd);
	return f;
}

static void read_line(struct log *l, const char *line, size_t len, bool all)
{
	json_t *o = json_loadb(line, len, 0, NULL);
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

static void read_file(struct log *l, int dir, const char *path, const char *name, bool all)
{
	static char line[LINE_MAX_BYTES];
	FILE *f = log_open(dir, name);
	bool whole = true, ends;
	size_t len;

	if (!f) {
		l->denied |= errno == EACCES;
		cli_fail(0, "cannot read %s/%s: %s", path, name, errno == ELOOP ? "it is a link" :
			errno == EINVAL ? "it is no regular file" : strerror(errno));
		return;
	}
	l->files++;
	while (fgets(line, sizeof(line), f)) {
		len = strlen(line);
		ends = len && line[len - 1] == '\n';
		if (!whole && ends)
			l->bad++; /* longer than any record */
		else if (whole && (ends || len + 1 < sizeof(line)))
			read_line(l, line, len, all);
		whole = ends;
	}
	fclose(f);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static void read_dir(struct log *l, int parent, const char *parent_path, const char *name, bool all)
{
	int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent **list;
	char path[1024];
	int n = dir < 0 ? -1 : scandirat(dir, ".", &list, NULL, by_name);

	if (n < 0) {
		l->denied |= errno == EACCES;
		if (dir >= 0)
			close(dir);
		return;
	}
	snprintf(path, sizeof(path), "%s/%s", parent_path, name);
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(list[i]->d_name, '.');

		if (dot && !strcmp(dot, ".jsonl"))
			read_file(l, dir, path, list[i]->d_name, all);
		free(list[i]);
	}
	free(list);
	close(dir);
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
	bool all = false, as_json = false;
	struct dirent **list = NULL;
	int64_t restart, r;
	uint32_t job, j;
	int c, n, code, top;

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
	top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	n = top < 0 ? -1 : scandirat(top, ".", &list, NULL, by_name);
	if (n < 0 && errno != ENOENT)
		return cli_fail(CLI_NO, "cannot read %s: %s", dir, strerror(errno));
	l.records = json_array();
	for (int i = 0; i < n; i++) {
		/* A folder without a restart is that of restart 0. */
		if (!cli_job_parse(list[i]->d_name, &j, &r) && j == job &&
			(restart < 0 || (r < 0 ? 0 : r) == restart))
			read_dir(&l, top, dir, list[i]->d_name, all);
		free(list[i]);
	}
	free(list);
	if (top >= 0)
		close(top);
	if (l.files)
		code = print(&l, all, as_json);
	else if (l.denied)
		code = cli_fail(CLI_NO, "the log of job %s in %s belongs to another user", argv[optind],
			dir);
	else
		code = cli_fail(CLI_NO, "there is no log of job %s in %s on this node: no failure was recorded "
			"here, or it did not run here; log_dir is each node's own unless it is shared", argv[optind], dir);
	json_decref(l.records);
	return code;
}
