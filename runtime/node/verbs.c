/* SPDX-License-Identifier: BSD-3-Clause */
/* Rails: devices and ports that come and go, their completions and their async events. */
#include "node/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/verbs_impl.h"

#define BATCH 16

static void nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* --- GIDs ------------------------------------------------------------------------------------- */

static bool v4_mapped(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !memcmp(g->raw, prefix, sizeof(prefix));
}

/*
 * The index (>= 0) and value of the GID to use: the configured one, else RoCE v2 on IPv4, RoCE v2 on
 * IPv6, RoCE v2 link-local, and on InfiniBand the first.
 */
int verbs_gid_choose(struct rail *r, union ibv_gid *gid, uint32_t *type)
{
	struct ibv_port_attr port;
	int best = -1, best_rank = -1;

	if (ibv_query_port(r->ctx, (uint8_t)r->port, &port))
		return -ENODEV;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry e;
		int rank;

		if (ibv_query_gid_ex(r->ctx, r->port, (uint32_t)i, &e, 0))
			continue;
		if (r->gid_index >= 0) {
			rank = i == r->gid_index ? 9 : -1;
		} else if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
			rank = e.gid_type == IBV_GID_TYPE_IB ? (i == 0) : -1;
		} else {
			rank = v4_mapped(&e.gid) ? 4 : e.gid.raw[0] == 0xfe ? 1 : 3;
			if (e.gid_type != IBV_GID_TYPE_ROCE_V2)
				rank = r->gid_type == CONFIG_GID_ROCE1 ? rank + 4 : -1;
		}
		if (rank > best_rank) {
			best_rank = rank;
			best = i;
			*gid = e.gid;
			*type = e.gid_type;
		}
	}
	return best >= 0 ? best : -EADDRNOTAVAIL;
}

/* --- devices ----------------------------------------------------------------------------------- */

static bool port_active(struct rail *r)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t type;

	return r->ctx && !ibv_query_port(r->ctx, (uint8_t)r->port, &port) &&
		port.state == IBV_PORT_ACTIVE && verbs_gid_choose(r, &gid, &type) >= 0;
}

static void rail_close(struct rail *r)
{
	if (r->cq) {
		ibv_ack_cq_events(r->cq, r->cq_events);
		r->cq_events = 0;
		ibv_destroy_cq(r->cq);
	}
	if (r->chan)
		ibv_destroy_comp_channel(r->chan);
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->ctx)
		ibv_close_device(r->ctx);
	r->cq = NULL;
	r->chan = NULL;
	r->pd = NULL;
	r->ctx = NULL;
	r->v->fds_version++;
}

int verbs_rail_open(struct rail *r)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr dev;
	int cqe = VERBS_CQE, err = -ENODEV;

	for (struct ibv_device **d = list; d && *d && !r->ctx; d++)
		if (!strcmp(ibv_get_device_name(*d), r->device)) {
			r->ctx = ibv_open_device(*d);
			err = r->ctx ? 0 : -errno;
		}
	if (list)
		ibv_free_device_list(list);
	if (!r->ctx)
		return err;
	if (!ibv_query_device(r->ctx, &dev) && dev.max_cqe < cqe)
		cqe = dev.max_cqe;
	r->pd = ibv_alloc_pd(r->ctx);
	r->chan = ibv_create_comp_channel(r->ctx);
	if (r->pd && r->chan)
		r->cq = ibv_create_cq(r->ctx, cqe, NULL, r->chan, 0);
	if (!r->cq) {
		err = -errno;
		rail_close(r);
		return err;
	}
	nonblock(r->chan->fd);
	nonblock(r->ctx->async_fd);
	r->epoch++;
	for (struct verbs_buf *b = r->v->bufs; b; b = b->next)
		verbs_buf_register(b, (unsigned)(r - r->v->rail));
	r->v->fds_version++;
	return 0;
}

/* The device went away. Everything on it is let go at once: its removal waits for our context. */
void verbs_rail_gone(struct rail *r, const char *detail)
{
	struct verbs *v = r->v;
	unsigned at = (unsigned)(r - v->rail);

	if (!r->ctx)
		return;
	r->ok = false;
	for (struct verbs_lane *l = v->lanes; l; l = l->next)
		if (l->r == at)
			verbs_lane_orphan(l);
	for (struct verbs_buf *b = v->bufs; b; b = b->next)
		if (b->mr[at]) {
			ibv_dereg_mr(b->mr[at]);
			b->mr[at] = NULL;
		}
	rail_close(r);
	v->ops.rail(v->ops.arg, at, false, CORE_R_DEVICE, detail);
}

