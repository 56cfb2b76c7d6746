#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Programs include rcshare.h, whatever they are written in.

compiles() { # compiler, language, standard
	command -v "$1" || skip "needs $1"
	"$1" -x "$2" -std="$3" -Wall -Wextra -Werror -pedantic -fsyntax-only "$BATS_TEST_DIRNAME/../../runtime/include/rcshare.h"
}

@test "rcshare.h is C11" { compiles gcc c c11; }
@test "rcshare.h is C99" { compiles gcc c c99; }
@test "rcshare.h is C++11" { compiles g++ c++ c++11; }
@test "rcshare.h is C++17" { compiles g++ c++ c++17; }

@test "a program of the first release finds its calls in the library, and they know its structs" {
	local lib=$BATS_TEST_DIRNAME/../../build/librcshare.so
	[[ -e $lib ]] || skip "needs build/librcshare.so"
	# as that release declared them
	cat >"$BATS_TEST_TMPDIR/old.c" <<-'END'
		#include <string.h>
		typedef struct rcs rcs;
		int rcs_send(rcs *, const void *), rcs_recv(rcs *, const void *), rcs_put(rcs *, const void *);
		int rcs_get(rcs *, const void *), rcs_atomic(rcs *, const void *), rcs_cq_read(rcs *, void *, unsigned);
		int rcs_cq_wait(rcs *, void *, unsigned, int), rcs_peer_query(const rcs *, void *);
		int rcs_probe(rcs *, rcs *, unsigned long, unsigned long, void *, rcs **);
		int rcs_on_event(rcs *, void (*)(const void *, void *), void *);
		void rcs_limits(const rcs *, void *);
		const char *rcs_status_name(int);
		int main(int argc, char **argv)
		{
			int rc[] = {rcs_send(0, 0), rcs_recv(0, 0), rcs_put(0, 0), rcs_get(0, 0), rcs_atomic(0, 0),
				rcs_cq_read(0, 0, 1), rcs_cq_wait(0, 0, 1, 0), rcs_peer_query(0, 0),
				rcs_probe(0, 0, 0, 0, 0, 0), rcs_on_event(0, 0, 0)};
			(void)argv;
			if (argc > 9)
				rcs_limits(0, 0);
			for (unsigned i = 0; i < sizeof(rc) / sizeof(rc[0]); i++)
				if (strcmp(rcs_status_name(rc[i]), "RCS_ERR_INVALID"))
					return (int)i + 1;
			return 0;
		}
	END
	gcc -o "$BATS_TEST_TMPDIR/old" "$BATS_TEST_TMPDIR/old.c" "$lib" -Wl,-rpath,"${lib%/*}"
	"$BATS_TEST_TMPDIR/old"
}
