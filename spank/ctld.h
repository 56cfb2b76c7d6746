/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is asked of slurmctld, and told to it, by way of scontrol(1): the plugin links no libslurm.
 * A thread of slurmstepd, as root, since a command may take seconds:
 *
 *	SHM_MSG_WITNESS	(tie_breaker)	is this node down? The answer goes to the daemon.
 *	SHM_MSG_LOST	(mark_down)	this node is lost: its state becomes DOWN, unless its slurmd
 *					still takes connections, for then only our daemon has died
 *
 * Both come from a daemon that is the user's: only nodes of his own step are believed.
 */
#ifndef RCSHARE_SPANK_CTLD_H
#define RCSHARE_SPANK_CTLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ctld_opts {
	uint32_t job, step;
	const char *nodes; /* of the step, as notify_start has them; copied */
	int daemon;	   /* its socket, valid until ctld_stop */
	bool mark_down, witness;
	void (*log)(const char *sentence);
};

/* Starts the thread if an option needs it: in init_post_opt. 0 or -errno. */
int ctld_start(const struct ctld_opts *o);

/* Hands on a message of the two types; others, and too many, are dropped. Never blocks. */
void ctld_take(const void *msg, size_t size);

/* Ends and joins the thread; false if it hangs, and then it still uses what it was given. */
bool ctld_stop(void);

/* --- pure, for tests --- */

/* Is `name` in the list "NAME/TASKS,..."? */
bool ctld_listed(const char *nodes, const char *name);

/* The value of KEY in `scontrol -o show` output, up to the next blank. False: there is none. */
bool ctld_value(const char *text, const char *key, char *out, size_t size);

/* Does slurmctld call the node down? 1, 0, or -1: the text is no answer. */
int ctld_down(const char *text);

#endif
