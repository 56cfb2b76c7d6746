/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An application that survives the loss of a node with a spare: the example of docs/nodes.md.
 *
 *	srun --no-kill -K0 --mpi=pmix --rcshare=on,spares=1 ... rcs_ckpt --result FILE
 *	     [--iterations N] [--every N] [--cells N] [--hold FILE]
 *
 * The ranks are a ring of cells. In each iteration a cell becomes a mixture of itself and its two
 * neighbours, so that every cell of the end depends on all of the beginning. After every N iterations each rank
 * keeps its cells, and puts a copy into the memory of its buddy, the same rank of the next node.
 *
 * A node is lost: whoever waits for something gives up and waits for the replacement. Then all meet, the
 * replacements too, agree on the last checkpoint that everybody has, take it back (the replacements get
 * it from their buddies) and go on from there. Rank 0 writes one line to FILE; it is the same with and
 * without losses.
 *
 *	epoch	how often any rank has been replaced. It is in the tag of every message, so that nothing from
 *		before a loss is taken for something after it.
 *
 * --hold: rank 0 stops half way until that file exists.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rcshare.h"

#define NONE UINT32_MAX

enum kind { EDGE_LEFT, EDGE_RIGHT, KEY, UP, DOWN }; /* of messages */

struct slot { /* a checkpoint */
	uint64_t number; /* it is of iteration number * every; 0: none */
	uint64_t cell[];
};

static struct {
	uint64_t iterations, every;
	size_t cells;
	const char *result, *hold;
} opt = {400, 20, 500, NULL, NULL};

static rcs_ctx *ctx;
static rcs_cq *cq;
static rcs_ep *ep;
static rcs_region *region;
static uint32_t rank, size, per_node;

static struct peer {
	rcs_peer *peer;
	uint32_t incarnation;
	bool lost; /* and not replaced yet */
} *peer;	   /* [size] */
static uint32_t lost;	/* ranks of them */
static bool disturbed;	/* somebody was lost or replaced since all met */
static uint64_t epoch;

/* Memory that others write into: two checkpoints of a rank of the node before, then two of our own. */
static uint8_t *window;
static size_t slot_size;
static struct rcs_key buddy_key;
static uint64_t committed; /* number of the last checkpoint that everybody has */
static uint64_t *cell, *next;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %u: ", rank);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(2);
}

static struct slot *own_slot(uint64_t number)
{
	return (struct slot *)(void *)(window + (2 + number % 2) * slot_size);
}

/* --- losses --------------------------------------------------------------------------------------- */

/* rcs_lookup may have known before the event was read. */
static bool is_known(const struct rcs_event *ev)
{
	const struct peer *p = &peer[ev->first_rank];

	if (ev->code == RCS_EVENT_NODE_LOST)
		return ev->incarnation < p->incarnation;
	return ev->incarnation <= p->incarnation && !p->lost;
}

static void on_event(const struct rcs_event *ev, void *arg)
{
	bool gone = ev->code == RCS_EVENT_NODE_LOST;
	uint32_t last = ev->first_rank + ev->ranks - 1;

	(void)arg;
	if ((!gone && ev->code != RCS_EVENT_NODE_REPLACED) || ev->index == NONE || is_known(ev))
		return;
	printf("rank %u: node %s has %s ranks %u to %u, incarnation %u\n", rank, ev->peer_host,
		gone ? "lost" : "taken over", ev->first_rank, last, ev->incarnation);
	if (gone && ev->spare == NONE)
		die("no spare is left for ranks %u to %u", ev->first_rank, last);
	disturbed = true;
	for (uint32_t r = ev->first_rank; r <= last; r++) {
		lost += gone && !peer[r].lost;
		lost -= !gone && peer[r].lost;
		peer[r] = (struct peer){.incarnation = ev->incarnation, .lost = gone};
	}
}

/* --- requests ------------------------------------------------------------------------------------- */

struct request {
	bool done;
	int status;
};

