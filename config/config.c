/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/position.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define KiB	 1024ull
#define MiB	 (1024 * KiB)
#define FIELD(f) offsetof(struct config, f), sizeof(((struct config *)0)->f)

/* clang-format off */
const struct config_key config_keys[] = {
	{"rails", CONFIG_T_RAILS, 0, 0, "", "\"auto\"", FIELD(rail),
		"RDMA ports that carry traffic; auto takes those that can make reliable connections over "
		"InfiniBand or RoCE, active ones first, by name and number, at most 4."},
	{"gid_index", CONFIG_T_GID, 0, 255, "", "\"auto\"", FIELD(gid_index),
		"Entry of a port's GID table for rails that do not name their own; auto prefers RoCE v2."},
	{"control_interface", CONFIG_T_NAME, 0, 0, "", "null", FIELD(control_interface),
		"Network interface of the control connections: its address is told to the other nodes, and the "
		"daemon listens there and where the node's NodeAddr or name leads, nowhere else; null takes "
		"NodeAddr or what the name leads to, and listens everywhere."},
	{"control_port", CONFIG_T_PORTS, 1, 65535, "", "0", FIELD(control_port_min),
		"TCP port or range of ports a daemon listens on; 0 takes one of 24576 to 28671 that follows "
		"from the job's id."},
	{"path_mtu", CONFIG_T_MTU, 256, 4096, "bytes", "\"auto\"", FIELD(path_mtu),
		"Path MTU of RC connections; auto takes the smaller one of the two ports."},
	{"traffic_class", CONFIG_T_UINT, 0, 255, "", "0", FIELD(traffic_class),
		"Traffic class of the packets of RC connections: on RoCE v2 the DSCP in its upper six bits, "
		"which switches map to a lossless class."},
	{"service_level", CONFIG_T_UINT, 0, 15, "", "0", FIELD(service_level),
		"Service level of RC connections: on InfiniBand the SL, which the subnet manager's routing asks "
		"for; on RoCE the priority of a VLAN."},
	{"pkey", CONFIG_T_UINT, 0, 65535, "", "0", FIELD(pkey),
		"P_Key of the partition on InfiniBand, with or without its membership bit; 0 takes the first entry "
		"of the port's table with full membership."},
	{"max_outstanding_reads", CONFIG_T_AUTO, 1, 128, "requests", "\"auto\"",
		FIELD(max_outstanding_reads),
		"RDMA READs in flight on a connection; auto takes what both devices can do."},
	{"rc_timeout", CONFIG_T_UINT, 8, 22, "", "14", FIELD(rc_timeout),
		"Acknowledgement timeout of RC connections as the exponent n of 4.096 us times 2^n."},
	{"rc_retry_cnt", CONFIG_T_UINT, 1, 6, "", "6", FIELD(rc_retry_cnt),
		"Retries of RC connections; 7 is refused because some devices then retry for ever."},
	{"rc_min_rnr_timer", CONFIG_T_UINT, 1, 31, "", "12", FIELD(rc_min_rnr_timer),
		"Code of the time a sender waits when no receive was posted; 12 is 0.64 ms."},
	{"tcp_user_timeout_ms", CONFIG_T_UINT, 100, 600000, "milliseconds", "3000",
		FIELD(tcp_user_timeout_ms),
		"Unacknowledged bytes for so long end a TCP connection."},
	{"selftest", CONFIG_T_SWITCH, 0, 0, "", "\"on\"", FIELD(selftest),
		"The daemon tests at its start whether each rail's device counts in rq_psn what it has executed, and "
		"executes nothing behind a flush; for a device that has not passed, peers write a counter into its memory "
		"behind their puts."},

	{"eager_max", CONFIG_T_UINT, 64, 4096, "bytes", "4096", FIELD(eager_max),
		"Longest message that is sent whole; longer ones are fetched or pushed in pieces."},
	{"zcopy_min", CONFIG_T_UINT, 4096, 1u << 30, "bytes", "65536", FIELD(zcopy_min),
		"From this length on messages are fetched by RDMA READ out of the sender's memory."},
	{"read_chunk", CONFIG_T_UINT, 4096, 1u << 28, "bytes", "262144", FIELD(read_chunk),
		"Longest single RDMA READ of a large message."},
	{"receive_ring", CONFIG_T_POW2, 64 * KiB, 1u << 30, "bytes", "1048576", FIELD(receive_ring),
		"Receive ring of an endpoint."},
	{"submit_ring", CONFIG_T_POW2, 64 * KiB, 1u << 30, "bytes", "262144", FIELD(submit_ring),
		"Submission ring of an endpoint."},
	{"frame_depth_initial", CONFIG_T_UINT, 2, 128, "frames", "16", FIELD(frame_depth_initial),
		"Receives posted on a connection until it is used."},
	{"frame_depth", CONFIG_T_UINT, 2, 128, "frames", "64", FIELD(frame_depth),
		"Receives posted on a connection that is used."},
	{"ack_delay_us", CONFIG_T_UINT, 0, 100000, "microseconds", "200", FIELD(ack_delay_us),
		"Longest wait for a frame that can carry an acknowledgement."},

	{"stall_ask_ms", CONFIG_T_UINT, 1, 60000, "milliseconds", "50", FIELD(stall_ask_ms),
		"No progress on a connection for so long: the peer is asked over another one, and by probes."},
	{"stall_hard_ms", CONFIG_T_UINT, 1, 60000, "milliseconds", "250", FIELD(stall_hard_ms),
		"No progress for so long though the peer answers elsewhere: traffic moves. Half-way to it "
		"when probes are lost."},
	{"stall_max_ms", CONFIG_T_UINT, 1, 600000, "milliseconds", "3000", FIELD(stall_max_ms),
		"No progress for so long and no answer either: traffic moves if another path is up."},
	{"keepalive_ms", CONFIG_T_UINT, 10, 600000, "milliseconds", "1000", FIELD(keepalive_ms),
		"A quiet connection is tried this often."},
	{"hold_down_ms", CONFIG_T_UINT, 0, 600000, "milliseconds", "1000", FIELD(hold_down_ms),
		"A failed path is tried again after this time, doubled for each failure in a row."},
	{"hold_down_max_ms", CONFIG_T_UINT, 0, 3600000, "milliseconds", "30000",
		FIELD(hold_down_max_ms),
		"Longest time before a failed path is tried again."},
	{"probes", CONFIG_T_UINT, 0, 100, "", "2", FIELD(probes),
		"Probes that must succeed before a path that returned is opened, and again before it carries "
		"traffic."},
	{"unreachable_ms", CONFIG_T_UINT, 100, 3600000, "milliseconds", "5000", FIELD(unreachable_ms),
		"No path to a node for so long: its peers are told that it is unreachable."},

	{"node_timeout_ms", CONFIG_T_UINT, 0, 600000, "milliseconds", "1000", FIELD(node_timeout_ms),
		"A node that is silent for so long is suspected, and the others decide whether it is "
		"lost; 0 never decides."},
	{"keep_step", CONFIG_T_SWITCH, 0, 0, "", "\"off\"", FIELD(keep_step),
		"A rank that dies does not end its step; the others hear of it and go on. The key "
		"keep_step of --rcshare has precedence; in a step with spares it is on unless that key "
		"says otherwise."},
	{"mark_down", CONFIG_T_SWITCH, 0, 0, "", "\"off\"", FIELD(mark_down),
		"The plugin sets a lost node DOWN in Slurm at once, where slurmctld says that it is a node of "
		"the step and its slurmd does not answer; Slurm then ends all jobs on it, as on any node that is "
		"down."},
	{"tie_breaker", CONFIG_T_TIE, 0, 0, "", "\"none\"", FIELD(tie_breaker),
		"Which of two nodes goes on alone when no others are left and they lose each other: with none the lower, "
		"and the higher stops; with slurmctld the one whose peer Slurm calls DOWN. Not used in a step "
		"with spares."},

	{"spin_us", CONFIG_T_UINT, 0, 1000000, "microseconds", "20", FIELD(spin_us),
		"The daemon looks for work for so long before it sleeps."},
	{"memory_limit_mb", CONFIG_T_NONE, 32, 1u << 24, "MiB", "null", FIELD(memory_limit_mb),
		"Memory limit of the daemon's cgroup; null sets none besides the job's."},
	{"cpu_weight", CONFIG_T_UINT, 1, 10000, "", "100", FIELD(cpu_weight),
		"CPU weight of the daemon's cgroup; 100 is that of any other."},
	{"cpus", CONFIG_T_CPUS, 0, 65535, "", "\"job\"", FIELD(cpus),
		"Cores of the daemon: job for those of the job, or a list like \"0,2-3\"; under cgroup v2 those of "
		"the list that are not the job's are ignored."},
	{"memlock_limit", CONFIG_T_LIMIT, 65536, CONFIG_UNLIMITED - 1, "bytes", "\"unlimited\"",
		FIELD(memlock_limit),
		"RLIMIT_MEMLOCK of the daemon."},
	{"nofile", CONFIG_T_UINT, 256, 1u << 20, "", "65536", FIELD(nofile),
		"RLIMIT_NOFILE of the daemon; slurmd's hard limit where the key is not in the file."},
	{"job_check_s", CONFIG_T_UINT, 1, 86400, "seconds", "300", FIELD(job_check_s),
		"A daemon without ranks asks Slurm (squeue) this often whether its job is still there, and ends when "
		"it is not."},
	{"start_timeout_ms", CONFIG_T_UINT, 100, 600000, "milliseconds", "5000",
		FIELD(start_timeout_ms),
		"A step waits so long for its daemon to be ready; timeout= in plugstack.conf has precedence."},
	{"key_file", CONFIG_T_FILE, 0, 0, "", "null", FIELD(key_file),
		"The cluster's secret, of which job tokens are made; null takes munge.key, or slurm.key or "
		"slurm.jwks where slurm.conf's AuthType is auth/slurm."},

	{"log_dir", CONFIG_T_PATH, 0, 0, "", "\"/var/log/rcshare\"", FIELD(log_dir),
		"Folder of the event logs; each job gets a folder of its own there."},
	{"log_max_bytes", CONFIG_T_U64, 4 * KiB, 1ull << 40, "bytes", "16777216", FIELD(log_max_bytes),
		"Largest event log of a job on a node; later records are counted, not written."},
	{"log_level", CONFIG_T_LEVEL, 0, 0, "", "\"info\"", FIELD(log_level),
		"How much the daemon says."},
};
/* clang-format on */
const size_t config_nkeys = COUNT(config_keys);

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const switch_names[] = {"off", "on"};
static const char *const tie_names[] = {"none", "slurmctld"};
static const char *const gid_type_names[] = {"any", "ib", "rocev1", "rocev2"};
static const char *const rail_members[] = {"device", "port", "gid_index", "gid_type"};

