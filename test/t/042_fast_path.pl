# The fast path: exact numbers of slots and of what found none, the statement
# behind it, and the advice; a table with 101 indexes under pgbench -S.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

# 16 slots on every version: from 18 on they follow the setting.
my $node = LockHistory::cluster('fast_path', settings => q{
max_locks_per_transaction = 16
autovacuum = off
log_statement = none
pg_lock_history.flush_period = '200ms'});

$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(lab near bench);
$node->safe_psql('lab', q{
	CREATE TABLE fp(a int PRIMARY KEY, b int);
	DO $$ BEGIN FOR i IN 1..20 LOOP EXECUTE format('CREATE INDEX fp%s ON fp(b, a)', i); END LOOP; END $$;
	CREATE TABLE pt(k int, v int) PARTITION BY RANGE (k);
	DO $$ BEGIN FOR i IN 0..39 LOOP
		EXECUTE format('CREATE TABLE pt%s PARTITION OF pt FOR VALUES FROM (%s) TO (%s)', i, i*10, i*10+10);
	END LOOP; END $$;});
$node->safe_psql('near', q{
	CREATE TABLE n(a int PRIMARY KEY);
	DO $$ BEGIN FOR i IN 1..9 LOOP EXECUTE format('CREATE INDEX n%s ON n(a)', i); END LOOP; END $$;});

# The advice as sentences, of lines that were folded.
sub advice
{
	my ($range) = @_;
	return $node->safe_psql('postgres', "SELECT lock_history.fast_path_advice($range)") =~ s/\n  / /gr;
}

# Somebody with over half of the slots in use: seconds are told, whatever the
# others do. Our own reading is in another database.
my $near = LockHistory::session($node, 'near', database => 'near');
$near->run('BEGIN; SELECT count(*) FROM n WHERE a = 1');

my $s = LockHistory::session($node, 'a', database => 'lab');

# What is told of database lab in the first second that begins after now.
sub seen_of_lab
{
	my $since = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
	$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM lock_history.fast_path WHERE datname = 'near' AND at >= '$since')")
	  or die "nothing was seen after $since";
	return $node->safe_psql('postgres', qq{
		SELECT l.sessions, l.slots_max, l.slots_available, l.sessions_full, coalesce(l.spilled_locks_max::text, '-')
		FROM (SELECT min(at) AS at FROM lock_history.fast_path WHERE datname = 'near' AND at >= '$since') AS s
		JOIN lock_history.fast_path AS l ON l.at = s.at AND l.datname = 'lab'});
}

for my $case (
	[ 'a primary key and 20 more indexes', 'SELECT * FROM fp WHERE a = 1', '1|16|16|1|6' ],
	[ '40 partitions, no pruning', 'SELECT count(*) FROM pt WHERE v = 1', '1|16|16|1|25' ],
	[ 'pruned at plan time', 'SELECT count(*) FROM pt WHERE k = 5', '1|2|16|0|-' ],
	[ 'a generic plan', 'EXECUTE q(5)', '1|16|16|1|25',
	  'SET plan_cache_mode = force_generic_plan; PREPARE q(int) AS SELECT count(*) FROM pt WHERE k = $1' ],
	[ 'an update, pruned', 'UPDATE pt SET v = 1 WHERE k = 5', '1|2|16|0|-', 'RESET plan_cache_mode' ],
	[ 'strong locks never are on the fast path', 'DROP TABLE pt', '' ])
{
	my ($what, $statement, $expected, $before) = @$case;
	$s->run($before) if $before;
	# what is in no cache yet would lock catalogs meanwhile
	$s->run("BEGIN; $statement; ROLLBACK");
	$s->run("BEGIN; $statement");
	is(seen_of_lab(), $expected, "$what: sessions, slots used, slots, full, spilled");

	my ($slots, $full, $spilled) = (split /\|/, $expected)[1, 3, 4];
	if ($full)
	{
		my $pid = $s->pid;
		my $query_id = $node->safe_psql('postgres', "SELECT query_id FROM pg_stat_activity WHERE pid = $pid");
		my $locks = $slots + $spilled;
		# from here on nothing but the transaction as it stands, nor does what it runs then take the name away
		LockHistory::flush($node);
		$s->run('SELECT 1 AS another_statement');
		seen_of_lab();
		is(LockHistory::history($node, q{
			SELECT query_id, locks_max, slots_max, spilled_locks_max, looks_full > 0, sessions
			FROM lock_history.lock_hungry_queries WHERE datname = 'lab' ORDER BY at DESC, locks_max DESC LIMIT 1}),
			"$query_id|$locks|16|$spilled|t|1", "$what: the statement has a name, and keeps it");
	}
	$s->run('ROLLBACK');
}

# What another session holds in a strong mode gets no slot either: the table
# fp is none of those that lacked one, its 21 indexes are.
my $other = LockHistory::session($node, 'other', database => 'lab');
$other->run('BEGIN; LOCK TABLE fp IN SHARE MODE');
$s->run('BEGIN; SELECT count(*) FROM pt WHERE v = 1; SELECT * FROM fp WHERE a = 1; ROLLBACK');
$s->run('BEGIN; SELECT count(*) FROM pt WHERE v = 1; SELECT * FROM fp WHERE a = 1');
is(seen_of_lab(), '1|16|16|1|46', 'what somebody holds in a strong mode did not lack a slot');
$s->run('ROLLBACK');
$other->run('ROLLBACK');

