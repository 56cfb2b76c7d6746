/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "config/position.h"

static struct config_error err;

static int parse(const char *text, struct config *cfg)
{
	memset(&err, 0, sizeof(err));
	return config_parse(text, strlen(text), "rcshare.conf", cfg, &err);
}

static void refused(const char *text, unsigned line, const char *part)
{
	struct config cfg, before;

	memset(&cfg, 0x5a, sizeof(cfg));
	before = cfg;
	assert_int_equal(parse(text, &cfg), -EINVAL);
	if (err.line != line || !strstr(err.reason, part))
		fail_msg("said '%s', expected line %u and '%s'", err.text, line, part);
	assert_memory_equal(&cfg, &before, sizeof(cfg)); /* an output is set on success only */
}

static void defaults_are_the_documented_ones(void **state)
{
	struct config c;

	(void)state;
	config_default(&c);
	assert_int_equal(c.nrails, 0);
	assert_int_equal(c.gid_index, -1);
	assert_string_equal(c.control_interface, "");
	assert_int_equal(c.control_port_min, 0);
	assert_int_equal(c.eager_max, 4096);
	assert_int_equal(c.zcopy_min, 65536);
	assert_int_equal(c.receive_ring, 1 << 20);
	assert_int_equal(c.submit_ring, 256 << 10);
	assert_int_equal(c.frame_depth_initial, 16);
	assert_int_equal(c.frame_depth, 64);
	assert_int_equal(c.stall_ask_ms, 50);
	assert_int_equal(c.rc_retry_cnt, 6);
	assert_int_equal(c.path_mtu, 0);
	assert_int_equal(c.selftest, 1);
	assert_int_equal(c.memory_limit_mb, 0);
	assert_true(c.memlock_limit == CONFIG_UNLIMITED);
	assert_string_equal(c.cpus, "job");
	assert_string_equal(c.log_dir, "/var/log/rcshare");
	assert_true(c.log_max_bytes == 16777216);
	assert_int_equal(c.log_level, CONFIG_LOG_INFO);
}

static void an_empty_object_means_defaults(void **state)
{
	struct config c, d;

	(void)state;
	assert_int_equal(parse("{}", &c), 0);
	config_default(&d);
	assert_memory_equal(&c, &d, sizeof(c));
}

static void every_kind_of_value_is_read(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(parse("{\"rails\": [{\"device\": \"mlx5_0\"},\n"
			       "{\"device\": \"mlx5_1\", \"port\": 2, \"gid_index\": 3, \"gid_type\": "
			       "\"rocev2\"}], \"gid_index\": 1, \"control_interface\": \"eno1\",\n"
			       "\"control_port\": \"7000-7099\", \"path_mtu\": 4096, \"memory_limit_mb\": "
			       "512, \"memlock_limit\": 1048576, \"cpus\": \"0,2-3\", \"log_level\": "
			       "\"debug\", \"key_file\": \"/etc/k\", \"max_outstanding_reads\": 8, \"selftest\": "
			       "\"off\"}",
				 &c),
		0);
	assert_int_equal(c.nrails, 2);
	assert_string_equal(c.rail[0].device, "mlx5_0");
	assert_int_equal(c.rail[0].port, 1);
	assert_int_equal(c.rail[0].gid_index, -1);
	assert_int_equal(c.rail[1].port, 2);
	assert_int_equal(c.rail[1].gid_index, 3);
	assert_int_equal(c.rail[1].gid_type, CONFIG_GID_ROCE2);
	assert_int_equal(c.gid_index, 1);
	assert_string_equal(c.control_interface, "eno1");
	assert_int_equal(c.control_port_min, 7000);
	assert_int_equal(c.control_port_max, 7099);
	assert_int_equal(c.path_mtu, 4096);
	assert_int_equal(c.memory_limit_mb, 512);
	assert_true(c.memlock_limit == 1048576);
	assert_string_equal(c.cpus, "0,2-3");
	assert_int_equal(c.log_level, CONFIG_LOG_DEBUG);
	assert_string_equal(c.key_file, "/etc/k");
	assert_int_equal(c.max_outstanding_reads, 8);
	assert_int_equal(c.selftest, 0);
}

static void an_unknown_key_is_refused_with_the_likely_one(void **state)
{
	(void)state;
	refused("{\n\n \"rail\": \"auto\"\n}", 3, "unknown key 'rail'; did you mean 'rails'?");
	assert_string_equal(err.text,
		"rcshare.conf:3: unknown key 'rail'; did you mean 'rails'?");
	refused("{\"stall_ask\": 5}", 1, "did you mean 'stall_ask_ms'?");
	refused("{\"nowhere_near_anything\": 5}", 1, "rcshare config --show");
	refused("{\"\": 5}", 1, "unknown key ''");
	refused("{\"rails\": [\n{\"device\": \"a\"},\n{\"device\": \"b\",\n\"prt\": 1}]}", 4,
		"unknown member of a rail 'prt'; did you mean 'port'?");
}

