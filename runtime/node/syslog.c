/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log for admins. The C library's syslog() waits for as long as the journal does not read, and the loop
 * would with it: here a line that finds no room is counted, and the next one that finds room says how many.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "node/node.h"

static struct {
	const char *path; /* NULL: nobody listens, or not yet tried */
	int fd;
	int type;
	uint32_t lost;
} out = {.fd = -1};

static bool syslog_connect(int type)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int err;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", out.path);
	out.fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	out.type = type;
	if (out.fd < 0)
		return false;
	if (connect(out.fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return true;
	err = errno;
	close(out.fd);
	out.fd = -1;
	errno = err;
	return false;
}

void node_log_open(const char *path)
{
	tzset();
	out.path = path;
	if (out.fd >= 0)
		close(out.fd);
	out.fd = -1;
}

uint32_t node_log_lost(void)
{
	return out.lost;
}

/* A restarted syslogd has another socket behind the name. */
static bool syslog_send(const char *line, size_t len)
{
	ssize_t sent = -1;

	for (int i = 0; i < 2 && sent < 0; i++) {
		if (out.fd < 0 && !syslog_connect(SOCK_DGRAM) &&
			!(errno == EPROTOTYPE && syslog_connect(SOCK_STREAM)))
			return false;
		/* a stream's lines end with a NUL */
		sent = send(out.fd, line, out.type == SOCK_STREAM ? len + 1 : len, MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS))
			return false;
		if (sent < 0 || (out.type == SOCK_STREAM && (size_t)sent != len + 1)) {
			close(out.fd);
			out.fd = -1;
		}
	}
	return sent >= 0;
}

static bool syslog_line(int prio, const char *text)
{
	char line[1200], when[32];
	time_t now = time(NULL);
	struct tm tm;
	int len;

	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%h %e %T", &tm);
	len = snprintf(line, sizeof(line), "<%d>%s rcshared[%d]: %s", LOG_DAEMON | prio, when, (int)getpid(),
		text);
	return syslog_send(line, len < (int)sizeof(line) ? (size_t)len : sizeof(line) - 1);
}

void node_log(struct node *n, int level, const char *fmt, ...)
{
	static const int prio[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	char text[1024], lost[64];
	va_list ap;

	if (level > (int)n->cfg.log_level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (isatty(2))
		fprintf(stderr, "%s\n", text);
	if (!out.path)
		return;
	snprintf(lost, sizeof(lost), "%u lines before this one were lost", out.lost);
	if (out.lost && syslog_line(LOG_WARNING, lost))
		out.lost = 0;
	if (out.lost || !syslog_line(prio[level & 3], text))
		out.lost++;
}
