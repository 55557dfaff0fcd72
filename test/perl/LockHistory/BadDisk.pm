=head1 NAME

LockHistory::BadDisk - a disk that fails when told to

=head1 SYNOPSIS

  my $disk = LockHistory::BadDisk->new;
  $disk->start($node);                    # instead of $node->start
  $disk->is('full', '/pg_tblspc/16384/'); # see bad_disk.c
  $disk->is_well;

=cut

package LockHistory::BadDisk;

use strict;
use warnings FATAL => 'all';

use Carp;
use File::Basename;
use PostgreSQL::Test::Utils;

sub new
{
	my ($class) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $library = "$dir/bad_disk.so";
	my @compiler = split ' ', $ENV{CC} || 'cc';
	system(@compiler, '-O', '-D_LARGEFILE64_SOURCE', '-shared', '-fPIC', '-o', $library, dirname(__FILE__) . '/bad_disk.c', '-ldl') == 0
	  or croak 'cannot compile bad_disk.c';
	return bless { library => $library, control => "$dir/control" }, $class;
}

sub start
{
	my ($self, $node) = @_;
	local %ENV = (%ENV, LD_PRELOAD => $self->{library}, PLH_BAD_DISK => $self->{control});
	$node->start;
	return;
}

sub is
{
	my ($self, $fault, $path) = @_;
	open my $file, '>', "$self->{control}.new" or croak $!;
	print $file "$fault $path\n";
	close $file;
	rename "$self->{control}.new", $self->{control} or croak $!;
	return;
}

sub is_well { my ($self) = @_; unlink $self->{control}; return; }

1;
