# Which page of which relation is waited for: pages held by a function of the
# test module, of every kind and of two databases, and a real load.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('pages', start => 0, settings => q{
autovacuum = off
shared_preload_libraries = 'pg_lock_history,plh_hold'});
$node->start;
my $functions = q{
	CREATE FUNCTION hold_page(regclass, integer, text, float8, text, integer) RETURNS void LANGUAGE c AS 'plh_hold';
	CREATE FUNCTION pin_page(regclass, integer, float8, text, integer) RETURNS void LANGUAGE c AS 'plh_hold';};
$node->safe_psql('postgres', qq{
	CREATE EXTENSION pg_lock_history;
	$functions
	CREATE TABLE hb (id int PRIMARY KEY, v int);
	INSERT INTO hb SELECT g, 0 FROM generate_series(1, 10) AS g;
	CREATE TABLE wide (id serial PRIMARY KEY, v text);
	ALTER TABLE wide ALTER v SET STORAGE external;
	INSERT INTO wide (v) VALUES (repeat('x', 10000));
	INSERT INTO wide (v) SELECT '' FROM generate_series(1, 2000);});
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', qq{$functions CREATE SCHEMA s; CREATE TABLE s."T" (i int); INSERT INTO s."T" VALUES (1)});
LockHistory::wait_until_recording($node);

# What load calls them.
my $events = LockHistory::major($node) < 19 ? q{'BufferContent', 'BufferPin'} : q{'BufferShared', 'BufferShareExclusive', 'BufferExclusive', 'BufferCleanup'};
# What is held stays so for this long after all wait who will.
my $held = 0.8;
my $marks = 0;

sub next_second
{
	my $begin = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
	$node->poll_query_until('postgres', qq{SELECT value::timestamptz >= '$begin' FROM lock_history.status() WHERE key = 'last_tick'});
	return $begin;
}

