-- Everyone in the way of one wait.
--
-- Only the nearest soft blocker is stored: a queue of 1 000 would otherwise be
-- half a million edges.  The others follow from the queue order, the modes and
-- the times of the other waits on the same lock.
CREATE FUNCTION lock_history.blocking_all(wait_id bigint)
RETURNS SETOF lock_history.blocking
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    w          record;
    wait_until timestamptz;
BEGIN
    SELECT e.node_id, e.wait_id, e.wait_start, e.wait_end, e.lock_key, e.queue_key, e.mode_number, e.proc_key, e.object,
           e.edge_proc, e.edge_pid, e.edge_kind, e.edge_from, e.edge_to,
           (SELECT pg_catalog.min(f.since) FROM pg_catalog.unnest(e.edge_from) AS f(since)) AS first_edge,
           n.node, p.pid, coalesce(p.leader_pid, p.pid) AS leader_pid
      INTO w
    FROM lock_history.wait_episode AS e
    JOIN lock_history.recorded AS n ON n.node_id = e.node_id
    LEFT JOIN lock_history.process AS p ON p.seg = e.seg AND p.actor_id = e.actor_id AND (p.node_id = e.node_id) IS TRUE
    WHERE e.wait_id = blocking_all.wait_id
    LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    wait_until := coalesce(w.wait_end, 'infinity');

    RETURN QUERY
    SELECT b.node, b.wait_id, b.pid, b.blocker_pid, b.kind, b.blocker_mode, b.first_seen, b.last_seen,
           b.blocker_backend_start, b.blocker_gid, b.blocker_backend_type, b.blocker_datname, b.blocker_usename,
           b.blocker_application_name, b.blocker_client_addr, b.blocker_state, b.blocker_state_change,
           b.blocker_xact_start, b.blocker_query_id, b.blocker_query, b.wait_start, b.object
    FROM lock_history.blocking AS b
    WHERE b.wait_start = w.wait_start AND b.wait_id = w.wait_id AND b.node = w.node
    UNION ALL
    SELECT w.node, w.wait_id, w.pid, coalesce(p.leader_pid, p.pid), 'soft', ARRAY[o.mode],
           i.since, nullif(i.until, 'infinity'),
           p.backend_start, p.gid, p.backend_type, p.datname, p.usename,
           p.application_name, p.client_addr, p.state, p.state_change,
           p.xact_start, p.query_id, p.query, w.wait_start, w.object
    FROM lock_history.wait_episode AS o
    JOIN lock_history.process AS p ON p.seg = o.seg AND p.actor_id = o.actor_id AND (p.node_id = o.node_id) IS TRUE
    -- What is stored about the same process, as hard or as nearest soft
    -- blocker, is taken off both ends of the time the two waits have in common.
    CROSS JOIN LATERAL (
        SELECT greatest(c.since, pg_catalog.max(e.until) FILTER (WHERE e.since <= c.since)) AS since,
               least(c.until, pg_catalog.min(e.since) FILTER (WHERE e.since > c.since)) AS until
        FROM (SELECT greatest(o.wait_start, w.wait_start) AS since,
                     least(coalesce(o.wait_end, 'infinity'), wait_until) AS until) AS c
        LEFT JOIN LATERAL (
            -- before the first look the first blockers count
            SELECT CASE WHEN u.since > w.first_edge THEN u.since ELSE w.wait_start END AS since,
                   coalesce(u.until, wait_until) AS until
            FROM unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_from, w.edge_to)
                AS u(kind, proc, pid, since, until)
            WHERE u.kind IN (1, 2) AND (u.proc = o.proc_key OR u.pid = p.leader_pid)) AS e
               ON e.since < c.until AND e.until > c.since
        GROUP BY c.since, c.until) AS i
    WHERE o.node_id = w.node_id AND o.lock_key = w.lock_key AND o.proc_key <> w.proc_key
      AND o.wait_start < wait_until
      AND (o.is_open OR o.wait_end > w.wait_start)
      AND (NOT o.is_open OR o.wait_end IS NULL OR o.wait_end > w.wait_start)
      AND o.queue_key < w.queue_key
      AND lock_history.mode_conflicts(w.mode_number) & (1 << o.mode_number) <> 0
      AND coalesce(p.leader_pid, p.pid) IS DISTINCT FROM w.leader_pid
      AND i.since < i.until
    ORDER BY 7, 4;
END
$$;
COMMENT ON FUNCTION lock_history.blocking_all(bigint) IS
    'All blockers of one wait: as in blocking, and also those soft blockers that were not the nearest';
REVOKE ALL ON FUNCTION lock_history.blocking_all(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.blocking_all(bigint) TO pg_monitor;
