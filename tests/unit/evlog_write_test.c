/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/evlog.h"

static char top[] = "/tmp/evlog_test.XXXXXX";

static int make_top(void **state)
{
	(void)state;
	strcpy(top + sizeof(top) - 7, "XXXXXX");
	signal(SIGXFSZ, SIG_IGN);
	return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
	char cmd[96];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf -- '%s'", top);
	return system(cmd);
}

static const struct core_failover sample = {.lane = 0, .to_lane = 1, .reason = CORE_R_PORT,
	.had_traffic = true, .gen = 3, .resent = 7, .last_good_ns = 1000, .noticed_ns = 1400,
	.fenced_ns = 1500, .resumed_ns = 1600, .progress_ns = 2000};

/* The n-th line of the log as an object the caller owns; NULL: there is none. */
static json_t *line(const struct evlog *e, int n)
{
	FILE *f = fopen(e->path, "r");
	json_t *o = NULL;
	char *text = NULL;
	size_t cap = 0;

	if (!f)
		return NULL;
	for (; n >= 0; n--)
		if (getline(&text, &cap, f) < 0)
			goto out;
	o = json_loads(text, 0, NULL);
	assert_non_null(o); /* a line is whole, or not there */
	assert_int_equal(text[strlen(text) - 1], '\n');
out:
	free(text);
	fclose(f);
	return o;
}

static void has(const struct evlog *e, int n, const char *key, const char *want)
{
	json_t *o = line(e, n);
	char *got;

	assert_non_null(o);
	got = json_dumps(json_object_get(o, key), JSON_ENCODE_ANY);
	assert_string_equal(got ? got : "(none)", want);
	free(got);
	json_decref(o);
}

static void nothing_is_made_before_the_first_record(void **state)
{
	struct evlog e;

	(void)state;
	assert_int_equal(evlog_open(&e, top, 17, 0, 0, "n0", 1 << 20), 0);
	assert_int_equal(access(e.dir, F_OK), -1);
	evlog_close(&e);
	assert_int_equal(access(e.dir, F_OK), -1);
}

