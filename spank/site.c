// SPDX-License-Identifier: BSD-3-Clause
#include "spank/site.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank/trusted.h"

#define BLANK "\t\n\r "

/* `s` is behind an opening quote. Returns its closing quote, or NULL. */
static const char *string_end(const char *s, bool *plain)
{
	*plain = true;
	for (; *s && *s != '"'; s++) {
		if (*s != '\\')
			continue;
		*plain = false;
		if (!*++s)
			return NULL;
	}
	return *s ? s : NULL;
}

static int copy(const char *from, const char *to, char *out, size_t size)
{
	size_t len = (size_t)(to - from);

	if (len == 0 || len >= size)
		return 0;
	memcpy(out, from, len);
	out[len] = '\0';
	return 1;
}

int plug_site_value(const char *text, const char *key, char *out, size_t size)
{
	size_t len = strlen(key);
	const char *s, *end, *value;
	int depth = 0;
	bool plain;

	for (s = text; *s; s++) {
		if (*s == '{' || *s == '[')
			depth++;
		else if (*s == '}' || *s == ']')
			depth--;
		if (*s != '"')
			continue;
		end = string_end(s + 1, &plain);
		if (!end)
			return 0;
		value = end + 1 + strspn(end + 1, BLANK);
		if (depth != 1 || *value != ':' || (size_t)(end - s) - 1 != len ||
			memcmp(s + 1, key, len) != 0) {
			s = end;
			continue;
		}
		value++;
		value += strspn(value, BLANK);
		if (*value != '"')
			return copy(value, value + strcspn(value, ",}]{[\"" BLANK), out, size);
		end = string_end(value + 1, &plain);
		return end && plain ? copy(value + 1, end, out, size) : 0;
	}
	return 0;
}

static bool number(const char *text, const char *key, unsigned long long *n)
{
	char word[32], *end;

	if (!plug_site_value(text, key, word, sizeof(word)) || *word < '0' || *word > '9')
		return false;
	*n = strtoull(word, &end, 10);
	return !*end;
}

static const char *path(const char *text, const char *key, char *room, size_t size)
{
	return plug_site_value(text, key, room, size) && *room == '/' ? room : NULL;
}

static bool is_word(const char *text, const char *key, const char *word)
{
	char value[32];

	return plug_site_value(text, key, value, sizeof(value)) && strcmp(value, word) == 0;
}

void plug_site_apply(const char *text, struct plug_conf *conf)
{
	unsigned long long n;
	char cpus[64];

	conf->reserved_cpus = plug_site_value(text, "cpus", cpus, sizeof(cpus)) && strcmp(cpus, "job");
	conf->keep_step = is_word(text, "keep_step", "on");
	conf->mark_down = is_word(text, "mark_down", "on");
	conf->witness = is_word(text, "tie_breaker", "slurmctld");
	if (number(text, "memory_limit_mb", &n))
		conf->memory_limit_mb = n;
	if (number(text, "cpu_weight", &n))
		conf->cpu_weight = n;
	if (number(text, "memlock_limit", &n))
		conf->memlock = n;
	if (number(text, "nofile", &n))
		conf->nofile = n;
	if (!conf->timeout_given && number(text, "start_timeout_ms", &n) && n <= 600000)
		conf->timeout_ms = (int)n;
	if (!conf->key_file)
		conf->key_file = path(text, "key_file", conf->key_room, sizeof(conf->key_room));
	if (!conf->log_dir)
		conf->log_dir = path(text, "log_dir", conf->log_room, sizeof(conf->log_room));
}

int plug_site_load(struct plug_conf *conf, struct plug_error *err)
{
	const char *path = conf->config ? conf->config : PLUG_SITE_FILE;
	char text[65536];
	ssize_t len = 0;
	int fd = plug_trusted_open(path, false, NULL, err);

	if (fd < 0 && fd != -ENOENT)
		return fd;
	if (fd >= 0) {
		len = plug_trusted_read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (len < 0)
		return plug_error_set(err, (int)len, "cannot read %s: %s", path, strerror((int)-len));
	text[len] = '\0';
	plug_site_apply(text, conf);
	if (!conf->log_dir)
		conf->log_dir = "/var/log/rcshare";
	return 0;
}