static void progress(int timeout_ms)
{
	struct rcs_completion c[16];
	int n = rcs_cq_wait(cq, c, 16, timeout_ms);

	if (n < 0 && n != RCS_ERR_TIMEOUT)
		die("completion queue: %s", rcs_status_text(n));
	for (int i = 0; i < n; i++) {
		struct request *q = c[i].context;

		q->done = true;
		q->status = c[i].status;
	}
}

static uint64_t tag(enum kind kind, uint64_t iteration)
{
	return epoch << 40 | iteration << 8 | kind;
}

/*
 * Functions that need others return false when the ring is disturbed: then everybody meets anew. What is
 * sent is small: the library copies it, and there is no request to wait for.
 */
static bool tell(uint32_t to, const void *buf, size_t len, uint64_t t)
{
	int rc;

	while (!disturbed && (rc = rcs_inject(ep, buf, len, peer[to].peer, t, 0, 0)) != RCS_OK) {
		if (rc != RCS_ERR_AGAIN && rc != RCS_ERR_NODE_LOST)
			die("send to rank %u: %s", to, rcs_status_text(rc));
		progress(10); /* NODE_LOST: the event is about to come */
	}
	return !disturbed;
}

static bool hear(uint32_t from, void *buf, size_t len, uint64_t t)
{
	struct request q = {.done = false};
	int rc;

	while (!disturbed && (rc = rcs_trecv(ep, buf, len, peer[from].peer, t, 0, &q)) != RCS_OK) {
		if (rc != RCS_ERR_AGAIN && rc != RCS_ERR_NODE_LOST)
			die("receive from rank %u: %s", from, rcs_status_text(rc));
		progress(10);
	}
	if (disturbed)
		return false;
	while (!q.done && !disturbed)
		progress(100);
	if (!q.done)
		rcs_cancel(ep, &q);
	while (!q.done)
		progress(100);
	if (q.status == RCS_OK)
		return true;
	if (q.status != RCS_ERR_CANCELED && q.status != RCS_ERR_NODE_LOST)
		die("receive from rank %u: %s", from, rcs_status_text(q.status));
	while (!disturbed)
		progress(100);
	return false;
}

/* One-sided requests end by themselves, well or with their node. A copy that is written twice is the same copy. */
static bool move(bool put, struct slot *s, uint64_t number)
{
	uint32_t buddy = (rank + per_node) % size;
	struct request q = {.done = false};
	struct rcs_rma r = {.buf = s, .len = slot_size, .offset = number % 2 * slot_size, .key = &buddy_key,
		.peer = peer[buddy].peer, .region = region, .context = &q, .flags = put ? RCS_PUT_REPLAY : 0};
	int rc;

	while (!disturbed && (rc = put ? rcs_put(ep, &r) : rcs_get(ep, &r)) != RCS_OK) {
		if (rc != RCS_ERR_AGAIN && rc != RCS_ERR_NODE_LOST)
			die("checkpoint at rank %u: %s", buddy, rcs_status_text(rc));
		progress(10);
	}
	if (disturbed)
		return false;
	while (!q.done)
		progress(100);
	if (q.status && q.status != RCS_ERR_NODE_LOST)
		die("checkpoint at rank %u: %s", buddy, rcs_status_text(q.status));
	while (q.status && !disturbed)
		progress(100);
	return !disturbed;
}

/* Of all ranks' numbers rank 0 gets the greatest, v[0], and the sum, v[1]. */
static bool gather(uint64_t mine, uint64_t round, uint64_t v[2])
{
	uint64_t in;

	v[0] = v[1] = mine;
	if (rank)
		return tell(0, &mine, sizeof(mine), tag(UP, round));
	for (uint32_t r = 1; r < size; r++) {
		if (!hear(r, &in, sizeof(in), tag(UP, round)))
			return false;
		v[0] = in > v[0] ? in : v[0];
		v[1] += in;
	}
	return true;
}

static bool spread(uint64_t round, uint64_t v[2])
{
	if (rank)
		return hear(0, v, 2 * sizeof(*v), tag(DOWN, round));
	for (uint32_t r = 1; r < size; r++)
		if (!tell(r, v, 2 * sizeof(*v), tag(DOWN, round)))
			return false;
	return true;
}

