-- The book of rules: of each rule an incident that it is for, and the nearest one
-- that it is not for. Names as in doc/explain.md, or those of the rule.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
UPDATE lock_history.ring SET opened_at = pg_temp.t(-3600), is_empty = false WHERE seg = 0;
CREATE TEMP TABLE incident (name text PRIMARY KEY, rule text NOT NULL, fires boolean NOT NULL, part text NOT NULL DEFAULT 'waits');
-- named "rule", or "rule, not: why"
CREATE FUNCTION pg_temp.add_incident(name text, part text DEFAULT 'waits') RETURNS integer LANGUAGE sql AS $$
    INSERT INTO incident (name, rule, fires, part) VALUES (name, split_part(name, ',', 1), name !~ ', not: ', part);
    WITH n AS (SELECT pg_temp.add_node(name) AS node_id)
    INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period)
    SELECT n.node_id, 1, pg_temp.t(-3600), pg_temp.t(3600), 1, '1 s' FROM n
    RETURNING node_id
$$;
-- 101 in the way of 102 from second 100 on
CREATE FUNCTION pg_temp.blocked(name text, state text, query text, held integer, mode integer, secs numeric, object text DEFAULT 'public.t', locktype text DEFAULT 'relation',
                                backend text DEFAULT 'client backend', app text DEFAULT 'test', gid text DEFAULT NULL, changed numeric DEFAULT 0, xact numeric DEFAULT 0,
                                waiter text DEFAULT NULL, outcome text DEFAULT 'granted')
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.add_incident(name);
BEGIN
    PERFORM pg_temp.add_actor(n, 101, state, query, gid), pg_temp.add_actor(n, 102, 'active', waiter);
    UPDATE lock_history.actor SET backend_type = backend, application_name = app, state_change = pg_temp.t(changed), xact_start = pg_temp.t(xact), query = blocked.query
     WHERE node_id = n AND actor_id = 101;
    PERFORM pg_temp.add_wait('episode', n, 2, 102, mode, 100, 100 + secs, ARRAY[(1,101,held,100,NULL), (3,101,0,100,NULL)]::pg_temp.edge[], 1,
                             object => object, locktype => locktype, outcome => outcome);
    RETURN n;
