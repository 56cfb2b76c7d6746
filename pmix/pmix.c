/* SPDX-License-Identifier: BSD-3-Clause */
#include "pmix/pmix.h"

#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/lib.h"

#define CHECK_MS 200

static int number(const pmix_proc_t *who, const char *key, uint32_t *out)
{
	pmix_value_t *v = NULL;
	pmix_status_t rc = PMIx_Get(who, key, NULL, 0, &v);

	if (rc != PMIX_SUCCESS)
		return -1;
	switch (v->type) {
	case PMIX_UINT32:
		*out = v->data.uint32;
		break;
	case PMIX_UINT16:
		*out = v->data.uint16;
		break;
	case PMIX_PROC_RANK:
		*out = v->data.rank;
		break;
	default:
		rc = PMIX_ERROR;
	}
	PMIX_VALUE_RELEASE(v);
	return rc == PMIX_SUCCESS ? 0 : -1;
}

/* "0,3-5" is what some servers say, "0,3,4,5" others; the first number is the lowest. */
static uint32_t lowest_local(const pmix_proc_t *all, uint32_t self)
{
	uint32_t low = self;
	pmix_value_t *v = NULL;

	if (PMIx_Get(all, PMIX_LOCAL_PEERS, NULL, 0, &v) != PMIX_SUCCESS)
		return self;
	if (v->type == PMIX_STRING && v->data.string)
		for (char *s = v->data.string, *end; *s; s = *end ? end + 1 : end) {
			unsigned long n = strtoul(s, &end, 10);

			if (end == s)
				break;
			if (n < low)
				low = (uint32_t)n;
		}
	PMIX_VALUE_RELEASE(v);
	return low;
}

int cl_pmix_open(struct rcs_pmix *p, struct rcs_error *err)
{
	pmix_proc_t me, all;
	pmix_status_t rc;

	p->ours = !PMIx_Initialized();
	/* Not under a launcher that has a PMIx server, PMIx_Init may complain at length. */
	if (p->ours && !getenv("PMIX_RANK") && !getenv("PMIX_NAMESPACE"))
		rc = PMIX_ERR_UNREACH;
	else
		rc = PMIx_Init(&me, NULL, 0);
	if (rc != PMIX_SUCCESS)
		return cl_fail(err, RCS_ERR_NO_PMIX, "this step has no PMIx; use srun --mpi=pmix, or "
			"RCS_INIT_NO_PMIX and exchange addresses yourself (PMIx_Init: %s)",
			PMIx_Error_string(rc));
	p->on = true;
	snprintf(p->nspace, sizeof(p->nspace), "%s", me.nspace);
	p->rank = me.rank;
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	if (number(&all, PMIX_JOB_SIZE, &p->size) || !p->size || p->rank >= p->size) {
		cl_pmix_close(p);
		return cl_fail(err, RCS_ERR_NO_PMIX,
			"the PMIx server does not tell how many ranks this step has (PMIX_JOB_SIZE)");
	}
	if (number(&all, PMIX_LOCAL_SIZE, &p->local_size))
		p->local_size = 1;
	p->lowest = lowest_local(&all, p->rank);
	return 0;
}

/* No barrier: PMIX_EMBED_BARRIER is not set, so this is local even after a node loss. */
void cl_pmix_close(struct rcs_pmix *p)
{
	if (p->on)
		PMIx_Finalize(NULL, 0);
	p->on = false;
}

int cl_pmix_put(struct rcs_pmix *p, const char *key, const void *data, size_t len,
	struct rcs_error *err)
{
	pmix_value_t v;
	pmix_status_t rc;

	(void)p;
	PMIX_VALUE_CONSTRUCT(&v);
	v.type = PMIX_BYTE_OBJECT;
	v.data.bo.bytes = (char *)(uintptr_t)data;
	v.data.bo.size = len;
	rc = PMIx_Put(PMIX_GLOBAL, key, &v);
	return rc == PMIX_SUCCESS ? 0 :
		cl_fail(err, RCS_ERR_IO, "PMIx_Put of %s: %s", key, PMIx_Error_string(rc));
}

int cl_pmix_commit(struct rcs_pmix *p, struct rcs_error *err)
{
	pmix_status_t rc = PMIx_Commit();

	(void)p;
	return rc == PMIX_SUCCESS ? 0 :
		cl_fail(err, RCS_ERR_IO, "PMIx_Commit: %s", PMIx_Error_string(rc));
}

/* One PMIx_Get_nb. Who asked may have given it up when the answer comes; the last of the two frees it. */
struct asked {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done, given_up;
	pmix_status_t rc;
	size_t len; /* of bytes, wanted and got */
	uint8_t bytes[];
};

static void asked_free(struct asked *a)
{
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->cond);
	free(a);
}

/* Another process wrote it: it is input. */
static void take(struct asked *a, pmix_status_t status, const pmix_value_t *v)
{
	a->rc = status;
	if (status != PMIX_SUCCESS)
		return;
	if (!v || v->type != PMIX_BYTE_OBJECT || v->data.bo.size != a->len || !v->data.bo.bytes)
		a->rc = PMIX_ERR_BAD_PARAM;
	else
		memcpy(a->bytes, v->data.bo.bytes, a->len);
}

