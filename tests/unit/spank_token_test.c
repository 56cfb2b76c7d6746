// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/token.h"

static const struct plug_slurmconf bed = {.cluster = "bed"}, bee = {.cluster = "bee"};
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
	assert_int_equal(plug_token_make(path, &bed, 7, 0, token, &e), 0);
	for (i = 0; i < PLUG_TOKEN_SIZE; i++)
		snprintf(hex + 2 * i, 3, "%02x", token[i]);
	assert_string_equal(hex, expect);
}

static void differs_by_cluster_job_and_restart(void **state)
{
	unsigned char a[PLUG_TOKEN_SIZE], b[PLUG_TOKEN_SIZE];
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_token_make(path, &bed, 7, 0, a, &e), 0);
	assert_int_equal(plug_token_make(path, &bee, 7, 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(plug_token_make(path, &bed, 8, 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(plug_token_make(path, &bed, 7, 1, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(plug_token_make(path, &bed, 70, 0, b, &e), 0);
	assert_memory_not_equal(a, b, sizeof(a));
}

static void names_the_file_it_cannot_read(void **state)
{
	unsigned char token[PLUG_TOKEN_SIZE];
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_token_make("/nowhere/key", &bed, 7, 0, token, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nowhere/key"));
	assert_int_equal(plug_token_make("/dev/null", &bed, 7, 0, token, &e), -EINVAL);
	assert_non_null(strstr(e.text, "no regular file"));
}

/* Root takes no secret from a file that somebody else may write or read, or that is none. */
static void believes_only_a_file_of_its_own(void **state)
{
	unsigned char token[PLUG_TOKEN_SIZE];
	struct plug_error e;

	(void)state;
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(plug_token_make(path, &bed, 7, 0, token, &e), 0);
	assert_int_equal(chmod(path, 0660), 0);
	assert_int_equal(plug_token_make(path, &bed, 7, 0, token, &e), -EPERM);
	assert_non_null(strstr(e.text, "may change it"));
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(plug_token_make(path, &bed, 7, 0, token, &e), -EPERM);
	assert_non_null(strstr(e.text, "may read it"));
	assert_int_equal(chmod(path, 0600), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 12345, 0), 0);
		assert_int_equal(plug_token_make(path, &bed, 7, 0, token, &e), -EPERM);
		assert_non_null(strstr(e.text, "belongs to uid 12345"));
		assert_int_equal(chown(path, 0, 0), 0);
	}
	assert_int_equal(truncate(path, 15), 0);
	assert_int_equal(plug_token_make(path, &bed, 7, 0, token, &e), -EINVAL);
	assert_non_null(strstr(e.text, "shorter than"));
}

/* The key follows from AuthType: a munge.key that a package made says nothing at an auth/slurm site. */
static void takes_the_key_of_the_authtype(void **state)
{
	char dir[] = "/tmp/spank_token_dir.XXXXXX", file[64];
	struct plug_slurmconf sc = {.cluster = "bed", .auth = "auth/slurm"};
	unsigned char a[PLUG_TOKEN_SIZE], b[PLUG_TOKEN_SIZE];
	struct plug_error e;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(sc.dir, sizeof(sc.dir), "%s", dir);
	assert_int_equal(plug_token_make(NULL, &sc, 7, 0, a, &e), -ENOENT);
	assert_non_null(strstr(e.text, "slurm.jwks"));
	snprintf(file, sizeof(file), "%s/slurm.jwks", dir);
	f = fopen(file, "w");
	assert_non_null(f);
	fputs("fedcba9876543210", f);
	fclose(f);
	assert_int_equal(chmod(file, 0600), 0);
	assert_int_equal(plug_token_make(NULL, &sc, 7, 0, a, &e), 0);
	assert_int_equal(plug_token_make(file, &sc, 7, 0, b, &e), 0);
	assert_memory_equal(a, b, sizeof(a));
	unlink(file);
	rmdir(dir);
}

static void slurm_conf_tells_the_cluster(void **state)
{
	struct plug_slurmconf sc = {.cluster = ""};

	(void)state;
	plug_slurmconf_parse("# ClusterName=old\nclustername = Big # the large one\nSlurmUser=slurm\n"
			     "NodeName=b0 ClusterName=no\n  AuthType=auth/slurm\n", &sc);
	assert_string_equal(sc.cluster, "big");
	assert_string_equal(sc.auth, "auth/slurm");
	assert_string_equal(sc.user, "slurm");
	memset(&sc, 0, sizeof(sc));
	plug_slurmconf_parse("Configuration data as of now\nAuthType                = auth/munge\n"
			     "ClusterName             = bed\nSlurmUser               = slurm(64030)\n", &sc);
	assert_string_equal(sc.cluster, "bed");
	assert_string_equal(sc.auth, "auth/munge");
	assert_string_equal(sc.user, "slurm");
	memset(&sc, 0, sizeof(sc));
	plug_slurmconf_parse("ClusterName=", &sc);
	assert_string_equal(sc.cluster, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_documented_hmac),
		cmocka_unit_test(differs_by_cluster_job_and_restart),
		cmocka_unit_test(names_the_file_it_cannot_read),
		cmocka_unit_test(takes_the_key_of_the_authtype),
		cmocka_unit_test(slurm_conf_tells_the_cluster),
		cmocka_unit_test(believes_only_a_file_of_its_own),
	};

	return cmocka_run_group_tests(tests, make_key, remove_key);
}
