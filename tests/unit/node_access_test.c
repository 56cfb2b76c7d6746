/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/access.c, serve.c, rma.c: memory that only the rank's library may touch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>

#include "node/access.h"
#include "rcshare.h"

#define RING 32768u
#define REGION_LEN (64u << 10)

/* A rank of this daemon; its process has no number here, so nothing of its memory can be reached. */
struct rank {
	struct chan c;
	struct shm_channel shm;
	_Alignas(64) uint8_t tx_mem[RING], rx_mem[RING];
	struct shm_ring tx, rx; /* its own ends */
	uint8_t mem[REGION_LEN];
	struct wire_key key;
	unsigned accesses, done_n;
	int done_status;
	bool idle; /* takes what comes, and does not answer */
};

struct rig {
	struct node n;
	struct link l;
	struct link *links[2];
	struct rank r[2];
};

static void rank_open(struct rig *g, unsigned i)
{
	struct rank *r = &g->r[i];
	struct chan *c = &r->c;

	c->kind = CHAN_RANK;
	c->sock.fd = c->bell.fd = c->rank_bell = c->memfd = -1;
	c->slot = (uint16_t)i;
	c->epoch = 10 + i;
	c->shm = &r->shm;
	shm_ring_init(&c->tx, &r->shm.tx, r->tx_mem, RING);
	shm_ring_init(&c->rx, &r->shm.rx, r->rx_mem, RING);
	shm_ring_init(&r->tx, &r->shm.tx, r->tx_mem, RING);
	shm_ring_init(&r->rx, &r->shm.rx, r->rx_mem, RING);
	g->n.slot[i] = c;
	c->next = g->n.chans;
	g->n.chans = c;
	g->n.rank_chans++;
	assert_int_equal(region_new(&g->n, c, (uintptr_t)r->mem, REGION_LEN, &r->key), 0);
}

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));
	struct core_cfg cfg;

	assert_non_null(g);
	g->n.o.nodes = 2;
	g->n.cfg.read_chunk = 16384;
	evlog_open(&g->n.log, "/dev/null", 1, 0, 0, "n0", 1 << 20);
	core_cfg_default(&cfg);
	cfg.peer = 1;
	g->l.n = &g->n;
	g->l.peer = 1;
	core_link_init(&g->l.core, &cfg, 0);
	while (core_link_room(&g->l.core)) /* all waits in the backlog, where it is looked at */
		core_link_submit(&g->l.core, 0);
	core_rma_init(&g->l.ledger);
	g->links[1] = &g->l;
	g->n.link = g->links;
	rank_open(g, 0);
	rank_open(g, 1);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct rig *g = *state;

	for (unsigned i = 0; i < 2; i++)
		access_chan_gone(&g->n, &g->r[i].c);
	rma_free_all(&g->l);
	for (uint32_t i = 0; i < g->n.regions_n; i++)
		free(g->n.regions[i]);
	free(g->n.regions);
	free(g->l.backlog);
	free(g);
	return 0;
}

/* --- the rank ------------------------------------------------------------------------------------- */

static void submit(struct rank *r, const struct wire_rec *rec, const void *payload)
{
	struct wire_rec *to = shm_ring_reserve(&r->tx, rec->len);

	assert_non_null(to);
	*to = *rec;
	if (rec->len)
		memcpy(to + 1, payload, rec->len);
	shm_ring_commit(&r->tx, rec->len);
	shm_ring_publish(&r->tx);
}

/* What is in its receive ring, one after the other; true: something was. */
static bool rank_take(struct rank *r)
{
	const uint8_t *payload;
	struct wire_rec rec;
	unsigned accesses = 0;
	bool any = false;

	shm_ring_publish(&r->c.rx);
	while (!r->idle && shm_ring_peek(&r->rx, &rec, &payload) == 1) {
		struct wire_rec a = {.type = WIRE_REC_ACCESSED, .op = rec.op};
		uint8_t *at = (uint8_t *)(uintptr_t)rec.tag;

		any = true;
		if (rec.type == WIRE_REC_RMA_DONE) {
			r->done_n++;
			r->done_status = (int)(int64_t)rec.arg;
		} else if (rec.type == WIRE_REC_ACCESS) {
			assert_int_equal(++accesses, 1);
			r->accesses++;
			if (rec.flags & WIRE_REC_F_WRITE)
				memcpy(at, payload, rec.arg);
			else
				a.len = (uint32_t)rec.arg;
			submit(r, &a, at);
		}
		shm_ring_consume(&r->rx, &rec);
	}
	return any;
}

