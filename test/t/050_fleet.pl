# One history for several servers: two clusters and a standby write to a third
# one, over ways that are cut, by a role that has a password. What was seen meanwhile
# is there afterwards; what is wrong is told once, with the server it is about.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use LockHistory::Link;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

# A longer cut than facts are kept for, by hand: PLH_CUT_SECONDS=150.
my $long_cut = $ENV{PLH_CUT_SECONDS} // 0;

my $archive = LockHistory::cluster('archive', settings => "pg_lock_history.node_name = 'archive'");
my $user = $archive->safe_psql('postgres', 'SELECT current_user');
$archive->safe_psql('postgres', q{
	SET password_encryption = 'scram-sha-256'; CREATE ROLE fleet LOGIN PASSWORD 'open sesame';
	SELECT lock_history.grant_writer('fleet'); CREATE DATABASE bare});
my $hba = slurp_file($archive->data_dir . '/pg_hba.conf');
write_to($archive->data_dir . '/pg_hba.conf', "local all fleet scram-sha-256\n$hba");
$archive->reload;

sub write_to { my ($path, $text) = @_; open my $file, '>', $path or die "$path: $!"; print $file $text; close $file; chmod 0600, $path; return; }
my $passfile = PostgreSQL::Test::Utils::tempdir() . '/passfile';
my ($good, $bad) = ("*:*:*:fleet:open sesame\n", "*:*:*:fleet:open barley\n");
write_to($passfile, $good);

