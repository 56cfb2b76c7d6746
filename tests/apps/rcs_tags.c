/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tagged messages promise, asserted: ranks in pairs (r, r + size/2), the lower half sends, the
 * upper half receives. Prints "NAME ok" for each case on rank 0, exits 1 at the first that is not.
 *
 *	rcs_tags [--helper] [--flood N]
 */
#include <getopt.h>
#include <poll.h>

#include "app.h"

static bool sender;
static uint32_t other;
static unsigned flood_n = 20000;

static void sync_pair(void)
{
	struct app_req s, r;
	char in, out = 0;

	app_recv(&in, 1, other, 1ull << 50, &r);
	app_send(&out, 1, other, 1ull << 50, &s);
	app_wait_ok(&s);
	app_wait_ok(&r);
}

/* Completion on the way of a request with other fields than app_send fills. */
static void post_send(struct rcs_msg m, const void *buf, size_t len, struct app_req *r)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	int rc;

	*r = (struct app_req){0};
	m.iov = &iov;
	m.iov_n = 1;
	m.peer = app_peer(other);
	m.context = r;
	while ((rc = rcs_send(app.ep, &m)) == RCS_ERR_AGAIN)
		app_progress(0);
	APP_OK(rc);
}

static void post_recv(void *buf, size_t len, rcs_peer *from, uint64_t tag, uint64_t ignore,
	struct app_req *r)
{
	*r = (struct app_req){0};
	APP_OK(rcs_trecv(app.ep, buf, len, from, tag, ignore, r));
}

static void probe_until(uint64_t tag, uint64_t ignore, struct rcs_completion *c, rcs_claim **claim)
{
	uint64_t start = app_now();
	int rc;

	while ((rc = rcs_probe(app.ep, NULL, tag, ignore, c, claim)) == 0) {
		if (app_now() - start > 60000000000ull)
			app_die("no message with tag 0x%llx came", (unsigned long long)tag);
		app_progress(0);
	}
	APP_CHECK(rc == 1);
}

static void wildcards(void)
{
	struct app_req r[4];
	uint64_t v[4] = {100, 101, 102, 103}, in;

	if (sender) {
		for (int i = 0; i < 4; i++)
			app_send(&v[i], 8, other, 0x1000 + (uint64_t)i, &r[i]);
		for (int i = 0; i < 4; i++)
			app_wait_ok(&r[i]);
		return;
	}
	/* any source, exact tag, out of order */
	post_recv(&in, 8, NULL, 0x1002, 0, &r[0]);
	app_wait_ok(&r[0]);
	APP_CHECK(in == 102 && r[0].c.tag == 0x1002 && r[0].c.len == 8);
	APP_CHECK(r[0].c.source == app_peer(other) && r[0].c.source_rank == other);
	/* masked tag takes the oldest */
	post_recv(&in, 8, app_peer(other), 0x1000, 0xff, &r[0]);
	app_wait_ok(&r[0]);
	APP_CHECK(in == 100 && r[0].c.tag == 0x1000);
	post_recv(&in, 8, NULL, 0, 0xffff, &r[0]);
	app_wait_ok(&r[0]);
	APP_CHECK(in == 101);
	post_recv(&in, 8, NULL, 0x1003, 0, &r[0]);
	app_wait_ok(&r[0]);
	APP_CHECK(in == 103);
}

