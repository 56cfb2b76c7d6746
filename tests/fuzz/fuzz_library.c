/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a daemon or a peer may put into a library's receive ring, between the calls of its user, in steps. Two
 * contexts on two real daemons talk to each other; the fuzzer adds records of its own to the first one's rings,
 * which name requests that are under way, have ended, or never were. A user's buffer is freed when its request
 * has completed or its region is closed. Each request completes exactly once.
 */
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib.h" /* first: uthash as the library has it */
#include "bed.h"
#include "pick.h"

#define REQS	   256u
#define REGION_LEN 8192u

struct req {
	void *buf; /* while it is under way */
	unsigned completions;
};

static struct side {
	rcs_ctx *ctx;
	rcs_cq *cq;
	rcs_ep *ep;
	rcs_peer *peer; /* the other side */
	rcs_region *region;
	bool alloced;
	void *mem; /* of region */
	struct rcs_key key;
	rcs_claim *claim;
	struct req req[REQS];
	unsigned reqs_n;
} side[2];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int reg_ok(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len, uint32_t access,
	struct ib_uverbs_reg_mr_resp *resp)
{
	(void)fd;
	(void)driver;
	(void)pd;
	(void)addr;
	(void)len;
	(void)access;
	memset(resp, 0, sizeof(*resp));
	return 0;
}

static void heard(const struct rcs_event *ev, void *arg)
{
	bed_say("event %u: %s, %s, %s", ev->code, ev->host, ev->reason, ev->peer_host);
	bed_must(arg == side, "the argument is the user's");
}

/* --- requests ------------------------------------------------------------------------------------------------- */

/* A buffer of exactly that length, and a context to go with it. NULL: there are too many. */
static struct req *req_new(struct side *s, size_t len)
{
	struct req *r = s->reqs_n < REQS ? &s->req[s->reqs_n] : NULL;

	if (!r)
		return NULL;
	*r = (struct req){.buf = malloc(len ? len : 1)};
	bed_must(r->buf, "memory");
	memset(r->buf, 0x5a, len);
	return r;
}

/* rc: what the call has returned. */
static void req_made(struct side *s, struct req *r, int rc)
{
	if (!rc) {
		s->reqs_n++;
		return;
	}
	free(r->buf);
	r->buf = NULL;
}

static void take(struct side *s)
{
	struct rcs_completion c[8];
	int n;

	while ((n = rcs_cq_read(s->cq, c, 8)) > 0)
		for (int i = 0; i < n; i++) {
			struct req *r = c[i].context;

			if (!r)
				continue;
			bed_must(r >= s->req && r < s->req + s->reqs_n, "a completion's context is of a request");
			bed_must(++r->completions == 1, "a request completes once");
			free(r->buf);
			r->buf = NULL;
		}
}

static size_t some_len(struct pick *p)
{
	static const uint32_t lens[] = {0, 1, 8, 64, 1000, 4095, 4096, 4097, 9000, 20000, 70000};

	return lens[pick_below(p, sizeof(lens) / sizeof(lens[0]))];
}

static void message(struct pick *p, struct side *s)
{
	size_t len = some_len(p);
	struct req *r = req_new(s, len);
	uint8_t how = pick_byte(p);
	struct iovec iov[2];
	struct rcs_msg m = {.iov = iov, .iov_n = 2, .tag = pick_below(p, 3), .peer = how & 1 ? s->peer : NULL,
		.ignore = how & 2 ? ~0ull : 0, .context = r};
	size_t half = len / 2;

	if (!r)
		return;
	iov[0] = (struct iovec){r->buf, half};
	iov[1] = (struct iovec){(uint8_t *)r->buf + half, len - half};
	if (how & 4) {
		req_made(s, r, rcs_recv(s->ep, &m));
		return;
	}
	m.peer = s->peer;
	m.flags = (how & 8 ? RCS_SEND_DELIVERED : 0) | (how & 16 ? RCS_SEND_DATA : 0);
	if (how & 32) {
		m.iov_n = 1;
		iov[0].iov_len = len;
	}
	req_made(s, r, rcs_send(s->ep, &m));
}

static void one_sided(struct pick *p, struct side *s)
{
	size_t len = some_len(p) % REGION_LEN;
	struct req *r = req_new(s, len < 8 ? 8 : len);
	uint8_t how = pick_byte(p);
	const struct rcs_key *key = &side[how & 1 ? s == side : s != side].key;
	struct rcs_rma m = {.len = len, .offset = pick_below(p, 64), .key = key, .peer = s->peer, .context = r,
		.flags = how & 4 ? RCS_PUT_NOTIFY : 0};
	struct rcs_atomic a = {.op = 1 + pick_below(p, 3), .size = how & 8 ? 8 : 4, .key = key, .peer = s->peer,
		.context = r, .offset = pick_below(p, 4) * 8};

	if (!r)
		return;
	m.buf = r->buf;
	a.result = r->buf;
	switch (pick_below(p, 4)) {
	case 0:
		req_made(s, r, rcs_put(s->ep, &m));
		break;
	case 1:
		m.flags = 0;
		req_made(s, r, rcs_get(s->ep, &m));
		break;
	case 2:
		req_made(s, r, rcs_atomic(s->ep, &a));
		break;
	default:
		req_made(s, r, rcs_flush(s->ep, how & 2 ? s->peer : NULL, 0, r));
		break;
	}
}

