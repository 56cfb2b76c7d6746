/* SPDX-License-Identifier: BSD-3-Clause */
#include "pmix/pmix.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib.h"

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

/*
 * Of a rank of another node the server waits for what is not published yet; of one of this node it says
 * at once that there is nothing (OpenPMIx 4.2 under Slurm 22.05). So it is asked again.
 */
static pmix_status_t get_patiently(const pmix_proc_t *who, const char *key, int timeout, pmix_value_t **v)
{
	int waited_ms = 0, step_ms = 1;
	pmix_info_t info;
	pmix_status_t rc;

	PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &timeout, PMIX_INT);
	for (;;) {
		rc = PMIx_Get(who, key, &info, 1, v);
		if (rc != PMIX_ERR_NOT_FOUND)
			break;
		if (waited_ms >= timeout * 1000) {
			rc = PMIX_ERR_TIMEOUT;
			break;
		}
		usleep((useconds_t)step_ms * 1000);
		waited_ms += step_ms;
		step_ms = step_ms < 50 ? 2 * step_ms : step_ms;
	}
	PMIX_INFO_DESTRUCT(&info);
	return rc;
}

int cl_pmix_get(struct rcs_pmix *p, uint32_t rank, const char *key, void *data, size_t len,
	int timeout_s, struct rcs_error *err)
{
	pmix_value_t *v = NULL;
	pmix_proc_t who;
	pmix_status_t rc;
	int ret = 0;

	PMIX_LOAD_PROCID(&who, p->nspace, rank);
	rc = get_patiently(&who, key, timeout_s, &v);
	if (rc != PMIX_SUCCESS)
		return cl_fail(err, rc == PMIX_ERR_TIMEOUT ? RCS_ERR_TIMEOUT : RCS_ERR_IO,
			"PMIx_Get of %s of rank %u: %s; did that rank call rcs_publish?", key, rank,
			PMIx_Error_string(rc));
	/* another process wrote it: it is input */
	if (v->type != PMIX_BYTE_OBJECT || v->data.bo.size != len || !v->data.bo.bytes)
		ret = cl_fail(err, RCS_ERR_VERSION,
			"rank %u published %s in another format; all ranks need the same rcshare release",
			rank, key);
	else
		memcpy(data, v->data.bo.bytes, len);
	PMIX_VALUE_RELEASE(v);
	return ret;
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
