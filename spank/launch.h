/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Start and stop of the daemon on this node. README.md here is the contract with rcshared.
 *
 * Files in the run dir, all root's:
 *
 *	/run/rcshare/7.0/	the job's, 0711: sock, which is the user's, and pid; no user can put
 *				anything else there
 *	/run/rcshare/7.0.lock	held by flock as long as the daemon lives (lock.h)
 *
 * The daemon is started by the first step that uses it, in the job's cgroup, and not by the prolog:
 * there Slurm has not made one yet, and a daemon outside would be a process of the user's that no
 * limit of the job holds.
 *
 * All functions are called as root, by one thread at a time in a process.
 */
#ifndef RCSHARE_SPANK_LAUNCH_H
#define RCSHARE_SPANK_LAUNCH_H

#include <stdint.h>
#include <sys/types.h>

#include "spank/conf.h"
#include "spank/error.h"
#include "spank/option.h"
#include "spank/slurmconf.h"

struct plug_job {
	uint32_t id;
	uint32_t restart;
	uid_t uid;
	gid_t gid;
	const gid_t *gids; /* supplementary groups as Slurm sent them, or NULL: looked up */
	int ngids;
	unsigned long long start; /* when the job began, UTC seconds; 0: not known */
	const struct plug_slurmconf *slurm;
	const char *nodelist;  /* of the whole allocation, as Slurm writes it */
	const char *steplist;  /* of the step, or NULL: all its nodes must be known to the daemon */
	const char *node;      /* this node's name in it */
	const char *log_level; /* value of RCSHARE_LOG_LEVEL in the job, or NULL */
	void (*log)(const char *sentence); /* for what only costs records, or NULL */
};

/*
 * The restart count of a job that has a living daemon on this node, or else job->restart. (In 22.05
 * S_SLURM_RESTART_COUNT is 0 in every step but the batch step, and a step started from outside has no
 * SLURM_RESTART_COUNT.) Of *job id, uid, start and restart are used.
 */
uint32_t plug_launch_restart(const struct plug_conf *conf, const struct plug_job *job);

/*
 * Makes sure that the job's daemon runs on this node and is ready: starts it, or waits for the
 * one that another step has started. A daemon that is left over from an earlier job of this number is ended
 * first; one of another release is not used. Waits conf->timeout_ms at most. Returns 0, or
 * -errno with a sentence in *err; then no daemon that this call started is left.
 */
int plug_launch_start(const struct plug_conf *conf, const struct plug_option *opt,
	const struct plug_job *job, struct plug_error *err);

/* Moves the daemon beside the steps of the calling slurmstepd's job (cgroup.h). */
void plug_launch_place(const struct plug_conf *conf, uint32_t job, uint32_t restart);

/* Ends the job's daemon (SIGTERM, 3 s later SIGKILL), removes its run dirs and cgroups. */
void plug_launch_stop(const struct plug_conf *conf, uint32_t job);

#endif
