/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_test - runtime/node/verbs*.c on two guests, without the daemon. Built and run by 10-verbs.bats.
 *
 *	verbs_test DEVICE listen|HOST CASE [ARG]
 *
 * One process on each guest; "listen" is side B, the other is side A. They speak over TCP to exchange
 * blobs and to walk in step. Exit status 0: everything held. Each line of output is a fact.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "config/config.h"
#include "core/rma.h"
#include "node/verbs_impl.h" /* raw writes and rq_psn: what the interface does not offer */
#include "shm/uverbs.h"

#define PORT	 "7333"
#define REGION	 (1u << 20)
#define WRITES	 4096u /* slots of 64 bytes that raw writes go round */
#define WRITE_SZ 64u

static struct verbs *v;
static struct verbs_lane *lane;
static int sock = -1, side_a;
static const char *self_path;

/* what the callbacks saw */
static uint64_t got, got_bytes, done_ok, done_flushed, done_request, done_transport;
static unsigned errors, fenced, rail_down, rail_up;
static enum core_reason rail_why;
static uint64_t recv_after_fence, done_after_fence;
static uint32_t rx_next;
static bool check_frames, psn_known;
static enum core_told fenced_told;
static uint32_t fenced_number;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "FAILED (%s): ", side_a ? "A" : "B");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	exit(1);
}

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			fail("line %d: %s (errno: %s)", __LINE__, #x, strerror(errno));            \
	} while (0)

