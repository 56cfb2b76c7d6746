/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * runtime/node/key.c, region.c, rma.c: two daemons, a rank each, and one lane between them. What a put or get
 * is posted to, who is told before a region goes, and what is left of a rank that was killed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/access.h"
#include "node/verbs_impl.h"
#include "rcshare.h"

#define BASE	   0x100000u
#define REGION_LEN 0x80000u
#define MIDDLE	   0x40000u
#define MSG_LEN	   0x10000u
#define LOCAL	   0x900000u
#define OWNER	   1 /* node */

struct side {
	struct node n;
	struct link l;
	struct link *links[2];
	struct verbs v;
	struct verbs_lane lane;
	struct chan *c; /* its rank's; NULL: was killed */
	struct shm_ring tx, rx;
	struct wire_key key; /* of its region */
	unsigned done_n;
	int done_status;
	uint16_t done_type;
};

struct rig {
	struct side s[2];
};

/* What the initiator's queue pair was given, the last one at the end. */
static struct {
	unsigned n, done;
	uint64_t raddr, bytes;
	uint32_t rkey;
	uint32_t at[256]; /* in the ring of cookies */
} posted;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct verbs_lane *lane = (const struct verbs_lane *)qp->qp_context;

	(void)bad;
	posted.raddr = wr->wr.rdma.remote_addr;
	posted.rkey = wr->wr.rdma.rkey;
	posted.bytes += wr->num_sge ? wr->sg_list->length : 0;
	posted.at[posted.n++ % 256] = lane->sq_tail % VERBS_SENDS;
	return 0;
}

static void rank_open(struct side *s)
{
	struct shm_attach a = {.ranks = 2};
	char why[SHM_SENTENCE];

	s->c = calloc(1, sizeof(*s->c));
	assert_non_null(s->c);
	s->c->sock.fd = s->c->bell.fd = s->c->rank_bell = s->c->memfd = -1;
	assert_int_equal(chan_make(&s->n, s->c, &a, why), 0);
	s->c->next = s->n.chans;
	s->n.chans = s->c;
	shm_ring_init(&s->tx, &s->c->shm->tx, (uint8_t *)s->c->shm + s->c->shm->tx_off, s->c->shm->tx_size);
	shm_ring_init(&s->rx, &s->c->shm->rx, (uint8_t *)s->c->shm + s->c->shm->rx_off, s->c->shm->rx_size);
}

static void region_open(struct side *s, uint64_t addr, uint64_t len)
{
	struct shm_reg reg = {.ndev = 1, .ok = 1, .lkey = {7}, .rkey = {70}};
	uint32_t lent[WIRE_RAILS_MAX] = {1};

	assert_int_equal(region_new(&s->n, s->c, addr, len, &s->key), 0);
	region_registered(&s->n, s->n.regions[s->key.region - 1], &reg, lent);
}

static void side_open(struct rig *g, unsigned i)
{
	static struct ibv_context ctx = {.ops.post_send = post_send};
	static struct ibv_qp qp[2];
	static uint8_t small[VERBS_SENDS * VERBS_SMALL];
	static char *names[] = {"n0", "n1"};
	struct side *s = &g->s[i];
	struct core_cfg cfg;

	config_default(&s->n.cfg);
	s->n.o.self = i;
	s->n.o.nodes = 2;
	s->n.o.names = names;
	s->n.rails = 1;
	s->n.vb = &s->v;
	s->n.next_epoch = 10;
	s->n.table = calloc(1, sizeof(*s->n.table) + 2 * sizeof(struct shm_node));
	assert_non_null(s->n.table);
	s->n.epfd = epoll_create1(EPOLL_CLOEXEC);
	s->v.rails = 1;
	s->v.rail[0].epoch = 1;
	evlog_open(&s->n.log, "/dev/null", 1, 0, i, "n", 1 << 20);
	core_cfg_default(&cfg);
	cfg.rails = 1;
	cfg.self = (uint16_t)i;
	cfg.peer = (uint16_t)(1 - i);
	s->l.n = &s->n;
	s->l.peer = 1 - i;
	core_link_init(&s->l.core, &cfg, 0);
	while (core_link_room(&s->l.core)) /* all waits in the backlog, where exchange() takes it */
		core_link_submit(&s->l.core, 0);
	core_rma_init(&s->l.ledger);
	s->links[1 - i] = &s->l;
	s->n.link = s->links;
	s->n.links = &s->l;
	qp[i] = (struct ibv_qp){.context = &ctx, .qp_context = &s->lane};
	s->lane = (struct verbs_lane){.v = &s->v, .rail = &s->v.rail[0], .qp = &qp[i], .connected = true,
		.mtu = 4096, .small = small, .peer_epoch = 1, .reads_max = 15};
	s->l.rdma[0] = &s->lane;
	s->l.core.lane[0].state = CORE_LANE_UP;
	s->l.core.lane[0].usable = true;
	s->l.core.active = 0;
	rank_open(s);
}

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	memset(&posted, 0, sizeof(posted));
	side_open(g, 0);
	side_open(g, OWNER);
	region_open(&g->s[0], LOCAL, REGION_LEN);
	region_open(&g->s[OWNER], BASE, REGION_LEN);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct rig *g = *state;

	for (unsigned i = 0; i < 2; i++) {
		struct side *s = &g->s[i];
		struct import *im, *tmp;

		for (struct chan *c = s->n.chans; c; c = c->next) {
			chan_close(&s->n, c, "");
			c->stalled = false;
		}
		chan_reap(&s->n);
		rma_free_all(&s->l);
		HASH_ITER(hh, s->n.imports, im, tmp) {
			HASH_DEL(s->n.imports, im);
			free(im);
		}
		for (uint32_t k = 0; k < s->n.regions_n; k++) {
			free(s->n.regions[k]->x.list);
			free(s->n.regions[k]);
		}
		free(s->n.regions);
		free(s->l.backlog);
		free(s->n.table);
		evlog_close(&s->n.log);
		close(s->n.epfd);
	}
	free(g);
	return 0;
}

