# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2016,SC2086,SC2154
#
# The parts of the bench that break something: `blackout`, `node`. Sourced by `bench`, as parts.sh is.

# ---- rails -----------------------------------------------------------------------------------------

# The link of n0 to n1 carries on rail 0 (that to n2 on rail 1: links spread), and is the one looked at.
on_rail0() {
	on n0 "rcshare status $1 --json" | jq -e '[.nodes[] | select(.lane == 0)] | length == 1' >/dev/null
}

# Records of failovers of rail 0 between n0 and n1 since line LINE of each node's log.
moved() { # JOB LINES...
	local n i=1
	for n in n0 n1 n2; do
		i=$((i + 1))
		on $n "tail -qn +$((${!i} + 1)) /var/log/rcshare/$1/*.jsonl 2>/dev/null" || :
	done | jq -c 'select(.event == "failover" and .lane == 0 and .had_traffic
		and (.host == "n0" or .peer_host == "n0"))' >"$out/moved"
	# both ends have seen it
	jq -s -e '[.[] | "\(.host) \(.peer_host)"] | unique | length == 2' "$out/moved" >/dev/null
}

no_rail0() { ! on n0 'test -e /sys/class/net/rail0'; }

harm() { # CAUSE
	case $1 in
	cut) $lab cut n0 0 ;;
	port) on n0 'ip link set rail0 down' ;;
	nic) $lab nic-remove n0 0 ;;
	loss) $lab drop n0 0 in && $lab drop n0 0 out ;;
	esac
}

heal() { # CAUSE
	case $1 in
	cut) $lab restore n0 0 ;;
	port) on n0 'ip link set rail0 up' ;;
	# the removal waits for the last open context
	nic) eventually 30 "the end of the NIC" no_rail0 && $lab nic-rescan n0 ;;
	loss) $lab undrop n0 0 ;;
	esac
}

