#!/bin/bash
# Case price: what sessions pay that have nothing to wait for, and one that fails
# in a wait. The notes about failed waits (extension/errhook.c) come by at every
# abort and every error, EnableQueryId() at every statement that is analyzed.
# Three servers on one machine; the same work on each in turn; sampling is
# off, so that nothing but the price of the hooks is in it:
#
#   without    nothing preloaded
#   notes      pg_lock_history, enable_query_id off
#   with       pg_lock_history as it comes
#
#   subtransactions   one statement of EXCEPTION blocks that catch nothing
#   errors            the same, each catching an error
#   transactions      one statement of COMMITs with a SELECT in between
#   statements        one that runs texts, each analyzed anew
#   waits             one statement of EXCEPTION blocks, each catching a lock_timeout
#
# Figures are processor time of the session for each turn of the loop: others may
# share the machine.
#
# Environment: ROUNDS [11], LOOPS [100000].
set -euo pipefail
# shellcheck source=test/bench/common.sh
. "$(dirname "$0")/common.sh"
ROUNDS=${ROUNDS:-$(full_or_quick 11 3)} LOOPS=${LOOPS:-$(full_or_quick 100000 30000)}
begin_case

declare -A ports
start_cluster without <<<'max_prepared_transactions = 1'
ports[without]=$PORT
start_cluster notes <<-'CONF'
	max_prepared_transactions = 1
	shared_preload_libraries = 'pg_lock_history'
	pg_lock_history.enabled = off
	pg_lock_history.enable_query_id = off
CONF
ports[notes]=$PORT
start_cluster with <<-'CONF'
	max_prepared_transactions = 1
	shared_preload_libraries = 'pg_lock_history'
	pg_lock_history.enabled = off
CONF
ports[with]=$PORT

# A prepared transaction holds the lock: nobody has to stay for it.
for PORT in "${ports[@]}"; do
	sql 'CREATE TABLE public.held ()'
	sql "BEGIN; LOCK TABLE public.held; PREPARE TRANSACTION 'holder'"
done

# loop SERVER COUNT STATEMENTS: nanoseconds of processor time for each turn.
loop() {
	PORT=${ports[$1]} sql "DO 'DECLARE began bigint := split_part(pg_read_file(''/proc/self/schedstat''), '' '', 1); BEGIN
		FOR i IN 1 .. $2 LOOP $3 END LOOP;
		RAISE NOTICE ''%'', (split_part(pg_read_file(''/proc/self/schedstat''), '' '', 1)::bigint - began) / $2.0; END'" 2>&1 | awk '{ printf "%.0f\n", $NF }'
}
measure() {
	case $2 in
	subtransactions) loop "$1" $((LOOPS * 2)) 'BEGIN NULL; EXCEPTION WHEN OTHERS THEN NULL; END;' ;;
	errors) loop "$1" $((LOOPS / 2)) 'BEGIN RAISE division_by_zero; EXCEPTION WHEN OTHERS THEN NULL; END;' ;;
	transactions) loop "$1" $((LOOPS / 2)) 'PERFORM relname FROM pg_class WHERE oid = 1259; COMMIT;' ;;
	statements) loop "$1" $((LOOPS / 5)) "EXECUTE ''SELECT relname, relkind FROM pg_class WHERE oid = '' || i || '' AND relkind = ''''r''''''; " ;;
	waits) loop "$1" $((LOOPS / 200)) 'BEGIN SET LOCAL lock_timeout = 1; LOCK TABLE public.held; EXCEPTION WHEN lock_not_available THEN NULL; END;' ;;
	esac
}

order=(without notes with)
for ((round = 1; round <= ROUNDS; round++)); do
	for what in subtransactions errors transactions statements waits; do
		# Who comes first changes: the machine's speed does, too.
		for ((i = 0; i < 3; i++)); do
			server=${order[(i + round) % 3]}
			figure "$round" "$what.$server" cpu_ns "$(measure "$server" $what)"
		done
	done
done
