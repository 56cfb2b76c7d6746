/* SPDX-License-Identifier: BSD-3-Clause */
/* Timers, and what is given out. */
#include "core/internal.h"

#include <stddef.h>
#include <string.h>

#define OVERSLEPT_NS 10000000ull

static bool path_up(const struct core_link *l)
{
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (l->lane[i].state == CORE_LANE_UP)
			return true;
	return false;
}

static uint64_t open_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	if (!l->wanted || l->ending || !ln->local_ok || ln->state != CORE_LANE_DOWN || ln->hold || ln->ud.now)
		return CORE_NEVER;
	if (lane != CORE_LANE_TCP && (!(l->lanes & CORE_BIT(lane)) || ln->absent || !core_initiator(l) || !path_up(l)))
		return CORE_NEVER;
	return ln->open_at;
}

static uint64_t alive_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	if (ln->state != CORE_LANE_UP || ln->posts || core_unheard(l, lane))
		return CORE_NEVER;
	return ln->probes_left ? 0 : ln->alive_at; /* probes follow each other */
}

static uint64_t close_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	if (ln->state != CORE_LANE_DEAD)
		return CORE_NEVER;
	return ln->heard || lane == CORE_LANE_TCP || l->ending ? ln->dead_at : ln->dead_at + CORE_DEAD_NS;
}

static void choose(struct core_link *l, uint64_t now)
{
	uint8_t best = core_lane_best(l);

	if (best != l->active && (l->active == CORE_LANE_NONE ||
				  (core_lane_draining(l) && l->acked == l->sent))) {
		l->active = best;
		l->act_state = true;
	}
	if (best != CORE_LANE_NONE) {
		l->no_lane_since = CORE_NEVER;
		if (l->unreachable) {
			l->unreachable = false;
			l->act_reachable = !l->act_unreachable;
			l->act_unreachable = false;
		}
	} else if (l->wanted) {
		if (l->no_lane_since == CORE_NEVER)
			l->no_lane_since = now;
		if (!l->unreachable && now - l->no_lane_since >= l->cfg.unreachable_ns) {
			l->unreachable = true;
			l->act_unreachable = !l->act_reachable;
			l->act_reachable = false;
		}
	}
}

static void failovers(struct core_link *l, uint64_t now)
{
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		struct core_lane *ln = &l->lane[i];

		if (!ln->fo_open || ln->fo_ready)
			continue;
		if (ln->fo.had_traffic && l->active != CORE_LANE_NONE && l->acked >= ln->fo_high) {
			/* Nothing was left to send again. */
			if (!ln->fo.resumed_ns) {
				ln->fo.resumed_ns = now;
				ln->fo.to_lane = l->active; /* the best one when it died may have died since */
			}
			if (!ln->fo.progress_ns)
				ln->fo.progress_ns = now;
		}
		if (!ln->fo.fenced_ns || (ln->fo.had_traffic && !ln->fo.progress_ns))
			continue;
		ln->fo_out = ln->fo;
		ln->fo_ready = true;
		ln->fo_open = false;
	}
}

static void tick(struct core_link *l, uint64_t now)
{
	if (now > l->polled_at + OVERSLEPT_NS) {
		uint64_t due = core_max(core_link_deadline(l), l->polled_at);

		if (now > due && now - due > OVERSLEPT_NS)
			core_stall_overslept(l, now - due);
	}
	l->polled_at = now;
	core_stall_tick(l, now);
	core_ack_tick(l, now);
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		if (open_due(l, i) <= now && !core_probe_first(l, i, now))
			core_lane_open(l, i, now);
		if (close_due(l, i) <= now)
			l->lane[i].act_close = true;
	}
	choose(l, now);
	failovers(l, now);
}

/* What lanes want done to themselves. */
static bool lane_act(struct core_link *l, uint8_t i, struct core_act *a, uint64_t now)
{
	struct core_lane *ln = &l->lane[i];

	a->lane = i;
	a->gen = ln->gen;
	a->reason = ln->reason;
	if (ln->act_fence) {
		ln->act_fence = false;
		a->type = CORE_ACT_FENCE;
	} else if (ln->act_close) {
		core_lane_down(l, i, now);
		a->type = CORE_ACT_CLOSE;
	} else if (ln->act_open) {
		ln->act_open = false;
		a->type = CORE_ACT_OPEN;
		if (i == CORE_LANE_TCP)
			a->gen++; /* the least that the handshake may agree on */
	} else if (ln->act_connect) {
		ln->act_connect = false;
		a->type = CORE_ACT_CONNECT;
		a->depth = l->depth_asked ? l->depth_want : l->depth;
		a->ctrl = ln->remote;
	} else if (ln->hold && ln->peers.valid && ln->peers.gen == ln->hold_gen) {
		ln->hold = false;
		a->type = CORE_ACT_REPORT;
		a->gen = ln->hold_gen;
		a->told = ln->peers.told;
		a->number = ln->peers.number;
	} else if (ln->fo_ready) {
		ln->fo_ready = false;
		a->type = CORE_ACT_FAILOVER;
		a->failover = ln->fo_out;
	} else if (l->back_mask & CORE_BIT(i)) {
		l->back_mask &= (uint8_t)~CORE_BIT(i);
		a->type = CORE_ACT_LANE_BACK;
	} else {
		return false;
	}
	return true;
}

