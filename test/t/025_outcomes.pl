# How waits end, each kind told apart: errors that are caught, hidden from the
# log, several in one sampling period, slots that change hands, hot rows.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('outcomes', settings => "max_prepared_transactions = 5\ndeadlock_timeout = 60s");
$node->safe_psql('postgres', q{
	CREATE TABLE public.t (i int);
	CREATE TABLE public.hot (id int PRIMARY KEY, v int);
	INSERT INTO hot SELECT g, 0 FROM generate_series(1, 10) AS g;
	CREATE TABLE public.wide (i int) WITH (parallel_workers = 1);
	INSERT INTO wide SELECT g FROM generate_series(1, 3000) AS g;
	ANALYZE wide;
	CREATE FUNCTION public.count_t(integer) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
		AS 'BEGIN RETURN (SELECT count(*) FROM public.t); END'});
my $holder = LockHistory::session($node, 'holder');
sub hold { $holder->run('BEGIN; LOCK TABLE t'); return; }
sub let_go { $holder->run('COMMIT'); return; }

# What became of the waits of a session, in order; and how many failed waits are among the short ones.
sub outcomes
{
	my ($name) = @_;
	return LockHistory::history($node, qq{
		SELECT string_agg(outcome || CASE WHEN granted THEN '+' WHEN NOT granted THEN '-' ELSE '?' END, ' ' ORDER BY wait_start)
		FROM lock_history.waits WHERE application_name = '$name'});
}
sub unseen { return LockHistory::history($node, 'SELECT coalesce(sum(failed), 0) FROM lock_history.short_waits'); }

# In a function, so that the context of the error quotes the statement.
sub long_statement
{
	my ($timeout, $length) = @_;
	return "RESET statement_timeout; SET $timeout = '150ms'; DO 'BEGIN EXECUTE ''SELECT * FROM t --'' || repeat(''x'', $length); END'";
}

