/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of lanes: opening, death, coming back. */
#include "core/internal.h"

#include <string.h>

/* How far down the list of lanes to carry frames it is. */
static unsigned place(const struct core_link *l, uint8_t lane)
{
	uint8_t rails = l->cfg.rails;

	return lane < rails ? (lane + rails - l->cfg.first % rails) % rails : lane;
}

uint8_t core_lane_best(const struct core_link *l)
{
	uint8_t best = CORE_LANE_NONE;

	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (l->lane[i].usable && (best == CORE_LANE_NONE || place(l, i) < place(l, best)))
			best = i;
	return best;
}

/*
 * A better lane waits until all that was sent on the present one is acknowledged. While copies of
 * frames may still lie in receives (capped) there is nothing to gain from haste, and the frame that
 * ends this state may have to be sent first.
 */
bool core_lane_draining(const struct core_link *l)
{
	uint8_t best = core_lane_best(l);

	return l->active != CORE_LANE_NONE && !l->capped && best != CORE_LANE_NONE &&
		place(l, best) < place(l, l->active);
}

uint64_t core_hold_of(const struct core_link *l, uint8_t lane, uint32_t fails)
{
	uint64_t hold, most;

	if (!fails)
		return 0;
	if (lane == CORE_LANE_TCP) {
		/* It may be the only way left, and a connect costs little. */
		hold = l->cfg.ctrl_ns;
		most = core_max(l->cfg.hold_ns, hold);
	} else {
		hold = l->cfg.hold_ns;
		most = l->cfg.hold_max_ns;
	}
	for (uint32_t i = 1; i < fails && hold < most; i++)
		hold *= 2;
	return core_min(hold, most);
}

static void failover_begin(struct core_link *l, uint8_t lane, enum core_reason why, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	if (ln->fo_open && !ln->fo_ready) { /* died again before traffic flowed: two records */
		ln->fo_out = ln->fo;
		ln->fo_ready = true;
	}
	memset(&ln->fo, 0, sizeof(ln->fo));
	ln->fo.lane = lane;
	ln->fo.to_lane = CORE_LANE_NONE;
	ln->fo.reason = (uint8_t)why;
	ln->fo.asked = ln->asked_at;
	ln->fo.answered = ln->answered;
	ln->fo.probe = ln->ud.answered	     ? CORE_PROBE_ANSWERED :
		       core_probe_lost(ln) ? CORE_PROBE_LOST :
					     CORE_PROBE_NONE;
	ln->fo.had_traffic = l->active == lane;
	ln->fo.gen = ln->gen;
	ln->fo.last_good_ns = ln->progress_at;
	ln->fo.noticed_ns = now;
	ln->fo_high = l->high;
	ln->fo_open = true;
}

/* What a death leaves for the way back. */
static void hold_down(struct core_link *l, uint8_t lane, enum core_reason why, bool was_up,
	uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];
	uint64_t hold;

	ln->ud.first = ln->ud.ever && (why == CORE_R_SILENT || why == CORE_R_COMPLETION || why == CORE_R_PEER);
	ln->ud.now = false;
	if (why == CORE_R_REQUEST) { /* the lane is well, a request was not */
		ln->open_at = ln->hold_at = now;
		return;
	}
	if (was_up && now - ln->up_at >= core_hold_of(l, lane, ln->fails))
		ln->fails = 0;
	ln->fails++;
	hold = core_hold_of(l, lane, ln->fails);
	ln->hold_at = now + hold;
	ln->open_at = ln->hold_at;
	if (lane == CORE_LANE_TCP && !core_initiator(l))
		ln->open_at += l->cfg.ctrl_ns / 2;
	ln->need_probe = lane != CORE_LANE_TCP;
}

