/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks and strangers that do wrong to a real daemon. Each case prints "CASE: WHAT CAME OF IT".
 *
 *	rcs_bad init			what rcs_init says, with the variables as they are
 *	rcs_bad region			what rcs_region_open says to 1 MiB
 *	rcs_bad address [FILE...]	addresses that must not be accepted; a FILE holds one more
 *	rcs_bad save FILE		writes an address of its own, of this job
 *	rcs_bad record			node records that must not be accepted
 *	rcs_bad requests		messages on the socket that make no sense
 *	rcs_bad scribble N [SEED]	N channels, each overwritten in one of several ways
 *	rcs_bad hello HOST PORT JOB	handshakes on the control port of somebody without the token
 *	rcs_bad lend			registers memory with a loan, says nothing of it and is killed
 */
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "app.h"
#include "shm/channel.h"
#include "shm/uverbs.h"
#include "wire/frame.h"

#define WAIT_MS 20000

static uint64_t seed = 1;

static uint64_t dice(void) /* xorshift64* */
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 0x2545f4914f6cdd1dull;
}

static void noise(void *p, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t x = dice();

		memcpy((uint8_t *)p + i, &x, 8);
	}
}

/* --- with the library -------------------------------------------------------------------------- */

static int open_ctx(struct rcs_error *err)
{
	struct rcs_init_opts o = {.size = sizeof(o), .flags = RCS_INIT_NO_PMIX, .nranks = 1};

	return rcs_init(&o, &app.ctx, err);
}

static void init(void)
{
	struct rcs_error err = {0};
	int rc = open_ctx(&err);

	printf("init: %s: %s\n", rcs_status_name(rc), err.sentence);
	if (!rc)
		rcs_fini(app.ctx);
}

static void open_ep(void)
{
	struct rcs_ep_opts e = {.size = sizeof(e)};
	struct rcs_error err = {0};

	if (open_ctx(&err) || rcs_cq_open(app.ctx, 0, &app.cq, &err))
		app_die("%s", err.sentence);
	e.tx_cq = e.rx_cq = app.cq;
	if (rcs_ep_open(app.ctx, &e, &app.ep, &err))
		app_die("%s", err.sentence);
}

static void region(void)
{
	static uint8_t memory[1 << 20];
	struct rcs_error err = {0};
	rcs_region *r = NULL;
	int rc;

	open_ep();
	rc = rcs_region_open(app.ctx, memory, sizeof(memory), &r, &err);
	printf("region: %s: %s\n", rcs_status_name(rc), err.sentence);
	if (!rc)
		APP_OK(rcs_region_close(r));
	rcs_fini(app.ctx);
}

static void insert(const char *name, const struct rcs_addr *a)
{
	struct rcs_error err = {0};
	rcs_peer *p = NULL;
	int rc = rcs_peer_insert(app.ep, a, &p, &err);

	if (rc && p)
		app_die("%s: a peer came with an error", name);
	printf("%s: %s: %s\n", name, rcs_status_name(rc), err.sentence);
}

static void address(int argc, char **argv)
{
	struct rcs_addr own, a;

	open_ep();
	rcs_ep_addr(app.ep, &own);
	memset(&a, 0, sizeof(a));
	insert("nothing", &a);
	a = own;
	a.bytes[1]++;
	insert("other version", &a);
	a = own;
	a.bytes[40] ^= 4;
	insert("damaged", &a);
	for (int i = 0; i < argc; i++) {
		FILE *f = fopen(argv[i], "r");

		if (!f || fread(&a, sizeof(a), 1, f) != 1)
			app_die("%s: %s", argv[i], strerror(errno));
		fclose(f);
		insert("other job", &a);
	}
	insert("own", &own);
	rcs_fini(app.ctx);
}

static void save(const char *path)
{
	FILE *f = fopen(path, "w");
	struct rcs_addr own;

	open_ep();
	rcs_ep_addr(app.ep, &own);
	if (!f || fwrite(&own, sizeof(own), 1, f) != 1 || fclose(f))
		app_die("%s: %s", path, strerror(errno));
	rcs_fini(app.ctx);
}

/* --- with the socket alone --------------------------------------------------------------------- */

