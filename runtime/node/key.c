/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys of regions, between daemons; core/key.h is the machine. Users hold (owner, region, generation); what
 * a NIC wants, one rkey a rail, a daemon asks the owner's for at first use (KEY_ASK, KEY) and remembers: the
 * import. The owner remembers who asked: the importers.
 *
 * Before a region is deregistered its importers are told (REVOKE) and answer (REVOKED) when nothing of
 * theirs is outstanding on it: devices give the same rkey to the next region, and a late put would land
 * there. Where no answer comes the rails to that node are taken down, which fences them, until it does.
 *
 * A device that was removed and came back knows no key of before, or knows it as another region's. The
 * lane may be there before the new keys are: so a key names the device it was made on, the handshake of
 * a lane names the device it leads to, and only where they agree the key is used.
 *
 * What an RTS announces is kept apart, one entry a message, with the channel that it came to: its address
 * is the message's, not the region's. A rank that lives closes the region when the message is over; what a dead
 * one leaves is revoked like a key.
 */
#include <stdlib.h>
#include <string.h>

#include "node/node.h"
#include "node/rails.h"
#include "rcshare.h"

#define IMPORTS_MAX   8192u
#define IMPORTS_LOOK  16u   /* of the oldest: is one unused? */
#define ANNOUNCED_MAX 4096u /* of a channel; what is forgotten is pushed */
#define REVOKE_NS     1000000000ull

static struct import *import_find(struct node *n, uint32_t node, uint32_t ep, struct wire_key k)
{
	struct import_key key = {node, k.region, k.gen, ep};
	struct import *im;

	HASH_FIND(hh, n->imports, &key, sizeof(key), im);
	return im;
}

static void import_forget(struct node *n, struct import *im)
{
	HASH_DEL(n->imports, im);
	free(im);
}

static bool import_idle(const struct import *im)
{
	return !im->m.uses && !im->announced;
}

static struct import *import_get(struct node *n, uint32_t node, uint32_t ep, struct wire_key k)
{
	struct import *im = import_find(n, node, ep, k), *tmp;
	uint32_t looked = 0;

	if (im)
		return im;
	/* The oldest that nobody uses goes; whoever still wants it asks again. */
	if (HASH_COUNT(n->imports) >= IMPORTS_MAX)
		HASH_ITER(hh, n->imports, im, tmp) {
			if (import_idle(im))
				import_forget(n, im);
			else if (++looked < IMPORTS_LOOK)
				continue;
			break;
		}
	im = calloc(1, sizeof(*im));
	if (!im)
		return NULL;
	im->key = (struct import_key){node, k.region, k.gen, ep};
	HASH_ADD(hh, n->imports, key, sizeof(im->key), im);
	return im;
}

static struct wire_key key_of(const struct import *im)
{
	return (struct wire_key){im->key.region, im->key.gen};
}

static void ask(struct link *l, const struct import *im)
{
	struct wire_rec r = {.type = WIRE_REC_KEY_ASK, .src_node = (uint16_t)l->n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)l->peer, .dst_ep = (uint16_t)im->key.ep,
		.dst_epoch = im->epoch, .data = wire_key_pack(key_of(im))};

	link_answer(l, &r, "");
}

void key_check(struct link *l, struct import *im)
{
	if (core_import_check(&im->m))
		ask(l, im);
}

struct import *key_import(struct link *l, uint32_t ep, uint32_t epoch, struct wire_key k)
{
	struct import *im = import_get(l->n, l->peer, ep, k);

	if (im && core_import_use(&im->m)) {
		im->epoch = epoch;
		ask(l, im);
	}
	return im;
}

static void tell_revoked(struct node *n, const struct import_key *k)
{
	struct wire_rec r = {.type = WIRE_REC_REVOKED, .src_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)k->node, .dst_ep = (uint16_t)k->ep,
		.data = wire_key_pack((struct wire_key){k->region, k->gen})};
	struct link *l = link_get(n, k->node);

	if (l)
		link_answer(l, &r, "");
}

/* What is known only of messages is of no use to the next one. */
static void import_left(struct node *n, struct import *im)
{
	if (import_idle(im) && (im->m.revoked || im->m.state == CORE_IMPORT_NEW))
		import_forget(n, im);
}

void key_unuse(struct node *n, struct import *im)
{
	if (core_import_unuse(&im->m))
		tell_revoked(n, &im->key);
	import_left(n, im);
}

/* --- announced messages ------------------------------------------------------------------------------ */

static void announced_end(struct node *n, struct chan *c, struct announced *a)
{
	HASH_DEL(c->announced, a);
	a->im->announced--;
	import_left(n, a->im);
	free(a);
}

static struct announced *announced_find(struct chan *c, const struct announced_key *k)
{
	struct announced *a;

	HASH_FIND(hh, c->announced, k, sizeof(*k), a);
	return a;
}