END
$$;
-- and 103 behind 102
CREATE FUNCTION pg_temp.behind(n integer, mode integer, since numeric, until numeric, object text DEFAULT 'public.t', hard boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_temp.add_actor(n, 103);
    PERFORM pg_temp.add_wait('episode', n, 3, 103, mode, since, until,
                             ARRAY[(CASE WHEN hard THEN 1 ELSE 2 END,102,256,since,NULL), (3,101,0,since,NULL)]::pg_temp.edge[], 2, soft => CASE WHEN hard THEN '{}' ELSE '{102}' END::integer[], object => object);
END
$$;
CREATE FUNCTION pg_temp.advices(name text, part text) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE part WHEN 'all' THEN lock_history.explain_json(pg_temp.t(0), pg_temp.t(300), name) -> 'advice'
                ELSE lock_history.explain_advice(jsonb_strip_nulls(jsonb_build_object(part, lock_history.explain_part(part, name, pg_temp.t(0), pg_temp.t(300))))) END
$$;

-- blockers
SELECT pg_temp.blocked('idle_in_transaction', 'idle in transaction', 'select now();', 256, 1, 5),
       pg_temp.blocked('idle_in_transaction, not: it worked', 'active', 'update t set v = 1', 256, 1, 5),
       pg_temp.blocked('idle_in_transaction, not: between two statements', 'idle in transaction', 'select 1', 256, 1, 5, changed => 104.9),
       pg_temp.blocked('long_transaction', 'active', 'update t set v = v + 1', 8, 8, 20),
       pg_temp.blocked('long_transaction, not: it had just begun', 'active', 'update t set v = v + 1', 8, 8, 20, xact => 95),
       pg_temp.blocked('prepared_transaction', 'prepared', NULL, 8, 8, 2.5, backend => NULL, gid => 'orphan-1'),
       pg_temp.blocked('prepared_transaction, not: a session', 'idle in transaction', 'prepare transaction ''orphan-1''', 8, 8, 2.5),
       pg_temp.blocked('session_advisory_lock', 'idle', 'rollback;', 128, 7, 2, 'advisory 7', 'advisory', xact => NULL),
       pg_temp.blocked('session_advisory_lock, not: of a transaction', 'idle in transaction', 'select pg_advisory_xact_lock(7)', 128, 7, 2, 'advisory 7', 'advisory'),
       pg_temp.blocked('autovacuum_wraparound', 'active', 'autovacuum: VACUUM public.av (to prevent wraparound)', 16, 8, 3, 'public.av', backend => 'autovacuum worker'),
       pg_temp.blocked('autovacuum_wraparound, not: an ordinary one', 'active', 'autovacuum: VACUUM ANALYZE public.av2', 16, 8, 1.05, 'public.av2', backend => 'autovacuum worker'),
       pg_temp.blocked('autovacuum_gives_way', 'active', 'autovacuum: VACUUM ANALYZE public.av2', 16, 8, 1.05, 'public.av2', backend => 'autovacuum worker'),
       pg_temp.blocked('autovacuum_gives_way, not: against wraparound', 'active', 'autovacuum: VACUUM public.av (to prevent wraparound)', 16, 8, 3, 'public.av', backend => 'autovacuum worker'),
       pg_temp.blocked('autovacuum_gives_way, not: what it ran is not yours to see', 'active', '<insufficient privilege>', 16, 8, 3, 'public.av', backend => 'autovacuum worker'),
       pg_temp.blocked('vacuum_truncate', 'active', 'vacuum (verbose) vt;', 16 + 256, 1, 0.4, 'public.vt'),
       pg_temp.blocked('vacuum_truncate, not: DDL behind VACUUM', 'active', 'vacuum (verbose) vt;', 16, 8, 5, 'public.vt'),
       pg_temp.blocked('vacuum_truncate, not: VACUUM FULL', 'active', 'vacuum full vt;', 256, 1, 5, 'public.vt'),
       pg_temp.blocked('replay_in_the_way', 'active', NULL, 256, 1, 4, backend => 'startup', xact => NULL),
       pg_temp.blocked('replay_in_the_way, not: a session', 'active', 'truncate t', 256, 1, 4),
       pg_temp.blocked('recovery_conflict', 'active', NULL, 256, 1, 4, backend => 'startup', xact => NULL, outcome => 'recovery_conflict'),
       pg_temp.blocked('recovery_conflict, not: cancelled', 'active', NULL, 256, 1, 4, backend => 'startup', xact => NULL, outcome => 'cancelled')
\g /dev/null
-- who stands in the queue
SELECT pg_temp.behind(pg_temp.blocked('ddl_lock_timeout', 'idle in transaction', 'select 1', 2, 8, 3), 1, 100.5, 103),
       pg_temp.behind(pg_temp.blocked('ddl_lock_timeout, not: it has one', 'idle in transaction', 'select 1', 2, 8, 3, outcome => 'lock_timeout'), 1, 100.5, 103),
       pg_temp.behind(pg_temp.blocked('ddl_lock_timeout, not: no table', 'idle in transaction', 'select 1', 32, 7, 3, 'advisory 7', 'advisory'), 5, 100.5, 103, 'advisory 7'),
       pg_temp.behind(pg_temp.blocked('ddl_lock_timeout, not: what stands behind would wait anyway', 'idle in transaction', 'select 1', 2, 8, 3), 8, 100.5, 103, hard => true),
       pg_temp.behind(pg_temp.blocked('dump_in_the_way', 'active', 'COPY public.pp TO stdout', 2, 8, 3, app => 'pg_dump'), 1, 100.5, 103),
       pg_temp.behind(pg_temp.blocked('dump_in_the_way, not: a report', 'active', 'COPY public.pp TO stdout', 2, 8, 3), 1, 100.5, 103),
       pg_temp.behind(pg_temp.blocked('detach_concurrently', 'idle in transaction', 'select 1', 2, 8, 3, waiter => 'alter table pt detach partition pt1'), 3, 100.5, 103),
       pg_temp.behind(pg_temp.blocked('detach_concurrently, not: it is', 'idle in transaction', 'select 1', 2, 8, 3, waiter => 'alter table pt detach partition pt1 concurrently'), 3, 100.5, 103)
\g /dev/null
-- statements that have a gentler form
SELECT pg_temp.blocked('create_index_concurrently', 'active', E'CREATE UNIQUE INDEX\n i ON t (v)', 32, 3, 5),
       pg_temp.blocked('create_index_concurrently, not: it is', 'active', 'create index concurrently i on t (v)', 16, 8, 5),
       pg_temp.blocked('create_index_concurrently, not: another lock of its transaction', 'idle in transaction', 'create index i on t (v)', 256, 3, 5),
       pg_temp.blocked('reindex_concurrently', 'active', 'reindex index t8_pkey;', 256, 1, 5, 'public.t8_pkey'),
       pg_temp.blocked('reindex_concurrently, not: it is', 'active', 'reindex index concurrently t8_pkey;', 16, 8, 5, 'public.t8'),
       pg_temp.blocked('refresh_concurrently', 'active', 'refresh materialized view mv;', 256, 1, 5, 'public.mv'),
       pg_temp.blocked('refresh_concurrently, not: it is', 'active', 'refresh materialized view concurrently mv;', 128, 7, 5, 'public.mv'),
       pg_temp.blocked('rewrites_table', 'active', 'VACUUM (VERBOSE, FULL) t;', 256, 1, 5),
       pg_temp.blocked('rewrites_table, not: plain VACUUM of a table whose name has it', 'active', 'vacuum fully_booked;', 16, 8, 5, 'public.fully_booked'),
       pg_temp.blocked('foreign_key_not_valid', 'active', 'alter table pch add constraint fk2 foreign key (p) references pp', 64, 3, 5, 'public.pp'),
       pg_temp.blocked('foreign_key_not_valid, not: it is', 'active', 'alter table pch add constraint fk2 foreign key (p) references pp not valid', 64, 3, 5, 'public.pp'),
       pg_temp.blocked('foreign_key_not_valid, not: done, and idle', 'idle in transaction', 'alter table pch add constraint fk2 foreign key (p) references pp', 64, 3, 5, 'public.pp'),
       pg_temp.blocked('concurrently_waits', 'idle in transaction', 'select count(*) from t6b', 128, 5, 2.5, 'virtual transaction 3/12 (pid 101)', 'virtualxid', waiter => 'create index concurrently i2 on t6 (v)'),
       pg_temp.blocked('concurrently_waits, not: a slot is made', 'idle in transaction', 'select count(*) from t6b', 128, 5, 2.5, 'virtual transaction 3/12 (pid 101)', 'virtualxid', waiter => 'select pg_create_logical_replication_slot(''s'', ''pgoutput'')')
\g /dev/null
-- rows: five sessions in a queue, behind three one after the other; and five rows, each with one that waits
CREATE FUNCTION pg_temp.rows(name text, tuples integer, roots integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.add_incident(name);
BEGIN
    PERFORM pg_temp.add_actor(n, 100 + k) FROM generate_series(1, 10) AS k;
    PERFORM pg_temp.add_wait('episode', n, 10 + k, 105 + k, CASE WHEN k <= tuples THEN 7 ELSE 5 END, 100 + k, 101 + k,
                             ARRAY[(1,101 + k % roots,32,100 + k,NULL), (3,101 + k % roots,0,100 + k,NULL)]::pg_temp.edge[], k,
                             locktype => CASE WHEN k <= tuples THEN 'tuple' ELSE 'transactionid' END, lock => k,
                             object => CASE WHEN k <= tuples THEN 'tuple (0,1) of public.t2' ELSE 'transaction 740 (pid 101), tuple (0,' || k || ') of public.t2' END)
    FROM generate_series(1, 5) AS k;
END
$$;
SELECT pg_temp.rows('hot_row', 3, 3), pg_temp.rows('hot_row, not: one session is in the way', 3, 1), pg_temp.rows('hot_row, not: different rows', 0, 4) \g /dev/null
CREATE FUNCTION pg_temp.short(name text, locktype text, waits bigint, ms double precision, object text DEFAULT 'public.stock') RETURNS void LANGUAGE sql AS $$
    INSERT INTO lock_history.short_wait_0 (seg, node_id, at, datname, locktype, object, waits, total_ms, max_ms)
    VALUES (0, pg_temp.add_incident(name, 'short'), pg_temp.t(100), 'lab', locktype, object, waits, ms, 20)
$$;
SELECT pg_temp.short('hot_row_short', 'tuple', 100, 700), pg_temp.short('hot_row_short, not: few', 'tuple', 5, 700), pg_temp.short('hot_row_short, not: a table', 'relation', 100, 700),
       pg_temp.short('extend_relation_short', 'extend', 100, 700, 'public.t'), pg_temp.short('extend_relation_short, not: little', 'extend', 100, 50, 'public.t') \g /dev/null
-- deadlocks: member 1 waits for 2, 2 for 1
CREATE FUNCTION pg_temp.deadlock(name text, locktype text, objects text[], held text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.add_incident(name, 'deadlocks');
BEGIN
    PERFORM pg_temp.add_actor(n, 101), pg_temp.add_actor(n, 102);
    INSERT INTO lock_history.deadlock_0 (seg, node_id, run, at, deadlock_id, member, pid, is_victim, waits_for, actor_id, locktype, object, mode, held_mode, held_object)
    SELECT 0, n, 1, pg_temp.t(100), 1, m, 100 + m, m = 1, 103 - m, 100 + m, locktype, objects[m], 'ShareLock', 'AccessShareLock', held[m] FROM generate_series(1, 2) AS m;
END
$$;
SELECT pg_temp.deadlock('deadlock_rows', 'transactionid', '{"transaction 741 (pid 102), tuple (0,2) of public.w","transaction 740 (pid 101), tuple (0,1) of public.w"}', '{NULL,NULL}'),
       pg_temp.deadlock('deadlock_rows, not: tables', 'relation', '{public.a,public.b}', '{public.b,public.a}'),
       pg_temp.deadlock('deadlock_upgrade', 'relation', '{public.a,public.a}', '{public.a,public.a}'),
       pg_temp.deadlock('deadlock_upgrade, not: two tables', 'relation', '{public.a,public.b}', '{public.b,public.a}'),
       pg_temp.deadlock('deadlock_tables', 'relation', '{public.a,public.b}', '{public.b,public.a}'),
       pg_temp.deadlock('deadlock_tables, not: one', 'relation', '{public.a,public.a}', '{public.a,public.a}') \g /dev/null
-- special locks
SELECT pg_temp.blocked('extend_relation', 'active', 'insert into t select 1', 128, 7, 2, 'extension of public.t', 'extend'),
       pg_temp.blocked('extend_relation, not: the table', 'active', 'insert into t select 1', 128, 7, 2, 'public.t', 'relation'),
       pg_temp.blocked('gin_pending_list', 'active', 'vacuum t', 128, 7, 2, 'page 0 of public.gi', 'page'),
       pg_temp.blocked('gin_pending_list, not: shortly', 'active', 'vacuum t', 128, 7, 0.2, 'page 0 of public.gi', 'page'),
       pg_temp.blocked('notify_order', 'active', 'commit', 256, 8, 2.5, 'commit order of NOTIFY', 'object'),
       pg_temp.blocked('notify_order, not: another object', 'active', 'commit', 256, 8, 2.5, 'schema s', 'object') \g /dev/null
-- load: the event has a third of it
CREATE FUNCTION pg_temp.loaded(name text, event text, ms integer, part text DEFAULT 'load', backend text DEFAULT 'client backend') RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.add_incident(name, part);
BEGIN
    INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, backend_type) VALUES (0, n, 1, 1, split_part(event, ':', 1), split_part(event, ':', 2), backend), (0, n, 2, 1, 'CPU', 'CPU', 'client backend');
    INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
    SELECT 0, n, 1, pg_temp.t(100 + k), 1000, 9, 9, 0, 0, '{1,2}', ARRAY[ms, 6000] FROM generate_series(0, 9) AS k;
    RETURN n;
END
$$;
SELECT pg_temp.loaded(v.rule, v.event, 3000), pg_temp.loaded(v.rule || ', not: hardly any', v.event, 100)
FROM (VALUES ('commit_flush', 'IO:WALSync'), ('synchronous_standby', 'IPC:SyncRep'), ('subtransactions', 'LWLock:SubtransSLRU'), ('multixacts', 'LWLock:MultiXactOffsetSLRU'),
             ('buffer_mapping', 'LWLock:BufferMapping'), ('snapshots', 'LWLock:ProcArray'), ('wal_insert', 'LWLock:WALInsert')) AS v(rule, event) \g /dev/null
SELECT pg_temp.loaded('commit_flush, not: the server''s own process', 'IO:WALSync', 3000, backend => 'walwriter') \g /dev/null
-- pages
CREATE FUNCTION pg_temp.page(name text, object text, kind text, mode text, ms integer, block bigint DEFAULT 7) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.loaded(name, 'LWLock:BufferContent', 3000, 'all');
BEGIN
    INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, lwlock_mode, datid, datname, relation, object, fork, object_kind) VALUES (0, n, 3, 3, mode, 16384, 'lab', 16385, object, 'main', kind);
    INSERT INTO lock_history.page_0 (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
    SELECT 0, n, 1, pg_temp.t(100 + k), 1000, '{3}', ARRAY[coalesce(block, k)], ARRAY[ms], '{30}', '{7}', '{0.5}', '{0}' FROM generate_series(0, 9) AS k;
END
$$;
SELECT pg_temp.page('rightmost_leaf', 'right-most leaf of index public.t_pkey', 'index', 'exclusive', 3000),
       pg_temp.page('rightmost_leaf, not: somewhere in the index', 'leaf of index public.t_pkey', 'index', 'exclusive', 3000),
       pg_temp.page('rightmost_leaf, not: readers', 'right-most leaf of index public.t_pkey', 'index', 'shared', 3000),
       pg_temp.page('hot_table_page', 'public.hb', 'table', 'exclusive', 3000),
       pg_temp.page('hot_table_page, not: all over the table', 'public.hb', 'table', 'exclusive', 3000, NULL),
       pg_temp.page('hot_sequence', 'sequence public.t_id_seq', 'sequence', 'exclusive', 3000, 0),
       pg_temp.page('hot_sequence, not: hardly any', 'sequence public.t_id_seq', 'sequence', 'exclusive', 30, 0),
       pg_temp.page('buffer_pin', 'public.hb', 'table', 'pin', 3000),
       pg_temp.page('buffer_pin, not: a lock', 'public.hb', 'table', 'shared', 3000) \g /dev/null
-- the fast path: full in ten seconds, in which a part of the load waits for the lock manager
CREATE FUNCTION pg_temp.cliff(name text, version integer, slots integer, full_ integer, ms integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.loaded(name, 'LWLock:LockManager', ms, 'all');
BEGIN
    INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id) VALUES (0, n, 3, 7, 5, 'lab', NULL, NULL, NULL), (0, n, 4, 4, 5, 'lab', 10, 'postgres', 101);
    INSERT INTO lock_history.fastpath (seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
    SELECT 0, n, 1, pg_temp.t(100 + k), version, 64, slots, '{3}', '{8}', ARRAY[slots], ARRAY[full_], '{86}' FROM generate_series(0, 9) AS k;
    INSERT INTO lock_history.hungry (seg, node_id, run, at, last_at, server_version_num, max_locks, slots, dims, locks_max, slots_max, spilled_max, looks, looks_full, sessions)
    VALUES (0, n, 1, pg_temp.t(100), pg_temp.t(109), version, 64, slots, '{4}', '{102}', ARRAY[slots], '{86}', '{50}', ARRAY[50 * full_], '{8}');
END
$$;
CREATE FUNCTION pg_temp.add_cliff(slots integer) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_temp.cliff('fast_path_slots, with ' || slots, 180001, slots, 8, 3000);
    DELETE FROM incident WHERE name = 'fast_path_slots, with ' || slots;
    RETURN 'fast_path_slots, with ' || slots;
END
$$;
SELECT pg_temp.cliff('fast_path_slots', 180001, 64, 8, 3000), pg_temp.cliff('fast_path_slots, not: there cannot be more', 180001, 16384, 8, 3000),
       pg_temp.cliff('fast_path_slots, not: no setting for it', 150020, 16, 8, 3000),
       pg_temp.cliff('fast_path_fewer_locks', 150020, 16, 8, 3000), pg_temp.cliff('fast_path_fewer_locks, not: it did not hurt', 150020, 16, 8, 100),
       pg_temp.cliff('fast_path_fewer_locks, not: nobody was full', 150020, 16, 0, 3000) \g /dev/null
-- as many as are needed; more where there are enough, but not in the group that they belong to
SELECT pg_temp.add_cliff(slots) FROM unnest('{16,64,128,16384}'::integer[]) AS s(slots) \g /dev/null
SELECT s.slots, f.facts ->> 'locks' AS locks, f.facts ->> 'enough' AS enough FROM unnest('{16,64,128,16384}'::integer[]) AS s(slots),
       LATERAL (SELECT lock_history.explain_fast_path('fast_path_slots, with ' || s.slots, pg_temp.t(0), pg_temp.t(300))) AS f(facts);
-- the observer
CREATE FUNCTION pg_temp.observed(name text, missed bigint, reason text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n integer := pg_temp.add_incident(name, 'watched');
BEGIN
    INSERT INTO lock_history.health_minute_0 (seg, node_id, run, minute, ticks_due, ticks_done, ticks_late, ticks_missed, period_ms, partitions_taken, partitions_busy, cpu_ms, rows_written, rows_merged, rows_dropped, errors)
    VALUES (0, n, 1, pg_temp.t(60), 6000, 6000 - missed, 0, missed, 10, 0, 0, 60, 0, 0, 0, 0);
    INSERT INTO lock_history.gap_0 (seg, node_id, run, began, ended, reason, lost) VALUES (0, n, 1, pg_temp.t(100), pg_temp.t(130), reason, 0);
END
$$;
SELECT pg_temp.observed('sampling_missed', 600, 'late'), pg_temp.observed('sampling_missed, not: a few', 20, 'late'),
       pg_temp.observed('ring_held', 0, 'ring held'), pg_temp.observed('ring_held, not: stopped', 0, 'stopped') \g /dev/null

CREATE TEMP TABLE answer AS SELECT i.name, i.rule, i.fires, pg_temp.advices(i.name, i.part) AS advices FROM incident AS i;
-- a rule that should have fired, or should not
SELECT a.name, a.rule, a.fires AS should FROM answer AS a
WHERE a.fires <> EXISTS (SELECT FROM jsonb_array_elements(a.advices) AS e WHERE e ->> 'rule' = a.rule) ORDER BY a.name;
-- a rule without one of both
SELECT r.rule FROM lock_history.rules AS r
WHERE NOT EXISTS (SELECT FROM incident AS i WHERE i.rule = r.rule AND i.fires) OR NOT EXISTS (SELECT FROM incident AS i WHERE i.rule = r.rule AND NOT i.fires);
-- what each says
\pset format unaligned
\pset tuples_only on
SELECT e ->> 'sentence' FROM answer AS a, jsonb_array_elements(a.advices) AS e, lock_history.rules AS r WHERE a.fires AND e ->> 'rule' = a.rule AND r.rule = a.rule ORDER BY r.place;
\pset format aligned
\pset tuples_only off
-- whatever else is advised
SELECT a.name, string_agg(e ->> 'rule', ', ' ORDER BY e ->> 'rule') AS other_rules FROM answer AS a, jsonb_array_elements(a.advices) AS e WHERE e ->> 'rule' <> a.rule GROUP BY a.name ORDER BY a.name;
-- own rules: of the owner, beside the others; one that does not fit says nothing
INSERT INTO lock_history.rule (rule, place, condition, advice, evidence, source) VALUES
    ('call_the_team', 5, '$.waits.roots[*] ? (@.application == "test" && @.blocked_s > 1)', 'Call {role}.', '{who} held up {sessions session} for {blocked_s}, {nothing}, {application}', 'ours'),
    ('broken', 6, 'strict $.waits.roots[*] ? (@.blocked_s / 0 > 1).nothing', 'Never said.', 'none', 'ours');
SELECT e ->> 'sentence' AS sentence, e ->> 'source' AS source FROM jsonb_array_elements(pg_temp.advices('prepared_transaction', 'waits')) AS e;
-- nothing that is put in is taken for a placeholder
SELECT lock_history.fill('{a} and {b}, {n row}, {t_s}, {x_share}, {list}, {none}', '{"a": "{b}\n x", "b": "\\1 & {a}", "n": 1, "t_s": 75, "x_share": 0.256, "list": ["p", "q", "r", "s", "t"]}');
-- readers may read it, the owner alone may change it
CREATE ROLE regress_plh_monitor IN ROLE pg_monitor;
SET ROLE regress_plh_monitor;
SELECT count(*) > 0 AS some, bool_and(is_own) AS all_own FROM lock_history.rules;
\set VERBOSITY terse
SELECT count(*) FROM lock_history.rule;
RESET ROLE;
DROP ROLE regress_plh_monitor;
