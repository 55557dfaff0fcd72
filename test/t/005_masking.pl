# Who may read what: pg_monitor reads all, a role that was merely granted the
# views sees its own statements and a mask for those of others.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $mask = '<insufficient privilege>';
my $node = LockHistory::cluster('masking', init => [ auth_extra => [ '--create-role', 'alice,bob,watcher,stranger' ] ]);
$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE watcher LOGIN; CREATE ROLE stranger LOGIN;
	GRANT pg_monitor TO watcher;
	GRANT USAGE ON SCHEMA lock_history TO alice, bob;
	DO $$ DECLARE v regclass; BEGIN
		FOR v IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'v' LOOP
			EXECUTE format('GRANT SELECT ON %s TO alice, bob', v);
		END LOOP; END $$;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_history TO alice, bob});

# Real sessions: alice blocks bob.
my $alice = LockHistory::session($node, 'alice', user => 'alice');
my $bob = LockHistory::session($node, 'bob', user => 'bob');
$alice->run(q{BEGIN; SELECT pg_advisory_xact_lock(1), 'secret of alice'});
$bob->send(q{SELECT pg_advisory_xact_lock(1), 'secret of bob'});
LockHistory::wait_until_waiting($node, $bob);
my $moment = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
LockHistory::flush($node);
$alice->run('COMMIT');
$bob->answer;
LockHistory::flush($node);

sub as
{
	my ($role, $query) = @_;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $query, extra_params => [ '-U', $role ]);
	return $rc == 0 ? $stdout : $stderr;
}

my %wait = map { $_ => "SELECT query FROM lock_history.waits WHERE usename = 'bob'" } qw(alice bob watcher);
my $blocker = "SELECT DISTINCT blocker_query FROM lock_history.blocking WHERE blocker_usename = 'alice'";
my $root = "SELECT query FROM lock_history.root_blockers WHERE usename = 'alice'";
my $tree = "SELECT query FROM lock_history.blocking_tree_at('$moment') ORDER BY path";

is(as('alice', $wait{alice}), $mask, "alice does not see bob's statement");
like(as('bob', $wait{bob}), qr/secret of bob/, 'bob sees his own in full');
like(as('watcher', $wait{watcher}), qr/secret of bob/, 'pg_monitor sees it');

like(as('alice', $blocker), qr/secret of alice/, 'blocking: alice sees her own');
is(as('bob', $blocker), $mask, "blocking: bob does not see alice's");
like(as('watcher', $blocker), qr/secret of alice/, 'blocking: pg_monitor sees it');

like(as('alice', $root), qr/secret of alice/, 'root_blockers: alice sees her own');
is(as('bob', $root), $mask, "root_blockers: bob does not see alice's");

my @lines = split /\n/, as('alice', $tree);
is(scalar @lines, 2 + (grep { /^\s*;?$/ } @lines), 'the tree has both sessions');
like($lines[0], qr/secret of alice/, 'tree: alice sees her own');
is($lines[-1], $mask, "tree: alice does not see bob's");
unlike(as('bob', $tree), qr/secret of alice/, "tree: bob does not see alice's");

# What was not granted stays closed.
for my $query ("SELECT count(*) FROM lock_history.waits", "SELECT * FROM lock_history.status()", "SELECT lock_history.flush()")
{
	like(as('stranger', $query), qr/permission denied/, "nothing for PUBLIC: $query");
}
for my $table (qw(episode actor open run ring short_wait))
{
	like(as('bob', "SELECT count(*) FROM lock_history.$table"), qr/permission denied/, "the table $table is closed to a reader of the views");
}
like(as('watcher', "INSERT INTO lock_history.ring (seg) VALUES (9)"), qr/permission denied/, 'pg_monitor only reads');

$_->quit for $alice, $bob;
$node->stop;
done_testing();
