/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What Slurm must have been told so that a job outlives one of its nodes: --no-kill for the
 * allocation and for the step, -K0 for srun. SPANK has no item for them; they are read from the
 * command's own words and environment. Pure, but for plug_survive_words.
 */
#ifndef RCSHARE_SPANK_SURVIVE_H
#define RCSHARE_SPANK_SURVIVE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * PMIx collectives wait so many seconds for a node that is gone, not Slurm's 300. Also for a late
 * one, so it is set for steps only that are to outlive a node.
 */
#define PLUG_ENV_PMIX_TIMEOUT "SLURM_PMIX_TIMEOUT"
#define PLUG_PMIX_TIMEOUT "60"

struct plug_survive {
	bool no_kill;	  /* this command has it */
	bool no_bad_exit; /* -K0 */
	bool inside;	  /* srun in an allocation that others made ... */
	bool alloc;	  /* ... and that is known to have --no-kill */
};

/*
 * words[1..n) are the options of srun, salloc or sbatch, without the command that follows them;
 * `env` is NULL-terminated. As in Slurm a later option wins, and any option over the environment.
 */
void plug_survive_read(char *const *words, size_t n, char *const *env, struct plug_survive *s);

/* True if something is missing or could not be verified; `text` then says what srun lacks. */
bool plug_survive_advice(const struct plug_survive *s, char *text, size_t size);

/*
 * Is this command, or the job that its environment tells of, heterogeneous? A ":" behind the first
 * `options` of n words divides components: anywhere in srun's command, else at its beginning.
 */
bool plug_survive_het(char *const *words, size_t options, size_t n, bool srun, char *const *env);

/* The words of this process; the caller frees *words. 0: no memory, or no /proc. */
size_t plug_survive_words(char ***words);

#endif
