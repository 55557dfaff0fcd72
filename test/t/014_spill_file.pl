# The spill file in wrong hands, or damaged: one message, the server is up,
# nothing wrong gets into the history.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $name = 'pgsql_tmp_pg_lock_history_spill';
my $node = LockHistory::cluster('spill_file', init => [ allows_streaming => 1 ], settings => "pg_lock_history.flush_period = '1min'");
my $file = $node->data_dir . "/$name";
my $warning = qr/WARNING:  pg_lock_history: facts of the life before are not taken over: /;

# A wait that is in the file alone when the server has stopped.
sub wait_and_stop
{
	my ($cluster, $who) = @_;
	LockHistory::flush($cluster);
	my $holder = LockHistory::session($cluster, 'holder');
	my $waiter = LockHistory::session($cluster, $who);
	$holder->run('SELECT pg_advisory_lock(1)');
	# The writer may be quicker than the signal that ends its session.
	$holder->run('BEGIN');
	$holder->run('LOCK TABLE lock_history.run IN SHARE MODE');
	$waiter->send("SELECT pg_advisory_lock(1) /* secret of $who */");
	LockHistory::wait_until_waiting($cluster, $waiter);
	$cluster->stop('fast');
	eval { $_->quit } for $holder, $waiter;    # their server is gone
	return slurp_file($cluster->data_dir . "/$name");
}

sub put
{
	my ($path, $bytes) = @_;
	unlink $path;
	open my $f, '>:raw', $path or die "$path: $!";
	print $f $bytes or die "$path: $!";
	close $f or die "$path: $!";
	return;
}

sub waits_of { my ($cluster, $who) = @_; return $cluster->safe_psql('postgres', "SELECT count(*) FROM lock_history.waits WHERE application_name = '$who'"); }