static void probe_and_claim(void)
{
	size_t big = 300000;
	uint8_t *m = malloc(big);
	struct app_req r, r2;
	struct rcs_completion c;
	rcs_claim *claim, *claim2;
	char x = 'x';

	memset(m, sender ? 0x5a : 0, big);
	if (sender) {
		app_send(&x, 1, other, 0x2000, &r);
		app_send(m, big, other, 0x2001, &r2);
		app_wait_ok(&r);
		app_wait_ok(&r2);
		free(m);
		return;
	}
	probe_until(0x2001, 0, &c, NULL);
	APP_CHECK(c.len == big && c.tag == 0x2001);
	probe_until(0x2000, 0xf, &c, &claim);
	APP_CHECK(c.tag == 0x2000 && c.len == 1);
	probe_until(0x2000, 0xf, &c, &claim2);
	APP_CHECK(c.tag == 0x2001);
	APP_CHECK(rcs_probe(app.ep, NULL, 0x2000, 0xf, &c, NULL) == 0);
	r = r2 = (struct app_req){0};
	APP_OK(rcs_recv_claimed(app.ep, claim2, m, big, &r2));
	APP_OK(rcs_recv_claimed(app.ep, claim, m + big - 1, 0, &r));
	app_wait_ok(&r2);
	APP_CHECK(app_wait(&r) == RCS_ERR_TRUNCATED && r.c.len == 1);
	for (size_t i = 0; i < big; i++)
		APP_CHECK(m[i] == 0x5a);
	free(m);
}

static void cancel(void)
{
	struct app_req r, keep;
	struct rcs_completion c;
	size_t big = 2 << 20;
	void *m = calloc(1, big);
	uint64_t v = 7, in = 0;
	int status;

	if (sender) {
		/* taken back before it matched: the receiver has not posted anything */
		app_send(m, big, other, 0x3001, &r);
		APP_OK(rcs_cancel(app.ep, &r));
		status = app_wait(&r);
		APP_CHECK(status == RCS_ERR_CANCELED);
		APP_CHECK(rcs_cancel(app.ep, &r) == RCS_ERR_INVALID);
		sync_pair();
		app_send(&v, 8, other, 0x3000, &r);
		app_wait_ok(&r);
	} else {
		post_recv(&in, 8, NULL, 0x3000, 0, &r);
		post_recv(&in, 8, NULL, 0x3000, 0, &keep);
		APP_OK(rcs_cancel(app.ep, &r));
		APP_CHECK(app_wait(&r) == RCS_ERR_CANCELED);
		APP_CHECK(rcs_cancel(app.ep, &r) == RCS_ERR_INVALID);
		sync_pair();
		app_wait_ok(&keep);
		APP_CHECK(in == 7);
		APP_CHECK(rcs_probe(app.ep, NULL, 0x3001, 0, &c, NULL) == 0);
	}
	free(m);
}

static void inject_and_data(void)
{
	struct app_req r;
	uint64_t buf, in;

	if (sender) {
		for (uint64_t i = 0; i < 100; i++) {
			int rc;

			buf = i;
			while ((rc = rcs_inject(app.ep, &buf, 8, app_peer(other), 0x4000, ~i,
					i & 1 ? RCS_SEND_DATA : 0)) == RCS_ERR_AGAIN)
				app_progress(0);
			APP_OK(rc);
			buf = 0xdead; /* free at return */
		}
		APP_CHECK(rcs_inject(app.ep, &buf, app.limits.inject_max + 1, app_peer(other), 0, 0, 0) ==
			RCS_ERR_INVALID);
		return;
	}
	for (uint64_t i = 0; i < 100; i++) {
		post_recv(&in, 8, NULL, 0x4000, 0, &r);
		app_wait_ok(&r);
		APP_CHECK(in == i);
		APP_CHECK(!!r.c.has_data == (i & 1));
		APP_CHECK(!(i & 1) || r.c.data == ~i);
	}
}

static void truncation(void)
{
	static const size_t sizes[] = {100, 4096, 70000, 1 << 20};

	for (size_t k = 0; k < 4; k++) {
		size_t n = sizes[k];
		uint8_t *m = malloc(n);
		struct app_req r;

		memset(m, sender ? 1 : 2, n);
		if (sender) {
			app_send(m, n, other, 0x5000, &r);
			app_wait_ok(&r);
		} else {
			post_recv(m, n / 3, NULL, 0x5000, 0, &r);
			APP_CHECK(app_wait(&r) == RCS_ERR_TRUNCATED);
			APP_CHECK(r.c.len == n);
			for (size_t i = 0; i < n; i++)
				APP_CHECK(m[i] == (i < n / 3 ? 1 : 2));
		}
		free(m);
	}
}

