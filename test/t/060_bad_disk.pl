# The disk of the history is full, read-only or broken: sampling goes on, one
# message says what to do, nothing is lost but what memory could not hold, and
# that is told; all goes on by itself when the disk is well again.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use LockHistory::BadDisk;
use PostgreSQL::Test::Utils;
use Test::More;

my $disk = LockHistory::BadDisk->new;
my $node = LockHistory::cluster('bad_disk', start => 0, settings => q{
allow_in_place_tablespaces = on
track_activity_query_size = '200kB'
checkpoint_timeout = '1h'
restart_after_crash = off
pg_lock_history.database = 'history'
pg_lock_history.query_length = '200kB'
pg_lock_history.flush_period = '100ms'
pg_lock_history.memory_limit = '16MB'
});
$disk->start($node);
$node->safe_psql('postgres', $_) for q{CREATE TABLESPACE small LOCATION ''}, 'CREATE DATABASE history TABLESPACE small';
$node->safe_psql('history', 'CREATE EXTENSION pg_lock_history');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');    # for blocking_now and status() elsewhere
LockHistory::wait_until_recording($node);
my $history = '/pg_tblspc/' . $node->safe_psql('postgres', q{SELECT oid FROM pg_tablespace WHERE spcname = 'small'}) . '/';

srand(2026);
my @letters = ('a' .. 'z', 'A' .. 'Z', '0' .. '9', '_', '-');
my $holder = LockHistory::session($node, 'holder');
my @waiters = map { LockHistory::session($node, "waiter_$_") } 1 .. 4;
my $waits = 0;

# Four waits with statements that cannot be compressed: tables have to grow.
sub four_waits
{
	my ($length) = @_;
	$holder->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	for my $waiter (@waiters)
	{
		my $noise = join '', map { $letters[ rand @letters ] } 1 .. $length;
		$waiter->send("SELECT pg_advisory_xact_lock_shared(1) /* $noise */");
	}
	LockHistory::wait_until_waiting($node, @waiters);
	$waits += @waiters;
	return;
}

sub let_go
{
	$holder->run('COMMIT');
	$_->answer for @waiters;
	return;
}

sub seen { return $node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.blocking_now WHERE waited > interval \'0\''); }
sub status { return LockHistory::status($node, $_[0]); }

sub flush_history
{
	$node->safe_psql('history', q{SELECT lock_history.flush('30 s')}) eq 't' or die 'flush() gave up: ' . status('last_error');
	return;
}

sub told
{
	my ($offset) = @_;
	# of these one may be told when the test ends the writer's session
	return grep { !/lost the connection/ } LockHistory::log_since($node, $offset) =~ /^.*WARNING:  pg_lock_history: (.*)$/mg;
}

sub new_writer
{
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'});
	return;
}

