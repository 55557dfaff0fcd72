#!/bin/bash
# Runs the kinds of tests that are named, each to its end, also when one
# before it failed, and ends with one line: N passed, N failed.
#
#   go         Go tests                    race     the same with the race detector
#   sql        pg_regress (test/sql)       isolation   test/isolation/specs
#   tap        test/t/*.pl                 soak        a mixed load and random faults
#   warnings   of the C compiler
#
# Servers are throwaway ones; what failed is shown with its diffs and the end
# of the server's log. REGRESS, ISOLATION, PROVE_TESTS, GO_TEST_FLAGS choose
# single tests.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh

passed=0 failed=0
summary=()

# count KIND PASSED FAILED
count() {
	passed=$((passed + $2)) failed=$((failed + $3))
	summary+=("$(printf '%-10s %3d passed, %d failed' "$1" "$2" "$3")")
}

headline() { printf '\n== %s\n' "$*"; }

# A package counts as one test, as a script of the other kinds does.
run_go() {
	local kind=$1 out=$THROWAWAY/$1.out
	shift
	headline "Go tests ($kind)"
	start_cluster "$kind" <<-'CONF' || { count "$kind" 0 1; return; }
		shared_preload_libraries = 'pg_lock_history'
		pg_lock_history.database = 'postgres'
		max_prepared_transactions = 10
		max_connections = 100
	CONF
	as_server_user "$BINDIR/psql" -X -q -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres \
		-c "CREATE EXTENSION pg_lock_history" -c "CREATE DATABASE go_test" || true
	# shellcheck disable=SC2086
	PLH_TEST_DSN="host=$SOCKET_DIR port=$PORT user=postgres dbname=postgres sslmode=disable" \
		go test -count=1 -tags osusergo,netgo "$@" ${GO_TEST_FLAGS:-} ${GO_TEST_PACKAGES:-./gosrc/... ./test/bench/...} 2>&1 | tee "$out"
	local code=${PIPESTATUS[0]} good bad
	good=$(grep -c '^ok ' "$out")
	bad=$(grep -c '^FAIL[[:space:]]' "$out")
	# A go.mod that cannot be read fails without naming a package.
	[ "$code" = 0 ] || [ "$bad" != 0 ] || bad=1
	[ "$bad" = 0 ] || server_log "$kind"
	stop_cluster "$kind"
	count "$kind" "$good" "$bad"
}

run_warnings() {
	headline "warnings of the C compiler"
	if PG_CONFIG="$SYSTEM_PG_CONFIG" test/tools/warnings.sh; then count warnings 1 0; else count warnings 0 1; fi
}

server_log() {
	headline "end of the server log of $1"
	tail -40 "$THROWAWAY/clusters/$1.log"
}

# regress_kind KIND PROGRAM DIR RESULT_FILE TEST...: pg_regress or its sister.
regress_kind() {
	local kind=$1 program=$2 dir=$3 out=$THROWAWAY/$1.out
	shift 3
	# From 16 on expected files are looked for where it is started.
	as_server_user env -C "$dir" "$program" --inputdir="$dir" --outputdir="$dir" --bindir="$BINDIR" \
		--host="$SOCKET_DIR" --port="$PORT" --user=postgres "$@" 2>&1 | tee "$out"
	local good bad
	good=$(grep -c -E '^test .*[. ]ok( |$)|^ok ' "$out")
	bad=$(grep -c -E '^test .*FAILED|^not ok ' "$out")
	if [ "$bad" != 0 ] || [ "$good" = 0 ]; then
		[ ! -e "$dir/regression.diffs" ] || cat "$dir/regression.diffs"
		server_log "$kind"
		[ "$bad" != 0 ] || bad=1
	fi
	count "$kind" "$good" "$bad"
}

# The history database is another one than the tests': the writer must not
# come between a test and the rows that it puts into the tables by hand.
run_sql() {
	headline "SQL tests"
	start_cluster sql <<-'CONF' || { count sql 0 1; return; }
		shared_preload_libraries = 'pg_lock_history'
		pg_lock_history.database = 'postgres'
		max_prepared_transactions = 10
	CONF
	local tests=${REGRESS:-$(cd test/sql && ls -- *.sql | sed 's/\.sql$//')} name
	for name in $tests; do
		[ -e "test/sql/$name.sql" ] || {
			echo "no SQL test is called $name; there are:" $(cd test/sql && ls -- *.sql | sed 's/\.sql$//')
			count sql 0 1
			stop_cluster sql
			return
		}
	done
	# shellcheck disable=SC2086
	regress_kind sql "$PGXS_TEST/regress/pg_regress" "$THROWAWAY/test" --dbname=contrib_regression $tests
	stop_cluster sql
}

# Here the history database is the tests' own, so that a step can ask; every
# wait is kept, however short, since isolationtester lets nobody wait for long.
run_isolation() {
	headline "isolation specs"
	start_cluster isolation <<-'CONF' || { count isolation 0 1; return; }
		shared_preload_libraries = 'pg_lock_history'
		pg_lock_history.database = 'isolation_regression'
		pg_lock_history.min_duration = 0
		pg_lock_history.sample_period = '1ms'
		max_prepared_transactions = 10
	CONF
	local tests=${ISOLATION:-$(cd test/isolation/specs && ls -- *.spec | sed 's/\.spec$//')}
	# shellcheck disable=SC2086
	regress_kind isolation "$PGXS_TEST/isolation/pg_isolation_regress" "$THROWAWAY/test/isolation" \
		--load-extension=pg_lock_history --dbname=isolation_regression $tests
	stop_cluster isolation
}

