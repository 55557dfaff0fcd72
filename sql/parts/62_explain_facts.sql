-- What explain() knows: the facts of a range of time, as numbers.
--
-- Each function reads one layer of views and takes at most 64 relation locks;
-- explain_part() gives them back before the next one is asked.  All run with the
-- caller's rights, so that what is masked in the views is masked here.  The few
-- that matter are told, with the number of the others: no answer is longer
-- because the range is.

-- Waits for heavyweight locks: how many, who was at their roots, who stood in the
-- queue, what it was about, and how they ended.  In one statement: the waits of a
-- day are read once.
CREATE FUNCTION lock_history.explain_waits(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
-- The planner takes the waits of a day for a few, and would look each up in all.
SET enable_nestloop = off
-- the waits of a busy day with their blockers, without a file
SET work_mem = '64MB'
AS $$
#variable_conflict use_column
DECLARE
    most_roots  CONSTANT integer := 3;   -- that are told
    most_procs  CONSTANT integer := 8;   -- that are looked at: those with most time
    most_actors CONSTANT integer := 50;  -- descriptions of each, those with most time
    nodes       integer[] := ARRAY(SELECT r.node_id FROM lock_history.recorded AS r
                                   WHERE r.node = explain_waits.node AND r.incident IS NOT DISTINCT FROM lock_history.incident());
    segments    smallint[] := ARRAY(SELECT r.seg FROM lock_history.ring_segment AS r
                                    -- a minute for clocks that were set back
                                    WHERE r.closed_at IS NULL OR r.closed_at > explain_waits.since - interval '1 min');
    told        jsonb;
BEGIN
    WITH wait AS MATERIALIZED (
        SELECT w.seg, w.wait_id, w.proc_key, w.actor_id, w.locktype, w.mode, w.mode_number, w.datname, w.relation, w.object, w.page, w.tuple,
               w.hard_count, w.soft_count,
               greatest(w.wait_start, explain_waits.since) AS began,
               -- not before it began: the clock may have been set back
               greatest(least(coalesce(w.wait_end, 'infinity'), explain_waits.until), w.wait_start, explain_waits.since) AS ended,
               coalesce(w.wait_end, 'infinity') > explain_waits.until AS goes_on,
               CASE WHEN w.wait_end <= explain_waits.until THEN coalesce(w.outcome, 'unknown') END AS outcome,
               w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_modes, w.edge_from, w.edge_to
        FROM lock_history.wait_episode AS w
        WHERE w.wait_start < explain_waits.until
          AND (w.is_open OR w.wait_end > explain_waits.since) AND (w.is_open OR w.seg = ANY (segments))
          AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end > explain_waits.since)
          AND w.node_id = ANY (nodes)
    ), edge AS MATERIALIZED (
        SELECT w.wait_id, w.proc_key AS waiter, w.seg, e.kind, e.proc, e.pid, e.actor, e.modes,
               greatest(e.since, explain_waits.since) AS began, least(coalesce(e.until, w.ended), w.ended) AS ended
        FROM wait AS w
        CROSS JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_modes, w.edge_from, w.edge_to)
            AS e(kind, proc, pid, actor, modes, since, until)
        WHERE e.since < w.ended AND coalesce(e.until, 'infinity') > explain_waits.since
    ), moved AS (
        SELECT x.at, sum(sum(x.change)) OVER (ORDER BY x.at) AS waiting
        FROM (SELECT w.began AS at, 1 AS change FROM wait AS w
              UNION ALL
              SELECT w.ended, -1 FROM wait AS w) AS x
        GROUP BY x.at
    ), root AS (
        SELECT e.proc, min(e.pid) AS pid, sum(extract(epoch FROM e.ended - e.began)) AS blocked_s
        FROM edge AS e WHERE e.kind = 3
        GROUP BY e.proc
    ), top AS MATERIALIZED (
        SELECT r.proc, r.pid FROM root AS r ORDER BY r.blocked_s DESC, r.proc LIMIT most_procs
    ), pair AS (
        SELECT p.proc, p.pid, p.seg, p.actor, p.blocked_s
        FROM (SELECT e.proc, t.pid, e.seg, e.actor, sum(extract(epoch FROM e.ended - e.began)) AS blocked_s,
                     row_number() OVER (PARTITION BY e.proc ORDER BY sum(extract(epoch FROM e.ended - e.began)) DESC, e.actor) AS place
              FROM edge AS e JOIN top AS t ON t.proc = e.proc
              WHERE e.kind = 3
              GROUP BY e.proc, t.pid, e.seg, e.actor) AS p
        WHERE p.place <= most_actors
    ), described AS MATERIALIZED (
        SELECT p.proc, p.pid, p.seg, p.actor, p.blocked_s, d.seen_at, d.gid, d.backend_start, d.backend_type, d.datname, d.usename, d.application_name,
               d.client_addr, d.state, d.state_change, d.xact_start, d.query_start, d.query_id, d.query,
               d.stmt_query, d.stmt_query_start, d.stmt_first_seen, d.stmt_left_out
        FROM pair AS p
        LEFT JOIN LATERAL (SELECT a.seen_at, a.gid, a.backend_start, a.backend_type, a.datname, a.usename, a.application_name, a.client_addr,
                                  a.state, a.state_change, a.xact_start, a.query_start, a.query_id, a.query,
                                  a.stmt_query, a.stmt_query_start, a.stmt_first_seen, a.stmt_left_out
                           FROM lock_history.process AS a
                           WHERE a.seg = p.seg AND a.actor_id = p.actor AND a.node_id = ANY (nodes)
                           LIMIT 1) AS d ON true
    ), xact AS MATERIALIZED (
        -- A session may have been a root in several of its transactions.
        SELECT row_number() OVER (ORDER BY sum(d.blocked_s) DESC, min(d.seen_at), d.proc) AS no, d.proc, d.xact_start
        FROM described AS d
        GROUP BY d.proc, d.xact_start
        ORDER BY 1 LIMIT most_roots
    ), latest AS MATERIALIZED (
        SELECT DISTINCT ON (x.no) x.no, d.proc, d.pid, d.gid, d.backend_start, d.backend_type, d.datname, d.usename, d.application_name,
               d.client_addr, d.state, d.state_change, d.xact_start, d.query_start, d.query_id, d.query,
               d.stmt_query, d.stmt_query_start, d.stmt_first_seen, d.stmt_left_out
        FROM xact AS x
        JOIN described AS d ON d.proc = x.proc AND d.xact_start IS NOT DISTINCT FROM x.xact_start
        ORDER BY x.no, d.seen_at DESC
    ), under AS MATERIALIZED (
        SELECT x.no, e.wait_id, e.waiter, x.proc AS root, min(e.began) AS began, max(e.ended) AS ended,
               sum(extract(epoch FROM e.ended - e.began)) AS blocked_s
        FROM xact AS x
        JOIN described AS d ON d.proc = x.proc AND d.xact_start IS NOT DISTINCT FROM x.xact_start
        JOIN edge AS e ON e.kind = 3 AND e.proc = d.proc AND e.actor = d.actor AND e.seg = d.seg
        GROUP BY x.no, e.wait_id, e.waiter, x.proc
    ), blocked AS (
        SELECT u.no, count(*) AS waits, count(DISTINCT u.waiter) AS sessions, sum(u.blocked_s) AS blocked_s,
               min(u.began) AS began, max(u.ended) AS ended, bool_or(w.goes_on AND u.ended >= w.ended) AS goes_on,
               count(*) FILTER (WHERE w.goes_on) AS still
        FROM under AS u JOIN wait AS w ON w.wait_id = u.wait_id
        GROUP BY u.no
    ), crowd AS (
        SELECT x.no, max(x.waiting) AS most
        FROM (SELECT y.no, y.at, sum(sum(y.change)) OVER (PARTITION BY y.no ORDER BY y.at) AS waiting
              FROM (SELECT u.no, u.began AS at, 1 AS change FROM under AS u
                    UNION ALL
                    SELECT u.no, u.ended, -1 FROM under AS u) AS y
              GROUP BY y.no, y.at) AS x
        GROUP BY x.no
    ), outcome AS (
        SELECT o.no, jsonb_object_agg(o.outcome, o.n) AS outcomes
        FROM (SELECT u.no, w.outcome, count(*) AS n FROM under AS u JOIN wait AS w ON w.wait_id = u.wait_id
              WHERE w.outcome IS NOT NULL GROUP BY u.no, w.outcome) AS o
        GROUP BY o.no
    ), label AS (
        -- what a wait was about: rows by their table, transactions and the like by what they are
        SELECT w.wait_id, w.proc_key, w.locktype, w.mode, w.datname, w.began, w.ended, w.seg, w.actor_id,
               CASE WHEN w.locktype IN ('transactionid', 'tuple') AND w.relation IS NOT NULL
                    THEN 'rows of ' || regexp_replace(w.object, '^.*?tuple \(\d+,\d+\) of ', '')
                    WHEN w.locktype = 'transactionid' THEN 'the end of transactions'
                    WHEN w.locktype = 'tuple' THEN 'rows'
                    WHEN w.locktype = 'virtualxid' THEN 'the end of transactions'
                    ELSE coalesce(w.object, w.locktype) END AS label
        FROM wait AS w
    ), thing AS (
        SELECT u.no, array_agg(u.label ORDER BY u.blocked_s DESC, u.label) AS labels
        FROM (SELECT u.no, l.label, sum(u.blocked_s) AS blocked_s
              FROM under AS u JOIN label AS l ON l.wait_id = u.wait_id GROUP BY u.no, l.label) AS u
        GROUP BY u.no
    ), asked AS (
        SELECT m.no, array_agg(m.mode || ' (' || m.sessions || ')' ORDER BY m.sessions DESC, m.mode) AS modes
        FROM (SELECT u.no, w.mode, count(DISTINCT u.waiter) AS sessions
              FROM under AS u JOIN wait AS w ON w.wait_id = u.wait_id GROUP BY u.no, w.mode) AS m
        GROUP BY m.no
    ), held AS (
        SELECT h.no, bit_or(h.modes) AS modes, array_agg(DISTINCT h.label) AS labels
        FROM (SELECT u.no, e.modes, l.label
              FROM under AS u
              JOIN edge AS e ON e.wait_id = u.wait_id AND e.kind = 1 AND e.proc = u.root
              JOIN label AS l ON l.wait_id = u.wait_id) AS h
        GROUP BY h.no
    ), waiter AS (
        -- who they were, by application, of those that waited longest
        SELECT a.no, array_agg(a.application_name ORDER BY a.blocked_s DESC, a.application_name) AS applications
        FROM (SELECT l.no, p.application_name, sum(l.blocked_s) AS blocked_s
              FROM (SELECT u.no, u.wait_id, u.blocked_s, row_number() OVER (PARTITION BY u.no ORDER BY u.blocked_s DESC, u.wait_id) AS place FROM under AS u) AS l
              JOIN wait AS w ON w.wait_id = l.wait_id
              JOIN LATERAL (SELECT nullif(a.application_name, '') AS application_name FROM lock_history.process AS a
                            WHERE a.seg = w.seg AND a.actor_id = w.actor_id AND a.node_id = ANY (nodes) LIMIT 1) AS p ON p.application_name IS NOT NULL
              WHERE l.place <= 30
              GROUP BY l.no, p.application_name) AS a
        GROUP BY a.no
    ), ahead AS (
        -- who waited below the root and held up others
        SELECT q.no, q.proc, q.behind, q.behind_s, q.behind_queue_only, q.first_behind, q.held, q.asked,
               row_number() OVER (PARTITION BY q.no ORDER BY q.behind_s DESC, q.proc) AS place
        FROM (SELECT u.no, e.proc, count(DISTINCT u.waiter) AS behind, sum(extract(epoch FROM e.ended - e.began)) AS behind_s,
                     count(DISTINCT u.waiter) FILTER (WHERE w.hard_count = 0) AS behind_queue_only, min(e.began) AS first_behind,
                     bit_or(e.modes) FILTER (WHERE e.kind = 1) AS held,
                     array_agg(DISTINCT w.mode) AS asked
              FROM under AS u
              JOIN edge AS e ON e.wait_id = u.wait_id AND e.kind IN (1, 2) AND e.proc <> u.root
                   AND e.began < u.ended AND e.ended > u.began
              JOIN wait AS w ON w.wait_id = u.wait_id AND w.locktype NOT IN ('tuple', 'transactionid')
              GROUP BY u.no, e.proc) AS q
    ), queue AS (
        SELECT a.no, jsonb_agg(jsonb_build_object(
                   'process', lock_history.say_process(p.pid, p.gid, p.backend_type, p.application_name, p.usename, p.datname),
                   'who', lock_history.say_process(p.pid, p.gid, p.backend_type, p.application_name, NULL, NULL),
                   'pid', p.pid, 'application', p.application_name, 'role', p.usename, 'query', p.query,
                   'locktype', o.locktype, 'mode', o.mode, 'object', o.label, 'since', o.began, 'waited_s', round(extract(epoch FROM o.ended - o.began), 3), 'outcome', o.outcome,
                   'behind', a.behind, 'behind_s', round(a.behind_s, 3), 'behind_queue_only', a.behind_queue_only,
                   'behind_asked', to_jsonb(a.asked), 'first_behind_after_s', round(extract(epoch FROM a.first_behind - o.began), 3),
                   'held', to_jsonb(lock_history.mode_names(a.held))) ORDER BY a.place) AS queue
        FROM ahead AS a
        JOIN LATERAL (SELECT w.seg, w.actor_id, w.locktype, w.mode, l.label, w.began, w.ended, w.outcome
                      FROM under AS u JOIN wait AS w ON w.wait_id = u.wait_id JOIN label AS l ON l.wait_id = w.wait_id
                      WHERE u.no = a.no AND u.waiter = a.proc
                      ORDER BY u.blocked_s DESC LIMIT 1) AS o ON true
        LEFT JOIN LATERAL (SELECT x.pid, x.gid, x.backend_type, x.application_name, x.usename, x.datname, x.query FROM lock_history.process AS x
                           WHERE x.seg = o.seg AND x.actor_id = o.actor_id AND x.node_id = ANY (nodes) LIMIT 1) AS p ON true
        WHERE a.place <= 2
        GROUP BY a.no
    ), told_root AS (
        SELECT jsonb_agg(jsonb_build_object(
            'process', lock_history.say_process(r.pid, r.gid, r.backend_type, r.application_name, r.usename, r.datname),
            'who', lock_history.say_process(r.pid, r.gid, r.backend_type, r.application_name, NULL, NULL),
            'pid', nullif(r.pid, 0), 'gid', r.gid, 'backend_type', r.backend_type, 'application', r.application_name, 'role', r.usename, 'database', r.datname,
            'client_addr', r.client_addr,
            'state', r.state, 'state_s', round(extract(epoch FROM b.ended - r.state_change), 3),
            'xact_start', r.xact_start, 'xact_s', round(extract(epoch FROM b.ended - r.xact_start), 3),
            'query', r.query, 'query_id', r.query_id,
            'before', ARRAY(SELECT s.query
                            FROM unnest(r.stmt_query, r.stmt_query_start) WITH ORDINALITY AS s(query, query_start, no)
                            WHERE s.query IS NOT NULL AND s.query_start IS DISTINCT FROM r.query_start
                            ORDER BY s.no),
            'before_left_out', nullif(r.stmt_left_out, 0),
            'held', to_jsonb(lock_history.mode_names(h.modes)), 'held_on', to_jsonb(h.labels[1:3]),
            'sessions', b.sessions, 'waits', b.waits, 'blocked_s', round(b.blocked_s, 3), 'most', c.most,
            'began', b.began, 'ended', CASE WHEN NOT b.goes_on THEN b.ended END, 'still', b.still,
            'objects', to_jsonb(t.labels[1:3]), 'objects_more', greatest(cardinality(t.labels) - 3, 0), 'asked', to_jsonb(m.modes), 'applications', to_jsonb(a.applications),
            'outcomes', coalesce(o.outcomes, '{}'), 'queue', coalesce(q.queue, '[]')) ORDER BY r.no) AS roots
        FROM latest AS r
        JOIN blocked AS b ON b.no = r.no
        JOIN crowd AS c ON c.no = r.no
        LEFT JOIN held AS h ON h.no = r.no
        LEFT JOIN outcome AS o ON o.no = r.no
        LEFT JOIN thing AS t ON t.no = r.no
        LEFT JOIN asked AS m ON m.no = r.no
        LEFT JOIN waiter AS a ON a.no = r.no
        LEFT JOIN queue AS q ON q.no = r.no
    ), hot AS (
        SELECT w.datname, w.relation, min(regexp_replace(w.object, '^.*?tuple \(\d+,\d+\) of ', '')) AS object,
               count(*) AS waits, count(DISTINCT w.proc_key) AS sessions, sum(extract(epoch FROM w.ended - w.began)) AS total_s,
               max(extract(epoch FROM w.ended - w.began)) AS longest_s,
               count(*) FILTER (WHERE w.locktype = 'tuple') AS queued, count(DISTINCT (w.page, w.tuple)) AS versions, count(DISTINCT w.page) AS pages,
               count(DISTINCT r.proc) AS roots
        FROM wait AS w
        LEFT JOIN LATERAL (SELECT e.proc FROM unnest(w.edge_kind, w.edge_proc) AS e(kind, proc) WHERE e.kind = 3 LIMIT 1) AS r ON true
        WHERE w.locktype IN ('tuple', 'transactionid') AND w.relation IS NOT NULL
        GROUP BY w.datname, w.relation
        ORDER BY 6 DESC LIMIT 3
    ), object AS (
        SELECT l.label, l.locktype, l.datname, count(*) AS waits, count(DISTINCT l.proc_key) AS sessions, sum(extract(epoch FROM l.ended - l.began)) AS total_s,
               array_agg(DISTINCT l.mode) AS modes,
               max(extract(epoch FROM l.ended - l.began)) AS longest_s
        FROM label AS l
        GROUP BY l.label, l.locktype, l.datname
        ORDER BY 6 DESC LIMIT 6
    )
    SELECT jsonb_build_object(
        'waits', s.waits, 'sessions', s.sessions, 'total_s', round(coalesce(s.total_s, 0), 3), 'longest_s', round(s.longest_s, 3), 'still', s.still,
        'began', s.began, 'ended', s.ended,
        'outcomes', (SELECT coalesce(jsonb_object_agg(o.outcome, o.n), '{}') FROM (SELECT w.outcome, count(*) AS n FROM wait AS w WHERE w.outcome IS NOT NULL GROUP BY w.outcome) AS o),
        'most', (SELECT max(m.waiting) FROM moved AS m), 'most_at', (SELECT m.at FROM moved AS m ORDER BY m.waiting DESC, m.at LIMIT 1),
        'root_count', (SELECT count(*) FROM root), 'root_s', (SELECT round(coalesce(sum(r.blocked_s), 0), 3) FROM root AS r),
        'roots', coalesce((SELECT t.roots FROM told_root AS t), '[]'),
        'hot', (SELECT coalesce(jsonb_agg(jsonb_build_object('object', h.object, 'database', h.datname, 'waits', h.waits, 'sessions', h.sessions, 'total_s', round(h.total_s, 3),
                                   'longest_s', round(h.longest_s, 3), 'queued', h.queued, 'versions', h.versions, 'pages', h.pages, 'roots', h.roots) ORDER BY h.total_s DESC), '[]') FROM hot AS h),
        'objects', (SELECT coalesce(jsonb_agg(jsonb_build_object('object', o.label, 'locktype', o.locktype, 'database', o.datname, 'waits', o.waits, 'sessions', o.sessions,
                                       'total_s', round(o.total_s, 3), 'longest_s', round(o.longest_s, 3), 'modes', to_jsonb(o.modes),
                                       'query', p.query, 'who', lock_history.say_process(p.pid, p.gid, p.backend_type, p.application_name, NULL, NULL)) ORDER BY o.total_s DESC), '[]')
                    FROM object AS o
                    -- who waited longest for it
                    CROSS JOIN LATERAL (SELECT l.seg, l.actor_id FROM label AS l
                                        WHERE l.label = o.label AND l.locktype = o.locktype AND l.datname IS NOT DISTINCT FROM o.datname
                                        ORDER BY l.ended - l.began DESC, l.wait_id LIMIT 1) AS w
                    LEFT JOIN LATERAL (SELECT a.pid, a.gid, a.backend_type, a.application_name, a.usename, a.datname, a.query FROM lock_history.process AS a
                                       WHERE a.seg = w.seg AND a.actor_id = w.actor_id AND a.node_id = ANY (nodes) LIMIT 1) AS p ON true))
      INTO told
    FROM (SELECT count(*) AS waits, count(DISTINCT w.proc_key) AS sessions, sum(extract(epoch FROM w.ended - w.began)) AS total_s,
                 max(extract(epoch FROM w.ended - w.began)) AS longest_s, count(*) FILTER (WHERE w.goes_on) AS still, min(w.began) AS began, max(w.ended) AS ended
          FROM wait AS w) AS s;
    RETURN told;
