# From nothing to recording and back: without the preload, without the
# extension, with both, dropped, made again.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

# Creating the extension without the preload.
my $bare = LockHistory::cluster('bare', preload => 0, extension => 0, start => 0);
$bare->adjust_conf('postgresql.conf', 'pg_lock_history.min_duration', undef);
$bare->start;
my ($rc, $stdout, $stderr) = $bare->psql('postgres', 'CREATE EXTENSION pg_lock_history');
is($rc, 0, 'CREATE EXTENSION works without the preload');
like($stderr, qr/WARNING:.*pg_lock_history/, '... and warns');
like($stderr, qr/shared_preload_libraries/, '... and says what to do');
is(LockHistory::status($bare, 'state'), 'not preloaded', 'status() says so');
like(LockHistory::status($bare, 'hint'), qr/shared_preload_libraries/, '... and what to do');
($rc, $stdout, $stderr) = $bare->psql('postgres', 'SELECT lock_history.flush()');
isnt($rc, 0, 'flush() fails without the preload');
like($stderr, qr/shared_preload_libraries/, '... and says what to do');
is($bare->safe_psql('postgres', 'SELECT count(*) FROM lock_history.waits'), '0', 'views can be read');
$bare->stop;

# Preloaded, not created yet: quiet, and at work soon after it is.
my $node = LockHistory::cluster('lifecycle', extension => 0, settings => 'max_prepared_transactions = 2');
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_lock_history'")
  or die 'no worker';
my $worker = LockHistory::worker_pid($node);
unlike(LockHistory::log_since($node), qr/WARNING|ERROR|FATAL/, 'a worker without the extension is quiet');

sub play
{
	my ($name) = @_;
	my $holder = LockHistory::session($node, "holder_$name");
	my $waiter = LockHistory::session($node, "waiter_$name");
	$holder->run('BEGIN; SELECT pg_advisory_xact_lock(7)');
	$waiter->send('SELECT pg_advisory_xact_lock(7)');
	LockHistory::wait_until_waiting($node, $waiter);
	my $seen = LockHistory::history($node,
		"SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter_$name'");
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	return $seen;
}

$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
my $took = LockHistory::seconds(sub { LockHistory::wait_until_recording($node) });
cmp_ok($took, '<', 2, 'recording begins within 2 seconds of CREATE EXTENSION');
is(play('first'), '1', 'a wait is recorded');
is(LockHistory::worker_pid($node), $worker, 'by the same worker, without a restart');

($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT backend_type FROM pg_stat_activity WHERE application_name = \'pg_lock_history writer\'');
is($stdout, 'client backend', 'the writer is an ordinary session');

# What was not written yet when the extension went belongs to nobody.
LockHistory::flush($node);
$node->safe_psql('postgres', 'DROP EXTENSION pg_lock_history');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_history'"), '0', 'DROP EXTENSION takes everything along');

$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
LockHistory::wait_until_recording($node);
is(play('second'), '1', 'recorded again after DROP and CREATE');
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter_first'"), '0', 'the dropped history stays dropped');
is(LockHistory::worker_pid($node), $worker, 'the worker is still the same');

# A schema of that name made by somebody else is not used.
$node->safe_psql('template1', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE SCHEMA lock_history');
($rc, $stdout, $stderr) = $node->psql('other', 'CREATE EXTENSION pg_lock_history');
isnt($rc, 0, 'CREATE EXTENSION refuses a schema that exists');
$node->safe_psql('other', 'DROP SCHEMA lock_history');
($rc, $stdout, $stderr) = $node->psql('other', 'CREATE EXTENSION pg_lock_history');
like($stderr, qr/WARNING:  the history is recorded in database "postgres"/, 'a database that is not recorded to is warned about');
like($stderr, qr/pg_lock_history\.database/, '... with the setting that says which');

$node->stop;
done_testing();
