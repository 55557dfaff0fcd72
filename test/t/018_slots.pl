# All client slots taken: what is reserved is for the DBA who comes to see to
# it, not for the observer. Sampling goes on, and nothing is lost.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('slots', settings => q{
max_connections = 10
superuser_reserved_connections = 3
max_wal_senders = 0
});
$node->safe_psql('postgres', 'CREATE ROLE shop LOGIN');

# Seven slots are for all. The writer has one of them; the names' session comes
# and goes, but not while it has nothing to look up.
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pg_lock_history names'}) or die 'the session for names stays';
my @shop = map { LockHistory::session($node, "shop$_", user => 'shop') } 1 .. 6;
my $dba = LockHistory::session($node, 'dba');    # the eighth of ten
my $status = sub { return $dba->run("SELECT value FROM lock_history.status() WHERE key = '$_[0]'"); };
my $offset = LockHistory::log_end($node);
my $writer = $dba->run(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'});
$dba->run("SELECT pg_terminate_backend($writer, 10000)");

# Facts to write. Three slots are free now, all reserved.
sub wait_once
{
	$shop[0]->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	$shop[1]->send('SELECT pg_advisory_xact_lock(1)');
	LockHistory::until_true(sub { $dba->run("SELECT count(*) FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL") eq '1' }, 'it waits');
	my $since = $dba->run('SELECT waitstart FROM pg_locks WHERE NOT granted');
	$shop[0]->run('SELECT pg_sleep(0.05); COMMIT');
	$shop[1]->answer;
	return $since;
}
my @since = (wait_once());
LockHistory::until_true(sub { $status->('state') eq 'no free client slot' }, 'it says that no slot is free');
like($status->('last_error'), qr/no client slot is free beyond those reserved/, 'status() says what is missing');
like($status->('hint'), qr/max_connections/, '... and what to do');
my $errors = $status->('errors');
LockHistory::until_true(sub { $status->('errors') > $errors + 2 }, 'it has tried again');
is($dba->run(q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %'}), '0', 'it does not take a reserved slot');
my @told = LockHistory::log_since($node, $offset) =~ /pg_lock_history: no client slot is free/g;
is(scalar @told, 1, 'the log has it once');
unlike(LockHistory::log_since($node, $offset), qr/remaining connection slots are reserved|too many clients/, 'it did not try without being told that it may');

# The DBA gets in, ordinary sessions get the last free one but those.
my @dbas = map { LockHistory::session($node, "dba$_") } 1 .. 3;
is($dbas[2]->run('SELECT 1'), '1', 'a superuser can use every reserved slot');
$_->quit for @dbas;

my $tick = $status->('last_tick');
LockHistory::until_true(sub { $dba->run("SELECT '" . $status->('last_tick') . "'::timestamptz > '$tick'::timestamptz + interval '0.5 s'") eq 't' }, 'sampling goes on');
push @since, wait_once();

# One slot is free: it connects by itself.
pop(@shop)->quit;
LockHistory::until_true(sub { $status->('state') eq 'recording' }, 'it records again');
is($status->('last_error'), '', 'the error is gone');
is($dba->run("SELECT lock_history.flush('30 s')"), 't', 'everything can be read');
my $starts = join ', ', map { "timestamptz '$_'" } @since;
is($dba->run("SELECT count(*) FROM lock_history.waits WHERE wait_start IN ($starts)"), scalar @since, 'nothing is lost');
is($dba->run('SELECT coalesce(sum(rows_dropped), 0) FROM lock_history.health'), '0', '... and nothing was dropped');
like(LockHistory::log_since($node, $offset), qr/over, after \d+ more times: no client slot is free/, 'the log has the end, with a count');

$_->quit for @shop, $dba;
$node->stop;
done_testing();
