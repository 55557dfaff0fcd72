-- Load over time.

-- Nothing is known of these times: before anything was recorded, in gaps, and
-- after what is complete.  All ends but those of gaps are full seconds, as those of
-- the rows.
CREATE FUNCTION lock_history.load_unknown(node text, since timestamptz, until timestamptz)
RETURNS tstzmultirange
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT tstzmultirange(tstzrange(load_unknown.since, load_unknown.until))
           - (tstzmultirange(tstzrange(date_trunc('second', w.since),
                                       CASE WHEN w.until IS NOT NULL THEN date_trunc('second', greatest(w.since, w.until + interval '999999 us')) END))  -- its last second is there as a whole
              - w.holes)
    FROM lock_history.watched AS w
    WHERE w.node = load_unknown.node
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
-- as in top_queries()
SET enable_sort = off
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
    of_minutes  boolean;
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
    of_minutes := extract(epoch FROM step)::bigint % 60 = 0;
    -- some more: of minutes and samples that began before, or end after
    unknown := coalesce(lock_history.load_unknown(wanted_node, lower_bound - interval '10 min', upper_bound + interval '10 min'),
                        tstzmultirange(tstzrange(NULL, NULL)));

    RETURN QUERY EXECUTE pg_catalog.format($sql$
        WITH late AS MATERIALIZED (
            SELECT DISTINCT l.seg, l.node_id, l.at, l.length, l.sampled_ms, l.began, l.ended
            FROM lock_history.%1$I AS l
            WHERE l.node = $1 AND l.at > $2 - interval '1 min' AND l.at < $3 + interval '1 min'
              AND CASE WHEN l.length = interval '1 s' THEN l.at >= $2 AND l.sampled_ms NOT BETWEEN 980 AND 1020
                       ELSE l.ended > $2 AND l.began < $3 AND NOT ($5 AND l.at >= $2 AND l.at + l.length <= $3) END
        ), span AS MATERIALIZED (
            -- What a minute counted was within what was sampled of it.  A sample of a
            -- second says how many there were since the one before, which is this
            -- second, or with a long sampling period some more: when in its second a
            -- sample was taken nobody knows, so that it begins where the one before ends.
            SELECT e.seg, e.node_id, e.at, e.began, e.sampled_ms, e.known,
                   CASE WHEN e.length = interval '1 s' THEN e.sampled_ms::double precision / 1000
                        ELSE (SELECT extract(epoch FROM sum(upper(k) - lower(k))) FROM unnest(e.known) AS k)::double precision END AS seconds
            FROM (SELECT t.seg, t.node_id, t.at, t.length, t.began, t.sampled_ms,
                         tstzmultirange(tstzrange(CASE WHEN t.length > interval '1 s' OR t.sampled_ms < 1500 THEN t.began
                                                       WHEN f.at - b.nominal BETWEEN interval '-1 s' AND interval '1 s' THEN f.at
                                                       ELSE b.nominal END, t.ended)) - $6 AS known
                  FROM late AS t
                  CROSS JOIN LATERAL (SELECT t.ended - t.sampled_ms * interval '1 ms' AS nominal) AS b
                  LEFT JOIN LATERAL (SELECT max(o.ended) AS at FROM lock_history.%1$I AS o
                                     WHERE t.length = interval '1 s' AND t.sampled_ms >= 1500
                                       AND o.node = $1 AND o.length = interval '1 s' AND o.at < t.at AND o.at >= b.nominal - interval '2 s') AS f ON true) AS e
        ), part AS (
            SELECT b.at, extract(epoch FROM p.length)::double precision AS seconds
            FROM generate_series(date_bin($4, $2, $7), $3 - interval '1 us', $4) AS b(at)
            CROSS JOIN LATERAL (
                SELECT sum(upper(r) - lower(r)) AS length
                FROM unnest(tstzmultirange(tstzrange(greatest(b.at, $2), least(b.at + $4, $3))) - $6) AS r) AS p
        ), number AS MATERIALIZED (
            SELECT date_bin($4, l.at, $7) AS at, l.seg, l.node_id, l.dim_id, sum(l.load_ms)::double precision AS ms
            FROM lock_history.%1$I AS l
            WHERE l.node = $1 AND l.at >= $2 AND l.at < $3
              AND CASE WHEN l.length = interval '1 s' THEN l.sampled_ms BETWEEN 980 AND 1020 ELSE $5 AND l.at + l.length <= $3 END
            GROUP BY 1, 2, 3, 4
            UNION ALL
            -- The rest has a span of time: what of it is known and in a bucket counts there.
            SELECT p.at, l.seg, l.node_id, l.dim_id, l.load_ms * p.share
            FROM span AS s
            JOIN lock_history.%1$I AS l ON l.at = s.at AND l.seg = s.seg AND l.node_id = s.node_id
            CROSS JOIN LATERAL (
                SELECT b.at, sum(extract(epoch FROM least(b.at + $4, upper(k), $3) - greatest(b.at, lower(k), $2)))::double precision / s.seconds AS share
                FROM unnest(s.known) AS k
                CROSS JOIN LATERAL generate_series(date_bin($4, greatest(lower(k), $2), $7), least(upper(k), $3) - interval '1 us', $4) AS b(at)
                WHERE upper(k) > $2 AND lower(k) < $3
                GROUP BY b.at) AS p
            WHERE l.node = $1 AND l.at > $2 - interval '1 min' AND l.at < $3 + interval '1 min'
              AND l.began = s.began AND l.sampled_ms = s.sampled_ms
        ), load AS (
            SELECT u.at, d.wait_event_type, d.wait_event, sum(u.ms) AS ms
            FROM number AS u
            JOIN lock_history.load_dictionary AS d ON d.seg = u.seg AND d.dim_id = u.dim_id AND d.node_id = u.node_id
            GROUP BY u.at, d.wait_event_type, d.wait_event
        )
        SELECT p.at, l.wait_event_type, l.wait_event,
               CASE WHEN p.seconds > 0 THEN coalesce(l.ms, 0) / 1000 / p.seconds END
        FROM part AS p
        LEFT JOIN load AS l ON l.at = p.at AND p.seconds > 0
        ORDER BY p.at, coalesce(l.ms, 0) DESC, l.wait_event_type, l.wait_event$sql$,
        -- where no bucket is shorter than a minute minutes are as good, and sixty times as fast
        CASE WHEN of_minutes THEN 'load_by_minute' ELSE 'load_history' END)
        USING wanted_node, lower_bound, upper_bound, step, of_minutes, unknown, epoch;
END
$$;
COMMENT ON FUNCTION lock_history.load_by(timestamptz, timestamptz, interval, text) IS
    'Average active sessions by bucket of time and event waited for; 0 where nobody was active, null where nothing was sampled (until: default now; bucket: default at most 200 of them; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.load_by(timestamptz, timestamptz, interval, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.load_by(timestamptz, timestamptz, interval, text) TO pg_monitor;
