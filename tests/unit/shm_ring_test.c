/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm/ring.h"

#define SIZE 4096u

static struct shm_ring_ctl ctl;
static _Alignas(64) uint8_t base[1 << 16];
static struct shm_ring prod, cons;

static int fresh(void **state)
{
	(void)state;
	memset(&ctl, 0, sizeof(ctl));
	memset(base, 0xa5, sizeof(base));
	shm_ring_init(&prod, &ctl, base, SIZE);
	shm_ring_init(&cons, &ctl, base, SIZE);
	return 0;
}

/* A MSG whose payload follows from its tag. 0: full. */
static int put(struct shm_ring *r, uint64_t tag, uint32_t len)
{
	struct wire_rec *w = shm_ring_reserve(r, len);

	if (!w)
		return 0;
	*w = (struct wire_rec){.type = WIRE_REC_MSG, .len = len, .tag = tag};
	memset(w + 1, (int)(tag & 0xff), len);
	shm_ring_commit(r, len);
	return 1;
}

/* 1 when the next record is exactly (tag, len); 0 empty. */
static int take(struct shm_ring *r, uint64_t tag, uint32_t len)
{
	const uint8_t *payload = NULL;
	struct wire_rec h;
	int rc = shm_ring_peek(r, &h, &payload);

	if (rc <= 0)
		return rc;
	assert_int_equal(h.tag, tag);
	assert_int_equal(h.len, len);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(payload[i], tag & 0xff);
	shm_ring_consume(r, &h);
	return 1;
}

static void nothing_is_seen_before_publish(void **state)
{
	(void)state;
	assert_int_equal(take(&cons, 0, 0), 0);
	assert_int_equal(put(&prod, 1, 10), 1);
	assert_int_equal(take(&cons, 1, 10), 0);
	shm_ring_publish(&prod);
	assert_int_equal(take(&cons, 1, 10), 1);
	assert_int_equal(take(&cons, 1, 10), 0);
}

static void a_record_stays_until_it_is_consumed(void **state)
{
	const uint8_t *p, *q;
	struct wire_rec h;

	(void)state;
	put(&prod, 1, 8);
	shm_ring_publish(&prod);
	assert_int_equal(shm_ring_peek(&cons, &h, &p), 1);
	assert_int_equal(shm_ring_peek(&cons, &h, &q), 1);
	assert_ptr_equal(p, q);
	assert_int_equal(atomic_load(&ctl.head), 0);
}

static void a_full_ring_takes_nothing_and_recovers(void **state)
{
	uint64_t in = 0, out = 0;

	(void)state;
	while (put(&prod, in, 0))
		in++;
	assert_int_equal(in, SIZE / 64);
	assert_int_equal(shm_ring_room(&prod), 0);
	assert_null(shm_ring_reserve(&prod, 0));
	shm_ring_publish(&prod);
	assert_int_equal(take(&cons, out++, 0), 1);
	assert_int_equal(put(&prod, in++, 0), 1);
	assert_int_equal(put(&prod, in, 0), 0);
	shm_ring_publish(&prod);
	while (take(&cons, out, 0) > 0)
		out++;
	assert_int_equal(out, in);
	assert_int_equal(shm_ring_room(&prod), SIZE);
}

/* Every length, so that every size of the ring's end is met, also those shorter than a header. */
static void records_never_wrap(void **state)
{
	uint64_t tag = 0;

	(void)state;
	for (uint32_t step = 0; step < 3; step++)
		for (uint32_t len = 0; len <= 1500; len += 1 + step * 7) {
			assert_int_equal(put(&prod, tag, len), 1);
			shm_ring_publish(&prod);
			assert_int_equal(take(&cons, tag, len), 1);
			tag++;
		}
	assert_true(prod.pos > 10 * SIZE);
	assert_int_equal(prod.pos, cons.pos);
	for (size_t i = SIZE; i < sizeof(base); i++)
		assert_int_equal(base[i], 0xa5); /* nothing behind the ring was touched */
}

static void an_end_shorter_than_a_header_is_padding(void **state)
{
	(void)state;
	/* 63 * 64 + 8 = 4040: 56 bytes remain, too few for a header. */
	for (uint64_t i = 0; i < 62; i++)
		assert_int_equal(put(&prod, i, 0), 1);
	assert_int_equal(put(&prod, 62, 8), 1);
	shm_ring_publish(&prod);
	for (uint64_t i = 0; i < 62; i++)
		assert_int_equal(take(&cons, i, 0), 1);
	assert_int_equal(take(&cons, 62, 8), 1);
	assert_int_equal(put(&prod, 63, 16), 1);
	shm_ring_publish(&prod);
	assert_int_equal(prod.pos, SIZE + 80);
	assert_int_equal(take(&cons, 63, 16), 1);
}

static void a_wrap_needs_room_for_its_padding_too(void **state)
{
	(void)state;
	assert_int_equal(put(&prod, 0, 3000), 1); /* 3064 */
	shm_ring_publish(&prod);
	assert_int_equal(take(&cons, 0, 3000), 1);
	/* 1032 remain before the end; 2000 must wrap: 1032 + 2064 fit */
	assert_int_equal(put(&prod, 1, 2000), 1);
	/* now 1000 are free */
	assert_int_equal(shm_ring_room(&prod), 1000);
	assert_int_equal(put(&prod, 2, 937), 0);
	assert_int_equal(put(&prod, 2, 936), 1);
	shm_ring_publish(&prod);
	assert_int_equal(take(&cons, 1, 2000), 1);
	assert_int_equal(take(&cons, 2, 936), 1);
}

