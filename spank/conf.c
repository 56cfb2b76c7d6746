// SPDX-License-Identifier: BSD-3-Clause
#include "spank/conf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef RCSHARE_DAEMON /* the Makefile's SBINDIR */
#define RCSHARE_DAEMON "/usr/sbin/rcshared"
#endif

static const struct plug_conf defaults = {
	.mode = PLUG_OFF,
	.daemon = RCSHARE_DAEMON,
	.run_dir = "/run/rcshare",
	.timeout_ms = 5000,
	.min_nodes = 2,
};

static const char *value_of(const char *arg, const char *key)
{
	size_t len = strlen(key);

	return strncmp(arg, key, len) == 0 && arg[len] == '=' ? arg + len + 1 : NULL;
}

static int set_path(const char **field, const char *arg, const char *value, struct plug_error *err)
{
	if (*value != '/')
		return plug_error_set(
			err, -EINVAL, "argument '%s' in plugstack.conf: not an absolute path", arg);
	*field = value;
	return 0;
}

static int set_arg(struct plug_conf *conf, const char *arg, struct plug_error *err)
{
	const char *v;
	char *end;
	long n;

	if ((v = value_of(arg, "config")))
		return set_path(&conf->config, arg, v, err);
	if ((v = value_of(arg, "key_file")))
		return set_path(&conf->key_file, arg, v, err);
	if ((v = value_of(arg, "daemon")))
		return set_path(&conf->daemon, arg, v, err);
	if ((v = value_of(arg, "run_dir")))
		return set_path(&conf->run_dir, arg, v, err);
	if ((v = value_of(arg, "log_dir")))
		return set_path(&conf->log_dir, arg, v, err);
	if ((v = value_of(arg, "default"))) {
		if (strcmp(v, "on") == 0)
			conf->mode = PLUG_ON;
		else if (strcmp(v, "off") == 0)
			conf->mode = PLUG_OFF;
		else
			return plug_error_set(
				err, -EINVAL, "argument '%s' in plugstack.conf: on or off", arg);
		return 0;
	}
	if ((v = value_of(arg, "timeout"))) {
		n = strtol(v, &end, 10);
		if (end == v || *end || n < 1 || n > 300)
			return plug_error_set(err, -EINVAL,
				"argument '%s' in plugstack.conf: 1 to 300 seconds", arg);
		conf->timeout_ms = (int)n * 1000;
		conf->timeout_given = true;
		return 0;
	}
	if ((v = value_of(arg, "min_nodes"))) {
		n = strtol(v, &end, 10);
		if (end == v || *end || n < 1 || n > 65536)
			return plug_error_set(err, -EINVAL,
				"argument '%s' in plugstack.conf: 1 to 65536 nodes", arg);
		conf->min_nodes = (uint32_t)n;
		return 0;
	}
	return plug_error_set(err, -EINVAL,
		"unknown argument '%s' in plugstack.conf; known are config=, "
		"default=, min_nodes=, key_file=, daemon=, run_dir=, log_dir=, timeout=",
		arg);
}

int plug_conf_parse(int argc, char **argv, struct plug_conf *conf, struct plug_error *err)
{
	struct plug_error ignored;
	int i, rc, first = 0;

	*conf = defaults;
	for (i = 0; i < argc; i++) {
		rc = set_arg(conf, argv[i], first ? &ignored : err);
		if (rc && !first)
			first = rc;
	}
	return first;
}

void plug_conf_node(struct plug_conf *conf, const char *node)
{
	const char *at = strstr(conf->run_dir, "%n");

	if (!at)
		return;
	snprintf(conf->run_room, sizeof(conf->run_room), "%.*s%s%s", (int)(at - conf->run_dir),
		conf->run_dir, node, at + 2);
	conf->run_dir = conf->run_room;
}
