/* SPDX-License-Identifier: BSD-3-Clause */
/* A device proves its rq_psn, or does not. verbs_selftest.h has the picture. */
#include "node/verbs_selftest.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "core/psn.h"

#define MS	    1000000ull
#define TRIALS	    8u
#define ENOUGH	    4u /* bursts cut, when there is no time for all */
#define DEADLINE_NS (2000 * MS)
/* Many fences, of small writes, so that a flush which comes before the end is caught at it. */
#define GROUP	      8u /* at once */
#define HAMMER	      320u
#define HAMMER_ENOUGH 32u /* when there is no time for all: emulated devices are slow */
#define HAMMER_NS     (5000 * MS)
#define FLUSH_NS    (500 * MS) /* at least so long for the barrier */
#define LOOK_NS	    (10 * MS)  /* the device is asked this often whether it is there */
/*
 * A packet that executes though it should not does so some milliseconds later (4 to 16 measured), so
 * there is a pause with the path alive between the report and the second look.
 */
#define LATE_NS	   (20 * MS)
#define RECVS	   2u
#define POSTED_MAX (SELFTEST_SLOTS * 1024) /* far below 2^23 PSNs */
/* 16.8 ms, so that the initiator tries again within LATE_NS; 7 would be for ever on some devices. */
#define ACK_TIMEOUT 12
#define ACK_RETRIES 6

struct selftest {
	struct selftest_where where;
	pthread_t thread;
	atomic_bool cancel, done;
	/* the thread's until done */
	enum verbs_ledger result;
	char why[256];
	uint64_t deadline, looked;
	bool gone;
	struct selftest_layout layout, small; /* of bursts; of the hammer */
	struct ibv_context *ctx;
	struct ibv_port_attr port;
	struct ibv_pd *pd;
	uint8_t *area; /* of each burst: source, then target */
	size_t area_len;
	struct ibv_mr *mr;
	uint32_t seed;
};

/* One burst. The poster thread has the initiator and its CQ, the test thread all else. */
struct burst {
	struct selftest *st;
	const struct selftest_layout *layout;
	uint8_t *source, *target, *copy; /* copy: of target, behind the fence */
	struct ibv_cq *cq, *marker_cq;
	struct ibv_qp *initiator, *responder;
	uint32_t posted, completed, acked; /* the poster's while it runs */
	atomic_uint acked_now;
	atomic_bool broke;
	struct selftest_trial trial;
};

/* Bursts at once, of one poster. */
struct group {
	struct burst b[GROUP];
	unsigned n;
	atomic_bool stop;
};

enum step { GOES_ON, SPOILED, ENDS };

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Good enough for PSNs and moments. */
static uint32_t any(struct selftest *st)
{
	st->seed = st->seed * 1664525u + 1013904223u;
	return st->seed >> 8;
}

/* Whether to stop at once: cancelled, or the device is not what it was. */
static bool leave(struct selftest *st)
{
	uint64_t now = now_ns();

	if (atomic_load(&st->cancel))
		return true;
	if (!st->gone && now - st->looked > LOOK_NS) {
		st->looked = now;
		st->gone = ibv_query_port(st->ctx, st->where.port, &st->port) ||
			st->port.state != IBV_PORT_ACTIVE;
	}
	return st->gone;
}

/* The same after something failed: is that why? */
static bool lost(struct selftest *st)
{
	st->looked = 0;
	return leave(st);
}

__attribute__((format(printf, 3, 4))) static enum step ends(struct selftest *st,
	enum verbs_ledger result, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(st->why, sizeof(st->why), fmt, ap);
	va_end(ap);
	st->result = result;
	return ENDS;
}

/* --- making and unmaking -------------------------------------------------------------------------- */

static int device_open(struct selftest *st)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int err = ENODEV;

	for (struct ibv_device **d = list; d && *d && !st->ctx; d++)
		if (!strcmp(ibv_get_device_name(*d), st->where.device)) {
			st->ctx = ibv_open_device(*d);
			err = errno;
		}
	if (list)
		ibv_free_device_list(list);
	if (!st->ctx)
		return -err;
	return -ibv_query_port(st->ctx, st->where.port, &st->port);
}

