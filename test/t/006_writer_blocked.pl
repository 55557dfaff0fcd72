# Somebody locks the history tables for 20 seconds, which is the very moment
# at which samples matter. Sampling goes on, and all is there afterwards.
# Time itself is what this test is about, so it waits for the clock.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;
use Time::HiRes qw(time);

my $seconds = 20;
my $node = LockHistory::cluster('writer_blocked', settings => "pg_lock_history.min_duration = '100ms'");

my $locker = LockHistory::session($node, 'locker');
$locker->run(q{BEGIN; DO $$ DECLARE t regclass; BEGIN
	FOR t IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind IN ('r', 'p') LOOP
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', t);
	END LOOP; END $$});
is($locker->errors, '', 'history tables are locked');

# Waits of 250 ms, one after the other, the whole time; the server's own
# waitstart is noted for each of them.
my $holder = LockHistory::session($node, 'holder');
my $waiter = LockHistory::session($node, 'waiter');
my $ticks = "SELECT extract(epoch FROM clock_timestamp() - value::timestamptz) * 1000 FROM lock_history.worker_status() WHERE key = 'last_tick'";
my (%noted, @age);
my $until = time + $seconds;
while (time < $until)
{
	$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	$waiter->send('SELECT pg_advisory_xact_lock(1)');
	LockHistory::wait_until_waiting($node, $waiter);
	$noted{ $node->safe_psql('postgres', 'SELECT waitstart FROM pg_locks WHERE NOT granted AND locktype = \'advisory\'') } = 1;
	push @age, $node->safe_psql('postgres', $ticks);
	$holder->run('SELECT pg_sleep(0.25); COMMIT');
	$waiter->answer;
}
@age = sort { $a <=> $b } @age;
cmp_ok($age[ @age / 2 ], '<', 500, 'the worker went on ticking');
is($node->safe_psql('postgres', "SELECT lock_history.flush('100 ms')"), 'f', 'nothing could be written meanwhile');

$locker->run('COMMIT');
LockHistory::flush($node);
my $starts = join ', ', map { "timestamptz '$_'" } sort keys %noted;
cmp_ok(scalar keys %noted, '>', $seconds, 'waits took place meanwhile');
# 'unknown' where the waiter waits again before the next tick looks at it.
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.waits WHERE wait_start IN ($starts) AND application_name = 'waiter' AND outcome <> 'failed' AND duration > interval '200 ms'"),
	scalar keys %noted, 'each of them is there afterwards');
is($node->safe_psql('postgres', "SELECT coalesce(sum(rows_dropped), 0) FROM lock_history.health"), '0', 'nothing was dropped');
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.gaps WHERE reason NOT IN ('stopped')"), '0', 'no gap: sampling never stopped');

# 10 ms is 6 000 ticks a minute; the machine may take some away, the locked
# tables may not.
is($node->safe_psql('postgres', q{SELECT sum(ticks_done)::float8 / sum(ticks_due) > 0.9, min(period_ms) = 10 FROM lock_history.health}), 't|t', 'the rate was held');

$_->quit for $locker, $holder, $waiter;
$node->stop;
done_testing();