static bool link_act(struct core_link *l, struct core_act *a, uint64_t now)
{
	if (core_link_ended(l)) {
		core_link_anew(l, now);
		a->type = CORE_ACT_RESTARTED;
		return true;
	}
	if (l->act_state) {
		l->act_state = false;
		a->type = CORE_ACT_STATE;
		a->lane = l->active;
		if (l->active != CORE_LANE_NONE)
			a->gen = l->lane[l->active].gen;
		return true;
	}
	if (l->act_unreachable) {
		l->act_unreachable = false;
		a->type = CORE_ACT_UNREACHABLE;
		return true;
	}
	if (l->act_reachable) {
		l->act_reachable = false;
		a->type = CORE_ACT_REACHABLE;
		return true;
	}
	if (!l->act_depth)
		return false;
	/* A lane that is being connected has posted the old number: let it come up first. */
	for (uint8_t i = 0; i < l->cfg.rails; i++)
		if (l->lane[i].connecting)
			return false;
	l->act_depth = false;
	l->depth_asked = true;
	a->type = CORE_ACT_DEPTH;
	a->depth = l->depth_want;
	return true;
}

static void ctrl_out(struct core_link *l, struct core_act *a, uint8_t on, uint64_t now)
{
	a->type = CORE_ACT_CTRL;
	a->lane = on;
	a->gen = l->lane[on].gen;
	core_stall_posted(l, on, CORE_FRAME_BYTES, now);
	l->lane[on].plain++;
	l->lane[on].unheard++;
	l->lane[on].alive_at = now + l->cfg.keepalive_ns;
}

static bool reply_act(struct core_link *l, uint32_t can_send, struct core_act *a, uint64_t now)
{
	uint8_t on;

	if (!l->reply_n)
		return false;
	on = l->reply_lane[0];
	if (on >= CORE_LANES || l->lane[on].state != CORE_LANE_UP || !(can_send & CORE_BIT(on)) ||
		core_unheard(l, on))
		on = core_ctrl_lane(l, CORE_LANE_NONE, 0, can_send);
	if (on == CORE_LANE_NONE)
		return false;
	a->ctrl = l->reply[0];
	l->reply_n--;
	memmove(l->reply, l->reply + 1, l->reply_n * sizeof(l->reply[0]));
	memmove(l->reply_lane, l->reply_lane + 1, l->reply_n);
	ctrl_out(l, a, on, now);
	return true;
}

static bool ctrl_act(struct core_link *l, uint8_t i, uint32_t can_send, struct core_act *a,
	uint64_t now)
{
	struct core_lane *ln = &l->lane[i];
	bool own = core_ctrl_due(l, i) <= now, want = core_want_due(l, i) <= now;
	bool ask = core_stall_ask_due(l, i) <= now, hold = core_hold_due(l, i) <= now;
	uint8_t on;

	if (!own && !want && !ask && !hold)
		return false;
	on = core_ctrl_lane(l, i, ln->tries, can_send);
	if (on == CORE_LANE_NONE)
		return false;
	if (own) {
		ln->ctrl_at = now + l->cfg.ctrl_ns;
		if (i != CORE_LANE_TCP && core_lane_live(ln)) {
			a->ctrl = ln->open;
			a->ctrl.count = l->rx;
		} else {
			core_ctrl_dead(l, &a->ctrl, i, ln->dead_gen);
		}
	} else if (hold) {
		ln->hold_ask_at = now + l->cfg.ctrl_ns;
		core_ctrl_dead(l, &a->ctrl, i, ln->hold_gen);
	} else if (want) {
		ln->want_at = now + l->cfg.hold_ns;
		ln->want_left--;
		core_ctrl_fill(l, &a->ctrl, CORE_CTRL_WANT, i, ln->gen);
		a->ctrl.flags = ln->want_back ? CORE_CTRL_F_BACK : 0;
	} else {
		if (!ln->asked_token)
			ln->ask_since = now;
		ln->asked_at = now;
		ln->asked_token = ++l->token;
		core_ctrl_fill(l, &a->ctrl, CORE_CTRL_PING, i, ln->gen);
		a->ctrl.token = ln->asked_token;
		ln->ud.ping_sent = ln->ud.sent;
	}
	ln->tries++;
	ctrl_out(l, a, on, now);
	return true;
}

