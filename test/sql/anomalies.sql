-- Unusual load: what lasts, what has ended, and what nobody saw the end of.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
SELECT pg_temp.add_node('alive', true) AS alive, pg_temp.add_node('crashed') AS crashed \gset
-- 'alive' is in its second life and flushes once an hour; of 'crashed' nothing is heard any more
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES
    (:alive, 1, pg_temp.t(-100), pg_temp.t(50), 1, '1 h'),
    (:alive, 2, now() - interval '2 h', now(), 1, '1 h'),
    (:crashed, 1, pg_temp.t(-100), pg_temp.t(90), 1, '1 s');
CREATE FUNCTION pg_temp.add(node integer, run bigint, kind text, started numeric, ended numeric, written numeric, observed double precision, seg integer DEFAULT 0)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO lock_history.anomaly_%s (seg, node_id, run, written_at, started_at, detected_at, ended_at, ended_as, wait_event_type, observed, expected, band, leading_event, root_pid)
                    VALUES ($1, $2, $3, pg_temp.t($7), pg_temp.t($5), pg_temp.t($5 + 20), pg_temp.t($6), CASE WHEN $6 IS NOT NULL THEN ''normal'' END, $4, $8, 2, 5, ''Lock:tuple'', 101)', seg)
    USING seg, node, run, kind, started, ended, written, observed;
END
$$;
-- of locks: written three times in two segments, and it goes on; of the total beside it, which has ended
SELECT pg_temp.add(:alive, 2, 'Lock', 0, NULL, 20, 10), pg_temp.add(:alive, 2, 'Lock', 0, NULL, 100, 30, 1), pg_temp.add(:alive, 2, 'Lock', 0, NULL, 60, 20),
       pg_temp.add(:alive, 2, NULL, 0, NULL, 100, 31), pg_temp.add(:alive, 2, NULL, 0, 90, 120, 33, 1) \g /dev/null
-- begun in the first life: carried on by the second, and not
SELECT pg_temp.add(:alive, 1, 'IO', -50, NULL, -30, 8), pg_temp.add(:alive, 2, 'IO', -50, NULL, 70, 9, 2),
       pg_temp.add(:alive, 1, 'IPC', -50, NULL, -30, 8) \g /dev/null
-- the end counts, also when the clock was set back since
SELECT pg_temp.add(:alive, 2, 'Client', 0, NULL, 500, 8), pg_temp.add(:alive, 2, 'Client', 0, 40, 60, 9) \g /dev/null
SELECT pg_temp.add(:crashed, 1, 'Lock', 0, NULL, 20, 10) \g /dev/null
-- detected after the last heartbeat was written: does not end before that
SELECT pg_temp.add(:crashed, 1, 'LWLock', 85, NULL, 105, 10) \g /dev/null
SELECT node, wait_event_type AS type, started_at::time, ended_at::time, ended_as, observed FROM lock_history.anomalies ORDER BY node, type, started_at;
SELECT detected_at::time, expected, band, leading_event, root_pid FROM lock_history.anomalies WHERE node = 'alive' AND wait_event_type = 'Lock';
-- facts were dropped since it was written: its end may be among them; written again it is alive
UPDATE lock_history.run SET lost = tstzmultirange(tstzrange(pg_temp.t(101), pg_temp.t(110), '[]')) WHERE node_id = :alive AND run = 2;
SELECT wait_event_type AS type, ended_at::time, ended_as FROM lock_history.anomalies WHERE node = 'alive' AND wait_event_type IN ('Lock', 'IO') ORDER BY type;
UPDATE lock_history.run SET lost = tstzmultirange(tstzrange(pg_temp.t(90), pg_temp.t(99), '[]')) WHERE node_id = :alive AND run = 2;
SELECT wait_event_type AS type, ended_at::time, ended_as FROM lock_history.anomalies WHERE node = 'alive' AND wait_event_type IN ('Lock', 'IO') ORDER BY type;
-- the run row is gone with age
DELETE FROM lock_history.run WHERE node_id = :crashed;
SELECT wait_event_type AS type, ended_at::time, ended_as FROM lock_history.anomalies WHERE node = 'crashed' ORDER BY type;
-- an incident without a wait for a lock is one, too; what lasts ends in it
SELECT lock_history.keep(pg_temp.t(80), pg_temp.t(130), 'load', 'alive');
SELECT lock_history.keep(pg_temp.t(1000), pg_temp.t(1100), 'later', 'crashed');
SET pg_lock_history.incident = 'load';
SELECT a.node, a.wait_event_type AS type, a.started_at::time, CASE WHEN a.ended_at = k.kept_at THEN 'when kept' ELSE a.ended_at::time::text END AS ended, a.ended_as
FROM lock_history.anomalies AS a, lock_history.kept AS k ORDER BY type;
SELECT lock_history.reset();
SELECT count(*) FROM lock_history.anomalies;
RESET pg_lock_history.incident;
SELECT count(*) FROM lock_history.anomalies;
SELECT lock_history.forget('load');
SELECT count(*) FROM lock_history.kept_anomaly;
-- what is known of usual load is no history
INSERT INTO lock_history.detector (node_id, written_at, state) VALUES (:alive, now(), '\x01');
SELECT lock_history.reset();
SELECT count(*) FROM lock_history.detector;
-- a band of less than one spread would be left all the time
ALTER SYSTEM SET pg_lock_history.anomaly_band = 0.5;
ALTER SYSTEM SET pg_lock_history.anomaly_band = 101;
ALTER SYSTEM SET pg_lock_history.anomaly_band = 'NaN';
ALTER SYSTEM SET pg_lock_history.anomaly_band = 0;
ALTER SYSTEM RESET pg_lock_history.anomaly_band;
-- not for everybody
CREATE ROLE regress_plh_anomaly_monitor IN ROLE pg_monitor;
CREATE ROLE regress_plh_anomaly_nobody;
SELECT pg_temp.add(:crashed, 1, 'Lock', 0, 5, 20, 10) \g /dev/null
SET ROLE regress_plh_anomaly_monitor;
SELECT count(*) FROM lock_history.anomalies;
\set VERBOSITY terse
SELECT count(*) FROM lock_history.anomaly;
SELECT count(*) FROM lock_history.detector;
SET ROLE regress_plh_anomaly_nobody;
SELECT count(*) FROM lock_history.anomalies;
RESET ROLE;
DROP ROLE regress_plh_anomaly_monitor, regress_plh_anomaly_nobody;
