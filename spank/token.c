// SPDX-License-Identifier: BSD-3-Clause
#include "spank/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define KEY_MIN 16
#define KEY_SIZE 4096

static ssize_t read_key(const char *path, unsigned char *key)
{
	ssize_t n, len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return -errno;
	do {
		n = read(fd, key + len, KEY_SIZE - (size_t)len);
		if (n > 0)
			len += n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		len = -errno;
	close(fd);
	return len;
}

int plug_token_make(const char *key_file, const char *cluster, uint32_t job, uint32_t restart,
	unsigned char token[PLUG_TOKEN_SIZE], struct plug_error *err)
{
	static const char *const usual[] = {"/etc/munge/munge.key", "/etc/slurm/slurm.key"};
	unsigned char key[KEY_SIZE], text[512];
	unsigned int size = PLUG_TOKEN_SIZE;
	const char *path = key_file;
	ssize_t len = -ENOENT;
	int i, n;

	if (path)
		len = read_key(path, key);
	for (i = 0; !key_file && len == -ENOENT && i < 2; i++) {
		path = usual[i];
		len = read_key(path, key);
	}
	if (len == -ENOENT && !key_file)
		return plug_error_set(err, -ENOENT,
			"no key for the job token: neither %s nor %s "
			"exists; name one with key_file= in plugstack.conf",
			usual[0], usual[1]);
	if (len < 0)
		return plug_error_set(
			err, (int)len, "cannot read the key %s: %s", path, strerror((int)-len));
	if (len < KEY_MIN)
		return plug_error_set(
			err, -EINVAL, "the key %s is shorter than %d bytes", path, KEY_MIN);
	n = snprintf(
		(char *)text, sizeof(text), "rcshare%c%s%c%u%c%u", 0, cluster, 0, job, 0, restart);
	if (n < 0 || (size_t)n >= sizeof(text))
		return plug_error_set(err, -EINVAL, "the cluster's name is too long");
	i = HMAC(EVP_sha256(), key, (int)len, text, (size_t)n, token, &size) ? 0 : -EIO;
	OPENSSL_cleanse(key, sizeof(key));
	return i ? plug_error_set(err, i, "libcrypto refused HMAC-SHA256") : 0;
}
