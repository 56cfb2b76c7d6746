/* SPDX-License-Identifier: BSD-3-Clause */
/* client_pair.h - two endpoints of one or two nodes on a fake daemon, for unit tests of the library. */
#ifndef RCS_TESTS_CLIENT_PAIR_H
#define RCS_TESTS_CLIENT_PAIR_H

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <time.h>

#include "client/lib.h"
#include "fake_daemon.h"

struct side {
	rcs_ctx *ctx;
	rcs_cq *cq;
	rcs_ep *ep;
	rcs_peer *peer; /* the other side */
	struct rcs_addr addr;
};

static struct side a, b;

static inline void side_open(struct side *s, unsigned node, uint32_t rank, uint32_t flags)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX | flags, .rank = rank,
		.nranks = 2, .socket = fake_path(node)};
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};

	if (rcs_init(&o, &s->ctx, &err))
		fail_msg("%s", err.sentence);
	assert_int_equal(rcs_cq_open(s->ctx, 0, &s->cq, &err), 0);
	e.tx_cq = e.rx_cq = s->cq;
	if (rcs_ep_open(s->ctx, &e, &s->ep, &err))
		fail_msg("%s", err.sentence);
	rcs_ep_addr(s->ep, &s->addr);
}

static inline void pair_open(unsigned node_b, uint32_t flags)
{
	struct rcs_error err;

	fake_start(2);
	side_open(&a, 0, 0, flags);
	side_open(&b, node_b, 1, flags);
	assert_int_equal(rcs_peer_insert(a.ep, &b.addr, &a.peer, &err), 0);
	assert_int_equal(rcs_peer_insert(b.ep, &a.addr, &b.peer, &err), 0);
}

static inline void pair_close(void)
{
	rcs_fini(a.ctx);
	rcs_fini(b.ctx);
	assert_false(fake.overflow);
	fake_stop();
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
}

/* What a stall looks like. */
static inline void dump(const char *name, const struct side *s)
{
	rcs_peer *p, *tmp;

	if (!s->ctx)
		return;
	print_message("%s: posted %d fetchq %d unexp %zu answers %zu/%zu blocked %d ctl %d\n", name,
		!!s->ep->posted, !!s->ep->fetchq, (size_t)s->ep->unexp_bytes, (size_t)s->ep->answers,
		(size_t)s->ep->ch.answers_max, s->ep->blocked, !!s->ep->ctl);
	HASH_ITER(hh, s->ep->peers, p, tmp)
		print_message(" peer %u/%u: sent %zu limit %zu win %u, consumed %zu told %zu held %zu win %u, "
			"pending %d waiting %d pushing %d fetching %d active %d\n", p->key.node, p->key.ep,
			(size_t)p->sent, (size_t)p->limit, p->win, (size_t)p->consumed, (size_t)p->told,
			(size_t)p->held, p->rx_win, !!p->pending, !!p->waiting, !!p->pushing,
			!!p->fetching, p->active);
}

/* The next completion of s while the other side progresses too. */
static inline struct rcs_completion next(struct side *s)
{
	struct rcs_completion c;
	time_t until = time(NULL) + 20;

	for (;;) {
		struct side *o = s == &a ? &b : &a;
		int n = rcs_cq_read(s->cq, &c, 1);

		if (n == 1)
			return c;
		if (n < 0)
			fail_msg("%s", rcs_status_name(n));
		if (o->ctx)
			rcs_cntr_read(NULL), rcs_cq_read(o->cq, NULL, 0);
		if (time(NULL) > until) {
			dump("a", &a);
			dump("b", &b);
			fail_msg("no completion");
		}
		sched_yield();
	}
}

static inline void settle(void)
{
	for (int i = 0; i < 200; i++) {
		if (a.ctx)
			rcs_cq_read(a.cq, NULL, 0);
		if (b.ctx)
			rcs_cq_read(b.cq, NULL, 0);
		usleep(100);
	}
}

static inline void expect(struct side *s, uint32_t op, int status, const void *context)
{
	struct rcs_completion c = next(s);

	assert_int_equal(c.op, op);
	assert_int_equal(c.status, status);
	assert_ptr_equal(c.context, context);
}

static inline void nothing(struct side *s)
{
	struct rcs_completion c;

	settle();
	assert_int_equal(rcs_cq_read(s->cq, &c, 1), 0);
}

/* So many one-sided requests have reached the daemons and are held there. */
static inline void held(unsigned n)
{
	for (int i = 0; i < 500 && fake.nheld < n; i++)
		settle();
	assert_int_equal(fake.nheld, n);
}

static inline void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i * 31 + (i >> 8) + seed);
}

/* A device that takes every registration. */
static inline int reg_ok(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	(void)fd;
	(void)driver;
	(void)pd;
	(void)addr;
	(void)len;
	(void)access;
	memset(resp, 0, sizeof(*resp));
	return 0;
}

#endif
