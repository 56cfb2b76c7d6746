# SPDX-License-Identifier: BSD-3-Clause
# Shared by the bats files of this folder.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bed=$here/bed
# Sanitizer runs (tests/check san) put their own daemon, library and programs in place of build/'s.
daemon=${RCS_DAEMON:-$root/build/rcshared}
apps=${RCS_APPS:-$root/build/apps}

# bed_up [UP OPTIONS]: in setup_file. Skips the file, saying why, where a bed cannot be.
bed_up() {
	[[ $EUID == 0 ]] || skip "a bed needs root"
	for c in slurmctld slurmd munged srun nft; do
		PATH=$PATH:/usr/sbin command -v "$c" >/dev/null || skip "$c is not installed"
	done
	mkdir -p "$root/build/bed"
	BED_DIR=$(mktemp -d "$root/build/bed/XXXXXX")
	export BED_DIR
	"$bed" up --quiet --until $$ "$@"
}

# bed_down: in teardown_file
bed_down() {
	[[ -z ${BED_DIR:-} ]] || "$bed" down
}

# bed_app NAME: path of tests/apps/NAME.c built (by the root Makefile, or here without it)
bed_app() {
	local app=$apps/$1
	if [[ ! -x $app ]]; then
		app=$BED_DIR/home/$1
		[[ -x $app ]] || gcc -std=c11 -D_GNU_SOURCE -o "$app" "$root/tests/apps/$1.c" \
			$(pkg-config --cflags --libs pmix) >&2 || return 1
	fi
	echo "$app"
}

# srun ARGS...: in the bed, with an end to waiting (SRUN_WAIT, in s)
srun() {
	timeout -k 5 "${SRUN_WAIT:-60}" "$bed" srun "$@"
}

# has_carrier NODE 0|1
has_carrier() {
	[[ $("$bed" run --on "$1" -- cat /sys/class/net/eth0/carrier) == "$2" ]]
}

# eventually CMD...: CMD becomes true within 20 s (BED_WAIT)
eventually() {
	local deadline=$((SECONDS + ${BED_WAIT:-20}))
	until "$@" >/dev/null 2>&1; do
		[[ $SECONDS -lt $deadline ]] || { echo "never became true: $*" >&2; "$@" >&2 || :; return 1; }
		read -rt 0.05 <>"$BED_DIR/tick" || :
	done
}

# reaches FROM TO: a TCP connection to TO's slurmd opens
reaches() {
	"$bed" run --on "$1" -- timeout 0.5 bash -c "</dev/tcp/$2/6818" 2>/dev/null
}

not() {
	! "$@"
}

# plugin_line ARGS...: the plugstack line of the plugin as built. Without config= a node is not lost
# for long: a busy machine stands still for seconds.
plugin_line() {
	local config=" config=/run/bed/etc/rcshare.conf"
	[[ " $*" != *" config="* ]] || config=
	echo "optional $root/build/rcshare_spank.so $*$config"
}

# need_plugin: in setup_file, before bed_up
need_plugin() {
	[[ -e $root/build/rcshare_spank.so ]] || skip "build/rcshare_spank.so is not built: run make"
}

# batch [SBATCH OPTIONS] <SCRIPT: runs it to its end, shows its output; 0 if it completed
batch() {
	local script=$BED_DIR/home/script out=$BED_DIR/home/out.batch job state
	{ echo '#!/bin/bash'; cat; } >"$script"
	chmod 755 "$script"
	rm -f "$out"
	job=$("$bed" run -- sbatch --parsable -o "$out" "$@" "$script") || return 1
	BED_WAIT=60 eventually ended "$job"		# sbatch -W looks at every few seconds only
	cat "$out"
	[[ $state == COMPLETED ]]
}

ended() {
	state=$("$bed" run -- scontrol -o show job "$1" | sed 's/.*JobState=\([A-Z_]*\).*/\1/')
	[[ $state != @(PENDING|RUNNING|COMPLETING|CONFIGURING|REQUEUED) ]]
}

# on_node NODE CMD...: as root
on_node() {
	local node=$1
	shift
	"$bed" run -u root --on "$node" -- "$@"
}

# idle: all nodes are idle, none drained or completing
idle() {
	local states
	states=$("$bed" run -- sinfo -h -N -o %T | sort -u)
	[[ $states == idle ]] || { echo "nodes are" $states; return 1; }
}

# nothing_left: no job's daemon, run dir, lock or cgroup on any node (jobs have ended)
nothing_left() {
	idle || return 1
	local node left
	for node in $(<"$BED_DIR/nodes"); do
		left=$(on_node "$node" sh -c 'ls -A /run/rcshare /dev/shm 2>/dev/null | grep -v :
			find /sys/fs/cgroup -name "job_*" -o -name rcshared
			ps -e -o comm= | grep rcshared')
		[[ -z $left ]] || { echo "$node: $left"; return 1; }
	done
}

# said TIMES PATTERN: so many lines of $out, a job's output, match
said() {
	[ "$(grep -cE "$2" "$out")" -eq "$1" ]
}

# site JSON: rcshare.conf of the bed, where plugstack.conf names /run/bed/home/rcshare.conf
site() {
	echo "$1" >"$BED_DIR/home/rcshare.conf"
}
