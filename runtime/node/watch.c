/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks, the log for admins, and what epoll watches. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "node/node.h"

uint64_t node_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t node_utc(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void node_log(struct node *n, int level, const char *fmt, ...)
{
	static const int prio[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	va_list ap;

	if (level > (int)n->cfg.log_level)
		return;
	va_start(ap, fmt);
	vsyslog(prio[level & 3], fmt, ap);
	va_end(ap);
	if (isatty(2)) {
		va_start(ap, fmt);
		vfprintf(stderr, fmt, ap);
		fputc('\n', stderr);
		va_end(ap);
	}
}

int node_watch(struct node *n, struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	return epoll_ctl(n->epfd, EPOLL_CTL_ADD, w->fd, &ev) ? -errno : 0;
}

void node_rewatch(struct node *n, struct watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	epoll_ctl(n->epfd, EPOLL_CTL_MOD, w->fd, &ev);
}

/* Events already fetched may still point to a watch that goes: node_unwatch() forgets those. */
static struct epoll_event fetched[64];
static int fetched_n;

void node_unwatch(struct node *n, struct watch *w)
{
	if (w->fd < 0)
		return;
	epoll_ctl(n->epfd, EPOLL_CTL_DEL, w->fd, NULL);
	close(w->fd);
	w->fd = -1;
	for (int i = 0; i < fetched_n; i++)
		if (fetched[i].data.ptr == w)
			fetched[i].data.ptr = NULL;
}

void node_wait(struct node *n, uint64_t until)
{
	struct timespec ts = {0, 0};
	uint64_t now = node_clock();

	if (until > now) {
		ts.tv_sec = (time_t)((until - now) / 1000000000ull);
		ts.tv_nsec = (long)((until - now) % 1000000000ull);
	}
	fetched_n = epoll_pwait2(n->epfd, fetched, 64, &ts, NULL);
	if (fetched_n < 0 && errno == ENOSYS) /* kernels before 5.11 */
		fetched_n = epoll_wait(n->epfd, fetched, 64,
			until > now ? (int)((until - now + 999999) / 1000000) : 0);
	n->now = node_clock();
	for (int i = 0; i < fetched_n; i++) {
		struct watch *w = fetched[i].data.ptr;

		if (w)
			w->ready(n, w, fetched[i].events);
	}
	fetched_n = 0;
}
