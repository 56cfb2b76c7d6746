/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of nodes, and which of its own a daemon tells the others. */
#include "node/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/node.h"

const char *addr_name(const struct node *n, uint32_t node)
{
	return n->o.addrs && n->o.addrs[node] ? n->o.addrs[node] : n->o.names[node];
}

bool addr_literal(const char *name, struct sockaddr_storage *a)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;

	memset(a, 0, sizeof(*a));
	if (!strcmp(name, "localhost")) /* NodeHostname of several slurmd on a machine */
		name = "127.0.0.1";
	if (inet_pton(AF_INET, name, &v4->sin_addr) == 1)
		v4->sin_family = AF_INET;
	else if (inet_pton(AF_INET6, name, &v6->sin6_addr) == 1)
		v6->sin6_family = AF_INET6;
	return a->ss_family != AF_UNSPEC;
}

bool addr_is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

	if (a->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->ss_family == AF_INET6 &&
		(IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
			(IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET));
}

/* An address that means the same on every host. */
static bool is_known_elsewhere(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

	if (addr_is_loopback(a))
		return false;
	if (a->ss_family == AF_INET)
		return v4->sin_addr.s_addr && ntohl(v4->sin_addr.s_addr) >> 16 != 0xa9fe; /* 169.254: link-local */
	return a->ss_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
		!IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

static bool addr_copy(struct sockaddr_storage *a, const struct sockaddr *sa)
{
	memset(a, 0, sizeof(*a));
	if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return false;
	memcpy(a, sa, sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	return true;
}

/* Takes a when it is better than what is in best: the first, and IPv4 before IPv6. */
static void addr_better(struct sockaddr_storage *best, const struct sockaddr *sa)
{
	struct sockaddr_storage a;

	if (addr_copy(&a, sa) && is_known_elsewhere(&a) &&
		(!best->ss_family || (best->ss_family == AF_INET6 && a.ss_family == AF_INET)))
		*best = a;
}

bool addr_pick(const struct addrinfo *list, struct sockaddr_storage *a)
{
	struct sockaddr_storage best = {0};

	for (; list; list = list->ai_next)
		addr_better(&best, list->ai_addr);
	if (best.ss_family)
		*a = best;
	return best.ss_family;
}

/* --- a resolver that may not answer ---------------------------------------------------------------- */

/* Whoever starts the daemon waits for start_timeout_ms, and is to hear the reason. */
static uint32_t resolver_ms(const struct node *n)
{
	return (uint32_t)n->cfg.start_timeout_ms / 3;
}

struct question {
	struct gaicb ask;
	struct addrinfo hint;
	char name[256];
};

/* 0 and a list (freeaddrinfo), or an error of getaddrinfo; EAI_INPROGRESS: no answer in time. */
static int resolve(const char *name, uint32_t ms, struct addrinfo **list)
{
	struct question *q = calloc(1, sizeof(*q));
	const struct gaicb *const all[] = {q ? &q->ask : NULL};
	struct gaicb *asked[] = {q ? &q->ask : NULL};
	struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	int rc;

	*list = NULL;
	if (!q)
		return EAI_MEMORY;
	snprintf(q->name, sizeof(q->name), "%s", name);
	q->hint.ai_socktype = SOCK_STREAM;
	q->ask.ar_name = q->name;
	q->ask.ar_request = &q->hint;
#ifdef __SANITIZE_THREAD__ /* does not know the C library's threads, and dies in them */
	(void)all, (void)asked, (void)wait;
	rc = getaddrinfo(q->name, NULL, &q->hint, list);
#else
	rc = getaddrinfo_a(GAI_NOWAIT, asked, 1, NULL);
	if (!rc) {
		while (gai_suspend(all, 1, &wait) == EAI_INTR)
			;
		rc = gai_error(&q->ask);
	}
	if (rc == EAI_INPROGRESS && gai_cancel(&q->ask) == EAI_NOTCANCELED)
		return rc; /* it is still written to: left to the C library's thread */
	if (!rc)
		*list = q->ask.ar_result;
#endif
	free(q);
	return rc;
}

/* An address of the node that others can reach. 0, or an error of getaddrinfo; EAI_ADDRFAMILY: loopback alone. */
static int find(const struct node *n, uint32_t node, uint32_t ms, struct sockaddr_storage *a)
{
	struct addrinfo *list;
	int rc;

	if (addr_literal(addr_name(n, node), a))
		return 0;
	rc = resolve(addr_name(n, node), ms, &list);
	if (!rc && !addr_pick(list, a))
		rc = EAI_ADDRFAMILY;
	if (list)
		freeaddrinfo(list);
	return rc;
}

/* --- our own --------------------------------------------------------------------------------------- */

static int of_interface(struct node *n, struct sockaddr_storage *own, char *why)
{
	const char *name = n->cfg.control_interface;
	struct ifaddrs *all;

	if (getifaddrs(&all))
		all = NULL;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		struct sockaddr_storage a;

		if (strcmp(i->ifa_name, name) || !addr_copy(&a, i->ifa_addr) ||
			(a.ss_family == AF_INET6 && !is_known_elsewhere(&a)))
			continue;
		if (!own->ss_family || (own->ss_family == AF_INET6 && a.ss_family == AF_INET))
			*own = a;
		if (n->listens < ADDR_LISTEN_MAX - 1) /* one is for the name */
			n->listen[n->listens++] = a;
	}
	freeifaddrs(all);
	if (own->ss_family)
		return 0;
	snprintf(why, SHM_SENTENCE, "control_interface '%s' has no IP address that others can reach", name);
	return -EADDRNOTAVAIL;
}

/* The address from which this host speaks to another one. */
static bool route_to(const struct sockaddr_storage *peer, struct sockaddr_storage *own)
{
	struct sockaddr_storage to = *peer;
	socklen_t len = sizeof(*own);
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found;

	tcp_set_port(&to, 9);
	found = fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)) &&
		!getsockname(fd, (struct sockaddr *)own, &len) && is_known_elsewhere(own);
	if (fd >= 0)
		close(fd);
	return found;
}

