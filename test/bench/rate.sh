#!/bin/bash
# Case rate: is the sampling rate held? Share of ticks that came within half a
# period of when they were due, at 10 ms and at 1 ms, on an idle machine and
# beside pgbench -S with 32 clients; what never came counts against it.
#
# Environment: ROUNDS [2], SECS [8] measured for each.
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
ROUNDS=${ROUNDS:-$(full_or_quick 2 1)} SECS=${SECS:-$(full_or_quick 8 4)}
begin_case

start_cluster rate <<-'CONF'
	shared_preload_libraries = 'pg_lock_history'
	autovacuum = off
CONF
as_server_user "$BINDIR/pgbench" -i -q -s 1 -h "$SOCKET_DIR" -p "$PORT" -U postgres postgres >/dev/null 2>&1
sql 'CREATE EXTENSION pg_lock_history'
until_recording

for ((round = 1; round <= ROUNDS; round++)); do
	for load in idle crowd; do
		for period in 10ms 1ms; do
			set_and_reload pg_lock_history.sample_period "'$period'"
			bench=
			if [ $load = crowd ]; then
				as_server_user "$BINDIR/pgbench" -n -S -c 32 -j 2 -h "$SOCKET_DIR" -p "$PORT" -U postgres -T $((SECS + 3)) postgres >/dev/null 2>&1 &
				bench=$!
				sleep 1
			fi
			fresh_health
			pids=$(our_pids) c0=0 c1=0
			# shellcheck disable=SC2086
			c0=$(cpu_ns $pids)
			sleep "$SECS"
			# shellcheck disable=SC2086
			c1=$(cpu_ns $pids)
			sql "SELECT lock_history.flush('60 s')" >/dev/null
			figure "$round" "$load.$period" all_cpu_ms_per_s "$(per_second_ms "$c0" "$c1" "$SECS")"
			sql "SELECT format('in_time_percent %s', round(100.0 * (sum(ticks_done) - sum(ticks_late)) / sum(ticks_due), 2)),
				format('late_percent %s', round(100.0 * sum(ticks_late) / sum(ticks_due), 2)),
				format('missed_percent %s', round(100.0 * sum(ticks_missed) / sum(ticks_due), 2)) FROM lock_history.health" | tr '|' '\n' |
				while read -r metric value; do figure "$round" "$load.$period" "$metric" "$value"; done
			[ -z "$bench" ] || wait "$bench"
		done
	done
done
