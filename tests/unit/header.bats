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
