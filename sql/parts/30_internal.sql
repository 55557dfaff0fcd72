-- The layer between tables and views.  A user never reads the tables: these
-- views run with their owner's rights, resolve what the tables leave open
-- (which row of a wait counts, has it ended, may this role see that text), and
-- are all that the functions, which run with the caller's rights, may read.
--
-- node_id is the same in all rows, or in every few: the planner, which knows
-- little about a union of partitions, must not choose it as what to join on.
-- So the name of a node is a sub-select, and "(a.node_id = b.node_id) IS TRUE"
-- only filters what seg and actor_id have found.  Numbers of the dictionary begin
-- anew with each node, and would find as many as there are nodes.  So there node_id
-- is joined on, too; the node is chosen before the arrays are taken apart.
--
-- What is in arrays is unnested in the select list of a sub-select, not beside it
-- in FROM: so the planner, which would see few rows, cannot multiply seconds by the
-- dictionary before it looks at the numbers; conditions on "at" still get in.
--
-- Each is granted like the public views.  They contain nothing that those do
-- not show; the masks are here, below everything.

-- What is read is the ring, or one kept incident: never both.

-- Whose history there is: each watched server, and each kept incident as if it
-- were one.
CREATE VIEW lock_history.recorded AS
SELECT n.node_id, n.node, n.system_identifier,
       NULL::text AS incident, NULL::timestamptz AS since, NULL::timestamptz AS until, n.clock_offset
FROM lock_history.node AS n
UNION ALL
SELECT -k.kept_id, k.node, k.system_identifier, k.name, k.since, k.until, NULL
FROM lock_history.kept_incident AS k;
COMMENT ON VIEW lock_history.recorded IS
    'internal: the watched servers, and the kept incidents (node_id below 0) with their range';
GRANT SELECT ON lock_history.recorded TO pg_monitor;

-- Without preload the setting is one that the server knows nothing of: any
-- name can be in it, and none.
CREATE FUNCTION lock_history.incident()
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted text := nullif(pg_catalog.current_setting('pg_lock_history.incident', true), '');
    names  text;
BEGIN
    IF wanted IS NULL OR EXISTS (SELECT FROM lock_history.recorded AS r WHERE r.incident = wanted) THEN
        RETURN wanted;
    END IF;
    SELECT pg_catalog.string_agg(pg_catalog.format('"%s"', l.incident), ', ' ORDER BY l.incident) INTO names
    FROM (SELECT r.incident FROM lock_history.recorded AS r WHERE r.incident IS NOT NULL ORDER BY r.incident LIMIT 10) AS l;
    RAISE EXCEPTION 'there is no kept incident "%"', wanted
        USING ERRCODE = 'undefined_object',
              DETAIL = coalesce('Kept are: ' || names || '.', 'Nothing has been kept.'),
              HINT = 'Set pg_lock_history.incident to a name out of SELECT name FROM lock_history.kept, or RESET it to read the ring.';
END
$$;
COMMENT ON FUNCTION lock_history.incident() IS
    'internal: name of the kept incident that this session reads; null: the ring';
REVOKE ALL ON FUNCTION lock_history.incident() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.incident() TO pg_monitor;

