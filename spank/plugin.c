// SPDX-License-Identifier: BSD-3-Clause
/*
 * The SPANK callbacks. They gather what Slurm knows, call the modules and say what came of it;
 * all Slurm symbols of the plugin are used here.
 *
 * Contexts: srun (LOCAL) and sbatch, salloc (ALLOCATOR) check the option at submit time;
 * slurmstepd (REMOTE) starts the daemon; slurmd's helper (JOB_SCRIPT) ends it in the epilog.
 *
 * Return values: 0 nearly everywhere. A failure in the epilog would drain the node; elsewhere an
 * `optional` plugin's failure is ignored by Slurm 22.05 and fatal from 25.05 on. A step that
 * requires rcshare and can not have it is refused in its tasks, before they exec: an error of
 * init_post_opt or user_init never reaches the user, and srun ends with 0.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All else is hidden: the build says -fvisibility=hidden, and spank.map agrees. */
#pragma GCC visibility push(default)
#include <slurm/spank.h>
SPANK_PLUGIN(rcshare, 1)
#pragma GCC visibility pop

#include "spank/conf.h"
#include "spank/env.h"
#include "spank/hostlist.h"
#include "spank/launch.h"
#include "spank/layout.h"
#include "spank/notify.h"
#include "spank/option.h"
#include "spank/site.h"
#include "spank/slurmconf.h"
#include "spank/survive.h"

#define PLUG_ENV_TASKS "SLURM_STEP_TASKS_PER_NODE"
#define TOLD_NODES 16 /* a step of more nodes tells its user what is wrong on the first one only */
#define EXTERN_STEP 0xfffffffcu /* SLURM_EXTERN_CONT of slurm.h */

static struct plug_conf conf;

/* What the option's callback got; in init_post_opt Slurm does not give it again. */
static struct {
	bool given;
	int rc;
	struct plug_option opt;
	struct plug_error err;
} cli;

/* The step in slurmstepd. */
static struct {
	bool uses;    /* the daemon is ready */
	bool refused; /* `require`, and it is not; or spares that cannot be */
	bool placed;
	char message[700]; /* for the user, once there is a way to him */
	char *nodelist;	   /* the job's, for the tasks: pmix_nodes */
	bool together;	   /* it needs all its nodes */
	char before[256];  /* the node before this one in the step's ring, "" if there is none */
	uint32_t job, restart;
} step;

static int option_callback(int val, const char *value, int remote)
{
	(void)val;
	cli.given = true;
	cli.rc = plug_option_parse(value, &cli.opt, &cli.err);
	if (cli.rc && !remote) {
		slurm_error("rcshare: --rcshare=%s: %s", value ? value : "", cli.err.text);
		return -1;
	}
	return 0;
}

static struct spank_option option = {
	.name = "rcshare",
	.arginfo = "on|off|require[,key=value...]",
	.usage = "[rcshare] share RDMA connections between the ranks of a node, "
		 "and survive failures of rails and nodes; keys: rails=N, eager=0|1, keep_step=0|1, "
		 "spares=N, log=PATH; see rcshare(1)",
	.has_arg = 1,
	.cb = option_callback,
};

/* The option, else RCSHARE of `env_value`, else plugstack.conf. */
static int choose(const char *env_value, struct plug_option *opt, struct plug_error *err)
{
	const struct plug_option none = PLUG_OPTION_INIT;
	struct plug_error why;
	int rc;

	*opt = none;
	opt->mode = conf.mode;
	if (cli.given) {
		if (cli.rc)
			return plug_error_set(err, cli.rc, "--rcshare: %s", cli.err.text);
		*opt = cli.opt;
	} else if (env_value && *env_value) {
		rc = plug_option_parse(env_value, opt, &why);
		if (rc)
			return plug_error_set(
				err, rc, "the variable RCSHARE=%s: %s", env_value, why.text);
	}
	return 0;
}

/* --- srun, sbatch, salloc ----------------------------------------------------------------------
 */

#define HET \
	"heterogeneous jobs are not supported (their PMIx namespace is another job's): give " \
	"--rcshare=off"

/*
 * getopt's optind: Slurm has just parsed the command's options, and what follows is the command
 * to run, whose words are its own.
 */
