/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership: the basic cases, one by one. Random ones are tests/sim's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/view.h"

#define MS  1000000ull
#define SEC (1000 * MS)
#define MAX 20
#define QUEUE 4096

/* A step of up to MAX nodes with one clock; messages take 1 ms, or `slow` more. */
static struct net {
	struct core_view_cfg cfg;
	struct core_view *v[MAX];
	uint16_t n;
	uint64_t now, slow;
	bool dead[MAX], cut[MAX][MAX];
	struct { uint64_t at; uint16_t from, to; struct core_view_msg m; } q[QUEUE];
	uint32_t q_n;
	/* what actions said */
	uint32_t views[MAX], lost[MAX];
	uint16_t last_lost[MAX];
	bool acts[MAX], removed[MAX], stopped[MAX];
	uint16_t switched[MAX], sw_node[MAX], sw_inc[MAX];
	uint64_t sw_at[MAX], stop_at[MAX], active_at[MAX], halt_at[MAX];
	uint64_t sent;
} net;

static void drain(uint16_t i)
{
	struct core_view_act a;

	while (!net.dead[i] && core_view_poll(net.v[i], net.now, &a)) {
		switch (a.type) {
		case CORE_VIEW_ACT_SEND:
			assert_true(net.q_n < QUEUE);
			net.q[net.q_n].at = net.now + MS + net.slow;
			net.q[net.q_n].from = i;
			net.q[net.q_n].to = a.node;
			net.q[net.q_n++].m = a.msg;
			net.sent++;
			break;
		case CORE_VIEW_ACT_VIEW:
			assert_int_equal(a.view, net.views[i] + 1);
			net.views[i]++;
			break;
		case CORE_VIEW_ACT_LOST:
			net.lost[i]++;
			net.last_lost[i] = a.node;
			break;
		case CORE_VIEW_ACT_SWITCH:
			net.switched[i] = a.index;
			net.sw_node[i] = a.node;
			net.sw_inc[i] = a.incarnation;
			net.sw_at[i] = net.now;
			break;
		case CORE_VIEW_ACT_ACTIVE:
			net.acts[i] = true;
			net.active_at[i] = net.now;
			break;
		case CORE_VIEW_ACT_PARTITIONED:
			net.acts[i] = false;
			net.stop_at[i] = net.now;
			break;
		case CORE_VIEW_ACT_STOP:
			net.stopped[i] = true;
			net.halt_at[i] = net.now;
			break;
		case CORE_VIEW_ACT_REMOVED:
			net.removed[i] = true;
			net.acts[i] = false;
			break;
		default:
			break;
		}
	}
}

static void run(uint64_t ns)
{
	const uint64_t end = net.now + ns;

	for (;;) {
		uint64_t next = end;

		for (uint16_t i = 0; i < net.n; i++)
			if (!net.dead[i] && core_view_deadline(net.v[i]) < next)
				next = core_view_deadline(net.v[i]);
		if (net.q_n && net.q[0].at < next)
			next = net.q[0].at;
		if (next > net.now)
			net.now = next;
		for (uint16_t i = 0; i < net.n; i++)
			drain(i);
		while (net.q_n && net.q[0].at <= net.now) {
			struct core_view_msg m = net.q[0].m;
			uint16_t from = net.q[0].from, to = net.q[0].to;

			memmove(&net.q[0], &net.q[1], --net.q_n * sizeof(net.q[0]));
			if (net.dead[to] || net.cut[from][to])
				continue;
			core_view_rx(net.v[to], &m, net.now);
			drain(to);
		}
		if (net.now >= end)
			return;
	}
}

static void begin(uint16_t nodes, uint16_t spares, bool witness)
{
	for (uint16_t i = 0; i < MAX; i++)
		free(net.v[i]);
	memset(&net, 0, sizeof(net));
	net.n = nodes;
	net.now = 100 * SEC;
	core_view_cfg_default(&net.cfg);
	net.cfg.nodes = nodes;
	net.cfg.spares = spares;
	net.cfg.witness = witness;
	for (uint16_t i = 0; i < nodes; i++) {
		net.cfg.self = i;
		net.v[i] = core_view_init(malloc(core_view_size(&net.cfg)), &net.cfg, net.now);
	}
}

static void suspect(uint16_t node)
{
	for (uint16_t i = 0; i < net.n; i++)
		if (i != node && !net.dead[i])
			core_view_suspect(net.v[i], node, net.now);
}

static void lose(uint16_t node)
{
	net.dead[node] = true;
	suspect(node);
}

/* One machine alone, messages by hand. */
static struct core_view *alone(uint16_t nodes, uint16_t self)
{
	struct core_view_act a;

	begin(nodes, 0, false);
	net.cfg.self = self;
	while (core_view_poll(net.v[self], net.now, &a))
		;
	return net.v[self];
}

static struct core_view_msg msg(uint8_t type, uint8_t phase, uint16_t src, uint16_t dst)
{
	struct core_view_msg m = { .type = type, .phase = phase, .src = src, .dst = dst,
		.via = CORE_VIEW_NONE };

	return m;
}

static struct core_view_msg wave(uint8_t phase, uint16_t root, uint16_t dst, uint64_t ballot, int gone)
{
	struct core_view_msg m = msg(CORE_VIEW_WAVE, phase, root, dst);

