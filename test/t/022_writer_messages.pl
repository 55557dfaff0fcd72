# One clear message for each kind of failure on the way to the history: once,
# then counted, in status() with the way out, gone with the next success.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

# What pgx would follow must not lead anywhere.
local %ENV = (%ENV, PGSERVICE => 'nowhere', PGSERVICEFILE => '/does/not/exist', PGSSLMODE => 'verify-full', PGPASSFILE => '/does/not/exist',
	PGTARGETSESSIONATTRS => 'standby', PGREQUIREAUTH => 'none');
my %client = map { $_ => delete $ENV{$_} } qw(PGSERVICE PGSERVICEFILE PGSSLMODE PGPASSFILE PGTARGETSESSIONATTRS PGREQUIREAUTH);
my $node = LockHistory::cluster('messages', start => 0);
{
	local @ENV{ keys %client } = values %client;
	$node->start;
}
$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
LockHistory::wait_until_recording($node);
pass('a server started with PG* variables records');

my $conf = slurp_file($node->data_dir . '/postgresql.conf');
sub configure
{
	my ($line) = @_;
	open my $file, '>', $node->data_dir . '/postgresql.conf' or die "postgresql.conf: $!";
	print $file "$conf\n$line\n";
	close $file;
	$node->reload;
	return;
}
sub write_file
{
	my ($name, $content) = @_;
	my $path = $node->data_dir . "/$name";
	open my $file, '>', $path or die "$path: $!";
	print $file $content;
	close $file;
	chmod 0600, $path;
	return $path;
}

# Role "asked" has to give a password, everybody else is let in.
my $user = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', q{
	SET password_encryption = 'scram-sha-256';
	CREATE ROLE asked LOGIN SUPERUSER PASSWORD 'open sesame';
	CREATE ROLE closed NOLOGIN;
	CREATE DATABASE shut; ALTER DATABASE shut ALLOW_CONNECTIONS off;
	CREATE DATABASE pattern IS_TEMPLATE true;
	CREATE DATABASE bare});
my $hba = slurp_file($node->data_dir . '/pg_hba.conf');
write_file('pg_hba.conf', "local all asked scram-sha-256\n$hba");
$node->reload;
my $good = write_file('good.pass', "*:*:*:asked:open sesame\n");
my $bad = write_file('bad.pass', "*:*:*:asked:open barley\n");
my $readable = write_file('readable.pass', "*:*:*:asked:open sesame\n");
chmod 0644, $readable;
my ($port, $host) = ($node->port, $node->host);
my $services = write_file('services', "[history]\nhost=$host\nport=$port\ndbname=postgres\nuser=asked\npassfile=$good\n");

sub set { return "pg_lock_history.$_[0] = '$_[1]'"; }

