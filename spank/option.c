// SPDX-License-Identifier: BSD-3-Clause
#include "spank/option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FORM "on|off|require[,key=value...]"
#define KEYS "rails=1..4, eager=0|1, keep_step=0|1, spares=N, log=PATH"

_Static_assert(PLUG_RAILS_MAX == 4, "KEYS tells the user the limit");

static int number(const char *s, long max, long *out)
{
	char *end;
	long n;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	errno = 0;
	n = strtol(s, &end, 10);
	if (*end || errno || n > max)
		return -EINVAL;
	*out = n;
	return 0;
}

static int set_rails(struct plug_option *opt, const char *v, struct plug_error *err)
{
	long n;

	if (number(v, PLUG_RAILS_MAX, &n) || n < 1)
		return plug_error_set(
			err, -EINVAL, "rails=%s: give a number from 1 to %d", v, PLUG_RAILS_MAX);
	opt->rails = (int)n;
	return 0;
}

static int set_eager(struct plug_option *opt, const char *v, struct plug_error *err)
{
	long n;

	if (number(v, 1, &n))
		return plug_error_set(err, -EINVAL, "eager=%s: give 0 or 1", v);
	opt->eager = (int)n;
	return 0;
}

static int set_keep_step(struct plug_option *opt, const char *v, struct plug_error *err)
{
	long n;

	if (number(v, 1, &n))
		return plug_error_set(err, -EINVAL, "keep_step=%s: give 0 or 1", v);
	opt->keep_step = (int)n;
	return 0;
}

static int set_spares(struct plug_option *opt, const char *v, struct plug_error *err)
{
	long n;

	if (number(v, PLUG_SPARES_MAX, &n))
		return plug_error_set(err, -EINVAL, "spares=%s: give a number of nodes", v);
	opt->spares = (uint32_t)n;
	return 0;
}

static int set_log(struct plug_option *opt, const char *v, struct plug_error *err)
{
	const char *c;

	if (*v != '/')
		return plug_error_set(err, -EINVAL, "log=%s: give an absolute path", v);
	for (c = v; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return plug_error_set(err, -EINVAL, "log: control characters in the path");
	strcpy(opt->log, v);
	return 0;
}

static const struct {
	const char *name;
	int (*set)(struct plug_option *opt, const char *value, struct plug_error *err);
} keys[] = {
	{"rails", set_rails},
	{"eager", set_eager},
	{"keep_step", set_keep_step},
	{"spares", set_spares},
	{"log", set_log},
};

#define NKEYS (sizeof(keys) / sizeof(keys[0]))

static int set_key(struct plug_option *opt, char *word, unsigned int *seen, struct plug_error *err)
{
	char *value = strchr(word, '=');
	size_t i;

	if (!value)
		return plug_error_set(err, -EINVAL, "'%s' is not key=value; keys are " KEYS, word);
	*value++ = '\0';
	for (i = 0; i < NKEYS; i++) {
		if (strcmp(word, keys[i].name) != 0)
			continue;
		if (*seen & 1u << i)
			return plug_error_set(err, -EINVAL, "%s is given twice", word);
		*seen |= 1u << i;
		return keys[i].set(opt, value, err);
	}
	return plug_error_set(err, -EINVAL, "unknown key '%s'; keys are " KEYS, word);
}

int plug_option_parse(const char *value, struct plug_option *opt, struct plug_error *err)
{
	struct plug_option o = PLUG_OPTION_INIT;
	char copy[PLUG_PATH_MAX], *rest = copy, *word;
	unsigned int seen = 0;
	int rc;

	if (!value || !*value)
		return plug_error_set(err, -EINVAL, "needs a value: " FORM);
	if (strlen(value) >= sizeof(copy))
		return plug_error_set(
			err, -EINVAL, "the value is longer than %d characters", PLUG_PATH_MAX - 1);
	strcpy(copy, value);
	word = strsep(&rest, ",");
	if (strcmp(word, "on") == 0)
		o.mode = PLUG_ON;
	else if (strcmp(word, "off") == 0)
		o.mode = PLUG_OFF;
	else if (strcmp(word, "require") == 0)
		o.mode = PLUG_REQUIRE;
	else
		return plug_error_set(err, -EINVAL, "unknown value '%s': give " FORM, word);
	while ((word = strsep(&rest, ","))) {
		rc = set_key(&o, word, &seen, err);
		if (rc)
			return rc;
	}
	if (o.spares && o.eager == 1)
		return plug_error_set(err, -EINVAL, "spares and eager=1 do not go together: eager waits for "
			"all ranks of the step, and those of spare nodes stand by");
	*opt = o;
	return 0;
}
