// SPDX-License-Identifier: BSD-3-Clause
#include "spank/survive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "spank/env.h"

/* Short options of srun, salloc and sbatch without a value; another one ends a cluster. */
#define FLAGS "EHlOQsuvXZ"

static const char *env_of(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
			return *env + len + 1;
	return NULL;
}

/* "--NAME" or "--NAME=VALUE", shortened to no less than `min` characters as getopt_long allows. */
static bool is_long(const char *word, const char *name, size_t min, const char **value)
{
	size_t len;

	if (strncmp(word, "--", 2) != 0)
		return false;
	word += 2;
	len = strcspn(word, "=");
	if (len < min || strncmp(word, name, len) != 0)
		return false;
	*value = word[len] ? word + len + 1 : NULL;
	return true;
}

/* -k and -K may stand in a cluster; what follows them there is their value. */
static bool is_short(const char *word, char option, const char **value)
{
	if (*word++ != '-')
		return false;
	word += strspn(word, FLAGS);
	if (*word != option)
		return false;
	*value = word[1] ? word + 1 : NULL;
	return true;
}

static bool keeps(const char *value)
{
	return !value || !*value || strcasecmp(value, "set") == 0;
}

static bool is_zero(const char *value)
{
	return value && strcmp(value, "0") == 0;
}

void plug_survive_read(char *const *words, size_t n, char *const *env, struct plug_survive *s)
{
	static const char *const names[] = {"SLURM_NO_KILL", "SALLOC_NO_KILL", "SBATCH_NO_KILL"};
	const char *command = n ? strrchr(words[0], '/') : NULL, *v;
	size_t i;

	*s = (struct plug_survive){0};
	command = command ? command + 1 : n ? words[0] : "";
	i = strcmp(command, "salloc") == 0 ? 1 : strcmp(command, "sbatch") == 0 ? 2 : 0;
	v = env_of(env, names[i]);
	s->no_kill = v && keeps(v);
	s->no_bad_exit = is_zero(env_of(env, "SLURM_KILL_BAD_EXIT"));
	s->inside = env_of(env, "SLURM_JOB_ID") || env_of(env, "SLURM_JOBID");
	for (i = 1; i < n; i++) {
		if (is_long(words[i], "no-kill", 4, &v) || is_short(words[i], 'k', &v))
			s->no_kill = keeps(v);
		else if (is_long(words[i], "kill-on-bad-exit", 9, &v) ||
			 is_short(words[i], 'K', &v))
			s->no_bad_exit = is_zero(v);
		else if (is_long(words[i], "jobid", 4, &v))
			s->inside = true;
	}
	v = env_of(env, PLUG_ENV_NO_KILL);
	s->alloc = s->inside ? v && strcmp(v, "1") == 0 : s->no_kill;
}

bool plug_survive_advice(const struct plug_survive *s, char *text, size_t size)
{
	bool unseen = s->inside && !s->alloc;

	if (s->no_kill && s->no_bad_exit && !unseen)
		return false;
	snprintf(text, size, "this step does not survive the loss of a node without:%s%s%s%s%s",
		s->no_kill ? "" : " srun --no-kill", s->no_kill || s->no_bad_exit ? "" : ",",
		s->no_bad_exit ? "" : " srun -K0",
		unseen && !(s->no_kill && s->no_bad_exit) ? "," : "",
		unseen ? " --no-kill of the allocation (not seen here)" : "");
	return true;
}

bool plug_survive_het(char *const *words, size_t options, size_t n, bool srun, char *const *env)
{
	const char *size = env_of(env, "SLURM_HET_SIZE");
	size_t i;

	if (size && strcmp(size, "1") != 0)
		return true;
	for (i = options; i < n && (srun || i == options); i++)
		if (strcmp(words[i], ":") == 0)
			return true;
	return false;
}

size_t plug_survive_words(char ***words)
{
	FILE *f = fopen("/proc/self/cmdline", "re");
	char **list = NULL, *text = NULL, *s;
	size_t n = 0, size = 0;
	ssize_t len;

	*words = NULL;
	if (!f)
		return 0;
	len = getdelim(&text, &size, EOF, f);
	fclose(f);
	for (s = text; len > 0 && s < text + len; s += strlen(s) + 1)
		n++;
	list = n ? malloc(n * sizeof(*list) + (size_t)len + 1) : NULL;
	if (list) {
		*words = list;
		s = memcpy(list + n, text, (size_t)len + 1);
		for (size_t i = 0; i < n; i++, s += strlen(s) + 1)
			list[i] = s;
	}
	free(text);
	return list ? n : 0;
}
