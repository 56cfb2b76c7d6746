/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rcshare status` shows, as JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "node/node.h"
#include "node/rails.h"

static const char *const state_name[] = {"unknown", "connecting", "up", "unreachable", "down",
	"self"};

static json_t *lanes(const struct link *l)
{
	static const char *const names[] = {"down", "opening", "setup", "up", "fencing", "dead"};
	json_t *a = json_array();

	for (unsigned i = 0; l && i < CORE_LANES; i++) {
		const struct core_lane *c = &l->core.lane[i];
		bool theirs = i == CORE_LANE_TCP || (l->core.lanes & 1u << i && !c->absent);
		uint8_t own = rails_own(l, (uint8_t)i);
		json_t *o;

		if (own >= l->n->rails && i != CORE_LANE_TCP)
			continue;
		o = json_pack("{s:s,s:s,s:b,s:I,s:b}", "lane",
			i == CORE_LANE_TCP ? "tcp" : verbs_rail_name(l->n->vb, own), "state",
			!theirs && c->state == CORE_LANE_DOWN ? "not at the peer" :
			c->state < 6 ? names[c->state] : "?", "usable", c->usable, "generation",
			(json_int_t)c->gen, "carries", l->core.active == i);
		if (i != CORE_LANE_TCP)
			json_object_set_new(o, "meets", c->state == CORE_LANE_UP && l->rdma[i] ?
					json_integer(verbs_lane_peer_rail(l->rdma[i])) : json_null());
		json_array_append_new(a, o);
	}
	return a;
}

/* Rails of ours that meet none there. */
static json_t *unmet(const struct link *l)
{
	json_t *a = json_array();

	for (unsigned r = 0; r < l->n->rails; r++)
		if (rails_unmet(l) & 1u << r)
			json_array_append_new(a, json_string(verbs_rail_name(l->n->vb, r)));
	return a;
}

/* The loop served nobody for so long: what kept it longest of that, and how long ago. */
static json_t *longest_turn(const struct node *n)
{
	if (!n->turn.longest)
		return json_null();
	return json_pack("{s:I,s:I,s:s}", "ns", (json_int_t)n->turn.longest, "ago_ns",
		(json_int_t)(n->now - n->turn.longest_at), "did", n->turn.longest_did);
}

/* Ports that are no rails. */
static json_t *left_out(const struct node *n)
{
	json_t *a = json_array();

	for (unsigned i = 0; n->vb && i < verbs_left_out(n->vb); i++)
		json_array_append_new(a, json_string(verbs_left_out_why(n->vb, i)));
	return a;
}

char *status_json(struct node *n)
{
	json_t *nodes = json_array(), *rails = json_array(), *eps = json_array(), *top;
	uint32_t regions = 0, standby = 0;
	struct evlog_state log;
	char *text;

	evlog_state(&n->log, &log);
	for (uint32_t i = 0; i < n->o.nodes; i++) {
		const struct shm_node *e = &n->table->node_tab[i];
		const struct link *l = n->link[i];
		json_t *o = json_pack("{s:i,s:s,s:s}", "node", (int)i, "host", e->host, "state",
			state_name[e->state % 6]);
		json_t *up = json_array();

		json_array_append_new(nodes, o);
		if (e->incarnation)
			json_object_set_new(o, "incarnation", json_integer(e->incarnation));
		for (unsigned k = 0; l && k < CORE_LANES; k++)
			if (l->core.lane[k].state == CORE_LANE_UP)
				json_array_append_new(up, json_integer(rails_own(l, (uint8_t)k)));
		if (!l) {
			json_decref(up);
			continue;
		}
		if (l->contact.since)
			json_object_set_new(o, "no_contact", json_string(l->contact.why));
		json_object_set_new(o, "lane", l->core.active == CORE_LANE_NONE ? json_null() :
								    json_integer(rails_own(l, l->core.active)));
		json_object_set_new(o, "unmet", unmet(l));
		json_object_set_new(o, "lanes_up", up);
		json_object_set_new(o, "failovers", json_integer(l->failovers));
		json_object_set_new(o, "tx_frames", json_integer((json_int_t)l->tx_frames));
		json_object_set_new(o, "rx_frames", json_integer((json_int_t)l->rx_frames));
		json_object_set_new(o, "resent", json_integer((json_int_t)l->resent));
		json_object_set_new(o, "unacked", json_integer((json_int_t)(l->core.next - l->core.acked)));
		json_object_set_new(o, "backlog", json_integer((json_int_t)(l->bl_tail - l->bl_head)));
		json_object_set_new(o, "pieces", json_integer(l->ledger.used));
		json_object_set_new(o, "puts_by_ledger", json_integer((json_int_t)l->ledger.by_ledger));
		json_object_set_new(o, "puts_replayed", json_integer((json_int_t)l->ledger.replayed));
		json_object_set_new(o, "puts_ambiguous", json_integer((json_int_t)l->ledger.ambiguous));
		json_object_set_new(o, "lanes", lanes(l));
		if (l->restarts)
			json_object_set_new(o, "daemon_restarts", json_integer(l->restarts));
	}
	for (unsigned r = 0; r < n->rails; r++)
		json_array_append_new(rails, json_pack("{s:i,s:s,s:b,s:s,s:s}", "index", (int)r,
			"name", verbs_rail_name(n->vb, r), "ok", verbs_rail_ok(n->vb, r), "ledger",
			verbs_ledger_name(verbs_rail_ledger(n->vb, r)), "ledger_why",
			verbs_rail_ledger_why(n->vb, r)));
	for (const struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_RANK && !c->closing) {
			json_array_append_new(eps, json_pack("{s:i,s:i,s:i,s:i,s:I,s:I,s:I}", "step",
				(int)c->step, "rank", (int)c->rank, "pid", (int)c->pid, "endpoint",
				(int)c->slot, "records_sent", (json_int_t)c->msgs_out, "records_received",
				(json_int_t)c->msgs_in, "channel_bytes", (json_int_t)c->size));
		}
	for (const struct chan *c = n->chans; c; c = c->next)
		standby += c->place.waits && !c->closing;
	for (uint32_t i = 0; i < n->regions_n; i++)
		regions += n->regions[i]->used;
	top = json_pack("{s:s,s:i,s:i,s:i,s:s,s:i,s:I,s:i,s:i,s:I,s:i,s:s}", "version", RCS_VERSION,
		"job", (int)n->o.job, "restart", (int)n->o.restart, "node", (int)n->o.self, "host",
		n->o.names[n->o.self], "pid", (int)getpid(), "uptime_ns",
		(json_int_t)(n->now - n->started_at), "control_port", (int)n->tcp_port, "ranks",
		(int)n->rank_chans, "failovers", (json_int_t)n->failovers, "regions", (int)regions, "log",
		log.written ? n->log.path : "");
	if (top) {
		json_object_set_new(top, "standby", json_integer(standby));
		json_object_set_new(top, "log_dropped", json_integer((json_int_t)log.dropped_total));
		if (log.dropped_total)
			json_object_set_new(top, "log_error", json_string(log.dropped ? log.error : ""));
		json_object_set_new(top, "syslog_lost", json_integer(node_log_lost()));
		json_object_set_new(top, "refused_connections", json_integer((json_int_t)n->refused));
		json_object_set_new(top, "longest_turn", longest_turn(n));
		json_object_set_new(top, "witness_answers", json_integer((json_int_t)n->witness_answers));
		json_object_set_new(top, "read_bytes", json_integer((json_int_t)n->read_bytes));
		json_object_set_new(top, "write_bytes", json_integer((json_int_t)n->write_bytes));
		json_object_set(top, "rails", rails);
		json_object_set_new(top, "left_out", left_out(n));
		json_object_set(top, "nodes", nodes);
		json_object_set(top, "endpoints", eps);
		if (!n->rails)
			json_object_set_new(top, "no_rdma", json_string(n->verbs_why));
	}
	json_decref(rails);
	json_decref(nodes);
	json_decref(eps);
	text = top ? json_dumps(top, JSON_INDENT(2)) : NULL;
	json_decref(top);
	return text;
}
