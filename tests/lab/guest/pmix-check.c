/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lab-pmix-check: each rank puts its rank, all fence with data, each reads what its right neighbour
 * put. The last word of the lab that PMIx works under its Slurm.
 */
#include <pmix.h>
#include <stdio.h>

#define CHECK(call)                                                                     \
	do {                                                                            \
		pmix_status_t rc = (call);                                              \
		if (rc != PMIX_SUCCESS) {                                               \
			fprintf(stderr, "%s: %s\n", #call, PMIx_Error_string(rc));      \
			return 1;                                                       \
		}                                                                       \
	} while (0)

int main(void)
{
	pmix_value_t value, *got;
	pmix_proc_t me, peer;
	pmix_info_t collect;
	bool yes = true;
	uint32_t size;

	CHECK(PMIx_Init(&me, NULL, 0));
	PMIX_LOAD_PROCID(&peer, me.nspace, PMIX_RANK_WILDCARD);
	CHECK(PMIx_Get(&peer, PMIX_JOB_SIZE, NULL, 0, &got));
	size = got->data.uint32;
	PMIX_VALUE_RELEASE(got);

	value.type = PMIX_UINT32;
	value.data.uint32 = me.rank;
	CHECK(PMIx_Put(PMIX_GLOBAL, "lab.rank", &value));
	CHECK(PMIx_Commit());
	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	CHECK(PMIx_Fence(&peer, 1, &collect, 1));

	peer.rank = (me.rank + 1) % size;
	CHECK(PMIx_Get(&peer, "lab.rank", NULL, 0, &got));
	if (got->type != PMIX_UINT32 || got->data.uint32 != peer.rank) {
		fprintf(stderr, "rank %u: wrong value from rank %u\n", me.rank, peer.rank);
		return 1;
	}
	printf("rank %u of %u read %u\n", me.rank, size, got->data.uint32);
	PMIX_VALUE_RELEASE(got);
	CHECK(PMIx_Finalize(NULL, 0));
	return 0;
}
