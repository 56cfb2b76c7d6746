// SPDX-License-Identifier: BSD-3-Clause
#include "spank/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLAT_MAX 65536 /* folders in a folder that is removed; more are left */

int plug_folder_run(const char *path, struct plug_error *err)
{
	struct stat st;
	int fd, rc = 0;

	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return plug_error_set(
			err, -errno, "cannot make the folder %s: %s", path, strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return plug_error_set(
			err, -errno, "cannot open the folder %s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0)
		rc = plug_error_set(err, -errno, "cannot look at %s: %s", path, strerror(errno));
	else if (st.st_uid != geteuid() || (st.st_mode & 022))
		rc = plug_error_set(err, -EPERM,
			"the folder %s must be root's, and writable for root alone: chown root, chmod 755", path);
	close(fd);
	return rc;
}

static void log_name(char *name, size_t size, uint32_t job, uint32_t restart)
{
	if (restart)
		snprintf(name, size, "%u.%u", job, restart);
	else
		snprintf(name, size, "%u", job);
}

int plug_folder_log(const char *log_dir, uint32_t job, uint32_t restart, uid_t uid, gid_t gid,
	struct plug_error *err)
{
	char name[32];
	struct stat st;
	int dir, fd, rc = 0;
	bool made;

	log_name(name, sizeof(name), job, restart);
	/* A link is the admin's: what he set is followed. mkdir's mode is cut by umask. */
	made = mkdir(log_dir, 0755) == 0;
	dir = open(log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return plug_error_set(err, -errno, "log_dir %s cannot be %s: %s", log_dir,
			made || errno != ENOENT ? "opened" : "made", strerror(errno));
	if (made)
		(void)!fchmod(dir, 0755);
	made = mkdirat(dir, name, 0700) == 0;
	fd = made || errno == EEXIST ? openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (fd < 0)
		rc = plug_error_set(err, -errno, "the folder %s/%s cannot be %s: %s", log_dir, name,
			made ? "opened" : "made", strerror(errno));
	else if (made && fchown(fd, uid, gid) != 0) {
		rc = plug_error_set(err, -errno, "the folder %s/%s cannot be given to uid %u: %s", log_dir,
			name, uid, strerror(errno));
		unlinkat(dir, name, AT_REMOVEDIR);
	} else if (!made && (fstat(fd, &st) != 0 || st.st_uid != uid))
		rc = plug_error_set(err, -EPERM,
			"the folder %s/%s is of another user, from an earlier job of this number: move it away",
			log_dir, name);
	if (fd >= 0)
		close(fd);
	close(dir);
	return rc;
}

void plug_folder_log_tidy(const char *log_dir, uint32_t job, uint32_t restart)
{
	char name[32];
	int dir = open(log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	log_name(name, sizeof(name), job, restart);
	unlinkat(dir, name, AT_REMOVEDIR);
	close(dir);
}

static bool dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Folders in `from` go up into `top`, under numbers that nothing has there; all else is removed. */
static bool flatten(int top, int from, unsigned int *number)
{
	int copy = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *e;
	char name[32];

	if (!dir) {
		if (copy >= 0)
			close(copy);
		return false;
	}
	while ((e = readdir(dir)) && *number < FLAT_MAX) {
		if (dots(e->d_name) || unlinkat(dirfd(dir), e->d_name, 0) == 0 ||
			unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR) == 0)
			continue;
		snprintf(name, sizeof(name), ".rcshare.%u", (*number)++);
		(void)!renameat(dirfd(dir), e->d_name, top, name);
	}
	closedir(dir);
	return *number < FLAT_MAX;
}

/* One pass over the top: what is in its folders comes up, the folders go. */
static bool pass(int top, unsigned int *number, bool *found)
{
	int sub, copy = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *e;
	bool going = dir;

	*found = false;
	while (going && (e = readdir(dir))) {
		if (dots(e->d_name))
			continue;
		*found = true;
		if (unlinkat(top, e->d_name, 0) == 0)
			continue;
		sub = openat(top, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0)
			continue;
		going = flatten(top, sub, number);
		close(sub);
		unlinkat(top, e->d_name, AT_REMOVEDIR);
	}
	if (dir)
		closedir(dir);
	else if (copy >= 0)
		close(copy);
	return going;
}

int plug_folder_remove(const char *path)
{
	unsigned int number = 0, passes = 0;
	bool found = true;
	int top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (top < 0)
		return -errno;
	/* nobody else adds to the top from now on */
	(void)!fchown(top, geteuid(), getegid());
	(void)!fchmod(top, 0700);
	while (found && passes++ < FLAT_MAX && pass(top, &number, &found))
		;
	close(top);
	return rmdir(path) == 0 ? 0 : errno == ENOTEMPTY || errno == EEXIST ? -EBUSY : -errno;
}
