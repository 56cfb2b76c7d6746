// SPDX-License-Identifier: BSD-3-Clause
/*
 * The least that any start over PMIx takes: PMIx_Init, 64 bytes put, a collecting fence. Each rank
 * prints, from main() on:
 *
 *	pmix rank=R init_ms=I ready_ms=T
 */
#include <pmix.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void check(pmix_status_t rc, const char *what)
{
	if (rc == PMIX_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(rc));
	exit(1);
}

int main(void)
{
	double start = now_ms(), ready, opened;
	pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
	pmix_proc_t me, all;
	pmix_info_t collect;
	bool yes = true;
	char addr[64] = "";

	check(PMIx_Init(&me, NULL, 0), "PMIx_Init");
	opened = now_ms();
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	value.data.bo.bytes = addr;
	value.data.bo.size = sizeof(addr);
	check(PMIx_Put(PMIX_GLOBAL, "start.addr", &value), "PMIx_Put");
	check(PMIx_Commit(), "PMIx_Commit");
	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	check(PMIx_Fence(&all, 1, &collect, 1), "PMIx_Fence");
	ready = now_ms();
	printf("pmix rank=%u init_ms=%.1f ready_ms=%.1f\n", me.rank, opened - start, ready - start);
	fflush(stdout);
	check(PMIx_Finalize(NULL, 0), "PMIx_Finalize");
	return 0;
}
