/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP lane of each link, and the proof that whoever connects knows the job's token.
 *
 *	client                                server
 *	HELLO  nonceC                 ->
 *	                              <-      HELLO  nonceS, HMAC(token, "s" nonceC nonceS hellos)
 *	PROOF  HMAC(token, "c" ...)   ->
 *	                              <-      READY  gen, or REMOVED: your node is no member any more;
 *	                                      HMAC(token, "r" ...) over it and the client's HELLO
 *	frames                        <->     frames
 *
 * Nothing secret is on the wire. A connection that has not proven itself within HANDSHAKE_NS, or that
 * says anything else, is closed. When there are too many of them (admit.h), one of those who have most goes.
 * Own attempts do not count. Frames carry a checksum and no MAC: who can change packets on the way can
 * change them (docs/security.md).
 *
 * When both sides connect at once the attempt of the lower node index stays, once the peer has answered
 * it: a SYN that was lost is repeated by the kernel after seconds only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/admit.h"
#include "node/node.h"

#define HANDSHAKE_NS 5000000000ull
#define CONNECT_NS   1000000000ull /* then a new attempt, whose SYN goes out at once */
#define LISTEN_BACKLOG 4096 /* all nodes of a large job call at once; the kernel has a limit too */
#define PORT_MIN     24576u	   /* control_port 0: below the kernel's range of ephemeral ports */
#define PORT_SPAN    4096u
#define OUT_MAX	     (256u << 10) /* bytes that may wait in a connection; past that it cannot send */

enum conn_state { CONN_CONNECTING, CONN_WAIT_HELLO, CONN_WAIT_PROOF, CONN_WAIT_READY, CONN_UP };

#define HELLO_MAGIC 0x4f484352u /* "RCHO" */

struct hello {
	uint32_t magic;
	uint16_t version, kind; /* 1 HELLO from client, 2 from server, 3 PROOF, 4 READY,
				 * 5 REMOVED */
	uint32_t job, restart, node, incarnation;
	uint32_t gen;
	uint16_t port;	/* where the speaker listens */
	uint8_t watch;	/* 1: looks only whether the other is there, needs no lanes */
	uint8_t rails;	/* of the speaker's node */
	uint8_t nonce[32];
	uint8_t mac[32];
};
_Static_assert(sizeof(struct hello) == 96, "layout");

struct tcp_conn {
	struct watch w; /* first */
	enum conn_state state;
	bool server;
	bool want_out;
	struct link *l; /* known from the start for our own attempts */
	uint32_t gen;
	uint64_t until; /* handshake deadline */
	struct sockaddr_storage from;
	struct admit_source *source; /* of a server's that has not proven itself; else NULL */
	struct hello mine, theirs;
	uint8_t *in;
	size_t in_len;
	uint8_t *out;
	size_t out_len;
	struct tcp_conn *next; /* of n->unauth */
};

#define IN_SIZE (64u << 10)

static void conn_ready(struct node *n, struct watch *w, uint32_t events);

static void conn_mac(const struct node *n, const char *role, const struct hello *c,
	const struct hello *s, uint8_t out[32])
{
	uint8_t text[1 + 2 * sizeof(struct hello)];
	struct hello h;
	unsigned len = 32;

	text[0] = (uint8_t)role[0];
	h = *c;
	memset(h.mac, 0, sizeof(h.mac));
	memcpy(text + 1, &h, sizeof(h));
	h = *s;
	memset(h.mac, 0, sizeof(h.mac));
	memcpy(text + 1 + sizeof(h), &h, sizeof(h));
	HMAC(EVP_sha256(), n->token, sizeof(n->token), text, sizeof(text), out, &len);
}

static bool mac_equal(const uint8_t *a, const uint8_t *b)
{
	unsigned d = 0;

	for (int i = 0; i < 32; i++)
		d |= a[i] ^ b[i];
	return d == 0;
}

static void unauth_remove(struct node *n, struct tcp_conn *c)
{
	if (c->source)
		admit_leave(&n->admit, c->source);
	c->source = NULL;
	for (struct tcp_conn **p = &n->unauth; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			return;
		}
}

static void conn_free(struct node *n, struct tcp_conn *c)
{
	unauth_remove(n, c);
	node_unwatch(n, &c->w);
	free(c->in);
	free(c->out);
	free(c);
}

