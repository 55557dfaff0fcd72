-- Is it running, and how full is the history?  Answers also when the library is
-- not preloaded: then with the worker's hint and whatever history there is.
CREATE FUNCTION lock_history.status(OUT key text, OUT value text)
RETURNS SETOF record
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH worker AS MATERIALIZED (
        SELECT w.key, w.value FROM lock_history.worker_status() AS w
    ), leaf AS (
        SELECT right(c.relname, 1)::smallint AS seg, sum(pg_total_relation_size(c.oid)) AS bytes
        FROM pg_class AS c
        WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relispartition AND c.relkind = 'r'
          AND c.relname ~ '_[0-7]$' AND c.relname !~ '^minute_'
        GROUP BY 1
    ), segment AS (
        SELECT s.seg, s.opened_at, s.closed_at, s.is_empty, l.bytes
        FROM lock_history.ring_segment AS s
        JOIN leaf AS l ON l.seg = s.seg
    ), bound AS (
        SELECT pg_size_bytes(coalesce(nullif(current_setting('pg_lock_history.max_size', true), ''), '1GB')) AS bytes
    )
    SELECT w.key, w.value FROM worker AS w
    UNION ALL
    SELECT f.key, f.value
    FROM (
        SELECT 'ring_fill' AS key,
               (SELECT round(100.0 * (sum(s.bytes) + (SELECT m.bytes FROM lock_history.minutes_state AS m)) / b.bytes)::text || ' % of ' || pg_size_pretty(b.bytes)
                FROM segment AS s, bound AS b GROUP BY b.bytes) AS value
        UNION ALL
        SELECT 'ring_segments',
               (SELECT string_agg(s.seg || ': ' || round(100.0 * s.bytes / (b.bytes / 8)) || ' %', ', ' ORDER BY s.seg)
                FROM segment AS s, bound AS b)
        UNION ALL
        SELECT 'current_segment',
               (SELECT max(s.seg)::text FROM segment AS s WHERE s.opened_at IS NOT NULL AND s.closed_at IS NULL)
        UNION ALL
        SELECT 'oldest_history',
               (SELECT min(s.opened_at)::text FROM segment AS s WHERE NOT s.is_empty)
        UNION ALL
        SELECT 'oldest_minutes', (SELECT m.since::text FROM lock_history.minutes_state AS m)
        UNION ALL
        SELECT 'rolled_up_to', (SELECT m.rolled_to::text FROM lock_history.minutes_state AS m)
        UNION ALL
        SELECT 'minutes_on_disk', (SELECT pg_size_pretty(m.bytes) FROM lock_history.minutes_state AS m)
        UNION ALL
        SELECT 'size_on_disk',
               (SELECT pg_size_pretty(sum(s.bytes) + (SELECT m.bytes FROM lock_history.minutes_state AS m)) FROM segment AS s)
        UNION ALL
        -- kept incidents do not count for max_size
        SELECT 'kept_incidents',
               (SELECT count(*) || ', ' || pg_size_pretty(
                           (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c
                            WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^kept_'))
                FROM lock_history.recorded AS r WHERE r.incident IS NOT NULL)
        UNION ALL
        -- not incident(): who reads one that is gone is to see it here
        SELECT 'reading_incident', nullif(current_setting('pg_lock_history.incident', true), '')
        UNION ALL
        SELECT 'nodes', (SELECT coalesce(string_agg(n.node, ', ' ORDER BY n.node), '') FROM lock_history.node_state AS n)
    ) AS f
    -- what the worker tells itself it knows better
    WHERE NOT EXISTS (SELECT FROM worker AS w WHERE w.key = f.key)
$$;
COMMENT ON FUNCTION lock_history.status() IS
    'Is it running, since when, last flush, last error and what to do, how full the ring is: key and value';
REVOKE ALL ON FUNCTION lock_history.status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.status() TO pg_monitor;
