#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The shapes a job's steps may have: several at once, many in a row, on some of the nodes, with an
# uneven number of ranks; and what may happen to a whole job: arrays, requeue, suspend.

load helpers

setup_file() {
	need_plugin
	for f in "$daemon" "$apps/rcs_alltoall" "$apps/rcs_survive" "$root/build/rcshare"; do
		[[ -x $f ]] || skip "$f is not built: run make all apps"
	done
	bed_up -n 3 --plugin "$(plugin_line daemon="$daemon" config=/run/bed/home/rcshare.conf)"
	echo '{"node_timeout_ms": 20000}' >"$BED_DIR/home/rcshare.conf"
	# What scripts of jobs use: all are right, and the lanes and daemon of each of the job's nodes.
	cat >"$BED_DIR/home/lib" <<-END
		right() {
			srun --rcshare=on --mpi=pmix "\$@" $(bed_app rcs_alltoall) --iters 20 --max 8192
		}
		lanes() {
			srun -n3 -N3 sh -c '$root/build/rcshare status \$SLURM_JOB_ID --json | jq -c "{host, pid,
				lanes: [.nodes[] | select(.lanes) | [.host, (.lanes[] | [.lane, .state, .generation])]]}"' |
				sort
		}
		own_pid() { cat \${RCSHARE_SOCKET%sock}pid; }
		cd
	END
}

teardown_file() {
	bed_down
}

setup() {
	rm -f "$BED_DIR"/home/{first,last,until,out,hosts,array.*,requeue.*}
}

teardown() {
	touch "$BED_DIR/home/until"
	BED_WAIT=60 eventually nothing_left
}

all_right() { # TIMES
	[ "$(grep -cE '^[1-9][0-9]* messages, 0 lost, 0 duplicated, 0 damaged$' <<<"$output")" -eq "$1" ]
}

@test "two steps of one job at the same time do not meet" {
	run batch -N3 -n12 <<-'END'
		. ~/lib
		right --overlap -N3 -n6 & one=$!
		right --overlap -N3 -n6 & two=$!
		wait $one && wait $two
	END
	echo "$output"
	[ "$status" -eq 0 ]
	all_right 2
}

@test "twenty steps one after the other use the first one's daemon and lanes" {
	run batch -N3 -n6 <<-'END'
		. ~/lib
		right -N3 -n6 || exit
		lanes >first
		for i in $(seq 19); do
			right -N3 -n6 || exit
		done
		lanes >last
	END
	cat "$BED_DIR"/home/{first,last}
	[ "$status" -eq 0 ]
	all_right 20
	[ "$(grep -o '"tcp","up"' "$BED_DIR/home/first" | wc -l)" -eq 6 ]
	cmp "$BED_DIR"/home/{first,last}
}

@test "a daemon that died between two steps serves the next one, which begins anew with it" {
	run batch -N3 -n6 <<-END
		. ~/lib
		right -N3 -n6 || exit
		lanes >first
		srun -N1 -n1 -w b1 sh -c 'kill -9 \$($root/build/rcshare status \$SLURM_JOB_ID --json | jq .pid)'
		right -N3 -n6 || exit
		right -N2 -n4 -w b0,b1 || exit
		lanes >last
	END
	echo "$output"
	cat "$BED_DIR"/home/{first,last}
	[ "$status" -eq 0 ]
	all_right 3
	# b1's is another process, the others' are not
	[ "$(comm -12 <(jq -c '[.host, .pid]' "$BED_DIR/home/first" | sort) \
		<(jq -c '[.host, .pid]' "$BED_DIR/home/last" | sort) | grep -c .)" -eq 2 ]
}

@test "steps on some of the job's nodes, before and after one on all" {
	run batch -N3 --ntasks-per-node=2 <<-'END'
		. ~/lib
		right -N2 -n4 -w b1,b2 && right -N3 -n6 && right -N2 -n2 -w b0,b2 && right -N1 -n2 -w b1
		srun -N1 -n1 -w b2 --rcshare=on sh -c 'echo "$SLURM_JOB_NODELIST"'
	END
	echo "$output"
	[ "$status" -eq 0 ]
	all_right 4
	[ "${lines[-1]}" = 'b[0-2]' ]
}

@test "a different number of ranks on each node" {
	run batch -N3 -n12 <<-'END'
		. ~/lib
		printf 'b%s\n' 1 0 1 2 1 2 >hosts
		SLURM_HOSTFILE=hosts right -N3 -n6 --distribution=arbitrary && right -N3 -n4
	END
	echo "$output"
	[ "$status" -eq 0 ]
	all_right 2
}