	m.root = root;
	m.lo = (uint16_t)((dst + net.n - root) % net.n);
	m.hi = (uint16_t)(m.lo + 1);
	m.ballot = ballot;
	if (gone >= 0) {
		m.n = 1;
		m.set[0] = (uint16_t)gone;
	}
	return m;
}

/* The next message of a type; false: none. */
static bool next(struct core_view *v, uint8_t type, struct core_view_msg *m, uint16_t *to)
{
	struct core_view_act a;
	bool found = false;

	while (core_view_poll(v, net.now, &a)) {
		if (found || a.type != CORE_VIEW_ACT_SEND || a.msg.type != type)
			continue;
		*m = a.msg;
		if (to)
			*to = a.node;
		found = true;
	}
	return found;
}

static void impossible_configuration_has_no_size(void **state)
{
	struct core_view_cfg cfg;

	(void)state;
	core_view_cfg_default(&cfg);
	assert_int_equal(core_view_size(&cfg), 0);
	cfg.nodes = 4;
	assert_true(core_view_size(&cfg) > 0);
	cfg.self = 4;
	assert_int_equal(core_view_size(&cfg), 0);
	cfg.self = 0;
	cfg.spares = 4;
	assert_int_equal(core_view_size(&cfg), 0);
	cfg.spares = 0;
	cfg.nodes = 10000;
	assert_true(core_view_size(&cfg) < 64 * 1024);
}

static void all_act_and_nothing_is_decided_in_peace(void **state)
{
	(void)state;
	begin(5, 1, false);
	run(20 * SEC);
	for (uint16_t i = 0; i < 5; i++) {
		assert_true(net.acts[i]);
		assert_true(core_view_acting(net.v[i], net.now));
		assert_int_equal(net.views[i], 0);
		assert_true(core_view_rest(net.v[i]));
	}
}

static void a_dead_node_is_removed_by_all(void **state)
{
	(void)state;
	begin(4, 0, false);
	run(SEC);
	lose(2);
	run(SEC);
	for (uint16_t i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		assert_int_equal(net.views[i], 1);
		assert_int_equal(net.lost[i], 1);
		assert_int_equal(net.last_lost[i], 2);
		assert_false(core_view_member(net.v[i], 2));
		assert_int_equal(core_view_node(net.v[i], 2, NULL), CORE_VIEW_NONE);
		assert_true(net.acts[i]);
	}
}

/* As where bulk data stands before them in a queue: nobody may give up faster than an answer can come. */
static void messages_that_take_long_are_waited_for(void **state)
{
	(void)state;
	begin(3, 0, false);
	run(SEC);
	net.slow = SEC;
	lose(2);
	run(60 * SEC);
	for (uint16_t i = 0; i < 2; i++) {
		assert_int_equal(net.views[i], 1);
		assert_int_equal(net.last_lost[i], 2);
	}
}

static void the_lowest_node_may_die_too(void **state)
{
	(void)state;
	begin(4, 0, false);
	run(SEC);
	lose(0);
	run(SEC);
	assert_int_equal(net.views[1], 1);
	assert_int_equal(net.views[3], 1);
	run(10 * SEC);
	assert_true(net.acts[1] && net.acts[2] && net.acts[3]);
}

static void a_suspect_that_lives_is_left_alone(void **state)
{
	(void)state;
	begin(4, 0, false);
	run(SEC);
	core_view_suspect(net.v[1], 3, net.now);
	run(SEC);
	core_view_trust(net.v[1], 3, net.now);
	run(20 * SEC);
	for (uint16_t i = 0; i < 4; i++) {
		assert_int_equal(net.views[i], 0);
		assert_true(core_view_rest(net.v[i]));
	}
}

static void of_a_cut_pair_the_higher_goes(void **state)
{
	(void)state;
	begin(4, 0, false);
	run(SEC);
	net.cut[1][3] = net.cut[3][1] = true;
	core_view_suspect(net.v[1], 3, net.now);
	core_view_suspect(net.v[3], 1, net.now);
	run(net.cfg.pair_ns - SEC);
	assert_int_equal(net.views[0], 0);
	assert_true(net.acts[1] && net.acts[3]);
	run(3 * SEC);
	assert_int_equal(net.views[0], 1);
	assert_int_equal(net.last_lost[1], 3);
	assert_true(net.removed[3]);
	assert_false(net.acts[3]);
}

static void a_minority_stops_and_decides_nothing(void **state)
{
	(void)state;
	begin(5, 0, false);
	run(SEC);
	for (int a = 0; a < 2; a++)
		for (int b = 2; b < 5; b++)
			net.cut[a][b] = net.cut[b][a] = true;
	for (uint16_t a = 0; a < 2; a++)
		for (uint16_t b = 2; b < 5; b++) {
			core_view_suspect(net.v[a], b, net.now);
			core_view_suspect(net.v[b], a, net.now);
		}
	run(net.cfg.lease_ns + 100 * MS);
	assert_int_equal(net.views[0], 0);
	assert_false(net.acts[0] || net.acts[1]);
	assert_true(net.views[2] >= 1);
	assert_int_equal(net.lost[4], 2);
	assert_true(net.acts[2] && net.acts[3] && net.acts[4]);
	/* Healed: they find out. */
	memset(net.cut, 0, sizeof(net.cut));
	for (uint16_t a = 0; a < 2; a++)
		for (uint16_t b = 2; b < 5; b++)
			core_view_trust(net.v[a], b, net.now);
	run(3 * SEC);
	assert_true(net.removed[0] && net.removed[1]);
}