# A lock that somebody asks in a strong mode is moved out of its slot, if it has one.
$s->run('BEGIN; SELECT * FROM fp WHERE a = 1');
$other->send('ALTER TABLE fp ADD COLUMN w int');
LockHistory::wait_until_waiting($node, $other);
is(seen_of_lab(), '1|15|16|0|-', 'moved out for a strong lock: not full');
$s->run('ROLLBACK');
$other->answer;

$_->quit for $s, $other;
like(advice(''), qr/^1\. query_id -?\d+ of \S+ in database lab: full in \d+ looks/m, 'the advice names a statement');
$near->run('ROLLBACK');
$near->quit;

# The table with 101 indexes.
sub pgbench
{
	my (@options) = @_;
	# what was seen before stands for itself once its second is over
	my $second = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) + interval '1.1 s'});
	$node->poll_query_until('postgres', "SELECT value::timestamptz > '$second' FROM lock_history.status() WHERE key = 'last_tick'");
	LockHistory::flush($node);
	my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	$node->command_ok([ 'pgbench', '-n', '-S', '-c', 8, '-j', 2, '-T', 4, @options, 'bench' ], "pgbench @options");
	# the second that is not over may yet see those who ask about it, who take many locks
	my $after = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) - interval '1 ms'});
	LockHistory::flush($node);
	return "at BETWEEN '$before' AND '$after' AND datname = 'bench'", "'$before', '$after'";
}
$node->command_ok([ 'pgbench', '-q', '-i', '-s', 1, 'bench' ], 'pgbench -i');
my $few = 'a read of a table with one index';
my ($range, $since) = pgbench();
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.fast_path WHERE $range AND sessions_full > 0"), '0', "$few leaves slots free");
like(advice($since), qr/\ANothing is wrong: .*\z/, "$few needs no advice");

$node->safe_psql('bench', q{DO $$ BEGIN FOR i IN 1..100 LOOP
	EXECUTE format('CREATE INDEX pa%s ON pgbench_accounts(aid) WHERE aid < 0', i); END LOOP; END $$});
my $many = '101 indexes';
($range, $since) = pgbench();
is($node->safe_psql('postgres', "SELECT max(slots_max) = 16 AND max(slots_available) = 16, max(sessions_full) >= 4, max(spilled_locks_max) > 80 FROM lock_history.fast_path WHERE $range"),
	't|t|t', "$many: sessions are full, and over 80 locks of one find no slot");
my $advice = advice($since);
like($advice, qr/^1\. query_id -?\d+ of \S+ in database bench: full in \d+ looks and up to \d sessions a second, up to 1\d\d locks: SELECT abalance FROM pgbench_accounts/m,
	"$many: the advice names the statement, with its text");
like($advice, qr/Worst second: [4-8] of \d sessions full at \d\d:/, "$many: and the worst second");
like($advice, qr/^Did it hurt\? |^Nobody was seen waiting there/m, "$many: and whether it hurt");
like($advice, qr/max_locks_per_transaction = 128 /, "$many: and a value that fits");
is($node->safe_psql('postgres', 'SELECT sum(partitions_taken) > 0 AND max(hold_us_max) > 0 FROM lock_history.health'), 't', 'what that took is in health');

# A plan that is kept locks the index that it uses alone.
($range) = pgbench(-M => 'prepared');
is($node->safe_psql('postgres', "SELECT count(*) <= 2 FROM lock_history.fast_path WHERE $range AND sessions_full > 0"), 't',
	"$many: prepared statements come near in their first executions only");

SKIP:
{
	my @settings = ([ 17, 32 ], [ 64, 64 ], [ 100, 128 ], [ 256, 256 ]);
	skip 'the setting gives the slots from version 18 on', @settings + 4 if LockHistory::major($node) < 18;
	for (@settings)
	{
		my ($setting, $slots) = @$_;
		$node->append_conf('postgresql.conf', "max_locks_per_transaction = $setting");
		$node->restart;
		LockHistory::wait_until_recording($node);
		$since = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
		# as many relations as it takes
		my $reader = LockHistory::session($node, 'reader', database => 'bench');
		$reader->run("BEGIN; SELECT count(*) FROM pgbench_accounts WHERE aid = 1; SELECT count(*) FROM pgbench_branches, pgbench_tellers WHERE false");
		$reader->run($_) for map { "LOCK TABLE pg_catalog.$_ IN ACCESS SHARE MODE" } split /\n/, $node->safe_psql('postgres',
			q{SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'pg_catalog'::regnamespace AND NOT relisshared LIMIT 40});
		my $where = "WHERE datname = 'bench' AND at > '$since'";
		$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM lock_history.fast_path $where)");
		is($node->safe_psql('postgres', "SELECT DISTINCT slots_available, max_locks_per_transaction FROM lock_history.fast_path $where"),
			"$slots|$setting", "slots by max_locks_per_transaction = $setting");
		$reader->quit;
		next if $setting != 64 && $setting != 256;

		($range, $since) = pgbench();
		like(advice($since),
			$setting == 64 ? qr/max_locks_per_transaction = 128 / : qr/\ANothing is wrong: .*\z/, "$many, $slots slots");
	}
}

$node->stop;
done_testing();
