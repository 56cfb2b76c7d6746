/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fence.pml - the fence of a lane with one-sided puts at both its ends: the responder goes to ERR,
 * awaits the barrier and reports how far it executed; the initiator fences, drains, and acts on the
 * report.
 *
 * Requests 0..R-1 are posted on lane generation 1 in order and executed by the responder's NIC in
 * order. The lane dies at any moment. modify_qp(ERR) may return while the NIC still executes one
 * packet; the barrier (the flush of the last receive) comes after that. With the report in hand the
 * initiator completes what lies below it and posts the rest on generation 2, on which frames of
 * generation 1 that are late mean nothing. Reports may be lost and doubled; a new report of the
 * same generation says the same.
 *
 *	spin -a fence.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -E
 *
 * Claims: no put is executed twice; none that completed was not executed; nothing of generation 1
 * is executed after its report; a stale report is not acted on; no buffer is read after its put
 * completed. Planted faults: FAULT_BARRIER (report at once after ERR), FAULT_DRAIN (the initiator
 * acts before its own QP is drained), FAULT_STALE (a report of an old generation is taken),
 * FAULT_COMPLETION (replay by what was completed, not by what was executed).
 */
#define R 3
#define G 3 /* generations: the lane dies twice */

mtype = { UP, ERR, BARRIER, REPORTED }; /* responder's queue pair */
mtype = { READY, FENCED, DRAINED };	/* initiator's */

mtype resp[G + 1], init_qp[G + 1];
byte executed[R];  /* times */
bool done[R];	   /* completed to the user */
byte posted[G + 1], first[G + 1]; /* requests first .. posted - 1 were posted on it */
byte wire[G + 1];  /* next that the initiator's NIC sends */
byte comp[G + 1];  /* next to complete; the NIC may send from there on again */
byte next[G + 1];  /* next that the responder's NIC executes: its rq_psn */
bit inflight[G + 1]; /* a packet is past the check of the QP's state */
bit sent[G + 1];   /* the report was sent; it can be received any time */
byte report[G + 1];
byte gen = 1;	   /* the initiator's current generation */

/* The responder's NIC takes a packet in two steps: it looks at the state, and executes. */
proctype responder_nic()
{
	byte g;

	do
	:: atomic { select(g : 1 .. G);
		if
		:: resp[g] == UP && !inflight[g] && next[g] < wire[g] -> inflight[g] = 1
		:: inflight[g] ->
			assert(resp[g] != REPORTED); /* nothing after the report */
			executed[next[g]]++;
			assert(executed[next[g]] == 1);
			next[g]++;
			inflight[g] = 0
		:: else
		fi; g = 0 }
	od
}

proctype responder()
{
	byte g = 1;

	do
	:: g <= G ->
		/* It notices for itself or is told. Generation g + 1 is set up after g is reported. */
		atomic { posted[g] > 0 -> resp[g] = ERR }
#ifdef FAULT_BARRIER
		resp[g] = BARRIER;
#else
		atomic { !inflight[g] -> resp[g] = BARRIER }
#endif
		atomic { report[g] = next[g]; resp[g] = REPORTED; sent[g] = 1 }
		g++
	:: else -> break
	od
}

/* The initiator's NIC sends what was posted, until its queue pair is drained. */
proctype initiator_nic()
{
	byte g;

	do
	:: atomic { select(g : 1 .. G);
		if
		:: init_qp[g] != DRAINED && wire[g] < posted[g] -> wire[g]++
		:: init_qp[g] != DRAINED && comp[g] < wire[g] ->
			assert(!done[comp[g]]) /* a retry reads a buffer: still ours? */
		:: else
		fi; g = 0 }
	od
}

proctype initiator()
{
	byte i, r, told;

	atomic { first[1] = 0; posted[1] = R }
again:
	do
	/* Completions: what was acknowledged, in order. */
	:: atomic { gen <= G && init_qp[gen] == READY ->
		i = comp[gen];
		if
		:: i < next[gen] -> done[i] = 1; comp[gen] = i + 1
		:: else
		fi }
	:: gen < G -> break /* the lane died */
	:: gen == G -> goto stop
	od;
	init_qp[gen] = FENCED;
#ifndef FAULT_DRAIN
	init_qp[gen] = DRAINED;
#endif
	/* The report of this generation; others are stale. */
	atomic {
		if
		:: sent[gen] -> told = report[gen]
#ifdef FAULT_STALE
		:: gen > 1 && sent[gen - 1] -> told = report[gen - 1]
#endif
		fi;
#ifdef FAULT_COMPLETION
		told = first[gen];
		do
		:: told < R && done[told] -> told++
		:: else -> break
		od;
#endif
		i = first[gen];
		do
		:: i < told -> done[i] = 1; assert(executed[i] >= 1); i++
		:: else -> break
		od;
		if
		:: told < R ->
			gen++;
			first[gen] = told;
			next[gen] = told;
			wire[gen] = told;
			comp[gen] = told;
			posted[gen] = R;
			i = 0; told = 0
		:: else -> goto stop
		fi
	}
	goto again;
stop:
	i = 0;
	do
	:: i < R ->
		assert(!done[i] || executed[i] == 1);
		i++
	:: else -> break
	od
}

init {
	byte k;

	atomic {
		for (k : 1 .. G) {
			resp[k] = UP;
			init_qp[k] = READY
		}
		run responder_nic();
		run responder();
		run initiator_nic();
		run initiator()
	}
}
