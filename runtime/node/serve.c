/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU does what no RDMA reaches: puts and gets as frames, atomics, and the memory of ranks.
 *
 * At the target these are records for the daemon, which reads and writes the owner's memory itself: the
 * session brings each exactly once and in order, so nothing else has to be remembered. The owner's
 * process need not take part. Ranks allow it at attach (PR_SET_PTRACER); memory of rcs_alloc is mapped
 * here, and that is where atomics work.
 *
 * Where the kernel forbids it (Yama, a container, a process that is not dumpable) the owner's library executes
 * them (access.h), when it makes progress: until then they wait here. So an origin bounds what it has under
 * way to an endpoint, and for one; large messages have a way of their own, they are pushed.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "node/access.h"
#include "rcshare.h"

#define WINDOW (4u << 20) /* bytes for one endpoint, of all nodes together; more where a piece is longer */

/* A piece under way as frames. */
struct framed {
	uint32_t id;
	struct rma *r;
	uint64_t off;
	uint32_t len;
	struct framed *next;
};

int serve_access(struct chan *c, const struct region *r, uint64_t addr, void *buf, size_t len,
	bool write)
{
	struct iovec near = {buf, len}, far = {(void *)(uintptr_t)addr, len};
	ssize_t got;

	if (!len)
		return 0;
	if (r && r->map) {
		uint8_t *at = (uint8_t *)r->map + (addr - r->addr);

		if (write)
			memcpy(at, buf, len);
		else
			memcpy(buf, at, len);
		return 0;
	}
	/* nothing overtakes what waits for the library */
	if (c->accesses)
		return RCS_ERR_UNSUPPORTED;
	/* a process of a pid namespace that we do not see has no number */
	if (!c->peer_pid) {
		c->shut = true;
		return RCS_ERR_UNSUPPORTED;
	}
	got = write ? process_vm_writev(c->peer_pid, &near, 1, &far, 1, 0) :
		      process_vm_readv(c->peer_pid, &near, 1, &far, 1, 0);
	if (got == (ssize_t)len)
		return 0;
	if (got >= 0 || errno == EFAULT)
		return RCS_ERR_FAULT;
	if (errno == ESRCH || errno == ENOMEM)
		return errno == ESRCH ? RCS_ERR_PEER_GONE : RCS_ERR_NOMEM;
	c->shut = true;
	return RCS_ERR_UNSUPPORTED;
}

/* --- at the target ----------------------------------------------------------------------------- */

static void done(struct node *n, const struct wire_rec *r, int status, uint64_t value)
{
	struct wire_rec out = {.type = WIRE_REC_RDONE, .op = r->op, .arg = (uint64_t)(int64_t)status,
		.data = value};

	chan_answer(n, r, &out, "");
}

/* Somebody else's memory is not writable: for the requester that is a matter of access. */
static int outward(int status)
{
	return status == RCS_ERR_FAULT ? RCS_ERR_ACCESS : status;
}

static bool put_step(struct node *n, const struct access *a, int status, const void *data, uint32_t len)
{
	(void)data;
	(void)len;
	if (status || a->rec.flags & WIRE_REC_F_LAST)
		done(n, &a->rec, outward(status), 0);
	return true;
}

static bool get_step(struct node *n, const struct access *a, int status, const void *data, uint32_t len)
{
	struct wire_rec out = {.type = WIRE_REC_RDATA, .op = a->rec.op, .arg = a->rec.arg + a->off, .len = len,
		.flags = a->off + len == a->len ? WIRE_REC_F_LAST : 0};

	if (status)
		done(n, &a->rec, outward(status), 0);
	else
		chan_answer(n, &a->rec, &out, data);
	return true;
}

/* The owner's library goes on with r from off on. 0 or an rcs_status. */
static int hand(struct node *n, const struct wire_rec *r, struct chan *c, uint64_t at, uint64_t off,
	uint64_t len, const void *payload)
{
	struct access a = {.step = payload ? put_step : get_step, .write = payload, .name = r->data,
		.addr = at + off, .len = len - off, .rec = *r};

	a.rec.arg = off;
	return r->flags & WIRE_REC_F_OFFSET ? access_hand(n, c, &a, payload) : RCS_ERR_UNSUPPORTED;
}

static void put(struct node *n, const struct wire_rec *r, struct chan *c, struct region *g,
	const void *payload)
{
	uint64_t at = r->flags & WIRE_REC_F_OFFSET ? g->addr + r->tag : r->tag;
	int rc;

	if (!region_covers(g, at, r->len)) {
		done(n, r, RCS_ERR_ACCESS, 0);
		return;
	}
	rc = serve_access(c, g, at, (void *)(uintptr_t)payload, r->len, true);
	if (rc == RCS_ERR_UNSUPPORTED) {
		rc = hand(n, r, c, at, 0, r->len, payload);
		if (!rc)
			return;
	}
	if (rc || r->flags & WIRE_REC_F_LAST)
		done(n, r, outward(rc), 0);
}

