/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets that the library executes for a daemon that may not touch its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_window.h"

static void move(size_t len, rcs_region *region)
{
	struct rcs_rma r = rma(local, len, 100, 0);
	unsigned was = fake.accessed_n;

	r.region = region;
	fill(local, len, (unsigned)len);
	memset(win, 0, WINDOW);
	assert_int_equal(rcs_put(a.ep, &r), 0);
	expect(&a, RCS_OP_PUT, 0, local);
	assert_memory_equal(win + 100, local, len);
	assert_int_equal(win[99], 0);
	assert_int_equal(win[100 + len], 0);
	memset(local, 0, len + 1);
	assert_int_equal(rcs_get(a.ep, &r), 0);
	expect(&a, RCS_OP_GET, 0, local);
	assert_memory_equal(win + 100, local, len);
	assert_int_equal(local[len], 0);
	assert_true(!len || fake.accessed_n >= was + 3);
}

static void all_sizes(unsigned node_b)
{
	static const size_t sizes[] = {0, 1, 8, 4047, 4048, 4049, 4096, 4097, 200000};
	struct rcs_error err = {0};
	rcs_region *region;

	fake.by_library = true;
	open_window(node_b);
	assert_int_equal(rcs_region_open(a.ctx, local, sizeof(local), &region, &err), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		move(sizes[i], NULL);
		move(sizes[i], region);
	}
	pair_close();
}

static void sizes_two_nodes(void **state)
{
	(void)state;
	all_sizes(1);
}

static void sizes_one_node(void **state)
{
	(void)state;
	all_sizes(0);
}

/* With messages that fill the submission rings all the while. */
static void together_with_messages(void **state)
{
	static uint8_t bufs[64][8192], msg[64][3000], in[64][3000];
	struct rcs_completion c;

	(void)state;
	fake.by_library = true;
	open_window(1);
	memset(win, 0, WINDOW);
	for (unsigned i = 0; i < 64; i++) {
		fill(bufs[i], sizeof(bufs[i]), i);
		fill(msg[i], sizeof(msg[i]), i);
		assert_int_equal(rcs_trecv(b.ep, in[i], sizeof(in[i]), b.peer, i, 0, in[i]), 0);
		assert_int_equal(put(bufs[i], i % 32 * 256, i % 32 * 8192, 0), 0);
		assert_int_equal(rcs_tsend(a.ep, msg[i], sizeof(msg[i]), a.peer, i, msg[i]), 0);
	}
	for (unsigned i = 0; i < 64; i++) {
		c = next(&b);
		assert_int_equal(c.status, 0);
		assert_memory_equal(in[i], msg[i], sizeof(msg[i]));
	}
	for (unsigned i = 0; i < 128; i++)
		assert_int_equal(next(&a).status, 0);
	for (unsigned i = 32; i < 64; i++)
		assert_memory_equal(win + i % 32 * 8192, bufs[i], i % 32 * 256);
	pair_close();
}

static uint8_t computed[20000];

static void a_helper_serves_while_the_rank_computes(void **state)
{
	struct rcs_rma r = {.buf = local, .len = sizeof(computed), .key = &key, .context = local};
	struct rcs_completion c;
	rcs_region *region;

	(void)state;
	fake.by_library = true;
	pair_open(1, RCS_INIT_HELPER);
	assert_int_equal(rcs_region_open(b.ctx, computed, sizeof(computed), &region, NULL), 0);
	assert_int_equal(rcs_region_key(region, b.ep, &key, NULL), 0);
	fill(local, sizeof(computed), 9);
	r.peer = a.peer;
	assert_int_equal(rcs_put(a.ep, &r), 0);
	/* nobody calls b's library */
	assert_int_equal(rcs_cq_wait(a.cq, &c, 1, 10000), 1);
	assert_int_equal(c.status, 0);
	assert_memory_equal(computed, local, sizeof(computed));
	pair_close();
}

/* --- checks -------------------------------------------------------------------------------------- */

