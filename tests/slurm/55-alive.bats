#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What keeps a job alive under Slurm: what its user must give, what the plugin does by itself, and
# what is refused.

load helpers

setup_file() {
	need_plugin
	for f in "$daemon" "$apps/rcs_survive" "$apps/pmix_hello"; do
		[[ -x $f ]] || skip "$f is not built: run make all apps"
	done
	bed_up -n 3 --plugin "$(plugin_line daemon="$daemon" config=/run/bed/home/rcshare.conf)"
}

teardown_file() {
	bed_down
}

setup() {
	out=$BED_DIR/home/out until=$BED_DIR/home/until
	rm -f "$out" "$until"
	: >"$out"
	site '{"node_timeout_ms": 20000}'
}

teardown() {
	touch "$until"
	"$bed" wait b1 idle >/dev/null 2>&1 || "$bed" start b1
	BED_WAIT=60 eventually nothing_left
}

also='rcshare: this step does not survive the loss of a node without:'

alone() { # COMMAND: run it when all nodes are idle, or srun tells that it waits for them
	eventually idle
	case $1 in
	srun | batch) run "$@" ;;
	*) run "$bed" run -- "$@" ;;
	esac
}

@test "what a step lacks to outlive a node is said in one line, and only to who asks for it" {
	alone srun --no-kill --rcshare=on true
	[ "$status" -eq 0 ]
	[ "$output" = "$also srun -K0" ]
	alone srun -N3 --rcshare=on,spares=1 true
	[ "$output" = "$also srun --no-kill, srun -K0" ]
	alone srun --rcshare=on -K0 --no-kill true
	[ -z "$output" ]
	alone srun --rcshare=on sh -c true --no-kill
	[ -z "$output" ]
	alone srun --no-kill true
	[ -z "$output" ]
	alone env SLURM_NO_KILL= SLURM_KILL_BAD_EXIT=0 srun --rcshare=on true
	[ -z "$output" ]
}

@test "--no-kill of an allocation is known where salloc or sbatch had it as an option" {
	alone salloc -Q --no-kill --rcshare=on srun --no-kill -K0 true
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	alone salloc -Q srun --rcshare=on --no-kill -K0 true
	[ "$output" = "$also --no-kill of the allocation (not seen here)" ]
	alone batch --no-kill <<<'srun --rcshare=on --no-kill -K0 true'
	[ -z "$output" ]
	alone batch <<-'END'
		#SBATCH --no-kill
		srun --rcshare=on --no-kill -K0 true
	END
	[ "$output" = "$also --no-kill of the allocation (not seen here)" ]
}

timeout_of() { # SRUN OPTIONS: what its tasks, and so its PMIx server, have
	srun "$@" sh -c 'echo ${SLURM_PMIX_TIMEOUT:-none}'
}

@test "PMIx collectives of a step that is to outlive a node wait a minute, or what the user says" {
	[ "$(timeout_of --no-kill -K0 --rcshare=on)" = 60 ]
	[ "$(SLURM_PMIX_TIMEOUT=7 timeout_of --no-kill -K0 --rcshare=on)" = 7 ]
	[ "$(timeout_of --rcshare=on)" = none ]
	[ "$(timeout_of --no-kill)" = none ]
}

@test "a fence after the loss of a node ends with that time" {
	# over the direct connections, which the bed has switched off
	SLURM_PMIX_DIRECT_CONN=true SLURM_PMIX_TIMEOUT=3 srun --no-kill -K0 -N3 -n3 --rcshare=on --mpi=pmix "$(bed_app pmix_hello)" \
		fence "$until" >"$out" 2>&1 3>&- &
	eventually said 3 'hosts b0,b1,b2$'
	"$bed" kill b1
	touch "$until"
	eventually said 2 '^rank [02] fence TIMEOUT$'
	wait $! || :
	"$bed" start b1
}