static void check_command(const struct plug_option *opt, bool asked)
{
	bool srun = spank_context() == S_CTX_LOCAL;
	struct plug_survive s;
	char **words, text[256];
	size_t n = plug_survive_words(&words), options = (size_t)optind;

	if (options > n)
		options = n;
	plug_survive_read(words, options, environ, &s);
	if (!srun) {
		unsetenv(PLUG_ENV_NO_KILL);
		if (s.no_kill)
			setenv(PLUG_ENV_NO_KILL, "1", 1);
	}
	if (opt->mode == PLUG_OFF)
		goto out;
	if (asked && plug_survive_het(words, options, n, srun, environ)) {
		slurm_error("rcshare: " HET);
		exit(1);
	}
	if (srun && (s.no_kill || opt->spares)) {
		setenv(PLUG_ENV_PMIX_TIMEOUT, PLUG_PMIX_TIMEOUT, 0);
		if (plug_survive_advice(&s, text, sizeof(text)))
			slurm_spank_log("rcshare: %s", text);
	}
out:
	free(words);
}

static void check_submission(void)
{
	const char *env = getenv(PLUG_ENV_DEFAULT);
	struct plug_option opt;
	struct plug_error err;
	char name[128];
	size_t pos = 0;

	if (choose(env, &opt, &err)) {
		/* Nothing is allocated yet, and an optional plugin's error would be ignored. */
		slurm_error("rcshare: %s", err.text);
		exit(1);
	}
	check_command(&opt, cli.given || (env && *env));
	if (opt.mode == PLUG_OFF)
		return;
	while (plug_env_unknown(environ, &pos, name, sizeof(name)))
		slurm_spank_log(
			"rcshare: warning: the variable %s is not known and has no effect", name);
}

/* --- slurmstepd --------------------------------------------------------------------------------
 */

static void log_sentence(const char *sentence)
{
	slurm_info("rcshare: %s", sentence);
}

static const char *job_env(spank_t sp, const char *name, char *buf, int size)
{
	return spank_getenv(sp, name, buf, size) == ESPANK_SUCCESS ? buf : NULL;
}

/* The node's name as Slurm knows it; slurmd passes it to its helpers. */
static const char *node_name(char *buf, size_t size)
{
	const char *name = getenv("SLURMD_NODENAME");

	if (name)
		return name;
	if (gethostname(buf, size) != 0)
		return "localhost";
	buf[size - 1] = '\0';
	buf[strcspn(buf, ".")] = '\0';
	return buf;
}

/* The job as this step's slurmstepd knows it; lives as long as the process. */
static int step_job(spank_t sp, struct plug_job *job, struct plug_error *err)
{
	static char host[256];
	char number[32];
	gid_t *gids = NULL;

	if (spank_get_item(sp, S_JOB_UID, &job->uid) || spank_get_item(sp, S_JOB_GID, &job->gid))
		return plug_error_set(err, -EINVAL, "Slurm does not tell the job's user");
	if (spank_get_item(sp, S_JOB_SUPPLEMENTARY_GIDS, &gids, &job->ngids) == ESPANK_SUCCESS && job->ngids > 0)
		job->gids = gids;
	job->id = step.job;
	job->restart = step.restart;
	/* The user may change these: he then ends his own daemon, or keeps one of his own. */
	if (job_env(sp, "SLURM_JOB_START_TIME", number, sizeof(number)))
		job->start = strtoull(number, NULL, 10);
	job->node = node_name(host, sizeof(host));
	job->log = log_sentence;
	return 0;
}

static int step_start(spank_t sp, const struct plug_option *opt, struct plug_job *job, struct plug_error *err)
{
	static char nodelist[PLUG_HOSTLIST_MAX], steplist[PLUG_HOSTLIST_MAX];
	struct plug_slurmconf slurm;
	char level[32];
	int rc;

	/* Of the allocation; an srun from outside the job (--jobid) names the step's nodes there. */
	job->nodelist = job_env(sp, "SLURM_JOB_NODELIST", nodelist, sizeof(nodelist));
	if (!job->nodelist)
		job->nodelist = job_env(sp, "SLURM_NODELIST", nodelist, sizeof(nodelist));
	if (!job->nodelist)
		return plug_error_set(
			err, -EINVAL, "no SLURM_JOB_NODELIST in the job's environment");
	job->steplist = job_env(sp, "SLURM_STEP_NODELIST", steplist, sizeof(steplist));
	job->log_level = job_env(sp, PLUG_ENV_LOG_LEVEL, level, sizeof(level));
	/* Not the cluster's name in the job's environment: the token would be another cluster's. */
	rc = plug_slurmconf_load(&slurm, err);
	job->slurm = &slurm;
	if (!rc)
		rc = plug_launch_start(&conf, opt, job, err);
	job->slurm = NULL;
	plug_slurmconf_free(&slurm);
	return rc;
}

