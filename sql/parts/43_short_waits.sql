-- Waits that were too short, or too many, to be kept one by one.  There is no
-- role in the key, so the query id shows to readers of all statistics only.
CREATE VIEW lock_history.short_waits AS
SELECT n.node, s.at, s.datname, s.locktype, s.database, s.relation, s.object, s.mode,
       CASE WHEN (SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')) THEN s.query_id END AS query_id,
       s.root_pid, s.root_backend_start, s.waits, s.total_ms, s.max_ms, s.failed
FROM lock_history.short_wait AS s
JOIN lock_history.recorded AS n ON n.node_id = s.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  -- a kept incident is read without a look into the ring
  AND s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END);

GRANT SELECT ON lock_history.short_waits TO pg_monitor;
COMMENT ON VIEW lock_history.short_waits IS
    'Waits shorter than min_duration, or over max_rows_per_second, added up by second; what is here is not in waits';
COMMENT ON COLUMN lock_history.short_waits.node IS 'server on which they were seen';
COMMENT ON COLUMN lock_history.short_waits.at IS 'begin of the second in which they ended';
COMMENT ON COLUMN lock_history.short_waits.datname IS 'name of the object''s database; null: shared, none, or locktype other';
COMMENT ON COLUMN lock_history.short_waits.locktype IS 'kind of object waited for, as in pg_locks; other: everything over the number of keys that are kept, and failed waits that no sample saw';
COMMENT ON COLUMN lock_history.short_waits.database IS 'OID of the object''s database; null: none';
COMMENT ON COLUMN lock_history.short_waits.relation IS 'OID of the relation; null: it has none, as a row lock (transactionid), or the wait ended before its lock was looked at';
COMMENT ON COLUMN lock_history.short_waits.object IS 'the relation by the name it had then; null: as for relation';
COMMENT ON COLUMN lock_history.short_waits.mode IS 'lock mode asked for; null: the wait ended before its lock was looked at';
COMMENT ON COLUMN lock_history.short_waits.query_id IS 'query identifier of the statements that waited; null: none, or insufficient privilege';
COMMENT ON COLUMN lock_history.short_waits.root_pid IS 'first root blocker; null: none or not known';
COMMENT ON COLUMN lock_history.short_waits.root_backend_start IS 'when that process started';
COMMENT ON COLUMN lock_history.short_waits.waits IS 'number of waits that a sample met, or that failed';
COMMENT ON COLUMN lock_history.short_waits.total_ms IS 'sum of their lengths in milliseconds';
COMMENT ON COLUMN lock_history.short_waits.max_ms IS 'the longest in milliseconds';
COMMENT ON COLUMN lock_history.short_waits.failed IS 'of these waits, how many are known not to have been granted';
