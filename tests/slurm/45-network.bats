#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What is wrong with the control network, with names and with the log, and who is told what. Plugin, daemon and
# library are the real ones.

load helpers

setup_file() {
	need_plugin
	for f in "$daemon" "$apps/rcs_alltoall"; do
		[[ -x $f ]] || skip "$f is not built: run make all apps"
	done
	bed_up -n 3 --plugin "$(line)"
	cp "$BED_DIR/etc/hosts" "$BED_DIR/home/hosts.as-it-was"
}

teardown_file() {
	bed_down
}

line() {
	plugin_line daemon="$daemon" config=/run/bed/home/rcshare.conf "$@"
}

setup() {
	rm -f "$BED_DIR"/home/{out*,go}
	out=$BED_DIR/home/out
	site '{"node_timeout_ms": 20000}'
}

teardown() {
	touch "$BED_DIR/home/go"
	for node in b0 b1 b2; do
		on_node "$node" nft delete table inet firewall 2>/dev/null || :
		on_node "$node" sh -c 'kill -CONT $(ps -C perl -o pid=) || :'
	done
	cat "$BED_DIR/home/hosts.as-it-was" >"$BED_DIR/etc/hosts"
	"$bed" plugin "$(line)"
	BED_WAIT=30 eventually nothing_left
}

# firewall NODE...: connections to the daemons' ports get lost on their way into these nodes
firewall() {
	local node
	for node; do
		on_node "$node" nft -f - <<-'END'
			table inet firewall {
				chain in {
					type filter hook input priority 0;
					tcp dport 24576-28671 drop
				}
			}
		END
	done
}

# traffic [SRUN-OPTIONS]: a job that checks every byte, in the background, until the file go is there
traffic() {
	SRUN_WAIT=610 srun --rcshare=require --mpi=pmix "$@" "$apps/rcs_alltoall" --seconds 600 --until /run/bed/home/go \
		>"$out" 2>&1 3>&- &
	traffic=$!
}

traffic_is_whole() {
	touch "$BED_DIR/home/go"
	wait "$traffic" || { cat "$out"; return 1; }
	grep -q ' 0 lost, 0 duplicated, 0 damaged' "$out"
}

# the_job NODE: id of the one that has a daemon there
the_job() {
	on_node "$1" sh -c 'ls /run/rcshare' | sed -n 's/^\([0-9]*\)\.[0-9]*$/\1/p'
}

# status NODE JQ: of the one job's daemon
status() {
	on_node "$1" "$root/build/rcshare" status "$(the_job "$1")" --json | jq -r "$2"
}

connected() {
	[[ $(status b0 '[.nodes[] | select((.lanes_up // []) != [])] | length') == 2 ]]
}

@test "a firewall before the control ports: the user reads which nodes, which port, which direction" {
	firewall b0 b1
	traffic --rcshare=on -N2 -w b0,b1
	BED_WAIT=30 eventually grep -qE 'rcshare: no TCP connection from b0 to b1 \(10\.77\.0\.11 port 2[4-8][0-9]{3}\): nothing answers' "$out"
	BED_WAIT=30 eventually grep -qE 'rcshare: no TCP connection from b1 to b0 \(10\.77\.0\.10 port 2[4-8][0-9]{3}\): nothing answers' "$out"
	grep -q 'firewall' "$out"
	[[ $(status b0 '.nodes[1].state, .nodes[1].no_contact') == unreachable*'from b0 to b1'* ]]
	grep -q 'no TCP connection from b0 to b1' "$BED_DIR/log/b0.syslog"
	on_node b0 nft delete table inet firewall		# one direction is enough
	traffic_is_whole
	said 1 'from b0 to b1'
}

# strange_names: no resolver knows a node, and the one that is asked is not there
strange_names() {
	echo 127.0.0.1 localhost >"$BED_DIR/etc/hosts"
	echo 'nameserver 10.77.0.99' >"$BED_DIR/home/resolv"
	local node
	for node in b0 b1 b2; do
		on_node "$node" mount --bind /run/bed/home/resolv /etc/resolv.conf
	done
}

usual_names() {
	local node
	for node in b0 b1 b2; do
		on_node "$node" umount /etc/resolv.conf
	done
}

@test "where Slurm has NodeAddr no resolver is asked, neither for spares nor for neighbours" {
	strange_names
	traffic -N3
	eventually connected || { usual_names; false; }
	traffic_is_whole || { usual_names; false; }
	run srun --no-kill -K0 -N3 --ntasks-per-node=2 --rcshare=require,spares=1 --mpi=pmix "$(bed_app rcs_ckpt)" \
		--result /run/bed/home/result
	usual_names
	[ "$status" -eq 0 ]
	[[ $(<"$BED_DIR/home/result") == "4 ranks, 400 iterations: "* ]]
}

