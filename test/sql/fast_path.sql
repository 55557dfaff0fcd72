-- The fast path: what its views show, and what the advice says on each version.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
SELECT pg_temp.add_node('v15', true) AS v15, pg_temp.add_node('v17') AS v17, pg_temp.add_node('v18') AS v18 \gset
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id)
SELECT s, n, d.dim_id, d.kind, d.datid, d.datname, d.usesysid, d.usename, d.query_id
FROM generate_series(0, 1) AS s, unnest(ARRAY[:v15, :v17, :v18]) AS n,
     (VALUES (1, 7, 5, 'shop', NULL::oid, NULL, NULL::bigint), (2, 7, 6, 'lab', NULL, NULL, NULL),
             (3, 4, 5, 'shop', 10, 'postgres', 101), (4, 4, 6, 'lab', 10, 'postgres', NULL),
             (5, 4, 5, 'shop', 10, 'postgres', 102), (6, 4, 5, 'shop', 10, 'postgres', 103), (7, 4, 5, 'shop', 10, 'postgres', 104), (8, 4, 5, 'shop', 10, 'postgres', 105)) AS d(dim_id, kind, datid, datname, usesysid, usename, query_id);
-- texts of some; two were seen, the later one counts
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id, query, seen_at)
SELECT d.seg, n, 0, 5, 5, 'shop', 10, 'postgres', d.query_id, d.query, pg_temp.t(d.seg)
FROM unnest(ARRAY[:v15, :v17, :v18]) AS n,
     (VALUES (0, 101, 'SELECT older'), (1, 101, E'SELECT abalance\nFROM pgbench_accounts\n  WHERE aid = 1'),
             (0, 102, 'SELECT * FROM lock_history.waits'), (0, 103, 'SELECT ' || repeat('wide, ', 40))) AS d(seg, query_id, query);
