# Rights on the tables in the hands of somebody who means harm: GRANT ALL ON ALL
# TABLES gives TRIGGER, and CREATE on the schema more. Nothing of it runs with the
# rights of those whose functions change the history; what takes an owner is refused.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use Test::More;

my $node = LockHistory::cluster('grants', init => [ auth_extra => [ '--create-role', 'mallory,ops,writer' ] ],
	settings => "pg_lock_history.retention = '14s'\npg_lock_history.flush_period = '100ms'");
$node->safe_psql('postgres', q{
	CREATE ROLE mallory LOGIN; CREATE ROLE ops LOGIN; CREATE ROLE writer LOGIN;
	SELECT lock_history.grant_writer('writer');
	GRANT USAGE ON SCHEMA lock_history TO ops;
	GRANT EXECUTE ON FUNCTION lock_history.keep(timestamptz, timestamptz, text, text), lock_history.forget(text), lock_history.reset() TO ops;
	GRANT USAGE, CREATE ON SCHEMA lock_history, public TO mallory;
	GRANT ALL ON ALL TABLES IN SCHEMA lock_history TO mallory;
	CREATE TABLE public.caught (who text, what text, operation text); GRANT INSERT ON public.caught TO PUBLIC});
$node->append_conf('postgresql.conf', "pg_lock_history.conninfo = 'user=writer'");
$node->reload;
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pg_lock_history writer' AND usename = 'writer'}) or die 'no writer of that role';
LockHistory::wait_until_recording($node);

sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);
	return $rc == 0 ? $out : $err;
}

# What there is to be kept, and to be rolled up.
my $sleeper = LockHistory::session($node, 'sleeper');
$sleeper->send('SELECT pg_sleep(600)');
$node->poll_query_until('postgres', q{SELECT lock_history.flush() AND count(*) > 0 FROM lock_history.load WHERE wait_event = 'PgSleep'}) or die 'no load';

# A trigger of every kind on every table, and one that fires at COMMIT, after the function.
is(as('mallory', q{
	CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.caught VALUES (current_user, tg_table_name, tg_op);
		RETURN CASE WHEN tg_level = 'STATEMENT' THEN NULL WHEN tg_op = 'DELETE' THEN old ELSE new END;
	END $$;
	DO $$ DECLARE t regclass; event text; BEGIN
		FOR t IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r' LOOP
			FOREACH event IN ARRAY '{BEFORE,AFTER}'::text[] LOOP
				EXECUTE format('CREATE TRIGGER trap_rows_%s %1$s INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION public.trap()', event, t);
				EXECUTE format('CREATE TRIGGER trap_%s %1$s INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION public.trap()', event, t);
			END LOOP;
			EXECUTE format('CREATE CONSTRAINT TRIGGER trap_late AFTER INSERT OR UPDATE OR DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.trap()', t);
		END LOOP; END $$}), '', 'who was granted TRIGGER plants some');
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
my $caught = "SELECT string_agg(DISTINCT who || ' ran it on ' || operation || ' of ' || what, E'\\n') FROM public.caught WHERE who = '$superuser'";
$node->safe_psql('postgres', 'UPDATE lock_history.ring SET round = round WHERE false');
is($node->safe_psql('postgres', $caught), "$superuser ran it on UPDATE of ring", 'they work: a superuser who changes a table by hand runs them');
$node->safe_psql('postgres', 'TRUNCATE public.caught');

