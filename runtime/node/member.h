/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * member.h - a step's nodes as its daemon sees them: what member.c and spare.c share.
 *
 * Nodes of a step are numbered 0..nodes-1 in its order. The last `spares` stand by. An index is what
 * ranks are numbered by: index i is node i at first, and a spare's after a loss (core/view.h).
 */
#ifndef RCS_NODE_MEMBER_H
#define RCS_NODE_MEMBER_H

#include "core/view.h"
#include "node/node.h"

struct member_index {
	uint16_t node; /* who has it, or had it last */
	uint16_t incarnation;
	bool gone; /* that node is lost, and nobody has taken it over yet */
};

struct member {
	uint32_t step;
	struct chan *monitor; /* NULL: the step has ended here */
	uint64_t until;	      /* told to its ranks: they may act until then */
	uint16_t nodes, self, spares;
	uint32_t *node;	  /* [nodes] index in the job */
	uint16_t *tasks;  /* [nodes] processes there; 0: not known */
	uint32_t *first;  /* [nodes] the first of them in the step */
	struct core_view *view;
	uint64_t deadline;
	uint64_t witness_at; /* asked again then */
	/* spare.c */
	struct member_index *index; /* [nodes - spares] */
	uint16_t own;		    /* index of this node, CORE_VIEW_NONE: it stands by */
	bool *ended;		    /* [nodes] the ranks it had as an active node have ended */
	struct member_task {
		bool began;
		uint32_t live; /* contexts that are open */
	} *task; /* [tasks[self]] */
	struct member *next;
};

/* Nodes that do not stand by at first: indices are below it. */
static inline uint16_t member_active(const struct member *m)
{
	return (uint16_t)(m->nodes - m->spares);
}

struct member *member_find(struct node *n, uint32_t step);

/* spare.c */
int spare_open(struct member *m); /* after nodes, self, spares, tasks; 0 or -ENOMEM */
void spare_close(struct member *m);
void spare_begin(struct node *n, struct member *m);
void spare_free_all(struct node *n); /* what came before its step began */
/* What the event says of the index. */
void spare_fill(const struct member *m, uint16_t index, struct shm_event *ev);
void spare_lost(struct member *m, const struct core_view_act *a);
void spare_switch(struct node *n, struct member *m, const struct core_view_act *a);
void spare_step_ended(struct node *n, struct member *m); /* no rank of it is left on this node */
/* Tells the ranks that wait what can be told by now. */
void spare_settle(struct node *n);

#endif