static void who_stopped_acts_again_when_nothing_was_decided(void **state)
{
	(void)state;
	begin(3, 0, false);
	run(SEC);
	memset(net.cut, 1, sizeof(net.cut));
	run(net.cfg.lease_ns + SEC);
	for (uint16_t i = 0; i < 3; i++)
		assert_false(net.acts[i]);
	memset(net.cut, 0, sizeof(net.cut));
	run(2 * SEC);
	for (uint16_t i = 0; i < 3; i++) {
		assert_true(net.acts[i]);
		assert_int_equal(net.views[i], 0);
	}
}

static void of_two_the_lower_goes_on_alone(void **state)
{
	(void)state;
	begin(2, 0, false);
	run(SEC);
	lose(1);
	run(SEC);
	assert_int_equal(net.views[0], 1);
	run(5 * SEC);
	assert_true(net.acts[0]);
	begin(2, 0, false);
	run(SEC);
	lose(0);
	run(10 * SEC);
	assert_int_equal(net.views[1], 0);
	assert_false(net.acts[1]);
}

static void with_a_witness_its_word_decides(void **state)
{
	(void)state;
	for (uint16_t dead = 0; dead < 2; dead++) {
		const uint16_t other = !dead;

		begin(2, 0, true);
		run(SEC);
		lose(dead);
		run(5 * SEC);
		assert_int_equal(net.views[other], 0);
		assert_false(net.acts[other]);
		core_view_witness(net.v[other], dead, net.now);
		run(5 * SEC);
		assert_int_equal(net.views[other], 1);
		assert_true(net.acts[other]);
	}
}

static void a_spare_takes_over_after_the_lease(void **state)
{
	uint64_t died, lease;
	uint16_t inc;

	(void)state;
	begin(5, 1, false);
	run(SEC);
	died = net.now;
	lease = net.cfg.lease_ns;
	lose(1);
	run(SEC);
	for (uint16_t i = 0; i < 5; i++) {
		if (i == 1)
			continue;
		assert_int_equal(core_view_node(net.v[i], 1, &inc), 4);
		assert_int_equal(inc, 1);
		assert_int_equal(net.sw_at[i], 0);
	}
	run(lease + lease / 4);
	assert_int_equal(net.switched[4], 1);
	assert_int_equal(net.sw_node[4], 4);
	assert_int_equal(net.sw_inc[4], 1);
	assert_true(net.sw_at[4] >= died + lease + lease / 8);
	assert_int_equal(core_view_index(net.v[4], 4), 1);
	/* No spare is left. */
	lose(2);
	run(SEC);
	assert_int_equal(core_view_node(net.v[0], 2, NULL), CORE_VIEW_NONE);
	/* The one that took over dies as well: only 0 and 3 are left, a majority of 3. */
	lose(4);
	run(SEC);
	assert_int_equal(core_view_node(net.v[0], 1, NULL), CORE_VIEW_NONE);
	assert_int_equal(net.views[3], 3);
}

static void a_removed_node_stops_with_its_lease(void **state)
{
	(void)state;
	begin(4, 1, false);
	run(SEC);
	for (int i = 0; i < 4; i++)
		net.cut[1][i] = net.cut[i][1] = true;
	suspect(1);
	run(net.cfg.lease_ns + net.cfg.lease_ns / 4 + SEC);
	assert_int_equal(net.sw_node[3], 3);
	assert_true(net.stop_at[1] > 0 && net.stop_at[1] < net.sw_at[3]);
	assert_false(net.removed[1]); /* it cannot know */
	/* Time alone is enough, whatever the machine was told. */
	assert_false(core_view_acting(net.v[1], net.now));
}

static void who_slept_stops_at_once(void **state)
{
	struct core_view_act a;
	bool stopped = false;

	(void)state;
	begin(4, 0, false);
	run(SEC);
	net.now += 10 * SEC;
	assert_false(core_view_acting(net.v[2], net.now));
	while (core_view_poll(net.v[2], net.now, &a))
		stopped |= a.type == CORE_VIEW_ACT_PARTITIONED;
	assert_true(stopped);
}

static void views_that_were_missed_come_in_order(void **state)
{
	(void)state;
	begin(7, 0, false);
	run(SEC);
	net.cut[0][6] = net.cut[1][6] = net.cut[2][6] = net.cut[3][6] = true;
	net.cut[4][6] = net.cut[5][6] = true;
	lose(5);
	run(200 * MS);
	lose(4);
	run(200 * MS);
	assert_int_equal(net.views[0], 2);
	assert_int_equal(net.views[6], 0);
	memset(net.cut, 0, sizeof(net.cut));
	run(SEC);
	assert_int_equal(net.views[6], 2);
	assert_true(net.acts[6]);
}

static void a_promise_is_kept(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = wave(CORE_VIEW_PREPARE, 1, 2, 5 << 16 | 1, 4), out;

	(void)state;
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_TALLY, &out, NULL));
	assert_int_equal(out.count, 1);
	assert_int_equal(out.acc, 0);
	m = wave(CORE_VIEW_PREPARE, 0, 2, 4 << 16, 3);
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_NACK, &out, NULL));
	assert_int_equal(out.acc, 5 << 16 | 1);
	m = wave(CORE_VIEW_ACCEPT, 0, 2, 4 << 16, 3);
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_NACK, &out, NULL));
}

