# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2016,SC2086,SC2154
#
# The parts of the bench, each a function that calls `figure`. Sourced by `bench`, which runs each in
# a shell of its own with set -e, between two `settle`.

part_hop() { # on this machine, not in the lab
	build/bench/hop >"$out/hop"
	figure "one hop from rank to daemon, spinning" "$(field "$out/hop" ns)" "$(field "$out/hop" line_ns)" \
		"rings and chan_poll of the daemon against a cache line between two processes; half a turn, least disturbed of 51 repeats (medians $(field "$out/hop" median_ns) and $(field "$out/hop" median_line_ns))"
}

# ---- what the ranks of a node share ----------------------------------------------------------------

# of n0: QPs, then KiB: resident and pinned of the daemon, of a channel (all it has in memory, whoever
# touched it), pinned of a rank
holdings() {
	on n0 '
		# while a device proves itself it has queue pairs of the test as well
		j=$(ls /run/rcshare | sed -n "s/\.0$//p" | head -n 1)
		for i in $(seq 200); do
			rcshare status "$j" --json | grep -q "\"ledger\": \"unknown\"" || break
		done
		d=$(cat /run/rcshare/*/pid)
		kib() { awk -v k="$2:" "\$1 == k { print \$2 }" /proc/$1/status; }
		echo $(rdma resource show qp | grep -c "type RC") $(kib $d VmRSS) \
			$(($(kib $d VmPin) + $(kib $d VmLck))) \
			$(for f in /proc/$d/fd/*; do
				case $(readlink $f) in *memfd:rcshare-channel*) stat -L -c %b $f ;; esac
			done | awk "{ n++; s += \$1 / 2 } END { printf \"%.0f\", s / n }") \
			$(for p in $(pgrep -x rcs_start); do
				echo $(($(kib $p VmPin) + $(kib $p VmLck)))
			done | sort -n | tail -n 1)'
}

part_sharing() {
	local r pid ranks qps rss pin chan mine
	for r in 1 4 16; do
		ranks="$r ranks"
		((r > 1)) || ranks="1 rank"
		rcs "$out/sharing" 100 -N3 --ntasks-per-node=$r $apps/rcs_start --eager --idle 8 &
		pid=$!
		begun "$out/sharing" '^idle' 90 $pid
		read -r qps rss pin chan mine < <(holdings)
		figure "RC QPs a node, $ranks" "$qps" 4 \
			"baseline: rails x (nodes-1); a QP for each pair of ranks would be $((r * r * 2))"
		figure "resident memory of the daemon, $ranks" "$rss" '' "after 21 all-to-alls of 64 B"
		figure "pinned memory of the daemon, $ranks" "$pin" '' ""
		figure "resident memory of a channel, $ranks" "$chan" '' "of 2308 KiB mapped; never pinned"
		figure "pinned memory of a rank, $ranks" "$mine" '' ""
		wait $pid
		eventually 60 "the end of the job" no_job
	done
}

part_idle() {
	local pid a b ta tb
	cpu() { on n0 'cut -d" " -f14,15 /proc/$(cat /run/rcshare/*/pid)/stat | tr " " +; cat /proc/uptime'; }
	rcs "$out/idle" 120 -N3 --ntasks-per-node=4 $apps/rcs_start --eager --idle 28 &
	pid=$!
	begun "$out/idle" '^idle' 60 $pid
	tick 2
	{ read -r a; read -r ta _; } < <(cpu)
	tick 20
	{ read -r b; read -r tb _; } < <(cpu)
	figure "CPU of an idle job's daemon" "$(calc "(($b) - ($a)) / ($tb - $ta)")" '' \
		"4 ranks a node attached; of an emulated core, over 20 s in ticks of 10 ms"
	wait $pid
}

# ---- start and messages ----------------------------------------------------------------------------

part_start() {
	local i base=() mine=()
	for ((i = 0; i < 3; i++)); do
		job "$out/start.pmix" 100 --mpi=pmix -N3 --ntasks-per-node=16 $apps/pmix_start
		base+=("$(sed -n 's/.*ready_ms=//p' "$out/start.pmix" | sort -g | tail -n 1)")
		rcs "$out/start.rcs" 100 -N3 --ntasks-per-node=16 $apps/rcs_start --eager --rounds 1
		mine+=("$(field "$out/start.rcs" ready_ms)")
	done
	figure "open and meet all pairs, 16 ranks" "$(printf '%s\n' "${mine[@]}" | median)" \
		"$(printf '%s\n' "${base[@]}" | median)" \
		"PMIx_Init, endpoint, first message of all 48 x 48 pairs, slowest rank; baseline: PMIx_Init and a collecting fence; medians of 3 (${mine[*]} against ${base[*]})"
}

