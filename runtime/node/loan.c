/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loans of the uverbs fds, by which ranks register their memory. Several ranks have one at the same time and
 * nobody waits for another: a rank that was stopped in the midst of a registration holds up nobody.
 *
 *	LEND ---> open --- REG ---> none	the daemon knows what the rank has made
 *	           |
 *	           | the rank died: what it made and did not tell is among what the kernel lists and nobody knows
 *	           v
 *	         sweep is due: when the loans that are open have ended, or LOAN_NS after each began. Until then
 *	         LEND is answered by -EAGAIN, so that everything unknown is a dead rank's at last
 *
 * A loan that outlives the sweep is void: its REG is refused, and what the rank made meanwhile is swept then.
 */
#include <errno.h>
#include <unistd.h>

#include "node/node.h"

#define LOAN_NS 2000000000ull

static void loan_sweep(struct node *n)
{
	if (!n->sweep_due)
		return;
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->loan.state == LOAN_OPEN && n->now < c->loan.until)
			return;
	for (struct chan *c = n->chans; c; c = c->next)
		if (c->loan.state == LOAN_OPEN)
			c->loan.state = LOAN_VOID;
	n->sweep_due = false;
	region_sweep(n);
}

void loan_tick(struct node *n)
{
	loan_sweep(n);
}

static void loan_left(struct node *n, struct chan *c)
{
	c->loan.state = LOAN_NONE;
	n->sweep_due = true;
	loan_sweep(n);
}

void loan_chan_gone(struct node *n, struct chan *c)
{
	if (c->loan.state != LOAN_NONE)
		loan_left(n, c);
}

/* A library that asks anew has given up on what it asked before: nothing was registered for that. */
static void loan_given_up(struct node *n, struct chan *c)
{
	struct region *g = c->loan.state == LOAN_OPEN && c->loan.made ? region_find(n, c, c->loan.key) : NULL;

	if (g)
		region_drop(n, g);
	if (c->loan.state == LOAN_VOID)
		loan_left(n, c);
	c->loan.state = LOAN_NONE;
}

static struct region *loan_region(struct node *n, struct chan *c, const struct shm_lend *l, int *err,
	struct wire_key *k)
{
	struct region *g = region_find(n, c, l->key);

	*err = 0;
	*k = l->key;
	if (l->key.region) {
		/* a mapping of rcs_alloc, or rails that came back */
		if (!g || g->len != l->len)
			*err = g ? -EINVAL : -ENOENT;
		return g;
	}
	*err = region_new(n, c, l->addr, l->len, k);
	return NULL;
}

void loan_lend(struct node *n, struct chan *c, const struct shm_lend *l)
{
	struct shm_lent out = {.m = {.type = SHM_MSG_LEND, .abi = SHM_ABI}};
	int fds[WIRE_RAILS_MAX], send_fds[WIRE_RAILS_MAX], err;
	struct region *g;
	unsigned nfds = 0;

	if (!l->len || l->addr + l->len < l->addr) {
		ctl_reply(c, SHM_MSG_LEND, -EINVAL, "a region needs at least one byte and must not wrap");
		return;
	}
	loan_given_up(n, c);
	if (n->sweep_due) {
		ctl_reply(c, SHM_MSG_LEND, -EAGAIN, "registrations of a rank that died are being cleared away; "
			"try again");
		return;
	}
	g = loan_region(n, c, l, &err, &out.key);
	if (err) {
		ctl_reply(c, SHM_MSG_LEND, err, err == -ENOMEM ? "the node's runtime is out of memory" :
			"no such region of this length");
		return;
	}
	if (g)
		g->addr = l->addr;
	out.ndev = n->rails ? verbs_lend(n->vb, fds, out.pd_handle, out.driver) : 0;
	/* A rail that is not there now is skipped; the fds of the others come in order. */
	for (unsigned i = 0; i < out.ndev; i++) {
		c->loan.epoch[i] = fds[i] >= 0 ? verbs_rail_epoch(n->vb, i) : 0;
		if (fds[i] >= 0)
			send_fds[nfds++] = fds[i];
		else
			out.pd_handle[i] = ~0u;
	}
	c->loan.state = LOAN_OPEN;
	c->loan.until = n->now + LOAN_NS;
	c->loan.key = out.key;
	c->loan.made = !g;
	ctl_answer(c, &out, sizeof(out), send_fds, nfds);
	for (unsigned i = 0; i < nfds; i++)
		close(send_fds[i]);
}

/* What a rank says that it made may be neither ours nor another region's: it is destroyed with the region. */
static bool loan_takes(struct node *n, const struct region *g, unsigned rail, uint32_t handle)
{
	for (uint32_t i = 0; i < n->regions_n; i++) {
		const struct region *r = n->regions[i];

		/* the handle of one that a thread unregisters may be given out again already */
		if (r->used && r != g && !r->leaving && r->ok & 1u << rail && r->mr_handle[rail] == handle)
			return false;
	}
	return !verbs_mr_is_own(n->vb, rail, handle);
}

void loan_reg(struct node *n, struct chan *c, const struct shm_reg *r)
{
	struct region *g = region_find(n, c, r->key);
	struct shm_reg made = *r;

	if (!g) {
		ctl_reply(c, SHM_MSG_REG, -ENOENT, "no such region");
		return;
	}
	if (c->loan.state != LOAN_OPEN || wire_key_pack(c->loan.key) != wire_key_pack(r->key)) {
		ctl_reply(c, SHM_MSG_REG, -ESTALE, "the loan had ended; register again");
		loan_left(n, c);
		return;
	}
	for (unsigned i = 0; i < n->rails && i < made.ndev; i++)
		if (made.ok & 1u << i && !loan_takes(n, g, i, made.mr_handle[i]))
			made.ok &= ~(1u << i);
	region_registered(n, g, &made, c->loan.epoch);
	c->loan.state = LOAN_NONE;
	loan_sweep(n);
	ctl_reply(c, SHM_MSG_REG, 0, "");
}
