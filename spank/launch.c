// SPDX-License-Identifier: BSD-3-Clause
#include "spank/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm/channel.h"
#include "spank/cgroup.h"
#include "spank/child.h"
#include "spank/folder.h"
#include "spank/hostlist.h"
#include "spank/lock.h"
#include "spank/nodeaddr.h"
#include "spank/token.h"

#define STOP_MS 3000

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

/* --- start --------------------------------------------------------------------------------- */

/*
 * The job's folder is root's: nobody puts another socket in the place of the daemon's, whose name
 * root's slurmstepd and command follow. The socket is bound here and belongs to the user.
 */
static int make_folder(const char *dir, struct plug_error *err)
{
	struct stat st;

	if (lstat(dir, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
		plug_folder_remove(dir); /* of a release that gave it to the user */
	if (mkdir(dir, 0711) != 0 && errno != EEXIST)
		return plug_error_set(
			err, -errno, "cannot make the folder %s: %s", dir, strerror(errno));
	if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || chmod(dir, 0711) != 0)
		return plug_error_set(err, -EPERM, "the folder %s must be root's: remove it", dir);
	return 0;
}

/* Returns the bound socket, or -errno with a sentence. */
static int bind_socket(const char *dir, const struct plug_job *job, struct plug_error *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd, rc;

	if (snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", dir) >= (int)sizeof(sa.sun_path))
		return plug_error_set(err, -ENAMETOOLONG,
			"the path %s/sock is longer than a Unix socket allows; set a shorter run_dir= in "
			"plugstack.conf", dir);
	unlink(sa.sun_path); /* of a daemon that was killed */
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && chmod(sa.sun_path, 0600) == 0 &&
		chown(sa.sun_path, job->uid, job->gid) == 0)
		return fd;
	rc = plug_error_set(err, -errno, "cannot make the socket %s: %s", sa.sun_path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

/* For people and tests; nothing trusts it. */
static void write_pid(const char *dir, pid_t pid)
{
	char path[PLUG_PATH_MAX + 8];
	int fd;

	snprintf(path, sizeof(path), "%s/pid", dir);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	(void)!fchmod(fd, 0644);
	dprintf(fd, "%d\n", (int)pid);
	close(fd);
}

/* The names may be more than a word of a command line can hold. Slurm's addresses stand behind them. */
static int nodes_file(const char *plain, const char *conf, struct plug_error *err)
{
	char *names = plug_nodeaddr_join(plain, conf);
	size_t len = names ? strlen(names) : 0, done = 0;
	int fd = names ? memfd_create("rcshare-nodes", MFD_CLOEXEC) : -1;
	ssize_t n = 1;

	while (fd >= 0 && done < len && (n = write(fd, names + done, len - done)) > 0)
		done += (size_t)n;
	if (fd >= 0 && (done < len || lseek(fd, 0, SEEK_SET))) {
		close(fd);
		fd = -1;
	}
	free(names);
	return fd >= 0 ? fd : plug_error_set(err, -ENOMEM, "no memory for the node list: %s", strerror(errno));
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
				"%s was not ready after %s of rcshare.conf or timeout= of plugstack.conf, and was "
				"killed; syslog has what it said", daemon, "start_timeout_ms");
		n = poll(&p, 1, (int)left);
		if (n < 0 && errno != EINTR)
			return plug_error_set(err, -errno, "poll: %s", strerror(errno));
		if (n <= 0)
			continue;
		n = read(fd, line + len, sizeof(line) - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || len + (size_t)n == sizeof(line))
			return plug_error_set(err, -EPIPE, "%s died before it was ready; syslog of this node has what it said, if "
				"anything", daemon);
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
	const struct plug_option *opt, const struct plug_job *job, const char *dir, struct plug_error *err)
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
	arg(a, "--nodelist-fd", "%d", CHILD_NODES_FD);
	arg(a, "--uid", "%u", job->uid);
	arg(a, "--gid", "%u", job->gid);
	arg(a, "--run-dir", "%s", dir);
	arg(a, "--token-fd", "%d", CHILD_TOKEN_FD);
	arg(a, "--ready-fd", "%d", CHILD_READY_FD);
	arg(a, "--lock-fd", "%d", CHILD_LOCK_FD);
	arg(a, "--listen-fd", "%d", CHILD_LISTEN_FD);
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

/* With the lock held: one attempt. */
static int start_locked(int lock, const char *path, const char *dir, const struct plug_conf *conf,
	const struct plug_option *opt, const struct plug_job *job, int64_t deadline,
	struct plug_error *err)
{
	unsigned char token[PLUG_TOKEN_SIZE];
	struct daemon_args *args = calloc(1, sizeof(*args));
	const struct child_user user = {.uid = job->uid, .gid = job->gid, .gids = job->gids,
		.ngids = job->ngids, .log_level = job->log_level, .memlock = conf->memlock,
		.nofile = conf->nofile};
	struct child child = {.token_fd = {-1, -1}, .go_fd = {-1, -1}, .ready_fd = -1};
	struct child_files files = {.lock = lock, .listen = -1, .nodes = -1};
	struct plug_lock l = {.abi = SHM_ABI, .uid = job->uid, .node = strdup(job->node),
		.nodelist = strdup(job->nodelist)};
	int rc;

	if (!args || !l.node || !l.nodelist)
		rc = plug_error_set(err, -ENOMEM, "no memory to start the daemon");
	else
		rc = build_args(args, conf, opt, job, dir, err);
	if (!rc)
		rc = plug_token_make(conf->key_file, job->slurm, job->id, job->restart, token, err);
	if (!rc && (files.listen = bind_socket(dir, job, err)) < 0)
		rc = files.listen;
	if (!rc && (files.nodes = nodes_file(args->nodes, job->slurm->nodes, err)) < 0)
		rc = files.nodes;
	if (!rc)
		rc = plug_child_spawn(conf->daemon, args->argv, &user, &files, &child, err);
	if (rc)
		goto free_args;
	plug_lock_process(&l, child.pid);
	plug_cgroup_find(job->id, &l.groups);
	plug_cgroup_place(&l.groups, l.pid, conf->memory_limit_mb, conf->cpu_weight,
		conf->reserved_cpus);
	rc = plug_lock_write(path, &l);
	if (rc) {
		plug_error_set(err, rc, "cannot write %s: %s", path, strerror(-rc));
		goto end_daemon;
	}
	write_pid(dir, l.pid);
	/* Root's child waits for this before it becomes the user's: it is in its place from the first moment. */
	plug_child_give(&child, token, sizeof(token));
	rc = await_ready(child.ready_fd, deadline, conf->daemon, err);
	if (rc)
		goto end_daemon;
	l.ready = 1;
	rc = plug_lock_write(path, &l);
	if (rc)
		plug_error_set(err, rc, "cannot write %s: %s", path, strerror(-rc));
end_daemon:
	if (rc)
		plug_lock_kill(&l, 0);
	plug_child_close(&child);
free_args:
	if (files.listen >= 0)
		close(files.listen);
	if (files.nodes >= 0)
		close(files.nodes);
	if (args)
		free(args->nodes);
	free(args);
	plug_lock_free(&l);
	return rc;
}

/* Can the daemon that is there serve this step? */
static int serves(const struct plug_lock *l, const struct plug_job *job, struct plug_error *err)
{
	struct plug_error why;

	if (l->abi != SHM_ABI)
		return plug_error_set(err, -EPROTO,
			"the daemon of this job is of another rcshare release (ABI %u, this one has %u), from "
			"before the upgrade: this job goes on without, the next one has the new release",
			l->abi, SHM_ABI);
	if (l->node && strcmp(l->node, job->node) != 0)
		return plug_error_set(err, -EADDRINUSE,
			"the job's daemon of node %s has this run dir: several slurmd on a host need "
			"run_dir=/run/rcshare-%%n in plugstack.conf", l->node);
	if (!job->steplist || !l->nodelist || plug_hostlist_covers(l->nodelist, job->steplist, &why))
		return 0;
	return plug_error_set(err, -EINVAL,
		"the job's daemon on this node was started by an srun --jobid from outside the job, for the nodes "
		"%.200s, and cannot serve a step on %.200s: run the first step that uses rcshare on all nodes of "
		"the job",
		l->nodelist, job->steplist);
}

/* The daemon of an earlier job of this number, whose epilog did not run. */
static void end_stale(const struct plug_lock *l, const char *dir)
{
	if (plug_lock_ours(l))
		plug_lock_kill(l, STOP_MS);
	else
		plug_folder_remove(dir); /* then it ends by itself */
}

int plug_launch_start(const struct plug_conf *conf, const struct plug_option *opt,
	const struct plug_job *job, struct plug_error *err)
{
	int64_t deadline = now_ms() + conf->timeout_ms;
	char path[PLUG_PATH_MAX], dir[PLUG_PATH_MAX];
	struct plug_error why;
	struct plug_lock l;
	int lock, rc;

	rc = plug_folder_run(conf->run_dir, err);
	if (rc)
		return rc;
	plug_lock_path(path, sizeof(path), conf, job->id, job->restart);
	snprintf(dir, sizeof(dir), "%s/%u.%u", conf->run_dir, job->id, job->restart);
	while ((lock = plug_lock_try(path, err)) == -EWOULDBLOCK) {
		bool stale = false;

		if (plug_lock_read(path, &l) == 0 && plug_lock_alive(&l)) {
			stale = plug_lock_stale(&l, job->uid, job->start);
			if (!stale && l.ready) {
				rc = serves(&l, job, err);
				plug_lock_free(&l);
				return rc;
			}
		}
		if (stale)
			end_stale(&l, dir);
		plug_lock_free(&l);
		if (now_ms() >= deadline)
			return plug_error_set(err, -ETIMEDOUT,
				stale ? "the daemon of an earlier job of this number does not end" :
					"another step of this job has started its daemon here, which was not ready in time; syslog of this node "
					"has what it said");
		pause_ms(20);
	}
	if (lock < 0)
		return lock;
	/* Without a log the job runs; the daemon counts what is lost and says why. */
	if (!*opt->log && plug_folder_log(conf->log_dir, job->id, job->restart, job->uid, job->gid, &why) &&
		job->log)
		job->log(why.text);
	rc = make_folder(dir, err);
	if (!rc)
		rc = start_locked(lock, path, dir, conf, opt, job, deadline, err);
	close(lock);
	return rc;
}

void plug_launch_place(const struct plug_conf *conf, uint32_t job, uint32_t restart)
{
	char path[PLUG_PATH_MAX];
	struct plug_lock l;

	plug_lock_path(path, sizeof(path), conf, job, restart);
	if (plug_lock_read(path, &l) == 0 && plug_lock_ours(&l) && plug_lock_alive(&l)) {
		plug_cgroup_find(job, &l.groups);
		if (l.groups.count) {
			plug_cgroup_place(&l.groups, l.pid, conf->memory_limit_mb, conf->cpu_weight,
				conf->reserved_cpus);
			plug_lock_write(path, &l);
		}
	}
	plug_lock_free(&l);
}

/* --- stop ---------------------------------------------------------------------------------- */

static void stop_one(const struct plug_conf *conf, uint32_t job, uint32_t restart)
{
	char path[PLUG_PATH_MAX], dir[PLUG_PATH_MAX];
	int64_t deadline = now_ms() + STOP_MS;
	struct plug_lock l;

	plug_lock_path(path, sizeof(path), conf, job, restart);
	snprintf(dir, sizeof(dir), "%s/%u.%u", conf->run_dir, job, restart);
	if (plug_lock_read(path, &l) == 0) {
		plug_lock_kill(&l, STOP_MS);
		if (!plug_lock_ours(&l)) {
			plug_folder_remove(dir); /* the daemon looks for it, and ends */
			while (plug_lock_held(path) && now_ms() < deadline)
				pause_ms(20);
		}
		plug_cgroup_remove(&l.groups);
	}
	plug_lock_free(&l);
	unlink(path);
	plug_folder_remove(dir);
	if (conf->log_dir)
		plug_folder_log_tidy(conf->log_dir, job, restart);
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

uint32_t plug_launch_restart(const struct plug_conf *conf, const struct plug_job *job)
{
	DIR *dir = opendir(conf->run_dir);
	uint32_t restart, best = job->restart;
	char path[PLUG_PATH_MAX];
	struct plug_lock l;
	bool found = false;

	while (dir && next_restart(dir, job->id, &restart)) {
		plug_lock_path(path, sizeof(path), conf, job->id, restart);
		if (plug_lock_read(path, &l) == 0 && plug_lock_alive(&l) && plug_lock_held(path) &&
			!plug_lock_stale(&l, job->uid, job->start) && (!found || restart > best)) {
			best = restart;
			found = true;
		}
		plug_lock_free(&l);
	}
	if (dir)
		closedir(dir);
	return best;
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
