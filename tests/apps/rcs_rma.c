/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank puts into, gets from and does atomics on the windows of every rank (two each: memory of
 * rcs_alloc and of malloc), and sends it messages; several of each at a time, driven by completions.
 *
 *	rcs_rma [--seconds S] [--kind put|get|atomic|message|mixed] [--max BYTES] [--region | --no-region]
 *		[--replay] [--helper] [--errors] [--shut N] [--hold]
 *
 * A put goes into a slot that is the source's, with RCS_PUT_NOTIFY; the target checks each byte,
 * poisons the slot and acknowledges it. Notifications and messages of a source have numbers, one order
 * for both. A get reads what never changes, or (mixed) back what a put wrote whose end was told.
 * Atomics claim values of a counter: at the end its owner has seen each value claimed once.
 *
 * Rank 0 prints progress and at the end
 *
 *	rma: N puts, N gets, N atomics, N messages, 0 lost, 0 doubled, 0 damaged, 0 wrong
 *
 * --errors: each rank also makes requests that must fail, one at a time, and checks how. Afterwards each
 * closes a region that all others are putting into: nothing writes there any more. SIGUSR1 to
 * one rank or all ends the load before its time. --shut: nobody else may read or write the memory of ranks
 * whose number N divides. --hold: rank 0 says "ready", and the load begins with SIGUSR2 to all ranks.
 */
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include "rma_load.h"

static volatile sig_atomic_t told_to_stop;

/* --- requests that must fail --------------------------------------------------------------------- */

static void error_returned(const char *name, int rc, int expect)
{
	errors_made++;
	if (rc == expect)
		return;
	fprintf(stderr, "rank %u: %s: %s instead of %s\n", app.rank, name, rcs_status_name(rc),
		rcs_status_name(expect));
	wrong++;
}

static void error_post(int rc, int expect)
{
	error_req.kind = R_ERROR;
	error_req.expect = expect;
	if (rc == RCS_ERR_AGAIN)
		return;
	error_started++;
	if (!rc) {
		error_req.busy = true;
		under_way++;
		return;
	}
	error_returned("a request that should only fail later", rc, 0);
}

/* Case after case, each rank in turn; those that end by a completion one at a time. */
static void error_next(void)
{
	uint32_t to = (uint32_t)(error_turn / 12 % app.size);
	struct other *o = &others[to];
	struct rcs_rma r = {.buf = error_req.buf, .len = 8, .key = &o->keys.window[1],
		.peer = app_peer(to), .context = &error_req};
	struct rcs_atomic a = {.op = RCS_ATOMIC_ADD, .size = 8, .operand = 1, .key = &o->keys.window[0],
		.peer = r.peer, .offset = 2048, .context = &error_req};
	struct rcs_key bad = o->keys.window[1];
	uint64_t before = error_started;

	switch (error_turn % 12) {
	case 0: /* damaged */
		bad.bytes[20] ^= 1;
		r.key = &bad;
		error_returned("a damaged key", rcs_put(app.ep, &r), RCS_ERR_INVALID);
		break;
	case 1:
		r.peer = app_peer((to + 1) % app.size);
		error_returned("another's key", rcs_get(app.ep, &r), RCS_ERR_INVALID);
		break;
	case 2:
		r.offset = window_size - 7;
		error_returned("a put out of range", rcs_put(app.ep, &r), RCS_ERR_ACCESS);
		break;
	case 3:
		r.offset = UINT64_MAX - 3;
		error_returned("a get that wraps", rcs_get(app.ep, &r), RCS_ERR_ACCESS);
		break;
	case 4:
		a.offset = 2050;
		error_returned("a misaligned atomic", rcs_atomic(app.ep, &a), RCS_ERR_INVALID);
		break;
	case 5:
		a.key = &o->keys.window[1];
		error_returned("an atomic on memory of malloc", rcs_atomic(app.ep, &a), RCS_ERR_INVALID);
		break;
	case 6:
		a.offset = (window_size + 4095) & ~(size_t)4095;
		error_returned("an atomic out of range", rcs_atomic(app.ep, &a), RCS_ERR_ACCESS);
		break;
	case 7:
		r.key = &o->keys.closed[1];
		error_post(rcs_put(app.ep, &r), RCS_ERR_ACCESS);
		break;
	case 8:
		r.key = &o->keys.closed[0];
		r.len = 4096 + 2048;
		r.len = r.len < slot_size ? r.len : slot_size;
		error_post(rcs_get(app.ep, &r), RCS_ERR_ACCESS);
		break;
	case 9:
		a.key = &o->keys.closed[0];
		error_post(rcs_atomic(app.ep, &a), RCS_ERR_ACCESS);
		break;
	case 10:
		r.len = 0;
		r.offset = window_size;
		error_post(rcs_put(app.ep, &r), RCS_OK);
		break;
	default:
		r.len = 0;
		r.key = &o->keys.closed[1];
		error_post(rcs_get(app.ep, &r), RCS_ERR_ACCESS);
		break;
	}
	if (error_turn % 12 < 7 || error_started != before)
		error_turn++;
}

