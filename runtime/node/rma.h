/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - a put or get of a rank, between rma.c (RDMA) and serve.c (frames).
 */
#ifndef RCS_NODE_RMA_H
#define RCS_NODE_RMA_H

#include "node/node.h"

struct rma {
	struct chan *c; /* in whose list of requests it is; NULL: the rank is gone */
	uint64_t op;
	bool large; /* fetches a large message: answered by GET_DONE */
	bool get, replay;
	bool refused; /* a piece of it, by the peer's device */
	uint32_t node;
	uint16_t ep; /* owner of the remote memory */
	uint32_t epoch;
	struct wire_key key;
	uint64_t remote; /* large: virtual address; else offset in the region */
	uint64_t laddr, len;
	struct region *local; /* NULL: none */
	struct import *im;    /* NULL: by frames only */
	struct wire_key_info msg; /* large: where it is; else im says so */
	uint8_t *copy;	      /* inline data */
	bool begun;	      /* something was issued (a zero length is, once) */
	uint64_t issued;
	uint32_t pieces; /* under way */
	struct flow *flow; /* NULL: within the node (flow.h) */
	bool waiting;	   /* among those of the flow that are not all issued */
	bool ended;	   /* among those of the link whose end is told next */
	int status;	 /* first error */
	struct rma *prev, *next;   /* of its link, or of those within the node */
	struct rma *cprev, *cnext; /* of its channel */
	struct rma *fprev, *fnext; /* of its flow */
	struct rma *enext;	   /* that ended */
};

/* A piece of len bytes is under way; and is over. */
void rma_piece_begin(struct rma *r, uint32_t len);
void rma_piece_end(struct rma *r, uint32_t len, int status);
/* It is over: out of the list, answered, freed. */
void rma_finish(struct node *n, struct rma **list, struct rma *r);

#endif
