// SPDX-License-Identifier: BSD-3-Clause
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spank/site.h"

static void finds_outermost_keys_only(void **state)
{
	static const char text[] =
		"{ \"a\": {\"n\": 1, \"s\": \"{\"}, \"list\": [\"n\", {\"n\": 2}],\n"
		"  \"x\": \"n\", \"n\" : 3,\n\t\"s\":\"\\\"q\", \"p\": \"/a b\" }";
	char out[16];

	(void)state;
	assert_int_equal(plug_site_value(text, "n", out, sizeof(out)), 1);
	assert_string_equal(out, "3");
	assert_int_equal(plug_site_value(text, "p", out, sizeof(out)), 1);
	assert_string_equal(out, "/a b");
	assert_int_equal(plug_site_value(text, "s", out, sizeof(out)), 0); /* escaped */
	assert_int_equal(plug_site_value(text, "list", out, sizeof(out)), 0);
	assert_int_equal(plug_site_value(text, "none", out, sizeof(out)), 0);
	assert_int_equal(plug_site_value(text, "p", out, 4), 0); /* no room */
	assert_int_equal(plug_site_value("", "n", out, sizeof(out)), 0);
	assert_int_equal(plug_site_value("{\"n", "n", out, sizeof(out)), 0);
	assert_int_equal(plug_site_value("{\"n\\", "n", out, sizeof(out)), 0);
	assert_int_equal(plug_site_value("{\"n\":", "n", out, sizeof(out)), 0);
}

static void applies_what_plugstack_leaves_open(void **state)
{
	static const char text[] =
		"{\"memory_limit_mb\": 256, \"cpu_weight\": 50, \"memlock_limit\": 1048576,"
		" \"nofile\": 512, \"start_timeout_ms\": 1500, \"key_file\": \"/k1\","
		" \"log_dir\": \"/l1\", \"keep_step\": \"on\"}";
	char *args[] = {(char *)"key_file=/k0", (char *)"timeout=9"};
	struct plug_conf c;
	struct plug_error e;

	(void)state;
	plug_conf_parse(0, NULL, &c, &e);
	plug_site_apply(text, &c);
	assert_int_equal(c.memory_limit_mb, 256);
	assert_int_equal(c.cpu_weight, 50);
	assert_int_equal(c.memlock, 1048576);
	assert_int_equal(c.nofile, 512);
	assert_int_equal(c.timeout_ms, 1500);
	assert_string_equal(c.key_file, "/k1");
	assert_string_equal(c.log_dir, "/l1");
	assert_true(c.keep_step);
	plug_conf_parse(2, args, &c, &e);
	plug_site_apply(text, &c);
	assert_string_equal(c.key_file, "/k0");
	assert_int_equal(c.timeout_ms, 9000);
	plug_conf_parse(0, NULL, &c, &e);
	plug_site_apply("{\"memory_limit_mb\": null, \"memlock_limit\": \"unlimited\","
			" \"nofile\": -1, \"key_file\": null, \"log_dir\": \"rel\"}",
		&c);
	assert_int_equal(c.memory_limit_mb, 0);
	assert_int_equal(c.memlock, 0);
	assert_int_equal(c.nofile, 0);
	assert_null(c.key_file);
	assert_null(c.log_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_outermost_keys_only),
		cmocka_unit_test(applies_what_plugstack_leaves_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