static void step_env(spank_t sp, const struct plug_option *opt, uint32_t stepid)
{
	char text[PLUG_PATH_MAX + 64];

	/* A step inherits the variables of the step it was submitted from. */
	spank_unsetenv(sp, PLUG_ENV_SOCKET);
	spank_unsetenv(sp, PLUG_ENV_STEP);
	spank_unsetenv(sp, PLUG_ENV_DISABLED);
	spank_unsetenv(sp, PLUG_ENV_SPARES);
	if (opt->mode == PLUG_OFF)
		return;
	if (!step.uses) {
		spank_setenv(sp, PLUG_ENV_DISABLED, "1", 1);
		return;
	}
	snprintf(text, sizeof(text), "%s/%u.%u/sock", conf.run_dir, step.job, step.restart);
	spank_setenv(sp, PLUG_ENV_SOCKET, text, 1);
	snprintf(text, sizeof(text), "%u", stepid);
	spank_setenv(sp, PLUG_ENV_STEP, text, 1);
	if (opt->eager >= 0)
		spank_setenv(sp, PLUG_ENV_EAGER, opt->eager ? "1" : "0", 1);
	if (opt->spares) {
		snprintf(text, sizeof(text), "%u", opt->spares);
		spank_setenv(sp, PLUG_ENV_SPARES, text, 1);
	}
}

/*
 * Slurm's PMIx plugin takes a rank's node as a position among the step's nodes, and sends the
 * question for its data to the node at that position among the job's (22.05 to 26.05: pmixp_dmdx.c,
 * pmixp_nspace_resolve; pmixp_server.c, pmixp_info_job_host). In a step on some of the nodes such
 * a PMIx_Get waits in vain. It reads the job's list once, before the tasks start: until then it is
 * the step's.
 */
static void pmix_nodes(spank_t sp)
{
	static char job[PLUG_HOSTLIST_MAX], part[PLUG_HOSTLIST_MAX];

	if (!job_env(sp, "SLURM_JOB_NODELIST", job, sizeof(job)) ||
		!job_env(sp, "SLURM_STEP_NODELIST", part, sizeof(part)) || strcmp(job, part) == 0)
		return;
	step.nodelist = job;
	spank_setenv(sp, "SLURM_JOB_NODELIST", part, 1);
}

/* The step's nodes and their tasks; the caller frees it. NULL: Slurm does not tell, or no memory. */
static char *step_nodes(spank_t sp)
{
	static char list[PLUG_HOSTLIST_MAX], tasks[PLUG_HOSTLIST_MAX];
	char *names = NULL, *joined = NULL;
	struct plug_error err;

	if (job_env(sp, "SLURM_STEP_NODELIST", list, sizeof(list)))
		plug_hostlist_expand(list, &names, &err);
	if (names)
		joined = plug_layout_join(names, job_env(sp, PLUG_ENV_TASKS, tasks, sizeof(tasks)));
	free(names);
	return joined;
}

/* All nodes of the step see the same here, so they decide the same. */
static int spares_check(spank_t sp, const struct plug_option *opt, struct plug_error *err)
{
	static char tasks[PLUG_HOSTLIST_MAX];
	char how[64];

	return plug_layout_spares(opt->spares, job_env(sp, PLUG_ENV_TASKS, tasks, sizeof(tasks)),
		job_env(sp, "SLURM_DISTRIBUTION", how, sizeof(how)), err);
}

/* Why this step does without rcshare: kept for the user, who can not be told yet. */
static void step_without(spank_t sp, const struct plug_option *opt, const struct plug_error *err)
{
	uint32_t node = 0, nodes = 0;
	char host[256];
	const char *form = "rcshare: %s: not used: %s; the job runs on its native path";
	bool alike = step.refused && opt->spares; /* all nodes refuse alike, the first one says so */

	/* with spares there is no native path that would make sense */
	if (step.refused || opt->spares)
		form = "rcshare: %s: step refused: %s";
	else if (opt->mode == PLUG_REQUIRE)
		form = "rcshare: %s: step refused, as --rcshare=require asks: %s";
	snprintf(step.message, sizeof(step.message), form, node_name(host, sizeof(host)), err->text);
	slurm_error("%s", step.message);
	spank_get_item(sp, S_JOB_NODEID, &node);
	spank_get_item(sp, S_JOB_NNODES, &nodes);
	step.refused |= opt->mode == PLUG_REQUIRE || opt->spares;
	/* What is wrong on a thousand nodes is told once, and in the log of each. */
	if (node && (alike || (!step.refused && nodes > TOLD_NODES)))
		*step.message = '\0';
}

