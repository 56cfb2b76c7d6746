/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.h - a ring of records between one producer and one consumer in shared memory.
 *
 * Positions grow for ever; the byte at position p lies at p & (size - 1). A record never wraps: a
 * WIRE_REC_PAD record fills the end. Each side keeps its own position privately and publishes it;
 * what the other side publishes is a hint that is checked, never trusted: a producer that
 * publishes nonsense loses its ring (-EPROTO) and harms nobody.
 *
 * One thread a side. A consumer that wants to sleep sets need_wakeup, looks once more, then waits
 * for its eventfd; the producer writes to the eventfd when it sees the flag after publishing. A producer that
 * found no room does the same with need_room, and the consumer rings when it has taken something.
 */
#ifndef RCS_SHM_RING_H
#define RCS_SHM_RING_H

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "wire/record.h"

struct shm_ring_ctl {
	_Alignas(64) _Atomic uint64_t tail; /* written by the producer */
	_Atomic uint32_t need_room;	    /* producer sets, consumer clears */
	_Alignas(64) _Atomic uint64_t head; /* written by the consumer */
	/* consumer sets, producer clears: a line of its own, which the producer reads at each publish */
	_Alignas(64) _Atomic uint32_t need_wakeup;
};
_Static_assert(sizeof(struct shm_ring_ctl) == 192, "layout");

struct shm_ring {
	struct shm_ring_ctl *ctl;
	uint8_t *base;
	uint64_t size;	/* power of two */
	uint64_t pos;	/* own position: next byte to write or to read */
	uint64_t other; /* last seen position of the other side */
};

static inline void shm_ring_init(struct shm_ring *r, struct shm_ring_ctl *ctl, void *base,
	uint64_t size)
{
	*r = (struct shm_ring){.ctl = ctl, .base = base, .size = size};
}

/* Producer: bytes free now, not counting what a wrap would waste. -EPROTO: consumer's nonsense. */
static inline int64_t shm_ring_room(struct shm_ring *r)
{
	r->other = atomic_load_explicit(&r->ctl->head, memory_order_acquire);
	if (r->pos - r->other > r->size)
		return -EPROTO;
	return (int64_t)(r->size - (r->pos - r->other));
}

/*
 * Producer: room for a record with len bytes of payload. Returns where to write it, or NULL when
 * the ring is full (or the consumer published nonsense). Nothing is visible before publish.
 */
static inline struct wire_rec *shm_ring_reserve(struct shm_ring *r, uint32_t len)
{
	uint64_t need = WIRE_REC_SPACE(len);
	uint64_t at = r->pos & (r->size - 1);
	uint64_t end = r->size - at;
	uint64_t total = end < need ? end + need : need;

	if (r->size - (r->pos - r->other) < total || r->pos - r->other > r->size) {
		if (shm_ring_room(r) < (int64_t)total)
			return NULL;
	}
	if (end < need) {
		/* Positions are multiples of 8 and a header has 64 bytes, so the end of the ring may
		 * be shorter than a header: the consumer knows that such an end is padding. */
		if (end >= sizeof(struct wire_rec)) {
			struct wire_rec *pad = (struct wire_rec *)(void *)(r->base + at);

			pad->type = WIRE_REC_PAD;
			pad->len = (uint32_t)(end - sizeof(struct wire_rec));
		}
		r->pos += end;
		at = 0;
	}
	return (struct wire_rec *)(void *)(r->base + at);
}

/* Producer: the record at the reserved place, with len bytes of payload, is complete. */
static inline void shm_ring_commit(struct shm_ring *r, uint32_t len)
{
	r->pos += WIRE_REC_SPACE(len);
}

/* Producer: is the consumer asleep, to be told of something that is in no record? As publish. */
static inline int shm_ring_wake(struct shm_ring *r)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&r->ctl->need_wakeup, memory_order_relaxed) &&
		atomic_exchange_explicit(&r->ctl->need_wakeup, 0, memory_order_relaxed);
}

/* Producer: make committed records visible. Nonzero: the consumer sleeps, write to its eventfd. */
static inline int shm_ring_publish(struct shm_ring *r)
{
	atomic_store_explicit(&r->ctl->tail, r->pos, memory_order_release);
	return shm_ring_wake(r);
}

/* Producer: found no room, and wants to hear of some. Look once more for room after this. */
static inline void shm_ring_want(struct shm_ring *r)
{
	atomic_store_explicit(&r->ctl->need_room, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* Consumer: has taken records. Nonzero: the producer waits for room, write to its eventfd. */
static inline int shm_ring_freed(struct shm_ring *r)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&r->ctl->need_room, memory_order_relaxed) &&
		atomic_exchange_explicit(&r->ctl->need_room, 0, memory_order_relaxed);
}

/*
 * Consumer: the next record. 1 and *rec (its header copied to *hdr, which alone may be believed),
 * 0 when empty, -EPROTO when the ring's content makes no sense. The record stays in the ring until
 * shm_ring_consume with the same header.
 */
static inline int shm_ring_peek(struct shm_ring *r, struct wire_rec *hdr, const uint8_t **payload)
{
	for (;;) {
		uint64_t at = r->pos & (r->size - 1);
		uint64_t end = r->size - at;
		const char *why;

		if (r->other == r->pos) {
			r->other = atomic_load_explicit(&r->ctl->tail, memory_order_acquire);
			if (r->other == r->pos)
				return 0;
			if (r->other - r->pos > r->size || r->other & 7) {
				r->other = r->pos;
				return -EPROTO;
			}
		}
		if (end < sizeof(struct wire_rec)) {
			if (r->other - r->pos < end)
				return -EPROTO;
			r->pos += end;
			continue;
		}
		memcpy(hdr, r->base + at, sizeof(*hdr));
		if (hdr->type == WIRE_REC_PAD) {
			if (r->other - r->pos < end)
				return -EPROTO;
			r->pos += end;
			continue;
		}
		if (wire_rec_check(hdr, r->other - r->pos < end ? r->other - r->pos : end, &why))
			return -EPROTO;
		*payload = r->base + at + sizeof(*hdr);
		return 1;
	}
}

static inline void shm_ring_consume(struct shm_ring *r, const struct wire_rec *hdr)
{
	r->pos += WIRE_REC_SPACE(hdr->len);
	atomic_store_explicit(&r->ctl->head, r->pos, memory_order_release);
}

/* Consumer: about to sleep. Nonzero: something is there after all, do not. */
static inline int shm_ring_arm(struct shm_ring *r)
{
	atomic_store_explicit(&r->ctl->need_wakeup, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (r->other != r->pos || atomic_load_explicit(&r->ctl->tail, memory_order_acquire) != r->pos) {
		atomic_store_explicit(&r->ctl->need_wakeup, 0, memory_order_relaxed);
		return 1;
	}
	return 0;
}

static inline void shm_ring_disarm(struct shm_ring *r)
{
	atomic_store_explicit(&r->ctl->need_wakeup, 0, memory_order_relaxed);
}

#endif
