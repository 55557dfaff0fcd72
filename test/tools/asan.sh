#!/bin/bash
# Tests with a shim that is built with -fsanitize=address,undefined. Whatever
# the sanitizers report, in any process, is a failure; so is a test that fails.
#
#   asan.sh [short]     short: what `make test` runs
#   asan.sh planted     a copy with faults planted must be reported, each of them
#
# The build is made in a copy of the checkout: its objects must not be taken for
# those of another build. The server itself is the ordinary one; what that leaves
# unseen is said in test/README.md and test/asan/redzones.h.
set -uo pipefail
cd "$(dirname "$0")/../.."
mode=${1:-all}
work=$(mktemp -d "${TMPDIR:-/tmp}/plh-asan.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$work"
mkdir -m 777 "$work/reports"
mkdir "$work/src"
tar -c --exclude=.git --exclude=./build --exclude='*.o' --exclude='*.so' . | tar -x -C "$work/src"
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
export ASAN_OPTIONS=$ASAN_OPTIONS:log_path=$work/reports/asan
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=0:log_path=$work/reports/ubsan

# plant FILE PERL_SUBSTITUTION
plant() {
	perl -0pi -e "$2 or die qq(nothing to be replaced in $1\n)" "extension/$1" || exit 1
}

case $mode in
planted)
	# Behind a part of shared memory, behind a copy on the stack, behind an
	# array of the worker, and an overflow.
	plant probe_failures.c 's/(for \(i = 0; i <)( PLH_MAX_PROCESSES\(\); i\+\+\)\s+\{\s+if \(!read_slot)/$1=$2/'
	plant probe_failures.c 's/&copy\[i % PLH_FAILURES_KEPT\]/&copy[i % PLH_FAILURES_KEPT + PLH_FAILURES_KEPT]/'
	plant probe_activity.c 's/(for \(i = 0; i <)( PLH_MAX_PROCESSES\(\); i\+\+\)\s+if \(activity->slots\[i\]\.pid != 0\))/$1=$2/'
	plant probe_activity.c 's/(clients_us \+= )idle_clients( \* passed_us)/$1(idle_clients + PG_INT64_MAX)$2/'
	PROVE_TESTS=test/t/001_alter_queue.pl test/tools/run-tests.sh tap >"$work/out" 2>&1
	cat "$work/reports"/* >"$work/all" 2>/dev/null
	found=0
	for want in 'use-after-poison.*read_slot|use-after-poison[^\n]*(\n[^\n]*){1,12}read_slot' 'stack-buffer-overflow[^\n]*(\n[^\n]*){1,12}probe_failures\.c' \
		'use-after-poison[^\n]*(\n[^\n]*){1,12}probe_activity\.c' 'probe_activity\.c[^\n]*signed integer overflow'; do
		if grep -q -z -P "$want" "$work/all"; then
			found=$((found + 1))
		else
			echo "not reported: $want"
		fi
	done
	[ "$found" = 4 ] || { tail -30 "$work/out"; head -100 "$work/all"; }
	echo "$found of 4 planted faults were reported"
	[ "$found" = 4 ]
	exit
	;;
short)
	kinds='isolation tap'
	export PROVE_TESTS='test/t/001_alter_queue.pl'
	;;
all)
	kinds='isolation sql tap go'
	export PROVE_TESTS='test/t/001_alter_queue.pl'
	;;
*)
	echo "asan: no mode is called $mode" >&2
	exit 2
	;;
esac

# shellcheck disable=SC2086
test/tools/run-tests.sh $kinds | tee "$work/out" | sed '/^[0-9]* passed, [0-9]* failed$/d'
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
