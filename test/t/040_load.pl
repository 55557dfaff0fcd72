# Load: who is active counts, whatever the rate; who is idle does not, nor does
# the observer itself; what was not sampled is null, not 0.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('load', init => [ auth_extra => [ '--create-role', 'alice' ], allows_streaming => 'logical' ], settings => "shared_preload_libraries = 'pg_lock_history, pg_prewarm'\nmax_connections = 50\nautovacuum = off\npg_lock_history.flush_period = '200ms'");
$node->safe_psql('postgres', 'CREATE TABLE public.t (i int)');
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('s', 'test_decoding')}); # waits for all transactions

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Returns when $n full seconds from now on are in the history: their begin and end.
sub seconds_of
{
	my ($n) = @_;
	my $from = sql(q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
	my $to = sql("SELECT timestamptz '$from' + interval '$n s'");
	$node->poll_query_until('postgres', "SELECT value::timestamptz > timestamptz '$to' + interval '300 ms' FROM lock_history.status() WHERE key = 'last_flush'")
	  or die "history is never complete up to $to";
	return ($from, $to);
}

sub set_option
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = $value");
	$node->reload;
	return;
}

# One holds a lock and does nothing, one waits for it, one computes, one sleeps,
# one loads from a client that sends nothing, three are idle.
my %s = map { $_ => LockHistory::session($node, $_) } qw(holder waiter computer sleeper copier idle1 idle2 idle3);
$s{holder}->run('BEGIN; LOCK TABLE t');
$s{waiter}->send('SELECT count(*) FROM t');
LockHistory::wait_until_waiting($node, $s{waiter});
$s{computer}->send('DO $$ DECLARE n bigint := 0; BEGIN LOOP n := n + 1; END LOOP; END $$');
$s{sleeper}->send('SELECT pg_sleep(600)');
$s{idle1}->run('SELECT 1');
sql('CREATE TABLE public.c (i int)');
$s{copier}->send('BEGIN; COPY c FROM STDIN');
$node->poll_query_until('postgres', q{SELECT count(*) = 4 FROM pg_stat_activity
	WHERE state = 'active' AND application_name IN ('waiter', 'computer', 'sleeper', 'copier') AND (wait_event IS NOT NULL OR application_name = 'computer')})
  or die 'never all active';

my ($from, $to) = seconds_of(4);
is(sql(qq{
	SELECT wait_event_type, wait_event, round(sum(aas) / 4, 1) FROM (
		SELECT wait_event_type, wait_event, aas::numeric FROM lock_history.load
		WHERE at >= '$from' AND at < '$to' AND backend_type = 'client backend'
		-- a look by psql at the state of things takes a few ms
		AND (wait_event <> 'CPU' OR query_id = (SELECT a.query_id FROM pg_stat_activity AS a WHERE a.application_name = 'computer'))) AS l
	GROUP BY 1, 2 HAVING sum(aas) > 2 ORDER BY 1, 2}),
	"CPU|CPU|1.0\nClient|ClientRead|1.0\nLock|relation|1.0\nTimeout|PgSleep|1.0", 'each of the active ones counts as one');
is(sql(qq{
	SELECT count(*) FROM lock_history.load AS l JOIN pg_stat_activity AS a ON a.query_id = l.query_id
	WHERE l.at >= '$from' AND l.at < '$to' AND (a.application_name, l.wait_event) = ('sleeper', 'PgSleep')
	  AND l.datname = 'postgres' AND l.usename = current_user AND l.backend_type = 'client backend'}),
	'4', '... with its statement, database and role');
is(sql(qq{SELECT DISTINCT wait_event_type FROM lock_history.load WHERE wait_event_type = 'Activity'}), '', 'the main loops of the server are no load');
# Some ms of a process are its own: it is woken now and then, and a busy machine makes them longer.
is(sql(qq{
	SELECT count(*), bool_and(total BETWEEN 7.9 AND 10), bool_and(active BETWEEN 3.9 AND 5.5), bool_and(idle_in_transaction BETWEEN 0.8 AND 1.3), bool_and(waiting BETWEEN 0.8 AND 1.3)
	FROM lock_history.sessions WHERE at >= '$from' AND at < '$to'}), '4|t|t|t|t', 'sessions beside it')
	or diag sql(qq{SELECT * FROM lock_history.sessions WHERE at >= '$from' AND at < '$to'});
