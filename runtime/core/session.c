/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbered frames: counting, acknowledging, keeping slots until they may be written again. */
#include "core/internal.h"

/* A peer that moves two windows within this time is given the large one. */
#define BURST_NS 10000000ull

void core_slots_release(struct core_link *l)
{
	while (l->tail < l->acked && !l->posted[l->tail % CORE_SLOTS])
		l->tail++;
}

void core_slots_unpost(struct core_link *l, uint8_t lane)
{
	for (uint32_t i = 0; i < CORE_SLOTS; i++)
		l->posted[i] &= (uint8_t)~CORE_BIT(lane);
	core_slots_release(l);
}

static void cap_lift(struct core_link *l)
{
	if (!l->capped || l->cap_wait)
		return;
	/*
	 * Beyond the dead lanes' last count only frames of the new lane are counted, and a lane is
	 * in order: the copies before them have been taken out of its receives.
	 */
	if (l->cap_from == CORE_NEVER || l->cap_from >= l->cap_count || l->acked > l->cap_count)
		l->capped = false;
}

bool core_ack_in(struct core_link *l, uint64_t ack, uint64_t limit, uint64_t now)
{
	if (ack > l->high)
		return false; /* a count of frames that were never sent */
	if (limit > l->limit)
		l->limit = limit;
	if (ack <= l->acked)
		return true;
	l->acked = ack;
	if (l->sent < ack)
		l->sent = ack;
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		struct core_lane *ln = &l->lane[i];

		if (ln->fo_open && ln->fo.resumed_ns && !ln->fo.progress_ns)
			ln->fo.progress_ns = now;
	}
	core_slots_release(l);
	cap_lift(l);
	return true;
}

/* The lane that carried our data is dead: continue from what the peer counted. */
void core_traffic_lost(struct core_link *l, uint8_t lane, uint64_t now)
{
	l->active = CORE_LANE_NONE;
	l->act_state = true;
	l->sent = l->acked;
	if (l->acked == l->high) {
		l->capped = false;
		l->cap_wait = 0;
		l->cap_count = 0;
		l->resume_at = 0;
		return;
	}
	if (!l->capped)
		l->cap_count = 0;
	l->capped = true;
	l->cap_wait |= CORE_BIT(lane);
	l->cap_from = CORE_NEVER;
	l->resume_at = now + l->cfg.ask_ns;
}

/* The peer takes nothing more from that dead lane; it had delivered `count` frames by then. */
void core_final_count(struct core_link *l, uint8_t lane, uint64_t count)
{
	if (!(l->cap_wait & CORE_BIT(lane)))
		return;
	l->cap_wait &= (uint8_t)~CORE_BIT(lane);
	l->cap_count = core_max(l->cap_count, count);
	if (!l->cap_wait)
		l->resume_at = 0;
	cap_lift(l);
}

bool core_send_ready(const struct core_link *l, uint64_t now)
{
	uint64_t end = core_min(l->next, l->limit);

	if (l->active == CORE_LANE_NONE || now < l->resume_at || core_lane_draining(l))
		return false;
	/* A socket has no receives to overrun. */
	if (l->capped && l->cap_from != CORE_NEVER && l->active != CORE_LANE_TCP) {
		uint64_t cap = l->cap_from + l->cap_win;

		/* The frame that shows the end of the copies; it uses a receive of the reserve. */
		if (!l->cap_wait)
			cap = core_max(cap, l->cap_count + 1);
		end = core_min(end, cap);
	}
	return l->sent < end;
}

static bool ack_wanted(const struct core_link *l)
{
	return l->rx != l->rx_told || l->ack_again || l->ack_force;
}

uint64_t core_ack_due(const struct core_link *l)
{
	if (!ack_wanted(l))
		return CORE_NEVER;
	if (!l->ack_force && !l->ack_tokens)
		return core_max(l->ack_at, l->ack_token_at + CORE_ACK_TOKEN_NS);
	return l->ack_at;
}

void core_ack_tick(struct core_link *l, uint64_t now)
{
	if (now >= l->ack_token_at + CORE_ACK_TOKEN_NS) {
		l->ack_token_at = now;
		if (l->ack_tokens < CORE_ACK_TOKENS)
			l->ack_tokens++;
	}
}

void core_ack_told(struct core_link *l, uint8_t lane, bool explicit_ack)
{
	if (explicit_ack && !l->ack_force && l->ack_tokens)
		l->ack_tokens--;
	if (l->ack_lane != lane)
		l->told_else = l->rx + l->depth;
	if (explicit_ack)
		l->ack_lane = lane;
	l->rx_told = l->rx;
	l->ack_again = l->ack_force = false;
	l->ack_at = CORE_NEVER;
}

