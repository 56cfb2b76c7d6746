/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is silent: what links have heard, to suspicions (view_doubt.c); and whom to be in contact with. */
#include "core/view_internal.h"

#include <string.h>

#define LOOKS 16u /* in silent_ns */

uint64_t core_view_look_at(const struct core_view *v)
{
	return v->look_at;
}

/* A loop that slept for long has heard nobody: that is no evidence. */
static bool slept(struct core_view *v, uint64_t now)
{
	uint64_t gap = v->looked_at ? now - v->looked_at : 0;

	v->looked_at = now;
	if (gap < v->cfg.silent_ns / 4)
		return false;
	if (v->nap_n == VIEW_NAPS)
		memmove(&v->nap[0], &v->nap[1], --v->nap_n * sizeof(v->nap[0]));
	v->nap[v->nap_n++] = (struct view_nap){ .end = now, .gap = gap };
	return true;
}

static void watch(struct core_view *v, uint64_t now)
{
	uint16_t near[2 * VIEW_WATCH];
	uint8_t n = (uint8_t)core_view_watched(v, near);

	if (n == v->near_n && !memcmp(near, v->near, n * sizeof(near[0])))
		return;
	memcpy(v->near, near, n * sizeof(near[0]));
	v->near_n = n;
	v->near_at = now;
}

bool core_view_look(struct core_view *v, uint64_t now)
{
	if (now < v->look_at)
		return false;
	v->look_at = now + v->cfg.silent_ns / LOOKS;
	watch(v, now);
	return !slept(v, now) && !v->ended;
}

static bool near(const struct core_view *v, uint16_t node)
{
	for (uint8_t i = 0; i < v->near_n; i++)
		if (v->near[i] == node)
			return true;
	return false;
}

/* Own sleeps since then do not count. */
static uint64_t silent_for(const struct core_view *v, uint64_t heard_at, uint64_t now)
{
	uint64_t ns = now > heard_at ? now - heard_at : 0;

	for (uint8_t i = v->nap_n; i-- && v->nap[i].end > heard_at;)
		ns -= view_min(ns, v->nap[i].gap);
	return ns;
}

/*
 * An earlier step has lost it: then this one has to, or it counts as a member that never votes. Not
 * where that would only stop this node, as one of two that may not decide alone.
 */
static bool lost_before(const struct core_view *v, uint16_t node)
{
	return core_view_other(v) != node || v->cfg.self < node || v->cfg.witness;
}

bool core_view_contact(struct core_view *v, uint16_t node, const struct core_view_contact *c, uint64_t now)
{
	bool was = core_view_suspected(v, node), bad;
	uint64_t limit;

	if (c->fenced) {
		if (lost_before(v, node))
			core_view_suspect(v, node, now);
		return false;
	}
	if (!c->heard_at && !(near(v, node) && (v->met || now >= v->began + v->cfg.start_ns)))
		return false;
	limit = view_max(v->cfg.silent_ns, 3 * c->every_ns);
	bad = c->heard_at ? c->refused || silent_for(v, c->heard_at, now) > limit :
			    silent_for(v, v->near_at, now) > 2 * limit;
	if (bad)
		core_view_suspect(v, node, now);
	else if (c->heard_at)
		core_view_trust(v, node, now);
	return bad && !was && core_view_suspected(v, node);
}

bool core_view_stands_by(const struct core_view *v, uint16_t node)
{
	const uint16_t active = (uint16_t)(v->cfg.nodes - v->cfg.spares);

	return node >= active || v->cfg.self >= active;
}

bool core_view_reach(const struct core_view *v, uint16_t node)
{
	return view_bit(v->spoken, node) || near(v, node) || core_view_stands_by(v, node);
}

uint64_t core_view_pace(const struct core_view *v, uint16_t node)
{
	return near(v, node) ? v->cfg.silent_ns / 4 : CORE_NEVER;
}

bool core_view_suspected(const struct core_view *v, uint16_t node)
{
	return core_view_member(v, node) && view_bit(v->suspect, node);
}

uint16_t core_view_other(const struct core_view *v)
{
	uint16_t node = 0;

	if (v->alive != 2 || !core_view_member(v, v->cfg.self))
		return CORE_VIEW_NONE;
	while (node == v->cfg.self || !view_bit(v->member, node))
		node++;
	return node;
}
