/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/evlog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define EVLOG_SYSFS "/sys/class/infiniband"

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int evlog_open(struct evlog *e, const char *log_dir, uint32_t job, uint32_t restart, uint32_t node,
	const char *host, uint64_t max_bytes)
{
	char suffix[16] = "";
	int n;

	memset(e, 0, sizeof(*e));
	pthread_mutex_init(&e->lock, NULL);
	e->fd = -1;
	e->job = job;
	e->restart = restart;
	e->node = node;
	e->max_bytes = max_bytes;
	snprintf(e->host, sizeof(e->host), "%s", host);
	snprintf(e->rail[CORE_LANE_TCP], sizeof(e->rail[0]), "tcp");
	if (restart)
		snprintf(suffix, sizeof(suffix), ".%u", restart);
	n = snprintf(e->dir, sizeof(e->dir), "%s/%u%s", log_dir, job, suffix);
	if (n < 0 || (size_t)n >= sizeof(e->dir)) {
		e->dir[0] = '\0';
		return -ENAMETOOLONG;
	}
	snprintf(e->path, sizeof(e->path), "%s/%u.jsonl", e->dir, node);
	return 0;
}

void evlog_rail(struct evlog *e, unsigned rail, const char *name)
{
	if (rail < CORE_RAILS_MAX)
		snprintf(e->rail[rail], sizeof(e->rail[rail]), "%s", name);
}

__attribute__((format(printf, 3, 4))) static int fail(struct evlog *e, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&e->lock);
	vsnprintf(e->error, sizeof(e->error), fmt, ap);
	pthread_mutex_unlock(&e->lock);
	va_end(ap);
	return rc;
}

void evlog_queue(struct evlog *e, struct work_queue *q)
{
	e->queue = q;
}

void evlog_state(struct evlog *e, struct evlog_state *s)
{
	pthread_mutex_lock(&e->lock);
	s->written = e->records > 0;
	s->dropped = e->dropped;
	s->dropped_total = e->dropped_total;
	memcpy(s->error, e->error, sizeof(s->error));
	pthread_mutex_unlock(&e->lock);
}

/*
 * The folder's parent is writable by everyone, so what stands there under the job's number may be
 * somebody else's: it must be a folder, no link, and ours.
 */
static int open_file(struct evlog *e)
{
	struct stat st;
	char name[32];
	int dir, rc = 0;

	if (!e->dir[0])
		return fail(e, -ENAMETOOLONG, "log_dir is too long a path");
	if (mkdir(e->dir, 0700) && errno != EEXIST)
		return fail(e, -errno, "cannot make %.180s: %s", e->dir, strerror(errno));
	dir = open(e->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return fail(e, -errno, "cannot open %.180s: %s", e->dir, strerror(errno));
	if (fstat(dir, &st) || st.st_uid != geteuid()) {
		rc = fail(e, -EPERM, "%.180s belongs to somebody else", e->dir);
		goto close_dir;
	}
	snprintf(name, sizeof(name), "%u.jsonl", e->node);
	e->fd = openat(dir, name,
		O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (e->fd < 0) {
		rc = fail(e, -errno, "cannot open %.180s: %s", e->path, strerror(errno));
		goto close_dir;
	}
	/* Ours or not, it may be a FIFO whose reader sleeps: a write must never block. */
	if (fstat(e->fd, &st) || !S_ISREG(st.st_mode)) {
		rc = fail(e, -EINVAL, "%.180s is not a regular file", e->path);
		close(e->fd);
		e->fd = -1;
	}
close_dir:
	close(dir);
	return rc;
}

/* Appends one line, or nothing. */
static int append(struct evlog *e, const char *line, size_t len, uint64_t limit)
{
	struct stat st;
	size_t done = 0;
	int rc;

	if (fstat(e->fd, &st))
		return fail(e, -errno, "cannot stat %.180s: %s", e->path, strerror(errno));
	if ((uint64_t)st.st_size + len > limit)
		return fail(e, -EFBIG, "%.180s has reached log_max_bytes", e->path);
	while (done < len) {
		ssize_t n = write(e->fd, line + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			rc = n ? -errno : -ENOSPC;
			if (done && ftruncate(e->fd, st.st_size))
				rc = -EIO; /* a torn line stays; readers pass over it */
			return fail(e, rc, "cannot write %.180s: %s", e->path, strerror(-rc));
		}
		done += (size_t)n;
	}
	return 0;
}

static json_t *text(const char *s)
{
	json_t *v = json_string(s);

	return v ? v : json_string("(not UTF-8)");
}

static void utc_text(char buf[40], uint64_t ns)
{
	time_t sec = (time_t)(ns / 1000000000u);
	struct tm tm;
	size_t n;

	gmtime_r(&sec, &tm);
	n = strftime(buf, 40, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, 40 - n, ".%06uZ", (unsigned)(ns % 1000000000u / 1000));
}

/* What every record begins with. */
static json_t *record_new(const struct evlog *e, const char *event)
{
	json_t *o = json_object();
	char utc[40];

	utc_text(utc, clock_ns(CLOCK_REALTIME));
	json_object_set_new(o, "event", text(event));
	json_object_set_new(o, "utc", json_string(utc));
	json_object_set_new(o, "mono_ns", json_integer((json_int_t)clock_ns(CLOCK_MONOTONIC)));
	json_object_set_new(o, "job", json_integer(e->job));
	json_object_set_new(o, "restart", json_integer(e->restart));
	json_object_set_new(o, "node", json_integer(e->node));
	json_object_set_new(o, "host", text(e->host));
	return o;
}

static int record_append(struct evlog *e, json_t *o, uint64_t limit)
{
	char *line = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII);
	size_t len;
	int rc;

	if (!line)
		return fail(e, -ENOMEM, "out of memory");
	len = strlen(line);
	line[len] = '\n'; /* in place of the NUL; len is what counts */
	rc = append(e, line, len + 1, limit);
	free(line);
	return rc;
}

/* A one-line file of sysfs, or "". */
static void sysfs_read(const char *device, const char *what, char *buf, size_t size)
{
	char path[384];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), EVLOG_SYSFS "/%s/%s", device, what);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, buf, size - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
}

