#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A node with RDMA dies under traffic: the others go on, and nothing of it is left on them.

load helper

conf() { # JSON
	for n in n0 n1 n2; do
		lab run $n -- sh -c "echo '$1' >/etc/rcshare/rcshare.conf"
	done
}

setup() { conf '{"node_timeout_ms": 3000}'; }

teardown() {
	lab start n2 || :
	conf '{"node_timeout_ms": 20000}'
}

said() { # TIMES PATTERN
	[ "$(lab run ctl -- grep -cE "$2" /tmp/job)" -eq "$1" ]
}

clean() { # NODE
	lab run "$1" -- sh -c '! pgrep -x rcshared && ! ls -d /run/rcshare/* && ! rdma resource show qp |
		grep "type RC"' >/dev/null 2>&1
}

@test "a node that is killed is lost to the others, which go on over RDMA" {
	lab run ctl -- rm -f /tmp/job /tmp/until
	in_background ctl /tmp/job salloc --no-kill -N3 --ntasks-per-node=2 srun --no-kill -K0 --rcshare=on \
		--mpi=pmix /opt/rcshare/apps/rcs_survive --until /tmp/until --puts
	eventually 90 said 6 'running$'
	lab kill n2
	eventually 60 said 4 'event 8 node 2 view 1 '
	eventually 60 said 4 ': after 200$'
	for n in n0 n1; do
		lab run $n -- rdma resource show qp | grep -q 'type RC'
		lab run $n -- sh -c 'grep -h node_lost /var/log/rcshare/*/*.jsonl' | grep -q '"peer_host":"n2"'
		lab run $n -- sh -c 'grep -h n2 /var/log/rcshare/*/*.jsonl' | grep -q '"verdict":"peer dead'
		lab run $n -- touch /tmp/until
	done
	eventually 60 said 4 ' messages, 2 ranks lost, 0 wrong$'
	lab run ctl -- sh -c 'cat /tmp/job; scancel -u lab' || :
	for n in n0 n1; do
		eventually 60 clean $n
	done
	lab start n2
	run job -N3 --mpi=pmix --ntasks-per-node=1 --rcshare=require /opt/rcshare/apps/rcs_alltoall --seconds 2
	[[ $output == *' 0 lost, 0 duplicated, 0 damaged'* ]]
}
