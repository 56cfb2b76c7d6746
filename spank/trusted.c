// SPDX-License-Identifier: BSD-3-Clause
#include "spank/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool trusted_is_of(uid_t uid, const char *name)
{
	struct passwd pw, *found = NULL;
	char buf[16384];

	return *name && getpwnam_r(name, &pw, buf, sizeof(buf), &found) == 0 && found &&
	       found->pw_uid == uid;
}

/* The directory service is asked only about a file that is not root's. */
static bool trusted_owner(uid_t uid, const char *account)
{
	return uid == 0 || uid == geteuid() ||
	       (account && (trusted_is_of(uid, "munge") || trusted_is_of(uid, account)));
}

int plug_trusted_open(
	const char *path, bool secret, const char *account, struct plug_error *err)
{
	struct stat st;
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0)
		return plug_error_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0)
		rc = plug_error_set(err, -errno, "cannot look at %s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = plug_error_set(err, -EINVAL, "%s is no regular file", path);
	else if (!trusted_owner(st.st_uid, account))
		rc = plug_error_set(err, -EPERM, "%s belongs to uid %u, not to root, so it is not used: chown "
			"it", path, st.st_uid);
	else if (st.st_mode & (secret ? 027 : 022))
		rc = plug_error_set(err, -EPERM, "%s has mode %o, so others than its owner may %s it and it is "
			"not used: chmod %s", path, st.st_mode & 07777,
			st.st_mode & 022 ? "change" : "read", secret ? "600" : "644");
	else
		return fd;
	close(fd);
	return rc;
}

ssize_t plug_trusted_read(int fd, void *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;
	char more;

	do {
		n = len < size ? read(fd, (char *)buf + len, size - len) : read(fd, &more, 1);
		if (n > 0 && len == size)
			return -EFBIG;
		if (n > 0)
			len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : (ssize_t)len;
}
