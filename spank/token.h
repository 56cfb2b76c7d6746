/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job token: what a job's daemons know and strangers do not.
 *
 *	HMAC-SHA256(contents of the key file, "rcshare\0CLUSTER\0JOB\0RESTART")
 *
 * numbers in decimal, no NUL at the end.
 */
#ifndef RCSHARE_SPANK_TOKEN_H
#define RCSHARE_SPANK_TOKEN_H

#include <stdint.h>

#include "spank/error.h"

#define PLUG_TOKEN_SIZE 32

/*
 * `key_file` may be NULL: then /etc/munge/munge.key, or else /etc/slurm/slurm.key. Returns 0 and
 * sets `token`, or -errno with a sentence in *err.
 */
int plug_token_make(const char *key_file, const char *cluster, uint32_t job, uint32_t restart,
	unsigned char token[PLUG_TOKEN_SIZE], struct plug_error *err);

#endif
