/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lib.h - the objects of librcshare.
 *
 *	rcs_ctx -- rcs_ep -- chan: rings and socket of the daemon     (attach.c)
 *	        |         -- rcs_peer: credits, lists of requests     (peer.c, credit.c)
 *	        |         -- posted receives, unexpected messages     (match.c)
 *	        -- rcs_cq, rcs_cntr                                   (cq.c)
 *	        -- op: one request, from post to completion   (op.c, send.c, recv.c, large.c, rma.c)
 *	        -- rcs_region, with a registration an endpoint        (region.c, reg.c, access.c)
 *
 * One lock a context guards all of it. Functions named cl_* expect it held unless they say otherwise.
 */
#ifndef RCS_CLIENT_LIB_H
#define RCS_CLIENT_LIB_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM 1 /* a library does not end its process */
#include <uthash.h>
#include <utlist.h>

#include "client/index.h"
#include "pmix/pmix.h"
#include "rcshare.h"
#include "shm/channel.h"
#include "shm/ring.h"
#include "wire/record.h"

#define CL_IOV_MAX	  8u
#define CL_EVENT_ROOM	  512u		   /* bytes: the longest struct rcs_event a program may have */
#define CL_SENDS_MAX	  65536u	   /* sends of a context that are not complete */
#define CL_UNEXP_CAP	  (64ull << 20)	   /* bytes of unexpected messages before credit is held */
#define CL_CREDIT_MIN	  256u		   /* what any endpoint grants from the start */
#define CL_ANSWER	  64u		   /* bytes an answer takes in the receive ring */
#define CL_PEER_ANSWERS	  3u		   /* two CREDIT and a GONE may come from a peer unasked */
#define CL_CQ_DEPTH	  UINT32_MAX
#define CL_SLEEP_NS	  1000000000ull /* then the daemon is looked at */
#define CL_STILL_NS	  2000000ull	/* no bell tells that a rank may act again */
#define CL_RTS_CHARGE	  WIRE_REC_SPACE(sizeof(struct wire_rts))

struct cl_op;
struct cl_unexp;

/* --- the channel of an endpoint ---------------------------------------------------------------- */

struct cl_chan {
	int sock, daemon_bell, rank_bell; /* -1: none */
	struct shm_channel *shm;
	size_t shm_size;
	const struct shm_table *table;
	size_t table_size;
	struct shm_ring tx, rx;
	/* copied from shm and checked once: the page is the daemon's to write */
	uint32_t eager_max, zcopy_min, credit0, nodes, node;
	uint64_t rx_credit, answers_max;
	struct wire_addr addr;
	uint32_t owed; /* answers on the socket that nobody waits for (DEREG) */
	bool silent;   /* an answer did not come in time; nobody waits again until one has come, or the lease is another */
	uint64_t silent_until; /* what until_ns was then */
	bool dead; /* the endpoint is lost: nobody answers */
	bool left;  /* it was told that the channel ends */
	bool ended; /* the daemon has let go of the channel, or is no more */
};

/* --- registrations ----------------------------------------------------------------------------- */

struct cl_reg {
	struct wire_key key;
	bool rdma; /* registered with a device; else only a name */
	bool readonly; /* may be fetched from, not into */
};

struct cl_ep_reg {
	struct cl_ep_reg *next;
	rcs_ep *ep; /* NULL: of ctx->spare */
	struct cl_reg reg;
	uint32_t epoch[WIRE_RAILS_MAX]; /* of the table: the device that it was registered with, by rail */
	bool home;	/* rcs_alloc: the daemon maps the memory for this channel */
	bool exported;	/* others have its key */
	int ending;	/* its endpoint is closed, and this socket ends when the daemon has let go of the channel */
};

struct rcs_region {
	rcs_ctx *ctx;
	uint8_t *addr;
	size_t len;
	bool alloced;
	uint32_t uses;	       /* requests under way */
	struct cl_ep_reg *regs; /* one an endpoint that used it */
	struct cl_ep_reg *ended; /* those of closed endpoints by which others may still reach the memory */
	rcs_region *prev, *next;
};

