/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma_load.h - what rcs_rma works on: the windows, what is known of each other rank, and how a request
 * of each kind is posted.
 */
#ifndef RCS_TESTS_RMA_LOAD_H
#define RCS_TESTS_RMA_LOAD_H

#include "app.h"

#define DEPTH	4u /* puts under way to a peer; half of them in each window */
#define SIDE	2u /* gets, atomics, messages under way to a peer */
#define COUNTERS 3u /* of a rank: fetch-add of 8 and of 4 bytes, compare-and-swap */
#define GUARD	64u
#define POISON	0xa5

#define TAG_ITEM (5ull << 56) /* | item << 8 | what; item counts what a source sends to a target */
#define TAG_ACK	 (6ull << 56)
#define TAG_KEYS (7ull << 56)
#define TAG_OLD	 (8ull << 56)
enum { ITEM_NOTE, ITEM_MSG, ITEM_END };

enum { PUTS = 1, GETS = 2, ATOMICS = 4, MESSAGES = 8, MIXED = 15 };

static struct {
	double seconds;
	unsigned kind;
	size_t max;
	bool region, replay, errors, hold;
	uint32_t flags, shut;
} opt = {.seconds = 2, .kind = MIXED, .max = 65536};

struct keys {
	struct rcs_key window[2], closed[2]; /* 0: of rcs_alloc */
};

enum req_kind { R_PUT, R_ECHO, R_GET, R_ADD8, R_ADD4, R_CSWAP, R_MSG, R_END, R_ITEM, R_ACK, R_ACKED, R_ERROR };

struct req {
	enum req_kind kind;
	bool busy;   /* not completed */
	bool unseen; /* put: not acknowledged */
	uint32_t rank;
	unsigned where;	 /* which window */
	uint64_t seq, off;
	size_t len;
	uint8_t *buf;
	uint64_t value, guess;
	int expect;
};

struct values {
	uint64_t *v;
	size_t n, cap;
};

struct other {
	struct keys keys;
	struct req put[DEPTH], get[SIDE], atomic[SIDE], msg[SIDE], item, end;
	uint64_t puts, gets, atomics, messages, items; /* posted to it */
	uint64_t done;				       /* completed */
	uint64_t next_item, next_put, next_msg;	       /* expected from it */
	uint64_t guess;
	bool ended, end_sent;
	struct values claimed[COUNTERS];
};

static struct other *others;
static struct req ack_recv[2 * DEPTH], error_req;
static uint8_t *window[2];
static rcs_region *window_region[2], *arena_region;
static uint8_t *arena;
static size_t arena_used, slot_size, window_size;
static uint64_t puts_n, gets_n, atomics_n, messages_n, lost, doubled, damaged, wrong, errors_made;
static uint64_t under_way, error_turn, error_started;
static bool stopping;

/* --- memory ------------------------------------------------------------------------------------- */

/* counters, what never changes, the slots of each source, a place of each source to read back from */
static size_t at_static(void)
{
	return 4096;
}

static size_t at_slot(uint32_t source, uint64_t seq)
{
	return at_static() + slot_size * (1 + source * (DEPTH / 2) + seq % DEPTH / 2);
}

static size_t at_echo(uint32_t source, unsigned i)
{
	return at_static() + slot_size * (1 + app.size * (DEPTH / 2) + source * SIDE + i);
}

static void pattern(uint8_t *p, size_t len, uint32_t src, uint32_t dst, uint64_t seq, size_t from)
{
	for (size_t i = 0; i < len;) {
		uint64_t w = app_word(src, dst, seq, (from + i) / 8);
		size_t at = (from + i) % 8, n = 8 - at < len - i ? 8 - at : len - i;

		memcpy(p + i, (uint8_t *)&w + at, n);
		i += n;
	}
}

/* What is there instead tells who put it there: nothing (zeros, poison), an old answer, or another place. */
static void tell_damage(const uint8_t *p, size_t len, uint32_t src, uint32_t dst, uint64_t seq, size_t from,
	size_t at)
{
	size_t bad = 0, last = at, there = 0;
	uint64_t found = 0;

	for (size_t i = at; i < len; i++) {
		uint64_t w = app_word(src, dst, seq, (from + i) / 8);

		if (p[i] != ((uint8_t *)&w)[(from + i) % 8]) {
			bad++;
			last = i;
		}
	}
	memcpy(&found, p + at, len - at < 8 ? len - at : 8);
	while (there < window_size && app_word(src, dst, seq, there / 8) != found)
		there += 8;
	fprintf(stderr, "rank %u: damage: number %llu of rank %u to rank %u, %zu bytes from %zu on: %zu are wrong, "
		"near byte %zu to %zu; the first are %016llx", app.rank, (unsigned long long)seq, src, dst, len,
		from, bad, at, last, (unsigned long long)found);
	if (there < window_size)
		fprintf(stderr, ", those of byte %zd", (ssize_t)(there - from));
	fprintf(stderr, "\n");
}

