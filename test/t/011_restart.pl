# A restart of a server on which nothing happened is a gap of the restart's own
# length, not of all the time since the last heartbeat; after a crash nobody
# knows better, and the gap says so.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('restart');

# Time is the subject: the heartbeat has to be old. Whoever looks is a session that
# does something, and makes a new one; so the time passes without a look.
sub idle_for_some_seconds
{
	my $old = q{SELECT s.value::timestamptz - max(r.heartbeat) > interval '2 s'
		FROM lock_history.status() AS s, lock_history.run AS r WHERE s.key = 'last_flush' GROUP BY s.value};
	LockHistory::flush($node);
	LockHistory::until_true(sub {
		my $until = time + 5;
		LockHistory::until_true(sub { time > $until }, 'five seconds have passed');
		return $node->safe_psql('postgres', $old) eq 't';
	}, 'the history is complete for longer than the last heartbeat says');
	return LockHistory::status($node, 'last_flush');
}
my $last_gap = q{SELECT began >= '%s'::timestamptz, coalesce(detail, '-') LIKE 'from the last heartbeat%%'
	FROM lock_history.gaps WHERE reason = 'stopped' ORDER BY began DESC LIMIT 1};

for my $how (qw(fast smart))
{
	my $complete = idle_for_some_seconds();
	$node->stop($how);
	ok(!glob($node->data_dir . '/pgsql_tmp_pg_lock_history*.new'), "$how: nothing half-written is left");
	$node->start;
	LockHistory::wait_until_recording($node);
	is($node->safe_psql('postgres', sprintf $last_gap, $complete), 't|f', "$how: the gap is the restart");
}

# The worker alone: the server knows.
my $complete = idle_for_some_seconds();
my $worker = LockHistory::worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
LockHistory::next_worker_pid($node, $worker);
LockHistory::wait_until_recording($node);
is($node->safe_psql('postgres', sprintf $last_gap, $complete), 't|f', 'the worker alone: the gap is its absence');

$complete = idle_for_some_seconds();
$node->stop('immediate');
$node->start;
LockHistory::wait_until_recording($node);
is($node->safe_psql('postgres', sprintf $last_gap, $complete), 'f|t', 'after a crash the gap begins with the last heartbeat, and says so');

$node->stop;
done_testing();
