/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim.h - nodes, networks and faults for the protocol, from one seed.
 *
 * world.c has time, chance and the run of a seed; nic.c RC queue pairs and sockets; node.c the
 * node that drives core/link.h as the daemon does, and the checks; rma.c puts and gets, key.c the regions
 * they go to and their keys; fault.c what breaks; restart.c daemons that die and come back.
 */
#ifndef RCS_SIM_H
#define RCS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/key.h"
#include "core/link.h"
#include "core/rma.h"

#define SIM_NODES 64
#define SIM_PAIRS 96
#define SIM_FEW_NODES 8 /* most seeds: a failure in one of these is easier to read */
#define SIM_FEW_PAIRS 6
#define SIM_ENDS  (2 * SIM_PAIRS)
#define SIM_RING  256u
#define SIM_SLACK 16u /* receives posted beyond depth, for unnumbered frames */
#define SIM_ASYNC 256u
#define US	  1000ull
#define MS	  1000000ull
#define SEC	  1000000000ull

#define SIM_RMA	  400u /* puts and gets of an end, at most */

enum sim_msg_type { SIM_DATA, SIM_ACK, SIM_CTRL, SIM_PUT, SIM_GET, SIM_WORD };
enum sim_lie { SIM_LIE_NONE, SIM_LIE_RANDOM, SIM_LIE_STUCK, SIM_LIE_AHEAD };
enum sim_rma_state { SIM_RMA_NONE, SIM_RMA_WAITS, SIM_RMA_MADE, SIM_RMA_FRAMED, SIM_RMA_ENDED };
enum sim_rma_how { SIM_RMA_OK, SIM_RMA_AMBIGUOUS, SIM_RMA_REFUSED };

/* Memory of an end, that the peer's requests go to. */
#define SIM_REGIONS 24u	  /* of an end, one after the other */
#define SIM_OPEN    4u	  /* at a time */
#define SIM_RECS    4096u /* records that wait for a frame */
#define SIM_ANN	    16u	  /* messages that were announced and are not over */
#define SIM_WORK    512u  /* puts as frames that are not executed yet */

enum sim_rec_type {
	SIM_REC_NONE,
	SIM_REC_ASK,
	SIM_REC_KEY,
	SIM_REC_REVOKE,
	SIM_REC_REVOKED,
	SIM_REC_RTS,
	SIM_REC_FIN,
	SIM_REC_PUT,
	SIM_REC_DONE,
};

struct sim_rec { /* in a frame */
	uint8_t type;
	bool ok;
	uint16_t region;
	uint32_t id, rkey;
	uint64_t addr, len, due;
};

enum sim_region_state { SIM_REGION_NONE, SIM_REGION_OPEN, SIM_REGION_CLOSING, SIM_REGION_CLOSED };

struct sim_region {
	uint8_t state;
	bool dead; /* its rank was killed */
	uint32_t rkey, messages;
	uint64_t base, len, until;
	struct core_export x;
	struct core_importer importer[1];
};

struct sim_import {
	struct core_import m;
	uint64_t base;
	uint32_t rkey;
};

struct sim_msg {
	uint8_t type;
	uint32_t gen;
	uint64_t at; /* earliest arrival */
	uint64_t seq, ack, limit, content; /* PUT, GET: seq is the request's number; WORD: what it writes */
	uint16_t piece;
	bool torn;	  /* frames: read while the slot's header was written for another lane */
	bool want_word;	  /* frames: the sender's device is known to lie */
	uint32_t packets; /* PUT, GET, WORD: that have not arrived */
	uint32_t rkey;	  /* PUT, GET */
	uint64_t addr;
	struct core_ctrl ctrl;
	uint32_t inc, to_inc; /* incarnation of the sender; DATA: of whom it was submitted for, 0: not known */
};

enum sim_qp_state {
	SIM_QP_NONE,
	SIM_QP_MADE,   /* not connected */
	SIM_QP_READY,
	SIM_QP_FENCING, /* being stopped; things may still happen */
	SIM_QP_DEAD,   /* stopped */
};

/* The local end of a lane: a queue pair, or a socket. */
struct sim_qp {
	uint8_t state;
	bool broken; /* the NIC gave it up, or the connection was reset */
	uint32_t gen, uid, remote;
	uint32_t depth;
	uint32_t rx; /* receives posted and not taken; the last of them is the marker */
	uint32_t qpn, remote_qpn; /* numbers come back as soon as a queue pair is destroyed */
	uint32_t snd, arr, cmp, done; /* posted, arrived there, acknowledged, told to the node */
	uint64_t last_arrival, good_at, late_until, xmit_at;
	uint32_t sq_psn, rq_psn; /* of the next packet; expected next */
	uint64_t word;		 /* here, that the peer writes */
	bool want_word;		 /* the peer said so */
	uint64_t last_seq;
	bool any_seq;
	struct sim_msg out[SIM_RING];
	uint32_t in_head, in_tail, in_data;
	struct sim_msg in[SIM_RING];
};

