#!/bin/bash
# Tests with a shim that is built with -fsanitize=address,undefined. Whatever
# the sanitizers report, in any process, is a failure; so is a test that fails.
#
#   asan.sh             the tests
#   asan.sh planted     a copy with faults planted must be reported, each of them
#
# The build is made in a copy of the checkout: its objects must not be taken for
# those of another build. The server itself is the ordinary one; what that leaves
# unseen is said in test/README.md and test/asan/redzones.h.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
mode=${1:-all}
work=$(mktemp -d "${TMPDIR:-/tmp}/plh-asan.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$work"
mkdir -m 777 "$work/reports"
mkdir "$work/src"
tar -c --exclude=./.git --exclude='./extension/*.o' --exclude=./pg_lock_history.so . | tar -x -C "$work/src"
cd "$work/src" || exit 1

# PGXS adds COPT to the compiler's flags and the linker's. -fno-wrapv: to the
# server's build an overflow is defined, to this one it is a fault.
export COPT="-fsanitize=address,undefined -fsanitize-recover=address,undefined -fno-wrapv
	-O1 -g -fno-omit-frame-pointer -U_FORTIFY_SOURCE -include $work/src/test/asan/redzones.h"
COPT=$(tr -s '\n\t ' ' ' <<<"$COPT")
# Signals and alternate stacks are the shim's own business, and Go's. A process
# goes on after a report: the next one may say more.
ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:halt_on_error=0:detect_odr_violation=0
ASAN_OPTIONS+=:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:use_sigaltstack=0
export ASAN_OPTIONS=$ASAN_OPTIONS:log_path=$work/reports/address
export PLH_SANITIZER_REPORTS=$work/reports

# plant FILE PERL_SUBSTITUTION
plant() {
	perl -0pi -e "$2 or die qq(nothing to be replaced in $1\n)" "extension/$1" || exit 1
}

# A server with a wait that fails, until the patterns given are in the reports, or 30 s.
play() (
	. test/tools/throwaway.sh
	throwaway_begin && install_here "$THROWAWAY" && start_cluster planted <<-'CONF' || exit 1
		shared_preload_libraries = 'pg_lock_history'
	CONF
	sql() { as_server_user "$BINDIR/psql" -X -q -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres "$@"; }
	# Whoever comes second fails.
	for _ in 1 2; do
		sql -c 'SET lock_timeout = 200' -c 'SELECT pg_advisory_lock(1)' -c 'SELECT pg_sleep(30)' &
	done
	for _ in {1..300}; do
		cat "$work/reports"/* >"$work/all" 2>/dev/null
		for want; do grep -q -z -P "$want" "$work/all" || break; done
		grep -q -z -P "$want" "$work/all" && break
		sleep 0.1
	done
	cp "$THROWAWAY/clusters/planted.log" "$work/log"
	stop_cluster planted
)

case $mode in
planted)
	# Behind a part of shared memory, behind a copy on the stack, behind an
	# array of the worker, and an overflow.
	plant probe_failures.c 's/(for \(i = 0; i <)( PLH_MAX_PROCESSES\(\); i\+\+\)\s+\{\s+if \(!read_slot)/$1=$2/'
	plant probe_failures.c 's/&copy\[i % PLH_FAILURES_KEPT\]/&copy[i % PLH_FAILURES_KEPT + PLH_FAILURES_KEPT]/'
	plant probe_activity.c 's/(for \(i = plh_slot\(0\); i <)( PLH_MAX_PROCESSES\(\); i = plh_slot\(i \+ 1\)\)\s+if \(activity->slots\[i\]\.pid != 0\))/$1=$2/'
	plant probe_activity.c 's/(clients_us \+= )idle_clients( \* passed_us)/$1(idle_clients + PG_INT64_MAX)$2/'
	wants=('use-after-poison[^\n]*(\n[^\n]*){1,3} in read_slot' 'stack-buffer-overflow[^\n]*(\n[^\n]*){1,3} in read_slot'
		'use-after-poison[^\n]*(\n[^\n]*){1,3} in close_second' 'probe_activity\.c[^\n]*signed integer overflow')
	play "${wants[@]}" >"$work/out" 2>&1
	found=0
	for want in "${wants[@]}"; do
		if grep -q -z -P "$want" "$work/all"; then
			found=$((found + 1))
		else
			echo "not reported: $want"
		fi
	done
	[ "$found" = 4 ] || { tail -30 "$work/out"; tail -50 "$work/log"; cut -c1-200 "$work/all" | head -150; }
	echo "$found of 4 planted faults were reported"
	[ "$found" = 4 ]
	exit
	;;
all)
	kinds=${KINDS:-isolation sql tap}
	# Each probe and the records of failed waits; the live area is in the SQL tests. Left out is what looks at the pace of the worker or its
	# address space, or loads the shim into a session: by then the options are overwritten by the name of the process.
	tests='001_alter_queue 025_outcomes 026_deadlocks 028_blocker_statements 034_cases_storms 040_load 040_lwlocks'
	tests+=' 041_hot_pages 042_fast_path 043_lock_manager 066_hostile_input 077_process_slots'
	export PROVE_TESTS=${PROVE_TESTS:-$(printf 'test/t/%s.pl ' $tests)}
	;;
*)
	echo "asan: no mode is called $mode" >&2
	exit 2
	;;
esac

# shellcheck disable=SC2086
test/tools/run-tests.sh $kinds | tee "$work/out" | sed -u '/^[0-9]* passed, [0-9]* failed$/d'
code=${PIPESTATUS[0]}
last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/out" | tail -1)
last=${last:-0 passed, 1 failed}
passed=${last%% *} failed=${last#*, }
failed=${failed%% *}
reports=$(find "$work/reports" -type f | wc -l)
if [ "$reports" != 0 ]; then
	printf '\n== reports of the sanitizers\n'
	for report in "$work/reports"/*; do
		head -60 "$report"
	done
fi
if [ "$reports" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$code" = 0 ]
