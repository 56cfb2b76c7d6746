/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between endpoints of one and of two nodes, against a fake daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_pair.h"

static void transfer(size_t len, unsigned seed)
{
	uint8_t *from = malloc(len + 1), *to = calloc(1, len + 1);
	struct rcs_completion c;

	fill(from, len, seed);
	assert_int_equal(rcs_trecv(b.ep, to, len, b.peer, seed, 0, to), 0);
	assert_int_equal(rcs_tsend(a.ep, from, len, a.peer, seed, from), 0);
	c = next(&b);
	assert_int_equal(c.status, 0);
	assert_int_equal(c.op, RCS_OP_RECV);
	assert_ptr_equal(c.context, to);
	assert_int_equal(c.len, len);
	assert_int_equal(c.tag, seed);
	assert_ptr_equal(c.source, b.peer);
	assert_int_equal(c.source_rank, 0);
	assert_memory_equal(from, to, len);
	c = next(&a);
	assert_int_equal(c.status, 0);
	assert_int_equal(c.op, RCS_OP_SEND);
	assert_ptr_equal(c.context, from);
	free(from);
	free(to);
}

static void all_sizes(unsigned node_b)
{
	static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 1000, 4095, 4096, 4097, 10000, 65536, 65537,
		1000000, 3 << 20};

	pair_open(node_b, 0);
	for (unsigned k = 0; k < 3; k++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			transfer(sizes[i], (unsigned)(i + k * 100));
	pair_close();
}

static void sizes_one_node(void **state)
{
	(void)state;
	all_sizes(0);
}

static void sizes_pushed(void **state)
{
	(void)state;
	all_sizes(1);
}

/* A first credit that fits one announcement only: everything arrives all the same. */
static void sizes_tiny_credit(void **state)
{
	(void)state;
	fake.credit0 = 256;
	fake.rx_size = 64 << 10;
	all_sizes(1);
}

static int reg_memlock(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	reg_ok(fd, driver, pd, addr, len, access, resp);
	return -ENOMEM;
}

static int reg_readonly(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	reg_ok(fd, driver, pd, addr, len, access, resp);
	return access & IB_UVERBS_ACCESS_LOCAL_WRITE ? -EFAULT : 0;
}

static void fetched_by_get(void **state)
{
	int (*was)(int, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t, struct ib_uverbs_reg_mr_resp *) =
		cl_reg_mr;

	(void)state;
	cl_reg_mr = reg_ok;
	fake.zcopy_min = 65536;
	fake.devices = 2;
	pair_open(1, 0);
	transfer(65536, 1);
	transfer(1 << 20, 2);
	assert_int_equal(fake.gets, 2);
	assert_int_equal(fake.records[WIRE_REC_PUSH], 0);
	/* no path left in mid-way: the rest is pushed, from there on */
	fake.get_stop = 100000;
	transfer(1 << 20, 3);
	assert_int_equal(fake.gets, 3);
	assert_true(fake.records[WIRE_REC_PUSH] >= ((1 << 20) - 100000) / 4096);
	assert_true(fake.records[WIRE_REC_PUSH] <= ((1 << 20) - 100000) / 2048);
	settle();
	assert_int_equal(fake.live_regions, 0);
	pair_close();
	cl_reg_mr = was;
}

static void memlock_falls_back(void **state)
{
	int (*was)(int, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t, struct ib_uverbs_reg_mr_resp *) =
		cl_reg_mr;
	static char mem[200000];
	struct rcs_error err = {0};
	rcs_region *r;

	(void)state;
	cl_reg_mr = reg_memlock;
	fake.zcopy_min = 65536;
	fake.devices = 1;
	pair_open(1, 0);
	transfer(1 << 20, 2);
	assert_int_equal(fake.gets, 0);
	assert_int_equal(rcs_region_open(a.ctx, mem, sizeof(mem), &r, &err), RCS_ERR_MEMLOCK);
	assert_non_null(strstr(err.sentence, "PropagateResourceLimitsExcept=MEMLOCK"));
	settle();
	assert_int_equal(fake.live_regions, 0);
	/* a buffer that can only be read: sent from by RDMA, received into by push */
	cl_reg_mr = reg_readonly;
	transfer(1 << 20, 3);
	assert_int_equal(fake.gets, 0);
	pair_close();
	cl_reg_mr = was;
}

