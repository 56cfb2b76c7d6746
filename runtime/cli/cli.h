/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cli.h - the verbs of `rcshare`. Each gets its own argv (argv[0] is the verb), prints its result to
 * stdout and errors to stderr, and returns the exit code. One thread.
 */
#ifndef RCS_CLI_CLI_H
#define RCS_CLI_CLI_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
	CLI_OK = 0,
	CLI_NO = 1,	/* the answer is no: invalid file, no such job, no log */
	CLI_USAGE = 2,
	CLI_DAEMON = 3, /* the daemon does not answer, or speaks another version */
};

#define CLI_RUN_DIR "/run/rcshare" /* RCSHARE_RUN_DIR in the environment overrides */

int cli_config(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_log(int argc, char **argv);

/* Puts a ? in the place of each control character and of what is no UTF-8; returns text. */
char *cli_clean(char *text);

/* "rcshare: ...\n" on stderr, cleaned; returns code. */
int cli_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* JOB[.RESTART]: 0 or -EINVAL. *restart is -1 when it was not given. */
int cli_job_parse(const char *text, uint32_t *job, int64_t *restart);

/* The one operand of a verb, after getopt: CLI_OK, or CLI_USAGE with the error or usage printed. */
int cli_job_operand(int argc, char **argv, void (*usage)(FILE *), uint32_t *job, int64_t *restart);

/* A table: columns as wide as their widest cell, the last one open. */
struct cli_table;
struct cli_table *cli_table_new(unsigned columns, const char *const *head); /* NULL: no memory */
void cli_table_cell(struct cli_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
unsigned cli_table_rows(const struct cli_table *t); /* without the head */
void cli_table_print(struct cli_table *t, FILE *out);
void cli_table_free(struct cli_table *t);

/* "1.2 ms" and the like; returns buf. */
const char *cli_duration(char buf[32], uint64_t ns);

#endif