@test "a host name that leads to loopback is not what others are told" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	(
		export BED_DIR=$other
		"$bed" up --quiet -n 3 --plugin "$(line)" --conf 'NodeName=b[0-2] CPUs=16 RealMemory=1000 State=UNKNOWN'
		echo '{"node_timeout_ms": 20000, "log_level": "info"}' >"$other/home/rcshare.conf"
		for node in b0 b1 b2; do		# as Debian's installer does
			sed "s/.* $node\$/127.0.1.1 $node/" "$other/etc/hosts" >"$other/home/hosts.$node"
			on_node $node mount --bind "/run/bed/home/hosts.$node" /etc/hosts
		done
		srun -N3 --rcshare=require --mpi=pmix "$apps/rcs_alltoall" --seconds 1
		cat "$other"/log/b*.syslog
	) >"$BED_DIR/home/out" 2>&1 3>&- || { cat "$BED_DIR/home/out"; BED_DIR=$other "$bed" down; false; }
	BED_DIR=$other "$bed" down
	cat "$out"
	grep -q ' 0 lost, 0 duplicated, 0 damaged' "$out"
	[ "$(grep -c "name 'b[0-2]' leads to loopback; 10.77.0.1[0-2] port [0-9]* is told" "$out")" -eq 3 ]
	! grep -q 'another node answers' "$out"
}

@test "a resolver that does not answer is named" {
	other=$(mktemp -d "$root/build/bed/XXXXXX")
	(
		export BED_DIR=$other
		"$bed" up --quiet -n 2 --plugin "$(line)" --conf 'NodeName=b[0-1] CPUs=16 RealMemory=1000 State=UNKNOWN'
		echo '{}' >"$other/home/rcshare.conf"
		echo 127.0.0.1 localhost >"$other/home/hosts"
		echo 10.77.0.1 ctl >>"$other/home/hosts"
		echo 'nameserver 10.77.0.99' >"$other/home/resolv"
		srun -N2 true				# slurmd knows what it needs
		on_node b0 mount --bind /run/bed/home/hosts /etc/hosts
		on_node b0 mount --bind /run/bed/home/resolv /etc/resolv.conf
		srun -N2 --rcshare=on true
	) >"$BED_DIR/home/out" 2>&1 3>&- || { cat "$BED_DIR/home/out"; BED_DIR=$other "$bed" down; false; }
	BED_DIR=$other "$bed" down
	cat "$out"
	grep -q "b0: not used: the resolver gave no answer for this node's name 'b0' in .* ms; give it a NodeAddr" "$out"
}

@test "a journal that stands still stops no daemon, and what it has missed is told" {
	site '{"node_timeout_ms": 20000, "log_level": "info"}'
	on_node b0 sh -c 'kill -STOP $(ps -C perl -o pid=)
		until ! timeout 1 logger -s full; do :; done' 2>/dev/null	# until its socket holds no more
	traffic -N3
	eventually connected
	[[ $(status b0 .syslog_lost) -gt 0 ]]
	traffic_is_whole
	on_node b0 sh -c 'kill -CONT $(ps -C perl -o pid=)'
	eventually grep -q full "$BED_DIR/log/b0.syslog"
}

@test "a daemon that no epilog has ended ends when Slurm has forgotten its job" {
	site '{"job_check_s": 1}'
	batch -N1 -w b0 3>&- <<-'END' >"$out" 2>&1 &
		srun --rcshare=require true
		touch ~/one
		until [ -e ~/go ]; do sleep 0.05; done
	END
	eventually test -e "$BED_DIR/home/one"
	rm "$BED_DIR/home/one"
	job=$(the_job b0)
	pid=$(on_node b0 cat "/run/rcshare/$job.0/pid")
	"$bed" plugin ''				# no epilog from now on
	on_node b0 kill -0 "$pid"			# squeue has the job
	touch "$BED_DIR/home/go"
	wait
	BED_WAIT=30 eventually not on_node b0 kill -0 "$pid"
	grep -q "rcshared\[[0-9]*\]: job $job.0 ends: Slurm does not have the job any more" "$BED_DIR/log/b0.syslog"
	on_node b0 sh -c 'rm -r /run/rcshare/*'
	on_node b0 sh -c 'find /sys/fs/cgroup -depth -name rcshared -exec rmdir {} + 2>/dev/null || :'
}

@test "no process of the user looks into the daemon, and only Slurm says who is in a step" {
	traffic -N3
	eventually connected
	job=$(the_job b0)
	pid=$(on_node b0 cat "/run/rcshare/$job.0/pid")
	on_node b0 cat "/proc/$pid/environ" >/dev/null
	run "$bed" run --on b0 -- cat "/proc/$pid/environ"
	[[ $status -ne 0 && $output == *'Permission denied'* ]]
	run "$bed" run --on b0 -- ls "/proc/$pid/fd"
	[[ $status -ne 0 ]]
	# SHM_MSG_MONITOR (7) of step 0 with b0 alone in it: the others would be out
	abi=$(sed -n 's/^#define SHM_ABI[[:space:]]*\([0-9]*\)u.*/\1/p' "$root/runtime/shm/channel.h")
	run "$bed" run --on b0 -- perl -MSocket -e '
		socket S, AF_UNIX, SOCK_SEQPACKET, 0 or die;
		connect S, pack_sockaddr_un($ARGV[0]) or die "connect: $!";
		send S, pack("L2l", 7, $ARGV[1], 0) . "\0" x 4096, 0 or die "send: $!";
		recv S, my $answer, 8192, 0;
		print $answer' "/run/rcshare/$job.0/sock" "$abi"
	[[ $output == *"only Slurm's notifier says who is in a step"* ]]
	traffic_is_whole
}
