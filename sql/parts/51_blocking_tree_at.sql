-- The tree of any moment.

-- What a row of a blocking tree says; a type of its own, since a function
-- cannot have an argument and a column of the same name (node).
CREATE TYPE lock_history.blocking_tree AS (
    node             text,
    level            integer,
    path             integer[],
    pid              integer,
    gid              text,
    backend_start    timestamptz,
    backend_type     text,
    blocked_by       integer[],
    root_pid         integer,
    kind             text,
    in_cycle         boolean,
    state            text,
    datname          text,
    usename          text,
    application_name text,
    xact_start       timestamptz,
    locktype         text,
    mode             text,
    object           text,
    waited           interval,
    query            text,
    collapsed_count  integer,
    client_addr      inet,
    wait_id          bigint,
    members          integer[]
);
COMMENT ON TYPE lock_history.blocking_tree IS 'One row of a blocking tree, see blocking_tree_at()';
REVOKE ALL ON TYPE lock_history.blocking_tree FROM PUBLIC;
GRANT USAGE ON TYPE lock_history.blocking_tree TO pg_monitor;
COMMENT ON COLUMN lock_history.blocking_tree.node IS 'server on which it was seen';
COMMENT ON COLUMN lock_history.blocking_tree.level IS 'depth: 0 for a root';
COMMENT ON COLUMN lock_history.blocking_tree.path IS 'pids from the root down to this row';
COMMENT ON COLUMN lock_history.blocking_tree.pid IS 'the process; -n: n-th prepared transaction, see gid; null: a collapsed row';
COMMENT ON COLUMN lock_history.blocking_tree.gid IS 'name of the prepared transaction; null: a process';
COMMENT ON COLUMN lock_history.blocking_tree.backend_start IS 'when the process started; null: a leader of whom only the workers waited';
COMMENT ON COLUMN lock_history.blocking_tree.backend_type IS 'kind of process, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.blocking_tree.blocked_by IS 'all pids it was blocked by: the hard blockers, or the nearest soft one when there was none; empty: it did not wait, or by whom is not known';
COMMENT ON COLUMN lock_history.blocking_tree.root_pid IS 'pid at the top of this tree; of a cycle the smallest pid in it';
COMMENT ON COLUMN lock_history.blocking_tree.kind IS 'hard: the blockers hold a conflicting mode; soft: the blocker is ahead in the queue; null: nobody in its way';
COMMENT ON COLUMN lock_history.blocking_tree.in_cycle IS 'waits, over others, for itself: a deadlock in the making';
COMMENT ON COLUMN lock_history.blocking_tree.state IS 'state when last looked at, as in pg_stat_activity, or prepared';
COMMENT ON COLUMN lock_history.blocking_tree.datname IS 'database the process was connected to';
COMMENT ON COLUMN lock_history.blocking_tree.usename IS 'role of the process';
COMMENT ON COLUMN lock_history.blocking_tree.application_name IS 'application_name of the process';
COMMENT ON COLUMN lock_history.blocking_tree.xact_start IS 'start of its transaction; of a prepared one the time of PREPARE';
COMMENT ON COLUMN lock_history.blocking_tree.locktype IS 'kind of object it waited for, as in pg_locks; null: it did not wait';
COMMENT ON COLUMN lock_history.blocking_tree.mode IS 'lock mode it waited for; null: it did not wait';
COMMENT ON COLUMN lock_history.blocking_tree.object IS 'object it waited for; null: it did not wait, or not known';
COMMENT ON COLUMN lock_history.blocking_tree.waited IS 'how long it had been waiting at that moment; null: it did not wait';
COMMENT ON COLUMN lock_history.blocking_tree.query IS 'its statement, or the last one when idle in transaction';
COMMENT ON COLUMN lock_history.blocking_tree.collapsed_count IS 'this row stands for so many further processes below the same blocker that block nobody; null: it stands for itself';
COMMENT ON COLUMN lock_history.blocking_tree.client_addr IS 'address of the client; null: local socket, no client, or insufficient privilege';
COMMENT ON COLUMN lock_history.blocking_tree.wait_id IS 'the wait, as in waits; null: it did not wait';
COMMENT ON COLUMN lock_history.blocking_tree.members IS 'other processes of its parallel query that waited or held locks in the way; the row is about all of them; null: it stood alone';

