/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The carrier of the interface behind a RoCE rail: told by rtnetlink, and read on demand. Both repeat what the
 * device's own event says, before it or after it. A rail whose interface is not ours to see (a container
 * with a network of its own) has none of this.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/verbs_impl.h"

#ifndef IFF_LOWER_UP
#define IFF_LOWER_UP 0x10000 /* linux/if.h, which does not go with net/if.h */
#endif

static ssize_t file_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : read(fd, buf, size - 1);

	if (fd >= 0 && n < 0)
		n = -errno;
	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return n;
}

/* Its name, when the device calls the interface so as well: numbers are those of another network then. */
static bool ndev_name(const struct rail *r, char name[IF_NAMESIZE])
{
	char path[256], there[IF_NAMESIZE + 8];

	if (!r->ndev || !if_indextoname(r->ndev, name))
		return false;
	for (int i = 0; i < r->gids_n; i++) {
		const struct ibv_gid_entry *e = &r->gids[i];

		if (e->port_num != r->port || e->ndev_ifindex != r->ndev)
			continue;
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u", r->device,
			r->port, e->gid_index);
		return file_read(path, there, sizeof(there)) > 0 && !strcmp(there, name);
	}
	return false;
}

bool verbs_carrier_now(const struct rail *r)
{
	char path[64], name[IF_NAMESIZE], text[8];
	ssize_t n;

	if (!ndev_name(r, name))
		return true;
	snprintf(path, sizeof(path), "/sys/class/net/%s/carrier", name);
	n = file_read(path, text, sizeof(text));
	if (n == -EINVAL) /* the interface is down */
		return false;
	return n <= 0 || text[0] != '0';
}

void verbs_carrier_parse(const void *msg, size_t len,
	void (*fn)(void *arg, unsigned ifindex, bool carrier), void *arg)
{
	int left = (int)len;

	for (const struct nlmsghdr *h = msg; NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
		const struct ifinfomsg *i = NLMSG_DATA(h);
		unsigned up = IFF_UP | IFF_LOWER_UP;

		if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*i)) ||
			(h->nlmsg_type != RTM_NEWLINK && h->nlmsg_type != RTM_DELLINK))
			continue;
		fn(arg, (unsigned)i->ifi_index, h->nlmsg_type == RTM_NEWLINK && (i->ifi_flags & up) == up);
	}
}

static void changed(struct rail *r, bool carrier)
{
	char name[IF_NAMESIZE], detail[64];

	if (carrier == r->carrier)
		return;
	r->carrier = carrier;
	if (!if_indextoname(r->ndev, name))
		snprintf(name, sizeof(name), "%u", r->ndev);
	snprintf(detail, sizeof(detail), "%s %s", name, carrier ? "has a carrier" : "lost its carrier");
	verbs_rail_look(r, detail);
}

static void told(void *arg, unsigned ifindex, bool carrier)
{
	struct verbs *v = arg;
	char name[IF_NAMESIZE];

	for (unsigned i = 0; i < v->rails; i++)
		if (v->rail[i].ndev == ifindex && (ndev_name(&v->rail[i], name) || !v->rail[i].carrier))
			changed(&v->rail[i], carrier);
}

void verbs_carrier_open(struct verbs *v)
{
	struct sockaddr_nl sa = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		close(fd);
		fd = -1;
	}
	v->netlink = fd;
}

/* What was dropped because we came late is looked up: verbs_tick() does that for lost carriers, anyway. */
void verbs_carrier_read(struct verbs *v)
{
	_Alignas(NLMSG_ALIGNTO) char buf[8192];
	struct sockaddr_nl from;
	socklen_t len;
	ssize_t n;

	for (;;) {
		if (v->netlink < 0)
			return;
		len = sizeof(from);
		n = recvfrom(v->netlink, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);
		if (n < 0 && errno == ENOBUFS)
			for (unsigned i = 0; i < v->rails; i++)
				verbs_rail_check(v, i);
		else if (n <= 0)
			return;
		else if (!from.nl_pid) /* the kernel's */
			verbs_carrier_parse(buf, (size_t)n, told, v);
	}
}

void verbs_carrier_close(struct verbs *v)
{
	if (v->netlink >= 0)
		close(v->netlink);
	v->netlink = -1;
}

int verbs_carrier_fd(const struct verbs *v)
{
	return v->netlink;
}

void verbs_rail_check(struct verbs *v, unsigned rail)
{
	struct rail *r = &v->rail[rail];

	if (r->ctx && r->ok)
		changed(r, verbs_carrier_now(r));
}
