-- A full ring: :episodes waits spread over the last 7 days, those of the last
-- 8th of that in the segment that is open, each with an actor of its own and a
-- row of when it was open; and on top a storm, five minutes ago: 1 000
-- sessions behind one ALTER TABLE.  Seeded: the same at each run.
--
-- Psql variable: episodes.
SELECT setseed(0.42) \g /dev/null
INSERT INTO lock_history.node (node, system_identifier, server_version_num, first_seen)
SELECT 'bench', s.system_identifier, 150000, now() - interval '7 days' FROM pg_control_system() AS s;
INSERT INTO lock_history.run (node_id, run, started_at, heartbeat, batch, flush_period, oldest_open)
SELECT n.node_id, 1, now() - interval '7 days', now(), 1, '1 day', now() FROM lock_history.node AS n WHERE n.node = 'bench';
UPDATE lock_history.ring SET round = 1, is_empty = false,
    opened_at = now() - (8 - seg) * interval '21 h', closed_at = CASE WHEN seg < 7 THEN now() - (7 - seg) * interval '21 h' END;

CREATE TEMP TABLE wait AS
SELECT w.no, (8 * (w.no - 1) / :episodes)::smallint AS seg,
       now() - interval '168 h' + w.no * (interval '168 h' / (:episodes + 1)) AS began,
       interval '200 ms' + random() * random() * interval '20 s' AS took,
       w.no / 20 AS incident, w.no % 20 AS place
FROM generate_series(1, :episodes) AS w(no)
UNION ALL
SELECT 100000000 + s.no, 7, now() - interval '5 min' + s.no * interval '5 ms', interval '90 s', 100000000, s.no
FROM generate_series(0, 1000) AS s(no);

INSERT INTO lock_history.actor (seg, node_id, actor_id, proc_key, seen_at, pid, backend_start, backend_type, datid, datname,
    usesysid, usename, application_name, client_addr, state, state_change, xact_start, query_start, query_id, query)
SELECT w.seg, n.node_id, hashint8extended(w.no, 1), hashint8extended(w.no, 2), w.began, 1000 + (w.no % 30000)::integer,
       w.began - interval '1 h', 'client backend', 5, 'app', 10, 'postgres', 'bench', inet '192.0.2.7', 'active', w.began, w.began, w.began,
       w.no % 500, 'UPDATE orders SET state = $1 /* ' || repeat(md5((w.no % 500)::text), 6) || ' */ WHERE id = ' || w.no
FROM wait AS w, lock_history.node AS n WHERE n.node = 'bench'
UNION ALL
-- the root of each incident waits for nobody
SELECT DISTINCT ON (w.incident, w.seg) w.seg, n.node_id, hashint8extended(w.incident, 3), hashint8extended(w.incident, 4), w.began,
       50000 + (w.incident % 10000)::integer, w.began - interval '2 h', 'client backend', 5, 'app', 10, 'postgres', 'batch', inet '192.0.2.8',
       'idle in transaction', w.began, w.began, w.began, 7, 'UPDATE stock SET reserved = reserved + 1'
FROM wait AS w, lock_history.node AS n WHERE n.node = 'bench';

-- which did something before
UPDATE lock_history.actor AS a
   SET stmt_first_seen = s.at, stmt_last_seen = s.at, stmt_samples = s.n, stmt_state = s.text, stmt_wait_event_type = s.text, stmt_wait_event = s.text,
       stmt_query_start = s.at, stmt_query_id = s.n, stmt_query = s.text, stmt_left_out = 0
FROM (SELECT array_agg(now()) AS at, array_agg(g.n) AS n, array_agg('SELECT ' || repeat(md5(g.n::text), 6)) AS text
      FROM generate_series(1::bigint, 8) AS g(n)) AS s
