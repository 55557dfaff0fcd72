# Server processes of ours that do not end, as on a disk that stalls: each session
# for names that there is gets stopped. New ones must not be made without end,
# in the very moment in which the server's slots are needed.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('stuck');
my ($asks, $holder, $waiter) = map { LockHistory::session($node, $_) } 'asks', 'holder', 'waiter';
my $offset = LockHistory::log_end($node);
my $ours = q{FROM pg_stat_activity WHERE application_name LIKE 'pg_lock_history %'};

# Waits for one table after the other: there is always a name to look up.
my ($n, %stopped) = (0);
sub wait_for_a_table
{
	my (%o) = @_;
	$n++;
	$holder->run("CREATE TABLE t$n (i integer); BEGIN; LOCK TABLE t$n");
	$waiter->send("SELECT count(*) FROM t$n");
	LockHistory::until_true(sub { $asks->run(LockHistory::is_seen_waiting($waiter)) eq '1' }, 'it is seen to wait');
	for my $names ($o{leave} ? () : split /\n/, $asks->run("SELECT pid $ours AND application_name LIKE '% names'"))
	{
		kill 'STOP', $names if !$stopped{$names}++;
	}
	$holder->run('COMMIT');
	$waiter->answer;
	return;
}
LockHistory::until_true(sub { wait_for_a_table(); LockHistory::log_since($node, $offset) =~ /earlier sessions of the worker have not ended/ }, 'it says that its sessions do not end');
pass('it says that its sessions do not end');
wait_for_a_table() for 1 .. 20;
cmp_ok($asks->run("SELECT count(*) $ours"), '<=', 6, 'and makes no more of them');
note scalar(keys %stopped) . " sessions were stopped, of $n waits";
is($asks->run(q{SELECT value FROM lock_history.status() WHERE key = 'state'}), 'recording', 'history goes on');

# The disk is back.
kill 'CONT', keys %stopped;
LockHistory::until_true(sub { $asks->run("SELECT count(*) $ours AND pid IN (" . join(', ', keys %stopped) . ')') eq '0' }, 'they have ended');
LockHistory::until_true(sub {
	wait_for_a_table(leave => 1);
	$asks->run(q{SELECT lock_history.flush('30 s')});
	$asks->run(qq{SELECT count(*) FROM lock_history.waits WHERE object = 'public.t$n'}) eq '1';
}, 'names are looked up again');
pass('names are looked up again');
is($asks->run("SELECT count(*) FROM lock_history.waits WHERE application_name = 'waiter'"), $n, 'no wait is lost');

$_->quit for $asks, $holder, $waiter;
$node->stop;
done_testing();
