/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "wire/record.h"

static int check(uint16_t type, uint32_t len, size_t room)
{
	struct wire_rec r = {.type = type, .len = len};
	const char *why = NULL;
	int rc = wire_rec_check(&r, room, &why);

	assert_true(rc == 0 || (rc == -EINVAL && why));
	return rc;
}

static void each_type_has_its_lengths(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t min, max;
	} t[] = {
		{WIRE_REC_MSG, 0, WIRE_REC_PAYLOAD_MAX},
		{WIRE_REC_PUSH, 1, WIRE_REC_PAYLOAD_MAX},
		{WIRE_REC_RTS, sizeof(struct wire_rts), sizeof(struct wire_rts)},
		{WIRE_REC_GET, sizeof(struct wire_get), sizeof(struct wire_get)},
		{WIRE_REC_PEER, sizeof(struct wire_addr), sizeof(struct wire_addr)},
		{WIRE_REC_EVENT, 0, WIRE_REC_PAYLOAD_MAX},
		{WIRE_REC_CTS, 0, 0},
		{WIRE_REC_FIN, 0, 0},
		{WIRE_REC_DELIVERED, 0, 0},
		{WIRE_REC_CREDIT, 0, 0},
		{WIRE_REC_GONE, 0, 0},
		{WIRE_REC_CANCEL, 0, 0},
		{WIRE_REC_GET_DONE, 0, 0},
		{WIRE_REC_ACCESS, 0, WIRE_REC_PAYLOAD_MAX},
		{WIRE_REC_ACCESSED, 0, WIRE_REC_PAYLOAD_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(check(t[i].type, t[i].min, 1 << 20), 0);
		assert_int_equal(check(t[i].type, t[i].max, 1 << 20), 0);
		assert_int_equal(check(t[i].type, t[i].max + 1, 1 << 20), -EINVAL);
		if (t[i].min)
			assert_int_equal(check(t[i].type, t[i].min - 1, 1 << 20), -EINVAL);
		assert_int_equal(check(t[i].type, UINT32_MAX, SIZE_MAX), -EINVAL);
	}
}

static void a_record_never_leaves_what_holds_it(void **state)
{
	(void)state;
	assert_int_equal(check(WIRE_REC_MSG, 0, 64), 0);
	assert_int_equal(check(WIRE_REC_MSG, 0, 63), -EINVAL);
	assert_int_equal(check(WIRE_REC_MSG, 1, 72), 0);
	assert_int_equal(check(WIRE_REC_MSG, 1, 71), -EINVAL);
	assert_int_equal(check(WIRE_REC_MSG, 8, 72), 0);
	assert_int_equal(check(WIRE_REC_MSG, 9, 72), -EINVAL);
}

static void unknown_types_are_refused(void **state)
{
	static const uint16_t known[] = {WIRE_REC_MSG, WIRE_REC_RTS, WIRE_REC_PUSH, WIRE_REC_CTS,
		WIRE_REC_FIN, WIRE_REC_DELIVERED, WIRE_REC_CREDIT, WIRE_REC_GONE, WIRE_REC_CANCEL,
		WIRE_REC_GET_DONE, WIRE_REC_EVENT, WIRE_REC_GET, WIRE_REC_PEER};
	uint32_t accepted = 0;

	(void)state;
	for (uint32_t type = 0; type <= UINT16_MAX; type++) {
		struct wire_rec r = {.type = (uint16_t)type};
		const char *why = "";

		accepted += !wire_rec_check(&r, 1 << 20, &why) ||
			strcmp(why, "unknown record type") != 0;
	}
	assert_true(accepted >= sizeof(known) / sizeof(known[0]));
	assert_true(accepted < 32);
	assert_int_equal(check(WIRE_REC_PAD, 0, 64), -EINVAL); /* never in a frame */
}

static void what_costs_credit_is_fixed(void **state)
{
	(void)state;
	assert_true(wire_rec_charged(WIRE_REC_MSG));
	assert_true(wire_rec_charged(WIRE_REC_RTS));
	assert_true(wire_rec_charged(WIRE_REC_PUSH));
	assert_false(wire_rec_charged(WIRE_REC_PAD));
	assert_false(wire_rec_charged(WIRE_REC_CTS));
	assert_false(wire_rec_charged(WIRE_REC_CREDIT));
	assert_false(wire_rec_charged(WIRE_REC_EVENT));
}

/* A peer that answered a rank's request in its daemon's name broke the rank's channel. */
static void what_a_rank_hears_of_its_own_daemon_comes_from_no_peer(void **state)
{
	static const uint16_t own[] = {WIRE_REC_GET_DONE, WIRE_REC_RMA_DONE, WIRE_REC_ACCESS, WIRE_REC_GET,
		WIRE_REC_PEER, WIRE_REC_RMA, WIRE_REC_ACCESSED, WIRE_REC_EVENT};
	struct wire_rec r = {.type = WIRE_REC_MSG, .dst_ep = 3};

	(void)state;
	assert_true(wire_rec_travels(&r));
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		r.type = own[i];
		assert_false(wire_rec_travels(&r));
	}
	r.dst_ep = WIRE_EP_DAEMON;
	assert_true(wire_rec_travels(&r));
}

static struct wire_addr addr(void)
{
	struct wire_addr a = {.family = 4, .job = 17, .restart = 1, .node = 2, .ep = 3,
		.ctrl_port = 7000, .epoch = 4, .step = 5, .rank = 6, .incarnation = 1,
		.ctrl = {10, 0, 0, 1}};

	wire_addr_seal(&a);
	return a;
}

static void a_sealed_address_passes(void **state)
{
	struct wire_addr a = addr();
	const char *why;

	(void)state;
	assert_int_equal(sizeof(a), 64);
	assert_int_equal(wire_addr_check(&a, &why), 0);
	a.family = 6;
	wire_addr_seal(&a);
	assert_int_equal(wire_addr_check(&a, &why), 0);
	a.family = 5;
	wire_addr_seal(&a);
	assert_int_equal(wire_addr_check(&a, &why), -EINVAL);
}

static void a_damaged_address_is_refused(void **state)
{
	(void)state;
	for (size_t bit = 0; bit < 8 * sizeof(struct wire_addr); bit++) {
		struct wire_addr a = addr();
		const char *why = NULL;

		((uint8_t *)&a)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(wire_addr_check(&a, &why), -EINVAL);
		assert_non_null(why);
	}
}

static void an_address_says_what_is_wrong_with_it(void **state)
{
	struct wire_addr a = {0};
	const char *why;

	(void)state;
	assert_int_equal(wire_addr_check(&a, &why), -EINVAL);
	assert_non_null(strstr(why, "not an rcshare address"));
	a = addr();
	a.version = 9;
	assert_int_equal(wire_addr_check(&a, &why), -EINVAL);
	assert_non_null(strstr(why, "same rcshare release"));
	a = addr();
	a.rank++;
	assert_int_equal(wire_addr_check(&a, &why), -EINVAL);
	assert_non_null(strstr(why, "damaged"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_type_has_its_lengths),
		cmocka_unit_test(a_record_never_leaves_what_holds_it),
		cmocka_unit_test(unknown_types_are_refused),
		cmocka_unit_test(what_costs_credit_is_fixed),
		cmocka_unit_test(what_a_rank_hears_of_its_own_daemon_comes_from_no_peer),
		cmocka_unit_test(a_sealed_address_passes),
		cmocka_unit_test(a_damaged_address_is_refused),
		cmocka_unit_test(an_address_says_what_is_wrong_with_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
