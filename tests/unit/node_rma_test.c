/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/rma.c: what a put or get becomes that the peer's device refused; ledger writes behind puts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utlist.h>

#include "node/flow.h"
#include "node/rma.h"
#include "node/verbs_impl.h"
#include "rcshare.h"

#define COOKIE(i) ((uint64_t)(i))

struct rig {
	struct node n;
	struct link l;
	struct chan c;
	struct region local;
	struct import im;
	struct rma r;
	int piece;
};

static int setup(void **state)
{
	struct rig *g = calloc(1, sizeof(*g));
	struct core_cfg cfg;

	assert_non_null(g);
	g->n.o.self = 0;
	g->n.rails = 1;
	evlog_open(&g->n.log, "/dev/null", 1, 0, 0, "n0", 1 << 20);
	core_cfg_default(&cfg);
	cfg.rails = 1;
	cfg.peer = 1;
	g->l.n = &g->n;
	g->l.peer = 1;
	g->l.slots = calloc(CORE_SLOTS, WIRE_FRAME_MAX);
	core_link_init(&g->l.core, &cfg, 0);
	core_rma_init(&g->l.ledger);
	g->im.m.state = CORE_IMPORT_GOOD;
	g->im.key = (struct import_key){1, 1, 1, 1};
	g->r = (struct rma){.c = &g->c, .node = 1, .local = &g->local, .im = &g->im, .len = 8};
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct rig *g = *state;

	for (struct rma *r = g->l.rmas; r; r = r->next)
		flow_leave(r);
	free(g->l.slots);
	free(g->l.backlog);
	free(g);
	return 0;
}

/* One piece, posted with last PSN 5. */
static void post(struct rig *g)
{
	g->piece = core_rma_submit(&g->l.ledger, g->r.get ? CORE_GET : CORE_PUT, 8, 1, false, 0);
	g->l.piece[g->piece].r = &g->r;
	g->l.piece[g->piece].refused = false;
	g->r.pieces++;
	core_rma_posted(&g->l.ledger, &g->l.core, g->piece, 0, 5, 0);
}

static void refuse(struct rig *g)
{
	rma_done(&g->l, COOKIE(g->piece), VERBS_REQUEST, "remote invalid request error");
}

static void report(struct rig *g, bool known)
{
	struct core_act a = {.lane = 0, .gen = g->l.core.lane[0].gen, .number = 5,
		.told = known ? CORE_TOLD_PSN : CORE_TOLD_NOTHING};

	rma_report(&g->l, &a);
}

static void put_refused_once_goes_again_after_the_owners_word(void **state)
{
	struct rig *g = *state;

	post(g);
	refuse(g);
	assert_int_equal(g->r.status, 0);
	assert_int_equal(g->l.ledger.held, 1);
	report(g, true);
	assert_int_equal(g->r.status, 0);
	assert_int_equal(g->r.pieces, 1);
	assert_int_equal(g->im.m.state, CORE_IMPORT_ASKED);
	assert_true(g->l.open_len > 0); /* KEY_ASK */
	/* it is believed the second time */
	core_rma_posted(&g->l.ledger, &g->l.core, g->piece, 0, 5, 0);
	refuse(g);
	assert_int_equal(g->r.status, RCS_ERR_ACCESS);
	assert_int_equal(g->r.pieces, 0);
	assert_true(core_rma_idle(&g->l.ledger));
}

static void put_refused_where_the_peer_cannot_tell_was_refused(void **state)
{
	struct rig *g = *state;

	post(g);
	refuse(g);
	report(g, false);
	assert_int_equal(g->r.status, RCS_ERR_ACCESS);
	assert_int_equal(g->r.pieces, 0);
}

static void put_that_was_only_flushed_is_ambiguous_there(void **state)
{
	struct rig *g = *state;

	post(g);
	rma_done(&g->l, COOKIE(g->piece), VERBS_FLUSHED, "");
	report(g, false);
	assert_int_equal(g->r.status, RCS_ERR_AMBIGUOUS);
}

