#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What Slurm is told of a lost node (mark_down), and asked where two nodes are left (tie_breaker).

load helpers

setup_file() {
	need_plugin
	for f in "$daemon" "$apps/rcs_survive"; do
		[[ -x $f ]] || skip "$f is not built: run make all apps"
	done
	# Slurm itself takes long to find out.
	bed_up -n 3 --conf SlurmdTimeout=300 --plugin "$(plugin_line daemon="$daemon" \
		config=/run/bed/home/rcshare.conf)"
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
	for n in b0 b1 b2; do
		on_node $n true >/dev/null 2>&1 || "$bed" start $n
		"$bed" run -u root -- scontrol update nodename=$n state=resume >/dev/null 2>&1 || :
	done
	BED_WAIT=60 eventually nothing_left
}

# job RANKS NODES [KEYS]: two ranks on each, which go on without those that are lost
job() {
	timeout 120 "$bed" run -- salloc -Q --no-kill -w "$2" --ntasks-per-node=2 srun --no-kill -K0 \
		--rcshare=on"${3:-}" --mpi=pmix "$(bed_app rcs_survive)" --until "$until" >"$out" 2>&1 3>&- &
	pid=$!
	eventually said "$1" ': running$'
	id=$("$bed" run -- squeue -h -o %i | sort -n | tail -n 1)
}

ended_well() { # RANKS
	touch "$until"
	eventually said "$1" ' messages, 2 ranks lost, 0 wrong$'
	"$bed" run -- scancel "$id" || :
	wait $pid || :
	cat "$out"
}

node() { # NODE PATTERN: what Slurm says of it
	"$bed" run -- scontrol -o show node "$1" | grep -qE "$2"
}

mark() { # NODE STATE
	"$bed" run -u root -- scontrol update nodename="$1" state="$2" reason=test
}

logged() { # PATTERN: in the slurmd log of a node
	grep -qhE "$1" "$BED_DIR"/log/b?.slurmd.log
}

@test "mark_down: Slurm is told at once that a node is lost, and why" {
	site '{"node_timeout_ms": 1000, "mark_down": "on"}'
	job 6 b0,b1,b2
	"$bed" kill b2
	eventually said 4 ': after 200$'
	eventually node b2 "State=DOWN.* Reason=rcshare: lost to job $id step 0 \[root@"
	ended_well 4
}

@test "mark_down: the lowest that is left tells it" {
	site '{"node_timeout_ms": 1000, "mark_down": "on"}'
	job 6 b0,b1,b2
	"$bed" kill b0
	eventually node b0 "State=DOWN.* Reason=rcshare: lost to job $id step 0 "
	grep -q 'b0 is lost to step 0: marking it down' "$BED_DIR/log/b1.slurmd.log"
	not grep -q 'b0 is lost to step 0: marking it down' "$BED_DIR/log/b2.slurmd.log"
	eventually said 4 ': after 200$'
	ended_well 4
}

@test "mark_down: a node whose slurmd answers is not down" {
	site '{"node_timeout_ms": 1000, "mark_down": "on"}'
	job 6 b0,b1,b2
	on_node b1 sh -c 'kill -9 $(pgrep -x rcshared)'
	eventually said 4 ': after 200$'
	eventually logged 'b1 is lost to step 0, but its slurmd answers: not marked down'
	node b1 'State=(ALLOCATED|MIXED) '
	ended_well 4
}

@test "mark_down: a slurmctld that does not answer sets nobody down" {
	site '{"node_timeout_ms": 1000, "mark_down": "on"}'
	job 6 b0,b1,b2
	ctld=$(on_node ctl pgrep -x slurmctld)
	on_node ctl kill -STOP "$ctld"
	on_node b1 sh -c 'kill -9 $(pgrep -x rcshared)'
	logged_now() { [ "$(cat "$BED_DIR"/log/b?.slurmd.log | grep -c 'b1 is lost to step 0, but slurmctld does not say that it is a node of this step: not marked down')" -eq 1 ]; }
	BED_WAIT=40 eventually logged_now || { on_node ctl kill -CONT "$ctld"; false; }
	on_node ctl kill -CONT "$ctld"
	eventually node b1 'State=(ALLOCATED|MIXED)' || {
		"$bed" run -- scontrol show node b1
		"$bed" run -- squeue
		cat "$out"
		false
	}
	not node b1 'Reason='
	eventually said 4 ': after 200$'
	touch "$until"
	"$bed" run -- scancel "$id" || :
	wait $pid || :
}

@test "without mark_down Slurm finds out by itself" {
	site '{"node_timeout_ms": 1000}'
	job 6 b0,b1,b2
	"$bed" kill b2
	eventually said 4 ': after 200$'
	ended_well 4
	node b2 'State=(ALLOCATED|MIXED|IDLE)'
	mark b2 down
}

# tie LOST LEFT: of two nodes one is lost; the other goes on when slurmctld says DOWN, not before
tie() {
	local lost=$1 left=$2
	site '{"node_timeout_ms": 500, "tie_breaker": "slurmctld"}'
	job 4 b0,b1
	"$bed" kill "$lost"
	eventually said 2 'event 7 node '		# suspected
	eventually asked "$left"
	srun -w b2 true					# slurmctld has time for others meanwhile
	said 0 'event 8 node '
	mark "$lost" down
	eventually said 2 "event 8 node ${lost#b} view 1 "
	eventually said 2 ': after 200$'
	ended_well 2
	said 0 'PARTITIONED'
}

# The daemon's lease is over and slurmctld was heard since: without its word this node would stop.
asked() {
	on_node "$1" "$root/build/rcshare" status "$id" --json | jq -e '.witness_answers >= 8'
}

@test "tie_breaker: the lower of two is lost, slurmctld says so, the higher goes on" {
	tie b0 b1
}

@test "tie_breaker: the higher of two is lost, and the lower waits for slurmctld's word" {
	tie b1 b0
}

@test "tie_breaker: a step with spares does not wait for it" {
	site '{"node_timeout_ms": 500, "tie_breaker": "slurmctld"}'
	job 2 b0,b1 ,spares=1
	"$bed" kill b1
	eventually said 2 'event 8 node 1 view 1 '
	node b1 'State=(ALLOCATED|MIXED)'
	mark b1 down
	touch "$until"
	eventually said 2 ' messages, 0 ranks lost, 0 wrong$'
	wait $pid || :
}

@test "without tie_breaker the higher of two stops" {
	site '{"node_timeout_ms": 500}'
	job 4 b0,b1
	"$bed" kill b0
	eventually said 2 'RCS_ERR_PARTITIONED'
	said 0 'event 8 node '
	mark b0 down
	wait $pid || :
}
