/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * config.h - rcshare.conf: what a site can set, with types, ranges, units and defaults.
 *
 * The file is one JSON object. A single table, config_keys[], drives the parser, `rcshare config
 * --check`, `rcshare config --show` and the test of rcshare.conf(5); a new key is one line there and
 * one field here. Unknown keys and values out of range are refused with file, line and what to do.
 *
 * Nothing here has state: a struct config is plain data, may be copied, and needs no destructor.
 * Any thread may call with its own structs.
 */
#ifndef RCS_CONFIG_CONFIG_H
#define RCS_CONFIG_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_PATH_DEFAULT "/etc/rcshare/rcshare.conf"
#define CONFIG_RAILS_MAX    4u
#define CONFIG_FILE_MAX	    (1u << 20) /* a longer file is refused */
#define CONFIG_UNLIMITED    UINT64_MAX

enum config_log_level { CONFIG_LOG_ERROR, CONFIG_LOG_WARN, CONFIG_LOG_INFO, CONFIG_LOG_DEBUG };

enum config_gid_type { CONFIG_GID_ANY, CONFIG_GID_IB, CONFIG_GID_ROCE1, CONFIG_GID_ROCE2 };

struct config_rail {
	char device[64];
	uint32_t port;	   /* from 1 */
	int32_t gid_index; /* -1: the key gid_index decides */
	uint32_t gid_type; /* enum config_gid_type */
};

struct config {
	/* paths of traffic */
	uint32_t nrails; /* 0: "auto" */
	struct config_rail rail[CONFIG_RAILS_MAX];
	int32_t gid_index;	    /* -1: "auto" */
	char control_interface[64]; /* "": NodeAddr, or what the node's name leads to (node/addr.c) */
	uint16_t control_port_min, control_port_max; /* 0, 0: node/tcp.c has a range */
	uint32_t path_mtu;		/* bytes; 0: "auto" */
	uint32_t traffic_class, service_level; /* of packets: RoCE's DSCP and ECN bits, InfiniBand's SL */
	uint32_t pkey; /* 0: the port's first with full membership */
	uint32_t max_outstanding_reads; /* 0: "auto" */
	uint32_t rc_timeout, rc_retry_cnt, rc_min_rnr_timer; /* as in struct ibv_qp_attr */
	uint32_t tcp_user_timeout_ms;
	uint32_t selftest; /* 0: off, 1: on */

	/* messages */
	uint32_t eager_max, zcopy_min, read_chunk;
	uint32_t receive_ring, submit_ring; /* bytes, powers of two */
	uint32_t frame_depth_initial, frame_depth;
	uint32_t ack_delay_us;

	/* noticing */
	uint32_t stall_ask_ms, stall_hard_ms, stall_max_ms;
	uint32_t keepalive_ms;
	uint32_t hold_down_ms, hold_down_max_ms;
	uint32_t probes;
	uint32_t unreachable_ms;
	uint32_t node_timeout_ms; /* 0: never decide */
	uint32_t keep_step;   /* 0: off, 1: on; the plugin's */
	uint32_t mark_down;   /* the same */
	uint32_t tie_breaker; /* 0: none, 1: slurmctld */

	/* the daemon */
	uint32_t spin_us;
	uint64_t memory_limit_mb; /* 0: none of its own */
	uint32_t cpu_weight;
	char cpus[256]; /* "job", or a list like "0,2-3" */
	uint64_t memlock_limit; /* bytes, CONFIG_UNLIMITED */
	uint32_t nofile;
	uint32_t job_check_s;
	uint32_t start_timeout_ms;
	char key_file[256]; /* "": munge's, else slurm's */

	/* log */
	char log_dir[256];
	uint64_t log_max_bytes;
	uint32_t log_level; /* enum config_log_level */
};

struct config_error {
	char file[256];
	unsigned line;	  /* 0: the file as a whole */
	char reason[384]; /* one sentence: what is wrong and what to do */
	char text[704];	  /* "file:line: reason" */
};

enum config_type {
	CONFIG_T_UINT,	/* a number */
	CONFIG_T_U64,	/* a number, uint64_t */
	CONFIG_T_POW2,	/* a number that is a power of two */
	CONFIG_T_AUTO,	/* a number, or "auto" (stored as 0) */
	CONFIG_T_GID,	/* a number, or "auto" (stored as -1) */
	CONFIG_T_MTU,	/* 256, 512, 1024, 2048, 4096 or "auto" (stored as 0) */
	CONFIG_T_NONE,	/* a number, or null (stored as 0) */
	CONFIG_T_LIMIT, /* a number, or "unlimited" */
	CONFIG_T_NAME,	/* a string, or null (stored as "") */
	CONFIG_T_PATH,	/* an absolute path */
	CONFIG_T_FILE,	/* an absolute path, or null (stored as "") */
	CONFIG_T_LEVEL, /* error, warn, info, debug */
	CONFIG_T_SWITCH, /* on or off (stored as 1 or 0) */
	CONFIG_T_TIE,	/* none or slurmctld (stored as 0 or 1) */
	CONFIG_T_CPUS,	/* "job", or a list of cores */
	CONFIG_T_PORTS, /* 0, a port, or "first-last" */
	CONFIG_T_RAILS, /* "auto", or a list of rails */
};

struct config_key {
	const char *name;
	enum config_type type;
	uint64_t min, max; /* of numbers */
	const char *unit;  /* "" where there is none */
	const char *def;   /* JSON text */
	size_t off, size;  /* of the field; PORTS and RAILS: of its first one */
	const char *doc;   /* one sentence */
};
extern const struct config_key config_keys[];
extern const size_t config_nkeys;

void config_default(struct config *cfg);

/*
 * Reads path (not NULL) over the defaults. 0, or -errno and *err: -ENOENT and the like when the file
 * cannot be read, -EINVAL when it is not valid. *cfg is set only on success.
 */
int config_load(const char *path, struct config *cfg, struct config_error *err);

/* The same from memory; file is a name for sentences. */
int config_parse(const char *text, size_t len, const char *file, struct config *cfg,
	struct config_error *err);

/* Sets one key of *cfg from JSON text, e.g. from a variable of the environment: 0 or -EINVAL. */
int config_set(struct config *cfg, const char *key, const char *json, struct config_error *err);

/* One value as JSON text: 0, or -ENOENT (no such key), -ENOMEM. *out is freed by the caller. */
int config_get(const struct config *cfg, const char *key, char **out);

/* All values as JSON, in the table's order: a valid rcshare.conf. 0 or -errno. */
int config_show(const struct config *cfg, FILE *out);

/* What a key accepts, for messages and manuals: "a number from 1 to 6". Returns buf. */
const char *config_key_range(const struct config_key *key, char *buf, size_t len);

const char *config_log_level_name(uint32_t level);
const char *config_gid_type_name(uint32_t type);

#endif
