/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link: the core machine of a peer node, fed with what lanes report, and its actions carried out.
 *
 * Records are appended to the frame that is being filled, which stands in the slot of the number it
 * will have. It is handed to the machine at the end of a turn, or when the next record does not fit;
 * while earlier frames still wait to be sent it goes on filling: that is how messages of several
 * ranks come to share a packet. Records that find no slot wait in the backlog, bounded by
 * BACKLOG_MAX; the table's `busy` flag asks the libraries to hold back long before.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/access.h"
#include "node/fabric.h"
#include "node/rails.h"

#define BACKLOG_MAX  (4u << 20)
#define BACKLOG_BUSY (64u << 10)
#define LOOSE_MAX    128u

static void cfg_core(const struct node *n, uint32_t peer, struct core_cfg *c)
{
	const struct config *f = &n->cfg;
	const uint64_t ms = 1000000;

	core_cfg_default(c);
	/* lanes are the lower node's rails (rails.h) */
	c->rails = (uint8_t)(n->o.self < peer || !n->rails ? n->rails : CORE_RAILS_MAX);
	c->self = (uint16_t)n->o.self;
	c->peer = (uint16_t)peer;
	/* links to different nodes begin on different rails: all carry frames */
	c->first = (uint8_t)(n->rails ? (n->o.self + peer - 1) % n->rails : 0);
	c->depth0 = (uint16_t)f->frame_depth_initial;
	c->depth = (uint16_t)f->frame_depth;
	c->ack_ns = (uint64_t)f->ack_delay_us * 1000;
	c->stall_ask_ns = (uint64_t)f->stall_ask_ms * ms;
	c->stall_hard_ns = (uint64_t)f->stall_hard_ms * ms;
	c->stall_max_ns = (uint64_t)f->stall_max_ms * ms;
	c->keepalive_ns = (uint64_t)f->keepalive_ms * ms;
	c->hold_ns = (uint64_t)f->hold_down_ms * ms;
	c->hold_max_ns = (uint64_t)f->hold_down_max_ms * ms;
	c->probes = (uint8_t)f->probes;
	c->unreachable_ns = (uint64_t)f->unreachable_ms * ms;
}

static struct shm_node *entry(const struct link *l)
{
	return &l->n->table->node_tab[l->peer];
}

struct link *link_get(struct node *n, uint32_t peer)
{
	struct link *l = n->link[peer];
	struct core_cfg cc;

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->n = n;
	l->peer = peer;
	if (n->rails) {
		l->vbuf = verbs_buf_new(n->vb, NODE_LINK_PINNED);
		if (!l->vbuf)
			node_log(n, CONFIG_LOG_WARN, "node %u (%s) is reached over TCP only: cannot pin %u bytes on "
				"each rail for it: %s; " NODE_MEMLOCK_ADVICE, peer, n->o.names[peer],
				NODE_LINK_PINNED, strerror(errno));
	}
	l->slots = l->vbuf ? verbs_buf_addr(l->vbuf) : aligned_alloc(64, NODE_LINK_PINNED);
	if (!l->slots) {
		node_log(n, CONFIG_LOG_ERROR, "no memory for the link to node %u: %s; check memory_limit_mb",
			peer, strerror(errno));
		free(l);
		return NULL;
	}
	cfg_core(n, peer, &cc);
	core_link_init(&l->core, &cc, n->now);
	core_rma_init(&l->ledger);
	rails_begin(l);
	l->next = n->links;
	n->links = l;
	n->link[peer] = l;
	atomic_store(&entry(l)->state, SHM_NODE_CONNECTING);
	link_dirty(l);
	if (n->parted) /* from who has stopped there is no way to anybody */
		link_lost(l);
	return l;
}

void link_free(struct link *l)
{
	rma_free_all(l);
	find_end(l);
	for (unsigned r = 0; r < CORE_RAILS_MAX; r++)
		if (l->rdma[r])
			verbs_lane_close(l->rdma[r]);
	for (unsigned r = 0; r < CORE_RAILS_MAX; r++)
		verbs_target_free(l->target[r]);
	if (l->vbuf)
		verbs_buf_free(l->vbuf);
	else
		free(l->slots);
	free(l->backlog);
	free(l);
}

void link_dirty(struct link *l)
{
	l->dirty = true;
	l->n->work = true; /* the loop must not sleep over it */
}