void core_lane_kill(struct core_link *l, uint8_t lane, enum core_reason why, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];
	bool was_up = ln->state == CORE_LANE_UP;
	bool made = !(ln->state == CORE_LANE_OPENING && ln->act_open);

	if (!core_lane_live(ln))
		return;
	/* Does the peer have anything under this generation that it must give up? */
	if (lane == CORE_LANE_TCP ? was_up : !core_initiator(l) || ln->open.type) {
		ln->heard = false;
		ln->dead_gen = ln->gen;
	}
	ln->reason = (uint8_t)why;
	ln->dead_flags = 0;
	if (why == CORE_R_SILENT || why == CORE_R_COMPLETION)
		ln->dead_flags = (ln->asked_at && !ln->answered ? CORE_CTRL_F_MUTE : 0) |
				 (ln->ud.answered ? CORE_CTRL_F_ECHO : 0);
	if (was_up)
		failover_begin(l, lane, why, now);
	hold_down(l, lane, why, was_up, now);
	ln->was_lost |= was_up;
	ln->usable = ln->early = ln->connecting = ln->req_waiting = false;
	ln->act_open = ln->act_connect = false;
	ln->answered = false;
	ln->open.type = 0;
	ln->ctrl_at = now;
	ln->tries = 0;
	if (made) {
		ln->state = CORE_LANE_FENCING;
		ln->act_fence = true;
	} else {
		core_lane_down(l, lane, now);
	}
	if (l->active == lane) {
		core_traffic_lost(l, lane, now);
		ln->fo.to_lane = core_lane_best(l);
	}
	/* What we told on that lane may not have arrived. */
	core_ack_force(l, now);
}

void core_lane_down(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	ln->state = CORE_LANE_DOWN;
	ln->act_close = ln->act_fence = false;
	if (ln->req_waiting) {
		ln->req_waiting = false;
		if (!ln->hold) /* else it is asked again, and taken after the report */
			core_ctrl_take_req(l, lane, now);
	}
}

static void fenced(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	core_slots_unpost(l, lane);
	ln->posts = ln->plain = 0;
	ln->bytes = 0;
	/* A generation that was never connected executed nothing: the last one's report stays. */
	if (ln->connected)
		ln->mine = (struct core_report){.valid = true, .gen = ln->gen, .number = ln->said.number,
			.told = ln->said.gen == ln->gen ? ln->said.told : CORE_TOLD_NOTHING};
	ln->connected = false;
	if (ln->owed) {
		struct core_ctrl c;

		core_ctrl_dead(l, &c, lane, ln->gen);
		c.token = 1;
		core_ctrl_reply(l, CORE_LANE_TCP, &c);
	}
	ln->owed = false;
	if (!ln->heard)
		ln->ctrl_at = now;
	ln->act_fence = false;
	ln->state = CORE_LANE_DEAD;
	ln->dead_at = now;
	if (ln->fo_open && !ln->fo.fenced_ns)
		ln->fo.fenced_ns = now;
}

void core_link_report(struct core_link *l, uint8_t lane, uint32_t gen, enum core_told told,
	uint32_t number)
{
	if (lane < CORE_LANES)
		l->lane[lane].said = (struct core_report){
			.valid = true, .told = (uint8_t)told, .gen = gen, .number = number};
}

void core_link_hold(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	ln->hold = true;
	ln->hold_gen = gen;
	/* Its LANE_DEAD has been said; the answer may be on its way. */
	ln->hold_ask_at = now + l->cfg.ask_ns;
}

void core_link_fenced(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now)
{
	if (lane < CORE_LANES && l->lane[lane].gen == gen &&
		l->lane[lane].state == CORE_LANE_FENCING)
		fenced(l, lane, now);
}

void core_lane_open(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	/* A connection's generation is agreed by its handshake and comes with core_link_lane_up(). */
	if (lane != CORE_LANE_TCP)
		ln->gen++;
	ln->state = CORE_LANE_OPENING;
	ln->act_open = true;
	ln->act_close = false;
	ln->early = ln->connecting = ln->connected = false;
	ln->ud.now = false;
	ln->open.type = 0;
	ln->tries = 0;
	ln->ctrl_at = now;
}

static void lane_up(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	ln->state = CORE_LANE_UP;
	ln->connected = true;
	ln->up_at = ln->progress_at = now;
	ln->asked_at = 0;
	ln->answered = false;
	ln->ud = (struct core_ud){.ever = ln->ud.ever, .floor = l->token};
	ln->posts = ln->plain = ln->unheard = 0;
	ln->bytes = ln->pace = 0;
	ln->naks = 0;
	ln->want_back = false;
	ln->heard = true; /* whatever was before: it opened a newer one */
	ln->connecting = false;
	ln->probes_left = ln->need_probe ? l->cfg.probes : 0;
	/* At once: the peer learns that the lane works both ways, and our limit. */
	ln->alive_at = now;
	if (!ln->probes_left)
		core_lane_probed(l, lane);
	for (uint8_t i = 0; i < l->cfg.rails; i++) {
		l->lane[i].want_left = 3;
		l->lane[i].want_at = now + l->cfg.ctrl_ns;
	}
	core_ack_force(l, now);
}

