/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets of ranks, in pieces over all rails that reach both memories; core/rma.h is the ledger
 * that makes each piece run exactly once. Pieces that no rail takes go as frames (serve.c).
 *
 * Everything is checked before it is posted: on a shared queue pair one bad request hurts all. What the
 * peer's NIC refuses all the same ends for its owner alone; the lane is fenced and opened anew.
 */
#include "node/access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "core/psn.h"
#include "node/flow.h"
#include "rcshare.h"

#define WAIT_NS	   300000000ull /* for a lane that is just being opened, or comes back */
#define LANE_BYTES 4u /* pieces' worth of bytes in a send queue: frames wait behind them */
#define PIECE_MAX  (256u << 20)
_Static_assert((uint64_t)LANE_BYTES * PIECE_MAX / 256 <= CORE_PSN_WINDOW / 2, "packets of a lane's pieces, path MTU 256");

static void tell(struct node *n, const struct rma *r)
{
	struct wire_rec rec = {.type = r->large ? WIRE_REC_GET_DONE : WIRE_REC_RMA_DONE,
		.src_node = (uint16_t)n->o.self, .dst_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_ep = r->c->slot, .dst_epoch = r->c->epoch,
		.op = r->op, .arg = (uint64_t)(int64_t)r->status};

	/* The library has a large message pushed from the start when it could not be fetched whole. */
	if (r->large)
		rec.data = r->status ? 0 : r->len;
	chan_put(n, r->c, &rec, "");
}

static void release(struct node *n, struct rma *r)
{
	if (r->c)
		DL_DELETE2(r->c->rmas, r, cprev, cnext);
	flow_leave(r);
	if (r->local)
		region_unuse(n, r->local);
	if (r->im)
		key_unuse(n, r->im);
	free(r->copy);
	free(r);
}

void rma_finish(struct node *n, struct rma **list, struct rma *r)
{
	DL_DELETE(*list, r);
	if (r->c)
		tell(n, r);
	release(n, r);
}

static bool is_over(const struct rma *r)
{
	return !r->pieces && (r->status || !r->c || (r->begun && r->issued == r->len));
}

/* If it is over its end is told in this turn of the link, or the next. */
static void note_end(struct rma *r)
{
	struct link *l = r->flow ? r->flow->l : NULL;

	if (!l || r->ended || !is_over(r))
		return;
	r->ended = true;
	r->enext = l->ended;
	l->ended = r;
	link_dirty(l);
}

void rma_piece_begin(struct rma *r, uint32_t len)
{
	r->begun = true;
	r->issued += len;
	r->pieces++;
	r->flow->pieces++;
	r->flow->bytes += len;
	if (r->issued == r->len)
		flow_issued(r);
}

void rma_piece_end(struct rma *r, uint32_t len, int status)
{
	r->pieces--;
	if (status && !r->status)
		r->status = status;
	if (r->flow) {
		r->flow->pieces--;
		r->flow->bytes -= len;
	}
	note_end(r);
}

/* --- what ranks ask for -------------------------------------------------------------------------- */

/* Answers at once, by what stands in *r. */
static void fail(struct node *n, struct rma *r, int status)
{
	r->status = status;
	tell(n, r);
	release(n, r);
}

static bool find_local(struct node *n, struct rma *r, uint32_t region, uint32_t gen)
{
	struct region *local = region_find(n, r->c, (struct wire_key){region, gen});

	if (!local || !region_covers(local, r->laddr, r->len))
		return false;
	r->local = local;
	local->uses++;
	return true;
}

static void enlist(struct node *n, struct rma *r)
{
	struct link *l = r->node == n->o.self ? NULL : link_get(n, r->node);

	if (!l && r->node != n->o.self) {
		fail(n, r, RCS_ERR_NOMEM);
		return;
	}
	if (l && l->lost) {
		fail(n, r, RCS_ERR_NODE_LOST);
		return;
	}
	if (l && r->local && region_rails(n, r->local) && !r->im)
		r->im = key_import(l, r->ep, r->epoch, r->key);
	if (l && !flow_join(l, r)) {
		fail(n, r, RCS_ERR_NOMEM);
		return;
	}
	if (l)
		DL_APPEND(l->rmas, r);
	else
		DL_APPEND(n->local_rmas, r);
	n->work = true;
	if (l)
		link_dirty(l);
}

