-- What blockers did before: of each wait, those who held its lock or stood at
-- its root, each with what samples saw of the transaction that was in the way.
--
-- A blocker is described anew when it does something else; the latest
-- description of a transaction knows all that the ones before did.
CREATE VIEW lock_history.blocker_statements AS
SELECT (SELECT n.node FROM lock_history.recorded AS n WHERE n.node_id = w.node_id) AS node, w.wait_id,
       CASE WHEN b.pid <> 0 THEN b.pid
            ELSE -(SELECT pg_catalog.count(DISTINCT x.proc)
                   FROM unnest(w.edge_pid, w.edge_proc)
                        WITH ORDINALITY AS x(pid, proc, ord)
                   WHERE x.pid = 0
                     AND x.ord <= pg_catalog.array_position(w.edge_proc, b.proc))::integer END AS blocker_pid,
       CASE b.kind WHEN 1 THEN 'hard' ELSE 'root' END AS kind,
       b.backend_start AS blocker_backend_start, b.xact_start AS blocker_xact_start, b.gid AS blocker_gid,
       s.no::integer AS no, s.first_seen, s.last_seen, s.samples, s.state, s.wait_event_type, s.wait_event,
       s.query_start, s.query_id, s.query, b.stmt_left_out AS left_out,
       w.wait_start, w.object,
       -- as in roots_between()
       CASE WHEN b.gid IS NULL AND b.stmt_left_out = 0
            THEN least(b.stmt_query_start[1], b.stmt_first_seen[1])
                 > b.xact_start + (SELECT coalesce(nullif(pg_catalog.current_setting('pg_lock_history.sample_period', true), ''), '10ms')::interval) END AS unseen_before
FROM lock_history.wait_episode AS w
CROSS JOIN LATERAL (SELECT DISTINCT ON (e.proc, a.xact_start)
                           e.proc, e.pid, pg_catalog.min(e.kind) OVER (PARTITION BY e.proc, a.xact_start) AS kind,
                           a.backend_start, a.xact_start, a.gid, a.stmt_first_seen, a.stmt_last_seen, a.stmt_samples,
                           a.stmt_state, a.stmt_wait_event_type, a.stmt_wait_event, a.stmt_query_start, a.stmt_query_id,
                           a.stmt_query, a.stmt_left_out
                    FROM unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor) AS e(kind, proc, pid, actor)
                    CROSS JOIN LATERAL (SELECT i.backend_start, i.xact_start, i.gid, i.seen_at, i.stmt_first_seen, i.stmt_last_seen,
                                               i.stmt_samples, i.stmt_state, i.stmt_wait_event_type, i.stmt_wait_event,
                                               i.stmt_query_start, i.stmt_query_id, i.stmt_query, i.stmt_left_out
                                        FROM lock_history.process AS i
                                        WHERE i.seg = w.seg AND i.actor_id = e.actor AND i.node_id = w.node_id
                                        LIMIT 1) AS a
                    WHERE e.kind IN (1, 3)
                    ORDER BY e.proc, a.xact_start, a.seen_at DESC) AS b
CROSS JOIN LATERAL unnest(b.stmt_first_seen, b.stmt_last_seen, b.stmt_samples, b.stmt_state, b.stmt_wait_event_type,
                          b.stmt_wait_event, b.stmt_query_start, b.stmt_query_id, b.stmt_query)
    WITH ORDINALITY AS s(first_seen, last_seen, samples, state, wait_event_type, wait_event, query_start, query_id, query, no)
-- always true, see waits
WHERE w.seg >= (SELECT 0) AND w.seg <= (SELECT 8);

GRANT SELECT ON lock_history.blocker_statements TO pg_monitor;
COMMENT ON VIEW lock_history.blocker_statements IS
    'What blockers ran before, in the transaction that was in the way: statements as seen in samples, oldest first; which one took the lock is not known, and one that was over between two samples is not among them';