-- Waits that span the moment are found through the index on (wait_start,
-- wait_end), in segments that were not closed before it; conditions on is_open
-- vanish when planned, see wait_episode.  A plan made without knowing the
-- moment would read everything, hence custom plans.
CREATE FUNCTION lock_history.blocking_tree_at(at timestamptz, node text DEFAULT NULL, max_siblings integer DEFAULT 50)
RETURNS SETOF lock_history.blocking_tree
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    wanted_node text := coalesce(blocking_tree_at.node, lock_history.local_node());
    nodes       integer[];
    waits       lock_history.wait_episode[];
    segments    smallint[];  -- where their processes are described
    kept        record;
BEGIN
    IF blocking_tree_at.max_siblings < 0 THEN
        RAISE EXCEPTION 'max_siblings must not be negative, but is %', blocking_tree_at.max_siblings
            USING ERRCODE = 'invalid_parameter_value', HINT = 'NULL shows all of them.';
    END IF;
    -- Outside its range a kept incident knows only what reaches into the range.
    SELECT r.incident, r.since, r.until INTO kept
    FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident();
    IF blocking_tree_at.at NOT BETWEEN kept.since AND kept.until THEN
        RAISE EXCEPTION 'incident "%" does not tell about %', kept.incident, blocking_tree_at.at
            USING ERRCODE = 'invalid_parameter_value',
                  DETAIL = pg_catalog.format('It was kept from %s to %s.', kept.since, kept.until),
                  HINT = 'RESET pg_lock_history.incident to read the ring.';
    END IF;

    PERFORM lock_history.warn_if_nothing_is_here();
    IF blocking_tree_at.at < (SELECT pg_catalog.min(r.opened_at) FROM lock_history.ring_segment AS r WHERE NOT r.is_empty)
       AND kept.incident IS NULL THEN
        RAISE NOTICE 'the history reaches back to % only',
            (SELECT pg_catalog.min(r.opened_at) FROM lock_history.ring_segment AS r WHERE NOT r.is_empty);
    END IF;

    -- a server that is not recorded here shows all those that are
    nodes := ARRAY(SELECT s.node_id FROM lock_history.recorded AS s
                   WHERE wanted_node IS NULL OR s.node = wanted_node);

    -- One wait a process: the end of the one before is known to within a
    -- tick, so two may overlap.  A statement of its own, since the planner
    -- knows the length of an array, but not what this finds.
    SELECT pg_catalog.array_agg(l.w) INTO waits
    FROM (SELECT DISTINCT ON (w.node_id, w.proc_key) w
          FROM lock_history.wait_episode AS w
          WHERE w.wait_start <= blocking_tree_at.at
            AND (w.is_open OR w.wait_end > blocking_tree_at.at)
            AND (NOT w.is_open OR w.wait_end IS NULL OR w.wait_end > blocking_tree_at.at)
            AND (w.is_open OR w.seg = ANY (ARRAY(
                    SELECT r.seg FROM lock_history.ring_segment AS r
                    -- a minute for clocks that were set back
                    WHERE r.closed_at IS NULL OR r.closed_at > blocking_tree_at.at - interval '1 min')))
            AND w.node_id = ANY (nodes)
          ORDER BY w.node_id, w.proc_key, w.wait_start DESC) AS l;
    segments := ARRAY(SELECT DISTINCT w.seg FROM pg_catalog.unnest(waits) AS w);

    RETURN QUERY
    WITH waiting AS MATERIALIZED (
        -- A parallel query is one session: its waiting processes stand under one
        -- head, the leader if it waits itself, else who has waited longest.
        SELECT w.node_id, w.proc_key, w.seg, coalesce(p.leader_pid, p.pid) AS group_pid,
               pg_catalog.first_value(w.proc_key) OVER (
                   PARTITION BY w.node_id, coalesce(p.leader_pid, p.pid), CASE WHEN p.pid IS NULL THEN w.proc_key END
                   ORDER BY p.leader_pid IS NOT NULL AND p.leader_pid <> p.pid, w.wait_start, w.proc_key) AS head,
               w.wait_id, w.wait_start, w.locktype, w.mode, w.object,
               w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_from, w.edge_to,
               p.members, p.pid, p.leader_pid, p.backend_start, p.backend_type, p.state, p.datname, p.usename,
               p.application_name, p.client_addr, p.xact_start, p.query
        FROM pg_catalog.unnest(waits) AS w
        -- one by one, by index: in a storm the planner would read all actors of the segment
        LEFT JOIN LATERAL (SELECT a.pid, a.leader_pid, a.backend_start, a.backend_type, a.state, a.datname, a.usename,
                                  a.application_name, a.client_addr, a.xact_start, a.query, a.members
                           FROM lock_history.process AS a
                           WHERE a.seg = w.seg AND a.actor_id = w.actor_id AND a.node_id = w.node_id
                             AND a.seg = ANY (segments)
                           LIMIT 1) AS p ON true
    ), active AS MATERIALIZED (
        -- Edges in force.  Before the first walk that saw the wait, the
        -- blockers of that walk count.
        SELECT w.node_id, w.head AS child, e.kind, e.proc, e.pid, w.seg, e.actor, e.since, e.ord,
               pg_catalog.min(e.kind) OVER (PARTITION BY w.node_id, w.proc_key) AS best_kind
        FROM waiting AS w
        CROSS JOIN LATERAL unnest(w.edge_kind, w.edge_proc, w.edge_pid, w.edge_actor, w.edge_from, w.edge_to)
            WITH ORDINALITY AS e(kind, proc, pid, actor, since, until, ord)
        WHERE e.kind IN (1, 2)
          AND (e.until IS NULL OR e.until > blocking_tree_at.at)
          AND (e.since <= blocking_tree_at.at
               OR e.since = (SELECT pg_catalog.min(f.since) FROM pg_catalog.unnest(w.edge_from) AS f(since)))
    ), led AS MATERIALIZED (
        SELECT w.node_id, w.group_pid AS leader_pid, w.head,
               pg_catalog.array_agg(DISTINCT w.pid ORDER BY w.pid) AS pids
        FROM waiting AS w
        WHERE w.leader_pid IS NOT NULL
        GROUP BY w.node_id, w.group_pid, w.head
    ), edge AS MATERIALIZED (
        -- Hard ones, or else the nearest soft one.  A blocker is named by the
        -- leader of its lock group; when another process of the group is what
        -- waits, the chain goes on there.
        SELECT DISTINCT ON (a.node_id, a.child, a.proc)
               a.node_id, a.child, a.kind, a.proc, a.pid, a.since, a.ord,
               coalesce(own.head, led.head, a.proc) AS parent
        FROM active AS a
        LEFT JOIN led ON led.node_id = a.node_id AND led.leader_pid = a.pid
        LEFT JOIN waiting AS own ON own.node_id = a.node_id AND own.proc_key = a.proc
        WHERE a.kind = a.best_kind
        ORDER BY a.node_id, a.child, a.proc, a.since, a.ord
    ), blocker AS MATERIALIZED (
        -- Blockers that did not wait, as last seen; prepared ones are counted.
        SELECT b.node_id, b.proc, d.members, d.gid, d.backend_start, d.backend_type, d.state, d.datname, d.usename,
               d.application_name, d.client_addr, d.xact_start, d.query,
               CASE WHEN b.pid <> 0 THEN b.pid
                    ELSE -pg_catalog.row_number() OVER (PARTITION BY b.node_id, b.pid ORDER BY b.since, b.proc)
               END::integer AS pid
        FROM (SELECT e.node_id, e.proc, pg_catalog.min(e.pid) AS pid, pg_catalog.min(e.since) AS since
              FROM edge AS e WHERE e.parent = e.proc
              GROUP BY e.node_id, e.proc) AS b
        LEFT JOIN (SELECT DISTINCT ON (p.node_id, p.proc_key)
                          p.node_id, p.proc_key, p.members, p.gid, p.backend_start, p.backend_type, p.state, p.datname,
                          p.usename, p.application_name, p.client_addr, p.xact_start, p.query
                   FROM (SELECT DISTINCT a.node_id, a.seg, a.actor FROM active AS a) AS s
                   JOIN lock_history.process AS p ON p.seg = s.seg AND p.actor_id = s.actor AND (p.node_id = s.node_id) IS TRUE
                   WHERE p.seg = ANY (segments)
                   ORDER BY p.node_id, p.proc_key, p.seen_at DESC) AS d
               ON d.node_id = b.node_id AND d.proc_key = b.proc
        WHERE NOT EXISTS (SELECT FROM waiting AS w WHERE w.node_id = b.node_id AND w.proc_key = b.proc)
    ), member AS MATERIALIZED (
        SELECT pg_catalog.row_number() OVER (ORDER BY m.node_id, m.wait_start NULLS FIRST, m.pid, m.proc_key)::integer AS no,
               m.*
        FROM (SELECT w.node_id, w.proc_key, w.group_pid AS pid, NULL::text AS gid,
                     CASE WHEN w.pid = w.group_pid THEN w.backend_start END AS backend_start,
                     CASE WHEN w.pid = w.group_pid THEN w.backend_type END AS backend_type, w.state,
                     w.datname, w.usename, w.application_name, w.client_addr, w.xact_start, w.query,
                     w.wait_id, w.wait_start, w.locktype, w.mode, w.object,
                     nullif(ARRAY(SELECT u.pid FROM pg_catalog.unnest(w.members || led.pids) AS u(pid)
                                  WHERE u.pid <> w.group_pid GROUP BY u.pid ORDER BY u.pid), '{}') AS members
              FROM waiting AS w
              LEFT JOIN led ON led.node_id = w.node_id AND led.head = w.proc_key
              WHERE w.proc_key = w.head
              UNION ALL
              SELECT b.node_id, b.proc, b.pid, b.gid, b.backend_start, b.backend_type, b.state,
                     b.datname, b.usename, b.application_name, b.client_addr, b.xact_start, b.query,
                     NULL, NULL, NULL, NULL, NULL, b.members
              FROM blocker AS b) AS m
    ), link AS (
        SELECT DISTINCT ON (c.no, p.no) c.no AS child, p.no AS parent, e.since, e.ord
        FROM edge AS e
        JOIN member AS c ON c.node_id = e.node_id AND c.proc_key = e.child
        JOIN member AS p ON p.node_id = e.node_id AND p.proc_key = e.parent
        WHERE c.no <> p.no
        ORDER BY c.no, p.no, e.since, e.ord
    ), graph AS (
        SELECT (SELECT pg_catalog.array_agg(m.pid ORDER BY m.no) FROM member AS m) AS pids,
               pg_catalog.array_agg(l.child ORDER BY l.child, l.since, l.ord) AS children,
               pg_catalog.array_agg(l.parent ORDER BY l.child, l.since, l.ord) AS parents
        FROM link AS l
    ), blocked AS MATERIALIZED (
        SELECT e.node_id, e.child, pg_catalog.min(e.kind) AS kind,
               pg_catalog.array_agg(coalesce(b.pid, e.pid) ORDER BY e.since, e.ord) AS blocked_by
        FROM edge AS e
        LEFT JOIN blocker AS b ON b.node_id = e.node_id AND b.proc = e.proc
        GROUP BY e.node_id, e.child
    )
    SELECT n.node, f.level, f.path, m.pid, m.gid, m.backend_start, m.backend_type,
           CASE WHEN m.no IS NOT NULL THEN coalesce(b.blocked_by, '{}') END,
           r.pid, CASE b.kind WHEN 1 THEN 'hard' WHEN 2 THEN 'soft' END, f.in_cycle,
           m.state, m.datname, m.usename, m.application_name, m.xact_start,
           m.locktype, m.mode, m.object, blocking_tree_at.at - m.wait_start, m.query, f.collapsed_count,
           m.client_addr, m.wait_id, m.members
    FROM graph AS g
    CROSS JOIN LATERAL lock_history.forest(g.pids, g.children, g.parents, blocking_tree_at.max_siblings) AS f
    JOIN member AS r ON r.no = f.root
    JOIN lock_history.recorded AS n ON n.node_id = r.node_id
    LEFT JOIN member AS m ON m.no = f.member
    LEFT JOIN blocked AS b ON b.node_id = m.node_id AND b.child = m.proc_key
    -- The tree with most processes in it comes first.
    ORDER BY n.node, pg_catalog.sum(coalesce(f.collapsed_count, 1)) OVER (PARTITION BY f.tree) DESC, f.ordinal;
