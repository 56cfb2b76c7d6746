// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spank/conf.h"
#include "spank/env.h"
#include "spank/option.h"

static void parses_modes(void **state)
{
	struct plug_option o;
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_option_parse("on", &o, &e), 0);
	assert_int_equal(o.mode, PLUG_ON);
	assert_int_equal(o.rails, 0);
	assert_int_equal(o.eager, -1);
	assert_int_equal(o.keep_step, -1);
	assert_string_equal(o.log, "");
	assert_int_equal(plug_option_parse("off", &o, &e), 0);
	assert_int_equal(o.mode, PLUG_OFF);
	assert_int_equal(plug_option_parse("require", &o, &e), 0);
	assert_int_equal(o.mode, PLUG_REQUIRE);
}

static void parses_keys(void **state)
{
	struct plug_option o;
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_option_parse("on,rails=2,eager=0,spares=0,log=/a b/c=d", &o, &e), 0);
	assert_int_equal(o.rails, 2);
	assert_int_equal(o.eager, 0);
	assert_string_equal(o.log, "/a b/c=d");
	assert_int_equal(o.spares, 0);
	assert_int_equal(plug_option_parse("on,spares=2,eager=0", &o, &e), 0);
	assert_int_equal(o.spares, 2);
	assert_int_equal(plug_option_parse("require,eager=1,keep_step=0", &o, &e), 0);
	assert_int_equal(o.eager, 1);
	assert_int_equal(o.keep_step, 0);
}

/* Each is refused with a sentence that has the given words in it. */
static void refuses_with_a_sentence(void **state)
{
	static const struct {
		const char *value, *words;
		int rc;
	} bad[] = {
		{"", "on|off|require", -EINVAL},
		{"yes", "unknown value 'yes': give on|off|require", -EINVAL},
		{"ON", "unknown value 'ON'", -EINVAL},
		{"on,", "'' is not key=value", -EINVAL},
		{"on,rails", "'rails' is not key=value", -EINVAL},
		{"on,rail=2", "unknown key 'rail'; keys are rails=1..4, eager=0|1", -EINVAL},
		{"on,keep_step=yes", "keep_step=yes: give 0 or 1", -EINVAL},
		{"on,rails=0", "from 1 to 4", -EINVAL},
		{"on,rails=5", "from 1 to 4", -EINVAL},
		{"on,rails=+2", "from 1 to 4", -EINVAL},
		{"on,rails=2x", "from 1 to 4", -EINVAL},
		{"on,rails=", "from 1 to 4", -EINVAL},
		{"on,rails=99999999999999999999", "from 1 to 4", -EINVAL},
		{"on,rails=2,rails=3", "rails is given twice", -EINVAL},
		{"on,eager=2", "give 0 or 1", -EINVAL},
		{"on,spares=-1", "a number of nodes", -EINVAL},
		{"on,spares=32768", "a number of nodes", -EINVAL},
		{"on,eager=1,spares=1", "do not go together", -EINVAL},
		{"on,spares=x", "a number of nodes", -EINVAL},
		{"on,log=x", "absolute path", -EINVAL},
		{"on,log=/x\ny", "control characters", -EINVAL},
	};
	struct plug_option o = PLUG_OPTION_INIT;
	struct plug_error e;
	char longer[PLUG_PATH_MAX + 64];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(plug_option_parse(bad[i].value, &o, &e), bad[i].rc);
		if (!strstr(e.text, bad[i].words))
			fail_msg("'%s' drew '%s'", bad[i].value, e.text);
		assert_int_equal(o.mode, PLUG_OFF); /* set on success only */
	}
	memset(longer, 'x', sizeof(longer));
	memcpy(longer, "on,log=/", 8);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(plug_option_parse(longer, &o, &e), -EINVAL);
	assert_int_equal(plug_option_parse(NULL, &o, &e), -EINVAL);
}

static void names_unknown_variables(void **state)
{
	char *env[] = {"PATH=/bin", "RCSHARE=on", "RCSHARE_SOKET=x", "RCSHARED=1",
		"RCSHARE_EAGER=1", "RCSHARE_RUN_DIR=/x", "RCSHARE_EAGER2=1", "RCSHARE_", NULL};
	char name[64];
	size_t pos = 0;

	(void)state;
	assert_int_equal(plug_env_unknown(env, &pos, name, sizeof(name)), 1);
	assert_string_equal(name, "RCSHARE_SOKET");
	assert_int_equal(plug_env_unknown(env, &pos, name, sizeof(name)), 1);
	assert_string_equal(name, "RCSHARE_EAGER2");
	assert_int_equal(plug_env_unknown(env, &pos, name, sizeof(name)), 1);
	assert_string_equal(name, "RCSHARE_");
	assert_int_equal(plug_env_unknown(env, &pos, name, sizeof(name)), 0);
	pos = 0;
	assert_int_equal(plug_env_unknown(NULL, &pos, name, sizeof(name)), 0);
}

static void plugstack_arguments(void **state)
{
	char *good[] = {"config=/etc/x", "default=on", "key_file=/k", "daemon=/d", "timeout=3"};
	char *bad[] = {"conf=/etc/x", "default=maybe", "timeout=7"};
	struct plug_conf c;
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_conf_parse(0, NULL, &c, &e), 0);
	assert_int_equal(c.mode, PLUG_OFF);
	assert_null(c.config);
	assert_string_equal(c.run_dir, "/run/rcshare");
	assert_int_equal(plug_conf_parse(5, good, &c, &e), 0);
	assert_string_equal(c.config, "/etc/x");
	assert_string_equal(c.key_file, "/k");
	assert_string_equal(c.daemon, "/d");
	assert_int_equal(c.mode, PLUG_ON);
	assert_int_equal(c.timeout_ms, 3000);
	/* The first bad one is named, the good ones count all the same. */
	assert_int_equal(plug_conf_parse(3, bad, &c, &e), -EINVAL);
	assert_non_null(strstr(e.text, "unknown argument 'conf=/etc/x'"));
	assert_int_equal(c.mode, PLUG_OFF);
	assert_int_equal(c.timeout_ms, 7000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_modes),
		cmocka_unit_test(parses_keys),
		cmocka_unit_test(refuses_with_a_sentence),
		cmocka_unit_test(names_unknown_variables),
		cmocka_unit_test(plugstack_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
