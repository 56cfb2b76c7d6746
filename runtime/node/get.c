/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets: RDMA READs of a peer's memory into a local rank's, in pieces, several at a time.
 *
 * Reads of one QP complete in order, so a get's progress is one number. When a lane dies its reads
 * are flushed (verbs.h: nothing executes after ->fenced), and the get goes on from there on another
 * lane; a read may always run again. Where no RDMA path is left the get ends with AGAIN and the number of
 * bytes that arrived; the library has the rest pushed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"
#include "rcshare.h"

#define WAIT_NS	    300000000ull /* for a lane that is just being opened */

struct get {
	struct chan *c; /* NULL: the rank is gone */
	uint64_t op;
	struct wire_get g;
	uint32_t rkey_ok, rkey[WIRE_RAILS_MAX];
	struct region *local;
	uint64_t issued, done; /* bytes from the start */
	uint32_t inflight;
	uint8_t lane; /* of what is in flight */
	bool failed;
	int32_t status;
	uint64_t until; /* without a lane by then: AGAIN */
	struct get *next;
};

/* A read under way; its address is the cookie's way back. */
struct read_slot {
	struct get *get;
	uint32_t len;
	uint32_t next_free;
};

static struct {
	struct read_slot *slot;
	uint32_t n, free;
} reads = {.free = NODE_NONE};

static uint32_t slot_take(struct get *g, uint32_t len)
{
	uint32_t i = reads.free;

	if (i == NODE_NONE) {
		uint32_t more = reads.n ? 2 * reads.n : 64;
		struct read_slot *s = realloc(reads.slot, more * sizeof(*s));

		if (!s)
			return NODE_NONE;
		reads.slot = s;
		for (uint32_t k = reads.n; k < more; k++) {
			s[k].next_free = reads.free;
			reads.free = k;
		}
		reads.n = more;
		i = reads.free;
	}
	reads.free = reads.slot[i].next_free;
	reads.slot[i] = (struct read_slot){.get = g, .len = len, .next_free = NODE_NONE};
	return i;
}

static void slot_give(uint32_t i)
{
	reads.slot[i].get = NULL;
	reads.slot[i].next_free = reads.free;
	reads.free = i;
}

static void tell(struct node *n, struct chan *c, uint64_t op, int status, uint64_t bytes)
{
	struct wire_rec r = {.type = WIRE_REC_GET_DONE, .src_node = (uint16_t)n->o.self,
		.dst_node = (uint16_t)n->o.self, .src_ep = NODE_EP_DAEMON, .dst_ep = c->slot,
		.dst_epoch = c->epoch, .op = op, .arg = (uint64_t)(int64_t)status, .data = bytes};

	chan_put(n, c, &r, "");
}

static void finish(struct link *l, struct get *g, int status)
{
	struct get **p = &l->gets;

	while (*p != g)
		p = &(*p)->next;
	*p = g->next;
	g->local->gets--;
	if (g->c) {
		g->c->gets--;
		tell(l->n, g->c, g->op, status, g->done);
	}
	free(g);
}

void get_start(struct node *n, struct chan *c, const struct wire_rec *r, const struct wire_get *w)
{
	struct import_key k = {r->dst_node, w->key.region, w->key.gen, r->dst_ep};
	struct wire_key lk = {w->lregion, w->lgen};
	struct region *local = region_find(n, c, lk);
	struct link *l = r->dst_node != n->o.self ? n->link[r->dst_node] : NULL;
	struct import *im;
	struct get *g, **tail;

	/* Everything is checked before it is posted: on a shared QP one bad request hurts all. */
	if (!local || w->laddr < local->addr || w->len > local->len ||
		w->laddr - local->addr > local->len - w->len) {
		tell(n, c, r->op, RCS_ERR_FAULT, 0);
		return;
	}
	HASH_FIND(hh, n->imports, &k, sizeof(k), im);
	if (!l || !im) {
		tell(n, c, r->op, RCS_ERR_AGAIN, 0);
		return;
	}
	if (w->raddr < im->addr || w->len > im->len || w->raddr - im->addr > im->len - w->len) {
		tell(n, c, r->op, RCS_ERR_ACCESS, 0);
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		tell(n, c, r->op, RCS_ERR_AGAIN, 0);
		return;
	}
	g->c = c;
	g->op = r->op;
	g->g = *w;
	g->rkey_ok = im->ok;
	memcpy(g->rkey, im->rkey, sizeof(g->rkey));
	g->local = local;
	g->until = n->now + WAIT_NS;
	local->gets++;
	c->gets++;
	for (tail = &l->gets; *tail; tail = &(*tail)->next)
		;
	*tail = g;
	link_dirty(l);
}

