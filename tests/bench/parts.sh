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

part_instructions() { # likewise: a count does not depend on the host's load
	local f=$out/instructions all mine
	command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; return 1; }
	valgrind --tool=callgrind --callgrind-out-file="$f.out" --collect-atstart=no \
		--toggle-collect=one_put --dump-line=yes build/bench/ledger --puts 1000 >"$f" 2>"$f.log"
	# Own cost by function and file (fi, fe: inlined from there); the line after calls= is the callee's
	# sum. A name stands with its number once, wherever that is first.
	awk '/^f[lien]=/ {
			fn = /^fn/; n = substr($0, 4); id = n; sub(/ .*/, "", id)
			if (n ~ / /) { sub(/^[^ ]* /, "", n); if (fn) func_[id] = n; else file[id] = n }
			if (fn) f = func_[id]; else at = file[id]
		}
		/^c(fn|fi|fl|ob)=/ { n = $0; sub(/^[^=]*=/, "", n); id = n; sub(/ .*/, "", id)
			if (n ~ / /) { sub(/^[^ ]* /, "", n); if (/^cfn/) func_[id] = n; else if (!/^cob/) file[id] = n }
		}
		/^calls=/ { getline; next }
		/^[0-9+*-]/ { s[f " " at] += $2 }
		END { for (k in s) print s[k], k }' "$f.out" | sort -rn >"$f.functions"
	all=$(awk '{ s += $1 } END { print s / 1000 }' "$f.functions")
	mine=$(awk '$2 ~ /^core_(rma_|link_posted|link_done|stall_posted|stall_progress)/ || $3 ~ /core\/(rma\.c|psn\.h)$/ {
		s += $1 } END { print s / 1000 }' "$f.functions")
	figure "instructions of the daemon for a put of one piece" "$all" '' \
		"from the rank's record to the answer in its ring, without the device's provider and the kernel"
	figure "instructions of the ledger, of these" "$mine" "$all" \
		"submit, pick, posted, completed, PSN arithmetic, the lane's progress clock; callgrind, mean of 1000 puts"
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

part_steps() {
	local f=$out/steps i note
	# A step that Slurm's PMIx plugin refused (lib.sh, job) is tried again and not counted.
	$lab run ctl -u lab -t 400 -e SLURM_PMIX_TIMEOUT=20 -- salloc -N3 --ntasks-per-node=4 sh -c '
		for i in $(seq 20); do
			for try in 1 2 3; do
				a=$(date +%s%N)
				srun --rcshare=on --mpi=pmix '"$apps"'/rcs_start --eager --rounds 0 && break
			done && echo "step $i took $((($(date +%s%N) - a) / 1000000))"
		done' >"$f" 2>&1 || echo "the allocation ended with $?" >&2
	step() { sed -n "s/^step $1 took //p" "$f"; }
	note="from srun to its end, which has the program meet all pairs; 4 ranks a node, one allocation; all: $(sed -n 's/^step .* took //p' "$f" | paste -sd' ')"
	for i in 2 20; do
		[[ -n $(step 1) && -n $(step $i) ]] || { echo "step 1 or $i failed: $(grep -v '^salloc' "$f" | head -n 1)" >&2; return 1; }
		figure "step $i of an allocation" "$(step $i)" "$(step 1)" "against the first: $note"
	done
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

# ---- one-sided requests ----------------------------------------------------------------------------

# What one rank's requests that must fail cost the others; as many good ones cost them something too.
part_contain() {
	local i kind f=$out/contain idle=() bad=() good=() bad_n good_n
	beside() { rcs "$f" 100 -N2 -w n0,n1 --ntasks-per-node=2 $apps/rcs_pingpong --min 8 --max 8 --iters 1000 "$@"; }
	for ((i = 0; i < 3; i++)); do
		beside && idle+=("$(field "$f" latency_us)")
		beside --beside bad && bad+=("$(field "$f" latency_us)") && bad_n=$(field "$f" requests)
		beside --beside good && good+=("$(field "$f" latency_us)") && good_n=$(field "$f" requests)
	done
	for kind in bad good; do
		local -n of=$kind n=${kind}_n
		figure "8 B one way beside $kind requests" "$(printf '%s\n' "${of[@]}" | median)" \
			"$(printf '%s\n' "${idle[@]}" | median)" "another rank of the node makes $n of them meanwhile, \
against none; medians of 3 (${of[*]} against ${idle[*]})"
	done
}

bulk() { # FILE SRUN-OPTION ARGS...: large puts and gets from n0 to n1
	job "$1" 120 "$2" --mpi=pmix -N2 -w n0,n1 --ntasks-per-node=1 $apps/rcs_bulk "${@:3}"
}
rate_of() { sed -n "s/^bulk kind=$2 under_way=$3 .*MiBps=//p" "$1" | tail -n 1; } # FILE KIND UNDER-WAY

part_rma() {
	local i k u name f=$out/rma
	local -A tool=([put]=ib_write_bw [get]=ib_read_bw) word=([1]="one at a time" [4]="four under way")
	for ((i = 0; i < 3; i++)); do
		for k in put get; do
			perftest ${tool[$k]} -s 4194304 -n 20 | awk '{ print $4 }' >>"$f.$k.base"
		done
		bulk "$f.out" --rcshare=on,rails=1 --count 10
		for k in put get; do
			for u in 1 4; do rate_of "$f.out" $k $u >>"$f.$k.$u"; done
		done
	done
	for k in put get; do
		for u in 1 4; do
			name="4 MiB ${k}s, ${word[$u]}"
			figure "$name" "$(median <"$f.$k.$u")" "$(median <"$f.$k.base")" \
				"registered regions, n0 to n1, one rail, against ${tool[$k]}; medians of 3 ($(paste -sd' ' "$f.$k.$u") against $(paste -sd' ' "$f.$k.base"))"
		done
	done
}

part_rails() {
	local i f=$out/rails cpus
	for ((i = 0; i < 3; i++)); do
		bulk "$f.out" --rcshare=on,rails=1 --kind put --count 10
		rate_of "$f.out" put 4 >>"$f.1"
		bulk "$f.out" --rcshare=on,rails=2 --kind put --count 10
		rate_of "$f.out" put 4 >>"$f.2"
	done
	cpus="this host has $(nproc) CPUs for four emulated guests"
	(($(nproc) >= 8)) || cpus+=", too few: the rate is that of the CPUs, not of the rails"
	figure "4 MiB puts over two rails" "$(median <"$f.2")" "$(median <"$f.1")" \
		"four under way, against one rail; medians of 3 ($(paste -sd' ' "$f.2") against $(paste -sd' ' "$f.1")); $cpus"
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
