/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel.h - what a rank and its daemon share, and the messages that set it up.
 *
 * A rank connects to the daemon's SOCK_SEQPACKET socket (RCSHARE_SOCKET) once for each endpoint
 * and sends SHM_MSG_ATTACH. The answer carries, by SCM_RIGHTS in this order:
 *	SHM_FD_CHANNEL  memfd: struct shm_channel, submission ring, receive ring
 *	SHM_FD_TABLE    memfd, read-only: struct shm_table
 *	SHM_FD_DAEMON   eventfd that wakes the daemon (after publishing to the submission ring)
 *	SHM_FD_RANK     eventfd by which the daemon wakes the rank (receive ring)
 * The socket stays open for the endpoint's life: its end is the end of the endpoint, and how the
 * daemon notices a rank that died. Requests on it are answered in order, one at a time.
 *
 * Rings: what may be written into the submission ring is
 *	MSG, RTS, PUSH, CTS, FIN, CREDIT, CANCEL	to the endpoint (dst_node, dst_ep, dst_epoch)
 *	RATOM						to the daemon of dst_node
 *	GET, RMA, PEER, ACCESSED			to the daemon
 * The daemon writes src_*; it takes records in order, so they arrive in order.
 *
 * Room in the receive ring, `rx_size` bytes, is shared out by the library that owns it:
 *  - each source may send `credit0` bytes of charged records from the start; the owner raises that
 *    by the credit field of any record it sends back (an absolute number). It must never have
 *    promised more than `rx_credit` bytes in all that it has not consumed yet;
 *  - a library starts a request that is answered (RTS: CTS and FIN; MSG with DELIVERED; GET;
 *    RMA; RATOM; CANCEL; and any charged record: GONE) only while the answers it may still get fit
 *    `rx_answers` bytes (64 bytes each);
 *  - at most SHM_EVENTS_MAX events are in the ring; later ones of rails are lost, the others wait;
 *  - at most one ACCESS is: the next comes after ACCESSED for it.
 * The daemon keeps what finds no room, in order, until there is some: sources that nobody counted with (more
 * endpoints than ranks, another step) have credit0 too. More than all endpoints that can exist may have sent is
 * a broken promise: the daemon detaches the endpoint.
 *
 * A library that finds no room in the submission ring, or a busy link, sleeps as it does for records: the daemon
 * rings SHM_FD_RANK when that is over (ring.h, need_room), and when `ended` of the table has changed.
 */
#ifndef RCS_SHM_CHANNEL_H
#define RCS_SHM_CHANNEL_H

#include <stdint.h>

#include "shm/ring.h"
#include "wire/record.h"

#ifndef SHM_ABI /* a test builds a release of another one */
#define SHM_ABI	   5u	       /* plugin, daemon and library must agree */
#endif
#define SHM_MAGIC  0x52435348u /* "HSCR" */

#define SHM_EVENTS_MAX 32u

/*
 * until_ns. A step's node acts as a member of it for a time only, and the daemon says anew, all the time, until
 * when. A library looks before it takes records, submits some, touches memory for others, or gives a
 * completion to the program; past the time it does none of that until the daemon has said more, and loses nothing.
 * So ranks of a node that others replace have stopped before, also where their daemon stands still.
 */
#define SHM_UNTIL_STOPPED 0u	     /* never again: what is in the ring is dropped but events, which say why */
#define SHM_UNTIL_LATER	  1u	     /* not yet: the step's nodes have not met */
#define SHM_UNTIL_EVER	  UINT64_MAX /* nobody decides about this node */

struct shm_channel {
	uint32_t magic;
	uint32_t abi;
	uint64_t size; /* of the memfd */
	uint64_t tx_off, tx_size; /* submission ring: data */
	uint64_t rx_off, rx_size; /* receive ring: data */
	uint64_t rx_credit;  /* bytes the owner may have promised to sources in all */
	uint64_t rx_answers; /* bytes reserved for answers to the owner's own requests */
	uint32_t credit0;    /* bytes each source may send before it heard from the owner */
	uint32_t eager_max;  /* largest payload of a MSG, at most WIRE_REC_PAYLOAD_MAX */
	uint32_t zcopy_min;  /* from this length on large messages are fetched by RDMA READ */
	uint32_t pad;
	_Atomic uint64_t until_ns; /* the rank may act until then, on CLOCK_MONOTONIC; or SHM_UNTIL_ */
	struct wire_addr addr; /* of this endpoint */
	struct shm_ring_ctl tx; /* rank produces */
	struct shm_ring_ctl rx; /* daemon produces */
};

