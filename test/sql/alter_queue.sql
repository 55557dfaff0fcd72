-- A reads and stays in its transaction; B wants to alter; C and D come after B.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
SELECT pg_temp.add_actor(:n, 101, 'idle in transaction', 'SELECT count(*) FROM t'), pg_temp.add_actor(:n, 102, 'active', 'ALTER TABLE t'),
       pg_temp.add_actor(:n, 103), pg_temp.add_actor(:n, 104) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 1002, 102, 8, 0.5, 3.0, ARRAY[(1,101,2,0.5,NULL), (3,101,0,0.5,NULL)]::pg_temp.edge[], 10) \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 1003, 103, 1, 1.0, 3.1, ARRAY[(2,102,256,1.0,3.0), (1,102,256,3.0,NULL), (3,101,0,1.0,3.0), (3,102,0,3.0,NULL)]::pg_temp.edge[], 20, soft => '{102}') \g /dev/null
-- first looked at 50 ms after it began
SELECT pg_temp.add_wait('episode', :n, 1004, 104, 3, 1.5, 3.1, ARRAY[(2,102,256,1.55,3.0), (3,101,0,1.55,3.0)]::pg_temp.edge[], 30, soft => '{102}') \g /dev/null
SELECT pid, mode, locktype, object, object_datname, wait_start, wait_end, duration, granted, outcome, hard_blockers, soft_blockers,
       root_blockers, hard_blocker_count AS hard, soft_blocker_count AS soft
FROM lock_history.waits WHERE node = 'n1' ORDER BY wait_start;
SELECT wait_id, pid, blocker_pid, kind, blocker_mode, first_seen, last_seen, blocker_state, blocker_query
FROM lock_history.blocking WHERE node = 'n1' ORDER BY wait_id, first_seen;
-- D is behind B only: what it asks for does not conflict with C
SELECT pid, blocker_pid, kind, blocker_mode FROM lock_history.blocking_all(1004);
SELECT pid, blocker_pid, kind, blocker_mode FROM lock_history.blocking_all(4711);
SELECT * FROM pg_temp.tree(2.0, 'n1');
-- a moment before D was first looked at, but after it began to wait
SELECT * FROM pg_temp.tree(1.52, 'n1');
-- B was granted: it stands in the way of C; by whom D was blocked then is not known
SELECT * FROM pg_temp.tree(3.05, 'n1');
-- the ends: a wait includes its begin, not its end
SELECT * FROM pg_temp.tree(0.5, 'n1');
SELECT * FROM pg_temp.tree(0.4999, 'n1');
SELECT * FROM pg_temp.tree(3.1, 'n1');
SELECT * FROM pg_temp.tree(2.0, 'no such node');
SELECT path, state, query, wait_id, collapsed_count FROM lock_history.blocking_tree_at(pg_temp.t(2), 'n1');
SELECT * FROM lock_history.worst_moments(pg_temp.t(0), pg_temp.t(60), 10, 'n1');
SELECT * FROM lock_history.worst_moments(pg_temp.t(0), pg_temp.t(1.2), 10, 'n1');
SELECT * FROM lock_history.worst_moments(pg_temp.t(1.2), pg_temp.t(1.5), 10, 'n1');
SELECT pid, state, sessions_blocked, blocked_time, first_seen, last_seen, query
FROM lock_history.root_blockers WHERE node = 'n1' ORDER BY blocked_time DESC;
-- within a range only what was in it counts; what goes on has no end
SELECT pid, sessions_blocked, blocked_time, first_seen, last_seen
FROM lock_history.root_blockers(pg_temp.t(0.75), pg_temp.t(2), 'n1') ORDER BY blocked_time DESC;
SELECT count(*) FROM lock_history.root_blockers(pg_temp.t(4), NULL, 'n1');
SELECT count(*) AS differ FROM (SELECT r FROM lock_history.root_blockers AS r EXCEPT ALL SELECT r FROM lock_history.root_blockers(pg_temp.t(0), NULL, 'n1') AS r) AS d;
