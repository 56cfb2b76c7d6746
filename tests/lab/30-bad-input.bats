#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
#
# Bad input that only verbs know: memory that may not be locked, and ranks killed while RDMA moves or is
# about to move their memory. The rest is in tests/slurm/40-bad-input.bats.

load helper

apps=/opt/rcshare/apps

setup_file() {
	lab status >/dev/null || { echo "needs a lab: tests/lab/lab with bats tests/lab" >&2; return 1; }
}

teardown() {
	local n
	for n in n0 n1 n2; do
		lab run $n -- sh -c 'echo "{\"node_timeout_ms\": 20000}" >/etc/rcshare/rcshare.conf; rm -rf /tmp/die /tmp/lend.go'
	done
	eventually 40 none_left n0 n1 n2
}

limit() {	# limit BYTES: of the daemons
	local n
	for n in n0 n1 n2; do
		lab run $n -- sh -c "echo '{\"memlock_limit\": $1, \"node_timeout_ms\": 20000}' >/etc/rcshare/rcshare.conf"
	done
}

@test "a rank that may lock little: its regions are refused with the remedy, its messages arrive" {
	run job --rcshare=require -N1 -w n0 sh -c "ulimit -l 64; exec $apps/rcs_bad region"
	echo "$output"
	[[ $output == *"region: RCS_ERR_MEMLOCK: cannot pin 1048576 bytes: RLIMIT_MEMLOCK is 65536 bytes here and counts once for each rail; raise it (ulimit -l) and set PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"* ]]
	run job --rcshare=require --mpi=pmix -N2 -w n0,n1 sh -c \
		"ulimit -l 64; exec $apps/rcs_pingpong --min 1048576 --max 1048576 --iters 1"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"rcshare: rank "*": large messages are copied instead of fetched by RDMA: cannot pin "* ]]
	[[ $output == *"pingpong bytes=1048576 "* ]]
}

@test "a daemon that may lock too little says so before the step; with room for a part of its links the rest is TCP" {
	limit 65536
	run job --rcshare=on -N1 -w n0 echo ran
	echo "$output"
	[[ $output == *"rcshare: n0: not used: cannot pin "*" bytes on each rail: Cannot allocate memory; set memlock_limit in rcshare.conf, or PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; the job runs"* ]]
	[[ $output == *ran* ]]
	limit 1600000
	run job --rcshare=require --mpi=pmix -N3 --ntasks-per-node=1 $apps/rcs_alltoall --iters 40 --max 65536
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *' 0 lost, 0 duplicated, 0 damaged'* ]]
}

# by_hand VICTIM: one of two ranks is killed in a large message; without PMIx, which would end the step
by_hand() {
	local from to
	lab run ctl -- rm -f /tmp/die
	in_background ctl /tmp/die srun --jobid="$id" --overlap --rcshare=require --kill-on-bad-exit=0 \
		-N2 -w n0,n1 -n2 sh -c 'mkdir -p /tmp/die; RCS_TEST_DIR=/tmp/die RCS_TEST_RANK=$SLURM_PROCID \
		RCS_TEST_SIZE=2 exec "$@"' sh $apps/rcs_die "$1" 32m
	# the guests share no folder: addresses are carried by hand
	for from in 0 1; do
		to=$((1 - from))
		eventually 30 lab run n$from -- test -e /tmp/die/addr.$from
		lab get n$from /tmp/die/addr.$from "$BATS_TEST_TMPDIR/addr"
		eventually 30 lab run n$to -- test -d /tmp/die
		lab put n$to "$BATS_TEST_TMPDIR/addr" /tmp/die/new
		lab run n$to -- mv /tmp/die/new /tmp/die/addr.$from
	done
	eventually 60 lab run ctl -- grep -q survives /tmp/die
	lab run ctl -- cat /tmp/die
	lab run n0 -- rm -rf /tmp/die
	lab run n1 -- rm -rf /tmp/die
}

@test "kill -9 in the middle of a large message by RDMA: the other side is told, all others go on" {
	traffic "n0 n1" --max 262144
	by_hand sender
	lab run ctl -- grep -qx 'rank 0 dies' /tmp/die
	# what the daemon has pinned may still be read to its end, and is whole then
	lab run ctl -- grep -qxE 'rank 1 survives: RCS_(OK|ERR_PEER_GONE)' /tmp/die
	by_hand receiver
	lab run ctl -- grep -qx 'rank 1 dies' /tmp/die
	lab run ctl -- grep -qx 'rank 0 survives: RCS_ERR_PEER_GONE' /tmp/die
	traffic_ends
}

@test "a rank killed between LEND and REG leaves no region, and others get their loan" {
	local mine='mrlen 1048576 '
	traffic "n0 n1" --max 262144
	lab run ctl -- rm -f /tmp/lend
	in_background ctl /tmp/lend srun --jobid="$id" --overlap --rcshare=require -N1 -w n0 -n1 \
		env RCS_BAD_WAIT=/tmp/lend.go $apps/rcs_bad lend
	eventually 30 lab run ctl -- grep -q 'region on loan 1: made' /tmp/lend
	eventually 10 lab run n0 -- sh -c "rdma resource show mr | grep -q '$mine'"
	lab run n0 -- touch /tmp/lend.go
	gone() { lab run n0 -- sh -c "! rdma resource show mr | grep -q '$mine'"; }
	eventually 20 gone
	traffic_ends
}
