/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory of ranks that they registered themselves with our protection domains, and the keys
 * of other nodes' regions that passed by.
 *
 * A rank that dies leaves its registrations to us. Its pages stay pinned, so a peer that is reading
 * a message of it still reads what was sent; the region lingers for a while and goes then. A read that
 * comes later fails alone (get.c) and the message ends with the sender's PEER_GONE.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"

#define LINGER_NS   3000000000ull
#define IMPORTS_MAX 8192u

static void destroy(struct node *n, struct region *r)
{
	for (unsigned i = 0; i < n->rails; i++)
		if (r->ok & 1u << i && r->epoch[i] == verbs_rail_epoch(n->vb, i))
			verbs_mr_destroy(n->vb, i, r->mr_handle[i]);
	r->ok = 0;
	r->used = r->linger = false;
	r->owner = NULL;
}

struct region *region_find(struct node *n, const struct chan *owner, struct wire_key k)
{
	struct region *r;

	if (!k.region || k.region > n->regions_n)
		return NULL;
	r = n->regions[k.region - 1];
	return r->used && !r->linger && r->gen == k.gen && r->owner == owner ? r : NULL;
}

int region_new(struct node *n, struct chan *c, uint64_t addr, uint64_t len, struct wire_key *k)
{
	struct region *r;
	uint32_t i;

	for (i = 0; i < n->regions_n && n->regions[i]->used; i++)
		;
	if (i == n->regions_n) {
		struct region **p = realloc(n->regions, (i + 1) * sizeof(*p));

		if (!p)
			return -ENOMEM;
		n->regions = p;
		p[i] = calloc(1, sizeof(*r));
		if (!p[i])
			return -ENOMEM;
		n->regions_n++;
	}
	r = n->regions[i];
	*r = (struct region){.gen = r->gen + 1, .used = true, .owner = c, .addr = addr, .len = len};
	k->region = i + 1;
	k->gen = r->gen;
	return 0;
}

void region_registered(struct node *n, struct region *r, const struct shm_reg *reg)
{
	for (unsigned i = 0; i < n->rails && i < reg->ndev; i++)
		if (reg->ok & 1u << i) {
			r->ok |= 1u << i;
			r->mr_handle[i] = reg->mr_handle[i];
			r->lkey[i] = reg->lkey[i];
			r->rkey[i] = reg->rkey[i];
			r->epoch[i] = verbs_rail_epoch(n->vb, i);
		}
}

void region_drop(struct node *n, struct region *r)
{
	if (r->gets) {
		r->linger = true;
		r->owner = NULL;
		r->linger_until = n->now;
		return;
	}
	destroy(n, r);
}

void region_drop_all(struct node *n, struct chan *c)
{
	for (uint32_t i = 0; i < n->regions_n; i++) {
		struct region *r = n->regions[i];

		if (r->used && r->owner == c) {
			r->linger = true;
			r->owner = NULL;
			r->linger_until = n->now + LINGER_NS;
		}
	}
}

void region_tick(struct node *n)
{
	for (uint32_t i = 0; i < n->regions_n; i++) {
		struct region *r = n->regions[i];

		if (r->used && r->linger && !r->gets && n->now >= r->linger_until)
			destroy(n, r);
	}
}

/* A rank died while it held our uverbs fds: whatever it made and did not tell goes. */
void region_sweep(struct node *n)
{
	uint32_t *known = malloc((n->regions_n + 1) * sizeof(*known));

	n->lent_to = NULL;
	for (unsigned rail = 0; known && rail < n->rails; rail++) {
		size_t k = 0;

		for (uint32_t i = 0; i < n->regions_n; i++)
			if (n->regions[i]->used && n->regions[i]->ok & 1u << rail)
				known[k++] = n->regions[i]->mr_handle[rail];
		verbs_mr_sweep(n->vb, rail, known, k);
	}
	free(known);
}

/* The owner's daemon says which keys are good; what the rank wrote there does not count. */
void region_fill_rts(struct node *n, struct chan *c, struct wire_rts *rts, uint64_t len)
{
	struct region *r = region_find(n, c, rts->key);

	rts->nrails = n->rails;
	rts->rail_ok = 0;
	rts->pid = c->pid;
	if (!r || rts->addr < r->addr || len > r->len || rts->addr - r->addr > r->len - len) {
		rts->key = (struct wire_key){0, 0};
		return;
	}
	for (unsigned i = 0; i < n->rails; i++)
		if (r->ok & 1u << i && r->epoch[i] == verbs_rail_epoch(n->vb, i)) {
			rts->rail_ok |= 1u << i;
			rts->rkey[i] = r->rkey[i];
		}
}

void region_import(struct node *n, const struct wire_rec *r, const struct wire_rts *rts)
{
	struct import_key k = {r->src_node, rts->key.region, rts->key.gen, r->src_ep};
	struct import *im;

	if (!rts->key.region || !rts->rail_ok)
		return;
	HASH_FIND(hh, n->imports, &k, sizeof(k), im);
	if (!im) {
		/* The oldest goes; whoever still wants it falls back to a pushed message. */
		if (HASH_COUNT(n->imports) >= IMPORTS_MAX) {
			im = n->imports;
			HASH_DEL(n->imports, im);
		} else {
			im = malloc(sizeof(*im));
		}
		if (!im)
			return;
		memset(im, 0, sizeof(*im));
		im->key = k;
		im->addr = rts->addr;
		im->len = r->arg;
		HASH_ADD(hh, n->imports, key, sizeof(im->key), im);
	}
	/* one region may be announced again and again, piece by piece */
	if (rts->addr < im->addr) {
		im->len += im->addr - rts->addr;
		im->addr = rts->addr;
	}
	if (rts->addr + r->arg > im->addr + im->len)
		im->len = rts->addr + r->arg - im->addr;
	im->ok = rts->rail_ok;
	memcpy(im->rkey, rts->rkey, sizeof(im->rkey));
}
