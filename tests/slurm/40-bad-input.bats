#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What is wrong, broken or hostile, and what it gets: a sentence that says what to do, for those whom
# it concerns, and nothing is left of it. Plugin, daemon and library are the real ones. Values of the
# option are in 10-option.bats, two steps at once in 20-messages.bats, what needs verbs is in
# tests/lab/30-bad-input.bats.

load helpers

setup_file() {
	need_plugin
	for f in "$daemon" "$apps/rcs_bad" "$apps/rcs_alltoall"; do
		[[ -x $f ]] || skip "$f is not built: run make all apps"
	done
	local line
	line=$(plugin_line daemon="$daemon" config=/run/bed/home/rcshare.conf)
	bed_up -n 3 --cgroups --plugin "$line" || bed_up -n 3 --plugin "$line"
	mkdir -p "$BED_DIR/home/dir"
	chown 12345 "$BED_DIR/home/dir"
	conf '{"node_timeout_ms": 20000}'
}

teardown_file() {
	bed_down
}

setup() {
	rm -rf "$BED_DIR"/home/{out*,go,dir/*}
	line=$(plugin_line daemon="$daemon" config=/run/bed/home/rcshare.conf)
}

teardown() {
	touch "$BED_DIR/home/go"
	rm -f "$BED_DIR/home/rcshare.conf"
	conf '{"node_timeout_ms": 20000}'
	BED_WAIT=30 eventually nothing_left
}

conf() {
	echo "$1" >"$BED_DIR/home/rcshare.conf"
}

bad() {		# bad SRUN-OPTIONS -- ARGS...: rcs_bad in a step of its own
	local options=()
	while [[ $1 != -- ]]; do
		options+=("$1")
		shift
	done
	shift
	srun --rcshare=require "${options[@]}" "$apps/rcs_bad" "$@"
}

whole=' 0 lost, 0 duplicated, 0 damaged'

# traffic [SRUN-OPTIONS]: a job that checks every byte, in the background; it runs on return, and goes
# on until traffic_is_whole: its end would be that of the steps in it
traffic() {
	SRUN_WAIT=610 srun --rcshare=require --mpi=pmix "$@" "$apps/rcs_alltoall" --seconds 600 --until /run/bed/home/go \
		>"$BED_DIR/home/out" 2>&1 3>&- &
	traffic=$!
	eventually grep -q '^round' "$BED_DIR/home/out"
	id=$("$bed" run -- squeue -h -o %i | sort -n | tail -n 1)
}

traffic_is_whole() {
	touch "$BED_DIR/home/go"
	wait "$traffic" || { cat "$BED_DIR/home/out"; return 1; }
	cat "$BED_DIR/home/out"
	grep -q "$whole" "$BED_DIR/home/out"
}

# hold [SRUN-OPTIONS]: a job that does nothing until there is ~/go
hold() {
	srun -N2 -w b0,b1 -n4 "$@" sh -c 'until [ -e ~/go ]; do sleep 0.05; done' 3>&- &
	holder=$!
	eventually running
}

running() {
	id=$("$bed" run -- squeue -h -t R -o %i)
	[ -n "$id" ]
}

# inside SRUN-OPTIONS -- ARGS...: rcs_bad in another step of the job of traffic()
inside() {
	bad --jobid="$id" --overlap "$@"
}

said() {	# said NODE REGEX: in the node's syslog
	grep -qE "rcshared.*$2" "$BED_DIR/log/$1.syslog"
}

uptime_ns() {	# of the daemon of job $id on b0; its clock ticks once a second
	"$bed" run --on b0 -- "$root/build/rcshare" status "$id" --json | jq .uptime_ns
}

later() {	# later NS: its clock is past that
	[ "$(uptime_ns)" -gt "$1" ]
}

port() {	# port NODE: where the daemon of job $id listens there
	"$bed" run --on "$1" -- "$root/build/rcshare" status "$id" --json | jq .control_port
}

# --- configuration -------------------------------------------------------------------------------

@test "a node list of the user's that has a folder behind the names: root removes nothing there" {
	mkdir -p "$BED_DIR/home/dir/x/rcshared"
	batch -N1 -w b0 3>&- <<-'END' >"$BED_DIR/home/out" 2>&1 || :
		export SLURM_JOB_NODELIST=$'b0,x\n/run/bed/home/dir/x' SLURM_NODELIST=$'b0,x\n/run/bed/home/dir/x'
		srun --rcshare=on echo ran
	END
	cat "$BED_DIR/home/out"
	BED_WAIT=30 eventually nothing_left
	[[ -d $BED_DIR/home/dir/x/rcshared ]]
	grep -q 'not used: the job.s node list has a character that is in no node.s name' "$BED_DIR/home/out"
	grep -q ran "$BED_DIR/home/out"
}

@test "a wrong rcshare.conf: 'on' runs with one line, 'require' is refused, both with the place" {
	conf $'{"log_level": "info",\n "spin": 5}'
	run srun -w b0 --rcshare=on echo ran
	echo "$output"
	[ "$status" -eq 0 ]
	grep -qx "rcshare: b0: not used: /run/bed/home/rcshare.conf:2: unknown key 'spin'.*; the job runs on its native path" <<<"$output"
	grep -qx ran <<<"$output"
	[ "$(grep -c ^rcshare: <<<"$output")" -eq 1 ]
	run srun -w b0 --rcshare=require echo ran
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"step refused, as --rcshare=require asks: /run/bed/home/rcshare.conf:2: "* ]]
	not grep -qx ran <<<"$output"
}

@test "the daemon runs on the cores that rcshare.conf gives it" {
	last=$(($(nproc) - 1))
	conf "{\"cpus\": \"$last\", \"node_timeout_ms\": 20000}"
	run srun --rcshare=require -N1 -n1 -w b0 sh -c \
		'sed -n "s/^Cpus_allowed_list:[^0-9]*//p" /proc/$(cat ${RCSHARE_SOCKET%sock}pid)/status'
	echo "$output"
	[ "$output" = "$last" ]
}

@test "a rcshare.conf that the job's user may not read says who must be able to" {
	chmod 600 "$BED_DIR/home/rcshare.conf"
	run srun -w b0 --rcshare=require true
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"/run/bed/home/rcshare.conf: cannot be read: Permission denied; the daemon runs as the job's user: make the file readable for all"* ]]
}

