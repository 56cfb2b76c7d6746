/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided requests between endpoints of one and of two nodes, against a fake daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_window.h"

static int (*reg_was)(int, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t,
	struct ib_uverbs_reg_mr_resp *);

/* --- what moves how ----------------------------------------------------------------------------- */

static void move(size_t len, rcs_region *region, bool registered)
{
	struct rcs_rma r = rma(local, len, 100, 0);
	uint64_t was = fake.records[WIRE_REC_RMA];

	r.region = region;
	fill(local, len, (unsigned)len);
	memset(win, 0, WINDOW);
	assert_int_equal(rcs_put(a.ep, &r), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_memory_equal(win + 100, local, len);
	assert_int_equal(win[99], 0);
	assert_int_equal(win[100 + len], 0);
	assert_int_equal(!!(fake.rma.flags & WIRE_RMA_INLINE), !len || (!region && len <= WIRE_RMA_INLINE_MAX));
	assert_int_equal(!!fake.rma.lregion, registered && (region ? len > 0 : len >= fake.zcopy_min));

	memset(local, 0, len);
	assert_int_equal(rcs_get(a.ep, &r), 0);
	expect(&a, RCS_OP_GET, 0, local);
	assert_memory_equal(win + 100, local, len);
	assert_int_equal(!!fake.rma.lregion, registered && (region ? len > 0 : len >= fake.zcopy_min));
	assert_int_equal(fake.records[WIRE_REC_RMA], was + 2);
}

static void all_sizes(unsigned node_b, bool devices)
{
	static const size_t sizes[] = {0, 1, 8, 4047, 4048, 4049, 65536, 200000};
	struct rcs_error err = {0};
	rcs_region *region;

	cl_reg_mr = reg_ok;
	fake.devices = devices ? 2 : 0;
	fake.zcopy_min = devices ? 65536 : 0;
	open_window(node_b);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		move(sizes[i], NULL, devices && node_b);
	settle();
	assert_int_equal(fake.live_regions, 1); /* what was made for one request has gone */
	assert_int_equal(rcs_region_open(a.ctx, local, sizeof(local), &region, &err), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		move(sizes[i], region, true);
	assert_int_equal(fake.live_regions, 2);
	assert_int_equal(rcs_region_close(region), 0);
	assert_int_equal(fake.live_regions, 1);
	pair_close();
	cl_reg_mr = reg_was;
}

static void sizes_two_nodes(void **state)
{
	(void)state;
	all_sizes(1, true);
	all_sizes(1, false);
}

static void sizes_one_node(void **state)
{
	(void)state;
	all_sizes(0, true);
}

static int reg_memlock(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	reg_ok(fd, driver, pd, addr, len, access, resp);
	return -ENOMEM;
}

/* Where memory cannot be pinned the daemon copies; memory that can only be read is not got into. */
static int reg_readonly(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	reg_ok(fd, driver, pd, addr, len, access, resp);
	return access & IB_UVERBS_ACCESS_LOCAL_WRITE ? -EFAULT : 0;
}

static void unpinnable_is_copied(void **state)
{
	(void)state;
	cl_reg_mr = reg_ok;
	fake.devices = 1;
	fake.zcopy_min = 65536;
	open_window(1);
	cl_reg_mr = reg_memlock;
	move(100000, NULL, false);
	cl_reg_mr = reg_readonly;
	assert_int_equal(put(local, 100000, 0, 0), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_int_not_equal(fake.rma.lregion, 0);
	assert_int_equal(get(local, 100000, 0), 0);
	expect(&a, RCS_OP_GET, 0, local);
	assert_int_equal(fake.rma.lregion, 0);
	settle();
	assert_int_equal(fake.live_regions, 1);
	pair_close();
	cl_reg_mr = reg_was;
}

static void replay_is_passed_on(void **state)
{
	(void)state;
	open_window(1);
	assert_int_equal(put(local, 8, 0, RCS_PUT_REPLAY), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_int_equal(fake.rma.flags, WIRE_RMA_INLINE | WIRE_RMA_REPLAY);
	assert_int_equal(put(local, 8, 0, RCS_QUIET), 0);
	nothing(&a);
	pair_close();
}

/* --- checks -------------------------------------------------------------------------------------- */

static int put_with(struct wire_ukey k, bool seal)
{
	struct rcs_rma r = rma(local, 8, 0, 0);
	struct rcs_key other;

	if (seal)
		k.crc = wire_crc32c(0, &k, offsetof(struct wire_ukey, crc));
	memcpy(other.bytes, &k, sizeof(k));
	r.key = &other;
	return rcs_put(a.ep, &r);
}

static void keys_are_checked(void **state)
{
	struct rcs_rma r;
	struct wire_ukey good, k;
	struct rcs_error err = {0};
	rcs_region *small;
	rcs_peer *self;

	(void)state;
	open_window(1);
	memcpy(&good, key.bytes, sizeof(good));
	assert_int_equal(good.flags, WIRE_UKEY_ATOMIC);
	assert_int_equal(good.len, WINDOW);
	assert_int_equal(good.addr, (uintptr_t)win);
#define BAD(field, value, sealed) \
	k = good; \
	k.field = (value); \
	assert_int_equal(put_with(k, sealed), RCS_ERR_INVALID)
	BAD(len, 2 * WINDOW, false); /* damaged */
	BAD(magic, 1, true);
	BAD(version, 2, true);
	BAD(job, 8, true);
	BAD(node, 0, true);
	BAD(ep, 63, true);
	BAD(epoch, good.epoch + 1, true);
#undef BAD
	r = rma(local, 8, 0, 0);
	assert_int_equal(rcs_peer_insert(a.ep, &a.addr, &self, &err), 0);
	r.peer = self; /* is not who made the key */
	assert_int_equal(rcs_put(a.ep, &r), RCS_ERR_INVALID);
	r.peer = NULL;
	assert_int_equal(rcs_put(a.ep, &r), RCS_ERR_INVALID);
	r.peer = b.peer;
	assert_int_equal(rcs_get(a.ep, &r), RCS_ERR_INVALID);
	assert_int_equal(put(local, 8, 0, RCS_SEND_DELIVERED), RCS_ERR_INVALID);
	assert_int_equal(put(NULL, 8, 0, 0), RCS_ERR_INVALID);
	r = rma(local, 8, 0, RCS_PUT_NOTIFY);
	assert_int_equal(rcs_get(a.ep, &r), RCS_ERR_INVALID);

	/* the range */
	assert_int_equal(put(local, 8, WINDOW - 7, 0), RCS_ERR_ACCESS);
	assert_int_equal(put(local, 0, WINDOW + 1, 0), RCS_ERR_ACCESS);
	assert_int_equal(put(local, 8, UINT64_MAX - 3, 0), RCS_ERR_ACCESS);
	assert_int_equal(get(local, WINDOW + 1, 0), RCS_ERR_ACCESS);
	assert_int_equal(put(local, 8, 0, RCS_RMA_VADDR), RCS_ERR_ACCESS);
	assert_int_equal(put(local, 8, good.addr + WINDOW - 7, RCS_RMA_VADDR), RCS_ERR_ACCESS);

	/* the local region */
	assert_int_equal(rcs_region_open(a.ctx, local, 100, &small, &err), 0);
	r = rma(local + 50, 51, 0, 0);
	r.region = small;
	assert_int_equal(rcs_put(a.ep, &r), RCS_ERR_INVALID);
	assert_int_equal(fake.records[WIRE_REC_RMA], 0); /* nothing was sent */

	assert_int_equal(put(local, 8, WINDOW - 8, 0), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_int_equal(put(local, 0, WINDOW, 0), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	memset(local, 0x77, 8);
	assert_int_equal(put(local, 8, good.addr + 24, RCS_RMA_VADDR), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_int_equal(win[23], 0);
	assert_int_equal(win[24], 0x77);
	pair_close();
}

static void closed_region(void **state)
{
	(void)state;
	open_window(1);
	assert_int_equal(rcs_free(win_region), 0);
	assert_int_equal(put(local, 8, 0, RCS_PUT_NOTIFY), 0);
	expect(&a, RCS_OP_PUT, RCS_ERR_ACCESS, local);
	assert_int_equal(get(local, 0, 0), 0);
	expect(&a, RCS_OP_GET, RCS_ERR_ACCESS, local);
	assert_int_equal(add(1, NULL, 0), 0);
	expect(&a, RCS_OP_ATOMIC, RCS_ERR_ACCESS, NULL);
	nothing(&b);
	pair_close();
}

/* --- order ----------------------------------------------------------------------------------------- */

static void recv_tag(uint64_t tag, uint64_t ignore, void *buf, size_t len)
{
	assert_int_equal(rcs_trecv(b.ep, buf, len, NULL, tag, ignore, buf), 0);
}

static void notification_in_order(void **state)
{
	struct rcs_rma r;
	struct rcs_completion c;
	char x = 'x', in[4];

	(void)state;
	open_window(1);
	for (int i = 0; i < 4; i++)
		recv_tag(0, ~0ull, &in[i], 1);
	fake.hold_rma = true;
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, &x), 0);
	assert_int_equal(put(local, 8, 64, 0), 0);
	r = rma(local + 64, 8, 0, RCS_PUT_NOTIFY);
	r.tag = 2;
	r.data = 99;
	assert_int_equal(rcs_put(a.ep, &r), 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 3, &x), 0);
	assert_int_equal(rcs_inject(a.ep, &x, 1, a.peer, 4, 0, 0), 0);
	held(2);
	/* what was sent before the put is there, what was sent after it is not */
	c = next(&b);
	assert_int_equal(c.tag, 1);
	expect(&a, RCS_OP_SEND, 0, &x);
	nothing(&a);
	nothing(&b);
	/* the notification follows all puts before it, not only its own */
	fake_release(1);
	expect(&a, RCS_OP_PUT, 0, local + 64);
	nothing(&b);
	nothing(&a);
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, local);
	c = next(&b);
	assert_int_equal(c.tag, 2);
	assert_int_equal(c.data, 99);
	assert_true(c.has_data);
	assert_int_equal(c.len, 0);
	assert_ptr_equal(c.source, b.peer);
	assert_int_equal(next(&b).tag, 3);
	assert_int_equal(next(&b).tag, 4);
	expect(&a, RCS_OP_SEND, 0, &x); /* and none for the notification */
	nothing(&a);
	assert_null(a.peer->pending);
	assert_int_equal(a.ctx->sends_n, 0);
	pair_close();
}

static void failed_put_notifies_nobody(void **state)
{
	struct rcs_rma r;
	char x = 'x', in;

	(void)state;
	open_window(1);
	recv_tag(0, ~0ull, &in, 1);
	fake.hold_rma = true;
	fake.rma_status = RCS_ERR_AMBIGUOUS;
	r = rma(local, 8, 0, RCS_PUT_NOTIFY);
	r.tag = 2;
	assert_int_equal(rcs_put(a.ep, &r), 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 3, &x), 0);
	held(1);
	nothing(&b);
	fake_release(0);
	expect(&a, RCS_OP_PUT, RCS_ERR_AMBIGUOUS, local);
	assert_int_equal(next(&b).tag, 3);
	expect(&a, RCS_OP_SEND, 0, &x);
	assert_int_equal(a.ctx->sends_n, 0);
	pair_close();
}

static void flush_waits(void **state)
{
	static char big[100000], big_in[100000];
	char f, x = 'x', in;

	(void)state;
	open_window(1);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &f), 0);
	expect(&a, RCS_OP_FLUSH, 0, &f);
	recv_tag(1, 0, big_in, sizeof(big_in));
	recv_tag(2, 0, &in, 1);
	fake.hold_rma = true;
	assert_int_equal(put(local, 8, 0, 0), 0);
	assert_int_equal(get(local + 64, 8, 0), 0);
	assert_int_equal(add(1, NULL, 0), 0);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &f), 0);
	assert_int_equal(put(local + 128, 8, 0, 0), 0); /* after it: not waited for */
	assert_int_equal(rcs_inject(a.ep, &x, 1, a.peer, 2, 0, 0), 0);
	assert_int_equal(rcs_tsend(a.ep, big, sizeof(big), a.peer, 1, big), 0);
	held(4);
	nothing(&a);
	nothing(&b);
	fake_release(1);
	expect(&a, RCS_OP_GET, 0, local + 64);
	fake_release(2);
	expect(&a, RCS_OP_ATOMIC, 0, NULL);
	fake_release(3); /* does not count in place of an older one */
	expect(&a, RCS_OP_PUT, 0, local + 128);
	assert_int_equal(put(local + 192, 8, 0, 0), 0);
	held(5);
	nothing(&a);
	nothing(&b);
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, local);
	expect(&a, RCS_OP_FLUSH, 0, &f);
	assert_int_equal(next(&b).tag, 2);
	assert_int_equal(next(&b).tag, 1);
	expect(&a, RCS_OP_SEND, 0, big);
	nothing(&a);
	fake_release(4);
	expect(&a, RCS_OP_PUT, 0, local + 192);
	assert_int_equal(rcs_flush(a.ep, a.peer, RCS_QUIET, &f), 0);
	nothing(&a);
	assert_int_equal(rcs_flush(a.ep, b.peer, 0, &f), RCS_ERR_INVALID);
	pair_close();
}