static void got(pmix_status_t status, pmix_value_t *v, void *arg)
{
	struct asked *a = arg;
	bool last;

	pthread_mutex_lock(&a->lock);
	take(a, status, v);
	a->done = true;
	last = a->given_up;
	pthread_cond_signal(&a->cond);
	pthread_mutex_unlock(&a->lock);
	if (last)
		asked_free(a);
}

static struct asked *ask(const pmix_proc_t *who, const char *key, size_t len)
{
	struct asked *a = calloc(1, sizeof(*a) + len);
	pthread_condattr_t attr;
	pmix_status_t rc;

	if (!a)
		return NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->cond, &attr);
	pthread_condattr_destroy(&attr);
	a->len = len;
	rc = PMIx_Get_nb(who, key, NULL, 0, got, a);
	if (rc != PMIX_SUCCESS) { /* then it does not call back */
		a->rc = rc;
		a->done = true;
	}
	return a;
}

static bool answered(struct asked *a, uint32_t ms)
{
	struct timespec until;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&a->lock);
	while (!a->done && !pthread_cond_timedwait(&a->cond, &a->lock, &until))
		;
	done = a->done;
	pthread_mutex_unlock(&a->lock);
	return done;
}

/* Takes what came, or gives up. */
static pmix_status_t asked_end(struct asked *a, void *data)
{
	pmix_status_t rc = PMIX_ERR_TIMEOUT;
	bool done;

	pthread_mutex_lock(&a->lock);
	done = a->done;
	a->given_up = true;
	pthread_mutex_unlock(&a->lock);
	if (!done)
		return rc;
	rc = a->rc;
	if (rc == PMIX_SUCCESS)
		memcpy(data, a->bytes, a->len);
	asked_free(a);
	return rc;
}

/*
 * Of a rank of another node the server waits for what is not published yet, whatever PMIX_TIMEOUT says; of
 * one of this node it says at once that there is nothing (OpenPMIx 4.2 under Slurm 22.05): so it is asked
 * again.
 */
static int get_patiently(const pmix_proc_t *who, const char *key, void *data, size_t len,
	cl_pmix_check check, void *arg, pmix_status_t *rc)
{
	uint64_t until = cl_now() + CL_PMIX_GET_S * 1000000000ull;
	uint32_t step_ms = 1;
	int status = 0;

	*rc = PMIX_ERR_NOT_FOUND;
	while (*rc == PMIX_ERR_NOT_FOUND && !status && cl_now() < until) {
		struct asked *a = ask(who, key, len);

		if (!a) {
			*rc = PMIX_ERR_NOMEM;
			break;
		}
		while (!answered(a, CHECK_MS) && !status && cl_now() < until)
			status = check ? check(arg) : 0;
		*rc = asked_end(a, data);
		if (*rc == PMIX_ERR_NOT_FOUND && !status) {
			usleep(step_ms * 1000);
			step_ms = step_ms < 50 ? 2 * step_ms : step_ms;
			status = check && step_ms > 50 ? check(arg) : 0;
		}
	}
	return *rc == PMIX_SUCCESS ? 0 : status;
}

int cl_pmix_get(struct rcs_pmix *p, uint32_t rank, const char *key, void *data, size_t len,
	cl_pmix_check check, void *arg, struct rcs_error *err)
{
	pmix_proc_t who;
	pmix_status_t rc;
	int status;

	PMIX_LOAD_PROCID(&who, p->nspace, rank);
	status = get_patiently(&who, key, data, len, check, arg, &rc);
	if (status || rc == PMIX_SUCCESS)
		return status;
	if (rc == PMIX_ERR_BAD_PARAM)
		return cl_fail(err, RCS_ERR_VERSION,
			"rank %u published %s in another format; all ranks need the same rcshare release",
			rank, key);
	return cl_fail(err, rc == PMIX_ERR_TIMEOUT || rc == PMIX_ERR_NOT_FOUND ? RCS_ERR_TIMEOUT : RCS_ERR_IO,
		"PMIx_Get of %s of rank %u: %s; did that rank call rcs_publish?", key, rank,
		PMIx_Error_string(rc));
}

int cl_pmix_fence(struct rcs_pmix *p, struct rcs_error *err)
{
	bool yes = true;
	pmix_info_t info;
	pmix_proc_t all;
	pmix_status_t rc;

	PMIX_LOAD_PROCID(&all, p->nspace, PMIX_RANK_WILDCARD);
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	rc = PMIx_Fence(&all, 1, &info, 1);
	PMIX_INFO_DESTRUCT(&info);
	return rc == PMIX_SUCCESS ? 0 : cl_fail(err, RCS_ERR_IO,
		"PMIx_Fence of RCS_INIT_EAGER: %s; all ranks must call it", PMIx_Error_string(rc));
}
