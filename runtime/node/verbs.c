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
#include "shm/uverbs.h"

static void nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* --- GIDs ------------------------------------------------------------------------------------- */

bool verbs_gid_v4(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !memcmp(g->raw, prefix, sizeof(prefix));
}

/*
 * The index and value of the GID to use: the configured one, else RoCE v2 on IPv4, on IPv6, on a
 * link-local address, and on InfiniBand the first.
 */
int verbs_gid_choose(struct rail *r, const struct ibv_port_attr *port, union ibv_gid *gid,
	uint32_t *type)
{
	int best = -1, best_rank = -1;
	unsigned ndev = 0;

	r->gids_n = (int)ibv_query_gid_table(r->ctx, r->gids, r->gids_max, 0);
	for (int i = 0; i < r->gids_n; i++) {
		const struct ibv_gid_entry *e = &r->gids[i];
		int rank;

		if (e->port_num != r->port)
			continue;
		if (r->gid_index >= 0) {
			rank = (int)e->gid_index == r->gid_index ? 9 : -1;
		} else if (port->link_layer == IBV_LINK_LAYER_INFINIBAND) {
			rank = e->gid_type == IBV_GID_TYPE_IB ? (e->gid_index == 0) : -1;
		} else {
			rank = verbs_gid_v4(&e->gid) ? 4 : e->gid.raw[0] == 0xfe ? 1 : 3;
			if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
				rank = r->gid_type == CONFIG_GID_ROCE1 ? rank + 4 : -1;
		}
		/* grh.sgid_index has 8 bits */
		if (rank > best_rank && e->gid_index <= UINT8_MAX) {
			best_rank = rank;
			best = (int)e->gid_index;
			*gid = e->gid;
			*type = e->gid_type;
			ndev = e->ndev_ifindex;
		}
	}
	/* what an IPoIB interface says is not said of the port */
	if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
		ndev = 0;
	if (best >= 0)
		verbs_fabric_learn(r, port->link_layer, gid, ndev);
	if (ndev != r->ndev) {
		r->ndev = ndev;
		r->carrier = verbs_carrier_now(r);
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
		port.state == IBV_PORT_ACTIVE && r->pkey_index >= 0 && verbs_gid_choose(r, &port, &gid, &type) >= 0 &&
		r->carrier;
}

static void rail_close(struct rail *r)
{
	verbs_reap_context(r);
	r->cq_used = 0;
	r->ndev = 0;
	r->carrier = true;
	r->armed = false;
	r->wc_n = 0;
	r->v->fds_version++;
	/* what is known was about this context; its test has one of its own, and lets go of it soon */
	if (r->test)
		selftest_cancel(r->test);
	r->tests = 0;
	r->ledger = VERBS_LEDGER_UNKNOWN;
	snprintf(r->ledger_why, sizeof(r->ledger_why), "the device is not there");
}

static struct ibv_context *device_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int err = ENODEV;

	for (struct ibv_device **d = list; d && *d && !ctx; d++)
		if (!strcmp(ibv_get_device_name(*d), name)) {
			ctx = verbs_device_unfit(*d) ? NULL : ibv_open_device(*d);
			err = verbs_device_unfit(*d) ? EPROTONOSUPPORT : errno;
		}
	if (list)
		ibv_free_device_list(list);
	errno = err;
	return ctx;
}

static size_t gid_room(struct rail *r)
{
	size_t room = 1;

	for (uint8_t p = 1; p <= r->dev.phys_port_cnt; p++) {
		struct ibv_port_attr port;

		if (!ibv_query_port(r->ctx, p, &port))
			room += (size_t)port.gid_tbl_len;
	}
	return room;
}

