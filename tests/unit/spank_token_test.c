// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/token.h"

static char path[] = "/tmp/spank_token_test.XXXXXX";

static int make_key(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	if (fd < 0 || write(fd, "0123456789abcdef", 16) != 16)
		return -1;
	return close(fd);
}

static int remove_key(void **state)
{
	(void)state;
	return unlink(path);
}

/*
 * The expected value comes from another implementation:
 *	printf 'rcshare\0bed\0007\0000' | openssl dgst -sha256 -hmac 0123456789abcdef
 */
static void is_the_documented_hmac(void **state)
{
	static const char expect[] =
		"2ce96eab2e73eebd6832e4998cffcf8854b68530e26ff9608ae28f7d014906b3";
	unsigned char token[PLUG_TOKEN_SIZE];
	char hex[2 * PLUG_TOKEN_SIZE + 1];
	struct plug_error e;
	int i;

	(void)state;
	assert_int_equal(plug_token_make(path, "bed", 7, 0, token, &e), 0);
	for (i = 0; i < PLUG_TOKEN_SIZE; i++)
		snprintf(hex + 2 * i, 3, "%02x", token[i]);
	assert_string_equal(hex, expect);
}

static void differs_by_cluster_job_and_restart(void **state)
{
	unsigned char a[PLUG_TOKEN_SIZE], b[PLUG_TOKEN_SIZE];
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_token_make(path, "bed", 7, 0, a, &e), 0);
	assert_int_equal(plug_token_make(path, "bee", 7, 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(plug_token_make(path, "bed", 8, 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(plug_token_make(path, "bed", 7, 1, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(plug_token_make(path, "bed", 70, 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
}

static void names_the_file_it_cannot_read(void **state)
{
	unsigned char token[PLUG_TOKEN_SIZE];
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_token_make("/nowhere/key", "bed", 7, 0, token, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nowhere/key"));
	assert_int_equal(plug_token_make("/dev/null", "bed", 7, 0, token, &e), -EINVAL);
	assert_non_null(strstr(e.text, "shorter than"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_documented_hmac),
		cmocka_unit_test(differs_by_cluster_job_and_restart),
		cmocka_unit_test(names_the_file_it_cannot_read),
	};

	return cmocka_run_group_tests(tests, make_key, remove_key);
}
