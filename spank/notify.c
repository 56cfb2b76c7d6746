// SPDX-License-Identifier: BSD-3-Clause
/*
 * The thread waits for the daemon's events and raises each in slurmstepd's PMIx server.
 *
 * The server is libpmix as Slurm's mpi plugin has loaded it; it is looked up by name and never
 * linked, so that one plugin serves every PMIx. Nothing of it, and nothing of the dynamic linker,
 * is called before the tasks are forked: a child must not be born while this thread holds a lock.
 * Until then events wait in the socket.
 *
 * What comes from the socket is the user's to forge: it is his daemon. It is checked for whatever
 * could hurt slurmstepd, and a lie can only reach his own ranks.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "pmix/events.h"
#include "shm/channel.h"
#include "spank/ctld.h"
#include "spank/notify.h"

/* Without PMIx's headers the plugin still builds, and raises nothing. */
#if __has_include(<pmix.h>)
#include <pmix.h>
#define HAVE_PMIX_H 1
#endif

#define ANSWER_MS 500  /* how long slurmstepd may wait for the daemon */
#define STOP_S	  2    /* and for the thread at the end */
#define SAID_MAX  8    /* sentences of the daemon for the user, a step */
#define AWAIT_MS  50   /* a step that waits for another node asks so often */
#define NONE	  0xffffffffu

static struct {
	bool running;
	pid_t pid; /* the process that has the thread: a forked child has only a copy of this */
	pthread_t thread;
	int sock, stop, forked; /* the daemon; eventfds */
	uint32_t job, step;
	bool keep;
	void (*log)(const char *sentence);
	void (*tell)(const char *sentence);
	struct sockaddr_un addr;
	_Atomic bool known; /* `failovers` is set */
	uint32_t failovers; /* of the job when the step began */
} self = {.sock = -1, .stop = -1, .forked = -1};

union from_daemon {
	struct shm_msg m;
	struct shm_event_msg event;
	struct shm_step_end end;
	struct shm_witness witness;
};

/* Something may still call into the plugin: Slurm must not unmap it. */
static void stay_loaded(void)
{
	Dl_info info;

	if (dladdr((void *)notify_stop, &info) && info.dli_fname)
		dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW | RTLD_NODELETE);
}

/* --- raising --------------------------------------------------------------------------------- */

#ifdef HAVE_PMIX_H

#define INFO_MAX 24

/* PMIx may look at it until it calls back. */
struct raised {
	pmix_proc_t source;
	pmix_info_t info[INFO_MAX];
	size_t n;
	struct shm_event ev;
};

static struct {
	void *lib;
	__typeof__(&PMIx_Notify_event) notify;
	__typeof__(&PMIx_Register_event_handler) handle;
} pmix;

/* PMIX_INFO_LOAD would call into libpmix. */
static pmix_value_t *add(struct raised *r, const char *key, pmix_data_type_t type)
{
	pmix_info_t *i = &r->info[r->n++];

	snprintf(i->key, sizeof(i->key), "%s", key);
	i->value.type = type;
	return &i->value;
}

static void add_u32(struct raised *r, const char *key, uint32_t value)
{
	if (value != NONE)
		add(r, key, PMIX_UINT32)->data.uint32 = value;
}

static void add_u64(struct raised *r, const char *key, uint64_t value)
{
	if (value)
		add(r, key, PMIX_UINT64)->data.uint64 = value;
}

static void add_text(struct raised *r, const char *key, char *value)
{
	if (*value)
		add(r, key, PMIX_STRING)->data.string = value;
}

