# The Go runtime dies in every way it knows. That is exit code 1 of one worker
# to the postmaster, which starts it again, and nothing to any session.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the Go library with faults (make test-tap)' if !LockHistory::fault_install();

my $node = LockHistory::cluster('go_death', new => [ install_path => LockHistory::fault_install() ]);
my $bystander = LockHistory::session($node, 'bystander');
$bystander->run('CREATE TEMP TABLE mine AS SELECT 42 AS answer');

# Written under another name first: the worker must not read half of it.
sub fault
{
	my ($name) = @_;
	my $file = $node->data_dir . '/pg_lock_history_fault';
	append_to_file("$file.new", "$name\n");
	rename "$file.new", $file or die "rename: $!";
	LockHistory::until_true(sub { !-e $file }, "the worker takes up $name");
	return;
}

# After several short lives the worker pauses, longer each time; a reload ends
# the pause.
sub back_to_recording
{
	LockHistory::until_true(sub { $node->reload; LockHistory::status($node, 'state') eq 'recording' }, 'it records again');
	return;
}

for my $name (qw(panic goroutine-panic concurrent-map stack-overflow stack-overflow-main fault bare-thread-fault))
{
	my $worker = LockHistory::worker_pid($node);
	my $offset = LockHistory::log_end($node);
	fault($name);
	my $next = LockHistory::next_worker_pid($node, $worker);
	isnt($next, $worker, "$name: the worker comes back");
	like(LockHistory::log_since($node, $offset), qr/background worker "pg_lock_history" \(PID $worker\) exited with exit code 1/, "$name: exit code 1");
	unlike(LockHistory::log_since($node, $offset), qr/terminating any other active server processes|was terminated by signal/, "$name: no session is restarted");
	is($bystander->run('SELECT answer FROM mine'), '42', "$name: another session goes on");
	back_to_recording();
}

# Recording goes on after all that.
my $holder = LockHistory::session($node, 'holder');
my $waiter = LockHistory::session($node, 'waiter');
$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
$waiter->send('SELECT pg_advisory_xact_lock(1)');
LockHistory::wait_until_waiting($node, $waiter);
is(LockHistory::history($node, "SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter'"), '1', 'recording goes on');
$holder->run('COMMIT');
$waiter->answer;
$_->quit for $holder, $waiter;
$bystander->quit;

# A loop without calls cannot be preempted: the watchdog ends the worker when
# it is asked to stop.
for my $name (qw(loop loop-beside))
{
	my $worker = LockHistory::worker_pid($node);
	fault($name);
	my $offset = LockHistory::log_end($node);
	cmp_ok(LockHistory::seconds(sub { $node->stop('fast') }), '<', 2, "$name: the server stops in time");
	unlike(LockHistory::log_since($node, $offset), qr/was terminated by signal|PANIC/, "$name: in good order");
	ok(!kill(0, $worker), "$name: the worker is gone");
	$node->start;
	LockHistory::wait_until_recording($node);
}

# And alone it costs the worker, not the server.
my $worker = LockHistory::worker_pid($node);
fault('loop');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
isnt(LockHistory::next_worker_pid($node, $worker), $worker, 'loop: a worker that hangs can be terminated');

# Nobody asks it to stop, but DROP DATABASE waits for every process.
back_to_recording();
$node->safe_psql('postgres', 'CREATE DATABASE short_lived');
$worker = LockHistory::worker_pid($node);
my $offset = LockHistory::log_end($node);
fault('loop');
$node->safe_psql('postgres', 'DROP DATABASE short_lived');
# The database is gone a moment before the postmaster has told of the end.
$node->wait_for_log(qr/did not come back in time/, $offset);
$node->wait_for_log(qr/\(PID $worker\) exited with exit code 1/, $offset);
pass('loop: a worker that hangs is ended by itself');

$node->stop;

# A runtime that cannot start must not be tried in the worker: it would take
# the server down, again and again.
my $limit = 400000; # kB: enough for the server, not for what Go reserves
my $started = system('sh', '-c', "ulimit -v $limit && exec \"\$0\" \"\$@\"",
	LockHistory::fault_install() . '/bin/pg_ctl', '-s', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start');
is($started, 0, 'the server starts without enough address space for Go');
$node->_update_pid(1);
LockHistory::until_true(sub { LockHistory::status($node, 'state') eq 'no library' }, 'the worker knows that Go does not start');
like(LockHistory::status($node, 'last_error'), qr/Go runtime does not start/, 'status() says why');
like(LockHistory::status($node, 'hint'), qr/ulimit -v/, '... and what to do');
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'sessions go on');
cmp_ok(LockHistory::seconds(sub { $node->stop('fast') }), '<', 2, 'and the server stops in time');
done_testing();
