-- How long waits are: a histogram for each minute and wait event.
CREATE VIEW lock_history.wait_histogram AS
SELECT w.node, w.at, d.wait_event_type, d.wait_event,
       CASE WHEN w.bucket = 0 THEN 0 ELSE 2::double precision ^ (w.bucket - 1) END AS lower_ms,
       2::double precision ^ w.bucket AS upper_ms,
       pg_catalog.sum(w.waits)::bigint AS waits, pg_catalog.round(pg_catalog.sum(w.total_ms::double precision)::numeric, 1)::double precision AS total_ms
FROM (SELECT n.node, s.seg, s.node_id, s.at, pg_catalog.unnest(s.dims) AS dim_id, pg_catalog.unnest(s.buckets) AS bucket,
             pg_catalog.unnest(s.waits) AS waits, pg_catalog.unnest(s.total_ms) AS total_ms
      FROM lock_history.wait_length AS s
      JOIN lock_history.recorded AS n ON n.node_id = s.node_id AND n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
      -- a kept incident is read without a look into the ring
      WHERE s.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)) AS w
JOIN lock_history.dim AS d ON d.seg = w.seg AND d.dim_id = w.dim_id AND d.kind = 6 AND d.node_id = w.node_id
GROUP BY w.node, w.at, d.wait_event_type, d.wait_event, w.bucket;

GRANT SELECT ON lock_history.wait_histogram TO pg_monitor;
COMMENT ON VIEW lock_history.wait_histogram IS
    'How long waits were, by minute and wait event; an estimate from samples: a wait counts as long as the samples that saw it (a sampling period too long or too short), one that no sample saw is missing, and two that no sample tells apart are one';
COMMENT ON COLUMN lock_history.wait_histogram.node IS 'server that was watched';
COMMENT ON COLUMN lock_history.wait_histogram.at IS 'begin of the minute in which they ended';
COMMENT ON COLUMN lock_history.wait_histogram.wait_event_type IS 'type of the event waited for, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.wait_histogram.wait_event IS 'the event waited for';
COMMENT ON COLUMN lock_history.wait_histogram.lower_ms IS 'they were at least so long, in milliseconds (estimated)';
COMMENT ON COLUMN lock_history.wait_histogram.upper_ms IS 'and shorter than this';
COMMENT ON COLUMN lock_history.wait_histogram.waits IS 'number of waits (estimated)';
COMMENT ON COLUMN lock_history.wait_histogram.total_ms IS 'their lengths added up, in milliseconds';
