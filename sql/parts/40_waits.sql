-- Every wait, one row.
--
-- A prepared transaction has no process: it stands as -n, the n-th one among
-- the blockers of its wait, in every column and view that shows this wait.
CREATE VIEW lock_history.waits AS
SELECT (SELECT n.node FROM lock_history.recorded AS n WHERE n.node_id = w.node_id) AS node, w.wait_id,
       p.pid, p.backend_start, p.leader_pid, p.backend_type, p.datname, p.usename, p.application_name, p.client_addr,
       p.query_id, p.query, p.query_start, p.xact_start,
       w.locktype, w.mode, w.object, w.database, w.relation, w.page, w.tuple,
       w.virtualxid, w.transactionid, w.classid, w.objid, w.objsubid,
       w.wait_start, w.wait_end,
       -- now is by the node's own clock, which may have been set back since
       greatest(coalesce(w.wait_end,
                         pg_catalog.statement_timestamp() + (SELECT n.clock_offset FROM lock_history.recorded AS n WHERE n.node_id = w.node_id),
                         pg_catalog.statement_timestamp()) - w.wait_start, interval '0') AS duration,
       w.granted, w.outcome, w.samples,
       ARRAY(SELECT b.pid
             FROM (SELECT CASE WHEN e.pid <> 0 THEN e.pid
                               ELSE -(SELECT pg_catalog.count(DISTINCT x.proc)
                                      FROM unnest(w.edge_pid, w.edge_proc)
                                           WITH ORDINALITY AS x(pid, proc, ord)
                                      WHERE x.pid = 0
                                        AND x.ord <= pg_catalog.array_position(w.edge_proc, e.proc))::integer END AS pid,
                          pg_catalog.min(e.since) AS since, pg_catalog.min(e.ord) AS ord
                   FROM unnest(w.edge_kind, w.edge_pid, w.edge_proc, w.edge_from)
                        WITH ORDINALITY AS e(kind, pid, proc, since, ord)
                   WHERE e.kind = 1
                   GROUP BY 1) AS b
             ORDER BY b.since, b.ord LIMIT 20) AS hard_blockers,
       w.soft_pids AS soft_blockers,
       ARRAY(SELECT b.pid
             FROM (SELECT CASE WHEN e.pid <> 0 THEN e.pid
                               ELSE -(SELECT pg_catalog.count(DISTINCT x.proc)
                                      FROM unnest(w.edge_pid, w.edge_proc)
                                           WITH ORDINALITY AS x(pid, proc, ord)
                                      WHERE x.pid = 0
                                        AND x.ord <= pg_catalog.array_position(w.edge_proc, e.proc))::integer END AS pid,
                          pg_catalog.min(e.since) AS since, pg_catalog.min(e.ord) AS ord
                   FROM unnest(w.edge_kind, w.edge_pid, w.edge_proc, w.edge_from)
                        WITH ORDINALITY AS e(kind, pid, proc, since, ord)
                   WHERE e.kind = 3
                   GROUP BY 1) AS b
             ORDER BY b.since, b.ord LIMIT 20) AS root_blockers,
       w.hard_count AS hard_blocker_count, w.soft_count AS soft_blocker_count,
       w.datname AS object_datname, w.in_cycle
FROM lock_history.wait_episode AS w
-- left: a wait is worth showing also when its process could not be described;
-- lateral with LIMIT: looked up by index, see process
LEFT JOIN LATERAL (SELECT a.pid, a.backend_start, a.leader_pid, a.backend_type, a.datname, a.usename, a.application_name,
                          a.client_addr, a.query_id, a.query, a.query_start, a.xact_start
                   FROM lock_history.process AS a
                   WHERE a.seg = w.seg AND a.actor_id = w.actor_id AND a.node_id = w.node_id
                   LIMIT 1) AS p ON true
-- Always true.  The planner, which cannot know what the sub-selects say, expects
-- a two-hundredth of the rows: right for a look at the last minutes of a large
-- ring, and cheap enough in its eyes not to compile the query, which takes
-- seconds where reading takes milliseconds.
WHERE w.seg >= (SELECT 0) AND w.seg <= (SELECT 8);

GRANT SELECT ON lock_history.waits TO pg_monitor;
COMMENT ON VIEW lock_history.waits IS
    'Every wait for a heavyweight lock of at least min_duration, also those that go on; of those shorter than sample_period only what a sample met';