-- A function, since pg_control_system() is volatile: as a column of a view it
-- would keep the planner from looking actors up by index.
CREATE FUNCTION lock_history.own_nodes()
RETURNS integer[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(r.node_id)
    FROM lock_history.recorded AS r
    JOIN pg_control_system() AS s ON s.system_identifier = r.system_identifier
$$;
COMMENT ON FUNCTION lock_history.own_nodes() IS
    'internal: node_id of what was seen on this system, where roles have the same OIDs';
REVOKE ALL ON FUNCTION lock_history.own_nodes() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.own_nodes() TO pg_monitor;

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
       a.members,
       a.stmt_first_seen, a.stmt_last_seen, a.stmt_samples, a.stmt_state, a.stmt_wait_event_type, a.stmt_wait_event,
       a.stmt_query_start,
       CASE WHEN a.may_see THEN a.stmt_query_id END AS stmt_query_id,
       CASE WHEN a.may_see THEN a.stmt_query
            ELSE pg_catalog.array_fill('<insufficient privilege>'::text, ARRAY[coalesce(pg_catalog.cardinality(a.stmt_query), 0)]) END AS stmt_query,
       a.stmt_left_out
FROM (SELECT i.seg, i.node_id, i.actor_id, i.proc_key, i.seen_at, i.pid, i.leader_pid, i.gid,
             i.backend_start, i.backend_type, i.datname, i.usename, i.application_name, i.client_addr,
             i.state, i.state_change, i.xact_start, i.query_start, i.query_id, i.query, i.members,
             i.stmt_first_seen, i.stmt_last_seen, i.stmt_samples, i.stmt_state, i.stmt_wait_event_type, i.stmt_wait_event,
             i.stmt_query_start, i.stmt_query_id, i.stmt_query, i.stmt_left_out,
             -- a sub-select: asked once a query, not once a row
             (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'))
             OR (i.node_id = ANY ((SELECT lock_history.own_nodes())::integer[]) AND pg_catalog.pg_has_role(i.usesysid, 'USAGE')) IS TRUE AS may_see
      FROM lock_history.actor AS i) AS a;
COMMENT ON VIEW lock_history.process IS
    'internal: table actor with statements, query_id and client_addr masked as in pg_stat_activity; to be joined by seg and actor_id, which tell ring and kept incidents apart';
GRANT SELECT ON lock_history.process TO pg_monitor;

-- One row for each wait.  A row of "open" counts only while there is no row in
-- "episode", and of several the last written.  It is alive as long as the life
-- of the worker that saw it is: the latest of its node, with a heartbeat not
-- older than 3 flush periods (and 2 s for a busy machine).  After that nobody
-- knows how the wait went on; nor when facts were dropped since it was written.
--
-- Open waits are written again when a segment closes.  So only segments that
-- are open, or were when a worker had its last heartbeat (and a minute before:
-- time for the rewriting), can have rows that count.  There is no index: it
-- would cost every reader of any view 8 locks, and these rows are few.  Their
-- ends are looked up one by one, in the index: LIMIT keeps the planner from
-- hashing every episode of the ring instead.
--
-- Which of ring and kept incident is read is found once a query: of the first
-- two branches one never runs.  (Two, not one with a condition that fits both:
-- the planner would take that for a narrow one.)
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
WHERE e.seg < 8 AND (SELECT lock_history.incident()) IS NULL
UNION ALL
SELECT k.seg, k.node_id, k.wait_id, k.proc_key, k.actor_id, false,
       k.wait_start, k.wait_end, k.granted, k.outcome, k.samples,
       k.locktype, k.mode, k.mode_number, k.object, k.database, k.datname, k.relation, k.page, k.tuple,
       k.virtualxid, k.transactionid, k.classid, k.objid, k.objsubid,
       k.lock_key, k.queue_key, k.in_cycle, k.hard_count, k.soft_count, k.soft_pids,
       k.edge_kind, k.edge_proc, k.edge_pid, k.edge_actor, k.edge_modes, k.edge_from, k.edge_to
FROM lock_history.episode AS k
WHERE k.seg = 8
  AND k.node_id = (SELECT r.node_id FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident())
UNION ALL
SELECT p.seg, o.node_id, o.wait_id, p.proc_key, p.actor_id, true,
       o.wait_start, CASE WHEN NOT o.is_alive THEN greatest(o.known_until, o.wait_start) END,
       NULL, CASE WHEN NOT o.is_alive THEN 'unknown' END, p.samples,
       p.locktype, p.mode, p.mode_number, p.object, p.database, p.datname, p.relation, p.page, p.tuple,
       p.virtualxid, p.transactionid, p.classid, p.objid, p.objsubid,
       p.lock_key, p.queue_key, p.in_cycle, p.hard_count, p.soft_count, p.soft_pids,
       p.edge_kind, p.edge_proc, p.edge_pid, p.edge_actor, p.edge_modes, p.edge_from, p.edge_to
FROM (SELECT DISTINCT ON (l.wait_start, l.wait_id, l.node_id)
             l.seg, l.place, l.wait_start, l.wait_id, l.node_id,
             -- lost with the first of those times: after it, all that went on was written again
             CASE WHEN l.written_at <= pg_catalog.upper(r.lost)
                  THEN pg_catalog.lower(r.lost * pg_catalog.tstzmultirange(pg_catalog.tstzrange(l.written_at, NULL)))
                  ELSE r.heartbeat END AS known_until,
             -- statement time: now() stands still in a long transaction
             coalesce(r.written_at, r.heartbeat) > pg_catalog.statement_timestamp() - 3 * r.flush_period - interval '2 s'
             AND (l.written_at <= pg_catalog.upper(r.lost)) IS NOT TRUE
             AND NOT EXISTS (SELECT FROM lock_history.run AS later
                             WHERE later.node_id = r.node_id AND later.run > r.run) AS is_alive
      -- The ring has 8 rows.  While it has not been analyzed, the planner would think
      -- of hundreds, and have the whole query compiled for longer than it runs.
      FROM (SELECT g.seg, g.opened_at, g.closed_at, g.holds_until FROM lock_history.ring AS g LIMIT 8) AS own
      -- Segment by segment, so that only the leaves of those that count are
      -- opened.  Nearly all have ended, and nearly all of these in the same
      -- segment.  Asked once for each wait, hence DISTINCT inside; the one outside
      -- has nothing left to do but to keep the planner from merging the levels,
      -- which would find the leaf anew for each wait.  Whole rows are fetched
      -- last: sorting them would take longer than all the rest.
      CROSS JOIN LATERAL (SELECT DISTINCT ON (d.wait_start, d.wait_id, d.node_id, d.run)
                                 d.seg, d.place, d.wait_start, d.wait_id, d.node_id, d.run, d.written_at
                          FROM (SELECT DISTINCT ON (q.wait_start, q.wait_id, q.node_id, q.run)
                                       q.seg, q.ctid AS place, q.wait_start, q.wait_id, q.node_id, q.run, q.written_at
                                FROM lock_history.open AS q
                                -- what began before all that is open now has ended
                                JOIN lock_history.run AS s ON s.node_id = q.node_id AND s.run = q.run
                                     AND (s.oldest_open <= q.wait_start OR pg_catalog.upper(s.lost) >= q.written_at)
                                -- the last two are always true, see waits: a look-up for each
                                -- row of every segment would look dear
                                WHERE q.seg = own.seg AND q.seg >= (SELECT 0) AND q.seg <= (SELECT 8)
                                ORDER BY q.wait_start, q.wait_id, q.node_id, q.run, q.written_at DESC) AS d
                          WHERE (SELECT true FROM lock_history.episode AS e
                                 WHERE e.seg = own.seg AND e.wait_start = d.wait_start AND e.wait_id = d.wait_id
                                   AND e.node_id = d.node_id
                                 LIMIT 1) IS NULL
                          ORDER BY d.wait_start, d.wait_id, d.node_id, d.run) AS l
      JOIN lock_history.run AS r ON r.node_id = l.node_id AND r.run = l.run
           AND (own.closed_at IS NULL OR r.last_seg = own.seg
                OR greatest(own.closed_at, own.holds_until) > r.heartbeat - interval '1 min')
      WHERE (own.closed_at IS NULL
             OR EXISTS (SELECT FROM lock_history.run AS ended
                        -- what was left over of a life may have come late, and clocks differ
                        WHERE ended.last_seg = own.seg
                           OR ended.heartbeat < greatest(own.closed_at, own.holds_until) + interval '1 min'
                          AND (own.opened_at IS NULL OR ended.heartbeat >= own.opened_at)))
        AND (SELECT lock_history.incident()) IS NULL
      ORDER BY l.wait_start, l.wait_id, l.node_id, l.written_at DESC) AS o
CROSS JOIN LATERAL (SELECT f.seg, f.proc_key, f.actor_id, f.samples,
                           f.locktype, f.mode, f.mode_number, f.object, f.database, f.datname, f.relation, f.page, f.tuple,
                           f.virtualxid, f.transactionid, f.classid, f.objid, f.objsubid,
                           f.lock_key, f.queue_key, f.in_cycle, f.hard_count, f.soft_count, f.soft_pids,
                           f.edge_kind, f.edge_proc, f.edge_pid, f.edge_actor, f.edge_modes, f.edge_from, f.edge_to
                    FROM lock_history.open AS f
                    WHERE f.seg = o.seg AND f.ctid = o.place
                    LIMIT 1) AS p
WHERE (SELECT true FROM lock_history.episode AS e
       WHERE e.seg < 8 AND e.wait_start = o.wait_start AND e.wait_id = o.wait_id AND e.node_id = o.node_id
       LIMIT 1) IS NULL;
COMMENT ON VIEW lock_history.wait_episode IS
    'internal: one row for each wait out of tables episode and open, with its edges as arrays';
GRANT SELECT ON lock_history.wait_episode TO pg_monitor;

CREATE VIEW lock_history.node_state AS
SELECT n.node_id, n.node,
       n.system_identifier = (SELECT s.system_identifier FROM pg_catalog.pg_control_system() AS s) AS is_this_system,
       r.run, r.started_at, r.heartbeat, r.flush_period,
       -- when it was heard of last, by the clock of the history, and from when on its silence means something
       coalesce(r.written_at, r.heartbeat) AS last_seen,
       coalesce(r.written_at, r.heartbeat) + 3 * r.flush_period + r.heartbeat_every + interval '1 min' AS silent_from
FROM lock_history.node AS n
LEFT JOIN LATERAL (SELECT l.run, l.started_at, l.heartbeat, l.flush_period, l.written_at, l.heartbeat_every
                   FROM lock_history.run AS l
                   WHERE l.node_id = n.node_id
                   ORDER BY l.run DESC LIMIT 1) AS r ON true;
COMMENT ON VIEW lock_history.node_state IS
    'internal: the watched servers, each with the latest life of its worker';
GRANT SELECT ON lock_history.node_state TO pg_monitor;

CREATE VIEW lock_history.life AS
SELECT r.node_id, r.started_at, r.heartbeat
FROM lock_history.run AS r;
COMMENT ON VIEW lock_history.life IS
    'internal: the lives of the worker that are remembered';
GRANT SELECT ON lock_history.life TO pg_monitor;

-- A segment takes its rows while it is open: nothing in it ended after
-- closed_at, which lets a reader leave out whole segments.  What was kept is
-- never left out.
CREATE VIEW lock_history.ring_segment AS
SELECT r.seg, r.round, r.opened_at, greatest(r.closed_at, r.holds_until) AS closed_at, r.is_empty
FROM lock_history.ring AS r
UNION ALL
SELECT 8::smallint, NULL, NULL, NULL, NULL;
COMMENT ON VIEW lock_history.ring_segment IS
    'internal: the segments of the ring, and segment 8 of kept incidents';
GRANT SELECT ON lock_history.ring_segment TO pg_monitor;

-- A server recorded here under a name of its own choice.  The worker knows it
-- best; without one, the server with our system identifier that was heard of last.
-- Null when this server is not recorded here at all.  Of a kept incident it is
-- the server that was watched.
--
-- Step by step: mostly the last one is not needed, and locks what others do not.
CREATE FUNCTION lock_history.local_node()
RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    local text;
BEGIN
    SELECT r.node INTO local FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident();
    IF local IS NULL THEN
        SELECT r.node INTO local
        FROM lock_history.recorded AS r
        JOIN lock_history.worker_status() AS w ON w.key = 'node' AND w.value = r.node
        WHERE r.incident IS NULL;
    END IF;
    IF local IS NULL THEN
        SELECT s.node INTO local
        FROM lock_history.node_state AS s
        WHERE s.is_this_system
        ORDER BY s.heartbeat DESC NULLS LAST, s.node_id
        LIMIT 1;
    END IF;
    RETURN local;
END
$$;
COMMENT ON FUNCTION lock_history.local_node() IS
    'internal: the name under which this server is recorded; what functions take when no node is given';
REVOKE ALL ON FUNCTION lock_history.local_node() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.local_node() TO pg_monitor;

-- An empty answer in a database without history would pass for "nobody waited".
CREATE FUNCTION lock_history.warn_if_nothing_is_here()
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM lock_history.recorded) THEN
        RAISE WARNING 'nothing is recorded in this database'
            USING HINT = coalesce((SELECT w.value FROM lock_history.worker_status() AS w WHERE w.key = 'hint'),
                                  'lock_history.status() says whether the worker runs.');
    END IF;
END
$$;
COMMENT ON FUNCTION lock_history.warn_if_nothing_is_here() IS
    'internal: warns where there is no history at all, as in a database other than that of pg_lock_history.database';
REVOKE ALL ON FUNCTION lock_history.warn_if_nothing_is_here() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.warn_if_nothing_is_here() TO pg_monitor;
