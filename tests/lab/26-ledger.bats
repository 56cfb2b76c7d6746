#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Puts whose acknowledgement is lost on purpose: they have run, and must not run again. rcs_once sees a
# second run as a number that comes again.

load helper

app=/opt/rcshare/apps/rcs_once

# ARG...: running when this returns, its first put made when the devices are proven: of one that is not, nobody
# can tell which puts ran, and a lane may fail before on a busy host.
# Slurm's PMIx plugin may refuse a connection (helper.bash, job).
start() {
	local try
	out=$BATS_TEST_TMPDIR/out
	ended_or_ready() { grep -q '^ready' "$out" || ! kill -0 "$srun" 2>/dev/null; }
	for try in 1 2 3; do
		lab run ctl -u lab -t 700 -e SLURM_PMIX_TIMEOUT=20 -- srun --rcshare=require --mpi=pmix -N2 \
			-w n0,n1 --ntasks-per-node=1 $app --hold "$@" >"$out" 2>&1 3>&- &
		srun=$!
		eventually 90 ended_or_ready || break
		! grep -q "$pmix_refused" "$out" || continue
		break
	done
	cat "$out"
	grep -q '^ready' "$out"
	id=$(lab run ctl -- squeue -h -o %i | tail -n 1)
	eventually 150 proven n0 n1
	lab run ctl -u lab -- scancel -s USR2 "$id"
	eventually 30 more_rounds 0
}

finish() {
	ended() { ! kill -0 "$srun" 2>/dev/null; }
	lab run ctl -u lab -- scancel -s USR1 "$id"
	eventually 90 ended
	grep -v '^round' "$out"
	eventually 60 none_left n0 n1
}

rounds() { grep -c '^round' "$out"; }
more_rounds() { (($(rounds) > $1)); }

has() { records n0 | jq -se "any($1)" >/dev/null; }

lane_is() { # failover or lane_back: what was told of lane 0 last
	records n0 | jq -se '[.[] | select(.lane == 0 and (.event == "failover" or .event == "lane_back"))] |
		last.event == "'"$1"'"' >/dev/null
}

goes_on() {
	local before n
	before=$(rounds)
	eventually 30 more_rounds "$before" || {
		tail -n 5 "$out"
		for n in n0 n1; do
			echo "== $n"
			records $n
			lab run $n -- rcshare status "$id" --json || :
		done
		return 1
	}
}

mute() { lab drop n0 0 in; lab cut n0 0; } # what n1 answers is lost, what n0 writes arrives; then nothing
unmute() { lab undrop n0 0; lab restore n0 0; }
drop() { lab drop n0 0 in; }
undrop() { lab undrop n0 0; }
cut() { lab cut n1 0; }
uncut() { lab restore n1 0; }

# Does HARM until CMD holds: it may come when all puts under way have been acknowledged.
until_caught() { # HARM HEAL CMD...
	local harm=$1 heal=$2
	shift 2
	for _ in 1 2 3 4 5 6; do
		$harm
		eventually 30 lane_is failover
		goes_on
		! "$@" || return 0
		$heal
		eventually 60 lane_is lane_back
		goes_on
	done
	echo "never caught a put: $*"
	records n0
	return 1
}

# n1's devices do not tell the truth from the next job on
lying() {
	"$BATS_TEST_DIRNAME/verbs-build" "$BATS_TEST_TMPDIR"
	lab put n1 "$BATS_TEST_TMPDIR/lie.so" /opt/rcshare/lie.so
	lab run n1 -- sh -c "echo $1 >/tmp/lie; echo /opt/rcshare/lie.so >/etc/ld.so.preload"
}

caught() { # on both rails
	[ "$(lab run n1 -- rcshare status "$id" --json | jq -r '.rails[].ledger' | paste -sd ' ')" = 'none none' ]
}

teardown() {
	lab run n1 -- rm -f /etc/ld.so.preload /tmp/lie
	lab undrop n0 0
	lab restore n0 0
	lab restore n1 0
	lab run ctl -- scancel -u lab
}

@test "a put that ran twice is seen by the program" {
	start --kind twice --seconds 600
	eventually 30 more_rounds 5
	finish
	grep -q '^once: .* 0 lost, [1-9][0-9]* doubled, 0 wrong' "$out"
}

@test "puts whose acknowledgement was lost are completed by the ledger and do not run again" {
	start --seconds 600
	until_caught mute unmute has '.event == "ledger" and .lane == 0 and .known and .puts_by_ledger > 0'
	unmute
	eventually 60 lane_is lane_back
	records n0
	finish
	wait "$srun"
	grep -q '^once: [1-9].* 0 lost, 0 doubled, 0 wrong' "$out"
}

@test "the same when nobody notices but by silence" {
	start --seconds 600
	until_caught drop undrop has '.event == "ledger" and .lane == 0 and .known and .puts_by_ledger > 0'
	undrop
	eventually 60 lane_is lane_back
	records n0
	finish
	wait "$srun"
	grep -q '^once: [1-9].* 0 lost, 0 doubled, 0 wrong' "$out"
}

@test "the same where the target's device lies: its ledger word has what executed" {
	lying random
	start --seconds 600
	eventually 60 caught
	goes_on # posted since the source knows
	until_caught mute unmute has '.event == "ledger" and .lane == 0 and .by == "word" and .puts_by_ledger > 0'
	unmute
	eventually 60 lane_is lane_back
	# over the new queue pair, whose word was wanted from the start
	goes_on
	twice() { records n0 | jq -se '[.[] | select(.event == "ledger" and .by == "word" and .puts_by_ledger > 0)] | length > 1' >/dev/null; }
	until_caught mute unmute twice
	records n0
	finish
	wait "$srun"
	grep -q '^once: [1-9].* 0 lost, 0 doubled, 0 wrong' "$out"
	lab run n1 -- sh -c "cat /var/log/rcshare/$id/*.jsonl" |
		jq -se '[.[] | select(.event == "selftest" and .ledger == "none")] | length == 2' >/dev/null
}

# Where the word does not reach they run again: with RCS_PUT_REPLAY that is allowed.
@test "a cut cable under puts of all sizes, where the target's device lies" {
	local app=/opt/rcshare/apps/rcs_rma
	lying ahead
	start --kind put --region --replay --seconds 600
	eventually 60 caught
	goes_on
	until_caught cut uncut has '.event == "ledger" and .lane == 0 and .by == "word"'
	uncut
	eventually 60 lane_is lane_back
	records n0
	finish
	wait "$srun"
	grep -q '^rma: [1-9].* 0 lost, 0 doubled, 0 damaged, 0 wrong' "$out"
}
