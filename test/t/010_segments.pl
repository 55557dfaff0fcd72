# A ring so small that it goes round while a wait is open: the wait is still
# there, and the history stays within its bound.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('segments', settings => q{
pg_lock_history.retention = '14s'
pg_lock_history.max_size = '8MB'
pg_lock_history.flush_period = '100ms'
});

my $holder = LockHistory::session($node, 'holder');
my $waiter = LockHistory::session($node, 'long_wait');
$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
$waiter->send('SELECT pg_advisory_xact_lock(1)');
LockHistory::wait_until_waiting($node, $waiter);
my $start = $node->safe_psql('postgres', 'SELECT waitstart FROM pg_locks WHERE NOT granted');
LockHistory::flush($node);

# Segments of 2 s: time alone moves the ring as long as there is something to
# write, and the open wait is that.
my $opened = 'SELECT sum(round) FROM lock_history.ring';
my $first = $node->safe_psql('postgres', $opened);
$node->poll_query_until('postgres', "SELECT sum(round) >= $first + 9 FROM lock_history.ring") or die 'the ring stands still';
pass('the ring went round once');
is(LockHistory::history($node, q{SELECT count(*), bool_and(wait_end IS NULL) FROM lock_history.waits WHERE application_name = 'long_wait'}), '1|t', 'the open wait is still there, once');
is($node->safe_psql('postgres', "SELECT wait_start = '$start', hard_blocker_count FROM lock_history.waits WHERE application_name = 'long_wait'"), 't|1', '... with its start and its blocker');
is($node->safe_psql('postgres', q{SELECT blocker_application_name FROM lock_history.blocking WHERE kind = 'hard' AND wait_id = (SELECT wait_id FROM lock_history.waits WHERE application_name = 'long_wait') LIMIT 1}), 'holder', '... who is still described');

$holder->run('COMMIT');
$waiter->answer;
is(LockHistory::history($node, q{SELECT count(*), min(outcome) FROM lock_history.waits WHERE application_name = 'long_wait'}), '1|granted', 'and ends as one row');

# It is thrown away once it is older than the retention.
my $ended = $node->safe_psql('postgres', $opened);
my $other = LockHistory::session($node, 'second_wait');
$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
$other->send('SELECT pg_advisory_xact_lock(1)');
LockHistory::wait_until_waiting($node, $other);
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM lock_history.waits WHERE application_name = 'long_wait'") or die 'never thrown away';
pass('history older than the retention is thrown away');

# The bound: max_size and one segment, whatever is written meanwhile.
is($node->safe_psql('postgres', q{SELECT sum(pg_total_relation_size(c.oid)) < 9 * 1024 * 1024 FROM pg_class AS c
	WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r'}), 't', 'the size bound holds');

# A reader that keeps a segment is never waited for: writing goes on.
my $reader = LockHistory::session($node, 'reader');
$reader->run('BEGIN; LOCK TABLE lock_history.episode IN ACCESS SHARE MODE');
my $batch = $node->safe_psql('postgres', 'SELECT max(batch) FROM lock_history.run WHERE heartbeat = (SELECT max(heartbeat) FROM lock_history.run)');
$node->poll_query_until('postgres', "SELECT max(batch) > $batch + 50 FROM lock_history.run") or die 'the writer waits for a reader';
pass('a reader that keeps all segments does not stop the writer');
$reader->run('COMMIT');

$holder->run('COMMIT');
$other->answer;
$_->quit for $holder, $waiter, $other, $reader;
$node->stop;
done_testing();
