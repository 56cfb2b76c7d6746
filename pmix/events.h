/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * events.h - rcshare's PMIx events: codes and the names of what they carry.
 *
 * Codes lie below PMIX_EXTERNAL_ERR_BASE (-3000), where the standard leaves room for others. Every
 * event is raised with range PMIX_RANGE_LOCAL on each node and PMIX_EVENT_NON_DEFAULT, so only
 * handlers that name a code are called. Constants only: who includes this needs no libpmix.
 * Installed as rcshare_events.h; rcshare-events(7) is the description.
 */
#ifndef RCS_PMIX_EVENTS_H
#define RCS_PMIX_EVENTS_H

#define RCS_PMIX_EVENT_BASE	    (-7300)
#define RCS_PMIX_RAIL_FAILED	    (RCS_PMIX_EVENT_BASE - 1) /* traffic moved to another rail */
#define RCS_PMIX_RAIL_BACK	    (RCS_PMIX_EVENT_BASE - 2)
#define RCS_PMIX_PEER_UNREACHABLE   (RCS_PMIX_EVENT_BASE - 3) /* no path to a node for too long */
#define RCS_PMIX_PEER_BACK	    (RCS_PMIX_EVENT_BASE - 4)
#define RCS_PMIX_RANK_LOST	    (RCS_PMIX_EVENT_BASE - 5) /* a rank died, its node lives */

#define RCS_PMIX_NODE_SUSPECTED	    (RCS_PMIX_EVENT_BASE - 7) /* a node is silent */
#define RCS_PMIX_NODE_LOST	    (RCS_PMIX_EVENT_BASE - 8) /* the members decided that it is lost */
#define RCS_PMIX_PARTITIONED	    (RCS_PMIX_EVENT_BASE - 9) /* this node is not among the majority */
#define RCS_PMIX_NODE_REPLACED	    (RCS_PMIX_EVENT_BASE - 10) /* a spare has a lost node's ranks */

/* enum shm_event_code c <-> PMIx code */
#define RCS_PMIX_EVENT(c)	    (RCS_PMIX_EVENT_BASE - (int)(c))

/* Keys of the payload, and the type of their values. What does not apply is left out. */
#define RCS_PMIX_KEY_JOB	    "rcshare.job"	   /* uint32 */
#define RCS_PMIX_KEY_STEP	    "rcshare.step"	   /* uint32: of the lost rank, of the lost or new node */
#define RCS_PMIX_KEY_ORIGIN	    "rcshare.origin"	   /* uint32: node index that noticed */
#define RCS_PMIX_KEY_SEQ	    "rcshare.seq"	   /* uint64: one more for each event of an origin */
#define RCS_PMIX_KEY_HOST	    "rcshare.host"	   /* string: of the origin */
#define RCS_PMIX_KEY_PEER	    "rcshare.peer"	   /* uint32: other node's index */
#define RCS_PMIX_KEY_PEER_HOST	    "rcshare.peer_host"	   /* string: NODE_LOST, NODE_REPLACED */
#define RCS_PMIX_KEY_INDEX	    "rcshare.index"	   /* uint32: what ranks are numbered by */
#define RCS_PMIX_KEY_INCARNATION    "rcshare.incarnation"  /* uint32: how often it was taken over */
#define RCS_PMIX_KEY_FIRST_RANK	    "rcshare.first_rank"   /* uint32: of that index ... */
#define RCS_PMIX_KEY_RANKS	    "rcshare.ranks"	   /* uint32: ... and how many */
#define RCS_PMIX_KEY_SPARE	    "rcshare.spare"	   /* uint32: node that will take it over */
#define RCS_PMIX_KEY_RAIL	    "rcshare.rail"	   /* uint32 */
#define RCS_PMIX_KEY_TO_RAIL	    "rcshare.to_rail"	   /* uint32: 4 is TCP */
#define RCS_PMIX_KEY_RANK	    "rcshare.rank"	   /* uint32: RANK_LOST */
#define RCS_PMIX_KEY_VIEW	    "rcshare.view"	   /* uint32: number of the view without the lost node */
#define RCS_PMIX_KEY_REASON	    "rcshare.reason"	   /* string */
#define RCS_PMIX_KEY_RESENT	    "rcshare.frames_resent" /* uint32 */
#define RCS_PMIX_KEY_PEERS	    "rcshare.peers"	    /* uint32 */
#define RCS_PMIX_KEY_TIME	    "rcshare.time_ns"	   /* uint64: UTC */
#define RCS_PMIX_KEY_NOTICE	    "rcshare.notice_ns"	   /* uint64: from failure to notice */
#define RCS_PMIX_KEY_RECOVER	    "rcshare.recover_ns"   /* uint64 */
#define RCS_PMIX_KEY_BLACKOUT	    "rcshare.blackout_ns"  /* uint64: how long traffic stood still */

#endif
