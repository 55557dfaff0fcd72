-- The layer between tables and views.  A user never reads the tables: these
-- views run with their owner's rights, resolve what the tables leave open
-- (which row of a wait counts, has it ended, may this role see that text), and
-- are all that the functions, which run with the caller's rights, may read.
--
-- node_id is the same in all rows, or in every few: the planner, which knows
-- little about a union of partitions, must not choose it as what to join on.
-- So the name of a node is a sub-select, and "(a.node_id = b.node_id) IS TRUE"
-- only filters what seg and actor_id have found.
--
-- Each is granted like the public views.  They contain nothing that those do
-- not show; the masks are here, below everything.

-- A session sees in full what it would see in pg_stat_activity: everything with
-- pg_read_all_stats, else the processes of roles it belongs to.  A role's OID
-- means something on its own system only.
CREATE VIEW lock_history.process AS
SELECT a.seg, a.node_id, a.actor_id, a.proc_key, a.seen_at, a.pid, a.leader_pid, a.gid,
       a.backend_start, a.backend_type, a.datname, a.usename, a.application_name,
       CASE WHEN a.may_see THEN a.client_addr END AS client_addr,
       a.state, a.state_change, a.xact_start, a.query_start,
       CASE WHEN a.may_see THEN a.query_id END AS query_id,
       CASE WHEN a.may_see THEN a.query ELSE '<insufficient privilege>' END AS query,
       a.members
