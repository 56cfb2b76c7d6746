/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Membership of steps (core/view.h): what links hear and miss goes in, decisions come out. Who is silent, who
 * is removed, who stands still and who is stopped the machine says; here it is done.
 *
 * A step's members are its nodes; slurmstepd's notifier names them (SHM_MSG_MONITOR). When the members have
 * decided that a node is lost its lanes are fenced, then everything outstanding to it ends with
 * RCS_ERR_NODE_LOST, and every rank hears it. How long ranks may act is published in their channels
 * (shm/channel.h, until_ns): they look at it themselves.
 *
 * A step that has ended here goes on answering others, as long as they need that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "node/member.h"
#include "rcshare.h"

#define MS	   1000000ull
#define WITNESS_NS (1000 * MS)	     /* slurmctld is asked so often */
#define BACKLOG_MAX 16384u /* messages to a node without a path are lost instead */

static uint64_t node_timeout(const struct node *n)
{
	return (uint64_t)n->cfg.node_timeout_ms * MS;
}

static void forget(struct node *n, struct member *m)
{
	struct member **p = &n->members;

	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	spare_close(m);
	free(m->node);
	free(m->tasks);
	free(m->view);
	free(m);
}

struct member *member_find(struct node *n, uint32_t step)
{
	struct member *m = n->members;

	while (m && m->step != step)
		m = m->next;
	return m;
}

/* "NAME/TASKS" or "NAME" in the step's order, to indices of the job; both lists run the same way mostly. */
static bool map_nodes(struct node *n, struct member *m, char *names)
{
	uint32_t at = 0, max = n->o.nodes;
	char *save, *name, *tasks;

	m->node = calloc(max, sizeof(*m->node));
	m->tasks = calloc(max, sizeof(*m->tasks));
	if (!m->node || !m->tasks)
		return false;
	m->self = CORE_VIEW_NONE;
	for (name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		uint32_t tried = 0;

		tasks = strchr(name, '/');
		if (tasks)
			*tasks++ = '\0';
		while (tried < max && strcmp(n->o.names[at], name)) {
			at = (at + 1) % max;
			tried++;
		}
		if (tried == max || m->nodes == max)
			return false;
		if (at == n->o.self)
			m->self = m->nodes;
		m->tasks[m->nodes] = (uint16_t)(tasks ? strtoul(tasks, NULL, 10) : 0);
		m->node[m->nodes++] = at;
	}
	return m->self != CORE_VIEW_NONE;
}

/* Not with spares: a node that somebody may replace must stop itself, it must not stand still. */
static bool has_witness(const struct node *n, const struct member *m)
{
	return n->cfg.tie_breaker && !m->spares;
}

static void configure(const struct node *n, const struct member *m, struct core_view_cfg *cfg)
{
	core_view_cfg_default(cfg);
	cfg->nodes = m->nodes;
	cfg->self = m->self;
	cfg->witness = has_witness(n, m);
	cfg->spares = m->spares;
	core_view_cfg_timeout(cfg, node_timeout(n));
}

/* 0, or -errno: EINVAL where the nodes are not the job's. */
static int begin(struct node *n, struct member *m, const struct shm_monitor *req)
{
	char *names = strndup(req->nodes, req->len - 1);
	struct core_view_cfg cfg;
	bool known = names && map_nodes(n, m, names);

	free(names);
	if (!known)
		return names ? -EINVAL : -ENOMEM;
	m->spares = req->spares < m->nodes ? (uint16_t)req->spares : 0;
	configure(n, m, &cfg);
	m->view = calloc(1, core_view_size(&cfg) ? core_view_size(&cfg) : 1);
	if (!core_view_size(&cfg) || !m->view || spare_open(m))
		return -ENOMEM;
	m->view = core_view_init(m->view, &cfg, n->now);
	return 0;
}