# Waits that end by themselves, each in a session of its own.
my $give_up = q{BEGIN LOCK TABLE t IN ROW SHARE MODE; EXCEPTION WHEN OTHERS THEN NULL; END;};
hold();
for my $case (
	[ 'lock_timeout', "SET lock_timeout = '150ms'; SELECT * FROM t", 'lock_timeout-' ],
	[ 'statement_timeout', "SET statement_timeout = '150ms'; SELECT * FROM t", 'statement_timeout-' ],
	[ 'both, the statement first', "SET lock_timeout = '60s'; SET statement_timeout = '150ms'; SELECT * FROM t", 'statement_timeout-' ],
	[ 'caught', "SET lock_timeout = '150ms'; DO 'BEGIN $give_up END'", 'lock_timeout-' ],
	[ 'caught twice', "SET lock_timeout = '150ms'; DO 'BEGIN $give_up $give_up END'", 'lock_timeout- lock_timeout-' ],
	[ 'not in the log', "SET log_min_messages = panic; SET client_min_messages = error; SET lock_timeout = '150ms'; DO 'BEGIN $give_up END'; SELECT * FROM t", 'lock_timeout- lock_timeout-' ],
	[ 'one transaction', "SET lock_timeout = '150ms'; BEGIN; SAVEPOINT a; SELECT * FROM t; ROLLBACK TO a; SAVEPOINT b; SELECT * FROM t; ROLLBACK TO b; SAVEPOINT c; SELECT 1 / 0; ROLLBACK TO c; COMMIT", 'lock_timeout- lock_timeout-' ],
	[ 'abort later', "SET lock_timeout = '150ms'; BEGIN; DO 'BEGIN $give_up END'; SELECT 1 / 0; ROLLBACK; SELECT 1 / 0", 'lock_timeout-' ],
	[ 'prepared', "SET lock_timeout = '150ms'; BEGIN; DO 'BEGIN $give_up END'; PREPARE TRANSACTION 'x'; ROLLBACK PREPARED 'x'", 'lock_timeout-' ],
	[ 'RAISE is no deadlock', "SET lock_timeout = '150ms'; BEGIN; DO 'BEGIN $give_up RAISE SQLSTATE ''40P01''; END'; ROLLBACK", 'lock_timeout-' ],
	# An error without an abort of its own, before the one that counts; not in the log either.
	[ 'after an error in an aborted transaction', "SET log_min_messages = panic; SET lock_timeout = '150ms'; BEGIN; SELECT 1 / 0; SELECT 1; ROLLBACK; SELECT * FROM t", 'lock_timeout-' ],
	[ 'a long statement', long_statement('statement_timeout', 20_000), 'statement_timeout-' ],
	# More than is copied of an error: it is read on its way to the log. One that is not on it is told by its SQLSTATE.
	[ 'too long', long_statement('statement_timeout', 200_000) . '; ' . long_statement('lock_timeout', 200_000), 'statement_timeout- lock_timeout-' ],
	[ 'too long, not in the log', 'SET log_min_messages = panic; ' . long_statement('statement_timeout', 200_000) . '; ' . long_statement('lock_timeout', 200_000), 'failed- lock_timeout-' ],
	[ 'too long, caught', "SET statement_timeout = '150ms'; DO 'BEGIN BEGIN EXECUTE ''SELECT * FROM t --'' || repeat(''x'', 200000); EXCEPTION WHEN query_canceled THEN NULL; END; PERFORM 1 / 0; END'", 'failed-' ],
	# The setting has two names.
	[ 'a parallel worker', "SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query'); SET lock_timeout = '150ms'; SELECT count_t(id) FROM hot", 'lock_timeout-' ])
{
	my ($name, $sql, $want) = @$case;
	my $session = LockHistory::session($node, $name);
	$session->run($sql);
	$session->quit;
	is(outcomes($name), $want, $name);
}
is($node->safe_psql('postgres', "SELECT leader_pid IS NOT NULL FROM lock_history.waits WHERE application_name = 'a parallel worker'"), 't',
	'it was a parallel worker that waited');
SKIP:
{
	skip 'no transaction_timeout before 17', 1 if LockHistory::major($node) < 17;
	$node->psql('postgres', q{SET application_name = 'transaction_timeout'; SET transaction_timeout = '150ms'; SELECT * FROM t});
	is(outcomes('transaction_timeout'), 'terminated-', 'transaction_timeout');
}
is(unseen(), '0', 'no failure was counted twice');

# A leader that waits beside its worker fails with the worker's error; so it is told
# of both, whatever the language of their messages.
my $leader = LockHistory::session($node, 'leader');
$leader->run(q{SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = on});
for my $case ([ 'pg_cancel_backend', 'cancelled-' ], [ 'pg_terminate_backend', 'failed-' ])
{
	my ($how, $want) = @$case;
	$leader->run("SET application_name = 'leader $how'");
	$leader->send('SELECT sum(count_t(i)) FROM wide');
	my $both = 'SELECT array_agg(l.pid) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE NOT l.granted AND coalesce(a.leader_pid, a.pid) = ' . $leader->pid;
	$node->poll_query_until('postgres', "SELECT cardinality(array_agg) = 2 FROM ($both) AS b");
	$node->poll_query_until('postgres', "SELECT lock_history.flush() AND (SELECT count(*) = 2 FROM lock_history.waits WHERE application_name = 'leader $how')");
	$node->safe_psql('postgres', "SELECT $how(p) FROM ($both) AS b, unnest(array_agg) AS p WHERE p <> " . $leader->pid);
	$leader->answer;
	is(LockHistory::history($node, qq{SELECT string_agg(outcome || CASE WHEN granted THEN '+' ELSE '-' END, ' ') FROM lock_history.waits
		WHERE application_name = 'leader $how' AND pid = } . $leader->pid), $want, "a leader whose worker met $how");
}
$leader->quit;