static void delivered(void)
{
	static const size_t sizes[] = {0, 8, 4096, 100000};

	for (size_t k = 0; k < 4; k++) {
		void *m = calloc(1, sizes[k] + 1);
		struct app_req r;

		if (sender) {
			post_send((struct rcs_msg){.tag = 0x6000, .flags = RCS_SEND_DELIVERED}, m,
				sizes[k], &r);
			app_wait_ok(&r);
		} else {
			post_recv(m, sizes[k], NULL, 0x6000, 0, &r);
			app_wait_ok(&r);
			APP_CHECK(r.c.len == sizes[k]);
		}
		free(m);
	}
}

/* A second endpoint with counters instead of queues; messages to oneself between the two. */
static void two_endpoints(void)
{
	struct rcs_ep_opts o = {.size = sizeof(o)};
	struct rcs_error err = {0};
	struct rcs_addr addr;
	rcs_cntr *tx, *rx;
	rcs_ep *second;
	rcs_peer *to_second, *to_first;
	uint64_t out = 5, in[2] = {0}, start = app_now();
	struct app_req r, s;

	APP_OK(rcs_cntr_open(app.ctx, &tx, &err));
	APP_OK(rcs_cntr_open(app.ctx, &rx, &err));
	o.tx_cntr = tx;
	o.rx_cntr = rx;
	APP_OK(rcs_ep_open(app.ctx, &o, &second, &err));
	rcs_ep_addr(second, &addr);
	APP_OK(rcs_peer_insert(app.ep, &addr, &to_second, &err));
	rcs_ep_addr(app.ep, &addr);
	APP_OK(rcs_peer_insert(second, &addr, &to_first, &err));
	rcs_peer_set_context(to_first, &in);
	APP_CHECK(rcs_peer_context(to_first) == &in && rcs_peer_rank(to_first) == app.rank);
	APP_CHECK(rcs_tsend(app.ep, &out, 8, to_first, 1, NULL) == RCS_ERR_INVALID);

	APP_OK(rcs_trecv(second, in, 8, to_first, 1, 0, NULL));
	APP_OK(rcs_trecv(second, in + 1, 4, to_first, 1, 0, NULL));
	app_send(&out, 8, app.rank, 0x7001, &s); /* to oneself, same endpoint */
	APP_OK(rcs_tsend(app.ep, &out, 8, to_second, 1, NULL));
	APP_OK(rcs_tsend(app.ep, &out, 8, to_second, 1, NULL)); /* truncated: an error */
	APP_OK(rcs_tsend(second, &out, 8, to_first, 0x7000, NULL));
	while (rcs_cntr_read(rx) + rcs_cntr_errors(rx) < 2) {
		app_progress(0);
		APP_CHECK(app_now() - start < 60000000000ull);
	}
	APP_CHECK(rcs_cntr_read(rx) == 1 && rcs_cntr_errors(rx) == 1);
	APP_CHECK(rcs_cntr_read(tx) == 1 && rcs_cntr_errors(tx) == 0);
	APP_CHECK(in[0] == 5);
	post_recv(in, 8, NULL, 0x7000, 1, &r);
	app_wait_ok(&r);
	post_recv(in, 8, NULL, 0x7000, 1, &r);
	app_wait_ok(&r);
	app_wait_ok(&s);
	rcs_ep_close(second);
	rcs_cntr_close(tx);
	rcs_cntr_close(rx);
}

static void fd_and_arm(void)
{
	struct pollfd p = {.fd = rcs_cq_fd(app.cq), .events = POLLIN};
	struct app_req r;
	char x = 0;

	sync_pair();
	if (sender) {
		usleep(200000);
		app_send(&x, 1, other, 0x8000, &r);
		app_wait_ok(&r);
		return;
	}
	post_recv(&x, 1, NULL, 0x8000, 0, &r);
	while (!r.done) {
		int rc = rcs_cq_arm(app.cq);

		APP_CHECK(rc == 0 || rc == RCS_ERR_AGAIN);
		if (rc == 0)
			APP_CHECK(poll(&p, 1, 60000) == 1);
		app_progress(0);
	}
	app_wait_ok(&r);
}

