#!/bin/bash
# How long reading takes with a full ring, in milliseconds: views over the last
# 15 minutes, trees of moments with few and with 1 000 waiters, and the same of
# a kept incident. Times are psql's, so planning and transfer are in them.
#
# Environment: EPISODES [400000] waits in the ring (about 1 GB), ROUNDS [15]
# times that each is asked; the figure is the median (least to most). The ring
# is filled by hand (reading.sql), in a database that no worker writes to.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
EPISODES=${EPISODES:-400000} ROUNDS=${ROUNDS:-15}

throwaway_begin
install_here "$THROWAWAY"
start_cluster reading <<-'CONF'
	shared_preload_libraries = 'pg_lock_history'
	pg_lock_history.database = 'template1'
	shared_buffers = '128MB'
	max_wal_size = '8GB'
CONF
psql=("$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres)
cp test/bench/reading.sql "$THROWAWAY/reading.sql"
as_server_user "${psql[@]}" -c 'SET client_min_messages = error' -c 'CREATE EXTENSION pg_lock_history'
as_server_user "${psql[@]}" -v episodes="$EPISODES" -f "$THROWAWAY/reading.sql"

# ask WHAT QUERY: the median over ROUNDS
ask() {
	{
		echo "${SETTING:-}"
		echo '\timing on'
		for ((i = 0; i < ROUNDS; i++)); do echo "$2 \\g /dev/null"; done
	} >"$THROWAWAY/ask.sql"
	as_server_user "${psql[@]}" -f "$THROWAWAY/ask.sql" | awk '/^Time:/ { print $2 }' | sort -n |
		awk -v what="$1" '{ t[NR] = $1 } END { printf "%-42s %8.1f (%.1f to %.1f)\n", what, t[int((NR + 1) / 2)], t[1], t[NR] }'
}

recent="now() - interval '15 min'"
echo "$(uname -m), $(nproc) cores, $("$BINDIR/postgres" -V): median (least to most) of $ROUNDS, ms"
echo "the last 15 minutes, with a storm of 1 001 waits in them"
ask 'waits' "SELECT * FROM lock_history.waits WHERE wait_start > $recent"
ask 'waits, newest 20' "SELECT * FROM lock_history.waits WHERE wait_start > $recent ORDER BY wait_start DESC LIMIT 20"
ask 'blocking' "SELECT * FROM lock_history.blocking WHERE wait_start > $recent"
ask 'root_blockers(since)' "SELECT * FROM lock_history.root_blockers($recent)"
ask 'blocker_statements' "SELECT * FROM lock_history.blocker_statements WHERE wait_start > $recent"
ask 'blocker_statements(since)' "SELECT * FROM lock_history.blocker_statements($recent)"
ask 'short_waits' "SELECT * FROM lock_history.short_waits WHERE at > $recent"
ask 'gaps' "SELECT * FROM lock_history.gaps WHERE began > $recent"
ask 'health' "SELECT * FROM lock_history.health WHERE minute > $recent"
ask 'worst_moments' "SELECT * FROM lock_history.worst_moments($recent)"
echo "trees"
ask 'now' "SELECT * FROM lock_history.blocking_tree_at(now())"
ask '3 days ago' "SELECT * FROM lock_history.blocking_tree_at(now() - interval '3 days')"
ask 'in the storm, 1 001 waiters' "SELECT * FROM lock_history.blocking_tree_at(now() - interval '4 min')"
ask 'blocking_all of its last waiter' "SELECT * FROM lock_history.blocking_all(100001000)"
echo "in words"
ask 'explain, 15 minutes' "SELECT * FROM lock_history.explain()"
ask 'explain, an hour' "SELECT * FROM lock_history.explain(now() - interval '1 hour')"
ask 'explain, a day' "SELECT * FROM lock_history.explain(now() - interval '1 day')"
echo "the whole ring"
ask 'root_blockers' "SELECT * FROM lock_history.root_blockers"
ask 'worst_moments' "SELECT * FROM lock_history.worst_moments()"
ask 'status' "SELECT * FROM lock_history.status()"
echo "the storm, kept"
as_server_user "${psql[@]}" -c '\timing on' -c "SELECT lock_history.keep(now() - interval '10 min', now() - interval '1 s', 'storm') AS waits_kept"
SETTING="SET pg_lock_history.incident = 'storm';"
ask 'waits' "SELECT * FROM lock_history.waits"
ask 'blocking' "SELECT * FROM lock_history.blocking"
ask 'tree, 1 001 waiters' "SELECT * FROM lock_history.blocking_tree_at((SELECT since FROM lock_history.kept) + interval '6 min')"
ask 'worst_moments' "SELECT * FROM lock_history.worst_moments()"
ask 'root_blockers' "SELECT * FROM lock_history.root_blockers"
ask 'explain' "SELECT * FROM lock_history.explain()"
