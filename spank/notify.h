/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The PMIx notifier: a thread of slurmstepd that tells the daemon's news to the step's ranks.
 */
#ifndef RCSHARE_SPANK_NOTIFY_H
#define RCSHARE_SPANK_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Called in slurm_spank_init_post_opt of slurmstepd, for each step that uses rcshare, once the
 * daemon is ready. Returns 0 or -errno; the step runs on without events when it fails.
 * `nodes`: the step's nodes with their tasks, as plug_layout_join makes it, or NULL; valid during the call
 * only. The last `spares` of them stand by.
 */
struct notify_step {
	uint32_t job, step;
	const char *nodes;
	uint32_t spares;
	bool keep; /* a rank that dies does not end the step */
	bool mark_down; /* Slurm is told of a lost node (ctld.h) ... */
	bool witness;	/* ... and asked about one, where two are left */
	void (*log)(const char *sentence); /* into Slurm's log, from any thread */
	void (*tell)(const char *sentence); /* to the user, from the notifier's thread */
};
int notify_start(const char *socket_path, const struct notify_step *step);

/*
 * Waits until the daemon of `node` was heard by this node's, at most `ms`. 1; 0: it was not, and `why` says
 * what was noticed ("": nothing); -1: this node's daemon does not tell.
 */
int notify_await(const char *node, int ms, char *why, size_t size);

/* Called in slurm_spank_task_post_fork after the step's last local task has been forked. */
void notify_tasks_forked(void);

struct notify_summary {
	uint32_t failovers;	  /* of the job so far, on this node */
	uint64_t blackout_max_ns; /* the longest of them */
	char log[256];		  /* "": there is none */
	char rails[256];	  /* sentence about rails of this node that found no partner; "": none */
	char left_out[160];	  /* a device of this node that is no rail, and why; "": none */
};

/*
 * Called in slurm_spank_task_exit of the last local task. True if there is an answer;
 * `failovers` is 0 when there were none since the step began. Waits for the daemon's answer, at most half a second.
 */
bool notify_step_end(struct notify_summary *out);

/* Called in slurm_spank_exit, also when notify_start was not: ends and joins the thread. */
void notify_stop(void);

#endif