END
$$;
COMMENT ON FUNCTION lock_history.explain_waits(text, timestamptz, timestamptz) IS 'internal: facts about waits for heavyweight locks in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_waits(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_waits(text, timestamptz, timestamptz) TO pg_monitor;

-- Waits too short to be kept one by one.
CREATE FUNCTION lock_history.explain_short(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        WITH sum AS MATERIALIZED (
            SELECT s.locktype, s.datname, s.object, sum(s.waits) AS waits, sum(s.total_ms)::numeric / 1000 AS total_s, max(s.max_ms)::numeric / 1000 AS longest_s, sum(s.failed) AS failed
            FROM lock_history.short_waits AS s
            WHERE s.node = explain_short.node AND s.at >= date_trunc('second', explain_short.since) AND s.at < explain_short.until
            GROUP BY s.locktype, s.datname, s.object
        )
        SELECT jsonb_build_object(
            'waits', coalesce(sum(m.waits), 0), 'total_s', round(coalesce(sum(m.total_s), 0), 3), 'longest_s', round(max(m.longest_s), 3), 'failed', coalesce(sum(m.failed), 0),
            -- a row lock is both: the first in the queue waits for the transaction, of which no table is known, the others for the row
            'row_waits', coalesce(sum(m.waits) FILTER (WHERE m.locktype IN ('transactionid', 'tuple')), 0),
            'row_s', round(coalesce(sum(m.total_s) FILTER (WHERE m.locktype IN ('transactionid', 'tuple')), 0), 3),
            'top', (SELECT coalesce(jsonb_agg(jsonb_build_object('locktype', t.locktype, 'database', t.datname, 'object', t.object, 'waits', t.waits,
                                              'total_s', round(t.total_s, 3), 'longest_s', round(t.longest_s, 3)) ORDER BY t.total_s DESC), '[]')
                    FROM (SELECT x.locktype, x.datname, x.object, x.waits, x.total_s, x.longest_s FROM sum AS x ORDER BY x.total_s DESC, x.locktype, x.object LIMIT 4) AS t))
        FROM sum AS m);
