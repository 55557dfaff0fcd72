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
