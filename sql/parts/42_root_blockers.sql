-- One row for each process that stood at the root of a tree, over the whole
-- history.
--
-- The edges are unnested once and read twice: for the sums, and for the
-- latest description of each root, which may be in another segment.
CREATE VIEW lock_history.root_blockers AS
WITH edge AS MATERIALIZED (
    SELECT w.node_id, w.seg, e.proc, e.pid, e.actor, w.proc_key AS waiter,
           e.since, coalesce(e.until, w.wait_end) AS until
    FROM lock_history.wait_episode AS w
    CROSS JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_from, w.edge_to)
        AS e(kind, proc, pid, actor, since, until)
    WHERE e.kind = 3
), root AS (
    SELECT e.node_id, e.proc, pg_catalog.min(e.pid) AS pid,
           pg_catalog.count(DISTINCT e.waiter) AS sessions_blocked,
           pg_catalog.sum(coalesce(e.until, pg_catalog.statement_timestamp()) - e.since) AS blocked_time,
           pg_catalog.min(e.since) AS first_seen,
           CASE WHEN pg_catalog.bool_and(e.until IS NOT NULL) THEN pg_catalog.max(e.until) END AS last_seen
    FROM edge AS e
    GROUP BY e.node_id, e.proc
), described AS (
    SELECT DISTINCT ON (a.node_id, a.proc)
           a.node_id, a.proc, p.gid, p.backend_start, p.backend_type, p.datname, p.usename, p.application_name,
           p.client_addr, p.state, p.state_change, p.xact_start, p.query_id, p.query
    FROM (SELECT DISTINCT e.node_id, e.proc, e.seg, e.actor FROM edge AS e) AS a
    JOIN lock_history.process AS p ON p.seg = a.seg AND p.actor_id = a.actor AND (p.node_id = a.node_id) IS TRUE
    ORDER BY a.node_id, a.proc, p.seen_at DESC
)
SELECT n.node,
       CASE WHEN r.pid <> 0 THEN r.pid
            ELSE -pg_catalog.row_number() OVER (PARTITION BY r.node_id, r.pid ORDER BY r.first_seen, r.proc) END::integer AS pid,
       d.gid, d.backend_start, d.backend_type, d.datname, d.usename, d.application_name, d.client_addr,
       d.state, d.state_change, d.xact_start, d.query,
       r.sessions_blocked, r.blocked_time, r.first_seen, r.last_seen,
       d.query_id
FROM root AS r
JOIN lock_history.node AS n ON n.node_id = r.node_id
LEFT JOIN described AS d ON d.node_id = r.node_id AND d.proc = r.proc;

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
