# Code that others plant where a superuser's session comes by: by the owner of
# the history's database, and by whoever may make objects or triggers in it.
# None of it runs with the rights of the writer, of the session that creates the
# extension, or of a reader.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('planted', init => [ auth_extra => [ '--create-role', 'mallory,maker,app' ] ], extension => 0,
	settings => "pg_lock_history.database = 'hist'\npg_lock_history.flush_period = '100ms'\npg_lock_history.retention = '14s'");
$node->safe_psql('postgres', q{
	CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; CREATE ROLE maker LOGIN SUPERUSER;
	CREATE DATABASE hist OWNER mallory; CREATE TABLE public.orders (i int)});
sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('hist', $sql, extra_params => [ '-U', $role ]);
	return $rc == 0 ? $out : $err;
}

# Functions and operators that fit better than the server's own (no cast is
# needed), or as well, in a schema that stands first in the path. Each notes who ran it.
sub plant
{
	my ($role) = @_;
	my $sql = q{
		CREATE TABLE public.caught (who text, what text); GRANT INSERT ON public.caught TO PUBLIC;
		SET client_min_messages = error;};
	my %functions = (
		'count()' => 'bigint', 'min(text)' => 'text', 'max(bigint)' => 'bigint', 'sum(bigint)' => 'numeric', 'now()' => 'timestamptz',
		'array_agg(integer)' => 'integer[]', 'string_agg(text, text)' => 'text', 'pg_has_role(text, text)' => 'boolean', 'pg_has_role(oid, text)' => 'boolean',
		'left(text, integer)' => 'text', 'right(name, integer)' => 'text', 'round(numeric)' => 'numeric', 'unnest(integer[])' => 'integer', 'format(text, text)' => 'text', 'format(text, text, text)' => 'text',
		'date_trunc(text, timestamptz)' => 'timestamptz', 'pg_control_system()' => 'integer', 'make_interval(double precision)' => 'interval', 'current_setting(text, boolean)' => 'text',
		'pg_size_bytes(text)' => 'bigint', 'pg_size_pretty(numeric)' => 'text', 'pg_total_relation_size(oid)' => 'bigint', 'set_config(text, text, boolean)' => 'text',
		'pg_postmaster_start_time()' => 'timestamptz', 'pg_notify(text, text)' => 'void', 'row_number()' => 'bigint', 'cardinality(text[])' => 'integer');
	for my $signature (sort keys %functions)
	{
		my $type = $functions{$signature};
		my $return = $type eq 'void' ? 'RETURN' : 'RETURN NULL';
		$sql .= "CREATE FUNCTION public.$signature RETURNS $type LANGUAGE plpgsql AS \$f\$ BEGIN INSERT INTO public.caught VALUES (current_user, '$signature'); $return; END \$f\$;\n";
	}
	my $n = 0;
	for my $operator ([ '=', 'name', 'text' ], [ '=', 'text', 'text' ], [ '=', 'oid', 'oid' ], [ '=', 'integer', 'integer' ], [ '=', 'smallint', 'integer' ], [ '=', 'bigint', 'bigint' ], [ '<', 'smallint', 'integer' ],
		[ '>', 'timestamptz', 'timestamptz' ], [ '||', 'text', 'text' ], [ '~', 'name', 'text' ], [ '~', 'text', 'text' ], [ '&', 'integer', 'integer' ])
	{
		my ($name, $left, $right) = @$operator;
		my $type = $name eq '||' ? 'text' : $name eq '&' ? 'integer' : 'boolean';
		$n++;
		$sql .= "CREATE FUNCTION public.operator_$n($left, $right) RETURNS $type LANGUAGE plpgsql AS \$f\$ BEGIN INSERT INTO public.caught VALUES (current_user, '$left $name $right'); RETURN NULL; END \$f\$;\n"
		  . "CREATE OPERATOR public.$name (LEFTARG = $left, RIGHTARG = $right, FUNCTION = public.operator_$n);\n";
	}
	# Names of ours and of the catalog.
	$sql .= join '', map { "CREATE TABLE public.$_ (node text); " } qw(pg_class pg_extension node run ring waits process);
	$sql .= "CREATE DOMAIN public.oid AS integer; CREATE DOMAIN public.text AS pg_catalog.text CHECK (public.operator_2(VALUE, 'x'));\n"
	  . 'ALTER DATABASE hist SET search_path = public, pg_catalog;';
	return as($role, $sql);
}
is(plant('mallory'), '', 'the owner of the database has planted a lot');
my $caught = q{SELECT string_agg(DISTINCT who || ' ran ' || what, E'\n') FROM public.caught WHERE who <> 'mallory'};

