// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/channel.h"
#include "spank/layout.h"

static void reads_what_slurm_writes(void **state)
{
	uint16_t t[8];

	(void)state;
	assert_int_equal(plug_layout_tasks("2", t, 8), 1);
	assert_int_equal(t[0], 2);
	assert_int_equal(plug_layout_tasks("3,1(x2),16", t, 8), 4);
	assert_int_equal(t[0], 3);
	assert_int_equal(t[1], 1);
	assert_int_equal(t[2], 1);
	assert_int_equal(t[3], 16);
	assert_int_equal(plug_layout_tasks("1(x30000)", NULL, -1), 30000);
}

static void refuses_the_rest(void **state)
{
	static const char *const bad[] = {"", "x", "2(x", "2(x3", "2(x0)", "2(x3)4", "2x3", "-1", "2,,3", "70000",
		"1(x70000)", "1(x9)"};
	uint16_t t[8];

	(void)state;
	assert_int_equal(plug_layout_tasks(NULL, t, 8), -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(plug_layout_tasks(bad[i], t, 8), -EINVAL);
}

static void joined(const char *names, const char *tasks, const char *want)
{
	char *s = plug_layout_join(names, tasks);

	assert_non_null(s);
	assert_string_equal(s, want);
	free(s);
}

static void joins_names_and_tasks(void **state)
{
	(void)state;
	joined("b0,b1,b2", "2(x2),65535", "b0/2,b1/2,b2/65535");
	joined("b0", "1", "b0/1");
	joined("b0,b1", "1", "b0,b1");
	joined("b0,b1", "1(x3)", "b0,b1");
	joined("b0,b1", NULL, "b0,b1");
}

/* In one message: the daemon takes none that is longer. */
static void ten_thousand_nodes_can_be_told(void **state)
{
	enum { NODES = 10000, NAME = 10 };
	char *names = malloc(NODES * NAME + 1), *s;
	size_t at = 0;

	(void)state;
	for (int i = 0; i < NODES; i++)
		at += (size_t)sprintf(names + at, "%snode%05d", i ? "," : "", i);
	s = plug_layout_join(names, "128(x10000)");
	assert_non_null(strstr(s, ",node09999/128"));
	assert_true(strlen(s) < SHM_MONITOR_MAX);
	free(s);
	free(names);
}

static void spares_that_can_be(void **state)
{
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_layout_spares(0, NULL, "cyclic", &e), 0);
	assert_int_equal(plug_layout_spares(1, "2(x3)", NULL, &e), 0);
	assert_int_equal(plug_layout_spares(2, "2(x3)", "block:cyclic", &e), 0);
	assert_int_equal(plug_layout_spares(1, "1,2,4", "", &e), 0);
	assert_int_equal(plug_layout_spares(1, "1(x3)", "cyclic", &e), 0);
}

static void spares_that_cannot(void **state)
{
	static const struct {
		uint32_t spares;
		const char *tasks, *how, *words;
	} bad[] = {
		{1, NULL, NULL, "SLURM_STEP_TASKS_PER_NODE"},
		{3, "2(x3)", NULL, "the step has 3 nodes"},
		{1, "4", NULL, "the step has 1 node and"},
		{1, "2(x3)", "cyclic", "distribution cyclic"},
		{1, "2(x3)", "plane", "distribution plane"},
		{1, "1(x3)", "arbitrary", "distribution arbitrary"},
		{1, "3,1(x2)", NULL, "node 2 of the step has 1 tasks and would stand by for nodes with up to 3"},
	};
	struct plug_error e;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(plug_layout_spares(bad[i].spares, bad[i].tasks, bad[i].how, &e), -EINVAL);
		if (!strstr(e.text, bad[i].words))
			fail_msg("'%s' has no '%s'", e.text, bad[i].words);
	}
	/* two nodes stand by for one with two tasks: both are large enough */
	assert_int_equal(plug_layout_spares(2, "2,4,3", NULL, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_slurm_writes),
		cmocka_unit_test(refuses_the_rest),
		cmocka_unit_test(joins_names_and_tasks),
		cmocka_unit_test(ten_thousand_nodes_can_be_told),
		cmocka_unit_test(spares_that_can_be),
		cmocka_unit_test(spares_that_cannot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
