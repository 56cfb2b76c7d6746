/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory: the daemon's own buffers, and what ranks register with our protection domains.
 *
 * MRs that a rank made are objects of our uverbs file, named by a handle; no struct ibv_mr exists for
 * them here, so they are destroyed by the ioctl itself (rdma/ib_user_ioctl_cmds.h, UVERBS_OBJECT_MR).
 * What a dying rank left is what the kernel lists and we do not know.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/verbs_impl.h"
#include "shm/uverbs.h"

#define SWEEP_MAX 16000u

int verbs_buf_register(struct verbs_buf *b, unsigned r)
{
	struct rail *rail = &b->v->rail[r];

	if (b->mr[r] || !rail->ctx)
		return 0;
	b->mr[r] = ibv_reg_mr(rail->pd, b->addr, b->len, IBV_ACCESS_LOCAL_WRITE);
	return b->mr[r] ? 0 : -errno;
}

struct verbs_buf *verbs_buf_new(struct verbs *v, size_t len)
{
	struct verbs_buf *b = calloc(1, sizeof(*b));
	int err = 0;

	if (!b)
		return NULL;
	b->v = v;
	b->len = len;
	b->addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->addr == MAP_FAILED) {
		free(b);
		return NULL;
	}
	for (unsigned r = 0; r < v->rails && !err; r++)
		err = verbs_buf_register(b, r);
	b->next = v->bufs;
	v->bufs = b;
	if (err) {
		verbs_buf_free(b);
		errno = -err;
		return NULL;
	}
	return b;
}

void *verbs_buf_addr(struct verbs_buf *b)
{
	return b->addr;
}

void verbs_buf_free(struct verbs_buf *b)
{
	struct verbs_buf **p = &b->v->bufs;

	while (*p && *p != b)
		p = &(*p)->next;
	if (*p)
		*p = b->next;
	for (unsigned r = 0; r < WIRE_RAILS_MAX; r++)
		if (b->mr[r])
			ibv_dereg_mr(b->mr[r]);
	munmap(b->addr, b->len);
	free(b);
}

unsigned verbs_lend(struct verbs *v, int fds[WIRE_RAILS_MAX], uint32_t pd_handle[WIRE_RAILS_MAX],
	uint32_t driver[WIRE_RAILS_MAX])
{
	for (unsigned r = 0; r < v->rails; r++) {
		struct rail *rail = &v->rail[r];

		/* no word with the kernel about regions, no loan: we could not end them */
		fds[r] = rail->ctx && rail->driver >= 0 ? fcntl(rail->ctx->cmd_fd, F_DUPFD_CLOEXEC, 3) : -1;
		driver[r] = (uint32_t)rail->driver;
		pd_handle[r] = rail->pd ? rail->pd->handle : 0;
	}
	return v->rails;
}

static int mr_end(int fd, uint32_t driver, uint32_t handle)
{
	struct ib_uverbs_attr attr = {.attr_id = UVERBS_ATTR_DESTROY_MR_HANDLE, .data_s64 = handle};

	return shm_uverbs_command(fd, driver, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, &attr, 1);
}

static int mr_destroy(struct rail *r, uint32_t handle)
{
	return r->driver < 0 ? r->driver : mr_end(r->ctx->cmd_fd, (uint32_t)r->driver, handle);
}

bool verbs_mr_take(struct verbs *v, unsigned rail, uint32_t mr_handle, struct verbs_mr *mr)
{
	struct rail *r = &v->rail[rail];
	int fd = r->ctx && r->driver >= 0 ? fcntl(r->ctx->cmd_fd, F_DUPFD_CLOEXEC, 3) : -1;

	if (fd >= 0)
		*mr = (struct verbs_mr){fd, (uint32_t)r->driver, mr_handle};
	return fd >= 0;
}

void verbs_mr_end(struct verbs_mr *mr)
{
	mr_end(mr->fd, mr->driver, mr->handle);
	close(mr->fd);
}

int verbs_mr_destroy(struct verbs *v, unsigned rail, uint32_t mr_handle)
{
	struct rail *r = &v->rail[rail];

	return r->ctx ? mr_destroy(r, mr_handle) : 0;
}

/* --- what a dying rank left ------------------------------------------------------------------------ */

struct handles {
	uint32_t *h;
	size_t n, cap;
	bool failed; /* no memory */
};

static void handles_add(struct handles *s, uint32_t handle)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 1024;
		uint32_t *p = realloc(s->h, cap * sizeof(*p));

		if (!p) {
			s->failed = true;
			return;
		}
		s->h = p;
		s->cap = cap;
	}
	s->h[s->n++] = handle;
}

static void handles_add_mr(struct handles *s, const struct ibv_mr *mr)
{
	if (mr)
		handles_add(s, mr->handle);
}

static void handles_add_lanes(struct handles *s, const struct verbs_lane *l, unsigned rail)
{
	for (; l; l = l->next)
		for (unsigned m = 0; m < VERBS_MEMS && l->r == rail; m++)
			if (l->mem[m].handle != VERBS_NO_MR)
				handles_add(s, l->mem[m].handle);
}

/* Whatever is registered by us, or is being destroyed. */
static void handles_own(struct handles *s, struct verbs *v, unsigned rail)
{
	struct rail *r = &v->rail[rail];

	handles_add_mr(s, r->ud.mr);
	for (struct ud_job *j = v->ud_jobs; j; j = j->next)
		if (j->rail == r && j->handle != VERBS_NO_MR)
			handles_add(s, j->handle);
	for (struct verbs_buf *b = v->bufs; b; b = b->next)
		handles_add_mr(s, b->mr[rail]);
	handles_add_lanes(s, v->lanes, rail);
	handles_add_lanes(s, v->closed, rail);
	for (struct mr_job *j = v->mr_jobs; j; j = j->next)
		if (j->rail == r)
			handles_add(s, j->handle);
}

static int by_handle(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

bool verbs_mr_is_own(struct verbs *v, unsigned rail, uint32_t handle)
{
	struct handles own = {0};
	bool is = false;

	handles_own(&own, v, rail);
	for (size_t i = 0; i < own.n && !is; i++)
		is = own.h[i] == handle;
	is |= own.failed;
	free(own.h);
	return is;
}

void verbs_mr_sweep(struct verbs *v, unsigned rail, const uint32_t *known, size_t n)
{
	struct rail *r = &v->rail[rail];
	struct handles keep = {0};
	uint32_t *list;
	long have;

	if (!r->ctx || r->driver < 0)
		return;
	list = calloc(SWEEP_MAX, sizeof(*list));
	for (size_t i = 0; i < n; i++)
		handles_add(&keep, known[i]);
	handles_own(&keep, v, rail);
	if (list && !keep.failed) {
		if (keep.n)
			qsort(keep.h, keep.n, sizeof(*keep.h), by_handle);
		/* The newest come first, so leftovers are among them also when there are more. */
		have = shm_uverbs_mrs(r->ctx->cmd_fd, (uint32_t)r->driver, list, SWEEP_MAX);
		for (long i = 0; i < have && i < (long)SWEEP_MAX; i++)
			if (!keep.n || !bsearch(&list[i], keep.h, keep.n, sizeof(*keep.h), by_handle))
				verbs_reap_mr(r, list[i]);
	}
	free(keep.h);
	free(list);
}
