/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - the protocol between two nodes: one session over several lanes. A pure machine.
 *
 * Events and a time go in, actions come out. No I/O, no clock, no threads, no allocation. The
 * daemon (runtime/node/link.c) and the simulator (tests/sim) drive the same object code.
 *
 * Session. Frames that carry records are numbered 0, 1, 2, ... for the life of the link. The
 * receiver delivers frame `rx` and nothing else, then counts it; the sender keeps a frame until the
 * peer's count passes it. A frame may be sent any number of times on any lane: whatever happened to
 * a lane, the count alone decides, so no agreement is needed to move traffic. `limit`, an absolute
 * number too, says how far the peer may send; it never exceeds the receive buffers every usable
 * lane of the link has posted.
 *
 * A slot (seq % CORE_SLOTS) of the sender is free when the frame is acknowledged and no lane has it
 * posted any more: a NIC may retransmit from a buffer after the ack came by another way.
 *
 * Lanes. Index 0..rails-1 are RC QP pairs on the rail of that index at both nodes; CORE_LANE_TCP is
 * the TCP connection of the management network, which also carries the handshakes of the others
 * and takes the traffic when no rail is left. Each opening of a lane has a generation, greater than
 * all before it.
 *
 *	          want                 OPENED            OPEN_ACK/DONE
 *	DOWN ------------> OPENING ------------> SETUP ----------------> UP
 *	  ^                   |                    |                      |
 *	  |  LANE_DEAD both   v     error          v        error         v
 *	DEAD <------------------------------ FENCING <--------------------+
 *	      lane_fenced()
 *
 * The lower node index starts handshakes (OPEN_REQ); the higher answers (OPEN_ACK, or OPEN_NAK when
 * its rail is not usable now) and may ask for one (WANT). A lane carries data only after the peer's
 * word that it is ready: for the initiator OPEN_ACK, sent when the responder's QP can receive; for
 * the responder OPEN_DONE or any frame on the lane.
 *
 * Death of a lane: whoever notices fences its side, moves its unacknowledged frames to the best
 * usable lane at once, and tells the peer by LANE_DEAD{lane, gen, rx count} over another lane,
 * again and again until the peer has said the same (or opened a newer generation). LANE_DEAD received for a live generation kills
 * it here too. The peer's count in LANE_DEAD saves resending what arrived; the sender waits for it
 * at most `cfg.ask_ns`. Control messages are idempotent and may be lost, doubled and late.
 *
 * Reports. When a lane that was connected is fenced, LANE_DEAD also carries what the owner's queue pair
 * says: the PSN it expects next, or what stands in its ledger word (core_link_report, psn.h). It never
 * changes after that. A side that holds one-sided requests of that generation (core_link_hold, rma.h)
 * asks until it has it, and neither side opens the lane anew before: so the report of the last
 * generation is enough to keep.
 *
 * Rails need not be the same at both ends. The owner says which lanes both have (core_link_lanes); what is
 * asked for all the same is refused with CORE_R_ABSENT, and not asked for again until the peer wants it.
 *
 * Incarnations. Each start of a daemon has a number, which the handshake of the TCP connection tells and
 * frames carry. A peer with another one than before is another daemon: it knows nothing of the session, and
 * what the former one had of it is gone. All lanes are fenced, and then the session begins anew at both ends
 * (core_link_peer, CORE_ACT_RESTARTED); until then its connections are refused.
 *
 * Coming back: after a failure a lane is opened again not before `hold_ns`, doubled for each failure
 * in a row up to `hold_max_ns` and forgotten after the lane has been well for as long. It becomes
 * usable for data after `probes` ACK frames on it completed. Traffic moves to a better lane only
 * when all frames sent on the old one are acknowledged: order needs nothing more.
 *
 * Probes: datagrams on a lane's rail, carried and answered by the daemons (CORE_ACT_PROBE). The first ones
 * of a generation find out whether they work there; from then on silence says something about the path.
 * They ask before a lane without completions is given up, and before a queue pair is made on a path that
 * was silent. An answer never saves a lane from `stall_hard_ns`.
 */
#ifndef RCS_CORE_LINK_H
#define RCS_CORE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/psn.h"

