# Incidents around blockers that are easily missed: a session that does nothing,
# a transaction without a session, a snapshot, a parallel query; and around what
# a lock is called. See LockHistory/Cases.pm for how a case is written; all run
# at the same time.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory::Cases;
use Test::More;

my $node = LockHistory::Cases::cluster('blockers', settings => "max_prepared_transactions = 10");

# Two databases cut from one template have the same OIDs.
$node->safe_psql('postgres', 'CREATE DATABASE twin');
$node->safe_psql('twin', 'CREATE SCHEMA case_same_oid_two_databases; CREATE TABLE case_same_oid_two_databases.account (id int)');
$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE twin") for qw(twin_a twin_b);

LockHistory::Cases::run($node,

	# A concurrent index build waits for a writer, then for a snapshot of another table.
	{
		name => 'cic-virtualxid',
		database => 'indexes',
		setup => q{create table item (id int, v int); create table other (id int);
			create table part (k int) partition by range (k); create table part_0 partition of part for values from (0) to (10);},
		steps => q{
			0.0 A: begin; insert into item values (11, 0)
			0.5 B: create index concurrently i1 on item (v)          -- waits
			1.0 C: insert into item values (12, 0)
			2.0 A: commit
			2.5 done B:
			3.0 A: begin isolation level repeatable read; select count(*) from other
			3.5 B: create index concurrently i2 on item (v)          -- waits
			4.0 C: alter table item add column w int                 -- waits
			4.5 D: insert into item (id) values (13)                 -- waits
			5.0 tree: A, .B hard, ..C hard, ...D soft
			6.0 A: commit
			6.2 done B:
			6.3 A: begin; select count(*) from other
			6.4 B: create index concurrently i3 on item (v)
			6.5 A: commit
			6.6 A: begin; select count(*) from part
			6.8 B: alter table part detach partition part_0 concurrently   -- waits
			7.3 A: commit
		},
		waits => q{
			B  | ShareLock           | virtualxid A | hard A | soft - | root A | granted | 1.4-1.6
			B  | ShareLock           | virtualxid A | hard A | soft - | root A | granted | 2.3-2.6
			C  | AccessExclusiveLock | relation item | hard B | soft - | root A | granted | 1.9-2.3
			D  | RowExclusiveLock    | relation item | hard - | soft C | root A | granted | 1.4-1.8
			B+ | ShareLock           | virtualxid A | hard A | soft - | root A | granted | 0.4-0.6
		},
	},

	# The root is idle, without a transaction; and a lock that was taken twice.
	{
		name => 'advisory-idle-session',
		steps => q{
			0.0 A: begin; select pg_advisory_lock(7); rollback
			0.5 C: select pg_advisory_lock(7)                        -- waits
			2.5 A: discard all
			2.7 C: select pg_advisory_unlock(7)
			3.0 A: select pg_advisory_lock(8), pg_advisory_lock(8)
			3.5 C: select pg_advisory_lock(8)                        -- waits
			4.0 A: select pg_advisory_unlock(8)
			5.0 A: select pg_advisory_unlock(8)
		},
		waits => q{
			C | ExclusiveLock | advisory advisory 7 | hard A | soft - | root A | granted | 1.9-2.2
			C | ExclusiveLock | advisory advisory 8 | hard A | soft - | root A | granted | 1.4-1.7
		},
		ask => [ [ 'the blocker as it was',
			q{SELECT blocker_state, blocker_xact_start IS NULL, btrim(blocker_query, ' ;') FROM lock_history.blocking WHERE pid = {C} AND object = 'advisory 7'},
			'idle|t|rollback' ] ],
	},

	# Keys as the application wrote them.
	{
		name => 'advisory-key-forms',
		sessions => { Y => { database => 'template1' } },
		steps => q{
			0.0 A: select pg_advisory_lock(1, 2)
			0.0 B: select pg_advisory_lock(4294967298)
			0.5 C: select pg_advisory_lock(1, 2)                     -- waits
			0.5 D: begin; select pg_advisory_xact_lock(4294967298)   -- waits
			1.5 A: select pg_advisory_unlock_all()
			1.5 B: select pg_advisory_unlock_all()
			1.8 C: select pg_advisory_unlock_all()
			1.8 D: commit
			2.0 A: select pg_advisory_lock(-5)
			2.5 C: select pg_advisory_lock_shared(-5)                -- waits
			3.5 A: select pg_advisory_unlock_all()
			4.0 B: select pg_advisory_lock(-5)                       -- waits
			4.5 D: select pg_advisory_lock_shared(-5)                -- waits
			5.0 Y: select pg_advisory_lock(-5)
			5.1 tree: C, .B hard, ..D soft
			5.5 C: select pg_advisory_unlock_all()
			5.8 tree: B, .D hard
			6.0 B: select pg_advisory_unlock_all()
			6.1 A: select pg_advisory_lock(-1, -2)
			6.2 C: select pg_advisory_lock(-1, -2)                   -- waits
			6.4 A: select pg_advisory_unlock_all()
		},
		waits => q{
			C | ExclusiveLock | advisory advisory (1,2)      | hard A | soft - | root A   | granted | 0.9-1.1
			D | ExclusiveLock | advisory advisory 4294967298 | hard B | soft - | root B   | granted | 0.9-1.1
			C | ShareLock     | advisory advisory -5         | hard A | soft - | root A   | granted | 0.9-1.1
			B | ExclusiveLock | advisory advisory -5         | hard C | soft - | root C   | granted | 1.4-1.6
			D | ShareLock     | advisory advisory -5         | hard B | soft B | root B C | granted | 1.4-1.6
			C | ExclusiveLock | advisory advisory (-1,-2)    | hard A | soft - | root A   | granted | 0.15-0.35
		},
	},

	# A transaction that was prepared and forgotten: no process at all.
	{
		name => 'prepared-xact-blocker',
		setup => 'create table account (id int primary key, v int); insert into account values (1, 0);',
		steps => q{
			0.0 A: begin; update account set v = 1 where id = 1; select pg_advisory_xact_lock(4242); prepare transaction 'orphan-1'
			0.1 quit A:
			0.5 B: update account set v = 2 where id = 1             -- waits
			1.0 C: alter table account add column z int              -- waits
			1.5 D: select pg_advisory_lock(4242)                     -- waits
			2.0 tree: 'orphan-1', .B hard, ..C hard, .C hard, .D hard
			3.0 S: rollback prepared 'orphan-1'
		},
		waits => q{
			B  | ShareLock           | transactionid 'orphan-1' | hard 'orphan-1'   | soft - | root 'orphan-1' | granted | 2.4-2.7 | account (0,1)
			C+ | AccessExclusiveLock | relation account            | hard 'orphan-1' B | soft - | root 'orphan-1' | granted | 1.9-2.2
			D  | ExclusiveLock       | advisory advisory 4242      | hard 'orphan-1'   | soft - | root 'orphan-1' | granted | 1.4-1.7
		},
		ask => [
			[ 'it is told by its name and owner, and as nothing that runs',
				q{SELECT pid, gid, backend_type, state, usename = current_user, datname, query IS NULL, backend_start IS NULL, xact_start IS NOT NULL, sessions_blocked
				  FROM lock_history.root_blockers WHERE gid = 'orphan-1'}, '-1|orphan-1|prepared transaction|prepared|t|postgres|t|t|t|3' ],
			[ 'no live session is blamed', q{SELECT count(*) FROM lock_history.root_blockers WHERE pid IN ({B}, {C}, {D}, {S})}, '0' ] ],
	},

	# A leader and its workers are one blocker.
	{
		name => 'parallel-blocker-duplicates',
		setup => q{create table big (id int, v int); insert into big select g, 0 from generate_series(1, 6000) g; analyze big;
			create function slow(i int) returns int language plpgsql parallel safe as $$ begin perform pg_sleep(0.002); return i; end $$;},
		steps => q{
			0.0 A: set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0
			0.1 A: select sum(slow(id)) from big                     -- runs
			1.0 B: alter table big add column q int                  -- waits
			1.3 C: select 1 from big limit 1                         -- waits
			2.0 tree: A, .B hard, ..C soft
			2.1 note busy:
		},
		waits => q{
			B | AccessExclusiveLock | relation big | hard A | soft - | root A | granted | 2.5-6
			C | AccessShareLock     | relation big | hard - | soft B | root A | granted | 2.2-6
		},
		ask => [ [ 'one blocker', q{SELECT hard_blocker_count FROM lock_history.waits WHERE pid = {B}}, '1' ],
			[ 'and its workers beside it', q{SELECT cardinality(members), {A} = ANY (members) FROM lock_history.blocking_tree_at({busy}) WHERE pid = {A}}, '2|f' ] ],
	},

	# A leader and its workers wait for one table: three waits, one session in the tree.
	{
		name => 'parallel-waiters',
		setup => q{create table gate (i int); create table big (id int); insert into big select g from generate_series(1, 3000) g; analyze big;
			alter table big set (parallel_workers = 2);
			create function pass(i int) returns int language plpgsql parallel safe as $$ begin perform 1 from gate; return i; end $$;},
		steps => q{
			0.0 S: begin; lock table gate
			0.1 A: set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0
			0.2 A: select sum(pass(id)) from big                     -- waits
			0.3 find W: select pid from pg_locks where not granted and pid in (select pid from pg_stat_activity where leader_pid = {A}) and 2 = (select count(*) from pg_locks as l join pg_stat_activity as a using (pid) where a.leader_pid = {A} and not l.granted)
			0.8 tree: S, .A hard
			0.8 note busy:
			1.2 S: commit
		},
		waits => q{
			A | AccessShareLock | relation gate | hard S | soft - | root S | granted | 0.9-1.2
			W | AccessShareLock | relation gate | hard S | soft - | root S | granted | 0.9-1.2
		},
		ask => [ [ 'both workers are told of, as waits and in the tree',
			q{SELECT (SELECT count(*) FROM lock_history.waits WHERE leader_pid = {A}), cardinality(members), {W} = ANY (members) FROM lock_history.blocking_tree_at({busy}) WHERE pid = {A}}, '2|2|t' ] ],
	},

	# Equal OIDs in two databases are two tables.
	{
		name => 'same-oid-two-databases',
		sessions => { map { $_ => { database => /A$/ ? 'twin_a' : 'twin_b' } } qw(XA YA XB YB) },
		steps => q{
			0.0 XA: begin; lock table account in access exclusive mode
			0.0 XB: begin; select * from account
			0.5 YA: select count(*) from account                     -- waits
			1.0 YB: begin; lock table account in access exclusive mode   -- waits
			1.5 tree: XA, .YA hard, XB, .YB hard
			2.5 XA: commit
			2.5 XB: commit
		},
		waits => q{
			YA | AccessShareLock     | relation account | hard XA | soft - | root XA | granted | 1.9-2.2
			YB | AccessExclusiveLock | relation account | hard XB | soft - | root XB | granted | 1.4-1.7
		},
		ask => [ [ 'each in its database, under the same OID',
			q{SELECT string_agg(datname || ' ' || object_datname || ' ' || object, ', ' ORDER BY datname), count(DISTINCT relation) FROM lock_history.waits WHERE pid IN ({YA}, {YB})},
			'twin_a twin_a account, twin_b twin_b account|1' ] ],
	},

	# What is locked, when it is no table.
	{
		name => 'name-of-a-role',
		setup => 'create role plh_gone; create table t (i int)',
		steps => q{
			0.0 A: begin; drop role plh_gone
			0.5 B: grant select on t to plh_gone                     -- waits
			1.5 A: commit
		},
		waits => q{
			B | AccessShareLock | object role plh_gone | hard A | soft - | root A | granted | 0.9-1.1
		},
		ask => [ [ 'a shared object: database 0', q{SELECT database, classid::regclass FROM lock_history.waits WHERE pid = {B}}, '0|pg_authid' ] ],
	},
	{
		name => 'name-of-a-schema',
		setup => 'create schema s9',
		steps => q{
			0.0 A: begin; create table s9.x ()
			0.5 B: drop schema s9 cascade                            -- waits
			1.5 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | object schema s9 | hard A | soft - | root A | granted | 0.9-1.1
		},
	},
	{
		name => 'name-of-a-type',
		setup => q{create type colour as enum ('red')},
		steps => q{
			0.0 A: begin; drop type colour
			0.5 B: drop type colour                                  -- waits
			1.5 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | object type colour | hard A | soft - | root A | granted | 0.9-1.1
		},
	},
	{
		name => 'name-of-a-sequence',
		setup => 'create sequence sq',
		steps => q{
			0.0 A: begin; alter sequence sq restart
			0.5 B: select nextval('sq')                              -- waits
			1.5 A: commit
		},
		waits => q{
			B | RowExclusiveLock | relation sq | hard A | soft - | root A | granted | 0.9-1.1
		},
	},
	{
		name => 'row-of-a-catalog',
		setup => 'create role plh_limited',
		steps => q{
			0.0 A: begin; alter role plh_limited connection limit 3
			0.5 B: alter role plh_limited connection limit 4         -- waits
			1.5 A: commit
		},
		waits => q{
			B | ShareLock | transactionid A | hard A | soft - | root A | granted | 0.9-1.1 | *
		},
		ask => [ [ 'a row of a shared catalog', q{SELECT database, relation::regclass, page IS NOT NULL, tuple IS NOT NULL, object_datname IS NULL FROM lock_history.waits WHERE pid = {B}}, '0|pg_authid|t|t|t' ] ],
	},

	# Two clean the pending list of one index: a lock on a page.
	{
		name => 'gin-page-lock',
		setup => q{create table g (a int[]); create index gi on g using gin (a) with (fastupdate = on, gin_pending_list_limit = 1000000);
			insert into g select array(select (random() * 1e7)::int from generate_series(1, 20)) from generate_series(1, 30000);},
		steps => q{
			0.0 A: set maintenance_work_mem = '1MB'
			0.0 B: set maintenance_work_mem = '1MB'
			0.1 A: select gin_clean_pending_list('gi')               -- runs
			0.1 B: do $$ begin for i in 1 .. 5000 loop exit when exists (select from pg_locks where locktype = 'page'); perform pg_sleep(0.001); end loop; end $$; select gin_clean_pending_list('gi')   -- runs
		},
		waits => q{
			B | ExclusiveLock | page page 0 of gi | hard A | soft - | root A | granted | 0.05-8
		},
	},

	# An insert that is not yet sure of its key: the first one has its entry in the
	# index on k, and is kept in the next index by what that calls.
	{
		name => 'speculative-token',
		setup => q{create function slow(k text) returns text immutable language plpgsql as $$ begin
				perform pg_advisory_lock_shared(9191); perform pg_advisory_unlock_shared(9191); return k; end $$;
			create table kv (k text); create unique index on kv (k); create index on kv (slow(k));},
		steps => q{
			0.0 S: select pg_advisory_lock(9191)
			0.2 A: insert into kv values ('a') on conflict (k) do nothing   -- waits
			0.4 B: insert into kv values ('a') on conflict (k) do nothing   -- waits
			0.6 tree: S, .A hard, ..B hard
			0.8 S: select pg_advisory_unlock(9191)
		},
		waits => q{
			A  | ShareLock | advisory advisory 9191 | hard S | soft - | root S | granted | 0.5-0.7
			B+ | ShareLock | spectoken speculative token 1 of transaction X (pid A) | hard A | soft - | root S | granted | 0.3-0.5
		},
	},

	# Bulk loads stand in line to make one table longer.
	{
		name => 'relation-extension-lock',
		setup => 'create unlogged table load (id int, t text)',
		steps => join("\n", map { "0.0 $_: " . join('; ', ("insert into load select g, repeat('x', 500) from generate_series(1, 2000) g") x 8) . ' -- runs' } 'A' .. 'F'),
		waits => join("\n", map { "$_* | ExclusiveLock | extend extension of load | hard * | soft * | root * | granted | 0-2" } 'A' .. 'F'),
		ask => [ [ 'one extends, and nobody goes in a circle',
			q{SELECT max(hard_blocker_count), bool_or(in_cycle) FROM lock_history.waits WHERE pid IN ({A}, {B}, {C}, {D}, {E}, {F})}, '1|f' ] ],
	},
);

$node->stop;
done_testing();
