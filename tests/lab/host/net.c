/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * labhost net FOLDER NETWORK.NODE...: the Ethernet switches between the guests.
 *
 * FOLDER/NETWORK.NODE is the socket to which the NIC of NODE in NETWORK connects (QEMU's "stream"
 * netdev: each packet behind its length, 4 bytes in network order). Packets pass between ports of
 * the same network only. All of it is Unix sockets: nothing of a lab is seen outside of it.
 *
 * FOLDER/ctl takes commands, one a connection (labhost netctl FOLDER COMMAND...):
 *   drop PORT in|out PERCENT    silent loss towards (in) or from (out) that guest; 0 ends it
 *   delay PORT MICROSECONDS     each packet of that port, both directions; 0 ends it
 *   status                      a line a port
 *
 *        in        out of QEMU                                     into QEMU
 *   guest --> [rx buffer] --> loss(out) --> [delay] --> lookup --> loss(in) --> [delay] --> [tx buffer]
 *
 * A guest that does not read loses what exceeds its tx buffer, as at a real switch.
 */
#define _GNU_SOURCE
#include "../guest/agent.h"
#include "labhost.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <time.h>

#define MAX_PORTS  32
#define MAX_MACS   128
#define FRAME_MAX  (68 * 1024)
#define RX_BUFFER  (256 * 1024)
#define TX_BUFFER  (4 * 1024 * 1024)
#define DELAY_MAX  4096 /* packets in one delay line */

struct delayed {
	uint64_t due_ns;
	uint32_t len;
	char data[]; /* with its length word */
};

struct delay_line {
	struct delayed *pkt[DELAY_MAX];
	unsigned int head, count;
};

struct port {
	char net[32], name[96];
	int listener, fd;
	unsigned int drop_in, drop_out; /* percent */
	uint64_t delay_ns;
	char *rx, *tx;
	size_t rx_len, tx_head, tx_len; /* tx is a line, moved to its start when it is empty */
	struct delay_line from, to;
	uint64_t packets_in, packets_out, lost, overrun;
};

struct mac {
	uint8_t addr[6];
	struct port *port;
};

static struct port ports[MAX_PORTS];
static int nports;
static struct mac macs[MAX_MACS];
static int nmacs, next_mac;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool lost(unsigned int percent)
{
	return percent && (percent >= 100 || (unsigned int)(random() % 100) < percent);
}

static void port_hangup(struct port *p)
{
	close(p->fd);
	p->fd = -1;
	p->rx_len = p->tx_head = p->tx_len = 0;
	for (int i = 0; i < nmacs; i++)
		if (macs[i].port == p)
			macs[i].port = NULL;
}

static void tx_flush(struct port *p)
{
	while (p->tx_len) {
		ssize_t n = send(p->fd, p->tx + p->tx_head, p->tx_len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				port_hangup(p);
			return;
		}
		p->tx_head += (size_t)n;
		p->tx_len -= (size_t)n;
	}
	p->tx_head = 0;
}

static void tx_queue(struct port *p, const char *pkt, uint32_t len)
{
	if (p->fd < 0)
		return;
	if (p->tx_head + p->tx_len + len > TX_BUFFER && p->tx_head) {
		memmove(p->tx, p->tx + p->tx_head, p->tx_len);
		p->tx_head = 0;
	}
	if (p->tx_len + len > TX_BUFFER) {
		p->overrun++;
		return;
	}
	memcpy(p->tx + p->tx_head + p->tx_len, pkt, len);
	p->tx_len += len;
	p->packets_in++;
}

/* Puts a packet into a delay line; false when there is no delay and none waits before it. */
static bool delay_put(struct delay_line *d, uint64_t delay_ns, const char *pkt, uint32_t len)
{
	struct delayed *e;

	if (!delay_ns && !d->count)
		return false;
	if (d->count == DELAY_MAX || !(e = malloc(sizeof(*e) + len)))
		return true;
	e->due_ns = now_ns() + delay_ns;
	e->len = len;
	memcpy(e->data, pkt, len);
	d->pkt[(d->head + d->count++) % DELAY_MAX] = e;
	return true;
}

static struct delayed *delay_take(struct delay_line *d, uint64_t now)
{
	struct delayed *e;

	if (!d->count || d->pkt[d->head]->due_ns > now)
		return NULL;
	e = d->pkt[d->head];
	d->head = (d->head + 1) % DELAY_MAX;
	d->count--;
	return e;
}

static void deliver(struct port *to, const char *pkt, uint32_t len)
{
	if (lost(to->drop_in))
		to->lost++;
	else if (!delay_put(&to->to, to->delay_ns, pkt, len))
		tx_queue(to, pkt, len);
}