#define CORE_RAILS_MAX 4u
#define CORE_LANES     (CORE_RAILS_MAX + 1)
#define CORE_LANE_TCP  CORE_RAILS_MAX
#define CORE_LANE_NONE 0xffu
#define CORE_SLOTS     128u /* frames a sender may keep; power of two */
#define CORE_BLOB      64u  /* a lane's parameters for the peer: opaque here */

#define CORE_NEVER UINT64_MAX

enum core_lane_state {
	CORE_LANE_DOWN = 0, /* not there; opened again at open_at */
	CORE_LANE_OPENING,  /* CORE_ACT_OPEN was given out, or OPEN_REQ is unanswered */
	CORE_LANE_SETUP,    /* responder: connected, waiting for OPEN_DONE */
	CORE_LANE_UP,
	CORE_LANE_FENCING,  /* CORE_ACT_FENCE was given out */
	CORE_LANE_DEAD,	    /* fenced; the peer has not yet confirmed */
};

enum core_reason {
	CORE_R_NONE = 0,
	CORE_R_PORT,	  /* local port error (async event) */
	CORE_R_DEVICE,	  /* device gone */
	CORE_R_COMPLETION, /* completion with error, retries exceeded */
	CORE_R_SILENT,	  /* no progress while the peer is alive */
	CORE_R_PEER,	  /* the peer said so */
	CORE_R_SOCKET,	  /* TCP connection reset or timed out */
	CORE_R_REQUEST,	  /* one bad request (protection, length): lane reopened at once */
	CORE_R_PROTOCOL,  /* the peer sent what it must not */
	CORE_R_SETUP,	  /* could not be opened */
	CORE_R_CLOSE,	  /* shut down on purpose */
	CORE_R_ABSENT,	  /* one of the nodes has no such rail */
	CORE_R_RESTART,	  /* the peer's daemon is another than before */
};
const char *core_reason_name(enum core_reason r);

struct core_cfg {
	uint8_t rails;		/* verbs lanes 0..rails-1 may be used; 0: TCP only */
	uint8_t first;		/* frames go on this rail, else the next that is usable, last on TCP */
	uint16_t self, peer;	/* node indices */
	uint16_t depth0, depth; /* receives posted a lane: at first, and when the link is in use;
				 * both <= CORE_SLOTS. limit = rx + depth */
	uint64_t ack_ns;	/* longest delay of an acknowledgement (0: at once) */
	uint16_t ack_every;	/* ... or after so many frames */
	uint64_t ask_ns;	/* longest wait for the peer's count before resending */
	uint64_t ctrl_ns;	/* repeat an unanswered control message after */
	uint64_t stall_ask_ns;	/* head of a lane's queue without completion: ask the peer */
	uint64_t stall_hard_ns; /* ... peer answered elsewhere and still none: lane is SILENT */
	uint64_t stall_max_ns;	/* ... and peer does not answer either: SILENT if another lane is up */
	uint64_t keepalive_ns;	/* an idle lane that is up sends an ACK this often */
	uint64_t hold_ns, hold_max_ns;
	uint8_t probes;
	uint64_t unreachable_ns; /* no usable lane for so long: CORE_ACT_UNREACHABLE */
};
void core_cfg_default(struct core_cfg *cfg);

enum core_ctrl_type {
	CORE_CTRL_OPEN_REQ = 1, /* lane, gen, blob, count */
	CORE_CTRL_OPEN_ACK,	/* lane, gen, blob, count */
	CORE_CTRL_OPEN_NAK,	/* lane, gen, reason: CORE_R_ABSENT, or not usable now */
	CORE_CTRL_OPEN_DONE,	/* lane, gen */
	CORE_CTRL_WANT,		/* lane: my rail is usable (again), please open */
	CORE_CTRL_LANE_DEAD,	/* lane, gen, count, reason; token 0: please confirm; flags, psn */
	CORE_CTRL_PING,		/* lane, gen, token: are you alive, and your count? */
	CORE_CTRL_PONG,		/* lane, gen, token, count */
};