void key_rts(struct node *n, const struct wire_rec *r, const struct wire_rts *rts)
{
	struct chan *c = chan_find(n, r->dst_ep, r->dst_epoch);
	struct announced_key k = {r->src_node, r->src_ep, r->src_epoch, r->op};
	struct announced *a;
	struct import *im;

	if (!c || !rts->key.region || !rts->rail_ok)
		return;
	key_message_over(n, c, &k);
	if (HASH_COUNT(c->announced) >= ANNOUNCED_MAX)
		announced_end(n, c, c->announced); /* the oldest */
	im = import_get(n, r->src_node, r->src_ep, rts->key);
	a = im ? calloc(1, sizeof(*a)) : NULL;
	if (!a)
		return;
	im->announced++;
	a->key = k;
	a->im = im;
	a->info = (struct wire_key_info){.addr = rts->addr, .len = r->arg, .rail_ok = rts->rail_ok};
	memcpy(a->info.rkey, rts->rkey, sizeof(a->info.rkey));
	memcpy(a->info.device, rts->device, sizeof(a->info.device));
	HASH_ADD(hh, c->announced, key, sizeof(a->key), a);
}

struct import *key_message(struct node *n, struct chan *c, const struct announced_key *k,
	struct wire_key_info *info)
{
	struct announced *a = announced_find(c, k);
	struct import *im = a && core_import_message(&a->im->m) ? a->im : NULL;

	if (im)
		*info = a->info;
	if (a)
		announced_end(n, c, a);
	return im;
}

void key_message_over(struct node *n, struct chan *c, const struct announced_key *k)
{
	struct announced *a = announced_find(c, k);

	if (a)
		announced_end(n, c, a);
}

void key_chan_gone(struct node *n, struct chan *c)
{
	while (c->announced)
		announced_end(n, c, c->announced);
}

/* --- the owner's side -------------------------------------------------------------------------------- */

static void tell_key(struct node *n, uint32_t node, uint16_t ep, uint32_t epoch, uint64_t key,
	const struct region *g)
{
	struct wire_rec r = {.type = WIRE_REC_KEY, .src_node = (uint16_t)n->o.self, .src_ep = ep,
		.src_epoch = epoch, .dst_node = (uint16_t)node, .dst_ep = NODE_EP_DAEMON, .data = key,
		.arg = (uint64_t)(int64_t)(g ? RCS_OK : RCS_ERR_ACCESS),
		.len = sizeof(struct wire_key_info)};
	struct wire_key_info info = {0};
	struct link *l = link_get(n, node);

	if (g) {
		info.addr = g->addr;
		info.len = g->len;
		info.rail_ok = region_rails(n, g);
		info.rail_write = info.rail_ok & ~g->readonly;
		memcpy(info.rkey, g->rkey, sizeof(info.rkey));
		region_devices(g, info.device);
	}
	if (l)
		link_answer(l, &r, &info);
}

bool key_importer(struct region *g, uint32_t node, bool key)
{
	uint32_t room = g->x.room ? 2 * g->x.room : 2;
	struct core_importer *p;

	if (core_export_add(&g->x, node, key))
		return true;
	p = realloc(g->x.list, room * sizeof(*p));
	if (!p)
		return false;
	g->x.list = p;
	g->x.room = room;
	return core_export_add(&g->x, node, key);
}

static void asked(struct node *n, const struct wire_rec *r)
{
	struct chan *c = chan_find(n, r->dst_ep, r->dst_epoch);
	struct region *g = c ? region_find(n, c, wire_key_unpack(r->data)) : NULL;

	if (g && !key_importer(g, r->src_node, true))
		g = NULL;
	tell_key(n, r->src_node, r->dst_ep, r->dst_epoch, r->data, g);
}

static uint64_t packed(const struct region *g)
{
	return wire_key_pack((struct wire_key){g->id, g->gen});
}

void key_announce(struct node *n, struct region *g)
{
	for (uint32_t i = 0; i < g->x.n; i++)
		if (g->x.list[i].key && !g->x.list[i].down)
			tell_key(n, g->x.list[i].node, g->ep, g->owner->epoch, packed(g), g);
}

void key_revoke(struct node *n, struct region *g)
{
	core_export_revoke(&g->x, n->now + REVOKE_NS);
	for (uint32_t i = 0; i < g->x.n; i++) {
		struct link *l = g->x.list[i].down ? NULL : link_get(n, g->x.list[i].node);
		struct wire_rec r = {.type = WIRE_REC_REVOKE, .src_node = (uint16_t)n->o.self,
			.src_ep = g->ep, .dst_node = (uint16_t)g->x.list[i].node,
			.dst_ep = NODE_EP_DAEMON, .data = packed(g)};

		if (l)
			link_answer(l, &r, "");
	}
}

