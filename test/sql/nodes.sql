-- Which servers are heard of, by the clock of the history, and up to when each is
-- complete, by its own.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT now() AS base \gset
UPDATE lock_history.ring SET opened_at = :'base'::timestamptz - interval '1 hour', is_empty = false WHERE seg = 0;
CREATE TEMP TABLE seen (name text, clock interval, written interval, every interval, home boolean);
INSERT INTO seen VALUES
    ('at work', '0', '0 s', '55 s', false),
    ('idle', '0', '60 s', '55 s', false),
    ('gone', '0', '4 min', '55 s', false),
    ('an hour ahead', '1 h', '0 s', '55 s', false),
    ('an hour ahead, gone', '1 h', '4 min', '55 s', false),
    ('an hour behind', '-1 h', '60 s', '55 s', false),
    ('slow to flush, idle', '0', '3 min', '3 min', false),
    ('wrote to itself, idle', NULL, '10 min', '15 min', true),
    ('wrote to itself, gone', NULL, '20 min', '15 min', true);
SELECT pg_temp.add_node(name) FROM seen UNION ALL SELECT pg_temp.add_node('never') \g /dev/null
UPDATE lock_history.node AS n SET clock_offset = s.clock, clock_error = '1 ms', clock_at = :'base'::timestamptz FROM seen AS s WHERE s.name = n.node AND NOT s.home;
INSERT INTO lock_history.run (node_id, run, batch, started_at, heartbeat, flush_period, heartbeat_every, written_at, last_seg, rows)
SELECT n.node_id, life, 1, :'base'::timestamptz - interval '1 hour', :'base'::timestamptz - s.written + coalesce(s.clock, '0'), '20 s', s.every, CASE WHEN NOT s.home THEN :'base'::timestamptz - s.written END, 0, 10
FROM seen AS s JOIN lock_history.node AS n ON n.node = s.name CROSS JOIN generate_series(1, 2) AS life;
SELECT n.node, n.state, n.lag BETWEEN s.written AND s.written + interval '30 s' AS lag, n.last_seen = :'base'::timestamptz - s.written AS seen,
       n.complete_until = :'base'::timestamptz - s.written + coalesce(s.clock, '0') AS complete, n.clock_offset, n.rows, n.lives, n.is_local
FROM lock_history.nodes AS n LEFT JOIN seen AS s ON s.name = n.node ORDER BY n.node;
-- what is silent is a gap, from when it was complete
SELECT g.node, g.began = s.complete_until AS began, g.ended, g.reason FROM lock_history.gaps AS g JOIN lock_history.nodes AS s USING (node) ORDER BY g.node;
-- a wait that goes on has lasted so long by the clock of its node
SELECT pg_temp.add_actor(n.node_id, n.node_id, seen => 0), pg_temp.add_wait('open', n.node_id, n.node_id, n.node_id, 8, 0, NULL, '{}'::pg_temp.edge[], run => 2)
FROM lock_history.node AS n JOIN seen AS s ON s.name = n.node AND s.written < '1 min' \g /dev/null
UPDATE lock_history.open AS o SET wait_start = :'base'::timestamptz - interval '10 s' + n.clock_offset, written_at = :'base'::timestamptz + n.clock_offset FROM lock_history.node AS n WHERE n.node_id = o.node_id;
SELECT node, wait_end, duration BETWEEN '10 s' AND '40 s' AS duration FROM lock_history.waits ORDER BY node;
-- who is heard of no more can be removed, with all that is shown of it
\set VERBOSITY terse
SELECT lock_history.forget_node('no such');
SELECT lock_history.forget_node('idle');
INSERT INTO lock_history.detector (node_id, written_at, state) SELECT node_id, now(), '{}' FROM lock_history.node WHERE node = 'gone';
INSERT INTO lock_history.gap (seg, node_id, run, began, ended, reason, lost) SELECT 0, node_id, 1, now(), now(), 'late', 0 FROM lock_history.node WHERE node = 'gone';
INSERT INTO lock_history.minute_gap (node_id, source, began, ended) SELECT node_id, 0, now(), now() FROM lock_history.node WHERE node = 'gone';
SELECT reason FROM lock_history.gaps WHERE node = 'gone' ORDER BY reason;
SELECT lock_history.forget_node('gone'), lock_history.forget_node('never') \g /dev/null
SELECT count(*) FROM lock_history.nodes WHERE node IN ('gone', 'never');
SELECT reason FROM lock_history.gaps WHERE node = 'gone';
SELECT count(*) FROM lock_history.minute_gap;