const char *config_log_level_name(uint32_t level)
{
	return level < COUNT(level_names) ? level_names[level] : "?";
}

const char *config_gid_type_name(uint32_t type)
{
	return type < COUNT(gid_type_names) ? gid_type_names[type] : "?";
}

/* --- errors -------------------------------------------------------------------------------- */

struct source {
	const char *file, *text;
	size_t len;
	size_t path[3]; /* of the value at hand, for its line */
	size_t depth;
	struct config_error *err;
};

static void error_text(struct config_error *err)
{
	if (err->line)
		snprintf(err->text, sizeof(err->text), "%s:%u: %s", err->file, err->line, err->reason);
	else
		snprintf(err->text, sizeof(err->text), "%s: %s", err->file, err->reason);
}

__attribute__((format(printf, 2, 3))) static int refuse(const struct source *s, const char *fmt, ...)
{
	va_list ap;

	snprintf(s->err->file, sizeof(s->err->file), "%s", s->file);
	s->err->line = s->depth ? config_position_line(s->text, s->len, s->path, s->depth) : 0;
	va_start(ap, fmt);
	vsnprintf(s->err->reason, sizeof(s->err->reason), fmt, ap);
	va_end(ap);
	error_text(s->err);
	return -EINVAL;
}

/* Number of edits between two names (Levenshtein); names of the table are short. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64], n = strlen(b);

	if (n >= COUNT(row))
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diag = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t best = diag + (a[i - 1] != b[j - 1]);

			diag = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

/* How far a name is from what was written; a missing unit ("stall_ask") is no distance at all. */
static size_t unlikeness(const char *wrong, const char *right)
{
	size_t n = strlen(wrong);

	if (n >= 4 && !strncmp(right, wrong, n))
		return 0;
	return distance(wrong, right);
}

