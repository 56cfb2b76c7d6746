/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_selftest.h - does a device tell the truth in rq_psn? Inside of verbs*.c and its tests.
 *
 * The ledger (design section 7) believes that the expected PSN of a fenced responder says which
 * requests were executed. Not every device keeps that promise (one returns a number that the host
 * wrote), so each proves it on a pair of RC queue pairs that are connected to each other:
 *
 *	poster thread   initiator QP  - - RDMA WRITEs, back to back - - >  responder QP   test thread
 *	                source area                                        target area
 *
 * While the writes run the responder goes to ERR. When its posted receives have come back flushed
 * and its CQ is empty (the barrier that lanes use, too), rq_psn and the target area are read, and
 * again after the initiator was drained. selftest_judge() compares the count with the memory. Some
 * bursts, each on new queue pairs and from a random first PSN; the second wraps 2^24.
 *
 * Each write goes to a slot of its own, used again in the next lap, when the write before it has
 * completed. Bytes tell the lap they are of, so that memory shows for each packet which write it came
 * from:
 *
 *	slot       0      1      2               ...  47    | 0      1      ...
 *	write      1      2      3 (3 packets)        48    | 49     50            lap 1 | lap 2
 *	pieces     0      1      2  3  4              59    | 0      1
 *
 * Then the hammer: some hundred fences more, eight bursts at once, of small writes. A provider that makes up
 * flushes in software, while the device executes on, is found by what it does: memory changes behind the
 * fence now and then. Only a device that passed all of it is believed.
 *
 * A test has a context of its own, so that nothing it makes meets the rail's, and a device that is
 * unplugged waits for nobody else: it ends within some milliseconds when it is cancelled or the
 * device goes. All it registers is below 256 KiB. At most two threads, all signals blocked.
 */
#ifndef RCS_NODE_VERBS_SELFTEST_H
#define RCS_NODE_VERBS_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "node/verbs.h"

/* --- the judge: pure ----------------------------------------------------------------------------- */

#define SELFTEST_SIZES	16u
#define SELFTEST_SLOTS	(3u * SELFTEST_SIZES)
#define SELFTEST_PIECES 64u
#define SELFTEST_TORN	UINT32_MAX

/* What the writes look like: lengths, offsets in an area, packets. */
struct selftest_layout {
	uint32_t mtu;			     /* bytes */
	uint32_t len[SELFTEST_SLOTS];	     /* bytes of a write */
	uint32_t at[SELFTEST_SLOTS];	     /* offset in the area */
	uint32_t piece[SELFTEST_SLOTS + 1]; /* first piece of the slot; a piece is what a packet brings */
	uint32_t size;			     /* bytes of an area */
};
void selftest_layout_make(struct selftest_layout *l, uint32_t mtu);
void selftest_layout_small(struct selftest_layout *l, uint32_t mtu); /* of the hammer: 64 bytes each */

/* The bytes that write `number` (from 1) puts into its slot of area. */
void selftest_fill(const struct selftest_layout *l, uint8_t *area, uint32_t number);
/* The area before any write. */
void selftest_clear(const struct selftest_layout *l, uint8_t *area);
/*
 * seen[]: for each piece the number of the write that it shows, 0 before any, SELFTEST_TORN when it
 * shows no one's. posted: writes that were posted.
 */
void selftest_look(const struct selftest_layout *l, const uint8_t *area, uint32_t posted,
	uint32_t seen[SELFTEST_PIECES]);

struct selftest_trial {
	const struct selftest_layout *layout;
	uint32_t first_psn;
	uint32_t posted, acked;		 /* writes; acked: completed with success, after the drain */
	uint32_t rq_psn, rq_psn_again;	 /* after the barrier, and after the drain */
	uint32_t seen[SELFTEST_PIECES], seen_again[SELFTEST_PIECES]; /* then */
};

enum selftest_verdict {
	SELFTEST_TRUE,	/* count and memory agree, and the burst was cut */
	SELFTEST_UNCUT, /* they agree, but all that was posted had been executed: says nothing */
	SELFTEST_FALSE, /* they do not; why has the sentence */
};

/*
 * Every write whose last PSN is below rq_psn is in memory whole, no other is: only the one that
 * rq_psn stands in may be there in part, because it runs again as a whole. Nothing changes after the
 * report.
 */
enum selftest_verdict selftest_judge(const struct selftest_trial *t, char *why, size_t why_len);

/* --- the test ------------------------------------------------------------------------------------- */

struct selftest;

struct selftest_where {
	char device[64];
	uint8_t port, gid_index;
	uint8_t gid[16];
	uint32_t mtu; /* path MTU in bytes */
	uint16_t pkey_index;
	uint8_t service_level, traffic_class;
};

/* Starts a test in a thread of its own; 0 or -errno. */
int selftest_start(struct selftest **st, const struct selftest_where *where);
/* Whether it has ended, without waiting. Once true, *result and *why (valid until selftest_end). */
bool selftest_done(struct selftest *st, enum verbs_ledger *result, const char **why);
/* Tells it to end soon: the result will be VERBS_LEDGER_UNKNOWN if it has none yet. */
void selftest_cancel(struct selftest *st);
/* Frees it; cancels a running one, and waits a second for it at most. st may be NULL. */
void selftest_end(struct selftest *st);

#endif
