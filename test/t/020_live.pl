# Who waits now, out of shared memory: the same tree as the history's, within a
# second, in any database, for those who may see it, also when the worker is
# dead; and the last waits that ended, as many as fit.
use strict;
use warnings FATAL => 'all';
use utf8;
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $mask = '<insufficient privilege>';
my $node = LockHistory::cluster('live',
	settings => "pg_lock_history.shared_memory = '1MB'\npg_lock_history.query_length = '16kB'\n"
	  . "track_activity_query_size = '16kB'\nmax_prepared_transactions = 5",
	init => [ auth_extra => [ '--create-role', 'alice,bob,watcher' ] ],
	new => [ defined LockHistory::fault_install() ? (install_path => LockHistory::fault_install()) : () ]);
$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE TABLE public.t (i int); GRANT ALL ON t TO alice;
	CREATE TABLE public.u (i int);
	GRANT USAGE ON SCHEMA lock_history TO alice, bob;
	GRANT SELECT ON lock_history.blocking_now TO alice, bob;
	GRANT EXECUTE ON FUNCTION lock_history.recent_waits(), lock_history.live_rows(boolean, boolean),
		lock_history.forest(integer[], integer[], integer[], integer) TO alice, bob});
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'SET client_min_messages = error; CREATE EXTENSION pg_lock_history');