static json_t *rdma_devices(void)
{
	json_t *list = json_array();
	DIR *d = opendir(EVLOG_SYSFS);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		char path[320], fw[64], driver[256], *base;
		json_t *o;
		ssize_t n;

		if (de->d_name[0] == '.')
			continue;
		sysfs_read(de->d_name, "fw_ver", fw, sizeof(fw));
		snprintf(path, sizeof(path), EVLOG_SYSFS "/%.200s/device/driver", de->d_name);
		n = readlink(path, driver, sizeof(driver) - 1);
		driver[n > 0 ? n : 0] = '\0';
		base = strrchr(driver, '/');
		o = json_object();
		json_object_set_new(o, "device", text(de->d_name));
		json_object_set_new(o, "firmware", text(fw));
		json_object_set_new(o, "driver", text(base ? base + 1 : driver));
		json_array_append_new(list, o);
	}
	if (d)
		closedir(d);
	return list;
}

static int write_start(struct evlog *e)
{
	json_t *o = record_new(e, "start"), *rails = json_array();
	struct utsname u;
	int rc;

	json_object_set_new(o, "rcshare", json_string(RCS_VERSION));
	if (!uname(&u))
		json_object_set_new(o, "kernel", text(u.release));
	for (unsigned r = 0; r < CORE_RAILS_MAX; r++)
		if (e->rail[r][0])
			json_array_append_new(rails, text(e->rail[r]));
	json_object_set_new(o, "rails", rails);
	json_object_set_new(o, "rdma_devices", rdma_devices());
	rc = record_append(e, o, e->max_bytes - EVLOG_RESERVE);
	json_decref(o);
	e->started = !rc;
	return rc;
}

/* A record was written, or it was not. */
static void count(struct evlog *e, bool written)
{
	pthread_mutex_lock(&e->lock);
	if (written) {
		e->dropped = 0;
		e->records++;
		e->error[0] = '\0';
	} else {
		e->dropped++;
		e->dropped_total++;
	}
	pthread_mutex_unlock(&e->lock);
}

/* Takes the reference to o. */
static int record_store(struct evlog *e, json_t *o)
{
	int rc = e->fd < 0 ? open_file(e) : 0;
	struct evlog_state s;

	if (!rc && e->max_bytes < EVLOG_RESERVE)
		rc = fail(e, -EFBIG, "log_max_bytes is too small for a record");
	if (!rc && !e->started)
		rc = write_start(e);
	if (!rc) {
		evlog_state(e, &s);
		if (s.dropped)
			json_object_set_new(o, "dropped", json_integer((json_int_t)s.dropped));
		rc = record_append(e, o, e->max_bytes - EVLOG_RESERVE);
	}
	json_decref(o);
	count(e, !rc);
	return rc;
}