COMMENT ON COLUMN lock_history.blocker_statements.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.blocker_statements.wait_id IS 'the wait, as in waits';
COMMENT ON COLUMN lock_history.blocker_statements.blocker_pid IS 'process in its way; -n: n-th prepared transaction of this wait, see blocker_gid';
COMMENT ON COLUMN lock_history.blocker_statements.kind IS 'hard: held a conflicting mode; root: at the end of the chain, held something that another one in it waited for';
COMMENT ON COLUMN lock_history.blocker_statements.blocker_backend_start IS 'when the blocker''s process started; null: prepared transaction';
COMMENT ON COLUMN lock_history.blocker_statements.blocker_xact_start IS 'start of its transaction, in which all these statements ran; of a prepared one the time of PREPARE';
COMMENT ON COLUMN lock_history.blocker_statements.blocker_gid IS 'name of the prepared transaction; null: a process';
COMMENT ON COLUMN lock_history.blocker_statements.no IS 'order in which they were first seen, from 1';
COMMENT ON COLUMN lock_history.blocker_statements.first_seen IS 'first sample that saw it; it may have begun before';
COMMENT ON COLUMN lock_history.blocker_statements.last_seen IS 'last sample before the blocker was described that saw it run, or as the latest one of an idle session';
COMMENT ON COLUMN lock_history.blocker_statements.samples IS 'samples that saw it up to then';
COMMENT ON COLUMN lock_history.blocker_statements.state IS 'state of the session when it was last seen: active, or idle in transaction after it';
COMMENT ON COLUMN lock_history.blocker_statements.wait_event_type IS 'class of the wait event seen last while it ran; null: none was seen';
COMMENT ON COLUMN lock_history.blocker_statements.wait_event IS 'wait event seen last while it ran; null: none was seen';
COMMENT ON COLUMN lock_history.blocker_statements.query_start IS 'start of its latest run that was seen; the same text run again is one row';
COMMENT ON COLUMN lock_history.blocker_statements.query_id IS 'query identifier; null: not computed, or insufficient privilege';
COMMENT ON COLUMN lock_history.blocker_statements.query IS 'its text, at most 512 bytes, as far as query_text and query_length keep it';
COMMENT ON COLUMN lock_history.blocker_statements.left_out IS 'further statements of the transaction that were seen and not kept';
COMMENT ON COLUMN lock_history.blocker_statements.wait_start IS 'begin of the wait; a condition on it is fast';
COMMENT ON COLUMN lock_history.blocker_statements.object IS 'object waited for';
COMMENT ON COLUMN lock_history.blocker_statements.unseen_before IS 'whether the transaction had begun more than a sampling period before the first statement of it that was seen: something ran before, if only BEGIN, and may have taken the lock; null: not known (statements were left out, or a prepared transaction)';