END
$$;
COMMENT ON FUNCTION lock_history.explain_short(text, timestamptz, timestamptz) IS 'internal: facts about short waits in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_short(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_short(text, timestamptz, timestamptz) TO pg_monitor;

CREATE FUNCTION lock_history.explain_deadlocks(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        WITH member AS MATERIALIZED (
            SELECT d.deadlock_id, d.at, d.member, d.pid, d.is_victim, d.waits_for, d.locktype, d.object, d.mode, d.held_mode, d.held_object,
                   d.datname, d.usename, d.application_name, d.query, d.backend_type,
                   dense_rank() OVER (ORDER BY d.at, d.deadlock_id) AS no
            FROM lock_history.deadlocks AS d
            WHERE d.node = explain_deadlocks.node AND d.at >= explain_deadlocks.since AND d.at <= explain_deadlocks.until
        )
        SELECT jsonb_build_object('deadlocks', (SELECT count(DISTINCT m.deadlock_id) FROM member AS m),
            'first', coalesce(jsonb_agg(jsonb_build_object(
                'at', f.at, 'processes', f.processes, 'kind', f.kind, 'objects', to_jsonb(f.objects), 'members', f.members) ORDER BY f.no), '[]'))
        FROM (SELECT m.no, min(m.at) AS at, count(*) AS processes,
                     -- what the members waited for
                     CASE WHEN bool_and(m.locktype IN ('transactionid', 'tuple')) THEN 'rows'
                          -- each holds the lock weakly, and wants it strongly
                          WHEN bool_and(m.locktype = 'relation') AND count(DISTINCT m.object) = 1
                               AND bool_and(m.held_object = m.object) THEN 'upgrade'
                          WHEN bool_and(m.locktype = 'advisory') THEN 'advisory'
                          WHEN bool_and(m.locktype = 'relation') THEN 'relations' ELSE 'mixed' END AS kind,
                     array_agg(DISTINCT regexp_replace(m.object, '^.*?tuple \(\d+,\d+\) of ', 'rows of ')) FILTER (WHERE m.object IS NOT NULL) AS objects,
                     jsonb_agg(jsonb_build_object(
                         'process', coalesce(lock_history.say_process(m.pid, NULL, m.backend_type, m.application_name, m.usename, m.datname), 'pid ' || m.pid),
                         'pid', m.pid, 'is_victim', m.is_victim, 'waits_for', m.waits_for, 'locktype', m.locktype, 'object', m.object, 'mode', m.mode,
                         'held_mode', m.held_mode, 'held_object', m.held_object, 'application', m.application_name, 'role', m.usename, 'query', m.query)
                         ORDER BY m.member) AS members
              FROM member AS m WHERE m.no <= 3
              GROUP BY m.no) AS f);