__attribute__((format(printf, 1, 2))) static void fact(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("%s: ", side_a ? "A" : "B");
	vprintf(fmt, ap);
	putchar('\n');
	fflush(stdout);
	va_end(ap);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* --- the callbacks ------------------------------------------------------------------------------ */

struct test_frame {
	uint32_t seq, len;
	uint8_t body[WIRE_FRAME_MAX - 8];
};

static uint32_t frame_len(uint32_t seq)
{
	return 8 + (seq * 2654435761u >> 7) % (WIRE_FRAME_MAX - 8);
}

static void on_recv(void *owner, struct verbs_lane *l, const void *buf, size_t len)
{
	const struct test_frame *f = buf;

	(void)owner;
	if (l->fenced)
		recv_after_fence++;
	got++;
	got_bytes += len;
	if (!check_frames)
		return;
	if (f->seq != rx_next || f->len != len || len != frame_len(rx_next))
		fail("frame %u of %zu bytes: got %u of %u", rx_next, (size_t)frame_len(rx_next), f->seq, f->len);
	for (size_t i = 0; i < len - 8; i++)
		if (f->body[i] != (uint8_t)(rx_next + i))
			fail("frame %u is damaged at %zu", rx_next, i);
	rx_next++;
}

static void on_done(void *owner, struct verbs_lane *l, uint64_t cookie, enum verbs_done how,
	const char *detail)
{
	(void)owner;
	(void)cookie;
	(void)detail;
	if (l->fenced)
		done_after_fence++;
	done_ok += how == VERBS_OK;
	done_flushed += how == VERBS_FLUSHED;
	done_request += how == VERBS_REQUEST;
	done_transport += how == VERBS_TRANSPORT;
}

static void on_error(void *owner, struct verbs_lane *l, enum core_reason why, const char *detail)
{
	(void)owner;
	(void)l;
	(void)why;
	(void)detail;
	errors++;
}

static void on_fenced(void *owner, struct verbs_lane *l, enum core_told told, uint32_t number)
{
	(void)owner;
	(void)l;
	psn_known = told == CORE_TOLD_PSN;
	fenced_told = told;
	fenced_number = number;
	fenced++;
}

static void on_rail(void *arg, unsigned rail, bool ok, enum core_reason why, const char *detail)
{
	(void)arg;
	fact("rail %u %s: %s", rail, ok ? "works" : "failed", detail);
	if (ok)
		rail_up++;
	else
		rail_down++;
	rail_why = why;
}

static bool netlink_only; /* what devices say is not read */

/* The loop of the daemon in small; sleeps as it does, so that arming is tested too. */
static void turn(void)
{
	static uint64_t tick;
	uint64_t now = now_ns();
	struct pollfd p[2 * WIRE_RAILS_MAX];
	int fds[2 * WIRE_RAILS_MAX];
	unsigned n;

	if (now - tick > 200000000ull && !netlink_only) {
		tick = now;
		verbs_tick(v, now);
	}
	if (verbs_poll(v, 64) > 0 || verbs_arm(v))
		return;
	n = verbs_fds(v, fds);
	for (unsigned i = 0; i < n; i++)
		p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	poll(p, n, 50);
	if (netlink_only)
		verbs_carrier_read(v);
	else
		verbs_async(v);
}

#define UNTIL(cond, seconds)                                                                       \
	do {                                                                                       \
		uint64_t end_ = now_ns() + (uint64_t)(seconds) * 1000000000ull;                    \
		while (!(cond)) {                                                                  \
			turn();                                                                    \
			if (now_ns() > end_)                                                       \
				fail("line %d: not within %d s: %s", __LINE__, (int)(seconds), #cond); \
		}                                                                                  \
	} while (0)

static void linger(uint64_t ms)
{
	uint64_t end = now_ns() + ms * 1000000;

	while (now_ns() < end)
		turn();
}

/* --- the other side ------------------------------------------------------------------------------ */

static void talk(const char *host)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *ai;
	int one = 1, l, rc = -1;

	side_a = strcmp(host, "listen") != 0;
	hints.ai_flags = side_a ? 0 : AI_PASSIVE;
	MUST(!getaddrinfo(side_a ? host : NULL, PORT, &hints, &ai));
	if (!side_a) {
		l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		MUST(!bind(l, ai->ai_addr, ai->ai_addrlen));
		MUST(!listen(l, 1));
		sock = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		close(l);
	} else {
		for (int i = 0; i < 100 && rc; i++) {
			sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			rc = connect(sock, ai->ai_addr, ai->ai_addrlen);
			if (rc) {
				close(sock);
				usleep(100000);
			}
		}
		MUST(!rc);
	}
	MUST(sock >= 0);
	freeaddrinfo(ai);
}

static void give(const void *p, size_t n)
{
	MUST(send(sock, p, n, MSG_NOSIGNAL) == (ssize_t)n);
}

/* Waits for the other side, and runs the loop meanwhile. */
static void take(void *p, size_t n)
{
	size_t have = 0;
	uint64_t end = now_ns() + 120 * 1000000000ull;

	while (have < n) {
		ssize_t k = recv(sock, (char *)p + have, n - have, MSG_DONTWAIT);

		if (k > 0)
			have += (size_t)k;
		else if (k == 0)
			fail("the other side ended");
		else
			turn();
		if (now_ns() > end)
			fail("the other side is silent");
	}
}

static bool told(void)
{
	char c;

	return recv(sock, &c, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

static void step(void) /* both are here */
{
	char c = 's';

	give(&c, 1);
	take(&c, 1);
}

static void lane_up(uint32_t depth)
{
	uint8_t mine[CORE_BLOB], theirs[CORE_BLOB];
	int err = verbs_lane_open(v, 0, depth, NULL, &lane, mine);

	if (err)
		fail("verbs_lane_open: %s", strerror(-err));
	give(mine, sizeof(mine));
	take(theirs, sizeof(theirs));
	/* On a busy host a neighbour may need longer to answer than the daemon waits at once. */
	for (uint64_t end = now_ns() + 10000000000ull;;) {
		err = verbs_lane_connect(lane, theirs);
		if (err != -EHOSTUNREACH || now_ns() > end)
			break;
		linger(20);
	}
	if (err)
		fail("verbs_lane_connect: %s", strerror(-err));
	step();
}

static void lane_down(void)
{
	unsigned before = fenced;

	verbs_lane_fence(lane);
	UNTIL(fenced > before, 20);
	MUST(!recv_after_fence && !done_after_fence);
	verbs_lane_close(lane);
	lane = NULL;
}

/* --- frames -------------------------------------------------------------------------------------- */

static struct verbs_buf *ring; /* frames of the sender */
#define RING 64u

static void frame_fill(struct test_frame *f, uint32_t seq)
{
	f->seq = seq;
	f->len = frame_len(seq);
	for (uint32_t i = 0; i < f->len - 8; i++)
		f->body[i] = (uint8_t)(seq + i);
}

/* n frames each way at once; a window of the receives posted, as the session's limit would have it. */
static void exchange(uint32_t n, uint32_t window)
{
	uint64_t sent = 0, base = done_ok, start = got;
	uint8_t *mem = verbs_buf_addr(ring);
	uint32_t heard = 0, said = 0;
	uint64_t end = now_ns() + 60 * 1000000000ull;

	check_frames = true;
	rx_next = 0;
	step(); /* a frame that came before would not be counted */
	/* how far the other side got comes over TCP: 4 bytes each time */
	while (sent < n || got - start < n || done_ok - base < sent) {
		uint32_t c;

		if (errors || now_ns() > end)
			fail("%u frames each way: %llu sent, %llu completed, %llu received, %u lane errors", n,
				(unsigned long long)sent, (unsigned long long)(done_ok - base),
				(unsigned long long)(got - start), errors);
		while (recv(sock, &c, sizeof(c), MSG_DONTWAIT | MSG_PEEK) == sizeof(c) && c <= n && c > heard) {
			MUST(recv(sock, &c, sizeof(c), 0) == sizeof(c));
			heard = c;
		}
		while (sent < n && sent - heard < window && sent - (done_ok - base) < RING &&
			verbs_lane_room(lane) > VERBS_RESERVE) {
			size_t at = (sent % RING) * WIRE_FRAME_MAX;
			struct test_frame *f = (struct test_frame *)(void *)(mem + at);
			int err;

			frame_fill(f, (uint32_t)sent);
			err = sent % 7 == 3 && f->len <= VERBS_SMALL ?
				verbs_lane_send_copy(lane, f, f->len, sent) :
				verbs_lane_send(lane, ring, at, f->len, sent);
			MUST(!err);
			sent++;
		}
		turn();
		if (got - start >= said + window / 4 || (got - start == n && said < n)) {
			said = (uint32_t)(got - start);
			give(&said, sizeof(said));
		}
	}
	while (heard < n)
		take(&heard, sizeof(heard));
	check_frames = false;
	MUST(rx_next == n);
}

static void case_frames(uint32_t n)
{
	uint64_t start;
	uint32_t used;

	lane_up(16);
	start = now_ns();
	exchange(n, 16);
	fact("%u frames each way, %llu bytes received, %.0f frames/s", n, (unsigned long long)got_bytes,
		n * 1e9 / (double)(now_ns() - start));
	MUST(!verbs_lane_depth(lane, CORE_SLOTS));
	step();
	exchange(n, CORE_SLOTS);
	fact("as many with %u receives", CORE_SLOTS);
	MUST(!errors && !done_flushed && !done_request && !done_transport);
	step();
	lane_down();
	step();
	if (side_a)
		return;
	/* many lanes on one CQ, and a refusal instead of an overrun */
	used = v->rail[0].cq_used; /* by probes */
	for (unsigned i = 0; i < 4096; i++) {
		uint8_t blob[CORE_BLOB];
		int err = verbs_lane_open(v, 0, 1, NULL, &lane, blob);

		if (!err)
			continue;
		fact("%u lanes, then: %s; %d entries of %d", i, strerror(-err), v->rail[0].cq->cqe,
			v->rail[0].dev.max_cqe);
		MUST(i > 48);
		break;
	}
	while (v->lanes)
		verbs_lane_close(v->lanes);
	MUST(v->rail[0].cq_used == used);
}

/* --- the fence -------------------------------------------------------------------------------------- */

static void raw_write(uint64_t raddr, uint32_t rkey, const struct ibv_mr *mr, uint64_t n)
{
	uint64_t *src = mr->addr;
	/* a source of its own for each request that may be posted */
	uint64_t *s = src + (lane->sq_tail % VERBS_SENDS) * (WRITE_SZ / 8);
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)s, .length = WRITE_SZ, .lkey = mr->lkey};
	struct ibv_send_wr wr = {.wr_id = lane->sq_tail, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {.remote_addr = raddr + n % WRITES * WRITE_SZ, .rkey = rkey}},
		*bad;

	for (unsigned i = 0; i < WRITE_SZ / 8; i++)
		s[i] = n + 1;
	MUST(!ibv_post_send(lane->qp, &wr, &bad));
	lane->sq[lane->sq_tail++ % VERBS_SENDS] = n;
}

struct remote {
	uint64_t addr;
	uint32_t rkey, pad;
};

static uint64_t highest(const uint64_t *mem)
{
	uint64_t h = 0;

	for (size_t i = 0; i < (size_t)WRITES * WRITE_SZ / 8; i++)
		if (mem[i] > h)
			h = mem[i];
	return h;
}

/*
 * A writes at full rate into B's memory; B fences in mid-burst with the path alive. Once ->fenced()
 * came nothing may change any more, neither memory nor rq_psn. Without waiting for it ("bare") it
 * does, now and then, and that is only counted: it shows that the test can see the race.
 */
static void case_fence(uint32_t rounds, bool bare)
{
	size_t len = (size_t)WRITES * WRITE_SZ;
	uint64_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *then = malloc(len);
	struct ibv_mr *mr;
	unsigned moved = 0, unacked = 0;
	uint64_t total = 0, flushes = 0;

	MUST(mem != MAP_FAILED && then);
	mr = ibv_reg_mr(v->rail[0].pd, mem, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(mr);
	for (uint32_t i = 0; i < rounds; i++) {
		struct remote r = {.addr = (uint64_t)(uintptr_t)mem, .rkey = mr->rkey}, peer;
		uint64_t base = done_ok, executed, acked;
		unsigned before = fenced;

		memset(mem, 0, len);
		lane_up(4);
		give(&r, sizeof(r));
		take(&peer, sizeof(peer));
		if (side_a) {
			uint64_t n = 0;

			while (!told() && !errors) {
				while (verbs_lane_room(lane) > 0 && lane->qp->state != IBV_QPS_ERR && n < 1u << 20)
					raw_write(peer.addr, peer.rkey, mr, n++);
				verbs_poll(v, 64);
			}
			take(&executed, sizeof(executed));
			verbs_lane_fence(lane);
			UNTIL(fenced > before, 20);
			acked = done_ok - base;
			MUST(executed >= acked);
			MUST(executed <= n);
			unacked += executed > acked;
			total += executed;
			errors = 0;
			give(&acked, sizeof(acked));
		} else {
			struct ibv_qp_attr q[2];
			struct ibv_qp_init_attr qi;
			uint64_t end = now_ns() + 3000000 + (uint64_t)(rand() % 20000) * 1000;
			bool changed;

			while (now_ns() < end || !highest(mem))
				verbs_poll(v, 64);
			if (bare) {
				struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

				MUST(!ibv_modify_qp(lane->qp, &a, IBV_QP_STATE));
			} else {
				uint64_t f0 = now_ns();

				verbs_lane_fence(lane);
				while (fenced == before)
					verbs_poll(v, 64);
				flushes += now_ns() - f0;
			}
			memcpy(then, mem, len);
			MUST(!ibv_query_qp(lane->qp, &q[0], IBV_QP_RQ_PSN, &qi));
			executed = highest(then);
			usleep(25000);
			MUST(!ibv_query_qp(lane->qp, &q[1], IBV_QP_RQ_PSN, &qi));
			changed = memcmp(then, mem, len) || q[0].rq_psn != q[1].rq_psn;
			if (changed && !bare)
				fail("round %u: executed after the fence: %llu then %llu, rq_psn %u then %u", i,
					(unsigned long long)executed, (unsigned long long)highest(mem), q[0].rq_psn,
					q[1].rq_psn);
			moved += changed;
			if (bare) {
				executed = highest(mem);
				verbs_lane_fence(lane);
				UNTIL(fenced > before, 20);
			} else {
				/* the ledger's arithmetic: one PSN a write, from the peer's first */
				MUST(((q[0].rq_psn - lane->peer_psn) & 0xffffff) == (executed & 0xffffff));
			}
			total += executed;
			give(&executed, sizeof(executed));
			take(&acked, sizeof(acked));
			MUST(executed >= acked);
			errors = 0;
		}
		MUST(!recv_after_fence && !done_after_fence);
		verbs_lane_close(lane);
		step();
	}
	if (side_a)
		fact("%u fences, %llu writes executed, in %u rounds some of them unacknowledged", rounds,
			(unsigned long long)total, unacked);
	else if (bare)
		fact("ERR alone: executed after it in %u of %u rounds", moved, rounds);
	else
		fact("executed after the fence in 0 of %u rounds; a fence took %.2f ms", rounds,
			(double)flushes / rounds / 1e6);
	ibv_dereg_mr(mr);
	munmap(mem, len);
	free(then);
}

/* The same with frames and the interface alone: nothing is received after the fence. */
static void case_burst(uint32_t rounds)
{
	memset(verbs_buf_addr(ring), 7, RING * WIRE_FRAME_MAX);
	for (uint32_t i = 0; i < rounds; i++) {
		unsigned before = fenced;
		uint64_t end, flushed = done_flushed;

		lane_up(64);
		end = now_ns() + 2000000 + (uint64_t)(rand() % 20000) * 1000;
		while (now_ns() < end && !errors) {
			/* no window: receivers that are not ready are part of it */
			while (verbs_lane_room(lane) > VERBS_RESERVE)
				if (verbs_lane_send(lane, ring, 0, 64, 0))
					break;
			verbs_poll(v, 64);
		}
		verbs_lane_fence(lane);
		MUST(verbs_lane_room(lane) == 0);
		MUST(verbs_lane_send(lane, ring, 0, 64, 0) == -EIO);
		UNTIL(fenced > before, 20);
		MUST(!recv_after_fence && !done_after_fence);
		(void)flushed;
		linger(20);
		MUST(fenced == before + 1 && !recv_after_fence && !done_after_fence);
		verbs_lane_close(lane);
		errors = 0;
		step();
	}
	fact("%u bursts fenced on both sides; %llu frames arrived, %llu requests flushed", rounds,
		(unsigned long long)got, (unsigned long long)done_flushed);
}

/* --- lending ------------------------------------------------------------------------------------------ */

struct child_reply {
	int err;
	uint32_t handle, lkey, rkey;
	uint64_t addr;
};

static int child_reg(int fd, uint32_t pd, void *addr, struct child_reply *out)
{
	struct ib_uverbs_reg_mr cmd = {.start = (uint64_t)(uintptr_t)addr, .length = REGION,
		.hca_va = (uint64_t)(uintptr_t)addr, .pd_handle = pd,
		.access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};
	struct ib_uverbs_reg_mr_resp resp = {0};
	int driver = shm_uverbs_driver(fd);
	struct ib_uverbs_attr attr[] = {
		{.attr_id = UVERBS_ATTR_WRITE_CMD, .len = 8, .data = IB_USER_VERBS_CMD_REG_MR},
		{.attr_id = UVERBS_ATTR_CORE_IN, .len = sizeof(cmd), .data = (uint64_t)(uintptr_t)&cmd},
		{.attr_id = UVERBS_ATTR_CORE_OUT, .len = sizeof(resp), .data = (uint64_t)(uintptr_t)&resp},
	};
	int err;

	if (driver < 0)
		return driver;
	/* a command that names no driver is refused */
	err = shm_uverbs_command(fd, RDMA_DRIVER_UNKNOWN, UVERBS_OBJECT_DEVICE,
		UVERBS_METHOD_INVOKE_WRITE, attr, 3);
	if (err != -EINVAL)
		return -EPROTO;
	err = shm_uverbs_command(fd, (uint32_t)driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE,
		attr, 3);
	if (err)
		return err;
	*out = (struct child_reply){.handle = resp.mr_handle, .lkey = resp.lkey, .rkey = resp.rkey,
		.addr = (uint64_t)(uintptr_t)addr};
	return 0;
}

/* The "rank", a program of its own: registers its memory, later says whether the pattern is there. */
static int child_main(int s, int seed)
{
	uint8_t *mem = malloc(REGION);
	struct child_reply out = {0};
	char data[8], ctl[CMSG_SPACE(sizeof(int))], c;
	struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl,
		.msg_controllen = sizeof(ctl)};
	uint32_t pd;
	int fd, bad = 0;

	if (!mem || recvmsg(s, &m, 0) < 4 || !CMSG_FIRSTHDR(&m))
		return 1;
	memcpy(&pd, data, 4);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	for (uint32_t i = 0; i < REGION; i++)
		mem[i] = (uint8_t)(seed ? i * 31 + (i >> 8) : 0);
	out.err = child_reg(fd, pd, mem, &out);
	close(fd);
	if (write(s, &out, sizeof(out)) != sizeof(out) || read(s, &c, 1) != 1)
		return 1;
	for (uint32_t i = 0; i < REGION; i++)
		bad += mem[i] != (uint8_t)(i * 31 + (i >> 8));
	return write(s, &bad, sizeof(bad)) != sizeof(bad);
}

struct child {
	pid_t pid;
	int s;
	struct child_reply mr;
};

static void child_start(struct child *c, bool pattern)
{
	int sp[2], fds[WIRE_RAILS_MAX];
	uint32_t pd[WIRE_RAILS_MAX], driver[WIRE_RAILS_MAX];
	char ctl[CMSG_SPACE(sizeof(int))] = {0}, fd_arg[16];
	struct iovec iov = {.iov_base = pd, .iov_len = 4};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl,
		.msg_controllen = sizeof(ctl)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sp));
	fcntl(sp[0], F_SETFD, FD_CLOEXEC);
	c->pid = fork();
	MUST(c->pid >= 0);
	if (!c->pid) {
		snprintf(fd_arg, sizeof(fd_arg), "%d", sp[1]);
		execl(self_path, self_path, "child", fd_arg, pattern ? "1" : "0", (char *)NULL);
		_exit(127);
	}
	close(sp[1]);
	c->s = sp[0];
	MUST(verbs_lend(v, fds, pd, driver) == 1 && fds[0] >= 0);
	MUST(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), fds, sizeof(int));
	MUST(sendmsg(c->s, &m, 0) == 4);
	close(fds[0]);
	MUST(read(c->s, &c->mr, sizeof(c->mr)) == sizeof(c->mr));
	if (c->mr.err)
		fail("a child cannot register: %s", strerror(-c->mr.err));
}

