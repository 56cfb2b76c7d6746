/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a put ran twice. A put is idempotent, so memory alone cannot tell: here the target takes what
 * a put wrote as soon as it sees it, and a number that comes again was written again.
 *
 *	rcs_once [--seconds S] [--kind once|twice] [--hold]
 *
 * Rank 0 puts the numbers 1, 2, 3, ... into SLOTS words of rank 1's memory, 8 bytes each; rank 1 looks
 * at them all the time, takes a number by an atomic exchange with 0, counts it and says so. A word is used again
 * when its put has ended and its number was taken. "twice" puts each hundredth number a second time
 * then: the check must see it.
 *
 * A device may write a word byte by byte (soft RoCE does): its upper half is the complement of its lower one,
 * and what does not agree is not there yet.
 *
 * Rank 0 prints progress, rank 1 at the end
 *
 *	once: N puts, 0 lost, 0 doubled, 0 wrong
 *
 * SIGUSR1 to rank 0 ends it before its time. --hold: it says "ready", and the puts begin with SIGUSR2.
 */
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>

#include "app.h"

#define SLOTS	  64u
#define TAG_TAKEN 5ull
#define TAG_TOTAL 6ull
#define TAG_KEY	  7ull

static double seconds = 2;
static bool twice, hold;
static volatile sig_atomic_t told_to_stop;

static void rcs_ok(int rc, const struct rcs_error *err)
{
	if (rc)
		app_die("%s: %s", rcs_status_name(rc), err->sentence);
}

static uint64_t word_of(uint64_t v)
{
	return (uint32_t)v | (uint64_t)(uint32_t)~v << 32;
}

/* --- rank 0 --------------------------------------------------------------------------------------- */

struct slot {
	uint64_t value;
	struct app_req put, taken;
	bool used, again;
};

static void put(struct slot *s, uint32_t i, const struct rcs_key *key, uint64_t *from, rcs_region *region)
{
	struct rcs_rma r = {.buf = &from[i], .len = 8, .offset = i * 8ull, .key = key, .peer = app_peer(1),
		.region = region, .context = &s->put};
	int rc;

	from[i] = word_of(s->value);
	s->put.done = false;
	app_recv(NULL, 0, 1, TAG_TAKEN | s->value << 8, &s->taken);
	while ((rc = rcs_put(app.ep, &r)) == RCS_ERR_AGAIN)
		app_progress(0);
	APP_OK(rc);
}

static bool ended(const struct slot *s)
{
	/* of one that failed, or may have, no number is taken */
	if (!s->put.done || (!s->put.c.status && !s->taken.done))
		return false;
	if (s->put.c.status || s->taken.c.status)
		app_die("put %llu ended with %s", (unsigned long long)s->value,
			rcs_status_name(s->put.c.status ? s->put.c.status : s->taken.c.status));
	return true;
}

static void source(void)
{
	static struct slot slot[SLOTS];
	uint64_t *from = calloc(SLOTS, 8), next = 1, start, told, round = 0;
	struct rcs_error err = {0};
	rcs_region *region;
	struct rcs_key key;
	struct app_req r;
	uint32_t busy = 0;

	APP_CHECK(from);
	rcs_ok(rcs_region_open(app.ctx, from, SLOTS * 8, &region, &err), &err);
	app_recv(&key, sizeof(key), 1, TAG_KEY, &r);
	app_wait_ok(&r);
	if (hold)
		app_wait_for_go();
	start = told = app_now();
	for (;;) {
		bool stop = told_to_stop || (double)(app_now() - start) / 1e9 >= seconds;

		for (uint32_t i = 0; i < SLOTS; i++) {
			struct slot *s = &slot[i];

			if (s->used && !ended(s))
				continue;
			if (s->used && twice && s->value % 100 == 0 && !s->again) {
				s->again = true;
				put(s, i, &key, from, region);
				continue;
			}
			busy -= s->used;
			s->used = s->again = false;
			if (stop)
				continue;
			s->used = true;
			busy++;
			s->value = next++;
			put(s, i, &key, from, region);
		}
		if (stop && !busy)
			break;
		if (!app_progress(APP_WAIT_MS))
			app_die("nothing completed for %d s", APP_WAIT_MS / 1000);
		if (next > round + SLOTS && app_now() - told > 250000000ull) {
			told = app_now();
			round = next;
			printf("round %llu, %.1f s\n", (unsigned long long)next, (double)(told - start) / 1e9);
		}
	}
	next--;
	app_send(&next, 8, 1, TAG_TOTAL, &r);
	app_wait_ok(&r);
	app_barrier();
	APP_OK(rcs_region_close(region));
	free(from);
}

