/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spare nodes of a step: which process is which rank, and which of them wait.
 *
 * Links, frames and keys go by nodes, and a lost node's link is fenced for ever: whatever comes from its
 * time is refused. Only the numbers of ranks move to the spare, when the machine says so
 * (CORE_VIEW_ACT_SWITCH). The spare's processes wait in rcs_init, that is in SHM_MSG_PLACE, without a channel.
 *
 * A node whose ranks have all ended their contexts, or whose step is over, tells the spares so
 * (WIRE_REC_ENDED). When all indices have ended or are down, who still waits is not needed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/member.h"
#include "rcshare.h"

/* ENDED that came before the step began here. */
struct early {
	uint32_t step, node;
	struct early *next;
};

static uint32_t ranks(const struct member *m)
{
	return m->first[member_active(m) - 1] + m->tasks[member_active(m) - 1];
}

int spare_open(struct member *m)
{
	m->first = calloc(m->nodes, sizeof(*m->first));
	m->index = calloc(member_active(m), sizeof(*m->index));
	m->ended = calloc(m->nodes, sizeof(*m->ended));
	m->task = calloc(m->tasks[m->self] + 1u, sizeof(*m->task));
	if (!m->first || !m->index || !m->ended || !m->task)
		return -ENOMEM;
	for (uint16_t i = 1; i < m->nodes; i++)
		m->first[i] = m->first[i - 1] + m->tasks[i - 1];
	for (uint16_t i = 0; i < member_active(m); i++)
		m->index[i].node = i;
	m->own = m->self < member_active(m) ? m->self : CORE_VIEW_NONE;
	return 0;
}

void spare_close(struct member *m)
{
	free(m->first);
	free(m->index);
	free(m->ended);
	free(m->task);
}

void spare_fill(const struct member *m, uint16_t index, struct shm_event *ev)
{
	uint16_t heir;

	ev->index = ev->first_rank = ev->spare = NODE_NONE;
	if (index == CORE_VIEW_NONE)
		return;
	ev->index = index;
	ev->incarnation = m->index[index].incarnation;
	ev->first_rank = m->first[index];
	ev->ranks = m->tasks[index];
	heir = core_view_node(m->view, index, NULL);
	if (ev->code == SHM_EV_NODE_LOST && heir != CORE_VIEW_NONE)
		ev->spare = m->node[heir];
}

/* --- who waits, and for what --------------------------------------------------------------------- */

static bool all_ended(const struct member *m)
{
	for (uint16_t i = 0; i < member_active(m); i++) {
		const struct member_index *x = &m->index[i];

		if (!m->ended[x->node] && !(x->gone && core_view_node(m->view, i, NULL) == CORE_VIEW_NONE))
			return false;
	}
	return true;
}

static void answer(struct chan *c, int result, const char *sentence, struct shm_placed *out)
{
	out->m.type = SHM_MSG_PLACE;
	out->m.abi = SHM_ABI;
	out->result = result;
	snprintf(out->m.sentence, sizeof(out->m.sentence), "%s", sentence);
	c->place.waits = false;
	c->place.placed = result == RCS_OK;
	ctl_answer(c, out, sizeof(*out), NULL, 0);
}

static void place(struct node *n, struct member *m, struct chan *c)
{
	uint32_t local = c->place.task - m->first[m->self];
	struct shm_placed out = {.ranks = ranks(m)};

	if (c->place.task < m->first[m->self] || local >= m->tasks[m->self]) {
		answer(c, RCS_ERR_INVALID, "with spare nodes the ranks of a node must follow each other; use "
			"srun -m block, and srun itself to start the ranks", &out);
	} else if (m->own != CORE_VIEW_NONE && local < m->tasks[m->own]) {
		if (m->self != m->own && !core_view_acting(m->view, n->now))
			return;
		out.rank = m->first[m->own] + local;
		out.incarnation = m->index[m->own].incarnation;
		c->place.local = local;
		m->task[local].began = true;
		m->task[local].live++;
		answer(c, RCS_OK, "", &out);
	} else if (all_ended(m)) {
		answer(c, RCS_NOT_NEEDED, "", &out);
	}
}

static void settle(struct node *n, struct chan *c)
{
	struct member *m = member_find(n, c->step);
	struct shm_placed out = {.rank = 0};

	if (!n->cfg.node_timeout_ms)
		answer(c, RCS_ERR_UNSUPPORTED, "spare nodes need node_timeout_ms in rcshare.conf: without it no "
			"node is ever lost", &out);
	else if (n->no_member == c->step)
		answer(c, RCS_ERR_NO_RUNTIME, "the daemon cannot watch the step's nodes; its log says why", &out);
	else if (n->parted)
		answer(c, RCS_ERR_PARTITIONED, NODE_PARTED, &out);
	else if (m)
		place(n, m, c);
}

void spare_settle(struct node *n)
{
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->place.waits && !c->closing)
			settle(n, c);
}

void spare_place(struct node *n, struct chan *c, const struct shm_place *p)
{
	struct shm_placed out = {.rank = 0};

	if (c->kind != CHAN_NEW) {
		answer(c, RCS_ERR_INVALID, "this connection has asked already", &out);
		return;
	}
	c->kind = CHAN_PLACE;
	c->step = p->step;
	c->place.task = p->task;
	c->place.waits = true;
	settle(n, c);
}