struct core_ctrl { /* payload of a WIRE_FRAME_CTRL frame, little-endian, 96 bytes */
	uint8_t type, lane, reason, flags; /* CORE_CTRL_F_* */
	uint32_t gen;
	uint64_t count; /* frames delivered by the speaker */
	uint64_t token;
	uint8_t blob[CORE_BLOB];
	uint32_t psn; /* F_KNOWN, F_WORD */
	uint32_t pad;
};
#define CORE_CTRL_F_FENCED 0x1u /* LANE_DEAD: nothing executes on the lane any more: the report */
#define CORE_CTRL_F_KNOWN  0x2u /* ... and psn is what the queue pair expects next */
#define CORE_CTRL_F_WORD   0x4u /* ... or not, and psn is what stands in the ledger word */
#define CORE_CTRL_F_MUTE   0x8u /* LANE_DEAD, no progress: you did not answer elsewhere either */
#define CORE_CTRL_F_ECHO   0x10u /* ... though you answered a probe on the rail */
#define CORE_CTRL_F_BACK   0x20u /* WANT: the rail was not usable before */
_Static_assert(sizeof(struct core_ctrl) == 96, "layout");

enum core_probe { CORE_PROBE_NONE, CORE_PROBE_LOST, CORE_PROBE_ANSWERED };

/* A failover as the log wants it; times are of the caller's clock. */
struct core_failover {
	uint8_t lane, to_lane; /* to_lane CORE_LANE_NONE: no path was left at that moment */
	uint8_t reason;
	uint8_t peer_reason; /* what the peer said of this death; CORE_R_NONE: nothing, or it learned it
			      * from us */
	bool asked, answered; /* the peer was asked by another lane; it answered */
	uint8_t probe;	      /* enum core_probe: what the last doubt about the lane found */
	uint8_t peer_flags;   /* of its LANE_DEAD */
	bool had_traffic;     /* the lane carried our data when it died */
	uint32_t gen;
	uint32_t resent;      /* frames */
	uint64_t last_good_ns; /* last progress on the lane before */
	uint64_t noticed_ns, fenced_ns, resumed_ns; /* resumed: first frame sent on the new lane */
	uint64_t progress_ns; /* first acknowledgement after it: traffic flows again */
};

enum core_act_type {
	CORE_ACT_NONE = 0,
	CORE_ACT_SEND,	  /* send DATA frame seq on lane; then core_link_posted() was implied */
	CORE_ACT_ACK,	  /* send an ACK frame on lane (header fields by core_link_header) */
	CORE_ACT_CTRL,	  /* send ctrl on lane */
	CORE_ACT_OPEN,	  /* make lane's local end, generation gen; answer core_link_opened() or
			   * core_link_lane_error(). For CORE_LANE_TCP: connect; answer
			   * core_link_lane_up() or _error() */
	CORE_ACT_CONNECT, /* connect the local end to the peer's blob (QP to RTR and RTS, depth
			   * receives posted); answer core_link_connected() or _error() */
	CORE_ACT_FENCE,	  /* stop the lane so that nothing on it can execute any more, drain it; answer
			   * core_link_fenced(). Frames posted on it are no longer held then */
	CORE_ACT_CLOSE,	  /* destroy the lane's local end; no answer */
	CORE_ACT_DEPTH,	  /* post receives up to depth on every open lane; answer core_link_depth_done(),
			   * or _failed() when there is a lane that has fewer now */
	CORE_ACT_STATE,	  /* usable lane changed: `lane` is the one that carries our data now
			   * (CORE_LANE_NONE: none) */
	CORE_ACT_FAILOVER, /* failover record complete */
	CORE_ACT_LANE_BACK, /* lane carries or may carry data again after a failure */
	CORE_ACT_REPORT, /* what was held of lane, gen can be settled (core_rma_settle): told, number */
	CORE_ACT_PROBE,	      /* send a datagram with token (seq) on lane's rail, and look at its port; the
			       * answer is core_link_probe_answered(). It may be lost on the way; what did not
			       * leave is core_link_probe_unsent() */
	CORE_ACT_UNREACHABLE, /* no usable lane for unreachable_ns */
	CORE_ACT_REACHABLE,
	CORE_ACT_RESTARTED, /* the former daemon of the peer is gone, all lanes to it are fenced and closed,
			     * frames count from 0: what was outstanding to it, in slots or held, has ended
			     * and may have been executed or not */
};