enum sim_async_type {
	SIM_AS_OPENED,
	SIM_AS_CONNECTED,
	SIM_AS_ERROR,
	SIM_AS_FENCED,
	SIM_AS_DEPTH,
	SIM_AS_RAIL,
	SIM_AS_ACCEPT,	  /* a TCP connection came in */
	SIM_AS_TCP_READY, /* ours was accepted */
	SIM_AS_WANT,
	SIM_AS_PROBE,	/* the peer's datagram came in; gen is its token */
	SIM_AS_PROBED,	/* ... and its answer */
};

struct sim_async {
	uint8_t type, lane, reason;
	uint32_t gen, uid, inc;
};

struct sim_end { /* one node's side of a pair */
	int id, node, peer;
	struct core_link link;
	struct sim_qp qp[CORE_LANES];
	uint64_t slot[CORE_SLOTS];
	uint32_t slot_inc[CORE_SLOTS];
	struct { /* the header that stands in it: of the last lane that it was sent on */
		uint32_t gen;
		uint64_t ack, limit;
	} slot_head[CORE_SLOTS];
	uint32_t epoch; /* events of an earlier one do not happen any more */
	uint64_t goal, app_at, app_gap;
	uint32_t app_burst;
	uint64_t submitted, delivered;
	uint64_t run_at;
	struct sim_async as[SIM_ASYNC];
	uint32_t as_n;
	bool trying; /* TCP connect under way */
	uint32_t try_gen, try_uid;
	bool depth_pending;
	/* checks */
	uint8_t last_lane;
	uint32_t last_gen;
	bool told_unreachable;
	uint64_t ctrls, failovers, deaths;
	uint32_t up_gen[CORE_LANES]; /* 0: was not up */
	/* one-sided requests to the peer */
	struct core_rma rma;
	uint32_t piece_id[CORE_PIECES];
	uint32_t rma_goal, rma_made, rma_ended;
	uint64_t rma_at;
	bool rma_get[SIM_RMA], rma_replay[SIM_RMA], rma_doubt[SIM_RMA]; /* doubt: may have run, said the peer */
	uint8_t rma_state[SIM_RMA], rma_runs[SIM_RMA];
	uint32_t rma_ran[SIM_RMA], rma_cover[SIM_RMA]; /* on this queue pair; a ledger write came behind it */
	uint16_t rma_region[SIM_RMA];
	uint8_t rma_how[SIM_RMA];
	bool rma_message[SIM_RMA]; /* announced; addr and rkey are its own */
	uint64_t rma_addr[SIM_RMA]; /* else: offset in the region */
	uint32_t rma_rkey[SIM_RMA], rma_len[SIM_RMA];
	uint32_t rma_wait[SIM_RMA], rma_wait_n; /* for a key, or a piece */
	struct sim_import imp[SIM_REGIONS];
	struct sim_rec ann[SIM_ANN];
	/* its own memory */
	struct sim_region reg[SIM_REGIONS];
	uint32_t reg_n, reg_goal, ann_out, no_rails;
	uint64_t reg_at;
	uint32_t rkey_free[SIM_REGIONS], rkey_free_n, rkey_next;
	struct sim_rec work[SIM_WORK];
	uint32_t work_head, work_tail;
	/* records on their way: queued, and in the frames of the slots */
	struct sim_rec rec[SIM_RECS], rec_sent[CORE_SLOTS];
	uint32_t rec_head, rec_tail;
};

enum sim_ev_type {
	SIM_EV_RUN,
	SIM_EV_XMIT,
	SIM_EV_COMPLETE,
	SIM_EV_ASYNC,
	SIM_EV_SYN,
	SIM_EV_FAULT,
	SIM_EV_HEAL,
	SIM_EV_FENCE_DONE,
};

struct sim_ev {
	uint64_t t, order;
	uint8_t type, lane;
	int16_t end;
	uint32_t gen, n, epoch;
	struct sim_async as;
};

struct sim {
	uint64_t seed, rng, now, order;
	bool verbose, failed;
	char why[256];
	struct core_cfg cfg;
	int nodes, pairs, ends;
	bool calm; /* nothing fails: nothing may die */
	bool lossy; /* packets are lost, and repaired by the NICs */
	unsigned int probe_loss; /* percent; 100: nobody has such queue pairs, or not any more */
	struct sim_end *end;
	uint64_t busy_until[SIM_NODES], down_until[SIM_NODES];
	uint32_t inc[SIM_NODES], incs; /* incarnations of their daemons */
	uint8_t rails[SIM_NODES];
	bool rails_told;	/* the handshake says how many the peer has */
	bool pauses;		/* loops stand still for long now and then */
	bool restarts;
	unsigned int post_fails; /* percent: receives cannot be posted */
	unsigned int ud_room;	/* datagrams that wait for a node at most */
	unsigned int probe_stuck; /* percent: probes that do not leave their node */
	uint32_t busy_odds;
	bool slow; /* nodes serve one lane at a time, the first that has something, and take long */
	bool honest;	/* every queue pair tells what it executed */
	uint8_t lie[SIM_NODES][CORE_LANES]; /* enum sim_lie: of rq_psn ... */
	uint64_t caught_at[SIM_NODES][CORE_LANES]; /* ... from when the self-test has failed */
	uint32_t reads; /* READs a lane takes */
	uint64_t bulk;	/* bytes of pieces a lane takes */
	uint32_t batch; /* frames a node takes from a lane at once */
	bool port[SIM_NODES][CORE_LANES]; /* a port that works */
	bool has[SIM_NODES][CORE_LANES];
	uint8_t cut[SIM_ENDS][CORE_LANES]; /* direction from this end: count of cuts */
	int cut_end; /* a direction that stays cut for ever (-1: none) ... */
	uint8_t cut_lane;
	uint64_t delay_max[CORE_LANES];
	uint64_t retry_ns; /* a NIC gives up after */
	uint64_t heal_at;
	uint32_t uid;
	uint64_t frames;
	/* topologies of all seeds: of so many rails, the largest */
	uint64_t drawn[CORE_RAILS_MAX + 1], unequal, restarted, grow_failed, markers, rewritten;
	int most_nodes, most_pairs;
	struct sim_ev *heap;
	uint32_t heap_n, heap_cap;
};

