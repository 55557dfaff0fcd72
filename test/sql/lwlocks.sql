-- LWLocks by second and as totals, from rows of several segments whose
-- dictionaries use the same numbers; and kept.
\getenv srcdir PG_ABS_SRCDIR
\set fixture :srcdir '/sql/fixture.psql'
\i :fixture
\set SHOW_CONTEXT never
SELECT pg_temp.add_node('n1', true) AS n, pg_temp.add_node('n2') AS m \gset
INSERT INTO lock_history.dim_0 (seg, node_id, dim_id, kind, wait_event, lwlock_mode, instance) VALUES
    (0, :n, 1, 2, 'LockManager', 'exclusive', 'partition 3'), (0, :n, 2, 2, 'WALInsert', 'exclusive', NULL),
    (0, :m, 1, 2, 'ProcArray', 'shared', 'only one');
INSERT INTO lock_history.dim_1 (seg, node_id, dim_id, kind, wait_event, lwlock_mode, instance) VALUES
    (1, :n, 1, 2, 'WALInsert', 'exclusive', NULL), (1, :n, 2, 2, 'LockManager', 'shared', 'partition 3');
INSERT INTO lock_history.lwlock_0 (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders) VALUES
    (0, :n, 1, pg_temp.t(0), 1000, '{1,2}', '{3000,1000}', '{30,5}', '{7,2}', '{1,NULL}', '{0,NULL}'),
    (0, :m, 1, pg_temp.t(0), 1000, '{1}', '{500}', '{1}', '{1}', '{0}', '{4}'),
    (0, :n, 1, pg_temp.t(1), 1000, '{1}', '{1000}', '{10}', '{9}', '{0}', '{2}');
INSERT INTO lock_history.lwlock_1 (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders) VALUES
    (1, :n, 1, pg_temp.t(2), 500, '{1,2}', '{250,250}', '{1,1}', '{1,1}', '{NULL,1}', '{NULL,0}');
SELECT node, extract(second FROM at)::int AS second, tranche, instance, mode, waiters_avg, waiters_max, wait_ms, held_exclusive, shared_holders_avg, waits
FROM lock_history.lwlocks ORDER BY at, wait_ms DESC, tranche;
-- by time: held exclusively 3 of 4 s, 2 holders in the other one
SELECT * FROM lock_history.lwlock_profile(node => 'n1');
SELECT tranche, mode, wait_ms, share FROM lock_history.lwlock_profile(pg_temp.t(1), pg_temp.t(1.5), 'n1');
-- without the second that begins at its end
SELECT tranche, wait_ms FROM lock_history.lwlock_profile(pg_temp.t(0), pg_temp.t(0.5), 'n2');
SELECT count(*) FROM lock_history.lwlock_profile(until => pg_temp.t(0), node => 'n2');
SELECT sum(wait_ms) FROM lock_history.lwlock_profile(pg_temp.t(0), pg_temp.t(2), 'n1');
-- the dearest tranche first, though another lock is dearer than each of its own
INSERT INTO lock_history.dim_5 (seg, node_id, dim_id, kind, wait_event, lwlock_mode, instance) VALUES
    (5, :m, 1, 2, 'LockManager', 'exclusive', 'partition 1'), (5, :m, 2, 2, 'LockManager', 'exclusive', 'partition 2'), (5, :m, 3, 2, 'WALWrite', 'exclusive', 'only one');
INSERT INTO lock_history.lwlock_5 (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders) VALUES
    (5, :m, 1, pg_temp.t(20), 1000, '{1,2,3}', '{30,40,50}', '{1,1,1}', '{1,1,1}', '{0,0,0}', '{0,0,0}');
SELECT tranche, instance, wait_ms, round(share::numeric, 3) AS share, round(tranche_share::numeric, 3) AS tranche_share
FROM lock_history.lwlock_profile(pg_temp.t(20), node => 'n2');
SELECT count(*) FROM lock_history.lwlock_profile(pg_temp.t(5), pg_temp.t(9), 'n1');
SELECT lock_history.lwlock_profile(pg_temp.t(5), pg_temp.t(4), 'n1');
-- a time without heavyweight waits can be kept, too
SELECT lock_history.keep(pg_temp.t(1), pg_temp.t(3), 'lw', 'n1');
SELECT lock_history.keep(pg_temp.t(5), pg_temp.t(6), 'none', 'n1');
SET pg_lock_history.incident = 'lw';
SELECT extract(second FROM at)::int AS second, tranche, instance, mode, wait_ms FROM lock_history.lwlocks ORDER BY at, wait_ms DESC, tranche;
SELECT tranche, mode, wait_ms, waiters_max FROM lock_history.lwlock_profile(node => 'n1');
RESET pg_lock_history.incident;
SELECT lock_history.forget('lw');
SELECT (SELECT count(*) FROM lock_history.kept_lwlock) AS lwlocks, (SELECT count(*) FROM lock_history.kept_dim) AS dims;
