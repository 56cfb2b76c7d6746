/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/rails.h"

#include <stdio.h>
#include <string.h>

#include "node/fabric.h"

static bool opens(const struct link *l)
{
	return l->n->o.self < l->peer;
}

static bool is_ok(const struct link *l, uint8_t rail)
{
	return l->vbuf && !l->no_rails && verbs_rail_ok(l->n->vb, rail);
}

static bool any_ok(const struct link *l)
{
	for (uint8_t r = 0; r < l->n->rails; r++)
		if (is_ok(l, r))
			return true;
	return false;
}

static uint8_t all_lanes(const struct link *l)
{
	return l->vbuf ? (uint8_t)((1u << (l->offers < CORE_RAILS_MAX ? l->offers : CORE_RAILS_MAX)) - 1) : 0;
}

/* What the peer opens on a rail that is not chosen yet may be on any of ours. */
static bool lane_ok(const struct link *l, uint8_t lane)
{
	return l->rail_of[lane] == FABRIC_NONE ? any_ok(l) : is_ok(l, l->rail_of[lane]);
}

void rails_begin(struct link *l)
{
	l->offers = opens(l) ? (uint8_t)l->n->rails : CORE_RAILS_MAX;
	for (uint8_t i = 0; i < CORE_RAILS_MAX; i++)
		l->rail_of[i] = opens(l) && i < l->n->rails ? i : FABRIC_NONE;
	core_link_lanes(&l->core, all_lanes(l), l->n->now);
	rails_all(l, true, CORE_R_NONE);
}

/* The lower node offers all of its rails to one that has any. */
void link_rails(struct link *l, unsigned theirs)
{
	l->offers = (uint8_t)(!opens(l) ? theirs : theirs ? l->n->rails : 0);
	core_link_lanes(&l->core, all_lanes(l), l->n->now);
	link_dirty(l);
}

uint8_t rails_own(const struct link *l, uint8_t lane)
{
	return lane < CORE_RAILS_MAX ? l->rail_of[lane] : lane;
}

uint8_t rails_told(const struct link *l, uint8_t lane)
{
	return rails_own(l, lane) == FABRIC_NONE && lane < CORE_RAILS_MAX ? lane : rails_own(l, lane);
}

bool rails_has(const struct link *l, uint8_t rail)
{
	for (uint8_t i = 0; i < CORE_RAILS_MAX; i++)
		if (l->core.lanes & 1u << i && l->rail_of[i] == rail)
			return true;
	return false;
}

uint8_t rails_lane(const struct link *l, const struct verbs_lane *vl)
{
	for (uint8_t i = 0; i < CORE_RAILS_MAX; i++)
		if (l->rdma[i] == vl)
			return i;
	return CORE_LANE_NONE;
}

static void refuse(struct link *l, uint8_t lane)
{
	struct node *n = l->n;

	l->rail_of[lane] = FABRIC_NONE;
	node_log(n, CONFIG_LOG_WARN, "rail %u of node %u (%s) meets no rail of this node: none is on its network; name the "
		"rails of both nodes in rcshare.conf if they reach each other", lane, l->peer, n->o.names[l->peer]);
	core_link_lanes(&l->core, (uint8_t)(l->core.lanes & ~(1u << lane)), n->now);
}

uint8_t rails_choose(struct link *l, uint8_t lane)
{
	const uint8_t *blob = l->core.lane[lane].remote.blob;
	uint32_t taken = 0;
	uint8_t rail;

	if (opens(l))
		return lane;
	for (uint8_t i = 0; i < CORE_RAILS_MAX; i++)
		if (i != lane && l->rail_of[i] != FABRIC_NONE)
			taken |= 1u << l->rail_of[i];
	rail = verbs_rail_meet(l->n->vb, taken, blob);
	if (rail == FABRIC_NONE) {
		refuse(l, lane);
		return rail;
	}
	l->rail_of[lane] = rail;
	if (is_ok(l, rail))
		return rail;
	core_link_rail(&l->core, lane, false, CORE_R_PORT, l->n->now);
	return FABRIC_NONE;
}

void rails_changed(struct link *l, uint8_t rail, bool ok, enum core_reason why)
{
	ok = ok && is_ok(l, rail);
	for (uint8_t i = 0; i < l->core.cfg.rails; i++)
		if (l->rail_of[i] == rail)
			core_link_rail(&l->core, i, ok, why, l->n->now);
		else if (l->rail_of[i] == FABRIC_NONE)
			core_link_rail(&l->core, i, any_ok(l), why, l->n->now);
	/* what met nobody may be on this rail's network */
	if (ok && !opens(l))
		core_link_lanes(&l->core, all_lanes(l), l->n->now);
}

void rails_all(struct link *l, bool ok, enum core_reason why)
{
	for (uint8_t i = 0; i < l->core.cfg.rails; i++)
		core_link_rail(&l->core, i, ok && lane_ok(l, i), why, l->n->now);
}

bool rails_open(const struct link *l)
{
	bool rdma = false;

	for (uint8_t i = 0; i < l->core.cfg.rails && i < l->offers; i++) {
		if (!lane_ok(l, i) || !(l->core.lanes & 1u << i) || l->core.lane[i].absent)
			continue;
		rdma = true;
		if (l->core.lane[i].state != CORE_LANE_UP)
			return false;
	}
	return rdma || l->core.lane[CORE_LANE_TCP].state == CORE_LANE_UP;
}

uint32_t rails_unmet(const struct link *l)
{
	uint32_t met = 0, own = (1u << l->n->rails) - 1;

	if (!l->core.wanted || !l->vbuf)
		return 0;
	for (uint8_t i = 0; i < l->core.cfg.rails; i++)
		if (opens(l) ? !l->core.lane[i].absent : l->rail_of[i] != FABRIC_NONE)
			met |= 1u << (opens(l) ? i : l->rail_of[i]);
	/* the higher node knows when it was asked for what the other has */
	return opens(l) || met || l->core.lanes != all_lanes(l) ? own & ~met : 0;
}

void rails_notice(const struct node *n, char *out, size_t len)
{
	const struct link *first = NULL;
	uint32_t unmet = 0, nodes = 0;
	char names[128] = "";
	size_t at = 0;

	out[0] = '\0';
	for (const struct link *l = n->links; l; l = l->next) {
		uint32_t here = l->lost ? 0 : rails_unmet(l);

		unmet |= here;
		nodes += here != 0;
		if (here && (!first || l->peer < first->peer))
			first = l;
	}
	for (unsigned r = 0; r < n->rails; r++)
		if (unmet & 1u << r && at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "",
				verbs_rail_name(n->vb, r));
	if (!first)
		return;
	if (nodes > 1)
		snprintf(out, len, "%s of %.40s left out: no rail of %.40s and %u other nodes is on its network; name the "
			"rails in rcshare.conf", names, n->o.names[n->o.self], n->o.names[first->peer], nodes - 1);
	else
		snprintf(out, len, "%s of %.40s left out: no rail of %.40s is on its network; name the rails in "
			"rcshare.conf", names, n->o.names[n->o.self], n->o.names[first->peer]);
}
