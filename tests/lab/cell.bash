# SPDX-License-Identifier: BSD-3-Clause
#
# One cell of the failover matrix: a job of three nodes with one kind of load, one failure at n1, its end.
# Sourced by `matrix` and 25-matrix.bats, inside a boot. $lab is the lab's script.
#
#	cell CAUSE[+CAUSE]... KIND RAILS	prints the cell as JSON; status 0: its result is "ok"
#
# Several causes are made one after the other in one job, whose start and end cost most: a line of JSON
# each. What is wrong at the job's end is so for all of them. One that fails is the last, and alone then:
# of those before it nothing is known, as the program's checks come at the end.
#
# The program's own checks decide, and that what should happen was seen to happen: the failover in n1's
# event log, rounds of the load after it, the lane back. What does not come within $bound seconds is the
# cell's result; the job is ended then, every cable put back, and what there is to see kept in
# $keep/SUITE.CAUSE.KIND.RAILS. CELL_KEEP=FOLDER keeps that of every cell there.

causes=(cut port loss-in loss nic flap both)
kinds=(message put get atomic mixed)
bound=${CELL_BOUND:-60}
keep=${CELL_KEEP:-build/lab-matrix}

# ---- waiting -------------------------------------------------------------------------------------------

# within WHAT CMD...: until CMD succeeds; else the cell's reason is that WHAT did not come. The end of the
# job is the end of the waiting: nothing follows it.
within() {
	local end=$((SECONDS + bound)) what=$1
	shift
	until "$@"; do
		if [[ -n $srun ]] && ! kill -0 "$srun" 2>/dev/null; then
			! "$@" || break
			reason="the job ended before: $what"
			return 1
		fi
		((SECONDS < end)) || { reason="not within $bound s: $what"; return 1; }
		read -rt 0.1 <> <(:) || :
	done
	said "$what"
}

said() { echo "$(date +%T.%N | cut -c1-12) $1" >>"$dir/steps"; }

# ---- what can be seen ----------------------------------------------------------------------------------

ready() { grep -q '^ready' "$dir/out"; }
rounds() { grep -c '^round ' "$dir/out" || true; }
more_rounds() { (($(rounds) > $1)); }

port() { # RAIL STATE
	[[ $("$lab" run n1 -- rdma link show "rxe$1/1" 2>/dev/null) == *" state $2 "* ]]
}
ports_up() { port 0 ACTIVE && port 1 ACTIVE; }

# n1's links have all their lanes.
lanes_up() {
	"$lab" run n1 -- rcshare status "$id" --json 2>/dev/null | jq -e --argjson rails "$rails" '
		[.nodes[] | select(.state != "self") | .lanes[:$rails][] | .state == "up" and .usable] |
		length == 2 * $rails and all' >/dev/null 2>&1
}

# The event log of a node, without what was there before the failure.
events() { # NODE
	"$lab" run "$1" -- sh -c "tail -q -n +$((${seen[$1]:-0} + 1)) /var/log/rcshare/$id/*.jsonl 2>/dev/null"
}

# For both of n1's links holds what jq says of their records.
both_links() {
	events n1 | jq -se "[group_by(.peer_host)[] | select(.[0].peer_host) | $1] | length == 2 and all" >/dev/null
}
moved() {
	case $cause in
	both) both_links 'any(.event == "failover" and .to_rail == "tcp")' ;;
	flap) both_links 'any(.event == "failover" and .lane == 0)' ;;
	*) last_of 0 failover ;;
	esac
}
last_of() { # RAIL EVENT
	both_links "[.[] | select(.lane == $1 and (.event == \"failover\" or .event == \"lane_back\"))] | last.event == \"$2\""
}

# on_nodes CMD...: CMD NODE for all nodes at once (a command in a busy guest takes half a second);
# its output in $dir/CMD.NODE. False where one of them was.
on_nodes() {
	local n p rc=0
	local -a pids=()
	for n in n0 n1 n2; do
		"$1" $n >"$dir/$1.$n" 3>&- &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p" || rc=1; done
	return $rc
}

left_none() {
	"$lab" run "$1" -- sh -c '! pgrep -x rcshared && ! ls -d /run/rcshare/*.0' >/dev/null 2>&1
}
nobody_left() { on_nodes left_none; }

# ---- failures of n1 --------------------------------------------------------------------------------------

fail() {
	local i
	case $cause in
	cut) "$lab" cut n1 0 ;;
	port) "$lab" run n1 -- ip link set rail0 down ;;
	loss-in) "$lab" drop n1 0 in ;;
	loss) "$lab" drop n1 0 in && "$lab" drop n1 0 out ;;
	nic) "$lab" nic-remove n1 0 ;;
	both) "$lab" cut n1 0 && "$lab" cut n1 1 ;;
	flap)
		for i in {1..10}; do
			"$lab" cut n1 0
			within "port down, flap $i" port 0 DOWN || return
			"$lab" restore n1 0
			within "port up, flap $i" port 0 ACTIVE || return
		done
		;;
	esac
}

