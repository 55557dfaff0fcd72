# A hot standby, whose sessions and whose replay wait for each other. It sends its
# history to the primary; what is looked at there is compared with the live area of the
# standby itself.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $primary = LockHistory::cluster('primary', init => [ allows_streaming => 1 ],
	settings => "max_prepared_transactions = 5\nautovacuum = off");
$primary->safe_psql('postgres', q{
	CREATE TABLE public.hs (id int PRIMARY KEY, v int); INSERT INTO hs SELECT g, 0 FROM generate_series(1, 1000) AS g;
	CREATE TABLE public.other (id int); CREATE DATABASE gone});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "pg_lock_history.node_name = 'standby'\npg_lock_history.conninfo = '" . ($primary->connstr('postgres') =~ s/'/''/gr) . "'\n"
	. "max_standby_streaming_delay = 1500ms\ndeadlock_timeout = 500ms");
$standby->start;
LockHistory::wait_until_recording($standby);

sub on_standby { return $standby->safe_psql('postgres', $_[0]); }
sub history { LockHistory::flush($standby); return $primary->safe_psql('postgres', $_[0]); }
my $startup = on_standby(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});
my %letter = ($startup => 'U');

sub reader
{
	my ($letter, %o) = @_;
	my $session = LockHistory::session($standby, $letter, %o);
	$letter{ $session->pid } = $letter;
	return $session;
}

# The WAL of a transaction that goes on is sent with the next flush.
my $writer = LockHistory::session($primary, 'writer');
sub replayed_up_to_now
{
	$primary->safe_psql('postgres', 'SELECT pg_logical_emit_message(true, \'test\', \'\')');
	$primary->wait_for_catchup($standby, 'replay');
	return;
}

