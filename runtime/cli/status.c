/* SPDX-License-Identifier: BSD-3-Clause */
/* `rcshare status`: asks the job's daemon on this node; README.md has the answer's layout. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"
#include "shm/channel.h"

#define STATUS_WAIT_S	3
#define STATUS_SIZE_MAX (64u << 20)
#define TCP_LANE	WIRE_RAILS_MAX

static void usage(FILE *out)
{
	fputs("usage: rcshare status JOB[.RESTART] [--json]\n"
	      "\n"
	      "Shows the job's connections on this node. RESTART is the job's restart count; without\n"
	      "it the latest that runs here is taken.\n"
	      "\n"
	      "  --json      the daemon's whole answer\n",
		out);
}

static const char *run_dir(void)
{
	const char *dir = secure_getenv("RCSHARE_RUN_DIR");

	return dir && *dir ? dir : CLI_RUN_DIR;
}

/* The latest restart of job here, -1: none. Fills jobs with what is here, for the message. */
static int64_t find_restart(uint32_t job, char *jobs, size_t size)
{
	DIR *d = opendir(run_dir());
	struct dirent *de;
	int64_t best = -1, restart;
	size_t used = 0;
	uint32_t j;

	jobs[0] = '\0';
	while (d && (de = readdir(d))) {
		if (cli_job_parse(de->d_name, &j, &restart) || restart < 0)
			continue;
		if (j == job && restart > best)
			best = restart;
		if (used < size)
			used += (size_t)snprintf(jobs + used, size - used, "%s%s", used ? ", " : "",
				de->d_name);
	}
	if (d)
		closedir(d);
	return best;
}

static int no_job(const char *name, const char *jobs)
{
	if (*jobs)
		return cli_fail(CLI_NO, "job %s has no rcshare daemon on this node; here are: %s", name,
			jobs);
	return cli_fail(CLI_NO,
		"job %s has no rcshare daemon on this node, nor has any other job; ask on one of the "
		"job's nodes (`srun --jobid=%.*s --overlap rcshare status %s`)",
		name, (int)strcspn(name, "."), name, name);
}

/* `path`: the job's socket, or its folder where a release before has given that to the user. */
static int not_allowed(const char *path)
{
	struct stat st;
	struct passwd *pw = NULL;

	if (!stat(path, &st))
		pw = getpwuid(st.st_uid);
	return cli_fail(CLI_NO, "%s belongs to %s: only its owner and root may look", path,
		pw ? pw->pw_name : "another user");
}

static int ask(const char *path, int *answer)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct timeval wait = {.tv_sec = STATUS_WAIT_S};
	struct shm_msg msg = {.type = SHM_MSG_STATUS, .abi = SHM_ABI};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(4 * sizeof(int))];
	} ctl;
	struct iovec iov = {.iov_base = &msg, .iov_len = sizeof(msg)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl,
		.msg_controllen = sizeof(ctl)};
	int s, fd = -1, code;
	ssize_t n;

	if (strlen(path) >= sizeof(sun.sun_path))
		return cli_fail(CLI_USAGE, "%s is too long for a socket", path);
	strcpy(sun.sun_path, path);
	s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return cli_fail(CLI_DAEMON, "cannot make a socket: %s", strerror(errno));
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (connect(s, (struct sockaddr *)&sun, sizeof(sun))) {
		code = errno == EACCES ? not_allowed(path) :
			cli_fail(CLI_DAEMON, "cannot reach the daemon at %s: %s%s", path, strerror(errno),
				errno == ECONNREFUSED || errno == ENOENT ? " (it has ended)" : "");
		goto out;
	}
	if (send(s, &msg, sizeof(msg), MSG_NOSIGNAL) != (ssize_t)sizeof(msg)) {
		code = cli_fail(CLI_DAEMON, "cannot ask the daemon: %s", strerror(errno));
		goto out;
	}
	n = recvmsg(s, &mh, MSG_CMSG_CLOEXEC);
	if (n < 0) {
		code = cli_fail(CLI_DAEMON, "the daemon did not answer within %d s: %s", STATUS_WAIT_S,
			strerror(errno));
		goto out;
	}
	for (struct cmsghdr *c = n ? CMSG_FIRSTHDR(&mh) : NULL; c; c = CMSG_NXTHDR(&mh, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && fd < 0)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	if (n < (ssize_t)sizeof(msg) || msg.type != SHM_MSG_STATUS) {
		code = cli_fail(CLI_DAEMON, "the daemon at %s did not answer the question for its status; it is "
			"of another release, or something else listens there", path);
	} else if (msg.status) {
		msg.sentence[sizeof(msg.sentence) - 1] = '\0';
		code = cli_fail(CLI_DAEMON, "the daemon says: %s",
			msg.sentence[0] ? msg.sentence : strerror(-msg.status));
	} else if (msg.abi != SHM_ABI) {
		code = cli_fail(CLI_DAEMON, "the daemon has ABI %u, this command %u; use its release's",
			msg.abi, SHM_ABI);
	} else if (fd < 0) {
		code = cli_fail(CLI_DAEMON, "the daemon's answer came without its text");
	} else {
		*answer = fd;
		fd = -1;
		code = CLI_OK;
	}
	if (fd >= 0)
		close(fd);
out:
	close(s);
	return code;
}

