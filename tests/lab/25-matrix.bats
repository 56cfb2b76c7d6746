#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Twelve cells of the failover matrix (`make lab-matrix` has all): each cause and each load at least once.

load helper

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return
	export lab=$BATS_TEST_DIRNAME/lab
	. "$BATS_TEST_DIRNAME/cell.bash"
	syslog_start
}

one() { # CAUSE KIND RAILS
	# shellcheck source=tests/lab/cell.bash
	. "$BATS_TEST_DIRNAME/cell.bash"
	keep=$BATS_FILE_TMPDIR
	cell "$@" || { cat "$keep/${SUITE:-bookworm}.$1.$2.$3"/*; return 1; }
}

@test "a cut cable, puts" { one cut put 2; }
@test "a cut cable, atomics, one rail" { one cut atomic 1; }
@test "a port down, gets" { one port get 2; }
@test "a port down, messages, one rail" { one port message 1; }
@test "silent loss one way, puts" { one loss-in put 2; }
@test "silent loss one way, messages" { one loss-in message 2; }
@test "silent loss both ways, all kinds" { one loss mixed 2; }
@test "silent loss both ways, gets, one rail" { one loss get 1; }
@test "a NIC removed and back, all kinds" { one nic mixed 2; }
@test "a NIC removed and back, puts, one rail" { one nic put 1; }
@test "a cable that flaps ten times, atomics" { one flap atomic 2; }
@test "both rails at once, then one back, all kinds" { one both mixed 2; }
