// SPDX-License-Identifier: BSD-3-Clause
#include "spank/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OWN "rcshared"

/* One line of text at *text, without its newline, to `line`; moves on. False at the end. */
static bool next_line(const char **text, char *line, size_t size)
{
	size_t len = strcspn(*text, "\n");

	if (!**text)
		return false;
	snprintf(line, size, "%.*s", (int)len, *text);
	*text += len + ((*text)[len] == '\n');
	return true;
}

/* Is `word` an element of the comma list? */
static bool listed(const char *list, const char *word, size_t len)
{
	for (;;) {
		size_t n = strcspn(list, ",");

		if (n == len && memcmp(list, word, n) == 0)
			return true;
		if (!list[n])
			return false;
		list += n + 1;
	}
}

/*
 * Where is the hierarchy with `controllers` ("" for v2) mounted? Format: proc(5), mountinfo.
 * Only mounts of the hierarchy's own root are of use.
 */
static bool find_mount(const char *mountinfo, const char *controllers, char *mnt, size_t size)
{
	char line[1024], root[256], point[256], type[32], super[256];
	size_t first = strcspn(controllers, ",");
	const char *tail;

	while (next_line(&mountinfo, line, sizeof(line))) {
		tail = strstr(line, " - ");
		if (!tail || sscanf(line, "%*s %*s %*s %255s %255s", root, point) != 2 ||
			sscanf(tail, " - %31s %*s %255s", type, super) != 2)
			continue;
		if (strcmp(root, "/") != 0)
			continue;
		if (*controllers ? strcmp(type, "cgroup") != 0 || !listed(super, controllers, first)
				 : strcmp(type, "cgroup2") != 0)
			continue;
		snprintf(mnt, size, "%s", point);
		return true;
	}
	return false;
}

/* Length of the part of `path` that ends with the component job_ID, or 0. */
static size_t job_prefix(const char *path, const char *component)
{
	size_t len = strlen(component);
	const char *p = path;

	while ((p = strstr(p, component))) {
		if (p[len] == '\0' || p[len] == '/')
			return (size_t)(p - path) + len;
		p++;
	}
	return 0;
}

void plug_cgroup_parse(
	const char *cgroup, const char *mountinfo, uint32_t job, struct plug_cgroups *out)
{
	char line[1024], component[32], v1[PLUG_CGROUP_PATH] = "", mnt[256];
	char *controllers, *path;
	const char *text;
	size_t len;
	int n;

	out->count = 0;
	snprintf(component, sizeof(component), "/job_%u", job);
	for (text = cgroup; next_line(&text, line, sizeof(line));) {
		controllers = strchr(line, ':');
		path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path || controllers + 1 == path || strncmp(path + 1, "/..", 3) == 0)
			continue;
		len = job_prefix(path + 1, component);
		if (len && len < sizeof(v1))
			snprintf(v1, sizeof(v1), "%.*s", (int)len, path + 1);
	}
	for (text = cgroup; next_line(&text, line, sizeof(line));) {
		char own[PLUG_CGROUP_PATH];

		controllers = strchr(line, ':');
		path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path || out->count == PLUG_CGROUP_MAX)
			continue;
		*path++ = '\0';
		controllers++;
		if (*controllers) {
			snprintf(own, sizeof(own), "%s", v1);
		} else {
			len = strncmp(path, "/..", 3) == 0 ? 0 : job_prefix(path, component);
			snprintf(own, sizeof(own), "%.*s", (int)len, path);
		}
		if (!*own || !find_mount(mountinfo, controllers, mnt, sizeof(mnt)))
			continue;
		n = snprintf(out->job[out->count], PLUG_CGROUP_PATH, "%s%s", mnt, own);
		if (n > 0 && n < PLUG_CGROUP_PATH)
			out->count++;
	}
}

static char *slurp(const char *path)
{
	size_t len = 0, size = 16384;
	char *text = malloc(size), *more;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	while (text && fd >= 0 && (n = read(fd, text + len, size - len - 1)) > 0) {
		len += (size_t)n;
		if (size - len > 4096)
			continue;
		more = realloc(text, size *= 2);
		if (!more)
			break;
		text = more;
	}
	if (fd >= 0)
		close(fd);
	if (text)
		text[len] = '\0';
	return text;
}