static void a_bad_value_says_what_is_accepted(void **state)
{
	(void)state;
	refused("{\"probes\": 1,\n\"rc_retry_cnt\":\n7}", 2, "'rc_retry_cnt' is 7; give a number from 1 to 6");
	refused("{\"eager_max\": 4097}", 1, "a number from 64 to 4096 bytes");
	refused("{\"eager_max\": -1}", 1, "'eager_max' is -1");
	refused("{\"eager_max\": \"4096\"}", 1, "'eager_max' is \"4096\"");
	refused("{\"eager_max\": 1.5}", 1, "'eager_max' is 1.5");
	refused("{\"receive_ring\": 100000}", 1, "a power of two");
	refused("{\"path_mtu\": 1500}", 1, "256, 512, 1024, 2048 or 4096 bytes, or \"auto\"");
	refused("{\"path_mtu\": 768}", 1, "256, 512");
	refused("{\"log_level\": \"loud\"}", 1, "\"error\", \"warn\", \"info\" or \"debug\"");
	refused("{\"selftest\": \"yes\"}", 1, "'selftest' is \"yes\"; give \"on\" or \"off\"");
	refused("{\"selftest\": true}", 1, "\"on\" or \"off\"");
	refused("{\"log_dir\": \"logs\"}", 1, "an absolute path");
	refused("{\"log_dir\": null}", 1, "an absolute path");
	refused("{\"cpus\": \"3-1\"}", 1, "a list of cores");
	refused("{\"cpus\": \"1,\"}", 1, "a list of cores");
	refused("{\"control_port\": \"7099-7000\"}", 1, "a range like");
	refused("{\"control_port\": 65536}", 1, "a range like");
	refused("{\"control_port\": \"0-5\"}", 1, "a range like");
	refused("{\"memlock_limit\": 1}", 1, "\"unlimited\"");
	refused("{\"control_interface\": \"a b\"}", 1, "'control_interface'");
	refused("{\"log_dir\": \"/a\\nb\"}", 1, "'log_dir'");
}

static void bad_rails_are_refused(void **state)
{
	(void)state;
	refused("{\"rails\": []}", 1, "a list of 1 to 4 rails");
	refused("{\"rails\": \"all\"}", 1, "\"auto\"");
	refused("{\"rails\": [\n\"mlx5_0\"]}", 2, "must be an object");
	refused("{\"rails\": [{\"port\": 1}]}", 1, "needs a 'device'");
	refused("{\"rails\": [{\"device\": \"a\", \"port\": 0}]}", 1, "'port' of a rail");
	refused("{\"rails\": [{\"device\": \"a\"},\n{\"device\": \"a\", \"port\": 1}]}", 2,
		"is a rail already");
	refused("{\"rails\": [{\"device\":\"a\"},{\"device\":\"b\"},{\"device\":\"c\"},"
		"{\"device\":\"d\"},{\"device\":\"e\"}]}",
		1, "a list of 1 to 4 rails");
}

static void keys_that_contradict_each_other_are_refused(void **state)
{
	(void)state;
	refused("{\"probes\": 2,\n\"stall_ask_ms\": 300}", 2,
		"'stall_ask_ms' is 300, more than 'stall_hard_ms', 250");
	refused("{\"frame_depth\": 8}", 1, "'frame_depth_initial' is 16, more than 'frame_depth', 8");
	refused("{\"hold_down_max_ms\": 10}", 1, "'hold_down_ms'");
}

static void syntax_errors_have_a_line(void **state)
{
	(void)state;
	refused("{\n\"probes\": 1\n\"x\": 2}", 3, "not valid JSON");
	refused("", 1, "not valid JSON");
	refused("{\"probes\": 1,\n\"probes\": 2}", 2, "not valid JSON");
	refused("[]", 0, "not a JSON object");
	refused("null", 0, "not a JSON object");
}

static void what_is_shown_can_be_read_again(void **state)
{
	struct config c, again;
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	(void)state;
	assert_int_equal(parse("{\"rails\": [{\"device\": \"a\", \"gid_type\": \"ib\"}, {\"device\": "
			       "\"b\", \"gid_index\": 0}], \"control_port\": \"1-9\", \"cpus\": \"4\"}", &c), 0);
	for (int round = 0; round < 2; round++) {
		f = open_memstream(&text, &len);
		assert_int_equal(config_show(&c, f), 0);
		fclose(f);
		assert_int_equal(config_parse(text, len, "shown", &again, &err), 0);
		assert_memory_equal(&c, &again, sizeof(c));
		free(text);
		config_default(&c);
	}
}

