/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The making of a daemon process out of slurmstepd (or slurmd's prolog helper): forked twice, a
 * session of its own, nothing inherited but three descriptors, then the job's user.
 */
#ifndef RCSHARE_SPANK_CHILD_H
#define RCSHARE_SPANK_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "spank/error.h"

#define CHILD_TOKEN_FD 3
#define CHILD_READY_FD 4
#define CHILD_LOCK_FD 5

struct child {
	pid_t pid;
	int token_fd[2]; /* the token's pipe; its read end stays until it is written */
	int ready_fd;	 /* to read the daemon's line from */
};

struct child_user {
	uid_t uid;
	gid_t gid;
	const char *log_level;	    /* passed on as RCSHARE_LOG_LEVEL, or NULL */
	unsigned long long memlock; /* bytes, 0: unlimited */
	unsigned long long nofile;  /* 0: the hard limit; limits are capped where they must */
};

/*
 * Starts `path` with `argv` as the user. `lock` is passed on as CHILD_LOCK_FD. Returns 0 and
 * fills *child, or -errno with a sentence. An exec that fails is told through ready_fd, in the
 * daemon's own form.
 */
int plug_child_spawn(const char *path, char *const argv[], const struct child_user *user, int lock,
	struct child *child, struct plug_error *err);

/* Writes to the token pipe and closes it. A child that has died is found by ready_fd's end. */
void plug_child_give(struct child *child, const void *data, size_t size);

void plug_child_close(struct child *child);

#endif
