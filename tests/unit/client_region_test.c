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

static unsigned made[WIRE_RAILS_MAX]; /* registrations, by rail */

static int reg_count(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	made[pd]++;
	return reg_ok(fd, driver, pd, addr, len, access, resp);
}

static void until_made(unsigned rail, unsigned n)
{
	for (int i = 0; i < 500 && made[rail] < n; i++)
		settle();
	assert_int_equal(made[rail], n);
}

/* So long that all that is stale has been looked at again and again. */
static void look(void)
{
	for (unsigned i = 0; i < 3; i++) {
		b.ep->checked_at = 0;
		settle();
	}
}

static void expect_made(unsigned rail0, unsigned rail1)
{
	look();
	assert_int_equal(made[0], rail0);
	assert_int_equal(made[1], rail1);
}

static void start_rails(void)
{
	memset(made, 0, sizeof(made));
	cl_reg_mr = reg_count;
	fake.devices = 2;
	pair_open(1, 0);
	fake_device(1, 0);
	fake_device(1, 1);
}

static void stop_rails(void)
{
	pair_close();
	cl_reg_mr = reg_was;
}

/* What others have a key of is registered with a rail's new device, each on that rail alone; no event tells of it. */
static void a_new_device_gets_what_others_have_keys_of(void **state)
{
	static uint8_t mem[20][4096];
	rcs_region *r[20], *private;
	struct rcs_key key;
	struct wire_ukey k;

	(void)state;
	start_rails();
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(rcs_region_open(b.ctx, mem[i], sizeof(mem[i]), &r[i], NULL), 0);
		k = key_of(r[i], b.ep, &key);
	}
	assert_int_equal(rcs_region_open(b.ctx, mem, sizeof(mem), &private, NULL), 0);
	expect_made(20, 20);
	fake_device(1, 1);
	until_made(1, 40);
	expect_made(20, 40);
	assert_int_equal(fake.region[k.key.region].loans, 2);
	fake_device(1, 0);
	until_made(0, 40);
	expect_made(40, 40);
	stop_rails();
}

/* A lane to a peer is back: that says nothing of this node's devices. */
static void a_lane_that_is_back_registers_nothing(void **state)
{
	struct shm_event ev = {.code = SHM_EV_RAIL_BACK, .origin = 1, .seq = 1};
	static uint8_t mem[4096];
	struct rcs_key key;
	rcs_region *r;

	(void)state;
	start_rails();
	assert_int_equal(rcs_region_open(b.ctx, mem, sizeof(mem), &r, NULL), 0);
	key_of(r, b.ep, &key);
	fake_event(1, &ev);
	expect_made(1, 1);
	stop_rails();
}

/* The daemon lends nothing for a while: it is asked until it does. */
static void what_is_stale_is_tried_until_it_is_registered(void **state)
{
	static uint8_t mem[4096];
	struct rcs_key key;
	rcs_region *r;

	(void)state;
	start_rails();
	assert_int_equal(rcs_region_open(b.ctx, mem, sizeof(mem), &r, NULL), 0);
	key_of(r, b.ep, &key);
	fake.no_lend = true;
	fake_device(1, 1);
	for (int i = 0; i < 500 && fake.refused < 3; i++)
		settle();
	assert_true(fake.refused >= 3);
	expect_made(1, 1);
	fake.no_lend = false;
	until_made(1, 2);
	expect_made(1, 2);
	stop_rails();
}

/* One call makes one registration: others of the process wait for no more than that. */
static void a_call_makes_one_registration(void **state)
{
	static uint8_t mem[5][4096];
	rcs_region *r[5];
	struct rcs_key key;

	(void)state;
	start_rails();
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(rcs_region_open(b.ctx, mem[i], sizeof(mem[i]), &r[i], NULL), 0);
		key_of(r[i], b.ep, &key);
	}
	fake_device(1, 1);
	while (made[1] < 10) {
		unsigned before = made[1];

		rcs_cq_read(b.cq, NULL, 0);
		assert_true(made[1] <= before + 1);
	}
	stop_rails();
}

/* A rail that returns: everything is registered on it again, and nobody's key changes. */
static void key_outlives_a_rail(void **state)
{
	static uint8_t exported[8192], private[100000], other[100000];
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
	fake_device(1, 0);
	/* since the owner may not use it again */
	look();
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
	fake_device(1, 0);
	look();
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

/* As of CUDA's driver: memory_type and managed of what lies in a page of its own. */
static uint8_t device_page[4096];
static unsigned memory_type;
static int managed;

int cuPointerGetAttribute(void *data, int attribute, unsigned long long ptr);
__attribute__((visibility("default"))) int cuPointerGetAttribute(void *data, int attribute, unsigned long long ptr)
{
	if (ptr - (uintptr_t)device_page >= sizeof(device_page))
		return 1; /* CUDA_ERROR_INVALID_VALUE: memory it knows nothing of */
	if (attribute == 2)
		memcpy(data, &memory_type, sizeof(memory_type));
	else if (attribute == 8)
		memcpy(data, &managed, sizeof(managed));
	else
		return 1;
	return 0;
}

static void memory_of_a_device_is_refused(void **state)
{
	uint8_t host[64];
	struct rcs_error err = {0};
	rcs_region *r = NULL;

	(void)state;
	pair_open(1, 0);
	memory_type = 2;
	managed = 0;
	assert_int_equal(rcs_region_open(a.ctx, device_page, 64, &r, &err), RCS_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.sentence, "memory of a CUDA device"));
	assert_null(r);
	/* what the host can reach is taken */
	managed = 1;
	assert_int_equal(rcs_region_open(a.ctx, device_page, 64, &r, &err), 0);
	assert_int_equal(rcs_region_close(r), 0);
	memory_type = 1;
	managed = 0;
	assert_int_equal(rcs_region_open(a.ctx, device_page, 64, &r, &err), 0);
	assert_int_equal(rcs_region_close(r), 0);
	assert_int_equal(rcs_region_open(a.ctx, host, 64, &r, &err), 0);
	assert_int_equal(rcs_region_close(r), 0);
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
		cmocka_unit_test(a_new_device_gets_what_others_have_keys_of),
		cmocka_unit_test(a_lane_that_is_back_registers_nothing),
		cmocka_unit_test(what_is_stale_is_tried_until_it_is_registered),
		cmocka_unit_test(a_call_makes_one_registration),
		cmocka_unit_test(key_outlives_a_rail),
		cmocka_unit_test(key_outlives_memlock),
		cmocka_unit_test(memory_of_a_device_is_refused),
		cmocka_unit_test(alloc_before_the_first_endpoint),
		cmocka_unit_test(alloc_between_endpoints),
		cmocka_unit_test(alloc_is_shared_with_children),
		cmocka_unit_test(close_awaits_the_daemon),
	};

	reg_was = cl_reg_mr;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
