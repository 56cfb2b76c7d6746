#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# 100 times attached and detached, with messages in between: neither side keeps memory, descriptors,
# endpoints or regions of it. Daemon and program run under valgrind.

load ../slurm/helpers

setup_file() {
	need_plugin
	command -v valgrind >/dev/null || skip "valgrind is not installed"
	reports=$root/build/valgrind/reports
	mkdir -p "$reports"
	chmod 1777 "$reports"
	rm -f "$reports"/*
	ln -sfn ../rcshared "$root/build/valgrind/rcshared"
	ln -sfn ../../tests/san/daemon "$root/build/valgrind/valgrind-daemon"
	bed_up -n 1 --plugin "$(plugin_line daemon="$root/build/valgrind/valgrind-daemon" timeout=120)"
	export reports
}

teardown_file() {
	bed_down
}

@test "100 cycles leave nothing in the program and nothing in the daemon" {
	run batch -N1 <<-END
		set -e
		fds() {
			ls /proc/\$(cat \${RCSHARE_SOCKET%sock}pid)/fd | wc -l
		}
		cycles() {
			srun --rcshare=require valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite \
				--show-leak-kinds=definite --error-exitcode=9 --log-file=$reports/app.\$1 $apps/rcs_cycle \$1
		}
		export RCSHARE_SOCKET=/run/rcshare/\$SLURM_JOB_ID.0/sock
		cycles 1
		before=\$(fds)
		cycles 100
		for i in \$(seq 100); do	# the step's last connection may outlive srun
			[ \$(fds) -gt \$before ] || break
			sleep 0.1
		done
		[ \$(fds) -gt \$before ] || echo no descriptor more
		$root/build/rcshare status \$SLURM_JOB_ID --json |
			jq -r '"\(.regions) regions, \(.endpoints | length) endpoints"'
	END
	echo "$output"
	[ "$status" -eq 0 ]
	grep -qx '100 cycles ok' <<<"$output"
	grep -qx 'no descriptor more' <<<"$output"
	grep -qx '0 regions, 0 endpoints' <<<"$output"
	BED_WAIT=60 eventually nothing_left
	tail -n 40 "$reports"/*
	[ "$(ls "$reports" | grep -c '^daemon\.')" -eq 1 ]
	# not counted: "WARNING: unhandled syscall" of an older valgrind
	not grep -q '^==' "$reports"/*
}
