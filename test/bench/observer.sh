#!/bin/bash
# Case observer: the published experiment. pgbench scale 10 with 100 more
# indexes on pgbench_accounts, select-only, 8 clients: 102 relation locks for
# each statement, most of which find no fast-path slot up to PostgreSQL 17, so
# that the lock manager's partitions are what the load waits for. What does it lose
# when somebody watches? Throughput, latency and processor time in turns
# (turns.sh), in three servers:
#
#   none    nothing preloaded: off, loop, views
#   ours    pg_lock_history preloaded: off (which is "preloaded and disabled"), 100 Hz, 1 000 Hz
#   peer    pg_wait_sampling preloaded, where its package is installed: off, 100 Hz
#
# Then, where bpftrace is installed and this is root, the same in turns in which
# is counted what the watcher does to the lock manager: partition locks taken (by
# its process alone), how long they are held, and
# how often and how long sessions wait for one. Not in the same turns: the
# probes cost the load something.
#
# Environment: ROUNDS [4], TURN [4], CLIENTS [8], SCALE [10], TRACED [1] rounds with bpftrace.
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=test/bench/turns.sh
. test/bench/turns.sh
ROUNDS=${ROUNDS:-$(full_or_quick 4 1)} CLIENTS=${CLIENTS:-8} SCALE=${SCALE:-$(full_or_quick 10 1)} TRACED=${TRACED:-1}
begin_case

new_cluster observer <<-'CONF'
	shared_buffers = '1GB'
	max_wal_size = '8GB'
	autovacuum = off
CONF
as_server_user "$BINDIR/pgbench" -i -q -s "$SCALE" -h "$SOCKET_DIR" -p "$PORT" -U postgres postgres >/dev/null 2>&1
for half in 0 1; do
	sql "DO \$\$ BEGIN FOR i IN 1 .. 50 LOOP EXECUTE format('CREATE INDEX perf_idx_%s ON pgbench_accounts (abalance)', 50 * $half + i); END LOOP; END \$\$" &
done
wait
sql 'VACUUM ANALYZE pgbench_accounts'
fact load "pgbench -S -c $CLIENTS, scale $SCALE, $(sql "SELECT count(*) FROM pg_index WHERE indrelid = 'pgbench_accounts'::regclass") indexes"

servers='none ours'
if has_peer; then servers+=' peer'; fi
declare -A variants=([none]='off loop views off2' [ours]='off ours ours_1ms off2' [peer]='off peer off2')

# start SERVER: preloaded, and at rest.
start() {
	case $1 in
	none) restart_with </dev/null ;;
	ours)
		restart_with <<<"shared_preload_libraries = 'pg_lock_history'"
		sql 'SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS pg_lock_history'
		set_and_reload pg_lock_history.enabled on # as it was left the last time
		until_recording
		set_and_reload pg_lock_history.enabled off
		;;
	peer)
		restart_with <<-CONF
			shared_preload_libraries = 'pg_wait_sampling'
			pg_wait_sampling.history_period = $NEVER
			pg_wait_sampling.profile_period = $NEVER
		CONF
		sql 'SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS pg_wait_sampling'
		;;
	esac
}

load=(-S -c "$CLIENTS" -j "$CLIENTS")
for ((round = 1; round <= ROUNDS; round++)); do
	for server in $servers; do
		start "$server"
		run_turns "$round" "$server" "${variants[$server]}" "${load[@]}"
	done
done

if ! [ -x "$(command -v bpftrace)" ] || [ "$(id -u)" != 0 ]; then
	echo "observer: without bpftrace, or rights for it, the locks taken by sessions are not counted" >&2
	exit 0
fi

# The number of the tranche is an enum of the server's headers.
cat >"$THROWAWAY/tranche.c" <<-'C'
	#include "postgres.h"
	#include "storage/lwlock.h"
	int main(void) { return LWTRANCHE_LOCK_MANAGER; }
C
gcc -I "$("$SYSTEM_PG_CONFIG" --includedir-server)" -o "$THROWAWAY/tranche" "$THROWAWAY/tranche.c"
tranche=0
"$THROWAWAY/tranche" || tranche=$?
postgres=$BINDIR/postgres

# trace PROGRAM [PID]: what it prints. On standard error bpftrace tells of trifles, too, so only when it fails.
trace() {
	bpftrace -q ${2:+-p "$2"} -e "$1" 2>"$THROWAWAY/bpftrace" || { cat "$THROWAWAY/bpftrace" >&2; return 1; }
}

