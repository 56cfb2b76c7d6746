# SPDX-License-Identifier: BSD-3-Clause
#
# For the lab's bats files: `load helper`. They run inside one boot: `lab with bats tests/lab`.

# One boot is shared, so a file begins and ends with every cable in place.
lab() { "$BATS_TEST_DIRNAME/lab" "$@"; }

# eventually SECONDS CMD...: until CMD succeeds. A test waits for a state, never for a time.
eventually() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < end)) || { echo "never came true: $*"; return 1; }
		sleep 0.1
	done
}

# in_background NODE FILE CMD...: runs CMD on NODE as user lab, its output in FILE there.
in_background() {
	local node=$1 file=$2
	shift 2
	# shellcheck disable=SC2016
	lab run "$node" -u lab -- sh -c 'f=$1; shift; "$@" >"$f" 2>&1 & echo $! >"$f.pid"' sh "$file" "$@"
}

end_background() { # NODE FILE
	# shellcheck disable=SC2016
	lab run "$1" -- sh -c 'kill $(cat "$1.pid") 2>/dev/null; true' sh "$2"
}

port_state() { # NODE RAIL -> ACTIVE, DOWN or nothing
	lab run "$1" -- rdma link show "rxe$2/1" 2>/dev/null | sed -n 's/.* state \([A-Z]*\) .*/\1/p'
}

port_is() { [[ $(port_state "$1" "$2") == "$3" ]]; }

address() { # NODE RAIL
	printf '10.77.%d.%d' $(($2 + 1)) $((10 + ${1#n}))
}

pingpong() { # FROM TO RAIL [ITERATIONS]
	local f=/tmp/pingpong.$RANDOM
	in_background "$2" $f ibv_rc_pingpong -d "rxe$3" -g 1 -m 4096 -n "${4:-100}"
	# It listens when its TCP socket does.
	eventually 10 lab run "$2" -- sh -c 'ss -Hltn sport = :18515 | grep -q .'
	lab run "$1" -u lab -t 30 -- ibv_rc_pingpong -d "rxe$3" -g 1 -m 4096 -n "${4:-100}" \
		"$(address "$2" "$3")"
}

# job [-t SECONDS] ARG...: srun as user lab. Slurm's PMIx plugin has a race at the start of a step: while
# slurmstepd stands in the user's shoes it cannot verify the credential of another node's direct
# connection, refuses it, and the first fence hangs (seen with 22.05; a few in a hundred on a busy
# host, more with PMIxDirectConnEarly). That, and only that, is tried again.
pmix_refused='_direct_conn_establish: .*: Connection reject'
job() {
	local seconds=120 try rc out
	if [[ $1 == -t ]]; then
		seconds=$2
		shift 2
	fi
	out=$(mktemp)
	for try in 1 2 3; do
		rc=0
		lab run ctl -u lab -t "$seconds" -e SLURM_PMIX_TIMEOUT=20 -- srun "$@" >"$out" 2>&1 || rc=$?
		((rc)) && grep -q "$pmix_refused" "$out" || break
		echo "# try $try: Slurm's PMIx plugin refused a connection" >&2
	done
	cat "$out"
	rm -f "$out"
	return $rc
}

# proven NODE...: the self-test of their devices has ended. Until then nobody can tell which puts a lane that died
# has executed, and such a put ends with RCS_ERR_AMBIGUOUS.
proven() {
	local n
	for n; do
		lab run "$n" -- rcshare status "$id" --json | jq -e 'all(.rails[]; .ledger != "unknown")' >/dev/null || return 1
	done
}

# start_job FILE TIMES PATTERN CMD...: CMD on ctl in the background, until PATTERN stands TIMES times in FILE
# there, what CMD says. Tried again as in job.
start_job() {
	local file=$1 times=$2 pattern=$3 try
	shift 3
	runs() { [[ $(lab run ctl -- grep -cE -- "$pattern" "$file") -ge $times ]]; }
	refused() { lab run ctl -- grep -q "$pmix_refused" "$file"; }
	runs_or_not() { runs || refused; }
	for try in 1 2 3; do
		lab run ctl -- rm -f "$file"
		in_background ctl "$file" "$@"
		eventually 90 runs_or_not || break
		if ! refused; then
			id=$(lab run ctl -- squeue -h -o %i | tail -n 1)
			return
		fi
		echo "# try $try: Slurm's PMIx plugin refused a connection" >&2
		lab run ctl -- scancel -u lab
		lab wait-idle 60
	done
	lab run ctl -- cat "$file"
	return 1
}

# traffic NODES [ARG...]: rcs_alltoall of two ranks on each node, n0 among them, at work when this returns,
# until traffic_ends; $id is its job
traffic() {
	local -a nodes
	read -ra nodes <<<"$1"
	shift
	lab run n0 -- rm -f /tmp/until
	start_job /tmp/job 1 '^round' srun --rcshare=require --mpi=pmix -N${#nodes[@]} -w "$(IFS=,; echo "${nodes[*]}")" \
		--ntasks-per-node=2 /opt/rcshare/apps/rcs_alltoall --seconds 300 --until /tmp/until "$@"
}

# nothing lost, doubled or damaged; nothing left behind
traffic_ends() {
	lab run n0 -- touch /tmp/until
	eventually 120 lab run ctl -- grep -q 'messages,' /tmp/job || { lab run ctl -- cat /tmp/job; return 1; }
	lab run ctl -- cat /tmp/job
	lab run ctl -- grep -q ' 0 lost, 0 duplicated, 0 damaged' /tmp/job
	eventually 60 none_left n0 n1 n2
}

# No daemon, folder, queue pair or region of a job.
none_left() { # NODE...
	local n
	for n; do
		lab run "$n" -- sh -c '! pgrep -x rcshared && ! ls -d /run/rcshare/*.0 &&
			! rdma resource show qp | grep "type RC" && ! rdma resource show mr | grep mrn' \
			>/dev/null 2>&1 || return 1
	done
}

records() { lab run "$1" -- sh -c "cat /var/log/rcshare/$id/*.jsonl 2>/dev/null"; } # NODE
