/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view.pml - the decision of one view number (runtime/core/view.h): PREPARE, promise, ACCEPT,
 * accept, DECIDED, with proposers that die at any point and messages that are lost, late, doubled
 * and reordered.
 *
 * What was sent may be received at any later time, any number of times, or never; a process that
 * takes no further step is dead. So every order, loss and death is among the runs. Each ballot b
 * has a proposer and its own set, b. A promise is counted where it is made: one that is lost, or
 * that comes after its proposer went on, would do no more than forbid.
 *
 *	spin -a -DN=3 -DB=3 view.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -E
 *
 * N nodes (3, 4), B ballots (2, 3). Planted faults, each must be found: FAULT_PROMISE (an acceptor
 * forgets its promise), FAULT_LOWER (a lower ballot is accepted), FAULT_HIGHEST (the highest
 * accepted set is not carried on), FAULT_QUORUM (half is enough; N=4).
 */
#ifndef N
#define N 3
#endif
#ifndef B
#define B 3
#endif
#ifdef FAULT_QUORUM
#define QUORUM (N / 2)
#else
#define QUORUM (N / 2 + 1)
#endif

#define VOTES(x) (((x) & 1) + (((x) >> 1) & 1) + (((x) >> 2) & 1) + (((x) >> 3) & 1))
#define MINE(x)	 ((x) & (1 << me))

byte promised[N], accepted[N];	    /* acceptors: ballots. The set is offered[accepted] */
bit prepare[B + 1], accept[B + 1];  /* messages that were sent */
byte offered[B + 1];		    /* the set ACCEPT b carries */
byte promises[B + 1], high[B + 1];  /* who promised b; the highest accepted they told */
byte accepts[B + 1];		    /* who accepted b */
byte decided;			    /* the first set decided, 0: none */

/* view_vote(), PREPARE */
#ifdef FAULT_PROMISE
#define PROMISE(b) \
	prepare[b] && !accept[b] && !MINE(promises[b]) && b >= accepted[me]
#define PROMISED(b) skip
#else
#define PROMISE(b) \
	prepare[b] && !accept[b] && !MINE(promises[b]) && b >= promised[me]
#define PROMISED(b) promised[me] = b
#endif
/* view_vote(), ACCEPT */
#ifdef FAULT_LOWER
#define ACCEPT(b) accept[b] && !MINE(accepts[b])
#else
#define ACCEPT(b) accept[b] && !MINE(accepts[b]) && b >= promised[me]
#endif

#define VOTE(b)                                                                      \
	:: d_step { PROMISE(b) -> PROMISED(b);                                       \
		if :: accepted[me] > high[b] -> high[b] = accepted[me] :: else fi;   \
		promises[b] = promises[b] | (1 << me) }                              \
	:: d_step { ACCEPT(b) -> promised[me] = b;                                   \
		accepted[me] = b;                                                    \
		accepts[b] = accepts[b] | (1 << me) }

proctype acceptor(byte me)
{
	do
	VOTE(1)
	VOTE(2)
#if B > 2
	VOTE(3)
#endif
	od
}

/* view_ballot_tick(), view_ballot_counted(), decided() */
proctype proposer(byte b)
{
	prepare[b] = 1;
	d_step {
		VOTES(promises[b]) >= QUORUM ->
#ifdef FAULT_HIGHEST
		offered[b] = b;
#else
		offered[b] = (high[b] -> offered[high[b]] : b);
#endif
		high[b] = 0;
		promises[b] = 0;
		accept[b] = 1
	}
	d_step {
		VOTES(accepts[b]) >= QUORUM ->
		assert(decided == 0 || decided == offered[b]);
		decided = offered[b]
	}
}

init {
	byte k;

	atomic {
		for (k : 0 .. N - 1) {
			run acceptor(k)
		}
		for (k : 1 .. B) {
			run proposer(k)
		}
	}
}
