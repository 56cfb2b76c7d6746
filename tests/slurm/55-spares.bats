#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Spare nodes: the last nodes of a step stand by, and take over the ranks of nodes that are lost. All jobs have
# six active ranks on b0, b1 and b2; rcs_ckpt's result must be the same whatever was lost.

load helpers

setup_file() {
	need_plugin
	bed_up -n 6 --cpus 4 --plugin "$(plugin_line daemon="$daemon" config="$root/config/rcshare.conf")"
}

teardown_file() {
	bed_down
}

setup() {
	killed='' cut=''
	out=$BED_DIR/home/out hold=$BED_DIR/home/hold result=$BED_DIR/home/result
	rm -f "$hold" "$result"
	: >"$out"
}

teardown() {
	touch "$hold"
	[[ -z ${id:-} ]] || "$bed" run -- scancel "$id" || :
	for n in $cut; do
		"$bed" restore $n
	done
	for n in $killed; do
		"$bed" start $n
	done
	BED_WAIT=60 eventually nothing_left
}

lose() { # NODE: its power
	"$bed" kill "$1"
	killed+=" $1"
}

on() { "$bed" run --on "$@"; }

# start SPARES PROGRAM ARGUMENTS...: of two ranks on each of three nodes and the spares
start() {
	local spares=$1
	shift
	timeout 120 "$bed" run -- salloc --no-kill -N$((3 + spares)) --ntasks-per-node=2 srun --no-kill -K0 \
		--rcshare=on,spares="$spares" --mpi=pmix "$@" >"$out" 2>&1 3>&- &
	pid=$!
}

# ckpt SPARES: holds half way, with checkpoints made
ckpt() {
	start "$1" "$(bed_app rcs_ckpt)" --result "$result" --hold "$hold"
	eventually said 1 '^rank 0: holds$'
	id=$("$bed" run -- squeue -h -o %i | sort -n | tail -n 1)
}

right() { [ "$(<"$result")" = "6 ranks, 400 iterations: 636479de8abf0330" ]; }

# done_right: goes on to the end
done_right() {
	touch "$hold"
	wait $pid || :
	cat "$out"
	right
}

# Slurm takes a quarter of a minute to see that a killed node's tasks have ended; one test awaits that.
scancel_and_wait() {
	id=$("$bed" run -- squeue -h -o %i | sort -n | tail -n 1)
	"$bed" run -- scancel "$id" || :
	wait $pid || :
	cat "$out"
}

# all_done RANKS: goes on to the end; what Slurm does then is not awaited
all_done() {
	touch "$hold"
	eventually said "$1" '^rank [0-5]: done$'
	scancel_and_wait
}

