#!/bin/bash
# Plays a lock incident with real sessions in a throwaway server and reads its
# history with the views. KEEP=1 leaves the server up and ends in psql.
#
# Each step of the play waits for a fact that the server reports.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh

say() { printf '\n%s\n' "$*"; }
step() { printf '  %-22s %s\n' "$1" "$2"; }

throwaway_begin
echo "Building (the first time takes a minute) ..."
if ! make --no-print-directory PG_CONFIG="$SYSTEM_PG_CONFIG" all >"$THROWAWAY/build.log" 2>&1; then
	cat "$THROWAWAY/build.log" >&2
	exit 1
fi
install_here "$THROWAWAY"

start_cluster demo <<'CONF'
shared_preload_libraries = 'pg_lock_history'
compute_query_id = on
CONF
LOG=$THROWAWAY/clusters/demo.log
CONNECT=(-h "$SOCKET_DIR" -p "$PORT" -d postgres)

admin() { as_server_user "$BINDIR/psql" -X -q -At -v ON_ERROR_STOP=1 "${CONNECT[@]}" -U postgres "$@"; }

# wait_for WHAT QUERY: until the query, which gives one boolean, says t. The
# asking session does not reconnect, so it may ask often.
wait_for() {
	admin -c "SET statement_timeout = '30s'" -c "DO \$do\$
		BEGIN
			WHILE ($2) IS DISTINCT FROM true LOOP
				PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
			END LOOP;
		END \$do\$" >/dev/null || {
		echo "demo: gave up waiting until $1" >&2
		tail -20 "$LOG" >&2
		exit 1
	}
}

# session NAME ROLE: a psql that takes its statements from a pipe.
declare -A INPUT
SESSION_PIDS=()
session() {
	local fd
	mkfifo "$THROWAWAY/s/in.$1"
	own "$THROWAWAY/s/in.$1"
	as_server_user env PGAPPNAME="$1" "$BINDIR/psql" -X -q "${CONNECT[@]}" -U "$2" -f "$THROWAWAY/s/in.$1" \
		>>"$THROWAWAY/sessions.log" 2>&1 &
	SESSION_PIDS+=($!)
	exec {fd}>"$THROWAWAY/s/in.$1"
	INPUT[$1]=$fd
}
tell() { printf '%s\n' "$2" >&"${INPUT[$1]}"; }
leave() {
	local fd=${INPUT[$1]}
	exec {fd}>&-
}
# Their pipes end when this shell does; then psql leaves by itself.
before_throwaway_end() {
	local name
	for name in "${!INPUT[@]}"; do leave "$name" 2>/dev/null || true; done
	return 0
}

doing() { echo "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '$1' AND $2)"; }

say "A shop: a table of orders, a table of stock, and three roles who do not know of each other."
admin <<'SQL'
CREATE EXTENSION pg_lock_history;
CREATE ROLE reporting LOGIN;
CREATE ROLE deploy LOGIN SUPERUSER;
CREATE ROLE shop LOGIN;
CREATE TABLE public.orders AS SELECT i AS id, i % 100 AS customer, (i * 7) % 500 AS amount FROM generate_series(1, 20000) AS i;
CREATE TABLE public.stock AS SELECT i AS item, 1000000 AS pieces FROM generate_series(1, 10) AS i;
ALTER TABLE public.stock ADD PRIMARY KEY (item);
GRANT SELECT ON public.orders TO reporting, shop;
GRANT SELECT, UPDATE ON public.stock TO shop;
SQL
wait_for "recording has begun" "SELECT value = 'recording' FROM lock_history.status() WHERE key = 'state'"

say "The incident:"
session monthly_report reporting
session migration deploy
for n in 1 2 3; do session "checkout_$n" shop; done

tell monthly_report "BEGIN;"
tell monthly_report "SELECT customer, sum(amount) FROM public.orders, pg_sleep(1) GROUP BY customer ORDER BY 2 DESC LIMIT 1;"
wait_for "the report runs" "$(doing monthly_report "state = 'active' AND wait_event = 'PgSleep'")"
step monthly_report "BEGIN; SELECT customer, sum(amount) FROM orders ... takes a while"

tell migration "ALTER TABLE public.orders ADD COLUMN note text;"
wait_for "the migration waits" "$(doing migration "wait_event_type = 'Lock'")"
step migration "ALTER TABLE orders ADD COLUMN note text  ... waits"

for n in 1 2 3; do
	tell "checkout_$n" "SELECT amount FROM public.orders WHERE id = $n;"
	wait_for "checkout_$n waits" "$(doing "checkout_$n" "wait_event_type = 'Lock'")"
	step "checkout_$n" "SELECT amount FROM orders WHERE id = $n   ... waits"
done

wait_for "the report is idle in its transaction" "$(doing monthly_report "state = 'idle in transaction'")"
step monthly_report "has its answer, and forgets to COMMIT"

