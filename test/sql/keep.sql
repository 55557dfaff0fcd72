-- An incident outlives the ring, and reads as it did.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
SELECT pg_temp.add_node('here', true) AS n, pg_temp.add_node('other') AS o \gset
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period) VALUES
    (:n, 1, pg_temp.t(-100), now(), 1, '1 h'), (:o, 1, pg_temp.t(-100), now(), 1, '1 h');
-- 101, with a worker beside it, blocks 102, 103 stands behind; 104 comes later and still waits; 105 waited long before
SELECT pg_temp.add_actor(:n, 101, 'idle in transaction', 'SELECT count(*) FROM t'), pg_temp.add_actor(:n, k),
       pg_temp.add_actor(:n, k, seg => 1::smallint), pg_temp.add_actor(:o, k)
FROM generate_series(102, 105) AS k \g /dev/null
UPDATE lock_history.actor SET members = '{106}' WHERE pid = 101;
SELECT pg_temp.add_wait('episode', :n, 2, 102, 8, 10, 20, ARRAY[(1,101,2,10,NULL), (3,101,0,10,NULL)]::pg_temp.edge[], 1),
       pg_temp.add_wait('episode', :n, 3, 103, 1, 12, 21, ARRAY[(2,102,256,12,NULL), (3,101,0,12,NULL)]::pg_temp.edge[], 2, soft => '{102}'),
       pg_temp.add_wait('episode', :n, 5, 105, 8, -300, -290, ARRAY[(1,101,2,-300,NULL), (3,101,0,-300,NULL)]::pg_temp.edge[], 1),
       pg_temp.add_wait('open', :n, 4, 104, 8, 25, NULL, ARRAY[(1,102,2,25,NULL), (3,102,0,25,NULL)]::pg_temp.edge[], 3, seg => 1),
       pg_temp.add_wait('episode', :o, 2, 102, 8, 10, 20, ARRAY[(1,103,2,10,NULL), (3,103,0,10,NULL)]::pg_temp.edge[], 1) \g /dev/null
INSERT INTO lock_history.short_wait_0 (seg, node_id, at, locktype, waits, total_ms, max_ms, failed) VALUES
    (0, :n, pg_temp.t(11), 'tuple', 7, 70, 12, 3), (0, :n, pg_temp.t(-200), 'tuple', 1, 5, 5, 0), (0, :o, pg_temp.t(11), 'tuple', 2, 9, 5, 0);