CREATE FUNCTION pg_temp.add_second(node integer, s numeric, version integer, slots integer, setting integer, dims integer[], sessions integer[], used integer[], full_ integer[], spilled integer[], seg integer DEFAULT 0)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO lock_history.fastpath (seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
    VALUES (seg, node, 1, pg_temp.t(s), version, setting, slots, dims, sessions, used, full_, spilled)
$$;
CREATE FUNCTION pg_temp.add_minute(node integer, s numeric, version integer, slots integer, setting integer, dims integer[], locks integer[], used integer[], spilled integer[], looks integer[], full_ integer[], seg integer DEFAULT 0)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO lock_history.hungry (seg, node_id, run, at, last_at, server_version_num, max_locks, slots, dims, locks_max, slots_max, spilled_max, looks, looks_full, sessions)
    VALUES (seg, node, 1, pg_temp.t(s), pg_temp.t(s + 20), version, setting, slots, dims, locks, used, spilled, looks, full_, array_fill(2, ARRAY[cardinality(dims)]))
$$;
-- nothing was seen, and nobody looked before there was anybody
SELECT lock_history.fast_path_advice();
SELECT lock_history.fast_path_advice(pg_temp.t(-20), pg_temp.t(-10));
SELECT lock_history.fast_path_advice(node => 'nobody');
-- near the end, and not over it
SELECT pg_temp.add_second(:v15, 0, 150020, 16, 64, '{1}', '{3}', '{13}', '{0}', '{-1}') \g /dev/null
SELECT lock_history.fast_path_advice();
-- over it, in two databases and two segments; nobody looked what spilled in one
SELECT pg_temp.add_second(:v15, 10, 150020, 16, 64, '{1,2}', '{8,3}', '{16,16}', '{8,1}', '{86,-1}'),
       pg_temp.add_second(:v15, 11, 150020, 16, 64, '{1}', '{7}', '{16}', '{7}', '{80}', 1),
       pg_temp.add_minute(:v15, 10, 150020, 16, 64, '{3,4}', '{102,16}', '{16,16}', '{86,-1}', '{55,2}', '{54,2}'),
       pg_temp.add_minute(:v15, 70, 150020, 16, 64, '{3}', '{96}', '{16}', '{80}', '{9}', '{9}', 1) \g /dev/null
SELECT * FROM lock_history.fast_path WHERE node = 'v15' ORDER BY at, datname;
SELECT * FROM lock_history.lock_hungry_queries WHERE node = 'v15' ORDER BY at, locks_max DESC;
SELECT lock_history.fast_path_advice();
-- of a range, without its end
SELECT lock_history.fast_path_advice(pg_temp.t(-5), pg_temp.t(0));
SELECT lock_history.fast_path_advice(pg_temp.t(-5), pg_temp.t(5));
SELECT lock_history.fast_path_advice(pg_temp.t(60));
-- the minute of a statement goes beyond both ends
SELECT a FROM lock_history.fast_path_advice(pg_temp.t(11), pg_temp.t(12)) AS a WHERE a ~ '^1\. ';
SELECT lock_history.fast_path_advice(pg_temp.t(5), pg_temp.t(-5));
-- version 17 has no setting for it, either; the statement is not written yet
SELECT pg_temp.add_second(:v17, 10, 170004, 16, 4096, '{1}', '{8}', '{16}', '{1}', '{-1}') \g /dev/null
SELECT lock_history.fast_path_advice(node => 'v17');
SELECT pg_temp.add_minute(:v17, 10, 170004, 16, 4096, '{4}', '{16}', '{16}', '{-1}', '{2}', '{2}') \g /dev/null
SELECT a FROM lock_history.fast_path_advice(node => 'v17') AS a WHERE a ~ '^1\. |From version 18 ';
-- version 18: more slots than locks, but not in the group that they belong to; too few; changed meanwhile
SELECT pg_temp.add_second(:v18, 10, 180001, 64, 64, '{1}', '{8}', '{40}', '{1}', '{3}'),
       pg_temp.add_minute(:v18, 10, 180001, 64, 64, '{3}', '{43}', '{40}', '{3}', '{7}', '{7}') \g /dev/null
SELECT a FROM lock_history.fast_path_advice(node => 'v18') AS a WHERE a ~ '^(Version|1\.|max_)';
SELECT pg_temp.add_second(:v18, 20, 180001, 64, 64, '{1}', '{8}', '{64}', '{8}', '{38}'),
       pg_temp.add_minute(:v18, 20, 180001, 64, 64, '{3}', '{102}', '{64}', '{38}', '{7}', '{7}') \g /dev/null
SELECT lock_history.fast_path_advice(node => 'v18');
SELECT pg_temp.add_second(:v18, 100, 180001, 256, 200, '{1}', '{8}', '{130}', '{0}', '{-1}') \g /dev/null
SELECT lock_history.fast_path_advice(node => 'v18');
SELECT count(*) AS lines FROM lock_history.fast_path_advice(NULL, pg_temp.t(50), 'v18');
SELECT pg_temp.add_second(:v18, 200, 180001, 16384, 20000, '{1}', '{8}', '{9000}', '{1}', '{10}') \g /dev/null
SELECT a FROM lock_history.fast_path_advice(node => 'v18') AS a WHERE a ~ '^(Version|1\.|More|max_)';
-- three at most, by how often they were seen full, not by the most locks; who reads the history is left out
SELECT pg_temp.add_second(:v17, 1000, 170004, 16, 64, '{1}', '{24}', '{16}', '{24}', '{9}'),
       pg_temp.add_second(:v17, 1001, 170004, 16, 64, '{1,2}', '{20,4}', '{16,16}', '{20,4}', '{9,-1}'),
       pg_temp.add_second(:v17, 1002, 170004, 16, 64, '{1}', '{30}', '{16}', '{23}', '{9}'),
       pg_temp.add_minute(:v17, 1000, 170004, 16, 64, '{3,5,6,7,8}', '{25,60,300,18,17}', '{16,16,16,16,16}', '{9,44,284,2,1}', '{500,900,2,30,1}', '{500,900,2,30,1}') \g /dev/null
SELECT lock_history.fast_path_advice(pg_temp.t(1000), node => 'v17');
-- whether it hurt: 6 of 100 s of load, then none, then much
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event)
VALUES (0, :v17, 1, 1, 'LWLock', 'LockManager'), (0, :v17, 2, 1, 'CPU', 'CPU'), (0, :v17, 3, 1, 'Lock', 'LockManager');
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
VALUES (0, :v17, 1, pg_temp.t(999), 1000, 4, 2, 1, 0, '{1}', '{30000}'), (0, :v17, 1, pg_temp.t(1000), 1000, 4, 2, 1, 0, '{1,2}', '{6000,30000}'),
       (0, :v17, 1, pg_temp.t(1001), 1000, 4, 2, 1, 0, '{2,3}', '{30000,30000}'), (0, :v17, 1, pg_temp.t(1002), 1000, 4, 2, 1, 0, '{2}', '{4000}');
