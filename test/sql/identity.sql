-- Who is who: a pid that is used again, and one session with many transactions.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
SELECT pg_temp.add_node('n1') AS n \gset
-- pid 201 blocks 203, ends, and its number goes to another process, which blocks 204; then that one waits for 205
SELECT pg_temp.add_actor(:n, k) FROM generate_series(201, 205) AS k \g /dev/null
UPDATE lock_history.actor SET pid = 201, backend_start = pg_temp.t(50), application_name = 'another', query = 'of another' WHERE actor_id = 202;
SELECT pg_temp.add_wait('episode', :n, 2003, 203, 8, 1, 9, ARRAY[(1,201,2,1,NULL), (3,201,0,1,NULL)]::pg_temp.edge[], 1, lock => 2),
       pg_temp.add_wait('episode', :n, 2004, 204, 8, 61, 69, ARRAY[(1,202,2,61,NULL), (3,202,0,61,NULL)]::pg_temp.edge[], 1, lock => 2),
       pg_temp.add_wait('episode', :n, 2002, 202, 8, 71, 79, ARRAY[(1,205,2,71,NULL), (3,205,0,71,NULL)]::pg_temp.edge[], 1, lock => 2) \g /dev/null
SELECT pid, backend_start, application_name, sessions_blocked, blocked_time, first_seen FROM lock_history.root_blockers WHERE pid = 201 ORDER BY first_seen;
SELECT wait_id, blocker_pid, blocker_backend_start, blocker_query FROM lock_history.blocking WHERE blocker_pid = 201 ORDER BY wait_id;
SELECT t.at, b.level, b.pid, b.backend_start, b.query FROM unnest('{5,65,75}'::int[]) AS t(at), lock_history.blocking_tree_at(pg_temp.t(t.at), 'n1') AS b ORDER BY t.at, b.level;
SELECT wait_id, backend_start, application_name, hard_blockers FROM lock_history.waits WHERE pid = 201;
-- pid 301 is a pool's connection: it blocks 303 in one transaction and 304 in the next, for another application
SELECT pg_temp.add_actor(:n, k) FROM generate_series(301, 304) AS k \g /dev/null
UPDATE lock_history.actor SET pid = 301, proc_key = 301, xact_start = pg_temp.t(20), application_name = 'next', query = 'of the next', seen_at = pg_temp.t(20) WHERE actor_id = 302;
SELECT pg_temp.add_wait('episode', :n, 3003, 303, 8, 1, 9, ARRAY[(1,301,2,1,NULL), (3,301,0,1,NULL)]::pg_temp.edge[], 1, lock => 3),
       pg_temp.add_wait('episode', :n, 3004, 304, 8, 21, 29, ARRAY[(1,302,2,21,NULL), (3,302,0,21,NULL)]::pg_temp.edge[], 1, lock => 3) \g /dev/null
UPDATE lock_history.episode SET edge_proc = array_replace(edge_proc, 302::bigint, 301::bigint) WHERE wait_id = 3004;
SELECT wait_id, blocker_pid, blocker_application_name, blocker_xact_start, blocker_query FROM lock_history.blocking WHERE blocker_pid = 301 ORDER BY wait_id;
SELECT t.at, b.pid, b.application_name, b.xact_start FROM unnest('{5,25}'::int[]) AS t(at), lock_history.blocking_tree_at(pg_temp.t(t.at), 'n1') AS b WHERE b.level = 0 AND b.pid = 301 ORDER BY t.at;
-- as a root it is one session, told as it was last
SELECT pid, application_name, query, sessions_blocked, blocked_time FROM lock_history.root_blockers WHERE pid = 301;
