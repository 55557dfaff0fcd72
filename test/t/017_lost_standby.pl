# A synchronous standby that is gone keeps every COMMIT waiting, but not the
# history's: that is when a DBA will want to know who waited.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('lost_standby', init => [ allows_streaming => 1 ], settings => 'max_connections = 20');
$node->safe_psql('postgres', 'CREATE TABLE t (i int)');
$node->safe_psql('postgres', $_) for q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'}, 'SELECT pg_reload_conf()';
$node->poll_query_until('postgres', q{SELECT setting = 'nobody' FROM pg_settings WHERE name = 'synchronous_standby_names'}) or die 'not reloaded';

# A COMMIT that hangs, with a lock held: PostgreSQL releases it only afterwards.
my ($committer, $waiter) = map { LockHistory::session($node, $_) } 'committer', 'waiter';
$committer->send('BEGIN; LOCK TABLE t; INSERT INTO t VALUES (1); COMMIT');
$node->poll_query_until('postgres', q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE application_name = 'committer'}) or die 'COMMIT did not wait';
$waiter->send('SELECT count(*) FROM t');
LockHistory::wait_until_waiting($node, $waiter);

is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter' AND wait_end IS NULL}), '1', 'the wait behind it is in the history');
is($node->safe_psql('postgres', q{SELECT blocker_application_name, blocker_query FROM lock_history.blocking WHERE pid = } . $waiter->pid), 'committer|COMMIT;', '... and who is in its way');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %' AND wait_event = 'SyncRep'}), '0', 'the writer waits for no standby');

# A later life of the worker, that is node, run and gap, as well.
my $old = LockHistory::worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
LockHistory::next_worker_pid($node, $old);
LockHistory::wait_until_recording($node);
is(LockHistory::history($node, 'SELECT count(*) FROM lock_history.run'), '2', 'a new life of the worker is entered, too');

$node->safe_psql('postgres', $_) for q{ALTER SYSTEM RESET synchronous_standby_names}, 'SELECT pg_reload_conf()';
$_->answer for $committer, $waiter;
is(LockHistory::history($node, q{SELECT string_agg(outcome, ',') FROM lock_history.waits WHERE application_name = 'waiter'}), 'granted', 'it ends as one wait');
is($node->safe_psql('postgres', q{SELECT coalesce(sum(rows_dropped), 0) FROM lock_history.health}), '0', 'nothing was dropped');
$_->quit for $committer, $waiter;
$node->stop;
done_testing();