# locks_taken PID SECONDS: how many partition locks the process took.
locks_taken() {
	trace "
		uprobe:$postgres:LWLockAcquire /pid == $1 && *(uint16 *)arg0 == $tranche/ { @taken = count(); }
		uprobe:$postgres:LWLockConditionalAcquire /pid == $1 && *(uint16 *)arg0 == $tranche/ { @taken = count(); }
		interval:s:$2 { exit(); }" "$1" | awk '/^@taken:/ { n = $2 } END { print n + 0 }'
}

# held PID SECONDS: a line for each time that the functions behind pg_blocking_pids() and pg_locks held
# all partitions, in ns. It is the time in the function, which does little else.
held() {
	local name probes=''
	for name in GetBlockerStatusData GetLockStatusData; do
		probes+="uprobe:$postgres:$name { @since = nsecs; }
			uretprobe:$postgres:$name /@since/ { printf(\"%d\\n\", nsecs - @since); @since = (uint64)0; } "
	done
	trace "$probes interval:s:$2 { clear(@since); exit(); }" "$1" | awk '/^[0-9]+$/'
}

# waited SECONDS: number of waits of all sessions for the lock manager, and their time in ms.
waited() {
	trace "
		usdt:$postgres:postgresql:lwlock__wait__start /str(arg0) == \"LockManager\"/ { @n = count(); @since[tid] = nsecs; }
		usdt:$postgres:postgresql:lwlock__wait__done /@since[tid]/ { @ns = sum(nsecs - @since[tid]); delete(@since[tid]); }
		interval:s:$1 { clear(@since); exit(); }" | awk '/^@n:/ { n = $2 } /^@ns:/ { ns = $2 } END { printf "%d %.0f\n", n, ns / 1e6 }'
}

SPAN=3
for ((round = 1; round <= TRACED; round++)); do
	for server in $servers; do
		start "$server"
		as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres -T 600 "${load[@]}" postgres >/dev/null 2>&1 &
		until_sql "SELECT count(*) >= $CLIENTS FROM pg_stat_activity WHERE application_name = 'pgbench'"
		for variant in ${variants[$server]}; do
			[ "$variant" != off2 ] || continue
			watch "$variant"
			sleep 1
			pid=$(watcher_pids "$variant" | head -1)
			[ "$server" != ours ] || pid=$(worker_pid)
			counted=$(waited "$SPAN")
			read -r n ms <<<"$counted"
			figure "$round" "$server.$variant" lockmanager_waits_per_s $((n / SPAN))
			figure "$round" "$server.$variant" lockmanager_wait_ms_per_s $((ms / SPAN))
			if [ -n "$pid" ] && [ "$variant" != off ]; then
				counted=$(locks_taken "$pid" "$SPAN")
				figure "$round" "$server.$variant" partitions_per_s $((counted / SPAN))
				if [ -n "${LOOP[$variant]:-}" ]; then
					held "$pid" "$SPAN" | sort -n | awk -v s="$SPAN" '
						{ v[NR] = $1; sum += $1 }
						END { if (NR) printf "hold_p50_us %.1f\nhold_p99_us %.1f\nhold_max_us %.0f\nheld_ms_per_s %.1f\nholds_per_s %.0f\n",
							v[int((NR + 1) / 2)] / 1e3, v[int(NR * 0.99) < 1 ? 1 : int(NR * 0.99)] / 1e3, v[NR] / 1e3, sum / 1e6 / s, NR / s }
					' | while read -r metric value; do figure "$round" "$server.$variant" "$metric" "$value"; done
				fi
			fi
			unwatch "$variant"
		done
		sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'pgbench'" >/dev/null
		wait
	done
done

# What our worker says of its holds itself, of turns without probes.
start ours
as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres -T $((2 * SPAN + 2)) "${load[@]}" postgres >/dev/null 2>&1 &
watch ours
fresh_health
sleep "$((2 * SPAN))"
sql "SELECT lock_history.flush('60 s')" >/dev/null
sql "SELECT format('hold_p99_us %s', coalesce(max(hold_us_p99), 0)), format('hold_max_us %s', coalesce(max(hold_us_max), 0)),
	format('busy_per_s %s', round(sum(partitions_busy)::numeric / $((2 * SPAN)), 1)) FROM lock_history.health" | tr '|' '\n' |
	while read -r metric value; do figure 1 ours.ours "$metric" "$value"; done
wait