static void add_payload(struct raised *r)
{
	struct shm_event *ev = &r->ev;
	bool failed = ev->code == SHM_EV_RAIL_FAILED, lost = ev->code == SHM_EV_RANK_LOST;
	bool member = ev->code == SHM_EV_NODE_LOST || ev->code == SHM_EV_NODE_REPLACED;

	/* Else it would reach slurmstepd's own default handler, and that ends the step. */
	add(r, PMIX_EVENT_NON_DEFAULT, PMIX_BOOL)->data.flag = true;
	add_u32(r, RCS_PMIX_KEY_JOB, ev->job);
	if (lost) {
		add_u32(r, RCS_PMIX_KEY_STEP, ev->step);
		add_u32(r, RCS_PMIX_KEY_RANK, ev->rank);
	}
	if (member) {
		add_u32(r, RCS_PMIX_KEY_STEP, ev->step);
		add_text(r, RCS_PMIX_KEY_PEER_HOST, ev->peer_host);
		add_u32(r, RCS_PMIX_KEY_INDEX, ev->index);
		add_u32(r, RCS_PMIX_KEY_INCARNATION, ev->incarnation);
		add_u32(r, RCS_PMIX_KEY_FIRST_RANK, ev->first_rank);
		add_u32(r, RCS_PMIX_KEY_RANKS, ev->ranks);
		add_u32(r, RCS_PMIX_KEY_SPARE, ev->spare);
	}
	add_u32(r, RCS_PMIX_KEY_ORIGIN, ev->origin);
	add_text(r, RCS_PMIX_KEY_HOST, ev->host);
	add_u64(r, RCS_PMIX_KEY_SEQ, ev->seq);
	if (!lost) {
		add_u32(r, RCS_PMIX_KEY_PEER, ev->peer);
		add_u32(r, RCS_PMIX_KEY_RAIL, ev->rail);
	}
	if (ev->peers)
		add_u32(r, RCS_PMIX_KEY_PEERS, ev->peers);
	if (failed) {
		add_u32(r, RCS_PMIX_KEY_TO_RAIL, ev->to_lane);
		add_u32(r, RCS_PMIX_KEY_RESENT, ev->frames_resent);
	}
	if (ev->view)
		add_u32(r, RCS_PMIX_KEY_VIEW, ev->view);
	add_text(r, RCS_PMIX_KEY_REASON, ev->reason);
	add_u64(r, RCS_PMIX_KEY_TIME, ev->time_ns);
	add_u64(r, RCS_PMIX_KEY_NOTICE, ev->notice_ns);
	add_u64(r, RCS_PMIX_KEY_RECOVER, ev->recover_ns);
	add_u64(r, RCS_PMIX_KEY_BLACKOUT, ev->blackout_ns);
}

static void raised_done(pmix_status_t status, void *arg)
{
	(void)status;
	free(arg);
}

/* A step of another mpi type has no libpmix: RTLD_NOLOAD finds none, and the event is dropped. */
static bool pmix_find(void)
{
	static const char *const names[] = {"libpmix.so.2", "libpmix.so"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !pmix.lib; i++)
		pmix.lib = dlopen(names[i], RTLD_NOLOAD | RTLD_NOW);
	if (pmix.lib && !pmix.notify) {
		pmix.notify = (__typeof__(pmix.notify))dlsym(pmix.lib, "PMIx_Notify_event");
		pmix.handle = (__typeof__(pmix.handle))dlsym(pmix.lib, "PMIx_Register_event_handler");
	}
	return pmix.notify && pmix.handle;
}

/*
 * A rank's connection has ended without a finalize: the rank is dead. Slurm's default handler ends
 * the step then; handlers of one code come before it, and this one says that nothing is left to do.
 */