/* --- completions ---------------------------------------------------------------------------------- */

static void claim(struct other *o, unsigned counter, uint64_t value)
{
	struct values *l = &o->claimed[counter];

	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 256;
		l->v = realloc(l->v, l->cap * sizeof(*l->v));
		APP_CHECK(l->v);
	}
	l->v[l->n++] = value;
}

static void put_arrived(uint32_t rank, uint64_t data)
{
	struct other *o = &others[rank];
	uint64_t seq = data & ((1ull << 40) - 1);
	size_t len = data >> 40;
	uint8_t *slot = window[seq & 1] + at_slot(rank, seq);
	struct req *q = calloc(1, sizeof(*q));
	struct rcs_msg m = {.flags = RCS_SEND_DATA, .tag = TAG_ACK, .data = seq, .peer = app_peer(rank),
		.context = q};
	bool good;
	int rc;

	if (seq != o->next_put)
		wrong++;
	o->next_put = seq + 1;
	good = len <= opt.max && is_pattern(slot, len, rank, app.rank, seq, 0);
	for (size_t i = 0; good && i < GUARD; i++)
		good = slot[len + i] == POISON;
	damaged += !good;
	puts_n++;
	memset(slot, POISON, len <= opt.max ? len : 0);
	/* the slot is the source's again */
	q->kind = R_ACKED;
	q->rank = rank;
	while ((rc = rcs_send(app.ep, &m)) == RCS_ERR_AGAIN)
		;
	posted(rc, q);
}

static void item_arrived(struct req *q, const struct rcs_completion *c)
{
	struct other *o = &others[q->rank];
	uint64_t item = c->tag >> 8 & ((1ull << 40) - 1);

	if (c->source_rank != q->rank || !c->has_data)
		wrong++;
	if (item > o->next_item)
		lost += item - o->next_item;
	else if (item < o->next_item)
		doubled++;
	if (item >= o->next_item)
		o->next_item = item + 1;
	switch (c->tag & 0xff) {
	case ITEM_NOTE:
		put_arrived(q->rank, c->data);
		break;
	case ITEM_MSG:
		if (c->data != o->next_msg++)
			wrong++;
		damaged += !is_pattern(q->buf, c->len, q->rank, app.rank, c->data, 8);
		messages_n++;
		break;
	default:
		o->ended = true;
		told_to_stop = 1; /* whoever ends first ends it for all */
		return;		  /* nothing comes after it */
	}
	item_recv(q->rank);
}

static void got(struct req *q)
{
	if (q->kind == R_ECHO) {
		q->kind = R_GET;
		memset(q->buf, POISON, q->len + GUARD);
		while (!post_rma(q, 0, 0))
			;
		return;
	}
	if (q->guess)
		damaged += !is_pattern(q->buf, q->len, app.rank, q->rank, ~q->seq, 0);
	else
		damaged += !is_pattern(q->buf, q->len, q->rank, q->rank, 0, q->value);
	for (size_t i = 0; i < GUARD; i++)
		if (q->buf[q->len + i] != POISON) {
			damaged++;
			break;
		}
	gets_n++;
}

