/* SPDX-License-Identifier: BSD-3-Clause */
/* Which rails of two nodes meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "node/fabric.h"

#define IB    1
#define ROCE  2
#define RAILS 4u

/* "10.1.0.5/16", "fd00::1/48", "fe80::1/64"; /0: the prefix is not known */
static struct fabric fabric(uint8_t layer, const char *text)
{
	struct fabric f = {.link_layer = layer};
	char addr[64];
	const char *slash = strchr(text, '/');
	int bits = atoi(slash + 1);

	memcpy(addr, text, (size_t)(slash - text));
	addr[slash - text] = '\0';
	if (strchr(addr, ':')) {
		assert_int_equal(inet_pton(AF_INET6, addr, f.gid), 1);
	} else {
		f.gid[10] = f.gid[11] = 0xff;
		assert_int_equal(inet_pton(AF_INET, addr, f.gid + 12), 1);
		bits += bits ? 96 : 0;
	}
	f.prefix = (uint8_t)bits;
	return f;
}

struct node {
	struct fabric rail[RAILS];
	unsigned n;
	bool named;
};

static struct node node(unsigned n, const char *const *rails, bool named)
{
	struct node d = {.n = n, .named = named};

	for (unsigned i = 0; i < n; i++)
		d.rail[i] = rails[i] ? fabric(ROCE, rails[i]) : (struct fabric){0};
	return d;
}

/* As a link does it: each rail of a asks in turn, and b answers. to[]: of a's rails. */
static void meet(const struct node *a, const struct node *b, uint8_t to[RAILS])
{
	uint32_t taken = 0;

	for (unsigned i = 0; i < a->n; i++) {
		struct fabric_end e = {.f = a->rail[i], .rail = (uint8_t)i, .nth = fabric_nth(a->rail, i),
			.named = a->named};

		to[i] = fabric_meet(b->rail, b->n, b->named, taken, &e);
		if (to[i] != FABRIC_NONE)
			taken |= 1u << to[i];
	}
}

static void networks_are_compared_by_their_prefix(void **state)
{
	struct fabric a = fabric(ROCE, "10.1.0.5/16"), b = fabric(ROCE, "10.1.9.5/16"), c = fabric(ROCE, "10.2.0.5/16");
	struct fabric unknown = fabric(ROCE, "10.1.77.1/0"), narrow = fabric(ROCE, "10.1.9.5/20");

	(void)state;
	assert_true(fabric_same(&a, &b));
	assert_false(fabric_same(&a, &c));
	/* 10.1.0.0/20 and 10.1.16.0/20 differ in one bit of a byte */
	a = fabric(ROCE, "10.1.15.1/20");
	b = fabric(ROCE, "10.1.16.1/20");
	assert_false(fabric_same(&a, &b));
	assert_true(fabric_same(&unknown, &narrow) == false);
	a = fabric(ROCE, "10.1.0.5/16");
	assert_true(fabric_same(&unknown, &a));
	assert_true(fabric_same(&a, &unknown));
	a = fabric(ROCE, "fe80::1/0");
	b = fabric(ROCE, "fe80::2/0");
	assert_true(fabric_same(&a, &b));
	/* an IPv4 network is none of IPv6 */
	c = fabric(ROCE, "10.2.0.5/16");
	assert_false(fabric_same(&a, &c));
	/* the link layers are two networks */
	b = fabric(IB, "fe80::2/64");
	assert_false(fabric_same(&a, &b));
	/* what has no GID is nowhere */
	a = b = (struct fabric){0};
	assert_false(fabric_same(&a, &b));
}

static void equal_nodes_meet_in_order(void **state)
{
	const char *x[] = {"10.1.0.1/24", "10.2.0.1/24"}, *y[] = {"10.1.0.2/24", "10.2.0.2/24"};
	struct node a = node(2, x, false), b = node(2, y, false);
	uint8_t to[RAILS];

	(void)state;
	meet(&a, &b, to);
	assert_int_equal(to[0], 0);
	assert_int_equal(to[1], 1);
}

