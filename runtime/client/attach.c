/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket to the node's daemon: attach, requests and their answers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib.h"

#define ANSWER_S 60 /* a daemon that is silent for longer is hung */
#define LOOK_NS	 1000000000ull
#define CLOSE_NS 1000000000ull

void cl_msg_init(struct shm_msg *m, uint32_t type)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->abi = SHM_ABI;
}

/*
 * A daemon that hangs lets its lease (until_ns) end, so that nobody waits for it much longer than that. Who was
 * not answered once is not made to wait again for each of its other regions.
 */
static bool answer_comes(struct cl_chan *ch)
{
	struct pollfd p = {.fd = ch->sock, .events = POLLIN};
	uint64_t end = cl_now() + ANSWER_S * 1000000000ull, until;

	cl_chan_lapsed(ch, &until);
	ch->silent &= until == ch->silent_until; /* else it has said more since */
	do {
		cl_poll(&p, 1, ch->silent ? 0 : LOOK_NS);
		if (p.revents) {
			ch->silent = false;
			return true;
		}
		ch->silent |= cl_chan_lapsed(ch, &until) || cl_now() >= end;
	} while (!ch->silent);
	ch->silent_until = until;
	return false;
}

static int answer_read(struct cl_chan *ch, void *answer, size_t len, int *fds, unsigned *nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 8)];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {answer, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf)};
	unsigned want = nfds ? *nfds : 0, got = 0;
	ssize_t n;

	if (!answer_comes(ch))
		return -ETIMEDOUT;
	do
		n = recvmsg(ch->sock, &mh, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (!n)
		ch->ended = true;
	if (n <= 0)
		return n == 0 ? -ECONNRESET : -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (unsigned i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (fds && got < want)
				fds[got++] = fd;
			else
				close(fd);
		}
	}
	if (nfds)
		*nfds = got;
	if ((size_t)n < sizeof(struct shm_msg)) {
		while (fds && got)
			close(fds[--got]);
		return -EPROTO;
	}
	/* an error may come without the rest of the answer */
	if ((size_t)n < len)
		memset((char *)answer + n, 0, len - (size_t)n);
	return 0;
}

static int settle(struct cl_chan *ch)
{
	if (ch->dead)
		return -ENOTCONN;
	while (ch->owed) {
		struct shm_dereg m;
		int rc = answer_read(ch, &m, sizeof(m), NULL, NULL);

		if (rc)
			return rc;
		ch->owed--;
	}
	return 0;
}

