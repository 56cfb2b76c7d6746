/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What people and ranks hear of links: the log each failover, ranks and other daemons one event for what one rail
 * did. A node has as many links as there are nodes, and each event goes to all of them: so the first peer of a rail
 * is told at once, and the others that follow within NEWS_NS in one event more, with their number.
 */
#include <stdio.h>
#include <string.h>

#include "node/access.h"
#include "node/rails.h"

#define NEWS_NS	    1000000000ull
#define CUT_OFF_MAX 8u /* unreachable peers that other daemons are told of in that time */

static struct shm_node *entry(const struct link *l)
{
	return &l->n->table->node_tab[l->peer];
}

static struct shm_event back_event(const struct link *l, uint8_t lane)
{
	return (struct shm_event){.code = SHM_EV_RAIL_BACK, .step = NODE_NONE, .rank = NODE_NONE, .peer = l->peer,
		.rail = lane, .to_lane = SHM_LANE_NONE};
}

/* What waits to be told of the rail, when its time has come; NODE_LOST took some of it away. */
static void tell_rail(struct node *n, uint8_t lane)
{
	struct rail_news *w = &n->news[lane];
	uint8_t bit = (uint8_t)(1u << lane);
	struct shm_event back = {0};
	uint32_t failed = 0, other = NODE_NONE;
	bool named = false;

	if (n->now - w->told_at < NEWS_NS) {
		if (w->told_at + NEWS_NS < n->news_at)
			n->news_at = w->told_at + NEWS_NS;
		return;
	}
	for (struct link *l = n->links; l; l = l->next) {
		if (l->news_failed & bit && !l->lost) {
			failed++;
			l->news_told |= bit;
			named |= l->peer == w->first.peer;
			other = l->peer;
		}
		if (l->news_back & bit && !l->lost) {
			if (!back.peers)
				back = back_event(l, lane);
			back.peers++;
		}
		l->news_failed &= (uint8_t)~bit;
		l->news_back &= (uint8_t)~bit;
	}
	w->failed = 0;
	if (!failed && !back.peers)
		return;
	w->told_at = n->now;
	w->first.peers = failed;
	if (!named) /* the first one is back */
		w->first.peer = other;
	if (back.peers)
		event_raise(n, &back);
	if (failed)
		event_raise(n, &w->first);
}

/* Not the port here: the path to that peer, or the peer. */
static void rail_failed(struct link *l, const struct shm_event *ev)
{
	struct node *n = l->n;
	uint8_t bit = (uint8_t)(1u << ev->rail);
	struct rail_news *w = &n->news[ev->rail];

	if (!w->failed)
		w->first = *ev;
	if (l->news_back & bit) { /* nobody has heard that it had come back */
		l->news_back &= (uint8_t)~bit;
		l->news_told |= bit;
		return;
	}
	w->failed += !(l->news_failed & bit);
	l->news_failed |= bit;
	tell_rail(n, (uint8_t)ev->rail);
}

void news_turn(struct node *n)
{
	if (n->now < n->news_at)
		return;
	n->news_at = UINT64_MAX;
	for (uint8_t r = 0; r < CORE_RAILS_MAX; r++)
		tell_rail(n, r);
}

/* People know the node's rails, not the lanes of a link. */
static struct core_failover as_of_rails(const struct link *l, const struct core_failover *f)
{
	struct core_failover own = *f;

	own.lane = rails_told(l, f->lane);
	own.to_lane = rails_told(l, f->to_lane);
	return own;
}