void link_learn(struct link *l, const struct wire_addr *a)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&l->addr;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&l->addr;

	memset(&l->addr, 0, sizeof(l->addr));
	if (a->family == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(a->ctrl_port);
		memcpy(&v4->sin_addr, a->ctrl, 4);
	} else {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(a->ctrl_port);
		memcpy(&v6->sin6_addr, a->ctrl, 16);
	}
	core_link_want(&l->core, l->n->now);
	link_dirty(l);
}

/* --- records into frames ------------------------------------------------------------------- */

static uint8_t *slot_of(struct link *l, uint64_t seq)
{
	return l->slots + (seq % CORE_SLOTS) * WIRE_FRAME_MAX;
}

static void close_frame(struct link *l)
{
	((struct wire_frame *)(void *)slot_of(l, l->core.next))->len = l->open_len;
	core_link_submit(&l->core, l->n->now);
	l->open_len = 0;
	l->tx_frames++;
	l->dirty = true;
}

static bool place(struct link *l, const struct wire_rec *r, const void *payload)
{
	size_t need = WIRE_REC_SPACE(r->len);
	uint8_t *at;

	if (l->open_len && l->open_len + need > WIRE_FRAME_ROOM)
		close_frame(l);
	if (!core_link_room(&l->core))
		return false;
	at = slot_of(l, l->core.next) + sizeof(struct wire_frame) + l->open_len;
	memcpy(at, r, sizeof(*r));
	memcpy(at + sizeof(*r), payload, r->len);
	if (need > sizeof(*r) + r->len)
		memset(at + sizeof(*r) + r->len, 0, need - sizeof(*r) - r->len);
	l->open_len += (uint32_t)need;
	l->dirty = true;
	return true;
}

static int backlog_add(struct link *l, const struct wire_rec *r, const void *payload)
{
	size_t need = WIRE_REC_SPACE(r->len);

	if (l->bl_tail + need > l->bl_cap) {
		if (l->bl_head)
			memmove(l->backlog, l->backlog + l->bl_head, l->bl_tail - l->bl_head);
		l->bl_tail -= l->bl_head;
		l->bl_head = 0;
		if (l->bl_tail + need > l->bl_cap) {
			size_t cap = l->bl_cap ? 2 * l->bl_cap : 64 << 10;
			uint8_t *p = realloc(l->backlog, cap);

			if (!p)
				return -EAGAIN;
			l->backlog = p;
			l->bl_cap = cap;
		}
	}
	memcpy(l->backlog + l->bl_tail, r, sizeof(*r));
	memcpy(l->backlog + l->bl_tail + sizeof(*r), payload, r->len);
	l->bl_tail += need;
	if (l->bl_tail - l->bl_head > BACKLOG_BUSY)
		atomic_store_explicit(&entry(l)->busy, 1, memory_order_relaxed);
	return 0;
}

int link_append(struct link *l, const struct wire_rec *r, const void *payload)
{
	if (l->lost)
		return 0;
	if (l->bl_head == l->bl_tail && place(l, r, payload))
		return 0;
	if (l->bl_tail - l->bl_head + WIRE_REC_SPACE(r->len) > BACKLOG_MAX)
		return -EAGAIN;
	return backlog_add(l, r, payload);
}

void link_answer(struct link *l, const struct wire_rec *r, const void *payload)
{
	if (l->lost)
		return;
	if (l->bl_head == l->bl_tail && place(l, r, payload))
		return;
	if (backlog_add(l, r, payload))
		node_log(l->n, CONFIG_LOG_ERROR, "no memory for an answer to node %u; raise memory_limit_mb",
			l->peer);
}

bool link_busy(const struct link *l)
{
	return l->bl_tail - l->bl_head > BACKLOG_BUSY;
}

static void drain_backlog(struct link *l)
{
	while (l->bl_head < l->bl_tail) {
		struct wire_rec r;

		memcpy(&r, l->backlog + l->bl_head, sizeof(r));
		if (!place(l, &r, l->backlog + l->bl_head + sizeof(r)))
			return;
		l->bl_head += WIRE_REC_SPACE(r.len);
	}
	l->bl_head = l->bl_tail = 0;
	if (atomic_load_explicit(&entry(l)->busy, memory_order_relaxed)) {
		atomic_store_explicit(&entry(l)->busy, 0, memory_order_relaxed);
		chan_wake_all(l->n);
	}
}