part_messages() {
	local i two='-N2 -w n0,n1' base=() mine=() f=$out/messages
	pingpong() { rcs "$f" 100 $two --ntasks-per-node=1 $apps/rcs_pingpong --min "$1" --max "$1" --iters "$2"; }
	three() { # NAME SCALE NOTE: what mine and base hold
		figure "$1" "$(printf '%s\n' "${mine[@]}" | median)" "$(printf '%s\n' "${base[@]}" | median)" \
			"$2; medians of 3 (${mine[*]} against ${base[*]})"
		base=() mine=()
	}
	for ((i = 0; i < 3; i++)); do
		base+=("$(perftest ib_send_lat -s 8 -n 1000 | awk '{ print $6 }')")
		pingpong 8 1000
		mine+=("$(field "$f" latency_us)")
	done
	three "8 B one way" "half a round trip, against ib_send_lat"
	for ((i = 0; i < 3; i++)); do
		base+=("$(perftest ib_write_bw -s 4194304 -n 20 | awk '{ print $4 }')")
		pingpong 4194304 20
		mine+=("$(calc "int(419430400 / $(field "$f" latency_us)) / 104.8576")")
	done
	three "4 MiB messages, one at a time" "against ib_write_bw with many under way"
	for ((i = 0; i < 3; i++)); do
		base+=("$(perftest ib_send_bw -s 64 -n 5000 | awk '{ printf "%.0f", $5 * 1e6 }')")
			rcs "$f" 100 $two --ntasks-per-node=8 $apps/rcs_rate --size 64 --count 5000
		mine+=("$(field "$f" messages_per_s)")
	done
	three "64 B messages, 8 ranks to one node" "received and checked at 8 ranks, against one ib_send_bw -s 64"
}

# ---- failures --------------------------------------------------------------------------------------

# Both links of n0 carry on rail 0.
on_rail0() {
	on n0 "rcshare status $1 --json" | jq -e '[.nodes[] | select(.lane == 0)] | length == 2' >/dev/null
}

# Records of failovers of rail 0 between n0 and others since line LINE of each node's log.
moved() { # JOB LINES...
	local n i=1
	for n in n0 n1 n2; do
		i=$((i + 1))
		on $n "tail -qn +$((${!i} + 1)) /var/log/rcshare/$1/*.jsonl 2>/dev/null" || :
	done | jq -c 'select(.event == "failover" and .lane == 0 and .had_traffic
		and (.host == "n0" or .peer_host == "n0"))' >"$out/moved"
	# each link was seen by both ends
	jq -s -e '[.[] | "\(.host) \(.peer_host)"] | unique | length == 4' "$out/moved" >/dev/null
}