# They do work: a session that takes no care runs them.
$node->safe_psql('hist', 'SELECT c.relname = \'pg_class\'::pg_catalog.text FROM pg_catalog.pg_class AS c');
isnt($node->safe_psql('hist', 'SET search_path = pg_catalog; SELECT count(*) FROM public.caught'), '0', 'what was planted is found in the path of an unwary session');
$node->safe_psql('hist', 'TRUNCATE public.caught');

# CREATE EXTENSION, under an event trigger as for auditing; another one forbids
# everything while the writer works.
$node->safe_psql('hist', q{
	SET search_path = pg_catalog;
	CREATE TABLE public.audited (tag pg_catalog.text);
	CREATE FUNCTION public.audit() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.audited VALUES (tg_tag); END $$;
	CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION public.audit();
	CREATE FUNCTION public.forbid() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no % here', tg_tag; END $$});
is($node->safe_psql('hist', 'CREATE EXTENSION pg_lock_history'), '', 'CREATE EXTENSION works there');
cmp_ok($node->safe_psql('hist', 'SET search_path = pg_catalog; SELECT count(*) FROM public.audited'), '>', 0, '... with an event trigger that ran');
$node->safe_psql('hist', 'SET search_path = pg_catalog; CREATE EVENT TRIGGER forbid ON ddl_command_start EXECUTE FUNCTION public.forbid()');
sub status { return $node->safe_psql('hist', "SET search_path = pg_catalog; SELECT value FROM lock_history.status() WHERE key = '$_[0]'"); }
sub until_state { my ($state) = @_; LockHistory::until_true(sub { status('state') eq $state }, "state $state"); return; }
sub flush { return $node->safe_psql('hist', q{SET search_path = pg_catalog; SELECT lock_history.flush('30 s')}); }
until_state('recording');
my $errors = status('errors');    # before there was the database

sub one_wait
{
	my ($name) = @_;
	my ($holder, $waiter) = map { LockHistory::session($node, "$_ $name") } qw(holder waiter);
	$holder->run('BEGIN; LOCK TABLE public.orders');
	$waiter->send('SELECT FROM public.orders');
	LockHistory::wait_until_waiting($node, $waiter);
	flush();
	$holder->run('COMMIT');
	$waiter->answer;
	$_->quit for $holder, $waiter;
	flush();
	return $node->safe_psql('hist', "SET search_path = pg_catalog; SELECT object, outcome FROM lock_history.waits WHERE application_name = 'waiter $name'");
}
is(one_wait('first'), 'public.orders|granted', 'the writer does its work');

# Everything that can be read, by a superuser with that path.
my @readable = split /\n/, $node->safe_psql('hist', q{
	SET search_path = pg_catalog;
	SELECT format('SELECT * FROM lock_history.%I', c.relname) FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'v'
	UNION ALL VALUES ('SELECT * FROM lock_history.blocking_tree_at(now())'), ('SELECT * FROM lock_history.worst_moments()'), ('SELECT * FROM lock_history.status()'),
	('SELECT * FROM lock_history.recent_waits()'), ('SELECT * FROM lock_history.recent_load()'), ('SELECT * FROM lock_history.fast_path_advice()'),
	('SELECT * FROM lock_history.load_by(now() - interval ''1 min'', now())'), ('SELECT lock_history.keep(now() - interval ''1 min'', now(), ''kept'')'),
	('SELECT lock_history.grant_reader(''app'')'), ('SELECT lock_history.revoke_reader(''app'')'), ('SELECT lock_history.grant_writer(''app'')'), ('SELECT lock_history.revoke_writer(''app'')'),
	('SELECT lock_history.analyze_segment(0)'), ('SELECT lock_history.forget(''kept'')'), ('SELECT lock_history.reset()')});
$node->safe_psql('hist', 'SET search_path = pg_catalog; DROP EVENT TRIGGER forbid');
for my $query (@readable)
{
	(my $bare = $query) =~ s/\bnow\(\)/'now'::pg_catalog.timestamptz/g;
	$bare =~ s/('now'::pg_catalog.timestamptz) - interval '1 min'/'yesterday'::pg_catalog.timestamptz/g;
	my ($rc, undef, $err) = $node->psql('hist', "SET search_path = public, pg_catalog; $bare");
	is($rc, 0, $bare) or diag $err;
}
$node->safe_psql('hist', 'SET search_path = pg_catalog; CREATE EVENT TRIGGER forbid ON ddl_command_start EXECUTE FUNCTION public.forbid()');
LockHistory::until_true(sub { flush(); $node->safe_psql('hist', 'SET search_path = pg_catalog; SELECT max(round) > 1 FROM lock_history.ring') eq 't' }, 'the ring has come round');
is($node->safe_psql('hist', "SET search_path = pg_catalog; $caught"), '', 'nothing that was planted has run');
is(status('errors'), $errors, 'and the writer has met no error') or diag status('last_error');
$node->safe_psql('hist', "SET search_path = pg_catalog; DROP EVENT TRIGGER $_") for qw(forbid audit);

# A careless GRANT ALL lets somebody make triggers. A session that was there
# before does not fire them, one that comes later refuses the tables.
$node->safe_psql('hist', 'SET search_path = pg_catalog; GRANT ALL ON ALL TABLES IN SCHEMA lock_history TO app; GRANT USAGE ON SCHEMA lock_history TO app; GRANT CREATE ON SCHEMA public TO app');
is(as('app', q{
	SET search_path = pg_catalog;
	CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES (current_user, tg_table_name); IF tg_level = 'ROW' THEN RETURN new; END IF; RETURN NULL; END $$;
	DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind IN ('r', 'p') LOOP
			EXECUTE format('CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION public.trap()', t);
		END LOOP; END $$}), '', 'a trigger on each table');
my $writer = q{SET search_path = pg_catalog; SELECT pid FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'};
my $pid = $node->safe_psql('hist', $writer);
like(one_wait('trapped'), qr/granted/, 'the writer goes on');
my $round = $node->safe_psql('hist', 'SET search_path = pg_catalog; SELECT sum(round) FROM lock_history.ring');
LockHistory::until_true(sub { flush(); $node->safe_psql('hist', "SET search_path = pg_catalog; SELECT sum(round) > $round + 1 FROM lock_history.ring") eq 't' }, 'segments are emptied');
is($node->safe_psql('hist', $writer), $pid, '... in the same session');
is($node->safe_psql('hist', "SET search_path = pg_catalog; $caught"), '', '... and fires none of them');
$node->safe_psql('hist', "SET search_path = pg_catalog; SELECT pg_terminate_backend($pid, 10000)");
$node->safe_psql('hist', q{SET search_path = pg_catalog; SELECT lock_history.flush('10 ms')});
until_state('tables refused');
like(status('last_error'), qr/has a trigger/, 'another session refuses such tables');
$node->safe_psql('hist', q{
	SET search_path = pg_catalog;
	DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT tgrelid FROM pg_trigger WHERE tgname = 'trap' AND tgparentid = 0 LOOP EXECUTE format('DROP TRIGGER trap ON %s', t); END LOOP; END $$});
until_state('recording');

# An owner of the tables who has come to be no superuser could plant more.
$node->safe_psql('hist', 'SET search_path = pg_catalog; DROP EXTENSION pg_lock_history');
$node->safe_psql('hist', 'CREATE EXTENSION pg_lock_history', extra_params => [ '-U', 'maker' ]);
until_state('recording');
$node->safe_psql('postgres', 'ALTER ROLE maker NOSUPERUSER');
$node->safe_psql('hist', "SET search_path = pg_catalog; SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer'");
$node->safe_psql('hist', q{SET search_path = pg_catalog; SELECT lock_history.flush('10 ms')});
until_state('tables refused');
like(status('last_error'), qr/belongs to role maker, which is no superuser.*REASSIGN OWNED BY maker TO/, 'tables of an owner with fewer rights are refused');
my $user = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('hist', qq{SET search_path = pg_catalog; REASSIGN OWNED BY maker TO "$user"});
until_state('recording');
pass('... until they are reassigned');

$node->stop;
done_testing();