/* --- lanes ---------------------------------------------------------------------------------- */

static void header(struct link *l, struct wire_frame *f, uint8_t type, uint8_t lane, uint64_t seq)
{
	f->type = type;
	f->lane = lane;
	f->flags = lane != CORE_LANE_TCP && l->rdma[lane] && verbs_lane_doubted(l->rdma[lane]) ? WIRE_FRAME_F_WORD : 0;
	f->src_node = (uint16_t)l->n->o.self;
	f->lane_gen = l->core.lane[lane].gen;
	f->seq = seq;
	f->incarnation = l->n->incarnation;
	core_link_header(&l->core, &f->ack, &f->limit);
}

/* A sealed frame goes out on the lane: DATA frame seq from its slot, or with CORE_NEVER a small one. */
static void send_on(struct link *l, uint8_t lane, const uint8_t *frame, uint64_t seq)
{
	uint32_t len = (uint32_t)sizeof(struct wire_frame) +
		((const struct wire_frame *)(const void *)frame)->len;
	bool slot = seq != CORE_NEVER;
	struct verbs_lane *vl = lane == CORE_LANE_TCP ? NULL : l->rdma[lane];
	uint32_t gen = l->core.lane[lane].gen;
	int err;

	if (lane == CORE_LANE_TCP) {
		err = tcp_send(l, frame, len);
		if (!err)
			core_link_completed(&l->core, lane, gen, seq, l->n->now);
	} else if (!vl) {
		err = -EIO;
	} else if (slot) {
		err = verbs_lane_send(vl, l->vbuf, (size_t)(frame - l->slots), len,
			NODE_COOKIE_DATA | seq);
	} else {
		err = verbs_lane_send_copy(vl, frame, len, NODE_COOKIE_OTHER);
	}
	/* A small frame that finds no room is as good as lost on the way: the machine says it again. */
	if (err == -EAGAIN && !slot)
		core_link_completed(&l->core, lane, gen, CORE_NEVER, l->n->now);
	else if (err)
		core_link_lane_error(&l->core, lane, gen,
			lane == CORE_LANE_TCP ? CORE_R_SOCKET : CORE_R_COMPLETION, l->n->now);
}

static void act_send(struct link *l, const struct core_act *a)
{
	uint8_t *frame = slot_of(l, a->seq);
	struct wire_frame *f = (struct wire_frame *)(void *)frame;

	header(l, f, WIRE_FRAME_DATA, a->lane, a->seq);
	wire_frame_seal(f, frame + sizeof(*f));
	send_on(l, a->lane, frame, a->seq);
}

static void act_small(struct link *l, const struct core_act *a, uint8_t type)
{
	uint8_t frame[sizeof(struct wire_frame) + sizeof(struct core_ctrl)];
	struct wire_frame *f = (struct wire_frame *)(void *)frame;

	memset(frame, 0, sizeof(frame));
	if (type == WIRE_FRAME_CTRL) {
		f->len = sizeof(a->ctrl);
		memcpy(frame + sizeof(*f), &a->ctrl, sizeof(a->ctrl));
	}
	header(l, f, type, a->lane, 0);
	wire_frame_seal(f, frame + sizeof(*f));
	send_on(l, a->lane, frame, CORE_NEVER);
}

/* A network that swallows everything says nothing for seconds: not even the signs of life that are due. */
static bool tcp_is_mute(const struct link *l)
{
	return l->core.active < CORE_LANE_TCP && l->n->now - l->tcp.heard_at > 2 * l->core.cfg.keepalive_ns;
}

void link_loose(struct link *l, const struct wire_rec *r, const void *payload)
{
	uint8_t frame[sizeof(struct wire_frame) + sizeof(*r) + LOOSE_MAX];
	struct wire_frame *f = (struct wire_frame *)(void *)frame;

	if (l->lost)
		return;
	if (!tcp_can_send(l) || r->len > LOOSE_MAX || tcp_is_mute(l)) {
		link_answer(l, r, payload);
		return;
	}
	memset(frame, 0, sizeof(frame));
	f->len = (uint32_t)WIRE_REC_SPACE(r->len);
	memcpy(frame + sizeof(*f), r, sizeof(*r));
	memcpy(frame + sizeof(*f) + sizeof(*r), payload, r->len);
	header(l, f, WIRE_FRAME_LOOSE, CORE_LANE_TCP, 0);
	wire_frame_seal(f, frame + sizeof(*f));
	tcp_send(l, frame, sizeof(*f) + f->len);
}

