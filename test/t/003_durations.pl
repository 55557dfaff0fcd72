# Waits and the periods of the writer: ended between two flushes, open across
# several of them, across a reload, across a clean restart and a crash.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('durations', settings => "pg_lock_history.flush_period = '200ms'");
my $flushes = q{SELECT batch FROM lock_history.run ORDER BY started_at DESC LIMIT 1};

# wait(name): a session that waits behind another; returns both.
my $key = 0;
sub begin_wait
{
	my ($name) = @_;
	$key++;
	my $holder = LockHistory::session($node, "holder_$name");
	my $waiter = LockHistory::session($node, $name);
	$holder->run("BEGIN; SELECT pg_advisory_xact_lock($key)");
	$waiter->send("SELECT pg_advisory_xact_lock($key)");
	LockHistory::wait_until_waiting($node, $waiter);
	return ($holder, $waiter);
}

sub end_wait
{
	my ($holder, $waiter) = @_;
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	return;
}

my $row = sub {
	my ($name) = @_;
	return LockHistory::history($node,
		"SELECT count(*), bool_and(wait_end IS NOT NULL), min(outcome) FROM lock_history.waits WHERE application_name = '$name'");
};

# Between two flushes.
$node->append_conf('postgresql.conf', "pg_lock_history.flush_period = '60s'");
$node->reload;
$node->poll_query_until('postgres', "SHOW pg_lock_history.flush_period", '1min');
my ($holder, $waiter) = begin_wait('between');
my $start = $node->safe_psql('postgres', 'SELECT waitstart FROM pg_locks WHERE NOT granted');
end_wait($holder, $waiter);
is($row->('between'), '1|t|granted', 'a wait that ends between two flushes');
is($node->safe_psql('postgres', "SELECT wait_start = '$start' FROM lock_history.waits WHERE application_name = 'between'"), 't', '... with the right start');

# Across several flushes and a reload in the midst of it.
$node->append_conf('postgresql.conf', "pg_lock_history.flush_period = '100ms'");
$node->reload;
($holder, $waiter) = begin_wait('across');
for my $round (1 .. 3)
{
	is($row->('across'), '1|f|', "open after flush $round");
	$node->reload if $round == 2;
}
end_wait($holder, $waiter);
is($row->('across'), '1|t|granted', 'ended after several flushes and a reload: one row');
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.open WHERE wait_id = (SELECT wait_id FROM lock_history.waits WHERE application_name = 'across')") > 0 ? 't' : 'f', 't', 'it had been written while open');

# Across a restart: the end was not seen by this server any more; the wait is
# known to have lasted to the last heartbeat or to the shutdown.
($holder, $waiter) = begin_wait('restart');
is($row->('restart'), '1|f|', 'open before the restart');
$node->stop('immediate');
$node->start;
LockHistory::wait_until_recording($node);
is($row->('restart'), '1|t|unknown', 'after a crash it is closed with outcome unknown');
is($node->safe_psql('postgres', q{SELECT w.wait_end >= w.wait_start, w.granted IS NULL,
	w.wait_end = greatest(w.wait_start, (SELECT heartbeat FROM lock_history.run ORDER BY started_at DESC OFFSET 1 LIMIT 1))
	FROM lock_history.waits AS w WHERE application_name = 'restart'}), 't|t|t', '... and the last heartbeat as its end');
is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.gaps WHERE reason = 'stopped' AND ended IS NOT NULL}), '1', 'the time between is a gap');

($holder, $waiter) = begin_wait('clean');
is($row->('clean'), '1|f|', 'open before a clean restart');
$node->restart;
LockHistory::wait_until_recording($node);
# Both sessions are told to end at once: the holder may let go before the waiter
# gives up, and the worker does not look for long.
like($row->('clean'), qr/^1\|t\|(?:server_stop|granted|unknown)$/, 'a clean restart closes it too');

# The worker alone comes back: the wait goes on and stays one row.
($holder, $waiter) = begin_wait('worker');
is($row->('worker'), '1|f|', 'open before the worker goes');
my $pid = LockHistory::worker_pid($node);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
LockHistory::next_worker_pid($node, $pid);
LockHistory::wait_until_recording($node);
is($row->('worker'), '1|f|', 'open after the worker has come back');
end_wait($holder, $waiter);
is($row->('worker'), '1|t|granted', 'and ended once');

$node->stop;
done_testing();
