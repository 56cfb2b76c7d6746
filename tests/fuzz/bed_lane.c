/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes of runtime/node/verbs.h: what is posted executes in order in verbs_poll(), where the peer's end is connected. */
#include "bed_verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/psn.h"

#define SENDS 192u
#define MTU   4096u

struct post {
	uint64_t cookie;
	const uint8_t *frame; /* a SEND: where it stands */
	uint8_t *copied;      /* ... if that is ours */
	uint32_t len, packets;
	struct verbs_rdma w; /* len 0 and no frame: a ledger write, nothing happens */
	struct post *next;
};

struct verbs_lane {
	struct verbs *v;
	unsigned rail;
	void *owner;
	uint32_t id, peer; /* of the other end */
	uint8_t peer_epoch;
	bool connected, error, fencing;
	uint32_t sent_psn, psn; /* psn: expected next by the receiving side */
	uint32_t posts_n;
	struct post *posts, *arrived;
	struct verbs_lane *next;
};

struct blob {
	uint32_t id, epoch, rail;
};

static struct verbs_lane *lanes; /* of all daemons */
static uint32_t last_id;

static void post_free(struct post *p)
{
	free(p->copied);
	free(p);
}

static struct post *post_take(struct post **list)
{
	struct post *p = *list;

	*list = p->next;
	return p;
}

static void post_add(struct post **list, struct post *p)
{
	while (*list)
		list = &(*list)->next;
	*list = p;
}

unsigned bed_lanes(const struct verbs *v)
{
	unsigned n = 0;

	for (const struct verbs_lane *l = lanes; l; l = l->next)
		n += l->v == v;
	return n;
}

static struct verbs_lane *other_end(const struct verbs_lane *l)
{
	for (struct verbs_lane *o = lanes; o; o = o->next)
		if (o->id == l->peer && o->peer == l->id && o->connected && !o->error && !o->fencing)
			return o;
	return NULL;
}

static void done(struct verbs_lane *l, struct post *p, enum verbs_done how)
{
	uint64_t cookie = p->cookie;

	post_free(p);
	l->posts_n--;
	l->v->ops.done(l->owner, l, cookie, how, how == VERBS_OK ? "" : "the fuzzer says so");
}

static bool execute(struct verbs_lane *l, struct verbs_lane *o)
{
	struct post *p = post_take(&l->posts);
	bool ok = true;
	uint8_t *buf;

	if (p->frame) {
		struct post *a = calloc(1, sizeof(*a));

		bed_must(a && (a->copied = malloc(p->len)), "memory");
		memcpy(a->copied, p->frame, p->len);
		a->len = p->len;
		post_add(&o->arrived, a);
	} else if (p->w.len) {
		buf = malloc(p->w.len);
		ok = buf && !l->v->refuse && bed_memory(p->w.read ? p->w.raddr : p->w.laddr, buf, p->w.len, false) &&
			bed_memory(p->w.read ? p->w.laddr : p->w.raddr, buf, p->w.len, true);
		l->v->refuse = false;
		free(buf);
	}
	if (ok)
		o->psn = core_psn_add(o->psn, p->packets);
	else
		l->error = true;
	done(l, p, ok ? VERBS_OK : VERBS_REQUEST);
	return true;
}

/* One thing that happens on the lane; false: nothing does. The lane may be gone after it. */
static bool lane_step(struct verbs_lane *l)
{
	struct verbs_lane *o;

	if (l->arrived && !l->fencing) {
		struct post *a = post_take(&l->arrived);

		l->v->ops.recv(l->owner, l, a->copied, a->len);
		post_free(a);
		return true;
	}
	if (l->posts && (l->fencing || l->error)) {
		done(l, post_take(&l->posts), VERBS_FLUSHED);
		return true;
	}
	if (l->fencing && l->connected) {
		l->connected = false; /* told once */
		l->v->ops.fenced(l->owner, l, CORE_TOLD_PSN, l->psn);
		return true;
	}
	o = l->posts && l->connected && l->v->ok[l->rail] && !l->v->held[l->rail] ? other_end(l) : NULL;
	return o && execute(l, o);
}

int verbs_poll(struct verbs *v, int budget)
{
	int k = 0;
	bool any = true;

	((struct node *)v->ops.arg)->stop = true; /* after this turn of the loop: bed_turn() */
	for (unsigned r = 0; r < BED_RAILS; r++)
		if (v->told[r] != v->ok[r]) {
			v->told[r] = v->ok[r];
			v->ops.rail(v->ops.arg, r, v->ok[r], v->ok[r] ? CORE_R_NONE : CORE_R_PORT, "the fuzzer says so");
		}
	while (any && k < budget) {
		any = false;
		for (struct verbs_lane *l = lanes; l && !any; l = l->next)
			any = l->v == v && lane_step(l);
		k += any;
	}
	return k;
}

