#!/bin/bash
# Case contention: what waiters and workers lose to somebody who watches, when
# there is something to see. Throughput and latency in turns (turns.sh): off,
# the pg_blocking_pids() loop, ours.
#
#   waiting50, waiting500   so many sessions wait for one lock, while 8 others
#                           read by primary key
#   hot_row                 16 clients update one row: they are the waiters
#   crowd                   64 clients read by primary key: far above the cores
#
# Environment: ROUNDS [2], TURN [4], LOADS ['waiting50 waiting500 hot_row crowd'].
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=test/bench/turns.sh
. test/bench/turns.sh
ROUNDS=${ROUNDS:-$(full_or_quick 2 1)} LOADS=${LOADS:-waiting50 waiting500 hot_row crowd}
begin_case

new_cluster contention <<-'CONF'
	shared_preload_libraries = 'pg_lock_history'
	max_connections = 700
	autovacuum = off
	max_wal_size = '8GB'
CONF
as_server_user "$BINDIR/pgbench" -i -q -s 1 -h "$SOCKET_DIR" -p "$PORT" -U postgres postgres >/dev/null 2>&1
sql 'CREATE TABLE hot (id integer PRIMARY KEY, n bigint) WITH (fillfactor = 10); INSERT INTO hot VALUES (1, 0)'
sql 'CREATE EXTENSION pg_lock_history'
until_recording
set_and_reload pg_lock_history.enabled off
echo 'UPDATE hot SET n = n + 1 WHERE id = 1;' >"$THROWAWAY/hot.sql"
chmod 644 "$THROWAWAY/hot.sql"

for ((round = 1; round <= ROUNDS; round++)); do
	for load in $LOADS; do
		case $load in
		waiting*)
			sessions 0 "${load#waiting}"
			run_turns "$round" "$load" 'off loop ours off2' -S -c 8 -j 2
			end_sessions
			;;
		hot_row)
			run_turns "$round" "$load" 'off loop ours off2' -f "$THROWAWAY/hot.sql" -c 16 -j 2
			sql 'VACUUM hot'
			;;
		crowd) run_turns "$round" "$load" 'off loop ours off2' -S -c 64 -j 2 ;;
		esac
	done
done
