#!/bin/bash
# What finding out about LWLocks and pages costs, with it off and on in turn, and
# what it finds: under a load that waits for the lock manager (pgbench -S on a table
# with 101 indexes), and under one that waits for pages (inserts by 64 clients into a
# table with a serial key), with small and with large shared buffers.
#
# Environment: SECS [8] seconds of each line, ROUNDS [2], BUFFERS ['128MB 8GB'].
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
SECS=${SECS:-8} ROUNDS=${ROUNDS:-2}

throwaway_begin
install_here "$THROWAWAY"
sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres -c "$1"; }
pgbench() { as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres "$@" postgres 2>/dev/null; }
cpu_ns() { cat /proc/"$1"/task/*/schedstat 2>/dev/null | awk '{ t += $1 } END { printf "%.0f\n", t }'; }

# The inserts, as a file that the server's user can read.
echo "INSERT INTO ins (v) VALUES ('x');" >"$THROWAWAY/insert.sql"
chmod 644 "$THROWAWAY/insert.sql"

# A line: tick p50, p99, max [us], worker [ms/s], tps
measure() {
	local worker w0 w1 tps
	worker=$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_lock_history'")
	sql "SELECT lock_history.flush('60 s'), lock_history.flush('60 s')" >/dev/null
	sql 'TRUNCATE lock_history.health_minute' >/dev/null
	w0=$(cpu_ns "$worker")
	tps=$(pgbench -T "$SECS" -j 2 "$@" | sed -n 's/^tps = \([0-9]*\).*/\1/p')
	w1=$(cpu_ns "$worker")
	sql "SELECT lock_history.flush('60 s')" >/dev/null
	sql "SELECT format('%s %s %s', round(avg(probe_us_p50)), round(max(probe_us_p99)), round(max(probe_us_max))) FROM lock_history.health" |
		awk -v c=$((w1 - w0)) -v s="$SECS" -v t="$tps" '{ printf "%8s %8s %8s %8.1f %8s\n", $1, $2, $3, c / s / 1e6, t }'
}

printf '%s, %s cores, %s, sample_period 10 ms, %s s a line\n' "$(uname -m)" "$(nproc)" "$("$BINDIR/postgres" -V)" "$SECS"
printf '%-8s %-12s %-8s %8s %8s %8s %8s %8s\n' buffers load tracked p50_us p99_us max_us cpu_ms/s tps
for buffers in ${BUFFERS:-128MB 8GB}; do
	start_cluster "b$buffers" <<-CONF
		shared_preload_libraries = 'pg_lock_history'
		shared_buffers = $buffers
		autovacuum = off
	CONF
	sql 'CREATE EXTENSION pg_lock_history'
	until [ "$(sql "SELECT value FROM lock_history.status() WHERE key = 'state'")" = recording ]; do sleep 0.1; done
	pgbench -i -q -s 5 >/dev/null
	sql "DO \$\$ BEGIN FOR i IN 1 .. 100 LOOP EXECUTE 'CREATE INDEX ON pgbench_accounts (aid) WHERE aid <> ' || i; END LOOP; END \$\$"
	sql 'CREATE TABLE ins (id bigserial PRIMARY KEY, v text)'
	for ((round = 1; round <= ROUNDS; round++)); do
		for tracked in off on; do
			sql "ALTER SYSTEM SET pg_lock_history.track_lwlocks = $tracked"
			sql "ALTER SYSTEM SET pg_lock_history.track_pages = $tracked"
			sql 'SELECT pg_reload_conf()' >/dev/null
			until [ "$(sql "SELECT current_setting('pg_lock_history.track_pages')")" = "$tracked" ]; do sleep 0.1; done
			printf '%-8s %-12s %-8s %s\n' "$buffers" 'select 16' "$tracked" "$(measure -S -c 16)"
			printf '%-8s %-12s %-8s %s\n' "$buffers" 'insert 64' "$tracked" "$(measure -f "$THROWAWAY/insert.sql" -c 64)"
		done
	done
	echo
	sql "SELECT format('%s: found %s %% of the time waited for pages, %s %% of that for the lock manager', '$buffers',
		(SELECT round((100 * sum(wait_ms) FILTER (WHERE object IS NOT NULL) / sum(wait_ms))::numeric, 1) FROM lock_history.hot_pages),
		(SELECT round((100 * sum(wait_ms) FILTER (WHERE instance IS NOT NULL) / sum(wait_ms))::numeric, 1) FROM lock_history.lwlocks WHERE tranche = 'LockManager'))"
	echo
	stop_cluster "b$buffers"
done
