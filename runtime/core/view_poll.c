/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages in and out, timers, and the order in which actions are given out. */
#include "core/view_internal.h"

#include <string.h>

void view_msg(const struct core_view *v, struct core_view_msg *m, uint8_t type, uint16_t dst)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->src = v->cfg.self;
	m->dst = dst;
	m->via = CORE_VIEW_NONE;
	m->known = v->log_n;
	m->view = v->view;
}

static bool relays(const struct core_view *v, uint16_t node, uint16_t dst)
{
	return view_bit(v->member, node) && !view_bit(v->suspect, node) && node != v->cfg.self && node != dst;
}

/* The first that relays from dst + from on, upwards or downwards; dst: nobody does. */
static uint16_t relay_from(const struct core_view *v, uint16_t dst, uint16_t from, bool down)
{
	const uint16_t n = v->cfg.nodes;

	for (uint16_t i = 0; i < n; i++) {
		uint16_t off = (uint16_t)((from + i) % n);
		uint16_t node = (uint16_t)(((uint32_t)dst + (down ? n - off : off)) % n);

		if (relays(v, node, dst))
			return node;
	}
	return dst;
}

/*
 * Someone who can perhaps reach dst, another one each time: one of its neighbours, who watch it and so are in
 * contact with it, or of all. By lot, since messages of several kinds take turns: in order each kind would always
 * meet the same.
 */
static uint16_t relay_for(struct core_view *v, uint16_t dst)
{
	const uint64_t lot = view_mix(((uint64_t)v->cfg.self << 40) + ((uint64_t)dst << 20) + v->relays[dst]++);
	const uint64_t which = lot >> 8;

	if (lot & 1 || !v->cfg.watch)
		return relay_from(v, dst, (uint16_t)(which % v->cfg.nodes), false);
	return relay_from(v, dst, (uint16_t)(1 + which % v->cfg.watch), lot & 2);
}

static void put(struct core_view *v, uint16_t to, const struct core_view_msg *m)
{
	struct view_out *o = &v->ring[(v->out_head + v->out_n) % CORE_VIEW_OUT];

	if (v->out_n == CORE_VIEW_OUT)
		return;
	v->out_n++;
	v->spoken[to / 64] |= 1ull << (to % 64);
	o->to = to;
	o->msg = *m;
}

/* via: the way the question came; CORE_VIEW_NONE: straight, or round a path that is cut. */
void view_send(struct core_view *v, const struct core_view_msg *m, uint16_t via)
{
	if (via != CORE_VIEW_NONE && via != v->cfg.self && via < v->cfg.nodes)
		put(v, via, m);
	else if (view_bit(v->suspect, m->dst) && view_bit(v->member, m->dst))
		put(v, relay_for(v, m->dst), m);
	else
		put(v, m->dst, m);
}

static void relay(struct core_view *v, const struct core_view_msg *m)
{
	struct core_view_msg on = *m;

	if (m->flags & CORE_VIEW_F_RELAYED ||
		(view_bit(v->suspect, m->dst) && view_bit(v->member, m->dst)))
		return;
	on.flags |= CORE_VIEW_F_RELAYED;
	on.via = v->cfg.self;
	put(v, m->dst, &on);
}

static void tell_log(struct core_view *v, const struct core_view_msg *m)
{
	struct core_view_msg log;

	switch (m->type) {
	case CORE_VIEW_WAVE:
	case CORE_VIEW_SUSPECT:
	case CORE_VIEW_CHECK:
	case CORE_VIEW_HELP:
		break;
	default: /* an answer: it will hear of it */
		return;
	}
	if (m->known >= v->log_n)
		return;
	view_msg(v, &log, CORE_VIEW_LOG, m->src);
	view_log_put(v, &log, m->known);
	view_send(v, &log, m->via);
}

/* Behind the speaker: take what it brings, ask for the rest. False: still behind. */
static bool catch_up(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	struct core_view_msg help;

	if (m->type == CORE_VIEW_LOG || (m->type == CORE_VIEW_WAVE && m->phase == CORE_VIEW_BEAT))
		view_learn(v, m, now);
	if (m->view <= v->view || v->out)
		return !v->out;
	view_msg(v, &help, CORE_VIEW_HELP, m->src);
	view_send(v, &help, m->via);
	return false;
}

