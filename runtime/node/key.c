/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys of regions, between daemons. Users hold (owner, region, generation); what a NIC wants, one rkey a
 * rail, a daemon asks the owner's for at first use (KEY_ASK, KEY) and remembers: the import. The owner
 * remembers who asked: the importers.
 *
 * Before a region is deregistered its importers are told (REVOKE) and answer (REVOKED) when nothing of
 * theirs is outstanding on it: devices give the same rkey to the next region, and a late put would land
 * there. Where no answer comes the rails to that node are taken down, which fences them, until it does.
 *
 * A device that was removed and came back knows no key of before, or knows it as another region's. The
 * lane may be there before the new keys are: so a key names the device it was made on, the handshake of
 * a lane names the device it leads to, and only where they agree the key is used.
 *
 * What an RTS announces is an import too, but needs no such care: the message is over before its region
 * goes.
 */
#include <stdlib.h>
#include <string.h>

#include "node/node.h"
#include "rcshare.h"

#define IMPORTS_MAX 8192u
#define REVOKE_NS   1000000000ull
#define IMPORTER_DOWN 0x80000000u /* its rails were taken down */

struct import *key_find(struct node *n, uint32_t node, uint32_t ep, struct wire_key k)
{
	struct import_key key = {node, k.region, k.gen, ep};
	struct import *im;

	HASH_FIND(hh, n->imports, &key, sizeof(key), im);
	return im;
}

static struct import *import_new(struct node *n, uint32_t node, uint32_t ep, struct wire_key k)
{
	struct import *im = NULL, *tmp;

	/* The oldest that nobody uses goes; whoever still wants it asks again. */
	if (HASH_COUNT(n->imports) >= IMPORTS_MAX)
		HASH_ITER(hh, n->imports, im, tmp)
			if (!im->uses) {
				HASH_DEL(n->imports, im);
				free(im);
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

void key_ask(struct link *l, struct import *im)
{
	struct wire_rec r = {.type = WIRE_REC_KEY_ASK, .src_node = (uint16_t)l->n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)l->peer, .dst_ep = (uint16_t)im->key.ep,
		.dst_epoch = im->epoch, .data = wire_key_pack(key_of(im))};

	im->state = IMPORT_ASKED;
	link_answer(l, &r, "");
}

struct import *key_import(struct link *l, uint32_t ep, uint32_t epoch, struct wire_key k)
{
	struct import *im = key_find(l->n, l->peer, ep, k);

	if (im && im->state != IMPORT_BAD)
		return im;
	if (!im)
		im = import_new(l->n, l->peer, ep, k);
	if (im) {
		im->epoch = epoch;
		key_ask(l, im);
	}
	return im;
}

static void tell_revoked(struct node *n, const struct import *im)
{
	struct wire_rec r = {.type = WIRE_REC_REVOKED, .src_node = (uint16_t)n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)im->key.node,
		.dst_ep = (uint16_t)im->key.ep, .data = wire_key_pack(key_of(im))};
	struct link *l = link_get(n, im->key.node);

	if (l)
		link_answer(l, &r, "");
}

void key_unuse(struct node *n, struct import *im)
{
	if (--im->uses || !im->revoked)
		return;
	tell_revoked(n, im);
	HASH_DEL(n->imports, im);
	free(im);
}

void key_rts(struct node *n, const struct wire_rec *r, const struct wire_rts *rts)
{
	struct import *im;

	if (!rts->key.region || !rts->rail_ok)
		return;
	im = key_find(n, r->src_node, r->src_ep, rts->key);
	if (!im) {
		im = import_new(n, r->src_node, r->src_ep, rts->key);
		if (!im)
			return;
		im->epoch = r->src_epoch;
		im->addr = rts->addr;
		im->len = r->arg;
	}
	if (im->revoked)
		return;
	if (im->state != IMPORT_GOOD) {
		im->state = IMPORT_GOOD;
		im->addr = rts->addr;
		im->len = r->arg;
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
	memcpy(im->device, rts->device, sizeof(im->device));
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
		memcpy(info.rkey, g->rkey, sizeof(info.rkey));
		region_devices(g, info.device);
	}
	if (l)
		link_answer(l, &r, &info);
}

static bool importer_add(struct region *g, uint32_t node)
{
	uint32_t *p;

	for (uint32_t i = 0; i < g->importers_n; i++)
		if (g->importers[i] == node)
			return true;
	p = realloc(g->importers, (g->importers_n + 1) * sizeof(*p));
	if (!p)
		return false;
	g->importers = p;
	p[g->importers_n++] = node;
	return true;
}

static void asked(struct node *n, const struct wire_rec *r)
{
	struct chan *c = chan_find(n, r->dst_ep, r->dst_epoch);
	struct region *g = c ? region_find(n, c, wire_key_unpack(r->data)) : NULL;

	if (g && !importer_add(g, r->src_node))
		g = NULL;
	tell_key(n, r->src_node, r->dst_ep, r->dst_epoch, r->data, g);
}

