# The plain case that the extension is for: a forgotten transaction, an ALTER
# TABLE behind it, readers behind the ALTER. Every column has its right value,
# and the tree of a past moment is the same during the incident and after it.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('alter_queue');
$node->safe_psql('postgres', 'CREATE TABLE public.t (i int)');

my $user = $node->safe_psql('postgres', 'SELECT current_user');

my %s = map { $_ => LockHistory::session($node, $_) } qw(a b c d);
my %pid = map { $_ => $s{$_}->pid } keys %s;

$s{a}->run('BEGIN; SELECT count(*) FROM t');
$s{b}->send('ALTER TABLE t ADD COLUMN j int; SELECT clock_timestamp() AS b_went_on');
LockHistory::wait_until_waiting($node, $s{b});
for my $reader (qw(c d))
{
	$s{$reader}->send('SELECT count(*) FROM t');
	LockHistory::wait_until_waiting($node, $s{$reader});
}

my %wait_start = map { split /=/ } split /\n/,
  $node->safe_psql('postgres', "SELECT pid || '=' || extract(epoch FROM waitstart) FROM pg_locks WHERE NOT granted");
my $moment = $node->safe_psql('postgres', 'SELECT clock_timestamp()');

# pids, names and the moment differ from run to run, the shape does not.
my $tree_query = qq{SELECT level, application_name, state, coalesce(kind, '-'), root_pid = $pid{a},
	coalesce(nullif(array_to_string(blocked_by, ','), ''), '-'), coalesce(mode, '-'), coalesce(object, '-')
	FROM lock_history.blocking_tree_at('$moment') ORDER BY path};
my $tree = LockHistory::history($node, $tree_query);
my $root_level = (split /\|/, $tree)[0];
is($tree, join("\n",
	join('|', $root_level, 'a', 'idle in transaction', '-', 't', '-', '-', '-'),
	join('|', $root_level + 1, 'b', 'active', 'hard', 't', $pid{a}, 'AccessExclusiveLock', 'public.t'),
	join('|', $root_level + 2, 'c', 'active', 'soft', 't', $pid{b}, 'AccessShareLock', 'public.t'),
	join('|', $root_level + 2, 'd', 'active', 'soft', 't', $pid{b}, 'AccessShareLock', 'public.t')),
	'tree during the incident');

is($node->safe_psql('postgres', q{SELECT application_name, locktype, mode, object, datname, usename, wait_end IS NULL, granted IS NULL, outcome IS NULL, duration > interval '0', hard_blockers, soft_blockers, root_blockers, hard_blocker_count, soft_blocker_count
	FROM lock_history.waits ORDER BY wait_start}),
	join("\n",
		"b|relation|AccessExclusiveLock|public.t|postgres|$user|t|t|t|t|{$pid{a}}|{}|{$pid{a}}|1|0",
		"c|relation|AccessShareLock|public.t|postgres|$user|t|t|t|t|{}|{$pid{b}}|{$pid{a}}|0|1",
		"d|relation|AccessShareLock|public.t|postgres|$user|t|t|t|t|{}|{$pid{b}}|{$pid{a}}|0|1"),
	'waits during the incident: who blocks whom, and no end yet');

my $before_end = $s{a}->run('SELECT clock_timestamp() AS before_end');
$s{a}->run('COMMIT');
my $after_end = $s{b}->answer;
($after_end) = $after_end =~ /(\d{4}-.*)/;
$s{$_}->answer for qw(c d);

is(LockHistory::history($node, $tree_query), $tree, 'tree of the same moment after the incident');
is($node->safe_psql('postgres', "SELECT count(*) FROM lock_history.blocking_tree_at(now())"), '0', 'nobody waits now');

# After A's end B holds for a moment what C and D still wait for. Whether a
# tick sees that is chance, so what they are blocked by is looked at up to then.
is($node->safe_psql('postgres', qq{SELECT application_name, mode, object, granted, outcome, wait_end IS NOT NULL, soft_blockers, root_blockers[1] = $pid{a}
	FROM lock_history.waits ORDER BY wait_start}),
	join("\n",
		"b|AccessExclusiveLock|public.t|t|granted|t|{}|t",
		"c|AccessShareLock|public.t|t|granted|t|{$pid{b}}|t",
		"d|AccessShareLock|public.t|t|granted|t|{$pid{b}}|t"),
	'waits after the incident');

for my $waiter (qw(b c d))
{
	is($node->safe_psql('postgres', "SELECT extract(epoch FROM wait_start) FROM lock_history.waits WHERE pid = $pid{$waiter}"),
		$wait_start{ $pid{$waiter} }, "wait_start of $waiter is the server's own");
}

# B's wait ended between A's last word and B's first one afterwards; the sampler
# sees it to within one period, which on a busy machine is longer than its 10 ms.
is($node->safe_psql('postgres', qq{SELECT wait_end >= timestamptz '$before_end' - interval '250 ms',
	wait_end <= timestamptz '$after_end' + interval '250 ms', duration = wait_end - wait_start, samples > 1
	FROM lock_history.waits WHERE pid = $pid{b}}), 't|t|t|t', 'duration is right within one sampling period');

is($node->safe_psql('postgres', q{SELECT w.application_name, blocker_pid, kind, blocker_mode, blocker_application_name, blocker_state, regexp_replace(blocker_query, '[\s;]+$', '')
	FROM lock_history.blocking AS b JOIN lock_history.waits AS w USING (node, wait_id) WHERE b.first_seen < '} . $before_end . q{' ORDER BY w.wait_start, kind}),
	join("\n",
		"b|$pid{a}|hard|{AccessShareLock}|a|idle in transaction|SELECT count(*) FROM t",
		"c|$pid{b}|soft|{AccessExclusiveLock}|b|active|ALTER TABLE t ADD COLUMN j int",
		"d|$pid{b}|soft|{AccessExclusiveLock}|b|active|ALTER TABLE t ADD COLUMN j int"),
	'hard and nearest soft edges, with what the blocker was doing');

is($node->safe_psql('postgres', 'SELECT application_name, pid, sessions_blocked, blocked_time > interval \'0\' FROM lock_history.root_blockers ORDER BY blocked_time DESC LIMIT 1'),
	"a|$pid{a}|3|t", 'the root blocker is the forgotten transaction');

is($node->safe_psql('postgres', "SELECT waiting, roots FROM lock_history.worst_moments(now() - interval '1 hour', now(), 1)"),
	'3|1', 'worst moment');

# In words: they lead to the forgotten transaction, and to the queue behind the DDL.
my $why = $node->safe_psql('postgres', q{SELECT kind || ': ' || regexp_replace(sentence, '\s+', ' ', 'g') FROM lock_history.why() ORDER BY no});
like($why, qr/^headline: .* 3 sessions waited for locks: 3 waits, .* behind pid $pid{a} \(application a\)\.$/m, 'why(): who it was');
like($why, qr/^blocking: It was idle in transaction, by the end for .*, after `SELECT count\(\*\) FROM t ?;?`; .* It held AccessShareLock on public\.t\.$/m, 'why(): what it was doing');
like($why, qr/^queue: Behind it pid $pid{b} \(application b, .* for AccessExclusiveLock on public\.t \(`ALTER TABLE t ADD COLUMN j int;?`\), and 2 sessions behind that request/m, 'why(): the queue');
like($why, qr/^ending: At .* it was out of the way: all 3 waits were granted\.$/m, 'why(): how it ended');

$_->quit for values %s;
$node->stop;
done_testing();
