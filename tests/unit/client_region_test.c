/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions, their keys, and memory of the daemon, against a fake daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/wait.h>

#include "client_pair.h"

static int (*reg_was)(int, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t,
	struct ib_uverbs_reg_mr_resp *);

static struct wire_ukey key_of(rcs_region *r, rcs_ep *ep, struct rcs_key *key)
{
	struct rcs_error err = {0};
	struct wire_ukey k;

	if (rcs_region_key(r, ep, key, &err))
		fail_msg("%s", err.sentence);
	memcpy(&k, key->bytes, sizeof(k));
	return k;
}

static void expect_put(const struct rcs_key *key, void *from, size_t len, int status)
{
	struct rcs_rma r = {.buf = from, .len = len, .key = key, .peer = a.peer, .context = from};

	assert_int_equal(rcs_put(a.ep, &r), 0);
	expect(&a, RCS_OP_PUT, status, from);
}

/* A rail that returns: everything is registered on it again, and nobody's key changes. */
static void key_outlives_a_rail(void **state)
{
	static uint8_t exported[8192], private[100000], other[100000];
	struct shm_event ev = {.code = SHM_EV_RAIL_BACK, .origin = 1, .seq = 1};
	struct wire_ukey k, again;
	struct iovec iov = {private, sizeof(private)};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .tag = 1};
	rcs_region *r, *r2, *r3;
	struct rcs_key key;
	void *p;

	(void)state;
	cl_reg_mr = reg_ok;
	fake.devices = 2;
	fake.zcopy_min = 65536;
	pair_open(1, 0);
	assert_int_equal(rcs_region_open(b.ctx, exported, sizeof(exported), &r, NULL), 0);
	assert_int_equal(rcs_region_open(b.ctx, private, sizeof(private), &r2, NULL), 0);
	assert_int_equal(rcs_alloc(b.ctx, 4096, &p, &r3, NULL), 0);
	k = key_of(r, b.ep, &key);
	assert_int_equal(fake.region[k.key.region].loans, 1);
	expect_put(&key, other, 100, 0);
	fake_event(1, &ev);
	settle();
	/* at once, since the owner may not use it again */
	assert_int_equal(fake.region[k.key.region].loans, 2);
	again = key_of(r, b.ep, &key);
	assert_memory_equal(&k, &again, sizeof(k));
	assert_int_equal(fake.region[k.key.region].loans, 2);
	expect_put(&key, other, 100, 0);
	/* what nobody else has a key of: when it is used */
	assert_int_equal(fake.region[r2->regs->reg.key.region].loans, 1);
	again.key = r2->regs->reg.key;
	m.region = r2;
	assert_int_equal(rcs_recv(b.ep, &m), 0);
	assert_int_equal(rcs_tsend(a.ep, other, sizeof(other), a.peer, 1, other), 0);
	expect(&b, RCS_OP_RECV, 0, NULL);
	expect(&a, RCS_OP_SEND, 0, other);
	assert_int_equal(fake.gets, 1);
	assert_int_equal(fake.region[again.key.region].loans, 2);
	assert_memory_equal(&again.key, &r2->regs->reg.key, sizeof(again.key));
	settle();
	assert_int_equal(fake.live_regions, 3);
	pair_close();
	cl_reg_mr = reg_was;
}

static int reg_memlock(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	reg_ok(fd, driver, pd, addr, len, access, resp);
	return -ENOMEM;
}

/* Registering again failed: the key is good all the same. */
static void key_outlives_memlock(void **state)
{
	static uint8_t mem[8192], from[8] = "1234567";
	struct shm_event ev = {.code = SHM_EV_RAIL_BACK, .origin = 1, .seq = 1};
	struct wire_ukey k;
	struct rcs_key key;
	rcs_region *r;

	(void)state;
	cl_reg_mr = reg_ok;
	fake.devices = 1;
	fake.zcopy_min = 65536;
	pair_open(1, 0);
	assert_int_equal(rcs_region_open(b.ctx, mem, sizeof(mem), &r, NULL), 0);
	k = key_of(r, b.ep, &key);
	cl_reg_mr = reg_memlock;
	fake_event(1, &ev);
	settle();
	assert_int_equal(fake.region[k.key.region].loans, 2);
	expect_put(&key, from, 8, 0);
	assert_memory_equal(mem, from, 8);
	assert_int_equal(rcs_region_close(r), 0);
	expect_put(&key, from, 8, RCS_ERR_ACCESS);
	pair_close();
	cl_reg_mr = reg_was;
}

