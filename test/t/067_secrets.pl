# What nobody is to read: a password in conninfo, and the statements of others.
# Neither is in the server log, nor in a setting or status that others see, nor
# in a notification; a password in a statement goes the way of query_text.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

# As a server is by default: statements are not logged.
my $node = LockHistory::cluster('secrets', init => [ auth_extra => [ '--create-role', 'watcher,nobody' ] ], start => 0,
	settings => "log_statement = none\nlog_connections = off\npg_lock_history.flush_period = '100ms'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history; CREATE ROLE watcher LOGIN; GRANT pg_read_all_stats TO watcher; CREATE ROLE nobody LOGIN; CREATE TABLE public.t (i int)');
$node->safe_psql('postgres', q{SELECT lock_history.grant_reader('watcher')});
LockHistory::wait_until_recording($node);
my $conf = PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postgresql.conf');
sub configure
{
	my ($lines) = @_;
	open my $file, '>', $node->data_dir . '/postgresql.conf' or die "postgresql.conf: $!";
	print $file "$conf\n$lines\n";
	close $file;
	$node->reload;
	return;
}
sub as { my ($role, $sql) = @_; my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]); return $rc == 0 ? $out : $err; }

# Every way in which it fails, and the one in which it works.
my ($host, $port, $user) = ($node->host, $node->port, $node->safe_psql('postgres', 'SELECT current_user'));
my $from = LockHistory::log_end($node);
my @ways = (
	[ 'leads in',             "user=$user password=s3cret",                         'recording' ],
	[ 'no such role',         'user=ghost password=s3cret',                         'cannot connect' ],
	[ 'no such database',     "user=$user dbname=ghost password=s3cret",            'cannot connect' ],
	[ 'nobody there',         "host=$host port=1 user=$user password=s3cret",       'cannot connect' ],
	[ 'a word that is none',  "user=$user password=s3cret pasword=s3cret",          'cannot connect' ],
	[ 'a quote that is open', "user=$user password=''s3cret",                       'cannot connect' ],
	[ 'a bad port',           "user=$user port=s3cret password=s3cret",             'cannot connect' ],
	[ 'a URL',                "postgresql://ghost:s3cret\@/postgres",               'cannot connect' ],
	[ 'a URL with a slash',   "postgresql://$user:s3cret/s3cret\@nowhere/postgres", 'cannot connect' ],
	[ 'no rights',            'user=nobody password=s3cret',                        'tables refused' ],
	[ 'not our form',         's3cret',                                             undef ]);
for my $way (@ways)
{
	my ($name, $value, $state) = @$way;
	my $before = LockHistory::log_end($node);
	configure("pg_lock_history.conninfo = '$value'\npg_lock_history.local_conninfo = '$value'");
	LockHistory::wait_until_status($node, 'state', $state) if defined $state;
	my $said = defined $state ? 'changed' : 'invalid value for';
	LockHistory::until_true(sub { LockHistory::log_since($node, $before) =~ /parameter "pg_lock_history\.local_conninfo"/ }, 'the postmaster has read it');
	like(LockHistory::log_since($node, $before), $state ? qr/LOG:  parameter "pg_lock_history\.conninfo" changed\n/ : qr/LOG:  invalid value for parameter "pg_lock_history\.conninfo"\n.*DETAIL:  The value must be/, "$name: the log has the name of the setting");
	for my $role ('watcher', 'nobody')
	{
		my $seen = join '', map { as($role, $_) } 'SHOW pg_lock_history.conninfo', q{SELECT current_setting('pg_lock_history.local_conninfo')},
		  q{SELECT pg_settings::text FROM pg_settings WHERE name LIKE 'pg_lock_history%'}, q{SELECT string_agg(s::text, '') FROM lock_history.status() AS s}, q{SELECT a::text FROM pg_stat_activity AS a}, 'SELECT f::text FROM pg_file_settings AS f';
		unlike($seen, qr/s3cret/, "$name: $role does not see it");
	}
}
# A name in another case is the same setting.
my $before = LockHistory::log_end($node);
configure("Pg_Lock_History.ConnInfo = 'user=$user password=s3cret'");
LockHistory::until_true(sub { LockHistory::log_since($node, $before) =~ /parameter "pg_lock_history\.conninfo" changed/ }, 'the postmaster has read it');
# A value that is refused while the server starts.
configure("pg_lock_history.conninfo = 's3cret'");
$node->restart;
like(LockHistory::log_since($node, $before), qr/system is shut down\n.*invalid value for parameter "pg_lock_history\.conninfo"\n/s, 'a value that is refused at start is told by its name');
configure('');
LockHistory::wait_until_recording($node);
my ($rc, undef, $err) = $node->psql('postgres', q{ALTER SYSTEM SET pg_lock_history.conninfo = 's3cret'});
like($err, qr/invalid value for parameter "pg_lock_history.conninfo"/, 'who types a bad value is told');
unlike(LockHistory::log_since($node, $from), qr/s3cret/, 'the server log has none of it');

