# Incidents around the observer itself: samples that are far apart, many short
# connections, readers who are cancelled, databases that are dropped.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use LockHistory::Cases;
use LockHistory::Wire;
use List::Util qw(min);
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::Cases::cluster('observer', settings => "pg_lock_history.sample_period = '1s'\npg_lock_history.shared_memory = '1MB'");
my $user = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', 'CREATE TABLE public.sw (id int); CREATE TABLE public.log (start timestamptz, ended timestamptz)');
sub sql { return $node->safe_psql('postgres', $_[0]); }

# The last one counts.
sub set_period
{
	my ($period) = @_;
	$node->append_conf('postgresql.conf', "pg_lock_history.sample_period = '$period'");
	$node->reload;
	LockHistory::wait_until_status($node, 'sample_period', $period);
	return;
}

# ---- samples a second apart: what they meet is told as it was, and nothing is made up of it ----

my $holder = LockHistory::session($node, 'holder');
my $waiter = LockHistory::session($node, 'short');
for (1 .. 20)
{
	$holder->run('BEGIN; LOCK TABLE sw');
	$waiter->send('SELECT count(*) FROM sw; INSERT INTO log VALUES (NULL, clock_timestamp())');
	LockHistory::wait_until_waiting($node, $waiter);
	# Its true start, as the server says it.
	my $pid = $waiter->pid;
	$holder->run("CREATE TEMP TABLE IF NOT EXISTS starts (s timestamptz); INSERT INTO starts SELECT waitstart FROM pg_locks WHERE pid = $pid AND NOT granted; SELECT pg_sleep(0.1); COMMIT");
	$waiter->answer;
	$holder->run('SELECT pg_sleep(0.15)');
}
LockHistory::flush($node);
my @true = split /\n/, $holder->run('SELECT extract(epoch FROM s) FROM starts ORDER BY s');
my @ended = split /\n/, sql('SELECT extract(epoch FROM ended) FROM log ORDER BY ended');
is(scalar @true, 20, 'there were twenty waits');
my %end_of = map { $true[$_] => $ended[$_] } 0 .. $#true;
my @met = map { [ split /\|/ ] } split /\n/, sql(q{SELECT extract(epoch FROM wait_start), extract(epoch FROM wait_end), samples, outcome, hard_blocker_count FROM lock_history.waits WHERE application_name = 'short' ORDER BY wait_start});
note(scalar(@met) . ' of them met by a sample');
cmp_ok(scalar @met, '>=', 1, 'some were met by a sample');
cmp_ok(scalar @met, '<', 20, '... and not all');
is(join(' ', grep { !exists $end_of{ $_->[0] } } @met), '', 'each that was met has its true start');
is(join(' ', map { "@$_[3, 4]" } grep { "@$_[3, 4]" ne 'granted 1' } @met), '', 'was granted, and had its blocker');
is(join(' ', map { $_->[2] } grep { $_->[2] > 1 + ($end_of{ $_->[0] } - $_->[0]) } @met), '', 'was met by one sample, or by as many as there were meanwhile');
is(join(' ', map { $_->[1] - $end_of{ $_->[0] } } grep { abs($_->[1] - $end_of{ $_->[0] }) > 0.5 + 0.25 } @met), '', 'ended as it did, give or take half a period');
is(sql('SELECT coalesce(sum(waits), 0) FROM lock_history.short_waits'), '0', 'what was not met is not guessed');
like(sql(q{SELECT obj_description('lock_history.waits'::regclass) || ' ' || col_description('lock_history.short_waits'::regclass, (SELECT attnum FROM pg_attribute WHERE attrelid = 'lock_history.short_waits'::regclass AND attname = 'waits'))}),
	qr/a sample met.*a sample met/, 'and both views say so');

$waiter->quit;

# ---- many short connections ----

set_period('5ms');
my $worker = LockHistory::worker_pid($node);
sub private_kb { my ($kb) = slurp_file("/proc/$worker/smaps_rollup") =~ /^Anonymous:\s+(\d+) kB/m; return $kb; }
my $script = PostgreSQL::Test::Utils::tempdir() . '/once.sql';
append_to_file($script, "SELECT pg_advisory_lock(1);\n");
$holder->send(q{DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_tables WHERE tablename = 'enough') LOOP
	PERFORM pg_advisory_lock(1), pg_sleep(0.05), pg_advisory_unlock(1); COMMIT; END LOOP; END $$});
my @kb;
for my $thousand (1 .. 4)
{
	$node->command_ok([ 'pgbench', '-n', '-C', '-c', '10', '-j', '2', '-t', '100', '-f', $script, 'postgres' ], "connections up to ${thousand}000");
	LockHistory::flush($node);
	push @kb, private_kb();
}
sql('CREATE TABLE enough ()');
$holder->answer;
note("private memory of the worker after each thousand: @kb kB");
# The garbage collector's own ups and downs are half of that.
cmp_ok(min(@kb[2, 3]) - min(@kb[0, 1]), '<', 1024, 'no memory is kept for those who left');
my $waits = LockHistory::history($node, 'SELECT count(*) FROM lock_history.waits');
cmp_ok($waits, '>', 3000, 'nearly all of them waited');
my $recent = sql('SELECT count(*) FROM lock_history.recent_waits()');
is(LockHistory::status($node, 'live_waits'), sql("SELECT '$recent that ended since ' || min(wait_end) || ', ' || $waits - $recent || ' overwritten' FROM lock_history.recent_waits()"),
	'the live area keeps what fits and counts the others');