/* One device more, which comes first by its name, shifts nobody. */
static void a_device_more_shifts_nobody(void **state)
{
	const char *x[] = {"192.168.0.1/24", "10.1.0.1/24", "10.2.0.1/24"}, *y[] = {"10.1.0.2/24", "10.2.0.2/24"};
	struct node a = node(3, x, false), b = node(2, y, false);
	uint8_t to[RAILS];

	(void)state;
	meet(&a, &b, to);
	assert_int_equal(to[0], FABRIC_NONE);
	assert_int_equal(to[1], 0);
	assert_int_equal(to[2], 1);
	meet(&b, &a, to);
	assert_int_equal(to[0], 1);
	assert_int_equal(to[1], 2);
}

static void rails_of_one_network_meet_one_by_one(void **state)
{
	const char *x[] = {"10.1.0.1/24", "10.2.0.1/24", "10.1.0.3/24"}, *y[] = {"10.1.0.2/24", "10.1.0.4/24"};
	struct node a = node(3, x, false), b = node(2, y, false);
	uint8_t to[RAILS];

	(void)state;
	meet(&a, &b, to);
	assert_int_equal(to[0], 0);
	assert_int_equal(to[1], FABRIC_NONE);
	assert_int_equal(to[2], 1);
}

/* A rail without a GID, since it was down, counts for nothing then; later what is left meets. */
static void a_rail_that_was_down_meets_what_is_left(void **state)
{
	const char *x[] = {NULL, "10.1.0.3/24"}, *now[] = {"10.1.0.1/24", "10.1.0.3/24"};
	const char *y[] = {"10.1.0.2/24", "10.1.0.4/24"};
	struct node a = node(2, x, false), b = node(2, y, false);
	struct fabric_end e = {.rail = 0};
	uint8_t to[RAILS];

	(void)state;
	meet(&a, &b, to);
	assert_int_equal(to[0], FABRIC_NONE);
	assert_int_equal(to[1], 0);
	a = node(2, now, false);
	e.f = a.rail[0];
	e.nth = fabric_nth(a.rail, 0);
	assert_int_equal(fabric_meet(b.rail, b.n, false, 1u << 0, &e), 1);
	assert_int_equal(fabric_meet(b.rail, b.n, false, 3, &e), FABRIC_NONE);
}

static void names_in_both_configurations_win(void **state)
{
	const char *x[] = {"10.1.0.1/24", "10.2.0.1/24", "10.3.0.1/24"}, *y[] = {"10.2.0.2/24", "10.77.0.2/24"};
	struct node a = node(3, x, true), b = node(2, y, true);
	uint8_t to[RAILS];

	(void)state;
	meet(&a, &b, to);
	assert_int_equal(to[0], 0);
	assert_int_equal(to[1], 1);
	assert_int_equal(to[2], FABRIC_NONE); /* the other has no such one */
	b.named = false;
	meet(&a, &b, to);
	assert_int_equal(to[0], FABRIC_NONE);
	assert_int_equal(to[1], 0);
}

static void digits_of_names_are_numbers(void **state)
{
	(void)state;
	assert_true(fabric_name_compare("mlx5_2", "mlx5_10") < 0);
	assert_true(fabric_name_compare("mlx5_10", "mlx5_2") > 0);
	assert_int_equal(fabric_name_compare("mlx5_2", "mlx5_2"), 0);
	assert_true(fabric_name_compare("mlx5_2", "mlx5_2a") < 0);
	assert_true(fabric_name_compare("bnxt_re9", "mlx5_0") < 0);
	assert_true(fabric_name_compare("rxe1", "rxe") > 0);
	assert_true(fabric_name_compare("ib9x10", "ib9x9") > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(networks_are_compared_by_their_prefix),
		cmocka_unit_test(equal_nodes_meet_in_order),
		cmocka_unit_test(a_device_more_shifts_nobody),
		cmocka_unit_test(rails_of_one_network_meet_one_by_one),
		cmocka_unit_test(a_rail_that_was_down_meets_what_is_left),
		cmocka_unit_test(names_in_both_configurations_win),
		cmocka_unit_test(digits_of_names_are_numbers),
	};

	return cmocka_run_group_tests_name("node_fabric", tests, NULL, NULL);
}