/* The word that ranks look at before they act. */
static void publish(struct node *n, struct member *m)
{
	uint64_t until = n->parted ? SHM_UNTIL_STOPPED : core_view_until(m->view);

	if (!until && !n->parted)
		until = SHM_UNTIL_LATER;
	if (until == m->until)
		return;
	m->until = until;
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_RANK && c->step == m->step && !c->closing)
			atomic_store_explicit(&c->shm->until_ns, until, memory_order_release);
}

uint64_t member_until(struct node *n, uint32_t step)
{
	const struct member *m = member_find(n, step);

	return n->parted ? SHM_UNTIL_STOPPED : m ? m->until : SHM_UNTIL_EVER;
}

/* Is there a step of which this node is a member? */
static bool step_runs(const struct node *n)
{
	for (const struct member *m = n->members; m; m = m->next)
		if (m->monitor)
			return true;
	return false;
}

void member_begin(struct node *n, struct chan *c, const struct shm_monitor *req)
{
	struct member *m;
	int err;

	if (!n->cfg.node_timeout_ms || req->len < 2 || member_find(n, req->step))
		return;
	m = calloc(1, sizeof(*m));
	if (!m)
		return;
	if (!step_runs(n))
		link_unwatched(n);
	m->step = req->step;
	m->monitor = c;
	m->until = CORE_NEVER;
	m->next = n->members;
	n->members = m;
	err = begin(n, m, req);
	if (err) {
		node_log(n, CONFIG_LOG_WARN, "lost nodes of step %u are not noticed: %s", m->step, err == -EINVAL ?
			"Slurm names nodes for it that this job's daemon does not know; start a first step on all nodes "
			"of the job" : "out of memory");
		n->no_member = m->step;
	}
	if (err || m->nodes < 2) {
		forget(n, m);
	} else {
		publish(n, m);
		spare_begin(n, m);
	}
	spare_settle(n);
}

void member_end(struct node *n, struct chan *c)
{
	for (struct member *m = n->members; m; m = m->next)
		if (m->monitor == c) {
			m->monitor = NULL;
			core_view_ended(m->view, n->now);
			spare_step_ended(n, m);
		}
}

/* --- what links hear ------------------------------------------------------------------------------ */

/*
 * Neighbours to be watched, and whom the machine speaks to, are contacted without any rank's wish. A spare
 * and all others have their lanes up before they are needed.
 */
static void reach(struct node *n, struct member *m, uint16_t i)
{
	struct link *l;

	if (!core_view_reach(m->view, i))
		return;
	l = link_get(n, m->node[i]);
	if (!l || l->lost)
		return;
	find_link(l);
	if (core_view_stands_by(m->view, i) && l->heard_at && !l->core.wanted) {
		core_link_want(&l->core, n->now);
		link_dirty(l);
	}
	if (l->heard_at && core_view_pace(m->view, i) < l->core.cfg.keepalive_ns) {
		core_link_pace(&l->core, core_view_pace(m->view, i), n->now);
		link_dirty(l);
	}
}

static void look(struct node *n, struct member *m, uint16_t i)
{
	const struct link *l = n->link[m->node[i]];
	struct core_view_contact c;
	struct shm_event ev = {.code = SHM_EV_NODE_SUSPECTED, .step = m->step, .rank = NODE_NONE,
		.peer = m->node[i], .rail = NODE_NONE, .to_lane = SHM_LANE_NONE};

	/* one that has stopped by itself says nothing about others */
	if (!l || n->parted)
		return;
	c = (struct core_view_contact){.heard_at = l->heard_at, .every_ns = l->core.cfg.keepalive_ns,
		.refused = l->refused, .fenced = l->lost};
	if (!core_view_contact(m->view, i, &c, n->now))
		return;
	ev.notice_ns = l->heard_at ? n->now - l->heard_at : 0;
	snprintf(ev.reason, sizeof(ev.reason), "%s", l->refused ? "refused" : "silent");
	node_log(n, CONFIG_LOG_WARN, "node %u (%s) is suspected: %s", l->peer, n->o.names[l->peer], ev.reason);
	event_local(n, &ev);
}

/* --- slurmctld, by way of the notifier (spank/ctld.h) ----------------------------------------------- */