/* --- what happens ---------------------------------------------------------------------------------- */

static void take_answers(struct side *s)
{
	const uint8_t *payload;
	struct wire_rec r;

	if (!s->c)
		return;
	shm_ring_publish(&s->c->rx);
	while (shm_ring_peek(&s->rx, &r, &payload) == 1) {
		if (r.type == WIRE_REC_RMA_DONE || r.type == WIRE_REC_GET_DONE) {
			s->done_n++;
			s->done_type = r.type;
			s->done_status = (int)(int64_t)r.arg;
		}
		shm_ring_consume(&s->rx, &r);
	}
}

/* The next record of the backlog goes to the other node; 0: there is none. */
static uint16_t carry(struct rig *g, unsigned from)
{
	struct side *s = &g->s[from];
	uint8_t *at = s->l.backlog + s->l.bl_head, payload[WIRE_REC_PAYLOAD_MAX];
	struct wire_rec r;

	if (s->l.bl_head == s->l.bl_tail)
		return 0;
	memcpy(&r, at, sizeof(r));
	memcpy(payload, at + sizeof(r), r.len);
	s->l.bl_head += WIRE_REC_SPACE(r.len);
	if (r.type == WIRE_REC_EVENT)
		return r.type;
	if (r.type == WIRE_REC_RTS) {
		struct wire_rts rts;

		memcpy(&rts, payload, sizeof(rts));
		key_rts(&g->s[1 - from].n, &r, &rts);
	}
	chan_deliver(&g->s[1 - from].n, &r, payload);
	return r.type;
}

static void turn(struct rig *g)
{
	for (unsigned i = 0; i < 2; i++) {
		for (struct chan *c = g->s[i].n.chans; c; c = c->next)
			chan_poll(&g->s[i].n, c);
		rma_pump(&g->s[i].l);
		rma_pump_local(&g->s[i].n);
		g->s[i].lane.sq_head = g->s[i].lane.sq_tail; /* room */
		take_answers(&g->s[i]);
	}
}

static void turns(struct rig *g)
{
	bool any = true;

	while (any) {
		turn(g);
		any = carry(g, 0);
		any |= carry(g, 1) != 0;
	}
	turn(g);
}

static void submit(struct side *s, const struct wire_rec *rec, const void *payload)
{
	struct wire_rec *to = shm_ring_reserve(&s->tx, rec->len);

	assert_non_null(to);
	*to = *rec;
	if (rec->len)
		memcpy(to + 1, payload, rec->len);
	shm_ring_commit(&s->tx, rec->len);
	shm_ring_publish(&s->tx);
}

static void put(struct rig *g, uint64_t off, uint64_t len, uint32_t flags, bool local)
{
	struct side *s = &g->s[0], *to = &g->s[OWNER];
	struct wire_rma w = {.key = to->key, .off = off, .len = len, .flags = flags};
	struct wire_rec r = {.type = WIRE_REC_RMA, .op = 77, .dst_node = OWNER, .len = sizeof(w)};

	r.dst_epoch = 10;
	if (local) {
		w.laddr = LOCAL;
		w.lregion = s->key.region;
		w.lgen = s->key.gen;
	}
	submit(s, &r, &w);
}

/* The owner's rank announces MSG_LEN bytes from the middle of its region. */
static void announce(struct rig *g, uint64_t op)
{
	struct side *s = &g->s[OWNER];
	struct wire_rts rts = {.key = s->key, .addr = BASE + MIDDLE};
	struct wire_rec r = {.type = WIRE_REC_RTS, .op = op, .arg = MSG_LEN, .dst_node = 0, .dst_epoch = 10,
		.len = sizeof(rts)};

	submit(s, &r, &rts);
	turns(g);
}

static void fetch(struct rig *g, uint64_t op)
{
	struct side *s = &g->s[0];
	struct wire_get w = {.key = g->s[OWNER].key, .raddr = BASE + MIDDLE, .laddr = LOCAL, .len = MSG_LEN,
		.lregion = s->key.region, .lgen = s->key.gen};
	struct wire_rec r = {.type = WIRE_REC_GET, .op = 78, .tag = op, .dst_node = OWNER, .dst_epoch = 10,
		.len = sizeof(w)};

	submit(s, &r, &w);
	turns(g);
}

