#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# One-sided requests over TCP lanes. rcs_rma checks every byte, order and counter itself.

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

rma() { srun --rcshare=on --mpi=pmix -N3 -n6 "$(bed_app rcs_rma)" "$@"; }
whole=' 0 lost, 0 doubled, 0 damaged, 0 wrong'

@test "puts, gets, atomics and messages between all ranks execute once and in order" {
	run rma --seconds 2 --max 256k
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$whole"* ]]
}

@test "with the library's own thread beside the rank's, of each kind alone" {
	for kind in put get atomic message mixed; do
		run rma --seconds 0.5 --helper --kind $kind
		echo "$output"
		[ "$status" -eq 0 ]
		[[ $output == *"$whole"* ]]
	done
}

@test "requests that must fail do so as documented, and disturb no others" {
	run rma --seconds 2 --errors --region
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"errors: "*"$whole"* ]]
}

@test "ranks whose memory nobody else may touch serve and make requests as others do" {
	for shut in 2 '1 --helper' 1; do
		# shellcheck disable=SC2086
		run rma --seconds 2 --max 256k --errors --shut $shut
		echo "$output"
		[ "$status" -eq 0 ]
		[[ $output == *"errors: "*"$whole"* ]]
	done
}

@test "a cable that is out for a while delays one-sided requests, and doubles none" {
	rma --seconds 6 --errors >"$BED_DIR/home/out" 2>&1 &
	local job=$!
	eventually grep -q round "$BED_DIR/home/out"
	"$bed" cut b1
	eventually has_carrier b1 0
	"$bed" restore b1
	wait $job
	cat "$BED_DIR/home/out"
	grep -q "$whole" "$BED_DIR/home/out"
}
