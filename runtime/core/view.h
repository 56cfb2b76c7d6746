/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view.h - membership: which nodes of a step are there, decided together. A pure machine.
 *
 * Events and a time go in (`core_view_*`), actions come out (`core_view_poll`). No I/O, no clock,
 * no threads; the caller allocates `core_view_size()` bytes once. Times are the caller's monotonic
 * nanoseconds; nodes' clocks need not agree, each may run wrong by CORE_VIEW_DRIFT.
 *
 * Words. Nodes are numbered 0..nodes-1 for the life of the step; the last `spares` stand by. View 0
 * has all of them. View v + 1 is view v less a set of at most CORE_VIEW_SET nodes. Nobody comes
 * back: a daemon that lost its state must not speak as the node it was. An index is what ranks are
 * numbered by: index i is node i at first; when its node is removed the lowest spare that is there
 * and has none takes it over and the index's incarnation grows; where no spare is left the entry is
 * DOWN. All of this follows from the sets alone, so only the sets are decided.
 *
 * Decision: single-decree Paxos a view number, with ballots (round << 16 | proposer).
 *
 *	proposer			member (acceptor)
 *	PREPARE b, view v  ------->	b < promised: NACK. Else promised = b,
 *	        <-------  TALLY n, highest accepted (ballot, set)
 *	majority of view v: own set, or the highest accepted
 *	ACCEPT b, set  ----------->	b < promised: NACK. Else promised = accepted = b, value = set
 *	        <-------  TALLY n
 *	majority: DECIDED, view v + 1 is installed
 *	BEAT view v + 1, set  ---->	installs; who is further behind asks (HELP), is told (LOG)
 *
 * A member whose accepted value is not decided for long proposes it itself, so a proposer may die
 * at any point. docs/models/view.pml is this, checked exhaustively.
 *
 * Waves. PREPARE, ACCEPT and BEAT travel as a WAVE down a tree: its message gives a range of ring
 * positions (counted from the root) to one node in it, which votes, cuts the rest into `fanout`
 * parts and gives each to a node there. TALLYs come back up, summed: at once with what is known,
 * and when all parts are done. A part without answer is asked again after hop_ns, then cut into
 * `fanout` pieces that are asked at once, or, when there are too many, given to another node of the
 * same range. The next beat begins with the pieces. Tallies of a range, from whomever, are lower
 * bounds of the distinct votes in it, so the greatest counts and nothing is counted twice. No node
 * sends more than fanout + 3 messages a wave when nothing is lost.
 *
 * Lease. The lowest member starts a BEAT each beat_ns (the next in line when it falls silent). A
 * member that accepted a set for v + 1 passes beats on and does not vote. With a majority the root
 * knows: no decision for v + 1 was made before this beat began. GRANT carries that down, with
 * the receiver's own stamp (time of its TALLY) back and the age that the news had when the stamp
 * came in (`lag`): stamp - lag, on the receiver's clock, is not after the beginning. A grant of the
 * beat before is as true when the next one is here already. A node is `acting` for lease_ns from there
 * and stands still then (PARTITIONED); a later grant makes it act again (ACTIVE). Whom a node
 * reaches does not count: a lease is what a majority of all members has heard, by whatever way. So
 * a node that was removed no longer acts lease_ns after the decision, be it hung, slow or cut
 * off, wholly or from some; takeovers are switched core_view_takeover_ns() after the news of
 * the decision (view_lease.c has the bound).
 *
 * Stop. core_view_until() is how long the owner's ranks may act, to be published to them after each
 * poll. With spares that is the lease's end; without, nobody acts in a node's place, and it is
 * grace_ns later, as a pause of the host looks the same. A node whose lease is not back grace_ns
 * after its end, or has not begun start_ns after the step, is stopped for good (STOP). A node that
 * stood still has heard nobody meanwhile: its time begins when it goes on, VIEW_WAKES times in a row.
 *
 * Contact. Once each look_ns the owner calls core_view_look(), and core_view_contact() for each
 * member with what its link has heard; the machine says whom to be in contact with and how often a
 * quiet link must speak. A node that was heard and then is silent for silent_ns, or refuses, is
 * suspected; who was never heard may be starting, until all have voted once (F_MET) or start_ns
 * have passed: then a neighbour that says nothing is suspected as well. `watch` neighbours on either
 * side are watched, and beyond those that are suspected twice as many more, so that a lost rack is
 * looked through in strides that double.
 *
 * End. When a node's part of the step is over (core_view_ended) it goes on answering as long as
 * others need its vote: until all have ended, as beats tell, or its lease is not renewed any more.
 *
 * Suspicion. A suspecting node tells the lowest member it does not
 * suspect (SUSPECT; the watchers at once, others after report_ns), and turns to the work itself
 * after a delay that grows with its place in line. Who is told asks the suspect (CHECK; ALIVE),
 * also through others. No word within check_ns: it is proposed. If it lives, only the path between
 * the two is cut: after pair_ns of that the higher of the two is proposed.
 *
 * Relay. What is for a node the speaker suspects goes through a third, and answers come back the
 * same way. Every message may be lost, doubled, late.
 *
 * Promised:
 *   view of 1	goes on alone.
 *   view of 2	the loss of the higher is decided by the lower alone. The lower's loss is not: the
 *		higher stops. With cfg.witness neither decides alone; a true word of the witness
 *		about the other (core_view_witness) takes the place of its vote. A witness must
 *		not call both down. Until it speaks the survivor stands still.
 *   view of 3+	any set of losses that leaves a majority of the view connected, directly or
 *		through one other node, is decided; a minority decides nothing and stops after
 *		its lease. Losses that come one after the other need a majority each time.
 * Never: two sets for one view number; views out of order; an index that acts in two incarnations.
 */