/* All ranks get the greatest of their numbers. Also a barrier. */
static bool agree(uint64_t mine, uint64_t round, uint64_t *greatest)
{
	uint64_t v[2];

	if (!gather(mine, round, v) || !spread(round, v))
		return false;
	*greatest = v[0];
	return true;
}

/* --- checkpoints ----------------------------------------------------------------------------------- */

/* The one before is overwritten two checkpoints later, when everybody is known to have this one. */
static bool checkpoint(uint64_t number, uint64_t round)
{
	struct slot *s = own_slot(number);
	uint64_t greatest;

	s->number = number;
	memcpy(s->cell, cell, opt.cells * sizeof(*cell));
	if (!move(true, s, number) || !agree(number, round, &greatest))
		return false;
	committed = number;
	return true;
}

static void begin(void)
{
	for (size_t i = 0; i < opt.cells; i++)
		cell[i] = (rank * opt.cells + i) * 0x9e3779b97f4a7c15ull;
}

/* Finds everybody, where they are now. */
static bool find_all(void)
{
	struct rcs_error err;
	struct rcs_peer_info info, own;

	progress(0);
	while (lost)
		progress(100);
	disturbed = false;
	epoch = per_node = 0;
	for (uint32_t r = 0; r < size; r++) {
		int rc = peer[r].peer ? RCS_OK : rcs_lookup(ep, r, &peer[r].peer, &err);

		if (rc && rc != RCS_ERR_NODE_LOST)
			die("rank %u: %s", r, err.sentence);
		while (rc && !disturbed)
			progress(100);
		if (disturbed)
			return false;
		rcs_peer_query(peer[r].peer, &info);
		peer[r].incarnation = info.incarnation;
	}
	rcs_peer_query(peer[rank].peer, &own);
	for (uint32_t r = 0; r < size; r++) {
		rcs_peer_query(peer[r].peer, &info);
		per_node += info.node == own.node;
		epoch += peer[r].incarnation;
	}
	return true;
}

/* Everybody meets: at the beginning, and after each replacement. Sets the iteration to go on from. */
static bool meet(uint64_t *iteration)
{
	uint32_t buddy, guest;
	struct rcs_error err;
	struct rcs_key key;
	uint64_t number;

	if (!find_all())
		return false;
	buddy = (rank + per_node) % size;
	guest = (rank + size - per_node) % size;
	if (rcs_region_key(region, ep, &key, &err))
		die("%s", err.sentence);
	if (!tell(guest, &key, sizeof(key), tag(KEY, 0)) ||
		!hear(buddy, &buddy_key, sizeof(buddy_key), tag(KEY, 0)) || !agree(committed, 0, &number))
		return false;
	if (number && committed != number && own_slot(number)->number != number) {
		/* ours went with our node */
		if (!move(false, own_slot(number), number))
			return false;
		if (own_slot(number)->number != number)
			die("two neighbouring nodes were lost: nobody has checkpoint %llu of this rank",
				(unsigned long long)number);
	}
	if (number)
		memcpy(cell, own_slot(number)->cell, opt.cells * sizeof(*cell));
	else
		begin();
	/* A replacement has no copy of its guest yet, and a new buddy none of ours. */
	if (!checkpoint(number, 1))
		return false;
	*iteration = number * opt.every;
	printf("rank %u: begins at iteration %llu, epoch %llu\n", rank, (unsigned long long)*iteration,
		(unsigned long long)epoch);
	return true;
}

