# A fresh incident is kept, the ring is emptied under the running worker, and
# the incident reads as it did: here, and in a database restored from a dump.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

# Flushed by keep() alone, or not at all.
my $node = LockHistory::cluster('keep', settings => q{pg_lock_history.flush_period = '60s'});
$node->safe_psql('postgres', 'CREATE TABLE t (i int); CREATE TABLE u (i int); CREATE ROLE reader LOGIN');
my $since = $node->safe_psql('postgres', 'SELECT clock_timestamp()');

my ($a, $b, $c) = map { LockHistory::session($node, $_) } qw(a b c);
$a->run('BEGIN; SELECT count(*) FROM t');
$b->send('ALTER TABLE t ADD COLUMN j int');
LockHistory::wait_until_waiting($node, $b);
$c->send('SELECT count(*) FROM t');
LockHistory::wait_until_waiting($node, $c);
$node->poll_query_until('postgres', "SELECT clock_timestamp() > max(waitstart) + interval '300 ms' FROM pg_locks WHERE NOT granted") or die;
# Not the last moment: an end is known to half a sampling period.
my $middle = $node->safe_psql('postgres', q{SELECT max(waitstart) + interval '150 ms' FROM pg_locks WHERE NOT granted});
$a->run('COMMIT');
$b->answer;
$c->answer;

# A deadlock: the second is refused what it asks for, and never waits.
$_->run('BEGIN; LOCK TABLE u IN SHARE MODE') for $a, $b;
$a->run(q{SET deadlock_timeout = '60s'});
$a->send('LOCK TABLE u');
LockHistory::wait_until_waiting($node, $a);
$node->poll_query_until('postgres', "SELECT clock_timestamp() > max(waitstart) + interval '300 ms' FROM pg_locks WHERE NOT granted") or die;
$b->run('LOCK TABLE u');
like($b->errors, qr/deadlock detected/, 'a deadlock');
$b->run('ROLLBACK');
$a->answer;
$a->run('ROLLBACK');

# Nothing of it has been written yet; keep() sees to that.
is($node->safe_psql('postgres', "SELECT lock_history.keep('$since', now(), 'alter')"), 4, 'a fresh incident is kept');

# What there is to read, of the range, in words that do not depend on when.
my $until = $node->safe_psql('postgres', "SELECT until FROM lock_history.kept WHERE name = 'alter'");
my $reading = join ' UNION ALL ',
  map { "SELECT '$_->[0]' AS what, r::text AS said FROM $_->[1] AS r" } (
	[ 'waits',         'lock_history.waits' ],
	[ 'blocking',      'lock_history.blocking' ],
	[ 'deadlocks',     'lock_history.deadlocks' ],
	[ 'roots',         "lock_history.root_blockers('$since', '$until')" ],
	[ 'tree',          "lock_history.blocking_tree_at('$middle'::timestamptz)" ],
	[ 'worst_moments', "lock_history.worst_moments('$since', '$until')" ]);
$reading = "SELECT what, said FROM ($reading) AS all_of_it ORDER BY what, said";
my $before = $node->safe_psql('postgres', $reading);
is(scalar(() = $before =~ /^waits\|/mg), 4, 'four waits are in the ring, that of the victim without a length') or diag($before);
is(scalar(() = $before =~ /^deadlocks\|/mg), 2, 'two processes are in the deadlock') or diag($before);
is(scalar(() = $before =~ /^tree\|/mg), 3, 'three processes are in the tree') or diag($before);
my $incident = "SET pg_lock_history.incident = 'alter';";
is($node->safe_psql('postgres', "$incident $reading"), $before, 'the incident reads as the ring does');

# A wait that goes on is handed out again after reset(), and all goes on.
$a->run('BEGIN; LOCK TABLE t');
$b->send('SELECT count(*) FROM t');
LockHistory::wait_until_waiting($node, $b);
LockHistory::flush($node);
$node->safe_psql('postgres', 'SELECT lock_history.reset()');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.episode WHERE seg < 8'), 0, 'the ring is empty');
is($node->safe_psql('postgres', "$incident $reading"), $before, 'the incident reads as before');
# The writer asks for open waits when it has opened a segment, with the first batch after.
$node->poll_query_until('postgres', "SELECT lock_history.flush('10 s') AND count(*) = 1 FROM lock_history.waits WHERE wait_end IS NULL") or die 'the open wait never came back';
is($node->safe_psql('postgres', 'SELECT seg FROM lock_history.open GROUP BY seg'), 0, 'in segment 0');
is(LockHistory::status($node, 'state'), 'recording', 'the worker records');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.gaps'), 0, 'nothing was missed');
$a->run('COMMIT');
$b->answer;
is(LockHistory::history($node, 'SELECT string_agg(outcome, \',\') FROM lock_history.waits'), 'granted', 'the wait ends once');

# Without the library in the server the setting is a plain name, and works.
$node->safe_psql('postgres', "SELECT lock_history.grant_reader('reader')");
is($node->safe_psql('postgres', "$incident SELECT count(*) FROM lock_history.waits", extra_params => [ '-U', 'reader' ]), 4, 'a reader reads it');

# A dump carries kept incidents, and nothing else of the history.
my $dump = "$PostgreSQL::Test::Utils::tmp_check/keep.sql";
command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'dumped');
my $other = LockHistory::cluster('restored', preload => 0, extension => 0);
$other->safe_psql('postgres', 'CREATE ROLE reader; CREATE DATABASE restored');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $other->connstr('restored') ], 'restored');
is($other->safe_psql('restored', "SELECT name, waits FROM lock_history.kept"), 'alter|4', 'the restored database knows it');
is($other->safe_psql('restored', "$incident $reading"), $before, 'and reads it the same, also where nothing is preloaded');
is($other->safe_psql('restored', 'SELECT count(*) FROM lock_history.waits'), 0, 'its ring is empty');
is(($other->psql('restored', "SET pg_lock_history.incident = 'x'; SELECT count(*) FROM lock_history.waits"))[0], 3, 'an unknown name is refused there too');
$other->safe_psql('restored', "SELECT lock_history.forget('alter')");
is($other->safe_psql('restored', 'SELECT count(*) FROM lock_history.actor'), 0, 'forgotten');

$_->quit for $a, $b, $c;
$_->stop for $node, $other;
done_testing();
