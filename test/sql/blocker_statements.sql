-- What blockers did before: by wait, by root, masked, kept.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
CREATE ROLE regress_plh_own;
CREATE ROLE regress_plh_reader;
SELECT lock_history.grant_reader('regress_plh_reader');
SELECT pg_temp.add_node('here', true) AS n, pg_temp.add_node('elsewhere') AS o \gset
-- of n: 101 has written and is idle after a ping, 104 is the same process, described later in its next transaction;
-- 102 waits for 101 and holds what 103 waits for, which stands behind 102 only; 105 prepared
SELECT pg_temp.add_actor(n, 101, 'idle in transaction', 'SELECT 1', role => 'regress_plh_own'),
       pg_temp.add_actor(n, 102, query => 'UPDATE u', role => 'regress_plh_reader'), pg_temp.add_actor(n, 103),
       pg_temp.add_actor(n, 104, query => 'DELETE', seen => 30), pg_temp.add_actor(n, 105, 'prepared', gid => 'g1')
FROM (VALUES (:n), (:o)) AS v(n) \g /dev/null
UPDATE lock_history.actor SET pid = 101, proc_key = 101, xact_start = pg_temp.t(25), query_start = pg_temp.t(29) WHERE actor_id = 104;
UPDATE lock_history.actor SET query = NULL, query_start = NULL WHERE actor_id = 105;
CREATE FUNCTION pg_temp.did(actor bigint, texts text[], left_out bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE lock_history.actor AS a
       SET stmt_first_seen = s.first, stmt_last_seen = s.last, stmt_samples = s.samples, stmt_state = s.state,
           stmt_wait_event_type = s.type, stmt_wait_event = s.event, stmt_query_id = s.id,
           -- the last one is what the session shows as its query
           stmt_query_start = s.start[1:cardinality(texts) - 1] || coalesce(a.query_start, pg_temp.t(0)),
           stmt_query = texts, stmt_left_out = left_out
    FROM (SELECT array_agg(pg_temp.t(-10 + no)) AS first, array_agg(pg_temp.t(-9.5 + no)) AS last, array_agg(no * 10) AS samples,
                 array_agg(CASE WHEN no = 1 THEN 'active' ELSE 'idle in transaction' END) AS state,
                 array_agg(CASE WHEN no = 1 THEN 'IO' END) AS type, array_agg(CASE WHEN no = 1 THEN 'WALSync' END) AS event,
                 array_agg(pg_temp.t(-11 + no)) AS start, array_agg(no) AS id
          FROM generate_series(1, cardinality(texts)) AS no) AS s
    WHERE a.actor_id = actor
$$;
SELECT pg_temp.did(101, '{UPDATE t,SELECT t,SELECT 1}', 2), pg_temp.did(102, '{INSERT u,UPDATE u}', 0),
       pg_temp.did(104, '{DELETE}', 0), pg_temp.did(105, '{UPDATE v,NULL,INSERT v}', 0) \g /dev/null
SELECT pg_temp.add_wait('episode', n, n * 100 + 1, 102, 8, 10, 20, ARRAY[(1,101,2,10,NULL), (3,101,0,10,NULL)]::pg_temp.edge[], 1),
       pg_temp.add_wait('episode', n, n * 100 + 2, 103, 8, 11, 20, ARRAY[(1,102,2,11,NULL), (2,104,2,11,NULL), (3,101,0,11,NULL)]::pg_temp.edge[], 2),
       pg_temp.add_wait('episode', n, n * 100 + 3, 103, 8, 40, 50, ARRAY[(1,105,2,40,NULL), (3,105,0,40,NULL)]::pg_temp.edge[], 1),
       pg_temp.add_wait('open', n, n * 100 + 4, 103, 8, 60, NULL, ARRAY[(1,101,2,55,58), (1,104,2,60,NULL), (3,104,0,60,NULL)]::pg_temp.edge[], 1)
FROM (VALUES (:n), (:o)) AS v(n) \g /dev/null
UPDATE lock_history.open_0 SET edge_proc = '{101,101,101}';
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES (:n, 1, pg_temp.t(-100), now(), 1, '1 h');
-- each blocker once, whatever kinds it has; the soft one holds nothing; a pid's transactions apart
SELECT wait_id % 100 AS wait, blocker_pid, blocker_gid AS gid, kind, blocker_xact_start, no, query, left_out
FROM lock_history.blocker_statements WHERE node = 'here' ORDER BY wait_id, blocker_pid, blocker_xact_start, no;
SELECT no, first_seen, last_seen, samples, state, wait_event_type, wait_event, query_start, query_id, wait_start, object, blocker_backend_start
FROM lock_history.blocker_statements WHERE node = 'here' AND wait_id % 100 = 1 ORDER BY no;
-- each transaction once, with the first wait for it
SELECT node, wait_id % 100 AS wait, blocker_pid, blocker_gid AS gid, kind, no, query, left_out, wait_start
FROM lock_history.blocker_statements(pg_temp.t(0), node => 'here');
SELECT wait_id % 100 AS wait, blocker_pid, kind, no, query FROM lock_history.blocker_statements(pg_temp.t(30), pg_temp.t(50), 'here');
SELECT wait_id % 100 AS wait, blocker_pid, kind, no, query FROM lock_history.blocker_statements(pg_temp.t(21), pg_temp.t(39));
SELECT count(*) FROM lock_history.blocker_statements('-infinity', node => 'elsewhere');
SELECT count(*) FROM lock_history.blocker_statements(pg_temp.t(9), pg_temp.t(8));
-- a root with what it did before its query, by its latest description; a prepared one has no query
SELECT pid, gid, query, statements_before FROM lock_history.root_blockers(pg_temp.t(0), pg_temp.t(25)) ORDER BY pid;
SELECT pid, gid, query, statements_before FROM lock_history.root_blockers(pg_temp.t(30), pg_temp.t(70)) ORDER BY pid;
-- the one with most time first; and whether something came before what was seen, first at -10
SELECT pid, blocked_time, unseen_before FROM lock_history.root_blockers(pg_temp.t(0), pg_temp.t(70));
SELECT DISTINCT blocker_pid, blocker_xact_start, unseen_before, left_out FROM lock_history.blocker_statements WHERE node = 'here' ORDER BY 1, 2;
UPDATE lock_history.actor SET xact_start = pg_temp.t(-10.02), stmt_left_out = 0 WHERE actor_id IN (101, 105);
UPDATE lock_history.actor SET xact_start = pg_temp.t(-10.005) WHERE actor_id = 102;
SELECT DISTINCT blocker_pid, blocker_xact_start, unseen_before FROM lock_history.blocker_statements WHERE node = 'here' ORDER BY 1, 2;
SELECT DISTINCT blocker_pid, blocker_xact_start, unseen_before FROM lock_history.blocker_statements(NULL, node => 'here') ORDER BY 1, 2;
SELECT pid, xact_start, unseen_before FROM lock_history.root_blockers(pg_temp.t(0), pg_temp.t(25));
-- the text ran again: what counts is when it was seen first
UPDATE lock_history.actor SET stmt_query_start = pg_temp.t(9) || stmt_query_start[2:3], stmt_first_seen = pg_temp.t(-10.015) || stmt_first_seen[2:3] WHERE actor_id = 101;
SELECT pid, unseen_before FROM lock_history.root_blockers(pg_temp.t(0), pg_temp.t(25));
-- a kept incident has it
CREATE TEMP TABLE ring AS SELECT wait_id, blocker_pid, kind, no, first_seen, last_seen, samples, state, wait_event, query_start, query_id, query, left_out
FROM lock_history.blocker_statements WHERE node = 'here' AND wait_start BETWEEN pg_temp.t(0) AND pg_temp.t(30);
SELECT count(*) FROM ring;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(30), 'kept');
SELECT lock_history.reset();
SELECT count(*) FROM lock_history.blocker_statements;
SET pg_lock_history.incident = 'kept';
SELECT count(*) AS differ FROM (TABLE ring EXCEPT ALL
    SELECT wait_id, blocker_pid, kind, no, first_seen, last_seen, samples, state, wait_event, query_start, query_id, query, left_out FROM lock_history.blocker_statements) AS d;
