# Which LWLock is waited for, in which mode, and what stands ahead: each kind
# held by a function of the test module, and a real load that adds up to what
# load says.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('lwlocks', start => 0, settings => q{
autovacuum = off
max_locks_per_transaction = 16
shared_preload_libraries = 'pg_lock_history,plh_hold'});
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION pg_lock_history;
	CREATE FUNCTION hold_lwlock(text, integer, text, float8, text, integer) RETURNS void LANGUAGE c AS 'plh_hold';
	CREATE FUNCTION hold_fast_path(integer, float8, text, integer) RETURNS void LANGUAGE c AS 'plh_hold';
	CREATE FUNCTION lock_partition(regclass) RETURNS integer LANGUAGE c AS 'plh_hold';
	CREATE TABLE hb (id int PRIMARY KEY, v int);
	INSERT INTO hb SELECT g, 0 FROM generate_series(1, 10) AS g;
	CREATE TABLE wide (a int PRIMARY KEY, b int);
	DO $$ BEGIN FOR i IN 1 .. 20 LOOP EXECUTE format('CREATE INDEX ON wide (b, a)'); END LOOP; END $$});
LockHistory::wait_until_recording($node);
my $partition = $node->safe_psql('postgres', q{SELECT lock_partition('wide')});

my %s = map { $_ => LockHistory::session($node, $_) } qw(a d e);
my $marks = 0;

# What is held stays so for this long after somebody waits; nothing that a query could wait for
# would be seen before.
my $held = 0.7;

# hold(session, call without its last three arguments): returns when it is held
sub hold
{
	my ($session, $call) = @_;
	my $mark = PostgreSQL::Test::Utils::tempdir_short() . '/m' . ++$marks;
	$session->send("SELECT $call, $held, '$mark', 1)");
	LockHistory::until_true(sub { -e $mark }, "$call holds it");
	return;
}


# Everything of a case lies between two full seconds; the last one is complete
# when one after it has begun.
sub next_second
{
	my $begin = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
	$node->poll_query_until('postgres', qq{SELECT value::timestamptz >= '$begin' FROM lock_history.status() WHERE key = 'last_tick'});
	return $begin;
}

# Warm, so that a case waits for nothing else.
$s{$_}->run(q{SELECT count(*) FROM hb; SELECT count(*) FROM wide WHERE a = 1; SELECT lock_partition('hb'); SELECT hold_lwlock('plh_hold', 0, 'shared', 0, '/dev/null', 0)}) for sort keys %s;
$s{$_}->run(q{BEGIN; INSERT INTO hb VALUES (-1, 0); ROLLBACK}) for sort keys %s;

