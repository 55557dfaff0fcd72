-- What watching cost, by minute.  Counts of the parts of a minute add up; a
-- percentile of the whole cannot be had from percentiles of the parts, so
-- the larger one is shown.
CREATE VIEW lock_history.health AS
SELECT n.node, h.minute,
       pg_catalog.sum(h.ticks_due)::bigint AS ticks_due,
       pg_catalog.sum(h.ticks_done)::bigint AS ticks_done,
       pg_catalog.sum(h.ticks_late)::bigint AS ticks_late,
       pg_catalog.sum(h.ticks_missed)::bigint AS ticks_missed,
       pg_catalog.max(h.period_ms) AS period_ms,
       pg_catalog.max(h.probe_us_p50) AS probe_us_p50,
       pg_catalog.max(h.probe_us_p99) AS probe_us_p99,
       pg_catalog.max(h.probe_us_max) AS probe_us_max,
       pg_catalog.max(h.hold_us_p99) AS hold_us_p99,
       pg_catalog.max(h.hold_us_max) AS hold_us_max,
       pg_catalog.sum(h.partitions_taken)::bigint AS partitions_taken,
       pg_catalog.sum(h.partitions_busy)::bigint AS partitions_busy,
       pg_catalog.sum(h.cpu_ms) AS cpu_ms,
       pg_catalog.sum(h.rows_written)::bigint AS rows_written,
       pg_catalog.sum(h.rows_merged)::bigint AS rows_merged,
       pg_catalog.sum(h.rows_dropped)::bigint AS rows_dropped,
       pg_catalog.sum(h.errors)::bigint AS errors
FROM lock_history.health_minute AS h
JOIN lock_history.recorded AS n ON n.node_id = h.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
GROUP BY n.node, h.minute;

GRANT SELECT ON lock_history.health TO pg_monitor;
COMMENT ON VIEW lock_history.health IS
    'What the observer cost and missed, by minute; an idle server writes it every 15 minutes';
COMMENT ON COLUMN lock_history.health.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.health.minute IS 'begin of the minute';
COMMENT ON COLUMN lock_history.health.ticks_due IS 'samples that were due';
COMMENT ON COLUMN lock_history.health.ticks_done IS 'samples taken';
COMMENT ON COLUMN lock_history.health.ticks_late IS 'of these, late by over half a period';
COMMENT ON COLUMN lock_history.health.ticks_missed IS 'samples due that were never taken';
COMMENT ON COLUMN lock_history.health.period_ms IS 'sampling period in milliseconds (the longest, when it was changed)';
COMMENT ON COLUMN lock_history.health.probe_us_p50 IS 'median time of a sample in microseconds; null: none taken';
COMMENT ON COLUMN lock_history.health.probe_us_p99 IS '99th percentile of it';
COMMENT ON COLUMN lock_history.health.probe_us_max IS 'the longest';
COMMENT ON COLUMN lock_history.health.hold_us_p99 IS '99th percentile of the time one lock manager partition was held, in microseconds; null: none was';
COMMENT ON COLUMN lock_history.health.hold_us_max IS 'the longest';
COMMENT ON COLUMN lock_history.health.partitions_taken IS 'lock manager partition locks taken; none while nobody waits';
COMMENT ON COLUMN lock_history.health.partitions_busy IS 'times a partition lock was not free and was not waited for';
COMMENT ON COLUMN lock_history.health.cpu_ms IS 'CPU time of the worker, all threads, in milliseconds';
COMMENT ON COLUMN lock_history.health.rows_written IS 'rows written to the history';
COMMENT ON COLUMN lock_history.health.rows_merged IS 'waits added up in short_waits';
COMMENT ON COLUMN lock_history.health.rows_dropped IS 'rows lost because they could not be written in time, see gaps';
COMMENT ON COLUMN lock_history.health.errors IS 'errors met, see status() for the last one';