static int resources(struct selftest *st)
{
	size_t len = 2 * (size_t)st->layout.size, hammer = 2 * (size_t)GROUP * st->small.size;

	if (len < hammer)
		len = hammer;
	st->area_len = len;
	st->pd = ibv_alloc_pd(st->ctx);
	if (!st->pd)
		return -errno;
	st->area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (st->area == MAP_FAILED) {
		st->area = NULL;
		return -errno;
	}
	st->mr = ibv_reg_mr(st->pd, st->area, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return st->mr ? 0 : -errno;
}

static void release(struct selftest *st)
{
	if (st->mr)
		ibv_dereg_mr(st->mr);
	if (st->area)
		munmap(st->area, st->area_len);
	if (st->pd)
		ibv_dealloc_pd(st->pd);
	if (st->ctx)
		ibv_close_device(st->ctx);
}

static struct ibv_qp *queue_pair(struct selftest *st, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr qi = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = SELFTEST_SLOTS, .max_recv_wr = RECVS, .max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = st->where.port,
		.pkey_index = st->where.pkey_index, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp *qp = ibv_create_qp(st->pd, &qi);

	if (qp && ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS)) {
		ibv_destroy_qp(qp);
		return NULL;
	}
	return qp;
}

static int connect_to(struct selftest *st, struct ibv_qp *qp, const struct ibv_qp *peer,
	uint32_t rq_psn, uint32_t sq_psn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .dest_qp_num = peer->qp_num, .rq_psn = rq_psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12};
	int err;

	while (128u << a.path_mtu < st->layout.mtu)
		a.path_mtu++;
	a.ah_attr.port_num = st->where.port;
	a.ah_attr.dlid = st->port.lid;
	a.ah_attr.sl = st->where.service_level;
	if (st->port.link_layer == IBV_LINK_LAYER_ETHERNET || st->port.flags & IBV_QPF_GRH_REQUIRED) {
		a.ah_attr.is_global = 1;
		memcpy(&a.ah_attr.grh.dgid, st->where.gid, sizeof(st->where.gid));
		a.ah_attr.grh.sgid_index = st->where.gid_index;
		a.ah_attr.grh.hop_limit = 64;
		a.ah_attr.grh.traffic_class = st->where.traffic_class;
	}
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return -err;
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = ACK_TIMEOUT,
		.retry_cnt = ACK_RETRIES, .rnr_retry = 6, .sq_psn = sq_psn, .max_rd_atomic = 1};
	return -ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int burst_open(struct burst *b, uint32_t first_psn)
{
	struct selftest *st = b->st;
	struct ibv_recv_wr wr = {0}, *bad;
	int err;

	errno = EIO;
	b->cq = ibv_create_cq(st->ctx, SELFTEST_SLOTS + RECVS, NULL, NULL, 0);
	b->marker_cq = b->cq ? ibv_create_cq(st->ctx, SELFTEST_SLOTS + RECVS, NULL, NULL, 0) : NULL;
	b->initiator = b->marker_cq ? queue_pair(st, b->cq) : NULL;
	b->responder = b->initiator ? queue_pair(st, b->marker_cq) : NULL;
	if (!b->responder)
		return errno ? -errno : -EIO;
	b->trial.first_psn = first_psn;
	err = connect_to(st, b->responder, b->initiator, first_psn, any(st) & CORE_PSN_MASK);
	for (unsigned i = 0; i < RECVS && !err; i++)
		err = -ibv_post_recv(b->responder, &wr, &bad);
	if (!err)
		err = connect_to(st, b->initiator, b->responder, any(st) & CORE_PSN_MASK, first_psn);
	return err;
}

static void burst_close(struct burst *b)
{
	if (b->responder)
		ibv_destroy_qp(b->responder);
	if (b->initiator)
		ibv_destroy_qp(b->initiator);
	if (b->marker_cq)
		ibv_destroy_cq(b->marker_cq);
	if (b->cq)
		ibv_destroy_cq(b->cq);
}

/* --- the initiator ---------------------------------------------------------------------------------- */

