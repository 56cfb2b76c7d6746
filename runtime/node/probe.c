/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probes of rails: what the core machine asks for (core/link.h), as datagrams. The peer's daemon answers from
 * the same rail, whatever the lane there is doing: an answer says that both ports, the path and that daemon
 * are well.
 */
#include <string.h>

#include "node/node.h"
#include "node/rails.h"

#define PROBE_MAGIC 0x52435350u /* "RCSP" */

struct probe {
	uint32_t magic, job;
	uint16_t restart, src, dst;
	uint8_t lane, answer;
	uint64_t token;
};
_Static_assert(sizeof(struct probe) == 24, "layout");
_Static_assert(sizeof(struct probe) <= VERBS_DATAGRAM, "room in a datagram");

static bool datagram(struct link *l, uint8_t lane, uint64_t token, bool answer)
{
	const struct node_opts *o = &l->n->o;
	struct probe p = {.magic = PROBE_MAGIC, .job = o->job, .restart = (uint16_t)o->restart,
		.src = (uint16_t)o->self, .dst = (uint16_t)l->peer, .lane = lane, .answer = answer,
		.token = token};

	return l->target[lane] && !verbs_target_send(l->target[lane], &p, sizeof(p));
}

void probe_learn(struct link *l, uint8_t lane)
{
	verbs_target_free(l->target[lane]);
	l->target[lane] = verbs_target_new(l->rdma[lane]);
}

void probe_ask(struct link *l, uint8_t lane, uint64_t token)
{
	uint8_t rail = rails_own(l, lane);

	/* is it our own port? */
	if (rail < l->n->rails)
		verbs_rail_check(l->n->vb, rail);
	if (rail >= l->n->rails || !verbs_rail_ok(l->n->vb, rail) || !datagram(l, lane, token, false))
		core_link_probe_unsent(&l->core, lane, token);
}

void probe_receive(void *arg, unsigned rail, const void *data, size_t len)
{
	struct node *n = arg;
	struct link *l;
	struct probe p;

	if (len != sizeof(p))
		return;
	memcpy(&p, data, sizeof(p));
	if (p.magic != PROBE_MAGIC || p.job != n->o.job || p.restart != (uint16_t)n->o.restart ||
		p.dst != n->o.self || p.src >= n->o.nodes || p.lane >= CORE_RAILS_MAX)
		return;
	l = n->link[p.src];
	if (!l || l->lost || rails_own(l, p.lane) != rail)
		return;
	if (!p.answer) {
		(void)datagram(l, p.lane, p.token, true); /* asked again when this one is lost */
		return;
	}
	core_link_probe_answered(&l->core, p.lane, p.token, n->now);
	link_dirty(l);
}
