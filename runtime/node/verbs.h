/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.h - the RDMA ports of this node and the RC queue pairs on them.
 *
 * A rail is one port of one device, with a context, a protection domain and a completion queue of
 * its own. A lane is one RC QP on a rail. One thread, the daemon's loop, calls everything; nothing
 * blocks. What happened is told by callbacks from verbs_poll(), verbs_async(), verbs_tick() and
 * verbs_rail_check() only, so a caller is never surprised inside another call. A callback may close its lane. What
 * verbs_rail_ok() says after verbs_open() is not told again.
 *
 * Fencing (design section 7): verbs_lane_fence() moves the QP to ERR. The lane is fenced when every
 * posted receive and every posted request have come back, and the marker, the last of all posted receives,
 * came back flushed: the engine that executes packets flushes in order, so nothing executes after that. Each
 * posted request is reported by ->done() before ->fenced(). When the marker was taken by a frame, the device
 * is gone, or no flush comes for three seconds, the QP is destroyed, which is a fence too, but leaves no
 * rq_psn; the requests are reported flushed then.
 *
 * Destroying may wait in the kernel: for packets that wait for an answer of the neighbour on a dead cable
 * (three seconds on soft RoCE), or for gigabytes to be unpinned. A thread of the rail does it (verbs_reap.c),
 * in the order asked for, and verbs_poll() hears of the end; the loop goes on meanwhile.
 */
#ifndef RCS_NODE_VERBS_H
#define RCS_NODE_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/link.h"
#include "shm/channel.h"
#include "wire/record.h"

struct config;
struct verbs;
struct verbs_lane;
struct verbs_target;

enum verbs_done {
	VERBS_OK = 0,
	VERBS_FLUSHED,	 /* was not executed, or it is not known */
	VERBS_REQUEST,	 /* the request's own error: protection, length, remote access; wc status in
			  * detail. The QP is in ERR: the lane must be fenced and reopened */
	VERBS_TRANSPORT, /* retries exceeded and the like; QP in ERR */
};

/*
 * What the ledger (design section 7) can count with on a rail's device: see verbs_selftest.h. A device that
 * failed, or whose test has not ended with a result, is in doubt: a fence there destroys the queue pair and
 * tells what stands in the lane's ledger word (core/psn.h), which the peer writes while
 * verbs_lane_wants_word(). With `selftest` off in the configuration devices are believed.
 */
enum verbs_ledger {
	VERBS_LEDGER_UNKNOWN, /* not tested yet, or it could not be: not believed */
	VERBS_LEDGER_RQ_PSN,  /* a flush is a fence, and rq_psn behind it tells what was executed */
	VERBS_LEDGER_NONE,    /* it does not */
};

struct verbs_ops {
	/* a frame arrived (buf valid during the call; the receive is posted again after it) */
	void (*recv)(void *owner, struct verbs_lane *lane, const void *buf, size_t len);
	void (*done)(void *owner, struct verbs_lane *lane, uint64_t cookie, enum verbs_done how,
		const char *detail);
	/* a receive failed or the QP went to ERR without our doing */
	void (*error)(void *owner, struct verbs_lane *lane, enum core_reason why, const char *detail);
	/* what the queue pair tells of what it executed (core/psn.h), and will for ever */
	void (*fenced)(void *owner, struct verbs_lane *lane, enum core_told told, uint32_t number);
	/* rail changed: ok, or not and why */
	void (*rail)(void *arg, unsigned rail, bool ok, enum core_reason why, const char *detail);
	/* the self-test of the rail's device has ended, with what was seen; may be NULL */
	void (*ledger)(void *arg, unsigned rail, enum verbs_ledger ledger, const char *why);
	/* a datagram came in on the rail (data valid during the call); may be NULL */
	void (*datagram)(void *arg, unsigned rail, const void *data, size_t len);
	void *arg; /* of ->rail, ->ledger and ->datagram */
};

struct verbs_sge {
	const void *addr;
	uint32_t len;
	uint32_t lkey;
};

/*
 * Opens the rails that the configuration names ("auto": verbs_find.c chooses). No device is no error:
 * *v is set with zero rails and why says so (why may be NULL). -errno and the sentence in why when a rail the
 * configuration names cannot be used. peers: nodes that the job has beside this one.
 */