END
$$;
COMMENT ON FUNCTION lock_history.explain_deadlocks(text, timestamptz, timestamptz) IS 'internal: facts about deadlocks in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_deadlocks(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_deadlocks(text, timestamptz, timestamptz) TO pg_monitor;

-- Session time by wait event.
CREATE FUNCTION lock_history.explain_load(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
-- as in top_queries()
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    told jsonb;
BEGIN
    EXECUTE format($sql$
        WITH number AS MATERIALIZED (
            SELECT l.seg, l.node_id, l.dim_id,
                   -- of a second or minute that is in the range in part, that part
                   sum(CASE WHEN l.began >= $2 AND l.ended <= $3 OR l.ended <= l.began THEN l.load_ms
                            ELSE l.load_ms * extract(epoch FROM least($3, l.ended) - greatest($2, l.began)) / extract(epoch FROM l.ended - l.began) END)::numeric / 1000 AS s
            FROM lock_history.%I AS l
            WHERE l.node = $1 AND l.at > $2 - interval '1 min' AND l.at < $3 AND l.ended > $2 AND l.began < $3
            GROUP BY l.seg, l.node_id, l.dim_id
        ), event AS MATERIALIZED (
            SELECT d.wait_event_type, d.wait_event, sum(n.s) AS s,
                   coalesce(sum(n.s) FILTER (WHERE coalesce(d.backend_type, 'client backend') IN ('client backend', 'parallel worker')), 0) AS client_s
            FROM number AS n
            JOIN lock_history.load_dictionary AS d ON d.seg = n.seg AND d.dim_id = n.dim_id AND (d.node_id = n.node_id) IS TRUE
            GROUP BY d.wait_event_type, d.wait_event
        ), sampled AS MATERIALIZED (
            SELECT lock_history.sampled_ms($1, $2, $3)::numeric / 1000 AS s
        )
        SELECT jsonb_build_object(
            'sampled_s', round(p.s, 3), 'total_s', round(coalesce(sum(e.s), 0), 3), 'aas', round(coalesce(sum(e.s), 0) / nullif(p.s, 0), 3),
            'events', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                           'event', CASE WHEN t.wait_event_type = 'CPU' THEN 'CPU' ELSE t.wait_event_type || ':' || t.wait_event END,
                           'total_s', round(t.s, 3), 'aas', round(t.s / nullif((SELECT x.s FROM sampled AS x), 0), 3), 'share', round(t.s / nullif(t.all_s, 0), 4),
                           -- the server's own processes write the WAL and pages, too
                           'client_s', round(t.client_s, 3), 'client_share', round(t.client_s / nullif(t.all_s, 0), 4)) ORDER BY t.s DESC, t.wait_event), '[]')
                       FROM (SELECT x.wait_event_type, x.wait_event, x.s, x.client_s, sum(x.s) OVER () AS all_s FROM event AS x ORDER BY x.s DESC, x.wait_event LIMIT 12) AS t))
        FROM sampled AS p LEFT JOIN event AS e ON true
        GROUP BY p.s$sql$,
        -- as in top_queries()
        CASE WHEN explain_load.until - explain_load.since > interval '2 h' THEN 'load_by_minute' ELSE 'load_history' END)
    INTO told USING explain_load.node, explain_load.since, explain_load.until;
    RETURN told;