is(sql(qq{
	SELECT b.n, round(b.aas::numeric, 1) FROM (
		SELECT count(DISTINCT at) AS n, sum(aas) / 4 AS aas FROM lock_history.load_by('$from', '$to', '1 s') WHERE wait_event_type = 'Lock') AS b}),
	'4|1.0', 'load_by() adds up');

# The same out of shared memory, in any database; the statements of others are masked.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'SET client_min_messages = error; CREATE EXTENSION pg_lock_history; CREATE ROLE alice LOGIN');
$node->safe_psql('other', "SELECT lock_history.grant_reader('alice')");
my $recent = qq{SELECT string_agg(concat_ws(' ', l.at, l.wait_event, l.query_id, l.datname, l.usename, l.backend_type, round(l.aas::numeric, 1)), ', ' ORDER BY l.at, l.wait_event)
	FROM %s AS l WHERE l.at >= '$from' AND l.at < '$to' AND l.wait_event IN ('PgSleep', 'relation', 'ClientRead')};
is($node->safe_psql('other', sprintf($recent, 'lock_history.recent_load()')), sql(sprintf($recent, 'lock_history.load')), 'recent_load() shows the same in another database');
my (undef, $seen) = $node->psql('other', q{SELECT count(*) > 0, count(query_id) FROM lock_history.recent_load() WHERE wait_event = 'PgSleep'}, extra_params => [ '-U', 'alice' ]);
is($seen, 't|0', '... without the statements of others for a reader');

# A COPY that ends between two samples leaves its session waiting for the same
# client in the same transaction; and a walsender that has sent everything does nothing.
$s{copier}->{psql}->query_until(qr/^copied$/m, "\\.\n\\echo copied\n");
$node->poll_query_until('postgres', q{SELECT state = 'idle in transaction' FROM pg_stat_activity WHERE application_name = 'copier'}) or die 'still copies';
my $walsender = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '-S', 's', '--start', '-f', '/dev/null', '--no-loop' ]);
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event ~ 'WalSenderWait'}) or die 'no walsender';
($from, $to) = seconds_of(2);
is(sql(qq{SELECT count(*) FROM lock_history.load WHERE at >= '$from' AND at < '$to' AND (wait_event IN ('ClientRead') OR wait_event ~ 'WalSender') AND aas > 0.3}), '0', 'a COPY that has ended is no load, nor a walsender without work');
is(sql(qq{SELECT round(min(idle_in_transaction)::numeric, 1) FROM lock_history.sessions WHERE at >= '$from' AND at < '$to'}), '2.0', '... but a session idle in transaction');
$walsender->kill_kill;
$s{copier}->run('COMMIT');

# A failed transaction holds nothing, and its session is idle.
my $failed = LockHistory::session($node, 'failed');
$failed->send('BEGIN; SELECT 1/0');
$node->poll_query_until('postgres', q{SELECT state = 'idle in transaction (aborted)' FROM pg_stat_activity WHERE application_name = 'failed'}) or die 'has not failed';
($from, $to) = seconds_of(1);
is(sql(qq{SELECT round(max(idle_in_transaction)::numeric, 1) FROM lock_history.sessions WHERE at >= '$from' AND at < '$to'}), '1.0', 'a failed transaction is not idle in transaction');
$failed->quit;

