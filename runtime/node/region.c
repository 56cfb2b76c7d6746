/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions: memory of ranks that they registered themselves with our protection domains, or that we
 * made for them (rcs_alloc). key.c tells others of them.
 *
 * A rank that dies leaves its registrations to us. Its pages stay pinned, so a peer that is reading
 * a message of it still reads what was sent; the region lingers for a while and goes then, when those that
 * know its keys have answered. A read that comes later fails alone (rma.c) and the message ends with the
 * sender's PEER_GONE. A process that closed its endpoint, or lost it, goes on and will use the memory for
 * something else: nothing lingers for readers then, and the channel is freed after its regions.
 *
 *	used ---- region_drop (its owner), region_drop_all (its owner's end) ----> lingers: nobody finds it
 *	lingers ---- importers answered, no request of ours at it ----> unregistered, by a thread if it is long
 *	unregistered ---- importers that were fenced instead answered or are lost ----> its id is free
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "node/mem.h"
#include "node/node.h"

#define LINGER_NS 3000000000ull

/* What is unregistered by a thread. */
struct leaving {
	struct work w; /* first */
	struct region *g;
	struct verbs_mr mr[WIRE_RAILS_MAX];
	unsigned mrs;
	void *map;
	size_t len;
};

/* Nothing of its memory is ours any more; the id is kept while an importer has not answered. */
static void region_left(struct node *n, struct region *r)
{
	if (r->answer && r->owner)
		ctl_dereg_done(r->owner);
	r->answer = false;
	r->owner = NULL;
	if (r->x.n)
		return;
	DL_DELETE(n->lingering, r);
	r->used = false;
	r->next = n->regions_free;
	n->regions_free = r;
}

static void leaving_run(struct work *w)
{
	struct leaving *v = (struct leaving *)w;

	for (unsigned i = 0; i < v->mrs; i++)
		verbs_mr_end(&v->mr[i]);
	if (v->map)
		munmap(v->map, v->len);
}

static void leaving_done(struct work *w, void *arg)
{
	struct leaving *v = (struct leaving *)w;

	v->g->leaving = false;
	v->g->ok = 0;
	region_left(arg, v->g);
	free(v);
}

static void unregister(struct node *n, struct region *r)
{
	struct leaving *v = r->len >= MEM_LONG && (r->ok || r->map) && mem_queue(n) ? calloc(1, sizeof(*v)) : NULL;

	for (unsigned i = 0; i < n->rails; i++) {
		if (!(r->ok & 1u << i) || r->epoch[i] != verbs_rail_epoch(n->vb, i))
			continue;
		if (v && verbs_mr_take(n->vb, i, r->mr_handle[i], &v->mr[v->mrs]))
			v->mrs++;
		else
			verbs_mr_destroy(n->vb, i, r->mr_handle[i]);
	}
	if (v) {
		v->w = (struct work){.run = leaving_run, .done = leaving_done};
		v->g = r;
		v->map = r->map;
		v->len = r->len;
		r->leaving = !work_put(mem_queue(n), &v->w);
		if (!r->leaving) {
			leaving_run(&v->w);
			free(v);
		}
	} else if (r->map) {
		munmap(r->map, r->len);
	}
	r->map = NULL;
	if (!r->leaving) /* else region_sweep() must know of them still */
		r->ok = 0;
}

/* Nothing can touch the memory from outside any more. */
void region_destroy(struct node *n, struct region *r)
{
	if (r->uses) { /* requests of its rank are still under way: region_unuse() comes again */
		r->linger_until = n->now;
		return;
	}
	if (!r->leaving)
		unregister(n, r);
	if (!r->leaving)
		region_left(n, r);
}

void region_unuse(struct node *n, struct region *r)
{
	if (!--r->uses && r->linger && !r->x.n && n->now >= r->linger_until)
		region_destroy(n, r);
}

struct region *region_find(struct node *n, const struct chan *owner, struct wire_key k)
{
	struct region *r;

	if (!k.region || k.region > n->regions_n)
		return NULL;
	r = n->regions[k.region - 1];
	return r->used && !r->linger && r->gen == k.gen && r->owner == owner ? r : NULL;
}

static struct region *region_more(struct node *n)
{
	struct region **p, *r;

	/* twice as many, when the room is used up: a power of two */
	if (!(n->regions_n & (n->regions_n - 1))) {
		p = realloc(n->regions, (n->regions_n ? 2 * (size_t)n->regions_n : 1) * sizeof(*p));
		if (!p)
			return NULL;
		n->regions = p;
	}
	r = calloc(1, sizeof(*r));
	if (r) {
		n->regions[n->regions_n++] = r;
		r->id = n->regions_n;
		r->gen = n->incarnation; /* a key of a former daemon must not be good for this one's */
	}
	return r;
}

int region_new(struct node *n, struct chan *c, uint64_t addr, uint64_t len, struct wire_key *k)
{
	struct region *r = n->regions_free;

	if (r)
		n->regions_free = r->next;
	else
		r = region_more(n);
	if (!r)
		return -ENOMEM;
	*r = (struct region){.id = r->id, .gen = r->gen + 1, .used = true, .owner = c, .ep = c->slot,
		.addr = addr, .len = len, .x = {.list = r->x.list, .room = r->x.room}};
	k->region = r->id;
	k->gen = r->gen;
	return 0;
}

/* A device that was replaced since the loan knows nothing of it: its handle there is another object's. */
static bool is_of_the_loan(struct node *n, unsigned rail, const uint32_t lent[WIRE_RAILS_MAX])
{
	return lent[rail] && lent[rail] == verbs_rail_epoch(n->vb, rail);
}

void region_registered(struct node *n, struct region *r, const struct shm_reg *reg,
	const uint32_t lent[WIRE_RAILS_MAX])
{
	uint32_t had = region_rails(n, r);

	for (unsigned i = 0; i < n->rails && i < reg->ndev && i < WIRE_RAILS_MAX; i++) {
		if (!(reg->ok & 1u << i) || !is_of_the_loan(n, i, lent))
			continue;
		if (had & 1u << i) { /* what it had is as good, and peers use it */
			verbs_mr_destroy(n->vb, i, reg->mr_handle[i]);
			continue;
		}
		r->ok |= 1u << i;
		r->readonly = (r->readonly & ~(1u << i)) | (reg->readonly & 1u << i);
		r->mr_handle[i] = reg->mr_handle[i];
		r->lkey[i] = reg->lkey[i];
		r->rkey[i] = reg->rkey[i];
		r->epoch[i] = lent[i];
	}
	if (region_rails(n, r) != had)
		key_announce(n, r);
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

static void region_linger(struct node *n, struct region *r, uint64_t until)
{
	if (!r->linger)
		DL_APPEND(n->lingering, r);
	r->linger = true;
	r->linger_until = until;
}

void region_drop(struct node *n, struct region *r)
{
	region_linger(n, r, n->now);
	if (core_export_close(&r->x))
		key_revoke(n, r);
	else
		region_destroy(n, r);
}

static bool has_key_importers(const struct region *r)
{
	for (uint32_t i = 0; i < r->x.n; i++)
		if (r->x.list[i].key)
			return true;
	return false;
}

void region_drop_all(struct node *n, struct chan *c)
{
	for (uint32_t i = 0; i < n->regions_n; i++) {
		struct region *r = n->regions[i];

		if (!r->used || r->owner != c)
			continue;
		r->answer = false;
		if (chan_lives(c)) {
			if (!r->linger)
				region_drop(n, r);
			continue;
		}
		r->owner = NULL;
		if (r->linger)
			continue;
		region_linger(n, r, n->now + LINGER_NS);
		if (has_key_importers(r))
			key_revoke(n, r);
	}
}

bool region_is_owned(const struct node *n, const struct chan *c)
{
	for (const struct region *r = n->lingering; r; r = r->next)
		if (r->owner == c)
			return true;
	return false;
}

void region_tick(struct node *n)
{
	for (struct region *r = n->lingering, *next; r; r = next) {
		next = r->next;
		if (n->now < r->linger_until)
			continue;
		if (!r->x.n)
			region_destroy(n, r);
		else if (!r->x.revoking)
			key_revoke(n, r);
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
void region_fill_rts(struct node *n, struct chan *c, const struct wire_rec *rec, struct wire_rts *rts)
{
	struct region *r = region_find(n, c, rts->key);

	rts->nrails = n->rails;
	rts->rail_ok = 0;
	rts->pid = c->pid;
	if (!r || !region_covers(r, rts->addr, rec->arg)) {
		rts->key = (struct wire_key){0, 0};
		return;
	}
	if (rec->dst_node == n->o.self)
		return;
	rts->rail_ok = region_rails(n, r);
	if (rts->rail_ok && !key_importer(r, rec->dst_node, false))
		rts->rail_ok = 0;
	memcpy(rts->rkey, r->rkey, sizeof(rts->rkey));
	region_devices(r, rts->device);
}