static void claim(struct pick *p, struct side *s)
{
	struct rcs_completion found;
	size_t len = some_len(p);
	struct req *r;

	if (!s->claim) {
		if (rcs_probe(s->ep, NULL, pick_below(p, 3), pick_below(p, 2) ? ~0ull : 0, &found, &s->claim) != 1)
			s->claim = NULL;
		return;
	}
	r = req_new(s, len);
	if (!r)
		return;
	if (rcs_recv_claimed(s->ep, s->claim, r->buf, len, r)) {
		req_made(s, r, -1);
		return;
	}
	req_made(s, r, 0);
	s->claim = NULL;
}

/* --- objects ---------------------------------------------------------------------------------------------------- */

static void region_open(struct side *s, bool alloc)
{
	struct rcs_error err;

	s->alloced = alloc;
	if (alloc && !rcs_alloc(s->ctx, REGION_LEN, &s->mem, &s->region, &err))
		goto key;
	s->alloced = false;
	s->mem = calloc(1, REGION_LEN);
	bed_must(s->mem, "memory");
	if (rcs_region_open(s->ctx, s->mem, REGION_LEN, &s->region, &err)) {
		free(s->mem);
		s->region = NULL;
		return;
	}
key:
	rcs_region_key(s->region, s->ep, &s->key, &err);
}

static void region_close(struct side *s)
{
	if (!s->region || (s->alloced ? rcs_free(s->region) : rcs_region_close(s->region)))
		return;
	if (!s->alloced)
		free(s->mem);
	s->region = NULL;
}

static void ep_open(struct side *s)
{
	struct rcs_ep_opts o = {.size = sizeof(o), .tx_cq = s->cq, .rx_cq = s->cq};
	struct rcs_error err;

	if (rcs_ep_open(s->ctx, &o, &s->ep, &err))
		s->ep = NULL;
}

static void meet(struct side *s)
{
	struct side *o = s == side ? side + 1 : side;
	struct rcs_error err;
	struct rcs_addr addr;

	if (!s->ep || !o->ep)
		return;
	rcs_ep_addr(o->ep, &addr);
	if (rcs_peer_insert(s->ep, &addr, &s->peer, &err))
		s->peer = NULL;
}

static void ep_again(struct side *s)
{
	rcs_ep_close(s->ep);
	s->claim = NULL; /* it was the endpoint's */
	s->peer = NULL;
	s->ep = NULL;
	ep_open(s);
	meet(s);
}

static void side_open(struct side *s, unsigned node)
{
	char path[80];
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX, .rank = node, .nranks = 2, .socket = path};
	struct rcs_error err = {0};

	*s = (struct side){0};
	snprintf(path, sizeof(path), "%s/sock", bed.dir[node]);
	if (rcs_init(&o, &s->ctx, &err) || rcs_cq_open(s->ctx, 0, &s->cq, &err))
		bed_must(false, err.sentence);
	rcs_on_event(s->ctx, heard, side);
	ep_open(s);
	bed_must(s->ep, "an endpoint opens");
}

static void side_close(struct side *s)
{
	rcs_ep_close(s->ep);
	take(s);
	region_close(s);
	for (unsigned i = 0; i < s->reqs_n; i++)
		bed_must(s->req[i].completions == 1, "each request has completed when its endpoint is closed");
	rcs_fini(s->ctx);
	if (s->region && !s->alloced)
		free(s->mem);
}

/* --- what comes ----------------------------------------------------------------------------------------------------- */

static uint64_t some_op(struct pick *p, const struct side *s)
{
	uint32_t i = pick_below(p, 24);

	if (i < 20 && s->ctx->chunks)
		return cl_op_id(&s->ctx->chunk[0][i]) - ((uint64_t)!pick_often(p) << 32);
	return pick_number(p);
}

