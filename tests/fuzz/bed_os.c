/* SPDX-License-Identifier: BSD-3-Clause */
/* What bed_os.h puts in the place of the system's calls. */
#include "bed.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#undef epoll_wait /* the system's own */
#undef poll
#undef recvmsg
int epoll_wait(int fd, struct epoll_event *ev, int n, int ms);
ssize_t recvmsg(int fd, struct msghdr *m, int flags);
int poll(struct pollfd *p, nfds_t n, int ms);

static uint64_t now = 1000000000000ull;
static uint8_t memory[BED_MEM_LEN];
static uint8_t random_byte;

void bed_os_reset(void)
{
	memset(memory, 0, sizeof(memory));
	random_byte = 0;
}

void bed_pass(uint64_t ns)
{
	now += ns;
}

int bed_clock_gettime(clockid_t id, struct timespec *t)
{
	(void)id;
	*t = (struct timespec){.tv_sec = (time_t)(now / 1000000000), .tv_nsec = (long)(now % 1000000000)};
	return 0;
}

ssize_t bed_getrandom(void *buf, size_t len, unsigned flags)
{
	(void)flags;
	memset(buf, ++random_byte, len);
	return (ssize_t)len;
}

/* No names are asked for: daemons know each other's addresses from bed_open(). */
int bed_getaddrinfo_a(int mode, struct gaicb **list, int n, struct sigevent *ev)
{
	(void)mode;
	(void)list;
	(void)n;
	(void)ev;
	return EAI_AGAIN;
}

/* --- who waits: the daemons have their turns meanwhile ------------------------------------------------ */

int bed_epoll_wait(int fd, struct epoll_event *ev, int n, int ms)
{
	(void)ms;
	return epoll_wait(fd, ev, n, 0);
}

/* None that the C library has no name for: epoll_pwait2() is one. */
long bed_syscall(long number, ...)
{
	(void)number;
	errno = ENOSYS;
	return -1;
}

static int nap(uint64_t ns)
{
	bed_pass(ns);
	bed_turns(1);
	return 0;
}

int bed_nanosleep(const struct timespec *t, struct timespec *left)
{
	(void)left;
	return nap((uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec);
}

int bed_usleep(useconds_t us)
{
	return nap(us * 1000ull);
}

int bed_sched_yield(void)
{
	return nap(1000);
}

int bed_poll(struct pollfd *p, nfds_t n, int ms)
{
	(void)p;
	(void)n;
	return nap(ms > 0 ? (uint64_t)ms * BED_MS : BED_MS);
}

int bed_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *set)
{
	uint64_t left = (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;

	(void)set;
	for (int i = 0;; i++) {
		uint64_t step = i < 10 ? 1000 : 100 * BED_MS;
		int ready = poll(p, n, 0);

		if (ready || !left)
			return ready;
		nap(step < left ? step : left);
		left -= step < left ? step : left;
	}
}

/* An answer of a daemon is there after a few turns, or a second after what it has to wait for. */
ssize_t bed_recvmsg(int fd, struct msghdr *m, int flags)
{
	for (int i = 0; i < 100; i++) {
		ssize_t got = recvmsg(fd, m, flags | MSG_DONTWAIT);

		if (got >= 0 || errno != EAGAIN)
			return got;
		nap(i < 10 ? 1000 : 100 * BED_MS);
	}
	errno = EAGAIN;
	return -1;
}

/* --- the memory of ranks ----------------------------------------------------------------------------- */

bool bed_memory(uint64_t addr, void *buf, size_t len, bool write)
{
	if (addr < BED_MEM || addr > BED_MEM + BED_MEM_LEN || len > BED_MEM + BED_MEM_LEN - addr)
		return false;
	if (write)
		memcpy(memory + (addr - BED_MEM), buf, len);
	else
		memcpy(buf, memory + (addr - BED_MEM), len);
	return true;
}

/* As the kernel does: as far as it goes, an error where that is nothing. */
static ssize_t vm_copy(const struct iovec *near, unsigned long near_n, const struct iovec *far, unsigned long far_n,
	bool write)
{
	unsigned long i = 0, k = 0;
	size_t at = 0, off = 0;
	ssize_t sum = 0;

	if (bed.vm_refused) {
		errno = EPERM;
		return -1;
	}
	while (i < near_n && k < far_n) {
		size_t a = near[i].iov_len - at, b = far[k].iov_len - off, n = a < b ? a : b;

		if (n && !bed_memory((uintptr_t)far[k].iov_base + off, (uint8_t *)near[i].iov_base + at, n, write))
			break;
		sum += (ssize_t)n;
		at += n;
		off += n;
		if (at == near[i].iov_len)
			at = 0, i++;
		if (off == far[k].iov_len)
			off = 0, k++;
	}
	if (sum || i == near_n || k == far_n)
		return sum;
	errno = EFAULT;
	return -1;
}

ssize_t bed_vm_readv(pid_t pid, const struct iovec *near, unsigned long near_n, const struct iovec *far,
	unsigned long far_n, unsigned long flags)
{
	(void)pid;
	(void)flags;
	return vm_copy(near, near_n, far, far_n, false);
}

ssize_t bed_vm_writev(pid_t pid, const struct iovec *near, unsigned long near_n, const struct iovec *far,
	unsigned long far_n, unsigned long flags)
{
	(void)pid;
	(void)flags;
	return vm_copy(near, near_n, far, far_n, true);
}
