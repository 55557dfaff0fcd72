#!/bin/bash
# What watching costs: tick time, partition hold time, CPU and memory of the
# worker at 100 Hz, by number of sessions and waiters; and pg_wait_sampling at
# the same rate beside it in the same server, where its package is installed.
#
# Environment: SECS [20] seconds measured for each line, ROUNDS [3] rounds,
# CASES ['0 0,100 0,500 0,1000 0,0 100,0 500,0 0 100,0 0 1000'] idle sessions,
# waiters, and sessions idle in a transaction that has written; each figure is the
# median over the rounds with its range.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
SECS=${SECS:-20} ROUNDS=${ROUNDS:-3}

throwaway_begin
install_here "$THROWAWAY"
go build -o "$THROWAWAY/sessions" ./test/bench/sessions

peer='' preload=pg_lock_history
if [ -e "$("$SYSTEM_PG_CONFIG" --pkglibdir)/pg_wait_sampling.so" ]; then
	peer=pg_wait_sampling preload=pg_lock_history,pg_wait_sampling
fi
start_cluster bench <<-CONF
	shared_preload_libraries = '$preload'
	max_connections = 1200
CONF
sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres -c "$1"; }
sql 'CREATE EXTENSION pg_lock_history'
until [ "$(sql "SELECT value FROM lock_history.status() WHERE key = 'state'")" = recording ]; do sleep 0.1; done

pid_of() { sql "SELECT pid FROM pg_stat_activity WHERE backend_type = '$1' OR application_name = '$1'"; }
cpu_ns() { cat /proc/"$1"/task/*/schedstat 2>/dev/null | awk '{ t += $1 } END { printf "%.0f\n", t }'; }

# One line of figures: tick p50, p99, hold p99 [us], worker, writer, peer [ms/s], RssAnon [MB], walks/s, late
measure() {
	local worker writer peer_pid w0 w1 s0 s1 p0=0 p1=0 since
	worker=$(pid_of pg_lock_history) writer=$(pid_of 'pg_lock_history writer')
	peer_pid=$([ -z "$peer" ] || pid_of 'pg_wait_sampling collector')
	sql "SELECT lock_history.flush('60 s'), lock_history.flush('60 s')" >/dev/null
	sql 'TRUNCATE lock_history.health_minute' >/dev/null
	w0=$(cpu_ns "$worker") s0=$(cpu_ns "$writer")
	[ -z "$peer_pid" ] || p0=$(cpu_ns "$peer_pid")
	sleep "$SECS"
	w1=$(cpu_ns "$worker") s1=$(cpu_ns "$writer")
	[ -z "$peer_pid" ] || p1=$(cpu_ns "$peer_pid")
	sql "SELECT lock_history.flush('60 s')" >/dev/null
	since=$(sql "SELECT round(max(probe_us_p50)::numeric, 1), round(max(probe_us_p99)::numeric), round(coalesce(max(hold_us_p99), 0)::numeric),
		round(sum(partitions_taken) / $SECS.0, 1), round(100.0 * sum(ticks_late + ticks_missed) / sum(ticks_due), 2)
		FROM lock_history.health")
	echo "$since|$w0 $w1 $s0 $s1 $p0 $p1|$(awk '/RssAnon/ { printf "%.1f", $2 / 1024 }' "/proc/$worker/status")" |
		awk -F'|' -v s="$SECS" '{ split($6, c, " "); printf "%s %s %s %s %s %.2f %.2f %.2f %s\n", $1, $2, $3, $4, $5,
			(c[2] - c[1]) / s / 1e6, (c[4] - c[3]) / s / 1e6, (c[6] - c[5]) / s / 1e6, $7 }'
}

IFS=, read -r -a cases <<<"${CASES:-0 0,100 0,500 0,1000 0,0 100,0 500,0 0 100,0 0 1000}"
for ((round = 1; round <= ROUNDS; round++)); do
	for case in "${cases[@]}"; do
		read -r idle waiting open <<<"$case"
		coproc LOAD { exec "$THROWAWAY/sessions" -dsn "host=$SOCKET_DIR port=$PORT user=postgres dbname=postgres sslmode=disable" -idle "$idle" -waiting "$waiting" -open "${open:-0}"; }
		load=$LOAD_PID
		read -r -u "${LOAD[0]}" answer
		[ "$answer" = ready ]
		echo "$idle $waiting ${open:-0} $(measure)" | tee -a "$THROWAWAY/figures" >&2
		kill "$load"
		wait "$load" 2>/dev/null || true
		until [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")" -lt 5 ]; do sleep 0.1; done
	done
done

echo
echo "$(uname -m), $(nproc) cores, $("$BINDIR/postgres" -V), $(go version | cut -d' ' -f3), sample_period 10 ms, $ROUNDS rounds of $SECS s: median (least-most)"
echo "CPU in ms a second; the writer's session beside the worker; peer: ${peer:-not installed}"
echo
awk '
function median(list,   n, v, i, j, t) {
	n = split(list, v, " ")
	for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
	return v[int((n + 1) / 2)] " (" v[1] "-" v[n] ")"
}
{ key = $1 " " $2 " " $3; if (!(key in seen)) { seen[key] = 1; order[++n] = key } for (i = 4; i <= NF; i++) data[key, i] = data[key, i] " " $i }
END {
	split("tick p50 us|tick p99 us|hold p99 us|partitions/s|late+missed %|worker ms/s|writer ms/s|peer ms/s|RssAnon MB", title, "|")
	for (k = 1; k <= n; k++) {
		split(order[k], c, " ")
		printf "%d idle sessions, %d waiters on one lock, %d open transactions\n", c[1], c[2], c[3]
		for (i = 1; i <= 9; i++) printf "    %-16s %s\n", title[i], median(data[order[k], i + 3])
	}
}' "$THROWAWAY/figures"
cat <<'GOALS'

Goals: nobody waits, 100 sessions: tick p50 under 20 us, no partition taken, at most 2 ms of CPU a second and no
more than pg_wait_sampling in the same run; 1 000 sessions at most 6 ms. 100 waiters on one lock: tick under 500 us,
hold under 100 us at 99 %, at most 10 partition locks a second. 99.9 % of ticks in time. Memory at rest under 16 MB.
GOALS
