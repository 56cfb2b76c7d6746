/* SPDX-License-Identifier: BSD-3-Clause */
/* client_window.h - memory of b that a reaches by one-sided requests, and short forms of them. */
#ifndef RCS_TESTS_CLIENT_WINDOW_H
#define RCS_TESTS_CLIENT_WINDOW_H

#include "client_pair.h"

#define WINDOW (256u << 10)

static uint8_t *win; /* b's, of rcs_alloc */
static rcs_region *win_region;
static struct rcs_key key;
static uint8_t local[WINDOW];

static inline void open_window(unsigned node_b)
{
	struct rcs_error err = {0};
	void *p;

	pair_open(node_b, 0);
	assert_int_equal(rcs_alloc(b.ctx, WINDOW, &p, &win_region, &err), 0);
	assert_int_equal(rcs_region_key(win_region, b.ep, &key, &err), 0);
	win = p;
}

static inline struct rcs_rma rma(void *buf, size_t len, uint64_t offset, uint32_t flags)
{
	return (struct rcs_rma){.buf = buf, .len = len, .offset = offset, .flags = flags, .key = &key,
		.peer = a.peer, .context = buf};
}

static inline int put(void *buf, size_t len, uint64_t offset, uint32_t flags)
{
	struct rcs_rma r = rma(buf, len, offset, flags);

	return rcs_put(a.ep, &r);
}

static inline int get(void *buf, size_t len, uint64_t offset)
{
	struct rcs_rma r = rma(buf, len, offset, 0);

	return rcs_get(a.ep, &r);
}

static inline int add(uint64_t operand, uint64_t *result, uint64_t offset)
{
	struct rcs_atomic x = {.op = RCS_ATOMIC_ADD, .size = 8, .operand = operand, .result = result,
		.offset = offset, .key = &key, .peer = a.peer, .context = result};

	return rcs_atomic(a.ep, &x);
}

#endif
