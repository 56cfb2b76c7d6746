// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fcntl.h>
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

#include "spank/folder.h"

static char top[] = "/tmp/spank_folder_test.XXXXXX", path[128];

static const char *in_top(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", top, name);
	return path;
}

static unsigned int mode_of(const char *name)
{
	struct stat st;

	return stat(name, &st) == 0 ? st.st_mode & 07777 : 0;
}

static void what_is_there_keeps_its_mode(void **state)
{
	struct plug_error e;
	char old[128], sub[160];

	(void)state;
	assert_int_equal(plug_folder_run(in_top("run"), &e), 0);
	assert_int_equal(mode_of(path), 0755);
	assert_int_equal(chmod(path, 0700), 0);
	assert_int_equal(plug_folder_run(path, &e), 0);
	assert_int_equal(mode_of(path), 0700);
	assert_int_equal(chmod(path, 0777), 0); /* anybody could put something there that root believes */
	assert_int_equal(plug_folder_run(path, &e), -EPERM);
	assert_int_equal(mode_of(path), 0777);
	snprintf(old, sizeof(old), "%s/old", top);
	assert_int_equal(mkdir(old, 0750), 0);
	assert_int_equal(plug_folder_log(old, 7, 0, getuid(), getgid(), &e), 0);
	assert_int_equal(mode_of(old), 0750);
	snprintf(sub, sizeof(sub), "%s/7", old);
	assert_int_equal(mode_of(sub), 0700);
	assert_int_equal(plug_folder_log(old, 7, 2, getuid(), getgid(), &e), 0);
	snprintf(sub, sizeof(sub), "%s/7.2", old);
	assert_int_equal(mode_of(sub), 0700);
	plug_folder_log_tidy(old, 7, 2);
	assert_int_equal(mode_of(sub), 0);
	snprintf(sub, sizeof(sub), "%s/7/0.jsonl", old);
	close(open(sub, O_WRONLY | O_CREAT, 0600));
	plug_folder_log_tidy(old, 7, 0);
	assert_int_equal(mode_of(sub), 0600);
}

static void a_link_to_the_logs_is_followed_and_one_in_them_is_not(void **state)
{
	struct plug_error e;
	char real[128], link[128], sub[160], victim[128];

	(void)state;
	snprintf(real, sizeof(real), "%s/real", top);
	snprintf(link, sizeof(link), "%s/link", top);
	snprintf(victim, sizeof(victim), "%s/victim", top);
	assert_int_equal(mkdir(real, 0755) | mkdir(victim, 0755) | symlink(real, link), 0);
	assert_int_equal(plug_folder_log(link, 8, 0, getuid(), getgid(), &e), 0);
	snprintf(sub, sizeof(sub), "%s/8", real);
	assert_int_equal(mode_of(sub), 0700);
	snprintf(sub, sizeof(sub), "%s/9", real);
	assert_int_equal(symlink(victim, sub), 0);
	assert_true(plug_folder_log(link, 9, 0, getuid(), getgid(), &e) < 0);
	assert_int_equal(mode_of(victim), 0755);
}

static void a_log_folder_that_cannot_be_says_why(void **state)
{
	struct plug_error e;

	(void)state;
	assert_int_equal(plug_folder_log("/proc/nowhere", 7, 0, 1, 1, &e), -ENOENT);
	assert_non_null(strstr(e.text, "log_dir /proc/nowhere cannot be made: No such file"));
	close(open(in_top("file"), O_WRONLY | O_CREAT, 0600));
	assert_int_equal(plug_folder_log(path, 7, 0, 1, 1, &e), -ENOTDIR);
}

static void all_that_is_in_it_goes_however_deep(void **state)
{
	char victim[128], dir[128];
	int fd, sub;

	(void)state;
	snprintf(victim, sizeof(victim), "%s/kept", top);
	assert_int_equal(mkdir(victim, 0755), 0);
	snprintf(dir, sizeof(dir), "%s/7.0", top);
	assert_int_equal(mkdir(dir, 0777), 0);
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 3000; i++) { /* a path of it would be longer than any that can be opened */
		close(openat(fd, "file", O_WRONLY | O_CREAT, 0600));
		assert_int_equal(symlinkat(victim, fd, "link"), 0);
		assert_int_equal(mkdirat(fd, "other", 0700) | mkdirat(fd, "d", 0700), 0);
		sub = openat(fd, "d", O_RDONLY | O_DIRECTORY);
		assert_true(sub >= 0);
		close(fd);
		fd = sub;
	}
	close(fd);
	assert_int_equal(plug_folder_remove(dir), 0);
	assert_int_equal(mode_of(dir), 0);
	assert_int_equal(mode_of(victim), 0755);
	assert_int_equal(plug_folder_remove(dir), -ENOENT);
	assert_int_equal(symlink(victim, dir), 0);
	assert_true(plug_folder_remove(dir) < 0);
	assert_int_equal(mode_of(victim), 0755);
}

static int make_top(void **state)
{
	(void)state;
	return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
	(void)state;
	return plug_folder_remove(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_there_keeps_its_mode),
		cmocka_unit_test(a_link_to_the_logs_is_followed_and_one_in_them_is_not),
		cmocka_unit_test(a_log_folder_that_cannot_be_says_why),
		cmocka_unit_test(all_that_is_in_it_goes_however_deep),
	};

	return cmocka_run_group_tests(tests, make_top, remove_top);
}