/* A failed put does not fail the flush, and of one peer does not hold messages to another. */
static void flush_of_all(void **state)
{
	char f, g, x = 'x', in[2];
	struct rcs_error err = {0};
	rcs_peer *self;

	(void)state;
	open_window(1);
	assert_int_equal(rcs_peer_insert(a.ep, &a.addr, &self, &err), 0);
	assert_int_equal(rcs_trecv(a.ep, &in[0], 1, NULL, 1, 0, &in[0]), 0);
	assert_int_equal(rcs_trecv(a.ep, &in[1], 1, NULL, 2, 0, &in[1]), 0);
	fake.hold_rma = true;
	fake.rma_status = RCS_ERR_AMBIGUOUS;
	assert_int_equal(put(local, 8, 0, 0), 0);
	assert_int_equal(rcs_flush(a.ep, a.peer, 0, &f), 0);
	assert_int_equal(rcs_inject(a.ep, &x, 1, self, 1, 0, 0), 0);
	expect(&a, RCS_OP_RECV, 0, &in[0]);
	assert_int_equal(rcs_flush(a.ep, NULL, 0, &g), 0);
	assert_int_equal(rcs_inject(a.ep, &x, 1, self, 2, 0, 0), 0);
	held(1);
	nothing(&a);
	fake_release(0);
	expect(&a, RCS_OP_PUT, RCS_ERR_AMBIGUOUS, local);
	expect(&a, RCS_OP_FLUSH, 0, &f);
	expect(&a, RCS_OP_FLUSH, 0, &g);
	expect(&a, RCS_OP_RECV, 0, &in[1]);
	pair_close();
}

