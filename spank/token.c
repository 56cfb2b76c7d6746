// SPDX-License-Identifier: BSD-3-Clause
#include "spank/token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "spank/trusted.h"

#define KEY_MIN 16
#define KEY_SIZE 65536 /* of a set of keys (slurm.jwks) */
#define PLUG_MUNGE_KEY "/etc/munge/munge.key"

/* Where the cluster's own key is, by the AuthType of slurm.conf. */
static int token_open_key(
	const struct plug_slurmconf *sc, char *path, size_t size, struct plug_error *err)
{
	static const char *const names[] = {"slurm.key", "slurm.jwks"};
	int fd;

	if (strcmp(sc->auth, "auth/slurm") != 0) {
		snprintf(path, size, "%s", PLUG_MUNGE_KEY);
		fd = plug_trusted_open(path, true, sc->user, err);
		return fd != -ENOENT ? fd : plug_error_set(err, fd, "no key for the job token: there is no %s; "
			"name the cluster's secret with key_file in rcshare.conf", path);
	}
	for (int i = 0; i < 4; i++) {
		snprintf(path, size, "%s/%s", i < 2 ? sc->dir : "/etc/slurm", names[i % 2]);
		fd = plug_trusted_open(path, true, sc->user, err);
		if (fd != -ENOENT)
			return fd;
	}
	return plug_error_set(err, -ENOENT, "no key for the job token: AuthType is auth/slurm, and neither "
		"slurm.key nor slurm.jwks is in %s or /etc/slurm; name the cluster's secret with key_file in "
		"rcshare.conf", sc->dir);
}

int plug_token_make(const char *key_file, const struct plug_slurmconf *sc, uint32_t job, uint32_t restart,
	unsigned char token[PLUG_TOKEN_SIZE], struct plug_error *err)
{
	unsigned char key[KEY_SIZE], text[512];
	unsigned int size = PLUG_TOKEN_SIZE;
	char path[PLUG_PATH_MAX + 16];
	ssize_t len;
	int n, fd;

	if (key_file) {
		snprintf(path, sizeof(path), "%s", key_file);
		fd = plug_trusted_open(path, true, sc->user, err);
		if (fd == -ENOENT)
			return plug_error_set(
				err, fd, "cannot read the key %s: %s", path, strerror(ENOENT));
	} else {
		fd = token_open_key(sc, path, sizeof(path), err);
	}
	if (fd < 0)
		return fd;
	len = plug_trusted_read(fd, key, sizeof(key));
	close(fd);
	if (len == -EFBIG)
		return plug_error_set(err, (int)len, "the key %s is longer than %d bytes", path, KEY_SIZE);
	if (len < 0)
		return plug_error_set(
			err, (int)len, "cannot read the key %s: %s", path, strerror((int)-len));
	if (len < KEY_MIN)
		return plug_error_set(
			err, -EINVAL, "the key %s is shorter than %d bytes", path, KEY_MIN);
	n = snprintf((char *)text, sizeof(text), "rcshare%c%s%c%u%c%u", 0, sc->cluster, 0, job, 0, restart);
	if (n < 0 || (size_t)n >= sizeof(text) || !*sc->cluster)
		n = plug_error_set(err, -EINVAL, "the cluster's name is too long, or not known");
	else if (!HMAC(EVP_sha256(), key, (int)len, text, (size_t)n, token, &size))
		n = plug_error_set(err, -EIO, "libcrypto refused HMAC-SHA256");
	OPENSSL_cleanse(key, sizeof(key));
	return n < 0 ? n : 0;
}
