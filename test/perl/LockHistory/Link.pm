
=head1 NAME

LockHistory::Link - a way between two servers that can be cut

=head1 SYNOPSIS

  my $link = LockHistory::Link->new($node);     # another way to the same server
  $link->host, $link->port;                     # a socket
  $link->freeze;    # nothing goes through and nobody says so, as when a cable is pulled
  $link->thaw;
  $link->cut;       # connections are reset, and nobody listens
  $link->mend;
  $link->bytes;     # to and fro so far

=cut

package LockHistory::Link;

use strict;
use warnings FATAL => 'all';

use Carp;
use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;

sub new
{
	my ($class, $node) = @_;
	my $self = bless { to => $node->host . '/.s.PGSQL.' . $node->port, port => $node->port,
		dir => PostgreSQL::Test::Utils::tempdir_short() }, $class;
	$self->mend;
	return $self;
}

sub host { return $_[0]{dir}; }
sub port { return $_[0]{port}; }

sub mend
{
	my ($self) = @_;
	croak 'there is a way already' if $self->{pid};
	unlink "$self->{dir}/.s.PGSQL.$self->{port}";
	my $listener = IO::Socket::UNIX->new(Local => "$self->{dir}/.s.PGSQL.$self->{port}", Listen => 10) or croak "listen: $!";
	defined($self->{pid} = fork) or croak "fork: $!";
	if ($self->{pid} == 0)
	{
		eval { _serve($listener, $self->{to}, "$self->{dir}/bytes"); };
		# Nothing of the test's own END blocks and destructors.
		require POSIX;
		POSIX::_exit(0);
	}
	close $listener;
	return;
}

sub freeze { kill STOP => $_[0]{pid} or croak "freeze: $!"; return; }
sub thaw   { kill CONT => $_[0]{pid} or croak "thaw: $!";   return; }

sub cut
{
	my ($self) = @_;
	my $pid = delete $self->{pid} // return;
	kill KILL => $pid;
	waitpid $pid, 0;
	unlink "$self->{dir}/.s.PGSQL.$self->{port}";
	return;
}

sub bytes { my ($self) = @_; return -e "$self->{dir}/bytes" ? -s "$self->{dir}/bytes" : 0; }

sub DESTROY { my ($self) = @_; local ($?, $!); $self->cut; return; }

# Carries bytes both ways until it is killed. What goes by is counted in the size
# of a sparse file.
sub _serve
{
	my ($listener, $to, $count) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $select = IO::Select->new($listener);
	my (%peer, $bytes);
	open my $file, '>>', $count or die "$count: $!";
	$bytes = -s $file;
	while (my @ready = $select->can_read)
	{
		for my $from (@ready)
		{
			if ($from == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $to);
				if (!$server) { close $client; next; }
				@peer{ $client, $server } = ($server, $client);
				$select->add($client, $server);
				next;
			}
			my $other = $peer{$from} or next;
			my $n = sysread $from, my $data, 1 << 16;
			for (my $done = 0; $n && $done < $n;)
			{
				my $written = syswrite $other, $data, $n - $done, $done;
				$n = 0 if !$written;
				$done += $written // 0;
			}
			if ($n) { truncate $file, $bytes += $n; next; }
			delete @peer{ $from, $other };
			$select->remove($from, $other);
			close $_ for $from, $other;
		}
	}
	return;
}

1;
