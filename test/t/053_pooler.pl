# A pooler in transaction mode between the writers and their history: each
# transaction may be in another session of the server, which keeps nothing.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
plan skip_all => 'pgbouncer is not installed' if !$pgbouncer;

my $archive = LockHistory::cluster('archive');
$archive->safe_psql('postgres', q{CREATE ROLE fleet LOGIN; SELECT lock_history.grant_writer('fleet')});

my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
# start_pooler(more): each transaction in one of two sessions.
sub start_pooler
{
	my ($more) = @_;
	open my $ini, '>', "$dir/pgbouncer.ini" or die $!;
	print $ini "[databases]\n* = host=" . $archive->host . ' port=' . $archive->port . "\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 2\n"
	  . "unix_socket_dir = $dir\nlisten_port = $port\nauth_type = trust\nauth_file = $dir/users\nlogfile = $dir/log\npidfile = $dir/pid\n$more\n";
	close $ini;
	open my $users, '>', "$dir/users" or die $!;
	print $users qq{"fleet" ""\n};
	close $users;
	system_or_bail($pgbouncer, '-d', '-q', "$dir/pgbouncer.ini");
	return;
}
sub stop_pooler
{
	my $pid = slurp_file("$dir/pid");
	kill INT => $pid;
	LockHistory::until_true(sub { !-e "$dir/pid" }, 'the pooler has ended');
	return;
}
start_pooler('');
END { my $status = $?; if (defined $dir && -e "$dir/pid") { kill TERM => slurp_file("$dir/pid"); } $? = $status; }

my @nodes = map { LockHistory::cluster($_, settings => "pg_lock_history.node_name = '$_'\npg_lock_history.flush_period = '100ms'\npg_lock_history.conninfo = 'host=$dir port=$port dbname=postgres user=fleet'") } qw(one two three);
sub wait_once
{
	my ($node, $key) = @_;
	my ($holder, $waiter) = map { LockHistory::session($node, $_) } 'holder', 'waiter';
	$holder->run("SELECT pg_advisory_lock($key)");
	$waiter->send("SELECT pg_advisory_lock($key)");
	LockHistory::wait_until_waiting($node, $waiter);
	LockHistory::flush($node);
	$holder->run("SELECT pg_advisory_unlock($key)");
	$waiter->answer;
	$_->quit for $holder, $waiter;
	LockHistory::flush($node);
	return;
}
sub sql { return $archive->safe_psql('postgres', $_[0]); }
my $all = q{SELECT string_agg(node || ' ' || objid || ' ' || outcome, ', ' ORDER BY wait_start) FROM lock_history.waits WHERE locktype = 'advisory'};

my @expected;
for my $how ('as it is', 'told to ignore start-up parameters')
{
	if ($how ne 'as it is')
	{
		stop_pooler();
		start_pooler('ignore_startup_parameters = ' . join ',', qw(extra_float_digits search_path bytea_output client_min_messages datestyle intervalstyle timezone quote_all_identifiers
			default_transaction_read_only default_transaction_isolation default_transaction_deferrable synchronous_commit idle_in_transaction_session_timeout row_security
			vacuum_cost_delay debug_print_parse debug_print_rewritten debug_print_plan log_parameter_max_length_on_error lock_timeout statement_timeout));
	}
	for my $i (0 .. $#nodes)
	{
		LockHistory::wait_until_recording($nodes[$i]);
		my $key = 10 * @expected + $i;
		wait_once($nodes[$i], $key);
		push @expected, $nodes[$i]->name . " $key granted";
	}
	is(sql($all), join(', ', @expected), "$how: all arrives");
	cmp_ok(sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'fleet'}), '<=', 2, '... in two sessions');

	# What a transaction sets is its own: a lock that is not free is not waited for, and nobody else has our timeouts.
	my $locker = LockHistory::session($archive, 'locker');
	$locker->run('BEGIN; LOCK TABLE lock_history.run IN SHARE MODE');
	$nodes[0]->safe_psql('postgres', q{SELECT lock_history.flush('10 ms')});
	$nodes[0]->poll_query_until('postgres', q{SELECT value ~ 'locked by somebody' FROM lock_history.status() WHERE key = 'last_error'}) or die 'it waits for the lock';
	pass('... it waits for no lock');
	$locker->run('COMMIT');
	$locker->quit;
	LockHistory::wait_until_recording($nodes[0]);
	is($archive->safe_psql('postgres', 'SHOW lock_timeout', connstr => "host=$dir port=$port dbname=postgres user=fleet"), '0', '... and leaves no setting behind');
}
is(sql(q{SELECT count(*) FROM lock_history.gaps}), '0', 'no gap');
is(sql(q{SELECT string_agg(DISTINCT state, ',') FROM lock_history.nodes WHERE NOT is_local}), 'recording', 'all record');

$_->stop for @nodes;
stop_pooler();
$archive->stop;
done_testing();
