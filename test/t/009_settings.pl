# A bad setting gives one message that names it and says the way out; the
# server runs on, and a corrected setting is taken up.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('settings');
my $user = $node->safe_psql('postgres', 'SELECT current_user');

# Refused by the server when the file is read: the old value stays.
# [setting, bad value, what the log says]
my @refused = (
	[ 'sample_period', "-5", qr/-5 ms is outside the valid range for parameter "pg_lock_history.sample_period" \(1(?: ms)? \.\. 60000(?: ms)?\)/ ],
	[ 'sample_period', "0", qr/outside the valid range for parameter "pg_lock_history.sample_period"/ ],
	[ 'sample_period', "'10 parsecs'", qr/invalid value for parameter "pg_lock_history.sample_period"/ ],
	[ 'flush_period', "'2 kB'", qr/invalid value for parameter "pg_lock_history.flush_period"/ ],
	[ 'retention', "-1", qr/outside the valid range for parameter "pg_lock_history.retention"/ ],
	[ 'max_size', "'1 kB'", qr/outside the valid range for parameter "pg_lock_history.max_size"/ ],
	[ 'query_text', "'some'", qr/invalid value for parameter "pg_lock_history.query_text": "some"/ ],
	[ 'anomaly_band', "0.5", qr/invalid value for parameter "pg_lock_history.anomaly_band": 0.5/ ],
	[ 'database', "''", qr/invalid value for parameter "pg_lock_history.database"/ ],
	[ 'conninfo', "'just words'", qr/invalid value for parameter "pg_lock_history.conninfo"/ ],
);
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

for my $case (@refused)
{
	my ($name, $value, $message) = @$case;
	my $old = $node->safe_psql('postgres', "SHOW pg_lock_history.$name");
	my $offset = LockHistory::log_end($node);
	configure("pg_lock_history.$name = $value");
	$node->wait_for_log($message, $offset);
	pass("$name = $value is refused by name");
	is($node->safe_psql('postgres', "SHOW pg_lock_history.$name"), $old, '... and the old value stays');
}
configure('');

# Accepted in form, but they lead nowhere: the writer finds out.
$node->safe_psql('postgres', 'CREATE ROLE powerless LOGIN');
$node->safe_psql('template1', 'CREATE DATABASE empty_one');
my $host = $node->host;
# [name, line, what the log says (once), what status() says, hint]
my @dead_ends = (
	[ 'a database that does not exist', "pg_lock_history.database = 'nowhere'", qr/nowhere/, qr/pg_lock_history\.database/ ],
	[ 'an unreachable conninfo', "pg_lock_history.conninfo = 'host=$host port=1 dbname=postgres user=$user'", qr/pg_lock_history/, qr/pg_lock_history\.conninfo/ ],
	[ 'a role without rights', "pg_lock_history.conninfo = 'host=$host port=" . $node->port . " dbname=postgres user=powerless'", qr/pg_lock_history/, qr/powerless|GRANT|grant|pg_lock_history\.conninfo/ ],
);
for my $case (@dead_ends)
{
	my ($name, $line, $message, $hint) = @$case;
	my $offset = LockHistory::log_end($node);
	configure($line);
	$node->wait_for_log(qr/\] (?:WARNING|LOG|ERROR):  (?!statement|received SIGHUP|parameter)[^\n]*\n(?:[^\n]*(?:DETAIL|HINT):[^\n]*\n)*/, $offset);
	LockHistory::until_true(sub { LockHistory::log_since($node, $offset) =~ $hint && LockHistory::log_since($node, $offset) =~ $message }, "$name is told in the log");
	pass("$name: the log names the setting and the way out");
	isnt(LockHistory::status($node, 'last_error'), '', "$name: status() has the error");
	# A second failure of the same kind comes within the back-off; it is counted, not logged.
	my $errors = LockHistory::status($node, 'errors');
	$node->poll_query_until('postgres', "SELECT value::bigint > $errors + 1 FROM lock_history.status() WHERE key = 'errors'") or die 'no second try';
	my @lines = grep { /WARNING:  .*/ && !/statement/ } split /\n/, LockHistory::log_since($node, $offset);
	is(scalar @lines, 1, "$name: said once") or diag join "\n", @lines;
	configure('');
	LockHistory::wait_until_recording($node);
	is(LockHistory::status($node, 'last_error'), '', "$name: corrected, and the error is gone");
}

# Another sampling period, while somebody is active: so many ticks, and each second is told as before.
my $sleeper = LockHistory::session($node, 'sleeper');
$sleeper->send('SELECT pg_sleep(600)');
$node->poll_query_until('postgres', q{SELECT lock_history.flush() AND count(*) > 0 FROM lock_history.load WHERE wait_event = 'PgSleep'}) or die 'no load';
my $since = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
# Ticks so far, and the monotonic time of the server.
sub ticks
{
	LockHistory::flush($node);
	return split /\|/, $node->safe_psql('postgres', 'SELECT sum(ticks_done), sum(ticks_missed), extract(epoch FROM clock_timestamp()) FROM lock_history.health');
}
for my $ms (200, 20)
{
	configure("pg_lock_history.sample_period = $ms");
	$node->poll_query_until('postgres', "SELECT value = '${ms}ms' FROM lock_history.status() WHERE key = 'sample_period'") or die 'not taken';
	my ($done, $missed, $at) = ticks();
	$node->poll_query_until('postgres', "SELECT extract(epoch FROM clock_timestamp()) > $at + 2") or die 'the clock stands';
	my ($done_then, $missed_then, $then) = ticks();
	my $due = ($then - $at) * 1000 / $ms;
	my $n = $done_then - $done + $missed_then - $missed;
	ok($n > 0.8 * $due - 2 && $n < 1.2 * $due + 2, "$n ticks of $ms ms, due were " . int $due);
}
my $until = $node->safe_psql('postgres', q{SELECT date_trunc('second', value::timestamptz) FROM lock_history.status() WHERE key = 'last_flush'});
is($node->safe_psql('postgres', qq{
	SELECT count(*) FROM generate_series(timestamptz '$since', timestamptz '$until' - interval '1 s', '1 s') AS s(at)
	WHERE NOT EXISTS (SELECT FROM lock_history.load_by('$since', '$until', '1 s') AS l WHERE l.at = s.at AND l.wait_event = 'PgSleep' AND l.aas BETWEEN 0.9 AND 1.1)}),
	'0', 'who was active all the time was so in each second') or diag $node->safe_psql('postgres', "SELECT at, aas FROM lock_history.load_by('$since', '$until', '1 s') WHERE wait_event = 'PgSleep'");
configure('');

# Restart-only settings are only there when preloaded.
my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET pg_lock_history.shared_memory = '8MB'");
like($stderr, qr/cannot be changed without restarting the server/, 'a restart-only setting says so');

# Off and on again: the time shows as a gap.
configure('pg_lock_history.enabled = off');
LockHistory::wait_until_status($node, 'state', 'disabled');
configure('');
LockHistory::wait_until_recording($node);
is(LockHistory::history($node, "SELECT count(*) FROM lock_history.gaps WHERE reason = 'disabled' AND ended > began"), '1', 'the time it was off is a gap');

$node->stop;
done_testing();
