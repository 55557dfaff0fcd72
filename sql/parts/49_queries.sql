-- Statements, by the identifiers that load shows.

-- The text is one that somebody was seen running: with its constants, unless
-- query_text says otherwise.  So it is masked as that session's would be.
CREATE VIEW lock_history.queries AS
SELECT (SELECT n.node FROM lock_history.recorded AS n WHERE n.node_id = q.node_id) AS node,
       CASE WHEN q.may_see THEN q.query_id END AS query_id, q.datname, q.usename,
       CASE WHEN q.may_see THEN q.query ELSE '<insufficient privilege>' END AS query, q.first_seen
FROM (SELECT d.node_id, d.query_id, pg_catalog.max(d.datname) AS datname, pg_catalog.max(d.usename) AS usename,
             pg_catalog.min(d.seen_at) AS first_seen, (pg_catalog.array_agg(d.query ORDER BY d.seen_at DESC))[1] AS query,
             (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
             OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE AS may_see
      FROM lock_history.dim AS d
      WHERE d.kind = 5 AND d.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)
        AND d.seg <= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 7 ELSE 8 END)
        AND ((SELECT lock_history.incident()) IS NULL
             OR d.node_id = (SELECT r.node_id FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident()))
      GROUP BY d.node_id, d.query_id, d.datid, d.usesysid) AS q;

GRANT SELECT ON lock_history.queries TO pg_monitor;
COMMENT ON VIEW lock_history.queries IS
    'Texts of the statements that load tells by their identifiers; a row for each role and database that ran it';
COMMENT ON COLUMN lock_history.queries.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.queries.query_id IS 'query identifier; null: insufficient privilege';
COMMENT ON COLUMN lock_history.queries.datname IS 'database in which it ran';
COMMENT ON COLUMN lock_history.queries.usename IS 'role that ran it';
COMMENT ON COLUMN lock_history.queries.query IS 'its text as it was last seen, as far as query_text and query_length keep it';
COMMENT ON COLUMN lock_history.queries.first_seen IS 'when it was first seen running, as far as the history goes back';

CREATE FUNCTION lock_history.top_queries(
    since timestamptz DEFAULT pg_catalog.now() - interval '1 hour', until timestamptz DEFAULT pg_catalog.now(),
    n integer DEFAULT 10, node text DEFAULT NULL,
    OUT query_id bigint, OUT datname text, OUT query text, OUT aas double precision, OUT share double precision,
    OUT wait_event_type text, OUT wait_event text, OUT wait_share double precision)
RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    wanted text := coalesce(top_queries.node, lock_history.local_node());
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    RETURN QUERY
    WITH event AS (
        SELECT l.node, l.query_id, l.datname, l.wait_event_type, l.wait_event, sum(l.load_ms) AS load_ms
        FROM lock_history.load_history AS l
        WHERE l.at >= top_queries.since AND l.at < top_queries.until AND (wanted IS NULL OR l.node = wanted)
        GROUP BY l.node, l.query_id, l.datname, l.wait_event_type, l.wait_event
    ), statement AS (
        SELECT e.node, e.query_id, e.datname, sum(e.load_ms) AS load_ms,
               sum(sum(e.load_ms)) OVER () AS all_ms
        FROM event AS e
        GROUP BY e.node, e.query_id, e.datname
        ORDER BY sum(e.load_ms) DESC, e.query_id
        LIMIT greatest(top_queries.n, 0)
    ), known AS MATERIALIZED (
        SELECT t.node, t.query_id, t.datname, t.query, t.first_seen FROM lock_history.queries AS t
        WHERE t.query_id = ANY (ARRAY(SELECT s.query_id FROM statement AS s))
    )
    SELECT s.query_id, s.datname, q.query, s.load_ms / nullif(lock_history.sampled_ms(s.node, top_queries.since, top_queries.until), 0),
           (s.load_ms / s.all_ms)::double precision, l.wait_event_type, l.wait_event, (l.load_ms / s.load_ms)::double precision
    FROM statement AS s
    CROSS JOIN LATERAL (SELECT x.wait_event_type, x.wait_event, x.load_ms
                        FROM event AS x
                        WHERE x.node = s.node AND x.query_id IS NOT DISTINCT FROM s.query_id AND x.datname IS NOT DISTINCT FROM s.datname
                        ORDER BY x.load_ms DESC, x.wait_event LIMIT 1) AS l
    LEFT JOIN LATERAL (SELECT t.query FROM known AS t
                       WHERE t.node = s.node AND t.query_id = s.query_id AND t.datname IS NOT DISTINCT FROM s.datname
                       ORDER BY t.first_seen LIMIT 1) AS q ON true
    ORDER BY s.load_ms DESC, s.query_id;
END
$$;
COMMENT ON FUNCTION lock_history.top_queries(timestamptz, timestamptz, integer, text) IS
    'The statements that made the most load in a range, with their text, their share of all load and what they waited for most; null: load of no statement';
REVOKE ALL ON FUNCTION lock_history.top_queries(timestamptz, timestamptz, integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.top_queries(timestamptz, timestamptz, integer, text) TO pg_monitor;
