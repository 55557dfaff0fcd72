# Two servers on one machine, several socket directories, a bootstrap
# superuser of another name, a socket that asks for a password: each history
# goes to its own server, or one message says what to set.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

# Short paths: a socket's may have 107 bytes.
my ($cleaned_dir, $extra_dir) = map { PostgreSQL::Test::Utils::tempdir_short() } 1, 2;

# Three directories; the first loses its socket to somebody who tidies up.
my $one = LockHistory::cluster('one', start => 0);
my $host = $one->host;
$one->append_conf('postgresql.conf', "unix_socket_directories = '$cleaned_dir, $extra_dir, $host'");
$one->start;
unlink "$cleaned_dir/.s.PGSQL." . $one->port or die "$cleaned_dir: $!";

# The same socket directory, the next port, and alice for postgres.
my $two = LockHistory::cluster('two', start => 0, init => [ extra => [ '-U', 'alice' ] ]);
$two->start;
isnt($one->port, $two->port, 'two ports');
is($one->host, $two->host, 'in one directory');
$two->safe_psql('postgres', 'CREATE ROLE tester SUPERUSER LOGIN', extra_params => [ '-U', 'alice' ]);
my $me = getpwuid($<);
$two->safe_psql('postgres', qq{CREATE ROLE "$me" SUPERUSER LOGIN}, extra_params => [ '-U', 'alice' ]) if $me ne 'alice';

$_->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history') for $one, $two;
LockHistory::wait_until_recording($_) for $one, $two;
pass('both record');
like(LockHistory::status($one, 'writes_to'), qr/^host=\Q$extra_dir\E port=@{[ $one->port ]} dbname=postgres user=\Q$me\E$/, 'one: the second directory, its own port');
like(LockHistory::status($two, 'writes_to'), qr/port=@{[ $two->port ]} dbname=postgres user=alice$/, 'two: as its own bootstrap superuser');

# One wait in each, told apart by its key.
sub wait_in
{
	my ($node, $key) = @_;
	my ($holder, $waiter) = map { LockHistory::session($node, $_) } 'holder', 'waiter';
	$holder->run("BEGIN; SELECT pg_advisory_xact_lock($key)");
	$waiter->send("SELECT pg_advisory_xact_lock($key)");
	LockHistory::wait_until_waiting($node, $waiter);
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	return;
}
my $keys = q{SELECT string_agg(DISTINCT objid::text, ',' ORDER BY objid::text) FROM lock_history.waits WHERE locktype = 'advisory'};
wait_in($one, 101);
wait_in($two, 202);
is(LockHistory::history($one, $keys), '101', 'the history of one is its own');
is(LockHistory::history($two, $keys), '202', '... and that of two');

# The socket now asks for alice's password.
my $hba = $two->data_dir . '/pg_hba.conf';
my $trust = slurp_file($hba);
my $pass = PostgreSQL::Test::Utils::tempdir() . '/passfile';
$two->safe_psql('postgres', q{SET password_encryption = 'scram-sha-256'; ALTER ROLE alice PASSWORD 'wonder land'});
sub hba
{
	my ($text) = @_;
	open my $file, '>', $hba or die "$hba: $!";
	print $file $text;
	close $file;
	$two->reload;
	return;
}
sub writer_gone
{
	my ($node) = @_;
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %'});
	return;
}
my $offset = LockHistory::log_end($two);
hba("local all alice scram-sha-256\n$trust");
writer_gone($two);
wait_in($two, 203); # a writer that has nothing to write need not notice
LockHistory::until_true(sub { LockHistory::status($two, 'state') eq 'cannot connect' }, 'status() says that it cannot connect');
like(LockHistory::status($two, 'hint'), qr/pg_lock_history\.conninfo.*passfile/, 'scram without a password: the hint says what to set');
my $errors = LockHistory::status($two, 'errors');
$two->poll_query_until('postgres', "SELECT value::bigint >= $errors + 2 FROM lock_history.status() WHERE key = 'errors'") or die 'not tried again';
is(scalar(() = LockHistory::log_since($two, $offset) =~ /asks role "alice" for a password, and the writer has none/g), 1, '... the log says it once');