# Objects of others in the schema: a table that looks like one of the ring, whose owner
# can have its triggers fired in any session, and a function that fits better.
is(as('mallory', q{
	CREATE TABLE lock_history.evil (seg smallint) PARTITION BY LIST (seg);
	CREATE TABLE lock_history.evil_0 PARTITION OF lock_history.evil FOR VALUES IN (0);
	INSERT INTO lock_history.evil VALUES (0);
	CREATE TRIGGER trap BEFORE TRUNCATE ON lock_history.evil_0 FOR EACH STATEMENT EXECUTE FUNCTION public.trap();
	ALTER TABLE lock_history.evil_0 ENABLE ALWAYS TRIGGER trap;
	CREATE FUNCTION lock_history.flush(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES (current_user, 'flush', 'CALL'); RETURN true; END $$}),
	'', 'and who may make objects in the schema makes some');

# What is called by whom.
sub calls
{
	my ($role, @calls) = @_;
	for my $call (@calls)
	{
		# Refused while the seconds that it wants are not complete.
		LockHistory::until_true(sub { as($role, "SELECT 1 FROM (SELECT $call) AS c") eq '1' }, "$role calls $call");
		pass("$role: $call");
	}
	return;
}
calls($_, "lock_history.keep(now() - interval '10 s', now(), 'kept')", "lock_history.forget('kept')",
	"lock_history.keep(now() - interval '10 s', now(), 'kept again')", "lock_history.forget('kept again')") for $superuser, 'ops';
$node->safe_psql('postgres', "SELECT lock_history.analyze_segment(s), lock_history.grant_writer('writer') FROM generate_series(0, 7) AS s");
$node->poll_query_until('postgres', q{SELECT lock_history.flush() AND EXISTS (SELECT FROM lock_history.minute) AND EXISTS (SELECT FROM lock_history.ring WHERE is_rolled AND is_empty AND round > 1)}) or die 'nothing is rolled up';
pass('segments are rolled up and emptied');
is($node->safe_psql('postgres', $caught), '', 'nothing that was planted has run with the rights of a superuser');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM public.caught WHERE who = 'writer'}), '>', 0, 'the writer, who has few and is no replica here, does run it') or diag $node->safe_psql('postgres', 'SELECT DISTINCT * FROM public.caught');
is(LockHistory::status($node, 'state'), 'recording', '... and goes on');

# What takes an owner is refused.
like(as('mallory', $_), qr/must be owner of/, "refused: $_")
  for 'CREATE RULE r AS ON INSERT TO lock_history.kept_incident DO ALSO INSERT INTO public.caught VALUES (current_user)',
	'ALTER TABLE lock_history.kept_incident ENABLE ROW LEVEL SECURITY', 'CREATE POLICY p ON lock_history.kept_incident USING (false)',
	'ALTER TABLE lock_history.kept_incident ENABLE ALWAYS TRIGGER trap_before', 'ALTER TABLE lock_history.kept_incident ADD COLUMN c integer DEFAULT 1 / 0',
	'CREATE INDEX ON lock_history.kept_incident (lower(name))', 'ALTER TABLE lock_history.kept_incident ADD CHECK (name IS NULL)';

# Rows are only rows, whatever is written into them.
my $name = q{x'); SELECT lock_history.reset(); --};
$node->safe_psql('postgres', "SELECT set_config('session_replication_role', 'replica', false); GRANT SELECT ON lock_history.node TO mallory");
is(as('mallory', qq{
	SET search_path = lock_history;
	INSERT INTO node (node, system_identifier, server_version_num, first_seen) VALUES (\$\$$name\$\$, 1, 150000, now() - interval '1 h');
	INSERT INTO run (node_id, run, started_at, heartbeat, batch, flush_period) SELECT node_id, 1, first_seen, now(), 1, '1 s' FROM node WHERE node = \$\$$name\$\$;
	INSERT INTO gap (seg, node_id, run, began, ended, reason, lost) SELECT (SELECT seg FROM ring WHERE opened_at IS NOT NULL AND closed_at IS NULL), node_id, 1, now() - interval '5 s', now(), \$\$$name\$\$, 0 FROM node;
	INSERT INTO kept_incident (name, kept_id, node, system_identifier, since, until, complete_until, kept_at, kept_by, waits, short_waits, size_bytes)
	VALUES (\$\$$name\$\$, 1, \$\$$name\$\$, 1, now(), now(), now(), now(), \$\$$name\$\$, 0, 0, 0)}), '', 'who may write rows writes some with statements in them');
$node->safe_psql('postgres', "SELECT lock_history.forget(\$\$$name\$\$)");
is($node->safe_psql('postgres', "SELECT lock_history.keep(now() - interval '10 s', now(), \$\$$name\$\$); SELECT name FROM lock_history.kept; SELECT count(*) > 0 FROM lock_history.load"),
	"0\n$name\nt", 'they are texts');

# Last: afterwards the writer looks at the tables again, and refuses those with triggers.
$node->safe_psql('postgres', 'TRUNCATE public.caught');
calls($_, 'lock_history.reset()') for $superuser, 'ops';
is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.episode'), '0', 'reset() empties the tables');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lock_history.evil_0'), '1', '... but none of others');
is($node->safe_psql('postgres', $caught), '', '... and runs nothing that was planted');

$node->stop;
done_testing();