/* A copy of *now, among the requests of its channel; NULL: no memory. */
static struct rma *request(const struct rma *now)
{
	struct rma *r = malloc(sizeof(*r));

	if (r) {
		*r = *now;
		DL_APPEND2(r->c->rmas, r, cprev, cnext);
	}
	return r;
}

static bool covers(const struct wire_key_info *at, uint64_t addr, uint64_t len)
{
	return addr >= at->addr && len <= at->len && addr - at->addr <= at->len - len;
}

void rma_get_large(struct node *n, struct chan *c, const struct wire_rec *rec,
	const struct wire_get *g)
{
	struct announced_key k = {rec->dst_node, rec->dst_ep, rec->dst_epoch, rec->tag};
	struct rma now = {.c = c, .op = rec->op, .large = true, .get = true, .node = rec->dst_node,
		.ep = rec->dst_ep, .epoch = rec->dst_epoch, .key = g->key, .remote = g->raddr,
		.laddr = g->laddr, .len = g->len};
	struct rma *r = request(&now);

	if (!r) {
		now.status = RCS_ERR_AGAIN;
		tell(n, &now);
		return;
	}
	if (!find_local(n, r, g->lregion, g->lgen)) {
		fail(n, r, RCS_ERR_FAULT);
		return;
	}
	r->im = r->node == n->o.self ? NULL : key_message(n, c, &k, &r->msg);
	if (!r->im)
		fail(n, r, RCS_ERR_AGAIN);
	else if (!covers(&r->msg, r->remote, r->len))
		fail(n, r, RCS_ERR_ACCESS);
	else
		enlist(n, r);
}

void rma_start(struct node *n, struct chan *c, const struct wire_rec *rec, const uint8_t *payload)
{
	struct rma now = {.c = c, .op = rec->op, .node = rec->dst_node, .ep = rec->dst_ep,
		.epoch = rec->dst_epoch};
	uint32_t extra = rec->len - (uint32_t)sizeof(struct wire_rma);
	struct wire_rma w;
	struct rma *r;

	memcpy(&w, payload, sizeof(w));
	now.get = w.flags & WIRE_RMA_GET;
	now.replay = w.flags & WIRE_RMA_REPLAY;
	now.key = w.key;
	now.remote = w.off;
	now.laddr = w.laddr;
	now.len = w.len;
	r = request(&now);
	if (!r) {
		now.status = RCS_ERR_NOMEM;
		tell(n, &now);
		return;
	}
	if (w.flags & WIRE_RMA_INLINE) {
		if (now.get || w.len != extra || !(r->copy = malloc(extra ? extra : 1))) {
			fail(n, r, RCS_ERR_INVALID);
			return;
		}
		memcpy(r->copy, payload + sizeof(w), extra);
	} else if (w.lregion && !find_local(n, r, w.lregion, w.lgen)) {
		fail(n, r, RCS_ERR_FAULT);
		return;
	}
	enlist(n, r);
}

/* --- pieces ---------------------------------------------------------------------------------------- */

/* The owner has said, or a message's announcement, where it is and how it is reached. */
static bool is_known(const struct rma *r)
{
	return r->large || r->im->m.state == CORE_IMPORT_GOOD;
}

/* The owner closes the region, or knows no such key. */
static bool is_refused(const struct rma *r)
{
	return r->im->m.state == CORE_IMPORT_BAD;
}

static const struct wire_key_info *info_of(const struct rma *r)
{
	return r->large ? &r->msg : &r->im->info;
}

/* A large message is pushed then, and that finds out what is left of it. */
static int access_error(const struct rma *r)
{
	return r->large ? RCS_ERR_AGAIN : RCS_ERR_ACCESS;
}

/* Lanes that reach both memories now; whether they carry anything is the ledger's question. */
static uint8_t rails_of(const struct link *l, const struct rma *r)
{
	uint32_t own, theirs, lanes = 0;

	if (!r->im || !r->local || is_refused(r) || !is_known(r))
		return 0;
	/* memory that no device may write is written by the CPU */
	own = region_rails(l->n, r->local) & ~(r->get ? r->local->readonly : 0);
	theirs = info_of(r)->rail_ok & (r->get ? UINT32_MAX : info_of(r)->rail_write);
	for (uint8_t i = 0; i < CORE_RAILS_MAX; i++) {
		const struct verbs_lane *vl = l->rdma[i];
		unsigned there = vl ? verbs_lane_peer_rail(vl) : 0;

		if (vl && own & 1u << verbs_lane_rail(vl) && theirs & 1u << there &&
			verbs_lane_leads_to(vl, info_of(r)->device[there]))
			lanes |= 1u << i;
	}
	return (uint8_t)lanes;
}

