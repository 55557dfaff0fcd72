-- Reading a view takes at most 64 relation locks: the observer's reader does
-- not fall off the cliff it is there to show.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
SELECT pg_temp.add_actor(:n, 101, seg => s::smallint), pg_temp.add_actor(:n, 102, seg => s::smallint) FROM generate_series(0, 7) AS s \g /dev/null
SELECT pg_temp.add_wait('episode', :n, s, 102, 8, 0.5, 3.0, ARRAY[(1,101,2,0.5,NULL), (3,101,0,0.5,NULL)]::pg_temp.edge[], s, seg => s),
       pg_temp.add_wait('open', :n, 10 + s, 102, 8, 0.5, NULL, ARRAY[(1,101,2,0.5,NULL), (3,101,0,0.5,NULL)]::pg_temp.edge[], s, seg => s)
FROM generate_series(0, 7) AS s \g /dev/null
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, datid, datname) SELECT s, :n, 1, 7, 5, 'shop' FROM generate_series(0, 7) AS s;
INSERT INTO lock_history.fastpath (seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
SELECT s, :n, 1, pg_temp.t(s), 150020, 64, 16, '{1}', '{8}', '{16}', '{8}', '{86}' FROM generate_series(0, 7) AS s;
CREATE FUNCTION pg_temp.locks_taken(statement text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    taken integer;
BEGIN
    -- the locks of a statement stay until its transaction ends, or is undone
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
FROM (VALUES
    (1, 'waits', 'SELECT * FROM lock_history.waits'),
    (2, 'waits of a time', $$SELECT * FROM lock_history.waits WHERE wait_start > '2026-03-01' AND node = 'n1'$$),
    (3, 'blocking', 'SELECT * FROM lock_history.blocking'),
    (4, 'root_blockers', 'SELECT * FROM lock_history.root_blockers'),
    (5, 'short_waits', 'SELECT * FROM lock_history.short_waits'),
    (6, 'gaps', 'SELECT * FROM lock_history.gaps'),
    (7, 'health', 'SELECT * FROM lock_history.health'),
    (8, 'blocking_tree_at', $$SELECT * FROM lock_history.blocking_tree_at('2026-03-01 14:30:01+00')$$),
    (9, 'blocking_all', 'SELECT * FROM lock_history.blocking_all(3)'),
    (10, 'worst_moments', 'SELECT * FROM lock_history.worst_moments()'),
    (11, 'root_blockers()', $$SELECT * FROM lock_history.root_blockers('2026-03-01 14:30:01+00')$$),
    (12, 'deadlocks', 'SELECT * FROM lock_history.deadlocks'),
    (13, 'load', 'SELECT * FROM lock_history.load'),
    (14, 'sessions', 'SELECT * FROM lock_history.sessions'),
    (15, 'load_by', $$SELECT * FROM lock_history.load_by('2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (16, 'blocker_statements', 'SELECT * FROM lock_history.blocker_statements'),
    (17, 'blocker_statements()', $$SELECT * FROM lock_history.blocker_statements('2026-03-01 14:30:01+00')$$),
    (18, 'fast_path', 'SELECT * FROM lock_history.fast_path'),
    (19, 'lock_hungry_queries', 'SELECT * FROM lock_history.lock_hungry_queries'),
    (20, 'fast_path_advice', 'SELECT * FROM lock_history.fast_path_advice()'),
    (21, 'anomalies', 'SELECT * FROM lock_history.anomalies'),
    (22, 'lwlocks', 'SELECT * FROM lock_history.lwlocks'),
    (23, 'lwlock_profile', 'SELECT * FROM lock_history.lwlock_profile()'),
    (24, 'hot_pages', 'SELECT * FROM lock_history.hot_pages'),
    (25, 'wait_histogram', 'SELECT * FROM lock_history.wait_histogram'),
    (26, 'hot_pages()', 'SELECT * FROM lock_history.hot_pages()'),
    (27, 'fast_path_advice of a cliff', $$SELECT * FROM lock_history.fast_path_advice('2026-03-01 14:30:00+00', node => 'n1')$$),
    (28, 'top_queries', $$SELECT * FROM lock_history.top_queries('2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (29, 'top_queries of days', $$SELECT * FROM lock_history.top_queries('2026-03-01 14:30:00+00', now())$$),
    (30, 'load_by of minutes', $$SELECT * FROM lock_history.load_by('2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00', '1 min')$$),
    (31, 'queries', 'SELECT * FROM lock_history.queries'),
    -- explain() gives back the locks of each part before it reads the next
    (32, 'explain', $$SELECT * FROM lock_history.explain('2026-03-01 14:30:00+00'::timestamptz, '2026-03-01 14:31:00+00')$$),
    (33, 'part watched', $$SELECT lock_history.explain_watched('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (34, 'part waits', $$SELECT lock_history.explain_waits('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (35, 'part short', $$SELECT lock_history.explain_short('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (36, 'part deadlocks', $$SELECT lock_history.explain_deadlocks('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (37, 'part load', $$SELECT lock_history.explain_load('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (38, 'part load of days', $$SELECT lock_history.explain_load('n1', '2026-03-01 14:30:00+00', now())$$),
    (39, 'part lwlocks', $$SELECT lock_history.explain_lwlocks('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (40, 'part pages', $$SELECT lock_history.explain_pages('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (41, 'part fast_path', $$SELECT lock_history.explain_fast_path('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (42, 'part anomalies', $$SELECT lock_history.explain_anomalies('n1', '2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (43, 'recovery_conflicts', 'SELECT * FROM lock_history.recovery_conflicts')
) AS s(no, what, statement)
CROSS JOIN LATERAL pg_temp.locks_taken(s.statement) AS l(taken)
ORDER BY s.no;
SELECT pg_temp.locks_taken('SELECT * FROM lock_history.status()') <= 64 AS status_fits, pg_temp.locks_taken('SELECT * FROM lock_history.kept') <= 64 AS kept_fits;
-- reading a kept incident too
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(10), 'kept', 'n1');
SET pg_lock_history.incident = 'kept';
SELECT s.what, l.taken BETWEEN 2 AND 64 AS fits, CASE WHEN l.taken NOT BETWEEN 2 AND 64 THEN l.taken END AS taken
FROM (VALUES
    (1, 'waits', 'SELECT * FROM lock_history.waits'),
    (2, 'blocking', 'SELECT * FROM lock_history.blocking'),
    (3, 'root_blockers', 'SELECT * FROM lock_history.root_blockers'),
    (4, 'short_waits', 'SELECT * FROM lock_history.short_waits'),
    (5, 'gaps', 'SELECT * FROM lock_history.gaps'),
    (6, 'health', 'SELECT * FROM lock_history.health'),
    (7, 'blocking_tree_at', $$SELECT * FROM lock_history.blocking_tree_at('14:30:01')$$),
    (8, 'blocking_all', 'SELECT * FROM lock_history.blocking_all(3)'),
    (9, 'worst_moments', 'SELECT * FROM lock_history.worst_moments()'),
    (10, 'deadlocks', 'SELECT * FROM lock_history.deadlocks'),
    (11, 'load', 'SELECT * FROM lock_history.load'),
    (12, 'load_by', $$SELECT * FROM lock_history.load_by('2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (13, 'blocker_statements', 'SELECT * FROM lock_history.blocker_statements'),
    (14, 'fast_path', 'SELECT * FROM lock_history.fast_path'),
    (15, 'lock_hungry_queries', 'SELECT * FROM lock_history.lock_hungry_queries'),
    (16, 'fast_path_advice', 'SELECT * FROM lock_history.fast_path_advice()'),
    (17, 'anomalies', 'SELECT * FROM lock_history.anomalies'),
    (18, 'lwlocks', 'SELECT * FROM lock_history.lwlocks'),
    (19, 'hot_pages', 'SELECT * FROM lock_history.hot_pages'),
    (20, 'wait_histogram', 'SELECT * FROM lock_history.wait_histogram'),
    (21, 'top_queries', $$SELECT * FROM lock_history.top_queries('2026-03-01 14:30:00+00', '2026-03-01 14:31:00+00')$$),
    (22, 'queries', 'SELECT * FROM lock_history.queries'),
    (23, 'explain', 'SELECT * FROM lock_history.explain()'),
    (24, 'recovery_conflicts', 'SELECT * FROM lock_history.recovery_conflicts')
) AS s(no, what, statement)
CROSS JOIN LATERAL pg_temp.locks_taken(s.statement) AS l(taken)
ORDER BY s.no;
