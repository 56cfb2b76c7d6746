/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * park.h - records of a rank for a node whose link takes no more: they wait aside, in order, so that what the rank
 * sends elsewhere goes on. A rank that heeds the table's `busy` flag parks little; one that does not is held up
 * as a whole once PARK_MAX bytes of it wait.
 */
#ifndef RCS_NODE_PARK_H
#define RCS_NODE_PARK_H

#include "node/node.h"

#define PARK_MAX (1u << 20) /* of a channel */

struct park {
	uint32_t node;
	uint8_t *mem;
	size_t head, tail, cap;
	struct park *prev, *next;
};

struct park *park_find(const struct chan *c, uint32_t node);
int park_add(struct chan *c, const struct wire_rec *r, const void *payload); /* 0; -EAGAIN: no room */
/* Offers each node's records to take(), until that returns -EAGAIN. true: some were taken. */
bool park_flush(struct node *n, struct chan *c,
	int (*take)(struct node *n, const struct wire_rec *r, const void *payload));
void park_free(struct chan *c);

#endif
