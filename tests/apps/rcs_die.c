/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0 sends rank 1 a large message, and one of them is killed in the middle of it, when the first
 * part has arrived and the last has not. The other prints how its request ended:
 *
 *	rcs_die sender|receiver [SIZE]		"rank R survives: RCS_ERR_PEER_GONE"
 *
 * A message that did arrive must be whole.
 *
 *	rcs_die put|get origin|target [SIZE]
 *
 * The same with a put or get of rank 0 on the memory of rank 1, where nobody else may touch the memory of
 * either. The survivor then puts into a region of its own.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "app.h"

#define TAG 3

static size_t size = 192 << 20;

static void die(void)
{
	printf("rank %u dies\n", app.rank);
	fflush(stdout);
	kill(getpid(), SIGKILL);
}

static void survives(int status)
{
	printf("rank %u survives: %s\n", app.rank, rcs_status_name(status));
}

static void survive(struct app_req *r)
{
	survives(app_wait(r));
}

static void sender(bool victim)
{
	uint8_t *buf = malloc(size);
	struct app_req s, r;
	char word;

	APP_CHECK(buf);
	memset(buf, 0xa5, size);
	app_recv(&word, 1, 1, TAG + 1, &r);
	app_send(buf, size, 1, TAG, &s);
	if (victim) {
		app_wait_ok(&r);
		die();
	}
	survive(&s);
	free(buf);
}

static void receiver(bool victim)
{
	volatile uint8_t *buf = calloc(size, 1);
	struct app_req s, r;
	char word = 0;

	APP_CHECK(buf);
	app_recv((void *)(uintptr_t)buf, size, 0, TAG, &r);
	while (!buf[size / 16] && !r.done)
		app_progress(0);
	if (r.done || buf[size - 1])
		app_die("the message came too fast: nothing was under way; give a larger SIZE");
	if (victim)
		die();
	app_send(&word, 1, 0, TAG + 1, &s);
	survive(&r);
	for (size_t i = 0; !r.c.status && i < size; i++)
		if (buf[i] != 0xa5)
			app_die("byte %zu is wrong", i);
	free((void *)(uintptr_t)buf);
}

/* --- one-sided ----------------------------------------------------------------------------------- */

static struct rcs_key region_key(void *p, size_t len)
{
	struct rcs_error err = {0};
	rcs_region *region;
	struct rcs_key key;

	if (rcs_region_open(app.ctx, p, len, &region, &err) || rcs_region_key(region, app.ep, &key, &err))
		app_die("%s", err.sentence);
	return key;
}

static int request(bool get, void *buf, size_t len, const struct rcs_key *key, uint32_t to, struct app_req *q)
{
	struct rcs_rma r = {.buf = buf, .len = len, .key = key, .peer = app_peer(to), .context = q};

	*q = (struct app_req){0};
	return get ? rcs_get(app.ep, &r) : rcs_put(app.ep, &r);
}

/* Gets from there until one fails. */
static int until_gone(const struct rcs_key *key, uint32_t rank)
{
	struct app_req q;
	uint64_t word;
	int rc;

	do {
		rc = request(true, &word, sizeof(word), key, rank, &q);
		if (!rc)
			rc = app_wait(&q);
	} while (!rc);
	return rc;
}

static void put_to_self(void)
{
	static uint8_t from[100000], to[100000];
	struct rcs_key key = region_key(to, sizeof(to));
	struct app_req q;

	memset(from, 0x5a, sizeof(from));
	APP_OK(request(false, from, sizeof(from), &key, app.rank, &q));
	app_wait_ok(&q);
	APP_CHECK(!memcmp(from, to, sizeof(to)));
}

static void one_sided(bool get, bool origin_dies)
{
	bool origin = app.rank == 0, victim = origin == origin_dies, watches = get == origin;
	volatile uint8_t *buf = malloc(size);
	struct app_req q, s, r, word;
	struct rcs_key mine, its;
	char c = 0;

	APP_CHECK(buf && !prctl(PR_SET_DUMPABLE, 0));
	memset((void *)(uintptr_t)buf, watches ? 0 : 0xa5, size);
	app_recv(&c, 1, !app.rank, TAG, &word);
	app_recv(&its, sizeof(its), !app.rank, TAG + 1, &r);
	mine = region_key((void *)(uintptr_t)buf, size);
	app_send(&mine, sizeof(mine), !app.rank, TAG + 1, &s);
	app_wait_ok(&s);
	app_wait_ok(&r);
	if (origin)
		APP_OK(request(get, (void *)(uintptr_t)buf, size, &its, 1, &q));
	if (watches) {
		while (!buf[size / 16])
			app_progress(0);
		if (buf[size - 1])
			app_die("all came too fast: nothing was under way; give a larger SIZE");
		if (victim)
			die();
		app_send(&c, 1, !app.rank, TAG, &s);
	} else if (victim) {
		app_wait_ok(&word);
		die();
	}
	survives(origin ? app_wait(&q) : until_gone(&its, 0));
	put_to_self();
	free((void *)(uintptr_t)buf);
}

int main(int argc, char **argv)
{
	bool first = argc > 1 && (!strcmp(argv[1], "sender") || (argc > 2 && !strcmp(argv[2], "origin")));
	int rma = argc > 2 && (!strcmp(argv[1], "put") || !strcmp(argv[1], "get"));

	if (argc < 2 || (!first && strcmp(argv[1 + rma], rma ? "target" : "receiver") != 0))
		app_die("usage: rcs_die sender|receiver [SIZE], or rcs_die put|get origin|target [SIZE]");
	if (argc > 2 + rma)
		size = app_number(argv[2 + rma]);
	app_open(0);
	if (rma)
		one_sided(!strcmp(argv[1], "get"), first);
	else if (app.rank == 0)
		sender(first);
	else if (app.rank == 1)
		receiver(!first);
	rcs_fini(app.ctx);
	return 0;
}
