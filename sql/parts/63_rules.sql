-- What to do about it: a book of rules, one a row.
--
-- A rule is a condition on the facts of explain_json(), as a path whose every
-- match is one piece of evidence; an advice; and the evidence in words.  Both are
-- templates, into which the fields of the match are put.  An advice is given
-- where the path matches and nowhere else, so a rule asks for all that makes its
-- advice right: also how much time it is about.
--
-- The owner of the extension may add rules; they go into dumps.

CREATE TABLE lock_history.rule (
    rule       text PRIMARY KEY,
    place      integer NOT NULL,       -- order in which advices are given
    condition  jsonpath NOT NULL,
    advice     text NOT NULL,
    evidence   text NOT NULL,
    source     text NOT NULL,
    is_own     boolean NOT NULL DEFAULT true -- not of the extension
);
SELECT pg_catalog.pg_extension_config_dump('lock_history.rule', 'WHERE is_own');
COMMENT ON TABLE lock_history.rule IS 'internal: the rules of explain(); the owner may add some';

CREATE VIEW lock_history.rules AS
SELECT r.rule, r.place, r.condition::text AS condition, r.advice, r.evidence, r.source, r.is_own
FROM lock_history.rule AS r
ORDER BY r.place, r.rule;

GRANT SELECT ON lock_history.rules TO pg_monitor;
COMMENT ON VIEW lock_history.rules IS 'The rules by which explain() gives advice';
COMMENT ON COLUMN lock_history.rules.rule IS 'name of the rule, as in the advice';
COMMENT ON COLUMN lock_history.rules.place IS 'order in which advices are given';
COMMENT ON COLUMN lock_history.rules.condition IS 'path in the facts of explain_json(): each match is one piece of evidence';
COMMENT ON COLUMN lock_history.rules.advice IS 'what to do; {name} is that field of the match';
COMMENT ON COLUMN lock_history.rules.evidence IS 'what the history has seen that makes it right';
COMMENT ON COLUMN lock_history.rules.source IS 'where it is documented';
COMMENT ON COLUMN lock_history.rules.is_own IS 'whether it was added here; false: comes with the extension';

