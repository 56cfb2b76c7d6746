/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What was known of a rank before its node was lost stays refused when a spare has taken it over.
 *
 *	srun --no-kill -K0 --rcshare=on,spares=1 -N3 --ntasks-per-node=1 ... rcs_stale
 *
 * Rank 0 knows address and key of rank 1, and prints `ready`. When the node of rank 1 has been lost and
 * replaced it speaks with the replacement, and prints `refused`.
 *
 * --stall: the first replacement never publishes. Rank 0 prints `looks` and looks it up; when that is lost too
 * the look-up must end.
 */
#include "app.h"
#include "app_pmix.h"

#define TAG 5

static bool lost, replaced, stall;
static uint32_t spare = UINT32_MAX, incarnation;

static void on_event(const struct rcs_event *ev, void *arg)
{
	(void)arg;
	if (ev->code == RCS_EVENT_NODE_LOST) {
		APP_CHECK((stall || !replaced) && ev->index == 1 && ev->first_rank == 1 && ev->ranks == 1);
		lost = true;
		replaced = false;
		spare = ev->spare;
	} else if (ev->code == RCS_EVENT_NODE_REPLACED) {
		APP_CHECK(lost && ev->peer == spare && ev->index == 1 && ev->first_rank == 1);
		replaced = true;
		incarnation = ev->incarnation;
	}
}

static int ends_with(int rc, struct app_req *q)
{
	return rc ? rc : app_wait(q);
}

static int send_to(rcs_peer *p)
{
	struct app_req q = {0};
	uint64_t word = 0;

	return ends_with(rcs_tsend(app.ep, &word, sizeof(word), p, TAG + 1, &q), &q);
}

static int put_to(rcs_peer *p, const struct rcs_key *key)
{
	struct app_req q = {0};
	uint64_t word = 1;
	struct rcs_rma r = {.buf = &word, .len = sizeof(word), .key = key, .peer = p, .context = &q};

	return ends_with(rcs_put(app.ep, &r), &q);
}

/* Everything by which rank 1 was known: the peer, its address inserted anew, its key. */
static void refused(rcs_peer *old, const struct rcs_addr *addr, const struct rcs_key *key)
{
	struct rcs_error err;
	rcs_peer *again;

	APP_CHECK(send_to(old) == RCS_ERR_NODE_LOST);
	APP_CHECK(put_to(old, key) == RCS_ERR_NODE_LOST);
	APP_OK(rcs_peer_insert(app.ep, addr, &again, &err));
	APP_CHECK(send_to(again) == RCS_ERR_NODE_LOST);
}

static void watch(rcs_peer *old, const struct rcs_addr *addr, const struct rcs_key *key)
{
	struct rcs_error err;
	struct rcs_peer_info info;
	struct rcs_key fresh;
	struct app_req q;
	rcs_peer *now;
	int rc;

	while (!lost)
		app_progress(100);
	rc = rcs_lookup(app.ep, 1, &now, &err);
	APP_CHECK(rc == RCS_ERR_NODE_LOST || replaced);
	refused(old, addr, key);
	while (!replaced)
		app_progress(100);
	refused(old, addr, key);
	if (stall) {
		printf("looks\n");
		rc = rcs_lookup(app.ep, 1, &now, &err);
		if (rc != RCS_ERR_NODE_LOST)
			app_die("look-up of a stalled replacement: %s: %s", rcs_status_name(rc), err.sentence);
		while (incarnation < 2)
			app_progress(100);
	}
	APP_OK(rcs_lookup(app.ep, 1, &now, &err));
	APP_CHECK(now != old && rcs_peer_rank(now) == 1);
	APP_OK(rcs_peer_query(now, &info));
	APP_CHECK(info.incarnation == incarnation && incarnation == (stall ? 2 : 1) && info.node == spare);
	app.peer[1] = now;
	app_recv(&fresh, sizeof(fresh), 1, TAG, &q);
	app_wait_ok(&q);
	APP_CHECK(q.c.source == now && q.c.source_rank == 1);
	APP_CHECK(put_to(now, key) == RCS_ERR_INVALID);
	APP_CHECK(put_to(now, &fresh) == RCS_OK);
	APP_CHECK(send_to(now) == RCS_OK);
	printf("refused\n");
}

static void be_watched(void)
{
	struct rcs_error err;
	rcs_region *region;
	struct app_req q;
	struct rcs_key key;
	struct rcs_addr addr;
	uint64_t word;
	void *p;

	APP_OK(rcs_alloc(app.ctx, 4096, &p, &region, &err));
	APP_OK(rcs_region_key(region, app.ep, &key, &err));
	app_send(&key, sizeof(key), 0, TAG, &q);
	app_wait_ok(&q);
	if (!rcs_incarnation(app.ctx)) {
		rcs_ep_addr(app.ep, &addr);
		app_send(&addr, sizeof(addr), 0, TAG, &q);
		app_wait_ok(&q);
	}
	app_recv(&word, sizeof(word), 0, TAG + 1, &q);
	app_wait_ok(&q);
	APP_CHECK(*(uint64_t *)p == 1);
}

/* Until its node is killed: a context, and nothing published. */
static void stall_replacement(void)
{
	struct rcs_error err;
	int rc = rcs_init(NULL, &app.ctx, &err);

	if (rc == RCS_NOT_NEEDED)
		exit(0);
	if (!rc && rcs_incarnation(app.ctx) == 1)
		for (;;)
			pause();
	if (rc)
		app_die("%s", err.sentence);
}

int main(int argc, char **argv)
{
	struct rcs_addr addr;
	struct rcs_key key;
	struct app_req q;

	setvbuf(stdout, NULL, _IOLBF, 0);
	stall = argc > 1 && !strcmp(argv[1], "--stall");
	if (stall)
		stall_replacement();
	app_open(0);
	rcs_on_event(app.ctx, on_event, NULL);
	app_listen();
	APP_CHECK(app.size == 2);
	if (app.rank) {
		be_watched();
	} else {
		app_recv(&key, sizeof(key), 1, TAG, &q);
		app_wait_ok(&q);
		app_recv(&addr, sizeof(addr), 1, TAG, &q);
		app_wait_ok(&q);
		printf("ready\n");
		watch(app.peer[1], &addr, &key);
	}
	rcs_fini(app.ctx);
	return 0;
}
