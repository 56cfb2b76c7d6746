// SPDX-License-Identifier: BSD-3-Clause
#include "spank/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shm/channel.h"
#include "spank/cgroup.h"
#include "spank/child.h"
#include "spank/hostlist.h"
#include "spank/token.h"

#define STOP_MS 3000

/* What the lock file says: "PID STARTTIME READY NODELIST\n", then a line a cgroup of the job. */
struct state {
	pid_t pid;
	unsigned long long start; /* field 22 of /proc/PID/stat: a pid alone may be reused */
	int ready;
	char *nodelist; /* what the daemon was told, in Slurm's short form */
	struct plug_cgroups groups;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
	const struct timespec t = {.tv_nsec = ms * 1000 * 1000};

	nanosleep(&t, NULL);
}

/* Start time of a living process, 0 if there is none or it is a zombie. */
static unsigned long long start_time(pid_t pid)
{
	char path[32], text[1024], state = 'Z', *s;
	unsigned long long start = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	s = strrchr(text, ')'); /* the name before it may hold anything */
	if (!s || sscanf(s,
			  ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			  "%*s %*s %*s %llu",
			  &state, &start) != 2)
		return 0;
	return state == 'Z' || state == 'X' ? 0 : start;
}

static bool alive(const struct state *st)
{
	return st->pid > 0 && st->start && start_time(st->pid) == st->start;
}

static int state_write(const char *path, const struct state *st)
{
	FILE *f;
	int i, fd = open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	fprintf(f, "%d %llu %d %s\n", (int)st->pid, st->start, st->ready,
		st->nodelist ? st->nodelist : "");
	for (i = 0; i < st->groups.count; i++)
		fprintf(f, "%s\n", st->groups.job[i]);
	return fclose(f) ? -EIO : 0;
}

static int state_read(const char *path, struct state *st)
{
	char line[PLUG_CGROUP_PATH];
	FILE *f;
	int pid, fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	memset(st, 0, sizeof(*st));
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	if (fscanf(f, "%d %llu %d %ms\n", &pid, &st->start, &st->ready, &st->nodelist) >= 3)
		st->pid = pid;
	while (st->groups.count < PLUG_CGROUP_MAX && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		strcpy(st->groups.job[st->groups.count++], line);
	}
	fclose(f);
	return 0;
}

static void state_free(struct state *st)
{
	free(st->nodelist);
	st->nodelist = NULL;
}

static void lock_path(
	char *path, size_t size, const struct plug_conf *conf, uint32_t job, uint32_t restart)
{
	snprintf(path, size, "%s/%u.%u.lock", conf->run_dir, job, restart);
}

/* --- start --------------------------------------------------------------------------------- */