/* A probe completed (or none is needed). */
void core_lane_probed(struct core_link *l, uint8_t lane)
{
	struct core_lane *ln = &l->lane[lane];

	if (ln->state != CORE_LANE_UP || ln->usable)
		return;
	if (ln->probes_left && --ln->probes_left)
		return;
	ln->usable = true;
	ln->need_probe = false;
	if (ln->was_lost)
		l->back_mask |= CORE_BIT(lane);
	ln->was_lost = false;
}

/* A frame came on the lane. Does this generation still count? */
bool core_lane_spoke(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now)
{
	struct core_lane *ln;

	if (lane >= CORE_LANES)
		return false;
	ln = &l->lane[lane];
	if (ln->gen != gen)
		return false;
	for (uint8_t i = 0; i < l->cfg.rails; i++)
		l->lane[i].unheard = 0;
	if (ln->state == CORE_LANE_UP)
		return true;
	if (ln->state == CORE_LANE_SETUP) {
		lane_up(l, lane, now); /* as good as OPEN_DONE */
		return true;
	}
	if (ln->state == CORE_LANE_OPENING && ln->connecting && !core_initiator(l)) {
		ln->early = true;
		return true;
	}
	return false;
}

void core_link_opened(struct core_link *l, uint8_t lane, uint32_t gen,
	const uint8_t blob[CORE_BLOB], uint64_t now)
{
	struct core_lane *ln;

	if (lane >= CORE_LANE_TCP)
		return;
	ln = &l->lane[lane];
	if (ln->state != CORE_LANE_OPENING || ln->gen != gen || ln->open.type)
		return;
	core_ctrl_fill(l, &ln->open,
		core_initiator(l) ? CORE_CTRL_OPEN_REQ : CORE_CTRL_OPEN_ACK, lane, gen);
	memcpy(ln->open.blob, blob, CORE_BLOB);
	ln->ctrl_at = now;
	ln->tries = 0;
	if (!core_initiator(l))
		ln->act_connect = ln->connecting = ln->connected = true;
}

void core_link_connected(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now)
{
	struct core_lane *ln;
	struct core_ctrl done;

	if (lane >= CORE_LANE_TCP)
		return;
	ln = &l->lane[lane];
	if (ln->state != CORE_LANE_OPENING || ln->gen != gen || !ln->connecting)
		return;
	if (core_initiator(l)) {
		lane_up(l, lane, now);
		core_ctrl_fill(l, &done, CORE_CTRL_OPEN_DONE, lane, gen);
		core_ctrl_reply(l, CORE_LANE_TCP, &done);
		return;
	}
	ln->connecting = false;
	ln->state = CORE_LANE_SETUP;
	ln->ctrl_at = now;
	ln->tries = 0;
	if (ln->early)
		lane_up(l, lane, now);
}

void core_link_lane_up(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane < CORE_LANES ? lane : 0];

	if (lane != CORE_LANE_TCP || gen <= ln->gen)
		return;
	core_link_want(l, now);
	/* Another connection is gone: the caller closed it before this one was taken. */
	if (ln->state == CORE_LANE_UP)
		core_lane_kill(l, lane, CORE_R_PEER, now);
	if (ln->state == CORE_LANE_FENCING)
		fenced(l, lane, now);
	ln->act_open = ln->act_close = false;
	ln->gen = gen;
	lane_up(l, lane, now);
}

void core_link_lane_error(struct core_link *l, uint8_t lane, uint32_t gen, enum core_reason why,
	uint64_t now)
{
	const struct core_lane *ln = &l->lane[lane < CORE_LANES ? lane : 0];

	if (lane >= CORE_LANES)
		return;
	/* A connect that failed never had a generation: the last or the next one may be named. */
	if (gen == ln->gen || (lane == CORE_LANE_TCP && ln->state == CORE_LANE_OPENING &&
				      gen == ln->gen + 1))
		core_lane_kill(l, lane, why, now);
}