# refused(cluster, what, says): start with what lies there, twice.
sub refused
{
	my ($cluster, $what, $says) = @_;
	my $mine = $cluster->data_dir . "/$name";
	for my $time (qw(first second))
	{
		my $offset = LockHistory::log_end($cluster);
		$cluster->start;
		LockHistory::wait_until_recording($cluster);
		LockHistory::flush($cluster);
		my @told = grep { /WARNING:  pg_lock_history/ } split /\n/, LockHistory::log_since($cluster, $offset);
		if ($time eq 'first')
		{
			is(scalar @told, 1, "$what: one message") or diag(@told);
			like($told[0] // '', $warning, "$what: facts are not taken over");
			like($told[0] // '', $says, "$what: and why");
			like(LockHistory::log_since($cluster, $offset), qr/HINT:  .*\S/, "$what: and what to do");
			ok(-e "$mine.refused" || -l "$mine.refused", "$what: it is moved aside");
			ok(!-e $mine, "$what: and is not there any more");
		}
		else
		{
			is(scalar @told, 0, "$what: told once") or diag(@told);
		}
		$cluster->stop('fast');
	}
	unlink $mine;
	return;
}

my $good = wait_and_stop($node, 'saved');
like($good, qr/secret of saved/, 'the file holds the statement');

my $half = length($good) / 2;
put($file, substr($good, 0, $half));
refused($node, 'cut in half', qr/damaged: \d+ bytes where there should be \d+/);

my $changed = $good;
substr($changed, $half, 1) = chr(ord(substr($changed, $half, 1)) ^ 1);
put($file, $changed);
refused($node, 'one byte changed', qr/damaged: its checksum/);

put($node->data_dir . '/elsewhere', $good);
symlink 'elsewhere', $file or die $!;
refused($node, 'symbolic link', qr/not a regular file/);
is(slurp_file($node->data_dir . '/elsewhere'), $good, 'symbolic link: what it leads to is left alone');

POSIX::mkfifo($file, 0600) or die $!;
refused($node, 'fifo', qr/not a regular file/);

# Of another cluster, under the same node name.
my $other = LockHistory::cluster('other', settings => "pg_lock_history.flush_period = '1min'\npg_lock_history.node_name = 'same'");
my $foreign = wait_and_stop($other, 'foreign');
$node->append_conf('postgresql.conf', "pg_lock_history.node_name = 'same'");
put($file, $foreign);
refused($node, 'of another server', qr/another server: system identifier/);
$node->append_conf('postgresql.conf', "pg_lock_history.node_name = ''");

# A clone made with cp -a, with a port of its own.
put($file, $good);
chmod 0600, $file;
rename $file, "$file.kept" or die $!;
$node->start;
LockHistory::wait_until_recording($node);
my $own = wait_and_stop($node, 'own');    # as it writes it, in its own inode
my $clone = PostgreSQL::Test::Cluster->new('clone');
system_or_bail('mkdir', '-p', $clone->basedir);
system_or_bail('cp', '-a', $node->data_dir, $clone->data_dir);
$clone->append_conf('postgresql.conf', 'port = ' . $clone->port);
refused($clone, 'clone', qr/is a copy of the file of node "/);
$clone->start;
is(waits_of($clone, 'own'), 0, 'clone: the wait of the original is not in its history');
$clone->stop;

# The original under a new port, as after a move to another container: what it
# left itself is its own.
my $first_port = $node->port;
my $new_port = PostgreSQL::Test::Cluster::get_free_port();
$node->append_conf('postgresql.conf', "port = $new_port");
$node->{_port} = $new_port;
my $renamed_at = LockHistory::log_end($node);
$node->start;
LockHistory::wait_until_recording($node);
LockHistory::until_true(sub { !-e $file }, 'the file is gone');
unlike(LockHistory::log_since($node, $renamed_at), qr/WARNING:  pg_lock_history/, 'a new port: nothing to complain of');
like(LockHistory::log_since($node, $renamed_at), qr/DETAIL:  The name of this node was "[^"]*:$first_port" then/, 'a new port: said');
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT node, ' ') ~ ':$new_port\$' FROM lock_history.waits WHERE application_name = 'own'"),
	't', 'a new port: the wait is there, under the new name');
$node->stop;
$node->append_conf('postgresql.conf', "port = $first_port");
$node->{_port} = $first_port;
rename "$file.kept", $file or die $!;

# Nobody has used it: the owner can.
$node->start;
LockHistory::wait_until_recording($node);
LockHistory::until_true(sub { !-e $file }, 'the file is gone');
is(waits_of($node, 'saved'), 1, 'the owner takes it over');
is(waits_of($node, 'foreign'), 0, 'and nothing of others');
$node->stop;

# Once more, as after a crash before the file was removed.
put($file, $good);
$node->start;
LockHistory::wait_until_recording($node);
LockHistory::until_true(sub { !-e $file }, 'the file is gone');
is(waits_of($node, 'saved'), 1, 'read a second time, it adds nothing');

# Base backups leave it out.
put($file, $good);
$node->backup('b');
ok(-e $file, 'there is a file');
is_deeply([ glob($node->backup_dir . '/b/pgsql_tmp*') ], [], 'a base backup has none');
unlink $file;

# Statements are kept as the settings say, also here.
$node->append_conf('postgresql.conf', "pg_lock_history.query_text = 'off'");
$node->reload;
unlike(wait_and_stop($node, 'off'), qr/secret of/, 'query_text = off: no statement gets to the disk');
$node->start;
LockHistory::wait_until_recording($node);

# It cannot be written: said, and the server stops in time.
mkdir "$file.new" or die $!;
append_to_file("$file.new/in_the_way", 'x');
my $offset = LockHistory::log_end($node);
my $holder = LockHistory::session($node, 'holder');
my $took = LockHistory::seconds(sub { $node->stop('fast'); });
my @told = grep { /WARNING:  pg_lock_history: facts are lost at this stop/ } split /\n/, LockHistory::log_since($node, $offset);
is(scalar @told, 1, 'not to be written: one message') or diag(LockHistory::log_since($node, $offset));
cmp_ok($took, '<', 10, 'and the server stops');
eval { $holder->quit };
unlink "$file.new/in_the_way";
rmdir "$file.new";
$node->start;
LockHistory::wait_until_recording($node);
$node->stop;

done_testing();
