/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory of ranks that they registered themselves with our protection domains, or that we
 * made for them (rcs_alloc). key.c tells others of them.
 *
 * A rank that dies leaves its registrations to us. Its pages stay pinned, so a peer that is reading
 * a message of it still reads what was sent; the region lingers for a while and goes then. A read that
 * comes later fails alone (rma.c) and the message ends with the sender's PEER_GONE.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/node.h"

#define LINGER_NS   3000000000ull

static void unregister(struct node *n, struct region *r)
{
	for (unsigned i = 0; i < n->rails; i++)
		if (r->ok & 1u << i && r->epoch[i] == verbs_rail_epoch(n->vb, i))
			verbs_mr_destroy(n->vb, i, r->mr_handle[i]);
	r->ok = 0;
	if (r->map)
		munmap(r->map, r->len);
	r->map = NULL;
}

/* Nothing can touch the memory any more. The slot is kept while an importer has not answered. */
void region_destroy(struct node *n, struct region *r)
{
	if (r->uses) { /* requests of a rank that died are still under way */
		r->linger = true;
		r->revoking = r->importers_n; /* their answers still count */
		r->linger_until = n->now;
		return;
	}
	unregister(n, r);
	if (r->answer && r->owner)
		ctl_dereg_done(r->owner);
	r->answer = false;
	r->owner = NULL;
	if (r->importers_n)
		return;
	free(r->importers);
	r->importers = NULL;
	r->used = r->linger = r->revoking = false;
}

struct region *region_find(struct node *n, const struct chan *owner, struct wire_key k)
{
	struct region *r;

	if (!k.region || k.region > n->regions_n)
		return NULL;
	r = n->regions[k.region - 1];
	return r->used && !r->linger && !r->revoking && r->gen == k.gen && r->owner == owner ? r : NULL;
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

static uint32_t index_of(const struct node *n, const struct region *r)
{
	uint32_t i = 0;

	while (n->regions[i] != r)
		i++;
	return i + 1;
}

void region_registered(struct node *n, struct region *r, const struct shm_reg *reg)
{
	uint32_t had = region_rails(n, r);

	for (unsigned i = 0; i < n->rails && i < reg->ndev; i++)
		if (reg->ok & 1u << i) {
			if (had & 1u << i) { /* what it had is as good, and peers use it */
				verbs_mr_destroy(n->vb, i, reg->mr_handle[i]);
				continue;
			}
			r->ok |= 1u << i;
			r->mr_handle[i] = reg->mr_handle[i];
			r->lkey[i] = reg->lkey[i];
			r->rkey[i] = reg->rkey[i];
			r->epoch[i] = verbs_rail_epoch(n->vb, i);
		}
	if (r->importers_n && region_rails(n, r) != had)
		key_announce(n, r, index_of(n, r));
}

int region_alloc(struct node *n, struct chan *c, uint64_t len, struct wire_key *k, int *fd)
{
	void *p;
	int err;

	*fd = memfd_create("rcshare-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Sealed: a rank that truncates its memory must not take us down with SIGBUS. */
	if (*fd < 0 || ftruncate(*fd, (off_t)len) ||
		fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto fail;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED)
		goto fail;
	err = region_new(n, c, 0, len, k);
	if (err) {
		munmap(p, len);
		close(*fd);
		return err;
	}
	n->regions[k->region - 1]->map = p;
	return 0;
fail:
	err = errno;
	if (*fd >= 0)
		close(*fd);
	return -err;
}

int region_covers(const struct region *r, uint64_t addr, uint64_t len)
{
	return addr >= r->addr && len <= r->len && addr - r->addr <= r->len - len;
}

uint32_t region_rails(const struct node *n, const struct region *r)
{
	uint32_t rails = 0;

	for (unsigned i = 0; i < n->rails; i++)
		if (r->ok & 1u << i && r->epoch[i] == verbs_rail_epoch(n->vb, i))
			rails |= 1u << i;
	return rails;
}

void region_devices(const struct region *r, uint8_t device[WIRE_RAILS_MAX])
{
	for (unsigned i = 0; i < WIRE_RAILS_MAX; i++)
		device[i] = (uint8_t)r->epoch[i];
}

void region_drop(struct node *n, struct region *r)
{
	if (r->importers_n) {
		key_revoke(n, r, index_of(n, r));
	} else if (r->uses) {
		r->linger = true;
		r->linger_until = n->now;
		if (r->answer)
			ctl_dereg_done(r->owner);
		r->answer = false;
		r->owner = NULL;
	} else {
		region_destroy(n, r);
	}
}

void region_drop_all(struct node *n, struct chan *c)
{
	for (uint32_t i = 0; i < n->regions_n; i++) {
		struct region *r = n->regions[i];

		if (!r->used || r->owner != c)
			continue;
		r->answer = false;
		if (r->importers_n && !r->revoking)
			key_revoke(n, r, i + 1);
		r->linger = true;
		r->owner = NULL;
		r->linger_until = n->now + LINGER_NS;
	}
}

void region_tick(struct node *n)
{
	for (uint32_t i = 0; i < n->regions_n; i++) {
		struct region *r = n->regions[i];

		if (r->used && r->linger && !r->revoking && !r->uses && n->now >= r->linger_until)
			region_destroy(n, r);
	}
}

/* Nobody has our uverbs fds now: whatever we do not know, a rank that died made and did not tell. */
void region_sweep(struct node *n)
{
	uint32_t *known = malloc((n->regions_n + 1) * sizeof(*known));

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
	if (!r || !region_covers(r, rts->addr, len)) {
		rts->key = (struct wire_key){0, 0};
		return;
	}
	rts->rail_ok = region_rails(n, r);
	memcpy(rts->rkey, r->rkey, sizeof(rts->rkey));
	region_devices(r, rts->device);
}