static void completed(const struct rcs_completion *c)
{
	struct req *q = c->context;
	struct other *o;
	uint64_t seq = c->data;

	if (q->kind == R_ERROR) {
		error_returned("a request that must fail", c->status, q->expect);
		q->busy = false;
		under_way--;
		return;
	}
	if (c->status)
		app_die("a request of kind %d to rank %u, %zu bytes, ended with %s (%s)", q->kind, q->rank,
			q->len, rcs_status_name(c->status), rcs_status_text(c->status));
	if (q->kind == R_ITEM) {
		item_arrived(q, c);
		return;
	}
	if (q->kind == R_ACK) {
		struct req *p = &others[c->source_rank].put[seq % DEPTH];

		if (!p->unseen || p->seq != seq)
			wrong++;
		p->unseen = false;
		acks_recv(q);
		return;
	}
	if (!q->busy)
		app_die("a request of kind %d completed twice", q->kind);
	q->busy = false;
	under_way--;
	o = &others[q->rank];
	o->done++;
	switch (q->kind) {
	case R_ECHO:
	case R_GET:
		got(q);
		break;
	case R_ADD8:
	case R_ADD4:
		claim(o, q->kind - R_ADD8, q->value);
		atomics_n++;
		break;
	case R_CSWAP:
		if (q->value == q->guess)
			claim(o, 2, q->value);
		o->guess = q->value + (q->value == q->guess);
		atomics_n++;
		break;
	case R_ACKED:
		free(q);
		break;
	default:
		break;
	}
}

/* --- the load ------------------------------------------------------------------------------------- */

static bool idle(const struct other *o)
{
	for (unsigned i = 0; i < DEPTH; i++)
		if (o->put[i].unseen)
			return false;
	return true;
}

static void issue(uint32_t rank)
{
	struct other *o = &others[rank];

	if (stopping) {
		if (!o->end_sent && (o->end.kind = R_END, message_post(&o->end, ITEM_END, 0)))
			o->end_sent = true;
		return;
	}
	if (opt.kind & PUTS)
		while (put_next(rank))
			;
	for (unsigned i = 0; i < SIDE; i++) {
		if (opt.kind & GETS)
			get_next(rank, i);
		if (opt.kind & ATOMICS)
			atomic_next(rank, i);
		if (opt.kind & MESSAGES)
			message_next(rank, i);
	}
	/* the owner counts too, by C11 */
	if (opt.kind & ATOMICS && rank == app.rank)
		claim(o, 0, atomic_fetch_add((_Atomic uint64_t *)(void *)window[0], 1));
}

static bool finished(void)
{
	if (!stopping || under_way)
		return false;
	for (uint32_t i = 0; i < app.size; i++)
		if (!others[i].ended || !others[i].end_sent || !idle(&others[i]))
			return false;
	return true;
}

static void report(uint64_t start)
{
	static uint64_t round, told, before, longest;
	uint64_t now = app_now(), least = UINT64_MAX;

	for (uint32_t i = 0; i < app.size; i++)
		if (others[i].done < least)
			least = others[i].done;
	if (least > round) {
		if (before && now - before > longest)
			longest = now - before;
		before = now;
	}
	if (!app.rank && least > round && now - told > 250000000ull) {
		printf("round %llu, %zu bytes, %.1f s, longest round %.1f ms\n", (unsigned long long)least,
			opt.max, (double)(now - start) / 1e9, (double)longest / 1e6);
		told = now;
		longest = 0;
	}
	round = least;
}

static void run(void)
{
	uint64_t start = app_now();
	struct rcs_completion c[64];
	int n;

	for (uint32_t i = 0; i < app.size; i++)
		item_recv(i);
	for (unsigned i = 0; i < 2 * DEPTH; i++)
		acks_recv(&ack_recv[i]);
	while (!finished()) {
		/* the error cases were all made, whatever the time */
		stopping = stopping || ((told_to_stop || (double)(app_now() - start) / 1e9 >= opt.seconds) &&
			(!opt.errors || error_turn >= 12ull * app.size));
		for (uint32_t i = 0; i < app.size; i++)
			issue((app.rank + i) % app.size);
		if (opt.errors && !stopping && !error_req.busy)
			error_next();
		if (finished())
			break;
		n = rcs_cq_wait(app.cq, c, 64, APP_WAIT_MS);
		if (n < 0)
			app_die("%s after %d s: %llu requests under way", rcs_status_name(n), APP_WAIT_MS / 1000,
				(unsigned long long)under_way);
		for (int i = 0; i < n; i++)
			completed(&c[i]);
		report(start);
	}
}

/* --- at the end ----------------------------------------------------------------------------------- */

