/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rcshare.h - the public API of librcshare: reliable messages and one-sided requests between the ranks
 * of a Slurm job, over RDMA connections that all ranks of a node share.
 *
 * Objects. A context (rcs_ctx) belongs to one process and owns everything else. An endpoint (rcs_ep)
 * sends and receives; it has a self-contained 64-byte address that any exchange may carry to peers.
 * A peer (rcs_peer) is an address that an endpoint has accepted. A completion queue (rcs_cq) reports
 * what ended; a counter (rcs_cntr) counts it. A region (rcs_region) is registered memory.
 *
 * Errors. A function returns 0 (or a count) or a negative enum rcs_status; the sentence for a human,
 * which says what failed and what to do, is in the struct rcs_error the caller passed (may be NULL).
 * Outputs are set only on success. RCS_ERR_AGAIN means: nothing happened, progress the context
 * (rcs_cq_read does) and call again. A flag that a call does not know is RCS_ERR_INVALID.
 *
 * Threads. Every function may be called from any thread; calls on one context exclude each other,
 * different contexts are independent. rcs_cq_wait blocks without holding the context.
 *
 * Progress happens inside calls, and in a helper thread of the library with RCS_INIT_HELPER.
 *
 * Order. Messages of one endpoint to another are matched in the order they were sent, whatever their
 * sizes, through any failover.
 *
 * Releases. A program and a library of different releases fit as long as the library's soname stays. Structs
 * grow at their end, by fields whose 0 means what was before. The library is told the size that the program was
 * built with: by the field `size` of rcs_init_opts and rcs_ep_opts, of the others by the inline functions below, which
 * call the function of the same name that ends in _sized. The library takes fields that the program lacks for 0; it
 * refuses with RCS_ERR_INVALID a struct that has something other than 0 where only a newer library knows a field; what
 * it fills, it fills as far as the program has room, with 0 beyond what it knows. So, to add: a field goes to the
 * end and grows sizeof (no gap at the end may hide it), a flag takes a free bit, a function goes under its
 * release in librcshare.map; nothing is taken away or moved. struct rcs_error, rcs_addr and rcs_key never grow: the
 * latter two have a version among their bytes.
 *
 * After fork the child must not use the context (calls return RCS_ERR_FORKED); the parent goes on.
 */
#ifndef RCSHARE_H
#define RCSHARE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RCS_API __attribute__((visibility("default")))

#define RCS_VERSION_MAJOR 0
#define RCS_VERSION_MINOR 2

enum rcs_status {
	RCS_OK = 0,
	RCS_ERR_AGAIN = -1,	   /* no resources now; progress and call again */
	RCS_ERR_INVALID = -2,	   /* an argument is wrong */
	RCS_ERR_NO_RUNTIME = -3,   /* not under srun --rcshare=on, or the daemon is not reachable */
	RCS_ERR_VERSION = -4,	   /* library, daemon or address of different versions */
	RCS_ERR_RUNTIME_LOST = -5, /* the node's daemon ended; all requests end so */
	RCS_ERR_NO_PMIX = -6,	   /* rank identity or exchange needs PMIx, and it is not there */
	RCS_ERR_MEMLOCK = -7,	   /* RLIMIT_MEMLOCK is too low */
	RCS_ERR_TRUNCATED = -8,	   /* message longer than the receive buffer; what fits was stored */
	RCS_ERR_CANCELED = -9,
	RCS_ERR_PEER_GONE = -10,   /* the endpoint was closed or its process died */
	RCS_ERR_NODE_LOST = -11,   /* its node died; the request may or may not have executed */
	RCS_ERR_AMBIGUOUS = -12,   /* a put may or may not have executed (see flags) */
	RCS_ERR_PARTITIONED = -13, /* this node was removed from the step, or lost its majority */
	RCS_ERR_ACCESS = -14,	   /* key, range or right of a remote region */
	RCS_ERR_FAULT = -15,	   /* a local buffer is not readable or writable */
	RCS_ERR_NOMEM = -16,
	RCS_ERR_UNSUPPORTED = -17, /* not in this version */
	RCS_ERR_FORKED = -18,
	RCS_ERR_CLOSED = -19,
	RCS_ERR_BUSY = -20,
	RCS_ERR_IO = -21,
	RCS_ERR_TIMEOUT = -22,
	RCS_ERR_PROTOCOL = -23,	   /* the channel was damaged; the endpoint is detached */
	RCS_NOT_NEEDED = 1,	   /* rcs_init on a spare that was not needed */
};