/* There is no connection and none is being made. */
static void no_conn(struct link *l, enum core_reason why, uint32_t gen)
{
	core_link_lane_error(&l->core, CORE_LANE_TCP, gen, why, l->n->now);
	link_dirty(l);
}

/* The machine asked for a connection; what was tried without its asking it need not hear of. */
static bool is_awaited(const struct link *l)
{
	return l->core.lane[CORE_LANE_TCP].state == CORE_LANE_OPENING;
}

/* Anybody can knock: neither he nor a thousand of him fill the log. */
static void tell_refusal(struct node *n, const struct tcp_conn *c, const char *why)
{
	char name[80];
	uint32_t more;
	bool say = admit_refused(&n->admit, n->now, &more);

	n->refused++;
	if (more)
		node_log(n, CONFIG_LOG_WARN, "refused %u more connections in the minute before", more);
	if (say)
		node_log(n, CONFIG_LOG_WARN, "refused a connection from %s: %s",
			admit_name(&c->from, name, sizeof(name)), why);
}

/* The connection ended or never came to stand; tell whoever waits for it. */
static void conn_end(struct node *n, struct tcp_conn *c, const char *why, bool refused)
{
	struct link *l = c->l;

	if (l && l->tcp.conn == c) {
		node_log(n, CONFIG_LOG_INFO, "connection to node %u (%s) ended: %s", l->peer,
			n->o.names[l->peer], why);
		l->tcp.conn = NULL;
		l->refused = refused;
		no_conn(l, CORE_R_SOCKET, c->gen);
	} else if (l && l->tcp.trying == c) {
		node_log(n, CONFIG_LOG_INFO, "no connection to node %u (%s): %s", l->peer,
			n->o.names[l->peer], why);
		l->tcp.trying = NULL;
		contact_failed(l, why);
		l->refused |= refused && l->heard_at;
		if (is_awaited(l))
			no_conn(l, CORE_R_SETUP, l->tcp.gen);
	} else if (c->server) {
		tell_refusal(n, c, why);
	}
	conn_free(n, c);
}

static void conn_fail(struct node *n, struct tcp_conn *c, const char *why)
{
	conn_end(n, c, why, false);
}

/* By the kernel of the peer: nobody is there who would have closed in good order. */
static void conn_errno(struct node *n, struct tcp_conn *c, int err)
{
	struct link *l = c->l && c->l->tcp.trying == c ? c->l : NULL;

	conn_end(n, c, strerror(err), err == ECONNREFUSED || err == ECONNRESET);
	if (l)
		contact_errno(l, err);
}

static struct tcp_conn *conn_new(struct node *n, int fd, bool server)
{
	struct tcp_conn *c = calloc(1, sizeof(*c));
	int one = 1, cnt = 3, idle = 1;
	unsigned timeout = (unsigned)n->cfg.tcp_user_timeout_ms;

	if (!c)
		return NULL;
	c->in = malloc(IN_SIZE);
	c->out = malloc(OUT_MAX + 2 * WIRE_FRAME_MAX);
	if (!c->in || !c->out) {
		free(c->in);
		free(c->out);
		free(c);
		return NULL;
	}
	c->w.fd = fd;
	c->w.ready = conn_ready;
	c->server = server;
	c->until = n->now + HANDSHAKE_NS;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &cnt, sizeof(cnt));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
	c->next = n->unauth;
	n->unauth = c;
	return c;
}

static void hello_fill(struct node *n, struct tcp_conn *c, uint16_t kind)
{
	struct hello *h = &c->mine;

	memset(h, 0, sizeof(*h));
	h->magic = HELLO_MAGIC;
	h->version = WIRE_FRAME_VERSION;
	h->kind = kind;
	h->job = n->o.job;
	h->restart = n->o.restart;
	h->node = n->o.self;
	h->incarnation = n->incarnation;
	h->port = n->tcp_port;
	h->rails = (uint8_t)n->rails;
	h->watch = kind == 1 && !c->l->core.wanted;
	if (getrandom(h->nonce, sizeof(h->nonce), 0) != (ssize_t)sizeof(h->nonce))
		n->stop = true; /* cannot happen after boot; without it there is no proof */
}

