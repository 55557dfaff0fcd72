-- The story of a range: incidents of others, as people have had them (doc/explain.md).
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
-- all of it was watched
UPDATE lock_history.ring SET opened_at = pg_temp.t(-3600), is_empty = false WHERE seg = 0;
CREATE FUNCTION pg_temp.add_case(name text) RETURNS integer LANGUAGE sql AS $$
    WITH n AS (SELECT pg_temp.add_node(name) AS node_id)
    INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period)
    SELECT n.node_id, 1, pg_temp.t(-3600), pg_temp.t(3600), 1, '1 s' FROM n
    RETURNING node_id
$$;
CREATE FUNCTION pg_temp.told(name text, until numeric DEFAULT 60, since numeric DEFAULT 0) RETURNS TABLE (no integer, kind text, sentence text) LANGUAGE sql AS $$
    SELECT e.no, e.kind, e.sentence FROM lock_history.explain(pg_temp.t(since), pg_temp.t(until), name) AS e
$$;
-- alter-queue-soft: A reads and stays in its transaction, B wants to alter, C and D come after B
SELECT pg_temp.add_case('alter-queue-soft') AS n \gset
SELECT pg_temp.add_actor(:n, 101, 'idle in transaction', 'SELECT count(*) FROM t1'), pg_temp.add_actor(:n, 102, 'active', 'alter table t1 add column c1 int'),
       pg_temp.add_actor(:n, 103, query => 'select count(*) from t1'), pg_temp.add_actor(:n, 104, query => 'insert into t1(id, v) values (11, 1)') \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 1002, 102, 8, 0.5, 3.0, ARRAY[(1,101,2,0.5,NULL), (3,101,0,0.5,NULL)]::pg_temp.edge[], 10, object => 'public.t1'),
       pg_temp.add_wait('episode', :n, 1003, 103, 1, 1.0, 3.0, ARRAY[(2,102,256,1.0,NULL), (3,101,0,1.0,NULL)]::pg_temp.edge[], 20, soft => '{102}', object => 'public.t1'),
       pg_temp.add_wait('episode', :n, 1004, 104, 3, 1.5, 3.0, ARRAY[(2,102,256,1.5,NULL), (3,101,0,1.5,NULL)]::pg_temp.edge[], 30, soft => '{102}', object => 'public.t1') \g /dev/null
SELECT * FROM pg_temp.told('alter-queue-soft');
-- what is known as numbers
SELECT (e.json #> '{waits,roots,0}') - 'queue'::text AS root, e.json #> '{waits,roots,0,queue}' AS queue FROM (SELECT lock_history.explain_json(pg_temp.t(0), pg_temp.t(60), 'alter-queue-soft') AS json) AS e;
SELECT t.no, t.value ->> 'kind' AS kind, (t.value ->> 'at')::timestamptz AS at, t.value ->> 'facts' AS facts, jsonb_path_exists(e.json, (t.value ->> 'facts')::jsonpath) AS is_there
FROM (SELECT lock_history.explain_json(pg_temp.t(0), pg_temp.t(60), 'alter-queue-soft') AS json) AS e, jsonb_array_elements(e.json -> 'story') WITH ORDINALITY AS t(value, no);
-- within the range only: it goes on at the end of it
SELECT * FROM pg_temp.told('alter-queue-soft', 2, 1.2);
-- nothing happened, and all of it was watched; a server of which nothing is known yet
SELECT * FROM pg_temp.told('alter-queue-soft', 120, 60);
SELECT * FROM pg_temp.told('alter-queue-soft', -10, -60);
UPDATE lock_history.node SET first_seen = pg_temp.t(-3600);
SELECT * FROM pg_temp.told('alter-queue-soft', -10, -60);

-- lock-timeout-migration: three tries, and one behind each
SELECT pg_temp.add_case('lock-timeout-migration') AS n \gset
SELECT pg_temp.add_actor(:n, 101, 'idle in transaction', 'select count(*) from t1'), pg_temp.add_actor(:n, 102, query => 'alter table t1 add column c2 int'), pg_temp.add_actor(:n, 103, query => 'select count(*) from t1') \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 10 + k, 102, 8, k, k + 0.3, ARRAY[(1,101,2,k,NULL), (3,101,0,k,NULL)]::pg_temp.edge[], 1, object => 'public.t1', outcome => 'lock_timeout') FROM generate_series(1, 3) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 20, 103, 1, 1.1, 1.3, ARRAY[(2,102,256,1.1,NULL), (3,101,0,1.1,NULL)]::pg_temp.edge[], 2, soft => '{102}', object => 'public.t1') \g /dev/null
SELECT * FROM pg_temp.told('lock-timeout-migration');