static void rail_look(struct rail *r, const char *detail)
{
	struct verbs *v = r->v;
	struct ibv_port_attr port;
	bool ok;

	if (!r->ctx)
		return;
	if (ibv_query_port(r->ctx, (uint8_t)r->port, &port)) {
		verbs_rail_gone(r, "the device was removed");
		return;
	}
	ok = port_active(r);
	if (ok == r->ok)
		return;
	r->ok = ok;
	v->ops.rail(v->ops.arg, (unsigned)(r - v->rail), ok, ok ? CORE_R_NONE : CORE_R_PORT, detail);
}

void verbs_async(struct verbs *v)
{
	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];
		struct ibv_async_event ev;

		while (r->ctx && !ibv_get_async_event(r->ctx, &ev)) {
			enum ibv_event_type t = ev.event_type;

			ibv_ack_async_event(&ev);
			switch (t) {
			case IBV_EVENT_DEVICE_FATAL:
				verbs_rail_gone(r, ibv_event_type_str(t));
				break;
			case IBV_EVENT_PORT_ERR:
			case IBV_EVENT_PORT_ACTIVE:
			case IBV_EVENT_LID_CHANGE:
			case IBV_EVENT_PKEY_CHANGE:
			case IBV_EVENT_GID_CHANGE:
				rail_look(r, ibv_event_type_str(t));
				break;
			default:
				break; /* errors of queue pairs show in their completions */
			}
		}
	}
}

void verbs_tick(struct verbs *v, uint64_t now_ns)
{
	(void)now_ns;
	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];

		if (!r->ctx && verbs_rail_open(r))
			continue;
		rail_look(r, r->ok ? "port is down" : "port is active");
	}
}

/* --- completions -------------------------------------------------------------------------------- */

int verbs_poll(struct verbs *v, int budget)
{
	int total = 0;

	for (unsigned i = 0; i < v->rails; i++) {
		struct ibv_wc wc[BATCH];
		int left = budget, got;

		while (left > 0 && v->rail[i].cq) {
			got = ibv_poll_cq(v->rail[i].cq, left < BATCH ? left : BATCH, wc);
			if (got <= 0)
				break;
			for (int k = 0; k < got; k++) {
				struct verbs_lane *l;

				HASH_FIND(hh, v->by_qpn[i], &wc[k].qp_num, sizeof(wc[k].qp_num), l);
				if (l)
					verbs_lane_completion(l, &wc[k]);
			}
			total += got;
			left -= got;
		}
	}
	for (struct verbs_lane *l = v->lanes; l; l = l->next)
		if (verbs_lane_settle(l))
			total++;
	return total;
}

int verbs_arm(struct verbs *v)
{
	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];
		struct ibv_cq *cq;
		void *ctx;

		if (!r->cq)
			continue;
		while (!ibv_get_cq_event(r->chan, &cq, &ctx))
			r->cq_events++;
		if (r->cq_events > 1000) {
			ibv_ack_cq_events(r->cq, r->cq_events);
			r->cq_events = 0;
		}
		ibv_req_notify_cq(r->cq, 0);
	}
	/* What came between the last look and the request gives no event. */
	return verbs_poll(v, BATCH) > 0;
}

unsigned verbs_fds(struct verbs *v, int fds[2 * WIRE_RAILS_MAX])
{
	unsigned n = 0;

	for (unsigned i = 0; i < v->rails; i++)
		if (v->rail[i].ctx) {
			fds[n++] = v->rail[i].chan->fd;
			fds[n++] = v->rail[i].ctx->async_fd;
		}
	return n;
}

unsigned verbs_fds_version(const struct verbs *v)
{
	return v->fds_version;
}

/* --- opening ------------------------------------------------------------------------------------- */

