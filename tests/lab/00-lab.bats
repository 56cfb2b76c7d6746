#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
#
# What every other lab test takes for granted.

bats_require_minimum_version 1.5.0
load helper

setup_file() {
	lab status >/dev/null || { echo "needs a lab: tests/lab/lab with bats tests/lab" >&2; return 1; }
}

@test "all nodes are idle" {
	run lab run ctl -- sinfo -h -N -o %T
	[ "$status" -eq 0 ]
	[ "$(sort -u <<<"$output")" = idle ]
}

@test "the guests' clocks run as the host's does" {
	local n first later
	offset() { echo $(($(lab run "$1" -- date +%s%3N) - $(date +%s%3N))); }
	for n in ctl n0 n1 n2; do
		first=$(offset $n)
		sleep 1
		later=$(offset $n)
		echo "$n: $first ms off, then $later ms"
		[ $((later - first)) -lt 200 ] && [ $((first - later)) -lt 200 ]
		[ "$first" -lt 1000 ] && [ "$first" -gt -1000 ]
	done
}

@test "a command's status, stdout and stderr come back apart" {
	local err=$BATS_TEST_TMPDIR/err rc=0 out
	out=$(lab run n0 -- sh -c 'echo out; echo err >&2; exit 7' 2>"$err") || rc=$?
	[ "$rc" -eq 7 ]
	[ "$out" = out ]
	[ "$(cat "$err")" = err ]
}

@test "a command that outlives its bound is ended in the guest too" {
	run lab run n0 -t 1 -- sleep 4711
	[ "$status" -eq 124 ]
	gone() { ! lab run n0 -- pgrep -f 'sleep 4711' >/dev/null; }
	eventually 5 gone
}

@test "commands run side by side" {
	local pids=() i
	for i in 1 2 3 4 5 6; do
		lab run n1 -- sh -c "cat /proc/uptime; echo $i" >"$BATS_TEST_TMPDIR/$i" 3>&- &
		pids+=($!)
	done
	wait "${pids[@]}"
	for i in 1 2 3 4 5 6; do
		[ "$(tail -n 1 "$BATS_TEST_TMPDIR/$i")" = $i ]
	done
}

@test "files and folders go in and out unchanged" {
	local d=$BATS_TEST_TMPDIR
	head -c 3000000 /dev/urandom >"$d/big"
	chmod 750 "$d/big"
	lab put n0 "$d/big" /tmp/lab-big
	lab get n0 /tmp/lab-big "$d/back"
	cmp "$d/big" "$d/back"
	[ "$(lab run n0 -- stat -c %a /tmp/lab-big)" = 750 ]
	lab run n0 -i -- cat <"$d/big" | cmp - "$d/big"
	lab put n1 "$BATS_TEST_DIRNAME/guest" /tmp/lab-guest
	lab get n1 /tmp/lab-guest "$d/guest"
	diff -r "$BATS_TEST_DIRNAME/guest" "$d/guest"
}

@test "srun with PMIx: put, fence, get over all nodes" {
	run job -t 60 -N3 --ntasks-per-node=2 --mpi=pmix lab-pmix-check
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^rank . of 6 read' <<<"$output")" -eq 6 ]
}

@test "a task of an ordinary user may lock memory and open verbs" {
	run job -Q -N3 sh -c 'ulimit -l; id -un; ibv_devinfo -l | grep -c rxe'
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(sort <<<"$output" | uniq -c | tr -s ' ')" = " 3 2
 3 lab
 3 unlimited" ]
}

@test "RC traffic between two nodes, on each rail, with 4096 byte packets" {
	pingpong n0 n1 0
	pingpong n1 n2 1
}

@test "no traffic of one rail is seen on the other" {
	run lab run n0 -t 10 -- ping -c 1 -W 1 -I rail0 "$(address n1 1)"
	[ "$status" -ne 0 ]
}

@test "a cut cable is a port error here, silence there; restored, it carries again" {
	in_background n0 /tmp/async stdbuf -oL ibv_asyncwatch -d rxe0
	eventually 10 lab run n0 -- grep -q 'async event FD' /tmp/async
	lab cut n0 0
	eventually 10 lab run n0 -- grep -q IBV_EVENT_PORT_ERR /tmp/async
	port_is n0 0 DOWN
	port_is n0 1 ACTIVE
	port_is n1 0 ACTIVE
	lab restore n0 0
	eventually 10 lab run n0 -- grep -q IBV_EVENT_PORT_ACTIVE /tmp/async
	end_background n0 /tmp/async
	pingpong n1 n0 0
}

