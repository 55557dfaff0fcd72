-- How long waits were: rows of one minute add up, each bucket has its bounds; and kept.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1', true) AS n \gset
INSERT INTO lock_history.dim_0 (seg, node_id, dim_id, kind, wait_event_type, wait_event) VALUES (0, :n, 1, 6, 'LWLock', 'WALWrite'), (0, :n, 2, 6, 'IO', 'WALSync');
INSERT INTO lock_history.dim_2 (seg, node_id, dim_id, kind, wait_event_type, wait_event) VALUES (2, :n, 1, 6, 'IO', 'WALSync'), (2, :n, 2, 6, 'LWLock', 'WALWrite');
INSERT INTO lock_history.wait_length_0 (seg, node_id, run, at, dims, buckets, waits, total_ms) VALUES
    (0, :n, 1, pg_temp.t(0), '{1,1,2,2}', '{4,5,0,1}', '{10,3,7,1}', '{100,60,3.5,1.5}'),
    (0, :n, 1, pg_temp.t(0), '{1}', '{4}', '{1}', '{10}');
INSERT INTO lock_history.wait_length_2 (seg, node_id, run, at, dims, buckets, waits, total_ms) VALUES
    (2, :n, 1, pg_temp.t(0), '{2}', '{4}', '{1}', '{10}'),
    (2, :n, 1, pg_temp.t(60), '{1}', '{33}', '{1}', '{5e9}');
SELECT node, extract(minute FROM at) AS minute, wait_event_type, wait_event, lower_ms, upper_ms, waits, total_ms
FROM lock_history.wait_histogram ORDER BY at, wait_event, lower_ms;
-- with a lock wait, since a histogram alone is no incident
INSERT INTO lock_history.short_wait_0 (seg, node_id, at, locktype, waits, total_ms, max_ms) VALUES (0, :n, pg_temp.t(70), 'relation', 1, 1, 1);
SELECT lock_history.keep(pg_temp.t(61), pg_temp.t(75), 'late', 'n1');
SET pg_lock_history.incident = 'late';
SELECT extract(minute FROM at) AS minute, wait_event, lower_ms, waits FROM lock_history.wait_histogram;
RESET pg_lock_history.incident;
SELECT lock_history.forget('late');
SELECT (SELECT count(*) FROM lock_history.kept_wait_length) AS lengths, (SELECT count(*) FROM lock_history.kept_dim) AS dims;
