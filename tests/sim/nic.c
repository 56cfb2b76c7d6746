/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RC queue pairs and sockets.
 *
 * A queue pair delivers in order, once, and keeps asking until the other NIC has acknowledged: a
 * frame may have arrived though its completion never comes, and until then the NIC reads the
 * frame's slot again for each retry. A socket copies, and completes when it has copied.
 */
#include "sim.h"

#include "core/psn.h"

static bool tcp(uint8_t lane)
{
	return lane == CORE_LANE_TCP;
}

static struct sim_end *other(struct sim *s, const struct sim_end *e)
{
	return &s->end[e->id ^ 1];
}

bool sim_path(const struct sim *s, const struct sim_end *from, uint8_t lane)
{
	return !s->cut[from->id][lane] && s->port[from->node][lane] && s->port[from->peer][lane];
}

/* A device gives the number of a queue pair that was destroyed to the next. */
static uint32_t free_qpn(const struct sim *s, const struct sim_end *e, uint8_t lane)
{
	for (uint32_t n = 1;; n++) {
		bool used = false;

		for (int i = 0; i < s->ends && !used; i++)
			used = i != e->id && s->end[i].node == e->node && s->end[i].qp[lane].qpn == n &&
				s->end[i].qp[lane].state != SIM_QP_NONE;
		if (!used)
			return n;
	}
}

void sim_qp_receives(struct sim_qp *q, uint32_t depth)
{
	if (!q->depth)
		q->rx = SIM_SLACK + 1;
	if (depth > q->depth) {
		q->rx += depth - q->depth;
		q->depth = depth;
	}
}

void sim_qp_make(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t gen, uint32_t uid)
{
	struct sim_qp *q = &e->qp[lane];

	q->state = SIM_QP_MADE;
	q->broken = false;
	q->gen = gen;
	q->uid = uid;
	q->remote = q->remote_qpn = 0;
	q->qpn = tcp(lane) ? 0 : free_qpn(s, e, lane);
	q->depth = q->rx = 0;
	q->sq_psn = sim_rma_psn0(uid);
	q->word = 0;
	q->want_word = false;
	q->snd = q->arr = q->cmp = q->done = 0;
	q->last_arrival = q->late_until = 0;
	q->good_at = s->now;
	q->xmit_at = CORE_NEVER;
	q->any_seq = false;
	q->in_head = q->in_tail = q->in_data = 0;
}

static void xmit_at(struct sim *s, struct sim_end *e, uint8_t lane, uint64_t t)
{
	struct sim_qp *q = &e->qp[lane];

	if (t >= q->xmit_at && q->xmit_at > s->now)
		return;
	q->xmit_at = t;
	sim_at(s, t, (struct sim_ev){ .type = SIM_EV_XMIT, .end = (int16_t)e->id, .lane = lane,
			     .gen = q->uid });
}

void sim_qp_post(struct sim *s, struct sim_end *e, uint8_t lane, struct sim_msg m)
{
	struct sim_qp *q = &e->qp[lane];
	uint64_t t = s->now + 2 * US + sim_below(s, s->delay_max[lane]);

	if (q->snd - q->done >= SIM_RING) {
		sim_fail(s, "end %d lane %d: send queue overrun", e->id, lane);
		return;
	}
	for (int i = 0; i < 2 && s->lossy && !tcp(lane) && sim_chance(s, 3); i++)
		t += 60 * MS + sim_below(s, 20 * MS);
	if (t < q->last_arrival)
		t = q->last_arrival;
	q->last_arrival = t;
	m.at = t;
	if (m.type < SIM_PUT)
		m.packets = 1;
	q->sq_psn = core_psn_add(q->sq_psn, m.packets);
	if (q->cmp == q->snd)
		q->good_at = s->now;
	q->out[q->snd++ % SIM_RING] = m;
	if (tcp(lane)) {
		/* Written to the socket's buffer. */
		sim_at(s, s->now + sim_below(s, 20 * US),
			(struct sim_ev){ .type = SIM_EV_COMPLETE, .end = (int16_t)e->id,
				.lane = lane, .gen = q->uid, .n = q->snd });
	}
	xmit_at(s, e, lane, t);
}

/* The NIC reads the slots of what is not acknowledged. */
static void reread(struct sim *s, const struct sim_end *e, uint8_t lane)
{
	const struct sim_qp *q = &e->qp[lane];

	for (uint32_t i = q->cmp; i < q->arr; i++) {
		const struct sim_msg *m = &q->out[i % SIM_RING];

		if (m->type == SIM_DATA &&
			e->slot[m->seq % CORE_SLOTS] != sim_content(e->node, e->peer, m->seq))
			sim_fail(s, "end %d lane %d: slot of frame %llu written before its NIC was done",
				e->id, lane, (unsigned long long)m->seq);
	}
}

