/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bed_os.h - included before each source of the fuzzers: calls of the system whose outcome an input must
 * decide, or nothing. bed.c has them. Time passes when a fuzzer says so; nobody sleeps; the memory of
 * "other processes" is an array, as all of them are this one.
 */
#ifndef RCS_TESTS_FUZZ_BED_OS_H
#define RCS_TESTS_FUZZ_BED_OS_H

#define clock_gettime	 bed_clock_gettime
#define epoll_wait	 bed_epoll_wait
#define getaddrinfo_a	 bed_getaddrinfo_a
#define getrandom	 bed_getrandom
#define nanosleep	 bed_nanosleep
#define poll		 bed_poll
#define ppoll		 bed_ppoll
#define process_vm_readv bed_vm_readv
#define process_vm_writev bed_vm_writev
#define recvmsg		 bed_recvmsg
#define sched_yield	 bed_sched_yield
#define syscall		 bed_syscall
#define usleep		 bed_usleep

#endif
