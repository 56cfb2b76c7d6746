/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints that are closed in good order while others wait for them.
 *
 *	rcs_leave senders	all but rank 0 send it messages of all sizes and leave. Rank 0 has receives for
 *				them and for more: those end with RCS_ERR_PEER_GONE, behind all messages in
 *				their order. So does one that is posted later.
 *	rcs_leave receiver	all but rank 0 send it more than it has room for, and it leaves without having
 *				taken anything: each send ends, those with RCS_ERR_PEER_GONE last.
 *
 * Prints "leave: N messages, M requests told so, 0 wrong" for each rank that stays.
 */
#include "app.h"

#define TAG	 5
#define MESSAGES 300u
#define MORE	 3u
#define SENDS	 3000u
#define LONGEST	 200000u

static size_t length(uint32_t i)
{
	return i % 20 == 7 ? LONGEST : i % 3 ? 8 : 3000;
}

static void fill(uint64_t *buf, uint32_t src, uint32_t i)
{
	for (size_t k = 0; k < length(i) / 8; k++)
		buf[k] = app_word(src, 0, i, k);
}

static bool is_whole(const uint64_t *buf, uint32_t src, uint32_t i, uint64_t len)
{
	if (len != length(i))
		return false;
	for (size_t k = 0; k < len / 8; k++)
		if (buf[k] != app_word(src, 0, i, k))
			return false;
	return true;
}

static void leave(void)
{
	rcs_ep_close(app.ep);
	app.ep = NULL;
}

/* --- who leaves has sent ---------------------------------------------------------------------------- */

static void sends_and_leaves(void)
{
	static struct app_req r[MESSAGES];
	uint64_t *buf[MESSAGES];
	char word;
	struct app_req go;

	app_recv(&word, 1, 0, TAG + 1, &go);
	app_wait_ok(&go);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		buf[i] = malloc(length(i));
		APP_CHECK(buf[i]);
		fill(buf[i], app.rank, i);
		app_send(buf[i], length(i), 0, TAG, &r[i]);
	}
	for (uint32_t i = 0; i < MESSAGES; i++)
		app_wait_ok(&r[i]);
	leave();
}

static bool takes(struct app_req *r, uint64_t *buf[], uint32_t from)
{
	uint32_t got = 0;

	while (got < MESSAGES && !app_wait(&r[got])) {
		if (!is_whole(buf[got], from, got, r[got].c.len))
			return false;
		got++;
	}
	for (uint32_t i = got; i < MESSAGES + MORE; i++)
		if (app_wait(&r[i]) != RCS_ERR_PEER_GONE)
			return false;
	return got == MESSAGES;
}

static bool later_is_told(uint32_t from)
{
	struct app_req r = {0};
	char word;
	int rc;

	while ((rc = rcs_trecv(app.ep, &word, 1, app_peer(from), TAG, 0, &r)) == RCS_ERR_AGAIN)
		app_progress(0);
	return (rc ? rc : app_wait(&r)) == RCS_ERR_PEER_GONE;
}

static void stays_for_messages(void)
{
	struct app_req *r = calloc((size_t)app.size * (MESSAGES + MORE), sizeof(*r)), go;
	uint64_t **buf = calloc((size_t)app.size * (MESSAGES + MORE), sizeof(*buf));
	uint32_t wrong = 0;

	APP_CHECK(r && buf);
	for (uint32_t from = 1; from < app.size; from++)
		for (uint32_t i = 0, k = from * (MESSAGES + MORE); i < MESSAGES + MORE; i++, k++) {
			buf[k] = malloc(LONGEST);
			APP_CHECK(buf[k]);
			app_recv(buf[k], LONGEST, from, TAG, &r[k]);
		}
	for (uint32_t to = 1; to < app.size; to++) {
		app_send("", 1, to, TAG + 1, &go);
		app_wait_ok(&go);
	}
	for (uint32_t from = 1; from < app.size; from++) {
		wrong += !takes(r + from * (MESSAGES + MORE), buf + from * (MESSAGES + MORE), from);
		wrong += !later_is_told(from);
	}
	printf("leave: %u messages, %u requests told so, %u wrong\n", (app.size - 1) * MESSAGES,
		(app.size - 1) * (MORE + 1), wrong);
	leave();
}

/* --- who leaves was sent to ------------------------------------------------------------------------- */

static void leaves_untaken(void)
{
	struct app_req r;
	char word;

	for (uint32_t from = 1; from < app.size; from++) {
		app_recv(&word, 1, from, TAG + 1, &r);
		app_wait_ok(&r);
	}
	/* no call that would take what they send next: it fills the ring, and waits at the senders */
	for (uint32_t to = 1; to < app.size; to++) {
		app_send("", 1, to, TAG + 2, &r);
		while (!r.done)
			app_progress(0);
	}
	usleep(200000); /* more of them are under way then; nothing depends on it */
	leave();
}

static void sends_too_much(void)
{
	struct app_req *s = calloc(SENDS, sizeof(*s)), r;
	uint32_t sent, ok = 0, gone = 0, wrong = 0;
	static uint8_t buf[4000];
	rcs_peer *to;
	char word;
	int rc = 0;

	APP_CHECK(s);
	app_send("", 1, 0, TAG + 1, &r);
	app_wait_ok(&r);
	app_recv(&word, 1, 0, TAG + 2, &r);
	app_wait_ok(&r);
	to = app_peer(0);
	for (sent = 0; sent < SENDS; sent++) {
		while ((rc = rcs_tsend(app.ep, buf, sizeof(buf), to, TAG, &s[sent])) == RCS_ERR_AGAIN)
			app_progress(0);
		if (rc)
			break;
	}
	wrong += rc && rc != RCS_ERR_PEER_GONE;
	for (uint32_t i = 0; i < sent; i++) {
		int status = app_wait(&s[i]);

		wrong += status && status != RCS_ERR_PEER_GONE;
		wrong += !status && gone; /* what was sent before has not arrived */
		ok += !status;
		gone += status == RCS_ERR_PEER_GONE;
	}
	wrong += !gone && !rc;
	printf("leave: %u messages, %u requests told so, %u wrong\n", ok, gone + (rc != 0), wrong);
	leave();
}

int main(int argc, char **argv)
{
	bool senders = argc > 1 && !strcmp(argv[1], "senders");

	if (!senders && (argc < 2 || strcmp(argv[1], "receiver")))
		return 2;
	app_open(0);
	if (app.size < 2)
		app_die("it takes two ranks");
	if (senders)
		app.rank ? sends_and_leaves() : stays_for_messages();
	else
		app.rank ? sends_too_much() : leaves_untaken();
	rcs_fini(app.ctx);
	return 0;
}
