/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * labhost monitor SOCKET COMMAND: one command of QEMU's human monitor, through QMP; prints its answer.
 */
#define _GNU_SOURCE
#include "labhost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* The text of a JSON string, unescaped, to stdout. */
static void string_print(const char *s)
{
	for (; *s && *s != '"'; s++) {
		if (*s != '\\') {
			putchar(*s);
			continue;
		}
		s++;
		if (*s == 'n')
			putchar('\n');
		else if (*s != 'r')
			putchar(*s);
	}
}

/* Reads lines until one answers a command; events in between are passed over. */
static int answer(FILE *f, char **line, size_t *cap)
{
	while (getline(line, cap, f) > 0) {
		if (strstr(*line, "\"return\""))
			return 0;
		if (strstr(*line, "\"error\"")) {
			fputs(*line, stderr);
			return -1;
		}
	}
	fprintf(stderr, "lab: the monitor does not answer\n");
	return -1;
}

int monitor_main(int argc, char **argv)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 10};
	char *line = NULL, *text;
	size_t cap = 0;
	FILE *f;
	int fd;

	if (argc != 3 || strlen(argv[1]) >= sizeof(sa.sun_path) || strpbrk(argv[2], "\"\\")) {
		fprintf(stderr, "usage: labhost monitor SOCKET COMMAND\n");
		return 2;
	}
	strcpy(sa.sun_path, argv[1]);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		perror(argv[1]);
		return 1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	f = fdopen(fd, "r+");
	if (!f || dprintf(fd, "{\"execute\":\"qmp_capabilities\"}\n") < 0 || answer(f, &line, &cap))
		return 1;
	if (dprintf(fd,
		    "{\"execute\":\"human-monitor-command\",\"arguments\":{\"command-line\":\"%s\"}}\n",
		    argv[2]) < 0 ||
	    answer(f, &line, &cap))
		return 1;
	text = strstr(line, "\"return\"") + strlen("\"return\"");
	text = strchr(text, '"');
	if (text)
		string_print(text + 1);
	return 0;
}
