#!/bin/bash
# Case lwlocks: what finding out about LWLocks and pages costs, with it off and on
# in turn, and what it finds: under a load that waits for the lock manager (pgbench -S
# on a table with 101 indexes), and under one that waits for pages (inserts by 64
# clients into a table with a serial key), with small and with large shared buffers.
#
# Environment: ROUNDS [2], SECS [4] measured for each, BUFFERS ['128MB 8GB'].
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
ROUNDS=${ROUNDS:-$(full_or_quick 2 1)} SECS=${SECS:-$(full_or_quick 4 3)} BUFFERS=${BUFFERS:-$(full_or_quick '128MB 8GB' 128MB)}
begin_case

pgbench() { as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres "$@" postgres 2>/dev/null; }

# The inserts, as a file that the server's user can read.
echo "INSERT INTO ins (v) VALUES ('x');" >"$THROWAWAY/insert.sql"
chmod 644 "$THROWAWAY/insert.sql"

# measure ROUND VARIANT PGBENCH_OPTION...
measure() {
	local round=$1 variant=$2 worker c0 c1
	shift 2
	worker=$(worker_pid)
	fresh_health
	c0=$(cpu_ns "$worker")
	figure "$round" "$variant" tps "$(pgbench -T "$SECS" -j 2 "$@" | sed -n 's/^tps = \([0-9]*\).*/\1/p')"
	c1=$(cpu_ns "$worker")
	sql "SELECT lock_history.flush('60 s')" >/dev/null
	figure "$round" "$variant" worker_cpu_ms_per_s "$(per_second_ms "$c0" "$c1" "$SECS")"
	sql "SELECT format('tick_p50_us %s', round(avg(probe_us_p50)::numeric, 1)), format('tick_p99_us %s', round(max(probe_us_p99))), format('tick_max_us %s', round(max(probe_us_max))) FROM lock_history.health" |
		tr '|' '\n' | while read -r metric value; do figure "$round" "$variant" "$metric" "$value"; done
}

for buffers in $BUFFERS; do
	start_cluster "b$buffers" <<-CONF
		shared_preload_libraries = 'pg_lock_history'
		shared_buffers = $buffers
		autovacuum = off
	CONF
	sql 'CREATE EXTENSION pg_lock_history'
	until_recording
	pgbench -i -q -s 1 >/dev/null
	sql "DO \$\$ BEGIN FOR i IN 1 .. 100 LOOP EXECUTE 'CREATE INDEX ON pgbench_accounts (aid) WHERE aid <> ' || i; END LOOP; END \$\$"
	sql 'CREATE TABLE ins (id bigserial PRIMARY KEY, v text)'
	for ((round = 1; round <= ROUNDS; round++)); do
		for tracked in off on; do
			set_and_reload pg_lock_history.track_lwlocks $tracked pg_lock_history.track_pages $tracked
			measure "$round" "$buffers.select.$tracked" -S -c 16
			measure "$round" "$buffers.insert.$tracked" -f "$THROWAWAY/insert.sql" -c 64
		done
	done
	sql "SELECT format('pages_found_percent %s', (SELECT round((100 * sum(wait_ms) FILTER (WHERE object IS NOT NULL) / sum(wait_ms))::numeric, 1) FROM lock_history.hot_pages)),
		format('lockmanager_found_percent %s', (SELECT round((100 * sum(wait_ms) FILTER (WHERE instance IS NOT NULL) / sum(wait_ms))::numeric, 1) FROM lock_history.lwlocks WHERE tranche = 'LockManager'))" |
		tr '|' '\n' | while read -r metric value; do [ -z "${value:-}" ] || figure 1 "$buffers" "$metric" "$value"; done
	stop_cluster "b$buffers"
done