static int refuse_name(const struct source *s, const char *what, const char *wrong,
	const char *best, size_t far, const char *otherwise)
{
	if (best && far <= (strlen(wrong) + 2) / 3)
		return refuse(s, "unknown %s '%.64s'; did you mean '%s'?", what, wrong, best);
	return refuse(s, "unknown %s '%.64s'; %s", what, wrong, otherwise);
}

/* --- values -------------------------------------------------------------------------------- */

const char *config_key_range(const struct config_key *k, char *buf, size_t len)
{
	char num[96], unit[32];

	snprintf(unit, sizeof(unit), "%s%s", *k->unit ? " " : "", k->unit);
	snprintf(num, sizeof(num), "a number from %" PRIu64 " to %" PRIu64 "%s", k->min, k->max, unit);
	switch (k->type) {
	case CONFIG_T_UINT:
	case CONFIG_T_U64:
		snprintf(buf, len, "%s", num);
		break;
	case CONFIG_T_POW2:
		snprintf(buf, len, "a power of two from %" PRIu64 " to %" PRIu64 "%s", k->min, k->max,
			unit);
		break;
	case CONFIG_T_AUTO:
	case CONFIG_T_GID:
		snprintf(buf, len, "%s, or \"auto\"", num);
		break;
	case CONFIG_T_MTU:
		snprintf(buf, len, "256, 512, 1024, 2048 or 4096%s, or \"auto\"", unit);
		break;
	case CONFIG_T_NONE:
		snprintf(buf, len, "%s, or null", num);
		break;
	case CONFIG_T_LIMIT:
		snprintf(buf, len, "a number of%s, at least %" PRIu64 ", or \"unlimited\"", unit, k->min);
		break;
	case CONFIG_T_NAME:
		snprintf(buf, len, "a name of at most %zu characters, or null", k->size - 1);
		break;
	case CONFIG_T_PATH:
		snprintf(buf, len, "an absolute path");
		break;
	case CONFIG_T_FILE:
		snprintf(buf, len, "an absolute path, or null");
		break;
	case CONFIG_T_LEVEL:
		snprintf(buf, len, "\"error\", \"warn\", \"info\" or \"debug\"");
		break;
	case CONFIG_T_SWITCH:
		snprintf(buf, len, "\"on\" or \"off\"");
		break;
	case CONFIG_T_TIE:
		snprintf(buf, len, "\"none\" or \"slurmctld\"");
		break;
	case CONFIG_T_CPUS:
		snprintf(buf, len, "\"job\", or a list of cores like \"0,2-3\"");
		break;
	case CONFIG_T_PORTS:
		snprintf(buf, len, "0, a port, or a range like \"7000-7099\"");
		break;
	case CONFIG_T_RAILS:
		snprintf(buf, len,
			"\"auto\", or a list of 1 to %u rails like {\"device\": \"mlx5_0\", \"port\": 1}",
			CONFIG_RAILS_MAX);
		break;
	}
	return buf;
}

