/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "wire/frame.h"
#include "wire/record.h"

static struct {
	struct wire_frame f;
	uint8_t payload[WIRE_FRAME_ROOM];
} b;

static void make(uint32_t len)
{
	memset(&b, 0, sizeof(b));
	for (uint32_t i = 0; i < len; i++)
		b.payload[i] = (uint8_t)(i * 7 + 1);
	b.f = (struct wire_frame){.type = WIRE_FRAME_DATA, .lane = 1, .src_node = 2, .lane_gen = 3,
		.len = len, .seq = 4, .ack = 5, .limit = 6, .incarnation = 7};
	wire_frame_seal(&b.f, b.payload);
}

static int check(size_t got, const char **why)
{
	return wire_frame_check(&b.f, b.payload, got, why);
}

static void a_sealed_frame_passes(void **state)
{
	static const uint32_t lens[] = {0, 1, 7, 8, 96, 1000, WIRE_FRAME_ROOM};
	const char *why;

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		make(lens[i]);
		assert_int_equal(check(sizeof(b.f) + lens[i], &why), 0);
	}
}

static void every_flipped_bit_is_noticed(void **state)
{
	const uint32_t len = 40;
	uint8_t *bytes = (uint8_t *)&b;
	const char *why;

	(void)state;
	make(len);
	for (size_t bit = 0; bit < 8 * (sizeof(b.f) + len); bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		why = NULL;
		/* got is what came; a larger len in the header must not be believed */
		assert_int_equal(check(sizeof(b.f) + len, &why), -EINVAL);
		assert_non_null(why);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(check(sizeof(b.f) + len, &why), 0);
}

static void every_truncation_is_noticed(void **state)
{
	const char *why;

	(void)state;
	make(100);
	for (size_t got = 0; got < sizeof(b.f) + 100; got++) {
		why = NULL;
		assert_int_equal(check(got, &why), -EINVAL);
		assert_non_null(why);
	}
}

static void another_version_says_so(void **state)
{
	const char *why;

	(void)state;
	make(0);
	b.f.version++;
	assert_int_equal(check(sizeof(b.f), &why), -EINVAL);
	assert_non_null(strstr(why, "another version"));
}

static void a_stream_frame_has_a_bounded_length(void **state)
{
	const char *why;

	(void)state;
	make(0);
	b.f.len = WIRE_FRAME_ROOM;
	assert_int_equal(wire_frame_check_header(&b.f, &why), 0);
	b.f.len = WIRE_FRAME_ROOM + 1;
	assert_int_equal(wire_frame_check_header(&b.f, &why), -EINVAL);
	b.f.len = UINT32_MAX;
	assert_int_equal(wire_frame_check_header(&b.f, &why), -EINVAL);
	make(0);
	b.f.type = 0;
	assert_int_equal(wire_frame_check_header(&b.f, &why), -EINVAL);
	b.f.type = WIRE_FRAME_LOOSE + 1;
	assert_int_equal(wire_frame_check_header(&b.f, &why), -EINVAL);
}

/* RFC 3720 appendix B.4, and chaining. */
static void crc32c_is_the_standard_one(void **state)
{
	uint8_t buf[32] = {0};

	(void)state;
	assert_int_equal(wire_crc32c(0, buf, 32), 0x8a9136aau);
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(wire_crc32c(0, buf, 32), 0x62a8ab43u);
	for (uint8_t i = 0; i < 32; i++)
		buf[i] = i;
	assert_int_equal(wire_crc32c(0, buf, 32), 0x46dd794eu);
	assert_int_equal(wire_crc32c(0, "123456789", 9), 0xe3069283u);
	assert_int_equal(wire_crc32c(wire_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
	assert_int_equal(wire_crc32c(0, buf, 0), 0);
}

static void the_largest_record_fits_a_frame(void **state)
{
	(void)state;
	assert_true(WIRE_REC_SPACE(WIRE_REC_PAYLOAD_MAX) <= WIRE_FRAME_ROOM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sealed_frame_passes),
		cmocka_unit_test(every_flipped_bit_is_noticed),
		cmocka_unit_test(every_truncation_is_noticed),
		cmocka_unit_test(another_version_says_so),
		cmocka_unit_test(a_stream_frame_has_a_bounded_length),
		cmocka_unit_test(crc32c_is_the_standard_one),
		cmocka_unit_test(the_largest_record_fits_a_frame),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
