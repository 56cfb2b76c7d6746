/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages. Each may be lost, doubled or late: what is said holds for ever or names a
 * generation.
 */
#include "core/internal.h"

#include <string.h>

void core_ctrl_fill(const struct core_link *l, struct core_ctrl *c, enum core_ctrl_type type,
	uint8_t lane, uint32_t gen)
{
	memset(c, 0, sizeof(*c));
	c->type = (uint8_t)type;
	c->lane = lane;
	c->gen = gen;
	c->count = l->rx;
}

/* `on`: the lane it should leave by, if that is up. A full queue drops it: the peer asks again. */
void core_ctrl_reply(struct core_link *l, uint8_t on, const struct core_ctrl *c)
{
	if (l->reply_n == sizeof(l->reply) / sizeof(l->reply[0]))
		return;
	l->reply[l->reply_n] = *c;
	l->reply_lane[l->reply_n++] = on;
}

/* A release that does not know F_WORD takes it for nothing told. */
static uint8_t told_flag(uint8_t told)
{
	return told == CORE_TOLD_PSN ? CORE_CTRL_F_KNOWN : told == CORE_TOLD_WORD ? CORE_CTRL_F_WORD : 0;
}

static uint8_t told_of(uint8_t flags)
{
	return flags & CORE_CTRL_F_KNOWN ? CORE_TOLD_PSN :
	       flags & CORE_CTRL_F_WORD	 ? CORE_TOLD_WORD :
					   CORE_TOLD_NOTHING;
}

void core_ctrl_dead(const struct core_link *l, struct core_ctrl *c, uint8_t lane, uint32_t gen)
{
	const struct core_lane *ln = &l->lane[lane];

	core_ctrl_fill(l, c, CORE_CTRL_LANE_DEAD, lane, gen);
	c->reason = ln->gen == gen ? ln->reason : CORE_R_NONE;
	c->flags = ln->gen == gen ? ln->dead_flags : 0;
	if (ln->mine.valid && ln->mine.gen == gen) {
		c->flags |= CORE_CTRL_F_FENCED | told_flag(ln->mine.told);
		c->psn = ln->mine.number;
	}
}

static void reply_dead(struct core_link *l, uint8_t on, uint8_t lane, uint32_t gen)
{
	struct core_ctrl c;

	core_ctrl_dead(l, &c, lane, gen);
	c.token = 1;
	core_ctrl_reply(l, on, &c);
}

/*
 * The nth choice among the lanes that are up and can send: TCP, verbs lanes, those on probation.
 * Repetitions take the next one, since a lane that is up may be silently broken.
 */
uint8_t core_ctrl_lane(const struct core_link *l, uint8_t avoid, uint8_t nth, uint32_t can_send)
{
	uint8_t list[CORE_LANES], n = 0;

	for (int round = 0; round < 3; round++) {
		for (uint8_t i = 0; i < CORE_LANES; i++) {
			const struct core_lane *ln = &l->lane[i];
			int mine = i == CORE_LANE_TCP ? 0 : ln->usable ? 1 : 2;

			if (mine == round && i != avoid && ln->state == CORE_LANE_UP &&
				(can_send & CORE_BIT(i)) && ln->plain < CORE_PLAIN_MAX && !core_unheard(l, i))
				list[n++] = i;
		}
	}
	return n ? list[nth % n] : CORE_LANE_NONE;
}

/* When the lane's own message is to be said (again); poll.c says it. */
uint64_t core_ctrl_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	switch (ln->state) {
	case CORE_LANE_OPENING:
		if (lane == CORE_LANE_TCP) /* a connect may take long: go on telling meanwhile */
			return ln->heard ? CORE_NEVER : ln->ctrl_at;
		if (!core_initiator(l) || !ln->open.type || ln->connecting)
			return CORE_NEVER;
		return ln->ctrl_at;
	case CORE_LANE_SETUP:
		return ln->ctrl_at;
	case CORE_LANE_UP:
		return CORE_NEVER;
	default:
		return ln->heard ? CORE_NEVER : ln->ctrl_at;
	}
}