static int child_bad(struct child *c) /* bytes that are not as they should be */
{
	int bad = -1;

	MUST(write(c->s, "c", 1) == 1);
	MUST(read(c->s, &bad, sizeof(bad)) == sizeof(bad));
	close(c->s);
	MUST(waitpid(c->pid, NULL, 0) == c->pid);
	return bad;
}

static long mrs(void)
{
	uint32_t list[256];

	return shm_uverbs_mrs(v->rail[0].ctx->cmd_fd, (uint32_t)v->rail[0].driver, list, 256);
}

static void get(const struct child *to, const struct child_reply *from)
{
	uint64_t base = done_ok, issued = 0, chunk = 65536;

	while (done_ok - base < REGION / chunk && !done_request && !errors) {
		while (issued < REGION / chunk && issued - (done_ok - base) < verbs_lane_reads(lane)) {
			struct verbs_rdma r = {.read = true, .laddr = to->mr.addr + issued * chunk,
				.lkey = to->mr.lkey, .raddr = from->addr + issued * chunk, .rkey = from->rkey,
				.len = (uint32_t)chunk};
			uint32_t psn;

			MUST(!verbs_lane_rdma(lane, &r, issued, &psn));
			issued++;
		}
		turn();
	}
}

static void case_lend(void)
{
	struct child c, left[3];
	struct child_reply theirs;
	long before;

	lane_up(16);
	before = mrs();
	fact("driver %d, %ld regions of our own, %u READs at once", v->rail[0].driver, before,
		verbs_lane_reads(lane));
	MUST(before > 0);
	child_start(&c, !side_a);
	MUST(mrs() == before + 1);
	give(&c.mr, sizeof(c.mr));
	take(&theirs, sizeof(theirs));
	if (side_a) {
		get(&c, &theirs);
		MUST(!done_request && !errors);
		MUST(child_bad(&c) == 0);
		fact("%u bytes read from a process there into a process here", REGION);
		step();
	} else {
		step();
		MUST(child_bad(&c) == 0);
	}
	/* its process has ended: the region is the daemon's to destroy */
	MUST(mrs() == before + 1);
	MUST(!verbs_mr_destroy(v, 0, c.mr.handle));
	MUST(mrs() == before);
	MUST(verbs_mr_destroy(v, 0, c.mr.handle) < 0);
	step();
	/* ranks that died in a loan leave regions; known ones and ours stay */
	for (int i = 0; i < 3; i++)
		child_start(&left[i], true);
	for (int i = 0; i < 3; i++) {
		kill(left[i].pid, SIGKILL);
		waitpid(left[i].pid, NULL, 0);
		close(left[i].s);
	}
	MUST(mrs() == before + 3);
	verbs_mr_sweep(v, 0, &left[1].mr.handle, 1);
	UNTIL(mrs() == before + 1, 20);
	verbs_mr_sweep(v, 0, NULL, 0);
	UNTIL(mrs() == before, 20);
	fact("3 leftovers swept, one kept while it was known");
	step();
	exchange(200, 16);
	fact("the lane works after the sweep");
	step();
	/* a key that is gone is refused: an error of the request, and B's side sees its QP in ERR */
	if (side_a) {
		child_start(&c, false);
		get(&c, &theirs);
		UNTIL(done_request == 1, 20);
		fact("a READ with a dead key is refused");
		lane_down();
		MUST(done_request == 1 && !done_transport);
		child_bad(&c);
	}
	step();
	if (!side_a)
		lane_down();
	step();
	MUST(errors <= 1);
}