static void notifier_send(const struct member *m, uint32_t type, const char *node)
{
	struct shm_witness w = {.m = {.type = type, .abi = SHM_ABI}, .step = m->step};

	snprintf(w.node, sizeof(w.node), "%s", node);
	(void)!send(m->monitor->sock.fd, &w, sizeof(w), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void witness_ask(const struct node *n, struct member *m)
{
	uint16_t other = has_witness(n, m) && n->now >= m->witness_at ? core_view_other(m->view) : CORE_VIEW_NONE;

	if (!m->monitor || !core_view_suspected(m->view, other))
		return;
	m->witness_at = n->now + WITNESS_NS;
	notifier_send(m, SHM_MSG_WITNESS, n->o.names[m->node[other]]);
}

/*
 * "Not down" decides nothing: this node stands still and is not stopped, as long as slurmctld is
 * heard and has not said it of the other.
 */
void member_witness(struct node *n, struct chan *c, const struct shm_witness *w)
{
	for (struct member *m = n->members; m; m = m->next) {
		uint16_t other = m->monitor == c ? core_view_other(m->view) : CORE_VIEW_NONE;

		if (other == CORE_VIEW_NONE ||
			strncmp(w->node, n->o.names[m->node[other]], sizeof(w->node)))
			continue;
		n->witness_answers++;
		core_view_hold(m->view, n->now);
		if (w->down)
			core_view_witness(m->view, other, n->now);
		m->deadline = n->now;
		n->work = true;
	}
}

static void look_around(struct node *n, struct member *m)
{
	if (!core_view_look(m->view, n->now))
		return;
	for (uint16_t i = 0; i < m->nodes; i++)
		if (i != m->self && core_view_member(m->view, i)) {
			reach(n, m, i);
			look(n, m, i);
		}
	witness_ask(n, m);
}

/* One node of those that are left tells Slurm. */
static void tell_lost(const struct member *m, const char *node)
{
	uint16_t lowest = 0;

	while (lowest < m->self && !core_view_member(m->view, lowest))
		lowest++;
	if (m->monitor && lowest == m->self)
		notifier_send(m, SHM_MSG_LOST, node);
}

/* --- what is decided --------------------------------------------------------------------------------- */

static void send_msg(struct node *n, struct member *m, const struct core_view_act *a)
{
	struct wire_rec r = {.type = WIRE_REC_VIEW, .src_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)m->node[a->node], .dst_ep = NODE_EP_DAEMON,
		.data = m->step, .len = sizeof(a->msg)};
	struct link *l = n->link[m->node[a->node]];

	if (!l || l->lost || (l->core.active == CORE_LANE_NONE && l->bl_tail - l->bl_head > BACKLOG_MAX))
		return;
	link_loose(l, &r, &a->msg);
}

static void lost(struct node *n, struct member *m, const struct core_view_act *a)
{
	struct link *l = a->node == m->self ? NULL : link_get(n, m->node[a->node]);
	struct shm_event ev = {.code = SHM_EV_NODE_LOST, .step = m->step, .rank = NODE_NONE,
		.peer = m->node[a->node], .rail = NODE_NONE, .to_lane = SHM_LANE_NONE, .view = a->view};

	spare_fill(m, a->index, &ev);
	spare_lost(m, a);
	/* Another step may have lost it before; its ranks were others. */
	if (!l || n->parted)
		return;
	if (!l->lost && l->heard_at && n->now > l->heard_at)
		ev.notice_ns = n->now - l->heard_at;
	snprintf(ev.peer_host, sizeof(ev.peer_host), "%.63s", n->o.names[l->peer]);
	snprintf(ev.reason, sizeof(ev.reason), "view %u", a->view);
	node_log(n, CONFIG_LOG_WARN, "node %u (%s) is lost, view %u", l->peer, n->o.names[l->peer], a->view);
	evlog_event(&n->log, "node_lost", json_pack("{s:i,s:s,s:i,s:i,s:I}", "peer", (int)l->peer,
		"peer_host", n->o.names[l->peer], "step", (int)m->step, "view", (int)a->view, "notice_ns",
		(json_int_t)ev.notice_ns));
	link_lost(l);
	event_local(n, &ev);
	tell_lost(m, n->o.names[l->peer]);
}

/* This node is out, or in a minority: its ranks must not go on as if they were members. */
static void stop(struct node *n, struct member *m, const char *why)
{
	struct shm_event ev = {.code = SHM_EV_PARTITIONED, .step = m->step, .rank = NODE_NONE,
		.peer = NODE_NONE, .rail = NODE_NONE, .to_lane = SHM_LANE_NONE};

	if (n->parted)
		return;
	n->parted = true;
	snprintf(ev.reason, sizeof(ev.reason), "%s", why);
	node_log(n, CONFIG_LOG_ERROR, "step %u: %s; its ranks here are stopped", m->step, why);
	evlog_event(&n->log, "partitioned", json_pack("{s:i,s:s}", "step", (int)m->step, "reason", why));
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_RANK && !c->closing)
			atomic_store_explicit(&c->shm->until_ns, SHM_UNTIL_STOPPED, memory_order_release);
	/* first: else the ranks might take all others for lost, and themselves for who is left */
	event_local(n, &ev);
	for (uint16_t i = 0; i < m->nodes; i++)
		if (n->link[m->node[i]])
			link_lost(n->link[m->node[i]]);
	spare_settle(n);
}

