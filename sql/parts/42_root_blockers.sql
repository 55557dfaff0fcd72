-- One row for each process that stood at the root of a tree: in the view over
-- the whole history, in the function of the same name within a range.

-- What both are.  plpgsql, since a plan made without knowing the range would
-- read everything; see also blocking_tree_at().
--
-- The edges are unnested once and read twice: for the sums, and for the
-- latest description of each root, which may be in another segment.
CREATE FUNCTION lock_history.roots_between(since timestamptz, until timestamptz, nodes integer[])
RETURNS TABLE (
    node text, pid integer, gid text, backend_start timestamptz, backend_type text, datname text, usename text,
    application_name text, client_addr inet, state text, state_change timestamptz, xact_start timestamptz, query text,
    sessions_blocked bigint, blocked_time interval, first_seen timestamptz, last_seen timestamptz, query_id bigint,
    statements_before text[], unseen_before boolean)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    segments smallint[] := ARRAY(SELECT r.seg FROM lock_history.ring_segment AS r
                                 -- a minute for clocks that were set back
                                 WHERE r.closed_at IS NULL OR r.closed_at > roots_between.since - interval '1 min');
BEGIN
    RETURN QUERY
    WITH edge AS MATERIALIZED (
        SELECT w.node_id, w.seg, e.proc, e.pid, e.actor, w.proc_key AS waiter,
               greatest(e.since, roots_between.since) AS since,
               -- null: it goes on
               nullif(least(coalesce(e.until, w.wait_end, 'infinity'), roots_between.until), 'infinity') AS until
        FROM lock_history.wait_episode AS w
        CROSS JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_from, w.edge_to)
            AS e(kind, proc, pid, actor, since, until)
        WHERE w.wait_start <= roots_between.until
          AND (w.is_open OR w.wait_end >= roots_between.since) AND (w.is_open OR w.seg = ANY (segments))
          AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end >= roots_between.since)
          AND (nodes IS NULL OR w.node_id = ANY (nodes))
          AND e.kind = 3
          AND e.since <= roots_between.until AND coalesce(e.until, w.wait_end, 'infinity') >= roots_between.since
    ), root AS (
        SELECT e.node_id, e.proc, pg_catalog.min(e.pid) AS pid,
               pg_catalog.count(DISTINCT e.waiter) AS sessions_blocked,
               pg_catalog.sum(greatest(coalesce(e.until,
                                                -- now, by the node's own clock
                                                pg_catalog.statement_timestamp() + (SELECT c.clock_offset FROM lock_history.recorded AS c WHERE c.node_id = e.node_id),
                                                pg_catalog.statement_timestamp()) - e.since, interval '0')) AS blocked_time,
               pg_catalog.min(e.since) AS first_seen,
               CASE WHEN pg_catalog.bool_and(e.until IS NOT NULL) THEN pg_catalog.max(e.until) END AS last_seen
        FROM edge AS e
        GROUP BY e.node_id, e.proc
    ), described AS (
        SELECT DISTINCT ON (a.node_id, a.proc)
               a.node_id, a.proc, p.gid, p.backend_start, p.backend_type, p.datname, p.usename, p.application_name,
               p.client_addr, p.state, p.state_change, p.xact_start, p.query_start, p.query_id, p.query,
               p.stmt_query, p.stmt_query_start, p.stmt_first_seen, p.stmt_left_out
        FROM (SELECT DISTINCT e.node_id, e.proc, e.seg, e.actor FROM edge AS e) AS a
        JOIN lock_history.process AS p ON p.seg = a.seg AND p.actor_id = a.actor AND (p.node_id = a.node_id) IS TRUE
        ORDER BY a.node_id, a.proc, p.seen_at DESC
    )
    SELECT n.node,
           CASE WHEN r.pid <> 0 THEN r.pid
                ELSE -pg_catalog.row_number() OVER (PARTITION BY r.node_id, r.pid ORDER BY r.first_seen, r.proc) END::integer,
           d.gid, d.backend_start, d.backend_type, d.datname, d.usename, d.application_name, d.client_addr,
           d.state, d.state_change, d.xact_start, d.query,
           r.sessions_blocked, r.blocked_time, r.first_seen, r.last_seen,
           d.query_id,
           ARRAY(SELECT s.query
                 FROM unnest(d.stmt_query, d.stmt_query_start) WITH ORDINALITY AS s(query, query_start, no)
                 WHERE s.query IS NOT NULL AND s.query_start IS DISTINCT FROM d.query_start
                 ORDER BY s.no),
           -- Of a text that ran several times query_start is that of the last one.
           -- A prepared transaction has the time of PREPARE as its start.
           CASE WHEN d.gid IS NULL AND coalesce(d.stmt_left_out, 0) = 0
                THEN least(coalesce(d.stmt_query_start[1], d.query_start), d.stmt_first_seen[1])
                     > d.xact_start + (SELECT coalesce(nullif(pg_catalog.current_setting('pg_lock_history.sample_period', true), ''), '10ms')::interval) END
    FROM root AS r
    JOIN lock_history.recorded AS n ON n.node_id = r.node_id
    LEFT JOIN described AS d ON d.node_id = r.node_id AND d.proc = r.proc;
