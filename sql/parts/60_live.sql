-- What is in shared memory: who waits now, and which waits ended last.  No
-- table of the history is read, so this works in every database that has the
-- extension, while the history cannot be written, and on a standby.

-- One record of the live area.  The first three columns are the reader's, all
-- others stand in the record, in this order (gosrc/live/area.go).
CREATE TYPE lock_history.live_row AS (
    node               text,
    taken_at           timestamptz,   -- when the graph was copied; null: an ended wait
    until              timestamptz,   -- up to when its waits are known to go on
    member             integer,       -- number in the graph; null: an ended wait, or one that another member tells about
    parents            integer[],     -- members in its way: hard blockers, or else the nearest soft one
    blocked_by         integer[],     -- their pids
    kind               text,
    group_pid          integer,       -- leader of its lock group, which the member stands for
    members            integer[],     -- other processes of the group that took part
    wait_id            bigint,        -- null: it does not wait
    pid                integer,
    gid                text,
    backend_start      timestamptz,
    leader_pid         integer,
    backend_type       text,
    state              text,
    state_change       timestamptz,
    datname            text,
    usename            text,
    application_name   text,
    xact_start         timestamptz,
    query_start        timestamptz,
    client_addr        inet,
    query_id           bigint,
    query              text,
    locktype           text,
    mode               text,
    object             text,
    object_datname     text,
    database           oid,
    relation           oid,
    page               integer,
    tuple              smallint,
    virtualxid         text,
    transactionid      xid,
    classid            oid,
    objid              oid,
    objsubid           smallint,
    wait_start         timestamptz,
    wait_end           timestamptz,
    granted            boolean,
    outcome            text,
    samples            bigint,
    hard_blockers      integer[],
    soft_blockers      integer[],
    root_blockers      integer[],
    hard_blocker_count integer,
    soft_blocker_count integer,
    in_cycle           boolean
);
COMMENT ON TYPE lock_history.live_row IS 'internal: one record of the live area';
REVOKE ALL ON TYPE lock_history.live_row FROM PUBLIC;
GRANT USAGE ON TYPE lock_history.live_row TO pg_monitor;

CREATE FUNCTION lock_history.live_rows(graph boolean, waits boolean)
RETURNS SETOF lock_history.live_row
LANGUAGE C STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'plh_live_rows';
COMMENT ON FUNCTION lock_history.live_rows(boolean, boolean) IS
    'internal: records of the live area: the latest graph, the waits that ended last, or both as they were at one moment; query, query_id and client_addr masked as in pg_stat_activity';
