# pg_upgrade of a server that has the extension and a history: nothing of ours
# runs while it is at work, and afterwards the history is there and goes on.
# PLH_OLD_INSTALL: where the old server is, when it is another than the new one
# (test/tools/upgrade.sh).
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use File::Spec;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

# The node keeps its name although its port changes.
my $settings = "pg_lock_history.node_name = 'shop'";
my $old = LockHistory::cluster('old', settings => $settings, $ENV{PLH_OLD_INSTALL} ? (new => [ install_path => $ENV{PLH_OLD_INSTALL} ]) : ());
# Both need the same checksums, which later versions have without being asked.
my ($options) = run_command([ 'initdb', '--help' ]);
my $new = LockHistory::cluster('new', settings => $settings, start => 0,
	init => $options =~ /--no-data-checksums/ ? [ extra => ['--no-data-checksums'] ] : []);

# wait_once(node, who): a wait of who for a table that has a name.
sub wait_once
{
	my ($node, $who) = @_;
	my $holder = LockHistory::session($node, 'holder');
	my $waiter = LockHistory::session($node, $who);
	$holder->run('BEGIN; LOCK TABLE goods');
	$waiter->send('SELECT count(*) FROM goods');
	LockHistory::wait_until_waiting($node, $waiter);
	LockHistory::flush($node);
	$holder->run('COMMIT');
	$waiter->answer;
	LockHistory::flush($node);
	$_->quit for $holder, $waiter;
	return;
}
my $waits = q{SELECT application_name, object, outcome, cardinality(hard_blockers), node FROM lock_history.waits ORDER BY wait_start};

$old->safe_psql('postgres', 'CREATE TABLE goods (i integer)');
wait_once($old, 'before');
$old->safe_psql('postgres', q{SELECT lock_history.keep(now() - interval '1 hour', now(), 'kept before')});
my $before = $old->safe_psql('postgres', $waits);
is($before, 'before|public.goods|granted|1|shop', 'there is a history before');
my $identifier = $old->safe_psql('postgres', q{SELECT system_identifier FROM lock_history.node});

$old->stop;

# It leaves a script where it runs; the paths of a node may be relative to here.
my ($from, $to) = map { File::Spec->rel2abs($_->data_dir) } $old, $new;
my $there = $new->basedir;
my $said = '';
ok(IPC::Run::run([ 'pg_upgrade', '--old-datadir', $from, '--new-datadir', $to,
		'--old-bindir', $old->config_data('--bindir'), '--new-bindir', $new->config_data('--bindir'),
		'--old-port', $old->port, '--new-port', $new->port, '--socketdir', $new->host, '--retain', '--no-sync' ], '>&', \$said,
		init => sub { chdir $there or die "chdir: $!" }),
	'pg_upgrade runs through') or do
{
	diag $said, map { /(.{0,4000})\z/s } map { slurp_file($_) } glob "$to/pg_upgrade_output.d/*/log/pg_upgrade_dump_*.log";
	die 'pg_upgrade has failed';
};
my @logs = glob($to . '/pg_upgrade_output.d/*/log/*server*.log');
cmp_ok(scalar @logs, '>', 0, 'its server logs are there');
is(join('', map { grep { /pg_lock_history: / } split /\n/, slurp_file($_) } @logs), '', 'the worker was not started, which would have said so');

$new->start;
LockHistory::wait_until_recording($new);
is($new->safe_psql('postgres', $waits), $before, 'the history is there afterwards');
is($new->safe_psql('postgres', q{SET pg_lock_history.incident = 'kept before'; SELECT application_name FROM lock_history.waits}), 'before', 'so is what was kept');
is($new->safe_psql('postgres', q{SELECT count(*), bool_and(system_identifier <> } . $identifier . q{) FROM lock_history.node}), '1|t', 'it is the same node, with the new identifier');
wait_once($new, 'after');
is($new->safe_psql('postgres', $waits), "$before\nafter|public.goods|granted|1|shop", 'and goes on');
is($new->safe_psql('postgres', q{SELECT count(*) FROM lock_history.gaps WHERE reason = 'stopped'}), '1', 'the time between is a gap') or diag $new->safe_psql('postgres', 'SELECT * FROM lock_history.gaps');

$new->stop;
done_testing();
