/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uverbs.h - the kernel's verbs ioctl, as far as lent descriptors need it (design section 6).
 *
 * Daemon and library speak to the same uverbs file, the library without a context of libibverbs.
 * Every command names the kernel's driver and is refused with EINVAL when it names another one; no
 * interface tells which it is, so it is asked with a command that changes nothing: the list of
 * handles of the file's memory regions, which the sweep of leftovers needs anyway.
 */
#ifndef RCS_SHM_UVERBS_H
#define RCS_SHM_UVERBS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define SHM_UVERBS_DRIVERS 64 /* enum rdma_driver_id is below */

/*
 * Up to max handles of memory regions of the file fd, into list. Returns how many, or -errno:
 * -EINVAL when driver is not that of fd.
 */
static inline long shm_uverbs_mrs(int fd, uint32_t driver, uint32_t *list, size_t max)
{
	uint32_t total = 0;
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr[3];
	} cmd = {
		.hdr = {.length = sizeof(cmd), .object_id = UVERBS_OBJECT_DEVICE,
			.method_id = UVERBS_METHOD_INFO_HANDLES, .num_attrs = 3, .driver_id = driver},
		.attr = {{.attr_id = UVERBS_ATTR_INFO_OBJECT_ID, .len = sizeof(uint64_t),
				 .flags = UVERBS_ATTR_F_MANDATORY, .data = UVERBS_OBJECT_MR},
			{.attr_id = UVERBS_ATTR_INFO_TOTAL_HANDLES, .len = sizeof(total),
				.flags = UVERBS_ATTR_F_MANDATORY, .data = (uint64_t)(uintptr_t)&total},
			{.attr_id = UVERBS_ATTR_INFO_HANDLES_LIST,
				.len = (uint16_t)(max * sizeof(*list)), .flags = UVERBS_ATTR_F_MANDATORY,
				.data = (uint64_t)(uintptr_t)list}},
	};

	if (max > UINT16_MAX / sizeof(*list))
		return -E2BIG;
	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd) ? -errno : (long)total;
}

/* The driver of a uverbs file, or -errno. */
static inline int shm_uverbs_driver(int fd)
{
	uint32_t list[2];

	for (uint32_t d = 0; d < SHM_UVERBS_DRIVERS; d++) {
		long n = shm_uverbs_mrs(fd, d, list, 2);

		if (n >= 0)
			return (int)d;
		if (n != -EINVAL)
			return (int)n;
	}
	return -EOPNOTSUPP;
}

#endif