void key_announce(struct node *n, struct region *g, uint32_t region)
{
	uint64_t key = wire_key_pack((struct wire_key){region, g->gen});

	for (uint32_t i = 0; i < g->importers_n; i++)
		if (!(g->importers[i] & IMPORTER_DOWN))
			tell_key(n, g->importers[i], g->owner->slot, g->owner->epoch, key, g);
}

void key_revoke(struct node *n, struct region *g, uint32_t region)
{
	g->revoking = true;
	g->revoke_until = n->now + REVOKE_NS;
	for (uint32_t i = 0; i < g->importers_n; i++) {
		struct link *l = g->importers[i] & IMPORTER_DOWN ? NULL : link_get(n, g->importers[i]);
		struct wire_rec r = {.type = WIRE_REC_REVOKE, .src_node = (uint16_t)n->o.self,
			.src_ep = g->owner->slot, .dst_node = (uint16_t)g->importers[i],
			.dst_ep = NODE_EP_DAEMON,
			.data = wire_key_pack((struct wire_key){region, g->gen})};

		if (l)
			link_answer(l, &r, "");
	}
}

static void rails_down(struct node *n, struct link *l)
{
	l->no_rails++;
	for (unsigned i = 0; i < n->rails; i++)
		core_link_rail(&l->core, (uint8_t)i, false, CORE_R_REQUEST, n->now);
	link_dirty(l);
}

static void rails_up(struct node *n, struct link *l)
{
	if (--l->no_rails || l->lost)
		return;
	for (unsigned i = 0; i < n->rails; i++)
		if (l->vbuf && verbs_rail_ok(n->vb, i))
			core_link_rail(&l->core, (uint8_t)i, true, CORE_R_NONE, n->now);
	link_dirty(l);
}

static bool rails_dead(const struct node *n, const struct link *l)
{
	for (unsigned i = 0; i < n->rails; i++)
		if (l->core.lane[i].state != CORE_LANE_DOWN && l->core.lane[i].state != CORE_LANE_DEAD)
			return false;
	return true;
}

static void revoked(struct node *n, const struct wire_rec *r)
{
	struct wire_key k = wire_key_unpack(r->data);
	struct region *g = k.region && k.region <= n->regions_n ? n->regions[k.region - 1] : NULL;

	if (!g || !g->revoking || g->gen != k.gen)
		return;
	for (uint32_t i = 0; i < g->importers_n; i++) {
		if ((g->importers[i] & ~IMPORTER_DOWN) != r->src_node)
			continue;
		if (g->importers[i] & IMPORTER_DOWN)
			rails_up(n, n->link[r->src_node]);
		g->importers[i] = g->importers[--g->importers_n];
		break;
	}
	if (!g->importers_n)
		region_destroy(n, g);
}

/* Its lanes are being fenced for ever: that is as good as its word. */
void key_node_lost(struct node *n, uint32_t node)
{
	for (uint32_t k = 0; k < n->regions_n; k++) {
		struct region *g = n->regions[k];

		for (uint32_t i = 0; g->used && i < g->importers_n; i++)
			if ((g->importers[i] & ~IMPORTER_DOWN) == node) {
				g->importers[i] |= IMPORTER_DOWN;
				g->revoke_until = n->now;
			}
	}
}

/* Importers that do not answer: their rails are fenced, and then the memory is free. */
void key_tick(struct node *n)
{
	for (uint32_t k = 0; k < n->regions_n; k++) {
		struct region *g = n->regions[k];
		bool dead = true;

		if (!g->used || !g->revoking || n->now < g->revoke_until)
			continue;
		for (uint32_t i = 0; i < g->importers_n; i++) {
			struct link *l = n->link[g->importers[i] & ~IMPORTER_DOWN];

			if (!(g->importers[i] & IMPORTER_DOWN)) {
				g->importers[i] |= IMPORTER_DOWN;
				rails_down(n, l);
			}
			dead &= rails_dead(n, l);
		}
		if (dead)
			region_destroy(n, g);
	}
}

/* --- the importer's side ----------------------------------------------------------------------------- */

static void learned(struct node *n, const struct wire_rec *r, const struct wire_key_info *info)
{
	struct import *im = key_find(n, r->src_node, r->src_ep, wire_key_unpack(r->data));

	if (!im || im->revoked)
		return;
	im->state = (int64_t)r->arg == RCS_OK ? IMPORT_GOOD : IMPORT_BAD;
	im->addr = info->addr;
	im->len = info->len;
	im->ok = info->rail_ok;
	memcpy(im->rkey, info->rkey, sizeof(im->rkey));
	memcpy(im->device, info->device, sizeof(im->device));
	link_dirty(n->link[r->src_node]);
}

static void revoke(struct node *n, const struct wire_rec *r)
{
	struct import none = {.key = {r->src_node, (uint32_t)r->data, (uint32_t)(r->data >> 32), r->src_ep}};
	struct import *im = key_find(n, r->src_node, r->src_ep, wire_key_unpack(r->data));

	if (!im) {
		tell_revoked(n, &none);
		return;
	}
	im->state = IMPORT_BAD;
	im->revoked = true;
	/* the requests that name it end now, each when nothing of it is outstanding */
	im->uses++;
	key_unuse(n, im);
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
