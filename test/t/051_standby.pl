# A hot standby by itself: what can be read there, whom its replay cancels, and
# what becomes of its history when it is promoted, wherever conninfo leads.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = LockHistory::cluster('primary', init => [ allows_streaming => 1 ],
	settings => "pg_lock_history.node_name = 'first'\nmax_prepared_transactions = 5\nautovacuum = off\nhot_standby_feedback = off");
$primary->safe_psql('postgres', q{
	CREATE TABLE public.rows (id int); INSERT INTO rows SELECT g FROM generate_series(1, 1000) AS g;
	CREATE TABLE public.pinned (id int); INSERT INTO pinned VALUES (1);
	CREATE TABLE public.locked (id int); CREATE DATABASE gone; CREATE ROLE reader LOGIN; GRANT SELECT ON rows, pinned, locked TO reader});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "pg_lock_history.node_name = 'second'\nmax_standby_streaming_delay = 100ms\ndeadlock_timeout = 200ms");
$standby->start;

sub on_standby { return $standby->safe_psql('postgres', $_[0]); }
sub on_primary { return $primary->safe_psql('postgres', $_[0]); }
sub replayed { on_primary(q{SELECT pg_logical_emit_message(true, 'test', '')}); $primary->wait_for_catchup($standby, 'replay'); return; }
my $startup = on_standby(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});
my $writer = LockHistory::session($primary, 'writer');

# ---- without conninfo: read on the standby itself ----

LockHistory::wait_until_status($standby, 'state', 'standby');
is(LockHistory::status($standby, 'last_error'), 'this server is a standby, no history is written', 'a standby says so');
like(LockHistory::status($standby, 'hint'), qr/recent_waits\(\).*pg_lock_history\.conninfo.*promotion/, '... and what can be done');

$writer->run('BEGIN; LOCK TABLE rows');
replayed();
my $reader = LockHistory::session($standby, 'reader');
$reader->send('SELECT count(*) FROM rows');
LockHistory::wait_until_waiting($standby, $reader);
$standby->poll_query_until('postgres', q{SELECT count(*) = 2 AND bool_or(object = 'public.rows') FROM lock_history.blocking_now}) or die 'never shown';
is(on_standby('SELECT level, pid, backend_type, mode, object FROM lock_history.blocking_now ORDER BY path'),
	"0|$startup|startup||\n1|" . $reader->pid . '|client backend|AccessShareLock|public.rows', 'blocking_now: behind the startup process');
$writer->run('COMMIT');
replayed();
$reader->answer;
$standby->poll_query_until('postgres', q{SELECT count(*) = 1 FROM lock_history.recent_waits() WHERE outcome = 'granted'}) or die 'never ended';
is(on_standby(q{SELECT node, object, usename IS NOT NULL, hard_blockers FROM lock_history.recent_waits() WHERE outcome = 'granted'}), "second|public.rows|t|{$startup}", 'recent_waits()');
$standby->poll_query_until('postgres', q{SELECT count(*) > 0 FROM lock_history.recent_load() WHERE node = 'second' AND wait_event_type = 'Lock'}) or die 'no load';
pass('recent_load()');
for my $same ([ 'waits', 'recent_waits()' ], [ 'load', 'recent_load()' ], [ 'blocking_tree_at(now())', 'blocking_now' ])
{
	my ($history, $live) = map { +{ map { (split /\|/)[0] => 1 } split /\n/, on_standby("SELECT * FROM lock_history.$_ \\gdesc") } } @$same;
	is(join(' ', grep { !$live->{$_} } sort keys %$history), '', "$same->[1] has the columns of $same->[0]");
}

# ---- whom the replay cancels: to the primary's history, under the standby's own name ----

$standby->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'host=" . $primary->host . ' port=' . $primary->port . " dbname=postgres'");
$standby->reload;
LockHistory::wait_until_recording($standby);
sub conflicts
{
	LockHistory::flush($standby);
	return on_primary(q{SELECT string_agg(conflict || ' ' || ended || ' ' || coalesce(application_name, '?') || ' ' || coalesce(usename, '?') || ' ' || coalesce(datname, '?')
		|| ' ' || coalesce(state, '?') || ': ' || coalesce(rtrim(query, E'\n;'), '?'), E'\n' ORDER BY at) FROM lock_history.recovery_conflicts WHERE node = 'second'});
}
sub cancelled
{
	my ($session, $name) = @_;
	like($session->errors, qr/conflict with recovery/, "$name: it was cancelled");
	return;
}
my @expected;

# a snapshot that still sees rows which the primary has removed
my $s = LockHistory::session($standby, 'snapshot', user => 'reader');
$s->run('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM rows');
$s->send('SELECT pg_sleep(60)');
$standby->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = ' . "'PgSleep'") or die 'never slept';
on_primary('DELETE FROM rows WHERE id > 500'); on_primary('VACUUM rows');
replayed();
$s->answer;
cancelled($s, 'snapshot');
$s->run('ROLLBACK');
push @expected, 'snapshot statement snapshot reader postgres active: SELECT pg_sleep(60)';
is(conflicts(), join("\n", @expected), 'a snapshot: the statement that was cancelled');

# a lock, held by somebody who has nothing to do: its session is ended
my $l = LockHistory::session($standby, 'lock');
my $me = on_standby('SELECT current_user');
$l->run('BEGIN; SELECT count(*) FROM locked');
on_primary('ALTER TABLE locked ADD COLUMN a int');
replayed();
eval { $l->quit };
push @expected, "lock session lock $me postgres idle in transaction: SELECT count(*) FROM locked";
is(conflicts(), join("\n", @expected), 'a lock: the session that was ended');
is(on_primary(qq{SELECT pid, outcome, hard_blocker_count FROM lock_history.waits WHERE node = 'second' AND object = 'public.locked' ORDER BY wait_start DESC LIMIT 1}), "$startup|granted|1",
	'... who held up the replay');