/* Writes what waits; 0, or -errno when the connection is broken. */
static int conn_flush(struct tcp_conn *c)
{
	ssize_t w = send(c->w.fd, c->out, c->out_len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (w < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	memmove(c->out, c->out + w, c->out_len - (size_t)w);
	c->out_len -= (size_t)w;
	return 0;
}

static void conn_write(struct node *n, struct tcp_conn *c, const void *data, size_t len)
{
	memcpy(c->out + c->out_len, data, len);
	c->out_len += len;
	if (!c->want_out) {
		/* An error shows again, and is handled, when epoll reports it. */
		conn_flush(c);
		if (c->out_len) {
			c->want_out = true;
			node_rewatch(n, &c->w, EPOLLIN | EPOLLOUT);
		}
	}
}

/* A connection has proven itself: it becomes the link's. */
static void conn_up(struct node *n, struct tcp_conn *c, uint32_t gen)
{
	struct link *l = c->l;

	unauth_remove(n, c);
	if (l->tcp.trying && l->tcp.trying != c) {
		l->tcp.trying->l = NULL;
		conn_free(n, l->tcp.trying);
	}
	l->tcp.trying = NULL;
	if (l->tcp.conn)
		conn_fail(n, l->tcp.conn, "replaced by a newer one");
	c->state = CONN_UP;
	c->gen = gen;
	l->refused = false;
	contact_made(l);
	l->heard_at = n->now;
	l->tcp.conn = c;
	l->tcp.gen = gen;
	l->tcp.heard_at = n->now;
	if (!(c->server ? c->theirs : c->mine).watch)
		core_link_want(&l->core, n->now);
	core_link_lane_up(&l->core, CORE_LANE_TCP, gen, n->now);
	link_dirty(l);
	node_log(n, CONFIG_LOG_INFO, "connected to node %u (%s), generation %u", l->peer,
		n->o.names[l->peer], gen);
}

static const char *hello_check(const struct node *n, const struct hello *h, uint16_t kind)
{
	if (h->magic != HELLO_MAGIC)
		return "it does not speak rcshare's protocol";
	if (h->version != WIRE_FRAME_VERSION)
		return "another version of rcshare; all nodes of a job need the same release";
	if (h->kind != kind)
		return "handshake out of order";
	if (h->job != n->o.job || h->restart != n->o.restart)
		return "it belongs to another job";
	if (h->node >= n->o.nodes || h->node == n->o.self)
		return "its node index is not one of this job";
	if (!h->incarnation)
		return "it does not say which start of its daemon it is";
	return NULL;
}

void tcp_set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
}

static void learn_from(struct tcp_conn *c)
{
	struct link *l = c->l;

	memcpy(&l->addr, &c->from, sizeof(l->addr));
	tcp_set_port(&l->addr, c->theirs.port);
}

static const char node_is_lost[] = "the members of the step have decided that its node is lost";

/* Whoever speaks has proven itself. NULL, or why the link cannot be with it now. */
static const char *meet(struct link *l, const struct hello *h)
{
	if (core_link_peer(&l->core, h->incarnation, l->n->now)) {
		link_rails(l, h->rails);
		return NULL;
	}
	link_dirty(l);
	return "its daemon was started anew, and what there was with the former one is just being ended";
}

/* One handshake message. NULL, or why the connection ends. */
static const char *handshake(struct node *n, struct tcp_conn *c, const struct hello *h)
{
	uint8_t mac[32];
	const char *bad;
	struct hello out;

	switch (c->state) {
	case CONN_WAIT_HELLO:
		bad = hello_check(n, h, c->server ? 1 : 2);
		if (bad)
			return bad;
		c->theirs = *h;
		if (c->server) {
			hello_fill(n, c, 2);
			conn_mac(n, "s", &c->theirs, &c->mine, c->mine.mac);
			conn_write(n, c, &c->mine, sizeof(c->mine));
			c->state = CONN_WAIT_PROOF;
			return NULL;
		}
		if (h->node != c->l->peer)
			return "another node answers at that address";
		conn_mac(n, "s", &c->mine, &c->theirs, mac);
		if (!mac_equal(mac, h->mac))
			return "the peer does not know the job's token";
		bad = c->l->lost ? NULL : meet(c->l, h);
		if (bad)
			return bad;
		out = c->mine;
		out.kind = 3;
		conn_mac(n, "c", &c->mine, &c->theirs, out.mac);
		conn_write(n, c, &out, sizeof(out));
		c->state = CONN_WAIT_READY;
		return NULL;
	case CONN_WAIT_PROOF:
		if (h->magic != HELLO_MAGIC || h->kind != 3)
			return "handshake out of order";
		conn_mac(n, "c", &c->theirs, &c->mine, mac);
		if (!mac_equal(mac, h->mac))
			return "it does not know the job's token";
		c->l = link_get(n, c->theirs.node);
		if (!c->l)
			return "out of memory";
		if (c->l->lost) {
			c->l = NULL;
			if (n->parted) /* it is we who are out: no word about others */
				return "this node has left the step";
			out = c->mine;
			out.kind = 5;
			conn_mac(n, "r", &c->theirs, &out, out.mac);
			conn_write(n, c, &out, sizeof(out));
			return node_is_lost;
		}
		bad = meet(c->l, &c->theirs);
		if (bad) {
			c->l = NULL;
			return bad;
		}
		if (c->l->tcp.trying && c->l->tcp.trying->state != CONN_CONNECTING &&
			n->o.self < c->l->peer) {
			c->l = NULL;
			return "both sides connect at once; ours stays";
		}
		learn_from(c);
		out = c->mine;
		out.kind = 4;
		out.gen = (c->l->tcp.gen > c->theirs.gen ? c->l->tcp.gen : c->theirs.gen) + 1;
		conn_mac(n, "r", &c->theirs, &out, out.mac);
		conn_write(n, c, &out, sizeof(out));
		conn_up(n, c, out.gen);
		return NULL;
	case CONN_WAIT_READY:
		conn_mac(n, "r", &c->mine, h, mac);
		if (!mac_equal(mac, h->mac))
			return "its last word of the handshake is not of who began it";
		if (h->magic == HELLO_MAGIC && h->kind == 5) {
			member_removed(n);
			return "the peer says that the other nodes have removed this one from the step";
		}
		if (h->magic != HELLO_MAGIC || h->kind != 4)
			return "handshake out of order";
		if (c->l->lost) /* decided while it hung */
			return node_is_lost;
		conn_up(n, c, h->gen);
		return NULL;
	default:
		return "handshake out of order";
	}
}

/* Frames that are whole in the input buffer. NULL, or why the connection ends. */
static const char *parse(struct node *n, struct tcp_conn *c)
{
	size_t at = 0;
	const char *bad = NULL;

	while (!bad) {
		size_t have = c->in_len - at;

		if (c->state != CONN_UP) {
			struct hello h;

			if (have < sizeof(h))
				break;
			memcpy(&h, c->in + at, sizeof(h));
			at += sizeof(h);
			bad = handshake(n, c, &h);
		} else {
			struct wire_frame f;

			if (have < sizeof(f))
				break;
			memcpy(&f, c->in + at, sizeof(f));
			if (wire_frame_check_header(&f, &bad))
				break;
			if (have < sizeof(f) + f.len)
				break;
			if (wire_frame_check(&f, c->in + at + sizeof(f), have, &bad))
				break;
			link_frame(c->l, CORE_LANE_TCP, c->gen, &f, c->in + at + sizeof(f));
			at += sizeof(f) + f.len;
			if (c->l->tcp.conn != c)
				return NULL; /* fenced while we worked; c is gone */
		}
	}
	if (at) {
		memmove(c->in, c->in + at, c->in_len - at);
		c->in_len -= at;
	}
	return bad;
}

static void conn_ready(struct node *n, struct watch *w, uint32_t events)
{
	struct tcp_conn *c = (struct tcp_conn *)w;
	const char *bad;

	if (c->state == CONN_CONNECTING) {
		int err = 0;
		socklen_t len = sizeof(err);

		getsockopt(c->w.fd, SOL_SOCKET, SO_ERROR, &err, &len);
		if (err || events & (EPOLLERR | EPOLLHUP)) {
			conn_errno(n, c, err ? err : ECONNREFUSED);
			return;
		}
		c->state = CONN_WAIT_HELLO;
		c->until = n->now + HANDSHAKE_NS;
		c->want_out = false;
		node_rewatch(n, &c->w, EPOLLIN);
		hello_fill(n, c, 1);
		c->mine.gen = c->l->tcp.gen;
		conn_write(n, c, &c->mine, sizeof(c->mine));
		return;
	}
	if (events & EPOLLOUT) {
		int err = conn_flush(c);

		if (err) {
			conn_errno(n, c, -err);
			return;
		}
		if (!c->out_len) {
			c->want_out = false;
			node_rewatch(n, &c->w, EPOLLIN);
		}
		if (c->l)
			link_dirty(c->l);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		ssize_t got = recv(c->w.fd, c->in + c->in_len, IN_SIZE - c->in_len, MSG_DONTWAIT);

		if (got == 0) {
			conn_fail(n, c, "closed by the other side");
			return;
		}
		if (got < 0) {
			if (errno != EAGAIN && errno != EINTR)
				conn_errno(n, c, errno);
			return;
		}
		c->in_len += (size_t)got;
		n->work = true;
		bad = parse(n, c);
		if (bad)
			conn_fail(n, c, bad);
	}
}

/* The oldest of the source that has most, those that have said nothing before others. False: there is none. */
static bool evict(struct node *n)
{
	struct tcp_conn *out = NULL;

	for (struct tcp_conn *c = n->unauth; c; c = c->next) /* the newest is first */
		if (c->source && (!out || c->source->conns > out->source->conns ||
			(c->source->conns == out->source->conns && c->state <= out->state)))
			out = c;
	if (out)
		conn_fail(n, out, "too many connections have not proven themselves, most of them from there");
	return out;
}

static void admit(struct node *n, int fd, const struct sockaddr_storage *from)
{
	struct tcp_conn *c;

	if (n->admit.conns >= admit_limit(n->o.nodes))
		evict(n);
	c = conn_new(n, fd, true);
	if (!c) {
		close(fd);
		return;
	}
	c->from = *from;
	c->state = CONN_WAIT_HELLO;
	c->source = admit_enter(&n->admit, from);
	if (!c->source || node_watch(n, &c->w, EPOLLIN))
		conn_free(n, c);
}

static void accept_ready(struct node *n, struct watch *w, uint32_t events)
{
	(void)events;
	for (int i = 0; i < 16; i++) {
		struct sockaddr_storage from;
		socklen_t len = sizeof(from);
		int fd = accept4(w->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			admit(n, fd, &from);
		else if (errno != EMFILE && errno != ENFILE)
			return;
		else if (!evict(n)) { /* until tcp_tick(): who waits would keep the loop awake */
			node_rewatch(n, w, 0);
			return;
		}
	}
}

uint16_t tcp_port(const struct node *n, unsigned nth)
{
	bool any = !n->cfg.control_port_min;
	uint32_t lo = any ? PORT_MIN : n->cfg.control_port_min;
	uint32_t span = any ? PORT_SPAN : n->cfg.control_port_max - lo + 1;

	return (uint16_t)(lo + (n->o.job % span + n->o.restart % span * 257 + nth) % span);
}

/* A socket that listens at the address (NULL: everywhere) on the port, 0: any; or -errno. */
static int listen_at(struct node *n, const struct sockaddr_storage *at, uint16_t port)
{
	struct sockaddr_storage a = {.ss_family = AF_INET6}; /* its address is in6addr_any */
	socklen_t len = sizeof(a);
	int fd, zero = 0, one = 1, err;

	if (at)
		a = *at;
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 && !at) { /* a host without IPv6 */
		a.ss_family = AF_INET;
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	}
	if (fd < 0)
		return -errno;
	if (a.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, at ? &one : &zero, sizeof(one));
	/* connections of a daemon that ended must not keep its port from the next */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	tcp_set_port(&a, port);
	if (bind(fd, (struct sockaddr *)&a, len) || listen(fd, LISTEN_BACKLOG) ||
		getsockname(fd, (struct sockaddr *)&a, &len)) {
		err = -errno;
		close(fd);
		return err;
	}
	/* of both families at the same place */
	n->tcp_port = ntohs(((struct sockaddr_in *)&a)->sin_port);
	return fd;
}

static void listen_end(struct node *n)
{
	while (n->tcps)
		node_unwatch(n, &n->tcp[--n->tcps]);
}

/* Everywhere, or at each of n->listen: the same port, or none. 0 or -errno. */
static int listen_on(struct node *n, uint16_t port)
{
	unsigned i = 0;

	do {
		int fd = listen_at(n, n->listens ? &n->listen[i] : NULL, i ? n->tcp_port : port);

		if (fd < 0) {
			listen_end(n);
			return fd;
		}
		n->tcp[n->tcps] = (struct watch){.fd = fd, .ready = accept_ready};
		node_watch(n, &n->tcp[n->tcps++], EPOLLIN);
	} while (++i < n->listens);
	return 0;
}

int tcp_listen(struct node *n, char *why)
{
	bool any = !n->cfg.control_port_min;
	unsigned tries = any ? TCP_PORTS : n->cfg.control_port_max - n->cfg.control_port_min + 1u;
	int err = -EADDRINUSE;

	for (unsigned i = 0; err && i < tries; i++)
		err = listen_on(n, tcp_port(n, i));
	if (err && any)
		err = listen_on(n, 0);
	if (err)
		snprintf(why, SHM_SENTENCE, "no free TCP port in control_port %d-%d: %s",
			n->cfg.control_port_min, n->cfg.control_port_max, strerror(-err));
	n->addr.ctrl_port = n->tcp_port;
	wire_addr_seal(&n->addr);
	return err;
}

void tcp_connect(struct link *l)
{
	struct node *n = l->n;
	struct tcp_conn *c;
	int fd;

	if (l->tcp.trying || l->tcp.conn)
		return;
	if (!l->addr.ss_family) {
		/* The peer knows our address or we shall learn its; until then there is nothing to do. */
		if (is_awaited(l))
			no_conn(l, CORE_R_SETUP, l->tcp.gen);
		return;
	}
	fd = socket(l->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	c = fd >= 0 ? conn_new(n, fd, false) : NULL;
	if (!c) {
		if (fd >= 0)
			close(fd);
		no_conn(l, CORE_R_SETUP, l->tcp.gen);
		return;
	}
	c->l = l;
	c->from = l->addr;
	l->tcp.trying = c;
	c->state = CONN_CONNECTING;
	c->until = n->now + CONNECT_NS;
	if (connect(fd, (struct sockaddr *)&l->addr,
		    l->addr.ss_family == AF_INET ? sizeof(struct sockaddr_in) :
						   sizeof(struct sockaddr_in6)) < 0 &&
		errno != EINPROGRESS) {
		conn_fail(n, c, strerror(errno));
		return;
	}
	if (node_watch(n, &c->w, EPOLLOUT))
		conn_fail(n, c, "out of descriptors");
}

void tcp_drop(struct link *l)
{
	struct tcp_conn *c = l->tcp.conn;

	if (c) {
		l->tcp.conn = NULL;
		c->l = NULL;
		conn_free(l->n, c);
	}
}

bool tcp_can_send(struct link *l)
{
	return l->tcp.conn && l->tcp.conn->out_len < OUT_MAX;
}

int tcp_send(struct link *l, const void *frame, size_t len)
{
	struct tcp_conn *c = l->tcp.conn;

	if (!c)
		return -ENOTCONN;
	if (c->out_len + len > OUT_MAX + 2 * WIRE_FRAME_MAX)
		return -EAGAIN;
	conn_write(l->n, c, frame, len);
	return 0;
}

void tcp_tick(struct node *n)
{
	for (struct tcp_conn *c = n->unauth, *next; c; c = next) {
		next = c->next;
		if (n->now >= c->until) {
			conn_fail(n, c, c->state == CONN_CONNECTING ? CONTACT_SILENT : c->server ?
				"it has not proven the job's token in time" :
				"it took the connection and did not go on with the handshake");
			next = n->unauth; /* the list may have changed */
		}
	}
	for (unsigned i = 0; i < n->tcps; i++)
		node_rewatch(n, &n->tcp[i], EPOLLIN);
}

void tcp_close_all(struct node *n)
{
	while (n->unauth) {
		struct tcp_conn *c = n->unauth;

		if (c->l && c->l->tcp.trying == c)
			c->l->tcp.trying = NULL;
		conn_free(n, c);
	}
	for (struct link *l = n->links; l; l = l->next)
		tcp_drop(l);
	listen_end(n);
}
