-- Load by second becomes load by minute, and is read once.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
CREATE ROLE regress_plh_reader;
CREATE ROLE regress_plh_other;
SELECT lock_history.grant_reader('regress_plh_reader');
SELECT pg_temp.add_node('here', true) AS here, pg_temp.add_node('elsewhere') AS elsewhere \gset
UPDATE lock_history.node SET first_seen = pg_temp.t(2.5) WHERE node = 'elsewhere';
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period)
SELECT n, 1, pg_temp.t(0), pg_temp.t(600), 1, '1 s' FROM unnest(ARRAY[:here, :elsewhere]) AS n;
UPDATE lock_history.ring SET round = 5, opened_at = pg_temp.t(0), closed_at = pg_temp.t(210), is_empty = false WHERE seg = 3;
UPDATE lock_history.ring SET round = 5, opened_at = pg_temp.t(210), is_empty = false WHERE seg = 4;
UPDATE lock_history.minute_ring SET round = 1, opened_at = pg_temp.t(0), is_empty = false WHERE seg = 2;
-- statements 1 to 6 of the reader, on CPU and waiting; the last two have no statement
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, backend_type, datid, datname, usesysid, usename, query_id)
SELECT s.seg, n.node, d.id, 1, CASE WHEN d.id % 2 = 0 THEN 'CPU' ELSE 'IO' END, CASE WHEN d.id % 2 = 0 THEN 'CPU' ELSE 'WALSync' END,
       'client backend', 5, 'app', 'regress_plh_reader'::regrole, 'regress_plh_reader', CASE WHEN d.id < 6 THEN d.id + 1 END
FROM generate_series(0, 7) AS d(id), (VALUES (3), (4)) AS s(seg), (VALUES (:here), (:elsewhere)) AS n(node);
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname, usesysid, usename, query_id, query, seen_at)
SELECT 3, n.node, 0, 5, 5, 'app', 'regress_plh_reader'::regrole, 'regress_plh_reader', q, 'SELECT ' || q, pg_temp.t(1)
FROM generate_series(1, 6) AS q, (VALUES (:here), (:elsewhere)) AS n(node);
-- 205 s, but for 20 in which nobody was active and 10 that were not sampled; the smaller the number the more load
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms, carry)
SELECT 3, :here, 1, pg_temp.t(s), 1000, 10, 8, 1, 2, '{0,1,2,3,4,5,6,7}', '{800,700,600,500,400,300,200,100}', NULL
FROM generate_series(0, 204) AS s WHERE s NOT BETWEEN 70 AND 99;
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms, carry)
VALUES (3, :elsewhere, 1, pg_temp.t(5), 1000, 40000, 40000, 0, 0, '{2}', '{0}', '{1000}'),
       (4, :here, 1, pg_temp.t(215), 1000, 1, 1, 0, 0, '{2}', '{1000}', NULL);
INSERT INTO lock_history.gap (seg, node_id, run, began, ended, reason, lost) VALUES
    (3, :here, 1, pg_temp.t(90), pg_temp.t(95), 'late', 0), (3, :here, 1, pg_temp.t(94), pg_temp.t(100), 'late', 0),
    (3, :elsewhere, 1, pg_temp.t(20.7), pg_temp.t(24.2), 'writer blocked', 5);
CREATE VIEW pg_temp.sums AS
SELECT (SELECT count(*) || ' rows, ' || sum(load_ms) || ' ms' FROM lock_history.load_history) AS load_history,
       (SELECT count(*) || ' rows, ' || sum(load_ms) || ' ms' FROM lock_history.load_by_minute) AS load_by_minute,
       lock_history.sampled_ms('here', pg_temp.t(0), pg_temp.t(600)) AS sampled_ms,
       lock_history.sampled_ms('here', pg_temp.t(60), pg_temp.t(120)) AS in_a_minute,
       lock_history.sampled_ms('here', pg_temp.t(595), pg_temp.t(605)) AS at_the_end;