static void act_open(struct link *l, const struct core_act *a)
{
	uint8_t blob[CORE_BLOB], rail;
	int err;

	if (a->lane == CORE_LANE_TCP) {
		tcp_connect(l);
		return;
	}
	if (l->rdma[a->lane]) {
		verbs_lane_close(l->rdma[a->lane]);
		l->rdma[a->lane] = NULL;
	}
	rail = rails_choose(l, a->lane);
	if (rail == FABRIC_NONE)
		return;
	err = verbs_lane_open(l->n->vb, rail, l->core.depth, l, &l->rdma[a->lane], blob);
	if (err) {
		node_log(l->n, CONFIG_LOG_WARN, "no queue pair on %s for node %u: %s",
			verbs_rail_name(l->n->vb, rail), l->peer, strerror(-err));
		l->rdma[a->lane] = NULL;
		core_link_lane_error(&l->core, a->lane, a->gen, CORE_R_SETUP, l->n->now);
		return;
	}
	l->rdma_gen[a->lane] = a->gen;
	core_link_opened(&l->core, a->lane, a->gen, blob, l->n->now);
}

static void act_connect(struct link *l, const struct core_act *a)
{
	int err = l->rdma[a->lane] ? verbs_lane_depth(l->rdma[a->lane], a->depth) : -EIO;

	if (!err)
		err = verbs_lane_connect(l->rdma[a->lane], a->ctrl.blob);
	if (err) {
		node_log(l->n, CONFIG_LOG_WARN, "queue pair on %s to node %u does not connect: %s",
			verbs_rail_name(l->n->vb, rails_own(l, a->lane)), l->peer, strerror(-err));
		core_link_lane_error(&l->core, a->lane, a->gen, CORE_R_SETUP, l->n->now);
		return;
	}
	probe_learn(l, a->lane);
	core_link_connected(&l->core, a->lane, a->gen, l->n->now);
}

static void act_fence(struct link *l, const struct core_act *a)
{
	if (a->lane == CORE_LANE_TCP) {
		tcp_drop(l);
		core_link_fenced(&l->core, a->lane, a->gen, l->n->now);
	} else if (!l->rdma[a->lane]) {
		core_link_fenced(&l->core, a->lane, a->gen, l->n->now);
	} else {
		verbs_lane_fence(l->rdma[a->lane]);
	}
}

/* Where a lane has not got its receives the peer must not be told of them. */
static void act_depth(struct link *l, uint16_t depth)
{
	bool failed = false;

	for (unsigned r = 0; r < CORE_RAILS_MAX; r++) {
		int err = l->rdma[r] ? verbs_lane_depth(l->rdma[r], depth) : 0;

		failed |= err;
		if (err)
			node_log(l->n, CONFIG_LOG_WARN, "cannot post %u receives on %s for node %u: %s; its window "
				"stays at %u; " NODE_MEMLOCK_ADVICE, depth,
				verbs_rail_name(l->n->vb, verbs_lane_rail(l->rdma[r])), l->peer,
				strerror(-err), l->core.depth);
	}
	if (failed)
		core_link_depth_failed(&l->core, l->n->now);
	else
		core_link_depth_done(&l->core, l->n->now);
}

static void lanes_changed(struct link *l)
{
	struct shm_node *e = entry(l);
	uint32_t up = 0;

	for (unsigned i = 0; i < CORE_LANES; i++)
		if (l->core.lane[i].state == CORE_LANE_UP)
			up |= 1u << rails_told(l, (uint8_t)i);
	if (l->lost)
		return;
	atomic_store(&e->lanes_up, up);
	atomic_store(&e->lane, l->core.active == CORE_LANE_NONE ? SHM_LANE_NONE : rails_told(l, l->core.active));
	if (l->core.active != CORE_LANE_NONE)
		atomic_store(&e->state, SHM_NODE_UP);
	ctl_eager_check(l->n);
}