static void alloc_before_the_first_endpoint(void **state)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX, .nranks = 1};
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};
	struct rcs_key key;
	struct wire_ukey k, k2;
	rcs_region *r, *r2;
	rcs_ep *ep, *second;
	rcs_ctx *ctx;
	void *p, *p2;

	(void)state;
	fake_start(1);
	o.socket = fake_path(0);
	assert_int_equal(rcs_init(&o, &ctx, &err), 0);
	assert_int_equal(rcs_alloc(ctx, 5000, &p, &r, &err), 0);
	assert_int_equal((uintptr_t)p % 4096, 0);
	assert_int_equal(((uint8_t *)p)[8191], 0);
	assert_int_equal(rcs_ep_open(ctx, &e, &ep, &err), 0);
	k = key_of(r, ep, &key);
	assert_int_equal(k.flags, WIRE_UKEY_ATOMIC);
	assert_int_equal(k.len, 8192);
	assert_int_equal(k.ep, ep->ch.addr.ep);
	assert_int_equal(k.epoch, ep->ch.addr.epoch);
	assert_true(fake.region[k.key.region].alloced);
	/* another endpoint reaches the same memory, but its daemon's mapping belongs to the first */
	assert_int_equal(rcs_ep_open(ctx, &e, &second, &err), 0);
	k2 = key_of(r, second, &key);
	assert_int_equal(k2.flags, 0);
	assert_int_equal(k2.addr, k.addr);
	assert_int_not_equal(k2.key.region, k.key.region);
	assert_int_equal(fake.live_regions, 2);
	assert_int_equal(rcs_region_key(r, NULL, &key, &err), RCS_ERR_INVALID);
	/* with an endpoint there is: its */
	assert_int_equal(rcs_alloc(ctx, 1, &p2, &r2, &err), 0);
	k = key_of(r2, ep, &key);
	assert_int_equal(k.flags, WIRE_UKEY_ATOMIC);
	assert_int_equal(rcs_free(r2), 0);
	assert_int_equal(rcs_free(r), 0);
	assert_int_equal(fake.live_regions, 0);
	fake.no_alloc = true;
	assert_int_equal(rcs_alloc(ctx, 4096, &p, &r, &err), RCS_ERR_NOMEM);
	assert_non_null(strstr(err.sentence, "memory_limit_mb is reached"));
	assert_int_equal(rcs_alloc(ctx, 0, &p, &r, &err), RCS_ERR_INVALID);
	rcs_fini(ctx);
	fake_stop();
}

/* All endpoints closed: the next one takes what was allocated in between. */
static void alloc_between_endpoints(void **state)
{
	struct rcs_error err = {0};
	struct rcs_key key;
	rcs_region *r, *left;
	rcs_ep *ep;
	void *p, *q;

	(void)state;
	pair_open(0, 0);
	rcs_ep_close(a.ep);
	assert_int_equal(rcs_alloc(a.ctx, 4096, &p, &r, &err), 0);
	assert_int_equal(rcs_ep_open(a.ctx, NULL, &ep, &err), 0);
	assert_int_equal(key_of(r, ep, &key).flags, WIRE_UKEY_ATOMIC);
	rcs_ep_close(ep);
	/* of a channel that nobody took, and never freed */
	assert_int_equal(rcs_alloc(a.ctx, 4096, &q, &left, &err), 0);
	memset(p, 1, 4096); /* still the process's */
	assert_int_equal(rcs_free(r), 0);
	pair_close();
}

static void alloc_is_shared_with_children(void **state)
{
	struct rcs_error err = {0};
	rcs_region *r;
	void *p;
	int status;
	pid_t pid;

	(void)state;
	pair_open(0, 0);
	assert_int_equal(rcs_alloc(a.ctx, 4096, &p, &r, &err), 0);
	pid = fork();
	if (!pid) {
		*(uint8_t *)p = 7;
		_exit(rcs_free(r) == RCS_ERR_FORKED ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(*(uint8_t *)p, 7);
	assert_int_equal(rcs_free(r), 0);
	pair_close();
}

static void *dereg_soon(void *arg)
{
	usleep(50000);
	*(volatile bool *)arg = true;
	fake.hold_dereg = false;
	return NULL;
}

static void close_is_answered(void (*end)(void *), void *arg)
{
	bool answered = false;
	pthread_t t;

	fake.hold_dereg = true;
	pthread_create(&t, NULL, dereg_soon, &answered);
	end(arg);
	assert_true(answered);
	pthread_join(t, NULL);
}

static void end_region(void *r)
{
	assert_int_equal(rcs_region_close(r), 0);
}

static void end_ep(void *ep)
{
	rcs_ep_close(ep);
}

/* The memory is the user's again when the daemon says so, not before. */
static void close_awaits_the_daemon(void **state)
{
	static uint8_t mem[4096];
	struct rcs_error err = {0};
	struct rcs_key key;
	rcs_region *r, *busy;
	void *p;
	struct rcs_rma m;

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_region_open(b.ctx, mem, sizeof(mem), &r, &err), 0);
	key_of(r, b.ep, &key);
	/* a request of our own that uses a region */
	assert_int_equal(rcs_alloc(a.ctx, 4096, &p, &busy, &err), 0);
	fake.hold_rma = true;
	m = (struct rcs_rma){.buf = p, .len = 8, .key = &key, .peer = a.peer, .region = busy,
		.context = p};
	assert_int_equal(rcs_put(a.ep, &m), 0);
	held(1);
	assert_int_equal(rcs_free(busy), RCS_ERR_BUSY);
	fake_release(0);
	expect(&a, RCS_OP_PUT, 0, p);
	assert_int_equal(rcs_free(busy), 0);

	close_is_answered(end_region, r);
	assert_int_equal(rcs_region_open(b.ctx, mem, sizeof(mem), &r, &err), 0);
	key_of(r, b.ep, &key);
	close_is_answered(end_ep, b.ep);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_outlives_a_rail),
		cmocka_unit_test(key_outlives_memlock),
		cmocka_unit_test(alloc_before_the_first_endpoint),
		cmocka_unit_test(alloc_between_endpoints),
		cmocka_unit_test(alloc_is_shared_with_children),
		cmocka_unit_test(close_awaits_the_daemon),
	};

	reg_was = cl_reg_mr;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