# failures KIND FILE: ten times; a link's blackout is that of its end that stood still longer
failures() {
	local i n lines
	: >"$2"
	for ((i = 0; i < ${BENCH_TRIALS:-10}; i++)); do
		eventually 60 "the return to rail 0" on_rail0 "$id"
		tick 2 # Linux spaces changes of a carrier by 1 s, and the rail has to prove itself
		lines=()
		for n in n0 n1 n2; do
			lines+=("$(on $n "cat /var/log/rcshare/$id/*.jsonl 2>/dev/null | wc -l")")
		done
		if [[ $1 == cut ]]; then
			$lab cut n0 0
		else
			$lab drop n0 0 in
			$lab drop n0 0 out
		fi
		eventually 30 "the failover" moved "$id" "${lines[@]}" || :
		if [[ $1 == cut ]]; then $lab restore n0 0; else $lab undrop n0 0; fi
		jq -s -c '[.[] | . + {link: (if .host == "n0" then .peer_host else .host end)}] | group_by(.link)[] |
			max_by(.blackout_ns // 0) | {reason, blackout: .blackout_ns, notice: .notice_ns}' "$out/moved" >>"$2"
	done
}

three_durations() { # NAME FILE NOTE
	local note
	note="$3; reasons: $(jq -r .reason "$2" | sort | uniq -c | awk '{ printf "%s%s %s", s, $1, $2; s = ", " }'); longest $(jq -s '[.[].blackout // 0] | max / 1e6 | round' "$2") ms"
	figure "$1: blackout" "$(jq '.blackout // empty | . / 1e6' "$2" | median)" '' "$note"
	figure "$1: noticing" "$(jq 'select(.blackout and .notice) | .notice / 1e6' "$2" | median)" '' \
		"last acknowledgement to notice, median of the same"
	figure "$1: recovery" "$(jq 'select(.blackout and .notice) | (.blackout - .notice) / 1e6' "$2" | median)" '' \
		"notice to the first frame acknowledged elsewhere"
}

part_blackout() {
	local pid id trials=${BENCH_TRIALS:-10}
	rcs "$out/blackout" 500 -N3 --ntasks-per-node=2 $apps/rcs_alltoall --seconds 480 --max 4096 2>/dev/null &
	pid=$!
	begun "$out/blackout" '^round' 60 $pid
	id=$(job_id)
	failures cut "$out/cuts"
	three_durations "cut cable" "$out/cuts" "$trials cuts, two links each, the end that stood still longer"
	failures drop "$out/drops"
	three_durations "silent loss" "$out/drops" "$trials times all frames of the rail lost, likewise"
	$lab run ctl -t 20 -- scancel "$id"
	wait $pid || :
}

# ---- what a job has today --------------------------------------------------------------------------

part_mpi() {
	local i pid f=$out/mpi r=$out/mpi.rcs first=() more=() qps pin mine at told
	local ucx="UCX_TLS=rc_v,self,sm UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=1 UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_RC_VERBS_RETRY_COUNT=6"
	pinned() { on n0 'for p in $(pgrep -x "'"$1"'"); do grep -hE "^Vm(Pin|Lck)" /proc/$p/status; done | awk "{ s += \$2 } END { print s + 0 }"'; }
	rc_qps() { on n0 'rdma resource show qp | grep -c "type RC"'; }
	here() { on n0 'test -x /opt/rcshare/bench/mpi_alltoall' || { echo "this image has no mpich (VARIANT=bench)" >&2; return 1; }; }
	here
	for ((i = 0; i < 3; i++)); do
		rcs "$r" 100 -N3 --ntasks-per-node=8 $apps/rcs_start --eager
		first+=("$(field "$r" ready_ms)") more+=("$(field "$r" rounds_ms)")
	done
	rcs "$r" 120 -N3 --ntasks-per-node=8 $apps/rcs_start --eager --seconds 20 &
	pid=$!
	begun "$r" '^round' 90 $pid
	qps=$(rc_qps) mine=$(pinned 'rcshared|rcs_start')
	$lab cut n0 0
	wait $pid
	$lab restore n0 0
	figure "cut cable: longest all-to-all" "$(sed -n 's/.*rounds, longest round \(.*\) ms/\1/p' "$r" | sort -g | tail -n 1)" \
		'' "8 ranks a node over rcshare, all messages checked; the job went on"
	eventually 60 "the end of the job" no_job

	# One run: it takes minutes where CPUs are few.
	$lab run ctl -u lab -t 420 -- env $ucx srun -K --mpi=pmi2 -N3 --ntasks-per-node=8 \
		sh -c "ulimit -c 0; exec $benches/mpi_alltoall --seconds 60" >"$f" 2>&1 &
	pid=$!
	begun "$f" '^start' 330 $pid
	figure "start and first all-to-all, 8 ranks" "$(printf '%s\n' "${first[@]}" | median)" "$(field "$f" ready_ms)" \
		"from main(), slowest rank; baseline: MPICH over UCX rc, one run; rcshare median of 3 (${first[*]})"
	figure "20 further all-to-alls of 64 B, 8 ranks" "$(printf '%s\n' "${more[@]}" | median)" \
		"$(field "$f" rounds_ms)" "likewise (${more[*]})"
	figure "RC QPs a node, 8 ranks" "$qps" "$(rc_qps)" "two rails; MPICH over UCX: one"
	figure "pinned memory of a node, 8 ranks" "$mine" "$(pinned mpi_alltoall)" \
		"daemon and ranks; baseline: ranks of MPICH over UCX"
	begun "$f" '^going on' 60 $pid
	$lab cut n0 0
	at=$(clock) told=
	while kill -0 $pid 2>/dev/null; do
		[[ -n $told ]] || ! grep -q 'retry counter exceeded' "$f" || told=$(calc "$(clock) - $at")
		tick
	done
	wait $pid && i=0 || i=$?
	$lab restore n0 0
	if ((i != 0 && i != 124)); then
		figure "cut cable: the job over MPICH is dead" "$(calc "$(clock) - $at")" '' \
			"MPICH over UCX, one rail, retry count 6; first error after ${told:-?} s"
	else
		figure "cut cable: the job over MPICH is dead" '' '' "it did not notice the cut within its time"
	fi
}