/* --- lanes ---------------------------------------------------------------------------------------- */

int verbs_lane_open(struct verbs *v, unsigned rail, uint32_t depth, void *owner, struct verbs_lane **lane,
	uint8_t blob[CORE_BLOB])
{
	struct blob b = {.id = ++last_id, .epoch = v->epoch[rail], .rail = rail};
	struct verbs_lane *l;

	(void)depth;
	if (!v->ok[rail])
		return -EIO;
	l = calloc(1, sizeof(*l));
	bed_must(l, "memory");
	*l = (struct verbs_lane){.v = v, .rail = rail, .owner = owner, .id = b.id, .next = lanes};
	lanes = l;
	memset(blob, 0, CORE_BLOB);
	memcpy(blob, &b, sizeof(b));
	*lane = l;
	return 0;
}

int verbs_lane_connect(struct verbs_lane *l, const uint8_t blob[CORE_BLOB])
{
	struct blob b;

	memcpy(&b, blob, sizeof(b));
	l->peer = b.id;
	l->peer_epoch = (uint8_t)b.epoch;
	l->connected = true;
	return 0;
}

int verbs_lane_depth(struct verbs_lane *l, uint32_t depth)
{
	(void)l;
	(void)depth;
	return 0;
}

/* Each is on a network of its own; a peer may say anything. */
uint8_t verbs_rail_meet(struct verbs *v, uint32_t taken, const uint8_t blob[CORE_BLOB])
{
	struct blob b;

	(void)v;
	memcpy(&b, blob, sizeof(b));
	return b.rail < BED_RAILS && !(taken & 1u << b.rail) ? (uint8_t)b.rail : 0xff;
}

unsigned verbs_lane_peer_rail(const struct verbs_lane *l)
{
	return l->rail;
}

bool verbs_lane_doubted(const struct verbs_lane *l)
{
	(void)l;
	return false;
}

unsigned verbs_lane_rail(const struct verbs_lane *l)
{
	return l->rail;
}

uint32_t verbs_lane_room(const struct verbs_lane *l)
{
	return l->posts_n < SENDS ? SENDS - l->posts_n : 0;
}

static int post(struct verbs_lane *l, struct post what, uint32_t *last_psn)
{
	struct post *p;

	if (!l->connected || l->error || l->fencing)
		return -EIO;
	if (l->posts_n >= SENDS)
		return -EAGAIN;
	p = malloc(sizeof(*p));
	bed_must(p, "memory");
	what.packets = core_psn_packets(what.len, MTU);
	*p = what;
	l->sent_psn = core_psn_add(l->sent_psn, what.packets);
	if (last_psn)
		*last_psn = core_psn_add(l->sent_psn, CORE_PSN_MASK);
	l->posts_n++;
	post_add(&l->posts, p);
	return 0;
}

int verbs_lane_send(struct verbs_lane *l, struct verbs_buf *b, size_t at, uint32_t len, uint64_t cookie)
{
	return post(l, (struct post){.cookie = cookie, .frame = b->mem + at, .len = len}, NULL);
}

int verbs_lane_send_copy(struct verbs_lane *l, const void *frame, uint32_t len, uint64_t cookie)
{
	uint8_t *copy = malloc(len);
	int rc;

	bed_must(copy, "memory");
	memcpy(copy, frame, len);
	rc = post(l, (struct post){.cookie = cookie, .frame = copy, .copied = copy, .len = len}, NULL);
	if (rc)
		free(copy);
	return rc;
}

uint32_t verbs_lane_reads(const struct verbs_lane *l)
{
	(void)l;
	return 4;
}

bool verbs_lane_leads_to(const struct verbs_lane *l, uint8_t epoch)
{
	return !l->connected || l->peer_epoch == epoch;
}

int verbs_lane_rdma(struct verbs_lane *l, const struct verbs_rdma *r, uint64_t cookie, uint32_t *last_psn)
{
	return post(l, (struct post){.cookie = cookie, .w = *r, .len = r->len}, last_psn);
}

bool verbs_lane_wants_word(const struct verbs_lane *l)
{
	(void)l;
	return false;
}

void verbs_lane_word_wanted(struct verbs_lane *l, bool wanted)
{
	(void)wanted;
	(void)l;
}

int verbs_lane_word(struct verbs_lane *l, uint64_t number, uint64_t cookie)
{
	(void)number;
	return post(l, (struct post){.cookie = cookie}, NULL);
}

void verbs_lane_fence(struct verbs_lane *l)
{
	l->fencing = true;
	l->connected = true; /* ->fenced() is to come, also of one that was not */
}

void verbs_lane_close(struct verbs_lane *l)
{
	struct verbs_lane **p = &lanes;

	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	while (l->posts)
		post_free(post_take(&l->posts));
	while (l->arrived)
		post_free(post_take(&l->arrived));
	free(l);
}