static bool post(struct burst *b)
{
	struct selftest *st = b->st;
	const struct selftest_layout *l = b->layout;
	uint32_t s = b->posted % SELFTEST_SLOTS;
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)(b->source + l->at[s]), .length = l->len[s],
		.lkey = st->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = b->posted, .sg_list = &sge, .num_sge = l->len[s] ? 1 : 0,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = (uint64_t)(uintptr_t)(b->target + l->at[s]),
			.rkey = st->mr->rkey}}, *bad;

	selftest_fill(l, b->source, b->posted + 1);
	if (ibv_post_send(b->initiator, &wr, &bad))
		return false;
	b->posted++;
	return true;
}

/* Takes completions; how many, or -1. */
static int reap(struct burst *b)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(b->cq, 16, wc);

	for (int i = 0; i < n; i++) {
		b->completed++;
		if (wc[i].status == IBV_WC_SUCCESS)
			b->acked++;
		else
			atomic_store(&b->broke, true);
	}
	if (n > 0)
		atomic_store(&b->acked_now, b->acked);
	return n;
}

/* What there is to do for one; false: nothing. */
static bool post_some(struct burst *b)
{
	int n;

	if (atomic_load(&b->broke))
		return false;
	while (b->posted - b->completed < SELFTEST_SLOTS && b->posted < POSTED_MAX)
		if (!post(b)) {
			atomic_store(&b->broke, true);
			return false;
		}
	n = reap(b);
	if (n < 0)
		atomic_store(&b->broke, true);
	return n > 0;
}

/* Keeps the queues full, also while the responders go to ERR and after that. */
static void *poster(void *arg)
{
	struct group *g = arg;
	unsigned idle = 0;

	while (!atomic_load(&g->stop)) {
		bool did = false;

		for (unsigned i = 0; i < g->n; i++)
			did |= post_some(&g->b[i]);
		idle = did ? 0 : idle + 1;
		if (idle > 64)
			pause_ns(50000);
		else if (idle)
			sched_yield();
	}
	return NULL;
}

/* Everything posted comes back; afterwards the initiator sends nothing more. */
static enum step drain(struct burst *b)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	uint64_t end = now_ns() + FLUSH_NS;

	if (ibv_modify_qp(b->initiator, &a, IBV_QP_STATE))
		return SPOILED;
	while (b->completed < b->posted) {
		int n = reap(b);

		if (n < 0 || leave(b->st) || now_ns() > end)
			return SPOILED;
		if (!n)
			pause_ns(50000);
	}
	return GOES_ON;
}

/* --- the responder ---------------------------------------------------------------------------------- */

static int rq_psn_read(struct burst *b, uint32_t *psn)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr qi;
	int err = ibv_query_qp(b->responder, &a, IBV_QP_RQ_PSN, &qi);

	if (!err)
		*psn = a.rq_psn & CORE_PSN_MASK;
	return -err;
}

/* ERR, and the barrier: all posted receives back, and nothing else in the CQ. */
static enum step fence(struct burst *b)
{
	struct selftest *st = b->st;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	uint64_t start = now_ns();
	unsigned flushed = 0;
	int n, err = ibv_modify_qp(b->responder, &a, IBV_QP_STATE);

	if (err)
		return lost(st) ? SPOILED :
				   ends(st, VERBS_LEDGER_NONE, "a queue pair does not go to ERR: %s",
					   strerror(err));
	for (;;) {
		struct ibv_wc wc;

		n = ibv_poll_cq(b->marker_cq, 1, &wc);
		if (n < 0 || leave(st))
			return SPOILED;
		flushed += n > 0;
		if (!n && flushed == RECVS)
			return GOES_ON;
		if (now_ns() > st->deadline && now_ns() - start > FLUSH_NS)
			return ends(st, VERBS_LEDGER_NONE, "%u of %u posted receives did not come back within %u "
				"ms of ERR: there is no fence", RECVS - flushed, RECVS,
				(unsigned)((now_ns() - start) / MS));
		if (!n)
			pause_ns(50000);
	}
}

/* Fences in mid-burst, and takes down what rq_psn and memory say then. */
static enum step cut(struct burst *b, uint32_t after)
{
	struct selftest *st = b->st;
	enum step s;
	int err;