/* --- requests ---------------------------------------------------------------------------------- */

enum cl_op_state {
	CL_FREE = 0,
	/* sends */
	CL_PENDING,   /* in peer->pending: no credit, no room, or others are before it */
	CL_DELIVERY,  /* in peer->waiting: sent, DELIVERED is to come */
	CL_RTS,	      /* in peer->waiting: RTS sent; CTS or FIN is to come */
	CL_PUSHING,   /* in peer->pushing */
	CL_PUSHED,    /* in peer->waiting: all pieces sent, FIN is to come */
	/* one-sided */
	CL_RMA_WAIT,  /* in peer->rma, from peer->rma_next on: no room, no answers, a busy link */
	CL_RMA,	      /* in peer->rma: submitted, RMA_DONE or RDONE is to come */
	CL_FLUSH,     /* in flushes of the peer, or of the endpoint: waits for op->left others */
	/* receives */
	CL_POSTED,    /* in ep->exact, or ep->posted with ignored bits */
	CL_FETCH,     /* in ep->fetchq: matched an RTS, cannot start yet */
	CL_GETTING,   /* in peer->fetching: GET_DONE is to come */
	CL_PULLING,   /* in peer->fetching: CTS sent, PUSH is to come */
};

struct cl_rma {
	struct wire_key key;
	uint64_t off;
	uint64_t operand, compare, *result; /* atomic */
	uint8_t op, size;
};

struct cl_op {
	struct cl_op *prev, *next;
	rcs_ep *ep;
	rcs_peer *peer; /* receive: NULL until matched, if from any */
	uint32_t idx, gen;
	uint32_t state;	 /* enum cl_op_state */
	uint32_t kind;	 /* enum rcs_op */
	uint32_t flags;	 /* RCS_SEND_*, RCS_QUIET, RCS_PUT_* */
	bool send;	 /* all but receives */
	bool note;	 /* a put's notification: nobody hears how it ends */
	bool inject;	 /* no completion, copy is the message */
	bool canceling;
	bool cancelable; /* in ctx->cancel */
	bool no_get;	 /* receive: RDMA was tried or is not possible */
	bool source_gone; /* receive: its message's buffer is no more */
	bool has_data;
	uint32_t answers; /* reserved in the receive ring */
	uint32_t iov_n;
	struct iovec iov[CL_IOV_MAX];
	void *context, *copy;
	uint64_t tag, data, ignore;
	uint64_t seq;	  /* order of posting */
	uint64_t len;	  /* send: of the message; receive: of the buffer */
	uint64_t msg_len; /* receive: of the matched message */
	uint64_t off, end; /* pushed: from here to there */
	uint64_t remote;  /* the other side's op */
	rcs_region *region;
	struct cl_reg reg; /* library-made for this operation; region 0: none */
	struct cl_link exact, cancel; /* match.c, cancel.c */
	struct cl_op *pair; /* a put and its notification, while both are there; else NULL */
	uint32_t left;	    /* flush: requests before it that have not ended */
	union {
		struct wire_rts rts;
		struct cl_rma rma;
	};
};

/* --- peers ------------------------------------------------------------------------------------- */

struct cl_peer_key {
	uint32_t node, ep, epoch;
};

struct rcs_peer {
	struct cl_peer_key key;
	UT_hash_handle hh;
	rcs_ep *ep;
	bool inserted, has_addr;
	bool met;   /* something was sent: answers are reserved */
	bool active; /* in ep->active */
	bool push_turn;
	bool short_of_credit; /* what the head of pending waits for */
	bool hold; /* it takes nothing but pieces of what was matched, now */
	bool hold_told; /* ... from us: we do */
	int gone;   /* status requests end with; 0: alive */
	uint64_t asked; /* whether it is there: `ended` of its node at that time and 1, 0: never */
	uint32_t posted_n; /* receives in ep->posted that are from it alone */
	rcs_peer *nnext;   /* of the same node */
	uint32_t daemon; /* of its node (struct shm_node), when it was met */
	uint32_t rank;
	void *context;
	struct wire_addr addr;
	/* sending: bytes of charged records */
	uint64_t sent, limit;
	uint32_t win;
	/* receiving */
	uint64_t consumed, told, held;
	uint32_t rx_win;
	uint64_t credit_at;
	uint32_t pulls; /* receives being pushed to us */
	struct cl_op *pending, *waiting, *pushing, *fetching;
	struct cl_op *rma, *rma_next, *flushes; /* rma.c */
	uint32_t rma_n, notes_n; /* notifications that have not left */
	rcs_peer *aprev, *anext;
};

