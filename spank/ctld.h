/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is asked of slurmctld, and told to it, by way of scontrol(1): the plugin links no libslurm.
 * A thread of slurmstepd, as root, since a command may take seconds:
 *
 *	SHM_MSG_WITNESS	(tie_breaker)	is this node down? The answer goes to the daemon.
 *	SHM_MSG_LOST	(mark_down)	this node is lost: its state becomes DOWN, unless its slurmd
 *					still takes connections, for then only our daemon has died
 *
 * Both come from a daemon that is the user's, and `nodes` from an environment that is his too: they only
 * choose what is asked about. Before root changes a node slurmctld itself must say that exactly this
 * node is of exactly this step, and where its slurmd listens, and that must not be there. Whatever is not clear
 * (no answer, an answer about other nodes, a name that does not resolve, no network here) changes nothing.
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

/* One node's name: no list, no range, no ALL, no option. */
bool ctld_name_ok(const char *name);

/* Does slurmctld call the node down? 1, 0, or -1: the text is no answer about this one node. */
int ctld_down(const char *text, const char *node);

/* Its address and port ("": the cluster's) out of `scontrol -o show node`; false: no answer about it. */
bool ctld_address(const char *text, const char *node, char *addr, size_t asize, char *port, size_t psize);

/* Is the node one of the step's, in `scontrol -o show step`? */
bool ctld_step_has(const char *text, uint32_t job, uint32_t step, const char *node);

#endif
