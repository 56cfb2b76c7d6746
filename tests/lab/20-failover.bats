#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Real ranks over shared queue pairs while rails fail. Every message is checked by the program itself.

load helper

app=/opt/rcshare/apps/rcs_alltoall

start() { # SECONDS: a job of two ranks a node, running when this returns
	lab run ctl -- rm -f /tmp/job
	in_background ctl /tmp/job srun --rcshare=on --mpi=pmix -N3 --ntasks-per-node=2 \
		$app --seconds "$1" --max 65536
	eventually 90 lab run ctl -- grep -q round /tmp/job
	id=$(lab run ctl -- squeue -h -o %i | tail -n 1)
}

finish() { # nothing lost, doubled or damaged; nothing left behind
	eventually 150 lab run ctl -- grep -q 'messages,' /tmp/job
	lab run ctl -- cat /tmp/job
	lab run ctl -- grep -q ' 0 lost, 0 duplicated, 0 damaged' /tmp/job
	eventually 30 none_left
}

none_left() {
	local n
	for n in n0 n1 n2; do
		lab run $n -- sh -c '! pgrep -x rcshared && ! ls -d /run/rcshare/*.0' >/dev/null 2>&1 || return 1
	done
}

log() { lab run "$1" -- sh -c "cat /var/log/rcshare/$id/*.jsonl 2>/dev/null"; }
logged() { log "$1" | grep -q "$2"; }

@test "all ranks of a node share one queue pair for each rail and peer node" {
	four() { [ "$(lab run "$1" -- rdma resource show qp | grep -c 'type RC')" -eq 4 ]; }
	start 8
	for n in n0 n1 n2; do
		eventually 5 four $n # the devices' self-tests have some, for half a second
	done
	finish
}

# Pushing is a silent way out that hides a registration that never works.
@test "large messages are fetched by RDMA READ, not pushed" {
	lab run ctl -- rm -f /tmp/job
	in_background ctl /tmp/job srun --rcshare=on --mpi=pmix -N2 -w n0,n1 --ntasks-per-node=1 \
		/opt/rcshare/apps/rcs_pingpong --min 1048576 --max 1048576 --iters 100
	read_some() {
		local id
		id=$(lab run ctl -- squeue -h -o %i | tail -n 1)
		[ -n "$id" ] && [ "$(lab run n1 -- rcshare status "$id" --json | jq .read_bytes)" -gt 1048576 ]
	}
	eventually 60 read_some
	eventually 120 lab run ctl -- grep -q 'bytes=1048576' /tmp/job
	eventually 30 none_left
}

@test "a cut cable moves traffic to the other rail, and back when it returns" {
	start 20
	lab cut n0 0
	eventually 20 logged n0 '"reason":"port"'
	lab restore n0 0
	eventually 30 logged n0 '"event":"lane_back"'
	finish
}

@test "silent loss is noticed and survived" {
	start 25
	lab drop n1 0 in
	eventually 30 logged n1 '"event":"failover"'
	lab undrop n1 0
	finish
}

@test "without a rail traffic goes over TCP" {
	start 20
	lab cut n2 0
	lab cut n2 1
	eventually 20 logged n2 '"to_rail":"tcp"'
	lab restore n2 0
	lab restore n2 1
	finish
}

@test "a NIC that is removed does not take the job with it" {
	start 20
	lab nic-remove n1 0
	eventually 20 logged n1 '"event":"failover"'
	finish
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
