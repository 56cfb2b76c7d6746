/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device that does not tell the truth: preloaded, it answers for rq_psn. /tmp/lie says how:
 *
 *	stuck	what the host wrote when the queue pair was connected, whatever was executed since
 *	ahead	three packets that were never executed
 *	random	anything
 *	flush	that the receives of a queue pair that is to stop are flushed: its provider says so at once, and the
 *		device goes on executing until the queue pair is destroyed
 *
 * Without the file it tells the truth. Built by verbs-build, used by 10-verbs.bats and 26-ledger.bats.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t first_psn[4096]; /* by queue pair number */

static const char *lie_asked_for(char how[16])
{
	FILE *f = fopen("/tmp/lie", "re");

	how[0] = '\0';
	if (f) {
		if (!fgets(how, 16, f))
			how[0] = '\0';
		fclose(f);
	}
	how[strcspn(how, "\n")] = '\0';
	return how;
}

static bool lies_in_flushes(void)
{
	char how[16];

	return !strcmp(lie_asked_for(how), "flush");
}

/* --- flushes made up in software ----------------------------------------------------------------- */

#define QPS	 256
#define RECEIVES 1024

/* The receives of a queue pair, in their order. */
static struct made_up {
	struct ibv_qp *qp;
	uint64_t id[RECEIVES];
	unsigned head, tail;
	bool stopped; /* as far as the program is told */
} made_up[QPS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int (*real_post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);

static struct made_up *made_up_of(const struct ibv_qp *qp, uint32_t number)
{
	for (int i = 0; i < QPS; i++)
		if (qp ? made_up[i].qp == qp : made_up[i].qp && made_up[i].qp->qp_num == number)
			return &made_up[i];
	return NULL;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = real_post_recv(qp, wr, bad);
	struct made_up *m;

	pthread_mutex_lock(&lock);
	m = made_up_of(qp, 0);
	for (; m && !err && wr; wr = wr->next)
		m->id[m->tail++ % RECEIVES] = wr->wr_id;
	pthread_mutex_unlock(&lock);
	return err;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = real_poll_cq(cq, n, wc);

	pthread_mutex_lock(&lock);
	for (int i = 0; i < got; i++) {
		struct made_up *m = wc[i].opcode & IBV_WC_RECV ? made_up_of(NULL, wc[i].qp_num) : NULL;

		if (m && m->head != m->tail)
			m->head++;
	}
	for (int i = 0; i < QPS && got >= 0; i++) {
		struct made_up *m = &made_up[i];

		while (m->qp && m->stopped && m->qp->recv_cq == cq && m->head != m->tail && got < n)
			wc[got++] = (struct ibv_wc){.wr_id = m->id[m->head++ % RECEIVES],
				.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = m->qp->qp_num};
	}
	pthread_mutex_unlock(&lock);
	return got;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	static struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *);
	struct ibv_qp *qp;
	struct made_up *m;

	if (!real)
		real = (struct ibv_qp *(*)(struct ibv_pd *, struct ibv_qp_init_attr *))dlsym(RTLD_NEXT, "ibv_create_qp");
	qp = real(pd, a);
	if (!qp || !lies_in_flushes())
		return qp;
	pthread_mutex_lock(&lock);
	for (m = made_up; m < made_up + QPS && m->qp; m++)
		;
	if (m < made_up + QPS)
		*m = (struct made_up){.qp = qp};
	if (qp->context->ops.post_recv != post_recv) {
		real_post_recv = qp->context->ops.post_recv;
		real_poll_cq = qp->context->ops.poll_cq;
		qp->context->ops.post_recv = post_recv;
		qp->context->ops.poll_cq = poll_cq;
	}
	pthread_mutex_unlock(&lock);
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	static int (*real)(struct ibv_qp *);
	struct made_up *m;

	if (!real)
		real = (int (*)(struct ibv_qp *))dlsym(RTLD_NEXT, "ibv_destroy_qp");
	pthread_mutex_lock(&lock);
	m = made_up_of(qp, 0);
	if (m)
		m->qp = NULL;
	pthread_mutex_unlock(&lock);
	return real(qp);
}

/* A queue pair without receives is an initiator of the self-test: that one stops. */
static bool stops_in_word(struct ibv_qp *qp)
{
	struct made_up *m;

	pthread_mutex_lock(&lock);
	m = made_up_of(qp, 0);
	if (m && m->head != m->tail)
		m->stopped = true;
	pthread_mutex_unlock(&lock);
	return m && m->stopped;
}

/* --- numbers that are not true ------------------------------------------------------------------- */

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	static int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int);

	if (!real)
		real = (int (*)(struct ibv_qp *, struct ibv_qp_attr *, int))dlsym(RTLD_NEXT, "ibv_modify_qp");
	if (mask & IBV_QP_RQ_PSN)
		first_psn[qp->qp_num % 4096] = a->rq_psn;
	if (mask & IBV_QP_STATE && a->qp_state == IBV_QPS_ERR && lies_in_flushes() && stops_in_word(qp))
		return 0;
	return real(qp, a, mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	static int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	char how[16];
	int err;

	if (!real)
		real = (int (*)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))dlsym(
			RTLD_NEXT, "ibv_query_qp");
	err = real(qp, a, mask, init);
	lie_asked_for(how);
	if (!strcmp(how, "stuck"))
		a->rq_psn = first_psn[qp->qp_num % 4096];
	else if (!strcmp(how, "ahead"))
		a->rq_psn = (a->rq_psn + 3) & 0xffffff;
	else if (!strcmp(how, "random"))
		a->rq_psn = (uint32_t)rand() & 0xffffff;
	return err;
}
