/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Membership of steps (core/view.h): what links hear and miss goes in, decisions come out.
 *
 * A step's members are its nodes; slurmstepd's notifier names them (SHM_MSG_MONITOR). A node is suspected
 * when a link that has heard it hears nothing for node_timeout_ms, or when its daemon refuses or resets
 * the connection. Who was never heard is not suspected: it may still be starting. When the members have
 * decided that a node is lost its lanes are fenced, then everything outstanding to it ends
 * with RCS_ERR_NODE_LOST, and every rank hears it.
 *
 * A step that has ended here goes on answering others for a while: they end a little later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "node/member.h"
#include "rcshare.h"

#define MS	   1000000ull
#define LINGER_NS  (10000 * MS)
#define WITNESS_NS (1000 * MS)	     /* slurmctld is asked so often */
#define WITNESS_HOLDS_NS (20000 * MS) /* a command that asks it may take ten seconds */
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
	free(m->suspected);
	free(m->spoken);
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
	m->suspected = calloc(max, sizeof(*m->suspected));
	m->spoken = calloc(max, sizeof(*m->spoken));
	if (!m->node || !m->tasks || !m->suspected || !m->spoken)
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
	uint64_t timeout = node_timeout(n);

	core_view_cfg_default(cfg);
	cfg->nodes = m->nodes;
	cfg->self = m->self;
	cfg->witness = has_witness(n, m);
	cfg->spares = m->spares;
	cfg->beat_ns = timeout / 2 > cfg->beat_ns ? timeout / 2 : cfg->beat_ns;
	cfg->lease_ns = 4 * timeout > cfg->lease_ns ? 4 * timeout : cfg->lease_ns;
	cfg->pair_ns = 8 * timeout > cfg->pair_ns ? 8 * timeout : cfg->pair_ns;
	if (!m->spares)
		return;
	/* A spare waits for the end of the lost node's lease: short, with as many beats in it. */
	cfg->beat_ns = timeout / 4 > cfg->hop_ns ? timeout / 4 : cfg->hop_ns;
	cfg->lease_ns = 5 * cfg->beat_ns;
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

void member_begin(struct node *n, struct chan *c, const struct shm_monitor *req)
{
	struct member *m;
	int err;

	if (!n->cfg.node_timeout_ms || req->len < 2 || member_find(n, req->step))
		return;
	m = calloc(1, sizeof(*m));
	if (!m)
		return;
	m->step = req->step;
	m->monitor = c;
	m->next = n->members;
	n->members = m;
	err = begin(n, m, req);
	if (err) {
		node_log(n, CONFIG_LOG_WARN, "no membership for step %u: %s", m->step, err == -EINVAL ?
			"its nodes are not those of the job" : "out of memory");
		n->no_member = m->step;
	}
	if (err || m->nodes < 2)
		forget(n, m);
	else
		spare_begin(n, m);
	spare_settle(n);
}

void member_end(struct node *n, struct chan *c)
{
	for (struct member *m = n->members; m; m = m->next)
		if (m->monitor == c) {
			m->monitor = NULL;
			m->until = n->now + LINGER_NS;
			spare_step_ended(n, m);
		}
}

/* --- what links hear ------------------------------------------------------------------------------ */

static bool watched(const struct member *m, uint16_t who)
{
	uint16_t list[16];
	unsigned k = core_view_watched(m->view, list);

	while (k)
		if (list[--k] == who)
			return true;
	return false;
}

/*
 * Neighbours to be watched, and whom the machine speaks to, are contacted without any rank's wish. A spare
 * and all others have their lanes up before they are needed.
 */
static void reach(struct node *n, struct member *m, uint16_t i, bool neighbour)
{
	bool by_spare = i >= member_active(m) || m->self >= member_active(m);
	struct link *l;

	if (!(m->spoken[i] || neighbour || by_spare))
		return;
	l = link_get(n, m->node[i]);
	if (!l || l->lost)
		return;
	find_link(l);
	if (by_spare && l->heard_at && !l->core.wanted) {
		core_link_want(&l->core, n->now);
		link_dirty(l);
	}
}

/* From now on, not after the next sign of life that is planned already. */
static void keep_alive(struct link *l, uint64_t ns)
{
	l->core.cfg.keepalive_ns = ns;
	for (unsigned i = 0; i < CORE_LANES; i++)
		if (l->core.lane[i].alive_at > l->n->now + ns)
			l->core.lane[i].alive_at = l->n->now + ns;
	link_dirty(l);
}

/* The other one where two are left, or CORE_VIEW_NONE. */
static uint16_t other_of_two(const struct member *m)
{
	uint16_t other = CORE_VIEW_NONE;

	for (uint16_t i = 0; i < m->nodes; i++) {
		if (i == m->self || !core_view_member(m->view, i))
			continue;
		if (other != CORE_VIEW_NONE)
			return CORE_VIEW_NONE;
		other = i;
	}
	return other;
}

/*
 * The members of another step of the job have decided that it is lost: then this one's have to, or it counts as a
 * member that never votes. Not where that would only stop this node, as one of two that may not decide alone.
 */
static bool lost_before(const struct node *n, const struct member *m, uint16_t i)
{
	if (n->parted)
		return false;
	return other_of_two(m) != i || (m->self < i && !has_witness(n, m));
}