static void tell_user(const char *sentence)
{
	slurm_spank_log("rcshare: %s", sentence);
}

/* How long another node's slurmstepd and daemon may take longer than this one's. */
static int before_ms(void)
{
	return 2 * conf.timeout_ms + 5000;
}

/* A node without the plugin cannot say so: the one behind it in the ring misses its daemon. */
static void find_before(spank_t sp)
{
	static char list[PLUG_HOSTLIST_MAX];
	char *names = NULL, host[256], *end;
	struct plug_error err;
	int at, n = -1;

	if (job_env(sp, "SLURM_STEP_NODELIST", list, sizeof(list)))
		n = plug_hostlist_expand(list, &names, &err);
	at = n > 1 ? plug_hostlist_find(names, node_name(host, sizeof(host))) : -1;
	if (at >= 0) {
		end = names;
		for (int i = at ? at - 1 : n - 1; i > 0; i--)
			end = strchr(end, ',') + 1;
		end[strcspn(end, ",")] = '\0';
		snprintf(step.before, sizeof(step.before), "%s", end);
	}
	free(names);
}

/* Refuses a step of which a node has no daemon, naming that node. */
static void await_before(void)
{
	char host[256], why[256] = "";

	if (!step.uses || !step.together || !*step.before ||
		notify_await(step.before, before_ms(), why, sizeof(why)))
		return;
	step.refused = true;
	snprintf(step.message, sizeof(step.message),
		"rcshare: %s: step refused: no rcshare daemon of this job answers on %s (%s): look for rcshare's line in "
		"plugstack.conf there, at slurmd's log of that node, and whether the control ports are open",
		node_name(host, sizeof(host)), step.before, *why ? why : "nothing was noticed");
	slurm_error("%s", step.message);
}

static void step_notify(spank_t sp, const struct plug_option *opt, uint32_t stepid)
{
	struct notify_step s = {.job = step.job, .step = stepid, .log = log_sentence,
		.tell = tell_user};
	char path[PLUG_PATH_MAX + 64], *nodes = step_nodes(sp);
	int rc;

	snprintf(path, sizeof(path), "%s/%u.%u/sock", conf.run_dir, step.job, step.restart);
	s.nodes = nodes;
	s.spares = opt->spares;
	s.mark_down = conf.mark_down;
	s.witness = conf.witness;
	find_before(sp);
	step.together = opt->mode == PLUG_REQUIRE || opt->spares;
	/* a node that was cut off ends its ranks: with spares the step goes on without them */
	s.keep = opt->keep_step >= 0 ? opt->keep_step : conf.keep_step || opt->spares;
	rc = notify_start(path, &s);
	free(nodes);
	if (rc)
		slurm_error("rcshare: no PMIx events for this step: %s", strerror(-rc));
}

/* plugstack.conf's default is for steps that have somebody to share with, and that Slurm can run so. */
static bool by_default(spank_t sp, const char *env)
{
	uint32_t nodes = 0;
	char number[32];

	if (cli.given || (env && *env))
		return true;
	return spank_get_item(sp, S_JOB_NNODES, &nodes) == ESPANK_SUCCESS && nodes >= conf.min_nodes &&
	       !job_env(sp, "SLURM_HET_SIZE", number, sizeof(number));
}

/* Starts the daemon, or finds it. */
static int step_daemon(
	spank_t sp, const struct plug_option *opt, struct plug_job *job, struct plug_error *err)
{
	int rc = plug_site_load(&conf, err);

	if (rc)
		return rc;
	step.refused = spares_check(sp, opt, err) != 0;
	rc = step.refused ? -EINVAL : step_start(sp, opt, job, err);
	step.uses = rc == 0;
	return rc;
}