union any {
	struct shm_msg m;
	struct shm_attach attach;
	struct shm_attached attached;
	struct shm_lend lend;
	struct shm_lent lent;
	struct shm_reg reg;
	struct shm_dereg dereg;
	struct shm_record record;
	struct shm_eager eager;
	uint8_t bytes[65536];
};

static int dial(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *path = getenv("RCSHARE_SOCKET");
	struct timeval tv = {.tv_sec = WAIT_MS / 1000};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (!path || strlen(path) >= sizeof(a.sun_path))
		app_die("no RCSHARE_SOCKET");
	strcpy(a.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		app_die("connect %s: %s", path, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

/* Sends n bytes of u, reads the answer into it; fds that come along: at most 8, *nfds of them. */
static void ask(int fd, union any *u, size_t n, int *fds, unsigned *nfds)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(8 * sizeof(int))];
	} ctl;
	struct iovec iov = {u, sizeof(*u)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl,
		.msg_controllen = sizeof(ctl)};
	struct cmsghdr *c;
	ssize_t got;

	if (send(fd, u, n, MSG_NOSIGNAL) != (ssize_t)n)
		app_die("send: %s", strerror(errno));
	got = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC);
	if (got <= 0)
		app_die("no answer: %s", got ? strerror(errno) : "the daemon closed the socket");
	c = CMSG_FIRSTHDR(&mh);
	*nfds = c ? (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
	if (c)
		memcpy(fds, CMSG_DATA(c), *nfds * sizeof(int));
}

static void answered(const char *name, int fd, union any *u, size_t n)
{
	int fds[8];
	unsigned k;

	ask(fd, u, n, fds, &k);
	while (k)
		close(fds[--k]);
	printf("%s: %d: %s\n", name, u->m.status, u->m.sentence);
}

static void begin(union any *u, uint32_t type)
{
	memset(u, 0, sizeof(*u));
	u->m.type = type;
	u->m.abi = SHM_ABI;
}

static uint32_t job_of_path(void)
{
	const char *path = getenv("RCSHARE_SOCKET"), *end = path ? strrchr(path, '/') : NULL;

	while (end && end > path && end[-1] != '/')
		end--;
	return end ? (uint32_t)strtoul(end, NULL, 10) : 0;
}

static void attach_ask(union any *u)
{
	begin(u, SHM_MSG_ATTACH);
	u->attach.job = job_of_path();
	u->attach.ranks = 1;
	u->attach.rank = 4711;
	u->attach.pid = (uint32_t)getpid();
}

static void requests(void)
{
	static union any u;
	int fd = dial();

	begin(&u, SHM_MSG_STATUS);
	answered("short", fd, &u, 3);
	begin(&u, SHM_MSG_STATUS);
	u.m.abi = SHM_ABI + 1;
	answered("other version", fd, &u, sizeof(u.m));
	begin(&u, SHM_MSG_ATTACH);
	answered("cut off", fd, &u, sizeof(u.m));
	begin(&u, 4711);
	answered("unknown", fd, &u, sizeof(u.m));
	noise(&u, sizeof(u));
	answered("noise", fd, &u, 50000);
	begin(&u, SHM_MSG_LEND);
	answered("not attached", fd, &u, sizeof(u.lend));
	attach_ask(&u);
	u.attach.job++;
	answered("other job", fd, &u, sizeof(u.attach));
	attach_ask(&u);
	answered("good", fd, &u, sizeof(u.attach));
	attach_ask(&u);
	answered("twice", fd, &u, sizeof(u.attach));
	begin(&u, SHM_MSG_LEND);
	u.lend.addr = UINT64_MAX - 10;
	u.lend.len = 4096;
	answered("wraps", fd, &u, sizeof(u.lend));
	begin(&u, SHM_MSG_REG);
	u.reg.key.region = UINT32_MAX;
	u.reg.ndev = UINT32_MAX;
	u.reg.ok = UINT32_MAX;
	answered("no region", fd, &u, sizeof(u.reg));
	begin(&u, SHM_MSG_DETACH);
	send(fd, &u, sizeof(u.m), MSG_NOSIGNAL);
	close(fd);
}

static void give(const char *name, int fd, const struct shm_node_record *rec)
{
	static union any u;

	begin(&u, SHM_MSG_EAGER);
	u.eager.rec = *rec;
	answered(name, fd, &u, sizeof(u.eager));
}