REVOKE ALL ON FUNCTION lock_history.live_rows(boolean, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.live_rows(boolean, boolean) TO pg_monitor;

-- One record of load.  The first column is the reader's.
CREATE TYPE lock_history.live_load_row AS (
    node            text,
    at              timestamptz,
    wait_event_type text,
    wait_event      text,
    lwlock_mode     text,
    datname         text,
    usename         text,
    backend_type    text,
    query_id        bigint,
    load_us         bigint,
    sampled_us      bigint
);
COMMENT ON TYPE lock_history.live_load_row IS 'internal: one record of load in the live area';
REVOKE ALL ON TYPE lock_history.live_load_row FROM PUBLIC;
GRANT USAGE ON TYPE lock_history.live_load_row TO pg_monitor;

CREATE FUNCTION lock_history.live_load()
RETURNS SETOF lock_history.live_load_row
LANGUAGE C STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'plh_live_load';
COMMENT ON FUNCTION lock_history.live_load() IS
    'internal: load in the live area; query_id masked as in pg_stat_activity';
REVOKE ALL ON FUNCTION lock_history.live_load() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.live_load() TO pg_monitor;

CREATE FUNCTION lock_history.recent_load()
RETURNS SETOF lock_history.load
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.node, l.at, l.wait_event_type, l.wait_event, l.lwlock_mode, l.datname, l.usename, l.backend_type, l.query_id,
           l.load_us::double precision / nullif(l.sampled_us, 0)
    FROM lock_history.live_load() AS l
$$;
COMMENT ON FUNCTION lock_history.recent_load() IS
    'As view load, from shared memory, in any database: the last seconds, as many as fit; a restart of the server clears it';
REVOKE ALL ON FUNCTION lock_history.recent_load() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.recent_load() TO pg_monitor;

-- As blocking_tree_at(): the same columns, the same order of siblings, one row for
-- a parallel query.
CREATE VIEW lock_history.blocking_now AS
WITH member AS MATERIALIZED (
    SELECT pg_catalog.row_number() OVER (ORDER BY r.wait_start NULLS FIRST, r.group_pid, r.member)::integer AS no,
           r.node, r.taken_at, r.until, r.member, r.parents, r.blocked_by, r.kind, r.wait_id, r.group_pid AS pid, r.gid,
           CASE WHEN r.pid = r.group_pid THEN r.backend_start END AS backend_start,
           CASE WHEN r.pid = r.group_pid THEN r.backend_type END AS backend_type, r.state, r.datname, r.usename, r.application_name, r.client_addr,
           r.xact_start, r.query, r.locktype, r.mode, r.object, r.wait_start, r.members
    FROM lock_history.live_rows(true, false) AS r
    WHERE r.member IS NOT NULL
), link AS (
    -- to a waiter that did not fit leads nothing
    SELECT c.no AS child, p.no AS parent, u.ord
    FROM member AS c
    CROSS JOIN LATERAL pg_catalog.unnest(c.parents) WITH ORDINALITY AS u(member, ord)
    JOIN member AS p ON p.member = u.member
), graph AS (
    SELECT (SELECT pg_catalog.array_agg(m.pid ORDER BY m.no) FROM member AS m) AS pids,
           pg_catalog.array_agg(l.child ORDER BY l.child, l.ord) AS children,
           pg_catalog.array_agg(l.parent ORDER BY l.child, l.ord) AS parents
    FROM link AS l
), tree AS (
    SELECT f.ordinal, f.level, f.path, f.member, f.root, f.in_cycle, f.collapsed_count,
           pg_catalog.sum(coalesce(f.collapsed_count, 1)) OVER (PARTITION BY f.tree) AS size
    FROM graph AS g
    CROSS JOIN LATERAL lock_history.forest(g.pids, g.children, g.parents, 50) AS f
)
SELECT r.node, t.level, t.path, m.pid, m.gid, m.backend_start, m.backend_type, m.blocked_by,
       r.pid AS root_pid, m.kind, t.in_cycle, m.state, m.datname, m.usename, m.application_name, m.xact_start,
       m.locktype, m.mode, m.object, CASE WHEN m.wait_start IS NOT NULL THEN greatest(m.until - m.wait_start, interval '0') END AS waited,
       m.query, t.collapsed_count,
       m.client_addr, m.wait_id, m.members, r.taken_at
FROM tree AS t
JOIN member AS r ON r.no = t.root
LEFT JOIN member AS m ON m.no = t.member
ORDER BY t.size DESC, t.ordinal;

GRANT SELECT ON lock_history.blocking_now TO pg_monitor;
COMMENT ON VIEW lock_history.blocking_now IS
    'Who waits for whom now, as trees: as blocking_tree_at(), from shared memory, in any database';
COMMENT ON COLUMN lock_history.blocking_now.node IS 'this server';
COMMENT ON COLUMN lock_history.blocking_now.level IS 'depth: 0 for a root';
COMMENT ON COLUMN lock_history.blocking_now.path IS 'pids from the root down to this row';
COMMENT ON COLUMN lock_history.blocking_now.pid IS 'the process; -n: n-th prepared transaction, see gid; null: a collapsed row';
COMMENT ON COLUMN lock_history.blocking_now.gid IS 'name of the prepared transaction; null: a process';
COMMENT ON COLUMN lock_history.blocking_now.backend_start IS 'when the process started; null: a leader of whom only the workers wait';
COMMENT ON COLUMN lock_history.blocking_now.backend_type IS 'kind of process, as in pg_stat_activity';
COMMENT ON COLUMN lock_history.blocking_now.blocked_by IS 'all pids it is blocked by: the hard blockers, or the nearest soft one when there is none; empty: it does not wait, or by whom is not known';
COMMENT ON COLUMN lock_history.blocking_now.root_pid IS 'pid at the top of this tree; of a cycle the smallest pid in it';
COMMENT ON COLUMN lock_history.blocking_now.kind IS 'hard: the blockers hold a conflicting mode; soft: the blocker is ahead in the queue; null: nobody in its way';
COMMENT ON COLUMN lock_history.blocking_now.in_cycle IS 'waits, over others, for itself: a deadlock in the making';
COMMENT ON COLUMN lock_history.blocking_now.state IS 'state when last looked at, as in pg_stat_activity, or prepared';
COMMENT ON COLUMN lock_history.blocking_now.datname IS 'database the process is connected to';
COMMENT ON COLUMN lock_history.blocking_now.usename IS 'role of the process';
COMMENT ON COLUMN lock_history.blocking_now.application_name IS 'application_name of the process';
COMMENT ON COLUMN lock_history.blocking_now.xact_start IS 'start of its transaction; of a prepared one the time of PREPARE';
COMMENT ON COLUMN lock_history.blocking_now.locktype IS 'kind of object it waits for, as in pg_locks; null: it does not wait';
COMMENT ON COLUMN lock_history.blocking_now.mode IS 'lock mode it waits for; null: it does not wait';
COMMENT ON COLUMN lock_history.blocking_now.object IS 'object it waits for; null: it does not wait';
COMMENT ON COLUMN lock_history.blocking_now.waited IS 'how long it has been waiting: up to now, or to taken_at when the worker is dead; null: it does not wait';
COMMENT ON COLUMN lock_history.blocking_now.query IS 'its statement, or the last one when idle in transaction';
COMMENT ON COLUMN lock_history.blocking_now.collapsed_count IS 'this row stands for so many further processes below the same blocker that block nobody; null: it stands for itself';
COMMENT ON COLUMN lock_history.blocking_now.client_addr IS 'address of the client; null: local socket, no client, or insufficient privilege';
COMMENT ON COLUMN lock_history.blocking_now.wait_id IS 'the wait, as in waits; null: it does not wait';
COMMENT ON COLUMN lock_history.blocking_now.members IS 'other processes of its parallel query that wait or hold locks in the way; the row is about all of them; null: it stands alone';
COMMENT ON COLUMN lock_history.blocking_now.taken_at IS 'when the worker copied the locks: this is how it was then';

-- A wait that ended while the graph was published is in both for a moment: its
-- end counts.
CREATE FUNCTION lock_history.recent_waits()
RETURNS SETOF lock_history.waits
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH wait AS MATERIALIZED (
        SELECT r.node, r.until, r.wait_id, r.pid, r.backend_start, r.leader_pid, r.backend_type, r.datname, r.usename,
               r.application_name, r.client_addr, r.query_id, r.query, r.query_start, r.xact_start,
               r.locktype, r.mode, r.object, r.database, r.relation, r.page, r.tuple, r.virtualxid, r.transactionid,
               r.classid, r.objid, r.objsubid, r.wait_start, r.wait_end, r.granted, r.outcome, r.samples,
               r.hard_blockers, r.soft_blockers, r.root_blockers, r.hard_blocker_count, r.soft_blocker_count,
               r.object_datname, r.in_cycle,
               pg_catalog.row_number() OVER (PARTITION BY r.wait_id ORDER BY r.wait_end NULLS LAST) AS version
        FROM lock_history.live_rows(true, true) AS r
        WHERE r.wait_id IS NOT NULL
    )
    SELECT w.node, w.wait_id, w.pid, w.backend_start, w.leader_pid, w.backend_type, w.datname, w.usename,
           w.application_name, w.client_addr, w.query_id, w.query, w.query_start, w.xact_start,
           w.locktype, w.mode, w.object, w.database, w.relation, w.page, w.tuple, w.virtualxid, w.transactionid,
           w.classid, w.objid, w.objsubid, w.wait_start, w.wait_end,
           greatest(coalesce(w.wait_end, w.until) - w.wait_start, interval '0'),
           w.granted, w.outcome, w.samples, w.hard_blockers, w.soft_blockers, w.root_blockers,
           w.hard_blocker_count, w.soft_blocker_count, w.object_datname, w.in_cycle
    FROM wait AS w
    WHERE w.version = 1
    ORDER BY w.wait_start
$$;
COMMENT ON FUNCTION lock_history.recent_waits() IS
    'As view waits, from shared memory, in any database: waits that go on, and the last ones that ended; a restart of the server clears it';
REVOKE ALL ON FUNCTION lock_history.recent_waits() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lock_history.recent_waits() TO pg_monitor;
