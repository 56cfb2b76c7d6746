/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The making of a daemon process out of slurmstepd: forked twice, a session of its own, nothing
 * inherited but five descriptors. It waits as root's until plug_child_give, then becomes the job's user's.
 */
#ifndef RCSHARE_SPANK_CHILD_H
#define RCSHARE_SPANK_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "spank/error.h"

#define CHILD_TOKEN_FD 3
#define CHILD_READY_FD 4
#define CHILD_LOCK_FD 5
#define CHILD_LISTEN_FD 6
#define CHILD_NODES_FD 7

struct child {
	pid_t pid;
	int token_fd[2]; /* the token's pipe; its read end stays until it is written */
	int go_fd[2];	 /* the same, of what it waits for before it becomes the user's */
	int ready_fd;	 /* to read the daemon's line from */
};

struct child_user {
	uid_t uid;
	gid_t gid;
	const gid_t *gids; /* supplementary groups, or NULL: the directory service is asked */
	int ngids;
	const char *log_level;	    /* passed on as RCSHARE_LOG_LEVEL, or NULL */
	unsigned long long memlock; /* bytes, 0: unlimited */
	unsigned long long nofile;  /* 0: the hard limit; limits are capped where they must */
};

/* The caller's, passed on as CHILD_LOCK_FD, CHILD_LISTEN_FD and CHILD_NODES_FD. */
struct child_files {
	int lock, listen, nodes;
};

/*
 * Starts `path` with `argv` as the user, once plug_child_give was called. Returns 0 and
 * fills *child, or -errno with a sentence. An exec that fails is told through ready_fd, in the
 * daemon's own form.
 */
int plug_child_spawn(const char *path, char *const argv[], const struct child_user *user,
	const struct child_files *files, struct child *child, struct plug_error *err);

/* Writes the token, and lets the child go on. A child that has died is found by ready_fd's end. */
void plug_child_give(struct child *child, const void *data, size_t size);

void plug_child_close(struct child *child);

#endif