/* Another daemon than before: records, puts and keys of the former one's are over, for the ranks too. */
static void restarted(struct link *l)
{
	struct node *n = l->n;

	node_log(n, CONFIG_LOG_WARN, "the daemon of node %u (%s) was started anew: what was outstanding to the former "
		"one has ended, and may have been done there or not", l->peer, n->o.names[l->peer]);
	evlog_peer(&n->log, "peer_restarted", l->peer, n->o.names[l->peer]);
	l->restarts++;
	l->bl_head = l->bl_tail = 0;
	l->open_len = 0;
	l->words_due = 0;
	rma_restarted(l);
	for (unsigned r = 0; r < CORE_RAILS_MAX; r++) {
		verbs_target_free(l->target[r]);
		l->target[r] = NULL;
	}
	if (l->lost)
		return;
	rails_begin(l); /* it may have others than the former one */
	key_node_anew(n, l->peer);
	access_node_lost(n, l->peer);
	chan_flush(n); /* what the former one has sent is there before the table says that it is gone */
	atomic_store(&entry(l)->busy, 0);
	atomic_store(&entry(l)->state, SHM_NODE_CONNECTING);
	atomic_fetch_add(&entry(l)->daemons, 1);
}

static uint32_t can_send(struct link *l)
{
	uint32_t can = tcp_can_send(l) ? 1u << CORE_LANE_TCP : 0;

	for (unsigned r = 0; r < CORE_RAILS_MAX; r++)
		if (l->rdma[r] && verbs_lane_room(l->rdma[r]) > 0)
			can |= 1u << r;
	return can;
}

static void turn(struct link *l)
{
	struct node *n = l->n;
	struct core_act a;

	l->dirty = false;
	drain_backlog(l);
	/* A frame that would only wait behind others goes on filling. */
	if (l->open_len && l->core.sent == l->core.next && core_link_room(&l->core))
		close_frame(l);
	for (;;) {
		enum core_act_type t = core_link_poll(&l->core, can_send(l), n->now, &a);

		if (t == CORE_ACT_NONE) {
			if (l->open_len && l->core.sent == l->core.next && core_link_room(&l->core)) {
				close_frame(l);
				continue;
			}
			break;
		}
		n->work = true;
		switch (t) {
		case CORE_ACT_SEND:
			act_send(l, &a);
			break;
		case CORE_ACT_ACK:
			act_small(l, &a, WIRE_FRAME_ACK);
			break;
		case CORE_ACT_CTRL:
			act_small(l, &a, WIRE_FRAME_CTRL);
			break;
		case CORE_ACT_OPEN:
			act_open(l, &a);
			break;
		case CORE_ACT_CONNECT:
			act_connect(l, &a);
			break;
		case CORE_ACT_FENCE:
			act_fence(l, &a);
			break;
		case CORE_ACT_CLOSE:
			if (a.lane == CORE_LANE_TCP) {
				tcp_drop(l);
			} else if (l->rdma[a.lane]) {
				verbs_lane_close(l->rdma[a.lane]);
				l->rdma[a.lane] = NULL;
			}
			break;
		case CORE_ACT_DEPTH:
			act_depth(l, a.depth);
			break;
		case CORE_ACT_PROBE:
			probe_ask(l, a.lane, a.seq);
			break;
		case CORE_ACT_REPORT:
			rma_report(l, &a);
			break;
		case CORE_ACT_STATE:
			lanes_changed(l);
			break;
		case CORE_ACT_FAILOVER:
			news_failover(l, &a.failover);
			break;
		case CORE_ACT_LANE_BACK:
			news_lane_back(l, a.lane);
			break;
		case CORE_ACT_UNREACHABLE:
			news_reachable(l, false);
			break;
		case CORE_ACT_REACHABLE:
			news_reachable(l, true);
			break;
		case CORE_ACT_RESTARTED:
			restarted(l);
			break;
		default:
			break;
		}
	}
	l->deadline = core_link_deadline(&l->core);
	if (l->news_failed | l->news_back && n->news_at < l->deadline)
		l->deadline = n->news_at;
	rma_pump(l);
}

void link_turn(struct node *n)
{
	news_turn(n);
	for (struct link *l = n->links; l; l = l->next)
		if (l->dirty || n->now >= l->deadline)
			turn(l);
}

void link_unwatched(struct node *n)
{
	for (struct link *l = n->links; l; l = l->next)
		if (!l->lost && !l->tcp.conn) {
			l->refused = false;
			l->heard_at = 0;
		}
}

