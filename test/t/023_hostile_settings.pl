# Settings that would stop, slow down or expose the writer: from
# postgresql.conf, ALTER ROLE and ALTER DATABASE. History is written all the
# same, and nothing of the writer's own shows in other people's logs and
# statistics.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

# Those that a client may set for itself, and what they would do.
my %hostile = (
	default_transaction_read_only       => 'on',
	default_transaction_isolation       => 'serializable',
	default_transaction_deferrable      => 'on',
	statement_timeout                   => '1ms',
	lock_timeout                        => '1ms',
	idle_in_transaction_session_timeout => '1ms',
	idle_session_timeout                => '1ms',
	search_path                         => 'evil, pg_catalog',
	client_min_messages                 => 'debug5',
	client_encoding                     => 'LATIN1',
	DateStyle                           => 'SQL, DMY',
	IntervalStyle                       => 'sql_standard',
	TimeZone                            => 'Asia/Kathmandu',
	bytea_output                        => 'escape',
	extra_float_digits                  => '-15',
	quote_all_identifiers               => 'on',
	row_security                        => 'on',
	synchronous_commit                  => 'remote_apply',
	session_replication_role            => 'replica',
	vacuum_cost_delay                   => '100ms',
	vacuum_cost_limit                   => '1',
	debug_print_parse                   => 'on',
	debug_print_rewritten               => 'on',
	debug_print_plan                    => 'on',
	log_statement                       => 'all',
	log_duration                        => 'on',
	log_min_duration_statement          => '0',
	log_min_duration_sample             => '0',
	log_statement_sample_rate           => '1',
	log_transaction_sample_rate         => '1',
	log_parser_stats                    => 'on',
	log_planner_stats                   => 'on',
	log_executor_stats                  => 'on',
	log_min_messages                    => 'debug1',
	log_min_error_statement             => 'debug1',
	'auto_explain.log_min_duration'     => '0',
	'pg_stat_statements.track'          => 'all',
	temp_tablespaces                    => 'pg_global_does_not_exist',
	enable_indexscan                    => 'off',
	transform_null_equals               => 'on',
	array_nulls                         => 'off',
	jit_above_cost                      => '0',
);
my $node = LockHistory::cluster('hostile');
$node->safe_psql('postgres', q{
	CREATE TABLE public.orders (i int);
	CREATE SCHEMA evil; CREATE ROLE weak;
	CREATE FUNCTION evil.count() RETURNS int LANGUAGE sql AS 'SELECT 1/0';
	CREATE EXTENSION pg_stat_statements});
my $user = $node->safe_psql('postgres', 'SELECT current_user');
$node->stop;

# The tests' own sessions must live in there: they undo what they must.
my %bearable = %hostile;
delete @bearable{qw(temp_tablespaces)};    # not a name that exists: refused at the start only
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_lock_history, pg_stat_statements'\nsession_preload_libraries = 'auto_explain'\n"
	. "pg_stat_statements.track_utility = on\nlog_line_prefix = '%m [%p] %a '\n"
	. join '', map { "$_ = '$bearable{$_}'\n" } sort keys %bearable);
$ENV{PGOPTIONS} = '-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0 '
  . '-c default_transaction_read_only=off -c client_min_messages=warning -c client_encoding=UTF8 -c search_path=public -c synchronous_commit=local '
  . '-c quote_all_identifiers=off -c default_transaction_isolation=read\ committed -c role=none -c session_replication_role=origin '
  . '-c log_min_messages=warning -c debug_print_parse=off -c debug_print_rewritten=off -c debug_print_plan=off -c auto_explain.log_min_duration=-1';
$node->start;
for my $whom ("ROLE $user", 'DATABASE postgres', "ROLE $user IN DATABASE postgres")
{
	$node->safe_psql('postgres', join '', map { "ALTER $whom SET " . ($_ =~ /\./ ? $_ : lc) . " TO " . ($_ eq 'search_path' ? 'evil, pg_catalog' : "'$bearable{$_}'") . ";\n" } sort keys %bearable);
}
$node->safe_psql('postgres', "ALTER ROLE $user SET role TO 'weak'");
$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
my $offset = LockHistory::log_end($node);
$node->restart;
LockHistory::wait_until_recording($node);

my ($holder, $waiter) = map { LockHistory::session($node, $_) } qw(holder waiter);
for my $i (1 .. 3)
{
	$holder->run('BEGIN; LOCK TABLE public.orders');
	$waiter->send('SELECT FROM public.orders');
	LockHistory::wait_until_waiting($node, $waiter);
	LockHistory::flush($node);
	$holder->run('COMMIT');
	$waiter->answer;
	LockHistory::flush($node);
}
$_->quit for $holder, $waiter;
is($node->safe_psql('postgres', q{SELECT DISTINCT object, outcome, usename FROM lock_history.waits WHERE application_name = 'waiter'}), "public.orders|granted|$user", 'history is written, names as people write them');
is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter'}), '3', 'every wait is there once');
is(LockHistory::status($node, 'errors'), '0', 'nothing went wrong on the way') or diag LockHistory::status($node, 'last_error');

# What the writer runs, whoever else ran something like it. Nobody else writes
# to the tables, asks for the extension like this, or looks names up so.
is($node->safe_psql('postgres', q{
	SELECT count(*) FROM pg_stat_statements
	WHERE query ~* '^\s*(copy|update|insert|truncate|lock table|analyze).*lock_history' OR query ~ 'AS e\s+WHERE e.extname' OR query ~ 'rolname::text FROM pg_catalog.pg_roles' OR query ~ 'pg_postmaster_start_time'}),
	'0', 'pg_stat_statements has nothing of the writer');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_statements WHERE query ~ 'LOCK TABLE public.orders'}), '>', 0, '... but what others run');
my @own = grep { /\] pg_lock_history (?:writer|names) / && !/disconnection|connection authorized|administrator command|could not send data to client/ } split /\n/, LockHistory::log_since($node, $offset);
is(scalar @own, 0, 'the server log has nothing of the writer') or diag join "\n", @own[ 0 .. ($#own < 9 ? $#own : 9) ];

# A lock that is not free is an error in the writer's session; the server log
# has our message of it, and not one ERROR for each try.
$offset = LockHistory::log_end($node);
my $locker = LockHistory::session($node, 'locker');
$locker->run('BEGIN; LOCK TABLE lock_history.run IN SHARE MODE');    # status() can still read it
$node->safe_psql('postgres', q{SELECT lock_history.flush('10 ms')});
LockHistory::wait_until_status($node, 'state', 'writer blocked');
my $errors = LockHistory::status($node, 'errors');
$node->poll_query_until('postgres', "SELECT value::bigint > $errors + 1 FROM lock_history.status() WHERE key = 'errors'") or die 'no second try';
$locker->run('COMMIT');
$locker->quit;
LockHistory::wait_until_recording($node);
unlike(LockHistory::log_since($node, $offset), qr/\] pg_lock_history writer (?:ERROR|STATEMENT)/, 'what fails is told by the worker, not by the server');
my @told = LockHistory::log_since($node, $offset) =~ /WARNING:  pg_lock_history: history tables are locked/g;
is(scalar @told, 1, '... once');

$node->stop;
done_testing();