# What comes back first; of two rails that failed it is the one that was not in use.
back_rail() {
	[[ $cause == both && $rails == 2 ]] && echo 1 || echo 0
}

heal() {
	case $cause in
	cut) "$lab" restore n1 0 ;;
	port) "$lab" run n1 -- ip link set rail0 up ;;
	loss*) "$lab" undrop n1 0 ;;
	nic)
		# the removal waits for the last open context
		within "the NIC gone" nic_gone || return
		"$lab" nic-rescan n1
		;;
	both) "$lab" restore n1 "$(back_rail)" ;;
	esac
}
nic_gone() { ! "$lab" run n1 -- test -e /sys/class/net/rail0; }

heal_all() {
	local r
	for r in 0 1; do
		"$lab" undrop n1 $r
		"$lab" restore n1 $r
	done
	"$lab" run n1 -- sh -c 'for r in 0 1; do ip link set rail$r up; done' 2>/dev/null ||
		"$lab" nic-rescan n1
	within "both ports of n1 up again" ports_up
}

# What the daemons say goes to syslog: the nodes have one while there are cells.
syslog_start() {
	local n
	for n in n0 n1 n2; do
		"$lab" run $n -- sh -c '[ -S /dev/log ] || busybox syslogd -O /var/log/messages'
	done
}

# A path that fails again and again is left alone for up to half a minute: here for two seconds.
quick() { [[ $all == *flap* || $all == *+* ]]; }
conf() { # NODE [MORE]: the lab's own settings, and more
	"$lab" run "$1" -- sh -c "echo '{\"node_timeout_ms\": 20000, \"start_timeout_ms\": 30000${2:-}}' >/etc/rcshare/rcshare.conf"
}
configure() { conf "$1" ', "hold_down_max_ms": 2000'; }
configure_no_more() { conf "$1"; }

# ---- the cell ------------------------------------------------------------------------------------------

held() { [[ $kind == put || $kind == mixed ]] && [[ $all != *nic* ]]; }
begun() { if held; then ready; else more_rounds 0; fi; }

# Slurm's PMIx plugin may refuse a connection at the start of a step (helper.bash, job): tried again.
start() {
	local try
	local -a args=(--kind "$kind" --region --seconds 600)
	# Nobody can tell what a device did that is gone: its puts may run again.
	[[ $all != *nic* ]] || args+=(--replay)
	# Nor, until its self-test has ended, of any device: a lane that a busy host takes down before finds no put.
	! held || args+=(--hold)
	for try in 1 2 3; do
		reason=''
		"$lab" run ctl -u lab -t 700 -e SLURM_PMIX_TIMEOUT=20 -e RCSHARE_LOG_LEVEL=info -- srun -J cell \
			--rcshare="require$([[ $rails == 2 ]] || echo ,rails=1)" --mpi=pmix -N3 --ntasks-per-node=2 \
			/opt/rcshare/apps/rcs_rma "${args[@]}" >"$dir/out" 2>&1 3>&- &
		srun=$!
		within "the load begins" begun && break
		kill -0 "$srun" 2>/dev/null && return 1
		grep -q '_direct_conn_establish: .*: Connection reject' "$dir/out" && ((try < 3)) || return 1
		wait "$srun" || true
	done
	id=$("$lab" run ctl -- squeue -h -n cell -o %i | tail -n 1)
	[[ -n $id ]] || { reason="no job in the queue"; return 1; }
	held || return 0
	bound=150 within "the devices proven" all_proven || return
	"$lab" run ctl -u lab -- scancel -s USR2 "$id"
	within "the first round" more_rounds 0
}
node_proven() {
	"$lab" run "$1" -- rcshare status "$id" --json | jq -e 'all(.rails[]; .ledger != "unknown")' >/dev/null
}
all_proven() { on_nodes node_proven; }

# One failure and its end: the failover, rounds after it, the lane back, rounds after that.
run_cause() {
	local n before
	# counted first: a lane that a busy host takes down between the two is not missed
	seen=()
	on_nodes events || true
	for n in n0 n1 n2; do seen[$n]=$(wc -l <"$dir/events.$n"); done
	within "all lanes of n1 before $cause" lanes_up || return
	before=$(rounds)
	said "the failure is made: $cause"
	fail || { reason=${reason:-"the failure could not be made"}; return 1; }
	within "the failover in n1's log" moved || return
	before=$(rounds)
	within "rounds after the failover" more_rounds "$before" || return
	heal || { reason=${reason:-"it could not be healed"}; return 1; }
	within "the lane back" last_of "$(back_rail)" lane_back || return
	before=$(rounds)
	within "rounds after the return" more_rounds "$before" || return
	figures >>"$dir/figures"
	# the other one
	[[ $cause != both ]] || "$lab" restore n1 $((1 - $(back_rail)))
}

