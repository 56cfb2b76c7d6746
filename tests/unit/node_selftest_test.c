/* SPDX-License-Identifier: BSD-3-Clause */
/* The judge of a device's self-test, fed with what devices might do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/psn.h"
#include "node/verbs_selftest.h"

#define MTU 1024u

static struct selftest_layout layout;
static uint8_t *area, *source;
static char why[256];

static int set_up(void **state)
{
	(void)state;
	selftest_layout_make(&layout, MTU);
	area = malloc(layout.size);
	source = malloc(layout.size);
	return !area || !source;
}

static int tear_down(void **state)
{
	(void)state;
	free(area);
	free(source);
	return 0;
}

static uint32_t packets_of(uint32_t number)
{
	return core_psn_packets(layout.len[(number - 1) % SELFTEST_SLOTS], MTU);
}

/* Packets of the writes 1 to n. */
static uint32_t packets_to(uint32_t n)
{
	uint32_t p = 0;

	for (uint32_t i = 1; i <= n; i++)
		p += packets_of(i);
	return p;
}

/* What memory looks like after so many packets, in order. */
static void execute(uint32_t packets)
{
	selftest_clear(&layout, area);
	for (uint32_t number = 1; packets; number++) {
		uint32_t s = (number - 1) % SELFTEST_SLOTS;

		selftest_fill(&layout, source, number);
		for (uint32_t i = 0; i < packets_of(number) && packets; i++, packets--) {
			uint32_t at = layout.at[s] + i * MTU, len = layout.len[s] - i * MTU;

			memcpy(area + at, source + at, len > MTU ? MTU : len);
		}
	}
}

/* A device that executed so many packets and says so. */
static struct selftest_trial truthful(uint32_t first, uint32_t posted, uint32_t executed)
{
	struct selftest_trial t = {.layout = &layout, .first_psn = first, .posted = posted,
		.rq_psn = core_psn_add(first, executed), .rq_psn_again = core_psn_add(first, executed)};

	execute(executed);
	selftest_look(&layout, area, posted, t.seen);
	selftest_look(&layout, area, posted, t.seen_again);
	return t;
}

static void is_false(const struct selftest_trial *t, const char *part)
{
	why[0] = '\0';
	assert_int_equal(selftest_judge(t, why, sizeof(why)), SELFTEST_FALSE);
	if (!strstr(why, part))
		fail_msg("said '%s', expected '%s'", why, part);
}

static void a_layout_has_all_kinds_of_writes_and_fits(void **state)
{
	static const uint32_t mtu[] = {256, 512, 1024, 2048, 4096};

	(void)state;
	for (unsigned i = 0; i < sizeof(mtu) / sizeof(mtu[0]); i++) {
		struct selftest_layout l;
		unsigned empty = 0, one = 0, odd = 0, full = 0, many = 0;

		selftest_layout_make(&l, mtu[i]);
		assert_in_range(l.piece[SELFTEST_SLOTS], SELFTEST_SLOTS, SELFTEST_PIECES);
		assert_in_range(2 * l.size, 1, 256 << 10);
		for (unsigned s = 0; s < SELFTEST_SLOTS; s++) {
			empty += l.len[s] == 0;
			one += l.len[s] == 1;
			odd += l.len[s] % 2;
			full += l.len[s] == mtu[i];
			many += l.len[s] > mtu[i];
			assert_true(l.at[s] + l.len[s] <= (s + 1 < SELFTEST_SLOTS ? l.at[s + 1] : l.size));
		}
		assert_true(empty && one && odd > one && full && many);
	}
}

static void memory_shows_which_write_it_is_of(void **state)
{
	uint32_t seen[SELFTEST_PIECES];

	(void)state;
	/* laps beyond what 8 bits count */
	for (uint32_t lap = 0; lap < 600; lap += 7) {
		uint32_t n = lap * SELFTEST_SLOTS + 5;

		selftest_clear(&layout, area);
		for (uint32_t k = n > SELFTEST_SLOTS ? n - SELFTEST_SLOTS + 1 : 1; k <= n; k++)
			selftest_fill(&layout, area, k);
		selftest_look(&layout, area, n, seen);
		assert_int_equal(seen[layout.piece[4]], n);
		assert_int_equal(seen[layout.piece[5]], lap ? n + 1 - SELFTEST_SLOTS : 0);
		/* write n + 1 was posted and did not arrive */
		selftest_look(&layout, area, n + 1, seen);
		assert_int_equal(seen[layout.piece[5]], lap ? n + 1 - SELFTEST_SLOTS : 0);
	}
	area[layout.at[3] + MTU + 7] ^= 1;
	selftest_look(&layout, area, 599 * SELFTEST_SLOTS, seen);
	assert_true(seen[layout.piece[3] + 1] == SELFTEST_TORN);
}

static void a_truthful_device_passes_wherever_it_is_cut(void **state)
{
	static const uint32_t first[] = {0, 1, 0x123456, 0x7ffff0, 0xfffff0, 0xffffff};
	uint32_t all = packets_to(150);

	(void)state;
	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		for (uint32_t e = 0; e < all; e++) {
			struct selftest_trial t = truthful(first[i], 150, e);

			if (selftest_judge(&t, why, sizeof(why)) != SELFTEST_TRUE)
				fail_msg("first %u, %u packets: %s", first[i], e, why);
		}
}

static void a_burst_that_was_over_says_nothing(void **state)
{
	struct selftest_trial t = truthful(77, 150, packets_to(150));

	(void)state;
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_UNCUT);
}

