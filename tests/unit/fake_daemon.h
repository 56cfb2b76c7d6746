/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_daemon.h - daemons of a few nodes in one thread, for unit tests of the library: attach, record
 * copying, answers that daemons give, registration, gets and one-sided requests by memcpy. No network,
 * no failover.
 *
 *	fake_start(2);  fake_path(node)  ...  fake_stop();
 */
#ifndef RCS_TESTS_FAKE_DAEMON_H
#define RCS_TESTS_FAKE_DAEMON_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rcshare.h"
#include "shm/channel.h"
#include "shm/ring.h"

#define FAKE_NODES 4
#define FAKE_CHANS 64
#define FAKE_REGIONS 1024

struct fake_chan {
	bool used, broken;
	uint32_t node, epoch, pid, rank;
	int sock, memfd, bell, rank_bell;
	struct shm_channel *shm;
	size_t size;
	struct shm_ring tx, rx;
	struct shm_lent lent;
	bool dereg_waits, place_waits;
};

struct fake_region {
	uint64_t addr, len;
	bool used, ok, alloced;
	int owner;
	uint32_t gen;
	unsigned loans; /* LEND of this key */
	uint8_t *mem;	/* alloced: our mapping */
	size_t mem_len;
};

struct fake_held {
	struct wire_rec r;
	uint8_t payload[WIRE_REC_PAYLOAD_MAX];
};

/* A put or get that libraries execute: what is read of one is then written by one, in parts. */
struct fake_job {
	bool busy, write;
	struct fake_chan *c;
	struct wire_rec r;
	struct wire_rma w;
	uint8_t *buf;
	uint64_t off;
};

static struct fake {
	pthread_t thread;
	pthread_mutex_t lock;
	volatile bool stop;
	char dir[64];
	unsigned nodes;
	int listen[FAKE_NODES];
	int table_fd[FAKE_NODES];
	struct shm_table *table[FAKE_NODES];
	size_t table_size;
	struct fake_chan chan[FAKE_CHANS];
	struct fake_region region[FAKE_REGIONS];
	uint32_t next_epoch;
	/* what a test may set before fake_start or while running */
	uint64_t rx_size;   /* of the receive ring; default 256 KiB */
	uint32_t credit0;   /* default 8192 */
	uint32_t answers;   /* default 512 */
	uint32_t zcopy_min; /* default none */
	unsigned devices;   /* that can be lent; default 0 */
	uint64_t get_stop;  /* gets end with AGAIN after so many bytes; 0: never */
	volatile bool paused;	 /* takes no records */
	uint64_t records[32]; /* seen, by type */
	volatile bool hold_rma;	 /* RMA and RATOM are kept until fake_release */
	volatile bool hold_dereg; /* DEREG is not answered */
	volatile bool hold_end;	  /* a channel is not let go of, though its socket has ended */
	bool no_alloc;
	volatile bool no_lend; /* LEND: -EAGAIN */
	volatile unsigned refused; /* ... so often */
	int rma_status;	      /* what RMA ends with instead of being executed */
	struct wire_rma rma;  /* the last one */
	struct fake_held *held[256];
	unsigned nheld;
	bool by_library; /* RMA is executed by the libraries; one at a time, others wait */
	struct fake_job job;
	struct fake_held *jobs[256];
	unsigned jobs_n, jobs_at;
	uint64_t access_op;
	struct fake_held accessed; /* the last */
	volatile unsigned accessed_n;
	volatile bool hold_place;   /* PLACE is not answered */
	volatile unsigned placing;  /* how many wait for that */
	volatile bool vanish;	    /* closes the next connection that waits for PLACE */
	struct shm_placed placed;   /* the answer */
	struct shm_there there;	    /* to WHERE */
	struct shm_place place;	    /* the last request */
	unsigned live_regions, gets;
	bool overflow; /* a promise was broken */
} fake;

