#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What the daemons notice reaches the ranks as PMIx events, and the user as one line; with the real
# daemon over TCP.

load helpers

setup_file() {
	need_plugin
	for f in "$daemon" "$apps/rcs_alltoall" "$apps/pmix_hello"; do
		[[ -x $f ]] || skip "$f is not built: run make all apps"
	done
	bed_up -n 3 --plugin "$(plugin_line daemon="$daemon" \
		config=/run/bed/home/rcshare.conf)"
	echo '{"unreachable_ms": 500, "node_timeout_ms": 20000}' >"$BED_DIR/home/rcshare.conf"
}

teardown_file() {
	bed_down
}

teardown() {
	"$bed" restore b1
}

@test "a lost rank is told to the ranks of all nodes, and no other step suffers" {
	app=$(bed_app rcs_alltoall) hello=$(bed_app pmix_hello)
	run batch -N3 -n9 <<-END
		rm -f ~/done
		srun --overlap -N3 -n3 --mpi=pmix --rcshare=on $app --seconds 5 --max 4096 &
		all=\$!
		srun --overlap -N1 -n1 -w b1 --mpi=pmix --rcshare=on $hello wait ~/done &
		hello=\$!
		sleep 1
		srun --overlap -N1 -n1 -w b1 --mpi=pmix --rcshare=on sh -c '
			$app --seconds 30 --max 4096 >/dev/null & sleep 1; kill -9 \$!; wait'
		wait \$all || exit
		touch ~/done
		wait \$hello
	END
	echo "$output"
	[ "$status" -eq 0 ]
	for rank in 0 1 2; do
		[ "$(grep -cE "^rank $rank: PMIx event RANK_LOST .*rcshare.rank=0 rcshare.origin=1 rcshare.host=\"b1\" rcshare.seq=1 " \
			<<<"$output")" -eq 1 ]
	done
	grep -qE ' messages, 0 lost, 0 duplicated, 0 damaged$' <<<"$output"
	grep -qx 'rank 0 done' <<<"$output"
	not grep -q '^rcshare:' <<<"$output"	# no failover, no line
}

@test "a cut node is told as unreachable and as back, and the user gets one line" {
	app=$(bed_app rcs_alltoall)
	srun -N3 -n3 --mpi=pmix --rcshare=on "$app" --seconds 8 --max 4096 >"$BED_DIR/home/out" 2>&1 3>&- &
	eventually grep -q '^round' "$BED_DIR/home/out"
	"$bed" cut b1
	eventually grep -q '^rank 0: PMIx event PEER_UNREACHABLE' "$BED_DIR/home/out"
	"$bed" restore b1
	wait $!
	cat "$BED_DIR/home/out"
	for rank in 0 2; do
		for event in UNREACHABLE BACK; do
			grep -qE "^rank $rank: PMIx event PEER_$event .*rcshare.peer=1( |$)" \
				"$BED_DIR/home/out"
		done
	done
	grep -qE ' messages, 0 lost, 0 duplicated, 0 damaged$' "$BED_DIR/home/out"
	[ "$(grep -cE '^rcshare: [0-9]+ failovers? in this job( on b[0-2])?, [0-9]+ ms longest blackout; see /var/log/rcshare/' \
		"$BED_DIR/home/out")" -eq 1 ]
	eventually idle
}
