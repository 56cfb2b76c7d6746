/* SPDX-License-Identifier: BSD-3-Clause */
/* One RC queue pair: open, connect, post, complete, fence. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "core/psn.h"
#include "node/verbs_impl.h"

#define WR_RECV		(1ull << 63)
#define VERBS_RD_ATOMIC 32u /* more READs at once buy nothing */

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

enum ibv_mtu verbs_mtu_enum(uint32_t bytes)
{
	return bytes >= 4096 ? IBV_MTU_4096 : bytes >= 2048 ? IBV_MTU_2048 :
	       bytes >= 1024 ? IBV_MTU_1024 : bytes >= 512  ? IBV_MTU_512 :
							      IBV_MTU_256;
}

static uint8_t *rx_slot(const struct verbs_lane *l, uint32_t slot)
{
	unsigned m = slot >= l->rx_first;

	return l->mem[m].rx + (size_t)(slot - (m ? l->rx_first : 0)) * WIRE_FRAME_MAX;
}

static int post_recv(struct verbs_lane *l, uint32_t slot)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)rx_slot(l, slot), .length = WIRE_FRAME_MAX,
		.lkey = l->mem[slot >= l->rx_first].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = WR_RECV | slot, .sg_list = &sge, .num_sge = 1}, *bad;
	int err = ibv_post_recv(l->qp, &wr, &bad);

	if (err)
		return -err;
	l->rx_posted++;
	l->rx_last = slot;
	l->rx_marker = false;
	return 0;
}

int verbs_lane_mem_register(struct verbs_lane *l, struct lane_mem *m, int access)
{
	m->mr = ibv_reg_mr(l->rail->pd, m->addr, m->len, access);
	m->handle = m->mr ? m->mr->handle : VERBS_NO_MR;
	return m->mr ? 0 : -errno;
}

void verbs_lane_mem_free(struct lane_mem *m)
{
	if (m->mr)
		ibv_dereg_mr(m->mr);
	if (m->addr)
		munmap(m->addr, m->len);
	m->mr = NULL;
	m->addr = m->rx = NULL;
	m->len = 0;
}

/* Registering pins, so what a quiet lane will not need is not registered before it grows. */
static int memory(struct verbs_lane *l, struct lane_mem *m, size_t head, uint32_t slots)
{
	size_t len = head + (size_t)slots * WIRE_FRAME_MAX;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	m->addr = p;
	m->rx = m->addr + head;
	m->len = len;
	return verbs_lane_mem_register(l, m, IBV_ACCESS_LOCAL_WRITE);
}

static int queue_pair(struct verbs_lane *l)
{
	struct rail *r = l->rail;
	struct ibv_qp_init_attr qi = {.qp_context = l, .send_cq = r->cq, .recv_cq = r->cq,
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = {.max_send_wr = VERBS_SENDS, .max_recv_wr = l->rx_cap, .max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)r->port,
		.pkey_index = l->pkey_index, .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};

	l->qp = ibv_create_qp(r->pd, &qi);
	if (!l->qp)
		return -errno;
	l->qpn = l->qp->qp_num;
	HASH_ADD(hh, l->v->by_qpn[l->r], qpn, sizeof(l->qpn), l);
	l->listed = true;
	return -ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS);
}

int verbs_lane_open(struct verbs *v, unsigned rail, uint32_t depth, void *owner,
	struct verbs_lane **lane, uint8_t out[CORE_BLOB])
{
	struct rail *r = &v->rail[rail];
	struct verbs_lane *l;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t type, most;
	struct verbs_blob b = {0};
	int err;

