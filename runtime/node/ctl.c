/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Unix socket: ranks attach and register memory, tools ask, notifiers listen. Requests come one
 * at a time on each connection and are answered in order; nothing here waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "node/access.h"
#include "node/job.h"
#include "node/rails.h"

#define CONNS_MAX (2 * NODE_CHANS_MAX + 64) /* with spares each context has one more */

union any_msg {
	struct shm_msg m;
	struct shm_attach attach;
	struct shm_lend lend;
	struct shm_reg reg;
	struct shm_dereg dereg;
	struct shm_alloc alloc;
	struct shm_eager eager;
	struct shm_step_end step_end;
	struct shm_witness witness;
	struct shm_place place;
	struct shm_where where;
	uint8_t room[sizeof(struct shm_monitor) + SHM_MONITOR_MAX];
	struct shm_monitor monitor;
};

void ctl_answer(struct chan *c, const void *msg, size_t len, const int *fds, unsigned nfds)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(8 * sizeof(int))];
	} cm;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		memset(&cm, 0, sizeof(cm));
		mh.msg_control = &cm;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		cm.h.cmsg_level = SOL_SOCKET;
		cm.h.cmsg_type = SCM_RIGHTS;
		cm.h.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&cm.h), fds, nfds * sizeof(int));
	}
	/* A client that does not read its answers fills its own socket only; its end is noticed. */
	(void)!sendmsg(c->sock.fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ctl_reply(struct chan *c, uint32_t type, int err, const char *sentence)
{
	struct shm_msg m = {.type = type, .abi = SHM_ABI, .status = err};

	snprintf(m.sentence, sizeof(m.sentence), "%s", sentence);
	ctl_answer(c, &m, sizeof(m), NULL, 0);
}

static void ctl_reply_other_job(const struct node *n, struct chan *c, uint32_t type, const char *other)
{
	char why[SHM_SENTENCE];

	snprintf(why, sizeof(why), "this runtime serves job %u.%u, not %.40s; unset RCSHARE_SOCKET that came from "
		"another job", n->o.job, n->o.restart, other);
	ctl_reply(c, type, -ESTALE, why);
}

static void do_attach(struct node *n, struct chan *c, const struct shm_attach *a)
{
	struct shm_attached out = {.m = {.type = SHM_MSG_ATTACH, .abi = SHM_ABI}};
	char why[SHM_SENTENCE], path[64];
	int fds[SHM_FD_N], err;

	if (c->kind != CHAN_NEW) {
		ctl_reply(c, SHM_MSG_ATTACH, -EALREADY, "this connection has an endpoint already");
		return;
	}
	if (a->job != n->o.job || a->restart != n->o.restart) {
		snprintf(why, sizeof(why), "%u.%u", a->job, a->restart);
		ctl_reply_other_job(n, c, SHM_MSG_ATTACH, why);
		return;
	}
	if (n->parted) {
		ctl_reply(c, SHM_MSG_ATTACH, -EHOSTDOWN, NODE_PARTED);
		return;
	}
	err = chan_make(n, c, a, why);
	if (err) {
		ctl_reply(c, SHM_MSG_ATTACH, err, why);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", n->table_fd);
	fds[SHM_FD_CHANNEL] = c->memfd;
	fds[SHM_FD_TABLE] = open(path, O_RDONLY | O_CLOEXEC);
	fds[SHM_FD_DAEMON] = c->bell.fd;
	fds[SHM_FD_RANK] = c->rank_bell;
	if (fds[SHM_FD_TABLE] < 0) {
		ctl_reply(c, SHM_MSG_ATTACH, -errno, "the node's runtime is out of descriptors; raise nofile in "
			"rcshare.conf");
		c->bye = true;
		chan_close(n, c, "");
		return;
	}
	out.channel_size = c->size;
	out.table_size = n->table_size;
	ctl_answer(c, &out, sizeof(out), fds, SHM_FD_N);
	close(fds[SHM_FD_TABLE]);
}

static void do_dereg(struct node *n, struct chan *c, const struct shm_dereg *d)
{
	/* What the rank's library did with the region is known then; it does no more from now on. */
	bool answered = !c->accesses || chan_drain(n, c);
	struct region *g = region_find(n, c, d->key);

	if (!g) {
		ctl_reply(c, SHM_MSG_DEREG, -ENOENT, "no such region");
		return;
	}
	g->answer = true;
	region_drop(n, g);
	access_closed(n, c, wire_key_pack(d->key), answered);
}

/* Nothing can touch the memory any more. */
void ctl_dereg_done(struct chan *c)
{
	if (!c->closing)
		ctl_reply(c, SHM_MSG_DEREG, 0, "");
}

static void do_alloc(struct node *n, struct chan *c, const struct shm_alloc *a)
{
	struct shm_alloced out = {.m = {.type = SHM_MSG_ALLOC, .abi = SHM_ABI}};
	int fd, err = a->len ? region_alloc(n, c, a->len, &out.key, &fd) : -EINVAL;
	char why[SHM_SENTENCE];

	if (err) {
		snprintf(why, sizeof(why), "no shared memory of %llu bytes: %s; check memory_limit_mb in "
			"rcshare.conf", (unsigned long long)a->len, strerror(-err));
		ctl_reply(c, SHM_MSG_ALLOC, err, why);
		return;
	}
	ctl_answer(c, &out, sizeof(out), &fd, 1);
	close(fd);
}

static void do_record(struct node *n, struct chan *c)
{
	struct shm_record out = {.m = {.type = SHM_MSG_RECORD, .abi = SHM_ABI}};
	struct shm_node_record *r = &out.rec;

	r->version = SHM_RECORD_VERSION;
	r->nrails = (uint16_t)n->rails;
	r->node = (uint16_t)n->o.self;
	r->job = n->o.job;
	r->restart = n->o.restart;
	r->ctrl = n->addr;
	wire_addr_seal(&r->ctrl);
	snprintf(r->host, sizeof(r->host), "%.63s", n->o.names[n->o.self]);
	for (unsigned i = 0; i < n->rails; i++)
		verbs_rail_record(n->vb, i, &r->rail[i]);
	r->crc = wire_crc32c(0, r, offsetof(struct shm_node_record, crc));
	ctl_answer(c, &out, sizeof(out), NULL, 0);
}

static const char *record_check(const struct node *n, const struct shm_node_record *r)
{
	const char *why;

	if (r->version != SHM_RECORD_VERSION)
		return "a node's record has another version; all nodes need the same rcshare release";
	if (r->crc != wire_crc32c(0, r, offsetof(struct shm_node_record, crc)))
		return "a node's record is damaged (its checksum does not match)";
	if (r->job != n->o.job || r->restart != n->o.restart || r->node >= n->o.nodes)
		return "a node's record belongs to another job";
	if (wire_addr_check(&r->ctrl, &why))
		return "a node's record has a bad control address";
	return NULL;
}

static void do_eager(struct node *n, struct chan *c, const struct shm_eager *e)
{
	const char *bad = record_check(n, &e->rec);
	struct link *l;

	if (bad) {
		ctl_reply(c, SHM_MSG_EAGER, -EINVAL, bad);
		return;
	}
	if (e->rec.node != n->o.self) {
		l = link_get(n, e->rec.node);
		if (!l) {
			ctl_reply(c, SHM_MSG_EAGER, -ENOMEM, "the node's runtime is out of memory");
			return;
		}
		if (!l->tcp.conn)
			link_learn(l, &e->rec.ctrl);
	}
	if (!e->last) {
		ctl_reply(c, SHM_MSG_EAGER, 0, "");
		return;
	}
	c->eager_deadline = n->now + (uint64_t)e->timeout_ms * 1000000;
	ctl_eager_check(n);
}

static bool lanes_open(const struct node *n)
{
	for (const struct link *l = n->links; l; l = l->next) {
		if (!l->lost && !rails_open(l))
			return false;
	}
	return true;
}

void ctl_eager_check(struct node *n)
{
	for (struct chan *c = n->chans; c; c = c->next) {
		if (!c->eager_deadline || c->closing)
			continue;
		if (lanes_open(n)) {
			c->eager_deadline = 0;
			ctl_reply(c, SHM_MSG_EAGER, 0, "");
		} else if (n->now >= c->eager_deadline) {
			c->eager_deadline = 0;
			ctl_reply(c, SHM_MSG_EAGER, -ETIMEDOUT, "not all lanes came up in time; they are opened "
				"when needed (see `rcshare status`)");
		}
	}
}

static void do_status(struct node *n, struct chan *c)
{
	struct shm_msg m = {.type = SHM_MSG_STATUS, .abi = SHM_ABI};
	char *text = status_json(n);
	int fd = memfd_create("rcshare-status", MFD_CLOEXEC);

	if (!text || fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		ctl_reply(c, SHM_MSG_STATUS, -ENOMEM, "the node's runtime is out of memory");
	else
		ctl_answer(c, &m, sizeof(m), &fd, 1);
	if (fd >= 0)
		close(fd);
	free(text);
}

static void do_step_end(struct node *n, struct chan *c)
{
	struct shm_step_end out = {.m = {.type = SHM_MSG_STEP_END, .abi = SHM_ABI},
		.failovers = (uint32_t)n->failovers, .replayed_frames = (uint32_t)n->replayed,
		.blackout_max_ns = n->blackout_max};
	struct evlog_state log;

	rails_notice(n, out.m.sentence, sizeof(out.m.sentence));
	if (n->rails && verbs_left_out(n->vb))
		snprintf(out.left_out, sizeof(out.left_out), "%s", verbs_left_out_why(n->vb, 0));
	evlog_state(&n->log, &log);
	if (log.written || !log.dropped) /* else there is nothing to look at */
		snprintf(out.log, sizeof(out.log), "%.255s", n->log.path);
	ctl_answer(c, &out, sizeof(out), NULL, 0);
}

/* Is somebody there? A node that has no daemon is found by nobody having heard it. */
static void do_heard(struct node *n, struct chan *c, struct shm_witness *w)
{
	uint32_t i = 0;
	struct link *l;

	w->node[sizeof(w->node) - 1] = '\0';
	while (i < n->o.nodes && strcmp(n->o.names[i], w->node))
		i++;
	if (i == n->o.nodes) {
		ctl_reply(c, SHM_MSG_HEARD, -ENOENT, "no node of this job has that name");
		return;
	}
	l = i == n->o.self ? NULL : link_get(n, i);
	w->m = (struct shm_msg){.type = SHM_MSG_HEARD, .abi = SHM_ABI};
	w->down = l && !l->heard_at && !l->lost;
	if (w->down) {
		find_link(l);
		snprintf(w->m.sentence, sizeof(w->m.sentence), "%s", l->contact.why);
	}
	ctl_answer(c, w, sizeof(*w), NULL, 0);
}

static size_t want_len(uint32_t type)
{
	switch (type) {
	case SHM_MSG_ATTACH:
		return sizeof(struct shm_attach);
	case SHM_MSG_LEND:
		return sizeof(struct shm_lend);
	case SHM_MSG_REG:
		return sizeof(struct shm_reg);
	case SHM_MSG_DEREG:
		return sizeof(struct shm_dereg);
	case SHM_MSG_ALLOC:
		return sizeof(struct shm_alloc);
	case SHM_MSG_EAGER:
		return sizeof(struct shm_eager);
	case SHM_MSG_PLACE:
		return sizeof(struct shm_place);
	case SHM_MSG_WHERE:
		return sizeof(struct shm_where);
	case SHM_MSG_HEARD:
		return sizeof(struct shm_witness);
	default:
		return sizeof(struct shm_msg);
	}
}

/* A step's notifier is in slurmstepd, of the user who made the run dir: root, or who runs a Slurm of his own. */
static bool is_slurm(const struct node *n, const struct chan *c)
{
	struct stat st;

	return c->uid == 0 || (!stat(n->o.run_dir, &st) && st.st_uid == c->uid);
}

static void conn_ready(struct node *n, struct watch *w, uint32_t events)
{
	struct chan *c = (struct chan *)w;
	static union any_msg u;
	ssize_t got;

	(void)events;
	if (c->closing)
		return;
	memset(&u, 0, sizeof(struct shm_eager)); /* the longest of fixed length */
	got = recv(c->sock.fd, &u, sizeof(u), MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		chan_close(n, c, "its process ended without closing the endpoint");
		return;
	}
	n->work = true;
	if ((size_t)got < sizeof(u.m.type) + sizeof(u.m.abi) || u.m.abi != SHM_ABI) {
		ctl_reply(c, u.m.type, -EPROTO, "library or tool and the node's runtime are of different rcshare "
			"releases; a container must bring the release the site runs");
		return;
	}
	if (c->other_job) {
		char other[16];

		snprintf(other, sizeof(other), "%u", c->other_job);
		ctl_reply_other_job(n, c, u.m.type, other);
		return;
	}
	if ((size_t)got < want_len(u.m.type)) {
		ctl_reply(c, u.m.type, -EBADMSG, "message is too short");
		return;
	}
	if (c->kind != CHAN_RANK && ((u.m.type >= SHM_MSG_LEND && u.m.type <= SHM_MSG_EAGER) ||
					    u.m.type == SHM_MSG_ALLOC)) {
		ctl_reply(c, u.m.type, -ENOTCONN, "attach first");
		return;
	}
	switch (u.m.type) {
	case SHM_MSG_ATTACH:
		do_attach(n, c, &u.attach);
		break;
	case SHM_MSG_LEND:
		loan_lend(n, c, &u.lend);
		break;
	case SHM_MSG_REG:
		loan_reg(n, c, &u.reg);
		break;
	case SHM_MSG_DEREG:
		do_dereg(n, c, &u.dereg);
		break;
	case SHM_MSG_ALLOC:
		do_alloc(n, c, &u.alloc);
		break;
	case SHM_MSG_EAGER:
		do_eager(n, c, &u.eager);
		break;
	case SHM_MSG_STATUS:
		do_status(n, c);
		break;
	case SHM_MSG_MONITOR:
		if (!is_slurm(n, c)) {
			ctl_reply(c, SHM_MSG_MONITOR, -EPERM, "only Slurm's notifier says who is in a step");
			break;
		}
		if (c->kind == CHAN_NEW)
			c->kind = CHAN_MONITOR;
		if ((size_t)got > sizeof(u.monitor) && u.monitor.len == (size_t)got - sizeof(u.monitor))
			member_begin(n, c, &u.monitor);
		ctl_reply(c, SHM_MSG_MONITOR, 0, "");
		break;
	case SHM_MSG_WITNESS:
		if (c->kind == CHAN_MONITOR && (size_t)got == sizeof(u.witness))
			member_witness(n, c, &u.witness);
		break;
	case SHM_MSG_RECORD:
		do_record(n, c);
		break;
	case SHM_MSG_STEP_END:
		do_step_end(n, c);
		break;
	case SHM_MSG_PLACE:
		spare_place(n, c, &u.place);
		break;
	case SHM_MSG_WHERE:
		spare_where(n, c, &u.where);
		break;
	case SHM_MSG_HEARD:
		do_heard(n, c, &u.witness);
		break;
	case SHM_MSG_DETACH:
		c->bye = true;
		if (c->kind == CHAN_PLACE)
			spare_left(n, c);
		break;
	default:
		ctl_reply(c, u.m.type, -EOPNOTSUPP, "unknown request");
		break;
	}
}

/*
 * Who it is, as far as the kernel tells: the user, and by the cgroups that root has made the job. Processes of one
 * job are not told apart, nor are those of one user where no cgroups are.
 */
static bool is_users(struct node *n, const struct ucred *cred)
{
	if (cred->uid == 0 || cred->uid == n->o.uid)
		return true;
	node_log(n, CONFIG_LOG_WARN, "refused a process of user %u on the socket: the job is user %u's", cred->uid,
		n->o.uid);
	return false;
}

/* Not root's; 0: of this job, as far as cgroups tell. It hears why when it asks for something. */
static uint32_t other_job(struct node *n, const struct ucred *cred)
{
	uint32_t job = cred->uid ? job_of_process(cred->pid) : 0;

	if (!job || job == n->o.job)
		return 0;
	node_log(n, CONFIG_LOG_WARN, "refused process %d on the socket: by its cgroup it belongs to job %u",
		(int)cred->pid, job);
	return job;
}

static bool admit(struct node *n, int fd, const struct ucred *cred)
{
	struct chan *c = calloc(1, sizeof(*c));

	if (!c)
		return false;
	c->sock.fd = fd;
	c->sock.ready = conn_ready;
	c->uid = cred->uid;
	c->other_job = other_job(n, cred);
	c->bell.fd = c->rank_bell = c->memfd = -1;
	if (node_watch(n, &c->sock, EPOLLIN)) {
		free(c);
		return false;
	}
	c->next = n->chans;
	n->chans = c;
	return true;
}

static void accept_ready(struct node *n, struct watch *w, uint32_t events)
{
	unsigned count = 0;

	(void)events;
	for (struct chan *c = n->chans; c; c = c->next)
		count++;
	for (;;) {
		int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct ucred cred = {.uid = (uid_t)-1};
		socklen_t len = sizeof(cred);

		if (fd < 0) {
			/* who waits would keep the loop awake: until ctl_tick() */
			if (errno == EMFILE || errno == ENFILE)
				node_rewatch(n, w, 0);
			return;
		}
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
		/* ranks, however many, leave room for root's notifiers and command */
		if (!is_users(n, &cred) || (count >= CONNS_MAX && cred.uid) || !admit(n, fd, &cred))
			close(fd);
		else
			count++;
	}
}

void ctl_tick(struct node *n)
{
	node_rewatch(n, &n->ctl, EPOLLIN);
}

/* The process that listens there, 0 if there is none: a socket that nobody serves refuses. */
static pid_t served_by(const struct sockaddr_un *sa)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct ucred cred = {.pid = 0};
	socklen_t len = sizeof(cred);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0)
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	if (fd >= 0)
		close(fd);
	return cred.pid;
}

/* The plugin has bound it in a folder of root's; who listens is whom SO_PEERCRED shows to ranks and tools. */
static int ctl_listen(struct node *n, int fd, char *why)
{
	if (listen(fd, 512) || fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)) {
		snprintf(why, SHM_SENTENCE, "cannot listen on the socket in the run dir: %s", strerror(errno));
		return -EIO;
	}
	n->ctl.fd = fd;
	n->ctl.ready = accept_ready;
	return node_watch(n, &n->ctl, EPOLLIN);
}

