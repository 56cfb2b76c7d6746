/* SPDX-License-Identifier: BSD-3-Clause */
#include "bed_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#undef recvmsg /* here nobody waits for an answer */
ssize_t recvmsg(int fd, struct msghdr *m, int flags);

union fd_room {
	struct cmsghdr h;
	char space[CMSG_SPACE(8 * sizeof(int))];
};

void bed_rank_connect(struct bed_rank *r, unsigned node)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	*r = (struct bed_rank){.node = node, .bell = -1, .rank_bell = -1};
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", bed.dir[node]);
	r->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bed_must(r->sock >= 0, "there is a socket");
	if (connect(r->sock, (struct sockaddr *)&sa, sizeof(sa))) {
		close(r->sock);
		r->sock = -1;
	}
}

void bed_rank_send(struct bed_rank *r, const void *msg, size_t len, int fd)
{
	union fd_room room = {.h = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {(void *)(uintptr_t)msg, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (r->sock < 0)
		return;
	bed_say("node %u slot %u: message of type %u, %zu bytes", r->node, r->slot,
		len >= sizeof(struct shm_msg) ? ((const struct shm_msg *)msg)->type : 0, len);
	if (fd >= 0) {
		memcpy(CMSG_DATA(&room.h), &fd, sizeof(fd));
		mh.msg_control = &room;
		mh.msg_controllen = CMSG_SPACE(sizeof(int));
	}
	(void)!sendmsg(r->sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void attached(struct bed_rank *r, const struct shm_attached *a, const int *fds, unsigned n)
{
	struct shm_channel *s;

	if (a->m.status || n < SHM_FD_N || r->shm)
		return;
	s = mmap(NULL, a->channel_size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[SHM_FD_CHANNEL], 0);
	bed_must(s != MAP_FAILED, "a channel can be mapped");
	r->shm = s;
	r->size = a->channel_size;
	r->bell = dup(fds[SHM_FD_DAEMON]);
	r->rank_bell = dup(fds[SHM_FD_RANK]);
	r->slot = s->addr.ep;
	r->epoch = s->addr.epoch;
	shm_ring_init(&r->tx, &s->tx, (uint8_t *)s + s->tx_off, s->tx_size);
	shm_ring_init(&r->rx, &s->rx, (uint8_t *)s + s->rx_off, s->rx_size);
}

void bed_rank_answers(struct bed_rank *r)
{
	static union {
		struct shm_msg m;
		struct shm_attached attached;
		struct shm_lent lent;
		struct shm_alloced alloced;
		uint8_t room[4096];
	} u;
	union fd_room room;
	struct iovec iov = {&u, sizeof(u)};

	while (r->sock >= 0) {
		struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room,
			.msg_controllen = sizeof(room)};
		int fds[8];
		unsigned n = 0;
		struct cmsghdr *c;

		ssize_t got = recvmsg(r->sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		r->spoilt |= !got;
		if (got <= 0)
			return;
		c = CMSG_FIRSTHDR(&mh);
		if (c)
			n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (n)
			memcpy(fds, CMSG_DATA(c), n * sizeof(int));
		if (u.m.type == SHM_MSG_ATTACH)
			attached(r, &u.attached, fds, n);
		if (u.m.type == SHM_MSG_LEND && !u.m.status)
			r->key[r->keys_n++ % BED_KEYS] = u.lent.key;
		if (u.m.type == SHM_MSG_ALLOC && !u.m.status)
			r->key[r->keys_n++ % BED_KEYS] = u.alloced.key;
		while (n)
			close(fds[--n]);
	}
}

void bed_rank_attach(struct bed_rank *r)
{
	const struct node_opts *o = &bed.n[r->node]->o;
	struct shm_attach a = {.m = {.type = SHM_MSG_ATTACH, .abi = SHM_ABI}, .job = o->job, .ranks = 4,
		.rank = r->node, .local_ranks = 2, .pid = (uint32_t)getpid()};

	bed_rank_send(r, &a, sizeof(a), -1);
	for (int i = 0; i < 4 && !r->shm; i++) {
		bed_turn(r->node);
		bed_rank_answers(r);
	}
}

void bed_rank_submit(struct bed_rank *r, const struct wire_rec *rec, const void *payload)
{
	struct wire_rec *to = r->shm ? shm_ring_reserve(&r->tx, rec->len) : NULL;
	uint64_t one = 1;

	if (!to)
		return;
	bed_say("node %u slot %u: record of type %u to node %u slot %u, op %llx, %u bytes", r->node, r->slot, rec->type,
		rec->dst_node, rec->dst_ep, (unsigned long long)rec->op, rec->len);
	r->asked += rec->type == WIRE_REC_RMA && rec->dst_node < BED_DAEMONS;
	*to = *rec;
	memcpy(to + 1, payload, rec->len);
	shm_ring_commit(&r->tx, rec->len);
	if (shm_ring_publish(&r->tx))
		(void)!write(r->bell, &one, sizeof(one));
}

static void rank_access(struct bed_rank *r, const struct wire_rec *a, const uint8_t *payload)
{
	struct wire_rec out = {.type = WIRE_REC_ACCESSED, .op = a->op};
	uint8_t buf[WIRE_REC_PAYLOAD_MAX] = {0};
	bool write = a->flags & WIRE_REC_F_WRITE;

	if (write)
		memcpy(buf, payload, a->len);
	if (a->arg > sizeof(buf) || !bed_memory(a->tag, buf, a->arg, write))
		out.arg = (uint64_t)-1;
	else if (!write)
		out.len = (uint32_t)a->arg;
	bed_rank_submit(r, &out, buf);
}

void bed_rank_take(struct bed_rank *r, bool serve)
{
	const uint8_t *payload;
	struct wire_rec rec;

	while (r->shm && shm_ring_peek(&r->rx, &rec, &payload) == 1) {
		bed_say("node %u slot %u: has got a record of type %u, op %llx, arg %lld", r->node, r->slot, rec.type,
			(unsigned long long)rec.op, (long long)rec.arg);
		r->got[rec.type & 63]++;
		if (rec.type == WIRE_REC_RMA_DONE)
			r->done = rec;
		if (rec.type == WIRE_REC_MSG)
			r->msg = rec;
		if (rec.type == WIRE_REC_ACCESS && serve)
			rank_access(r, &rec, payload);
		else if (rec.type == WIRE_REC_ACCESS)
			r->access = rec;
		shm_ring_consume(&r->rx, &rec);
	}
}

/* Ends of requests that have come to r[0 .. n-1], and what their libraries were to do. */
static uint64_t got(const struct bed_rank *r, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += r[i].got[WIRE_REC_RMA_DONE] + r[i].got[WIRE_REC_ACCESS];
	return sum;
}

bool bed_rank_settle(struct bed_rank *r, unsigned n)
{
	static const uint8_t nothing[WIRE_REC_PAYLOAD_MAX];
	uint64_t had;
	int quiet = 0;

	for (unsigned i = 0; i < n; i++) {
		if (r[i].access.type)
			rank_access(&r[i], &r[i].access, nothing);
		r[i].access.type = 0;
	}
	for (int k = 0; k < 1000 && quiet < 60; k++) {
		had = got(r, n);
		bed_pass(quiet > 3 ? 100 * BED_MS : 0);
		bed_turns(1);
		for (unsigned i = 0; i < n; i++) {
			bed_rank_take(&r[i], true);
			bed_rank_answers(&r[i]);
		}
		quiet = got(r, n) == had ? quiet + 1 : 0;
	}
	return quiet == 60;
}

void bed_rank_close(struct bed_rank *r, bool good_bye)
{
	struct shm_msg bye = {.type = SHM_MSG_DETACH, .abi = SHM_ABI};

	if (r->sock >= 0)
		bed_say("node %u slot %u: ends%s", r->node, r->slot, good_bye ? "" : " without a good-bye");
	if (good_bye)
		bed_rank_send(r, &bye, sizeof(bye), -1);
	if (r->sock >= 0)
		close(r->sock);
	if (r->shm) {
		munmap(r->shm, r->size);
		close(r->bell);
		close(r->rank_bell);
	}
	*r = (struct bed_rank){.sock = -1};
}

void bed_rank_region(struct bed_rank *r)
{
	struct shm_lend l = {.m = {.type = SHM_MSG_LEND, .abi = SHM_ABI}, .addr = BED_MEM, .len = BED_MEM_LEN};
	struct shm_reg g = {.m = {.type = SHM_MSG_REG, .abi = SHM_ABI}, .ndev = BED_RAILS, .ok = 3};
	unsigned had = r->keys_n;

	bed_rank_send(r, &l, sizeof(l), -1);
	bed_turns(1);
	bed_rank_answers(r);
	if (r->keys_n == had)
		return;
	g.key = r->key[had % BED_KEYS];
	bed_rank_send(r, &g, sizeof(g), -1);
	bed_turns(1);
	bed_rank_answers(r);
}

/* --- two that do as they should ----------------------------------------------------------------------- */

void bed_honest_open(struct bed_rank h[BED_DAEMONS])
{
	for (unsigned i = 0; i < BED_DAEMONS; i++) {
		bed_rank_connect(&h[i], i);
		bed_rank_attach(&h[i]);
		bed_rank_region(&h[i]);
		bed_must(h[i].shm && h[i].keys_n == 1, "a rank attaches and registers memory");
	}
}

void bed_honest_turn(struct bed_rank h[BED_DAEMONS])
{
	for (unsigned i = 0; i < BED_DAEMONS; i++) {
		bed_rank_take(&h[i], true);
		bed_rank_answers(&h[i]);
	}
}

void bed_honest_must_work(struct bed_rank h[BED_DAEMONS])
{
	struct wire_rma w = {.key = h[1].key[0], .laddr = BED_MEM, .len = 64, .lregion = h[0].key[0].region,
		.lgen = h[0].key[0].gen};
	struct wire_rec put = {.type = WIRE_REC_RMA, .op = 4711, .dst_node = 1, .dst_ep = h[1].slot,
		.dst_epoch = h[1].epoch, .len = sizeof(w)};
	struct wire_rec msg = {.type = WIRE_REC_MSG, .tag = 4711, .dst_node = 1, .dst_ep = h[1].slot,
		.dst_epoch = h[1].epoch};
	uint32_t dones = h[0].got[WIRE_REC_RMA_DONE];

	h[1].msg.tag = 0;
	bed_rank_submit(&h[0], &put, &w);
	bed_rank_submit(&h[0], &msg, "");
	for (int i = 0; i < 400 && (h[0].got[WIRE_REC_RMA_DONE] == dones || h[1].msg.tag != 4711); i++) {
		bed_pass(20 * BED_MS);
		bed_turns(1);
		bed_honest_turn(h);
	}
	if (!bed_whole()) /* a step that only one of them knows has ended it */
		return;
	bed_must(h[0].got[WIRE_REC_RMA_DONE] > dones, "another rank's put ends");
	bed_must(!h[0].done.arg, "another rank's put succeeds");
	bed_must(h[1].msg.tag == 4711, "another rank's message arrives");
}