# failures CAUSE FILE: ten times, at most for two minutes; the link's blackout is that of its end that stood
# still longer
failures() {
	local i n lines end=$((SECONDS + ${BENCH_SECONDS:-120}))
	: >"$2"
	for ((i = 0; i < ${BENCH_TRIALS:-10} && SECONDS < end; i++)); do
		eventually 60 "the return to rail 0" on_rail0 "$id" || return
		tick 2 # Linux spaces changes of a carrier by 1 s, and the rail has to prove itself
		lines=()
		for n in n0 n1 n2; do
			lines+=("$(on $n "cat /var/log/rcshare/$id/*.jsonl 2>/dev/null | wc -l")")
		done
		harm "$1" || return
		eventually 30 "the failover" moved "$id" "${lines[@]}" || :
		heal "$1" || return
		jq -s -c --arg trial $i 'max_by(.blackout_ns // 0) | select(.) |
			{$trial, reason, blackout: .blackout_ns, notice: .notice_ns}' "$out/moved" >>"$2"
	done
}

ms_of() { jq "$2 | . / 1e4 | round / 100" "$1"; } # FILE JQ

durations() { # NAME FILE NOTE
	local note recovery='select(.blackout and .notice) | .blackout - .notice'
	[[ -s $2 ]] || { echo "no failover was seen: $1" >&2; return; }
	note="$(jq -s '[.[].trial] | unique | length' "$2") $3; reasons: $(jq -r .reason "$2" | sort | uniq -c |
		awk '{ printf "%s%s %s", s, $1, $2; s = ", " }')"
	figure "$1: blackout" "$(ms_of "$2" '.blackout // empty' | median)" '' "$note"
	figure "$1: blackout, longest" "$(ms_of "$2" '.blackout // empty' | longest)" '' ""
	figure "$1: noticing" "$(ms_of "$2" 'select(.blackout and .notice) | .notice' | median)" '' \
		"last acknowledgement to notice, median of the same; longest $(ms_of "$2" '.notice // empty' | longest) ms"
	figure "$1: recovery" "$(ms_of "$2" "$recovery" | median)" '' \
		"notice to the first frame acknowledged elsewhere, likewise; longest $(ms_of "$2" "$recovery" | longest) ms"
}

part_blackout() {
	local pid id cause
	local -A name=([cut]="cut cable" [port]="port down" [nic]="NIC removed" [loss]="silent loss")
	rcs "$out/blackout" 900 -N3 --ntasks-per-node=2 $apps/rcs_alltoall --seconds 880 --max 4096 2>/dev/null &
	pid=$!
	begun "$out/blackout" '^round' 60 $pid
	id=$(job_id)
	for cause in cut port loss nic; do
		kill -0 $pid 2>/dev/null || { echo "the job ended: $(tail -n 1 "$out/blackout")" >&2; break; }
		if ! failures $cause "$out/blackout.$cause"; then
			echo "${name[$cause]}: the trials ended early" >&2
			heal $cause || :
		fi
		durations "${name[$cause]}" "$out/blackout.$cause" \
			"times, the end of the link that stood still longer"
	done
	[[ ! -s $out/blackout.loss ]] || figure "silent loss: in all" \
		"$(ms_of "$out/blackout.loss" '.blackout // empty' | median)" '' "the same median, against the design's goal"
	$lab run ctl -t 20 -- scancel "$id"
	wait $pid || :
}

# ---- nodes -----------------------------------------------------------------------------------------

node_conf() { # JSON
	local n
	for n in n0 n1 n2; do on $n "echo '$1' >/etc/rcshare/rcshare.conf"; done
}

node_there() { $lab run n2 -t 20 -- true 2>/dev/null || $lab start n2; }

# What every later part finds: n2 there, the lab's own timeout.
node_restore() {
	$lab run ctl -t 20 -- scancel -u lab || :
	for n in n0 n1; do on $n 'rm -f /tmp/until' || :; done
	node_there || :
	node_conf '{"node_timeout_ms": 20000}' || :
}

stamped() { # each line with the time it came, in seconds
	local line
	while IFS= read -r line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done
}

said() { (($(grep -cE "$3" "$2") >= $1)); } # TIMES FILE PATTERN
slurm_says_down() { [[ $($lab run ctl -t 20 -- sinfo -h -n n2 -o %T) == down* ]]; }

# One trial: FILE gets the job's lines, FILE.at when n2 was killed, FILE.slurm when Slurm said so.
node_trial() { # FILE
	local pid n
	$lab run ctl -u lab -t 200 -e SLURM_PMIX_TIMEOUT=20 -- salloc --no-kill -N3 --ntasks-per-node=2 srun --no-kill -K0 \
		--rcshare=on --mpi=pmix $apps/rcs_survive --until /tmp/until --puts > >(stamped >"$1") 2>&1 &
	pid=$!
	begun "$1" 'running$' 60 $pid || return
	eventually 60 "six ranks running" said 6 "$1" 'running$' || return
	echo "$EPOCHREALTIME" >"$1.at"
	$lab kill n2
	eventually 30 "the survivors' event" said 4 "$1" ': event 8 node 2 ' || return
	eventually 60 "Slurm's word that n2 is down" slurm_says_down && echo "$EPOCHREALTIME" >"$1.slurm"
	for n in n0 n1; do on $n 'touch /tmp/until'; done
	eventually 30 "the survivors' end" said 4 "$1" ' ranks lost, 0 wrong$' || return
	$lab run ctl -t 20 -- scancel -u lab || :
	wait $pid || :
	for n in n0 n1; do on $n 'rm -f /tmp/until'; done
}

part_node() {
	local i f end=$((SECONDS + ${BENCH_SECONDS:-120})) told=$out/node.told slurm=$out/node.slurm notice=$out/node.notice
	trap node_restore EXIT
	: | tee "$told" "$slurm" >"$notice"
	for ((i = 0; i < ${BENCH_TRIALS:-10} && SECONDS < end; i++)); do
		node_there || break
		node_conf '{}'
		f=$out/node.$i
		node_trial "$f" || { echo "trial $i ended early" >&2; node_restore; continue; }
		awk -v at="$(cat "$f.at")" '/: event 8 node 2 / { if ($1 > last) last = $1 } END { printf "%.0f\n", (last - at) * 1000 }' \
			"$f" >>"$told"
		sed -n 's/.*: event 8 node 2 .* after \([0-9]*\) ms.*/\1/p' "$f" >>"$notice"
		[[ ! -e $f.slurm ]] || calc "$(cat "$f.slurm") - $(cat "$f.at")" >>"$slurm"
	done
	[[ -s $told ]] || { echo "no trial came to its end" >&2; return 1; }
	figure "killed node: the last survivor knows" "$(median <"$told")" '' \
		"from the kill of the guest to the event at the last of 4 ranks, as the host sees it; $(wc -l <"$told") trials ($(paste -sd' ' "$told")); silence when it was decided: median $(median <"$notice") ms"
	figure "killed node: the last survivor knows, longest" "$(longest <"$told")" '' ""
	figure "killed node: Slurm alone says down" "$(median <"$slurm")" '' \
		"SlurmdTimeout 10; same kills ($(paste -sd' ' "$slurm"))"
}

# One trial with a spare: FILE gets the job's lines, FILE.at when n1 was killed.
spare_trial() { # FILE
	local pid job
	on n0 'rm -f /tmp/go /tmp/result'
	$lab run ctl -u lab -t 200 -- salloc --no-kill -N3 --ntasks-per-node=2 srun --no-kill -K0 --mpi=pmix \
		--rcshare=on,spares=1 $apps/rcs_ckpt --result /tmp/result --hold /tmp/go > >(stamped >"$1") 2>&1 &
	pid=$!
	begun "$1" 'rank 0: holds' 90 $pid || return
	job=$(job_id)
	echo "$EPOCHREALTIME" >"$1.at"
	$lab kill n1
	eventually 30 "the ranks' meeting with the replacement" said 1 "$1" 'rank 0: begins at .* epoch 2$' || return
	on n0 'touch /tmp/go'
	eventually 60 "the end of the ranks" said 4 "$1" 'rank [0-3]: done' || return
	$lab run ctl -t 20 -- scancel "$job" || :
	wait $pid || :
}

spare_restore() {
	$lab run ctl -t 20 -- scancel -u lab || :
	on n0 'rm -f /tmp/go /tmp/result' || :
	$lab run n1 -t 20 -- true 2>/dev/null || $lab start n1
	node_conf '{"node_timeout_ms": 20000}' || :
}

part_spare() {
	local i f end=$((SECONDS + ${BENCH_SECONDS:-120})) took=$out/spare.took met=$out/spare.met
	trap spare_restore EXIT
	: | tee "$took" >"$met"
	for ((i = 0; i < ${BENCH_TRIALS:-10} && SECONDS < end; i++)); do
		$lab run n1 -t 20 -- true 2>/dev/null || $lab start n1 || break
		node_conf '{}'
		f=$out/spare.$i
		spare_trial "$f" || { echo "trial $i ended early" >&2; spare_restore; continue; }
		awk -v at="$(cat "$f.at")" '/rank [01]: node .* taken over/ { if ($1 > last) last = $1 }
			END { printf "%.0f\n", (last - at) * 1000 }' "$f" >>"$took"
		awk -v at="$(cat "$f.at")" '/rank 0: begins at .* epoch 2$/ { printf "%.0f\n", ($1 - at) * 1000; exit }' "$f" >>"$met"
	done
	[[ -s $met ]] || { echo "no trial came to its end" >&2; return 1; }
	figure "killed node: the survivors know its replacement" "$(median <"$took")" '' \
		"from the kill of the guest to the event at the last of 2 ranks; $(wc -l <"$took") trials ($(paste -sd' ' "$took")); waits for the lost node's lease to end"
	figure "killed node: the replacement answers" "$(median <"$met")" '' \
		"to the end of the first round of requests of all ranks with the replacements ($(paste -sd' ' "$met"))"
	figure "killed node: the replacement answers, longest" "$(longest <"$met")" '' ""
}
