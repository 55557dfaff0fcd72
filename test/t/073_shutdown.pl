# Shutdowns in bad moments, each of a server with the extension and one without,
# in turn: what makes a shutdown wait is never we. make bench CASE=shutdown runs
# it with PLH_SHUTDOWN_ROUNDS, in which case all pairs are played, and the medians
# go to the file PLH_FIGURES; here a pair is only proof that nothing hangs,
# for the machine may be busy with other things.
#
# A disk that stalls keeps a server process in the kernel, where no signal
# reaches it. SIGSTOP does the same to the one that writes the history, and
# SIGCONT brings the disk back. Without root there is no stalling of a real one;
# the checkpointer would wait for it as well.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $rounds = $ENV{PLH_SHUTDOWN_ROUNDS} || 0;
# Difference that a pair may show here, and a median there.
my ($loose, $strict) = (5, 0.5);

my %node;
for my $name (qw(with without))
{
	my $node = LockHistory::cluster($name, start => 0, init => [ allows_streaming => 1 ], preload => $name eq 'with', settings => 'max_connections = 60');
	$node->adjust_conf('postgresql.conf', 'pg_lock_history.min_duration', undef) if $name eq 'without';
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history') if $name eq 'with';
	$node->safe_psql('postgres', 'CREATE TABLE hot AS SELECT 1 AS id, 0 AS n; CREATE TABLE other (i integer); CREATE TABLE paid (i integer)');
	$node{$name} = $node;
}
my $script = PostgreSQL::Test::Utils::tempdir() . '/storm.sql';
append_to_file($script, "UPDATE hot SET n = n + 1 WHERE id = 1;\n");

# What makes the moment a bad one. Each returns a sub that does away with it as
# far as a smart shutdown needs it: its clients leave.
my %moment = (
	# 12 clients fight over one row.
	storm => sub {
		my ($node) = @_;
		my ($out, $err) = ('', '');
		my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-c', 12, '-T', 600, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$out, '2>', \$err);
		$node->poll_query_until('postgres', q{SELECT count(*) > 3 FROM pg_locks WHERE NOT granted}) or die 'no storm';
		return sub { $pgbench->signal('TERM'); $pgbench->finish; };
	},
	# The history's tables are locked, for writers: the writer is stuck.
	locked => sub {
		my ($node, $ours) = @_;
		my $locker = LockHistory::session($node, 'locker');
		$locker->run('BEGIN');
		$locker->run($ours ? 'LOCK TABLE lock_history.run, lock_history.actor, lock_history.ring IN EXCLUSIVE MODE' : 'LOCK TABLE other IN EXCLUSIVE MODE');
		if ($ours)
		{
			my $asks = LockHistory::session($node, 'asks');
			$asks->run(q{SELECT pg_advisory_lock(2)});
			my $waiter = LockHistory::session($node, 'waits');
			$waiter->send(q{SELECT pg_advisory_lock(2)});
			$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND wait_event_type = 'Lock'}) or die 'the writer is not stuck';
			$asks->run(q{SELECT pg_advisory_unlock(2)});
			$waiter->answer;
			$_->quit for $asks, $waiter;
		}
		return sub { eval { $locker->quit } };
	},
	# The server process of the writer (or of any session) does not get to run.
	stalled => sub {
		my ($node, $ours) = @_;
		my $session = LockHistory::session($node, 'stalled');
		my $pid = $ours ? $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'}) : $session->pid;
		kill 'STOP', $pid or die "$pid: $!";
		return sub { kill 'CONT', $pid; eval { $session->quit } };
	},
	# A synchronous standby is gone, and a COMMIT waits for it.
	standby => sub {
		my ($node) = @_;
		$node->safe_psql('postgres', $_) for q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'}, 'SELECT pg_reload_conf()';
		$node->poll_query_until('postgres', q{SELECT setting = 'nobody' FROM pg_settings WHERE name = 'synchronous_standby_names'}) or die 'not reloaded';
		my $committer = LockHistory::session($node, 'committer');
		$committer->send('INSERT INTO paid VALUES (1)');
		$node->poll_query_until('postgres', q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE application_name = 'committer'}) or die 'COMMIT did not wait';
		return sub { kill 'TERM', $committer->pid; eval { $committer->quit } };
	},
	# Sessions that have read history stay open, one of them in its transaction.
	readers => sub {
		my ($node, $ours) = @_;
		my @readers = map { LockHistory::session($node, "reader$_") } 1 .. 3;
		$readers[0]->run('BEGIN');
		$_->run($ours ? 'SELECT count(*) FROM lock_history.waits' : 'SELECT count(*) FROM hot') for @readers;
		return sub { eval { $_->quit } for @readers };
	},
);