/* The name ("RCS_ERR_AGAIN") and a sentence for a status; never NULL. */
RCS_API const char *rcs_status_name(int status);
RCS_API const char *rcs_status_text(int status);

struct rcs_error {
	int status;	    /* enum rcs_status */
	char sentence[256]; /* what failed, on what, and what to do */
};

typedef struct rcs_ctx rcs_ctx;
typedef struct rcs_ep rcs_ep;
typedef struct rcs_peer rcs_peer;
typedef struct rcs_cq rcs_cq;
typedef struct rcs_cntr rcs_cntr;
typedef struct rcs_region rcs_region;

#define RCS_ADDR_SIZE 64

struct rcs_addr {
	uint8_t bytes[RCS_ADDR_SIZE] __attribute__((aligned(8)));
};

/* --- context ------------------------------------------------------------------------------- */

#define RCS_INIT_EAGER	0x1u /* collective over the PMIx namespace: the first rcs_ep_open exchanges
			      * addresses with one collecting fence and opens all lanes */
#define RCS_INIT_HELPER 0x2u /* a thread of the library progresses while the rank computes */
#define RCS_INIT_NO_PMIX 0x4u /* identity and exchange are the caller's: fill struct rcs_init_opts */

struct rcs_init_opts {
	size_t size;	/* sizeof(struct rcs_init_opts), for later additions */
	uint32_t flags; /* RCS_INIT_* */
	uint32_t rank, nranks; /* with RCS_INIT_NO_PMIX */
	const char *socket;    /* NULL: RCSHARE_SOCKET of the environment */
};

/*
 * Attaches to the node's runtime. opts may be NULL: lazy, no helper, identity from PMIx. Without
 * RCS_INIT_EAGER it is local: no collective, returns before any peer is up.
 *
 * In a step with spare nodes (srun --rcshare=on,spares=K) the ranks of those nodes wait here: until they are
 * needed, then it returns RCS_OK with the number of a lost rank (rcs_incarnation), or until all others have
 * ended their contexts, then RCS_NOT_NEEDED, and there is no context: exit with 0. rcs_rank and rcs_size
 * count the ranks that are active.
 */
RCS_API int rcs_init(const struct rcs_init_opts *opts, rcs_ctx **ctx, struct rcs_error *err);

/* Ends everything of the context; local, no collective. Sends not yet handed over are lost:
 * wait for their completions first. */
RCS_API void rcs_fini(rcs_ctx *ctx);

RCS_API uint32_t rcs_rank(const rcs_ctx *ctx);
RCS_API uint32_t rcs_size(const rcs_ctx *ctx);
/* With spare nodes: 0, or how often this rank's place has been taken over: then this process is the
 * replacement of a rank that was lost with its node, and has nothing of its memory. */
RCS_API uint32_t rcs_incarnation(const rcs_ctx *ctx);

struct rcs_limits {
	size_t inject_max; /* bytes, rcs_inject */
	size_t eager_max;  /* bytes, messages up to this travel in one frame */
	size_t zcopy_min;  /* bytes, from here on RDMA READ moves them straight between buffers */
	uint32_t rails;
	uint32_t nodes, node;
	uint32_t iov_max;
};
RCS_API void rcs_limits_sized(const rcs_ctx *ctx, struct rcs_limits *limits, size_t size);
static inline void rcs_limits(const rcs_ctx *ctx, struct rcs_limits *limits)
{
	rcs_limits_sized(ctx, limits, sizeof(*limits));
}