static void user_region(void **state)
{
	int (*was)(int, uint32_t, uint32_t, uint64_t, uint64_t, uint32_t, struct ib_uverbs_reg_mr_resp *) =
		cl_reg_mr;
	rcs_region *ra, *rb;
	void *pa, *pb;
	struct iovec ia, ib;
	struct rcs_msg m;
	struct rcs_error err;

	(void)state;
	cl_reg_mr = reg_ok;
	fake.zcopy_min = 65536;
	fake.devices = 1;
	pair_open(1, 0);
	assert_int_equal(rcs_alloc(a.ctx, 1 << 20, &pa, &ra, &err), 0);
	assert_int_equal(rcs_alloc(b.ctx, 1 << 20, &pb, &rb, &err), 0);
	for (int i = 0; i < 3; i++) {
		ia = (struct iovec){(char *)pa + 4096, 500000};
		ib = (struct iovec){(char *)pb + 100, 500000};
		fill(ia.iov_base, ia.iov_len, (unsigned)i);
		m = (struct rcs_msg){.iov = &ib, .iov_n = 1, .tag = 1, .region = rb};
		assert_int_equal(rcs_recv(b.ep, &m), 0);
		assert_int_equal(rcs_region_close(rb), RCS_ERR_BUSY);
		m = (struct rcs_msg){.iov = &ia, .iov_n = 1, .tag = 1, .region = ra, .peer = a.peer};
		assert_int_equal(rcs_send(a.ep, &m), 0);
		assert_int_equal(next(&b).status, 0);
		assert_int_equal(next(&a).status, 0);
		assert_memory_equal(ia.iov_base, ib.iov_base, 500000);
	}
	assert_int_equal(fake.gets, 3);
	assert_int_equal(fake.live_regions, 2);
	ia.iov_len = 2 << 20; /* beyond the region */
	m = (struct rcs_msg){.iov = &ia, .iov_n = 1, .region = ra, .peer = a.peer};
	assert_int_equal(rcs_send(a.ep, &m), RCS_ERR_INVALID);
	assert_int_equal(rcs_free(ra), 0);
	assert_int_equal(rcs_free(rb), 0);
	assert_int_equal(fake.live_regions, 0);
	pair_close();
	cl_reg_mr = was;
}

/* Many messages of mixed sizes, receives posted late: order holds, nothing is lost. */
static void order_holds(unsigned node_b, uint32_t flags)
{
	enum { N = 600 };
	static const size_t sizes[] = {8, 5000, 100, 4096, 20000, 16, 70000, 3000};
	uint8_t *from[N], *to = malloc(70000);
	int posted = 0, got = 0, sent = 0;
	struct rcs_completion c;

	pair_open(node_b, flags);
	for (int i = 0; i < N; i++) {
		size_t len = sizes[i % 8];

		from[i] = malloc(len);
		fill(from[i], len, (unsigned)i);
		assert_int_equal(rcs_tsend(a.ep, from[i], len, a.peer, 5, from[i]), 0);
	}
	settle();
	for (got = 0; got < N; got++) {
		size_t len = sizes[got % 8];

		assert_int_equal(rcs_trecv(b.ep, to, 70000, NULL, 5, 0, NULL), 0);
		posted++;
		c = next(&b);
		assert_int_equal(c.status, 0);
		assert_int_equal(c.len, len);
		assert_memory_equal(to, from[got], len);
	}
	for (sent = 0; sent < N; sent++)
		assert_int_equal(next(&a).status, 0);
	assert_int_equal(rcs_cq_read(a.cq, &c, 1), 0);
	for (int i = 0; i < N; i++)
		free(from[i]);
	free(to);
	pair_close();
}

static void order_one_node(void **state)
{
	(void)state;
	order_holds(0, 0);
}