static void connection_lost(size_t id, pmix_status_t status, const pmix_proc_t *source,
	pmix_info_t info[], size_t ninfo, pmix_info_t *results, size_t nresults,
	pmix_event_notification_cbfunc_fn_t done, void *arg)
{
	char text[80];

	(void)id, (void)status, (void)info, (void)ninfo, (void)results, (void)nresults;
	snprintf(text, sizeof(text), "rank %u has died; keep_step lets the others go on", source->rank);
	self.log(text);
	if (done)
		done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

static void keep_step(void)
{
	static pmix_status_t lost = PMIX_ERR_LOST_CONNECTION;

	/* With a callback it would not wait; without one the handler is there when it returns. */
	if (pmix_find())
		pmix.handle(&lost, 1, NULL, 0, connection_lost, NULL, NULL);
}

static void raise_event(const struct shm_event *ev)
{
	struct raised *r;
	pmix_status_t rc;

	if (ev->code < SHM_EV_RAIL_FAILED || ev->code > SHM_EV_NODE_REPLACED || !pmix_find())
		return;
	r = calloc(1, sizeof(*r));
	if (!r)
		return;
	r->ev = *ev;
	r->ev.host[sizeof(r->ev.host) - 1] = '\0';
	r->ev.reason[sizeof(r->ev.reason) - 1] = '\0';
	r->ev.peer_host[sizeof(r->ev.peer_host) - 1] = '\0';
	/* The name Slurm gives the step's ranks: handlers may ask for their own namespace only. */
	snprintf(r->source.nspace, sizeof(r->source.nspace), "slurm.pmix.%u.%u", self.job, self.step);
	r->source.rank = PMIX_RANK_UNDEF;
	add_payload(r);
	/* With a callback it does not wait. */
	rc = pmix.notify(RCS_PMIX_EVENT(ev->code), &r->source, PMIX_RANGE_LOCAL, r->info, r->n,
		raised_done, r);
	if (rc != PMIX_SUCCESS)
		raised_done(rc, r); /* then it is not called back */
}

/* PMIx's thread may still be about to call raised_done. */
static void pmix_leave(void)
{
	if (!pmix.lib)
		return;
	stay_loaded();
	dlclose(pmix.lib);
	pmix.lib = NULL;
	pmix.notify = NULL;
	pmix.handle = NULL;
}

#else

static void keep_step(void)
{
}

static void raise_event(const struct shm_event *ev)
{
	(void)ev;
}

static void pmix_leave(void)
{
}

#endif

/* --- the thread ------------------------------------------------------------------------------ */

/* It goes into Slurm's log as well: no line may be slipped in there. */
static void copy_printable(char *to, size_t size, const char *from)
{
	size_t i;

	for (i = 0; i + 1 < size && from[i]; i++)
		to[i] = isprint((unsigned char)from[i]) ? from[i] : '?';
	to[i] = '\0';
}

/* A sentence for the user; a daemon that is a liar's must not flood his terminal either. */
static void say(const char *sentence)
{
	static unsigned said;
	char text[SHM_SENTENCE];

	if (!self.tell || said++ >= SAID_MAX)
		return;
	copy_printable(text, sizeof(text), sentence);
	self.tell(text);
}

/* False when the daemon has gone: it will tell no more. */
static bool take_message(void)
{
	union from_daemon u;
	ssize_t got = recv(self.sock, &u, sizeof(u), MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (got < (ssize_t)sizeof(u.m) || u.m.abi != SHM_ABI)
		return false;
	if (u.m.type == SHM_MSG_EVENT && got >= (ssize_t)sizeof(u.event))
		raise_event(&u.event.ev);
	if (u.m.type == SHM_MSG_SAY)
		say(u.m.sentence);
	if (u.m.type == SHM_MSG_WITNESS || u.m.type == SHM_MSG_LOST)
		ctld_take(&u, (size_t)got);
	if (u.m.type == SHM_MSG_STEP_END && got >= (ssize_t)sizeof(u.end) && !self.known) {
		self.failovers = u.end.failovers;
		atomic_store(&self.known, true);
	}
	return true;
}

static void *notifier(void *arg)
{
	struct pollfd p[] = {{.fd = self.stop, .events = POLLIN}, {.fd = self.forked, .events = POLLIN}};

	(void)arg;
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			break;
		if (!p[1].revents)
			continue;
		if (p[1].fd == self.forked) {
			p[1].fd = self.sock;
			if (self.keep)
				keep_step();
			continue;
		}
		if (!take_message())
			p[1].fd = -1;
	}
	return NULL;
}

/* --- from slurmstepd ------------------------------------------------------------------------- */

static int ask(int fd, uint32_t type)
{
	struct shm_msg m = {.type = type, .abi = SHM_ABI};

	return send(fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* From now on tell this socket the news; the members of the step are its nodes. */
static int monitor(int fd, const struct notify_step *step)
{
	size_t len = step->nodes ? strlen(step->nodes) + 1 : 1;
	struct shm_monitor *m = calloc(1, sizeof(*m) + len);
	int size = SHM_MONITOR_MAX + 4096, rc;

	if (!m)
		return -ENOMEM;
	m->m.type = SHM_MSG_MONITOR;
	m->m.abi = SHM_ABI;
	m->step = step->step;
	m->spares = step->spares;
	m->len = (uint32_t)len;
	if (step->nodes)
		memcpy(m->nodes, step->nodes, len);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	rc = send(fd, m, sizeof(*m) + len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
	free(m);
	return rc;
}

static int open_socket(void)
{
	const struct timeval wait = {.tv_usec = ANSWER_MS * 1000};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)); /* connect's limit too */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (connect(fd, (struct sockaddr *)&self.addr, sizeof(self.addr)) < 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static void close_all(void)
{
	int *fds[] = {&self.sock, &self.stop, &self.forked};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* Slurm's handlers are for its own threads: a signal must never be delivered to this one. */
static int start_thread(void)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&self.thread, NULL, notifier, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

int notify_start(const char *socket_path, const struct notify_step *step)
{
	struct ctld_opts ctld = {step->job, step->step, step->nodes, -1, step->mark_down, step->witness,
		step->log};
	int rc;

	if (self.running)
		return -EALREADY;
	self.addr.sun_family = AF_UNIX;
	if (strlen(socket_path) >= sizeof(self.addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(self.addr.sun_path, socket_path);
	self.job = step->job;
	self.step = step->step;
	self.keep = step->keep;
	self.log = step->log;
	self.tell = step->tell;
	self.pid = getpid();
	self.sock = open_socket();
	if (self.sock < 0)
		return self.sock;
	self.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	self.forked = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = self.stop < 0 || self.forked < 0 ? -errno : 0;
	/* How many failovers there were before: answered when the thread gets to it. */
	if (!rc)
		rc = ask(self.sock, SHM_MSG_STEP_END);
	if (!rc)
		rc = monitor(self.sock, step);
	ctld.daemon = self.sock;
	if (!rc)
		rc = ctld_start(&ctld);
	if (!rc)
		rc = start_thread();
	if (!rc)
		self.running = true;
	else if (ctld_stop())
		close_all();
	return rc;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 1: the node was heard, 0: not yet, -1: this daemon cannot say. One that is busy has not said so yet. */
static int await_ask(int fd, const struct shm_witness *ask, struct shm_witness *w)
{
	ssize_t n;

	if (send(fd, ask, sizeof(*ask), MSG_NOSIGNAL) != (ssize_t)sizeof(*ask))
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	n = recv(fd, w, sizeof(*w), 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n != (ssize_t)sizeof(*w) || w->m.type != SHM_MSG_HEARD || w->m.status)
		return -1;
	return !w->down;
}

int notify_await(const char *node, int ms, char *why, size_t size)
{
	struct shm_witness ask = {.m = {.type = SHM_MSG_HEARD, .abi = SHM_ABI}, .step = self.step}, w = {0};
	const struct timespec pause = {.tv_nsec = AWAIT_MS * 1000000L};
	int64_t until = now_ms() + ms;
	int fd, heard;

	if (!self.running || snprintf(ask.node, sizeof(ask.node), "%s", node) >= (int)sizeof(ask.node))
		return -1;
	fd = open_socket();
	if (fd < 0)
		return -1;
	while (!(heard = await_ask(fd, &ask, &w)) && now_ms() < until)
		nanosleep(&pause, NULL);
	close(fd);
	if (!heard) {
		w.m.sentence[sizeof(w.m.sentence) - 1] = '\0';
		copy_printable(why, size, w.m.type ? w.m.sentence : "the daemon of this node is too busy to say");
	}
	return heard;
}

void notify_tasks_forked(void)
{
	if (self.running)
		eventfd_write(self.forked, 1);
}

bool notify_step_end(struct notify_summary *out)
{
	union from_daemon u;
	ssize_t got = -1;
	int fd;

	/* A daemon that has not answered in all this time is not waited for. */
	if (!self.running || !atomic_load(&self.known))
		return false;
	fd = open_socket();
	if (fd < 0)
		return false;
	if (!ask(fd, SHM_MSG_STEP_END))
		got = recv(fd, &u, sizeof(u), 0);
	close(fd);
	if (got < (ssize_t)sizeof(u.end) || u.m.type != SHM_MSG_STEP_END || u.m.abi != SHM_ABI || u.m.status)
		return false;
	out->failovers = u.end.failovers > self.failovers ? u.end.failovers : 0;
	u.m.sentence[sizeof(u.m.sentence) - 1] = u.end.left_out[sizeof(u.end.left_out) - 1] = '\0';
	copy_printable(out->rails, sizeof(out->rails), u.m.sentence);
	copy_printable(out->left_out, sizeof(out->left_out), u.end.left_out);
	out->blackout_max_ns = u.end.blackout_max_ns;
	copy_printable(out->log, sizeof(out->log), u.end.log);
	return true;
}

void notify_stop(void)
{
	struct timespec until;

	if (!self.running || self.pid != getpid())
		return;
	self.running = false;
	eventfd_write(self.stop, 1);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_S;
	if (pthread_timedjoin_np(self.thread, NULL, &until) || !ctld_stop()) {
		/* It hangs in PMIx, or a command does. Its files stay open with it. */
		stay_loaded();
		return;
	}
	close_all();
	pmix_leave();
}
