-- Load: average active sessions, by second.
--
-- Below are the arrays, taken apart, and the dictionary that says what their
-- numbers stand for.  Whoever adds up many seconds does so by number, and joins
-- the dictionary last.
CREATE VIEW lock_history.load_part AS
SELECT n.node, s.node_id, s.seg, s.at, s.sampled_ms,
       pg_catalog.unnest(s.dims) AS dim_id, pg_catalog.unnest(s.load_ms) AS load_ms
FROM lock_history.second AS s
JOIN lock_history.recorded AS n ON n.node_id = s.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  -- a kept incident is read without a look into the ring
  AND s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);
COMMENT ON VIEW lock_history.load_part IS
    'internal: session time by second and number in the dictionary of the segment';
GRANT SELECT ON lock_history.load_part TO pg_monitor;

-- The masks are those of pg_stat_activity: the statement of a role is for its
-- members and for readers of all statistics.
CREATE VIEW lock_history.dictionary AS
SELECT d.seg, d.node_id, d.dim_id, d.kind, d.wait_event_type, d.wait_event, d.lwlock_mode, d.backend_type, d.datname, d.usename,
       CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
                 OR (d.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(d.usesysid, 'USAGE')) IS TRUE
            THEN d.query_id END AS query_id
FROM lock_history.dim AS d;
COMMENT ON VIEW lock_history.dictionary IS
    'internal: table dim with query_id masked as in pg_stat_activity; to be joined by seg and dim_id';
GRANT SELECT ON lock_history.dictionary TO pg_monitor;

CREATE VIEW lock_history.load AS
SELECT p.node, p.at, d.wait_event_type, d.wait_event, d.lwlock_mode, d.datname, d.usename, d.backend_type, d.query_id,
       p.load_ms::double precision / nullif(p.sampled_ms, 0) AS aas
FROM lock_history.load_part AS p
JOIN lock_history.dictionary AS d ON d.seg = p.seg AND d.dim_id = p.dim_id AND (d.node_id = p.node_id) IS TRUE;

GRANT SELECT ON lock_history.load TO pg_monitor;
COMMENT ON VIEW lock_history.load IS
    'Average active sessions by second, and what they waited for; seconds in which nobody was active have no row';
COMMENT ON COLUMN lock_history.load.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.load.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.load.wait_event_type IS 'type of the event waited for, as in pg_stat_activity; CPU: did not wait';
COMMENT ON COLUMN lock_history.load.wait_event IS 'the event waited for; CPU: did not wait';
COMMENT ON COLUMN lock_history.load.lwlock_mode IS 'LWLocks: exclusive, shared, or wait until free (for another one''s work to be done)';
COMMENT ON COLUMN lock_history.load.datname IS 'database of the sessions; null: none';
COMMENT ON COLUMN lock_history.load.usename IS 'their role; null: none';
COMMENT ON COLUMN lock_history.load.backend_type IS 'their kind, as in pg_stat_activity; null: not known yet';
COMMENT ON COLUMN lock_history.load.query_id IS 'query identifier of their statements; null: none, one of too many in that second, or insufficient privilege';
COMMENT ON COLUMN lock_history.load.aas IS 'average number of sessions';

-- Beside it: how many sessions there were.
CREATE VIEW lock_history.sessions AS
SELECT n.node, s.at, s.clients::double precision AS total, s.active::double precision AS active,
       s.idle_in_transaction::double precision AS idle_in_transaction, s.waiting::double precision AS waiting
FROM lock_history.second AS s
JOIN lock_history.recorded AS n ON n.node_id = s.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  AND s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.sessions TO pg_monitor;
COMMENT ON VIEW lock_history.sessions IS
    'Sessions by second; while nobody is active and none comes or goes there is no new row';
COMMENT ON COLUMN lock_history.sessions.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.sessions.at IS 'begin of the second';
COMMENT ON COLUMN lock_history.sessions.total IS 'client sessions, average';
COMMENT ON COLUMN lock_history.sessions.active IS 'of these, active';
COMMENT ON COLUMN lock_history.sessions.idle_in_transaction IS 'processes idle in a transaction that has not failed';
COMMENT ON COLUMN lock_history.sessions.waiting IS 'processes that waited for a heavyweight lock';

