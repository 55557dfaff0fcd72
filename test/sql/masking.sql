-- Texts and addresses of other roles are masked, everywhere.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
CREATE ROLE regress_plh_own;
CREATE ROLE regress_plh_reader;
CREATE ROLE regress_plh_monitor IN ROLE pg_monitor;
CREATE ROLE regress_plh_nobody;
CREATE ROLE regress_plh_group;
GRANT regress_plh_group TO regress_plh_reader;
SELECT lock_history.grant_reader('regress_plh_reader');
SELECT pg_temp.add_node('here', true) AS here, pg_temp.add_node('elsewhere') AS elsewhere \gset
-- 101 blocks, of another role; 102 waits, of the reader's; 103 waits, of a group the reader is in; 104 has no role
SELECT pg_temp.add_actor(n, 101, role => 'regress_plh_own'), pg_temp.add_actor(n, 102, role => 'regress_plh_reader'),
       pg_temp.add_actor(n, 103, role => 'regress_plh_group'), pg_temp.add_actor(n, 104, role => NULL),
       pg_temp.add_wait('episode', n, n * 1000 + 2, 102, 8, 10, 20, ARRAY[(1,101,2,10,NULL), (3,101,0,10,NULL)]::pg_temp.edge[], 1),
       pg_temp.add_wait('episode', n, n * 1000 + 3, 103, 8, 10, 20, ARRAY[(1,101,2,10,NULL), (3,101,0,10,NULL)]::pg_temp.edge[], 2),
       pg_temp.add_wait('episode', n, n * 1000 + 4, 104, 8, 10, 20, ARRAY[(1,101,2,10,NULL), (2,103,256,10,NULL), (3,101,0,10,NULL)]::pg_temp.edge[], 3),
       pg_temp.add_wait('episode', n, n * 1000 + 5, 101, 8, 30, 40, ARRAY[(1,102,2,30,NULL), (3,102,0,30,NULL)]::pg_temp.edge[], 1, lock => 2)
FROM (VALUES (:here), (:elsewhere)) AS v(n) \g /dev/null
INSERT INTO lock_history.short_wait_0 (seg, node_id, at, locktype, query_id, waits, total_ms, max_ms) VALUES (0, :here, pg_temp.t(0), 'relation', 42, 3, 9, 5);
INSERT INTO lock_history.deadlock_0 (seg, node_id, run, at, deadlock_id, member, pid, is_victim, waits_for, actor_id, object, mode)
SELECT 0, :here, 1, pg_temp.t(5), 1, m, 100 + m, m = 1, 103 - m, 100 + m, 'public.t', 'ShareLock' FROM generate_series(1, 2) AS m;
GRANT EXECUTE ON FUNCTION pg_temp.t(numeric) TO PUBLIC;

-- the reader
SET ROLE regress_plh_reader;
SELECT node, pid, usename, query, query_id, client_addr FROM lock_history.waits ORDER BY node, wait_id;
SELECT node, pid, blocker_pid, kind, blocker_query, blocker_query_id, blocker_client_addr FROM lock_history.blocking ORDER BY node, wait_id, kind;
SELECT node, pid, query, query_id, client_addr FROM lock_history.root_blockers ORDER BY node, pid;
SELECT pid, level, query, client_addr FROM lock_history.blocking_tree_at(pg_temp.t(15), 'here');
SELECT pid, level, query, client_addr FROM lock_history.blocking_tree_at(pg_temp.t(15), 'elsewhere');
SELECT n.node, b.blocker_pid, b.kind, b.blocker_query, b.blocker_client_addr
FROM lock_history.node_state AS n, lock_history.blocking_all(n.node_id * 1000 + 4) AS b ORDER BY n.node, b.kind, b.blocker_pid;
SELECT node, waits, query_id FROM lock_history.short_waits;
SELECT pid, is_victim, waits_for, object, usename, query, query_id, client_addr FROM lock_history.deadlocks ORDER BY member;
SELECT waiting, roots FROM lock_history.worst_moments(node => 'here');
SELECT count(*) FROM lock_history.health;
SELECT count(*) FROM lock_history.gaps WHERE node = 'none';
SELECT count(*) FROM lock_history.status() WHERE key IN ('state', 'ring_fill', 'nodes');
-- a filter of the reader's own sees the mask, not what is behind it
CREATE FUNCTION pg_temp.leak(text) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS $$
BEGIN
    IF $1 <> '<insufficient privilege>' THEN RAISE WARNING 'saw %', $1; END IF;
    RETURN true;
END
$$;
SELECT pid FROM lock_history.waits WHERE pg_temp.leak(query) AND node = 'elsewhere' AND pid = 101;
-- the tables are closed
SELECT query FROM lock_history.actor;
SELECT query FROM lock_history.actor_0;
SELECT lock_history.announce();
-- pg_monitor
SET ROLE regress_plh_monitor;
SELECT node, pid, query, query_id, client_addr FROM lock_history.waits WHERE node = 'elsewhere' ORDER BY wait_id;
SELECT pid, query FROM lock_history.blocking_tree_at(pg_temp.t(15), 'elsewhere');
SELECT count(*) FROM lock_history.blocking_all(:here * 1000 + 4);
SELECT query_id FROM lock_history.short_waits;
SELECT pid, query, query_id, client_addr FROM lock_history.deadlocks ORDER BY member;
SELECT count(*) FROM lock_history.gaps WHERE node = 'none';
SELECT count(*) FROM lock_history.status() WHERE key IN ('state', 'ring_fill', 'nodes');
SELECT query FROM lock_history.actor;
-- everybody else
SET ROLE regress_plh_nobody;
SELECT pid FROM lock_history.waits;
SELECT key FROM lock_history.status();
RESET ROLE;
DROP OWNED BY regress_plh_reader;
DROP ROLE regress_plh_own, regress_plh_reader, regress_plh_monitor, regress_plh_nobody, regress_plh_group;
