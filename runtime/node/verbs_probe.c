/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams: one UD queue pair a rail. Its number and Q_Key go to peers in the blob of each lane; the key is
 * random, so whoever was not told one cannot be heard. Soft RoCE moves the queue pair to ERR where a packet
 * cannot leave: then the rail has none until it works again and a new one is made.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "node/verbs_impl.h"

#define UD_RECVS 512u /* for all peers: several probes of each of a hundred while the loop is late */
#define UD_SENDS 32u
#define UD_GRH	 40u /* in front of what was received, whatever the network (IBTA volume 1, 11.4.1.2) */
#define UD_SLOT	 128u
#define UD_BYTES ((size_t)(UD_RECVS + UD_SENDS) * UD_SLOT)
#define UD_RECV	 (1ull << 63)

_Static_assert(UD_GRH + VERBS_DATAGRAM <= UD_SLOT, "room for a datagram");

static int post_recv(struct ud *u, uint64_t slot)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)(u->mem + slot * UD_SLOT), .length = UD_SLOT,
		.lkey = u->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = UD_RECV | slot, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(u->qp, &wr, &bad);
}

/* Receives may be posted from INIT on. */
static int ready(struct rail *r)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)r->port,
		.pkey_index = (uint16_t)r->pkey_index, .qkey = r->ud.qkey};
	int err = ibv_modify_qp(r->ud.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

	for (uint64_t i = 0; i < UD_RECVS && !err; i++)
		err = post_recv(&r->ud, i);
	a.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(r->ud.qp, &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_RTS;
	if (!err)
		err = ibv_modify_qp(r->ud.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return -err;
}

static int qp_open(struct rail *r)
{
	struct ud *u = &r->ud;
	struct ibv_qp_init_attr qi = {.send_cq = r->cq, .recv_cq = r->cq, .qp_type = IBV_QPT_UD,
		.sq_sig_all = 1, .cap = {.max_send_wr = UD_SENDS, .max_recv_wr = UD_RECVS, .max_send_sge = 1,
			.max_recv_sge = 1}};
	void *p = mmap(NULL, UD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	u->mem = p;
	u->mem_len = UD_BYTES;
	u->mr = ibv_reg_mr(r->pd, p, UD_BYTES, IBV_ACCESS_LOCAL_WRITE);
	u->qp = u->mr ? ibv_create_qp(r->pd, &qi) : NULL;
	if (!u->qp)
		return -errno;
	u->qpn = u->qp->qp_num;
	if (getrandom(&u->qkey, sizeof(u->qkey), 0) < 0)
		return -errno;
	u->qkey &= 0x7fffffff; /* the high bit is the kernel's */
	return ready(r);
}

void verbs_ud_open(struct rail *r)
{
	int err = qp_open(r);

	if (err)
		verbs_reap_ud(r);
	else
		r->cq_used += UD_RECVS + UD_SENDS;
	r->ud.err = err;
}

int verbs_rail_datagrams(const struct verbs *v, unsigned rail)
{
	const struct rail *r = &v->rail[rail];

	return r->ud.qp ? 0 : r->ud.err ? r->ud.err : -ENODEV;
}

/* Peers learn of the new one with the next lane. */
void verbs_ud_mend(struct rail *r)
{
	if (!r->ud.broken)
		return;
	verbs_reap_ud(r);
	r->cq_used -= UD_RECVS + UD_SENDS;
	verbs_ud_open(r);
}

void verbs_ud_completion(struct rail *r, const struct ibv_wc *wc)
{
	struct ud *u = &r->ud;
	struct verbs *v = r->v;
	uint64_t slot = wc->wr_id & ~UD_RECV;

	if (wc->status != IBV_WC_SUCCESS)
		u->broken = true;
	if (!(wc->wr_id & UD_RECV)) {
		u->busy--;
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (v->ops.datagram && wc->byte_len > UD_GRH)
		v->ops.datagram(v->ops.arg, (unsigned)(r - v->rail), u->mem + slot * UD_SLOT + UD_GRH,
			wc->byte_len - UD_GRH);
	if (post_recv(u, slot))
		u->broken = true;
}

struct verbs_target *verbs_target_new(struct verbs_lane *l)
{
	struct verbs_target *t;

	if (!l->connected || !l->ud_qpn || !l->rail->pd)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	/* connecting has just resolved the address: this does not wait for it again */
	t->ah = ibv_create_ah(l->rail->pd, &l->av);
	if (!t->ah) {
		free(t);
		return NULL;
	}
	t->v = l->v;
	t->rail = l->rail;
	t->qpn = l->ud_qpn;
	t->qkey = l->ud_qkey;
	t->next = t->v->targets;
	t->v->targets = t;
	return t;
}

void verbs_target_free(struct verbs_target *t)
{
	struct verbs_target **p;

	if (!t)
		return;
	for (p = &t->v->targets; *p != t; p = &(*p)->next)
		;
	*p = t->next;
	if (t->ah)
		verbs_reap_ah(t->rail, t->ah);
	free(t);
}

int verbs_target_send(struct verbs_target *t, const void *data, size_t len)
{
	struct ud *u = &t->rail->ud;
	uint8_t *slot = u->mem + (size_t)(UD_RECVS + u->sent % UD_SENDS) * UD_SLOT;
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)slot, .length = (uint32_t)len};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.wr.ud = {.ah = t->ah, .remote_qpn = t->qpn, .remote_qkey = t->qkey}}, *bad;
	int err;

	if (!t->ah || !u->qp || u->broken || !t->rail->ok)
		return -ENETDOWN;
	if (u->busy == UD_SENDS)
		return -EAGAIN;
	memcpy(slot, data, len);
	sge.lkey = u->mr->lkey;
	wr.wr_id = u->sent;
	err = ibv_post_send(u->qp, &wr, &bad);
	if (err)
		return -err;
	u->sent++;
	u->busy++;
	return 0;
}