static void what_was_accepted_is_told_and_carried_on(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = wave(CORE_VIEW_ACCEPT, 1, 2, 5 << 16 | 1, 4), out;

	(void)state;
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_TALLY, &out, NULL));
	m = wave(CORE_VIEW_PREPARE, 0, 2, 6 << 16, 3);
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_TALLY, &out, NULL));
	assert_int_equal(out.acc, 5 << 16 | 1);
	assert_int_equal(out.n, 1);
	assert_int_equal(out.set[0], 4);
	/* It does not vote in beats now. */
	m = wave(CORE_VIEW_BEAT, 0, 2, 100, -1);
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_TALLY, &out, NULL));
	assert_int_equal(out.count, 0);
}

static void an_accepted_set_is_carried_on_when_its_proposer_is_silent(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = wave(CORE_VIEW_ACCEPT, 1, 2, 5 << 16 | 1, 4), out;
	bool own = false;

	(void)state;
	core_view_rx(v, &m, net.now);
	assert_false(core_view_rest(v));
	for (int i = 0; i < 500 && !own; i++) {
		struct core_view_act a;

		net.now += 10 * MS;
		while (core_view_poll(v, net.now, &a)) {
			out = a.msg;
			own |= a.type == CORE_VIEW_ACT_SEND && out.type == CORE_VIEW_WAVE &&
			       out.phase == CORE_VIEW_PREPARE && out.root == 2 && out.set[0] == 4;
		}
	}
	assert_true(own);
}

/* A proposer of five: answers by hand. */
static void votes_are_counted_once_and_the_highest_set_wins(void **state)
{
	struct core_view *v = alone(5, 0);
	struct core_view_msg m, out, ask[4];
	struct core_view_act a;
	uint32_t asked = 0;
	bool leaving_asked = false;

	(void)state;
	core_view_suspect(v, 4, net.now);
	for (int i = 0; i < 40 && !asked; i++) {
		net.now += 10 * MS;
		while (core_view_poll(v, net.now, &a))
			if (a.type != CORE_VIEW_ACT_SEND || a.msg.type != CORE_VIEW_WAVE ||
				a.msg.phase != CORE_VIEW_PREPARE)
				continue;
			else if (a.msg.dst == 4)
				leaving_asked = true;
			else
				ask[asked++] = a.msg;
	}
	assert_int_equal(asked, 3);
	assert_true(leaving_asked); /* perhaps it lives, and its vote is the one that counts */
	m = msg(CORE_VIEW_TALLY, CORE_VIEW_PREPARE, ask[0].dst, 0);
	m.root = 0;
	m.lo = ask[0].lo;
	m.hi = ask[0].hi;
	m.ballot = ask[0].ballot;
	m.count = 1;
	m.flags = CORE_VIEW_F_DONE;
	for (int i = 0; i < 3; i++)
		core_view_rx(v, &m, net.now);
	m.count = 3; /* more than there are in the range */
	core_view_rx(v, &m, net.now);
	assert_false(next(v, CORE_VIEW_WAVE, &out, NULL));
	m.src = ask[1].dst;
	m.lo = ask[1].lo;
	m.hi = ask[1].hi;
	m.count = 1;
	m.acc = 1; /* an earlier ballot's set */
	m.n = 1;
	m.set[0] = 3;
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_WAVE, &out, NULL));
	assert_int_equal(out.phase, CORE_VIEW_ACCEPT);
	assert_int_equal(out.n, 1);
	assert_int_equal(out.set[0], 3);
}

static void a_grant_counts_from_what_it_echoes(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = wave(CORE_VIEW_BEAT, 0, 2, 7, -1), out;
	uint64_t stamp;

	(void)state;
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_TALLY, &out, NULL));
	stamp = out.stamp;
	assert_int_equal(stamp, net.now);
	assert_false(core_view_acting(v, net.now));
	net.now += 400 * MS;
	m = msg(CORE_VIEW_GRANT, CORE_VIEW_BEAT, 0, 2);
	m.root = 0;
	m.ballot = 7;
	m.stamp = stamp;
	m.acc = 50 * MS;
	core_view_rx(v, &m, net.now);
	assert_true(core_view_acting(v, net.now));
	assert_true(core_view_acting(v, stamp - 50 * MS + net.cfg.lease_ns - 1));
	assert_false(core_view_acting(v, stamp - 50 * MS + net.cfg.lease_ns));
}

static void what_cannot_be_sent_goes_through_a_third(void **state)
{
	struct core_view *v = alone(3, 0);
	struct core_view_msg out, on;
	uint16_t to;

	(void)state;
	core_view_suspect(v, 2, net.now);
	assert_true(next(v, CORE_VIEW_CHECK, &out, &to));
	assert_int_equal(to, 1);
	assert_int_equal(out.dst, 2);
	core_view_rx(net.v[1], &out, net.now);
	assert_true(next(net.v[1], CORE_VIEW_CHECK, &on, &to));
	assert_int_equal(to, 2);
	assert_int_equal(on.via, 1);
	assert_int_equal(on.src, 0);
	core_view_rx(net.v[2], &on, net.now);
	assert_true(next(net.v[2], CORE_VIEW_ALIVE, &out, &to));
	assert_int_equal(to, 1);
	assert_int_equal(out.dst, 0);
	/* It is relayed once only. */
	on.dst = 0;
	on.src = 2;
	core_view_rx(net.v[1], &on, net.now);
	assert_false(next(net.v[1], CORE_VIEW_CHECK, &out, &to));
}