/* --- failures, made from outside ------------------------------------------------------------------ */

static void flood(void)
{
	while (lane && verbs_lane_room(lane) > 100)
		if (verbs_lane_send(lane, ring, 0, 64, 0))
			break;
}

/* B's port or device goes and returns; A only sees its requests fail. */
static void case_fail(bool device)
{
	uint32_t epoch = verbs_rail_epoch(v, 0), version = verbs_fds_version(v);
	uint64_t t0;

	lane_up(64);
	fact("ready");
	if (side_a) {
		t0 = now_ns();
		while (!done_transport && !errors) {
			flood();
			turn();
			if (now_ns() - t0 > 90 * 1000000000ull)
				fail("never noticed");
		}
		fact("noticed: %llu transport errors, %u lane errors", (unsigned long long)done_transport,
			errors);
	} else {
		t0 = now_ns();
		while (!rail_down) {
			flood();
			turn();
			if (now_ns() - t0 > 60 * 1000000000ull)
				fail("never noticed");
		}
		/* a device that goes may be seen with its port down first */
		UNTIL(rail_why == (device ? CORE_R_DEVICE : CORE_R_PORT), 20);
		MUST(!verbs_rail_ok(v, 0));
	}
	lane_down();
	if (!side_a) {
		int fds[WIRE_RAILS_MAX];
		uint32_t pd[WIRE_RAILS_MAX], driver[WIRE_RAILS_MAX];
		uint8_t blob[CORE_BLOB];

		if (device) {
			MUST(verbs_lend(v, fds, pd, driver) == 1 && fds[0] == -1);
			MUST(verbs_mr_destroy(v, 0, 12345) == 0);
			verbs_mr_sweep(v, 0, NULL, 0);
		}
		MUST(verbs_lane_open(v, 0, 16, NULL, &lane, blob) < 0);
		lane = NULL;
		fact("down: %llu flushed", (unsigned long long)done_flushed);
		UNTIL(rail_up, 90);
		MUST(verbs_rail_ok(v, 0));
		MUST((verbs_rail_epoch(v, 0) > epoch) == device);
		MUST((verbs_fds_version(v) != version) == device);
		fact("up");
	}
	step();
	errors = 0;
	done_transport = done_flushed = 0;
	lane_up(16);
	exchange(200, 16);
	MUST(!errors && !done_transport && !done_flushed);
	fact("works again");
	step();
	lane_down();
	step();
}