END
$$;
COMMENT ON FUNCTION lock_history.explain_load(text, timestamptz, timestamptz) IS 'internal: facts about load in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_load(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_load(text, timestamptz, timestamptz) TO pg_monitor;

-- As lwlock_profile(), which counts seconds one by one: too slow for a day in which
-- each has some.
CREATE FUNCTION lock_history.explain_lwlocks(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
-- as in top_queries()
SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        WITH sum AS MATERIALIZED (
            SELECT l.tranche, l.instance, l.mode, count(*) AS seconds, sum(l.waits) AS waits, sum(l.wait_ms) AS wait_ms,
                   sum(l.wait_ms / nullif(l.waiters_avg, 0)) AS sampled_ms, max(l.waiters_max) AS waiters_max,
                   sum(l.held_exclusive * l.wait_ms) / nullif(sum(l.wait_ms) FILTER (WHERE l.held_exclusive IS NOT NULL), 0) AS held_exclusive,
                   sum(l.shared_holders_avg * l.wait_ms) / nullif(sum(l.wait_ms) FILTER (WHERE l.shared_holders_avg IS NOT NULL), 0) AS shared_holders_avg
            FROM lock_history.lwlocks AS l
            WHERE l.node = explain_lwlocks.node AND l.at >= explain_lwlocks.since AND l.at < explain_lwlocks.until
            GROUP BY l.tranche, l.instance, l.mode
        ), mode AS (
            SELECT DISTINCT ON (m.tranche) m.tranche, m.mode, m.wait_ms
            FROM (SELECT s.tranche, s.mode, sum(s.wait_ms) AS wait_ms FROM sum AS s GROUP BY s.tranche, s.mode) AS m
            ORDER BY m.tranche, m.wait_ms DESC, m.mode
        ), tranche AS (
            SELECT s.tranche, sum(s.waits) AS waits, sum(s.wait_ms) AS wait_ms, max(s.waiters_max) AS waiters_max, sum(sum(s.wait_ms)) OVER () AS all_ms,
                   sum(s.held_exclusive * s.wait_ms) / nullif(sum(s.wait_ms) FILTER (WHERE s.held_exclusive IS NOT NULL), 0) AS held_exclusive,
                   sum(s.shared_holders_avg * s.wait_ms) / nullif(sum(s.wait_ms) FILTER (WHERE s.shared_holders_avg IS NOT NULL), 0) AS shared_holders_avg
            FROM sum AS s
            GROUP BY s.tranche
            ORDER BY sum(s.wait_ms) DESC, s.tranche LIMIT 5
        )
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'tranche', t.tranche, 'waits', t.waits, 'wait_s', round(t.wait_ms::numeric / 1000, 3), 'share', round((t.wait_ms / nullif(t.all_ms, 0))::numeric, 4),
                   'mode', m.mode, 'mode_share', round((m.wait_ms / nullif(t.wait_ms, 0))::numeric, 4), 'waiters_max', t.waiters_max,
                   'held_exclusive', round(t.held_exclusive::numeric, 3), 'shared_holders_avg', round(t.shared_holders_avg::numeric, 2),
                   'locks', (SELECT jsonb_agg(jsonb_build_object(
                                 'instance', l.instance, 'mode', l.mode, 'waits', l.waits, 'wait_s', round(l.wait_ms::numeric / 1000, 3), 'share', round((l.wait_ms / nullif(t.wait_ms, 0))::numeric, 4),
                                 'seconds', l.seconds, 'waiters_avg', round((l.wait_ms / nullif(l.sampled_ms, 0))::numeric, 2), 'waiters_max', l.waiters_max,
                                 'held_exclusive', round(l.held_exclusive::numeric, 3), 'shared_holders_avg', round(l.shared_holders_avg::numeric, 2)) ORDER BY l.wait_ms DESC, l.instance, l.mode)
                             FROM (SELECT s.instance, s.mode, s.waits, s.wait_ms, s.seconds, s.sampled_ms, s.waiters_max, s.held_exclusive, s.shared_holders_avg
                                   FROM sum AS s WHERE s.tranche = t.tranche ORDER BY s.wait_ms DESC, s.instance, s.mode LIMIT 3) AS l)) ORDER BY t.wait_ms DESC, t.tranche), '[]')
        FROM tranche AS t JOIN mode AS m ON m.tranche = t.tranche);