int verbs_open(struct verbs **v, const struct config *cfg, unsigned peers, const struct verbs_ops *ops,
	char *why, size_t why_len);
void verbs_close(struct verbs *v);

unsigned verbs_rails(const struct verbs *v);
void verbs_offer(struct verbs *v, unsigned rails); /* so many, the first, to peers; at first all */
/* Ports that "auto" did not make rails of: how many, and which and why, for people. */
unsigned verbs_left_out(const struct verbs *v);
const char *verbs_left_out_why(const struct verbs *v, unsigned i);
bool verbs_rail_ok(const struct verbs *v, unsigned rail);
void verbs_rail_record(struct verbs *v, unsigned rail, struct shm_rail_record *out);
const char *verbs_rail_name(const struct verbs *v, unsigned rail); /* "rxe0/1" */

/*
 * What the self-test found, and the sentence. It runs by itself, from the first verbs_tick() in which the
 * rail works and again for each context opened later, one rail after the other; UNKNOWN until the
 * verbs_tick() after its end.
 */
enum verbs_ledger verbs_rail_ledger(const struct verbs *v, unsigned rail);
const char *verbs_rail_ledger_why(const struct verbs *v, unsigned rail);
const char *verbs_ledger_name(enum verbs_ledger ledger); /* "unknown", "rq_psn", "none" */
/* Its rail's device is in doubt: the peer must be told of it, in each frame. */
bool verbs_lane_doubted(const struct verbs_lane *lane);

/* Memory of the daemon itself, registered on every rail that is there (again when one returns). */
struct verbs_buf;
struct verbs_buf *verbs_buf_new(struct verbs *v, size_t len); /* page aligned, zeroed; NULL: errno */
void *verbs_buf_addr(struct verbs_buf *b);
void verbs_buf_free(struct verbs_buf *b);

/* Lanes. depth: receives of WIRE_FRAME_MAX bytes, besides the marker and 16 for control frames. */
int verbs_lane_open(struct verbs *v, unsigned rail, uint32_t depth, void *owner,
	struct verbs_lane **lane, uint8_t blob[CORE_BLOB]);
/* -EHOSTUNREACH: the peer's address does not answer (yet); the lane is of no use, try again later. */
int verbs_lane_connect(struct verbs_lane *lane, const uint8_t blob[CORE_BLOB]);
int verbs_lane_depth(struct verbs_lane *lane, uint32_t depth);
unsigned verbs_lane_rail(const struct verbs_lane *lane);
unsigned verbs_lane_peer_rail(const struct verbs_lane *lane); /* its index there; once it is connected */
/*
 * The rail among those offered that meets the peer's whose lane has this blob (fabric.h); FABRIC_NONE: none.
 * taken: bits of those that met other rails of that peer.
 */
uint8_t verbs_rail_meet(struct verbs *v, uint32_t taken, const uint8_t blob[CORE_BLOB]);
/* Send requests that may be posted now. Control frames may use all, others leave 8 to them. */
uint32_t verbs_lane_room(const struct verbs_lane *lane);
/* One SEND of frame bytes [at, at+len) of a verbs_buf. 0, -EAGAIN, -EIO (lane unusable). */
int verbs_lane_send(struct verbs_lane *lane, struct verbs_buf *b, size_t at, uint32_t len,
	uint64_t cookie);
/* One SEND of a small unnumbered frame (at most 256 bytes), copied (inline or a bounce slot). */
int verbs_lane_send_copy(struct verbs_lane *lane, const void *frame, uint32_t len,
	uint64_t cookie);
/*
 * RDMA READ and WRITE. At most verbs_lane_reads() READs outstanding: min(local, peer's max_dest) - 1, at
 * least 1. *last_psn: of the request's last packet (core/psn.h).
 */
uint32_t verbs_lane_reads(const struct verbs_lane *lane);
/* Is the peer's device the one of that verbs_rail_epoch (its low byte) there? Before connect: perhaps. */
bool verbs_lane_leads_to(const struct verbs_lane *lane, uint8_t epoch);
struct verbs_rdma {
	bool read;
	uint64_t laddr, raddr;
	uint32_t lkey, rkey, len;
};
int verbs_lane_rdma(struct verbs_lane *lane, const struct verbs_rdma *r, uint64_t cookie,
	uint32_t *last_psn);