# a pin, and a wait for what the replay has locked: a deadlock in the way of both
on_primary('BEGIN; INSERT INTO pinned SELECT g FROM generate_series(1, 100) AS g; ROLLBACK');
on_primary(q{BEGIN; LOCK TABLE locked; PREPARE TRANSACTION 'lock'});
replayed();
sub set_delay { my ($delay) = @_; on_standby("ALTER SYSTEM SET max_standby_streaming_delay = '$delay'"); $standby->reload; return; }
set_delay(-1);
my $p = LockHistory::session($standby, 'pin');
$p->run("SET deadlock_timeout = '1 h'; SELECT pg_advisory_lock(1), pg_advisory_unlock(1)");
$p->run('BEGIN; DECLARE c CURSOR FOR SELECT id FROM pinned; FETCH FROM c');
on_primary(q{VACUUM (FREEZE, INDEX_CLEANUP off) pinned});
$standby->poll_query_until('postgres', "SELECT wait_event_type = 'BufferPin' FROM pg_stat_activity WHERE pid = $startup") or die 'the replay never waited';
$p->run('SELECT count(*) FROM locked');
cancelled($p, 'pin');
$p->run('ROLLBACK');
set_delay('100ms');
on_primary(q{COMMIT PREPARED 'lock'});
replayed();
LockHistory::flush($standby);
my $got = conflicts();
like($got, qr/^\Q@{[ join "\n", @expected ]}\E\n(?:deadlock|buffer pin) statement pin $me postgres active: SELECT count\(\*\) FROM locked$/, 'a pin: a deadlock with the replay');
is(on_primary(q{SELECT count(*) FROM lock_history.waits WHERE node = 'second' AND outcome = 'failed'}), '0', 'no wait is told as failed for no reason');

# a database that is dropped
my $d = LockHistory::session($standby, 'dropped', database => 'gone');
on_primary('DROP DATABASE gone');
replayed();
eval { $d->quit };
like(conflicts(), qr/\ndatabase session dropped $me \? idle: /, 'a database that is dropped');

is(on_primary(q{SELECT lock_history.keep(now() - interval '10 min', now(), 'on the standby', 'second') IS NOT NULL}), 't', 'an incident is kept');
like(on_primary(q{SET pg_lock_history.incident = 'on the standby'; SELECT string_agg(conflict, ',' ORDER BY at) FROM lock_history.recovery_conflicts}), qr/^snapshot,lock,(?:deadlock|buffer pin),database$/, '... with its conflicts');
on_primary(q{CREATE ROLE watcher LOGIN}); on_primary(q{SELECT lock_history.grant_reader('watcher')});
is($primary->safe_psql('postgres', q{SELECT string_agg(DISTINCT query, ',') FROM lock_history.recovery_conflicts}, extra_params => [ '-U', 'watcher' ]), '<insufficient privilege>', 'their statements are masked');
$reader->quit;
$s->quit;

# ---- promoted, with conninfo leading to the old primary, which is gone ----

$writer->quit;
my $offset = LockHistory::log_end($standby);
my $worker = LockHistory::worker_pid($standby);
$primary->stop;
$standby->promote;
LockHistory::wait_until_status($standby, 'state', 'cannot connect');
like(LockHistory::status($standby, 'hint'), qr/pg_lock_history\.conninfo.*After a promotion it may be wrong: empty means this server/, 'the old primary is gone: the way out');
my @told = LockHistory::log_since($standby, $offset) =~ /^.*WARNING:  pg_lock_history: (.*)$/mg;
is_deeply(\@told, ['cannot reach the server that keeps the history'], '... told once');

# A list of servers finds the one that takes writes by itself: now this one.
$standby->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'host=" . join(',', $primary->host, $standby->host) . ' port=' . join(',', $primary->port, $standby->port)
	. " dbname=postgres target_session_attrs=read-write'");
$standby->reload;
LockHistory::wait_until_recording($standby);
is(LockHistory::worker_pid($standby), $worker, 'with a list of servers it goes on, the same worker');
like(LockHistory::status($standby, 'writes_to'), qr/port=@{[ $standby->port ]} /, '... to itself');
is(on_standby(q{SELECT string_agg(node, ',' ORDER BY node) FROM lock_history.nodes WHERE state = 'recording' AND is_local}), 'second', 'under its own name');

# The old primary comes back as a standby of the new one, with the same list.
$primary->enable_streaming($standby);
$primary->set_standby_mode;
$primary->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'host=" . $primary->host . ' port=' . $primary->port . " dbname=postgres'");
$primary->start;
LockHistory::wait_until_status($primary, 'state', 'standby');
$primary->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'host=" . join(',', $primary->host, $standby->host) . ' port=' . join(',', $primary->port, $standby->port)
	. " dbname=postgres target_session_attrs=read-write'");
$primary->reload;
LockHistory::wait_until_recording($primary);
is(on_standby(q{SELECT string_agg(node, ',' ORDER BY node) FROM lock_history.nodes WHERE state = 'recording'}), 'first,second', 'both write to the new primary');

# Its conninfo names a standby: one message.
$offset = LockHistory::log_end($standby);
$standby->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'host=" . $primary->host . ' port=' . $primary->port . " dbname=postgres'");
$standby->reload;
LockHistory::wait_until_status($standby, 'state', 'cannot connect');
is(LockHistory::status($standby, 'last_error') =~ s/:.*//r, 'the server that keeps the history is a standby, it cannot be written to', 'a standby is not written to');
like(LockHistory::status($standby, 'hint'), qr/target_session_attrs=read-write/, '... the way out');

$primary->stop;
$standby->stop;
done_testing();
