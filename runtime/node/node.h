/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the daemon's objects. One process a job and node, one thread; nothing here is locked.
 *
 *	node ---- chan[]   one an attached endpoint: two rings, a socket         (chan.c, ctl.c)
 *	     ---- link[]   one a peer node in contact: core machine, slots, lanes (link.c)
 *	              ---- tcp      connection of the management network          (tcp.c)
 *	              ---- rdma[]   RC queue pairs                                (link.c, verbs.c)
 *	              ---- gets     RDMA READs that ranks asked for               (get.c)
 *	     ---- regions  memory of ranks; imports: keys that passed by          (region.c)
 *	     ---- table    what ranks and tools may read
 */
#ifndef RCS_NODE_NODE_H
#define RCS_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uthash.h>

#include "config/config.h"
#include "core/link.h"
#include "node/evlog.h"
#include "node/verbs.h"
#include "shm/channel.h"
#include "wire/frame.h"
#include "wire/record.h"

#define NODE_EP_DAEMON 0xffffu /* dst_ep of records for a daemon itself */
#define NODE_CHANS_MAX 1024u
#define NODE_NONE      0xffffffffu

/* Cookies of requests on verbs lanes: what they are, and a number below. */
#define NODE_COOKIE_KIND  (3ull << 62)
#define NODE_COOKIE_DATA  (0ull << 62) /* a DATA frame; its session number */
#define NODE_COOKIE_OTHER (1ull << 62) /* an unnumbered frame */
#define NODE_COOKIE_READ  (2ull << 62) /* get.c */

struct node;
struct chan;
struct link;
struct tcp_conn;
struct get;

/* What epoll's data points to; the first member of whatever is watched. */
struct watch {
	void (*ready)(struct node *n, struct watch *w, uint32_t events);
	int fd;
};

struct node_opts {
	uint32_t job, restart, self, nodes;
	char **names; /* nodes of them */
	uid_t uid;
	gid_t gid;
	const char *run_dir;
	int token_fd, ready_fd;
	int rails; /* -1: as configured */
	const char *config, *log_dir;
};

struct region {
	uint32_t gen;
	bool used, linger; /* linger: owner is gone, peers may still read */
	struct chan *owner;
	uint64_t addr, len;
	uint32_t ok; /* bit r */
	uint32_t mr_handle[WIRE_RAILS_MAX], lkey[WIRE_RAILS_MAX], rkey[WIRE_RAILS_MAX];
	uint32_t epoch[WIRE_RAILS_MAX]; /* verbs_rail_epoch when registered */
	uint32_t gets;			/* local gets that write into it */
	uint64_t linger_until;
};

/* A remote key seen in an RTS. */
struct import {
	struct import_key {
		uint32_t node, region, gen, ep;
	} key;
	uint64_t addr, len;
	uint32_t ok, rkey[WIRE_RAILS_MAX];
	UT_hash_handle hh;
};

/* (node, ep, epoch) that a channel was told to be gone. */
struct gone {
	struct gone_key {
		uint32_t node, ep, epoch;
	} key;
	UT_hash_handle hh;
};

enum chan_kind { CHAN_NEW, CHAN_RANK, CHAN_MONITOR };

struct chan {
	struct watch sock; /* first */
	struct watch bell; /* eventfd by which the rank wakes us */
	enum chan_kind kind;
	uint16_t slot;
	uint32_t epoch;
	uint32_t step, rank, pid;
	int memfd, rank_bell;
	size_t size;
	struct shm_channel *shm;
	struct shm_ring tx, rx; /* we consume tx and produce rx */
	bool closing;	 /* socket ended; what was submitted is still taken */
	bool bye;	 /* closed in good order */
	bool dirty;	 /* rx has unpublished records */
	bool stalled;	 /* head of tx waits for room on a link */
	bool broken;
	uint64_t events_end[SHM_EVENTS_MAX]; /* ring positions behind events in the rx ring */
	uint32_t events_n, events_lost;
	uint64_t msgs_in, msgs_out;
	struct gone *gone;
	uint32_t gets;	    /* outstanding */
	bool lend_waits;	    /* a loan was asked for while another was out */
	struct shm_lend lend;
	uint64_t eager_deadline; /* SHM_MSG_EAGER with last: answer by then; 0: none pending */
	struct chan *next;	 /* list of all */
};

struct tcp_lane {
	struct tcp_conn *conn; /* established, NULL: none */
	struct tcp_conn *trying; /* own attempt */
	uint32_t gen;
};

struct link {
	struct node *n;
	uint32_t peer;
	struct core_link core;
	struct verbs_buf *vbuf; /* slots, with verbs */
	uint8_t *slots;		/* CORE_SLOTS * WIRE_FRAME_MAX */
	uint32_t open_len;	/* payload bytes of the frame being filled: slot of core.next */
	uint8_t *backlog;	/* records that found no slot: [head, tail) of cap */
	size_t bl_head, bl_tail, bl_cap;
	struct verbs_lane *rdma[CORE_RAILS_MAX];
	uint32_t rdma_gen[CORE_RAILS_MAX];
	struct tcp_lane tcp;
	struct sockaddr_storage addr; /* of the peer's daemon; ss_family 0: not known */
	bool dirty; /* core wants polling */
	uint64_t deadline;
	struct get *gets;
	uint32_t reads; /* outstanding on the current read lane */
	uint32_t rail_told; /* bit lane: RAIL_FAILED was raised by this link, RAIL_BACK not yet */
	uint64_t resent, tx_frames, rx_frames;
	uint32_t failovers;
	struct link *next; /* list of all */
};