static void half_of_the_view_is_never_proposed(void **state)
{
	(void)state;
	begin(5, 0, false);
	run(SEC);
	for (uint16_t i = 0; i < 5; i++)
		net.cut[2][i] = net.cut[i][2] = true;
	for (uint16_t i = 0; i < 5; i++)
		if (i != 2)
			core_view_suspect(net.v[2], i, net.now);
	run(net.cfg.lease_ns + net.cfg.grace_ns - SEC); /* and not stopped for good yet */
	assert_int_equal(net.views[2], 0);
	for (uint16_t i = 0; i < 5; i++)
		if (i != 2)
			core_view_trust(net.v[2], i, net.now);
	memset(net.cut, 0, sizeof(net.cut));
	run(5 * SEC);
	for (uint16_t i = 0; i < 5; i++) {
		assert_int_equal(net.views[i], 0);
		assert_true(net.acts[i]);
	}
}

/* --- lease: how long ranks may act, and who is stopped --- */

static void isolate(uint16_t node)
{
	for (uint16_t i = 0; i < net.n; i++)
		net.cut[node][i] = net.cut[i][node] = true;
}

static void begin_timeout(uint16_t nodes, uint16_t spares, uint64_t timeout)
{
	begin(nodes, spares, false);
	core_view_cfg_timeout(&net.cfg, timeout);
	for (uint16_t i = 0; i < nodes; i++) {
		net.cfg.self = i;
		free(net.v[i]);
		net.v[i] = core_view_init(malloc(core_view_size(&net.cfg)), &net.cfg, net.now);
	}
}

/* No clock may run so wrong that the lost node's ranks and the spare's act at once. */
static void a_spare_begins_after_the_last_act_of_whom_it_replaces(void **state)
{
	const double d = 1.0 / CORE_VIEW_DRIFT;

	(void)state;
	for (uint64_t timeout = 100 * MS; timeout <= 60 * SEC; timeout += timeout / 3) {
		begin_timeout(4, 1, timeout);
		assert_true((double)core_view_takeover_ns(&net.cfg) * (1 - d) >=
			    (double)net.cfg.lease_ns * (1 + 2 * d) + (double)net.cfg.act_ns);
		if (timeout >= 400 * MS)
			assert_true(core_view_takeover_ns(&net.cfg) < timeout + timeout / 2);
	}
}

/* Nodes that have never spoken have to connect for it, and a busy host takes its time. */
static void who_is_heard_through_a_third_late_is_not_lost(void **state)
{
	(void)state;
	begin_timeout(6, 0, 3 * SEC);
	run(SEC);
	net.slow = 55 * MS;
	net.cut[0][1] = net.cut[1][0] = true;
	core_view_suspect(net.v[1], 0, net.now);
	run(10 * SEC);
	for (uint16_t i = 0; i < 6; i++)
		assert_int_equal(net.views[i], 0);
	net.slow = 0;
}

static bool removed_by_all(uint16_t lost)
{
	for (uint16_t i = 0; i < net.cfg.nodes; i++)
		if (i != lost && core_view_member(net.v[i], lost))
			return false;
	return true;
}

/* The lowest is told of each case as often as it must be to go on with it, however long a check takes. */
static void whom_its_watchers_report_is_removed_by_the_lowest(void **state)
{
	static const uint64_t timeout[] = {1, 20, 60};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		const uint64_t t = timeout[i] * SEC;
		uint64_t began;

		begin_timeout(16, 0, t);
		run(3 * t);
		net.dead[8] = true;
		for (uint16_t d = 1; d <= net.cfg.watch; d++) {
			core_view_suspect(net.v[8 - d], 8, net.now);
			core_view_suspect(net.v[8 + d], 8, net.now);
		}
		began = net.now;
		while (!removed_by_all(8)) {
			run(10 * MS);
			assert_true(net.now - began < net.cfg.check_ns + 2 * SEC);
		}
	}
}

/* Two suspects that are asked at the same times: each of them by its neighbours, and as often by all. */
static void each_suspect_has_relays_of_its_own(void **state)
{
	static const uint16_t suspect[2] = {5, 12};
	unsigned near[2] = {0}, far[2] = {0};
	struct core_view *v;

	(void)state;
	begin(20, 0, false);
	v = net.v[0];
	for (int k = 0; k < 2; k++)
		core_view_suspect(v, suspect[k], net.now);
	for (int i = 0; i < 400; i++) {
		struct core_view_act a;

		while (core_view_poll(v, net.now + i * (net.cfg.check_ns / 4), &a) != CORE_VIEW_ACT_NONE) {
			int k = a.msg.dst == suspect[1], off = abs(a.node - suspect[k]);

			if (a.type != CORE_VIEW_ACT_SEND || a.msg.type != CORE_VIEW_CHECK || !off)
				continue;
			near[k] += off <= net.cfg.watch;
			far[k] += off > net.cfg.watch;
		}
	}
	for (int k = 0; k < 2; k++) {
		assert_true(near[k] > 20 && far[k] > 20);
		assert_true(near[k] < 3 * far[k] && far[k] < 3 * near[k]);
	}
}

static void join_again(uint16_t i, uint16_t j)
{
	net.cut[i][j] = net.cut[j][i] = false;
	core_view_trust(net.v[i], j, net.now);
	core_view_trust(net.v[j], i, net.now);
}