static int request_send(struct cl_chan *ch, const void *req, size_t len)
{
	ssize_t n;

	if (ch->sock < 0 || ch->dead)
		return -ENOTCONN;
	do
		n = send(ch->sock, req, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int ask(struct cl_chan *ch, void *req, size_t req_len, void *answer, size_t answer_len,
	int *fds, unsigned *nfds, void (*before)(const struct cl_chan *))
{
	struct shm_msg *m = answer;
	int rc = settle(ch);

	if (!rc)
		rc = request_send(ch, req, req_len);
	if (!rc && before)
		before(ch);
	if (!rc) {
		rc = answer_read(ch, answer, answer_len, fds, nfds);
		/* when it comes after all, it must not be taken for that of another request */
		if (rc == -ETIMEDOUT)
			ch->owed++;
	}
	if (rc) {
		if (nfds)
			*nfds = 0; /* else the caller closes whatever stands in fds */
		cl_msg_init(m, 0);
		snprintf(m->sentence, sizeof(m->sentence), "the rcshare daemon does not answer: %s",
			strerror(-rc));
		return rc;
	}
	m->sentence[sizeof(m->sentence) - 1] = '\0';
	if (m->type != ((struct shm_msg *)req)->type && !m->status)
		m->status = -EPROTO;
	if (m->status && nfds)
		while (*nfds)
			close(fds[--*nfds]);
	return m->status;
}

int cl_chan_ask(struct cl_chan *ch, void *req, size_t req_len, void *answer, size_t answer_len,
	int *fds, unsigned *nfds)
{
	return ask(ch, req, req_len, answer, answer_len, fds, nfds, NULL);
}

int cl_chan_ask_long(struct cl_chan *ch, void *req, size_t req_len, void *answer, size_t answer_len,
	void (*wait)(const struct cl_chan *))
{
	return ask(ch, req, req_len, answer, answer_len, NULL, NULL, wait);
}

int cl_chan_tell(struct cl_chan *ch, void *req, size_t req_len)
{
	int rc;

	/* both ends' socket buffers are small: do not run ahead */
	if (ch->owed >= 8) {
		rc = settle(ch);
		if (rc)
			return rc;
	}
	rc = request_send(ch, req, req_len);
	if (!rc)
		ch->owed++;
	return rc;
}

bool cl_chan_lost(struct cl_chan *ch)
{
	struct shm_dereg m;

	for (;;) {
		ssize_t n = recv(ch->sock, &m, sizeof(m), MSG_DONTWAIT);

		if (n > 0) {
			ch->silent = false;
			if (ch->owed)
				ch->owed--;
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		ch->ended = true;
		return true;
	}
}

/* What the daemon shares is checked once, against the size of the memfd that came. */
static const char *channel_check(const struct shm_channel *s, size_t size)
{
	if (s->magic != SHM_MAGIC)
		return "the daemon's channel has a wrong magic number";
	if (s->abi != SHM_ABI)
		return "library and daemon have different ABI versions; use the release of this node";
	if (s->size != size || s->tx_size < 4096 || s->rx_size < 4096 ||
		s->tx_size & (s->tx_size - 1) || s->rx_size & (s->rx_size - 1) ||
		s->tx_off < sizeof(*s) || s->tx_off > size || s->tx_size > size - s->tx_off ||
		s->rx_off < sizeof(*s) || s->rx_off > size || s->rx_size > size - s->rx_off)
		return "the daemon's channel has a layout that makes no sense";
	if (!s->eager_max || s->eager_max > WIRE_REC_PAYLOAD_MAX || s->credit0 < CL_CREDIT_MIN ||
		s->rx_answers < 8 * CL_ANSWER || s->rx_credit < s->credit0)
		return "the daemon's channel has limits that make no sense";
	return NULL;
}

static int chan_map(struct cl_chan *ch, int channel_fd, int table_fd, struct rcs_error *err)
{
	struct stat st;
	const char *why;
	void *p;

	if (fstat(channel_fd, &st))
		return cl_fail(err, RCS_ERR_IO, "fstat of the channel: %s", strerror(errno));
	ch->shm_size = (size_t)st.st_size;
	p = ch->shm_size < sizeof(struct shm_channel) ? MAP_FAILED :
		mmap(NULL, ch->shm_size, PROT_READ | PROT_WRITE, MAP_SHARED, channel_fd, 0);
	if (p == MAP_FAILED)
		return cl_fail(err, RCS_ERR_NOMEM, "cannot map the channel: %s", strerror(errno));
	ch->shm = p;
	why = channel_check(ch->shm, ch->shm_size);
	if (why)
		return cl_fail(err, RCS_ERR_VERSION, "%s", why);

	if (fstat(table_fd, &st))
		return cl_fail(err, RCS_ERR_IO, "fstat of the table: %s", strerror(errno));
	ch->table_size = (size_t)st.st_size;
	p = ch->table_size < sizeof(struct shm_table) ? MAP_FAILED :
		mmap(NULL, ch->table_size, PROT_READ, MAP_SHARED, table_fd, 0);
	if (p == MAP_FAILED)
		return cl_fail(err, RCS_ERR_NOMEM, "cannot map the node table: %s", strerror(errno));
	ch->table = p;
	ch->nodes = ch->table->nodes;
	ch->node = ch->table->node;
	if (ch->table->abi != SHM_ABI || !ch->nodes || ch->node >= ch->nodes ||
		ch->nodes > (ch->table_size - sizeof(struct shm_table)) / sizeof(struct shm_node))
		return cl_fail(err, RCS_ERR_VERSION,
			"the daemon's node table has another version or makes no sense");
	return 0;
}

static int sock_connect(const char *path, struct rcs_error *err)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct timeval tv = {.tv_sec = ANSWER_S};
	int fd, rc;

	if (strlen(path) >= sizeof(a.sun_path))
		return cl_fail(err, RCS_ERR_INVALID, "the socket's path is too long: %s", path);
	strcpy(a.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return cl_fail(err, RCS_ERR_IO, "socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	do
		rc = connect(fd, (struct sockaddr *)&a, sizeof(a));
	while (rc && errno == EINTR);
	if (rc) {
		rc = errno;
		close(fd);
		return cl_fail(err, RCS_ERR_NO_RUNTIME, "cannot reach this node's rcshare daemon at %s: "
			"%s; %s", path, strerror(rc), rc == ENOENT ?
			"in a container, mount that folder into it" : "its log tells why it ended");
	}
	return fd;
}

static int refusal(int rc)
{
	switch (rc) {
	case -ENOMEM:
	case -EMFILE:
		return RCS_ERR_NOMEM;
	case -EPROTO:
	case -EPROTONOSUPPORT:
		return RCS_ERR_VERSION;
	case -EHOSTDOWN:
		return RCS_ERR_PARTITIONED;
	default:
		return RCS_ERR_NO_RUNTIME;
	}
}

static int chan_attach(rcs_ctx *ctx, uint64_t rx_size, struct cl_chan *ch, struct rcs_error *err)
{
	struct shm_attach req = {.job = ctx->job, .restart = ctx->restart, .step = ctx->step,
		.rank = ctx->rank, .ranks = ctx->nranks, .local_ranks = ctx->local_ranks,
		.pid = ctx->pid, .rx_size = rx_size};
	struct shm_attached ans;
	int fds[SHM_FD_N], rc;
	unsigned n = SHM_FD_N;

	ch->sock = sock_connect(ctx->socket, err);
	if (ch->sock < 0)
		return ch->sock;
	cl_msg_init(&req.m, SHM_MSG_ATTACH);
	rc = cl_chan_ask(ch, &req, sizeof(req), &ans, sizeof(ans), fds, &n);
	if (rc || n != SHM_FD_N) {
		if (!rc)
			snprintf(ans.m.sentence, sizeof(ans.m.sentence), "its answer lacks descriptors");
		while (n)
			close(fds[--n]);
		return cl_fail(err, refusal(rc), "the rcshare daemon refused this rank: %s",
			ans.m.sentence[0] ? ans.m.sentence : strerror(-rc));
	}
	ch->daemon_bell = fds[SHM_FD_DAEMON];
	ch->rank_bell = fds[SHM_FD_RANK];
	rc = chan_map(ch, fds[SHM_FD_CHANNEL], fds[SHM_FD_TABLE], err);
	close(fds[SHM_FD_CHANNEL]);
	close(fds[SHM_FD_TABLE]);
	return rc;
}

int cl_chan_connect(rcs_ctx *ctx, struct cl_chan *ch, struct rcs_error *err)
{
	int fd = sock_connect(ctx->socket, err);

	if (fd < 0)
		return fd;
	ch->sock = fd;
	return 0;
}

int cl_chan_open(rcs_ctx *ctx, uint64_t rx_size, struct cl_chan *ch, struct rcs_error *err)
{
	int rc;

	*ch = (struct cl_chan){.sock = -1, .daemon_bell = -1, .rank_bell = -1};
	rc = chan_attach(ctx, rx_size, ch, err);
	if (rc) {
		cl_chan_close(ch);
		return rc;
	}
	shm_ring_init(&ch->tx, &ch->shm->tx, (uint8_t *)ch->shm + ch->shm->tx_off, ch->shm->tx_size);
	shm_ring_init(&ch->rx, &ch->shm->rx, (uint8_t *)ch->shm + ch->shm->rx_off, ch->shm->rx_size);
	ch->eager_max = ch->shm->eager_max;
	ch->zcopy_min = ch->shm->zcopy_min;
	ch->credit0 = ch->shm->credit0;
	ch->rx_credit = ch->shm->rx_credit;
	ch->answers_max = ch->shm->rx_answers / CL_ANSWER;
	ch->addr = ch->shm->addr;
	ch->addr.credit0 = ch->credit0;
	wire_addr_seal(&ch->addr);
	return 0;
}

void cl_chan_close(struct cl_chan *ch)
{
	struct shm_msg bye;

	ch->dead = false;
	if (ch->sock >= 0 && !ch->left) {
		cl_msg_init(&bye, SHM_MSG_DETACH);
		request_send(ch, &bye, sizeof(bye));
	}
	if (ch->shm)
		munmap(ch->shm, ch->shm_size);
	if (ch->table)
		munmap((void *)(uintptr_t)ch->table, ch->table_size);
	if (ch->sock >= 0)
		close(ch->sock);
	if (ch->daemon_bell >= 0)
		close(ch->daemon_bell);
	if (ch->rank_bell >= 0)
		close(ch->rank_bell);
	*ch = (struct cl_chan){.sock = -1, .daemon_bell = -1, .rank_bell = -1};
}

void cl_chan_leave(struct cl_chan *ch)
{
	bool dead = ch->dead;
	struct shm_msg bye;

	if (ch->sock < 0 || ch->left)
		return;
	ch->left = true;
	ch->dead = false;
	cl_msg_init(&bye, SHM_MSG_DETACH);
	request_send(ch, &bye, sizeof(bye));
	shutdown(ch->sock, SHUT_WR);
	ch->dead = dead;
}

bool cl_chan_end_wait(struct cl_chan *ch)
{
	struct pollfd p = {.fd = ch->sock, .events = POLLIN};
	uint64_t until = cl_now() + CLOSE_NS, now;

	while (!ch->ended && !cl_chan_lost(ch) && (now = cl_now()) < until)
		cl_poll(&p, 1, until - now);
	return ch->ended;
}
