/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * psn.h - packet sequence numbers of a reliable connection: 24 bits, modulo 2^24 (InfiniBand
 * Architecture Specification, volume 1, sections 9.2 and 9.7). A SEND or WRITE takes one for each
 * packet and at least one, a READ one for each packet of its response.
 */
#ifndef RCS_CORE_PSN_H
#define RCS_CORE_PSN_H

#include <stdbool.h>
#include <stdint.h>

#define CORE_PSN_MASK 0xffffffu
/* Requests outstanding on a queue pair take fewer numbers than this: then order is defined. */
#define CORE_PSN_WINDOW (1u << 23)

/* mtu: path MTU in bytes. */
static inline uint32_t core_psn_packets(uint64_t len, uint32_t mtu)
{
	return len ? (uint32_t)((len + mtu - 1) / mtu) : 1;
}

static inline uint32_t core_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & CORE_PSN_MASK;
}

/* Is a before b, both of one window? */
static inline bool core_psn_before(uint32_t a, uint32_t b)
{
	return ((b - a - 1) & CORE_PSN_MASK) < CORE_PSN_WINDOW - 1;
}

#endif
