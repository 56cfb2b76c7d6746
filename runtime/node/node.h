/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the daemon's objects. One process a job and node, one thread; nothing here is locked.
 *
 *	node ---- chan[]   one an attached endpoint: two rings, a socket         (chan.c, ctl.c)
 *	              ---- accesses what its library is to do for us              (access.c)
 *	     ---- link[]   one a peer node in contact: core machine, slots, lanes (link.c)
 *	              ---- tcp      connection of the management network          (tcp.c)
 *	              ---- rdma[]   RC queue pairs                                (link.c, verbs.c)
 *	              ---- rmas     puts and gets that ranks asked for            (rma.c)
 *	              ---- framed   ... of which what no RDMA reaches             (serve.c)
 *	     ---- regions  memory of ranks                                        (region.c)
 *	     ---- imports  keys of other nodes' regions                           (key.c)
 *	     ---- table    what ranks and tools may read
 */
#ifndef RCS_NODE_NODE_H
#define RCS_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uthash.h>

#include "config/config.h"
#include "core/key.h"
#include "core/link.h"
#include "core/rma.h"
#include "node/addr.h"
#include "node/admit.h"
#include "node/evlog.h"
#include "node/verbs.h"
#include "node/work.h"
#include "shm/channel.h"
#include "wire/frame.h"
#include "wire/record.h"

#define NODE_EP_DAEMON WIRE_EP_DAEMON
#define NODE_CHANS_MAX 1024u
#define NODE_NONE      0xffffffffu

/* Cookies of requests on verbs lanes: what they are, and a number below. */
#define NODE_COOKIE_KIND  (3ull << 62)
#define NODE_COOKIE_DATA  (0ull << 62) /* a DATA frame; its session number */
#define NODE_COOKIE_OTHER (1ull << 62) /* an unnumbered frame */
#define NODE_COOKIE_PIECE (2ull << 62) /* a piece of a put or get (core/rma.h); its index */
#define NODE_COOKIE_WORD  (3ull << 62) /* a ledger write */

struct node;
struct chan;
struct link;
struct tcp_conn;
struct rma;
struct framed;
struct flow;
struct park;
struct access;
struct member;
struct early;

/* What epoll's data points to; the first member of whatever is watched. */
struct watch {
	void (*ready)(struct node *n, struct watch *w, uint32_t events);
	int fd;
};

struct node_opts {
	uint32_t job, restart, self, nodes;
	char **names; /* nodes of them */
	char **addrs; /* what Slurm has as their NodeAddr; NULL, or one is: not known */
	uid_t uid;
	gid_t gid;
	const char *run_dir;
	int token_fd, ready_fd;
	int listen_fd; /* the socket in run_dir, which root has bound; -1: the daemon makes it */
	int rails; /* -1: as configured */
	const char *config, *log_dir;
};

struct region {
	uint32_t id, gen; /* its key */
	bool used;
	bool linger; /* its owner is gone or gives it up: nobody finds it any more, some may still be at it */
	bool answer; /* the owner waits for the end (SHM_MSG_DEREG) */
	bool leaving; /* a thread unregisters it */
	struct chan *owner;   /* NULL: gone */
	uint16_t ep;	      /* ... of that endpoint, also then */
	uint64_t addr, len;
	uint32_t ok, readonly; /* bit r: registered; for reading alone */
	uint32_t mr_handle[WIRE_RAILS_MAX], lkey[WIRE_RAILS_MAX], rkey[WIRE_RAILS_MAX];
	uint32_t epoch[WIRE_RAILS_MAX]; /* verbs_rail_epoch of the loan it was registered with */
	uint32_t uses;			/* local puts and gets under way */
	uint64_t linger_until;
	void *map; /* ours, of SHM_MSG_ALLOC; NULL: none */
	struct core_export x; /* who knows its rkeys */
	struct region *prev, *next; /* those that linger; else next: a free id */
};

/* A key of another node. Requests and announced messages hold it. */
struct import {
	struct import_key {
		uint32_t node, region, gen, ep;
	} key;
	struct core_import m;
	uint32_t epoch; /* of the owner */
	uint32_t announced;
	struct wire_key_info info; /* good: of the whole region */
	UT_hash_handle hh;
};

/* A message that was announced to a channel (RTS), until its receiver fetches it or has it otherwise. */
struct announced {
	struct announced_key {
		uint32_t node, ep;
		uint64_t epoch, op;
	} key;
	struct import *im;
	struct wire_key_info info; /* of the message alone */
	UT_hash_handle hh;
};

