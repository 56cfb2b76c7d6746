/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rcshared: the runtime of one job on one node. Started by the plugin (spank/README.md has the
 * contract); options, set-up, the loop, and an orderly end.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/job.h"
#include "node/node.h"
#include "node/place.h"

#define TICK_NS	  1000000000ull
#define NAMES_MAX (64 << 20)
#define WORKS_END_MS 2000 /* for jobs that are off the loop when the daemon ends */

/* --- options ------------------------------------------------------------------------------------ */

static void usage(FILE *f)
{
	fputs("usage: rcshared --job ID --restart N --node-index I --nodes N\n"
	      "                --nodelist A,B,... | --nodelist-fd FD [--listen-fd FD]\n"
	      "                --uid U --gid G --run-dir DIR --token-fd FD --ready-fd FD [--lock-fd FD]\n"
	      "                [--config PATH] [--rails N] [--eager 0|1] [--log DIR] [--abi N]\n"
	      "The runtime of one job on one node; Slurm's plugin starts it. See rcshared(8).\n", f);
}

/* The plugin reads this line, nobody reads our stderr: also what is wrong with options goes there. */
static void say(struct node *n, const char *fmt, const char *arg)
{
	char line[512];
	int len = snprintf(line, sizeof(line), fmt, arg);

	if (len >= (int)sizeof(line))
		len = sizeof(line) - 1;
	if (n->o.ready_fd >= 0) {
		(void)!write(n->o.ready_fd, line, (size_t)len);
		close(n->o.ready_fd);
		n->o.ready_fd = -1;
	}
}

/* Options come from the plugin: what is wrong with them is that the two do not belong together. */
static void refuse(struct node *n, const char *fmt, const char *arg)
{
	char what[256], why[512];

	snprintf(what, sizeof(what), fmt, arg);
	snprintf(why, sizeof(why), "rcshared " RCS_VERSION " and Slurm's plugin are of different releases (%s); "
		"install both from the same one", what);
	fprintf(stderr, "rcshared: %s\n", why);
	usage(stderr);
	say(n, "error: %s\n", why);
	exit(2);
}

static uint32_t number(struct node *n, const char *opt, const char *s)
{
	char *end, what[64];
	unsigned long v;

	errno = 0;
	v = strtoul(s, &end, 10);
	if (errno || *end || !*s || *s == '-' || v > UINT32_MAX) {
		snprintf(what, sizeof(what), "--%.20s wants a number, not '%%s'", opt);
		refuse(n, what, s);
	}
	return (uint32_t)v;
}

/* Before all others: it is where complaints about them go. */
static int find_ready_fd(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--ready-fd"))
			return atoi(argv[i + 1]);
	return -1;
}

/* The list as a file: it may be more than a word of a command line can hold. */
static char *names_read(int fd)
{
	struct stat st;
	size_t got = 0;
	ssize_t r = 1;
	char *list = fstat(fd, &st) || st.st_size <= 0 || st.st_size > NAMES_MAX ? NULL :
		     malloc((size_t)st.st_size + 1);

	while (list && got < (size_t)st.st_size && (r = read(fd, list + got, (size_t)st.st_size - got)) > 0)
		got += (size_t)r;
	if (list)
		list[got] = '\0';
	close(fd);
	return list;
}

/* NAME or NAME=NODEADDR, separated by commas. */
static int names_split(struct node_opts *o, char *list)
{
	uint32_t k = 0;

	o->names = calloc(o->nodes ? o->nodes : 1, sizeof(*o->names));
	o->addrs = calloc(o->nodes ? o->nodes : 1, sizeof(*o->addrs));
	if (!o->names || !o->addrs)
		return -ENOMEM;
	for (char *s = strtok(list, ","); s; s = strtok(NULL, ",")) {
		if (k == o->nodes)
			return -EINVAL;
		o->names[k] = strsep(&s, "=");
		o->addrs[k++] = s && *s ? s : NULL;
	}
	return k == o->nodes ? 0 : -EINVAL;
}