	while (atomic_load(&b->acked_now) < after) {
		if (atomic_load(&b->broke) || leave(st) || now_ns() > st->deadline)
			return SPOILED;
		pause_ns(50000); /* any moment will do */
	}
	s = fence(b);
	if (s != GOES_ON)
		return s;
	err = rq_psn_read(b, &b->trial.rq_psn);
	if (err)
		return lost(st) ? SPOILED :
				   ends(st, VERBS_LEDGER_NONE, "rq_psn cannot be read: %s", strerror(-err));
	memcpy(b->copy, b->target, b->layout->size); /* read when the poster says how much there was */
	return GOES_ON;
}

/* The path stays alive meanwhile, and the initiator tries again. */
static enum step linger(struct selftest *st)
{
	uint64_t end = now_ns() + LATE_NS;

	while (now_ns() < end) {
		if (leave(st))
			return SPOILED;
		pause_ns(2000000);
	}
	return GOES_ON;
}

/* After the poster's end: what came of one that was cut. */
static enum step burst_end(struct burst *b)
{
	struct selftest_trial *t = &b->trial;
	enum step s = drain(b);

	if (s == GOES_ON && rq_psn_read(b, &t->rq_psn_again))
		s = SPOILED;
	if (s != GOES_ON)
		return s;
	t->layout = b->layout;
	t->posted = b->posted;
	t->acked = b->acked;
	selftest_look(b->layout, b->copy, b->posted, t->seen);
	selftest_look(b->layout, b->target, b->posted, t->seen_again);
	return GOES_ON;
}

/* span: writes among which each is cut. */
static enum step group_run(struct group *g, uint32_t span)
{
	struct selftest *st = g->b[0].st;
	pthread_t thread;
	enum step s = GOES_ON;
	int err;

	err = pthread_create(&thread, NULL, poster, g);
	if (err)
		return ends(st, VERBS_LEDGER_UNKNOWN, "no thread: %s", strerror(err));
	for (unsigned i = 0; i < g->n && s == GOES_ON; i++)
		s = cut(&g->b[i], 16 + any(st) % span);
	if (s == GOES_ON)
		s = linger(st);
	atomic_store(&g->stop, true);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < g->n && s == GOES_ON; i++)
		s = burst_end(&g->b[i]);
	return s;
}

/* --- the whole --------------------------------------------------------------------------------------- */

static enum step group_open(struct group *g, const struct selftest_layout *l, uint8_t *copy, bool wrap)
{
	struct selftest *st = g->b[0].st;

	for (unsigned i = 0; i < g->n; i++) {
		struct burst *b = &g->b[i];
		int err;

		b->st = st;
		b->layout = l;
		b->source = st->area + 2 * (size_t)i * l->size;
		b->target = b->source + l->size;
		b->copy = copy + (size_t)i * l->size;
		selftest_clear(l, b->target);
		/* one that shall wrap 2^24 does so before it may be cut */
		err = burst_open(b, wrap ? CORE_PSN_MASK - any(st) % 16 : any(st) & CORE_PSN_MASK);
		if (err)
			return lost(st) ? SPOILED :
					   ends(st, VERBS_LEDGER_UNKNOWN, "no pair of queue pairs: %s",
						   strerror(-err));
	}
	return GOES_ON;
}

/* n bursts at once; *cuts grows by those that were cut and judged to be true, *agreed also by the uncut. */
static enum step group_judge(struct selftest *st, unsigned n, const struct selftest_layout *l, uint8_t *copy,
	unsigned *cuts, unsigned *agreed)
{
	struct group *g = calloc(1, sizeof(*g));
	unsigned before = *cuts;
	char why[192];
	enum step s;

	if (!g)
		return ends(st, VERBS_LEDGER_UNKNOWN, "no memory");
	g->n = n;
	g->b[0].st = st;
	s = group_open(g, l, copy, *cuts == 1);
	if (s == GOES_ON)
		s = group_run(g, n > 1 ? SELFTEST_SLOTS : 2 * SELFTEST_SLOTS);
	for (unsigned i = 0; i < n; i++)
		burst_close(&g->b[i]);
	for (unsigned i = 0; i < n && s == GOES_ON; i++)
		switch (selftest_judge(&g->b[i].trial, why, sizeof(why))) {
		case SELFTEST_FALSE:
			s = ends(st, VERBS_LEDGER_NONE, "burst %u: %s", *agreed + 1, why);
			break;
		case SELFTEST_TRUE:
			++*cuts;
			++*agreed;
			break;
		default:
			++*agreed;
			break;
		}
	free(g);
	return s == GOES_ON && *cuts == before ? SPOILED : s;
}

