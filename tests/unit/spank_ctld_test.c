// SPDX-License-Identifier: BSD-3-Clause
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "spank/ctld.h"

static void only_whole_names_are_listed(void **state)
{
	(void)state;
	assert_true(ctld_listed("b0,b1,b10", "b1"));
	assert_true(ctld_listed("b0,b1,b10", "b10"));
	assert_true(ctld_listed("b0", "b0"));
	assert_true(ctld_listed("b0/2,b1/12", "b1"));
	assert_true(ctld_listed("b0/2,b1/12", "b0"));
	assert_false(ctld_listed("b0/2,b10/12", "b1"));
	assert_false(ctld_listed("b0/2", "b0/2"));
	assert_false(ctld_listed("b0/2", "2"));
	assert_false(ctld_listed("b0,b10", "b1"));
	assert_false(ctld_listed("b0,b1", ""));
	assert_false(ctld_listed("b0,b1", "b0,b1"));
	assert_false(ctld_listed("", "b0"));
	assert_false(ctld_listed(NULL, "b0"));
}

static void values_are_found_by_their_whole_key(void **state)
{
	static const char text[] =
		"NodeName=b1 NodeAddr=10.0.0.1 SlurmdPort=1\n   Port=6818 Empty= X=1";
	char v[12];

	(void)state;
	assert_true(ctld_value(text, "NodeAddr", v, sizeof(v)));
	assert_string_equal(v, "10.0.0.1");
	assert_true(ctld_value(text, "Port", v, sizeof(v)));
	assert_string_equal(v, "6818");
	assert_true(ctld_value(text, "X", v, sizeof(v)));
	assert_string_equal(v, "1");
	assert_false(ctld_value(text, "Addr", v, sizeof(v)));
	assert_false(ctld_value(text, "Empty", v, sizeof(v)));
	assert_false(ctld_value(text, "NodeAddr", v, 8)); /* no room */
	assert_false(ctld_value("", "X", v, sizeof(v)));
}

static void only_down_is_down(void **state)
{
	static const struct {
		const char *state;
		int down;
	} cases[] = {{"DOWN", 1}, {"DOWN*", 1}, {"DOWN*+DRAIN", 1}, {"DOWN+CLOUD", 1}, {"IDLE", 0},
		{"IDLE*", 0}, {"MIXED*+DRAIN", 0}, {"IDLE+POWERED_DOWN", 0},
		{"ALLOCATED+COMPLETING", 0}};
	char text[128];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "NodeName=b1 State=%s Weight=1", cases[i].state);
		assert_int_equal(ctld_down(text), cases[i].down);
	}
	assert_int_equal(ctld_down(""), -1);
	assert_int_equal(
		ctld_down("slurm_load_node error: Unable to contact slurm controller"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_whole_names_are_listed),
		cmocka_unit_test(values_are_found_by_their_whole_key),
		cmocka_unit_test(only_down_is_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
