# Sessions that are not through their authentication: in a transaction of their own,
# without a status entry, a role or a database. One that waits for its client is no
# load; one that waits for a lock is a waiter like others; both are known by name
# as soon as they have one.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use LockHistory::Wire;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = LockHistory::cluster('authenticating', init => [ auth_extra => [ '--create-role', 'bob' ] ], settings => "pg_lock_history.flush_period = '200ms'\nautovacuum = off");
my $watch = LockHistory::session($node, 'watch');    # may look while nobody can connect
sub sql { return $watch->run($_[0]); }
sub until_sql { my ($sql) = @_; LockHistory::until_true(sub { sql($sql) eq 't' }, $sql); return; }
sql(q{CREATE ROLE bob LOGIN PASSWORD 'secret'});
my $hba = $node->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
open my $file, '>', $hba or die "pg_hba.conf: $!";
print $file "local all bob password\n$rules";
close $file;
$node->reload;

# Returns when $n full seconds from now on are in the history.
sub seconds_of
{
	my ($n) = @_;
	my $from = sql(q{SELECT date_trunc('second', clock_timestamp()) + interval '1 s'});
	until_sql("SELECT value::timestamptz > timestamptz '$from' + interval '$n s 300 ms' FROM lock_history.status() WHERE key = 'last_flush'");
	return "at >= '$from' AND at < timestamptz '$from' + interval '$n s'";
}

# One is asked for a password and does not answer; another one sleeps, so that there are rows.
my $sleeper = LockHistory::session($node, 'sleeper');
$sleeper->send('SELECT pg_sleep(600)');
my $strangers = q{SELECT count(*) = %d FROM pg_locks AS l WHERE l.locktype = 'virtualxid'
	AND l.pid NOT IN (SELECT a.pid FROM pg_stat_activity AS a WHERE a.state IS DISTINCT FROM 'starting')};
until_sql(sprintf $strangers, 0);
my $slow = LockHistory::Wire->new($node, user => 'bob', database => 'postgres');
until_sql(sprintf $strangers, 1);
my $range = seconds_of(2);
is(sql("SELECT count(*) FROM lock_history.load WHERE $range AND wait_event = 'PgSleep'"), '2', 'load is sampled');
is(sql("SELECT count(*) FROM lock_history.load WHERE $range AND wait_event_type = 'Client'"), '0', 'who does not give his password is no load');
is(sql("SELECT round(max(idle_in_transaction)::numeric, 1) FROM lock_history.sessions WHERE $range"), '0.0', '... nor idle in transaction');

# He gives it.
eval { $slow->read };    # what asks for it
syswrite $slow->socket, 'p' . pack('N', 4 + length "secret\0") . "secret\0" or die "send the password: $!";
$slow->send('SELECT pg_sleep(3)');
LockHistory::until_true(sub { $slow->read; defined $slow->pid && $slow->done }, 'bob is in, and has slept');
until_sql(q{SELECT lock_history.flush()});
is(sql(q{SELECT count(*) > 0, min(datname), min(backend_type) FROM lock_history.load WHERE wait_event = 'PgSleep' AND usename = 'bob'}), 't|postgres|client backend', 'then he is known');
is(sql(q{SELECT count(*) FROM lock_history.recent_load() WHERE wait_event = 'PgSleep' AND (usename IS NULL OR datname IS NULL)}), '0', '... by name, from his first second on');

# Whoever connects has to look at pg_authid, and waits when it is locked.
my $holder = LockHistory::session($node, 'holder');
$holder->run('BEGIN; LOCK TABLE pg_authid');
my $stuck = LockHistory::Wire->new($node, user => sql('SELECT current_user'), database => 'postgres');
until_sql(q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'pg_authid'::regclass});
until_sql(q{SELECT clock_timestamp() > min(waitstart) + interval '1500 ms' FROM pg_locks WHERE NOT granted AND relation = 'pg_authid'::regclass});
my $began = sql('SELECT min(waitstart) FROM pg_locks WHERE NOT granted');
is(sql(q{SELECT lock_history.flush('20 s')}), 't', 'history is written while nobody can connect');
$holder->run('COMMIT');
LockHistory::until_true(sub { $stuck->read; defined $stuck->pid }, 'it is in');
# Its name is known when the session for names was still there: no other one could be opened.
like(LockHistory::history($node, 'SELECT object, mode, outcome, hard_blockers, application_name, query, duration > \'1 s\' FROM lock_history.waits WHERE pid = ' . $stuck->pid),
	qr/^(pg_catalog\.pg_authid|relation 1260)\|AccessShareLock\|granted\|\{${\$holder->pid}\}\|\|\|t$/, 'a wait for it while connecting is told');
is(sql(qq{SELECT count(*) > 0 FROM lock_history.load WHERE at >= timestamptz '$began' - interval '1 s' AND wait_event_type = 'Lock' AND aas > 0}), 't', '... and counts as load');

$stuck->quit;
$slow->quit;
$_->quit for $holder, $watch;
$node->stop;
done_testing();