static void turns(struct rig *g)
{
	bool any = true;

	while (any) {
		any = false;
		for (unsigned i = 0; i < 2; i++) {
			any |= rank_take(&g->r[i]);
			any |= chan_poll(&g->n, &g->r[i].c);
		}
		g->n.work = false;
		rma_pump_local(&g->n);
		any |= g->n.work;
	}
	for (unsigned i = 0; i < 2; i++)
		rank_take(&g->r[i]);
}

/* --- the peer node --------------------------------------------------------------------------------- */

static void arrive(struct rig *g, struct wire_rec r, const void *payload)
{
	r.src_node = 1;
	r.src_ep = NODE_EP_DAEMON;
	chan_deliver(&g->n, &r, payload);
}

static struct wire_rec to_region(const struct rank *r, uint16_t type, uint64_t op, uint64_t off)
{
	return (struct wire_rec){.type = type, .op = op, .dst_ep = r->c.slot, .dst_epoch = r->c.epoch,
		.tag = off, .data = wire_key_pack(r->key), .flags = WIRE_REC_F_OFFSET};
}

/* The next record that goes to the peer; false: none. */
static bool sent(struct rig *g, struct wire_rec *r, uint8_t *payload)
{
	const uint8_t *at = g->l.backlog + g->l.bl_head;

	if (g->l.bl_head == g->l.bl_tail)
		return false;
	memcpy(r, at, sizeof(*r));
	if (payload)
		memcpy(payload, at + sizeof(*r), r->len);
	g->l.bl_head += WIRE_REC_SPACE(r->len);
	return true;
}

/* Writes of one piece are executed in order, and answered by the last of them alone. */
static void a_put_is_executed_in_order_and_answered_once(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct wire_rec rec;
	uint8_t buf[4096];

	for (unsigned i = 0; i < 5; i++) {
		rec = to_region(r, WIRE_REC_RPUT, 3, i * 2048);
		rec.len = 4096;
		rec.flags |= i == 4 ? WIRE_REC_F_LAST : 0;
		memset(buf, (int)i + 1, sizeof(buf));
		arrive(g, rec, buf);
	}
	assert_true(r->c.shut);
	assert_false(sent(g, &rec, NULL));
	turns(g);
	assert_int_equal(r->accesses, 5);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(r->mem[i * 2048], i + 1);
	assert_int_equal(r->mem[4 * 2048 + 4095], 5);
	assert_int_equal(r->mem[4 * 2048 + 4096], 0);
	assert_true(sent(g, &rec, NULL));
	assert_int_equal(rec.type, WIRE_REC_RDONE);
	assert_int_equal(rec.op, 3);
	assert_int_equal(rec.arg, 0);
	assert_false(sent(g, &rec, NULL));
}

static void a_get_is_answered_in_parts(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct wire_rec rec = to_region(r, WIRE_REC_RGET, 4, 100);
	uint8_t buf[4096];

	for (unsigned i = 0; i < REGION_LEN; i++)
		r->mem[i] = (uint8_t)(i * 7 + (i >> 8));
	rec.arg = 5000;
	arrive(g, rec, "");
	turns(g);
	assert_true(sent(g, &rec, buf));
	assert_int_equal(rec.type, WIRE_REC_RDATA);
	assert_int_equal(rec.arg, 0);
	assert_int_equal(rec.len, 4096);
	assert_int_equal(rec.flags, 0);
	assert_memory_equal(buf, r->mem + 100, 4096);
	assert_true(sent(g, &rec, buf));
	assert_int_equal(rec.arg, 4096);
	assert_int_equal(rec.len, 904);
	assert_int_equal(rec.flags, WIRE_REC_F_LAST);
	assert_memory_equal(buf, r->mem + 100 + 4096, 904);
	assert_false(sent(g, &rec, NULL));
}

/* A rank that does not progress: its ring holds one request, the others wait here. */
static void the_receive_ring_holds_one_at_a_time(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct wire_rec rec;
	uint8_t buf[4096] = {1};

	r->idle = true;
	for (unsigned i = 0; i < 100; i++) {
		rec = to_region(r, WIRE_REC_RPUT, i + 1, 0);
		rec.len = 4096;
		rec.flags |= WIRE_REC_F_LAST;
		arrive(g, rec, buf);
	}
	turns(g);
	assert_int_equal(r->c.rx.pos, WIRE_REC_SPACE(4096));
	assert_false(r->c.broken);
	r->idle = false;
	turns(g);
	assert_int_equal(r->accesses, 100);
	assert_null(r->c.accesses);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(sent(g, &rec, NULL));
		assert_int_equal(rec.op, i + 1);
	}
}