-- Nothing is known of these times: before the first life of the worker that is
-- remembered, in gaps, and after what is complete.  All ends are full seconds,
-- as those of the rows.
CREATE FUNCTION lock_history.load_unknown(node text, since timestamptz, until timestamptz)
RETURNS tstzmultirange
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((SELECT range_agg(tstzrange(greatest(g.began, load_unknown.since), least(coalesce(g.ended, load_unknown.until), load_unknown.until)))
                     FROM lock_history.gaps AS g
                     WHERE g.node = load_unknown.node AND g.part IS DISTINCT FROM 'waits'
                       AND g.began < load_unknown.until AND coalesce(g.ended, 'infinity') > load_unknown.since), '{}')
         + coalesce((SELECT range_agg(tstzrange(k.began, k.ended))
                     FROM (SELECT load_unknown.since AS began, least(date_trunc('second', e.known_from), load_unknown.until) AS ended
                           UNION ALL
                           SELECT greatest(date_trunc('second', e.known_until), load_unknown.since), load_unknown.until) AS k
                     WHERE k.began < k.ended), '{}')
    FROM (SELECT CASE WHEN i.incident IS NOT NULL THEN i.since
                      ELSE greatest(min(r.started_at), (SELECT min(s.opened_at) FROM lock_history.ring_segment AS s WHERE NOT s.is_empty)) END AS known_from,
                 CASE WHEN i.incident IS NOT NULL THEN i.until + interval '999999 us'  -- its last second is there as a whole
                      ELSE greatest(max(r.heartbeat),
                                    (SELECT max(w.value) FILTER (WHERE w.key = 'last_flush')::timestamptz
                                     FROM lock_history.worker_status() AS w
                                     HAVING max(w.value) FILTER (WHERE w.key = 'node') = load_unknown.node
                                        AND max(w.value) FILTER (WHERE w.key = 'last_flush') <> '')) END AS known_until
          FROM lock_history.recorded AS i
          LEFT JOIN lock_history.life AS r ON r.node_id = i.node_id
          WHERE i.node = load_unknown.node AND i.incident IS NOT DISTINCT FROM lock_history.incident()
          GROUP BY i.incident, i.since, i.until) AS e
$$;
COMMENT ON FUNCTION lock_history.load_unknown(text, timestamptz, timestamptz) IS
    'internal: the parts of a range in which load was not sampled, or of which the history is not complete; null: no such server';