/* Grows with the lanes; where the device cannot resize one it has the size of all at once. */
static int cq_make(struct rail *r)
{
	uint64_t all = (uint64_t)r->v->peers * (VERBS_SENDS + CORE_SLOTS + VERBS_CONTROL + 1) + 2 * VERBS_CQ_SPARE;
	int size = r->dev.max_cqe < VERBS_CQE ? r->dev.max_cqe : VERBS_CQE;

	r->cq = ibv_create_cq(r->ctx, size, NULL, r->chan, 0);
	if (r->cq && all > (uint64_t)r->cq->cqe && r->cq->cqe < r->dev.max_cqe && ibv_resize_cq(r->cq, r->cq->cqe)) {
		ibv_destroy_cq(r->cq);
		size = all < (uint64_t)r->dev.max_cqe ? (int)all : r->dev.max_cqe;
		r->cq = ibv_create_cq(r->ctx, size, NULL, r->chan, 0);
	}
	return r->cq ? 0 : -errno;
}

/* In the table as it is now: the configured partition, else the first of which the port is a full member. */
int verbs_pkey_index(const struct rail *r, const struct ibv_port_attr *port)
{
	uint32_t want = r->v->cfg.pkey & 0x7fff;
	int found = want ? -ENOENT : 0;

	if (port->link_layer != IBV_LINK_LAYER_INFINIBAND)
		return 0;
	for (int i = 0; i < port->pkey_tbl_len; i++) {
		__be16 be;
		uint16_t key;

		if (ibv_query_pkey(r->ctx, (uint8_t)r->port, i, &be))
			break;
		key = (uint16_t)((be & 0xff) << 8 | be >> 8);
		if (want ? (key & 0x7fff) == want : key & 0x8000) {
			found = i;
			if (key & 0x8000) /* a limited member reaches full ones only */
				break;
		}
	}
	return found;
}

int verbs_rail_open(struct rail *r)
{
	unsigned at = (unsigned)(r - r->v->rail);
	struct ibv_port_attr port;
	int err;

	if (!r->closing && !(r->closing = calloc(1, sizeof(*r->closing))))
		return -ENOMEM;
	r->ctx = device_open(r->device);
	if (!r->ctx)
		return -errno;
	r->v->fds_version++;
	errno = EIO;
	if (ibv_query_device(r->ctx, &r->dev) || ibv_query_port(r->ctx, (uint8_t)r->port, &port))
		goto close_rail;
	errno = EINVAL;
	if ((uint32_t)r->dev.max_qp_wr < VERBS_SENDS)
		goto close_rail;
	r->pkey_index = verbs_pkey_index(r, &port);
	errno = EIO;
	r->gids_max = gid_room(r);
	r->gids = calloc(r->gids_max, sizeof(*r->gids));
	r->pd = r->gids ? ibv_alloc_pd(r->ctx) : NULL;
	r->chan = r->pd ? ibv_create_comp_channel(r->ctx) : NULL;
	if (!r->chan || cq_make(r))
		goto close_rail;
	nonblock(r->chan->fd);
	nonblock(r->ctx->async_fd);
	r->driver = shm_uverbs_driver(r->ctx->cmd_fd);
	for (struct verbs_buf *b = r->v->bufs; b; b = b->next) {
		err = verbs_buf_register(b, at);
		if (err) {
			errno = -err;
			goto close_rail;
		}
	}
	r->epoch++;
	verbs_ud_open(r);
	snprintf(r->ledger_why, sizeof(r->ledger_why), "%s",
		r->v->cfg.selftest ? "not tested yet" : "selftest is off in the configuration");
	return 0;

close_rail:
	err = errno ? -errno : -EIO;
	rail_close(r);
	return err;
}

/* An overrun kills a CQ and every lane on it, so a lane opens only when all it may have fits. */
int verbs_rail_cq(struct rail *r, uint32_t more)
{
	uint32_t need = r->cq_used + more + VERBS_CQ_SPARE, size = (uint32_t)r->cq->cqe;

	if (need > (uint32_t)r->dev.max_cqe)
		return -ENOSPC;
	while (size < need)
		size *= 2;
	if (size > (uint32_t)r->dev.max_cqe)
		size = (uint32_t)r->dev.max_cqe;
	if (size > (uint32_t)r->cq->cqe && ibv_resize_cq(r->cq, (int)size))
		return -ENOSPC;
	r->cq_used += more;
	return 0;
}

