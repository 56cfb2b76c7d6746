/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doubt about an RC lane whose completions stay away. Ask the peer over another lane first: an
 * answer proves it alive, so the lane is at fault; no answer may be a busy or dead peer, and the
 * lane is given up only much later. Probes ask on the rail itself: where they worked before and several
 * stay unanswered by a peer that answers elsewhere meanwhile, the path is silent, and waiting longer brings
 * nothing. A socket's progress is the kernel's business.
 */
#include "core/internal.h"

static bool doubtful(const struct core_link *l, uint8_t lane)
{
	return lane != CORE_LANE_TCP && l->lane[lane].state == CORE_LANE_UP && l->lane[lane].posts;
}

static bool other_up(const struct core_link *l, uint8_t lane)
{
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (i != lane && l->lane[i].state == CORE_LANE_UP)
			return true;
	return false;
}

uint64_t core_stall_ask_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];

	if (!doubtful(l, lane) || (ln->answered && (!core_probe_lost(ln) || ln->ud.sure)))
		return CORE_NEVER;
	return core_max(ln->progress_at, ln->asked_at) + l->cfg.stall_ask_ns;
}

/*
 * How much longer than a small request what is posted may take, at the pace lately seen, with as much
 * again for chance. A lane that is slow is not silent; but no pace excuses more than three times the
 * limit itself.
 */
static uint64_t allowance(const struct core_link *l, const struct core_lane *ln)
{
	return core_min(2 * ln->bytes / 65536 * ln->pace, 3 * l->cfg.stall_hard_ns);
}

uint64_t core_stall_verdict_due(const struct core_link *l, uint8_t lane)
{
	const struct core_lane *ln = &l->lane[lane];
	uint64_t since = ln->progress_at + allowance(l, ln), due;

	if (!doubtful(l, lane) || !(ln->answered || other_up(l, lane)))
		return CORE_NEVER;
	due = since + (ln->answered ? l->cfg.stall_hard_ns : l->cfg.stall_max_ns);
	if (ln->ud.sure && core_probe_lost(ln))
		due = core_min(due, core_max(ln->ud.at + core_probe_gap(l),
			since + (l->cfg.stall_ask_ns + l->cfg.stall_hard_ns) / 2));
	return due;
}

/* The doubt is over, or begins. */
static void certain(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	ln->progress_at = now;
	ln->asked_at = 0;
	ln->asked_token = 0;
	ln->answered = false;
	core_probe_reset(l, lane);
}

void core_stall_tick(struct core_link *l, uint64_t now)
{
	for (uint8_t i = 0; i < l->cfg.rails; i++)
		if (core_stall_verdict_due(l, i) <= now)
			core_lane_kill(l, i, CORE_R_SILENT, now);
}

void core_stall_progress(struct core_link *l, uint8_t lane, uint32_t bytes, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	if (ln->posts)
		ln->posts--;
	ln->done_at = now;
	if (bytes >= 4096 && now > ln->progress_at) {
		uint64_t took = (now - ln->progress_at) * 65536 / bytes;

		/* up at once, down slowly: what was slow may be so again */
		ln->pace = took > ln->pace ? (ln->pace + took) / 2 : ln->pace - ln->pace / 16;
	}
	ln->bytes -= core_min(ln->bytes, bytes);
	certain(l, lane, now);
}

void core_stall_posted(struct core_link *l, uint8_t lane, uint32_t bytes, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];

	ln->bytes += bytes;
	if (!ln->posts++) {
		ln->done_at = now;
		certain(l, lane, now);
	}
}

/*
 * The peer answered elsewhere. When that took long its daemon stood still, or the way there did: probes that it
 * found no receives for meanwhile say nothing, and after a longer time the lane's own silence may have been the
 * same. Then the doubt begins anew, but not for ever: without a completion for stall_max_ns it had its time.
 */
void core_stall_answered(struct core_link *l, uint8_t lane, uint64_t now)
{
	struct core_lane *ln = &l->lane[lane];
	uint64_t took = now - ln->ask_since;

	if (took > l->cfg.stall_hard_ns && now - ln->done_at < l->cfg.stall_max_ns) {
		certain(l, lane, now);
		return;
	}
	if (took > l->cfg.stall_ask_ns)
		core_probe_reset(l, lane);
	ln->answered = true;
	ln->ud.sure = ln->ud.ping_sent >= CORE_UD_LOST;
	ln->asked_token = 0;
}

/*
 * The caller came late by so much: completions may wait to be read while the clock ran. What we
 * slept through is no evidence against a lane.
 */
void core_stall_overslept(struct core_link *l, uint64_t late)
{
	for (uint8_t i = 0; i < l->cfg.rails; i++) {
		l->lane[i].progress_at += late;
		if (l->lane[i].asked_at)
			l->lane[i].asked_at += late;
		l->lane[i].ask_since += late;
		l->lane[i].done_at += late;
		l->lane[i].ud.at += late;
	}
}
