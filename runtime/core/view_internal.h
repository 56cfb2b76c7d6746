/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view_internal.h - what the parts of membership share.
 *
 * view.c has members, log, indices and spares; view_wave.c the tree; view_lease.c what a lease lets do;
 * view_ballot.c proposer and acceptor; view_contact.c who is silent; view_doubt.c what comes of it;
 * view_poll.c timers, messages and actions.
 */
#ifndef RCS_CORE_VIEW_INTERNAL_H
#define RCS_CORE_VIEW_INTERNAL_H

#include "core/view.h"

#define VIEW_PARTS 48u /* of a wave that a node asks for: fanout + 2, more where heads are silent */
#define VIEW_TRIES 3u  /* unanswered messages before another node of the range is asked */
#define VIEW_HEADS 6u  /* nodes of a range that are asked before it is given up */
#define VIEW_POLLS 18u /* questions to a part in all */
#define VIEW_WAKES 4u  /* a lease that ran out meanwhile is waited for anew so often */
#define VIEW_NAPS  16u /* own sleeps that are remembered */
#define VIEW_WATCH 8u  /* watched neighbours on each side at most */

struct view_set {
	uint8_t n;
	uint16_t node[CORE_VIEW_SET]; /* ascending */
};

struct view_part {
	uint16_t lo, hi; /* positions from the root */
	uint16_t head;	 /* who is asked */
	uint16_t voice, voice_via; /* who answered */
	uint8_t tries, heads, polls;
	bool done, answered;
	uint32_t count, ended;
	uint64_t at, stamp, heard_at; /* heard_at: of the stamp */
};

struct view_wave {
	uint8_t phase, n;
	bool own;      /* our vote counts */
	bool complete; /* all parts are done */
	bool granted;
	uint16_t root, parent, via, lo, hi;
	uint64_t ballot;
	uint64_t at;  /* root: when it began; others: when it was last heard */
	uint64_t acc; /* highest accepted in the range */
	struct view_set acc_set, set;
	struct view_part part[VIEW_PARTS];
};

struct view_case {
	uint16_t node, by, victim;
	bool alive, lost, rule;
	uint8_t asks;
	uint64_t since, seen, ask_at, verdict_at;
};

struct view_spare {
	uint16_t index, incarnation;
	uint64_t at; /* to be switched then */
};

struct view_out {
	uint16_t to;
	struct core_view_msg msg;
};

struct core_view {
	struct core_view_cfg cfg;
	uint64_t *member, *suspect, *spoken; /* bits; spoken: the machine had a message for it */
	uint16_t *log;		    /* removed nodes in order */
	uint16_t *relays;	    /* of each node: so often someone was asked to relay to it */
	struct view_spare *spare;
	uint32_t view;
	uint16_t alive, log_n, last_off;
	uint16_t suspects; /* members that are suspected */
	bool out;	   /* we were removed */
	/* acceptor, for view + 1 */
	uint64_t promised, accepted;
	struct view_set value;
	uint64_t accepted_at;
	/* proposer */
	uint8_t phase, fails;
	uint64_t ballot, round; /* round: highest seen */
	struct view_set want;
	uint64_t wave_end, propose_at;
	bool too_many; /* so many were lost last that they could not be proposed */
	uint16_t word; /* the witness's */
	/* waves: [0] of ballots, [1] beats */
	struct view_wave wave[2];
	uint64_t beat_seq, beat_at, beat_heard;
	/* lease */
	bool acting, has_lease;
	uint64_t fresh; /* no decision had been made then */
	bool stopped, act_halt;
	bool ended, all_ended; /* this node's part; everybody's */
	uint8_t wakes;
	uint64_t began, woke_at, hold_until, ended_at; /* ended_at: ours, then everybody's */
	uint64_t half_at; /* no lease has begun, and half of the members are suspected since; CORE_NEVER */
	/* contact */
	bool met;	 /* all members have voted once: nobody is starting */
	uint64_t look_at, looked_at;
	struct view_nap {
		uint64_t end, gap;
	} nap[VIEW_NAPS];
	uint8_t nap_n, near_n;
	struct view_near {
		uint16_t node;
		bool heard;	/* its link has heard it: silence shows */
		uint64_t since; /* it is watched */
	} near[CORE_VIEW_NEAR];
	/* suspicions */
	struct view_case cases[CORE_VIEW_CASES];
	uint8_t case_n;
	uint64_t report_at, patience_at, patience_end;
	/* actions */
	uint16_t told_n;
	uint32_t told_view;
	bool act_view, act_active, act_stop, act_removed;
	uint64_t switch_at; /* the earliest */
	uint64_t polled_at, due_at; /* due_at: the deadline that was told then */
	uint8_t out_head, out_n;
	struct view_out ring[CORE_VIEW_OUT];
};