static void order_two_nodes(void **state)
{
	(void)state;
	order_holds(1, 0);
}

static void order_with_helper(void **state)
{
	(void)state;
	order_holds(1, RCS_INIT_HELPER);
}

static void order_tiny_credit(void **state)
{
	(void)state;
	fake.credit0 = 256;
	fake.rx_size = 32 << 10;
	fake.answers = 16;
	order_holds(1, 0);
}

static void tags_and_wildcards(void **state)
{
	char in[3] = "xx", out1 = '1', out2 = '2';
	struct rcs_completion c;
	rcs_claim *claim;

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_probe(b.ep, NULL, 0, ~0ull, &c, NULL), 0);
	assert_int_equal(rcs_tsend(a.ep, &out1, 1, a.peer, 0x11, NULL), 0);
	assert_int_equal(rcs_inject(a.ep, &out2, 1, a.peer, 0x22, 77, RCS_SEND_DATA), 0);
	settle();
	assert_int_equal(next(&a).op, RCS_OP_SEND); /* inject has none */
	assert_int_equal(rcs_cq_read(a.cq, &c, 1), 0);
	assert_int_equal(rcs_probe(b.ep, b.peer, 0x20, 0xf, &c, NULL), 1);
	assert_int_equal(c.tag, 0x22);
	assert_int_equal(c.data, 77);
	assert_true(c.has_data);
	assert_int_equal(rcs_probe(b.ep, NULL, 0x22, 0, &c, &claim), 1);
	assert_int_equal(rcs_probe(b.ep, NULL, 0x22, 0, &c, NULL), 0);
	assert_int_equal(rcs_recv_claimed(b.ep, claim, in, 1, in), 0);
	c = next(&b);
	assert_int_equal(c.tag, 0x22);
	assert_int_equal(c.data, 77);
	assert_int_equal(in[0], '2');
	assert_int_equal(rcs_trecv(b.ep, in, 1, NULL, 0, ~0ull, NULL), 0);
	c = next(&b);
	assert_int_equal(c.tag, 0x11);
	assert_false(c.has_data);
	assert_int_equal(in[0], '1');
	pair_close();
}

static void truncated(unsigned node_b, size_t len)
{
	uint8_t *from = malloc(len), *to = malloc(len);
	struct rcs_completion c;

	pair_open(node_b, 0);
	fill(from, len, 1);
	memset(to, 0xee, len);
	assert_int_equal(rcs_trecv(b.ep, to, len / 2, NULL, 1, 0, NULL), 0);
	assert_int_equal(rcs_tsend(a.ep, from, len, a.peer, 1, NULL), 0);
	c = next(&b);
	assert_int_equal(c.status, RCS_ERR_TRUNCATED);
	assert_int_equal(c.len, len);
	assert_memory_equal(from, to, len / 2);
	for (size_t i = len / 2; i < len; i++)
		assert_int_equal(to[i], 0xee);
	assert_int_equal(next(&a).status, 0);
	free(from);
	free(to);
	pair_close();
}

static void truncation(void **state)
{
	(void)state;
	truncated(0, 100);
	truncated(0, 100000);
	truncated(1, 100);
	truncated(1, 100000);
}

static void scatter(void **state)
{
	static uint8_t src[50000], dst[50000];
	struct iovec is[3] = {{src, 20000}, {src + 20000, 1}, {src + 20001, 29999}};
	struct iovec id[2] = {{dst, 33333}, {dst + 33333, 50000 - 33333}};
	struct rcs_msg m;

	(void)state;
	for (unsigned node = 0; node < 2; node++) {
		pair_open(node, 0);
		fill(src, sizeof(src), node);
		memset(dst, 0, sizeof(dst));
		m = (struct rcs_msg){.iov = id, .iov_n = 2, .tag = 3};
		assert_int_equal(rcs_recv(b.ep, &m), 0);
		m = (struct rcs_msg){.iov = is, .iov_n = 3, .tag = 3, .peer = a.peer};
		assert_int_equal(rcs_send(a.ep, &m), 0);
		assert_int_equal(next(&b).status, 0);
		assert_int_equal(next(&a).status, 0);
		assert_memory_equal(src, dst, sizeof(src));
		pair_close();
	}
}

