/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/mem.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "node/node.h"

struct unmapping {
	struct work w; /* first */
	void *map;
	size_t len;
};

struct work_queue *mem_queue(struct node *n)
{
	if (!n->mem && n->works)
		n->mem = work_queue_open(n->works, "rcshared-mem");
	return n->mem;
}

static void unmapping_run(struct work *w)
{
	struct unmapping *u = (struct unmapping *)w;

	munmap(u->map, u->len);
	free(u);
}

void mem_unmap(struct node *n, void *map, size_t len)
{
	struct unmapping *u = len < MEM_LONG || !mem_queue(n) ? NULL : malloc(sizeof(*u));

	if (u) {
		*u = (struct unmapping){.w = {.run = unmapping_run}, .map = map, .len = len};
		if (!work_put(mem_queue(n), &u->w))
			return;
		free(u);
	}
	munmap(map, len);
}