static bool send_act(struct core_link *l, uint32_t can_send, struct core_act *a, uint64_t now)
{
	uint64_t seq = l->sent;

	if (!core_send_ready(l, now) || !(can_send & CORE_BIT(l->active)))
		return false;
	if (l->capped && l->cap_from == CORE_NEVER) {
		l->cap_from = seq;
		l->cap_win = core_max(1, l->limit - l->acked);
	}
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		struct core_lane *ln = &l->lane[i];

		if (!ln->fo_open || !ln->fo.had_traffic)
			continue;
		if (!ln->fo.resumed_ns) {
			ln->fo.resumed_ns = now;
			ln->fo.to_lane = l->active;
		}
		if (seq < ln->fo_high)
			ln->fo.resent++;
	}
	l->sent++;
	l->high = core_max(l->high, l->sent);
	l->resume_at = 0;
	l->posted[seq % CORE_SLOTS] |= CORE_BIT(l->active);
	a->type = CORE_ACT_SEND;
	a->lane = l->active;
	a->gen = l->lane[l->active].gen;
	a->seq = seq;
	core_stall_posted(l, l->active, CORE_FRAME_BYTES, now);
	l->lane[l->active].alive_at = now + l->cfg.keepalive_ns;
	core_ack_told(l, l->active, false);
	return true;
}

static bool ack_out(struct core_link *l, uint8_t on, struct core_act *a, uint64_t now)
{
	a->type = CORE_ACT_ACK;
	a->lane = on;
	a->gen = l->lane[on].gen;
	core_stall_posted(l, on, CORE_FRAME_BYTES, now);
	l->lane[on].plain++;
	l->lane[on].unheard++;
	l->lane[on].alive_at = now + l->cfg.keepalive_ns;
	core_ack_told(l, on, true);
	return true;
}

static bool ack_may(const struct core_link *l, uint8_t on, uint32_t can_send)
{
	return on < CORE_LANES && l->lane[on].state == CORE_LANE_UP && (can_send & CORE_BIT(on)) &&
	       l->lane[on].plain < CORE_ACKS_MAX && !core_unheard(l, on);
}

static bool ack_act(struct core_link *l, uint32_t can_send, struct core_act *a, uint64_t now)
{
	uint8_t pick[2 + CORE_LANES] = { l->rx_lane, l->active };

	for (uint8_t i = 0; i < CORE_LANES; i++)
		pick[2 + i] = i;
	if (core_ack_due(l) <= now)
		for (uint8_t i = 0; i < sizeof(pick); i++)
			if (ack_may(l, pick[i], can_send))
				return ack_out(l, pick[i], a, now);
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (alive_due(l, i) <= now && (can_send & CORE_BIT(i)))
			return ack_out(l, i, a, now);
	return false;
}

enum core_act_type core_link_poll(struct core_link *l, uint32_t can_send, uint64_t now,
	struct core_act *act)
{
	tick(l, now);
	memset(act, 0, offsetof(struct core_act, ctrl));
	act->lane = CORE_LANE_NONE;
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (lane_act(l, i, act, now))
			return act->type;
	act->reason = 0;
	act->gen = 0;
	act->lane = CORE_LANE_NONE;
	for (uint8_t i = 0; i < l->cfg.rails; i++)
		if (core_probe_act(l, i, act, now))
			return act->type;
	if (link_act(l, act, now) || reply_act(l, can_send, act, now))
		return act->type;
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (ctrl_act(l, i, can_send, act, now))
			return act->type;
	if (send_act(l, can_send, act, now) || ack_act(l, can_send, act, now))
		return act->type;
	return CORE_ACT_NONE;
}

/* What was due at the last poll and was not given out waits for an event, not for the clock. */
static void earliest(const struct core_link *l, uint64_t *least, uint64_t due)
{
	if (due > l->polled_at && due < *least)
		*least = due;
}

uint64_t core_link_deadline(const struct core_link *l)
{
	uint64_t least = CORE_NEVER;

	earliest(l, &least, core_ack_due(l));
	if (l->sent < l->next)
		earliest(l, &least, l->resume_at ? l->resume_at : CORE_NEVER);
	if (l->wanted && l->no_lane_since != CORE_NEVER && !l->unreachable)
		earliest(l, &least, l->no_lane_since + l->cfg.unreachable_ns);
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		earliest(l, &least, open_due(l, i));
		earliest(l, &least, close_due(l, i));
		earliest(l, &least, alive_due(l, i));
		earliest(l, &least, core_ctrl_due(l, i));
		earliest(l, &least, core_want_due(l, i));
		earliest(l, &least, core_hold_due(l, i));
		earliest(l, &least, core_stall_ask_due(l, i));
		earliest(l, &least, core_stall_verdict_due(l, i));
		earliest(l, &least, core_probe_due(l, i));
	}
	return least;
}