static void options(struct node *n, int argc, char **argv)
{
	static const struct option longs[] = {{"job", 1, 0, 'j'}, {"restart", 1, 0, 'r'},
		{"node-index", 1, 0, 'i'}, {"nodes", 1, 0, 'n'}, {"nodelist", 1, 0, 'l'},
		{"uid", 1, 0, 'u'}, {"gid", 1, 0, 'g'}, {"run-dir", 1, 0, 'd'}, {"token-fd", 1, 0, 't'},
		{"ready-fd", 1, 0, 'y'}, {"lock-fd", 1, 0, 'k'}, {"config", 1, 0, 'c'},
		{"rails", 1, 0, 'R'}, {"eager", 1, 0, 'e'}, {"log", 1, 0, 'L'}, {"abi", 1, 0, 'a'},
		{"nodelist-fd", 1, 0, 'N'}, {"listen-fd", 1, 0, 'S'},
		{"help", 0, 0, 'h'}, {"version", 0, 0, 'V'}, {0, 0, 0, 0}};
	struct node_opts *o = &n->o;
	char *list = NULL;
	int c, at = 0;

	o->token_fd = o->listen_fd = n->lock_fd = -1;
	o->ready_fd = find_ready_fd(argc, argv);
	opterr = 0;
	o->rails = -1;
	o->uid = getuid();
	o->gid = getgid();
	while ((c = getopt_long(argc, argv, "hV", longs, &at)) != -1) {
		const char *name = longs[at].name;

		switch (c) {
		case 'j':
			o->job = number(n, name, optarg);
			break;
		case 'r':
			o->restart = number(n, name, optarg);
			break;
		case 'i':
			o->self = number(n, name, optarg);
			break;
		case 'n':
			o->nodes = number(n, name, optarg);
			break;
		case 'l':
			list = optarg;
			break;
		case 'N':
			list = names_read((int)number(n, name, optarg));
			break;
		case 'S':
			o->listen_fd = (int)number(n, name, optarg);
			break;
		case 'u':
			o->uid = number(n, name, optarg);
			break;
		case 'g':
			o->gid = number(n, name, optarg);
			break;
		case 'd':
			o->run_dir = optarg;
			break;
		case 't':
			o->token_fd = (int)number(n, name, optarg);
			break;
		case 'y':
			o->ready_fd = (int)number(n, name, optarg);
			break;
		case 'k':
			n->lock_fd = (int)number(n, name, optarg);
			break;
		case 'c':
			o->config = optarg;
			break;
		case 'R':
			o->rails = (int)number(n, name, optarg);
			break;
		case 'e':
			break; /* the library's business; accepted so that the plugin may pass all it has */
		case 'L':
			o->log_dir = optarg;
			break;
		case 'a':
			if (number(n, name, optarg) != SHM_ABI)
				refuse(n, "the plugin has ABI version %s", optarg);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		case 'V':
			puts("rcshared " RCS_VERSION);
			exit(0);
		default:
			refuse(n, "%s is not known, or lacks its value", argv[optind - 1]);
		}
	}
	if (!list || !o->run_dir || !o->nodes || o->self >= o->nodes || o->nodes > UINT16_MAX ||
		names_split(o, list))
		refuse(n, "%s", "--nodelist or --nodelist-fd must name --nodes nodes, --node-index one of them, and --run-dir a "
			"folder");
}

/* --- set-up ------------------------------------------------------------------------------------- */

static int read_token(struct node *n, char *why)
{
	size_t got = 0;

	while (n->o.token_fd >= 0 && got < sizeof(n->token)) {
		ssize_t r = read(n->o.token_fd, n->token + got, sizeof(n->token) - got);

		if (r <= 0 && !(r < 0 && errno == EINTR))
			break;
		if (r > 0)
			got += (size_t)r;
	}
	if (got != sizeof(n->token)) {
		snprintf(why, SHM_SENTENCE, "the plugin sent no job token: check key_file in rcshare.conf, and slurmd's log");
		return -EINVAL;
	}
	close(n->o.token_fd);
	return 0;
}