/* Large messages have another way. */
static void a_large_message_is_not_fetched_so(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct wire_rec rec = to_region(r, WIRE_REC_RGET, 4, (uintptr_t)r->mem);

	rec.flags = 0;
	rec.arg = 5000;
	arrive(g, rec, "");
	assert_true(sent(g, &rec, NULL));
	assert_int_equal(rec.type, WIRE_REC_RDONE);
	assert_int_equal((int64_t)rec.arg, RCS_ERR_UNSUPPORTED);
	assert_null(r->c.accesses);
}

/* --- what ends in between ------------------------------------------------------------------------- */

static void three_puts(struct rig *g)
{
	struct wire_rec rec;
	uint8_t buf[4096] = {1};

	for (unsigned i = 0; i < 3; i++) {
		rec = to_region(&g->r[0], WIRE_REC_RPUT, i + 1, 0);
		rec.len = 4096;
		rec.flags |= WIRE_REC_F_LAST;
		arrive(g, rec, buf);
	}
}

static void expect_answers(struct rig *g, int first, int second, int third)
{
	const int status[] = {first, second, third};
	struct wire_rec rec;

	for (unsigned i = 0; i < 3; i++) {
		assert_true(sent(g, &rec, NULL));
		assert_int_equal(rec.type, WIRE_REC_RDONE);
		assert_int_equal(rec.op, i + 1);
		assert_int_equal((int64_t)rec.arg, status[i]);
	}
	assert_false(sent(g, &rec, NULL));
}

/* What its library has answered before the region is closed was executed; the rest is refused at once. */
static void a_region_that_is_closed_refuses_what_waits(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct chan *c = &r->c;

	three_puts(g);
	rank_take(r);
	assert_true(chan_drain(&g->n, c));
	region_drop(&g->n, g->n.regions[r->key.region - 1]);
	access_closed(&g->n, c, wire_key_pack(r->key), true);
	expect_answers(g, RCS_OK, RCS_ERR_ACCESS, RCS_ERR_ACCESS);
	/* the second was in the ring: its answer makes room, and is no news */
	assert_int_not_equal(c->access_out, 0);
	turns(g);
	assert_int_equal(c->access_out, 0);
	assert_false(c->broken);
}

/* Where an answer may still wait behind what finds no room, it is awaited. */
static void what_may_have_been_executed_is_awaited(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct wire_rec rec;

	three_puts(g);
	region_drop(&g->n, g->n.regions[r->key.region - 1]);
	access_closed(&g->n, &r->c, wire_key_pack(r->key), false);
	for (unsigned i = 2; i <= 3; i++) {
		assert_true(sent(g, &rec, NULL));
		assert_int_equal(rec.op, i);
		assert_int_equal((int64_t)rec.arg, RCS_ERR_ACCESS);
	}
	assert_false(sent(g, &rec, NULL));
	turns(g);
	assert_true(sent(g, &rec, NULL));
	assert_int_equal(rec.op, 1);
	assert_int_equal(rec.arg, RCS_OK);
}

static void a_rank_that_is_gone_ends_what_waits(void **state)
{
	struct rig *g = *state;

	three_puts(g);
	access_chan_gone(&g->n, &g->r[0].c);
	expect_answers(g, RCS_ERR_PEER_GONE, RCS_ERR_PEER_GONE, RCS_ERR_PEER_GONE);
}

/* The first is in the rank's ring and may have been executed; the others must not be, after its replacement began. */
static void what_a_lost_node_asked_for_is_not_done_later(void **state)
{
	struct rig *g = *state;
	struct rank *r = &g->r[0];
	struct shm_table *t = calloc(1, sizeof(*t) + 2 * sizeof(struct shm_node));
	struct wire_rec rec;

	assert_non_null(t);
	g->n.table = t;
	three_puts(g);
	link_lost(&g->l);
	turns(g);
	assert_int_equal(r->accesses, 1);
	assert_null(r->c.accesses);
	assert_int_equal(r->c.access_out, 0);
	assert_false(sent(g, &rec, NULL));
	free(t);
}

static void answers_that_make_no_sense_break_the_channel(void **state)
{
	struct rig *g = *state;
	struct chan *c = &g->r[0].c;
	struct wire_rec a = {.type = WIRE_REC_ACCESSED, .op = 0};
	uint8_t buf[8] = {0};

	assert_int_equal(access_answer(&g->n, c, &a, buf), -EPROTO); /* nothing was asked */
	three_puts(g);
	a.op = c->access_out + 1;
	assert_int_equal(access_answer(&g->n, c, &a, buf), -EPROTO);
	a.op = c->access_out;
	a.len = 8; /* nothing was to be read */
	assert_int_equal(access_answer(&g->n, c, &a, buf), -EPROTO);
}