/* The oldest piece that was posted and not reported. */
static void complete(struct rig *g, enum verbs_done how)
{
	assert_true(posted.done < posted.n);
	rma_done(&g->s[0].l, g->s[0].lane.sq[posted.at[posted.done++ % 256]] & ~NODE_COOKIE_KIND, how, "");
	if (posted.done == posted.n)
		posted.done = posted.n = 0;
}

static struct region *region_of(struct side *s)
{
	return s->n.regions[s->key.region - 1];
}

static void owner_closes(struct rig *g)
{
	struct side *s = &g->s[OWNER];

	region_drop(&s->n, region_of(s));
}

/* kill -9 */
static void rank_dies(struct side *s)
{
	struct chan *c = s->c;

	s->c = NULL;
	chan_close(&s->n, c, "killed");
}

/* --- where it lands -------------------------------------------------------------------------------- */

static void a_put_after_a_message_from_the_middle_goes_to_the_regions_base(void **state)
{
	struct rig *g = *state;

	announce(g, 5);
	fetch(g, 5);
	assert_int_equal(posted.n, 1);
	assert_int_equal(posted.raddr, BASE + MIDDLE);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_status, RCS_OK);
	put(g, 0, 64, 0, true);
	turns(g);
	assert_int_equal(posted.n, 1);
	assert_int_equal(posted.raddr, BASE);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_n, 2);
	assert_int_equal(g->s[0].done_status, RCS_OK);
}

/* It was announced, and nobody has fetched it yet. */
static void a_put_beside_a_message_asks_for_the_key(void **state)
{
	struct rig *g = *state;

	announce(g, 5);
	put(g, REGION_LEN - 64, 64, 0, true); /* beyond the message */
	turns(g);
	assert_int_equal(posted.n, 1);
	assert_int_equal(posted.raddr, BASE + REGION_LEN - 64);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_status, RCS_OK);
	fetch(g, 5);
	assert_int_equal(posted.raddr, BASE + MIDDLE);
	complete(g, VERBS_OK);
}

static void a_message_after_a_put_is_fetched_from_where_it_is(void **state)
{
	struct rig *g = *state;

	put(g, 0, 64, 0, true);
	turns(g);
	complete(g, VERBS_OK);
	announce(g, 5);
	fetch(g, 5);
	assert_int_equal(posted.n, 1);
	assert_int_equal(posted.raddr, BASE + MIDDLE);
	complete(g, VERBS_OK);
	put(g, 8, 64, 0, true);
	turns(g);
	assert_int_equal(posted.raddr, BASE + 8);
	complete(g, VERBS_OK);
}

static void a_message_can_be_fetched_once_and_within_its_bounds(void **state)
{
	struct rig *g = *state;

	announce(g, 5);
	fetch(g, 6);
	assert_int_equal(posted.n, 0);
	assert_int_equal(g->s[0].done_status, RCS_ERR_AGAIN);
	fetch(g, 5);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_status, RCS_OK);
	fetch(g, 5);
	assert_int_equal(g->s[0].done_status, RCS_ERR_AGAIN);
	assert_int_equal(posted.n, 0);
	assert_null(g->s[0].n.imports);
}

/* It was had otherwise. */
static void a_message_that_is_over_is_forgotten(void **state)
{
	struct wire_rec fin = {.type = WIRE_REC_FIN, .op = 5, .dst_node = OWNER, .dst_epoch = 10};
	struct rig *g = *state;

	announce(g, 5);
	assert_int_equal(HASH_COUNT(g->s[0].c->announced), 1);
	submit(&g->s[0], &fin, "");
	turns(g);
	assert_null(g->s[0].c->announced);
	assert_null(g->s[0].n.imports);
}

static void what_is_never_fetched_is_bounded(void **state)
{
	struct rig *g = *state;

	for (uint64_t op = 1; op <= 5000; op++) {
		announce(g, op);
		take_answers(&g->s[0]);
	}
	assert_in_range(HASH_COUNT(g->s[0].c->announced), 1, 4096);
	fetch(g, 1);
	assert_int_equal(g->s[0].done_status, RCS_ERR_AGAIN);
	fetch(g, 5000);
	assert_int_equal(posted.raddr, BASE + MIDDLE);
	complete(g, VERBS_OK);
}

/* --- before the region goes ------------------------------------------------------------------------ */

static void the_owner_awaits_who_puts_after_a_message(void **state)
{
	struct rig *g = *state;
	struct region *r = region_of(&g->s[OWNER]);

	announce(g, 5);
	fetch(g, 5);
	complete(g, VERBS_OK);
	put(g, 0, 64, 0, true);
	turns(g);
	owner_closes(g);
	assert_int_equal(carry(g, OWNER), WIRE_REC_REVOKE);
	turns(g);
	assert_true(r->used);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_status, RCS_OK);
	assert_false(r->used);
	assert_null(g->s[0].n.imports);
}