static void record(void)
{
	static union any u;
	struct shm_node_record good, bad;
	int fd = dial(), fds[8];
	unsigned k;

	attach_ask(&u);
	ask(fd, &u, sizeof(u.attach), fds, &k);
	begin(&u, SHM_MSG_RECORD);
	ask(fd, &u, sizeof(u.m), fds, &k);
	good = bad = u.record.rec;
	bad.version++;
	give("other version", fd, &bad);
	bad = good;
	bad.host[0] ^= 1;
	give("damaged", fd, &bad);
	give("good", fd, &good);
	begin(&u, SHM_MSG_DETACH);
	send(fd, &u, sizeof(u.m), MSG_NOSIGNAL);
	close(fd);
}

/* --- a channel --------------------------------------------------------------------------------- */

static struct channel {
	int sock, fd, table, bell;
	struct shm_channel *s;
	struct shm_ring tx;
	size_t size;
} ch;

static void attach(void)
{
	static union any u;
	struct stat st;
	int fds[8];
	unsigned k;

	ch.sock = dial();
	attach_ask(&u);
	ask(ch.sock, &u, sizeof(u.attach), fds, &k);
	if (u.m.status || k != SHM_FD_N)
		app_die("attach: %d: %s", u.m.status, u.m.sentence);
	ch.fd = fds[SHM_FD_CHANNEL];
	ch.table = fds[SHM_FD_TABLE];
	ch.bell = fds[SHM_FD_DAEMON];
	close(fds[SHM_FD_RANK]);
	APP_CHECK(fstat(ch.fd, &st) == 0);
	ch.size = (size_t)st.st_size;
	ch.s = mmap(NULL, ch.size, PROT_READ | PROT_WRITE, MAP_SHARED, ch.fd, 0);
	APP_CHECK(ch.s != MAP_FAILED);
	shm_ring_init(&ch.tx, &ch.s->tx, (uint8_t *)ch.s + ch.s->tx_off, ch.s->tx_size);
}

static void ring_bell(void)
{
	uint64_t one = 1;

	APP_CHECK(write(ch.bell, &one, sizeof(one)) == sizeof(one));
}

/* Until the daemon has closed the channel: true; or, where that may be, has taken everything. */
static bool closed(bool may_live, uint64_t tail)
{
	for (int i = 0; i < WAIT_MS; i++) {
		struct pollfd p = {.fd = ch.sock, .events = POLLIN};

		if (poll(&p, 1, 1) > 0)
			return true;
		if (may_live && atomic_load(&ch.s->tx.head) == tail)
			return false;
	}
	app_die("the daemon neither took what was written nor closed the channel");
}

static void detach(void)
{
	munmap(ch.s, ch.size);
	close(ch.fd);
	close(ch.table);
	close(ch.bell);
	close(ch.sock);
}

static uint32_t length_for(uint16_t type)
{
	switch (type) {
	case WIRE_REC_MSG:
	case WIRE_REC_PUSH:
		return 1 + (uint32_t)(dice() % WIRE_REC_PAYLOAD_MAX);
	case WIRE_REC_RTS:
		return sizeof(struct wire_rts);
	case WIRE_REC_GET:
		return sizeof(struct wire_get);
	case WIRE_REC_PEER:
		return sizeof(struct wire_addr);
	default:
		return 0;
	}
}

/* Records whose form is right and whose content is not. */
static bool plausible(unsigned n)
{
	static const uint16_t types[] = {WIRE_REC_MSG, WIRE_REC_RTS, WIRE_REC_PUSH, WIRE_REC_CTS,
		WIRE_REC_FIN, WIRE_REC_CREDIT, WIRE_REC_CANCEL, WIRE_REC_GET, WIRE_REC_PEER,
		WIRE_REC_DELIVERED, WIRE_REC_EVENT};

	while (n--) {
		uint16_t type = types[dice() % (sizeof(types) / sizeof(types[0]) - (n ? 2 : 0))];
		uint32_t len = length_for(type);
		struct wire_rec *r = shm_ring_reserve(&ch.tx, len);

		if (!r)
			break;
		noise(r, WIRE_REC_SPACE(len));
		r->type = type;
		r->len = len;
		r->dst_node = (uint16_t)(dice() % 3);
		shm_ring_commit(&ch.tx, len);
	}
	shm_ring_publish(&ch.tx);
	ring_bell();
	return closed(true, ch.tx.pos);
}

