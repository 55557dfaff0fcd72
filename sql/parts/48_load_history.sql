-- Load as far back as there is any, for functions over a range.

-- Each row is a combination and the session time that went into it from "at" on,
-- for "length" at most.  Where nobody was active there is no row, nor where nothing
-- was sampled: see sampled_ms().
CREATE VIEW lock_history.load_history AS
SELECT s.node_id, n.node, s.at, interval '1 s' AS length, s.sampled_ms, s.wait_event_type, s.wait_event, s.lwlock_mode,
       s.datname, s.usename, s.backend_type, s.query_id, s.load_ms
FROM lock_history.load_second AS s
JOIN lock_history.recorded AS n ON n.node_id = s.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident());
COMMENT ON VIEW lock_history.load_history IS
    'internal: load by the finest step there is, as session time in ms; query_id masked as in pg_stat_activity';
GRANT SELECT ON lock_history.load_history TO pg_monitor;

-- From when on each server was watched.
CREATE VIEW lock_history.watched AS
SELECT n.node_id, n.node,
       greatest(n.first_seen, (SELECT pg_catalog.min(r.opened_at) FROM lock_history.ring AS r WHERE NOT r.is_empty)) AS since,
       NULL::timestamptz AS until
FROM lock_history.node AS n
WHERE (SELECT lock_history.incident()) IS NULL
UNION ALL
SELECT -k.kept_id, k.node, k.since, k.until
FROM lock_history.kept_incident AS k
WHERE k.name = (SELECT lock_history.incident());
COMMENT ON VIEW lock_history.watched IS
    'internal: the time about which the history of each server can say something, but for its gaps; until is null as long as it goes on';
GRANT SELECT ON lock_history.watched TO pg_monitor;

-- What load of a range is divided by.  Gaps may overlap.
CREATE FUNCTION lock_history.sampled_ms(node text, since timestamptz, until timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 1000.0 * coalesce(extract(epoch FROM sum(upper(p.part) - lower(p.part))), 0)
    FROM lock_history.watched AS w
    CROSS JOIN LATERAL unnest(
        tstzmultirange(tstzrange(greatest(w.since, sampled_ms.since),
                                 greatest(w.since, sampled_ms.since, least(w.until, sampled_ms.until, statement_timestamp()))))
        - coalesce((SELECT range_agg(tstzrange(g.began, CASE WHEN g.ended IS NOT NULL THEN greatest(g.began, g.ended) END))
                    FROM lock_history.gaps AS g
                    WHERE g.node = w.node AND g.began <= sampled_ms.until AND (g.ended IS NULL OR g.ended >= sampled_ms.since)), '{}')) AS p(part)
    WHERE w.node = sampled_ms.node
$$;
COMMENT ON FUNCTION lock_history.sampled_ms(text, timestamptz, timestamptz) IS
    'internal: how much of a time was sampled, in ms';
REVOKE ALL ON FUNCTION lock_history.sampled_ms(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.sampled_ms(text, timestamptz, timestamptz) TO pg_monitor;
