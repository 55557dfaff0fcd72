#!/bin/bash
# What one watched server costs a history on another one: bytes on the way,
# transactions, WAL, tables, and processor time of the process that takes them
# there. For doc/fleet.md, which multiplies it.
#
# Environment: SECS [120] seconds measured for each line.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
SECS=${SECS:-120}

throwaway_begin
install_here "$THROWAWAY"
start_cluster archive <<-CONF
	shared_preload_libraries = 'pg_lock_history'
	autovacuum = off
	checkpoint_timeout = '1h'
	max_wal_size = '8GB'
CONF
archive_port=$PORT
sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$1" -U postgres -d postgres -c "$2"; }
sql "$archive_port" "CREATE EXTENSION pg_lock_history; CREATE ROLE fleet LOGIN; SELECT lock_history.grant_writer('fleet')" >/dev/null

# The way there goes through a link that counts.
own "$THROWAWAY"
(cd "$CHECKOUT" && exec perl -Itest/perl -I"$("$SYSTEM_PG_CONFIG" --pkglibdir)/pgxs/src/test/perl" -e '
	use LockHistory::Link;
	package Server { sub host { return $ARGV[0]; } sub port { return $ARGV[1]; } }
	$SIG{TERM} = sub { exit; };
	my $link = LockHistory::Link->new(bless {}, "Server");
	chmod 0777, $link->host, $link->host . "/.s.PGSQL." . $link->port;
	open my $file, ">", "$ARGV[2].new" or die $!;
	print $file $link->host;
	close $file;
	rename "$ARGV[2].new", $ARGV[2];
	sleep;' "$SOCKET_DIR" "$archive_port" "$THROWAWAY/link") &
link=$!
before_throwaway_end() { kill "$link" 2>/dev/null; wait "$link" 2>/dev/null; }
until [ -e "$THROWAWAY/link" ]; do sleep 0.1; done
way=$(cat "$THROWAWAY/link")

start_cluster watched <<-CONF
	shared_preload_libraries = 'pg_lock_history'
	compute_query_id = on
	autovacuum = off
	max_connections = 120
	pg_lock_history.node_name = 'watched'
	pg_lock_history.conninfo = 'host=$way port=$archive_port dbname=postgres user=fleet'
CONF
watched_port=$PORT
sql "$watched_port" 'CREATE EXTENSION pg_lock_history'

cat >"$THROWAWAY/work.sql" <<-'SQL'
	\set n random(1, 10)
	SELECT count(*) FROM generate_series(1, 1000 * :n) AS g(i) WHERE i % :n = 0;
SQL
cat >"$THROWAWAY/storm.sql" <<-'SQL'
	BEGIN;
	SELECT pg_advisory_xact_lock(1);
	SELECT pg_sleep(0.002);
	END;
SQL
cat >"$THROWAWAY/long.sql" <<-'SQL'
	BEGIN;
	SELECT pg_advisory_xact_lock(1);
	SELECT pg_sleep(0.02);
	END;
SQL

bytes_of() { stat -c %s "$way/bytes"; }
writer_of() { sql "$archive_port" "SELECT pid FROM pg_stat_activity WHERE usename = 'fleet'"; }
ms_of() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%d", ($12 + $13) * 1000 / hz }' "/proc/$1/stat"; }
# WAL, tables, transactions, rows: of the node, so that the archive's own do not count but for the WAL.
state_of() { sql "$archive_port" "SELECT pg_current_wal_insert_lsn() - '0/0', (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r'),
	(SELECT sum(batch) FROM lock_history.run JOIN lock_history.node USING (node_id) WHERE node = 'watched'), (SELECT rows FROM lock_history.nodes WHERE node = 'watched')"; }

# measure NAME [pgbench options]
measure() {
	local name=$1 pid='' writer bytes ms before after
	shift
	if [ $# -gt 0 ]; then
		as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$watched_port" -U postgres -T $((SECS + 60)) "$@" postgres >/dev/null 2>&1 &
		pid=$!
		sleep 5
	fi
	sql "$archive_port" CHECKPOINT
	writer=$(writer_of) bytes=$(bytes_of) ms=$(ms_of "$writer") before=$(state_of)
	sleep "$SECS"
	after=$(state_of) bytes=$(($(bytes_of) - bytes)) ms=$(($(ms_of "$writer") - ms))
	awk -F'|' -v name="$name" -v secs="$SECS" -v bytes="$bytes" -v ms="$ms" -v before="$before" '
		{ split(before, b, "|")
		  printf "%-44s %9.2f %8.2f %9.2f %9.1f %8.1f %8.2f\n", name, bytes / secs / 1e3, ($3 - b[3]) / secs, ($4 - b[4]) / secs,
			($1 - b[1]) * 3600 / secs / 1e6, ($2 - b[2]) * 3600 / secs / 1e6, ms / secs / 10 }' <<<"$after"
	if [ -n "$pid" ]; then
		sql "$watched_port" "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'pgbench'" >/dev/null
		wait "$pid" 2>/dev/null || true
	fi
}

until [ "$(sql "$watched_port" "SELECT value FROM lock_history.status() WHERE key = 'state'")" = recording ]; do sleep 0.1; done
printf '%-44s %9s %8s %9s %9s %8s %8s\n' "of one server ($SECS s measured)" 'kB/s' 'batch/s' 'rows/s' 'WAL MB/h' 'MB/h' 'CPU %'
measure idle
measure '50 sessions at work, 10 kinds of statement' -c 50 -f "$THROWAWAY/work.sql"
measure 'short waits: 5 sessions, 2 ms each' -c 5 -f "$THROWAWAY/storm.sql"
measure 'waits of 1 s: 50 sessions, 20 ms each' -c 50 -f "$THROWAWAY/long.sql"