static void a_short_answer_to_a_read_breaks_the_channel(void **state)
{
	struct rig *g = *state;
	struct chan *c = &g->r[0].c;
	struct wire_rec rec = to_region(&g->r[0], WIRE_REC_RGET, 4, 0);
	struct wire_rec a = {.type = WIRE_REC_ACCESSED, .len = 99};
	uint8_t buf[100] = {0};

	rec.arg = 100;
	arrive(g, rec, "");
	a.op = c->access_out;
	assert_int_equal(access_answer(&g->n, c, &a, buf), -EPROTO);
}

/* --- its own requests ------------------------------------------------------------------------------ */

static void request_to(struct rig *g, unsigned to_node, unsigned to, uint32_t flags, uint64_t len, uint8_t *buf)
{
	struct wire_rma w = {.key = g->r[to].key, .off = 8, .laddr = (uintptr_t)buf, .len = len, .flags = flags};
	struct wire_rec r = {.type = WIRE_REC_RMA, .op = 77, .dst_node = (uint16_t)to_node,
		.dst_ep = (uint16_t)to, .dst_epoch = 10 + to, .len = sizeof(w)};

	submit(&g->r[0], &r, &w);
}

static void request(struct rig *g, unsigned to_node, uint32_t flags, uint64_t len, uint8_t *buf)
{
	request_to(g, to_node, 1, flags, len, buf);
}

static void within_a_node(void **state)
{
	static uint8_t buf[40000], back[40000];
	struct rig *g = *state;

	for (unsigned i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * 7 + (i >> 8));
	request(g, 0, 0, sizeof(buf), buf);
	turns(g);
	assert_int_equal(g->r[0].done_n, 1);
	assert_int_equal(g->r[0].done_status, RCS_OK);
	assert_memory_equal(g->r[1].mem + 8, buf, sizeof(buf));
	assert_int_equal(g->r[1].mem[7], 0);
	assert_int_equal(g->r[1].mem[8 + sizeof(buf)], 0);
	request(g, 0, WIRE_RMA_GET, sizeof(back), back);
	turns(g);
	assert_int_equal(g->r[0].done_n, 2);
	assert_int_equal(g->r[0].done_status, RCS_OK);
	assert_memory_equal(back, buf, sizeof(buf));
	assert_null(g->n.local_rmas);
}

/* Both its own buffer and the region are its library's. */
static void within_a_rank(void **state)
{
	static uint8_t buf[40000];
	struct rig *g = *state;
	struct rank *r = &g->r[0];

	for (unsigned i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * 7 + (i >> 8));
	request_to(g, 0, 0, 0, sizeof(buf), buf);
	turns(g);
	assert_int_equal(r->done_n, 1);
	assert_int_equal(r->done_status, RCS_OK);
	assert_memory_equal(r->mem + 8, buf, sizeof(buf));
	assert_int_equal(r->accesses, 20); /* ten parts, each read once and written once */
}

static void within_a_node_the_owner_goes(void **state)
{
	static uint8_t buf[40000];
	struct rig *g = *state;

	g->r[1].idle = true;
	request(g, 0, 0, sizeof(buf), buf);
	turns(g);
	assert_int_equal(g->r[0].done_n, 0);
	g->n.slot[1] = NULL;
	access_chan_gone(&g->n, &g->r[1].c);
	turns(g);
	assert_int_equal(g->r[0].done_n, 1);
	assert_int_equal(g->r[0].done_status, RCS_ERR_PEER_GONE);
	assert_null(g->n.local_rmas);
}

/* The buffer is read by the library, and goes as it comes. */
static void a_put_of_it_to_another_node(void **state)
{
	static uint8_t buf[6000];
	uint8_t got[4096];
	struct rig *g = *state;
	struct wire_rec rec;

	memset(buf, 0x55, sizeof(buf));
	buf[5999] = 0x66;
	request(g, 1, 0, sizeof(buf), buf);
	chan_poll(&g->n, &g->r[0].c);
	rma_pump(&g->l);
	assert_false(sent(g, &rec, got));
	turns(g);
	assert_true(sent(g, &rec, got));
	assert_int_equal(rec.type, WIRE_REC_RPUT);
	assert_int_equal(rec.tag, 8);
	assert_int_equal(rec.len, 4096);
	assert_true(sent(g, &rec, got));
	assert_int_equal(rec.tag, 8 + 4096);
	assert_int_equal(rec.len, 6000 - 4096);
	assert_true(rec.flags & WIRE_REC_F_LAST);
	assert_int_equal(got[rec.len - 1], 0x66);
	rec = (struct wire_rec){.type = WIRE_REC_RDONE, .op = rec.op, .dst_ep = NODE_EP_DAEMON};
	arrive(g, rec, "");
	rma_pump(&g->l);
	turns(g);
	assert_int_equal(g->r[0].done_n, 1);
	assert_int_equal(g->r[0].done_status, RCS_OK);
}