my $last;
# 21 locks; with the setting above the fast path holds 16 in every version.
my $query20 = 'SELECT count(*) FROM wide WHERE a = 1';
for my $case (
	# name, [who holds what], what a does, [tranche, instance, mode, held exclusively, holders]
	[ 'XidGen', [ d => q{hold_lwlock('XidGen', 0, 'exclusive'} ], 'BEGIN; INSERT INTO hb VALUES (100, 0); ROLLBACK',
		[ 'XidGen', 'only one', 'exclusive', 1, 0 ] ],
	[ 'BufferMapping', [ d => q{hold_lwlock('BufferMapping', -1, 'exclusive'} ], 'SELECT count(*) FROM hb',
		[ 'BufferMapping', qr/^partition (?:\d|\d\d|1[01]\d|12[0-7])$/, 'shared', 1, 0 ] ],
	# From 17 on they are many, and only the server knows where.
	LockHistory::major($node) >= 17 ? () : (
	[ 'XactSLRU', [ d => q{hold_lwlock('XactSLRU', 0, 'exclusive'} ], 'INSERT INTO hb VALUES (101, 0)',
		[ 'XactSLRU', 'only one', 'exclusive', 1, 0 ] ],
	[ 'SubtransSLRU', [ d => q{hold_lwlock('SubtransSLRU', 0, 'exclusive'} ], 'BEGIN; SAVEPOINT a; INSERT INTO hb VALUES (102, 0); COMMIT',
		[ 'SubtransSLRU', 'only one', 'exclusive', 1, 0 ] ]),
	[ 'LockManager, all, exclusive', [ d => q{hold_lwlock('LockManager', -1, 'exclusive'} ], $query20,
		[ 'LockManager', qr/^partition (?:\d|1[0-5])$/, 'exclusive', 1, 0 ] ],
	[ 'LockManager, all, shared', [ d => q{hold_lwlock('LockManager', -1, 'shared'} ], $query20,
		[ 'LockManager', qr/^partition (?:\d|1[0-5])$/, 'exclusive', 0, 1 ] ],
	[ 'LockManager, one partition', [ d => qq{hold_lwlock('LockManager', $partition, 'exclusive'} ], 'BEGIN; LOCK TABLE wide IN SHARE MODE; ROLLBACK',
		[ 'LockManager', "partition $partition", 'exclusive', 1, 0 ] ],
	[ 'fast path', [ d => 'hold_fast_path(' . $s{a}->pid ], 'SELECT count(*) FROM hb',
		[ 'LockFastPath', 'fast path of pid ' . $s{a}->pid, 'exclusive', 1, 0 ] ],
	[ 'a lock of an extension', [ d => q{hold_lwlock('plh_hold', 1, 'exclusive'} ], q{SELECT hold_lwlock('plh_hold', 1, 'shared', 0, '/dev/null', 0)},
		[ 'plh_hold', 'lock 1', 'shared', 1, 0 ] ],
	[ 'two holders', [ d => q{hold_lwlock('plh_hold', 2, 'shared'}, e => q{hold_lwlock('plh_hold', 2, 'shared'} ], q{SELECT hold_lwlock('plh_hold', 2, 'exclusive', 0, '/dev/null', 0)},
		[ 'plh_hold', 'lock 2', 'exclusive', 0, 2 ] ])
{
	my ($name, $holders, $sql, $want) = @$case;
	my ($tranche, $instance, $mode, $exclusive, $shared) = @$want;
	# A busy machine lets the sampler miss a part of it.
	my @rows;
	for my $try (1 .. 3)
	{
		my $since = $last // next_second();
		my @holders = @$holders;
		while (my ($who, $call) = splice @holders, 0, 2) { hold($s{$who}, $call); }
		$s{a}->run($sql);
		$_->answer for @s{qw(d e)};
		my $until = $last = next_second();
		@rows = map { [ split /\|/, $_, -1 ] } split /\n/, LockHistory::history($node, qq{
			SELECT instance, mode, round(sum(wait_ms)), max(waiters_max), round(sum(held_exclusive * wait_ms)::numeric / sum(wait_ms)::numeric, 1),
			       round(sum(shared_holders_avg * wait_ms)::numeric / sum(wait_ms)::numeric, 1), sum(waits)
			FROM lock_history.lwlocks WHERE tranche = '$tranche' AND at >= '$since' AND at < '$until'
			GROUP BY instance, mode HAVING sum(wait_ms) > 250});
		last if @rows == 1 && $rows[0][6] eq '1';
		note "$name, try $try: ", explain(\@rows);
	}
	is(scalar @rows, 1, "$name: one lock was waited for") or diag(explain(\@rows));
	my $row = $rows[0] // [ ('') x 7 ];
	like($row->[0], ref $instance ? $instance : qr/^\Q$instance\E$/, '... this one');
	is($row->[1], $mode, "... $mode");
	cmp_ok($row->[2], '<=', 1000 * $held + 500, '... not longer than it was held');
	is($row->[3], '1', '... by one');
	# the two holders come one after the other
	cmp_ok(abs($row->[4] - $exclusive), '<=', 0.2, '... held exclusively or not');
	cmp_ok(abs($row->[5] - $shared), '<=', 0.5, '... or shared, by so many');
	is($row->[6], '1', '... once');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.waits'), '0', 'no heavyweight wait was made of it');

# How long they were. What began between the two samples before it was held is
# 10 ms more or less.
$s{a}->run('SELECT pg_sleep(0.3)');
next_second();
is(LockHistory::history($node, q{SELECT DISTINCT wait_event_type, wait_event, lower_ms, upper_ms, abs(total_ms / waits - CASE wait_event WHEN 'PgSleep' THEN 300 ELSE 700 END) < 200
	FROM lock_history.wait_histogram WHERE wait_event IN ('XidGen', 'plh_hold') AND lower_ms = 512 OR wait_event = 'PgSleep' AND lower_ms > 128 ORDER BY 2}),
	"Timeout|PgSleep|256|512|t\nLWLock|XidGen|512|1024|t\nLWLock|plh_hold|512|1024|t", 'lengths of waits');

# A load of many clients: the second's LWLock part of load, by event and mode. In
# version 19 load has the waits for pages under other names.
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.load WHERE (lwlock_mode IS NULL) <> (wait_event_type <> 'LWLock' AND wait_event NOT LIKE 'Buffer%')}),
	'0', 'LWLocks have a mode, and nothing else');
my $since = next_second();
$node->command_ok([ 'pgbench', '-n', '-i', '-q', '-s', '1', 'postgres' ], 'pgbench -i');
$node->command_ok([ 'pgbench', '-n', '-N', '-c', '16', '-j', '2', '-T', '4', 'postgres' ], 'pgbench -N');
next_second();
is(LockHistory::history($node, q{
	SELECT count(*) FROM (SELECT at, CASE wait_event_type WHEN 'LWLock' THEN wait_event ELSE 'BufferContent' END AS tranche, lwlock_mode, sum(aas) AS aas
	                      FROM lock_history.load WHERE lwlock_mode IS NOT NULL GROUP BY 1, 2, 3) AS l
	FULL JOIN (SELECT at, tranche, mode, sum(waiters_avg) AS waiters FROM lock_history.lwlocks GROUP BY 1, 2, 3) AS w
	       ON w.at = l.at AND w.tranche = l.tranche AND w.mode = l.lwlock_mode
	WHERE abs(coalesce(l.aas, 0) - coalesce(w.waiters, 0)) > 0.02}), '0', 'the rows of each second add up to its load');
my ($load, $seen, $profile, $share) = split /\|/, $node->safe_psql('postgres', q{
	SELECT (SELECT sum(aas) FROM lock_history.load WHERE lwlock_mode IS NOT NULL), (SELECT sum(waiters_avg) FROM lock_history.lwlocks),
	       (SELECT sum(wait_ms) FROM lock_history.lwlock_profile()) / 1000, (SELECT sum(share) FROM lock_history.lwlock_profile())});
cmp_ok($load, '>', 2, 'there was some');
cmp_ok(abs($seen / $load - 1), '<', 0.02, "as in load: $seen of $load");
cmp_ok(abs($profile / $load - 1), '<', 0.05, 'so is the profile') or diag("$profile of $load");
cmp_ok(abs($share - 1), '<', 1e-9, 'the shares are those of all');
is($node->safe_psql('postgres', qq{SELECT count(*) FROM lock_history.lwlock_profile('$since') WHERE tranche IN ('XidGen', 'plh_hold') AND wait_ms > 250}), '0',
	'the profile of a range has nothing of before');

# Without it load stays.
$node->append_conf('postgresql.conf', 'pg_lock_history.track_lwlocks = off');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('pg_lock_history.track_lwlocks') = 'off'});
$since = next_second();
$since = next_second();
hold($s{d}, q{hold_lwlock('plh_hold', 1, 'exclusive'});
$s{a}->run(q{SELECT hold_lwlock('plh_hold', 1, 'shared', 0, '/dev/null', 0)});
$s{d}->answer;
next_second();
is(LockHistory::history($node, qq{SELECT (SELECT count(*) FROM lock_history.lwlocks WHERE at >= '$since'),
	(SELECT sum(aas) > 0.3 FROM lock_history.load WHERE at >= '$since' AND wait_event = 'plh_hold')}), '0|t', 'track_lwlocks = off');
$_->quit for values %s;
$node->stop;
done_testing();
