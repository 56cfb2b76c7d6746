/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attaches and detaches again and again, with messages to itself in between: for whoever looks for
 * what that leaves behind. Prints "N cycles ok". Without PMIx.
 *
 *	rcs_cycle [CYCLES]
 */
#include "app.h"

#define LARGE (1 << 20)

static void message(size_t len, uint64_t tag)
{
	uint8_t *out = malloc(len), *in = calloc(len, 1);
	struct app_req s, r;

	APP_CHECK(out && in);
	memset(out, (int)tag, len);
	app_recv(in, len, 0, tag, &r);
	app_send(out, len, 0, tag, &s);
	app_wait_ok(&s);
	app_wait_ok(&r);
	APP_CHECK(!memcmp(in, out, len));
	free(in);
	free(out);
}

static void cycle(void)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX | RCS_INIT_HELPER,
		.nranks = 1};
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};
	rcs_region *region = NULL;
	rcs_ep *second = NULL;
	struct rcs_addr own;
	char left[64];

	app = (struct app){.size = 1};
	if (rcs_init(&o, &app.ctx, &err) || rcs_cq_open(app.ctx, 0, &app.cq, &err))
		app_die("%s", err.sentence);
	e.tx_cq = e.rx_cq = app.cq;
	if (rcs_ep_open(app.ctx, &e, &app.ep, &err) || rcs_ep_open(app.ctx, &e, &second, &err))
		app_die("%s", err.sentence);
	app.peer = calloc(1, sizeof(*app.peer));
	rcs_ep_addr(app.ep, &own);
	if (rcs_peer_insert(app.ep, &own, &app.peer[0], &err) ||
		rcs_region_open(app.ctx, left, sizeof(left), &region, &err))
		app_die("%s", err.sentence);
	message(8, 1);
	message(LARGE, 2);
	APP_OK(rcs_region_close(region));
	rcs_ep_close(second);
	/* one that nobody received: the endpoint goes with it */
	APP_OK(rcs_tsend(app.ep, left, sizeof(left), app.peer[0], 3, NULL));
	rcs_ep_close(app.ep);
	rcs_cq_close(app.cq);
	rcs_fini(app.ctx);
	free(app.peer);
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)app_number(argv[1]) : 100;

	for (unsigned i = 0; i < n; i++)
		cycle();
	printf("%u cycles ok\n", n);
	return 0;
}