/* This node's name leads to loopback: what do others reach it by? */
static bool of_routes(const struct node *n, uint32_t ms, struct sockaddr_storage *own)
{
	struct sockaddr_storage peer, best = {0};
	struct ifaddrs *all;

	if (!find(n, (n->o.self + 1) % n->o.nodes, ms, &peer) && route_to(&peer, own))
		return true;
	if (getifaddrs(&all))
		return false;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_flags & IFF_RUNNING)
			addr_better(&best, i->ifa_addr);
	freeifaddrs(all);
	*own = best;
	return best.ss_family;
}

#define ADVICE "give it a NodeAddr in slurm.conf, or set control_interface in rcshare.conf"

static int of_name(struct node *n, struct sockaddr_storage *own, char *why)
{
	const char *name = addr_name(n, n->o.self);
	uint32_t ms = resolver_ms(n);
	char text[INET6_ADDRSTRLEN + 16];
	int rc;

	if (n->o.nodes == 1 && !addr_literal(name, own))
		return addr_literal("127.0.0.1", own) ? 0 : -EINVAL; /* nobody else is to find it */
	rc = find(n, n->o.self, ms, own);
	if (!rc)
		return 0;
	if (rc == EAI_INPROGRESS) {
		snprintf(why, SHM_SENTENCE, "the resolver gave no answer for this node's name '%.36s' in %u ms; "
			ADVICE, name, ms);
		return -ETIMEDOUT;
	}
	if (rc == EAI_ADDRFAMILY && of_routes(n, ms, own)) {
		node_log(n, CONFIG_LOG_WARN, "this node's name '%s' leads to loopback; %s is told to the others. Where "
			"that is wrong " ADVICE, name, admit_name(own, text, sizeof(text)));
		return 0;
	}
	snprintf(why, SHM_SENTENCE, rc == EAI_ADDRFAMILY ?
		"this node's name '%.60s' leads to loopback alone; " ADVICE :
		"this node's name '%.60s' does not resolve; " ADVICE, name);
	return -EADDRNOTAVAIL;
}

static void wire_take(struct wire_addr *w, const struct sockaddr_storage *a)
{
	w->family = a->ss_family == AF_INET ? 4 : 6;
	if (a->ss_family == AF_INET)
		memcpy(w->ctrl, &((const struct sockaddr_in *)a)->sin_addr, 4);
	else
		memcpy(w->ctrl, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
}

static bool listens_at(const struct node *n, const struct sockaddr_storage *a)
{
	for (unsigned i = 0; i < n->listens; i++)
		if (!memcmp(&n->listen[i], a, sizeof(*a)))
			return true;
	return false;
}

int addr_own(struct node *n, char *why)
{
	struct wire_addr *w = &n->addr;
	struct sockaddr_storage own = {0}, named;
	int rc;

	w->job = n->o.job;
	w->restart = (uint16_t)n->o.restart;
	w->node = (uint16_t)n->o.self;
	w->ep = NODE_EP_DAEMON;
	n->listens = 0;
	rc = *n->cfg.control_interface ? of_interface(n, &own, why) : of_name(n, &own, why);
	if (rc)
		return rc;
	wire_take(w, &own);
	/* Neighbours whom no rank has named look for it by what Slurm calls it. */
	if (n->listens && n->o.nodes > 1 && !find(n, n->o.self, resolver_ms(n), &named) && !listens_at(n, &named))
		n->listen[n->listens++] = named;
	return 0;
}
