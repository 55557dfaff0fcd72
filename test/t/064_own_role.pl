# The writer under a role of its own: no superuser, owner of nothing, with what
# grant_writer() gives and nothing else.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $role = 'Lock "writer"';
(my $quoted = $role) =~ s/"/""/g;
my $node = LockHistory::cluster('own_role', init => [ auth_extra => [ '--create-role', $role ] ],
	settings => "pg_lock_history.retention = '14s'\npg_lock_history.flush_period = '100ms'");
$node->safe_psql('postgres', qq{
	CREATE ROLE "$quoted" LOGIN;
	REVOKE ALL ON SCHEMA public FROM PUBLIC;
	CREATE TABLE public.orders (i int);
	CREATE DATABASE other; REVOKE ALL ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO "$quoted"});
$node->safe_psql('other', 'CREATE SCHEMA private; CREATE TABLE private.parts (i int)');
for my $setting (qw(conninfo local_conninfo))
{
	$node->append_conf('postgresql.conf', qq{pg_lock_history.$setting = 'user=''Lock "writer"'''});
}
my $offset = LockHistory::log_end($node);
$node->reload;
LockHistory::wait_until_status($node, 'state', 'tables refused');
like(LockHistory::status($node, 'hint'), qr/grant_writer\(\)/, 'without rights: the hint names the way');
$node->safe_psql('postgres', q{SELECT lock_history.grant_writer('Lock "writer"')});
LockHistory::wait_until_recording($node);
is($node->safe_psql('postgres', q{SELECT usename FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'}), $role, 'the writer is that role');

# What a day does, from the first row to segments that come round: wait, names
# in another database, a new life, statistics.
sub one_wait
{
	my ($name, $database, $table) = @_;
	my ($holder, $waiter) = map { LockHistory::session($node, "$_ $name", database => $database) } qw(holder waiter);
	$holder->run("BEGIN; LOCK TABLE $table");
	$waiter->send("SELECT FROM $table");
	LockHistory::wait_until_waiting($node, $waiter);
	LockHistory::flush($node);
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	LockHistory::flush($node);
	return $node->safe_psql('postgres', "SELECT datname, object, outcome FROM lock_history.waits WHERE application_name = 'waiter $name'");
}
sub turn { return $node->safe_psql('postgres', 'SELECT max(round) FROM lock_history.ring'); }
my $turn = turn();
is(one_wait('here', 'postgres', 'public.orders'), 'postgres|public.orders|granted', 'a wait is written, with its name');
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM lock_history.ring WHERE closed_at IS NOT NULL AND round > 0}) or die 'no segment is closed';
$node->poll_query_until('postgres', "SELECT lock_history.flush() AND max(round) > $turn FROM lock_history.ring") or die 'the ring does not come round';
pass('segments are emptied and filled again');
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_all_tables WHERE schemaname = 'lock_history' AND relname ~ '_[0-7]$' AND last_analyze IS NOT NULL}) or die 'no statistics';
pass('segments get their statistics, which the owner alone may give');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = \'pg_lock_history\'');
LockHistory::wait_until_recording($node);
is(one_wait('there', 'other', 'private.parts'), 'other|private.parts|granted', 'names come from a database in which it was granted nothing');
$node->restart;
LockHistory::wait_until_recording($node);
is(one_wait('again', 'postgres', 'public.orders'), 'postgres|public.orders|granted', 'and so it goes on after a restart');
is(LockHistory::status($node, 'errors'), '0', 'nothing went wrong in this life') or diag LockHistory::status($node, 'last_error');
my $log = LockHistory::log_since($node, $offset);
unlike($log, qr/skipping/, 'the server log has no warning of ANALYZE');

# It can read no statement, and change nothing else.
sub as_writer { my ($rc, $out, $err) = $node->psql('postgres', $_[0], extra_params => [ '-U', $role ]); return $rc == 0 ? $out : $err; }
like(as_writer($_), qr/permission denied/, "not for it: $_")
  for 'SELECT query FROM lock_history.actor_0', 'SELECT count(*) FROM lock_history.waits', 'SELECT wait_id FROM lock_history.episode_0', 'SELECT query FROM lock_history.dim_0', 'SELECT query FROM lock_history.minute_dim_0', 'DELETE FROM lock_history.ring',
	'TRUNCATE lock_history.run', 'SELECT count(*) FROM lock_history.kept_incident', 'INSERT INTO lock_history.kept_actor (seg) VALUES (8)', 'SELECT lock_history.reset()',
	"SELECT lock_history.grant_writer('Lock \"writer\"')", 'CREATE TRIGGER t BEFORE INSERT ON lock_history.run FOR EACH ROW EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()';

