/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_impl.h - inside of verbs*.c; nobody else includes it. */
#ifndef RCS_NODE_VERBS_IMPL_H
#define RCS_NODE_VERBS_IMPL_H

#include <infiniband/verbs.h>
#include <uthash.h>

#include "config/config.h"
#include "node/fabric.h"
#include "node/verbs.h"
#include "node/verbs_selftest.h"
#include "node/work.h"
#include "wire/frame.h"

#define VERBS_CONTROL 16u  /* receives for control frames, beside depth and the marker */
#define VERBS_SENDS   192u /* send queue of a lane */
#define VERBS_RESERVE 8u   /* ... of which only control frames may use the last */
#define VERBS_SMALL   256u
#define VERBS_CQE     16384 /* of a new CQ; grows with the lanes, to what the device allows */
#define VERBS_CQ_SPARE 1024 /* entries that queue pairs destroyed unfenced may leave */
#define VERBS_BATCH   16
#define VERBS_MEMS    3u /* of a lane: receives, more receives, the ledger word */
#define VERBS_WORD    2u
#define VERBS_NO_MR   UINT32_MAX
#define VERBS_TESTS	 3u /* self-tests of a context without a pause; when none had a result, now and then */
#define VERBS_TEST_NS	 1000000000ull /* ... the first pause, doubled each time up to */
#define VERBS_TEST_MAX_NS 64000000000ull
#define VERBS_FENCE_NS 3000000000ull /* no flush for so long: the queue pair is destroyed */
#define VERBS_END_MS   5000u /* so long the end waits for what is being destroyed */
/* A queue pair's number is not given to another one before the packets of the first are gone. */
#define VERBS_TIME_WAIT 2u /* verbs_tick()s that a closed one lives on, in ERR */

/* The queue pair for datagrams: verbs_probe.c. */
struct ud {
	struct ibv_qp *qp; /* NULL: none */
	uint32_t qpn, qkey;
	uint8_t *mem;
	size_t mem_len;
	struct ibv_mr *mr;
	uint32_t sent, busy; /* requests so far, not completed */
	bool broken;
	int err; /* why there is none, -errno */
};

struct verbs_target {
	struct verbs *v;
	struct rail *rail;
	struct ibv_ah *ah; /* NULL: the device has gone */
	uint32_t qpn, qkey;
	struct verbs_target *next;
};

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
	struct ibv_device_attr dev;
	struct ibv_gid_entry *gids; /* room for the device's table */
	size_t gids_max;
	int gids_n; /* valid when the table was read last */
	struct fabric fabric; /* of the GID that was chosen last; outlives the context */
	unsigned ndev; /* interface behind the GID, of RoCE; 0: not known */
	bool carrier;  /* ... has it one, as far as known */
	struct ud ud;
	int driver; /* of the kernel, for the ioctl; -errno: unknown */
	struct work_queue *work; /* verbs_reap.c */
	struct closing *closing; /* made with the context, so that its end needs no memory */
	unsigned going;		 /* contexts that are being closed: another is opened after that */
	uint32_t epoch;
	uint32_t msg_max; /* bytes of a request, known when a lane was opened; 0: not yet */
	uint64_t mute_until; /* ms: a peer did not answer lately, do not wait for another */
	bool ok;
	int pkey_index; /* of the partition; -errno: the port has no such one */
	uint32_t cq_used;   /* entries that the lanes may fill */
	unsigned cq_events; /* not yet acknowledged */
	bool armed;
	struct selftest *test; /* running, or ended and not looked at */
	uint32_t test_epoch;   /* the context it is about */
	unsigned tests;	       /* of this context that have started */
	uint64_t test_at, test_pause; /* not before; ns */
	enum verbs_ledger ledger;
	bool lies; /* the last result was NONE */
	char ledger_why[256];
	struct ibv_wc wc[VERBS_BATCH]; /* found while arming: reported by the next verbs_poll() */
	int wc_n;
};

struct verbs_buf {
	struct verbs *v;
	void *addr;
	size_t len;
	struct ibv_mr *mr[WIRE_RAILS_MAX];
	struct verbs_buf *next;
};

