# Names are kept as they were when the wait was seen.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('names', settings => 'max_prepared_transactions = 5');
$node->safe_psql('postgres', 'CREATE DATABASE shop');
my $user = $node->safe_psql('postgres', 'SELECT current_user');

# [name, database, statements to prepare, what the holder does, what waits, expected locktype|mode|object|datname]
my @cases = (
	[ 'table dropped afterwards', 'postgres', 'CREATE TABLE public.gone (i int)', 'LOCK TABLE gone', 'SELECT FROM gone',
		'relation|AccessShareLock|public.gone|postgres', 'DROP TABLE public.gone' ],
	[ 'table of another database', 'shop', 'CREATE SCHEMA s; CREATE TABLE s."Odd name" (i int)', 'LOCK TABLE s."Odd name"', 'SELECT FROM s."Odd name"',
		'relation|AccessShareLock|s."Odd name"|shop', '' ],
	[ 'index', 'postgres', 'CREATE TABLE public.indexed (i int); CREATE INDEX indexed_i ON public.indexed (i)',
		'ALTER INDEX indexed_i SET (fillfactor = 60)', 'ALTER INDEX indexed_i SET (fillfactor = 50)', 'relation|ShareUpdateExclusiveLock|public.indexed_i|postgres', '' ],
	[ 'row', 'postgres', 'CREATE TABLE public.rows AS SELECT 1 AS i', 'UPDATE rows SET i = 2', 'UPDATE rows SET i = 3',
		qr{^transactionid\|ShareLock\|transaction \d+ \(pid \d+\), tuple \(0,1\) of public\.rows\|postgres$}, '' ],
	[ 'advisory', 'postgres', '', 'SELECT pg_advisory_xact_lock(3, 4)', 'SELECT pg_advisory_xact_lock(3, 4)',
		qr/^advisory\|ExclusiveLock\|.*3.*4/, '' ],
);

for my $case (@cases)
{
	my ($name, $database, $prepare, $hold, $wait, $expected, $afterwards) = @$case;
	(my $application = $name) =~ tr/ /_/;
	$node->safe_psql($database, $prepare) if $prepare;
	my $holder = LockHistory::session($node, "holder_$application", database => $database);
	my $waiter = LockHistory::session($node, $application, database => $database);
	$holder->run("BEGIN; $hold");
	$waiter->send($wait);
	LockHistory::wait_until_waiting($node, $waiter);
	LockHistory::flush($node);
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	$node->safe_psql($database, $afterwards) if $afterwards;
	my $got = LockHistory::history($node,
		"SELECT locktype, mode, object, datname FROM lock_history.waits WHERE application_name = '$application' ORDER BY wait_start LIMIT 1");
	ref $expected ? like($got, $expected, $name) : is($got, $expected, $name);
	is($node->safe_psql('postgres', "SELECT DISTINCT usename FROM lock_history.waits WHERE application_name = '$application'"), $user, "$name: role");
}

is($node->safe_psql('postgres', q{SELECT DISTINCT blocker_datname FROM lock_history.blocking WHERE blocker_application_name = 'holder_table_of_another_database'}), 'shop', 'database of a blocker');

# A prepared transaction has no process: it is told by its gid.
$node->safe_psql('postgres', q{CREATE TABLE public.prepared (i int); BEGIN; LOCK TABLE prepared; PREPARE TRANSACTION 'forgotten one'});
my $waiter = LockHistory::session($node, 'behind_prepared');
$waiter->send('SELECT FROM prepared');
LockHistory::wait_until_waiting($node, $waiter);
is(LockHistory::history($node, q{SELECT hard_blockers, root_blockers FROM lock_history.waits WHERE application_name = 'behind_prepared'}), '{-1}|{-1}', 'a prepared transaction blocks as pid -1');
is($node->safe_psql('postgres', q{SELECT DISTINCT blocker_gid FROM lock_history.blocking WHERE blocker_pid < 0}), 'forgotten one', '... with its gid');
$node->safe_psql('postgres', q{COMMIT PREPARED 'forgotten one'});
$waiter->answer;
$waiter->quit;

# A database that was looked up can be dropped.
$node->safe_psql('postgres', 'DROP DATABASE shop');
is($node->safe_psql('postgres', q{SELECT DISTINCT datname FROM lock_history.waits WHERE application_name = 'table_of_another_database'}), 'shop', 'the name of a dropped database stays');

$node->stop;
done_testing();
