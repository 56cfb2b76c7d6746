/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * labhost exec -p PORT -k TOKENFILE [-u USER] [-C FOLDER] [-e NAME=VALUE] [-i] [-T] [-t SECONDS]
 *              [-w SECONDS] -- COMMAND...
 *
 * Runs COMMAND in the guest whose agent (guest/agent.h) is behind 127.0.0.1:PORT, with its exit
 * status, stdout and stderr. -i forwards standard input, -T gives it a terminal, -t bounds the run,
 * -w waits that long for the agent (default 5).
 */
#define _GNU_SOURCE
#include "../guest/agent.h"
#include "labhost.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>

static pthread_mutex_t send_lock = PTHREAD_MUTEX_INITIALIZER;
static struct termios saved;
static bool raw;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int send_frame(int fd, enum lab_frame_type type, const void *buf, size_t len)
{
	int rc;

	pthread_mutex_lock(&send_lock);
	rc = lab_frame_send(fd, type, buf, len);
	pthread_mutex_unlock(&send_lock);
	return rc;
}

static void terminal_restore(void)
{
	if (raw)
		tcsetattr(0, TCSANOW, &saved);
}

static int readable(int fd, double until)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double left = until - now();

	return poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0) > 0;
}

/* One attempt; QEMU accepts for the guest, so only the agent's hello proves anything. */
static int try_connect(int port, const char *token, double patience)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct lab_header h;

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 &&
	    lab_write_all(fd, LAB_MAGIC, sizeof(LAB_MAGIC) - 1) == 0 &&
	    lab_write_all(fd, token, LAB_TOKEN_LEN) == 0 && readable(fd, now() + patience) &&
	    lab_read_all(fd, &h, sizeof(h)) == 0 && h.type == LAB_HELLO)
		return fd;
	close(fd);
	return -1;
}

static void winsize_get(struct lab_winsize *w)
{
	struct winsize ws = {.ws_row = 24, .ws_col = 80};

	ioctl(0, TIOCGWINSZ, &ws);
	*w = (struct lab_winsize){.rows = htons(ws.ws_row), .cols = htons(ws.ws_col)};
}

static void *stdin_forward(void *arg)
{
	int fd = *(int *)arg;
	char buf[LAB_FRAME_MAX];
	ssize_t n;

	while ((n = read(0, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && send_frame(fd, LAB_STDIN, buf, (size_t)n))
			return NULL;
	send_frame(fd, LAB_STDIN, NULL, 0);
	return NULL;
}

static int converse(int fd, double until, const sigset_t *sigs)
{
	static char buf[LAB_FRAME_MAX + 1];
	int sig = signalfd(-1, sigs, SFD_CLOEXEC), interrupts = 0;

	for (;;) {
		struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = sig, .events = POLLIN}};
		double left = until - now();
		int wait = until <= 0 ? -1 : left > 0 ? (int)(left * 1000) + 1 : 0;
		uint8_t type;
		size_t len;

		if (poll(p, 2, wait) == 0) {
			fprintf(stderr, "lab: the command ran too long and was ended\n");
			return LABHOST_TIMEOUT;
		}
		if (p[1].revents) {
			struct signalfd_siginfo si;

			if (read(sig, &si, sizeof(si)) != sizeof(si))
				continue;
			if (si.ssi_signo == SIGWINCH) {
				struct lab_winsize w;

				winsize_get(&w);
				send_frame(fd, LAB_WINSIZE, &w, sizeof(w));
				continue;
			}
			if (++interrupts > 2)
				return 128 + (int)si.ssi_signo;
			buf[0] = (char)si.ssi_signo;
			send_frame(fd, LAB_SIGNAL, buf, 1);
			continue;
		}
		if (!p[0].revents)
			continue;
		if (lab_frame_recv(fd, &type, buf, &len)) {
			fprintf(stderr, "lab: the guest went away\n");
			return LABHOST_NO_GUEST;
		}
		switch (type) {
		case LAB_STDOUT:
			if (lab_write_all(1, buf, len))
				return 1;
			break;
		case LAB_STDERR:
			lab_write_all(2, buf, len);
			break;
		case LAB_EXIT:
			return (unsigned char)buf[0];
		case LAB_FAILED:
			fprintf(stderr, "lab: %s\n", buf);
			return 127;
		default:
			break;
		}
	}
}