static void step_begin(spank_t sp)
{
	char value[PLUG_PATH_MAX], number[32];
	struct plug_option opt = PLUG_OPTION_INIT;
	struct plug_job job = {.id = 0};
	struct plug_error err = {""};
	const char *env;
	uint32_t stepid = 0;
	int rc;

	spank_get_item(sp, S_JOB_STEPID, &stepid);
	if (stepid == EXTERN_STEP || spank_get_item(sp, S_JOB_ID, &step.job))
		return;
	env = job_env(sp, PLUG_ENV_DEFAULT, value, sizeof(value));
	rc = choose(env, &opt, &err);
	if (rc) {
		/* Was not there, or good, when the job was submitted. */
		opt.mode = PLUG_ON;
	} else if (opt.mode != PLUG_OFF && !by_default(sp, env)) {
		opt.mode = PLUG_OFF;
	} else if (opt.mode != PLUG_OFF && job_env(sp, "SLURM_HET_SIZE", number, sizeof(number))) {
		rc = plug_error_set(&err, -ENOTSUP, HET);
		step.refused = true;
	} else if (opt.mode != PLUG_OFF) {
		spank_get_item(sp, S_SLURM_RESTART_COUNT, &step.restart);
		if (!step.restart && job_env(sp, "SLURM_RESTART_COUNT", number, sizeof(number)))
			step.restart = (uint32_t)strtoul(number, NULL, 10);
		rc = step_job(sp, &job, &err);
		job.restart = step.restart = plug_launch_restart(&conf, &job);
		if (!rc)
			rc = step_daemon(sp, &opt, &job, &err);
	}
	step_env(sp, &opt, stepid);
	if (rc)
		step_without(sp, &opt, &err);
	if (step.uses) {
		step_notify(sp, &opt, stepid);
		pmix_nodes(sp);
	}
}

static void conf_take(int ac, char **av)
{
	struct plug_error err;
	char host[256];

	if (plug_conf_parse(ac, av, &conf, &err))
		slurm_error("rcshare: %s", err.text);
	plug_conf_node(&conf, node_name(host, sizeof(host)));
}

/* --- the callbacks -----------------------------------------------------------------------------
 */

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	conf_take(ac, av);
	spank_option_register(sp, &option);
	return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		check_submission();
		break;
	case S_CTX_REMOTE:
		step_begin(sp);
		break;
	default:
		break;
	}
	return 0;
}

/* The first callback whose output reaches the user. */
int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	(void)sp;
	(void)ac;
	(void)av;
	await_before();
	if (*step.message)
		slurm_spank_log("%s", step.message);
	return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (step.nodelist)
		spank_setenv(sp, "SLURM_JOB_NODELIST", step.nodelist, 1);
	if (step.refused)
		_exit(1);
	return 0;
}

int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	static uint32_t forked;
	uint32_t tasks = 0;

	(void)ac;
	(void)av;
	if (!step.uses)
		return 0;
	/* Only now has slurmstepd made the job's folders of all controllers. */
	if (!step.placed)
		plug_launch_place(&conf, step.job, step.restart);
	step.placed = true;
	if (spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &tasks) == ESPANK_SUCCESS &&
		++forked == tasks)
		notify_tasks_forked();
	return 0;
}

/* The last callback whose output reaches the user. */
int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
	static uint32_t ended;
	struct notify_summary sum;
	uint32_t tasks = 0, node = 0;
	char host[256];

	(void)ac;
	(void)av;
	if (!step.uses || spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &tasks) || ++ended != tasks ||
		spank_get_item(sp, S_JOB_NODEID, &node) || !notify_step_end(&sum))
		return 0;
	/* only that node knows; of failovers the first one speaks for all */
	if (*sum.rails)
		slurm_spank_log("rcshare: %s", sum.rails);
	if (node)
		return 0;
	if (*sum.left_out)
		slurm_spank_log("rcshare: left out: %s", sum.left_out);
	if (sum.failovers)
		slurm_spank_log("rcshare: %u failover%s in this job on %s, %llu ms longest blackout%s%s",
			sum.failovers, sum.failovers == 1 ? "" : "s", node_name(host, sizeof(host)),
			(unsigned long long)(sum.blackout_max_ns + 500000) / 1000000,
			*sum.log ? "; see " : "", sum.log);
	return 0;
}

int slurm_spank_exit(spank_t sp, int ac, char **av)
{
	(void)sp;
	(void)ac;
	(void)av;
	if (spank_context() == S_CTX_REMOTE)
		notify_stop();
	return 0;
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	struct plug_error err;
	uint32_t job;

	conf_take(ac, av);
	if (plug_site_load(&conf, &err)) /* only log_dir matters here */
		slurm_error("rcshare: epilog: %s", err.text);
	if (spank_get_item(sp, S_JOB_ID, &job) == ESPANK_SUCCESS)
		plug_launch_stop(&conf, job);
	return 0;
}