is(sql("SELECT min(wait_end) >= (SELECT wait_end FROM lock_history.waits ORDER BY wait_end DESC OFFSET $recent - 1 LIMIT 1) FROM lock_history.recent_waits()"), 't', 'the oldest have gone');
sql("SELECT count(*) FROM lock_history.$_") for qw(waits blocking root_blockers short_waits deadlocks gaps health blocking_now), 'blocking_tree_at(now())';

# ---- readers who are cancelled and killed ----

# A crowd waits meanwhile, so that there is something to sample and to write.
$holder->run('BEGIN; LOCK TABLE sw');
my @crowd = map { LockHistory::session($node, "crowd $_") } 1 .. 3;
$_->send('SELECT count(*) FROM sw') for @crowd;
LockHistory::wait_until_waiting($node, @crowd);
my $began = sql('SELECT clock_timestamp()');
my $everything = 'SELECT (SELECT count(query) FROM lock_history.waits), (SELECT count(*) FROM lock_history.blocking), (SELECT count(*) FROM lock_history.root_blockers), (SELECT count(*) FROM lock_history.recent_waits()), (SELECT count(*) FROM lock_history.blocking_now)';
my ($cancelled, $killed) = (0, 0);
for my $round (1 .. 20)
{
	my $wire = LockHistory::Wire->new($node, user => $user, database => 'postgres', application_name => 'reader', statement_timeout => '5ms');
	$wire->send(($everything) x 10);
	LockHistory::until_true(sub { $wire->read; return defined $wire->pid && $wire->{sent_at}; }, 'the reader reads');
	if ($round % 4 == 0)
	{
		sql('SELECT pg_terminate_backend(' . $wire->pid . ')');
		$killed++;
	}
	LockHistory::until_true(sub { $wire->read; return $wire->done; }, 'the reader has done');
	$cancelled += grep { $_ eq '57014' } @{ $wire->errors };
	$wire->quit;
}
note("$cancelled reads cancelled, $killed readers killed");
cmp_ok($cancelled, '>', 100, 'most reads were cancelled');
is(sql("SET statement_timeout = '10s'; SELECT count(*) = 1 FROM ($everything) AS all_of_it"), 't', 'the next one reads it all');
is(sql(q{SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE l.locktype IN ('advisory', 'userlock') AND (a.application_name LIKE 'pg_lock_history%' OR a.backend_type = 'pg_lock_history')}), '0', 'the observer holds no such lock');
is(LockHistory::history($node, q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'reader' OR application_name LIKE 'pg_lock_history%' OR backend_type = 'pg_lock_history'}), '0', 'no reader waited, nor did the observer');
is(sql("SELECT count(*) FROM lock_history.gaps WHERE ended > '$began'"), '0', 'no gap');
is(sql(q{SELECT count(*) FROM lock_history.waits WHERE application_name LIKE 'crowd %' AND wait_end IS NULL}), '3', 'who waits is seen all the time');
$holder->run('COMMIT');
$_->answer for @crowd;
$_->quit for $holder, @crowd;

# ---- DROP DATABASE and its like wait for every process, and for no session of ours ----

for my $period ('1s', '100ms')
{
	set_period($period);
	my $longest = 0;
	for (1 .. 10)
	{
		sql('CREATE DATABASE bar');
		my $took = LockHistory::seconds(sub { sql('DROP DATABASE bar') });
		$longest = $took if $took > $longest;
	}
	cmp_ok($longest, '<', 1, "samples $period apart: DROP DATABASE takes $longest s at most");
}
for my $do ('CREATE DATABASE bar', 'CREATE DATABASE copy TEMPLATE bar', 'ALTER DATABASE bar RENAME TO baz', 'ALTER DATABASE baz SET TABLESPACE pg_default', 'DROP DATABASE baz', 'DROP DATABASE copy')
{
	my ($rc, undef, $stderr) = $node->psql('postgres', $do);
	is("$rc $stderr", '0 ', $do);
}

# It hangs for another reason, a process that does not run: that is no wait for a
# lock, but whoever wants to connect waits for one.
set_period('10ms');
sql('CREATE DATABASE bar');
my $stopped = LockHistory::session($node, 'stopped');
my $dropper = LockHistory::session($node, 'dropper');
kill STOP => $stopped->pid or die "stop: $!";
$dropper->send('DROP DATABASE bar');
$node->poll_query_until('postgres', q{SELECT wait_event = 'ProcSignalBarrier' FROM pg_stat_activity WHERE pid = } . $dropper->pid) or die 'it does not hang';
my $late = LockHistory::Wire->new($node, user => $user, database => 'bar', application_name => 'late');
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' AND NOT granted AND waitstart IS NOT NULL)}) or die 'nobody waits';
my $dropping = $dropper->pid;
is(LockHistory::history($node, qq{SELECT mode, locktype, object, hard_blockers, root_blockers FROM lock_history.waits WHERE wait_end IS NULL}),
	"RowExclusiveLock|object|database bar|{$dropping}|{$dropping}", 'a session that connects meanwhile waits for the one that drops');
is(sql("SELECT count(*) FROM lock_history.waits WHERE pid = $dropping"), '0', 'which itself waits for no lock');
kill CONT => $stopped->pid or die "go on: $!";
$dropper->answer;
LockHistory::until_true(sub { $late->read; return $late->closed; }, 'the database is gone');
is("@{ $late->errors }", '3D000', 'there is no such database');
is(LockHistory::history($node, q{SELECT outcome FROM lock_history.waits WHERE object = 'database bar'}), 'granted', 'it had been granted its lock');
is(LockHistory::worker_pid($node), $worker, 'all of it with the same worker');

$_->quit for $stopped, $dropper;
$node->stop;
done_testing();