-- prepared-xact-blocker, and one that still waits
SELECT pg_temp.add_case('prepared-xact-blocker') AS n \gset
SELECT pg_temp.add_actor(:n, 900, 'prepared', gid => E'orphan''1\n', seen => 1), pg_temp.add_actor(:n, 102), pg_temp.add_actor(:n, 103) \g /dev/null
UPDATE lock_history.actor SET query = NULL, backend_type = NULL, application_name = NULL WHERE node_id = :n AND gid IS NOT NULL;
SELECT pg_temp.add_wait('episode', :n, 1, 102, 5, 10, 70, ARRAY[(1,900,128,10,NULL), (3,900,0,10,NULL)]::pg_temp.edge[], 1, locktype => 'transactionid', object => 'transaction 740 (prepared orphan-1), tuple (0,1) of public.t4'),
       pg_temp.add_wait('episode', :n, 2, 103, 8, 20, 25, ARRAY[(1,900,8,20,NULL), (3,900,0,20,NULL)]::pg_temp.edge[], 1, object => 'public.t4', outcome => 'cancelled') \g /dev/null
SELECT * FROM pg_temp.told('prepared-xact-blocker');

-- autovac-wraparound, and an idle session with an advisory lock
SELECT pg_temp.add_case('two roots') AS n \gset
SELECT pg_temp.add_actor(:n, 101, query => 'autovacuum: VACUUM public.av (to prevent wraparound)'), pg_temp.add_actor(:n, 102), pg_temp.add_actor(:n, 103, 'idle', 'rollback;'), pg_temp.add_actor(:n, 104) \g /dev/null
UPDATE lock_history.actor SET backend_type = 'autovacuum worker', application_name = '', usename = NULL WHERE node_id = :n AND actor_id = 101;
UPDATE lock_history.actor SET xact_start = NULL WHERE node_id = :n AND actor_id = 103;
SELECT pg_temp.add_wait('episode', :n, 1, 102, 8, 0, 3, ARRAY[(1,101,16,0,NULL), (3,101,0,0,NULL)]::pg_temp.edge[], 1, object => 'public.av'),
       pg_temp.add_wait('episode', :n, 2, 104, 7, 0.5, 2.5, ARRAY[(1,103,128,0.5,NULL), (3,103,0,0.5,NULL)]::pg_temp.edge[], 1, locktype => 'advisory', object => 'advisory 7', lock => 2) \g /dev/null
SELECT * FROM pg_temp.told('two roots');

-- hot-row-chain in long: thirty sessions, one after the other; what matters is told, the rest counted
SELECT pg_temp.add_case('hot-row-chain') AS n \gset
SELECT pg_temp.add_actor(:n, 100 + k, query => 'update t2 set v = v + 1 where id = 1') FROM generate_series(1, 31) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, k, 101 + k, CASE WHEN k % 3 = 0 THEN 5 ELSE 7 END, k, k + 1.1, ARRAY[(1,100 + k,32,k,NULL), (3,100 + k,0,k,NULL)]::pg_temp.edge[], k,
                        locktype => CASE WHEN k % 3 = 0 THEN 'transactionid' ELSE 'tuple' END, object => CASE WHEN k % 3 = 0 THEN 'transaction 740 (pid 101), tuple (0,1) of public.t2' ELSE 'tuple (0,1) of public.t2' END)
FROM generate_series(1, 30) AS k \g /dev/null
SELECT * FROM pg_temp.told('hot-row-chain');

