# A storm, every wait of it with a text of its own, while nothing can be
# written: the memory of the worker goes up to its bound and stays there.
# Time itself is what this test is about, so it waits for the clock.
#
# PLH_MEMORY_MINUTES makes it as long as is liked (make soak-memory); without it,
# it is short and finds what loses some hundredths of what goes through.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use List::Util qw(max min);
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $minutes = $ENV{PLH_MEMORY_MINUTES} || 0;
my $seconds = $minutes ? 60 * $minutes : 30;
my $mib = 1024 * 1024;
my $bound = ($minutes ? 2 : 3) * $mib;

my $node = LockHistory::cluster('memory', settings => q{
max_connections = 60
synchronous_commit = off
track_activity_query_size = '24kB'
pg_lock_history.query_length = '24kB'
pg_lock_history.memory_limit = '16MB'
pg_lock_history.min_duration = 0
});
$node->safe_psql('postgres', q{CREATE TABLE hot AS SELECT 1 AS id, 0 AS n; ALTER TABLE hot SET (fillfactor = 10)});

# Applications without end, texts that differ: what was seen once is never seen again.
my $script = PostgreSQL::Test::Utils::tempdir() . '/storm.sql';
open my $file, '>', $script or die "$script: $!";
my $filler = 'x' x 20_000;
print $file qq{\\set r random(1, 2000000000)
SET application_name = 'app_:r';
BEGIN;
UPDATE hot SET n = n + 1 WHERE id = 1 /* :r $filler */;
\\sleep 5 ms
END;
};
close $file;

my $worker = LockHistory::worker_pid($node);
sub memory
{
	open my $status, '<', "/proc/$worker/status" or die "worker $worker: $!";
	while (<$status>) { return $1 * 1024 if /^RssAnon:\s+(\d+) kB/; }
	die 'no RssAnon';
}

# The most within so many seconds.
sub most_within
{
	my ($within) = @_;
	my ($until, $most) = (time + $within, 0);
	while (time < $until)
	{
		$most = max($most, memory());
		usleep(50_000);
	}
	return $most;
}

my $quiet = memory();
my $locker = LockHistory::session($node, 'locker');
$locker->run('BEGIN; LOCK TABLE lock_history.run, lock_history.episode IN ACCESS EXCLUSIVE MODE');
my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-c', 8, '-T', $seconds + 600, '-f', $script, '-h', $node->host, '-p', $node->port, '-U', 'postgres', 'postgres' ],
	'<', \undef, '>', \my $out, '2>', \my $err);

# Half of memory_limit is for facts that cannot be written.
my $full = 8 * $mib;
$node->poll_query_until('postgres', "SELECT value::bigint > 0.8 * $full FROM lock_history.worker_status() WHERE key = 'queue_bytes'") or die 'the queue is never full';
most_within($seconds / 3);    # the heap settles
my $window = $seconds / 5;
my @most = map { most_within($window) } 1 .. 3;
my $at_work = $node->safe_psql('postgres', q{SELECT value FROM lock_history.worker_status() WHERE key = 'queue_bytes'});
note sprintf 'RssAnon [MiB]: quiet %.1f, then %s; queue %.1f', $quiet / $mib, join(', ', map { sprintf '%.1f', $_ / $mib } @most), $at_work / $mib;
cmp_ok($at_work, '<=', 1.2 * $full, 'the queue is within its bound');
cmp_ok($most[-1] - $most[0], '<=', $bound, 'memory is flat');
cmp_ok(max(@most) - $quiet, '<=', 24 * $mib, '... and no more than the limit says, and half as much for the runtime');
is($node->safe_psql('postgres', q{SELECT value::timestamptz > now() - interval '5 s' FROM lock_history.worker_status() WHERE key = 'last_tick'}), 't', 'sampling goes on');

# What was done meanwhile went somewhere: the newest are there, the rest counted.
$pgbench->kill_kill;
$locker->run('COMMIT');
LockHistory::flush($node);
is($node->safe_psql('postgres', q{SELECT count(*) > 0, sum(lost) > 0 FROM lock_history.gaps WHERE reason = 'writer blocked'}), 't|t', 'what had no room is a gap');
note $node->safe_psql('postgres', q{SELECT format('%s waits kept, %s rows dropped', (SELECT count(*) FROM lock_history.waits), (SELECT sum(lost) FROM lock_history.gaps))});
$locker->quit;
$node->stop;
done_testing();