# Load alone, waits alone.
set_option('pg_lock_history.track_locks', 'off');
LockHistory::wait_until_status($node, 'state', 'disabled');
($from, $to) = seconds_of(1);
cmp_ok(sql(qq{SELECT sum(aas) FROM lock_history.load WHERE at >= '$from' AND at < '$to' AND wait_event_type = 'Lock'}), '>', 0.9, 'load is sampled while waits are not');
my ($holder2, $waiter2) = map { LockHistory::session($node, $_) } qw(holder2 waiter2);
$holder2->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
$waiter2->send('SELECT pg_advisory_xact_lock(1)');
LockHistory::wait_until_waiting($node, $waiter2);
$holder2->run('COMMIT');
$waiter2->answer;
set_option('pg_lock_history.track_locks', 'on');
set_option('pg_lock_history.track_load', 'off');
LockHistory::wait_until_status($node, 'state', 'recording');
$holder2->run('BEGIN; SELECT pg_advisory_xact_lock(2)');
$waiter2->send('SELECT pg_advisory_xact_lock(2)');
LockHistory::wait_until_waiting($node, $waiter2);
$holder2->run('COMMIT');
$waiter2->answer;
LockHistory::flush($node);
is(sql(q{SELECT string_agg(objid || ' ' || outcome, ',') FROM lock_history.waits WHERE application_name = 'waiter2'}), '2 granted', 'and waits while load is not');
# One always sleeps, so no rows means that none are made.
$node->poll_query_until('postgres', q{SELECT max(at) < clock_timestamp() - interval '3 s' FROM lock_history.second}) or die 'load is still sampled';
$from = sql(q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
$to = sql("SELECT timestamptz '$from' + interval '1 s'");
$node->poll_query_until('postgres', "SELECT clock_timestamp() > timestamptz '$to' + interval '100 ms'") or die 'the clock stands';
set_option('pg_lock_history.track_load', 'on');
$node->poll_query_until('postgres', qq{SELECT max(at) > '$to' FROM lock_history.second}) or die 'load is not sampled again';
is(sql(q{SELECT string_agg(DISTINCT reason || ':' || part || ':' || detail, ', ') FROM lock_history.gaps WHERE part IS NOT NULL}),
	'disabled:load:pg_lock_history.track_load was off, disabled:waits:pg_lock_history.track_locks was off', 'each is a gap of its part');
is(sql(qq{SELECT wait_event, aas FROM lock_history.load_by('$from', '$to', '1 s')}), '|', 'load that was not sampled is null')
	or diag sql(qq{SELECT * FROM lock_history.second WHERE at > timestamptz '$from' - interval '5 s'});

# A stop loses no second, not even the one it comes in.
my $stop = sql('SELECT clock_timestamp()');
$node->stop('fast');
$node->start;
LockHistory::wait_until_recording($node);
LockHistory::flush($node);
is(sql(qq{SELECT count(*) > 0 FROM lock_history.load WHERE at >= timestamptz '$stop' - interval '1 s' AND wait_event = 'PgSleep' AND at < (SELECT max(started_at) FROM lock_history.life)}),
	't', 'the second of the stop is there');
is(sql(q{SELECT count(*) FROM (SELECT at FROM lock_history.second GROUP BY at HAVING sum(sampled_ms) > 1500) AS d}), '0', 'and none is there twice');

# Nobody is active: nothing is written, though sessions are there. Whoever looked
# would be seen, so the time passes without a look.
my $idle = LockHistory::session($node, 'idle');
my $rows;
sub is_quiet
{
	my $began = sql('SELECT clock_timestamp()');
	my $until = time + 4;
	LockHistory::until_true(sub { time > $until }, 'four seconds have passed');
	$rows = sql(qq{SELECT count(*) FROM lock_history.second WHERE at > timestamptz '$began' + interval '1 s' AND at < timestamptz '$began' + interval '3 s'});
	return $rows == 0;
}
ok(is_quiet() || is_quiet() || is_quiet(), 'an idle server writes no seconds') or diag("$rows rows in 2 s: " . sql(q{SELECT string_agg(concat_ws(' ', at, backend_type, wait_event_type, wait_event, aas), ', ') FROM (SELECT * FROM lock_history.load ORDER BY at DESC LIMIT 30) AS l}));

$node->stop;
done_testing();