/* --- completion queues and counters -------------------------------------------------------- */

enum rcs_op {
	RCS_OP_SEND = 1,
	RCS_OP_RECV = 2,
	RCS_OP_PUT = 3,
	RCS_OP_GET = 4,
	RCS_OP_ATOMIC = 5,
	RCS_OP_FLUSH = 6,
};

struct rcs_completion {
	void *context;	 /* of the request */
	uint32_t op;	 /* enum rcs_op */
	int32_t status;	 /* RCS_OK or an error */
	uint64_t len;	 /* RECV: bytes of the message (of all of it when TRUNCATED) */
	uint64_t tag;	 /* RECV */
	uint64_t data;	 /* RECV: immediate data, if has_data */
	rcs_peer *source; /* RECV: who sent it; NULL if the peer is not known to this endpoint */
	uint32_t has_data;
	uint32_t source_rank; /* RECV: rank of the sender in its step */
};

/* depth: 0 for no bound but memory. A full queue makes requests return RCS_ERR_AGAIN, it never drops. */
RCS_API int rcs_cq_open(rcs_ctx *ctx, uint32_t depth, rcs_cq **cq, struct rcs_error *err);
RCS_API void rcs_cq_close(rcs_cq *cq);
RCS_API int rcs_cq_read_sized(rcs_cq *cq, struct rcs_completion *c, uint32_t n, size_t size);
RCS_API int rcs_cq_wait_sized(rcs_cq *cq, struct rcs_completion *c, uint32_t n, int timeout_ms,
	size_t size);
/* Progresses the context and takes up to n completions: how many, 0 for none, or an error. */
static inline int rcs_cq_read(rcs_cq *cq, struct rcs_completion *c, uint32_t n)
{
	return rcs_cq_read_sized(cq, c, n, sizeof(*c));
}
/* Waits for at least one: like rcs_cq_read, RCS_ERR_TIMEOUT after timeout_ms (-1: for ever). */
static inline int rcs_cq_wait(rcs_cq *cq, struct rcs_completion *c, uint32_t n, int timeout_ms)
{
	return rcs_cq_wait_sized(cq, c, n, timeout_ms, sizeof(*c));
}
/*
 * An fd that polls readable when the context may have progress to make. Arm before polling:
 * 0: armed, poll may sleep; RCS_ERR_AGAIN: there is something already, read instead.
 */
RCS_API int rcs_cq_fd(rcs_cq *cq);
RCS_API int rcs_cq_arm(rcs_cq *cq);

RCS_API int rcs_cntr_open(rcs_ctx *ctx, rcs_cntr **cntr, struct rcs_error *err);
RCS_API void rcs_cntr_close(rcs_cntr *cntr);
RCS_API uint64_t rcs_cntr_read(rcs_cntr *cntr);	 /* successes; progresses the context */
RCS_API uint64_t rcs_cntr_errors(rcs_cntr *cntr);

/* --- endpoints and peers ------------------------------------------------------------------- */

struct rcs_ep_opts {
	size_t size; /* sizeof(struct rcs_ep_opts) */
	rcs_cq *tx_cq, *rx_cq;	   /* may be the same; NULL: no completions of that side */
	rcs_cntr *tx_cntr, *rx_cntr;
	size_t rx_size;		   /* bytes of the receive ring; 0: default */
};

/*
 * Local, never collective. Closing awaits, for a few seconds at most, gets that may still write into memory,
 * notifications (RCS_PUT_NOTIFY) and messages of rcs_inject that still wait for room at their receiver, and what
 * others do with the keys this endpoint made. (Where the daemon does not let go of a region in that time,
 * rcs_region_close says so, and is to be called again.) Whoever waits for something of a closed endpoint hears
 * RCS_ERR_PEER_GONE, behind all that the endpoint had sent.
 */
