/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of other releases: structs that were shorter or are longer than the library's, and the names
 * that the first release had for calls that now take the size of a struct.
 */
#include <string.h>

#include "client/lib.h"

const void *cl_struct_convert(const void *theirs, size_t size, void *own, size_t own_size, size_t first)
{
	const uint8_t *p = theirs;

	if (!p || size < first)
		return NULL;
	for (size_t i = own_size; i < size; i++)
		if (p[i])
			return NULL;
	memset(own, 0, own_size);
	memcpy(own, p, size < own_size ? size : own_size);
	return own;
}

void cl_struct_give(void *theirs, size_t size, const void *own, size_t own_size)
{
	memcpy(theirs, own, size < own_size ? size : own_size);
	if (size > own_size)
		memset((uint8_t *)theirs + own_size, 0, size - own_size);
}

/*
 * rcshare.h has inline functions of these names. Programs that were built with the first release, and
 * bindings that look functions up by name, call these and know the structs of that release.
 */
#define FIRST_RELEASE(result, name, args, call) \
	RCS_API result first_##name args __asm__("rcs_" #name); \
	result first_##name args \
	{ \
		return call; \
	}

FIRST_RELEASE(int, send, (rcs_ep *ep, const struct rcs_msg *m), rcs_send_sized(ep, m, CL_MSG_FIRST))
FIRST_RELEASE(int, recv, (rcs_ep *ep, const struct rcs_msg *m), rcs_recv_sized(ep, m, CL_MSG_FIRST))
FIRST_RELEASE(int, put, (rcs_ep *ep, const struct rcs_rma *r), rcs_put_sized(ep, r, CL_RMA_FIRST))
FIRST_RELEASE(int, get, (rcs_ep *ep, const struct rcs_rma *r), rcs_get_sized(ep, r, CL_RMA_FIRST))
FIRST_RELEASE(int, atomic, (rcs_ep *ep, const struct rcs_atomic *a), rcs_atomic_sized(ep, a, CL_ATOMIC_FIRST))
FIRST_RELEASE(int, cq_read, (rcs_cq *cq, struct rcs_completion *c, uint32_t n),
	rcs_cq_read_sized(cq, c, n, CL_COMPLETION_FIRST))
FIRST_RELEASE(int, cq_wait, (rcs_cq *cq, struct rcs_completion *c, uint32_t n, int timeout_ms),
	rcs_cq_wait_sized(cq, c, n, timeout_ms, CL_COMPLETION_FIRST))
FIRST_RELEASE(int, probe, (rcs_ep *ep, rcs_peer *from, uint64_t tag, uint64_t ignore,
	struct rcs_completion *found, rcs_claim **claim),
	rcs_probe_sized(ep, from, tag, ignore, found, claim, CL_COMPLETION_FIRST))
FIRST_RELEASE(int, peer_query, (const rcs_peer *peer, struct rcs_peer_info *info),
	rcs_peer_query_sized(peer, info, CL_PEER_INFO_FIRST))
FIRST_RELEASE(void, limits, (const rcs_ctx *ctx, struct rcs_limits *limits),
	rcs_limits_sized(ctx, limits, CL_LIMITS_FIRST))
FIRST_RELEASE(int, on_event, (rcs_ctx *ctx, rcs_event_fn fn, void *arg),
	rcs_on_event_sized(ctx, fn, arg, CL_EVENT_FIRST))
