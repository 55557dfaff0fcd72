# Go inside a server process: signals reach the server's handlers, on the main
# thread only, and nothing makes a shutdown wait. The sampling period is 10 s
# all along, so that nothing here is noticed by a tick alone.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use POSIX qw(:signal_h);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('signals', settings => "pg_lock_history.sample_period = '10s'");
my $worker = LockHistory::worker_pid($node);

# SigBlk of every thread. bit(n) is signal n.
sub masks
{
	my ($pid) = @_;
	my %mask;
	for my $file (glob "/proc/$pid/task/*/status")
	{
		my $text = slurp_file($file);
		my ($tid) = $text =~ /^Pid:\s+(\d+)/m;
		my ($blocked) = $text =~ /^SigBlk:\s+([0-9a-f]+)/m;
		$mask{$tid} = hex substr $blocked, -8; # signals up to 32
	}
	return %mask;
}
sub bit { my ($signal) = @_; return 1 << ($signal - 1); }

# The main thread is asleep in the C wait when its mask is the server's own.
my %mask;
LockHistory::until_true(sub { %mask = masks($worker); return !($mask{$worker} & bit(SIGTERM)); }, 'the worker sleeps in the C wait');
cmp_ok(scalar keys %mask, '>', 2, 'Go runs threads in the worker');
my $SIGURG = 23;
is(join(',', grep { !($mask{$_} & bit($SIGURG)) } keys %mask), '', 'SIGURG, the latch, is blocked in every thread');
my @others = grep { $_ != $worker } keys %mask;
for my $pair ([ HUP => SIGHUP ], [ INT => SIGINT ], [ QUIT => SIGQUIT ], [ USR1 => SIGUSR1 ], [ USR2 => SIGUSR2 ], [ ALRM => SIGALRM ], [ TERM => SIGTERM ])
{
	my ($name, $number) = @$pair;
	is(join(',', grep { !($mask{$_} & bit($number)) } @others), '', "SIG$name is blocked in every thread but the main one");
	ok(!($mask{$worker} & bit($number)), "SIG$name is not blocked in the main thread");
}

# Latch: flush() wakes the worker at once.
cmp_ok(LockHistory::seconds(sub { $node->safe_psql('postgres', 'SELECT lock_history.flush()') for 1 .. 5 }), '<', 2.5, 'five flushes take less than half a second each');

# Reload.
for my $step ([ off => 'disabled' ], [ on => 'recording' ])
{
	my ($value, $state) = @$step;
	$node->append_conf('postgresql.conf', "pg_lock_history.enabled = $value");
	cmp_ok(LockHistory::seconds(sub {
		$node->reload;
		LockHistory::until_true(sub { LockHistory::status($node, 'state') eq $state }, "the state is $state");
	}), '<', 0.5, "a reload is taken up within half a second: $state");
}

# Barriers: DROP DATABASE waits for every process to absorb one.
$node->safe_psql('postgres', 'CREATE DATABASE short_lived');
cmp_ok(LockHistory::seconds(sub { $node->safe_psql('postgres', 'DROP DATABASE short_lived') }), '<', 5, 'DROP DATABASE does not wait for the worker');

# A worker that is told to go comes back.
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
my $next = LockHistory::next_worker_pid($node, $worker);
isnt($next, $worker, 'terminated, it comes back');
LockHistory::wait_until_recording($node);

# Fast shutdown.
my $offset = LockHistory::log_end($node);
cmp_ok(LockHistory::seconds(sub {
	kill 'INT', $node->{_pid};
	LockHistory::until_true(sub { !kill(0, $next) }, 'the worker is gone');
}), '<', 0.5, 'a fast shutdown ends the worker within half a second');
LockHistory::until_true(sub { !-e $node->data_dir . '/postmaster.pid' }, 'the server has stopped');
$node->_update_pid(0);
unlike(LockHistory::log_since($node, $offset), qr/PANIC|terminated by signal|exited with exit code [^1]/, '... in good order');

# Smart shutdown: the writer is a client session and must leave by itself.
$node->start;
LockHistory::wait_until_recording($node);
my $idle = LockHistory::session($node, 'idle');
kill 'TERM', $node->{_pid};
LockHistory::until_true(sub { slurp_file($node->data_dir . '/postmaster.pid') =~ /^stopping/m }, 'the server is stopping');
is($idle->run('SELECT 1'), '1', 'the idle session goes on during a smart shutdown');
$idle->quit;
cmp_ok(LockHistory::seconds(sub {
	LockHistory::until_true(sub { !-e $node->data_dir . '/postmaster.pid' }, 'the server has stopped');
}), '<', 2.5, 'a smart shutdown ends soon after the last session');
$node->_update_pid(0);

# Immediate shutdown.
$node->start;
LockHistory::wait_until_recording($node);
$worker = LockHistory::worker_pid($node);
cmp_ok(LockHistory::seconds(sub { $node->stop('immediate') }), '<', 2, 'an immediate shutdown ends at once');
ok(!kill(0, $worker), 'and the worker with it');

# A dead postmaster.
$node->start;
LockHistory::wait_until_recording($node);
$worker = LockHistory::worker_pid($node);
$node->kill9;
# Whoever inherits orphans may take its time to bury them.
sub has_ended
{
	my ($pid) = @_;
	open my $file, '<', "/proc/$pid/stat" or return 1;
	my $stat = <$file> // return 1;
	return $stat =~ /\) Z /;
}
cmp_ok(LockHistory::seconds(sub { LockHistory::until_true(sub { has_ended($worker) }, 'the worker is gone') }), '<', 2, 'the worker does not outlive the postmaster');

done_testing();