struct verbs_lane {
	struct verbs *v;
	struct rail *rail;
	unsigned r;
	void *owner;
	struct ibv_qp *qp;
	uint32_t qpn; /* key of v->by_qpn while `listed` */
	bool listed;
	UT_hash_handle hh;
	struct work work;	/* verbs_reap.c destroys it */
	struct ibv_qp *leaving; /* ... this; the loop has no use for it any more */
	bool reaping;		/* that has begun, and the loop has not heard of its end */
	unsigned waits;		/* closed: verbs_tick()s since */
	uint32_t psn, peer_psn; /* of the next request; the peer's first */
	uint8_t peer_epoch;	/* of its device */
	uint8_t peer_rail;	/* that this one meets */
	uint8_t told_mtu;	/* enum ibv_mtu: in our blob */
	uint32_t mtu;		/* of the path, bytes */
	uint32_t reads_max;
	uint64_t word_at; /* the peer's ledger word; 0: it has none */
	uint64_t word_last; /* what stood in ours when its memory went */
	uint32_t word_rkey;
	bool wants_word;
	uint32_t sq_psn[VERBS_SENDS]; /* first one of each request */
	uint16_t pkey_index;
	union ibv_gid gid; /* ours, as the peer knows it */
	uint16_t lid;
	struct ibv_ah_attr av; /* way to the peer, when connected; ud_qpn 0: it has no UD queue pair */
	uint32_t ud_qpn, ud_qkey;
	bool routed; /* to RTR, or that was tried: the peer may execute something */
	bool connected, fencing, fenced, error_told, closed;
	uint64_t fence_at; /* when verbs_tick() first saw it fencing */
	/* send side: requests complete in order, so one ring of cookies is enough */
	uint64_t sq[VERBS_SENDS];
	uint32_t sq_head, sq_tail;
	uint8_t *small; /* VERBS_SENDS bounce slots for control frames, at the start of mem[0] */
	/* receive side: slots of WIRE_FRAME_MAX, some from the start, the rest when it grows */
	uint32_t rx_slots, rx_cap, rx_posted;
	uint32_t rx_last; /* slot that was posted last: the marker of a fence */
	bool rx_marker;	  /* it came back flushed */
	uint32_t rx_first; /* slots of mem[0] */
	uint32_t cq_room;  /* entries of the CQ kept for us */
	struct lane_mem {
		uint8_t *addr, *rx;
		size_t len;
		struct ibv_mr *mr;
		uint32_t handle; /* its; VERBS_NO_MR: none. The loop's, while `mr` is being deregistered */
	} mem[VERBS_MEMS];
	struct verbs_lane *next;
};

/* What one end of a lane tells the other; CORE_BLOB bytes. */
struct verbs_blob {
	uint32_t qpn, psn;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu, link_layer; /* enum ibv_mtu */
	uint8_t rd_atomic;	 /* READs this end can answer at once */
	uint8_t epoch;		 /* of the device, its low byte: keys of another are not good here */
	uint8_t wants_word;	 /* the device does not tell the truth in rq_psn */
	uint8_t prefix;		 /* struct fabric */
	uint64_t word_at; /* the ledger word; 0: none */
	uint32_t word_rkey;
	uint32_t ud_qpn, ud_qkey; /* for datagrams; 0: none */
	uint8_t rail, nth, named; /* struct fabric_end */
	uint8_t pad;
};
_Static_assert(sizeof(struct verbs_blob) <= CORE_BLOB, "layout");

/* A region that a rank left, while it is destroyed. */
struct mr_job {
	struct work work; /* first */
	struct rail *rail;
	int cmd_fd;
	uint32_t driver, handle;
	struct mr_job *prev, *next;
};

/* The queue pair for datagrams of a rail, likewise. */
struct ud_job {
	struct work work; /* first */
	struct rail *rail;
	struct ud ud;
	uint32_t handle;
	struct ud_job *prev, *next;
};

/* A context, likewise, with all that was made of it and has no job of its own. */
struct closing {
	struct work work; /* first */
	struct rail *rail;
	struct ud ud;
	struct ibv_ah **ah;
	struct ibv_mr **mr;
	size_t ahs, mrs;
	struct ibv_cq *cq;
	unsigned cq_events;
	struct ibv_comp_channel *chan;
	struct ibv_pd *pd;
	struct ibv_context *ctx;
	struct ibv_gid_entry *gids;
	struct closing *prev, *next;
};

#define VERBS_LEFT_OUT 8u

struct verbs {
	struct config cfg;
	char left_out[VERBS_LEFT_OUT][160]; /* ports that are no rails, and why */
	unsigned left_out_n;
	unsigned peers; /* that the job may have */
	struct works *works;
	struct mr_job *mr_jobs;
	struct ud_job *ud_jobs;
	struct closing *closing; /* contexts, handed over by the next verbs_poll() */
	struct verbs_ops ops;
	struct rail rail[WIRE_RAILS_MAX];
	unsigned rails, offered; /* offered: of them, to peers */
	unsigned fds_version;
	int netlink; /* verbs_carrier.c; -1: none */
	struct verbs_target *targets;
	struct verbs_buf *bufs;
	struct verbs_lane *lanes;
	struct verbs_lane *closed; /* until their queue pairs are gone; freed by verbs_poll(), never in a callback */
	unsigned fencing;	   /* lanes to be settled */
	struct verbs_lane *by_qpn[WIRE_RAILS_MAX]; /* QP numbers are a device's own */
};