static void rail_add(struct verbs *v, const char *device, uint32_t port, int gid, uint32_t type)
{
	struct rail *r = &v->rail[v->rails++];

	r->v = v;
	snprintf(r->device, sizeof(r->device), "%.*s", (int)sizeof(r->device) - 1, device);
	snprintf(r->name, sizeof(r->name), "%.*s/%u", (int)sizeof(r->device) - 1, device, port);
	r->port = port;
	r->gid_index = gid;
	r->gid_type = type;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(ibv_get_device_name(*(struct ibv_device *const *)a),
		ibv_get_device_name(*(struct ibv_device *const *)b));
}

/*
 * Every port, by device name, whether it is active now or not: rails of two nodes meet by index, so a
 * port that is down when the job starts must not move the others. Without an active one: none.
 */
static void rails_auto(struct verbs *v)
{
	bool active = false;
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list)
		return;
	qsort(list, (size_t)n, sizeof(*list), by_name);
	for (int i = 0; i < n; i++) {
		struct ibv_context *ctx = ibv_open_device(list[i]);
		struct ibv_device_attr dev;

		if (!ctx)
			continue;
		if (!ibv_query_device(ctx, &dev))
			for (uint8_t p = 1; p <= dev.phys_port_cnt && v->rails < WIRE_RAILS_MAX; p++) {
				struct ibv_port_attr port;

				if (ibv_query_port(ctx, p, &port))
					continue;
				active |= port.state == IBV_PORT_ACTIVE;
				rail_add(v, ibv_get_device_name(list[i]), p, v->cfg.gid_index, 0);
			}
		ibv_close_device(ctx);
	}
	ibv_free_device_list(list);
	if (!active)
		v->rails = 0;
}

int verbs_open(struct verbs **out, const struct config *cfg, const struct verbs_ops *ops, char *why,
	size_t why_len)
{
	struct verbs *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->cfg = *cfg;
	v->ops = *ops;
	if (cfg->nrails)
		for (uint32_t i = 0; i < cfg->nrails; i++)
			rail_add(v, cfg->rail[i].device, cfg->rail[i].port, cfg->rail[i].gid_index >= 0 ?
				cfg->rail[i].gid_index : cfg->gid_index, cfg->rail[i].gid_type);
	else
		rails_auto(v);
	for (unsigned i = 0; i < v->rails; i++) {
		int err = verbs_rail_open(&v->rail[i]);

		if (err && cfg->nrails) {
			if (why)
				snprintf(why, why_len, "rail '%s' of the configuration cannot be opened: %s; see "
					"ibv_devices, and the mode of /dev/infiniband", v->rail[i].name, strerror(-err));
			verbs_close(v);
			return err;
		}
		v->rail[i].ok = port_active(&v->rail[i]);
	}
	if (!v->rails && why)
		snprintf(why, why_len, "no active RDMA port on this node");
	*out = v;
	return 0;
}

void verbs_close(struct verbs *v)
{
	while (v->lanes)
		verbs_lane_close(v->lanes);
	while (v->bufs)
		verbs_buf_free(v->bufs);
	for (unsigned i = 0; i < v->rails; i++)
		rail_close(&v->rail[i]);
	free(v);
}

unsigned verbs_rails(const struct verbs *v)
{
	return v->rails;
}

bool verbs_rail_ok(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].ctx && v->rail[rail].ok;
}

const char *verbs_rail_name(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].name;
}

uint32_t verbs_rail_epoch(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].epoch;
}

void verbs_rail_record(struct verbs *v, unsigned rail, struct shm_rail_record *out)
{
	struct rail *r = &v->rail[rail];
	struct ibv_port_attr port;
	struct ibv_device_attr dev;
	union ibv_gid gid;
	uint32_t type = 0;
	int index;

	memset(out, 0, sizeof(*out));
	snprintf(out->device, sizeof(out->device), "%.31s", r->device);
	out->port = (uint8_t)r->port;
	if (!r->ctx || ibv_query_port(r->ctx, (uint8_t)r->port, &port) ||
		ibv_query_device(r->ctx, &dev))
		return;
	index = verbs_gid_choose(r, &gid, &type);
	if (index < 0)
		return;
	memcpy(out->gid, &gid, 16);
	out->gid_index = (uint8_t)index;
	out->gid_type = (uint8_t)type;
	out->link_layer = port.link_layer;
	out->mtu = (uint8_t)port.active_mtu;
	out->lid = port.lid;
	out->rd_atomic = (uint8_t)(dev.max_qp_rd_atom > 255 ? 255 : dev.max_qp_rd_atom);
}
