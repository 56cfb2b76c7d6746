/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An endpoint ends, in good order or with its process. What it had submitted is routed first; then
 *
 *	here		`ended` of the table grows, sleeping ranks are woken
 *	other nodes	DETACHED, behind all that the endpoint has sent there; their tables say so too
 *
 * A library that waits for something of an endpoint there asks it by CANCEL of op 0 (client/peer.c), and the
 * answer, GONE, comes behind all that was sent. So one counter a node is enough: nobody keeps who spoke with whom.
 *
 * What arrives for an endpoint that is being drained is answered when that is done: an earlier GONE would
 * overtake what the endpoint has sent. So is what comes from a node for which records are parked, until that has
 * taken them; the others do not wait for it.
 */
#include <stdlib.h>

#include "node/park.h"
#include "rcshare.h"

bool detach_defer(struct node *n, const struct wire_rec *r)
{
	struct wire_rec *more;
	struct chan *c;

	for (c = n->chans; c; c = c->next)
		if (c->closing && c->kind == CHAN_RANK && c->slot == r->dst_ep && c->epoch == r->dst_epoch)
			break;
	if (c && c->detached && !park_find(c, r->src_node))
		c = NULL;
	more = c ? realloc(c->late, (c->late_n + 1) * sizeof(*more)) : NULL;
	if (!more)
		return false;
	c->late = more;
	c->late[c->late_n++] = *r;
	return true;
}

static void detach_tell(struct node *n, uint32_t node)
{
	if (!n->table || node >= n->o.nodes)
		return;
	atomic_fetch_add_explicit(&n->table->node_tab[node].ended, 1, memory_order_release);
	atomic_fetch_add_explicit(&n->table->ended, 1, memory_order_release);
	chan_wake_all(n);
}

void detach_answer(struct node *n, struct chan *c)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->late_n; i++) { /* an answer may be late itself */
		struct wire_rec r = c->late[i];

		if (park_find(c, r.src_node))
			c->late[kept++] = r;
		else
			chan_nobody(n, &r, RCS_ERR_PEER_GONE);
	}
	c->late_n = kept;
}

void detach_done(struct node *n, struct chan *c)
{
	detach_answer(n, c);
	detach_tell(n, n->o.self);
	for (struct link *l = n->links; l; l = l->next)
		l->detached_due = true;
	n->work = true;
}

void detach_turn(struct node *n)
{
	struct wire_rec r = {.type = WIRE_REC_DETACHED, .src_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_ep = NODE_EP_DAEMON};

	for (struct link *l = n->links; l; l = l->next) {
		if (!l->detached_due)
			continue;
		r.dst_node = (uint16_t)l->peer;
		if (l->lost || !link_append(l, &r, ""))
			l->detached_due = false;
	}
}

void detach_receive(struct node *n, const struct wire_rec *r)
{
	detach_tell(n, r->src_node);
}
