-- How long waits are: a histogram for each minute and wait event.
CREATE VIEW lock_history.wait_histogram AS
SELECT n.node, w.at, d.wait_event_type, d.wait_event,
       CASE WHEN b.bucket = 0 THEN 0 ELSE 2::double precision ^ (b.bucket - 1) END AS lower_ms,
       2::double precision ^ b.bucket AS upper_ms,
       pg_catalog.sum(b.waits)::bigint AS waits, pg_catalog.round(pg_catalog.sum(b.total_ms::double precision)::numeric, 1)::double precision AS total_ms
FROM lock_history.wait_length AS w
JOIN lock_history.recorded AS n ON n.node_id = w.node_id
CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(w.dims), pg_catalog.unnest(w.buckets), pg_catalog.unnest(w.waits), pg_catalog.unnest(w.total_ms))
           AS b(dim_id, bucket, waits, total_ms)
JOIN lock_history.dim AS d ON d.seg = w.seg + 0 * b.dim_id AND d.dim_id = b.dim_id + 0 * w.node_id AND d.node_id = w.node_id + 0 * b.dim_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
  -- a kept incident is read without a look into the ring
  AND w.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)
GROUP BY n.node, w.at, d.wait_event_type, d.wait_event, b.bucket;

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
