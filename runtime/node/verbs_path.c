/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does the peer's address answer? On RoCE, moving a queue pair to RTR makes the kernel look up the
 * peer's MAC address, and where nobody answers it sleeps for a second (measured): too long for a
 * thread that serves all lanes of a node. So the neighbour table is asked first, with a packet to fill
 * it where it has no answer yet, and RTR is for those who are there.
 *
 * Where this cannot find out, it says yes: the kernel's own word is the one that counts.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "node/verbs_impl.h"

#define WAIT_MS	     30
#define DISCARD_PORT 9 /* RFC 863 */

struct hop { /* where a packet to the peer goes first */
	int family;
	unsigned ifindex;
	uint8_t addr[16];
	size_t len;
};

struct query {
	struct nlmsghdr h;
	union {
		struct rtmsg rt;
		struct ndmsg nd;
	} u;
	uint8_t attrs[64];
};

static void put(struct query *q, uint16_t type, const void *data, size_t len)
{
	struct rtattr *a = (struct rtattr *)(void *)((char *)q + NLMSG_ALIGN(q->h.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	q->h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->h.nlmsg_len) + RTA_ALIGN(a->rta_len));
}

/* The kernel answers before send() returns. Fills buf; 0 or -errno. */
static int ask(int nl, struct query *q, void *buf, size_t len)
{
	struct nlmsghdr *h = buf;
	ssize_t n;

	q->h.nlmsg_flags = NLM_F_REQUEST;
	if (send(nl, q, q->h.nlmsg_len, 0) < 0)
		return -errno;
	n = recv(nl, buf, len, MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	if (!NLMSG_OK(h, (size_t)n))
		return -EPROTO;
	if (h->nlmsg_type == NLMSG_ERROR)
		return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
	return 0;
}

/* 1: next hop known, 0: the peer is local or the route is of a kind we do not know, or -errno. */
static int next_hop(int nl, unsigned ifindex, struct hop *hop)
{
	_Alignas(NLMSG_ALIGNTO) uint8_t buf[2048];
	struct query q = {.h = {.nlmsg_type = RTM_GETROUTE,
				  .nlmsg_len = (uint32_t)NLMSG_LENGTH(sizeof(struct rtmsg))},
		.u.rt = {.rtm_family = (uint8_t)hop->family, .rtm_dst_len = (uint8_t)(hop->len * 8)}};
	struct nlmsghdr *h = (struct nlmsghdr *)(void *)buf;
	struct rtmsg *rt = NLMSG_DATA(h);
	int err, left;

	put(&q, RTA_DST, hop->addr, hop->len);
	put(&q, RTA_OIF, &ifindex, sizeof(ifindex));
	err = ask(nl, &q, buf, sizeof(buf));
	if (err)
		return err;
	if (h->nlmsg_type != RTM_NEWROUTE || rt->rtm_type != RTN_UNICAST)
		return 0;
	hop->ifindex = ifindex;
	left = (int)RTM_PAYLOAD(h);
	for (struct rtattr *a = RTM_RTA(rt); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_VIA)
			return 0;
		if (a->rta_type == RTA_OIF)
			memcpy(&hop->ifindex, RTA_DATA(a), sizeof(hop->ifindex));
		if (a->rta_type == RTA_GATEWAY && RTA_PAYLOAD(a) == hop->len)
			memcpy(hop->addr, RTA_DATA(a), hop->len);
	}
	return 1;
}

static bool resolved(int nl, const struct hop *hop)
{
	_Alignas(NLMSG_ALIGNTO) uint8_t buf[2048];
	struct query q = {.h = {.nlmsg_type = RTM_GETNEIGH,
				  .nlmsg_len = (uint32_t)NLMSG_LENGTH(sizeof(struct ndmsg))},
		.u.nd = {.ndm_family = (uint8_t)hop->family, .ndm_ifindex = (int)hop->ifindex}};
	struct nlmsghdr *h = (struct nlmsghdr *)(void *)buf;
	int err;

	put(&q, NDA_DST, hop->addr, hop->len);
	err = ask(nl, &q, buf, sizeof(buf));
	if (err)
		return err != -ENOENT;
	/* the states in which the kernel uses the address (NUD_VALID) */
	return ((struct ndmsg *)NLMSG_DATA(h))->ndm_state &
		(NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY);
}

/* Any packet makes the kernel ask for the address; an empty one to nobody is the least. */
static void knock(int family, const uint8_t *addr, unsigned ifindex)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(DISCARD_PORT)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(DISCARD_PORT)};
	char name[IF_NAMESIZE];
	int s = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return;
	if (if_indextoname(ifindex, name))
		setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name) + 1);
	memcpy(&in.sin_addr, addr, 4);
	if (family == AF_INET) {
		sendto(s, "", 0, MSG_DONTWAIT, (struct sockaddr *)&in, sizeof(in));
	} else {
		memcpy(&in6.sin6_addr, addr, 16);
		sendto(s, "", 0, MSG_DONTWAIT, (struct sockaddr *)&in6, sizeof(in6));
	}
	close(s);
}

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int verbs_path_ready(struct rail *r, unsigned ifindex, const union ibv_gid *peer)
{
	struct hop hop = {.family = AF_INET6, .len = 16};
	const uint8_t *addr = peer->raw;
	uint64_t end;
	bool ok;
	int nl;

	/* link-local: the MAC address is in the GID */
	if (!ifindex || (addr[0] == 0xfe && (addr[1] & 0xc0) == 0x80))
		return 0;
	if (verbs_gid_v4(peer)) {
		hop.family = AF_INET;
		hop.len = 4;
		addr += 12;
	}
	memcpy(hop.addr, addr, hop.len);
	nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (nl < 0)
		return 0;
	if (next_hop(nl, ifindex, &hop) <= 0 || resolved(nl, &hop)) {
		close(nl);
		return 0;
	}
	knock(hop.family, addr, ifindex);
	/* One that does not answer costs all others this wait, so a rail waits once a second at most. */
	end = clock_ms();
	if (end >= r->mute_until)
		end += WAIT_MS;
	while (!(ok = resolved(nl, &hop)) && clock_ms() < end)
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	if (!ok)
		r->mute_until = clock_ms() + 1000;
	close(nl);
	return ok ? 0 : -EHOSTUNREACH;
}
