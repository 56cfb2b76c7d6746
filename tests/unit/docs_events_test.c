/* SPDX-License-Identifier: BSD-3-Clause */
/* rcshare-events(7) must name every code and key of pmix/events.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "pmix/events.h"

static char page[64 << 10];

static int read_page(void **state)
{
	FILE *f = fopen("docs/man/rcshare-events.7.scd", "r");

	(void)state;
	if (!f)
		return -1;
	page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
	fclose(f);
	return 0;
}

static void the_page_has_every_code(void **state)
{
	static const struct {
		int code;
		const char *name;
	} c[] = {
		{RCS_PMIX_RAIL_FAILED, "RCS_PMIX_RAIL_FAILED"},
		{RCS_PMIX_RAIL_BACK, "RCS_PMIX_RAIL_BACK"},
		{RCS_PMIX_PEER_UNREACHABLE, "RCS_PMIX_PEER_UNREACHABLE"},
		{RCS_PMIX_PEER_BACK, "RCS_PMIX_PEER_BACK"},
		{RCS_PMIX_RANK_LOST, "RCS_PMIX_RANK_LOST"},
		{RCS_PMIX_NODE_SUSPECTED, "RCS_PMIX_NODE_SUSPECTED"},
		{RCS_PMIX_NODE_LOST, "RCS_PMIX_NODE_LOST"},
		{RCS_PMIX_PARTITIONED, "RCS_PMIX_PARTITIONED"},
		{RCS_PMIX_NODE_REPLACED, "RCS_PMIX_NODE_REPLACED"},
	};
	char want[96];

	(void)state;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		snprintf(want, sizeof(want), "|  %d\n:  %s\n", c[i].code, c[i].name);
		if (!strstr(page, want))
			fail_msg("the page lacks %s", want);
	}
}

static void the_page_has_every_key(void **state)
{
	static const char *const keys[] = {RCS_PMIX_KEY_JOB, RCS_PMIX_KEY_STEP, RCS_PMIX_KEY_ORIGIN,
		RCS_PMIX_KEY_SEQ, RCS_PMIX_KEY_HOST, RCS_PMIX_KEY_PEER, RCS_PMIX_KEY_RAIL,
		RCS_PMIX_KEY_PEER_HOST, RCS_PMIX_KEY_INDEX, RCS_PMIX_KEY_INCARNATION, RCS_PMIX_KEY_FIRST_RANK,
		RCS_PMIX_KEY_RANKS, RCS_PMIX_KEY_SPARE, RCS_PMIX_KEY_TO_RAIL, RCS_PMIX_KEY_RANK, RCS_PMIX_KEY_VIEW, RCS_PMIX_KEY_REASON, RCS_PMIX_KEY_RESENT, RCS_PMIX_KEY_PEERS,
		RCS_PMIX_KEY_TIME, RCS_PMIX_KEY_NOTICE, RCS_PMIX_KEY_RECOVER, RCS_PMIX_KEY_BLACKOUT};
	char want[96];

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		snprintf(want, sizeof(want), "|  %s\n:  ", keys[i]);
		if (!strstr(page, want))
			fail_msg("the page lacks %s", keys[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_page_has_every_code),
		cmocka_unit_test(the_page_has_every_key),
	};

	return cmocka_run_group_tests(tests, read_page, NULL);
}