static void a_device_that_is_off_by_one_fails(void **state)
{
	(void)state;
	for (uint32_t w = 20; w < 20 + 2 * SELFTEST_SLOTS; w++) {
		struct selftest_trial t = truthful(0xffffe0, 150, packets_to(w));
		uint32_t len = layout.len[(w - 1) % SELFTEST_SLOTS];
		uint32_t next = layout.len[w % SELFTEST_SLOTS];

		if (len) { /* memory cannot show an empty write */
			t.rq_psn = t.rq_psn_again = core_psn_add(0xffffe0, packets_to(w) - 1);
			is_false(&t, "is in memory");
		}
		if (next) {
			t.rq_psn = t.rq_psn_again = core_psn_add(0xffffe0, packets_to(w) + 1);
			is_false(&t, "is not in memory");
		}
	}
}

static void acknowledged_writes_must_be_counted(void **state)
{
	struct selftest_trial t = truthful(5, 150, packets_to(60));

	(void)state;
	t.acked = 60;
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_TRUE);
	t.acked = 61;
	is_false(&t, "counts 60 writes, but 61 were acknowledged");
}

static void what_executes_after_the_report_is_noticed(void **state)
{
	struct selftest_trial t = truthful(5, 150, packets_to(62)), later;

	(void)state;
	/* a small one, and rq_psn moves */
	later = truthful(5, 150, packets_to(63));
	memcpy(t.seen_again, later.seen, sizeof(t.seen));
	is_false(&t, "memory changed after the fence");
	t.rq_psn_again = later.rq_psn;
	is_false(&t, "rq_psn was");
	/* one more packet of the write that was cut */
	t = truthful(5, 150, packets_to(51) + 1);
	later = truthful(5, 150, packets_to(51) + 2);
	memcpy(t.seen_again, later.seen, sizeof(t.seen));
	is_false(&t, "memory changed after the fence");
}

static void a_constant_is_found_out(void **state)
{
	static const uint32_t told[] = {0, 1000, 0xffffff};

	(void)state;
	/* what the host wrote, the first PSN */
	for (uint32_t e = 1; e < 100; e++) {
		struct selftest_trial t = truthful(1000, 150, packets_to(e));

		t.rq_psn = t.rq_psn_again = 1000;
		if (layout.len[0])
			is_false(&t, "counts 0 writes, but write");
	}
	for (unsigned i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
		struct selftest_trial t = truthful(500000, 150, packets_to(30));

		t.rq_psn = t.rq_psn_again = told[i];
		is_false(&t, "were sent");
	}
}

static void a_last_write_may_be_there_in_part_but_not_whole(void **state)
{
	/* write 4 has 3 packets, as have those of its slot in later laps */
	uint32_t w = 4 + 2 * SELFTEST_SLOTS, e = packets_to(w - 1) + 1, p = layout.piece[3];
	struct selftest_trial t = truthful(0xfffff0, 150, e);

	(void)state;
	assert_int_equal(packets_of(w), 3);
	assert_int_equal(t.seen[p], w);
	assert_int_equal(t.seen[p + 1], w - SELFTEST_SLOTS);
	/* a packet that was written and not counted, or the half of it: runs again */
	t.seen[p + 1] = t.seen_again[p + 1] = SELFTEST_TORN;
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_TRUE);
	t.seen[p + 1] = t.seen_again[p + 1] = w;
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_TRUE);
	/* all of it: the ledger would run it twice */
	t.seen[p + 2] = t.seen_again[p + 2] = w;
	is_false(&t, "is in memory");
	/* a packet that was counted and is not there */
	t = truthful(0xfffff0, 150, e);
	t.seen[p] = t.seen_again[p] = w - SELFTEST_SLOTS;
	is_false(&t, "is not in memory");
	/* or in part only */
	t.seen[p] = t.seen_again[p] = SELFTEST_TORN;
	is_false(&t, "is torn");
}

static void a_write_far_behind_is_looked_for_too(void **state)
{
	struct selftest_trial t = truthful(0, 150, packets_to(140));
	uint32_t p = layout.piece[100 - 2 * SELFTEST_SLOTS - 1];

	(void)state;
	assert_int_equal(t.seen[p], 100);
	t.seen[p] = t.seen_again[p] = 100 - SELFTEST_SLOTS;
	is_false(&t, "write 100 is not in memory");
}

static void psns_are_counted_across_the_wrap(void **state)
{
	struct selftest_trial t = truthful(0xfffffa, 150, packets_to(62));

	(void)state;
	assert_true(t.rq_psn < t.first_psn);
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_TRUE);
	/* a device that does not wrap where it should */
	t.rq_psn = t.rq_psn_again = t.rq_psn + 1;
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_FALSE);
	t.rq_psn = t.rq_psn_again = 0xffffff;
	assert_int_equal(selftest_judge(&t, why, sizeof(why)), SELFTEST_FALSE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layout_has_all_kinds_of_writes_and_fits),
		cmocka_unit_test(memory_shows_which_write_it_is_of),
		cmocka_unit_test(a_truthful_device_passes_wherever_it_is_cut),
		cmocka_unit_test(a_burst_that_was_over_says_nothing),
		cmocka_unit_test(a_device_that_is_off_by_one_fails),
		cmocka_unit_test(acknowledged_writes_must_be_counted),
		cmocka_unit_test(what_executes_after_the_report_is_noticed),
		cmocka_unit_test(a_constant_is_found_out),
		cmocka_unit_test(a_last_write_may_be_there_in_part_but_not_whole),
		cmocka_unit_test(a_write_far_behind_is_looked_for_too),
		cmocka_unit_test(psns_are_counted_across_the_wrap),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