END
$$;
COMMENT ON FUNCTION lock_history.explain_lwlocks(text, timestamptz, timestamptz) IS 'internal: facts about LWLocks in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_lwlocks(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_lwlocks(text, timestamptz, timestamptz) TO pg_monitor;

-- As hot_pages(), for the same reason.
CREATE FUNCTION lock_history.explain_pages(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
-- as in top_queries()
SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        WITH block AS MATERIALIZED (
            SELECT p.datname, p.object, p.fork, p.mode, p.kind, p.block, sum(p.waits) AS waits, sum(p.wait_ms) AS wait_ms,
                   max(p.waiters_max) AS waiters_max,
                   sum(p.held_exclusive * p.wait_ms) AS held_ms, sum(p.wait_ms) FILTER (WHERE p.held_exclusive IS NOT NULL) AS known_ms
            FROM lock_history.hot_pages AS p
            WHERE p.node = explain_pages.node AND p.at >= explain_pages.since AND p.at < explain_pages.until
            GROUP BY p.datname, p.object, p.fork, p.mode, p.kind, p.block
        ), page AS (
            SELECT b.datname, b.object, b.fork, b.mode, b.kind, sum(b.waits) AS waits, sum(b.wait_ms) AS wait_ms, max(b.waiters_max) AS waiters_max,
                   sum(b.held_ms) / nullif(sum(b.known_ms), 0) AS held_exclusive, sum(sum(b.wait_ms)) OVER () AS all_ms,
                   count(b.block) AS blocks, max(b.wait_ms) FILTER (WHERE b.block IS NOT NULL) AS busiest_ms,
                   (array_agg(b.block ORDER BY b.wait_ms DESC, b.block) FILTER (WHERE b.block IS NOT NULL))[1] AS busiest_block
            FROM block AS b
            GROUP BY b.datname, b.object, b.fork, b.mode, b.kind
        )
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'object', p.object, 'database', p.datname, 'fork', p.fork, 'mode', p.mode, 'kind', p.kind, 'waits', p.waits,
                   'wait_s', round(p.wait_ms::numeric / 1000, 3), 'share', round((p.wait_ms / nullif(p.all_ms, 0))::numeric, 4), 'blocks', p.blocks,
                   'block', CASE WHEN p.busiest_ms > p.wait_ms / 2 THEN p.busiest_block END,
                   'block_share', CASE WHEN p.busiest_ms > p.wait_ms / 2 THEN round((p.busiest_ms / p.wait_ms)::numeric, 4) END,
                   'waiters_max', p.waiters_max,
                   'held_exclusive', round(p.held_exclusive::numeric, 3)) ORDER BY p.wait_ms DESC, p.object), '[]')
        FROM (SELECT g.datname, g.object, g.fork, g.mode, g.kind, g.waits, g.wait_ms, g.waiters_max, g.held_exclusive, g.all_ms, g.blocks, g.busiest_ms, g.busiest_block
              FROM page AS g ORDER BY g.wait_ms DESC, g.object LIMIT 3) AS p);