/* B's address changes: the lane is told at once, and a new one uses the new address. */
static void case_moved(void)
{
	uint8_t before[16];

	lane_up(16);
	memcpy(before, &lane->gid, 16);
	exchange(50, 16);
	step();
	fact("ready");
	if (!side_a) {
		UNTIL(errors, 30);
		MUST(verbs_rail_ok(v, 0));
		fact("moved");
	}
	step();
	lane_down();
	errors = 0;
	step();
	lane_up(16);
	MUST((memcmp(before, &lane->gid, 16) == 0) == (side_a != 0));
	exchange(50, 16);
	fact("works at the new address");
	step();
	lane_down();
	step();
}

/* --- the self-test -------------------------------------------------------------------------------- */

static unsigned told_ledger;
static bool again; /* test without a pause */
static enum verbs_ledger told_what;

static void on_ledger(void *arg, unsigned rail, enum verbs_ledger ledger, const char *why)
{
	(void)arg;
	(void)rail;
	told_ledger++;
	told_what = ledger;
	if (told_ledger == 1 || ledger != VERBS_LEDGER_RQ_PSN)
		fact("ledger %s: %s", verbs_ledger_name(ledger), why);
	if (again) {
		v->rail[0].ledger = VERBS_LEDGER_UNKNOWN;
		v->rail[0].tests = 0;
	}
}

