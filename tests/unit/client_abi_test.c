/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs and libraries of different releases: flags that are not known, structs that are shorter or longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_window.h"

/* One call of each kind with these flags, all else is right. */
static int call_init(uint32_t flags)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX | flags, .nranks = 1,
		.socket = fake_path(0)};
	struct rcs_error err;
	rcs_ctx *ctx;
	int rc = rcs_init(&o, &ctx, &err);

	if (!rc)
		rcs_fini(ctx);
	return rc;
}

static int call_send(uint32_t flags)
{
	struct iovec iov = {local, 8};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .flags = flags, .peer = a.peer};

	return rcs_send(a.ep, &m);
}

static int call_recv(uint32_t flags)
{
	struct iovec iov = {local, 8};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .flags = flags};

	return rcs_recv(b.ep, &m);
}

static int call_inject(uint32_t flags)
{
	return rcs_inject(a.ep, local, 8, a.peer, 0, 0, flags);
}

static int call_put(uint32_t flags)
{
	struct rcs_rma r = rma(local, 8, 0, flags);

	return rcs_put(a.ep, &r);
}

static int call_get(uint32_t flags)
{
	struct rcs_rma r = rma(local, 8, 0, flags);

	return rcs_get(a.ep, &r);
}

static int call_atomic(uint32_t flags)
{
	struct rcs_atomic x = {.op = RCS_ATOMIC_ADD, .size = 8, .key = &key, .peer = a.peer, .flags = flags};

	return rcs_atomic(a.ep, &x);
}

static int call_flush(uint32_t flags)
{
	return rcs_flush(a.ep, a.peer, flags, NULL);
}

static void unknown_flags_are_refused(void **state)
{
	static const struct {
		const char *name;
		int (*call)(uint32_t flags);
		uint32_t known;
		uint32_t skip; /* they change more than the flags: another call, another offset */
	} calls[] = {
		{"rcs_init", call_init, 0, RCS_INIT_EAGER | RCS_INIT_HELPER | RCS_INIT_NO_PMIX},
		{"rcs_send", call_send, RCS_SEND_DELIVERED | RCS_SEND_DATA | RCS_QUIET, 0},
		{"rcs_recv", call_recv, RCS_QUIET, 0},
		{"rcs_inject", call_inject, RCS_SEND_DATA, 0},
		{"rcs_put", call_put, RCS_QUIET | RCS_PUT_NOTIFY | RCS_PUT_REPLAY, RCS_RMA_VADDR},
		{"rcs_get", call_get, RCS_QUIET, RCS_RMA_VADDR},
		{"rcs_atomic", call_atomic, RCS_QUIET, RCS_RMA_VADDR},
		{"rcs_flush", call_flush, RCS_QUIET, 0},
	};

	(void)state;
	open_window(1);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (unsigned bit = 0; bit < 32; bit++) {
			uint32_t flag = 1u << bit;
			int rc;

			if (flag & calls[i].skip)
				continue;
			rc = calls[i].call(flag);
			if (rc != (flag & calls[i].known ? 0 : RCS_ERR_INVALID))
				fail_msg("%s with flag 0x%x: %s", calls[i].name, flag, rcs_status_name(rc));
		}
	settle();
	pair_close();
}

/* --- structs ------------------------------------------------------------------------------------ */

/* What a program has that was built with a later release: a field more. */
#define LATER(type) struct { struct type s; uint64_t later; }

static int later_init(uint64_t later, size_t cut)
{
	LATER(rcs_init_opts) o = {.s = {.flags = RCS_INIT_NO_PMIX, .nranks = 1, .socket = fake_path(0)}, .later = later};
	struct rcs_error err;
	rcs_ctx *ctx;
	int rc;

	o.s.size = sizeof(o) - cut;
	rc = rcs_init(&o.s, &ctx, &err);
	if (!rc)
		rcs_fini(ctx);
	return rc;
}

static int later_ep(uint64_t later, size_t cut)
{
	LATER(rcs_ep_opts) o = {.later = later};
	struct rcs_error err;
	rcs_ep *ep;
	int rc;

	o.s.size = sizeof(o) - cut;
	rc = rcs_ep_open(a.ctx, &o.s, &ep, &err);
	if (!rc)
		rcs_ep_close(ep);
	return rc;
}

static struct iovec eight = {local, 8};

static int later_send(uint64_t later, size_t cut)
{
	LATER(rcs_msg) m = {.s = {.iov = &eight, .iov_n = 1, .peer = a.peer}, .later = later};

	return rcs_send_sized(a.ep, &m.s, sizeof(m) - cut);
}

static int later_recv(uint64_t later, size_t cut)
{
	LATER(rcs_msg) m = {.s = {.iov = &eight, .iov_n = 1}, .later = later};

	return rcs_recv_sized(b.ep, &m.s, sizeof(m) - cut);
}