static void delivered_waits(void **state)
{
	char x = 'x';
	struct iovec iov = {&x, 1};
	struct rcs_msg m = {.iov = &iov, .iov_n = 1, .flags = RCS_SEND_DELIVERED};
	struct rcs_completion c;

	(void)state;
	pair_open(1, 0);
	m.peer = a.peer;
	fake.paused = true;
	assert_int_equal(rcs_send(a.ep, &m), 0);
	usleep(10000);
	assert_int_equal(rcs_cq_read(a.cq, &c, 1), 0);
	fake.paused = false;
	assert_int_equal(next(&a).status, 0);
	pair_close();
}

static void cancels(void **state)
{
	static uint8_t big[100000];
	struct rcs_completion c;
	char x;

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_trecv(b.ep, &x, 1, NULL, 1, 0, &x), 0);
	assert_int_equal(rcs_cancel(b.ep, &x), 0);
	c = next(&b);
	assert_int_equal(c.status, RCS_ERR_CANCELED);
	assert_ptr_equal(c.context, &x);
	assert_int_equal(rcs_cancel(b.ep, &x), RCS_ERR_INVALID);
	/* announced, not matched: asked back */
	assert_int_equal(rcs_tsend(a.ep, big, sizeof(big), a.peer, 1, big), 0);
	settle();
	assert_int_equal(rcs_probe(b.ep, NULL, 1, 0, &c, NULL), 1);
	assert_int_equal(rcs_cancel(a.ep, big), 0);
	assert_int_equal(next(&a).status, RCS_ERR_CANCELED);
	assert_int_equal(rcs_probe(b.ep, NULL, 1, 0, &c, NULL), 0);
	pair_close();
}

static void peer_gone(void **state)
{
	static uint8_t big[100000];
	struct rcs_completion c;
	char x = 0;

	(void)state;
	/* an announced message whose receiver closes; then sends to nobody */
	pair_open(1, 0);
	assert_int_equal(rcs_tsend(a.ep, big, sizeof(big), a.peer, 1, big), 0);
	settle();
	rcs_fini(b.ctx);
	b.ctx = NULL;
	assert_int_equal(next(&a).status, RCS_ERR_PEER_GONE);
	fake_stop();
	rcs_fini(a.ctx);
	a.ctx = NULL;

	/* ... a receive from it ends as well, and a new one is refused; what it had sent is still there */
	pair_open(1, 0);
	assert_int_equal(rcs_tsend(b.ep, &x, 1, b.peer, 2, NULL), 0);
	assert_int_equal(next(&b).status, 0);
	rcs_fini(b.ctx);
	b.ctx = NULL;
	usleep(10000);
	assert_int_equal(rcs_trecv(a.ep, big, 1, a.peer, 1, 0, big), 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, NULL), 0);
	assert_int_equal(next(&a).status, 0); /* only the buffer was promised */
	c = next(&a);
	assert_ptr_equal(c.context, big);
	assert_int_equal(c.status, RCS_ERR_PEER_GONE);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, NULL), RCS_ERR_PEER_GONE);
	assert_int_equal(rcs_trecv(a.ep, big, 1, a.peer, 1, 0, big), RCS_ERR_PEER_GONE);
	assert_int_equal(rcs_trecv(a.ep, &x, 1, a.peer, 2, 0, NULL), 0);
	assert_int_equal(next(&a).status, 0);
	rcs_fini(a.ctx);
	a.ctx = NULL;
	fake_stop();
}

/* The sender closes while its announcement lies unmatched, or while it is pushing. */
static void sender_gone(void **state)
{
	static uint8_t big[1000000];

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_tsend(a.ep, big, sizeof(big), a.peer, 1, big), 0);
	assert_int_equal(rcs_trecv(b.ep, big, sizeof(big), NULL, 1, 0, NULL), 0);
	for (int i = 0; i < 5; i++) {
		rcs_cq_read(b.cq, NULL, 0);
		usleep(2000);
		rcs_cq_read(a.cq, NULL, 0);
	}
	rcs_fini(a.ctx);
	a.ctx = NULL;
	assert_int_equal(next(&b).status, RCS_ERR_PEER_GONE);
	rcs_fini(b.ctx);
	b.ctx = NULL;
	fake_stop();
}

