/* SPDX-License-Identifier: BSD-3-Clause */
/* bed_verbs.h - ports and lanes of bed_verbs.c and bed_lane.c. */
#ifndef RCS_TESTS_FUZZ_BED_VERBS_H
#define RCS_TESTS_FUZZ_BED_VERBS_H

#include "bed.h"
#include "node/verbs.h"

struct verbs {
	struct verbs_ops ops;
	bool ok[BED_RAILS], held[BED_RAILS], told[BED_RAILS], refuse;
	uint32_t epoch[BED_RAILS];
};

struct verbs_buf {
	uint8_t *mem;
};

unsigned bed_lanes(const struct verbs *v); /* how many are open */

#endif