static int later_put(uint64_t later, size_t cut)
{
	LATER(rcs_rma) r = {.s = rma(local, 8, 0, 0), .later = later};

	return rcs_put_sized(a.ep, &r.s, sizeof(r) - cut);
}

static int later_get(uint64_t later, size_t cut)
{
	LATER(rcs_rma) r = {.s = rma(local, 8, 0, 0), .later = later};

	return rcs_get_sized(a.ep, &r.s, sizeof(r) - cut);
}

static int later_atomic(uint64_t later, size_t cut)
{
	LATER(rcs_atomic) x = {.s = {.op = RCS_ATOMIC_ADD, .size = 8, .key = &key, .peer = a.peer}, .later = later};

	return rcs_atomic_sized(a.ep, &x.s, sizeof(x) - cut);
}

static void what_a_later_release_adds_is_refused_unless_it_is_0(void **state)
{
	static const struct {
		const char *name;
		int (*call)(uint64_t later, size_t cut);
		size_t size;
	} calls[] = {
		{"rcs_init", later_init, sizeof(struct rcs_init_opts)},
		{"rcs_ep_open", later_ep, sizeof(struct rcs_ep_opts)},
		{"rcs_send", later_send, sizeof(struct rcs_msg)},
		{"rcs_recv", later_recv, sizeof(struct rcs_msg)},
		{"rcs_put", later_put, sizeof(struct rcs_rma)},
		{"rcs_get", later_get, sizeof(struct rcs_rma)},
		{"rcs_atomic", later_atomic, sizeof(struct rcs_atomic)},
	};

	(void)state;
	open_window(1);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].call(0, 0))
			fail_msg("%s is refused though what is added is 0", calls[i].name);
		if (calls[i].call(0, sizeof(uint64_t)))
			fail_msg("%s is refused in its own size", calls[i].name);
		if (calls[i].call(1ull << 56, 0) != RCS_ERR_INVALID)
			fail_msg("%s takes what it does not know", calls[i].name);
		/* all of the struct of the first release but its end, and nothing */
		if (calls[i].call(0, sizeof(uint64_t) + 8) != RCS_ERR_INVALID)
			fail_msg("%s takes less than the first release had", calls[i].name);
		if (calls[i].call(0, sizeof(uint64_t) + calls[i].size) != RCS_ERR_INVALID)
			fail_msg("%s takes nothing", calls[i].name);
	}
	settle();
	pair_close();
}

/* The first release's structs are today's: so with one that has grown since. */
static void what_an_earlier_release_lacks_is_0(void **state)
{
	struct { uint64_t first, second; } theirs = {1, 2};
	struct { uint64_t first, second, third; } own;

	(void)state;
	memset(&own, 0xff, sizeof(own));
	assert_ptr_equal(cl_struct_take(&theirs, sizeof(theirs), &own, sizeof(own), sizeof(theirs)), &own);
	assert_int_equal(own.first, 1);
	assert_int_equal(own.second, 2);
	assert_int_equal(own.third, 0);
	assert_null(cl_struct_take(&theirs, sizeof(theirs) - 1, &own, sizeof(own), sizeof(theirs)));
	assert_null(cl_struct_take(NULL, sizeof(theirs), &own, sizeof(own), sizeof(theirs)));
	/* no more than it has room for, which is less than ours */
	own.first = 7;
	own.second = own.third = 8;
	theirs.second = 9;
	cl_struct_give(&theirs, sizeof(theirs.first), &own, sizeof(own));
	assert_int_equal(theirs.first, 7);
	assert_int_equal(theirs.second, 9);
}

static void completions_come_at_the_distance_that_the_program_has(void **state)
{
	LATER(rcs_completion) c[3];
	int n = 0;

	(void)state;
	open_window(1);
	memset(c, 0xff, sizeof(c));
	assert_int_equal(put(local, 8, 0, 0), 0);
	assert_int_equal(put(local + 8, 8, 8, 0), 0);
	while (!n) {
		rcs_cq_read(b.cq, NULL, 0);
		n = rcs_cq_wait_sized(a.cq, &c[0].s, 1, 1000, sizeof(c[0]));
	}
	assert_int_equal(n, 1);
	for (int k = 1; k < 2; k += n) {
		rcs_cq_read(b.cq, NULL, 0);
		n = rcs_cq_read_sized(a.cq, &c[k].s, 2, sizeof(c[0]));
		assert_true(n >= 0);
	}
	for (int k = 0; k < 2; k++) {
		assert_int_equal(c[k].s.op, RCS_OP_PUT);
		assert_int_equal(c[k].s.status, RCS_OK);
		assert_int_equal(c[k].later, 0);
	}
	assert_true((c[0].s.context == local) != (c[1].s.context == local));
	assert_int_equal(c[2].later, UINT64_MAX);
	/* both in one call */
	assert_int_equal(put(local, 8, 0, 0), 0);
	assert_int_equal(put(local + 8, 8, 8, 0), 0);
	settle();
	memset(c, 0xff, sizeof(c));
	assert_int_equal(rcs_cq_read_sized(a.cq, &c[0].s, 3, sizeof(c[0])), 2);
	assert_int_equal(c[1].s.op, RCS_OP_PUT);
	assert_int_equal(c[0].later | c[1].later, 0);
	assert_int_equal(c[2].later, UINT64_MAX);
	assert_int_equal(rcs_cq_read_sized(a.cq, &c[0].s, 1, CL_COMPLETION_FIRST - 1), RCS_ERR_INVALID);
	assert_int_equal(rcs_cq_wait_sized(a.cq, &c[0].s, 1, 0, CL_COMPLETION_FIRST - 1), RCS_ERR_INVALID);
	pair_close();
}

