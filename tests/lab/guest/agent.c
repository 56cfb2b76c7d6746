/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first process of a guest: runs /lab/early, then serves commands (agent.h) on a NIC that lives
 * in a network namespace of its own, so that programs under test never see it, then runs
 * /lab/services. Reaps what is orphaned.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pty.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAX_WORDS 1024

struct command {
	char *user, *cwd;
	char *argv[MAX_WORDS + 1], *env[MAX_WORDS + 1];
	size_t argc, envc;
	bool tty, with_stdin;
	struct winsize win;
};

static char token[LAB_TOKEN_LEN];

static void refuse(int fd, const char *what, const char *name)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "%s %s: %s", what, name, strerror(errno));

	lab_frame_send(fd, LAB_FAILED, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
	_exit(1);
}

static struct winsize winsize_from(const char *buf)
{
	struct lab_winsize w;

	memcpy(&w, buf, sizeof(w));
	return (struct winsize){.ws_row = ntohs(w.rows), .ws_col = ntohs(w.cols)};
}

static int command_read(int fd, struct command *c)
{
	static char buf[LAB_FRAME_MAX + 1];
	uint8_t type;
	size_t len;

	while (lab_frame_recv(fd, &type, buf, &len) == 0) {
		switch (type) {
		case LAB_USER:
			c->user = strdup(buf);
			break;
		case LAB_CWD:
			c->cwd = strdup(buf);
			break;
		case LAB_ENV:
			if (c->envc == MAX_WORDS)
				return -1;
			c->env[c->envc++] = strdup(buf);
			break;
		case LAB_ARG:
			if (c->argc == MAX_WORDS)
				return -1;
			c->argv[c->argc++] = strdup(buf);
			break;
		case LAB_TTY:
			if (len != sizeof(struct lab_winsize))
				return -1;
			c->tty = true;
			c->win = winsize_from(buf);
			break;
		case LAB_STDIN_ON:
			c->with_stdin = true;
			break;
		case LAB_GO:
			return c->argc ? 0 : -1;
		default:
			return -1;
		}
	}
	return -1;
}

/* Becomes the command; what fails is reported through the connection. */
static void command_exec(int conn, const struct command *c)
{
	const struct rlimit no_limit = {RLIM_INFINITY, RLIM_INFINITY};
	struct passwd *pw = getpwnam(c->user ? c->user : "root");
	sigset_t none;

	if (!pw) {
		errno = ENOENT;
		refuse(conn, "user", c->user);
	}
	setrlimit(RLIMIT_MEMLOCK, &no_limit);
	setrlimit(RLIMIT_CORE, &no_limit);
	if (initgroups(pw->pw_name, pw->pw_gid) || setgid(pw->pw_gid) || setuid(pw->pw_uid))
		refuse(conn, "become", pw->pw_name);
	if (chdir(c->cwd ? c->cwd : pw->pw_dir) && (c->cwd || chdir("/")))
		refuse(conn, "folder", c->cwd ? c->cwd : "/");

	clearenv();
	setenv("HOME", pw->pw_dir, 1);
	setenv("USER", pw->pw_name, 1);
	setenv("LOGNAME", pw->pw_name, 1);
	setenv("SHELL", pw->pw_shell, 1);
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("LC_ALL", "C", 1);
	for (size_t i = 0; i < c->envc; i++)
		putenv(c->env[i]);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	execvp(c->argv[0], c->argv);
	refuse(conn, "run", c->argv[0]);
}

/* Sends what is in *fd; closes it at its end. Returns false when there is nothing more right now. */
static bool pump_out(int conn, int *fd, enum lab_frame_type type)
{
	char buf[LAB_FRAME_MAX];
	ssize_t n;

	if (*fd < 0)
		return false;
	n = read(*fd, buf, sizeof(buf));
	if (n > 0)
		return lab_frame_send(conn, type, buf, (size_t)n) == 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	close(*fd);
	*fd = -1;
	return false;
}

static void group_end(pid_t pid)
{
	kill(-pid, SIGHUP);
	kill(-pid, SIGTERM);
	kill(-pid, SIGCONT);
	for (int i = 0; i < 40; i++) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			break;
		usleep(50000);
	}
	kill(-pid, SIGKILL);
	_exit(0);
}

/* Feeds the command, and takes what it says meanwhile: it may not read before it has written. */
static int feed(int conn, int in, int *out, int *err, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(in, buf, len);
		struct pollfd p[] = {
			{.fd = in, .events = POLLOUT},
			{.fd = *out, .events = POLLIN},
			{.fd = *err, .events = POLLIN},
		};

		if (n > 0) {
			buf += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -1;
		if (poll(p, 3, -1) < 0)
			continue;
		if (p[1].revents)
			pump_out(conn, out, LAB_STDOUT);
		if (p[2].revents)
			pump_out(conn, err, LAB_STDERR);
	}
	return 0;
}

/* One frame from the caller. */
static void from_caller(int conn, pid_t pid, const struct command *c, int *in, int *out, int *err)
{
	static char buf[LAB_FRAME_MAX + 1];
	uint8_t type;
	size_t len;

	if (lab_frame_recv(conn, &type, buf, &len))
		group_end(pid);
	switch (type) {
	case LAB_STDIN:
		if (*in < 0)
			break;
		if (len == 0 && !c->tty) {
			close(*in);
			*in = -1;
		} else if (len && feed(conn, *in, out, err, buf, len)) {
			if (!c->tty)
				close(*in);
			*in = -1;
		}
		break;
	case LAB_SIGNAL:
		if (len == 1)
			kill(-pid, (unsigned char)buf[0]);
		break;
	case LAB_WINSIZE:
		if (len == sizeof(struct lab_winsize) && c->tty && *in >= 0) {
			struct winsize w = winsize_from(buf);

			ioctl(*in, TIOCSWINSZ, &w);
		}
		break;
	default:
		group_end(pid);
	}
}

