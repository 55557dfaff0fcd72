
=head1 NAME

LockHistory::Wire - a database session that never waits

=head1 DESCRIPTION

Some hundred sessions in one event loop: a psql for each would be some hundred
processes on a machine with two cores, and each answer a matter of guessing from
its output. So this speaks the simple query protocol itself, over the server's
socket: statements go out one at a time, what comes back is taken by C<read>
whenever the socket has something.

=cut

package LockHistory::Wire;

use strict;
use warnings FATAL => 'all';

use Carp;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

# new(node, database =>, user =>, and any setting of the session).
sub new
{
	my ($class, $node, %settings) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) or croak "connect to $path: $!";
	$socket->blocking(0);
	my $self = bless { socket => $socket, in => '', queue => [], busy => 1, rows => [], errors => [], pid => undef, closed => 0 }, $class;
	my $start = pack('N', 3 << 16) . join('', map { "$_\0$settings{$_}\0" } sort keys %settings) . "\0";
	$self->_write(pack('N', 4 + length $start) . $start);
	return $self;
}

sub socket { return $_[0]{socket}; }
sub pid    { return $_[0]{pid}; }
sub closed { return $_[0]{closed}; }
sub rows   { return $_[0]{rows}; }      # of the statement that has ended last
sub errors { return $_[0]{errors}; }    # SQLSTATEs of the statements so far

# True when all that was sent has been answered.
sub done { my ($self) = @_; return $self->{closed} || !$self->{busy} && !@{ $self->{queue} }; }

# send(statement, ...): one after the other, each when the one before has ended.
sub send
{
	my ($self, @statements) = @_;
	push @{ $self->{queue} }, @statements;
	$self->_next if !$self->{busy};
	return;
}

sub quit
{
	my ($self) = @_;
	return if $self->{closed};
	$self->_write("X\0\0\0\4");
	$self->_close;
	return;
}

# Takes what has arrived.
sub read
{
	my ($self) = @_;
	return if $self->{closed};
	my $n = sysread $self->{socket}, $self->{in}, 1 << 16, length $self->{in};
	if (!defined $n)
	{
		return if $!{EAGAIN} || $!{EINTR};
		return $self->_close;    # reset by a server process that was ended
	}
	while (length $self->{in} >= 5)
	{
		my ($type, $length) = unpack 'aN', $self->{in};
		last if length $self->{in} < 1 + $length;
		my $body = substr $self->{in}, 5, $length - 4;
		substr $self->{in}, 0, 1 + $length, '';
		$self->_take($type, $body);
	}
	return $self->_close if $n == 0;
	return;
}

sub _take
{
	my ($self, $type, $body) = @_;
	if ($type eq 'D')
	{
		my ($n, @row) = unpack 'n', $body;
		my $at = 2;
		for (1 .. $n)
		{
			my $size = unpack 'N', substr $body, $at, 4;
			$at += 4;
			if ($size == 0xFFFFFFFF) { push @row, undef; next; }
			push @row, substr $body, $at, $size;
			$at += $size;
		}
		push @{ $self->{rows} }, \@row;
	}
	elsif ($type eq 'E')
	{
		my ($state) = $body =~ /(?:^|\0)C([^\0]*)/;
		push @{ $self->{errors} }, $state;
	}
	elsif ($type eq 'Z')
	{
		$self->{busy} = 0;
		$self->_next;
	}
	elsif ($type eq 'K')
	{
		$self->{pid} = unpack 'N', $body;
	}
	elsif ($type eq 'R' && unpack('N', $body) != 0)
	{
		croak 'the server asks for a password';
	}
	return;
}

sub _next
{
	my ($self) = @_;
	return if $self->{closed};
	my $sql = shift @{ $self->{queue} } // return;
	$self->{rows} = [];
	$self->{busy} = 1;
	$self->{sent_at} = time;
	$self->_write('Q' . pack('N', 5 + length $sql) . $sql . "\0");
	return;
}

# Statements are short: the socket has room for them.
sub _write
{
	my ($self, $data) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $n = syswrite $self->{socket}, $data;
	$self->_close if !defined $n;
	croak 'a statement did not fit into the socket' if defined $n && $n != length $data;
	return;
}

sub _close
{
	my ($self) = @_;
	$self->{closed} = 1;
	$self->{queue} = [];
	close $self->{socket};
	return;
}

1;
