# Every query that README.md and doc/ print, asked on a server with some waits
# in its history: none raises an error, and those of doc/views.md and
# doc/explain.md fit into 120 columns or say \gx, as do the shortcuts for psql.
# (README.md shows the demo, whose names are short.)
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";

# statements(document): code blocks are indented by four spaces; a statement
# in there begins with SELECT and ends with a semicolon or \gx. In a table of
# questions the second column begins with what stands after SELECT * FROM.
sub statements
{
	my ($document) = @_;
	my (@found, $open, $asks);
	my $n = 0;
	for my $line (split /\n/, slurp_file("$top/$document"))
	{
		$n++;
		$asks = 1 if $line =~ /^\| question \| ask \|/;
		$asks = 0 if $line !~ /^\|/;
		if ($asks && $line =~ /^\|[^|]*\|\s*`([^`]+)`/)
		{
			# README names the schema, doc/views.md does so once above the table
			(my $what = $1) =~ s/^(?:lock_history\.)?/lock_history./;
			push @found, [ "$document:$n", "SELECT * FROM $what \\gx" ];
		}
		elsif ($line =~ /^ {4}(SELECT\b.*)/ && !defined $open)
		{
			push @found, [ "$document:$n", '' ];
			$open = 1;
		}
		next if !defined $open;
		$found[-1][1] .= "$line\n";
		undef $open if $line =~ /(?:;|\\gx)\s*$/;
		die "$document:$n: a statement without an end\n" if defined $open && $line !~ /^ {4}/;
	}
	return @found;
}

my @preload = ('pg_lock_history');
my ($share) = run_command([ 'pg_config', '--sharedir' ]);
my $has_statements = -e "$share/extension/pg_stat_statements.control";
push @preload, 'pg_stat_statements' if $has_statements;
my $node = LockHistory::cluster('examples', preload => 0,
	settings => "shared_preload_libraries = '" . join(', ', @preload) . "'\nmax_prepared_transactions = 5");
$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements') if $has_statements;

# Names and statements as long as those of a real schema; a pid, a prepared
# transaction and a queue; one wait that is over, and one that goes on.
$node->safe_psql('postgres', q{
	CREATE ROLE alice;
	CREATE TABLE public.customer_orders_of_the_current_year (id int, note text);
	BEGIN; LOCK TABLE customer_orders_of_the_current_year; PREPARE TRANSACTION 'nightly transfer';});
my @waiting;
for my $n (1 .. 3)
{
	my $session = LockHistory::session($node, "application_with_a_name_$n");
	$session->send("SELECT id, note, 'a statement as long as they are' AS remark FROM customer_orders_of_the_current_year WHERE id = $n");
	LockHistory::wait_until_waiting($node, $session);
	push @waiting, $session;
}
# Its name is looked up while it is there, and written when it comes.
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM lock_history.root_blockers WHERE gid = 'nightly transfer'}) or die 'no name of the prepared transaction';
$node->safe_psql('postgres', q{COMMIT PREPARED 'nightly transfer'});
$_->answer for @waiting;
# By a row lock, too short to be kept: rounded sums, a transaction without a relation.
$node->safe_psql('postgres', q{INSERT INTO customer_orders_of_the_current_year VALUES (1, '')});
$node->append_conf('postgresql.conf', "pg_lock_history.min_duration = '60s'");
$node->reload;
my $holder = LockHistory::session($node, 'holder');
$holder->run('BEGIN; UPDATE customer_orders_of_the_current_year SET id = 2');
$waiting[0]->send('UPDATE customer_orders_of_the_current_year SET id = 3');
LockHistory::wait_until_waiting($node, $waiting[0]);
$holder->run('COMMIT');
$waiting[0]->answer;
$node->append_conf('postgresql.conf', "pg_lock_history.min_duration = 0");
$node->reload;
$holder->run('BEGIN; LOCK TABLE customer_orders_of_the_current_year');
$waiting[1]->send('SELECT FROM customer_orders_of_the_current_year');
LockHistory::wait_until_waiting($node, $waiting[1]);
LockHistory::flush($node);

my ($wait_id, $moment) = split /\|/, $node->safe_psql('postgres', q{
	SELECT wait_id, wait_start + duration / 2 FROM lock_history.waits WHERE 0 > ANY (hard_blockers) ORDER BY wait_start DESC LIMIT 1});

for my $document (qw(README.md doc/views.md doc/explain.md doc/settings.md))
{
	my @examples = statements($document);
	ok(@examples > 0, "$document has examples");
	for my $example (@examples)
	{
		my ($where, $query) = @$example;
		next if $query =~ /pg_stat_statements/ && !$has_statements;
		# What is made up becomes something that is there.
		$query =~ s/\b4711\b/$wait_id/;
		$query =~ s/'2026-03-01 14:32'/'$moment'/;
		my ($out, $err) = ('', '');
		# Read from stdin, aligned, as in a session at a terminal.
		IPC::Run::run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-P', 'pager=off', '-d', $node->connstr('postgres'), '-f', '-' ],
			'<', \"SET application_name = 'reader';\n$query\n", '>', \$out, '2>', \$err);
		my $code = $? >> 8;
		$err =~ s/^psql:.*NOTICE:  the history reaches back to .* only\n//mg; # 14:32 was yesterday
		my @wide = $document !~ m{^doc/(?:views|explain)\.md$} || $query =~ /\\gx/ ? () : grep { length > 120 } split /\n/, $out;
		is("$code|$err|" . join("\n", @wide), '0||', $where) or diag($query);
	}
}

# The shortcuts, as installed: each answers with something.
my $shortcuts = "$share/extension/pg_lock_history.psql";
my %shortcut = map { $_ => 1 } slurp_file($shortcuts) =~ /^\\set (\w+) /mg;
is(join(' ', sort keys %shortcut), 'locks roots tree tree_at why why_at worst', 'shortcuts for psql');
for my $name (sort keys %shortcut)
{
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-P', 'pager=off', '-d', $node->connstr('postgres'), '-f', '-' ],
		'<', \"\\i $shortcuts\n\\set at '$moment'\n:$name\n", '>', \$out, '2>', \$err);
	my $code = $? >> 8;
	is("$code|$err|" . join("\n", grep { length > 120 } split /\n/, $out), '0||', ":$name fits");
	unlike($out, qr/\(0 rows\)/, ":$name answers");
}

# The waits of this test are what was shown, or nothing could have been too wide.
is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.waits WHERE object LIKE '%customer_orders%'}), '4', 'with waits in the history');
ok($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.short_waits WHERE locktype = 'transactionid'}) > 0, 'with short ones');
is($node->safe_psql('postgres', q{SELECT coalesce(gid, pid::text), pid < 0 FROM lock_history.root_blockers WHERE gid IS NOT NULL}),
	'nightly transfer|t', 'with a prepared transaction');

$holder->run('COMMIT');
$waiting[1]->answer;
$_->quit for $holder, @waiting;
$node->stop;
done_testing();