WHERE a.state = 'idle in transaction';
-- the first of an incident behind the root, the others behind the first
CREATE TEMP TABLE episode AS
SELECT w.seg, n.node_id, 1::bigint AS run, w.no AS wait_id, hashint8extended(w.no, 2) AS proc_key, hashint8extended(w.no, 1) AS actor_id,
       w.began + w.took AS written_at, w.began AS wait_start, w.began + w.took AS wait_end, true AS granted, 'granted' AS outcome,
       100::bigint AS samples, 'relation' AS locktype, CASE w.place WHEN 0 THEN 'AccessExclusiveLock' ELSE 'AccessShareLock' END AS mode,
       CASE w.place WHEN 0 THEN 8 ELSE 1 END::smallint AS mode_number, 'public.orders' AS object, 5::oid AS database, 'app' AS datname,
       16385::oid AS relation, w.incident AS lock_key, w.no AS queue_key, false AS in_cycle,
       (w.place = 0)::integer AS hard_count, (w.place > 0)::integer AS soft_count,
       CASE WHEN w.place > 0 THEN ARRAY[1000 + ((w.no - w.place) % 30000)::integer] ELSE '{}' END AS soft_pids,
       CASE WHEN w.place > 0 THEN '{2,3}'::smallint[] ELSE '{1,3}'::smallint[] END AS edge_kind,
       CASE WHEN w.place > 0 THEN ARRAY[hashint8extended(w.no - w.place, 2), r.proc] ELSE ARRAY[r.proc, r.proc] END AS edge_proc,
       CASE WHEN w.place > 0 THEN ARRAY[1000 + ((w.no - w.place) % 30000)::integer, r.pid] ELSE ARRAY[r.pid, r.pid] END AS edge_pid,
       CASE WHEN w.place > 0 THEN ARRAY[hashint8extended(w.no - w.place, 1), r.actor] ELSE ARRAY[r.actor, r.actor] END AS edge_actor,
       CASE WHEN w.place > 0 THEN '{256,0}'::integer[] ELSE '{8,0}'::integer[] END AS edge_modes,
       ARRAY[w.began, w.began] AS edge_from, '{NULL,NULL}'::timestamptz[] AS edge_to
FROM wait AS w
CROSS JOIN LATERAL (SELECT hashint8extended(w.incident, 3) AS actor, hashint8extended(w.incident, 4) AS proc,
                           50000 + (w.incident % 10000)::integer AS pid) AS r
CROSS JOIN lock_history.node AS n WHERE n.node = 'bench';

INSERT INTO lock_history.episode (seg, node_id, run, wait_id, proc_key, actor_id, written_at, wait_start, wait_end, granted, outcome,
    samples, locktype, mode, mode_number, object, database, datname, relation, lock_key, queue_key, in_cycle, hard_count, soft_count,
    soft_pids, edge_kind, edge_proc, edge_pid, edge_actor, edge_modes, edge_from, edge_to)
SELECT * FROM episode ORDER BY wait_end;
-- a third of them was seen open by a flush
INSERT INTO lock_history.open (seg, node_id, run, wait_id, proc_key, actor_id, written_at, wait_start, wait_end, granted, outcome,
    samples, locktype, mode, mode_number, object, database, datname, relation, lock_key, queue_key, in_cycle, hard_count, soft_count,
    soft_pids, edge_kind, edge_proc, edge_pid, edge_actor, edge_modes, edge_from, edge_to)
SELECT e.seg, e.node_id, e.run, e.wait_id, e.proc_key, e.actor_id, e.wait_start, e.wait_start, NULL, NULL, NULL,
    e.samples, e.locktype, e.mode, e.mode_number, e.object, e.database, e.datname, e.relation, e.lock_key, e.queue_key, e.in_cycle,
    e.hard_count, e.soft_count, e.soft_pids, e.edge_kind, e.edge_proc, e.edge_pid, e.edge_actor, e.edge_modes, e.edge_from, e.edge_to
FROM episode AS e WHERE e.wait_id % 3 = 0 OR e.wait_id >= 100000000 ORDER BY e.wait_start;
INSERT INTO lock_history.short_wait (seg, node_id, at, datname, locktype, database, relation, object, mode, query_id, root_pid, root_backend_start,
    waits, total_ms, max_ms)