RCS_API int rcs_ep_open(rcs_ctx *ctx, const struct rcs_ep_opts *opts, rcs_ep **ep,
	struct rcs_error *err);
RCS_API void rcs_ep_close(rcs_ep *ep);
RCS_API void rcs_ep_addr(const rcs_ep *ep, struct rcs_addr *addr);

/* Accepts an address; the same address gives the same peer. Local. */
RCS_API int rcs_peer_insert(rcs_ep *ep, const struct rcs_addr *addr, rcs_peer **peer,
	struct rcs_error *err);
RCS_API void rcs_peer_remove(rcs_peer *peer); /* pending requests end with RCS_ERR_CANCELED */
RCS_API void rcs_peer_set_context(rcs_peer *peer, void *context);
RCS_API void *rcs_peer_context(const rcs_peer *peer);
RCS_API uint32_t rcs_peer_rank(const rcs_peer *peer);

/*
 * PMIx exchange of the first endpoint's address: publish is PMIx_Put and PMIx_Commit, local; lookup
 * is PMIx_Get of one rank (direct modex) and rcs_peer_insert; it waits, two minutes at most, until that rank has
 * published. With spare nodes it is asked of the process that has the rank now: RCS_ERR_NODE_LOST while
 * nobody has. With RCS_INIT_EAGER the library has
 * published and fenced when rcs_ep_open of the first endpoint returns.
 */
RCS_API int rcs_publish(rcs_ep *ep, struct rcs_error *err);
RCS_API int rcs_lookup(rcs_ep *ep, uint32_t rank, rcs_peer **peer, struct rcs_error *err);

enum rcs_peer_state {
	RCS_PEER_UNKNOWN = 0,
	RCS_PEER_CONNECTING = 1,
	RCS_PEER_UP = 2,
	RCS_PEER_UNREACHABLE = 3, /* no path now; requests wait */
	RCS_PEER_LOST = 4,
	RCS_PEER_LOCAL = 5,	  /* same node */
};
struct rcs_peer_info {
	uint32_t state; /* enum rcs_peer_state */
	uint32_t node, incarnation;
	uint32_t lane;	/* rail that carries traffic; 4: TCP; ~0: none */
	uint32_t lanes_up;
	uint32_t failovers;
	char host[64];
};
RCS_API int rcs_peer_query_sized(const rcs_peer *peer, struct rcs_peer_info *info, size_t size);
static inline int rcs_peer_query(const rcs_peer *peer, struct rcs_peer_info *info)
{
	return rcs_peer_query_sized(peer, info, sizeof(*info));
}

/* --- tagged messages ----------------------------------------------------------------------- */

#define RCS_SEND_DELIVERED 0x1u /* complete when the message is at its destination; without: when
				 * the buffer may be reused (a small message may then still be lost
				 * with its node) */
#define RCS_SEND_DATA	   0x2u /* data is valid and travels with the message */
#define RCS_QUIET	   0x4u /* no completion on success */

struct rcs_msg {
	const struct iovec *iov;
	uint32_t iov_n; /* up to limits.iov_max */
	uint32_t flags; /* RCS_QUIET, send: RCS_SEND_* */
	uint64_t tag;
	uint64_t data;
	uint64_t ignore;    /* receive: bits of the tag that need not match */
	rcs_peer *peer;	    /* send: to; receive: from, NULL for any */
	rcs_region *region; /* of iov, or NULL: the library registers what it needs itself */
	void *context;	    /* given back in the completion; may be NULL */
};

RCS_API int rcs_send_sized(rcs_ep *ep, const struct rcs_msg *m, size_t size);
RCS_API int rcs_recv_sized(rcs_ep *ep, const struct rcs_msg *m, size_t size);
/* A receive from a peer that is gone or lost takes what it has sent before; else it ends with RCS_ERR_PEER_GONE or
 * RCS_ERR_NODE_LOST, and a new one is refused so. Receives from any go on. */
