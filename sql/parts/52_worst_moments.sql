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
    lower_bound timestamptz := coalesce(worst_moments.since, '-infinity');
    upper_bound timestamptz := coalesce(worst_moments.until, statement_timestamp());
    nodes       integer[] := ARRAY(SELECT s.node_id FROM lock_history.node_state AS s
                                   WHERE wanted_node IS NULL OR s.node = wanted_node);
    segments    smallint[] := ARRAY(SELECT r.seg FROM lock_history.ring_segment AS r
                                    WHERE r.closed_at IS NULL OR r.closed_at > lower_bound - interval '1 min');
    moment      record;
BEGIN
    FOR moment IN
        WITH event AS (
            SELECT greatest(w.wait_start, lower_bound) AS at, 1 AS change
            FROM lock_history.wait_episode AS w
            WHERE w.wait_start < upper_bound AND w.node_id = ANY (nodes)
              AND (w.is_open OR w.wait_end > lower_bound) AND (w.is_open OR w.seg = ANY (segments))
              AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end > lower_bound)
            UNION ALL
            SELECT coalesce(w.wait_end, 'infinity'), -1
            FROM lock_history.wait_episode AS w
            WHERE w.wait_start < upper_bound AND w.node_id = ANY (nodes)
              AND (w.is_open OR w.wait_end > lower_bound) AND (w.is_open OR w.seg = ANY (segments))
              AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end > lower_bound)
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
        )
        SELECT w.look_at, w.waiting,
               -- nothing that waited then had begun before the stretch did
               (SELECT CASE WHEN pg_catalog.min(t.at) > lower_bound THEN pg_catalog.min(t.at) ELSE '-infinity' END
                FROM stretch AS t WHERE t.no = w.no AND t.waiting > 0) AS began
        FROM worst AS w
        ORDER BY w.waiting DESC, w.at
        LIMIT worst_moments.n
    LOOP
        at := moment.look_at;
        SELECT pg_catalog.count(DISTINCT (w.node_id, w.wait_id)),
               pg_catalog.count(DISTINCT (w.node_id, e.proc)) FILTER (WHERE e.proc IS NOT NULL),
               pg_catalog.max(moment.look_at - w.wait_start)
          INTO waiting, roots, longest
        FROM lock_history.wait_episode AS w
        LEFT JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_from, w.edge_to) AS e(kind, proc, since, until)
               ON e.kind = 3 AND (e.until IS NULL OR e.until > moment.look_at)
                  AND (e.since <= moment.look_at
                       OR e.since = (SELECT pg_catalog.min(f.since) FROM pg_catalog.unnest(w.edge_from) AS f(since)))
        WHERE w.wait_start BETWEEN moment.began AND moment.look_at AND w.node_id = ANY (nodes)
          AND (w.is_open OR w.wait_end > moment.look_at) AND (w.is_open OR w.seg = ANY (segments))
          AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end > moment.look_at);
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION lock_history.worst_moments(timestamptz, timestamptz, integer, text) IS
    'Moments at which most sessions waited, worst first: at (for blocking_tree_at; shortly before the first of them went on), sessions waiting, root blockers, longest wait by then; at most one for each stretch of waiting and hour (since, until: default all; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.worst_moments(timestamptz, timestamptz, integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.worst_moments(timestamptz, timestamptz, integer, text) TO pg_monitor;