/* Packets name the queue pair they are for by its number alone. */
static bool accepts(struct sim *s, const struct sim_end *e, uint8_t lane)
{
	const struct sim_qp *q = &e->qp[lane], *p = &s->end[e->id ^ 1].qp[lane];
	bool same = p->uid == q->remote && p->remote == q->uid;
	bool on = p->state == SIM_QP_READY || (p->state == SIM_QP_FENCING && s->now < p->late_until);

	if (p->broken || !on || (tcp(lane) ? !same : p->qpn != q->remote_qpn))
		return false;
	if (!same)
		sim_fail(s, "end %d lane %d: sends to a queue pair that is gone, and another has its number",
			e->id, lane);
	return same;
}

/* The packets of a put, get or ledger write; false: not all of them. */
static bool arrive_packets(struct sim *s, struct sim_end *e, uint8_t lane)
{
	struct sim_qp *q = &e->qp[lane], *p = &other(s, e)->qp[lane];
	struct sim_msg *m = &q->out[q->arr % SIM_RING];
	uint32_t n = m->packets;

	sim_key_touch(s, e, m);
	if (n > 1 && sim_chance(s, 20))
		n = 1 + (uint32_t)sim_below(s, n - 1);
	p->rq_psn = core_psn_add(p->rq_psn, n);
	m->packets -= n;
	q->good_at = s->now;
	if (m->packets)
		return false;
	sim_rma_run(s, e, lane, m);
	q->arr++;
	return true;
}

/*
 * The bytes of a frame are those that stand in its slot now. A frame that has gone again on another lane has that
 * one's header, and its sum does not fit when it is read meanwhile.
 */
static void read_slot(struct sim *s, const struct sim_end *e, struct sim_msg *m)
{
	uint32_t i = m->seq % CORE_SLOTS;

	m->content = e->slot[i];
	if (m->gen == e->slot_head[i].gen)
		return;
	m->torn = sim_chance(s, 30);
	m->gen = e->slot_head[i].gen;
	m->ack = e->slot_head[i].ack;
	m->limit = e->slot_head[i].limit;
	s->rewritten++;
}

static bool arrive(struct sim *s, struct sim_end *e, uint8_t lane)
{
	struct sim_qp *q = &e->qp[lane];
	struct sim_end *pe = other(s, e);
	struct sim_qp *p = &pe->qp[lane];
	struct sim_msg m = q->out[q->arr % SIM_RING];

	if (m.type >= SIM_PUT)
		return arrive_packets(s, e, lane);
	if (tcp(lane)) {
		if (p->in_tail - p->in_head >= SIM_RING)
			return false;
	} else {
		/* A queue pair that is being fenced gets no new ones: there it may wait. */
		if (!p->rx && p->state == SIM_QP_FENCING)
			return false;
		s->markers += p->rx == 1;
		/* One frame of data may use the reserve: see cap_* in core/link.h. */
		if ((p->rx <= 1 && p->state == SIM_QP_READY) || (m.type == SIM_DATA && p->in_data > p->depth)) {
			sim_fail(s, "end %d lane %d: receives overrun, the marker is taken (%u hold data, %u "
				"others)", pe->id, lane, p->in_data, p->in_tail - p->in_head - p->in_data);
			return false;
		}
		p->rx--;
		if (m.type == SIM_DATA)
			read_slot(s, e, &m);
	}
	p->rq_psn = core_psn_add(p->rq_psn, 1);
	p->in[p->in_tail++ % SIM_RING] = m;
	p->in_data += m.type == SIM_DATA;
	q->arr++;
	q->good_at = s->now;
	sim_node_wake(s, pe, s->now + sim_below(s, 10 * US));
	return true;
}

void sim_qp_break(struct sim *s, struct sim_end *e, uint8_t lane, enum core_reason why,
	uint64_t delay)
{
	struct sim_qp *q = &e->qp[lane];

	if (q->broken || (q->state != SIM_QP_READY && q->state != SIM_QP_MADE))
		return;
	q->broken = true;
	sim_async_at(s, e, s->now + delay,
		(struct sim_async){ .type = SIM_AS_ERROR, .lane = lane, .gen = q->gen,
			.reason = (uint8_t)why });
}