static struct port *mac_find(const char *addr)
{
	for (int i = 0; i < nmacs; i++)
		if (macs[i].port && memcmp(macs[i].addr, addr, 6) == 0)
			return macs[i].port;
	return NULL;
}

static void mac_learn(const char *addr, struct port *p)
{
	for (int i = 0; i < nmacs; i++)
		if (memcmp(macs[i].addr, addr, 6) == 0 &&
		    (!macs[i].port || strcmp(macs[i].port->net, p->net) == 0)) {
			macs[i].port = p;
			return;
		}
	memcpy(macs[next_mac].addr, addr, 6);
	macs[next_mac].port = p;
	next_mac = (next_mac + 1) % MAX_MACS;
	if (nmacs < MAX_MACS)
		nmacs++;
}

/* pkt: length word, destination, source, ... */
static void forward(struct port *from, const char *pkt, uint32_t len)
{
	struct port *to = (pkt[4] & 1) ? NULL : mac_find(pkt + 4);

	mac_learn(pkt + 10, from);
	if (to && strcmp(to->net, from->net) == 0) {
		if (to != from)
			deliver(to, pkt, len);
		return;
	}
	for (int i = 0; i < nports; i++)
		if (&ports[i] != from && strcmp(ports[i].net, from->net) == 0)
			deliver(&ports[i], pkt, len);
}

static void packet_in(struct port *from, const char *pkt, uint32_t len)
{
	from->packets_out++;
	if (lost(from->drop_out))
		from->lost++;
	else if (!delay_put(&from->from, from->delay_ns, pkt, len))
		forward(from, pkt, len);
}

static void port_read(struct port *p)
{
	ssize_t n = recv(p->fd, p->rx + p->rx_len, RX_BUFFER - p->rx_len, MSG_DONTWAIT);
	size_t at = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		port_hangup(p);
		return;
	}
	p->rx_len += (size_t)n;
	while (p->rx_len - at >= 4) {
		uint32_t len;

		memcpy(&len, p->rx + at, 4);
		len = ntohl(len);
		if (len > FRAME_MAX) {
			port_hangup(p);
			return;
		}
		if (p->rx_len - at < 4 + len)
			break;
		if (len >= 14)
			packet_in(p, p->rx + at, 4 + len);
		at += 4 + len;
	}
	if (p->fd >= 0) {
		memmove(p->rx, p->rx + at, p->rx_len - at);
		p->rx_len -= at;
	}
}

static void port_accept(struct port *p)
{
	int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (p->fd >= 0)
		port_hangup(p);
	p->fd = fd;
}

/* Moves what is due; returns nanoseconds until the next is, or -1. */
static int64_t delays_run(void)
{
	uint64_t now = now_ns(), next = UINT64_MAX;
	struct delayed *e;

	for (struct port *p = ports; p < ports + nports; p++)
		for (; (e = delay_take(&p->from, now)); free(e))
			forward(p, e->data, e->len);
	for (struct port *p = ports; p < ports + nports; p++) {
		for (; (e = delay_take(&p->to, now)); free(e))
			tx_queue(p, e->data, e->len);
		if (p->from.count && p->from.pkt[p->from.head]->due_ns < next)
			next = p->from.pkt[p->from.head]->due_ns;
		if (p->to.count && p->to.pkt[p->to.head]->due_ns < next)
			next = p->to.pkt[p->to.head]->due_ns;
	}
	return next == UINT64_MAX ? -1 : next > now ? (int64_t)(next - now) : 0;
}

static struct port *port_find(const char *name)
{
	for (int i = 0; i < nports; i++)
		if (strcmp(ports[i].name, name) == 0)
			return &ports[i];
	return NULL;
}

static void control(int listener)
{
	char line[256] = "", name[96], direction[8];
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct timeval patience = {.tv_sec = 1};
	unsigned int value;
	struct port *p;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (recv(fd, line, sizeof(line) - 1, 0) <= 0) {
		close(fd);
		return;
	}
	if (sscanf(line, "drop %95s %7s %u", name, direction, &value) == 3 && (p = port_find(name))) {
		*(strcmp(direction, "in") == 0 ? &p->drop_in : &p->drop_out) = value;
		dprintf(fd, "ok\n");
	} else if (sscanf(line, "delay %95s %u", name, &value) == 2 && (p = port_find(name))) {
		p->delay_ns = (uint64_t)value * 1000;
		dprintf(fd, "ok\n");
	} else if (strncmp(line, "status", 6) == 0) {
		dprintf(fd, "ok\n");
		for (p = ports; p < ports + nports; p++)
			dprintf(fd,
				"%s connected=%d drop_in=%u drop_out=%u delay_us=%llu packets_to=%llu "
				"packets_from=%llu lost=%llu overrun=%llu\n",
				p->name, p->fd >= 0, p->drop_in, p->drop_out,
				(unsigned long long)(p->delay_ns / 1000),
				(unsigned long long)p->packets_in, (unsigned long long)p->packets_out,
				(unsigned long long)p->lost, (unsigned long long)p->overrun);
	} else {
		dprintf(fd, "no such command or port: %s\n", line);
	}
	close(fd);
}

