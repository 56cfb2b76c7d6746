// SPDX-License-Identifier: BSD-3-Clause
#include "spank/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NGROUPS 1024

/* All that the child needs, prepared before the fork: slurmstepd may have threads. */
struct plan {
	const char *path;
	char *const *argv;
	char *envp[7];
	char env[5][1100];
	struct child_user user;
	gid_t groups[NGROUPS];
	int ngroups;
	int token, ready, go[2];
	struct child_files files;
};

static int plan_user(struct plan *p, struct plug_error *err)
{
	const char *path = getenv("PATH"), *conf = getenv("SLURM_CONF"); /* of slurmd */
	struct passwd pw, *found = NULL;
	char buf[16384];
	int n = 0;

	/* The daemon runs squeue: slurmd's PATH and SLURM_CONF lead to a Slurm that lies elsewhere. */
	snprintf(p->env[0], sizeof(p->env[0]), "PATH=/usr/local/bin:/usr/bin:/bin%s%s", path ? ":" : "", path ? path : "");
	p->envp[n++] = p->env[0];
	if (conf) {
		snprintf(p->env[4], sizeof(p->env[4]), "SLURM_CONF=%s", conf);
		p->envp[n++] = p->env[4];
	}
	p->envp[n++] = "LANG=C";
	p->ngroups = 1;
	p->groups[0] = p->user.gid;
	if (p->user.gids && p->user.ngids > NGROUPS)
		return plug_error_set(err, -E2BIG, "the job's user is in more than %d groups", NGROUPS);
	if (p->user.gids) {
		p->ngroups = p->user.ngids;
		memcpy(p->groups, p->user.gids, (size_t)p->ngroups * sizeof(*p->groups));
	}
	if (getpwuid_r(p->user.uid, &pw, buf, sizeof(buf), &found) == 0 && found) {
		snprintf(p->env[1], sizeof(p->env[1]), "HOME=%s", found->pw_dir);
		snprintf(p->env[2], sizeof(p->env[2]), "USER=%s", found->pw_name);
		p->envp[n++] = p->env[1];
		p->envp[n++] = p->env[2];
		if (!p->user.gids)
			p->ngroups = NGROUPS;
		if (!p->user.gids &&
			getgrouplist(found->pw_name, p->user.gid, p->groups, &p->ngroups) < 0)
			return plug_error_set(err, -E2BIG, "user %s is in more than %d groups",
				found->pw_name, NGROUPS);
	}
	if (p->user.log_level) {
		snprintf(p->env[3], sizeof(p->env[3]), "RCSHARE_LOG_LEVEL=%s", p->user.log_level);
		p->envp[n++] = p->env[3];
	}
	p->envp[n] = NULL;
	return 0;
}

/* --- after the fork: async-signal-safe functions only ----------------------------------------- */

static void refuse(int ready, const char *what, const char *path)
{
#if __GLIBC_PREREQ(2, 32)
	const char *why = strerrordesc_np(errno); /* strerror is not async-signal-safe */
#else
	const char *why = errno == ENOENT ? "No such file or directory" : "failed";
#endif
	const char *part[] = {"error: cannot ", what, path, ": ", why ? why : "?", "\n"};
	char line[512];
	size_t i, n, len = 0;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		n = strlen(part[i]);
		if (len + n > sizeof(line))
			break;
		memcpy(line + len, part[i], n);
		len += n;
	}
	if (write(ready, line, len) < 0)
		_exit(2);
	_exit(1);
}

static void close_from(unsigned int first)
{
	unsigned int fd;
	struct rlimit lim;

#ifdef SYS_close_range
	if (syscall(SYS_close_range, first, ~0u, 0) == 0)
		return;
#endif
	if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_max > 1u << 20)
		lim.rlim_max = 1u << 20;
	for (fd = first; fd < lim.rlim_max; fd++)
		close((int)fd);
}

/* Moves the five descriptors to 3 to 7, wherever they are now, and closes all others. */
static void arrange_fds(struct plan *p)
{
	const int from[] = {p->token, p->ready, p->files.lock, p->files.listen, p->files.nodes};
	int null, moved[5];

	/* First out of the way of the targets. */
	for (int i = 0; i < 5; i++) {
		moved[i] = fcntl(from[i], F_DUPFD, 16);
		if (moved[i] < 0)
			_exit(2);
	}
	null = open("/dev/null", O_RDWR);
	if (null < 0)
		_exit(2);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	for (int i = 0; i < 5; i++)
		dup2(moved[i], CHILD_TOKEN_FD + i);
	p->ready = CHILD_READY_FD;
	close_from(CHILD_NODES_FD + 1);
}