void member_removed(struct node *n)
{
	for (struct member *m = n->members; m; m = m->next)
		if (m->monitor)
			stop(n, m, "the other nodes have removed this one");
}

static void pump(struct node *n, struct member *m)
{
	struct core_view_act a;
	bool told = false;

	while (core_view_poll(m->view, n->now, &a) != CORE_VIEW_ACT_NONE) {
		switch (a.type) {
		case CORE_VIEW_ACT_SEND:
			send_msg(n, m, &a);
			break;
		case CORE_VIEW_ACT_LOST:
			lost(n, m, &a);
			break;
		case CORE_VIEW_ACT_REMOVED:
			if (m->monitor)
				stop(n, m, "the other nodes have removed this one");
			break;
		case CORE_VIEW_ACT_PARTITIONED:
			if (m->monitor)
				node_log(n, CONFIG_LOG_WARN, "step %u: no contact with the majority of its nodes%s",
					m->step, m->spares ? ", its ranks here stand still" : "");
			break;
		case CORE_VIEW_ACT_STOP:
			if (m->monitor)
				stop(n, m, "no contact with the majority of the step's nodes");
			break;
		case CORE_VIEW_ACT_SWITCH:
			spare_switch(n, m, &a);
			break;
		default:
			break;
		}
		told |= a.type != CORE_VIEW_ACT_SEND;
	}
	publish(n, m);
	if (told && m->spares)
		spare_settle(n);
	m->deadline = core_view_deadline(m->view);
	if (core_view_look_at(m->view) < m->deadline)
		m->deadline = core_view_look_at(m->view);
}

void member_receive(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct member *m = member_find(n, (uint32_t)r->data);
	struct core_view_msg msg;

	if (!m || r->len != sizeof(msg))
		return;
	memcpy(&msg, payload, sizeof(msg));
	/* The daemon may have stood still since this turn began: what is counted from the message begins no sooner. */
	n->now = node_clock();
	core_view_rx(m->view, &msg, n->now);
	m->deadline = n->now;
	n->work = true;
}

uint64_t member_deadline(const struct node *n)
{
	uint64_t d = CORE_NEVER;

	for (const struct member *m = n->members; m; m = m->next)
		if (m->deadline < d)
			d = m->deadline;
	return d;
}

void member_turn(struct node *n)
{
	if (!n->members || n->now < member_deadline(n))
		return;
	for (struct member *m = n->members, *next; m; m = next) {
		next = m->next;
		look_around(n, m);
		pump(n, m);
		if (core_view_over(m->view, n->now))
			forget(n, m);
	}
}

void member_free_all(struct node *n)
{
	while (n->members)
		forget(n, n->members);
	spare_free_all(n);
}
