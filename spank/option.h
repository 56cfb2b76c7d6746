/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The value of --rcshare, and of the variable RCSHARE, which has the same form:
 *
 *	on|off|require[,key=value...]
 *
 * Pure: no I/O, no allocation.
 */
#ifndef RCSHARE_SPANK_OPTION_H
#define RCSHARE_SPANK_OPTION_H

#include <stdint.h>

#include "spank/error.h"

enum plug_mode {
	PLUG_OFF,
	PLUG_ON,      /* use rcshare; without it the job runs on its native path */
	PLUG_REQUIRE, /* without it the step is refused */
};

#define PLUG_RAILS_MAX 4 /* WIRE_RAILS_MAX */
#define PLUG_PATH_MAX 1024
#define PLUG_SPARES_MAX 32767 /* nodes; core/view.h has no more */

struct plug_option {
	enum plug_mode mode;
	int rails;		 /* 0: as many as the node has */
	int eager;		 /* -1: as the configuration says */
	int keep_step;		 /* the same */
	uint32_t spares;	 /* the last nodes of the step that stand by */
	char log[PLUG_PATH_MAX]; /* "": as the configuration says */
};

#define PLUG_OPTION_INIT                                                                           \
	{                                                                                          \
		.mode = PLUG_OFF, .rails = 0, .eager = -1, .keep_step = -1, .spares = 0,            \
		.log = ""                                                                          \
	}

/*
 * Parses `value`. Returns 0 and sets *opt, or -EINVAL with a sentence in *err that names what
 * would be valid.
 */
int plug_option_parse(const char *value, struct plug_option *opt, struct plug_error *err);

#endif
