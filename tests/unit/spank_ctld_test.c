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
		assert_int_equal(ctld_down(text, "b1"), cases[i].down);
	}
	assert_int_equal(ctld_down("", "b1"), -1);
	assert_int_equal(
		ctld_down("slurm_load_node error: Unable to contact slurm controller", "b1"), -1);
	assert_int_equal(ctld_down("NodeName=b2 State=DOWN\nNodeName=b1 State=IDLE", "b1"), -1);
	assert_int_equal(ctld_down("NodeName=b1 State=DOWN\nNodeName=b2 State=IDLE", "b1"), -1);
}

/* What a daemon of the user's may name: root must not pass anything else to scontrol. */
static void a_name_is_one_node(void **state)
{
	static const char *const bad[] = {"", "ALL", "all", "b[0-9]", "b0,b1", "-o", "b0 b1", "b0=", "b0/1",
		"b0\n", "$(b0)"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (ctld_name_ok(bad[i]))
			fail_msg("'%s' was taken", bad[i]);
	assert_true(ctld_name_ok("b0"));
	assert_true(ctld_name_ok("r1.n-2_x"));
}

static void slurmctld_says_whose_node_it_is(void **state)
{
	static const char text[] = "StepId=17.3 UserId=1000 StartTime=x State=RUNNING Partition=all "
				   "NodeList=b[0-1],c7 Nodes=3 Name=a\n";

	(void)state;
	assert_true(ctld_step_has(text, 17, 3, "b1"));
	assert_true(ctld_step_has(text, 17, 3, "c7"));
	assert_false(ctld_step_has(text, 17, 3, "b2"));
	assert_false(ctld_step_has(text, 17, 3, "c"));
	assert_false(ctld_step_has(text, 17, 4, "b1"));
	assert_false(ctld_step_has(text, 7, 3, "b1"));
	assert_false(ctld_step_has("", 17, 3, "b1"));
	assert_false(ctld_step_has("StepId=17.3 NodeList=(null) Nodes=0", 17, 3, "b1"));
	assert_false(ctld_step_has("slurm_get_job_steps error: Invalid job id", 17, 3, "b1"));
}

/* No clear answer: then nobody has said that its slurmd is not there. */
static void an_address_is_that_of_the_node(void **state)
{
	char addr[64], port[16];

	(void)state;
	assert_true(ctld_address("NodeName=b1 NodeAddr=10.0.0.1 Port=7000 State=IDLE", "b1", addr,
		sizeof(addr), port, sizeof(port)));
	assert_string_equal(addr, "10.0.0.1");
	assert_string_equal(port, "7000");
	assert_true(ctld_address("NodeName=b1 NodeAddr=b1", "b1", addr, sizeof(addr), port, sizeof(port)));
	assert_string_equal(port, "");
	assert_false(ctld_address("NodeName=b10 NodeAddr=b1", "b1", addr, sizeof(addr), port, sizeof(port)));
	assert_false(ctld_address("NodeName=b1 NodeAddr=b1\nNodeName=b2 NodeAddr=b2", "b1", addr,
		sizeof(addr), port, sizeof(port)));
	assert_false(ctld_address("NodeName=b1 State=IDLE", "b1", addr, sizeof(addr), port, sizeof(port)));
	assert_false(ctld_address("", "b1", addr, sizeof(addr), port, sizeof(port)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_whole_names_are_listed),
		cmocka_unit_test(values_are_found_by_their_whole_key),
		cmocka_unit_test(only_down_is_down),
		cmocka_unit_test(a_name_is_one_node),
		cmocka_unit_test(slurmctld_says_whose_node_it_is),
		cmocka_unit_test(an_address_is_that_of_the_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