-- 102 and 107 in a deadlock, and another long before; 107 is known by its deadlock alone
SELECT pg_temp.add_actor(:n, 107) \g /dev/null
INSERT INTO lock_history.deadlock_0 (seg, node_id, run, at, deadlock_id, member, pid, is_victim, waits_for, wait_id, actor_id, locktype, object, mode, held_mode, held_object, database, relation, transactionid) VALUES
    (0, :n, 1, pg_temp.t(20), 77, 1, 102, true, 107, 2, 102, 'relation', 'public.t', 'AccessExclusiveLock', 'ShareLock', 'public.u', 5, 16384, NULL),
    (0, :n, 1, pg_temp.t(20), 77, 2, 107, false, 102, NULL, 107, 'transactionid', 'transaction 740', 'ShareLock', NULL, NULL, NULL, NULL, '740'),
    (0, :n, 1, pg_temp.t(-290), 76, 1, 105, true, NULL, 5, 105, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (0, :o, 1, pg_temp.t(20), 78, 1, 102, true, NULL, 2, 102, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO lock_history.gap_0 (seg, node_id, run, began, ended, reason, lost, detail) VALUES
    (0, :n, 1, pg_temp.t(22), pg_temp.t(23), 'late', 0, NULL), (0, :n, 1, pg_temp.t(-250), pg_temp.t(-240), 'late', 0, NULL);
INSERT INTO lock_history.health_minute_0 (seg, node_id, run, minute, ticks_due, ticks_done, ticks_late, ticks_missed, period_ms, partitions_taken, partitions_busy, cpu_ms, rows_written, rows_merged, rows_dropped, errors)
VALUES (0, :n, 1, pg_temp.t(0), 6000, 6000, 0, 0, 10, 0, 0, 60, 0, 0, 0, 0), (0, :n, 1, pg_temp.t(-600), 6000, 6000, 0, 0, 10, 0, 0, 60, 0, 0, 0, 0);
-- what can be read of the range, without what is told by the ring alone: when it is read
CREATE FUNCTION pg_temp.reading() RETURNS TABLE (what text, said text) LANGUAGE sql AS $$
    SELECT 'waits', w::text FROM (SELECT node, wait_id, pid, query, mode, object, wait_start, wait_end, granted, outcome, hard_blockers, soft_blockers, root_blockers
                                  FROM lock_history.waits WHERE node = 'here' AND wait_start BETWEEN pg_temp.t(0) AND pg_temp.t(24)) AS w
    UNION ALL SELECT 'blocking', b::text FROM lock_history.blocking AS b WHERE b.node = 'here' AND b.wait_start BETWEEN pg_temp.t(0) AND pg_temp.t(24)
    UNION ALL SELECT 'blocking_all', b::text FROM lock_history.blocking_all(3) AS b
    UNION ALL SELECT 'tree', t::text FROM lock_history.blocking_tree_at(pg_temp.t(15)) AS t
    UNION ALL SELECT 'worst_moments', m::text FROM lock_history.worst_moments(pg_temp.t(0), pg_temp.t(24)) AS m
    UNION ALL SELECT 'root_blockers', r::text FROM lock_history.root_blockers(pg_temp.t(0), pg_temp.t(24)) AS r
    UNION ALL SELECT 'short_waits', s::text FROM lock_history.short_waits AS s WHERE s.node = 'here' AND s.at BETWEEN pg_temp.t(0) AND pg_temp.t(24)
    UNION ALL SELECT 'deadlocks', d::text FROM lock_history.deadlocks AS d WHERE d.node = 'here' AND d.at BETWEEN pg_temp.t(0) AND pg_temp.t(24)
    UNION ALL SELECT 'gaps', g::text FROM lock_history.gaps AS g WHERE g.node = 'here' AND g.began BETWEEN pg_temp.t(0) AND pg_temp.t(24)
    UNION ALL SELECT 'health', h::text FROM lock_history.health AS h WHERE h.node = 'here' AND h.minute BETWEEN pg_temp.t(0) AND pg_temp.t(24)
$$;
CREATE TEMP TABLE before AS SELECT r.what, r.said FROM pg_temp.reading() AS r;
SELECT what, count(*) FROM before GROUP BY what ORDER BY what;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), 'friday');
SELECT name, node, since, until, kept_by = session_user AS by_me, waits, short_waits, size_bytes > 500 AS has_size FROM lock_history.kept;
-- the ring is read as before
SELECT count(*) AS differ FROM (TABLE before EXCEPT ALL SELECT r.what, r.said FROM pg_temp.reading() AS r) AS d;
SELECT count(*) AS waits_in_ring FROM lock_history.waits;
-- and the incident reads the same, also when the ring is empty; nothing else is in it
SET pg_lock_history.incident = 'friday';
SELECT count(*) AS differ FROM (TABLE before EXCEPT ALL SELECT r.what, r.said FROM pg_temp.reading() AS r) AS d;
SELECT count(*) AS waits_in_incident FROM lock_history.waits;
SELECT lock_history.reset();
SELECT what, said FROM (TABLE before EXCEPT ALL SELECT r.what, r.said FROM pg_temp.reading() AS r) AS d;
SELECT what, said FROM (SELECT r.what, r.said FROM pg_temp.reading() AS r EXCEPT ALL TABLE before) AS d;
-- what went on when it was kept ends there, unknown
SELECT w.wait_id, w.node, w.outcome, w.wait_end = k.kept_at AS ends_when_kept FROM lock_history.waits AS w, lock_history.kept AS k ORDER BY w.wait_id;
SELECT count(*) AS short_waits, sum(waits), sum(failed) AS failed FROM lock_history.short_waits;
SELECT deadlock_id, pid, is_victim, query FROM lock_history.deadlocks ORDER BY member;
SELECT began, ended, reason FROM lock_history.gaps;
SELECT minute, ticks_due FROM lock_history.health;
-- a time of day is one of the incident; another moment it does not tell about
SELECT level, pid, members FROM lock_history.blocking_tree_at('14:30:15');
SELECT level, pid FROM lock_history.blocking_tree_at('14:30:15', 'here');
SELECT level, pid FROM lock_history.blocking_tree_at('14:30:15', 'other');
SELECT level, pid FROM lock_history.blocking_tree_at('14:31');
SELECT level, pid FROM lock_history.blocking_tree_at(pg_temp.t(-295));
SELECT at, waiting FROM lock_history.worst_moments(pg_temp.t(-1000));
SELECT key, value FROM lock_history.status() WHERE key = 'reading_incident';
SELECT key, value ~ '^1, \d+ kB$' AS fits FROM lock_history.status() WHERE key = 'kept_incidents';
-- the ring knows nothing any more
RESET pg_lock_history.incident;
SELECT count(*) FROM lock_history.waits;
SELECT key, value FROM lock_history.status() WHERE key = 'reading_incident';
-- a second incident, of another server; each is read alone
SELECT pg_temp.add_actor(:o, 102), pg_temp.add_actor(:o, 103), pg_temp.add_wait('episode', :o, 2, 102, 8, 10, 20, ARRAY[(1,103,2,10,NULL), (3,103,0,10,NULL)]::pg_temp.edge[], 1) \g /dev/null
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), 'of the other', node => 'other');
SET pg_lock_history.incident = 'of the other';
SELECT node, wait_id, hard_blockers FROM lock_history.waits ORDER BY wait_id;
SELECT node, pid, level FROM lock_history.blocking_tree_at('14:30:15');
SET pg_lock_history.incident = 'friday';
SELECT count(*) FROM lock_history.waits;
-- refused
SET pg_lock_history.incident = 'no such';
SELECT * FROM lock_history.waits;
SELECT * FROM lock_history.health;
SELECT * FROM lock_history.blocking_tree_at('14:30');
SELECT value FROM lock_history.status() WHERE key = 'reading_incident';
RESET pg_lock_history.incident;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), 'friday', 'other');
SELECT lock_history.keep(pg_temp.t(1000), pg_temp.t(2000), 'quiet', 'other');
SELECT lock_history.keep(pg_temp.t(-900), pg_temp.t(-800), 'before all', 'other');
INSERT INTO lock_history.gap_0 (seg, node_id, run, began, ended, reason, lost, detail) VALUES (0, :o, 1, pg_temp.t(1000), pg_temp.t(1600), 'stopped', 0, NULL), (0, :o, 1, pg_temp.t(1500), pg_temp.t(2000), 'disabled', 0, NULL);
SELECT lock_history.keep(pg_temp.t(1100), pg_temp.t(2000), 'unseen', 'other');
SELECT lock_history.keep(pg_temp.t(1100), pg_temp.t(2001), 'quiet', 'other');
DELETE FROM lock_history.gap WHERE node_id = :o;
SELECT lock_history.keep(pg_temp.t(26), pg_temp.t(0), 'backwards', 'other');
SELECT lock_history.keep(pg_temp.t(0), '2999-01-01', 'tomorrow', 'other');
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), ' ', 'other');
SELECT lock_history.keep(NULL, pg_temp.t(26), 'half', 'other');
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), 'friday', 'nowhere');
SELECT lock_history.forget('no such');
-- a failed keep leaves nothing behind
SELECT count(*) FROM lock_history.episode WHERE seg = 8 AND node_id NOT IN (SELECT -k.kept_id FROM lock_history.kept_incident AS k);
-- forget
SELECT lock_history.forget('friday');
SELECT name FROM lock_history.kept;
SELECT k.name, count(*) FROM lock_history.kept_episode AS e LEFT JOIN lock_history.kept_incident AS k ON k.kept_id = -e.node_id GROUP BY k.name;
SELECT count(*) FROM lock_history.kept_deadlock AS d WHERE d.node_id NOT IN (SELECT -k.kept_id FROM lock_history.kept_incident AS k);
SELECT lock_history.forget('of the other');
SELECT count(*) FROM lock_history.kept_actor;
SET pg_lock_history.incident = 'friday';
SELECT * FROM lock_history.waits;
RESET pg_lock_history.incident;
-- up to now, of a server that is not watched any more: the silence is kept too
SELECT lock_history.keep(pg_temp.t(0), now(), 'until now', 'other');
UPDATE lock_history.run SET heartbeat = pg_temp.t(30), flush_period = '1 s' WHERE node_id = :o;
SELECT lock_history.keep(pg_temp.t(0), now(), 'and silence', 'other');
SET pg_lock_history.incident = 'and silence';
SELECT began, ended >= (SELECT until FROM lock_history.kept WHERE name = 'and silence') AS lasts, reason FROM lock_history.gaps;
RESET pg_lock_history.incident;
-- by EXECUTE on purpose, not otherwise
CREATE ROLE regress_plh_keeper IN ROLE pg_monitor;
GRANT EXECUTE ON FUNCTION pg_temp.t(numeric) TO PUBLIC;
SET ROLE regress_plh_keeper;
\set VERBOSITY terse
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), 'mine', 'other');
SELECT lock_history.forget('until now');
SELECT lock_history.reset();
SELECT lock_history.grant_reader('regress_plh_keeper');
SELECT lock_history.revoke_reader('regress_plh_keeper');
RESET ROLE;
GRANT EXECUTE ON FUNCTION lock_history.keep(timestamptz, timestamptz, text, text), lock_history.forget(text), lock_history.reset() TO regress_plh_keeper;
SET ROLE regress_plh_keeper;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(26), 'mine', 'other');
SELECT lock_history.forget('until now');
SELECT lock_history.reset();
SELECT name FROM lock_history.kept ORDER BY name;
SELECT waits_in_ring FROM (SELECT count(*) AS waits_in_ring FROM lock_history.waits) AS w;
RESET ROLE;
DROP OWNED BY regress_plh_keeper;
DROP ROLE regress_plh_keeper;
-- with an old snapshot it would not see what is written for it, nor which numbers are given out
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(60), 'old snapshot');
ROLLBACK;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(60), repeat('x', 201));
-- numbers do not run into those of another server's incidents, should they come together
SELECT count(DISTINCT kept_id) = count(*) AND max(kept_id) > 100 AS at_random FROM lock_history.kept_incident;
-- what a publication would send is not changed
SET client_min_messages = error; -- wal_level
CREATE PUBLICATION regress_plh FOR ALL TABLES;
SELECT lock_history.keep(pg_temp.t(0), pg_temp.t(60), 'more');
SELECT lock_history.forget('published');
SELECT lock_history.reset();
DROP PUBLICATION regress_plh;
CREATE PUBLICATION regress_plh FOR TABLE lock_history.run;
SELECT lock_history.forget('published');
DROP PUBLICATION regress_plh;