/* What the queue's thread has to do: a record, or NULL: the end. */
struct entry {
	struct work w;
	struct evlog *e;
	json_t *record;
};

static void close_file(struct evlog *e);

static void entry_run(struct work *w)
{
	struct entry *t = (struct entry *)w;

	if (t->record)
		record_store(t->e, t->record);
	else
		close_file(t->e);
	free(t);
}

static int entry_put(struct evlog *e, json_t *record)
{
	struct entry *t = calloc(1, sizeof(*t));
	int rc = t ? 0 : -ENOMEM;

	if (t) {
		*t = (struct entry){.w.run = entry_run, .e = e, .record = record};
		rc = work_put(e->queue, &t->w);
	}
	if (rc)
		free(t);
	return rc;
}

/* Takes the reference to o. */
static int record_write(struct evlog *e, json_t *o)
{
	int rc;

	if (!e->queue)
		return record_store(e, o);
	if (work_left(e->queue) >= EVLOG_QUEUED)
		rc = fail(e, -ENOBUFS, "%.180s hangs: %u records wait to be written", e->path, EVLOG_QUEUED);
	else if ((rc = entry_put(e, o)))
		fail(e, rc, "no thread for the event log: %s", strerror(-rc));
	if (rc) {
		json_decref(o);
		count(e, false);
	}
	return rc;
}

int evlog_event(struct evlog *e, const char *event, json_t *fields)
{
	json_t *o = record_new(e, event);

	if (fields) {
		json_object_update(o, fields);
		json_decref(fields);
	}
	return record_write(e, o);
}

static void set_lane(const struct evlog *e, json_t *o, const char *key, const char *name_key,
	uint8_t lane)
{
	bool known = lane < CORE_LANES;

	json_object_set_new(o, key, known ? json_integer(lane) : json_null());
	json_object_set_new(o, name_key,
		known && e->rail[lane][0] ? text(e->rail[lane]) : json_null());
}

static void set_peer(json_t *o, uint32_t peer, const char *peer_host)
{
	json_object_set_new(o, "peer", json_integer(peer));
	json_object_set_new(o, "peer_host", text(peer_host));
}

/* A duration, or null where one of its ends is not known. */
static void set_span(json_t *o, const char *key, uint64_t from, uint64_t to)
{
	bool known = from && to >= from;

	json_object_set_new(o, key, known ? json_integer((json_int_t)(to - from)) : json_null());
}

/* Whether the reason was noticed at this node or told by the peer, in the user's words. */
static const char *noticed_by(uint8_t reason)
{
	switch (reason) {
	case CORE_R_PORT:
	case CORE_R_DEVICE:
		return "async event";
	case CORE_R_COMPLETION:
	case CORE_R_REQUEST:
		return "completion";
	case CORE_R_SILENT:
		return "stall";
	case CORE_R_PEER:
		return "peer";
	case CORE_R_SOCKET:
		return "socket";
	case CORE_R_PROTOCOL:
		return "bad frame";
	case CORE_R_SETUP:
		return "setup";
	default:
		return "rcshare";
	}
}

static bool port_reason(uint8_t reason)
{
	return reason == CORE_R_PORT || reason == CORE_R_DEVICE;
}

/* Which part failed, as far as both ends can tell. */
static const char *verdict(const struct core_failover *f)
{
	if (port_reason(f->reason))
		return "local port";
	if (port_reason(f->peer_reason))
		return "remote port";
	switch (f->reason) {
	case CORE_R_SILENT:
	case CORE_R_COMPLETION:
		if (f->probe == CORE_PROBE_ANSWERED)
			return "queue pair";
		if (!f->asked || f->answered)
			return "path";
		/* traffic flows again: it had no time for us */
		return f->had_traffic && f->progress_ns ? "peer busy" : "peer dead or busy";
	case CORE_R_PEER:
		if (f->peer_reason == CORE_R_REQUEST)
			return "request";
		return f->peer_flags & CORE_CTRL_F_ECHO ? "queue pair" :
		       f->peer_flags & CORE_CTRL_F_MUTE ? "this node busy" :
							  "path";
	case CORE_R_CLOSE: /* the members decided so */
	case CORE_R_RESTART:
		return "peer dead";
	case CORE_R_REQUEST:
		return "request";
	case CORE_R_SOCKET:
		return "connection";
	default:
		return "lane";
	}
}