/* The length changes while the daemon reads it. */
static bool changing(void)
{
	struct wire_rec *r = NULL;

	for (int i = 0; i < 64; i++) {
		r = shm_ring_reserve(&ch.tx, 8);
		APP_CHECK(r);
		memset(r, 0, sizeof(*r) + 8);
		r->type = WIRE_REC_MSG;
		r->len = 8;
		shm_ring_commit(&ch.tx, 8);
	}
	shm_ring_publish(&ch.tx);
	ring_bell();
	for (int i = 0; i < 100000; i++) {
		volatile uint32_t *len = &r->len;

		*len = UINT32_MAX;
		*len = 8;
	}
	return closed(true, ch.tx.pos);
}

/* A receive ring whose reader says nonsense, and something to put there. */
static bool lying_reader(void)
{
	struct wire_rec *r;

	atomic_store(&ch.s->rx.head, dice() | 1ull << 62);
	for (int i = 0; i < 4096; i++) {
		r = shm_ring_reserve(&ch.tx, 4096);
		if (!r) {
			shm_ring_publish(&ch.tx);
			ring_bell();
			if (closed(true, ch.tx.pos))
				return true;
			continue;
		}
		memset(r, 0, sizeof(*r));
		r->type = WIRE_REC_MSG;
		r->len = 4096;
		r->dst_node = ch.s->addr.node;
		r->dst_ep = ch.s->addr.ep;
		r->dst_epoch = ch.s->addr.epoch;
		shm_ring_commit(&ch.tx, 4096);
	}
	return closed(false, 0);
}

/* What is sealed stays as it is. */
static bool sealed(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	size_t size = ch.size;
	char path[64];
	int again;

	if (ftruncate(ch.fd, 0) == 0 || ftruncate(ch.fd, (off_t)size * 2) == 0)
		app_die("the channel's memory can be truncated");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ch.table);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (write(ch.table, "x", 1) > 0 || mmap(NULL, 4096, rw, MAP_SHARED, ch.table, 0) != MAP_FAILED ||
		write(again, "x", 1) > 0 || mmap(NULL, 4096, rw, MAP_SHARED, again, 0) != MAP_FAILED)
		app_die("a rank can write to the table");
	if (again >= 0)
		close(again);
	return false;
}

static void scribble(unsigned n)
{
	unsigned gone = 0;

	for (unsigned i = 0; i < n; i++) {
		attach();
		switch (i % 6) {
		case 0:
			noise(ch.s, ch.size);
			ring_bell();
			gone += closed(false, 0);
			break;
		case 1:
			atomic_store(&ch.s->tx.tail, dice() | 1ull << 62);
			ring_bell();
			gone += closed(false, 0);
			break;
		case 2:
			gone += plausible(1 + (unsigned)(dice() % 40));
			break;
		case 3:
			gone += changing();
			break;
		case 4:
			gone += lying_reader();
			break;
		default:
			gone += sealed();
			break;
		}
		detach();
	}
	printf("scribbled: %u channels, %u closed by the daemon\n", n, gone);
}

/* --- a stranger on the control port ------------------------------------------------------------ */

/* runtime/node/tcp.c has the protocol */
struct hello {
	uint32_t magic;
	uint16_t version, kind;
	uint32_t job, restart, node, incarnation, gen;
	uint16_t port, pad;
	uint8_t nonce[32], mac[32];
};

