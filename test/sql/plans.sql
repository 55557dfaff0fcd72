-- A new history is small, and reading it is thought cheap: a query that is thought
-- dear is compiled first (jit_above_cost), for longer than it runs. One view is
-- only read by functions that switch that off.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
CREATE FUNCTION pg_temp.cost_of(statement text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || statement INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END
$$;
SELECT s.what, round(c.cost) AS cost
FROM (SELECT v.viewname AS what, 'SELECT * FROM lock_history.' || quote_ident(v.viewname) AS statement
      FROM pg_views AS v WHERE v.schemaname = 'lock_history' AND v.viewname <> 'watched'
      UNION ALL
      SELECT 'the blockers of each wait',
             'SELECT w.*, (SELECT string_agg(b.kind, '','') FROM lock_history.blocking AS b WHERE b.node = w.node AND b.wait_id = w.wait_id) FROM lock_history.waits AS w') AS s
CROSS JOIN LATERAL pg_temp.cost_of(s.statement) AS c(cost)
WHERE c.cost > (SELECT p.boot_val::float8 FROM pg_settings AS p WHERE p.name = 'jit_above_cost');
