# 'Idle in transaction' with the ping of a connection pool as its last statement
# is not the end of the trail: the history tells what samples saw the blocker
# run before, in the transaction that is in the way and no other.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

# More slots than one look passes over.
my $node = LockHistory::cluster('statements', settings => q{
	max_connections = 400
	max_prepared_transactions = 5
	pg_lock_history.flush_period = '200ms'});
$node->safe_psql('postgres', 'CREATE TABLE t (i int PRIMARY KEY, n int); INSERT INTO t SELECT g, 0 FROM generate_series(1, 20) AS g');
my ($a, $b, $c) = map { LockHistory::session($node, $_) } qw(a b c);

# psql ends a statement in a line of its own.
my $plain = q{regexp_replace(query, '\s*;?\s*$', '')};

# Runs one statement and returns when a dozen ticks have passed after it: a
# slot is looked at with every second one, and without a write it takes two looks.
sub seen
{
	my ($session, $sql) = @_;
	$session->run($sql);
	my $tick = LockHistory::status($node, 'last_tick');
	$node->poll_query_until('postgres', "SELECT value::timestamptz > '$tick'::timestamptz + interval '120 ms' FROM lock_history.status() WHERE key = 'last_tick'")
	  or die 'no tick';
	return;
}

# Has the session wait for what the other holds, for long enough to be looked at.
sub waits
{
	my ($session, $sql) = @_;
	$session->send($sql);
	LockHistory::wait_until_waiting($node, $session);
	my $pid = $session->pid;
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > max(waitstart) + interval '250 ms' FROM pg_locks WHERE pid = $pid AND NOT granted") or die;
	return;
}

# The statements of a blocker in the latest wait of a session.
sub did
{
	my ($blocker, $waiter, $columns) = @_;
	$columns //= 'query';
	$columns =~ s/\bquery\b/$plain/g;
	return LockHistory::history($node, qq{
		SELECT string_agg(concat_ws(' ', $columns), ', ' ORDER BY s.no) FROM lock_history.blocker_statements AS s
		WHERE s.blocker_pid = $blocker
		  AND s.wait_id = (SELECT w.wait_id FROM lock_history.waits AS w WHERE w.pid = } . $waiter->pid . q{ ORDER BY w.wait_start DESC LIMIT 1)});
}

# The incident.  A transaction before it is another story.
seen($a, $_) for 'BEGIN', 'DELETE FROM t WHERE i = 20', 'COMMIT';
my $story = 'BEGIN, UPDATE t SET n = 1 WHERE i = 1, SELECT count(*) FROM t, SELECT 42 AS ping';
seen($a, $_) for split /, /, $story;
waits($b, 'UPDATE t SET n = 2 WHERE i = 1');
is(did($a->pid, $b), $story, 'the wait goes on: its blocker has what it did, oldest first');
$a->run('COMMIT');
$b->answer;
is(did($a->pid, $b), $story, 'and when it has ended');
is(did($a->pid, $b, 'state'), join(', ', ('idle in transaction') x 4), 'as they were last seen');
is(did($a->pid, $b, q{first_seen <= last_seen AND query_start <= first_seen AND first_seen < wait_start AND blocker_xact_start <= query_start AND samples > 1 AND left_out = 0}),
	't, t, t, t', 'with times before the wait');