static void arrives(struct pick *p, struct side *s)
{
	static const uint8_t likely[] = {WIRE_REC_MSG, WIRE_REC_RTS, WIRE_REC_PUSH, WIRE_REC_CTS, WIRE_REC_FIN,
		WIRE_REC_DELIVERED, WIRE_REC_CREDIT, WIRE_REC_GONE, WIRE_REC_CANCEL, WIRE_REC_RDONE, WIRE_REC_GET_DONE,
		WIRE_REC_EVENT, WIRE_REC_RMA_DONE, WIRE_REC_ACCESS};
	static uint8_t payload[WIRE_REC_PAYLOAD_MAX];
	struct node *n = bed.n[0];
	const struct wire_addr *from = &side[1].ep->ch.addr;
	struct wire_rec rec = {.type = pick_often(p) ? likely[pick_below(p, sizeof(likely))] : pick_below(p, 40),
		.flags = (uint16_t)pick_byte(p), .src_node = 1, .src_ep = from->ep, .src_epoch = from->epoch,
		.tag = pick_below(p, 3), .op = some_op(p, s), .arg = pick_number(p), .data = pick_number(p)};
	struct wire_rts rts = {.key = {pick_below(p, 4), pick_below(p, 3)}, .addr = BED_MEM, .rail_ok = pick_byte(p) & 3,
		.cookie_at = pick_below(p, 2) ? BED_MEM : 0};
	struct shm_event ev = {.code = pick_below(p, 12), .origin = pick_below(p, 4), .seq = pick_byte(p),
		.peer = pick_below(p, 4), .step = pick_below(p, 2)};
	struct chan *c = s->ep ? chan_find(n, s->ep->ch.addr.ep, s->ep->ch.addr.epoch) : NULL;

	if (!pick_often(p)) {
		rec.src_node = (uint16_t)pick_below(p, 4);
		rec.src_ep = pick_byte(p);
	}
	pick_bytes(p, payload, 32);
	switch (rec.type) {
	case WIRE_REC_RTS:
		memcpy(payload, &rts, rec.len = sizeof(rts));
		break;
	case WIRE_REC_EVENT:
		memset(ev.host, pick_byte(p), sizeof(ev.host));
		memcpy(payload, &ev, rec.len = sizeof(ev));
		break;
	case WIRE_REC_CTS:
		rec.tag = some_op(p, s);
		break;
	case WIRE_REC_ACCESS:
		rec.data = rec.flags & WIRE_REC_F_OWN ? rec.op : 1 + pick_below(p, 3) + ((1ull + pick_below(p, 2)) << 32);
		rec.tag = (uintptr_t)s->mem + pick_number(p) % (2 * REGION_LEN);
		rec.arg %= 2 * WIRE_REC_PAYLOAD_MAX;
		rec.len = rec.flags & WIRE_REC_F_WRITE ? (uint32_t)rec.arg : 0;
		break;
	case WIRE_REC_MSG:
	case WIRE_REC_PUSH:
		rec.len = (uint32_t)pick_number(p) % (WIRE_REC_PAYLOAD_MAX + 1);
		break;
	default:
		break;
	}
	if (!c || rec.len > sizeof(payload))
		return;
	bed_say("arrives: record of type %u, op %llx, arg %llx, %u bytes", rec.type, (unsigned long long)rec.op,
		(unsigned long long)rec.arg, rec.len);
	chan_put(n, c, &rec, payload);
}

static void scribble(struct pick *p, struct side *s)
{
	struct chan *c = s->ep ? chan_find(bed.n[0], s->ep->ch.addr.ep, s->ep->ch.addr.epoch) : NULL;

	if (!c || !c->shm)
		return;
	if (pick_below(p, 2))
		atomic_store(&c->shm->rx.tail, pick_number(p));
	else
		atomic_store(&c->shm->tx.head, pick_number(p));
}

static void step(struct pick *p)
{
	uint8_t what = pick_byte(p);
	struct side *s = &side[(what >> 4) & 1];

	if (!side[0].ep || !side[1].ep)
		return;
	switch (what & 15) {
	case 0:
	case 1:
		message(p, s);
		break;
	case 2:
		one_sided(p, s);
		break;
	case 3:
		claim(p, s);
		break;
	case 4:
		if (s->reqs_n)
			rcs_cancel(s->ep, &s->req[pick_byte(p) % s->reqs_n]);
		break;
	case 5:
		take(s);
		break;
	case 6:
		if (what & 32)
			ep_again(s);
		else if (s->region)
			region_close(s);
		else
			region_open(s, what & 64);
		break;
	case 7:
		if (s->peer && what & 64)
			rcs_peer_remove(s->peer);
		meet(s);
		break;
	case 8:
		bed.vm_refused = what & 16;
		break;
	case 9:
		bed_pass(pick_byte(p) * 10 * BED_MS);
		break;
	case 10:
		bed_turns(1 + (what >> 6));
		break;
	case 11:
		if (what > 224)
			scribble(p, side);
		break;
	default:
		arrives(p, side);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pick p = {data, size};
	char job[16];

	cl_reg_mr = reg_ok;
	bed_open(true);
	snprintf(job, sizeof(job), "%u", bed.n[0]->o.job);
	setenv("SLURM_JOB_ID", job, 1);
	for (unsigned i = 0; i < 2; i++) {
		bed.n[i]->cfg.zcopy_min = 8192;
		side_open(&side[i], i);
	}
	for (unsigned i = 0; i < 2; i++) {
		meet(&side[i]);
		region_open(&side[i], i);
	}
	for (int i = 0; i < 200 && p.left; i++)
		step(&p);
	for (unsigned i = 0; i < 2; i++)
		side_close(&side[i]);
	bed_settle();
	for (unsigned i = 0; i < BED_DAEMONS; i++)
		bed_must_be_empty(i);
	bed_close();
	return 0;
}
