/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view_sim.h - a step's nodes deciding who is there, under random failures, from one seed.
 *
 * view_world.c has time, chance, the network and the node's owner, which does what the daemon does
 * (node/member.c): it tells what links have heard, publishes how long ranks may act, and obeys; view_fault.c
 * has what breaks; view_check.c what must hold; view_seed.c the run of a seed; view_scale.c one node
 * loss among thousands.
 */
#ifndef RCS_VIEW_SIM_H
#define RCS_VIEW_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view_internal.h"

#define US  1000ull
#define MS  1000000ull
#define SEC 1000000000ull

#define VS_MAX 200u /* nodes under faults */

enum vs_life {
	VS_UP,
	VS_STOPPED, /* SIGSTOP: connections stand, nothing is read */
	VS_DAEMON,  /* daemon dead: connections are refused */
	VS_POWER,   /* silence */
};

struct vs_peer { /* someone the owner has a link with */
	uint16_t node;
	uint64_t heard_at; /* local */
	bool flap;
};

struct vs_node {
	struct core_view *v;
	enum vs_life life;
	int64_t off, drift; /* local clock: off + t + t * drift / 1000 */
	uint64_t run_at, slow;
	bool started;
	struct vs_peer *peer;
	uint32_t peers, peer_cap;
	struct core_view_msg *inbox; /* while stopped */
	uint32_t inbox_n, inbox_cap;
	uint32_t view;		 /* installed, as told by actions */
	uint16_t index, inc;	 /* switched to it */
	uint64_t until;		 /* published to its ranks, local: they write until then, whatever the daemon does */
	bool stopped;		 /* told so; nothing of it reaches others any more */
	bool over;		 /* its step has ended, and nobody needs its vote */
	uint64_t seen_accepted;
	uint32_t seen_view, log_seen;
	bool told_active, told_removed;
	uint64_t sent, beats, known_at; /* beats: of them those of view 0 */
};

enum vs_ev_type { VS_EV_MSG, VS_EV_RUN, VS_EV_START, VS_EV_LOOK, VS_EV_FAULT, VS_EV_HEAL, VS_EV_END };

struct vs_ev {
	uint8_t type, what;
	uint16_t node, arg;
	struct core_view_msg msg;
};

struct vs_key {
	uint64_t t, order;
	uint32_t ev;
};

struct vs_vote { /* a ballot's acceptors */
	uint32_t view;
	uint64_t ballot;
	struct view_set set;
	uint64_t by[(VS_MAX + 63) / 64];
	uint32_t n;
};

struct vs {
	uint64_t seed, rng, now, order;
	bool verbose, failed;
	char why[256];
	struct core_view_cfg cfg;
	uint16_t nodes, active;
	struct vs_node *node;
	bool calm, checks, impatient;
	uint64_t late_look;  /* a look comes so much late at most */
	uint64_t healed_at;  /* the last fault ended then */
	/* network */
	uint8_t *cut;	/* [from * nodes + to]: count */
	uint8_t *part;	/* the same, of a node that reaches some */
	uint8_t *group; /* partition a node is in */
	uint16_t pair[2]; /* cut for ever; equal: none */
	uint32_t loss, dup;
	uint64_t delay, delay_max, late_max; /* late: of impatient seeds */
	uint32_t late_odds;
	uint32_t kill_in, kill_more; /* messages of ballots until their sender dies */
	uint64_t heal_at;
	uint32_t deaths, deaths_max;
	/* decisions: as the first node installed them */
	uint16_t *log;
	uint32_t log_n, views;
	uint64_t *decided_at; /* by view */
	uint16_t *inc;	      /* by index: highest switched */
	uint64_t *gone_at;    /* by node: decided at, or CORE_NEVER */
	struct vs_vote *vote;
	uint32_t votes, vote_cap;
	/* sums */
	uint64_t msgs, beats, decisions, switches, stops;
	/* heap */
	struct vs_key *heap;
	uint32_t heap_n, heap_cap;
	struct vs_ev *ev;
	uint32_t ev_cap, *ev_free, ev_free_n;
};

/* view_world.c */
uint64_t vs_rand(struct vs *s);
uint64_t vs_below(struct vs *s, uint64_t n);
bool vs_chance(struct vs *s, unsigned int percent);
void vs_fail(struct vs *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void vs_trace(struct vs *s, uint16_t node, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
struct vs_ev *vs_at(struct vs *s, uint64_t t, uint8_t type, uint16_t node);
uint64_t vs_local(const struct vs *s, uint16_t node);
bool vs_path(const struct vs *s, uint16_t from, uint16_t to);
void vs_new(struct vs *s, const struct core_view_cfg *cfg, uint16_t nodes);
void vs_free(struct vs *s);
void vs_start(struct vs *s, uint16_t node);
void vs_run(struct vs *s, uint16_t node);
void vs_continue(struct vs *s, uint16_t node);
void vs_until(struct vs *s, uint64_t t, bool (*done)(struct vs *));

/* view_fault.c */
void vs_fault_start(struct vs *s);
void vs_fault(struct vs *s);
void vs_fault_heal(struct vs *s, const struct vs_ev *ev);
void vs_fault_cut(struct vs *s, uint16_t a, uint16_t b, uint64_t most);
void vs_fault_end(struct vs *s);
void vs_kill(struct vs *s, uint16_t node);
bool vs_relayed(const struct vs *s, uint16_t a, uint16_t b);
bool vs_alive(const struct vs *s, uint16_t node);

/* view_check.c */
void vs_check(struct vs *s, uint16_t node);	    /* after anything a node did */
void vs_check_act(struct vs *s, uint16_t node, const struct core_view_act *act);
bool vs_writes(const struct vs *s, uint16_t node);  /* may its ranks do something now? */
bool vs_settled(struct vs *s, char *why, uint32_t size); /* all is as it must be in the end */

/* view_seed.c, view_scale.c */
bool vs_seed(struct vs *s, uint64_t seed);
bool vs_scale(uint16_t nodes);

#endif
