-- Silence and outage are told apart; what watching cost adds up.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
-- this server under the name its worker gives, else by system identifier
SELECT pg_temp.add_node(coalesce((SELECT value FROM lock_history.worker_status() WHERE key = 'node'), 'here'), true) AS here,
       pg_temp.add_node('idle') AS idle, pg_temp.add_node('gone') AS gone, pg_temp.add_node('never ran') AS never \gset
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES
    (:here, 1, pg_temp.t(0), now() - interval '10 min', 1, '1 s'),
    (:idle, 1, pg_temp.t(0), now() - interval '10 min', 1, '1 s'),
    (:gone, 1, pg_temp.t(0), pg_temp.t(5), 1, '1 s'),
    (:gone, 2, pg_temp.t(20), pg_temp.t(30), 1, '1 s');
INSERT INTO lock_history.gap_3 (seg, node_id, run, began, ended, reason, lost, detail) VALUES
    (3, :gone, 2, pg_temp.t(5), pg_temp.t(20), 'stopped', 0, NULL),
    (3, :idle, 1, pg_temp.t(7), pg_temp.t(9), 'writer blocked', 12, 'history table locked');
-- an idle server's run row is 10 minutes old: no gap; its own worker ticks: no gap
SELECT CASE n.is_this_system WHEN true THEN 'here' ELSE g.node END AS node, g.began, g.ended, g.reason, g.lost, g.detail
FROM lock_history.gaps AS g JOIN lock_history.node_state AS n ON n.node = g.node ORDER BY g.began;
-- two parts of one minute, the worker was restarted in it; another minute
INSERT INTO lock_history.health_minute_0 (seg, node_id, run, minute, ticks_due, ticks_done, ticks_late, ticks_missed, period_ms, probe_us_p50, probe_us_p99, probe_us_max, hold_us_p99, hold_us_max, partitions_taken, partitions_busy, cpu_ms, rows_written, rows_merged, rows_dropped, errors)
VALUES (0, :gone, 1, pg_temp.t(0), 3000, 2990, 4, 10, 10, 8, 15, 99, NULL, NULL, 0, 0, 30.5, 5, 6, 0, 1),
       (0, :gone, 2, pg_temp.t(0), 1000, 1000, 1, 0, 20, 9, 12, 80, 3, 7, 20, 2, 10.25, 1, 2, 3, 0),
       (0, :gone, 2, pg_temp.t(60), 6000, 6000, 0, 0, 10, 8, 11, 50, NULL, NULL, 0, 0, 60, 0, 0, 0, 0);
\x on
SELECT * FROM lock_history.health ORDER BY minute;
\x off
INSERT INTO lock_history.short_wait_5 (seg, node_id, at, datname, locktype, database, relation, object, mode, query_id, root_pid, root_backend_start, waits, total_ms, max_ms)
VALUES (5, :gone, pg_temp.t(1), 'lab', 'tuple', 5, 16385, 'public.t', 'ExclusiveLock', 42, 101, pg_temp.t(-60), 7, 350.5, 90),
       (5, :gone, pg_temp.t(1), NULL, 'other', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3, 30, 12);
SELECT * FROM lock_history.short_waits ORDER BY locktype;
-- facts about the ring
UPDATE lock_history.ring SET opened_at = pg_temp.t(-7200), closed_at = pg_temp.t(-3600), is_empty = false WHERE seg = 2;
UPDATE lock_history.ring SET opened_at = pg_temp.t(-3600), is_empty = false WHERE seg = 3;
SELECT key, value FROM lock_history.status() WHERE key IN ('current_segment', 'oldest_history') ORDER BY key;
SELECT key, value ~ '^\d+ % of ' AS fits FROM lock_history.status() WHERE key = 'ring_fill';
SELECT key, array_length(string_to_array(value, ','), 1) AS segments FROM lock_history.status() WHERE key = 'ring_segments';
SELECT key, value LIKE '%gone%idle%never ran%' AS fits FROM lock_history.status() WHERE key = 'nodes';
SELECT count(*) AS keys_twice FROM (SELECT key FROM lock_history.status() GROUP BY key HAVING count(*) > 1) AS d;
SELECT count(*) AS keys FROM lock_history.status() WHERE key IN ('state', 'version', 'last_tick', 'size_on_disk');
-- times are read back from the worker's texts, in whatever style the reader has
SET datestyle = 'SQL, DMY';
SET timezone = 'Pacific/Guam';
SELECT key, abs(extract(epoch FROM now() - value::timestamptz)) < 3600 AS is_right FROM lock_history.worker_status() WHERE key = 'last_tick';
SELECT count(*) > 0 AS gaps FROM lock_history.gaps;
RESET datestyle;
RESET timezone;