/* What s answers to that request of its daemon: rcs_status. */
static int ask(struct side *s, struct wire_rec r, const void *payload)
{
	struct fake_chan *c = &fake.chan[s->ep->ch.addr.ep];
	unsigned was = fake.accessed_n;

	r.type = WIRE_REC_ACCESS;
	r.op = ++fake.access_op;
	r.len = r.flags & WIRE_REC_F_WRITE ? (uint32_t)r.arg : 0;
	pthread_mutex_lock(&fake.lock);
	fake_put(c, &r, payload);
	pthread_mutex_unlock(&fake.lock);
	for (int i = 0; i < 500 && fake.accessed_n == was; i++)
		settle();
	assert_int_equal(fake.accessed_n, was + 1);
	assert_int_equal(fake.accessed.r.op, r.op);
	return (int)(int64_t)fake.accessed.r.arg;
}

static void regions_are_checked(void **state)
{
	static uint8_t mem[8192], word[8] = "1234567";
	struct rcs_error err = {0};
	rcs_region *region;
	struct rcs_key k;
	struct side other = {0};
	struct wire_ukey u;
	struct wire_rec r, w;

	(void)state;
	open_window(1);
	other.ctx = b.ctx;
	assert_int_equal(rcs_ep_open(b.ctx, NULL, &other.ep, &err), 0);
	assert_int_equal(rcs_region_open(b.ctx, mem, 4096, &region, &err), 0);
	assert_int_equal(rcs_region_key(region, b.ep, &k, &err), 0);
	memcpy(&u, k.bytes, sizeof(u));
	fill(mem, sizeof(mem), 7);
	r = (struct wire_rec){.tag = (uintptr_t)mem + 4088, .arg = 8, .data = wire_key_pack(u.key)};
	w = r;
	w.flags = WIRE_REC_F_WRITE;
	assert_int_equal(ask(&b, r, NULL), 0);
	assert_int_equal(fake.accessed.r.len, 8);
	assert_memory_equal(fake.accessed.payload, mem + 4088, 8);
	assert_int_equal(ask(&b, w, word), 0);
	assert_int_equal(fake.accessed.r.len, 0);
	assert_memory_equal(mem + 4088, word, 8);
	/* the range */
	fill(mem, sizeof(mem), 7);
	r.tag = ++w.tag;
	assert_int_equal(ask(&b, r, NULL), RCS_ERR_ACCESS);
	assert_int_equal(fake.accessed.r.len, 0);
	assert_int_equal(ask(&b, w, word), RCS_ERR_ACCESS);
	r.tag = w.tag = (uintptr_t)mem - 1;
	assert_int_equal(ask(&b, w, word), RCS_ERR_ACCESS);
	/* the region, its generation, its endpoint */
	r.tag = w.tag = (uintptr_t)mem;
	w.data = wire_key_pack((struct wire_key){u.key.region + 1, u.key.gen});
	assert_int_equal(ask(&b, w, word), RCS_ERR_ACCESS);
	w.data = wire_key_pack((struct wire_key){u.key.region, u.key.gen + 1});
	assert_int_equal(ask(&b, w, word), RCS_ERR_ACCESS);
	w.data = r.data;
	assert_int_equal(ask(&other, w, word), RCS_ERR_ACCESS);
	assert_int_equal(rcs_region_close(region), 0);
	assert_int_equal(ask(&b, r, NULL), RCS_ERR_ACCESS);
	assert_int_equal(ask(&b, w, word), RCS_ERR_ACCESS);
	fill(local, sizeof(mem), 7);
	assert_memory_equal(mem, local, sizeof(mem));
	pair_close();
}

static void own_requests_are_checked(void **state)
{
	static uint8_t mem[8192], word[8] = "1234567";
	struct wire_rec r = {.flags = WIRE_REC_F_OWN, .arg = 8}, w = r;

	(void)state;
	w.flags |= WIRE_REC_F_WRITE;
	fake.hold_rma = true;
	open_window(1);
	fill(mem, sizeof(mem), 7);
	assert_int_equal(put(mem, 6000, 0, 0), 0);
	assert_int_equal(get(mem, 6000, 0), 0);
	held(2);
	r.data = fake.held[0]->r.op;
	w.data = fake.held[1]->r.op;
	r.tag = w.tag = (uintptr_t)mem + 5992;
	assert_int_equal(ask(&a, r, NULL), 0);
	assert_memory_equal(fake.accessed.payload, mem + 5992, 8);
	assert_int_equal(ask(&a, w, word), 0);
	assert_memory_equal(mem + 5992, word, 8);
	fill(mem, sizeof(mem), 7);
	r.tag = ++w.tag;
	assert_int_equal(ask(&a, r, NULL), RCS_ERR_FAULT);
	assert_int_equal(ask(&a, w, word), RCS_ERR_FAULT);
	w.tag = (uintptr_t)mem - 8;
	assert_int_equal(ask(&a, w, word), RCS_ERR_FAULT);
	/* nobody writes for a put, nor reads for a get */
	r.tag = w.tag = (uintptr_t)mem;
	w.data = fake.held[0]->r.op;
	r.data = fake.held[1]->r.op;
	assert_int_equal(ask(&a, r, NULL), RCS_ERR_FAULT);
	assert_int_equal(ask(&a, w, word), RCS_ERR_FAULT);
	/* nor when it has ended */
	w.data = r.data;
	fake.hold_rma = false;
	fake_release(0);
	fake_release(1);
	expect(&a, RCS_OP_PUT, 0, mem);
	expect(&a, RCS_OP_GET, 0, mem);
	assert_int_equal(ask(&a, w, word), RCS_ERR_FAULT);
	pair_close();
}

