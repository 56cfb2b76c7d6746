#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Twelve cells of the failover matrix (`make lab-matrix` has all): each cause and each load at least once,
# the failures of a test one after the other in one job, whose start and end cost most.

load helper

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return
	export lab=$BATS_TEST_DIRNAME/lab
	. "$BATS_TEST_DIRNAME/cell.bash"
	syslog_start
}

one() { # CAUSE[+CAUSE]... KIND RAILS
	# shellcheck source=tests/lab/cell.bash
	. "$BATS_TEST_DIRNAME/cell.bash"
	keep=$BATS_FILE_TMPDIR
	cell "$@" || { cat "$keep/${SUITE:-bookworm}.$1.$2.$3"/*; return 1; }
}

@test "puts: a cut cable, silent loss one way, a port down" { one cut+loss-in+port put 2; }
@test "messages, one rail and TCP: a port down, a cut cable" { one port+cut message 1; }
@test "gets, one rail and TCP: silent loss both ways, a NIC removed and back" { one loss+nic get 1; }
@test "atomics: a cable that flaps ten times, silent loss one way" { one flap+loss-in atomic 2; }
@test "all kinds: silent loss both ways, a NIC removed and back, both rails at once and then one back" {
	one loss+nic+both mixed 2
}
