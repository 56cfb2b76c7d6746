/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * psn.h - packet sequence numbers of a reliable connection: 24 bits, modulo 2^24 (InfiniBand
 * Architecture Specification, volume 1, sections 9.2 and 9.7). A SEND or WRITE takes one for each
 * packet and at least one, a READ one for each packet of its response.
 *
 * And what a fenced queue pair can tell of the requests that it executed. Where the device does not
 * tell the truth in rq_psn, the initiator writes a growing number into a word of the responder's
 * memory behind each batch of its puts (design, section 7: the ledger write). Requests execute in order, so
 * the puts of a batch have executed when the word has its number; of those behind it nothing is known.
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

enum core_told {
	CORE_TOLD_NOTHING = 0,
	CORE_TOLD_PSN,	/* number is the PSN expected next */
	CORE_TOLD_WORD, /* number stands in the ledger word */
};

/* believed: psn could be read, and the device is not known to lie. word: 0 when there is none. */
static inline enum core_told core_tell(bool believed, uint32_t psn, uint64_t word, uint32_t *number)
{
	*number = believed ? psn : (uint32_t)word;
	return believed ? CORE_TOLD_PSN : word ? CORE_TOLD_WORD : CORE_TOLD_NOTHING;
}

/* Is a before b, both of one window? */
static inline bool core_psn_before(uint32_t a, uint32_t b)
{
	return ((b - a - 1) & CORE_PSN_MASK) < CORE_PSN_WINDOW - 1;
}

#endif