static int refuse_value(const struct source *s, const struct config_key *k, const json_t *v)
{
	char range[160], *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
	int rc;

	rc = refuse(s, "'%s' is %.48s%s; give %s", k->name, text ? text : "?",
		text && strlen(text) > 48 ? "..." : "", config_key_range(k, range, sizeof(range)));
	free(text);
	return rc;
}

static bool number(const json_t *v, uint64_t min, uint64_t max, uint64_t *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	if ((uint64_t)json_integer_value(v) < min || (uint64_t)json_integer_value(v) > max)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

static bool is_word(const json_t *v, const char *word)
{
	return json_is_string(v) && !strcmp(json_string_value(v), word);
}

static void store_number(const struct config_key *k, void *field, uint64_t n)
{
	if (k->size == sizeof(uint64_t))
		memcpy(field, &n, sizeof(n));
	else
		memcpy(field, &(uint32_t){(uint32_t)n}, sizeof(uint32_t));
}

static uint64_t load_number(const struct config_key *k, const void *field)
{
	uint64_t n64 = 0;
	uint32_t n32 = 0;

	if (k->size == sizeof(n64)) {
		memcpy(&n64, field, sizeof(n64));
		return n64;
	}
	memcpy(&n32, field, sizeof(n32));
	return n32;
}

/* A string without control characters that fits. */
static bool text_ok(const char *t, size_t size)
{
	size_t n = strlen(t);

	if (!n || n >= size)
		return false;
	for (; *t; t++)
		if ((unsigned char)*t < ' ' || *t == 0x7f)
			return false;
	return true;
}

static bool name_ok(const char *t, size_t size)
{
	return text_ok(t, size) && !strpbrk(t, "/ ");
}

static bool two_numbers(const char *t, const char **end, unsigned long *lo, unsigned long *hi)
{
	char *e;

	if (*t < '0' || *t > '9')
		return false;
	*hi = *lo = strtoul(t, &e, 10);
	if (*e == '-') {
		if (e[1] < '0' || e[1] > '9')
			return false;
		*hi = strtoul(e + 1, &e, 10);
	}
	*end = e;
	return *lo <= *hi;
}

static bool cpus_ok(const char *t, uint64_t max)
{
	unsigned long lo, hi;

	for (;; t++) {
		if (!two_numbers(t, &t, &lo, &hi) || hi > max)
			return false;
		if (!*t)
			return true;
		if (*t != ',')
			return false;
	}
}

static int parse_ports(const struct source *s, const struct config_key *k, const json_t *v,
	struct config *cfg)
{
	unsigned long lo, hi;
	const char *end;
	uint64_t n;

	if (number(v, 0, k->max, &n)) {
		lo = hi = n;
	} else if (!json_is_string(v) || !two_numbers(json_string_value(v), &end, &lo, &hi) || *end ||
		lo < k->min || hi > k->max) {
		return refuse_value(s, k, v);
	}
	cfg->control_port_min = (uint16_t)lo;
	cfg->control_port_max = (uint16_t)hi;
	return 0;
}

static int parse_rail_member(const struct source *s, const char *name, const json_t *v,
	struct config_rail *r)
{
	uint64_t n;

	if (!strcmp(name, "device")) {
		if (!json_is_string(v) || !name_ok(json_string_value(v), sizeof(r->device)))
			return refuse(s,
				"'device' of a rail must be the name of an RDMA device, as ibv_devices "
				"lists it");
		snprintf(r->device, sizeof(r->device), "%s", json_string_value(v));
	} else if (!strcmp(name, "port")) {
		if (!number(v, 1, 255, &n))
			return refuse(s, "'port' of a rail must be a number from 1 to 255");
		r->port = (uint32_t)n;
	} else if (!strcmp(name, "gid_index")) {
		if (json_is_null(v) || is_word(v, "auto"))
			return 0;
		if (!number(v, 0, 255, &n))
			return refuse(s,
				"'gid_index' of a rail must be a number from 0 to 255, null or \"auto\"");
		r->gid_index = (int32_t)n;
	} else if (!strcmp(name, "gid_type")) {
		if (json_is_null(v))
			return 0;
		for (uint32_t t = 0; t < COUNT(gid_type_names); t++)
			if (is_word(v, gid_type_names[t])) {
				r->gid_type = t;
				return 0;
			}
		return refuse(s, "'gid_type' of a rail must be \"any\", \"ib\", \"rocev1\" or \"rocev2\"");
	} else {
		const char *best = NULL;
		size_t far = SIZE_MAX;

		for (size_t i = 0; i < COUNT(rail_members); i++)
			if (unlikeness(name, rail_members[i]) < far)
				far = unlikeness(name, best = rail_members[i]);
		return refuse_name(s, "member of a rail", name, best, far,
			"known are device, port, gid_index and gid_type");
	}
	return 0;
}

static int parse_rails(struct source *s, const struct config_key *k, const json_t *v,
	struct config *cfg)
{
	struct config_rail rail[CONFIG_RAILS_MAX];
	size_t n = json_array_size(v), depth = s->depth;
	const char *name;
	json_t *member;
	int rc;

	if (is_word(v, "auto")) {
		cfg->nrails = 0;
		memset(cfg->rail, 0, sizeof(cfg->rail));
		return 0;
	}
	if (!json_is_array(v) || n < 1 || n > CONFIG_RAILS_MAX)
		return refuse_value(s, k, v);
	memset(rail, 0, sizeof(rail));
	for (size_t i = 0; i < n; i++) {
		json_t *o = json_array_get(v, i);
		size_t m = 0;

		s->depth = depth;
		s->path[s->depth++] = i;
		if (!json_is_object(o))
			return refuse(s,
				"a rail must be an object like {\"device\": \"mlx5_0\", \"port\": 1}");
		rail[i].port = 1;
		rail[i].gid_index = -1;
		json_object_foreach(o, name, member)
		{
			s->path[s->depth++] = m++;
			rc = parse_rail_member(s, name, member, &rail[i]);
			s->depth--;
			if (rc)
				return rc;
		}
		if (!rail[i].device[0])
			return refuse(s, "a rail needs a 'device', the name of an RDMA device");
		for (size_t j = 0; j < i; j++)
			if (!strcmp(rail[j].device, rail[i].device) && rail[j].port == rail[i].port)
				return refuse(s,
					"'%s' port %u is a rail already; two rails on one port fail "
					"together",
					rail[i].device, rail[i].port);
	}
	s->depth = depth;
	memcpy(cfg->rail, rail, sizeof(rail));
	cfg->nrails = (uint32_t)n;
	return 0;
}

static int parse_value(struct source *s, const struct config_key *k, const json_t *v,
	struct config *cfg)
{
	void *field = (char *)cfg + k->off;
	const char *str = json_string_value(v);
	uint64_t n;

	switch (k->type) {
	case CONFIG_T_RAILS:
		return parse_rails(s, k, v, cfg);
	case CONFIG_T_PORTS:
		return parse_ports(s, k, v, cfg);
	case CONFIG_T_LEVEL:
		for (uint32_t i = 0; i < COUNT(level_names); i++)
			if (is_word(v, level_names[i])) {
				store_number(k, field, i);
				return 0;
			}
		return refuse_value(s, k, v);
	case CONFIG_T_SWITCH:
	case CONFIG_T_TIE:
		for (uint32_t i = 0; i < COUNT(switch_names); i++)
			if (is_word(v, (k->type == CONFIG_T_TIE ? tie_names : switch_names)[i])) {
				store_number(k, field, i);
				return 0;
			}
		return refuse_value(s, k, v);
	case CONFIG_T_NAME:
	case CONFIG_T_FILE:
		if (json_is_null(v)) {
			memset(field, 0, k->size);
			return 0;
		}
		/* fall through */
	case CONFIG_T_PATH:
	case CONFIG_T_CPUS:
		if (!str || !text_ok(str, k->size))
			return refuse_value(s, k, v);
		if (k->type == CONFIG_T_NAME && !name_ok(str, k->size))
			return refuse_value(s, k, v);
		if (k->type == CONFIG_T_CPUS && strcmp(str, "job") && !cpus_ok(str, k->max))
			return refuse_value(s, k, v);
		if ((k->type == CONFIG_T_PATH || k->type == CONFIG_T_FILE) && str[0] != '/')
			return refuse_value(s, k, v);
		memset(field, 0, k->size);
		memcpy(field, str, strlen(str));
		return 0;
	case CONFIG_T_AUTO:
	case CONFIG_T_MTU:
	case CONFIG_T_GID:
		if (is_word(v, "auto")) {
			store_number(k, field, k->type == CONFIG_T_GID ? UINT32_MAX : 0);
			return 0;
		}
		break;
	case CONFIG_T_NONE:
		if (json_is_null(v)) {
			store_number(k, field, 0);
			return 0;
		}
		break;
	case CONFIG_T_LIMIT:
		if (is_word(v, "unlimited")) {
			store_number(k, field, CONFIG_UNLIMITED);
			return 0;
		}
		break;
	case CONFIG_T_UINT:
	case CONFIG_T_U64:
	case CONFIG_T_POW2:
		break;
	}
	if (!number(v, k->min, k->max, &n))
		return refuse_value(s, k, v);
	if ((k->type == CONFIG_T_POW2 || k->type == CONFIG_T_MTU) && (n & (n - 1)))
		return refuse_value(s, k, v);
	store_number(k, field, n);
	return 0;
}

static json_t *value_json(const struct config *cfg, const struct config_key *k)
{
	const void *field = (const char *)cfg + k->off;
	json_t *list, *o;
	char range[16];
	uint64_t n;

	switch (k->type) {
	case CONFIG_T_RAILS:
		if (!cfg->nrails)
			return json_string("auto");
		list = json_array();
		for (uint32_t i = 0; i < cfg->nrails; i++) {
			const struct config_rail *r = &cfg->rail[i];

			o = json_pack("{s:s, s:i}", "device", r->device, "port", (int)r->port);
			json_object_set_new(o, "gid_index",
				r->gid_index < 0 ? json_null() : json_integer(r->gid_index));
			json_object_set_new(o, "gid_type", json_string(config_gid_type_name(r->gid_type)));
			json_array_append_new(list, o);
		}
		return list;
	case CONFIG_T_PORTS:
		if (cfg->control_port_min == cfg->control_port_max)
			return json_integer(cfg->control_port_min);
		snprintf(range, sizeof(range), "%u-%u", cfg->control_port_min, cfg->control_port_max);
		return json_string(range);
	case CONFIG_T_LEVEL:
		return json_string(config_log_level_name((uint32_t)load_number(k, field)));
	case CONFIG_T_SWITCH:
		return json_string(switch_names[load_number(k, field) != 0]);
	case CONFIG_T_TIE:
		return json_string(tie_names[load_number(k, field) != 0]);
	case CONFIG_T_NAME:
	case CONFIG_T_FILE:
	case CONFIG_T_PATH:
	case CONFIG_T_CPUS:
		return *(const char *)field ? json_string(field) : json_null();
	case CONFIG_T_GID:
		n = load_number(k, field);
		return n == UINT32_MAX ? json_string("auto") : json_integer((json_int_t)n);
	case CONFIG_T_AUTO:
	case CONFIG_T_MTU:
		n = load_number(k, field);
		return n ? json_integer((json_int_t)n) : json_string("auto");
	case CONFIG_T_NONE:
		n = load_number(k, field);
		return n ? json_integer((json_int_t)n) : json_null();
	case CONFIG_T_LIMIT:
		n = load_number(k, field);
		return n == CONFIG_UNLIMITED ? json_string("unlimited") : json_integer((json_int_t)n);
	case CONFIG_T_UINT:
	case CONFIG_T_U64:
	case CONFIG_T_POW2:
		break;
	}
	return json_integer((json_int_t)load_number(k, field));
}

/* --- the whole ----------------------------------------------------------------------------- */

static const struct config_key *find_key(const char *name)
{
	for (size_t i = 0; i < config_nkeys; i++)
		if (!strcmp(config_keys[i].name, name))
			return &config_keys[i];
	return NULL;
}

/* Pairs of keys where the first must not exceed the second. */
static const struct {
	const char *low, *high, *why;
} config_order[] = {
	{"frame_depth_initial", "frame_depth", "a connection starts with fewer receives"},
	{"eager_max", "zcopy_min", "messages up to eager_max are sent whole"},
	{"stall_ask_ms", "stall_hard_ms", "asking comes before acting"},
	{"stall_hard_ms", "stall_max_ms", "a peer that answers is given up earlier"},
	{"hold_down_ms", "hold_down_max_ms", "the hold-down grows up to its maximum"},
};

/* Points at the line of whichever of the two keys the file has; a default cannot be wrong. */
static int check_order(struct source *s, json_t *root, const struct config *cfg)
{
	for (size_t i = 0; i < COUNT(config_order); i++) {
		const struct config_key *lo = find_key(config_order[i].low);
		const struct config_key *hi = find_key(config_order[i].high);
		uint64_t low = load_number(lo, (const char *)cfg + lo->off);
		uint64_t high = load_number(hi, (const char *)cfg + hi->off);
		const char *name;
		json_t *v;
		size_t at = 0;

		if (low <= high)
			continue;
		s->depth = 0;
		json_object_foreach(root, name, v)
		{
			if (!strcmp(name, lo->name) || !strcmp(name, hi->name)) {
				s->path[0] = at;
				s->depth = 1;
			}
			at++;
		}
		return refuse(s, "'%s' is %" PRIu64 ", more than '%s', %" PRIu64 ": %s; change one of them",
			lo->name, low, hi->name, high, config_order[i].why);
	}
	return 0;
}

static int parse_root(struct source *s, json_t *root, struct config *cfg)
{
	const char *name;
	json_t *v;
	size_t at = 0;
	int rc;

	if (!json_is_object(root))
		return refuse(s, "not a JSON object; a minimal file is {}");
	json_object_foreach(root, name, v)
	{
		const struct config_key *k = find_key(name);

		s->path[0] = at++;
		s->depth = 1;
		if (!k) {
			const char *best = NULL;
			size_t far = SIZE_MAX;

			for (size_t i = 0; i < config_nkeys; i++)
				if (unlikeness(name, config_keys[i].name) < far)
					far = unlikeness(name, best = config_keys[i].name);
			return refuse_name(s, "key", name, best, far,
				"`rcshare config --show` lists all keys");
		}
		rc = parse_value(s, k, v, cfg);
		if (rc)
			return rc;
	}
	return check_order(s, root, cfg);
}

int config_parse(const char *text, size_t len, const char *file, struct config *cfg,
	struct config_error *err)
{
	struct source s = {.file = file, .text = text, .len = len, .err = err};
	struct config tmp;
	json_error_t je;
	json_t *root;
	int rc;

	root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (!root) {
		snprintf(err->file, sizeof(err->file), "%s", file);
		err->line = je.line > 0 ? (unsigned)je.line : 0;
		snprintf(err->reason, sizeof(err->reason), "not valid JSON: %.256s", je.text);
		error_text(err);
		return -EINVAL;
	}
	config_default(&tmp);
	rc = parse_root(&s, root, &tmp);
	json_decref(root);
	if (!rc)
		*cfg = tmp;
	return rc;
}

static int unreadable(struct config_error *err, const char *path, int rc, const char *reason)
{
	snprintf(err->file, sizeof(err->file), "%s", path);
	err->line = 0;
	snprintf(err->reason, sizeof(err->reason), "cannot be read: %s", reason);
	error_text(err);
	return rc;
}

int config_load(const char *path, struct config *cfg, struct config_error *err)
{
	size_t len = 0;
	struct stat st;
	char *text;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == EACCES)
		return unreadable(err, path, -EACCES, "Permission denied; the daemon runs as the job's user: "
			"make the file readable for all");
	if (fd < 0)
		return unreadable(err, path, -errno, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		rc = unreadable(err, path, -EINVAL, "it is not a regular file");
		goto close_fd;
	}
	if (st.st_size > (off_t)CONFIG_FILE_MAX) {
		rc = unreadable(err, path, -EFBIG, "it is larger than 1 MiB");
		goto close_fd;
	}
	text = malloc(CONFIG_FILE_MAX);
	if (!text) {
		rc = unreadable(err, path, -ENOMEM, strerror(ENOMEM));
		goto close_fd;
	}
	while (len < CONFIG_FILE_MAX) {
		ssize_t n = read(fd, text + len, CONFIG_FILE_MAX - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = unreadable(err, path, -errno, strerror(errno));
			goto free_text;
		}
		if (!n)
			break;
		len += (size_t)n;
	}
	rc = config_parse(text, len, path, cfg, err);
free_text:
	free(text);
close_fd:
	close(fd);
	return rc;
}