static void a_failover_is_one_line_after_the_start(void **state)
{
	struct evlog e;
	struct stat st;
	json_t *o;

	(void)state;
	evlog_open(&e, top, 17, 2, 5, "n5", 1 << 20);
	evlog_rail(&e, 0, "mlx5_0/1");
	assert_int_equal(evlog_failover(&e, &sample, 3, "n3"), 0);
	evlog_close(&e);
	assert_non_null(strstr(e.path, "/17.2/5.jsonl"));
	assert_int_equal(stat(e.dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	has(&e, 0, "event", "\"start\"");
	has(&e, 0, "rcshare", "\"" RCS_VERSION "\"");
	o = line(&e, 0);
	assert_true(json_is_string(json_object_get(o, "kernel")));
	assert_true(json_is_array(json_object_get(o, "rdma_devices")));
	json_decref(o);
	has(&e, 1, "event", "\"failover\"");
	has(&e, 1, "job", "17");
	has(&e, 1, "restart", "2");
	has(&e, 1, "node", "5");
	has(&e, 1, "host", "\"n5\"");
	has(&e, 1, "peer", "3");
	has(&e, 1, "peer_host", "\"n3\"");
	has(&e, 1, "rail", "\"mlx5_0/1\"");
	has(&e, 1, "to_lane", "1");
	has(&e, 1, "to_rail", "null");
	has(&e, 1, "reason", "\"port\"");
	has(&e, 1, "verdict", "\"local port\"");
	has(&e, 1, "frames_resent", "7");
	has(&e, 1, "notice_ns", "400");
	has(&e, 1, "fence_ns", "100");
	has(&e, 1, "replay_ns", "400");
	has(&e, 1, "blackout_ns", "1000");
	has(&e, 1, "dropped", "(none)");
	has(&e, 2, "event", "\"end\"");
	has(&e, 2, "failovers", "1");
	has(&e, 2, "frames_resent", "7");
	assert_null(line(&e, 3));
	assert_true(e.blackout_max_ns == 1000);
}

static void a_failover_without_a_path_has_no_target(void **state)
{
	struct core_failover f = sample;
	struct evlog e;

	(void)state;
	f.to_lane = CORE_LANE_NONE;
	f.resumed_ns = f.progress_ns = 0;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	assert_int_equal(evlog_failover(&e, &f, 1, "n1"), 0);
	has(&e, 1, "to_lane", "null");
	has(&e, 1, "blackout_ns", "null");
	evlog_close(&e);
}

/* What both ends saw, and which part that makes it. */
static void the_verdict_follows_from_what_was_seen(void **state)
{
	static const struct {
		struct core_failover f;
		const char *verdict, *probe, *answered;
	} t[] = {
		{{.reason = CORE_R_DEVICE}, "\"local port\"", "null", "null"},
		{{.reason = CORE_R_SILENT, .asked = true, .answered = true, .probe = CORE_PROBE_LOST,
			.peer_reason = CORE_R_PORT}, "\"remote port\"", "\"lost\"", "true"},
		{{.reason = CORE_R_PEER, .peer_reason = CORE_R_PORT}, "\"remote port\"", "null", "null"},
		{{.reason = CORE_R_SILENT, .asked = true, .answered = true, .probe = CORE_PROBE_LOST},
			"\"path\"", "\"lost\"", "true"},
		{{.reason = CORE_R_SILENT, .asked = true, .answered = true}, "\"path\"", "null", "true"},
		{{.reason = CORE_R_COMPLETION}, "\"path\"", "null", "null"},
		{{.reason = CORE_R_PEER, .peer_reason = CORE_R_SILENT}, "\"path\"", "null", "null"},
		{{.reason = CORE_R_SILENT, .asked = true, .answered = true, .probe = CORE_PROBE_ANSWERED},
			"\"queue pair\"", "\"answered\"", "true"},
		{{.reason = CORE_R_PEER, .peer_reason = CORE_R_SILENT, .peer_flags = CORE_CTRL_F_ECHO},
			"\"queue pair\"", "null", "null"},
		{{.reason = CORE_R_SILENT, .asked = true, .had_traffic = true, .progress_ns = 5},
			"\"peer busy\"", "null", "false"},
		{{.reason = CORE_R_SILENT, .asked = true}, "\"peer dead or busy\"", "null", "false"},
		{{.reason = CORE_R_COMPLETION, .asked = true, .had_traffic = true}, "\"peer dead or busy\"",
			"null", "false"},
		{{.reason = CORE_R_PEER, .peer_reason = CORE_R_SILENT, .peer_flags = CORE_CTRL_F_MUTE},
			"\"this node busy\"", "null", "null"},
		{{.reason = CORE_R_CLOSE}, "\"peer dead\"", "null", "null"},
		{{.reason = CORE_R_PEER, .peer_reason = CORE_R_REQUEST}, "\"request\"", "null", "null"},
	};
	struct evlog e;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(evlog_failover(&e, &t[i].f, 1, "n1"), 0);
		has(&e, (int)i + 1, "verdict", t[i].verdict);
		has(&e, (int)i + 1, "probe", t[i].probe);
		has(&e, (int)i + 1, "peer_answered", t[i].answered);
	}
	evlog_close(&e);
}

static void other_records_carry_their_fields(void **state)
{
	struct evlog e;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	assert_int_equal(evlog_lane_back(&e, CORE_LANE_TCP, 1, "n1"), 0);
	assert_int_equal(evlog_peer(&e, "peer_unreachable", 1, "n1"), 0);
	assert_int_equal(evlog_event(&e, "note", json_pack("{s:i}", "x", 4)), 0);
	assert_int_equal(evlog_event(&e, "bare", NULL), 0);
	assert_int_equal(evlog_rank_lost(&e, 2, 3, "socket closed"), 0);
	assert_int_equal(evlog_selftest(&e, 1, "none", "burst 3: rq_psn 7 counts"), 0);
	has(&e, 1, "rail", "\"tcp\"");
	has(&e, 2, "event", "\"peer_unreachable\"");
	has(&e, 3, "x", "4");
	has(&e, 4, "event", "\"bare\"");
	has(&e, 5, "event", "\"rank_lost\"");
	has(&e, 5, "rank", "3");
	has(&e, 6, "event", "\"selftest\"");
	has(&e, 6, "lane", "1");
	has(&e, 6, "ledger", "\"none\"");
	has(&e, 6, "detail", "\"burst 3: rq_psn 7 counts\"");
	evlog_close(&e);
}

static void a_second_daemon_of_the_job_appends(void **state)
{
	struct evlog e;

	(void)state;
	for (int i = 0; i < 2; i++) {
		evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
		assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
		evlog_close(&e);
	}
	has(&e, 3, "event", "\"start\"");
	has(&e, 5, "event", "\"end\"");
}

static void a_full_log_counts_what_it_drops(void **state)
{
	struct evlog e;
	struct stat st;
	uint64_t dropped = 0;
	char want[32];
	int n = 0;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 4096);
	for (int i = 0; i < 30; i++)
		dropped += evlog_failover(&e, &sample, 1, "n1") != 0;
	assert_true(dropped > 0 && dropped < 30);
	assert_true(e.dropped_total == dropped);
	assert_non_null(strstr(e.error, "log_max_bytes"));
	assert_int_equal(e.failovers, 30); /* what happened is known even where it is not written */
	evlog_close(&e);
	assert_int_equal(stat(e.path, &st), 0);
	assert_true(st.st_size <= 4096);
	for (json_t *o; (o = line(&e, n)); n++)
		json_decref(o);
	snprintf(want, sizeof(want), "%d", (int)dropped);
	has(&e, n - 1, "event", "\"end\"");
	has(&e, n - 1, "dropped_total", want);
}

