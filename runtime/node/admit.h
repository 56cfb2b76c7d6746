/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * admit.h - strangers at the control port: how many connections may stand there that have not proven
 * the job's token, which of them goes when there are too many, and what is said of those refused.
 *
 * Connections are counted by where they come from, so that whoever holds many of them loses his own first,
 * and a peer that calls once is heard. Called by the loop only.
 */
#ifndef RCS_NODE_ADMIT_H
#define RCS_NODE_ADMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uthash.h>

/* An address that has connections which have not proven themselves. */
struct admit_source {
	uint8_t addr[16]; /* IPv6, or IPv4 as IPv6 writes it */
	uint32_t conns;
	UT_hash_handle hh;
};

struct admit {
	struct admit_source *sources;
	uint32_t conns; /* of all */
	uint64_t minute; /* when it began */
	uint32_t told, untold; /* refusals in it: lines in the log, and those without one */
};

/* All nodes of a step may call at once, and strangers beside them. */
#define ADMIT_STRANGERS 64u
#define ADMIT_MAX	4096u
uint32_t admit_limit(uint32_t nodes);

/* A connection from there waits for its proof. NULL: no memory. */
struct admit_source *admit_enter(struct admit *a, const struct sockaddr_storage *from);
/* ... does not any more: it is proven, or closed. */
void admit_leave(struct admit *a, struct admit_source *s);

/* "10.0.0.7 port 24600" */
const char *admit_name(const struct sockaddr_storage *from, char *buf, size_t size);

/*
 * A connection was refused. True: say so; at most ADMIT_LINES a minute. *more: how many were refused without a
 * line in the minute before, to be said first; else 0.
 */
#define ADMIT_LINES 8u
bool admit_refused(struct admit *a, uint64_t now, uint32_t *more);

#endif
