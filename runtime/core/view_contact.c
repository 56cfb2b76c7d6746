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

/* n: it is not among them. */
static uint8_t near_find(const struct view_near *near, uint8_t n, uint16_t node)
{
	uint8_t i = 0;

	while (i < n && near[i].node != node)
		i++;
	return i;
}

static bool watched(const struct core_view *v, uint16_t node)
{
	return near_find(v->near, v->near_n, node) < v->near_n;
}

/* Who was to be looked at stays until it has spoken, also where those before it have been removed meanwhile. */
static void watch(struct core_view *v, uint64_t now)
{
	struct view_near near[CORE_VIEW_NEAR];
	uint16_t node[CORE_VIEW_NEAR];
	uint8_t n = (uint8_t)core_view_watched(v, node);

	for (uint8_t i = 0; i < n; i++) {
		uint8_t was = near_find(v->near, v->near_n, node[i]);

		near[i] = was < v->near_n ? v->near[was] : (struct view_near){ .node = node[i], .since = now };
	}
	for (uint8_t i = 0; i < v->near_n && n < CORE_VIEW_NEAR; i++) {
		const struct view_near *was = &v->near[i];

		if (!was->heard && core_view_member(v, was->node) && !view_bit(v->suspect, was->node) &&
			near_find(near, n, was->node) == n)
			near[n++] = *was;
	}
	memcpy(v->near, near, n * sizeof(near[0]));
	v->near_n = n;
}

bool core_view_look(struct core_view *v, uint64_t now)
{
	if (now < v->look_at)
		return false;
	v->look_at = now + v->cfg.silent_ns / LOOKS;
	watch(v, now);
	return !slept(v, now) && !v->ended;
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
	const uint8_t i = near_find(v->near, v->near_n, node);
	const bool near = i < v->near_n;
	bool was = core_view_suspected(v, node), bad;
	uint64_t limit;

	if (c->fenced) {
		if (lost_before(v, node))
			core_view_suspect(v, node, now);
		return false;
	}
	if (!c->heard_at && !(near && (v->met || now >= v->began + v->cfg.start_ns)))
		return false;
	limit = view_max(v->cfg.silent_ns, 3 * c->every_ns);
	bad = c->heard_at ? c->refused || silent_for(v, c->heard_at, now) > limit :
			    silent_for(v, v->near[i].since, now) > 2 * limit;
	if (near && c->heard_at)
		v->near[i].heard = true;
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
	return view_bit(v->spoken, node) || watched(v, node) || core_view_stands_by(v, node);
}

uint64_t core_view_pace(const struct core_view *v, uint16_t node)
{
	return watched(v, node) ? v->cfg.silent_ns / 4 : CORE_NEVER;
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
