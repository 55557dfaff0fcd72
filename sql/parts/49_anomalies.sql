-- Times in which more sessions waited than is usual.
--
-- One that is open is alive as long as a wait that is: the life of the worker that
-- wrote it is the latest of its node, with a heartbeat, and nothing was dropped
-- since.  Else nobody knows how it went on.  (A worker that is started again
-- writes what goes on under its own run.)
CREATE VIEW lock_history.anomalies AS
SELECT n.node, a.started_at, a.detected_at,
       CASE WHEN a.ended_at IS NOT NULL OR a.is_alive THEN a.ended_at ELSE greatest(a.known_until, a.detected_at) END AS ended_at,
       a.wait_event_type, a.observed, a.expected, a.band, a.leading_event, a.root_pid,
       CASE WHEN a.ended_at IS NOT NULL OR a.is_alive THEN a.ended_as ELSE 'unknown' END AS ended_as
FROM (SELECT DISTINCT ON (l.node_id, l.started_at, l.wait_event_type)
             l.node_id, l.started_at, l.detected_at, l.ended_at, l.ended_as, l.wait_event_type,
             l.observed, l.expected, l.band, l.leading_event, l.root_pid,
             CASE WHEN r.heartbeat IS NULL THEN l.written_at
                  WHEN l.written_at <= pg_catalog.upper(r.lost)
                  THEN pg_catalog.lower(r.lost * pg_catalog.tstzmultirange(pg_catalog.tstzrange(l.written_at, NULL)))
                  ELSE r.heartbeat END AS known_until,
             -- statement time: now() stands still in a long transaction
             (coalesce(r.written_at, r.heartbeat) > pg_catalog.statement_timestamp() - 3 * r.flush_period - interval '2 s'
              AND (l.written_at <= pg_catalog.upper(r.lost)) IS NOT TRUE
              AND NOT EXISTS (SELECT FROM lock_history.run AS later
                              WHERE later.node_id = r.node_id AND later.run > r.run)) IS TRUE AS is_alive
      FROM lock_history.anomaly AS l
      LEFT JOIN lock_history.run AS r ON r.node_id = l.node_id AND r.run = l.run
      -- a kept incident is read without a look into the ring
      WHERE l.seg >= (SELECT CASE WHEN lock_history.incident() IS NULL THEN 0 ELSE 8 END)
      ORDER BY l.node_id, l.started_at, l.wait_event_type, l.ended_at IS NULL, l.written_at DESC) AS a
JOIN lock_history.recorded AS n ON n.node_id = a.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident());

GRANT SELECT ON lock_history.anomalies TO pg_monitor;
COMMENT ON VIEW lock_history.anomalies IS
    'Times in which more sessions waited than is usual: in total, and by wait event type';
COMMENT ON COLUMN lock_history.anomalies.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.anomalies.started_at IS 'since when the load was out of its band';
COMMENT ON COLUMN lock_history.anomalies.detected_at IS 'when that was taken for an anomaly, and told';
COMMENT ON COLUMN lock_history.anomalies.ended_at IS 'when the load was back in its band; null: it lasts';
COMMENT ON COLUMN lock_history.anomalies.wait_event_type IS 'what the sessions waited for, as in pg_stat_activity; null: all sessions that were not on CPU';
COMMENT ON COLUMN lock_history.anomalies.observed IS 'the most such sessions at one time, as a mean over 10 s; so far, while it lasts';
COMMENT ON COLUMN lock_history.anomalies.expected IS 'how many were usual when it started';
COMMENT ON COLUMN lock_history.anomalies.band IS 'up to how many would have been usual then';
COMMENT ON COLUMN lock_history.anomalies.leading_event IS 'type and name of the wait event with most time during it';
COMMENT ON COLUMN lock_history.anomalies.root_pid IS 'where it is about locks, the root blocker for most of the time; null: none or not known';
COMMENT ON COLUMN lock_history.anomalies.ended_as IS 'normal: back in its band; new level: after 6 hours it is the usual load; switched off; unknown: nobody was looking; null: it lasts';
