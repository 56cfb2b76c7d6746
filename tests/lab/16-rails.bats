#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
#
# Nodes whose rails are not the same: n1 has one more RDMA device, whose name comes before those of the others.

load helper

setup_file() {
	lab run n1 -- rdma link add aaa0 type rxe netdev mgmt
}

teardown_file() {
	lab run n1 -- rdma link delete aaa0
}

status() { lab run "$1" -- rcshare status "$id" --json; }

# NODE PEER -> "own>there own>there", of lanes that are up
pairs() {
	status "$1" | jq -r --arg p "$2" '.nodes[] | select(.host == $p) | .lanes[] |
		select(.lane != "tcp" and .state == "up") | "\(.lane)>\(.meets)"' | sort | paste -sd ' '
}

pairs_are() { [[ $(pairs "$1" "$2") == "$3" ]]; }

@test "a device more on one node shifts nobody: rails meet by their network, and both carry traffic" {
	traffic "n0 n1 n2" --max 65536
	# n1 is the higher node towards n0, the lower one towards n2
	eventually 60 pairs_are n0 n1 "rxe0/1>1 rxe1/1>2"
	eventually 60 pairs_are n1 n0 "rxe0/1>0 rxe1/1>1"
	eventually 60 pairs_are n1 n2 "rxe0/1>0 rxe1/1>1"
	eventually 60 pairs_are n2 n1 "rxe0/1>1 rxe1/1>2"
	eventually 60 pairs_are n0 n2 "rxe0/1>0 rxe1/1>1"
	status n1 | jq -e '[.nodes[] | select(.host != "n1") | .unmet] == [["aaa0/1"], ["aaa0/1"]]'
	status n0 | jq -e '[.nodes[] | select(.host != "n0") | .unmet] == [[], []]'
	lab run n1 -- rcshare status "$id" | tee /dev/stderr | grep 'towards n0: .*aaa0/1 meets none'
	# the one in use fails: the other rail takes over, not TCP
	active() { status n0 | jq -r '.nodes[] | select(.host == "n1") | .lane'; }
	local before
	before=$(active)
	[[ $before == [01] ]]
	lab cut n1 "$before"
	moved() { [[ $(active) == "$((1 - before))" ]]; }
	eventually 30 moved
	lab restore n1 "$before"
	both() { [[ $(pairs n0 n1) == "rxe0/1>1 rxe1/1>2" ]]; }
	eventually 60 both
	# the log of the node whose rail it is has its own number
	lab run n1 -- sh -c "cat /var/log/rcshare/$id/*.jsonl" |
		jq -se --arg rail "rxe$before/1" 'any(.event == "failover" and .peer_host == "n0" and .rail == $rail)'
	traffic_ends
	lab run ctl -- cat /tmp/job
	[ "$(lab run ctl -- grep -c 'aaa0/1 of n1 left out: no rail of n0 and 1 other nodes is on its network' /tmp/job)" -eq 1 ]
	! lab run ctl -- grep -q 'of n0 left out' /tmp/job
}

@test "puts and gets use the keys of the rails that met" {
	run job --rcshare=require --mpi=pmix -N2 -w n0,n1 --ntasks-per-node=1 /opt/rcshare/apps/rcs_rma --kind put --region \
		--replay --seconds 5
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *' 0 lost, 0 doubled, 0 damaged, 0 wrong'* ]]
}

@test "eager mode opens all lanes that can be, and waits for no other" {
	run job --rcshare=require --mpi=pmix -N3 --ntasks-per-node=1 /opt/rcshare/apps/rcs_alltoall --seconds 1 --eager
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *' 0 lost, 0 duplicated, 0 damaged'* ]]
}