# replaced NODE SPARE INCARNATION RANKS: so many have heard that SPARE has the ranks of NODE
replaced() {
	local first=$((2 * ${1#b}))
	eventually said "$4" "node $2 has taken over ranks $first to $((first + 1)), incarnation $3\$"
	eventually said 2 "rank ($first|$((first + 1))): replacement, incarnation $3\$"
}

records() { # NODE EVENT
	on "$1" -- sh -c "grep -h '\"$2\"' /var/log/rcshare/$id/*"
}

@test "spares that are not needed end with the others, all with 0" {
	touch "$hold"
	start 2 "$(bed_app rcs_ckpt)" --result "$result"
	wait $pid
	said 4 '^not needed$'
	said 0 'lost|taken over'
	done_right
}

@test "a node is killed: the spare has its ranks, and the result is right" {
	ckpt 1
	on b3 -- "$root/build/rcshare" status "$id" | grep -qx '2 ranks stand by'
	lose b1
	replaced b1 b3 1 4
	said 4 'node b1 has lost ranks 2 to 3, incarnation 0$'
	eventually said 6 'begins at iteration 200, epoch 2$'
	for n in b0 b2 b3; do
		[ "$(records $n node_replaced | jq -r '"\(.peer_host) \(.index) \(.incarnation) \(.first_rank) \(.ranks)"')" \
			= "b3 1 1 2 2" ]
	done
	all_done 6
	right
}

@test "two losses with two spares; the third is a loss like any" {
	ckpt 2
	lose b1
	replaced b1 b3 1 4
	eventually said 6 'begins at iteration 200, epoch 2$'
	lose b0
	replaced b0 b4 1 4
	eventually said 6 'begins at iteration 200, epoch 4$'
	lose b4
	eventually said 4 'no spare is left for ranks 0 to 1$'
	wait $pid || :
	[ ! -e "$result" ]
}

@test "two nodes that are killed at once are both replaced" {
	local first
	srun -N4 --ntasks-per-node=1 --mpi=pmix --rcshare=on "$(bed_app rcs_ckpt)" --result "$result"
	first=$(<"$result")
	timeout 120 "$bed" run -- salloc --no-kill -N6 --ntasks-per-node=1 srun --no-kill -K0 \
		--rcshare=on,spares=2 --mpi=pmix "$(bed_app rcs_ckpt)" --result "$result" --hold "$hold" \
		>"$out" 2>&1 3>&- &
	pid=$!
	eventually said 1 '^rank 0: holds$'
	lose b1
	lose b3
	eventually said 1 'rank 1: replacement, incarnation 1$'
	eventually said 1 'rank 3: replacement, incarnation 1$'
	eventually said 4 'begins at iteration 200, epoch 2$'
	all_done 4
	[ "$(<"$result")" = "$first" ]
}

@test "a spare that is killed while it waits is only lost" {
	ckpt 1
	lose b3
	eventually records b0 node_lost
	all_done 6
	right
	said 0 'lost|taken over'
}

@test "a spare that is killed after it has taken over is replaced by the next" {
	ckpt 2
	lose b1
	replaced b1 b3 1 4
	eventually said 6 'begins at iteration 200, epoch 2$'
	lose b3
	replaced b1 b4 2 4
	eventually said 6 'begins at iteration 200, epoch 4$'
	all_done 6
	right
}

@test "a node that is cut off is replaced, and its ranks are stopped" {
	ckpt 1
	"$bed" cut b1
	cut=b1
	replaced b1 b3 1 4
	eventually said 6 'begins at iteration 200, epoch 2$'
	records b1 partitioned
	"$bed" restore b1
	cut=
	done_right
	grep -q "rank [23]: .*: this node lost contact" "$out"
}

@test "a node whose daemon is killed is replaced" {
	ckpt 1
	on b1 -- sh -c 'kill -9 $(pgrep -x rcshared)'
	replaced b1 b3 1 4
	done_right
}

@test "what was known of a lost rank stays refused after its replacement" {
	timeout 120 "$bed" run -- salloc --no-kill -N3 --ntasks-per-node=1 srun --no-kill -K0 \
		--rcshare=on,spares=1 --mpi=pmix "$(bed_app rcs_stale)" >"$out" 2>&1 3>&- &
	pid=$!
	eventually said 1 '^ready$'
	lose b1
	eventually said 1 '^refused$'
	eventually said 1 '^rank 0: PMIx event NODE_LOST .*rcshare.peer_host="b1" rcshare.index=1 rcshare.incarnation=0 rcshare.first_rank=1 rcshare.ranks=1 rcshare.spare=2 '
	eventually said 1 '^rank 0: PMIx event NODE_REPLACED .*rcshare.peer_host="b2" rcshare.index=1 rcshare.incarnation=1 rcshare.first_rank=1 rcshare.ranks=1 .*rcshare.peer=2 .*rcshare.view=1 '
	scancel_and_wait
}

@test "a replacement that is lost before it has published ends the look-up" {
	timeout 120 "$bed" run -- salloc --no-kill -N4 --ntasks-per-node=1 srun --no-kill -K0 \
		--rcshare=on,spares=2 --mpi=pmix "$(bed_app rcs_stale)" --stall >"$out" 2>&1 3>&- &
	pid=$!
	eventually said 1 '^ready$'
	lose b1
	eventually said 1 '^looks$'
	lose b2
	eventually said 1 '^refused$'
	scancel_and_wait
}

refused() { # SENTENCE SRUN_ARGUMENTS...
	local sentence=$1
	shift
	run srun --mpi=pmix "$@" echo started
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"$sentence"* ]]
	[[ $output != *started* ]]
}

@test "spares that cannot be are refused with a sentence, said once" {
	refused "spares=2: the step has 2 nodes and needs one that does not stand by" -N2 --rcshare=on,spares=2
	[ "$(grep -c 'step refused' <<<"$output")" -eq 1 ]
	refused "with the distribution cyclic the ranks of a node do not follow each other" \
		-N3 --ntasks-per-node=2 -m cyclic --rcshare=on,spares=1
	refused "node 2 of the step has 1 tasks and would stand by for nodes with up to 3" -N3 -n5 --rcshare=on,spares=1
	refused "spares and eager=1 do not go together" -N3 --rcshare=on,spares=1,eager=1
	refused "spares=x: give a number of nodes" -N3 --rcshare=on,spares=x
}

@test "a task a node may be distributed in any way" {
	srun --mpi=pmix -N3 -n3 -m cyclic --rcshare=on,spares=1 "$(bed_app rcs_ckpt)" --result "$result"
	grep -q '^2 ranks' "$result"
}
