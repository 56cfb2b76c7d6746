/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin's arguments in plugstack.conf.
 */
#ifndef RCSHARE_SPANK_CONF_H
#define RCSHARE_SPANK_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "spank/error.h"
#include "spank/option.h"

struct plug_conf {
	enum plug_mode mode;  /* default=on|off */
	const char *config;   /* rcshare.conf, NULL: the daemon's own default */
	uint32_t min_nodes;   /* default=on is for steps of so many nodes or more */
	const char *key_file; /* NULL: as slurm.conf's AuthType says (token.h) */
	const char *daemon;   /* path of rcshared */
	const char *run_dir; /* %n is the node's name */
	const char *log_dir; /* NULL until plug_site_load */
	int timeout_ms;	     /* how long a step waits for the daemon */
	bool timeout_given;
	/* From rcshare.conf (site.h); 0: nothing said. */
	unsigned long long memory_limit_mb, cpu_weight, memlock, nofile;
	bool keep_step;	    /* a rank that dies does not end its step */
	bool mark_down;	    /* slurmctld is told of lost nodes */
	bool witness;	    /* and asked about one, where two are left */
	bool reserved_cpus; /* rcshare.conf gives the daemon cores of its own */
	char key_room[PLUG_PATH_MAX], log_room[PLUG_PATH_MAX], run_room[PLUG_PATH_MAX];
};

/*
 * Parses argv[0..argc). Strings of *conf point into argv, which Slurm keeps as long as the
 * plugin is loaded. A bad argument does not stop it: *conf is always usable. Returns 0, or
 * -EINVAL with a sentence about the first bad one in *err.
 */
int plug_conf_parse(int argc, char **argv, struct plug_conf *conf, struct plug_error *err);

/* Puts the node's name in the place of %n in run_dir: several slurmd may run on one host. */
void plug_conf_node(struct plug_conf *conf, const char *node);

#endif
