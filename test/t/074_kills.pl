# A session is killed, which restarts the server under the worker; no slot is
# left for the worker at all.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('kills', settings => 'restart_after_crash = on');

# kill -9 of a session that holds a lock, in the middle of a wait that the
# history has as open.
my ($holder, $waiter) = map { LockHistory::session($node, $_) } 'holder', 'waiter';
$holder->run('SELECT pg_advisory_lock(1)');
$waiter->send('SELECT pg_advisory_lock(1)');
LockHistory::wait_until_waiting($node, $waiter);
my $open = q{SELECT wait_end IS NULL, outcome, hard_blockers[1] = %d FROM lock_history.waits WHERE application_name = 'waiter'};
is(LockHistory::history($node, sprintf $open, $holder->pid), 't||t', 'a wait goes on');
my $worker = LockHistory::worker_pid($node);
my $offset = LockHistory::log_end($node);
my $killed_at = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
is(kill('KILL', $holder->pid), 1, 'the session in its way is killed');
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
LockHistory::until_true(sub { my ($code) = $node->psql('postgres', 'SELECT 1'); $code == 0 }, 'the server has recovered');
LockHistory::wait_until_recording($node);
isnt(LockHistory::worker_pid($node), $worker, 'the worker is back, without a hand');
is(LockHistory::history($node, sprintf $open, $holder->pid), 'f|unknown|t', 'how the wait ended is not known');
is($node->safe_psql('postgres', "SELECT wait_end <= '$killed_at'::timestamptz + interval '10 ms' FROM lock_history.waits WHERE application_name = 'waiter'"),
	't', '... and it ends when it was last seen');
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.gaps WHERE reason = 'stopped' AND began <= '$killed_at'::timestamptz AND ended > '$killed_at'::timestamptz"),
	'1', 'the time from then on is a gap');
is($node->safe_psql('postgres', "SELECT g.detail, lock_history.sampled_ms(g.node, date_trunc('second', g.began), g.ended) FROM lock_history.gaps AS g WHERE g.reason = 'stopped'"),
	'from the last heartbeat on; a server where nobody waits writes one every 15 minutes|0', '... for load from the second on that was not complete');
eval { $_->quit } for $holder, $waiter;
($holder, $waiter) = map { LockHistory::session($node, $_) } 'holder', 'after';
$holder->run('SELECT pg_advisory_lock(1)');
$waiter->send('SELECT pg_advisory_lock(1), pg_advisory_unlock(1)');
LockHistory::wait_until_waiting($node, $waiter);
$holder->run('SELECT pg_advisory_unlock(1)');
$waiter->answer;
is(LockHistory::history($node, q{SELECT count(*), min(outcome) FROM lock_history.waits WHERE application_name = 'after'}), '1|granted', 'history goes on');

# The writer's session is ended while it is idle: it is made again when there is
# something to write, and nobody hears of it.
$offset = LockHistory::log_end($node);
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'});
$holder->run('SELECT pg_advisory_lock(1)');
$waiter->send('SELECT pg_advisory_lock(1), pg_advisory_unlock(1)');
LockHistory::wait_until_waiting($node, $waiter);
$holder->run('SELECT pg_advisory_unlock(1)');
$waiter->answer;
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'after'}), '2', 'ended, the session of the writer comes back');
unlike(LockHistory::log_since($node, $offset), qr/WARNING|in cancel request/, '... without a message');

# Ended again and again, it says so.
$offset = LockHistory::log_end($node);
my $locker = LockHistory::session($node, 'locker');
$locker->run('BEGIN');
$locker->run('LOCK TABLE lock_history.run IN EXCLUSIVE MODE');
$holder->run('SELECT pg_advisory_lock(1)');
$waiter->send('SELECT pg_advisory_lock(1), pg_advisory_unlock(1)');
LockHistory::until_true(sub {
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND wait_event_type = 'Lock'});
	LockHistory::log_since($node, $offset) =~ /WARNING:  pg_lock_history: the server ended the writer's session/;
}, 'it says that its session is ended again and again');
pass('ended again and again, it says so');
$locker->run('COMMIT');
$holder->run('SELECT pg_advisory_unlock(1)');
$waiter->answer;
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'after'}), '3', '... and goes on');
$_->quit for $locker, $holder, $waiter;

# The one slot there is goes to the launcher of logical replication.
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$offset = LockHistory::log_end($node);
$node->restart;
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'without a slot for the worker the server is up');
like(LockHistory::log_since($node, $offset), qr/too many background workers/, 'the server log says what is missing');
is(LockHistory::status($node, 'state'), 'not running', 'status() says that nothing runs');
like(LockHistory::status($node, 'hint'), qr/max_worker_processes .*restart/, '... and what to do');
is($node->safe_psql('postgres', q{SELECT count(*) >= 4 FROM lock_history.waits}), 't', 'history can be read');
is($node->safe_psql('postgres', q{SELECT lock_history.flush('10 ms')}), 'f', 'flush() does not say that all is written');

$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
LockHistory::wait_until_recording($node);
pass('with a slot, it records again');
$node->stop;
done_testing();