static bool goes_on(struct selftest *st, enum step s)
{
	return s != ENDS && !leave(st) && now_ns() < st->deadline;
}

static void bursts(struct selftest *st)
{
	size_t size = st->layout.size > GROUP * st->small.size ? st->layout.size : GROUP * st->small.size;
	uint8_t *copy = malloc(size);
	uint64_t start = now_ns();
	unsigned cuts = 0, agreed = 0, fences = 0, fence_cuts = 0, spoiled = 0;
	enum step s = GOES_ON;

	while (copy && cuts < TRIALS && goes_on(st, s)) {
		s = group_judge(st, 1, &st->layout, copy, &cuts, &agreed);
		spoiled += s == SPOILED;
	}
	st->deadline = now_ns() + HAMMER_NS;
	while (copy && cuts >= ENOUGH && fences < HAMMER && goes_on(st, s)) {
		s = group_judge(st, GROUP, &st->small, copy, &fence_cuts, &fences);
		spoiled += s == SPOILED;
	}
	free(copy);
	if (s == ENDS)
		return;
	if (atomic_load(&st->cancel))
		ends(st, VERBS_LEDGER_UNKNOWN, "cancelled");
	else if (st->gone)
		ends(st, VERBS_LEDGER_UNKNOWN, "the port went away during the test");
	else if (cuts < ENOUGH || fences < HAMMER_ENOUGH)
		ends(st, VERBS_LEDGER_UNKNOWN, "only %u bursts could be cut and %u fences tried within %u ms, %u were "
			"spoiled", cuts, fences, (unsigned)((now_ns() - start) / MS), spoiled);
	else
		ends(st, VERBS_LEDGER_RQ_PSN, "rq_psn agreed with memory in %u bursts cut in the middle, and nothing "
			"executed behind %u fences, within %u ms", cuts, fences,
			(unsigned)((now_ns() - start) / MS));
}

static void *run(void *arg)
{
	struct selftest *st = arg;
	int err;

	pthread_setname_np(pthread_self(), "selftest");
	st->deadline = now_ns() + DEADLINE_NS;
	if (getrandom(&st->seed, sizeof(st->seed), 0) < 0)
		st->seed = (uint32_t)now_ns();
	err = device_open(st);
	if (!err)
		err = resources(st);
	if (err)
		ends(st, VERBS_LEDGER_UNKNOWN, "it cannot be set up: %s", strerror(-err));
	else
		bursts(st);
	release(st);
	atomic_store(&st->done, true);
	return NULL;
}

int selftest_start(struct selftest **out, const struct selftest_where *where)
{
	struct selftest *st = calloc(1, sizeof(*st));
	sigset_t all, before;
	int err;

	if (!st)
		return -ENOMEM;
	st->where = *where;
	selftest_layout_make(&st->layout, where->mtu);
	selftest_layout_small(&st->small, where->mtu);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* its threads inherit that */
	err = pthread_create(&st->thread, NULL, run, st);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		free(st);
		return -err;
	}
	*out = st;
	return 0;
}

bool selftest_done(struct selftest *st, enum verbs_ledger *result, const char **why)
{
	if (!atomic_load(&st->done))
		return false;
	*result = st->result;
	*why = st->why;
	return true;
}

void selftest_cancel(struct selftest *st)
{
	atomic_store(&st->cancel, true);
}

void selftest_end(struct selftest *st)
{
	struct timespec end;

	if (!st)
		return;
	selftest_cancel(st);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec++;
	if (pthread_timedjoin_np(st->thread, NULL, &end)) {
		pthread_detach(st->thread); /* the kernel has it; what it uses stays */
		return;
	}
	free(st);
}