INSERT INTO lock_history.rule (rule, place, condition, advice, evidence, source, is_own)
SELECT v.rule, v.place, v.condition::jsonpath, v.advice, v.evidence, v.source, false
FROM (VALUES
-- blockers
('idle_in_transaction', 10,
 '$.waits.roots[*] ? (@.state starts with "idle in transaction" && @.state_s >= 1 && @.blocked_s >= 1)',
 'Let no session sit idle in a transaction: COMMIT or ROLLBACK before the application turns to something else. As a net, idle_in_transaction_session_timeout for such a role ends the session, and with it the transaction.',
 '{who} was idle in its transaction for {state_s} while {sessions session} waited {blocked_s} behind it',
 'PostgreSQL documentation: Client Connection Defaults, idle_in_transaction_session_timeout'),
('ddl_lock_timeout', 20,
 '$.waits.roots[*].queue[*] ? (@.locktype == "relation" && (@.mode == "AccessExclusiveLock" || @.mode == "ExclusiveLock" || @.mode == "ShareRowExclusiveLock" || @.mode == "ShareLock") && @.behind_queue_only >= 1 && @.behind_s >= 1 && @.waited_s >= 1 && !(@.outcome == "lock_timeout"))',
 'Run such statements with a short lock_timeout (SET lock_timeout = ''2s'') and try again: those behind it then wait no longer than that.',
 '{behind session} stood {behind_s} behind {who}, which itself waited {waited_s} for {mode} on {object}',
 'PostgreSQL documentation: Client Connection Defaults, lock_timeout; Explicit Locking'),
('dump_in_the_way', 30,
 '$.waits.roots[*] ? (@.application == "pg_dump" && @.queue.size() >= 1 && @.blocked_s >= 1)',
 'A dump keeps AccessShareLock on all it dumps to its end. Keep DDL, TRUNCATE and the like out of its hours, or dump from a standby.',
 '{who} held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: pg_dump, Notes; Explicit Locking'),
('long_transaction', 40,
 '$.waits.roots[*] ? (@.state == "active" && @.backend_type == "client backend" && @.xact_s >= 60 && @.blocked_s >= 10)',
 'Do the work in several shorter transactions: locks are kept to the end of each. statement_timeout bounds a single statement.',
 '{who} was {xact_s} into its transaction, and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: Explicit Locking; Client Connection Defaults, statement_timeout'),
('prepared_transaction', 50,
 '$.waits.roots[*] ? (exists(@.gid) && @.blocked_s >= 1)',
 'A prepared transaction keeps its locks until its transaction manager ends it, also over a restart: COMMIT PREPARED or ROLLBACK PREPARED, in its database ({database}). Watch pg_prepared_xacts for old ones; where nothing uses them set max_prepared_transactions = 0.',
 '{who} was {xact_s} old, and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: PREPARE TRANSACTION, Notes'),
('session_advisory_lock', 60,
 '$.waits.roots[*] ? (@.state == "idle" && !exists(@.xact_start) && @.blocked_s >= 1 && exists(@.held_on[*] ? (@ starts with "advisory")))',
 'Take pg_advisory_xact_lock() instead, which ends with its transaction. A session''s own lock outlives it, and behind a pooler that hands on connections by transaction it stays with a connection that nobody asked for it.',
 '{who} was idle, in no transaction, and held {held_on} while {sessions session} waited {blocked_s}',
 'PostgreSQL documentation: Explicit Locking, Advisory Locks'),
('autovacuum_wraparound', 70,
 '$.waits.roots[*] ? (@.backend_type == "autovacuum worker" && @.query like_regex "to prevent wraparound" && @.blocked_s >= 1)',
 'This kind of autovacuum does not give way: let it end before such DDL. VACUUM the table at a time of your own before it reaches autovacuum_freeze_max_age, or give autovacuum a larger cost limit, so that it is over sooner.',
 '{who} ran {query} and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: Routine Vacuuming, Preventing Transaction ID Wraparound Failures'),
('autovacuum_gives_way', 80,
 '$.waits.roots[*] ? (@.backend_type == "autovacuum worker" && !(@.query like_regex "to prevent wraparound") && !(@.query starts with "<insufficient") && @.blocked_s >= 0.5)',
 'Ordinary autovacuum is cancelled once somebody has waited for it for deadlock_timeout, and begins anew later. Where that happens again and again the table is never vacuumed (pg_stat_user_tables.last_autovacuum): take such locks less often, or VACUUM it in between.',
 '{who} ran {query} and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: Routine Vacuuming, The Autovacuum Daemon'),
('vacuum_truncate', 90,
 '$.waits.roots[*] ? (@.query like_regex "^\\s*(autovacuum: )?vacuum" flag "i" && !(@.query like_regex "\\mfull\\M" flag "i") && exists(@.held[*] ? (@ == "AccessExclusiveLock")) && @.blocked_s >= 0.2)',
 'VACUUM gives empty pages at the end of a table back under AccessExclusiveLock, in bites. Where that hurts: ALTER TABLE ... SET (vacuum_truncate = off), or VACUUM (TRUNCATE off).',
 '{who} held AccessExclusiveLock with {query}, and {waits wait} of {sessions session} took {blocked_s}',
 'PostgreSQL documentation: VACUUM, TRUNCATE; CREATE TABLE, vacuum_truncate'),
-- statements that have a gentler form
('create_index_concurrently', 100,
 '$.waits.roots[*] ? (@.query like_regex "^\\s*create\\s+(unique\\s+)?index" flag "i" && !(@.query like_regex "concurrently" flag "i") && exists(@.held[*] ? (@ == "ShareLock")) && @.blocked_s >= 1)',
 'CREATE INDEX CONCURRENTLY lets writes go on. Its price: it takes longer, waits for older transactions, cannot run in a transaction block, and leaves an invalid index when it fails.',
 '{who} held ShareLock on {held_on} with {query}, and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: CREATE INDEX, Building Indexes Concurrently'),
('reindex_concurrently', 110,
 '$.waits.roots[*] ? (@.query like_regex "^\\s*reindex" flag "i" && !(@.query like_regex "concurrently" flag "i") && @.blocked_s >= 1)',
 'REINDEX CONCURRENTLY lets reads and writes go on. Its price: it takes longer and needs room for both indexes.',
 '{who} ran {query} and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: REINDEX, Rebuilding Indexes Concurrently'),
('refresh_concurrently', 120,
 '$.waits.roots[*] ? (@.query like_regex "^\\s*refresh\\s+materialized\\s+view" flag "i" && !(@.query like_regex "concurrently" flag "i") && exists(@.held[*] ? (@ == "AccessExclusiveLock")) && @.blocked_s >= 1)',
 'REFRESH MATERIALIZED VIEW CONCURRENTLY lets reads go on. It needs a unique index over all rows, and may take longer.',
 '{who} ran {query} and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: REFRESH MATERIALIZED VIEW'),
('rewrites_table', 130,
 '$.waits.roots[*] ? (@.query like_regex "^\\s*(vacuum\\s*[(]?[^;]*\\mfull\\M|cluster\\M)" flag "i" && exists(@.held[*] ? (@ == "AccessExclusiveLock")) && @.blocked_s >= 1)',
 'VACUUM FULL and CLUSTER write the table anew and let nobody read it meanwhile: run them when nobody needs it, or not at all: plain VACUUM makes room for new rows, and lets reads and writes go on.',
 '{who} ran {query} and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: VACUUM; Routine Vacuuming, Recovering Disk Space'),
('foreign_key_not_valid', 140,
 '$.waits.roots[*] ? (@.query like_regex "^\\s*alter\\s+table.*\\madd\\M.*\\mforeign\\s+key\\M" flag "is" && !(@.query like_regex "not\\s+valid" flag "i") && @.state == "active" && exists(@.held[*] ? (@ == "ShareRowExclusiveLock")) && @.blocked_s >= 1)',
 'Add the foreign key as NOT VALID, which reads no rows, and VALIDATE CONSTRAINT in a transaction of its own, which lets writes go on.',
 '{who} held {held} on {held_on} while {query} read the rows, and held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: ALTER TABLE, Notes'),
('detach_concurrently', 150,
 '$.waits.roots[*].queue[*] ? (@.query like_regex "^\\s*alter\\s+table.*\\mdetach\\s+partition\\M" flag "is" && !(@.query like_regex "concurrently" flag "i") && @.mode == "AccessExclusiveLock" && @.behind_s >= 1)',
 'DETACH PARTITION ... CONCURRENTLY needs no lock on the parent that readers and writers would have to wait behind. It cannot run in a transaction block, nor where there is a default partition.',
 '{behind session} stood {behind_s} behind {who}, which waited {waited_s} for {mode} on {object}',
 'PostgreSQL documentation: ALTER TABLE, DETACH PARTITION'),
('concurrently_waits', 160,
 '$.waits.objects[*] ? (@.locktype == "virtualxid" && @.longest_s >= 1 && @.query like_regex "concurrently" flag "i")',
 'What runs CONCURRENTLY waits for every transaction that is older than it, also such that never touched the table: begin it when no long transaction is open (pg_stat_activity.xact_start).',
 '{who} waited up to {longest_s} for the end of transactions, with {query}',
 'PostgreSQL documentation: CREATE INDEX, Building Indexes Concurrently'),
-- rows
('hot_row', 200,
 '$.waits.hot[*] ? (@.roots >= 3 && @.queued >= 2 && @.total_s >= 1)',
 'A row that everybody changes is changed by one after the other, each to the end of its transaction. Change it last in the transaction, and let nothing slow come after; or add up many changes in one; or spread it over several rows that are added up when read.',
 '{waits wait} of {sessions session} took {total_s} for rows of {object}, behind {roots} sessions one after the other; {queued} stood in a queue for one row',
 'PostgreSQL documentation: Explicit Locking, Row-Level Locks'),
('hot_row_short', 210,
 '$.short.top[*] ? (@.locktype == "tuple" && @.waits >= 20 && @.total_s >= 0.5)',
 'Sessions stand in queues for single rows, shortly but often. Change such a row last in the transaction, and let nothing slow come after; or add up many changes in one; or spread it over several rows that are added up when read.',
 '{waits} short waits in queues for rows of {object} took {total_s}',
 'PostgreSQL documentation: Explicit Locking, Row-Level Locks'),
('deadlock_rows', 220,
 '$.deadlocks.first[*] ? (@.kind == "rows")',
 'Change rows in the same order in all transactions, such as by key (lock them first with SELECT ... ORDER BY ... FOR UPDATE), and have the application try again on SQLSTATE 40P01.',
 'a deadlock of {processes} sessions over {objects}',
 'PostgreSQL documentation: Explicit Locking, Deadlocks'),
('deadlock_upgrade', 230,
 '$.deadlocks.first[*] ? (@.kind == "upgrade")',
 'Take the strongest lock that a transaction will need on a table before any weaker one: two that hold it weakly and both want it strongly wait for each other.',
 'a deadlock of {processes} sessions, which all held {objects} and asked for it again in a stronger mode',
 'PostgreSQL documentation: Explicit Locking, Deadlocks'),
('deadlock_tables', 240,
 '$.deadlocks.first[*] ? (@.kind == "relations" || @.kind == "advisory")',
 'Lock these in the same order in all transactions, and have the application try again on SQLSTATE 40P01.',
 'a deadlock of {processes} sessions over {objects}',
 'PostgreSQL documentation: Explicit Locking, Deadlocks'),
-- special locks
('extend_relation', 300,
 '$.waits.objects[*] ? (@.locktype == "extend" && @.total_s >= 1)',
 'Many sessions make the same relation longer at the same time: load it with COPY or INSERTs of many rows, by fewer sessions, or into several partitions. From 16 on it grows by several pages at once.',
 '{waits wait} of {sessions session} took {total_s} for the {object}',
 'PostgreSQL documentation: Populating a Database; pg_locks, locktype extend'),
('extend_relation_short', 301,
 '$.short.top[*] ? (@.locktype == "extend" && @.waits >= 20 && @.total_s >= 0.5)',
 'Many sessions make the same relation longer at the same time: load it with COPY or INSERTs of many rows, by fewer sessions, or into several partitions. From 16 on it grows by several pages at once.',
 '{waits} short waits to extend {object} took {total_s}',
 'PostgreSQL documentation: Populating a Database; pg_locks, locktype extend'),
('gin_pending_list', 310,
 '$.waits.objects[*] ? (@.locktype == "page" && @.total_s >= 1)',
 'Of heavyweight locks on pages only the clean-up of a GIN index''s pending list is left. A smaller gin_pending_list_limit makes each one shorter; fastupdate = off does without, at the price of slower single inserts.',
 '{waits wait} of {sessions session} took {total_s} for {object}',
 'PostgreSQL documentation: GIN Indexes, GIN Fast Update Technique'),
('notify_order', 320,
 '$.waits.objects[*] ? (@.object == "commit order of NOTIFY" && @.total_s >= 1)',
 'Transactions with NOTIFY commit one after the other, in all databases of a server, each with its flush of the WAL and its synchronous standby: send fewer, several in one transaction or from a table by one sender.',
 '{waits wait} of {sessions session} took {total_s}',
 'PostgreSQL source: src/backend/commands/async.c, PreCommit_Notify()'),
('replay_in_the_way', 330,
 '$.waits.roots[*] ? (@.backend_type == "startup" && @.blocked_s >= 1)',
 'On a standby readers wait for what replay has locked, as it was locked on the primary: DDL, TRUNCATE, or VACUUM that gives pages back (vacuum_truncate). Keep such transactions on the primary short.',
 '{who} held up {sessions session} for {blocked_s}',
 'PostgreSQL documentation: Hot Standby, Handling Query Conflicts'),
('recovery_conflict', 340,
 '$.waits.outcomes ? (@.recovery_conflict >= 1)',
 'On a standby replay ends sessions in its way after max_standby_streaming_delay: a longer one gives them time, at the price of a standby that falls behind.',
 '{recovery_conflict wait} ended by replay',
 'PostgreSQL documentation: Hot Standby, Handling Query Conflicts'),
-- fast path
('fast_path_slots', 400,
 '$.fast_path ? (@.seconds_full >= 1 && @.version >= 18 && @.enough > @.slots && @.lockmanager_share >= 0.05)',
 'max_locks_per_transaction = {enough} gives that many fast-path slots (a restart, of standbys first, and shared memory). fast_path_advice() tells more.',
 'sessions had no slot left in {seconds_full second} with {slots} slots each, and {lockmanager_share} of the load was waiting for LWLock LockManager meanwhile',
 'PostgreSQL documentation: Lock Management, max_locks_per_transaction'),
('fast_path_fewer_locks', 410,
 '$.fast_path ? (@.seconds_full >= 1 && @.lockmanager_share >= 0.05)',
 'Fewer locks a statement: each index of its tables counts, used or not, and each partition that its conditions do not rule out. Drop indexes without use, and let conditions name the partition key. fast_path_advice() tells which statements.',
 'sessions had no slot left in {seconds_full second} with {slots} slots each, and {lockmanager_share} of the load was waiting for LWLock LockManager meanwhile',
 'PostgreSQL source: src/backend/storage/lmgr/README, Fast Path Locking'),
-- LWLocks, pages, the WAL
('rightmost_leaf', 500,
 '$.pages[*] ? (@.object starts with "right-most leaf" && @.mode == "exclusive" && @.wait_s >= 1 && @.load_share >= 0.05)',
 'All sessions insert at the right end of this index. Spread them: hash partitions by the key, or a key that does not ascend (a random UUID, at the price of pages all over the index), or several rows in one INSERT or COPY.',
 '{wait_s} of waiting in mode exclusive for the {object}, {load_share} of the load',
 'PostgreSQL documentation: B-Tree Indexes; Table Partitioning'),
('hot_table_page', 510,
 '$.pages[*] ? (@.kind == "table" && @.mode == "exclusive" && @.block_share >= 0.5 && @.wait_s >= 1 && @.load_share >= 0.05)',
 'Rows that many sessions change lie together in one page of this table. A lower fillfactor (and a rewrite) puts fewer into each page; for a small table with hot rows it costs little.',
 '{wait_s} of waiting in mode exclusive for {object}, {block_share} of it for page {block}, {load_share} of the load',
 'PostgreSQL documentation: CREATE TABLE, fillfactor'),
('hot_sequence', 520,
 '$.pages[*] ? (@.kind == "sequence" && @.wait_s >= 1 && @.load_share >= 0.05)',
 'A sequence has one page. ALTER SEQUENCE ... CACHE 50 lets each session take that many numbers at once, at the price of gaps and of numbers out of order.',
 '{wait_s} of waiting for {object}, {load_share} of the load',
 'PostgreSQL documentation: CREATE SEQUENCE, Notes'),
('buffer_pin', 530,
 '$.pages[*] ? (@.mode == "pin" && @.wait_s >= 1)',
 'Somebody waits to be the only one with that page, as VACUUM does that must freeze its rows: an open cursor or a plan that stands still on it keeps it. Fetch cursors to their end, or close them.',
 '{wait_s} of waiting to be the only one on {object}',
 'PostgreSQL documentation: Monitoring Database Activity, wait event BufferPin'),
('commit_flush', 540,
 '$.load.events[*] ? ((@.event == "IO:WALSync" || @.event == "IO:WalSync" || @.event == "LWLock:WALWrite" || @.event == "IO:WALWrite" || @.event == "IO:WalWrite") && @.client_share >= 0.1 && @.client_s >= 5)',
 'Sessions wait for the WAL to reach the disk: fewer and larger transactions; a faster disk for pg_wal; commit_delay, which lets commits share a flush and makes each later by as much; or synchronous_commit = off where the last moments before a crash of the server may be lost (never consistency).',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL documentation: Asynchronous Commit; WAL Configuration, commit_delay'),
('synchronous_standby', 550,
 '$.load.events[*] ? ((@.event == "IPC:SyncRep" || @.event == "IPC:SyncRepWaitForLSN") && @.client_share >= 0.1 && @.client_s >= 5)',
 'Commits wait for a synchronous standby: look at its disk and the way to it (pg_stat_replication.flush_lag). synchronous_commit = remote_write or local for single transactions waits for less, and promises less.',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL documentation: Streaming Replication, Synchronous Replication'),
('subtransactions', 560,
 '$.load.events[*] ? (@.event like_regex "^LWLock:Subtrans" && @.client_share >= 0.05 && @.client_s >= 2)',
 'Savepoints and EXCEPTION blocks make subtransactions; once a transaction has more than 64 of them, all others must look them up, the more the longer the oldest transaction is. End long transactions, use fewer subtransactions in one; from 17 on subtransaction_buffers.',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL documentation: Transactions, Subtransactions'),
('multixacts', 570,
 '$.load.events[*] ? (@.event like_regex "^LWLock:Multi[Xx]act" && @.client_share >= 0.05 && @.client_s >= 2)',
 'Rows that several transactions lock at the same time, as foreign keys lock the row they point to, need multixacts. Fewer long transactions that insert rows pointing to the same one; from 17 on multixact_offset_buffers and multixact_member_buffers.',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL documentation: Routine Vacuuming, Multixacts and Wraparound'),
('buffer_mapping', 580,
 '$.load.events[*] ? (@.event == "LWLock:BufferMapping" && @.client_share >= 0.05 && @.client_s >= 2)',
 'Pages come into shared buffers and leave them all the time. A larger shared_buffers, or statements that read fewer pages (an index, a narrower scan).',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL documentation: Resource Consumption, shared_buffers'),
('snapshots', 590,
 '$.load.events[*] ? (@.event == "LWLock:ProcArray" && @.client_share >= 0.05 && @.client_s >= 2)',
 'Each statement takes a snapshot of all transactions, each commit leaves it: fewer sessions at work at a time (a connection pool), fewer and larger transactions.',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL source: src/backend/access/transam/README, Interlocking Transaction Begin, Transaction End, and Snapshots'),
('wal_insert', 600,
 '$.load.events[*] ? (@.event == "LWLock:WALInsert" && @.client_share >= 0.05 && @.client_s >= 2)',
 'Sessions wait to write into the WAL buffers: less WAL helps (fewer indexes, wal_compression for full pages, a longer max_wal_size so that there are fewer of them), and fewer sessions that write at a time.',
 'clients spent {client_s} in {event}, {client_share} of all load',
 'PostgreSQL documentation: WAL Configuration'),
-- the observer
('sampling_missed', 700,
 '$.watched ? (@.missed_share >= 0.05)',
 'The history is thinner than it should be. A larger pg_lock_history.sample_period is held more easily; on a server without a free processor none is.',
 '{missed_share} of the samples due were never taken',
 'doc/settings.md, sample_period'),
('ring_held', 710,
 '$.watched.gap_list[*] ? (@.reason == "ring held")',
 'Somebody read the history in a transaction for so long that the ring could not turn: end such readers.',
 'nothing was kept for {gap_s}',
 'doc/design.md, The ring')
) AS v(rule, place, condition, advice, evidence, source);

-- At most so many matches of a rule, and rules: who has more trouble begins there.
CREATE FUNCTION lock_history.explain_advice(facts jsonb)
RETURNS jsonb
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('rule', a.rule, 'sentence', a.sentence, 'evidence', a.evidence, 'source', a.source) ORDER BY a.place, a.rule), '[]')
    FROM (SELECT r.rule, r.place, r.source, m.evidence,
                 format('%s Evidence: %s%s. [%s]', lock_history.fill(r.advice, m.evidence -> 0), lock_history.fill(r.evidence, m.evidence -> 0),
                        CASE WHEN m.n > 1 THEN '; and ' || m.n - 1 || ' more like this' ELSE '' END, r.rule) AS sentence
          FROM (SELECT x.rule, x.place, x.condition::jsonpath AS condition, x.advice, x.evidence, x.source FROM lock_history.rules AS x) AS r
          CROSS JOIN LATERAL (SELECT jsonb_agg(p.match ORDER BY p.no) FILTER (WHERE p.no <= 3) AS evidence, count(*) AS n
                              -- silent: a rule that does not fit says nothing
                              FROM jsonb_path_query(explain_advice.facts, r.condition, silent => true) WITH ORDINALITY AS p(match, no)
                              WHERE jsonb_typeof(p.match) = 'object') AS m
          WHERE m.n > 0
          ORDER BY r.place, r.rule LIMIT 12) AS a
$$;
COMMENT ON FUNCTION lock_history.explain_advice(jsonb) IS 'internal: the advices whose rules find their evidence in the facts of explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_advice(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_advice(jsonb) TO pg_monitor;