/* The device went away. Everything on it is let go soon: its removal waits for our context. */
void verbs_rail_gone(struct rail *r, const char *detail)
{
	struct verbs *v = r->v;
	unsigned at = (unsigned)(r - v->rail);

	if (!r->ctx)
		return;
	r->ok = false;
	for (struct verbs_lane *l = v->lanes; l; l = l->next)
		if (l->r == at)
			verbs_reap_lane(l);
	for (struct verbs_lane *l = v->closed; l; l = l->next)
		if (l->r == at)
			verbs_reap_lane(l);
	rail_close(r);
	v->ops.rail(v->ops.arg, at, false, CORE_R_DEVICE, detail);
}

void verbs_rail_look(struct rail *r, const char *detail)
{
	struct verbs *v = r->v;
	unsigned at = (unsigned)(r - v->rail);
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t type;
	bool ok;

	if (!r->ctx)
		return;
	if (ibv_query_port(r->ctx, (uint8_t)r->port, &port)) {
		verbs_rail_gone(r, "the device was removed");
		return;
	}
	ok = port.state == IBV_PORT_ACTIVE && r->pkey_index >= 0 && verbs_gid_choose(r, &port, &gid, &type) >= 0 &&
		r->carrier;
	if (r->pkey_index < 0)
		detail = "its port is not in the partition of the key pkey";
	for (struct verbs_lane *l = v->lanes; l && ok && r->ok; l = l->next)
		if (l->r == at)
			verbs_lane_moved(l, &port);
	if (ok == r->ok)
		return;
	r->ok = ok;
	if (ok)
		verbs_ud_mend(r);
	r->tests = 0; /* what a port spoiled by going down is tried again */
	v->ops.rail(v->ops.arg, at, ok, ok ? CORE_R_NONE : CORE_R_PORT, detail);
}

static void pkeys_changed(struct rail *r)
{
	struct ibv_port_attr port;

	if (r->ctx && !ibv_query_port(r->ctx, (uint8_t)r->port, &port))
		r->pkey_index = verbs_pkey_index(r, &port);
}

static void async_event(struct rail *r, enum ibv_event_type t, struct verbs_lane *l)
{
	switch (t) {
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_CQ_ERR: /* all lanes of the rail are on it */
		verbs_rail_gone(r, ibv_event_type_str(t));
		break;
	case IBV_EVENT_PKEY_CHANGE:
		pkeys_changed(r);
		verbs_rail_look(r, ibv_event_type_str(t));
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_GID_CHANGE:
		verbs_rail_look(r, ibv_event_type_str(t));
		break;
	case IBV_EVENT_QP_FATAL:
		if (l)
			verbs_lane_broke(l, CORE_R_COMPLETION, ibv_event_type_str(t));
		break;
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR: /* a request of the peer that must not be */
		if (l)
			verbs_lane_broke(l, CORE_R_REQUEST, ibv_event_type_str(t));
		break;
	default:
		break;
	}
}

void verbs_async(struct verbs *v)
{
	verbs_carrier_read(v);
	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];
		struct ibv_async_event ev;

		while (r->ctx && !ibv_get_async_event(r->ctx, &ev)) {
			bool qp = ev.event_type == IBV_EVENT_QP_FATAL ||
				ev.event_type == IBV_EVENT_QP_REQ_ERR ||
				ev.event_type == IBV_EVENT_QP_ACCESS_ERR;
			struct verbs_lane *l = NULL;

			/* it may be of one that is closed, and whose lane is freed: they are not listed */
			if (qp)
				HASH_FIND(hh, v->by_qpn[i], &ev.element.qp->qp_num, sizeof(uint32_t), l);
			/* before anything is destroyed: that waits for it */
			ibv_ack_async_event(&ev);
			async_event(r, ev.event_type, l);
		}
	}
}

/* --- the self-test ------------------------------------------------------------------------------- */

