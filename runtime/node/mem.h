/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mem.h - memory that is given back to the kernel by a thread: unpinning, unmapping and freeing a gigabyte
 * takes half a second, and the daemon's loop carries all links meanwhile.
 */
#ifndef RCS_NODE_MEM_H
#define RCS_NODE_MEM_H

#include <stddef.h>

struct node;
struct work_queue;

#define MEM_LONG (4u << 20) /* bytes from which on it is worth a thread */

/* Its queue; NULL: there is none, the caller does it itself. */
struct work_queue *mem_queue(struct node *n);
void mem_unmap(struct node *n, void *map, size_t len);

#endif