static void look(struct node *n, struct member *m, uint16_t i, bool neighbour)
{
	struct link *l = n->link[m->node[i]];
	uint64_t timeout = node_timeout(n);
	bool bad;

	if (!l || !(l->heard_at || l->lost))
		return;
	if (l->lost) {
		if (lost_before(n, m, i)) {
			core_view_suspect(m->view, i, n->now);
			m->suspected[i] = true;
		}
		return;
	}
	if (neighbour && timeout / 4 < l->core.cfg.keepalive_ns)
		keep_alive(l, timeout / 4);
	if (3 * l->core.cfg.keepalive_ns > timeout)
		timeout = 3 * l->core.cfg.keepalive_ns;
	bad = l->refused || n->now > l->heard_at + timeout;
	if (bad)
		core_view_suspect(m->view, i, n->now);
	else
		core_view_trust(m->view, i, n->now);
	if (bad && !m->suspected[i]) {
		struct shm_event ev = {.code = SHM_EV_NODE_SUSPECTED, .step = m->step, .rank = NODE_NONE,
			.peer = l->peer, .rail = NODE_NONE, .to_lane = SHM_LANE_NONE,
			.notice_ns = n->now - l->heard_at};

		snprintf(ev.reason, sizeof(ev.reason), "%s", l->refused ? "refused" : "silent");
		node_log(n, CONFIG_LOG_WARN, "node %u (%s) is suspected: %s", l->peer, n->o.names[l->peer],
			ev.reason);
		event_local(n, &ev);
	}
	m->suspected[i] = bad;
}

/* A loop that slept too long has heard nobody: that is no evidence. */
static bool overslept(struct node *n)
{
	uint64_t gap = n->member_at ? n->now - n->member_at : 0;

	n->member_at = n->now;
	if (gap < node_timeout(n) / 4)
		return false;
	for (struct link *l = n->links; l; l = l->next)
		if (l->heard_at)
			l->heard_at = l->heard_at + gap < n->now ? l->heard_at + gap : n->now;
	return true;
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
	uint16_t other = has_witness(n, m) && n->now >= m->witness_at ? other_of_two(m) : CORE_VIEW_NONE;

	if (other == CORE_VIEW_NONE || !m->suspected[other])
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
		uint16_t other = m->monitor == c ? other_of_two(m) : CORE_VIEW_NONE;

		if (other == CORE_VIEW_NONE ||
			strncmp(w->node, n->o.names[m->node[other]], sizeof(w->node)))
			continue;
		n->witness_answers++;
		m->witness_until = n->now + WITNESS_HOLDS_NS;
		if (w->down)
			core_view_witness(m->view, other, n->now);
		m->deadline = n->now;
		n->work = true;
	}
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

	m->spoken[a->node] = true;
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
		case CORE_VIEW_ACT_SWITCH:
			spare_switch(n, m, &a);
			break;
		default:
			break;
		}
		told |= a.type != CORE_VIEW_ACT_SEND;
	}
	if (told && m->spares)
		spare_settle(n);
	m->deadline = core_view_deadline(m->view);
}

void member_receive(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct member *m = member_find(n, (uint32_t)r->data);
	struct core_view_msg msg;

	if (!m || r->len != sizeof(msg))
		return;
	memcpy(&msg, payload, sizeof(msg));
	core_view_rx(m->view, &msg, n->now);
	m->deadline = n->now;
	n->work = true;
}

/* Not acting, and half of those that were not removed are silent: also where the lease had not begun yet. */
static bool is_cut(const struct node *n, const struct member *m)
{
	unsigned silent = 0, members = 0;

	for (uint16_t i = 0; i < m->nodes; i++) {
		members += core_view_member(m->view, i);
		silent += m->suspected[i] && core_view_member(m->view, i);
	}
	return 2 * silent >= members && n->now >= m->witness_until && !core_view_acting(m->view, n->now);
}

/*
 * A pause of the host looks the same, so a node that nobody replaces is not stopped at once. With spares
 * another may act in its place soon after its lease.
 */
static uint64_t grace(const struct node *n, const struct member *m)
{
	return m->spares ? 0 : 4 * node_timeout(n);
}

uint64_t member_deadline(const struct node *n)
{
	uint64_t d = n->members ? n->member_at + node_timeout(n) / 16 : CORE_NEVER;

	for (const struct member *m = n->members; m; m = m->next)
		if (m->deadline < d)
			d = m->deadline;
	return d;
}

void member_turn(struct node *n)
{
	bool due;

	if (!n->members || n->now < member_deadline(n))
		return;
	due = n->now >= n->member_at + node_timeout(n) / 16;
	if (due && overslept(n))
		due = false;
	for (struct member *m = n->members, *next; m; m = next) {
		next = m->next;
		for (uint16_t i = 0; due && m->monitor && i < m->nodes; i++)
			if (i != m->self && core_view_member(m->view, i)) {
				bool neighbour = watched(m, i);

				reach(n, m, i, neighbour);
				look(n, m, i, neighbour);
			}
		pump(n, m);
		if (due && m->monitor)
			witness_ask(n, m);
		if (due && !(m->monitor && is_cut(n, m)))
			m->cut_since = 0;
		else if (due && !m->cut_since)
			m->cut_since = n->now;
		if (m->monitor && m->cut_since && n->now > m->cut_since + grace(n, m))
			stop(n, m, "no contact with the majority of the step's nodes");
		if (!m->monitor && n->now >= m->until)
			forget(n, m);
	}
}

void member_free_all(struct node *n)
{
	while (n->members)
		forget(n, n->members);
}