static void test_start(struct rail *r)
{
	struct selftest_where w = {.port = (uint8_t)r->port};
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t type;
	int index, err;

	if (ibv_query_port(r->ctx, (uint8_t)r->port, &port))
		return;
	index = verbs_gid_choose(r, &port, &gid, &type);
	if (index < 0)
		return;
	memcpy(w.device, r->device, sizeof(w.device));
	memcpy(w.gid, &gid, sizeof(w.gid));
	w.gid_index = (uint8_t)index;
	w.pkey_index = (uint16_t)r->pkey_index;
	w.service_level = (uint8_t)r->v->cfg.service_level;
	w.traffic_class = (uint8_t)r->v->cfg.traffic_class;
	w.mtu = 128u << port.active_mtu;
	if (r->v->cfg.path_mtu && r->v->cfg.path_mtu < w.mtu)
		w.mtu = 128u << verbs_mtu_enum(r->v->cfg.path_mtu);
	r->tests++;
	err = selftest_start(&r->test, &w);
	if (err)
		snprintf(r->ledger_why, sizeof(r->ledger_why), "it cannot be started: %s", strerror(-err));
	else
		r->test_epoch = r->epoch;
}

static void test_take(struct rail *r)
{
	struct verbs *v = r->v;
	enum verbs_ledger ledger;
	const char *why;

	if (!selftest_done(r->test, &ledger, &why))
		return;
	if (r->ctx && r->test_epoch == r->epoch) {
		r->ledger = ledger;
		if (ledger != VERBS_LEDGER_UNKNOWN)
			r->lies = ledger == VERBS_LEDGER_NONE;
		snprintf(r->ledger_why, sizeof(r->ledger_why), "%s", why);
	}
	selftest_end(r->test);
	r->test = NULL;
	if (v->ops.ledger && r->ctx && r->test_epoch == r->epoch &&
		(r->ledger != VERBS_LEDGER_UNKNOWN || r->tests == VERBS_TESTS))
		v->ops.ledger(v->ops.arg, (unsigned)(r - v->rail), r->ledger, r->ledger_why);
}

/* One at a time: they load the cores that the job has just got. */
static void tests_turn(struct verbs *v, uint64_t now_ns)
{
	bool runs = false;

	for (unsigned i = 0; i < v->rails; i++) {
		if (v->rail[i].test)
			test_take(&v->rail[i]);
		runs |= v->rail[i].test != NULL;
	}
	for (unsigned i = 0; i < v->rails && !runs && v->cfg.selftest; i++) {
		struct rail *r = &v->rail[i];

		if (!r->ctx || !r->ok || r->ledger != VERBS_LEDGER_UNKNOWN)
			continue;
		if (r->tests < VERBS_TESTS) {
			r->test_pause = VERBS_TEST_NS;
		} else if (now_ns < r->test_at) {
			continue;
		} else if (r->test_pause < VERBS_TEST_MAX_NS) {
			r->test_pause *= 2;
		}
		r->test_at = now_ns + r->test_pause;
		test_start(r);
		runs = r->test != NULL;
	}
}

enum verbs_ledger verbs_rail_ledger(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].ledger;
}

const char *verbs_rail_ledger_why(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].ledger_why;
}

const char *verbs_ledger_name(enum verbs_ledger ledger)
{
	static const char *const names[] = {"unknown", "rq_psn", "none"};

	return names[ledger];
}

void verbs_tick(struct verbs *v, uint64_t now_ns)
{
	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];

		if (!r->ctx && (r->going || verbs_rail_open(r)))
			continue;
		if (!r->carrier)
			r->carrier = verbs_carrier_now(r);
		verbs_rail_look(r, r->ok ? "port is down" : "port is active");
	}
	tests_turn(v, now_ns);
	for (struct verbs_lane *l = v->lanes; l && v->fencing; l = l->next) {
		if (!l->fencing || l->fenced)
			continue;
		if (!l->fence_at)
			l->fence_at = now_ns;
		else if (now_ns - l->fence_at > VERBS_FENCE_NS)
			verbs_reap_lane(l); /* destroying waits for the engine as well */
	}
	for (struct verbs_lane *l = v->closed; l; l = l->next)
		if (l->qp && l->waits++ >= VERBS_TIME_WAIT)
			verbs_reap_lane(l);
}

/* --- completions -------------------------------------------------------------------------------- */

