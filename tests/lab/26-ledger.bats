#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Puts whose acknowledgement is lost on purpose: they have run, and must not run again. rcs_once sees a
# second run as a number that comes again.

load helper

app=/opt/rcshare/apps/rcs_once

start() { # ARG...
	lab run ctl -- rm -f /tmp/once
	in_background ctl /tmp/once srun --rcshare=require --mpi=pmix -N2 -w n0,n1 --ntasks-per-node=1 $app "$@"
	eventually 90 lab run ctl -- grep -q round /tmp/once
	id=$(lab run ctl -- squeue -h -o %i | tail -n 1)
}

finish() {
	lab run ctl -u lab -- scancel -s USR1 "$id"
	eventually 90 lab run ctl -- grep -q '^once:' /tmp/once
	lab run ctl -- cat /tmp/once
	eventually 30 none_left
}

none_left() {
	local n
	for n in n0 n1; do
		lab run $n -- sh -c '! pgrep -x rcshared && ! ls -d /run/rcshare/*.0' >/dev/null 2>&1 || return 1
	done
}

rounds() { lab run ctl -- grep -c '^round' /tmp/once; }
more_rounds() { (($(rounds) > $1)); }

records() { lab run n0 -- sh -c "cat /var/log/rcshare/$id/*.jsonl 2>/dev/null"; }
has() { records | jq -se "any($1)" >/dev/null; }

teardown() {
	lab undrop n0 0
	lab restore n0 0
}

@test "a put that ran twice is seen by the program" {
	start --kind twice --seconds 3
	finish
	! lab run ctl -- grep -q ' 0 doubled' /tmp/once
	lab run ctl -- grep -q ' 0 lost, .* 0 wrong' /tmp/once
}

@test "puts whose acknowledgement was lost are completed by the ledger and do not run again" {
	local before
	start --seconds 600
	lab drop n0 0 in # what n1 answers is lost, what n0 writes arrives
	lab cut n0 0
	eventually 30 has '.event == "ledger" and .lane == 0 and .known and .puts_by_ledger > 0'
	before=$(rounds)
	eventually 30 more_rounds "$before"
	lab undrop n0 0
	lab restore n0 0
	eventually 60 has '.event == "lane_back" and .lane == 0'
	records
	finish
	lab run ctl -- grep -q ' 0 lost, 0 doubled, 0 wrong' /tmp/once
}

@test "the same when nobody notices but by silence" {
	local before
	start --seconds 600
	lab drop n0 0 in
	eventually 60 has '.event == "ledger" and .lane == 0 and .known and .puts_by_ledger > 0'
	before=$(rounds)
	eventually 30 more_rounds "$before"
	lab undrop n0 0
	eventually 60 has '.event == "lane_back" and .lane == 0'
	records
	finish
	lab run ctl -- grep -q ' 0 lost, 0 doubled, 0 wrong' /tmp/once
}