static void memory_that_is_not_there_is_an_error(void **state)
{
	uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(p, MAP_FAILED);
	fake.by_library = true;
	open_window(1);
	assert_int_equal(munmap(p + 4096, 4096), 0);
	assert_int_equal(put(p, 8192, 0, 0), 0);
	expect(&a, RCS_OP_PUT, RCS_ERR_FAULT, p);
	assert_int_equal(get(p, 8192, 0), 0);
	expect(&a, RCS_OP_GET, RCS_ERR_FAULT, p);
	munmap(p, 4096);
	pair_close();
}

/* --- room ---------------------------------------------------------------------------------------- */

/* The answer to a read waits until the daemon takes what fills the submission ring. */
static void a_full_submission_ring_delays_it(void **state)
{
	static uint8_t small[2048];
	struct wire_rec r = {.type = WIRE_REC_ACCESS, .arg = 4096};
	struct wire_ukey u;
	unsigned sent = 0;

	(void)state;
	fake.credit0 = 64 << 10;
	fake.rx_size = 1 << 20;
	open_window(1);
	memcpy(&u, key.bytes, sizeof(u));
	r.data = wire_key_pack(u.key);
	r.tag = u.addr;
	fill(win, 4096, 3);
	fake.paused = true;
	while (!b.ep->blocked) {
		assert_true(sent++ < 100);
		assert_int_equal(rcs_tsend(b.ep, small, sizeof(small), b.peer, 1, small), 0);
	}
	pthread_mutex_lock(&fake.lock);
	fake_put(&fake.chan[b.ep->ch.addr.ep], &r, NULL);
	pthread_mutex_unlock(&fake.lock);
	settle();
	assert_int_equal(b.ep->access.type, WIRE_REC_ACCESS);
	/* what is there when there is room counts */
	win[0] = 99;
	fake.paused = false;
	for (int i = 0; i < 500 && !fake.accessed_n; i++)
		settle();
	assert_int_equal(fake.accessed_n, 1);
	assert_int_equal(fake.accessed.r.arg, 0);
	assert_memory_equal(fake.accessed.payload, win, 4096);
	pair_close();
}

/* A daemon that asks twice at a time, or for more than a record, is not to be trusted. */
static void nonsense_ends_the_endpoint(void **state)
{
	struct wire_rec r = {.type = WIRE_REC_ACCESS, .arg = WIRE_REC_PAYLOAD_MAX + 1};
	int n;

	(void)state;
	open_window(1);
	pthread_mutex_lock(&fake.lock);
	fake_put(&fake.chan[b.ep->ch.addr.ep], &r, NULL);
	pthread_mutex_unlock(&fake.lock);
	settle();
	n = rcs_tsend(b.ep, "", 0, b.peer, 1, NULL);
	assert_int_equal(n, RCS_ERR_PROTOCOL);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_two_nodes),
		cmocka_unit_test(sizes_one_node),
		cmocka_unit_test(together_with_messages),
		cmocka_unit_test(a_helper_serves_while_the_rank_computes),
		cmocka_unit_test(regions_are_checked),
		cmocka_unit_test(own_requests_are_checked),
		cmocka_unit_test(memory_that_is_not_there_is_an_error),
		cmocka_unit_test(a_full_submission_ring_delays_it),
		cmocka_unit_test(nonsense_ends_the_endpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