my $link = LockHistory::Link->new($archive);
sub conninfo { my ($host, $port, $more) = @_; return "pg_lock_history.conninfo = 'host=$host port=$port dbname=postgres user=fleet passfile=$passfile" . ($more // '') . "'\n"; }
my $east = LockHistory::cluster('east', init => [ allows_streaming => 1 ],
	settings => "pg_lock_history.node_name = 'east'\npg_lock_history.flush_period = '200ms'\n" . conninfo($link->host, $link->port));
$east->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($east, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "pg_lock_history.node_name = 'east standby'\n" . conninfo($archive->host, $archive->port));
$standby->start;
my $offset = LockHistory::log_end($east);

sub sql { return $archive->safe_psql('postgres', $_[0]); }
sub until_seen { my ($condition) = @_; $archive->poll_query_until('postgres', $condition) or die "never: $condition"; return; }
until_seen(q{SELECT count(*) = 3 FROM lock_history.nodes WHERE state = 'recording'});

# wait_once(node, key): a wait for an advisory lock with that key.
my %sessions;
sub begin
{
	my ($node, $key) = @_;
	my ($holder, $waiter) = @{ $sessions{ $node->name } //= [ map { LockHistory::session($node, $_) } 'holder', 'waiter' ] };
	$holder->run("SELECT pg_advisory_lock($key)");
	$waiter->send("SELECT pg_advisory_lock($key), pg_advisory_unlock($key)");
	LockHistory::wait_until_waiting($node, $waiter);
	return;
}
sub end
{
	my ($node, $key) = @_;
	my ($holder, $waiter) = @{ $sessions{ $node->name } };
	$holder->run("SELECT pg_advisory_unlock($key)");
	$waiter->answer;
	return;
}
sub wait_once { begin(@_); end(@_); return; }
sub keys_of { my ($node) = @_; return sql("SELECT coalesce(string_agg(objid || ' ' || outcome, ', ' ORDER BY wait_start), '') FROM lock_history.waits WHERE node = '$node'"); }
sub gaps_of { my ($node) = @_; return sql("SELECT coalesce(string_agg(reason || ' ' || coalesce(lost, 0), ', ' ORDER BY began), '') FROM lock_history.gaps WHERE node = '$node'"); }

# ---- who writes here ----

wait_once($east, 1);
wait_once($standby, 2);
wait_once($archive, 3);
LockHistory::flush($_) for $east, $standby, $archive;
is(keys_of('east'), '1 granted', 'the wait of one server');
is(keys_of('east standby'), '2 granted', '... of its standby');
is(keys_of('archive'), '3 granted', '... and of the server that keeps the history itself');
is(sql(q{SELECT string_agg(node, ',' ORDER BY node) FROM lock_history.nodes}), 'archive,east,east standby', 'all are nodes');
is(sql(q{SELECT count(DISTINCT system_identifier), count(*) FILTER (WHERE is_local), bool_and(server_version_num = current_setting('server_version_num')::int),
	bool_and(rows > 0), bool_and(lives >= 1), bool_and(lag < '30 s'), bool_and(last_seen > now() - interval '1 min') FROM lock_history.nodes}),
	'2|1|t|t|t|t|t', 'a primary and its standby are two nodes of one system');
is(sql(q{SELECT node, clock_error > '0', clock_error < '1 s', clock_offset BETWEEN -clock_error AND clock_error, clock_measured_at > now() - interval '5 min'
	FROM lock_history.nodes WHERE NOT is_local ORDER BY node}), "east|t|t|t|t\neast standby|t|t|t|t", 'one clock: no offset, within its error');
is(sql(q{SELECT clock_offset, clock_error FROM lock_history.nodes WHERE is_local}), '00:00:00|00:00:00', 'none at all at home');
is(sql(q{SELECT string_agg(usename, ',') FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND usename <> '} . $user . q{'}), 'fleet,fleet', 'by a role of its own');
like(sql(q{SELECT string_agg(DISTINCT node, ',') FROM lock_history.load}), qr/east/, 'load of other servers');
is(sql(q{SELECT count(*) FROM lock_history.blocking_tree_at((SELECT wait_start + (wait_end - wait_start) / 2 FROM lock_history.waits WHERE node = 'east'), 'east')}), '2', 'a tree of another server');
is($east->safe_psql('postgres', 'SELECT count(*) FROM lock_history.nodes'), '0', 'nothing is written on the watched server');

# ---- the way is cut, stands still, or its other end does ----

# told_once(name, pattern): in the log of east, since the last call.
sub told_once
{
	my ($name, $pattern) = @_;
	my @told = grep { !/over, after/ } LockHistory::log_since($east, $offset) =~ /^(.*pg_lock_history: .*)$/mg;
	is(scalar(grep { /$pattern/ } @told), 1, "$name: told once") or diag join "\n", @told;
	is(scalar(@told), 1, "$name: ... and nothing else") or diag join "\n", @told;
	$offset = LockHistory::log_end($east);
	return;
}
sub status { return LockHistory::status($east, $_[0]); }
sub until_state { LockHistory::wait_until_status($east, 'state', $_[0]); return; }
sub again { until_state('recording'); LockHistory::flush($east); $offset = LockHistory::log_end($east); return; }
$offset = LockHistory::log_end($east);

$link->cut;
begin($east, 10);
until_state('cannot connect');
end($east, 10);
wait_once($east, 11);
my $errors = status('errors');
$east->poll_query_until('postgres', "SELECT value::bigint > $errors FROM lock_history.status() WHERE key = 'errors'") or die 'it does not try again';
like(status('hint'), qr/pg_lock_history\.conninfo.*kept in memory/, 'cut: the way out');
told_once('cut', qr/cannot reach the server that keeps the history/);
$link->mend;
again();
is(keys_of('east'), '1 granted, 10 granted, 11 granted', 'cut: nothing is lost');

# Nothing goes through, and nobody says so: no error to be told, either.
$link->freeze;
begin($east, 20);
end($east, 20);
wait_once($east, 21);
is($east->safe_psql('postgres', q{SELECT count(*) FROM lock_history.recent_waits() WHERE objid IN (20, 21)}), '2', 'silence: sampling goes on');
is(sql(q{SELECT count(*) FROM lock_history.waits WHERE objid IN (20, 21)}), '0', '... and nothing arrives');
$link->thaw;
LockHistory::flush($east);
is(keys_of('east'), '1 granted, 10 granted, 11 granted, 20 granted, 21 granted', 'silence: nothing is lost');

my @writers = split /\n/, sql(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND usename = 'fleet'});
kill STOP => @writers;
begin($east, 30);
end($east, 30);
wait_once($east, 31);
is($east->safe_psql('postgres', q{SELECT count(*) FROM lock_history.recent_waits() WHERE objid IN (30, 31)}), '2', 'the server processes stand still: sampling goes on');
kill CONT => @writers;
LockHistory::flush($east);
is(keys_of('east'), '1 granted, 10 granted, 11 granted, 20 granted, 21 granted, 30 granted, 31 granted', '... and nothing is lost');
is(gaps_of('east'), '', 'so there is no gap');

if ($long_cut)
{
	$link->freeze;
	my $began = time;
	for (my $key = 1000; time < $began + $long_cut; $key++) { wait_once($east, $key); sleep 1; }
	my $late = time - 55;
	$link->thaw;
	again();
	diag sql(q{SELECT began, ended, reason, lost, detail FROM lock_history.gaps WHERE node = 'east'});
	like(gaps_of('east'), qr/^writer blocked [1-9]/, 'a long cut: the gap is told, with its rows');
	is(sql("SELECT count(*) FILTER (WHERE n.objid IS NULL) FROM generate_series(1000, (SELECT max(objid::int8) FROM lock_history.waits WHERE node = 'east')) AS g(key)
		LEFT JOIN lock_history.waits AS n ON n.objid::int8 = g.key AND n.node = 'east'
		WHERE g.key >= (SELECT min(objid::int8) FROM lock_history.waits WHERE node = 'east' AND objid::int8 >= 1000 AND wait_start > to_timestamp($late))"), '0', '... and the last minute is there');
	is(sql("SELECT min(wait_start) < to_timestamp($late + 5) FROM lock_history.waits WHERE node = 'east' AND objid::int8 > 1000"), 't', '... all of it');
}

# ---- a stop while the way is cut: what was not written comes with the next start ----

$link->cut;
wait_once($east, 40);
LockHistory::until_true(sub { status('state') eq 'cannot connect' }, 'the way is cut');
delete $sessions{east};
$east->stop('fast');
ok(-e $east->data_dir . '/pgsql_tmp_pg_lock_history_spill', 'what could not be written waits in a file');
$east->start;
begin($east, 41);
$link->mend;
again();
end($east, 41);
LockHistory::flush($east);
like(keys_of('east'), qr/, 40 granted, 41 granted$/, 'after the start it is written');
ok(!-e $east->data_dir . '/pgsql_tmp_pg_lock_history_spill', '... and the file is gone');
is(sql(q{SELECT string_agg(reason, ',') FROM lock_history.gaps WHERE node = 'east'} . ($long_cut ? " AND reason = 'stopped'" : '')), 'stopped', 'the stop is a gap');
is(sql(q{SELECT lives FROM lock_history.nodes WHERE node = 'east'}), '2', 'two lives of its worker');

# ---- what is wrong at the other end is told once, with the server it is about ----

my $there = 'on host ' . $link->host . ' port ' . $link->port;
write_to($passfile, $bad);
$link->cut;
wait_once($east, 45);
until_state('cannot connect');
$offset = LockHistory::log_end($east);
$link->mend;
$east->reload;
$east->poll_query_until('postgres', q{SELECT value ~ 'password' FROM lock_history.status() WHERE key = 'last_error'}) or die 'never told';
like(status('hint'), qr/passfile in pg_lock_history\.conninfo/, 'a wrong password: the way out');
told_once('a wrong password', qr/the server does not take the password of role "fleet"/);
write_to($passfile, $good);
$east->reload;
again();

sub with
{
	my ($name, $dbname, $state, $pattern, $hint) = @_;
	$offset = LockHistory::log_end($east);
	$east->append_conf('postgresql.conf', conninfo($link->host, $link->port) =~ s/dbname=postgres/dbname=$dbname/r);
	$east->reload;
	until_state($state);
	like(status('hint'), $hint, "$name: the way out");
	told_once($name, $pattern);
	return;
}
with('no extension there', 'bare', 'waiting for CREATE EXTENSION', qr/waiting for CREATE EXTENSION pg_lock_history in database bare $there/, qr/in database bare $there/);
with('no such database there', 'nowhere', 'cannot connect', qr/database "nowhere" does not exist $there/, qr/dbname in pg_lock_history\.conninfo/);
my $version = sql(q{SELECT extversion FROM pg_extension WHERE extname = 'pg_lock_history'});
for my $other ('0.9', '99.0')
{
	sql("UPDATE pg_extension SET extversion = '$other' WHERE extname = 'pg_lock_history'");
	with("version $other there", 'postgres', 'wrong extension version', qr/extension pg_lock_history has version $other, the libraries have $version/,
		$other eq '0.9' ? qr/UPDATE in database postgres $there, once version $version is installed there/ : qr/version 99\.0 on this server and restart/);
	sql("UPDATE pg_extension SET extversion = '$version' WHERE extname = 'pg_lock_history'");
	again();
}

# Two servers of one name: neither may write into the other's history.
my $west = LockHistory::cluster('west', settings => "pg_lock_history.node_name = 'east'\n" . conninfo($archive->host, $archive->port), extension => 0);
LockHistory::until_true(sub { LockHistory::log_since($west, 0) =~ /node_name is used by another server in this history/ }, 'the name is refused');
pass('a name that another server has is refused');
$west->stop;

# ---- a server that is heard of no more ----

# its promotion changes nothing before
begin($standby, 50);
$standby->promote;
end($standby, 50);
wait_once($standby, 51);
LockHistory::flush($standby);
is(keys_of('east standby'), '2 granted, 50 granted, 51 granted', 'a standby that writes elsewhere goes on when it is promoted');
$standby->stop('immediate');
sql(q{UPDATE lock_history.run SET written_at = written_at - interval '3 min' WHERE node_id = (SELECT node_id FROM lock_history.node WHERE node = 'east standby')});
is(sql(q{SELECT state FROM lock_history.nodes WHERE node = 'east standby'}), 'silent', 'silent for longer than a minute');
is(sql(q{SELECT string_agg(reason || coalesce(ended::text, ' lasts'), ',') FROM lock_history.gaps WHERE node = 'east standby'}), 'stopped lasts', '... which is a gap');
is(sql(q{SELECT string_agg(state, ',') FROM lock_history.nodes WHERE node <> 'east standby'}), 'recording,recording', 'the others are not');

$east->stop;
$archive->stop;
done_testing();