is(LockHistory::history($node, qq{SELECT state, $plain, regexp_replace(array_to_string(statements_before, ', '), '\\s*;', '', 'g') FROM lock_history.root_blockers WHERE pid = } . $a->pid),
	'idle in transaction|SELECT 42 AS ping|' . $story =~ s/, SELECT 42 AS ping//r, 'root_blockers has it beside the last statement');
is(LockHistory::history($node, 'SELECT count(*) FROM lock_history.actor WHERE stmt_query IS NOT NULL AND pid <> ' . $a->pid), 0, 'of who blocked nobody nothing is kept');

# The next transaction of the same session, as a pool would have it.
seen($a, $_) for 'BEGIN', 'UPDATE t SET n = 3 WHERE i = 2';
waits($b, 'UPDATE t SET n = 4 WHERE i = 2');
seen($a, 'SELECT 1 AS later');
$a->run('ROLLBACK');
$b->answer;
is(did($a->pid, $b), 'BEGIN, UPDATE t SET n = 3 WHERE i = 2, SELECT 1 AS later', 'another transaction: its own statements, and those while it blocks');

# Many statements later the first write is still there.
seen($a, $_) for 'BEGIN', 'UPDATE t SET n = 5 WHERE i = 3', map { "SELECT $_" } 1 .. 9;
waits($b, 'UPDATE t SET n = 6 WHERE i = 3');
$a->run('COMMIT');
$b->answer;
is(did($a->pid, $b), join(', ', 'UPDATE t SET n = 5 WHERE i = 3', map { "SELECT $_" } 3 .. 9), 'the last ones and the first that wrote');
is(did($a->pid, $b, 'left_out'), join(', ', (3) x 8), 'three had to make room');

# Locks without writing; who waits himself has done something before as well.
seen($a, $_) for 'BEGIN', 'LOCK TABLE t IN SHARE MODE';
seen($b, $_) for 'BEGIN', 'SELECT pg_advisory_xact_lock(7)';
waits($b, 'UPDATE t SET n = 7 WHERE i = 4');
waits($c, 'SELECT pg_advisory_xact_lock(7)');
$a->run('COMMIT');
$b->answer;
$b->run('COMMIT');
$c->answer;
is(did($a->pid, $b), 'BEGIN, LOCK TABLE t IN SHARE MODE', 'a reader that holds a table');
like(did($b->pid, $c, q{query, kind, wait_event_type, wait_event}),
	qr/^BEGIN hard, SELECT pg_advisory_xact_lock\(7\) hard, UPDATE t SET n = 7 WHERE i = 4 hard Lock relation$/, 'in the middle of a chain, with what it waited for');
is(did($a->pid, $c, q{query, kind}), 'BEGIN root, LOCK TABLE t IN SHARE MODE root', 'and the root above it');

# A lock of the session outlives its transaction: nothing is claimed of it.
$a->run('SELECT pg_advisory_lock(8)');
waits($b, 'SELECT pg_advisory_lock(8)');
$a->run('SELECT pg_advisory_unlock(8)');
$b->answer;
$b->run('SELECT pg_advisory_unlock(8)');
is(did($a->pid, $b), '', 'no transaction, no statements');

# What is prepared is known by its number, whatever the session does then.
for my $go_on ('', 'BEGIN', 'INSERT INTO t VALUES (100, 0)')
{
	seen($a, $_) for 'BEGIN', 'UPDATE t SET n = 8 WHERE i = 5', 'SELECT 2';
	$a->run(q{PREPARE TRANSACTION 'two'});
	if ($go_on ne '')
	{
		$a->run('BEGIN');
		seen($a, $_) for $go_on, 'SELECT 3', 'SELECT 4';
	}
	waits($b, 'UPDATE t SET n = 9 WHERE i = 5');
	$a->run('ROLLBACK') if $go_on ne '';
	$c->run(q{ROLLBACK PREPARED 'two'});
	$b->answer;
	like(did(-1, $b), qr/^BEGIN, UPDATE t SET n = 8 WHERE i = 5, SELECT 2(, PREPARE TRANSACTION 'two')?$/, "a prepared transaction, then '$go_on'");
}

# No more of a text than the DBA wants to see stored.
for my $case ([ normalized => 'BEGIN, UPDATE t SET n = $1 WHERE i = $2, SELECT $1 AS ping' ], [ off => '' ])
{
	my ($mode, $want) = @$case;
	$node->safe_psql('postgres', "ALTER SYSTEM SET pg_lock_history.query_text = '$mode'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	seen($a, $_) for 'BEGIN', 'UPDATE t SET n = 10 WHERE i = 6', 'SELECT 4711 AS ping';
	waits($b, 'UPDATE t SET n = 11 WHERE i = 6');
	$a->run('COMMIT');
	$b->answer;
	is(did($a->pid, $b) =~ s/^[, ]+$//r, $want, "query_text = $mode");
	is(did($a->pid, $b, 'no'), '1, 2, 3', 'when and how they ran is told in any case');
}
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.actor WHERE array_to_string(stmt_query, ' ') ~ '4711'}), 0, 'nothing of it is in the tables');

$_->quit for $a, $b, $c;
$node->stop;
done_testing();
