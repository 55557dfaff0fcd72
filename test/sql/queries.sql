-- Texts of statements, and which statements make the load.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
CREATE ROLE regress_plh_reader;
CREATE ROLE regress_plh_other;
CREATE ROLE regress_plh_monitor IN ROLE pg_monitor;
GRANT regress_plh_reader TO regress_plh_monitor WITH ADMIN OPTION;
SELECT lock_history.grant_reader('regress_plh_reader');
SELECT pg_temp.add_node('here', true) AS here, pg_temp.add_node('elsewhere') AS elsewhere \gset
UPDATE lock_history.ring SET round = 1, opened_at = pg_temp.t(0), closed_at = CASE seg WHEN 0 THEN pg_temp.t(60) END, is_empty = false WHERE seg < 2;
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period)
SELECT n, 1, pg_temp.t(0), pg_temp.t(120), 1, '1 s' FROM unnest(ARRAY[:here, :elsewhere]) AS n;
-- what load is made of: the numbers mean something else in each segment and node
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, backend_type, datid, datname, usesysid, usename, query_id)
SELECT d.seg, d.node, d.id, 1, d.type, d.event, 'client backend', 5, 'app', d.role::regrole, d.role, d.query
FROM (VALUES (0, :here, 1, 'CPU', 'CPU', 'regress_plh_reader', 11), (0, :here, 2, 'IO', 'DataFileRead', 'regress_plh_reader', 11),
             (0, :here, -32768, 'Lock', 'relation', 'regress_plh_other', 22), (1, :here, 1, 'CPU', 'CPU', 'regress_plh_other', 22),
             (0, :elsewhere, 1, 'CPU', 'CPU', 'regress_plh_reader', 33), (1, :here, 2, 'CPU', 'CPU', 'regress_plh_other', NULL))
     AS d(seg, node, id, type, event, role, query);
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id, query, seen_at)
SELECT d.seg, d.node, 0, 5, 5, 'app', d.role::regrole, d.role, d.query, d.text, pg_temp.t(d.at)
FROM (VALUES (0, :here, 'regress_plh_reader', 11, 'SELECT 1 + 1', 1), (0, :here, 'regress_plh_other', 22, 'SELECT secret()', 2),
             (1, :here, 'regress_plh_other', 22, 'SELECT secret() /* later */', 61), (1, :here, 'regress_plh_other', 11, 'SELECT 5 + 6', 62),
             (0, :elsewhere, 'regress_plh_reader', 33, 'SELECT elsewhere', 3))
     AS d(seg, node, role, query, text, at);
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms, carry)
SELECT s.seg, s.node, 1, pg_temp.t(s.at), 1000, 10, 5, 0, 0, s.dims::smallint[], s.ms::smallint[], s.carry::smallint[]
FROM (VALUES (0, :here, 10, '{1,2,-32768}', '{1000,2000,500}', NULL), (0, :here, 11, '{-32768}', '{17232}', '{1}'),
             (1, :here, 70, '{1,2}', '{400,100}', NULL), (0, :elsewhere, 10, '{1}', '{7000}', NULL))
     AS s(seg, node, at, dims, ms, carry);

SELECT node, at, wait_event, usename, query_id, aas FROM lock_history.load ORDER BY node, at, aas;
SELECT node, query_id, datname, usename, query, first_seen FROM lock_history.queries ORDER BY node, query_id, usename;
SELECT h.node, h.at, h.length, d.query_id, d.wait_event, h.load_ms FROM lock_history.load_history AS h JOIN lock_history.load_dictionary AS d USING (seg, node_id, dim_id) WHERE h.at >= pg_temp.t(11) ORDER BY h.at, h.load_ms;
-- 120 s, of which 20 were not sampled
INSERT INTO lock_history.gap (seg, node_id, run, began, ended, reason, lost) VALUES
    (0, :here, 1, pg_temp.t(30), pg_temp.t(45), 'late', 0), (0, :here, 1, pg_temp.t(40), pg_temp.t(50), 'writer blocked', 3), (0, :elsewhere, 1, pg_temp.t(0), pg_temp.t(99), 'late', 0);
SELECT lock_history.sampled_ms('here', pg_temp.t(0), pg_temp.t(120)), lock_history.sampled_ms('here', pg_temp.t(-100), pg_temp.t(50)),
       lock_history.sampled_ms('here', pg_temp.t(35), pg_temp.t(40)), lock_history.sampled_ms('nobody', pg_temp.t(0), pg_temp.t(120));
SELECT query_id, datname, query, aas, round(share::numeric, 3) AS share, wait_event_type, wait_event, round(wait_share::numeric, 3) AS wait_share
FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(120), node => 'here');
SELECT query_id, query, aas FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(11), 1, node => 'here');
SELECT query_id, query, aas, wait_event FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(120));
SELECT count(*) FROM lock_history.top_queries(pg_temp.t(500), pg_temp.t(600), node => 'here');

-- masked as in pg_stat_activity
SET ROLE regress_plh_reader;
SELECT node, query_id, usename, query FROM lock_history.queries ORDER BY node, query_id, usename, query;
SELECT query_id, query, aas FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(120), node => 'here');
SELECT query_id, query, aas FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(120), node => 'elsewhere');
SELECT count(*) FROM lock_history.queries WHERE query LIKE '%secret%' OR query_id = 22;
SELECT count(query_id), count(*) > 0 AS there FROM lock_history.load_dictionary WHERE usename = 'regress_plh_other';
SELECT query FROM lock_history.dim;
SET ROLE regress_plh_monitor;
SELECT count(*) FROM lock_history.queries WHERE query LIKE '%secret%' AND query_id = 22;
RESET ROLE;

-- kept with the waits of the time
SELECT pg_temp.add_actor(:here, 101);
SELECT pg_temp.add_wait('episode', :here, 1, 101, 8, 10, 20, '{}'::pg_temp.edge[]);
SELECT lock_history.keep(pg_temp.t(5), pg_temp.t(20), 'kept', 'here');
SET pg_lock_history.incident = 'kept';
SELECT node, query_id, usename, query, first_seen FROM lock_history.queries ORDER BY query_id, usename;
RESET pg_lock_history.incident;
SELECT lock_history.forget('kept');
-- their texts stand in an older segment, and with minutes only
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, datid, datname, usesysid, usename, query_id)
SELECT 1, :here, q, 1, 'CPU', 'CPU', 5, 'app', 'regress_plh_other'::regrole, 'regress_plh_other', q FROM unnest('{44,55}'::bigint[]) AS q;
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, usesysid, query_id, query, seen_at)
VALUES (0, :here, 0, 5, 5, 'regress_plh_other'::regrole, 44, 'SELECT old', pg_temp.t(4));
INSERT INTO lock_history.minute_dim (seg, node_id, dim_id, kind, datid, usesysid, query_id, query, seen_at)
VALUES (2, :here, 0, 5, 5, 'regress_plh_other'::regrole, 55, 'SELECT older', pg_temp.t(-900));
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
VALUES (1, :here, 1, pg_temp.t(200), 1000, 10, 5, 0, 0, '{44,55}', '{100,50}');
SELECT lock_history.keep(pg_temp.t(199), pg_temp.t(202), 'kept', 'here');
SET pg_lock_history.incident = 'kept';
SELECT query_id, query FROM lock_history.queries ORDER BY query_id;
RESET pg_lock_history.incident;
SELECT lock_history.forget('kept');
SELECT count(*) FROM lock_history.kept_dim;

DROP EXTENSION pg_lock_history CASCADE;
DROP ROLE regress_plh_reader, regress_plh_other, regress_plh_monitor;