cat >"$THROWAWAY/s/sale.sql" <<'SQL'
BEGIN;
UPDATE public.stock SET pieces = pieces - 1 WHERE item = 1;
SELECT sum(pieces) FROM public.stock;
COMMIT;
SQL
step sale "8 clients sell the same item for 3 seconds (pgbench)"
as_server_user env PGAPPNAME=sale "$BINDIR/pgbench" -n -c 8 -j 2 -T 3 -f "$THROWAWAY/s/sale.sql" \
	-h "$SOCKET_DIR" -p "$PORT" -U shop postgres >"$THROWAWAY/pgbench.log" 2>&1 || {
	cat "$THROWAWAY/pgbench.log" >&2
	exit 1
}

tell monthly_report "COMMIT;"
wait_for "nobody waits any more" "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
step monthly_report "COMMIT, and everybody goes on"
for name in "${!INPUT[@]}"; do leave "$name"; done
INPUT=()
wait "${SESSION_PIDS[@]}" || true

admin -c "SELECT lock_history.flush()" >/dev/null

say "It is over; pg_locks and pg_stat_activity know nothing of it. The history does:"

# ask SENTENCE QUERY: shows the query as it would be typed, and its answer.
ask() {
	printf '\n-- %s\n%s\n\n' "$1" "$2"
	as_server_user env PAGER=cat "$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 -P pager=off -P null=- -P footer=off "${CONNECT[@]}" -U postgres \
		-c "SET TimeZone = 'UTC'; SET DateStyle = ISO" -c "$2"
}

ask "Why were we waiting? In words." \
	"SELECT * FROM lock_history.why('5 min');"

ask "Who waited for what, for how long, and how did it end?" \
	"SELECT pid, usename, mode, object, date_trunc('ms', duration) AS duration, outcome,
       hard_blockers AS hard, soft_blockers AS soft, root_blockers AS root
FROM lock_history.waits WHERE locktype = 'relation' ORDER BY wait_start;"

ask "When was it worst?" \
	"SELECT at, waiting, roots, date_trunc('ms', longest) AS longest
FROM lock_history.worst_moments(now() - interval '1 hour', now(), 3);"

ask "Who stood behind whom at the worst moment?" \
	"SELECT repeat('    ', level) || coalesce(gid, pid::text) AS process, kind, application_name, state, mode, object,
       date_trunc('ms', waited) AS waited
FROM lock_history.blocking_tree_at((SELECT at FROM lock_history.worst_moments(n => 1)));"

ask "Who caused it? Not the ALTER TABLE that everybody saw, but the one it waited for itself; the times of all four add up." \
	"SELECT coalesce(gid, pid::text) AS process, usename, application_name, sessions_blocked AS blocked,
       date_trunc('ms', blocked_time) AS blocked_for, left(query, 40) AS last_query
FROM lock_history.root_blockers ORDER BY blocked_time DESC LIMIT 1;"

ask "What was the guilty session doing meanwhile?" \
	"SELECT DISTINCT coalesce(blocker_gid, blocker_pid::text) AS blocker, blocker_application_name AS application,
       blocker_mode, blocker_state, date_trunc('seconds', blocker_xact_start) AS in_transaction_since
FROM lock_history.blocking WHERE kind = 'hard' AND blocker_application_name = 'monthly_report';"

ask "What is fought over in waits too short to be kept one by one? For a row one waits for the transaction that changed it." \
	"SELECT locktype, object, sum(waits) AS waits, round(sum(total_ms)) AS total_ms, round(max(max_ms)) AS longest_ms
FROM lock_history.short_waits GROUP BY locktype, object ORDER BY total_ms DESC LIMIT 2;"

ask "What did watching cost, and did it miss anything?" \
	"SELECT minute, ticks_done, ticks_late, ticks_missed, round(probe_us_p50) AS probe_us, round(cpu_ms) AS cpu_ms, rows_written
FROM lock_history.health ORDER BY minute DESC LIMIT 2;"

ask "Is it running?" \
	"SELECT key, value FROM lock_history.status() WHERE value <> '' LIMIT 12;"

if [ -z "${KEEP:-}" ]; then
	say "Done; the server and its files go away now. \`make run\` does the same and leaves you in psql."
	exit 0
fi

user=
[ "$(id -u)" != 0 ] || user="runuser -u postgres -- "
say "The server stays up. Connect and stop it with:
    ${user}$BINDIR/psql -h $SOCKET_DIR -p $PORT -U postgres postgres
    ${user}$BINDIR/pg_ctl -D $THROWAWAY/clusters/demo stop && rm -rf $THROWAWAY"
if [ -t 0 ] && [ -t 1 ]; then
	say "Leaving this psql stops the server and removes it."
	# Ctrl-C is for psql here.
	trap '' INT
	# Its history would be saved in a home directory that the server's user may not write to, or does not have.
	as_server_user env PSQL_HISTORY=/dev/null "$BINDIR/psql" -X "${CONNECT[@]}" -U postgres || true
	exit 0
fi
# No terminal: whoever called has the two commands above.
trap - EXIT INT TERM HUP
