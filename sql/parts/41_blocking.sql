-- Every blocker of every wait: hard ones, and the nearest soft one.  Roots
-- (edge kind 3) are in waits and root_blockers.
CREATE VIEW lock_history.blocking AS
SELECT (SELECT n.node FROM lock_history.recorded AS n WHERE n.node_id = w.node_id) AS node, w.wait_id, p.pid,
       CASE WHEN e.pid <> 0 THEN e.pid
            ELSE -(SELECT pg_catalog.count(DISTINCT x.proc)
                   FROM unnest(w.edge_pid, w.edge_proc)
                        WITH ORDINALITY AS x(pid, proc, ord)
                   WHERE x.pid = 0
                     AND x.ord <= pg_catalog.array_position(w.edge_proc, e.proc))::integer END AS blocker_pid,
       CASE e.kind WHEN 1 THEN 'hard' ELSE 'soft' END AS kind,
       ARRAY(SELECT ('{AccessShareLock,RowShareLock,RowExclusiveLock,ShareUpdateExclusiveLock,
                       ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::text[])[m.mode]
             FROM pg_catalog.generate_series(1, 8) AS m(mode)
             WHERE e.modes & (1 << m.mode) <> 0
             ORDER BY m.mode) AS blocker_mode,
       e.since AS first_seen,
       coalesce(e.until, w.wait_end) AS last_seen,
       b.backend_start AS blocker_backend_start, b.gid AS blocker_gid, b.backend_type AS blocker_backend_type,
       b.datname AS blocker_datname, b.usename AS blocker_usename,
       b.application_name AS blocker_application_name, b.client_addr AS blocker_client_addr,
       b.state AS blocker_state, b.state_change AS blocker_state_change, b.xact_start AS blocker_xact_start,
       b.query_id AS blocker_query_id, b.query AS blocker_query,
       w.wait_start, w.object
FROM lock_history.wait_episode AS w
CROSS JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_modes, w.edge_from, w.edge_to)
    AS e(kind, proc, pid, actor, modes, since, until)
LEFT JOIN LATERAL (SELECT a.pid
                   FROM lock_history.process AS a
                   WHERE a.seg = w.seg AND a.actor_id = w.actor_id AND a.node_id = w.node_id
                   LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT a.backend_start, a.gid, a.backend_type, a.datname, a.usename, a.application_name, a.client_addr,
                          a.state, a.state_change, a.xact_start, a.query_id, a.query
                   FROM lock_history.process AS a
                   WHERE a.seg = w.seg AND a.actor_id = e.actor AND a.node_id = w.node_id
                   LIMIT 1) AS b ON true
WHERE e.kind IN (1, 2)
  -- always true, see waits
  AND w.seg >= (SELECT 0) AND w.seg <= (SELECT 8);

GRANT SELECT ON lock_history.blocking TO pg_monitor;
COMMENT ON VIEW lock_history.blocking IS
    'Who blocked whom, from when to when: a row for each hard blocker and for the nearest soft blocker of each wait';
COMMENT ON COLUMN lock_history.blocking.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.blocking.wait_id IS 'the wait, as in waits';
COMMENT ON COLUMN lock_history.blocking.pid IS 'process that waited';
COMMENT ON COLUMN lock_history.blocking.blocker_pid IS 'process in its way; -n: n-th prepared transaction of this wait, see blocker_gid';
COMMENT ON COLUMN lock_history.blocking.kind IS 'hard: holds a conflicting mode; soft: ahead in the queue with a conflicting request';
COMMENT ON COLUMN lock_history.blocking.blocker_mode IS 'modes held (hard) or asked for (soft), as in pg_locks';
COMMENT ON COLUMN lock_history.blocking.first_seen IS 'begin of the blocking';
COMMENT ON COLUMN lock_history.blocking.last_seen IS 'end of the blocking; null: it goes on';
COMMENT ON COLUMN lock_history.blocking.blocker_backend_start IS 'when the blocker''s process started; null: prepared transaction';
COMMENT ON COLUMN lock_history.blocking.blocker_gid IS 'name of the prepared transaction; null: a process';
COMMENT ON COLUMN lock_history.blocking.blocker_backend_type IS 'kind of process, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.blocking.blocker_datname IS 'database of the blocker';
COMMENT ON COLUMN lock_history.blocking.blocker_usename IS 'role of the blocker';
COMMENT ON COLUMN lock_history.blocking.blocker_application_name IS 'application_name of the blocker';
COMMENT ON COLUMN lock_history.blocking.blocker_client_addr IS 'address of the blocker''s client; null: local socket, no client, or insufficient privilege';
COMMENT ON COLUMN lock_history.blocking.blocker_state IS 'state of the blocker when last looked at, as in pg_stat_activity, or prepared';
COMMENT ON COLUMN lock_history.blocking.blocker_state_change IS 'since when it was in that state';
COMMENT ON COLUMN lock_history.blocking.blocker_xact_start IS 'start of the blocker''s transaction; of a prepared one the time of PREPARE';
COMMENT ON COLUMN lock_history.blocking.blocker_query_id IS 'query identifier of the blocker; null: not computed, or insufficient privilege';
COMMENT ON COLUMN lock_history.blocking.blocker_query IS 'current statement of the blocker, or its last one when idle in transaction (not always the one that took the lock)';
COMMENT ON COLUMN lock_history.blocking.wait_start IS 'begin of the wait; a condition on it is fast';
COMMENT ON COLUMN lock_history.blocking.object IS 'object waited for';