FROM (SELECT i.seg, i.node_id, i.actor_id, i.proc_key, i.seen_at, i.pid, i.leader_pid, i.gid,
             i.backend_start, i.backend_type, i.datname, i.usename, i.application_name, i.client_addr,
             i.state, i.state_change, i.xact_start, i.query_start, i.query_id, i.query, i.members,
             -- a sub-select: asked once a query, not once a row
             (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
             OR (i.node_id = ANY (here.node_ids) AND pg_catalog.pg_has_role(i.usesysid, 'USAGE')) IS TRUE AS may_see
      FROM lock_history.actor AS i
      -- joined, not a sub-select: pg_control_system() is volatile, and a
      -- volatile column would keep the planner from looking actors up by index
      CROSS JOIN (SELECT pg_catalog.array_agg(n.node_id) AS node_ids
                  FROM lock_history.node AS n
                  JOIN pg_catalog.pg_control_system() AS s ON s.system_identifier = n.system_identifier) AS here) AS a;
COMMENT ON VIEW lock_history.process IS
    'internal: table actor with query, query_id and client_addr masked as in pg_stat_activity';
GRANT SELECT ON lock_history.process TO pg_monitor;

-- One row for each wait.  A row of "open" counts only while there is no row in
-- "episode", and of several the last written.  It is alive as long as the life
-- of the worker that saw it is: the latest of its node, with a heartbeat not
-- older than 3 flush periods (and 2 s for a busy machine).  After that nobody
-- knows how the wait went on.
--
-- Open waits are written again when a segment closes.  So only segments that
-- are open, or were when a worker had its last heartbeat (and a minute before:
-- time for the rewriting), can have rows that count.  Their ends are looked up
-- one by one, in the index: LIMIT keeps the planner from hashing every episode
-- of the ring instead.
--
-- is_open is constant in each branch, so a condition "is_open OR ..." costs
-- the other branch nothing; see blocking_tree_at().
CREATE VIEW lock_history.wait_episode AS
SELECT e.seg, e.node_id, e.wait_id, e.proc_key, e.actor_id, false AS is_open,
       e.wait_start, e.wait_end, e.granted, e.outcome, e.samples,
       e.locktype, e.mode, e.mode_number, e.object, e.database, e.datname, e.relation, e.page, e.tuple,
       e.virtualxid, e.transactionid, e.classid, e.objid, e.objsubid,
       e.lock_key, e.queue_key, e.in_cycle, e.hard_count, e.soft_count, e.soft_pids,
       e.edge_kind, e.edge_proc, e.edge_pid, e.edge_actor, e.edge_modes, e.edge_from, e.edge_to
FROM lock_history.episode AS e
UNION ALL
SELECT o.seg, o.node_id, o.wait_id, o.proc_key, o.actor_id, true,
       o.wait_start, CASE WHEN NOT o.is_alive THEN greatest(o.heartbeat, o.wait_start) END,
       NULL, CASE WHEN NOT o.is_alive THEN 'unknown' END, o.samples,
       o.locktype, o.mode, o.mode_number, o.object, o.database, o.datname, o.relation, o.page, o.tuple,
       o.virtualxid, o.transactionid, o.classid, o.objid, o.objsubid,
       o.lock_key, o.queue_key, o.in_cycle, o.hard_count, o.soft_count, o.soft_pids,
       o.edge_kind, o.edge_proc, o.edge_pid, o.edge_actor, o.edge_modes, o.edge_from, o.edge_to
FROM (SELECT DISTINCT ON (p.wait_start, p.wait_id, p.node_id)
             p.seg, p.node_id, p.wait_id, p.proc_key, p.actor_id, p.wait_start, p.samples,
             p.locktype, p.mode, p.mode_number, p.object, p.database, p.datname, p.relation, p.page, p.tuple,
             p.virtualxid, p.transactionid, p.classid, p.objid, p.objsubid,
             p.lock_key, p.queue_key, p.in_cycle, p.hard_count, p.soft_count, p.soft_pids,
             p.edge_kind, p.edge_proc, p.edge_pid, p.edge_actor, p.edge_modes, p.edge_from, p.edge_to,
             r.heartbeat,
             -- statement time: now() stands still in a long transaction
             r.heartbeat > pg_catalog.statement_timestamp() - 3 * r.flush_period - interval '2 s'
             AND NOT EXISTS (SELECT FROM lock_history.run AS later
                             WHERE later.node_id = r.node_id AND later.run > r.run) AS is_alive
      FROM lock_history.open AS p
      JOIN lock_history.run AS r ON r.node_id = p.node_id AND r.run = p.run
      JOIN lock_history.ring AS own ON own.seg = p.seg
           AND (own.closed_at IS NULL OR own.closed_at > r.heartbeat - interval '1 min')
      -- the same for all rows of a segment at once: leaves that cannot match are not opened
      WHERE p.seg = ANY (ARRAY(
                SELECT s.seg FROM lock_history.ring AS s
                WHERE s.closed_at IS NULL
                   OR EXISTS (SELECT FROM lock_history.run AS ended
                              WHERE ended.heartbeat < s.closed_at + interval '1 min'
                                AND (s.opened_at IS NULL OR ended.heartbeat >= s.opened_at))))
        AND (SELECT true FROM lock_history.episode AS e
             WHERE e.wait_start = p.wait_start AND e.wait_id = p.wait_id AND e.node_id = p.node_id
             LIMIT 1) IS NULL
      ORDER BY p.wait_start, p.wait_id, p.node_id, p.written_at DESC) AS o;
COMMENT ON VIEW lock_history.wait_episode IS
    'internal: one row for each wait out of tables episode and open, with its edges as arrays';
GRANT SELECT ON lock_history.wait_episode TO pg_monitor;

CREATE VIEW lock_history.node_state AS
SELECT n.node_id, n.node,
       n.system_identifier = (SELECT s.system_identifier FROM pg_catalog.pg_control_system() AS s) AS is_this_system,
       r.run, r.started_at, r.heartbeat, r.flush_period
FROM lock_history.node AS n
LEFT JOIN LATERAL (SELECT l.run, l.started_at, l.heartbeat, l.flush_period
                   FROM lock_history.run AS l
                   WHERE l.node_id = n.node_id
                   ORDER BY l.run DESC LIMIT 1) AS r ON true;
COMMENT ON VIEW lock_history.node_state IS
    'internal: the watched servers, each with the latest life of its worker';
GRANT SELECT ON lock_history.node_state TO pg_monitor;

-- A segment takes its rows while it is open: nothing in it ended after
-- closed_at, which lets a reader leave out whole segments.
CREATE VIEW lock_history.ring_segment AS
SELECT r.seg, r.round, r.opened_at, r.closed_at, r.is_empty
FROM lock_history.ring AS r;
COMMENT ON VIEW lock_history.ring_segment IS
    'internal: the segments of the ring';
GRANT SELECT ON lock_history.ring_segment TO pg_monitor;

-- A server recorded here under a name of its own choice.  The worker knows it
-- best; without one, the server with our system identifier that was heard of last.
-- Null when this server is not recorded here at all.
CREATE FUNCTION lock_history.local_node()
RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.node
    FROM lock_history.node_state AS s
    LEFT JOIN (SELECT w.value FROM lock_history.worker_status() AS w WHERE w.key = 'node') AS l ON l.value = s.node
    WHERE s.is_this_system OR l.value IS NOT NULL
    ORDER BY l.value IS NULL, s.heartbeat DESC NULLS LAST, s.node_id
    LIMIT 1
$$;
COMMENT ON FUNCTION lock_history.local_node() IS
    'internal: the name under which this server is recorded; what functions take when no node is given';
REVOKE ALL ON FUNCTION lock_history.local_node() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.local_node() TO pg_monitor;
