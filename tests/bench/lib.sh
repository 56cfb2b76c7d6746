# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the parts of the bench share: figures, jobs, baselines. Sourced by `bench`.
# shellcheck disable=SC2016,SC2034,SC2119,SC2120

lab=tests/lab/lab
apps=/opt/rcshare/apps
benches=/opt/rcshare/bench
out=build/figures

# ---- figures ---------------------------------------------------------------------------------------

plan() { grep -v -e '^#' -e '^$' tests/bench/plan; } # part|name|unit|goal

# figure NAME VALUE BASELINE NOTE: VALUE and BASELINE may be empty.
figure() {
	local unit goal
	IFS='|' read -r _ _ unit goal < <(plan | awk -F'|' -v n="$1" '$2 == n')
	[[ -n $unit ]] || { echo "bench: no such figure in the plan: $1" >&2; return 1; }
	jq -cn --arg name "$1" --argjson value "${2:-null}" --arg unit "$unit" \
		--argjson baseline "${3:-null}" --arg goal "$goal" --arg note "$4" '
		(if $value != null and $baseline != null and $baseline != 0
		 then $value / $baseline else null end) as $ratio |
		($goal | if . == "" then null else .[2:] | tonumber end) as $bound |
		(if $baseline != null then $ratio else $value end) as $x |
		{name: $name, value: $value, unit: $unit, baseline: $baseline, ratio: $ratio,
		 goal: (if $goal == "" then null else $goal end),
		 met: (if $bound == null or $x == null then null
		       elif $goal[0:2] == "<=" then $x <= $bound else $x >= $bound end),
		 note: $note}' >>"$out/rows"
	tail -n 1 "$out/rows" | jq -r '"  \(.name): \(.value // "-") \(.unit)"'
}

has_figure() { jq -s -e --arg n "$1" 'any(.[]; .name == $n)' "$out/rows" >/dev/null; }

# What a part that failed did not come to: value null, and why.
figures_missing() { # PART WHY
	local part name
	while IFS='|' read -r part name _; do
		[[ $part != "$1" ]] || has_figure "$name" || figure "$name" '' '' "not measured: $2"
	done < <(plan)
}

# table [markdown]
table() {
	[[ ${1:-} ]] || plan | cut -d'|' -f2 | jq -R . | jq -s --slurpfile rows "$out/rows" '
		{figures: [.[] as $n | $rows[] | select(.name == $n)]}' >build/bench.json
	jq -r '
		def short: if . == null then "" elif type == "number" then
			(if fabs >= 100 then round elif fabs >= 1 then . * 100 | round / 100
			 else . * 1000 | round / 1000 end | tostring) else . end;
		["figure", "value", "baseline", "ratio", "goal", "", "note"],
		(.figures[] | [.name, (.value | short) + " " + .unit, (.baseline | short), (.ratio | short),
		 (.goal // ""), (if .met == null then "" elif .met then "met" else "missed" end),
		 .note]) | @tsv' build/bench.json | if [[ ${1:-} ]]; then
		awk -F'\t' '{ printf "|"; for (i = 1; i <= 6; i++) printf " %s |", $i; print "" }
			NR == 1 { print "|---|---|---|---|---|---|" }'
	else
		sed ':a; s/\t\t/\t-\t/; ta; s/\t$/\t-/' | column -t -s $'\t'
	fi
}

median() { # of the numbers of standard input; nothing for nothing
	awk '/^[0-9.eE+-]+$/' | sort -g | awk '{ v[++n] = $1 }
		END { if (n) print n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }'
}
longest() { awk '/^[0-9.eE+-]+$/' | sort -g | tail -n 1; }
calc() { awk "BEGIN { print $1 }"; }
clock() { date +%s.%N; }

# ---- waiting ---------------------------------------------------------------------------------------

tick() { read -rt "${1:-0.2}" <> <(:) || :; }

eventually() { # SECONDS WHAT CMD...
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		((SECONDS < end)) || { echo "$what did not come within the time" >&2; return 1; }
		tick
	done
}

# ---- jobs ------------------------------------------------------------------------------------------

on() { $lab run "$1" -t 60 -- sh -c "$2"; } # NODE SCRIPT

# job FILE SECONDS SRUN-ARGS...: to its end, output in FILE. Slurm's PMIx plugin may refuse a direct
# connection at the start of a step, and its fence times out (tests/lab/helper.bash); that alone is
# tried again.
job() {
	local file=$1 seconds=$2 try
	shift 2
	for try in 1 2 3; do
		if $lab run ctl -u lab -t "$seconds" -e SLURM_PMIX_TIMEOUT=30 -- srun "$@" >"$file" 2>&1; then
			return 0
		fi
		grep -q -e '_direct_conn_establish: .*: Connection reject' -e 'pmixp_.*: collective timeout' "$file" ||
			break
	done
	echo "srun failed (try $try): $(grep -v -e '^srun: job' "$file" | head -n 1)" >&2
	return 1
}

rcs() { job "$1" "$2" --rcshare=on --mpi=pmix "${@:3}"; }

# begun FILE WORD SECONDS PID: until a job's output has the word; its end without it is a failure
begun() {
	local end=$((SECONDS + $3))
	until grep -q "$2" "$1" 2>/dev/null; do
		if ! kill -0 "$4" 2>/dev/null || ((SECONDS >= end)); then
			echo "no '$2' from the job: $(head -n 1 "$1")" >&2
			return 1
		fi
		tick
	done
}

job_id() { $lab run ctl -t 20 -- squeue -h -o %i | tail -n 1; }

no_job() {
	# shellcheck disable=SC2016
	[[ -z $($lab run ctl -t 20 -- squeue -h) ]] &&
		for n in n0 n1 n2; do on $n 'test -z "$(cat /run/rcshare/*/pid)"' || return 1; done 2>/dev/null
}

all_answer() {
	local n
	for n in ctl n0 n1 n2; do $lab run "$n" -t 20 -- true || return 1; done
}

# Between parts: no job, no daemon, every cable in place, no core dump in the guests' memory.
settle() {
	local n
	all_answer || return 1
	for n in n0 n1 n2; do
		$lab restore $n 0
		$lab undrop $n 0
		on $n 'ip link set rail0 up' || $lab nic-rescan $n
		on $n 'for p in ib_send_lat ib_send_bw ib_write_bw ib_read_bw; do pkill -x $p; done; rm -f /var/crash/*'
	done
	$lab run ctl -t 20 -- scancel -u lab
	eventually 60 "the end of all jobs" no_job
	$lab wait-idle 120
}

# The value of KEY= in the last line of FILE that has it.
field() { sed -n "s/.*\b$2=\([0-9.]*\).*/\1/p" "$1" | tail -n 1; }

# ---- baselines -------------------------------------------------------------------------------------

# perftest PROGRAM ARGS...: server on n1, client on n0, over rail 0; the row of numbers
perftest() {
	on n1 "$* -d rxe0 -x 1 >/dev/null 2>&1 &"
	eventually 20 "the server of $1" on n1 'ss -Hltn sport = :18515 | grep -q .'
	$lab run n0 -t 120 -- "$@" -d rxe0 -x 1 10.77.1.11 | grep -E '^ *[0-9]+ +[0-9]+ ' | tail -n 1
}
