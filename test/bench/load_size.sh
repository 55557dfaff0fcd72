#!/bin/bash
# What load takes on disk by second and by minute, and in the WAL, with 50 active sessions of a
# steady mix: the store is fed with synthetic seconds, one transaction each, as
# on a real server; and how long reading the last 15 minutes takes.
#
# Environment: SECONDS_FED [10000] seconds for each of two servers, one with
# 200 distinct statements and one with 5 000.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh

throwaway_begin
install_here "$THROWAWAY"
start_cluster load <<-'CONF'
	shared_preload_libraries = 'pg_lock_history'
	pg_lock_history.enabled = off
	max_wal_size = '8GB'
CONF
as_server_user "$BINDIR/psql" -X -q -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres -c 'CREATE EXTENSION pg_lock_history'
echo "$(uname -m), $(nproc) cores, $("$BINDIR/postgres" -V)"
PLH_LOAD_SECONDS=${SECONDS_FED:-10000} PLH_TEST_DSN="host=$SOCKET_DIR port=$PORT user=postgres dbname=postgres sslmode=disable" \
	go test -count=1 -timeout 60m -tags osusergo,netgo -run 'TestLive(Load|Minutes)Size' -v ./gosrc/store |
	sed -n 's/^ *[a-z]*_live_test.go:[0-9]*: //p; /^ *--- /p; /^FAIL/p'
