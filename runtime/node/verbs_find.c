/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ports become rails where the configuration names none, and what network a rail is on.
 *
 * A rail needs reliable connections over InfiniBand or RoCE: iWARP has its own rules of what a READ needs, EFA
 * and usNIC have no such connections. A virtual function shares the port of its physical one, so it is taken
 * only where that is not here (a virtual machine, a container). Of more ports than rails the active come first.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/verbs_impl.h"

#define PORTS_MAX 64u

struct port {
	char device[IBV_SYSFS_NAME_MAX];
	uint8_t number;
	bool active, taken;
};

__attribute__((format(printf, 2, 3))) static void leave_out(struct verbs *v, const char *fmt, ...)
{
	va_list ap;

	if (v->left_out_n == VERBS_LEFT_OUT)
		return;
	va_start(ap, fmt);
	vsnprintf(v->left_out[v->left_out_n++], sizeof(v->left_out[0]), fmt, ap);
	va_end(ap);
}

const char *verbs_device_unfit(struct ibv_device *d)
{
	if (d->transport_type == IBV_TRANSPORT_IWARP)
		return "iWARP";
	if (d->node_type != IBV_NODE_CA || d->transport_type != IBV_TRANSPORT_IB)
		return "no reliable connections over InfiniBand or RoCE";
	return NULL;
}

/* The device of which this is a virtual function, if the kernel here has that too. */
static bool physical_here(const char *device, char physical[64])
{
	char path[256];
	struct dirent *e;
	DIR *d;
	bool is = false;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.60s/device/physfn/infiniband", device);
	d = opendir(path);
	while (d && !is && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(physical, 64, "%.63s", e->d_name);
			is = true;
		}
	if (d)
		closedir(d);
	return is;
}

static int by_name(const void *a, const void *b)
{
	return fabric_name_compare(ibv_get_device_name(*(struct ibv_device *const *)a),
		ibv_get_device_name(*(struct ibv_device *const *)b));
}

static unsigned ports_of(struct verbs *v, struct ibv_device *d, struct port *out, unsigned room)
{
	const char *name = ibv_get_device_name(d), *unfit = verbs_device_unfit(d);
	struct ibv_context *ctx;
	struct ibv_device_attr dev;
	char physical[64];
	unsigned n = 0;

	if (unfit) {
		leave_out(v, "%s (%s)", name, unfit);
		return 0;
	}
	if (physical_here(name, physical)) {
		leave_out(v, "%s (a virtual function of %s)", name, physical);
		return 0;
	}
	ctx = ibv_open_device(d);
	if (!ctx)
		return 0;
	if (ibv_query_device(ctx, &dev))
		dev.phys_port_cnt = 0;
	else if ((unsigned)dev.max_qp_wr < VERBS_SENDS) {
		leave_out(v, "%s (its queue pairs hold %d requests, %u are needed)", name, dev.max_qp_wr, VERBS_SENDS);
		dev.phys_port_cnt = 0;
	}
	for (uint8_t p = 1; p <= dev.phys_port_cnt && n < room; p++) {
		struct ibv_port_attr port;

		if (ibv_query_port(ctx, p, &port))
			continue;
		if (port.link_layer != IBV_LINK_LAYER_INFINIBAND && port.link_layer != IBV_LINK_LAYER_ETHERNET) {
			leave_out(v, "%s/%u (neither InfiniBand nor Ethernet)", name, p);
			continue;
		}
		snprintf(out[n].device, sizeof(out[n].device), "%.63s", name);
		out[n].number = p;
		out[n++].active = port.state == IBV_PORT_ACTIVE;
	}
	ibv_close_device(ctx);
	return n;
}

static unsigned take(struct port *ports, unsigned n, bool active, unsigned room)
{
	unsigned taken = 0;

	for (unsigned i = 0; i < n && taken < room; i++)
		if (ports[i].active == active) {
			ports[i].taken = true;
			taken++;
		}
	return taken;
}

