# Many clients that commit: the totals of load and of lwlocks against another
# sampling of pg_stat_activity in the same run, within the error that two
# samplings of the same thing have.
#
# How large that is: samples of one process in a row are not independent, so the
# error is taken from the data. Both are averaged by the second; the differences
# of the n seconds are those of two samplings of the same thing, so the standard
# error of their mean is s / sqrt(n). Five of those are allowed, and a tenth of
# the value: the other sampling is a session that competes for the processors,
# and gets to look when one has become free.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('commits', settings => "autovacuum = off\nfsync = on\npg_lock_history.flush_period = 5s");
$node->command_ok([ 'pgbench', '-n', '-i', '-q', '-s', '5', 'postgres' ], 'pgbench -i');
$node->safe_psql('postgres', q{
	CREATE UNLOGGED TABLE public.seen (at timestamptz, event_type text, event text);
	CREATE PROCEDURE public.sample(seconds float8) LANGUAGE plpgsql AS $$
	DECLARE until timestamptz := clock_timestamp() + seconds * interval '1 s';
	BEGIN
		WHILE clock_timestamp() < until LOOP
			INSERT INTO seen SELECT clock_timestamp(), a.wait_event_type, a.wait_event
			FROM pg_stat_get_activity(NULL) AS a
			WHERE a.pid <> pg_backend_pid() AND a.backend_type = 'client backend' AND a.application_name = 'pgbench' AND a.state = 'active'
			UNION ALL SELECT clock_timestamp(), NULL, 'a sample';
			COMMIT;
			PERFORM pg_sleep(0.01);
		END LOOP;
	END $$;});
my $sampler = LockHistory::session($node, 'other sampling');
my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-N', '-c', '24', '-j', '2', '-T', '14', '-h', $node->host, '-p', $node->port, 'dbname=postgres application_name=pgbench' ], '>', \my $out, '2>', \my $err);
$node->poll_query_until('postgres', q{SELECT count(*) = 24 FROM pg_stat_activity WHERE application_name = 'pgbench'}) or die 'pgbench did not start';
$sampler->run(q{SET synchronous_commit = off; CALL sample(10)});
$pgbench->finish;
my $n_waits = LockHistory::history($node, 'SELECT count(*) FROM lock_history.lwlocks');
cmp_ok($n_waits, '>', 0, 'somebody waited for LWLocks');

# Whole seconds that both have seen from end to end.
my ($from, $to) = split /\|/, $node->safe_psql('postgres', q{SELECT date_trunc('second', min(at)) + interval '1 s', date_trunc('second', max(at)) FROM seen});
note("from $from to $to: ", $node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT at), count(*) FILTER (WHERE event = 'a sample'), string_agg(DISTINCT event, ',') FROM seen}));
my @rows = map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', qq{
	WITH sample AS (SELECT date_trunc('second', at) AS at, count(*) AS n FROM seen WHERE event = 'a sample' AND at >= '$from' AND at < '$to' GROUP BY 1),
	event AS (SELECT DISTINCT event_type, event FROM seen WHERE event_type IS NOT NULL),
	other AS (SELECT date_trunc('second', at) AS at, event_type, event, count(*) AS n FROM seen GROUP BY 1, 2, 3),
	ours AS (SELECT at, wait_event_type AS event_type, wait_event AS event, sum(aas) AS aas FROM lock_history.load
	         WHERE backend_type = 'client backend' AND usename = current_user GROUP BY 1, 2, 3),
	diff AS (SELECT e.event_type || ':' || e.event AS event, coalesce(l.aas, 0) AS ours, coalesce(o.n, 0)::float8 / s.n AS other
	         FROM sample AS s CROSS JOIN event AS e
	         LEFT JOIN other AS o ON o.at = s.at AND o.event_type = e.event_type AND o.event = e.event
	         LEFT JOIN ours AS l ON l.at = s.at AND l.event_type = e.event_type AND l.event = e.event)
	SELECT event, avg(ours), avg(other), stddev_samp(ours - other) / sqrt(count(*)), count(*) FROM diff
	GROUP BY event HAVING avg(ours) + avg(other) > 0.2 ORDER BY 2 DESC});
cmp_ok(scalar @rows, '>', 0, 'there are events to compare');
for my $row (@rows)
{
	my ($event, $ours, $other, $error, $n) = @$row;
	next if $event =~ /ClientRead|PgSleep/;	# the other sampling's own, and what pg_stat_activity calls active for a moment
	my $allowed = 5 * $error + 0.05 + 0.1 * ($ours + $other) / 2;
	note(sprintf '%-28s ours %6.3f other %6.3f difference %+.3f standard error %.3f, %d seconds', $event, $ours, $other, $ours - $other, $error, $n);
	cmp_ok(abs($ours - $other), '<=', $allowed, "$event agrees");
}
# lwlocks says the same as load, second by second (040), so its totals agree, too.
my ($load, $lwlocks) = split /\|/, $node->safe_psql('postgres', qq{
	SELECT (SELECT sum(aas) FROM lock_history.load WHERE wait_event_type = 'LWLock' AND at >= '$from' AND at < '$to'),
	       (SELECT sum(waiters_avg) FROM lock_history.lwlocks WHERE at >= '$from' AND at < '$to')});
cmp_ok(abs($load - $lwlocks), '<=', 0.01 * $load, "lwlocks has what load has ($lwlocks, $load)");
is($node->safe_psql('postgres', q{SELECT bool_or(tranche IN ('WALWrite', 'WALInsert', 'ProcArray') AND mode IN ('exclusive', 'wait until free')) FROM lock_history.lwlocks}), 't',
	'waits of committing, with modes');
$sampler->quit;
$node->stop;
done_testing();