/* --- waiting, canceling, ending ------------------------------------------------------------------ */

static void full_ring(void **state)
{
	enum { N = 1000 };
	struct rcs_completion c;
	int waiting = 0, ended = 0, canceled = 0;
	static struct rcs_rma r;
	char in;

	(void)state;
	fake.answers = 16;
	open_window(1);
	recv_tag(0, ~0ull, &in, 1);
	fake.paused = true;
	for (int i = 0; i < N; i++)
		assert_int_equal(put(local + i, 100, 0, 0), 0);
	r = rma(local + N, 8, 0, RCS_PUT_NOTIFY);
	assert_int_equal(rcs_put(a.ep, &r), 0);
	for (struct cl_op *op = a.peer->rma_next; op; op = op->next)
		waiting++;
	assert_true(waiting > N / 2 && waiting < N);
	/* the first is submitted and ends as it does, the last two have not left */
	assert_int_equal(rcs_cancel(a.ep, NULL), RCS_ERR_INVALID); /* not the notification */
	assert_int_equal(rcs_cancel(a.ep, local), 0);
	assert_int_equal(rcs_cancel(a.ep, local), RCS_ERR_INVALID);
	assert_int_equal(rcs_cancel(a.ep, local + N), 0);
	assert_int_equal(rcs_cancel(a.ep, local + N), RCS_ERR_INVALID);
	assert_int_equal(rcs_cancel(a.ep, local + N - 1), 0);
	fake.paused = false;
	while (ended < N + 1) {
		c = next(&a);
		assert_int_equal(c.op, RCS_OP_PUT);
		if (c.status) {
			assert_int_equal(c.status, RCS_ERR_CANCELED);
			assert_true((uint8_t *)c.context >= local + N - 1);
			canceled++;
		}
		ended++;
	}
	assert_int_equal(canceled, 2);
	assert_int_equal(fake.records[WIRE_REC_RMA], N - 1);
	nothing(&a);
	nothing(&b);
	assert_int_equal(a.ctx->sends_n, 0);
	pair_close();
}