static void get(struct node *n, const struct wire_rec *r, struct chan *c, struct region *g)
{
	uint64_t at = r->flags & WIRE_REC_F_OFFSET ? g->addr + r->tag : r->tag;
	uint8_t buf[SERVE_SLICE];
	uint64_t off = 0;

	if (!region_covers(g, at, r->arg)) {
		done(n, r, RCS_ERR_ACCESS, 0);
		return;
	}
	do {
		uint32_t len = (uint32_t)(r->arg - off < SERVE_SLICE ? r->arg - off : SERVE_SLICE);
		struct wire_rec out = {.type = WIRE_REC_RDATA, .op = r->op, .arg = off, .len = len};
		int rc = serve_access(c, g, at + off, buf, len, false);

		if (rc == RCS_ERR_UNSUPPORTED) {
			rc = hand(n, r, c, at, off, r->arg, NULL);
			if (!rc)
				return;
		}
		if (rc) {
			done(n, r, outward(rc), 0);
			return;
		}
		off += len;
		if (off == r->arg)
			out.flags = WIRE_REC_F_LAST;
		chan_answer(n, r, &out, buf);
	} while (off < r->arg);
}

#define ATOMIC(type)                                                                                   \
	static uint64_t atomic_##type(void *at, const struct wire_rec *r, const struct wire_atomic *a) \
	{                                                                                              \
		_Atomic type *p = at;                                                                  \
		type old = (type)a->compare;                                                           \
                                                                                                       \
		switch (a->op) {                                                                       \
		case WIRE_ATOMIC_ADD:                                                                  \
			return atomic_fetch_add(p, (type)r->arg);                                      \
		case WIRE_ATOMIC_SWAP:                                                                 \
			return atomic_exchange(p, (type)r->arg);                                       \
		default:                                                                               \
			atomic_compare_exchange_strong(p, &old, (type)r->arg);                         \
			return old;                                                                    \
		}                                                                                      \
	}
ATOMIC(uint32_t)
ATOMIC(uint64_t)

static void atomic(struct node *n, const struct wire_rec *r, struct region *g, const void *payload)
{
	struct wire_atomic a;
	uint8_t *at;

	memcpy(&a, payload, sizeof(a));
	if (!g->map || (a.size != 4 && a.size != 8) || r->tag % a.size || a.op < WIRE_ATOMIC_ADD ||
		a.op > WIRE_ATOMIC_SWAP) {
		done(n, r, RCS_ERR_INVALID, 0);
		return;
	}
	if (r->tag > g->len || a.size > g->len - r->tag) {
		done(n, r, RCS_ERR_ACCESS, 0);
		return;
	}
	at = (uint8_t *)g->map + r->tag;
	done(n, r, RCS_OK, a.size == 4 ? atomic_uint32_t(at, r, &a) : atomic_uint64_t(at, r, &a));
}

void serve_record(struct node *n, const struct wire_rec *r, const void *payload)
{
	struct chan *c = chan_find(n, r->dst_ep, r->dst_epoch);
	struct region *g = c ? region_find(n, c, wire_key_unpack(r->data)) : NULL;

	n->work = true;
	if (!g)
		done(n, r, c ? RCS_ERR_ACCESS : RCS_ERR_PEER_GONE, 0);
	else if (r->type == WIRE_REC_RPUT)
		put(n, r, c, g, payload);
	else if (r->type == WIRE_REC_RGET)
		get(n, r, c, g);
	else
		atomic(n, r, g, payload);
}

/* --- at the origin ------------------------------------------------------------------------------- */

static struct wire_rec record(const struct link *l, const struct framed *f, uint16_t type, uint64_t off)
{
	const struct rma *r = f->r;

	return (struct wire_rec){.type = type, .src_node = (uint16_t)l->n->o.self,
		.src_ep = NODE_EP_DAEMON, .dst_node = (uint16_t)r->node, .dst_ep = r->ep,
		.dst_epoch = r->epoch, .op = f->id, .tag = r->remote + off,
		.data = wire_key_pack(r->key), .flags = r->large ? 0 : WIRE_REC_F_OFFSET};
}

static struct framed **find(struct link *l, uint64_t id)
{
	struct framed **p = &l->framed;