/* One entry a node of the allocation; the daemon writes, ranks and tools read. */
enum shm_node_state {
	SHM_NODE_UNKNOWN = 0,	  /* no contact yet */
	SHM_NODE_CONNECTING = 1,
	SHM_NODE_UP = 2,
	SHM_NODE_UNREACHABLE = 3, /* no path; requests wait */
	SHM_NODE_DOWN = 4,	  /* lost; requests end with an error */
	SHM_NODE_SELF = 5,
};

struct shm_node {
	_Atomic uint32_t state;	      /* enum shm_node_state */
	_Atomic uint32_t incarnation;
	_Atomic uint32_t busy;	      /* its link's backlog is long: hold new requests back */
	_Atomic uint32_t lane;	      /* lane that carries our frames, SHM_LANE_NONE without */
	_Atomic uint32_t lanes_up;    /* bit a lane */
	_Atomic uint32_t failovers;
	_Atomic uint64_t tx_frames, rx_frames, resent;
	_Atomic uint32_t ended; /* grows when endpoints of that node have ended: who waits for one of them asks
				 * with CANCEL of op 0, which is answered by GONE behind all that it has sent */
	_Atomic uint32_t daemons; /* grows when another daemon than before answers there: what was outstanding
				   * to the former one has ended */
	char host[64];		      /* set before ranks attach; "" if not known */
};
#define SHM_LANE_NONE 0xffffffffu

struct shm_table {
	uint32_t magic, abi;
	uint32_t job, restart, node, nodes;
	uint32_t rails;
	_Atomic uint32_t ended; /* grows with each `ended` of a node */
	_Atomic uint32_t rail_epoch[WIRE_RAILS_MAX]; /* grows with each device that this rail is; registrations of
						      * another one are gone. 0: there was none yet */
	struct shm_node node_tab[];
};

/* --- messages on the socket ------------------------------------------------------------------- */

#define SHM_SENTENCE 192

enum shm_msg_type {
	SHM_MSG_ATTACH = 1,
	SHM_MSG_LEND = 2,    /* lend me the uverbs fds, I register one region */
	SHM_MSG_REG = 3,     /* what I registered (ends the loan) */
	SHM_MSG_DEREG = 4,
	SHM_MSG_EAGER = 5,   /* node records of the whole step: open all lanes now */
	SHM_MSG_STATUS = 6,  /* tools: answer is a memfd with JSON text */
	SHM_MSG_MONITOR = 7, /* notifier: from now on events arrive on this socket as
			      * SHM_MSG_EVENT; with struct shm_monitor: a step began here */
	SHM_MSG_EVENT = 8,
	SHM_MSG_RECORD = 9,  /* this node's record (struct shm_node_record) for publication */
	SHM_MSG_STEP_END = 10, /* notifier: step ends; answer: failovers of this job so far, log path; the
				* sentence is about rails of this node that found no partner */
	SHM_MSG_WITNESS = 13, /* daemon: is that node down (struct shm_witness)? The notifier's answer: what
			       * slurmctld says */
	SHM_MSG_LOST = 14, /* daemon: the step has lost that node (struct shm_witness) */
	SHM_MSG_PLACE = 15, /* of a step with spares: which rank is this? Answered when that is known */
	SHM_MSG_WHERE = 16, /* ... where is a rank now? */
	SHM_MSG_SAY = 17, /* daemon to the notifiers: `sentence` is for the user of the job */
	SHM_MSG_HEARD = 18, /* notifier: was that node's daemon ever heard (struct shm_witness)? It is looked
			     * for; the answer has `down` 0 where it was, else 1 and what was noticed */
	SHM_MSG_ALLOC = 12, /* memory that the daemon maps too (rcs_alloc): answer has its memfd */
	SHM_MSG_DETACH = 11, /* the endpoint is closed in good order (struct shm_msg, no answer); a
			      * socket that ends without it is a lost rank */
};

