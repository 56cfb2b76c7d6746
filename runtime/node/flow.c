/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/flow.h"

#include <stdlib.h>
#include <utlist.h>

bool flow_join(struct link *l, struct rma *r)
{
	struct flow_key k = {r->c->slot, r->ep, r->c->epoch, r->epoch, !r->im};
	struct flow *f;

	HASH_FIND(hh, l->flow, &k, sizeof(k), f);
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			return false;
		f->key = k;
		f->l = l;
		HASH_ADD(hh, l->flow, key, sizeof(f->key), f);
		DL_APPEND(l->flows, f);
	}
	f->requests++;
	r->flow = f;
	r->waiting = true;
	DL_APPEND2(f->waiting, r, fprev, fnext);
	return true;
}

void flow_issued(struct rma *r)
{
	if (r->waiting)
		DL_DELETE2(r->flow->waiting, r, fprev, fnext);
	r->waiting = false;
}

void flow_leave(struct rma *r)
{
	struct flow *f = r->flow;

	if (!f)
		return;
	flow_issued(r);
	r->flow = NULL;
	if (--f->requests)
		return;
	HASH_DEL(f->l->flow, f);
	DL_DELETE(f->l->flows, f);
	free(f);
}

bool flow_may(const struct flow *f, uint32_t len, uint64_t window, uint32_t used)
{
	if (!f->pieces)
		return used < CORE_PIECES;
	return f->pieces < FLOW_PIECES && f->bytes + len <= window && used + FLOW_SPARED < CORE_PIECES;
}

void flow_pass(struct flow *f)
{
	DL_DELETE(f->l->flows, f);
	DL_APPEND(f->l->flows, f);
}
