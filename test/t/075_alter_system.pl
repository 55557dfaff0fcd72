# ALTER SYSTEM of every setting there is, one after the other on a server at
# work: the worker takes it, or one message says what stands in the way. A new
# setting has to be added to %values.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('alter_system', settings => q{
pg_lock_history.log_level = debug
});
my $nowhere = sprintf q{host=%s port=1 dbname=postgres user=postgres}, $node->host;

# Another value than that at hand for each, and what is told when it cannot be used.
my %values = (
	allow_published => ['on'],
	anomaly_band => ['4'],
	conninfo => [ $nowhere, qr/cannot reach the server that keeps the history/ ],
	database => [ 'nowhere', qr/database "nowhere" does not exist/ ],
	enable_query_id => ['off'],
	enabled => ['off'],
	flush_period => ['200ms'],
	hot_page_budget => ['2'],
	incident => ['one'],
	local_conninfo => [ $nowhere, qr/cannot look up names/ ],
	log_level => ['warning'],
	max_rows_per_second => ['500'],
	max_size => ['64MB'],
	memory_limit => ['32MB'],
	min_duration => ['50ms'],
	node_name => ['other'],
	query_length => ['512'],
	query_text => ['normalized'],
	retention => ['1d'],
	rollup_retention => ['30d'],
	sample_period => ['20ms'],
	shared_memory => ['8MB'],
	track_load => ['off'],
	track_locks => ['off'],
	track_lwlocks => ['off'],
	track_pages => ['off'],
);
my %setting = map { my ($name, @rest) = split /\|/; ($name => [@rest]) } split /\n/,
  $node->safe_psql('postgres', q{SELECT substr(name, 17), context, coalesce(short_desc LIKE 'Reserved%', false) FROM pg_settings WHERE name LIKE 'pg\_lock\_history.%'});
is_deeply([ sort keys %values ], [ sort keys %setting ], 'every setting has a value here');

my ($holder, $waiter) = map { LockHistory::session($node, $_) } 'holder', 'waiter';
sub wait_once
{
	$holder->run('SELECT pg_advisory_lock(1)');
	$waiter->send('SELECT pg_advisory_lock(1), pg_advisory_unlock(1)');
	until_answer('1', LockHistory::is_seen_waiting($waiter));
	$holder->run('SELECT pg_advisory_unlock(1)');
	$waiter->answer;
	return;
}
# One session for all: it takes the machine less time than one for each.
my $asks = LockHistory::session($node, 'asks');
sub alter { $asks->run($_) for @_, 'SELECT pg_reload_conf()'; return; }
sub until_answer
{
	my ($answer, $sql) = @_;
	LockHistory::until_true(sub { $asks->run($sql) eq $answer }, "$sql gives $answer");
	return;
}

my $worker = LockHistory::worker_pid($node);
# log_level last: the others are followed by what is logged at debug.
for my $name (sort { ($a eq 'log_level') <=> ($b eq 'log_level') || $a cmp $b } keys %setting)
{
	my ($context, $reserved) = @{ $setting{$name} };
	my ($value, $told) = @{ $values{$name} };
	my $offset = LockHistory::log_end($node);
	alter("ALTER SYSTEM SET pg_lock_history.$name = '$value'");
	if ($context eq 'postmaster')
	{
		$node->wait_for_log(qr/parameter "pg_lock_history.$name" cannot be changed without restarting the server/, $offset);
		pass("$name: one message says that it takes a restart");
	}
	elsif ($context eq 'user' || $reserved eq 't' || $name eq 'log_level')
	{
		until_answer('configuration file', "SELECT source FROM pg_settings WHERE name = 'pg_lock_history.$name'");
		pass("$name: sessions have it");
	}
	else
	{
		$node->wait_for_log(qr/pg_lock_history: new values are in use: pg_lock_history\.$name\n/, $offset);
		pass("$name: the worker has it");
	}
	if ($told)
	{
		# Something to write, and a name to look up, which is not asked for again at once.
		LockHistory::until_true(sub { wait_once(); LockHistory::log_since($node, $offset) =~ /pg_lock_history: $told/ }, "$name: it is told");
		my @told = LockHistory::log_since($node, $offset) =~ /(?:WARNING|LOG):  pg_lock_history: ($told)/g;
		is(scalar @told, 1, "$name: one message says what stands in the way");
	}
	alter("ALTER SYSTEM RESET pg_lock_history.$name");
	$node->wait_for_log(qr/pg_lock_history: new values are in use: pg_lock_history\.$name\n.*pg_lock_history: new values are in use: pg_lock_history\.$name\n/s, $offset)
	  if $context eq 'sighup' && $reserved ne 't' && $name ne 'log_level';
	until_answer('recording', q{SELECT value FROM lock_history.status() WHERE key = 'state'});
}

is(LockHistory::worker_pid($node), $worker, 'the worker is the same');
is(LockHistory::status($node, 'last_error'), '', 'no error is left');
my $before = LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter'});
wait_once();
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter'}), $before + 1, 'history goes on');

# Those that take a restart, after one.
alter(q{ALTER SYSTEM SET pg_lock_history.shared_memory = '8MB'}, q{ALTER SYSTEM SET pg_lock_history.enable_query_id = off});
$_->quit for $holder, $waiter, $asks;
$node->restart;
LockHistory::wait_until_recording($node);
is($node->safe_psql('postgres', q{SELECT current_setting('pg_lock_history.shared_memory'), current_setting('pg_lock_history.enable_query_id')}), '8MB|off', 'and those of a restart');
$node->stop;
done_testing();
