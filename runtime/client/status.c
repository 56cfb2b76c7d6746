/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and sentences of statuses. */
#include <stdarg.h>
#include <stdio.h>

#include "client/lib.h"

static const struct {
	int status;
	const char *name, *text;
} statuses[] = {
	{RCS_OK, "RCS_OK", "success"},
	{RCS_ERR_AGAIN, "RCS_ERR_AGAIN", "no resources now; progress the context and call again"},
	{RCS_ERR_INVALID, "RCS_ERR_INVALID", "an argument is wrong"},
	{RCS_ERR_NO_RUNTIME, "RCS_ERR_NO_RUNTIME",
		"no rcshare runtime; start the step with srun --rcshare=on"},
	{RCS_ERR_VERSION, "RCS_ERR_VERSION", "library, daemon or address of different versions"},
	{RCS_ERR_RUNTIME_LOST, "RCS_ERR_RUNTIME_LOST", "the node's rcshare daemon ended"},
	{RCS_ERR_NO_PMIX, "RCS_ERR_NO_PMIX",
		"this step has no PMIx; use srun --mpi=pmix, or RCS_INIT_NO_PMIX"},
	{RCS_ERR_MEMLOCK, "RCS_ERR_MEMLOCK", "RLIMIT_MEMLOCK is too low"},
	{RCS_ERR_TRUNCATED, "RCS_ERR_TRUNCATED", "the message was longer than the receive buffer"},
	{RCS_ERR_CANCELED, "RCS_ERR_CANCELED", "canceled"},
	{RCS_ERR_PEER_GONE, "RCS_ERR_PEER_GONE", "the endpoint was closed or its process died"},
	{RCS_ERR_NODE_LOST, "RCS_ERR_NODE_LOST",
		"the peer's node died; the request may or may not have executed"},
	{RCS_ERR_AMBIGUOUS, "RCS_ERR_AMBIGUOUS", "a put may or may not have executed"},
	{RCS_ERR_PARTITIONED, "RCS_ERR_PARTITIONED",
		"this node lost contact with the majority of the job"},
	{RCS_ERR_ACCESS, "RCS_ERR_ACCESS", "key, range or right of a remote region"},
	{RCS_ERR_FAULT, "RCS_ERR_FAULT", "a local buffer is not readable or writable"},
	{RCS_ERR_NOMEM, "RCS_ERR_NOMEM", "out of memory"},
	{RCS_ERR_UNSUPPORTED, "RCS_ERR_UNSUPPORTED", "not in this version"},
	{RCS_ERR_FORKED, "RCS_ERR_FORKED", "the context belongs to the process that forked"},
	{RCS_ERR_CLOSED, "RCS_ERR_CLOSED", "the endpoint is closed"},
	{RCS_ERR_BUSY, "RCS_ERR_BUSY", "still in use"},
	{RCS_ERR_IO, "RCS_ERR_IO", "a system call failed"},
	{RCS_ERR_TIMEOUT, "RCS_ERR_TIMEOUT", "nothing happened in time"},
	{RCS_ERR_PROTOCOL, "RCS_ERR_PROTOCOL", "the channel was damaged; the endpoint is detached"},
	{RCS_NOT_NEEDED, "RCS_NOT_NEEDED", "this spare was not needed"},
};

#define STATUSES (sizeof(statuses) / sizeof(statuses[0]))

const char *rcs_status_name(int status)
{
	for (size_t i = 0; i < STATUSES; i++)
		if (statuses[i].status == status)
			return statuses[i].name;
	return "unknown status";
}

const char *rcs_status_text(int status)
{
	for (size_t i = 0; i < STATUSES; i++)
		if (statuses[i].status == status)
			return statuses[i].text;
	return "no rcshare status has this number";
}

int cl_fail(struct rcs_error *err, int status, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return status;
	err->status = status;
	va_start(ap, fmt);
	vsnprintf(err->sentence, sizeof(err->sentence), fmt, ap);
	va_end(ap);
	return status;
}