static inline const char *fake_path(unsigned node)
{
	static char path[4][108];

	snprintf(path[node], sizeof(path[node]), "%s/%u/7.0/sock", fake.dir, node);
	return path[node];
}

static inline int fake_send(int sock, const void *m, size_t len, const int *fds, unsigned n)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 8)];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {(void *)(uintptr_t)m, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof(ctl));
		mh.msg_control = ctl.buf;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	return sendmsg(sock, &mh, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static inline void fake_attach(struct fake_chan *c, const struct shm_attach *a)
{
	uint64_t rx = fake.rx_size ? fake.rx_size : 256 << 10, txs = 64 << 10;
	struct shm_attached ans = {.m = {.type = SHM_MSG_ATTACH, .abi = SHM_ABI}};
	size_t head = (sizeof(struct shm_channel) + 4095) & ~(size_t)4095;
	struct shm_channel *s;

	c->size = head + txs + rx;
	c->memfd = memfd_create("fake", MFD_CLOEXEC);
	if (ftruncate(c->memfd, (off_t)c->size))
		abort();
	s = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_SHARED, c->memfd, 0);
	c->shm = s;
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->rank_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->epoch = ++fake.next_epoch;
	c->pid = a->pid;
	c->rank = a->rank;
	s->magic = SHM_MAGIC;
	s->until_ns = SHM_UNTIL_EVER;
	s->abi = SHM_ABI;
	s->size = c->size;
	s->tx_off = head;
	s->tx_size = txs;
	s->rx_off = head + txs;
	s->rx_size = rx;
	s->rx_credit = rx / 2;
	s->rx_answers = (fake.answers ? fake.answers : 512) * 64;
	s->credit0 = fake.credit0 ? fake.credit0 : 8192;
	s->eager_max = 4096;
	s->zcopy_min = fake.zcopy_min ? fake.zcopy_min : UINT32_MAX;
	s->addr = (struct wire_addr){.family = 4, .job = 7, .node = (uint16_t)c->node,
		.ep = (uint16_t)(c - fake.chan), .epoch = c->epoch, .rank = a->rank};
	wire_addr_seal(&s->addr);
	shm_ring_init(&c->tx, &s->tx, (uint8_t *)s + s->tx_off, s->tx_size);
	shm_ring_init(&c->rx, &s->rx, (uint8_t *)s + s->rx_off, s->rx_size);
	ans.channel_size = c->size;
	fake_send(c->sock, &ans, sizeof(ans),
		(int[]){c->memfd, fake.table_fd[c->node], c->bell, c->rank_bell}, 4);
}

static inline void fake_region_end(struct fake_region *r)
{
	if (r->mem)
		munmap(r->mem, r->mem_len);
	r->mem = NULL;
	r->used = false;
	fake.live_regions--;
}

static inline void fake_ring(struct fake_chan *c)
{
	uint64_t one = 1;

	if (write(c->rank_bell, &one, sizeof(one)) < 0)
		abort();
}

/* Endpoints of the node have ended. */
static inline void fake_ended(uint32_t node)
{
	for (unsigned i = 0; i < fake.nodes; i++) {
		fake.table[i]->node_tab[node].ended++;
		fake.table[i]->ended++;
	}
	for (int i = 0; i < FAKE_CHANS; i++)
		if (fake.chan[i].used && fake.chan[i].shm && shm_ring_wake(&fake.chan[i].rx))
			fake_ring(&fake.chan[i]);
}

static inline void fake_close(struct fake_chan *c)
{
	uint32_t node = c->node;
	bool rank = c->shm;

	if (c->shm) {
		munmap(c->shm, c->size);
		close(c->memfd);
		close(c->bell);
		close(c->rank_bell);
	}
	for (int i = 1; i < FAKE_REGIONS; i++)
		if (fake.region[i].used && fake.region[i].owner == c - fake.chan)
			fake_region_end(&fake.region[i]);
	close(c->sock); /* the rank hears by it that all of this is so */
	*c = (struct fake_chan){0};
	if (rank)
		fake_ended(node);
}

