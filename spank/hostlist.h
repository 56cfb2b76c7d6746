/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slurm's short form of node lists: "b[0-2,5],login1" (hostlist expressions, slurm.conf(5)).
 * An own, small expander keeps libslurm out of the plugin's link. Pure.
 */
#ifndef RCSHARE_SPANK_HOSTLIST_H
#define RCSHARE_SPANK_HOSTLIST_H

#include <stdbool.h>

#include "spank/error.h"

/* The short form comes in a variable, and those are no longer (MAX_ARG_STRLEN). */
#define PLUG_HOSTLIST_MAX (128 * 1024)

/* Of the names that a list expands to: 64 Ki nodes, all that Slurm allows, with 127 characters each. */
#define PLUG_HOSTLIST_EXPANDED_MAX (8 * 1024 * 1024)

/*
 * Expands `list` to names joined by commas, in the list's order, several brackets a name and
 * zero padding included. Returns the number of names and sets *out (caller frees), or -EINVAL,
 * -E2BIG, -ENOMEM with a sentence in *err.
 */
int plug_hostlist_expand(const char *list, char **out, struct plug_error *err);

/* Position of `name` in an expanded list, or -ENOENT. */
int plug_hostlist_find(const char *expanded, const char *name);

/* Are all names of `part` in `list`, both in Slurm's short form? A bad one: no, and *err. */
bool plug_hostlist_covers(const char *list, const char *part, struct plug_error *err);

#endif
