# Incidents around locks on tables, and their queues: who holds, who only
# stands ahead, who is at the bottom of it. See LockHistory/Cases.pm for how a
# case is written; all run at the same time.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory::Cases;
use Test::More;

my $node = LockHistory::Cases::cluster('tables');

LockHistory::Cases::run($node,

	# A short ALTER behind a long read; then everybody behind the ALTER.
	# D does not stand behind C: their modes go together.
	{
		name => 'alter-queue-soft',
		setup => 'create table orders (id int primary key, n int); insert into orders select g, 0 from generate_series(1, 10) g;',
		steps => q{
			0.0 A: begin; select count(*) from orders
			0.5 B: alter table orders add column note text           -- waits
			1.0 C: select count(*) from orders                       -- waits
			1.5 D: insert into orders (id, n) values (11, 1)         -- waits
			2.0 tree: A, .B hard, ..C soft, ..D soft
			3.0 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation orders | hard A | soft - | root A | granted | 2.4-2.6
			C | AccessShareLock     | relation orders | hard - | soft B | root A | granted | 1.9-2.2
			D | RowExclusiveLock    | relation orders | hard - | soft B | root A | granted | 1.4-1.7
		},
		ask => [ [ 'the root is idle in transaction',
			q{SELECT state FROM lock_history.root_blockers WHERE pid = {A}}, 'idle in transaction' ] ],
	},

	# Ending one of two holders frees nobody; the wait stays one wait.
	{
		name => 'two-holders-one-leaves',
		setup => 'create table stock (id int primary key, n int)',
		steps => q{
			0.0 A: begin; select count(*) from stock
			0.2 C: begin; select count(*) from stock
			0.5 B: alter table stock add column note text            -- waits
			1.0 tree: A, .B hard, C, .B hard
			1.5 A: commit
			2.0 tree: C, .B hard
			2.5 C: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation stock | hard A C | soft - | root A C | granted | 1.9-2.2
		},
		ask => [ [ 'each for its time',
			q{SELECT string_agg('pid ' || b.blocker_pid || ' ' || round(extract(epoch FROM b.last_seen - b.first_seen), 0), ', ' ORDER BY b.last_seen)
			  FROM lock_history.blocking AS b WHERE b.pid = {B}}, 'pid A 1, pid C 2' ] ],
	},

	# The root is idle, and what it did last is not what took the lock.
	{
		name => 'idle-in-tx-root',
		setup => 'create table ledger (id int primary key); insert into ledger values (1);',
		steps => q{
			0.0 A: begin; lock table ledger; select 1; select now()
			0.5 B: select * from ledger                              -- waits
			2.5 A: commit
		},
		waits => q{
			B | AccessShareLock | relation ledger | hard A | soft - | root A | granted | 1.9-2.2
		},
		ask => [ [ 'the root as it was: idle for as long as its transaction is old, last statement told',
			q{SELECT r.state, btrim(r.query, ' ;'), round(extract(epoch FROM w.wait_start - r.xact_start), 1), round(extract(epoch FROM w.wait_start - r.state_change), 1)
			  FROM lock_history.root_blockers AS r, lock_history.waits AS w WHERE r.pid = {A} AND w.pid = {B}},
			'idle in transaction|select now()|0.5|0.5' ] ],
	},

	# A dump's locks: the statement shown for the root is about another table.
	{
		name => 'pg-dump-share',
		setup => 'create table big_one (id int); create table small_one (id int);',
		steps => q{
			0.0 A: begin isolation level repeatable read read only; lock table big_one, small_one in access share mode; select count(*) from small_one
			0.5 B: truncate big_one                                  -- waits
			1.0 C: select 1 from big_one                             -- waits
			2.5 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation big_one | hard A | soft - | root A | granted | 1.9-2.2
			C | AccessShareLock     | relation big_one | hard - | soft B | root A | granted | 1.4-1.7
		},
		ask => [ [ 'the last statement of the root',
			q{SELECT btrim(query, ' ;') FROM lock_history.root_blockers WHERE pid = {A}}, 'select count(*) from small_one' ] ],
	},

	# TRUNCATE CASCADE has one table and waits for the next: waiter and holder at once.
	{
		name => 'truncate-cascade',
		setup => 'create table parent (id int primary key); create table child (p int references parent); insert into parent values (1); insert into child values (1);',
		steps => q{
			0.0 A: begin; select * from child
			0.5 B: truncate parent cascade                           -- waits
			1.0 C: select * from parent                              -- waits
			1.5 D: insert into child values (1)                      -- waits
			2.0 tree: A, .B hard, ..C hard, ..D soft
			3.0 A: commit
		},
		waits => q{
			B  | AccessExclusiveLock | relation child  | hard A | soft - | root A | granted | 2.4-2.7
			C  | AccessShareLock     | relation parent | hard B | soft - | root A | granted | 1.9-2.2
			D+ | RowExclusiveLock    | relation child  | hard - | soft B | root A | granted | 1.4-1.7
		},
	},

	# A foreign key waits for the table that is not in its ALTER TABLE.
	{
		name => 'add-fk-parent',
		setup => 'create table parent (id int primary key); create table child (p int); insert into parent values (1); insert into child values (1);',
		steps => q{
			0.0 A: begin; update parent set id = id
			0.5 B: alter table child add constraint fk foreign key (p) references parent   -- waits
			1.0 C: select 1 from child
			1.5 D: update parent set id = id                         -- waits
			2.5 A: commit
		},
		waits => q{
			B  | ShareRowExclusiveLock | relation parent | hard A | soft - | root A | granted | 1.9-2.2
			D+ | RowExclusiveLock      | relation parent | hard - | soft B | root A | granted | 0.9-1.2
		},
	},

	# Planning a query locks every index.
	{
		name => 'reindex-index-object',
		setup => 'create table item (id int primary key, v int); insert into item select g, 0 from generate_series(1, 10) g;',
		steps => q{
			0.0 A: begin; reindex index item_pkey
			0.5 B: select v from item where v = 3                    -- waits
			1.0 C: insert into item values (500, 1)                  -- waits
			2.5 A: commit
		},
		waits => q{
			B | AccessShareLock  | relation item_pkey | hard A | soft - | root A | granted | 1.9-2.2
			C | RowExclusiveLock | relation item      | hard A | soft - | root A | granted | 1.4-1.7
		},
	},

	# Dropping a partition waits for the parent.
	{
		name => 'partition-drop-parent',
		setup => q{create table reading (k int, v int) partition by range (k);
			create table reading_0 partition of reading for values from (0) to (10);
			create table reading_1 partition of reading for values from (10) to (20);
			insert into reading values (1, 1), (11, 1);},
		steps => q{
			0.0 A: begin; select count(*) from reading where k = 1
			0.5 B: drop table reading_1                              -- waits
			1.0 C: insert into reading values (2, 2)                 -- waits
			1.2 D: select * from reading_0 limit 1
			2.5 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation reading | hard A | soft - | root A | granted | 1.9-2.2
			C | RowExclusiveLock    | relation reading | hard - | soft B | root A | granted | 1.4-1.7
		},
	},

	# In one queue, not everybody ahead is in the way.
	{
		name => 'refresh-matview-pileup',
		setup => 'create table src (id int primary key); create materialized view mv as select id from src; create unique index on mv (id);',
		steps => q{
			0.0 A: begin; refresh materialized view concurrently mv
			0.5 B: refresh materialized view concurrently mv         -- waits
			0.8 E: select count(*) from mv
			1.0 D: refresh materialized view mv                      -- waits
			1.5 C: select count(*) from mv                           -- waits
			2.0 tree: A, .B hard, .D hard, ..C soft
			3.0 A: commit
		},
		waits => q{
			B | ExclusiveLock       | relation mv | hard A | soft - | root A | granted | 2.4-2.7
			D | AccessExclusiveLock | relation mv | hard A (B) | soft B | root A (B) | granted | 1.9-2.4
			C | AccessShareLock     | relation mv | hard - (D) | soft D | root A (B D) | granted | 1.4-1.9
		},
	},

	# The name that the table had while it was waited for.
	{
		name => 'drop-table-name-kept',
		setup => 'create table doomed (id int); create table old_name (id int);',
		steps => q{
			0.0 A: begin; drop table doomed
			0.5 B: select * from doomed                              -- waits
			2.0 A: commit
			3.0 A: begin; alter table old_name rename to new_name
			3.5 B: select * from old_name                            -- waits
			5.0 A: commit
		},
		waits => q{
			B | AccessShareLock | relation doomed   | hard A | soft - | root A | granted | 1.4-1.7
			B | AccessShareLock | relation old_name | hard A | soft - | root A | granted | 1.4-1.7
		},
	},

	# Tries with a short timeout: never granted, and C is freed by a B that gives up.
	{
		name => 'lock-timeout-migration',
		setup => 'create table orders (id int primary key)',
		steps => q{
			0.0 A: begin; select count(*) from orders
			0.4 B: set lock_timeout = '300ms'
			0.5 B: alter table orders add column c int               -- waits
			0.6 C: select count(*) from orders                       -- runs
			1.0 B: alter table orders add column c int               -- runs
			1.5 B: alter table orders add column c int               -- runs
			2.5 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation orders | hard A | soft - | root A | lock_timeout | 0.28-0.40
			C | AccessShareLock     | relation orders | hard - | soft B | root A | granted      | 0.15-0.25
			B | AccessExclusiveLock | relation orders | hard A | soft - | root A | lock_timeout | 0.28-0.40
			B | AccessExclusiveLock | relation orders | hard A | soft - | root A | lock_timeout | 0.28-0.40
		},
	},

	# The wait begins in the middle of a statement, and one statement waits twice.
	{
		name => 'wait-start-not-query-start',
		setup => 'create table one (id int); create table two (id int);',
		steps => q{
			0.0 A: begin; lock table one
			0.5 B: do $$ begin perform pg_sleep(1.5); lock table one in access share mode; end $$   -- waits
			3.0 A: commit
			4.0 A: begin; lock table one
			4.1 C: begin; lock table two
			4.5 B: begin; lock table one, two in access share mode   -- waits
			5.5 A: commit
			6.5 C: commit
			6.6 B: commit
		},
		waits => q{
			B | AccessShareLock | relation one | hard A | soft - | root A | granted | 0.9-1.15
			B | AccessShareLock | relation one | hard A | soft - | root A | granted | 0.9-1.1
			B | AccessShareLock | relation two | hard C | soft - | root C | granted | 0.9-1.1
		},
		ask => [ [ 'two waits of one statement', q{SELECT count(DISTINCT query_start) FROM lock_history.waits WHERE pid = {B}}, '2' ] ],
	},

	# Waits that end by a timeout, a cancel or a kill are no grants; the death of the blocker is one.
	{
		name => 'cancel-terminate-waiter',
		setup => 'create table orders (id int)',
		steps => q{
			0.0 A: begin; lock table orders
			0.1 B: set statement_timeout = '400ms'
			0.2 B: select * from orders limit 0                      -- waits
			0.9 B: set statement_timeout = 0
			1.0 B: select * from orders limit 0                      -- waits
			1.5 S: select pg_cancel_backend({B})
			2.0 B: select * from orders limit 0                      -- waits
			2.5 S: select pg_terminate_backend({B})
			3.0 C: select count(*) from orders                       -- waits
			3.5 S: select pg_terminate_backend({A})
		},
		waits => q{
			B | AccessShareLock | relation orders | hard A | soft - | root A | statement_timeout | 0.38-0.45
			B | AccessShareLock | relation orders | hard A | soft - | root A | cancelled         | 0.45-0.6
			B | AccessShareLock | relation orders | hard A | soft - | root A | terminated        | 0.45-0.6
			C | AccessShareLock | relation orders | hard A | soft - | root A | granted           | 0.45-0.6
		},
	},

	# The same end of the blocker, by its own timeout.
	{
		name => 'blocker-times-out',
		setup => 'create table orders (id int)',
		steps => q{
			0.0 A: set idle_in_transaction_session_timeout = '1s'; begin; lock table orders
			0.5 C: select count(*) from orders                       -- waits
		},
		waits => q{
			C | AccessShareLock | relation orders | hard A | soft - | root A | granted | 0.4-0.6
		},
	},

	# The blocker's client goes away: that lets the waiter on, and who it was stays told.
	{
		name => 'blocker-leaves',
		setup => 'create table orders (id int)',
		steps => q{
			0.0 A: begin; lock table orders; select 1 as last
			0.5 B: select count(*) from orders                       -- waits
			1.0 quit A:
			1.1 done B:
		},
		waits => q{
			B | AccessShareLock | relation orders | hard A | soft - | root A | granted | 0.45-0.6
		},
		ask => [ [ 'who it was', q{SELECT application_name, state, query FROM lock_history.root_blockers WHERE pid = {A}}, 'blocker-leaves A|idle in transaction| select 1 as last' ] ],
	},

	# The waiter's client goes away. The server finds out only when it looks: B is
	# ended, D waits on for nobody and is granted the lock.
	{
		name => 'waiter-leaves',
		setup => 'create table orders (id int)',
		sessions => { B => { client_connection_check_interval => '50ms' } },
		steps => q{
			0.0 A: begin; lock table orders
			0.5 B: select count(*) from orders                       -- waits
			0.6 D: select count(*) from orders                       -- waits
			1.0 quit B:
			1.0 quit D:
			1.5 tree: A, .D hard
			2.0 A: commit
		},
		waits => q{
			B | AccessShareLock | relation orders | hard A | soft - | root A | terminated | 0.45-0.6
			D | AccessShareLock | relation orders | hard A | soft - | root A | granted    | 1.35-1.5
		},
	},

	# One connection of a pool, two transactions of two clients: each wait is told with
	# the one that was in its way, and with its own.
	{
		name => 'pooled-connections',
		setup => 'create table orders (id int)',
		steps => q{
			0.0 A: set application_name = 'first client'; begin; lock table orders
			0.3 C: set application_name = 'third client'; begin; select count(*) from orders   -- waits
			0.8 A: commit
			0.9 C: commit; set application_name = 'fourth client'
			1.0 A: set application_name = 'second client'; begin; lock table orders; select 2
			1.3 C: begin; select count(*) from orders                -- waits
			1.8 A: commit
			1.9 C: commit
		},
		waits => q{
			C | AccessShareLock | relation orders | hard A | soft - | root A | granted | 0.45-0.6
			C | AccessShareLock | relation orders | hard A | soft - | root A | granted | 0.45-0.6
		},
		ask => [ [ 'who waited for whom', q{SELECT string_agg(concat_ws(' ', w.application_name, 'for', b.blocker_application_name, w.xact_start BETWEEN w.wait_start - interval '0.2 s' AND w.wait_start,
				b.blocker_xact_start BETWEEN w.wait_start - interval '0.5 s' AND w.wait_start - interval '0.2 s'), ', ' ORDER BY w.wait_start)
			  FROM lock_history.waits AS w JOIN lock_history.blocking AS b USING (wait_id) WHERE w.pid = {C}},
			'third client for first client t t, fourth client for second client t t' ],
			[ 'the blocker is one session, told as it was last', q{SELECT application_name, sessions_blocked, round(extract(epoch FROM blocked_time), 0) FROM lock_history.root_blockers WHERE pid = {A}}, 'second client|1|1' ] ],
	},

	# Nobody blocks itself.
	{
		name => 'no-self-edge',
		setup => 'create table stock (id int)',
		steps => q{
			0.0 A: begin; select count(*) from stock
			0.2 B: begin; select count(*) from stock
			0.5 A: lock table stock in access exclusive mode         -- waits
			1.0 tree: B, .A hard
			2.0 B: commit
			2.5 A: commit
		},
		waits => q{
			A | AccessExclusiveLock | relation stock | hard B | soft - | root B | granted | 1.4-1.6
		},
	},

	# Twenty short waits for one lock are twenty.
	{
		name => 'twenty-short-waits',
		setup => 'create table sw (id int)',
		steps => join("\n", map { my $t = 0.35 * $_;
			"$t A: begin; lock table sw", ($t + 0.05) . " B: select count(*) from sw   -- waits", ($t + 0.2) . " A: commit", ($t + 0.25) . " done B:" } 0 .. 19),
		waits => join("\n", ("B | AccessShareLock | relation sw | hard A | soft - | root A | granted | 0.13-0.17") x 20),
	},

	# What does not wait is no wait.
	{
		name => 'no-wait-no-episode',
		setup => 'create table job (id int primary key); insert into job select g from generate_series(1, 5) g;',
		steps => q{
			0.0 A: begin; select * from job where id = 1 for update; select pg_advisory_lock(5)
			0.2 B: } . join('; ', ('select * from job where id = 1 for update nowait', 'select id from job for update skip locked limit 1',
			'select pg_try_advisory_lock(5)', 'vacuum (skip_locked) job') x 100) . q{
			0.3 A: rollback; select pg_advisory_unlock_all()
		},
	},

	# Identifiers of statements: none while a query waits to be parsed, and never the one before.
	{
		name => 'queryid-null-while-waiting',
		setup => q{create table orders (id int); create table hot (id int primary key, v int); insert into hot values (1, 0);
			create function bump() returns void language plpgsql as $$ begin update hot set v = v + 1 where id = 1; end $$;},
		steps => q{
			0.0 A: begin; lock table orders; update hot set v = 1
			0.3 B: select 1 as before
			0.5 B: select count(*) from orders                       -- waits
			0.8 C: alter table orders add column z int               -- waits
			1.0 D: update hot set v = v + 1 where id = 1             -- waits
			1.1 E: select bump()                                     -- waits
			2.0 A: commit
		},
		waits => q{
			B  | AccessShareLock     | relation orders | hard A | soft - | root A | granted | 1.4-1.7
			C  | AccessExclusiveLock | relation orders | hard A | soft B | root A | granted | 1.1-1.4
			D  | ShareLock           | transactionid A | hard A | soft - | root A | granted | 0.9-1.2 | hot (0,1)
			E+ | ExclusiveLock       | tuple tuple (0,1) of hot    | hard D | soft - | root A | granted | 0.8-1.1
		},
		ask => [ [ 'statements, and whether they have an identifier',
			q{SELECT string_agg(query || ': ' || (query_id IS NOT NULL), ', ' ORDER BY wait_start) FROM
			  (SELECT DISTINCT ON (pid) query, query_id, wait_start FROM lock_history.waits WHERE pid IN ({B}, {C}, {D}, {E}) ORDER BY pid, wait_start) AS w},
			'select count(*) from orders: false, alter table orders add column z int: true, update hot set v = v + 1 where id = 1: true, select bump(): true' ] ],
	},

	# Reading the history meanwhile stands behind nobody.
	{
		name => 'monitor-blocked-by-user-lock',
		setup => 'create table orders (id int)',
		steps => q{
			0.0 A: begin; select * from orders
			0.5 B: begin; alter table orders add column c int        -- waits
			1.0 M: select count(object) from lock_history.waits; select count(*) from lock_history.blocking; select count(*) from lock_history.root_blockers; select count(*) from lock_history.blocking_tree_at(now()); select count(*) from lock_history.short_waits
			2.0 A: commit
			2.3 M: select count(object) from lock_history.waits; select count(*) from lock_history.blocking; select count(*) from lock_history.blocking_tree_at(now())
			2.4 B: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation orders | hard A | soft - | root A | granted | 1.4-1.7
		},
	},
);

is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_history.waits WHERE application_name IN ('eye') OR backend_type = 'pg_lock_history'
	OR usename IS NULL}), '0', 'neither the observer nor the worker ever waited');

$node->stop;
done_testing();
