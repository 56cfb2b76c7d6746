/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registration of this process's memory in the daemon's protection domains.
 *
 * The daemon lends its uverbs descriptors; REG_MR through them pins the pages of the caller, and the
 * kernel charges the caller's RLIMIT_MEMLOCK, once a device. The older write() interface refuses a
 * descriptor that another process opened; the ioctl, with the same command inside, does not. The
 * descriptors are closed before anything else happens: a kept copy would keep the daemon's queue
 * pairs alive after its death.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/lib.h"
#include "shm/uverbs.h"

static int reg_mr_ioctl(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len,
	uint32_t access, struct ib_uverbs_reg_mr_resp *resp)
{
	struct ib_uverbs_reg_mr cmd = {.start = addr, .length = len, .hca_va = addr, .pd_handle = pd,
		.access_flags = access};
	struct ib_uverbs_attr attr[] = {
		{.attr_id = UVERBS_ATTR_WRITE_CMD, .len = sizeof(uint64_t), .data = IB_USER_VERBS_CMD_REG_MR},
		{.attr_id = UVERBS_ATTR_CORE_IN, .len = sizeof(cmd), .data = (uint64_t)(uintptr_t)&cmd},
		{.attr_id = UVERBS_ATTR_CORE_OUT, .len = sizeof(*resp), .data = (uint64_t)(uintptr_t)resp},
	};

	memset(resp, 0, sizeof(*resp));
	return shm_uverbs_command(fd, driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, attr, 3);
}

int (*cl_reg_mr)(int fd, uint32_t driver, uint32_t pd, uint64_t addr, uint64_t len,
	uint32_t access, struct ib_uverbs_reg_mr_resp *resp) = reg_mr_ioctl;

static int borrow(struct cl_chan *ch, uint64_t addr, uint64_t len, struct wire_key key,
	struct shm_lent *lent, int *fds, unsigned *n)
{
	struct shm_lend req = {.addr = addr, .len = len, .key = key};

	cl_msg_init(&req.m, SHM_MSG_LEND);
	*n = WIRE_RAILS_MAX;
	return cl_chan_ask(ch, &req, sizeof(req), lent, sizeof(*lent), fds, n);
}

/* A rail that is not there now has pd_handle ~0 and no descriptor. */
static bool registrable(const struct shm_lent *lent, uint32_t rail)
{
	return lent->pd_handle[rail] != UINT32_MAX;
}

/* skip: bit r: it has that rail. */
static void register_all(const struct shm_lent *lent, uint64_t addr, uint64_t len, const int *fds,
	unsigned nfds, uint32_t skip, struct shm_reg *out, bool *readonly)
{
	uint32_t full = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_READ |
		IB_UVERBS_ACCESS_REMOTE_WRITE;
	unsigned next = 0;

	out->ndev = lent->ndev < WIRE_RAILS_MAX ? lent->ndev : WIRE_RAILS_MAX;
	for (uint32_t i = 0; i < out->ndev; i++) {
		struct ib_uverbs_reg_mr_resp resp;
		int rc;

		if (!registrable(lent, i) || next == nfds) {
			out->err[i] = -ENODEV;
			continue;
		}
		if (skip & 1u << i) {
			out->err[i] = -EEXIST;
			next++;
			continue;
		}
		rc = cl_reg_mr(fds[next], lent->driver[i], lent->pd_handle[i], addr, len, full, &resp);
		if (rc == -EFAULT || rc == -EACCES) {
			/* constants and read-only files can be sent from, if not received into */
			rc = cl_reg_mr(fds[next], lent->driver[i], lent->pd_handle[i], addr, len,
				IB_UVERBS_ACCESS_REMOTE_READ, &resp);
			if (!rc) {
				*readonly = true;
				out->readonly |= 1u << i;
			}
		}
		next++;
		out->err[i] = rc;
		if (rc)
			continue;
		out->ok |= 1u << i;
		out->mr_handle[i] = resp.mr_handle;
		out->lkey[i] = resp.lkey;
		out->rkey[i] = resp.rkey;
	}
}

static int memlock_error(uint64_t len, struct rcs_error *err)
{
	struct rlimit lim = {0};
	char limit[32] = "unlimited";

	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (lim.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof(limit), "%llu", (unsigned long long)lim.rlim_cur);
	return cl_fail(err, RCS_ERR_MEMLOCK, "cannot pin %llu bytes: RLIMIT_MEMLOCK is %s bytes here and "
		"counts once for each rail; raise it (ulimit -l) and set "
		"PropagateResourceLimitsExcept=MEMLOCK in slurm.conf", (unsigned long long)len, limit);
}