static void get_refused_once_goes_again_after_the_owners_word(void **state)
{
	struct rig *g = *state;

	g->r.get = true;
	post(g);
	refuse(g);
	assert_int_equal(g->r.status, 0);
	assert_int_equal(g->r.pieces, 1);
	assert_int_equal(g->im.m.state, CORE_IMPORT_ASKED);
	core_rma_posted(&g->l.ledger, &g->l.core, g->piece, 0, 5, 0);
	refuse(g);
	assert_int_equal(g->r.status, RCS_ERR_ACCESS);
}

/* The library pushes it instead. */
static void large_message_refused_is_not_fetched_again(void **state)
{
	struct rig *g = *state;

	g->r.get = g->r.large = true;
	post(g);
	refuse(g);
	assert_int_equal(g->r.status, RCS_ERR_AGAIN);
	assert_int_equal(g->r.pieces, 0);
}

#define PUTS	12
#define WORD_AT 0x1000u

static char wrote[4 * PUTS]; /* 'p' a put, a digit: the ledger write of that number */
static int post_err;
static unsigned frames;
static uint8_t frame_flags; /* of the last one */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	uint64_t number;

	(void)qp;
	(void)bad;
	if (wr->opcode == IBV_WR_SEND) {
		frame_flags = ((struct wire_frame *)(uintptr_t)wr->sg_list->addr)->flags;
		frames++;
		return 0;
	}
	if (wr->wr.rdma.remote_addr != WORD_AT) {
		strcat(wrote, "p");
		return 0;
	}
	if (post_err)
		return post_err;
	memcpy(&number, (void *)(uintptr_t)wr->sg_list->addr, sizeof(number));
	strncat(wrote, &"0123456789"[number], 1);
	return 0;
}

static struct verbs v;
static struct verbs_lane lane;

/* Lane 0 is up; its peer wants its word written or does not. */
static void lane_up(struct rig *g, bool want)
{
	static struct ibv_context ctx = {.ops.post_send = post_send};
	static struct ibv_qp qp = {.context = &ctx};
	static struct ibv_mr mr;
	static uint8_t small[VERBS_SENDS * VERBS_SMALL];

	memset(&v, 0, sizeof(v));
	v.rail[0].v = &v;
	lane = (struct verbs_lane){.v = &v, .rail = &v.rail[0], .qp = &qp, .connected = true, .mtu = 4096,
		.small = small, .mem[0].mr = &mr, .word_at = WORD_AT, .wants_word = want};
	g->n.vb = &v;
	g->n.cfg.read_chunk = 64;
	g->l.rdma[0] = &lane;
	g->l.core.lane[0].state = CORE_LANE_UP;
	g->l.core.lane[0].usable = true;
	g->l.core.active = 0;
	wrote[0] = '\0';
	frames = frame_flags = 0;
}

/* PUTS puts of 8 bytes. */
static void puts_go(struct rig *g)
{
	static struct rma r[PUTS];

	g->local.ok = g->im.info.rail_ok = g->im.info.rail_write = 1;
	g->im.info.len = 1 << 20;
	for (int i = 0; i < PUTS; i++) {
		r[i] = g->r;
		DL_APPEND(g->l.rmas, &r[i]);
		assert_true(flow_join(&g->l, &r[i]));
	}
	rma_pump(&g->l);
}

static void no_byte_is_written_for_a_device_that_tells_the_truth(void **state)
{
	struct rig *g = *state;

	lane_up(g, false);
	puts_go(g);
	assert_string_equal(wrote, "pppppppppppp");
	rma_pump(&g->l);
	assert_string_equal(wrote, "pppppppppppp");
}

static void a_ledger_write_comes_behind_each_batch_for_one_that_does_not(void **state)
{
	struct rig *g = *state;

	lane_up(g, true);
	puts_go(g);
	assert_string_equal(wrote, "pppppppp1pppp2");
	rma_pump(&g->l);
	assert_string_equal(wrote, "pppppppp1pppp2");
}

static void a_ledger_write_that_found_no_room_is_posted_later(void **state)
{
	struct rig *g = *state;

	lane_up(g, true);
	post_err = ENOMEM;
	puts_go(g);
	assert_string_equal(wrote, "pppppppppppp");
	post_err = 0;
	rma_pump(&g->l);
	assert_string_equal(wrote, "pppppppppppp1");
	rma_pump(&g->l);
	assert_string_equal(wrote, "pppppppppppp1");
}