/* A living rank has its message's end before it closes the region: nobody is asked then. */
static void a_region_of_messages_alone_goes_at_once(void **state)
{
	struct rig *g = *state;
	struct region *r = region_of(&g->s[OWNER]);

	announce(g, 5);
	fetch(g, 5);
	complete(g, VERBS_OK);
	turns(g);
	owner_closes(g);
	assert_false(r->used);
	assert_int_equal(carry(g, OWNER), 0);
}

static void the_sender_is_killed_while_its_message_is_fetched(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];
	struct region *r = region_of(s);

	announce(g, 5);
	fetch(g, 5);
	assert_int_equal(posted.n, 1);
	rank_dies(s);
	chan_reap(&s->n);
	s->n.now += 60000000000ull;
	region_tick(&s->n);
	turns(g);
	assert_true(r->used);
	assert_int_equal(r->ok, 1);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_n, 1);
	region_tick(&s->n);
	assert_false(r->used);
	/* what comes later is not fetched */
	assert_null(g->s[0].n.imports);
}

static void a_message_that_was_not_fetched_when_its_sender_was_killed_is_not_later(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];

	announce(g, 5);
	rank_dies(s);
	s->n.now += 60000000000ull;
	region_tick(&s->n);
	turns(g);
	region_tick(&s->n);
	assert_false(region_of(s)->used);
	fetch(g, 5);
	assert_int_equal(posted.n, 0);
	assert_int_equal(g->s[0].done_status, RCS_ERR_AGAIN);
}

static void a_put_during_a_revocation_ends_and_holds_up_nothing(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];
	struct region *r = region_of(s);

	put(g, 0, 64, 0, true);
	turns(g);
	assert_int_equal(posted.n, 1);
	owner_closes(g);
	turns(g);
	put(g, 8, 64, 0, true);
	turns(g);
	assert_int_equal(g->s[0].done_n, 1);
	assert_int_equal(g->s[0].done_status, RCS_ERR_ACCESS);
	assert_true(r->used);
	complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(g->s[0].done_n, 2);
	assert_int_equal(g->s[0].done_status, RCS_OK);
	assert_false(r->used);
	s->n.now += 60000000000ull;
	key_tick(&s->n);
	assert_int_equal(s->l.no_rails, 0);
	/* and later the key is refused by its owner */
	put(g, 8, 64, 0, true);
	turns(g);
	assert_int_equal(g->s[0].done_n, 3);
	assert_int_equal(g->s[0].done_status, RCS_ERR_ACCESS);
	assert_int_equal(posted.n, 0);
}

/* The word comes after the rails were taken down. */
static void who_answers_late_has_its_rails_back(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];
	struct region *r = region_of(s);

	put(g, 0, 64, 0, true);
	turns(g);
	owner_closes(g);
	s->n.now += 2000000000ull;
	key_tick(&s->n);
	assert_int_equal(s->l.no_rails, 1);
	put(g, 8, 64, 0, true);
	turns(g);
	while (posted.n)
		complete(g, VERBS_OK);
	turns(g);
	assert_int_equal(s->l.no_rails, 0);
	assert_false(r->used);
}

/* It is lost, and its lanes are stopped: no word will come, and the id is of use again. */
static void a_lost_importer_is_not_waited_for(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];
	struct region *r = region_of(s);

	put(g, 0, 64, 0, true);
	turns(g);
	complete(g, VERBS_OK);
	key_node_lost(&s->n, 0);
	s->l.lost = true;
	owner_closes(g);
	assert_true(r->used);
	for (unsigned i = 0; i < CORE_LANES; i++)
		s->l.core.lane[i].state = CORE_LANE_DOWN;
	s->n.now += 2000000000ull;
	key_tick(&s->n);
	assert_false(r->used);
}

/* The importer's daemon was killed and another one is there: it holds nothing, and the rails may come back. */
static void a_new_daemon_is_no_importer(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];

	put(g, 0, 64, 0, true);
	turns(g);
	owner_closes(g);
	s->n.now += 2000000000ull;
	key_tick(&s->n);
	assert_int_equal(s->l.no_rails, 1);
	key_node_anew(&s->n, 0);
	assert_int_equal(s->l.no_rails, 0);
	assert_false(region_of(s)->used);
	complete(g, VERBS_OK);
}

/* The owner's is another: what names its keys ends, and a message of it is not fetched. */
static void keys_of_a_former_daemon_are_gone(void **state)
{
	struct rig *g = *state;

	put(g, 0, 64, 0, true);
	announce(g, 5);
	key_node_anew(&g->s[0].n, OWNER);
	fetch(g, 5);
	assert_int_equal(g->s[0].done_status, RCS_ERR_AGAIN);
	put(g, 0, 64, 0, true);
	turn(g);
	assert_int_equal(g->s[0].done_status, RCS_ERR_ACCESS);
	assert_int_equal(posted.n, 1);
	complete(g, VERBS_OK);
	turn(g);
	assert_int_equal(carry(g, 0), 0);
	assert_null(g->s[0].n.imports);
}

