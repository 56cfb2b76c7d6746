/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that comes and goes under messages: what a library that keeps registrations gets wrong.
 * Ranks in pairs (r, r + size/2). Prints "NAME ok" for each case on rank 0.
 *
 *	rcs_mem [--size N] [--rounds N] [--helper]
 */
#include <getopt.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "app.h"

static size_t size = 1 << 20;
static unsigned rounds = 10;
static uint32_t other;
static uint64_t seq;

static void fill(void *p, uint64_t n)
{
	for (size_t i = 0; i < size / 8; i++)
		((uint64_t *)p)[i] = app_word(app.rank, other, n, i);
}

static void check(const void *p, uint64_t n)
{
	for (size_t i = 0; i < size / 8; i++)
		if (((const uint64_t *)p)[i] != app_word(other, app.rank, n, i))
			app_die("message %llu: byte %zu is wrong", (unsigned long long)n, i * 8);
}

static void swap_messages(void *out, void *in, rcs_region *rout, rcs_region *rin)
{
	struct iovec io = {out, size}, ii = {in, size};
	struct app_req s = {0}, r = {0};
	struct rcs_msg m = {.iov = &ii, .iov_n = 1, .tag = 1, .peer = app_peer(other), .region = rin,
		.context = &r};

	APP_OK(rcs_recv(app.ep, &m));
	m.iov = &io;
	m.region = rout;
	m.context = &s;
	APP_OK(rcs_send(app.ep, &m));
	app_wait_ok(&s);
	app_wait_ok(&r);
}

static void *map(void *at)
{
	void *p = mmap(at, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	APP_CHECK(p != MAP_FAILED);
	return p;
}

/* Other pages at the same address each time. */
static void same_address(void)
{
	void *out = map(NULL), *in = map(NULL);

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t n = seq++;

		fill(out, n);
		swap_messages(out, in, NULL, NULL);
		check(in, n);
		APP_CHECK(munmap(out, size) == 0 && munmap(in, size) == 0);
		APP_CHECK(map(out) == out && map(in) == in);
	}
	munmap(out, size);
	munmap(in, size);
}

static void malloc_and_free(void)
{
	for (unsigned i = 0; i < rounds; i++) {
		void *out = malloc(size), *in = malloc(size);
		uint64_t n = seq++;

		APP_CHECK(out && in);
		fill(out, n);
		swap_messages(out, in, NULL, NULL);
		check(in, n);
		free(out);
		free(in);
	}
}

/* The child writes into its copy of the buffers, and lives on while the parent sends again. */
static void fork_between(void)
{
	void *out = map(NULL), *in = map(NULL);
	rcs_region *region;
	struct rcs_error err;

	APP_OK(rcs_region_open(app.ctx, out, size, &region, &err));
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t n = seq++;
		int pipe_fd[2], status;
		pid_t child;

		APP_CHECK(pipe(pipe_fd) == 0);
		child = fork();
		APP_CHECK(child >= 0);
		if (child == 0) {
			char c;

			close(pipe_fd[1]);
			memset(out, 0xee, size);
			memset(in, 0xee, size);
			if (rcs_tsend(app.ep, out, 8, app_peer(other), 1, NULL) != RCS_ERR_FORKED)
				_exit(1);
			rcs_fini(app.ctx); /* harmless */
			_exit(read(pipe_fd[0], &c, 1) == 0 ? 0 : 1);
		}
		close(pipe_fd[0]);
		fill(out, n);
		swap_messages(out, in, i & 1 ? region : NULL, NULL);
		check(in, n);
		close(pipe_fd[1]);
		APP_CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	APP_OK(rcs_region_close(region));
	munmap(out, size);
	munmap(in, size);
}

static void user_regions(void)
{
	rcs_region *rout, *rin;
	struct rcs_error err;
	void *out, *in;

	APP_OK(rcs_alloc(app.ctx, size, &out, &rout, &err));
	APP_OK(rcs_alloc(app.ctx, size, &in, &rin, &err));
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t n = seq++;

		fill(out, n);
		swap_messages(out, in, rout, rin);
		check(in, n);
	}
	APP_OK(rcs_free(rout));
	APP_OK(rcs_free(rin));
}

/* Constants and mapped files are sent from memory that cannot be written. */
static void read_only(void)
{
	void *out = map(NULL), *in = map(NULL);

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t n = seq++;

		APP_CHECK(mprotect(out, size, PROT_READ | PROT_WRITE) == 0);
		fill(out, n);
		APP_CHECK(mprotect(out, size, PROT_READ) == 0);
		swap_messages(out, in, NULL, NULL);
		check(in, n);
	}
	munmap(out, size);
	munmap(in, size);
}

static void run(const char *name, void (*fn)(void))
{
	fn();
	app_barrier();
	if (app.rank == 0)
		printf("%s ok\n", name);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"size", required_argument, NULL, 's'}, {"rounds", required_argument, NULL, 'r'},
		{"helper", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
	};
	uint32_t flags = 0;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 's':
			size = (app_number(optarg) + 4095) & ~(size_t)4095;
			break;
		case 'r':
			rounds = (unsigned)app_number(optarg);
			break;
		case 'h':
			flags = RCS_INIT_HELPER;
			break;
		default:
			return 2;
		}
	app_open(flags);
	if (app.size < 2 || app.size % 2)
		app_die("needs an even number of ranks");
	other = (app.rank + app.size / 2) % app.size;
	app_barrier();
	run("same address", same_address);
	run("malloc and free", malloc_and_free);
	run("fork between sends", fork_between);
	run("user regions", user_regions);
	run("read-only buffers", read_only);
	if (app.rank == 0)
		printf("all ok\n");
	app_close();
	return 0;
}