/* Open RDMA devices. */
static unsigned contexts(void)
{
	DIR *d = opendir("/proc/self/fd");
	char path[300], to[256];
	unsigned n = 0;

	MUST(d);
	for (struct dirent *e; (e = readdir(d));) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		to[len > 0 ? len : 0] = '\0';
		n += strstr(to, "infiniband/uverbs") != NULL;
	}
	closedir(d);
	return n;
}

/* Threads of self-tests. */
static unsigned testers(void)
{
	DIR *d = opendir("/proc/self/task");
	char path[300], name[32];
	unsigned n = 0;

	MUST(d);
	for (struct dirent *e; (e = readdir(d));) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "re");
		n += f && fgets(name, sizeof(name), f) && !strcmp(name, "selftest\n");
		if (f)
			fclose(f);
	}
	closedir(d);
	return n;
}

static void nothing_left(unsigned devices)
{
	MUST(testers() == 0);
	MUST(contexts() == devices);
}

/*
 * One test after the other; ARG of them. Each leaves nothing behind, and the loop never waits. A host that stands still
 * spoils one now and then: that one says so and proves nothing.
 */
static void case_selftest(uint32_t n)
{
	uint64_t total = 0, longest = 0, gap = 0;

	/* the first one starts by itself */
	for (uint32_t i = 0, spoiled = 0; i < n;) {
		unsigned before = told_ledger;
		uint64_t t0, t;

		if (before) {
			v->rail[0].ledger = VERBS_LEDGER_UNKNOWN;
			v->rail[0].tests = 0;
		}
		t0 = now_ns();
		verbs_tick(v, t0);
		MUST(!before || v->rail[0].test);
		while (told_ledger == before) {
			t = now_ns();
			turn();
			t = now_ns() - t;
			if (t > gap)
				gap = t;
			MUST(now_ns() - t0 < 90 * 1000000000ull);
		}
		t = now_ns() - t0;
		total += i ? t : 0;
		if (i && t > longest)
			longest = t;
		if (told_what == VERBS_LEDGER_UNKNOWN && spoiled++ < 3)
			continue;
		i++;
		if (told_what != VERBS_LEDGER_RQ_PSN || verbs_rail_ledger(v, 0) != told_what)
			fail("test %u: %s: %s", i, verbs_ledger_name(told_what), verbs_rail_ledger_why(v, 0));
		nothing_left(1);
	}
	if (n > 1)
		fact("%u tests, %.0f ms each until the loop knows, %.0f the longest; a turn of the loop %.0f ms",
			n, (double)total / (n - 1) / 1e6, (double)longest / 1e6, (double)gap / 1e6);
	step();
	/* what a fence reports is believed, unless the device was caught lying */
	lane_up(4);
	lane_down();
	MUST(psn_known);
	step();
	v->rail[0].lies = true;
	lane_up(4);
	lane_down();
	MUST(fenced_told == CORE_TOLD_NOTHING); /* no word was written */
	step();
}