/* Both began with their first region; a rank that has not yet heard of it still has the former one's key. */
static void a_key_of_a_former_daemon_names_nothing_of_the_next(void **state)
{
	const struct rig *g = *state;
	struct node next = {.incarnation = 77};
	struct chan c = {.slot = 0};
	struct wire_key former = g->s[OWNER].key, k;

	assert_int_equal(region_new(&next, &c, BASE, REGION_LEN, &k), 0);
	assert_int_equal(k.region, former.region);
	assert_null(region_find(&next, &c, former));
	assert_non_null(region_find(&next, &c, k));
	free(next.regions[0]);
	free(next.regions);
}

/* No device may write there (a file mapped shared, on a kernel that pins no such pages for writing). */
static void memory_that_may_not_be_written_is_put_to_by_the_cpu(void **state)
{
	struct shm_reg reg = {.ndev = 1, .ok = 1, .readonly = 1, .lkey = {7}, .rkey = {70}};
	uint32_t lent[WIRE_RAILS_MAX] = {1};
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];

	assert_int_equal(region_new(&s->n, s->c, BASE, REGION_LEN, &s->key), 0);
	region_registered(&s->n, region_of(s), &reg, lent);
	g->s[0].l.core.wanted = true;
	g->s[0].l.core.lane[CORE_LANE_TCP].state = CORE_LANE_UP;
	put(g, 0, 64, WIRE_RMA_GET, true);
	turns(g);
	assert_int_equal(posted.n, 1); /* but read */
	complete(g, VERBS_OK);
	put(g, 0, 64, 0, true);
	turns(g);
	assert_int_equal(posted.n, 0);
	assert_non_null(g->s[0].l.framed);
}

/* A local buffer that no device may write. */
static void a_get_into_memory_that_may_not_be_written_goes_by_the_cpu(void **state)
{
	struct rig *g = *state;

	region_of(&g->s[0])->readonly = 1;
	g->s[0].l.core.wanted = true;
	g->s[0].l.core.lane[CORE_LANE_TCP].state = CORE_LANE_UP;
	put(g, 0, 64, WIRE_RMA_GET, true);
	turns(g);
	assert_int_equal(posted.n, 0);
	assert_non_null(g->s[0].l.framed);
	put(g, 0, 64, 0, true);
	turns(g);
	assert_int_equal(posted.n, 1);
	complete(g, VERBS_OK);
}

/* Soft RoCE takes 8 MiB, whatever the configuration says. */
static void a_piece_is_no_longer_than_a_device_takes(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];

	s->n.cfg.read_chunk = 1u << 28;
	s->v.rail[0].msg_max = 4096;
	put(g, 0, 64 << 10, 0, true);
	turns(g);
	assert_int_equal(posted.bytes / posted.n, 4096);
	for (unsigned i = 0; i < 100 && g->s[0].done_n == 0; i++) {
		while (posted.n)
			complete(g, VERBS_OK);
		turns(g);
	}
	assert_int_equal(g->s[0].done_status, RCS_OK);
	assert_int_equal(posted.bytes, 64 << 10);
}

/* --- registrations ---------------------------------------------------------------------------------- */

/* The device was replaced between the loan and the word of it: that handle is another object's by now. */
static void what_was_registered_with_a_replaced_device_is_not_used(void **state)
{
	struct shm_reg reg = {.ndev = 1, .ok = 1, .mr_handle = {3}, .rkey = {70}};
	uint32_t lent[WIRE_RAILS_MAX] = {1};
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];
	struct wire_key k;
	struct region *r;

	assert_int_equal(region_new(&s->n, s->c, BASE, REGION_LEN, &k), 0);
	r = s->n.regions[k.region - 1];
	s->v.rail[0].epoch = 2;
	region_registered(&s->n, r, &reg, lent);
	assert_int_equal(region_rails(&s->n, r), 0);
	assert_int_equal(r->ok, 0);
	lent[0] = 0; /* it was not lent at all */
	region_registered(&s->n, r, &reg, lent);
	assert_int_equal(r->ok, 0);
	lent[0] = 2;
	region_registered(&s->n, r, &reg, lent);
	assert_int_equal(region_rails(&s->n, r), 1);
}

static void ids_of_closed_regions_are_used_again_with_another_generation(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	struct wire_key k[3];

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(region_new(&s->n, s->c, BASE, 8, &k[i]), 0);
	region_drop(&s->n, region_find(&s->n, s->c, k[1]));
	assert_null(region_find(&s->n, s->c, k[1]));
	k[2] = k[1];
	assert_int_equal(region_new(&s->n, s->c, BASE, 8, &k[2]), 0);
	assert_int_equal(k[2].region, k[1].region);
	assert_int_equal(k[2].gen, k[1].gen + 1);
	assert_null(region_find(&s->n, s->c, k[1]));
	assert_non_null(region_find(&s->n, s->c, k[2]));
}

/* --- whose turn it is ------------------------------------------------------------------------------- */