static void requests_are_bounded(void **state)
{
	unsigned n = 0, ended = 0;
	int rc;

	(void)state;
	open_window(1);
	fake.paused = true;
	while ((rc = put(local, 8, 0, 0)) == 0)
		n++;
	assert_int_equal(rc, RCS_ERR_AGAIN);
	assert_int_equal(n, CL_SENDS_MAX);
	fake.paused = false;
	for (; ended < n; ended++)
		assert_int_equal(next(&a).status, 0);
	nothing(&a);
	pair_close();
}

static void answers_count_once(void **state)
{
	struct wire_rec again = {.type = WIRE_REC_RMA, .dst_node = 1};

	(void)state;
	open_window(1);
	fake.hold_rma = true;
	assert_int_equal(put(local, 8, 0, 0), 0);
	assert_int_equal(put(local + 64, 8, 0, 0), 0);
	held(2);
	pthread_mutex_lock(&fake.lock);
	again = fake.held[0]->r;
	pthread_mutex_unlock(&fake.lock);
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, local);
	/* the next request has the place of the one that ended */
	assert_int_equal(put(local + 128, 8, 0, 0), 0);
	held(3);
	pthread_mutex_lock(&fake.lock);
	assert_int_equal((uint32_t)fake.held[2]->r.op, (uint32_t)again.op);
	for (unsigned i = 0; i < FAKE_CHANS; i++)
		if (fake.chan[i].used && fake.chan[i].epoch == again.src_epoch) {
			fake_answer(&fake.chan[i], &again, WIRE_REC_RMA_DONE, again.op, 0);
			fake_answer(&fake.chan[i], &again, WIRE_REC_GONE, again.op, RCS_ERR_IO);
		}
	pthread_mutex_unlock(&fake.lock);
	nothing(&a);
	fake_release(1);
	expect(&a, RCS_OP_PUT, 0, local + 64);
	fake_release(2);
	expect(&a, RCS_OP_PUT, 0, local + 128);
	nothing(&a);
	pair_close();
}

