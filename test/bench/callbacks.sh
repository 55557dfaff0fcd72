#!/bin/bash
# What the notes about failed waits (extension/errhook.c) cost transactions that
# do not wait: two servers on one machine, one of them with the library, its sampling switched
# off; the same work on each in turn. Printed are pairs of one round, with over without.
#
#   subtransactions   one statement of EXCEPTION blocks that catch nothing
#   errors            the same, each catching an error
#   transactions      pgbench -S -M prepared with one client
#
# Environment: ROUNDS [15], LOOPS [300000] blocks, TRANSACTIONS [30000].
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/throwaway.sh
. test/tools/throwaway.sh
ROUNDS=${ROUNDS:-15} LOOPS=${LOOPS:-300000} TRANSACTIONS=${TRANSACTIONS:-30000}

throwaway_begin
install_here "$THROWAWAY"
start_cluster without <<<''
without=$PORT
start_cluster with <<-CONF
	shared_preload_libraries = 'pg_lock_history'
	pg_lock_history.enabled = off
CONF
with=$PORT

sql() { as_server_user "$BINDIR/psql" -XAtq -v ON_ERROR_STOP=1 -h "$SOCKET_DIR" -p "$1" -U postgres -d postgres -c "$2"; }
bench() { as_server_user "$BINDIR/pgbench" -h "$SOCKET_DIR" -p "$1" -U postgres "${@:2}" postgres 2>&1; }
for port in "$without" "$with"; do
	bench "$port" -i -q >/dev/null
done

# Microseconds for one block; the server's own clock.
blocks() {
	sql "$1" "DO 'DECLARE began timestamptz := clock_timestamp(); BEGIN
		FOR i IN 1 .. $2 LOOP BEGIN $3 EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP;
		RAISE NOTICE ''%'', extract(epoch FROM clock_timestamp() - began) * 1e6 / $2; END'" 2>&1 | awk '{ print $NF }'
}
measure() {
	case $2 in
	subtransactions) blocks "$1" "$LOOPS" 'NULL;' ;;
	errors) blocks "$1" $((LOOPS / 10)) 'RAISE division_by_zero;' ;;
	transactions) bench "$1" -n -S -M prepared -t "$TRANSACTIONS" | awk '/^tps/ { printf "%.3f\n", 1e6 / $3 }' ;;
	esac
}

for ((round = 0; round < ROUNDS; round++)); do
	for what in subtransactions errors transactions; do
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
function show(list,   v, n) { n = sorted(list, v); return sprintf("%.3f (%.3f to %.3f), quartiles %.3f and %.3f", v[int((n + 1) / 2)], v[1], v[n], v[int((n + 3) / 4)], v[int((3 * n + 3) / 4)]) }
{ if (!($1 in without)) order[++kinds] = $1; without[$1] = without[$1] " " $2; with[$1] = with[$1] " " $3; ratio[$1] = ratio[$1] " " $3 / $2 }
END {
	for (k = 1; k <= kinds; k++) {
		printf "%s\n    without, us   %s\n    with, us      %s\n    ratio         %s\n", order[k], show(without[order[k]]), show(with[order[k]]), show(ratio[order[k]])
	}
}' "$THROWAWAY/pairs"
