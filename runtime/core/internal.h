/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * internal.h - what the parts of the protocol share.
 *
 * link.c has the object, session.c the numbered frames, lanes.c the states of lanes and the control
 * messages, stall.c the doubts about a lane that makes no progress, poll.c the timers and what is
 * given out. Time is the caller's, in nanoseconds.
 */
#ifndef RCS_CORE_INTERNAL_H
#define RCS_CORE_INTERNAL_H

#include "core/link.h"

#define CORE_BIT(lane) ((uint8_t)(1u << (lane)))

/* A dead lane's local end is kept so long for the peer's word, then destroyed without it. */
#define CORE_DEAD_NS 2000000000ull

/*
 * Unnumbered frames outstanding on a lane: more are not given to a lane that makes no progress, or
 * they would all arrive at once in a receive queue that has few receives for them.
 */
#define CORE_ACKS_MAX  4u
#define CORE_PLAIN_MAX 8u

/*
 * ... and since the peer was heard on any lane: its device takes them while its daemon stands still, and
 * nobody posts the receives again that they use.
 */
#define CORE_UNHEARD_MAX 4u

/*
 * Explicit acks are bounded by tokens: a receiver that is busy must not find more unnumbered frames
 * in its receive queue than it posted for them. A quarter of a window earns one, time a few more.
 */
#define CORE_ACK_TOKENS   4u
#define CORE_ACK_TOKEN_NS 50000000ull

/* Probes: that many unanswered ones say that the path is silent; the first ones of a generation, and those
 * before an opening, are tried so often; so many rounds in vain, then the lane is opened without. */
#define CORE_UD_LOST   3u
#define CORE_UD_TRIES  4u
#define CORE_UD_ROUNDS 3u

/* What a frame counts for, among bytes. */
#define CORE_FRAME_BYTES 4096u

static inline bool core_lane_live(const struct core_lane *ln)
{
	return ln->state == CORE_LANE_OPENING || ln->state == CORE_LANE_SETUP ||
	       ln->state == CORE_LANE_UP;
}

static inline bool core_initiator(const struct core_link *l)
{
	return l->cfg.self < l->cfg.peer;
}

/* A socket has no receives to run out of. */
static inline bool core_unheard(const struct core_link *l, uint8_t lane)
{
	return lane != CORE_LANE_TCP && l->lane[lane].unheard >= CORE_UNHEARD_MAX;
}

static inline uint64_t core_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t core_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* session.c */
bool core_ack_in(struct core_link *l, uint64_t ack, uint64_t limit, uint64_t now);
void core_slots_release(struct core_link *l);
void core_slots_unpost(struct core_link *l, uint8_t lane);
void core_traffic_lost(struct core_link *l, uint8_t lane, uint64_t now);
void core_final_count(struct core_link *l, uint8_t lane, uint64_t count);
bool core_send_ready(const struct core_link *l, uint64_t now);
uint64_t core_ack_due(const struct core_link *l);
void core_ack_tick(struct core_link *l, uint64_t now);
void core_ack_told(struct core_link *l, uint8_t lane, bool explicit_ack);
void core_ack_force(struct core_link *l, uint64_t now);

/* link.c */
bool core_link_ended(const struct core_link *l);
void core_link_anew(struct core_link *l, uint64_t now);

/* lanes.c */
uint8_t core_lane_best(const struct core_link *l);
bool core_lane_draining(const struct core_link *l);
void core_lane_kill(struct core_link *l, uint8_t lane, enum core_reason why, uint64_t now);
uint64_t core_hold_of(const struct core_link *l, uint8_t lane, uint32_t fails);
void core_lane_down(struct core_link *l, uint8_t lane, uint64_t now);
void core_lane_open(struct core_link *l, uint8_t lane, uint64_t now);
bool core_lane_spoke(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now);
void core_lane_probed(struct core_link *l, uint8_t lane);

/* control.c */
void core_ctrl_fill(const struct core_link *l, struct core_ctrl *c, enum core_ctrl_type type,
	uint8_t lane, uint32_t gen);
void core_ctrl_take_req(struct core_link *l, uint8_t lane, uint64_t now);
void core_ctrl_dead(const struct core_link *l, struct core_ctrl *c, uint8_t lane, uint32_t gen);
void core_ctrl_reply(struct core_link *l, uint8_t on, const struct core_ctrl *c);
uint8_t core_ctrl_lane(const struct core_link *l, uint8_t avoid, uint8_t nth, uint32_t can_send);
uint64_t core_ctrl_due(const struct core_link *l, uint8_t lane);
uint64_t core_hold_due(const struct core_link *l, uint8_t lane);
uint64_t core_want_due(const struct core_link *l, uint8_t lane);

/* stall.c */
uint64_t core_stall_ask_due(const struct core_link *l, uint8_t lane);
uint64_t core_stall_verdict_due(const struct core_link *l, uint8_t lane);
void core_stall_tick(struct core_link *l, uint64_t now);
void core_stall_progress(struct core_link *l, uint8_t lane, uint32_t bytes, uint64_t now);
void core_stall_posted(struct core_link *l, uint8_t lane, uint32_t bytes, uint64_t now);
void core_stall_answered(struct core_link *l, uint8_t lane, uint64_t now);
void core_stall_overslept(struct core_link *l, uint64_t late);

/* probe.c */
bool core_probe_lost(const struct core_lane *ln);
uint64_t core_probe_due(const struct core_link *l, uint8_t lane);
uint64_t core_probe_gap(const struct core_link *l);
void core_probe_reset(struct core_link *l, uint8_t lane);
bool core_probe_first(struct core_link *l, uint8_t lane, uint64_t now);
bool core_probe_act(struct core_link *l, uint8_t lane, struct core_act *a, uint64_t now);

#endif