static void atomics(void **state)
{
	struct rcs_atomic x = {.op = RCS_ATOMIC_CSWAP, .size = 8, .operand = 9, .compare = 5,
		.key = &key, .offset = 8};
	struct rcs_error err = {0};
	struct rcs_key plain;
	rcs_region *region;
	uint64_t old = 77, *word;

	(void)state;
	open_window(1);
	word = (uint64_t *)(void *)win;
	x.peer = a.peer;
	x.result = &old;
	for (uint64_t i = 0; i < 5; i++) {
		assert_int_equal(add(i + 1, &old, 8), 0);
		expect(&a, RCS_OP_ATOMIC, 0, &old);
		assert_int_equal(old, i * (i + 1) / 2);
	}
	assert_int_equal(add(UINT64_MAX - 9, NULL, 8), 0); /* 15 - 10 */
	expect(&a, RCS_OP_ATOMIC, 0, NULL);
	assert_int_equal(word[1], 5);
	assert_int_equal(rcs_atomic(a.ep, &x), 0);
	expect(&a, RCS_OP_ATOMIC, 0, NULL);
	assert_true(old == 5 && word[1] == 9);
	assert_int_equal(rcs_atomic(a.ep, &x), 0);
	expect(&a, RCS_OP_ATOMIC, 0, NULL);
	assert_true(old == 9 && word[1] == 9);
	x.op = RCS_ATOMIC_SWAP;
	x.size = 4;
	x.operand = 0x123456789;
	x.offset = (uintptr_t)win + 12;
	x.flags = RCS_RMA_VADDR;
	old = UINT64_MAX;
	assert_int_equal(rcs_atomic(a.ep, &x), 0);
	expect(&a, RCS_OP_ATOMIC, 0, NULL);
	assert_true(old == 0 && word[1] == (0x23456789ull << 32 | 9));

	x.flags = 0;
#define BAD(field, value, rc) \
	do { \
		struct rcs_atomic y = x; \
		y.field = (value); \
		assert_int_equal(rcs_atomic(a.ep, &y), rc); \
	} while (0)
	x.offset = 4;
	BAD(offset, 2, RCS_ERR_INVALID);
	BAD(size, 8, RCS_ERR_INVALID); /* 4 is not a multiple */
	BAD(size, 3, RCS_ERR_INVALID);
	BAD(op, 0, RCS_ERR_INVALID);
	BAD(op, 4, RCS_ERR_INVALID);
	BAD(flags, RCS_PUT_NOTIFY, RCS_ERR_INVALID);
	BAD(offset, WINDOW, RCS_ERR_ACCESS);
	BAD(peer, NULL, RCS_ERR_INVALID);
	assert_int_equal(rcs_region_open(b.ctx, local, 4096, &region, &err), 0);
	assert_int_equal(rcs_region_key(region, b.ep, &plain, &err), 0);
	BAD(key, &plain, RCS_ERR_INVALID); /* not of rcs_alloc */
#undef BAD
	assert_int_equal(fake.records[WIRE_REC_RATOM], 9);
	nothing(&a);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_two_nodes),
		cmocka_unit_test(sizes_one_node),
		cmocka_unit_test(unpinnable_is_copied),
		cmocka_unit_test(replay_is_passed_on),
		cmocka_unit_test(keys_are_checked),
		cmocka_unit_test(closed_region),
		cmocka_unit_test(notification_in_order),
		cmocka_unit_test(failed_put_notifies_nobody),
		cmocka_unit_test(flush_waits),
		cmocka_unit_test(flush_of_all),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(requests_are_bounded),
		cmocka_unit_test(answers_count_once),
		cmocka_unit_test(atomics),
	};

	reg_was = cl_reg_mr;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