@test "without RDMA devices ranks talk over TCP, status says why; a rail that is named is missed" {
	traffic -N2 -n2 -w b0,b1
	run "$bed" run --on b0 -- "$root/build/rcshare" status "$id" --json
	[ "$(jq -r .no_rdma <<<"$output")" = "no active RDMA port on this node" ]
	run "$bed" run --on b0 -- "$root/build/rcshare" status "$id"
	[[ $output == *"rails: none, TCP only"* ]]
	traffic_is_whole
	conf '{"rails": [{"device": "mlx5_7"}]}'
	run srun -w b0 --rcshare=require true
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"rail 'mlx5_7/1' of the configuration cannot be opened: No such device; see ibv_devices, and the mode of /dev/infiniband"* ]]
}

# --- nodes that are not as the others -------------------------------------------------------------

without_plugin() {	# without_plugin NODE: as if its plugstack.conf lacked the line
	on_node "$1" mount --bind /dev/null /etc/slurm/plugstack.conf.d/bed.conf
}

@test "a node without the plugin is named: 'require' refuses the step, 'on' says it while it runs" {
	conf '{"node_timeout_ms": 20000, "start_timeout_ms": 3000}'
	without_plugin b1
	run srun -N3 -w b0,b1,b2 --rcshare=require sh -c 'echo ran on $(hostname)'
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"rcshare: b2: step refused: no rcshare daemon of this job answers on b1 (no TCP connection from b2 to b1 "*"): look for rcshare's line in plugstack.conf there"* ]]
	not grep -qx 'ran on b2' <<<"$output"
	srun -N2 -w b0,b1 --rcshare=on sh -c 'until [ -e ~/go ]; do sleep 0.05; done; echo ran' \
		>"$BED_DIR/home/out" 2>&1 3>&- &
	local job=$!
	BED_WAIT=40 eventually grep -q 'rcshare: no TCP connection from b0 to b1 .*no daemon of this job listens there' "$BED_DIR/home/out"
	touch "$BED_DIR/home/go"
	wait $job
	on_node b1 umount /etc/slurm/plugstack.conf.d/bed.conf
	[ "$(grep -cx ran "$BED_DIR/home/out")" -eq 2 ]
	run srun -N2 -w b0,b1 --rcshare=require echo ran
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 2 ]
}

