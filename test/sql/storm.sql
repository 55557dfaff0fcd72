-- 1 000 waiters on one lock: the tree collapses; any moment is found among many.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
SELECT count(pg_temp.add_actor(:n, 10000 + k)) FROM generate_series(0, 1000) AS k \g /dev/null
-- 10001 wants to alter, 999 readers queue behind it, one of which blocks another
SELECT pg_temp.add_wait('episode', :n, 1, 10001, 8, 1, 100, ARRAY[(1,10000,2,1,NULL), (3,10000,0,1,NULL)]::pg_temp.edge[], 1) \g /dev/null
SELECT count(pg_temp.add_wait('episode', :n, k, 10000 + k, 1, 1 + k / 1000.0, 100,
                              ARRAY[(2,10001,256,1 + k / 1000.0,NULL), (3,10000,0,1 + k / 1000.0,NULL)]::pg_temp.edge[], k, soft => '{10001}'))
FROM generate_series(2, 999) AS k \g /dev/null
SELECT pg_temp.add_wait('episode', :n, 1000, 11000, 8, 2, 100, ARRAY[(1,10900,2,2,NULL), (3,10000,0,2,NULL)]::pg_temp.edge[], 1, lock => 2) \g /dev/null
SELECT tree, blocked_by, root, kind, waits_for FROM pg_temp.tree(50, 'n1', 3);
SELECT count(*), sum(coalesce(collapsed_count, 1)) FROM lock_history.blocking_tree_at(pg_temp.t(50), 'n1');
SELECT at, waiting, roots, longest FROM lock_history.worst_moments(node => 'n1');
SELECT pid, sessions_blocked, first_seen, last_seen FROM lock_history.root_blockers;
SELECT count(*), min(blocker_pid), max(blocker_pid) FROM lock_history.blocking_all(1000);
-- who asks for the strongest mode is behind all 999
SELECT pg_temp.add_actor(:n, 20000), pg_temp.add_wait('episode', :n, 2000, 20000, 8, 10, 100, ARRAY[(1,10000,2,10,NULL), (2,10999,2,10,NULL)]::pg_temp.edge[], 5000, soft => '{10999}') \g /dev/null
SELECT kind, count(*), count(DISTINCT blocker_pid), min(blocker_pid), max(blocker_pid) FROM lock_history.blocking_all(2000) GROUP BY kind ORDER BY kind;