static inline int rcs_send(rcs_ep *ep, const struct rcs_msg *m)
{
	return rcs_send_sized(ep, m, sizeof(*m));
}
static inline int rcs_recv(rcs_ep *ep, const struct rcs_msg *m)
{
	return rcs_recv_sized(ep, m, sizeof(*m));
}
/* Short forms. */
RCS_API int rcs_tsend(rcs_ep *ep, const void *buf, size_t len, rcs_peer *to, uint64_t tag,
	void *context);
RCS_API int rcs_trecv(rcs_ep *ep, void *buf, size_t len, rcs_peer *from, uint64_t tag,
	uint64_t ignore, void *context);
/* At most inject_max bytes; the buffer is free at return; no completion, counters count. flags: RCS_SEND_DATA. */
RCS_API int rcs_inject(rcs_ep *ep, const void *buf, size_t len, rcs_peer *to, uint64_t tag,
	uint64_t data, uint32_t flags);

/*
 * Looks for an unexpected message. 1 and *found filled, 0 for none. With claim not NULL the message
 * is taken out of matching and *claim must be received by rcs_recv_claimed.
 */
typedef struct rcs_claim rcs_claim;
RCS_API int rcs_probe_sized(rcs_ep *ep, rcs_peer *from, uint64_t tag, uint64_t ignore,
	struct rcs_completion *found, rcs_claim **claim, size_t size);
static inline int rcs_probe(rcs_ep *ep, rcs_peer *from, uint64_t tag, uint64_t ignore,
	struct rcs_completion *found, rcs_claim **claim)
{
	return rcs_probe_sized(ep, from, tag, ignore, found, claim, sizeof(*found));
}
RCS_API int rcs_recv_claimed(rcs_ep *ep, rcs_claim *claim, void *buf, size_t len, void *context);

/*
 * Cancels the oldest pending request of this context. It completes exactly once: RCS_ERR_CANCELED,
 * or as it would have when it was too late. 0, or RCS_ERR_INVALID when no such request is pending.
 */
RCS_API int rcs_cancel(rcs_ep *ep, void *context);

/* --- memory -------------------------------------------------------------------------------- */

/*
 * Registers len bytes at addr for zero copy; valid until rcs_region_close. RCS_ERR_UNSUPPORTED: memory of a CUDA
 * device, as far as the driver's library, where the program has loaded it, knows the address.
 */
RCS_API int rcs_region_open(rcs_ctx *ctx, void *addr, size_t len, rcs_region **region,
	struct rcs_error *err);
RCS_API int rcs_region_close(rcs_region *region); /* RCS_ERR_BUSY while requests use it */

/*
 * The key by which others reach the region through this endpoint; any exchange may carry it. Valid
 * until rcs_region_close or the end of the endpoint; a request that names it later ends with
 * RCS_ERR_ACCESS. rcs_region_close returns when nothing of any peer can touch the memory any more. That
 * may take seconds, in which other threads' calls on the context wait; RCS_ERR_TIMEOUT: the daemon did
 * not say so, the region is still open. A key outlives the loss and return of rails.
 */
#define RCS_KEY_SIZE 48
struct rcs_key {
	uint8_t bytes[RCS_KEY_SIZE] __attribute__((aligned(8)));
};
RCS_API int rcs_region_key(rcs_region *region, rcs_ep *ep, struct rcs_key *key,
	struct rcs_error *err);

/*
 * Memory that is registered already, page aligned, zeroed, and mapped by the node's daemon too. Remote
 * atomics work on such memory only, and by keys that rcs_region_key makes for the endpoint it belongs to:
 * the oldest that is open, or the next one to be opened without rx_size. With other endpoints it is a
 * region like any. RCS_ERR_NOMEM: the daemon has none to share.
 *
 * After fork the child shares the memory with the parent, it is no copy.
 */
