/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rcshare status` shows, as JSON. */
#include <jansson.h>
#include <stdlib.h>

#include "node/node.h"

static const char *const state_name[] = {"unknown", "connecting", "up", "unreachable", "down",
	"self"};

static json_t *lanes(const struct link *l)
{
	static const char *const names[] = {"down", "opening", "setup", "up", "fencing", "dead"};
	json_t *a = json_array();

	for (unsigned i = 0; l && i < CORE_LANES; i++) {
		const struct core_lane *c = &l->core.lane[i];

		if (i >= l->n->rails && i != CORE_LANE_TCP)
			continue;
		json_array_append_new(a, json_pack("{s:s,s:s,s:b,s:I,s:b}", "lane",
			i == CORE_LANE_TCP ? "tcp" : verbs_rail_name(l->n->vb, i), "state",
			c->state < 6 ? names[c->state] : "?", "usable", c->usable, "generation",
			(json_int_t)c->gen, "carries", l->core.active == i));
	}
	return a;
}

char *status_json(struct node *n)
{
	json_t *nodes = json_array(), *rails = json_array(), *ranks = json_array(), *top;
	uint32_t regions = 0, gets = 0, imports = (uint32_t)HASH_COUNT(n->imports);
	char *text;

	for (uint32_t i = 0; i < n->o.nodes; i++) {
		const struct shm_node *e = &n->table->node_tab[i];
		const struct link *l = n->link[i];

		json_array_append_new(nodes, json_pack("{s:i,s:s,s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:o}", "node",
			(int)i, "host", e->host, "state", state_name[e->state % 6], "failovers",
			(int)e->failovers, "frames_sent", (json_int_t)(l ? l->tx_frames : 0),
			"frames_received", (json_int_t)(l ? l->rx_frames : 0), "frames_resent",
			(json_int_t)(l ? l->resent : 0), "frames_unacked",
			(json_int_t)(l ? l->core.next - l->core.acked : 0), "backlog_bytes",
			(json_int_t)(l ? l->bl_tail - l->bl_head : 0), "lanes", lanes(l)));
	}
	for (unsigned r = 0; r < n->rails; r++)
		json_array_append_new(rails, json_pack("{s:i,s:s,s:b}", "rail", (int)r, "device",
			verbs_rail_name(n->vb, r), "ok", verbs_rail_ok(n->vb, r)));
	for (const struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_RANK && !c->closing) {
			gets += c->gets;
			json_array_append_new(ranks, json_pack("{s:i,s:i,s:i,s:i,s:I,s:I,s:I}", "step",
				(int)c->step, "rank", (int)c->rank, "pid", (int)c->pid, "endpoint",
				(int)c->slot, "records_sent", (json_int_t)c->msgs_out, "records_received",
				(json_int_t)c->msgs_in, "channel_bytes", (json_int_t)c->size));
		}
	for (uint32_t i = 0; i < n->regions_n; i++)
		regions += n->regions[i]->used;
	top = json_pack("{s:s,s:i,s:i,s:i,s:s,s:i,s:s,s:o,s:o,s:o,s:i,s:i,s:i,s:I,s:s}", "version",
		RCS_VERSION, "job", (int)n->o.job, "restart", (int)n->o.restart, "node", (int)n->o.self,
		"host", n->o.names[n->o.self], "control_port", (int)n->tcp_port, "rdma",
		n->rails ? "yes" : n->verbs_why, "rails", rails, "nodes", nodes, "ranks", ranks, "regions",
		(int)regions, "gets", (int)gets, "imports", (int)imports, "failovers",
		(json_int_t)n->failovers, "log", n->log.started ? n->log.path : "");
	text = top ? json_dumps(top, JSON_INDENT(2)) : NULL;
	json_decref(top);
	return text;
}