SELECT a FROM lock_history.fast_path_advice(pg_temp.t(1000), node => 'v17') AS a WHERE a ~ 'hurt|was seen waiting';
SELECT a FROM lock_history.fast_path_advice(pg_temp.t(1000), pg_temp.t(1001), 'v17') AS a WHERE a ~ 'hurt|was seen waiting';
SELECT a FROM lock_history.fast_path_advice(pg_temp.t(1001), node => 'v17') AS a WHERE a ~ 'hurt|was seen waiting';
-- nobody but a reader of the history
SELECT pg_temp.add_second(:v17, 2000, 170004, 16, 64, '{1}', '{1}', '{16}', '{1}', '{9}'),
       pg_temp.add_minute(:v17, 2000, 170004, 16, 64, '{5}', '{60}', '{16}', '{44}', '{9}', '{9}') \g /dev/null
SELECT lock_history.fast_path_advice(pg_temp.t(2000), node => 'v17');
SELECT max(length(a)) <= 100 AS fits FROM lock_history.fast_path_advice(node => 'v17') AS a;
-- slots by setting, as the server makes them
SELECT m AS max_locks, lock_history.fast_path_slots(m) FROM unnest('{1,10,16,17,64,65,100,128,129,16384,20000}'::integer[]) AS m;
-- masks: a statement is for the members of its role, on the same system
CREATE ROLE regress_plh_reader;
SELECT lock_history.grant_reader('regress_plh_reader');
SET ROLE regress_plh_reader;
SELECT node, query_id, locks_max FROM lock_history.lock_hungry_queries WHERE query_id IS NOT NULL;
SELECT count(*) > 0 AS rows FROM lock_history.fast_path;
SELECT query, count(*) FROM lock_history.lock_hungry_queries GROUP BY query;
SELECT a FROM lock_history.fast_path_advice() AS a WHERE a ~ '^(1|2)\. ';
RESET ROLE;
SELECT lock_history.revoke_reader('regress_plh_reader');
DROP ROLE regress_plh_reader;
-- kept: the same rows, with names of their own
CREATE TEMP TABLE before AS
SELECT f::text AS said FROM lock_history.fast_path AS f WHERE node = 'v15'
UNION ALL SELECT h::text FROM lock_history.lock_hungry_queries AS h WHERE node = 'v15'
UNION ALL SELECT lock_history.fast_path_advice(node => 'v15');
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(100), 'cliff', 'v15');
SELECT size_bytes > 500 AS has_size FROM lock_history.kept;
SELECT lock_history.reset();
SET pg_lock_history.incident = 'cliff';
CREATE TEMP TABLE after AS
SELECT f::text AS said FROM lock_history.fast_path AS f
UNION ALL SELECT h::text FROM lock_history.lock_hungry_queries AS h
UNION ALL SELECT lock_history.fast_path_advice();
SELECT count(*) FROM before;
SELECT said AS lost FROM (TABLE before EXCEPT ALL TABLE after) AS d;
SELECT said AS new FROM (TABLE after EXCEPT ALL TABLE before) AS d;
RESET pg_lock_history.incident;
SELECT count(*) FROM lock_history.fast_path;
SELECT lock_history.forget('cliff');
SELECT count(*) FROM lock_history.dim WHERE seg = 8;
