/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is given back to the kernel. Destroying a queue pair waits until its last packet is freed, and one that
 * waits for an answer of the neighbour on a dead cable takes three seconds (soft RoCE); unpinning takes its
 * time by the gigabyte. So a rail has a queue of its own (work.h), and what goes there goes in order: the queue
 * pairs, then the context they are of.
 *
 * The thread touches nothing but what its job has. The handles of regions count as ours until the loop hears of
 * the end, so a sweep never takes one that was given out anew. Without a thread the job is done at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <utlist.h>

#include "node/verbs_impl.h"
#include "shm/uverbs.h"

static void put(struct rail *r, struct work *w)
{
	if (r->work && !work_put(r->work, w))
		return;
	if (!w->done) {
		w->run(w); /* and frees it */
		return;
	}
	w->run(w);
	w->done(w, r->v);
}

/* --- lanes ------------------------------------------------------------------------------------------ */

static struct verbs_lane *lane_of(struct work *w)
{
	return (struct verbs_lane *)(void *)((char *)w - offsetof(struct verbs_lane, work));
}

static void lane_run(struct work *w)
{
	struct verbs_lane *l = lane_of(w);

	ibv_destroy_qp(l->leaving);
	/* nothing writes the word any more */
	l->word_last = verbs_lane_word_value(l);
	for (unsigned m = 0; m < VERBS_MEMS; m++)
		verbs_lane_mem_free(&l->mem[m]);
}

static void lane_done(struct work *w, void *arg)
{
	struct verbs_lane *l = lane_of(w);

	(void)arg;
	l->leaving = NULL;
	for (unsigned m = 0; m < VERBS_MEMS; m++)
		l->mem[m].handle = VERBS_NO_MR;
	l->reaping = false;
}

void verbs_reap_lane(struct verbs_lane *l)
{
	if (!l->qp)
		return;
	verbs_lane_unlist(l);
	l->leaving = l->qp;
	l->qp = NULL;
	l->reaping = true;
	l->work = (struct work){.run = lane_run, .done = lane_done};
	put(l->rail, &l->work);
}

/* --- datagrams -------------------------------------------------------------------------------------- */

static void ud_destroy(struct ud *u)
{
	if (u->qp)
		ibv_destroy_qp(u->qp);
	if (u->mr)
		ibv_dereg_mr(u->mr);
	if (u->mem)
		munmap(u->mem, u->mem_len);
}

static void ud_run(struct work *w)
{
	ud_destroy(&((struct ud_job *)w)->ud);
}

static void ud_done(struct work *w, void *arg)
{
	struct ud_job *j = (struct ud_job *)w;
	struct verbs *v = arg;

	DL_DELETE(v->ud_jobs, j);
	free(j);
}

void verbs_reap_ud(struct rail *r)
{
	struct ud_job *j = calloc(1, sizeof(*j));

	if (j) {
		j->work = (struct work){.run = ud_run, .done = ud_done};
		j->rail = r;
		j->ud = r->ud;
		j->handle = r->ud.mr ? r->ud.mr->handle : VERBS_NO_MR;
		DL_APPEND(r->v->ud_jobs, j);
		put(r, &j->work);
	} else {
		ud_destroy(&r->ud);
	}
	memset(&r->ud, 0, sizeof(r->ud));
}

struct ah_job {
	struct work work; /* first */
	struct ibv_ah *ah;
};

static void ah_run(struct work *w)
{
	ibv_destroy_ah(((struct ah_job *)w)->ah);
	free(w);
}

void verbs_reap_ah(struct rail *r, struct ibv_ah *ah)
{
	struct ah_job *j = calloc(1, sizeof(*j));

	if (!j) {
		ibv_destroy_ah(ah);
		return;
	}
	j->work.run = ah_run;
	j->ah = ah;
	put(r, &j->work);
}

/* --- regions that ranks left ------------------------------------------------------------------------------- */

static void mr_run(struct work *w)
{
	struct mr_job *j = (struct mr_job *)w;
	struct ib_uverbs_attr attr = {.attr_id = UVERBS_ATTR_DESTROY_MR_HANDLE, .data_s64 = j->handle};

	shm_uverbs_command(j->cmd_fd, j->driver, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, &attr, 1);
}

static void mr_done(struct work *w, void *arg)
{
	struct mr_job *j = (struct mr_job *)w;
	struct verbs *v = arg;

	DL_DELETE(v->mr_jobs, j);
	free(j);
}