static inline struct wire_key fake_region_new(struct fake_chan *c)
{
	uint32_t i, gen;

	for (i = 1; i < FAKE_REGIONS && fake.region[i].used; i++)
		;
	gen = fake.region[i].gen + 1;
	fake.region[i] = (struct fake_region){.used = true, .owner = (int)(c - fake.chan), .gen = gen};
	fake.live_regions++;
	return (struct wire_key){i, gen};
}

static inline struct fake_region *fake_region_find(struct fake_chan *c, struct wire_key k)
{
	struct fake_region *r = k.region < FAKE_REGIONS ? &fake.region[k.region] : NULL;

	return r && r->used && r->gen == k.gen && r->owner == c - fake.chan ? r : NULL;
}

static inline void fake_alloc(struct fake_chan *c, const struct shm_alloc *q)
{
	struct shm_alloced ans = {.m = {.type = SHM_MSG_ALLOC, .abi = SHM_ABI}};
	struct fake_region *g;
	int fd;

	if (fake.no_alloc) {
		ans.m.status = -ENOMEM;
		strcpy(ans.m.sentence, "memory_limit_mb is reached");
		fake_send(c->sock, &ans, sizeof(ans), NULL, 0);
		return;
	}
	fd = memfd_create("alloc", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)q->len))
		abort();
	ans.key = fake_region_new(c);
	g = &fake.region[ans.key.region];
	g->alloced = true;
	g->mem_len = q->len;
	g->mem = mmap(NULL, q->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fake_send(c->sock, &ans, sizeof(ans), &fd, 1);
	close(fd);
}

static inline void fake_lend(struct fake_chan *c, const struct shm_lend *q)
{
	struct shm_lent ans = {.m = {.type = SHM_MSG_LEND, .abi = SHM_ABI}, .ndev = fake.devices};
	int null[4] = {-1, -1, -1, -1};
	struct fake_region *g;

	if (q->key.region)
		ans.key = q->key;
	else
		ans.key = fake_region_new(c);
	g = fake_region_find(c, ans.key);
	if (fake.no_lend) {
		ans.m.status = -EAGAIN;
		fake.refused++;
		fake_send(c->sock, &ans, sizeof(ans), NULL, 0);
		return;
	}
	if (!g) {
		ans.m.status = -ENOENT;
		fake_send(c->sock, &ans, sizeof(ans), NULL, 0);
		return;
	}
	g->addr = q->addr;
	g->len = q->len;
	g->loans++;
	for (unsigned d = 0; d < fake.devices; d++)
		ans.pd_handle[d] = d;
	for (unsigned d = 0; d < fake.devices; d++)
		null[d] = open("/dev/null", O_RDWR | O_CLOEXEC);
	fake_send(c->sock, &ans, sizeof(ans), null, fake.devices);
	for (unsigned d = 0; d < fake.devices; d++)
		close(null[d]);
}

static inline bool fake_place(struct fake_chan *c)
{
	struct shm_placed ans = fake.placed;

	if (fake.vanish)
		return false;
	if (fake.hold_place)
		return true;
	c->place_waits = false;
	fake.placing--;
	ans.m.type = SHM_MSG_PLACE;
	ans.m.abi = SHM_ABI;
	fake_send(c->sock, &ans, sizeof(ans), NULL, 0);
	return true;
}