-- deadlock-two-outsider, and more of them; a storm on the lock manager, a hot page, unusual load
SELECT pg_temp.add_case('storm') AS n \gset
SELECT pg_temp.add_actor(:n, 101, query => E'update w set v = 2\n  where id = 2'), pg_temp.add_actor(:n, 102, query => 'update w set v = 2 where id = 1') \g /dev/null
INSERT INTO lock_history.deadlock_0 (seg, node_id, run, at, deadlock_id, member, pid, is_victim, waits_for, actor_id, locktype, object, mode)
SELECT 0, :n, 1, pg_temp.t(d), d, m, 100 + m, m = 1, 103 - m, 100 + m, 'transactionid', 'transaction 74' || m || ' (pid ' || 103 - m || '), tuple (0,' || m || ') of public.w', 'ShareLock'
FROM generate_series(1, 5) AS d, generate_series(1, 2) AS m;
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, lwlock_mode, backend_type, datname, instance, object, fork, object_kind) VALUES
    (0, :n, 1, 1, 'LWLock', 'LockManager', 'exclusive', 'client backend', 'lab', NULL, NULL, NULL, NULL), (0, :n, 2, 1, 'CPU', 'CPU', NULL, 'client backend', 'lab', NULL, NULL, NULL, NULL),
    (0, :n, 3, 2, NULL, 'LockManager', 'exclusive', NULL, NULL, 'partition 3', NULL, NULL, NULL), (0, :n, 4, 3, NULL, NULL, 'exclusive', NULL, 'lab', NULL, 'right-most leaf of index public.t_pkey', 'main', 'index'),
    (0, :n, 5, 1, 'LWLock', 'BufferContent', 'exclusive', 'client backend', 'lab', NULL, NULL, NULL, NULL), (0, :n, 6, 2, NULL, 'BufferContent', 'exclusive', NULL, NULL, NULL, NULL, NULL, NULL),
    (0, :n, 7, 7, NULL, NULL, NULL, NULL, 'lab', NULL, NULL, NULL, NULL);
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
SELECT 0, :n, 1, pg_temp.t(10 + k), 1000, 9, 9, 0, 0, '{1,2,5}', '{6000,11000,2000}' FROM generate_series(0, 7) AS k;
INSERT INTO lock_history.lwlock_0 (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
SELECT 0, :n, 1, pg_temp.t(10 + k), 1000, '{3,6}', '{6000,2000}', '{300,20}', '{19,5}', '{0.93,0.02}', '{0,0}' FROM generate_series(0, 7) AS k;
INSERT INTO lock_history.page_0 (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
SELECT 0, :n, 1, pg_temp.t(10 + k), 1000, '{4}', '{42}', '{2000}', '{20}', '{5}', '{0.5}', '{0}' FROM generate_series(0, 7) AS k;
INSERT INTO lock_history.fastpath (seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
SELECT 0, :n, 1, pg_temp.t(10 + k), 150020, 64, 16, '{7}', '{32}', '{16}', '{30}', '{86}' FROM generate_series(0, 7) AS k;
INSERT INTO lock_history.anomaly_0 (seg, node_id, run, written_at, started_at, detected_at, ended_at, ended_as, wait_event_type, observed, expected, band, leading_event, root_pid)
VALUES (0, :n, 1, pg_temp.t(40), pg_temp.t(10), pg_temp.t(30), pg_temp.t(20), 'normal', 'LWLock', 8.04, 0.2, 1.5, 'LWLock:LockManager', NULL);
SELECT * FROM pg_temp.told('storm');

-- other locks of the tranche, in another mode; other pages
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event, lwlock_mode, instance) VALUES
    (0, :n, 8, 2, 'LockManager', 'shared', 'partition 4'), (0, :n, 9, 2, 'LockManager', 'exclusive', NULL), (0, :n, 10, 2, 'LockManager', 'shared', 'partition 5');
INSERT INTO lock_history.lwlock_0 (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
VALUES (0, :n, 1, pg_temp.t(30), 500, '{8,9,10}', '{20000,2000,1000}', '{30,20,10}', '{70,5,2}', '{0.5,NULL,0}', '{3,NULL,1}');
INSERT INTO lock_history.page_0 (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
SELECT 0, :n, 1, pg_temp.t(30), 1000, '{4,4,4}', '{42,43,NULL}', '{1000,18000,500}', '{20,2,1}', '{5,9,1}', '{NULL,1,0}', '{NULL,0,0}';
SELECT t.value - 'locks'::text AS tranche, jsonb_pretty(t.value -> 'locks') AS locks FROM jsonb_array_elements(lock_history.explain_json(pg_temp.t(0), pg_temp.t(60), 'storm') -> 'lwlocks') AS t;
SELECT jsonb_pretty(lock_history.explain_json(pg_temp.t(0), pg_temp.t(60), 'storm') -> 'pages') AS pages;
SELECT kind, sentence FROM pg_temp.told('storm') WHERE kind IN ('lwlock', 'page');
-- out of slots, and nobody waited for it: no news
UPDATE lock_history.second SET dims = '{2}', load_ms = '{19000}' WHERE node_id = :n;
SELECT kind, sentence FROM pg_temp.told('storm') WHERE kind IN ('load', 'fast_path', 'lwlock', 'page');

-- what was not seen is said first
SELECT pg_temp.add_case('gaps') AS n \gset
INSERT INTO lock_history.gap_0 (seg, node_id, run, began, ended, reason, lost, part) VALUES
    (0, :n, 1, pg_temp.t(10), pg_temp.t(30), 'stopped', 0, NULL), (0, :n, 1, pg_temp.t(40), pg_temp.t(42), 'writer blocked', 7, 'waits');
INSERT INTO lock_history.health_minute_0 (seg, node_id, run, minute, ticks_due, ticks_done, ticks_late, ticks_missed, period_ms, partitions_taken, partitions_busy, cpu_ms, rows_written, rows_merged, rows_dropped, errors)
VALUES (0, :n, 1, pg_temp.t(0), 4000, 3900, 500, 100, 10, 0, 0, 60, 0, 0, 0, 0);
SELECT * FROM pg_temp.told('gaps');
SELECT * FROM pg_temp.told('gaps', 29, 11);
-- short waits and nothing else
INSERT INTO lock_history.short_wait_0 (seg, node_id, at, datname, locktype, object, waits, total_ms, max_ms) VALUES
    (0, :n, pg_temp.t(50), 'lab', 'tuple', 'public.stock', 143, 757, 8), (0, :n, pg_temp.t(50), NULL, 'transactionid', NULL, 1289, 6681, 11), (0, :n, pg_temp.t(50), 'lab', 'relation', 'public.t', 1, 20, 20);
SELECT * FROM pg_temp.told('gaps', 60, 45);
-- over midnight each time has its date
SELECT * FROM lock_history.explain('2026-02-28 23:00', '2026-03-01 15:00', 'gaps') WHERE kind IN ('headline', 'missed');

-- times as a person says them; a kept incident, as a whole and in part
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(60), 'friday', 'alter-queue-soft');
SET pg_lock_history.incident = 'friday';
SELECT count(*) AS lines FROM lock_history.explain();
SELECT kind, sentence FROM lock_history.explain('14:30:00', '14:30:02') WHERE kind = 'headline';
SELECT kind, sentence FROM lock_history.explain('14:30:02') WHERE kind = 'headline';
SELECT kind, sentence FROM lock_history.why('58 s') WHERE kind = 'headline';
SELECT lock_history.explain_json() - '{waits,watched,story,advice}'::text[] AS facts;
SELECT lock_history.explain(pg_temp.t(61), pg_temp.t(70));
SELECT lock_history.explain(node => 'storm');
RESET pg_lock_history.incident;
-- errors
SELECT lock_history.explain(pg_temp.t(60), pg_temp.t(0), 'storm');
SELECT lock_history.explain('-infinity', pg_temp.t(0), 'storm');
SELECT lock_history.explain(pg_temp.t(0), pg_temp.t(60), 'nobody');
SELECT lock_history.explain('never', '14:00', 'storm');

-- who may not see the statements of others is told without them: nothing that is masked in the views
CREATE ROLE regress_plh_reader;
CREATE ROLE regress_plh_nobody;
SELECT lock_history.grant_reader('regress_plh_reader');
GRANT EXECUTE ON FUNCTION pg_temp.t(numeric) TO PUBLIC;
UPDATE lock_history.actor SET stmt_first_seen = ARRAY[seen_at, seen_at], stmt_query_start = ARRAY[pg_temp.t(-2), pg_temp.t(-1)], stmt_query = ARRAY[' begin;', 'secret of before'], stmt_left_out = 0 WHERE pid = 101;
SET ROLE regress_plh_reader;
SELECT * FROM lock_history.explain(pg_temp.t(0), pg_temp.t(60), 'alter-queue-soft');
SELECT j.json ~ '192\.0\.2\.7|count\(\*\)|alter table|insert into|secret' AS seen FROM (SELECT lock_history.explain_json(pg_temp.t(0), pg_temp.t(60), n)::text AS json FROM unnest('{alter-queue-soft,storm}'::text[]) AS n) AS j;
SET ROLE regress_plh_nobody;
SELECT * FROM lock_history.explain();
RESET ROLE;
SELECT sentence FROM lock_history.explain(pg_temp.t(0), pg_temp.t(60), 'alter-queue-soft') WHERE sentence ~ 'secret';
SELECT lock_history.revoke_reader('regress_plh_reader');
DROP OWNED BY regress_plh_reader;
DROP ROLE regress_plh_reader, regress_plh_nobody;
-- no line is longer than it should be
SELECT n.node, max(length(l.line)) <= 100 AS fits FROM (VALUES ('storm'), ('hot-row-chain'), ('two roots'), ('gaps')) AS n(node), pg_temp.told(n.node) AS t, unnest(string_to_array(t.sentence, E'\n')) AS l(line) GROUP BY n.node ORDER BY n.node;
-- lengths, counts and lists
SELECT string_agg(lock_history.say_seconds(s), ', ') FROM unnest('{0,0.0004,0.0571,0.9996,59.94,59.96,3599.4,3599.6,60,3600,7500,86399,266400,-1}'::numeric[]) AS s;
SELECT lock_history.say_list('{}'), lock_history.say_list('{a}'), lock_history.say_list('{a,b}'), lock_history.say_list('{a,b,c,d}'), lock_history.say_count(1, 'row'), lock_history.say_count(0, 'row'), lock_history.say_count(2, 'match', 'matches');
SELECT lock_history.say_text(E'a\n\t b\x1b[31m ' || repeat('x', 100), 20), lock_history.say_quoted(''), lock_history.say_quoted('<insufficient privilege>');
