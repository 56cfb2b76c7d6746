/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * index.h - a hash of linked objects that keeps the order in which objects of one key were added. A lookup walks
 * what has the same hash: the caller compares keys. The embedded first slots are all there is when memory is out.
 */
#ifndef RCS_CLIENT_INDEX_H
#define RCS_CLIENT_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct cl_link {
	struct cl_link *prev, *next;
	uint64_t hash;
};

struct cl_slot {
	struct cl_link *head, *tail;
};

#define CL_INDEX_FIRST 16u

struct cl_index {
	struct cl_slot *slot; /* NULL: first[] */
	uint32_t mask, n;
	struct cl_slot first[CL_INDEX_FIRST];
};

#define cl_link_of(link, type, member) ((type *)(void *)((char *)(link) - offsetof(type, member)))

static inline uint64_t cl_hash(uint64_t a, uint64_t b)
{
	uint64_t h = a * 0x9e3779b97f4a7c15ull ^ b;

	/* the finalizer of splitmix64 */
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ h >> 27) * 0x94d049bb133111ebull;
	return h ^ h >> 31;
}

void cl_index_add(struct cl_index *ix, struct cl_link *l, uint64_t hash);
void cl_index_del(struct cl_index *ix, struct cl_link *l);
/* The oldest of that hash, the next one; NULL: no more. */
struct cl_link *cl_index_first(const struct cl_index *ix, uint64_t hash);
struct cl_link *cl_index_next(const struct cl_link *l);
/* All of them, in no order: slot after slot from 0; NULL: the end. l may go before the next call. */
struct cl_link *cl_index_walk(const struct cl_index *ix, uint32_t *slot, struct cl_link **next);
void cl_index_free(struct cl_index *ix);

#endif
