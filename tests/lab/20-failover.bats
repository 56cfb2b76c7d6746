#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Real ranks over shared queue pairs while rails fail. Every message is checked by the program itself.

load helper

logged() { records "$1" | grep -q "$2"; }

@test "all ranks of a node share one queue pair for each rail and peer node" {
	four() { [ "$(lab run "$1" -- rdma resource show qp | grep -c 'type RC')" -eq 4 ]; }
	traffic "n0 n1 n2" --max 65536
	for n in n0 n1 n2; do
		eventually 30 four $n # the devices' self-tests have some, for half a second
	done
	traffic_ends
}

# Pushing is a silent way out that hides a registration that never works.
@test "large messages are fetched by RDMA READ, not pushed" {
	read_some() { [ "$(lab run n1 -- rcshare status "$id" --json | jq .read_bytes)" -gt 1048576 ]; }
	traffic "n0 n1" --min 1048576 --max 1048576
	eventually 60 read_some
	traffic_ends
}

@test "a cut cable moves traffic to the other rail, and back when it returns" {
	traffic "n0 n1 n2" --max 65536
	lab cut n0 0
	eventually 30 logged n0 '"reason":"port"'
	lab restore n0 0
	eventually 30 logged n0 '"event":"lane_back"'
	traffic_ends
}

@test "silent loss is noticed and survived" {
	traffic "n0 n1 n2" --max 65536
	lab drop n1 0 in
	eventually 30 logged n1 '"event":"failover"'
	lab undrop n1 0
	traffic_ends
}

@test "without a rail traffic goes over TCP" {
	traffic "n0 n1 n2" --max 65536
	lab cut n2 0
	lab cut n2 1
	eventually 30 logged n2 '"to_rail":"tcp"'
	lab restore n2 0
	lab restore n2 1
	traffic_ends
}

@test "a NIC that is removed does not take the job with it" {
	traffic "n0 n1 n2" --max 65536
	lab nic-remove n1 0
	eventually 30 logged n1 '"event":"failover"'
	traffic_ends
	lab nic-rescan n1
	eventually 10 port_is n1 0 ACTIVE
}

@test "a mistake in /etc/rcshare/rcshare.conf refuses a step that requires rcshare, and says where" {
	lab run n0 -- sh -c 'echo "{\"rail\": 1}" >/etc/rcshare/rcshare.conf'
	run job --rcshare=require -w n0 -N1 true
	lab run n0 -- sh -c 'echo "{\"node_timeout_ms\": 20000}" >/etc/rcshare/rcshare.conf'
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"/etc/rcshare/rcshare.conf:1: unknown key 'rail'"* ]]
	run job --rcshare=require -w n0 -N1 true
	[ "$status" -eq 0 ]
}
