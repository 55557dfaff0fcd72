-- Waits that go on, and waits of which nobody saw the end.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('crashed') AS crashed, pg_temp.add_node('alive') AS alive \gset
-- two lives of the worker of 'crashed', the second ended too; that of 'alive' flushes once an hour
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES
    (:crashed, 1, pg_temp.t(-100), pg_temp.t(50), 1, '1 s'),
    (:crashed, 2, pg_temp.t(60), pg_temp.t(90), 1, '1 s'),
    (:alive, 1, pg_temp.t(-100), pg_temp.t(0), 1, '1 h'),
    (:alive, 2, now() - interval '2 h', now(), 1, '1 h');
SELECT pg_temp.add_actor(:crashed, k), pg_temp.add_actor(:alive, k) FROM generate_series(100, 110) AS k \g /dev/null
SELECT pg_temp.add_wait('open', :crashed, 1, 101, 8, 10, NULL, ARRAY[(1,100,2,10,NULL), (3,100,0,10,NULL)]::pg_temp.edge[], run => 1) \g /dev/null
SELECT pg_temp.add_wait('open', :crashed, 2, 102, 8, 70, NULL, ARRAY[(1,100,2,70,NULL), (3,100,0,70,NULL)]::pg_temp.edge[], run => 2) \g /dev/null
-- began after the last heartbeat was written: never ends before it begins
SELECT pg_temp.add_wait('open', :crashed, 3, 103, 8, 95, NULL, ARRAY[(1,100,2,95,NULL)]::pg_temp.edge[], run => 2) \g /dev/null
-- written twice in two segments: the last one counts
SELECT pg_temp.add_wait('open', :alive, 4, 104, 8, 10, NULL, ARRAY[(1,100,2,10,NULL)]::pg_temp.edge[], run => 2, written => 20),
       pg_temp.add_actor(:alive, 104, seg => 1::smallint), pg_temp.add_actor(:alive, 101, seg => 1::smallint),
       pg_temp.add_wait('open', :alive, 4, 104, 8, 10, NULL, ARRAY[(1,101,2,15,NULL), (3,101,0,15,NULL)]::pg_temp.edge[], run => 2, written => 30, seg => 1) \g /dev/null
-- ended: the row of open counts no more
SELECT pg_temp.add_wait('open', :alive, 5, 105, 8, 10, NULL, ARRAY[(1,100,2,10,NULL)]::pg_temp.edge[], run => 2),
       pg_temp.add_actor(:alive, 105, seg => 2::smallint),
       pg_temp.add_wait('episode', :alive, 5, 105, 8, 10, 40, '{}', run => 2, seg => 2, outcome => 'failed') \g /dev/null
-- of an earlier life of the worker
SELECT pg_temp.add_wait('open', :alive, 6, 106, 8, -50, NULL, ARRAY[(1,100,2,-50,NULL)]::pg_temp.edge[], run => 1) \g /dev/null
SELECT node, wait_id, pid, wait_start, wait_end, CASE WHEN wait_end IS NULL THEN duration > '1 day' ELSE duration < '2 min' END AS duration_fits,
       granted, outcome, hard_blockers, root_blockers
FROM lock_history.waits ORDER BY wait_id;
SELECT wait_id, blocker_pid, first_seen, last_seen FROM lock_history.blocking ORDER BY wait_id;
SELECT node, pid, sessions_blocked, first_seen, last_seen FROM lock_history.root_blockers ORDER BY node, pid;
-- the tree of the crashed server ends with its heartbeat; that of the living one has no end
SELECT tree, root, waited FROM pg_temp.tree(49, 'crashed');
SELECT tree, root, waited FROM pg_temp.tree(51, 'crashed');
SELECT tree, root FROM pg_temp.tree(1000, 'alive');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(node => 'crashed');
SELECT blocker_pid, kind, last_seen FROM lock_history.blocking_all(4);
-- segments closed before a moment are left out, open waits are not
UPDATE lock_history.ring SET opened_at = pg_temp.t(-100), closed_at = pg_temp.t(60), is_empty = false WHERE seg = 0;
SELECT tree, root FROM pg_temp.tree(80, 'crashed');
-- no node and this server not recorded: all of them
SELECT node, pid FROM lock_history.blocking_tree_at(pg_temp.t(80)) ORDER BY node, pid;
-- not written again when its segment closed: it ended, in a segment that is gone
UPDATE lock_history.ring SET opened_at = now() - interval '1 h', closed_at = now() - interval '2 min' WHERE seg = 1;
SELECT count(*) AS alive FROM lock_history.waits WHERE wait_id = 4;
UPDATE lock_history.ring SET closed_at = now() - interval '30 s' WHERE seg = 1;
SELECT count(*) AS alive FROM lock_history.waits WHERE wait_id = 4;
-- began before the oldest of those that are open: its end was among what was dropped
UPDATE lock_history.run SET oldest_open = pg_temp.t(10) WHERE node_id = :alive AND run = 2;
SELECT count(*) AS alive FROM lock_history.waits WHERE wait_id = 4;
UPDATE lock_history.run SET oldest_open = pg_temp.t(10.001) WHERE node_id = :alive AND run = 2;
SELECT count(*) AS alive FROM lock_history.waits WHERE wait_id = 4;
-- facts were dropped since it was written: nobody knows, from then on; written again it is alive
UPDATE lock_history.run SET lost = tstzmultirange(tstzrange(pg_temp.t(40), pg_temp.t(50), '[]')) WHERE node_id = :alive AND run = 2;
SELECT wait_end, outcome FROM lock_history.waits WHERE wait_id = 4;
-- and again: it was lost then already, or it would have been written again
UPDATE lock_history.run SET lost = tstzmultirange(tstzrange(pg_temp.t(40), pg_temp.t(50), '[]'), tstzrange(pg_temp.t(500), pg_temp.t(600), '[]')) WHERE node_id = :alive AND run = 2;
SELECT wait_end, outcome FROM lock_history.waits WHERE wait_id = 4;
UPDATE lock_history.run SET oldest_open = pg_temp.t(10), lost = tstzmultirange(tstzrange(pg_temp.t(25), pg_temp.t(29.999), '[]')) WHERE node_id = :alive AND run = 2;
SELECT wait_end, outcome FROM lock_history.waits WHERE wait_id = 4;