static void completions(struct rail *r, const struct ibv_wc *wc, int n)
{
	struct verbs *v = r->v;

	for (int i = 0; i < n; i++) {
		struct verbs_lane *l;

		if (r->ud.qp && wc[i].qp_num == r->ud.qpn) {
			verbs_ud_completion(r, &wc[i]);
			continue;
		}
		/* what a queue pair left that was destroyed since finds nobody */
		HASH_FIND(hh, v->by_qpn[r - v->rail], &wc[i].qp_num, sizeof(wc[i].qp_num), l);
		if (l)
			verbs_lane_completion(l, &wc[i]);
	}
}

int verbs_poll(struct verbs *v, int budget)
{
	int total = 0;

	verbs_reap_turn(v);
	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];
		int left = budget, got = r->wc_n;

		r->wc_n = 0;
		if (got)
			completions(r, r->wc, got);
		total += got;
		while (left > 0 && r->cq) {
			struct ibv_wc wc[VERBS_BATCH];

			got = ibv_poll_cq(r->cq, left < VERBS_BATCH ? left : VERBS_BATCH, wc);
			if (got < 0)
				verbs_rail_gone(r, "its completion queue cannot be read");
			if (got <= 0)
				break;
			completions(r, wc, got);
			total += got;
			left -= got;
		}
	}
	if (v->fencing)
		for (struct verbs_lane *l = v->lanes, *next; l; l = next) {
			next = l->next; /* the callback may close this lane, and only this one */
			if (verbs_lane_settle(l))
				total++;
		}
	return total;
}

int verbs_arm(struct verbs *v)
{
	int found = 0;

	for (unsigned i = 0; i < v->rails; i++) {
		struct rail *r = &v->rail[i];
		struct ibv_cq *cq;
		void *ctx;
		int got;

		if (!r->cq)
			continue;
		/* One event at most for each request. */
		if (r->armed && !ibv_get_cq_event(r->chan, &cq, &ctx)) {
			r->cq_events++;
			r->armed = false;
		}
		if (r->cq_events > 1000) {
			ibv_ack_cq_events(r->cq, r->cq_events);
			r->cq_events = 0;
		}
		if (!r->armed)
			r->armed = !ibv_req_notify_cq(r->cq, 0);
		/* What came between the last look and the request gives no event. */
		if (!r->wc_n) {
			got = ibv_poll_cq(r->cq, VERBS_BATCH, r->wc);
			r->wc_n = got > 0 ? got : 0;
		}
		found |= r->wc_n || !r->armed;
	}
	for (struct verbs_lane *l = v->lanes; l && v->fencing; l = l->next)
		found |= verbs_lane_settled(l);
	return found;
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

int verbs_work_fd(const struct verbs *v)
{
	return works_fd(v->works);
}

/* --- opening ------------------------------------------------------------------------------------- */

void verbs_rail_add(struct verbs *v, const char *device, uint32_t port, int gid, uint32_t type)
{
	char queue[16];
	struct rail *r = &v->rail[v->rails];

	snprintf(queue, sizeof(queue), "rail%u", v->rails++);
	r->v = v;
	r->work = work_queue_open(v->works, queue);
	r->carrier = true;
	snprintf(r->device, sizeof(r->device), "%.*s", (int)sizeof(r->device) - 1, device);
	snprintf(r->name, sizeof(r->name), "%.*s/%u", (int)sizeof(r->device) - 1, device, port);
	r->port = port;
	r->gid_index = gid;
	r->gid_type = type;
	snprintf(r->ledger_why, sizeof(r->ledger_why), "the device is not there");
}

int verbs_open(struct verbs **out, const struct config *cfg, unsigned peers, const struct verbs_ops *ops,
	char *why, size_t why_len)
{
	struct verbs *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->cfg = *cfg;
	v->peers = peers;
	v->ops = *ops;
	v->netlink = -1;
	v->works = works_open(v);
	if (!v->works) {
		free(v);
		return -ENOMEM;
	}
	if (cfg->nrails)
		for (uint32_t i = 0; i < cfg->nrails; i++)
			verbs_rail_add(v, cfg->rail[i].device, cfg->rail[i].port, cfg->rail[i].gid_index >= 0 ?
				cfg->rail[i].gid_index : cfg->gid_index, cfg->rail[i].gid_type);
	else
		verbs_find(v);
	for (unsigned i = 0; i < v->rails; i++) {
		int err = verbs_rail_open(&v->rail[i]);

		if (err && cfg->nrails) {
			if (why)
				snprintf(why, why_len, "rail '%s' of the configuration cannot be opened: %s; see "
					"ibv_devices, and the mode of /dev/infiniband", v->rail[i].name, err == -EPROTONOSUPPORT ?
					"it has no reliable connections over InfiniBand or RoCE" : strerror(-err));
			verbs_close(v);
			return err;
		}
		v->rail[i].ok = port_active(&v->rail[i]);
	}
	v->offered = v->rails;
	if (v->rails)
		verbs_carrier_open(v);
	if (!v->rails && why)
		snprintf(why, why_len, "no active RDMA port on this node%s%s", v->left_out_n ? "; left out: " : "",
			v->left_out_n ? v->left_out[0] : "");
	*out = v;
	return 0;
}

void verbs_close(struct verbs *v)
{
	while (v->lanes)
		verbs_lane_close(v->lanes);
	while (v->bufs)
		verbs_buf_free(v->bufs);
	for (struct verbs_lane *l = v->closed; l; l = l->next)
		verbs_reap_lane(l);
	verbs_carrier_close(v);
	for (unsigned i = 0; i < v->rails; i++)
		rail_close(&v->rail[i]);
	for (unsigned i = 0; i < v->rails; i++)
		selftest_end(v->rail[i].test);
	if (!verbs_reap_end(v))
		return; /* a thread still uses it, until the process ends */
	for (unsigned i = 0; i < v->rails; i++)
		free(v->rail[i].closing);
	free(v);
}

void verbs_offer(struct verbs *v, unsigned rails)
{
	v->offered = rails < v->rails ? rails : v->rails;
}

unsigned verbs_rails(const struct verbs *v)
{
	return v->rails;
}

bool verbs_rail_ok(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].ctx && v->rail[rail].ok;
}

