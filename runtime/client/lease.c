/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long this rank may act: its node's daemon says so in the channel (shm/channel.h, until_ns), and is not asked,
 * since it may stand still itself while a spare is about to take this rank's place.
 *
 * Past that time nothing is taken from the ring, submitted, copied for others or given to the program:
 * calls return RCS_ERR_AGAIN or nothing, and all goes on where it was when the daemon has said more.
 */
#include "client/lib.h"

static uint64_t until(const struct cl_chan *ch)
{
	return atomic_load_explicit(&ch->shm->until_ns, memory_order_acquire);
}

bool cl_ep_acts(const rcs_ep *ep)
{
	uint64_t ns = until(&ep->ch);

	return ns == SHM_UNTIL_EVER || cl_now() < ns;
}

bool cl_chan_lapsed(const struct cl_chan *ch, uint64_t *ns)
{
	*ns = ch->shm ? until(ch) : SHM_UNTIL_EVER;
	return *ns != SHM_UNTIL_EVER && *ns != SHM_UNTIL_LATER && cl_now() >= *ns;
}

/* All endpoints of a context are of one step, so one of them tells. */
bool cl_acts(const rcs_ctx *ctx)
{
	for (const rcs_ep *ep = ctx->eps; ep; ep = ep->next)
		if (!ep->lost)
			return cl_ep_acts(ep);
	return true;
}

int cl_ep_status(const rcs_ep *ep)
{
	return ep->lost ? ep->lost : cl_ep_acts(ep) ? 0 : RCS_ERR_AGAIN;
}

void cl_ep_stand_still(rcs_ep *ep)
{
	const uint8_t *payload;
	struct wire_rec r;

	/* for good: somewhere in the ring is the event that says why */
	while (until(&ep->ch) == SHM_UNTIL_STOPPED && shm_ring_peek(&ep->ch.rx, &r, &payload) > 0) {
		if (r.type == WIRE_REC_EVENT)
			cl_recv_record(ep, &r, payload);
		if (ep->lost)
			return;
		shm_ring_consume(&ep->ch.rx, &r);
	}
	if (cl_chan_lost(&ep->ch))
		cl_ep_lost(ep, RCS_ERR_RUNTIME_LOST);
}

/* What the program was not given before must not make it go on. */
void cl_cq_stopped(rcs_ctx *ctx)
{
	for (rcs_cq *q = ctx->cqs; q; q = q->next)
		for (uint32_t i = 0; i < q->count; i++)
			q->ring[(q->head + i) & (q->cap - 1)].status = RCS_ERR_PARTITIONED;
}
