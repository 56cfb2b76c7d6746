/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * place.h - where the daemon's thread runs: on the cores it may use (those of the job's cgroup, or the
 * list of the configuration), among them those next to the first rail's device, by hwloc.
 */
#ifndef RCS_NODE_PLACE_H
#define RCS_NODE_PLACE_H

/* cpus: "job" or a list like "0,2-3"; rail: "device/port" or NULL. Best effort, never fails. */
void place_thread(const char *cpus, const char *rail);

#endif