static inline bool view_bit(const uint64_t *bits, uint16_t node)
{
	return bits[node / 64] >> (node % 64) & 1;
}

static inline uint64_t view_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t view_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What a ballot's wave may take: twice as long after each that failed, as messages may stand behind data. */
static inline uint64_t view_wave_ns(const struct core_view *v)
{
	return 40 * v->cfg.hop_ns << v->fails;
}

/* view.c */
bool view_set_has(const struct view_set *s, uint16_t node);
void view_set_add(struct view_set *s, uint16_t node);
bool view_set_same(const struct view_set *a, const struct view_set *b);
void view_set_get(struct view_set *s, const struct core_view_msg *m);
void view_set_put(struct core_view_msg *m, const struct view_set *s);
uint16_t view_lowest(const struct core_view *v, bool trusted);
uint64_t view_turn(const struct core_view *v);
uint64_t view_mix(uint64_t z); /* as good as random */
uint64_t view_noise(const struct core_view *v, uint64_t below);
void view_install(struct core_view *v, const struct view_set *s, uint64_t now);
void view_learn(struct core_view *v, const struct core_view_msg *m, uint64_t now);
void view_log_put(const struct core_view *v, struct core_view_msg *m, uint16_t off);

/* view_lease.c */
void view_renew(struct core_view *v, uint64_t fresh, uint64_t now); /* no decision had been made at fresh */
void view_lease_all_ended(struct core_view *v, uint64_t now);
void view_lease_woke(struct core_view *v, uint64_t now);
void view_lease_tick(struct core_view *v, uint64_t now);
uint64_t view_lease_due(const struct core_view *v);

/* view_poll.c */
void view_msg(const struct core_view *v, struct core_view_msg *m, uint8_t type, uint16_t dst);
void view_send(struct core_view *v, const struct core_view_msg *m, uint16_t via);

/* view_wave.c */
void view_wave_root(struct core_view *v, uint8_t phase, uint64_t ballot, const struct view_set *s,
	uint64_t now);
void view_wave_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now);
void view_tally_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now);
void view_grant_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now);
void view_wave_tick(struct core_view *v, uint64_t now);
uint64_t view_wave_due(const struct core_view *v);
void view_beat_tick(struct core_view *v, uint64_t now);

/* view_ballot.c */
bool view_vote(struct core_view *v, const struct core_view_msg *m, uint64_t now);
bool view_quorum(const struct core_view *v, const struct view_wave *w);
uint32_t view_count(const struct view_wave *w);
uint32_t view_ended_count(const struct core_view *v, const struct view_wave *w);
void view_ballot_counted(struct core_view *v, uint64_t now);
void view_nack_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now);
void view_ballot_tick(struct core_view *v, uint64_t now);
uint64_t view_ballot_due(const struct core_view *v);

/* view_doubt.c */
void view_suspect_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now);
void view_doubt_heard(struct core_view *v, uint16_t node, uint64_t now);
void view_doubt_held(struct core_view *v, uint64_t now);
void view_doubt_forget(struct core_view *v, uint64_t now);
void view_doubt_tick(struct core_view *v, uint64_t now);
void view_doubt_again(struct core_view *v, uint64_t now);
void view_doubt_overslept(struct core_view *v, uint64_t now);
uint64_t view_doubt_due(const struct core_view *v);
void view_doubt_lost(const struct core_view *v, struct view_set *s);

#endif
