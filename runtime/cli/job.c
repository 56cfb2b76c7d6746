/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

static int parse_u32(const char *text, char **end, uint32_t *out)
{
	unsigned long long n;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, end, 10);
	if (errno || n > UINT32_MAX)
		return -EINVAL;
	*out = (uint32_t)n;
	return 0;
}

int cli_job_parse(const char *text, uint32_t *job, int64_t *restart)
{
	uint32_t j, r;
	char *end;

	if (parse_u32(text, &end, &j))
		return -EINVAL;
	if (!*end) {
		*job = j;
		*restart = -1;
		return 0;
	}
	if (*end != '.' || parse_u32(end + 1, &end, &r) || *end)
		return -EINVAL;
	*job = j;
	*restart = r;
	return 0;
}

int cli_job_operand(int argc, char **argv, void (*usage)(FILE *), uint32_t *job, int64_t *restart)
{
	if (optind + 1 != argc) {
		usage(stderr);
		return CLI_USAGE;
	}
	if (cli_job_parse(argv[optind], job, restart))
		return cli_fail(CLI_USAGE, "'%s' is no job; give its number, or number.restart, like 17 or "
			"17.1", argv[optind]);
	return CLI_OK;
}
