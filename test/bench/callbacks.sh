#!/bin/bash
# What the notes about failed waits (extension/errhook.c) cost transactions that
# do not wait, and one that fails in a wait: two servers on one machine, one of them with the library, its sampling switched
# off; the same work on each in turn. Printed are pairs of one round, with over without.
#
#   subtransactions   one statement of EXCEPTION blocks that catch nothing
#   errors            the same, each catching an error
#   transactions      one statement of COMMITs with a SELECT in between
#   waits             one statement of EXCEPTION blocks, each catching a lock_timeout
#
# Figures are processor time of the session: others share the machine.
#
# Environment: ROUNDS [41], LOOPS [100000].
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
ROUNDS=${ROUNDS:-41} LOOPS=${LOOPS:-100000}

throwaway_begin
install_here "$THROWAWAY"
start_cluster without <<<'max_prepared_transactions = 1'
without=$PORT
start_cluster with <<-CONF
	max_prepared_transactions = 1
	shared_preload_libraries = 'pg_lock_history'
	pg_lock_history.enabled = off
CONF
with=$PORT

sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$1" -U postgres -d postgres -c "$2"; }

# A prepared transaction holds the lock: nobody has to stay for it.
for port in "$without" "$with"; do
	sql "$port" 'CREATE TABLE public.held ()' >/dev/null
	sql "$port" "BEGIN; LOCK TABLE public.held; PREPARE TRANSACTION 'holder'" >/dev/null
done

# loop PORT COUNT STATEMENTS: nanoseconds of processor time for each turn.
loop() {
	sql "$1" "DO 'DECLARE began bigint := split_part(pg_read_file(''/proc/self/schedstat''), '' '', 1); BEGIN
		FOR i IN 1 .. $2 LOOP $3 END LOOP;
		RAISE NOTICE ''%'', (split_part(pg_read_file(''/proc/self/schedstat''), '' '', 1)::bigint - began) / $2.0; END'" 2>&1 | awk '{ print $NF }'
}
measure() {
	case $2 in
	subtransactions) loop "$1" "$LOOPS" 'BEGIN NULL; EXCEPTION WHEN OTHERS THEN NULL; END;' ;;
	errors) loop "$1" $((LOOPS / 5)) 'BEGIN RAISE division_by_zero; EXCEPTION WHEN OTHERS THEN NULL; END;' ;;
	waits) loop "$1" $((LOOPS / 200)) "BEGIN SET LOCAL lock_timeout = 1; LOCK TABLE public.held; EXCEPTION WHEN lock_not_available THEN NULL; END;" ;;
	transactions) loop "$1" $((LOOPS / 2)) 'PERFORM relname FROM pg_class WHERE oid = 1259; COMMIT;' ;;
	esac
}

for ((round = 0; round < ROUNDS; round++)); do
	for what in subtransactions errors transactions waits; do
		# Who comes first changes: the machine's speed does, too.
		if ((round % 2)); then
			a=$(measure "$without" $what) b=$(measure "$with" $what)
		else
			b=$(measure "$with" $what) a=$(measure "$without" $what)
		fi
		echo "$what $a $b" >>"$THROWAWAY/pairs"
	done
done

echo "$(uname -m), $(nproc) cores, $("$BINDIR/postgres" -V), $ROUNDS pairs: median (least to most)"
awk '
function sorted(list, v,   n, i, j, t) {
	n = split(list, v, " ")
	for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
	return n
}
function show(list, form,   v, n) { n = sorted(list, v); return sprintf(form " (" form " to " form "), quartiles " form " and " form, v[int((n + 1) / 2)], v[1], v[n], v[int((n + 3) / 4)], v[int((3 * n + 3) / 4)]) }
{ if (!($1 in without)) order[++kinds] = $1; without[$1] = without[$1] " " $2; with[$1] = with[$1] " " $3; ratio[$1] = ratio[$1] " " $3 / $2 }
END {
	for (k = 1; k <= kinds; k++) {
		printf "%s\n    without, ns   %s\n    with, ns      %s\n    ratio         %s\n", order[k], show(without[order[k]], "%.0f"), show(with[order[k]], "%.0f"), show(ratio[order[k]], "%.3f")
	}
}' "$THROWAWAY/pairs"
