# SPDX-License-Identifier: BSD-3-Clause
# Shared by the bats files of this folder.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bed=$here/bed

# bed_up [UP OPTIONS]: in setup_file. Skips the file, saying why, where a bed cannot be.
bed_up() {
	[[ $EUID == 0 ]] || skip "a bed needs root"
	for c in slurmctld slurmd munged srun nft; do
		PATH=$PATH:/usr/sbin command -v "$c" >/dev/null || skip "$c is not installed"
	done
	mkdir -p "$root/build/bed"
	BED_DIR=$(mktemp -d "$root/build/bed/XXXXXX")
	export BED_DIR
	"$bed" up --quiet "$@"
}

# bed_down: in teardown_file
bed_down() {
	[[ -z ${BED_DIR:-} ]] || "$bed" down
}

# bed_app NAME: path of tests/apps/NAME.c built (by the root Makefile, or here without it)
bed_app() {
	local app=$root/build/apps/$1
	if [[ ! -x $app ]]; then
		app=$BED_DIR/home/$1
		[[ -x $app ]] || gcc -std=c11 -D_GNU_SOURCE -o "$app" "$root/tests/apps/$1.c" \
			$(pkg-config --cflags --libs pmix) >&2 || return 1
	fi
	echo "$app"
}

# srun ARGS...: in the bed, with an end to waiting
srun() {
	timeout -k 5 60 "$bed" srun "$@"
}

# has_carrier NODE 0|1
has_carrier() {
	[[ $("$bed" run --on "$1" -- cat /sys/class/net/eth0/carrier) == "$2" ]]
}

# eventually CMD...: CMD becomes true within 20 s
eventually() {
	local deadline=$((SECONDS + 20))
	until "$@"; do
		[[ $SECONDS -lt $deadline ]] || { echo "never became true: $*" >&2; return 1; }
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
