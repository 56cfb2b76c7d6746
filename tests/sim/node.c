/* SPDX-License-Identifier: BSD-3-Clause */
/* A node's side of a link: feeds the protocol and does what it says, and checks it meanwhile. */
#include "sim.h"

#include <string.h>

uint64_t sim_content(int src, int dst, uint64_t seq)
{
	uint64_t z = ((uint64_t)src << 56) ^ ((uint64_t)dst << 48) ^ (seq + 1);

	z *= 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9ull;
	return z ^ (z >> 29);
}

/* In a lane's blob, behind two numbers: the device is known to lie. */
#define BLOB_WORD (2 * sizeof(uint32_t))

void sim_node_wake(struct sim *s, struct sim_end *e, uint64_t t)
{
	if (t < s->now)
		t = s->now;
	if (e->run_at <= t && e->run_at >= s->now)
		return;
	e->run_at = t;
	sim_at(s, t, (struct sim_ev){ .type = SIM_EV_RUN, .end = (int16_t)e->id });
}

static uint32_t can_send(const struct sim_end *e)
{
	uint32_t can = 0;

	for (uint8_t i = 0; i < CORE_LANES; i++) {
		const struct sim_qp *q = &e->qp[i];
		uint32_t low = i == CORE_LANE_TCP && q->arr < q->done ? q->arr : q->done;

		if (q->state == SIM_QP_READY && q->snd - low < SIM_RING / 2)
			can |= 1u << i;
	}
	return can;
}

/* The handshake's end: whose daemon it is, and which rails both nodes have. False: not now. */
static bool met(struct sim *s, struct sim_end *e, uint32_t inc)
{
	uint8_t a = s->rails[e->node], b = s->rails[e->peer];

	if (!core_link_peer(&e->link, inc, s->now)) {
		sim_trace(s, e, "another daemon is there, and the former one is not over");
		return false;
	}
	if (s->rails_told)
		core_link_lanes(&e->link, (uint8_t)((1u << (a < b ? a : b)) - 1), s->now);
	return true;
}

static void tcp_accept(struct sim *s, struct sim_end *e, const struct sim_async *as)
{
	struct sim_end *pe = &s->end[e->id ^ 1];
	struct sim_qp *q = &e->qp[CORE_LANE_TCP];
	uint32_t known = e->link.lane[CORE_LANE_TCP].gen;
	uint32_t gen = as->gen > known ? as->gen : known + 1;

	if (!met(s, e, as->inc)) {
		sim_async_at(s, pe, s->now + sim_below(s, 500 * US),
			(struct sim_async){ .type = SIM_AS_ERROR, .lane = CORE_LANE_TCP,
				.gen = as->gen, .uid = as->uid, .reason = CORE_R_SETUP });
		return;
	}
	if (e->trying && e->node < e->peer) { /* two connects crossed: the lower index's stays */
		sim_async_at(s, pe, s->now + sim_below(s, 500 * US),
			(struct sim_async){ .type = SIM_AS_ERROR, .lane = CORE_LANE_TCP,
				.gen = as->gen, .uid = as->uid, .reason = CORE_R_SETUP });
		return;
	}
	e->trying = false;
	sim_trace(s, e, "tcp accepted, gen %u", gen);
	sim_qp_make(s, e, CORE_LANE_TCP, gen, as->uid * 2 + 1);
	q->remote = as->uid * 2;
	q->state = SIM_QP_READY;
	core_link_want(&e->link, s->now);
	core_link_lane_up(&e->link, CORE_LANE_TCP, gen, s->now);
	if (sim_path(s, e, CORE_LANE_TCP))
		sim_async_at(s, pe, s->now + 10 * US + sim_below(s, 500 * US),
			(struct sim_async){ .type = SIM_AS_TCP_READY, .lane = CORE_LANE_TCP,
				.gen = gen, .uid = as->uid, .inc = s->inc[e->node] });
}

