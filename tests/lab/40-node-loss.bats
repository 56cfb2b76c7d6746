#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A node with RDMA is lost under traffic: the others go on, nothing of the job is left on any node that
# lives, and Slurm runs the next job.

load helper

conf() { # JSON
	for n in n0 n1 n2; do
		lab run $n -- sh -c "echo '$1' >/etc/rcshare/rcshare.conf"
	done
}

setup() { conf '{"node_timeout_ms": 6000, "start_timeout_ms": 30000}'; }

teardown() {
	for r in 0 1 mgmt; do lab restore n2 $r || :; done
	lab run n2 -- pkill -CONT -x rcshared || :
	lab run ctl -- scancel -u lab || :
	lab start n2 || :
	lab wait-idle 60
	conf '{"node_timeout_ms": 20000, "start_timeout_ms": 30000}'
}

said() { # TIMES PATTERN
	[ "$(lab run ctl -- grep -cE "$2" /tmp/job)" -eq "$1" ]
}

# A job of two ranks a node that goes on without those that are lost, all of them at work.
begin() { # ARG...: of rcs_survive
	for n in n0 n1 n2; do lab run $n -- rm -f /tmp/until; done
	start_job /tmp/job 6 'running$' salloc --no-kill -N3 --ntasks-per-node=2 srun --no-kill -K0 \
		--rcshare=on,keep_step=1 --mpi=pmix /opt/rcshare/apps/rcs_survive --until /tmp/until --puts "$@"
}

lost() {
	eventually 60 said 4 'event 8 node 2 view 1 ' || { account; return 1; }
	eventually 60 said 4 ': after 200$' || { account; return 1; }
	for n in n0 n1; do
		# what must be gone at the end is there now, and seen; a guest that stood still has a lane return
		eventually 60 all_seen $n || { echo "$n has no $what: $seen"; return 1; }
		records $n | grep node_lost | grep -q '"peer_host":"n2"'
	done
}

# What the ranks said and what each daemon wrote down.
account() {
	lab run ctl -- cat /tmp/job
	for n in n0 n1 n2; do
		echo "== $n"
		records $n || :
	done
}

all_seen() { # NODE
	seen=$(left "$1")
	for what in rcshared rcs_survive slurmstepd 'type RC' mrn /run/rcshare/; do
		grep -q "$what" <<<"$seen" || return 1
	done
}

# The living end by themselves; what LEFT does then holds for each node that lives.
survived() { # NODE...: that live
	local n
	for n; do lab run "$n" -- touch /tmp/until; done
	eventually 60 said 4 ' messages, 2 ranks lost, 0 wrong$' || { lab run ctl -- cat /tmp/job; return 1; }
	lab run ctl -- sh -c 'cat /tmp/job; scancel -u lab' || :
	for n; do
		eventually 60 nothing_left "$n" || { left "$n"; return 1; }
		lab run "$n" -- rm -f /tmp/until
	done
	eventually 60 no_jobs
}

# Processes, cgroups, queue pairs and memory of the device, sockets and files.
left() { # NODE
	lab run "$1" -- sh -c 'pgrep -xl "rcshared|rcs_.*|slurmstepd"
		find /sys/fs/cgroup -type d -name rcshared
		rdma resource show qp | grep "type RC"
		rdma resource show mr | grep mrn
		ss -xaH | grep rcshare
		ls -d /run/rcshare/* 2>/dev/null
		true'
}
nothing_left() {
	local found
	found=$(left "$1") && [[ -z $found ]]
}
no_jobs() { [[ -z $(lab run ctl -- squeue -h) ]]; }

next_job() {
	lab wait-idle 60
	lab run ctl -- scontrol ping | grep -q 'UP'
	run job -N3 --mpi=pmix --ntasks-per-node=1 --rcshare=require /opt/rcshare/apps/rcs_alltoall --seconds 1
	echo "$output"
	[[ $output == *' 0 lost, 0 duplicated, 0 damaged'* ]]
}

stopped() { records n2 | grep -q '"partitioned"'; } # the node's own daemon knows
told() { said 2 'rank [45]: .* RCS_ERR_PARTITIONED'; }

# bats test_tags=full
@test "a node that is killed in the middle of large puts is lost to the others, which go on over RDMA" {
	begin --put 4194304
	lab kill n2
	lost
	survived n0 n1
	lab start n2
	next_job
}

@test "a node whose cables are all cut is lost to the others, and stops its ranks when it is back" {
	begin
	for r in 0 1 mgmt; do lab cut n2 $r; done
	# not for longer: it stops its ranks while it is cut, and their words do not reach srun then
	eventually 60 said 4 'event 8 node 2 view 1 '
	for r in 0 1 mgmt; do lab restore n2 $r; done
	lost
	eventually 60 stopped
	eventually 60 told
	survived n0 n1 n2
	next_job
}

# bats test_tags=full
@test "a daemon that is killed takes its ranks with it, and the others lose the node" {
	begin
	lab run n2 -- pkill -KILL -x rcshared
	lost
	grep -q 'rank [45]: .*RCS_ERR_RUNTIME_LOST' <(lab run ctl -- cat /tmp/job)
	survived n0 n1 n2
	next_job
}

@test "a daemon that hangs is lost to the others, and stops its ranks when it goes on" {
	begin
	lab run n2 -- pkill -STOP -x rcshared
	lost
	lab run n2 -- pkill -CONT -x rcshared
	eventually 60 stopped
	eventually 60 told
	survived n0 n1 n2
	next_job
}

# bats test_tags=full
@test "a node that is killed while it recovers from a cut cable" {
	begin --put 1048576
	moving() { records n0 | grep -q '"event":"failover"'; }
	lab cut n2 0
	eventually 30 moving
	lab kill n2
	lost
	survived n0 n1
	lab start n2
	next_job
}

# Its ranks never get to their addresses: the others' PMIx_Get ends with an error, after a minute.
# bats test_tags=full
@test "a node that is killed while the job starts: nothing hangs, nothing is left" {
	lab run ctl -- rm -f /tmp/job
	in_background ctl /tmp/job sh -c 'salloc --no-kill -N3 --ntasks-per-node=2 srun --no-kill -K0 --rcshare=on \
		--mpi=pmix sh -c "[ \$(hostname) != n2 ] || exec sleep 1000
			exec /opt/rcshare/apps/rcs_survive --until /tmp/until --puts"; echo "srun: $?"'
	eventually 60 lab run n2 -- pgrep -x sleep
	for n in n0 n1; do eventually 60 lab run $n -- pgrep -x rcs_survive; done
	lab kill n2
	eventually 150 said 1 '^srun: [0-9]+$'
	lab run ctl -- cat /tmp/job
	lab run ctl -- grep -q PMIx_Get /tmp/job
	for n in n0 n1; do
		eventually 60 nothing_left $n || { left $n; return 1; }
	done
	eventually 60 no_jobs
	lab start n2
	next_job
}