void core_ack_force(struct core_link *l, uint64_t now)
{
	l->ack_force = true;
	l->ack_at = core_min(l->ack_at, now);
}

static void delivered(struct core_link *l, uint64_t now)
{
	uint64_t every = core_min(l->cfg.ack_every, (l->depth + 1u) / 2);

	/*
	 * Frames beyond what other lanes have allowed show that the peer takes what comes on the lane of the acks: it
	 * may serve its lanes in any order, and one of them late.
	 */
	if (l->rx++ >= l->told_else && ++l->ack_frames * 4u >= l->depth) {
		l->ack_frames = 0;
		if (l->ack_tokens < CORE_ACK_TOKENS)
			l->ack_tokens++;
	}
	if (l->rx - l->rx_told >= every)
		l->ack_at = core_min(l->ack_at, now);
	else
		l->ack_at = core_min(l->ack_at, now + l->cfg.ack_ns);

	if (now - l->burst_at > BURST_NS) {
		l->burst_at = now;
		l->burst_rx = l->rx;
	} else if (l->depth_want < l->cfg.depth && now >= l->depth_at && l->rx - l->burst_rx >= 2u * l->depth) {
		l->depth_want = l->cfg.depth;
		l->act_depth = true;
	}
}

enum core_verdict core_link_rx(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t seq,
	uint64_t ack, uint64_t limit, uint64_t now)
{
	bool sane = core_ack_in(l, ack, limit, now);

	if (!core_lane_spoke(l, lane, gen, now))
		return CORE_RX_STALE;
	if (!sane || seq > l->rx) {
		core_lane_kill(l, lane, CORE_R_PROTOCOL, now);
		return CORE_RX_BAD;
	}
	if (lane == CORE_LANE_TCP)
		core_final_count(l, lane, ack);
	l->rx_lane = lane;
	if (seq < l->rx) {
		/* The peer does not know our count. */
		l->ack_again = true;
		l->ack_at = core_min(l->ack_at, now + l->cfg.ack_ns);
		return CORE_RX_DUP;
	}
	delivered(l, now);
	return CORE_RX_DELIVER;
}

void core_link_rx_ack(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t ack,
	uint64_t limit, uint64_t now)
{
	bool sane = core_ack_in(l, ack, limit, now);

	if (!core_lane_spoke(l, lane, gen, now))
		return;
	if (!sane)
		core_lane_kill(l, lane, CORE_R_PROTOCOL, now);
	else if (lane == CORE_LANE_TCP)
		/* A new connection: the peer had closed the one before when it sent this. */
		core_final_count(l, lane, ack);
}

void core_link_posted(struct core_link *l, uint8_t lane, uint32_t bytes, uint64_t now)
{
	if (lane < CORE_LANES)
		core_stall_posted(l, lane, bytes, now);
}

static bool counts(const struct core_lane *ln, uint32_t gen)
{
	return ln->gen == gen && ln->state >= CORE_LANE_UP && ln->state != CORE_LANE_DEAD;
}

void core_link_done(struct core_link *l, uint8_t lane, uint32_t gen, uint32_t bytes, uint64_t now)
{
	if (lane < CORE_LANES && counts(&l->lane[lane], gen))
		core_stall_progress(l, lane, bytes, now);
}

void core_link_completed(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t seq,
	uint64_t now)
{
	struct core_lane *ln;

	if (lane >= CORE_LANES)
		return;
	ln = &l->lane[lane];
	if (!counts(ln, gen))
		return;
	if (seq != CORE_NEVER && seq >= l->tail && seq < l->next) {
		l->posted[seq % CORE_SLOTS] &= (uint8_t)~CORE_BIT(lane);
		core_slots_release(l);
	}
	core_stall_progress(l, lane, CORE_FRAME_BYTES, now);
	if (seq == CORE_NEVER) {
		if (ln->plain)
			ln->plain--;
		core_lane_probed(l, lane);
	}
}

void core_link_depth_done(struct core_link *l, uint64_t now)
{
	if (!l->depth_asked)
		return;
	l->depth_asked = false;
	l->depth = l->depth_want;
	core_ack_force(l, now);
}

void core_link_depth_failed(struct core_link *l, uint64_t now)
{
	l->depth_asked = false;
	l->depth_want = l->depth;
	l->depth_at = now + l->cfg.hold_max_ns;
}
