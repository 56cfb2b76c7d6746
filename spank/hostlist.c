// SPDX-License-Identifier: BSD-3-Clause
#include "spank/hostlist.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slurm's own limit of a host's name in a list (MAXHOSTRANGELEN of its hostlist.c is longer). */
#define NAME_LEN  1023
#define NODES_MAX 65536 /* slurm.conf(5) allows 64 Ki nodes */

struct expansion {
	char *text;
	size_t len, size;
	int names;
	struct plug_error *err;
};

/* Root's files have names in lines and lists: blanks, '=' and '/' separate there, and the user gives the names. */
static bool is_plain(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f || name[i] == '=' || name[i] == '/')
			return false;
	return true;
}

static int add_name(struct expansion *x, const char *name, size_t len)
{
	size_t need = x->len + len + 2, size = x->size ? x->size : 256;
	char *text;

	if (len == 0)
		return plug_error_set(x->err, -EINVAL, "empty name in the node list");
	if (!is_plain(name, len))
		return plug_error_set(x->err, -EINVAL,
			"the job's node list has a character that is in no node's name: leave SLURM_JOB_NODELIST as "
			"Slurm sets it");
	if (x->names == NODES_MAX || need > PLUG_HOSTLIST_EXPANDED_MAX)
		return plug_error_set(x->err, -E2BIG,
			"the job's node list has more than %d nodes, or than %d bytes of names", NODES_MAX,
			PLUG_HOSTLIST_EXPANDED_MAX);
	if (need > x->size) {
		while (size < need)
			size *= 2;
		text = realloc(x->text, size);
		if (!text)
			return plug_error_set(x->err, -ENOMEM, "no memory for the node list");
		x->text = text;
		x->size = size;
	}
	if (x->names)
		x->text[x->len++] = ',';
	memcpy(x->text + x->len, name, len);
	x->len += len;
	x->text[x->len] = '\0';
	x->names++;
	return 0;
}

/* Reads digits at *s; their count is the padding. A number that does not fit is no number. */
static int digits(const char **s, unsigned long *value, int *width)
{
	const char *start = *s;
	unsigned long digit;

	*value = 0;
	for (; **s >= '0' && **s <= '9'; ++*s) {
		digit = (unsigned long)(**s - '0');
		if (*s - start >= NAME_LEN || *value > (ULONG_MAX - digit) / 10)
			return -EINVAL;
		*value = *value * 10 + digit;
	}
	*width = (int)(*s - start);
	return *width ? 0 : -EINVAL;
}

/*
 * `name` holds `len` characters that are settled; `s` is what follows in the item, up to `end`.
 * One level of recursion a bracket.
 */
static int expand_item(struct expansion *x, char *name, size_t len, const char *s, const char *end)
{
	const char *close, *open = memchr(s, '[', (size_t)(end - s));
	size_t plain = (size_t)((open ? open : end) - s);
	unsigned long from, to;
	int width, width2, rc;

	if (len + plain > NAME_LEN)
		goto too_long;
	memcpy(name + len, s, plain);
	len += plain;
	if (!open)
		return add_name(x, name, len);
	close = memchr(open, ']', (size_t)(end - open));
	if (!close)
		goto malformed;
	s = open + 1;
	do {
		if (digits(&s, &from, &width))
			goto malformed;
		to = from;
		if (*s == '-') {
			s++;
			if (digits(&s, &to, &width2) || to < from)
				goto malformed;
		}
		for (;; from++) {
			int n = snprintf(name + len, NAME_LEN + 1 - len, "%0*lu", width, from);

			if (len + (size_t)n > NAME_LEN)
				goto too_long;
			rc = expand_item(x, name, len + (size_t)n, close + 1, end);
			if (rc)
				return rc;
			if (from == to) /* which may be the largest number there is */
				break;
		}
	} while (*s++ == ',');
	if (s - 1 != close)
		goto malformed;
	return 0;

malformed:
	return plug_error_set(x->err, -EINVAL, "malformed node list at '%.40s'", open);
too_long:
	return plug_error_set(
		x->err, -EINVAL, "a node name is longer than %d characters", NAME_LEN);
}

int plug_hostlist_expand(const char *list, char **out, struct plug_error *err)
{
	struct expansion x = {.err = err};
	char name[NAME_LEN + 1];
	const char *s, *end;
	bool inside;
	int rc;

	if (!list || !*list)
		return plug_error_set(err, -EINVAL, "the job's node list is empty");
	for (s = list;; s = end + 1) {
		inside = false;
		for (end = s; *end && (inside || *end != ','); end++) {
			if (*end == '[')
				inside = true;
			else if (*end == ']')
				inside = false;
		}
		rc = expand_item(&x, name, 0, s, end);
		if (rc) {
			free(x.text);
			return rc;
		}
		if (!*end)
			break;
	}
	*out = x.text;
	return x.names;
}

int plug_hostlist_find(const char *expanded, const char *name)
{
	size_t len = strlen(name), n;
	int i;

	for (i = 0;; i++) {
		n = strcspn(expanded, ",");
		if (n == len && memcmp(expanded, name, n) == 0)
			return i;
		if (!expanded[n])
			return -ENOENT;
		expanded += n + 1;
	}
}

/* Looks from `from` to the end of the list and then from its beginning; where the name ends, or NULL. */
static const char *find_from(const char *list, const char *from, const char *name)
{
	size_t len = strlen(name), n;
	const char *at = from;

	do {
		n = strcspn(at, ",");
		if (n == len && memcmp(at, name, n) == 0)
			return at[n] ? at + n + 1 : list;
		at = at[n] ? at + n + 1 : list;
	} while (at != from);
	return NULL;
}

bool plug_hostlist_covers(const char *list, const char *part, struct plug_error *err)
{
	char *all = NULL, *some = NULL, *name, *save;
	const char *at;
	bool covers = false;

	if (strcmp(list, part) == 0)
		return true;
	if (plug_hostlist_expand(list, &all, err) > 0 &&
		plug_hostlist_expand(part, &some, err) > 0) {
		/* Both are in Slurm's order mostly: each name is found behind the one before. */
		at = all;
		name = strtok_r(some, ",", &save);
		while (name && (at = find_from(all, at, name)))
			name = strtok_r(NULL, ",", &save);
		covers = !name;
	}
	free(all);
	free(some);
	return covers;
}