int evlog_failover(struct evlog *e, const struct core_failover *f, uint32_t peer,
	const char *peer_host)
{
	json_t *o = record_new(e, "failover");
	uint64_t mono = clock_ns(CLOCK_MONOTONIC), utc = clock_ns(CLOCK_REALTIME);

	set_peer(o, peer, peer_host);
	set_lane(e, o, "lane", "rail", f->lane);
	set_lane(e, o, "to_lane", "to_rail", f->to_lane);
	json_object_set_new(o, "generation", json_integer(f->gen));
	json_object_set_new(o, "reason", json_string(core_reason_name((enum core_reason)f->reason)));
	json_object_set_new(o, "noticed_by", json_string(noticed_by(f->reason)));
	json_object_set_new(o, "verdict", json_string(verdict(f)));
	json_object_set_new(o, "peer_answered", f->asked ? json_boolean(f->answered) : json_null());
	json_object_set_new(o, "probe", f->probe == CORE_PROBE_NONE ? json_null() :
		json_string(f->probe == CORE_PROBE_LOST ? "lost" : "answered"));
	json_object_set_new(o, "had_traffic", json_boolean(f->had_traffic));
	json_object_set_new(o, "frames_resent", json_integer(f->resent));
	if (f->noticed_ns && f->noticed_ns <= mono) {
		char when[40];

		utc_text(when, utc - (mono - f->noticed_ns));
		json_object_set_new(o, "noticed_utc", json_string(when));
	}
	json_object_set_new(o, "noticed_mono_ns", json_integer((json_int_t)f->noticed_ns));
	set_span(o, "notice_ns", f->last_good_ns, f->noticed_ns);
	set_span(o, "fence_ns", f->noticed_ns, f->fenced_ns);
	set_span(o, "resume_ns", f->noticed_ns, f->resumed_ns);
	set_span(o, "replay_ns", f->resumed_ns, f->progress_ns);
	set_span(o, "blackout_ns", f->last_good_ns, f->progress_ns);
	if (f->had_traffic) {
		e->failovers++;
		e->resent += f->resent;
		if (f->last_good_ns && f->progress_ns > f->last_good_ns &&
			f->progress_ns - f->last_good_ns > e->blackout_max_ns)
			e->blackout_max_ns = f->progress_ns - f->last_good_ns;
	}
	return record_write(e, o);
}

int evlog_lane_back(struct evlog *e, uint8_t lane, uint32_t peer, const char *peer_host)
{
	json_t *o = record_new(e, "lane_back");

	set_peer(o, peer, peer_host);
	set_lane(e, o, "lane", "rail", lane);
	return record_write(e, o);
}

int evlog_peer(struct evlog *e, const char *event, uint32_t peer, const char *peer_host)
{
	json_t *o = record_new(e, event);

	set_peer(o, peer, peer_host);
	return record_write(e, o);
}

int evlog_selftest(struct evlog *e, unsigned rail, const char *ledger, const char *detail)
{
	json_t *o = record_new(e, "selftest");

	set_lane(e, o, "lane", "rail", rail < CORE_LANES ? (uint8_t)rail : CORE_LANE_NONE);
	json_object_set_new(o, "ledger", text(ledger));
	json_object_set_new(o, "detail", text(detail));
	return record_write(e, o);
}

int evlog_rank_lost(struct evlog *e, uint32_t step, uint32_t rank, const char *reason)
{
	json_t *o = record_new(e, "rank_lost");

	json_object_set_new(o, "step", json_integer(step));
	json_object_set_new(o, "rank", json_integer(rank));
	json_object_set_new(o, "reason", text(reason));
	return record_write(e, o);
}

static void close_file(struct evlog *e)
{
	if (e->fd < 0)
		return;
	if (e->started) {
		json_t *o = record_new(e, "end");

		pthread_mutex_lock(&e->lock);
		json_object_set_new(o, "records", json_integer((json_int_t)e->records));
		json_object_set_new(o, "failovers", json_integer(e->failovers));
		json_object_set_new(o, "frames_resent", json_integer((json_int_t)e->resent));
		json_object_set_new(o, "dropped", json_integer((json_int_t)e->dropped));
		json_object_set_new(o, "dropped_total", json_integer((json_int_t)e->dropped_total));
		pthread_mutex_unlock(&e->lock);
		record_append(e, o, e->max_bytes);
		json_decref(o);
	}
	close(e->fd);
	e->fd = -1;
	e->started = false;
}

void evlog_close(struct evlog *e)
{
	if (!e->queue)
		close_file(e);
	else
		entry_put(e, NULL); /* without a thread there is no file */
}