/* One that is down now is a rail as well, where there is room. Without an active one there are none. */
void verbs_find(struct verbs *v)
{
	struct ibv_device **list;
	struct port ports[PORTS_MAX] = {0};
	unsigned n = 0, active;
	int devices = 0;

	list = ibv_get_device_list(&devices);
	if (!list)
		return;
	qsort(list, (size_t)devices, sizeof(struct ibv_device *), by_name);
	for (int i = 0; i < devices; i++)
		n += ports_of(v, list[i], ports + n, PORTS_MAX - n);
	ibv_free_device_list(list);
	active = take(ports, n, true, WIRE_RAILS_MAX);
	if (!active)
		return;
	take(ports, n, false, WIRE_RAILS_MAX - active);
	for (unsigned i = 0; i < n; i++)
		if (ports[i].taken)
			verbs_rail_add(v, ports[i].device, ports[i].number, v->cfg.gid_index, 0);
		else
			leave_out(v, "%s/%u (a job has %u rails at most)", ports[i].device, ports[i].number,
				WIRE_RAILS_MAX);
}

/* --- fabrics ------------------------------------------------------------------------------------------- */

static uint8_t bits_of(const uint8_t *mask, unsigned bytes)
{
	uint8_t n = 0;

	for (unsigned i = 0; i < 8 * bytes && mask[i / 8] & 0x80u >> i % 8; i++)
		n++;
	return n;
}

/* Of the interface's address that the GID is; 0: nobody here knows. */
static uint8_t prefix_of(const union ibv_gid *gid, unsigned ndev)
{
	bool v4 = verbs_gid_v4(gid);
	struct ifaddrs *all;
	char name[IF_NAMESIZE];
	uint8_t bits = 0;

	if (!v4 && gid->raw[0] == 0xfe)
		return 64;
	if (!ndev || !if_indextoname(ndev, name) || getifaddrs(&all))
		return 0;
	for (const struct ifaddrs *a = all; a && !bits; a = a->ifa_next) {
		const struct sockaddr_in *in = (const void *)a->ifa_addr, *mask = (const void *)a->ifa_netmask;
		const struct sockaddr_in6 *in6 = (const void *)in, *mask6 = (const void *)mask;

		if (!in || !mask || strcmp(a->ifa_name, name))
			continue;
		if (v4 && in->sin_family == AF_INET && !memcmp(&in->sin_addr, gid->raw + 12, 4))
			bits = (uint8_t)(96 + bits_of((const uint8_t *)&mask->sin_addr, 4));
		else if (!v4 && in->sin_family == AF_INET6 && !memcmp(&in6->sin6_addr, gid->raw, 16))
			bits = bits_of((const uint8_t *)&mask6->sin6_addr, 16);
	}
	freeifaddrs(all);
	return bits;
}

void verbs_fabric_learn(struct rail *r, uint8_t link_layer, const union ibv_gid *gid, unsigned ndev)
{
	struct fabric *f = &r->fabric;

	if (f->link_layer == link_layer && !memcmp(f->gid, gid, sizeof(f->gid)))
		return;
	f->link_layer = link_layer;
	memcpy(f->gid, gid, sizeof(f->gid));
	f->prefix = link_layer == IBV_LINK_LAYER_INFINIBAND ? 64 : prefix_of(gid, ndev);
}

static void fabrics(const struct verbs *v, struct fabric out[WIRE_RAILS_MAX])
{
	for (unsigned i = 0; i < v->rails; i++)
		out[i] = v->rail[i].fabric;
}

void verbs_lane_end(const struct verbs_lane *l, struct verbs_blob *b)
{
	struct fabric f[WIRE_RAILS_MAX];

	fabrics(l->v, f);
	b->link_layer = f[l->r].link_layer;
	b->prefix = f[l->r].prefix;
	b->rail = (uint8_t)l->r;
	b->nth = fabric_nth(f, l->r);
	b->named = l->v->cfg.nrails > 0;
}

uint8_t verbs_rail_meet(struct verbs *v, uint32_t taken, const uint8_t blob[CORE_BLOB])
{
	struct fabric f[WIRE_RAILS_MAX];
	struct fabric_end e = {0};
	struct verbs_blob b;

	memcpy(&b, blob, sizeof(b));
	e.f.link_layer = b.link_layer;
	e.f.prefix = b.prefix;
	memcpy(e.f.gid, b.gid, sizeof(e.f.gid));
	e.rail = b.rail;
	e.nth = b.nth;
	e.named = b.named;
	fabrics(v, f);
	return fabric_meet(f, v->offered, v->cfg.nrails > 0, taken, &e);
}
