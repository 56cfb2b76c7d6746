#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The messages and exit codes of `rcshare`.

bats_require_minimum_version 1.5.0

setup() {
	root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	rcshare=${RCSHARE:-$root/build/rcshare}
	[[ -x $rcshare ]] || { echo "$rcshare was not built" >&2; return 1; }
	export RCSHARE_RUN_DIR=$BATS_TEST_TMPDIR/run
	mkdir -p "$RCSHARE_RUN_DIR"
	cd "$BATS_TEST_TMPDIR"
}

@test "--version names release and ABI" {
	run -0 --separate-stderr "$rcshare" --version
	[[ $output =~ ^rcshare\ [0-9.]+\ \(ABI\ [0-9]+\)$ ]]
}

@test "--help goes to stdout, also of each verb" {
	run -0 --separate-stderr "$rcshare" --help
	[[ $output == usage:* ]]
	for verb in config status log; do
		run -0 --separate-stderr "$rcshare" "$verb" --help
		[[ $output == "usage: rcshare $verb"* ]]
	done
}

@test "wrong usage exits with 2 and says what is right" {
	run -2 "$rcshare"
	[[ $output == usage:* ]]
	run -2 "$rcshare" stat
	[[ $output == "rcshare: unknown verb 'stat'; known are config, status and log" ]]
	run -2 "$rcshare" config
	run -2 "$rcshare" config --check a b
	run -2 "$rcshare" config --check --show
	[[ $output == *"give one of --check, --show"* ]]
	run -2 "$rcshare" status
	run -2 "$rcshare" status 17 --jsn
}

