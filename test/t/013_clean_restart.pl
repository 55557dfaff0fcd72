# A clean restart loses nothing, also in the middle of a storm: what the
# sessions were seen to wait for before is in the history afterwards, once.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

# With a flush period longer than the storm, all of it is unwritten at the end.
my $node = LockHistory::cluster('clean_restart', settings => "pg_lock_history.flush_period = '1min'");
my $file = $node->data_dir . '/pgsql_tmp_pg_lock_history_spill';

# Twenty sessions fight over three locks, each held for a tenth of a second.
my $script = PostgreSQL::Test::Utils::tempdir() . '/storm.sql';
append_to_file($script, q{\set k random(1, 3)
SELECT pg_advisory_xact_lock(:k), pg_sleep(0.1);
});
my ($out, $err);
sub storm
{
	my ($seconds) = @_;
	($out, $err) = ('', '');
	return IPC::Run::start([ 'pgbench', '-n', '-c', 20, '-T', $seconds, '-f', $script, '-h', $node->host, '-p', $node->port, '-U', 'postgres', 'postgres' ],
		'>', \$out, '2>', \$err);
}

# watch_waits(also): what is seen to wait for five ticks, as pid and start in %noted,
# until "also" has set done; without it for a second, or longer when it is little.
# The server looks by itself: it is there more often than a test could be.
my %noted;
sub watch_waits
{
	my ($also) = @_;
	$also //= q{done := clock_timestamp() > began + interval '1 s' AND (SELECT count(*) FROM noted) > 20};
	my $session = LockHistory::session($node, 'noter');
	$session->run('CREATE TEMPORARY TABLE noted (pid integer, wait_start timestamptz, PRIMARY KEY (pid, wait_start))');
	$session->run(qq{DO \$\$ DECLARE began timestamptz := clock_timestamp(); done boolean := false; ended integer := 0; BEGIN
		WHILE NOT done LOOP
			INSERT INTO noted SELECT pid, waitstart FROM pg_locks
			WHERE NOT granted AND locktype = 'advisory' AND waitstart < clock_timestamp() - interval '50 ms' ON CONFLICT DO NOTHING;
			$also;
			PERFORM pg_sleep(0.02), pg_stat_clear_snapshot();
		END LOOP; END \$\$});
	$noted{$_} = 1 for split /\n/, $session->run(q{SELECT '(' || pid || ', ''' || wait_start || ''')' FROM noted});
	my $last = $session->run('SELECT clock_timestamp()');
	$session->quit;
	return $last;
}

sub check
{
	my ($how) = @_;
	LockHistory::flush($node);
	my $list = join ', ', sort keys %noted;
	my $n = keys %noted;
	cmp_ok($n, '>', 20, "$how: $n waits were noted");
	is($node->safe_psql('postgres', "SELECT count(w.wait_id), count(DISTINCT n) FROM (VALUES $list) AS n(pid, wait_start)
		LEFT JOIN lock_history.waits AS w ON w.pid = n.pid AND w.wait_start = n.wait_start::timestamptz"), "$n|$n", "$how: each of them is there once");
	is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT wait_id) FROM lock_history.waits'), 0, "$how: no wait is there twice");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.waits AS w WHERE cardinality(w.hard_blockers) = 0 AND w.duration > interval '50 ms'}), 0, "$how: with their blockers");
	is($node->safe_psql('postgres', "SELECT coalesce(sum(rows_dropped), 0) FROM lock_history.health"), 0, "$how: nothing was dropped");
	is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.gaps WHERE reason NOT IN ('stopped', 'late')"), 0, "$how: no other gap");
	return;
}

# The gap before the life that goes on now.
my $gap = q{SELECT g.began = r.heartbeat, g.began > '%s'::timestamptz, g.detail IS NULL
	FROM lock_history.gaps AS g, LATERAL (SELECT x.heartbeat FROM lock_history.run AS x ORDER BY x.run DESC OFFSET 1 LIMIT 1) AS r
	WHERE g.reason = 'stopped' ORDER BY g.began DESC LIMIT 1};

sub file_is_gone { return LockHistory::until_true(sub { !-e $file }, 'the spill file is gone'); }

for my $how (qw(fast smart))
{
	%noted = ();
	my $pgbench = storm($how eq 'fast' ? 600 : 5);
	watch_waits();
	LockHistory::flush($node);
	my $last = watch_waits();
	$node->stop($how);
	$pgbench->finish;
	my @stat = stat $file;
	ok(@stat, "$how: there is a spill file");
	is(sprintf('%04o', $stat[2] & 07777), '0600', "$how: it is for its owner alone");
	cmp_ok($stat[7], '>', 1000, "$how: and holds something ($stat[7] bytes)");
	ok(!glob("$file.*"), "$how: nothing half-written is left");

	$node->start;
	LockHistory::wait_until_recording($node);
	file_is_gone();
	check($how);
	is($node->safe_psql('postgres', sprintf $gap, $last), 't|t|t', "$how: the gap begins where the life before ended");
}

# The worker alone, while the storm goes on: waits that span the restart are one.
%noted = ();
my $pgbench = storm(600);
watch_waits();
my $worker = LockHistory::worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
LockHistory::next_worker_pid($node, $worker);
LockHistory::wait_until_recording($node);
file_is_gone();
watch_waits();
check('the worker alone');

# A wait that begins before the end and outlasts it by far.
my $holder = LockHistory::session($node, 'holder');
my $waiter = LockHistory::session($node, 'waiter');
$holder->run('SELECT pg_advisory_lock(99)');
$waiter->send('SELECT pg_advisory_lock(99)');
LockHistory::wait_until_waiting($node, $waiter);
$worker = LockHistory::worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
LockHistory::next_worker_pid($node, $worker);
LockHistory::wait_until_recording($node);
LockHistory::flush($node);
$holder->run('SELECT pg_advisory_unlock(99)');
$waiter->answer;
is(LockHistory::history($node, q{SELECT count(*), bool_and(granted), count(DISTINCT hard_blockers) FROM lock_history.waits WHERE application_name = 'waiter'}),
	'1|t|1', 'a wait that spans the restart of the worker is one');
$_->quit for $holder, $waiter;

# The writer's session is ended a hundred times in a row.
%noted = ();
$node->append_conf('postgresql.conf', "pg_lock_history.flush_period = '100ms'");
$node->reload;
# Each of them has had time to connect: it is its work that is interrupted.
# In pieces, since a query of a test may take only so long.
watch_waits(q{ended := ended + (SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE application_name = 'pg_lock_history writer' AND backend_start < clock_timestamp() - interval '50 ms'); done := ended >= 10}) for 1 .. 10;
check('a hundred sessions ended');

# The storm goes on while the writer's server process is killed in the middle
# of its transaction, which is a crash of the whole server.
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
my ($count, $known) = split /\|/, $node->safe_psql('postgres',
	q{SELECT count(*), string_agg(wait_id::text, ',') FROM lock_history.waits WHERE wait_end IS NOT NULL});
my $locker = LockHistory::session($node, 'locker');
$locker->run('BEGIN; LOCK TABLE lock_history.episode IN SHARE MODE');
my $writer = q{FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND wait_event_type = 'Lock' AND query LIKE 'LOCK TABLE %'};
$node->poll_query_until('postgres', "SELECT count(*) = 1 $writer") or die 'the writer never waited in its transaction';
my $victim = $node->safe_psql('postgres', "SELECT pid $writer");
is(kill('KILL', $victim), 1, 'the server process of the writer is killed in its transaction');
$pgbench->finish;
LockHistory::until_true(sub { my ($code) = $node->psql('postgres', 'SELECT 1'); $code == 0 }, 'the server has recovered');
LockHistory::wait_until_recording($node);
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT wait_id) FROM lock_history.waits WHERE wait_id IN ($known)"), "$count|$count",
	'every wait that was written is there once');
$holder = LockHistory::session($node, 'holder');
$waiter = LockHistory::session($node, 'after');
$holder->run('SELECT pg_advisory_lock(99)');
$waiter->send('SELECT pg_advisory_lock(99)');
LockHistory::wait_until_waiting($node, $waiter);
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'after'}), 1, 'and recording goes on');

$_->quit for $holder, $waiter;
$node->stop;
done_testing();