static int address(struct sockaddr_un *sa, const char *folder, const char *name)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	return (size_t)snprintf(sa->sun_path, sizeof(sa->sun_path), "%s/%s", folder, name) <
			       sizeof(sa->sun_path)
		       ? 0
		       : -1;
}

static int listen_at(const char *folder, const char *name)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;

	if (fd < 0 || address(&sa, folder, name))
		return -1;
	unlink(sa.sun_path);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, 16)) {
		perror(sa.sun_path);
		return -1;
	}
	return fd;
}

static int port_add(const char *folder, const char *name)
{
	struct port *p = &ports[nports];
	const char *dot = strchr(name, '.');

	if (nports == MAX_PORTS || !dot || (size_t)(dot - name) >= sizeof(p->net) ||
	    strlen(name) >= sizeof(p->name))
		return -1;
	memcpy(p->net, name, (size_t)(dot - name));
	strcpy(p->name, name);
	p->fd = -1;
	p->rx = malloc(RX_BUFFER);
	p->tx = malloc(TX_BUFFER);
	p->listener = listen_at(folder, name);
	if (!p->rx || !p->tx || p->listener < 0)
		return -1;
	nports++;
	return 0;
}

int net_main(int argc, char **argv)
{
	int ctl;

	if (argc < 3)
		return 2;
	for (int i = 2; i < argc; i++)
		if (port_add(argv[1], argv[i])) {
			fprintf(stderr, "lab: cannot make port %s\n", argv[i]);
			return 1;
		}
	ctl = listen_at(argv[1], "ctl");
	if (ctl < 0)
		return 1;
	signal(SIGPIPE, SIG_IGN);

	for (;;) {
		struct pollfd p[1 + 2 * MAX_PORTS];
		int64_t wait = delays_run();
		struct timespec ts = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};

		for (int i = 0; i < nports; i++)
			if (ports[i].fd >= 0 && ports[i].tx_len)
				tx_flush(&ports[i]);
		p[0] = (struct pollfd){.fd = ctl, .events = POLLIN};
		for (int i = 0; i < nports; i++) {
			p[1 + 2 * i] = (struct pollfd){.fd = ports[i].listener, .events = POLLIN};
			p[2 + 2 * i] = (struct pollfd){
				.fd = ports[i].fd,
				.events = (short)(POLLIN | (ports[i].tx_len ? POLLOUT : 0)),
			};
		}
		if (ppoll(p, (nfds_t)(1 + 2 * nports), wait < 0 ? NULL : &ts, NULL) < 0)
			continue;
		if (p[0].revents)
			control(ctl);
		for (int i = 0; i < nports; i++) {
			if (p[2 + 2 * i].revents & (POLLIN | POLLHUP | POLLERR) && ports[i].fd >= 0)
				port_read(&ports[i]);
			if (p[1 + 2 * i].revents)
				port_accept(&ports[i]);
		}
	}
}

int netctl_main(int argc, char **argv)
{
	struct timeval patience = {.tv_sec = 5};
	char line[256] = "", buf[8192];
	struct sockaddr_un sa;
	size_t len = 0, ok;
	ssize_t n;
	int fd;

	if (argc < 3 || address(&sa, argv[1], "ctl"))
		return 2;
	for (int i = 2; i < argc; i++) {
		int w = snprintf(line + len, sizeof(line) - len, "%s ", argv[i]);

		len += (size_t)w;
		if (len >= sizeof(line))
			return 2;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		perror("lab: the switch");
		return 1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (lab_write_all(fd, line, strlen(line)))
		return 1;
	for (len = 0; (n = read(fd, buf + len, sizeof(buf) - 1 - len)) > 0;)
		len += (size_t)n;
	buf[len] = '\0';
	ok = strncmp(buf, "ok\n", 3) == 0 ? 3 : 0;
	fputs(buf + ok, ok ? stdout : stderr);
	return ok ? 0 : 1;
}