# Statements of others, in each way that a wait can end, with a failing writer.
$node->safe_psql('postgres', 'ALTER SYSTEM SET log_min_error_statement = panic');
$node->safe_psql('postgres', q{ALTER SYSTEM SET deadlock_timeout = '10s'});
$node->reload;
sub waits
{
	my ($name, %o) = @_;
	my ($holder, $waiter) = map { LockHistory::session($node, "$_ $name") } qw(holder waiter);
	$holder->run('BEGIN; LOCK TABLE public.t');
	$waiter->run("SET lock_timeout = '1s'") if $o{fails};
	$waiter->send("INSERT INTO public.t SELECT 1 WHERE 'hush $name' <> 'secret of $name'");
	LockHistory::wait_until_waiting($node, $waiter) if !$o{fails};
	$waiter->answer if $o{fails};
	$holder->run('COMMIT');
	$waiter->answer if !$o{fails};
	$_->quit for $holder, $waiter;
	return;
}
$from = LockHistory::log_end($node);
for my $mode (qw(full normalized off))
{
	configure("pg_lock_history.query_text = '$mode'");
	LockHistory::until_true(sub { LockHistory::flush($node); $node->safe_psql('postgres', 'SHOW pg_lock_history.query_text') eq $mode }, 'it is set');
	LockHistory::flush($node);
	waits($mode, fails => 1);
	LockHistory::flush($node);
	my $kept = $node->safe_psql('postgres', "SELECT query FROM lock_history.waits WHERE application_name = 'waiter $mode'");
	my %want = (full => qr/'hush full' <> 'secret of full'/, normalized => qr/^INSERT INTO public\.t SELECT \$1 WHERE \$2 <> \$3;?$/, off => qr/^$/);
	like($kept, $want{$mode}, "query_text = $mode: what is kept of a password");
	unlike($node->safe_psql('postgres', q{SELECT string_agg(w::text, '') FROM lock_history.recent_waits() AS w WHERE w.application_name = 'waiter } . $mode . q{'}), qr/hush|secret/, '... and what is shown live') if $mode ne 'full';
}
configure('');
# A writer that is shut out, and one whose rows are refused.
my $locker = LockHistory::session($node, 'locker');
$locker->run('BEGIN; LOCK TABLE lock_history.run IN SHARE MODE');
waits('blocked');
LockHistory::wait_until_status($node, 'state', 'writer blocked');
$locker->run('ROLLBACK');
$locker->quit;
LockHistory::wait_until_recording($node);
$node->safe_psql('postgres', q{ALTER TABLE lock_history.actor ADD CONSTRAINT refuses CHECK (query NOT LIKE '%secret%') NOT VALID});
waits('refused');
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM lock_history.gaps WHERE detail LIKE '%refused%'}) or die 'no refusal';
$node->safe_psql('postgres', 'ALTER TABLE lock_history.actor DROP CONSTRAINT refuses');
waits('stopped');
$node->restart;
LockHistory::wait_until_recording($node);
my $log = LockHistory::log_since($node, $from);
like($log, qr/pg_lock_history: .*refuse the rows/, 'the log tells of the failures');
unlike(join("\n", grep { /pg_lock_history/ .. !/^(?:\t|.*(?:DETAIL|HINT|CONTEXT))/ } split /\n/, $log), qr/hush|secret of/, '... and has no statement of others');
unlike($log, qr/secret of/, 'nor has the rest of it');

$node->stop;
done_testing();
