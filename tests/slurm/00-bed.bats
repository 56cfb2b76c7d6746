#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The bed itself: what the other files rely on.

load helpers

setup_file() {
	bed_up -n 3
}

teardown_file() {
	bed_down
}

teardown() {
	"$bed" restore b1
	"$bed" undrop b1
}

@test "a step runs on three nodes as an ordinary user" {
	run srun -N3 -l sh -c 'echo "$(hostname) $(id -un)"'
	[ "$status" -eq 0 ]
	[ "$(sort <<<"$output")" = $'0: b0 bed\n1: b1 bed\n2: b2 bed' ]
}

@test "a step runs as root when asked" {
	BED_USER=root run srun -N1 id -u
	[ "$output" = 0 ]
}

@test "PMIx put, collecting fence and get cross nodes" {
	app=$(bed_app pmix_hello)
	run srun -N3 -n6 --ntasks-per-node=2 --mpi=pmix "$app"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'size 6 host b. hosts b0,b0,b1,b1,b2,b2$' <<<"$output")" -eq 6 ]
}

@test "nodes have /run, /dev/shm and process ids of their own" {
	"$bed" run -u root --on b0 -- touch /run/mine /dev/shm/mine
	run "$bed" run -u root --on b1 -- ls /run/mine /dev/shm/mine
	[ "$status" -ne 0 ]
	run "$bed" run --on b1 -- ps -e -o args=
	[[ $output == *"slurmd -N b1"* && $output != *"slurmd -N b0"* ]]
}

@test "a cut cable separates two nodes, restore joins them" {
	reaches b0 b1
	"$bed" cut b1
	not reaches b0 b1
	eventually has_carrier b1 0
	"$bed" restore b1
	eventually reaches b0 b1
}

@test "drop loses packets one way without a carrier loss" {
	for way in in out; do
		"$bed" drop b1 $way
		not reaches b0 b1
		has_carrier b1 1
		"$bed" undrop b1
		eventually reaches b0 b1
	done
}

@test "a slurmd can be restarted under a running step" {
	mark=$BED_DIR/home/go
	srun -N2 -w b0,b1 sh -c "touch $mark.\$SLURM_PROCID; until [ -e $mark ]; do sleep 0.05; done; hostname" \
		>"$BED_DIR/home/out" 3>&- &
	step=$!
	eventually test -e "$mark.1"
	"$bed" restart-slurmd b1
	touch "$mark"
	wait $step
	[ "$(sort "$BED_DIR/home/out")" = $'b0\nb1' ]
}

@test "a killed node goes down for Slurm and comes back" {
	"$bed" kill b2
	not reaches b0 b2
	run "$bed" run --on b2 -- true
	[ "$status" -ne 0 ]
	"$bed" start b2
	eventually reaches b0 b2
	run srun -N3 hostname
	[ "$(sort <<<"$output")" = $'b0\nb1\nb2' ]
}

@test "two beds live side by side, and down leaves nothing of one" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	BED_DIR=$other "$bed" up --quiet -n 1
	BED_DIR=$other run srun -N1 hostname
	[ "$output" = b0 ]
	run env BED_DIR="$other" "$bed" leftovers
	[ "$status" -eq 1 ]
	BED_DIR=$other "$bed" down
	[ ! -e "$other" ]
	BED_DIR=$other run "$bed" leftovers
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	run srun -N3 true
	[ "$status" -eq 0 ]
}

@test "a run refuses to start beside its own leftovers" {
	run "$bed" up
	[ "$status" -ne 0 ]
	[[ $output == *"a bed is still in $BED_DIR"* ]]
}

@test "with ends the bed when its command fails, is interrupted, or it is killed itself" {
	other=$root/build/bed/w$BATS_ROOT_PID
	run env BED_DIR="$other" "$bed" with -n 1 -- false
	[ "$status" -eq 1 ]
	for sig in INT TERM KILL; do
		BED_DIR=$other "$bed" with -n 1 -- sh -c "kill -$sig \$PPID; sleep 20" 3>&- &
		run wait $!
		bed_gone() { BED_DIR=$other "$bed" leftovers >/dev/null && [[ ! -e $other ]]; }
		eventually bed_gone
	done
}

@test "with real cgroups, steps live in cgroups of their node" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	BED_DIR=$other run "$bed" up --quiet -n 2 --cgroups
	if [[ $status != 0 ]]; then
		BED_DIR=$other "$bed" down
		skip "no cgroups here: $output"
	fi
	BED_DIR=$other run srun -N2 cat /proc/self/cgroup
	BED_DIR=$other "$bed" down
	[[ $output == *b0/*job_1/step_0* && $output == *b1/*job_1/step_0* ]]
	run find /sys/fs/cgroup -name "bed-*" -newer "$BED_DIR/nodes"
	[ -z "$output" ]
}