struct core_act {
	enum core_act_type type;
	uint8_t lane;
	uint8_t reason;
	uint16_t depth;
	uint8_t told; /* REPORT: enum core_told */
	uint32_t number;
	uint32_t gen;
	uint64_t seq;
	struct core_ctrl ctrl; /* CTRL; blob also for CONNECT */
	struct core_failover failover;
};

enum core_verdict {
	CORE_RX_DELIVER, /* take the records: this frame is next. The caller MUST deliver it now */
	CORE_RX_DUP,	 /* was delivered before; drop */
	CORE_RX_STALE,	 /* of a fenced generation; drop */
	CORE_RX_BAD,	 /* impossible; drop, the lane is being fenced */
};

/* What a queue pair said when it was fenced. */
struct core_report {
	bool valid;
	uint8_t told; /* enum core_told */
	uint32_t gen, number;
};

/* Probes of a lane. */
struct core_ud {
	bool ever, works; /* one was answered; one of this generation */
	bool answered;	  /* in this doubt */
	bool sure;	  /* the peer answered elsewhere after CORE_UD_LOST of this doubt were lost */
	bool first, now;  /* must be answered before the lane is opened; that is going on */
	uint8_t sent;	  /* of this doubt, of this generation's first ones, or before opening */
	uint8_t ping_sent; /* ... when the last PING went */
	uint8_t left;	   /* answers that are missing before opening */
	uint8_t rounds;	   /* in vain */
	uint64_t at, token; /* of the last */
	uint64_t floor;	   /* answers to older ones do not count */
};

struct core_lane {
	uint8_t state;	/* enum core_lane_state */
	uint8_t reason; /* of its last death */
	bool local_ok;	/* rail usable at this node (core_link_rail) */
	bool absent;	/* initiator: the peer said that it has no such rail */
	bool usable;	/* UP and past its probes */
	bool heard;	/* the peer knows that dead_gen is dead */
	bool early;	/* responder: the peer spoke on the lane before we were connected */
	bool connecting; /* CONNECT is due or given out */
	bool req_waiting; /* responder: `remote` is an OPEN_REQ to be taken up after the fence */
	bool need_probe, was_lost;
	bool answered; /* the peer is alive: a PONG came since the last completion */
	uint8_t probes_left;
	uint8_t tries;	   /* control messages repeated: they go round the lanes that are up */
	uint8_t naks;	   /* in a row */
	uint8_t want_left; /* responder: WANTs to be sent ... */
	bool want_back;	   /* ... because the rail is back */
	uint32_t gen;	   /* current or last */
	uint32_t dead_gen; /* last one that the peer had to be told the death of */
	uint32_t posts;	   /* send requests outstanding */
	uint32_t plain;	   /* ... of them ACK and CTRL frames */
	uint32_t unheard;  /* ACK and CTRL frames on it since the peer was heard */
	uint32_t fails;	   /* failures in a row */
	uint64_t open_at;  /* opened then; never before hold_at */
	uint64_t hold_at, up_at, dead_at;
	uint64_t ctrl_at, want_at; /* next repetition of the lane's control message, of WANT */
	uint64_t alive_at;    /* next keepalive */
	uint64_t progress_at; /* last completion, or when posts went from 0 to 1 */
	uint64_t bytes;	      /* posted and not completed */
	uint64_t pace;	      /* ns for 64 KiB, as lately seen */
	uint64_t asked_at, asked_token;
	uint64_t ask_since; /* first PING of those that are unanswered */
	uint64_t done_at;   /* last completion, or when posts went from 0 to 1: also across doubts */
	struct core_ud ud;
	uint8_t dead_flags; /* of our LANE_DEAD: CORE_CTRL_F_MUTE, F_ECHO */
	struct core_ctrl open;	 /* what is repeated while opening; type 0: not made yet */
	struct core_ctrl remote; /* the peer's OPEN_REQ or OPEN_ACK */
	bool act_open, act_connect, act_fence, act_close; /* to be given out */
	bool connected; /* since its opening the peer may have executed something on it */
	bool owed;	/* the peer asked for the report before there was one */
	bool hold;	/* we wait for the peer's report of hold_gen */
	uint32_t hold_gen;
	uint64_t hold_ask_at;
	struct core_report said; /* by our queue pair; valid with the fence */
	struct core_report mine, peers;
	struct core_failover fo, fo_out; /* in progress; complete */
	uint64_t fo_high; /* frames below were sent when it died */
	bool fo_open, fo_ready;
};

