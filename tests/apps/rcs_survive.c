/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank exchanges numbered messages with every other, and goes on with the living when a node is lost.
 *
 *	rcs_survive --until FILE [--max BYTES] [--puts] [--put BYTES] [--idle] [--ranks]
 *
 * Ends when every rank has seen the file. With --puts each rank also writes into a window of each other,
 * one put after the other, a word or the bytes of --put; with --idle nobody speaks to anybody. With --ranks
 * a rank whose node lives may be lost as well.
 * Each rank prints `running` once all others have answered, `rank R: lost P` for each rank that was
 * lost, `after N` when N messages were exchanged since the first loss, and at the end
 *
 *	rank R: N messages, L ranks lost, W wrong
 */
#include <getopt.h>

#include "app.h"

#define TAG  7
#define LAST (1ull << 63)
#define ANSWER 200 /* messages after a loss that show that traffic goes on */

struct side {
	struct app_req send, recv, put;
	bool sending, receiving, putting, said_last, got_last, lost;
	uint64_t sent, got;
	uint64_t *out, *in;
	struct rcs_key key;
};

static struct {
	const char *until;
	size_t max, put;
	bool puts, idle, ranks;
} opt = {.max = 65536, .put = 8};

static struct side *side;
static uint64_t messages, wrong, lost, since;
static uint8_t *window; /* opt.put bytes a rank, in each rank; then as much to put from */
static rcs_region *region;

static void lose(uint32_t r)
{
	if (side[r].lost)
		return;
	side[r].lost = true;
	lost++;
	since = 0;
	printf("rank %u: lost %u\n", app.rank, r);
}

static bool is_lost(int status)
{
	return status == RCS_ERR_NODE_LOST || (opt.ranks && status == RCS_ERR_PEER_GONE);
}

static bool ended(uint32_t r, bool *busy, struct app_req *q)
{
	if (!*busy || !q->done)
		return false;
	*busy = false;
	if (is_lost(q->c.status)) {
		lose(r);
		return false;
	}
	if (q->c.status)
		app_die("a request to rank %u ended with %s", r, rcs_status_name(q->c.status));
	return true;
}

static void take(uint32_t r)
{
	struct side *s = &side[r];
	size_t words = s->recv.c.len / 8;

	if ((s->in[0] & ~LAST) != s->got)
		wrong++;
	for (size_t i = 1; i < words; i++)
		if (s->in[i] != app_word(r, app.rank, s->got, i)) {
			wrong++;
			break;
		}
	s->got_last = s->in[0] & LAST;
	s->got++;
	messages++;
	if (lost && ++since == ANSWER)
		printf("rank %u: after %d\n", app.rank, ANSWER);
}

static int start_send(uint32_t r, bool last)
{
	struct side *s = &side[r];
	size_t words = 1 + s->sent * 97 % (opt.max / 8);

	s->out[0] = s->sent | (last ? LAST : 0);
	for (size_t i = 1; i < words; i++)
		s->out[i] = app_word(app.rank, r, s->sent, i);
	s->send = (struct app_req){0};
	return rcs_tsend(app.ep, s->out, words * 8, app_peer(r), TAG, &s->send);
}

static void refused(uint32_t r, int rc)
{
	if (is_lost(rc))
		lose(r);
	else if (rc != RCS_ERR_AGAIN)
		app_die("a request to rank %u was refused with %s", r, rcs_status_name(rc));
}

static void put(uint32_t r)
{
	struct side *s = &side[r];
	uint8_t *from = window + (app.size + r) * opt.put;
	struct rcs_rma p = {.buf = from, .len = opt.put, .offset = opt.put * app.rank, .key = &s->key,
		.peer = app_peer(r), .region = region, .context = &s->put, .flags = RCS_PUT_REPLAY};
	int rc;

	s->put = (struct app_req){0};
	++*(uint64_t *)from;
	rc = rcs_put(app.ep, &p);
	s->putting = !rc;
	if (rc)
		refused(r, rc);
}

