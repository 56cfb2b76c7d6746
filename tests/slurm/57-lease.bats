#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Who may act: a node that is replaced has stopped before its spare begins, whomever it still reaches; a minority is
# stopped. Each rank of rcs_acts notes when it was first and last given something, on the clock that all nodes share.

load helpers

setup_file() {
	need_plugin
	bed_up -n 17 --plugin "$(plugin_line daemon="$daemon" config=/run/bed/home/rcshare.conf)"
	# long enough for a busy machine: the order of events is looked at, not when they are
	site '{"node_timeout_ms": 3000, "job_check_s": 10}'
}

teardown_file() {
	bed_down
}

setup() {
	out=$BED_DIR/home/out until=$BED_DIR/home/until acts=$BED_DIR/home/acts
	rm -rf "$until" "$acts"
	mkdir -m 777 "$acts"
	: >"$out"
	BED_WAIT=90
}

teardown() {
	# first, or Slurm cannot end the job there
	[[ -z ${cut:-} ]] || "$bed" restore "$cut"
	# its slurmd registers at once: else slurmctld asks a node that was away only now and then
	[[ -z ${cut:-} ]] || "$bed" restart-slurmd "$cut"
	[[ -z ${parted:-} ]] || on_node "$parted" nft delete table inet part
	[[ -z ${stood:-} ]] || on_node "$stood" pkill -CONT -x rcshared || :
	touch "$until"
	id=$("$bed" run -- squeue -h -o %i)
	[[ -z $id ]] || "$bed" run -- scancel $id || :
	# A node that was away for long is not the job's any more, and Slurm runs no epilog there: the daemon ends by
	# itself (job_check_s), its folder stays.
	[[ -z ${cut:-} ]] || eventually on_node "$cut" sh -c '! pgrep -x rcshared && rm -rf /run/rcshare/*.*'
	eventually nothing_left
}

# start NODES SPARES
start() {
	local opts=on,keep_step=1
	[[ $2 == 0 ]] || opts+=,spares=$2
	timeout 200 "$bed" run -- salloc --no-kill -N"$1" --ntasks-per-node=1 srun --no-kill -K0 --rcshare="$opts" \
		--mpi=pmix "$(bed_app rcs_acts)" --until "$until" --out "$acts" >"$out" 2>&1 3>&- &
	pid=$!
	eventually all_act $(($1 - $2))
}

all_act() {
	[[ $(grep -l acts "$acts"/*.0 | wc -l) -eq $1 ]]
}

# in_order RANK: its last act came before the replacement's first
in_order() {
	local first last rest
	read -r first last rest <"$acts/$1.0"
	read -r first rest <"$acts/$1.1"
	echo "last $last, first $first"
	[[ $last < $first ]]
}

stopped() {
	grep -q RCS_ERR_PARTITIONED "$acts/$1.0"
}

@test "of 16 nodes one is cut off: its ranks have stopped before the spare's begin" {
	start 17 1
	"$bed" cut b1
	cut=b1
	eventually test -s "$acts/1.1"
	in_order 1
	eventually stopped 1
	in_order 1
	! grep -l PARTITIONED "$acts"/{0,2,3,15}.0
}

# part NODE FROM...: no packets between them
part() {
	local node=$1 from addrs
	shift
	for from; do
		addrs+=${addrs:+, }$("$bed" run -- getent ahostsv4 "$from" | awk '{ print $1; exit }')
	done
	on_node "$node" nft "table inet part {
		chain in { type filter hook input priority 0; ip saddr { $addrs } drop; }
		chain out { type filter hook output priority 0; ip daddr { $addrs } drop; }
	}"
	parted=$node
}

@test "a node that still reaches some has stopped before the spare's ranks begin" {
	start 17 1
	part b1 b0
	eventually test -s "$acts/1.1"
	in_order 1
	eventually stopped 1
	in_order 1
}

@test "a daemon that stands still stops its ranks before a spare acts in their place" {
	start 17 1
	on_node b1 pkill -STOP -x rcshared
	stood=b1
	eventually test -s "$acts/1.1"
	in_order 1
	on_node b1 pkill -CONT -x rcshared
	stood=
	eventually stopped 1
	in_order 1
}

@test "a minority without spares is stopped" {
	start 7 0
	"$bed" cut b2
	cut=b2
	eventually stopped 2
	! grep -l PARTITIONED "$acts"/{0,1,3,6}.0
}