/* Completes piece after piece until one goes to that address: bytes that were posted before. */
static uint64_t bytes_before(struct rig *g, uint64_t raddr)
{
	posted.bytes = 0;
	for (unsigned i = 0; i < 100000; i++) {
		turn(g);
		if (posted.raddr == raddr)
			return posted.bytes;
		complete(g, VERBS_OK);
	}
	fail();
	return 0;
}

static void another_rank_opens(struct side *s)
{
	rank_open(s);
	region_open(s, LOCAL, REGION_LEN);
}

/* 300 puts of 64 MiB stood before it, and all of them were served before. */
static void a_small_put_waits_for_turns_not_for_all_that_others_want(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	uint64_t chunk;

	for (unsigned i = 0; i < 300; i++)
		put(g, 0, REGION_LEN, 0, true);
	turns(g);
	turns(g);
	another_rank_opens(s);
	put(g, 0x1230, 64, 0, true);
	chunk = s->n.cfg.read_chunk;
	/* 8 chunks of the other rank may wait in front of it, twice that when each completion makes room */
	assert_in_range(bytes_before(g, BASE + 0x1230), 64, 16 * chunk);
	while (posted.n)
		complete(g, VERBS_OK);
}

static void ranks_of_a_node_are_served_in_turn(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	uint64_t chunk;

	for (unsigned i = 0; i < 100; i++)
		put(g, 0, REGION_LEN, 0, true);
	turns(g);
	another_rank_opens(s);
	for (unsigned i = 0; i < 10; i++)
		put(g, i == 9 ? 0x1230 : 0, i == 9 ? 64 : REGION_LEN, 0, true);
	chunk = s->n.cfg.read_chunk;
	/* its own 18 pieces, as many of the other, and what was under way */
	assert_in_range(bytes_before(g, BASE + 0x1230), 64, (18 * 2 + 20) * chunk);
	while (posted.n)
		complete(g, VERBS_OK);
}

/* The ring is taken as fast as before, however many wait. */
static void thousands_of_puts_all_end(void **state)
{
	struct rig *g = *state;
	unsigned asked = 0;

	while (g->s[0].done_n < 30000) {
		for (unsigned i = 0; i < 200 && asked < 30000; i++, asked++)
			put(g, 0, 8, 0, true);
		for (unsigned i = 0; i < 8; i++)
			turns(g);
		if (asked == 30000)
			while (posted.n)
				complete(g, VERBS_OK);
	}
	assert_null(g->s[0].l.flow);
	assert_null(g->s[0].l.rmas);
}

/* --- a node that takes no more ----------------------------------------------------------------------- */

static bool send_msg(struct side *s, uint16_t node, uint64_t op, uint32_t len)
{
	static const uint8_t payload[4096];
	struct wire_rec r = {.type = WIRE_REC_MSG, .op = op, .dst_node = node, .dst_ep = node ? 9 : 0,
		.dst_epoch = 10, .len = len};
	struct wire_rec *to = shm_ring_reserve(&s->tx, len);

	if (!to)
		return false;
	*to = r;
	memcpy(to + 1, payload, len);
	shm_ring_commit(&s->tx, len);
	shm_ring_publish(&s->tx);
	return true;
}

/* What is for others goes on; what is for it arrives in order, and a rank has so much waiting and no more. */
static void a_node_that_takes_no_more_holds_up_what_is_for_it_alone(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	uint64_t op = 0, got = 0, in = s->c->msgs_in;
	struct wire_rec r;

	while (!s->c->parks) {
		assert_true(send_msg(s, OWNER, ++op, 4096));
		chan_poll(&s->n, s->c);
	}
	assert_true(send_msg(s, 0, 1, 8));
	chan_poll(&s->n, s->c);
	assert_int_equal(s->c->msgs_in, in + 1);
	for (unsigned i = 0; i < 2000; i++) {
		op += send_msg(s, OWNER, op + 1, 4096);
		chan_poll(&s->n, s->c);
	}
	assert_in_range(s->c->parked, 1, 1 << 20);
	for (bool any = true; any;) {
		any = false;
		while (s->l.bl_head < s->l.bl_tail) {
			memcpy(&r, s->l.backlog + s->l.bl_head, sizeof(r));
			s->l.bl_head += WIRE_REC_SPACE(r.len);
			assert_int_equal(r.op, ++got);
			any = true;
		}
		any |= chan_poll(&s->n, s->c);
	}
	assert_int_equal(got, op);
	assert_null(s->c->parks);
	assert_int_equal(s->c->parked, 0);
}

