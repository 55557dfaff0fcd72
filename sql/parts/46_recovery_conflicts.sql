-- Statements and sessions that were in the way of a standby's replay for longer
-- than it waits.  Their own errors told; that the replay waited for a lock before
-- that is in waits, with the startup process as the one that waited.
CREATE VIEW lock_history.recovery_conflicts AS
SELECT n.node, c.at, c.conflict, CASE WHEN c.ended_session THEN 'session' ELSE 'statement' END AS ended,
       c.pid, p.backend_start, p.backend_type, p.datname, p.usename, p.application_name, p.client_addr,
       p.state, p.xact_start, p.query_start, p.query_id, p.query
FROM lock_history.conflict AS c
JOIN lock_history.recorded AS n ON n.node_id = c.node_id
LEFT JOIN LATERAL (SELECT a.backend_start, a.backend_type, a.datname, a.usename, a.application_name, a.client_addr,
                          a.state, a.xact_start, a.query_start, a.query_id, a.query
                   FROM lock_history.process AS a
                   WHERE a.seg = c.seg AND a.actor_id = c.actor_id AND a.node_id = c.node_id
                   LIMIT 1) AS p ON true
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  -- a kept incident is read without a look into the ring
  AND c.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.recovery_conflicts TO pg_monitor;
COMMENT ON VIEW lock_history.recovery_conflicts IS
    'On a standby: the statements that the replay has cancelled, and the sessions that it has ended, for being in its way';
COMMENT ON COLUMN lock_history.recovery_conflicts.node IS 'standby on which it happened';
COMMENT ON COLUMN lock_history.recovery_conflicts.at IS 'when it was cancelled';
COMMENT ON COLUMN lock_history.recovery_conflicts.conflict IS 'what stood in the way of the replay: lock; snapshot (rows that it had to remove); buffer pin; deadlock (a buffer pin, while it waited for the replay); tablespace; database; logical slot; other';
COMMENT ON COLUMN lock_history.recovery_conflicts.ended IS 'statement: it was cancelled; session: it was ended';
COMMENT ON COLUMN lock_history.recovery_conflicts.pid IS 'the process';
COMMENT ON COLUMN lock_history.recovery_conflicts.backend_start IS 'when it started';
COMMENT ON COLUMN lock_history.recovery_conflicts.backend_type IS 'kind of process, as in pg_stat_activity; null as all that follows: more were cancelled in one moment than could leave a note';
COMMENT ON COLUMN lock_history.recovery_conflicts.datname IS 'its database';
COMMENT ON COLUMN lock_history.recovery_conflicts.usename IS 'its role';
COMMENT ON COLUMN lock_history.recovery_conflicts.application_name IS 'its application_name';
COMMENT ON COLUMN lock_history.recovery_conflicts.client_addr IS 'address of the client; null: local socket, no client, or insufficient privilege';
COMMENT ON COLUMN lock_history.recovery_conflicts.state IS 'what it was doing, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.recovery_conflicts.xact_start IS 'start of its transaction';
COMMENT ON COLUMN lock_history.recovery_conflicts.query_start IS 'start of the statement';
COMMENT ON COLUMN lock_history.recovery_conflicts.query_id IS 'query identifier; null: not computed, or insufficient privilege';
COMMENT ON COLUMN lock_history.recovery_conflicts.query IS 'the statement that was cancelled; of a session that was idle in a transaction its last one';
