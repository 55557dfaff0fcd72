
=head1 NAME

LockHistory - clusters and sessions for the tests of pg_lock_history

=head1 SYNOPSIS

  my $node = LockHistory::cluster('main', settings => q{pg_lock_history.flush_period = '200ms'});
  my $a = LockHistory::session($node, 'a');          # application_name a
  $a->run('BEGIN; LOCK TABLE t');
  my $b = LockHistory::session($node, 'b');
  $b->send('SELECT * FROM t');                       # does not wait for the answer
  LockHistory::wait_until_waiting($node, $b);
  LockHistory::flush($node);                         # all up to now can be read
  is(LockHistory::history($node, 'SELECT ...'), '...');

Nothing here sleeps for a fixed time: each helper waits for a fact.

=cut

package LockHistory;

use strict;
use warnings FATAL => 'all';

use Carp;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep time);

# cluster(name, settings => '...', extension => 1, start => 1, preload => 1,
# init => [...], new => [...]): a cluster that records, up to the first tick.
sub cluster
{
	my ($name, %o) = @_;
	$o{$_} //= 1 for qw(extension start preload);

	my $node = PostgreSQL::Test::Cluster->new($name, @{ $o{new} // [] });
	$node->init(@{ $o{init} // [] });
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_lock_history'") if $o{preload};
	# Every wait is kept on its own here, however short.
	$node->append_conf('postgresql.conf', "pg_lock_history.min_duration = 0");
	$node->append_conf('postgresql.conf', "compute_query_id = on");
	$node->append_conf('postgresql.conf', $o{settings}) if $o{settings};
	return $node if !$o{start};

	$node->start;
	if ($o{extension})
	{
		$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
		wait_until_recording($node);
	}
	return $node;
}

# The installation whose Go library can be told to die; undef without one.
sub fault_install { return $ENV{PLH_FAULT_INSTALL}; }

sub status
{
	my ($node, $key, $db) = @_;
	return $node->safe_psql($db // 'postgres', "SELECT value FROM lock_history.status() WHERE key = '$key'");
}

sub wait_until_status
{
	my ($node, $key, $value) = @_;
	$node->poll_query_until('postgres', "SELECT value = '$value' FROM lock_history.status() WHERE key = '$key'")
	  or croak "status() never said $key = $value";
	return;
}

sub wait_until_recording { my ($node) = @_; wait_until_status($node, 'state', 'recording'); return; }

sub flush
{
	my ($node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $done = $node->safe_psql('postgres', "SELECT lock_history.flush('30 s')");
	croak "flush() gave up: " . join(', ', status($node, 'last_error'), status($node, 'state')) if $done ne 't';
	return;
}

# history(node, query): what can be read once all up to now is written.
sub history
{
	my ($node, $query) = @_;
	flush($node);
	return $node->safe_psql('postgres', $query);
}

# major(node): to be compared instead of pg_version, which is below 19 for 19rc1.
sub major { my ($node) = @_; return $node->pg_version->major; }

sub worker_pid
{
	my ($node) = @_;
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_lock_history'");
}

# Waits for a worker with another pid than the given one and returns it.
sub next_worker_pid
{
	my ($node, $old) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_lock_history' AND pid <> $old")
	  or croak "no new worker after $old";
	return worker_pid($node);
}

sub session
{
	my ($node, $name, %o) = @_;
	return LockHistory::Session->new($node, $name, %o);
}

sub wait_until_waiting
{
	my ($node, @sessions) = @_;
	for my $pid (map { ref $_ ? $_->pid : $_ } @sessions)
	{
		# waitstart is published a moment after the wait has begun.
		$node->poll_query_until('postgres',
			"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $pid AND NOT granted AND waitstart IS NOT NULL)")
		  or croak "process $pid never waited";
	}
	return;
}

# SQL that answers 1 when the live area has the wait in which a session is now, and not an earlier one of it.
sub is_seen_waiting
{
	my ($session) = @_;
	return 'SELECT count(DISTINCT l.waitstart) FROM lock_history.recent_waits() AS b'
	  . ' JOIN pg_locks AS l ON l.pid = b.pid AND NOT l.granted AND l.waitstart = b.wait_start WHERE b.pid = ' . $session->pid;
}

# seconds(sub): how long something took.
sub seconds
{
	my ($what) = @_;
	my $began = time;
	$what->();
	return time - $began;
}

# until_true(sub, what): polls a fact that no query can tell.
sub until_true
{
	my ($fact, $what) = @_;
	my $give_up = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($fact->())
	{
		croak "timed out waiting until $what" if time > $give_up;
		usleep(10_000);
	}
	return;
}

# log_since(node, offset): the server log without the statements that the test
# framework has the server log.
sub log_since
{
	my ($node, $offset) = @_;
	return join "\n", grep { !/LOG:  statement: / } split /\n/, slurp_file($node->logfile, $offset // 0);
}

sub log_end { my ($node) = @_; return -s $node->logfile; }

package LockHistory::Session;

use strict;
use warnings FATAL => 'all';

use Carp;

sub new
{
	my ($class, $node, $name, %o) = @_;
	my $psql = $node->background_psql(
		$o{database} // 'postgres',
		on_error_stop => 0,
		extra_params  => [ defined $o{user} ? ('-U', $o{user}) : () ]);
	$psql->set_query_timer_restart;
	my $self = bless { psql => $psql, name => $name, sent => 0 }, $class;
	$psql->query("SET application_name = '$name'");
	$self->{pid} = $psql->query('SELECT pg_backend_pid()');
	return $self;
}

sub pid { return $_[0]{pid}; }

# Sends statements and returns their output when they are done.
sub run
{
	my ($self, $sql) = @_;
	return scalar $self->{psql}->query($sql);
}

# Sends statements and returns when psql has begun to send them to the server.
sub send
{
	my ($self, $sql) = @_;
	my $mark = 'sent ' . $self->{name} . ' ' . ++$self->{sent};
	$self->{psql}->query_until(qr/^\Q$mark\E\r?$/m, "\\echo $mark\n$sql;\n");
	return;
}

# What statements sent before gave out, once all are done.
sub answer { return scalar $_[0]{psql}->query(''); }

# Errors and notices since the last call.
sub errors
{
	my ($self) = @_;
	my $text = $self->{psql}{stderr};
	$self->{psql}{stderr} = '';
	return $text;
}

sub quit { return $_[0]{psql}->quit; }

1;