static void nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static pid_t command_start(int conn, const struct command *c, int *in, int *out, int *err)
{
	int pin[2], pout[2], perr[2];
	pid_t pid;

	if (c->tty) {
		int pty;

		pid = forkpty(&pty, NULL, NULL, &c->win);
		if (pid == 0)
			command_exec(conn, c);
		*in = *out = pty;
		*err = -1;
		nonblock(pty);
		return pid;
	}
	if (pipe2(pin, O_CLOEXEC) || pipe2(pout, O_CLOEXEC) || pipe2(perr, O_CLOEXEC))
		return -1;
	pid = fork();
	if (pid == 0) {
		setsid();
		if (!c->with_stdin)
			pin[0] = open("/dev/null", O_RDONLY);
		dup2(pin[0], 0);
		dup2(pout[1], 1);
		dup2(perr[1], 2);
		command_exec(conn, c);
	}
	close(pin[0]);
	close(pout[1]);
	close(perr[1]);
	nonblock(pin[1]);
	nonblock(pout[0]);
	nonblock(perr[0]);
	*in = pin[1];
	*out = pout[0];
	*err = perr[0];
	return pid;
}

static void serve(int conn)
{
	struct command c = {0};
	char hello[sizeof(LAB_MAGIC) - 1 + LAB_TOKEN_LEN];
	int in, out, err, sig, status, one = 1;
	unsigned char code;
	sigset_t chld;
	pid_t pid;

	setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (lab_read_all(conn, hello, sizeof(hello)) ||
	    memcmp(hello, LAB_MAGIC, sizeof(LAB_MAGIC) - 1) != 0 ||
	    memcmp(hello + sizeof(LAB_MAGIC) - 1, token, LAB_TOKEN_LEN) != 0)
		_exit(1);
	if (lab_frame_send(conn, LAB_HELLO, NULL, 0) || command_read(conn, &c))
		_exit(1);

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_SETMASK, &chld, NULL);
	signal(SIGPIPE, SIG_IGN);
	sig = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	pid = command_start(conn, &c, &in, &out, &err);
	if (pid < 0)
		refuse(conn, "start", c.argv[0]);

	while (waitpid(pid, &status, WNOHANG) == 0) {
		struct signalfd_siginfo si;
		struct pollfd p[] = {
			{.fd = conn, .events = POLLIN},
			{.fd = out, .events = POLLIN},
			{.fd = err, .events = POLLIN},
			{.fd = sig, .events = POLLIN},
		};

		if (poll(p, 4, -1) < 0)
			continue;
		if (p[3].revents)
			(void)!read(sig, &si, sizeof(si));
		if (p[1].revents)
			pump_out(conn, &out, LAB_STDOUT);
		if (p[2].revents)
			pump_out(conn, &err, LAB_STDERR);
		if (p[0].revents)
			from_caller(conn, pid, &c, &in, &out, &err);
	}
	/* What a background child still holds open is not waited for. */
	while (pump_out(conn, &out, LAB_STDOUT) || pump_out(conn, &err, LAB_STDERR))
		;
	code = WIFEXITED(status) ? (unsigned char)WEXITSTATUS(status)
				 : (unsigned char)(128 + WTERMSIG(status));
	lab_frame_send(conn, LAB_EXIT, &code, 1);
	_exit(0);
}

static void complain(const char *what)
{
	fprintf(stderr, "lab: agent: %s: %s\n", what, strerror(errno));
}

static int listen_in_namespace(const char *netns)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(LAB_PORT)};
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int away = open(netns, O_RDONLY | O_CLOEXEC);
	int fd = -1;

	if (home < 0 || away < 0 || setns(away, CLONE_NEWNET)) {
		complain(netns);
		return -1;
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, 64)) {
		complain("listen");
		fd = -1;
	}
	if (setns(home, CLONE_NEWNET))
		complain("setns");
	close(home);
	close(away);
	return fd;
}

static pid_t script_start(const char *path)
{
	pid_t pid = fork();

	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setsid();
		execl(path, path, (char *)NULL);
		complain(path);
		_exit(127);
	}
	return pid;
}

int main(void)
{
	int fd, sig, tok, console;
	sigset_t chld;

	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("LC_ALL", "C", 1);
	setenv("HOME", "/root", 1);
	console = open("/dev/console", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (console >= 0)
		for (int i = 0; i < 3; i++)
			dup2(console, i);

	waitpid(script_start("/lab/early"), NULL, 0);
	tok = open("/lab/token", O_RDONLY | O_CLOEXEC);
	if (tok < 0 || lab_read_all(tok, token, sizeof(token)))
		complain("/lab/token");
	close(tok);
	fd = listen_in_namespace("/run/netns/agent");
	script_start("/lab/services");

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	sig = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	for (;;) {
		struct signalfd_siginfo si;
		struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = sig, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents) {
			(void)!read(sig, &si, sizeof(si));
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
		if (p[0].revents & POLLIN) {
			int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

			if (conn < 0)
				continue;
			if (fork() == 0) {
				close(fd);
				serve(conn);
			}
			close(conn);
		}
	}
}
