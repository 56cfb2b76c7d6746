/* SPDX-License-Identifier: BSD-3-Clause */
/* spank/nodeaddr.c: the addresses that slurm.conf has for a job's nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/nodeaddr.h"
#include "spank/slurmconf.h"

static void becomes(const char *names, const char *conf, const char *want)
{
	char *got = plug_nodeaddr_join(names, conf);

	assert_string_equal(got, want);
	free(got);
}

static void addresses_stand_behind_their_nodes(void **state)
{
	(void)state;
	becomes("b0,b1,b2", "NodeName=b[0-9] NodeAddr=10.77.0.[10-19] CPUs=4\n", "b0=10.77.0.10,b1=10.77.0.11,b2=10.77.0.12");
	becomes("b2,b0", "NodeName=b[0-9] CPUs=4 nodeaddr=10.77.0.[10-19]", "b2=10.77.0.12,b0=10.77.0.10");
	becomes("x,y", "NodeName=x NodeAddr=x.mgmt\nNodeName=z NodeAddr=z.mgmt\n", "x=x.mgmt,y");
	becomes("x,y", "NodeName=x,y NodeAddr=fd00::1,fd00::2\n", "x=fd00::1,y=fd00::2");
	becomes("x", NULL, "x");
	becomes("x", "", "x");
	becomes("x,y", "NodeName=x,y NodeAddr=x,y\n", "x,y"); /* no more than the name says */
}

static void without_an_address_the_host_name_is_it(void **state)
{
	(void)state;
	becomes("x,y", "NodeName=x NodeHostname=h1\nNodeName=y NodeHostname=h2 NodeAddr=10.0.0.2\n", "x=h1,y=10.0.0.2");
	becomes("n1,n2", "NodeName=n[1-2] NodeHostname=localhost Port=[7001-7002]\n", "n1=localhost,n2=localhost");
}

static void what_does_not_fit_is_left_to_the_names(void **state)
{
	(void)state;
	becomes("x,y", "NodeName=x,y,z NodeAddr=1.1.1.1,2.2.2.2\n", "x=1.1.1.1,y=2.2.2.2");
	becomes("x", "NodeName=x[ NodeAddr=1.1.1.1\n", "x");
	becomes("x", "NodeName=x NodeAddr=1.1.1.[\n", "x");
	becomes("x", "NodeName=x # NodeAddr=1.1.1.1\n", "x");
	becomes("x", "NodeName= NodeAddr=\nNodeName=DEFAULT CPUs=3\n", "x");
}

static void lines_come_from_slurm_conf_and_what_it_includes(void **state)
{
	char top[] = "/tmp/spank_nodeaddr_test.XXXXXX", path[64], nodes[64], *got;
	struct plug_slurmconf conf;
	struct plug_error err;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/slurm.conf", top);
	snprintf(nodes, sizeof(nodes), "%s/nodes.conf", top);
	f = fopen(path, "w");
	fprintf(f, "ClusterName=c\nNodeName=a \\\n  NodeAddr=10.0.0.1\ninclude nodes.conf\n");
	fclose(f);
	f = fopen(nodes, "w");
	fprintf(f, "  nodename=b NodeAddr=10.0.0.2");
	fclose(f);
	setenv("SLURM_CONF", path, 1);
	assert_int_equal(plug_slurmconf_load(&conf, &err), 0);
	assert_string_equal(conf.cluster, "c");
	got = plug_nodeaddr_join("a,b", conf.nodes);
	assert_string_equal(got, "a=10.0.0.1,b=10.0.0.2");
	free(got);
	plug_slurmconf_free(&conf);
	unlink(nodes);
	unlink(path);
	rmdir(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_stand_behind_their_nodes),
		cmocka_unit_test(without_an_address_the_host_name_is_it),
		cmocka_unit_test(what_does_not_fit_is_left_to_the_names),
		cmocka_unit_test(lines_come_from_slurm_conf_and_what_it_includes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
