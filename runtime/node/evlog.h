/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * evlog.h - the event log of a job on a node (design section 11).
 *
 * One JSON object a line in log_dir/<job>[.<restart>]/<node>.jsonl. Nothing is made before the first
 * record; a job without failures leaves nothing. The first line of each daemon is "start", with the
 * versions. The folder belongs to the user (0700), records are whole lines or not there: a write
 * that was cut short by a full disk is taken back.
 *
 * A record that cannot be written is counted, and the next one that can be carries "dropped": n. The
 * last EVLOG_RESERVE bytes below max_bytes are kept for the record "end", so that a file that
 * reached its limit says how much is missing.
 *
 * Called by the daemon's loop only. With a queue (node/work.h) its thread does what touches the disk, so that a
 * disk that hangs holds up nobody; records that find EVLOG_QUEUED others waiting are dropped. Without one
 * records are written at once. A process that sets RLIMIT_FSIZE should ignore SIGXFSZ.
 */
#ifndef RCS_NODE_EVLOG_H
#define RCS_NODE_EVLOG_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/link.h"
#include "node/work.h"

#define EVLOG_RESERVE 512u
#define EVLOG_QUEUED  4096u

struct evlog {
	char dir[320];	/* of the job */
	char path[352]; /* of the file: what users are told */
	uint32_t job, restart, node;
	char host[64];
	char rail[CORE_LANES][64]; /* names of lanes, for people */
	uint64_t max_bytes;
	struct work_queue *queue; /* NULL: none. Its thread has fd, started and what follows `lock` */
	int fd; /* -1: not open */
	bool started; /* "start" was written */
	uint32_t failovers;	/* of lanes that carried traffic */
	uint64_t resent;	/* frames */
	uint64_t blackout_max_ns;
	pthread_mutex_t lock;	/* for what follows */
	uint64_t dropped;	/* since the last record that could be written */
	uint64_t dropped_total, records;
	char error[256]; /* why the last record was dropped; "" when none was */
};

/*
 * Prepares e; no I/O. log_dir is copied, host is this node's. -ENAMETOOLONG: log_dir is too long;
 * e is usable then and drops everything.
 */
int evlog_open(struct evlog *e, const char *log_dir, uint32_t job, uint32_t restart, uint32_t node,
	const char *host, uint64_t max_bytes);

/* From now on records are written by the queue's thread. To be called before the first of them. */
void evlog_queue(struct evlog *e, struct work_queue *q);

/* How it is at this moment. */
struct evlog_state {
	bool written;	  /* there is a file, with records in it */
	uint64_t dropped; /* since the last record that could be written */
	uint64_t dropped_total;
	char error[256]; /* "" when nothing was dropped last */
};
void evlog_state(struct evlog *e, struct evlog_state *s);

/* Name of a rail ("mlx5_0/1") for the records about its lane. */
void evlog_rail(struct evlog *e, unsigned rail, const char *name);

/*
 * A lane failed; f as core/link.h gives it, times of CLOCK_MONOTONIC. peer_host may be "".
 * All of these return 0, or -errno when the record was dropped (e->error says why). What a queue has taken may
 * still be dropped.
 */
int evlog_failover(struct evlog *e, const struct core_failover *f, uint32_t peer,
	const char *peer_host);
/* A lane that failed carries or may carry data again. */
int evlog_lane_back(struct evlog *e, uint8_t lane, uint32_t peer, const char *peer_host);
/* "peer_unreachable", "peer_back", "peer_down": something about a whole node. */
int evlog_peer(struct evlog *e, const char *event, uint32_t peer, const char *peer_host);
/* "selftest": the device of a rail failed it, and what was seen. */
int evlog_selftest(struct evlog *e, unsigned rail, const char *ledger, const char *detail);
/* A rank of this node ended without closing its endpoint. */
int evlog_rank_lost(struct evlog *e, uint32_t step, uint32_t rank, const char *reason);
/* Any other record; fields (an object or NULL) are added to it, its reference is taken. */
int evlog_event(struct evlog *e, const char *event, json_t *fields);

/* Writes "end" if there is a file, and closes it: with a queue, when its thread comes to it. Without one e can be
 * used again: it opens when needed. */
void evlog_close(struct evlog *e);

#endif
