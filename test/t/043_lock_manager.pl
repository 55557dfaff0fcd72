# A read-only load on a table with 101 indexes: 102 relation locks for each
# statement, of which the fast path holds 16 (from 18 on with the setting below). The
# rest goes through the partitions of the lock manager, which is what is waited for.
# With the primary key alone nobody waits for it.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('lock_manager', start => 0, settings => 'autovacuum = off');
$node->append_conf('postgresql.conf', 'max_locks_per_transaction = 16') if LockHistory::major($node) >= 18;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
LockHistory::wait_until_recording($node);
$node->command_ok([ 'pgbench', '-n', '-i', '-q', '-s', '1', 'postgres' ], 'pgbench -i');

# run(): share of the sessions' time that waited for the lock manager
sub run
{
	my $since = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
	$node->command_ok([ 'pgbench', '-n', '-S', '-c', '16', '-j', '2', '-T', '5', 'postgres' ], 'pgbench -S');
	my $until = $node->safe_psql('postgres', q{SELECT date_trunc('second', clock_timestamp())});
	LockHistory::flush($node);
	return ($since, $until, $node->safe_psql('postgres', qq{
		SELECT coalesce((SELECT sum(wait_ms) FROM lock_history.lwlocks WHERE tranche = 'LockManager' AND at >= '$since' AND at < '$until'), 0)
		       / (SELECT 1000 * sum(aas) FROM lock_history.load WHERE backend_type = 'client backend' AND at >= '$since' AND at < '$until')}));
}

my (undef, undef, $few) = run();
$node->safe_psql('postgres', q{DO $$ BEGIN FOR i IN 1 .. 100 LOOP EXECUTE format('CREATE INDEX ON pgbench_accounts (aid) WHERE aid <> %s', i); END LOOP; END $$});
my ($since, $until, $many) = run();
note("share of the lock manager: with one index $few, with 101 $many");
cmp_ok($few, '<', 0.02, 'one index: next to nothing');
cmp_ok($many, '>', 0.05, '101 indexes: a good part');
my ($exclusive, $known, $partitions, $words) = split /\|/, $node->safe_psql('postgres', qq{
	SELECT sum(wait_ms) FILTER (WHERE mode = 'exclusive') / sum(wait_ms), sum(wait_ms) FILTER (WHERE instance IS NOT NULL) / sum(wait_ms),
	       count(DISTINCT instance), bool_and(instance ~ '^partition ([0-9]|1[0-5])\$')
	FROM lock_history.lwlocks WHERE tranche = 'LockManager' AND at >= '$since' AND at < '$until'});
cmp_ok($exclusive, '>', 0.9, 'waited for exclusively');
cmp_ok($known, '>', 0.5, 'mostly it is known for which partition');
cmp_ok($partitions, '>', 3, 'there are several') and is($words, 't', 'called partition 0 to 15');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.waits'), '0', 'no heavyweight wait');
$node->stop;
done_testing();
