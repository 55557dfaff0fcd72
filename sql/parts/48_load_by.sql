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
    unknown := lock_history.load_unknown(wanted_node, lower_bound, upper_bound);

    RETURN QUERY EXECUTE pg_catalog.format($sql$
        WITH part AS (
            SELECT b.at, extract(epoch FROM p.length)::double precision AS seconds
            FROM generate_series(date_bin($4, $2, $7), $3 - interval '1 us', $4) AS b(at)
            CROSS JOIN LATERAL (
                SELECT sum(upper(r) - lower(r)) AS length
                FROM unnest(tstzmultirange(tstzrange(greatest(b.at, $2), least(b.at + $4, $3)))
                            - coalesce($6, tstzmultirange(tstzrange(NULL, NULL)))) AS r) AS p
        ), number AS MATERIALIZED (
            SELECT date_bin($4, l.at, $7) AS at, l.seg, l.node_id, l.dim_id, sum(l.load_ms)::double precision AS ms
            FROM lock_history.%1$I AS l
            WHERE l.node = $1 AND l.at >= $2 AND l.at < $3
              AND CASE WHEN l.length = interval '1 s' THEN l.sampled_ms < 1500 ELSE $5 AND l.at + l.length <= $3 END
            GROUP BY 1, 2, 3, 4
            UNION ALL
            -- A sample stands for the time before it: with a long sampling
            -- period for several buckets.  So may a minute.
            SELECT b.at, l.seg, l.node_id, l.dim_id,
                   l.load_ms * extract(epoch FROM least(b.at + $4, e.ended) - greatest(b.at, e.began))::double precision
                             / extract(epoch FROM e.ended - e.began)::double precision
            FROM lock_history.%1$I AS l
            CROSS JOIN LATERAL (SELECT CASE WHEN l.length = interval '1 s' THEN l.at + l.length - l.sampled_ms * interval '1 ms' ELSE l.at END AS began,
                                       l.at + l.length AS ended) AS e
            CROSS JOIN LATERAL generate_series(date_bin($4, e.began, $7), e.ended - interval '1 us', $4) AS b(at)
            WHERE l.node = $1 AND l.at > $2 - interval '1 min' AND l.at < $3 + interval '1 min'
              AND CASE WHEN l.length = interval '1 s' THEN l.at >= $2 AND l.sampled_ms >= 1500
                       ELSE l.at + l.length > $2 AND NOT ($5 AND l.at >= $2 AND l.at + l.length <= $3) END
        ), load AS (
            SELECT u.at, d.wait_event_type, d.wait_event, sum(u.ms) AS ms
            FROM number AS u
            JOIN lock_history.load_dictionary AS d ON d.seg = u.seg AND d.dim_id = u.dim_id AND (d.node_id = u.node_id) IS TRUE
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