/*
 * B's device lies in rq_psn (lie.so) and is caught. Then A writes at full rate, with a ledger write behind
 * each batch; B fences in mid-burst and tells by the word: what that covers is in memory.
 */
static void case_word(uint32_t rounds)
{
	size_t len = (size_t)WRITES * WRITE_SZ;
	uint64_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t covered = 0, beyond = 0;
	struct ibv_mr *mr;

	/* one that a host spoiled is tried again */
	UNTIL(verbs_rail_ledger(v, 0) != VERBS_LEDGER_UNKNOWN, 150);
	MUST((verbs_rail_ledger(v, 0) == VERBS_LEDGER_NONE) == !side_a);
	MUST(mem != MAP_FAILED);
	mr = ibv_reg_mr(v->rail[0].pd, mem, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(mr);
	step();
	for (uint32_t i = 0; i < rounds; i++) {
		struct remote r = {.addr = (uint64_t)(uintptr_t)mem, .rkey = mr->rkey}, peer;
		unsigned before = fenced;
		uint64_t n = 0, word = 0;

		memset(mem, 0, len);
		lane_up(4);
		MUST(verbs_lane_wants_word(lane) == side_a);
		give(&r, sizeof(r));
		take(&peer, sizeof(peer));
		while (side_a && !told() && !errors) {
			/* as the daemon posts */
			while (n < WRITES && verbs_lane_room(lane) > 16) {
				struct verbs_rdma w = {.laddr = (uint64_t)(uintptr_t)(mem + n * (WRITE_SZ / 8)),
					.raddr = peer.addr + n * WRITE_SZ, .len = WRITE_SZ, .lkey = mr->lkey,
					.rkey = peer.rkey};
				uint32_t psn;

				mem[n * (WRITE_SZ / 8)] = n + 1;
				MUST(!verbs_lane_rdma(lane, &w, n, &psn));
				if (++n % CORE_BATCH == 0)
					MUST(!verbs_lane_word(lane, n / CORE_BATCH, n));
			}
			verbs_poll(v, 64);
		}
		if (!side_a) {
			while (!mem[(rand() % 512 + 16) * (WRITE_SZ / 8)])
				verbs_poll(v, 64);
		}
		verbs_lane_fence(lane);
		UNTIL(fenced > before, 20);
		MUST(fenced_told == (side_a ? CORE_TOLD_PSN : CORE_TOLD_WORD));
		if (!side_a) {
			for (uint64_t w = 0; w < (uint64_t)fenced_number * CORE_BATCH; w++)
				if (mem[w * (WRITE_SZ / 8)] != w + 1)
					fail("round %u: word %u, and write %llu is not in memory", i,
						fenced_number, (unsigned long long)w + 1);
			covered += (uint64_t)fenced_number * CORE_BATCH;
			beyond += highest(mem) - (uint64_t)fenced_number * CORE_BATCH;
			word = fenced_number;
			give(&word, sizeof(word));
		} else {
			take(&word, sizeof(word));
			MUST(word && word <= n / CORE_BATCH);
		}
		verbs_lane_close(lane);
		errors = 0;
		step();
	}
	if (!side_a)
		fact("%u fences: the word covered %llu writes, %llu had executed behind it", rounds,
			(unsigned long long)covered, (unsigned long long)beyond);
	ibv_dereg_mr(mr);
	munmap(mem, len);
}

/* B is unplugged while its tests run; they let go of it at once, and run again when it is back. */
static void case_unplug(void)
{
	uint64_t told_at;

	if (side_a) {
		while (!told())
			turn();
		step();
		return;
	}
	again = true;
	fact("ready");
	UNTIL(rail_down, 60);
	told_at = now_ns();
	again = false;
	MUST(rail_why == CORE_R_DEVICE);
	MUST(verbs_rail_ledger(v, 0) == VERBS_LEDGER_UNKNOWN);
	UNTIL(contexts() == 0, 10);
	fact("device let go %.0f ms after the loop knew; %u tests before", (double)(now_ns() - told_at) / 1e6,
		told_ledger);
	UNTIL(!v->rail[0].test, 10);
	MUST(testers() == 0);
	MUST(verbs_rail_ledger(v, 0) == VERBS_LEDGER_UNKNOWN);
	fact("down");
	UNTIL(rail_up, 90);
	UNTIL(verbs_rail_ledger(v, 0) != VERBS_LEDGER_UNKNOWN, 90);
	MUST(verbs_rail_ledger(v, 0) == VERBS_LEDGER_RQ_PSN);
	nothing_left(1);
	fact("proven again");
	step();
}

/* --- datagrams and the carrier -------------------------------------------------------------------- */

static struct verbs_target *target;
static unsigned echoes;
static uint64_t echo_wanted;

/* B answers what A asks. */
static void on_datagram(void *arg, unsigned rail, const void *data, size_t len)
{
	uint64_t x[VERBS_DATAGRAM / 8];

	(void)arg;
	MUST(rail == 0 && len == sizeof(x));
	memcpy(x, data, sizeof(x));
	for (unsigned i = 1; i < sizeof(x) / 8; i++)
		MUST(x[i] == x[0] * i);
	if (!side_a && target)
		verbs_target_send(target, data, len);
	else
		echoes += x[0] == echo_wanted;
}

static bool echo(void)
{
	uint64_t x[VERBS_DATAGRAM / 8], end = now_ns() + 300000000;
	unsigned before = echoes;

	x[0] = ++echo_wanted;
	for (unsigned i = 1; i < sizeof(x) / 8; i++)
		x[i] = x[0] * i;
	MUST(!verbs_target_send(target, x, sizeof(x)));
	while (echoes == before && now_ns() < end)
		turn();
	return echoes > before;
}

/* The lane is fenced meanwhile at both ends: its queue pair dead, datagrams still come. */
static void case_datagram(uint32_t n)
{
	uint32_t answered = 0, after = 0;

	lane_up(16);
	target = verbs_target_new(lane);
	MUST(target);
	step();
	for (uint32_t i = 0; side_a && i < n; i++)
		answered += echo();
	step();
	lane_down();
	step();
	for (uint32_t i = 0; side_a && i < n; i++)
		after += echo();
	step();
	if (side_a) {
		fact("%u of %u datagrams answered, %u behind the fence", answered, n, after);
		MUST(answered > n * 9 / 10 && after > n * 9 / 10);
	}
	verbs_target_free(target);
	target = NULL;
	step();
}

/* B's cable is cut and put back: netlink alone says so, and then the device says nothing new. */
static void case_carrier(void)
{
	if (side_a) {
		while (!told())
			turn();
		step();
		return;
	}
	MUST(verbs_carrier_fd(v) >= 0);
	netlink_only = true;
	fact("ready");
	UNTIL(rail_down, 30);
	MUST(rail_why == CORE_R_PORT && !verbs_rail_ok(v, 0));
	fact("down");
	UNTIL(rail_up, 60);
	netlink_only = false;
	linger(500);
	MUST(rail_down == 1 && rail_up == 1 && verbs_rail_ok(v, 0));
	fact("up");
	step();
}

/* How long connecting takes when the other end's address answers nobody. */
static void case_mute(void)
{
	uint8_t mine[CORE_BLOB], theirs[CORE_BLOB];
	uint64_t t;
	int err;

	MUST(!verbs_lane_open(v, 0, 16, NULL, &lane, mine));
	give(mine, sizeof(mine));
	take(theirs, sizeof(theirs));
	fact("ready");
	if (side_a) {
		for (int i = 0; i < 20; i++)
			linger(100);
		t = now_ns();
		err = verbs_lane_connect(lane, theirs);
		fact("connect took %.0f ms: %s", (double)(now_ns() - t) / 1e6, strerror(-err));
	}
	step();
	verbs_lane_close(lane);
	step();
}

int main(int argc, char **argv)
{
	static const struct verbs_ops ops = {.recv = on_recv, .done = on_done, .error = on_error,
		.fenced = on_fenced, .rail = on_rail, .ledger = on_ledger, .datagram = on_datagram};
	static struct config cfg;
	char why[256] = "";
	const char *what;
	uint32_t arg;

	self_path = "/proc/self/exe";
	if (argc == 4 && !strcmp(argv[1], "child"))
		return child_main(atoi(argv[2]), atoi(argv[3]));
	if (argc < 4) {
		fprintf(stderr, "usage: verbs_test DEVICE listen|HOST CASE [ARG]\n");
		return 2;
	}
	what = argv[3];
	arg = argc > 4 ? (uint32_t)atoi(argv[4]) : 1000;
	srand((unsigned)getpid());
	config_default(&cfg);
	cfg.nrails = 1;
	snprintf(cfg.rail[0].device, sizeof(cfg.rail[0].device), "%s", argv[1]);
	cfg.rail[0].port = 1;
	cfg.rail[0].gid_index = -1;
	cfg.rc_timeout = 17; /* a guest of a busy host stands still longer than the default's seven tries last */
	cfg.selftest = !strcmp(what, "selftest") || !strcmp(what, "unplug") || !strcmp(what, "word");
	if (verbs_open(&v, &cfg, 1, &ops, why, sizeof(why)))
		fail("%s", why);
	ring = verbs_buf_new(v, RING * WIRE_FRAME_MAX);
	MUST(ring);
	talk(argv[2]);
	UNTIL(verbs_rail_ok(v, 0), 10);
	if (!strcmp(what, "frames"))
		case_frames(arg);
	else if (!strcmp(what, "fence") || !strcmp(what, "bare"))
		case_fence(arg, what[0] == 'b');
	else if (!strcmp(what, "burst"))
		case_burst(arg);
	else if (!strcmp(what, "lend"))
		case_lend();
	else if (!strcmp(what, "port") || !strcmp(what, "device"))
		case_fail(what[0] == 'd');
	else if (!strcmp(what, "moved"))
		case_moved();
	else if (!strcmp(what, "datagram"))
		case_datagram(arg);
	else if (!strcmp(what, "carrier"))
		case_carrier();
	else if (!strcmp(what, "mute"))
		case_mute();
	else if (!strcmp(what, "selftest"))
		case_selftest(arg);
	else if (!strcmp(what, "word"))
		case_word(arg);
	else if (!strcmp(what, "unplug"))
		case_unplug();
	else
		fail("no such case: %s", what);
	verbs_buf_free(ring);
	verbs_close(v);
	fact("done");
	return 0;
}
