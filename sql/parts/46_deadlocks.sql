-- Deadlocks, a row for each member.  What the victim's error told is there in
-- any case; the rest as far as samples saw it.
CREATE VIEW lock_history.deadlocks AS
SELECT n.node, d.at, d.deadlock_id, d.pid, d.is_victim, d.waits_for,
       d.locktype, d.object, d.mode, d.held_mode, d.held_object,
       p.datname, p.usename, p.application_name, p.query,
       p.backend_start, p.backend_type, p.client_addr, p.query_id, d.member, d.wait_id,
       d.database, d.relation, d.transactionid
FROM lock_history.deadlock AS d
JOIN lock_history.recorded AS n ON n.node_id = d.node_id
LEFT JOIN LATERAL (SELECT a.datname, a.usename, a.application_name, a.query, a.backend_start, a.backend_type, a.client_addr, a.query_id
                   FROM lock_history.process AS a
                   WHERE a.seg = d.seg AND a.actor_id = d.actor_id AND a.node_id = d.node_id
                   LIMIT 1) AS p ON true
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  -- a kept incident is read without a look into the ring
  AND d.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.deadlocks TO pg_monitor;
COMMENT ON VIEW lock_history.deadlocks IS
    'Deadlocks that the server broke by failing one of the waits: a row for each member, also of those that no sample saw';
COMMENT ON COLUMN lock_history.deadlocks.node IS 'server on which it happened';
COMMENT ON COLUMN lock_history.deadlocks.at IS 'when the victim was failed';
COMMENT ON COLUMN lock_history.deadlocks.deadlock_id IS 'the same in all rows of one deadlock';
COMMENT ON COLUMN lock_history.deadlocks.pid IS 'member of the circle';
COMMENT ON COLUMN lock_history.deadlocks.is_victim IS 'whether its wait was failed, or another one of its parallel query; the others went on';
COMMENT ON COLUMN lock_history.deadlocks.waits_for IS 'pid of the member it waited for; null: not known';
COMMENT ON COLUMN lock_history.deadlocks.locktype IS 'kind of object it waited for, as in pg_locks; null: not known';
COMMENT ON COLUMN lock_history.deadlocks.object IS 'object it waited for, readable, of a wait for a transaction with the row behind it where samples found that; null: not known';
COMMENT ON COLUMN lock_history.deadlocks.mode IS 'lock mode it asked for; null: not known';
COMMENT ON COLUMN lock_history.deadlocks.held_mode IS 'strongest mode it held on held_object; null: not seen by a sample';
COMMENT ON COLUMN lock_history.deadlocks.held_object IS 'object that it held and another member waited for; null: not known, or it only stood ahead in the queue';
COMMENT ON COLUMN lock_history.deadlocks.datname IS 'database of the process; null: none, or it was gone before it could be looked at';
COMMENT ON COLUMN lock_history.deadlocks.usename IS 'role of the process; null: none, or gone';
COMMENT ON COLUMN lock_history.deadlocks.application_name IS 'application_name of the process; null: gone';
COMMENT ON COLUMN lock_history.deadlocks.query IS 'its statement, as seen while it waited, or else right after; null: gone';
COMMENT ON COLUMN lock_history.deadlocks.backend_start IS 'when the process started; null: gone';
COMMENT ON COLUMN lock_history.deadlocks.backend_type IS 'kind of process, as in pg_stat_activity; null: gone';
COMMENT ON COLUMN lock_history.deadlocks.client_addr IS 'address of the client; null: local socket, no client, gone, or insufficient privilege';
COMMENT ON COLUMN lock_history.deadlocks.query_id IS 'query identifier; null: not computed, gone, or insufficient privilege';
COMMENT ON COLUMN lock_history.deadlocks.member IS 'place in the circle, from 1; each waits for the next, the last for the first';
COMMENT ON COLUMN lock_history.deadlocks.wait_id IS 'its wait, as in waits; null: no sample saw it, it was too short, or went on';
COMMENT ON COLUMN lock_history.deadlocks.database IS 'OID of the database of the object or row waited for; null: shared, none or not known';
COMMENT ON COLUMN lock_history.deadlocks.relation IS 'OID of the relation waited for, also of the row behind a wait for a transaction; null: not part of one, or not known';
COMMENT ON COLUMN lock_history.deadlocks.transactionid IS 'transaction waited for (a row lock shows as this); null: something else, or not known';