/* Each value of my counter was claimed by one request, and it has counted them all. */
static void counter_check(unsigned counter)
{
	const uint8_t *at = window[0] + counter * 64;
	uint64_t final = counter == 1 ? *(const uint32_t *)(const void *)at :
		*(const uint64_t *)(const void *)at;
	uint8_t *seen = calloc(1, final + 1);
	uint64_t total = 0;

	APP_CHECK(seen);
	for (uint32_t i = 0; i < app.size; i++) {
		uint32_t from = (app.rank + app.size - i) % app.size, to = (app.rank + i) % app.size;
		const struct values *mine = &others[to].claimed[counter];
		uint64_t mine_n = mine->n, n, *v;
		struct app_req s[2], r[2];

		app_recv(&n, 8, from, TAG_OLD, &r[0]);
		app_send(&mine_n, 8, to, TAG_OLD, &s[0]);
		app_send(mine->v, mine_n * 8, to, TAG_OLD | 1, &s[1]);
		app_wait_ok(&r[0]);
		v = malloc(n * 8 + 1);
		APP_CHECK(v);
		app_recv(v, n * 8, from, TAG_OLD | 1, &r[1]);
		app_wait_ok(&r[1]);
		app_wait_ok(&s[0]);
		app_wait_ok(&s[1]);
		for (uint64_t k = 0; k < n; k++)
			if (v[k] >= final || seen[v[k]]++)
				wrong++;
		total += n;
		free(v);
	}
	if (total != final) {
		fprintf(stderr, "rank %u: counter %u is %llu after %llu increments\n", app.rank, counter,
			(unsigned long long)final, (unsigned long long)total);
		wrong++;
	}
	free(seen);
}

/* --- a region that closes under the puts of others ------------------------------------------------- */

#define CLOSE_LEN 65536u

/* The next put to that rank when the last has ended; true: none. After the first ACCESS one more must
 * end so. */
static bool put_until_closed(const struct rcs_key *key, uint32_t rank, uint8_t *from, struct app_req *q,
	unsigned *refused)
{
	struct rcs_rma r = {.buf = from, .len = CLOSE_LEN, .key = key, .peer = app_peer(rank), .context = q};
	int rc;

	if (q->c.status == RCS_ERR_ACCESS)
		++*refused;
	else if (q->c.status || *refused)
		error_returned("a put into a region that closes", q->c.status, RCS_ERR_ACCESS);
	errors_made++;
	if (*refused == 2)
		return true;
	*q = (struct app_req){0};
	while ((rc = rcs_put(app.ep, &r)) == RCS_ERR_AGAIN)
		app_progress(0);
	APP_OK(rc);
	return false;
}

static void close_under_puts(void)
{
	struct app_req *q = calloc(app.size, sizeof(*q)), s, r;
	struct rcs_key *keys = calloc(app.size, sizeof(*keys)), mine;
	volatile uint8_t *mem = calloc(1, CLOSE_LEN);
	uint8_t *from = malloc(CLOSE_LEN);
	unsigned *refused = calloc(app.size, sizeof(*refused));
	struct rcs_error err = {0};
	rcs_region *region;
	uint32_t left = app.size;
	bool closed = false;

	APP_CHECK(q && keys && mem && from && refused);
	memset(from, 0x11, CLOSE_LEN);
	rcs_ok(rcs_region_open(app.ctx, (void *)(uintptr_t)mem, CLOSE_LEN, &region, &err), &err);
	rcs_ok(rcs_region_key(region, app.ep, &mine, &err), &err);
	for (uint32_t i = 0; i < app.size; i++) {
		app_recv(&keys[(app.rank + app.size - i) % app.size], sizeof(mine),
			(app.rank + app.size - i) % app.size, TAG_KEYS, &r);
		app_send(&mine, sizeof(mine), (app.rank + i) % app.size, TAG_KEYS, &s);
		app_wait_ok(&s);
		app_wait_ok(&r);
	}
	for (uint32_t i = 0; i < app.size; i++)
		q[i].done = true;
	while (left || !closed) {
		for (uint32_t i = 0; i < app.size; i++)
			if (refused[i] < 2 && q[i].done)
				left -= put_until_closed(&keys[i], i, from, &q[i], &refused[i]);
		/* the last of what others have put so far */
		if (!closed && mem[CLOSE_LEN - 1]) {
			APP_OK(rcs_region_close(region));
			closed = true;
			memset((void *)(uintptr_t)mem, POISON, CLOSE_LEN);
		}
		app_progress(1);
	}
	app_barrier();
	for (size_t i = 0; i < CLOSE_LEN; i++)
		if (mem[i] != POISON) {
			fprintf(stderr, "rank %u: a closed region was written at byte %zu\n", app.rank, i);
			damaged++;
			break;
		}
	free((void *)(uintptr_t)mem);
	free(from);
	free(keys);
	free(refused);
	free(q);
}

