# Many at once: a thousand waiters on one lock, thousands of short waits a second, a row
# that is fought over, and a sampler that is away for a while. Counts are compared with what must be.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory::Cases;
use LockHistory::Wire;
use IO::Select;
use List::Util qw(sum0);
use Test::More;
use Time::HiRes qw(time);

# A deadlock check of one of a thousand in a queue takes the server a tenth of a
# second, with the whole lock manager to itself: where all come to it, on a slow
# machine, nothing else happens for a minute.
my $N = 1000;
my $node = LockHistory::Cases::cluster('storms', settings => "max_connections = 1100\npg_lock_history.max_rows_per_second = 10000\ndeadlock_timeout = '1h'");
my $user = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', 'CREATE TABLE hot (id int PRIMARY KEY, v int); INSERT INTO hot VALUES (1, 0), (2, 0)');

sub session { return LockHistory::Wire->new($node, user => $user, database => 'postgres', application_name => $_[0]); }

# Reads from all until each has its answer.
sub settle
{
	my @sessions = @_;
	my %of = map { fileno $_->socket => $_ } grep { !$_->closed } @sessions;
	my $select = IO::Select->new(map { $_->socket } values %of);
	my $give_up = time + 120;
	while (grep { !$_->done } @sessions)
	{
		die 'no answer' if time > $give_up;
		$of{ fileno $_ }->read for $select->can_read(0.1);
	}
	return;
}

my $a = session('storm A');
settle($a);
my @crowd;
while (@crowd < $N)
{
	push @crowd, map { session('storm crowd') } 1 .. 50;
	settle(@crowd);
}

# ---- a thousand on one lock ----