static void a_full_disk_leaves_no_torn_line_and_is_told_later(void **state)
{
	struct rlimit old, small;
	struct evlog e;
	struct stat st;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	assert_int_equal(stat(e.path, &st), 0);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = (rlim_t)st.st_size + 40; /* cuts the next write in its middle */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_not_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	assert_int_not_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(e.error[0]);
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	has(&e, 2, "event", "\"failover\"");
	has(&e, 2, "dropped", "2");
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	has(&e, 3, "dropped", "(none)");
	evlog_close(&e);
}

static void a_full_disk_at_the_start_is_survived(void **state)
{
	struct rlimit old, none;
	struct evlog e;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	getrlimit(RLIMIT_FSIZE, &old);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_int_not_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	has(&e, 0, "event", "\"start\"");
	has(&e, 1, "dropped", "1");
	evlog_close(&e);
}

static void a_missing_log_dir_drops_and_says_so(void **state)
{
	struct evlog e;

	(void)state;
	evlog_open(&e, "/nonexistent/logs", 1, 0, 0, "n0", 1 << 20);
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), -ENOENT);
	assert_int_equal(e.dropped, 1);
	assert_non_null(strstr(e.error, "/nonexistent/logs/1"));
	evlog_close(&e);
}

static void a_planted_link_or_pipe_is_refused(void **state)
{
	char path[128];
	struct evlog e;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	snprintf(path, sizeof(path), "%s/elsewhere", top);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(symlink(path, e.dir), 0);
	assert_int_not_equal(evlog_failover(&e, &sample, 1, "n1"), 0);
	assert_int_equal(unlink(e.dir), 0);

	assert_int_equal(mkdir(e.dir, 0700), 0);
	assert_int_equal(symlink("/dev/full", e.path), 0);
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), -ELOOP);
	assert_int_equal(unlink(e.path), 0);
	assert_int_equal(mkfifo(e.path, 0600), 0);
	assert_int_not_equal(evlog_failover(&e, &sample, 1, "n1"), 0); /* and does not hang */
	assert_int_equal(e.dropped, 3);
	assert_int_equal(e.fd, -1);
	evlog_close(&e);
}

