/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0 sends rank 1 a large message, and one of them is killed in the middle of it, when the first
 * part has arrived and the last has not. The other prints how its request ended:
 *
 *	rcs_die sender|receiver [SIZE]		"rank R survives: RCS_ERR_PEER_GONE"
 *
 * A message that did arrive must be whole.
 */
#include <signal.h>

#include "app.h"

#define TAG 3

static size_t size = 192 << 20;

static void die(void)
{
	printf("rank %u dies\n", app.rank);
	fflush(stdout);
	kill(getpid(), SIGKILL);
}

static void survive(struct app_req *r)
{
	int status = app_wait(r);

	printf("rank %u survives: %s\n", app.rank, rcs_status_name(status));
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

int main(int argc, char **argv)
{
	bool first = argc > 1 && !strcmp(argv[1], "sender");

	if (argc < 2 || (!first && strcmp(argv[1], "receiver") != 0))
		app_die("usage: rcs_die sender|receiver [SIZE]");
	if (argc > 2)
		size = app_number(argv[2]);
	app_open(0);
	if (app.rank == 0)
		sender(first);
	else if (app.rank == 1)
		receiver(!first);
	rcs_fini(app.ctx);
	return 0;
}