int config_set(struct config *cfg, const char *key, const char *json, struct config_error *err)
{
	struct source s = {.file = key, .text = json, .len = strlen(json), .err = err};
	const struct config_key *k = find_key(key);
	struct config tmp = *cfg;
	json_error_t je;
	json_t *v;
	int rc;

	if (!k)
		return refuse(&s, "no such key");
	v = json_loads(json, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &je);
	if (!v)
		return refuse(&s, "not valid JSON: %.256s", je.text);
	rc = parse_value(&s, k, v, &tmp);
	json_decref(v);
	if (!rc)
		*cfg = tmp;
	return rc;
}

void config_default(struct config *cfg)
{
	struct config_error err;

	memset(cfg, 0, sizeof(*cfg));
	for (size_t i = 0; i < config_nkeys; i++)
		if (config_set(cfg, config_keys[i].name, config_keys[i].def, &err)) {
			/* Either the table is wrong, which a test would show, or memory is out. */
			fprintf(stderr, "rcshare: default of %s\n", err.text);
			abort();
		}
}

int config_get(const struct config *cfg, const char *key, char **out)
{
	const struct config_key *k = find_key(key);
	json_t *v;
	char *text;

	if (!k)
		return -ENOENT;
	v = value_json(cfg, k);
	text = json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	json_decref(v);
	if (!text)
		return -ENOMEM;
	*out = text;
	return 0;
}

int config_show(const struct config *cfg, FILE *out)
{
	fputs("{\n", out);
	for (size_t i = 0; i < config_nkeys; i++) {
		char *text;
		int rc = config_get(cfg, config_keys[i].name, &text);

		if (rc)
			return rc;
		fprintf(out, "  \"%s\": %s%s\n", config_keys[i].name, text,
			i + 1 < config_nkeys ? "," : "");
		free(text);
	}
	fputs("}\n", out);
	return fflush(out) || ferror(out) ? -EIO : 0;
}