/* A switch between two halves stands still for a while, and its ports come back one after the other. */
static void halves_that_meet_again_lose_nobody(void **state)
{
	(void)state;
	begin_timeout(6, 0, 6 * SEC);
	run(SEC);
	for (uint16_t i = 0; i < 3; i++)
		for (uint16_t j = 3; j < 6; j++) {
			net.cut[i][j] = net.cut[j][i] = true;
			core_view_suspect(net.v[i], j, net.now);
			core_view_suspect(net.v[j], i, net.now);
		}
	run(5 * SEC);
	join_again(0, 3);
	run(SEC / 4);
	for (uint16_t i = 0; i < 3; i++)
		for (uint16_t j = 3; j < 6; j++)
			join_again(i, j);
	run(10 * SEC);
	for (uint16_t i = 0; i < 6; i++)
		assert_int_equal(net.views[i], 0);
}

/* Whom it reaches does not count: nobody is suspected here, and two of the others are heard. */
static void without_a_lease_ranks_that_may_be_replaced_stand_still(void **state)
{
	uint64_t end;

	(void)state;
	begin_timeout(7, 1, SEC);
	assert_int_equal(core_view_until(net.v[2]), 0);
	run(SEC);
	isolate(2);
	net.cut[2][1] = net.cut[1][2] = net.cut[2][3] = net.cut[3][2] = false;
	for (uint16_t i = 0; i < 7; i++)
		if (i != 2)
			core_view_suspect(net.v[2], i, net.now); /* so that nothing is relayed */
	core_view_suspect(net.v[1], 2, net.now);
	core_view_suspect(net.v[3], 2, net.now);
	end = core_view_until(net.v[2]);
	assert_true(end > net.now && end <= net.now + net.cfg.lease_ns);
	net.cut[2][1] = net.cut[1][2] = net.cut[2][3] = net.cut[3][2] = true;
	run(net.cfg.lease_ns);
	assert_int_equal(core_view_until(net.v[2]), end);
	assert_false(net.acts[2] || net.stopped[2]);
	run(net.cfg.grace_ns);
	assert_true(net.stopped[2]);
	assert_int_equal(core_view_until(net.v[2]), 0);
	assert_true(net.sw_at[6] > end + net.cfg.act_ns);
	assert_int_equal(net.sw_node[6], 6);
}

static void without_spares_a_minority_acts_until_it_is_stopped(void **state)
{
	(void)state;
	begin_timeout(5, 0, SEC);
	run(SEC);
	isolate(2);
	run(net.cfg.lease_ns + net.cfg.grace_ns - 2 * net.cfg.beat_ns);
	assert_false(net.acts[2] || net.stopped[2]);
	assert_true(core_view_until(net.v[2]) > net.now);
	run(3 * net.cfg.beat_ns);
	assert_true(net.stopped[2]);
	assert_int_equal(core_view_until(net.v[2]), 0);
	assert_false(net.stopped[0] || net.stopped[4]);
}

/* Also where half of those that were heard are silent before a lease was there, and where nobody ever came. */
static void who_never_had_a_lease_is_stopped_too(void **state)
{
	(void)state;
	begin_timeout(3, 0, SEC);
	isolate(1);
	run(net.cfg.start_ns + net.cfg.grace_ns - SEC);
	assert_false(net.stopped[1]);
	run(2 * SEC);
	assert_true(net.stopped[1]);
	begin_timeout(3, 1, SEC);
	isolate(1);
	run(SEC);
	core_view_suspect(net.v[1], 0, net.now);
	core_view_suspect(net.v[1], 2, net.now);
	run(net.cfg.grace_ns + 100 * MS);
	assert_true(net.stopped[1]);
}

/* A daemon that stood still, or its host, reads what was sent meanwhile before it is stopped; but not for ever. */
static void who_stood_still_waits_for_a_lease_anew(void **state)
{
	struct core_view_act a;

	(void)state;
	begin_timeout(4, 1, SEC);
	run(SEC);
	isolate(1);
	net.now += 20 * SEC;
	while (core_view_poll(net.v[1], net.now, &a))
		assert_int_not_equal(a.type, CORE_VIEW_ACT_STOP);
	assert_true(core_view_until(net.v[1]) <= net.now);
	for (int i = 0; i < 10; i++) {
		net.now += 20 * SEC;
		while (core_view_poll(net.v[1], net.now, &a))
			net.stopped[1] |= a.type == CORE_VIEW_ACT_STOP;
	}
	assert_true(net.stopped[1]);
}

/* Others of the step may run much longer. */
static void ended_nodes_vote_as_long_as_others_need_it(void **state)
{
	(void)state;
	begin_timeout(5, 1, SEC);
	run(SEC);
	for (uint16_t i = 0; i < 5; i++)
		if (i != 3)
			core_view_ended(net.v[i], net.now);
	run(100 * SEC);
	assert_true(net.acts[3] && !net.stopped[3]);
	for (uint16_t i = 0; i < 5; i++)
		assert_false(core_view_over(net.v[i], net.now));
	core_view_ended(net.v[3], net.now);
	run(net.cfg.linger_ns + 20 * SEC);
	for (uint16_t i = 0; i < 5; i++)
		assert_true(core_view_over(net.v[i], net.now));
}

/* --- contact --- */

static bool heard(uint16_t by, uint16_t node, uint64_t at)
{
	struct core_view_contact c = { .heard_at = at, .every_ns = 250 * MS };

	return core_view_contact(net.v[by], node, &c, net.now);
}