# Waits of the standby in order, as "waiter mode object / hard / soft / root outcome", and their length.
sub waits
{
	my ($from, $where) = @_;
	return map { my ($pid, $what, $hard, $soft, $root, $end, $long) = split /\|/, $_, -1;
		[ join(' ', $letter{$pid} // "?$pid", $what, (map { '/ ' . (join('+', map { $letter{$_} // "?$_" } /\d+/g) || '-') } $hard, $soft, $root), $end), $long ] }
	  split /\n/, $from->(qq{SELECT pid, mode || ' ' || locktype || ' ' || object, hard_blockers, soft_blockers, root_blockers, coalesce(outcome, 'waiting'),
		extract(epoch FROM wait_end - wait_start) FROM } . ($from == \&history ? 'lock_history.waits' : 'lock_history.recent_waits()')
		. qq{ WHERE node = 'standby' AND $where ORDER BY wait_start});
}

# told(name, condition, expected waits): in the history and in the live area
# alike. A pattern stands where a sample may or may not fall into the hand-over.
sub told
{
	my ($name, $where, @expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $want = join "\n", map { ref $_ ? $_ : quotemeta } @expected;
	my @waits = waits(\&history, $where);
	like(join("\n", map { $_->[0] } @waits), qr/^$want$/, $name);
	like(join("\n", map { $_->[0] } waits(\&on_standby, $where)), qr/^$want$/, "$name: recent_waits() on the standby itself");
	return map { $_->[1] } @waits;
}

my $since = on_standby('SELECT clock_timestamp()');
sub next_part { $since = on_standby('SELECT clock_timestamp()'); return; }
sub part { return "wait_start >= '$since'"; }

# ---- a reader behind the replay of a lock: nobody on the standby is to blame ----

$writer->run('BEGIN; ALTER TABLE hs ADD COLUMN z int');
replayed_up_to_now();
my $q = reader('Q');
$q->send('SELECT count(*) FROM hs');
LockHistory::wait_until_waiting($standby, $q);
$standby->poll_query_until('postgres', 'SELECT count(*) = 2 FROM lock_history.blocking_now') or die 'never shown';
is(on_standby('SELECT pid, backend_type, query IS NULL, usename IS NULL, locktype IS NULL FROM lock_history.blocking_now WHERE level = 0'),
	"$startup|startup|t|t|t", 'blocking_now: the root is the startup process, which does not wait');
$writer->run('COMMIT');
replayed_up_to_now();
$q->answer;
told('a reader behind the replay', part(), 'Q AccessShareLock relation public.hs / U / - / U granted');
is(history(q{SELECT backend_type, state, query, usename, sessions_blocked FROM lock_history.root_blockers WHERE node = 'standby'}), 'startup||||1', 'the root');

# ---- advisory locks are as on a primary ----

next_part();
my $r = reader('R');
$r->run('SELECT pg_advisory_lock(42)');
$q->send('SELECT pg_advisory_lock(42)');
LockHistory::wait_until_waiting($standby, $q);
$r->run('SELECT pg_advisory_unlock(42)');
$q->answer;
$q->run('SELECT pg_advisory_unlock(42)');
told('an advisory lock', part(), 'Q ExclusiveLock advisory advisory 42 / R / - / R granted');

# ---- replay that waits for a snapshot is no wait for a lock ----

next_part();
$r->run('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hs');
$primary->safe_psql('postgres', 'DELETE FROM hs WHERE id > 500; VACUUM hs');
$standby->poll_query_until('postgres', "SELECT wait_event = 'RecoveryConflictSnapshot' FROM pg_stat_activity WHERE pid = $startup") or die 'no conflict';
$r->run('COMMIT');
replayed_up_to_now();
told('a snapshot in the way of the replay', part());

# ---- replay waits for a reader, who goes ----

next_part();
$r->run('BEGIN; SELECT count(*) FROM hs');
$writer->run('ALTER TABLE hs ADD COLUMN y int');
LockHistory::wait_until_waiting($standby, $startup);
$q->send('SELECT count(*) FROM hs');
LockHistory::wait_until_waiting($standby, $q);
$standby->poll_query_until('postgres', 'SELECT count(*) = 3 AND bool_or(level = 2) FROM lock_history.blocking_now') or die 'never shown';
$r->run('COMMIT');
replayed_up_to_now();
$q->answer;
told('replay behind a reader', part(), 'U AccessExclusiveLock relation public.hs / R / - / R granted',
	qr{Q AccessShareLock relation public\.hs / (?:-|U) / U / (?:R|U\+R|R\+U) granted});

# ---- replay does not wait for ever: whoever is in its way is cancelled, here while it waits itself ----

next_part();
my $h = reader('H');
$h->run('SELECT pg_advisory_lock(7)');
$r->run('BEGIN; SELECT count(*) FROM hs');
$r->send('SELECT pg_advisory_lock(7)');
LockHistory::wait_until_waiting($standby, $r);
$writer->run('ALTER TABLE hs ADD COLUMN x int');
LockHistory::wait_until_waiting($standby, $startup);
$r->answer;
like($r->errors, qr/conflict with recovery/, 'the reader was cancelled by the replay');
$r->run('ROLLBACK');
replayed_up_to_now();
told('cancelled by the replay', part(),
	'R ExclusiveLock advisory advisory 7 / H / - / H recovery_conflict', 'U AccessExclusiveLock relation public.hs / R / - / H granted');

# ---- in a subtransaction that does not do, and the session is ended ----

next_part();
my $f = reader('F');
$f->run('BEGIN; SELECT count(*) FROM hs; SAVEPOINT s');
$f->send('SELECT pg_advisory_lock(7)');
LockHistory::wait_until_waiting($standby, $f);
$writer->run('ALTER TABLE hs ADD COLUMN w int');
replayed_up_to_now();
my ($long) = told('ended by the replay', "mode = 'ExclusiveLock' AND " . part(), 'F ExclusiveLock advisory advisory 7 / H / - / H recovery_conflict');
cmp_ok($long, '>', 1, 'it was let wait for as long as max_standby_streaming_delay says');

# ---- a circle of a session and the replay: the session is the victim of a deadlock ----

next_part();
$r->run('BEGIN; SELECT count(*) FROM hs');
$writer->run('BEGIN; LOCK TABLE other; LOCK TABLE hs');
$primary->safe_psql('postgres', 'SELECT pg_logical_emit_message(true, \'test\', \'\')');
LockHistory::wait_until_waiting($standby, $startup);
$standby->poll_query_until('postgres', 'SELECT count(*) = 2 FROM lock_history.blocking_now') or die 'never shown'; # a circle has no root
$r->run('SELECT * FROM other'); # which ends by itself, within a second: nobody may be in time to see it wait
like($r->errors, qr/deadlock detected/, 'a deadlock with the replay');
$r->run('ROLLBACK');
$writer->run('COMMIT');
replayed_up_to_now();
told('deadlock with the replay', part(),
	'U AccessExclusiveLock relation public.hs / R / - / R granted', 'R AccessShareLock relation public.other / U / - / - deadlock');
is(history(q{SELECT string_agg(CASE pid WHEN } . $startup . q{ THEN 'U' ELSE 'R' END || ' ' || is_victim || ' ' || object || ' ' || mode, ', ' ORDER BY is_victim) FROM lock_history.deadlocks WHERE node = 'standby'}),
	'U false public.hs AccessExclusiveLock, R true public.other AccessShareLock', 'its members');

# ---- a database that is dropped ends its sessions ----

next_part();
my $first = reader('D', database => 'gone');
my $second = reader('E', database => 'gone');
$first->run('SELECT pg_advisory_lock(7)');
$second->send('SELECT pg_advisory_lock(7)');
LockHistory::wait_until_waiting($standby, $second);
$standby->poll_query_until('postgres', 'SELECT count(*) = 2 FROM lock_history.blocking_now') or die 'never shown';
# The first one is told to end, too, and must not let go before the second has ended.
kill STOP => $first->pid or die "stop: $!";
$primary->safe_psql('postgres', 'DROP DATABASE gone');
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ' . $second->pid) or die 'not ended';
kill CONT => $first->pid or die "go on: $!";
replayed_up_to_now();
told('a database dropped on the primary', part(), 'E ExclusiveLock advisory advisory 7 / D / - / D recovery_conflict');

$h->quit;
$standby->stop;
$primary->stop;
done_testing();