# [fault, what was told, hint, whether it takes a new session to meet it]
my @cases = (
	[ 'full', qr/^cannot write history, the disk is full$/, qr/Free space on the disk of the database that holds the history/, 0 ],
	[ 'read-only', qr/^cannot write history, its files may not be written to$/, qr/Check the file system and the rights of the files/, 1 ],
	[ 'closed', qr/^cannot write history, its files may not be written to$/, qr/Check the file system and the rights of the files/, 1 ],
	[ 'broken', qr/^cannot write history, its files are damaged or missing$/, qr/Check the disk/, 0 ],
);
for my $case (@cases)
{
	my ($fault, $text, $hint, $anew) = @$case;
	my $offset = LockHistory::log_end($node);
	flush_history();
	$disk->is($fault, $history);
	new_writer() if $anew;
	four_waits(100_000);
	is(seen(), '4', "$fault: what goes on now is seen") or diag status('state');
	let_go();
	LockHistory::wait_until_status($node, 'state', 'writer blocked');
	like(status('hint'), $hint, "$fault: status() has the way out");
	my ($ticks, $errors) = map { status($_) } 'last_tick', 'errors';
	$node->poll_query_until('postgres', "SELECT bool_and(CASE key WHEN 'errors' THEN value::bigint > $errors WHEN 'last_tick' THEN value::timestamptz > '$ticks' END)
		FROM lock_history.status() WHERE key IN ('errors', 'last_tick')") or die 'it does not try again';
	my @told = told($offset);
	is(scalar @told, 1, "$fault: one message") or diag explain \@told;
	like($told[0], $text, "$fault: it says what is wrong");
	$disk->is_well;
	flush_history();
	LockHistory::wait_until_recording($node);
	is($node->safe_psql('history', q{SELECT count(*) FROM lock_history.waits WHERE application_name LIKE 'waiter%'}), $waits, "$fault: nothing is lost");
	is(status('last_error') . status('rows_dropped'), '0', "$fault: over, nothing dropped");
}
is($node->safe_psql('history', 'SELECT count(*) FROM lock_history.gaps'), '0', 'no gap in all this');

# More than memory may hold: the oldest go, counted and with a reason.
my $offset = LockHistory::log_end($node);
$disk->is('full', $history);
my $before = $waits;
four_waits(150_000), let_go() for 1 .. 16;    # 9.6 MB, and 8 may be kept
cmp_ok(status('rows_dropped'), '>', 0, 'status() says so while it lasts');
$disk->is_well;
flush_history();
my $kept = $node->safe_psql('history', q{SELECT count(*) FROM lock_history.waits WHERE application_name LIKE 'waiter%'});
cmp_ok($kept, '>=', $before + 20, 'the newest facts are kept');
cmp_ok($kept, '<', $waits, '... the others had no room');
is($node->safe_psql('history', q{SELECT count(*) > 0, sum(lost) > 0, bool_and(ended > began) FROM lock_history.gaps WHERE reason = 'writer blocked'}),
	't|t|t', 'that is a gap with its reason and number');
is($node->safe_psql('history', q{SELECT count(*) FROM lock_history.waits AS w JOIN lock_history.gaps AS g ON w.wait_end > g.began AND w.wait_end <= g.ended WHERE g.reason = 'writer blocked' AND w.application_name LIKE 'waiter%'}),
	'0', '... of the time of which there is nothing');
is($node->safe_psql('history', q{SELECT h.lost = s.value::bigint FROM lock_history.status() AS s, (SELECT sum(lost) AS lost FROM lock_history.gaps) AS h WHERE s.key = 'rows_dropped'}),
	't', '... and counted in status()');
flush_history();    # health is told up to the last one
is($node->safe_psql('history', q{SELECT sum(h.rows_dropped) = (SELECT sum(g.lost) FROM lock_history.gaps AS g) FROM lock_history.health AS h}), 't', '... and in health');
is(scalar told($offset), 1, 'told once');

# No room for WAL: that stops any server (PANIC). Ours comes back with what was
# written, and says how long it was away.
flush_history();
$_->quit for $holder, @waiters;
$disk->is('full', '/pg_wal/');
LockHistory::until_true(sub {
	$node->psql('postgres', 'CREATE TABLE IF NOT EXISTS fill (t text); INSERT INTO fill SELECT repeat(\'x\', 500) FROM generate_series(1, 20000)') != 0
	  and !-e $node->data_dir . '/postmaster.pid';
}, 'the server has stopped');
like(LockHistory::log_since($node), qr/PANIC:.*No space left on device/, 'pg_wal is full');
$disk->is_well;
$node->_update_pid(0);
$disk->start($node);
LockHistory::wait_until_recording($node);
is($node->safe_psql('history', q{SELECT count(*) FROM lock_history.waits WHERE application_name LIKE 'waiter%'}), $kept, 'what was written is there');
is($node->safe_psql('history', q{SELECT count(*) FROM lock_history.gaps WHERE reason = 'stopped' AND ended IS NOT NULL}), '1', '... and the gap');
$node->stop;
done_testing();