unsigned verbs_left_out(const struct verbs *v)
{
	return v->left_out_n;
}

const char *verbs_left_out_why(const struct verbs *v, unsigned i)
{
	return v->left_out[i];
}

const char *verbs_rail_name(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].name;
}

uint64_t verbs_message_max(const struct verbs *v)
{
	uint64_t most = UINT32_MAX;

	for (unsigned r = 0; r < v->rails; r++)
		if (v->rail[r].msg_max && v->rail[r].msg_max < most)
			most = v->rail[r].msg_max;
	return most;
}

uint32_t verbs_rail_epoch(const struct verbs *v, unsigned rail)
{
	return v->rail[rail].epoch;
}

/* active_speed is a bit set of one, in the coding of PortInfo (IBTA volume 1, 14.2.5.6). */
static uint32_t speed_mbps(const struct ibv_port_attr *port)
{
	static const uint32_t lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
	uint32_t width = port->active_width & 2 ? 4 : port->active_width & 4 ? 8 :
		port->active_width & 8 ? 12 : port->active_width & 16 ? 2 : 1;

	for (unsigned i = 0; i < sizeof(lane) / sizeof(lane[0]); i++)
		if (port->active_speed & 1u << i)
			return lane[i] * width;
	return 0;
}

void verbs_rail_record(struct verbs *v, unsigned rail, struct shm_rail_record *out)
{
	struct rail *r = &v->rail[rail];
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t type = 0;
	int index;

	memset(out, 0, sizeof(*out));
	snprintf(out->device, sizeof(out->device), "%.31s", r->device);
	out->port = (uint8_t)r->port;
	if (!r->ctx || ibv_query_port(r->ctx, (uint8_t)r->port, &port))
		return;
	index = verbs_gid_choose(r, &port, &gid, &type);
	if (index < 0)
		return;
	memcpy(out->gid, &gid, 16);
	out->gid_index = (uint8_t)index;
	out->gid_type = (uint8_t)type;
	out->link_layer = port.link_layer;
	out->mtu = (uint8_t)port.active_mtu;
	out->lid = port.lid;
	out->speed_mbps = speed_mbps(&port);
	out->rd_atomic = (uint8_t)(r->dev.max_qp_rd_atom > 255 ? 255 : r->dev.max_qp_rd_atom);
}
