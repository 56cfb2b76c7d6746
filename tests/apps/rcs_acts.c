/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When does a rank act? Each sends itself messages, and notes the time of each that it is given.
 *
 *	rcs_acts --until FILE --out FOLDER
 *
 * FOLDER/RANK.INCARNATION has the times of the first and the last in nanoseconds of the host's monotonic
 * clock, which the nodes of a bed share. Ends when the file is there, or when it is stopped: then FOLDER's
 * file has the status behind the times, and it ends with 0.
 */
#include <fcntl.h>
#include <getopt.h>

#include "app.h"

#define TAG 9

static int out;

static void note(uint64_t first, uint64_t last, const char *end)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "%020llu %020llu %s\n", (unsigned long long)first,
		(unsigned long long)last, end);

	APP_CHECK(pwrite(out, line, (size_t)n, 0) == n);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"until", required_argument, NULL, 'u'},
		{"out", required_argument, NULL, 'o'}, {0}};
	const char *until = NULL, *folder = NULL;
	struct rcs_completion c;
	struct rcs_error err = {0};
	uint64_t first = 0, last = 0, word = 0, in;
	char path[256];
	int o, rc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'u')
			until = optarg;
		else if (o == 'o')
			folder = optarg;
		else
			return 2;
	}
	APP_CHECK(until && folder);
	rc = rcs_init(NULL, &app.ctx, &err);
	if (rc == RCS_NOT_NEEDED)
		return 0;
	if (rc)
		app_die("%s", err.sentence);
	app.rank = rcs_rank(app.ctx);
	if (rcs_cq_open(app.ctx, 0, &app.cq, &err) || rcs_ep_open(app.ctx,
			&(struct rcs_ep_opts){.size = sizeof(struct rcs_ep_opts), .rx_cq = app.cq}, &app.ep, &err))
		app_die("%s", err.sentence);
	{
		struct rcs_addr self;

		app.peer = calloc(1, sizeof(*app.peer));
		rcs_ep_addr(app.ep, &self);
		if (!app.peer || rcs_peer_insert(app.ep, &self, app.peer, &err))
			app_die("%s", err.sentence);
	}
	snprintf(path, sizeof(path), "%s/%u.%u", folder, app.rank, rcs_incarnation(app.ctx));
	out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	APP_CHECK(out >= 0);
	while (access(until, F_OK)) {
		do
			rc = rcs_trecv(app.ep, &in, sizeof(in), app.peer[0], TAG, 0, NULL);
		while (rc == RCS_ERR_AGAIN && !usleep(1000));
		while (!rc && (rc = rcs_inject(app.ep, &word, sizeof(word), app.peer[0], TAG, 0, 0)) == RCS_ERR_AGAIN)
			rc = usleep(1000);
		if (!rc)
			rc = rcs_cq_wait(app.cq, &c, 1, -1);
		if (rc == 1)
			rc = c.status;
		if (rc == RCS_ERR_PARTITIONED) {
			note(first, last, rcs_status_name(rc));
			return 0;
		}
		if (rc)
			app_die("%s", rcs_status_name(rc));
		word++;
		last = app_now();
		if (!first)
			first = last;
		note(first, last, "acts");
		usleep(200);
	}
	rcs_fini(app.ctx);
	return 0;
}