# stop(node, mode, leave, stalled): how long until the server is gone, counted from the
# moment at which nothing but the server itself is left to wait for, and how
# long the worker took after the request.
sub stop
{
	my ($node, $mode, $leave, $stalled, $worker) = @_;
	my $pidfile = $node->data_dir . '/postmaster.pid';
	my $began = time;
	my $gone;
	kill { fast => 'INT', smart => 'TERM', immediate => 'QUIT' }->{$mode}, $node->{_pid} or die "$mode: $!";
	if ($mode eq 'smart')
	{
		# Without anybody to wait for it is gone at once.
		LockHistory::until_true(sub { (eval { slurp_file($pidfile) } // 'stopping') =~ /^stopping/m }, 'the server is stopping');
		$leave->();
		$began = time;
	}
	elsif ($stalled)
	{
		# Everybody else goes meanwhile, the worker included.
		if ($worker)
		{
			LockHistory::until_true(sub { !kill 0, $worker }, 'the worker has gone');
			$gone = time - $began;
		}
		$leave->();
		$began = time;
	}
	my $give_up = time + 60;
	while (-e $pidfile)
	{
		die 'the server did not stop' if time > $give_up;
		usleep(2_000);
	}
	my $took = time - $began;
	$leave->() if $mode ne 'smart' && !$stalled;
	$node->_update_pid(0);
	return ($took, $gone);
}

# The pairs of the short form; all of them when figures are wanted.
my @pairs = $rounds
  ? map { my $mode = $_; map { [ $mode, @$_ ] } ([], ['storm'], ['locked'], ['stalled'], ['standby'], ['readers'], [qw(storm locked readers)], [qw(storm standby)]) } qw(fast smart immediate)
  : ([qw(fast storm readers)], [qw(fast locked)], [qw(fast stalled)], [qw(fast standby)], [qw(smart)], [qw(smart locked readers)], [qw(immediate storm locked standby readers)]);
# The postmaster kills who does not answer an immediate shutdown after 5 s; a
# stopped process is not gone before it goes on, whatever the mode. And in a
# smart shutdown sessions would wait for the standby for ever.
@pairs = grep { my %p = map { $_ => 1 } @$_; !($p{stalled} && !$p{fast}) && !($p{smart} && $p{storm} && $p{standby}) } @pairs;

my (%took, %gone);
for my $round (1 .. $rounds || 1)
{
	for my $pair (@pairs)
	{
		my ($mode, @moments) = @$pair;
		my $what = join ' ', $mode, @moments ? join '+', @moments : 'idle';
		for my $name ($round % 2 ? qw(with without) : qw(without with))
		{
			my $node = $node{$name};
			my $ours = $name eq 'with';
			my $offset = LockHistory::log_end($node);
			LockHistory::wait_until_recording($node) if $ours;
			my $worker = $ours ? LockHistory::worker_pid($node) : 0;
			my @leave = map { $moment{$_}->($node, $ours) } @moments;
			my ($took, $gone) = stop($node, $mode, sub { $_->() for reverse @leave; }, scalar(grep { $_ eq 'stalled' } @moments), $worker);
			push @{ $took{$what}{$name} }, $took;
			push @{ $gone{$what} }, $gone if defined $gone;
			unlike(LockHistory::log_since($node, $offset), qr/PANIC|was terminated by signal|did not come back in time|has died/, "$what: in good order") if $ours;
			$node->append_conf('postgresql.auto.conf', q{synchronous_standby_names = ''});
			$node->start;
		}
	}
}

sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ $#sorted / 2 ]; }
my $figures = '';
for my $what (map { my ($mode, @m) = @$_; join ' ', $mode, @m ? join '+', @m : 'idle' } @pairs)
{
	my ($with, $without) = map { median(@{ $took{$what}{$_} }) } qw(with without);
	# Pairs, since the machine's speed changes from one to the next.
	my $more = median(map { $took{$what}{with}[$_] - $took{$what}{without}[$_] } 0 .. $#{ $took{$what}{with} });
	$figures .= sprintf "%-36s %6.3f %6.3f %+6.3f%s\n", $what, $with, $without, $more,
	  $gone{$what} ? sprintf('   worker gone after %.3f', median(@{ $gone{$what} })) : '';
	cmp_ok($more, '<', $rounds ? $strict : $loose, "$what: not slower than without");
	cmp_ok(median(@{ $gone{$what} }), '<', $rounds ? 0.5 : $loose, "$what: the worker does not wait for the disk") if $gone{$what};
}
note $figures;
append_to_file($ENV{PLH_FIGURES}, $figures) if $ENV{PLH_FIGURES};

$_->stop for values %node;
done_testing();