RCS_API int rcs_alloc(rcs_ctx *ctx, size_t len, void **addr, rcs_region **region,
	struct rcs_error *err);
RCS_API int rcs_free(rcs_region *region);

/* --- one-sided requests --------------------------------------------------------------------- */

/*
 * A put or get ends when it has executed at the target, exactly once through any failover of a rail.
 * Puts and gets have no order among each other; a message with RCS_PUT_NOTIFY, and all messages sent
 * after it or after rcs_flush to that peer, are delivered after the puts before them have executed.
 * Zero length is allowed and moves nothing, key and range are checked. The target need not call the
 * library, with one exception: memory that is not of rcs_alloc, where no RDMA reaches it and the kernel
 * keeps its daemon from it (Yama, a container, a process that is not dumpable), is read and written by its own
 * library, when that makes progress (RCS_INIT_HELPER, or any call).
 *
 * Returned at once, and nothing was sent: RCS_ERR_INVALID, where the key is damaged, of another version
 * or job, or not of this peer, the local region does not cover buf, or a flag is unknown; RCS_ERR_ACCESS,
 * where the range is not within the region. What its owner alone knows comes by completion: RCS_ERR_ACCESS,
 * where the region was closed. A request whose peer is lost ends when no daemon can touch buf any more.
 * rcs_cancel ends what has not left yet; what has completes as it does.
 */
#define RCS_PUT_NOTIFY 0x10u /* then send an empty message of `tag` and `data` to the peer, in order
			      * with all messages of this endpoint to it. It follows everything
			      * one-sided to that peer before it; none is sent when the put fails */
#define RCS_PUT_REPLAY 0x20u /* where nobody can tell whether the put ran (the target's device is
			      * gone), run it again; without: RCS_ERR_AMBIGUOUS */
#define RCS_RMA_VADDR  0x40u /* offset is a virtual address of the owner */

struct rcs_rma {
	void *buf;  /* local: read by put, written by get */
	size_t len;
	uint32_t flags; /* RCS_QUIET RCS_RMA_VADDR, put: RCS_PUT_* */
	uint32_t pad;
	uint64_t offset;	   /* in the remote region, bytes */
	const struct rcs_key *key; /* of the remote region */
	rcs_peer *peer;		   /* the endpoint that made the key */
	rcs_region *region;	   /* of buf, or NULL: the library registers what it needs itself */
	uint64_t tag, data;	   /* with RCS_PUT_NOTIFY */
	void *context;		   /* given back in the completion; may be NULL */
};
RCS_API int rcs_put_sized(rcs_ep *ep, const struct rcs_rma *r, size_t size);
RCS_API int rcs_get_sized(rcs_ep *ep, const struct rcs_rma *r, size_t size);
/* Completions come to tx_cq and tx_cntr: op RCS_OP_PUT, RCS_OP_GET, RCS_OP_ATOMIC, RCS_OP_FLUSH. */
static inline int rcs_put(rcs_ep *ep, const struct rcs_rma *r)
{
	return rcs_put_sized(ep, r, sizeof(*r));
}
static inline int rcs_get(rcs_ep *ep, const struct rcs_rma *r)
{
	return rcs_get_sized(ep, r, sizeof(*r));
}

/* Completes when all puts, gets and atomics of ep to peer (NULL: to any) before it have ended, and their
 * notifications have gone out. Its
 * status is RCS_OK also when some of them failed: each has told so itself. Messages to the peer (NULL: to
 * all) that are sent after it wait for it. flags: RCS_QUIET. */
RCS_API int rcs_flush(rcs_ep *ep, rcs_peer *peer, uint32_t flags, void *context);

/* Executed by the target's runtime, exactly once, atomic to the target's own C11 atomics. Returns what
 * rcs_put does, RCS_ERR_INVALID also where the memory is not of rcs_alloc or offset is not aligned. */
