# Texts and names that a history must live with: bytes that are no characters of
# any encoding, quotes and newlines, in databases of four encodings, each also as
# the one that holds the history. All of it is stored, can be read, and is valid.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('hostile_input', extension => 0,
	settings => "pg_lock_history.node_name = 'kn\"\\\\ \xc3\xb6'\npg_lock_history.flush_period = '100ms'\ndeadlock_timeout = '50ms'\ntrack_activity_query_size = '1MB'\npg_lock_history.shared_memory = '16MB'");

# A text in the encoding of the database, and what becomes of it: bytes that are
# no UTF-8 are shown by their numbers.
my %text = (
	SQL_ASCII => [ "\xff\xfe\xc3", '\xFF\xFE\xC3', "\xff\xc3", '\xFF\xC3' ],
	LATIN1    => [ "caf\xe9",      'caf\xE9', "\xe9t\xe9", "\xc3\xa9t\xc3\xa9" ],
	EUC_JP    => [ "\xc6\xfc\xcb\xdc", '\xC6\xFC\xCB\xDC', "\xc6\xfc", "\xe6\x97\xa5" ],
	UTF8      => [ "n\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "n\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac", "\xe2\x82\xac" ]);
my @encodings = sort keys %text;

# What a database that cannot hold every character shows instead.
sub escaped
{
	my ($t) = @_;
	utf8::decode($t);
	$t =~ s/([^\x00-\x7f])/ord $1 > 0xffff ? sprintf '\U%08X', ord $1 : sprintf '\u%04X', ord $1/ge;
	return $t;
}
sub bytes { my ($database, $sql) = @_; return $node->safe_psql($database, "SET client_encoding TO 'SQL_ASCII'; $sql"); }

for my $encoding (@encodings)
{
	$node->safe_psql('postgres', qq{CREATE DATABASE "in_$encoding" ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
	bytes("in_$encoding", qq{CREATE TABLE public."it's ""$text{$encoding}[2]""\na" (i int)});
	$node->safe_psql("in_$encoding", 'CREATE EXTENSION pg_lock_history');
}

sub session
{
	my ($name, $database) = @_;
	my $s = LockHistory::session($node, $name, database => $database);
	$s->run(q{SET client_encoding TO 'SQL_ASCII'});
	return $s;
}

my %sessions = map { my $e = $_; $e => [ map { session($_, "in_$e") } qw(holder waiter) ] } @encodings;
my $broken = q{SELECT count(*) FROM lock_history.waits AS v WHERE convert_from(textsend(v.query), current_setting('server_encoding')) IS DISTINCT FROM v.query};
for my $history (@encodings)
{
	my $database = "in_$history";
	$node->safe_psql('postgres', "ALTER SYSTEM SET pg_lock_history.database = '$database'");
	$node->reload;
	LockHistory::until_true(sub { LockHistory::status($node, 'writes_to', $database) =~ /dbname=$database / && LockHistory::status($node, 'state', $database) eq 'recording' }, "it records in $database");
	my $shown = sub { return $history eq 'UTF8' || $history eq 'SQL_ASCII' ? $_[0] : escaped($_[0]); };
	for my $encoding ($history =~ /^(UTF8|EUC_JP)$/ ? @encodings : ($history, 'UTF8'))
	{
		my ($holder, $waiter) = @{ $sessions{$encoding} };
		my ($raw, $kept, $raw_name, $name) = @{ $text{$encoding} };
		my $table = qq{public."it's ""$raw_name""\na"};
		$_->run("SET application_name = 'a''\"$raw $history'") for $holder, $waiter;
		$holder->run("BEGIN; LOCK TABLE $table /* held $raw */");
		$waiter->send("SELECT 'it''s $raw' FROM $table");
		LockHistory::wait_until_waiting($node, $waiter);
		my $pid = $waiter->pid;
		LockHistory::until_true(sub { bytes($database, LockHistory::is_seen_waiting($waiter)) eq '1' }, 'blocking_now has it');
		bytes($database, q{SELECT lock_history.flush('30 s')}) eq 't' or die 'flush';
		$holder->run('COMMIT');
		$waiter->answer;
		bytes($database, q{SELECT lock_history.flush('30 s')}) eq 't' or die 'flush';
		# Names come a moment later, after the wait has ended they are not written again.
		my $row = bytes($database, "SELECT query LIKE 'SELECT ''it''''s %', object, outcome FROM lock_history.waits WHERE pid = $pid ORDER BY wait_start DESC LIMIT 1");
		is($row, join('|', 't', $shown->(qq{public."it's ""$name""\na"}), 'granted'), "$encoding in $history: the wait, with its name");
		my $query = bytes($database, "SELECT query FROM lock_history.waits WHERE pid = $pid ORDER BY wait_start DESC LIMIT 1");
		is($query, $shown->(qq{SELECT 'it''s $kept' FROM public."it's ""} . ($encoding eq 'UTF8' ? $raw_name : $encoding eq 'LATIN1' ? '\xE9t\xE9' : $encoding eq 'EUC_JP' ? '\xC6\xFC' : '\xFF\xC3') . qq{""\na";}), '... and its statement');
		like(bytes($database, "SELECT string_agg(blocker_query, '') FROM lock_history.blocking WHERE pid = $pid"), qr/held \Q@{[ $shown->($kept) ]}\E/, '... and its blocker');
	}
	# A deadlock between two of them.
	my ($one, $two) = @{ $sessions{$history} };
	my $raw = $text{$history}[0];
	$one->run('BEGIN; SELECT pg_advisory_xact_lock(1)');
	$two->run('BEGIN; SELECT pg_advisory_xact_lock(2)');
	$one->send("SELECT pg_advisory_xact_lock(2) /* one $raw */");
	LockHistory::wait_until_waiting($node, $one);
	$two->send("SELECT pg_advisory_xact_lock(1) /* two $raw */");
	$_->answer for $one, $two;
	$_->run('ROLLBACK') for $one, $two;
	bytes($database, q{SELECT lock_history.flush('30 s')});
	is(bytes($database, qq{SELECT count(*), count(DISTINCT node) FROM lock_history.deadlocks WHERE query LIKE '%lock(_) /* ___ }
		  . ($shown->($text{$history}[1]) =~ s/\\/\\\\/gr) . qq{ */%' AND datname = current_database()}), '2|1', "a deadlock in $history");

	bytes($database, q{SELECT lock_history.keep('-infinity', now(), E'in''cident "\n')});
	for my $incident ('', q{SET pg_lock_history.incident = E'in''cident "\n';})
	{
		is($node->safe_psql($database, "$incident $broken"), '0', "all statements are valid in $history" . ($incident ? ', also the kept ones' : ''));
	}
	is($node->safe_psql($database, q{SELECT DISTINCT node = convert_from(textsend(node), current_setting('server_encoding')) FROM lock_history.waits}), 't', 'and so is the name of the node');
	my $all = $node->safe_psql($database, q{
		SELECT string_agg(w.what, ' ') FROM (
			SELECT format('SELECT count(v::text) FROM lock_history.%I AS v;', c.relname) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'v'
			UNION ALL SELECT format('SELECT count(f::text) FROM lock_history.%I() AS f;', f) FROM unnest('{recent_waits,recent_load,status,worst_moments,fast_path_advice}'::text[]) AS f) AS w(what)});
	my ($rc, undef, $err) = $node->psql($database, $all, extra_params => [ '-v', 'ON_ERROR_STOP=1' ]);
	is($rc, 0, "every view can be read in $history") or diag $err;
	is($node->safe_psql($database, q{SELECT count(*) FROM lock_history.recent_waits() AS w WHERE convert_from(textsend(w.query), current_setting('server_encoding')) IS DISTINCT FROM w.query}), '0', 'what is live is valid too');
}

# Statements of a megabyte, of characters that do not end where the limit is; as
# many as the limits allow, and the writer shut out until the server stops.
$node->safe_psql('postgres', q{ALTER SYSTEM SET pg_lock_history.query_length = '1000001B'});
$node->reload;
my $database = "in_$encodings[-1]";
my $lock = session('locker', $database);
my ($holder, $waiter) = @{ $sessions{UTF8} };
$holder->run('BEGIN; SELECT pg_advisory_xact_lock(3)');
for my $way ('written', 'spilled')
{
	if ($way eq 'spilled')
	{
		$lock->run('BEGIN; LOCK TABLE lock_history.run IN SHARE MODE');
		$holder->run('BEGIN; SELECT pg_advisory_xact_lock(3)');
	}
	$waiter->send("SELECT pg_advisory_xact_lock(3), '$way', '" . ("\xe2\x82\xac" x 400_000) . "'");
	LockHistory::wait_until_waiting($node, $waiter);
	LockHistory::until_true(sub { $node->safe_psql($database, LockHistory::is_seen_waiting($waiter)) eq '1' }, 'blocking_now has it');
	$node->safe_psql($database, 'SELECT lock_history.flush()') if $way eq 'written';
	$holder->run('COMMIT');
	$waiter->answer;
	$node->safe_psql($database, 'SELECT lock_history.flush()') if $way eq 'written';
}
LockHistory::until_true(sub { $node->safe_psql($database, q{SELECT count(*) FROM lock_history.recent_waits() WHERE query LIKE '%spilled%' AND outcome = 'granted'}) eq '1' }, 'the wait has ended');
$_->quit for map { @$_ } values %sessions;
$node->stop('fast');
cmp_ok(-s $node->data_dir . '/pgsql_tmp_pg_lock_history_spill', '>', 1_000_000, 'the spill file has it');
$node->start;
LockHistory::until_true(sub { $node->safe_psql($database, q{SELECT value FROM lock_history.status() WHERE key = 'state'}) eq 'recording' }, 'it records again');
$node->safe_psql($database, 'SELECT lock_history.flush()');
is($node->safe_psql($database, q{
	SELECT count(*), min(octet_length(query)) > 999990, max(octet_length(query)) <= 1000001, bool_and(convert_from(textsend(query), 'UTF8') = query)
	FROM lock_history.waits WHERE query LIKE 'SELECT pg_advisory_xact_lock(3)%'}), '2|t|t|t', 'statements of a megabyte, written and over a restart');
unlike(LockHistory::log_since($node, 0) =~ s/.*(?:STATEMENT|duration).*//gr, qr/internal error|panic/, 'nothing went wrong inside');

$node->stop;
done_testing();
