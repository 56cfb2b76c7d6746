/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/internal.h"

#include <string.h>

void core_cfg_default(struct core_cfg *cfg)
{
	const uint64_t ms = 1000000;

	memset(cfg, 0, sizeof(*cfg));
	cfg->rails = 2;
	cfg->depth0 = 16;
	cfg->depth = 64;
	cfg->ack_ns = ms / 5;
	cfg->ack_every = 16;
	cfg->ask_ns = 5 * ms;
	cfg->ctrl_ns = 100 * ms;
	cfg->stall_ask_ns = 50 * ms;
	cfg->stall_hard_ns = 250 * ms;
	cfg->stall_max_ns = 3000 * ms;
	cfg->keepalive_ns = 1000 * ms;
	cfg->hold_ns = 1000 * ms;
	cfg->hold_max_ns = 30000 * ms;
	cfg->probes = 2;
	cfg->unreachable_ns = 5000 * ms;
}

const char *core_reason_name(enum core_reason r)
{
	static const char *const name[] = {
		[CORE_R_NONE] = "none",	    [CORE_R_PORT] = "port",
		[CORE_R_DEVICE] = "device", [CORE_R_COMPLETION] = "completion",
		[CORE_R_SILENT] = "silent", [CORE_R_PEER] = "peer",
		[CORE_R_SOCKET] = "socket", [CORE_R_REQUEST] = "request",
		[CORE_R_PROTOCOL] = "protocol", [CORE_R_SETUP] = "setup",
		[CORE_R_CLOSE] = "close", [CORE_R_ABSENT] = "absent",
		[CORE_R_RESTART] = "restart",
	};

	return (unsigned int)r < sizeof(name) / sizeof(name[0]) && name[r] ? name[r] : "unknown";
}

void core_link_init(struct core_link *l, const struct core_cfg *cfg, uint64_t now)
{
	memset(l, 0, sizeof(*l));
	l->cfg = *cfg;
	if (l->cfg.rails > CORE_RAILS_MAX)
		l->cfg.rails = CORE_RAILS_MAX;
	if (l->cfg.depth > CORE_SLOTS)
		l->cfg.depth = CORE_SLOTS;
	if (!l->cfg.depth)
		l->cfg.depth = 1;
	if (!l->cfg.depth0 || l->cfg.depth0 > l->cfg.depth)
		l->cfg.depth0 = l->cfg.depth;
	if (!l->cfg.ack_every)
		l->cfg.ack_every = 1;
	for (uint8_t i = 0; i < CORE_LANES; i++) {
		l->lane[i].heard = true;
		l->lane[i].open_at = now;
		l->lane[i].hold_at = now;
	}
	l->lane[CORE_LANE_TCP].local_ok = true;
	l->lanes = (uint8_t)(CORE_BIT(l->cfg.rails) - 1);
	l->active = CORE_LANE_NONE;
	l->rx_lane = CORE_LANE_NONE;
	l->ack_at = CORE_NEVER;
	l->ack_tokens = CORE_ACK_TOKENS;
	l->ack_token_at = now;
	l->cap_from = CORE_NEVER;
	l->depth = l->depth_want = l->cfg.depth0;
	l->burst_at = now;
	l->no_lane_since = CORE_NEVER;
	l->polled_at = now;
}

void core_link_want(struct core_link *l, uint64_t now)
{
	struct core_lane *tcp = &l->lane[CORE_LANE_TCP];

	if (l->wanted)
		return;
	l->wanted = true;
	l->no_lane_since = now;
	/* The higher index leaves the lower a moment, so that two connects seldom cross. */
	tcp->open_at = core_initiator(l) ? now : now + l->cfg.ask_ns;
	for (uint8_t i = 0; i < l->cfg.rails; i++)
		l->lane[i].open_at = core_max(now, l->lane[i].hold_at);
}