# The least: nothing that every life of the worker needs can be taken away.
my @rights = split /\n/, $node->safe_psql('postgres', qq{
	SELECT format('%s ON %s', a.privilege_type, c.oid::regclass) FROM pg_class AS c, aclexplode(c.relacl) AS a
	WHERE c.relnamespace = 'lock_history'::regnamespace AND a.grantee = '"$quoted"'::regrole ORDER BY 1});
my %tables = map { (/ON lock_history\.(\w+)$/)[0] => 1 } @rights;
is(scalar(grep { /_[0-7]$/ } keys %tables), $node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relnamespace = 'lock_history'::regnamespace AND relispartition AND relkind = 'r' AND relname ~ '_[0-7]$'}), 'leaves of the rings: rights on all');
is(join(' ', map { s/ ON lock_history\./:/r } grep { !/_[0-7]$/ } @rights),
	'DELETE:minute_gap DELETE:run INSERT:detector INSERT:minute_gap INSERT:node INSERT:run SELECT:detector SELECT:minute_gap SELECT:minute_ring SELECT:node SELECT:ring SELECT:run UPDATE:detector UPDATE:minute_ring UPDATE:node UPDATE:ring UPDATE:run', 'other tables');
my %each = map { s/ ON .*//r => 1 } grep { /_[0-7]$/ } @rights;
is(join(' ', sort keys %each), 'INSERT TRUNCATE', 'leaves: kinds of rights; what is read of them goes by column');
for my $right ('USAGE ON SCHEMA lock_history', 'SELECT ON lock_history.node', 'UPDATE ON lock_history.run', 'DELETE ON lock_history.run', 'SELECT ON lock_history.detector', 'TRUNCATE')
{
	my @what = $right =~ / / ? ($right) : map { "$right ON lock_history.gap_$_" } 0 .. 7;
	# Some are needed once in a life of the worker, others in each session.
	my $whose = $right =~ /^(?:INSERT|DELETE|TRUNCATE)|detector/ ? q{backend_type = 'pg_lock_history'} : q{application_name = 'pg_lock_history writer'};
	$node->safe_psql('postgres', "BEGIN; LOCK TABLE lock_history.gap IN SHARE UPDATE EXCLUSIVE MODE;" . join('', map { qq{REVOKE $_ FROM "$quoted";} } @what) . 'COMMIT');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE $whose");
	$node->safe_psql('postgres', q{SELECT lock_history.flush('10 ms')});
	LockHistory::wait_until_status($node, 'state', 'tables refused');
	pass("not without $right");
	$node->safe_psql('postgres', join '', map { qq{GRANT $_ TO "$quoted";} } @what);
	$node->reload;    # it tries at once
	LockHistory::wait_until_recording($node);
}

# The server logs each failed try, but not when it may be kept from it.
$node->safe_psql('postgres', qq{
	GRANT SET ON PARAMETER log_min_messages, log_min_error_statement, log_statement, log_duration, log_min_duration_statement TO "$quoted";
	SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'pg_lock_history'});
LockHistory::wait_until_recording($node);
$offset = LockHistory::log_end($node);
my $locker = LockHistory::session($node, 'locker');
$locker->run('BEGIN; LOCK TABLE lock_history.run IN SHARE MODE');
$node->safe_psql('postgres', q{SELECT lock_history.flush('10 ms')});
LockHistory::wait_until_status($node, 'state', 'writer blocked');
$node->poll_query_until('postgres', q{SELECT value::bigint > 1 FROM lock_history.status() WHERE key = 'errors'}) or die 'no second try';
$locker->run('COMMIT');
$locker->quit;
LockHistory::wait_until_recording($node);
unlike(LockHistory::log_since($node, $offset), qr/\] pg_lock_history writer (?:ERROR|STATEMENT|LOG)/, 'with SET on some parameters its sessions are quiet');

# Back to the server's own role: nothing is left.
$node->safe_psql('postgres', q{SELECT lock_history.revoke_writer('Lock "writer"')});
is($node->safe_psql('postgres', qq{SELECT count(*) FROM pg_shdepend WHERE refobjid = '"$quoted"'::regrole AND dbid <> 0}), '0', 'revoke_writer() takes all of it back');
for my $bad ([ q{'public'}, qr/does not exist/ ], [ q{'pg_monitor'}, qr/belongs to the server/ ], [ q{'no_such'}, qr/does not exist/ ], [ 'NULL', qr/must be given/ ])
{
	my ($rc, undef, $err) = $node->psql('postgres', "SELECT lock_history.grant_writer($bad->[0])");
	like($err, $bad->[1], "refused: grant_writer($bad->[0])");
}

$node->stop;
done_testing();
