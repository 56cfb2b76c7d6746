// SPDX-License-Identifier: BSD-3-Clause
#include "spank/nodeaddr.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "spank/hostlist.h"

struct node {
	const char *name;
	char *addr; /* NULL: none */
	size_t at;  /* in the list */
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct node *)a)->name, ((const struct node *)b)->name);
}

static int by_place(const void *a, const void *b)
{
	size_t x = ((const struct node *)a)->at, y = ((const struct node *)b)->at;

	return x < y ? -1 : x > y;
}

/* The value of "Key=value" in a line of such words, malloc'd; NULL: it is not there. */
static char *value_of(const char *line, const char *key)
{
	size_t len = strlen(key);

	while (*line) {
		line += strspn(line, " \t\r");
		if (*line == '#')
			break;
		if (!strncasecmp(line, key, len) && line[len] == '=')
			return strndup(line + len + 1, strcspn(line + len + 1, " \t\r#"));
		line += strcspn(line, " \t\r");
	}
	return NULL;
}

/* "10.0.0.[1-3],x" as its elements with commas, malloc'd; IPv6 addresses have no place in a range. */
static char *expand(const char *list)
{
	struct plug_error err;
	char *out = NULL;

	if (!strchr(list, '['))
		return strdup(list);
	return plug_hostlist_expand(list, &out, &err) < 0 ? NULL : out;
}

/* One line of slurm.conf. */
static void line_take(const char *line, struct node *nodes, size_t count)
{
	char *list = value_of(line, "NodeName"), *to = value_of(line, "NodeAddr");
	char *names = NULL, *addrs = NULL, *name, *addr, *n, *a;

	if (!to)
		to = value_of(line, "NodeHostname");
	if (list && to) {
		names = expand(list);
		addrs = expand(to);
	}
	n = names;
	a = addrs;
	addr = strsep(&a, ",");
	while ((name = strsep(&n, ",")) && addr) {
		struct node key = {.name = name}, *found = bsearch(&key, nodes, count, sizeof(key), by_name);

		if (found && strcmp(name, addr)) {
			free(found->addr);
			found->addr = strdup(addr);
		}
		if (a) /* one for all: several slurmd on a host */
			addr = strsep(&a, ",");
		else if (addrs != addr)
			break;
	}
	free(names);
	free(addrs);
	free(list);
	free(to);
}

static char *list_of(struct node *nodes, size_t count)
{
	size_t size = 1;
	char *out, *p;

	for (size_t i = 0; i < count; i++)
		size += strlen(nodes[i].name) + (nodes[i].addr ? strlen(nodes[i].addr) : 0) + 2;
	out = p = malloc(size);
	if (!out)
		return NULL;
	*p = '\0';
	for (size_t i = 0; i < count; i++) {
		if (i)
			p = stpcpy(p, ",");
		p = stpcpy(p, nodes[i].name);
		if (nodes[i].addr)
			p = stpcpy(stpcpy(p, "="), nodes[i].addr);
	}
	return out;
}

char *plug_nodeaddr_join(const char *names, const char *conf)
{
	char *copy = strdup(names), *lines = strdup(conf ? conf : ""), *rest, *one, *out = NULL;
	size_t count = 1, i = 0;
	struct node *nodes;

	for (const char *c = names; *c; c++)
		count += *c == ',';
	nodes = calloc(count, sizeof(*nodes));
	if (!copy || !lines || !nodes)
		goto out;
	rest = copy;
	while ((one = strsep(&rest, ","))) {
		nodes[i].name = one;
		nodes[i].at = i;
		i++;
	}
	qsort(nodes, count, sizeof(*nodes), by_name);
	rest = lines;
	while ((one = strsep(&rest, "\n")))
		line_take(one, nodes, count);
	qsort(nodes, count, sizeof(*nodes), by_place);
	out = list_of(nodes, count);
	for (i = 0; i < count; i++)
		free(nodes[i].addr);
out:
	free(nodes);
	free(lines);
	free(copy);
	return out;
}
