/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bed_rank.h - a rank's end of the control socket and of the rings, without a library: it may do what it
 * likes. And two ranks that do as they should, to see whether others notice.
 */
#ifndef RCS_TESTS_FUZZ_BED_RANK_H
#define RCS_TESTS_FUZZ_BED_RANK_H

#include "bed.h"
#include "pick.h"

#define BED_KEYS 8u

struct bed_rank {
	unsigned node;
	int sock; /* -1: not connected */
	int bell, rank_bell;
	struct shm_channel *shm; /* NULL: not attached */
	size_t size;
	struct shm_ring tx, rx; /* its own ends */
	uint16_t slot;
	uint32_t epoch;
	struct wire_key key[BED_KEYS]; /* of its regions; the oldest are forgotten */
	unsigned keys_n;
	struct wire_rec access; /* the last ACCESS, unanswered; type 0: none */
	uint32_t got[64];	/* records that came, by type */
	uint32_t asked;		/* RMA records to the two daemons there are */
	bool spoilt;		/* its rings make no sense, or its daemon has closed the channel */
	struct wire_rec done, msg; /* the last RMA_DONE, the last MSG */
};

void bed_rank_connect(struct bed_rank *r, unsigned node);
void bed_rank_send(struct bed_rank *r, const void *msg, size_t len, int fd); /* fd -1: none goes along */
void bed_rank_answers(struct bed_rank *r); /* takes what the daemon has answered */
/* Sends an ATTACH as it should be, and takes the answer. */
void bed_rank_attach(struct bed_rank *r);
/* Into the submission ring, and rings the bell. */
void bed_rank_submit(struct bed_rank *r, const struct wire_rec *rec, const void *payload);
/* Out of the receive ring. `serve`: answers what the daemon may not do itself, as its library would. */
void bed_rank_take(struct bed_rank *r, bool serve);
void bed_rank_close(struct bed_rank *r, bool good_bye);
/* Answers the ACCESS that is still due, and all that come, until nothing has come for some seconds; false: there is
 * more. */
bool bed_rank_settle(struct bed_rank *r, unsigned n);
/* A region of all memory that ranks have, registered on both rails. */
void bed_rank_region(struct bed_rank *r);

/* Two honest ranks, one on each daemon; they take what comes in each bed_honest_turn(). */
void bed_honest_open(struct bed_rank h[BED_DAEMONS]);
void bed_honest_turn(struct bed_rank h[BED_DAEMONS]);
/* A message and a put from the first to the second succeed, unless a node was lost. */
void bed_honest_must_work(struct bed_rank h[BED_DAEMONS]);

#endif
