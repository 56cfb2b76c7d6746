/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bed.h - two daemons of a job of three nodes in this process, for the fuzzers of sequences. What runs is
 * the daemon's loop with all its objects, and TCP of this host between them; what is not real is listed in
 * bed_os.h, the RDMA ports are bed_verbs.c, and a job that may block runs at once (bed_work.c).
 *
 *	bed_open(): both run, and are connected or know nothing of each other
 *	bed_turn(0), bed_turn(1): one turn of a daemon's loop   bed_pass(): time passes
 *	bed_close(): both end well, and everything is freed; the fuzzer aborts where that is not so
 */
#ifndef RCS_TESTS_FUZZ_BED_H
#define RCS_TESTS_FUZZ_BED_H

#include "node/node.h"

#define BED_NODES   3u /* of the job; the last is never there */
#define BED_DAEMONS 2u
#define BED_RAILS   2u
#define BED_MEM	    0x100000u /* all memory that ranks have: [BED_MEM, BED_MEM + BED_MEM_LEN) */
#define BED_MEM_LEN 65536u
#define BED_MS	    1000000ull

struct bed {
	struct node *n[BED_DAEMONS]; /* NULL: that daemon has ended */
	char dir[BED_DAEMONS][64];
	bool vm_refused; /* the kernel keeps daemons from the memory of ranks */
};
extern struct bed bed;

/* Aborts with the sentence where the fact does not hold. */
void bed_must(bool fact, const char *what);
/* What is done, for whoever replays an input with BED_VERBOSE=1. */
void bed_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void bed_open(bool connected);
void bed_connect(void); /* the first calls the second; both have turns until they are connected */
void bed_os_reset(void); /* by bed_open() */
void bed_turn(unsigned node);
void bed_turns(unsigned k); /* of each daemon */
void bed_pass(uint64_t ns);
/* Time enough for everything that waits for a limit of time, in steps. */
void bed_settle(void);
/* Is each connected with the other, and not out of its step? */
bool bed_whole(void);
/* All ranks are gone: so must be all that was theirs. */
void bed_must_be_empty(unsigned node);
void bed_stop(unsigned node); /* the daemon ends in good order */
void bed_close(void);

/* bed_verbs.c: what becomes of the ports of a daemon */
void bed_verbs_rail(unsigned node, unsigned rail, bool ok, bool replaced);
void bed_verbs_hold(unsigned node, unsigned rail, bool hold); /* nothing that is posted executes */
void bed_verbs_refuse(unsigned node); /* the next put or get is refused by the peer's device */
bool bed_memory(uint64_t addr, void *buf, size_t len, bool write); /* false: not memory of ranks */

#endif
