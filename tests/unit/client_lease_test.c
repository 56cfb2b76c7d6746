/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank looks at how long it may act before it does anything (shm/channel.h, until_ns). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client_pair.h"

static char got[8][4];
static unsigned told;

static void say(const char *text, uint64_t tag)
{
	assert_int_equal(rcs_inject(a.ep, text, 4, a.peer, tag, 0, 0), 0);
}

static int want(unsigned i)
{
	return rcs_trecv(b.ep, got[i], 4, b.peer, 1, 0, got[i]);
}

static void may_act(uint64_t until)
{
	atomic_store(&b.ep->ch.shm->until_ns, until);
}

/* One receive has its message and was not read yet, one message is there unexpected, one in the ring. */
static void begin(void)
{
	pair_open(1, 0);
	memset(got, 0, sizeof(got));
	assert_int_equal(want(0), 0);
	say("one", 1);
	say("two", 1);
	while (!b.ep->unexp)
		settle();
	assert_string_equal(got[0], "one");
	assert_int_equal(rcs_trecv(b.ep, got[7], 4, b.peer, 7, 0, got[7]), 0);
	may_act(SHM_UNTIL_LATER);
	say("thr", 1);
	say("sev", 7);
	settle();
}

static void past_its_time_a_rank_does_nothing_and_loses_nothing(void **state)
{
	struct rcs_completion c;
	rcs_claim *claim = NULL;
	char x[4] = "x";

	(void)state;
	begin();
	assert_int_equal(rcs_cq_read(b.cq, &c, 1), 0);
	assert_int_equal(rcs_cq_wait(b.cq, &c, 1, 20), RCS_ERR_TIMEOUT);
	assert_int_equal(rcs_probe(b.ep, NULL, 0, ~0ull, &c, &claim), 0);
	assert_null(claim);
	assert_int_equal(want(1), RCS_ERR_AGAIN);
	assert_int_equal(rcs_tsend(b.ep, x, 4, b.peer, 1, NULL), RCS_ERR_AGAIN);
	assert_int_equal(rcs_inject(b.ep, x, 4, b.peer, 1, 0, 0), RCS_ERR_AGAIN);
	assert_int_equal(rcs_flush(b.ep, NULL, 0, NULL), RCS_ERR_AGAIN);
	assert_string_equal(got[1], "");
	assert_string_equal(got[7], ""); /* its own memory is not touched either */
	may_act(cl_now() + 3600000000000ull);
	assert_int_equal(next(&b).status, RCS_OK);
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(want(i), 0);
		assert_int_equal(next(&b).status, RCS_OK);
	}
	assert_int_equal(next(&b).status, RCS_OK);
	assert_string_equal(got[7], "sev");
	assert_string_equal(got[1], "two");
	assert_string_equal(got[2], "thr");
	pair_close();
}

static void a_time_that_passed_is_as_none(void **state)
{
	struct rcs_completion c;

	(void)state;
	begin();
	may_act(cl_now());
	assert_int_equal(rcs_cq_read(b.cq, &c, 1), 0);
	assert_int_equal(want(1), RCS_ERR_AGAIN);
	may_act(SHM_UNTIL_EVER);
	assert_int_equal(rcs_cq_read(b.cq, &c, 1), 1);
	pair_close();
}

static void hear(const struct rcs_event *ev, void *arg)
{
	(void)arg;
	told += ev->code == RCS_EVENT_PARTITIONED;
}

/* What is in the ring, and what the program has not read, is not handed out any more. */
static void a_stopped_rank_hears_why_and_is_given_nothing(void **state)
{
	struct shm_event ev = {.code = SHM_EV_PARTITIONED, .origin = 1, .seq = 1, .rank = UINT32_MAX,
		.peer = UINT32_MAX, .rail = UINT32_MAX, .to_lane = UINT32_MAX};
	struct rcs_completion c = {0};

	(void)state;
	told = 0;
	begin();
	rcs_on_event(b.ctx, hear, NULL);
	may_act(SHM_UNTIL_STOPPED);
	assert_int_equal(rcs_cq_read(b.cq, &c, 1), 0); /* the event is still to come */
	fake_event(1, &ev);
	while (!b.ep->lost)
		settle();
	assert_int_equal(rcs_cq_read(b.cq, &c, 1), 1);
	assert_int_equal(c.status, RCS_ERR_PARTITIONED);
	assert_int_equal(told, 1);
	assert_int_equal(want(1), RCS_ERR_PARTITIONED);
	assert_string_equal(got[1], "");
	assert_string_equal(got[2], "");
	pair_close();
}

