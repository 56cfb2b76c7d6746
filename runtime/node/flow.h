/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flow.h - whose piece is next: the puts and gets of a link, from one endpoint to another, are a flow. Flows have
 * their turns one after the other, a piece each; within one the oldest request goes first. By RDMA and as frames are
 * two flows, since the latter may have to wait for a rank's library.
 *
 *	link->flows --> flow <--> flow <--> ...		the first has the next turn
 *	                 | waiting			not all issued yet
 *	link->ended --> rma --> ...			their ends are told next
 *
 * What a flow has under way is bounded by what fills all lanes twice, and the last pieces of the ledger are for
 * flows that have none: a small put waits for the turns of others, not for all that they ask for. Every step here
 * takes the same time, however many requests there are.
 */
#ifndef RCS_NODE_FLOW_H
#define RCS_NODE_FLOW_H

#include "node/rma.h"

#define FLOW_PIECES 128u /* under way, of one flow */
#define FLOW_SPARED 64u  /* pieces of the ledger for flows that have none under way */

struct flow {
	struct flow_key {
		uint16_t from, to; /* endpoints */
		uint32_t from_epoch, to_epoch;
		uint32_t framed;
	} key;
	struct link *l;
	struct rma *waiting; /* linked by fprev, fnext */
	uint32_t requests, pieces;
	uint64_t bytes;
	struct flow *prev, *next;
	UT_hash_handle hh;
};

bool flow_join(struct link *l, struct rma *r); /* false: no memory */
void flow_issued(struct rma *r);	       /* all of it is under way */
void flow_leave(struct rma *r);
/* May a piece of len bytes be begun now? window: bytes under way of a flow; used: pieces of the ledger. */
bool flow_may(const struct flow *f, uint32_t len, uint64_t window, uint32_t used);
void flow_pass(struct flow *f); /* the others have their turn */

#endif