/* --- rank 1 --------------------------------------------------------------------------------------- */

static uint8_t *count; /* of each number, how often it was taken */
static uint64_t counted;
static uint64_t wrong;

static void taken(uint64_t v)
{
	int rc;

	if (v >= counted) {
		uint64_t n = v * 2 + 1024;

		count = realloc(count, n);
		APP_CHECK(count);
		memset(count + counted, 0, n - counted);
		counted = n;
	}
	if (count[v] < UINT8_MAX)
		count[v]++;
	/* Once more for the one that was put twice on purpose, else a message that nobody receives. */
	if (count[v] > 1 && !twice)
		return;
	while ((rc = rcs_inject(app.ep, "", 0, app_peer(0), TAG_TAKEN | v << 8, 0, 0)) == RCS_ERR_AGAIN)
		app_progress(0);
	APP_OK(rc);
}

static void scan(_Atomic uint64_t *word)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		uint64_t v = atomic_load_explicit(&word[i], memory_order_relaxed);

		if (v != word_of(v))
			continue;
		if (atomic_exchange(&word[i], 0) != v)
			wrong++;
		else
			taken((uint32_t)v);
	}
}

static bool target(void)
{
	uint64_t total = 0, lost = 0, doubled = 0;
	struct app_req r, end;
	struct rcs_error err = {0};
	rcs_region *region;
	struct rcs_key key;
	void *mem;

	rcs_ok(rcs_alloc(app.ctx, SLOTS * 8, &mem, &region, &err), &err);
	rcs_ok(rcs_region_key(region, app.ep, &key, &err), &err);
	app_send(&key, sizeof(key), 0, TAG_KEY, &r);
	app_recv(&total, 8, 0, TAG_TOTAL, &end);
	while (!end.done) {
		scan(mem);
		app_progress(1);
	}
	APP_CHECK(!end.c.status && r.done);
	app_barrier();
	scan(mem); /* whatever ran again after its end */
	for (uint64_t v = 1; v < counted || v <= total; v++) {
		uint8_t n = v < counted ? count[v] : 0;

		wrong += n && v > total;
		lost += !n && v <= total;
		doubled += n > 1;
	}
	printf("once: %llu puts, %llu lost, %llu doubled, %llu wrong\n", (unsigned long long)total,
		(unsigned long long)lost, (unsigned long long)doubled, (unsigned long long)wrong);
	rcs_free(region);
	free(count);
	return !lost && !doubled && !wrong;
}

static void on_signal(int sig)
{
	(void)sig;
	told_to_stop = 1;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"seconds", required_argument, NULL, 's'}, {"kind", required_argument, NULL, 'k'},
		{"hold", no_argument, NULL, 'H'}, {NULL, 0, NULL, 0},
	};
	bool ok = true;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 's':
			seconds = atof(optarg);
			break;
		case 'k':
			twice = !strcmp(optarg, "twice");
			break;
		case 'H':
			hold = true;
			app_hold();
			break;
		default:
			return 2;
		}
	signal(SIGUSR1, on_signal);
	app_open(0);
	if (app.size != 2)
		app_die("it takes two ranks");
	if (app.rank)
		ok = target();
	else
		source();
	app_close();
	return ok ? 0 : 1;
}
