/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_impl.h - inside of verbs*.c; nobody else includes it. */
#ifndef RCS_NODE_VERBS_IMPL_H
#define RCS_NODE_VERBS_IMPL_H

#include <infiniband/verbs.h>
#include <uthash.h>

#include "config/config.h"
#include "node/verbs.h"
#include "wire/frame.h"

#define VERBS_CONTROL 16u  /* receives for control frames, beside depth and the marker */
#define VERBS_SENDS   192u /* send queue of a lane */
#define VERBS_RESERVE 8u   /* ... of which only control frames may use the last */
#define VERBS_SMALL   256u
#define VERBS_CQE	  16384

struct rail {
	struct verbs *v;
	char device[IBV_SYSFS_NAME_MAX];
	char name[IBV_SYSFS_NAME_MAX + 8];
	uint32_t port;
	int gid_index; /* as configured; -1: choose */
	uint32_t gid_type;
	struct ibv_context *ctx; /* NULL: the device is not there */
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *chan;
	uint32_t epoch;
	bool ok;
	unsigned cq_events; /* not yet acknowledged */
};

struct verbs_buf {
	struct verbs *v;
	void *addr;
	size_t len;
	struct ibv_mr *mr[WIRE_RAILS_MAX];
	struct verbs_buf *next;
};

/* A posted send request; reported in the order of the queue. */
struct posted {
	uint64_t cookie;
	bool read;
};

struct verbs_lane {
	struct verbs *v;
	struct rail *rail;
	unsigned r;
	void *owner;
	struct ibv_qp *qp;
	uint32_t qpn; /* key of v->by_qpn while qp is there */
	UT_hash_handle hh;
	uint32_t psn;
	uint32_t reads_max;
	bool connected, fencing, fenced, error_told;
	/* send side: requests complete in order, so one ring of cookies is enough */
	struct posted sq[VERBS_SENDS];
	uint32_t sq_head, sq_tail;
	uint32_t reads;
	uint8_t *small; /* VERBS_SENDS bounce slots for control frames, in mem */
	/* receive side */
	uint8_t *rx; /* slots of WIRE_FRAME_MAX */
	uint32_t rx_slots, rx_cap, rx_posted;
	uint8_t *mem;
	size_t mem_len;
	struct ibv_mr *mr;
	struct verbs_lane *next;
};

struct verbs {
	struct config cfg;
	struct verbs_ops ops;
	struct rail rail[WIRE_RAILS_MAX];
	unsigned rails;
	unsigned fds_version;
	struct verbs_buf *bufs;
	struct verbs_lane *lanes;
	struct verbs_lane *by_qpn[WIRE_RAILS_MAX]; /* QP numbers are a device's own */
};

int verbs_rail_open(struct rail *r);
void verbs_rail_gone(struct rail *r, const char *detail);
void verbs_lane_orphan(struct verbs_lane *l); /* its device is gone: destroys the QP */
void verbs_lane_completion(struct verbs_lane *l, const struct ibv_wc *wc);
bool verbs_lane_settle(struct verbs_lane *l); /* reports a fence that is complete */
int verbs_gid_choose(struct rail *r, union ibv_gid *gid, uint32_t *type);
int verbs_buf_register(struct verbs_buf *b, unsigned r);
int verbs_mr_destroy_on(struct ibv_context *ctx, uint32_t handle);

#endif
