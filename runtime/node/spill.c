/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What finds no room in a rank's receive ring, kept in order until there is some. Each source has credit0
 * before it hears from the ring's owner, and nobody knows how many sources there will be: what they send within
 * their credit must not cost the endpoint. More than all endpoints that can exist may send is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"

static uint64_t spill_max(const struct node *n, const struct chan *c)
{
	return (uint64_t)NODE_CHANS_MAX * n->o.nodes * c->credit0 + c->size;
}

bool spill_is_empty(const struct chan *c)
{
	return c->spill.head == c->spill.tail;
}

int spill_add(struct node *n, struct chan *c, const struct wire_rec *r, const void *payload)
{
	struct spill *s = &c->spill;
	size_t need = WIRE_REC_SPACE(r->len), left = s->tail - s->head;

	if (left + need > spill_max(n, c))
		return -EPROTO;
	if (s->tail + need > s->cap) {
		size_t cap = 2 * (left + need) < 65536 ? 65536 : 2 * (left + need);
		uint8_t *buf = malloc(cap);

		if (!buf)
			return -ENOMEM;
		if (left)
			memcpy(buf, s->buf + s->head, left);
		free(s->buf);
		*s = (struct spill){.buf = buf, .cap = cap, .tail = left};
	}
	memcpy(s->buf + s->tail, r, sizeof(*r));
	if (r->len)
		memcpy(s->buf + s->tail + sizeof(*r), payload, r->len);
	s->tail += need;
	return 0;
}

void spill_drain(struct chan *c)
{
	struct spill *s = &c->spill;

	while (s->head < s->tail) {
		struct wire_rec r, *to;

		memcpy(&r, s->buf + s->head, sizeof(r));
		to = shm_ring_reserve(&c->rx, r.len);
		if (!to)
			return;
		memcpy(to, &r, sizeof(r));
		memcpy(to + 1, s->buf + s->head + sizeof(r), r.len);
		shm_ring_commit(&c->rx, r.len);
		c->dirty = true;
		s->head += WIRE_REC_SPACE(r.len);
	}
	spill_free(c);
}

void spill_free(struct chan *c)
{
	free(c->spill.buf);
	c->spill = (struct spill){0};
}
