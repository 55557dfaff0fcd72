-- Times about which the history is silent, and why.  The writer records a gap
-- when it is over; one that lasts is computed here.
--
-- Whether this server is watched right now its worker says (last_tick): the
-- run row of an idle server is written every 15 minutes only.  Of another
-- server the run row is all there is, written every minute at the least, so it is
-- silent only after that.
CREATE VIEW lock_history.gaps AS
SELECT n.node, g.began, g.ended, g.reason, g.lost, g.detail, g.part
FROM lock_history.gap AS g
JOIN lock_history.recorded AS n ON n.node_id = g.node_id
WHERE n.incident IS NOT DISTINCT FROM (SELECT lock_history.incident())
UNION ALL
SELECT s.node, greatest(s.heartbeat, s.last_tick), NULL,
       CASE WHEN s.worker_state = 'disabled' THEN 'disabled' ELSE 'stopped' END,
       NULL, 'not sampled since then', NULL
FROM (SELECT t.node, t.heartbeat, t.flush_period, t.silent_from, w.last_tick, w.is_local,
             CASE WHEN w.is_local THEN w.state END AS worker_state
      FROM lock_history.node_state AS t
      CROSS JOIN (SELECT pg_catalog.max(k.value) FILTER (WHERE k.key = 'node') AS node,
                         pg_catalog.max(k.value) FILTER (WHERE k.key = 'state') AS state,
                         nullif(pg_catalog.max(k.value) FILTER (WHERE k.key = 'last_tick'), '')::timestamptz AS last_tick
                  FROM lock_history.worker_status() AS k) AS k
      CROSS JOIN LATERAL (SELECT local.is_local, k.state, CASE WHEN local.is_local THEN k.last_tick END AS last_tick
                          FROM (SELECT coalesce(t.node = k.node, t.is_this_system) AS is_local) AS local) AS w
      -- a kept incident does not go on
      WHERE t.run IS NOT NULL AND (SELECT lock_history.incident()) IS NULL) AS s
WHERE CASE WHEN s.last_tick IS NOT NULL
           -- three ticks, and 10 s for a busy machine
           THEN s.last_tick < pg_catalog.statement_timestamp() - interval '10 s'
                - 3 * coalesce(nullif(pg_catalog.current_setting('pg_lock_history.sample_period', true), ''), '10ms')::interval
           WHEN s.is_local
           THEN s.heartbeat < pg_catalog.statement_timestamp() - 3 * s.flush_period - interval '2 s'
           ELSE s.silent_from < pg_catalog.statement_timestamp() END;

GRANT SELECT ON lock_history.gaps TO pg_monitor;
COMMENT ON VIEW lock_history.gaps IS
    'Times about which the history is silent, and why; everything else was watched';
COMMENT ON COLUMN lock_history.gaps.node IS 'server that was not watched';
COMMENT ON COLUMN lock_history.gaps.began IS 'begin of the gap';
COMMENT ON COLUMN lock_history.gaps.ended IS 'end of the gap; null: it lasts';
COMMENT ON COLUMN lock_history.gaps.reason IS 'stopped: no worker; disabled: switched off; late: the worker did not get to run; writer blocked: could not be written and was dropped; ring held: a reader kept the next segment; clock set: the clock of the server was set forward, these times never were; elsewhere: the settings named another history, or there were no tables';
COMMENT ON COLUMN lock_history.gaps.lost IS 'rows lost, where that is known';
COMMENT ON COLUMN lock_history.gaps.detail IS 'more about it; may be null';
COMMENT ON COLUMN lock_history.gaps.part IS 'what is missing: waits or load; null: all';