static int table_make(struct node *n, char *why)
{
	n->table_size = sizeof(*n->table) + n->o.nodes * sizeof(struct shm_node);
	n->table_fd = memfd_create("rcshare-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (n->table_fd < 0 || ftruncate(n->table_fd, (off_t)n->table_size))
		goto fail;
	n->table = mmap(NULL, n->table_size, PROT_READ | PROT_WRITE, MAP_SHARED, n->table_fd, 0);
	if (n->table == MAP_FAILED)
		goto fail;
	/* Whoever maps it from now on can only read. */
	fcntl(n->table_fd, F_ADD_SEALS,
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	n->table->magic = SHM_MAGIC;
	n->table->abi = SHM_ABI;
	n->table->job = n->o.job;
	n->table->restart = n->o.restart;
	n->table->node = n->o.self;
	n->table->nodes = n->o.nodes;
	n->table->rails = n->rails;
	for (uint32_t i = 0; i < n->o.nodes; i++) {
		snprintf(n->table->node_tab[i].host, sizeof(n->table->node_tab[i].host), "%s",
			n->o.names[i]);
		n->table->node_tab[i].lane = SHM_LANE_NONE;
	}
	n->table->node_tab[n->o.self].state = SHM_NODE_SELF;
	return 0;
fail:
	snprintf(why, SHM_SENTENCE, "no shared memory for the table: %s", strerror(errno));
	return -ENOMEM;
}

/* What the first link will pin: a limit below that is told now, to whoever started the step. */
static int memlock_check(struct node *n, char *why)
{
	struct verbs_buf *b = n->rails ? verbs_buf_new(n->vb, NODE_LINK_PINNED) : NULL;

	if (n->rails && !b) {
		snprintf(why, SHM_SENTENCE, "cannot pin %u bytes on each rail: %s; " NODE_MEMLOCK_ADVICE,
			NODE_LINK_PINNED, strerror(errno));
		return -ENOMEM;
	}
	if (b)
		verbs_buf_free(b);
	return 0;
}

static int set_up(struct node *n, char *why)
{
	struct verbs_ops ops = link_verbs_ops;
	const char *env = getenv("RCSHARE_LOG_LEVEL");
	char path[256], pid[16], quoted[64];
	struct work_queue *log_queue;
	struct config_error ce;
	int fd;

	config_default(&n->cfg);
	/* The plugin reads the same file where plugstack.conf names none. */
	if (!n->o.config && access(CONFIG_PATH_DEFAULT, F_OK) == 0)
		n->o.config = CONFIG_PATH_DEFAULT;
	if (n->o.config && config_load(n->o.config, &n->cfg, &ce)) {
		snprintf(why, SHM_SENTENCE, "%.190s", ce.text);
		return -EINVAL;
	}
	if (env) {
		snprintf(quoted, sizeof(quoted), "\"%.60s\"", env);
		config_set(&n->cfg, "log_level", quoted, &ce);
	}
	if (n->o.rails >= 0 && (!n->cfg.nrails || (uint32_t)n->o.rails < n->cfg.nrails))
		n->cfg.nrails = n->cfg.nrails ? (uint32_t)n->o.rails : 0;
	if (read_token(n, why))
		return -EINVAL;
	n->epfd = epoll_create1(EPOLL_CLOEXEC);
	n->works = works_open(n);
	n->link = calloc(n->o.nodes, sizeof(*n->link));
	if (n->epfd < 0 || !n->works || !n->link) {
		snprintf(why, SHM_SENTENCE, "out of memory");
		return -ENOMEM;
	}
	n->next_epoch = (uint32_t)(node_utc() / 1000000) | 1;
	while (!n->incarnation)
		if (getrandom(&n->incarnation, sizeof(n->incarnation), 0) < 0)
			n->incarnation = n->next_epoch;
	ops.arg = n;
	if (n->o.rails == 0)
		snprintf(n->verbs_why, sizeof(n->verbs_why), "the job asked for rails=0");
	else if (verbs_open(&n->vb, &n->cfg, n->o.nodes - 1, &ops, n->verbs_why, sizeof(n->verbs_why))) {
		snprintf(why, SHM_SENTENCE, "%.190s", n->verbs_why);
		return -ENODEV;
	}
	n->rails = n->vb ? verbs_rails(n->vb) : 0;
	if (n->o.rails >= 0 && n->rails > (unsigned)n->o.rails)
		n->rails = (unsigned)n->o.rails;
	if (n->vb)
		verbs_offer(n->vb, n->rails);
	if (memlock_check(n, why) || addr_own(n, why) || tcp_listen(n, why) || table_make(n, why))
		return -EIO;
	evlog_open(&n->log, n->o.log_dir ? n->o.log_dir : n->cfg.log_dir, n->o.job, n->o.restart,
		n->o.self, n->o.names[n->o.self], n->cfg.log_max_bytes);
	log_queue = work_queue_open(n->works, "log");
	if (!log_queue) {
		snprintf(why, SHM_SENTENCE, "out of memory");
		return -ENOMEM;
	}
	evlog_queue(&n->log, log_queue);
	for (unsigned r = 0; r < n->rails; r++)
		evlog_rail(&n->log, r, verbs_rail_name(n->vb, r));
	place_thread(n->cfg.cpus, n->vb ? verbs_rail_name(n->vb, 0) : NULL);
	if (ctl_open(n, why))
		return -EIO;
	if (n->o.listen_fd >= 0) /* the run dir is root's: the plugin writes it */
		return 0;
	snprintf(path, sizeof(path), "%.200s/pid", n->o.run_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (fd < 0 || write(fd, pid, strlen(pid)) < 0) {
		snprintf(why, SHM_SENTENCE, "cannot write the pid file in the run dir: %s", strerror(errno));
		return -EIO;
	}
	close(fd);
	return 0;
}

/* --- the loop ----------------------------------------------------------------------------------- */

static void signal_ready(struct node *n, struct watch *w, uint32_t events)
{
	struct signalfd_siginfo si;

	(void)events;
	if (read(w->fd, &si, sizeof(si)) > 0) {
		n->stop = true;
		n->stop_why = "asked to end";
	}
}

/* A fd that only ends the sleep: each turn looks at what is behind it. */
static void wakes(struct node *n, struct watch *w, uint32_t events)
{
	(void)w;
	(void)events;
	n->work = true;
}

static void async_ready(struct node *n, struct watch *w, uint32_t events)
{
	(void)w;
	(void)events;
	verbs_async(n->vb);
	n->work = true;
}

/* Ranks see by it that what they had registered is not on the rail's device, and register it again. */
static void rails_publish(struct node *n)
{
	for (unsigned r = 0; r < n->rails; r++)
		atomic_store_explicit(&n->table->rail_epoch[r], verbs_rail_epoch(n->vb, r), memory_order_release);
}

/* Device files come and go with their devices. */
static void verbs_watch(struct node *n)
{
	static struct watch w[2 * WIRE_RAILS_MAX], carrier = {.ready = async_ready}, work = {.ready = wakes};
	static unsigned have, version = ~0u;
	int fds[2 * WIRE_RAILS_MAX];

	if (!n->vb || version == verbs_fds_version(n->vb))
		return;
	if (version == ~0u && verbs_carrier_fd(n->vb) >= 0) {
		carrier.fd = verbs_carrier_fd(n->vb);
		node_watch(n, &carrier, EPOLLIN);
	}
	if (version == ~0u) {
		work.fd = verbs_work_fd(n->vb);
		node_watch(n, &work, EPOLLIN);
	}
	version = verbs_fds_version(n->vb);
	rails_publish(n);
	/* verbs.c owns them, and closes those that went in the next verbs_poll() */
	for (unsigned i = 0; i < have; i++)
		epoll_ctl(n->epfd, EPOLL_CTL_DEL, w[i].fd, NULL);
	have = verbs_fds(n->vb, fds);
	for (unsigned i = 0; i < have; i++) {
		w[i] = (struct watch){.fd = fds[i], .ready = i % 2 ? async_ready : wakes};
		node_watch(n, &w[i], EPOLLIN);
	}
}

/* A disk that is full costs records, never traffic; the admin hears of it once until it is over. */
static void log_check(struct node *n)
{
	static bool told;
	struct evlog_state s;

	evlog_state(&n->log, &s);
	if (s.dropped && !told)
		node_log(n, CONFIG_LOG_WARN, "records of the event log are lost: %s; make room there, or set "
			"log_dir and log_max_bytes in rcshare.conf", s.error);
	told = s.dropped;
}

static void tick(struct node *n)
{
	struct stat st;

	if (n->now < n->tick_at)
		return;
	n->tick_at = n->now + TICK_NS;
	if (n->vb)
		verbs_tick(n->vb, n->now);
	tcp_tick(n);
	ctl_tick(n);
	contact_tick(n);
	region_tick(n);
	loan_tick(n);
	key_tick(n);
	event_held(n);
	ctl_eager_check(n);
	log_check(n);
	job_tick(n);
	if (stat(n->o.run_dir, &st) < 0 && errno == ENOENT) {
		n->stop = true;
		n->stop_why = "the run dir is gone";
	}
}

static uint64_t next_deadline(const struct node *n)
{
	uint64_t d = n->tick_at, m = member_deadline(n);

	if (m < d)
		d = m;

	for (const struct link *l = n->links; l; l = l->next)
		if (l->deadline < d)
			d = l->deadline;
	for (const struct chan *c = n->chans; c; c = c->next)
		if (c->eager_deadline && c->eager_deadline < d)
			d = c->eager_deadline;
	return d;
}

static void loop(struct node *n)
{
	uint64_t spin = (uint64_t)n->cfg.spin_us * 1000, last_work = 0, last_io = 0;

	while (!n->stop) {
		n->now = node_clock();
		n->work = false;
		verbs_watch(n);
		if (n->vb && verbs_poll(n->vb, 64) > 0)
			n->work = true;
		node_did(n, "completions");
		if (works_turn(n->works))
			n->work = true;
		node_did(n, "what threads have ended");
		for (struct chan *c = n->chans, *next; c; c = next) {
			next = c->next;
			if (chan_poll(n, c))
				n->work = true;
		}
		node_did(n, "records of ranks");
		member_turn(n);
		node_did(n, "membership");
		link_turn(n);
		node_did(n, "links");
		rma_pump_local(n);
		chan_flush(n);
		chan_reap(n);
		detach_turn(n);
		node_did(n, "channels");
		tick(n);
		node_did(n, "what is done once a second");
		if (n->work) {
			last_work = n->now;
			/* Sockets get their turn also while rings and queues keep us busy. */
			if (n->now - last_io > 50000) {
				last_io = n->now;
				node_wait(n, 0);
			}
			continue;
		}
		if (n->now - last_work < spin) {
			sched_yield();
			node_wait(n, 0);
			continue;
		}
		if (chan_arm(n) || (n->vb && verbs_arm(n->vb)))
			continue;
		node_wait(n, next_deadline(n));
		last_io = n->now;
	}
}

static void tear_down(struct node *n)
{
	char path[256];

	ctl_close(n);
	tcp_close_all(n);
	while (n->links) {
		struct link *l = n->links;

		n->links = l->next;
		link_free(l);
	}
	if (n->vb)
		verbs_close(n->vb);
	evlog_close(&n->log);
	works_close(n->works, WORKS_END_MS);
	log_check(n);
	snprintf(path, sizeof(path), "%.200s/pid", n->o.run_dir);
	unlink(path);
}

int main(int argc, char **argv)
{
	static struct node n;
	static struct watch sig = {.ready = signal_ready}, works = {.ready = wakes};
	char why[SHM_SENTENCE + 64] = "";
	sigset_t set;

	/* What is in its memory and descriptors, the token and all ranks' keys, no other process of the user may look at. */
#ifndef __SANITIZE_ADDRESS__ /* it looks for leaks by attaching to itself */
	prctl(PR_SET_DUMPABLE, 0);
#endif
	options(&n, argc, argv);
	node_log_open("/dev/log");
	prctl(PR_SET_NAME, "rcshared");
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	n.no_member = NODE_NONE;
	n.now = n.started_at = node_clock();
	if (n.lock_fd >= 0)
		fcntl(n.lock_fd, F_SETFD, FD_CLOEXEC);
	if (set_up(&n, why)) {
		fprintf(stderr, "rcshared: %s\n", why);
		node_log(&n, CONFIG_LOG_ERROR, "%s", why);
		say(&n, "error: %s\n", why);
		return 1;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sig.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	node_watch(&n, &sig, EPOLLIN);
	works.fd = works_fd(n.works);
	node_watch(&n, &works, EPOLLIN);
	node_log(&n, CONFIG_LOG_INFO, "job %u.%u node %u of %u, %u rails%s%s", n.o.job, n.o.restart,
		n.o.self, n.o.nodes, n.rails, n.rails ? "" : ": ", n.rails ? "" : n.verbs_why);
	if (n.rails && verbs_carrier_fd(n.vb) < 0)
		node_log(&n, CONFIG_LOG_INFO, "no netlink here: carriers are known by the devices' events alone");
	for (unsigned r = 0; r < n.rails; r++)
		if (verbs_rail_ok(n.vb, r) && verbs_rail_datagrams(n.vb, r))
			node_log(&n, CONFIG_LOG_WARN, "no UD queue pair on %s, so no probes: %s",
				verbs_rail_name(n.vb, r), strerror(-verbs_rail_datagrams(n.vb, r)));
	say(&n, "%s\n", "ready");
	loop(&n);
	node_log(&n, CONFIG_LOG_INFO, "job %u.%u ends: %s", n.o.job, n.o.restart, n.stop_why ? n.stop_why : "no random numbers for a handshake");
	tear_down(&n);
	return 0;
}