static void async(struct sim *s, struct sim_end *e, const struct sim_async *as)
{
	struct core_link *l = &e->link;
	struct sim_qp *q = &e->qp[as->lane];
	uint8_t blob[CORE_BLOB] = { 0 };

	switch (as->type) {
	case SIM_AS_WANT:
		core_link_want(l, s->now);
		break;
	case SIM_AS_RAIL:
		/* Told late, the present state is told. */
		sim_trace(s, e, "rail %d %s", as->lane,
			s->port[e->node][as->lane] ? "ok" : "not ok");
		sim_key_rail(s, e, as->lane, as->reason);
		break;
	case SIM_AS_OPENED:
		if (q->gen != as->gen || q->state != SIM_QP_MADE)
			break;
		memcpy(blob, &q->uid, sizeof(q->uid));
		memcpy(blob + sizeof(q->uid), &q->qpn, sizeof(q->qpn));
		blob[BLOB_WORD] = sim_rma_caught(s, e->node, as->lane);
		core_link_opened(l, as->lane, as->gen, blob, s->now);
		break;
	case SIM_AS_CONNECTED:
		if (q->gen == as->gen && q->state == SIM_QP_READY)
			core_link_connected(l, as->lane, as->gen, s->now);
		break;
	case SIM_AS_ERROR:
		if (as->uid) { /* of a connect */
			if (!e->trying || e->try_uid != as->uid)
				break;
			e->trying = false;
		}
		sim_trace(s, e, "lane %d gen %u error %s", as->lane, as->gen,
			core_reason_name(as->reason));
		core_link_lane_error(l, as->lane, as->gen, as->reason, s->now);
		break;
	case SIM_AS_FENCED:
		sim_rma_fenced(s, e, as->lane, as->gen);
		break;
	case SIM_AS_PROBE:
		sim_probe(s, e, as->lane, as->gen, true);
		break;
	case SIM_AS_PROBED:
		core_link_probe_answered(l, as->lane, as->gen, s->now);
		break;
	case SIM_AS_DEPTH:
		if (as->reason)
			core_link_depth_failed(l, s->now);
		else
			core_link_depth_done(l, s->now);
		break;
	case SIM_AS_ACCEPT:
		tcp_accept(s, e, as);
		break;
	case SIM_AS_TCP_READY:
		if (!e->trying || e->try_uid != as->uid)
			break;
		e->trying = false;
		if (!met(s, e, as->inc)) {
			core_link_lane_error(l, CORE_LANE_TCP, as->gen, CORE_R_SETUP, s->now);
			break;
		}
		sim_qp_make(s, e, CORE_LANE_TCP, as->gen, as->uid * 2);
		q->remote = as->uid * 2 + 1;
		q->state = SIM_QP_READY;
		core_link_lane_up(l, CORE_LANE_TCP, as->gen, s->now);
		break;
	default:
		break;
	}
}

static void take(struct sim *s, struct sim_end *e, uint8_t lane, const struct sim_msg *m)
{
	struct core_link *l = &e->link;
	enum core_verdict v;

	if (m->torn) {
		core_link_lane_error(l, lane, e->qp[lane].gen, CORE_R_PROTOCOL, s->now);
		return;
	}
	if (m->inc != l->peer_inc) /* of a daemon that is gone, or not known yet */
		return;
	if (m->gen != e->qp[lane].gen) /* sent for another opening of a lane */
		return;
	if (m->type != SIM_DATA) {
		core_link_rx_ack(l, lane, m->gen, m->ack, m->limit, s->now);
		if (m->type == SIM_CTRL)
			core_link_rx_ctrl(l, lane, m->gen, &m->ctrl, s->now);
		return;
	}
	v = core_link_rx(l, lane, m->gen, m->seq, m->ack, m->limit, s->now);
	if (v == CORE_RX_BAD) {
		sim_fail(s, "end %d lane %d: frame %llu called impossible, %llu delivered", e->id,
			lane, (unsigned long long)m->seq, (unsigned long long)e->delivered);
	} else if (v == CORE_RX_DELIVER) {
		if (m->seq != e->delivered)
			sim_fail(s, "end %d: frame %llu delivered in place of %llu", e->id,
				(unsigned long long)m->seq, (unsigned long long)e->delivered);
		else if (m->content != sim_content(e->peer, e->node, m->seq))
			sim_fail(s, "end %d: frame %llu delivered with other content", e->id,
				(unsigned long long)m->seq);
		else if (m->to_inc && m->to_inc != s->inc[e->node])
			sim_fail(s, "end %d: frame %llu delivered that was for the former daemon", e->id,
				(unsigned long long)m->seq);
		else if (m->gen != e->qp[lane].gen || e->qp[lane].state != SIM_QP_READY)
			sim_fail(s, "end %d: frame of a dead generation delivered", e->id);
		e->delivered++;
		s->frames++;
		sim_key_take(s, e, m->seq);
	}
}

