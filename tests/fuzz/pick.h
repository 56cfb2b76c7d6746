/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pick.h - choices read from a fuzzer's byte string. When the string has ended each of them is 0, so any
 * prefix of an input is an input.
 */
#ifndef RCS_TESTS_FUZZ_PICK_H
#define RCS_TESTS_FUZZ_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pick {
	const uint8_t *at;
	size_t left;
};

uint8_t pick_byte(struct pick *p);
uint32_t pick_below(struct pick *p, uint32_t n); /* one byte: n up to 256 */
bool pick_often(struct pick *p); /* true for 7 of 8 bytes: what is plausible */
/* A length, an offset, an address: small ones, edges of what is checked somewhere, or any eight bytes. */
uint64_t pick_number(struct pick *p);
/* Fills buf; a short string is repeated. */
void pick_bytes(struct pick *p, void *buf, size_t len);

#endif
