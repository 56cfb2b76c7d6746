/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job token: what a job's daemons know and strangers do not.
 *
 *	HMAC-SHA256(contents of the key file, "rcshare\0CLUSTER\0JOB\0RESTART")
 *
 * numbers in decimal, no NUL at the end. CLUSTER is slurm.conf's ClusterName: two clusters may have one munge
 * key and the same job numbers.
 */
#ifndef RCSHARE_SPANK_TOKEN_H
#define RCSHARE_SPANK_TOKEN_H

#include <stdint.h>

#include "spank/error.h"
#include "spank/slurmconf.h"

#define PLUG_TOKEN_SIZE 32

/*
 * `key_file` may be NULL: then the key is the one that slurm.conf's AuthType goes by, munge.key of munge, or
 * slurm.key or slurm.jwks beside slurm.conf. It must be root's, munge's or SlurmUser's and nobody
 * else's to read. Returns 0 and sets `token`, or -errno with a sentence in *err.
 */
int plug_token_make(const char *key_file, const struct plug_slurmconf *sc, uint32_t job, uint32_t restart,
	unsigned char token[PLUG_TOKEN_SIZE], struct plug_error *err);

#endif