static void own_sleep_is_nobody_elses_silence(void **state)
{
	uint64_t at;

	(void)state;
	begin_timeout(3, 0, SEC);
	assert_true(core_view_look(net.v[0], net.now));
	at = net.now;
	net.now += 10 * SEC;
	assert_false(core_view_look(net.v[0], net.now));
	net.now += 100 * MS;
	assert_true(core_view_look(net.v[0], net.now));
	assert_false(heard(0, 1, at));
	for (int i = 0; i < 9; i++) {
		net.now += 100 * MS;
		assert_true(core_view_look(net.v[0], net.now));
	}
	assert_false(heard(0, 1, at));
	net.now += 100 * MS;
	assert_true(core_view_look(net.v[0], net.now));
	assert_true(heard(0, 1, at));
	assert_false(heard(0, 1, at)); /* told once */
	assert_true(core_view_suspected(net.v[0], 1));
	heard(0, 1, net.now);
	assert_false(core_view_suspected(net.v[0], 1));
}

static void who_was_never_heard_may_be_starting_until_all_have_met(void **state)
{
	(void)state;
	begin_timeout(3, 0, SEC);
	net.dead[2] = true;
	run(5 * SEC);
	assert_true(core_view_look(net.v[0], net.now));
	net.now += 60 * SEC;
	core_view_look(net.v[0], net.now);
	assert_false(heard(0, 2, 0) || core_view_suspected(net.v[0], 2));
	net.now += net.cfg.start_ns;
	core_view_look(net.v[0], net.now);
	heard(0, 2, 0);
	assert_false(core_view_suspected(net.v[0], 2)); /* this was our own sleep */
	for (int i = 0; i < 100; i++) {
		net.now += 100 * MS;
		if (core_view_look(net.v[0], net.now))
			heard(0, 2, 0);
	}
	assert_true(core_view_suspected(net.v[0], 2));
}

static void neighbours_and_whom_the_machine_speaks_to_are_contacted(void **state)
{
	(void)state;
	begin_timeout(8, 0, SEC);
	core_view_look(net.v[0], net.now);
	assert_true(core_view_reach(net.v[0], 1) && core_view_reach(net.v[0], 6));
	assert_int_equal(core_view_pace(net.v[0], 1), 250 * MS);
	assert_false(core_view_reach(net.v[3], 7));
	assert_true(core_view_pace(net.v[0], 4) == CORE_NEVER);
	begin_timeout(8, 1, SEC);
	assert_true(core_view_reach(net.v[3], 7) && core_view_stands_by(net.v[3], 7));
}

static void a_set_of_half_the_view_is_not_accepted(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = wave(CORE_VIEW_ACCEPT, 1, 2, 5 << 16 | 1, 4), out;

	(void)state;
	m.n = 3;
	m.set[1] = 3;
	m.set[2] = 0;
	core_view_rx(v, &m, net.now);
	assert_false(next(v, CORE_VIEW_TALLY, &out, NULL));
	assert_true(core_view_rest(v));
}

static void a_removed_node_still_tells_what_it_knows(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = msg(CORE_VIEW_LOG, 0, 0, 2), out;

	(void)state;
	m.view = 1;
	m.n = 1;
	m.set[0] = 2 | CORE_VIEW_END;
	core_view_rx(v, &m, net.now);
	assert_false(next(v, CORE_VIEW_WAVE, &out, NULL));
	assert_int_equal(core_view_deadline(v), CORE_NEVER);
	m = wave(CORE_VIEW_PREPARE, 1, 2, 6 << 16 | 1, 3);
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_LOG, &out, NULL));
	assert_int_equal(out.dst, 1);
	assert_int_equal(out.set[0], 2 | CORE_VIEW_END);
}

static void an_old_views_answers_do_not_count(void **state)
{
	struct core_view *v = alone(5, 2);
	struct core_view_msg m = msg(CORE_VIEW_LOG, 0, 0, 2), out;

	(void)state;
	m.view = 1;
	m.n = 1;
	m.set[0] = 4 | CORE_VIEW_END;
	core_view_rx(v, &m, net.now);
	/* A proposer of view 0 is told, not answered. */
	m = wave(CORE_VIEW_PREPARE, 1, 2, 6 << 16 | 1, 3);
	core_view_rx(v, &m, net.now);
	assert_true(next(v, CORE_VIEW_LOG, &out, NULL));
	core_view_rx(v, &m, net.now);
	assert_false(next(v, CORE_VIEW_TALLY, &out, NULL));
}

static void another_node_is_asked_for_a_range_without_answer(void **state)
{
	struct core_view *v;
	struct core_view_act a;
	uint16_t first = CORE_VIEW_NONE;
	bool other = false;

	(void)state;
	begin(8, 0, false); /* [1, 3) is a range */
	net.cfg.self = 0;
	v = net.v[0];
	for (int i = 0; i < 30; i++) {
		while (core_view_poll(v, net.now, &a)) {
			if (a.type != CORE_VIEW_ACT_SEND || a.msg.hi != 3)
				continue;
			if (first == CORE_VIEW_NONE)
				first = a.node;
			other |= a.node == 2;
		}
		net.now += 10 * MS;
	}
	assert_int_equal(first, 1);
	assert_true(other);
}

