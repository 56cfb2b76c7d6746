/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_verbs.h - a device in place of libibverbs' own functions: objects with numbers, and nothing behind
 * them. Destroying a queue pair waits while fake.hold is set, as the kernel may. Included once, by the test of
 * verbs*.c that it is part of.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "node/verbs_impl.h"
#include "shm/uverbs.h"

#define FAKE_QUEUE 512u

static struct {
	pthread_mutex_t lock;
	pthread_cond_t some;
	bool hold;		 /* ibv_destroy_qp() waits */
	unsigned holding;	 /* so many do */
	unsigned qps, mrs, ctxs; /* that are there */
	uint32_t next_qpn, next_handle;
	unsigned to_err;	/* queue pairs that were moved there */
	int modify_err;		/* of a move to ERR */
	uint32_t rq_psn;
	unsigned queries;
	struct ibv_wc wc[FAKE_QUEUE]; /* what the completion queue has */
	unsigned wc_head, wc_tail;
	uint64_t posted[FAKE_QUEUE]; /* wr_ids of receives */
	unsigned posted_n;
	unsigned posts_left; /* receives that may be posted yet */
	struct ibv_async_event event;
	bool has_event;
	uint32_t handles[64]; /* that the kernel lists */
	unsigned handles_n;
	uint32_t destroyed[64];
	unsigned destroyed_n;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};

static void fake_reset(void)
{
	pthread_mutex_lock(&fake.lock);
	fake.hold = false;
	fake.qps = fake.mrs = fake.ctxs = 0;
	fake.next_qpn = 100;
	fake.next_handle = 1;
	fake.to_err = fake.queries = 0;
	fake.modify_err = 0;
	fake.rq_psn = 1234;
	fake.wc_head = fake.wc_tail = fake.posted_n = 0;
	fake.posts_left = UINT32_MAX;
	fake.has_event = false;
	fake.handles_n = fake.destroyed_n = 0;
	pthread_mutex_unlock(&fake.lock);
}

static void fake_hold(bool yes)
{
	pthread_mutex_lock(&fake.lock);
	fake.hold = yes;
	pthread_cond_broadcast(&fake.some);
	pthread_mutex_unlock(&fake.lock);
}

static void fake_until_held(void)
{
	pthread_mutex_lock(&fake.lock);
	while (!fake.holding)
		pthread_cond_wait(&fake.some, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	(void)bad;
	if (!fake.posts_left)
		return ENOMEM;
	fake.posts_left--;
	fake.posted[fake.posted_n++ % FAKE_QUEUE] = wr->wr_id;
	return 0;
}

static int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	(void)cq;
	while (got < n && fake.wc_head != fake.wc_tail)
		wc[got++] = fake.wc[fake.wc_head++ % FAKE_QUEUE];
	return got;
}

/* The nth receive of those posted comes back. */
static void fake_received(uint32_t qpn, unsigned nth, enum ibv_wc_status status)
{
	fake.wc[fake.wc_tail++ % FAKE_QUEUE] = (struct ibv_wc){.wr_id = fake.posted[nth % FAKE_QUEUE],
		.status = status, .opcode = IBV_WC_RECV, .qp_num = qpn, .byte_len = 64};
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp *qp = calloc(1, sizeof(*qp));

	qp->context = pd->context;
	qp->qp_context = a->qp_context;
	pthread_mutex_lock(&fake.lock);
	qp->qp_num = fake.next_qpn++;
	fake.qps++;
	pthread_mutex_unlock(&fake.lock);
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	pthread_mutex_lock(&fake.lock);
	fake.holding++;
	pthread_cond_broadcast(&fake.some);
	while (fake.hold)
		pthread_cond_wait(&fake.some, &fake.lock);
	fake.holding--;
	fake.qps--;
	pthread_mutex_unlock(&fake.lock);
	free(qp);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	(void)qp;
	if (mask & IBV_QP_STATE && a->qp_state == IBV_QPS_ERR) {
		if (fake.modify_err)
			return fake.modify_err;
		fake.to_err++;
	}
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)qp;
	(void)mask;
	(void)init;
	fake.queries++;
	a->rq_psn = fake.rq_psn;
	a->qp_state = IBV_QPS_RTS;
	return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	pthread_mutex_lock(&fake.lock);
	mr->handle = mr->lkey = mr->rkey = fake.next_handle++;
	fake.mrs++;
	pthread_mutex_unlock(&fake.lock);
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	pthread_mutex_lock(&fake.lock);
	fake.mrs--;
	pthread_mutex_unlock(&fake.lock);
	free(mr);
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	(void)c;
	return 0;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

int ibv_close_device(struct ibv_context *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&fake.lock);
	fake.ctxs--;
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	(void)ctx;
	if (!fake.has_event)
		return -1;
	*ev = fake.event;
	fake.has_event = false;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	(void)ev;
}

/* The kernel's: lists and destroys regions by their handles. */
int ioctl(int fd, unsigned long request, ...)
{
	struct ib_uverbs_ioctl_hdr *h;
	va_list ap;

	(void)fd;
	(void)request;
	va_start(ap, request);
	h = va_arg(ap, struct ib_uverbs_ioctl_hdr *);
	va_end(ap);
	pthread_mutex_lock(&fake.lock);
	if (h->object_id == UVERBS_OBJECT_MR && h->method_id == UVERBS_METHOD_MR_DESTROY) {
		fake.destroyed[fake.destroyed_n++] = (uint32_t)h->attrs[0].data_s64;
	} else if (h->num_attrs == 3) {
		memcpy((void *)(uintptr_t)h->attrs[2].data, fake.handles, fake.handles_n * sizeof(uint32_t));
		*(uint32_t *)(uintptr_t)h->attrs[1].data = fake.handles_n;
	}
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

/* A rail that works, with a context made of nothing. */
struct fake_rail {
	struct ibv_context ctx;
	struct ibv_pd pd;
	struct ibv_cq cq;
	struct ibv_comp_channel chan;
};

static void fake_rail_make(struct verbs *v, unsigned at, struct fake_rail *f)
{
	struct rail *r = &v->rail[at];

	memset(f, 0, sizeof(*f));
	f->ctx.ops.post_recv = fake_post_recv;
	f->ctx.ops.poll_cq = fake_poll_cq;
	f->pd.context = f->cq.context = &f->ctx;
	f->cq.cqe = 1 << 20;
	f->cq.channel = &f->chan;
	r->v = v;
	r->ctx = &f->ctx;
	r->pd = &f->pd;
	r->cq = &f->cq;
	r->chan = &f->chan;
	r->dev.max_cqe = 1 << 20;
	r->ok = r->carrier = true;
	r->port = 1;
	r->epoch = 1;
	r->closing = calloc(1, sizeof(*r->closing));
	r->work = work_queue_open(v->works, "rail");
	if (v->rails <= at)
		v->rails = at + 1;
	fake.ctxs++;
}

#endif
