// SPDX-License-Identifier: BSD-3-Clause
#include "spank/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KILL_MS	     3000 /* a process that was sent SIGKILL is waited for so long */
#define CLOCK_SKEW_S 300  /* munge's own limit */

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

void plug_lock_path(
	char *path, size_t size, const struct plug_conf *conf, uint32_t job, uint32_t restart)
{
	snprintf(path, size, "%s/%u.%u.lock", conf->run_dir, job, restart);
}

int plug_lock_try(const char *path, struct plug_error *err)
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

bool plug_lock_held(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool held;

	if (fd < 0)
		return false;
	held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	close(fd);
	return held;
}

static char *lock_text(const struct plug_lock *l, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	if (!f)
		return NULL;
	fprintf(f, "rcshare %u %u %llu %d %llu %llu %d %s %s\n", l->abi, l->uid, l->pidns, (int)l->pid,
		l->start, l->born, l->ready, l->node, l->nodelist);
	for (int i = 0; i < l->groups.count; i++)
		fprintf(f, "%s\n", l->groups.job[i]);
	if (!fclose(f))
		return text;
	free(text);
	return NULL;
}

/* Where there is no room the file stays as it was: it tells of a daemon that lives. */
int plug_lock_write(const char *path, const struct plug_lock *l)
{
	size_t len;
	char *text = lock_text(l, &len);
	int fd, rc;

	if (!text)
		return -ENOMEM;
	fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	rc = fd < 0 ? -errno : -posix_fallocate(fd, 0, (off_t)len);
	if (!rc && (pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len)))
		rc = -EIO;
	if (fd >= 0)
		close(fd);
	free(text);
	return rc;
}

static void read_text(FILE *f, struct plug_lock *l)
{
	char line[PLUG_CGROUP_PATH];
	int pid = 0;

	if (fscanf(f, "rcshare %u %u %llu %d %llu %llu %d %ms %ms\n", &l->abi, &l->uid, &l->pidns, &pid,
		    &l->start, &l->born, &l->ready, &l->node, &l->nodelist) >= 7) {
		l->pid = pid;
	} else {
		/* of another release: ended in order, never used */
		rewind(f);
		l->abi = 0;
		if (fscanf(f, "%d %llu %d %ms\n", &pid, &l->start, &l->ready, &l->nodelist) < 3)
			return;
		l->pid = pid;
		plug_lock_process(l, 0);
	}
	while (l->groups.count < PLUG_CGROUP_MAX && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		strcpy(l->groups.job[l->groups.count++], line);
	}
}

int plug_lock_read(const char *path, struct plug_lock *l)
{
	FILE *f;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	memset(l, 0, sizeof(*l));
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	read_text(f, l);
	fclose(f);
	return 0;
}

void plug_lock_free(struct plug_lock *l)
{
	free(l->node);
	free(l->nodelist);
	l->node = l->nodelist = NULL;
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

static unsigned long long own_pidns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

void plug_lock_process(struct plug_lock *l, pid_t pid)
{
	l->pidns = own_pidns();
	if (!pid)
		return;
	l->pid = pid;
	l->start = start_time(pid);
	l->born = (unsigned long long)time(NULL);
}

bool plug_lock_ours(const struct plug_lock *l)
{
	return l->pidns == own_pidns();
}

bool plug_lock_alive(const struct plug_lock *l)
{
	if (l->pid <= 0 || !l->start)
		return false;
	return !plug_lock_ours(l) || start_time(l->pid) == l->start;
}

void plug_lock_kill(const struct plug_lock *l, int grace_ms)
{
	int64_t deadline = now_ms() + grace_ms;

	if (!plug_lock_ours(l))
		return;
	if (grace_ms && plug_lock_alive(l)) {
		kill(l->pid, SIGTERM);
		while (plug_lock_alive(l) && now_ms() < deadline)
			pause_ms(10);
	}
	if (plug_lock_alive(l))
		kill(l->pid, SIGKILL);
	deadline = now_ms() + KILL_MS;
	while (plug_lock_alive(l) && now_ms() < deadline)
		pause_ms(10);
}

bool plug_lock_stale(const struct plug_lock *l, uid_t uid, unsigned long long job_start)
{
	if (!l->abi) /* it says nothing of itself */
		return false;
	return l->uid != uid || (job_start && l->born + CLOCK_SKEW_S < job_start);
}
