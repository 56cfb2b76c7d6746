// SPDX-License-Identifier: BSD-3-Clause
#include "spank/slurmconf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "spank/command.h"
#include "spank/trusted.h"

#define TEXT_MAX     (4u << 20) /* a slurm.conf of 64 Ki nodes that are named one by one */
#define INCLUDES_MAX 4		/* one in another */

/* "Key=value", "Key = value" at the beginning of a line, in any case. Blanks and comments end a value. */
static void line_take(const char *line, const char *key, char *out, size_t size)
{
	size_t len = strlen(key), n;

	if (strncasecmp(line, key, len) != 0)
		return;
	line += len;
	line += strspn(line, " \t");
	if (*line++ != '=')
		return;
	line += strspn(line, " \t\"");
	n = strcspn(line, " \t\r\n#\"");
	if (n == 0 || n >= size)
		return;
	memcpy(out, line, n);
	out[n] = '\0';
}

void plug_slurmconf_parse(const char *text, struct plug_slurmconf *out)
{
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		text += strspn(text, " \t");
		line_take(text, "ClusterName", out->cluster, sizeof(out->cluster));
		line_take(text, "AuthType", out->auth, sizeof(out->auth));
		line_take(text, "SlurmUser", out->user, sizeof(out->user));
	}
	for (char *c = out->cluster; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	out->user[strcspn(out->user, "(")] = '\0'; /* scontrol: "slurm(64030)" */
}

/* A backslash at its end goes on with a line. */
static void lines_join(char *text)
{
	for (char *c = text; (c = strstr(c, "\\\n")); c += 2)
		c[0] = c[1] = ' ';
}

static void nodes_take(const char *text, struct plug_slurmconf *out)
{
	static const char key[] = "NodeName";
	size_t have = out->nodes ? strlen(out->nodes) : 0;

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		size_t len;
		char *more;

		text += strspn(text, " \t");
		if (strncasecmp(text, key, sizeof(key) - 1) != 0)
			continue;
		len = strcspn(text, "\n");
		more = realloc(out->nodes, have + len + 2);
		if (!more)
			return; /* then it is found by name */
		memcpy(more + have, text, len);
		memcpy(more + have + len, "\n", 2);
		out->nodes = more;
		have += len + 1;
	}
}

static int file_take(const char *path, int depth, struct plug_slurmconf *out, struct plug_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC); /* who may write it rules the node's slurmd anyway */
	char *text, include[PLUG_PATH_MAX], *s;
	ssize_t len;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : plug_error_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
	text = malloc(TEXT_MAX + 1);
	len = text ? plug_trusted_read(fd, text, TEXT_MAX) : -ENOMEM;
	close(fd);
	if (len < 0) {
		free(text);
		return plug_error_set(err, (int)len, "cannot read %s: %s", path, strerror((int)-len));
	}
	text[len] = '\0';
	lines_join(text);
	plug_slurmconf_parse(text, out);
	nodes_take(text, out);
	for (s = text; depth && *s; s += strcspn(s, "\n"), s += *s == '\n') {
		s += strspn(s, " \t");
		if (strncasecmp(s, "include", 7) != 0 || (s[7] != ' ' && s[7] != '\t'))
			continue;
		s += 7 + strspn(s + 7, " \t");
		if (snprintf(include, sizeof(include), "%s%s%.*s", *s == '/' ? "" : out->dir,
			    *s == '/' ? "" : "/", (int)strcspn(s, " \t\r\n#"), s) >= (int)sizeof(include))
			continue;
		/* what cannot be included Slurm has complained of */
		file_take(include, depth - 1, out, err);
	}
	free(text);
	return 0;
}

void plug_slurmconf_free(struct plug_slurmconf *c)
{
	free(c->nodes);
	memset(c, 0, sizeof(*c));
}

int plug_slurmconf_load(struct plug_slurmconf *out, struct plug_error *err)
{
	const char *const paths[] = {getenv("SLURM_CONF"), "/run/slurm/conf/slurm.conf",
		"/etc/slurm/slurm.conf"};
	char *argv[] = {(char *)"scontrol", (char *)"show", (char *)"config", NULL}, *text;
	int rc;

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		plug_slurmconf_free(out);
		if (!paths[i] || !strchr(paths[i], '/'))
			continue;
		snprintf(out->dir, sizeof(out->dir), "%s", paths[i]);
		*strrchr(out->dir, '/') = '\0';
		rc = file_take(paths[i], INCLUDES_MAX, out, err);
		if (rc && rc != -ENOENT)
			return rc;
		if (!rc && *out->cluster)
			return 0;
	}
	plug_slurmconf_free(out);
	snprintf(out->dir, sizeof(out->dir), "/etc/slurm");
	text = malloc(1 << 16);
	rc = text ? plug_command_run(argv, text, 1 << 16) : -ENOMEM;
	if (!rc)
		plug_slurmconf_parse(text, out);
	free(text);
	if (!*out->cluster)
		return plug_error_set(err, -ENOENT, "ClusterName is not known: there is no slurm.conf at "
			"$SLURM_CONF of slurmd, /run/slurm/conf or /etc/slurm, and scontrol does not tell");
	return 0;
}