struct core_link {
	struct core_cfg cfg;
	struct core_lane lane[CORE_LANES];
	/* sending */
	uint64_t next;	 /* number of the next new frame */
	uint64_t sent;	 /* next to send on the active lane; acked <= sent <= next */
	uint64_t acked;	 /* the peer's count */
	uint64_t limit;	 /* the peer's limit */
	uint64_t tail;	 /* oldest slot in use */
	uint64_t high;	 /* highest ever sent + 1 */
	uint8_t posted[CORE_SLOTS]; /* bit a lane */
	uint8_t active;	 /* lane that carries our data */
	uint64_t resume_at; /* do not send before (waiting for the peer's count); 0: may send */
	/*
	 * After a death the peer may still count frames that arrived on the dead lane, while their
	 * second copies wait in the receives of the new one: until that is over its limit does not
	 * say how many receives are free there, and we stay within the window of the resumption.
	 */
	bool capped;
	uint8_t cap_wait;  /* dead lanes (bits) whose final count is not known yet */
	uint64_t cap_from; /* first frame sent after the death; CORE_NEVER: none yet */
	uint64_t cap_win;  /* the window then */
	uint64_t cap_count; /* highest final count of the dead lanes */
	/* receiving */
	uint64_t rx;	 /* frames delivered */
	uint64_t rx_told; /* value of rx in the last ack we sent */
	uint64_t ack_at; /* an ack is due then */
	bool ack_force, ack_again; /* an ack is due though rx was told */
	uint8_t ack_tokens;	   /* explicit acks that may be sent now ... */
	uint16_t ack_frames;	   /* ... frames since the last token */
	uint64_t ack_token_at;
	uint8_t rx_lane; /* lane the last frame came on */
	uint8_t ack_lane;	   /* lane of the last explicit ack ... */
	uint64_t told_else;	   /* ... and the limit that the peer may have from others */
	uint16_t depth;	 /* receives posted on every open lane */
	uint16_t depth_want;
	bool depth_asked;
	uint64_t depth_at; /* receives could not be posted: not tried again before */
	uint64_t burst_at, burst_rx; /* is the window in use? */
	bool wanted;	 /* someone has something to say: lanes are opened */
	uint8_t lanes;	 /* verbs lanes that both nodes have, as far as known (bits) */
	uint32_t peer_inc; /* incarnation of the peer's daemon; 0: not known yet */
	bool ending;	 /* it is another now: lanes are fenced, then the session begins anew */
	uint64_t no_lane_since;
	bool unreachable;
	uint64_t token;
	uint64_t polled_at;
	struct core_ctrl reply[8]; /* control messages to give out */
	uint8_t reply_lane[8];
	uint8_t reply_n;
	bool act_depth, act_state, act_reachable, act_unreachable;
	uint8_t back_mask; /* lanes whose LANE_BACK is to be given out */
};

void core_link_init(struct core_link *l, const struct core_cfg *cfg, uint64_t now);

/* Someone wants to talk to the peer: from now on lanes are opened and kept. */
void core_link_want(struct core_link *l, uint64_t now);
/* A quiet lane says something at least so often from now on. */
void core_link_pace(struct core_link *l, uint64_t keepalive_ns, uint64_t now);

/*
 * The verbs lanes that both nodes have (bits), from the peer's record; at first all of cfg.rails. What leaves
 * the set is fenced, what enters it is opened.
 */
void core_link_lanes(struct core_link *l, uint8_t mask, uint64_t now);

/*
 * A handshake has proven who speaks: the incarnation of the peer's daemon, not 0. True: it is the one known, or
 * the first. False: it is another, and what there was with the former one is not yet over: refuse the
 * connection, the peer tries again. Frames count only with l->peer_inc in their header.
 */
bool core_link_peer(struct core_link *l, uint32_t incarnation, uint64_t now);

/* This node's rail works or does not (port up, device there). Starts true for TCP, false for rails. */
void core_link_rail(struct core_link *l, uint8_t lane, bool ok, enum core_reason why, uint64_t now);

