/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmix.h - a rank's identity, and blobs that ranks publish to each other over PMIx.
 *
 * No function here needs a lock; libpmix has its own. After start-up nothing collective is called:
 * after the loss of a node a collective hangs or kills the step.
 */
#ifndef RCS_PMIX_PMIX_H
#define RCS_PMIX_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rcshare.h"

#define CL_PMIX_ADDR "rcshare.addr.0" /* struct wire_addr of the first endpoint */
#define CL_PMIX_NODE "rcshare.node"   /* struct shm_node_record, by the lowest rank of a node */

struct rcs_pmix {
	bool on;   /* PMIx_Init was called by us: PMIx_Finalize is due (PMIx counts them) */
	bool ours; /* nobody else had called it */
	char nspace[256];
	uint32_t rank, size;	      /* in the namespace: of the step */
	uint32_t local_size, lowest; /* ranks of this node, and the lowest of them */
};

/* Identity. RCS_ERR_NO_PMIX with the remedy where this process has no PMIx server. */
int cl_pmix_open(struct rcs_pmix *p, struct rcs_error *err);
void cl_pmix_close(struct rcs_pmix *p);

int cl_pmix_put(struct rcs_pmix *p, const char *key, const void *data, size_t len,
	struct rcs_error *err);
int cl_pmix_commit(struct rcs_pmix *p, struct rcs_error *err);
/*
 * Waits until that rank has published it, at most CL_PMIX_GET_S, then RCS_ERR_TIMEOUT. Refuses another length
 * than len. While it waits it calls check (NULL: nobody) now and then; what that returns, unless 0, ends it.
 */
#define CL_PMIX_GET_S 120
typedef int (*cl_pmix_check)(void *arg);
int cl_pmix_get(struct rcs_pmix *p, uint32_t rank, const char *key, void *data, size_t len,
	cl_pmix_check check, void *arg, struct rcs_error *err);
/* Collective over the namespace, collects what was published. Start-up only. */
int cl_pmix_fence(struct rcs_pmix *p, struct rcs_error *err);

#endif