@test "each task of an array is a job of its own" {
	job=$("$bed" run -- sbatch --parsable --array=0-2 -N2 -n4 -o "$BED_DIR/home/array.%a" <<-'END'
		#!/bin/bash
		. ~/lib
		right -N2 -n4 || exit
		srun -n1 --rcshare=on sh -c 'echo "socket $RCSHARE_SOCKET"'
		until ls array.{0,1,2} >/dev/null 2>&1 && [ $(grep -l ^socket array.* | wc -l) = 3 ]; do
			sleep 0.05
		done
	END
	)
	BED_WAIT=60 eventually array_done
	output=$(cat "$BED_DIR"/home/array.*)
	echo "$output"
	all_right 3
	[ "$(grep ^socket <<<"$output" | sort -u | wc -l)" -eq 3 ]
}

array_done() {
	[ "$(cat "$BED_DIR"/home/array.* | grep -c ^socket)" -eq 3 ]
}

@test "a requeued job has a new daemon, and the old one is gone" {
	job=$("$bed" run -- sbatch --parsable --requeue -N3 -n6 --open-mode=append -o "$BED_DIR/home/requeue.out" <<-'END'
		#!/bin/bash
		. ~/lib
		right -N3 -n6 || exit
		srun -N3 -n3 --rcshare=on sh -c 'cat ${RCSHARE_SOCKET%sock}pid; echo "socket $RCSHARE_SOCKET"
			echo "daemons $(pgrep -cx rcshared) $(ls -d /run/rcshare/*/)"'
		if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
			scontrol requeue $SLURM_JOB_ID
			sleep 60
		fi
		echo finished
	END
	)
	BED_WAIT=60 eventually grep -qx finished "$BED_DIR/home/requeue.out"
	output=$(<"$BED_DIR/home/requeue.out")
	echo "$output"
	all_right 2
	for n in 0 1; do
		[ "$(grep -cx "socket /run/rcshare/$job.$n/sock" <<<"$output")" -eq 3 ]
		[ "$(grep -cx "daemons 1 /run/rcshare/$job.$n/" <<<"$output")" -eq 3 ]
	done
}

stopped() { # as many ranks on b1 are stopped as run there
	local states
	states=$(on_node b1 ps -C rcs_survive -o stat= | cut -c1 | sort | uniq -c | tr -s ' ')
	[ "$states" = ' 2 T' ]
}

logged() { # the job's records on all nodes
	local n
	for n in b0 b1 b2; do
		on_node $n sh -c "cat /var/log/rcshare/$1/*.jsonl 2>/dev/null" || :
	done
}

uptime_of() { # JOB: seconds by its daemon on b1, which answers
	on_node b1 "$root/build/rcshare" status "$1" --json | jq -e '.uptime_ns / 1e9 | floor'
}

later() { # JOB SECONDS
	[ "$(uptime_of "$1")" -ge "$2" ]
}

# The job's nodes are silent for each other if the daemons stop too: node_timeout_ms is short here.
@test "a suspended job loses no node, fails over nothing, and goes on" {
	echo '{"node_timeout_ms": 1000}' >"$BED_DIR/home/rcshare.conf"
	srun -N3 --ntasks-per-node=2 --no-kill -K0 --rcshare=on --mpi=pmix "$(bed_app rcs_survive)" \
		--until "$BED_DIR/home/until" >"$BED_DIR/home/out" 2>&1 3>&- &
	pid=$!
	eventually grep -q 'rank 5: running' "$BED_DIR/home/out"
	job=$("$bed" run -- squeue -h -o %i)
	"$bed" run -u root -- scontrol suspend "$job"
	eventually stopped
	since=$(uptime_of "$job")
	eventually later "$job" $((since + 3))
	"$bed" run -u root -- scontrol resume "$job"
	touch "$BED_DIR/home/until"
	code=0
	wait $pid || code=$?
	echo '{"node_timeout_ms": 20000}' >"$BED_DIR/home/rcshare.conf"
	cat "$BED_DIR/home/out"
	[ "$code" -eq 0 ]
	[ "$(grep -c ' messages, 0 ranks lost, 0 wrong$' "$BED_DIR/home/out")" -eq 6 ]
	not grep -qE 'event|failover' "$BED_DIR/home/out"
	[ -z "$(logged "$job")" ]
}