SELECT * FROM pg_temp.sums;
-- three combinations of a minute are kept as they are; two steps
SELECT lock_history.roll_up(3::smallint, 2::smallint, '2 min', 3);
SELECT is_rolled, rolled_to FROM lock_history.ring WHERE seg = 3;
SELECT * FROM pg_temp.sums;
SELECT lock_history.roll_up(3::smallint, 2::smallint, '2 min', 3), is_rolled FROM lock_history.ring WHERE seg = 3;
SELECT lock_history.roll_up(3::smallint, 2::smallint, '2 min', 3), is_rolled FROM lock_history.ring WHERE seg = 3;
SELECT is_rolled, rolled_to FROM lock_history.ring WHERE seg = 3;
SELECT lock_history.roll_up(3::smallint, 2::smallint, '2 min', 3);
SELECT node_id = :here AS here, at, began, ended, source, sampled_ms, clients, round(active::numeric, 2) AS active, idle_in_transaction, round(waiting::numeric, 2) AS waiting,
       cardinality(dims) AS combinations, load_ms FROM lock_history.minute ORDER BY node_id, at;
SELECT node_id = :here AS here, kind, count(*), count(DISTINCT dim_id) AS numbers, count(DISTINCT query_id) AS statements FROM lock_history.minute_dim GROUP BY node_id, kind ORDER BY node_id, kind;
SELECT node_id = :here AS here, began, ended FROM lock_history.minute_gap;
SELECT * FROM pg_temp.sums;
SELECT h.at, h.length, d.wait_event, d.query_id, h.load_ms FROM lock_history.load_by_minute AS h JOIN lock_history.load_dictionary AS d USING (seg, node_id, dim_id)
WHERE h.at = pg_temp.t(0) AND h.node = 'here' ORDER BY h.load_ms DESC, d.query_id;
SELECT query_id, query, round(aas::numeric, 3) AS aas, wait_event FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(600), 3, 'here');
SELECT m.key, m.value FROM lock_history.status() AS m WHERE m.key IN ('oldest_minutes', 'rolled_up_to');
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(240), '1 min', 'here');
-- a segment that was opened for a fact of before begins where seconds of the one before end
BEGIN;
UPDATE lock_history.ring SET opened_at = pg_temp.t(200), closed_at = pg_temp.t(600) WHERE seg = 4;
SELECT lock_history.roll_up(4::smallint, 2::smallint, '2 min');
SELECT began, ended, sampled_ms FROM lock_history.minute WHERE source = 44;
ROLLBACK;
-- the segment is emptied: nothing changes but the step
BEGIN;
TRUNCATE lock_history.second_3, lock_history.dim_3, lock_history.gap_3;
UPDATE lock_history.ring SET is_empty = true WHERE seg = 3;
COMMIT;
SELECT * FROM pg_temp.sums;
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(240), '1 min', 'here');
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(30), pg_temp.t(90), '15 s', 'here');
-- a range that cuts minutes is divided by what it is of them
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(25), pg_temp.t(85), '10 min', 'here');
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(-20), pg_temp.t(15), '10 s', 'elsewhere');
-- half of the third minute is there by second: load of the other half stays in it
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(190), pg_temp.t(230), '10 s', 'here');
SELECT query_id, round(aas::numeric, 3) AS aas, wait_event FROM lock_history.top_queries(pg_temp.t(90), pg_temp.t(110), 2, 'here')
UNION ALL
SELECT query_id, round(aas::numeric, 3) AS aas, wait_event FROM lock_history.top_queries(pg_temp.t(205), pg_temp.t(225), 3, 'here');
\set SHOW_CONTEXT never
SELECT lock_history.keep(pg_temp.t(30), pg_temp.t(90), 'of minutes', 'here');
\set SHOW_CONTEXT errors
SELECT min(at), count(DISTINCT length) FROM lock_history.load_history;
SELECT query_id, query, round(aas::numeric, 3) AS aas, wait_event FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(600), 3, 'here');
SELECT query_id, query, round(aas::numeric, 3) AS aas, wait_event FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(9000), 3, 'here');
SELECT m.key, m.value FROM lock_history.status() AS m WHERE m.key IN ('oldest_minutes', 'rolled_up_to');
SELECT query_id, round(aas::numeric, 3) AS aas FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(60), 2, 'here')
UNION ALL
SELECT query_id, round(aas::numeric, 3) AS aas FROM lock_history.top_queries(pg_temp.t(15), pg_temp.t(30), 2, 'here');
-- numbers found again, and the second half of them
INSERT INTO lock_history.minute_dim (seg, node_id, dim_id, kind, dim_key) SELECT 2, :here, CASE WHEN i < 32768 THEN i ELSE i - 65536 END, 1, i FROM generate_series(6, 32767) AS i;
UPDATE lock_history.ring SET closed_at = pg_temp.t(600) WHERE seg = 4;
SELECT lock_history.roll_up(4::smallint, 2::smallint, '2 min', 3), lock_history.roll_up(4::smallint, 2::smallint, '2 min', 3);
SELECT cardinality(dims) AS combinations, load_ms, (SELECT max(dim_id) FROM lock_history.minute_dim WHERE dim_key NOT BETWEEN 6 AND 32767) AS numbers
FROM lock_history.minute WHERE at = pg_temp.t(180) ORDER BY source;
UPDATE lock_history.ring SET is_rolled = false, rolled_to = NULL WHERE seg = 4;
DELETE FROM lock_history.minute WHERE source = 44;
UPDATE lock_history.dim SET wait_event = 'new' WHERE seg = 4 AND dim_id = 2;
SELECT lock_history.roll_up(4::smallint, 2::smallint, '2 min', 3);
SELECT dims, load_ms FROM lock_history.minute WHERE source = 44;
SELECT d.wait_event, d.query_id, h.load_ms FROM lock_history.load_by_minute AS h JOIN lock_history.load_dictionary AS d USING (seg, node_id, dim_id) WHERE h.at >= pg_temp.t(200);
-- masked
SET ROLE regress_plh_reader;
SELECT h.node, count(d.query_id) AS shown, count(*) AS of FROM lock_history.load_history AS h JOIN lock_history.load_dictionary AS d USING (seg, node_id, dim_id) GROUP BY h.node ORDER BY h.node;
SELECT node, count(query_id) AS shown, count(*) AS of FROM lock_history.queries GROUP BY node ORDER BY node;
SELECT count(*) FROM lock_history.minute;
SELECT lock_history.roll_up(4::smallint, 2::smallint, '2 min');
RESET ROLE;
-- at most 64 relation locks
CREATE FUNCTION pg_temp.locks_taken(statement text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    taken integer;
BEGIN
    BEGIN
        EXECUTE 'CREATE TEMP TABLE result ON COMMIT DROP AS ' || statement;
        SELECT count(DISTINCT l.relation) INTO taken
        FROM pg_locks AS l
        JOIN pg_class AS c ON c.oid = l.relation
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relnamespace = 'lock_history'::regnamespace;
        RAISE EXCEPTION USING ERRCODE = 'PL001', MESSAGE = taken::text;
    EXCEPTION WHEN SQLSTATE 'PL001' THEN
        RETURN SQLERRM::integer;
    END;
END
$$;
SELECT s.what, l.taken BETWEEN 8 AND 64 AS fits, CASE WHEN l.taken NOT BETWEEN 8 AND 64 THEN l.taken END AS taken
FROM (VALUES (1, 'load', 'SELECT * FROM lock_history.load'),
             (2, 'sessions', 'SELECT * FROM lock_history.sessions'),
             (3, 'queries', 'SELECT * FROM lock_history.queries'),
             (4, 'top_queries', 'SELECT * FROM lock_history.top_queries(pg_temp.t(0), pg_temp.t(600), node => ''here'')'),
             (5, 'top_queries of days', 'SELECT * FROM lock_history.top_queries(pg_temp.t(0), now(), node => ''here'')'),
             (6, 'load and what it is divided by', 'SELECT h.node, lock_history.sampled_ms(h.node, now() - interval ''1 h'', now()) FROM lock_history.load_history AS h JOIN lock_history.load_dictionary AS d USING (seg, node_id, dim_id) GROUP BY h.node')
) AS s(no, what, statement)
CROSS JOIN LATERAL pg_temp.locks_taken(s.statement) AS l(taken)
ORDER BY s.no;

SET client_min_messages = error;
DROP EXTENSION pg_lock_history CASCADE;
DROP ROLE regress_plh_reader, regress_plh_other;
