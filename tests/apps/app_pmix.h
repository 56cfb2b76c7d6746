/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * app_pmix.h - one rank a node prints what PMIx events arrive: "rank R: PMIx event NAME key=value ...".
 */
#ifndef RCS_TESTS_APP_PMIX_H
#define RCS_TESTS_APP_PMIX_H

#include <pmix.h>

#include "app.h"
#include "pmix/events.h"

static const char *app_event_name(pmix_status_t code)
{
	switch (code) {
	case RCS_PMIX_RAIL_FAILED:
		return "RAIL_FAILED";
	case RCS_PMIX_RAIL_BACK:
		return "RAIL_BACK";
	case RCS_PMIX_PEER_UNREACHABLE:
		return "PEER_UNREACHABLE";
	case RCS_PMIX_PEER_BACK:
		return "PEER_BACK";
	case RCS_PMIX_RANK_LOST:
		return "RANK_LOST";
	case RCS_PMIX_NODE_LOST:
		return "NODE_LOST";
	case RCS_PMIX_NODE_REPLACED:
		return "NODE_REPLACED";
	default:
		return PMIx_Error_string(code);
	}
}

static void app_on_pmix(size_t id, pmix_status_t code, const pmix_proc_t *source,
	pmix_info_t info[], size_t n, pmix_info_t *results, size_t nresults,
	pmix_event_notification_cbfunc_fn_t done, void *done_arg)
{
	char line[1024];
	int at = snprintf(line, sizeof(line), "rank %u: PMIx event %s", app.rank, app_event_name(code));

	(void)id;
	(void)source;
	(void)results;
	(void)nresults;
	for (size_t i = 0; i < n && at < (int)sizeof(line) - 1; i++) {
		const pmix_value_t *v = &info[i].value;
		size_t room = sizeof(line) - (size_t)at;

		if (strncmp(info[i].key, "rcshare.", 8) != 0)
			continue;
		if (v->type == PMIX_STRING)
			at += snprintf(line + at, room, " %s=\"%s\"", info[i].key, v->data.string);
		else if (v->type == PMIX_UINT32)
			at += snprintf(line + at, room, " %s=%u", info[i].key, v->data.uint32);
		else if (v->type == PMIX_UINT64)
			at += snprintf(line + at, room, " %s=%llu", info[i].key,
				(unsigned long long)v->data.uint64);
	}
	printf("%s\n", line);
	fflush(stdout);
	if (done)
		done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, done_arg);
}

static void app_registered(pmix_status_t status, size_t id, void *arg)
{
	(void)id;
	if (status != PMIX_SUCCESS)
		fprintf(stderr, "rank %u: no PMIx events: %s\n", app.rank, PMIx_Error_string(status));
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

__attribute__((unused)) static void app_listen(void)
{
	pmix_status_t codes[] = {RCS_PMIX_RAIL_FAILED, RCS_PMIX_RAIL_BACK, RCS_PMIX_PEER_UNREACHABLE,
		RCS_PMIX_PEER_BACK, RCS_PMIX_RANK_LOST, RCS_PMIX_NODE_LOST, RCS_PMIX_NODE_REPLACED};
	int done = 0;
	pmix_value_t *v = NULL;
	pmix_proc_t me;
	unsigned local = 0;

	if (app.dir)
		return;
	/* counted by PMIx: the library's own call does not end with this one */
	if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
		return;
	if (PMIx_Get(&me, PMIX_LOCAL_RANK, NULL, 0, &v) == PMIX_SUCCESS) {
		local = v->data.uint16;
		PMIX_VALUE_RELEASE(v);
	}
	if (local)
		return;
	PMIx_Register_event_handler(codes, sizeof(codes) / sizeof(codes[0]), NULL, 0, app_on_pmix,
		app_registered, &done);
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		usleep(1000);
}

#endif
