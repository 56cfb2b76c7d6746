/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets between two ranks of this node: the CPU copies, a piece of each in turn, through a buffer of
 * ours. Where one of the memories is not ours to touch its library does (access.h).
 */
#include "node/access.h"
#include "rcshare.h"

#define LOCAL_PIECE (64u << 10)

/* The memory that is read (or written) next, of one of the two; shut: its library has to. */
struct side {
	struct chan *c;
	struct region *g;
	struct access a;
};

static int side_find(struct node *n, const struct rma *r, bool write, struct side *s)
{
	bool own = write == r->get;

	*s = (struct side){.c = r->c, .g = r->local, .a = {.write = write, .own = own, .name = r->op,
		.addr = r->laddr + r->issued, .r = (struct rma *)(uintptr_t)r}};
	if (own)
		return 0;
	s->c = chan_find(n, r->ep, r->epoch);
	if (!s->c)
		return RCS_ERR_PEER_GONE;
	s->g = region_find(n, s->c, r->key);
	if (!s->g || r->remote > s->g->len || r->len > s->g->len - r->remote)
		return RCS_ERR_ACCESS;
	s->a.addr = s->g->addr + r->remote + r->issued;
	s->a.name = wire_key_pack(r->key);
	return 0;
}

/* By the CPU here, or handed over; the piece is under way then, and ends in step. */
static int side_access(struct node *n, struct side *s, void *buf, size_t len, access_step *step)
{
	int rc = serve_access(s->c, s->g, s->a.addr, buf, len, s->a.write);

	if (rc != RCS_ERR_UNSUPPORTED)
		return rc;
	s->a.step = step;
	s->a.len = len < SERVE_SLICE ? len : SERVE_SLICE;
	rc = access_hand(n, s->c, &s->a, buf);
	if (!rc)
		s->a.r->pieces++;
	return rc;
}

static bool local_written(struct node *n, const struct access *a, int status, const void *data, uint32_t len)
{
	(void)n;
	(void)data;
	rma_piece_end(a->r, len, status);
	a->r->issued += len;
	return true;
}

static void local_write(struct node *n, struct rma *r, const void *data, size_t len)
{
	struct side to;
	int rc = side_find(n, r, true, &to);

	if (!rc)
		rc = side_access(n, &to, (void *)(uintptr_t)data, len, local_written);
	if (rc)
		r->status = rc;
	else if (!r->pieces)
		r->issued += len;
}

static bool local_read(struct node *n, const struct access *a, int status, const void *data, uint32_t len)
{
	rma_piece_end(a->r, len, status);
	if (a->r->c && !a->r->status)
		local_write(n, a->r, data, len);
	return true;
}

static void local_piece(struct node *n, struct rma *r)
{
	static uint8_t buf[LOCAL_PIECE];
	uint64_t left = r->len - r->issued;
	size_t len = left < sizeof(buf) ? (size_t)left : sizeof(buf);
	const uint8_t *from = r->copy ? r->copy + r->issued : buf;
	struct side side;

	r->status = side_find(n, r, !r->get, &side); /* the owner, also where nothing moves */
	if (r->status || !len)
		return;
	if ((r->c->shut || side.c->shut) && len > SERVE_SLICE)
		len = SERVE_SLICE;
	if (!r->copy) {
		r->status = side_find(n, r, false, &side);
		if (!r->status)
			r->status = side_access(n, &side, buf, len, local_read);
	}
	if (!r->status && !r->pieces)
		local_write(n, r, from, len);
}

/* One piece of each in turn, through a buffer of ours. */
void rma_pump_local(struct node *n)
{
	for (struct rma *r = n->local_rmas, *next; r; r = next) {
		next = r->next;
		if (r->pieces)
			continue; /* a library is at it */
		n->work = true;
		if (r->c && !r->status)
			local_piece(n, r);
		if (!r->pieces && (!r->c || r->status || r->issued == r->len))
			rma_finish(n, &n->local_rmas, r);
	}
}
