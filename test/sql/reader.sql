-- A role made a reader sees everything but what others do: in every view and
-- function, found in the catalog, so that a new one without masks fails here.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
CREATE ROLE regress_plh_own;
CREATE ROLE regress_plh_reader;
CREATE ROLE regress_plh_monitor IN ROLE pg_monitor;
CREATE ROLE regress_plh_nobody;
SELECT lock_history.grant_reader('regress_plh_reader');
SELECT pg_temp.add_node('here', true) AS n \gset
-- 101 blocks, 104 waits, of others; 102 waits, 103 stands behind, of the reader
SELECT pg_temp.add_actor(:n, 101, role => 'regress_plh_own', query => 'secret of 101'), pg_temp.add_actor(:n, 104, role => 'regress_plh_own', query => 'secret of 104'),
       pg_temp.add_actor(:n, 102, role => 'regress_plh_reader', query => 'own text of 102'), pg_temp.add_actor(:n, 103, role => 'regress_plh_reader', query => 'own text of 103') \g /dev/null
UPDATE lock_history.actor SET query_id = 424242, client_addr = '203.0.113.9' WHERE pid IN (101, 104);
UPDATE lock_history.actor SET stmt_first_seen = ARRAY[seen_at], stmt_query_id = ARRAY[query_id], stmt_query = ARRAY[query], stmt_left_out = 0 WHERE pid IN (101, 102);
SELECT pg_temp.add_wait('episode', :n, 1002, 102, 8, 10, 20, ARRAY[(1,101,2,10,NULL), (3,101,0,10,NULL)]::pg_temp.edge[], 1),
       pg_temp.add_wait('episode', :n, 1003, 103, 8, 11, 20, ARRAY[(2,102,256,11,NULL), (3,101,0,11,NULL)]::pg_temp.edge[], 2),
       pg_temp.add_wait('episode', :n, 1004, 104, 8, 12, 20, ARRAY[(1,101,2,12,NULL), (2,103,256,12,NULL), (3,101,0,12,NULL)]::pg_temp.edge[], 3),
       pg_temp.add_wait('episode', :n, 1005, 104, 8, 30, 40, ARRAY[(1,102,2,30,NULL), (3,102,0,30,NULL)]::pg_temp.edge[], 1, lock => 2) \g /dev/null
INSERT INTO lock_history.short_wait_0 (seg, node_id, at, locktype, query_id, waits, total_ms, max_ms) VALUES (0, :n, pg_temp.t(12), 'relation', 424242, 3, 9, 5);
INSERT INTO lock_history.deadlock_0 (seg, node_id, run, at, deadlock_id, member, pid, is_victim, actor_id) VALUES (0, :n, 1, pg_temp.t(13), 1, 1, 104, true, 104), (0, :n, 1, pg_temp.t(13), 1, 2, 103, false, 103);
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, usesysid, usename, query_id)
VALUES (0, :n, 1, 1, 'CPU', 'CPU', 'regress_plh_own'::regrole, 'regress_plh_own', 424242), (0, :n, 2, 1, 'CPU', 'own text', 'regress_plh_reader'::regrole, 'regress_plh_reader', 434343);
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms) VALUES (0, :n, 1, pg_temp.t(13), 1000, 4, 2, 1, 0, '{1,2}', '{1000,1000}');
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id, query, seen_at)
SELECT 0, :n, t.dim_id, t.kind, 5, 'lab', t.role::regrole, t.role, t.query_id, t.query, pg_temp.t(12)
FROM (VALUES (5, 7, NULL, NULL, NULL::text), (6, 4, 'regress_plh_own', 424242, NULL), (7, 4, 'regress_plh_reader', 434343, NULL),
             (0, 5, 'regress_plh_own', 424242, 'SELECT secret'), (0, 5, 'regress_plh_reader', 434343, 'own text')) AS t(dim_id, kind, role, query_id, query);
INSERT INTO lock_history.fastpath (seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
VALUES (0, :n, 1, pg_temp.t(13), 150000, 64, 16, '{5}', '{4}', '{16}', '{3}', '{9}');
INSERT INTO lock_history.hungry (seg, node_id, run, at, last_at, server_version_num, max_locks, slots, dims, locks_max, slots_max, spilled_max, looks, looks_full, sessions)
VALUES (0, :n, 1, pg_temp.t(13), pg_temp.t(13), 150000, 64, 16, '{6,7}', '{25,25}', '{16,16}', '{9,9}', '{5,4}', '{5,4}', '{2,2}');
INSERT INTO lock_history.anomaly (seg, node_id, run, written_at, started_at, detected_at, ended_at, ended_as, wait_event_type, observed, expected, band, leading_event, root_pid)
VALUES (0, :n, 1, pg_temp.t(40), pg_temp.t(10), pg_temp.t(30), pg_temp.t(40), 'normal', NULL, 9, 1, 3, 'Lock relation', 101);
INSERT INTO lock_history.conflict (seg, node_id, run, at, conflict, ended_session, pid, actor_id) VALUES (0, :n, 1, pg_temp.t(13), 'lock', false, 101, 101), (0, :n, 1, pg_temp.t(13), 'snapshot', true, 102, 102);
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(60), 'kept', 'here');
-- all that can be read: each view, and each function that returns rows, called
-- with values by the names of its arguments, those without a default
CREATE FUNCTION pg_temp.readable() RETURNS TABLE (object text, statement text) LANGUAGE sql AS $$
    SELECT 'view ' || c.relname, format('SELECT v::text FROM lock_history.%I AS v', c.relname)
    FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'v'
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure,
           format('SELECT f::text FROM lock_history.%I(%s) AS f', p.proname,
                  (SELECT string_agg(format('%I => %s::%s', a.name,
                              CASE WHEN a.name = 'at' THEN quote_literal('2026-03-01 14:30:15+00') WHEN a.name = 'wait_id' THEN '1004'
                                   WHEN a.name = 'since' THEN quote_literal('2026-03-01 14:30:00+00') WHEN a.name = 'until' THEN quote_literal('2026-03-01 14:31:00+00')
                                   WHEN a.name IN ('pids', 'children', 'parents') THEN quote_literal('{1}') WHEN a.name = 'max_siblings' THEN '1'
                                   WHEN a.name = 'sentence' THEN quote_literal('a sentence') WHEN a.name = 'width' THEN '20'
                                   WHEN a.name = 'nodes' THEN 'NULL' WHEN a.name IN ('graph', 'waits') THEN 'true'
                                   ELSE 'no_value_for_this_argument_in_the_test' END, format_type(a.type, NULL)), ', ' ORDER BY a.ord)
                   FROM unnest(p.proargtypes::oid[], p.proargnames[1:p.pronargs]) WITH ORDINALITY AS a(type, name, ord)
                   WHERE a.ord <= p.pronargs - p.pronargdefaults))
    FROM pg_proc AS p WHERE p.pronamespace = 'lock_history'::regnamespace AND p.proretset