END
$$;
COMMENT ON FUNCTION lock_history.explain_pages(text, timestamptz, timestamptz) IS 'internal: facts about hot pages in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_pages(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_pages(text, timestamptz, timestamptz) TO pg_monitor;

-- Told is the last size of the fast path in the range, as in fast_path_advice().
CREATE FUNCTION lock_history.explain_fast_path(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    size      record;
    seen      record;
    statement record;
BEGIN
    SELECT p.server_version_num / 10000 AS version, p.slots_available AS slots, p.max_locks_per_transaction AS max_locks INTO size
    FROM lock_history.fast_path AS p
    WHERE p.at >= explain_fast_path.since AND p.at < explain_fast_path.until AND p.node = explain_fast_path.node
    ORDER BY p.at DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('seconds_full', 0);
    END IF;
    SELECT count(*) FILTER (WHERE x.full_ > 0) AS seconds_full, max(x.slots_max) AS slots_max, max(x.spilled) AS spilled,
           min(x.at) FILTER (WHERE x.full_ > 0) AS first_full, max(x.at) FILTER (WHERE x.full_ > 0) AS last_full, max(x.full_) AS sessions_full INTO seen
    FROM (SELECT p.at, sum(p.sessions_full) AS full_, max(p.slots_max) AS slots_max, max(p.spilled_locks_max) AS spilled
          FROM lock_history.fast_path AS p
          WHERE p.at >= explain_fast_path.since AND p.at < explain_fast_path.until AND p.node = explain_fast_path.node
            AND p.slots_available = size.slots AND p.server_version_num / 10000 = size.version
          GROUP BY p.at) AS x;
    IF seen.seconds_full > 0 THEN
        SELECT h.query_id, h.datname, h.usename, h.query, max(h.locks_max) AS locks INTO statement
        FROM lock_history.lock_hungry_queries AS h
        WHERE h.at < explain_fast_path.until AND h.last_at >= explain_fast_path.since AND h.node = explain_fast_path.node
          AND h.slots_available = size.slots AND h.server_version_num / 10000 = size.version AND h.looks_full > 0
          -- who reads the history of locks takes many: no news
          AND (h.query ~ 'lock_history') IS NOT TRUE
        GROUP BY h.query_id, h.datname, h.usename, h.query
        ORDER BY sum(h.looks_full) DESC, max(h.locks_max) DESC, h.query_id LIMIT 1;
        RETURN jsonb_build_object('version', size.version, 'slots', size.slots, 'max_locks', size.max_locks, 'seconds_full', seen.seconds_full,
            'first_full', seen.first_full, 'last_full', seen.last_full, 'sessions_full', seen.sessions_full, 'spilled', seen.spilled,
            'query', statement.query, 'query_id', statement.query_id, 'role', statement.usename, 'database', statement.datname, 'locks', statement.locks,
            -- full with fewer locks than slots: they are not spread evenly over the groups
            'enough', (SELECT CASE WHEN e.slots > size.slots THEN e.slots ELSE least(2 * size.slots, 16384) END
                       FROM (SELECT lock_history.fast_path_slots(coalesce(statement.locks, seen.slots_max + coalesce(seen.spilled, 1))) AS slots) AS e));
    END IF;
    RETURN jsonb_build_object('version', size.version, 'slots', size.slots, 'max_locks', size.max_locks, 'seconds_full', 0, 'slots_max', seen.slots_max);
END
$$;
COMMENT ON FUNCTION lock_history.explain_fast_path(text, timestamptz, timestamptz) IS 'internal: facts about fast-path slots in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_fast_path(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_fast_path(text, timestamptz, timestamptz) TO pg_monitor;

CREATE FUNCTION lock_history.explain_anomalies(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        SELECT jsonb_build_object('anomalies', count(*),
                   'first', coalesce(jsonb_agg(jsonb_build_object(
                       'started', x.started_at, 'ended', x.ended_at, 'wait_event_type', x.wait_event_type, 'observed', round(x.observed::numeric, 1),
                       'expected', round(x.expected::numeric, 1), 'band', round(x.band::numeric, 1), 'leading_event', x.leading_event, 'root_pid', x.root_pid)
                       ORDER BY x.started_at, x.no) FILTER (WHERE x.no <= 3), '[]'))
        FROM (SELECT a.started_at, a.ended_at, a.wait_event_type, a.observed, a.expected, a.band, a.leading_event, a.root_pid,
                     row_number() OVER (ORDER BY a.observed - a.band DESC, a.started_at, a.wait_event_type NULLS LAST) AS no
              FROM lock_history.anomalies AS a
              WHERE a.node = explain_anomalies.node AND a.started_at < explain_anomalies.until AND coalesce(a.ended_at, 'infinity') > explain_anomalies.since) AS x);
END
$$;
COMMENT ON FUNCTION lock_history.explain_anomalies(text, timestamptz, timestamptz) IS 'internal: facts about unusual load in a range, for explain_json()';
REVOKE ALL ON FUNCTION lock_history.explain_anomalies(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_anomalies(text, timestamptz, timestamptz) TO pg_monitor;

-- Whether anybody was looking.
CREATE FUNCTION lock_history.explain_watched(node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    history tstzrange;
    unseen  tstzmultirange;
    holes   tstzmultirange;
    gaps    jsonb;
    health  jsonb;
BEGIN
    SELECT tstzrange(w.since, w.until), w.holes INTO history, holes FROM lock_history.watched AS w WHERE w.node = explain_watched.node;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT coalesce(jsonb_agg(jsonb_build_object('began', g.began, 'ended', g.ended, 'reason', g.reason, 'part', g.part, 'lost', g.lost, 'gap_s', round(g.s, 3))
                              ORDER BY g.s DESC, g.began) FILTER (WHERE g.no <= 3), '[]') INTO gaps
    FROM (SELECT g.began, g.ended, g.reason, g.part, g.lost, c.s, row_number() OVER (ORDER BY c.s DESC, g.began) AS no
          FROM lock_history.gaps AS g
          CROSS JOIN LATERAL (SELECT extract(epoch FROM least(coalesce(g.ended, 'infinity'), explain_watched.until) - greatest(g.began, explain_watched.since)) AS s) AS c
          WHERE g.node = explain_watched.node AND g.began < explain_watched.until AND coalesce(g.ended, 'infinity') > explain_watched.since) AS g;
    -- load and waits alike
    unseen := tstzmultirange(tstzrange(explain_watched.since, explain_watched.until)) - (tstzmultirange(history) - holes
        - (SELECT coalesce(range_agg(tstzrange(g.began, greatest(g.began, g.ended))), '{}') FROM lock_history.gaps AS g
           WHERE g.node = explain_watched.node AND g.began < explain_watched.until AND coalesce(g.ended, 'infinity') > explain_watched.since));
    SELECT jsonb_build_object('ticks_due', sum(h.ticks_due), 'ticks_missed', sum(h.ticks_missed), 'ticks_late', sum(h.ticks_late), 'period_ms', max(h.period_ms),
                              'missed_share', round(sum(h.ticks_missed)::numeric / nullif(sum(h.ticks_due), 0), 4), 'late_share', round(sum(h.ticks_late)::numeric / nullif(sum(h.ticks_due), 0), 4),
                              'rows_dropped', sum(h.rows_dropped)) INTO health
    FROM lock_history.health AS h
    WHERE h.node = explain_watched.node AND h.minute > explain_watched.since - interval '1 min' AND h.minute < explain_watched.until;
    RETURN health || jsonb_build_object(
        'range_s', round(extract(epoch FROM explain_watched.until - explain_watched.since), 3),
        'unseen_s', round(coalesce((SELECT sum(extract(epoch FROM upper(u) - lower(u))) FROM unnest(unseen) AS u), 0), 3),
        'history_since', nullif(lower(history), '-infinity'),
        -- the last seconds may not be written yet
        'complete_until', (SELECT lower(u) FROM unnest(unseen) AS u WHERE upper(u) = explain_watched.until),
        'gap_list', gaps);
END
$$;
COMMENT ON FUNCTION lock_history.explain_watched(text, timestamptz, timestamptz) IS 'internal: facts about what was watched of a range, for explain_json(); null: no such server';
REVOKE ALL ON FUNCTION lock_history.explain_watched(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_watched(text, timestamptz, timestamptz) TO pg_monitor;

-- The locks of one part are given back before the next one is read: together they
-- would be hundreds.
CREATE FUNCTION lock_history.explain_part(part text, node text, since timestamptz, until timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    told jsonb;
BEGIN
    EXECUTE format('SELECT lock_history.%I($1, $2, $3)', 'explain_' || explain_part.part)
    INTO told USING explain_part.node, explain_part.since, explain_part.until;
    -- undoes the locks; variables keep what they were set to
    RAISE EXCEPTION USING ERRCODE = 'PLH01';
EXCEPTION WHEN SQLSTATE 'PLH01' THEN
    RETURN told;
END
$$;
COMMENT ON FUNCTION lock_history.explain_part(text, text, timestamptz, timestamptz) IS 'internal: one part of the facts, without keeping its relation locks';
REVOKE ALL ON FUNCTION lock_history.explain_part(text, text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.explain_part(text, text, timestamptz, timestamptz) TO pg_monitor;