static int make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid, struct plug_error *err)
{
	struct stat st;
	int fd, rc = 0;

	if (mkdir(path, mode & 0700) != 0 && errno != EEXIST)
		return plug_error_set(
			err, -errno, "cannot make the folder %s: %s", path, strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		rc = plug_error_set(
			err, -errno, "cannot open the folder %s: %s", path, strerror(errno));
	} else if (st.st_uid != uid && st.st_uid != geteuid()) {
		rc = plug_error_set(err, -EPERM, "the folder %s belongs to uid %u, not to %u", path,
			st.st_uid, uid);
	} else if (((st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) != 0) ||
		   ((st.st_mode & 07777) != mode && fchmod(fd, mode) != 0)) {
		rc = plug_error_set(
			err, -errno, "cannot set owner and mode of %s: %s", path, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Returns the locked file, -EWOULDBLOCK if a daemon has it, or another -errno. */
static int lock_try(const char *path, struct plug_error *err)
{
	struct stat st;
	int fd, rc;

	for (;;) {
		fd = open(path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return plug_error_set(
				err, -errno, "cannot open %s: %s", path, strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			rc = -errno;
			close(fd);
			return rc == -EWOULDBLOCK ? rc
						  : plug_error_set(err, rc, "cannot lock %s: %s",
							    path, strerror(-rc));
		}
		/* Removed by an epilog between open and flock? Then it is nobody's lock. */
		if (fstat(fd, &st) == 0 && st.st_nlink > 0)
			return fd;
		close(fd);
	}
}

static void kill_state(const struct state *st, int grace_ms)
{
	int64_t deadline = now_ms() + grace_ms;

	if (grace_ms && alive(st)) {
		kill(st->pid, SIGTERM);
		while (alive(st) && now_ms() < deadline)
			pause_ms(10);
	}
	if (alive(st))
		kill(st->pid, SIGKILL);
	deadline = now_ms() + STOP_MS;
	while (alive(st) && now_ms() < deadline)
		pause_ms(10);
}

/* Reads the daemon's one line. */
static int await_ready(int fd, int64_t deadline, const char *daemon, struct plug_error *err)
{
	char line[400];
	size_t len = 0;
	ssize_t n;
	char *end;

	while (!(end = memchr(line, '\n', len))) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline - now_ms();

		if (left <= 0)
			return plug_error_set(err, -ETIMEDOUT,
				"%s did not get ready in time; it was ended", daemon);
		n = poll(&p, 1, (int)left);
		if (n < 0 && errno != EINTR)
			return plug_error_set(err, -errno, "poll: %s", strerror(errno));
		if (n <= 0)
			continue;
		n = read(fd, line + len, sizeof(line) - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || len + (size_t)n == sizeof(line))
			return plug_error_set(err, -EPIPE, "%s ended before it was ready", daemon);
		len += (size_t)n;
	}
	*end = '\0';
	for (char *c = line; c < end; c++)
		if ((unsigned char)*c < ' ')
			*c = '?';
	if (strcmp(line, "ready") == 0)
		return 0;
	if (strncmp(line, "error: ", 7) == 0)
		return plug_error_set(err, -ECONNREFUSED, "%s", line + 7);
	return plug_error_set(err, -EPROTO, "%s said '%s' instead of ready", daemon, line);
}

struct daemon_args {
	char *argv[40];
	int argc;
	char *nodes;
	char words[20][PLUG_PATH_MAX + 32];
	int nwords;
};

static void arg(struct daemon_args *a, const char *option, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void arg(struct daemon_args *a, const char *option, const char *fmt, ...)
{
	va_list ap;
	char *word = a->words[a->nwords++];

	va_start(ap, fmt);
	vsnprintf(word, sizeof(a->words[0]), fmt, ap);
	va_end(ap);
	a->argv[a->argc++] = (char *)option;
	a->argv[a->argc++] = word;
}

static int build_args(struct daemon_args *a, const struct plug_conf *conf,
	const struct plug_option *opt, const struct plug_job *job, struct plug_error *err)
{
	int count, index;

	count = plug_hostlist_expand(job->nodelist, &a->nodes, err);
	if (count < 0)
		return count;
	index = plug_hostlist_find(a->nodes, job->node);
	if (index < 0)
		return plug_error_set(err, index,
			"this node's name %s is not in the job's list %.200s", job->node,
			job->nodelist);
	a->argv[a->argc++] = "rcshared";
	arg(a, "--job", "%u", job->id);
	arg(a, "--restart", "%u", job->restart);
	arg(a, "--node-index", "%d", index);
	arg(a, "--nodes", "%d", count);
	a->argv[a->argc++] = "--nodelist";
	a->argv[a->argc++] = a->nodes;
	arg(a, "--uid", "%u", job->uid);
	arg(a, "--gid", "%u", job->gid);
	arg(a, "--run-dir", "%s/%u.%u", conf->run_dir, job->id, job->restart);
	arg(a, "--token-fd", "%d", CHILD_TOKEN_FD);
	arg(a, "--ready-fd", "%d", CHILD_READY_FD);
	arg(a, "--lock-fd", "%d", CHILD_LOCK_FD);
	arg(a, "--abi", "%u", SHM_ABI);
	if (conf->config)
		arg(a, "--config", "%s", conf->config);
	if (opt->rails)
		arg(a, "--rails", "%d", opt->rails);
	if (opt->eager >= 0)
		arg(a, "--eager", "%d", opt->eager);
	if (*opt->log)
		arg(a, "--log", "%s", opt->log);
	a->argv[a->argc] = NULL;
	return 0;
}

/* A daemon that was killed leaves its socket behind, in the way of the next one's bind. */
static void remove_stale(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	unlinkat(fd, "sock", 0);
	unlinkat(fd, "pid", 0);
	close(fd);
}

/* With the lock held: one attempt. */
static int start_locked(int lock, const char *path, const struct plug_conf *conf,
	const struct plug_option *opt, const struct plug_job *job, int64_t deadline,
	struct plug_error *err)
{
	unsigned char token[PLUG_TOKEN_SIZE];
	struct daemon_args *args = calloc(1, sizeof(*args));
	const struct child_user user = {
		job->uid, job->gid, job->log_level, conf->memlock, conf->nofile};
	struct child child = {.token_fd = {-1, -1}, .ready_fd = -1};
	struct state st = {.nodelist = strdup(job->nodelist)};
	int rc;

	if (!args || !st.nodelist)
		rc = plug_error_set(err, -ENOMEM, "no memory to start the daemon");
	else
		rc = build_args(args, conf, opt, job, err);
	if (rc)
		goto free_args;
	rc = plug_token_make(conf->key_file, job->cluster, job->id, job->restart, token, err);
	if (rc)
		goto free_args;
	rc = plug_child_spawn(conf->daemon, args->argv, &user, lock, &child, err);
	if (rc)
		goto free_args;
	st.pid = child.pid;
	st.start = start_time(child.pid);
	plug_cgroup_find(job->id, &st.groups);
	plug_cgroup_place(&st.groups, st.pid, conf->memory_limit_mb, conf->cpu_weight,
		conf->reserved_cpus);
	rc = state_write(path, &st);
	if (rc) {
		plug_error_set(err, rc, "cannot write %s: %s", path, strerror(-rc));
		goto end_daemon;
	}
	/* The daemon waits for its token, so it allocates nothing before it is in its place. */
	plug_child_give(&child, token, sizeof(token));
	rc = await_ready(child.ready_fd, deadline, conf->daemon, err);
	if (rc)
		goto end_daemon;
	st.ready = 1;
	rc = state_write(path, &st);
	if (rc)
		plug_error_set(err, rc, "cannot write %s: %s", path, strerror(-rc));
end_daemon:
	if (rc)
		kill_state(&st, 0);
	plug_child_close(&child);
free_args:
	if (args)
		free(args->nodes);
	free(args);
	state_free(&st);
	return rc;
}

/* A daemon that was started with fewer nodes than the step has can not serve it. */
static int knows_step(const struct state *st, const struct plug_job *job, struct plug_error *err)
{
	struct plug_error why;

	if (!job->steplist || !st->nodelist || plug_hostlist_covers(st->nodelist, job->steplist, &why))
		return 0;
	return plug_error_set(err, -EINVAL,
		"this job's daemon was started by a step from outside the job, on %.200s, and does "
		"not know all of %.200s: run the first step on all nodes of the job",
		st->nodelist, job->steplist);
}

int plug_launch_start(const struct plug_conf *conf, const struct plug_option *opt,
	const struct plug_job *job, struct plug_error *err)
{
	int64_t deadline = now_ms() + conf->timeout_ms;
	char path[PLUG_PATH_MAX], dir[PLUG_PATH_MAX];
	struct state st;
	int lock, rc;

	rc = make_dir(conf->run_dir, 0755, 0, 0, err);
	if (!rc)
		rc = make_dir(conf->log_dir, 01777, 0, 0, err);
	if (rc)
		return rc;
	lock_path(path, sizeof(path), conf, job->id, job->restart);
	snprintf(dir, sizeof(dir), "%s/%u.%u", conf->run_dir, job->id, job->restart);
	while ((lock = lock_try(path, err)) == -EWOULDBLOCK) {
		if (state_read(path, &st) == 0 && st.ready && alive(&st)) {
			rc = knows_step(&st, job, err);
			state_free(&st);
			return rc;
		}
		state_free(&st);
		if (now_ms() >= deadline)
			return plug_error_set(err, -ETIMEDOUT,
				"the daemon of this job, started by another step, did not get "
				"ready");
		pause_ms(20);
	}
	if (lock < 0)
		return lock;
	rc = make_dir(dir, 0700, job->uid, job->gid, err);
	if (!rc) {
		remove_stale(dir);
		rc = start_locked(lock, path, conf, opt, job, deadline, err);
	}
	close(lock);
	return rc;
}

void plug_launch_place(const struct plug_conf *conf, uint32_t job, uint32_t restart)
{
	char path[PLUG_PATH_MAX];
	struct state st;

	lock_path(path, sizeof(path), conf, job, restart);
	if (state_read(path, &st) == 0 && alive(&st)) {
		plug_cgroup_find(job, &st.groups);
		if (st.groups.count) {
			plug_cgroup_place(
				&st.groups, st.pid, conf->memory_limit_mb, conf->cpu_weight,
		conf->reserved_cpus);
			state_write(path, &st);
		}
	}
	state_free(&st);
}

/* --- stop ---------------------------------------------------------------------------------- */

/* Removes what is in the folder, following no link: it is the user's. */
static void remove_inside(int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int sub;

	if (!dir) {
		close(fd);
		return;
	}
	while ((e = readdir(dir))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(dir), e->d_name, 0) == 0 || depth == 0)
			continue;
		sub = openat(
			dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			remove_inside(sub, depth - 1);
		unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

static void stop_one(const struct plug_conf *conf, uint32_t job, uint32_t restart)
{
	char path[PLUG_PATH_MAX];
	struct state st;
	int fd;

	lock_path(path, sizeof(path), conf, job, restart);
	if (state_read(path, &st) == 0) {
		kill_state(&st, STOP_MS);
		plug_cgroup_remove(&st.groups);
	}
	state_free(&st);
	unlink(path);
	snprintf(path, sizeof(path), "%s/%u.%u", conf->run_dir, job, restart);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		remove_inside(fd, 8);
	rmdir(path);
}

/* The next entry of the run dir that is JOB.RESTART.lock or JOB.RESTART; false at the end. */
static bool next_restart(DIR *dir, uint32_t job, uint32_t *restart)
{
	struct dirent *e;
	uint32_t id;

	while ((e = readdir(dir)))
		if (sscanf(e->d_name, "%" SCNu32 ".%" SCNu32, &id, restart) == 2 && id == job)
			return true;
	return false;
}

uint32_t plug_launch_restart(const struct plug_conf *conf, uint32_t job, uint32_t guess)
{
	DIR *dir = opendir(conf->run_dir);
	uint32_t restart;

	if (!dir)
		return guess;
	if (next_restart(dir, job, &restart))
		guess = restart;
	closedir(dir);
	return guess;
}

void plug_launch_stop(const struct plug_conf *conf, uint32_t job)
{
	DIR *dir = opendir(conf->run_dir);
	uint32_t restart;

	if (!dir)
		return;
	while (next_restart(dir, job, &restart)) /* comes twice: folder and lock */
		stop_one(conf, job, restart);
	closedir(dir);
}