# [name, line of postgresql.conf, state, text in the log, hint]
my @cases = (
	[ 'no such role', set(conninfo => 'user=nobody_here'), 'cannot connect', qr/role "nobody_here" does not exist or may not log in/, qr/LOGIN/ ],
	[ 'role without LOGIN', set(conninfo => 'user=closed'), 'cannot connect', qr/role "closed" does not exist or may not log in/, qr/LOGIN/ ],
	[ 'scram without a password', set(conninfo => 'user=asked'), 'cannot connect', qr/the server asks role "asked" for a password, and the writer has none/, qr/passfile/ ],
	[ 'scram with a passfile open to all', set(conninfo => "user=asked passfile=$readable"), 'cannot connect', qr/asks role "asked" for a password.*\n.*open to others/, qr/passfile/ ],
	[ 'wrong password', set(conninfo => "user=asked passfile=$bad"), 'cannot connect', qr/the server does not take the password of role "asked"/, qr/passfile/ ],
	[ 'no such database', set(database => 'nowhere'), 'cannot connect', qr/database "nowhere" does not exist/, qr/pg_lock_history\.database/ ],
	[ 'no such database in conninfo', set(conninfo => 'dbname=nowhere'), 'cannot connect', qr/database "nowhere" does not exist/, qr/dbname in pg_lock_history\.conninfo/ ],
	[ 'database that takes nobody', set(database => 'shut'), 'cannot connect', qr/database "shut" does not accept connections/, qr/datallowconn/ ],
	[ 'template', set(database => 'pattern'), 'cannot connect', qr/database "pattern" is a template/, qr/pg_lock_history\.database/ ],
	[ 'template in conninfo', set(conninfo => 'dbname=pattern'), 'cannot connect', qr/database "pattern" is a template/, qr/dbname in pg_lock_history\.conninfo/ ],
	[ 'no server there', set(conninfo => "host=$host port=1 user=$user"), 'cannot connect', qr/cannot reach the server/, qr/pg_lock_history\.conninfo/ ],
	[ 'no such service', set(conninfo => "service=other servicefile=$services"), 'cannot connect', qr/pg_lock_history\.conninfo cannot be used/, qr/servicefile/ ],
	[ 'service without servicefile', set(conninfo => 'service=history'), 'cannot connect', qr/pg_lock_history\.conninfo cannot be used/, qr/servicefile/ ],
	[ 'extension missing', set(database => 'bare'), 'waiting for CREATE EXTENSION', qr/waiting for CREATE EXTENSION pg_lock_history in database bare/, qr/CREATE EXTENSION pg_lock_history in database bare/ ],
);
sub told_once
{
	my ($name, $offset, $text) = @_;
	my $log = LockHistory::log_since($node, $offset);
	my @told = grep { !/over, after/ } $log =~ /^(.*pg_lock_history: .*(?:\n.*DETAIL: .*)?)$/mg;
	my @mine = grep { /$text/ } @told;
	is(scalar @mine, 1, "$name: told once") or diag $log;
	return;
}
sub tried_again
{
	my $errors = LockHistory::status($node, 'errors');
	$node->poll_query_until('postgres', "SELECT value::bigint >= $errors + 2 FROM lock_history.status() WHERE key = 'errors'") or die 'it does not try again';
	return;
}
for my $case (@cases)
{
	my ($name, $line, $state, $text, $hint) = @$case;
	my $offset = LockHistory::log_end($node);
	configure($line);
	LockHistory::wait_until_status($node, 'state', $state);
	my $waits = $state =~ /^waiting/;
	tried_again() if !$waits;
	my ($first) = split /\(\?|\.\*/, $text;
	like(LockHistory::status($node, 'last_error'), $name =~ /all$/ ? qr/asks role/ : $text, "$name: status() has it") if !$waits;
	like(LockHistory::status($node, 'hint'), $hint, "$name: ... and the way out");
	told_once($name, $offset, $text);
	configure('');
	LockHistory::wait_until_recording($node);
	is(LockHistory::status($node, 'last_error'), '', "$name: gone when corrected");
}

# A template in the settings does not keep anybody from CREATE DATABASE.
configure(set(database => 'template1'));
LockHistory::wait_until_status($node, 'state', 'cannot connect');
$node->safe_psql('postgres', 'CREATE DATABASE made_meanwhile');
pass('CREATE DATABASE works meanwhile');
configure('');
LockHistory::wait_until_recording($node);

# Both ways in, by passfile and by service file.
for my $conninfo ("user=asked passfile=$good", "service=history servicefile=$services")
{
	configure(set(conninfo => $conninfo));
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND usename = 'asked'}) or die "not by $conninfo";
	LockHistory::wait_until_recording($node);
	LockHistory::flush($node);
	pass("$conninfo leads in");
}
configure('');
LockHistory::wait_until_recording($node);

# The extension is older or newer than the libraries.
for my $case ([ '0.9', qr/has version 0\.9, the libraries have/, qr/ALTER EXTENSION pg_lock_history UPDATE/ ], [ '99.0', qr/has version 99\.0, the libraries have/, qr/Install the libraries of version 99\.0 and restart/ ])
{
	my ($version, $text, $hint) = @$case;
	my $offset = LockHistory::log_end($node);
	my $ours = $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'pg_lock_history'});
	$node->safe_psql('postgres', "UPDATE pg_extension SET extversion = '$version' WHERE extname = 'pg_lock_history'");
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'});
	my $waiter = LockHistory::session($node, 'waiter');
	$node->safe_psql('postgres', q{SELECT lock_history.flush('10 ms')});    # something to write
	LockHistory::wait_until_status($node, 'state', 'wrong extension version');
	tried_again();
	like(LockHistory::status($node, 'hint'), $hint, "version $version: the way out");
	told_once("version $version", $offset, $text);
	$node->safe_psql('postgres', "UPDATE pg_extension SET extversion = '$ours' WHERE extname = 'pg_lock_history'");
	LockHistory::wait_until_recording($node);
	is(LockHistory::status($node, 'last_error'), '', "version $version: gone when corrected");
	$waiter->quit;
}

# No way in at all: the socket is gone, and no address is listened on.
my $socket = "$host/.s.PGSQL.$port";
my $by_file = LockHistory::session($node, 'stays');
my $offset = LockHistory::log_end($node);
rename $socket, "$socket.away" or die "$socket: $!";
my $ask = sub { return $by_file->run("SELECT value FROM lock_history.status() WHERE key = '$_[0]'"); };
$by_file->run(q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'});
$by_file->run(q{SELECT lock_history.flush('10 ms')});
LockHistory::until_true(sub { $ask->('state') eq 'cannot connect' }, 'it finds no way');
my $errors = $ask->('errors');
LockHistory::until_true(sub { $ask->('errors') > $errors + 1 }, 'it tries again');
like($ask->('last_error'), qr/found no way to connect to this server/, 'no socket: status() has it');
like($ask->('hint'), qr/unix_socket_directories/, 'no socket: ... and the way out');
told_once('no socket', $offset, qr/found no way to connect to this server/);
rename "$socket.away", $socket or die "$socket: $!";
LockHistory::until_true(sub { $ask->('state') eq 'recording' }, 'it is in again');
$by_file->quit;

$node->stop;
done_testing();