static void options(int argc, char **argv)
{
	static const char *const kinds[] = {"put", "get", "atomic", "message"};
	static const struct option longs[] = {
		{"seconds", required_argument, NULL, 's'}, {"kind", required_argument, NULL, 'k'},
		{"max", required_argument, NULL, 'M'}, {"region", no_argument, NULL, 'r'},
		{"no-region", no_argument, NULL, 'R'}, {"replay", no_argument, NULL, 'p'},
		{"helper", no_argument, NULL, 'h'}, {"errors", no_argument, NULL, 'e'},
		{"shut", required_argument, NULL, 'd'}, {"hold", no_argument, NULL, 'H'}, {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 's':
			opt.seconds = atof(optarg);
			break;
		case 'k':
			opt.kind = strcmp(optarg, "mixed") ? 0 : MIXED;
			for (unsigned i = 0; i < 4; i++)
				if (!strcmp(optarg, kinds[i]))
					opt.kind = 1u << i;
			if (!opt.kind)
				app_die("--kind is put, get, atomic, message or mixed");
			break;
		case 'M':
			opt.max = app_number(optarg);
			break;
		case 'r':
		case 'R':
			opt.region = c == 'r';
			break;
		case 'p':
			opt.replay = true;
			break;
		case 'h':
			opt.flags |= RCS_INIT_HELPER;
			break;
		case 'e':
			opt.errors = true;
			break;
		case 'd':
			opt.shut = (uint32_t)app_number(optarg);
			break;
		case 'H':
			opt.hold = true;
			app_hold();
			break;
		default:
			exit(2);
		}
	if (opt.max < 8 || opt.max >= 1u << 24)
		app_die("--max is from 8 to 16777215 bytes");
}

static void requests_make(void)
{
	others = calloc(app.size, sizeof(*others));
	for (uint32_t i = 0; i < app.size; i++) {
		struct other *o = &others[i];

		for (unsigned k = 0; k < DEPTH; k++)
			o->put[k] = (struct req){.rank = i, .buf = buffer()};
		for (unsigned k = 0; k < SIDE; k++) {
			o->get[k] = (struct req){.rank = i, .buf = buffer()};
			o->msg[k] = (struct req){.rank = i, .buf = buffer()};
			o->atomic[k].rank = i;
		}
		o->item = (struct req){.rank = i, .buf = buffer()};
		o->end.rank = i;
	}
	error_req.buf = buffer();
}

static void on_signal(int sig)
{
	(void)sig;
	told_to_stop = 1;
}

int main(int argc, char **argv)
{
	uint64_t total[9];
	bool ok;

	options(argc, argv);
	signal(SIGUSR1, on_signal);
	app_open(opt.flags);
	if (opt.shut && app.rank % opt.shut == 0)
		APP_CHECK(!prctl(PR_SET_DUMPABLE, 0));
	memory_open();
	requests_make();
	keys_exchange();
	app_barrier();
	if (opt.hold)
		app_wait_for_go();
	run();
	app_barrier();
	for (unsigned i = 0; i < COUNTERS; i++)
		counter_check(i);
	if (opt.errors)
		close_under_puts();
	/* whatever is still there came twice */
	for (rcs_claim *c; rcs_probe(app.ep, NULL, TAG_ITEM, (1ull << 56) - 1, NULL, &c) == 1;)
		doubled++;
	ok = !lost && !doubled && !damaged && !wrong;
	memcpy(total, (uint64_t[]){puts_n, gets_n, atomics_n, messages_n, lost, doubled, damaged, wrong,
		errors_made}, sizeof(total));
	app_sum(total, 9);
	if (app.rank == 0) {
		if (opt.errors)
			printf("errors: %llu cases\n", (unsigned long long)total[8]);
		printf("rma: %llu puts, %llu gets, %llu atomics, %llu messages, %llu lost, %llu doubled, %llu "
			"damaged, %llu wrong\n", (unsigned long long)total[0], (unsigned long long)total[1],
			(unsigned long long)total[2], (unsigned long long)total[3], (unsigned long long)total[4],
			(unsigned long long)total[5], (unsigned long long)total[6], (unsigned long long)total[7]);
	}
	fflush(stdout);
	app_close();
	return ok ? 0 : 1;
}