# A second copy of the installation has the Go library that can be told to
# die; the tests in 008 choose it by its install path.
prepare_fault_installation() {
	local log=$THROWAWAY/fault.log
	make --no-print-directory fault-library PG_CONFIG="$SYSTEM_PG_CONFIG" >"$log" 2>&1 &&
		copy_installation "$SYSTEM_PG_CONFIG" "$THROWAWAY/fault" &&
		install_here "$THROWAWAY/fault" &&
		cp build/fault/pg_lock_history_go.so \
			"$THROWAWAY/fault$("$SYSTEM_PG_CONFIG" --pkglibdir)/pg_lock_history_go.so" || {
		cat "$log"
		return 1
	}
}

# Functions that hold locks of the server, for the tests of what is seen of them.
prepare_hold_module() {
	local log=$THROWAWAY/hold.log
	make --no-print-directory -C test/module install PG_CONFIG="$SYSTEM_PG_CONFIG" DESTDIR="$THROWAWAY" >"$log" 2>&1 || {
		cat "$log"
		return 1
	}
}

run_tap() {
	headline "TAP tests"
	local bindir out=$THROWAWAY/tap.out script tests
	prepare_fault_installation && prepare_hold_module || { count tap 0 1; return; }
	bindir=$("$SYSTEM_PG_CONFIG" --bindir)
	mkdir -p "$THROWAWAY/tap/tmp_check/log"
	own "$THROWAWAY/tap"
	tests=${PROVE_TESTS:-test/t/*.pl}
	# Two at a time: they mostly wait for something to happen. Databases are in UTF-8.
	# shellcheck disable=SC2086
	as_server_user env LANG=C.UTF-8 TESTDIR="$THROWAWAY/tap" TESTDATADIR="$THROWAWAY/tap/tmp_check" \
		TESTLOGDIR="$THROWAWAY/tap/tmp_check/log" TMPDIR="$THROWAWAY/s" PG_REGRESS="$PGXS_TEST/regress/pg_regress" \
		PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-60}" PATH="$PATH" \
		PLH_FAULT_INSTALL="$THROWAWAY/fault${bindir%/bin}" \
		prove --timer -j "${PROVE_JOBS:-2}" ${PROVE_FLAGS:-} -I "$THROWAWAY/test/perl" -I "$PGXS_TEST/perl" $tests 2>&1 | tee "$out"
	local good=0 bad=0 name
	# With PROVE_FLAGS -v the line of a script stands by itself: ask the end.
	for script in $(cd "$THROWAWAY" && ls $tests 2>/dev/null); do
		name=${script##*/}
		if grep -q -E "^${script} .*\(Wstat|^  *Failed test.*${name} |${name}.*(Dubious|No subtests run|Failed)" "$out" ||
			# A script that bails out ends all that come after it, and prove calls what it was at "ok".
			{ grep -q '^Bailout called' "$out" && ! grep -q -E "${script} .* ok +[0-9]+ ms" "$out"; }; then
			bad=$((bad + 1))
			for log in "$THROWAWAY/tap/tmp_check/log/"{regress_log_"${name%.pl}","${name%.pl}"*.log}; do
				[ ! -e "$log" ] || { headline "end of ${log##*/}"; grep -v 'LOG:  statement: ' "$log" | tail -40; }
			done
		else
			good=$((good + 1))
		fi
	done
	[ "$good$bad" != 00 ] || bad=1
	count tap "$good" "$bad"
}

# It makes a server of its own, to which it does what no other test could stand.
run_soak() {
	headline "soak"
	local out=$THROWAWAY/soak.out
	mkdir "$THROWAWAY/s/k"
	own "$THROWAWAY/s/k"
	# shellcheck disable=SC2086
	PLH_SOAK_BIN="$BINDIR" PLH_SOAK_DIR="$THROWAWAY/s/k" go test -count=1 -tags osusergo,netgo -timeout 0 -v \
		${GO_TEST_FLAGS:-} -run '^TestSoak$' ./gosrc/livetest 2>&1 | tee "$out"
	if [ "${PIPESTATUS[0]}" = 0 ]; then
		count soak 1 0
	else
		headline "end of the server log of the soak"
		tail -60 "$THROWAWAY/s/k/log"
		count soak 0 1
	fi
}

throwaway_begin || exit 1
PGXS_TEST=$(dirname "$("$SYSTEM_PG_CONFIG" --pgxs)")/../test
headline "building"
if ! make --no-print-directory PG_CONFIG="$SYSTEM_PG_CONFIG" all >"$THROWAWAY/build.log" 2>&1 ||
	! install_here "$THROWAWAY"; then
	cat "$THROWAWAY/build.log"
	echo "0 passed, 1 failed"
	exit 1
fi
# The checkout may be closed to the user who runs the servers.
mkdir "$THROWAWAY/test"
cp -R test/sql test/expected test/isolation test/t test/perl "$THROWAWAY/test/"
cp -R README.md doc "$THROWAWAY/"
own "$THROWAWAY/test" "$THROWAWAY/README.md" "$THROWAWAY/doc"

for kind in "$@"; do
	case $kind in
	go) run_go go ;;
	race) run_go race -race ;;
	sql) run_sql ;;
	isolation) run_isolation ;;
	tap) run_tap ;;
	warnings) run_warnings ;;
	soak) run_soak ;;
	*)
		echo "run-tests: no kind of test is called $kind" >&2
		exit 2
		;;
	esac
done

headline "summary"
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
