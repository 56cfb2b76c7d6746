/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding daemons that nobody has named. A rank's address names its daemon's port; before any rank has
 * spoken there are only the nodes' names, and the ports that follow from the job (tcp_port). A
 * neighbour that is to be watched is looked for there: another job's daemon refuses, the token proves
 * the right one.
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"

#define PAUSE_NS     250000000ull
#define PAUSE_MAX_NS 30000000000ull

struct find {
	struct gaicb ask; /* resolving may take seconds: the C library's thread waits */
	struct addrinfo hint;
	struct sockaddr_storage known; /* the NodeAddr is an address: nothing is asked */
	unsigned nth;	/* of the ports */
	uint64_t at, pause;
	bool asking;
};

/* The C library answers, later; or nobody needs to be asked. */
static bool ask(struct find *f)
{
	struct gaicb *a = &f->ask;

	if (addr_literal(a->ar_name, &f->known))
		return false;
#ifdef __SANITIZE_THREAD__ /* does not know the C library's threads, and dies in them */
	return getaddrinfo(a->ar_name, NULL, a->ar_request, &a->ar_result) == EAI_INPROGRESS;
#else
	return !getaddrinfo_a(GAI_NOWAIT, &a, 1, NULL);
#endif
}

static struct find *begin(struct link *l)
{
	struct find *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->hint.ai_socktype = SOCK_STREAM;
	f->hint.ai_flags = AI_ADDRCONFIG;
	f->ask.ar_name = addr_name(l->n, l->peer);
	f->ask.ar_request = &f->hint;
	f->pause = PAUSE_NS;
	f->asking = ask(f);
	return f;
}

void find_end(struct link *l)
{
	struct find *f = l->find;

	l->find = NULL;
	if (!f)
		return;
	/* one that cannot be cancelled is still written to: left to it */
	if (f->asking && gai_cancel(&f->ask) == EAI_NOTCANCELED)
		return;
	if (f->ask.ar_result)
		freeaddrinfo(f->ask.ar_result);
	free(f);
}

static void rest(const struct node *n, struct find *f)
{
	f->at = n->now + f->pause;
	f->pause = 2 * f->pause < PAUSE_MAX_NS ? 2 * f->pause : PAUSE_MAX_NS;
}

/* The address of the node with its nth port. False: the name does not resolve (yet), and is asked for again. */
static bool address(struct link *l, struct find *f)
{
	if (f->asking && gai_error(&f->ask) == EAI_INPROGRESS) {
		contact_failed(l, "the resolver does not answer; give it a NodeAddr");
		return false;
	}
	f->asking = false;
	if (f->known.ss_family) {
		l->addr = f->known;
	} else if (!addr_pick(f->ask.ar_result, &l->addr)) {
		contact_failed(l, f->ask.ar_result ? "its name leads to loopback; give it a NodeAddr" :
			"its name does not resolve; give it a NodeAddr");
		if (f->ask.ar_result)
			freeaddrinfo(f->ask.ar_result);
		f->ask.ar_result = NULL;
		f->asking = ask(f);
		rest(l->n, f);
		return false;
	}
	tcp_set_port(&l->addr, tcp_port(l->n, f->nth));
	return true;
}

void find_link(struct link *l)
{
	struct node *n = l->n;
	struct find *f;

	if (l->core.wanted || l->lost || l->tcp.conn || l->tcp.trying)
		return;
	if (!l->find)
		l->find = begin(l);
	f = l->find;
	if (!f || n->now < f->at)
		return;
	/* who was heard has told where it listens */
	if (!l->heard_at && !address(l, f))
		return;
	f->nth = (f->nth + 1) % TCP_PORTS;
	if (!f->nth)
		rest(n, f);
	tcp_connect(l);
}
