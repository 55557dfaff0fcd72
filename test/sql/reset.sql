-- The ring is empty after reset(), and nothing else is.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES
    (:n, 1, pg_temp.t(-100), pg_temp.t(-50), 7, '1 s'), (:n, 2, pg_temp.t(-40), pg_temp.t(50), 3, '1 s');
SELECT pg_temp.add_actor(:n, 101, seg => s::smallint), pg_temp.add_actor(:n, 102, seg => s::smallint) FROM generate_series(0, 7) AS s \g /dev/null
SELECT pg_temp.add_wait('episode', :n, s, 102, 8, 0.5, 3.0, ARRAY[(1,101,2,0.5,NULL), (3,101,0,0.5,NULL)]::pg_temp.edge[], s, seg => s),
       pg_temp.add_wait('open', :n, 10 + s, 102, 8, 0.5, NULL, ARRAY[(1,101,2,0.5,NULL)]::pg_temp.edge[], s, seg => s)
FROM generate_series(0, 7) AS s \g /dev/null
UPDATE lock_history.ring SET round = 3, opened_at = pg_temp.t(0), closed_at = pg_temp.t(seg), is_empty = false;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(10), 'kept', 'n1');
SELECT lock_history.reset();
SELECT (SELECT count(*) FROM lock_history.actor WHERE seg < 8) AS actors, (SELECT count(*) FROM lock_history.episode WHERE seg < 8) AS episodes,
       (SELECT count(*) FROM lock_history.open) AS open;
-- rounds are raised: what a writer had read of the ring does not hold any more
SELECT seg, round, opened_at, closed_at, is_empty FROM lock_history.ring ORDER BY seg;
-- the latest life of each worker stays, the batch that it last wrote is not in the tables any more
SELECT run, batch FROM lock_history.run;
SELECT node FROM lock_history.node;
SELECT key, value FROM lock_history.status() WHERE key IN ('current_segment', 'oldest_history') ORDER BY key;
SET pg_lock_history.incident = 'kept';
SELECT count(*) FROM lock_history.waits;
RESET pg_lock_history.incident;
SELECT lock_history.reset();