/* An unexpected message; also what a claim is. */
struct rcs_claim {
	rcs_claim *prev, *next;
	rcs_ep *ep;
	rcs_peer *peer;
	bool large, has_data;
	bool claimed;	  /* in ep->claimed, else in ep->unexp */
	bool source_gone; /* claimed; its buffer is no more */
	uint64_t tag, data, len, remote, charge;
	struct cl_link exact, tagged, announced; /* match.c */
	struct wire_rts rts;
	uint8_t payload[];
};

/* Control record that found no room in the submission ring. */
struct cl_ctl {
	struct cl_ctl *next;
	struct wire_rec rec;
	uint8_t payload[64];
};

/* What an endpoint knows of a node. */
struct cl_node {
	bool named; /* its daemon's address was told */
	uint32_t ended; /* of the table, when its peers were last asked whether they are there */
	uint32_t daemons; /* of the table, when its peers were last looked at */
	rcs_peer *peers;
};

struct rcs_ep {
	rcs_ctx *ctx;
	rcs_ep *prev, *next;
	struct cl_chan ch;
	uint32_t serial;
	rcs_cq *tx_cq, *rx_cq;
	rcs_cntr *tx_cntr, *rx_cntr;
	int dying; /* out of memory for what must be sent: lost at the next progress */
	int lost; /* status every request ends with; 0: attached */
	bool ending; /* lost, and the daemon may still be at our memory: what it was asked for has not ended */
	rcs_peer *peers, *last_peer, *active;
	struct cl_node *node; /* [nodes] */
	uint32_t ended; /* of the table, when last looked at */
	volatile uint64_t cookie; /* wire_rts; 0: what was announced is no more */
	struct cl_op *posted, *fetchq; /* posted: whose tag has ignored bits */
	struct cl_index exact; /* posted: by source (NULL: any) and tag */
	struct cl_index unexp_exact, unexp_tagged; /* of unexp, by source and tag, by tag */
	struct cl_index announced; /* large ones of unexp and claimed, by source and its op */
	struct cl_op *flushes; /* of all peers */
	uint32_t rma_n, notes_n, injects_n; /* ... not left either */
	rcs_claim *unexp, *claimed;
	uint64_t unexp_bytes;
	struct cl_ctl *ctl, **ctl_tail;
	struct wire_rec access; /* what the daemon asked to read, until there is room; type 0: nothing */
	uint64_t answers; /* reserved now */
	uint64_t windows; /* of all peers: what they may have on the way to us */
	uint32_t holds_n; /* peers that were told to send nothing but pieces */
	bool tx_dirty, kick;
	bool blocked; /* something waits for what no record will tell: ring room, a busy link */
	bool copying; /* a piece of a message of this node was copied, and the next one may be */
	uint32_t idle;
	uint64_t checked_at;
};

/* --- completion -------------------------------------------------------------------------------- */

struct rcs_cq {
	rcs_ctx *ctx;
	rcs_cq *prev, *next;
	struct rcs_completion *ring;
	uint32_t cap, depth, head, count, reserved;
	uint32_t waiters;
	bool armed; /* by rcs_cq_arm */
	int efd, epfd;
};

struct rcs_cntr {
	rcs_ctx *ctx;
	rcs_cntr *prev, *next;
	uint64_t ok, errors;
	uint64_t told_ok, told_errors; /* when the rank was last allowed to act */
};