/* Completions and receives, in the order of each lane; some are left for the next time. */
static bool drain(struct sim *s, struct sim_end *e)
{
	uint8_t first = s->slow ? 0 : (uint8_t)sim_below(s, CORE_LANES);
	bool more = false, served = false;

	for (uint8_t k = 0; k < CORE_LANES && !s->failed; k++) {
		uint8_t i = (uint8_t)((first + k) % CORE_LANES);
		struct sim_qp *q = &e->qp[i];
		uint32_t batch = 1 + (uint32_t)sim_below(s, s->batch);

		if (q->state == SIM_QP_NONE || q->state == SIM_QP_DEAD)
			continue;
		while (q->done < q->cmp) {
			const struct sim_msg *m = &q->out[q->done++ % SIM_RING];

			if (m->type >= SIM_PUT)
				sim_rma_done(s, e, m, false);
			else
				core_link_completed(&e->link, i, q->gen,
					m->type == SIM_DATA ? m->seq : CORE_NEVER, s->now);
		}
		if (s->slow && served)
			batch = 0;
		served |= q->in_head != q->in_tail;
		while (q->in_head != q->in_tail && batch) {
			struct sim_msg m = q->in[q->in_head++ % SIM_RING];

			batch--;
			q->in_data -= m.type == SIM_DATA;
			q->rx += i != CORE_LANE_TCP && q->state == SIM_QP_READY;
			q->want_word |= m.want_word;
			take(s, e, i, &m);
		}
		more |= q->in_head != q->in_tail;
	}
	return more;
}

static void app(struct sim *s, struct sim_end *e)
{
	uint32_t n = s->now < e->app_at ? sim_key_waiting(e) : e->app_burst;

	if (!n || e->submitted >= e->goal)
		return;
	while (n-- && e->submitted < e->goal && core_link_room(&e->link)) {
		uint64_t seq = core_link_submit(&e->link, s->now);

		if (seq != e->submitted)
			sim_fail(s, "end %d: submit numbered %llu", e->id, (unsigned long long)seq);
		e->slot[seq % CORE_SLOTS] = sim_content(e->node, e->peer, seq);
		e->slot_inc[seq % CORE_SLOTS] = e->link.peer_inc;
		sim_key_frame(e, seq);
		e->submitted++;
	}
	if (s->now >= e->app_at)
		e->app_at = s->now + 1 + sim_below(s, 2 * e->app_gap);
}

