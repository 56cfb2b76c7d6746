/* SPDX-License-Identifier: BSD-3-Clause */
/* job.h - whether Slurm still has the job, for a daemon that nobody has ended. */
#ifndef RCS_NODE_JOB_H
#define RCS_NODE_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct node;

enum job_is { JOB_UNKNOWN, JOB_THERE, JOB_GONE };

/* What `squeue -h -t all -o "%A %U %T" -j JOB` has said of this user's job. Pure. */
enum job_is job_said(const char *text, uint32_t job, uid_t uid);

/*
 * The job that a process belongs to, as its cgroups say, which are root's: the number behind the last "job_" of a
 * folder in /proc/PID/cgroup. 0: they do not say. The first is pure.
 */
uint32_t job_of_cgroups(const char *text);
uint32_t job_of_process(pid_t pid);

bool job_in_use(const struct node *n); /* a rank, or a step's notifier, is there */
void job_tick(struct node *n);	       /* once a second: asks when it is time to */

#endif
