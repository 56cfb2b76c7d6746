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

#define SHM_UVERBS_ATTRS   4

/* One command with n <= SHM_UVERBS_ATTRS attributes: 0 or -errno. */
static inline int shm_uverbs_command(int fd, uint32_t driver, uint16_t object, uint16_t method,
	const struct ib_uverbs_attr *attr, uint16_t n)
{
	_Alignas(8) uint8_t buf[sizeof(struct ib_uverbs_ioctl_hdr) +
		SHM_UVERBS_ATTRS * sizeof(struct ib_uverbs_attr)] = {0};
	struct ib_uverbs_ioctl_hdr *h = (void *)buf;

	if (n > SHM_UVERBS_ATTRS)
		return -E2BIG;
	h->length = (uint16_t)(sizeof(*h) + n * sizeof(*attr));
	h->object_id = object;
	h->method_id = method;
	h->num_attrs = n;
	h->driver_id = driver;
	for (uint16_t i = 0; i < n; i++) {
		h->attrs[i] = attr[i];
		h->attrs[i].flags = UVERBS_ATTR_F_MANDATORY;
	}
	return ioctl(fd, RDMA_VERBS_IOCTL, h) ? -errno : 0;
}

/*
 * Up to max handles of memory regions of the file fd, newest first, into list. Returns how many, or
 * -errno: -EINVAL when driver is not that of fd.
 */
static inline long shm_uverbs_mrs(int fd, uint32_t driver, uint32_t *list, size_t max)
{
	uint32_t total = 0;
	struct ib_uverbs_attr attr[] = {
		{.attr_id = UVERBS_ATTR_INFO_OBJECT_ID, .len = sizeof(uint64_t), .data = UVERBS_OBJECT_MR},
		{.attr_id = UVERBS_ATTR_INFO_TOTAL_HANDLES, .len = sizeof(total),
			.data = (uint64_t)(uintptr_t)&total},
		{.attr_id = UVERBS_ATTR_INFO_HANDLES_LIST, .len = (uint16_t)(max * sizeof(*list)),
			.data = (uint64_t)(uintptr_t)list},
	};
	int err;

	if (max > UINT16_MAX / sizeof(*list))
		return -E2BIG;
	err = shm_uverbs_command(fd, driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, attr, 3);
	return err ? err : (long)total;
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
