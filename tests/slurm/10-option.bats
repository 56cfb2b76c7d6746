#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# --rcshare at submit time: what is accepted, what is refused and with which words, and that the
# value gets through from srun, sbatch, salloc, #SBATCH and the environment. The daemon is a fake
# that keeps the contract (spank/README.md).

load helpers

setup_file() {
	need_plugin
	bed_up -n 2 --plugin "$(plugin_line daemon="$here/fake-rcshared")"
}

teardown_file() {
	bed_down
}

teardown() {
	eventually nothing_left
}

@test "srun, sbatch and salloc show the option in their help" {
	for c in srun sbatch salloc; do
		run "$bed" run -- $c --help
		[[ $output == *"--rcshare=on|off|require[,key=value...]"*"[rcshare]"* ]]
	done
}

@test "a bad value is refused at submit time, naming the valid ones" {
	run srun --rcshare=maybe true
	[ "$status" -ne 0 ]
	[[ $output == *"rcshare: --rcshare=maybe: unknown value 'maybe': give on|off|require"* ]]
	run "$bed" run -- sbatch --rcshare=on,rail=2 --wrap true
	[ "$status" -ne 0 ]
	[[ $output == *"unknown key 'rail'; keys are rails=1..4"* ]]
	run "$bed" run -- salloc --rcshare=on,spares=one true
	[ "$status" -ne 0 ]
	[[ $output == *"spares=one: give a number of nodes"* ]]
	run "$bed" run -- squeue -h
	[ -z "$output" ]
}

@test "a bad RCSHARE variable is refused at submit time" {
	RCSHARE=yes run srun true
	[ "$status" -ne 0 ]
	[[ $output == *"the variable RCSHARE=yes: unknown value 'yes'"* ]]
}

@test "an unknown RCSHARE_ variable draws a warning, and only where rcshare is used" {
	RCSHARE_SOKET=x run srun --rcshare=on hostname
	[ "$status" -eq 0 ]
	[[ $output == *"warning: the variable RCSHARE_SOKET is not known"* ]]
	RCSHARE_SOKET=x run srun hostname
	[[ $output == b? ]]
	RCSHARE_LOG_LEVEL=debug RCSHARE_EAGER=1 run srun --rcshare=on hostname
	[[ $output == b? ]]
}

vars='env | grep ^RCSHARE | sort'

@test "without the option nothing happens" {
	run srun -N2 sh -c "$vars; ls -A /run/rcshare 2>/dev/null; true"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "srun: tasks get socket and step, and the keys reach the daemon" {
	run srun -N1 -w b0 --rcshare=on,rails=2,eager=1,log=/tmp/x sh -c "$vars; echo \$SLURM_JOB_ID"
	[ "$status" -eq 0 ]
	job=${lines[-1]}
	[ "${lines[0]}" = RCSHARE_EAGER=1 ]
	[ "${lines[1]}" = "RCSHARE_SOCKET=/run/rcshare/$job.0/sock" ]
	[ "${lines[2]}" = RCSHARE_STEP=0 ]
	seen=$BED_DIR/home/seen.b0.$job.0
	grep -qx 'arg --rails 2' "$seen"
	grep -qx 'arg --eager 1' "$seen"
	grep -qx 'arg --log /tmp/x' "$seen"
}

@test "RCSHARE gives the default, the option overrides it" {
	RCSHARE=on run srun sh -c "$vars"
	[[ $output == *RCSHARE_SOCKET=* ]]
	RCSHARE=on run srun --rcshare=off sh -c "$vars"
	[ "$output" = RCSHARE=on ]
}

@test "sbatch and #SBATCH: the script and its steps have it" {
	run batch -N2 <<-'END'
		#SBATCH --rcshare=on
		env | grep ^RCSHARE_STEP
		srun -N2 sh -c 'echo "$(hostname) $RCSHARE_STEP $RCSHARE_SOCKET"'
	END
	[ "$status" -eq 0 ]
	[[ $output == *RCSHARE_STEP=4294967291* ]]
	[[ $output == *"b0 0 /run/rcshare/"* && $output == *"b1 0 /run/rcshare/"* ]]
	run batch --rcshare=on <<-'END'
		srun sh -c 'echo "step $RCSHARE_STEP"'
	END
	[ "$output" = "step 0" ]
}

@test "a step can leave what its job has" {
	run batch --rcshare=on <<-'END'
		srun --rcshare=off sh -c 'env | grep ^RCSHARE || echo none'
	END
	[ "$output" = none ]
}

@test "salloc's value reaches inner steps" {
	run "$bed" run -- salloc -Q --rcshare=on srun sh -c 'echo "step $RCSHARE_STEP"'
	[[ $output == *"step 0"* ]]
}