static json_t *read_answer(int fd)
{
	json_error_t je;
	struct stat st;
	json_t *o = NULL;
	char *text;
	ssize_t n;

	/* Memory, as the daemon sends it: reading another file might wait for somebody. */
	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) || st.st_size <= 0 ||
		st.st_size > (off_t)STATUS_SIZE_MAX)
		return NULL;
	text = malloc((size_t)st.st_size);
	if (!text)
		return NULL;
	n = pread(fd, text, (size_t)st.st_size, 0);
	while (n > 0 && !text[n - 1]) /* a mapping may be padded */
		n--;
	if (n > 0)
		o = json_loadb(text, (size_t)n, 0, &je);
	free(text);
	return o;
}

/* All texts of the answer, before one of them is printed. jansson's own depth limit bounds this one. */
static void clean_answer(json_t *v)
{
	const char *key;
	char *text;
	json_t *e;
	size_t i;

	json_object_foreach(v, key, e)
		clean_answer(e);
	json_array_foreach(v, i, e)
		clean_answer(e);
	text = json_is_string(v) ? cli_clean(strdup(json_string_value(v))) : NULL;
	if (text)
		json_string_set(v, text);
	free(text);
}

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static void number_cell(struct cli_table *t, const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	if (json_is_integer(v))
		cli_table_cell(t, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else
		cli_table_cell(t, "-");
}

static const char *lane_name(const json_t *root, const json_t *lane, char buf[64])
{
	json_t *rail;
	size_t i;

	if (!json_is_integer(lane))
		return "-";
	if (json_integer_value(lane) == TCP_LANE)
		return "tcp";
	json_array_foreach(json_object_get(root, "rails"), i, rail)
	{
		const json_t *index = json_object_get(rail, "index");

		if ((index ? json_integer_value(index) : (json_int_t)i) == json_integer_value(lane) &&
			json_is_string(json_object_get(rail, "name"))) {
			snprintf(buf, 64, "%s", str(rail, "name"));
			return buf;
		}
	}
	snprintf(buf, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(lane));
	return buf;
}

/* Rails of this node that a peer has no counterpart of. */
static void print_absent(const json_t *nodes)
{
	const json_t *o, *lane;
	size_t i, k;

	json_array_foreach(nodes, i, o)
		json_array_foreach(json_object_get(o, "lanes"), k, lane)
			if (!strcmp(str(lane, "state"), "not at the peer"))
				printf("%s is not at the peer %s\n", str(lane, "lane"), str(o, "host"));
}

static void lanes_cell(struct cli_table *t, const json_t *root, const json_t *lanes)
{
	char all[192] = "", name[64];
	size_t i, used = 0;
	json_t *lane;

	json_array_foreach(lanes, i, lane)
		if (used < sizeof(all))
			used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", used ? "," : "",
				lane_name(root, lane, name));
	cli_table_cell(t, "%s", all[0] ? all : "-");
}

/* For as long the daemon looked after nothing else; a part of node_timeout_ms is worth a word. */
#define TURN_TOLD_NS 50000000

static void print_turn(const json_t *turn)
{
	json_int_t ns = json_integer_value(json_object_get(turn, "ns"));
	json_int_t ago = json_integer_value(json_object_get(turn, "ago_ns"));
	char took[32], past[32];

	if (ns < TURN_TOLD_NS || ago < 0)
		return;
	cli_duration(took, (uint64_t)ns);
	cli_duration(past, (uint64_t)ago);
	printf("longest turn of the daemon's loop: %s (%s), %s ago\n", took, str(turn, "did"), past);
}

static void print_left_out(const json_t *root)
{
	json_t *what;
	size_t i;

	json_array_foreach(json_object_get(root, "left_out"), i, what)
		printf("left out: %s\n", json_is_string(what) ? json_string_value(what) : "?");
}

/* Rails that do not meet the one of their own number, or none; nothing where all is as one expects. */
static void print_pairs(const json_t *root, const json_t *node)
{
	json_t *rails = json_object_get(root, "rails"), *lanes = json_object_get(node, "lanes"), *o, *rail;
	char line[512];
	size_t i, k, at = 0;
	bool plain = true;

	json_array_foreach(lanes, i, o)
	{
		json_t *meets = json_object_get(o, "meets");

		if (!json_is_integer(meets) || at >= sizeof(line))
			continue;
		json_array_foreach(rails, k, rail)
			plain &= strcmp(str(rail, "name"), str(o, "lane")) ||
				json_integer_value(json_object_get(rail, "index")) == json_integer_value(meets);
		at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s meets rail %" JSON_INTEGER_FORMAT, at ? ", " : "",
			str(o, "lane"), json_integer_value(meets));
	}
	json_array_foreach(json_object_get(node, "unmet"), i, o)
	{
		plain = false;
		if (at < sizeof(line))
			at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s meets none", at ? ", " : "",
				json_is_string(o) ? json_string_value(o) : "?");
	}
	if (!plain)
		printf("towards %s: %s\n", str(node, "host"), line);
}