#ifndef RCS_CORE_VIEW_H
#define RCS_CORE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_VIEW_NODES_MAX 32767u
#define CORE_VIEW_NONE	    0xffffu
#define CORE_VIEW_SET	    20u /* nodes removed at once; more go in the next view */
#define CORE_VIEW_FANOUT    8u
#define CORE_VIEW_CASES	    64u /* suspicions looked into at once */
#define CORE_VIEW_NEAR	    64u /* nodes watched by one, at most */
#define CORE_VIEW_OUT	    64u /* messages waiting to be sent; more are dropped */
#define CORE_VIEW_END	    0x8000u /* in a log: last node of its view */
#define CORE_VIEW_DRIFT	    40u	    /* a clock runs wrong by less than one part in so many */

#ifndef CORE_NEVER
#define CORE_NEVER UINT64_MAX
#endif

struct core_view_cfg {
	uint16_t nodes, spares, self;
	uint8_t watch;	 /* ring neighbours watched on each side */
	uint8_t fanout;	 /* 2..CORE_VIEW_FANOUT */
	bool witness;	 /* a view of two waits for the witness's word */
	uint64_t hop_ns;    /* ask again a node that did not answer; a round trip, longer in later ballots */
	uint64_t beat_ns;   /* a beat this often ... */
	uint64_t lease_ns;  /* ... lets a node act for so long; several beats */
	uint64_t check_ns;  /* a suspect has so long to say that it lives */
	uint64_t report_ns; /* suspicions are repeated so often */
	uint64_t step_ns;   /* what each place in line waits longer */
	uint64_t pair_ns;   /* two that live and cannot talk: one must go after */
	uint64_t silent_ns; /* who says nothing for so long is suspected */
	uint64_t grace_ns;  /* without a lease for so long: stopped for good */
	uint64_t start_ns;  /* ... and it must have begun by then */
	uint64_t act_ns;    /* what a rank began within its time is over so much later */
	uint64_t linger_ns; /* an ended step answers at least so long */
	uint64_t hold_ns;   /* a word of the witness holds so long */
};
void core_view_cfg_default(struct core_view_cfg *cfg); /* all but nodes, spares, self */
/* The times that follow from node_timeout; after core_view_cfg_default, with spares set. */
void core_view_cfg_timeout(struct core_view_cfg *cfg, uint64_t node_timeout_ns);
/* What a spare waits from the news of a decision until it acts in the lost node's place. */
uint64_t core_view_takeover_ns(const struct core_view_cfg *cfg);

enum core_view_msg_type {
	CORE_VIEW_WAVE = 1, /* root, phase, ballot, lo, hi, set */
	CORE_VIEW_TALLY,    /* root, phase, ballot, lo, hi, count, ended, stamp; acc and set: accepted */
	CORE_VIEW_NACK,	    /* ballot; acc: what was promised */
	CORE_VIEW_GRANT,    /* root, ballot; stamp back, acc: lag */
	CORE_VIEW_SUSPECT,  /* set */
	CORE_VIEW_HOLD,	    /* your suspicion is being looked into */
	CORE_VIEW_CHECK,
	CORE_VIEW_ALIVE,
	CORE_VIEW_HELP,	    /* I am behind: `known` */
	CORE_VIEW_LOG,	    /* set: removed nodes from `off` on, with CORE_VIEW_END */
};

enum core_view_phase {
	CORE_VIEW_IDLE = 0,
	CORE_VIEW_PREPARE,
	CORE_VIEW_ACCEPT,
	CORE_VIEW_BEAT, /* set as in LOG: the last view's */
};

#define CORE_VIEW_F_DONE    1u /* all parts of the range are done */
#define CORE_VIEW_F_RELAYED 2u
#define CORE_VIEW_F_MET	    4u /* of a GRANT: once all members have voted */
#define CORE_VIEW_F_ENDED   8u /* of a GRANT: all members have ended their part of the step */

struct core_view_msg { /* payload of a control frame, little-endian */
	uint8_t type, phase, flags, n; /* n: nodes in set */
	uint16_t src, dst; /* dst: not the neighbour it is sent to when that relays */
	uint16_t via;	   /* who relayed, or CORE_VIEW_NONE */
	uint16_t root, lo, hi;
	uint16_t known, off; /* the speaker's log length; of set[0] in the log */
	uint32_t view;	     /* the speaker's */
	uint32_t count, ended; /* of a range: votes; who needs no more votes */
	uint64_t ballot, acc, stamp;
	uint16_t set[CORE_VIEW_SET];
};
_Static_assert(sizeof(struct core_view_msg) == 96, "layout");

