/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/node.h"

/* A channel that broke while it still had its turn to come was never freed. */
static void broken_channel_is_freed(void **state)
{
	struct node n = {0};
	struct chan *c = calloc(1, sizeof(*c));

	(void)state;
	assert_non_null(c);
	c->kind = CHAN_RANK;
	c->sock.fd = c->bell.fd = c->rank_bell = c->memfd = -1;
	c->broken = c->closing = c->stalled = true;
	n.chans = c;
	assert_false(chan_poll(&n, c));
	chan_reap(&n);
	assert_null(n.chans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(broken_channel_is_freed)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