/* (node, ep, epoch) that a channel was told to be gone. */
struct gone {
	struct gone_key {
		uint32_t node, ep, epoch;
	} key;
	UT_hash_handle hh;
};

/* Records between head and tail (spill.c). */
struct spill {
	uint8_t *buf;
	size_t head, tail, cap;
};

enum chan_kind { CHAN_NEW, CHAN_RANK, CHAN_MONITOR, CHAN_PLACE };

struct chan {
	struct watch sock; /* first */
	struct watch bell; /* eventfd by which the rank wakes us */
	enum chan_kind kind;
	uid_t uid; /* of its process when it connected */
	uint32_t other_job; /* that it belongs to: every request is refused; 0: to ours */
	uint16_t slot;
	uint32_t epoch;
	uint32_t step, rank, pid;
	int peer_pid; /* the same process, as this daemon's pid namespace numbers it */
	int memfd, rank_bell;
	size_t size;
	uint32_t credit0; /* as in shm, which the rank may write */
	struct shm_channel *shm;
	struct shm_ring tx, rx; /* we consume tx and produce rx */
	bool closing;	 /* socket ended; what was submitted is still taken */
	bool bye;	 /* closed in good order */
	bool dirty;	 /* rx has unpublished records */
	struct spill spill; /* what found no room in rx */
	struct wire_rec *late; /* what arrived while it was closing (detach.c) */
	uint32_t late_n;
	bool stalled;	 /* head of tx waits for room on a link */
	bool broken;
	bool detached;	 /* all that it submitted is routed or parked, and its end is told */
	uint64_t events_end[SHM_EVENTS_MAX]; /* ring positions behind events in the rx ring */
	uint32_t events_n, events_lost, events_said; /* said: of the lost ones, the reader knows */
	struct shm_event *held; /* events that must arrive and have no room yet */
	uint32_t held_n;
	uint64_t msgs_in, msgs_out;
	bool shut; /* its memory is not ours to touch, when last tried: its library does (access.h) */
	struct access *accesses;
	uint32_t access_id, access_out; /* out: in rx, or answered next; 0: none */
	struct gone *gone;
	struct announced *announced;
	struct park *parks; /* records for nodes that take no more now (park.h); bytes of them */
	size_t parked;
	struct rma *rmas; /* its requests under way: none is left when it is freed */
	struct {
		enum { LOAN_NONE, LOAN_OPEN, LOAN_VOID } state;
		bool made; /* the region is new */
		uint64_t until;
		struct wire_key key;
		uint32_t epoch[WIRE_RAILS_MAX]; /* verbs_rail_epoch of what was lent, 0: was not */
	} loan; /* of the uverbs fds (loan.c) */
	struct {
		uint32_t task, local; /* of the step; of this node, once placed */
		bool waits, placed;
	} place; /* CHAN_PLACE (spare.c) */
	uint64_t eager_deadline; /* SHM_MSG_EAGER with last: answer by then; 0: none pending */
	struct chan *next;	 /* list of all */
};

/* What a link pins on each rail, before its lanes pin more. */
#define NODE_LINK_PINNED (CORE_SLOTS * WIRE_FRAME_MAX)
#define NODE_MEMLOCK_ADVICE "set memlock_limit in rcshare.conf, or " \
	"PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"

#define NODE_PARTED "this node was removed by the others of the job, or lost contact with most of them; leave it " \
	"out of further steps (srun -x)"

struct tcp_lane {
	struct tcp_conn *conn; /* established, NULL: none */
	struct tcp_conn *trying; /* own attempt */
	uint64_t heard_at;	 /* the last frame on it */
	uint32_t gen;
};

struct find;

