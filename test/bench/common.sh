# Sourced by each case, after `set -euo pipefail`: a server of its own, what is
# read of processes, and the figures it leaves behind.
#
# A figure is a line "case,round,variant,metric,value" of build/bench/CASE.csv;
# what is measured once for each round stands there as often. Units are in the
# name of the metric. report/ makes medians, ratios of one round and the page
# doc/benchmarks.md of them. With QUICK=1 everything is a minute or so, to be
# tried while others work; its figures go to build/bench/quick, and into no page.
#
# Environment: ROUNDS, SECS and what the head of a case names; OUT [build/bench].

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh

CASE=$(basename "$0" .sh)
QUICK=${QUICK:-}
OUT=${OUT:-$CHECKOUT/build/bench${QUICK:+/quick}}

# full_or_quick FULL QUICK: the one that is wanted now.
full_or_quick() { if [ -n "$QUICK" ]; then echo "$2"; else echo "$1"; fi; }

# begin_case: the installation, and the facts without which figures are worth nothing.
begin_case() {
	throwaway_begin
	install_here "$THROWAWAY"
	mkdir -p "$OUT"
	FIGURES=$OUT/$CASE.csv
	: >"$FIGURES"
	fact date "$(date -u +%Y-%m-%d)"
	fact cores "$(nproc)"
	fact processor "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), $(uname -m)"
	fact memory_gib "$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)"
	fact kernel "$(uname -sr)"
	fact postgres "$("$BINDIR/postgres" -V | sed 's/^postgres (PostgreSQL) //')"
	fact go "$(go version | cut -d' ' -f3)"
	fact version "$(sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" control/pg_lock_history.control), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
	fact command "make bench CASE=$CASE${QUICK:+ QUICK=1}"
	fact rounds "${ROUNDS:-1}"
	figure 0 run load_average "$(cut -d' ' -f1 /proc/loadavg)"
}

# figure ROUND VARIANT METRIC VALUE
figure() {
	echo "$CASE,$1,$2,$3,$4" >>"$FIGURES"
	[ "$2" = fact ] || echo "  $CASE: round $1, $2: $3 $4" >&2
}

# fact NAME TEXT
fact() { figure 0 fact "$1" "$2"; }

# sql QUERY [DATABASE]
sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$PORT" -U postgres -d "${2:-postgres}" -c "$1"; }

dsn() { echo "host=$SOCKET_DIR port=$PORT user=postgres dbname=postgres sslmode=disable"; }

# until_sql QUERY: polls until it says t.
until_sql() { until [ "$(sql "$1")" = t ]; do sleep 0.1; done; }

until_recording() { until_sql "SELECT value = 'recording' FROM lock_history.status() WHERE key = 'state'"; }

# set_and_reload SETTING VALUE [SETTING VALUE]...: in use when it returns, as far as sessions are concerned.
set_and_reload() {
	while [ $# -gt 0 ]; do
		sql "ALTER SYSTEM SET $1 = $2"
		shift 2
	done
	sql 'SELECT pg_reload_conf()' >/dev/null
}

# The worker, and all that belongs to it.
worker_pid() { sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_lock_history'"; }
our_pids() { sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_lock_history' OR application_name LIKE 'pg\_lock\_history%'"; }
peer_pids() { sql "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'pg\_wait\_sampling%'"; }
has_peer() { [ -e "$("$SYSTEM_PG_CONFIG" --pkglibdir)/pg_wait_sampling.so" ]; }

# cpu_ns PID...: processor time so far, of all their threads.
cpu_ns() {
	local pid
	for pid in "$@"; do cat /proc/"$pid"/task/*/schedstat 2>/dev/null || true; done | awk '{ t += $1 } END { printf "%.0f\n", t }'
}

# per_second_ms BEGIN END SECONDS, the first two in ns.
per_second_ms() { awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { printf "%.2f\n", (b - a) / s / 1e6 }'; }

now() { date +%s.%N; }

# restart_with <<CONF: the server again, with these settings beside its own.
restart_with() {
	local data=$THROWAWAY/clusters/$CLUSTER
	cat >"$data/variant.conf"
	own "$data/variant.conf"
	as_server_user "$BINDIR/pg_ctl" -D "$data" -l "$THROWAWAY/clusters/$CLUSTER.log" -w -s -m fast restart
}

# new_cluster NAME <<CONF: one that restart_with can change; sets CLUSTER.
new_cluster() {
	CLUSTER=$1
	# No pipe: start_cluster sets PORT.
	start_cluster "$1" <<<"$(cat)"$'\n'"include_if_exists = 'variant.conf'"
}

# sessions IDLE WAITING [OPEN]: keeps that many until end_sessions.
sessions() {
	[ -e "$THROWAWAY/sessions" ] || go build -o "$THROWAWAY/sessions" ./test/bench/sessions
	local answer
	coproc LOAD { exec "$THROWAWAY/sessions" -dsn "$(dsn)" -idle "$1" -waiting "$2" -open "${3:-0}"; }
	SESSIONS=$LOAD_PID
	read -r -u "${LOAD[0]}" answer
	[ "$answer" = ready ]
}
end_sessions() {
	kill "$SESSIONS"
	wait "$SESSIONS" 2>/dev/null || true
	until_sql "SELECT count(*) < 5 FROM pg_stat_activity WHERE backend_type = 'client backend'"
}

# fresh_health: health tells of what comes from now on only.
fresh_health() {
	sql "SELECT lock_history.flush('60 s'), lock_history.flush('60 s')" >/dev/null
	sql 'TRUNCATE lock_history.health_minute' >/dev/null
}