@test "silent loss in one direction only" {
	local before after
	sent_out() { lab status | sed -n 's/^rail0.n1 .* packets_from=\([0-9]*\) .*/\1/p'; }
	lab run n0 -- ping -q -c 1 -W 2 "$(address n1 0)" # both know each other's MAC
	lab drop n0 0 in
	before=$(sent_out)
	run lab run n0 -t 10 -- ping -q -c 2 -W 1 "$(address n1 0)"
	[ "$status" -ne 0 ]
	# The way out was open: n1 answered.
	after=$(sent_out)
	[ "$after" -gt "$before" ]
	port_is n0 0 ACTIVE
	lab undrop n0 0
	pingpong n0 n1 0
}

@test "silent loss takes RoCE packets; afterwards they flow again" {
	local at
	count() { lab run "$1" -- cat "/sys/class/infiniband/rxe0/ports/1/hw_counters/$2"; }
	more() { [ "$(count "$1" "$2")" -gt "$3" ]; }
	still() {
		local a
		a=$(count "$1" "$2")
		sleep 0.5
		[ "$(count "$1" "$2")" = "$a" ]
	}
	# ibv_rc_pingpong asks for 7 retries, which rxe takes as without end.
	in_background n1 /tmp/pp ibv_rc_pingpong -d rxe0 -g 1 -n 1000000
	eventually 10 lab run n1 -- sh -c 'ss -Hltn sport = :18515 | grep -q .'
	at=$(count n1 rcvd_pkts)
	in_background n0 /tmp/pp ibv_rc_pingpong -d rxe0 -g 1 -n 1000000 "$(address n1 0)"
	eventually 20 more n1 rcvd_pkts $((at + 100))

	lab drop n0 0 out
	eventually 20 still n1 rcvd_pkts

	at=$(count n1 rcvd_pkts)
	lab undrop n0 0
	eventually 20 more n1 rcvd_pkts $((at + 100))
	end_background n0 /tmp/pp
	end_background n1 /tmp/pp
}

@test "delay is added in each direction" {
	lab delay n2 1 30
	run lab run n2 -t 10 -- ping -q -c 3 -W 2 "$(address n1 1)"
	[ "$status" -eq 0 ]
	# rtt min/avg/max/mdev: the least is at least twice the delay
	min=$(sed -n 's/^rtt [^=]*= \([0-9]*\).*/\1/p' <<<"$output")
	[ "$min" -ge 60 ]
	lab undelay n2 1
}

@test "a NIC goes, with a GID event, and comes back under its name" {
	in_background n2 /tmp/async stdbuf -oL ibv_asyncwatch -d rxe1
	eventually 10 lab run n2 -- grep -q 'async event FD' /tmp/async
	lab nic-remove n2 1
	eventually 10 lab run n2 -- grep -q IBV_EVENT_GID_CHANGE /tmp/async
	port_is n2 0 ACTIVE
	end_background n2 /tmp/async
	gone() { lab run n2 -- sh -c '[ ! -e /sys/class/net/rail1 ] && [ ! -e /sys/class/infiniband/rxe1 ]'; }
	eventually 10 gone
	lab nic-rescan n2
	eventually 10 port_is n2 1 ACTIVE
	pingpong n1 n2 1
}

@test "a frozen node does not answer, and goes on" {
	lab stop n1
	run lab run n1 -w 1 -t 2 -- true
	[ "$status" -ne 0 ]
	lab cont n1
	eventually 10 lab run n1 -w 1 -- true
}

# bats test_tags=full
@test "a killed node is missed by Slurm, and idle after its start" {
	lab kill n2
	run lab run n2 -w 1 -- true
	[ "$status" -eq 255 ]
	missed() { lab run ctl -- sinfo -h -n n2 -o %T | grep -q -e down -e '\*'; }
	eventually 90 missed
	lab start n2
	run job -Q -w n2 hostname
	[ "$output" = n2 ]
	port_is n2 0 ACTIVE
	port_is n2 1 ACTIVE
}

@test "a second lab beside this one is refused, with the way out" {
	run lab up --bare
	[ "$status" -ne 0 ]
	[[ $output == *"lab down"* ]]
}

@test "what does not exist is named" {
	run lab cut n9 0
	[ "$status" -ne 0 ]
	[[ $output == *"no such node: n9"* ]]
	run lab cut n0 7
	[ "$status" -ne 0 ]
	[[ $output == *"no such rail: 7"* ]]
	run lab drop n0 0 sideways
	[ "$status" -ne 0 ]
	run -127 lab run n0 -- no-such-program
	[ "$status" -eq 127 ]
	[[ $output == *no-such-program* ]]
}
