/* SPDX-License-Identifier: BSD-3-Clause */
#include "bed.h"

#include <stdarg.h>
#include <stdlib.h>

#include "node/member.h"

/* The daemon's own set-up, loop and end. */
int rcshared_main(int argc, char **argv);
#define main rcshared_main
#include "node/main.c"
#undef main

#define TURN_NS 20000u

struct bed bed;
static bool in_turn;

void bed_must(bool fact, const char *what)
{
	if (fact)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

void bed_say(const char *fmt, ...)
{
	va_list ap;

	if (!getenv("BED_VERBOSE"))
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* runtime/node/place.h: on any core. */
void place_thread(const char *cpus, const char *rail)
{
	(void)cpus;
	(void)rail;
}

static void node_open(uint32_t i)
{
	static char names[BED_DAEMONS][64], job[16], index[4], token_fd[16];
	char *argv[] = {"rcshared", "--job", job, "--restart", "0", "--node-index", index, "--nodes", "3", "--nodelist",
		names[i], "--run-dir", bed.dir[i], "--token-fd", token_fd, "--log", "/dev/null/log", NULL};
	struct node *n = calloc(1, sizeof(*n));
	const uint8_t token[32] = "known to the job alone";
	char why[SHM_SENTENCE + 64] = "";
	int fd[2];

	bed_must(n && !pipe(fd) && write(fd[1], token, sizeof(token)) == sizeof(token), "memory and a pipe");
	close(fd[1]);
	snprintf(names[i], sizeof(names[i]), "127.0.0.1,127.0.0.2,127.0.0.3");
	snprintf(job, sizeof(job), "%d", (int)getpid()); /* another fuzzer's daemons are strangers */
	snprintf(index, sizeof(index), "%u", i);
	snprintf(token_fd, sizeof(token_fd), "%d", fd[0]);
	optind = 0; /* from the start */
	options(n, sizeof(argv) / sizeof(argv[0]) - 1, argv);
	n->no_member = NODE_NONE;
	n->now = n->started_at = node_clock();
	bed.n[i] = n;
	if (set_up(n, why))
		bed_must(false, why);
	n->cfg.receive_ring = 1 << 20; /* what arrives in one turn has room */
	n->cfg.submit_ring = 16 << 10;
	n->cfg.log_level = CONFIG_LOG_ERROR;
}

static void dirs_make(void)
{
	const char *top = getenv("TMPDIR");

	for (uint32_t i = 0; i < BED_DAEMONS && !bed.dir[i][0]; i++) {
		snprintf(bed.dir[i], sizeof(bed.dir[i]), "%.40s/rcs-fuzz.XXXXXX", top ? top : "/tmp");
		bed_must(mkdtemp(bed.dir[i]), "a folder can be made in TMPDIR");
	}
}

void bed_connect(void)
{
	link_learn(link_get(bed.n[0], 1), &bed.n[1]->addr);
	for (int i = 0; i < 100 && !bed_whole(); i++) {
		bed_pass(i < 40 ? 0 : 50 * BED_MS);
		bed_turns(1);
	}
	bed_must(bed_whole(), "the daemons meet");
}

void bed_open(bool connected)
{
	bed_os_reset();
	bed.vm_refused = false;
	dirs_make();
	for (uint32_t i = 0; i < BED_DAEMONS; i++)
		node_open(i);
	if (connected)
		bed_connect();
}

void bed_turn(unsigned node)
{
	if (!bed.n[node] || in_turn)
		return;
	in_turn = true;
	bed_pass(TURN_NS);
	bed.n[node]->stop = false;
	loop(bed.n[node]); /* one turn: verbs_poll() stops it */
	in_turn = false;
}

void bed_turns(unsigned k)
{
	while (k--)
		for (unsigned i = 0; i < BED_DAEMONS; i++)
			bed_turn(i);
}

void bed_settle(void)
{
	for (int i = 0; i < 14; i++) {
		bed_pass(500 * BED_MS);
		bed_turns(2);
	}
}

bool bed_whole(void)
{
	for (uint32_t i = 0; i < BED_DAEMONS; i++) {
		const struct node *n = bed.n[i];
		const struct link *l = n && !n->parted ? n->link[!i] : NULL;

		if (!l || l->lost || !l->tcp.conn || l->core.active == CORE_LANE_NONE)
			return false;
	}
	return true;
}

void bed_must_be_empty(unsigned node)
{
	const struct node *n = bed.n[node];
	const struct import *im, *tmp;

	bed_must(!n->chans && !n->rank_chans, "no channel is left");
	bed_must(!n->local_rmas, "no request between two ranks of a node is left");
	for (const struct link *l = n->links; l; l = l->next)
		bed_must(!l->rmas && !l->framed, "no request to another node is left");
	for (uint32_t i = 0; i < n->regions_n; i++)
		bed_must(!n->regions[i]->used, "no region is left");
	HASH_ITER(hh, n->imports, im, tmp)
		bed_must(!im->m.uses, "no import is in use");
}

void bed_stop(unsigned node)
{
	struct node *n = bed.n[node];
	struct import *im, *tmp;

	tear_down(n);
	/* what the end of the process frees */
	member_free_all(n);
	HASH_ITER(hh, n->imports, im, tmp) {
		HASH_DEL(n->imports, im);
		free(im);
	}
	for (uint32_t i = 0; i < n->regions_n; i++) {
		if (n->regions[i]->map)
			munmap(n->regions[i]->map, n->regions[i]->len);
		free(n->regions[i]->x.list);
		free(n->regions[i]);
	}
	free(n->regions);
	free(n->o.names);
	free(n->o.addrs);
	free(n->link);
	munmap(n->table, n->table_size);
	close(n->table_fd);
	close(n->epfd);
	free(n);
	bed.n[node] = NULL;
}

void bed_close(void)
{
	for (unsigned i = 0; i < BED_DAEMONS; i++)
		if (bed.n[i])
			bed_stop(i);
}
