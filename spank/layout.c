// SPDX-License-Identifier: BSD-3-Clause
#include "spank/layout.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2(x3)" at *s: tasks of a node, and how many such nodes follow each other. */
static int group(const char **s, unsigned long *tasks, unsigned long *times)
{
	char *end;

	if (**s < '0' || **s > '9')
		return -EINVAL;
	*tasks = strtoul(*s, &end, 10);
	*times = 1;
	if (end[0] == '(' && end[1] == 'x' && end[2] >= '1' && end[2] <= '9') {
		*times = strtoul(end + 2, &end, 10);
		if (*end++ != ')')
			return -EINVAL;
	}
	if ((*end && *end != ',') || *tasks > UINT16_MAX || *times > UINT16_MAX)
		return -EINVAL;
	*s = *end ? end + 1 : end;
	return 0;
}

int plug_layout_tasks(const char *tasks, uint16_t *out, int max)
{
	unsigned long n, times;
	int nodes = 0;

	if (!tasks || !*tasks)
		return -EINVAL;
	while (*tasks) {
		if (group(&tasks, &n, &times))
			return -EINVAL;
		for (; times; times--, nodes++) {
			if (nodes == max)
				return -EINVAL;
			if (out)
				out[nodes] = (uint16_t)n;
		}
	}
	return nodes;
}

static int count(const char *names)
{
	int n = 1;

	for (; *names; names++)
		n += *names == ',';
	return n;
}

char *plug_layout_join(const char *names, const char *tasks)
{
	int nodes = count(names);
	uint16_t *per_node = calloc((size_t)nodes, sizeof(*per_node));
	size_t size = strlen(names) + (size_t)nodes * sizeof("/65535");
	char *out = malloc(size);
	size_t at = 0;

	if (out && per_node && plug_layout_tasks(tasks, per_node, nodes) == nodes) {
		for (int i = 0; i < nodes; i++) {
			int len = (int)strcspn(names, ",");

			at += (size_t)snprintf(out + at, size - at, "%s%.*s/%u", i ? "," : "", len, names,
				per_node[i]);
			names += len + (names[len] == ',');
		}
	} else if (out) {
		strcpy(out, names);
	}
	free(per_node);
	return out;
}

static int spare_is_smaller(uint32_t spares, const uint16_t *tasks, int nodes, struct plug_error *err)
{
	int active = nodes - (int)spares, most = 0;

	for (int i = 1; i < active; i++)
		if (tasks[i] > tasks[most])
			most = i;
	for (int i = active; i < nodes; i++)
		if (tasks[i] < tasks[most])
			return plug_error_set(err, -EINVAL, "spares=%u: node %d of the step has %u tasks and would "
				"stand by for nodes with up to %u; give all nodes the same with "
				"--ntasks-per-node", spares, i, tasks[i], tasks[most]);
	return 0;
}

int plug_layout_spares(uint32_t spares, const char *tasks, const char *distribution,
	struct plug_error *err)
{
	int nodes = plug_layout_tasks(tasks, NULL, -1), rc;
	uint16_t *per_node;
	bool one_each = true;

	if (!spares)
		return 0;
	if (nodes < 0)
		return plug_error_set(err, -EINVAL, "spares=%u: Slurm does not tell how the step's tasks lie "
			"on its nodes (SLURM_STEP_TASKS_PER_NODE)", spares);
	if (spares >= (uint32_t)nodes)
		return plug_error_set(err, -EINVAL, "spares=%u: the step has %d node%s and needs one that does "
			"not stand by; give more nodes, or --rcshare=on for a step without spares", spares,
			nodes, nodes == 1 ? "" : "s");
	per_node = calloc((size_t)nodes, sizeof(*per_node));
	if (!per_node)
		return plug_error_set(err, -ENOMEM, "no memory for the step's layout");
	plug_layout_tasks(tasks, per_node, nodes);
	for (int i = 0; i < nodes; i++)
		one_each &= per_node[i] == 1;
	/* "block:cyclic" and the like are about cores; with a task a node all are the same but arbitrary */
	if (distribution && *distribution && strncmp(distribution, "block", 5) &&
		(!one_each || !strncmp(distribution, "arbitrary", 9)))
		rc = plug_error_set(err, -EINVAL, "spares=%u: with the distribution %s the ranks of a node do not "
			"follow each other; leave out -m, or give -m block", spares, distribution);
	else
		rc = spare_is_smaller(spares, per_node, nodes, err);
	free(per_node);
	return rc;
}
