/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "client/index.h"

static struct cl_slot *slots(const struct cl_index *ix)
{
	return ix->slot ? ix->slot : (struct cl_slot *)(uintptr_t)ix->first;
}

static uint32_t mask_of(const struct cl_index *ix)
{
	return ix->slot ? ix->mask : CL_INDEX_FIRST - 1;
}

static void append(struct cl_slot *s, struct cl_link *l)
{
	l->next = NULL;
	l->prev = s->tail;
	if (s->tail)
		s->tail->next = l;
	else
		s->head = l;
	s->tail = l;
}

/* Objects of one hash are in one slot, in order, and stay so. */
static void grow(struct cl_index *ix)
{
	uint32_t old = mask_of(ix) + 1, mask = 4 * old - 1;
	struct cl_slot *more = calloc(4 * (size_t)old, sizeof(*more)), *s = slots(ix);

	if (!more)
		return;
	for (uint32_t i = 0; i < old; i++)
		for (struct cl_link *l = s[i].head, *next; l; l = next) {
			next = l->next;
			append(&more[l->hash & mask], l);
		}
	free(ix->slot);
	ix->slot = more;
	ix->mask = mask;
}

void cl_index_add(struct cl_index *ix, struct cl_link *l, uint64_t hash)
{
	if (ix->n >= 2 * (mask_of(ix) + 1) && mask_of(ix) < 1u << 24)
		grow(ix);
	l->hash = hash;
	append(&slots(ix)[hash & mask_of(ix)], l);
	ix->n++;
}

void cl_index_del(struct cl_index *ix, struct cl_link *l)
{
	struct cl_slot *s = &slots(ix)[l->hash & mask_of(ix)];

	if (l->prev)
		l->prev->next = l->next;
	else
		s->head = l->next;
	if (l->next)
		l->next->prev = l->prev;
	else
		s->tail = l->prev;
	ix->n--;
}

static struct cl_link *from(struct cl_link *l, uint64_t hash)
{
	while (l && l->hash != hash)
		l = l->next;
	return l;
}

struct cl_link *cl_index_first(const struct cl_index *ix, uint64_t hash)
{
	return ix->n ? from(slots(ix)[hash & mask_of(ix)].head, hash) : NULL;
}

struct cl_link *cl_index_next(const struct cl_link *l)
{
	return from(l->next, l->hash);
}

struct cl_link *cl_index_walk(const struct cl_index *ix, uint32_t *slot, struct cl_link **next)
{
	struct cl_link *l = *next;

	while (!l && *slot <= mask_of(ix))
		l = slots(ix)[(*slot)++].head;
	*next = l ? l->next : NULL;
	return l;
}

void cl_index_free(struct cl_index *ix)
{
	free(ix->slot);
	*ix = (struct cl_index){0};
}