static inline bool fake_request(struct fake_chan *c)
{
	union {
		struct shm_msg m;
		struct shm_attach attach;
		struct shm_lend lend;
		struct shm_reg reg;
		struct shm_dereg dereg;
		struct shm_eager eager;
		struct shm_alloc alloc;
		struct shm_place place;
		struct shm_where where;
	} q;
	struct shm_msg ans = {.abi = SHM_ABI};
	struct shm_there there = fake.there;
	ssize_t n;

	if (c->place_waits)
		return fake_place(c);

	if (c->dereg_waits) {
		if (fake.hold_dereg)
			return true;
		c->dereg_waits = false;
		ans.type = SHM_MSG_DEREG;
		fake_send(c->sock, &ans, sizeof(ans), NULL, 0);
	}
	n = recv(c->sock, &q, sizeof(q), MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		return false;
	if (n < 0)
		return true;
	ans.type = q.m.type;
	switch (q.m.type) {
	case SHM_MSG_ATTACH:
		fake_attach(c, &q.attach);
		return true;
	case SHM_MSG_LEND:
		fake_lend(c, &q.lend);
		return true;
	case SHM_MSG_REG:
		fake.region[q.reg.key.region].ok = q.reg.ok;
		break;
	case SHM_MSG_DEREG:
		if (!fake_region_find(c, q.dereg.key)) {
			ans.status = -ENOENT;
			break;
		}
		fake_region_end(&fake.region[q.dereg.key.region]);
		if (fake.hold_dereg) {
			c->dereg_waits = true;
			return true;
		}
		break;
	case SHM_MSG_ALLOC:
		fake_alloc(c, &q.alloc);
		return true;
	case SHM_MSG_PLACE:
		fake.place = q.place;
		c->place_waits = true;
		fake.placing++;
		return fake_place(c);
	case SHM_MSG_WHERE:
		there.m.type = SHM_MSG_WHERE;
		there.m.abi = SHM_ABI;
		fake_send(c->sock, &there, sizeof(there), NULL, 0);
		return true;
	default:
		ans.status = -EPROTO;
	}
	fake_send(c->sock, &ans, sizeof(ans), NULL, 0);
	return true;
}

static inline void fake_put(struct fake_chan *c, const struct wire_rec *r, const void *payload)
{
	struct wire_rec *to;

	to = shm_ring_reserve(&c->rx, r->len);
	if (!to) {
		fake.overflow = true;
		return;
	}
	*to = *r;
	if (r->len)
		memcpy(to + 1, payload, r->len);
	shm_ring_commit(&c->rx, r->len);
	if (shm_ring_publish(&c->rx))
		fake_ring(c);
}

static inline struct fake_chan *fake_find(uint16_t node, uint16_t ep, uint32_t epoch)
{
	struct fake_chan *c = ep < FAKE_CHANS ? &fake.chan[ep] : NULL;

	return c && c->used && c->shm && c->node == node && c->epoch == epoch ? c : NULL;
}

static inline void fake_answer(struct fake_chan *c, const struct wire_rec *r, uint16_t type,
	uint64_t op, int status)
{
	struct wire_rec a = {.type = type, .src_node = r->dst_node, .src_ep = r->dst_ep,
		.src_epoch = r->dst_epoch, .dst_node = (uint16_t)c->node,
		.dst_ep = (uint16_t)(c - fake.chan), .dst_epoch = c->epoch, .op = op, .tag = r->type,
		.arg = (uint64_t)(int64_t)status};

	fake_put(c, &a, NULL);
}

static inline void fake_get(struct fake_chan *c, const struct wire_rec *r, const struct wire_get *g)
{
	struct fake_region *rr = &fake.region[g->key.region], *lr = &fake.region[g->lregion];
	struct wire_rec a = {.type = WIRE_REC_GET_DONE, .op = r->op, .data = g->len};

	fake.gets++;
	if (!rr->used || !rr->ok || g->raddr < rr->addr || g->raddr + g->len > rr->addr + rr->len ||
		!lr->used || !lr->ok || g->laddr < lr->addr ||
		g->laddr + g->len > lr->addr + lr->len) {
		a.arg = (uint64_t)(int64_t)RCS_ERR_ACCESS;
		a.data = 0;
	} else {
		if (fake.get_stop && fake.get_stop < g->len) {
			a.data = fake.get_stop;
			a.arg = (uint64_t)(int64_t)RCS_ERR_AGAIN;
		}
		memcpy((void *)(uintptr_t)g->laddr, (void *)(uintptr_t)g->raddr, a.data);
	}
	fake_put(c, &a, NULL);
}

/* The memory of (node, ep, epoch) that a one-sided request names; NULL: *status says why not. */
static inline uint8_t *fake_target(const struct wire_rec *r, struct wire_key k, uint64_t off, uint64_t len,
	int *status)
{
	struct fake_chan *o = fake_find(r->dst_node, r->dst_ep, r->dst_epoch);
	struct fake_region *g = o ? fake_region_find(o, k) : NULL;

	*status = !o ? RCS_ERR_PEER_GONE : RCS_ERR_ACCESS;
	if (!g || off > g->len || len > g->len - off)
		return NULL;
	*status = RCS_OK;
	return (g->mem ? g->mem : (uint8_t *)(uintptr_t)g->addr) + off;
}

static inline void fake_rma(struct fake_chan *c, const struct wire_rec *r, const uint8_t *payload);

static inline void fake_job_next(void)
{
	struct fake_job *j = &fake.job;
	bool own = j->write == !!(j->w.flags & WIRE_RMA_GET);
	uint64_t left = j->w.len - j->off, part = left < WIRE_REC_PAYLOAD_MAX ? left : WIRE_REC_PAYLOAD_MAX;
	struct fake_chan *to = own ? j->c : fake_find(j->r.dst_node, j->r.dst_ep, j->r.dst_epoch);
	struct wire_rec a = {.type = WIRE_REC_ACCESS, .op = ++fake.access_op, .arg = part,
		.flags = (own ? WIRE_REC_F_OWN : 0) | (j->write ? WIRE_REC_F_WRITE : 0),
		.data = own ? j->r.op : wire_key_pack(j->w.key), .len = j->write ? (uint32_t)part : 0,
		.tag = (own ? j->w.laddr : fake.region[j->w.key.region].addr + j->w.off) + j->off};

	fake_put(to, &a, j->buf + j->off);
}

static inline void fake_job_start(struct fake_chan *c, const struct wire_rec *r, const uint8_t *payload)
{
	struct fake_job *j = &fake.job;

	*j = (struct fake_job){.busy = true, .c = c, .r = *r};
	memcpy(&j->w, payload, sizeof(j->w));
	j->buf = malloc(j->w.len);
	if (j->w.flags & WIRE_RMA_INLINE) {
		memcpy(j->buf, payload + sizeof(j->w), j->w.len);
		j->write = true;
	}
	fake_job_next();
}

static inline void fake_accessed(const struct wire_rec *r, const uint8_t *payload)
{
	struct fake_job *j = &fake.job;
	struct fake_held *h;

	fake.accessed.r = *r;
	memcpy(fake.accessed.payload, payload, r->len);
	fake.accessed_n++;
	if (!j->busy)
		return;
	if (!j->write)
		memcpy(j->buf + j->off, payload, r->len);
	j->off += j->w.len - j->off < WIRE_REC_PAYLOAD_MAX ? j->w.len - j->off : WIRE_REC_PAYLOAD_MAX;
	if (!r->arg && j->off == j->w.len && !j->write) {
		j->write = true;
		j->off = 0;
	}
	if (!r->arg && j->off < j->w.len) {
		fake_job_next();
		return;
	}
	fake_answer(j->c, &j->r, WIRE_REC_RMA_DONE, j->r.op, (int)(int64_t)r->arg);
	free(j->buf);
	j->busy = false;
	while (!j->busy && fake.jobs_at < fake.jobs_n) {
		h = fake.jobs[fake.jobs_at++];
		fake_rma(fake_find(h->r.src_node, h->r.src_ep, h->r.src_epoch), &h->r, h->payload);
		free(h);
	}
}

static inline struct fake_held *fake_hold(const struct wire_rec *r, const uint8_t *payload)
{
	struct fake_held *h = calloc(1, sizeof(*h));

	h->r = *r;
	memcpy(h->payload, payload, r->len);
	return h;
}

static inline void fake_rma(struct fake_chan *c, const struct wire_rec *r, const uint8_t *payload)
{
	struct wire_rma w;
	uint8_t *mem, *own;
	int status;

	if (fake.job.busy) {
		fake.jobs[fake.jobs_n++] = fake_hold(r, payload);
		return;
	}
	memcpy(&w, payload, sizeof(w));
	fake.rma = w;
	mem = fake_target(r, w.key, w.off, w.len, &status);
	if (w.lregion && !fake_region_find(c, (struct wire_key){w.lregion, w.lgen}))
		status = RCS_ERR_FAULT;
	own = (uint8_t *)(uintptr_t)w.laddr;
	if (!status && fake.by_library && w.len) {
		fake_job_start(c, r, payload);
		return;
	}
	if (fake.rma_status)
		status = fake.rma_status;
	else if (!status && w.flags & WIRE_RMA_INLINE)
		memcpy(mem, payload + sizeof(w), w.len);
	else if (!status && w.len)
		memcpy(w.flags & WIRE_RMA_GET ? own : mem, w.flags & WIRE_RMA_GET ? mem : own, w.len);
	/* as a daemon does: a dead owner is told by GONE, the rest by the answer */
	if (status == RCS_ERR_PEER_GONE && !fake.rma_status)
		fake_answer(c, r, WIRE_REC_GONE, r->op, status);
	else
		fake_answer(c, r, WIRE_REC_RMA_DONE, r->op, status);
}

static inline void fake_ratom(struct fake_chan *c, const struct wire_rec *r, const uint8_t *payload)
{
	struct wire_rec a = {.type = WIRE_REC_RDONE, .src_node = r->dst_node, .src_ep = UINT16_MAX,
		.dst_node = (uint16_t)c->node, .op = r->op};
	struct wire_atomic w;
	uint64_t old = 0, new;
	uint8_t *mem;
	int status;

	memcpy(&w, payload, sizeof(w));
	mem = fake_target(r, wire_key_unpack(r->data), r->tag, w.size, &status);
	if (status == RCS_ERR_PEER_GONE) {
		fake_answer(c, r, WIRE_REC_GONE, r->op, status);
		return;
	}
	if (!status) {
		memcpy(&old, mem, w.size);
		new = w.op == WIRE_ATOMIC_ADD ? old + r->arg :
			w.op == WIRE_ATOMIC_SWAP || old == w.compare ? r->arg : old;
		memcpy(mem, &new, w.size);
	}
	a.arg = (uint64_t)(int64_t)status;
	a.data = w.size == 4 ? old | 0xdeadull << 32 : old; /* what is above is nobody's word */
	fake_put(c, &a, NULL);
}

/* The i-th of those that were held goes on, in any order. */
static inline void fake_release(unsigned i)
{
	struct fake_held *h;
	struct fake_chan *c;

	pthread_mutex_lock(&fake.lock);
	h = fake.held[i];
	c = h ? fake_find(h->r.src_node, h->r.src_ep, h->r.src_epoch) : NULL;
	if (c && h->r.type == WIRE_REC_RMA)
		fake_rma(c, &h->r, h->payload);
	else if (c)
		fake_ratom(c, &h->r, h->payload);
	fake.held[i] = NULL;
	free(h);
	pthread_mutex_unlock(&fake.lock);
}

static inline void fake_record(struct fake_chan *c, struct wire_rec *r, const uint8_t *payload)
{
	struct fake_chan *to;
	struct wire_rts rts;

	fake.records[r->type & 31]++;
	r->src_node = (uint16_t)c->node;
	r->src_ep = (uint16_t)(c - fake.chan);
	r->src_epoch = c->epoch;
	if (r->type == WIRE_REC_PEER)
		return;
	if (fake.hold_rma && (r->type == WIRE_REC_RMA || r->type == WIRE_REC_RATOM)) {
		fake.held[fake.nheld++] = fake_hold(r, payload);
		return;
	}
	if (r->type == WIRE_REC_ACCESSED) {
		fake_accessed(r, payload);
		return;
	}
	if (r->type == WIRE_REC_RMA) {
		fake_rma(c, r, payload);
		return;
	}
	if (r->type == WIRE_REC_RATOM) {
		fake_ratom(c, r, payload);
		return;
	}
	if (r->type == WIRE_REC_GET) {
		fake_get(c, r, (const void *)payload);
		return;
	}
	to = fake_find(r->dst_node, r->dst_ep, r->dst_epoch);
	if (!to) {
		uint64_t op = r->type == WIRE_REC_MSG ? (r->flags & WIRE_REC_F_DELIVERED ? r->op : 0) :
			r->type == WIRE_REC_PUSH ? 0 : r->op;

		if (wire_rec_charged(r->type) || r->type == WIRE_REC_CTS || r->type == WIRE_REC_CANCEL)
			fake_answer(c, r, WIRE_REC_GONE, op, RCS_ERR_PEER_GONE);
		return;
	}
	if (r->type == WIRE_REC_CANCEL && !r->op)
		return; /* it is there */
	if (r->type == WIRE_REC_RTS) {
		memcpy(&rts, payload, sizeof(rts));
		rts.pid = c->pid;
		rts.rail_ok = rts.key.region && fake.region[rts.key.region].ok;
		payload = (const void *)&rts;
	}
	fake_put(to, r, payload);
	if (r->type == WIRE_REC_MSG && r->flags & WIRE_REC_F_DELIVERED)
		fake_answer(c, r, WIRE_REC_DELIVERED, r->op, 0);
}

static inline void fake_drain(struct fake_chan *c)
{
	const uint8_t *payload;
	struct wire_rec r;

	while (c->shm && !fake.paused && shm_ring_peek(&c->tx, &r, &payload) > 0) {
		fake_record(c, &r, payload);
		shm_ring_consume(&c->tx, &r);
	}
	if (c->shm && !fake.paused && shm_ring_freed(&c->tx))
		fake_ring(c);
}

static inline void *fake_main(void *arg)
{
	(void)arg;
	while (!fake.stop) {
		struct pollfd p[FAKE_NODES + 2 * FAKE_CHANS];
		unsigned n = 0;
		bool busy = false;

		for (unsigned i = 0; i < fake.nodes; i++)
			p[n++] = (struct pollfd){.fd = fake.listen[i], .events = POLLIN};
		pthread_mutex_lock(&fake.lock);
		for (int i = 0; i < FAKE_CHANS; i++) {
			uint64_t v;

			if (!fake.chan[i].used)
				continue;
			p[n++] = (struct pollfd){.fd = fake.chan[i].sock, .events = POLLIN};
			if (!fake.chan[i].shm)
				continue;
			p[n++] = (struct pollfd){.fd = fake.chan[i].bell, .events = POLLIN};
			if (read(fake.chan[i].bell, &v, sizeof(v)) < 0 && errno != EAGAIN)
				abort();
			if (!fake.paused && shm_ring_arm(&fake.chan[i].tx))
				busy = true;
		}
		pthread_mutex_unlock(&fake.lock);
		poll(p, n, busy ? 0 : 2);
		pthread_mutex_lock(&fake.lock);
		for (unsigned i = 0; i < fake.nodes; i++) {
			int fd = accept4(fake.listen[i], NULL, NULL, SOCK_CLOEXEC), k;

			if (fd < 0)
				continue;
			for (k = 0; fake.chan[k].used; k++)
				;
			fake.chan[k] = (struct fake_chan){.used = true, .sock = fd, .node = i};
		}
		for (int i = 0; i < FAKE_CHANS; i++) {
			if (!fake.chan[i].used)
				continue;
			fake_drain(&fake.chan[i]);
			if (!fake_request(&fake.chan[i]) && !fake.hold_end) {
				fake_drain(&fake.chan[i]);
				fake_close(&fake.chan[i]);
			}
		}
		pthread_mutex_unlock(&fake.lock);
	}
	return NULL;
}

static inline void fake_listen(unsigned i)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char dir[108];

	snprintf(dir, sizeof(dir), "%s/%u", fake.dir, i);
	mkdir(dir, 0700);
	snprintf(dir, sizeof(dir), "%s/%u/7.0", fake.dir, i);
	mkdir(dir, 0700);
	strcpy(a.sun_path, fake_path(i));
	fake.listen[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(fake.listen[i], (struct sockaddr *)&a, sizeof(a)) || listen(fake.listen[i], 64))
		abort();
	fake.table_size = sizeof(struct shm_table) + FAKE_NODES * sizeof(struct shm_node);
	fake.table_fd[i] = memfd_create("table", MFD_CLOEXEC);
	if (ftruncate(fake.table_fd[i], (off_t)fake.table_size))
		abort();
	fake.table[i] = mmap(NULL, fake.table_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		fake.table_fd[i], 0);
	fake.table[i]->magic = SHM_MAGIC;
	fake.table[i]->abi = SHM_ABI;
	fake.table[i]->nodes = fake.nodes;
	fake.table[i]->node = i;
	for (unsigned k = 0; k < fake.nodes; k++) {
		fake.table[i]->node_tab[k].state = k == i ? SHM_NODE_SELF : SHM_NODE_UP;
		snprintf(fake.table[i]->node_tab[k].host, 64, "node%u", k);
	}
}

