#!/bin/bash
# Case truth: the history against two records that know nothing of it.
#
# Sessions fight over one lock, which each keeps for a random time between 0.2
# and 40 ms, many of them short, and write down by their own clock when they asked for it and when they
# had it; the server's log (log_lock_waits, deadlock_timeout 1 ms) says how many of these really
# stood in the queue for at least 1 ms. All of it at a sampling period of 10 ms, and
# of 1 ms; first with min_duration 0, where each wait has a row in "waits", then
# with the default 100 ms, where the short ones are sums by second.
#
# The record of a session begins a little before the wait and ends a little after
# it (tens of microseconds; as long as it takes to get a processor when the machine has none to spare).
# What it says of the errors of the history is therefore an upper bound.
#
#   found.*          share of the waits of that length that have a row
#   start_error_us   how far before the wait's start in the history its session had asked
#   end_error_*      how far the end in the history is from when the session had the lock, as share of a period
#   total_percent    sum of the waits' time in the history, of that in the sessions' record (of waits
#                    of at least 2 periods in total_long_percent)
#
# Environment: ROUNDS [2], SECS [7], SESSIONS [6], SEED [42].
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
ROUNDS=${ROUNDS:-$(full_or_quick 2 1)} SECS=${SECS:-$(full_or_quick 7 5)} SESSIONS=${SESSIONS:-6} SEED=${SEED:-42}
begin_case
fact seed "$SEED"

start_cluster truth <<-'CONF'
	shared_preload_libraries = 'pg_lock_history'
	log_lock_waits = on
	deadlock_timeout = '1ms'
	log_line_prefix = '%p '
	pg_lock_history.max_rows_per_second = 1000000
CONF
log=$THROWAWAY/clusters/truth.log
sql 'CREATE EXTENSION pg_lock_history'
until_recording
# One's own record, written by its session at the end: nothing else happens in between.
sql "CREATE TABLE own (pid integer, asked timestamptz, had timestamptz);
	CREATE PROCEDURE fight(seconds float8, seed float8) LANGUAGE plpgsql AS \$\$
	DECLARE
		began timestamptz := clock_timestamp();
		asked timestamptz[];
		had   timestamptz[];
		t     timestamptz;
	BEGIN
		PERFORM setseed(seed);
		WHILE clock_timestamp() < began + seconds * interval '1 s' LOOP
			t := clock_timestamp();
			PERFORM pg_advisory_lock(1);
			asked := asked || t;
			had := had || clock_timestamp();
			PERFORM pg_sleep(0.0002 + 0.04 * random() ^ 4);
			PERFORM pg_advisory_unlock(1);
			PERFORM pg_sleep(0.05 * random() ^ 2);
		END LOOP;
		INSERT INTO own SELECT pg_backend_pid(), u.a, u.h FROM unnest(asked, had) AS u(a, h);
	END \$\$"

for ((round = 1; round <= ROUNDS; round++)); do
	for period in 10 1; do
		for least in 0 100; do
			variant=${period}ms.min$least
			set_and_reload pg_lock_history.sample_period "'${period}ms'" pg_lock_history.min_duration "'${least}ms'"
			sql "TRUNCATE own; SELECT lock_history.reset()" >/dev/null
			until_sql "SELECT lock_history.flush('60 s')"
			before=$(wc -l <"$log")
			for ((i = 1; i <= SESSIONS; i++)); do
				sql "CALL fight($SECS, $SEED / 1000.0 + $i / 100.0)" &
			done
			wait
			until_sql "SELECT lock_history.flush('60 s')"
			logged=$(tail -n +"$((before + 1))" "$log" | grep -c ' LOG:  process .* acquired ExclusiveLock on advisory lock .* after ' || true)
			# A wait of the history belongs to the record in whose time it began. A record
			# without one stood in no queue, or in one that no sample saw; below a tenth of a millisecond
			# it cannot be told from an uncontended lock.
			sql "CREATE TEMP TABLE paired AS
				SELECT o.*, extract(epoch FROM o.had - o.asked) * 1000 AS ms, w.wait_start, w.wait_end
				FROM own AS o LEFT JOIN lock_history.waits AS w ON w.pid = o.pid AND w.wait_start BETWEEN o.asked AND o.had AND w.locktype = 'advisory';
			SELECT format('%s %s', 'waits', count(*) FILTER (WHERE ms > 0.1)) FROM paired
			UNION ALL SELECT format('%s %s', 'waits_1ms_own', count(*) FILTER (WHERE ms >= 1)) FROM paired
			UNION ALL SELECT format('%s %s', 'waits_1ms_logged', $logged)
			UNION ALL SELECT format('found.%s_percent %s', b.name, round(100.0 * count(*) FILTER (WHERE p.wait_start IS NOT NULL) / nullif(count(*), 0), 2))
				FROM (VALUES ('to_1_period', 0.1, $period), ('1_to_2_periods', $period, 2 * $period), ('2_to_5_periods', 2 * $period, 5 * $period), ('from_5_periods', 5 * $period, 1e9)) AS b(name, a, z)
				LEFT JOIN paired AS p ON p.ms >= b.a AND p.ms < b.z WHERE $least = 0 GROUP BY b.name
			UNION ALL SELECT format('start_error_us_%s %s', q.name, round((percentile_cont(q.at) WITHIN GROUP (ORDER BY extract(epoch FROM wait_start - asked) * 1e6))::numeric))
				FROM paired, (VALUES ('p50', 0.5), ('p99', 0.99)) AS q(name, at) WHERE wait_start IS NOT NULL AND $least = 0 GROUP BY q.name, q.at
			UNION ALL SELECT format('end_error_periods_%s %s', q.name, round((percentile_cont(q.at) WITHIN GROUP (ORDER BY abs(extract(epoch FROM wait_end - had)) * 1000 / $period))::numeric, 2))
				FROM paired, (VALUES ('p50', 0.5), ('p99', 0.99)) AS q(name, at) WHERE wait_end IS NOT NULL AND $least = 0 GROUP BY q.name, q.at
			UNION ALL SELECT format('total_percent %s', round((100 * (
					coalesce((SELECT sum(extract(epoch FROM duration)) * 1000 FROM lock_history.waits WHERE locktype = 'advisory'), 0)
					+ coalesce((SELECT sum(total_ms) FROM lock_history.short_waits WHERE locktype = 'advisory'), 0))
					/ (SELECT sum(ms) FROM paired WHERE ms > 0.1))::numeric, 1))
			UNION ALL SELECT format('total_long_percent %s', round((100 * sum(extract(epoch FROM wait_end - wait_start) * 1000) / sum(ms))::numeric, 2))
				FROM paired WHERE ms >= 2 * $period AND $least = 0" |
				while read -r metric value; do [ -z "${value:-}" ] || figure "$round" "$variant" "$metric" "$value"; done
		done
	done
done