int ctl_open(struct node *n, char *why)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	pid_t other;
	int fd;

	if (n->o.listen_fd >= 0)
		return ctl_listen(n, n->o.listen_fd, why);
	if (snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", n->o.run_dir) >=
		(int)sizeof(sa.sun_path)) {
		snprintf(why, SHM_SENTENCE, "the run dir's path is longer than a Unix socket allows; set a "
			"shorter run_dir in plugstack.conf");
		return -ENAMETOOLONG;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	/* With the plugin's lock nobody can serve it; started by hand there is no lock. */
	other = served_by(&sa);
	if (other) {
		snprintf(why, SHM_SENTENCE, "process %d serves this job here already; there is nothing to start "
			"by hand", (int)other);
		if (fd >= 0)
			close(fd);
		return -EADDRINUSE;
	}
	unlink(sa.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		snprintf(why, SHM_SENTENCE, "cannot make the socket in the run dir: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return -EIO;
	}
	return ctl_listen(n, fd, why);
}

void ctl_close(struct node *n)
{
	char path[128];

	node_unwatch(n, &n->ctl);
	if (n->o.listen_fd < 0) {
		snprintf(path, sizeof(path), "%.100s/sock", n->o.run_dir);
		unlink(path);
	}
	for (struct chan *c = n->chans; c; c = c->next) {
		c->bye = true;
		chan_close(n, c, "the runtime ends");
		c->stalled = false;
	}
	chan_reap(n);
}