void core_link_lanes(struct core_link *l, uint8_t mask, uint64_t now)
{
	mask &= (uint8_t)(CORE_BIT(l->cfg.rails) - 1);
	for (uint8_t i = 0; i < l->cfg.rails; i++) {
		struct core_lane *ln = &l->lane[i];

		if (!((mask ^ l->lanes) & CORE_BIT(i)))
			continue;
		l->lanes ^= CORE_BIT(i);
		ln->absent = false;
		if (!(mask & CORE_BIT(i))) {
			core_lane_kill(l, i, CORE_R_ABSENT, now);
			continue;
		}
		ln->naks = 0;
		ln->open_at = core_max(now, ln->hold_at);
		ln->want_left = 3;
		ln->want_at = now;
	}
}

bool core_link_peer(struct core_link *l, uint32_t incarnation, uint64_t now)
{
	if (!l->peer_inc)
		l->peer_inc = incarnation;
	if (!l->ending && l->peer_inc != incarnation) {
		l->ending = true;
		for (uint8_t i = 0; i < CORE_LANES; i++)
			core_lane_kill(l, i, CORE_R_RESTART, now);
	}
	return !l->ending;
}

/* Nothing is left of what there was with the peer's former daemon. */
bool core_link_ended(const struct core_link *l)
{
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (l->lane[i].state != CORE_LANE_DOWN)
			return false;
	return l->ending;
}

/* What is known of this node stays; the TCP lane's generation too, which its handshake agrees on. */
void core_link_anew(struct core_link *l, uint64_t now)
{
	struct core_link was = *l;

	core_link_init(l, &was.cfg, now);
	l->wanted = was.wanted;
	l->lanes = was.lanes;
	l->token = was.token;
	l->no_lane_since = was.no_lane_since;
	l->unreachable = was.unreachable;
	l->act_unreachable = was.act_unreachable;
	l->act_reachable = was.act_reachable;
	l->act_state = true;
	l->lane[CORE_LANE_TCP].gen = was.lane[CORE_LANE_TCP].gen;
	for (uint8_t i = 0; i < CORE_LANES; i++)
		l->lane[i].local_ok = was.lane[i].local_ok;
}

void core_link_pace(struct core_link *l, uint64_t ns, uint64_t now)
{
	if (ns >= l->cfg.keepalive_ns)
		return;
	l->cfg.keepalive_ns = ns;
	/* not only after the sign of life that is planned already */
	for (uint8_t i = 0; i < CORE_LANES; i++)
		l->lane[i].alive_at = core_min(l->lane[i].alive_at, now + ns);
}

void core_link_rail(struct core_link *l, uint8_t lane, bool ok, enum core_reason why, uint64_t now)
{
	struct core_lane *ln;

	if (lane >= CORE_LANES || (lane != CORE_LANE_TCP && lane >= l->cfg.rails))
		return;
	ln = &l->lane[lane];
	if (ok == ln->local_ok)
		return;
	ln->local_ok = ok;
	if (!ok) {
		core_lane_kill(l, lane, why, now);
		return;
	}
	ln->naks = 0;
	ln->ud.first = ln->ud.now = false;
	ln->open_at = core_max(now, ln->hold_at);
	ln->want_back = true;
	ln->want_left = 3;
	ln->want_at = now;
}

uint32_t core_link_room(const struct core_link *l)
{
	return CORE_SLOTS - (uint32_t)(l->next - l->tail);
}

uint64_t core_link_submit(struct core_link *l, uint64_t now)
{
	(void)now;
	return l->next++;
}

void core_link_header(const struct core_link *l, uint64_t *ack, uint64_t *limit)
{
	*ack = l->rx;
	*limit = l->rx + l->depth;
}

bool core_link_idle(const struct core_link *l)
{
	if (l->tail != l->next)
		return false;
	for (uint8_t i = 0; i < CORE_LANES; i++)
		if (l->lane[i].posts)
			return false;
	return true;
}
