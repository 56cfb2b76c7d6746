#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# check: short
#
# The daemon tests its devices: `rcshare status` has the result, the log none where all is well.

load helper

teardown() {
	for n in n0 n1; do
		lab run $n -- sh -c 'echo "{\"node_timeout_ms\": 20000}" >/etc/rcshare/rcshare.conf'
	done
}

ledgers() { # NODE -> a word a rail
	lab run "$1" -- rcshare status "$id" --json | jq -r '.rails[].ledger' | paste -sd ' '
}

two_left() { [ "$(lab run "$1" -- rdma resource show qp | grep -c 'type RC')" -eq 2 ]; }

ledgers_are() { [[ $(ledgers "$1") == "$2" ]]; }

@test "both devices of a node are proven while the job runs, and the log has nothing to say" {
	traffic "n0 n1" --max 65536
	for n in n0 n1; do
		eventually 150 ledgers_are $n "rq_psn rq_psn"
		lab run $n -- rcshare status "$id" --json | jq -r '.rails[].ledger_why' | sed "s/^/# $n: /" >&3
		# what is left is one queue pair a rail and peer
		eventually 30 two_left $n
	done
	traffic_ends
	for n in n0 n1; do
		run lab run $n -- sh -c "cat /var/log/rcshare/$id/*.jsonl"
		[[ $output != *selftest* ]]
	done
}

@test "selftest off: not tested" {
	for n in n0 n1; do
		lab run $n -- sh -c 'echo "{\"selftest\": \"off\", \"node_timeout_ms\": 20000}" >/etc/rcshare/rcshare.conf'
	done
	traffic "n0 n1" --max 65536
	for n in n0 n1; do
		ledgers_are $n "unknown unknown"
		lab run $n -- rcshare status "$id" --json | jq -r '.rails[].ledger_why' | grep -q 'selftest is off'
	done
	traffic_ends
}
