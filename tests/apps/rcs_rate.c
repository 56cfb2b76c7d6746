/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Message rate: every rank that is not on the last node sends to a rank of the last node.
 *
 *	rcs_rate [--size N] [--count N] [--helper]
 *
 * Prints "rate ranks=R bytes=N messages=M seconds=S messages_per_s=X". With one node, the lower half
 * of the ranks sends to the upper half.
 */
#include <getopt.h>

#include "app.h"

#define TAG    3
#define WINDOW 64

static size_t size = 8;
static uint64_t count = 10000;
static uint32_t flags;

static void send_all(uint32_t to)
{
	struct app_req q[WINDOW], done;
	uint64_t *m = calloc(WINDOW, size);
	char token;

	for (uint64_t i = 0; i < count + WINDOW; i++) {
		struct app_req *r = &q[i % WINDOW];
		uint64_t *buf = m + (i % WINDOW) * (size / 8);

		if (i >= WINDOW && i - WINDOW < count)
			app_wait_ok(r);
		if (i >= count)
			continue;
		buf[0] = i;
		app_send(buf, size, to, TAG, r);
	}
	app_recv(&token, 1, to, TAG + 1, &done);
	app_wait_ok(&done);
	free(m);
}

static void receive_all(const uint32_t *from, uint32_t n)
{
	struct app_req *q = calloc((size_t)n * WINDOW, sizeof(*q)), done;
	uint64_t *m = calloc((size_t)n * WINDOW, size);
	char token = 0;

	for (uint64_t i = 0; i < count + WINDOW; i++)
		for (uint32_t k = 0; k < n; k++) {
			size_t slot = (size_t)k * WINDOW + i % WINDOW;

			if (i >= WINDOW && i - WINDOW < count) {
				app_wait_ok(&q[slot]);
				APP_CHECK(m[slot * (size / 8)] == i - WINDOW);
			}
			if (i < count)
				app_recv(m + slot * (size / 8), size, from[k], TAG, &q[slot]);
		}
	for (uint32_t k = 0; k < n; k++) {
		app_send(&token, 1, from[k], TAG + 1, &done);
		app_wait_ok(&done);
	}
	free(q);
	free(m);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"size", required_argument, NULL, 's'}, {"count", required_argument, NULL, 'c'},
		{"helper", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
	};
	uint32_t *sender, *target, senders = 0, targets = 0, n = 0;
	uint32_t *from;
	uint64_t start;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 's':
			size = (app_number(optarg) + 7) & ~(size_t)7;
			break;
		case 'c':
			count = app_number(optarg);
			break;
		case 'h':
			flags |= RCS_INIT_HELPER;
			break;
		default:
			return 2;
		}
	app_open(flags);
	APP_CHECK(size && app.size > 1);
	sender = calloc(app.size, sizeof(*sender));
	target = calloc(app.size, sizeof(*target));
	from = calloc(app.size, sizeof(*from));
	{
		struct rcs_peer_info first, last, info;

		APP_OK(rcs_peer_query(app_peer(0), &first));
		APP_OK(rcs_peer_query(app_peer(app.size - 1), &last));
		for (uint32_t r = 0; r < app.size; r++) {
			APP_OK(rcs_peer_query(app_peer(r), &info));
			if (first.node == last.node ? r >= app.size / 2 : info.node == last.node)
				target[targets++] = r;
			else
				sender[senders++] = r;
		}
	}
	app_barrier();
	start = app_now();
	for (uint32_t i = 0; i < senders; i++) {
		if (sender[i] == app.rank)
			send_all(target[i % targets]);
		if (target[i % targets] == app.rank)
			from[n++] = sender[i];
	}
	if (n)
		receive_all(from, n);
	app_barrier();
	if (app.rank == 0) {
		double s = (double)(app_now() - start) / 1e9;

		printf("rate ranks=%u bytes=%zu messages=%llu seconds=%.3f messages_per_s=%.0f\n",
			senders, size, (unsigned long long)(count * senders), s,
			(double)(count * senders) / s);
	}
	app_close();
	free(sender);
	free(target);
	free(from);
	return 0;
}
