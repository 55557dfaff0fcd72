# Incidents around rows, keys and deadlocks: the queue on one row, waits without
# a table, circles and those who merely stand behind them. See
# LockHistory/Cases.pm for how a case is written; all run at the same time.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory::Cases;
use Test::More;

my $node = LockHistory::Cases::cluster('rows');

my $accounts = 'create table account (id int primary key, v int); insert into account select g, 0 from generate_series(1, 10) g;';

LockHistory::Cases::run($node,

	# The first waits for the transaction and holds the row's place, the others for the row.
	{
		name => 'hot-row-chain',
		setup => $accounts,
		steps => q{
			0.0 A: begin; update account set v = v + 1 where id = 1
			0.3 B: update account set v = v + 1 where id = 1         -- waits
			0.6 C: update account set v = v + 1 where id = 1         -- waits
			0.9 D: update account set v = v + 1 where id = 1         -- waits
			1.2 E: select * from account where id = 1 for update     -- waits
			1.5 tree: A, .B hard, ..C hard, ..D hard, ..E hard
			1.6 note busy:
			2.0 A: commit
		},
		waits => q{
			B+ | ShareLock           | transactionid A | hard A | soft -   | root A | granted | 1.6-1.8 | account (0,1)
			C+ | ExclusiveLock       | tuple tuple (0,1) of account   | hard B | soft -   | root A | granted | 1.3-1.5
			D+ | ExclusiveLock       | tuple tuple (0,1) of account   | hard B (C) | soft C   | root A (B C) | granted | 1.0-1.2
			E+ | AccessExclusiveLock | tuple tuple (0,1) of account   | hard B (C D) | soft C D | root A (B C D) | granted | 0.7-0.9
		},
		ask => [ [ 'four are blocked, by one',
			q{SELECT count(*), count(DISTINCT root_pid) FROM lock_history.blocking_tree_at({busy}) WHERE mode IS NOT NULL AND root_pid = {A}}, '4|1' ] ],
	},

	# A strong lock on a tuple is no lock on the table.
	{
		name => 'select-for-update-tuple-ael',
		setup => $accounts,
		steps => q{
			0.0 A: begin; select * from account where id = 2 for update
			0.5 B: select * from account where id = 2 for update     -- waits
			1.0 C: select * from account where id = 2 for update     -- waits
			1.2 D: select count(*) from account
			2.5 A: commit
		},
		waits => q{
			B+ | ShareLock           | transactionid A | hard A | soft - | root A | granted | 1.9-2.2 | account (0,2)
			C+ | AccessExclusiveLock | tuple tuple (0,2) of account | hard B | soft - | root A | granted | 1.4-1.7
		},
		ask => [ [ 'nothing is said to have locked the table',
			q{SELECT count(*) FROM lock_history.waits WHERE relation = 'case_select_for_update_tuple_ael.account'::regclass AND locktype = 'relation'}, '0' ] ],
	},

	# The wait is in the COMMIT: a deferred check of a foreign key.
	{
		name => 'deferred-fk-commit',
		setup => q{create table parent (id int primary key, v int); insert into parent values (1, 0);
			create table child (id int primary key, p int references parent deferrable initially deferred);},
		steps => q{
			0.0 A: begin; select * from parent where id = 1 for update
			0.5 B: begin; insert into child values (1, 1); commit    -- waits
			1.0 C: begin; insert into child values (2, 1); commit    -- waits
			2.5 A: commit
		},
		waits => q{
			B | ShareLock | transactionid A | hard A | soft - | root A | granted | 1.9-2.2 | parent (0,1)
			C | ShareLock | transactionid A | hard A | soft - | root A | granted | 1.4-1.7 | parent (0,1)
		},
		ask => [ [ 'the statement', q{SELECT string_agg(DISTINCT btrim(query, ' ;'), ',') FROM lock_history.waits WHERE pid IN ({B}, {C})}, 'commit' ] ],
	},

	# The same without touching the key: no wait.
	{
		name => 'deferred-fk-no-key-change',
		setup => q{create table parent (id int primary key, v int); insert into parent values (1, 0);
			create table child (id int primary key, p int references parent deferrable initially deferred);},
		steps => q{
			0.0 A: begin; update parent set v = 1 where id = 1
			0.3 B: begin; insert into child values (1, 1); commit
			0.5 A: commit
		},
	},

	# A duplicate key: a wait with no table, and none is guessed.
	{
		name => 'unique-insert-no-relation',
		setup => $accounts,
		steps => q{
			0.0 A: begin; insert into account values (100, 0)
			0.5 B: insert into account values (100, 0)               -- waits
			2.0 A: commit
			3.0 A: begin; create table fresh (id int)
			3.5 B: create table fresh (id int)                       -- waits
			4.5 A: commit
		},
		waits => q{
			B | ShareLock | transactionid A | hard A | soft - | root A | granted | 1.4-1.7
			B | ShareLock | transactionid A | hard A | soft - | root A | granted | 0.9-1.2
		},
		ask => [ [ 'no relation is told', q{SELECT count(*), count(relation), count(page), count(tuple) FROM lock_history.waits WHERE pid = {B}}, '2|0|0|0' ] ],
	},

	# A deadlock of two, and somebody who has nothing to do with it.
	{
		name => 'deadlock-two-outsider',
		setup => $accounts,
		steps => q{
			0.0 A: begin; update account set v = 1 where id = 1
			0.0 B: begin; update account set v = 1 where id = 2
			0.5 A: update account set v = 2 where id = 2             -- waits
			1.1 B: update account set v = 2 where id = 1             -- waits
			1.3 C: update account set v = 9 where id = 1             -- waits
			1.4 note circle:
			2.0 tree: B, .C hard
			3.0 B: commit
			3.1 A: rollback
		},
		waits => q{
			A | ShareLock     | transactionid B | hard B | soft - | root B | deadlock | 0.95-1.1 | account (0,2)
			B | ShareLock     | transactionid A | hard A | soft - | root - (B) | granted | 0.3-0.5 | account (0,1)
			C | ExclusiveLock | tuple tuple (0,1) of account   | hard B | soft - | root - (B) | granted  | 0.15-0.3
			C | ShareLock     | transactionid B | hard B | soft - | root B | granted  | 1.4-1.6 | account (0,1)
		},
		deadlock => 'A of A B',
		ask => [ [ 'while the circle is closed its members are marked, and the tree has an end',
			q{SELECT string_agg(DISTINCT 'pid ' || pid || ' ' || in_cycle, ', ' ORDER BY 'pid ' || pid || ' ' || in_cycle) FROM lock_history.blocking_tree_at({circle}) WHERE pid IN ({A}, {B}, {C})},
			'pid A true, pid B true, pid C false' ] ],
	},

	# Who closes the circle after the other's second is up is the victim.
	{
		name => 'deadlock-late-closer',
		setup => $accounts,
		steps => q{
			0.0 A: begin; update account set v = 1 where id = 1
			0.0 B: begin; update account set v = 1 where id = 2
			0.2 A: update account set v = 2 where id = 2             -- waits
			1.5 B: update account set v = 2 where id = 1             -- waits
			2.7 B: rollback
			2.8 A: commit
		},
		waits => q{
			A | ShareLock | transactionid B | hard B | soft - | root B | granted  | 2.2-2.6 | account (0,2)
			B | ShareLock | transactionid A | hard A | soft - | root - | deadlock | 0.95-1.1 | account (0,1)
		},
		deadlock => 'B of A B',
	},

	# Three: one falls, one goes on, one still waits.
	{
		name => 'deadlock-three-way',
		setup => $accounts,
		steps => q{
			0.0 A: begin; update account set v = 1 where id = 1
			0.0 B: begin; update account set v = 1 where id = 2
			0.0 C: begin; update account set v = 1 where id = 3
			0.5 A: update account set v = 2 where id = 2             -- waits
			0.75 B: update account set v = 2 where id = 3            -- waits
			1.0 C: update account set v = 2 where id = 1             -- waits
			1.3 note circle:
			1.9 tree: C, .B hard
			2.0 A: rollback
			2.5 C: commit
			3.0 B: commit
		},
		waits => q{
			A | ShareLock | transactionid B | hard B | soft - | root B C | deadlock | 0.95-1.1 | account (0,2)
			C | ShareLock | transactionid A | hard A | soft - | root - | granted  | 0.4-0.6 | account (0,1)
			B | ShareLock | transactionid C | hard C | soft - | root C (A) | granted | 1.65-1.85 | account (0,3)
		},
		deadlock => 'A of A B C',
		ask => [ [ 'all three are in the circle',
			q{SELECT count(DISTINCT pid) FROM lock_history.blocking_tree_at({circle}) WHERE pid IN ({A}, {B}, {C}) AND in_cycle}, '3' ] ],
	},

	# A failure that nobody hears of: caught in a block of PL/pgSQL.
	{
		name => 'caught-in-a-block',
		setup => 'create table ledger (id int)',
		steps => q{
			0.0 A: begin; lock table ledger
			0.2 B: do $$ begin set local lock_timeout = '300ms'; lock table ledger; exception when lock_not_available then null; end $$   -- waits
			0.4 done B:
			0.8 A: commit
		},
		waits => q{
			B | AccessExclusiveLock | relation ledger | hard A | soft - | root A | lock_timeout | 0.28-0.40
		},
	},

	# The lock of a subtransaction belongs to its session.
	{
		name => 'subtransaction-holds',
		setup => $accounts,
		steps => q{
			0.0 A: begin; savepoint s; update account set v = 1 where id = 4; release s; savepoint t; update account set v = 1 where id = 5
			0.3 B: update account set v = 2 where id = 4             -- waits
			0.4 C: update account set v = 2 where id = 5             -- waits
			1.0 A: rollback to t
			1.5 A: commit
		},
		waits => q{
			B | ShareLock | transactionid A | hard A | soft - | root A | granted | 1.1-1.3 | account (0,4)
			C | ShareLock | transactionid A | hard A | soft - | root A | granted | 0.5-0.7 | account (0,5)
		},
	},
);

$node->stop;
done_testing();
