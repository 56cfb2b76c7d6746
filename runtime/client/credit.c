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
 * Every source has credit0 from the start; the daemon plans it so that this is half of rx_credit for the ranks
 * of the step. The rest is lent to sources that use their windows up quickly, and taken back from them when new
 * sources come, or when they are gone. Where there are more sources than planned (more endpoints than ranks,
 * other steps), windows become smaller than credit0, until all that is promised fits rx_credit; what came
 * before that the daemon keeps when it finds no room.
 *
 * Messages that nobody has received yet are not credited above CL_UNEXP_CAP. A source whose pieces of a matched
 * message must not wait for that is told to send nothing else (WIRE_REC_F_HOLD).
 */
#include "client/lib.h"

#define QUICK_NS 20000000ull /* half a window in less: let it grow */

void cl_credit_init(rcs_peer *p)
{
	p->rx_win = p->ep->ch.credit0;
	p->ep->windows += p->rx_win;
	p->told = p->rx_win;
	p->win = CL_CREDIT_MIN;
	p->limit = p->win;
}

static uint64_t sources(const rcs_ep *ep)
{
	uint64_t known = HASH_COUNT(ep->peers);

	return known > ep->ctx->nranks ? known : ep->ctx->nranks;
}

/* All that sources may have been promised, those included that have not come yet. */
static uint64_t promised(const rcs_ep *ep)
{
	return ep->windows + (sources(ep) - HASH_COUNT(ep->peers)) * ep->ch.credit0;
}

static uint64_t room(const rcs_ep *ep)
{
	uint64_t all = promised(ep);

	return all < ep->ch.rx_credit ? ep->ch.rx_credit - all : 0;
}

static uint64_t least_window(const rcs_ep *ep)
{
	uint64_t share = ep->ch.rx_credit / sources(ep);

	return share > ep->ch.credit0 ? ep->ch.credit0 : share < CL_CREDIT_MIN ? CL_CREDIT_MIN : share;
}

static void window_set(rcs_peer *p, uint64_t win)
{
	rcs_ep *ep = p->ep;
	uint64_t most = p->gone ? 0 : ep->ch.rx_credit / 4, least = p->gone ? 0 : least_window(ep), more;

	if (win > most)
		win = most;
	if (win < least)
		win = least;
	if (win > p->rx_win) {
		more = room(ep);
		if (win - p->rx_win > more)
			win = p->rx_win + more;
	}
	win &= ~7ull;
	ep->windows = ep->windows + win - p->rx_win;
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
	struct wire_rec r = {.type = WIRE_REC_CREDIT, .arg = p->rx_win,
		.flags = p->hold_told ? WIRE_REC_F_HOLD : 0};

	cl_ctl_send(p->ep, p, &r, NULL);
}

static void update(rcs_peer *p)
{
	uint64_t now;

	if (p->gone || p->told - p->consumed > p->rx_win / 2)
		return;
	now = cl_now();
	if (promised(p->ep) > p->ep->ch.rx_credit)
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

/* Its messages wait; pieces of those that were matched go on. */
static void hold(rcs_peer *p)
{
	if (p->hold_told)
		return;
	p->hold_told = true;
	p->ep->holds_n++;
	tell(p);
}

/* A message that found no receive: true where its source has credit for it again. */
void cl_credit_unexpected(rcs_peer *p, uint64_t charge)
{
	if (p->ep->unexp_bytes > CL_UNEXP_CAP) {
		if (!p->pulls) {
			p->held += charge;
			return;
		}
		hold(p);
	}
	cl_credit_consumed(p, charge);
}

static void hold_end(rcs_ep *ep)
{
	rcs_peer *p, *tmp;

	HASH_ITER(hh, ep->peers, p, tmp) {
		if (!p->hold_told)
			continue;
		p->hold_told = false;
		tell(p);
	}
	ep->holds_n = 0;
}

/* It was received, or is no more. */
void cl_credit_release(rcs_peer *p, uint64_t charge)
{
	if (p->ep->holds_n && p->ep->unexp_bytes <= CL_UNEXP_CAP)
		hold_end(p->ep);
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
	uint64_t held = p->held;

	/* a pushed message must not wait for what the user has not received yet */
	if (held && p->ep->unexp_bytes > CL_UNEXP_CAP)
		hold(p);
	p->held = 0;
	if (held)
		cl_credit_consumed(p, held);
	if (window > had && promised(p->ep) <= p->ep->ch.rx_credit)
		window_set(p, window);
	if (p->rx_win > had)
		tell(p);
}
