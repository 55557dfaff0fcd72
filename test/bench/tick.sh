#!/bin/bash
# Case tick: what one tick costs at 100 Hz, by number of sessions and of waiters
# on one lock: its time, how long a partition of the lock manager is held, how many
# are taken, processor time and memory. Everything is as health has it, but
# for processor time, which is read from /proc: of the worker with all its
# threads, and of the writer's session. pg_wait_sampling samples the same server
# at the same rate at the same time, where its package is installed.
#
# The last line is the incident of 100 waiters again, after it has lasted for a
# while: it must cost what it cost at its begin.
#
# Environment: ROUNDS [2], SECS [5] measured for each, SHAPES ['10 0,100 0,500 0,1000 0,10 1,10 100,10 1000,0 0 100']:
# idle sessions, waiters, sessions idle in a transaction that has written.
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
ROUNDS=${ROUNDS:-$(full_or_quick 2 1)} SECS=${SECS:-$(full_or_quick 5 4)}
SHAPES=${SHAPES:-$(full_or_quick '10 0,100 0,500 0,1000 0,10 1,10 100,10 1000,0 0 100' '100 0,10 100')}
begin_case

preload=pg_lock_history
if has_peer; then preload+=,pg_wait_sampling; fi
start_cluster tick <<-CONF
	shared_preload_libraries = '$preload'
	max_connections = 1200
CONF
sql 'CREATE EXTENSION pg_lock_history'
until_recording

# measure ROUND VARIANT
measure() {
	local worker writer peer c0 c1 w0 w1 p0 p1
	worker=$(worker_pid) writer=$(our_pids | grep -v -x "$(worker_pid)" | tr '\n' ' ') peer=$(peer_pids)
	fresh_health
	# shellcheck disable=SC2086
	c0=$(cpu_ns "$worker") w0=$(cpu_ns $writer) p0=$(cpu_ns $peer)
	sleep "$SECS"
	# shellcheck disable=SC2086
	c1=$(cpu_ns "$worker") w1=$(cpu_ns $writer) p1=$(cpu_ns $peer)
	sql "SELECT lock_history.flush('60 s')" >/dev/null
	figure "$1" "$2" worker_cpu_ms_per_s "$(per_second_ms "$c0" "$c1" "$SECS")"
	figure "$1" "$2" writer_cpu_ms_per_s "$(per_second_ms "$w0" "$w1" "$SECS")"
	figure "$1" "$2" all_cpu_ms_per_s "$(per_second_ms $((c0 + w0)) $((c1 + w1)) "$SECS")"
	[ -z "$peer" ] || figure "$1" "$2" peer_cpu_ms_per_s "$(per_second_ms "$p0" "$p1" "$SECS")"
	figure "$1" "$2" anonymous_mb "$(awk '/RssAnon/ { printf "%.1f", $2 / 1024 }' "/proc/$worker/status")"
	sql "SELECT format('tick_p50_us %s', round(max(probe_us_p50)::numeric, 1)), format('tick_p99_us %s', round(max(probe_us_p99)::numeric)),
		format('hold_p99_us %s', round(coalesce(max(hold_us_p99), 0)::numeric)), format('partitions_per_s %s', round(sum(partitions_taken) / $SECS.0, 1)),
		format('late_percent %s', round(100.0 * sum(ticks_late + ticks_missed) / sum(ticks_due), 2)) FROM lock_history.health" | tr '|' '\n' |
		while read -r metric value; do figure "$round" "$2" "$metric" "$value"; done
}

IFS=, read -r -a shapes <<<"$SHAPES"
for ((round = 1; round <= ROUNDS; round++)); do
	for shape in "${shapes[@]}"; do
		read -r idle waiting open <<<"$shape"
		variant=idle$idle.waiting$waiting${open:+.open$open}
		sessions "$idle" "$waiting" "${open:-0}"
		measure "$round" "$variant"
		if [ "$waiting" = 100 ]; then
			sleep "$SECS"
			measure "$round" "$variant.later"
		fi
		end_sessions
	done
done