static void strange_bytes_stay_valid_json(void **state)
{
	struct evlog e;

	(void)state;
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 20);
	assert_int_equal(evlog_selftest(&e, 99, "a\"\n\x01", "\xff\xfe"), 0);
	has(&e, 1, "lane", "null");
	has(&e, 1, "detail", "\"(not UTF-8)\"");
	assert_null(line(&e, 2));
	evlog_close(&e);
}

static void a_log_dir_that_is_too_long_is_survived(void **state)
{
	char dir[1024];
	struct evlog e;

	(void)state;
	memset(dir, 'd', sizeof(dir));
	dir[0] = '/';
	dir[sizeof(dir) - 1] = '\0';
	assert_int_equal(evlog_open(&e, dir, 1, 0, 0, "n0", 1 << 20), -ENAMETOOLONG);
	assert_int_equal(evlog_failover(&e, &sample, 1, "n1"), -ENAMETOOLONG);
	evlog_close(&e);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_top, remove_top)

/* A disk that hangs: the queue's thread is in it. */
struct hang {
	struct work w;
	sem_t over;
};

static void hang_run(struct work *w)
{
	sem_wait(&((struct hang *)w)->over);
}

static void a_disk_that_hangs_costs_records_and_holds_up_nobody(void **state)
{
	struct works *s = works_open(NULL);
	struct work_queue *q = work_queue_open(s, "log");
	struct hang h = {.w.run = hang_run};
	struct evlog_state now;
	struct evlog e;
	int rc = 0;

	(void)state;
	sem_init(&h.over, 0, 0);
	evlog_open(&e, top, 1, 0, 0, "n0", 1 << 24);
	evlog_queue(&e, q);
	assert_int_equal(work_put(q, &h.w), 0);
	for (unsigned i = 0; i < EVLOG_QUEUED + 2; i++)
		rc = evlog_peer(&e, "peer_back", 1, "n1");
	assert_int_equal(rc, -ENOBUFS);
	evlog_state(&e, &now);
	assert_false(now.written);
	assert_int_equal(now.dropped_total, 3); /* the disk's own job stands in the queue, too */
	assert_non_null(strstr(now.error, "hangs"));
	assert_int_equal(access(e.dir, F_OK), -1);
	sem_post(&h.over);
	evlog_close(&e);
	works_close(s, 60000);
	evlog_state(&e, &now);
	assert_true(now.written);
	has(&e, 1, "event", "\"peer_back\"");
	has(&e, 1, "dropped", "3");
	has(&e, EVLOG_QUEUED - 1, "event", "\"peer_back\"");
	has(&e, EVLOG_QUEUED, "event", "\"end\"");
	has(&e, EVLOG_QUEUED, "dropped_total", "3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_is_made_before_the_first_record),
		T(a_failover_is_one_line_after_the_start),
		T(a_failover_without_a_path_has_no_target),
		T(the_verdict_follows_from_what_was_seen),
		T(a_disk_that_hangs_costs_records_and_holds_up_nobody),
		T(other_records_carry_their_fields),
		T(a_second_daemon_of_the_job_appends),
		T(a_full_log_counts_what_it_drops),
		T(a_full_disk_leaves_no_torn_line_and_is_told_later),
		T(a_full_disk_at_the_start_is_survived),
		T(a_missing_log_dir_drops_and_says_so),
		T(a_planted_link_or_pipe_is_refused),
		T(strange_bytes_stay_valid_json),
		T(a_log_dir_that_is_too_long_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