/* Root has something to do first: the process's place. Without a word root's process has ended. */
static void await_go(struct plan *p)
{
	char go;
	ssize_t n;

	close(p->go[1]);
	do {
		n = read(p->go[0], &go, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(2);
}

static void reset_signals(void)
{
	struct sigaction dfl;
	sigset_t none;
	int sig;

	memset(&dfl, 0, sizeof(dfl));
	dfl.sa_handler = SIG_DFL;
	for (sig = 1; sig < NSIG; sig++)
		sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Soft and hard to `want`; without CAP_SYS_RESOURCE the hard limit is the best there is. */
static void set_limit(int resource, rlim_t want)
{
	struct rlimit lim = {want, want};

	if (setrlimit(resource, &lim) == 0 || getrlimit(resource, &lim) != 0)
		return;
	lim.rlim_cur = want < lim.rlim_max ? want : lim.rlim_max;
	setrlimit(resource, &lim);
}

static void set_limits(const struct child_user *u)
{
	struct rlimit lim;

	set_limit(RLIMIT_MEMLOCK, u->memlock ? u->memlock : RLIM_INFINITY);
	if (u->nofile)
		set_limit(RLIMIT_NOFILE, u->nofile);
	else if (getrlimit(RLIMIT_NOFILE, &lim) == 0)
		set_limit(RLIMIT_NOFILE, lim.rlim_max);
}

static void set_oom_score(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (write(fd, "0", 1) != 1)
			(void)0; /* best effort */
		close(fd);
	}
}

static void become_daemon(struct plan *p)
{
	reset_signals();
	await_go(p);
	arrange_fds(p);
	set_limits(&p->user);
	set_oom_score();
	setpriority(PRIO_PROCESS, 0, 0);
	umask(077);
	if (chdir("/") != 0)
		_exit(2);
	if (setgroups((size_t)p->ngroups, p->groups) != 0 ||
		setresgid(p->user.gid, p->user.gid, p->user.gid) != 0 ||
		setresuid(p->user.uid, p->user.uid, p->user.uid) != 0)
		refuse(p->ready, "become the job's user", "");
	if (p->user.uid != 0 && setuid(0) == 0)
		_exit(2);
	execve(p->path, p->argv, p->envp);
	refuse(p->ready, "run ", p->path);
}

/* --- before it ---------------------------------------------------------------------------------
 */

static void close_pair(int fds[2])
{
	if (fds[0] >= 0)
		close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	fds[0] = fds[1] = -1;
}

int plug_child_spawn(const char *path, char *const argv[], const struct child_user *user,
	const struct child_files *files, struct child *child, struct plug_error *err)
{
	int go[2] = {-1, -1}, token[2] = {-1, -1}, ready[2] = {-1, -1}, report[2] = {-1, -1};
	struct plan *p = calloc(1, sizeof(*p));
	pid_t middle, pid = 0;
	ssize_t n;
	int rc;

	if (!p)
		return plug_error_set(err, -ENOMEM, "no memory to start the daemon");
	p->path = path;
	p->argv = argv;
	p->user = *user;
	p->files = *files;
	rc = plan_user(p, err);
	if (rc)
		goto out;
	if (pipe2(token, O_CLOEXEC) || pipe2(ready, O_CLOEXEC) || pipe2(report, O_CLOEXEC) ||
		pipe2(go, O_CLOEXEC)) {
		rc = plug_error_set(
			err, -errno, "no pipes to start the daemon: %s", strerror(errno));
		goto out;
	}
	p->token = token[0];
	p->ready = ready[1];
	memcpy(p->go, go, sizeof(go));
	middle = fork();
	if (middle < 0) {
		rc = plug_error_set(err, -errno, "cannot fork: %s", strerror(errno));
		goto out;
	}
	if (middle == 0) {
		setsid();
		pid = fork();
		if (pid == 0) {
			close(report[1]); /* else the read below has no end when the process between is killed */
			become_daemon(p);
		}
		n = write(report[1], &pid, sizeof(pid));
		_exit(n == sizeof(pid) ? 0 : 1);
	}
	close(report[1]);
	report[1] = -1;
	do {
		n = read(report[0], &pid, sizeof(pid));
	} while (n < 0 && errno == EINTR);
	while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
		;
	if (n != sizeof(pid) || pid <= 0) {
		rc = plug_error_set(err, -EAGAIN, "cannot fork the daemon");
		goto out;
	}
	child->pid = pid;
	child->token_fd[0] = token[0];
	child->token_fd[1] = token[1];
	child->ready_fd = ready[0];
	memcpy(child->go_fd, go, sizeof(go));
	token[0] = token[1] = ready[0] = go[0] = go[1] = -1;
out:
	close_pair(token);
	close_pair(go);
	close_pair(ready);
	close_pair(report);
	free(p);
	return rc;
}

void plug_child_give(struct child *child, const void *data, size_t size)
{
	ssize_t n;

	/* Fits the pipe's buffer, and has a reader even when the child is gone: no SIGPIPE. */
	do {
		n = write(child->token_fd[1], data, size);
	} while (n < 0 && errno == EINTR);
	close_pair(child->token_fd);
	do {
		n = write(child->go_fd[1], "", 1);
	} while (n < 0 && errno == EINTR);
	close_pair(child->go_fd);
}

void plug_child_close(struct child *child)
{
	close_pair(child->token_fd);
	close_pair(child->go_fd);
	if (child->ready_fd >= 0)
		close(child->ready_fd);
	child->ready_fd = -1;
}