static void one_key_can_be_set_and_got(void **state)
{
	struct config c;
	char *value;

	(void)state;
	config_default(&c);
	assert_int_equal(config_set(&c, "log_level", "\"debug\"", &err), 0);
	assert_int_equal(c.log_level, CONFIG_LOG_DEBUG);
	assert_int_equal(config_get(&c, "log_level", &value), 0);
	assert_string_equal(value, "\"debug\"");
	free(value);
	assert_int_equal(config_set(&c, "log_level", "debug", &err), -EINVAL);
	assert_int_equal(config_set(&c, "loglevel", "1", &err), -EINVAL);
	assert_int_equal(config_get(&c, "loglevel", &value), -ENOENT);
	assert_int_equal(c.log_level, CONFIG_LOG_DEBUG);
}

static void files_that_cannot_be_read_say_why(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(config_load("/nonexistent/rcshare.conf", &c, &err), -ENOENT);
	assert_string_equal(err.text,
		"/nonexistent/rcshare.conf: cannot be read: No such file or directory");
	assert_int_equal(config_load("/", &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a regular file"));
	assert_int_equal(config_load("/dev/null", &c, &err), -EINVAL);
}

static void the_installed_files_are_valid(void **state)
{
	static const char *const files[] = {"config/rcshare.conf", "config/samples/two-rails.conf",
		"config/samples/roce.conf", "config/samples/reserved-core.conf"};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (config_load(files[i], &c, &err))
			fail_msg("%s", err.text);
}

/* rcshare.conf(5) must name every key with its default and its range, and no other key. */
static void the_man_page_agrees_with_the_table(void **state)
{
	FILE *f = fopen("docs/man/rcshare.conf.5.scd", "r");
	static char page[128 << 10];
	size_t named = 0;
	char want[512], range[200];

	(void)state;
	assert_non_null(f);
	page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
	fclose(f);
	for (size_t i = 0; i < config_nkeys; i++) {
		const struct config_key *k = &config_keys[i];

		snprintf(want, sizeof(want), "\n*%s*: %s (default %s)\n", k->name,
			config_key_range(k, range, sizeof(range)), k->def);
		if (!strstr(page, want))
			fail_msg("the page lacks or has changed:%s", want);
		if (!strstr(page, k->doc))
			fail_msg("the page lacks the sentence of %s: %s", k->name, k->doc);
	}
	for (const char *p = page; (p = strstr(p, " (default ")); p++)
		named++;
	assert_int_equal(named, config_nkeys);
}

static void a_position_is_found_by_counting(void **state)
{
	const char *text = "{\"a\\\"]\": [1, {\"x\": \"}\"},\n[]],\n\n \"b\": {\n\"c\": 1}}";
	const size_t len = strlen(text);

	(void)state;
	assert_int_equal(config_position_line(text, len, (size_t[]){0}, 1), 1);
	assert_int_equal(config_position_line(text, len, (size_t[]){0, 2}, 2), 2);
	assert_int_equal(config_position_line(text, len, (size_t[]){1}, 1), 4);
	assert_int_equal(config_position_line(text, len, (size_t[]){1, 0}, 2), 5);
	assert_int_equal(config_position_line(text, len, (size_t[]){2}, 1), 0);
	assert_int_equal(config_position_line(text, len, (size_t[]){0, 0, 0}, 3), 0);
	for (size_t cut = 0; cut < len; cut++) /* valgrind and ASan look for reads past the end */
		config_position_line(text, cut, (size_t[]){1, 0}, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_the_documented_ones),
		cmocka_unit_test(an_empty_object_means_defaults),
		cmocka_unit_test(every_kind_of_value_is_read),
		cmocka_unit_test(an_unknown_key_is_refused_with_the_likely_one),
		cmocka_unit_test(a_bad_value_says_what_is_accepted),
		cmocka_unit_test(bad_rails_are_refused),
		cmocka_unit_test(keys_that_contradict_each_other_are_refused),
		cmocka_unit_test(syntax_errors_have_a_line),
		cmocka_unit_test(what_is_shown_can_be_read_again),
		cmocka_unit_test(one_key_can_be_set_and_got),
		cmocka_unit_test(files_that_cannot_be_read_say_why),
		cmocka_unit_test(the_installed_files_are_valid),
		cmocka_unit_test(the_man_page_agrees_with_the_table),
		cmocka_unit_test(a_position_is_found_by_counting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
