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
		{"r[0-1]c[0-1]n[08-09]", "r0c0n08,r0c0n09,r0c1n08,r0c1n09,r1c0n08,r1c0n09,r1c1n08,r1c1n09",
			8},
		/* numbers of ten digits and more, and the largest one */
		{"b1234567890", "b1234567890", 1},
		{"b[2024000000-2024000001]", "b2024000000,b2024000001", 2},
		{"b[0000000000000000000000009-0000000000000000000000010]",
			"b0000000000000000000000009,b0000000000000000000000010", 2},
		{"b[18446744073709551614-18446744073709551615]",
			"b18446744073709551614,b18446744073709551615", 2},
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
		"b[0;1]", "b[]", "b[0-1", "b[18446744073709551616]", "b[0-1]["};
	char name[1400] = "", *out = NULL;
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
	snprintf(name + 900, 300, "[0-1]%0*d", 200, 0);
	assert_int_equal(plug_hostlist_expand(name, &out, &e), -EINVAL);
	assert_null(out);
}

/* Names as long as Slurm has them, and more of them than fit one word of a command line. */
/* The list is of the job's environment, and root writes it into files whose separators these are. */
static void a_name_holds_no_separator(void **state)
{
	static const char *const bad[] = {"b0,x\n/tmp/x", "b[0-1]\n/tmp/x", "b0 b1", "b0,b1\tx", "b0,x\r", "b0\177",
		"b0=10.0.0.1", "b0/4"};
	struct plug_error e;
	char *out = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(plug_hostlist_expand(bad[i], &out, &e), -EINVAL);
		assert_null(out);
		assert_string_equal(e.text, "the job's node list has a character that is in no node's name: leave "
			"SLURM_JOB_NODELIST as Slurm sets it");
	}
}

static void takes_what_slurm_has(void **state)
{
	char name[256], list[300], *out, *last;
	struct plug_error e;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[255] = '\0';
	snprintf(list, sizeof(list), "%s[7-8]", name);
	assert_int_equal(plug_hostlist_expand(list, &out, &e), 2);
	last = strrchr(out, ',') + 1;
	assert_int_equal(strlen(last), 256);
	assert_int_equal(plug_hostlist_find(out, last), 1);
	free(out);
	assert_int_equal(plug_hostlist_expand("node-of-a-large-site-[00000-19999]", &out, &e), 20000);
	assert_true(strlen(out) > 128 * 1024);
	assert_int_equal(plug_hostlist_find(out, "node-of-a-large-site-19999"), 19999);
	free(out);
	assert_int_equal(plug_hostlist_expand("b[0-65535]", &out, &e), 65536);
	free(out);
	out = NULL;
	assert_int_equal(plug_hostlist_expand("b[0-65536]", &out, &e), -E2BIG);
	assert_int_equal(plug_hostlist_expand("b[0-18446744073709551615]", &out, &e), -E2BIG);
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
	assert_true(plug_hostlist_covers("b[0-2],c1", "c1,b2,b[0-1]", &e));
	assert_false(plug_hostlist_covers("b[0-2],c1", "b[0-3]", &e));
	assert_false(plug_hostlist_covers("b[0-2],c1", "c", &e));
	assert_true(plug_hostlist_covers("b[0-65535]", "b[1-65535]", &e));
	assert_false(plug_hostlist_covers("b1", "b[0-2]", &e));
	assert_false(plug_hostlist_covers("b[0-2]", "b[", &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expands),
		cmocka_unit_test(refuses),
		cmocka_unit_test(a_name_holds_no_separator),
		cmocka_unit_test(takes_what_slurm_has),
		cmocka_unit_test(finds),
		cmocka_unit_test(covers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