uint64_t core_hold_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	if (!ln->hold || (ln->peers.valid && ln->peers.gen == ln->hold_gen))
		return CORE_NEVER;
	return ln->hold_ask_at;
}

uint64_t core_want_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	if (core_initiator(l) || !(l->lanes & CORE_BIT(lane)) || ln->state != CORE_LANE_DOWN ||
		!ln->local_ok || !ln->want_left)
		return CORE_NEVER;
	return ln->want_at;
}

/* Responder, lane DOWN: `remote` is an OPEN_REQ of a newer generation. */
void core_ctrl_take_req(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];
	bool there = l->lanes & CORE_BIT(lane);
	struct core_ctrl nak;

	if (there && ln->local_ok) {
		core_lane_open(l, lane, now);
		ln->gen = ln->remote.gen;
		return;
	}
	ln->gen = ln->remote.gen;
	ln->heard = true;
	core_ctrl_fill(l, &nak, CORE_CTRL_OPEN_NAK, lane, ln->gen);
	nak.reason = there ? CORE_R_PORT : CORE_R_ABSENT;
	core_ctrl_reply(l, CORE_LANE_TCP, &nak);
}

static void rx_open_req(struct core_link *l, uint8_t on, const struct core_ctrl *c, uint64_t now)
{
	struct core_lane *ln = &l->lane[c->lane];

	if (core_initiator(l) || c->gen < ln->gen)
		return;
	core_link_want(l, now);
	if (c->gen == ln->gen) {
		if (ln->state == CORE_LANE_SETUP)
			ln->ctrl_at = now;
		else if (!core_lane_live(ln) && !ln->req_waiting)
			reply_dead(l, on, c->lane, c->gen);
		return;
	}
	/* We still need its word about the older one: the lane is opened after that. */
	if (ln->hold) {
		ln->hold_ask_at = core_min(ln->hold_ask_at, now);
		return;
	}
	/* A newer generation says that the older is dead at the peer. */
	core_lane_kill(l, c->lane, CORE_R_PEER, now);
	ln->heard = true;
	core_final_count(l, c->lane, c->count);
	ln->remote = *c;
	if (ln->state == CORE_LANE_DOWN)
		core_ctrl_take_req(l, c->lane, now);
	else
		ln->req_waiting = true;
}

static void rx_open_ack(struct core_link *l, uint8_t on, const struct core_ctrl *c)
{
	struct core_lane *ln = &l->lane[c->lane];
	struct core_ctrl done;

	if (!core_initiator(l) || c->gen > ln->gen)
		return;
	if (c->gen < ln->gen || !core_lane_live(ln)) {
		reply_dead(l, on, c->lane, c->gen);
	} else if (ln->state == CORE_LANE_UP) {
		core_ctrl_fill(l, &done, CORE_CTRL_OPEN_DONE, c->lane, c->gen);
		core_ctrl_reply(l, on, &done);
	} else if (ln->open.type && !ln->connecting) {
		core_final_count(l, c->lane, c->count);
		ln->remote = *c;
		ln->act_connect = ln->connecting = true;
	}
}

static void rx_open_nak(struct core_link *l, const struct core_ctrl *c, uint64_t now)
{
	struct core_lane *ln = &l->lane[c->lane];
	uint64_t hold = l->cfg.hold_ns;
	uint32_t fails = ln->fails;
	bool probe = ln->need_probe;
	uint64_t held = ln->hold_at;

	if (!core_initiator(l) || c->lane == CORE_LANE_TCP || ln->state != CORE_LANE_OPENING || ln->gen != c->gen)
		return;
	core_final_count(l, c->lane, c->count);
	core_lane_kill(l, c->lane, CORE_R_PEER, now);
	ln->heard = true;
	/* No failure of ours: wait for its WANT, and look again now and then, where there is such a rail. */
	ln->absent = c->reason == CORE_R_ABSENT;
	ln->fails = fails;
	ln->need_probe = probe;
	ln->ud.first = false;
	ln->hold_at = held;
	for (uint8_t i = 0; i < ln->naks && hold < l->cfg.hold_max_ns; i++)
		hold *= 2;
	if (ln->naks < 32)
		ln->naks++;
	ln->open_at = now + core_min(hold, l->cfg.hold_max_ns);
}

