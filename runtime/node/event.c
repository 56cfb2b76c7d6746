/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * News for ranks: into the receive ring of every endpoint, to the notifiers in slurmstepd (which raise
 * PMIx events, spank/notify.c), and to the daemons of the nodes in contact, who tell theirs. Whoever
 * noticed is the origin and numbers its news; links keep their order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "node/node.h"

static bool event_room(struct chan *c)
{
	uint64_t head;
	uint32_t kept = 0;

	if (shm_ring_room(&c->rx) < 0)
		return false;
	head = c->rx.other;
	for (uint32_t i = 0; i < c->events_n; i++)
		if (c->events_end[i] > head)
			c->events_end[kept++] = c->events_end[i];
	c->events_n = kept;
	return kept < SHM_EVENTS_MAX;
}

#define HELD_MAX 512u /* and what there is once a node and step at most */

/* Requests end, or are made anew, by these. */
static bool is_of_members(const struct shm_event *ev)
{
	return ev->code == SHM_EV_NODE_LOST || ev->code == SHM_EV_PARTITIONED || ev->code == SHM_EV_NODE_REPLACED;
}

static bool is_of_rails(const struct shm_event *ev)
{
	return ev->code == SHM_EV_RAIL_FAILED || ev->code == SHM_EV_RAIL_BACK;
}

static bool is_of_paths(const struct shm_event *ev)
{
	return ev->code == SHM_EV_PEER_UNREACHABLE || ev->code == SHM_EV_PEER_BACK;
}

/* Both say how one thing is: the later one is enough. */
static bool same_thing(const struct shm_event *a, const struct shm_event *b)
{
	if (a->origin == b->origin && is_of_rails(a) && is_of_rails(b))
		return a->rail == b->rail;
	if (a->origin == b->origin && is_of_paths(a) && is_of_paths(b))
		return a->peer == b->peer;
	return a->code == b->code && a->step == b->step && a->peer == b->peer && a->rank == b->rank &&
		(is_of_members(a) || a->origin == b->origin);
}

/* A rank that makes no calls has the last word of each thing when it does, in the order in which it was said. */
static void hold(struct chan *c, const struct shm_event *ev)
{
	struct shm_event *more;

	if (ev->step != NODE_NONE && ev->step != c->step)
		return; /* it has no use for that of other steps */
	for (uint32_t i = 0; i < c->held_n; i++)
		if (same_thing(&c->held[i], ev)) {
			c->held_n--;
			memmove(c->held + i, c->held + i + 1, (c->held_n - i) * sizeof(*ev));
			c->events_lost++;
			break;
		}
	more = c->held_n < HELD_MAX || is_of_members(ev) ? realloc(c->held, (c->held_n + 1) * sizeof(*ev)) : NULL;
	if (!more) {
		c->events_lost++;
		return;
	}
	c->held = more;
	c->held[c->held_n++] = *ev;
}

/* What the reader was not told before this one, since it was last told something. */
static struct shm_event with_missed(struct chan *c, const struct shm_event *ev)
{
	struct shm_event e = *ev;

	e.missed = c->events_lost - c->events_said;
	c->events_said = c->events_lost;
	return e;
}

static void put(struct node *n, struct chan *c, const struct shm_event *news)
{
	struct shm_event e = with_missed(c, news), *ev = &e;
	struct wire_rec r = {.type = WIRE_REC_EVENT, .len = sizeof(*ev),
		.src_node = (uint16_t)n->o.self, .dst_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_ep = c->slot, .dst_epoch = c->epoch};

	if (chan_put(n, c, &r, ev))
		c->events_end[c->events_n++] = c->rx.pos;
}

void event_tell(struct node *n, struct chan *c, const struct shm_event *ev)
{
	if (c->closing)
		return;
	if (c->kind == CHAN_MONITOR) {
		uint32_t said = c->events_said;
		struct shm_event_msg m = {.m = {.type = SHM_MSG_EVENT, .abi = SHM_ABI}, .ev = with_missed(c, ev)};

		/* A notifier that does not read loses news; it never holds up traffic. */
		if (send(c->sock.fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			c->events_said = said;
			c->events_lost++;
		}
		return;
	}
	if (c->kind != CHAN_RANK)
		return;
	if (!c->held_n && event_room(c))
		put(n, c, ev);
	else
		hold(c, ev);
}

void event_held(struct node *n)
{
	for (struct chan *c = n->chans, *next; c; c = next) {
		uint32_t i = 0;

		next = c->next;
		while (i < c->held_n && !c->closing && event_room(c))
			put(n, c, &c->held[i++]);
		if (!i)
			continue;
		c->held_n -= i;
		memmove(c->held, c->held + i, c->held_n * sizeof(*c->held));
	}
}

void event_receive(struct node *n, const struct shm_event *ev)
{
	for (struct chan *c = n->chans, *next; c; c = next) {
		next = c->next;
		event_tell(n, c, ev);
	}
}

/* For what every daemon finds out by itself. */
void event_local(struct node *n, struct shm_event *ev)
{
	ev->origin = n->o.self;
	ev->seq = ++n->event_seq;
	ev->job = n->o.job;
	ev->restart = n->o.restart;
	ev->time_ns = node_utc();
	snprintf(ev->host, sizeof(ev->host), "%s", n->o.names[n->o.self]);
	event_receive(n, ev);
}

void event_raise(struct node *n, struct shm_event *ev)
{
	struct wire_rec r = {.type = WIRE_REC_EVENT, .len = sizeof(*ev),
		.src_node = (uint16_t)n->o.self, .src_ep = NODE_EP_DAEMON, .dst_ep = NODE_EP_DAEMON};

	event_local(n, ev);
	for (struct link *l = n->links; l; l = l->next) {
		r.dst_node = (uint16_t)l->peer;
		link_append(l, &r, ev);
	}
}