$$;
CREATE TEMP TABLE readable AS SELECT r.object, r.statement FROM pg_temp.readable() AS r;
CREATE FUNCTION pg_temp.sees(statement text, what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (%s) AS s(row) WHERE s.row ~ %L', statement, what) INTO n;
    RETURN CASE WHEN n > 0 THEN 'yes' ELSE 'no' END;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 'denied';
END
$$;
GRANT SELECT ON readable TO PUBLIC;
GRANT EXECUTE ON FUNCTION pg_temp.sees(text, text) TO PUBLIC;
-- secrets: the text, the query id or the address of somebody else
SET ROLE regress_plh_reader;
SELECT r.object, pg_temp.sees(r.statement, 'secret|424242|203\.0\.113\.9') AS secret, pg_temp.sees(r.statement, 'own text') AS own FROM readable AS r ORDER BY r.object COLLATE "C";
SET pg_lock_history.incident = 'kept';
SELECT r.object, pg_temp.sees(r.statement, 'secret|424242|203\.0\.113\.9') AS secret, pg_temp.sees(r.statement, 'own text') AS own FROM readable AS r ORDER BY r.object COLLATE "C";
RESET pg_lock_history.incident;
SET ROLE regress_plh_monitor;
SELECT r.object, pg_temp.sees(r.statement, 'secret|424242|203\.0\.113\.9') AS secret, pg_temp.sees(r.statement, 'own text') AS own FROM readable AS r ORDER BY r.object COLLATE "C";
SET ROLE regress_plh_nobody;
SELECT r.object FROM readable AS r WHERE pg_temp.sees(r.statement, '.') <> 'denied';
RESET ROLE;
-- the same objects for a reader and for pg_monitor
SELECT a.what, string_agg(a.grantee::regrole::text, ', ') AS only_for FROM (
    SELECT x.grantee, c.relname || ' ' || x.privilege_type AS what FROM pg_class AS c, aclexplode(c.relacl) AS x WHERE c.relnamespace = 'lock_history'::regnamespace
    UNION ALL SELECT x.grantee, p.oid::regprocedure || ' ' || x.privilege_type FROM pg_proc AS p, aclexplode(p.proacl) AS x WHERE p.pronamespace = 'lock_history'::regnamespace
    UNION ALL SELECT x.grantee, t.typname || ' ' || x.privilege_type FROM pg_type AS t, aclexplode(t.typacl) AS x WHERE t.typnamespace = 'lock_history'::regnamespace
    UNION ALL SELECT x.grantee, n.nspname || ' ' || x.privilege_type FROM pg_namespace AS n, aclexplode(n.nspacl) AS x WHERE n.nspname = 'lock_history') AS a
WHERE a.grantee IN ('pg_monitor'::regrole, 'regress_plh_reader'::regrole)
GROUP BY a.what HAVING count(*) <> 2;
SELECT lock_history.revoke_reader('regress_plh_reader');
SET ROLE regress_plh_reader;
SELECT r.object FROM readable AS r WHERE pg_temp.sees(r.statement, '.') <> 'denied';
RESET ROLE;
-- nothing is left of it, so the role can go
DROP ROLE regress_plh_reader;
-- names are taken as they are
CREATE ROLE "regress plh Odd""name";
SELECT lock_history.grant_reader('regress plh Odd"name');
SELECT has_table_privilege('regress plh Odd"name', 'lock_history.waits', 'SELECT'), has_function_privilege('regress plh Odd"name', 'lock_history.reset()', 'EXECUTE') AS may_reset;
SELECT lock_history.revoke_reader('regress plh Odd"name');
DROP ROLE "regress plh Odd""name";
-- refused
SELECT lock_history.grant_reader('public');
SELECT lock_history.grant_reader('PUBLIC');
SELECT lock_history.grant_reader('pg_read_all_data');
SELECT lock_history.grant_reader('no_such_role');
SELECT lock_history.grant_reader(NULL);
DROP ROLE regress_plh_own, regress_plh_monitor, regress_plh_nobody;