void sim_qp_service(struct sim *s, struct sim_end *e, uint8_t lane)
{
	struct sim_qp *q = &e->qp[lane];
	struct sim_end *pe = other(s, e);
	const struct sim_qp *p = &pe->qp[lane];
	bool there = sim_path(s, e, lane), back = sim_path(s, pe, lane);
	uint64_t t;

	q->xmit_at = CORE_NEVER;
	if (q->broken || (q->state != SIM_QP_READY && q->state != SIM_QP_FENCING))
		return;
	if (!tcp(lane))
		reread(s, e, lane);
	while (!s->failed && q->arr < q->snd && there && q->out[q->arr % SIM_RING].at <= s->now &&
		accepts(s, e, lane) && arrive(s, e, lane))
		;
	if (tcp(lane)) {
		if (q->arr == q->snd)
			return;
		bool open = p->uid == q->remote && !p->broken &&
			    (p->state == SIM_QP_READY || p->state == SIM_QP_FENCING);
		bool soon = pe->trying && pe->try_uid * 2 == q->remote;

		if (there && back && !open && !soon) {
			if (q->state == SIM_QP_READY)
				sim_qp_break(s, e, lane, CORE_R_SOCKET, sim_below(s, MS));
			return;
		}
	} else if (there && back && q->cmp < q->arr && accepts(s, e, lane)) {
		sim_at(s, s->now + 2 * US + sim_below(s, s->delay_max[lane]),
			(struct sim_ev){ .type = SIM_EV_COMPLETE, .end = (int16_t)e->id,
				.lane = lane, .gen = q->uid, .n = q->arr });
		q->good_at = s->now;
	}
	if (!tcp(lane) && q->cmp == q->snd)
		return;
	if (s->now - q->good_at > s->retry_ns) {
		if (q->state == SIM_QP_READY)
			sim_qp_break(s, e, lane, tcp(lane) ? CORE_R_SOCKET : CORE_R_COMPLETION,
				sim_below(s, MS));
		return;
	}
	t = s->now + 1 * MS + sim_below(s, 8 * MS);
	if (q->arr < q->snd && q->out[q->arr % SIM_RING].at > s->now)
		t = q->out[q->arr % SIM_RING].at;
	xmit_at(s, e, lane, t);
}

void sim_qp_acked(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t n)
{
	struct sim_qp *q = &e->qp[lane];

	if (n <= q->cmp)
		return;
	q->cmp = n;
	sim_node_wake(s, e, s->now + sim_below(s, 5 * US));
}

/* A datagram: it arrives once, or not. */
void sim_probe(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t token, bool answer)
{
	struct sim_end *pe = other(s, e);
	unsigned int waiting = 0;

	for (int i = 0; i < s->ends; i++)
		for (uint32_t k = 0; s->end[i].node == pe->node && k < s->end[i].as_n; k++)
			waiting += s->end[i].as[k].type == SIM_AS_PROBE || s->end[i].as[k].type == SIM_AS_PROBED;
	if (!sim_path(s, e, lane) || sim_chance(s, s->probe_loss) || waiting >= s->ud_room)
		return;
	sim_async_at(s, pe, s->now + 2 * US + sim_below(s, s->delay_max[lane]),
		(struct sim_async){ .type = answer ? SIM_AS_PROBED : SIM_AS_PROBE, .lane = lane,
			.gen = token });
}

void sim_tcp_connect(struct sim *s, struct sim_end *e, uint32_t gen)
{
	e->trying = true;
	e->try_gen = gen;
	e->try_uid = ++s->uid;
	sim_at(s, s->now + 10 * US + sim_below(s, 500 * US),
		(struct sim_ev){ .type = SIM_EV_SYN, .end = (int16_t)e->id, .gen = gen,
			.n = e->try_uid });
	/* The connect's time limit. */
	sim_async_at(s, e, s->now + 200 * MS + sim_below(s, SEC),
		(struct sim_async){ .type = SIM_AS_ERROR, .lane = CORE_LANE_TCP,
			.gen = gen - (uint32_t)sim_below(s, 2), .uid = e->try_uid, .reason = CORE_R_SETUP });
}

void sim_tcp_syn(struct sim *s, struct sim_end *e, uint32_t gen, uint32_t uid)
{
	struct sim_end *pe = other(s, e);

	if (!sim_path(s, e, CORE_LANE_TCP) || !sim_path(s, pe, CORE_LANE_TCP))
		return; /* it times out */
	sim_async_at(s, pe, s->now,
		(struct sim_async){ .type = SIM_AS_ACCEPT, .lane = CORE_LANE_TCP, .gen = gen,
			.uid = uid, .inc = s->inc[e->node] });
}