/* The end of its rank is told to all others, and to that node behind what waits for it. */
static void a_node_that_takes_no_more_holds_up_no_word_of_the_end(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	struct wire_rec r, ask = {.type = WIRE_REC_CANCEL, .src_node = OWNER, .dst_ep = s->c->slot,
		.dst_epoch = s->c->epoch};
	uint64_t op = 0, got = 0;
	unsigned gone = 0;

	while (!s->c->parks) {
		assert_true(send_msg(s, OWNER, ++op, 4096));
		chan_poll(&s->n, s->c);
	}
	chan_close(&s->n, s->c, "killed");
	while (chan_poll(&s->n, s->c))
		;
	chan_reap(&s->n);
	assert_int_equal(s->n.table->node_tab[0].ended, 1);
	chan_deliver(&s->n, &ask, "");
	while (s->l.bl_head < s->l.bl_tail) {
		memcpy(&r, s->l.backlog + s->l.bl_head, sizeof(r));
		s->l.bl_head += WIRE_REC_SPACE(r.len);
		assert_int_equal(gone, 0);
		if (r.type == WIRE_REC_MSG)
			assert_int_equal(r.op, ++got);
		gone += r.type == WIRE_REC_GONE;
		if (s->l.bl_head < s->l.bl_tail || !s->n.chans)
			continue;
		chan_poll(&s->n, s->n.chans);
		chan_reap(&s->n);
	}
	assert_int_equal(got, op);
	assert_int_equal(gone, 1);
	assert_null(s->n.chans);
	s->c = NULL;
}

/* --- kill -9 ---------------------------------------------------------------------------------------- */

static void nothing_names_it(struct node *n, const struct chan *c)
{
	for (const struct rma *r = n->links->rmas; r; r = r->next)
		assert_ptr_not_equal(r->c, c);
	for (const struct rma *r = n->local_rmas; r; r = r->next)
		assert_ptr_not_equal(r->c, c);
	for (uint32_t i = 0; i < n->regions_n; i++)
		assert_ptr_not_equal(n->regions[i]->owner, c);
}

/* The rank of the initiator ends; the loop goes on as main.c's, and the rest completes as it may. */
static void killed(struct rig *g, enum verbs_done how)
{
	struct side *s = &g->s[0];
	struct chan *c = s->c;

	rank_dies(s);
	turn(g);
	c->stalled = false;
	nothing_names_it(&s->n, c);
	chan_reap(&s->n);
	assert_null(s->n.chans);
	turns(g);
	while (posted.n)
		complete(g, how);
	turns(g);
	s->n.now += 60000000000ull;
	region_tick(&s->n);
	turns(g);
	assert_null(s->l.rmas);
	assert_null(s->n.local_rmas);
	assert_int_equal(region_of(s)->uses, 0);
	assert_false(region_of(s)->used);
}

static void killed_with_requests_unread_in_the_ring(void **state)
{
	struct wire_get get = {.key = ((struct rig *)*state)->s[OWNER].key, .raddr = BASE, .len = 8};
	struct wire_rec r = {.type = WIRE_REC_GET, .op = 78, .dst_node = OWNER, .dst_epoch = 10,
		.len = sizeof(get)};
	struct rig *g = *state;

	put(g, 0, 64, 0, false);
	put(g, 0, 64, WIRE_RMA_GET, false);
	put(g, 0, 64, 0, true);
	submit(&g->s[0], &r, &get);
	r.type = WIRE_REC_RMA;
	killed(g, VERBS_OK);
	assert_int_equal(posted.n, 0);
}

static void killed_while_requests_wait_as_frames(void **state)
{
	struct rig *g = *state;

	put(g, 0, 64, 0, false);
	put(g, 0, 64, WIRE_RMA_GET, false);
	turn(g);
	assert_non_null(g->s[0].c->accesses);
	rank_dies(&g->s[0]);
	chan_reap(&g->s[0].n);
	turns(g);
	assert_non_null(g->s[0].l.rmas); /* the owner's library has to read for the get */
	rank_dies(&g->s[OWNER]);
	chan_reap(&g->s[OWNER].n);
	turns(g);
	assert_null(g->s[0].l.rmas);
	assert_null(g->s[0].l.framed);
}

static void killed_while_a_key_is_asked_for(void **state)
{
	struct rig *g = *state;

	put(g, 0, 64, 0, true);
	turn(g);
	assert_non_null(g->s[0].l.rmas);
	killed(g, VERBS_OK);
}

static void killed_while_it_is_posted(void **state)
{
	struct rig *g = *state;

	put(g, 0, 3 * 262144 > REGION_LEN ? REGION_LEN : 3 * 262144, 0, true);
	turns(g);
	assert_int_equal(posted.n, 2);
	killed(g, VERBS_OK);
}

static void killed_while_it_is_held(void **state)
{
	struct rig *g = *state;
	struct link *l = &g->s[0].l;
	struct core_act a = {.lane = 0, .gen = l->core.lane[0].gen, .number = 0, .told = CORE_TOLD_PSN};

	put(g, 0, 64, 0, true);
	turns(g);
	complete(g, VERBS_FLUSHED);
	assert_int_equal(l->ledger.held, 1);
	rank_dies(&g->s[0]);
	turn(g);
	chan_reap(&g->s[0].n);
	rma_report(l, &a);
	turns(g);
	while (posted.n)
		complete(g, VERBS_OK);
	turns(g);
	assert_null(l->rmas);
	assert_true(core_rma_idle(&l->ledger));
}

static void killed_while_a_message_is_fetched(void **state)
{
	struct rig *g = *state;

	announce(g, 5);
	announce(g, 6);
	fetch(g, 5);
	assert_int_equal(posted.n, 1);
	killed(g, VERBS_OK);
	assert_null(g->s[0].n.imports);
}