END
$$;
COMMENT ON FUNCTION lock_history.blocking_tree_at(timestamptz, text, integer) IS
    'Who waited for whom at that moment, as trees: roots first, each waiter below its blockers (node: default this server; max_siblings: more processes side by side that block nobody become one row)';
REVOKE ALL ON FUNCTION lock_history.blocking_tree_at(timestamptz, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.blocking_tree_at(timestamptz, text, integer) TO pg_monitor;

-- The same by a time as a person says it.  A literal without a type comes here,
-- now() and columns go to the sister above.
CREATE FUNCTION lock_history.moment(spoken text, before timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    -- A CASE: only the cast that is meant may fail.
    SELECT CASE
        WHEN moment.spoken !~* '^\s*\d{1,2}:\d{2}(:\d{2}(\.\d*)?)?\s*([ap]m)?\s*$' THEN moment.spoken::timestamptz
        WHEN (moment.before::date + moment.spoken::time)::timestamptz <= moment.before
        THEN (moment.before::date + moment.spoken::time)::timestamptz
        ELSE (moment.before::date - 1 + moment.spoken::time)::timestamptz END
$$;
COMMENT ON FUNCTION lock_history.moment(text, timestamptz) IS
    'internal: a bare time of day as the latest one not after a moment, in the session''s time zone; anything else as timestamptz reads it';
REVOKE ALL ON FUNCTION lock_history.moment(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.moment(text, timestamptz) TO pg_monitor;

CREATE FUNCTION lock_history.blocking_tree_at(at text, node text DEFAULT NULL, max_siblings integer DEFAULT 50)
RETURNS SETOF lock_history.blocking_tree
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t
    FROM lock_history.blocking_tree_at(
        lock_history.moment(blocking_tree_at.at, coalesce(
            (SELECT r.until FROM lock_history.recorded AS r WHERE r.incident = lock_history.incident()),
            statement_timestamp())),
        blocking_tree_at.node, blocking_tree_at.max_siblings) AS t
$$;
COMMENT ON FUNCTION lock_history.blocking_tree_at(text, text, integer) IS
    'The same by a written time: 14:32 is the latest 14:32 that is not in the future, or not after the end of the kept incident that is read; anything else is read as a timestamptz';
REVOKE ALL ON FUNCTION lock_history.blocking_tree_at(text, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.blocking_tree_at(text, text, integer) TO pg_monitor;
