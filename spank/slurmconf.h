/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What root must know of slurm.conf and may not take from a job's environment, which is the user's.
 */
#ifndef RCSHARE_SPANK_SLURMCONF_H
#define RCSHARE_SPANK_SLURMCONF_H

#include <stddef.h>

#include "spank/error.h"
#include "spank/option.h"

struct plug_slurmconf {
	char cluster[128]; /* ClusterName, in lower case as Slurm has it */
	char auth[64];	   /* AuthType, "" is auth/munge */
	char user[64];	   /* SlurmUser, "" is root */
	char dir[PLUG_PATH_MAX]; /* where the file is: slurm.key lies beside it */
	char *nodes;		 /* its lines that begin with NodeName (nodeaddr.h); NULL: none, or no file */
};

/* Takes the three keys out of slurm.conf's text, or of what `scontrol show config` prints. Pure. */
void plug_slurmconf_parse(const char *text, struct plug_slurmconf *out);

/*
 * Reads slurm.conf with what it includes: SLURM_CONF of this process, which slurmd sets, slurmd's copy where
 * there is no file on the node (configless), or /etc/slurm/slurm.conf. Where none names the cluster slurmctld is
 * asked. 0, or -errno with a sentence.
 */
int plug_slurmconf_load(struct plug_slurmconf *out, struct plug_error *err);
void plug_slurmconf_free(struct plug_slurmconf *c);

#endif