static inline void fake_start(unsigned nodes)
{
	strcpy(fake.dir, "/tmp/rcs-fake-XXXXXX");
	if (!mkdtemp(fake.dir))
		abort();
	fake.nodes = nodes;
	fake.stop = false;
	pthread_mutex_init(&fake.lock, NULL);
	for (unsigned i = 0; i < nodes; i++)
		fake_listen(i);
	pthread_create(&fake.thread, NULL, fake_main, NULL);
}

static inline void fake_stop(void)
{
	char path[128];

	fake.stop = true;
	pthread_join(fake.thread, NULL);
	for (int i = 0; i < FAKE_CHANS; i++)
		if (fake.chan[i].used)
			fake_close(&fake.chan[i]);
	for (unsigned i = 0; i < fake.nodes; i++) {
		close(fake.listen[i]);
		munmap(fake.table[i], fake.table_size);
		close(fake.table_fd[i]);
		unlink(fake_path(i));
		snprintf(path, sizeof(path), "%s/%u/7.0", fake.dir, i);
		rmdir(path);
		snprintf(path, sizeof(path), "%s/%u", fake.dir, i);
		rmdir(path);
	}
	rmdir(fake.dir);
	for (unsigned i = 0; i < fake.nheld; i++)
		free(fake.held[i]);
	memset(&fake, 0, sizeof(fake));
}

/* Another device is the node's rail now. */
static inline void fake_device(unsigned node, unsigned rail)
{
	fake.table[node]->rail_epoch[rail]++;
}

/* A record from nowhere into every channel of a node: events. */
static inline void fake_event(unsigned node, const struct shm_event *ev)
{
	struct wire_rec r = {.type = WIRE_REC_EVENT, .len = sizeof(*ev)};

	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < FAKE_CHANS; i++)
		if (fake.chan[i].used && fake.chan[i].shm && fake.chan[i].node == node)
			fake_put(&fake.chan[i], &r, ev);
	pthread_mutex_unlock(&fake.lock);
}

#endif
