/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device that does not tell the truth: preloaded, it answers for rq_psn. /tmp/lie says how:
 *
 *	stuck	what the host wrote when the queue pair was connected, whatever was executed since
 *	ahead	three packets that were never executed
 *	random	anything
 *
 * Without the file it tells the truth. Built by verbs-build, used by 10-verbs.bats and 26-ledger.bats.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t first_psn[4096]; /* by queue pair number */

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	static int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int);

	if (!real)
		real = (int (*)(struct ibv_qp *, struct ibv_qp_attr *, int))dlsym(RTLD_NEXT, "ibv_modify_qp");
	if (mask & IBV_QP_RQ_PSN)
		first_psn[qp->qp_num % 4096] = a->rq_psn;
	return real(qp, a, mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	static int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	char how[16] = "";
	FILE *f = fopen("/tmp/lie", "re");
	int err;

	if (!real)
		real = (int (*)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))dlsym(
			RTLD_NEXT, "ibv_query_qp");
	err = real(qp, a, mask, init);
	if (f) {
		if (!fgets(how, sizeof(how), f))
			how[0] = '\0';
		fclose(f);
	}
	how[strcspn(how, "\n")] = '\0';
	if (!strcmp(how, "stuck"))
		a->rq_psn = first_psn[qp->qp_num % 4096];
	else if (!strcmp(how, "ahead"))
		a->rq_psn = (a->rq_psn + 3) & 0xffffff;
	else if (!strcmp(how, "random"))
		a->rq_psn = (uint32_t)rand() & 0xffffff;
	return err;
}