open my $file, '>', $pass or die "$pass: $!";
print $file "*:*:*:alice:wonder land\n";
close $file;
chmod 0600, $pass;
# Only what differs is said: host, port and dbname stay those of this server.
$two->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'user=alice passfile=$pass'\npg_lock_history.local_conninfo = 'user=alice passfile=$pass'");
$two->reload;
LockHistory::wait_until_recording($two);
is(LockHistory::history($two, $keys), '202,203', 'with conninfo and passfile it writes again, and what happened meanwhile');
is(LockHistory::status($two, 'last_error'), '', 'and the error is gone');

# A socket that leads to another server: nothing of one may end up in two.
hba($trust);
my $socket = "$extra_dir/.s.PGSQL." . $one->port;
unlink $socket or die "$socket: $!";
symlink "$host/.s.PGSQL." . $two->port, $socket or die "$socket: $!";
$offset = LockHistory::log_end($one);
writer_gone($one);
wait_in($one, 102);
LockHistory::until_true(sub { LockHistory::status($one, 'last_error') =~ /not the one this worker belongs to/ }, 'one notices that two answers');
pass('a socket that leads to another server is noticed');
like(LockHistory::status($one, 'hint'), qr/unix_socket_directories and port.*pg_lock_history\.conninfo/, '... with a hint');
$errors = LockHistory::status($one, 'errors');
$one->poll_query_until('postgres', "SELECT value::bigint >= $errors + 2 FROM lock_history.status() WHERE key = 'errors'") or die 'not tried again';
is(scalar(() = LockHistory::log_since($one, $offset) =~ /not the one this worker belongs to/g), 1, '... said once');
is(LockHistory::history($two, $keys), '202,203', 'nothing of one is in two');
is($two->safe_psql('postgres', 'SELECT count(*) FROM lock_history.node'), '1', '... not even its name');
unlink $socket or die "$socket: $!";
is(LockHistory::history($one, $keys), '101,102', 'without that socket it takes the next directory, and nothing is lost');

# The server gone out of reach: no socket anywhere.
my $own = "$host/.s.PGSQL." . $one->port;
my ($session, $holder, $waiter) = map { LockHistory::session($one, $_) } 'still there', 'holder', 'waiter';
$holder->run('BEGIN; SELECT pg_advisory_xact_lock(103)');
rename $own, "$own.away" or die "$own: $!";
$offset = LockHistory::log_end($one);
$session->run(q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %'});
$waiter->send('SELECT pg_advisory_xact_lock(103)');
LockHistory::until_true(sub { $session->run(q{SELECT value FROM lock_history.status() WHERE key = 'last_error'}) =~ /found no way to connect to this server/ }, 'it says that there is no socket');
pass('no socket: said in status()');
rename "$own.away", $own or die "$own: $!";
LockHistory::wait_until_recording($one);
is(scalar(() = LockHistory::log_since($one, $offset) =~ /found no way to connect/g), 1, '... once in the log, and it recovers');
$holder->run('COMMIT');
$waiter->answer;
is(LockHistory::history($one, $keys), '101,102,103', 'nothing is lost');
$_->quit for $session, $holder, $waiter;

# What is not ours is not used: a schema that somebody has prepared.
$one->safe_psql('postgres', $_) for 'CREATE ROLE landlord LOGIN', 'CREATE DATABASE flat OWNER landlord';
$one->safe_psql('flat', 'CREATE SCHEMA lock_history; CREATE TABLE lock_history.node (node text)', extra_params => [ '-U', 'landlord' ]);
my ($rc, $out, $err) = $one->psql('flat', 'CREATE EXTENSION pg_lock_history');
isnt($rc, 0, 'a schema prepared by the owner of the database: CREATE EXTENSION fails');
like($err, qr/schema "lock_history" already exists/, '... and says why');
($rc, $out, $err) = $one->psql('flat', 'DROP SCHEMA lock_history CASCADE; CREATE EXTENSION pg_lock_history', extra_params => [ '-U', 'landlord' ]);
like($err, qr/permission denied to create extension/, 'who is no superuser cannot create it');

$_->stop for $one, $two;
done_testing();