struct link {
	struct node *n;
	uint32_t peer;
	struct core_link core;
	struct verbs_buf *vbuf; /* slots, with verbs; NULL: TCP is its only lane */
	uint8_t *slots;		/* CORE_SLOTS * WIRE_FRAME_MAX */
	uint32_t open_len;	/* payload bytes of the frame being filled: slot of core.next */
	uint8_t *backlog;	/* records that found no slot: [head, tail) of cap */
	size_t bl_head, bl_tail, bl_cap;
	struct verbs_lane *rdma[CORE_RAILS_MAX];
	uint32_t rdma_gen[CORE_RAILS_MAX];
	uint8_t rail_of[CORE_RAILS_MAX]; /* own rail of each lane; rails.h */
	uint8_t offers; /* lanes that the lower node may open: its rails, as far as known */
	struct verbs_target *target[CORE_RAILS_MAX]; /* for probes; NULL: none */
	struct tcp_lane tcp;
	struct sockaddr_storage addr; /* of the peer's daemon; ss_family 0: not known */
	bool dirty; /* core wants polling */
	uint64_t deadline;
	struct core_rma ledger;
	uint8_t words_due; /* bit lane: a ledger write is to be posted */
	struct {
		struct rma *r;
		uint64_t off;
		bool refused; /* by the peer's device, once */
	} piece[CORE_PIECES];
	struct rma *rmas, *ended;
	struct flow *flow, *flows; /* by key; in the order of their turns */
	struct framed *framed;
	uint32_t framed_id;
	struct find *find; /* its address is looked for */
	struct {
		uint64_t since;	/* no attempt to connect has succeeded; 0: none has failed */
		bool told;
		char why[SHM_SENTENCE];
	} contact;
	uint64_t heard_at; /* last frame from the peer; 0: never */
	bool detached_due; /* endpoints here have ended since the last DETACHED */
	bool refused;	   /* its daemon refuses or reset the connection, and none stands since */
	bool lost;	   /* the members decided so: nothing goes there any more */
	uint32_t no_rails; /* region revocations that keep its rails down */
	/* bits of lanes: RAIL_FAILED was told of this peer, is to be told; RAIL_BACK is */
	uint8_t news_told, news_failed, news_back;
	uint64_t resent, tx_frames, rx_frames;
	uint32_t failovers;
	uint32_t restarts; /* how often another daemon than before answered there */
	struct link *next; /* list of all */
};

struct node {
	struct node_opts o;
	struct config cfg;
	uint8_t token[32];
	int epfd;
	bool stop;
	const char *stop_why;
	uint64_t now; /* CLOCK_MONOTONIC ns, once a turn */
	struct verbs *vb;
	char verbs_why[256];
	unsigned rails;
	struct shm_table *table;
	int table_fd;
	size_t table_size;
	struct watch ctl; /* the Unix socket */
	struct watch tcp[ADDR_LISTEN_MAX]; /* listeners, of one port */
	unsigned tcps;
	struct sockaddr_storage listen[ADDR_LISTEN_MAX]; /* where they listen; none: everywhere */
	unsigned listens;
	uint16_t tcp_port;
	struct wire_addr addr; /* own: ep and epoch 0 */
	struct chan *chans;
	struct chan *slot[NODE_CHANS_MAX];
	uint32_t next_epoch;
	uint32_t incarnation; /* of this daemon: another with each start, never 0 */
	uint32_t rank_chans;
	int lock_fd;
	struct link **link; /* [nodes] */
	struct link *links;
	struct tcp_conn *unauth; /* connections that have not proven the token yet */
	struct admit admit;	 /* ... of them those that others have made */
	uint64_t refused;	 /* connections at the control port */
	struct region **regions; /* by id - 1 */
	uint32_t regions_n;
	struct region *regions_free, *lingering;
	struct import *imports;
	struct member *members;
	uint64_t witness_answers; /* of slurmctld */
	uint32_t no_member; /* last step whose nodes could not be watched; NODE_NONE: none */
	struct early *early;
	bool parted;	    /* this node is out of the step, or in a minority */
	struct rma *local_rmas; /* between two ranks of this node */
	bool sweep_due; /* a rank died while it had the uverbs fds on loan */
	struct evlog log;
	uint64_t read_bytes, write_bytes; /* that RDMA READs and WRITEs of ours moved */
	uint64_t event_seq;
	uint32_t rail_told; /* bit r: RAIL_FAILED was raised for it and RAIL_BACK not yet */
	struct rail_news {
		uint64_t told_at;
		struct shm_event first; /* of what waits to be told */
		uint32_t failed;	/* links that have it in news_failed */
	} news[CORE_RAILS_MAX];
	uint64_t news_at; /* something waits to be told then */
	uint64_t cut_off_at; /* unreachable peers since then: */
	uint32_t cut_off;
	uint64_t failovers, replayed, blackout_max;
	uint64_t started_at, tick_at;
	struct works *works; /* jobs off this loop; main.c turns and ends it */
	struct work_queue *mem; /* mem.h */
	struct {
		struct work_queue *queue;
		uint64_t quiet_at; /* since then nobody is there, or squeue was asked */
		bool asked;
	} job; /* job.c */
	bool work; /* something happened in this turn */
	struct {
		uint64_t began, mark, most;	/* of this turn; most and did: its longest part */
		const char *did;
		uint64_t longest, longest_at; /* of all turns, ns; when it ended */
		const char *longest_did;
	} turn; /* from the end of a sleep to the next one */
};

