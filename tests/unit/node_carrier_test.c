/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel says of interfaces, as a rail hears it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "node/verbs_impl.h"

#define LOWER_UP 0x10000u

static unsigned told_n, told_index;
static bool told_carrier;

static void told(void *arg, unsigned ifindex, bool carrier)
{
	(void)arg;
	if (told_index && ifindex != told_index)
		return;
	told_n++;
	told_index = ifindex;
	told_carrier = carrier;
}

struct message {
	struct nlmsghdr h;
	struct ifinfomsg i;
};

static struct message message(uint16_t type, int index, unsigned flags)
{
	return (struct message){.h = {.nlmsg_len = sizeof(struct message), .nlmsg_type = type},
		.i = {.ifi_index = index, .ifi_flags = flags}};
}

static void say(const void *msg, size_t len)
{
	told_n = told_index = 0;
	verbs_carrier_parse(msg, len, told, NULL);
}

static void up_needs_the_interface_and_the_carrier(void **state)
{
	struct message m = message(RTM_NEWLINK, 7, IFF_UP | LOWER_UP);

	(void)state;
	say(&m, sizeof(m));
	assert_int_equal(told_n, 1);
	assert_int_equal(told_index, 7);
	assert_true(told_carrier);
	m.i.ifi_flags = IFF_UP | IFF_RUNNING;
	say(&m, sizeof(m));
	assert_false(told_carrier);
	m.i.ifi_flags = LOWER_UP;
	say(&m, sizeof(m));
	assert_false(told_carrier);
	m = message(RTM_DELLINK, 7, IFF_UP | LOWER_UP);
	say(&m, sizeof(m));
	assert_int_equal(told_n, 1);
	assert_false(told_carrier);
}

static void other_and_short_messages_say_nothing(void **state)
{
	struct message m[2] = {message(RTM_NEWADDR, 7, 0), message(RTM_NEWLINK, 8, 0)};

	(void)state;
	say(m, sizeof(m));
	assert_int_equal(told_n, 1);
	assert_int_equal(told_index, 8);
	m[0] = message(RTM_NEWLINK, 7, 0);
	m[0].h.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg) - 4);
	say(m, sizeof(m[0]));
	assert_int_equal(told_n, 0);
	m[0] = message(RTM_NEWLINK, 7, 0);
	say(m, sizeof(m[0]) - 1);
	assert_int_equal(told_n, 0);
	m[0].h.nlmsg_len = 1u << 30;
	say(m, sizeof(m));
	assert_int_equal(told_n, 0);
}

static void maps(const char *file, unsigned id)
{
	char text[32];
	int fd = open(file, O_WRONLY), len = snprintf(text, sizeof(text), "0 %u 1", id);

	assert_true(fd >= 0 && write(fd, text, (size_t)len) == len);
	close(fd);
}

/* Until netlink says of the interface what it is to be. */
static bool hears(struct verbs *v, bool carrier)
{
	struct pollfd p = {.fd = verbs_carrier_fd(v), .events = POLLIN};
	_Alignas(NLMSG_ALIGNTO) char buf[8192];

	for (;;) {
		ssize_t n;

		if (poll(&p, 1, 20000) <= 0)
			return false;
		n = read(p.fd, buf, sizeof(buf));
		told_n = 0;
		verbs_carrier_parse(buf, n > 0 ? (size_t)n : 0, told, NULL);
		if (told_n && told_carrier == carrier)
			return true;
	}
}

static void the_kernel_tells_of_a_cable(void **state)
{
	struct verbs v = {.netlink = -1};
	unsigned uid = getuid(), gid = getgid();

	(void)state;
	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET)) {
		print_message("no network namespace here (%s): skipped\n", strerror(errno));
		skip();
	}
	if (uid) {
		int fd = open("/proc/self/setgroups", O_WRONLY);

		if (fd >= 0 && write(fd, "deny", 4) < 0)
			print_message("setgroups: %s\n", strerror(errno));
		close(fd);
		maps("/proc/self/uid_map", uid);
		maps("/proc/self/gid_map", gid);
	}
	if (system("ip link add rail type veth peer name far && ip link set rail up && ip link set far up")) {
		print_message("no veth here: skipped\n");
		skip();
	}
	verbs_carrier_open(&v);
	assert_true(verbs_carrier_fd(&v) >= 0);
	told_index = if_nametoindex("rail");
	assert_int_equal(system("ip link set far down"), 0);
	assert_true(hears(&v, false));
	assert_int_equal(system("ip link set far up"), 0);
	assert_true(hears(&v, true));
	assert_int_equal(system("ip link set rail down"), 0);
	assert_true(hears(&v, false));
	verbs_carrier_close(&v);
	assert_int_equal(verbs_carrier_fd(&v), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(up_needs_the_interface_and_the_carrier),
		cmocka_unit_test(other_and_short_messages_say_nothing),
		cmocka_unit_test(the_kernel_tells_of_a_cable),
	};

	return cmocka_run_group_tests_name("node_carrier", tests, NULL, NULL);
}