my %db = map { my $db = $_; $db => { map { $_ => LockHistory::session($node, $_, database => $db) } qw(a b c d) } } qw(postgres elsewhere);
my $toast = $node->safe_psql('postgres', q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'wide'::regclass});
my $last;
for my $case (
	# name, database, what is held, what the others do, how many rows as below
	[ 'all read first', 'postgres', q{hold_page('hb', 0, 'exclusive'},
		{ a => 'UPDATE hb SET v = 1 WHERE id = 1', b => 'UPDATE hb SET v = 1 WHERE id = 2', c => 'SELECT count(*) FROM hb' },
		'postgres|hb|public.hb|table|main|0|shared|3|1|0' ],
	[ 'only the writer waits', 'postgres', q{hold_page('hb', 0, 'shared'}, { a => 'UPDATE hb SET v = 1 WHERE id = 1', c => 'SELECT count(*) FROM hb' },
		'postgres|hb|public.hb|table|main|0|exclusive|1|0|1' ],
	[ 'the only leaf of an index', 'postgres', q{hold_page('hb_pkey', 1, 'exclusive'}, { a => 'SET enable_seqscan = off; SELECT v FROM hb WHERE id = 3' },
		'postgres|hb_pkey|only leaf of index public.hb_pkey|index|main|1|shared|1|1|0' ],
	[ 'the right-most leaf of an index', 'postgres', q{hold_page('wide_pkey', 7, 'exclusive'}, { a => q{INSERT INTO wide (v) VALUES ('')} },
		'postgres|wide_pkey|right-most leaf of index public.wide_pkey|index|main|7|exclusive|1|1|0' ],
	[ 'a leaf of an index', 'postgres', q{hold_page('wide_pkey', 1, 'exclusive'}, { a => 'SET enable_seqscan = off; SELECT v FROM wide WHERE id = 3' },
		'postgres|wide_pkey|leaf of index public.wide_pkey|index|main|1|shared|1|1|0' ],
	[ 'a sequence', 'postgres', q{hold_page('wide_id_seq', 0, 'exclusive'}, { a => q{SELECT nextval('wide_id_seq')} },
		'postgres|wide_id_seq|sequence public.wide_id_seq|sequence|main|0|exclusive|1|1|0' ],
	[ 'a toast table', 'postgres', qq{hold_page('$toast', 0, 'exclusive'}, { a => 'SELECT md5(v) FROM wide WHERE id = 1' },
		"postgres|$toast|toast table of public.wide|toast table|main|0|shared|1|1|0" ],
	[ 'a shared catalog', 'postgres', q{hold_page('pg_auth_members', 0, 'exclusive'}, { a => 'SET enable_indexonlyscan = off; SELECT * FROM pg_auth_members' },
		'-|pg_auth_members|pg_catalog.pg_auth_members|table|main|0|shared|1|1|0' ],
	[ 'another database', 'elsewhere', q{hold_page('s."T"', 0, 'exclusive'}, { a => 'SELECT * FROM s."T"' },
		'elsewhere|s."T"|s."T"|table|main|0|shared|1|1|0' ],
	[ 'a pin', 'postgres', q{pin_page('hb', 0}, { a => 'VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) hb' },
		'postgres|hb|public.hb|table|main|0|pin|1|-|-' ])
{
	my ($name, $db, $call, $others, $want) = @$case;
	# A busy machine lets the sampler miss a part of it.
	my ($since, $got);
	for my $try (1 .. 3)
	{
		$since = $last // next_second();
		my $mark = PostgreSQL::Test::Utils::tempdir_short() . '/m' . ++$marks;
		my $s = $db{$db};
		my $waiters = (split /\|/, $want)[7];
		$s->{d}->send("SELECT $call, $held, '$mark', $waiters)");
		LockHistory::until_true(sub { -e $mark }, "$call holds it");
		$s->{$_}->send($others->{$_}) for sort keys %$others;
		$s->{$_}->answer for 'd', sort keys %$others;
		$last = next_second();
		# OIDs as names, by whoever can
		my @rows = map { [ split /\|/, $_, -1 ] } split /\n/, LockHistory::history($node, qq{
			SELECT coalesce(datname, '-'), relation, object, kind, fork, block, mode, max(waiters_max),
			       coalesce(round(sum(held_exclusive * wait_ms)::numeric / sum(wait_ms)::numeric, 1)::text, '-'),
			       coalesce(round(sum(shared_holders_avg * wait_ms)::numeric / sum(wait_ms)::numeric)::text, '-')
			FROM lock_history.hot_pages WHERE at >= '$since' AND at < '$last'
			GROUP BY datname, relation, object, kind, fork, block, mode HAVING sum(wait_ms) BETWEEN 250 AND 3 * 1000 * ($held + 1)});
		for my $row (@rows)
		{
			$row->[1] = $node->safe_psql($db, "SELECT '$row->[1]'::oid::regclass") if $row->[1] ne '';
			$row->[8] = $row->[8] eq '-' ? '-' : $row->[8] > 0.8 ? 1 : $row->[8] < 0.2 ? 0 : $row->[8];
		}
		$got = join("\n", map { join '|', @$_ } @rows);
		last if $got eq $want;
		note "$name, try $try: $got";
	}
	is($got, $want, $name)
	  or diag(LockHistory::history($node, qq{SELECT p::text FROM lock_history.hot_pages AS p WHERE at >= timestamptz '$since' - interval '2 s'}),
		"\n", $node->safe_psql('postgres', qq{SELECT l::text FROM lock_history.load AS l WHERE at >= timestamptz '$since' - interval '2 s'}));
}
is(LockHistory::history($node, 'SELECT count(*) FROM lock_history.waits'), '0', 'no heavyweight wait was made of it');

# What may not be searched for is counted all the same.
for my $budget (0, 1)
{
	$node->append_conf('postgresql.conf', "pg_lock_history.hot_page_budget = $budget");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('pg_lock_history.hot_page_budget') = '$budget'");
	next_second();
	my $since = next_second();
	my $mark = PostgreSQL::Test::Utils::tempdir_short() . '/m' . ++$marks;
	my $s = $db{elsewhere};
	$s->{d}->run('CREATE TABLE IF NOT EXISTS cold (i int); INSERT INTO cold VALUES (1)');	# was not hot before
	$s->{d}->send("SELECT hold_page('cold', 0, 'exclusive', $held, '$mark', 1)");
	LockHistory::until_true(sub { -e $mark }, 'it is held');
	$s->{a}->run('SELECT * FROM cold');
	$s->{d}->answer;
	next_second();
	is(LockHistory::history($node, qq{SELECT coalesce(object, 'not found'), coalesce(block::text, '-'), sum(wait_ms) > 250 FROM lock_history.hot_pages WHERE at >= '$since' GROUP BY 1, 2}),
		$budget ? 'public.cold|0|t' : 'not found|-|t', "hot_page_budget = $budget");
}
$_->quit for map { values %$_ } values %db;

# Many clients that insert into one table.
my $script = PostgreSQL::Test::Utils::tempdir() . '/insert.sql';
append_to_file($script, "INSERT INTO ins (v) VALUES ('x');\n");
$node->safe_psql('postgres', 'CREATE TABLE public.ins (id bigserial PRIMARY KEY, v text)');
my $since = next_second();
my %share;
for (1 .. 10)
{
	# On a machine that is busy with something else they seldom meet.
	$node->command_ok([ 'pgbench', '-n', '-c', '64', '-j', '2', '-T', '5', '-f', $script, 'postgres' ], 'pgbench');
	next_second();
	%share = map { my ($object, $share) = split /\|/; $object => $share } split /\n/, LockHistory::history($node, qq{
		SELECT coalesce(object, 'not found'), sum(wait_ms) / sum(sum(wait_ms)) OVER () FROM lock_history.hot_pages WHERE at >= '$since' GROUP BY 1});
	last if ($share{'right-most leaf of index public.ins_pkey'} // 0) > 0.02 && ($share{'sequence public.ins_id_seq'} // 0) > 0.02;
}
note(join ', ', map { sprintf '%s %.3f', $_, $share{$_} } sort { $share{$b} <=> $share{$a} } keys %share);
cmp_ok($share{'right-most leaf of index public.ins_pkey'} // 0, '>', 0.02, 'the right-most leaf of the primary key');
cmp_ok($share{'sequence public.ins_id_seq'} // 0, '>', 0.02, 'and the sequence');
cmp_ok($share{'not found'} // 0, '<', 0.4, 'most waiters are placed');
is($node->safe_psql('postgres', qq{
	SELECT count(*) FROM (SELECT at, sum(aas) AS aas FROM lock_history.load WHERE wait_event IN ($events) GROUP BY 1) AS l
	FULL JOIN (SELECT at, sum(waiters_avg) AS waiters FROM lock_history.hot_pages GROUP BY 1) AS w ON w.at = l.at
	WHERE abs(coalesce(l.aas, 0) - coalesce(w.waiters, 0)) > 0.02}), '0', 'the rows of each second add up to its load');

is(LockHistory::history($node, qq{SELECT string_agg(DISTINCT tranche, ', '), bool_and(instance IS NULL), max(held_exclusive) > 0
	FROM lock_history.lwlocks WHERE at >= '$since' AND tranche LIKE 'Buffer%' AND tranche <> 'BufferMapping'}), 'BufferContent|t|t', 'lwlocks has them by one name');

# Without it load stays.
$node->append_conf('postgresql.conf', 'pg_lock_history.track_pages = off');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('pg_lock_history.track_pages') = 'off'});
next_second();
$since = next_second();
my $seen = '';
for (1 .. 10)
{
	$node->command_ok([ 'pgbench', '-n', '-c', '64', '-j', '2', '-T', '2', '-f', $script, 'postgres' ], 'pgbench');
	next_second();
	$seen = LockHistory::history($node, qq{SELECT (SELECT count(*) FROM lock_history.hot_pages WHERE at >= '$since'),
		(SELECT sum(aas) > 0.1 FROM lock_history.load WHERE at >= '$since' AND wait_event IN ($events))});
	last if $seen =~ /t$/;
}
is($seen, '0|t', 'track_pages = off');
$node->stop;
done_testing();