/* world.c */
uint64_t sim_rand(struct sim *s);
uint64_t sim_below(struct sim *s, uint64_t n); /* 0..n-1; 0 for n 0 */
bool sim_chance(struct sim *s, unsigned int percent);
void sim_at(struct sim *s, uint64_t t, struct sim_ev ev);
void sim_async_at(struct sim *s, struct sim_end *e, uint64_t t, struct sim_async as);
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *s, const struct sim_end *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool sim_seed(struct sim *s, uint64_t seed);

/* nic.c */
bool sim_path(const struct sim *s, const struct sim_end *from, uint8_t lane);
void sim_qp_make(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t gen, uint32_t uid);
void sim_qp_receives(struct sim_qp *q, uint32_t depth); /* posts what is missing */
void sim_qp_post(struct sim *s, struct sim_end *e, uint8_t lane, struct sim_msg m);
void sim_qp_service(struct sim *s, struct sim_end *e, uint8_t lane);
void sim_qp_acked(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t n);
void sim_qp_break(struct sim *s, struct sim_end *e, uint8_t lane, enum core_reason why,
	uint64_t delay);
void sim_probe(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t token, bool answer);
void sim_tcp_connect(struct sim *s, struct sim_end *e, uint32_t gen);
void sim_tcp_syn(struct sim *s, struct sim_end *e, uint32_t gen, uint32_t uid);

/* node.c */
uint64_t sim_content(int src, int dst, uint64_t seq);
void sim_node_wake(struct sim *s, struct sim_end *e, uint64_t t);
void sim_node_run(struct sim *s, struct sim_end *e);

/* rma.c */
uint32_t sim_rma_psn0(uint32_t uid); /* first PSN of a queue pair */
bool sim_rma_caught(const struct sim *s, int node, uint8_t lane); /* its self-test has failed */
void sim_rma_run(struct sim *s, struct sim_end *e, uint8_t lane, const struct sim_msg *m);
void sim_rma_done(struct sim *s, struct sim_end *e, const struct sim_msg *m, bool flushed);
void sim_rma_fenced(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t gen);
void sim_rma_report(struct sim *s, struct sim_end *e, const struct core_act *a);
uint64_t sim_rma_pump(struct sim *s, struct sim_end *e);
void sim_rma_check(struct sim *s, const struct sim_end *e);

/* restart.c */
void sim_restart(struct sim *s, int node);
void sim_restarted(struct sim *s, struct sim_end *e); /* the machine says so of e's peer */

/* key.c */
void sim_key_setup(struct sim *s, struct sim_end *e);
void sim_key_send(struct sim *s, struct sim_end *e, struct sim_rec r);
uint32_t sim_key_waiting(const struct sim_end *e); /* records without a frame */
void sim_key_frame(struct sim_end *e, uint64_t seq); /* the frame takes the next record */
void sim_key_take(struct sim *s, struct sim_end *e, uint64_t seq); /* ... and was delivered to e */
void sim_key_touch(struct sim *s, struct sim_end *e, const struct sim_msg *m); /* a packet at e's peer */
void sim_key_rail(struct sim *s, struct sim_end *e, uint8_t lane, uint8_t reason); /* its port changed */
bool sim_key_offer(struct sim *s, struct sim_end *e, uint16_t *region); /* one of e's, for a request of its peer */
uint64_t sim_key_pump(struct sim *s, struct sim_end *e);
void sim_key_anew(struct sim *s, struct sim_end *e, bool itself); /* another daemon is there: e's, or its peer's */
bool sim_key_done(const struct sim *s, const struct sim_end *e);
void sim_key_check(struct sim *s, const struct sim_end *e);
/* rma.c, called by key.c */
void sim_rma_framed(struct sim *s, struct sim_end *e, uint32_t id, bool ok); /* DONE has come */
void sim_rma_executed(struct sim *s, struct sim_end *e, uint32_t id);

/* fault.c */
void sim_fault_start(struct sim *s);
void sim_fault(struct sim *s);
void sim_fault_heal(struct sim *s, const struct sim_ev *ev);
void sim_fault_end(struct sim *s);

#endif
