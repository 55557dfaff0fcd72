# What watching takes is bounded, by what its own counters say: no lock of the
# lock manager while nobody waits, whatever sessions do; one partition for each
# look at a lock that is waited for, ten looks a second at most, and no more when
# the incident has lasted for a while. Nothing here is timed.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

# Without load: it would look for the locks that found no fast-path slot, of which
# reading the history has some.
my $node = LockHistory::cluster('costs', settings => "autovacuum = off\npg_lock_history.track_load = off");
$node->safe_psql('postgres', 'CREATE TABLE t (id integer PRIMARY KEY, n integer); INSERT INTO t VALUES (1, 0), (2, 0)');

# counted(seconds): what health counted while the server took samples for so long.
sub counted
{
	my ($seconds) = @_;
	my @columns = qw(ticks_done partitions_taken partitions_busy rows_written rows_dropped);
	my $sum = 'SELECT ' . join(', ', map { "coalesce(sum($_), 0)" } @columns) . ' FROM lock_history.health';
	my @before = split /\|/, LockHistory::history($node, $sum);
	my $from = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$node->poll_query_until('postgres', qq{SELECT value::timestamptz >= '$from'::timestamptz + interval '$seconds s'
		FROM lock_history.status() WHERE key = 'last_tick'}) or die 'no samples';
	my @after = split /\|/, LockHistory::history($node, $sum);
	my %n = map { $columns[$_] => $after[$_] - $before[$_] } 0 .. $#columns;
	# From the first flush to the second, by the server's own schedule: a flush walks, too.
	$n{seconds} = $node->safe_psql('postgres', "SELECT extract(epoch FROM clock_timestamp() - '$from')");
	note("@{[ map { qq($_ $n{$_}) } @columns ]} in $n{seconds} s");
	cmp_ok($n{ticks_done}, '>', 0, 'there were samples');
	return \%n;
}

my @idle = map { LockHistory::session($node, "idle_$_") } 1 .. 4;
my $n = counted(1.5);
is($n->{partitions_taken}, '0', 'idle sessions: no partition taken');
is($n->{partitions_busy}, '0', 'nor tried');
cmp_ok($n->{rows_written}, '<=', 2 * $n->{seconds} + 20, 'next to nothing written');

$_->run('BEGIN; SELECT count(*) FROM t; SELECT pg_current_xact_id()') for @idle[0, 1];
$n = counted(1.5);
is($n->{partitions_taken}, '0', 'open transactions that have written: no partition taken');
$_->run('ROLLBACK') for @idle[0, 1];

my $holder = LockHistory::session($node, 'holder');
my @waiter = map { LockHistory::session($node, "waiter_$_") } 1 .. 6;
$holder->run('BEGIN; LOCK TABLE t');
$_->send('BEGIN; LOCK TABLE t IN SHARE MODE') for @waiter;
LockHistory::wait_until_waiting($node, @waiter);
for my $when ('at its begin', 'later')
{
	$n = counted(2);
	# Ten a second, one for each flush(), and one for each second of late ticks.
	cmp_ok($n->{partitions_taken}, '<=', 11 * ($n->{seconds} + 1) + 4, "six waiters on one lock, $when: ten partition locks a second at most");
	cmp_ok($n->{partitions_taken}, '>=', 2, 'they are looked at');
}
is($n->{rows_dropped}, '0', 'nothing dropped');
$holder->run('ROLLBACK');
for my $w (@waiter)
{
	$w->answer;
	$w->quit;
}

$n = counted(1);
is($n->{partitions_taken}, '0', 'nobody waits any more: no partition taken');
$node->stop;
done_testing();
