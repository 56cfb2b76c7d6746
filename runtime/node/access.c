/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "rcshare.h"

static void end(struct node *n, struct chan *c, struct access *a, int status)
{
	n->work = true;
	DL_DELETE(c->accesses, a);
	if (status)
		a->step(n, a, status, NULL, 0);
	free(a);
}

static uint32_t part(const struct access *a)
{
	return (uint32_t)(a->len - a->off < SERVE_SLICE ? a->len - a->off : SERVE_SLICE);
}

static void send_next(struct node *n, struct chan *c)
{
	struct access *a;

	while (!c->access_out && (a = c->accesses)) {
		struct wire_rec r = {.type = WIRE_REC_ACCESS, .src_node = (uint16_t)n->o.self,
			.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)n->o.self, .dst_ep = c->slot,
			.dst_epoch = c->epoch, .tag = a->addr + a->off, .data = a->name, .arg = part(a)};

		if (!a->own && !region_find(n, c, wire_key_unpack(a->name))) {
			end(n, c, a, RCS_ERR_ACCESS);
			continue;
		}
		r.flags = (uint16_t)((a->write ? WIRE_REC_F_WRITE : 0) | (a->own ? WIRE_REC_F_OWN : 0));
		r.len = a->write ? part(a) : 0;
		r.op = c->access_out = ++c->access_id;
		a->sent = true;
		chan_put(n, c, &r, a->data + (a->write ? a->off : 0));
	}
}

int access_hand(struct node *n, struct chan *c, const struct access *what, const void *data)
{
	size_t extra = what->write ? what->len : 0;
	struct access *a = malloc(sizeof(*a) + extra);

	if (!a)
		return RCS_ERR_NOMEM;
	*a = *what;
	if (extra)
		memcpy(a->data, data, extra);
	DL_APPEND(c->accesses, a);
	send_next(n, c);
	return 0;
}

int access_answer(struct node *n, struct chan *c, const struct wire_rec *r, const uint8_t *payload)
{
	int status = (int)(int64_t)r->arg;
	struct access *a = c->accesses;
	uint32_t len;

	if (!c->access_out || r->op != c->access_out)
		return -EPROTO;
	n->work = true;
	if (a && a->sent) { /* else its region was closed meanwhile */
		len = part(a);
		if (r->len != (a->write || status ? 0 : len))
			return -EPROTO;
		a->sent = false;
		if (status) {
			end(n, c, a, status);
		} else {
			bool more = a->step(n, a, 0, payload, len);

			a->off += len;
			if (!more || a->off == a->len)
				end(n, c, a, 0);
		}
	}
	c->access_out = 0; /* not before: step may hand over more */
	if (!c->closing)
		send_next(n, c);
	return 0;
}

void access_closed(struct node *n, struct chan *c, uint64_t key, bool answered)
{
	struct access *a, *tmp;

	DL_FOREACH_SAFE(c->accesses, a, tmp)
		if (!a->own && a->name == key && (answered || !a->sent))
			end(n, c, a, RCS_ERR_ACCESS);
}

void access_node_lost(struct node *n, uint32_t node)
{
	struct access *a, *tmp;

	for (struct chan *c = n->chans; c; c = c->next)
		DL_FOREACH_SAFE(c->accesses, a, tmp)
			if (!a->own && !a->r && a->rec.src_node == node && !a->sent)
				end(n, c, a, RCS_ERR_NODE_LOST);
}

void access_chan_gone(struct node *n, struct chan *c)
{
	while (c->accesses)
		end(n, c, c->accesses, RCS_ERR_PEER_GONE);
}
