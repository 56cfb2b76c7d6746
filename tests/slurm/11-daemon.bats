#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The daemon's life as the plugin arranges it, with real cgroups where the machine has them. The
# daemon is a fake that writes down what it was given (fake-rcshared).

load helpers

setup_file() {
	need_plugin
	local line
	line=$(plugin_line daemon="$here/fake-rcshared" timeout=2)
	bed_up -n 2 --cgroups --plugin "$line" || bed_up -n 2 --plugin "$line"
}

teardown_file() {
	bed_down
}

setup() {
	rm -f "$BED_DIR"/home/{seen.*,fake-mode}
}

teardown() {
	rm -f "$BED_DIR/home/fake-mode"
	eventually nothing_left
}

fake() {
	echo "$1" >"$BED_DIR/home/fake-mode"
}

starts() {	# starts NODE: how often a daemon was started there
	cat "$BED_DIR"/home/seen."$1".* 2>/dev/null | grep -c ^start
}

@test "it gets what the contract says" {
	run srun -N2 -w b0,b1 --rcshare=on sh -c 'echo $SLURM_JOB_ID'
	[ "$status" -eq 0 ]
	job=${lines[0]}
	seen=$BED_DIR/home/seen.b1.$job.0
	cat "$seen"
	for line in 'arg --nodelist b0=10.77.0.10,b1=10.77.0.11' 'arg --nodes 2' 'arg --node-index 1' "arg --job $job" \
		'arg --restart 0' 'arg --uid 12345' 'arg --gid 12345' \
		"arg --run-dir /run/rcshare/$job.0" 'env HOME=/run/bed/home' 'env USER=bed' \
		'fd 0 /dev/null' 'fd 1 /dev/null' 'fd 2 /dev/null' 'oom 0' 'cwd /' \
		'id 12345 12345 12345 12345 12346 ' 'status CapEff:	0000000000000000' \
		'status SigBlk:	0000000000000000'; do
		grep -qxF "$line" "$seen"
	done
	[ "$(grep ^env "$seen" | grep -cv '^env SLURM_CONF=')" -eq 4 ]
	! grep -E '^fd (9|[1-9][0-9])' "$seen"
	grep -qx 'status Umask:.0077' "$seen"
	token=$(grep ^token "$seen")
	[ ${#token} -eq 70 ]
	grep -qx "$token" "$BED_DIR/home/seen.b0.$job.0"
}

@test "the token is the documented one" {
	srun -w b0 --rcshare=on true
	seen=$(echo "$BED_DIR"/home/seen.b0.*)
	job=${seen#*seen.b0.}
	key=$(od -An -v -tx1 "$BED_DIR/etc/munge/munge.key" | tr -d ' \n')
	want=$(printf 'rcshare\0bed\0%s\0000' "${job%.0}" |
		openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" | sed 's/.*= *//')
	grep -qx "token $want" "$seen"
}

@test "one daemon a node serves two steps one after the other" {
	run batch -N2 <<-'END'
		srun --rcshare=on -N2 true
		srun --rcshare=on -N2 true
	END
	[ "$status" -eq 0 ]
	[ "$(starts b0)" -eq 1 ]
	[ "$(starts b1)" -eq 1 ]
}

@test "one daemon a node serves steps that start at once" {
	run batch -N2 -n16 <<-'END'
		for i in 1 2 3 4 5 6 7 8; do
			srun --overlap --rcshare=require -N2 -n2 sh -c 'test -S $RCSHARE_SOCKET && echo ok' &
		done
		wait
	END
	[ "$(grep -c ^ok <<<"$output")" -eq 16 ]
	[ "$(starts b0)" -eq 1 ]
	[ "$(starts b1)" -eq 1 ]
}

@test "no daemon is started before a step needs it, and then it is among the job's processes" {
	run batch -N2 --rcshare=on <<-'END'
		ls ~/seen.b1.* 2>/dev/null		# of the prolog: it would be outside the job
		srun -N2 true
	END
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ "$(starts b0)" -eq 1 ]
	[ "$(starts b1)" -eq 1 ]
	[[ -e $BED_DIR/cgroups ]] || skip "no cgroups on this machine"
	# what it writes at its very start
	for node in b0 b1; do
		grep -qE '^cgroup .*/job_[0-9]+/rcshared$' "$BED_DIR"/home/seen.$node.*
	done
}

# lock_says NUMBER FIELD VALUE: root's lock file of the job that runs on b0 says so in that field, in place
lock_says() {
	on_node b0 sh -c 'l=$(echo /run/rcshare/*.lock); t=$(awk -v f="$1" -v v="$2" "NR == 1 { \$f = v } 1" $l)
		echo "$t" >$l' sh "$1" "$2"
}

@test "a daemon of another release is not used, one of an earlier job of this number is ended" {
	rm -f "$BED_DIR"/home/{one,two,three,four}
	batch -N1 -w b0 >"$BED_DIR/home/log" 3>&- <<-'END' &
		srun --rcshare=on true
		touch ~/one; until [ -e ~/two ]; do sleep 0.05; done
		srun --rcshare=on echo native
		srun --rcshare=require echo never
		touch ~/three; until [ -e ~/four ]; do sleep 0.05; done
		srun --rcshare=require echo fresh
	END
	eventually test -e "$BED_DIR/home/one"
	local abi
	abi=$(on_node b0 sh -c 'awk "NR == 1 { print \$2 }" /run/rcshare/*.lock')
	lock_says 2 4
	touch "$BED_DIR/home/two"
	eventually test -e "$BED_DIR/home/three"
	lock_says 2 "$abi"
	lock_says 3 4711		# another user's
	touch "$BED_DIR/home/four"
	wait $! || :
	cat "$BED_DIR/home/log"
	grep -q 'not used: the daemon of this job is of another rcshare release (ABI 4, this one has [0-9]*), from before the upgrade' "$BED_DIR/home/log"
	grep -qx native "$BED_DIR/home/log"
	grep -q 'step refused, as --rcshare=require asks: the daemon of this job is of another rcshare release' "$BED_DIR/home/log"
	not grep -qx never "$BED_DIR/home/log"
	grep -qx fresh "$BED_DIR/home/log"
	[ "$(starts b0)" -eq 2 ]
	[ "$(grep -cx end "$BED_DIR"/home/seen.b0.*)" -eq 2 ]
}

@test "two slurmd of a host that share a run dir are told to have one each" {
	rm -f "$BED_DIR"/home/{one,two}
	batch -N1 -w b0 >"$BED_DIR/home/log" 3>&- <<-'END' &
		srun --rcshare=on true
		touch ~/one; until [ -e ~/two ]; do sleep 0.05; done
		srun --rcshare=on true
	END
	eventually test -e "$BED_DIR/home/one"
	lock_says 9 b7
	touch "$BED_DIR/home/two"
	wait $!
	cat "$BED_DIR/home/log"
	grep -qF "not used: the job's daemon of node b7 has this run dir: several slurmd on a host need run_dir=/run/rcshare-%n in plugstack.conf" "$BED_DIR/home/log"
}

per_node() {
	srun -N1 --rcshare=on sh -c 'echo $RCSHARE_SOCKET; test -S $RCSHARE_SOCKET && echo there'
}

@test "run_dir=...%n is a folder of the node" {
	own_bed run_dir=/run/rcshare-%n -- per_node
	grep -qE '^/run/rcshare-b0/[0-9]+.0/sock$' <<<"$output"
	grep -qx there <<<"$output"
}

@test "a daemon that died is replaced by the next step" {
	run batch -N1 -w b0 <<-'END'
		srun --rcshare=on sh -c 'kill -9 $(cat ${RCSHARE_SOCKET%sock}pid)'
		srun --rcshare=require true
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(starts b0)" -eq 2 ]
}

@test "it lives beside the steps' cgroups, counted to the job" {
	[[ -e $BED_DIR/cgroups ]] || skip "no cgroups on this machine"
	for opt in '' --rcshare=on; do		# started by the first step, and by the batch step
		run batch -N1 -w b0 $opt <<-'END'
			srun --rcshare=on sh -c 'sleep 0.2; cat /proc/$(cat ${RCSHARE_SOCKET%sock}pid)/cgroup'
		END
		for c in freezer cpuset memory; do
			grep -E "$c" <<<"$output" | grep -qE '/job_[0-9]+/rcshared$'
		done
	done
}

@test "the run dir is root's, and its socket the user's alone" {
	run srun -N1 --rcshare=on sh -c 'cd /run/rcshare && stat -c "%U %a" . *.0 *.lock $RCSHARE_SOCKET
		touch *.0/mine || ln -s /etc ${RCSHARE_SOCKET%/sock}/link || mv $RCSHARE_SOCKET ${RCSHARE_SOCKET%/sock}/other ||
		rm -f $RCSHARE_SOCKET; test -S $RCSHARE_SOCKET && echo kept' 2>/dev/null
	echo "$output"
	[[ $output == *"root 755"*"root 711"*"root 600"*"bed 600"*kept* ]]
}

@test "a log_dir that is missing is made, and one that is there keeps its owner and mode" {
	run on_node b0 sh -c 'rm -rf /var/log/rcshare; stat -c "%U %a" /var/log'
	local before=$output
	srun -w b0 --rcshare=on true
	run on_node b0 stat -c '%U %a' /var/log/rcshare
	[ "$output" = "root 755" ]
	echo '{"log_dir": "/var/log"}' >"$BED_DIR/etc/rcshare.conf"
	srun -w b0 --rcshare=on true
	run on_node b0 stat -c '%U %a' /var/log
	cp "$here/rcshare.conf" "$BED_DIR/etc/rcshare.conf"
	[ "$output" = "$before" ]
}

@test "the job's log folder is the user's alone, and goes with the job where it is empty" {
	run srun -w b0 --rcshare=on sh -c 'stat -c "%U %a" /var/log/rcshare/$SLURM_JOB_ID; echo $SLURM_JOB_ID'
	[ "${lines[0]}" = "bed 700" ]
	eventually nothing_left
	not on_node b0 test -e "/var/log/rcshare/${lines[1]}"
}

@test "the epilog ends it in good order" {
	srun -N2 --rcshare=on true
	eventually nothing_left
	for node in b0 b1; do
		grep -qx end "$BED_DIR"/home/seen.$node.*
	done
}

@test "the epilog ends one that ignores SIGTERM" {
	fake deaf
	srun -N1 -w b0 --rcshare=on true
	eventually nothing_left
	! grep -qx end "$BED_DIR"/home/seen.b0.*
}

@test "the epilog believes nothing that the user wrote" {
	"$bed" run --on b0 -- sleep 600 3>&- &
	eventually victim
	rm -f "$BED_DIR"/home/{one,two}
	batch -N1 -w b0 >/dev/null 3>&- <<-'END' &
		srun --rcshare=on sh -c 'echo $SLURM_JOB_ID >~/one; until [ -e ~/two ]; do sleep 0.05; done'
	END
	eventually test -s "$BED_DIR/home/one"
	# as a release that gave the run dir to the user left it
	on_node b0 sh -c 'd=/run/rcshare/$1.9; mkdir $d && cd $d && echo $2 >pid && ln -s / root &&
		ln -s /run/bed/home home && i=0 && while [ $i -lt 200 ]; do mkdir d && touch d/f && cd d &&
		i=$((i+1)); done; chown -hR 12345 $d' sh "$(<"$BED_DIR/home/one")" "$pid"
	touch "$BED_DIR/home/two"
	wait $!
	eventually nothing_left
	victim
	[ -e "$BED_DIR/home/script" ]
	on_node b0 kill "$pid"
	wait || :
}

victim() {
	pid=$(on_node b0 ps -e -o pid=,args= | awk '/sleep 60[0]$/ && !/nsenter|setpriv/ { print $1 }')
	[[ -n $pid ]]
}

@test "slurmd can be restarted under it" {
	batch -N1 -w b0 >"$BED_DIR/home/log" 3>&- <<-'END' &
		srun --rcshare=on true
		touch ~/one
		until [ -e ~/two ]; do sleep 0.05; done
		srun --rcshare=require true && echo fine
	END
	eventually test -e "$BED_DIR/home/one"
	"$bed" restart-slurmd b0
	touch "$BED_DIR/home/two"
	wait $!
	grep -qx fine "$BED_DIR/home/log"
	[ "$(starts b0)" -eq 1 ]
}

@test "on: a daemon that can not start costs one line, and the job runs" {
	fake error
	run srun -N1 -w b0 --rcshare=on sh -c 'env | grep ^RCSHARE_'
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "rcshare: b0: not used: no rail on this node can be used; the job runs on its native path" ]
	[ "${lines[1]}" = RCSHARE_DISABLED=1 ]
	[ "${#lines[@]}" -eq 2 ]
}

@test "require: the step is refused with the reason, and no node is drained" {
	fake error
	run srun -N2 --rcshare=require echo ran
	[ "$status" -ne 0 ]
	[[ $output != *ran* ]]
	[[ $output == *"rcshare: b0: step refused, as --rcshare=require asks: no rail on this node can be used"* ]]
	eventually idle
	run srun -N2 true
	[ "$status" -eq 0 ]
}

@test "a daemon that dies or hangs at its start is told apart" {
	fake die
	run srun -w b0 --rcshare=on true
	[[ $output == *"fake-rcshared died before it was ready"* ]]
	fake hang
	run srun -w b0 --rcshare=on true
	[[ $output == *"fake-rcshared was not ready after start_timeout_ms"*"and was killed"* ]]
}

@test "a requeued job has a run dir of its own" {
	batch -N1 -w b0 --requeue >"$BED_DIR/home/log" 3>&- <<-'END' &
		srun --rcshare=on sh -c 'echo $RCSHARE_SOCKET'
		[ "${SLURM_RESTART_COUNT:-0}" != 0 ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }
	END
	eventually compgen -G "$BED_DIR/home/seen.b0.*.1"
	job=$(echo "$BED_DIR"/home/seen.b0.*.1)
	job=${job#*seen.b0.}
	job=${job%.1}
	eventually grep -qx end "$BED_DIR/home/seen.b0.$job.1"
	grep -qx "arg --run-dir /run/rcshare/$job.1" "$BED_DIR/home/seen.b0.$job.1"
	grep -qx "arg --run-dir /run/rcshare/$job.0" "$BED_DIR/home/seen.b0.$job.0"
	[ "$(grep -h ^token "$BED_DIR"/home/seen.b0.$job.* | sort -u | wc -l)" -eq 2 ]
	wait
}

@test "a missing daemon, a bad argument and a missing key never drain a node" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	(
		export BED_DIR=$other
		"$bed" up --quiet -n 1 --plugin "$(plugin_line daemon=/nowhere/rcshared colour=blue default=on)"
		srun -N1 --rcshare=on hostname
		srun -N1 --rcshare=require hostname || echo "refused $?"
		"$bed" plugin "$(plugin_line daemon="$here/fake-rcshared" key_file=/nowhere/key default=on min_nodes=1)"
		srun -N1 hostname
		eventually idle
		grep -h "unknown argument 'colour=blue'" "$other/log/b0.slurmd.log" | head -n 1
	) >"$BED_DIR/home/out" 2>&1 || { cat "$BED_DIR/home/out"; BED_DIR=$other "$bed" down; false; }
	BED_DIR=$other "$bed" down
	cat "$BED_DIR/home/out"
	[ "$(grep -c ^b0 "$BED_DIR/home/out")" -eq 2 ]
	grep -q 'not used: cannot run /nowhere/rcshared: No such file or directory' "$BED_DIR/home/out"
	grep -q '^refused' "$BED_DIR/home/out"
	grep -q 'not used: cannot read the key /nowhere/key' "$BED_DIR/home/out"
	grep -q "unknown argument 'colour=blue' in plugstack.conf" "$BED_DIR/home/out"
}

# own_bed PLUGIN-ARGS... -- CMD...: on a bed of its own, with one node; its output is in $output
own_bed() {
	local other args=() code=0
	while [[ $1 != -- ]]; do
		args+=("$1")
		shift
	done
	shift
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	(
		export BED_DIR=$other
		"$bed" up --quiet -n 1 --plugin "$(plugin_line daemon="$here/fake-rcshared" timeout=2 ${args[@]+"${args[@]}"})"
		"$@"
	) >"$BED_DIR/home/out" 2>&1 3>&- || code=$?
	BED_DIR=$other "$bed" down
	output=$(<"$BED_DIR/home/out")
	echo "$output"
	return $code
}

defaults() {
	srun -N1 sh -c 'env | grep ^RCSHARE_ || echo "one node: none"'
	"$bed" plugin "$(plugin_line daemon="$here/fake-rcshared" default=on min_nodes=1)"
	srun -N1 sh -c 'env | grep ^RCSHARE_STEP'
	srun -N1 -n1 : -n1 sh -c 'env | grep ^RCSHARE_ || echo "het: none"' 2>&1 || :
}

@test "default=on is for steps of two nodes or more, or min_nodes=, and says nothing to others" {
	own_bed default=on -- defaults
	grep -qx 'one node: none' <<<"$output"
	grep -qx 'RCSHARE_STEP=0' <<<"$output"
	not grep -q 'not used' <<<"$output"
}

untrusted() {
	install -m 664 /dev/null "$BED_DIR/etc/rcshare.conf"
	srun -N1 --rcshare=on hostname
	install -m 644 -o 12345 /dev/null "$BED_DIR/etc/rcshare.conf"
	srun -N1 --rcshare=on hostname
	install -m 644 "$here/rcshare.conf" "$BED_DIR/etc/rcshare.conf"
	chmod 644 "$BED_DIR/etc/munge/munge.key"
	srun -N1 --rcshare=on hostname
	chmod 600 "$BED_DIR/etc/munge/munge.key"
	srun -N1 --rcshare=require hostname
}

@test "a configuration or a key that others may change or read is not believed" {
	own_bed -- untrusted
	grep -qF 'not used: /run/bed/etc/rcshare.conf has mode 664, so others than its owner may change it and it is not used: chmod 644;' <<<"$output"
	grep -qF 'not used: /run/bed/etc/rcshare.conf belongs to uid 12345, not to root' <<<"$output"
	grep -qF 'not used: /etc/munge/munge.key has mode 644, so others than its owner may read it' <<<"$output"
	[ "$(grep -cx b0 <<<"$output")" -eq 4 ]
}

@test "limits of rcshare.conf are set before it is the user's" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	(
		export BED_DIR=$other
		line=$(plugin_line daemon="$here/fake-rcshared" config=/run/bed/home/rcshare.conf)
		"$bed" up --quiet -n 1 --cgroups --plugin "$line"
		echo '{"nofile": 1000, "memlock_limit": 65536, "memory_limit_mb": 64,
			"log_dir": "/var/log/elsewhere"}' >"$other/home/rcshare.conf"
		srun -N1 --rcshare=on sh -c 'sleep 0.2
			cat /sys/fs/cgroup/memory/slurm*/uid_*/job_*/rcshared/memory.limit_in_bytes \
				/sys/fs/cgroup/memory.max 2>/dev/null
			stat -c "%a %n" /var/log/elsewhere'
		cat "$other"/home/seen.*
	) >"$BED_DIR/home/out" 2>&1 3>&- || { cat "$BED_DIR/home/out"; BED_DIR=$other "$bed" down; skip "no cgroups"; }
	BED_DIR=$other "$bed" down
	cat "$BED_DIR/home/out"
	grep -qE 'Max open files +1000 +1000' "$BED_DIR/home/out"
	grep -qE 'Max locked memory +65536 +65536' "$BED_DIR/home/out"
	grep -qx '755 /var/log/elsewhere' "$BED_DIR/home/out"
	grep -qx 'arg --config /run/bed/home/rcshare.conf' "$BED_DIR/home/out"
	! grep -q '^memory' /proc/cgroups || grep -qx 67108864 "$BED_DIR/home/out"
}