	if (!r->ctx || !r->ok)
		return -ENETDOWN;
	if (ibv_query_port(r->ctx, (uint8_t)r->port, &port) ||
		verbs_gid_choose(r, &port, &gid, &type) < 0)
		return -ENODEV;
	r->msg_max = port.max_msg_sz;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->v = v;
	l->rail = r;
	l->r = rail;
	l->owner = owner;
	l->gid = gid;
	l->lid = port.lid;
	l->pkey_index = (uint16_t)r->pkey_index;
	for (unsigned m = 0; m < VERBS_MEMS; m++)
		l->mem[m].handle = VERBS_NO_MR;
	l->next = v->lanes;
	v->lanes = l;
	most = min32((uint32_t)v->cfg.frame_depth, CORE_SLOTS);
	l->rx_cap = most + VERBS_CONTROL + 1;
	l->rx_first = min32(depth, most) + VERBS_CONTROL + 1;
	err = verbs_rail_cq(r, VERBS_SENDS + l->rx_cap);
	if (err)
		goto close_lane;
	l->cq_room = VERBS_SENDS + l->rx_cap;
	err = memory(l, &l->mem[0], (size_t)VERBS_SENDS * VERBS_SMALL, l->rx_first);
	if (err)
		goto close_lane;
	l->small = l->mem[0].addr;
	err = verbs_lane_word_make(l);
	if (!err)
		err = queue_pair(l);
	if (!err)
		err = verbs_lane_depth(l, depth);
	if (err)
		goto close_lane;
	if (getrandom(&l->psn, sizeof(l->psn), 0) < 0)
		l->psn = (uint32_t)(uintptr_t)l;
	l->psn &= 0xffffff;
	b.qpn = l->qp->qp_num;
	b.psn = l->psn;
	memcpy(b.gid, &gid, 16);
	b.lid = port.lid;
	b.mtu = (uint8_t)port.active_mtu;
	if (v->cfg.path_mtu && verbs_mtu_enum(v->cfg.path_mtu) < port.active_mtu)
		b.mtu = (uint8_t)verbs_mtu_enum(v->cfg.path_mtu);
	l->told_mtu = b.mtu;
	verbs_lane_end(l, &b);
	b.rd_atomic = (uint8_t)min32((uint32_t)r->dev.max_qp_rd_atom, VERBS_RD_ATOMIC);
	b.epoch = (uint8_t)r->epoch;
	verbs_lane_offer_word(l, &b);
	if (r->ud.qp && !r->ud.broken) {
		b.ud_qpn = r->ud.qpn;
		b.ud_qkey = r->ud.qkey;
	}
	memset(out, 0, CORE_BLOB);
	memcpy(out, &b, sizeof(b));
	*lane = l;
	return 0;

close_lane:
	verbs_lane_close(l);
	return err;
}

static unsigned gid_ifindex(const struct rail *r, uint32_t index)
{
	for (int i = 0; i < r->gids_n; i++)
		if (r->gids[i].port_num == r->port && r->gids[i].gid_index == index)
			return r->gids[i].ndev_ifindex;
	return 0;
}

/*
 * The same at both ends and never 0: then a RoCE device takes the UDP port, and a switch the path, from it
 * alone, and datagrams of this label go the way of the lane's packets.
 */
static uint32_t flow_label(uint32_t a, uint32_t b)
{
	return ((a ^ b) * 0x9e3779b1u >> 12) | 1;
}

int verbs_lane_connect(struct verbs_lane *l, const uint8_t in[CORE_BLOB])
{
	const struct config *cfg = &l->v->cfg;
	struct rail *r = l->rail;
	struct ibv_port_attr port;
	struct ibv_qp_attr a;
	union ibv_gid gid;
	uint32_t type, index;
	struct verbs_blob b;
	int err;

	memcpy(&b, in, sizeof(b));
	if (!l->qp || !r->ctx || ibv_query_port(r->ctx, (uint8_t)r->port, &port))
		return -ENODEV;
	if (b.link_layer != port.link_layer || b.mtu < IBV_MTU_256 || b.mtu > IBV_MTU_4096 ||
		b.rail >= WIRE_RAILS_MAX)
		return -EPROTO;
	/* GIDs move when addresses do: the index is read again before every RTR. */
	err = verbs_gid_choose(r, &port, &gid, &type);
	if (err < 0)
		return err;
	if (memcmp(&gid, &l->gid, sizeof(gid)))
		return -EADDRNOTAVAIL; /* the peer was told another one */
	index = (uint32_t)err;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		union ibv_gid peer;

		memcpy(&peer, b.gid, sizeof(peer));
		err = verbs_path_ready(r, gid_ifindex(r, index), &peer);
		if (err)
			return err;
	}
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTR;
	/* of what both were told: one end's port may have changed since */
	a.path_mtu = (enum ibv_mtu)min32(b.mtu, l->told_mtu);
	l->mtu = 128u << a.path_mtu;
	a.dest_qp_num = b.qpn;
	a.rq_psn = l->peer_psn = b.psn & 0xffffff;
	l->peer_epoch = b.epoch;
	l->peer_rail = b.rail;
	verbs_lane_learn_word(l, &b);
	a.max_dest_rd_atomic = (uint8_t)min32((uint32_t)r->dev.max_qp_rd_atom, VERBS_RD_ATOMIC);
	a.min_rnr_timer = (uint8_t)cfg->rc_min_rnr_timer;
	a.ah_attr.port_num = (uint8_t)r->port;
	a.ah_attr.dlid = b.lid;
	a.ah_attr.sl = (uint8_t)cfg->service_level;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET || port.flags & IBV_QPF_GRH_REQUIRED) {
		a.ah_attr.is_global = 1;
		memcpy(&a.ah_attr.grh.dgid, b.gid, 16);
		a.ah_attr.grh.sgid_index = (uint8_t)index;
		a.ah_attr.grh.hop_limit = 64;
		a.ah_attr.grh.traffic_class = (uint8_t)cfg->traffic_class;
		a.ah_attr.grh.flow_label = flow_label(l->qpn, b.qpn);
	}
	l->routed = true;
	l->av = a.ah_attr;
	l->ud_qpn = b.ud_qpn;
	l->ud_qkey = b.ud_qkey;
	err = ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return -err;
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = (uint8_t)cfg->rc_timeout;
	a.retry_cnt = (uint8_t)cfg->rc_retry_cnt;
	a.rnr_retry = 7;
	a.sq_psn = l->psn;
	a.max_rd_atomic = (uint8_t)min32((uint32_t)r->dev.max_qp_init_rd_atom,
		b.rd_atomic ? b.rd_atomic : 1);
	/* One less than the peer answers at once: one more would hold up every send behind it. */
	l->reads_max = a.max_rd_atomic > 1 ? a.max_rd_atomic - 1u : 1;
	if (cfg->max_outstanding_reads)
		l->reads_max = min32(l->reads_max, cfg->max_outstanding_reads);
	err = ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (err)
		return -err;
	l->connected = true;
	return 0;
}