# Waits that others end.
my $end = sub {
	my ($name, $how, $want, %o) = @_;
	my $session = LockHistory::session($node, $name);
	$session->run($o{first}) if $o{first};
	$session->send('SELECT * FROM t');
	LockHistory::wait_until_waiting($node, $session);
	$node->safe_psql('postgres', "SELECT $how(" . $session->pid . ')');
	$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = ' . $session->pid . ')');
	is(outcomes($name), $want, $name);
	return $session;
};
my $cancelled = $end->('cancelled', 'pg_cancel_backend', 'cancelled-');
$cancelled->quit;
$end->('cancelled with timeouts running', 'pg_cancel_backend', 'cancelled-', first => "SET statement_timeout = '60s'; SET lock_timeout = '60s'")->quit;
$end->('terminated', 'pg_terminate_backend', 'terminated-');

# One whose client is gone: that it ended the session is known without a look at the error, however long.
my $gone = LockHistory::session($node, 'client gone');
$gone->run("SET client_connection_check_interval = '50ms'");
$gone->send("DO 'BEGIN EXECUTE ''SELECT * FROM t --'' || repeat(''x'', 200000); END'");
LockHistory::wait_until_waiting($node, $gone);
$gone->{psql}{run}->signal('KILL');
$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = ' . $gone->pid . ')');
is(outcomes('client gone'), 'terminated-', 'client gone');

# The wait after a failed one, in the same transaction.
my $next = LockHistory::session($node, 'next');
$next->send("DO 'BEGIN PERFORM set_config(''lock_timeout'', ''150ms'', true); $give_up PERFORM set_config(''lock_timeout'', ''0'', true); LOCK TABLE t; END'");
LockHistory::wait_until_waiting($node, $next);
$node->poll_query_until('postgres', q{SELECT lock_history.flush() AND EXISTS (SELECT FROM lock_history.waits
	WHERE application_name = 'next' AND mode = 'AccessExclusiveLock' AND wait_end IS NULL)});
let_go();
$next->answer;
$next->quit;
is(outcomes('next'), 'lock_timeout- granted+', 'granted after a failure in the same statement');

# Without waiting there is no failed wait.
hold();
$node->psql('postgres', 'LOCK TABLE t IN ROW SHARE MODE NOWAIT') for 1 .. 20;
let_go();
$holder->run('BEGIN; SELECT 1 FROM hot WHERE id = 1 FOR UPDATE; SELECT pg_advisory_lock(5)');
$node->psql('postgres', q{SET application_name = 'nowait'; SELECT 1 FROM hot WHERE id = 1 FOR UPDATE NOWAIT}) for 1 .. 20;
$node->safe_psql('postgres', q{SET application_name = 'nowait'; SELECT pg_try_advisory_lock(5) FROM generate_series(1, 100); SELECT 1 FROM hot FOR UPDATE SKIP LOCKED});
$holder->run('ROLLBACK');
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'nowait' OR mode = 'RowShareLock' AND locktype = 'tuple'}), '0', 'NOWAIT, SKIP LOCKED and try functions: nothing');
is(unseen(), '0', '... in short_waits, too');

# A hot row: most sessions wait again at once, in another place of the queue.
my $script = PostgreSQL::Test::Utils::tempdir() . '/hot.sql';
append_to_file($script, "UPDATE hot SET v = v + 1 WHERE id = 1;\n");
my ($many, $granted, $all);
for (1 .. 15)
{
	# Few are seen in one run when the machine is busy.
	$node->command_ok([ 'pgbench', '-n', '-c', '8', '-j', '2', '-T', '4', '-f', $script, 'postgres' ], 'pgbench on one row');
	my $hot = LockHistory::history($node, q{SELECT count(*) > 50, count(*) FILTER (WHERE granted), count(*) FROM lock_history.waits WHERE query LIKE 'UPDATE hot%'});
	($many, $granted, $all) = split /\|/, $hot;
	last if $many eq 't';
}
is($many, 't', "there were many waits ($all)");
is($granted, $all, 'each of them is told to have been granted');
is(unseen(), '0', 'and none to have failed');

