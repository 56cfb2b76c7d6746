/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receiver's side of credits: how much of the receive ring each source may fill.
 *
 *	0 ........ consumed ........ told
 *	           |<--- window --->|
 *
 * told is absolute, so no failover can lose a credit. A source that still may send more than half
 * of its window hears nothing; below that it is told consumed + window. A sender never waits with a
 * record that takes more than half of the window (it announces it by an RTS instead), so it can
 * always count on that news.
 *
 * Half of rx_credit is what every source has from the start (the daemon plans it so); the other
 * half is lent to sources that use their windows up quickly, and taken back from them when new
 * sources come, or when they are gone.
 */
#include "client/lib.h"

#define QUICK_NS 20000000ull /* half a window in less: let it grow */

void cl_credit_init(rcs_peer *p)
{
	p->rx_win = p->ep->ch.credit0;
	p->told = p->rx_win;
	p->win = CL_CREDIT_MIN;
	p->limit = p->win;
}

static uint64_t budget(const rcs_ep *ep)
{
	uint64_t sources = HASH_COUNT(ep->peers), given;

	if (sources < ep->ctx->nranks)
		sources = ep->ctx->nranks;
	given = sources * ep->ch.credit0;
	return given < ep->ch.rx_credit ? ep->ch.rx_credit - given : 0;
}

static void window_set(rcs_peer *p, uint64_t win)
{
	rcs_ep *ep = p->ep;
	uint64_t cap = p->gone ? 0 : ep->ch.rx_credit / 4, room = budget(ep);

	if (win > cap)
		win = cap;
	if (win < ep->ch.credit0)
		win = ep->ch.credit0;
	win &= ~7ull;
	if (win > p->rx_win) {
		uint64_t left = room > ep->extra ? room - ep->extra : 0;

		if (win - p->rx_win > left)
			win = p->rx_win + (left & ~7ull);
	}
	ep->extra = ep->extra + win - p->rx_win;
	p->rx_win = (uint32_t)win;
}

uint64_t cl_credit_now(rcs_peer *p)
{
	if (p->consumed + p->rx_win > p->told)
		p->told = p->consumed + p->rx_win;
	return p->told;
}

void cl_credit_gone(rcs_peer *p)
{
	window_set(p, 0);
}

static void tell(rcs_peer *p)
{
	struct wire_rec r = {.type = WIRE_REC_CREDIT, .arg = p->rx_win};

	cl_ctl_send(p->ep, p, &r, NULL);
}

static void update(rcs_peer *p)
{
	uint64_t now;

	if (p->told - p->consumed > p->rx_win / 2)
		return;
	now = cl_now();
	if (p->ep->extra > budget(p->ep))
		window_set(p, p->rx_win / 2);
	else if (now - p->credit_at < QUICK_NS)
		window_set(p, 2ull * p->rx_win);
	p->credit_at = now;
	tell(p);
}

void cl_credit_consumed(rcs_peer *p, uint64_t charge)
{
	p->consumed += charge;
	update(p);
}

/* Too much is unread: the source is not told that this was taken out of the ring. */
void cl_credit_hold(rcs_peer *p, uint64_t charge)
{
	p->held += charge;
}

void cl_credit_release(rcs_peer *p, uint64_t charge)
{
	if (!p->held)
		return;
	if (charge > p->held)
		charge = p->held;
	p->held -= charge;
	cl_credit_consumed(p, charge);
}

void cl_credit_wish(rcs_peer *p, uint64_t window)
{
	uint32_t had = p->rx_win;

	/* a pushed message must not wait for what the user has not received yet */
	cl_credit_release(p, p->held);
	if (window > had && p->ep->extra <= budget(p->ep))
		window_set(p, window);
	if (p->rx_win > had)
		tell(p);
}
