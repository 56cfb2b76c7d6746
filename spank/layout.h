/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a step's tasks lie on its nodes, as Slurm tells it (SLURM_STEP_TASKS_PER_NODE: "2(x3),1",
 * SLURM_DISTRIBUTION), and whether nodes of it can stand by. Pure.
 */
#ifndef RCSHARE_SPANK_LAYOUT_H
#define RCSHARE_SPANK_LAYOUT_H

#include <stdint.h>

#include "spank/error.h"

/*
 * Tasks of each node into out, at most max; returns the number of nodes, or -EINVAL for what Slurm
 * does not write. out may be NULL: only counts.
 */
int plug_layout_tasks(const char *tasks, uint16_t *out, int max);

/*
 * For the daemon: "b0,b1" and "2,1" become "b0/2,b1/1". Where the two do not fit together or Slurm
 * tells no tasks, the names alone. The caller frees it; NULL: no memory.
 */
char *plug_layout_join(const char *names, const char *tasks);

/*
 * Can the last `spares` nodes stand by? 0, or -EINVAL with a sentence. distribution may be NULL.
 */
int plug_layout_spares(uint32_t spares, const char *tasks, const char *distribution,
	struct plug_error *err);

#endif
