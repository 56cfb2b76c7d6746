/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime/node/addr.c: the address that a daemon tells the others, and the one by which it finds them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/node.h"

#define NODES 2

static struct node n;
static char why[SHM_SENTENCE];

static void begin(char **names, char **addrs)
{
	memset(&n, 0, sizeof(n));
	config_default(&n.cfg);
	n.o = (struct node_opts){.job = 9, .nodes = NODES, .names = names, .addrs = addrs};
	n.epfd = epoll_create1(EPOLL_CLOEXEC);
	n.now = node_clock();
	*why = '\0';
}

static void is_told(const char *want)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(n.addr.family == 4 ? AF_INET : AF_INET6, n.addr.ctrl, text, sizeof(text));
	assert_string_equal(text, want);
}

static void what_is_written_as_an_address_is_believed(void **state)
{
	char *names[] = {"nobody.invalid", "b"}, *addrs[] = {"10.99.0.7", NULL};

	(void)state;
	begin(names, addrs);
	assert_int_equal(addr_own(&n, why), 0);
	is_told("10.99.0.7");
	addrs[0] = "fd00::7";
	begin(names, addrs);
	assert_int_equal(addr_own(&n, why), 0);
	is_told("fd00::7");
	addrs[0] = "127.0.0.1"; /* several slurmd on one machine */
	begin(names, addrs);
	assert_int_equal(addr_own(&n, why), 0);
	is_told("127.0.0.1");
}

static void a_name_that_leads_nowhere_is_refused_with_what_to_do(void **state)
{
	char *names[] = {"bad..name", "b"};

	(void)state;
	begin(names, NULL);
	assert_int_not_equal(addr_own(&n, why), 0);
	assert_non_null(strstr(why, "'bad..name' does not resolve"));
	assert_non_null(strstr(why, "NodeAddr"));
}

static void a_node_alone_asks_nobody(void **state)
{
	char *names[] = {"bad..name"};

	(void)state;
	begin(names, NULL);
	n.o.nodes = 1;
	assert_int_equal(addr_own(&n, why), 0);
}

static void an_interface_that_is_not_there_is_refused(void **state)
{
	char *names[] = {"a", "b"}, *addrs[] = {"10.99.0.7", NULL};

	(void)state;
	begin(names, addrs);
	strcpy(n.cfg.control_interface, "none0");
	assert_int_not_equal(addr_own(&n, why), 0);
	assert_non_null(strstr(why, "'none0'"));
}

static struct addrinfo ai(struct sockaddr_storage *a, const char *text, struct addrinfo *next)
{
	assert_true(addr_literal(text, a));
	return (struct addrinfo){.ai_family = a->ss_family, .ai_addr = (struct sockaddr *)a, .ai_next = next};
}

static void of_several_the_one_that_others_reach_is_taken(void **state)
{
	struct sockaddr_storage a[4], best;
	struct addrinfo list[4];
	char text[64];

	(void)state;
	list[3] = ai(&a[3], "10.99.0.8", NULL);
	list[2] = ai(&a[2], "fd00::7", &list[3]);
	list[1] = ai(&a[1], "169.254.3.3", &list[2]);
	list[0] = ai(&a[0], "127.0.1.1", &list[1]);
	assert_true(addr_pick(&list[0], &best));
	tcp_set_port(&best, 7);
	assert_string_equal(admit_name(&best, text, sizeof(text)), "10.99.0.8 port 7");
	list[2].ai_next = NULL;
	assert_true(addr_pick(&list[0], &best));
	assert_int_equal(best.ss_family, AF_INET6);
	list[1].ai_next = NULL;
	assert_false(addr_pick(&list[0], &best));
	assert_false(addr_pick(NULL, &best));
}

/* --- on a host of its own -------------------------------------------------------------------------- */

