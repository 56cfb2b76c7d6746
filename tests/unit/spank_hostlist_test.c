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

#include "spank/hostlist.h"

static void expands(void **state)
{
	static const struct {
		const char *list, *names;
		int count;
	} good[] = {
		{"b0", "b0", 1},
		{"b[0-2]", "b0,b1,b2", 3},
		{"b[0-1,4],login1", "b0,b1,b4,login1", 4},
		{"n[08-10]", "n08,n09,n10", 3},
		{"n[098-101]x", "n098x,n099x,n100x,n101x", 4},
		{"r[1-2]n[0-1]", "r1n0,r1n1,r2n0,r2n1", 4},
		{"[1-2]", "1,2", 2},
		{"a[3,1-2]", "a3,a1,a2", 3},
	};
	struct plug_error e;
	char *out;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(plug_hostlist_expand(good[i].list, &out, &e), good[i].count);
		assert_string_equal(out, good[i].names);
		free(out);
	}
}

static void refuses(void **state)
{
	static const char *const bad[] = {"", ",", "a,", "b[", "b[0-", "b[0-]", "b[2-1]", "b[x]",
		"b[0;1]", "b[]", "b[0-1", "b[1234567890]", "b[0-1]["};
	char name[400] = "", *out = NULL;
	struct plug_error e;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (plug_hostlist_expand(bad[i], &out, &e) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	assert_int_equal(plug_hostlist_expand(NULL, &out, &e), -EINVAL);
	assert_int_equal(plug_hostlist_expand("b[0-999999]", &out, &e), -E2BIG);
	memset(name, 'n', sizeof(name) - 1);
	assert_int_equal(plug_hostlist_expand(name, &out, &e), -EINVAL);
	snprintf(name + 200, 100, "[0-1]%0*d", 80, 0);
	assert_int_equal(plug_hostlist_expand(name, &out, &e), -EINVAL);
	assert_null(out);
}

static void finds(void **state)
{
	(void)state;
	assert_int_equal(plug_hostlist_find("b0,b1,b10", "b0"), 0);
	assert_int_equal(plug_hostlist_find("b0,b1,b10", "b10"), 2);
	assert_int_equal(plug_hostlist_find("b0,b1,b10", "b"), -ENOENT);
	assert_int_equal(plug_hostlist_find("b0,b1,b10", "b2"), -ENOENT);
}

static void covers(void **state)
{
	struct plug_error e;

	(void)state;
	assert_true(plug_hostlist_covers("b[0-2],c1", "b2,b0", &e));
	assert_true(plug_hostlist_covers("b[0-2],c1", "c1", &e));
	assert_false(plug_hostlist_covers("b1", "b[0-2]", &e));
	assert_false(plug_hostlist_covers("b[0-2]", "b[", &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expands),
		cmocka_unit_test(refuses),
		cmocka_unit_test(finds),
		cmocka_unit_test(covers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
