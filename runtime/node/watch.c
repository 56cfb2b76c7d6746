/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks, what epoll watches, and how long a turn of the loop takes. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
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

void node_mute(struct node *n, struct watch *w)
{
	epoll_ctl(n->epfd, EPOLL_CTL_DEL, w->fd, NULL);
	for (int i = 0; i < fetched_n; i++)
		if (fetched[i].data.ptr == w)
			fetched[i].data.ptr = NULL;
}

void node_unwatch(struct node *n, struct watch *w)
{
	if (w->fd < 0)
		return;
	node_mute(n, w);
	close(w->fd);
	w->fd = -1;
}

/* Milliseconds, rounded up: what epoll_wait() can do. */
static int wait_ms(struct node *n, uint64_t ns)
{
	return epoll_wait(n->epfd, fetched, 64, ns < INT32_MAX * 1000000ull ? (int)((ns + 999999) / 1000000) : -1);
}

/* epoll_pwait2 is of glibc 2.35 and Linux 5.11; some containers refuse what they do not know. */
static int wait_events(struct node *n, uint64_t ns)
{
#ifdef SYS_epoll_pwait2
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};
	static bool lacks;
	int got;

	if (!lacks) {
		got = (int)syscall(SYS_epoll_pwait2, n->epfd, fetched, 64, &ts, NULL, 0);
		if (got >= 0 || (errno != ENOSYS && errno != EPERM))
			return got;
		lacks = true;
	}
#endif
	return wait_ms(n, ns);
}

/* Cheap, and exact to some milliseconds: what took less is nobody's worry. */
static uint64_t coarse_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void node_did(struct node *n, const char *what)
{
	uint64_t now = coarse_clock();

	if (now - n->turn.mark > n->turn.most) {
		n->turn.most = now - n->turn.mark;
		n->turn.did = what;
	}
	n->turn.mark = now;
}

static void turn_ends(struct node *n, uint64_t now)
{
	if (n->turn.began && now - n->turn.began > n->turn.longest) {
		n->turn.longest = now - n->turn.began;
		n->turn.longest_at = now;
		n->turn.longest_did = n->turn.did;
	}
}

static void turn_begins(struct node *n)
{
	n->now = n->turn.began = node_clock();
	n->turn.mark = coarse_clock();
	n->turn.most = 0;
	n->turn.did = "a bit of everything";
}

void node_wait(struct node *n, uint64_t until)
{
	uint64_t now = node_clock();

	turn_ends(n, now);
	fetched_n = wait_events(n, until > now ? until - now : 0);
	turn_begins(n);
	for (int i = 0; i < fetched_n; i++) {
		struct watch *w = fetched[i].data.ptr;

		if (w)
			w->ready(n, w, fetched[i].events);
	}
	if (fetched_n > 0)
		node_did(n, "requests and connections");
	fetched_n = 0;
}
