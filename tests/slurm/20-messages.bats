#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The whole of it without RDMA: plugin, daemons, library and PMIx over TCP lanes. The programs check
# every byte and every number themselves.

load helpers

setup_file() {
	need_plugin
	bed_up -n 3 --plugin "$(plugin_line daemon="$daemon")"
}

teardown_file() {
	bed_down
}

teardown() {
	BED_WAIT=30 eventually nothing_left
}

rcs() { srun --rcshare=on --mpi=pmix "$@"; }
whole=' 0 lost, 0 duplicated, 0 damaged'

@test "messages of 8 B to 1 MiB between all ranks of three nodes arrive once and whole" {
	run rcs -N3 --ntasks-per-node=4 "$(bed_app rcs_alltoall)" --seconds 2
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$whole"* ]]
}

@test "eager mode opens the lanes before the first message" {
	run rcs -N3 --ntasks-per-node=2 "$(bed_app rcs_alltoall)" --seconds 1 --eager
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$whole"* ]]
}

@test "with the library's own thread beside the rank's" {
	run rcs -N2 --ntasks-per-node=2 "$(bed_app rcs_alltoall)" --seconds 1 --helper
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$whole"* ]]
}

@test "wildcards, probe, cancel, inject, data, truncation, delivery, counters, fd" {
	run rcs -N2 -n2 "$(bed_app rcs_tags)"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"all ok"* ]]
}

@test "who waits for an endpoint that is closed in good order is told, behind all that it has sent" {
	local where
	for where in "-N1 -n4" "-N3 -n6"; do
		run rcs $where "$(bed_app rcs_leave)" senders
		echo "$output"
		[ "$status" -eq 0 ]
		[[ $output == *", 0 wrong" ]]
		run rcs $where "$(bed_app rcs_leave)" receiver
		echo "$output"
		[ "$status" -eq 0 ]
		[ "$(grep -c ', 0 wrong$' <<<"$output")" -eq "$((${where##*-n} - 1))" ]
		! grep -q ' 0 requests told so' <<<"$output"
	done
}

@test "memory that is freed, mapped again or forked between two sends" {
	run rcs -N2 -n2 "$(bed_app rcs_mem)"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"all ok"* ]]
}

@test "two steps of a job at once do not meet" {
	run batch -N3 --ntasks-per-node=4 -O <<-E
		srun --overlap --rcshare=on --mpi=pmix -N3 -n3 $(bed_app rcs_alltoall) --seconds 2 &
		srun --overlap --rcshare=on --mpi=pmix -N3 -n6 $(bed_app rcs_alltoall) --seconds 2 &
		wait
	E
	echo "$output"
	[ "$(grep -c "$whole" <<<"$output")" -eq 2 ]
}

@test "a stranger's bytes on the control port disturb nobody" {
	srun --rcshare=on --mpi=pmix -N2 -w b0,b1 -n4 "$(bed_app rcs_alltoall)" --seconds 6 \
		>"$BED_DIR/home/out" 2>&1 &
	local job=$! port
	eventually grep -q round "$BED_DIR/home/out"
	port=$(on_node b0 sh -c 'ss -Hltnp | sed -n "s/.*:\([0-9]*\) .*rcshared.*/\1/p" | head -n 1')
	[ -n "$port" ]
	on_node b1 bash -c "head -c 4096 /dev/urandom >/dev/tcp/b0/$port" || true
	wait $job
	grep -q "$whole" "$BED_DIR/home/out"
}

@test "a cable that is out for a while delays messages, and loses none" {
	srun --rcshare=on --mpi=pmix -N2 -w b0,b1 -n2 "$(bed_app rcs_alltoall)" --seconds 6 \
		>"$BED_DIR/home/out" 2>&1 &
	local job=$!
	eventually grep -q round "$BED_DIR/home/out"
	"$bed" cut b1
	eventually has_carrier b1 0
	"$bed" restore b1
	wait $job
	cat "$BED_DIR/home/out"
	grep -q "$whole" "$BED_DIR/home/out"
}

@test "a daemon that was started from outside the job, with too few nodes, refuses a wider step" {
	run "$bed" run -- salloc -N3 --no-shell
	job=${output##*allocation }
	srun --jobid="$job" --rcshare=on -N1 -n1 -w b1 true
	run srun --jobid="$job" --rcshare=require -N3 -n3 true
	"$bed" run -- scancel "$job"
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"b1: step refused"*"for the nodes b1, and cannot serve a step on b[0-2]: run the first step that uses rcshare on all nodes"* ]]
}

@test "where rcshare is the site's default, a first step on some nodes spoils no later one" {
	"$bed" plugin "$(plugin_line daemon="$daemon" default=on)"
	run batch -N3 --ntasks-per-node=1 <<-E
		srun -N1 -n1 -w b1 true
		srun --export=NONE --mpi=pmix -N3 -n3 /usr/bin/env LSAN_OPTIONS="$LSAN_OPTIONS" $(bed_app rcs_alltoall) --seconds 1
	E
	"$bed" plugin "$(plugin_line daemon="$daemon")"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$whole"* ]]
}