/* --- the work -------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a ^ (b << 21 | b >> 43) ^ c * 0xd6e8feb86659fd93ull;

	return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
}

static bool iterate(uint64_t i)
{
	uint32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
	size_t last = opt.cells - 1;
	uint64_t from_left, from_right, *swap;

	if (!tell(left, &cell[0], sizeof(*cell), tag(EDGE_LEFT, i)) ||
		!tell(right, &cell[last], sizeof(*cell), tag(EDGE_RIGHT, i)) ||
		!hear(left, &from_left, sizeof(from_left), tag(EDGE_RIGHT, i)) ||
		!hear(right, &from_right, sizeof(from_right), tag(EDGE_LEFT, i)))
		return false;
	for (size_t k = 0; k <= last; k++)
		next[k] = mix(k ? cell[k - 1] : from_left, cell[k], k < last ? cell[k + 1] : from_right);
	swap = cell;
	cell = next;
	next = swap;
	return true;
}

static bool held(uint64_t i)
{
	if (rank || !opt.hold || i != opt.iterations / 2)
		return false;
	printf("rank 0: holds\n");
	while (!disturbed && access(opt.hold, F_OK))
		progress(100);
	return disturbed;
}

static void write_result(uint64_t sum)
{
	FILE *f = fopen(opt.result, "w");

	if (!f || fprintf(f, "%u ranks, %llu iterations: %016llx\n", size, (unsigned long long)opt.iterations,
		(unsigned long long)sum) < 0 || fclose(f))
		die("%s cannot be written", opt.result);
}

/*
 * From the iteration to the end; false: disturbed on the way. The result is written before anybody may end: who
 * is disturbed later finds that others have.
 */
static bool work(uint64_t i)
{
	uint64_t mine = 0, v[2];

	while (i < opt.iterations) {
		if (held(i) || !iterate(i))
			return false;
		i++;
		if (i % opt.every == 0 && !checkpoint(i / opt.every, i + 1))
			return false;
	}
	for (size_t k = 0; k < opt.cells; k++)
		mine = mix(mine, cell[k], k);
	if (!gather(mine, opt.iterations + 2, v))
		return false;
	if (!rank)
		write_result(v[1]);
	return spread(opt.iterations + 2, v);
}

/* --- start ------------------------------------------------------------------------------------------ */

static void open_all(void)
{
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};
	void *p;
	int rc = rcs_init(NULL, &ctx, &err);

	if (rc == RCS_NOT_NEEDED) {
		printf("not needed\n");
		exit(0);
	}
	if (rc || rcs_cq_open(ctx, 0, &cq, &err))
		die("%s", err.sentence);
	rank = rcs_rank(ctx);
	size = rcs_size(ctx);
	peer = calloc(size, sizeof(*peer));
	rcs_on_event(ctx, on_event, NULL);
	e.tx_cq = e.rx_cq = cq;
	slot_size = sizeof(struct slot) + opt.cells * sizeof(*cell);
	if (rcs_ep_open(ctx, &e, &ep, &err) || rcs_alloc(ctx, 4 * slot_size, &p, &region, &err) ||
		rcs_publish(ep, &err))
		die("%s", err.sentence);
	window = p;
	cell = calloc(opt.cells, sizeof(*cell));
	next = calloc(opt.cells, sizeof(*next));
	if (!peer || !cell || !next)
		die("no memory");
	if (rcs_incarnation(ctx))
		printf("rank %u: replacement, incarnation %u\n", rank, rcs_incarnation(ctx));
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {{"result", 1, NULL, 'r'}, {"iterations", 1, NULL, 'i'},
		{"every", 1, NULL, 'e'}, {"cells", 1, NULL, 'c'}, {"hold", 1, NULL, 'h'}, {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'r':
			opt.result = optarg;
			break;
		case 'i':
			opt.iterations = strtoull(optarg, NULL, 10);
			break;
		case 'e':
			opt.every = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			opt.cells = strtoull(optarg, NULL, 10);
			break;
		case 'h':
			opt.hold = optarg;
			break;
		default:
			exit(2);
		}
	if (!opt.result || !opt.every || !opt.cells)
		die("--result FILE is needed, --every and --cells are at least 1");
}

int main(int argc, char **argv)
{
	uint64_t iteration;

	setvbuf(stdout, NULL, _IOLBF, 0);
	options(argc, argv);
	open_all();
	while (!meet(&iteration) || !work(iteration))
		;
	printf("rank %u: done\n", rank);
	rcs_fini(ctx);
	return 0;
}
