/* SPDX-License-Identifier: BSD-3-Clause */
/* What a lease lets a node and its ranks do, and what becomes of a node that has none. */
#include "core/view_internal.h"

/*
 * Nobody acts twice for one index: the bound, in true time from the decision at 0, with d =
 * 1 / CORE_VIEW_DRIFT as the error of any clock.
 *
 *   1. A beat that began after 0 is not granted: a majority has accepted, and any majority for the beat
 *	has one of them (view_vote, view_quorum). So the beat of the lost node's last grant began before 0.
 *   2. `fresh` is the node's own stamp less the lag that those above it in the tree have measured, each
 *	on its own clock from the news to its receipt of the stamp below, read after the message: so it is late by
 *	at most d * lag. Hops, relays and messages that come late lengthen the lag and change nothing else; with a
 *	lag of lease_ns there is no lease.
 *	fresh < d * lease_ns.
 *   3. The lease ends at fresh + lease_ns on the node's clock: before lease_ns * (1 + 2 d) in true time.
 *   4. The end is published as a point in time, once: neither the turns of the daemon's loop nor one that
 *	stands still make it later. A rank looks at it before each thing that it does; what it has begun is
 *	over within act_ns: its last look is so much before its last act. (A rank that the kernel keeps
 *	from running right there touches its own process's memory; what it asks of others is refused by
 *	whoever has the decision, and who has not does not act by 1.)
 *   5. A spare has the decision after 0, reads its clock after that and waits `takeover` on it, which is at
 *	least takeover * (1 - d).
 *
 * takeover * (1 - d) >= lease_ns * (1 + 2 d) + act_ns, and that is what it is.
 */
uint64_t core_view_takeover_ns(const struct core_view_cfg *cfg)
{
	const uint64_t last = cfg->lease_ns + 2 * cfg->lease_ns / CORE_VIEW_DRIFT + 1 + cfg->act_ns;

	return last + last / (CORE_VIEW_DRIFT - 1) + 1;
}

static uint64_t lease_end(const struct core_view *v)
{
	return v->fresh + v->cfg.lease_ns;
}

bool core_view_acting(const struct core_view *v, uint64_t now)
{
	return v->acting && !v->out && !v->stopped && now < lease_end(v);
}

/* Since when this node has no lease, or from when on it will not have one. */
static uint64_t without_since(const struct core_view *v)
{
	uint64_t since = v->has_lease ? lease_end(v) : view_min(v->began + v->cfg.start_ns, v->half_at);

	return view_max(view_max(since, v->woke_at), v->hold_until);
}

static uint64_t stop_at(const struct core_view *v)
{
	return without_since(v) + v->cfg.grace_ns;
}

uint64_t core_view_until(const struct core_view *v)
{
	if (v->out || v->stopped)
		return 0;
	if (v->cfg.spares)
		return v->has_lease ? lease_end(v) : 0;
	return stop_at(v);
}

void view_renew(struct core_view *v, uint64_t fresh, uint64_t now)
{
	if (now >= fresh + v->cfg.lease_ns)
		return;
	if (!v->has_lease || fresh > v->fresh)
		v->fresh = fresh;
	v->has_lease = true;
	v->wakes = 0;
	/* Not for what is left of a lease that came late: it would stand still again before the next beat. */
	if (!v->acting && !v->out && !v->stopped && now + v->cfg.beat_ns < lease_end(v)) {
		v->acting = true;
		v->act_active = true;
		v->act_stop = false;
	}
}

/* This node stood still past its deadline: what was sent to it meanwhile is still to be read. */
void view_lease_woke(struct core_view *v, uint64_t now)
{
	if (v->wakes == VIEW_WAKES || now < v->due_at || now - v->due_at < v->cfg.lease_ns / 4)
		return;
	v->wakes++;
	v->woke_at = now;
}

void view_lease_tick(struct core_view *v, uint64_t now)
{
	if (v->acting && now >= lease_end(v)) {
		v->acting = false;
		v->act_stop = true;
		v->act_active = false;
	}
	if (v->has_lease || 2u * v->suspects < v->alive)
		v->half_at = CORE_NEVER;
	else
		v->half_at = view_min(v->half_at, now);
	if (!v->stopped && !v->ended && !v->acting && now >= stop_at(v)) {
		v->stopped = v->act_halt = true;
		v->act_active = false;
	}
}

uint64_t view_lease_due(const struct core_view *v)
{
	if (v->acting)
		return lease_end(v);
	return v->stopped || v->ended ? CORE_NEVER : stop_at(v);
}

void core_view_hold(struct core_view *v, uint64_t now)
{
	v->hold_until = now + v->cfg.hold_ns;
}

void core_view_ended(struct core_view *v, uint64_t now)
{
	v->ended = true;
	v->ended_at = now;
}

void view_lease_all_ended(struct core_view *v, uint64_t now)
{
	if (v->all_ended || !v->ended)
		return;
	v->all_ended = true;
	v->ended_at = now;
}

bool core_view_over(const struct core_view *v, uint64_t now)
{
	bool needed = v->has_lease && !v->out && !v->all_ended;
	uint64_t since = needed ? view_max(v->ended_at, lease_end(v)) : v->ended_at;

	return v->ended && now >= since + v->cfg.linger_ns;
}
