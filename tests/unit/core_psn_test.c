/* SPDX-License-Identifier: BSD-3-Clause */
/* How many PSNs a request takes, and which of two comes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/psn.h"

static void a_request_takes_a_psn_for_each_packet_and_at_least_one(void **state)
{
	static const uint32_t mtu[] = {256, 512, 1024, 2048, 4096};

	(void)state;
	for (unsigned i = 0; i < sizeof(mtu) / sizeof(mtu[0]); i++) {
		uint32_t m = mtu[i];

		assert_int_equal(core_psn_packets(0, m), 1);
		assert_int_equal(core_psn_packets(1, m), 1);
		assert_int_equal(core_psn_packets(m - 1, m), 1);
		assert_int_equal(core_psn_packets(m, m), 1);
		assert_int_equal(core_psn_packets(m + 1, m), 2);
		assert_int_equal(core_psn_packets(3 * m, m), 3);
		assert_int_equal(core_psn_packets(3 * m + 1, m), 4);
	}
	/* the longest message of a queue pair, 2^31 bytes (IBTA 9.3.3) */
	assert_int_equal(core_psn_packets(1ull << 31, 256), 1u << 23);
	assert_int_equal(core_psn_packets(UINT32_MAX, 4096), 1u << 20);
}

static void adding_wraps_at_24_bits(void **state)
{
	(void)state;
	assert_int_equal(core_psn_add(0, 0), 0);
	assert_int_equal(core_psn_add(5, 7), 12);
	assert_int_equal(core_psn_add(0xffffff, 1), 0);
	assert_int_equal(core_psn_add(0xfffff0, 0x20), 0x10);
	/* the distance from a to b */
	assert_int_equal(core_psn_add(12, 0u - 5), 7);
	assert_int_equal(core_psn_add(3, 0u - 0xfffffe), 5);
	assert_int_equal(core_psn_add(5, 0u - 12), 0xfffff9);
}

static void before_is_a_serial_comparison(void **state)
{
	(void)state;
	assert_true(core_psn_before(1, 2));
	assert_false(core_psn_before(2, 1));
	assert_false(core_psn_before(7, 7));
	assert_true(core_psn_before(0xffffff, 0));
	assert_false(core_psn_before(0, 0xffffff));
	assert_true(core_psn_before(0xfffff0, 0x10));
	assert_true(core_psn_before(0, 0x7fffff));
	assert_false(core_psn_before(0x7fffff, 0));
	for (uint32_t a = 0; a < 1u << 24; a += 65521) {
		assert_true(core_psn_before(a, core_psn_add(a, 1)));
		assert_true(core_psn_before(a, core_psn_add(a, 0x7fffff)));
		assert_false(core_psn_before(core_psn_add(a, 0x7fffff), a));
		assert_false(core_psn_before(a, a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_takes_a_psn_for_each_packet_and_at_least_one),
		cmocka_unit_test(adding_wraps_at_24_bits),
		cmocka_unit_test(before_is_a_serial_comparison),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
