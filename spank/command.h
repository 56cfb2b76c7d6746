/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A command of Slurm's, run by root's slurmstepd: the plugin links no libslurm.
 */
#ifndef RCSHARE_SPANK_COMMAND_H
#define RCSHARE_SPANK_COMMAND_H

#include <stddef.h>

/*
 * What a command prints to stdout and stderr, up to `size`; it is killed after ten seconds. 0 or -errno. Its
 * exit code is not known: slurmstepd's main thread may have been told of its end instead. Any thread.
 */
int plug_command_run(char *const argv[], char *out, size_t size);

#endif
