/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probes: datagrams on a lane's rail that the peer's daemon answers. Each may be lost, so only several
 * mean something, and only where one was answered before: a peer or a network may not carry them at all.
 */
#include "core/internal.h"

#include <string.h>

uint64_t core_probe_gap(const struct core_link *l)
{
	return core_max(1, (l->cfg.stall_hard_ns - core_min(l->cfg.stall_ask_ns, l->cfg.stall_hard_ns)) / 8);
}

/* In this doubt the rail does not answer, where it did. */
bool core_probe_lost(const struct core_lane *ln)
{
	return ln->ud.works && !ln->ud.answered && ln->ud.sent >= CORE_UD_LOST;
}

uint64_t core_probe_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];
	const struct core_ud *u = &ln->ud;

	if (lane >= l->cfg.rails || !ln->local_ok)
		return CORE_NEVER;
	if (u->now)
		return u->sent ? u->at + core_probe_gap(l) : ln->open_at;
	if (ln->state != CORE_LANE_UP)
		return CORE_NEVER;
	if (!u->works)
		return u->sent >= CORE_UD_TRIES ? CORE_NEVER :
		       u->at			? u->at + l->cfg.ctrl_ns :
						  ln->up_at;
	if (!ln->posts || u->answered)
		return CORE_NEVER;
	return core_max(ln->progress_at + l->cfg.stall_ask_ns, u->at + core_probe_gap(l));
}

/* A doubt is over. */
void core_probe_reset(struct core_link *l, uint8_t lane)
{
	struct core_ud *u = &l->lane[lane].ud;

	if (!u->works || !u->sent)
		return;
	u->floor = l->token;
	u->sent = u->ping_sent = 0;
	u->answered = u->sure = false;
}

/* The lane is due to be opened: must probes be answered before? */
bool core_probe_first(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_ud *u = &l->lane[lane].ud;

	if (u->rounds >= CORE_UD_ROUNDS)
		u->ever = false; /* it seems that they do not work any more: until one does */
	if (!u->first || !u->ever || !l->cfg.probes) {
		u->first = false;
		u->rounds = 0;
		return false;
	}
	u->now = true;
	u->sent = 0;
	u->left = l->cfg.probes;
	u->floor = l->token;
	l->lane[lane].open_at = now;
	return true;
}

/* Those before an opening stay unanswered: as if it had failed, but the peer's WANT need not wait for it. */
static void in_vain(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	ln->ud.now = false;
	ln->ud.rounds++;
	ln->open_at = now + core_hold_of(l, lane, ln->fails + ln->ud.rounds);
}

bool core_probe_act(struct core_link *l, uint8_t lane, struct core_act *a, uint64_t now)
{
	struct core_ud *u = &l->lane[lane].ud;

	if (core_probe_due(l, lane) > now)
		return false;
	if (u->now && u->sent >= CORE_UD_TRIES) {
		in_vain(l, lane, now);
		return false;
	}
	u->at = now;
	if (u->sent < UINT8_MAX)
		u->sent++;
	a->type = CORE_ACT_PROBE;
	a->lane = lane;
	a->gen = l->lane[lane].gen;
	a->seq = u->token = ++l->token;
	return true;
}

/* Those before an opening count all the same: the lane must not wait for ever for what cannot be sent. */
void core_link_probe_unsent(struct core_link *l, uint8_t lane, uint64_t token)
{
	if (lane < l->cfg.rails && token == l->lane[lane].ud.token && !l->lane[lane].ud.now &&
		l->lane[lane].ud.sent)
		l->lane[lane].ud.sent--;
}

void core_link_probe_answered(struct core_link *l, uint8_t lane, uint64_t token, uint64_t now)
{
	struct core_lane *ln;
	struct core_ud *u;

	if (lane >= l->cfg.rails)
		return;
	ln = &l->lane[lane];
	u = &ln->ud;
	if (token <= u->floor || token > l->token)
		return;
	if (u->now) {
		u->floor = token;
		u->sent = 0;
		if (--u->left)
			return;
		u->now = u->first = false;
		u->rounds = 0;
		ln->open_at = now;
	} else if (ln->state == CORE_LANE_UP) {
		if (!u->works) {
			u->works = u->ever = true;
			u->sent = 0;
			u->floor = l->token;
			return;
		}
		u->answered = true;
	}
}
