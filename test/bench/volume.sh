#!/bin/bash
# What the history writes: WAL, tables and temporary files, on a server that is
# idle, with 50 sessions at work, and in a storm of waits. The loads themselves
# write no WAL (no transaction of theirs gets a number), so all of it is ours;
# a line without the extension is the server's own.
#
# Environment: SECS [60] seconds measured for each line.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
SECS=${SECS:-60}

throwaway_begin
install_here "$THROWAWAY"
start_cluster volume <<-CONF
	shared_preload_libraries = 'pg_lock_history'
	compute_query_id = on
	autovacuum = off
	checkpoint_timeout = '1h'
	max_connections = 120
CONF
sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$PORT" -U postgres -d "${2:-postgres}" -c "$1"; }
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
cat >"$THROWAWAY/long.sql" <<-'SQL'
	BEGIN;
	SELECT pg_advisory_xact_lock(1);
	SELECT pg_sleep(0.02);
	END;
SQL

size_of() { sql "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'lock_history' WHERE c.relkind = 'r'"; }
rows_of() { sql "SELECT coalesce(sum(k.value::bigint), 0) FROM lock_history.worker_status() AS k WHERE k.key = 'rows_written'" 2>/dev/null || echo 0; }
temp_of() { sql "SELECT temp_bytes FROM pg_stat_database WHERE datname = 'postgres'"; }

# measure NAME [pgbench options]
measure() {
	local name=$1 lsn size temp rows pid=''
	shift
	if [ $# -gt 0 ]; then
		as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres -T $((SECS + 60)) "$@" load >/dev/null 2>&1 &
		pid=$!
		sleep 5
	fi
	sql CHECKPOINT
	sleep 2
	lsn=$(sql 'SELECT pg_current_wal_insert_lsn()') size=$(size_of) temp=$(temp_of) rows=$(rows_of)
	sleep "$SECS"
	sql "SELECT format('%-44s %8s %8s %8s %8s', '$name',
		round(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$lsn') * 3600 / $SECS / 1e6, 1),
		round(($(size_of) - $size) * 3600.0 / $SECS / 1e6, 1), round(($(temp_of) - $temp) * 3600.0 / $SECS / 1e6, 1), ($(rows_of) - $rows) / $SECS)"
	[ -z "$pid" ] || kill_load "$pid"
}
kill_load() {
	sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'pgbench'" >/dev/null
	wait "$1" 2>/dev/null || true
}

printf '%-44s %8s %8s %8s %8s\n' "MB an hour ($SECS s measured)" WAL tables temp rows/s
measure 'idle, without the extension'
measure '50 sessions at work, without it' -c 50 -f "$THROWAWAY/work.sql"
sql 'CREATE EXTENSION pg_lock_history'
until [ "$(sql "SELECT value FROM lock_history.status() WHERE key = 'state'")" = recording ]; do sleep 0.1; done
measure idle
measure '50 sessions at work, 10 kinds of statement' -c 50 -f "$THROWAWAY/work.sql"
measure 'short waits: 5 sessions, 2 ms each' -c 5 -f "$THROWAWAY/storm.sql"
measure 'waits of 1 s: 50 sessions, 20 ms each' -c 50 -f "$THROWAWAY/long.sql"
sql "ALTER SYSTEM SET pg_lock_history.min_duration = 0"
sql 'SELECT pg_reload_conf()' >/dev/null
measure 'short waits, each kept (min_duration 0)' -c 5 -f "$THROWAWAY/storm.sql"
for what in waits blocking root_blockers load; do
	temp=$(temp_of)
	sql "SELECT count(*) FROM (SELECT * FROM lock_history.$what OFFSET 0) AS all_of_it" >/dev/null
	sql 'SELECT pg_stat_clear_snapshot()' >/dev/null
	sleep 1
	sql "SELECT format('temporary files of reading all of %-16s %s MB', '$what', round(($(temp_of) - $temp) / 1e6, 1))"
done
