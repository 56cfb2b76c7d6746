/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs and libraries of different releases: flags that are not known. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_flags_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
