/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files that root believes: regular, of root or of an account named, and writable for nobody else.
 */
#ifndef RCSHARE_SPANK_TRUSTED_H
#define RCSHARE_SPANK_TRUSTED_H

#include <stdbool.h>
#include <sys/types.h>

#include "spank/error.h"

/*
 * Opens `path` for reading, never waiting for a FIFO. `secret`: nor may others read it; its group may.
 * `account`: whose it may be besides root's and munge's, or NULL: root's alone. Returns the fd, -ENOENT without a sentence, or another -errno with one that says what to do.
 */
int plug_trusted_open(
	const char *path, bool secret, const char *account, struct plug_error *err);

/* Reads all of it, at most size bytes; the length, or -errno (-EFBIG: there is more). */
ssize_t plug_trusted_read(int fd, void *buf, size_t size);

#endif