static void send_check(struct sim *s, struct sim_end *e, const struct core_act *a)
{
	struct core_link *l = &e->link;
	const struct core_link *pl = &s->end[e->id ^ 1].link;
	struct sim_qp *q = &e->qp[a->lane];

	if (a->seq >= e->submitted)
		sim_fail(s, "end %d: frame %llu sent before it was submitted", e->id,
			(unsigned long long)a->seq);
	if (a->seq >= pl->rx + pl->depth && l->peer_inc == s->inc[e->peer])
		sim_fail(s, "end %d: frame %llu beyond the limit", e->id,
			(unsigned long long)a->seq);
	if (q->any_seq && a->seq <= q->last_seq)
		sim_fail(s, "end %d lane %d: frame %llu sent again on the same generation", e->id,
			a->lane, (unsigned long long)a->seq);
	if (e->last_lane != CORE_LANE_NONE && e->last_lane != a->lane) {
		const struct core_lane *old = &l->lane[e->last_lane];

		if (old->state == CORE_LANE_UP && old->gen == e->last_gen &&
			e->qp[e->last_lane].last_seq >= l->acked)
			sim_fail(s, "end %d: moved from lane %d to %d before it was drained", e->id,
				e->last_lane, a->lane);
	}
	e->last_lane = a->lane;
	e->last_gen = a->gen;
	q->last_seq = a->seq;
	q->any_seq = true;
}

static void post(struct sim *s, struct sim_end *e, const struct core_act *a)
{
	struct sim_qp *q = &e->qp[a->lane];
	struct sim_msg m = { .gen = a->gen, .want_word = sim_rma_caught(s, e->node, a->lane),
		.inc = s->inc[e->node] };

	if (q->state != SIM_QP_READY || q->gen != a->gen) {
		sim_fail(s, "end %d lane %d: sends on generation %u, which is not there", e->id,
			a->lane, a->gen);
		return;
	}
	core_link_header(&e->link, &m.ack, &m.limit);
	if (a->type == CORE_ACT_SEND) {
		send_check(s, e, a);
		m.type = SIM_DATA;
		m.seq = a->seq;
		m.content = e->slot[a->seq % CORE_SLOTS];
		m.to_inc = e->slot_inc[a->seq % CORE_SLOTS];
		e->slot_head[a->seq % CORE_SLOTS].gen = m.gen;
		e->slot_head[a->seq % CORE_SLOTS].ack = m.ack;
		e->slot_head[a->seq % CORE_SLOTS].limit = m.limit;
	} else if (a->type == CORE_ACT_CTRL) {
		m.type = SIM_CTRL;
		m.ctrl = a->ctrl;
		e->ctrls++;
		sim_trace(s, e, "ctrl type %d lane %d gen %u count %llu, on lane %d", a->ctrl.type,
			a->ctrl.lane, a->ctrl.gen, (unsigned long long)a->ctrl.count, a->lane);
	} else {
		m.type = SIM_ACK;
	}
	sim_qp_post(s, e, a->lane, m);
}

static void open_lane(struct sim *s, struct sim_end *e, const struct core_act *a)
{
	struct sim_qp *q = &e->qp[a->lane];

	sim_trace(s, e, "open lane %d gen %u", a->lane, a->gen);
	if (a->gen <= q->gen || (q->state != SIM_QP_NONE && a->lane != CORE_LANE_TCP)) {
		sim_fail(s, "end %d lane %d: opens generation %u, last was %u (state %d)", e->id,
			a->lane, a->gen, q->gen, q->state);
		return;
	}
	if (a->lane == CORE_LANE_TCP) {
		sim_tcp_connect(s, e, a->gen);
		return;
	}
	sim_qp_make(s, e, a->lane, a->gen, ++s->uid);
	sim_async_at(s, e, s->now + sim_below(s, MS),
		sim_chance(s, s->calm ? 0 : 3) ?
			(struct sim_async){ .type = SIM_AS_ERROR, .lane = a->lane, .gen = a->gen,
				.reason = CORE_R_SETUP } :
			(struct sim_async){ .type = SIM_AS_OPENED, .lane = a->lane, .gen = a->gen });
}