# Several failures in one sampling period; those that no sample meets are sums.
$node->append_conf('postgresql.conf', "pg_lock_history.sample_period = '1s'");
$node->reload;
$node->poll_query_until('postgres', q{SELECT value = '1s' FROM lock_history.status() WHERE key = 'sample_period'});
hold();
$node->psql('postgres', qq{SET application_name = 'fast'; SET lock_timeout = '30ms'; DO 'BEGIN $give_up $give_up $give_up $give_up $give_up END'});
my $met = LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'fast' AND outcome = 'lock_timeout'});
is($met + unseen(), 5, "five failures within one period, $met of them met by a sample");
is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'fast' AND granted IS NOT FALSE}), '0', 'none granted');
is($node->safe_psql('postgres', q{SELECT bool_and(total_ms BETWEEN 25 * waits AND 500 * waits) IS NOT FALSE FROM lock_history.short_waits WHERE failed > 0}), 't', 'with their lengths');

# More than the ring of a slot holds: what is lost is counted, nothing is invented.
my $before = unseen();
$node->psql('postgres', qq{SET application_name = 'faster'; SET lock_timeout = '2ms'; DO 'BEGIN FOR i IN 1 .. 40 LOOP $give_up END LOOP; END'});
# One that a sample met and whose record was lost is among the lost ones.
$met = LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'faster' AND outcome <> 'unknown'});
my $lost = $node->safe_psql('postgres', q{SELECT sum(rows_dropped) FROM lock_history.health});
is($met + unseen() - $before + $lost, 40, "forty failures within a period: $lost lost and counted");
cmp_ok($lost, '>', 20, 'the ring is short');
is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'faster' AND granted}), '0', 'none is told to have been granted');

# A slot that is taken over at once, by the next connection: the last one that was free is used first.
my $seen = sub {
	my ($name) = @_;
	return $node->poll_query_until('postgres', qq{SELECT lock_history.flush() AND EXISTS (SELECT FROM lock_history.waits WHERE application_name = '$name' AND wait_end IS NULL)});
};
for my $how ('terminated', 'granted')
{
	hold() if $how eq 'granted';
	my $session = LockHistory::session($node, "left $how");
	$session->send($how eq 'granted' ? "SELECT * FROM t;\n\\q" : 'SELECT * FROM t');
	LockHistory::wait_until_waiting($node, $session);
	$seen->("left $how");
	if ($how eq 'granted') { let_go(); }
	else { $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $session->pid . ', 5000)'); let_go(); }
	$node->safe_psql('postgres', 'SELECT 1') for 1 .. 3;
	is(outcomes("left $how"), $how eq 'granted' ? 'granted+' : 'terminated-', "$how, and the slot taken over");
}
$_->quit for $holder;
$node->stop;

# The end of the server, told to another one. A prepared transaction holds the
# lock: a session might release it before the waiter is told to end.
my $far = LockHistory::cluster('far');
my $near = LockHistory::cluster('near', extension => 0,
	settings => "max_prepared_transactions = 2\npg_lock_history.node_name = 'near'\npg_lock_history.conninfo = '" . ($far->connstr('postgres') =~ s/'/''/gr) . "'");
$far->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM lock_history.node_state WHERE node = 'near')});
my $last = LockHistory::session($near, 'last');
$last->run(q{BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'holder'});
$last->send('SELECT pg_advisory_lock(1)');
LockHistory::wait_until_waiting($near, $last);
$far->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM lock_history.waits WHERE node = 'near' AND wait_end IS NULL)});
$near->stop('fast');
is($far->safe_psql('postgres', q{SELECT outcome, granted FROM lock_history.waits WHERE node = 'near'}), 'server_stop|f', 'ended by the shutdown');
$far->stop;
done_testing();
