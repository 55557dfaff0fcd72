# DROP DATABASE: of one in which names are being looked up, and of the history's
# own. Sessions of ours never make it wait for more than a moment, and a history
# that is gone is told once and can be made anew.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('databases', extension => 0, settings => q{pg_lock_history.database = 'history'});
$node->safe_psql('postgres', 'CREATE DATABASE history');
$node->safe_psql('history', 'CREATE EXTENSION pg_lock_history');
my $asks = LockHistory::session($node, 'asks', database => 'history');
sub status { my ($key) = @_; return LockHistory::status($node, $key, 'history'); }
LockHistory::until_true(sub { status('state') eq 'recording' }, 'it records');

# Waits for tables, of which the names have to be looked up there; the database
# goes the moment the last session has left.
my $offset = LockHistory::log_end($node);
my ($refused, $longest) = (0, 0);
for my $round (1 .. 6)
{
	$node->safe_psql('postgres', 'CREATE DATABASE short_lived TEMPLATE template0');
	$node->safe_psql('short_lived', "CREATE TABLE t$round (i integer)");
	my ($holder, $waiter) = map { LockHistory::session($node, $_, database => 'short_lived') } 'holder', 'waiter';
	$holder->run("BEGIN; LOCK TABLE t$round");
	$waiter->send("SELECT count(*) FROM t$round");
	my $pid = $waiter->pid;
	LockHistory::until_true(sub { $asks->run(LockHistory::is_seen_waiting($waiter)) eq '1' }, 'it is seen to wait');
	# Every second time the session that looks names up is there for sure.
	LockHistory::until_true(sub { $asks->run(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_lock_history names' AND datname = 'short_lived'}) eq '1'
			|| $asks->run("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND query_start < clock_timestamp() - interval '1 s'") eq '1' }, 'names are looked up') if $round % 2;
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	my ($rc, $out, $err);
	my $took = LockHistory::seconds(sub { ($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE short_lived') });
	$refused++ if $rc != 0;
	diag $err if $rc != 0;
	$longest = $took if $took > $longest;
}
is($refused, 0, 'a database in which names are looked up can be dropped');
unlike(LockHistory::log_since($node, $offset), qr/pg_lock_history: /, '... and nothing is said about it');
note "longest DROP DATABASE: $longest s";
is($asks->run("SELECT lock_history.flush('30 s')"), 't', 'history goes on');
is($asks->run(q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter'}), '6', 'the waits there are in the history');

# The history's own. Without FORCE the writer counts, as any session.
$asks->quit;
my ($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE history');
isnt($rc, 0, 'the database of the history is not dropped by mistake');
like($err, qr/is being accessed by other users/, '... for the writer is there');
is($node->safe_psql('history', q{SELECT value FROM lock_history.status() WHERE key = 'state'}), 'recording', '... and goes on');

$offset = LockHistory::log_end($node);
my $worker = LockHistory::worker_pid($node);
my $took = LockHistory::seconds(sub { ($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE history WITH (FORCE)') });
is($rc, 0, 'WITH (FORCE) it is dropped') or diag $err;
note "DROP DATABASE history WITH (FORCE): $took s";
$node->wait_for_log(qr/pg_lock_history: database "history" does not exist/, $offset);
my @told = LockHistory::log_since($node, $offset) =~ /WARNING:  pg_lock_history: (.*)/g;
is_deeply(\@told, ['database "history" does not exist'], 'one message says what is missing');
unlike(LockHistory::log_since($node, $offset), qr/pg_lock_history: cannot look up/, '... and nothing else');
is(LockHistory::worker_pid($node), $worker, 'the worker lives');

# Made again: it is found without a restart or a reload.
$node->safe_psql('postgres', 'CREATE DATABASE history');
$node->safe_psql('history', 'CREATE EXTENSION pg_lock_history');
LockHistory::until_true(sub { status('state') eq 'recording' }, 'it records again');
is(status('last_error'), '', 'the error is gone');
my ($holder, $waiter) = map { LockHistory::session($node, $_, database => 'history') } 'holder', 'later';
$holder->run('SELECT pg_advisory_lock(1)');
$waiter->send('SELECT pg_advisory_lock(1)');
LockHistory::wait_until_waiting($node, $waiter);
$holder->run('SELECT pg_advisory_unlock(1)');
$waiter->answer;
is($node->safe_psql('history', q{SELECT lock_history.flush('30 s')}), 't', 'flushed');
is($node->safe_psql('history', q{SELECT count(*) FROM lock_history.waits WHERE application_name = 'later'}), '1', 'history goes on in a new database');
$_->quit for $holder, $waiter;

$node->stop;
done_testing();