/* Sizes of every protocol in turn, one tag: they match in the order of sending. */
static void order_across_sizes(void)
{
	enum { N = 64 };
	static const size_t sizes[] = {1 << 20, 8, 100000, 4096, 5000, 0, 70000, 64};
	struct app_req *r = calloc(N, sizeof(*r));
	uint64_t *m[N];

	for (unsigned i = 0; i < N; i++) {
		size_t n = sizes[i % 8];

		m[i] = calloc(1, n + 8);
		if (sender) {
			for (size_t w = 0; w < n / 8; w++)
				m[i][w] = app_word(app.rank, other, i, w);
			app_send(m[i], n, other, 0x9000, &r[i]);
		} else {
			if (i == N / 2)
				usleep(50000); /* the rest comes unexpected */
			app_recv(m[i], n, other, 0x9000, &r[i]);
		}
	}
	for (unsigned i = 0; i < N; i++) {
		size_t n = sizes[i % 8];

		app_wait_ok(&r[i]);
		APP_CHECK(r[i].c.len == n);
		for (size_t w = 0; !sender && w < n / 8; w++)
			APP_CHECK(m[i][w] == app_word(other, app.rank, i, w));
		free(m[i]);
	}
	free(r);
}

/* Nobody receives: the sender is held back, then everything arrives. */
static void unexpected_flood(void)
{
	size_t n = app.limits.eager_max;
	uint64_t *m = calloc(1, n);
	struct app_req r;

	if (sender) {
		for (unsigned i = 0; i < flood_n; i++) {
			int rc;

			m[0] = i;
			while ((rc = rcs_inject(app.ep, m, n, app_peer(other), 0xa000, 0, 0)) ==
				RCS_ERR_AGAIN)
				app_progress(0);
			APP_OK(rc);
		}
		app_recv(m, 8, other, 0xa001, &r);
		app_wait_ok(&r);
	} else {
		for (int i = 0; i < 100; i++) {
			app_progress(0);
			usleep(5000);
		}
		for (unsigned i = 0; i < flood_n; i++) {
			post_recv(m, n, NULL, 0xa000, 0, &r);
			app_wait_ok(&r);
			APP_CHECK(m[0] == i && r.c.len == n);
		}
		app_send(m, 8, other, 0xa001, &r);
		app_wait_ok(&r);
	}
	free(m);
}

static void run(const char *name, void (*fn)(void))
{
	fn();
	sync_pair();
	if (app.rank == 0)
		printf("%s ok\n", name);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"helper", no_argument, NULL, 'h'}, {"flood", required_argument, NULL, 'f'},
		{NULL, 0, NULL, 0},
	};
	uint32_t flags = 0;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'h':
			flags = RCS_INIT_HELPER;
			break;
		case 'f':
			flood_n = (unsigned)app_number(optarg);
			break;
		default:
			return 2;
		}
	app_open(flags);
	if (app.size < 2 || app.size % 2)
		app_die("needs an even number of ranks");
	sender = app.rank < app.size / 2;
	other = (app.rank + app.size / 2) % app.size;
	app_barrier();
	run("wildcards", wildcards);
	run("probe and claim", probe_and_claim);
	run("cancel", cancel);
	run("inject and immediate data", inject_and_data);
	run("truncation", truncation);
	run("delivered", delivered);
	run("two endpoints", two_endpoints);
	run("fd and arm", fd_and_arm);
	run("order across sizes", order_across_sizes);
	run("unexpected flood", unexpected_flood);
	app_barrier();
	if (app.rank == 0)
		printf("all ok\n");
	app_close();
	return 0;
}
