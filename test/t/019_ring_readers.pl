# Somebody reads every view and stays in the transaction, for longer than the
# ring takes to go round. It costs the history its newest facts, which is said;
# it costs nobody else anything, and the disk no more than the bound.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $mb = 1024 * 1024;
my ($max_size, $share) = (8 * $mb, 1 * $mb);
my $node = LockHistory::cluster('ring_readers', settings => q{
track_activity_query_size = '200kB'
pg_lock_history.max_size = '8MB'
pg_lock_history.query_length = '200kB'
pg_lock_history.flush_period = '100ms'
});

srand(2026);
my @letters = ('a' .. 'z', 'A' .. 'Z', '0' .. '9', '_', '-');
my $holder = LockHistory::session($node, 'holder');
my @waiters = map { LockHistory::session($node, "waiter_$_") } 1 .. 4;

# Four waits, each with a statement of 150 kB that cannot be compressed.
sub fill
{
	$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	for my $waiter (@waiters)
	{
		my $noise = join '', map { $letters[ rand @letters ] } 1 .. 150_000;
		$waiter->send("SELECT pg_advisory_xact_lock_shared(1) /* $noise */");
	}
	LockHistory::wait_until_waiting($node, @waiters);
	$holder->run('COMMIT');
	$_->answer for @waiters;
	LockHistory::flush($node);
	return;
}

my $opened = q{SELECT sum(round) FROM lock_history.ring};
sub rounds { return $node->safe_psql('postgres', $opened); }
sub on_disk
{
	return $node->safe_psql('postgres', q{SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c
		WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r'});
}

# Once round, so that there is no segment left that was never used.
my $fills = 0;
fill() while rounds() < 9 && $fills++ < 100;
cmp_ok(rounds(), '>=', 9, "the ring went round, by size, in $fills fills");

# Every view that a reader has, and the tree.
my $reader = LockHistory::session($node, 'reader');
my @views = split /\n/, $node->safe_psql('postgres', q{SELECT c.relname FROM pg_class AS c
	WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'v' ORDER BY 1});
cmp_ok(scalar @views, '>', 5, 'there are views');
$reader->run('BEGIN');
$reader->run("SELECT count(*) FROM lock_history.$_") for @views;
$reader->run('SELECT count(*) FROM lock_history.blocking_tree_at(now())');
is($reader->errors, '', 'the reader read all of them, and stays');
my $from = rounds();
my $dropped = LockHistory::status($node, 'rows_dropped');

# Nearly two times what the ring can hold comes up now. Meanwhile the
# writer must not queue behind the reader: whoever came later would queue too.
my ($most, @blocked) = (0);
for (1 .. 2 * $fills)
{
	fill();
	my $size = on_disk();
	$most = $size if $size > $most;
	push @blocked, $node->safe_psql('postgres', q{SELECT string_agg(a.application_name || ' waits for ' || l.relation::regclass, ', ')
		FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
		WHERE NOT l.granted AND l.relation IN (SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace)});
}
# A fill is one flush or two, 0.6 MB and some.
my $flush = 1 * $mb;
cmp_ok($most, '<=', $max_size + $share + $flush, 'never more on disk than max_size, one segment, and one flush');
cmp_ok(rounds() - $from, '<=', 2, 'the ring stood still');
is(join('', @blocked), '', 'nobody waited for a history table');
LockHistory::wait_until_status($node, 'state', 'ring held');
like(LockHistory::status($node, 'hint'), qr/end it, or raise pg_lock_history\.max_size/i, 'status() says what holds, and the way out');
cmp_ok(LockHistory::status($node, 'rows_dropped'), '>', $dropped, '... and counts what was dropped');
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM lock_history.waits'), 't', 'other readers read on');
my $log = LockHistory::log_since($node);
is(scalar(() = $log =~ /lock history is full and its oldest part is in use/g), 1, 'the log says it once');

# What the hint says helps: more room, taken up while running.
sub max_size
{
	my ($value) = @_;
	$node->safe_psql('postgres', $_) for "ALTER SYSTEM SET pg_lock_history.max_size = '$value'", 'SELECT pg_reload_conf()';
	return;
}
max_size('32MB');
LockHistory::until_true(sub { fill(); LockHistory::status($node, 'state') eq 'recording' }, 'there is room again');
pass('a larger max_size is taken up by a reload');
max_size('8MB');
LockHistory::until_true(sub { fill(); LockHistory::status($node, 'state') eq 'ring held' }, 'there is none any more');
pass('... and a smaller one');

# It leaves, and all goes on by itself.
$reader->run('COMMIT');
fill();
LockHistory::wait_until_recording($node);
is($node->safe_psql('postgres', q{SELECT count(*) > 0, min(lost) > 0, bool_and(ended > began), count(*) FILTER (WHERE detail IS NULL)
	FROM lock_history.gaps WHERE reason = 'ring held'}), 't|t|t|0', 'the time of which facts were dropped is a gap, with number and reason');
is(LockHistory::history($node, q{SELECT count(DISTINCT pid) FROM lock_history.waits WHERE wait_start > (SELECT max(ended) FROM lock_history.gaps WHERE reason = 'ring held')}),
	scalar @waiters, 'what happens now is recorded');
fill() for 1 .. $fills;
cmp_ok(rounds() - $from, '>', 4, 'the ring turns again');
cmp_ok(on_disk(), '<=', $max_size + $share + $flush, 'within the bound again');

# A smaller ring is taken up while running.
$node->safe_psql('postgres', $_) for q{ALTER SYSTEM SET pg_lock_history.retention = '14s'}, 'SELECT pg_reload_conf()';
my $before = rounds();
LockHistory::until_true(sub { fill(); rounds() >= $before + 3 }, 'a shorter retention turns the ring faster');
pass('retention is taken up by a reload');

$_->quit for $holder, $reader, @waiters;
$node->stop;
done_testing();
