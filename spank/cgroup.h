/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A place for the daemon among the cgroups that Slurm makes for a job:
 *
 *	.../job_7/			made by slurmstepd, one a hierarchy (v1) or one (v2)
 *	|-- step_0/ ...			the steps'
 *	`-- rcshared/			the daemon's: counted to the job, in nobody's step
 *
 * Where Slurm tracks without cgroups (proctrack/linuxproc) there is none, and nothing is done.
 */
#ifndef RCSHARE_SPANK_CGROUP_H
#define RCSHARE_SPANK_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PLUG_CGROUP_MAX 16
#define PLUG_CGROUP_PATH 512

struct plug_cgroups {
	int count;
	char job[PLUG_CGROUP_MAX][PLUG_CGROUP_PATH]; /* the job's folders; not all need exist */
};

/*
 * Finds the job's folders from the texts of /proc/self/cgroup and /proc/self/mountinfo of a
 * process within the job. Under v1 slurmstepd makes the folders of the controllers one after the
 * other; one hierarchy that shows the job's path tells it for all. Pure.
 */
void plug_cgroup_parse(
	const char *cgroup, const char *mountinfo, uint32_t job, struct plug_cgroups *out);

/* plug_cgroup_parse of the calling process. */
void plug_cgroup_find(uint32_t job, struct plug_cgroups *out);

/*
 * Moves `pid` into rcshared/ of each folder that exists, and limits it there: memory in MiB and
 * CPU weight as in v2 (1 to 10000, 100 is everyone's), 0 for none. `reserved`: it has cores of its
 * own, so cpuset of cgroup v1 must not hold it to the job's (v2 does: its own cores must be among the
 * job's there). Best effort.
 */
void plug_cgroup_place(const struct plug_cgroups *groups, pid_t pid,
	unsigned long long memory_limit_mb, unsigned long long cpu_weight, bool reserved);

/* Ends what lives in rcshared/, removes it, and the job's folders if they are empty now. */
void plug_cgroup_remove(const struct plug_cgroups *groups);

#endif