static int reg_outcome(uint64_t len, const struct shm_reg *r, struct rcs_error *err)
{
	for (uint32_t i = 0; i < r->ndev; i++) {
		if (r->ok & 1u << i)
			return 0;
		if (r->err[i] == -ENOMEM)
			return memlock_error(len, err);
		if (r->err[i] == -EFAULT)
			return cl_fail(err, RCS_ERR_FAULT, "the %llu bytes are not all mapped readable memory",
				(unsigned long long)len);
	}
	/* no device took it, or none is there: a region all the same, only slower */
	return 0;
}

/* Bit r: the rail's device now is the one that it was registered with. */
static uint32_t rails_known(const uint32_t now[WIRE_RAILS_MAX], const uint32_t *epoch)
{
	uint32_t known = 0;

	for (unsigned i = 0; epoch && i < WIRE_RAILS_MAX; i++)
		if (now[i] && now[i] == epoch[i])
			known |= 1u << i;
	return known;
}

int cl_reg_make(rcs_ctx *ctx, struct cl_chan *ch, void *addr, uint64_t len, struct wire_key key,
	uint32_t epoch[WIRE_RAILS_MAX], struct cl_reg *reg, struct rcs_error *err)
{
	uint32_t now[WIRE_RAILS_MAX];
	uint64_t at = (uint64_t)(uintptr_t)addr;
	struct shm_lent lent;
	struct shm_reg out;
	struct shm_msg ans;
	int fds[WIRE_RAILS_MAX], rc;
	unsigned nfds = 0;
	bool readonly = false;

	/* before the loan: a device that comes in between makes it one too many, not one too few */
	for (unsigned i = 0; i < WIRE_RAILS_MAX; i++)
		now[i] = atomic_load_explicit(&ch->table->rail_epoch[i], memory_order_acquire);
	rc = borrow(ch, at, len, key, &lent, fds, &nfds);
	if (rc) {
		if (rc == -ECONNRESET || rc == -EPIPE || rc == -ENOTCONN)
			return cl_fail(err, RCS_ERR_RUNTIME_LOST, "%s", lent.m.sentence);
		return cl_fail(err, rc == -ENOMEM ? RCS_ERR_NOMEM : RCS_ERR_AGAIN,
			"the rcshare daemon lends no device: %s",
			lent.m.sentence[0] ? lent.m.sentence : strerror(-rc));
	}
	memset(&out, 0, sizeof(out));
	cl_msg_init(&out.m, SHM_MSG_REG);
	out.key = lent.key;
	if (lent.ndev)
		register_all(&lent, at, len, fds, nfds, rails_known(now, epoch), &out, &readonly);
	while (nfds)
		close(fds[--nfds]);
	rc = cl_chan_ask(ch, &out, sizeof(out), &ans, sizeof(ans), NULL, NULL);
	if (rc == -ESTALE) { /* this process stood still for too long in between */
		struct cl_reg none = {.key = lent.key};

		if (!key.region)
			cl_reg_drop(ch, &none);
		return cl_fail(err, RCS_ERR_AGAIN, "the rcshare daemon's loan had ended: %s", ans.sentence);
	}
	if (rc == -ETIMEDOUT) {
		struct cl_reg none = {.key = lent.key};

		if (!key.region)
			cl_reg_drop(ch, &none); /* whether it was taken or not */
		return cl_fail(err, RCS_ERR_AGAIN, "the registration was not answered: %s", ans.sentence);
	}
	if (rc)
		return cl_fail(err, RCS_ERR_RUNTIME_LOST, "the registration was not taken: %s",
			ans.sentence[0] ? ans.sentence : strerror(-rc));
	if (epoch)
		memcpy(epoch, now, sizeof(now));
	reg->key = lent.key;
	reg->rdma = out.ok != 0;
	reg->readonly = readonly;
	rc = reg_outcome(len, &out, err);
	if (rc == RCS_ERR_MEMLOCK && !err && !ctx->memlock_warned) {
		struct rcs_error e;

		ctx->memlock_warned = true;
		memlock_error(len, &e);
		fprintf(stderr, "rcshare: rank %u: large messages are copied instead of fetched by RDMA: %s\n",
			ctx->rank, e.sentence);
	}
	/* what had the key before is not given up */
	if (rc && !key.region)
		cl_reg_drop(ch, reg);
	return rc;
}

/*
 * Nothing can touch the memory any more when this is called (its transfer has ended), so nobody
 * needs to wait for the daemon.
 */
void cl_reg_drop(struct cl_chan *ch, struct cl_reg *reg)
{
	struct shm_dereg req = {.key = reg->key};

	cl_msg_init(&req.m, SHM_MSG_DEREG);
	if (reg->key.region)
		cl_chan_tell(ch, &req, sizeof(req));
	*reg = (struct cl_reg){0};
}