static void a_daemon_that_ends_is_noticed_meanwhile(void **state)
{
	(void)state;
	begin();
	fake_stop();
	while (!b.ep->lost)
		rcs_cq_read(b.cq, NULL, 0);
	assert_int_equal(b.ep->lost, RCS_ERR_RUNTIME_LOST);
	rcs_fini(a.ctx);
	rcs_fini(b.ctx);
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
}

static uint8_t mem[4][4096];
static rcs_region *region[4];

/* Regions that others have keys of, a daemon that does not answer, and a lease that is over. */
static void begin_hung(void)
{
	struct rcs_error err;
	struct rcs_key key;

	pair_open(1, 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(rcs_region_open(b.ctx, mem[i], sizeof(mem[i]), &region[i], &err), 0);
		assert_int_equal(rcs_region_key(region[i], b.ep, &key, &err), 0);
	}
	fake.hold_dereg = true;
	may_act(SHM_UNTIL_LATER + 1);
}

static void close_at_last(void)
{
	int rc;

	for (int i = 0; i < 4; i++) {
		while ((rc = rcs_region_close(region[i])) == RCS_ERR_TIMEOUT)
			settle();
		assert_int_equal(rc, 0);
	}
	assert_int_equal(fake.live_regions, 0);
}

/* Each wait for it ends, and one wait is enough; the regions are there until it says that they are not. */
static void a_daemon_that_hangs_is_awaited_once(void **state)
{
	(void)state;
	begin_hung();
	for (int i = 0; i < 4; i++)
		assert_int_equal(rcs_region_close(region[i]), RCS_ERR_TIMEOUT);
	assert_int_equal(b.ep->ch.owed, 1);
	may_act(SHM_UNTIL_EVER);
	fake.hold_dereg = false;
	close_at_last();
	pair_close();
}

static void *answers(void *arg)
{
	(void)arg;
	usleep(50000);
	fake.hold_dereg = false;
	return NULL;
}

static void a_daemon_that_has_said_more_is_awaited_again(void **state)
{
	struct rcs_error err;
	pthread_t t;
	rcs_region *r;
	void *p;

	(void)state;
	begin_hung();
	assert_int_equal(rcs_region_close(region[0]), RCS_ERR_TIMEOUT);
	may_act(cl_now() + 60000000000ull);
	pthread_create(&t, NULL, answers, NULL);
	assert_int_equal(rcs_alloc(b.ctx, 4096, &p, &r, &err), 0);
	pthread_join(t, NULL);
	assert_int_equal(rcs_free(r), 0);
	close_at_last();
	pair_close();
}

/* Its daemon has not let go of the endpoint's registrations: others can still write by them. */
static void a_region_outlives_the_endpoint_that_nobody_let_go_of(void **state)
{
	(void)state;
	begin_hung();
	rcs_ep_close(b.ep);
	assert_true(fake.live_regions > 0);
	assert_int_equal(rcs_region_close(region[0]), RCS_ERR_TIMEOUT);
	fake.hold_dereg = false;
	close_at_last();
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(past_its_time_a_rank_does_nothing_and_loses_nothing),
		cmocka_unit_test(a_time_that_passed_is_as_none),
		cmocka_unit_test(a_stopped_rank_hears_why_and_is_given_nothing),
		cmocka_unit_test(a_daemon_that_ends_is_noticed_meanwhile),
		cmocka_unit_test(a_daemon_that_hangs_is_awaited_once),
		cmocka_unit_test(a_daemon_that_has_said_more_is_awaited_again),
		cmocka_unit_test(a_region_outlives_the_endpoint_that_nobody_let_go_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