REVOKE ALL ON FUNCTION lock_history.load_unknown(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.load_unknown(text, timestamptz, timestamptz) TO pg_monitor;

CREATE FUNCTION lock_history.load_by(
    since timestamptz, until timestamptz DEFAULT NULL, bucket interval DEFAULT NULL, node text DEFAULT NULL)
RETURNS TABLE (at timestamptz, wait_event_type text, wait_event text, aas double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    few         CONSTANT integer := 200;     -- of a size that is chosen here
    most        CONSTANT integer := 100000;
    epoch       CONSTANT timestamptz := '2000-01-01 00:00:00+00';
    wanted_node text := coalesce(load_by.node, lock_history.local_node());
    lower_bound timestamptz := date_trunc('second', load_by.since);
    upper_bound timestamptz := coalesce(load_by.until, statement_timestamp());
    step        interval := load_by.bucket;
    unknown     tstzmultirange;
BEGIN
    IF load_by.since IS NULL THEN
        RAISE EXCEPTION 'since must be given'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'As in SELECT * FROM lock_history.load_by(now() - interval ''1 h'', now(), ''1 min'').';
    END IF;
    upper_bound := CASE WHEN upper_bound > date_trunc('second', upper_bound)
                        THEN date_trunc('second', upper_bound) + interval '1 s' ELSE upper_bound END;
    IF load_by.since > upper_bound THEN
        RAISE EXCEPTION 'since (%) is after until (%)', load_by.since, coalesce(load_by.until, statement_timestamp())
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF step IS NULL THEN
        SELECT min(b.length) INTO step
        FROM unnest('{1 s,10 s,1 min,10 min,1 h,1 day}'::interval[]) AS b(length)
        WHERE extract(epoch FROM upper_bound - lower_bound) / extract(epoch FROM b.length) <= few OR b.length = interval '1 day';
    END IF;
    IF step < interval '1 s' OR date_trunc('second', step) <> step
       OR extract(month FROM step) <> 0 OR extract(year FROM step) <> 0 THEN
        RAISE EXCEPTION 'bucket (%) must be a whole number of seconds, minutes, hours or days', step
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Load is kept by second.';
    END IF;
    IF NOT isfinite(lower_bound) OR NOT isfinite(upper_bound)
       OR extract(epoch FROM upper_bound - lower_bound) / extract(epoch FROM step) > most THEN
        RAISE EXCEPTION 'that would be more than % buckets', most
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give a shorter range, or a larger bucket.';
    END IF;
    PERFORM lock_history.warn_if_nothing_is_here();
    unknown := lock_history.load_unknown(wanted_node, lower_bound, upper_bound);

    RETURN QUERY
        WITH part AS (
            SELECT b.at, extract(epoch FROM p.length)::double precision AS seconds
            FROM generate_series(date_bin(step, lower_bound, epoch), upper_bound - interval '1 us', step) AS b(at)
            CROSS JOIN LATERAL (
                SELECT sum(upper(r) - lower(r)) AS length
                FROM unnest(tstzmultirange(tstzrange(greatest(b.at, lower_bound), least(b.at + step, upper_bound)))
                            - coalesce(unknown, tstzmultirange(tstzrange(NULL, NULL)))) AS r) AS p
        ), number AS MATERIALIZED (
            SELECT date_bin(step, l.at, epoch) AS at, l.seg, l.node_id, l.dim_id, sum(l.load_ms)::double precision AS ms
            FROM lock_history.load_part AS l
            WHERE l.node = wanted_node AND l.at >= lower_bound AND l.at < upper_bound AND l.sampled_ms < 1500
            GROUP BY 1, 2, 3, 4
            UNION ALL
            -- A sample stands for the time before it: with a long sampling
            -- period for several buckets.
            SELECT b.at, l.seg, l.node_id, l.dim_id,
                   l.load_ms * extract(epoch FROM least(b.at + step, e.ended) - greatest(b.at, e.began))::double precision
                             / extract(epoch FROM e.ended - e.began)::double precision
            FROM lock_history.load_part AS l
            CROSS JOIN LATERAL (SELECT l.at + interval '1 s' - l.sampled_ms * interval '1 ms' AS began, l.at + interval '1 s' AS ended) AS e
            CROSS JOIN LATERAL generate_series(date_bin(step, e.began, epoch), e.ended - interval '1 us', step) AS b(at)
            WHERE l.node = wanted_node AND l.at >= lower_bound AND l.at < upper_bound + interval '1 min' AND l.sampled_ms >= 1500
        ), load AS (
            SELECT u.at, d.wait_event_type, d.wait_event, sum(u.ms) AS ms
            FROM number AS u
            JOIN lock_history.dictionary AS d ON d.seg = u.seg AND d.dim_id = u.dim_id AND (d.node_id = u.node_id) IS TRUE
            GROUP BY u.at, d.wait_event_type, d.wait_event
        )
        SELECT p.at, l.wait_event_type, l.wait_event,
               CASE WHEN p.seconds > 0 THEN coalesce(l.ms, 0) / 1000 / p.seconds END
        FROM part AS p
        LEFT JOIN load AS l ON l.at = p.at AND p.seconds > 0
        ORDER BY p.at, coalesce(l.ms, 0) DESC, l.wait_event_type, l.wait_event;
END
$$;
COMMENT ON FUNCTION lock_history.load_by(timestamptz, timestamptz, interval, text) IS
    'Average active sessions by bucket of time and event waited for; 0 where nobody was active, null where nothing was sampled (until: default now; bucket: default at most 200 of them; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.load_by(timestamptz, timestamptz, interval, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.load_by(timestamptz, timestamptz, interval, text) TO pg_monitor;