struct cl_event {
	struct cl_event *next;
	struct rcs_event ev;
	uint8_t later[CL_EVENT_ROOM - sizeof(struct rcs_event)]; /* 0: fields of a program that is newer */
	char host[64], reason[64], peer_host[64];
};

struct rcs_ctx {
	pthread_mutex_t lock;
	_Atomic uint32_t wanted;  /* threads that wait for the lock to enter */
	_Atomic uint32_t entered; /* by such threads */
	bool held_long; /* a piece was copied since it was taken: it is given away before it is taken again */
	rcs_ctx *lib_next; /* list of all, for fork */
	uint32_t fork_gen;
	uint32_t flags, rank, nranks;
	uint32_t job, restart, step, local_ranks;
	char *socket;
	struct rcs_pmix pmix;
	rcs_ep *eps;
	struct cl_chan place; /* of a step with spares; sock -1: there are none */
	uint32_t incarnation;
	struct cl_chan spare; /* attached in rcs_init, taken by the first rcs_ep_open */
	uint32_t nodes, node;
	struct rcs_limits limits;
	rcs_cq *cqs;
	rcs_cntr *cntrs;
	rcs_region *regions;
	uint32_t ep_serial;
	bool eager_done;
	/* requests: chunks of 256, never moved */
	struct cl_op **chunk;
	uint32_t chunks, sends_n, recvs_n;
	struct cl_op *free_ops;
	struct cl_index cancel; /* by endpoint and context */
	uint64_t op_seq;
	/* events */
	rcs_event_fn event_fn;
	void *event_arg;
	struct cl_event *evq, **evq_tail;
	uint64_t *event_seq; /* [nodes] last seen of an origin */
	bool telling; /* a thread is calling event_fn */
	bool look_at_rails; /* exported regions may lack a device that a rail has now */
	bool lost_told, memlock_warned;
	/* sleeping */
	int epfd;
	uint32_t sleepers; /* that the bells are to wake */
	bool helper_armed; /* the helper is one of them */
	uint64_t polls;	   /* calls of the user that made progress */
	uint64_t work; /* grows with each record taken or sent */
	bool few_cpus;
	pthread_t helper;
	bool helper_on, helper_stop;
	int helper_efd;
	uint32_t pid;
};