@test "config --check accepts the installed file and every sample" {
	for f in "$root"/config/rcshare.conf "$root"/config/samples/*.conf; do
		run -0 "$rcshare" config --check "$f"
		[[ $output == "$f: valid" ]]
	done
}

@test "config --check refuses with file, line and remedy" {
	printf '{\n  "probes": 2,\n  "rail": "auto"\n}\n' >bad.conf
	run -1 "$rcshare" config --check bad.conf
	[[ $output == "bad.conf:3: unknown key 'rail'; did you mean 'rails'?" ]]
	printf '{\n"rc_retry_cnt": 7}' >bad.conf
	run -1 "$rcshare" config --check bad.conf
	[[ $output == "bad.conf:2: 'rc_retry_cnt' is 7; give a number from 1 to 6" ]]
}

@test "config --check of a file that is not there fails" {
	run -1 "$rcshare" config --check none.conf
	[[ $output == "none.conf: cannot be read: No such file or directory" ]]
}

@test "config --show prints all keys, as a file that is valid" {
	echo '{"probes": 5}' >a.conf
	run -0 --separate-stderr "$rcshare" config --show a.conf
	echo "$output" >shown.conf
	[[ $(jq .probes shown.conf) == 5 ]]
	[[ $(jq -r .log_dir shown.conf) == /var/log/rcshare ]]
	run -0 "$rcshare" config --check shown.conf
	run -0 "$rcshare" config --keys
	[[ $(jq length shown.conf) == $((${#lines[@]} - 1)) ]]
}

@test "config --get prints one value and refuses what is no key" {
	echo '{"cpus": "0-3"}' >a.conf
	run -0 "$rcshare" config --get cpus a.conf
	[[ $output == '"0-3"' ]]
	run -1 "$rcshare" config --get cpu a.conf
	[[ $output == *"no key 'cpu'"* ]]
}

@test "status of what is no job number is wrong usage" {
	for bad in x 17. .1 17.x -17 17.1.2 99999999999; do
		run -2 "$rcshare" status -- "$bad"
		[[ $output == *"is no job; give its number"* ]]
	done
}

@test "status of an unknown job lists the jobs that are here" {
	run -1 "$rcshare" status 17
	[[ $output == *"job 17 has no rcshare daemon on this node"*"srun --jobid=17"* ]]
	mkdir "$RCSHARE_RUN_DIR"/{18.0,not-a-job}
	run -1 "$rcshare" status 17
	[[ $output == *"here are: 18.0" ]]
	run -1 "$rcshare" status 18.3
	[[ $output == *"here are: 18.0" ]]
}

@test "status of a daemon that has ended says so" {
	mkdir "$RCSHARE_RUN_DIR/17.0"
	run -3 "$rcshare" status 17
	[[ $output == *"17.0/sock: No such file or directory (it has ended)" ]]
}

@test "status of somebody else's job names the owner" {
	[[ $EUID == 0 ]] || skip "needs root to become somebody else"
	mkdir -m 700 "$RCSHARE_RUN_DIR/17.0"
	chmod 755 "$BATS_TEST_TMPDIR" "$RCSHARE_RUN_DIR"
	cp "$rcshare" "$BATS_RUN_TMPDIR/rcshare"
	chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/rcshare"
	setpriv --reuid=nobody --clear-groups test -x "$RCSHARE_RUN_DIR" ||
		skip "the temporary folder is closed to others"
	run -1 setpriv --reuid=nobody --clear-groups "$BATS_RUN_TMPDIR/rcshare" status 17
	[[ $output == *"belongs to root: only its owner and root may look" ]]
}

# answer FILE: a daemon that answers one SHM_MSG_STATUS with FILE in a memfd
answer() {
	python3 - "$RCSHARE_RUN_DIR/17.0" "$@" 3>&- <<-'END' &
		import array, os, socket, struct, sys
		d, text = sys.argv[1], open(sys.argv[2], "rb").read()
		status = int(sys.argv[3]) if len(sys.argv) > 3 else 0
		os.mkdir(d)
		s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		s.bind(d + "/new")
		s.listen(1)
		os.rename(d + "/new", d + "/sock")
		s.settimeout(20)
		c, _ = s.accept()
		kind, abi = struct.unpack_from("II", c.recv(4096))
		fd = os.memfd_create("status")
		os.write(fd, text)
		fd = os.open(os.environ["RCS_TEST_FILE"], os.O_RDONLY) if "RCS_TEST_FILE" in os.environ else fd
		msg = struct.pack("IIiI192s", kind, abi, status, 0, b"no room for it")
		fds = [] if status else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
		c.sendmsg([msg], fds)
	END
	for _ in {1..100}; do
		[[ ! -S $RCSHARE_RUN_DIR/17.0/sock ]] || return 0
		sleep 0.05
	done
	return 1
}

status_text='{"job": 17, "restart": 0, "node": 0, "host": "n0", "version": "0.1.0", "ranks": 4,
 "failovers": 1, "uptime_ns": 5000000000, "rails": [{"index": 0, "name": "rxe0/1", "ok": false}],
 "nodes": [{"node": 0, "host": "n0", "state": "self"},
  {"node": 1, "host": "n1", "state": "up", "lane": 4, "lanes_up": [0, 4], "failovers": 1,
   "tx_frames": 10, "rx_frames": 12, "resent": 2, "backlog": 0}]}'

@test "status prints a line for each node" {
	echo "$status_text" >a.json
	answer a.json
	run -0 --separate-stderr "$rcshare" status 17
	[[ ${lines[0]} == "job 17.0 on n0 (node 0), rcshared 0.1.0, up 5.00 s, 4 endpoints attached, 1 failovers" ]]
	[[ ${lines[1]} == "rails: rxe0/1 (failed)" ]]
	[[ ${lines[2]} =~ ^NODE\ +HOST\ +STATE ]]
	[[ ${lines[4]} =~ ^1\ +n1\ +up\ +tcp\ +rxe0/1,tcp\ +1\ +10\ +12\ +2\ +0$ ]]
}

@test "status --json passes the answer on" {
	echo "$status_text" >a.json
	answer a.json
	run -0 --separate-stderr "$rcshare" status 17.0 --json
	[[ $(jq -S . <<<"$output") == "$(jq -S . a.json)" ]]
}

@test "status shows no control characters that came from elsewhere" {
	printf '{"job": 17, "host": "h\\u001b[2J", "version": "\\u009b31m", "rails": [{"name": "r\\u0007"}],
		"log_dropped": 1, "log_error": "e\\u001b]0;x",
		"nodes": [{"node": 1, "host": "a\\u001b[31mb"}]}' >a.json
	answer a.json
	run -0 --separate-stderr "$rcshare" status 17
	[[ $output == *'a?[31mb'* && $output == *'h?[2J'* && $output == *' r?'* && $output == *'e?]0;x'* ]]
	[[ $output != *$'\e'* && $output != *$'\a'* && $output != *$'\xc2\x9b'* ]]
}

@test "status takes memory alone from a daemon" {
	echo '{"job": 17}' >a.json
	RCS_TEST_FILE=a.json answer a.json
	run -3 "$rcshare" status 17
	[[ $output == *"no JSON object" ]]
}

@test "status of a daemon that refuses repeats its sentence" {
	echo x >a.json
	answer a.json -12
	run -3 "$rcshare" status 17
	[[ $output == "rcshare: the daemon says: no room for it" ]]
}

@test "status of an answer that is no JSON fails" {
	echo 'not json' >a.json
	answer a.json
	run -3 "$rcshare" status 17
	[[ $output == *"no JSON object" ]]
}

failover() { # UTC HOST PEER
	jq -nc --arg t "$1" --arg h "$2" --arg p "$3" '{event: "failover", utc: $t, noticed_utc: $t,
		host: $h, peer_host: $p, rail: "rxe0/1", to_rail: "tcp", reason: "port", verdict: "local port",
		notice_ns: 1500, blackout_ns: 2500000, frames_resent: 7}'
}

@test "log prints failovers of all nodes in order of time" {
	mkdir -p logs/17 logs/17.1 logs/171
	echo '{"event": "start", "utc": "2026-01-01T00:00:00Z"}' >logs/17/0.jsonl
	failover 2026-01-01T00:00:03Z n0 n1 >>logs/17/0.jsonl
	failover 2026-01-01T00:00:02Z n1 n0 >logs/17/1.jsonl
	failover 2026-01-01T00:00:04Z n1 n0 >logs/17.1/1.jsonl
	failover 2026-01-01T00:00:05Z n9 n0 >logs/171/1.jsonl
	run -0 --separate-stderr "$rcshare" log 17 --dir logs
	[[ ${#lines[@]} == 4 ]]
	[[ ${lines[1]} =~ ^2026-01-01T00:00:02Z\ +n1\ +n0\ +rxe0/1\ +tcp\ +port\ +local\ port\ +1\.5\ us\ +2\.5\ ms\ +7$ ]]
	[[ ${lines[2]} == *:03Z* && ${lines[3]} == *:04Z* ]]
	run -0 --separate-stderr "$rcshare" log 17.0 --dir logs
	[[ ${#lines[@]} == 3 ]]
	run -0 --separate-stderr "$rcshare" log 17.1 --dir logs --json
	[[ $(jq -r .noticed_utc <<<"$output") == 2026-01-01T00:00:04Z ]]
	run -0 --separate-stderr "$rcshare" log 17 --dir logs --all
	[[ ${lines[1]} == *start ]]
}

@test "log says what is missing and passes over damaged lines" {
	mkdir -p logs/17
	{
		echo '{"event": "failo'
		failover 2026-01-01T00:00:03Z n0 n1 | jq -c '.dropped = 5'
	} >logs/17/0.jsonl
	run -0 --separate-stderr "$rcshare" log 17 --dir logs
	[[ ${#lines[@]} == 2 ]]
	[[ $stderr == *"5 records are missing"* ]]
	[[ $stderr == *"1 lines were damaged"* ]]
}

@test "log waits for no FIFO and follows no link of the job's user" {
	mkdir -p logs/17 logs/18 other
	failover 2026-01-01T00:00:03Z n0 n1 >logs/17/3.jsonl
	failover 2026-01-01T00:00:04Z other n1 >other/secret.jsonl
	mkfifo logs/17/0.jsonl
	ln -s "$PWD/other/secret.jsonl" logs/17/1.jsonl
	{ head -c 400000 /dev/zero | tr '\0' x; echo; failover 2026-01-01T00:00:05Z n2 n1; } >logs/17/2.jsonl
	ln -s "$PWD/other" logs/17.1
	run -0 --separate-stderr timeout 20 "$rcshare" log 17 --dir logs
	[[ ${#lines[@]} == 3 && $output == *:03Z*:05Z* && $output != *:04Z* ]]
	[[ $stderr == *"cannot read logs/17/0.jsonl: it is no regular file"* ]]
	[[ $stderr == *"cannot read logs/17/1.jsonl: it is a link"* ]]
	[[ $stderr == *"1 lines were damaged"* ]]
	ln -s logs linked
	run -0 --separate-stderr "$rcshare" log 17 --dir linked	# the admin's own
}

@test "messages show no control characters of a file's name" {
	mkdir -p logs/17
	mkfifo logs/17/$'\e[31m.jsonl'
	run -1 timeout 20 "$rcshare" log 17 --dir logs
	[[ $output == *'?[31m.jsonl'* && $output != *$'\e'* ]]
}

@test "status tells to ask on a node of the job, by its number alone" {
	run -1 "$rcshare" status 17.1
	[[ $output == *"srun --jobid=17 --overlap rcshare status 17.1"* ]]
}

@test "rcshare(1) has every key of --rcshare" {
	local keys
	mapfile -t keys < <(sed -n 's/^\t{"\([a-z_]*\)", set_.*/\1/p' "$root/spank/option.c")
	[[ ${#keys[@]} -gt 3 ]]
	for key in "${keys[@]}"; do
		grep -q "^\*$key=\*_" "$root/docs/man/rcshare.1.scd" || { echo "no $key"; return 1; }
	done
}

@test "log of a job without one exits with 1" {
	run -1 "$rcshare" log 17 --dir "$BATS_TEST_TMPDIR/none"
	[[ $output == *"there is no log of job 17 in"* ]]
	run -2 "$rcshare" log x
}
