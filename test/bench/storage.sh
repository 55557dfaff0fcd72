#!/bin/bash
# Case storage: what the history takes, and how long reading it takes.
#
#   volume    WAL, tables and temporary files by the hour, on a server that is
#             idle, with 50 sessions at work, and in storms of waits. The loads
#             themselves write no WAL (no transaction of theirs gets a number), so
#             all of it is ours; what the server writes without the extension is measured, too.
#   load      bytes for each second, and each minute, of 50 active sessions of a steady
#             mix, out of 200 and out of 5 000 statements, fed through the store one
#             transaction a second (the tests of gosrc/store that hold the limit)
#   reading   a day of history with a storm in it, made by the store (day/): how long each view of the last
#             15 minutes takes, trees, and the same of a kept incident; relation locks for each
#
# Times of reading are psql's: planning and transfer are in them.
#
# Environment: PARTS ['volume load reading'], SECS [7] for each line of volume,
# SECONDS_FED [1500], HOURS [24] and WAITS [150000] of history, ROUNDS [7] times that each is asked.
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
PARTS=${PARTS:-volume load reading} SECS=${SECS:-$(full_or_quick 7 4)} SECONDS_FED=${SECONDS_FED:-$(full_or_quick 1500 300)}
HOURS=${HOURS:-$(full_or_quick 24 1)} WAITS=${WAITS:-$(full_or_quick 150000 5000)} ROUNDS=${ROUNDS:-$(full_or_quick 7 3)}
begin_case

# ---- volume ----

size_of() { sql "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'lock_history' WHERE c.relkind = 'r'"; }
rows_of() { sql "SELECT coalesce(sum(k.value::bigint), 0) FROM lock_history.worker_status() AS k WHERE k.key = 'rows_written'" 2>/dev/null || echo 0; }
temp_of() { sql "SELECT temp_bytes FROM pg_stat_database WHERE datname = 'postgres'"; }