void link_lost(struct link *l)
{
	struct node *n = l->n;

	if (l->lost)
		return;
	l->lost = true;
	chan_flush(n); /* what it has sent is there before the table says that it is down */
	for (uint8_t i = 0; i < CORE_LANES; i++)
		core_link_rail(&l->core, i, false, CORE_R_CLOSE, n->now);
	l->bl_head = l->bl_tail = 0;
	atomic_store(&entry(l)->busy, 0);
	atomic_store(&entry(l)->lanes_up, 0);
	atomic_store(&entry(l)->lane, SHM_LANE_NONE);
	atomic_store(&entry(l)->state, SHM_NODE_DOWN);
	key_node_lost(n, l->peer);
	access_node_lost(n, l->peer);
	link_dirty(l);
}

/* --- what lanes report ------------------------------------------------------------------------ */

static void records(struct link *l, const struct wire_frame *f, const uint8_t *payload)
{
	struct node *n = l->n;
	size_t at = 0;

	while (f->len - at >= sizeof(struct wire_rec)) {
		struct wire_rec r;
		const char *why = "a rank and its own daemon alone exchange records of this type";

		memcpy(&r, payload + at, sizeof(r));
		if (wire_rec_check(&r, f->len - at, &why) || !wire_rec_travels(&r)) {
			node_log(n, CONFIG_LOG_ERROR, "node %u sent a bad record: %s", l->peer, why);
			return;
		}
		if (f->type == WIRE_FRAME_LOOSE && r.type != WIRE_REC_VIEW)
			return; /* nothing else may come out of order */
		r.src_node = (uint16_t)l->peer;
		if (r.type == WIRE_REC_RTS) {
			struct wire_rts rts;

			memcpy(&rts, payload + at + sizeof(r), sizeof(rts));
			key_rts(n, &r, &rts);
		}
		chan_deliver(n, &r, payload + at + sizeof(r));
		at += WIRE_REC_SPACE(r.len);
	}
}

void link_frame(struct link *l, uint8_t lane, uint32_t gen, const struct wire_frame *f,
	const uint8_t *payload)
{
	struct node *n = l->n;

	l->dirty = true;
	if (f->src_node != l->peer || f->lane_gen != gen || l->lost)
		return; /* sent for an older generation of the lane */
	if (f->incarnation != l->core.peer_inc || l->core.ending)
		return; /* of a daemon that is gone */
	l->heard_at = n->now;
	if (lane == CORE_LANE_TCP)
		l->tcp.heard_at = n->now;
	switch (f->type) {
	case WIRE_FRAME_ACK:
		core_link_rx_ack(&l->core, lane, gen, f->ack, f->limit, n->now);
		return;
	case WIRE_FRAME_CTRL:
		core_link_rx_ack(&l->core, lane, gen, f->ack, f->limit, n->now);
		if (f->len == sizeof(struct core_ctrl)) {
			struct core_ctrl c;

			memcpy(&c, payload, sizeof(c));
			/* asked about a lane: is it our port? */
			if (c.type == CORE_CTRL_PING && rails_own(l, c.lane) < n->rails)
				verbs_rail_check(n->vb, rails_own(l, c.lane));
			core_link_rx_ctrl(&l->core, lane, gen, &c, n->now);
		}
		return;
	case WIRE_FRAME_LOOSE:
		core_link_rx_ack(&l->core, lane, gen, f->ack, f->limit, n->now);
		records(l, f, payload);
		return;
	default:
		break;
	}
	if (core_link_rx(&l->core, lane, gen, f->seq, f->ack, f->limit, n->now) != CORE_RX_DELIVER)
		return;
	l->rx_frames++;
	atomic_store_explicit(&entry(l)->rx_frames, l->rx_frames, memory_order_relaxed);
	atomic_store_explicit(&entry(l)->tx_frames, l->tx_frames, memory_order_relaxed);
	records(l, f, payload);
}

static void on_recv(void *owner, struct verbs_lane *vl, const void *buf, size_t len)
{
	struct link *l = owner;
	const struct wire_frame *f = buf;
	uint8_t lane = rails_lane(l, vl);
	const char *why;

	if (lane == CORE_LANE_NONE)
		return;
	l->n->work = true;
	if (wire_frame_check(f, (const uint8_t *)buf + sizeof(*f), len, &why)) {
		node_log(l->n, CONFIG_LOG_WARN, "lane %u from node %u: %s", lane, l->peer, why);
		core_link_lane_error(&l->core, lane, l->rdma_gen[lane], CORE_R_PROTOCOL, l->n->now);
		link_dirty(l);
		return;
	}
	verbs_lane_word_wanted(vl, f->flags & WIRE_FRAME_F_WORD);
	link_frame(l, lane, l->rdma_gen[lane], f, (const uint8_t *)buf + sizeof(*f));
}