END
$$;
COMMENT ON FUNCTION lock_history.roots_between(timestamptz, timestamptz, integer[]) IS
    'internal: root_blockers of a range and of these nodes, null: of all';
REVOKE ALL ON FUNCTION lock_history.roots_between(timestamptz, timestamptz, integer[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.roots_between(timestamptz, timestamptz, integer[]) TO pg_monitor;

CREATE VIEW lock_history.root_blockers AS
SELECT r.node, r.pid, r.gid, r.backend_start, r.backend_type, r.datname, r.usename, r.application_name, r.client_addr,
       r.state, r.state_change, r.xact_start, r.query,
       r.sessions_blocked, r.blocked_time, r.first_seen, r.last_seen, r.query_id, r.statements_before, r.unseen_before
FROM lock_history.roots_between('-infinity', 'infinity', NULL) AS r;

GRANT SELECT ON lock_history.root_blockers TO pg_monitor;
COMMENT ON VIEW lock_history.root_blockers IS
    'Who caused the waiting: processes that blocked others and did not wait themselves, over the whole history';
COMMENT ON COLUMN lock_history.root_blockers.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.root_blockers.pid IS 'the process; -n: n-th prepared transaction, see gid';
COMMENT ON COLUMN lock_history.root_blockers.gid IS 'name of the prepared transaction; null: a process';
COMMENT ON COLUMN lock_history.root_blockers.backend_start IS 'when the process started; null: prepared transaction';
COMMENT ON COLUMN lock_history.root_blockers.backend_type IS 'kind of process, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.root_blockers.datname IS 'database the process was connected to; null: none';
COMMENT ON COLUMN lock_history.root_blockers.usename IS 'role of the process; null: none';
COMMENT ON COLUMN lock_history.root_blockers.application_name IS 'application_name of the process';
COMMENT ON COLUMN lock_history.root_blockers.client_addr IS 'address of the client; null: local socket, no client, or insufficient privilege';
COMMENT ON COLUMN lock_history.root_blockers.state IS 'state when it was last looked at, as in pg_stat_activity, or prepared';
COMMENT ON COLUMN lock_history.root_blockers.state_change IS 'since when it was in that state';
COMMENT ON COLUMN lock_history.root_blockers.xact_start IS 'start of its transaction; of a prepared one the time of PREPARE';
COMMENT ON COLUMN lock_history.root_blockers.query IS 'its current statement, or its last one when idle in transaction';
COMMENT ON COLUMN lock_history.root_blockers.sessions_blocked IS 'different processes that waited with it as root';
COMMENT ON COLUMN lock_history.root_blockers.blocked_time IS 'sum of the time they waited with it as root';
COMMENT ON COLUMN lock_history.root_blockers.first_seen IS 'when it first was a root';
COMMENT ON COLUMN lock_history.root_blockers.last_seen IS 'when it last was a root; null: it is one now';
COMMENT ON COLUMN lock_history.root_blockers.query_id IS 'query identifier; null: not computed, or insufficient privilege';
COMMENT ON COLUMN lock_history.root_blockers.statements_before IS 'what samples saw it run in the same transaction beside query, oldest first: no proof that one of them took the lock; more in blocker_statements; empty: nothing was seen';
COMMENT ON COLUMN lock_history.root_blockers.unseen_before IS 'whether its transaction had begun more than a sampling period before the first statement of it that was seen: something ran before, if only BEGIN, and may have taken the lock; null: not known (statements were left out, a prepared transaction, or not in one)';

CREATE FUNCTION lock_history.root_blockers(since timestamptz, until timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS SETOF lock_history.root_blockers
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    wanted_node text := coalesce(root_blockers.node, lock_history.local_node());
BEGIN
    PERFORM lock_history.warn_if_nothing_is_here();
    IF root_blockers.since > root_blockers.until THEN
        RAISE EXCEPTION 'since (%) is after until (%)', root_blockers.since, root_blockers.until
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
    SELECT r.node, r.pid, r.gid, r.backend_start, r.backend_type, r.datname, r.usename, r.application_name, r.client_addr,
           r.state, r.state_change, r.xact_start, r.query,
           r.sessions_blocked, r.blocked_time, r.first_seen, r.last_seen, r.query_id, r.statements_before, r.unseen_before
    FROM lock_history.roots_between(
        coalesce(root_blockers.since, '-infinity'),
        -- what goes on now has no end, not one at the moment of the question
        CASE WHEN root_blockers.until < pg_catalog.statement_timestamp() THEN root_blockers.until ELSE 'infinity' END,
        ARRAY(SELECT n.node_id FROM lock_history.recorded AS n WHERE wanted_node IS NULL OR n.node = wanted_node)) AS r
    ORDER BY r.blocked_time DESC, r.first_seen, r.node, r.pid;
END
$$;
COMMENT ON FUNCTION lock_history.root_blockers(timestamptz, timestamptz, text) IS
    'Who caused the waiting within a range, with the time blocked in it, the one with most first; columns as in view root_blockers (until: default now; node: default this server)';
REVOKE ALL ON FUNCTION lock_history.root_blockers(timestamptz, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.root_blockers(timestamptz, timestamptz, text) TO pg_monitor;