void core_view_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	struct core_view_msg alive;

	if (m->src >= v->cfg.nodes || m->dst >= v->cfg.nodes || m->src == v->cfg.self)
		return;
	/* We may be the last to know of the decision that removed us: others must hear of it. */
	if (v->out || !view_bit(v->member, m->src)) {
		if (m->view < v->view)
			tell_log(v, m);
		return;
	}
	if (m->dst != v->cfg.self) {
		relay(v, m);
		return;
	}
	view_doubt_heard(v, m->src, now);
	if (m->type == CORE_VIEW_CHECK) {
		view_msg(v, &alive, CORE_VIEW_ALIVE, m->src);
		view_send(v, &alive, m->via);
	}
	if (m->view > v->view && !catch_up(v, m, now))
		return;
	if (m->view < v->view) {
		tell_log(v, m);
		return;
	}
	if (!view_bit(v->member, m->src))
		return;
	switch (m->type) {
	case CORE_VIEW_WAVE:
		view_wave_rx(v, m, now);
		break;
	case CORE_VIEW_TALLY:
		view_tally_rx(v, m, now);
		break;
	case CORE_VIEW_NACK:
		view_nack_rx(v, m, now);
		break;
	case CORE_VIEW_GRANT:
		view_grant_rx(v, m, now);
		break;
	case CORE_VIEW_SUSPECT:
		view_suspect_rx(v, m, now);
		break;
	case CORE_VIEW_HOLD:
		view_doubt_held(v, now);
		break;
	default:
		break;
	}
}

static bool next_switch(struct core_view *v, uint64_t now, struct core_view_act *act)
{
	const uint16_t active = (uint16_t)(v->cfg.nodes - v->cfg.spares);
	bool found = false;

	if (v->switch_at > now)
		return false;
	v->switch_at = CORE_NEVER;
	for (uint16_t i = 0; i < v->cfg.spares; i++) {
		struct view_spare *s = &v->spare[i];

		if (!found && s->at <= now) {
			act->type = CORE_VIEW_ACT_SWITCH;
			act->node = (uint16_t)(active + i);
			act->index = s->index;
			act->incarnation = s->incarnation;
			s->at = CORE_NEVER;
			found = true;
		}
		v->switch_at = view_min(v->switch_at, s->at);
	}
	return found;
}

/* What others must know first: losses, then who has what, then whether we may act at all. */
static bool next_act(struct core_view *v, uint64_t now, struct core_view_act *act)
{
	if (v->act_view) {
		v->act_view = false;
		act->type = CORE_VIEW_ACT_VIEW;
		act->view = ++v->told_view;
		return true;
	}
	if (v->told_n < v->log_n) {
		uint16_t entry = v->log[v->told_n++];

		act->type = CORE_VIEW_ACT_LOST;
		act->node = entry & (uint16_t)~CORE_VIEW_END;
		act->index = core_view_index(v, act->node);
		act->view = v->told_view + 1;
		v->act_view = entry & CORE_VIEW_END;
		return true;
	}
	if (v->act_removed) {
		v->act_removed = false;
		act->type = CORE_VIEW_ACT_REMOVED;
		return true;
	}
	if (!v->out && v->act_stop) {
		v->act_stop = false;
		act->type = CORE_VIEW_ACT_PARTITIONED;
		return true;
	}
	if (!v->out && v->act_halt) {
		v->act_halt = false;
		act->type = CORE_VIEW_ACT_STOP;
		return true;
	}
	if (!v->out && !v->stopped && next_switch(v, now, act))
		return true;
	if (!v->out && v->act_active) {
		v->act_active = false;
		act->type = CORE_VIEW_ACT_ACTIVE;
		return true;
	}
	if (v->out_n) {
		act->type = CORE_VIEW_ACT_SEND;
		act->node = v->ring[v->out_head].to;
		act->msg = v->ring[v->out_head].msg;
		v->out_head = (uint8_t)((v->out_head + 1) % CORE_VIEW_OUT);
		v->out_n--;
		return true;
	}
	return false;
}

enum core_view_act_type core_view_poll(struct core_view *v, uint64_t now, struct core_view_act *act)
{
	memset(act, 0, offsetof(struct core_view_act, msg));
	act->index = CORE_VIEW_NONE;
	act->view = v->view;
	if (!v->out) {
		if (now - v->polled_at > v->cfg.check_ns)
			view_doubt_overslept(v, now);
		view_lease_woke(v, now);
		v->polled_at = now;
		view_doubt_tick(v, now);
		view_ballot_tick(v, now);
		view_beat_tick(v, now);
		view_wave_tick(v, now);
		view_lease_tick(v, now);
	}
	if (!next_act(v, now, act)) {
		act->type = CORE_VIEW_ACT_NONE;
		v->due_at = core_view_deadline(v);
	}
	return act->type;
}

uint64_t core_view_deadline(const struct core_view *v)
{
	uint64_t due;

	if (v->out)
		return CORE_NEVER;
	due = view_min(view_min(view_doubt_due(v), view_ballot_due(v)),
		view_min(view_wave_due(v), v->beat_at));
	return view_min(view_min(due, v->stopped ? CORE_NEVER : v->switch_at), view_lease_due(v));
}