static bool outside(const struct rma *r)
{
	return !r->large && (r->remote > r->im->info.len || r->len > r->im->info.len - r->remote);
}

/* Bytes of a piece: what the configuration says, and the devices take. */
static uint64_t chunk_of(const struct node *n)
{
	uint64_t most = n->vb ? verbs_message_max(n->vb) : PIECE_MAX, c = (uint64_t)n->cfg.read_chunk;

	most = most < PIECE_MAX ? most : PIECE_MAX;
	return c < most ? c : most;
}

/* A flow's bytes under way: all lanes are full, and as much waits behind. */
static uint64_t window(const struct node *n)
{
	return 2 * LANE_BYTES * chunk_of(n) * (n->rails ? n->rails : 1);
}

/* The next piece of the flow. false: not now. */
static bool issue(struct link *l, struct rma *r)
{
	uint64_t left = r->len - r->issued, chunk = chunk_of(l->n);
	uint32_t len = (uint32_t)(left > chunk ? chunk : left);
	int piece;

	if (!r->im) {
		if (link_busy(l) || !serve_send(l, r, r->issued, len))
			return false;
		rma_piece_begin(r, len);
		return true;
	}
	if (is_refused(r) || (is_known(r) && outside(r)))
		r->status = access_error(r);
	if (r->status || !is_known(r) || !flow_may(r->flow, len, window(l->n), l->ledger.used))
		return false;
	piece = core_rma_submit(&l->ledger, r->get ? CORE_GET : CORE_PUT, len, rails_of(l, r),
		r->replay || r->large, l->n->now);
	if (piece < 0)
		return false;
	l->piece[piece].r = r;
	l->piece[piece].off = r->issued;
	l->piece[piece].refused = false;
	rma_piece_begin(r, len);
	return true;
}

/* One turn of a flow. What is over without being issued makes room for the next. */
static bool flow_turn(struct link *l, struct flow *f)
{
	struct rma *r;

	while ((r = f->waiting) && (r->status || !r->c)) {
		flow_issued(r);
		note_end(r);
	}
	if (!r)
		return false;
	if (issue(l, r))
		return true;
	if (r->status)
		return flow_turn(l, f);
	/* what waits for others and has nothing under way is not waked by its own */
	if (!f->pieces && (!r->im || is_known(r)) && l->deadline > l->n->now + 1000000)
		l->deadline = l->n->now + 1000000;
	return false;
}

/* Each flow has its turn, until none can use it. */
static void issue_all(struct link *l)
{
	struct flow *last = NULL;

	while (l->flows && l->flows != last) {
		struct flow *f = l->flows;

		if (flow_turn(l, f)) {
			l->n->work = true;
			last = NULL;
		} else if (!last) {
			last = f;
		}
		flow_pass(f);
	}
}

/* Behind the puts of a lane, where the peer's device cannot tell what it executed. */
static void word(struct link *l, uint8_t lane, bool turn_ends)
{
	uint64_t number = core_rma_mark(&l->ledger, lane, turn_ends);

	if (number && !verbs_lane_word(l->rdma[lane], number, NODE_COOKIE_WORD)) {
		core_rma_marked(&l->ledger, lane);
		number = 0;
	}
	if (number)
		l->words_due |= (uint8_t)(1u << lane);
	else if (turn_ends)
		l->words_due &= (uint8_t)~(1u << lane);
}

static void words(struct link *l)
{
	for (uint8_t r = 0; r < CORE_RAILS_MAX; r++)
		if (l->words_due & 1u << r)
			word(l, r, true);
}

