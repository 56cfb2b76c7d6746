/* SPDX-License-Identifier: BSD-3-Clause */
/* job.h - whether Slurm still has the job, for a daemon that nobody has ended. */
#ifndef RCS_NODE_JOB_H
#define RCS_NODE_JOB_H

#include <stdbool.h>
#include <sys/types.h>

struct node;

enum job_is { JOB_UNKNOWN, JOB_THERE, JOB_GONE };

/* What `squeue -h -t all -o "%U %T" -j JOB` has said of this user's job. Pure. */
enum job_is job_said(const char *text, uid_t uid);

bool job_in_use(const struct node *n); /* a rank, or a step's notifier, is there */
void job_tick(struct node *n);	       /* once a second: asks when it is time to */

#endif