/*
 * The ledger write: `number` into the peer's word, behind what was posted before. The peer says that it
 * wants it when the lane is connected, and in each frame (verbs_lane_word_wanted).
 */
bool verbs_lane_wants_word(const struct verbs_lane *lane);
void verbs_lane_word_wanted(struct verbs_lane *lane, bool wanted);
int verbs_lane_word(struct verbs_lane *lane, uint64_t number, uint64_t cookie);
uint64_t verbs_message_max(const struct verbs *v); /* bytes of a request that each rail takes */
void verbs_lane_fence(struct verbs_lane *lane);
void verbs_lane_close(struct verbs_lane *lane); /* after ->fenced(), or never connected */

/*
 * Datagrams of at most VERBS_DATAGRAM bytes, from the UD queue pair of the rail to the one that the peer told
 * in its blob, by the way that packets of the lane take. They may be lost, and nobody says so. A target is
 * made of a connected lane and outlives it; NULL: the peer has no such queue pair, or no memory. It is mute
 * once the rail's device has gone. Owned by the caller.
 */
#define VERBS_DATAGRAM 64u
struct verbs_target *verbs_target_new(struct verbs_lane *lane);
void verbs_target_free(struct verbs_target *t); /* NULL: nothing */
int verbs_target_send(struct verbs_target *t, const void *data, size_t len); /* 0 or -errno */

/* 0: the rail has a UD queue pair; else why it has none, -errno. */
int verbs_rail_datagrams(const struct verbs *v, unsigned rail);

/* Looks at the rail's carrier now: the kernel's word of its loss may come as late as a second (linkwatch). */
void verbs_rail_check(struct verbs *v, unsigned rail);
/* The netlink socket, for epoll: readable is a matter for verbs_async(); -1: there is none. */
int verbs_carrier_fd(const struct verbs *v);

/*
 * The loop's side. verbs_poll handles up to budget completions and returns how many; verbs_async
 * handles async events. verbs_arm asks for notification: 0 armed, 1 there is something, poll again.
 * fds for epoll: two a rail that is there (completion channel, async fd, in this order); they change
 * when a device goes or comes: look at verbs_fds_version before each verbs_poll(), which closes those that
 * went since the last. verbs_work_fd() is readable when something has been destroyed: for verbs_poll().
 */
int verbs_poll(struct verbs *v, int budget);
void verbs_async(struct verbs *v);
int verbs_arm(struct verbs *v);
unsigned verbs_fds(struct verbs *v, int fds[2 * WIRE_RAILS_MAX]);
unsigned verbs_fds_version(const struct verbs *v);
int verbs_work_fd(const struct verbs *v);
/* Looks for devices that came back and ports that changed; call about once a second. */
void verbs_tick(struct verbs *v, uint64_t now_ns);

/* Regions that ranks register themselves (design section 6). fds are duplicates, CLOEXEC, to be sent
 * and closed. Rail r's fd and PD handle at index r; -1 where the rail is not there. */
unsigned verbs_lend(struct verbs *v, int fds[WIRE_RAILS_MAX], uint32_t pd_handle[WIRE_RAILS_MAX],
	uint32_t driver[WIRE_RAILS_MAX]);
int verbs_mr_destroy(struct verbs *v, unsigned rail, uint32_t mr_handle);
/* The same in two parts, since the kernel may be long at it: the second may be called by any thread. */
struct verbs_mr {
	int fd;
	uint32_t driver, handle;
};
bool verbs_mr_take(struct verbs *v, unsigned rail, uint32_t mr_handle, struct verbs_mr *mr); /* false: no fd */
void verbs_mr_end(struct verbs_mr *mr);
/* Destroys MRs on the rail whose handles are not in known[]: what a dying rank left. A thread
 * does it; each is taken once. */
void verbs_mr_sweep(struct verbs *v, unsigned rail, const uint32_t *known, size_t n);
bool verbs_mr_is_own(struct verbs *v, unsigned rail, uint32_t handle); /* of the daemon itself */
/* Grows each time the rail's context is opened: MRs of an older one are gone. */
uint32_t verbs_rail_epoch(const struct verbs *v, unsigned rail);

#endif