static bool is_pattern(const uint8_t *p, size_t len, uint32_t src, uint32_t dst, uint64_t seq, size_t from)
{
	for (size_t i = 0; i < len;) {
		uint64_t w = app_word(src, dst, seq, (from + i) / 8);
		size_t at = (from + i) % 8, n = 8 - at < len - i ? 8 - at : len - i;

		if (memcmp(p + i, (uint8_t *)&w + at, n)) {
			tell_damage(p, len, src, dst, seq, from, i);
			return false;
		}
		i += n;
	}
	return true;
}

/* Small ones are frequent, each size between 0 and the largest occurs. */
static size_t size_of(uint64_t seq)
{
	uint64_t h = app_word(app.rank, 0, seq, 77);
	size_t top = (size_t)8 << (h >> 8) % 24;

	return (h >> 32) % ((top < opt.max ? top : opt.max) + 1);
}

static uint8_t *buffer(void)
{
	uint8_t *p = arena + arena_used;

	arena_used += slot_size;
	return p;
}

static void rcs_ok(int rc, const struct rcs_error *err)
{
	if (rc)
		app_die("%s: %s", rcs_status_name(rc), err->sentence);
}

static void memory_open(void)
{
	size_t bufs = app.size * (DEPTH + SIDE + SIDE + 1) + 1;
	struct rcs_error err = {0};
	void *p;

	slot_size = (opt.max + GUARD + 63) & ~(size_t)63;
	window_size = at_echo(app.size, 0);
	rcs_ok(rcs_alloc(app.ctx, window_size, &p, &window_region[0], &err), &err);
	window[0] = p;
	window[1] = malloc(window_size);
	arena = calloc(bufs, slot_size);
	APP_CHECK(window[1] && arena);
	rcs_ok(rcs_region_open(app.ctx, window[1], window_size, &window_region[1], &err), &err);
	if (opt.region)
		rcs_ok(rcs_region_open(app.ctx, arena, bufs * slot_size, &arena_region, &err), &err);
	for (int w = 0; w < 2; w++) {
		memset(window[w], 0, at_static());
		memset(window[w] + at_static(), POISON, window_size - at_static());
		pattern(window[w] + at_static(), opt.max, app.rank, app.rank, 0, 0);
	}
}

/* Keys of both windows, and of two regions that are closed before anybody hears of them. */
static void keys_exchange(void)
{
	static uint8_t dead[8192];
	struct app_req *s = calloc(app.size, sizeof(*s)), *r = calloc(app.size, sizeof(*r));
	struct rcs_error err = {0};
	rcs_region *gone[2];
	struct keys mine;
	void *p;

	rcs_ok(rcs_alloc(app.ctx, sizeof(dead), &p, &gone[0], &err), &err);
	rcs_ok(rcs_region_open(app.ctx, dead, sizeof(dead), &gone[1], &err), &err);
	for (int w = 0; w < 2; w++) {
		rcs_ok(rcs_region_key(window_region[w], app.ep, &mine.window[w], &err), &err);
		rcs_ok(rcs_region_key(gone[w], app.ep, &mine.closed[w], &err), &err);
		APP_OK(rcs_region_close(gone[w]));
	}
	for (uint32_t i = 0; i < app.size; i++)
		app_recv(&others[i].keys, sizeof(mine), i, TAG_KEYS, &r[i]);
	for (uint32_t i = 0; i < app.size; i++)
		app_send(&mine, sizeof(mine), i, TAG_KEYS, &s[i]);
	for (uint32_t i = 0; i < app.size; i++) {
		app_wait_ok(&s[i]);
		app_wait_ok(&r[i]);
	}
	free(s);
	free(r);
}

/* --- posting -------------------------------------------------------------------------------------- */

/* false: RCS_ERR_AGAIN. Whatever else is wrong is wrong at once. */
static bool posted(int rc, struct req *q)
{
	if (rc == RCS_ERR_AGAIN)
		return false;
	if (rc)
		app_die("a request of kind %d to rank %u: %s", q->kind, q->rank, rcs_status_name(rc));
	q->busy = true;
	under_way++;
	return true;
}

