/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strangers at the control port of a daemon, and at the port where it looks for a peer: several connections, in
 * steps. They say what is right or not at any moment of the handshake, in slices, replay what the daemon has said,
 * stop in the midst, and close; some of them know the token, as programs of the job may. Afterwards a real peer
 * must still be heard, and no connection be left.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bed.h"
#include "pick.h"

#define CONNS 4u
#define NODE  2u /* who a stranger says to be: nobody else is */
#define LIFE  7u /* which start of its daemon */

/* runtime/node/tcp.c */
struct hello {
	uint32_t magic;
	uint16_t version, kind;
	uint32_t job, restart, node, incarnation, gen;
	uint16_t port;
	uint8_t watch, rails;
	uint8_t nonce[32], mac[32];
};
_Static_assert(sizeof(struct hello) == 96, "layout");

static struct conn {
	int fd; /* -1: none */
	bool serves; /* the daemon has called */
	uint8_t said[256]; /* what the daemon has said last */
	size_t said_n;
	struct hello mine, theirs;
	uint8_t queue[1024]; /* to be said */
	size_t queue_n;
} conn[CONNS];
static int listener = -1;
static struct sockaddr_in at;
static bool token_used;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mac(char role, const struct hello *c, const struct hello *s, uint8_t out[32])
{
	uint8_t text[1 + 2 * sizeof(*c)] = {(uint8_t)role};
	struct hello h = *c;
	unsigned len = 32;

	memset(h.mac, 0, sizeof(h.mac));
	memcpy(text + 1, &h, sizeof(h));
	h = *s;
	memset(h.mac, 0, sizeof(h.mac));
	memcpy(text + 1 + sizeof(h), &h, sizeof(h));
	HMAC(EVP_sha256(), bed.n[0]->token, sizeof(bed.n[0]->token), text, sizeof(text), out, &len);
}

static void conn_close(struct conn *c)
{
	struct linger now = {1, 0}; /* no port waits for its time */

	if (c->fd < 0)
		return;
	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(c->fd);
	*c = (struct conn){.fd = -1};
}

static void conn_call(struct conn *c)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(bed.n[0]->tcp_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	conn_close(c);
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bed_must(c->fd >= 0 && !connect(c->fd, (struct sockaddr *)&a, sizeof(a)), "the control port takes a connection");
}

/* The daemon calls the last node, and a stranger answers there. */
static void conn_serve(struct conn *c)
{
	struct link *l = link_get(bed.n[0], NODE);

	conn_close(c);
	memcpy(&l->addr, &at, sizeof(at));
	tcp_connect(l);
	c->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	c->serves = true;
}

static void conn_read(struct conn *c)
{
	uint8_t buf[sizeof(c->said)];
	ssize_t n = c->fd < 0 ? 0 : recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n <= 0)
		return;
	memcpy(c->said, buf, (size_t)n);
	c->said_n = (size_t)n;
	if (c->said_n >= sizeof(c->theirs))
		memcpy(&c->theirs, buf, sizeof(c->theirs));
}

static void conn_queue(struct conn *c, const void *data, size_t len)
{
	if (len > sizeof(c->queue) - c->queue_n)
		len = sizeof(c->queue) - c->queue_n;
	memcpy(c->queue + c->queue_n, data, len);
	c->queue_n += len;
}