COMMENT ON COLUMN lock_history.waits.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.waits.wait_id IS 'identity of the wait, for blocking and blocking_all()';
COMMENT ON COLUMN lock_history.waits.pid IS 'process that waited';
COMMENT ON COLUMN lock_history.waits.backend_start IS 'when that process started; tells pids apart that were used again';
COMMENT ON COLUMN lock_history.waits.leader_pid IS 'leader of its lock group (parallel query); null: it stands alone';
COMMENT ON COLUMN lock_history.waits.backend_type IS 'kind of process, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.waits.datname IS 'database the process was connected to; null: none';
COMMENT ON COLUMN lock_history.waits.usename IS 'role of the process; null: none';
COMMENT ON COLUMN lock_history.waits.application_name IS 'application_name of the process';
COMMENT ON COLUMN lock_history.waits.client_addr IS 'address of the client; null: local socket, no client, or insufficient privilege';
COMMENT ON COLUMN lock_history.waits.query_id IS 'query identifier; null: not computed, or insufficient privilege';
COMMENT ON COLUMN lock_history.waits.query IS 'statement that waited, as far as query_text and query_length keep it';
COMMENT ON COLUMN lock_history.waits.query_start IS 'start of that statement';
COMMENT ON COLUMN lock_history.waits.xact_start IS 'start of the transaction it was part of';
COMMENT ON COLUMN lock_history.waits.locktype IS 'kind of object waited for, as in pg_locks';
COMMENT ON COLUMN lock_history.waits.mode IS 'lock mode asked for, as in pg_locks';
COMMENT ON COLUMN lock_history.waits.object IS 'object waited for, readable, by the name it had then; null: not known';
COMMENT ON COLUMN lock_history.waits.database IS 'OID of the object''s database, 0 if shared, null if it has none';
COMMENT ON COLUMN lock_history.waits.relation IS 'OID of the relation, also of the row behind a wait for a transaction; null: not part of one, or not known';
COMMENT ON COLUMN lock_history.waits.page IS 'page number in the relation, also of the row behind a wait for a transaction; null: not a page or tuple, or not known';
COMMENT ON COLUMN lock_history.waits.tuple IS 'tuple number in the page, also of the row behind a wait for a transaction; null: not a tuple, or not known';
COMMENT ON COLUMN lock_history.waits.virtualxid IS 'virtual transaction waited for; null: something else';
COMMENT ON COLUMN lock_history.waits.transactionid IS 'transaction waited for (a row lock shows as this); null: something else';
COMMENT ON COLUMN lock_history.waits.classid IS 'OID of the catalog of the object, or high half of an advisory key; null: something else';
COMMENT ON COLUMN lock_history.waits.objid IS 'OID of the object in its catalog, or low half of an advisory key; null: something else';
COMMENT ON COLUMN lock_history.waits.objsubid IS 'column number, or 1 / 2 for advisory locks by one / two keys; null: something else';
COMMENT ON COLUMN lock_history.waits.wait_start IS 'begin of the wait, the server''s own time';
COMMENT ON COLUMN lock_history.waits.wait_end IS 'end of the wait, within half a sampling period; null: still waiting';
COMMENT ON COLUMN lock_history.waits.duration IS 'length of the wait, up to now while it lasts';
COMMENT ON COLUMN lock_history.waits.granted IS 'whether the lock was granted; null: not known, or still waiting';
COMMENT ON COLUMN lock_history.waits.outcome IS 'how it ended: granted; lock_timeout, statement_timeout, cancelled, terminated, deadlock (its victim), server_stop, recovery_conflict (on a standby: it held up the replay), or failed (not granted, why is not known, or since a worker of its parallel query failed); unknown (then wait_end is when it was last seen); null: still waiting';
COMMENT ON COLUMN lock_history.waits.samples IS 'samples that saw it';
COMMENT ON COLUMN lock_history.waits.hard_blockers IS 'pids that held a conflicting mode, in order of first seen, at most 20; -n: n-th prepared transaction';
COMMENT ON COLUMN lock_history.waits.soft_blockers IS 'pids ahead in the queue with a conflicting request, nearest first, at most 20';
COMMENT ON COLUMN lock_history.waits.root_blockers IS 'pids at the end of the chain, which did not wait themselves, at most 20; empty inside a deadlock, while the circle is closed; -n: n-th prepared transaction';
COMMENT ON COLUMN lock_history.waits.hard_blocker_count IS 'most hard blockers at one moment';
COMMENT ON COLUMN lock_history.waits.soft_blocker_count IS 'most soft blockers at one moment';
COMMENT ON COLUMN lock_history.waits.object_datname IS 'name of the object''s database; null: shared, or it has none';
COMMENT ON COLUMN lock_history.waits.in_cycle IS 'it was part of a deadlock in the making, seen twice';