int exec_main(int argc, char **argv)
{
	const char *token_file = NULL, *user = NULL, *cwd = NULL, *env[64];
	double timeout = 0, patience = 5, start = now();
	int port = 0, fd, opt, envc = 0, rc;
	bool with_stdin = false, tty = false;
	char token[LAB_TOKEN_LEN];
	struct lab_winsize w;
	pthread_t forwarder;
	sigset_t sigs;

	while ((opt = getopt(argc, argv, "+p:k:u:C:e:iTt:w:")) != -1) {
		switch (opt) {
		case 'p':
			port = atoi(optarg);
			break;
		case 'k':
			token_file = optarg;
			break;
		case 'u':
			user = optarg;
			break;
		case 'C':
			cwd = optarg;
			break;
		case 'e':
			if (envc == 64)
				return 2;
			env[envc++] = optarg;
			break;
		case 'i':
			with_stdin = true;
			break;
		case 'T':
			tty = with_stdin = true;
			break;
		case 't':
			timeout = atof(optarg);
			break;
		case 'w':
			patience = atof(optarg);
			break;
		default:
			return 2;
		}
	}
	if (!port || !token_file || optind == argc) {
		fprintf(stderr, "usage: labhost exec -p PORT -k TOKENFILE [options] -- COMMAND...\n");
		return 2;
	}
	fd = open(token_file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || lab_read_all(fd, token, sizeof(token))) {
		perror(token_file);
		return LABHOST_NO_GUEST;
	}
	close(fd);

	signal(SIGPIPE, SIG_IGN);
	while ((fd = try_connect(port, token, patience < 2 ? patience : 2)) < 0) {
		if (now() - start >= patience) {
			fprintf(stderr, "lab: the agent of the guest does not answer\n");
			return LABHOST_NO_GUEST;
		}
		usleep(100000);
	}

	if (user)
		lab_frame_send(fd, LAB_USER, user, strlen(user));
	if (cwd)
		lab_frame_send(fd, LAB_CWD, cwd, strlen(cwd));
	for (int i = 0; i < envc; i++)
		lab_frame_send(fd, LAB_ENV, env[i], strlen(env[i]));
	for (int i = optind; i < argc; i++)
		if (lab_frame_send(fd, LAB_ARG, argv[i], strlen(argv[i]))) {
			fprintf(stderr, "lab: an argument is too long\n");
			return 2;
		}
	if (with_stdin)
		lab_frame_send(fd, LAB_STDIN_ON, NULL, 0);
	if (tty) {
		winsize_get(&w);
		lab_frame_send(fd, LAB_TTY, &w, sizeof(w));
	}
	lab_frame_send(fd, LAB_GO, NULL, 0);

	sigemptyset(&sigs);
	sigaddset(&sigs, SIGINT);
	sigaddset(&sigs, SIGTERM);
	sigaddset(&sigs, SIGHUP);
	if (tty)
		sigaddset(&sigs, SIGWINCH);
	sigprocmask(SIG_BLOCK, &sigs, NULL);
	if (tty && tcgetattr(0, &saved) == 0) {
		struct termios t = saved;

		cfmakeraw(&t);
		raw = tcsetattr(0, TCSANOW, &t) == 0;
	}
	if (with_stdin && pthread_create(&forwarder, NULL, stdin_forward, &fd))
		return 1;
	rc = converse(fd, timeout > 0 ? start + timeout : 0, &sigs);
	terminal_restore();
	return rc;
}