/* --- status.c ---------------------------------------------------------------------------------- */
int cl_fail(struct rcs_error *err, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* --- ctx.c, fork.c ----------------------------------------------------------------------------- */
/* Takes the lock; RCS_ERR_FORKED in a child. cl_leave runs event callbacks after giving it back. */
int cl_enter(rcs_ctx *ctx);
void cl_leave(rcs_ctx *ctx);
uint64_t cl_now(void); /* CLOCK_MONOTONIC ns */
void cl_yield(void);
extern volatile uint32_t cl_fork_gen;
void cl_fork_add(rcs_ctx *ctx);
void cl_fork_del(rcs_ctx *ctx);
int cl_helper_start(rcs_ctx *ctx);
void cl_helper_stop(rcs_ctx *ctx); /* without the lock */

/* --- attach.c ---------------------------------------------------------------------------------- */
int cl_chan_open(rcs_ctx *ctx, uint64_t rx_size, struct cl_chan *ch, struct rcs_error *err);
void cl_chan_close(struct cl_chan *ch);
/* One request and its answer. 0, or -errno with the daemon's sentence in answer. fds may be NULL. */
int cl_chan_ask(struct cl_chan *ch, void *req, size_t req_len, void *answer, size_t answer_len,
	int *fds, unsigned *nfds);
/* ... which may take any time: wait returns when there is something to read. */
int cl_chan_ask_long(struct cl_chan *ch, void *req, size_t req_len, void *answer, size_t answer_len,
	void (*wait)(const struct cl_chan *));
/* A connection alone. */
int cl_chan_connect(rcs_ctx *ctx, struct cl_chan *ch, struct rcs_error *err);
int cl_chan_tell(struct cl_chan *ch, void *req, size_t req_len); /* the answer is of no interest */
/* Tells the daemon that the channel ends: it lets go, and closes its end of the socket. */
void cl_chan_leave(struct cl_chan *ch);
bool cl_chan_end_wait(struct cl_chan *ch); /* ... within a second? Anybody may call, without the lock too */
bool cl_chan_lost(struct cl_chan *ch); /* the daemon's end of the socket is closed */
void cl_msg_init(struct shm_msg *m, uint32_t type);

/* --- place.c: steps with spares ---------------------------------------------------------------- */
/* Sets rank, nranks, incarnation. Waits on a spare; RCS_NOT_NEEDED with that. Without the lock. */
int cl_place(rcs_ctx *ctx, struct rcs_error *err);
/* The process that has the rank now; the same number without spares. Without the lock. */
int cl_where(rcs_ctx *ctx, uint32_t rank, uint32_t *task, struct rcs_error *err);

/* --- op.c -------------------------------------------------------------------------------------- */
struct cl_op *cl_op_new(rcs_ep *ep, const struct rcs_msg *m, uint64_t len, bool send); /* NULL: AGAIN */
void cl_op_free(struct cl_op *op);
static inline uint64_t cl_op_id(const struct cl_op *op)
{
	return (uint64_t)op->gen << 32 | op->idx;
}
struct cl_op *cl_op_find(rcs_ep *ep, uint64_t id);
bool cl_op_reserve(struct cl_op *op, uint32_t n, bool fetch); /* answers */
void cl_op_answered(struct cl_op *op, uint32_t n);
void cl_op_unlink(struct cl_op *op); /* from the list its state names */
void cl_op_end_send(struct cl_op *op, int status);
void cl_op_end_recv(struct cl_op *op, int status);
int64_t cl_iov_len(const struct iovec *iov, uint32_t n);
void cl_iov_put(const struct iovec *iov, uint32_t n, uint64_t off, const void *from, uint64_t len);
void cl_iov_get(const struct iovec *iov, uint32_t n, uint64_t off, void *to, uint64_t len);
int cl_msg_check(rcs_ep *ep, const struct rcs_msg *m, uint64_t *len);

/* --- abi.c ------------------------------------------------------------------------------------- */

/* Bytes of a struct in the first release, by its last field there. No program has less. */
#define CL_FIRST(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))
#define CL_INIT_OPTS_FIRST  CL_FIRST(rcs_init_opts, socket)
#define CL_EP_OPTS_FIRST    CL_FIRST(rcs_ep_opts, rx_size)
#define CL_MSG_FIRST	    CL_FIRST(rcs_msg, context)
#define CL_RMA_FIRST	    CL_FIRST(rcs_rma, context)
#define CL_ATOMIC_FIRST	    CL_FIRST(rcs_atomic, context)
#define CL_COMPLETION_FIRST CL_FIRST(rcs_completion, source_rank)
#define CL_PEER_INFO_FIRST  CL_FIRST(rcs_peer_info, host)
#define CL_LIMITS_FIRST	    CL_FIRST(rcs_limits, iov_max)
#define CL_EVENT_FIRST	    CL_FIRST(rcs_event, missed)

/*
 * A struct of the program's, `size` bytes where it was built, as this library knows it: itself, or *own
 * filled: what the program does not have is 0. NULL: it is NULL or less than `first`, or it asks for something
 * that this library does not know. Without the lock.
 */
const void *cl_struct_convert(const void *theirs, size_t size, void *own, size_t own_size, size_t first);
static inline const void *cl_struct_take(const void *theirs, size_t size, void *own, size_t own_size,
	size_t first)
{
	return size == own_size ? theirs : cl_struct_convert(theirs, size, own, own_size, first);
}
/* The other way: the program gets what it has room for, and 0 for what this library does not know. */
void cl_struct_give(void *theirs, size_t size, const void *own, size_t own_size);

/* --- cancel.c ---------------------------------------------------------------------------------- */
void cl_cancel_add(struct cl_op *op);
void cl_cancel_forget(struct cl_op *op);

/* --- cq.c -------------------------------------------------------------------------------------- */
bool cl_cq_room(rcs_cq *cq, bool send); /* for one more; false also without memory for it */
void cl_cq_push(rcs_cq *cq, const struct rcs_completion *c);
int cl_arm(rcs_ctx *ctx); /* 1: something to do after all */
/* What waits for room or a link is tried once more, and the daemon rings when it has either. true: some went. */
bool cl_ep_unblocked(rcs_ep *ep);
void cl_polled(rcs_ctx *ctx); /* the user makes progress himself: the helper leaves it to him */
void cl_poll(struct pollfd *p, unsigned n, uint64_t ns);

/* --- lease.c ------------------------------------------------------------------------------------ */
bool cl_ep_acts(const rcs_ep *ep); /* the endpoint is not lost */
bool cl_chan_lapsed(const struct cl_chan *ch, uint64_t *until); /* it had time to act, and that is over */

/* --- device.c ---------------------------------------------------------------------------------- */
bool cl_memory_is_a_device_s(const void *p);
bool cl_acts(const rcs_ctx *ctx);
int cl_ep_status(const rcs_ep *ep); /* 0: requests may be posted; AGAIN, or what it was lost by */
void cl_ep_stand_still(rcs_ep *ep); /* progress of one that may not act; it may be lost then */
void cl_cq_stopped(rcs_ctx *ctx);

/* --- progress.c, ep.c -------------------------------------------------------------------------- */
void cl_progress(rcs_ctx *ctx);
bool cl_ep_progress(rcs_ep *ep);
void cl_ep_pump(rcs_ep *ep);
void cl_ep_publish(rcs_ep *ep);
void cl_ep_bell(rcs_ep *ep); /* wakes who sleeps in this process */
void cl_ep_lost(rcs_ep *ep, int status);
void cl_ep_drain_ctl(rcs_ep *ep);
/* Header to the peer, with credit; sent now or queued. */
void cl_ctl_send(rcs_ep *ep, rcs_peer *peer, struct wire_rec *r, const void *payload);
void cl_ep_event(rcs_ep *ep, const struct shm_event *ev);
void cl_ep_end_check(rcs_ep *ep); /* of a lost one: has the daemon let go? */

/* --- peer.c, credit.c -------------------------------------------------------------------------- */
rcs_peer *cl_peer_get(rcs_ep *ep, uint32_t node, uint32_t slot, uint32_t epoch);
void cl_peer_activate(rcs_peer *p);
void cl_peer_gone(rcs_peer *p, int status);
void cl_peer_meet(rcs_peer *p);
/* Whether it is there, unless that is known. The answer, GONE, comes behind what it has sent. */
void cl_peer_ask(rcs_peer *p);
void cl_peers_ask(rcs_ep *ep); /* endpoints have ended: those that something waits for */
int cl_peer_insert(rcs_ep *ep, const struct wire_addr *a, rcs_peer **peer, struct rcs_error *err);
void cl_credit_init(rcs_peer *p);
uint64_t cl_credit_now(rcs_peer *p); /* for the credit field of a record to p */
void cl_credit_consumed(rcs_peer *p, uint64_t charge);
void cl_credit_unexpected(rcs_peer *p, uint64_t charge);
void cl_credit_release(rcs_peer *p, uint64_t charge);
void cl_credit_gone(rcs_peer *p); /* what was lent to it is for others again */
void cl_credit_wish(rcs_peer *p, uint64_t window); /* a large message wants more */

/* --- send.c, recv.c, match.c, large.c ---------------------------------------------------------- */
bool cl_send_try(struct cl_op *op); /* true: handed over (and perhaps ended) */
bool cl_push_try(struct cl_op *op); /* one piece; true: sent */
bool cl_node_busy(rcs_peer *p);
/* A record to p in the submission ring, to be filled and committed; NULL: no room now. */
struct wire_rec *cl_record(rcs_peer *p, uint16_t type, uint32_t len);
void cl_record_commit(rcs_peer *p, const struct wire_rec *r);
void cl_recv_record(rcs_ep *ep, const struct wire_rec *r, const uint8_t *payload);
void cl_match_post(struct cl_op *op);
void cl_match_unpost(struct cl_op *op);
void cl_match_end(rcs_peer *p, int status); /* posted receives that are from it alone */
void cl_unexp_add(rcs_claim *u);
void cl_unexp_claim(rcs_claim *u); /* out of matching */
rcs_claim *cl_unexp_announced(const rcs_peer *from, uint64_t remote);
void cl_match_free(rcs_ep *ep);
struct cl_op *cl_match_posted(rcs_ep *ep, const rcs_peer *from, uint64_t tag);
rcs_claim *cl_match_unexp(rcs_ep *ep, const rcs_peer *from, uint64_t tag, uint64_t ignore);
void cl_unexp_free(rcs_claim *u);
void cl_recv_take(struct cl_op *op, rcs_claim *u); /* op matches u; frees u */
void cl_large_matched(struct cl_op *op, rcs_peer *from, uint64_t tag, uint64_t len, uint64_t remote,
	const struct wire_rts *rts);
void cl_large_start(struct cl_op *op);
void cl_large_fin(rcs_ep *ep, rcs_peer *to, uint64_t op, int status);
void cl_large_push_rec(rcs_peer *from, const struct wire_rec *r, const uint8_t *payload);
void cl_large_get_done(struct cl_op *op, const struct wire_rec *r);
void cl_large_cts(rcs_peer *from, const struct wire_rec *r);

/* --- rma.c ------------------------------------------------------------------------------------- */
bool cl_rma_try(struct cl_op *op); /* true: submitted */
void cl_rma_unlink(struct cl_op *op);
void cl_rma_ended(struct cl_op *op, int status); /* told to others that wait for it */
void cl_note_ended(struct cl_op *note);
void cl_rma_done(struct cl_op *op, const struct wire_rec *r);
void cl_rma_gone(rcs_peer *p, int status); /* the peer is: what no daemon answers ends */
/* May op, a send, not leave yet? */
static inline bool cl_rma_holds(const rcs_peer *p, const struct cl_op *op)
{
	return (op->note && p->rma && p->rma->seq < op->seq) ||
		(p->flushes && p->flushes->seq < op->seq) ||
		(p->ep->flushes && p->ep->flushes->seq < op->seq);
}

/* --- access.c ---------------------------------------------------------------------------------- */
void cl_access(rcs_ep *ep, const struct wire_rec *r, const uint8_t *payload);
void cl_access_pump(rcs_ep *ep);

/* --- reg.c, region.c --------------------------------------------------------------------------- */
/*
 * key.region 0: a new one; else the region of that key is registered (again), and keeps it. epoch: what it was
 * registered with before, by rail, which is left out, and now; NULL: nobody will ask.
 */
int cl_reg_make(rcs_ctx *ctx, struct cl_chan *ch, void *addr, uint64_t len, struct wire_key key,
	uint32_t epoch[WIRE_RAILS_MAX], struct cl_reg *reg, struct rcs_error *err);
/* REG_MR by ioctl; unit tests put something else here. */
struct ib_uverbs_reg_mr_resp;
extern int (*cl_reg_mr)(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len,
	uint32_t access, struct ib_uverbs_reg_mr_resp *resp);
void cl_reg_drop(struct cl_chan *ch, struct cl_reg *reg);
/* The region's registration with ep's channel, made at first use. */
int cl_region_reg(rcs_region *region, rcs_ep *ep, struct cl_reg *reg, struct rcs_error *err);
void cl_region_forget(rcs_ctx *ctx, rcs_ep *ep); /* ep ends */
void cl_region_rehome(rcs_ctx *ctx, rcs_ep *ep); /* ep has taken ctx->spare */
/* An exported one that lacks a rail's present device is registered with that. One a call, which takes two answers. */
void cl_region_refresh(rcs_ctx *ctx);
void cl_region_abandon(rcs_region *r); /* its memory stays mapped: somebody may still write there */
bool cl_region_covers(const rcs_region *r, const void *p, uint64_t len);

/* --- exchange.c ----------------------------------------------------------------------------------- */
int cl_eager(rcs_ep *ep, struct rcs_error *err); /* without the lock */

#endif