# survive SRUN OPTIONS: six ranks on three nodes run
survive() {
	: >"$out"
	srun --no-kill -K0 -N3 --ntasks-per-node=2 --mpi=pmix "$@" "$(bed_app rcs_survive)" --ranks --max 512 \
		--until "$until" >"$out" 2>&1 3>&- &
	pid=$!
	eventually said 6 'running$'
}

kill_rank() {
	on_node b1 sh -c 'kill -9 $(pgrep -n rcs_survive)'
}

noticed() { # PMIx tells slurmstepd a second later
	grep -q 'rank [23] has died; keep_step' "$BED_DIR/log/b1.slurmd.log"
}

went_on() {
	: >"$BED_DIR/log/b1.slurmd.log"
	kill_rank
	eventually noticed
	srun -N3 true		# what slurmstepd then asked of Slurm is done
	eventually said 5 ': after 200$'
	touch "$until"
	code=0
	wait $pid || code=$?
	cat "$out"
	said 5 ' messages, 1 ranks lost, 0 wrong$'
	said 5 ': event rank [23] lost$'
	[ "$code" -eq 137 ]		# the exit code of the one that was killed
}

@test "a rank that dies ends its step" {
	survive --rcshare=on
	kill_rank
	wait $pid || code=$?
	cat "$out"
	[ "$code" -eq 137 ]
	not grep -q ' messages, ' "$out"
}

@test "keep_step=1: a rank that dies is told to the others, and they go on" {
	survive --rcshare=on,keep_step=1
	went_on
}

@test "keep_step of rcshare.conf does the same, and the user's has precedence" {
	site '{"node_timeout_ms": 20000, "keep_step": "on"}'
	survive --rcshare=on
	went_on
	rm "$until"
	survive --rcshare=on,keep_step=0
	kill_rank
	wait $pid || :
	not grep -q ' messages, ' "$out"
}

@test "an exit code of a rank reaches srun" {
	run srun -N3 -n3 --rcshare=on,keep_step=1 --mpi=pmix sh -c 'exit $((SLURM_PROCID == 2 ? 7 : 0))'
	[ "$status" -eq 7 ]
}

het_bed() { # heterogeneous jobs need the backfill scheduler
	"$bed" up --quiet -n 2 --plugin "$(plugin_line daemon="$daemon" "$@")" \
		--conf SchedulerType=sched/backfill --conf SchedulerParameters=bf_interval=1
}

het_cases() {
	srun --rcshare=on echo ran : echo ran || echo "het srun: $?"
	RCSHARE=on srun echo ran : echo ran || echo "variable: $?"
	"$bed" run -- sbatch --rcshare=on -n1 : -n1 --wrap true || echo "sbatch: $?"
	"$bed" run -- salloc -Q -n1 : -n1 srun --rcshare=require echo ran || echo "inside: $?"
	"$bed" run -- salloc -Q -n1 : -n1 srun echo native
	"$bed" run -- salloc -Q -n1 : -n1 srun --rcshare=off echo native
	printf '%s\n' '#!/bin/sh' '#SBATCH -n1' '#SBATCH hetjob' '#SBATCH -n1' 'echo ran' >"$other/home/het"
	"$bed" run -- sbatch --rcshare=on -o "$other/home/script" "$other/home/het"
	eventually test -s "$other/home/script"
	eventually idle
	cat "$other/home/script"
	"$bed" plugin "$(plugin_line daemon="$daemon" default=on)"
	"$bed" run -- salloc -Q -n1 : -n1 srun echo default
}

@test "heterogeneous jobs are refused with a sentence; a default leaves them alone" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	(
		export BED_DIR=$other
		het_bed && het_cases
	) >"$out" 2>&1 3>&- || :
	BED_DIR=$other "$bed" down
	cat "$out"
	not grep -q '^ran' "$out"
	said 5 'rcshare: .*heterogeneous jobs are not supported .*: give --rcshare=off$'
	for line in 'het srun: 1' 'variable: 1' 'sbatch: 1' 'inside: 1'; do
		grep -qx "$line" "$out"
	done
	said 2 '^native$'
	said 1 '^default$'
	said 0 'not used' # nobody has asked for it
}