int verbs_lane_depth(struct verbs_lane *l, uint32_t depth)
{
	uint32_t want = depth + VERBS_CONTROL + 1;

	if (want > l->rx_cap)
		want = l->rx_cap;
	if (!l->qp || l->fencing)
		return 0;
	if (want > l->rx_first && !l->mem[1].mr) {
		int err = memory(l, &l->mem[1], 0, l->rx_cap - l->rx_first);

		if (err) {
			verbs_lane_mem_free(&l->mem[1]);
			return err;
		}
	}
	while (l->rx_slots < want) {
		int err = post_recv(l, l->rx_slots);

		if (err)
			return err;
		l->rx_slots++;
	}
	return 0;
}

unsigned verbs_lane_rail(const struct verbs_lane *l)
{
	return l->r;
}

unsigned verbs_lane_peer_rail(const struct verbs_lane *l)
{
	return l->peer_rail;
}

static uint32_t posted_n(const struct verbs_lane *l)
{
	return l->sq_tail - l->sq_head;
}

uint32_t verbs_lane_room(const struct verbs_lane *l)
{
	return l->connected && !l->fencing ? VERBS_SENDS - posted_n(l) : 0;
}

bool verbs_lane_leads_to(const struct verbs_lane *l, uint8_t epoch)
{
	return !l->connected || l->peer_epoch == epoch;
}

uint32_t verbs_lane_reads(const struct verbs_lane *l)
{
	return l->reads_max;
}

/* That may be posted before there are too many to know which is which (core/psn.h). */
static uint32_t packets_room(const struct verbs_lane *l)
{
	uint32_t first = posted_n(l) ? l->sq_psn[l->sq_head % VERBS_SENDS] : l->psn;

	return CORE_PSN_WINDOW - 1 - core_psn_add(l->psn, 0u - first);
}

int verbs_lane_post(struct verbs_lane *l, struct ibv_send_wr *wr, uint64_t cookie)
{
	struct ibv_send_wr *bad;
	int err; /* a request that was not posted takes no PSN */

	if (!l->qp || !l->connected || l->fencing)
		return -EIO;
	if (posted_n(l) >= VERBS_SENDS || packets_room(l) < core_psn_packets(wr->sg_list->length, l->mtu))
		return -EAGAIN;
	wr->wr_id = l->sq_tail;
	err = ibv_post_send(l->qp, wr, &bad);
	if (err)
		return err == ENOMEM ? -EAGAIN : -EIO;
	l->sq_psn[l->sq_tail % VERBS_SENDS] = l->psn;
	l->sq[l->sq_tail++ % VERBS_SENDS] = cookie;
	l->psn = core_psn_add(l->psn, core_psn_packets(wr->sg_list->length, l->mtu));
	return 0;
}

