/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - the ledger: pieces of puts and gets of a link, each executed exactly once. A pure machine.
 *
 * A put or get is cut into pieces, each one RDMA WRITE or READ on one lane. The owner (the daemon's
 * runtime/node/rma.c, or the simulator) submits pieces, posts those that core_rma_pick() names, and
 * reports what became of them. Nothing is logged on the way: what a lane did before it died is told by
 * the packet sequence number that the peer's queue pair expects next (design, section 7):
 *
 *	        pick, posted               completion
 *	QUEUED -------------> POSTED ------------------> free
 *	  ^ ^                   |  flushed
 *	  | |  get              |  put
 *	  | +-------------------+-----> HELD    waits for the peer's report of that lane generation
 *	  |                               |
 *	  +--- last PSN not below it -----+---> free, executed: last PSN below the expected one
 *
 * The report exists only when the peer's side is fenced, and is used only when ours is fenced and
 * drained: then every piece of it is HELD or was completed. What is HELD runs on no other lane before.
 * A get has no effect at the peer and always runs again. Where the peer cannot tell (its device is
 * gone) a put runs again if its owner said so (`replay`), else it is ambiguous.
 *
 * Where the peer's device does not tell the truth the owner posts a ledger write behind each batch of
 * puts of a lane: core_rma_mark() says when, and with which number. The report is then the number in
 * the word (psn.h): puts of that batch and those before have executed; the peer cannot tell of others.
 */
#ifndef RCS_CORE_RMA_H
#define RCS_CORE_RMA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link.h"

#define CORE_PIECES 256u /* of a link, under way */

enum core_piece_state {
	CORE_PIECE_FREE = 0,
	CORE_PIECE_QUEUED,
	CORE_PIECE_POSTED,
	CORE_PIECE_HELD,
};

enum core_verb { CORE_PUT, CORE_GET };

enum core_piece_end {
	CORE_PIECE_GOES_ON,   /* it will be posted again, or waits for the report */
	CORE_PIECE_EXECUTED,  /* free */
	CORE_PIECE_AMBIGUOUS, /* free: a put that may or may not have executed */
	CORE_PIECE_REFUSED,   /* free: the request's own error */
};

struct core_piece {
	uint8_t state; /* enum core_piece_state */
	uint8_t verb;  /* enum core_verb */
	uint8_t lane;
	uint8_t rails; /* bit r: may travel on rail r; 0: not now */
	bool replay;
	uint32_t gen;	   /* of lane */
	uint32_t last_psn; /* of its last packet */
	uint32_t len;
	uint32_t mark;	   /* low bits of the ledger write that comes behind it */
	uint64_t queued_at; /* since when it waits for a lane */
	uint16_t next;
};

struct core_rma {
	struct core_piece piece[CORE_PIECES];
	uint16_t free, head, tail; /* lists; CORE_PIECES: none */
	uint16_t used, held;
	struct {
		uint64_t bytes; /* posted */
		uint32_t reads, posts;
		uint64_t marks;	   /* number of the last ledger write */
		uint32_t unmarked; /* puts behind it */
	} lane[CORE_RAILS_MAX];
	uint64_t by_ledger, replayed, ambiguous; /* puts, since the beginning */
};

/* What a lane takes now. */
struct core_rma_room {
	uint32_t posts; /* send requests */
	uint32_t reads; /* READs outstanding at most */
	uint64_t bytes; /* posted at most; one piece goes in any case */
};

void core_rma_init(struct core_rma *m);

/* A new piece, or -1: none free. */
int core_rma_submit(struct core_rma *m, enum core_verb verb, uint32_t len, uint8_t rails,
	bool replay, uint64_t now);
/* A QUEUED piece may now travel on these rails. */
void core_rma_rails(struct core_rma *m, int piece, uint8_t rails);
/* Takes a QUEUED piece out. */
void core_rma_drop(struct core_rma *m, int piece);

/*
 * The piece to be posted next, and on which lane: the first that finds one, on the usable lane with the
 * fewest bytes posted. false: none now. Answer core_rma_posted(), or nothing, when posting failed.
 */
bool core_rma_pick(const struct core_rma *m, const struct core_link *l,
	const struct core_rma_room room[CORE_RAILS_MAX], int *piece, uint8_t *lane);
void core_rma_posted(struct core_rma *m, struct core_link *l, int piece, uint8_t lane,
	uint32_t last_psn, uint64_t now);

/*
 * The number of the ledger write that is to be posted on the lane now; 0: none. turn_ends: nothing more
 * is posted in this turn; before that a batch is closed when it has CORE_BATCH puts. Answer
 * core_rma_marked(), or nothing, when posting failed: it is asked for again.
 */
#define CORE_BATCH 8u
uint64_t core_rma_mark(const struct core_rma *m, uint8_t lane, bool turn_ends);
void core_rma_marked(struct core_rma *m, uint8_t lane);

/* What the completion of a POSTED piece says. After a flush of a put: GOES_ON, it is HELD. */
enum core_piece_how { CORE_PIECE_OK, CORE_PIECE_FLUSHED, CORE_PIECE_ERROR };
enum core_piece_end core_rma_completed(struct core_rma *m, struct core_link *l, int piece,
	enum core_piece_how how, uint64_t now);

/* Our side of the lane is fenced and drained: asks the peer for its report if anything is HELD. */
void core_rma_fenced(struct core_rma *m, struct core_link *l, uint8_t lane, uint32_t gen,
	uint64_t now);

/*
 * CORE_ACT_REPORT: call until -1; each call settles one piece. *end is EXECUTED or AMBIGUOUS (free), or
 * GOES_ON: it did not execute and is QUEUED with rails 0. The caller must make sure that its key is
 * still good before it gives it rails again: its NAK may have been what was lost.
 */
int core_rma_settle(struct core_rma *m, uint8_t lane, uint32_t gen, enum core_told told,
	uint32_t number, uint64_t now, enum core_piece_end *end);

/* The peer is lost for good and our side is fenced: a HELD piece is over, executed or not. */
void core_rma_give_up(struct core_rma *m, int piece);

static inline bool core_rma_idle(const struct core_rma *m)
{
	return m->used == 0;
}

#endif
