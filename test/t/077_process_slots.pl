# Slots of the process array that nobody has been in are not looked at, and
# nobody is overlooked: many sessions that come at once, and a worker that starts
# in their midst.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use IPC::Run;
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('process_slots', settings => "max_connections = 600\nlog_connections = on\npg_lock_history.min_duration = 0");
my $script = PostgreSQL::Test::Utils::tempdir() . '/wait.sql';
append_to_file($script, "SELECT pg_advisory_xact_lock_shared(1);\n");

sub watched { return LockHistory::status($node, 'slots_watched'); }
sub waiting { return $node->safe_psql('postgres', 'SELECT coalesce(sum(coalesce(collapsed_count, 1)), 0) FROM lock_history.blocking_now WHERE level > 0'); }

# From 16 on each new session has a new slot, while there are some.
sub most_at_once
{
	my ($n) = @_;
	return LockHistory::major($node) < 16 ? $n : scalar(() = slurp_file($node->logfile) =~ /connection received/g);
}

# Processes of the server itself; from 18 on 38 of them are auxiliary.
my $others = $node->safe_psql('postgres', q{SELECT sum(setting::int) FROM pg_settings
	WHERE name IN ('autovacuum_max_workers', 'autovacuum_worker_slots', 'max_worker_processes', 'max_wal_senders')}) + 45;
cmp_ok(watched(), '<', most_at_once(0) + $others + 40, 'few slots are looked at, of 600');

my $before = 0;
for my $n (100, 250)
{
	my $holder = LockHistory::session($node, "holder of $n");
	$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	my $waiters = IPC::Run::start([ 'pgbench', '-n', '-c', $n, '-t', 1, '-f', $script, '-h', $node->host, '-p', $node->port, '-U', 'postgres', 'postgres' ],
		'<', \undef, '>', \my $out, '2>', \my $err);
	LockHistory::until_true(sub { waiting() == $n }, "$n waiters are seen");
	cmp_ok(watched(), '>=', $n, '... in as many slots');
	my $watched = watched();
	cmp_ok($watched, '<', most_at_once($n) + $others + 40, '... and few more');
	if ($n > 200)
	{
		my $old = LockHistory::worker_pid($node);
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
		LockHistory::until_true(sub { (LockHistory::worker_pid($node) || $old) != $old }, 'another worker');
		LockHistory::until_true(sub { waiting() == $n }, 'another worker sees them all');
	}
	$holder->run('COMMIT');
	$waiters->finish;
	is(LockHistory::history($node, 'SELECT count(*) FROM lock_history.waits WHERE granted'), $before += $n, "$n waits");
	$holder->quit;
}
$node->stop;
done_testing();