static void killed_while_its_key_is_being_revoked(void **state)
{
	struct rig *g = *state;

	put(g, 0, 64, 0, true);
	turns(g);
	owner_closes(g);
	turns(g);
	killed(g, VERBS_OK);
	assert_false(region_of(&g->s[OWNER])->used);
}

/* Between two ranks of the node; the buffers are the libraries' to touch (no process has a number here). */
static void killed_while_a_library_is_at_it(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	struct wire_rma w = {.key = s->key, .laddr = LOCAL, .len = 64};
	struct wire_rec r = {.type = WIRE_REC_RMA, .op = 77, .dst_node = 0, .len = sizeof(w), .dst_epoch = 10};

	submit(s, &r, &w);
	submit(s, &r, &w);
	turn(g);
	assert_non_null(s->n.local_rmas);
	assert_non_null(s->c->accesses);
	rank_dies(s);
	chan_reap(&s->n);
	assert_null(s->n.chans);
	turns(g);
	assert_null(s->n.local_rmas);
}

/* The owner of the memory is killed, the other goes on. */
static void the_owner_is_killed_while_its_memory_is_put_to(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[OWNER];

	put(g, 0, 64, 0, true);
	put(g, 0, 64, WIRE_RMA_GET, false);
	turns(g);
	rank_dies(s);
	chan_reap(&s->n);
	turns(g);
	while (posted.n)
		complete(g, VERBS_OK);
	turns(g);
	assert_null(g->s[0].l.rmas);
	s->n.now += 60000000000ull;
	region_tick(&s->n);
	turns(g);
	region_tick(&s->n);
	assert_false(region_of(s)->used);
}

/* Its receive ring makes no sense: the answer that finds no place ends the channel in the midst of its requests. */
static void its_ring_is_overwritten_with_requests_behind(void **state)
{
	struct rig *g = *state;
	struct side *s = &g->s[0];
	struct chan *c = s->c;

	while (shm_ring_reserve(&c->rx, 0)) {
		shm_ring_commit(&c->rx, 0);
		c->msgs_in++;
	}
	atomic_store(&c->shm->rx.head, 1ull << 40);
	put(g, 0, 64, WIRE_RMA_INLINE | WIRE_RMA_GET, false); /* makes no sense: answered at once */
	put(g, 0, 64, 0, false);
	put(g, 0, 64, 0, true);
	s->c = NULL;
	turn(g);
	assert_true(c->broken);
	nothing_names_it(&s->n, c);
	c->stalled = false;
	chan_reap(&s->n);
	assert_null(s->n.chans);
	turns(g);
	assert_null(s->l.rmas);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_put_after_a_message_from_the_middle_goes_to_the_regions_base),
		TEST(a_put_beside_a_message_asks_for_the_key),
		TEST(a_message_after_a_put_is_fetched_from_where_it_is),
		TEST(a_message_can_be_fetched_once_and_within_its_bounds),
		TEST(a_message_that_is_over_is_forgotten),
		TEST(what_is_never_fetched_is_bounded),
		TEST(the_owner_awaits_who_puts_after_a_message),
		TEST(a_region_of_messages_alone_goes_at_once),
		TEST(the_sender_is_killed_while_its_message_is_fetched),
		TEST(a_message_that_was_not_fetched_when_its_sender_was_killed_is_not_later),
		TEST(a_put_during_a_revocation_ends_and_holds_up_nothing),
		TEST(who_answers_late_has_its_rails_back),
		TEST(a_lost_importer_is_not_waited_for),
		TEST(memory_that_may_not_be_written_is_put_to_by_the_cpu),
		TEST(a_get_into_memory_that_may_not_be_written_goes_by_the_cpu),
		TEST(a_piece_is_no_longer_than_a_device_takes),
		TEST(a_new_daemon_is_no_importer),
		TEST(keys_of_a_former_daemon_are_gone),
		TEST(a_key_of_a_former_daemon_names_nothing_of_the_next),
		TEST(what_was_registered_with_a_replaced_device_is_not_used),
		TEST(ids_of_closed_regions_are_used_again_with_another_generation),
		TEST(a_small_put_waits_for_turns_not_for_all_that_others_want),
		TEST(ranks_of_a_node_are_served_in_turn),
		TEST(thousands_of_puts_all_end),
		TEST(a_node_that_takes_no_more_holds_up_what_is_for_it_alone),
		TEST(a_node_that_takes_no_more_holds_up_no_word_of_the_end),
		TEST(killed_with_requests_unread_in_the_ring),
		TEST(killed_while_requests_wait_as_frames),
		TEST(killed_while_a_key_is_asked_for),
		TEST(killed_while_it_is_posted),
		TEST(killed_while_it_is_held),
		TEST(killed_while_a_message_is_fetched),
		TEST(killed_while_its_key_is_being_revoked),
		TEST(killed_while_a_library_is_at_it),
		TEST(the_owner_is_killed_while_its_memory_is_put_to),
		TEST(its_ring_is_overwritten_with_requests_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
