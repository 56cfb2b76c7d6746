#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A job brings a spare: a node with RDMA is killed, the spare takes over its ranks, the result is the one that
# it is without a loss.

load helper

conf() { # JSON
	for n in n0 n1 n2; do
		lab run $n -- sh -c "echo '$1' >/etc/rcshare/rcshare.conf"
	done
}

setup_file() {
	conf '{"node_timeout_ms": 20000, "start_timeout_ms": 30000}'
	lab run n0 -- rm -f /tmp/right
	job -N2 --ntasks-per-node=2 --mpi=pmix --rcshare=require /opt/rcshare/apps/rcs_ckpt --result /tmp/right
}

setup() { conf '{"node_timeout_ms": 6000, "start_timeout_ms": 30000}'; }

teardown() {
	lab run ctl -- scancel -u lab || :
	lab start n1 || :
	lab start n2 || :
	lab wait-idle 60
	conf '{"node_timeout_ms": 20000, "start_timeout_ms": 30000}'
}

said() { # TIMES PATTERN
	[ "$(lab run ctl -- grep -cE "$2" /tmp/job)" -eq "$1" ]
}

# Two ranks on n0, two on n1, n2 stands by; rank 0 waits half way.
begin() {
	lab run n0 -- rm -f /tmp/go /tmp/result
	start_job /tmp/job 1 'rank 0: holds' salloc --no-kill -N3 --ntasks-per-node=2 srun --no-kill -K0 --mpi=pmix \
		--rcshare=on,spares=1 /opt/rcshare/apps/rcs_ckpt --result /tmp/result --hold /tmp/go
}

clean() { # NODE
	lab run "$1" -- sh -c '! pgrep -x rcshared && ! pgrep -x rcs_ckpt && ! ls -d /run/rcshare/* &&
		! rdma resource show qp | grep "type RC"' >/dev/null 2>&1
}

ends_right() { # NODE...: that live
	local n
	lab run n0 -- touch /tmp/go
	eventually 60 said 4 '^rank [0-3]: done'
	[ "$(lab run n0 -- cat /tmp/result)" = "$(lab run n0 -- cat /tmp/right)" ]
	lab run ctl -- sh -c 'cat /tmp/job; scancel -u lab' || :
	for n; do
		eventually 60 clean "$n"
	done
}

@test "a node is killed: the spare has its ranks, and the result is right" {
	begin
	lab kill n1
	eventually 60 said 2 '^rank [23]: replacement, incarnation 1'
	eventually 60 said 4 ': begins at iteration .* epoch 2$'
	lab run n0 -- sh -c 'cat /var/log/rcshare/*/*.jsonl' | jq -se 'any(.event == "node_replaced" and
		.peer_host == "n2" and .index == 1 and .incarnation == 1 and .first_rank == 2 and .ranks == 2)'
	lab run n0 -- rdma resource show qp | grep -q 'type RC'
	ends_right n0 n2
}

# bats test_tags=full
@test "a spare that is killed before it is needed is not missed" {
	begin
	lab kill n2
	eventually 60 lab run n0 -- sh -c 'cat /var/log/rcshare/*/*.jsonl | grep node_lost | grep -q n2'
	ends_right n0 n1
	! said 1 'replacement'
}

# bats test_tags=full
@test "a spare that is killed after it was needed is one loss too many, and is told so" {
	begin
	lab kill n1
	eventually 60 said 4 ': begins at iteration .* epoch 2$'
	lab kill n2
	eventually 60 said 2 '^rank [01]: no spare is left for ranks 2 to 3$'
	lab run ctl -- sh -c 'cat /tmp/job; scancel -u lab' || :
	eventually 60 clean n0
}