static void fence(struct sim *s, struct sim_end *e, const struct core_act *a)
{
	struct sim_qp *q = &e->qp[a->lane];
	uint64_t wait = a->lane == CORE_LANE_TCP ? sim_below(s, MS) : sim_below(s, 20 * MS);

	sim_trace(s, e, "fence lane %d gen %u, %s", a->lane, a->gen, core_reason_name(a->reason));
	if (s->calm && a->lane != CORE_LANE_TCP && e->link.lane[a->lane].fo_open)
		sim_fail(s, "end %d lane %d: died of %s though nothing failed", e->id, a->lane,
			core_reason_name(a->reason));
	if (a->lane == CORE_LANE_TCP) {
		e->trying = false;
		if (q->gen == a->gen)
			q->state = SIM_QP_DEAD;
	} else if (q->gen != a->gen || q->state == SIM_QP_NONE || q->state == SIM_QP_DEAD) {
		sim_fail(s, "end %d lane %d: fences generation %u, which is not there", e->id,
			a->lane, a->gen);
		return;
	} else {
		q->state = q->state == SIM_QP_READY ? SIM_QP_FENCING : SIM_QP_DEAD;
		q->late_until = s->now + sim_below(s, wait + 1);
	}
	sim_at(s, s->now + wait, (struct sim_ev){ .type = SIM_EV_FENCE_DONE, .end = (int16_t)e->id,
					 .lane = a->lane, .gen = a->gen });
}

/* More receives on every lane that has some; on one of them the device may refuse. */
static void grow(struct sim *s, struct sim_end *e, uint16_t depth)
{
	bool fails = sim_chance(s, s->post_fails);
	uint8_t odd = (uint8_t)sim_below(s, CORE_LANES);

	for (uint8_t i = 0; i < CORE_LANE_TCP; i++)
		if (e->qp[i].state == SIM_QP_READY && !(fails && i == odd))
			sim_qp_receives(&e->qp[i], depth);
	fails = fails && odd != CORE_LANE_TCP && e->qp[odd].state == SIM_QP_READY;
	s->grow_failed += fails;
	sim_async_at(s, e, s->now + sim_below(s, MS), (struct sim_async){ .type = SIM_AS_DEPTH, .reason = fails });
}

static void act(struct sim *s, struct sim_end *e, const struct core_act *a)
{
	struct sim_qp *q = &e->qp[a->lane < CORE_LANES ? a->lane : 0];
	const struct core_failover *f = &a->failover;

	switch (a->type) {
	case CORE_ACT_SEND:
	case CORE_ACT_ACK:
	case CORE_ACT_CTRL:
		post(s, e, a);
		break;
	case CORE_ACT_OPEN:
		open_lane(s, e, a);
		break;
	case CORE_ACT_CONNECT:
		if (q->gen != a->gen || q->state != SIM_QP_MADE) {
			sim_fail(s, "end %d lane %d: connects generation %u, which is not there",
				e->id, a->lane, a->gen);
			break;
		}
		memcpy(&q->remote, a->ctrl.blob, sizeof(q->remote));
		memcpy(&q->remote_qpn, a->ctrl.blob + sizeof(q->remote), sizeof(q->remote_qpn));
		q->want_word = a->ctrl.blob[BLOB_WORD];
		sim_qp_receives(q, a->depth);
		q->rq_psn = sim_rma_psn0(q->remote);
		q->state = SIM_QP_READY;
		sim_async_at(s, e, s->now + sim_below(s, MS),
			(struct sim_async){ .type = SIM_AS_CONNECTED, .lane = a->lane, .gen = a->gen });
		break;
	case CORE_ACT_FENCE:
		fence(s, e, a);
		break;
	case CORE_ACT_CLOSE:
		if (q->gen == a->gen && q->state != SIM_QP_DEAD)
			sim_fail(s, "end %d lane %d: closed before it was fenced", e->id, a->lane);
		if (q->gen == a->gen)
			q->state = SIM_QP_NONE;
		break;
	case CORE_ACT_DEPTH:
		grow(s, e, a->depth);
		break;
	case CORE_ACT_PROBE:
		if (sim_chance(s, s->probe_stuck))
			core_link_probe_unsent(&e->link, a->lane, a->seq);
		else
			sim_probe(s, e, a->lane, (uint32_t)a->seq, false);
		break;
	case CORE_ACT_RESTARTED:
		sim_restarted(s, e);
		break;
	case CORE_ACT_REPORT:
		sim_rma_report(s, e, a);
		break;
	case CORE_ACT_STATE:
		sim_trace(s, e, "traffic on lane %d", a->lane == CORE_LANE_NONE ? -1 : a->lane);
		break;
	case CORE_ACT_FAILOVER:
		e->failovers++;
		sim_trace(s, e, "failover of lane %d gen %u, %s, resent %u", f->lane, f->gen,
			core_reason_name(f->reason), f->resent);
		if (f->progress_ns && (f->resumed_ns < f->noticed_ns || f->progress_ns < f->resumed_ns))
			sim_fail(s, "end %d: failover record out of order", e->id);
		break;
	case CORE_ACT_UNREACHABLE:
	case CORE_ACT_REACHABLE:
		sim_trace(s, e, a->type == CORE_ACT_REACHABLE ? "reachable" : "unreachable");
		if (e->told_unreachable == (a->type == CORE_ACT_UNREACHABLE))
			sim_fail(s, "end %d: reachability told twice", e->id);
		e->told_unreachable = a->type == CORE_ACT_UNREACHABLE;
		break;
	default:
		break;
	}
}

