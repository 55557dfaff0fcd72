#!/bin/bash
# make bench: every case in turn, then the page doc/benchmarks.md of what they
# measured. make bench CASE=tick: one case, and its medians. CASE=page: the page of what
# was measured before. Nothing else should run on the machine, for some 25 minutes.
#
#   observer    the published experiment: what pgbench -S with 101 indexes loses to somebody who watches
#   contention  the same where there is something to see: waiters, a hot row, a crowd
#   tick        one tick, by number of sessions and waiters: time, partitions, CPU, memory
#   rate        is the sampling rate held
#   price       what sessions pay: notes of failed waits, query identifiers
#   lwlocks     what finding out about LWLocks and pages costs
#   storage     what it writes and takes on disk, and how long reading takes
#   truth       the history against what sessions and the server's log wrote down
#   shutdown    what a shutdown takes, with and without (not in the page: test/t/073_shutdown.pl)
#
# Each case has its own knobs, at its head; QUICK=1 makes each a minute or so, for
# trying, and writes no page. ROUNDS=n holds for all cases: more for better figures,
# less to have them sooner. A case that fails does not stop the others.
#
# Environment: CASE, QUICK, OUT [build/bench], ROUNDS and so on for one case.
set -euo pipefail
cd "$(dirname "$0")/../.."
all='observer contention tick rate price lwlocks storage truth'
out=${OUT:-build/bench${QUICK:+/quick}}

page() {
	go run ./test/bench/report -figures "$out" -page test/bench/benchmarks.md.tmpl >"$out/benchmarks.md"
	cp "$out/benchmarks.md" doc/benchmarks.md
	echo "doc/benchmarks.md"
}

case ${CASE:-all} in
page) page ;;
shutdown | fleet) exec test/bench/"$CASE".sh ;;
all)
	failed=''
	began=$SECONDS
	for name in $all; do
		at=$SECONDS
		echo "== $name" >&2
		test/bench/"$name".sh || failed+=" $name"
		echo "== $name: $((SECONDS - at)) s" >&2
	done
	echo "== all: $((SECONDS - began)) s" >&2
	if [ -n "${QUICK:-}" ]; then go run ./test/bench/report -figures "$out"; else page; fi
	[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
	;;
*)
	[[ " $all " == *" $CASE "* ]] || { echo "no case is called $CASE; there are: $all shutdown fleet page" >&2; exit 2; }
	test/bench/"$CASE".sh
	go run ./test/bench/report -figures "$out/$CASE.csv"
	;;
esac