void verbs_reap_mr(struct rail *r, uint32_t handle)
{
	struct mr_job *j = calloc(1, sizeof(*j));

	if (!j)
		return; /* the next sweep finds it again */
	j->work = (struct work){.run = mr_run, .done = mr_done};
	j->rail = r;
	j->cmd_fd = r->ctx->cmd_fd;
	j->driver = (uint32_t)r->driver;
	j->handle = handle;
	DL_APPEND(r->v->mr_jobs, j);
	put(r, &j->work);
}

/* --- a context --------------------------------------------------------------------------------------- */

static void context_run(struct work *w)
{
	struct closing *c = (struct closing *)w;

	ud_destroy(&c->ud);
	for (size_t i = 0; i < c->ahs; i++)
		ibv_destroy_ah(c->ah[i]);
	for (size_t i = 0; i < c->mrs; i++)
		ibv_dereg_mr(c->mr[i]);
	if (c->cq) {
		ibv_ack_cq_events(c->cq, c->cq_events);
		ibv_destroy_cq(c->cq);
	}
	if (c->chan)
		ibv_destroy_comp_channel(c->chan);
	if (c->pd)
		ibv_dealloc_pd(c->pd);
	if (c->ctx)
		ibv_close_device(c->ctx);
	free(c->gids);
	free(c->ah);
	free(c->mr);
}

static void context_done(struct work *w, void *arg)
{
	struct closing *c = (struct closing *)w;

	(void)arg;
	c->rail->going--;
	free(c);
}

/* Without memory for the list it goes now. */
static void take_ahs(struct closing *c, struct rail *r)
{
	size_t n = 0;

	for (struct verbs_target *t = r->v->targets; t; t = t->next)
		n += t->rail == r && t->ah;
	c->ah = n ? calloc(n, sizeof(struct ibv_ah *)) : NULL;
	for (struct verbs_target *t = r->v->targets; t; t = t->next)
		if (t->rail == r && t->ah) {
			if (c->ah)
				c->ah[c->ahs++] = t->ah;
			else
				ibv_destroy_ah(t->ah);
			t->ah = NULL;
		}
}

static void take_mrs(struct closing *c, struct rail *r)
{
	unsigned at = (unsigned)(r - r->v->rail);
	size_t n = 0;

	for (struct verbs_buf *b = r->v->bufs; b; b = b->next)
		n += b->mr[at] != NULL;
	c->mr = n ? calloc(n, sizeof(struct ibv_mr *)) : NULL;
	for (struct verbs_buf *b = r->v->bufs; b; b = b->next)
		if (b->mr[at]) {
			if (c->mr)
				c->mr[c->mrs++] = b->mr[at];
			else
				ibv_dereg_mr(b->mr[at]);
			b->mr[at] = NULL;
		}
}

void verbs_reap_context(struct rail *r)
{
	struct closing *c = r->closing;

	if (!c)
		return;
	*c = (struct closing){.work = {.run = context_run, .done = context_done}, .rail = r, .ud = r->ud,
		.cq = r->cq, .cq_events = r->cq_events, .chan = r->chan, .pd = r->pd, .ctx = r->ctx,
		.gids = r->gids};
	take_ahs(c, r);
	take_mrs(c, r);
	memset(&r->ud, 0, sizeof(r->ud));
	r->closing = NULL;
	r->gids = NULL;
	r->cq = NULL;
	r->cq_events = 0;
	r->chan = NULL;
	r->pd = NULL;
	r->ctx = NULL;
	r->going++;
	DL_APPEND(r->v->closing, c);
}

/* --- the loop's side ----------------------------------------------------------------------------------- */

/* Its files were watched; by now that has ended (verbs_fds_version). */
static void contexts_hand_over(struct verbs *v)
{
	struct closing *c, *next;

	DL_FOREACH_SAFE(v->closing, c, next) {
		DL_DELETE(v->closing, c);
		put(c->rail, &c->work);
	}
}

void verbs_reap_turn(struct verbs *v)
{
	struct verbs_lane **p = &v->closed;

	if (v->works)
		works_turn(v->works);
	while (*p) {
		struct verbs_lane *l = *p;

		if (l->qp || l->reaping) {
			p = &l->next;
			continue;
		}
		*p = l->next;
		verbs_lane_free(l);
	}
	contexts_hand_over(v); /* last: one that was never opened whole has memory of its context */
}

bool verbs_reap_end(struct verbs *v)
{
	contexts_hand_over(v);
	if (!works_close(v->works, VERBS_END_MS))
		return false;
	v->works = NULL;
	verbs_reap_turn(v);
	return true;
}
