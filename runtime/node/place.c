/* SPDX-License-Identifier: BSD-3-Clause */
#include "node/place.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>

/* The cores that share the closest memory with the device of the rail. */
static hwloc_obj_t near_device(hwloc_topology_t t, const char *rail)
{
	size_t len = rail ? strcspn(rail, "/") : 0;
	hwloc_obj_t dev = NULL;

	while (len && (dev = hwloc_get_next_osdev(t, dev)))
		if (dev->name && strlen(dev->name) == len && !strncmp(dev->name, rail, len))
			return hwloc_get_non_io_ancestor_obj(t, dev);
	return NULL;
}

void place_thread(const char *cpus, const char *rail)
{
	hwloc_bitmap_t set = hwloc_bitmap_alloc();
	hwloc_topology_t t;
	hwloc_obj_t near;

	if (!set || hwloc_topology_init(&t)) {
		hwloc_bitmap_free(set);
		return;
	}
	hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if (hwloc_topology_load(t) == 0 && hwloc_get_cpubind(t, set, HWLOC_CPUBIND_PROCESS) == 0) {
		if (strcmp(cpus, "job"))
			hwloc_bitmap_list_sscanf(set, cpus);
		near = near_device(t, rail);
		if (near && near->cpuset && hwloc_bitmap_intersects(set, near->cpuset))
			hwloc_bitmap_and(set, set, near->cpuset);
		hwloc_set_cpubind(t, set, HWLOC_CPUBIND_THREAD);
	}
	hwloc_topology_destroy(t);
	hwloc_bitmap_free(set);
}
