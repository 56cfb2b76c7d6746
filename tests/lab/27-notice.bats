#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What the daemons say failed, at both ends of the failure, and what is no failure at all.

load helper

conf() { # JSON
	local n
	for n in n0 n1 n2; do
		lab run $n -- sh -c "echo '$1' >/etc/rcshare/rcshare.conf"
	done
}

start() { # running with all lanes when this returns
	traffic "n0 n1 n2" --max 16384
	eventually 60 all_lanes
	rounds=$(count)
}

# ... and each rail has been probed.
all_lanes() {
	local n
	for n in n0 n1 n2; do
		lab run $n -- rcshare status "$id" --json 2>/dev/null | jq -e '
			[.nodes[] | select(.state != "self") | .lanes[:2][] | .state == "up" and .usable] |
			length == 4 and all' >/dev/null || return 1
	done
}

count() { lab run ctl -- grep -c round /tmp/job; }
more() { (($(count) >= rounds + $1)); }

failovers() { # NODE: of lane 0, with the node of the trouble
	records "$1" |
		jq -c 'select(.event == "failover" and .lane == 0 and (.host == "n1" or .peer_host == "n1"))'
}

# The guests share the host's cores, and one that stands still loses lanes too: the daemons call that busy,
# which is another matter than what a test here is about.
of_paths() { jq -c 'select(.verdict | contains("busy") | not)'; }

# Each link says so in the end: it is tried again and again, and on a busy host a probe may be late once.
verdicts() { # NODE NUMBER JQ
	failovers "$1" | of_paths | jq -se "[group_by(.peer)[] | last] | length >= $2 and all($3)" >/dev/null
}

show() { local n; for n in n0 n1 n2; do failovers $n; done; }

# Who noticed by itself, and that was silence, knew this.
noticed() { # JQ
	show | of_paths | jq -se "any(.reason == \"silent\" and ($1))" >/dev/null
}

teardown() {
	[[ -n ${BATS_TEST_COMPLETED:-} ]] || show
	lab cont n1
	lab undelay n1 0
	lab undrop n1 0
	lab restore n1 0
	lab run n1 -- sh -c 'pkill -CONT -x rcshared; tc qdisc del dev rail0 root 2>/dev/null' || :
	lab run ctl -- scancel -u lab
	conf '{"node_timeout_ms": 20000}'
}

# moved TIMES: each of n1's links has lost lane 0 so often, at both ends
moved() {
	local n
	for n in n0 n1 n2; do
		failovers $n | jq -se "[group_by(.peer)[] | select(length >= $1)] | length == $([[ $n == n1 ]] && echo 2 || echo 1)" \
			>/dev/null || return 1
	done
}

# until_said HARM HEAL CHECK: a guest that stands still just then has another story to tell (it was busy; packets
# were lost before it looked at its port), and the lane stays away: then it is done once more.
until_said() {
	local try
	for try in 1 2 3; do
		$1
		eventually 30 moved $try
		! $3 || return 0
		$2
		eventually 60 all_lanes
	done
	echo "not said in $try tries: $3"
	return 1
}

pull_cable() { lab cut n1 0; }
plug_cable() { lab restore n1 0; }
all_say_port() {
	verdicts n1 2 '.verdict == "local port" and .reason == "port"' &&
		verdicts n0 1 '.verdict == "remote port"' && verdicts n2 1 '.verdict == "remote port"'
}

@test "a cut cable is the local port here and the remote port there" {
	start
	until_said pull_cable plug_cable all_say_port
	traffic_ends
}

# Both may notice, who loses packets and who waits for answers; all have to call it the path. Who noticed by itself
# had asked both ways.
all_say_path() {
	verdicts n1 2 '.verdict == "path"' && verdicts n0 1 '.verdict == "path"' && verdicts n2 1 '.verdict == "path"' &&
		noticed '.peer_answered and .probe == "lost"'
}

silent_loss() { # DIRECTION...
	directions=$*
	start
	until_said lose_packets find_packets all_say_path
	traffic_ends
}
lose_packets() { local d; for d in $directions; do lab drop n1 0 "$d"; done; }
find_packets() { lab undrop n1 0; }

@test "packets lost on the way to a node: the path" { silent_loss in; }
# bats test_tags=full
@test "packets lost on the way from a node: the path" { silent_loss out; }
# bats test_tags=full
@test "packets lost both ways: the path" { silent_loss in out; }

# Packets of reliable connections do not leave n1 (opcode 000xxxxx behind IP and UDP), datagrams do.
@test "a lane that makes no progress though its rail answers probes is given up: the queue pair" {
	start
	lab run n1 -- sh -ec 'tc qdisc add dev rail0 root handle 1: prio
		tc filter add dev rail0 parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff match u8 0x00 0xe0 at 28 action drop'
	eventually 60 verdicts n1 2 '.verdict == "queue pair"'
	noticed '.peer_answered and .probe == "answered"'
	traffic_ends
}

# Its NIC goes on acknowledging, and who sends keeps to the receives that are posted: no lane is in doubt.
@test "a daemon that stands still for longer than stall_max_ms costs no lane" {
	conf '{"node_timeout_ms": 20000, "stall_max_ms": 500}'
	start
	lab run n1 -- sh -c 'pkill -STOP -x rcshared; sleep 3; pkill -CONT -x rcshared'
	eventually 60 more 2
	[ -z "$(show | of_paths)" ]
	traffic_ends
}

left() { # NODE: its rail 0 to n1 was given up
	lab run "$1" -- rcshare status "$id" --json 2>/dev/null | jq -e '
		.nodes[] | select(.host == "n1") | .lanes[0].state != "up"' >/dev/null
}

busy() { # said of n1 by another, and by n1 of itself
	show | jq -se 'any(.verdict == "peer busy" and .peer_host == "n1" and (.peer_answered | not)) and
		any(.verdict == "this node busy" and .host == "n1")' >/dev/null
}

@test "a node that stands still for longer than stall_max_ms is called busy when it goes on" {
	conf '{"node_timeout_ms": 60000, "stall_max_ms": 500}'
	start
	lab stop n1
	eventually 20 left n0
	eventually 20 left n2
	lab cont n1
	eventually 60 more 2
	eventually 20 busy
	traffic_ends
}

# 40 ms a round trip where it was one, and one packet in a hundred lost, each way.
# bats test_tags=full
@test "delay, and loss that RC repairs, cost no lane" {
	start
	lab delay n1 0 20
	lab drop n1 0 in 1
	lab drop n1 0 out 1
	rounds=$(count)
	eventually 120 more 20
	[ -z "$(show | of_paths)" ]
	lab undelay n1 0
	lab undrop n1 0
	traffic_ends
}
