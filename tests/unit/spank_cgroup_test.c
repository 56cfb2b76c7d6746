// SPDX-License-Identifier: BSD-3-Clause
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spank/cgroup.h"

static const char v1_mounts[] =
	"22 1 0:20 / /proc rw - proc proc rw\n"
	"31 29 0:27 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n"
	"32 29 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	"33 29 0:29 / /sys/fs/cgroup/memory rw shared:7 - cgroup cgroup rw,memory\n"
	"34 29 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

/* slurmstepd's first hierarchy shows the job's path before the other controllers have it. */
static void v1_one_hierarchy_tells_for_all(void **state)
{
	struct plug_cgroups g;

	(void)state;
	plug_cgroup_parse("4:cpu,cpuacct:/system.slice/slurmd.service\n"
			  "3:memory:/system.slice/slurmd.service\n"
			  "2:freezer:/slurm_b0/uid_12345/job_7/step_0\n"
			  "1:name=systemd:/system.slice/slurmd.service\n"
			  "0::/system.slice\n",
		v1_mounts, 7, &g);
	assert_int_equal(g.count, 3);
	assert_string_equal(g.job[0], "/sys/fs/cgroup/cpu,cpuacct/slurm_b0/uid_12345/job_7");
	assert_string_equal(g.job[1], "/sys/fs/cgroup/memory/slurm_b0/uid_12345/job_7");
	assert_string_equal(g.job[2], "/sys/fs/cgroup/freezer/slurm_b0/uid_12345/job_7");
}

static void v2(void **state)
{
	struct plug_cgroups g;

	(void)state;
	plug_cgroup_parse("0::/system.slice/slurmstepd.scope/job_7/step_0/slurm\n",
		"30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", 7, &g);
	assert_int_equal(g.count, 1);
	assert_string_equal(g.job[0], "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7");
}

static void none_where_slurm_tracks_without(void **state)
{
	struct plug_cgroups g;

	(void)state;
	plug_cgroup_parse("2:freezer:/\n0::/system.slice/slurmd.service\n", v1_mounts, 7, &g);
	assert_int_equal(g.count, 0);
	/* Another job's number that begins alike, a path outside of the view, junk. */
	plug_cgroup_parse("2:freezer:/slurm/uid_1/job_77/step_0\n"
			  "3:memory:/../job_7\njunk\n\n::\n",
		v1_mounts, 7, &g);
	assert_int_equal(g.count, 0);
	plug_cgroup_parse("", "", 7, &g);
	assert_int_equal(g.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(v1_one_hierarchy_tells_for_all),
		cmocka_unit_test(v2),
		cmocka_unit_test(none_where_slurm_tracks_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
