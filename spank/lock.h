/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock file of a job's daemon, /run/rcshare/JOB.RESTART.lock: root's, held by flock as long as the
 * daemon lives. Its text tells root which process that is; nothing of it is the user's to change:
 *
 *	rcshare ABI UID PIDNS PID START BORN READY NODE NODELIST
 *	a line a cgroup of the job
 *
 * A pid says something only in the pid namespace (PIDNS, its inode) in which it was read; elsewhere
 * the flock alone says whether the daemon lives. Releases before ABI 5 wrote "PID START READY NODELIST".
 */
#ifndef RCSHARE_SPANK_LOCK_H
#define RCSHARE_SPANK_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "spank/cgroup.h"
#include "spank/conf.h"
#include "spank/error.h"

struct plug_lock {
	unsigned int abi; /* 0: of a release that did not say */
	uid_t uid;
	unsigned long long pidns;
	pid_t pid;		  /* 0: the text is not there yet */
	unsigned long long start; /* field 22 of /proc/PID/stat: a pid alone may be reused */
	unsigned long long born;  /* when it was started, UTC, seconds */
	int ready;
	char *node;	/* the node's name in Slurm */
	char *nodelist; /* what the daemon was told, in Slurm's short form */
	struct plug_cgroups groups;
};

void plug_lock_path(
	char *path, size_t size, const struct plug_conf *conf, uint32_t job, uint32_t restart);

/* Returns the locked file, -EWOULDBLOCK if a daemon has it, or another -errno with a sentence. */
int plug_lock_try(const char *path, struct plug_error *err);

/* Does somebody hold it? */
bool plug_lock_held(const char *path);

/* 0 or -errno. What was read is freed with plug_lock_free, also after an error. */
int plug_lock_read(const char *path, struct plug_lock *l);
int plug_lock_write(const char *path, const struct plug_lock *l);
void plug_lock_free(struct plug_lock *l);

/* Fills in process `pid` of this namespace. */
void plug_lock_process(struct plug_lock *l, pid_t pid);

/* Can its pid be used here? */
bool plug_lock_ours(const struct plug_lock *l);

/* Does the process live? Where its pid says nothing: true, as for whoever holds the flock. */
bool plug_lock_alive(const struct plug_lock *l);

/* Ends it: SIGTERM, grace_ms later SIGKILL; nothing where its pid cannot be used. */
void plug_lock_kill(const struct plug_lock *l, int grace_ms);

/*
 * Is the daemon left over from an earlier job of this number? `job_start`: when this one began, UTC
 * seconds, 0 if not known. The clocks of two nodes may differ by as much as munge takes.
 */
bool plug_lock_stale(const struct plug_lock *l, uid_t uid, unsigned long long job_start);

#endif