static void runtime_lost(void **state)
{
	struct rcs_completion c;
	int n, lost = 0;
	char x;

	(void)state;
	pair_open(0, 0);
	assert_int_equal(rcs_trecv(b.ep, &x, 1, NULL, 1, 0, &x), 0);
	fake_stop();
	for (int i = 0; i < 100; i++) {
		n = rcs_cq_wait(b.cq, &c, 1, 100);
		if (n == 1 && c.status == RCS_ERR_RUNTIME_LOST)
			lost++;
		else if (n == RCS_ERR_RUNTIME_LOST)
			break;
	}
	assert_int_equal(lost, 1);
	assert_int_equal(n, RCS_ERR_RUNTIME_LOST);
	assert_int_equal(rcs_trecv(b.ep, &x, 1, NULL, 1, 0, &x), RCS_ERR_RUNTIME_LOST);
	rcs_fini(a.ctx);
	rcs_fini(b.ctx);
	a.ctx = b.ctx = NULL;
}

static int events;
static struct rcs_event last_event;

static void on_event(const struct rcs_event *ev, void *arg)
{
	events++;
	last_event = *ev;
	assert_string_equal(ev->reason, "port error");
	assert_int_equal(rcs_cq_read(arg, NULL, 0), 0); /* calls are allowed in here */
}

static void events_once(void **state)
{
	struct shm_event ev = {.code = SHM_EV_RAIL_FAILED, .origin = 1, .seq = 1, .rail = 2,
		.to_lane = 4, .rank = UINT32_MAX, .reason = "port error"};
	struct rcs_ep_opts o = {.size = sizeof(o)};
	rcs_ep *second;

	(void)state;
	pair_open(1, 0);
	o.rx_cq = a.cq;
	assert_int_equal(rcs_ep_open(a.ctx, &o, &second, NULL), 0);
	rcs_on_event(a.ctx, on_event, a.cq);
	fake_event(0, &ev);
	settle();
	assert_int_equal(events, 1);
	assert_int_equal(last_event.rail, 2);
	assert_int_equal(last_event.to_rail, 4);
	pair_close();
}

static void events_of_other_steps(void **state)
{
	struct shm_event ev = {.code = SHM_EV_NODE_LOST, .origin = 1, .seq = 1, .step = 7, .peer = 9,
		.reason = "port error"};

	(void)state;
	pair_open(1, 0);
	rcs_on_event(a.ctx, on_event, a.cq);
	events = 0;
	fake_event(0, &ev);
	settle();
	assert_int_equal(events, 0);
	ev.seq = 2;
	ev.step = 0;
	fake_event(0, &ev);
	settle();
	assert_int_equal(events, 1);
	pair_close();
}

/* Sends that wait leave room for receives, in requests and in the queue they share. */
static void sends_leave_room(void **state)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX, .nranks = 1};
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};
	struct rcs_completion c;
	rcs_peer *self;
	int sent = 0, rc;
	char buf[64] = {0};

	(void)state;
	fake_start(1);
	o.socket = fake_path(0);
	assert_int_equal(rcs_init(&o, &a.ctx, &err), 0);
	assert_int_equal(rcs_cq_open(a.ctx, 400, &a.cq, &err), 0);
	e.tx_cq = e.rx_cq = a.cq;
	assert_int_equal(rcs_ep_open(a.ctx, &e, &a.ep, &err), 0);
	rcs_ep_addr(a.ep, &a.addr);
	assert_int_equal(rcs_peer_insert(a.ep, &a.addr, &self, &err), 0);
	fake.paused = true;
	while ((rc = rcs_tsend(a.ep, buf, 64, self, 1, NULL)) == 0)
		sent++;
	assert_int_equal(rc, RCS_ERR_AGAIN);
	assert_int_equal(sent, 300);
	for (int i = 0; i < 100; i++)
		assert_int_equal(rcs_trecv(a.ep, buf, 64, NULL, 1, 0, NULL), 0);
	assert_int_equal(rcs_trecv(a.ep, buf, 64, NULL, 1, 0, NULL), RCS_ERR_AGAIN);
	fake.paused = false;
	for (int i = 0; i < 400; i++)
		assert_int_equal(rcs_cq_wait(a.cq, &c, 1, 5000), 1);
	rcs_fini(a.ctx);
	fake_stop();
	memset(&a, 0, sizeof(a));
}