int verbs_lane_send(struct verbs_lane *l, struct verbs_buf *b, size_t at, uint32_t len,
	uint64_t cookie)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)b->addr + at, .length = len};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	if (!b->mr[l->r])
		return -EIO;
	sge.lkey = b->mr[l->r]->lkey;
	return verbs_lane_post(l, &wr, cookie);
}

int verbs_lane_send_copy(struct verbs_lane *l, const void *frame, uint32_t len, uint64_t cookie)
{
	/* The slot of the request's own number: free, because that request would be its user. */
	uint8_t *slot = l->small + (size_t)(l->sq_tail % VERBS_SENDS) * VERBS_SMALL;
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)slot, .length = len};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	if (len > VERBS_SMALL)
		return -EINVAL;
	if (!l->qp)
		return -EIO;
	if (posted_n(l) >= VERBS_SENDS)
		return -EAGAIN;
	memcpy(slot, frame, len);
	sge.lkey = l->mem[0].mr->lkey;
	return verbs_lane_post(l, &wr, cookie);
}

int verbs_lane_rdma(struct verbs_lane *l, const struct verbs_rdma *r, uint64_t cookie,
	uint32_t *last_psn)
{
	struct ibv_sge sge = {.addr = r->laddr, .length = r->len, .lkey = r->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = r->len ? 1 : 0,
		.opcode = r->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = r->raddr, .rkey = r->rkey}};
	int err = verbs_lane_post(l, &wr, cookie);

	if (!err)
		*last_psn = core_psn_add(l->psn, CORE_PSN_MASK); /* the one before the next */
	return err;
}

static enum verbs_done classify(enum ibv_wc_status s)
{
	switch (s) {
	case IBV_WC_SUCCESS:
		return VERBS_OK;
	case IBV_WC_WR_FLUSH_ERR:
		return VERBS_FLUSHED;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
		return VERBS_REQUEST;
	default:
		return VERBS_TRANSPORT;
	}
}

/* The queue pair is of no use any more; the owner fences it. */
void verbs_lane_broke(struct verbs_lane *l, enum core_reason why, const char *detail)
{
	if (l->fencing || l->error_told || l->closed)
		return;
	l->error_told = true;
	l->v->ops.error(l->owner, l, why, detail);
}

/* An address that the peer still sends to is not ours any more: better known now than by time-outs. */
void verbs_lane_moved(struct verbs_lane *l, const struct ibv_port_attr *port)
{
	struct rail *r = l->rail;

	if (!l->connected)
		return;
	if (port->link_layer == IBV_LINK_LAYER_INFINIBAND && port->lid != l->lid) {
		verbs_lane_broke(l, CORE_R_PORT, "the port's LID changed");
		return;
	}
	if (l->pkey_index != r->pkey_index) {
		verbs_lane_broke(l, CORE_R_PORT, "the port's P_Keys changed");
		return;
	}
	for (int i = 0; i < r->gids_n; i++)
		if (r->gids[i].port_num == r->port && !memcmp(&r->gids[i].gid, &l->gid, sizeof(l->gid)))
			return;
	verbs_lane_broke(l, CORE_R_PORT, "the port's address changed");
}

static void received(struct verbs_lane *l, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)(wc->wr_id & ~WR_RECV);

	l->rx_posted--;
	l->rx_marker = wc->status == IBV_WC_WR_FLUSH_ERR && slot == l->rx_last;
	if (wc->status != IBV_WC_SUCCESS) {
		/* It went to ERR without us: a bad request of the peer, or of the device. */
		verbs_lane_broke(l, wc->status == IBV_WC_WR_FLUSH_ERR ? CORE_R_COMPLETION : CORE_R_PROTOCOL,
			ibv_wc_status_str(wc->status));
		return;
	}
	l->v->ops.recv(l->owner, l, rx_slot(l, slot), wc->byte_len);
	if (l->qp && !l->fencing && post_recv(l, slot))
		verbs_lane_broke(l, CORE_R_COMPLETION, "a receive could not be posted again");
}

/*
 * Soft RoCE of Linux 6.12, after loss in the middle of a READ's response: the READ completes with success
 * though it failed, and the queue pair goes to ERR (rxe_completer warns of it, COMPST_ERROR). So a READ there
 * is believed while the queue pair works; if it does not, the READ is run again, as any is that was flushed.
 */
