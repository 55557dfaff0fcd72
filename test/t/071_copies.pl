# Servers with one system identifier: a standby, what becomes of it when it is
# promoted, and its former primary after pg_rewind. Each is a node of its own,
# and the history of each is kept apart.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use File::Copy;
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = LockHistory::cluster('primary', init => [ allows_streaming => 1 ], settings => q{
wal_log_hints = on
wal_keep_size = 64MB
});

# wait_begins(node, who), wait_ends(): a wait of who for an advisory lock, which
# works on a standby, too.
sub wait_begins
{
	my ($node, $who) = @_;
	my $holder = LockHistory::session($node, "before $who");
	my $waiter = LockHistory::session($node, $who);
	$holder->run('SELECT pg_advisory_lock(1)');
	$waiter->send('SELECT pg_advisory_lock(1), pg_advisory_unlock(1)');
	LockHistory::wait_until_waiting($node, $waiter);
	return [ $holder, $waiter ];
}
sub wait_ends
{
	my ($holder, $waiter) = @{ $_[0] };
	$holder->run('SELECT pg_advisory_unlock(1)');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	return;
}
sub wait_once { my $wait = wait_begins(@_); LockHistory::flush($_[0]); wait_ends($wait); LockHistory::flush($_[0]); return; }
# Who waited where, as the server at hand has it.
sub waits { my ($node) = @_; return $node->safe_psql('postgres', q{SELECT string_agg(application_name || ' at ' || node, ', ' ORDER BY wait_start) FROM lock_history.waits}); }
sub name_of { my ($node) = @_; return LockHistory::status($node, 'node'); }

wait_once($primary, 'one');
my $first = name_of($primary);
$primary->backup('base');

# A standby: it samples, and what it sees now can be read there; it cannot write.
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
my $second = name_of($standby);
isnt($second, $first, 'a standby is a node of its own');
is($standby->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'), $primary->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'), '... with the same system identifier');
LockHistory::wait_until_status($standby, 'state', 'standby');
like(LockHistory::status($standby, 'last_error'), qr/this server is a standby, no history is written/, 'a standby says that it cannot write');
like(LockHistory::status($standby, 'hint'), qr/pg_lock_history\.conninfo/, '... and the way out');
my $now = wait_begins($standby, 'two');
$standby->poll_query_until('postgres', q{SELECT bool_or(application_name = 'two') AND bool_or(application_name = 'before two') FROM lock_history.blocking_now}) or die 'not seen';
pass('blocking_now has who waits on the standby');
wait_ends($now);
$standby->poll_query_until('postgres', q{SELECT count(*) = 1 FROM lock_history.recent_waits() WHERE application_name = 'two'}) or die 'not seen';
pass('recent_waits() has who waited');
is(waits($standby), "one at $first", 'the history there is that of the primary');
my $errors = LockHistory::status($standby, 'errors');
$standby->poll_query_until('postgres', "SELECT value::bigint > $errors FROM lock_history.status() WHERE key = 'errors'") or die 'it does not try again';
my @told = LockHistory::log_since($standby, 0) =~ /LOG:  pg_lock_history: (.*)/g;
is(scalar(grep { $_ eq 'this server is a standby, no history is written' } @told), 1, 'one message says so') or diag join "\n", @told;

# Promotion in the middle of a wait: it is one wait, and nobody starts anything.
$now = wait_begins($standby, 'three');
my $worker = LockHistory::worker_pid($standby);
$standby->promote;
LockHistory::wait_until_recording($standby);
is(LockHistory::worker_pid($standby), $worker, 'promoted, the same worker records');
wait_ends($now);
LockHistory::flush($standby);
is(waits($standby), "one at $first, two at $second, three at $second", 'all that was seen since, and the history of the former primary');
is($standby->safe_psql('postgres', q{SELECT outcome, hard_blocker_count FROM lock_history.waits WHERE application_name = 'three'}), 'granted|1', 'the wait over the promotion is one');
is($standby->safe_psql('postgres', q{SELECT count(*), count(DISTINCT system_identifier) FROM lock_history.node}), '2|1', 'two nodes of one system identifier');

# Both go on, apart.
wait_once($primary, 'four');
wait_once($standby, 'five');
is(waits($primary), "one at $first, four at $first", 'the former primary keeps its own');
is(waits($standby), "one at $first, two at $second, three at $second, five at $second", 'and so does the new one');

# Rewound: the history of the new one, and nothing of what was only in the old one's
# file for the next life.
$now = wait_begins($primary, 'six');
$primary->append_conf('postgresql.conf', q{pg_lock_history.flush_period = '1min'});
$primary->reload;
my $file = $primary->data_dir . '/pgsql_tmp_pg_lock_history_spill';
$primary->stop('fast');
eval { $_->quit } for @$now;    # their server is gone
ok(-e $file, 'its last life has left something');
copy($primary->data_dir . '/postgresql.conf', $primary->basedir . '/kept.conf') or die $!;
$standby->safe_psql('postgres', 'CHECKPOINT');
command_ok([ 'pg_rewind', '--no-sync', '--source-server', $standby->connstr('postgres'), '--target-pgdata', $primary->data_dir, '--config-file', $primary->basedir . '/kept.conf' ], 'pg_rewind');
ok(!-e $file, 'pg_rewind removes the file that its last life left');
copy($primary->basedir . '/kept.conf', $primary->data_dir . '/postgresql.conf') or die $!;
$primary->enable_streaming($standby);
$primary->set_standby_mode;
my $offset = LockHistory::log_end($primary);
$primary->start;
LockHistory::wait_until_status($primary, 'state', 'standby');
is(name_of($primary), $first, 'it has its name again');
is(waits($primary), waits($standby), 'its history is that of the new primary');

# A standby that writes to its primary: its waits are there, under its own name.
$primary->append_conf('postgresql.conf', 'pg_lock_history.flush_period = 1s');
$primary->append_conf('postgresql.conf', sprintf q{pg_lock_history.conninfo = 'host=%s port=%s dbname=postgres'}, $standby->host, $standby->port);
$primary->reload;
LockHistory::wait_until_recording($primary);
wait_once($primary, 'seven');
like(waits($standby), qr/, seven at \Q$first\E$/, 'a standby with conninfo writes to its primary');
$standby->wait_for_catchup($primary);
is(waits($primary), waits($standby), '... and reads it at home');

$primary->stop;
$standby->stop;
done_testing();
