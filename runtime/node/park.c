/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/park.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct park *park_find(const struct chan *c, uint32_t node)
{
	struct park *p = c->parks;

	while (p && p->node != node)
		p = p->next;
	return p;
}

static struct park *room(struct chan *c, uint32_t node, size_t need)
{
	struct park *p = park_find(c, node);
	size_t cap;
	uint8_t *mem;

	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		p->node = node;
		DL_APPEND(c->parks, p);
	}
	if (p->tail + need <= p->cap)
		return p;
	if (p->head) {
		memmove(p->mem, p->mem + p->head, p->tail - p->head);
		p->tail -= p->head;
		p->head = 0;
	}
	for (cap = p->cap ? p->cap : 16384; p->tail + need > cap;)
		cap *= 2;
	mem = realloc(p->mem, cap);
	if (!mem)
		return NULL;
	p->mem = mem;
	p->cap = cap;
	return p;
}

int park_add(struct chan *c, const struct wire_rec *r, const void *payload)
{
	size_t need = WIRE_REC_SPACE(r->len);
	struct park *p = c->parked + need > PARK_MAX ? NULL : room(c, r->dst_node, need);

	if (!p)
		return -EAGAIN;
	memcpy(p->mem + p->tail, r, sizeof(*r));
	memcpy(p->mem + p->tail + sizeof(*r), payload, r->len);
	p->tail += need;
	c->parked += need;
	return 0;
}

static void drop(struct chan *c, struct park *p)
{
	DL_DELETE(c->parks, p);
	c->parked -= p->tail - p->head;
	free(p->mem);
	free(p);
}

bool park_flush(struct node *n, struct chan *c,
	int (*take)(struct node *n, const struct wire_rec *r, const void *payload))
{
	struct park *p, *next;
	bool did = false;

	DL_FOREACH_SAFE(c->parks, p, next) {
		struct wire_rec r;

		while (p->head < p->tail) {
			memcpy(&r, p->mem + p->head, sizeof(r));
			if (take(n, &r, p->mem + p->head + sizeof(r)))
				break;
			p->head += WIRE_REC_SPACE(r.len);
			c->parked -= WIRE_REC_SPACE(r.len);
			did = true;
		}
		if (p->head == p->tail)
			drop(c, p);
	}
	return did;
}

void park_free(struct chan *c)
{
	while (c->parks)
		drop(c, c->parks);
}