/* A receiver that does not receive holds its sender back; both recover. */
static void flood(void **state)
{
	enum { N = 30000 };
	char buf[4000] = {0}, in[4000];
	int sent = 0, got = 0, again = 0;
	struct rcs_completion c[64];

	(void)state;
	pair_open(1, 0);
	while (sent < N) {
		int rc = rcs_inject(a.ep, buf, sizeof(buf), a.peer, 9, 0, 0);

		if (rc == RCS_ERR_AGAIN) {
			again++;
			break;
		}
		assert_int_equal(rc, 0);
		sent++;
		if (sent % 64 == 0)
			rcs_cq_read(b.cq, NULL, 0);
	}
	settle();
	assert_true(b.ep->unexp_bytes <= CL_UNEXP_CAP + fake.rx_size + (256 << 10));
	while (got < sent) {
		assert_int_equal(rcs_trecv(b.ep, in, sizeof(in), NULL, 9, 0, NULL), 0);
		assert_int_equal(next(&b).status, 0);
		got++;
	}
	assert_int_equal(rcs_cq_read(b.cq, c, 64), 0);
	pair_close();
}

/* More than one look at the ring takes; the table says it before the ring is empty. */
static void what_a_lost_node_has_sent_is_taken_first(void **state)
{
	enum { N = 300 };
	char x = 'x', in[N];

	(void)state;
	fake.credit0 = 64 << 10;
	pair_open(1, 0);
	for (int i = 0; i < N; i++)
		assert_int_equal(rcs_trecv(b.ep, &in[i], 1, b.peer, 1, 0, NULL), 0);
	for (int i = 0; i < N; i++)
		assert_int_equal(rcs_inject(a.ep, &x, 1, a.peer, 1, 0, 0), 0);
	for (int i = 0; i < 10000 && fake.records[WIRE_REC_MSG] < N; i++)
		usleep(1000);
	assert_int_equal(fake.records[WIRE_REC_MSG], N);
	b.ep->idle = 64;
	b.ep->checked_at = 0;
	atomic_store(&fake.table[1]->node_tab[0].state, SHM_NODE_DOWN);
	for (int i = 0; i < N; i++)
		expect(&b, RCS_OP_RECV, RCS_OK, NULL);
	while (!b.peer->gone)
		rcs_cq_read(b.cq, NULL, 0);
	assert_int_equal(rcs_trecv(b.ep, in, 1, b.peer, 1, 0, NULL), RCS_ERR_NODE_LOST);
	pair_close();
}

/* Its daemon died and another one answers there: whoever was attached to the former one is gone with it. */
static void endpoints_of_a_replaced_daemon_are_gone(void **state)
{
	char x;

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_trecv(b.ep, &x, 1, b.peer, 1, 0, NULL), 0);
	atomic_fetch_add(&fake.table[1]->node_tab[0].daemons, 1);
	expect(&b, RCS_OP_RECV, RCS_ERR_NODE_LOST, NULL);
	assert_int_equal(b.peer->gone, RCS_ERR_NODE_LOST);
	pair_close();
}