static uint16_t index_of(const struct member *m, uint32_t rank)
{
	uint16_t i = 0;

	while (i < member_active(m) && rank >= m->first[i] + m->tasks[i])
		i++;
	return i;
}

void spare_where(struct node *n, struct chan *c, const struct shm_where *w)
{
	struct shm_there out = {.m = {.type = SHM_MSG_WHERE, .abi = SHM_ABI}};
	struct member *m = member_find(n, c->step);
	uint16_t i = m ? index_of(m, w->rank) : 0;

	if (n->parted) {
		out.result = RCS_ERR_PARTITIONED;
	} else if (!m || i == member_active(m)) {
		out.result = RCS_ERR_INVALID;
	} else if (m->index[i].gone) {
		out.result = RCS_ERR_NODE_LOST;
	} else {
		out.task = m->first[m->index[i].node] + w->rank - m->first[i];
		out.incarnation = m->index[i].incarnation;
	}
	ctl_answer(c, &out, sizeof(out), NULL, 0);
}

uint32_t spare_incarnation(struct node *n, uint32_t step)
{
	const struct member *m = member_find(n, step);

	return m && m->own != CORE_VIEW_NONE ? m->index[m->own].incarnation : 0;
}

/* --- ends ----------------------------------------------------------------------------------------- */

void spare_step_ended(struct node *n, struct member *m)
{
	struct wire_rec r = {.type = WIRE_REC_ENDED, .src_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_ep = NODE_EP_DAEMON, .data = m->step};

	if (!m->spares || m->own == CORE_VIEW_NONE || m->ended[m->self])
		return;
	m->ended[m->self] = true;
	for (uint16_t i = member_active(m); i < m->nodes; i++) {
		struct link *l = i == m->self ? NULL : link_get(n, m->node[i]);

		r.dst_node = (uint16_t)m->node[i];
		if (l)
			link_answer(l, &r, "");
	}
	spare_settle(n);
}

/* A context has ended, well or not. */
void spare_left(struct node *n, struct chan *c)
{
	struct member *m = member_find(n, c->step);

	if (!c->place.placed || !m)
		return;
	c->place.placed = false;
	m->task[c->place.local].live--;
	for (uint16_t i = 0; i < m->tasks[m->own] && i < m->tasks[m->self]; i++)
		if (!m->task[i].began || m->task[i].live)
			return;
	spare_step_ended(n, m);
}

static void ended(struct member *m, uint32_t node)
{
	for (uint16_t i = 0; i < m->nodes; i++)
		if (m->node[i] == node)
			m->ended[i] = true;
}

void spare_receive(struct node *n, const struct wire_rec *r)
{
	struct member *m = member_find(n, (uint32_t)r->data);
	struct early *e;

	if (m) {
		ended(m, r->src_node);
		spare_settle(n);
		return;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return;
	*e = (struct early){.step = (uint32_t)r->data, .node = r->src_node, .next = n->early};
	n->early = e;
}

void spare_free_all(struct node *n)
{
	while (n->early) {
		struct early *e = n->early;

		n->early = e->next;
		free(e);
	}
}

void spare_begin(struct node *n, struct member *m)
{
	for (struct early **p = &n->early, *e; (e = *p);) {
		if (e->step != m->step) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		ended(m, e->node);
		free(e);
	}
	spare_settle(n);
}

/* --- what is decided -------------------------------------------------------------------------------- */

void spare_lost(struct member *m, const struct core_view_act *a)
{
	if (a->index != CORE_VIEW_NONE && m->index[a->index].node == a->node)
		m->index[a->index].gone = true;
}

void spare_switch(struct node *n, struct member *m, const struct core_view_act *a)
{
	struct member_index *x = &m->index[a->index];
	uint32_t node = m->node[a->node];
	struct shm_event ev = {.code = SHM_EV_NODE_REPLACED, .step = m->step, .rank = NODE_NONE, .peer = node,
		.rail = NODE_NONE, .to_lane = SHM_LANE_NONE, .view = a->view};

	/* Whose ranks had ended is not begun again. */
	if (m->ended[x->node])
		m->ended[a->node] = true;
	else if (a->node == m->self)
		m->own = a->index;
	*x = (struct member_index){.node = a->node, .incarnation = a->incarnation};
	atomic_store(&n->table->node_tab[node].incarnation, a->incarnation);
	spare_fill(m, a->index, &ev);
	snprintf(ev.peer_host, sizeof(ev.peer_host), "%.63s", n->o.names[node]);
	snprintf(ev.reason, sizeof(ev.reason), "view %u", a->view);
	node_log(n, CONFIG_LOG_WARN, "node %u (%s) has taken over index %u of step %u, incarnation %u", node,
		n->o.names[node], a->index, m->step, a->incarnation);
	evlog_event(&n->log, "node_replaced", json_pack("{s:i,s:s,s:i,s:i,s:i,s:i,s:i,s:i}", "peer", (int)node,
		"peer_host", n->o.names[node], "step", (int)m->step, "view", (int)a->view, "index",
		(int)a->index, "incarnation", (int)a->incarnation, "first_rank", (int)ev.first_rank, "ranks",
		(int)ev.ranks));
	event_local(n, &ev);
}