enum core_view_act_type {
	CORE_VIEW_ACT_NONE = 0,
	CORE_VIEW_ACT_SEND,	   /* msg to node; may be lost */
	CORE_VIEW_ACT_LOST,	   /* node was removed; index: what it had, or CORE_VIEW_NONE. Fence all
				    * lanes to it, end what is outstanding */
	CORE_VIEW_ACT_VIEW,	   /* all losses of this view were told; watch anew */
	CORE_VIEW_ACT_SWITCH,	   /* index is node's from now on, in this incarnation */
	CORE_VIEW_ACT_ACTIVE,	   /* this node may act as a member */
	CORE_VIEW_ACT_PARTITIONED, /* ... must not: its lease has run out */
	CORE_VIEW_ACT_STOP,	   /* ... for good: its ranks are to be told, and nothing is to be sent
				    * to the others any more */
	CORE_VIEW_ACT_REMOVED,	   /* ... was removed: never acts again. Go on serving the machine for
				    * a while: others may have the decision from nobody else */
};

struct core_view_act {
	enum core_view_act_type type;
	uint16_t node, index, incarnation;
	uint32_t view;
	struct core_view_msg msg;
};

struct core_view;
/* Bytes of state; 0: impossible configuration. mem: of that size, aligned as malloc() does. */
size_t core_view_size(const struct core_view_cfg *cfg);
struct core_view *core_view_init(void *mem, const struct core_view_cfg *cfg, uint64_t now);

/* Events. A node is suspected or not; saying it twice is harmless. */
void core_view_suspect(struct core_view *v, uint16_t node, uint64_t now);
void core_view_trust(struct core_view *v, uint16_t node, uint64_t now);
void core_view_witness(struct core_view *v, uint16_t down, uint64_t now);
void core_view_hold(struct core_view *v, uint64_t now); /* the witness was heard: nobody is stopped yet */
void core_view_ended(struct core_view *v, uint64_t now); /* this node's part of the step is over */
/*
 * A message whose sender proved to be of this step: src, or via for a relayed one. now is read after the message
 * was: a takeover's wait and a lease's lag are counted from it.
 */
void core_view_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now);

/* The next action. Call until NONE after any event and at core_view_deadline(). */
enum core_view_act_type core_view_poll(struct core_view *v, uint64_t now, struct core_view_act *act);
uint64_t core_view_deadline(const struct core_view *v);

/* --- contact (view_contact.c) --- */
struct core_view_contact {
	uint64_t heard_at; /* last sign of life; 0: never */
	uint64_t every_ns; /* a quiet link says something so often */
	bool refused;	   /* the daemon refuses or reset the connection */
	bool fenced;	   /* an earlier step has lost it */
};
uint64_t core_view_look_at(const struct core_view *v); /* the next look is due then */
/* False: not due, or this loop has slept itself and has heard nobody. Else say what links have heard. */
bool core_view_look(struct core_view *v, uint64_t now);
/* True: suspected from now on. */
bool core_view_contact(struct core_view *v, uint16_t node, const struct core_view_contact *c, uint64_t now);
bool core_view_reach(const struct core_view *v, uint16_t node); /* contact it without anybody's wish */
bool core_view_stands_by(const struct core_view *v, uint16_t node); /* ... with all lanes: of the two one is a spare */
/* Its quiet link must speak at least so often; CORE_NEVER: as it does. */
uint64_t core_view_pace(const struct core_view *v, uint16_t node);
bool core_view_suspected(const struct core_view *v, uint16_t node);
uint16_t core_view_other(const struct core_view *v); /* of a view of two, else CORE_VIEW_NONE */

/* --- lease (view_lease.c) --- */
/* The node's ranks may act until then; 0: not, or not yet. Publish it after each poll. */
uint64_t core_view_until(const struct core_view *v);
bool core_view_over(const struct core_view *v, uint64_t now); /* after core_view_ended: nobody needs it any more */

/* May this node act as a member now? Ask after any sleep, before anything that others see. */
bool core_view_acting(const struct core_view *v, uint64_t now);
uint32_t core_view_number(const struct core_view *v);
bool core_view_member(const struct core_view *v, uint16_t node);
/* Node that has the index (perhaps not switched yet), CORE_VIEW_NONE: DOWN. */
uint16_t core_view_node(const struct core_view *v, uint16_t index, uint16_t *incarnation);
/* Index of a node, CORE_VIEW_NONE: a spare that waits. Also of nodes that were removed. */
uint16_t core_view_index(const struct core_view *v, uint16_t node);
/* Whom to watch: fills out[CORE_VIEW_NEAR], returns how many. */
unsigned int core_view_watched(const struct core_view *v, uint16_t *out);
/* Nothing proposed, accepted, suspected or waited for: only beats go on. */
bool core_view_rest(const struct core_view *v);

#endif