/* Each death of a lane that was up must be told as a failover. */
static void count_deaths(struct sim_end *e)
{
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		const struct core_lane *ln = &e->link.lane[i];
		uint32_t up = ln->state == CORE_LANE_UP ? ln->gen : 0;

		e->deaths += e->up_gen[i] && e->up_gen[i] != up;
		e->up_gen[i] = up;
	}
}

void sim_node_run(struct sim *s, struct sim_end *e)
{
	struct core_act a;
	uint64_t next, pump;
	uint32_t n = e->as_n, guard = 0;
	bool more;

	if (s->now < s->busy_until[e->node] || s->now < s->down_until[e->node]) {
		sim_node_wake(s, e, s->busy_until[e->node] > s->down_until[e->node] ? s->busy_until[e->node] :
			s->down_until[e->node]);
		return;
	}
	if (s->busy_odds && !sim_below(s, s->busy_odds))
		s->busy_until[e->node] = s->now + sim_below(s, 100 * MS);
	more = drain(s, e);
	for (uint32_t i = 0; i < n && !s->failed; i++) {
		struct sim_async as = e->as[i];

		async(s, e, &as);
	}
	e->as_n -= n;
	memmove(e->as, e->as + n, e->as_n * sizeof(e->as[0]));
	app(s, e);
	while (!s->failed && core_link_poll(&e->link, can_send(e), s->now, &a) != CORE_ACT_NONE) {
		act(s, e, &a);
		if (++guard > 2000)
			sim_fail(s, "end %d: actions without end (last %d)", e->id, a.type);
	}
	pump = sim_rma_pump(s, e);
	next = sim_key_pump(s, e);
	pump = next < pump ? next : pump;
	count_deaths(e);
	next = core_link_deadline(&e->link);
	if (next <= s->now) {
		sim_fail(s, "end %d: deadline has passed after polling", e->id);
		return;
	}
	if (s->slow && s->busy_until[e->node] < s->now)
		s->busy_until[e->node] = s->now + 20 * US + sim_below(s, 100 * US);
	if (more)
		next = s->now + 1 * US;
	if (e->submitted < e->goal && e->app_at < next && core_link_room(&e->link))
		next = e->app_at;
	if (sim_key_waiting(e) && core_link_room(&e->link))
		next = s->now + 1 * US;
	if (pump < next)
		next = pump;
	if (next != CORE_NEVER)
		sim_node_wake(s, e, next);
}
