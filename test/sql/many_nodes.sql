-- What is asked of one server costs what that server has, however many there are.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
UPDATE lock_history.ring SET opened_at = pg_temp.t(0), is_empty = false, round = 1 WHERE seg = 0;
SELECT pg_temp.add_node('n' || g) FROM generate_series(1, 20) AS g \g /dev/null
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, backend_type, query_id)
SELECT 0, n.node_id, d, kind, 'LWLock', 'WALWrite', 'client backend', d FROM lock_history.node AS n, generate_series(1, 50) AS d, generate_series(1, 2) AS kind;
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
SELECT 0, n.node_id, 1, pg_temp.t(s), 1000, 50, 50, 0, 25, (SELECT array_agg(d::smallint) FROM generate_series(1, 50) AS d), (SELECT array_agg(20::smallint) FROM generate_series(1, 50) AS d)
FROM lock_history.node AS n, generate_series(0, 99) AS s;
INSERT INTO lock_history.lwlock (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
SELECT 0, n.node_id, 1, pg_temp.t(s), 1000, a.numbers, a.numbers, a.numbers, a.numbers, a.numbers, a.numbers
FROM lock_history.node AS n, generate_series(0, 99) AS s, (SELECT array_agg(d::smallint) AS numbers FROM generate_series(1, 50) AS d) AS a;
ANALYZE lock_history.second_0, lock_history.dim_0, lock_history.lwlock_0, lock_history.node;
-- the most rows that any part of the plan has made or thrown away
CREATE FUNCTION pg_temp.most_rows(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan jsonb;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, TIMING off, FORMAT json) ' || statement INTO plan;
    RETURN (SELECT max(((p -> 'Actual Rows')::numeric + coalesce((p -> 'Rows Removed by Join Filter')::numeric, 0)) * (p -> 'Actual Loops')::numeric)
            FROM jsonb_path_query(plan, 'strict $.**') AS p WHERE p ? 'Actual Rows');
END
$$;
-- it has 5000
SELECT s.what, pg_temp.most_rows(s.statement) BETWEEN 5000 AND 10000 AS as_many_as_it_has
FROM (VALUES (1, 'load', $$SELECT count(query_id) FROM lock_history.load WHERE node = 'n7'$$),
             (2, 'load_history', $$SELECT sum(load_ms) FROM lock_history.load_history WHERE node = 'n7'$$),
             (3, 'load_by_minute', $$SELECT sum(load_ms) FROM lock_history.load_by_minute WHERE node = 'n7'$$),
             (4, 'lwlocks', $$SELECT count(*) FROM lock_history.lwlocks WHERE node = 'n7'$$)) AS s(no, what, statement)
ORDER BY s.no;
-- and of all of them what they have together
SELECT s.what, pg_temp.most_rows(s.statement) BETWEEN 100000 AND 200000 AS as_many_as_there_are
FROM (VALUES (1, 'load', $$SELECT count(query_id) FROM lock_history.load$$),
             (2, 'lwlocks', $$SELECT count(*) FROM lock_history.lwlocks$$)) AS s(no, what, statement)
ORDER BY s.no;
SELECT count(*), count(DISTINCT node), round(sum(aas)::numeric, 1) AS aas FROM lock_history.load;