static bool post_rma(struct req *q, uint32_t flags, uint64_t tag)
{
	struct other *o = &others[q->rank];
	struct rcs_rma r = {.buf = q->buf, .len = q->len, .flags = flags, .offset = q->off,
		.key = &o->keys.window[q->where], .peer = app_peer(q->rank), .region = arena_region,
		.tag = tag, .data = (uint64_t)q->len << 40 | q->seq, .context = q};

	if (opt.replay && q->kind != R_GET)
		r.flags |= RCS_PUT_REPLAY;
	return posted(q->kind == R_GET ? rcs_get(app.ep, &r) : rcs_put(app.ep, &r), q);
}

static bool put_next(uint32_t rank)
{
	struct other *o = &others[rank];
	struct req *q = &o->put[o->puts % DEPTH];

	if (q->busy || q->unseen)
		return false;
	q->kind = R_PUT;
	q->seq = o->puts;
	q->where = q->seq & 1;
	q->off = at_slot(app.rank, q->seq);
	q->len = size_of(q->seq);
	pattern(q->buf, q->len, app.rank, rank, q->seq, 0);
	if (!post_rma(q, RCS_PUT_NOTIFY, TAG_ITEM | o->items << 8 | ITEM_NOTE))
		return false;
	q->unseen = true;
	o->puts++;
	o->items++;
	return true;
}

/* Mixed: each second is a put first, which is read back when it has ended. */
static bool get_next(uint32_t rank, unsigned i)
{
	struct other *o = &others[rank];
	struct req *q = &o->get[i];

	if (q->busy)
		return false;
	q->seq = o->gets;
	q->where = q->seq / 2 & 1;
	q->kind = opt.kind & PUTS && q->seq & 1 ? R_ECHO : R_GET;
	q->len = size_of(q->seq + 1000);
	q->guess = q->kind == R_ECHO;
	if (q->kind == R_ECHO) {
		q->off = at_echo(app.rank, i);
		pattern(q->buf, q->len, app.rank, rank, ~q->seq, 0);
	} else {
		q->value = q->seq * 13 % (opt.max - q->len + 1);
		q->off = at_static() + q->value;
		memset(q->buf, POISON, q->len + GUARD);
	}
	if (!post_rma(q, 0, 0))
		return false;
	o->gets++;
	return true;
}

static bool atomic_post(struct req *q)
{
	struct other *o = &others[q->rank];
	struct rcs_atomic a = {.op = q->kind == R_CSWAP ? RCS_ATOMIC_CSWAP : RCS_ATOMIC_ADD,
		.size = q->kind == R_ADD4 ? 4 : 8, .operand = q->kind == R_CSWAP ? q->guess + 1 : 1,
		.compare = q->guess, .result = &q->value, .offset = (uint64_t)(q->kind - R_ADD8) * 64,
		.key = &o->keys.window[0], .peer = app_peer(q->rank), .context = q};

	return posted(rcs_atomic(app.ep, &a), q);
}

static bool atomic_next(uint32_t rank, unsigned i)
{
	struct other *o = &others[rank];
	struct req *q = &o->atomic[i];

	if (q->busy)
		return false;
	q->kind = R_ADD8 + o->atomics % COUNTERS;
	q->guess = o->guess;
	if (!atomic_post(q))
		return false;
	o->atomics++;
	return true;
}

static bool message_post(struct req *q, unsigned what, uint64_t data)
{
	struct other *o = &others[q->rank];
	struct iovec iov = {q->buf, q->len};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .flags = RCS_SEND_DATA, .peer = app_peer(q->rank),
		.tag = TAG_ITEM | o->items << 8 | what, .data = data, .region = arena_region, .context = q};

	if (!posted(rcs_send(app.ep, &m), q))
		return false;
	o->items++;
	return true;
}

static bool message_next(uint32_t rank, unsigned i)
{
	struct other *o = &others[rank];
	struct req *q = &o->msg[i];

	if (q->busy)
		return false;
	q->kind = R_MSG;
	q->seq = o->messages;
	q->len = size_of(q->seq + 2000);
	pattern(q->buf, q->len, app.rank, rank, q->seq, 8);
	if (!message_post(q, ITEM_MSG, q->seq))
		return false;
	o->messages++;
	return true;
}

static void item_recv(uint32_t rank)
{
	struct req *q = &others[rank].item;
	int rc;

	q->kind = R_ITEM;
	while ((rc = rcs_trecv(app.ep, q->buf, slot_size, app_peer(rank), TAG_ITEM, (1ull << 56) - 1, q)) ==
		RCS_ERR_AGAIN)
		;
	APP_OK(rc);
}

static void acks_recv(struct req *q)
{
	q->kind = R_ACK;
	APP_OK(rcs_trecv(app.ep, NULL, 0, NULL, TAG_ACK, (1ull << 56) - 1, q));
}

#endif