@test "a log_dir that cannot be made costs records: the step runs, and status says why" {
	# a file in its place: as root the native bed writes to what is read-only for others
	conf '{"node_timeout_ms": 20000, "log_dir": "/etc/hosts/rcshare"}'
	traffic -N2 -n4 -w b0,b1
	run inside -N1 -w b0 -- scribble 1	# a lost rank is a record
	[ "$status" -eq 0 ]
	lost() { "$bed" run --on b0 -- "$root/build/rcshare" status "$id" | grep -q '^log: [1-9][0-9]* records lost, now: .*/etc/hosts/rcshare.*Not a directory'; }
	eventually lost
	grep -q 'rcshare: log_dir /etc/hosts/rcshare cannot be opened: Not a directory' "$BED_DIR/log/b0.slurmd.log"
	traffic_is_whole
	# read-only, and a link
	conf '{"node_timeout_ms": 20000, "log_dir": "/run/ro/rcshare"}'
	on_node b0 sh -c 'mkdir -p /run/ro && mount -t tmpfs -o ro ro /run/ro'
	run srun -N1 -w b0 --rcshare=require echo ran
	on_node b0 sh -c 'umount /run/ro; rmdir /run/ro; mkdir /var/log/real && ln -s /var/log/real /var/log/linked'
	[ "$status" -eq 0 ]
	[ "$output" = ran ]
	conf '{"node_timeout_ms": 20000, "log_dir": "/var/log/linked"}'
	run srun -N1 -w b0 --rcshare=require sh -c 'ls -d /var/log/real/$SLURM_JOB_ID && stat -c %U:%a /var/log/real'
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == /var/log/real/*root:755 ]]
}

# --- versions ------------------------------------------------------------------------------------

@test "plugin, daemon and library of different releases are told so, and do not meet" {
	local other=$root/build/other-abi
	env -u MAKEFLAGS make -s -C "$root" B=build/other-abi CFLAGS='-O0 -DSHM_ABI=99u' \
		build/other-abi/{rcshared,librcshare.so,rcshare_spank.so,apps/rcs_bad} >&2
	# the library, as from a container
	run srun -w b0 --rcshare=require "$other/apps/rcs_bad" init
	echo "$output"
	[[ $output == *"init: RCS_ERR_VERSION: "*"library or tool and the node's runtime are of different rcshare releases; a container must bring the release the site runs"* ]]
	# the daemon
	"$bed" plugin "${line/"$daemon"/"$other/rcshared"}"
	run srun -w b0 --rcshare=on "$apps/rcs_bad" init
	"$bed" plugin "$line"
	echo "$output"
	[[ $output == *"rcshare: b0: not used: rcshared "*" and Slurm's plugin are of different releases (the plugin has ABI version "*"); install both from the same one; the job runs"* ]]
	[[ $output == *"init: RCS_ERR_NO_RUNTIME: "* ]]
	# the plugin
	"$bed" plugin "${line/"$root/build/rcshare_spank.so"/"$other/rcshare_spank.so"}"
	run srun -w b0 --rcshare=require true
	"$bed" plugin "$line"
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *"step refused"*"are of different releases (the plugin has ABI version 99)"* ]]
}

@test "an option that the daemon does not know is told to the plugin" {
	run "$bed" run --on b0 -- "$daemon" --job 1 --colour blue --ready-fd 1
	echo "$output"
	[ "$status" -eq 2 ]
	[[ $output == *"error: rcshared "*" and Slurm's plugin are of different releases (--colour is not known, or lacks its value); install both from the same one"* ]]
	run "$bed" run --on b0 -- "$daemon" --ready-fd 1 --nodes many
	[ "$status" -eq 2 ]
	[[ $output == *"error: "*"(--nodes wants a number, not 'many')"* ]]
}

@test "addresses that are damaged, of another version or another job are refused, each with its reason" {
	run bad -w b0 -- save /run/bed/home/dir/other
	[ "$status" -eq 0 ]
	run bad -w b0 -- address /run/bed/home/dir/other
	echo "$output"
	[ "$status" -eq 0 ]
	grep -qx 'nothing: RCS_ERR_VERSION: these 64 bytes are not an rcshare address' <<<"$output"
	grep -qx 'other version: RCS_ERR_VERSION: the address has another version; all nodes need the same rcshare release' <<<"$output"
	grep -qx 'damaged: RCS_ERR_VERSION: the address is damaged (its checksum does not match)' <<<"$output"
	grep -qxE 'other job: RCS_ERR_INVALID: the address belongs to job [0-9]+ \(restart 0\), this is job [0-9]+ .*' <<<"$output"
	grep -qx 'own: RCS_OK: ' <<<"$output"
}

@test "node records that are damaged or of another version are refused, each with its reason" {
	run bad -w b0 -- record
	echo "$output"
	[ "$status" -eq 0 ]
	grep -qx "other version: -22: a node's record has another version; all nodes need the same rcshare release" <<<"$output"
	grep -qx "damaged: -22: a node's record is damaged (its checksum does not match)" <<<"$output"
	grep -qx 'good: 0: ' <<<"$output"
}

# --- two of a kind -------------------------------------------------------------------------------

@test "steps that start at once share a daemon; a second one by hand is refused and harms nobody" {
	hold --rcshare=off
	local steps=() i
	for i in 1 2 3 4; do
		srun --jobid="$id" --overlap --rcshare=require -N2 -n2 "$apps/rcs_bad" init \
			>"$BED_DIR/home/out.$i" 2>&1 3>&- &
		steps+=($!)
	done
	wait "${steps[@]}"
	cat "$BED_DIR"/home/out.?
	[ "$(cat "$BED_DIR"/home/out.? | grep -cx 'init: RCS_OK: ')" -eq 8 ]
	for i in b0 b1; do
		[ "$(on_node $i pgrep -c -x rcshared)" -eq 1 ]
	done
	run "$bed" run --on b0 -- bash -c 'exec "$0" --job 1 --restart 0 --node-index 0 --nodes 1 --nodelist b0 \
		--run-dir "$1" --token-fd 3 --ready-fd 1 3< <(head -c 32 /dev/zero)' "$daemon" "/run/rcshare/$id.0"
	echo "$output"
	[ "$status" -eq 1 ]
	[[ $output == *"error: process "*" serves this job here already; there is nothing to start by hand"* ]]
	run inside -N1 -w b0 -- init
	grep -qx 'init: RCS_OK: ' <<<"$output"
	touch "$BED_DIR/home/go"
	wait $holder
}

@test "two jobs of two users on one node do not meet, and a socket of the one is of no use in the other" {
	traffic -N2 -n4 -w b0,b1
	local first=$id
	SRUN_WAIT=610 BED_USER=daemon srun --rcshare=require --mpi=pmix -N2 -n4 -w b0,b1 --chdir=/ \
		"$apps/rcs_alltoall" --seconds 600 --until /run/bed/home/go \
		>"$BED_DIR/home/out.2" 2>&1 3>&- &
	local other=$!
	eventually grep -q '^round' "$BED_DIR/home/out.2"
	[ "$(on_node b0 pgrep -c -x rcshared)" -eq 2 ]
	run srun -w b0 --rcshare=off env RCSHARE_SOCKET="/run/rcshare/$first.0/sock" "$apps/rcs_bad" init
	echo "$output"
	[[ $output == *"init: RCS_ERR_NO_RUNTIME: the rcshare daemon refused this rank: this runtime serves job $first.0, not "*"; unset RCSHARE_SOCKET that came from another job" ]]
	traffic_is_whole
	wait $other
	grep -q "$whole" "$BED_DIR/home/out.2"
}

# --- things that end too early -------------------------------------------------------------------

@test "a log folder in which nothing can be made costs records, says why, and nothing else" {
	for how in read-only inodes link; do
		rm -f "$BED_DIR/home/go"
		on_node b0 sh -c "rm -rf /var/log/away; mkdir -p /var/log/rcshare; case $how in
			read-only) mount -t tmpfs -o ro none /var/log/rcshare ;;
			inodes) mount -t tmpfs -o nr_inodes=1,mode=1777 none /var/log/rcshare ;;
			link) mv /var/log/rcshare /var/log/away && ln -s /nowhere/at/all /var/log/rcshare ;;
			esac"
		traffic -N2 -n4 -w b0,b1
		run inside -N1 -w b0 -- scribble 1	# a lost rank is a record
		[ "$status" -eq 0 ]
		eventually said b0 "records of the event log are lost: cannot [a-z]* /var/log/rcshare/$id: "
		run "$bed" run --on b0 -- "$root/build/rcshare" status "$id"
		grep -E "^log: [1-9][0-9]* records lost, now: cannot [a-z]* /var/log/rcshare/$id: " <<<"$output"
		traffic_is_whole
		eventually idle
		on_node b0 sh -c "case $how in
			link) rm /var/log/rcshare && mv /var/log/away /var/log/rcshare ;;
			*) umount /var/log/rcshare ;;
			esac"
	done
}

@test "a full disk of the event log costs records, is told once, and nothing else" {
	on_node b0 sh -c 'mkdir -p /var/log/rcshare && mount -t tmpfs -o size=64k,mode=1777 full /var/log/rcshare &&
		head -c 1000000 /dev/zero >/var/log/rcshare/fill 2>/dev/null; true'
	traffic -N2 -n4 -w b0,b1
	for i in 1 2; do
		run inside -N1 -w b0 -- scribble 1	# a lost rank is a record
		[ "$status" -eq 0 ]
	done
	eventually said b0 "records of the event log are lost: cannot write /var/log/rcshare/$id/0.jsonl: No space left on device; make room there, or set log_dir"
	eventually later $(($(uptime_ns) + 2100000000))
	run "$bed" run --on b0 -- "$root/build/rcshare" status "$id"
	echo "$output"
	grep -qxE "log: ([2-9]|[1-9][0-9]+) records lost, now: cannot write /var/log/rcshare/$id/0.jsonl: No space left on device" <<<"$output"
	on_node b0 rm /var/log/rcshare/fill
	run inside -N1 -w b0 -- scribble 1
	traffic_is_whole
	on_node b0 cat "/var/log/rcshare/$id/0.jsonl" >"$BED_DIR/home/out.log"
	on_node b0 umount /var/log/rcshare
	cat "$BED_DIR/home/out.log"
	jq -es 'map(select(.dropped >= 2)) | length >= 1' "$BED_DIR/home/out.log"
	[ "$(grep -c "records of the event log are lost: .*/rcshare/$id/" "$BED_DIR/log/b0.syslog")" -eq 1 ]
}