/* Else two lost peers that were quick would keep all others at their first credit. */
static void what_was_lent_to_a_lost_peer_is_for_others(void **state)
{
	char x = 'x', y;

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, NULL), 0);
	settle();
	cl_credit_wish(b.peer, 64 << 10);
	assert_true(b.peer->rx_win > b.ep->ch.credit0);
	atomic_store(&fake.table[1]->node_tab[0].state, SHM_NODE_DOWN);
	while (!b.peer->gone)
		rcs_cq_read(b.cq, NULL, 0);
	assert_int_equal(b.ep->windows, 0);
	/* what it has sent before is received, and lends nothing */
	assert_int_equal(rcs_trecv(b.ep, &y, 1, b.peer, 1, 0, NULL), 0);
	expect(&b, RCS_OP_RECV, RCS_OK, NULL);
	cl_credit_wish(b.peer, 64 << 10);
	assert_int_equal(b.ep->windows, 0);
	pair_close();
}

static void what_is_not_known_is_refused(void **state)
{
	struct rcs_init_opts o = {.flags = RCS_INIT_NO_PMIX, .nranks = 1};
	struct rcs_ep_opts e = {.size = 0};
	struct rcs_msg m = {.flags = 0x80};
	struct rcs_error err;
	rcs_ctx *ctx;
	rcs_ep *ep;
	char x = 'x';

	(void)state;
	pair_open(0, 0);
	m.peer = a.peer;
	assert_int_equal(rcs_send(a.ep, &m), RCS_ERR_INVALID);
	assert_int_equal(rcs_inject(a.ep, &x, 1, a.peer, 1, 0, 0x80), RCS_ERR_INVALID);
	assert_int_equal(rcs_ep_open(a.ctx, &e, &ep, &err), RCS_ERR_INVALID);
	assert_non_null(strstr(err.sentence, "size"));
	assert_int_equal(rcs_init(&o, &ctx, &err), RCS_ERR_INVALID);
	assert_non_null(strstr(err.sentence, "size"));
	pair_close();
}

static void wait_and_arm(void **state)
{
	struct rcs_completion c;
	struct pollfd p = {.events = POLLIN};
	char x = 'x', y;

	(void)state;
	pair_open(1, 0);
	assert_int_equal(rcs_cq_wait(b.cq, &c, 1, 10), RCS_ERR_TIMEOUT);
	assert_int_equal(rcs_trecv(b.ep, &y, 1, NULL, 1, 0, NULL), 0);
	p.fd = rcs_cq_fd(b.cq);
	while (rcs_cq_arm(b.cq))
		assert_int_equal(rcs_cq_read(b.cq, &c, 1), 0);
	assert_int_equal(poll(&p, 1, 20), 0);
	assert_int_equal(rcs_tsend(a.ep, &x, 1, a.peer, 1, NULL), 0);
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(rcs_cq_read(b.cq, &c, 1), 1);
	while (rcs_cq_arm(b.cq))
		assert_int_equal(rcs_cq_read(b.cq, &c, 1), 0);
	assert_int_equal(poll(&p, 1, 20), 0);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_one_node),
		cmocka_unit_test(sizes_pushed),
		cmocka_unit_test(sizes_tiny_credit),
		cmocka_unit_test(fetched_by_get),
		cmocka_unit_test(memlock_falls_back),
		cmocka_unit_test(user_region),
		cmocka_unit_test(order_one_node),
		cmocka_unit_test(order_two_nodes),
		cmocka_unit_test(order_with_helper),
		cmocka_unit_test(order_tiny_credit),
		cmocka_unit_test(tags_and_wildcards),
		cmocka_unit_test(truncation),
		cmocka_unit_test(scatter),
		cmocka_unit_test(delivered_waits),
		cmocka_unit_test(cancels),
		cmocka_unit_test(peer_gone),
		cmocka_unit_test(sender_gone),
		cmocka_unit_test(runtime_lost),
		cmocka_unit_test(events_once),
		cmocka_unit_test(events_of_other_steps),
		cmocka_unit_test(what_a_lost_node_has_sent_is_taken_first),
		cmocka_unit_test(endpoints_of_a_replaced_daemon_are_gone),
		cmocka_unit_test(what_was_lent_to_a_lost_peer_is_for_others),
		cmocka_unit_test(wait_and_arm),
		cmocka_unit_test(what_is_not_known_is_refused),
		cmocka_unit_test(sends_leave_room),
		cmocka_unit_test(flood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
