-- Load by second, and over time: what is not known is null, not 0.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
SELECT pg_temp.add_node('n1') AS n, pg_temp.add_node('n2') AS other \gset
UPDATE lock_history.node SET first_seen = pg_temp.t(10) WHERE node = 'n1';
UPDATE lock_history.ring SET opened_at = pg_temp.t(0), is_empty = false WHERE seg IN (0, 1);
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period)
VALUES (:n, 1, pg_temp.t(10), pg_temp.t(40), 9, '1 s'), (:other, 1, pg_temp.t(0), pg_temp.t(100), 9, '1 s');
-- the same number means something else in another segment, and for another server
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, lwlock_mode, backend_type, datname, usename, query_id)
VALUES (0, :n, 1, 1, 'CPU', 'CPU', NULL, 'client backend', 'lab', 'app', 11),
       (0, :n, 2, 1, 'Lock', 'relation', NULL, 'client backend', 'lab', 'app', 12),
       (0, :n, 3, 1, 'Lock', 'relation', NULL, 'client backend', 'lab', 'app', 13),
       (1, :n, 1, 1, 'LWLock', 'LockManager', 'exclusive', 'client backend', 'lab', 'app', 14),
       (0, :other, 1, 1, 'IO', 'DataFileRead', NULL, 'checkpointer', NULL, NULL, NULL);
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
VALUES (0, :n, 1, pg_temp.t(10), 500, 4, 2, 1, 0, '{1}', '{1000}'),
       (0, :n, 1, pg_temp.t(11), 1000, 4, 2, 1, 1, '{1,2,3}', '{500,1000,500}'),
       (0, :n, 1, pg_temp.t(15), 1000, 5, 0, 1, 0, '{}', '{}'),
       (1, :n, 1, pg_temp.t(30), 1000, 5, 3, 0, 0, '{1}', '{3000}'),
       (0, :other, 1, pg_temp.t(11), 1000, 0, 0, 0, 0, '{1}', '{200}');
INSERT INTO lock_history.gap (seg, node_id, run, began, ended, reason, lost, detail, part)
VALUES (0, :n, 1, pg_temp.t(20), pg_temp.t(24.5), 'late', 0, NULL, NULL),
       (0, :n, 1, pg_temp.t(21), pg_temp.t(23), 'writer blocked', 0, NULL, NULL),
       (0, :n, 1, pg_temp.t(30), pg_temp.t(31), 'disabled', 0, 'pg_lock_history.track_locks was off', 'waits');
SELECT node, at, wait_event_type, wait_event, lwlock_mode, datname, usename, backend_type, query_id, aas
FROM lock_history.load ORDER BY node, at, query_id;
SELECT node, at, total, active, idle_in_transaction, waiting FROM lock_history.sessions ORDER BY node, at;
-- not known before 10 and after 40, nor in the gaps of load
SELECT r AS unknown FROM unnest(lock_history.load_unknown('n1', pg_temp.t(0), pg_temp.t(60))) AS r;
SELECT at, wait_event_type, wait_event, round(aas::numeric, 3) AS aas
FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(60), '5 s', 'n1');
-- a whole minute: 35.5 s of it are known
SELECT at, wait_event_type, wait_event, round(aas::numeric, 4) AS aas FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(60), '1 min', 'n1');
SELECT count(DISTINCT at) AS seconds, sum(aas) AS aas FROM lock_history.load_by(pg_temp.t(10), pg_temp.t(20), node => 'n1');
SELECT at, wait_event, aas FROM lock_history.load_by(pg_temp.t(11), pg_temp.t(12), node => 'n2');
SELECT count(*) FROM lock_history.load_by(pg_temp.t(10), pg_temp.t(10), node => 'n1');
-- a sample stands for the time before it
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms, carry)
VALUES (0, :other, 1, pg_temp.t(79), 20000, 0, 0, 0, 0, '{1}', '{7232}', '{1}');
SELECT at, aas FROM lock_history.load_by(pg_temp.t(50), pg_temp.t(90), '10 s', 'n2');
SELECT at, aas FROM lock_history.load_by(pg_temp.t(60), pg_temp.t(65), '5 s', 'n2');
-- a worker that was stopped for 0.8 s: 4 sessions before and after
SELECT pg_temp.add_node('n3') AS third \gset
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES (:third, 1, pg_temp.t(0), pg_temp.t(400), 9, '1 s');
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event) VALUES (0, :third, 1, 1, 'CPU', 'CPU');
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms, carry)
SELECT 0, :third, 1, pg_temp.t(s.at), s.ms, 4, 4, 0, 0, '{1}', ARRAY[4 * s.ms % 32768]::smallint[], ARRAY[4 * s.ms / 32768]::smallint[]
FROM (VALUES (200, 1000), (201, 670), (202, 1330), (203, 1010), (219, 10000), (229, 9997), (240, 10003), (250, 9998), (303, 500)) AS s(at, ms);
SELECT at, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(199), pg_temp.t(205), '1 s', 'n3');
SELECT at, round(aas::numeric, 2) AS aas FROM lock_history.load_by(pg_temp.t(195), pg_temp.t(205), '5 s', 'n3');
-- sampled every 10 s, somewhen in the second: no second is read twice, or not at all
SELECT count(*), round(min(aas)::numeric, 3) AS least, round(max(aas)::numeric, 3) AS most FROM lock_history.load_by(pg_temp.t(210), pg_temp.t(251), '1 s', 'n3');
SELECT at, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(215), pg_temp.t(245), '20 s', 'n3');
-- a second that a gap cuts: 4 in what is known of it
INSERT INTO lock_history.gap (seg, node_id, run, began, ended, reason, lost) VALUES (0, :third, 1, pg_temp.t(300), pg_temp.t(303.5), 'late', 0);
SELECT at, aas FROM lock_history.load_by(pg_temp.t(302), pg_temp.t(305), '1 s', 'n3');
-- load is lost by the second: after a crash the one that was not complete, with facts that
-- were dropped those that were; a worker that ended in order had the last one written
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
SELECT 0, :third, 1, pg_temp.t(s.at), s.ms, 4, 4, 0, 0, '{1}', ARRAY[4 * s.ms]::smallint[]
FROM (VALUES (314, 800), (320, 700), (323, 800), (329, 1000), (332, 1000)) AS s(at, ms);
INSERT INTO lock_history.gap (seg, node_id, run, began, ended, reason, lost, detail)
VALUES (0, :third, 1, pg_temp.t(310.7), pg_temp.t(314.2), 'stopped', 0, 'from the last heartbeat on'),
       (0, :third, 1, pg_temp.t(320.7), pg_temp.t(323.2), 'stopped', 0, NULL),
       (0, :third, 1, pg_temp.t(330.7), pg_temp.t(332.2), 'writer blocked', 0, 'the queue was full'),
       (0, :third, 1, pg_temp.t(334.1), pg_temp.t(334.9), 'ring held', 0, NULL);