SELECT count(*) FROM lock_history.blocker_statements;
SELECT wait_id % 100 AS wait, blocker_pid, no, query FROM lock_history.blocker_statements(NULL);
SELECT pid, query, statements_before FROM lock_history.root_blockers;
-- masked as what the sessions ran
SET ROLE regress_plh_reader;
SELECT wait_id % 100 AS wait, blocker_pid, no, state, query_id, query FROM lock_history.blocker_statements ORDER BY wait_id, blocker_pid, no;
SELECT pid, query, statements_before FROM lock_history.root_blockers;
SELECT blocker_pid, no, query_id, query FROM lock_history.blocker_statements(NULL);
-- a filter of the reader's own sees the mask
CREATE FUNCTION pg_temp.leak(text) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS $$
BEGIN
    IF $1 <> '<insufficient privilege>' THEN RAISE WARNING 'saw %', $1; END IF;
    RETURN true;
END
$$;
SELECT no FROM lock_history.blocker_statements WHERE pg_temp.leak(query) AND wait_id % 100 = 1 ORDER BY no;
RESET ROLE;
SET ROLE regress_plh_own;
SELECT query FROM lock_history.blocker_statements;
RESET ROLE;
DROP OWNED BY regress_plh_reader;
DROP ROLE regress_plh_own, regress_plh_reader;