static void conn_send(struct conn *c, size_t len)
{
	len = len < c->queue_n ? len : c->queue_n;
	if (c->fd >= 0 && len)
		(void)!send(c->fd, c->queue, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	memmove(c->queue, c->queue + len, c->queue_n - len);
	c->queue_n -= len;
}

/* --- what they say -------------------------------------------------------------------------------------------- */

static struct hello hello_of(const struct node *n, uint16_t kind)
{
	return (struct hello){.magic = 0x4f484352, .version = WIRE_FRAME_VERSION, .kind = kind, .job = n->o.job,
		.restart = n->o.restart, .node = NODE, .incarnation = LIFE, .port = ntohs(at.sin_port), .rails = BED_RAILS};
}

static void seal(struct conn *c, struct hello *h)
{
	if (h->kind == 2)
		mac('s', &c->theirs, h, h->mac);
	else if (h->kind == 3)
		mac('c', &c->mine, &c->theirs, h->mac);
	else if (h->kind >= 4)
		mac('r', &c->theirs, h, h->mac);
}

static void say_hello(struct pick *p, struct conn *c)
{
	uint16_t next = c->serves ? (c->mine.kind ? 4 : 2) : (c->mine.kind ? 3 : 1);
	struct hello h = hello_of(bed.n[0], pick_often(p) ? next : (uint16_t)pick_below(p, 7));
	bool known = pick_below(p, 2);

	if (!pick_often(p))
		h.node = pick_below(p, 5);
	if (!pick_often(p))
		h.job += pick_below(p, 3) - 1;
	if (!pick_often(p))
		h.version = pick_byte(p);
	if (!pick_often(p))
		h.gen = (uint32_t)pick_number(p);
	if (!pick_often(p)) {
		h.incarnation = LIFE - 1 + pick_below(p, 3);
		h.rails = pick_byte(p);
	}
	h.watch = pick_byte(p) & 1;
	pick_bytes(p, h.nonce, 4);
	if (known && h.kind != 1) {
		token_used = true;
		seal(c, &h);
	} else {
		pick_bytes(p, h.mac, 4);
	}
	if (h.kind <= 2)
		c->mine = h;
	bed_say("stranger: hello of kind %u, node %u%s", h.kind, h.node, known ? ", knows the token" : "");
	conn_queue(c, &h, sizeof(h));
}

static void say_frame(struct pick *p, struct conn *c)
{
	uint8_t buf[sizeof(struct wire_frame) + 200] = {0};
	struct wire_frame f = {.type = (uint8_t)(1 + pick_below(p, 5)), .lane = CORE_LANE_TCP, .src_node = NODE,
		.incarnation = LIFE, .lane_gen = pick_below(p, 3), .len = pick_below(p, 200)};

	pick_bytes(p, buf + sizeof(f), f.len);
	wire_frame_seal(&f, buf + sizeof(f));
	if (!pick_often(p))
		f.len = (uint32_t)pick_number(p);
	memcpy(buf, &f, sizeof(f));
	conn_queue(c, buf, sizeof(f) + (f.len < 200 ? f.len : 200));
}

static void step(struct pick *p)
{
	static const uint32_t ms[] = {1, 100, 900, 2100};
	uint8_t what = pick_byte(p);
	struct conn *c = &conn[(what >> 4) % CONNS];
	uint8_t raw[64];

	if (c->fd < 0 && (what & 15) < 10 && what & 64)
		conn_serve(c);
	else if (c->fd < 0 && (what & 15) < 10)
		conn_call(c);
	conn_read(c);
	switch (what & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		say_hello(p, c);
		conn_send(c, pick_often(p) ? sizeof(c->queue) : pick_byte(p));
		break;
	case 4:
		conn_queue(c, c->said, c->said_n); /* what it has said itself */
		conn_send(c, sizeof(c->queue));
		break;
	case 5:
		say_frame(p, c);
		conn_send(c, pick_often(p) ? sizeof(c->queue) : pick_byte(p));
		break;
	case 6:
		pick_bytes(p, raw, sizeof(raw));
		conn_queue(c, raw, 1 + pick_below(p, sizeof(raw)));
		conn_send(c, sizeof(c->queue));
		break;
	case 7:
		conn_send(c, pick_byte(p));
		break;
	case 8:
		shutdown(c->fd, pick_below(p, 2) ? SHUT_WR : SHUT_RDWR);
		break;
	case 9:
		conn_queue(c, conn[pick_below(p, CONNS)].said, sizeof(struct hello)); /* ... to somebody else */
		conn_send(c, sizeof(c->queue));
		break;
	case 10:
		conn_close(c);
		break;
	case 11:
		bed_pass(ms[pick_below(p, 4)] * BED_MS);
		bed_turn(0);
		break;
	default:
		bed_turn(0);
		break;
	}
}

/* A handshake as it should be, or this file does not speak the daemon's protocol any more. */
static void must_be_understood(void)
{
	struct conn *c = &conn[0];
	struct hello h = hello_of(bed.n[0], 1);

	conn_call(c);
	c->mine = h;
	for (int i = 0; i < 2; i++) {
		conn_queue(c, &h, sizeof(h));
		conn_send(c, sizeof(h));
		for (int k = 0; k < 3; k++)
			bed_turn(0);
		conn_read(c);
		h.kind = 3;
		seal(c, &h);
	}
	bed_must(link_get(bed.n[0], NODE)->tcp.conn, "a proven connection stands");
}

static void listen_once(void)
{
	socklen_t len = sizeof(at);

	if (listener >= 0)
		return;
	at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bed_must(!bind(listener, (struct sockaddr *)&at, len) && !listen(listener, 16) &&
		!getsockname(listener, (struct sockaddr *)&at, &len), "there is a port");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pick p = {data, size};

	listen_once();
	token_used = false;
	for (unsigned i = 0; i < CONNS; i++)
		conn[i] = (struct conn){.fd = -1};
	bed_open(false);
	if (!size)
		must_be_understood();
	for (int i = 0; i < 200 && p.left; i++)
		step(&p);
	if (!token_used) /* who has it may keep the others away */
		bed_connect();
	for (unsigned i = 0; i < CONNS; i++)
		conn_close(&conn[i]);
	bed_settle();
	bed_must(!bed.n[0]->admit.conns, "no connection of a stranger is left");
	bed_close();
	for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
		close(fd);
	return 0;
}
