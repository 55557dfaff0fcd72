# A database that publishes its tables. CREATE EXTENSION refuses it; when the
# publication comes later the writer stops before a row of ours is sent, and
# the subscriber goes on. Ends by itself, or by allow_published.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = LockHistory::cluster('publisher', init => [ allows_streaming => 'logical' ], extension => 0);
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init;
$subscriber->start;

# Refused where all tables are published already.
$publisher->safe_psql('postgres', 'CREATE PUBLICATION "Every one" FOR ALL TABLES');
my ($rc, $out, $err) = $publisher->psql('postgres', 'CREATE EXTENSION pg_lock_history');
isnt($rc, 0, 'CREATE EXTENSION is refused');
like($err, qr/ERROR:  the history must not be in a database that publishes all tables/, '... with the reason');
like($err, qr/DETAIL:  Publication "Every one" is FOR ALL TABLES/, '... the publication');
like($err, qr/HINT: .*pg_lock_history\.database.*pg_lock_history\.allow_published/, '... and the way out');
is($publisher->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_history'}), '0', '... and nothing is left');
$publisher->safe_psql('postgres', 'DROP PUBLICATION "Every one"; CREATE PUBLICATION shop FOR TABLES IN SCHEMA public');
$publisher->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
LockHistory::wait_until_recording($publisher);
pass('a publication of something else does not matter');

# A subscriber that follows all along; a slot of ours sees what it is sent.
for my $node ($publisher, $subscriber)
{
	$node->safe_psql('postgres', 'CREATE TABLE public.orders (id int PRIMARY KEY)');
}
$publisher->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('watch', 'pgoutput')});
(my $connstr = $publisher->connstr('postgres')) =~ s/'/''/g;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION shop");
$subscriber->wait_for_subscription_sync($publisher, 's');

my $next = 0;
sub replicates
{
	my ($what) = @_;
	$next++;
	$publisher->safe_psql('postgres', "INSERT INTO public.orders VALUES ($next)");
	$publisher->wait_for_catchup($_) for 's', @_[ 1 .. $#_ ];
	is($subscriber->safe_psql('postgres', 'SELECT max(id) FROM public.orders'), $next, $what);
	return;
}

# Relations that a subscriber of these publications has been told of.
sub sent
{
	my (@publications) = @_;
	my $names = join ',', map { qq{"$_"} } @publications;
	return $publisher->safe_psql('postgres', qq{
		SELECT count(*) FILTER (WHERE position('orders'::bytea IN data) > 0) > 0, count(*) FILTER (WHERE position('lock_history'::bytea IN data) > 0)
		FROM pg_logical_slot_peek_binary_changes('watch', NULL, NULL, 'proto_version', '1', 'publication_names', '$names')
		WHERE get_byte(data, 0) = ascii('R')});
}

my $holder = LockHistory::session($publisher, 'holder');
sub wait_once
{
	my ($name) = @_;
	my $waiter = LockHistory::session($publisher, $name);
	$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	$waiter->send('SELECT pg_advisory_xact_lock(1)');
	LockHistory::wait_until_waiting($publisher, $waiter);
	$holder->run('COMMIT');
	$waiter->answer;
	$waiter->quit;
	return;
}
sub recorded
{
	return LockHistory::history($publisher, q{SELECT string_agg(application_name, ',' ORDER BY wait_start) FROM lock_history.waits WHERE application_name ~ '^w[0-9]'});
}

# The statement that makes the publication in the subscriber's way, and the one
# that takes it away.
my @ways = (
	[ 'all', 'CREATE PUBLICATION late FOR ALL TABLES', 'DROP PUBLICATION late', 'late' ],
	[ 'schema', 'ALTER PUBLICATION shop ADD TABLES IN SCHEMA lock_history', 'ALTER PUBLICATION shop DROP TABLES IN SCHEMA lock_history', 'shop' ],
	[ 'table', 'ALTER PUBLICATION shop ADD TABLE lock_history.run', 'ALTER PUBLICATION shop DROP TABLE lock_history.run', 'shop' ],
);
my $n = 0;
for my $way (@ways)
{
	my ($name, $publish, $withdraw, $publication) = @$way;
	wait_once('w' . ++$n);
	LockHistory::flush($publisher);
	my $offset = LockHistory::log_end($publisher);
	$publisher->safe_psql('postgres', $publish);
	# Whoever subscribes to all tables is refused where it lacks ours, unless
	# it does not ask; the first row of ours would be the end of it.
	my @also = $name eq 'all' ? ('follower') : ();
	if (@also)
	{
		$publisher->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('follower', 'pgoutput')});
		$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION follower CONNECTION '$connstr' PUBLICATION late WITH (connect = false, slot_name = follower); ALTER SUBSCRIPTION follower ENABLE");
	}
	wait_once('w' . ++$n);
	LockHistory::wait_until_status($publisher, 'state', 'published');
	replicates("$name: the subscriber goes on", @also);
	like(LockHistory::status($publisher, 'last_error'), qr/publication "$publication" sends the history to its subscribers/, "$name: status() has the publication");
	like(LockHistory::status($publisher, 'hint'), qr/pg_lock_history\.allow_published/, "$name: ... and the way out");
	my $errors = LockHistory::status($publisher, 'errors');
	$publisher->poll_query_until('postgres', "SELECT value::bigint > $errors + 1 FROM lock_history.status() WHERE key = 'errors'") or die 'no second try';
	my @told = LockHistory::log_since($publisher, $offset) =~ /pg_lock_history: publication "$publication" sends/g;
	is(scalar @told, 1, "$name: the log has it once");
	is($publisher->safe_psql('postgres', "SELECT count(*) FROM lock_history.waits WHERE application_name = 'w$n'"), '0', "$name: nothing is written");
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION follower') if @also;
	$publisher->safe_psql('postgres', $withdraw);
	LockHistory::wait_until_recording($publisher);
	is(recorded(), join(',', map { "w$_" } 1 .. $n), "$name: it goes on by itself, and every wait is there once");
	replicates("$name: and the subscriber too");
}
is(sent('shop'), 't|0', 'of all this no relation of ours was sent');
unlike(slurp_file($subscriber->logfile), qr/ERROR|lock_history\./, 'the subscriber knows nothing of it');

# Allowed, it is written and sent.
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION s');
$publisher->safe_psql('postgres', 'CREATE PUBLICATION late FOR ALL TABLES');
$publisher->safe_psql('postgres', q{SELECT pg_drop_replication_slot('watch'); SELECT pg_create_logical_replication_slot('watch', 'pgoutput')});    # a publication is looked up as of then
$publisher->safe_psql('postgres', 'INSERT INTO public.orders VALUES (0)');
wait_once('w' . ++$n);
LockHistory::wait_until_status($publisher, 'state', 'published');
$publisher->append_conf('postgresql.conf', 'pg_lock_history.allow_published = on');
$publisher->reload;
LockHistory::wait_until_recording($publisher);
is(recorded(), join(',', map { "w$_" } 1 .. $n), 'allowed: it is written');
like(sent('shop', 'late'), qr/^t\|[1-9]/, '... and sent');
$publisher->safe_psql('postgres', 'DROP EXTENSION pg_lock_history');
$publisher->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
pass('... and CREATE EXTENSION does not mind');

$holder->quit;
$subscriber->stop;
$publisher->stop;
done_testing();