# part(name, what A takes, what the crowd asks for, condition on their waits)
sub part
{
	my ($name, $take, $ask, $which, $want) = @_;
	my $since = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$a->send('begin', $take);
	settle($a);
	$crowd[0]->send($ask);    # the first one, so that who holds the row is known
	LockHistory::wait_until_waiting($node, $crowd[0]);
	$_->send($ask) for @crowd[ 1 .. $#crowd ];
	$node->poll_query_until('postgres', "SELECT count(*) = $N FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL") or die "$name: they never waited";
	my $pid = $a->pid;

	LockHistory::flush($node);
	is($node->safe_psql('postgres', qq{SELECT locktype, count(*), sum(hard_blocker_count), sum(soft_blocker_count), bool_and(root_blockers = ARRAY[$pid])
		FROM lock_history.waits WHERE wait_end IS NULL GROUP BY locktype ORDER BY locktype DESC}), $want, "$name: waiters, edges, and one root");
	is($node->safe_psql('postgres', qq{SELECT count(*) FILTER (WHERE level = 0), sum(coalesce(collapsed_count, 1)), count(*) < 60
		FROM lock_history.blocking_tree_at(clock_timestamp())}), '1|' . ($N + 1) . '|t', "$name: one tree, with all of them, that can be read");

	$a->send('commit');
	settle($a, @crowd);
	LockHistory::flush($node);
	is($node->safe_psql('postgres', qq{SELECT count(*), count(*) FILTER (WHERE outcome = 'granted'), count(*) FILTER (WHERE wait_end IS NULL)
		FROM lock_history.waits WHERE wait_start >= '$since' AND $which}), "$N|$N|0", "$name: all were granted");
	return;
}

part('table', 'lock table hot', 'select count(*) from hot where id = 2', 'true', "relation|$N|$N|0|t");
part('advisory lock', 'select pg_advisory_xact_lock(4711)', 'select pg_advisory_xact_lock(4711)', 'true',
	"advisory|$N|$N|" . $N * ($N - 1) / 2 . '|t');
part('row', 'update hot set v = 0 where id = 1', 'update hot set v = v + 1 where id = 1',
	"wait_id IN (SELECT DISTINCT ON (pid) wait_id FROM lock_history.waits WHERE wait_start >= (SELECT max(wait_start) FROM lock_history.waits WHERE locktype = 'advisory') AND locktype <> 'advisory' ORDER BY pid, wait_start)",
	"tuple|" . ($N - 1) . '|' . ($N - 1) . '|' . ($N - 1) * ($N - 2) / 2 . "|t\ntransactionid|1|1|0|t");

note($node->safe_psql('postgres', q{SELECT 'ticks late ' || sum(ticks_late) || ', missed ' || sum(ticks_missed) || ', longest tick ' || max(probe_us_max) || ' us, partition held ' || max(hold_us_max) || ' us' FROM lock_history.health}));

# ---- thousands of short waits a second: merged, and the sums are those of the sessions' own books ----

# Few are kept alone here, whatever their length.
$node->append_conf('postgresql.conf', "pg_lock_history.min_duration = '100ms'\npg_lock_history.max_rows_per_second = 50\npg_lock_history.sample_period = '8ms'");
$node->reload;
$node->poll_query_until('postgres', q{SELECT value = '8ms' FROM lock_history.status() WHERE key = 'sample_period'}) or die 'not reloaded';
$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE books (part text, calls int, over int, ms float8)');

# Those that last at least so long are seen by a tick also when some come late.
my $SEEN = 50;

# watch(sessions): how long they waited in all until each has its answer, in ms, as
# far as pg_locks shows it again and again.
sub watch
{
	my @sessions = @_;
	my $eye = session('storm eye');
	settle($eye);
	my ($area, $then, $count) = (0, time, 0);
	while (grep { !$_->done } @sessions)
	{
		my $asked = time;
		$eye->send('SELECT count(*) FROM pg_locks WHERE NOT granted');
		settle($eye);
		my ($at, $now) = (($asked + time) / 2, $eye->rows->[0][0]);
		$area += 1000 * ($at - $then) * ($count + $now) / 2;
		($then, $count) = ($at, $now);
		my $select = IO::Select->new(map { $_->socket } grep { !$_->done } @sessions);
		my %of = map { fileno $_->socket => $_ } grep { !$_->done } @sessions;
		$of{ fileno $_ }->read for $select->can_read(0.01);
	}
	$eye->quit;
	return $area;
}

# sums(name, lock, let go, which waits, is each call one wait): the history against
# what sessions measured themselves and what pg_locks shows.
sub sums
{
	my ($name, $lock, $let_go, $which, $one_each) = @_;
	my @sessions = @crowd[ 0 .. 399 ];
	my $since = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$_->send(qq{do \$\$ declare until timestamptz := clock_timestamp() + '4 s'; began timestamptz; took float8; n int := 0; m int := 0; t float8 := 0;
		begin while clock_timestamp() < until loop began := clock_timestamp(); $lock; took := 1000 * extract(epoch from clock_timestamp() - began); $let_go;
			n := n + 1; t := t + took;
			if took >= $SEEN then m := m + 1; end if;
		end loop; insert into books values ('$name', n, m, t); end \$\$}) for @sessions;
	my $waiting_ms = watch(@sessions);
	LockHistory::flush($node);
	my ($calls, $over, $ms) = split /\|/, $node->safe_psql('postgres', "SELECT sum(calls), sum(over), sum(ms) FROM books WHERE part = '$name'");
	my ($merged, $merged_ms, $most) = split /\|/, $node->safe_psql('postgres', qq{
		WITH s AS (SELECT at, sum(waits) AS waits, sum(total_ms) AS ms FROM lock_history.short_waits WHERE at >= date_trunc('second', '$since'::timestamptz) AND $which GROUP BY at)
		SELECT sum(waits), sum(ms), max(waits) FROM s});
	my ($alone, $alone_ms, $rows) = split /\|/, $node->safe_psql('postgres', qq{
		WITH w AS (SELECT date_trunc('second', wait_end), count(*) AS waits, 1000 * sum(extract(epoch FROM duration)) AS ms FROM lock_history.waits WHERE wait_start >= '$since' AND $which GROUP BY 1)
		SELECT coalesce(sum(waits), 0), coalesce(sum(ms), 0), coalesce(max(waits), 0) FROM w});
	note(sprintf '%s: %d calls in %.0f ms, %d of them over %d ms, pg_locks saw waits of %.0f ms; merged %d of %.0f ms, up to %d a second; alone %d of %.0f ms, up to %d a second',
		$name, $calls, $ms, $over, $SEEN, $waiting_ms, $merged, $merged_ms, $most, $alone, $alone_ms, $rows);
	# Ended ones, those written as open at a flush, and again at the last flush.
	cmp_ok($rows, '<=', 3 * 50, "$name: few are kept alone");
	cmp_ok($merged, '>', 2 * $alone, "$name: the others are merged");
	my $total = $merged_ms + $alone_ms;
	ok($total > 0.85 * $waiting_ms && $total < 1.15 * $waiting_ms, sprintf '%s: in all they waited %.0f ms, as pg_locks says', $name, $total);
	cmp_ok($total, '<', $ms + 4 * ($merged + $alone), "$name: and not more than the sessions did");
	return if !$one_each;
	# But for calls that did not wait so long, and lost their CPU before or after it.
	cmp_ok($merged + $alone, '>=', 0.99 * $over, "$name: every wait that could be seen is counted");
	cmp_ok($merged + $alone, '<=', $calls, "$name: and none twice");
	return;
}
sums('advisory lock', 'perform pg_advisory_lock(1)', 'perform pg_advisory_unlock(1)', "locktype = 'advisory'", 1);
# An update waits for the tuple, then for the transaction, or not at all.
sums('hot row', 'update hot set v = v + 1 where id = 1', 'commit', "locktype IN ('tuple', 'transactionid')", 0);
is($node->safe_psql('postgres', 'SELECT sum(rows_dropped) FROM lock_history.health'), '0', 'nothing was dropped');
$_->quit for splice @crowd, 16;

# ---- the row that all want, again and again ----

$node->append_conf('postgresql.conf', "pg_lock_history.min_duration = 0\npg_lock_history.max_rows_per_second = 10000\npg_lock_history.sample_period = '10ms'");
$node->reload;
$node->poll_query_until('postgres', q{SELECT value = '10ms' FROM lock_history.status() WHERE key = 'sample_period'}) or die 'not reloaded';

my $began = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$_->send('do $$ begin for i in 1 .. 500 loop update hot set v = v + 1 where id = 1; commit; end loop; end $$') for @crowd;
settle(@crowd);
LockHistory::flush($node);
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.waits WHERE wait_start > '$began'"), '>', 20, 'a row that is fought over: there are waits to look at');
is($node->safe_psql('postgres', qq{SELECT count(*) FROM (SELECT wait_start, wait_end, backend_start, lag(wait_end) OVER (PARTITION BY pid ORDER BY wait_start, wait_end) AS before
	FROM lock_history.waits WHERE backend_start > '$began'::timestamptz - interval '10 min') AS w
	WHERE wait_start < backend_start OR wait_end < wait_start OR wait_start < before}), '0',
	'no wait begins before its process, ends before it begins, or begins before the one before has ended');
$_->quit for @crowd, $a;

# ---- nobody looks for three seconds ----

my $worker = LockHistory::worker_pid($node);
LockHistory::Cases::run($node,
	{
		name => 'sampler-gap',
		setup => 'create table orders (id int)',
		blind => 1,
		do => { stop => sub { kill STOP => $worker or die "stop: $!" }, go => sub { kill CONT => $worker or die "go on: $!" } },
		steps => q{
			0.0 A: begin; lock table orders
			0.5 B: select count(*) from orders                       -- waits
			1.0 C: select count(*) from orders                       -- waits
			2.0 do stop:
			2.5 S: select pg_cancel_backend({C})
			3.0 D: select count(*) from orders                       -- waits
			4.0 S: select pg_cancel_backend({D})
			5.0 do go:
			6.0 A: commit
		},
		waits => q{
			B | AccessShareLock | relation orders | hard A | soft - | root A | granted   | 5.4-5.6
			C | AccessShareLock | relation orders | hard A | soft - | root A | cancelled | 1.45-1.6
		},
		ask => [ [ 'the time is marked', q{SELECT reason, count(*) FROM lock_history.gaps WHERE ended - began BETWEEN '2.8 s' AND '4 s' AND reason = 'late' GROUP BY reason}, 'late|1' ],
			[ 'who came and gave up meanwhile is counted', q{SELECT sum(failed) FROM lock_history.short_waits}, '1' ] ],
	},
);
is(LockHistory::worker_pid($node), $worker, 'the same worker went on');

$node->stop;
done_testing();