/* Each message begins so; an answer repeats type, and carries status (0 or -errno) and a sentence. */
struct shm_msg {
	uint32_t type;
	uint32_t abi;
	int32_t status;
	uint32_t pad;
	char sentence[SHM_SENTENCE]; /* for a human: what failed and what to do */
};

struct shm_attach { /* request */
	struct shm_msg m;
	uint32_t job, restart, step;
	uint32_t rank;	  /* in the step */
	uint32_t ranks;	  /* of the step */
	uint32_t local_ranks;
	uint32_t pid;
	uint32_t pad;
	uint64_t rx_size; /* 0: the daemon's default */
};

struct shm_attached { /* answer, with SHM_FD_* */
	struct shm_msg m;
	uint64_t channel_size, table_size;
};
enum { SHM_FD_CHANNEL, SHM_FD_TABLE, SHM_FD_DAEMON, SHM_FD_RANK, SHM_FD_N };

/*
 * Registration (design section 6). LEND names the region; the answer carries one uverbs fd for
 * each device and what REG_MR needs. The rank registers with each (ioctl, see client/reg.h), closes
 * the fds, and tells the outcome with REG. LEND is answered at once; -EAGAIN: the daemon is about to
 * sweep what a rank left that died between LEND and REG. -ESTALE to REG: the loan has ended meanwhile, what
 * was registered is destroyed.
 */
struct shm_lend {
	struct shm_msg m;
	uint64_t addr, len;
	struct wire_key key; /* region 0: a new one; else the one of SHM_MSG_ALLOC, mapped at addr */
};
struct shm_lent {
	struct shm_msg m;
	struct wire_key key; /* the region that is being made */
	uint32_t ndev;	     /* rails; 0: no RDMA here, region is still valid */
	uint32_t pd_handle[WIRE_RAILS_MAX]; /* by rail; ~0: not there now, no fd came for it */
	uint32_t driver[WIRE_RAILS_MAX];    /* of the kernel, for the ioctl (shm/uverbs.h) */
	uint32_t pad;
};
struct shm_reg {
	struct shm_msg m;
	struct wire_key key;
	uint32_t ndev;
	uint32_t ok;	     /* bit r: registered on rail r */
	uint32_t readonly;   /* bit r: ... for reading alone */
	uint32_t pad;
	int32_t err[WIRE_RAILS_MAX]; /* -errno where not */
	uint32_t mr_handle[WIRE_RAILS_MAX], lkey[WIRE_RAILS_MAX], rkey[WIRE_RAILS_MAX];
};
/*
 * The rank maps the memfd that comes with the answer, registers that (LEND with the key, REG) and ends
 * it by DEREG like any region. Atomics work on such memory only.
 */
struct shm_alloc {
	struct shm_msg m;
	uint64_t len;
};
struct shm_alloced {
	struct shm_msg m;
	struct wire_key key;
};
struct shm_dereg { /* answered when nothing can touch the memory any more */
	struct shm_msg m;
	struct wire_key key;
};

/*
 * Node record, published over PMIx in eager mode. Fixed size; rails without a device have
 * link_layer 0.
 */
#define SHM_RECORD_VERSION 1u
struct shm_rail_record {
	char device[32];
	uint8_t gid[16];
	uint8_t gid_index, port, link_layer, mtu; /* mtu: enum ibv_mtu */
	uint16_t lid;
	uint8_t rd_atomic, gid_type;
	uint32_t speed_mbps;
	uint32_t pad;
};
struct shm_node_record {
	uint16_t version, nrails;
	uint16_t node, pad;
	uint32_t job, restart;
	struct wire_addr ctrl; /* a daemon's own address: ep and epoch 0 */
	char host[64];
	struct shm_rail_record rail[WIRE_RAILS_MAX];
	uint32_t crc, pad2; /* CRC32C of the bytes before */
};
struct shm_record { /* answer to SHM_MSG_RECORD */
	struct shm_msg m;
	struct shm_node_record rec;
};
struct shm_eager { /* request: one record, answered at once; ask with the last for the wait */
	struct shm_msg m;
	struct shm_node_record rec;
	uint32_t last;	     /* answer comes when the lanes to all named nodes are up, or a deadline
			      * has passed (-ETIMEDOUT) */
	uint32_t timeout_ms; /* with last */
};
#define SHM_MONITOR_MAX (256u << 10)
struct shm_monitor {
	struct shm_msg m;
	uint32_t step;
	uint32_t spares; /* the last nodes, which stand by */
	uint32_t len;	 /* of nodes, with its NUL */
	char nodes[];	 /* the step's nodes as NAME/TASKS, or NAME, joined by commas, in the step's order */
};

