#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A node of a job is lost: the others decide it together, what was outstanding to it ends, they go on.

load helpers

setup_file() {
	need_plugin
	bed_up -n 5 --cpus 4 --plugin "$(plugin_line daemon="$daemon" \
		config="$root/config/rcshare.conf")"
}

teardown_file() {
	bed_down
}

setup() {
	out=$BED_DIR/home/out until=$BED_DIR/home/until
	rm -f "$out" "$until"
	: >"$out"
}

teardown() {
	touch "$until"
	"$bed" restore b2
	for n in b0 b1 b2 b3; do
		"$bed" wait $n idle >/dev/null 2>&1 || "$bed" start $n
	done
	BED_WAIT=60 eventually nothing_left
}

# A job of two ranks on each of four nodes that goes on without those that are lost.
job() { # ARGUMENTS of rcs_survive
	timeout 120 "$bed" run -- salloc --no-kill -N4 -x b4 --ntasks-per-node=2 srun --no-kill -K0 \
		--rcshare=on --mpi=pmix "$(bed_app rcs_survive)" --until "$until" "$@" >"$out" 2>&1 3>&- &
	pid=$!
	running 8
}

running() { # RANKS: all of the last job's
	eventually said "$1" 'running$'
	id=$("$bed" run -- squeue -h -o %i | sort -n | tail -n 1)
}

survived() { # RANKS: those that lost two others and went on
	eventually said "$1" ': after 200$'
	touch "$until"
	eventually said "$1" ' messages, 2 ranks lost, 0 wrong$'
	"$bed" run -- scancel "$id" || :
	wait $pid || :
	cat "$out"
}

on() { "$bed" run --on "$@"; }

@test "a node that is killed: all ranks hear it, its requests end, the others go on" {
	job --puts
	"$bed" kill b2
	survived 6
	said 6 'event 8 node 2 view 1 '
	said 12 ': lost [45]$'
	[ "$(on b0 -- sh -c "grep -h node_lost /var/log/rcshare/$id/*" | jq -r .peer_host)" = b2 ]
	"$bed" start b2
}

@test "a daemon that is killed: its ranks are told, the others lose the node" {
	job --puts
	on b2 -- sh -c 'kill -9 $(pgrep -x rcshared)'
	survived 6
	grep -q 'rank [45]: .*RCS_ERR_RUNTIME_LOST' "$out"
	said 6 'event 8 node 2 view 1 .*: view 1$'
}

stopped() { on b2 -- sh -c "grep -qs '\"partitioned\"' /var/log/rcshare/$id/*"; }

@test "a node whose cable is cut is removed, and stops when it hears so" {
	job --puts
	"$bed" cut b2
	eventually said 6 'event 8 node 2 view 1 '
	"$bed" restore b2
	eventually stopped
	eventually said 2 'rank [45]: .* RCS_ERR_PARTITIONED'
	survived 6
}

@test "a daemon that hung and goes on finds itself removed" {
	job --puts
	on b2 -- sh -c 'kill -STOP $(pgrep -x rcshared)'
	eventually said 6 'event 8 node 2 view 1 '
	on b2 -- sh -c 'kill -CONT $(pgrep -x rcshared)'
	eventually said 2 'rank [45]: .* RCS_ERR_PARTITIONED'
	survived 6
}

kill_daemon() { on "$1" -- sh -c 'kill -9 $(pgrep -x rcshared)'; }

# Slurm has not lost the node, so the next step has it again, with a new daemon.
@test "a step after a loss loses the node as well, and then another" {
	local step="srun --no-kill -K0 --rcshare=on,keep_step=1 --mpi=pmix $(bed_app rcs_survive) --idle --until"
	timeout 120 "$bed" run -- salloc --no-kill -N4 -x b4 --ntasks-per-node=2 \
		sh -c "$step $until.first; $step $until" >"$out" 2>&1 3>&- &
	pid=$!
	running 8
	all_know_b2
	kill_daemon b2
	eventually said 6 'event 8 node 2 view 1 '
	touch "$until.first"
	eventually said 2 ': .*RCS_ERR_PARTITIONED'
	eventually said 12 'rank [0-367]: running$'
	kill_daemon b3
	eventually said 4 'event 8 node 3 view 2 '
	touch "$until"
	eventually said 10 ' 0 messages, 0 ranks lost, 0 wrong$'
	"$bed" run -- scancel "$id" || :
	wait $pid || :
	cat "$out"
}

knows() { # NODE INDEX: its daemon has a connection to that of the other
	[ "$(on "$1" -- "$root/build/rcshare" status "$id" --json | jq -r ".nodes[$2].state")" = up ]
}

all_know_b2() {
	for n in b0 b1 b3; do
		eventually knows $n 2
	done
}

# The first port that the next job's daemon on b2 would take is taken.
take_port() {
	local next
	next=$("$bed" run -- scontrol show config | awk '/^NEXT_JOB_ID/ {print $3}')
	on b2 -- perl -MIO::Socket::INET -e '$| = 1; $s = IO::Socket::INET->new(Listen => 1,
		LocalPort => 24576 + shift() % 4096) or die; print "listens\n"; 1 while $c = $s->accept' "$next" \
		>"$BED_DIR/home/port" 2>&1 3>&- &
	eventually grep -q listens "$BED_DIR/home/port"
}

@test "a node that two steps lose: the ranks of each hear which of theirs were there" {
	local step="srun --overlap --no-kill -K0 --rcshare=on --mpi=pmix"
	app=$(bed_app rcs_survive)
	timeout 120 "$bed" run -- salloc --no-kill -N4 -x b4 --ntasks-per-node=3 sh -c "
		$step -n4 --ntasks-per-node=1 $app --idle --until $until &
		$step -n8 --ntasks-per-node=2 $app --idle --until $until &
		wait" >"$out" 2>&1 3>&- &
	pid=$!
	running 12
	all_know_b2
	"$bed" kill b2
	eventually said 3 'event 8 node 2 view 1 of step [01], ranks from 2 '
	eventually said 6 'event 8 node 2 view 1 of step [01], ranks from 4 '
	touch "$until"
	eventually said 9 ' 0 messages, 0 ranks lost, 0 wrong$'
	"$bed" run -- scancel "$id" || :
	wait $pid || :
	"$bed" start b2
}

@test "a node that nobody speaks to is watched all the same, also on another port than its first" {
	take_port
	job --idle
	[ "$(on b2 -- "$root/build/rcshare" status "$id" --json | jq .control_port)" = $((24577 + id % 4096)) ]
	all_know_b2
	"$bed" kill b2
	eventually said 6 'event 8 node 2 view 1 '
	touch "$until"
	eventually said 6 ' 0 messages, 0 ranks lost, 0 wrong$'
	"$bed" run -- scancel "$id" || :
	wait $pid || :
	"$bed" start b2
}
