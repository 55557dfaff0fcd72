-- When to look.
--
-- The number of waiting sessions grows only at wait starts, so only those are
-- candidates.  Of each contiguous stretch of waiting the worst moment is
-- listed, once an hour when it goes on for hours: so one incident does not
-- fill the list, nor one busy day.
--
-- That moment is a plateau: from the start that made the number so high to the
-- first end, or to now while all still wait.  Of the plateau the point nine
-- tenths of the way along is given: those who wait have waited longest there,
-- so the tree shows how bad it was, and it is clear of the end, which is known
-- to half a sampling period only and loses its blockers a little before.
CREATE FUNCTION lock_history.worst_moments(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, n integer DEFAULT 10, node text DEFAULT NULL)
RETURNS TABLE (at timestamptz, waiting bigint, roots bigint, longest interval)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    wanted_node text := coalesce(worst_moments.node, lock_history.local_node());
    -- outside its range a kept incident does not know all who waited
    kept        lock_history.recorded := (SELECT r FROM lock_history.recorded AS r
                                          WHERE r.incident = lock_history.incident());
    lower_bound timestamptz := coalesce(greatest(worst_moments.since, kept.since), '-infinity');
    upper_bound timestamptz := coalesce(least(worst_moments.until, kept.until), statement_timestamp());
    nodes       integer[] := ARRAY(SELECT s.node_id FROM lock_history.recorded AS s
                                   WHERE wanted_node IS NULL OR s.node = wanted_node);
    segments    smallint[] := ARRAY(SELECT r.seg FROM lock_history.ring_segment AS r
                                    WHERE r.closed_at IS NULL OR r.closed_at > lower_bound - interval '1 min');
    still       lock_history.wait_episode[];  -- open waits: found once, not for each moment
BEGIN
    IF worst_moments.n < 0 THEN
        RAISE EXCEPTION 'n must not be negative, but is %', worst_moments.n
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is the number of moments to list; NULL lists all.';
    END IF;
    PERFORM lock_history.warn_if_nothing_is_here();
    IF worst_moments.since > worst_moments.until THEN
        RAISE EXCEPTION 'since (%) is after until (%)', worst_moments.since, worst_moments.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    SELECT pg_catalog.array_agg(w) INTO still
    FROM lock_history.wait_episode AS w
    WHERE w.is_open AND w.wait_start < upper_bound AND w.node_id = ANY (nodes)
      AND (w.wait_end IS NULL OR w.wait_end > lower_bound);

    -- one statement: planning takes longer than all it does for a moment
    RETURN QUERY
        WITH span AS (
            SELECT w.wait_start, w.wait_end
            FROM lock_history.wait_episode AS w
            WHERE NOT w.is_open AND w.wait_start < upper_bound AND w.node_id = ANY (nodes)
              AND w.wait_end > lower_bound AND w.seg = ANY (segments)
            UNION ALL
            SELECT w.wait_start, w.wait_end FROM pg_catalog.unnest(still) AS w
        ), event AS (
            SELECT greatest(s.wait_start, lower_bound) AS at, 1 AS change
            FROM span AS s
            UNION ALL
            SELECT coalesce(s.wait_end, 'infinity'), -1
            FROM span AS s
        ), step AS (
            SELECT e.at, pg_catalog.sum(pg_catalog.sum(e.change)) OVER (ORDER BY e.at) AS waiting,
                   pg_catalog.lead(e.at) OVER (ORDER BY e.at) AS next_at
            FROM event AS e
            GROUP BY e.at
        ), stretch AS (
            SELECT s.at, s.waiting, least(s.next_at, upper_bound, statement_timestamp()) AS plateau_end,
                   pg_catalog.count(*) FILTER (WHERE s.waiting = 0) OVER (ORDER BY s.at) AS no
            FROM step AS s
        ), worst AS (
            SELECT DISTINCT ON (t.no, hour) t.no, pg_catalog.date_trunc('hour', t.at, 'UTC') AS hour, t.at, t.waiting,
                   -- never the end itself; the start, when that is later than now (a clock set back)
                   greatest(t.at, t.plateau_end - greatest((t.plateau_end - t.at) / 10, interval '1 us')) AS look_at
            FROM stretch AS t
            WHERE t.waiting > 0 AND t.at < upper_bound
            ORDER BY t.no, hour, t.waiting DESC, t.at
        ), moment AS MATERIALIZED (
            SELECT w.look_at, w.waiting, w.at,
                   -- nothing that waited then had begun before the stretch did
                   (SELECT CASE WHEN pg_catalog.min(t.at) > lower_bound THEN pg_catalog.min(t.at) ELSE '-infinity' END
                    FROM stretch AS t WHERE t.no = w.no AND t.waiting > 0) AS began
            FROM worst AS w
            ORDER BY w.waiting DESC, w.at
            LIMIT worst_moments.n
        )
        SELECT m.look_at, seen.waiting, seen.roots, seen.longest
        FROM moment AS m
        CROSS JOIN LATERAL (
            SELECT pg_catalog.count(DISTINCT (w.node_id, w.wait_id)) AS waiting,
                   pg_catalog.count(DISTINCT (w.node_id, e.proc)) FILTER (WHERE e.proc IS NOT NULL) AS roots,
                   pg_catalog.max(m.look_at - w.wait_start) AS longest
            FROM (SELECT l.node_id, l.wait_id, l.wait_start, l.edge_kind, l.edge_proc, l.edge_from, l.edge_to
                  FROM lock_history.wait_episode AS l
                  WHERE NOT l.is_open AND l.wait_start BETWEEN m.began AND m.look_at AND l.node_id = ANY (nodes)
                    AND l.wait_end > m.look_at AND l.seg = ANY (segments)
                  UNION ALL
                  SELECT l.node_id, l.wait_id, l.wait_start, l.edge_kind, l.edge_proc, l.edge_from, l.edge_to
                  FROM pg_catalog.unnest(still) AS l
                  WHERE l.wait_start BETWEEN m.began AND m.look_at
                    AND (l.wait_end IS NULL OR l.wait_end > m.look_at)) AS w
            LEFT JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_from, w.edge_to) AS e(kind, proc, since, until)
                   ON e.kind = 3 AND (e.until IS NULL OR e.until > m.look_at)
                      AND (e.since <= m.look_at
                           OR e.since = (SELECT pg_catalog.min(f.since) FROM pg_catalog.unnest(w.edge_from) AS f(since)))
        ) AS seen
        ORDER BY m.waiting DESC, m.at;
END
$$;
COMMENT ON FUNCTION lock_history.worst_moments(timestamptz, timestamptz, integer, text) IS
    'Moments at which most sessions waited, worst first: at (for blocking_tree_at; shortly before the first of them went on), sessions waiting, root blockers, longest wait by then; at most one for each stretch of waiting and hour (since, until: default all; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.worst_moments(timestamptz, timestamptz, integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.worst_moments(timestamptz, timestamptz, integer, text) TO pg_monitor;