SELECT b.at, b.aas FROM lock_history.load_by(pg_temp.t(309), pg_temp.t(336), '1 s', 'n3') AS b WHERE b.at < pg_temp.t(316) OR b.at BETWEEN pg_temp.t(319) AND pg_temp.t(324) OR b.at > pg_temp.t(328);
SELECT lock_history.sampled_ms('n3', pg_temp.t(309), pg_temp.t(336));
-- errors
SELECT * FROM lock_history.load_by(NULL);
SELECT * FROM lock_history.load_by(pg_temp.t(1), pg_temp.t(0));
SELECT * FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(9), '100 ms');
SELECT * FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(9), '1 month');
SELECT * FROM lock_history.load_by('-infinity', pg_temp.t(9), '1 s');
SELECT * FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(200000), '1 s');
SELECT * FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(5), '5 s', 'nobody');
-- out of two segments into one: kept, it reads the same
SELECT lock_history.keep(pg_temp.t(11.2), pg_temp.t(30.5), 'kept', 'n1');
SET pg_lock_history.incident = 'kept';
SELECT at, wait_event_type, wait_event, lwlock_mode, usename, query_id, aas FROM lock_history.load ORDER BY at, query_id;
SELECT at, total FROM lock_history.sessions ORDER BY at;
SELECT at, wait_event, round(aas::numeric, 3) AS aas FROM lock_history.load_by(pg_temp.t(0), pg_temp.t(60), '10 s');
RESET pg_lock_history.incident;
SELECT lock_history.forget('kept');
SELECT lock_history.keep(pg_temp.t(309), pg_temp.t(336), 'holes', 'n3');
SET pg_lock_history.incident = 'holes';
SELECT lock_history.sampled_ms('n3', pg_temp.t(309), pg_temp.t(336));
RESET pg_lock_history.incident;
SELECT lock_history.forget('holes');
-- what was not complete when it was kept is not known, here from 40 on
SELECT lock_history.keep(pg_temp.t(29), pg_temp.t(42.5), 'kept', 'n1');
SET pg_lock_history.incident = 'kept';
SELECT at, aas FROM lock_history.load_by(pg_temp.t(38), pg_temp.t(44), '1 s');
SELECT lock_history.sampled_ms('n1', pg_temp.t(35), pg_temp.t(42.5));
RESET pg_lock_history.incident;
SELECT lock_history.forget('kept');
SELECT (SELECT count(*) FROM lock_history.kept_dim) AS dims, (SELECT count(*) FROM lock_history.kept_second) AS seconds;