static bool usable(struct link *l, const struct get *g, uint8_t lane)
{
	return lane < l->n->rails && g->rkey_ok & 1u << lane && g->local->ok & 1u << lane &&
		g->local->epoch[lane] == verbs_rail_epoch(l->n->vb, lane) && l->rdma[lane] &&
		l->core.lane[lane].state == CORE_LANE_UP && l->core.lane[lane].usable;
}

static uint8_t lane_for(struct link *l, const struct get *g)
{
	uint8_t first = link_read_lane(l);

	if (g->inflight)
		return usable(l, g, g->lane) ? g->lane : CORE_LANE_NONE;
	if (first != CORE_LANE_NONE && usable(l, g, first))
		return first;
	for (uint8_t r = 0; r < l->n->rails; r++)
		if (usable(l, g, r))
			return r;
	return CORE_LANE_NONE;
}

/* One piece of g; false: not now. */
static bool issue(struct link *l, struct get *g)
{
	struct node *n = l->n;
	uint8_t lane = lane_for(l, g);
	uint64_t left = g->g.len - g->issued;
	uint32_t len = left > (uint64_t)n->cfg.read_chunk ? (uint32_t)n->cfg.read_chunk : (uint32_t)left;
	uint32_t slot;

	if (lane == CORE_LANE_NONE || !left || l->reads >= verbs_lane_reads(l->rdma[lane]) ||
		verbs_lane_room(l->rdma[lane]) <= 8)
		return false;
	slot = slot_take(g, len);
	if (slot == NODE_NONE)
		return false;
	if (verbs_lane_read(l->rdma[lane], g->g.laddr + g->issued, g->local->lkey[lane],
		    g->g.raddr + g->issued, g->rkey[lane], len, NODE_COOKIE_READ | slot)) {
		slot_give(slot);
		return false;
	}
	core_link_posted(&l->core, lane, n->now);
	g->lane = lane;
	g->issued += len;
	g->inflight++;
	l->reads++;
	n->work = true;
	return true;
}

void get_pump(struct link *l)
{
	struct node *n = l->n;
	bool more = true;

	for (struct get *g = l->gets, *next; g; g = next) {
		next = g->next;
		if (g->inflight)
			continue;
		if (g->failed)
			finish(l, g, g->status);
		else if (!g->c)
			finish(l, g, RCS_ERR_PEER_GONE);
		else if (g->done == g->g.len)
			finish(l, g, RCS_OK);
		else if (lane_for(l, g) == CORE_LANE_NONE && n->now >= g->until)
			finish(l, g, RCS_ERR_AGAIN);
	}
	/* one piece of each in turn */
	while (more && l->gets) {
		more = false;
		for (struct get *g = l->gets; g; g = g->next)
			if (!g->failed && g->c && issue(l, g))
				more = true;
	}
	for (struct get *g = l->gets; g; g = g->next)
		if (!g->inflight && g->until < l->deadline)
			l->deadline = g->until > n->now ? g->until : n->now + 1000000;
}

void get_done(struct link *l, uint64_t cookie, enum verbs_done how, const char *detail)
{
	struct read_slot s = reads.slot[cookie];
	struct get *g = s.get;

	slot_give((uint32_t)cookie);
	l->reads--;
	g->inflight--;
	switch (how) {
	case VERBS_OK:
		g->done += s.len;
		l->n->read_bytes += s.len;
		break;
	case VERBS_REQUEST:
		/* This one was refused, for its owner alone; a push finds out what is left of it. */
		node_log(l->n, CONFIG_LOG_INFO, "a read of node %u's memory was refused: %s", l->peer, detail);
		g->failed = true;
		g->status = RCS_ERR_AGAIN;
		break;
	default:
		break;
	}
	if (!g->inflight)
		g->issued = g->done;
	link_dirty(l);
}

void get_chan_gone(struct node *n, struct chan *c)
{
	for (struct link *l = n->links; l; l = l->next)
		for (struct get *g = l->gets; g; g = g->next)
			if (g->c == c) {
				g->c = NULL;
				link_dirty(l);
			}
}
