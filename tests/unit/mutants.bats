#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause

@test "each fault that check-mutants plants still changes the line it names" {
	"$BATS_TEST_DIRNAME/../mutants/run" --check
}