void news_failover(struct link *l, const struct core_failover *of_lanes)
{
	struct core_failover own = as_of_rails(l, of_lanes);
	const struct core_failover *f = &own;
	struct node *n = l->n;
	uint64_t dark = f->progress_ns > f->last_good_ns ? f->progress_ns - f->last_good_ns : 0;
	bool local = f->reason == CORE_R_PORT || f->reason == CORE_R_DEVICE;
	struct shm_event ev = {.code = SHM_EV_RAIL_FAILED, .step = NODE_NONE, .rank = NODE_NONE,
		.peer = l->peer, .rail = f->lane, .to_lane = f->to_lane == CORE_LANE_NONE ?
			SHM_LANE_NONE : f->to_lane,
		.frames_resent = f->resent, .blackout_ns = dark};

	if (f->noticed_ns > f->last_good_ns)
		ev.notice_ns = f->noticed_ns - f->last_good_ns;
	if (f->progress_ns > f->noticed_ns)
		ev.recover_ns = f->progress_ns - f->noticed_ns;
	/* At the job's end the daemons go one after the other: that is no failure. */
	if (f->reason == CORE_R_SOCKET && !n->rank_chans)
		return;
	l->failovers++;
	l->resent += f->resent;
	atomic_store(&entry(l)->failovers, l->failovers);
	atomic_store(&entry(l)->resent, l->resent);
	evlog_failover(&n->log, f, l->peer, n->o.names[l->peer]);
	node_log(n, CONFIG_LOG_INFO, "lane %u to node %u (%s) failed (%s), traffic %s lane %d, "
		"%u frames resent", f->lane, l->peer, n->o.names[l->peer],
		core_reason_name((enum core_reason)f->reason), f->had_traffic ? "moved to" : "is on",
		f->to_lane == CORE_LANE_NONE ? -1 : (int)f->to_lane, f->resent);
	if (f->lane == CORE_LANE_TCP && !f->had_traffic)
		return;
	n->failovers++;
	n->replayed += f->resent;
	if (f->had_traffic && dark > n->blackout_max)
		n->blackout_max = dark;
	snprintf(ev.reason, sizeof(ev.reason), "%s", core_reason_name((enum core_reason)f->reason));
	/* The peer tells what it noticed itself. */
	if (l->lost || f->reason == CORE_R_PEER || f->reason == CORE_R_REQUEST || f->reason == CORE_R_CLOSE ||
		f->reason == CORE_R_ABSENT || f->reason == CORE_R_RESTART || f->lane == CORE_LANE_TCP)
		return;
	if (!local) {
		rail_failed(l, &ev);
		return;
	}
	/* with what the first link measured; the others follow at once */
	if (n->rail_told & 1u << f->lane)
		return;
	n->rail_told |= 1u << f->lane;
	l->news_told |= (uint8_t)(1u << f->lane);
	for (const struct link *o = n->links; o; o = o->next)
		ev.peers += !o->lost && rails_has(o, f->lane);
	event_raise(n, &ev);
}

void news_lane_back(struct link *l, uint8_t of_link)
{
	uint8_t lane = rails_told(l, of_link);
	struct node *n = l->n;
	struct shm_event ev = back_event(l, lane);
	uint8_t bit = (uint8_t)(1u << lane);

	evlog_lane_back(&n->log, lane, l->peer, n->o.names[l->peer]);
	node_log(n, CONFIG_LOG_INFO, "lane %u to node %u (%s) is back", lane, l->peer,
		n->o.names[l->peer]);
	if (l->news_failed & bit) { /* nobody has heard of it yet */
		l->news_failed &= (uint8_t)~bit;
		n->news[lane].failed--;
		return;
	}
	if (!(l->news_told & bit))
		return;
	l->news_told &= (uint8_t)~bit;
	if (n->rail_told & bit) {
		n->rail_told &= ~(uint32_t)bit;
		ev.peers = 1;
		event_raise(n, &ev);
		return;
	}
	l->news_back |= bit;
	tell_rail(n, lane);
}

void news_reachable(struct link *l, bool yes)
{
	struct shm_event ev = {.code = yes ? SHM_EV_PEER_BACK : SHM_EV_PEER_UNREACHABLE,
		.step = NODE_NONE, .rank = NODE_NONE, .peer = l->peer, .rail = NODE_NONE,
		.to_lane = SHM_LANE_NONE};
	struct node *n = l->n;

	if (l->lost)
		return;
	atomic_store(&entry(l)->state, yes ? SHM_NODE_UP : SHM_NODE_UNREACHABLE);
	evlog_peer(&n->log, yes ? "peer_back" : "peer_unreachable", l->peer,
		n->o.names[l->peer]);
	/* Own ranks hear of each; the others only of some: all of them may be cut off from as many. */
	if (n->now - n->cut_off_at > NEWS_NS) {
		n->cut_off_at = n->now;
		n->cut_off = 0;
	}
	if (n->cut_off++ < CUT_OFF_MAX)
		event_raise(n, &ev);
	else
		event_local(n, &ev);
}