-- plpgsql, since a plan made without knowing the range would read everything;
-- see also blocking_tree_at().
CREATE FUNCTION lock_history.blocker_statements(since timestamptz, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS SETOF lock_history.blocker_statements
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    began       timestamptz := coalesce(blocker_statements.since, '-infinity');
    ended       timestamptz := coalesce(blocker_statements.until, 'infinity');
    wanted_node text := coalesce(blocker_statements.node, lock_history.local_node());
    nodes       integer[] := ARRAY(SELECT n.node_id FROM lock_history.recorded AS n WHERE wanted_node IS NULL OR n.node = wanted_node);
    segments    smallint[] := ARRAY(SELECT r.seg FROM lock_history.ring_segment AS r
                                    -- a minute for clocks that were set back
                                    WHERE r.closed_at IS NULL OR r.closed_at > began - interval '1 min');
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    IF began > ended THEN
        RAISE EXCEPTION 'since (%) is after until (%)', blocker_statements.since, blocker_statements.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
    WITH edge AS MATERIALIZED (
        SELECT w.node_id, w.seg, e.proc, e.pid, e.actor, e.kind, e.since, w.wait_id, w.wait_start, w.object
        FROM lock_history.wait_episode AS w
        CROSS JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_from, w.edge_to)
            AS e(kind, proc, pid, actor, since, until)
        WHERE w.wait_start <= ended
          AND (w.is_open OR w.wait_end >= began) AND (w.is_open OR w.seg = ANY (segments))
          AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end >= began)
          AND w.node_id = ANY (nodes)
          AND e.kind IN (1, 3)
          AND e.since <= ended AND coalesce(e.until, w.wait_end, 'infinity') >= began
    ), described AS (
        SELECT a.node_id, a.proc, a.seg, a.actor, p.xact_start, p.seen_at, p.backend_start, p.gid, p.stmt_first_seen, p.stmt_last_seen,
               p.stmt_samples, p.stmt_state, p.stmt_wait_event_type, p.stmt_wait_event, p.stmt_query_start, p.stmt_query_id,
               p.stmt_query, p.stmt_left_out
        FROM (SELECT DISTINCT e.node_id, e.proc, e.seg, e.actor FROM edge AS e) AS a
        JOIN lock_history.process AS p ON p.seg = a.seg AND p.actor_id = a.actor AND (p.node_id = a.node_id) IS TRUE
    ), blocked AS (
        -- the first wait for each transaction, whatever its description was then
        SELECT DISTINCT ON (e.node_id, e.proc, d.xact_start)
               e.node_id, e.proc, d.xact_start, e.pid, e.wait_id, e.wait_start, e.object,
               pg_catalog.min(e.kind) OVER (PARTITION BY e.node_id, e.proc, d.xact_start) AS kind
        FROM edge AS e
        JOIN described AS d ON d.node_id = e.node_id AND d.proc = e.proc AND d.seg = e.seg AND d.actor = e.actor
        ORDER BY e.node_id, e.proc, d.xact_start, e.wait_start, e.wait_id
    ), latest AS (
        SELECT DISTINCT ON (d.node_id, d.proc, d.xact_start)
               d.node_id, d.proc, d.xact_start, d.backend_start, d.gid, d.stmt_first_seen, d.stmt_last_seen, d.stmt_samples, d.stmt_state,
               d.stmt_wait_event_type, d.stmt_wait_event, d.stmt_query_start, d.stmt_query_id, d.stmt_query, d.stmt_left_out
        FROM described AS d
        ORDER BY d.node_id, d.proc, d.xact_start, d.seen_at DESC
    ), numbered AS (
        SELECT b.node_id, b.proc, b.xact_start, b.wait_id, b.wait_start, b.object, b.kind,
               CASE WHEN b.pid <> 0 THEN b.pid
                    ELSE -pg_catalog.row_number() OVER (PARTITION BY b.node_id, b.pid ORDER BY b.wait_start, b.proc) END::integer AS pid
        FROM blocked AS b
    )
    SELECT n.node, b.wait_id, b.pid, CASE b.kind WHEN 1 THEN 'hard' ELSE 'root' END,
           l.backend_start, l.xact_start, l.gid,
           s.no::integer, s.first_seen, s.last_seen, s.samples, s.state, s.wait_event_type, s.wait_event,
           s.query_start, s.query_id, s.query, l.stmt_left_out,
           b.wait_start, b.object,
           CASE WHEN l.gid IS NULL AND l.stmt_left_out = 0
                THEN least(l.stmt_query_start[1], l.stmt_first_seen[1])
                     > l.xact_start + (SELECT coalesce(nullif(pg_catalog.current_setting('pg_lock_history.sample_period', true), ''), '10ms')::interval) END
    FROM numbered AS b
    JOIN latest AS l ON l.node_id = b.node_id AND l.proc = b.proc AND l.xact_start IS NOT DISTINCT FROM b.xact_start
    JOIN lock_history.recorded AS n ON n.node_id = b.node_id
    CROSS JOIN LATERAL unnest(l.stmt_first_seen, l.stmt_last_seen, l.stmt_samples, l.stmt_state, l.stmt_wait_event_type,
                              l.stmt_wait_event, l.stmt_query_start, l.stmt_query_id, l.stmt_query)
        WITH ORDINALITY AS s(first_seen, last_seen, samples, state, wait_event_type, wait_event, query_start, query_id, query, no)
    ORDER BY b.wait_start, n.node, b.pid, l.xact_start, s.no;
END
$$;
COMMENT ON FUNCTION lock_history.blocker_statements(timestamptz, timestamptz, text) IS
    'What blockers within a range ran before, as seen in samples, each transaction once, with the first wait for it; columns as in view blocker_statements (until: default now; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.blocker_statements(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.blocker_statements(timestamptz, timestamptz, text) TO pg_monitor;