struct node {
	struct node_opts o;
	struct config cfg;
	uint8_t token[32];
	int epfd;
	bool stop;
	const char *stop_why;
	uint64_t now; /* CLOCK_MONOTONIC ns, once a turn */
	struct verbs *vb;
	char verbs_why[256];
	unsigned rails;
	struct shm_table *table;
	int table_fd;
	size_t table_size;
	struct watch ctl; /* the Unix socket */
	struct watch tcp; /* listener */
	uint16_t tcp_port;
	struct wire_addr addr; /* own: ep and epoch 0 */
	struct chan *chans;
	struct chan *slot[NODE_CHANS_MAX];
	uint32_t next_epoch;
	uint32_t rank_chans;
	int lock_fd;
	struct link **link; /* [nodes] */
	struct link *links;
	struct tcp_conn *unauth; /* connections that have not proven the token yet */
	struct region **regions;
	uint32_t regions_n;
	struct import *imports;
	struct chan *lent_to;	/* uverbs fds are out on loan */
	struct evlog log;
	uint64_t read_bytes; /* that RDMA READs brought */
	uint64_t event_seq;
	uint32_t rail_told; /* bit r: RAIL_FAILED was raised for it and RAIL_BACK not yet */
	uint64_t failovers, replayed, blackout_max;
	uint64_t started_at, tick_at;
	bool work; /* something happened in this turn */
};

uint64_t node_clock(void);
uint64_t node_utc(void);
int node_watch(struct node *n, struct watch *w, uint32_t events);
void node_rewatch(struct node *n, struct watch *w, uint32_t events);
void node_unwatch(struct node *n, struct watch *w); /* and closes the fd */
/* Waits for events until `until` (node_clock) and handles them; sets n->now. */
void node_wait(struct node *n, uint64_t until);
void node_log(struct node *n, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* chan.c: rings */
int chan_make(struct node *n, struct chan *c, const struct shm_attach *a, char *why);
void chan_close(struct node *n, struct chan *c, const char *why);
bool chan_poll(struct node *n, struct chan *c); /* takes records from tx; true: did something */
/* Copies a record into c's receive ring; false: no room, the channel is broken now. */
bool chan_put(struct node *n, struct chan *c, const struct wire_rec *r, const void *payload);
void chan_flush(struct node *n); /* publishes and wakes */
int chan_arm(struct node *n);	 /* 1: something to do after all */
/* A record for this node, from a link or from a local rank. */
void chan_deliver(struct node *n, const struct wire_rec *r, const void *payload);
struct chan *chan_find(struct node *n, uint16_t slot, uint32_t epoch);
void chan_reap(struct node *n);

/* ctl.c: the socket */
int ctl_open(struct node *n, char *why);
void ctl_close(struct node *n);
void ctl_answer(struct chan *c, const void *msg, size_t len, const int *fds, unsigned nfds);
void ctl_eager_check(struct node *n);
void ctl_loan_over(struct node *n); /* the next who waits for a loan gets it */

/* link.c */
struct link *link_get(struct node *n, uint32_t peer); /* makes it; NULL: no memory */
void link_learn(struct link *l, const struct wire_addr *a);
/* Takes a record for the peer. 0, or -EAGAIN: no room, ask again later. */
int link_append(struct link *l, const struct wire_rec *r, const void *payload);
void link_turn(struct node *n);	 /* sends what may be sent; sets deadlines */
void link_dirty(struct link *l);
void link_rail(struct node *n, unsigned rail, bool ok, enum core_reason why);
void link_frame(struct link *l, uint8_t lane, uint32_t gen, const struct wire_frame *f,
	const uint8_t *payload);
uint8_t link_read_lane(struct link *l); /* verbs lane for READs now, or CORE_LANE_NONE */
void link_free(struct link *l);
extern const struct verbs_ops link_verbs_ops;

/* tcp.c */
int tcp_listen(struct node *n, char *why);
void tcp_connect(struct link *l);  /* answers by core_link_lane_up or _error */
void tcp_drop(struct link *l);	   /* closes the established connection */
bool tcp_can_send(struct link *l);
int tcp_send(struct link *l, const void *frame, size_t len);
void tcp_tick(struct node *n);
void tcp_close_all(struct node *n);

/* region.c */
struct region *region_find(struct node *n, const struct chan *owner, struct wire_key k);
int region_new(struct node *n, struct chan *c, uint64_t addr, uint64_t len, struct wire_key *k);
void region_registered(struct node *n, struct region *r, const struct shm_reg *reg);
void region_drop(struct node *n, struct region *r);
void region_drop_all(struct node *n, struct chan *c);
void region_sweep(struct node *n);
void region_fill_rts(struct node *n, struct chan *c, struct wire_rts *rts, uint64_t len);
void region_import(struct node *n, const struct wire_rec *r, const struct wire_rts *rts);
void region_tick(struct node *n);

/* get.c */
void get_start(struct node *n, struct chan *c, const struct wire_rec *r, const struct wire_get *g);
void get_pump(struct link *l);
void get_done(struct link *l, uint64_t cookie, enum verbs_done how, const char *detail);
void get_chan_gone(struct node *n, struct chan *c);

/* event.c */
void event_raise(struct node *n, struct shm_event *ev); /* to ranks here and daemons elsewhere */
void event_receive(struct node *n, const struct shm_event *ev);
void event_tell(struct node *n, struct chan *c, const struct shm_event *ev);

/* status.c */
char *status_json(struct node *n); /* malloc'd */

#endif
