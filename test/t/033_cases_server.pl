# Incidents that need the server to be set up for them: autovacuum, logical
# replication, commits that wait for a standby. See LockHistory/Cases.pm for how
# a case is written; those of one call run at the same time.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory::Cases;
use Test::More;

my $node = LockHistory::Cases::cluster('server', settings => q{
	wal_level = logical
	max_wal_senders = 5
	max_replication_slots = 5
	autovacuum = on
	autovacuum_naptime = '1s'
	autovacuum_max_workers = 6
});
my $slowly = 'autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1';

# A subscription to a publication of the same server.
$node->safe_psql('postgres', q{
	CREATE SCHEMA repl; CREATE TABLE repl.lr (id int PRIMARY KEY, v int); INSERT INTO repl.lr VALUES (1, 0);
	CREATE PUBLICATION pub FOR TABLE repl.lr; CREATE DATABASE sub; SELECT pg_create_logical_replication_slot('sub', 'pgoutput')});
$node->safe_psql('sub', q{
	CREATE SCHEMA repl; CREATE TABLE repl.lr (id int PRIMARY KEY, v int); INSERT INTO repl.lr VALUES (1, 0);
	CREATE FUNCTION repl.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN new; END $$;
	CREATE TRIGGER slow BEFORE INSERT ON repl.lr FOR EACH ROW EXECUTE FUNCTION repl.slow();
	ALTER TABLE repl.lr ENABLE REPLICA TRIGGER slow;
	CREATE SUBSCRIPTION sub CONNECTION '} . $node->connstr('postgres') =~ s/'/''/gr . q{' PUBLICATION pub
	WITH (create_slot = false, slot_name = 'sub', copy_data = false)});

LockHistory::Cases::run($node,

	# (A worker goes from table to table of one database: each of these has its own.)
	# Autovacuum waits for an index, and gives way to who waits for its table: it is
	# the waiter that is cancelled. (When it comes is its own affair; B comes after it.)
	{
		name => 'autovac-waits-cancelled',
		database => 'av_one',
		setup => q{create table crowded (id int) with (autovacuum_enabled = off); create index crowded_i on crowded (id);
			insert into crowded select g from generate_series(1, 10000) g; delete from crowded where id % 2 = 0;},
		steps => q{
			0.0 A: begin; alter index crowded_i set tablespace pg_default
			0.1 S: alter table crowded set (autovacuum_enabled = on)
			0.2 find W: select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%crowded%' and wait_event_type = 'Lock'
			0.5 B: alter table crowded add column z int              -- waits
			1.0 tree: A, .W hard, ..B hard
			1.7 done B:
			1.8 A: rollback
		},
		waits => q{
			W | RowExclusiveLock    | relation crowded_i | hard A | soft - | root A | cancelled | 0.99-1.5
			B | AccessExclusiveLock | relation crowded   | hard W | soft - | root A | granted   | 0.99-1.1
		},
		ask => [ [ 'the worker as waiter', q{SELECT backend_type, query ~ '^autovacuum: VACUUM', usename IS NULL, query_id IS NULL FROM lock_history.waits WHERE pid = {W}}, 'autovacuum worker|t|t|t' ] ],
	},

	# Against wraparound it does not give way, also as a waiter. (The transactions that
	# make its table old are used up by the next case.)
	{
		name => 'autovac-wraparound-waits',
		database => 'av_two',
		setup => q{create table old_two (id int); create index old_two_i on old_two (id); insert into old_two values (1);},
		steps => q{
			0.0 A: begin; alter index old_two_i set tablespace pg_default
			0.1 S: alter table old_two set (autovacuum_freeze_max_age = 100000)
			0.2 find W: select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%old_two%' and wait_event_type = 'Lock'
			0.5 B: alter table old_two add column z int              -- waits
			2.5 tree: A, .W hard, ..B hard
			3.0 A: rollback
		},
		waits => q{
			W | RowExclusiveLock    | relation old_two_i | hard A | soft - | root A     | granted | 2.4-3.0
			B | AccessExclusiveLock | relation old_two   | hard W | soft - | root A (W) | granted | 2.4-3.0
		},
		ask => [ [ 'the worker as waiter and as blocker', q{SELECT w.query, b.blocker_query, b.blocker_backend_type FROM lock_history.waits AS w JOIN lock_history.blocking AS b ON b.blocker_pid = w.pid WHERE w.pid = {W}},
			'autovacuum: VACUUM old_two (to prevent wraparound)|autovacuum: VACUUM old_two (to prevent wraparound)|autovacuum worker' ] ],
	},

	# Autovacuum against wraparound stays; the DDL behind it waits, and the readers behind that.
	{
		name => 'autovac-wraparound',
		setup => qq{create table old_one (id int, v int) with (autovacuum_freeze_max_age = 100000, autovacuum_analyze_threshold = 1000000, $slowly);
			insert into old_one select g, 0 from generate_series(1, 100000) g; set synchronous_commit = off;
			do \$\$ begin for i in 1..100500 loop perform pg_current_xact_id(); commit; end loop; end \$\$;},
		steps => q{
			0.0 find W: select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%old_one%'
			0.1 A: alter table old_one add column z int              -- waits
			0.5 B: select count(*) from old_one where id = 1         -- waits
			1.9 tree: W, .A hard, ..B soft
			2.5 S: select pg_terminate_backend({W})
		},
		waits => q{
			A | AccessExclusiveLock | relation old_one | hard W | soft - | root W | granted | 2.3-2.6
			B | AccessShareLock     | relation old_one | hard - | soft A | root W | granted | 1.9-2.2
		},
		ask => [ [ 'the root: a worker that must not yield, without user, client or identifier',
			q{SELECT backend_type, query, usename IS NULL, client_addr IS NULL, query_id IS NULL FROM lock_history.root_blockers WHERE pid = {W}},
			'autovacuum worker|autovacuum: VACUUM old_one (to prevent wraparound)|t|t|t' ],
			[ 'what it holds', q{SELECT blocker_mode FROM lock_history.blocking WHERE blocker_pid = {W}}, '{ShareUpdateExclusiveLock}' ] ],
	},

	# Ordinary autovacuum is sent away by the waiter's deadlock check; that is no deadlock.
	{
		name => 'autovac-cancelled',
		setup => qq{create table dead_one (id int, v int) with (autovacuum_enabled = off, autovacuum_analyze_threshold = 1000000, $slowly);
			insert into dead_one select g, 0 from generate_series(1, 100000) g; delete from dead_one where id % 2 = 0;},
		steps => q{
			0.0 S: alter table dead_one set (autovacuum_enabled = on)
			0.1 find W: select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%dead_one%'
			0.2 A: alter table dead_one add column z int             -- waits
			0.6 B: select 1 from dead_one limit 1                    -- waits
		},
		waits => q{
			A | AccessExclusiveLock | relation dead_one | hard W | soft - | root W | granted | 0.99-1.1
			B | AccessShareLock     | relation dead_one | hard - | soft A | root W | granted | 0.55-0.75
		},
		ask => [ [ 'the root: a worker that may yield',
			q{SELECT backend_type, query FROM lock_history.root_blockers WHERE pid = {W}}, 'autovacuum worker|autovacuum: VACUUM dead_one' ],
			[ 'nobody was in a circle', q{SELECT bool_or(in_cycle) FROM lock_history.waits WHERE pid IN ({A}, {B})}, 'f' ] ],
	},

	# VACUUM cuts the table off in bites: readers wait, shortly, each time.
	{
		name => 'vacuum-truncate-stutter',
		setup => q{create unlogged table vt (id int) with (fillfactor = 10, autovacuum_enabled = off);
			insert into vt select g from generate_series(1, 500000) g; delete from vt where id > 5;},
		steps => q{
			0.0 A: do $$ declare until timestamptz := clock_timestamp() + '4 s'; begin while clock_timestamp() < until loop perform 1 from vt limit 1; commit; end loop; end $$   -- runs
			0.1 B: vacuum vt
		},
		waits => q{
			A* | AccessShareLock | relation vt | hard B | soft - | root B | granted | 0.0-0.2
		},
		ask => [ [ 'in the strong mode', q{SELECT DISTINCT 'AccessExclusiveLock' = ANY (blocker_mode) FROM lock_history.blocking WHERE blocker_pid = {B}}, 't' ] ],
	},

	# An apply worker waits, and blocks; it has no statement to show. It looks for its
	# row without locking it, so the row behind its wait is not known. From 16 on it is
# called an apply worker.
	{
		name => 'apply-worker-both-ways',
		sessions => { map { $_ => { database => 'sub', search_path => 'repl' } } qw(X Y) },
		steps => q{
			0.0 find W: select pid from pg_stat_activity where backend_type like 'logical replication%worker' and datname = 'sub'
			0.0 X: begin; update lr set v = 5 where id = 1
			0.2 P: update repl.lr set v = 7 where id = 1
			1.5 Y: alter table lr add column k int                   -- waits
			2.0 tree: X, .W hard, ..Y hard, .Y hard
			3.0 X: commit
			3.5 P: insert into repl.lr values (2, 2)
			4.0 Y: alter table lr add column k2 int                  -- waits
			4.5 tree: W, .Y hard
		},
		waits => q{
			W | ShareLock           | transactionid X | hard X   | soft - | root X | granted | 2.5-2.9
			Y | AccessExclusiveLock | relation repl.lr            | hard W X | soft - | root X | granted | 1.4-1.7
			Y | AccessExclusiveLock | relation repl.lr            | hard W   | soft - | root W | granted | 0.7-1.3
		},
		ask => [ [ 'the worker as waiter', q{SELECT replace(backend_type, ' apply', ''), datname, query IS NULL, coalesce(application_name, '') FROM lock_history.waits WHERE pid = {W}},
			'logical replication worker|sub|t|' ],
			[ 'and as root', q{SELECT replace(backend_type, ' apply', '') FROM lock_history.root_blockers WHERE pid = {W}}, 'logical replication worker' ] ],
	},
);

# A logical slot waits for every older writer: alone, or it would wait for the others.
LockHistory::Cases::run($node,
	{
		name => 'slot-creation-waits',
		setup => 'create table t (id int)',
		sessions => { R => { replication => 'database' } },
		steps => q{
			0.0 A: begin; insert into t values (70)
			0.5 B: select pg_create_logical_replication_slot('s_test', 'pgoutput')   -- waits
			0.8 R: CREATE_REPLICATION_SLOT s_ws LOGICAL pgoutput NOEXPORT_SNAPSHOT   -- waits
			1.2 tree: A, .B hard, .R hard
			2.5 A: commit
		},
		waits => q{
			B+ | ShareLock | transactionid A | hard A | soft - | root A | granted | 1.9-2.2
			R+ | ShareLock | transactionid A | hard A | soft - | root A | granted | 1.6-1.9
		},
		ask => [ [ 'a walsender: its command, and no identifier',
			q{SELECT DISTINCT backend_type, split_part(query, ' ', 1), query_id IS NULL FROM lock_history.waits WHERE pid = {R}}, 'walsender|CREATE_REPLICATION_SLOT|t' ],
			[ 'no relation', q{SELECT count(relation) FROM lock_history.waits WHERE pid IN ({B}, {R})}, '0' ] ],
	},
);

# Commits that notify stand in one line, over all databases. Every commit of the
# server waits meanwhile: alone.
LockHistory::Cases::run($node,
	{
		name => 'notify-global-lock',
		setup => 'create table n1 (i int)',
		sessions => { P => { database => 'sub' } },
		steps => q{
			0.0 S: alter system set synchronous_standby_names = 'nobody'; select pg_reload_conf(), pg_sleep(0.2)
			0.3 A: begin; insert into n1 values (1); notify ch, 'x'; commit   -- runs
			0.8 P: begin; select pg_current_xact_id(); notify ch, 'y'; commit -- waits
			1.3 B: begin; insert into n1 values (1); notify ch, 'z'; commit   -- waits
			1.5 C: insert into n1 values (5)                         -- runs
			2.0 tree: A, .P hard, .B hard
			3.0 S: alter system reset synchronous_standby_names; select pg_reload_conf()
		},
		waits => q{
			P | AccessExclusiveLock | object commit order of NOTIFY | hard A     | soft - | root A     | granted | 2.1-2.4
			B | AccessExclusiveLock | object commit order of NOTIFY | hard A (P) | soft P | root A (P) | granted | 1.6-2.0
		},
		ask => [ [ 'the waits are in COMMIT, on a shared object', q{SELECT DISTINCT btrim(query, ' ;'), database, objid, object_datname IS NULL FROM lock_history.waits WHERE pid IN ({P}, {B})}, 'commit|0|0|t' ] ],
	},
);

$node->stop;
done_testing();
