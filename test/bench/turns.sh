# Sourced by the cases that compare what watching costs a load: one pgbench runs
# without a break, and what watches changes in turns of some seconds. So what is
# compared lies some seconds apart, in the same sessions and the same server: the
# machine's speed changes by half from minute to minute.
#
#   off, off2   nobody watches; twice, so that the distance of the two tells
#               what cannot be told apart
#   loop        a session that calls pg_blocking_pids() for each row of pg_stat_activity, 100 times a second
#   views       a session that joins pg_locks and pg_stat_activity, 100 times a second
#   ours        pg_lock_history at 100 Hz             ours_1ms   at 1 000 Hz
#   peer        pg_wait_sampling at 100 Hz
#
# Environment: TURN [4] seconds of each.
TURN=${TURN:-$(full_or_quick 4 3)}

declare -A LOOP=(
	[loop]='PERFORM pg_blocking_pids(pid) FROM pg_stat_activity;'
	[views]='PERFORM l.pid, l.locktype, l.relation, l.mode, l.granted, a.state, a.wait_event, a.query
		FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid;'
)

# Far away, as good as never: pg_wait_sampling cannot be switched off.
NEVER=86400000

# watch VARIANT: begins.
watch() {
	case $1 in
	loop | views)
		as_server_user env PGAPPNAME=observer "$BINDIR/psql" -Xq -h "$SOCKET_DIR" -p "$PORT" -U postgres -d postgres -c "DO \$\$ BEGIN
				LOOP
					${LOOP[$1]}
					PERFORM pg_stat_clear_snapshot();
					PERFORM pg_sleep(0.01);
				END LOOP;
			END \$\$" >"$THROWAWAY/watcher" 2>&1 &
		WATCHER=$!
		;;
	ours) set_and_reload pg_lock_history.sample_period "'10ms'" pg_lock_history.enabled on ;;
	ours_1ms) set_and_reload pg_lock_history.sample_period "'1ms'" pg_lock_history.enabled on ;;
	peer)
		set_and_reload pg_wait_sampling.history_period 10 pg_wait_sampling.profile_period 10
		# It sleeps for as long as it was told before; who asks it for its profile wakes it.
		sql 'SELECT count(*) FROM pg_wait_sampling_profile' >/dev/null
		;;
	esac
}

unwatch() {
	case $1 in
	loop | views)
		sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'observer'" >/dev/null
		wait "$WATCHER" || grep -q 'terminating connection due to administrator command' "$THROWAWAY/watcher" || { cat "$THROWAWAY/watcher" >&2; return 1; }
		;;
	ours | ours_1ms) set_and_reload pg_lock_history.enabled off ;;
	peer) set_and_reload pg_wait_sampling.history_period $NEVER pg_wait_sampling.profile_period $NEVER ;;
	esac
}

watcher_pids() {
	case $1 in
	loop | views) sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'observer'" ;;
	ours | ours_1ms) our_pids ;;
	peer) peer_pids ;;
	esac
}

pause_until() { sleep "$(awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f", (a > b ? a - b : 0) }')"; }
after() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a + b }'; }

# run_turns ROUND PREFIX "VARIANT..." PGBENCH_OPTION...: figures of variants PREFIX.VARIANT: tps, latency
# percentiles of a tenth of the transactions, processor time of what watches.
run_turns() {
	local round=$1 prefix=$2 list=($3) n i variant pids t0 begin end c0 c1 bench
	shift 3
	n=${#list[@]}
	rm -rf "$THROWAWAY/turns"
	mkdir "$THROWAWAY/turns"
	own "$THROWAWAY/turns"
	as_server_user "$BINDIR/pgbench" -n -h "$SOCKET_DIR" -p "$PORT" -U postgres -T $((TURN * n + 4)) -P 1 --progress-timestamp \
		--log --log-prefix="$THROWAWAY/turns/log" --sampling-rate=0.1 "$@" postgres >"$THROWAWAY/turns/progress" 2>&1 &
	bench=$!
	sleep 2 # warm caches
	t0=$(now)
	for ((i = 0; i < n; i++)); do
		# Another order in each round: who comes first has it colder, and who comes last, too.
		variant=${list[(i + round) % n]}
		begin=$(after "$t0" $((TURN * i))) end=$(after "$t0" $((TURN * (i + 1))))
		pause_until "$begin"
		watch "$variant"
		pause_until "$(after "$begin" 0.5)" # the change itself is in no figure
		pids=$(watcher_pids "$variant")
		# shellcheck disable=SC2086
		c0=$(cpu_ns $pids)
		begin=$(now)
		pause_until "$(after "$end" -0.2)"
		# shellcheck disable=SC2086
		c1=$(cpu_ns $pids)
		end=$(now)
		[ -z "$pids" ] || figure "$round" "$prefix.$variant" watcher_cpu_ms_per_s "$(per_second_ms "$c0" "$c1" "$(after "$end" "-$begin")")"
		unwatch "$variant"
		echo "$variant $begin $end" >>"$THROWAWAY/turns/turns"
	done
	wait "$bench" || { tail -5 "$THROWAWAY/turns/progress" >&2; return 1; }
	# A line of progress tells of the second that ends at its time: kept when three quarters of it lie inside.
	awk '
		FILENAME ~ /turns$/ { variant[++n] = $1; begin[n] = $2; end[n] = $3; next }
		/^progress:/ { for (i = 1; i <= n; i++) if ($2 - 1 >= begin[i] - 0.25 && $2 <= end[i] + 0.25) { seconds[i]++; tps[i] += $4 } }
		END { for (i = 1; i <= n; i++) if (seconds[i]) print variant[i], tps[i] / seconds[i] }
	' "$THROWAWAY/turns/turns" "$THROWAWAY/turns/progress" | while read -r variant tps; do
		figure "$round" "$prefix.$variant" tps "$tps"
	done
	cat "$THROWAWAY"/turns/log.* | awk -v turns="$THROWAWAY/turns/turns" '
		BEGIN { while ((getline line < turns) > 0) { split(line, f, " "); variant[++n] = f[1]; begin[n] = f[2]; end[n] = f[3] } }
		{ t = $5 + $6 / 1e6; for (i = 1; i <= n; i++) if (t >= begin[i] && t <= end[i]) print variant[i], $3 }
	' | sort -k1,1 -k2,2n | awk '
		function done() { if (k) for (p = 1; p <= 4; p++) { i = int(k * share[p]); print of, name[p], v[i < 1 ? 1 : i] } k = 0 }
		BEGIN { split("0.5 0.95 0.99 0.999", share, " "); split("p50 p95 p99 p999", name, " ") }
		$1 != of { done(); of = $1 }
		{ v[++k] = $2 }
		END { done() }
	' | while read -r variant name us; do
		figure "$round" "$prefix.$variant" "latency_${name}_us" "$us"
	done
}