enum ibv_mtu verbs_mtu_enum(uint32_t bytes);
int verbs_rail_open(struct rail *r);
int verbs_pkey_index(const struct rail *r, const struct ibv_port_attr *port);
int verbs_rail_cq(struct rail *r, uint32_t more); /* makes room for entries of one more lane */
void verbs_rail_gone(struct rail *r, const char *detail);
/* 0: the peer's address is resolved, or nobody can tell. -EHOSTUNREACH: it does not answer (yet). */
int verbs_path_ready(struct rail *r, unsigned ifindex, const union ibv_gid *peer);
bool verbs_gid_v4(const union ibv_gid *g);
/* Reads the GID table into r->gids; the index of the one to use, or -errno. */
int verbs_gid_choose(struct rail *r, const struct ibv_port_attr *port, union ibv_gid *gid,
	uint32_t *type);
void verbs_lane_moved(struct verbs_lane *l, const struct ibv_port_attr *port);
void verbs_lane_broke(struct verbs_lane *l, enum core_reason why, const char *detail);
void verbs_lane_completion(struct verbs_lane *l, const struct ibv_wc *wc);
int verbs_lane_post(struct verbs_lane *l, struct ibv_send_wr *wr, uint64_t cookie);
bool verbs_rail_doubted(const struct rail *r);
int verbs_lane_word_make(struct verbs_lane *l); /* where the device may need it; 0 or -errno */
uint64_t verbs_lane_word_value(const struct verbs_lane *l);
void verbs_lane_offer_word(const struct verbs_lane *l, struct verbs_blob *b);
void verbs_lane_learn_word(struct verbs_lane *l, const struct verbs_blob *b);
bool verbs_lane_settled(const struct verbs_lane *l); /* a fence is complete, and not reported yet */
bool verbs_lane_settle(struct verbs_lane *l);	    /* ... and reports it */
void verbs_lane_free(struct verbs_lane *l);
void verbs_lane_unlist(struct verbs_lane *l); /* completions of its queue pair find nobody any more */
int verbs_lane_mem_register(struct verbs_lane *l, struct lane_mem *m, int access);
void verbs_lane_mem_free(struct lane_mem *m);
/*
 * verbs_reap.c: what is given back to the kernel, in order, by a thread of the rail. A lane's queue pair and
 * memory, of which the loop hears by `reaping`; datagrams; and the rest of a context.
 */
void verbs_reap_lane(struct verbs_lane *l);
void verbs_reap_ud(struct rail *r); /* also the way of its targets; r->ud is empty then */
void verbs_reap_context(struct rail *r); /* and the buffers' registrations; r->ctx is NULL then */
void verbs_reap_ah(struct rail *r, struct ibv_ah *ah);
void verbs_reap_mr(struct rail *r, uint32_t handle);
void verbs_reap_turn(struct verbs *v); /* what has gone */
bool verbs_reap_end(struct verbs *v);  /* false: something hangs in the kernel */
/* verbs_find.c: fills v->rail[] where the configuration names none. */
void verbs_find(struct verbs *v);
void verbs_rail_add(struct verbs *v, const char *device, uint32_t port, int gid, uint32_t type);
/* NULL, or why nothing of this device can be a rail: a word or two. */
const char *verbs_device_unfit(struct ibv_device *d);
/* What network the rail's GID is of. */
void verbs_fabric_learn(struct rail *r, uint8_t link_layer, const union ibv_gid *gid, unsigned ndev);
void verbs_lane_end(const struct verbs_lane *l, struct verbs_blob *b); /* what it says of its rail */
/* verbs_probe.c */
void verbs_ud_open(struct rail *r); /* without one there are no datagrams */
void verbs_ud_mend(struct rail *r);
void verbs_ud_completion(struct rail *r, const struct ibv_wc *wc);
/* verbs_carrier.c */
void verbs_carrier_open(struct verbs *v);
void verbs_carrier_read(struct verbs *v);
void verbs_carrier_close(struct verbs *v);
bool verbs_carrier_now(const struct rail *r); /* true where nobody can tell */
/* Calls fn for each interface that the kernel's message says something of. */
void verbs_carrier_parse(const void *msg, size_t len,
	void (*fn)(void *arg, unsigned ifindex, bool carrier), void *arg);
void verbs_rail_look(struct rail *r, const char *detail);
int verbs_buf_register(struct verbs_buf *b, unsigned r);

#endif