static void post(struct link *l)
{
	struct core_rma_room room[CORE_RAILS_MAX] = {{0}};
	struct node *n = l->n;
	uint8_t lane;
	int i;

	for (unsigned r = 0; r < CORE_RAILS_MAX; r++)
		if (l->rdma[r]) {
			uint32_t free = verbs_lane_room(l->rdma[r]);

			room[r].posts = free > 16 ? free - 16 : 0;
			room[r].reads = verbs_lane_reads(l->rdma[r]);
			room[r].bytes = LANE_BYTES * chunk_of(n);
		}
	while (core_rma_pick(&l->ledger, &l->core, room, &i, &lane)) {
		struct rma *r = l->piece[i].r;
		uint64_t off = l->piece[i].off;
		struct verbs_rdma w = {.read = r->get, .laddr = r->laddr + off, .len = l->ledger.piece[i].len,
			.raddr = (r->large ? r->remote : info_of(r)->addr + r->remote) + off,
			.lkey = r->local->lkey[verbs_lane_rail(l->rdma[lane])],
			.rkey = info_of(r)->rkey[verbs_lane_peer_rail(l->rdma[lane])]};
		uint32_t psn;

		if (verbs_lane_rdma(l->rdma[lane], &w, NODE_COOKIE_PIECE | (uint64_t)i, &psn)) {
			room[lane].posts = 0;
			continue;
		}
		core_rma_posted(&l->ledger, &l->core, i, lane, psn, n->now);
		room[lane].posts--;
		if (verbs_lane_wants_word(l->rdma[lane])) {
			l->words_due |= (uint8_t)(1u << lane);
			word(l, lane, false);
		}
		n->work = true;
	}
}

/* May a rail soon take what waits? */
static bool rails_coming(const struct link *l, uint8_t rails)
{
	for (unsigned i = 0; i < CORE_RAILS_MAX; i++)
		if (rails & 1u << i && l->core.lane[i].state != CORE_LANE_DOWN)
			return true;
	return !l->core.wanted || l->core.lane[CORE_LANE_TCP].state != CORE_LANE_UP;
}

static bool rails_now(const struct link *l, uint8_t rails)
{
	for (unsigned i = 0; i < CORE_RAILS_MAX; i++)
		if (rails & 1u << i && l->core.lane[i].state == CORE_LANE_UP && l->core.lane[i].usable)
			return true;
	return false;
}

/* Pieces that wait: their keys may have changed, their owner may be gone, no rail may be left. */
static void review(struct link *l)
{
	struct node *n = l->n;

	for (uint16_t i = l->ledger.head, next; i != CORE_PIECES; i = next) {
		struct core_piece *p = &l->ledger.piece[i];
		struct rma *r = l->piece[i].r;
		uint8_t rails = rails_of(l, r);
		uint64_t until = p->queued_at + WAIT_NS;

		next = p->next;
		if (is_refused(r) && !r->status)
			r->status = access_error(r);
		if (r->status || !r->c) {
			core_rma_drop(&l->ledger, i);
			rma_piece_end(r, p->len, 0);
			continue;
		}
		core_rma_rails(&l->ledger, i, rails);
		if (!is_known(r) || rails_now(l, rails))
			continue;
		if (n->now < until && rails_coming(l, rails)) {
			if (until < l->deadline)
				l->deadline = until;
			continue;
		}
		if (!link_busy(l) && serve_send(l, r, l->piece[i].off, p->len))
			core_rma_drop(&l->ledger, i);
		else if (l->deadline > n->now + 1000000)
			l->deadline = n->now + 1000000;
	}
}

/* The node is lost: what is fenced is over; what is posted comes back flushed, and then is. */
static void give_up(struct link *l)
{
	for (struct rma *r = l->rmas; r; r = r->next) {
		if (!r->status)
			r->status = RCS_ERR_NODE_LOST;
		note_end(r);
	}
	serve_give_up(l);
	for (int i = 0; i < (int)CORE_PIECES; i++)
		if (l->ledger.piece[i].state == CORE_PIECE_HELD) {
			core_rma_give_up(&l->ledger, i);
			rma_piece_end(l->piece[i].r, l->ledger.piece[i].len, RCS_ERR_NODE_LOST);
		}
}

void rma_restarted(struct link *l)
{
	give_up(l);
	review(l);
}

void rma_pump(struct link *l)
{
	if (l->lost && l->rmas)
		give_up(l);
	if (!l->lost)
		issue_all(l);
	if (l->ledger.head != CORE_PIECES) {
		review(l);
		post(l);
	}
	if (l->words_due)
		words(l);
	for (struct rma *r; (r = l->ended);) {
		l->ended = r->enext;
		rma_finish(l->n, &l->rmas, r);
	}
}

/* --- what became of them --------------------------------------------------------------------------- */

