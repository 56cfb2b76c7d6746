/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/verbs.h on ports that are this file: they work, or do not, as the fuzzer says. */
#include "bed_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int verbs_open(struct verbs **v, const struct config *cfg, unsigned peers, const struct verbs_ops *ops,
	char *why, size_t why_len)
{
	(void)cfg;
	(void)peers;
	(void)why;
	(void)why_len;
	*v = calloc(1, sizeof(**v));
	bed_must(*v, "memory");
	(*v)->ops = *ops;
	for (unsigned r = 0; r < BED_RAILS; r++) {
		(*v)->ok[r] = (*v)->told[r] = true;
		(*v)->epoch[r] = 1;
	}
	return 0;
}

void verbs_close(struct verbs *v)
{
	bed_must(!bed_lanes(v), "no lane outlives its port");
	free(v);
}

static struct verbs *of(unsigned node)
{
	return bed.n[node] ? bed.n[node]->vb : NULL;
}

void bed_verbs_rail(unsigned node, unsigned rail, bool ok, bool replaced)
{
	struct verbs *v = of(node);

	if (!v)
		return;
	v->ok[rail] = ok;
	v->epoch[rail] += replaced;
}

void bed_verbs_hold(unsigned node, unsigned rail, bool hold)
{
	if (of(node))
		of(node)->held[rail] = hold;
}

void bed_verbs_refuse(unsigned node)
{
	if (of(node))
		of(node)->refuse = true;
}

/* --- rails ---------------------------------------------------------------------------------------- */

unsigned verbs_rails(const struct verbs *v)
{
	(void)v;
	return BED_RAILS;
}

void verbs_offer(struct verbs *v, unsigned rails)
{
	(void)v;
	(void)rails;
}

unsigned verbs_left_out(const struct verbs *v)
{
	(void)v;
	return 0;
}

const char *verbs_left_out_why(const struct verbs *v, unsigned i)
{
	(void)v;
	(void)i;
	return "";
}

bool verbs_rail_ok(const struct verbs *v, unsigned rail)
{
	return v->ok[rail];
}

void verbs_rail_record(struct verbs *v, unsigned rail, struct shm_rail_record *out)
{
	(void)v;
	memset(out, 0, sizeof(*out));
	snprintf(out->device, sizeof(out->device), "bed%u", rail);
}

const char *verbs_rail_name(const struct verbs *v, unsigned rail)
{
	static const char *const names[BED_RAILS] = {"bed0/1", "bed1/1"};

	(void)v;
	return names[rail];
}

enum verbs_ledger verbs_rail_ledger(const struct verbs *v, unsigned rail)
{
	(void)v;
	(void)rail;
	return VERBS_LEDGER_RQ_PSN;
}

const char *verbs_rail_ledger_why(const struct verbs *v, unsigned rail)
{
	(void)v;
	(void)rail;
	return "";
}

const char *verbs_ledger_name(enum verbs_ledger ledger)
{
	(void)ledger;
	return "rq_psn";
}

int verbs_rail_datagrams(const struct verbs *v, unsigned rail)
{
	(void)v;
	(void)rail;
	return -EOPNOTSUPP;
}

void verbs_rail_check(struct verbs *v, unsigned rail)
{
	(void)v;
	(void)rail;
}

uint32_t verbs_rail_epoch(const struct verbs *v, unsigned rail)
{
	return v->epoch[rail];
}

uint64_t verbs_message_max(const struct verbs *v)
{
	(void)v;
	return 1u << 30;
}

int verbs_carrier_fd(const struct verbs *v)
{
	(void)v;
	return -1;
}

int verbs_work_fd(const struct verbs *v)
{
	(void)v;
	return -1;
}

unsigned verbs_fds(struct verbs *v, int fds[2 * WIRE_RAILS_MAX])
{
	(void)v;
	(void)fds;
	return 0;
}

unsigned verbs_fds_version(const struct verbs *v)
{
	(void)v;
	return 1;
}

void verbs_async(struct verbs *v)
{
	(void)v;
}

int verbs_arm(struct verbs *v)
{
	(void)v;
	return 0;
}

void verbs_tick(struct verbs *v, uint64_t now_ns)
{
	(void)v;
	(void)now_ns;
}

/* --- memory --------------------------------------------------------------------------------------- */

struct verbs_buf *verbs_buf_new(struct verbs *v, size_t len)
{
	struct verbs_buf *b = malloc(sizeof(*b));

	(void)v;
	bed_must(b && (b->mem = calloc(1, len)), "memory");
	return b;
}

void *verbs_buf_addr(struct verbs_buf *b)
{
	return b->mem;
}

void verbs_buf_free(struct verbs_buf *b)
{
	free(b->mem);
	free(b);
}

unsigned verbs_lend(struct verbs *v, int fds[WIRE_RAILS_MAX], uint32_t pd_handle[WIRE_RAILS_MAX],
	uint32_t driver[WIRE_RAILS_MAX])
{
	for (unsigned r = 0; r < BED_RAILS; r++) {
		fds[r] = v->ok[r] ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
		pd_handle[r] = r;
		driver[r] = 0;
	}
	return BED_RAILS;
}

bool verbs_mr_take(struct verbs *v, unsigned rail, uint32_t mr_handle, struct verbs_mr *mr)
{
	(void)v;
	(void)rail;
	*mr = (struct verbs_mr){.fd = -1, .handle = mr_handle};
	return true;
}

void verbs_mr_end(struct verbs_mr *mr)
{
	(void)mr;
}

int verbs_mr_destroy(struct verbs *v, unsigned rail, uint32_t mr_handle)
{
	(void)v;
	(void)rail;
	(void)mr_handle;
	return 0;
}

bool verbs_mr_is_own(struct verbs *v, unsigned rail, uint32_t handle)
{
	(void)v;
	(void)rail;
	return handle == 1; /* of the frames */
}

void verbs_mr_sweep(struct verbs *v, unsigned rail, const uint32_t *known, size_t n)
{
	(void)v;
	(void)rail;
	(void)known;
	(void)n;
}

/* There are no datagrams. */
struct verbs_target *verbs_target_new(struct verbs_lane *lane)
{
	(void)lane;
	return NULL;
}

void verbs_target_free(struct verbs_target *t)
{
	(void)t;
}

int verbs_target_send(struct verbs_target *t, const void *data, size_t len)
{
	(void)t;
	(void)data;
	(void)len;
	return -EOPNOTSUPP;
}