static void a_consumer_does_not_believe_positions(void **state)
{
	static const uint64_t nonsense[] = {SIZE + 8, 1, 7, 1ull << 63, UINT64_MAX, SIZE * 2};

	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		fresh(state);
		put(&prod, 1, 8);
		atomic_store(&ctl.tail, nonsense[i]);
		assert_int_equal(take(&cons, 1, 8), -EPROTO);
		assert_int_equal(take(&cons, 1, 8), -EPROTO);
	}
}

static void a_consumer_does_not_believe_records(void **state)
{
	static const struct wire_rec bad[] = {
		{.type = 999, .len = 0},
		{.type = WIRE_REC_MSG, .len = WIRE_REC_PAYLOAD_MAX + 1},
		{.type = WIRE_REC_MSG, .len = UINT32_MAX},
		{.type = WIRE_REC_MSG, .len = 4000}, /* fits the ring, not what was published */
		{.type = WIRE_REC_PAD, .len = 8},    /* padding to the end that was not published */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh(state);
		memcpy(base, &bad[i], sizeof(bad[i]));
		atomic_store(&ctl.tail, 72);
		assert_int_equal(take(&cons, 0, 0), -EPROTO);
	}
}

static void a_header_is_copied_before_it_is_checked(void **state)
{
	struct wire_rec *shared = (struct wire_rec *)(void *)base;
	const uint8_t *payload = NULL;
	struct wire_rec h;

	(void)state;
	put(&prod, 5, 16);
	shm_ring_publish(&prod);
	assert_int_equal(shm_ring_peek(&cons, &h, &payload), 1);
	shared->len = UINT32_MAX; /* the other side changes its mind */
	shm_ring_consume(&cons, &h);
	assert_int_equal(cons.pos, 80);
}

static void a_producer_does_not_believe_positions(void **state)
{
	(void)state;
	while (put(&prod, 0, 0))
		;
	shm_ring_publish(&prod);
	atomic_store(&ctl.head, prod.pos + 8); /* consumed more than was produced */
	assert_int_equal(shm_ring_room(&prod), -EPROTO);
	assert_null(shm_ring_reserve(&prod, 0));
	atomic_store(&ctl.head, (uint64_t)0 - 8);
	assert_int_equal(shm_ring_room(&prod), -EPROTO);
	assert_null(shm_ring_reserve(&prod, 0));
}

static void a_sleeper_is_woken_once(void **state)
{
	(void)state;
	assert_int_equal(shm_ring_arm(&cons), 0);
	put(&prod, 1, 0);
	assert_int_equal(shm_ring_publish(&prod), 1);
	put(&prod, 2, 0);
	assert_int_equal(shm_ring_publish(&prod), 0);
	assert_int_equal(shm_ring_arm(&cons), 1); /* something is there after all */
	assert_int_equal(atomic_load(&ctl.need_wakeup), 0);
	assert_int_equal(take(&cons, 1, 0), 1);
	assert_int_equal(take(&cons, 2, 0), 1);
	assert_int_equal(shm_ring_arm(&cons), 0);
	shm_ring_disarm(&cons);
	put(&prod, 3, 0);
	assert_int_equal(shm_ring_publish(&prod), 0);
}

#define HAMMER 200000u

static int bell;

static uint32_t length(uint64_t tag)
{
	return (uint32_t)(tag * 2654435761u % 700);
}

static void *hammer(void *arg)
{
	(void)arg;
	for (uint64_t tag = 0; tag < HAMMER; tag++) {
		while (!put(&prod, tag, length(tag))) {
			if (shm_ring_publish(&prod))
				eventfd_write(bell, 1);
			sched_yield();
		}
		if (tag % 5 == 0 && shm_ring_publish(&prod))
			eventfd_write(bell, 1);
	}
	if (shm_ring_publish(&prod))
		eventfd_write(bell, 1);
	return NULL;
}

/* Two threads, with sleeping: nothing is lost, doubled, reordered or torn, no wakeup is missed. */
static void two_threads_agree(void **state)
{
	uint64_t tag = 0;
	pthread_t t;

	(void)state;
	bell = eventfd(0, EFD_CLOEXEC);
	assert_true(bell >= 0);
	assert_int_equal(pthread_create(&t, NULL, hammer, NULL), 0);
	while (tag < HAMMER) {
		const uint8_t *payload = NULL;
		struct wire_rec h;
		int rc = shm_ring_peek(&cons, &h, &payload);

		assert_true(rc >= 0);
		if (!rc) {
			struct pollfd p = {.fd = bell, .events = POLLIN};
			eventfd_t n;

			if (shm_ring_arm(&cons))
				continue;
			if (poll(&p, 1, 30000) != 1)
				fail_msg("a wakeup was missed at record %llu", (unsigned long long)tag);
			eventfd_read(bell, &n);
			continue;
		}
		if (h.tag != tag || h.len != length(tag))
			fail_msg("record %llu came as %llu", (unsigned long long)tag,
				(unsigned long long)h.tag);
		for (uint32_t i = 0; i < h.len; i++)
			if (payload[i] != (tag & 0xff))
				fail_msg("record %llu is torn", (unsigned long long)tag);
		shm_ring_consume(&cons, &h);
		tag++;
	}
	pthread_join(t, NULL);
	assert_int_equal(take(&cons, 0, 0), 0);
	close(bell);
}

#define T(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_is_seen_before_publish),
		T(a_record_stays_until_it_is_consumed),
		T(a_full_ring_takes_nothing_and_recovers),
		T(records_never_wrap),
		T(an_end_shorter_than_a_header_is_padding),
		T(a_wrap_needs_room_for_its_padding_too),
		T(a_consumer_does_not_believe_positions),
		T(a_consumer_does_not_believe_records),
		T(a_header_is_copied_before_it_is_checked),
		T(a_producer_does_not_believe_positions),
		T(a_sleeper_is_woken_once),
		T(two_threads_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