enum rcs_atomic_op {
	RCS_ATOMIC_ADD = 1,  /* fetch-add, wraps */
	RCS_ATOMIC_CSWAP = 2, /* operand where the value is `compare` */
	RCS_ATOMIC_SWAP = 3,
};
struct rcs_atomic {
	uint32_t op;   /* enum rcs_atomic_op */
	uint32_t size; /* 4 or 8 bytes; offset is a multiple of it, in memory of rcs_alloc */
	uint64_t operand, compare;
	uint64_t *result; /* the value before, zero-extended; may be NULL */
	uint64_t offset;
	const struct rcs_key *key;
	rcs_peer *peer;
	uint32_t flags; /* RCS_QUIET, RCS_RMA_VADDR */
	uint32_t pad;
	void *context;
};
RCS_API int rcs_atomic_sized(rcs_ep *ep, const struct rcs_atomic *a, size_t size);
static inline int rcs_atomic(rcs_ep *ep, const struct rcs_atomic *a)
{
	return rcs_atomic_sized(ep, a, sizeof(*a));
}

/* --- events: rcshare-events(7) ------------------------------------------------------------- */

enum rcs_event_code {
	RCS_EVENT_RAIL_FAILED = 1, /* traffic of `origin` to `peer` moved from `rail` to `to_rail` */
	RCS_EVENT_RAIL_BACK = 2,
	RCS_EVENT_PEER_UNREACHABLE = 3,
	RCS_EVENT_PEER_BACK = 4,
	RCS_EVENT_RANK_LOST = 5,    /* `rank` of `step`, on node `origin` */
	RCS_EVENT_RUNTIME_LOST = 6, /* this node's daemon ended */
	RCS_EVENT_NODE_SUSPECTED = 7, /* node `peer` is silent; nothing has ended yet */
	RCS_EVENT_NODE_LOST = 8,   /* requests to ranks of node `peer` end with RCS_ERR_NODE_LOST */
	RCS_EVENT_PARTITIONED = 9, /* of this node: all requests end with RCS_ERR_PARTITIONED */
	RCS_EVENT_NODE_REPLACED = 10, /* node `peer`, a spare, has the ranks of a lost one: look them up anew */
};
struct rcs_event {
	uint32_t code;	 /* enum rcs_event_code */
	uint32_t origin; /* node index that noticed */
	uint64_t seq;	 /* grows by one for each event of an origin */
	uint32_t peer, rail, to_rail, rank, step; /* ~0: not applicable; to_rail 4: TCP */
	uint32_t frames_resent;
	uint32_t view;	  /* NODE_LOST, NODE_REPLACED: number of the view; else 0 */
	uint64_t time_ns; /* UTC */
	uint64_t notice_ns, recover_ns, blackout_ns; /* durations */
	const char *host, *reason; /* valid during the call */
	/* NODE_LOST, NODE_REPLACED: the ranks that the node had or has. index and first_rank are ~0 where it
	 * had none, as a spare that stood by. incarnation: how often the index has been taken over */
	uint32_t index, incarnation, first_rank, ranks;
	uint32_t spare; /* NODE_LOST: node that will take them over; ~0: none */
	const char *peer_host; /* of `peer`; "" with other events */
	uint32_t peers;	 /* RAIL_FAILED, RAIL_BACK: nodes that it is about, `peer` one of them */
	uint32_t missed; /* events before this one that were not told, for want of calls: later ones said more */
};
typedef void (*rcs_event_fn)(const struct rcs_event *ev, void *arg);
RCS_API int rcs_on_event_sized(rcs_ctx *ctx, rcs_event_fn fn, void *arg, size_t size);
/* fn is called from within calls of this context (or the helper thread), without its lock held. It hears of
 * ranks, nodes and views of its own step alone. NULL ends it. */
static inline int rcs_on_event(rcs_ctx *ctx, rcs_event_fn fn, void *arg)
{
	return rcs_on_event_sized(ctx, fn, arg, sizeof(struct rcs_event));
}

#ifdef __cplusplus
}
#endif
#endif
