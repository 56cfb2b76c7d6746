/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RCSHARE_* variables of a job's environment.
 */
#ifndef RCSHARE_SPANK_ENV_H
#define RCSHARE_SPANK_ENV_H

#include <stddef.h>

#define PLUG_ENV_DEFAULT "RCSHARE"	       /* in: as the option */
#define PLUG_ENV_SOCKET "RCSHARE_SOCKET"       /* out, to tasks */
#define PLUG_ENV_STEP "RCSHARE_STEP"	       /* out, to tasks */
#define PLUG_ENV_DISABLED "RCSHARE_DISABLED"   /* out, to tasks */
#define PLUG_ENV_LOG_LEVEL "RCSHARE_LOG_LEVEL" /* in: daemon */
#define PLUG_ENV_SPARES "RCSHARE_SPARES"       /* out, to tasks of a step that has some */
#define PLUG_ENV_EAGER "RCSHARE_EAGER"	       /* in, and out with the key eager= */
/* Of salloc and sbatch that were given --no-kill, to srun inside; nobody sees #SBATCH --no-kill. */
#define PLUG_ENV_NO_KILL "RCSHARE_NO_KILL"

/*
 * The next variable in `env` (NULL-terminated, "NAME=value") that begins with RCSHARE and that
 * no part of rcshare knows, starting at *pos (0 at first), which moves on. Its name is copied to
 * `name`. Returns 1 if there was one, else 0.
 */
int plug_env_unknown(char *const *env, size_t *pos, char *name, size_t size);

#endif