run_cell() {
	local n end
	within "both ports of n1" ports_up || return
	! quick || on_nodes configure || return
	start || return
	for cause in ${all//+/ }; do
		run_cause || { figures >"$dir/figures"; return 1; }
	done
	"$lab" run ctl -u lab -- scancel -s USR1 "$id"
	end=$((SECONDS + bound))
	while kill -0 "$srun" 2>/dev/null; do
		((SECONDS < end)) || { reason="not within $bound s: the job's end"; return 1; }
		read -rt 0.1 <> <(:) || :
	done
	n=0
	wait "$srun" || n=$?
	srun=
	said "the job's end"
	((n == 0)) || { reason="srun ended with $n"; return 1; }
	grep -q '^rma: .* 0 lost, 0 doubled, 0 damaged, 0 wrong$' "$dir/out" || {
		reason=$(grep '^rma: ' "$dir/out" || echo 'no summary of the program')
		return 1
	}
	within "the daemons' end" nobody_left
}

# What a cell that failed leaves to be read; then its job is ended.
evidence() {
	local n
	for n in n0 n1 n2; do
		"$lab" run $n -- sh -c 'cat /var/log/messages; dmesg | tail -n 40' >"$dir/messages.$n" || true
	done
	[[ -n $srun && -n $id ]] && kill -0 "$srun" 2>/dev/null || return 0
	on_nodes status || true
	on_nodes stacks || true
}
status() { "$lab" run "$1" -t 20 -- rcshare status "$id" --json; }
# shellcheck disable=SC2016
stacks() {
	"$lab" run "$1" -t 60 -- sh -c 'for p in $(pgrep -x "rcshared|rcs_rma"); do
		echo "== $p $(cat /proc/$p/comm)"; gdb -p $p -batch -ex "thread apply all bt" 2>/dev/null; done'
}

end_job() {
	local end=$((SECONDS + 30))
	"$lab" run ctl -t 20 -- scancel -n cell || true
	[[ -n $srun ]] || return 0
	while kill -0 "$srun" 2>/dev/null && ((SECONDS < end)); do read -rt 0.1 <> <(:) || :; done
	kill "$srun" 2>/dev/null || true
	wait "$srun" 2>/dev/null || true
	srun=
}

# Worst of the failovers at either end of n1's links; sums of the rest over all nodes.
figures() {
	on_nodes events || true
	jq -cs --arg suite "${SUITE:-bookworm}" --arg cause "$cause" --arg kind "$kind" --argjson rails "$rails" \
		'
		def ms: if . == null then null else . / 1e4 | round / 100 end;
		[.[] | select(.event == "failover")] as $f |
		[$f[] | select(.had_traffic and .lane != 4 and (.host == "n1" or .peer_host == "n1"))] as $worst |
		[.[] | select(.event == "ledger")] as $l |
		{suite: $suite, cause: $cause, kind: $kind, rails: $rails, result: null,
		 notice_ms: ([$worst[].notice_ns // empty] | max | ms),
		 blackout_ms: ([$worst[].blackout_ns // empty] | max | ms),
		 frames_resent: ([$f[].frames_resent] | add // 0),
		 puts_by_ledger: ([$l[].puts_by_ledger] | add // 0),
		 puts_replayed: ([$l[].puts_replayed] | add // 0)}' "$dir"/events.n?
}

cell() {
	local all=$1 cause=${1%%+*} kind=$2 rails=$3 id='' srun='' reason='' result=ok dir
	local -A seen=()
	dir=$keep/${SUITE:-bookworm}.$all.$kind.$rails
	rm -rf "$dir"
	mkdir -p "$dir"
	: >"$dir/out"
	if ! run_cell; then
		result=${reason:-failed}
		evidence
		heal_all >&2 || true
		end_job
		within "the daemons' end" nobody_left || true
	fi
	! quick || on_nodes configure_no_more
	within "both ports of n1 at the end" ports_up || [[ $result != ok ]] || result=$reason
	[[ -s $dir/figures ]] || figures >"$dir/figures"
	jq -c --arg result "$result" '.result = $result' "$dir/figures"
	[[ $result == ok ]] || return 1
	[[ -n ${CELL_KEEP:-} ]] || rm -rf "$dir"
}