static void piece_ended(struct link *l, int i, enum core_piece_end end)
{
	uint32_t len = l->ledger.piece[i].len;
	struct rma *r = l->piece[i].r;

	switch (end) {
	case CORE_PIECE_EXECUTED:
		rma_piece_end(r, len, 0);
		break;
	case CORE_PIECE_AMBIGUOUS:
		rma_piece_end(r, len, l->piece[i].refused ? RCS_ERR_ACCESS : RCS_ERR_AMBIGUOUS);
		break;
	case CORE_PIECE_REFUSED:
		rma_piece_end(r, len, access_error(r));
		break;
	default:
		break;
	}
}

void rma_done(struct link *l, uint64_t cookie, enum verbs_done how, const char *detail)
{
	const struct core_piece *p = &l->ledger.piece[cookie];
	struct rma *r = l->piece[cookie].r;
	uint32_t len = p->len;

	if (how == VERBS_OK && r->get)
		l->n->read_bytes += len;
	else if (how == VERBS_OK)
		l->n->write_bytes += len;
	else if (how == VERBS_REQUEST)
		node_log(l->n, CONFIG_LOG_INFO, "a %s of node %u's memory was refused: %s",
			r->get ? "read" : "write", l->peer, detail);
	/*
	 * Everything was checked, so this is a key that is gone, which its owner will say, or a device
	 * that lost its way: soft RoCE refuses a good request now and then when packets were lost. A
	 * second time it is believed.
	 */
	if (how == VERBS_REQUEST && !r->large && !r->refused) {
		r->refused = l->piece[cookie].refused = true;
		how = VERBS_FLUSHED;
		if (r->get)
			key_check(l, r->im);
	}
	piece_ended(l, (int)cookie, core_rma_completed(&l->ledger, &l->core, (int)cookie,
			how == VERBS_OK ? CORE_PIECE_OK : how == VERBS_REQUEST ? CORE_PIECE_ERROR :
			CORE_PIECE_FLUSHED, l->n->now));
	link_dirty(l);
}

void rma_fenced(struct link *l, uint8_t lane, uint32_t gen)
{
	l->words_due &= (uint8_t)~(1u << lane);
	core_rma_fenced(&l->ledger, &l->core, lane, gen, l->n->now);
}

void rma_report(struct link *l, const struct core_act *a)
{
	static const char *const by[] = {"nothing", "rq_psn", "word"};
	uint64_t done = l->ledger.by_ledger, again = l->ledger.replayed, lost = l->ledger.ambiguous;
	enum core_piece_end end;
	json_t *o;
	int i;

	while ((i = core_rma_settle(&l->ledger, a->lane, a->gen, a->told, a->number, l->n->now, &end)) >= 0) {
		struct rma *r = l->piece[i].r;

		/* It may have been the one that was refused, and its NAK lost: it goes again only after the
		 * owner's word that the key is good. */
		if (end == CORE_PIECE_GOES_ON && !r->large)
			key_check(l, r->im);
		piece_ended(l, i, end);
	}
	done = l->ledger.by_ledger - done;
	again = l->ledger.replayed - again;
	lost = l->ledger.ambiguous - lost;
	node_log(l->n, CONFIG_LOG_INFO, "lane %u generation %u to node %u: %llu pieces of puts had executed, "
		"%llu run again, %llu ambiguous, by %s", a->lane, a->gen, l->peer, (unsigned long long)done,
		(unsigned long long)again, (unsigned long long)lost, by[a->told]);
	o = json_pack("{s:i,s:i,s:i,s:b,s:s,s:I,s:I,s:I}", "peer", (int)l->peer, "lane", (int)a->lane,
		"generation", (int)a->gen, "known", a->told == CORE_TOLD_PSN, "by", by[a->told],
		"puts_by_ledger", (json_int_t)done, "puts_replayed", (json_int_t)again, "puts_ambiguous", (json_int_t)lost);
	evlog_event(&l->n->log, "ledger", o);
}

void rma_chan_gone(struct node *n, struct chan *c)
{
	for (struct rma *r; (r = c->rmas);) {
		DL_DELETE2(c->rmas, r, cprev, cnext);
		r->c = NULL;
		note_end(r);
	}
	n->work = true;
}

void rma_free_all(struct link *l)
{
	for (struct rma *r; (r = l->rmas);) {
		l->rmas = r->next;
		flow_leave(r);
		free(r->copy);
		free(r);
	}
	serve_free_all(l);
}