static void what_the_library_fills_ends_where_the_program_has_room(void **state)
{
	LATER(rcs_limits) limits;
	LATER(rcs_peer_info) info;
	LATER(rcs_completion) found;
	struct rcs_limits plain;

	(void)state;
	open_window(1);
	rcs_limits(a.ctx, &plain);
	memset(&limits, 0xff, sizeof(limits));
	rcs_limits_sized(a.ctx, &limits.s, sizeof(limits));
	assert_int_equal(limits.later, 0);
	assert_int_equal(limits.s.iov_max, plain.iov_max);
	memset(&limits, 0xff, sizeof(limits));
	rcs_limits_sized(a.ctx, &limits.s, CL_LIMITS_FIRST);
	assert_int_equal(limits.later, UINT64_MAX);
	memset(&info, 0xff, sizeof(info));
	assert_int_equal(rcs_peer_query_sized(a.peer, &info.s, sizeof(info)), 0);
	assert_int_equal(info.later, 0);
	assert_int_equal(info.s.node, 1);
	memset(&info, 0xff, sizeof(info));
	assert_int_equal(rcs_peer_query_sized(a.peer, &info.s, CL_PEER_INFO_FIRST), 0);
	assert_int_equal(info.later, UINT64_MAX);
	assert_int_equal(rcs_peer_query_sized(a.peer, &info.s, CL_PEER_INFO_FIRST - 1), RCS_ERR_INVALID);
	assert_int_equal(rcs_tsend(a.ep, local, 8, a.peer, 5, NULL), 0);
	settle();
	memset(&found, 0xff, sizeof(found));
	assert_int_equal(rcs_probe_sized(b.ep, NULL, 5, 0, &found.s, NULL, sizeof(found)), 1);
	assert_int_equal(found.s.len, 8);
	assert_int_equal(found.later, 0);
	assert_int_equal(rcs_probe_sized(b.ep, NULL, 5, 0, &found.s, NULL, CL_COMPLETION_FIRST - 1), RCS_ERR_INVALID);
	pair_close();
}

static unsigned heard;

static void hear_later(const struct rcs_event *ev, void *arg)
{
	const uint8_t *p = (const uint8_t *)ev;

	for (size_t i = sizeof(*ev); i < *(size_t *)arg; i++)
		assert_int_equal(p[i], 0);
	assert_int_equal(ev->code, RCS_EVENT_RAIL_BACK);
	heard++;
}

static void an_event_is_0_beyond_what_the_library_knows(void **state)
{
	const struct shm_event ev = {.code = SHM_EV_RAIL_BACK, .step = UINT32_MAX, .rank = UINT32_MAX, .peer = 1, .seq = 1};
	size_t size = CL_EVENT_ROOM;

	(void)state;
	open_window(1);
	heard = 0;
	assert_int_equal(rcs_on_event_sized(a.ctx, hear_later, &size, size + 1), RCS_ERR_INVALID);
	assert_int_equal(rcs_on_event_sized(a.ctx, hear_later, &size, CL_EVENT_FIRST - 1), RCS_ERR_INVALID);
	assert_int_equal(rcs_on_event_sized(a.ctx, hear_later, &size, size), 0);
	fake_event(0, &ev);
	settle();
	assert_int_equal(heard, 1);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_flags_are_refused),
		cmocka_unit_test(what_a_later_release_adds_is_refused_unless_it_is_0),
		cmocka_unit_test(what_an_earlier_release_lacks_is_0),
		cmocka_unit_test(completions_come_at_the_distance_that_the_program_has),
		cmocka_unit_test(what_the_library_fills_ends_where_the_program_has_room),
		cmocka_unit_test(an_event_is_0_beyond_what_the_library_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