/*
 * A step with spares (design section 9). Each rank's context opens a connection of its own and asks PLACE
 * before it attaches. On a node that stands by the answer comes when the node has taken over a lost
 * one's index, when it is not needed any more, or when that cannot happen any more; there is no
 * limit of time. The connection stays open for the context's life, and its end is the context's. WHERE
 * is asked on it. `result` is an rcs_status, with the sentence in m.
 */
struct shm_place {
	struct shm_msg m;
	uint32_t step;
	uint32_t task; /* PMIx rank: number of the process in the step, spares included */
};
struct shm_placed {
	struct shm_msg m;
	int32_t result; /* RCS_NOT_NEEDED: the ranks that were active have all ended */
	uint32_t rank, ranks, incarnation; /* 0: not a replacement */
};
struct shm_where {
	struct shm_msg m;
	uint32_t rank;
	uint32_t pad;
};
struct shm_there {
	struct shm_msg m;
	int32_t result; /* RCS_ERR_NODE_LOST: nobody has the rank now */
	uint32_t task;	/* process that has it */
	uint32_t incarnation, pad;
};
struct shm_witness {
	struct shm_msg m;
	uint32_t step;
	uint32_t down;	/* in an answer: 1, 0; of SHM_MSG_HEARD 1: not heard */
	char node[64];
};
struct shm_step_end {
	struct shm_msg m;
	uint32_t step, failovers, replayed_frames, pad;
	uint64_t blackout_max_ns;
	char log[256];
	char left_out[160]; /* a device of this node that no job can use, and why; "": none */
};

/* --- events -------------------------------------------------------------------------------- */

enum shm_event_code {
	SHM_EV_RAIL_FAILED = 1,	  /* a rail of `origin` failed over: traffic moved */
	SHM_EV_RAIL_BACK = 2,
	SHM_EV_PEER_UNREACHABLE = 3, /* no path to `peer` for longer than the limit */
	SHM_EV_PEER_BACK = 4,
	SHM_EV_RANK_LOST = 5,	  /* a rank of `origin` died without closing its endpoint */
	SHM_EV_NODE_SUSPECTED = 7, /* `peer` is silent; `origin` looks into it */
	SHM_EV_NODE_LOST = 8,	  /* the members decided that `peer` is lost: requests to it have ended */
	SHM_EV_PARTITIONED = 9,	  /* `origin` lost contact with the majority: all its requests end */
	SHM_EV_NODE_REPLACED = 10, /* `peer`, a spare, has taken over `index` */
};

struct shm_event {
	uint32_t code;	  /* enum shm_event_code */
	uint32_t origin;  /* node index that noticed */
	uint64_t seq;	  /* grows by one an origin */
	uint32_t job, restart;
	uint32_t step;	  /* of the rank or of the members; else 0xffffffff */
	uint32_t rank;	  /* RANK_LOST */
	uint32_t peer;	  /* other node, 0xffffffff: none */
	uint32_t rail;	  /* lane index, 0xffffffff: none */
	uint32_t to_lane; /* RAIL_FAILED: where traffic went */
	uint32_t frames_resent;
	uint64_t time_ns; /* UTC */
	uint64_t notice_ns, recover_ns, blackout_ns; /* durations; 0: not known */
	uint32_t view;	 /* NODE_LOST, NODE_REPLACED: number of the view; else 0 */
	/* NODE_LOST, NODE_REPLACED: what the node had or has; 0xffffffff: a spare that had nothing */
	uint32_t index, incarnation, first_rank, ranks;
	uint32_t spare; /* NODE_LOST: node that will take over; 0xffffffff: none */
	uint32_t peers; /* RAIL_FAILED, RAIL_BACK: nodes that it is about, `peer` one of them */
	uint32_t missed; /* events before this one that the endpoint had no room for */
	char peer_host[64];
	char host[64];	  /* of origin */
	char reason[64];  /* what was noticed, a word or a few */
};
struct shm_event_msg {
	struct shm_msg m;
	struct shm_event ev;
};

#endif