/* Heads that are dead take longer, one after the other, than a beat does. */
static void a_beat_goes_on_with_a_range_where_the_one_before_has_come_to(void **state)
{
	struct core_view_act a;
	bool last = false;

	(void)state;
	begin(8, 2, false);
	core_view_cfg_timeout(&net.cfg, SEC);
	net.cfg.fanout = 2;
	net.cfg.self = 0;
	free(net.v[0]);
	net.v[0] = core_view_init(malloc(core_view_size(&net.cfg)), &net.cfg, net.now);
	for (uint64_t end = net.now + net.cfg.lease_ns; net.now < end; net.now += 10 * MS)
		while (core_view_poll(net.v[0], net.now, &a))
			last |= a.type == CORE_VIEW_ACT_SEND && a.node == 4;
	assert_true(last);
}

static void an_index_may_be_taken_over_again(void **state)
{
	uint16_t inc;

	(void)state;
	begin(6, 2, false);
	run(SEC);
	lose(1);
	run(5 * SEC);
	assert_int_equal(net.sw_node[0], 4);
	lose(4);
	run(5 * SEC);
	assert_int_equal(core_view_node(net.v[0], 1, &inc), 5);
	assert_int_equal(inc, 2);
	assert_int_equal(net.sw_node[0], 5);
	assert_int_equal(net.sw_inc[5], 2);
}

static void nonsense_is_refused(void **state)
{
	struct core_view *v = alone(4, 1);
	struct core_view_msg m;

	(void)state;
	for (unsigned int i = 0; i < 200000; i++) {
		uint8_t *b = (uint8_t *)&m;

		for (size_t k = 0; k < sizeof(m); k++)
			b[k] = (uint8_t)rand();
		m.type = (uint8_t)(m.type % 12);
		m.phase = (uint8_t)(m.phase % 5);
		m.src = (uint16_t)(m.src % 5);
		m.dst = (uint16_t)(m.dst % 3);
		if (i % 2)
			m.view = 0;
		if (i % 3)
			m.root = (uint16_t)(m.root % 5);
		if (i % 5) {
			m.lo = (uint16_t)(m.lo % 4);
			m.hi = (uint16_t)(m.hi % 5);
			m.n = (uint8_t)(m.n % 4);
		}
		core_view_rx(v, &m, net.now);
		drain(1);
		net.q_n = 0;
		net.now += MS;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(impossible_configuration_has_no_size),
		cmocka_unit_test(all_act_and_nothing_is_decided_in_peace),
		cmocka_unit_test(a_dead_node_is_removed_by_all),
		cmocka_unit_test(messages_that_take_long_are_waited_for),
		cmocka_unit_test(the_lowest_node_may_die_too),
		cmocka_unit_test(a_suspect_that_lives_is_left_alone),
		cmocka_unit_test(of_a_cut_pair_the_higher_goes),
		cmocka_unit_test(a_minority_stops_and_decides_nothing),
		cmocka_unit_test(who_stopped_acts_again_when_nothing_was_decided),
		cmocka_unit_test(of_two_the_lower_goes_on_alone),
		cmocka_unit_test(with_a_witness_its_word_decides),
		cmocka_unit_test(a_spare_takes_over_after_the_lease),
		cmocka_unit_test(a_removed_node_stops_with_its_lease),
		cmocka_unit_test(who_slept_stops_at_once),
		cmocka_unit_test(views_that_were_missed_come_in_order),
		cmocka_unit_test(a_promise_is_kept),
		cmocka_unit_test(what_was_accepted_is_told_and_carried_on),
		cmocka_unit_test(an_accepted_set_is_carried_on_when_its_proposer_is_silent),
		cmocka_unit_test(votes_are_counted_once_and_the_highest_set_wins),
		cmocka_unit_test(a_grant_counts_from_what_it_echoes),
		cmocka_unit_test(what_cannot_be_sent_goes_through_a_third),
		cmocka_unit_test(half_of_the_view_is_never_proposed),
		cmocka_unit_test(halves_that_meet_again_lose_nobody),
		cmocka_unit_test(a_spare_begins_after_the_last_act_of_whom_it_replaces),
		cmocka_unit_test(who_is_heard_through_a_third_late_is_not_lost),
		cmocka_unit_test(whom_its_watchers_report_is_removed_by_the_lowest),
		cmocka_unit_test(each_suspect_has_relays_of_its_own),
		cmocka_unit_test(without_a_lease_ranks_that_may_be_replaced_stand_still),
		cmocka_unit_test(without_spares_a_minority_acts_until_it_is_stopped),
		cmocka_unit_test(who_never_had_a_lease_is_stopped_too),
		cmocka_unit_test(who_stood_still_waits_for_a_lease_anew),
		cmocka_unit_test(ended_nodes_vote_as_long_as_others_need_it),
		cmocka_unit_test(own_sleep_is_nobody_elses_silence),
		cmocka_unit_test(who_was_never_heard_may_be_starting_until_all_have_met),
		cmocka_unit_test(neighbours_and_whom_the_machine_speaks_to_are_contacted),
		cmocka_unit_test(a_set_of_half_the_view_is_not_accepted),
		cmocka_unit_test(a_removed_node_still_tells_what_it_knows),
		cmocka_unit_test(an_old_views_answers_do_not_count),
		cmocka_unit_test(another_node_is_asked_for_a_range_without_answer),
		cmocka_unit_test(a_beat_goes_on_with_a_range_where_the_one_before_has_come_to),
		cmocka_unit_test(an_index_may_be_taken_over_again),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
