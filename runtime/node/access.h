/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * access.h - memory of a rank that this daemon may not read or write (Yama, a container, a process
 * that is not dumpable): the rank's library does, asked by ACCESS records (wire/record.h).
 *
 *	serve.c, rma.c -- access_hand --> chan->accesses -- ACCESS --> library
 *			  <---- step ---		 <- ACCESSED --
 *
 * A channel's requests are executed in the order in which they were handed over, cut into records of
 * SERVE_SLICE. One record at a time is in its receive ring: that is the room which is kept for them.
 * Whoever hands one over bounds how many there are.
 */
#ifndef RCS_NODE_ACCESS_H
#define RCS_NODE_ACCESS_H

#include "node/rma.h"

struct access;

/*
 * A part of it is over: status, or 0 and the len bytes from a->off on, which were written or are in data. Called
 * until the last part or the first error; false: nothing more is wanted of it.
 */
typedef bool access_step(struct node *n, const struct access *a, int status, const void *data, uint32_t len);

struct access {
	struct access *prev, *next;
	access_step *step;
	bool write;
	bool own;      /* of the buffer of the rank's own request; else of a region of it */
	bool sent;     /* its next part is in the receive ring */
	uint64_t name; /* own: the request (op); else the key, packed */
	uint64_t addr; /* virtual, at the rank */
	uint64_t len, off;
	/* what step goes on with */
	struct wire_rec rec;
	struct link *l;
	struct rma *r;
	uint8_t data[]; /* write */
};

/* Takes a copy of *what and, to write, of data. 0 or an rcs_status. */
int access_hand(struct node *n, struct chan *c, const struct access *what, const void *data);
/* ACCESSED of a rank. 0 or -EPROTO. */
int access_answer(struct node *n, struct chan *c, const struct wire_rec *r, const uint8_t *payload);
/* The region of that key was closed; answered: what the library has executed has all been seen. */
void access_closed(struct node *n, struct chan *c, uint64_t key, bool answered);
/* What it asked for and no library was told yet is not done any more: who takes it over begins anew. */
void access_node_lost(struct node *n, uint32_t node);
void access_chan_gone(struct node *n, struct chan *c);

#endif