static int dial_tcp(const char *host, const char *port)
{
	struct addrinfo hint = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *res;
	struct timeval tv = {.tv_sec = WAIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (getaddrinfo(host, port, &hint, &res))
		app_die("%s does not resolve", host);
	if (fd < 0 || connect(fd, res->ai_addr, res->ai_addrlen))
		app_die("connect %s:%s: %s", host, port, strerror(errno));
	freeaddrinfo(res);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

/* More than what is expected, and it has talked to a stranger. */
static void shut_out(const char *name, int fd)
{
	char rest[256];
	ssize_t got = recv(fd, rest, sizeof(rest), 0);

	printf("%s: %s\n", name, got == 0 || (got < 0 && errno == ECONNRESET) ? "closed" :
		got < 0 ? "still open" : "answered");
	close(fd);
}

static void hello(const char *host, const char *port, uint32_t job)
{
	struct hello good = {.magic = 0x4f484352u, .version = WIRE_FRAME_VERSION, .kind = 1, .job = job, .node = 1,
		.incarnation = 1}, h;
	int fd;

	noise(good.nonce, sizeof(good.nonce));
	h = good;
	h.version = 99;
	fd = dial_tcp(host, port);
	APP_CHECK(send(fd, &h, sizeof(h), MSG_NOSIGNAL) == sizeof(h));
	shut_out("other version", fd);
	h = good;
	h.job++;
	fd = dial_tcp(host, port);
	APP_CHECK(send(fd, &h, sizeof(h), MSG_NOSIGNAL) == sizeof(h));
	shut_out("other job", fd);
	h = good;
	h.node = 4711;
	fd = dial_tcp(host, port);
	APP_CHECK(send(fd, &h, sizeof(h), MSG_NOSIGNAL) == sizeof(h));
	shut_out("no such node", fd);
	fd = dial_tcp(host, port);
	APP_CHECK(send(fd, &good, sizeof(good), MSG_NOSIGNAL) == sizeof(good));
	APP_CHECK(recv(fd, &h, sizeof(h), MSG_WAITALL) == sizeof(h));
	/* its own proof sent back is none */
	good.kind = 3;
	memcpy(good.mac, h.mac, sizeof(good.mac));
	APP_CHECK(send(fd, &good, sizeof(good), MSG_NOSIGNAL) == sizeof(good));
	shut_out("no token", fd);
}

/* --- a loan that is never returned -------------------------------------------------------------- */

static void lend(void)
{
	size_t size = 1 << 20;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static union any u;
	int fds[8];
	unsigned k;

	APP_CHECK(p != MAP_FAILED);
	attach();
	begin(&u, SHM_MSG_LEND);
	u.lend.addr = (uint64_t)(uintptr_t)p;
	u.lend.len = size;
	ask(ch.sock, &u, sizeof(u.lend), fds, &k);
	if (u.m.status || !k)
		app_die("lend: %d: %s, %u descriptors", u.m.status, u.m.sentence, k);
	for (unsigned i = 0; i < k; i++) {
		struct ib_uverbs_reg_mr_resp resp = {0};
		struct ib_uverbs_reg_mr cmd = {.start = (uint64_t)(uintptr_t)p, .length = size,
			.hca_va = (uint64_t)(uintptr_t)p, .pd_handle = u.lent.pd_handle[i],
			.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_READ};
		struct ib_uverbs_attr attr[] = {
			{.attr_id = UVERBS_ATTR_WRITE_CMD, .len = sizeof(uint64_t),
				.data = IB_USER_VERBS_CMD_REG_MR},
			{.attr_id = UVERBS_ATTR_CORE_IN, .len = sizeof(cmd),
				.data = (uint64_t)(uintptr_t)&cmd},
			{.attr_id = UVERBS_ATTR_CORE_OUT, .len = sizeof(resp),
				.data = (uint64_t)(uintptr_t)&resp},
		};
		int rc = shm_uverbs_command(fds[i], u.lent.driver[i], UVERBS_OBJECT_DEVICE,
			UVERBS_METHOD_INVOKE_WRITE, attr, 3);

		printf("lend: region on loan %u: %s\n", i, rc ? strerror(-rc) : "made");
	}
	fflush(stdout);
	/* a file that appears lets it die */
	if (getenv("RCS_BAD_WAIT"))
		while (access(getenv("RCS_BAD_WAIT"), F_OK))
			usleep(10000);
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(what, "init"))
		init();
	else if (!strcmp(what, "region"))
		region();
	else if (!strcmp(what, "address"))
		address(argc - 2, argv + 2);
	else if (!strcmp(what, "save") && argc == 3)
		save(argv[2]);
	else if (!strcmp(what, "record"))
		record();
	else if (!strcmp(what, "requests"))
		requests();
	else if (!strcmp(what, "scribble") && argc >= 3) {
		seed = argc > 3 ? app_number(argv[3]) : 1;
		scribble((unsigned)app_number(argv[2]));
	} else if (!strcmp(what, "hello") && argc == 5)
		hello(argv[2], argv[3], (uint32_t)app_number(argv[4]));
	else if (!strcmp(what, "lend"))
		lend();
	else
		app_die("usage: rcs_bad init|region|address|save|record|requests|scribble|hello|lend ...");
	return 0;
}