uint64_t node_clock(void);
uint64_t node_utc(void);
int node_watch(struct node *n, struct watch *w, uint32_t events);
void node_rewatch(struct node *n, struct watch *w, uint32_t events);
void node_mute(struct node *n, struct watch *w);    /* no more events of it; the fd stays open */
void node_unwatch(struct node *n, struct watch *w); /* and closes the fd */
/* Waits for events until `until` (node_clock) and handles them; sets n->now. */
void node_wait(struct node *n, uint64_t until);
/* What has been done since the last call of it in this turn; the part that took longest is remembered. */
void node_did(struct node *n, const char *what);

/* syslog.c: never waits; a line that finds no room is counted */
void node_log_open(const char *path); /* of syslogd's socket, "/dev/log"; kept. Before it nothing is said there */
uint32_t node_log_lost(void);
void node_log(struct node *n, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* chan.c: rings */
/* Of one that closes: does its process go on, and perhaps wait for the channel's end? */
static inline bool chan_lives(const struct chan *c)
{
	return c->bye || c->broken;
}
int chan_make(struct node *n, struct chan *c, const struct shm_attach *a, char *why);
void chan_close(struct node *n, struct chan *c, const char *why);
bool chan_poll(struct node *n, struct chan *c); /* takes records from tx; true: did something */
bool chan_drain(struct node *n, struct chan *c); /* ... all that was there; false: one found no room */
/* Copies a record into c's receive ring; false: no room, the channel is broken now. */
bool chan_put(struct node *n, struct chan *c, const struct wire_rec *r, const void *payload);
void chan_flush(struct node *n); /* publishes and wakes */
int chan_arm(struct node *n);	 /* 1: something to do after all */
/* An answer of this daemon to whoever sent a record: routed, never refused. */
void chan_answer(struct node *n, const struct wire_rec *to, struct wire_rec *r, const void *payload);
/* A record for this node, from a link or from a local rank. */
void chan_deliver(struct node *n, const struct wire_rec *r, const void *payload);
struct chan *chan_find(struct node *n, uint16_t slot, uint32_t epoch);
void chan_reap(struct node *n);
void chan_wake_all(struct node *n); /* ranks that sleep: something that is in no record has changed */
/* Answers a record to an endpoint that is not there, if its kind wants that. */
void chan_nobody(struct node *n, const struct wire_rec *r, int status);

/* spill.c: what finds no room in a receive ring */
bool spill_is_empty(const struct chan *c);
int spill_add(struct node *n, struct chan *c, const struct wire_rec *r, const void *payload);
void spill_drain(struct chan *c);
void spill_free(struct chan *c);

/* detach.c: endpoints that end */
bool detach_defer(struct node *n, const struct wire_rec *r); /* true: answered later */
void detach_answer(struct node *n, struct chan *c); /* what waited; not where records are parked for its node */
void detach_done(struct node *n, struct chan *c); /* all that c had submitted is routed, or parked */
void detach_turn(struct node *n);
void detach_receive(struct node *n, const struct wire_rec *r);

/* ctl.c: the socket */
int ctl_open(struct node *n, char *why);
void ctl_close(struct node *n);
void ctl_answer(struct chan *c, const void *msg, size_t len, const int *fds, unsigned nfds);
/* Any answer without fds or fields of its own; err 0: done. */
void ctl_reply(struct chan *c, uint32_t type, int err, const char *sentence);
void ctl_eager_check(struct node *n);
void ctl_tick(struct node *n);
void ctl_dereg_done(struct chan *c);

/* loan.c: ranks register their memory */
void loan_lend(struct node *n, struct chan *c, const struct shm_lend *l);
void loan_reg(struct node *n, struct chan *c, const struct shm_reg *r);
void loan_chan_gone(struct node *n, struct chan *c);
void loan_tick(struct node *n);

/* link.c */
struct link *link_get(struct node *n, uint32_t peer); /* makes it; NULL: no memory */
void link_learn(struct link *l, const struct wire_addr *a);
/* Takes a record for the peer. 0, or -EAGAIN: no room, ask again later. */
int link_append(struct link *l, const struct wire_rec *r, const void *payload);
/* An answer, for which the asker has reserved room: it waits as long as it must. */
void link_answer(struct link *l, const struct wire_rec *r, const void *payload);
/* A record that may be lost: over TCP, before all that waits, where there is a connection that is not mute. */
void link_loose(struct link *l, const struct wire_rec *r, const void *payload);
bool link_busy(const struct link *l); /* its backlog is long */
void link_turn(struct node *n);	 /* sends what may be sent; sets deadlines */
void link_dirty(struct link *l);
void link_rail(struct node *n, unsigned rail, bool ok, enum core_reason why);
void link_frame(struct link *l, uint8_t lane, uint32_t gen, const struct wire_frame *f,
	const uint8_t *payload);
void link_free(struct link *l);
void link_rails(struct link *l, unsigned theirs); /* rails.c: how many the peer has */
/* No step was under way until now: a daemon that died meanwhile is started for the one that begins. */
void link_unwatched(struct node *n);
void link_lost(struct link *l); /* fences all lanes to it and ends what is outstanding */
extern const struct verbs_ops link_verbs_ops;

/* find.c: daemons that nobody has named, by the name of their node and the ports of the job */
void find_link(struct link *l); /* again and again until there is a connection */
void find_end(struct link *l);
/* contact.c: what keeps a connection from standing, and that it stands */
#define CONTACT_SILENT "nothing answers; does a firewall drop control_port?"
void contact_failed(struct link *l, const char *how);
void contact_errno(struct link *l, int err);
void contact_made(struct link *l);
void contact_tick(struct node *n); /* tells of those that last */
/* probe.c */
void probe_learn(struct link *l, uint8_t lane); /* the lane has just been connected */
void probe_ask(struct link *l, uint8_t lane, uint64_t token);
void probe_receive(void *arg, unsigned rail, const void *data, size_t len);

/* tcp.c */
#define TCP_PORTS 8u /* a daemon listens on the first of these that is free, if any is */
uint16_t tcp_port(const struct node *n, unsigned nth);
void tcp_set_port(struct sockaddr_storage *a, uint16_t port); /* IPv4 or IPv6 */
int tcp_listen(struct node *n, char *why);
void tcp_connect(struct link *l);  /* answers by core_link_lane_up or _error */
void tcp_drop(struct link *l);	   /* closes the established connection */
bool tcp_can_send(struct link *l);
int tcp_send(struct link *l, const void *frame, size_t len);
void tcp_tick(struct node *n);
void tcp_close_all(struct node *n);

/* region.c */
struct region *region_find(struct node *n, const struct chan *owner, struct wire_key k);
int region_new(struct node *n, struct chan *c, uint64_t addr, uint64_t len, struct wire_key *k);
/* lent: verbs_rail_epoch of the devices that it was registered with, 0 where none was lent. */
void region_registered(struct node *n, struct region *r, const struct shm_reg *reg,
	const uint32_t lent[WIRE_RAILS_MAX]);
void region_unuse(struct node *n, struct region *r);
void region_drop(struct node *n, struct region *r);
void region_drop_all(struct node *n, struct chan *c);
bool region_is_owned(const struct node *n, const struct chan *c); /* something is, though all was dropped */
void region_sweep(struct node *n);
/* rec: the RTS, with its destination and length. */
void region_fill_rts(struct node *n, struct chan *c, const struct wire_rec *rec, struct wire_rts *rts);
/* The device that each of its rkeys is of: verbs_rail_epoch, its low byte. */
void region_devices(const struct region *r, uint8_t device[WIRE_RAILS_MAX]);
void region_tick(struct node *n);
void region_destroy(struct node *n, struct region *r);
uint32_t region_rails(const struct node *n, const struct region *r); /* bits where it is registered */
/* Memory for rcs_alloc: a new region with a mapping of ours, and its memfd. */
int region_alloc(struct node *n, struct chan *c, uint64_t len, struct wire_key *k, int *fd);
int region_covers(const struct region *r, uint64_t addr, uint64_t len);

/* key.c: what nodes know of each other's regions */
/* The import, with one use more, asked for if it is not known; NULL: no memory. */
struct import *key_import(struct link *l, uint32_t ep, uint32_t epoch, struct wire_key k);
void key_check(struct link *l, struct import *im); /* asks again, before something runs again */
void key_unuse(struct node *n, struct import *im);
void key_rts(struct node *n, const struct wire_rec *r, const struct wire_rts *rts);
/*
 * c fetches the message that (node, ep, epoch) announced as op: its import, with one use more, and where it is
 * in *info. NULL: nothing was announced, or its region is being closed. It can be had once.
 */
struct import *key_message(struct node *n, struct chan *c, const struct announced_key *k,
	struct wire_key_info *info);
void key_message_over(struct node *n, struct chan *c, const struct announced_key *k);
void key_chan_gone(struct node *n, struct chan *c);
void key_receive(struct node *n, const struct wire_rec *r, const void *payload);
bool key_importer(struct region *r, uint32_t node, bool key); /* it is told rkeys; false: no memory */
void key_announce(struct node *n, struct region *r); /* rails changed */
void key_revoke(struct node *n, struct region *r);   /* and then region_destroy */
void key_tick(struct node *n);
void key_node_lost(struct node *n, uint32_t node);
/* Another daemon is there, and all lanes to the former are fenced: it holds nothing, and its keys are gone. */
void key_node_anew(struct node *n, uint32_t node);

/* rma.c */
void rma_get_large(struct node *n, struct chan *c, const struct wire_rec *r, const struct wire_get *g);
void rma_start(struct node *n, struct chan *c, const struct wire_rec *r, const uint8_t *payload);
void rma_pump(struct link *l);
void rma_pump_local(struct node *n);
void rma_done(struct link *l, uint64_t cookie, enum verbs_done how, const char *detail);
void rma_fenced(struct link *l, uint8_t lane, uint32_t gen);
void rma_report(struct link *l, const struct core_act *a);
void rma_chan_gone(struct node *n, struct chan *c);
void rma_restarted(struct link *l); /* all lanes are fenced, the peer's daemon is another: all end */
void rma_free_all(struct link *l);

/* serve.c: the CPU does what no RDMA reaches */
#define SERVE_SLICE WIRE_REC_PAYLOAD_MAX
/* Of a rank's memory. 0 or an rcs_status; UNSUPPORTED: only its library may (access.h). */
int serve_access(struct chan *c, const struct region *r, uint64_t addr, void *buf, size_t len,
	bool write);
void serve_record(struct node *n, const struct wire_rec *r, const void *payload);
bool serve_send(struct link *l, struct rma *r, uint64_t off, uint32_t len); /* false: not now */
void serve_receive(struct node *n, const struct wire_rec *r, const void *payload);
void serve_give_up(struct link *l); /* the node is lost: no answer will come */
void serve_free_all(struct link *l);

/* member.c */
void member_begin(struct node *n, struct chan *c, const struct shm_monitor *m);
void member_end(struct node *n, struct chan *c);
void member_receive(struct node *n, const struct wire_rec *r, const void *payload);
void member_witness(struct node *n, struct chan *c, const struct shm_witness *w);
void member_removed(struct node *n); /* a peer says so of this node */
void member_turn(struct node *n);
uint64_t member_deadline(const struct node *n);
uint64_t member_until(struct node *n, uint32_t step); /* for struct shm_channel */
void member_free_all(struct node *n);

/* spare.c: what ranks of steps with spares ask (member.h has the rest) */
void spare_place(struct node *n, struct chan *c, const struct shm_place *p);
void spare_where(struct node *n, struct chan *c, const struct shm_where *w);
void spare_left(struct node *n, struct chan *c);
uint32_t spare_incarnation(struct node *n, uint32_t step); /* of this node's index */
void spare_receive(struct node *n, const struct wire_rec *r);

/* news.c */
void news_failover(struct link *l, const struct core_failover *f);
void news_lane_back(struct link *l, uint8_t lane);
void news_reachable(struct link *l, bool yes);
void news_turn(struct node *n); /* tells what had to wait */

/* event.c */
void event_raise(struct node *n, struct shm_event *ev); /* to ranks here and daemons elsewhere */
void event_local(struct node *n, struct shm_event *ev); /* ... here only */
void event_receive(struct node *n, const struct shm_event *ev);
/* What a rank has no room for waits, the last word of each thing, and event_held() puts it. */
void event_tell(struct node *n, struct chan *c, const struct shm_event *ev);
void event_held(struct node *n);

/* status.c */
char *status_json(struct node *n); /* malloc'd */

#endif
