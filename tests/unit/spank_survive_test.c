// SPDX-License-Identifier: BSD-3-Clause
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spank/env.h"
#include "spank/survive.h"

#define MAX 16

/* `command` and `env` are words between blanks; returns the advice, "" if nothing is missing. */
static const char *advice(const char *command, const char *env)
{
	static char text[256];
	char copy[2][256], *words[2][MAX] = {{NULL}}, *save;
	const char *from[2] = {command, env};
	struct plug_survive s;
	size_t n[2] = {0};

	for (int i = 0; i < 2; i++) {
		strcpy(copy[i], from[i]);
		for (char *w = strtok_r(copy[i], " ", &save); w; w = strtok_r(NULL, " ", &save))
			words[i][n[i]++] = w;
	}
	plug_survive_read(words[0], n[0], words[1], &s);
	return plug_survive_advice(&s, text, sizeof(text)) ? text : "";
}

static void all_given_says_nothing(void **state)
{
	static const char *const good[][2] = {
		{"srun --no-kill -K0", ""},
		{"/usr/bin/srun -k --kill-on-bad-exit=0", ""},
		{"srun --no-kill=set -N 4 -lK0", ""},
		{"srun -lk -K0 -n3", ""},
		{"srun -K -K0 --no-kill=off --no-kill", ""},
		{"srun", "SLURM_NO_KILL= SLURM_KILL_BAD_EXIT=0"},
		{"srun -k -K0", "SLURM_JOB_ID=7 RCSHARE_NO_KILL=1"},
		{"srun --jobid=7 -k -K0", "RCSHARE_NO_KILL=1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_string_equal(advice(good[i][0], good[i][1]), "");
}

static void what_lacks_is_named(void **state)
{
#define ALSO "this step does not survive the loss of a node without: "
#define UNSEEN "--no-kill of the allocation (not seen here)"
	static const char *const bad[][3] = {
		{"srun", "", ALSO "srun --no-kill, srun -K0"},
		{"srun -k", "", ALSO "srun -K0"},
		{"srun -K0", "", ALSO "srun --no-kill"},
		{"srun -k -K0 -K", "", ALSO "srun -K0"},
		{"srun -k -K1", "SLURM_KILL_BAD_EXIT=0", ALSO "srun -K0"},
		{"srun --no-kill=off -K0", "SLURM_NO_KILL=", ALSO "srun --no-kill"},
		{"srun -koff -K0", "", ALSO "srun --no-kill"},
		{"srun -Jk -DK0", "", ALSO "srun --no-kill, srun -K0"},
		{"srun -K0", "SALLOC_NO_KILL= SBATCH_NO_KILL=", ALSO "srun --no-kill"},
		{"srun -k -K0", "SLURM_JOB_ID=7", ALSO UNSEEN},
		{"srun -k", "SLURM_JOBID=7", ALSO "srun -K0, " UNSEEN},
		{"srun", "SLURM_JOBID=7", ALSO "srun --no-kill, srun -K0, " UNSEEN},
		{"srun -k -K0 --jobid=7", "", ALSO UNSEEN},
		{"srun -k -K0 --jobid", "", ALSO UNSEEN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_string_equal(advice(bad[i][0], bad[i][1]), bad[i][2]);
}

static void allocators_have_variables_of_their_own(void **state)
{
	char *salloc[] = {"salloc"}, *sbatch[] = {"/bin/sbatch", "-N2"};
	char *env[] = {"SLURM_NO_KILL=", "SALLOC_NO_KILL=", NULL};
	struct plug_survive s;

	(void)state;
	plug_survive_read(salloc, 1, env, &s);
	assert_true(s.no_kill);
	plug_survive_read(sbatch, 2, env, &s);
	assert_false(s.no_kill);
}

static void a_colon_divides_components(void **state)
{
	char *w[] = {"srun", "-n1", "a", ":", "b"}, *none[] = {NULL};
	char *het[] = {"SLURM_HET_SIZE=2", NULL};

	(void)state;
	assert_true(plug_survive_het(w, 2, 5, true, none));
	assert_false(plug_survive_het(w, 2, 3, true, none));
	assert_false(plug_survive_het(w, 2, 5, false, none)); /* the program's own word */
	assert_true(plug_survive_het(w, 3, 5, false, none));
	assert_false(plug_survive_het(w, 4, 5, true, none)); /* an option's value */
	assert_true(plug_survive_het(w, 2, 2, true, het));
}

static void words_are_the_process_s_own(void **state)
{
	char **words;
	size_t n = plug_survive_words(&words);

	(void)state;
	assert_int_equal(n, 1);
	assert_non_null(strstr(words[0], "spank_survive_test"));
	free(words);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_given_says_nothing),
		cmocka_unit_test(what_lacks_is_named),
		cmocka_unit_test(allocators_have_variables_of_their_own),
		cmocka_unit_test(a_colon_divides_components),
		cmocka_unit_test(words_are_the_process_s_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
