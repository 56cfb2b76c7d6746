/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nodes that cannot be connected to. A step waits for them, for as long as nobody says so: after a time it is
 * said from which node to which, at what port, and what was noticed. To the admin in the log, to whoever asks by
 * `rcshare status`, to this node's ranks as an event, and to the user by the neighbours of such a node alone: all
 * nodes of a large job would say the same.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "node/node.h"

#define TOLD_NS 10000000000ull /* without a connection for so long */
#define FEW	8u	       /* nodes: all of them tell the user */

void contact_failed(struct link *l, const char *how)
{
	char at[80] = "";

	if (l->lost)
		return;
	if (!l->contact.since)
		l->contact.since = l->n->now;
	if (l->addr.ss_family)
		admit_name(&l->addr, at, sizeof(at));
	snprintf(l->contact.why, sizeof(l->contact.why), "no TCP connection from %.32s to %.32s%s%s%s: %s",
		l->n->o.names[l->n->o.self], l->n->o.names[l->peer], *at ? " (" : "", at, *at ? ")" : "", how);
}

void contact_errno(struct link *l, int err)
{
	contact_failed(l, err == ECONNREFUSED ? "refused: no daemon of this job listens there" :
		err == ETIMEDOUT ? CONTACT_SILENT : strerror(err));
}

static void event(struct link *l, uint32_t code, const char *reason)
{
	struct shm_event ev = {.code = code, .step = NODE_NONE, .rank = NODE_NONE, .peer = l->peer,
		.rail = NODE_NONE, .to_lane = SHM_LANE_NONE};

	snprintf(ev.reason, sizeof(ev.reason), "%s", reason);
	snprintf(ev.peer_host, sizeof(ev.peer_host), "%s", l->n->o.names[l->peer]);
	event_local(l->n, &ev);
}

void contact_made(struct link *l)
{
	bool told = l->contact.told;

	memset(&l->contact, 0, sizeof(l->contact));
	if (!told)
		return;
	node_log(l->n, CONFIG_LOG_WARN, "node %s is connected now", l->n->o.names[l->peer]);
	event(l, SHM_EV_PEER_BACK, "connected");
}

static void say_to_user(struct node *n, const char *sentence)
{
	struct shm_msg m = {.type = SHM_MSG_SAY, .abi = SHM_ABI};

	snprintf(m.sentence, sizeof(m.sentence), "%s", sentence);
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->kind == CHAN_MONITOR && !c->closing)
			ctl_answer(c, &m, sizeof(m), NULL, 0);
}

static void tell(struct link *l)
{
	struct node *n = l->n;
	uint32_t next = (n->o.self + 1) % n->o.nodes, last = (n->o.self + n->o.nodes - 1) % n->o.nodes;

	l->contact.told = true;
	node_log(n, CONFIG_LOG_WARN, "%s", l->contact.why);
	evlog_event(&n->log, "no_contact", json_pack("{s:i,s:s,s:s}", "peer", (int)l->peer, "peer_host",
		n->o.names[l->peer], "reason", l->contact.why));
	atomic_store(&n->table->node_tab[l->peer].state, SHM_NODE_UNREACHABLE);
	event(l, SHM_EV_PEER_UNREACHABLE, "no TCP connection");
	if (n->o.nodes <= FEW || l->peer == next || l->peer == last)
		say_to_user(n, l->contact.why);
}

void contact_tick(struct node *n)
{
	for (struct link *l = n->links; l; l = l->next)
		/* one that was there once is membership's, and told by its lanes */
		if (l->contact.since && !l->contact.told && !l->heard_at && !l->lost &&
			n->now - l->contact.since >= TOLD_NS)
			tell(l);
}