static void rx_dead(struct core_link *l, uint8_t on, const struct core_ctrl *c, uint64_t now)
{
	struct core_lane *ln = &l->lane[c->lane];
	bool request = c->reason == CORE_R_REQUEST;

	if (c->flags & CORE_CTRL_F_FENCED && c->gen >= ln->peers.gen)
		ln->peers = (struct core_report){.valid = true, .told = told_of(c->flags),
			.gen = c->gen, .number = c->psn};

	if (c->lane == CORE_LANE_TCP && ln->state != CORE_LANE_UP) {
		/* A connect under way is another connection's; its generation is not known yet. */
	} else if (c->gen >= ln->gen) {
		core_lane_kill(l, c->lane, request ? CORE_R_REQUEST : CORE_R_PEER, now);
		if (c->reason == CORE_R_PORT || c->reason == CORE_R_DEVICE)
			ln->ud.first = false; /* its WANT will say when */
		if (c->gen > ln->gen && ln->state == CORE_LANE_DOWN)
			ln->gen = c->gen; /* an OPEN_REQ of it may still be on its way */
	}
	if (ln->fo_open && ln->fo.gen == c->gen && c->reason != CORE_R_PEER) {
		ln->fo.peer_reason = c->reason;
		ln->fo.peer_flags = c->flags;
	}
	if (c->gen >= ln->dead_gen && ln->state != CORE_LANE_UP) {
		ln->heard = true;
		core_final_count(l, c->lane, c->count);
	}
	if (!c->token) {
		ln->owed = ln->state == CORE_LANE_FENCING && ln->gen == c->gen;
		reply_dead(l, on, c->lane, c->gen);
	}
}

static void rx_ping(struct core_link *l, uint8_t on, const struct core_ctrl *c)
{
	const struct core_lane *ln = &l->lane[c->lane];
	struct core_ctrl pong;

	if (c->gen < ln->gen || (c->gen == ln->gen && !core_lane_live(ln))) {
		reply_dead(l, on, c->lane, c->gen);
		return;
	}
	core_ctrl_fill(l, &pong, CORE_CTRL_PONG, c->lane, c->gen);
	pong.token = c->token;
	core_ctrl_reply(l, on, &pong);
}

void core_link_rx_ctrl(struct core_link *l, uint8_t lane, uint32_t gen, const struct core_ctrl *c,
	uint64_t now)
{
	struct core_lane *ln;

	(void)core_lane_spoke(l, lane, gen, now);
	if (c->lane >= CORE_LANES || l->ending)
		return;
	if (!core_ack_in(l, c->count, 0, now))
		return;
	ln = &l->lane[c->lane];
	switch (c->type) {
	case CORE_CTRL_OPEN_REQ:
		if (c->lane != CORE_LANE_TCP)
			rx_open_req(l, lane, c, now);
		break;
	case CORE_CTRL_OPEN_ACK:
		if (c->lane != CORE_LANE_TCP)
			rx_open_ack(l, lane, c);
		break;
	case CORE_CTRL_OPEN_NAK:
		rx_open_nak(l, c, now);
		break;
	case CORE_CTRL_OPEN_DONE:
		(void)core_lane_spoke(l, c->lane, c->gen, now);
		break;
	case CORE_CTRL_WANT:
		if (core_initiator(l) && ln->state == CORE_LANE_DOWN) {
			ln->naks = 0;
			ln->absent = false;
			/* its port came back: that was no silent path */
			if (c->flags & CORE_CTRL_F_BACK)
				ln->ud.first = ln->ud.now = false;
			if (ln->ud.first)
				break;
			ln->open_at = core_max(now, ln->hold_at);
		}
		break;
	case CORE_CTRL_LANE_DEAD:
		rx_dead(l, lane, c, now);
		break;
	case CORE_CTRL_PING:
		rx_ping(l, lane, c);
		break;
	case CORE_CTRL_PONG:
		if (c->token && c->token == ln->asked_token && c->gen == ln->gen)
			core_stall_answered(l, c->lane, now);
		break;
	default:
		break; /* of a newer release: nothing depends on it */
	}
}