# by_hand NODES ARGS...: rcs_die, two ranks without PMIx, which would end the step with the victim
by_hand() {
	run srun --jobid="$id" --overlap --rcshare=require --kill-on-bad-exit=0 -n2 -w "$1" sh -c '
		RCS_TEST_DIR=$0 RCS_TEST_RANK=$SLURM_PROCID RCS_TEST_SIZE=2 exec "$@"' \
		/run/bed/home/dir "$apps/rcs_die" "${@:2}"
	echo "$output"
	rm -f "$BED_DIR"/home/dir/*
}

@test "kill -9 in the middle of a large message: the other side is told, all others go on" {
	traffic -N2 -n4 -w b0,b1
	by_hand b0,b1 sender
	grep -qx 'rank 0 dies' <<<"$output"
	grep -qx 'rank 1 survives: RCS_ERR_PEER_GONE' <<<"$output"
	by_hand b0,b1 receiver
	grep -qx 'rank 1 dies' <<<"$output"
	grep -qx 'rank 0 survives: RCS_ERR_PEER_GONE' <<<"$output"
	traffic_is_whole
}

@test "kill -9 in the middle of a put or get that the ranks' libraries execute" {
	traffic -N2 -n4 -w b0,b1
	# between nodes much is under way already when the victim is told
	for at in 'b0,b1 16m' 'b0 4m'; do
		read -r nodes size <<<"$at"
		for kind in put get; do
			by_hand $nodes $kind target $size
			grep -qx 'rank 1 dies' <<<"$output"
			grep -qx 'rank 0 survives: RCS_ERR_PEER_GONE' <<<"$output"
			by_hand $nodes $kind origin $size
			grep -qx 'rank 0 dies' <<<"$output"
			grep -qx 'rank 1 survives: RCS_ERR_PEER_GONE' <<<"$output"
		done
	done
	traffic_is_whole
}

@test "a rank that overwrites its channel loses that, and the ranks beside it lose nothing" {
	traffic -N2 -n4 -w b0,b1
	run inside -N1 -n2 -w b0 -- scribble 60
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^scribbled: 60 channels, [1-9]' <<<"$output")" -eq 2 ]
	eventually said b0 "rank 4711 of step [0-9]+ .* is lost: its channel was overwritten"
	eventually said b0 "rank 4711 of step [0-9]+ .* is lost: its receive ring overflowed"
	[ "$(on_node b0 pgrep -c -x rcshared)" -eq 1 ]
	traffic_is_whole
}

@test "scancel in the middle" {
	traffic -N3 -n6
	"$bed" run -- scancel "$id"
	not wait "$traffic"
	BED_WAIT=30 eventually nothing_left
	for i in 0 1 2; do
		eventually said b$i "job $id.0 ends: asked to end"
	done
}

@test "slurmd is restarted under a running job" {
	traffic -N2 -n4 -w b0,b1
	"$bed" restart-slurmd b0
	[ "$(on_node b0 pgrep -c -x rcshared)" -eq 1 ]
	run inside -N1 -w b0 -- init
	grep -qx 'init: RCS_OK: ' <<<"$output"
	traffic_is_whole
}

# --- strangers -----------------------------------------------------------------------------------

@test "requests that make no sense are answered with a reason each, and leave no descriptor behind" {
	traffic -N2 -n4 -w b0,b1
	local pid before
	pid=$(on_node b0 pgrep -x rcshared)
	inside -N1 -w b0 -- requests
	before=$(on_node b0 sh -c "ls /proc/$pid/fd | wc -l")
	run inside -N1 -w b0 -- requests
	echo "$output"
	[ "$status" -eq 0 ]
	grep -qE '^short: -71: .*different rcshare releases' <<<"$output"
	grep -qE '^other version: -71: .*different rcshare releases' <<<"$output"
	grep -qx 'cut off: -74: message is too short' <<<"$output"
	grep -qx 'unknown: -95: unknown request' <<<"$output"
	grep -qE '^noise: -71: ' <<<"$output"
	grep -qx 'not attached: -107: attach first' <<<"$output"
	grep -qE "^other job: -116: this runtime serves job $id.0, not .*; unset RCSHARE_SOCKET" <<<"$output"
	grep -qx 'good: 0: ' <<<"$output"
	grep -qE '^twice: -114: ' <<<"$output"
	grep -qE '^wraps: -22: ' <<<"$output"
	grep -qE '^no region: -2: ' <<<"$output"
	# the first program's last ones may have been counted
	no_more() { [ "$(on_node b0 sh -c "ls /proc/$pid/fd | wc -l")" -le "$before" ]; }
	eventually no_more
	traffic_is_whole
}

@test "another user gets nothing at the socket, not even where its folder is open" {
	traffic -N2 -n4 -w b0,b1
	run "$bed" run -u daemon --on b0 -- env RCSHARE_SOCKET="/run/rcshare/$id.0/sock" "$apps/rcs_bad" init
	echo "$output"
	[[ $output == "init: RCS_ERR_NO_RUNTIME: cannot reach this node's rcshare daemon at "*": Permission denied"* ]]
	on_node b0 chmod 777 "/run/rcshare/$id.0" "/run/rcshare/$id.0/sock"
	run "$bed" run -u daemon --on b0 -- env RCSHARE_SOCKET="/run/rcshare/$id.0/sock" "$apps/rcs_bad" init
	echo "$output"
	[[ $output == "init: RCS_ERR_NO_RUNTIME: "* ]]
	eventually said b0 "refused a process of user 1 on the socket: the job is user 12345's"
	traffic_is_whole
}

@test "who does not know the token gets no connection on the control port, and the log says who tried" {
	traffic -N2 -n4 -w b0,b1
	local p
	p=$(port b0)
	run "$bed" run --on b2 -- "$apps/rcs_bad" hello b0 "$p" "$id"
	echo "$output"
	[ "$status" -eq 0 ]
	for c in 'other version' 'other job' 'no such node' 'no token'; do
		grep -qx "$c: closed" <<<"$output"
	done
	"$bed" run --on b2 -- bash -c "head -c 100000 /dev/urandom >/dev/tcp/b0/$p" || true
	for w in 'another version of rcshare; all nodes of a job need the same release' \
		'it belongs to another job' 'its node index is not one of this job' \
		"it does not know the job's token" "it does not speak rcshare's protocol"; do
		eventually said b0 "refused a connection from (::ffff:)?10.77.0.12 port [0-9]+: $w"
	done
	traffic_is_whole
}

@test "strangers who connect and are silent keep nobody out" {
	hold --rcshare=require
	eventually port b0
	eventually port b1
	"$bed" run --on b2 -- bash -c 'for i in {1..80}; do exec {fd}<>/dev/tcp/b0/$0 || exit; done
		for i in {1..80}; do exec {fd}<>/dev/tcp/b1/$1 || exit; done
		touch ~/out.silent; until [ -e ~/go ]; do sleep 0.1; done' "$(port b0)" "$(port b1)" 3>&- &
	local silent=$!
	eventually test -e "$BED_DIR/home/out.silent"
	run srun --jobid="$id" --overlap --rcshare=require --mpi=pmix -N2 -n4 -w b0,b1 \
		"$apps/rcs_alltoall" --iters 20
	# the job must last until then
	local told=1
	eventually said b0 'refused a connection from .*10.77.0.12 port [0-9]+: too many connections have not proven themselves' || told=0
	touch "$BED_DIR/home/go"
	wait $holder $silent
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"$whole"* ]]
	[ $told -eq 1 ]
}
