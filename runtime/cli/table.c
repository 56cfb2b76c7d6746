/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct cli_table {
	unsigned columns;
	size_t n, cap; /* cells */
	char **cell;
};

static void add(struct cli_table *t, char *text)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		char **grown = reallocarray(t->cell, cap, sizeof(*grown));

		if (!grown) {
			free(text);
			return;
		}
		t->cell = grown;
		t->cap = cap;
	}
	t->cell[t->n++] = cli_clean(text);
}

struct cli_table *cli_table_new(unsigned columns, const char *const *head)
{
	struct cli_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->columns = columns;
	for (unsigned i = 0; i < columns; i++)
		add(t, strdup(head[i]));
	return t;
}

void cli_table_cell(struct cli_table *t, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	add(t, text);
}

unsigned cli_table_rows(const struct cli_table *t)
{
	return t->n ? (unsigned)(t->n / t->columns) - 1 : 0;
}

void cli_table_print(struct cli_table *t, FILE *out)
{
	size_t *width = calloc(t->columns, sizeof(*width));

	for (size_t i = 0; width && i < t->n; i++) {
		size_t len = t->cell[i] ? strlen(t->cell[i]) : 0;

		if (len > width[i % t->columns])
			width[i % t->columns] = len;
	}
	for (size_t i = 0; i < t->n; i++) {
		size_t col = i % t->columns;
		bool last = col + 1 == t->columns;
		const char *text = t->cell[i] ? t->cell[i] : "?";

		fprintf(out, "%-*s%s", last || !width ? 0 : (int)width[col], text, last ? "\n" : "  ");
	}
	free(width);
}

void cli_table_free(struct cli_table *t)
{
	for (size_t i = 0; t && i < t->n; i++)
		free(t->cell[i]);
	if (t)
		free(t->cell);
	free(t);
}

const char *cli_duration(char buf[32], uint64_t ns)
{
	if (ns < 1000)
		snprintf(buf, 32, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		snprintf(buf, 32, "%.1f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(buf, 32, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(buf, 32, "%.2f s", (double)ns / 1e9);
	return buf;
}
