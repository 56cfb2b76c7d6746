#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What `make install` would put where, without building or installing anything.

setup() {
	root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
}

dry() {
	env -u MAKEFLAGS make -C "$root" -n V=1 install "$@" 2>/dev/null
}

@test "the plugin starts the daemon of its own PREFIX, and lies where Slurm looks" {
	run dry PREFIX=/opt/rcshare DESTDIR=/stage
	[ "$status" -eq 0 ]
	grep -q 'RCSHARE_DAEMON=.*"/opt/rcshare/sbin/rcshared"' <<<"$output"
	grep -qE 'install -m 711 .*rcshared /stage/opt/rcshare/sbin/rcshared$' <<<"$output"
	plugin=$(sed -nE 's|^install -m 755 .*rcshare_spank.so /stage(/.*)/rcshare_spank.so$|\1|p' <<<"$output")
	[ -e "$plugin/auth_munge.so" ] || skip "Slurm's own plugins are not installed here"
	# by its path: Slurm searches its own folder alone
	grep -qF "s|rcshare_spank.so|$plugin/&|" <<<"$output"
}

@test "a machine without multiarch folders has lib64, as RHEL does" {
	[ -d /usr/lib64 ] || skip "there is no /usr/lib64 here"
	run dry MULTI= DESTDIR=/stage
	grep -qE 'librcshare.so /stage/usr/lib64/librcshare.so.0$' <<<"$output"
}