static void rails_down(struct node *n, struct link *l)
{
	(void)n;
	l->no_rails++;
	rails_all(l, false, CORE_R_REQUEST);
	link_dirty(l);
}

static void rails_up(struct node *n, struct link *l)
{
	if (--l->no_rails || l->lost)
		return;
	(void)n;
	rails_all(l, true, CORE_R_NONE);
	link_dirty(l);
}

static bool rails_dead(const struct node *n, const struct link *l)
{
	(void)n;
	for (unsigned i = 0; i < CORE_RAILS_MAX; i++)
		if (l->core.lane[i].state != CORE_LANE_DOWN && l->core.lane[i].state != CORE_LANE_DEAD)
			return false;
	return true;
}

static void revoked(struct node *n, const struct wire_rec *r)
{
	struct wire_key k = wire_key_unpack(r->data);
	struct region *g = k.region && k.region <= n->regions_n ? n->regions[k.region - 1] : NULL;
	bool was_down;

	if (!g || !g->used || g->gen != k.gen || !core_export_answered(&g->x, r->src_node, &was_down))
		return;
	if (was_down)
		rails_up(n, n->link[r->src_node]);
	if (!g->x.n)
		region_destroy(n, g);
}

/* Its lanes are being fenced for ever: that is as good as its word. */
void key_node_lost(struct node *n, uint32_t node)
{
	for (uint32_t k = 0; k < n->regions_n; k++)
		if (n->regions[k]->used)
			core_export_lost(&n->regions[k]->x, node);
}

void key_node_anew(struct node *n, uint32_t node)
{
	struct announced *a, *anext;
	struct import *im, *tmp;
	bool was_down;

	for (struct chan *c = n->chans; c; c = c->next)
		HASH_ITER(hh, c->announced, a, anext)
			if (a->key.node == node)
				announced_end(n, c, a);
	HASH_ITER(hh, n->imports, im, tmp)
		if (im->key.node == node) {
			core_import_gone(&im->m);
			import_left(n, im);
		}
	for (uint32_t k = 0; k < n->regions_n; k++) {
		struct region *g = n->regions[k];

		if (!g->used || !core_export_gone(&g->x, node, &was_down))
			continue;
		if (was_down)
			rails_up(n, n->link[node]);
		if (g->x.revoking && !g->x.n)
			region_destroy(n, g);
	}
	if (n->link[node])
		link_dirty(n->link[node]);
}

/* The lanes of who is lost are stopped: no word will come any more, and none is needed. */
static void forget_lost(struct node *n, struct core_export *x)
{
	for (uint32_t i = x->n; i--;) {
		const struct link *l = n->link[x->list[i].node];

		if (l->lost && rails_dead(n, l))
			x->list[i] = x->list[--x->n];
	}
}

/* Importers that do not answer: their rails are fenced, and then the memory is free. */
static void wait_no_longer(struct node *n, struct region *g)
{
	const struct core_importer *late;
	bool dead = true;

	while ((late = core_export_late(&g->x, n->now)))
		rails_down(n, n->link[late->node]);
	forget_lost(n, &g->x);
	for (uint32_t i = 0; i < g->x.n; i++)
		dead &= g->x.list[i].down && rails_dead(n, n->link[g->x.list[i].node]);
	if (dead)
		region_destroy(n, g);
}

void key_tick(struct node *n)
{
	for (struct region *g = n->lingering, *next; g; g = next) {
		next = g->next;
		if (g->x.revoking)
			wait_no_longer(n, g);
	}
}

/* --- the importer's side ----------------------------------------------------------------------------- */

static void learned(struct node *n, const struct wire_rec *r, const struct wire_key_info *info)
{
	struct import *im = import_find(n, r->src_node, r->src_ep, wire_key_unpack(r->data));

	if (!im || !core_import_learned(&im->m, (int64_t)r->arg == RCS_OK))
		return;
	im->info = *info;
	link_dirty(n->link[r->src_node]);
}

static void revoke(struct node *n, const struct wire_rec *r)
{
	struct wire_key k = wire_key_unpack(r->data);
	struct import_key key = {r->src_node, k.region, k.gen, r->src_ep};
	struct import *im = import_find(n, r->src_node, r->src_ep, k);

	if (!im || core_import_revoke(&im->m))
		tell_revoked(n, &key);
	if (!im)
		return;
	/* the requests that name it end now, each when nothing of it is outstanding */
	import_left(n, im);
	link_dirty(n->link[r->src_node]);
}

void key_receive(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct wire_key_info info;

	switch (r->type) {
	case WIRE_REC_KEY_ASK:
		asked(n, r);
		break;
	case WIRE_REC_KEY:
		memcpy(&info, payload, sizeof(info));
		learned(n, r, &info);
		break;
	case WIRE_REC_REVOKE:
		revoke(n, r);
		break;
	default:
		revoked(n, r);
		break;
	}
}
