-- Statements, by the identifiers that load shows.

-- The text is one that somebody was seen running: with its constants, unless
-- query_text says otherwise.  So it is masked as that session's would be.
-- Of the leaves, since their parents would be two locks more.
DO $do$
BEGIN
    EXECUTE pg_catalog.format($sql$
        CREATE VIEW lock_history.queries AS
        SELECT (SELECT n.node FROM lock_history.recorded AS n WHERE n.node_id = q.node_id) AS node,
               CASE WHEN q.may_see THEN q.query_id END AS query_id, q.datname, q.usename,
               CASE WHEN q.may_see THEN q.query ELSE '<insufficient privilege>' END AS query, q.first_seen
        FROM (SELECT d.node_id, d.query_id, pg_catalog.max(d.datname) AS datname, pg_catalog.max(d.usename) AS usename,
                     pg_catalog.min(d.seen_at) AS first_seen, (pg_catalog.array_agg(d.query ORDER BY d.seen_at DESC))[1] AS query,
                     (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                     OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE AS may_see
              FROM (%s) AS d
              -- ring or kept incident
              WHERE d.node_id = ANY (ARRAY(SELECT r.node_id FROM lock_history.recorded AS r
                                           WHERE r.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())))
              GROUP BY d.node_id, d.query_id, d.datid, d.usesysid) AS q$sql$,
        (SELECT pg_catalog.string_agg(pg_catalog.format(
                    'SELECT t.node_id, t.query_id, t.datid, t.datname, t.usesysid, t.usename, t.query, t.seen_at FROM lock_history.%I AS t WHERE t.kind = 5',
                    leaf.name), ' UNION ALL ')
         FROM (SELECT 'dim_' || s FROM pg_catalog.generate_series(0, 7) AS s
               UNION ALL SELECT 'kept_dim'
               UNION ALL SELECT 'minute_dim_' || s FROM pg_catalog.generate_series(0, 3) AS s) AS leaf(name)));
END
$do$;

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
-- The planner takes seventy thousand rows of load for a few, and would sort them to add them up.
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    wanted  text := coalesce(top_queries.node, lock_history.local_node());
    unknown tstzmultirange;
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    unknown := coalesce(lock_history.load_unknown(wanted, top_queries.since - interval '2 min', top_queries.until + interval '2 min'), '{}');
    RETURN QUERY EXECUTE pg_catalog.format($sql$
    WITH number AS MATERIALIZED (
        SELECT l.node, l.seg, l.node_id, l.dim_id,
               -- of a minute that is in the range in part a part of what was sampled of it
               sum(CASE WHEN l.at >= $1 AND l.at <= $5 THEN l.load_ms
                        WHEN l.length = interval '1 s' THEN l.load_ms * extract(epoch FROM least($2, l.ended) - greatest($1, l.began))::float8
                        ELSE l.load_ms * (SELECT coalesce(extract(epoch FROM sum(least($2, upper(k)) - greatest($1, lower(k))) FILTER (WHERE upper(k) > $1 AND lower(k) < $2))
                                                          / extract(epoch FROM sum(upper(k) - lower(k))), 0)
                                          FROM unnest(tstzmultirange(tstzrange(l.began, l.ended)) - $6) AS k)::float8 END)::float8 AS load_ms
        FROM lock_history.%I AS l
        WHERE l.at > $1 - interval '1 min' AND l.at < $2 AND (l.at >= $1 OR l.ended > $1) AND l.began < $2 AND ($4 IS NULL OR l.node = $4)
        GROUP BY l.node, l.seg, l.node_id, l.dim_id
    ), event AS MATERIALIZED (
        SELECT l.node, d.query_id, d.datname, d.wait_event_type, d.wait_event, sum(l.load_ms) AS load_ms
        FROM number AS l
        JOIN lock_history.load_dictionary AS d ON d.seg = l.seg AND d.dim_id = l.dim_id AND d.node_id = l.node_id
        GROUP BY l.node, d.query_id, d.datname, d.wait_event_type, d.wait_event
    ), statement AS (
        SELECT e.node, e.query_id, e.datname, sum(e.load_ms) AS load_ms,
               sum(sum(e.load_ms)) OVER () AS all_ms
        FROM event AS e
        GROUP BY e.node, e.query_id, e.datname
        ORDER BY sum(e.load_ms) DESC, e.query_id
        LIMIT $3
    ), sampled AS MATERIALIZED (
        SELECT t.node, lock_history.sampled_ms(t.node, $1, $2) AS ms FROM (SELECT DISTINCT s.node FROM statement AS s) AS t
    ), known AS MATERIALIZED (
        SELECT t.node, t.query_id, t.datname, t.query, t.first_seen FROM lock_history.queries AS t
        WHERE t.query_id = ANY (ARRAY(SELECT s.query_id FROM statement AS s))
    )
    SELECT s.query_id, s.datname, q.query, s.load_ms / nullif(p.ms, 0),
           s.load_ms / nullif(s.all_ms, 0), l.wait_event_type, l.wait_event, l.load_ms / nullif(s.load_ms, 0)
    FROM statement AS s
    JOIN sampled AS p ON p.node = s.node
    CROSS JOIN LATERAL (SELECT x.wait_event_type, x.wait_event, x.load_ms
                        FROM event AS x
                        WHERE x.node = s.node AND x.query_id IS NOT DISTINCT FROM s.query_id AND x.datname IS NOT DISTINCT FROM s.datname
                        ORDER BY x.load_ms DESC, x.wait_event LIMIT 1) AS l
    LEFT JOIN LATERAL (SELECT t.query FROM known AS t
                       WHERE t.node = s.node AND t.query_id = s.query_id AND t.datname IS NOT DISTINCT FROM s.datname
                       ORDER BY t.first_seen LIMIT 1) AS q ON true
    ORDER BY s.load_ms DESC, s.query_id$sql$,
    -- of hours minutes are as good, and sixty times as fast
    CASE WHEN top_queries.until - top_queries.since > interval '2 h' THEN 'load_by_minute' ELSE 'load_history' END)
    USING top_queries.since, top_queries.until, greatest(top_queries.n, 0), wanted, top_queries.until - interval '1 min', unknown;
END
$$;
COMMENT ON FUNCTION lock_history.top_queries(timestamptz, timestamptz, integer, text) IS
    'The statements that made the most load in a range, with their text, their share of all load and what they waited for most; null: load of no statement';
REVOKE ALL ON FUNCTION lock_history.top_queries(timestamptz, timestamptz, integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.top_queries(timestamptz, timestamptz, integer, text) TO pg_monitor;
