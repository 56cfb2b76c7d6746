/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is the job still there? The epilog ends a daemon; where none has run (a slurmd that was killed, a plugin that
 * was taken out of plugstack.conf) it ends by itself. It asks Slurm by squeue, as anybody may, and only after
 * job_check_s without a rank and without a step's notifier: daemons of a job that computes ask nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/job.h"
#include "node/node.h"
#include "node/work.h"

#define ANSWER_MS 20000

/* --- what squeue says ------------------------------------------------------------------------------ */

static bool has_ended(const char *state)
{
	static const char *const ends[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
		"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!strcmp(state, ends[i]))
			return true;
	return false;
}

enum job_is job_said(const char *text, uint32_t job, uid_t uid)
{
	if (strstr(text, "Invalid job id"))
		return JOB_GONE;
	/* of the number of an array it tells all tasks, in an order of its own */
	for (const char *line = text; line; line = strchr(line, '\n')) {
		unsigned number, owner;
		char state[40];

		line += *line == '\n';
		if (sscanf(line, "%u %u %39s", &number, &owner, state) == 3 && number == job)
			/* numbers begin again: another one's job has ours */
			return owner != uid || has_ended(state) ? JOB_GONE : JOB_THERE;
	}
	return JOB_UNKNOWN;
}

uint32_t job_of_cgroups(const char *text)
{
	static const char part[] = "/job_";
	uint32_t job = 0;

	for (const char *s = text; (s = strstr(s, part)); s++) {
		char *end;
		unsigned long number = strtoul(s + sizeof(part) - 1, &end, 10);

		if (end > s + sizeof(part) - 1 && (*end == '/' || *end == '\n' || !*end) && number <= UINT32_MAX)
			job = (uint32_t)number;
	}
	return job;
}

uint32_t job_of_process(pid_t pid)
{
	char path[32], text[4096];
	ssize_t got = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[got > 0 ? got : 0] = '\0';
	return job_of_cgroups(text);
}

/* --- asking, in a thread ---------------------------------------------------------------------------- */

struct question {
	struct work w;
	uint32_t job;
	uid_t uid;
	enum job_is is;
	char text[16384]; /* what came: an array has many lines */
};

/* What the command says, on either of its outputs, until it closes them or the time is over. */
static void read_answer(struct question *q, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t until = node_clock() + ANSWER_MS * 1000000ull;
	size_t len = 0;

	for (;;) {
		uint64_t now = node_clock();
		ssize_t got;

		if (now >= until || (poll(&p, 1, (int)((until - now) / 1000000) + 1) < 0 && errno != EINTR))
			break;
		if (!p.revents)
			continue;
		got = read(fd, q->text + len, sizeof(q->text) - 1 - len);
		if (got <= 0 || (len += (size_t)got) == sizeof(q->text) - 1)
			break;
	}
	q->text[len] = '\0';
}

static void question_run(struct work *w)
{
	struct question *q = (struct question *)w;
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	char job[16];
	char *argv[] = {"squeue", "-h", "-t", "all", "-o", "%A %U %T", "-j", job, NULL};
	int fd[2], err;
	pid_t pid;

	snprintf(job, sizeof(job), "%u", q->job);
	if (pipe2(fd, O_CLOEXEC))
		return;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, fd[1], 1);
	posix_spawn_file_actions_adddup2(&files, fd[1], 2);
	err = posix_spawnp(&pid, argv[0], &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	close(fd[1]);
	if (err) {
		snprintf(q->text, sizeof(q->text), "cannot run squeue: %s", strerror(err));
	} else {
		read_answer(q, fd[0]);
		kill(pid, SIGKILL); /* it has said what it had to say */
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		q->is = job_said(q->text, q->job, q->uid);
	}
	close(fd[0]);
}

static void question_done(struct work *w, void *arg)
{
	struct question *q = (struct question *)w;
	struct node *n = arg;
	static bool told;

	n->job.asked = false;
	n->job.quiet_at = n->now; /* and again after job_check_s */
	if (q->is == JOB_GONE && !job_in_use(n)) {
		n->stop = true;
		n->stop_why = "Slurm does not have the job any more";
	} else if (q->is == JOB_UNKNOWN && !told) {
		q->text[strcspn(q->text, "\n")] = '\0';
		node_log(n, CONFIG_LOG_INFO, "squeue does not tell whether job %u is still there: %.200s", n->o.job,
			q->text);
		told = true;
	}
	free(q);
}

/* --- in the loop ------------------------------------------------------------------------------------ */

bool job_in_use(const struct node *n)
{
	for (const struct chan *c = n->chans; c; c = c->next)
		if (c->kind != CHAN_NEW && !c->closing)
			return true;
	return false;
}

void job_tick(struct node *n)
{
	struct question *q;

	if (!n->job.quiet_at || job_in_use(n))
		n->job.quiet_at = n->now;
	if (n->job.asked || n->now - n->job.quiet_at < n->cfg.job_check_s * 1000000000ull)
		return;
	if (!n->job.queue)
		n->job.queue = work_queue_open(n->works, "job");
	q = n->job.queue ? calloc(1, sizeof(*q)) : NULL;
	if (!q)
		return;
	*q = (struct question){.w = {.run = question_run, .done = question_done}, .job = n->o.job, .uid = n->o.uid};
	n->job.asked = !work_put(n->job.queue, &q->w);
	if (!n->job.asked)
		free(q);
}
