// SPDX-License-Identifier: BSD-3-Clause
/*
 * The smallest PMIx program that shows a step's PMIx works across nodes: every rank puts its
 * host name, a collecting fence, every rank gets everyone's. Prints one line a rank:
 *
 *	rank R size S host H hosts H0,H1,...
 *
 * With "wait FILE" it then waits until FILE exists and prints "rank R done"; with "fence FILE" there is
 * another fence before, whose result is printed: "rank R fence STATUS".
 */
#include <pmix.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me;

static void check(pmix_status_t rc, const char *what)
{
	if (rc == PMIX_SUCCESS)
		return;
	fprintf(stderr, "rank %u: %s: %s\n", me.rank, what, PMIx_Error_string(rc));
	exit(1);
}

int main(int argc, char **argv)
{
	pmix_proc_t all, peer;
	pmix_value_t value, *got;
	pmix_info_t collect;
	bool yes = true;
	uint32_t size, rank;
	char host[256] = "", hosts[4096] = "";

	check(PMIx_Init(&me, NULL, 0), "PMIx_Init");
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	check(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &got), "PMIx_Get of the size");
	size = got->data.uint32;
	PMIX_VALUE_RELEASE(got);

	gethostname(host, sizeof(host) - 1);
	value.type = PMIX_STRING;
	value.data.string = host;
	check(PMIx_Put(PMIX_GLOBAL, "hello.host", &value), "PMIx_Put");
	check(PMIx_Commit(), "PMIx_Commit");
	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	check(PMIx_Fence(&all, 1, &collect, 1), "PMIx_Fence");

	for (rank = 0; rank < size; rank++) {
		PMIX_LOAD_PROCID(&peer, me.nspace, rank);
		check(PMIx_Get(&peer, "hello.host", NULL, 0, &got), "PMIx_Get of a peer's host");
		strncat(hosts, rank ? "," : "", sizeof(hosts) - strlen(hosts) - 1);
		strncat(hosts, got->data.string, sizeof(hosts) - strlen(hosts) - 1);
		PMIX_VALUE_RELEASE(got);
	}
	printf("rank %u size %u host %s hosts %s\n", me.rank, size, host, hosts);
	fflush(stdout);
	if (argc == 3) {
		while (access(argv[2], F_OK) != 0)
			usleep(20000);
		if (strcmp(argv[1], "fence") == 0) {
			printf("rank %u fence %s\n", me.rank,
				PMIx_Error_string(PMIx_Fence(&all, 1, &collect, 1)));
			fflush(stdout);
		}
		printf("rank %u done\n", me.rank);
	}
	check(PMIx_Finalize(NULL, 0), "PMIx_Finalize");
	return 0;
}