	while (*p && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

static void framed_end(struct link *l, struct framed **p, int status)
{
	struct framed *f = *p;

	*p = f->next;
	/* A large message has another way: it is pushed. */
	rma_piece_end(f->r, f->len, status && f->r->large ? RCS_ERR_AGAIN : status);
	free(f);
	link_dirty(l);
}

static void send_slice(struct link *l, const struct framed *f, uint64_t off, const void *from, uint32_t len)
{
	struct wire_rec rec = record(l, f, WIRE_REC_RPUT, f->off + off);

	rec.len = len;
	if (off + len == f->len)
		rec.flags |= WIRE_REC_F_LAST;
	link_answer(l, &rec, from);
}

static bool send_step(struct node *n, const struct access *a, int status, const void *data, uint32_t len)
{
	struct framed **p = find(a->l, a->rec.op);

	(void)n;
	if (!*p)
		return false;
	/* what was sent of it is answered to nobody */
	if (status)
		framed_end(a->l, p, status);
	else
		send_slice(a->l, *p, a->rec.arg + a->off, data, len);
	return true;
}

/* The rank's library reads or writes its own memory for the piece f. rec.arg: from there on, in f. */
static int hand_own(struct link *l, const struct framed *f, access_step *step, const struct wire_rec *rec,
	uint64_t len, const void *data)
{
	const struct rma *r = f->r;
	struct access a = {.step = step, .write = r->get, .own = true, .name = r->op,
		.addr = r->laddr + f->off + rec->arg, .len = len, .rec = *rec, .l = l};

	return r->large ? RCS_ERR_UNSUPPORTED : access_hand(l->n, r->c, &a, data);
}

static int send_put(struct link *l, const struct framed *f)
{
	const struct rma *r = f->r;
	uint8_t buf[SERVE_SLICE];
	uint32_t off = 0;

	do {
		uint32_t len = f->len - off < SERVE_SLICE ? f->len - off : SERVE_SLICE;
		const void *from = buf;
		int rc = 0;

		if (r->copy)
			from = r->copy + f->off + off;
		else
			rc = serve_access(r->c, r->local, r->laddr + f->off + off, buf, len, false);
		if (rc == RCS_ERR_UNSUPPORTED) {
			struct wire_rec rec = {.op = f->id, .arg = off};

			return hand_own(l, f, send_step, &rec, f->len - off, NULL);
		}
		if (rc)
			return rc;
		send_slice(l, f, off, from, len);
		off += len;
	} while (off < f->len);
	return 0;
}

/*
 * A rank whose memory only its library touches may take long to do so: what was sent to it waits at its
 * daemon, what has come for it here. Small ones count as what they take there.
 */
static bool too_much(const struct link *l, const struct rma *r, uint32_t len)
{
	uint64_t most = WINDOW / (l->n->o.nodes > 2 ? l->n->o.nodes - 1 : 1), sum = 0;

	for (const struct framed *f = l->framed; f; f = f->next)
		if (f->r->c == r->c || (f->r->ep == r->ep && f->r->epoch == r->epoch))
			sum += f->len > SERVE_SLICE ? f->len : SERVE_SLICE;
	return sum && sum + (len > SERVE_SLICE ? len : SERVE_SLICE) > most;
}

bool serve_send(struct link *l, struct rma *r, uint64_t off, uint32_t len)
{
	struct framed *f;
	struct wire_rec rec;
	int rc;

	if (too_much(l, r, len))
		return false;
	f = calloc(1, sizeof(*f));
	if (!f)
		return false;
	/* what is asked of a former daemon of this node is answered to this one */
	*f = (struct framed){.id = l->n->incarnation + ++l->framed_id, .r = r, .off = off, .len = len, .next = l->framed};
	if (r->get) {
		rec = record(l, f, WIRE_REC_RGET, off);
		rec.arg = len;
		link_answer(l, &rec, "");
	} else {
		rc = send_put(l, f);
		if (rc) {
			free(f);
			r->status = rc;
			return false;
		}
	}
	l->framed = f;
	return true;
}

static bool receive_step(struct node *n, const struct access *a, int status, const void *data, uint32_t len)
{
	struct framed **p = find(a->l, a->rec.op);

	(void)n;
	(void)data;
	(void)len;
	if (*p && (status || a->rec.flags & WIRE_REC_F_LAST))
		framed_end(a->l, p, status);
	return true;
}

/* RDONE and RDATA, of what this daemon asked for. */
void serve_receive(struct node *n, const struct wire_rec *rec, const void *payload)
{
	struct link *l = n->link[rec->src_node];
	struct framed **p, *f;
	int rc = 0;

	if (!l)
		return;
	p = find(l, rec->op);
	f = *p;
	if (!f)
		return;
	if (rec->type == WIRE_REC_RDATA) {
		struct rma *r = f->r;

		if (!r->get || rec->arg > f->len || rec->len > f->len - rec->arg)
			rc = RCS_ERR_PROTOCOL;
		else if (r->c)
			rc = serve_access(r->c, r->local, r->laddr + f->off + rec->arg,
				(void *)(uintptr_t)payload, rec->len, true);
		if (rc == RCS_ERR_UNSUPPORTED) {
			rc = hand_own(l, f, receive_step, rec, rec->len, payload);
			if (!rc)
				return;
		}
		if (!rc && !(rec->flags & WIRE_REC_F_LAST))
			return;
	} else {
		rc = (int)(int64_t)rec->arg;
	}
	framed_end(l, p, rc);
}

void serve_give_up(struct link *l)
{
	for (struct framed *f; (f = l->framed);) {
		l->framed = f->next;
		rma_piece_end(f->r, f->len, RCS_ERR_NODE_LOST);
		free(f);
	}
}

void serve_free_all(struct link *l)
{
	for (struct framed *f; (f = l->framed);) {
		l->framed = f->next;
		free(f);
	}
}