/* Its self-test ended when the lane was up. */
static void each_frame_of_a_lane_tells_that_the_word_is_wanted(void **state)
{
	static _Alignas(64) uint8_t table[sizeof(struct shm_table) + 2 * sizeof(struct shm_node)];
	struct rig *g = *state;

	lane_up(g, false);
	g->n.table = (struct shm_table *)(void *)table;
	g->n.links = &g->l;
	link_dirty(&g->l);
	link_turn(&g->n);
	assert_in_range(frames, 1, 8); /* a sign of life */
	assert_int_equal(frame_flags, 0);
	v.rail[0].lies = true;
	frames = 0;
	g->n.now += 2000000000ull;
	g->l.core.lane[0].posts = g->l.core.lane[0].plain = 0;
	g->l.core.polled_at = g->n.now;
	link_dirty(&g->l);
	link_turn(&g->n);
	assert_in_range(frames, 1, 8);
	assert_int_equal(frame_flags, WIRE_FRAME_F_WORD);
}

static void a_frame_that_wants_the_word_gets_it(void **state)
{
	struct wire_frame f = {.type = WIRE_FRAME_ACK, .src_node = 1, .flags = WIRE_FRAME_F_WORD};
	struct rig *g = *state;

	lane_up(g, false);
	f.lane_gen = g->l.core.lane[0].gen;
	wire_frame_seal(&f, "");
	link_verbs_ops.recv(&g->l, &lane, &f, sizeof(f));
	puts_go(g);
	assert_string_equal(wrote, "pppppppp1pppp2");
}

/* Its rank died while a put from it is held; the importer, which hung, answers in the end and has its rails back. */
static void an_importer_that_answers_late_has_its_rails_back(void **state)
{
	struct rig *g = *state;
	struct region *regions[1] = {&g->local};
	struct link *links[2] = {NULL, &g->l};
	struct wire_rec r = {.type = WIRE_REC_REVOKED, .src_node = 1,
		.data = wire_key_pack((struct wire_key){1, 3})};

	g->n.link = links;
	g->n.regions = regions;
	g->n.regions_n = 1;
	g->n.now = 1;
	g->local = (struct region){.id = 1, .used = true, .gen = 3, .owner = &g->c, .uses = 1};
	assert_true(key_importer(&g->local, 1, true));
	region_drop_all(&g->n, &g->c);
	g->n.now += 2000000000;
	key_tick(&g->n);
	assert_int_equal(g->l.no_rails, 1);
	key_tick(&g->n);
	key_receive(&g->n, &r, "");
	assert_int_equal(g->l.no_rails, 0);
	region_tick(&g->n);
	assert_true(g->local.used);
	region_unuse(&g->n, &g->local);
	assert_false(g->local.used);
	free(g->local.x.list);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* Seen when the first rank of a step that had lost a node closed its endpoint. */
static void an_importer_that_was_lost_is_told_nothing(void **state)
{
	struct rig *g = *state;
	struct link *links[2] = {NULL, &g->l};
	struct region *regions[1] = {&g->local};

	g->n.o.nodes = 2;
	g->n.link = links;
	g->n.regions = regions;
	g->n.regions_n = 1;
	g->local.used = true;
	g->local.owner = &g->c;
	assert_true(key_importer(&g->local, 1, true));
	key_node_lost(&g->n, 1);
	key_announce(&g->n, &g->local);
	key_revoke(&g->n, &g->local);
	assert_int_equal(g->l.open_len, 0);
	assert_true(g->local.x.revoking);
	free(g->local.x.list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_importer_that_was_lost_is_told_nothing),
		TEST(an_importer_that_answers_late_has_its_rails_back),
		TEST(put_refused_once_goes_again_after_the_owners_word),
		TEST(put_refused_where_the_peer_cannot_tell_was_refused),
		TEST(put_that_was_only_flushed_is_ambiguous_there),
		TEST(get_refused_once_goes_again_after_the_owners_word),
		TEST(large_message_refused_is_not_fetched_again),
		TEST(no_byte_is_written_for_a_device_that_tells_the_truth),
		TEST(a_ledger_write_comes_behind_each_batch_for_one_that_does_not),
		TEST(each_frame_of_a_lane_tells_that_the_word_is_wanted),
		TEST(a_frame_that_wants_the_word_gets_it),
		TEST(a_ledger_write_that_found_no_room_is_posted_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