sub sql { my ($query, $database) = @_; return $node->safe_psql($database // 'postgres', $query); }

sub as
{
	my ($role, $query) = @_;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $query, extra_params => [ '-U', $role ]);
	return $rc == 0 ? $stdout : $stderr;
}

# All that both trees say; how long it has waited and when it was looked at apart.
my $tree = 'level, path, pid, gid, backend_start, backend_type, blocked_by, root_pid, kind, in_cycle, state, datname, usename,
	application_name, xact_start, locktype, mode, object, query, collapsed_count, client_addr, wait_id, members';
my $wait = 'node, wait_id, pid, backend_start, leader_pid, backend_type, datname, usename, application_name, client_addr, query_id,
	query, query_start, xact_start, locktype, mode, object, database, relation, page, tuple, virtualxid, transactionid, classid,
	objid, objsubid, wait_start, wait_end, granted, outcome, hard_blockers, soft_blockers, root_blockers, hard_blocker_count,
	soft_blocker_count, object_datname, in_cycle';
my $now = "SELECT $tree FROM lock_history.blocking_now ORDER BY path";
my $history = "SELECT $tree FROM lock_history.blocking_tree_at(now()) ORDER BY path";

# Names that were not known yet appear with the next walk.
sub until_shown
{
	my ($waiters, $database) = @_;
	$node->poll_query_until($database // 'postgres', "SELECT count(wait_id) = $waiters AND bool_and(usename IS NOT NULL AND coalesce(object, '') !~ '^relation [0-9]')
		AND (SELECT count(object_datname) = $waiters FROM lock_history.recent_waits() WHERE wait_end IS NULL) FROM lock_history.blocking_now")
	  or die "never $waiters waiters";
	return;
}

sub until_nobody_waits
{
	$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM lock_history.blocking_now') or die 'somebody waits for ever';
	return;
}

# ---- a forgotten transaction, an ALTER TABLE behind it, readers behind the ALTER ----

is(sql($now), '', 'nobody waits');
my $holder = LockHistory::session($node, 'holder');
my $alter = LockHistory::session($node, 'alter');
my %reader = (alice => LockHistory::session($node, 'alice', user => 'alice'), dba => LockHistory::session($node, 'dba'));
$holder->run("BEGIN; SELECT count(*), 'of the dba' FROM t");
$alter->send('ALTER TABLE t ADD COLUMN j int');
LockHistory::wait_until_waiting($node, $alter);
$node->poll_query_until('postgres', 'SELECT count(*) = 2 FROM lock_history.blocking_now');
is(sql("SELECT clock_timestamp() - waitstart < '1 s' FROM pg_locks WHERE pid = " . $alter->pid . ' AND NOT granted'), 't', 'shown within a second');
for my $name (qw(alice dba))
{
	$reader{$name}->send("SELECT count(*), 'read by $name' FROM t");
	LockHistory::wait_until_waiting($node, $reader{$name});
}
until_shown(3);
LockHistory::flush($node);
my $shown = sql($now);
is($shown, sql($history), 'blocking_now is blocking_tree_at(now())');
my %pid = (h => $holder->pid, a => $alter->pid, alice => $reader{alice}->pid, dba => $reader{dba}->pid);
is(sql('SELECT level, pid, root_pid, kind, blocked_by, mode, object FROM lock_history.blocking_now'),
	join("\n", "0|$pid{h}|$pid{h}||{}||", "1|$pid{a}|$pid{h}|hard|{$pid{h}}|AccessExclusiveLock|public.t",
		"2|$pid{alice}|$pid{h}|soft|{$pid{a}}|AccessShareLock|public.t", "2|$pid{dba}|$pid{h}|soft|{$pid{a}}|AccessShareLock|public.t"),
	'in the order in which it is to be read');
is(sql($now, 'other'), $shown, 'the same in another database');
is(sql("SELECT bool_and(waited BETWEEN now() - l.waitstart - interval '1 s' AND now() - l.waitstart + interval '10 s'), bool_and(now() - taken_at < '1 s')
	FROM lock_history.blocking_now AS b JOIN pg_locks AS l ON l.pid = b.pid AND NOT l.granted", 'other'), 't|t', 'waited, and when it was looked at');
is(sql('SELECT count(*) FROM lock_history.blocking_now WHERE waited IS NULL'), '1', 'who does not wait has not waited');
is(sql("SELECT $wait FROM lock_history.recent_waits() ORDER BY wait_start"), sql("SELECT $wait FROM lock_history.waits ORDER BY wait_start"),
	'recent_waits() has the waits that go on');

# ---- who sees what ----

my $queries = 'SELECT query FROM lock_history.blocking_now ORDER BY path';
is(as('bob', $queries), join("\n", ($mask) x 4), 'a reader sees masks');
like(as('alice', $queries), qr/^\Q$mask\E\n\Q$mask\E\n(?:\Q$mask\E\n.*read by alice.*|.*read by alice.*\n\Q$mask\E)$/, 'and what is its own');
my $all = as('watcher', $queries);
like($all, qr/of the dba.*ALTER TABLE.*read by alice.*read by dba/s, 'pg_monitor sees all');
is(as('bob', 'SELECT count(*), count(query_id), count(client_addr), count(*) FILTER (WHERE query <> ' . "'$mask') FROM lock_history.recent_waits()"), '3|0|0|0', 'recent_waits() masks, too');
# A reader waits before its statement has an identifier, the ALTER after.
is(as('watcher', 'SELECT count(*), count(query_id) > 0, count(query) FROM lock_history.recent_waits()'), '3|t|3', '... and shows');

# ---- no lock but those of the objects named ----

my $relations = q{SELECT string_agg(coalesce(relation::regclass::text, locktype), ' ' ORDER BY relation::regclass::text) FROM pg_locks
	WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid'};
is(sql("BEGIN; DO 'BEGIN PERFORM FROM lock_history.blocking_now; END'; $relations"), 'lock_history.blocking_now pg_locks', 'blocking_now takes one lock');
is(sql("BEGIN; DO 'BEGIN PERFORM FROM lock_history.recent_waits(); END'; $relations"), 'pg_locks', 'recent_waits() takes none');

# ---- the end ----

$holder->run('COMMIT');
$alter->answer;
$_->answer for values %reader;
until_nobody_waits();
is(sql('SELECT count(*) FROM lock_history.recent_waits() WHERE wait_end IS NOT NULL', 'other'), '3', 'the ended waits are there');
LockHistory::flush($node);
is(sql("SELECT $wait, duration, samples FROM lock_history.recent_waits() ORDER BY wait_start"), sql("SELECT $wait, duration, samples FROM lock_history.waits ORDER BY wait_start"),
	'recent_waits() is waits');

# ---- prepared transactions, and a deadlock in the making ----

sql(q{BEGIN; LOCK TABLE u IN ROW SHARE MODE; PREPARE TRANSACTION 'one'});
sql(q{BEGIN; LOCK TABLE t; PREPARE TRANSACTION 'two'});
$alter->send('ALTER TABLE u ADD COLUMN j int');
LockHistory::wait_until_waiting($node, $alter);
$reader{dba}->send('SELECT count(*) FROM t');
LockHistory::wait_until_waiting($node, $reader{dba});
until_shown(2);
$node->poll_query_until('postgres', 'SELECT count(gid) = 2 FROM lock_history.blocking_now');
LockHistory::flush($node);
is(sql('SELECT gid, pid < 0, state, blocked_by, waited IS NULL FROM lock_history.blocking_now WHERE level = 0 ORDER BY gid'),
	"one|t|prepared|{}|t\ntwo|t|prepared|{}|t", 'prepared transactions by name');
(my $unnumbered = $tree) =~ s/\b(?:path|pid|blocked_by|root_pid), //g; # there the order may be another
is(sql("SELECT $unnumbered FROM lock_history.blocking_now ORDER BY gid, wait_id"), sql("SELECT $unnumbered FROM lock_history.blocking_tree_at(now()) ORDER BY gid, wait_id"), 'as in the history');
is(sql("SELECT $wait FROM lock_history.recent_waits() WHERE wait_end IS NULL ORDER BY wait_start"), sql("SELECT $wait FROM lock_history.waits WHERE wait_end IS NULL ORDER BY wait_start"), '... and in waits');
sql(q{COMMIT PREPARED 'one'});
sql(q{COMMIT PREPARED 'two'});
$_->answer for $alter, $reader{dba};

$alter->run(q{SET deadlock_timeout = '1 h'; BEGIN; SELECT pg_advisory_xact_lock(1)});
$reader{dba}->run(q{SET deadlock_timeout = '1 h'; BEGIN; SELECT pg_advisory_xact_lock(2)});
$alter->send('SELECT pg_advisory_xact_lock(2)');
$reader{dba}->send('SELECT pg_advisory_xact_lock(1)');
LockHistory::wait_until_waiting($node, $alter, $reader{dba});
$node->poll_query_until('postgres', 'SELECT count(*) = 3 AND bool_and(in_cycle) FROM lock_history.blocking_now') or fail('no cycle');
LockHistory::flush($node);
is(sql($now), sql($history), 'a cycle comes round as in the history');
sql('SELECT pg_cancel_backend(' . $alter->pid . ')');
$alter->answer;
$alter->run('ROLLBACK');
$reader{dba}->answer;
$reader{dba}->run('ROLLBACK');
until_nobody_waits();
LockHistory::flush($node);
my $last = "SELECT pid, granted, outcome FROM %s WHERE pid IN ($pid{a}, $pid{dba}) ORDER BY wait_start DESC LIMIT 2";
is(sql(sprintf $last, 'lock_history.recent_waits()'), "$pid{dba}|t|granted\n$pid{a}|f|cancelled", 'how they ended');
is(sql(sprintf $last, 'lock_history.waits'), "$pid{dba}|t|granted\n$pid{a}|f|cancelled", '... as in the history');

# ---- a parallel query that waits is one session; a row is told with its transaction ----

sql(q{CREATE TABLE big WITH (parallel_workers = 2) AS SELECT g AS id FROM generate_series(1, 3000) AS g; ANALYZE big;
	CREATE FUNCTION pass(i int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN PERFORM FROM u; RETURN i; END $$});
$holder->run('BEGIN; LOCK TABLE u');
$reader{dba}->run('SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
$reader{dba}->send('SELECT sum(pass(id)) FROM big');
$node->poll_query_until('postgres', "SELECT count(wait_id) = 3 FROM lock_history.recent_waits() WHERE wait_end IS NULL AND $pid{dba} IN (pid, leader_pid)") or fail('no parallel query');
LockHistory::flush($node);
is(sql("SELECT level, pid = $pid{dba}, cardinality(members), backend_type, collapsed_count FROM lock_history.blocking_now"), "0|f||client backend|\n1|t|2|client backend|", 'leader and workers are one row');
is(sql($now), sql($history), 'as in the history');
is(sql("SELECT $wait FROM lock_history.recent_waits() WHERE wait_end IS NULL ORDER BY wait_id"), sql("SELECT $wait FROM lock_history.waits WHERE wait_end IS NULL ORDER BY wait_id"), '... and each is a wait of its own');
$holder->run('COMMIT');
$reader{dba}->answer;
until_nobody_waits();

sql('INSERT INTO t (i) VALUES (1)');
$holder->run('BEGIN; UPDATE t SET i = 2');
$alter->send('UPDATE t SET i = 3');
LockHistory::wait_until_waiting($node, $alter);
$node->poll_query_until('postgres', q{SELECT object ~ ', tuple' FROM lock_history.blocking_now WHERE level = 1}) or fail('no row');
LockHistory::flush($node);
like(sql('SELECT object FROM lock_history.blocking_now WHERE level = 1'), qr/^transaction \d+ \(pid $pid{h}\), tuple \(0,1\) of public\.t$/, 'a transaction with its session and its row');
is(sql($now), sql($history), 'as in the history');
is(sql("SELECT $wait FROM lock_history.recent_waits() WHERE wait_end IS NULL"), sql("SELECT $wait FROM lock_history.waits WHERE wait_end IS NULL"), '... and in waits');
$holder->run('ROLLBACK');
$alter->answer;
until_nobody_waits();

# ---- more ended waits than fit ----

my $text = 'x' x 15_000;
my @many = map { LockHistory::session($node, "many$_") } 1 .. 8;
for my $round (1 .. 6)
{
	$holder->run("BEGIN; SELECT pg_advisory_xact_lock($round)");
	$_->send("SELECT pg_advisory_xact_lock_shared($round), '$text'") for @many;
	LockHistory::wait_until_waiting($node, @many);
	$node->poll_query_until('postgres', 'SELECT count(wait_id) = 8 FROM lock_history.blocking_now') or die 'not all wait';
	$holder->run('COMMIT');
	$_->answer for @many;
	until_nobody_waits();
}
LockHistory::flush($node);
my $waits = sql('SELECT count(*) FROM lock_history.waits');
my $kept = sql('SELECT count(*) FROM lock_history.recent_waits()');
cmp_ok($kept, '<', 29, "two fifths of a megabyte hold $kept waits of 15 kB");
cmp_ok($kept, '>', 20, '... and no fewer than fit');
is(sql("SELECT $wait FROM lock_history.recent_waits() ORDER BY wait_end DESC, wait_id"),
	sql("SELECT $wait FROM lock_history.waits WHERE wait_id IN (SELECT wait_id FROM lock_history.recent_waits()) ORDER BY wait_end DESC, wait_id"), 'as they are in the history');
is(sql('SELECT min(wait_end) >= (SELECT wait_end FROM lock_history.waits ORDER BY wait_end DESC OFFSET ' . ($kept - 1) . ' LIMIT 1) FROM lock_history.recent_waits()'), 't', 'the newest are kept');
is(LockHistory::status($node, 'live_waits'),
	sql("SELECT '$kept that ended since ' || min(wait_end) || ', ' || $waits - $kept || ' overwritten' FROM lock_history.recent_waits()"), 'status() counts them');
$_->quit for @many;

# ---- texts that this or that database cannot hold ----

sql("CREATE DATABASE $_->[0] ENCODING $_->[1] LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0") for [ 'latin1', 'LATIN1' ], [ 'ascii', 'SQL_ASCII' ];
sql('SET client_min_messages = error; CREATE EXTENSION pg_lock_history', $_) for qw(latin1 ascii);
my @foreign;
for my $database (qw(latin1 ascii postgres))
{
	push @foreign, my $first = LockHistory::session($node, "first $database", database => $database);
	push @foreign, my $second = LockHistory::session($node, "second $database", database => $database);
	$_->run("SET client_encoding = 'UTF8'") for $first, $second;
	utf8::encode(my $statement = qq{BEGIN; CREATE TABLE "t\x{e4}ble" (i int); SELECT pg_advisory_xact_lock(1), 'caf\x{e9}'});
	$first->run($statement);
	utf8::encode($statement = qq{SELECT pg_advisory_xact_lock(1), '\x{fc}ber'});
	$second->send($statement);
	LockHistory::wait_until_waiting($node, $second);
}
until_shown(3);
for my $database (qw(postgres latin1 ascii other))
{
	is(sql(q{SELECT count(*), count(DISTINCT datname), bool_and(query ~ 'pg_advisory_xact_lock') FROM lock_history.blocking_now}, $database), '6|3|t', "blocking_now in $database");
	is(sql('SELECT count(*) > 20 FROM lock_history.recent_waits()', $database), 't', "recent_waits() in $database");
}
is(sql(q{SELECT datname, query ~ 'ü' FROM lock_history.blocking_now WHERE datname <> 'latin1' AND level = 1 ORDER BY 1}), "ascii|t\npostgres|t", 'what is UTF-8 stays');
is(sql(q{SELECT query ~ '\\\\xFC' FROM lock_history.blocking_now WHERE datname = 'latin1' AND level = 1}), 't', 'what is not is shown by its bytes');
$foreign[$_]->run('ROLLBACK') for 0, 2, 4;
$foreign[$_]->answer for 1, 3, 5;
$_->quit for @foreign;
until_nobody_waits();

# ---- the worker's death ----

my %death = (terminated => sub { sql('SELECT pg_terminate_backend(' . LockHistory::worker_pid($node) . ')') });
$death{'killed by its runtime'} = sub {
	my $file = $node->data_dir . '/pg_lock_history_fault';
	append_to_file("$file.new", "goroutine-panic\n");
	rename "$file.new", $file or die "rename: $!";
} if defined LockHistory::fault_install();

$holder->run('BEGIN; LOCK TABLE u');
$alter->send('SELECT FROM u');
LockHistory::wait_until_waiting($node, $alter);
until_shown(1);
my $id = sql('SELECT wait_id FROM lock_history.recent_waits() WHERE wait_end IS NULL');
for my $how (sort keys %death)
{
	my $pid = LockHistory::worker_pid($node);
	$death{$how}->();
	# All in one look, since a second later the next worker is there; and only when
	# it has been seen dead before, for the parts of a statement are read one by one.
	my $seen;
	LockHistory::until_true(sub {
		$seen = sql("SELECT value FROM lock_history.status() WHERE key = 'state'; SELECT state.value, count(*), max(b.wait_id), bool_and(b.waited = b.taken_at - l.waitstart), bool_and(b.taken_at = as_of.value::timestamptz),
				(SELECT count(*) > 20 FROM lock_history.recent_waits())
			FROM lock_history.status() AS state, lock_history.status() AS as_of, lock_history.blocking_now AS b
			LEFT JOIN pg_locks AS l ON l.pid = b.pid AND NOT l.granted
			WHERE state.key = 'state' AND as_of.key = 'live_as_of' GROUP BY state.value");
		return $seen =~ s/^not running\n//; }, "the worker is seen dead ($how)");
	is($seen, "not running|2|$id|t|t|t", "$how: graph and ended waits are there, and say how old they are");
	my $died = sql('SELECT clock_timestamp()');
	LockHistory::next_worker_pid($node, $pid);
	$node->poll_query_until('postgres', "SELECT count(wait_id) = 1 AND max(wait_id) = $id AND bool_and(taken_at > '$died') FROM lock_history.blocking_now")
	  or fail("$how: the next worker does not publish");
}
$holder->run('COMMIT');
$alter->answer;
until_nobody_waits();
is(sql("SELECT count(*) FROM lock_history.recent_waits() WHERE wait_id = $id AND outcome = 'granted'"), '1', 'the wait is one wait over all these lives');
LockHistory::wait_until_recording($node);
is(LockHistory::history($node, "SELECT count(*) FROM lock_history.waits WHERE wait_id = $id"), '1', '... in the history, too');

# A new server knows nothing.
$_->quit for $holder, $alter, values %reader;
$node->restart;
LockHistory::wait_until_recording($node);
is(sql('SELECT count(*) FROM lock_history.recent_waits()'), '0', 'a restart clears it');
like(LockHistory::status($node, 'live_waits'), qr/^none, 0 overwritten$/, '... and the counts');
$node->stop;

# ---- without preload ----

my $bare = LockHistory::cluster('bare', preload => 0, extension => 0);
$bare->safe_psql('postgres', 'SET client_min_messages = error; CREATE EXTENSION pg_lock_history');
for my $what ('FROM lock_history.blocking_now', 'FROM lock_history.recent_waits()')
{
	my ($rc, $out, $err) = $bare->psql('postgres', "SELECT * $what");
	like($err, qr/not loaded by the server.*\nHINT:.*shared_preload_libraries/, "$what says what is missing");
}
is($bare->safe_psql('postgres', q{SELECT count(*) FROM lock_history.status() WHERE key LIKE 'live%'}), '0', 'status() has nothing to say of it');
$bare->stop;
done_testing();