# measure VARIANT [pgbench options]
measure() {
	local variant=volume.$1 lsn size temp rows pid=''
	shift
	if [ $# -gt 0 ]; then
		as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres -T $((SECS + 60)) "$@" load >/dev/null 2>&1 &
		pid=$!
		sleep 3
	fi
	sql CHECKPOINT
	sleep 1
	lsn=$(sql 'SELECT pg_current_wal_insert_lsn()') size=$(size_of) temp=$(temp_of) rows=$(rows_of)
	sleep "$SECS"
	figure 1 "$variant" wal_mb_per_h "$(sql "SELECT round(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$lsn') * 3600 / $SECS / 1e6, 1)")"
	figure 1 "$variant" tables_mb_per_h "$(sql "SELECT round(($(size_of) - $size) * 3600.0 / $SECS / 1e6, 1)")"
	figure 1 "$variant" temp_mb_per_h "$(sql "SELECT round(($(temp_of) - $temp) * 3600.0 / $SECS / 1e6, 1)")"
	figure 1 "$variant" rows_per_s $((($(rows_of) - rows) / SECS))
	if [ -n "$pid" ]; then
		sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'pgbench'" >/dev/null
		wait "$pid" 2>/dev/null || true
	fi
}

volume() {
	start_cluster volume <<-CONF
		shared_preload_libraries = 'pg_lock_history'
		compute_query_id = on
		autovacuum = off
		checkpoint_timeout = '1h'
		max_connections = 120
	CONF
	sql 'CREATE DATABASE load'
	cat >"$THROWAWAY/work.sql" <<-'SQL'
		\set n random(1, 10)
		SELECT count(*) FROM generate_series(1, 1000 * :n) AS g(i) WHERE i % :n = 0;
	SQL
	cat >"$THROWAWAY/storm.sql" <<-'SQL'
		BEGIN;
		SELECT pg_advisory_xact_lock(1);
		SELECT pg_sleep(0.002);
		END;
	SQL
	sed 's/0\.002/0.02/' "$THROWAWAY/storm.sql" >"$THROWAWAY/long.sql"
	chmod 644 "$THROWAWAY"/*.sql
	measure idle_without
	measure work_without -c 50 -f "$THROWAWAY/work.sql"
	sql 'CREATE EXTENSION pg_lock_history'
	until_recording
	measure idle
	measure work -c 50 -f "$THROWAWAY/work.sql"
	measure short_waits -c 5 -f "$THROWAWAY/storm.sql"
	measure waits_of_1s -c 50 -f "$THROWAWAY/long.sql"
	set_and_reload pg_lock_history.min_duration 0
	measure short_waits_kept -c 5 -f "$THROWAWAY/storm.sql"
	local what temp
	for what in waits blocking root_blockers load; do
		temp=$(temp_of)
		sql "SELECT count(*) FROM (SELECT * FROM lock_history.$what OFFSET 0) AS all_of_it" >/dev/null
		sleep 1
		figure 1 "volume.reading_$what" temp_mb "$(sql "SELECT round(($(temp_of) - $temp) / 1e6, 1)")"
	done
	stop_cluster volume
}

# ---- load ----

load() {
	start_cluster load <<-'CONF'
		shared_preload_libraries = 'pg_lock_history'
		pg_lock_history.enabled = off
		max_wal_size = '8GB'
	CONF
	sql 'CREATE EXTENSION pg_lock_history'
	PLH_LOAD_SECONDS=$SECONDS_FED PLH_TEST_DSN=$(dsn) \
		go test -count=1 -timeout 60m -tags osusergo,netgo -run 'TestLive(Load|Minutes)Size' -v ./gosrc/store >"$THROWAWAY/load.out" || {
		cat "$THROWAWAY/load.out" >&2
		return 1
	}
	# "80.0 combinations a second: 402 bytes a second, 33.1 MiB a day; dictionary 1.10 MiB for ..." and its sister
	sed -n 's/^=== RUN .*\/\([0-9]*\)_statements$/of \1/p; s/^ .* \(combinations a .*\)$/\1/p' "$THROWAWAY/load.out" | awk '
		function before(word,   i) { for (i = 1; i <= NF; i++) if (index($i " " $(i + 1) " " $(i + 2), word) == 1) return $(i - 1); return "" }
		$1 == "of" { of = $2; next }
		/a second:/ { what = "second" } /a minute:/ { what = "minute" }
		{ print what "." of, "bytes", before("bytes"); print what "." of, "mib_per_day", before("MiB a day") }
		/WAL/ { for (i = 1; i < NF; i++) if ($i == "WAL") print what "." of, "wal_bytes", $(i + 1) }
	' | while read -r variant metric value; do figure 1 "load.$variant" "$metric" "$value"; done
	stop_cluster load
}

# ---- reading ----

# ask WHAT QUERY: one figure for each round, of variant PREFIX.WHAT, and the relation locks that it takes.
ask() {
	{
		echo "${SETTING:-}"
		echo '\timing on'
		for ((i = 0; i < ROUNDS; i++)); do echo "$2 \\g /dev/null"; done
	} >"$THROWAWAY/ask.sql"
	as_server_user "${psql[@]}" -f "$THROWAWAY/ask.sql" | awk '/^Time:/ { print ++n, $2 }' | while read -r round ms; do figure "$round" "$PREFIX.$1" ms "$ms"; done
	figure 1 "$PREFIX.$1" relation_locks "$({ echo "${SETTING:-} BEGIN; $2 \\g /dev/null"; echo "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation <> 'pg_locks'::regclass;"; } | as_server_user "${psql[@]}" -At | tail -1)"
}

reading() {
	start_cluster reading <<-'CONF'
		shared_preload_libraries = 'pg_lock_history'
		pg_lock_history.database = 'template1'
		pg_lock_history.node_name = 'bench'
		shared_buffers = '128MB'
		max_wal_size = '8GB'
		autovacuum = off
	CONF
	psql=("$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres)
	sql 'SET client_min_messages = error; CREATE EXTENSION pg_lock_history; CREATE TABLE public.orders ()'
	go build -o "$THROWAWAY/day" ./test/bench/day
	"$THROWAWAY/day" -host "$SOCKET_DIR" -port "$PORT" -hours "$HOURS" -waits "$WAITS" |
		while read -r metric value; do figure 1 day "$metric" "$value"; done
	figure 1 day size_mib "$(sql "SELECT round(sum(pg_total_relation_size(c.oid)) / 1048576.0) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r'")"
	figure 1 day waits "$(sql 'SELECT count(*) FROM lock_history.waits')"
	# The day ends a little before now: the last 15 minutes are the last of the history.
	local end recent
	end="'$(sql 'SELECT max(heartbeat) FROM lock_history.run')'::timestamptz"
	recent="$end - interval '15 min'"

	PREFIX=reading
	ask waits "SELECT * FROM lock_history.waits WHERE wait_start > $recent"
	ask waits_newest_20 "SELECT * FROM lock_history.waits WHERE wait_start > $recent ORDER BY wait_start DESC LIMIT 20"
	ask blocking "SELECT * FROM lock_history.blocking WHERE wait_start > $recent"
	ask root_blockers "SELECT * FROM lock_history.root_blockers($recent)"
	ask blocker_statements "SELECT * FROM lock_history.blocker_statements($recent)"
	ask short_waits "SELECT * FROM lock_history.short_waits WHERE at > $recent"
	ask deadlocks "SELECT * FROM lock_history.deadlocks WHERE at > $recent"
	ask worst_moments "SELECT * FROM lock_history.worst_moments($recent)"
	ask load "SELECT * FROM lock_history.load WHERE at > $recent"
	ask load_by "SELECT * FROM lock_history.load_by($recent)"
	ask top_queries "SELECT * FROM lock_history.top_queries($recent)"
	ask sessions "SELECT * FROM lock_history.sessions WHERE at > $recent"
	ask lwlocks "SELECT * FROM lock_history.lwlocks WHERE at > $recent"
	ask lwlock_profile "SELECT * FROM lock_history.lwlock_profile($recent)"
	ask hot_pages "SELECT * FROM lock_history.hot_pages WHERE at > $recent"
	ask fast_path "SELECT * FROM lock_history.fast_path WHERE at > $recent"
	ask wait_histogram "SELECT * FROM lock_history.wait_histogram WHERE at > $recent"
	ask anomalies "SELECT * FROM lock_history.anomalies WHERE started_at > $recent"
	ask gaps "SELECT * FROM lock_history.gaps WHERE began > $recent"
	ask health "SELECT * FROM lock_history.health WHERE minute > $recent"
	ask tree_of_now "SELECT * FROM lock_history.blocking_tree_at($end)"
	ask tree_half_a_day_ago "SELECT * FROM lock_history.blocking_tree_at($end - interval '1 min' * 30 * $HOURS)"
	ask tree_in_the_storm "SELECT * FROM lock_history.blocking_tree_at($end - interval '4 min')"
	ask blocking_all "SELECT * FROM lock_history.blocking_all((SELECT max(wait_id) FROM lock_history.waits WHERE wait_start > $recent AND wait_start < $end - interval '4 min 30 s'))"
	ask status 'SELECT * FROM lock_history.status()'
	# What goes over the whole ring takes its time; asked less often.
	local rounds=$ROUNDS
	PREFIX=whole ROUNDS=3
	ask root_blockers 'SELECT * FROM lock_history.root_blockers'
	ask worst_moments 'SELECT * FROM lock_history.worst_moments()'
	ask explain_15_min "SELECT * FROM lock_history.explain($recent, $end)"
	ask explain_all "SELECT * FROM lock_history.explain($end - interval '1 h' * $HOURS, $end)"
	PREFIX=kept ROUNDS=$rounds
	sql "SELECT lock_history.keep($end - interval '10 min', $end, 'storm')" >/dev/null
	SETTING="SET pg_lock_history.incident = 'storm';"
	ask waits 'SELECT * FROM lock_history.waits'
	ask tree_in_the_storm "SELECT * FROM lock_history.blocking_tree_at($end - interval '4 min')"
	ask explain 'SELECT * FROM lock_history.explain()'
	SETTING=
	stop_cluster reading
}

for part in $PARTS; do
	"$part"
done