static void on_done(void *owner, struct verbs_lane *vl, uint64_t cookie, enum verbs_done how,
	const char *detail)
{
	struct link *l = owner;
	uint8_t lane = rails_lane(l, vl);
	uint64_t kind = cookie & NODE_COOKIE_KIND;

	l->dirty = true;
	l->n->work = true;
	if (kind == NODE_COOKIE_PIECE)
		rma_done(l, cookie & ~NODE_COOKIE_KIND, how, detail);
	if (lane == CORE_LANE_NONE ||
		(how == VERBS_OK && (kind == NODE_COOKIE_PIECE || kind == NODE_COOKIE_WORD)))
		return;
	if (how == VERBS_OK) {
		core_link_completed(&l->core, lane, l->rdma_gen[lane],
			kind == NODE_COOKIE_DATA ? cookie & ~NODE_COOKIE_KIND : CORE_NEVER, l->n->now);
	} else if (how != VERBS_FLUSHED) {
		node_log(l->n, CONFIG_LOG_INFO, "lane %u to node %u: %s", lane, l->peer, detail);
		core_link_lane_error(&l->core, lane, l->rdma_gen[lane],
			how == VERBS_REQUEST ? CORE_R_REQUEST : CORE_R_COMPLETION, l->n->now);
	}
}

static void on_error(void *owner, struct verbs_lane *vl, enum core_reason why, const char *detail)
{
	struct link *l = owner;
	uint8_t lane = rails_lane(l, vl);

	if (lane == CORE_LANE_NONE)
		return;
	node_log(l->n, CONFIG_LOG_INFO, "lane %u to node %u: %s", lane, l->peer, detail);
	core_link_lane_error(&l->core, lane, l->rdma_gen[lane], why, l->n->now);
	link_dirty(l);
}

static void on_fenced(void *owner, struct verbs_lane *vl, enum core_told told, uint32_t number)
{
	struct link *l = owner;
	uint8_t lane = rails_lane(l, vl);

	if (lane == CORE_LANE_NONE)
		return;
	core_link_report(&l->core, lane, l->rdma_gen[lane], told, number);
	core_link_fenced(&l->core, lane, l->rdma_gen[lane], l->n->now);
	rma_fenced(l, lane, l->rdma_gen[lane]);
	link_dirty(l);
}

static void on_rail(void *arg, unsigned rail, bool ok, enum core_reason why, const char *detail)
{
	struct node *n = arg;

	node_log(n, CONFIG_LOG_INFO, "rail %u (%s) %s: %s", rail, verbs_rail_name(n->vb, rail),
		ok ? "works" : "failed", detail);
	link_rail(n, rail, ok, why);
}

static void on_ledger(void *arg, unsigned rail, enum verbs_ledger ledger, const char *why)
{
	struct node *n = arg;

	if (rail >= n->rails)
		return;
	node_log(n, ledger == VERBS_LEDGER_NONE ? CONFIG_LOG_WARN : CONFIG_LOG_INFO,
		"self-test of rail %u (%s): %s: %s", rail, verbs_rail_name(n->vb, rail),
		ledger == VERBS_LEDGER_RQ_PSN ? "passed" :
		ledger == VERBS_LEDGER_NONE   ? "failed, peers write a ledger word instead" :
						"no result yet, peers write a ledger word meanwhile",
		why);
	if (ledger == VERBS_LEDGER_NONE)
		evlog_selftest(&n->log, rail, verbs_ledger_name(ledger), why);
}

void link_rail(struct node *n, unsigned rail, bool ok, enum core_reason why)
{
	n->work = true;
	for (struct link *l = n->links; l; l = l->next) {
		if (!l->vbuf || l->lost)
			continue;
		rails_changed(l, (uint8_t)rail, ok, why);
		link_dirty(l);
	}
}

const struct verbs_ops link_verbs_ops = {
	.recv = on_recv,
	.done = on_done,
	.error = on_error,
	.fenced = on_fenced,
	.rail = on_rail,
	.ledger = on_ledger,
	.datagram = probe_receive,
};
