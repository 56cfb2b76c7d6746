#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# check: short
#
# The daemon tests its devices: `rcshare status` has the result, the log none where all is well.

load helper

app=/opt/rcshare/apps/rcs_alltoall

teardown() {
	for n in n0 n1; do
		lab run $n -- sh -c 'echo "{\"node_timeout_ms\": 20000}" >/etc/rcshare/rcshare.conf'
	done
}

begin_job() { # SECONDS
	lab run ctl -- rm -f /tmp/job
	in_background ctl /tmp/job srun --rcshare=on --mpi=pmix -N2 -w n0,n1 --ntasks-per-node=2 \
		$app --seconds "$1" --max 65536
	eventually 90 lab run ctl -- grep -q round /tmp/job
	id=$(lab run ctl -- squeue -h -o %i | tail -n 1)
}

finish_job() {
	eventually 150 lab run ctl -- grep -q 'messages,' /tmp/job
	lab run ctl -- cat /tmp/job
	lab run ctl -- grep -q ' 0 lost, 0 duplicated, 0 damaged' /tmp/job
	eventually 30 none_left
}

none_left() {
	local n
	for n in n0 n1; do
		lab run $n -- sh -c '! pgrep -x rcshared && ! ls -d /run/rcshare/*.0' >/dev/null 2>&1 || return 1
	done
}

ledgers() { # NODE -> a word a rail
	lab run "$1" -- rcshare status "$id" --json | jq -r '.rails[].ledger' | paste -sd ' '
}

two_left() { [ "$(lab run "$1" -- rdma resource show qp | grep -c 'type RC')" -eq 2 ]; }

ledgers_are() { [[ $(ledgers "$1") == "$2" ]]; }

@test "both devices of a node are proven while the job runs, and the log has nothing to say" {
	begin_job 12
	for n in n0 n1; do
		eventually 15 ledgers_are $n "rq_psn rq_psn"
		lab run $n -- rcshare status "$id" --json | jq -r '.rails[].ledger_why' | sed "s/^/# $n: /" >&3
		# what is left is one queue pair a rail and peer
		eventually 5 two_left $n
	done
	finish_job
	for n in n0 n1; do
		run lab run $n -- sh -c "cat /var/log/rcshare/$id/*.jsonl"
		[[ $output != *selftest* ]]
	done
}

@test "selftest off: not tested" {
	for n in n0 n1; do
		lab run $n -- sh -c 'echo "{\"selftest\": \"off\", \"node_timeout_ms\": 20000}" >/etc/rcshare/rcshare.conf'
	done
	begin_job 6
	for n in n0 n1; do
		ledgers_are $n "unknown unknown"
		lab run $n -- rcshare status "$id" --json | jq -r '.rails[].ledger_why' | grep -q 'selftest is off'
	done
	finish_job
}