static enum verbs_done judge(const struct verbs_lane *l, const struct ibv_wc *wc)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	if (wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RDMA_READ &&
		l->rail->driver == RDMA_DRIVER_RXE && l->qp &&
		(ibv_query_qp(l->qp, &a, IBV_QP_STATE, &init) || a.qp_state != IBV_QPS_RTS))
		return VERBS_FLUSHED;
	return classify(wc->status);
}

void verbs_lane_completion(struct verbs_lane *l, const struct ibv_wc *wc)
{
	if (wc->wr_id & WR_RECV) {
		received(l, wc);
		return;
	}
	/* Requests complete in order; anything between head and this one completed too. */
	while (l->sq_head != l->sq_tail) {
		uint64_t cookie = l->sq[l->sq_head % VERBS_SENDS];
		bool this_one = l->sq_head == (uint32_t)wc->wr_id;

		l->sq_head++;
		l->v->ops.done(l->owner, l, cookie, this_one ? judge(l, wc) : VERBS_OK,
			ibv_wc_status_str(wc->status));
		if (this_one)
			break;
	}
}

/*
 * The barrier of design section 7. The engine that executes packets of a QP also flushes its receive
 * queue, in order and after the packet it was at, so when the last posted receive has come back
 * flushed nothing executes any more. A marker posted at opening would not do on RC: receives are consumed
 * in order, so a frame would take it; the last of all posted receives is the marker. Where a frame took
 * that one too, the queue pair has to go before anything is said.
 */
bool verbs_lane_settled(const struct verbs_lane *l)
{
	if (!l->fencing || l->fenced)
		return false;
	if (l->reaping)
		return !l->routed; /* it never executed anything */
	return !l->qp || (!posted_n(l) && !l->rx_posted);
}

/* Still stands after ERR, and does not move any more behind the barrier. */
static bool rq_psn(const struct verbs_lane *l, uint32_t *psn)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	if (!l->qp || !l->connected || !l->rx_marker || ibv_query_qp(l->qp, &a, IBV_QP_RQ_PSN, &init))
		return false;
	*psn = a.rq_psn & CORE_PSN_MASK;
	return true;
}

bool verbs_lane_settle(struct verbs_lane *l)
{
	uint32_t psn = 0, number;
	enum core_told told;
	bool believed;

	if (!verbs_lane_settled(l))
		return false;
	/* Who says that nothing executes any more? The marker, of a device that has proven what it is worth. */
	if (l->qp && l->routed && (!l->rx_marker || verbs_rail_doubted(l->rail))) {
		verbs_reap_lane(l);
		return true;
	}
	while (l->sq_head != l->sq_tail)
		l->v->ops.done(l->owner, l, l->sq[l->sq_head++ % VERBS_SENDS], VERBS_FLUSHED,
			"the queue pair is gone");
	l->fenced = true;
	l->v->fencing--;
	believed = !verbs_rail_doubted(l->rail) && rq_psn(l, &psn);
	told = core_tell(believed, psn, l->routed ? verbs_lane_word_value(l) : 0, &number);
	l->v->ops.fenced(l->owner, l, told, number);
	return true;
}

void verbs_lane_fence(struct verbs_lane *l)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (l->fencing || l->closed)
		return;
	l->fencing = true;
	l->v->fencing++;
	/* A QP that was never connected flushes nothing on some providers; destroying it is its fence. */
	if (l->qp && (!l->connected || ibv_modify_qp(l->qp, &a, IBV_QP_STATE)))
		verbs_reap_lane(l);
}

void verbs_lane_unlist(struct verbs_lane *l)
{
	if (l->listed)
		HASH_DELETE(hh, l->v->by_qpn[l->r], l);
	l->listed = false;
	l->rx_posted = 0;
	l->rail->cq_used -= l->cq_room;
	l->cq_room = 0;
}

void verbs_lane_close(struct verbs_lane *l)
{
	struct verbs_lane **p = &l->v->lanes;

	while (*p && *p != l)
		p = &(*p)->next;
	if (*p)
		*p = l->next;
	if (l->fencing && !l->fenced)
		l->v->fencing--;
	l->closed = true;
	l->next = l->v->closed;
	l->v->closed = l;
	/* one that is fenced may wait for the last packets of its number; see VERBS_TIME_WAIT */
	if (l->qp && l->fenced)
		verbs_lane_unlist(l);
	else
		verbs_reap_lane(l);
}

void verbs_lane_free(struct verbs_lane *l)
{
	for (unsigned m = 0; m < VERBS_MEMS; m++)
		verbs_lane_mem_free(&l->mem[m]);
	free(l);
}