void plug_cgroup_find(uint32_t job, struct plug_cgroups *out)
{
	char *cgroup = slurp("/proc/self/cgroup");
	char *mountinfo = slurp("/proc/self/mountinfo");

	out->count = 0;
	if (cgroup && mountinfo)
		plug_cgroup_parse(cgroup, mountinfo, job, out);
	free(cgroup);
	free(mountinfo);
}

static int write_file(const char *dir, const char *name, const char *text)
{
	char path[PLUG_CGROUP_PATH + 64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	close(fd);
	return n < 0 ? -EIO : 0;
}

/* A new folder of v1's cpuset is useless until its CPUs and memory nodes are set. */
static void inherit(const char *parent, const char *child, const char *name)
{
	char path[PLUG_CGROUP_PATH + 64], *text;

	snprintf(path, sizeof(path), "%s/%s", parent, name);
	text = slurp(path);
	if (text && *text)
		write_file(child, name, text);
	free(text);
}

/* v1 and v2 have different names; a file that is not there is another controller's folder. */
static void limit(
	const char *own, unsigned long long memory_limit_mb, unsigned long long cpu_weight)
{
	char number[32];

	if (memory_limit_mb) {
		snprintf(number, sizeof(number), "%llu", memory_limit_mb << 20);
		write_file(own, "memory.limit_in_bytes", number);
		write_file(own, "memory.max", number);
	}
	if (cpu_weight) {
		snprintf(number, sizeof(number), "%llu", cpu_weight);
		write_file(own, "cpu.weight", number);
		/* 100 of v2 is 1024 of v1 */
		snprintf(number, sizeof(number), "%llu", (cpu_weight * 1024 + 99) / 100);
		write_file(own, "cpu.shares", number);
	}
}

/* v1's cpuset holds a process to the cores of its folder: a reserved core is in Slurm's own only. */
static bool place_reserved(const char *job, const char *pid)
{
	char slurm[PLUG_CGROUP_PATH], *uid;

	if (!strstr(job, "cpuset"))
		return false;
	snprintf(slurm, sizeof(slurm), "%s", job);
	uid = strstr(slurm, "/uid_");
	if (!uid)
		return false;
	*uid = '\0';
	return write_file(slurm, "cgroup.procs", pid) == 0;
}

void plug_cgroup_place(const struct plug_cgroups *groups, pid_t pid,
	unsigned long long memory_limit_mb, unsigned long long cpu_weight, bool reserved)
{
	char own[PLUG_CGROUP_PATH + sizeof(OWN) + 1], number[16];
	int i;

	snprintf(number, sizeof(number), "%d", (int)pid);
	for (i = 0; i < groups->count; i++) {
		if (reserved && place_reserved(groups->job[i], number))
			continue;
		snprintf(own, sizeof(own), "%s/" OWN, groups->job[i]);
		if (mkdir(own, 0755) == 0 && strstr(own, "cpuset")) {
			inherit(groups->job[i], own, "cpuset.cpus");
			inherit(groups->job[i], own, "cpuset.mems");
		}
		limit(own, memory_limit_mb, cpu_weight);
		write_file(own, "cgroup.procs", number);
	}
}

static void end_members(const char *own)
{
	char path[PLUG_CGROUP_PATH + 64], *text, *s, *end;
	long pid;

	if (write_file(own, "cgroup.kill", "1") == 0)
		return;
	snprintf(path, sizeof(path), "%s/cgroup.procs", own);
	text = slurp(path);
	for (s = text; s && (pid = strtol(s, &end, 10)) > 0; s = end)
		kill((pid_t)pid, SIGKILL);
	free(text);
}

void plug_cgroup_remove(const struct plug_cgroups *groups)
{
	const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
	char own[PLUG_CGROUP_PATH + sizeof(OWN) + 1], *slash;
	int i, tries;

	for (i = 0; i < groups->count; i++) {
		snprintf(own, sizeof(own), "%s/" OWN, groups->job[i]);
		for (tries = 0; rmdir(own) != 0 && errno == EBUSY && tries < 100; tries++) {
			end_members(own);
			nanosleep(&pause, NULL);
		}
		slash = strrchr(own, '/');
		*slash = '\0';
		if (rmdir(own) != 0)
			continue;
		slash = strrchr(own, '/');
		if (slash && slash > own) {
			*slash = '\0';
			slash = strrchr(own, '/');
			if (slash && strncmp(slash, "/uid_", 5) == 0)
				rmdir(own);
		}
	}
}