/* Number of new frames that may be submitted now. */
uint32_t core_link_room(const struct core_link *l);
/* A new frame stands in slot seq % CORE_SLOTS; returns seq. Only while core_link_room() > 0. */
uint64_t core_link_submit(struct core_link *l, uint64_t now);

/* What the header of any frame sent now says. */
void core_link_header(const struct core_link *l, uint64_t *ack, uint64_t *limit);
/* A request of `bytes` that the core did not give out (a READ, a WRITE) was posted, or has completed: it
 * counts for stalls. Flushed ones need no word. */
void core_link_posted(struct core_link *l, uint8_t lane, uint32_t bytes, uint64_t now);
void core_link_done(struct core_link *l, uint8_t lane, uint32_t gen, uint32_t bytes, uint64_t now);

/* Completions: of DATA frame seq (seq != CORE_NEVER), or of an ACK or CTRL frame. */
void core_link_completed(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t seq, uint64_t now);

/* Answers to actions, and what happened to lanes. Stale generations are ignored. */
void core_link_opened(struct core_link *l, uint8_t lane, uint32_t gen,
	const uint8_t blob[CORE_BLOB], uint64_t now);
void core_link_connected(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now);
/*
 * TCP: an authenticated connection stands (made by either side). An older one was closed before.
 * gen: what the handshake agreed on, greater than the last at both ends. A connect that failed is
 * core_link_lane_error() with the last generation or the one of CORE_ACT_OPEN.
 */
void core_link_lane_up(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now);
void core_link_lane_error(struct core_link *l, uint8_t lane, uint32_t gen, enum core_reason why,
	uint64_t now);
/* The peer answered a probe. */
void core_link_probe_answered(struct core_link *l, uint8_t lane, uint64_t token, uint64_t now);
/* The last probe given out did not leave this node: nothing can be concluded from its silence. */
void core_link_probe_unsent(struct core_link *l, uint8_t lane, uint64_t token);
/*
 * Before core_link_fenced: what the fenced queue pair tells (core_tell). Without it: nothing. Only a queue pair
 * that was seen to stop may tell its PSN: the last receive posted, the marker, has come back flushed. One
 * whose receives were all taken, or that had to be destroyed, tells what stands in its ledger word, or nothing.
 */
void core_link_report(struct core_link *l, uint8_t lane, uint32_t gen, enum core_told told,
	uint32_t number);
void core_link_fenced(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now);
/* Requests of that generation, which is fenced and drained here, wait for the peer's report:
 * CORE_ACT_REPORT comes once, when it is there. */
void core_link_hold(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t now);
void core_link_depth_done(struct core_link *l, uint64_t now);
/* A lane has not got its receives: the old number stays what the peer is told, for hold_max_ns at least. */
void core_link_depth_failed(struct core_link *l, uint64_t now);

/*
 * Frames that arrived (CRC and incarnation already checked), in the order of their lane. ack/limit
 * of every frame type count: a CTRL frame is core_link_rx_ack() first, then core_link_rx_ctrl().
 */
enum core_verdict core_link_rx(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t seq,
	uint64_t ack, uint64_t limit, uint64_t now);
void core_link_rx_ack(struct core_link *l, uint8_t lane, uint32_t gen, uint64_t ack,
	uint64_t limit, uint64_t now);
void core_link_rx_ctrl(struct core_link *l, uint8_t lane, uint32_t gen, const struct core_ctrl *c,
	uint64_t now);

/*
 * The next action, or CORE_ACT_NONE. Call until NONE after any event and when `core_link_deadline`
 * has come. `can_send` says whether lane can take another request now (send queue not full); a SEND,
 * ACK or CTRL is only given out for lanes where it is true (bit a lane). SEND, ACK and CTRL imply that
 * the request was posted.
 */
enum core_act_type core_link_poll(struct core_link *l, uint32_t can_send, uint64_t now,
	struct core_act *act);
uint64_t core_link_deadline(const struct core_link *l); /* CORE_NEVER: nothing to wait for */

/* Everything sent and acknowledged, nothing posted: the link is at rest. */
bool core_link_idle(const struct core_link *l);

#endif
