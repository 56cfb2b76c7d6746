#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# check: short
#
# runtime/node/verbs*.c alone, on two guests: frames, the fence, lending, rails that fail and return.
# Side A runs on n0, side B on n1; what fails is B's.

load helper

setup_file() {
	lab status >/dev/null || { echo "needs a lab: tests/lab/lab with bats tests/lab" >&2; return 1; }
	"$BATS_TEST_DIRNAME/verbs-build" "$BATS_FILE_TMPDIR"
	for n in n0 n1; do
		lab put $n "$BATS_FILE_TMPDIR/verbs_test" /tmp/verbs_test
	done
	lab put n1 "$BATS_FILE_TMPDIR/lie.so" /tmp/lie.so
}

begin() { # CASE [ARG]: both sides, in the background
	local limit=$((300 + ${FENCES:-0}))
	B=$BATS_TEST_TMPDIR/b A=$BATS_TEST_TMPDIR/a
	lab run n1 -u lab -t $limit -- bash -c 'ulimit -l unlimited 2>/dev/null; exec env $1 /tmp/verbs_test rxe0 listen "${@:2}"' bash "${B_ENV:-A=B}" "$@" \
		>"$B" 2>&1 3>&- &
	b_pid=$!
	lab run n0 -u lab -t $limit -- sh -c 'ulimit -l unlimited 2>/dev/null; exec /tmp/verbs_test rxe0 n1 "$@"' sh "$@" \
		>"$A" 2>&1 3>&- &
	a_pid=$!
}

end() { # both sides say that everything held
	local a=0 b=0
	wait "$a_pid" || a=$?
	wait "$b_pid" || b=$?
	cat "$A" "$B"
	[ "$a" -eq 0 ]
	[ "$b" -eq 0 ]
	grep -q '^A: done' "$A"
	grep -q '^B: done' "$B"
}

said() { grep -q "$2" "$1"; }

@test "frames of all sizes cross both ways in order; lanes never overrun a completion queue" {
	begin frames 1000
	end
}

@test "nothing executes after the fence, and rq_psn counts what did" {
	begin fence "${FENCES:-60}"
	end
}

@test "a fence in the middle of a burst ends every request exactly once" {
	begin burst 20
	end
}

@test "memory that another process registered is read and written; leftovers are swept" {
	begin lend
	end
}

@test "a port that goes down and returns" {
	begin port
	eventually 30 said "$B" '^B: ready'
	lab cut n1 0
	eventually 30 said "$B" '^B: down'
	lab restore n1 0
	end
}

@test "datagrams are answered, also when the lane is dead" {
	begin datagram 100
	end
	grep -h datagrams "$A" | sed 's/^/# /' >&3
}

@test "netlink alone tells of a cable that is cut and put back, and the device's word adds nothing" {
	begin carrier
	eventually 30 said "$B" '^B: ready'
	lab cut n1 0
	eventually 30 said "$B" '^B: down'
	lab restore n1 0
	end
}

@test "a device that is removed and returns" {
	begin device
	eventually 30 said "$B" '^B: ready'
	lab nic-remove n1 0
	eventually 30 said "$B" '^B: down'
	# the removal waits for the last context on the device
	gone() { ! lab run n1 -- test -e /sys/class/net/rail0; }
	eventually 20 gone
	lab nic-rescan n1
	end
	eventually 10 port_is n1 0 ACTIVE
}

@test "a port whose address changes" {
	begin moved
	eventually 30 said "$B" '^B: ready'
	lab run n1 -- sh -c 'echo 1 >/proc/sys/net/ipv4/conf/rail0/promote_secondaries
		ip addr add 10.77.1.111/24 dev rail0 && ip addr del 10.77.1.11/24 dev rail0'
	end
	lab run n1 -- sh -c 'ip addr add 10.77.1.11/24 dev rail0 && ip addr del 10.77.1.111/24 dev rail0'
}

@test "connecting to an address that does not answer does not stop the loop" {
	begin mute
	eventually 30 said "$A" '^A: ready'
	lab drop n1 0 in
	lab run n0 -- ip neigh flush dev rail0
	end
	lab undrop n1 0
	# our own word; the kernel's, after a second of sleep, is "Connection timed out"
	said "$A" '^A: connect took .*: No route to host'
}

@test "a device proves that rq_psn is true, again and again, and leaves nothing behind" {
	begin selftest "${SELFTESTS:-4}"
	end
	grep -h 'ledger\|tests,' "$A" "$B" | sed 's/^/# /' >&3
}

@test "a device that lies in rq_psn or in its flushes is caught, and its peer's ledger writes tell what was executed" {
	local how
	for how in stuck ahead random flush; do
		lab run n1 -- sh -c "echo $how >/tmp/lie"
		B_ENV=LD_PRELOAD=/tmp/lie.so begin word "${FENCES:-20}"
		end
		grep -h 'ledger none\|covered' "$B" | sed "s/^/# $how: /" >&3
	done
	lab run n1 -- rm /tmp/lie
}

@test "a device that is removed in its self-test is let go, and tested again when it returns" {
	begin unplug
	eventually 30 said "$B" '^B: ready'
	lab nic-remove n1 0
	eventually 30 said "$B" '^B: down' || { cat "$A" "$B"; false; }
	gone() { ! lab run n1 -- test -e /sys/class/net/rail0; }
	eventually 20 gone
	lab nic-rescan n1
	end
	eventually 10 port_is n1 0 ACTIVE
	grep -h 'let go' "$B" | sed 's/^/# /' >&3
}