static bool put_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* Of its own: interfaces (net0 and net1), /etc/hosts and resolv.conf. 77: it cannot be had here. */
static int host_of_its_own(const char *hosts, const char *resolver, const char *commands)
{
	char dir[] = "/tmp/node_addr_test.XXXXXX", path[64];
	int failed = 0;

	if (unshare(CLONE_NEWNET | CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || !mkdtemp(dir))
		return 77;
	if (system(commands))
		failed = 77;
	snprintf(path, sizeof(path), "%s/f", dir);
	for (int i = 0; i < 3 && !failed; i++) {
		static const char *const to[] = {"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"};
		const char *const text[] = {hosts, resolver, "hosts: files dns\n"};

		if (!put_file(path, text[i]) || mount("tmpfs", "/mnt", "tmpfs", 0, NULL) ||
			!put_file("/mnt/f", text[i]) || mount("/mnt/f", to[i], NULL, MS_BIND, NULL) ||
			umount2("/mnt", MNT_DETACH))
			failed = 77;
	}
	unlink(path);
	rmdir(dir);
	return failed;
}

#define LINK(name, addr)                                                                      \
	"ip link add " name " type veth peer name p" name " && ip addr add " addr "/24 dev " name " && " \
	"ip link set " name " up && ip link set p" name " up"
#define UP "PATH=$PATH:/sbin:/usr/sbin; exec 2>/dev/null; ip link set lo up && " LINK("net0", "10.98.0.7") " && " \
	LINK("net1", "10.99.0.7")

static void in_a_host(const char *hosts, const char *resolver, void (*what)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		int rc = host_of_its_own(hosts, resolver, UP);

		if (!rc)
			what();
		_exit(rc); /* a failed assertion does not get here */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* no namespaces of networks and mounts */
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* cmocka's assertions jump back into the parent's loop: in the child the words do. */
#define want(x)                                             \
	do {                                                \
		if (!(x)) {                                 \
			printf("not so: %s (%s)\n", #x, why); \
			fflush(stdout);                     \
			_exit(1);                           \
		}                                           \
	} while (0)

static bool tells(const char *text)
{
	char is[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET, n.addr.ctrl, is, sizeof(is));
	if (n.addr.family != 4 || strcmp(is, text))
		printf("%s is told\n", is);
	return n.addr.family == 4 && !strcmp(is, text);
}

static void tells_the_route_to_its_peer(void)
{
	char *names[] = {"a", "b"};

	begin(names, NULL);
	want(!addr_own(&n, why));
	want(tells("10.99.0.7"));
}

/* Debian's installer writes 127.0.1.1 and the host's name; the peer says which network it is. */
static void a_name_that_leads_to_loopback_is_not_told(void **state)
{
	(void)state;
	in_a_host("127.0.0.1 localhost\n127.0.1.1 a\n10.99.0.8 b\n", "", tells_the_route_to_its_peer);
}

static void tells_an_interface(void)
{
	char *names[] = {"a", "b"};

	begin(names, NULL);
	want(!addr_own(&n, why));
	want(tells("10.98.0.7"));
}

static void where_the_peer_is_not_known_an_interface_is_told(void **state)
{
	(void)state;
	in_a_host("127.0.0.1 localhost\n127.0.1.1 a b\n", "", tells_an_interface);
}

static void says_that_nobody_answers(void)
{
	char *names[] = {"a", "b"};

	begin(names, NULL);
	n.cfg.start_timeout_ms = 300;
	want(addr_own(&n, why) == -ETIMEDOUT);
	want(strstr(why, "resolver gave no answer for this node's name 'a'"));
}

/* 10.99.0.9 is on a network where nobody is: what is asked there is never answered. */
static void a_resolver_that_does_not_answer_is_named(void **state)
{
	(void)state;
	in_a_host("127.0.0.1 localhost\n", "nameserver 10.99.0.9\noptions timeout:30 attempts:1\n",
		says_that_nobody_answers);
}

static void asks_nobody(void)
{
	char *names[] = {"a", "b"}, *addrs[] = {"10.99.0.7", "10.99.0.8"};

	begin(names, addrs);
	n.cfg.start_timeout_ms = 3000000; /* it would be waited for */
	want(!addr_own(&n, why));
	want(tells("10.99.0.7"));
}

static void with_node_addr_no_resolver_is_asked(void **state)
{
	(void)state;
	in_a_host("127.0.0.1 localhost\n", "nameserver 10.99.0.9\noptions timeout:30 attempts:9\n", asks_nobody);
}

static bool answers(const char *ip)
{
	struct sockaddr_storage a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool up;

	addr_literal(ip, &a);
	tcp_set_port(&a, n.tcp_port);
	up = !connect(fd, (struct sockaddr *)&a, sizeof(struct sockaddr_in));
	close(fd);
	return up;
}

static void listens_where_it_is_told_to(void)
{
	char *names[] = {"a", "b"}, *addrs[] = {"10.98.0.7", NULL};

	begin(names, addrs);
	want(!addr_own(&n, why) && !tcp_listen(&n, why));
	want(answers("127.0.0.1") && answers("10.98.0.7") && answers("10.99.0.7"));
	tcp_close_all(&n);
	want(!answers("10.98.0.7"));
	begin(names, addrs);
	strcpy(n.cfg.control_interface, "net1");
	want(!addr_own(&n, why) && !tcp_listen(&n, why));
	want(tells("10.99.0.7") && n.addr.ctrl_port == n.tcp_port);
	want(answers("10.99.0.7"));
	want(answers("10.98.0.7")); /* by which neighbours look for it */
	want(!answers("127.0.0.1"));
	tcp_close_all(&n);
	addrs[0] = "10.99.0.7";
	begin(names, addrs);
	strcpy(n.cfg.control_interface, "net1");
	want(!addr_own(&n, why) && !tcp_listen(&n, why));
	want(answers("10.99.0.7") && !answers("10.98.0.7"));
	tcp_close_all(&n);
}

static void strangers_of_other_networks_find_nobody_behind_control_interface(void **state)
{
	(void)state;
	in_a_host("127.0.0.1 localhost\n", "", listens_where_it_is_told_to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_as_an_address_is_believed),
		cmocka_unit_test(a_node_alone_asks_nobody),
		cmocka_unit_test(an_interface_that_is_not_there_is_refused),
		cmocka_unit_test(of_several_the_one_that_others_reach_is_taken),
		cmocka_unit_test(a_name_that_leads_to_loopback_is_not_told),
		cmocka_unit_test(where_the_peer_is_not_known_an_interface_is_told),
		cmocka_unit_test(a_resolver_that_does_not_answer_is_named),
		cmocka_unit_test(with_node_addr_no_resolver_is_asked),
		cmocka_unit_test(strangers_of_other_networks_find_nobody_behind_control_interface),
		/* last: the C library's threads, of which a fork has none, are of its parent then */
		cmocka_unit_test(a_name_that_leads_nowhere_is_refused_with_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