static void step(uint32_t r, bool last)
{
	struct side *s = &side[r];
	int rc;

	if (ended(r, &s->receiving, &s->recv))
		take(r);
	if (ended(r, &s->sending, &s->send))
		s->sent++;
	ended(r, &s->putting, &s->put);
	if (!s->lost && !s->receiving && !s->got_last) {
		s->recv = (struct app_req){0};
		rc = rcs_trecv(app.ep, s->in, opt.max + 8, app_peer(r), TAG, 0, &s->recv);
		s->receiving = !rc;
		if (rc)
			refused(r, rc);
	}
	if (!s->lost && !s->sending && !s->said_last) {
		/* who has heard the last word may leave, and take its window along */
		bool last_word = last && !s->putting;

		rc = start_send(r, last_word);
		s->sending = !rc;
		if (rc)
			refused(r, rc);
		else
			s->said_last = last_word;
	}
	if (opt.puts && !s->lost && !s->putting && !last)
		put(r);
}

static bool over(void)
{
	for (uint32_t r = 0; r < app.size; r++)
		if (r != app.rank && (side[r].receiving || side[r].sending || side[r].putting ||
					     (!side[r].lost && !(side[r].said_last && side[r].got_last))))
			return false;
	return true;
}

static void on_event(const struct rcs_event *ev, void *arg)
{
	(void)arg;
	if (ev->code == RCS_EVENT_RANK_LOST)
		printf("rank %u: event rank %u lost\n", app.rank, ev->rank);
	if (ev->code >= RCS_EVENT_NODE_SUSPECTED)
		printf("rank %u: event %u node %u view %u of step %u, ranks from %d after %llu ms: %s\n", app.rank,
			ev->code, ev->peer, ev->view, ev->step, (int)ev->first_rank,
			(unsigned long long)ev->notice_ns / 1000000, ev->reason);
}

static void exchange_keys(void)
{
	struct rcs_error err = {0};
	struct rcs_key mine;
	void *p;

	if (rcs_alloc(app.ctx, 2 * app.size * opt.put, &p, &region, &err) ||
		rcs_region_key(region, app.ep, &mine, &err))
		app_die("%s: %s", rcs_status_name(err.status), err.sentence);
	window = p;
	for (uint32_t d = 1; d < app.size; d++) {
		uint32_t to = (app.rank + d) % app.size, from = (app.rank + app.size - d) % app.size;
		struct app_req s, r;

		app_recv(&side[from].key, sizeof(mine), from, TAG + 1, &r);
		app_send(&mine, sizeof(mine), to, TAG + 1, &s);
		app_wait_ok(&s);
		app_wait_ok(&r);
	}
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"until", required_argument, NULL, 'u'},
		{"max", required_argument, NULL, 'M'}, {"puts", no_argument, NULL, 'p'},
		{"put", required_argument, NULL, 'P'}, {"idle", no_argument, NULL, 'i'},
		{"ranks", no_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if (c == 'u')
			opt.until = optarg;
		else if (c == 'M')
			opt.max = app_number(optarg) & ~7ull;
		else if (c == 'p')
			opt.puts = true;
		else if (c == 'P')
			opt.put = app_number(optarg) & ~7ull;
		else if (c == 'i')
			opt.idle = true;
		else if (c == 'r')
			opt.ranks = true;
		else
			exit(2);
	if (!opt.until || opt.max < 8 || opt.put < 8)
		app_die("--until FILE is needed, --max and --put are at least 8");
	app_open(0);
	rcs_on_event(app.ctx, on_event, NULL);
	side = calloc(app.size, sizeof(*side));
	for (uint32_t r = 0; r < app.size; r++) {
		side[r].in = malloc(opt.max + 8);
		side[r].out = malloc(opt.max + 8);
	}
	if (!opt.idle) {
		exchange_keys();
		app_barrier();
	}
	printf("rank %u: running\n", app.rank);
	for (bool last = false; opt.idle ? !last : !over();) {
		last = access(opt.until, F_OK) == 0;
		for (uint32_t r = 0; r < app.size && !opt.idle; r++)
			if (r != app.rank)
				step(r, last);
		app_progress(20);
	}
	printf("rank %u: %llu messages, %llu ranks lost, %llu wrong\n", app.rank,
		(unsigned long long)messages, (unsigned long long)lost, (unsigned long long)wrong);
	rcs_fini(app.ctx);
	return wrong != 0;
}