/* Not before its library has written the last of it is the request over. */
static void a_get_of_it_from_another_node(void **state)
{
	static uint8_t buf[6000];
	uint8_t data[4096];
	struct rig *g = *state;
	struct wire_rec rec;

	memset(data, 0x55, sizeof(data));
	request(g, 1, WIRE_RMA_GET, sizeof(buf), buf);
	chan_poll(&g->n, &g->r[0].c);
	rma_pump(&g->l);
	assert_true(sent(g, &rec, NULL));
	assert_int_equal(rec.type, WIRE_REC_RGET);
	assert_int_equal(rec.arg, 6000);
	rec = (struct wire_rec){.type = WIRE_REC_RDATA, .op = rec.op, .dst_ep = NODE_EP_DAEMON, .len = 4096};
	arrive(g, rec, data);
	turns(g);
	rec.arg = 4096;
	rec.len = 6000 - 4096;
	rec.flags = WIRE_REC_F_LAST;
	arrive(g, rec, data);
	rma_pump(&g->l);
	rank_take(&g->r[0]);
	assert_int_equal(g->r[0].done_n, 0);
	turns(g);
	rma_pump(&g->l);
	turns(g);
	assert_int_equal(g->r[0].done_n, 1);
	assert_int_equal(g->r[0].done_status, RCS_OK);
	assert_int_equal(buf[5999], 0x55);
}

/* The peer's rank was slow, and this daemon was started anew meanwhile: the former one's requests are answered. */
static void answers_to_a_former_daemon_end_nothing(void **state)
{
	static uint8_t buf[64];
	struct rig *g = *state;
	struct wire_rec rec, former;

	for (unsigned i = 1; i <= 2; i++) {
		g->n.incarnation = i * 1000;
		g->l.framed_id = 0;
		request(g, 1, WIRE_RMA_GET, sizeof(buf), buf);
		chan_poll(&g->n, &g->r[0].c);
		rma_pump(&g->l);
		assert_true(sent(g, &rec, NULL));
		if (i == 2) {
			arrive(g, former, "");
			rma_pump(&g->l);
			turns(g);
			assert_int_equal(g->r[0].done_n, 1);
		}
		former = (struct wire_rec){.type = WIRE_REC_RDONE, .op = rec.op, .dst_ep = NODE_EP_DAEMON,
			.arg = (uint64_t)(int64_t)RCS_ERR_NODE_LOST};
		arrive(g, former, "");
		rma_pump(&g->l);
		turns(g);
		assert_int_equal(g->r[0].done_n, i);
	}
}

/* What waits at the target for a rank that does not progress is bounded: by the origin. */
static void no_more_than_a_window_is_under_way(void **state)
{
	static uint8_t buf[REGION_LEN - 8];
	struct rig *g = *state;
	uint64_t sum = 0;

	g->n.o.nodes = 1000;
	for (unsigned i = 0; i < 20; i++)
		request(g, 1, WIRE_RMA_GET, sizeof(buf), buf);
	while (chan_poll(&g->n, &g->r[0].c))
		;
	rma_pump(&g->l);
	for (struct wire_rec rec; sent(g, &rec, NULL);)
		sum += rec.arg;
	assert_int_equal(sum, 16384); /* one piece */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_put_is_executed_in_order_and_answered_once),
		TEST(a_get_is_answered_in_parts),
		TEST(the_receive_ring_holds_one_at_a_time),
		TEST(a_large_message_is_not_fetched_so),
		TEST(a_region_that_is_closed_refuses_what_waits),
		TEST(what_may_have_been_executed_is_awaited),
		TEST(a_rank_that_is_gone_ends_what_waits),
		TEST(what_a_lost_node_asked_for_is_not_done_later),
		TEST(answers_that_make_no_sense_break_the_channel),
		TEST(a_short_answer_to_a_read_breaks_the_channel),
		TEST(within_a_node),
		TEST(within_a_rank),
		TEST(within_a_node_the_owner_goes),
		TEST(a_put_of_it_to_another_node),
		TEST(a_get_of_it_from_another_node),
		TEST(answers_to_a_former_daemon_end_nothing),
		TEST(no_more_than_a_window_is_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