static int print_table(const json_t *root)
{
	static const char *const head[] = {"NODE", "HOST", "STATE", "LANE", "UP", "FAILOVERS", "SENT",
		"RECEIVED", "RESENT", "BACKLOG"};
	struct cli_table *t = cli_table_new(10, head);
	json_t *nodes = json_object_get(root, "nodes"), *o, *rail;
	char buf[64], up[32] = "?";
	size_t i;

	if (!t)
		return cli_fail(CLI_NO, "out of memory");
	if (json_is_integer(json_object_get(root, "uptime_ns")))
		cli_duration(up, (uint64_t)json_integer_value(json_object_get(root, "uptime_ns")));
	printf("job %" JSON_INTEGER_FORMAT ".%" JSON_INTEGER_FORMAT " on %s (node %" JSON_INTEGER_FORMAT
	       "), rcshared %s, up %s, %" JSON_INTEGER_FORMAT " endpoints attached, %"
	       JSON_INTEGER_FORMAT " failovers\n",
		json_integer_value(json_object_get(root, "job")),
		json_integer_value(json_object_get(root, "restart")), str(root, "host"),
		json_integer_value(json_object_get(root, "node")), str(root, "version"), up,
		json_integer_value(json_object_get(root, "ranks")),
		json_integer_value(json_object_get(root, "failovers")));
	if (json_integer_value(json_object_get(root, "standby")) > 0)
		printf("%" JSON_INTEGER_FORMAT " ranks stand by\n",
			json_integer_value(json_object_get(root, "standby")));
	printf("rails:");
	json_array_foreach(json_object_get(root, "rails"), i, rail)
		printf(" %s%s", str(rail, "name"),
			json_is_false(json_object_get(rail, "ok")) ? " (failed)" : "");
	printf("%s\n", json_array_size(json_object_get(root, "rails")) ? "" : " none, TCP only");
	print_left_out(root);
	if (json_integer_value(json_object_get(root, "log_dropped")) > 0)
		printf("log: %" JSON_INTEGER_FORMAT " records lost%s%s\n",
			json_integer_value(json_object_get(root, "log_dropped")),
			*str(root, "log_error") ? ", now: " : "", str(root, "log_error"));
	print_turn(json_object_get(root, "longest_turn"));
	putchar('\n');
	json_array_foreach(nodes, i, o)
	{
		number_cell(t, o, "node");
		cli_table_cell(t, "%s", str(o, "host"));
		cli_table_cell(t, "%s", str(o, "state"));
		cli_table_cell(t, "%s", lane_name(root, json_object_get(o, "lane"), buf));
		lanes_cell(t, root, json_object_get(o, "lanes_up"));
		number_cell(t, o, "failovers");
		number_cell(t, o, "tx_frames");
		number_cell(t, o, "rx_frames");
		number_cell(t, o, "resent");
		number_cell(t, o, "backlog");
	}
	cli_table_print(t, stdout);
	cli_table_free(t);
	json_array_foreach(nodes, i, o)
		print_pairs(root, o);
	json_array_foreach(nodes, i, o)
		if (json_object_get(o, "no_contact"))
			printf("%s\n", str(o, "no_contact"));
	print_absent(nodes);
	return CLI_OK;
}

int cli_status(int argc, char **argv)
{
	static const struct option opts[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	char jobs[1024], dir[256], path[300];
	bool as_json = false;
	int64_t restart, here;
	int c, fd = -1, code;
	uint32_t job;
	json_t *root;

	while ((c = getopt_long(argc, argv, "h", opts, NULL)) != -1) {
		switch (c) {
		case 'j':
			as_json = true;
			break;
		case 'h':
			usage(stdout);
			return CLI_OK;
		default:
			usage(stderr);
			return CLI_USAGE;
		}
	}
	code = cli_job_operand(argc, argv, usage, &job, &restart);
	if (code)
		return code;
	here = find_restart(job, jobs, sizeof(jobs));
	if (restart < 0)
		restart = here;
	if (restart < 0)
		return no_job(argv[optind], jobs);
	snprintf(dir, sizeof(dir), "%s/%u.%" PRId64, run_dir(), job, restart);
	snprintf(path, sizeof(path), "%s/sock", dir);
	if (access(dir, F_OK))
		return no_job(argv[optind], jobs);
	if (access(dir, X_OK))
		return not_allowed(dir);
	code = ask(path, &fd);
	if (code)
		return code;
	root = read_answer(fd);
	close(fd);
	if (!json_is_object(root)) {
		json_decref(root);
		return cli_fail(CLI_DAEMON, "the daemon's answer is no JSON object");
	}
	if (as_json) {
		json_dumpf(root, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
		putchar('\n');
	} else {
		clean_answer(root);
		code = print_table(root);
	}
	json_decref(root);
	return code;
}