SELECT w.seg, n.node_id, date_trunc('second', w.began), 'app', 'tuple', 5, 16385, 'public.orders', 'ExclusiveLock', w.no % 500, 1000, w.began, 7, 90, 30
FROM wait AS w, lock_history.node AS n WHERE n.node = 'bench' AND w.no < 100000000;
INSERT INTO lock_history.health_minute (seg, node_id, run, minute, ticks_due, ticks_done, ticks_late, ticks_missed, period_ms, probe_us_p50,
    probe_us_p99, probe_us_max, hold_us_p99, hold_us_max, partitions_taken, partitions_busy, cpu_ms, rows_written, rows_merged, rows_dropped, errors)
SELECT (m.no / 1260)::smallint, n.node_id, 1, now() - (10080 - m.no) * interval '1 min', 6000, 6000, 0, 0, 10, 12, 150, 400, 20, 90, 40, 0, 600, 50, 0, 0, 0
FROM generate_series(0, 10079) AS m(no), lock_history.node AS n WHERE n.node = 'bench';
-- A day of load: twelve sessions, of which a third waits for LWLocks and pages.
INSERT INTO lock_history.dim (seg, node_id, dim_id, kind, wait_event_type, wait_event, lwlock_mode, backend_type, datname, usesysid, usename, query_id, instance, object, fork, object_kind)
SELECT s.seg, n.node_id, 100 * d.kind + d.no, d.kind, CASE WHEN d.no % 3 = 0 THEN 'LWLock' ELSE 'CPU' END, CASE WHEN d.no % 3 = 0 THEN (ARRAY['LockManager', 'BufferContent', 'WALInsert'])[1 + d.no / 3 % 3] ELSE 'CPU' END,
       'exclusive', 'client backend', 'app', 10, 'postgres', d.no, 'partition ' || d.no, 'public.orders_' || d.no, 'main', 'table'
FROM (VALUES (6), (7)) AS s(seg), (SELECT k AS kind, no FROM generate_series(1, 3) AS k, generate_series(1, 60) AS no) AS d, lock_history.node AS n WHERE n.node = 'bench';
INSERT INTO lock_history.second (seg, node_id, run, at, sampled_ms, clients, active, idle_in_transaction, waiting, dims, load_ms)
SELECT CASE WHEN t.no < 3 * 3600 THEN 6 ELSE 7 END, n.node_id, 1, date_trunc('second', now()) - interval '24 h' + t.no * interval '1 s', 1000, 40, 12, 2, 1,
       ARRAY(SELECT 101 + (t.no + 3 * g.i) % 60 FROM generate_series(0, 11) AS g(i)), ARRAY(SELECT 1000 FROM generate_series(0, 11))
FROM generate_series(0, 86399) AS t(no), lock_history.node AS n WHERE n.node = 'bench';
INSERT INTO lock_history.lwlock (seg, node_id, run, at, sampled_ms, dims, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
SELECT s.seg, s.node_id, 1, s.at, 1000, ARRAY[203, 206, 209, 212], '{900,800,700,600}', '{9,8,7,6}', '{5,5,5,5}', '{0.9,0.1,0.5,NULL}', '{0,0,1,NULL}' FROM lock_history.second AS s;
INSERT INTO lock_history.page (seg, node_id, run, at, sampled_ms, dims, blocks, wait_ms, waits, waiters_max, held_exclusive, shared_holders)
SELECT s.seg, s.node_id, 1, s.at, 1000, ARRAY[303, 306], ARRAY[(extract(epoch FROM s.at))::bigint % 1000, 7], '{500,300}', '{5,3}', '{5,5}', '{0.9,0.1}', '{0,0}' FROM lock_history.second AS s;
INSERT INTO lock_history.fastpath (seg, node_id, run, at, server_version_num, max_locks, slots, dims, sessions, slots_max, sessions_full, spilled_max)
SELECT s.seg, s.node_id, 1, s.at, 150000, 64, 16, ARRAY[101], '{12}', '{16}', '{2}', '{9}' FROM lock_history.second AS s;
ANALYZE;
SELECT pg_size_pretty(sum(pg_total_relation_size(c.oid))) AS ring, (SELECT count(*) FROM lock_history.episode) AS episodes,
       (SELECT count(*) FROM lock_history.actor) AS actors, (SELECT count(*) FROM lock_history.open) AS open_rows
FROM pg_class AS c WHERE c.relnamespace = 'lock_history'::regnamespace AND c.relkind = 'r';
